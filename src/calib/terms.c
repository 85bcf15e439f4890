/* src/calib/terms.c - non-negative least squares after Lawson and Hanson, in rounds that give outliers less and less
 * weight. */
#include "base/stats.h"
#include "calib/solve.h"

#include <gsl/gsl_multifit.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 5 };
static const double tukey = 4.685, least_scale = 0.005;

typedef struct {
  gsl_matrix *A; /* n x width: rows over targets, columns of about 1, times weights */
  gsl_vector *b; /* weights */
  int width;
} Problem;

/* Least squares over the columns that are free; others 0. */
static void solve_free(const Problem *p, const gboolean *is_free, double *x) {
  int column[MS_MAX_PARAMS], count = 0;
  memset(x, 0, sizeof *x * (size_t)p->width);
  for (int j = 0; j < p->width; j++)
    if (is_free[j]) column[count++] = j;
  size_t n = p->b->size, m = (size_t)count;
  if (m == 0 || n < m) return;
  gsl_matrix *A = gsl_matrix_alloc(n, m), *covariance = gsl_matrix_alloc(m, m);
  gsl_vector *c = gsl_vector_alloc(m);
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < m; j++) gsl_matrix_set(A, i, j, gsl_matrix_get(p->A, i, (size_t)column[j]));
  gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc(n, m);
  double chi2 = 0;
  if (gsl_multifit_linear(A, p->b, c, covariance, &chi2, work) == GSL_SUCCESS)
    for (size_t j = 0; j < m; j++) x[column[j]] = gsl_vector_get(c, j);
  gsl_multifit_linear_free(work);
  gsl_vector_free(c);
  gsl_matrix_free(covariance);
  gsl_matrix_free(A);
}

/* Gradient of every column at x: how fast more of it would lower the squares. */
static void descent(const Problem *p, const double *x, double *g) {
  for (int j = 0; j < p->width; j++) g[j] = 0;
  for (size_t i = 0; i < p->b->size; i++) {
    double r = gsl_vector_get(p->b, i);
    for (int j = 0; j < p->width; j++) r -= gsl_matrix_get(p->A, i, (size_t)j) * x[j];
    for (int j = 0; j < p->width; j++) g[j] += gsl_matrix_get(p->A, i, (size_t)j) * r;
  }
}

/* From x towards y as far as nothing turns negative; columns that end at 0 are bound. TRUE when y was reached. */
static gboolean step_towards(const Problem *p, gboolean *is_free, double *x, const double *y) {
  double step = 1;
  for (int j = 0; j < p->width; j++)
    if (is_free[j] && y[j] <= 0) step = MIN(step, x[j] / (x[j] - y[j] > 0 ? x[j] - y[j] : 1));
  gboolean reached = TRUE;
  for (int j = 0; j < p->width; j++) {
    if (!is_free[j]) continue;
    if (y[j] <= 0) reached = FALSE;
    x[j] += step * (y[j] - x[j]);
    if (y[j] <= 0 && x[j] <= 1e-15) x[j] = 0, is_free[j] = FALSE;
  }
  return reached;
}

static void non_negative(const Problem *p, double *x) {
  gboolean is_free[MS_MAX_PARAMS] = {FALSE};
  double g[MS_MAX_PARAMS], y[MS_MAX_PARAMS];
  memset(x, 0, sizeof *x * (size_t)p->width);
  for (int round = 0; round < 3 * p->width; round++) {
    int best = -1;
    descent(p, x, g);
    for (int j = 0; j < p->width; j++)
      if (!is_free[j] && g[j] > 1e-10 * (double)p->b->size && (best < 0 || g[j] > g[best])) best = j;
    if (best < 0) return;
    is_free[best] = TRUE;
    for (int inner = 0; inner <= p->width; inner++) {
      solve_free(p, is_free, y);
      if (step_towards(p, is_free, x, y)) break;
    }
  }
}

void ms_solve_terms(const double *rows, const double *target, guint n, int width, double *x) {
  double scale[MS_MAX_PARAMS] = {0};
  memset(x, 0, sizeof *x * (size_t)width);
  if (n == 0) return;
  g_autofree double *weight = g_new(double, n), *error = g_new(double, n);
  for (guint i = 0; i < n; i++) {
    weight[i] = 1;
    for (int j = 0; j < width; j++) scale[j] = MAX(scale[j], rows[i * (guint)width + (guint)j] / target[i]);
  }
  Problem p = {gsl_matrix_alloc(n, (size_t)width), gsl_vector_alloc(n), width};
  for (int round = 0; round < ROUNDS; round++) {
    for (guint i = 0; i < n; i++) {
      gsl_vector_set(p.b, i, weight[i]);
      for (int j = 0; j < width; j++)
        gsl_matrix_set(p.A, i, (size_t)j,
                       scale[j] > 0 ? weight[i] * rows[i * (guint)width + (guint)j] / target[i] / scale[j] : 0);
    }
    non_negative(&p, x);
    for (int j = 0; j < width; j++) x[j] = scale[j] > 0 ? x[j] / scale[j] : 0;
    for (guint i = 0; i < n; i++)
      error[i] = weight[i] = fabs(ms_dot(&rows[i * (guint)width], x, width) / target[i] - 1);
    double wide = tukey * MAX(1.4826 * ms_quantile(error, n, 0.5), least_scale);
    for (guint i = 0; i < n; i++) {
      double z = weight[i] / wide;
      weight[i] = z < 1 ? 1 - z * z : 0; /* root of Tukey's (1 - z^2)^2 */
    }
  }
  gsl_matrix_free(p.A);
  gsl_vector_free(p.b);
}
