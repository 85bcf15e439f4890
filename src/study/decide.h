/* src/study/decide.h - how sure the choice of a layout is, and which short runs would settle it.
 *
 * A predicted step is off by more than what all layouts of a task share. Log errors of two layouts of one task differ,
 * normally distributed, by a variance
 *
 *   D = decision_layout_spread^2 x doublings between the sizes of the layout, and the microbatch, of both
 *     + decision_option_spread^2 x other keys that differ
 *
 * (laws; what published runs of one task say: docs/theory/decisions.md). A schedule that differs counts as one
 * doubling, keys that follow from others (options.sequence_parallel from layout.tp) do not count. That is a Gaussian
 * process over the layouts; drawn jointly it gives each layout's chance of being the fastest and its expected regret,
 * the share of a step that choosing it costs over the fastest. A run that is measured tells its own step, within
 * decision_run_noise, and by the same covariance something of those that are like it; then the layout with the smallest
 * mean is chosen. Runs that the machine was anchored by (describe/anchor.h) are such measurements: draws, means and
 * chances are those after them, with an error that all layouts share of standard deviation anchor_site_spread, which
 * the factors of the anchor left. The runs proposed are those after which the expected regret is least, one added after
 * the other. Seeded: same input, same output.
 */
#ifndef MS_STUDY_DECIDE_H
#define MS_STUDY_DECIDE_H

#include "plan/plan.h"

enum { MS_DECIDE_CANDIDATES = 32 /* the least number a plan should keep */, MS_DECIDE_RUNS = 3 };

typedef struct {
  const MsPlanEntry *entry; /* borrowed from the plan */
  int place;                /* in the ranking, from 1 */
  double chance;            /* of being the fastest of the candidates */
  double regret;            /* expected share of the step that choosing it costs */
} MsDecisionRow;

typedef struct {
  int n;
  MsDecisionRow *row;      /* by place */
  int n_known;             /* runs of this model that the machine was anchored by: taken into account */
  double fastest_known_s;  /* of these, of the same batch on as many GPUs, as measured; NaN: there is none */
  double expected_s;       /* step of the choice, after these runs */
  int pick;                /* index of the row of least expected regret */
  int n_runs;              /* 0: none would gain a tenth of the regret, or there is hardly any */
  int run[MS_DECIDE_RUNS]; /* indices of rows, the most telling first */
  double regret_after[MS_DECIDE_RUNS]; /* expected, when the first i + 1 of them were measured */
} MsDecision;

/* plan->n_best > 0, ranked by step time; the plan must outlive the result. (transfer full) */
MsDecision *ms_decide(const MsPlan *plan);
void ms_decision_free(MsDecision *decision);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsDecision, ms_decision_free)

/* The same of times and covariances [n][n] of their logarithms, positive definite, and the standard deviation of the
 * logarithm of a measured step; fills chance, regret and the rest of `out`, whose `n` and rows stand. For tests. */
void ms_decide_among(const double *time_s, const double *covariance, double run_noise, MsDecision *out);

#endif
