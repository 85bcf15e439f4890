/* src/calib/solve.c - bounded robust least squares with GSL; see solve.h. */
#include "calib/solve.h"

#include "base/stats.h"

#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 5, ITERATIONS = 40 };
static const double tukey = 4.685, least_scale = 0.005, cap = 0.5;

typedef struct {
  int n_params, n_free;
  const MsBound *bound;
  MsResidual residual;
  const void *data;
  guint n_points;
  double *root_weight;
} Problem;

/* --- transforms ------------------------------------------------------------------------------------------------ */
static double to_bounded(const MsBound *b, double u) {
  double s = 1 / (1 + exp(-u));
  return b->logarithmic ? b->lo * pow(b->hi / b->lo, s) : b->lo + (b->hi - b->lo) * s;
}

static double to_free(const MsBound *b, double value) {
  double s = b->logarithmic ? log(MAX(value, b->lo) / b->lo) / log(b->hi / b->lo) : (value - b->lo) / (b->hi - b->lo);
  s = CLAMP(s, 0.005, 0.995);
  return log(s / (1 - s));
}

static void unpack(const Problem *problem, const gsl_vector *u, double *p) {
  for (int i = 0, f = 0; i < problem->n_params; i++)
    p[i] = problem->bound[i].lo < problem->bound[i].hi ? to_bounded(&problem->bound[i], gsl_vector_get(u, (size_t)f++))
                                                       : problem->bound[i].lo;
}

static int residuals(const gsl_vector *u, void *params, gsl_vector *out) {
  const Problem *problem = params;
  double p[MS_MAX_PARAMS];
  unpack(problem, u, p);
  for (guint i = 0; i < problem->n_points; i++) {
    double r = problem->residual(p, i, problem->data);
    gsl_vector_set(out, i, problem->root_weight[i] * (isfinite(r) ? CLAMP(r, -10, 10) : 10));
  }
  return GSL_SUCCESS;
}

/* --- robust ---------------------------------------------------------------------------------------------------- */
/* Weights for the next round from the residuals at p; returns the objective. */
static double reweigh(Problem *problem, const double *p, double *scratch) {
  double sum = 0;
  for (guint i = 0; i < problem->n_points; i++) {
    double r = fabs(problem->residual(p, i, problem->data));
    problem->root_weight[i] = scratch[i] = isfinite(r) ? r : 10;
    sum += MIN(scratch[i], cap);
  }
  double scale = MAX(1.4826 * ms_quantile(scratch, problem->n_points, 0.5), least_scale) * tukey;
  for (guint i = 0; i < problem->n_points; i++) {
    double z = problem->root_weight[i] / scale;
    problem->root_weight[i] = z < 1 ? 1 - z * z : 0; /* root of Tukey's (1 - z^2)^2 */
  }
  return sum / problem->n_points;
}

static gboolean descend(Problem *problem, gsl_vector *u) {
  gsl_multifit_nlinear_parameters options = gsl_multifit_nlinear_default_parameters();
  gsl_multifit_nlinear_fdf fdf = {
      .f = residuals, .n = problem->n_points, .p = (size_t)problem->n_free, .params = problem};
  gsl_multifit_nlinear_workspace *work = gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &options, fdf.n, fdf.p);
  if (!work) return FALSE;
  int info = 0, status = gsl_multifit_nlinear_init(u, &fdf, work);
  if (status == GSL_SUCCESS)
    status = gsl_multifit_nlinear_driver(ITERATIONS, 1e-6, 1e-8, 1e-8, NULL, NULL, &info, work);
  gsl_vector_memcpy(u, gsl_multifit_nlinear_position(work));
  gsl_multifit_nlinear_free(work);
  return status == GSL_SUCCESS || status == GSL_EMAXITER || status == GSL_ENOPROG;
}

/* From one start; p holds the start and gets the best point met. */
static double from_start(Problem *problem, double *p, double *scratch) {
  double trial[MS_MAX_PARAMS];
  gsl_vector *u = gsl_vector_alloc((size_t)problem->n_free);
  for (int i = 0, f = 0; i < problem->n_params; i++) {
    if (problem->bound[i].lo < problem->bound[i].hi) gsl_vector_set(u, (size_t)f++, to_free(&problem->bound[i], p[i]));
  }
  unpack(problem, u, p);
  double best = reweigh(problem, p, scratch);
  for (guint i = 0; i < problem->n_points; i++) problem->root_weight[i] = 1;
  for (int round = 0; round < ROUNDS; round++) {
    if (!descend(problem, u)) break;
    unpack(problem, u, trial);
    double now = reweigh(problem, trial, scratch);
    if (round > 1 && now > best * (1 - 1e-4)) break;
    if (now < best) best = now, memcpy(p, trial, sizeof trial);
  }
  gsl_vector_free(u);
  return best;
}

double ms_solve(int n_params, const MsBound *bound, guint n_points, MsResidual residual, const void *data, int n_starts,
                const double (*starts)[MS_MAX_PARAMS], double *p) {
  g_autofree double *weight = g_new(double, n_points + 1), *scratch = g_new(double, n_points + 1);
  Problem problem = {n_params, 0, bound, residual, data, n_points, weight};
  double best = HUGE_VAL;
  for (int i = 0; i < n_params; i++) problem.n_free += bound[i].lo < bound[i].hi;
  for (int s = 0; s < n_starts; s++) {
    double trial[MS_MAX_PARAMS] = {0};
    for (int i = 0; i < n_params; i++) trial[i] = bound[i].lo < bound[i].hi ? starts[s][i] : bound[i].lo;
    double now =
        problem.n_free > 0 && n_points >= (guint)problem.n_free ? from_start(&problem, trial, scratch) : HUGE_VAL;
    if (s == 0 || now < best) best = now, memcpy(p, trial, sizeof *p * (size_t)n_params);
  }
  return best;
}
