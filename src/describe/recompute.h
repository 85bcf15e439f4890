/* src/describe/recompute.h - modules of selective recomputation as rows: what each needs, excludes and how it is
 * launched. */
#ifndef MS_DESCRIBE_RECOMPUTE_H
#define MS_DESCRIBE_RECOMPUTE_H

#include "describe/scenario.h"

typedef enum {
  MS_PART_EVERY,
  MS_PART_EXPERTS,
  MS_PART_LATENTS,
  MS_PART_STREAMS,
  MS_PART_DELTA_RULE,
  MS_PART_PLAIN_LAYERS /* softmax attention and an MLP */
} MsModelPart;
typedef enum { MS_DROPOUT_NONE, MS_DROPOUT_ATTENTION, MS_DROPOUT_HIDDEN } MsDropout;

/* What the planner tries where nothing is said ("auto"), in this order: sets of modules, those whose `tried` has them
 */
typedef enum {
  MS_TRY_NONE,
  MS_TRY_MOE_ACT,
  MS_TRY_MOE_ACT_NORM,
  MS_TRY_LATENTS,
  MS_TRY_LATENTS_MOE_ACT,
  MS_TRY_LATENTS_MLP,
  MS_TRY_MOE,
  MS_TRY_OPERATORS,
  MS_TRY_CORE_ATTN,
  MS_TRY_MLP,
  MS_TRY_MLP_NORM,
  MS_TRY_FULL,
  MS_N_TRIED
} MsRecomputeTried;
#define MS_TRY(set) (1u << MS_TRY_##set)

typedef struct {
  const char *word;
  MsModelPart part;                                 /* of the model that it makes again */
  gboolean elsewhere_idle;                          /* does nothing in a model without; FALSE: is refused there */
  guint32 excludes, excluded_graphs;                /* modules; scopes of graphs */
  MsDropout dropout;                                /* that it draws again, ... */
  guint32 dropout_graph;                            /* ... which Megatron-LM does not capture in these graphs */
  gboolean delayed_fp8, ep_overlap, shared_overlap; /* goes with it */
  gboolean frozen_weights;                          /* is modelled beside adapters */
  gboolean expert_inputs;                           /* makes the experts' inputs again */
  gboolean by_default;                              /* what "selective" is where no module is named */
  guint32 tried;                                    /* MS_TRY of each of the planner's sets that it is in */
  gboolean launched;                                /* by the release of Megatron-Core (launch/) */
  const char *launch_flag;                          /* of older releases, this module alone; NULL: none */
} MsRecomputeModule;
extern const MsRecomputeModule ms_recompute_modules[]; /* [MS_N_RECOMPUTE_MODULES] */

static inline gboolean ms_recomputes(const MsOptions *options, guint32 modules) { /* any of these bits, selectively */
  return options->recompute.granularity == MS_RECOMPUTE_SELECTIVE && (options->recompute.modules & modules) != 0;
}

/* The first module that is recomputed selectively and of which `is` holds; NULL. */
typedef gboolean (*MsRecomputeTest)(const MsRecomputeModule *module, const MsScenario *scenario);
const MsRecomputeModule *ms_recomputed(const MsScenario *scenario, MsRecomputeTest is);
guint32 ms_recompute_default(void); /* modules of "selective" alone */

/* The planner's sets: how, and in models of which `tried` holds. */
typedef struct {
  MsRecompute granularity;
  gboolean (*tried)(const MsModel *model);
} MsRecomputeSearched;
extern const MsRecomputeSearched ms_recompute_searched[]; /* [MS_N_TRIED] */
guint32 ms_recompute_tried(MsRecomputeTried set);         /* its modules */

/* What the model lacks that the module makes again, in words; NULL: nothing. */
const char *ms_recompute_lacks(const MsRecomputeModule *module, const MsModel *model);

#endif
