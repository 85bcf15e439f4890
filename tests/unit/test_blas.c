/* tests/unit/test_blas.c - every BLAS that is installed against a naive product: types, transposes, leading dimensions,
 * alpha and beta; names; kernels that suit the CPU. A library that is not installed is skipped; OpenBLAS comes with
 * ./bootstrap. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "blas/blas.h"

#include <sys/wait.h>
#include <unistd.h>
#include "lib/close.h"

enum { M = 7, N = 9, K = 5, LD = 13 };

/* gcc 12's leak checker crashes on sleeping threads of an OpenMP runtime that was loaded at run time, whatever started
 * them. */
#if defined(__SANITIZE_ADDRESS__)
enum { MOST_THREADS = 1 };
#else
enum { MOST_THREADS = 2 };
#endif

static double value(int i, int j) { return ((i * 7 + j * 3) % 11 - 5) / 4.0; } /* exact in bfloat16 */

/* What C must be after C = 1.5 A B + 0.5 C with A(i,l) = value(i,l), B(l,j) = value(l+2,j), C(i,j) = value(j,i). */
static double truth(int i, int j) {
  double sum = 0;
  for (int l = 0; l < K; l++) sum += value(i, l) * value(l + 2, j);
  return 1.5 * sum + 0.5 * value(j, i);
}

static guint16 bf16(double x) {
  float f = (float)x;
  guint32 bits;
  memcpy(&bits, &f, sizeof bits);
  return (guint16)(bits >> 16);
}

static void put(MsBlasType type, void *x, int index, double v) {
  if (type == MS_BLAS_F64) ((double *)x)[index] = v;
  if (type == MS_BLAS_F32) ((float *)x)[index] = (float)v;
  if (type == MS_BLAS_BF16) ((guint16 *)x)[index] = bf16(v);
}

static void multiply(const MsBlas *blas, MsBlasType type, gboolean ta, gboolean tb) {
  double a[LD * LD], b[LD * LD], c[LD * LD]; /* large enough for every type */
  for (int i = 0; i < M; i++)
    for (int l = 0; l < K; l++) put(type, a, ta ? l * LD + i : i * LD + l, value(i, l));
  for (int l = 0; l < K; l++)
    for (int j = 0; j < N; j++) put(type, b, tb ? j * LD + l : l * LD + j, value(l + 2, j));
  MsBlasType out = type == MS_BLAS_F64 ? MS_BLAS_F64 : MS_BLAS_F32;
  for (int i = 0; i < M; i++)
    for (int j = 0; j < LD; j++) put(out, c, i * LD + j, j < N ? value(j, i) : 99);
  if (type == MS_BLAS_F64) ms_blas_dgemm(blas, ta, tb, M, N, K, 1.5, a, LD, b, LD, 0.5, c, LD);
  if (type == MS_BLAS_F32)
    ms_blas_sgemm(blas, ta, tb, M, N, K, 1.5f, (float *)a, LD, (float *)b, LD, 0.5f, (float *)c, LD);
  if (type == MS_BLAS_BF16)
    ms_blas_bf16gemm(blas, ta, tb, M, N, K, 1.5f, (guint16 *)a, LD, (guint16 *)b, LD, 0.5f, (float *)c, LD);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < LD; j++) {
      double got = out == MS_BLAS_F64 ? c[i * LD + j] : (double)((float *)c)[i * LD + j];
      if (j < N) assert_close(got, truth(i, j), 1e-6);
      else assert_close(got, 99, 0); /* beyond the row: not touched */
    }
}

static void test_every_library(void **state) {
  (void)state;
  for (int i = 0; ms_blas_names[i]; i++) {
    g_autoptr(GError) error = NULL;
    const MsBlas *blas = ms_blas_open(ms_blas_names[i], &error);
    if (!blas) {
      assert_int_equal(error->code, MS_ERROR_ENV);
      continue;
    }
    assert_string_equal(ms_blas_name(blas), ms_blas_names[i]);
    assert_ptr_equal(blas, ms_blas_open(ms_blas_names[i], NULL));
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
      ms_blas_set_threads(blas, threads);
      for (int type = 0; type < MS_BLAS_TYPES; type++)
        for (int trans = 0; trans < 4; trans++)
          if (ms_blas_has(blas, type)) multiply(blas, type, trans & 1, trans >> 1);
    }
  }
}

static void test_kernels_suit_the_cpu(void **state) {
  (void)state;
  const MsBlas *blas = ms_blas_open("openblas", NULL);
  assert_non_null(blas);
  assert_non_null(ms_blas_kernel(blas));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) assert_string_not_equal(ms_blas_kernel(blas), "Prescott");
  if (__builtin_cpu_supports("avx512dq")) assert_string_not_equal(ms_blas_kernel(blas), "Haswell");
#endif
}

/* In a process of its own: a library is loaded once. */
static int kept_choice(void) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) return 0;
  g_setenv("OPENBLAS_CORETYPE", "Sandybridge", TRUE);
  const MsBlas *blas = ms_blas_open("openblas", NULL);
  if (!blas || g_strcmp0(ms_blas_kernel(blas), "Sandybridge") != 0) return 1;
  return !ms_blas_note(blas) || !strstr(ms_blas_note(blas), "because OPENBLAS_CORETYPE is set");
#else
  return 0;
#endif
}

static void test_a_users_choice_is_kept(void **state) {
  (void)state;
  int status;
  pid_t child = fork();
  if (child == 0) _exit(kept_choice());
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_names(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  assert_null(ms_blas_open("openblass", &error));
  assert_int_equal(error->code, MS_ERROR_USAGE);
  assert_non_null(strstr(error->message, "openblas, blis, mkl, onednn"));
  assert_non_null(ms_blas_open(NULL, NULL));
}

int main(void) {
  g_unsetenv("OPENBLAS_CORETYPE"); /* some machines set it for everything that runs there */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_users_choice_is_kept), /* first: before this process has loaded a library */
      cmocka_unit_test(test_every_library),
      cmocka_unit_test(test_kernels_suit_the_cpu),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
