/* tests/unit/test_rows.c - curves from measured operator rows, on machines that exist on paper only. */
#include "lib/close.h"

#include "calib/rows.h"
#include "calib/solve.h"
#include "cost/curve.h"
#include "cost/terms.h"

#include <string.h>

static double noise(GRand *rand, double share) {
  return exp(share * (g_rand_double(rand) + g_rand_double(rand) + g_rand_double(rand) - 1.5) * 2 / 3);
}

static int pick(GRand *rand, int lo, int hi) {
  return 8 * (int)round(lo / 8 * pow((double)hi / lo, g_rand_double(rand)));
}

/* Seconds of a product on a machine of 100 GFLOP/s that packs. */
static double gemm_s(const MsOp *op) {
  return 2e-6 + op->flop / 100e9 + 0.3e-9 * op->m * op->n + 0.1e-9 * op->m * op->k + 0.2e-9 * op->n * op->k;
}

static MsRowSample gemm(GRand *rand) {
  MsRowSample s = {.op = {.name = "qkv",
                          .kind = MS_OP_GEMM,
                          .pass = MS_PASS_FORWARD,
                          .dtype = MS_ODT_BF16,
                          .groups = 1,
                          .kv_groups = 1},
                   .share = 1};
  s.op.m = pick(rand, 64, 4096), s.op.n = pick(rand, 64, 2048), s.op.k = pick(rand, 64, 2048);
  s.op.flop = 2 * s.op.m * s.op.n * s.op.k;
  s.op.read_B = 2 * (s.op.m * s.op.k + s.op.n * s.op.k), s.op.write_B = 2 * s.op.m * s.op.n;
  s.time_s = gemm_s(&s.op);
  return s;
}

static GArray *samples_of(MsRowSample (*make)(GRand *), guint n, double share_of_noise, guint outliers) {
  GRand *rand = g_rand_new_with_seed(7);
  GArray *samples = g_array_new(FALSE, FALSE, sizeof(MsRowSample));
  for (guint i = 0; i < n; i++) {
    MsRowSample s = make(rand);
    s.time_s *= noise(rand, share_of_noise) * (i < outliers ? 5 : 1);
    g_array_append_val(samples, s);
  }
  g_rand_free(rand);
  return samples;
}

static GArray *fitted(const GArray *samples) {
  return ms_fit_rows((const MsRowSample *)(void *)samples->data, samples->len, "paper", "test", "2026-11-21", NULL);
}

static void terms_are_found(void **state) {
  (void)state;
  g_autoptr(GArray) samples = samples_of(gemm, 120, 0.01, 6);
  GArray *curves = fitted(samples);
  assert_int_equal(curves->len, 1);
  MsRowCurve *c = &g_array_index(curves, MsRowCurve, 0);
  assert_string_equal(c->curve.op, "gemm");
  assert_string_equal(c->curve.pass, "forward");
  assert_int_equal(c->curve.form, MS_FORM_TERMS);
  assert_close(c->share, 1, 1e-9);
  assert_true(c->curve.provenance.n_held_back > 8 && c->curve.provenance.n_fitted > 80);
  assert_true(c->curve.provenance.residual_median < 0.01);
  GRand *rand = g_rand_new_with_seed(8); /* shapes it has not seen */
  for (int i = 0; i < 40; i++) {
    MsRowSample s = gemm(rand);
    MsTerms terms = ms_op_terms(&s.op);
    assert_close(ms_curve_terms_s(&c->curve, &terms), s.time_s, 0.04);
  }
  g_rand_free(rand);
  for (int i = 0; i < MS_T_CACHE; i++) assert_true(c->curve.param[i] >= 0);
  ms_row_curves_free(curves);
}

/* A pass over memory: 50 GB/s up to 4 MiB, 10 GB/s for what is beyond. */
static MsRowSample copy(GRand *rand) {
  MsRowSample s = {
      .op =
          {.name = "copy", .kind = MS_OP_COPY, .pass = MS_PASS_DGRAD, .dtype = MS_ODT_BF16, .groups = 1, .kernels = 1},
      .share = 1};
  s.op.read_B = s.op.write_B = 1024.0 * pick(rand, 16, 65536);
  double bytes = 2 * s.op.read_B;
  s.time_s = 1e-6 + bytes / 50e9 + MAX(0, bytes - 4 * 1048576) / 12.5e9;
  return s;
}

