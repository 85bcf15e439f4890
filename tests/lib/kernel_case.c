#include "lib/kernel_case.h"

#include <string.h>

#include "lib/close.h"

static guint64 state;
static double draw(double low, double high) { /* xorshift64 */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return low + (high - low) * (double)(state >> 11) * 0x1p-53;
}

gint32 *ms_case_ints(gint64 n, gint32 below, guint32 seed) {
  gint32 *x = g_new(gint32, n + 1);
  state = 88172645463325252u + seed;
  for (gint64 i = 0; i < n; i++) x[i] = (gint32)draw(0, below);
  return x;
}

gint64 *ms_case_longs(gint64 n, gint64 low, gint64 below, guint32 seed) {
  gint64 *x = g_new(gint64, n + 1);
  state = 88172645463325252u + seed;
  for (gint64 i = 0; i < n; i++) x[i] = (gint64)floor(draw((double)low, (double)below));
  return x;
}

static void put(size_t real_B, void *to, gint64 i, double x) {
  if (real_B == 4) ((float *)to)[i] = (float)x;
  else ((double *)to)[i] = x;
}
static double get(size_t real_B, const void *from, gint64 i) {
  return real_B == 4 ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

double ms_case_get(const MsKernels *k, const void *x, gint64 i) { return get(k->real_B, x, i); }
void ms_case_set(const MsKernels *k, void *x, gint64 i, double value) { put(k->real_B, x, i, value); }

typedef struct {
  double *a[MS_CASE_ARRAYS + 1];
} Arrays; /* in double */
typedef struct {
  void *a[MS_CASE_ARRAYS + 1];
} Reals; /* as the kernel has them */

static Arrays drawn(const gint64 *n, double low, double high) {
  Arrays x = {0};
  for (int i = 0; i < MS_CASE_ARRAYS && n[i] > 0; i++) {
    x.a[i] = g_new(double, n[i]);
    for (gint64 j = 0; j < n[i]; j++) x.a[i][j] = (float)draw(low, high);
  }
  return x;
}

static Arrays filled(const gint64 *n, double with) {
  Arrays x = {0};
  for (int i = 0; i < MS_CASE_ARRAYS && n[i] > 0; i++) {
    x.a[i] = g_new(double, n[i]);
    for (gint64 j = 0; j < n[i]; j++) x.a[i][j] = with;
  }
  return x;
}

static Reals reals(size_t real_B, const gint64 *n, const Arrays *x) {
  Reals r = {0};
  for (int i = 0; i < MS_CASE_ARRAYS && n[i] > 0; i++) {
    r.a[i] = g_malloc((gsize)n[i] * real_B);
    for (gint64 j = 0; j < n[i]; j++) put(real_B, r.a[i], j, x->a[i][j]);
  }
  return r;
}

static void clear(void *const *a) {
  for (int i = 0; i < MS_CASE_ARRAYS; i++) g_free(a[i]);
}

static void assert_near(const MsKernelCase *c, const char *what, int array, size_t real_B, gint64 n, const void *got,
                        const double *want, double bound) {
  double most = 1e-300, worst = 0;
  gint64 at = 0;
  for (gint64 j = 0; j < n; j++) most = MAX(most, isfinite(want[j]) ? fabs(want[j]) : 0);
  for (gint64 j = 0; j < n; j++) {
    double g = get(real_B, got, j), error = g == want[j] ? 0 : fabs(g - want[j]);
    if (!(error <= worst)) worst = error, at = j; /* NaN too */
    if (isnan(error)) break;
  }
  if (worst <= bound * most) return;
  print_error("%s, %s %d, %zu B: element %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
              " is %.17g, not %.17g; the error is %.3g of the largest, bound %.3g\n",
              c->name, what, array, real_B, at, n, get(real_B, got, at), want[at], worst / most, bound);
  fail();
}

static double loss_of(const MsKernelCase *c, const Arrays *x, const Arrays *dy,
                      Arrays *y) { /* sum of outputs times dy */
  double sum = 0;
  c->oracle(c, x->a, y->a);
  for (int i = 0; i < MS_CASE_ARRAYS && c->out[i] > 0; i++)
    for (gint64 j = 0; j < c->out[i]; j++)
      if (dy->a[i][j] != 0) sum += y->a[i][j] * dy->a[i][j];
  return sum;
}

static Arrays differences(const MsKernelCase *c, const Arrays *x, const Arrays *dy) {
  Arrays d = filled(c->in, 0), y = filled(c->out, 0);
  for (int i = 0; i < MS_CASE_ARRAYS && c->in[i] > 0; i++)
    for (gint64 j = 0; j < c->in[i] && !(c->constant >> i & 1); j++) {
      const double h = 1e-5;
      double was = x->a[i][j], up, down;
      x->a[i][j] = was + h, up = loss_of(c, x, dy, &y);
      x->a[i][j] = was - h, down = loss_of(c, x, dy, &y);
      x->a[i][j] = was;
      d.a[i][j] = (up - down) / (2 * h);
    }
  clear((void *const *)y.a);
  return d;
}

typedef struct {
  Reals y, dx;
} Result;

#define STOOD 0.5 /* in gradients that are added to */

static Result run_on(const MsKernelCase *c, const MsKernels *k, const Arrays *x, const Arrays *dy) {
  size_t real_B = k->real_B;
  MsKernelRun run = {.blas = ms_blas_open(NULL, NULL)};
  Arrays nothing = filled(c->out, NAN), gradients = filled(c->in, 0);
  for (int i = 0; i < MS_CASE_ARRAYS && c->in[i] > 0; i++)
    for (gint64 j = 0; j < c->in[i]; j++) gradients.a[i][j] = c->added >> i & 1 ? STOOD : NAN;
  Reals in = reals(real_B, c->in, x), d = reals(real_B, c->out, dy);
  Result r = {.y = reals(real_B, c->out, &nothing), .dx = reals(real_B, c->in, &gradients)};
  c->forward(c, k, &run, in.a, r.y.a);
  if (c->backward) c->backward(c, k, &run, in.a, r.y.a, d.a, r.dx.a);
  clear(in.a), clear(d.a), clear((void *const *)nothing.a), clear((void *const *)gradients.a);
  return r;
}

static void result_clear(Result *r) { clear(r->y.a), clear(r->dx.a); }

static void assert_same_bits(const MsKernelCase *c, const char *unit, size_t real_B, const Result *a, const Result *b) {
  for (int i = 0; i < MS_CASE_ARRAYS && c->out[i] > 0; i++)
    if (memcmp(a->y.a[i], b->y.a[i], (gsize)c->out[i] * real_B))
      fail_msg("%s: output %d differs on %s", c->name, i, unit);
  for (int i = 0; c->backward && i < MS_CASE_ARRAYS && c->in[i] > 0; i++)
    if (!(c->constant >> i & 1) && memcmp(a->dx.a[i], b->dx.a[i], (gsize)c->in[i] * real_B))
      fail_msg("%s: gradient %d differs on %s", c->name, i, unit);
}

void ms_kernel_case_check(const MsKernelCase *c) {
  state = 88172645463325252u;
  double bound32 = c->bound32 > 0 ? c->bound32 : 2e-6;
  Arrays x = c->low == 0 && c->high == 0 ? drawn(c->in, -2, 2) : drawn(c->in, c->low, c->high),
         dy = drawn(c->out, -1, 1), y = filled(c->out, NAN), d = {0};
  c->oracle(c, x.a, y.a);
  Result r64 = run_on(c, ms_kernels(8), &x, &dy), r32 = run_on(c, ms_kernels(4), &x, &dy);
  for (int i = 0; i < MS_CASE_ARRAYS && c->out[i] > 0; i++) {
    assert_near(c, "output", i, 8, c->out[i], r64.y.a[i], y.a[i], 1e-12);
    assert_near(c, "output", i, 4, c->out[i], r32.y.a[i], y.a[i], bound32);
  }
  if (c->backward) {
    d = differences(c, &x, &dy);
    for (int i = 0; i < MS_CASE_ARRAYS && c->in[i] > 0; i++) {
      if (c->constant >> i & 1) continue;
      double *exact = r64.dx.a[i];
      if (c->added >> i & 1)
        for (gint64 j = 0; j < c->in[i]; j++) d.a[i][j] += STOOD;
      assert_near(c, "gradient", i, 8, c->in[i], r64.dx.a[i], d.a[i], 2e-6);
      assert_near(c, "gradient", i, 4, c->in[i], r32.dx.a[i], exact, bound32);
    }
  }
  for (int unit = 1; ms_kernels_of_unit(4, unit); unit++) {
    Result a = run_on(c, ms_kernels_of_unit(4, unit), &x, &dy), b = run_on(c, ms_kernels_of_unit(8, unit), &x, &dy);
    assert_same_bits(c, ms_kernels_of_unit(4, unit)->unit, 4, &r32, &a);
    assert_same_bits(c, ms_kernels_of_unit(8, unit)->unit, 8, &r64, &b);
    result_clear(&a), result_clear(&b);
  }
  result_clear(&r64), result_clear(&r32);
  clear((void *const *)x.a), clear((void *const *)dy.a), clear((void *const *)y.a), clear((void *const *)d.a);
}
