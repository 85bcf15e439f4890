/* tests/unit/test_full_lcma.c - multiplication as it decides by the rates of this machine, which are measured first. */
#include <string.h>

#include "lcma/context.h"
#include "lib/close.h"

enum { N = 130, MOST = 300 };
static float a[MOST * N], b[N * N], c[MOST * N], expected[MOST * N];
static MsLcma *lcma; /* its rates are measured once for all */

static int open_one(void **state) {
  (void)state;
  lcma = ms_lcma_new(NULL, 1, NULL, 0);
  return lcma ? 0 : -1;
}

static int close_one(void **state) {
  (void)state;
  ms_lcma_free(lcma);
  return 0;
}

/* C = A B + beta C of m rows; small whole numbers, so that every plan gives the same to the bit. */
static MsGemm problem(int m, double beta) {
  for (int i = 0; i < m * N; i++) a[i] = (float)(i * 37 % 9 - 4), c[i] = (float)(i % 11);
  for (int i = 0; i < N * N; i++) b[i] = (float)(i * 101 % 7 - 3);
  return (MsGemm){MS_BLAS_F32, .m = m, .n = N,   .k = N,       .alpha = 1, .a = a,
                  .lda = N,    .b = b, .ldb = N, .beta = beta, .c = c,     .ldc = N};
}

static void multiplies(int m, double beta) {
  const MsGemm g = problem(m, beta);
  assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
  assert_memory_equal(c, expected, sizeof(float) * (size_t)(m * N));
}

static void expect(int m, double beta) {
  const MsGemm g = problem(m, beta);
  assert_int_equal(ms_lcma_set_plan(lcma, "library"), MS_LCMA_OK);
  assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
  memcpy(expected, c, sizeof(float) * (size_t)(m * N));
  assert_int_equal(ms_lcma_set_plan(lcma, NULL), MS_LCMA_OK);
}

static char *predicted(int m, double beta) {
  const MsGemm g = problem(m, beta);
  g_autoptr(GPtrArray) choices = ms_lcma_choices(lcma, &g);
  return g_strdup(((const MsLcmaChoice *)choices->pdata[0])->plan);
}

/* The first call of a shape decides, and gives what all later ones give; trials never add to C. */
static void test_trials(void **state) {
  (void)state;
  assert_int_equal(ms_lcma_set_trials(lcma, -1), MS_LCMA_BAD_ARGUMENT);
  static const double betas[] = {0, 2};
  for (int trials = 0; trials <= 2; trials++)
    for (size_t x = 0; x < G_N_ELEMENTS(betas); x++) {
      expect(N, betas[x]);
      assert_int_equal(ms_lcma_set_trials(lcma, trials), MS_LCMA_OK);
      multiplies(N, betas[x]);
      g_autofree char *decided = g_strdup(ms_lcma_plan(lcma)), *first = predicted(N, betas[x]);
      if (trials == 0) assert_true(g_str_has_prefix(decided, first));
      for (int call = 0; call < 5; call++) {
        multiplies(N, betas[x]);
        assert_string_equal(ms_lcma_plan(lcma), decided);
      }
    }
  ms_lcma_set_workspace_limit(lcma, sizeof(float) * N * N - 1); /* no room for another C to try with */
  g_autofree char *first = predicted(N, 2);
  multiplies(N, 2);
  if (strcmp(first, "library") == 0) assert_string_equal(ms_lcma_plan(lcma), "library");
  ms_lcma_set_workspace_limit(lcma, 0);
}

/* However many shapes come, those that were tried keep their plans, and after some the others are predicted. */
static void test_many_shapes(void **state) {
  (void)state;
  enum { TRIED = 128 };
  ms_lcma_set_trials(lcma, 1);
  g_autoptr(GPtrArray) plans = g_ptr_array_new_with_free_func(g_free);
  for (int m = N; m < MOST; m++) {
    const MsGemm g = problem(m, 0);
    assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
    g_ptr_array_add(plans, g_strdup(ms_lcma_plan(lcma)));
    if (m < N + TRIED) continue;
    g_autofree char *first = predicted(m, 0);
    assert_true(g_str_has_prefix(ms_lcma_plan(lcma), first));
  }
  for (int m = N - 1; m > 1; m--) { /* too small to decide, but shapes all the same */
    const MsGemm g = problem(m, 0);
    assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
    assert_int_equal(m < 128 ? strcmp(ms_lcma_plan(lcma), "library") : 0, 0);
  }
  for (int m = N; m < MOST; m++) {
    const MsGemm g = problem(m, 0);
    assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
    assert_string_equal(ms_lcma_plan(lcma), plans->pdata[m - N]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_trials), cmocka_unit_test(test_many_shapes)};
  return cmocka_run_group_tests(tests, open_one, close_one);
}
