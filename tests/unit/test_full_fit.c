/* The slow fits of test_fit: attention, and a grid over three axes. */
#include "lib/fit_rows.h"

#include <gsl/gsl_errno.h>

static void form_attention(void **state) {
  (void)state;
  MsCurve truth = TRUTH("attention", MS_FORM_ATTENTION, 0.6, 0.5, 12e-6, 300, 0.5);
  MsSeries series = series_new(MS_ROW_ATTENTION, "attention", "bf16", MS_ODT_BF16);
  for (int i = 0; i < 1200; i++) {
    double heads = exp2(floor(uniform() * 7)), kv = MIN(heads, exp2(floor(uniform() * 4)));
    add_row(&series, &truth,
            &(MsRow){.x = {exp2(floor(uniform() * 4)), 512 + 64 * floor(uniform() * 250), heads, kv, 128, 128}}, 0.02,
            10);
  }
  ms_series_merge(series.rows);
  MsCurve curve = fit_it(&series, &plain);
  assert_true(fabs(curve.param[MS_A_E] - 0.6) < 0.04);
  expect(&curve, &truth, &series, 0.015, 0.04);
  done(&series, &curve);
}

/* Few heads make a kernel split the keys: the step at 0.8 of the SMs is found, and what it costs. */
static void form_attention_split(void **state) {
  (void)state;
  MsCurve truth = TRUTH("attention", MS_FORM_ATTENTION, 0.6, 0.5, 12e-6, 300, 0.5, 0.8);
  MsSeries series = series_new(MS_ROW_ATTENTION, "attention", "bf16", MS_ODT_BF16);
  for (int i = 0; i < 1200; i++)
    add_row(&series, &truth,
            &(MsRow){.x = {exp2(floor(uniform() * 8)), 512 + 64 * floor(uniform() * 60), exp2(floor(uniform() * 7)), 1,
                           128, 128}},
            0.01, 0);
  ms_series_merge(series.rows);
  MsCurve curve = fit_it(&series, &plain);
  assert_true(fabs(curve.param[MS_A_PARTIALS] / curve.param[MS_A_BW] - 0.8 / 0.5) < 0.3);
  expect(&curve, &truth, &series, 0.015, 0.04);
  done(&series, &curve);
}

/* A bump that no form has: the grid takes it. */
static void grid_takes_the_rest(void **state) {
  (void)state;
  MsCurve truth = TRUTH("gemm", MS_FORM_GEMM_SATURATING, 0.72, 0.6, 4e-6, 120, 60, 200);
  MsSeries series = series_new(MS_ROW_GEMM, "gemm", "bf16", MS_ODT_BF16);
  gemm_rows(&series, &truth, 2500, 0.005, 0);
  for (guint i = 0; i < series.rows->len; i++) {
    MsRow *row = &g_array_index(series.rows, MsRow, i);
    row->time_s *= exp(0.15 * sin(log2(row->x[0])) + 0.1 * cos(1.3 * log2(row->x[1])));
  }
  MsCurve curve = fit_it(&series, &plain);
  assert_true(curve.grid.dims == 3);
  assert_true(curve.provenance.residual_median < 0.025 && curve.provenance.residual_p90 < 0.06);
  done(&series, &curve);
}

int main(void) {
  gsl_set_error_handler_off();
  const struct CMUnitTest tests[] = {cmocka_unit_test(form_attention), cmocka_unit_test(form_attention_split),
                                     cmocka_unit_test(grid_takes_the_rest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
