/* tests/unit/test_full_lcma.c - multiplication as it decides by the rates of this machine, which are measured first. */
#include <glib/gstdio.h>
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

static void runs(int m, double beta) {
  const MsGemm g = problem(m, beta);
  assert_int_equal(ms_lcma_gemm(lcma, &g), MS_LCMA_OK);
}

static void multiplies(int m, double beta) {
  runs(m, beta);
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
    runs(m, 0);
    g_ptr_array_add(plans, g_strdup(ms_lcma_plan(lcma)));
    if (m < N + TRIED) continue;
    g_autofree char *first = predicted(m, 0);
    assert_true(g_str_has_prefix(ms_lcma_plan(lcma), first));
  }
  for (int m = N - 1; m > 1; m--) { /* too small to decide, but shapes all the same */
    runs(m, 0);
    assert_int_equal(m < 128 ? strcmp(ms_lcma_plan(lcma), "library") : 0, 0);
  }
  for (int m = N; m < MOST; m++) {
    runs(m, 0);
    assert_string_equal(ms_lcma_plan(lcma), plans->pdata[m - N]);
  }
}

/* `line` with the title where it has %s. */
static char *with_title(const char *line, const char *title) {
  g_auto(GStrv) part = g_strsplit(line, "%s", 2);
  return g_strjoinv(title, part);
}

static int load_text(MsLcma *to, const char *path, const char *text) {
  assert_true(g_file_set_contents(path, text, -1, NULL));
  return ms_lcma_load(to, path);
}

/* A context that loads what one has found multiplies by those plans; a file that is not whole changes nothing. */
static void test_plans_in_a_file(void **state) {
  (void)state;
  g_autofree char *path = g_build_filename(g_get_tmp_dir(), "test_full_lcma.txt", NULL), *text = NULL;
  ms_lcma_set_trials(lcma, 1);
  runs(N, 0);
  runs(N + 1, 2);
  assert_int_equal(ms_lcma_save(lcma, path), MS_LCMA_OK);
  assert_true(g_file_get_contents(path, &text, NULL, NULL));
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  assert_int_equal(g_strv_length(line), 4); /* a title, two shapes, nothing */
  assert_true(g_str_has_prefix(line[1], "f32 N N 0 130 130 130 "));
  assert_true(g_str_has_prefix(line[2], "f32 N N 1 131 130 130 "));
  g_autofree char *forced = g_strdup_printf("%s\nf32 N N 0 130 130 130 4x2x4\n", line[0]);
  assert_int_equal(load_text(lcma, path, forced), MS_LCMA_OK);
  runs(N + 1, 2); /* not in it: decided anew */
  runs(N, 0);
  assert_string_equal(ms_lcma_plan(lcma), "4x2x4");
  static const char *const wrong[] = {"%s\nf32 N N 0 130 130 130\n",
                                      "%s\nf16 N N 0 130 130 130 4x2x4\n",
                                      "%s\nf32 N X 0 130 130 130 4x2x4\n",
                                      "%s\nf32 N N 2 130 130 130 4x2x4\n",
                                      "%s\nf32 N N 0 130 130 0 4x2x4\n",
                                      "%s\nf32 N N 0 130 130 130 4x2\n",
                                      "%s\nf32 N N 0 130 130 130 strassen:int16\n",
                                      "%s\nf32 N N 0 130 130 130 strassen",
                                      "",
                                      "x%s\nf32 N N 0 130 130 130 strassen\n"};
  for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
    g_autofree char *bad = with_title(wrong[i], line[0]);
    assert_int_equal(load_text(lcma, path, bad), MS_LCMA_BAD_FILE);
    runs(N, 0);
    assert_string_equal(ms_lcma_plan(lcma), "4x2x4"); /* as before */
  }
  g_unlink(path);
  assert_int_equal(ms_lcma_load(lcma, path), MS_LCMA_BAD_FILE);
  assert_int_equal(ms_lcma_save(lcma, "/nowhere/file"), MS_LCMA_BAD_FILE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_trials), cmocka_unit_test(test_many_shapes),
                                     cmocka_unit_test(test_plans_in_a_file)};
  return cmocka_run_group_tests(tests, open_one, close_one);
}