static void a_cache_is_found(void **state) {
  (void)state;
  g_autoptr(GArray) samples = samples_of(copy, 80, 0.01, 3);
  GArray *curves = fitted(samples);
  MsRowCurve *c = &g_array_index(curves, MsRowCurve, 0);
  assert_string_equal(c->curve.pass, "backward");
  assert_close(c->curve.param[MS_T_CACHE], 4 * 1048576, 1e-12);
  assert_true(c->curve.provenance.residual_median < 0.01);
  ms_row_curves_free(curves);
}

static MsRowSample message(GRand *rand) { /* fast in cache, slow beyond it: no least of lines */
  MsRowSample s = {
      .op = {.name = "tp gather", .kind = MS_OP_ALL_GATHER, .dtype = g_rand_boolean(rand) ? MS_ODT_FP32 : MS_ODT_BF16},
      .ranks = 2,
      .share = 1};
  s.op.message_B = exp2(6 + 20 * g_rand_double(rand));
  double bus = s.op.message_B / 2;
  s.time_s = (0.5e-6 + bus / 10e9 + MAX(0, bus - 1e6) / 3e9) * (s.op.dtype == MS_ODT_FP32 ? 1 : 2);
  return s;
}

static void messages_by_dtype(void **state) {
  (void)state;
  g_autoptr(GArray) samples = samples_of(message, 160, 0.01, 4);
  GArray *curves = fitted(samples);
  assert_int_equal(curves->len, 2);
  for (guint i = 0; i < 2; i++) {
    const MsCurve *c = &g_array_index(curves, MsRowCurve, i).curve;
    assert_int_equal(c->form, MS_FORM_SEGMENTS);
    assert_int_equal(c->ranks, 2);
    assert_string_equal(c->level, "nvlink");
    double times = strcmp(c->dtype, "fp32") == 0 ? 1 : 2;
    assert_close(ms_curve_segments_s(c, 1e5), times * (0.5e-6 + 1e-5), 0.1);
    assert_close(ms_curve_segments_s(c, 2e7), times * (0.5e-6 + 2e-3 + 19e6 / 3e9), 0.1);
  }
  ms_row_curves_free(curves);
}

static void order_does_not_matter(void **state) {
  (void)state;
  g_autoptr(GArray) samples = samples_of(gemm, 60, 0.05, 0);
  GArray *one = fitted(samples);
  for (guint i = 0; i < samples->len / 2; i++) {
    MsRowSample *a = &g_array_index(samples, MsRowSample, i),
                *b = &g_array_index(samples, MsRowSample, samples->len - 1 - i), keep = *a;
    *a = *b, *b = keep;
  }
  GArray *other = fitted(samples);
  const MsCurve *a = &g_array_index(one, MsRowCurve, 0).curve, *b = &g_array_index(other, MsRowCurve, 0).curve;
  assert_memory_equal(a->param, b->param, sizeof a->param);
  ms_row_curves_free(one), ms_row_curves_free(other);
}

static void what_cannot_be_fitted(void **state) {
  (void)state;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  GRand *rand = g_rand_new_with_seed(3);
  MsRowSample s[3] = {gemm(rand), copy(rand), {.op = {.name = "cpu adam", .kind = MS_OP_CPU_ADAM}, .time_s = 1}};
  g_rand_free(rand);
  GArray *curves = ms_fit_rows(s, 3, "paper", "test", "", notes);
  assert_int_equal(curves->len, 0);
  assert_int_equal(notes->len, 2);
  ms_row_curves_free(curves);
  curves = ms_fit_rows(NULL, 0, "paper", "test", "", notes);
  assert_int_equal(curves->len, 0);
  ms_row_curves_free(curves);
}

/* Against the closed form where nothing is bound: two columns, exact data; and a column that would be negative. */
static void non_negative(void **state) {
  (void)state;
  double rows[20], target[10], x[2];
  for (int i = 0; i < 10; i++) rows[2 * i] = 1, rows[2 * i + 1] = i + 1, target[i] = 3 + 0.5 * (i + 1);
  ms_solve_terms(rows, target, 10, 2, x);
  assert_close(x[0], 3, 1e-9), assert_close(x[1], 0.5, 1e-9);
  for (int i = 0; i < 10; i++) target[i] = 3 - 0.01 * (i + 1);
  ms_solve_terms(rows, target, 10, 2, x);
  assert_true(x[1] == 0 && x[0] > 2.8 && x[0] < 3);
  ms_solve_terms(rows, target, 0, 2, x);
  assert_true(x[0] == 0 && x[1] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(terms_are_found),       cmocka_unit_test(a_cache_is_found),
                                     cmocka_unit_test(messages_by_dtype),     cmocka_unit_test(order_does_not_matter),
                                     cmocka_unit_test(what_cannot_be_fitted), cmocka_unit_test(non_negative)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
