/* src/base/stats.h - order statistics and exact small combinatorics used by several layers. */
#ifndef MS_BASE_STATS_H
#define MS_BASE_STATS_H

#include <glib.h>

/* Greatest common divisor, of a and b >= 0. */
gint64 ms_gcd(gint64 a, gint64 b);

static inline double ms_dot(const double *x, const double *y, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}

/* Quantile q in [0,1] of n values by linear interpolation (type 7); sorts `values` in place; NaN when n is 0. */
double ms_quantile(double *values, size_t n, double q);

/* The largest of n >= 1 normal deviates, in standard deviations: expectation and variance (0 and 1 for n = 1), by
 * quadrature of its distribution function Phi(x)^n; n need not be whole. */
double ms_normal_maximum(double n);
double ms_normal_maximum_variance(double n);
/* Phi: that a normal deviate is not above x. */
double ms_normal_below(double x);

/* Expected number of distinct blocks hit when k of E items, in B equal blocks, are drawn without replacement:
 * B (1 - C(E - E/B, k) / C(E, k)). Source: hypergeometric, docs/theory/communication.md 5.3. E, k, B > 0, k <= E. */
double ms_expected_blocks(double items, double k, double blocks);

/* Expected number of the k items that fall into the block that gets most of them, drawn likewise. P(no block gets more
 * than m) is the coefficient of x^k in (sum over j <= m of C(E/B, j) x^j)^B, over C(E, k). 1 <= k <= E, B divides E; k
 * above 128 answers k/B, which it tends to. */
double ms_expected_fullest(int items, int k, int blocks);

/* Smallest f(x) for x in [low, high] of a function with one minimum there, to `tolerance`. */
double ms_golden_minimum(double (*f)(double x, gpointer data), gpointer data, double low, double high,
                         double tolerance);

#endif
