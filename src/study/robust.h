/* src/study/robust.h - the choice of a layout when the cluster is not always as planned: expected and 95th percentile
 * of the step time.
 *
 * Candidates are the best of a plan by nominal step time. Each is simulated in full in every state of the disturbances:
 *   scale, routing   on the changed machine, with the changed routing;
 *   uncertainty      `samples` times with the time of every curve multiplied by exp(sigma z), z normal, sigma from its
 * 90 % residual, and the whole step by what runs have in common (sim/band.h). The same draws for every candidate;
 *   gpus_differ      with the step that is expected of GPUs that differ (sim/scale.h), slow_gpu among them; its spread
 * over the GPUs that a job may get as three outcomes of that mean and standard deviation;
 *   slow_gpu         with a slow GPU in each pipeline stage in turn. A stage has gpus / pp GPUs, so it has a slow one
 * with q = 1 - (1 - rate)^(gpus / pp); the stage whose slow GPU costs most decides, which gives the probability of
 * every outcome. Expected is the mean over all outcomes by weight; p95 the smallest time that 95 % of them do not
 * exceed. Running out of memory is a step without end. Seeded; same input, same output.
 *
 * How far the ranking is exact: a layout outside the candidates has a nominal step of at least that of the last
 * candidate, T (the plan is exact). In a state that shortens no task by more than a factor f its step is at least f T.
 * With F the weighted mean of those f, its expected step is at least F T: when that is above the winner's, the winner
 * is the best of all layouts (`proven`). Scaled rates and times that make the machine faster, or routing where the
 * plan's own is not balanced, count as f = 0; so does a plan ranked by anything but step time. */
#ifndef MS_STUDY_ROBUST_H
#define MS_STUDY_ROBUST_H

#include "describe/disturbance.h"
#include "plan/plan.h"

#define MS_ROBUST_CANDIDATES 32 /* the least number of candidates a plan should keep */

typedef struct {
  const MsPlanEntry *entry; /* borrowed from the plan */
  int place, place_p95;     /* by nominal step time; by p95; from 1 */
  double expected_s, p95_s; /* infinite when some state does not fit */
  double *state_s;          /* [states] mean step time in each */
} MsRobustRow;

typedef struct {
  const MsDisturbances *disturbances; /* borrowed */
  int n;
  MsRobustRow *row; /* ascending expected step time, ties by p95, then nominal place */
  gboolean proven;
  double
      outside_s; /* no layout outside the candidates has a smaller expected step; infinite when there is none outside */
} MsRobust;

/* plan->n_best > 0; the plan must outlive the result. `kept` is how many the plan was asked to keep. NULL and *error
 * when a simulation fails or on Ctrl-C. (transfer full) */
MsRobust *ms_robust(const MsPlan *plan, int kept, const MsDisturbances *disturbances, const MsPlanOptions *options,
                    GError **error);
void ms_robust_free(MsRobust *robust);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsRobust, ms_robust_free)

typedef struct {
  double time_s, weight;
} MsOutcome;
/* Expected value and the smallest time whose cumulative weight reaches `share` of the whole; sorts `outcome`. n > 0.
 * For tests. */
double ms_outcomes_mean(const MsOutcome *outcome, int n);
double ms_outcomes_quantile(MsOutcome *outcome, int n, double share);

#endif
