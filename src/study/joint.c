#include "study/joint.h"

#include <gsl/gsl_linalg.h>
#include <math.h>
#include <string.h>

enum { STEPS = 60, HALVINGS = 8 };
#define NEAR_ZERO 0.005 /* residual below which |r| is rounded off */
#define STILL     1e-4  /* no figure moves more: done */

static double off(const MsJointBelief *b, const double *x) {
  return x[b->of] - (b->than < 0 ? 0 : x[b->than]) + b->shift;
}

static double rounded(double r) { return hypot(r, NEAR_ZERO); }

static double objective(const MsJoint *j, const double *x) {
  double sum = 0;
  for (guint i = 0; i < j->n_runs; i++)
    if (j->weight[i] > 0) sum += j->weight[i] / j->scale * rounded(j->residual(i, x, j->data));
  for (guint i = 0; i < j->n_beliefs; i++) {
    double d = off(&j->belief[i], x) / j->belief[i].spread;
    sum += d * d / 2;
  }
  return sum;
}

static void add(gsl_matrix *a, guint i, guint k, double value) { *gsl_matrix_ptr(a, i, k) += value; }
static void take(gsl_vector *b, guint i, double value) { *gsl_vector_ptr(b, i) -= value; }

static double slope(const MsJoint *j, guint run, double *x, guint of) {
  double is = x[of], up, down;
  x[of] = is + j->step[of], up = j->residual(run, x, j->data);
  x[of] = is - j->step[of], down = j->residual(run, x, j->data);
  x[of] = is;
  return (up - down) / (2 * j->step[of]);
}

static void add_run(const MsJoint *j, guint run, double *x, gsl_matrix *a, gsl_vector *b) {
  guint on[MS_JOINT_DEPENDS], n = j->depends(run, on, j->data);
  double slopes[MS_JOINT_DEPENDS], r = j->residual(run, x, j->data), weight = j->weight[run] / j->scale / rounded(r);
  for (guint i = 0; i < n; i++) slopes[i] = slope(j, run, x, on[i]);
  for (guint i = 0; i < n; i++) {
    take(b, on[i], weight * slopes[i] * r);
    for (guint k = 0; k < n; k++) add(a, on[i], on[k], weight * slopes[i] * slopes[k]);
  }
}

static void add_belief(const MsJointBelief *p, const double *x, gsl_matrix *a, gsl_vector *b) {
  double sure = 1 / (p->spread * p->spread), pull = sure * off(p, x);
  add(a, p->of, p->of, sure);
  take(b, p->of, pull);
  if (p->than < 0) return;
  guint than = (guint)p->than;
  add(a, than, than, sure), add(a, p->of, than, -sure), add(a, than, p->of, -sure);
  take(b, than, -pull);
}

/* The step of least squares around x, in b. */
static void solve(const MsJoint *j, double *x, gsl_matrix *a, gsl_vector *b) {
  gsl_matrix_set_zero(a);
  gsl_vector_set_zero(b);
  for (guint i = 0; i < j->n_runs; i++)
    if (j->weight[i] > 0) add_run(j, i, x, a, b);
  for (guint i = 0; i < j->n_beliefs; i++) add_belief(&j->belief[i], x, a, b);
  gsl_linalg_cholesky_decomp1(a);
  gsl_linalg_cholesky_svx(a, b);
}

void ms_joint_fit(const MsJoint *j, double *x) {
  gsl_matrix *a = gsl_matrix_alloc(j->n, j->n);
  gsl_vector *b = gsl_vector_alloc(j->n);
  g_autofree double *from = g_new(double, j->n);
  double best = objective(j, x), moved = HUGE_VAL;
  for (int step = 0; step < STEPS && moved > STILL; step++) {
    solve(j, x, a, b);
    memcpy(from, x, j->n * sizeof *x);
    double part = 1, value = HUGE_VAL;
    for (int halving = 0; halving <= HALVINGS && value > best; halving++, part /= 2) {
      for (guint i = 0; i < j->n; i++) x[i] = CLAMP(from[i] + part * gsl_vector_get(b, i), j->low[i], j->high[i]);
      value = objective(j, x);
    }
    if (value > best) memcpy(x, from, j->n * sizeof *x);
    moved = 0;
    for (guint i = 0; i < j->n; i++) moved = MAX(moved, fabs(x[i] - from[i]));
    best = MIN(best, value);
  }
  gsl_vector_free(b);
  gsl_matrix_free(a);
}
