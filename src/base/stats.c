/* src/base/stats.c - order statistics and small combinatorics. */
#include "base/stats.h"
#include "base/order.h"

#include <math.h>
#include <stdlib.h>

#define PRODUCT_MAX 4096 /* factors multiplied one by one; beyond, log gamma is exact enough and does not take long */

MS_ORDER(ascending, double, MS_LESS(*x, *y), 0)

gint64 ms_gcd(gint64 a, gint64 b) {
  while (b) {
    gint64 rest = a % b;
    a = b, b = rest;
  }
  return a;
}

double ms_quantile(double *values, size_t n, double q) {
  if (n == 0) return NAN;
  qsort(values, n, sizeof *values, ascending);
  double at = CLAMP(q, 0, 1) * (double)(n - 1);
  size_t low = (size_t)at;
  if (low + 1 >= n) return values[n - 1];
  return values[low] + (at - (double)low) * (values[low + 1] - values[low]);
}

double ms_normal_below(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }

/* Moment of the maximum about 0, from its chance to be above x and that to be below -x. Simpson's rule; the integrand
 * is smooth but at 0, where it begins. */
static double maximum_moment(double n, int power) {
  enum { STEPS = 128 };
  const double reach = 9; /* beyond, Phi^n is 0 or 1 to 1e-9 for any n below 10^9 */
  double h = reach / STEPS, sum = 0;
  for (int i = 0; i <= STEPS; i++) {
    double x = h * i, weight = i == 0 || i == STEPS ? 1 : i % 2 ? 4 : 2;
    double above = -expm1(n * log1p(-ms_normal_below(-x))), below = pow(ms_normal_below(-x), n);
    sum += weight * (power == 1 ? above - below : 2 * x * (above + below));
  }
  return sum * h / 3;
}

double ms_normal_maximum(double n) { return n > 1 ? maximum_moment(n, 1) : 0; }

double ms_normal_maximum_variance(double n) {
  double mean = ms_normal_maximum(n);
  return n > 1 ? maximum_moment(n, 2) - mean * mean : 1;
}

static double log_choose(double n, double k) {
  int sign;
  return lgamma_r(n + 1, &sign) - lgamma_r(k + 1, &sign) - lgamma_r(n - k + 1, &sign);
}

/* C(n - b, k) / C(n, k): the chance that a block of b items gets none of the k drawn. */
static double chance_missed(double n, double b, double k) {
  if (k > n - b) return 0;
  if (k != floor(k) || k > PRODUCT_MAX) return exp(log_choose(n - b, k) - log_choose(n, k));
  double chance = 1;
  for (double i = 0; i < k; i++) chance *= (n - b - i) / (n - i);
  return chance;
}

double ms_expected_blocks(double items, double k, double blocks) {
  return blocks * (1 - chance_missed(items, items / blocks, k));
}

/* Coefficients are divided by (E/B)^j, so that none overflows. */
double ms_expected_fullest(int items, int k, int blocks) {
  enum { MOST = 128 };
  double n = (double)items / blocks, term[MOST + 1], all = 1, expected = 0;
  if (k > MOST || k < 1 || blocks < 1) return (double)k / MAX(blocks, 1);
  for (int j = 0; j <= k; j++) term[j] = j == 0 ? 1 : term[j - 1] * MAX(n - j + 1, 0) / (j * n);
  for (int j = 0; j < k; j++) all *= (items - j) / ((j + 1) * n);
  for (int m = 0; m < k && m < n; m++) { /* P(the fullest has more than m), summed */
    double ways[MOST + 1] = {1};
    for (int block = 0; block < blocks; block++)
      for (int at = k; at > 0; at--)
        for (int j = 1; j <= MIN(m, at); j++) ways[at] += term[j] * ways[at - j];
    expected += 1 - MIN(ways[k] / all, 1);
  }
  return expected;
}

double ms_golden_minimum(double (*f)(double x, gpointer data), gpointer data, double low, double high,
                         double tolerance) {
  const double phi = 0.6180339887498949;
  double a = high - phi * (high - low), b = low + phi * (high - low), fa = f(a, data), fb = f(b, data);
  while (high - low > tolerance) {
    if (fa <= fb) {
      high = b, b = a, fb = fa;
      a = high - phi * (high - low), fa = f(a, data);
    } else {
      low = a, a = b, fa = fb;
      b = low + phi * (high - low), fb = f(b, data);
    }
  }
  return (low + high) / 2;
}
