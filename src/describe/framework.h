/* src/describe/framework.h - the rows of framework.def: what a framework leaves out, has, and how it holds states.
 *
 * `framework` of a scenario is a row of it. Its options are Megatron-Core's keys, the nearest there are; what they mean
 * for time is the same for all. */
#ifndef MS_DESCRIBE_FRAMEWORK_H
#define MS_DESCRIBE_FRAMEWORK_H

#include "describe/field.h"
#include "describe/scenario.h"

/* What is computed again of a layer */
typedef enum {
  MS_AGAIN_ALL,  /* all of it */
  MS_AGAIN_STOP, /* with recompute_early_stop up to the last tensor that its backward reads: a plain operator that would
                    only read it does not run; autograd functions with a context of their own, as TransformerEngine's,
                    do, since they save behind what they run (torch.utils.checkpoint without reentrance) */
  MS_AGAIN_READ  /* the same, and compiled layers make nothing that no gradient reads */
} MsAgain;

typedef struct {
  const char *word, *doc;
#define MS_COLUMN(type, name, doc) type name;
#include "describe/framework_column.def"
#undef MS_COLUMN
} MsFrameworkRow;
extern const MsFrameworkRow ms_frameworks[]; /* [MS_N_FRAMEWORKS] */

/* Sharded by torch.distributed.fsdp, in either way. */
static inline gboolean ms_framework_has_units(const MsFrameworkRow *f) { return f->shard_copies || f->flat_parameters; }
/* Gradients that are sharded go when they are reduced: autograd adds to none. */
static inline gboolean ms_framework_drops_gradients(const MsFrameworkRow *f) {
  return ms_framework_has_units(f) || f->gradient_buckets;
}

static inline const MsFrameworkRow *ms_framework(const MsScenario *scenario) {
  return &ms_frameworks[scenario->framework];
}

/* What is left out in a file of that framework: over the defaults of the table that are in *options. */
void ms_framework_defaults(MsFramework framework, MsOptions *options);
/* The same of the family of a stack, over those of its framework. */
void ms_family_defaults(const MsStackFamily *family, MsOptions *options);
/* The first option that the framework has no other value of than *options says; NULL: none. (transfer none) */
const MsField *ms_framework_lacks(MsFramework framework, const MsOptions *options);
guint32 ms_framework_lacked_modules(const MsScenario *scenario); /* of those that it recomputes selectively */
gboolean ms_framework_schedules(const MsScenario *scenario);     /* it has the schedule */
gboolean ms_framework_shards(const MsScenario *scenario);        /* as options.fsdp says */
gboolean ms_framework_routes(const MsScenario *scenario);        /* as training.routing says */
gboolean ms_framework_fits(const MsScenario *scenario); /* it has all that the rules on options ask of a framework */
/* Attention is products whose scores are stored. Layers without TransformerEngine lack its cuDNN kernels; PyTorch has
 * such kernels of its own, which frameworks of its layers take. */
gboolean ms_framework_stores_scores(const MsScenario *scenario);

#endif
