/* src/study/draws.h - Monte Carlo over drawn routing: the same run with other seeds.
 *
 * Draw i has the seed of the scenario + i, so draw 0 is the scenario itself, and more draws keep those before. Standard
 * errors: of the mean, sd / sqrt(n) (sd with n - 1); of a quantile q, half the distance between the quantiles q -+
 * sqrt(q (1 - q) / n), which is the normal approximation of the order statistics around it. Both shrink as 1 / sqrt(n).
 */
#ifndef MS_STUDY_DRAWS_H
#define MS_STUDY_DRAWS_H

#include "sim/simulate.h"
#include "study/jobs.h"

typedef struct {
  double mean, mean_error, sd, p50, p50_error, p95, p95_error, least, most;
} MsSpread;
/* Of n >= 1 values, which are sorted. */
MsSpread ms_spread(double *values, int n);

typedef struct {
  MsExtent extent; /* done, of those asked for */
  int n, feasible; /* draws that were done; of them those that fit into memory */
  guint32 first_seed;
  MsSpread step_time_s;
  MsSpread peak_B;  /* largest peak of a stage, on the rank that gets most rows */
  MsSpread hottest; /* rows of the hottest rank over the mean */
} MsDraws;

/* n draws on `threads` threads (0 = one per processor): the same figures for any number. FALSE and *error when routing
 * is not drawn (balanced, natural, token drop: nothing differs from draw to draw) or when a draw cannot be predicted.
 * Stopped early: figures of the draws that were done, NaN when none was. */
gboolean ms_draws_run(const MsScenario *scenario, MsFidelity fidelity, int n, int threads, gboolean progress,
                      MsDraws *out, GError **error);

#endif
