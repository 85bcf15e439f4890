#include "fault/fault.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_min.h>
#include <math.h>

double ms_fault_rate(const MsFaultModel *m) {
  double rate = 0;
  for (int i = 0; i < m->n_kinds; i++) rate += m->kind[i].rate_Hz;
  return rate;
}

double ms_fault_recovery_s(const MsFaultModel *m) {
  double rate = ms_fault_rate(m), sum = 0;
  for (int i = 0; i < m->n_kinds; i++) sum += m->kind[i].rate_Hz * m->kind[i].detection_s;
  return m->restart_s + (rate > 0 ? sum / rate : 0);
}

double ms_fault_young_s(const MsFaultModel *m) { return sqrt(2 * m->stall_s / ms_fault_rate(m)); }

double ms_fault_daly_s(const MsFaultModel *m) {
  double mtbf = 1 / ms_fault_rate(m), d = m->stall_s;
  if (!isfinite(mtbf)) return INFINITY;
  if (d >= 2 * mtbf) return mtbf;
  return sqrt(2 * d * mtbf) * (1 + sqrt(d / (2 * mtbf)) / 3 + d / (18 * mtbf)) - d;
}

/* The chance that a recovery is not hit by the next failure. */
static double untouched(const MsFaultModel *m, double rate) {
  double sum = 0;
  for (int i = 0; i < m->n_kinds; i++)
    sum += m->kind[i].rate_Hz / rate * exp(-rate * (m->kind[i].detection_s + m->restart_s));
  return sum;
}

typedef struct {
  double first_s, next_s;
} Segment; /* a and b of the header */

static Segment segment(const MsFaultModel *m, double interval_s) {
  double rate = ms_fault_rate(m), busy_s = interval_s + m->stall_s;
  if (!(rate > 0)) return (Segment){busy_s + m->write_s, busy_s};
  double f = untouched(m, rate), first = expm1(rate * (busy_s + m->write_s)) / rate / f;
  return (Segment){first, -expm1(-rate * busy_s) * (1 / rate / f + first)};
}

double ms_fault_expected_s(const MsFaultModel *m, double interval_s, double n) {
  Segment s = segment(m, interval_s);
  return s.first_s + (n - 1) * s.next_s;
}

double ms_fault_ettr(const MsFaultModel *m, double interval_s) { return interval_s / segment(m, interval_s).next_s; }

double ms_fault_ettr_first_order(const MsFaultModel *m, double interval_s) {
  double lost = ms_fault_rate(m) * (ms_fault_recovery_s(m) + interval_s / 2);
  return MAX(0, 1 - lost) / (1 + m->stall_s / interval_s);
}

static double loss(double log_interval, void *data) {
  double ettr = ms_fault_ettr(data, exp(log_interval));
  return isfinite(ettr) ? -ettr : 0;
}

double ms_fault_optimal_s(const MsFaultModel *m, double shortest_s) {
  enum { SCAN = 64, ROUNDS = 100 };
  MsFaultModel copy = *m;
  const double least_s = MAX(MAX(shortest_s, m->write_s), 1e-3); /* exp(log(x)) may be below x */
  double rate = ms_fault_rate(m), low = log(least_s), high = MAX(low + 1, log(rate > 0 ? 10 / rate : 1e9));
  if (!(rate > 0)) return exp(high);
  int best = 0;
  for (int i = 1; i < SCAN; i++) /* brackets the minimum */
    if (loss(low + (high - low) * i / (SCAN - 1), &copy) < loss(low + (high - low) * best / (SCAN - 1), &copy))
      best = i;
  double a = low + (high - low) * MAX(best - 1, 0) / (SCAN - 1),
         b = low + (high - low) * MIN(best + 1, SCAN - 1) / (SCAN - 1), at = low + (high - low) * best / (SCAN - 1);
  if (best == 0) return least_s;
  if (best == SCAN - 1) return exp(at);
  gsl_min_fminimizer *minimiser = gsl_min_fminimizer_alloc(gsl_min_fminimizer_brent);
  gsl_function f = {loss, &copy};
  int status = gsl_min_fminimizer_set(minimiser, &f, at, a, b);
  for (int i = 0; status == GSL_SUCCESS && i < ROUNDS; i++) {
    status = gsl_min_fminimizer_iterate(minimiser);
    at = gsl_min_fminimizer_x_minimum(minimiser);
    if (gsl_min_test_interval(gsl_min_fminimizer_x_lower(minimiser), gsl_min_fminimizer_x_upper(minimiser), 1e-7, 0) ==
        GSL_SUCCESS)
      break;
  }
  gsl_min_fminimizer_free(minimiser);
  return MAX(exp(at), least_s);
}

double ms_fault_shortage(const MsFaultModel *m) {
  double rate = m->slow_Hz;
  for (int i = 0; i < m->n_kinds; i++)
    if (m->kind[i].takes_node) rate += m->kind[i].rate_Hz;
  if (m->spares < 0 || !(rate > 0)) return 0;
  return gsl_cdf_poisson_Q((unsigned)m->spares, rate * m->repair_s);
}
