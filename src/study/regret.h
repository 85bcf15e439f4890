/* src/study/regret.h - what it costs to believe the predicted order.
 *
 * A task is what a planner may not change: the model, the machine, the number of GPUs, the software, and of the
 * training everything but the microbatch. Runs of one task differ in layout, options and microbatch. Regret is the
 * measured step of the run that was predicted fastest over that of the fastest one, less one: 0 where the prediction
 * chooses right. Of runs predicted alike the one that was measured slowest counts. */
#ifndef MS_STUDY_REGRET_H
#define MS_STUDY_REGRET_H

#include "study/validate.h"

typedef struct {
  char *chosen, *best; /* names of the runs: predicted fastest; measured fastest */
  guint runs;          /* of the task, two or more */
  double regret;
} MsRegretTask;

typedef struct {
  guint n, runs;       /* tasks; runs of all of them */
  guint right;         /* tasks without regret */
  double mean, max;    /* over the tasks */
  MsRegretTask *tasks; /* the largest regret first, then by name of the chosen run */
} MsRegret;

/* Over the counted times of the validation. NULL and *error where a file can no longer be read, or where no two runs
 * are of one task. (transfer full) */
MsRegret *ms_regret(const MsValidation *validation, GError **error);
void ms_regret_free(MsRegret *regret);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsRegret, ms_regret_free)

#endif
