/* src/describe/lora.h - low-rank adapters beside frozen weights: the key training.lora.
 *
 * With a rank every weight of the model is frozen; beside each target y = W x stands y += alpha / rank B A x with A
 * [rank x inputs] and B [outputs x rank] (Hu et al., arXiv 2106.09685), whose weights alone have gradients and
 * optimizer states. */
#ifndef MS_DESCRIBE_LORA_H
#define MS_DESCRIBE_LORA_H

#include "describe/model.h"

typedef struct {
  int rank;        /* 0: all weights are trained */
  double alpha;    /* scale of the launch; no time follows from it */
  double dropout;  /* of the adapters' input */
  guint32 targets; /* bits, in the order of lora_target.def */
  gboolean a2a;
} MsLora;

typedef enum {
  MS_LORA_IN_ATTENTION,
  MS_LORA_IN_GQA,
  MS_LORA_IN_MLA,
  MS_LORA_IN_MLA_LOW_RANK_Q,
  MS_LORA_IN_MLA_FULL_Q,
  MS_LORA_IN_MLP,
  MS_LORA_IN_GATED_MLP
} MsLoraWhere;
typedef enum { MS_LORA_WHOLE, MS_LORA_FIRST, MS_LORA_SECOND, MS_LORA_THIRD } MsLoraPart;

enum { MS_LORA_ROWS = 4 };
typedef struct {
  const char *word, *doc;
  MsLoraWhere where;
  MsLoraPart part;
  const char *peft;              /* names, separated by spaces */
  const char *row[MS_LORA_ROWS]; /* ended by NULL */
} MsLoraTarget;
extern const MsLoraTarget ms_lora_targets[];
extern const int ms_n_lora_targets;
extern const char *const ms_lora_target_words[];
extern const MsFieldTable ms_lora_table;

static inline gboolean ms_lora_is_on(const MsLora *lora) { return lora->rank > 0; }
/* Whether the model has such a layer. */
gboolean ms_lora_target_exists(const MsLoraTarget *target, const MsModel *model);
/* The first target that stands beside the MLPs of a model with experts, NULL: none. */
const MsLoraTarget *ms_lora_beside_experts(const MsLora *lora, const MsModel *model);

#endif
