/* src/calib/solve.h - robust fits: bounded nonlinear least squares of a few parameters, and the residual grid on top.
 *
 * Residuals are logarithms of predicted over measured, so that an error of 5 % counts the same at 3 us and at 3 s.
 * Tukey's loss gives no weight to points beyond about seven median deviations. Deterministic: same input, same bits. */
#ifndef MS_CALIB_SOLVE_H
#define MS_CALIB_SOLVE_H

#include "describe/hardware.h"

enum { MS_MAX_PARAMS = MS_CURVE_PARAMS + 2 };

/* lo <= value <= hi is kept by a transform; lo == hi: fixed. Searched on a logarithmic scale when `logarithmic` (then
 * lo > 0). */
typedef struct {
  double lo, hi;
  gboolean logarithmic;
} MsBound;

/* log(predicted / measured) of point i for parameters p. */
typedef double (*MsResidual)(const double *p, guint i, const void *data);

/* Minimises from each of the n_starts rows of `starts` and keeps the best in p[n_params]. Returns the mean of
 * min(|residual|, 0.5). */
double ms_solve(int n_params, const MsBound *bound, guint n_points, MsResidual residual, const void *data, int n_starts,
                const double (*starts)[MS_MAX_PARAMS], double *p);

/* Coefficients x[width] >= 0 that make predicted = row . x come closest to target > 0 in ratio, with the same loss of
 * outliers. `rows`: n x width, >= 0; width <= MS_MAX_PARAMS. All zero when there is nothing to fit. */
void ms_solve_terms(const double *rows, const double *target, guint n, int width, double *x);

typedef struct {
  double at[4];     /* coordinates */
  double log_ratio; /* log(measured / predicted without grid) */
  double share;     /* of the prediction that the grid multiplies */
} MsGridPoint;

/* Axes of at most max_nodes[d] nodes, evenly spaced in the logarithm over what the points cover and together at most
 * n_points / 3 nodes. FALSE (and dims 0) when that leaves less than two nodes on the longest axis. `names` are copied.
 */
gboolean ms_grid_axes(MsGrid *grid, int dims, const char *const *names, const int *max_nodes, const MsGridPoint *point,
                      guint n_points);
/* The node values: robust least squares with `smooth` times the squared differences of neighbours (about that many
 * points per edge). `reach` > 0: how many times seven median deviations a point may lie off before it counts nothing.
 * At 1 the grid follows the most common time; at several it follows the mean of rows that come in two speeds, and a
 * step that only some rows of a cell take is no outlier. In the first `trusting` rounds only points far off are
 * outliers (none, then beyond e, e^1/2, e^1/4, ...): where few of many show what no other does, a step of a cache. */
void ms_grid_fit(MsGrid *grid, const MsGridPoint *point, guint n_points, double smooth, double reach, int trusting);
void ms_grid_round(MsGrid *grid); /* to four digits behind the point of its logarithms */

#endif
