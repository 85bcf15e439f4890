/* src/plan/climb_priv.h - internal to plan/: a cut tried out, and improved. */
#ifndef MS_PLAN_CLIMB_PRIV_H
#define MS_PLAN_CLIMB_PRIV_H

#include "plan/once_priv.h"
#include "plan/partition_priv.h"
#include "sched/sched.h"

/* Rounds of the pipeline, of a step's, that are run slot by slot: two, and more of a small one whose hosts set the
 * pace; for each of the others the dearest rank decides. */
int ms_cut_rounds_run(int stages, int ranks, int rounds, gboolean paced);

enum { MS_CUT_PATHS = 8 }; /* kept of the last runs of a schedule */
typedef struct {
  int rank;     /* whose last slot ends it */
  double *runs; /* [MS_N_PASS_TIMES][n] how often each stage's stands on it; those that count less than nothing: < 0 */
} MsCutPath;

typedef struct { /* borrows costs, ranks, turns, once and pace */
  const MsLayerCosts *costs;
  const MsOnce *once; /* NULL: only the passes count */
  const MsPace *pace; /* NULL: the host is always ahead */
  gboolean waits;     /* it waits for messages; FALSE in a new trial */
  MsVirtualStages on;
  int rounds;                           /* microbatches / ranks */
  const MsScheduleTurns *turns;         /* of ms_cut_rounds_run; NULL: none is run */
  double *all;                          /* owned: what stands in the rows below */
  int *first;                           /* [n] first layer of each stage of the cut that is weighed */
  double *cost;                         /* [n] of both passes, on the device... */
  double *issue;                        /* [n] ...and of the host */
  double *turn[2];                      /* [n] of both in turn, each waiting for the other in the forward or backward */
  double *time[MS_N_PASS_TIMES];        /* [n] each */
  int n_times;                          /* those of them that count */
  double *load;                         /* [ranks] sums of cost */
  double *before;                       /* [pools][layers + 1] sums over the layers before */
  double *pass_before[MS_PASS_IS_LATE]; /* [layers + 1] with `pace`: as `time` */
  double *sent, *updated;               /* [n] once a step */
  double *sent_before, *updated_before; /* [layers + 1] */
  double *scratch;
  gint64 slots; /* run so far, or seen to be needless */
  MsCutPath path[MS_CUT_PATHS];
  int n_paths, oldest, kept, telling; /* kept: ever; telling: which spared the last run */
  int *passes;                        /* [MS_N_PASS_TIMES][n] scratch */
} MsCutTrial;
MsCutTrial *ms_cut_trial_new(const MsLayerCosts *costs, const MsOnce *once, const MsPace *pace,
                             const MsVirtualStages *on, int rounds, const MsScheduleTurns *turns);
void ms_cut_trial_free(MsCutTrial *trial);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCutTrial, ms_cut_trial_free)
/* Never more than the next: a rank begins when the first chunks before it have let a microbatch through, and its last
 * backward has to go back through them. */
double ms_cut_least(MsCutTrial *trial, const int *counts);
/* End of a step of these rounds, in the unit of the costs. */
double ms_cut_end(MsCutTrial *trial, const int *counts);
/* Moves layers while the step ends sooner than `end`; returns when it ends. */
double ms_cut_climb(MsCutTrial *trial, int *counts, double end);

#endif
