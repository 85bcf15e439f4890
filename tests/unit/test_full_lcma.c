/* tests/unit/test_full_lcma.c - multiplication as it decides by the rates of this machine, which are measured first. */
#include <math.h>
#include <string.h>

#include "lcma/context.h"
#include "lib/close.h"

/* Of a decided shape every candidate runs as often as was asked, then one of them for good; other shapes have trials of
 * their own, forced plans and small shapes none. */
static void test_trials(void **state) {
  (void)state;
  enum { N = 130, TRIALS = 2, PLANS = 4 };
  static float a[N * N], b[N * N], c[N * N], expected[N * N];
  for (int i = 0; i < N * N; i++) a[i] = (float)(i * 37 % 9 - 4), b[i] = (float)(i * 101 % 7 - 3);
  MsLcma *lcma = ms_lcma_new(NULL, 1, NULL, 0);
  assert_non_null(lcma);
  const MsGemm g = {MS_BLAS_F32, .m = N, .n = N,   .k = N, .alpha = 1, .a = a,
                    .lda = N,    .b = b, .ldb = N, .c = c, .ldc = N};
  MsGemm other = g;
  other.m = N - 1;
  assert_int_equal(ms_lcma_set_plan(lcma, "library"), MS_LCMA_OK);
  assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
  memcpy(expected, c, sizeof c);
  assert_int_equal(ms_lcma_set_trials(lcma, -1), MS_LCMA_BAD_ARGUMENT);
  assert_int_equal(ms_lcma_set_trials(lcma, TRIALS), MS_LCMA_OK);
  assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
  assert_true(ms_lcma_settled(lcma, &g)); /* forced */
  assert_int_equal(ms_lcma_set_plan(lcma, NULL), MS_LCMA_OK);
  g_autoptr(GPtrArray) plans = g_ptr_array_new_with_free_func(g_free);
  int library = 0;
  for (int call = 0; !ms_lcma_settled(lcma, &g); call++) {
    assert_true(call < TRIALS * PLANS);
    memset(c, 0x77, sizeof c);
    assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
    for (int i = 0; i < N * N; i++) assert_true(fabsf(c[i] - expected[i]) < 0.02F);
    assert_int_equal(ms_lcma_gemm(lcma, &other), MS_LCMA_OK); /* counts for itself alone */
    assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK), call++;
    g_ptr_array_add(plans, g_strdup(ms_lcma_plan(lcma)));
    library += strcmp(ms_lcma_plan(lcma), "library") == 0;
  }
  assert_true(plans->len > 1 && library > 0);
  assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
  const char *settled = ms_lcma_plan(lcma);
  assert_true(g_ptr_array_find_with_equal_func(plans, settled, g_str_equal, NULL));
  g_autofree char *kept = g_strdup(settled);
  for (int call = 0; call < 5; call++) {
    assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
    assert_string_equal(ms_lcma_plan(lcma), kept);
  }
  other.m = 20; /* too small for a scheme */
  assert_int_equal(ms_lcma_gemm(lcma, &other), MS_LCMA_OK);
  assert_true(ms_lcma_settled(lcma, &other));
  ms_lcma_free(lcma);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_trials)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
