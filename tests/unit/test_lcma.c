/* tests/unit/test_lcma.c - the BLAS-like interface: arguments, edge cases, plans and limits; the decision on machines
 * whose rates are known; the fit of rates; the benchmark's own arithmetic. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "base/err.h"
#include "lcma/bench.h"
#include "lcma/kernel.h"
#include "lib/close.h"

static MsLcma *open_one(int threads) {
  char why[200] = "";
  MsLcma *lcma = ms_lcma_new(NULL, threads, why, sizeof why);
  if (!lcma) fail_msg("%s", why);
  return lcma;
}

static void test_arguments(void **state) {
  (void)state;
  char why[40] = "";
  assert_null(ms_lcma_new("nonsense", 1, why, sizeof why));
  assert_int_equal(strncmp(why, "unknown BLAS 'nonsense'", 23), 0); /* cut to the room there is */
  assert_null(ms_lcma_new(NULL, -1, NULL, 0));
  MsLcma *lcma = open_one(1);
  float a[4] = {1, 2, 3, 4}, c[4] = {9, 9, 9, 9};
  assert_int_equal(ms_lcma_sgemm(lcma, 'X', 'N', 2, 2, 2, 1, a, 2, a, 2, 0, c, 2), MS_LCMA_BAD_ARGUMENT);
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', -1, 2, 2, 1, a, 2, a, 2, 0, c, 2), MS_LCMA_BAD_ARGUMENT);
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', 2, 2, 2, 1, a, 1, a, 2, 0, c, 2), MS_LCMA_BAD_ARGUMENT);
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', 2, 2, 2, 1, a, 2, a, 2, 0, c, 1), MS_LCMA_BAD_ARGUMENT);
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', 2, 2, (int64_t)1 << 40, 1, a, 2, a, 2, 0, c, 2), MS_LCMA_BAD_ARGUMENT);
  assert_int_equal(ms_lcma_sgemm(NULL, 'N', 'N', 2, 2, 2, 1, a, 2, a, 2, 0, c, 2), MS_LCMA_BAD_ARGUMENT);
  for (int i = 0; i < 4; i++) assert_close((double)c[i], 9, 0);
  assert_int_equal(ms_lcma_set_plan(lcma, "strasen"), MS_LCMA_UNKNOWN_PLAN);
  ms_lcma_free(lcma);
  ms_lcma_free(NULL);
}

static void test_edge_cases(void **state) {
  (void)state;
  MsLcma *lcma = open_one(2);
  float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4] = {1, 1, 1, 1};
  double x[4] = {1, 2, 3, 4}, z[4] = {1, 1, 1, NAN};
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 't', 2, 2, 2, 1, a, 2, b, 2, 2, c, 2), MS_LCMA_OK);
  const double expected[] = {19, 25, 41, 55}; /* A B^T + 2 */
  for (int i = 0; i < 4; i++) assert_close((double)c[i], expected[i], 1e-6);
  assert_string_equal(ms_lcma_plan(lcma), "library");
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', 0, 2, 2, 1, a, 2, b, 2, 0, c, 2), MS_LCMA_OK); /* nothing to do */
  assert_close((double)c[0], 19, 1e-6);
  assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', 2, 2, 0, 1, a, 2, b, 2, 0.5f, c, 2), MS_LCMA_OK); /* C = beta C */
  assert_close((double)c[3], 27.5, 1e-6);
  assert_int_equal(ms_lcma_dgemm(lcma, 'N', 'N', 2, 2, 2, 0, x, 2, x, 2, 0, z, 2), MS_LCMA_OK);
  for (int i = 0; i < 4; i++) assert_close(z[i], 0, 0); /* beta 0 clears even NaN */
  const uint16_t half = 0x3f00, two = 0x4000;           /* 0.5 and 2 as bfloat16 */
  float product = NAN;
  assert_int_equal(ms_lcma_bf16gemm(lcma, 'N', 'N', 1, 1, 1, 3, &half, 1, &two, 1, 0, &product, 1), MS_LCMA_OK);
  assert_close((double)product, 3, 1e-6);
  ms_lcma_free(lcma);
}

static void fill(double *x, int n) {
  for (int i = 0; i < n; i++) x[i] = sin(i * 0.7) + 0.1 * (i % 5);
}

/* The same product by the library, by schemes and under limits from nothing to plenty. */
static void test_plans_and_limits(void **state) {
  (void)state;
  enum { N = 90 };
  static double a[N * N], b[N * N], by_library[N * N], c[N * N];
  fill(a, N * N);
  fill(b, N * N);
  MsLcma *lcma = open_one(1);
  assert_int_equal(ms_lcma_set_plan(lcma, "library"), MS_LCMA_OK);
  assert_int_equal(ms_lcma_dgemm(lcma, 'N', 'T', N, N, N, 1, a, N, b, N, 0, by_library, N), MS_LCMA_OK);
  static const char *const plans[] = {"strassen", "winograd/3x3x3", "4x4x4-48"};
  for (size_t i = 0; i < G_N_ELEMENTS(plans); i++)
    for (size_t limit_B = 1; limit_B <= 1 << 22; limit_B *= 8) {
      ms_lcma_set_workspace_limit(lcma, limit_B);
      assert_int_equal(ms_lcma_set_plan(lcma, plans[i]), MS_LCMA_OK);
      assert_int_equal(ms_lcma_dgemm(lcma, 'N', 'T', N, N, N, 1, a, N, b, N, 0, c, N), MS_LCMA_OK);
      assert_string_equal(ms_lcma_plan(lcma), limit_B < 4096      ? "library"
                                              : limit_B > 1 << 20 ? plans[i]
                                                                  : ms_lcma_plan(lcma));
      for (int x = 0; x < N * N; x++) assert_true(fabs(c[x] - by_library[x]) < 1e-11);
    }
  assert_true(ms_lcma_error_growth(lcma) > 1);
  ms_lcma_free(lcma);
}

/* Plans for units or types that are not there are refused, also under a limit of the workspace. */
static void test_plans_that_cannot_run(void **state) {
  (void)state;
  static const char *const plans[] = {"definition:int8", "strassen:int16", "strassen:bf16"};
  float a[16] = {0}, c[16] = {0};
  MsLcma *lcma = open_one(1);
  for (size_t p = 0; p < G_N_ELEMENTS(plans); p++)
    for (size_t limit_B = 0; limit_B <= 1 << 20; limit_B = limit_B * 1024 + 1) {
      assert_int_equal(ms_lcma_set_plan(lcma, plans[p]), MS_LCMA_OK);
      ms_lcma_set_workspace_limit(lcma, limit_B);
      assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', 4, 4, 4, 1, a, 4, a, 4, 0, c, 4), MS_LCMA_UNKNOWN_PLAN);
    }
  ms_lcma_free(lcma);
}

/* int8: whole numbers, exact by every plan that holds its sums; the others are refused. */
static void test_int8(void **state) {
  (void)state;
  enum { M = 61, N = 70, K = 83 };
  static int8_t a[M * K], b[K * N];
  static int32_t c[M * N];
  static const char *const plans[] = {NULL, "definition:int8", "strassen:int16", "4x5x5:int16"};
  static const char *const refused[] = {"strassen:int8", "strassen/strassen:int16", "4x4x4-48:int16", "strassen"};
  for (int i = 0; i < M * K; i++) a[i] = (int8_t)(i * 37 % 256 - 128);
  for (int i = 0; i < K * N; i++) b[i] = (int8_t)(i * 101 % 256 - 128);
  MsLcma *lcma = open_one(1);
  if (!ms_kernel_whole((int)ms_vector(), 8)) { /* no AVX512-VNNI */
    assert_int_equal(ms_lcma_int8gemm(lcma, 'N', 'N', M, N, K, 1, a, K, b, N, 0, c, N), MS_LCMA_NO_LIBRARY);
    ms_lcma_free(lcma);
    skip();
  }
  for (size_t p = 0; p < G_N_ELEMENTS(plans); p++) {
    for (int i = 0; i < M * N; i++) c[i] = i;
    assert_int_equal(ms_lcma_set_plan(lcma, plans[p]), MS_LCMA_OK);
    assert_int_equal(ms_lcma_int8gemm(lcma, 'N', 'N', M, N, K, -3, a, K, b, N, 2, c, N), MS_LCMA_OK);
    assert_true(ms_lcma_error_growth(lcma) == 1);
    for (int i = 0; i < M * N; i++) {
      int32_t sum = 0;
      for (int l = 0; l < K; l++) sum += a[i / N * K + l] * b[l * N + i % N];
      assert_int_equal(c[i], 2 * i - 3 * sum);
    }
  }
  assert_int_equal(ms_lcma_int8gemm(lcma, 'N', 'N', M, N, 0, 1, a, K, b, N, -1, c, N), MS_LCMA_OK);
  for (size_t p = 0; p < G_N_ELEMENTS(refused); p++) {
    ms_lcma_set_plan(lcma, refused[p]);
    assert_int_equal(ms_lcma_int8gemm(lcma, 'N', 'N', M, N, K, 1, a, K, b, N, 0, c, N), MS_LCMA_UNKNOWN_PLAN);
  }
  ms_lcma_free(lcma);
}

/* Contexts of their own in threads of their own: each gets what it gets alone, to the bit. */
enum { CM = 100, CN = 90, CK = 80, CONCURRENT = 4, TIMES = 8 };
typedef struct {
  const char *plan;
  float a[CM * CK], b[CK * CN], c[CM * CN];
} Concurrent;

static gpointer multiply_often(gpointer data) {
  Concurrent *x = data;
  MsLcma *lcma = open_one(2);
  assert_int_equal(ms_lcma_set_plan(lcma, x->plan), MS_LCMA_OK);
  memset(x->c, 0, sizeof x->c);
  for (int i = 0; i < TIMES; i++)
    assert_int_equal(ms_lcma_sgemm(lcma, 'N', 'N', CM, CN, CK, 1, x->a, CK, x->b, CN, -0.5f, x->c, CN), MS_LCMA_OK);
  ms_lcma_free(lcma);
  return NULL;
}

static void test_concurrent_contexts(void **state) {
  (void)state;
  static const char *const plans[CONCURRENT] = {"strassen", "3x2x3/strassen", "strassen:library", "4x5x5"};
  static Concurrent x[CONCURRENT];
  static float alone[CONCURRENT][CM * CN];
  GThread *thread[CONCURRENT];
  for (int t = 0; t < CONCURRENT; t++) {
    x[t].plan = plans[t];
    for (int i = 0; i < CM * CK; i++) x[t].a[i] = (float)((i + t) * 13 % 101) / 7;
    for (int i = 0; i < CK * CN; i++) x[t].b[i] = (float)((i + t) * 17 % 103) / 9;
    multiply_often(&x[t]);
    memcpy(alone[t], x[t].c, sizeof x[t].c);
  }
  for (int t = 0; t < CONCURRENT; t++) thread[t] = g_thread_new(plans[t], multiply_often, &x[t]);
  for (int t = 0; t < CONCURRENT; t++) {
    g_thread_join(thread[t]);
    assert_memory_equal(alone[t], x[t].c, sizeof x[t].c);
  }
}

/* Rows of A, columns of B and depths from 2^-30 to 2^30: a scheme keeps the digits of every element when it scales, and
 * does not when it does not. In all types, with alpha, beta and transposes. */
static double worst_element(MsLcma *lcma, MsBlasType type, gboolean scaling) {
  enum { N = 64 };
  static double a[N * N], b[N * N], c[N * N], exact[N * N];
  static float af[N * N], bf[N * N], cf[N * N];
  static uint16_t ah[N * N], bh[N * N];
  double worst = 0;
  for (int i = 0; i < N * N; i++) {
    float x = (float)ldexp(1 + i * 37 % 64 / 64.0, i / N * 7 % 61 - 30 + i % N % 9 * 2),
          y = (float)ldexp(1 + i * 29 % 64 / 64.0, i % N * 11 % 61 - 30 - i / N % 9 * 2);
    af[i] = x, bf[i % N * N + i / N] = y;
    a[i] = (double)x, b[i % N * N + i / N] = (double)y; /* B is stored transposed */
    uint32_t bits[2];
    memcpy(bits, &x, 4), memcpy(bits + 1, &y, 4);
    ah[i] = (uint16_t)(bits[0] >> 16), bh[i % N * N + i / N] = (uint16_t)(bits[1] >> 16);
  }
  for (int i = 0; i < N * N; i++) {
    exact[i] = 0;
    for (int l = 0; l < N; l++) exact[i] += a[i / N * N + l] * b[i % N * N + l];
    c[i] = 3 * exact[i];
    cf[i] = (float)c[i];
    exact[i] = 2 * exact[i] - 0.5 * (type == MS_BLAS_F64 ? c[i] : (double)cf[i]);
  }
  ms_lcma_set_scaling(lcma, scaling);
  int status = type == MS_BLAS_F64   ? ms_lcma_dgemm(lcma, 'N', 'T', N, N, N, 2, a, N, b, N, -0.5, c, N)
               : type == MS_BLAS_F32 ? ms_lcma_sgemm(lcma, 'N', 'T', N, N, N, 2, af, N, bf, N, -0.5f, cf, N)
                                     : ms_lcma_bf16gemm(lcma, 'N', 'T', N, N, N, 2, ah, N, bh, N, -0.5f, cf, N);
  assert_int_equal(status, MS_LCMA_OK);
  for (int i = 0; i < N * N; i++) worst = MAX(worst, fabs((type == MS_BLAS_F64 ? c[i] : (double)cf[i]) / exact[i] - 1));
  return worst;
}

static void test_scaling(void **state) {
  (void)state;
  MsLcma *lcma = open_one(1);
  assert_int_equal(ms_lcma_set_plan(lcma, "strassen*strassen"), MS_LCMA_OK);
  for (int type = 0; type < MS_BLAS_TYPES; type++) {
    double rounding = type == MS_BLAS_F64 ? 0x1p-52 : 0x1p-23;
    assert_true(worst_element(lcma, (MsBlasType)type, FALSE) > 1e3 * rounding);
    assert_true(worst_element(lcma, (MsBlasType)type, TRUE) < 500 * rounding);
  }
  ms_lcma_free(lcma);
}

/* --- the decision ---------------------------------------------------------------------------------------------- */
static double flop_s(const void *data, double m, double n, double k) { return 2 * m * n * k / *(const double *)data; }
static double flops_s(const void *data, double m, double n, double k, double count) {
  return count * flop_s(data, m, n, k);
}

static MsLcmaMachine machine_of(const double *flops, double Bps) {
  return (MsLcmaMachine){.data = flops,
                         .library_s = flop_s,
                         .product_s = flops_s,
                         .split = {[MS_SPLIT_READ] = 1 / Bps, [MS_SPLIT_A] = 1 / Bps, [MS_SPLIT_B] = 1 / Bps},
                         .merge = {[MS_MERGE_READ] = 1 / Bps, [MS_MERGE_C] = 1 / Bps},
                         .input_B = 4,
                         .sum_B = 4,
                         .product_B = 4,
                         .margin = MS_LCMA_MARGIN,
                         .doubt = MS_LCMA_DOUBT};
}

static void test_decision_follows_the_rates(void **state) {
  (void)state;
  const double flops = 1e11;
  MsLcmaMachine fast = machine_of(&flops, 1e15), slow = machine_of(&flops, 1e9), usual = machine_of(&flops, 1e10);
  g_autoptr(GPtrArray) free_sums = ms_lcma_decide(&fast, &(MsLcmaShape){8192, 8192, 8192, FALSE, 0});
  const MsLcmaChoice *best = free_sums->pdata[0];
  assert_true(best->levels >= 3); /* additions that cost nothing: the fewest products win */
  assert_close(best->time_s, best->split_s + best->multiply_s + best->merge_s, 1e-12);
  g_autoptr(GPtrArray) dear_sums = ms_lcma_decide(&slow, &(MsLcmaShape){2048, 2048, 2048, FALSE, 0});
  assert_string_equal(((MsLcmaChoice *)dear_sums->pdata[0])->plan, "library");
  for (guint i = 1; i < free_sums->len; i++) { /* of equals the most accurate */
    const MsLcmaChoice *other = free_sums->pdata[i];
    assert_true(best->time_s <= MS_LCMA_TIE * other->time_s &&
                (other->growth >= best->growth || other->time_s * 1.0001 > best->time_s / MS_LCMA_TIE));
  }
  double before = 0; /* larger squares gain more */
  for (double n = 512; n <= 16384; n *= 2) {
    g_autoptr(GPtrArray) choices = ms_lcma_decide(&usual, &(MsLcmaShape){n, n, n, FALSE, 0});
    double gain = ms_lcma_choice_of(choices, "library")->time_s / ((MsLcmaChoice *)choices->pdata[0])->time_s;
    assert_true(gain >= before);
    before = gain;
    if (n < 600) assert_string_equal(((MsLcmaChoice *)choices->pdata[0])->plan, "library");
    for (guint i = 3; i < choices->len; i++) /* the others by time */
      assert_true(((MsLcmaChoice *)choices->pdata[i])->time_s >= ((MsLcmaChoice *)choices->pdata[i - 1])->time_s ||
                  strcmp(((MsLcmaChoice *)choices->pdata[i])->plan, "library") == 0 ||
                  strcmp(((MsLcmaChoice *)choices->pdata[i - 1])->plan, "library") == 0);
  }
}

/* Where sums cost nothing schemes gain at any size: only the least side keeps the library, whichever side it is. */
static void test_small_sides_keep_the_library(void **state) {
  (void)state;
  const double flops = 1e11;
  MsLcmaMachine machine = machine_of(&flops, 1e15);
  for (int side = 0; side < 3; side++)
    for (int small = 0; small < 2; small++) {
      double of[3] = {8192, 8192, 8192};
      of[side] = small ? 383 : 384;
      machine.least_side = 384;
      g_autoptr(GPtrArray) kept = ms_lcma_decide(&machine, &(MsLcmaShape){of[0], of[1], of[2], FALSE, 0});
      assert_int_equal(strcmp(((MsLcmaChoice *)kept->pdata[0])->plan, "library") == 0, small);
      for (guint i = 2; small && i < kept->len; i++) /* behind it the others, by time */
        assert_true(((MsLcmaChoice *)kept->pdata[i])->time_s * MS_LCMA_TIE >=
                    ((MsLcmaChoice *)kept->pdata[i - 1])->time_s);
      machine.least_side = 0;
      g_autoptr(GPtrArray) free_sums = ms_lcma_decide(&machine, &(MsLcmaShape){of[0], of[1], of[2], FALSE, 0});
      assert_true(strcmp(((MsLcmaChoice *)free_sums->pdata[0])->plan, "library") != 0);
    }
}

/* Strassen's scheme by hand: 7 products of half size; 4 MK read and 7 quarters written; 7 quarters read and C written.
 */
static void test_decision_by_hand(void **state) {
  (void)state;
  const double flops = 1e11, Bps = 1e10, n = 1024, e = n * n;
  MsLcmaMachine machine = machine_of(&flops, Bps);
  machine.split[MS_SPLIT_TERM] = 1e-12;
  g_autoptr(GPtrArray) choices = ms_lcma_decide(&machine, &(MsLcmaShape){n, n, n, FALSE, 0});
  const MsLcmaChoice *c = ms_lcma_choice_of(choices, "strassen");
  assert_close(c->multiply_s, 7 * 2 * 512.0 * 512 * 512 / flops, 1e-12);
  assert_close(c->split_s, (2 * e + 2 * 7 * e / 4) * 4 / Bps + 1e-12 * 24 * e / 4, 1e-12);
  assert_close(c->merge_s, (7 * e / 4 + e) * 4 / Bps, 1e-12);
  assert_close(c->workspace_B, 21 * e / 4 * 4, 1e-12);
  assert_close(c->growth, 6, 1e-12);
  g_autoptr(GPtrArray) limited =
      ms_lcma_decide(&machine, &(MsLcmaShape){n, n, n, TRUE, 7 * 4 * e}); /* room for nearly all: two groups */
  const MsLcmaChoice *l = ms_lcma_choice_of(limited, "strassen*strassen");
  assert_non_null(l);
  assert_true(l->groups >= 2 && l->workspace_B <= 7 * 4 * e);
  assert_true(l->split_s > ms_lcma_choice_of(choices, "strassen*strassen")->split_s);
}

/* Every rate of a pass by hand: Strassen's blocks are 300 x 500 (A), 500 x 700 (B), 300 x 700 (C). */
static void test_rates_by_hand(void **state) {
  (void)state;
  const double flops = 1e11, a = 300 * 500, b = 500 * 700, c = 300 * 700, read_B = 4 * 4 * (a + b);
  MsLcmaMachine x = machine_of(&flops, 1e10);
  x.slab_B = 1024;
  x.split_cache_B = 1e6;
  x.merge_cache_B = 2e6;
  const MsLcmaCounts strassen = {2, 2, 2, 7, 12, 12, 12};
  const MsLcmaShape shape = {600, 1400, 1000, FALSE, 0};
  double split[MS_SPLIT_RATES], merge[MS_MERGE_RATES];
  ms_lcma_rows(&x, &strassen, &shape, 300, 700, 500, 1, split, merge);
  assert_close(split[MS_SPLIT_READ], read_B, 0);
  assert_close(split[MS_SPLIT_A], 7 * 4 * a, 0);
  assert_close(split[MS_SPLIT_B], 7 * 4 * b, 0);
  assert_close(split[MS_SPLIT_TERM], 12 * (a + b), 0);
  assert_close(split[MS_SPLIT_A_PIECE], 7 * 300 * 2, 0); /* 500 columns are two slabs */
  assert_close(split[MS_SPLIT_B_PIECE], 7 * 500, 0);     /* 4 rows of 700 floats are in one chunk */
  assert_close(split[MS_SPLIT_START], 1, 0);
  assert_close(split[MS_SPLIT_BEYOND], read_B + 7 * 4 * (a + b) - 1e6, 0);
  assert_close(merge[MS_MERGE_READ], 7 * 4 * c, 0);
  assert_close(merge[MS_MERGE_C], 4 * 600 * 1400, 0);
  assert_close(merge[MS_MERGE_TERM], 12 * c, 0);
  assert_close(merge[MS_MERGE_PIECE], 4 * 300, 0); /* 8 rows of 700 floats are in one chunk */
  assert_close(merge[MS_MERGE_BEYOND], 7 * 4 * c - 2e6, 0);
  x.slab_B = 0;
  ms_lcma_rows(&x, &strassen, &shape, 300, 700, 500, 3, split, merge); /* in three groups */
  assert_close(split[MS_SPLIT_A_PIECE], 7 * 300, 0);
  assert_close(split[MS_SPLIT_READ], 3 * read_B, 0);
  assert_close(split[MS_SPLIT_START] + merge[MS_MERGE_START], 6, 0);
  assert_close(split[MS_SPLIT_BEYOND], 3 * read_B + 7 * 4 * (a + b) - 3e6, 0);
  assert_close(merge[MS_MERGE_C], 5 * 4 * 600 * 1400, 0); /* written thrice, read twice */
  assert_close(merge[MS_MERGE_BEYOND], 0, 0);
}

/* Two threads on one CPU wait for each other, and that is seen. */
typedef struct {
  gint64 until_us;
  double waited_s; /* when it ended */
} Spin;

static gpointer spin_on_first_cpu(gpointer data) {
  Spin *x = data;
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof all, &all) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
  while (g_get_monotonic_time() < x->until_us) {}
  x->waited_s = ms_team_waited_s();
  return NULL;
}

static void test_waiting_is_seen(void **state) {
  (void)state;
  if (!g_file_test("/proc/self/schedstat", G_FILE_TEST_EXISTS)) skip();
  enum { THREADS = 2 };
  Spin x[THREADS];
  GThread *thread[THREADS];
  const double before_s = ms_team_waited_s();
  const gint64 until_us = g_get_monotonic_time() + 100000;
  for (int i = 0; i < THREADS; i++) {
    x[i].until_us = until_us;
    thread[i] = g_thread_new("spin", spin_on_first_cpu, &x[i]);
  }
  for (int i = 0; i < THREADS; i++) g_thread_join(thread[i]);
  const double waited_s = MAX(x[0].waited_s, x[1].waited_s) - before_s;
  assert_true(waited_s > 0.05 && waited_s < 100);
  assert_false(ms_team_undisturbed(waited_s, 0.1));
  assert_true(ms_team_undisturbed(0, 0.1));
}

/* A team that rests takes the next tasks all the same, each once. */
static void count(void *context, int task, int worker) {
  (void)worker;
  g_atomic_int_inc((int *)context + task);
}

static void test_a_team_that_rests(void **state) {
  (void)state;
  enum { RUNS = 50, TASKS = 7 };
  int done[TASKS] = {0};
  MsTeam *team = ms_team_new(3);
  for (int i = 0; i < RUNS; i++) {
    if (i % 3) ms_team_rest(team);
    if (i % 5 == 0) g_usleep(100);
    ms_team_run(team, count, done, TASKS);
  }
  for (int i = 0; i < TASKS; i++) assert_int_equal(done[i], RUNS);
  ms_team_free(team);
}

/* Threads that share a product take as many pieces each, none with more rows than stay near. */
static void test_pieces(void **state) {
  (void)state;
  const MsKernel *kernel = ms_kernel_for((int)ms_vector(), 4);
  const gint64 near = ms_kernel_near(kernel);
  assert_int_equal(ms_lcma_pieces(NULL, 100 * near, 2), 2);
  assert_int_equal(ms_lcma_pieces(kernel, 10, 2), 2);
  assert_int_equal(ms_lcma_pieces(kernel, 2 * near, 2), 2);
  assert_int_equal(ms_lcma_pieces(kernel, 2 * near + 1, 2), 4);
  assert_int_equal(ms_lcma_pieces(kernel, 5 * near, 3), 6);
}

/* A generated kernel by hand: Strassen's blocks of C fit registers with tiles of 128 x 64. */
static void test_fused_by_hand(void **state) {
  (void)state;
  const double flops = 1e14, n = 8192, launch_s = 5e-6;
  MsLcmaMachine machine = machine_of(&flops, 1e12);
  machine.device = (MsLcmaDevice){MS_GPU_F32, 100, flops, 1e12, 1e13, launch_s};
  const MsLcmaShape shape = {n, n, n, FALSE, 0};
  g_autoptr(GPtrArray) choices = ms_lcma_decide(&machine, &shape);
  const MsLcmaChoice *c = ms_lcma_choice_of(choices, "strassen:fused");
  const double waves = 21, tile_s = 7 * 2.0 * 128 * 64 * 4096 / (flops / 100); /* 32 x 64 thread groups on 100 SMs */
  assert_non_null(c);
  assert_close(c->time_s, launch_s + waves * tile_s, 1e-12);
  assert_int_equal(c->groups, 1);
  assert_close(c->workspace_B, 0, 0);
  machine.device.l2_Bps = 2e12; /* what is loaded takes longer than what is multiplied */
  g_autoptr(GPtrArray) slow = ms_lcma_decide(&machine, &shape);
  const double load_B = 12.0 * (128 + 64) * 4096 * 4;
  assert_close(ms_lcma_choice_of(slow, "strassen:fused")->time_s, launch_s + waves * load_B / (2e12 / 100), 1e-12);
  machine.device.hbm_Bps = 1e11; /* in a wave 2 rows of tiles of A and all of B come from memory, at the end C */
  g_autoptr(GPtrArray) bound = ms_lcma_decide(&machine, &shape);
  const double memory_B = waves * n * 4 * (2 * 128 * 2 + n) + n * n * 4;
  assert_close(ms_lcma_choice_of(bound, "strassen:fused")->time_s, launch_s + memory_B / 1e11, 1e-12);
  const MsLcmaShape small = {1024, 1024, 4096, FALSE, 0}; /* 32 thread groups for 100 SMs: they share the products */
  machine.device.hbm_Bps = 1e13, machine.device.l2_Bps = 1e14;
  g_autoptr(GPtrArray) shared = ms_lcma_decide(&machine, &small);
  const MsLcmaChoice *s = ms_lcma_choice_of(shared, "strassen:fused");
  assert_int_equal(s->groups, 2); /* 64 with four products each; four would be two waves of two */
  assert_close(s->workspace_B, 2 * 1024 * 1024 * 4.0, 0);
  assert_close(s->time_s, 2 * launch_s + 4 * 2.0 * 128 * 64 * 2048 / (flops / 100), 1e-12);
  machine.device.sms = 0;
  g_autoptr(GPtrArray) none = ms_lcma_decide(&machine, &small);
  assert_null(ms_lcma_choice_of(none, "strassen:fused"));
}

static void test_fit_of_rates(void **state) {
  (void)state;
  double rows[12 * 3], target[12], x[3];
  for (int i = 0; i < 12; i++) {
    rows[3 * i] = pow(2, i) * 1e6;
    rows[3 * i + 1] = 1e3 * (i * i % 7 + 1);
    rows[3 * i + 2] = 50 + i;
    target[i] = 3e-9 * rows[3 * i] + 2e-5 * rows[3 * i + 1];
  }
  assert_true(ms_fit_rates(rows, target, 12, 3, x) < 1e-8);
  assert_close(x[0], 3e-9, 1e-4);
  assert_close(x[1], 2e-5, 1e-4);
  assert_true(x[2] >= 0 && x[2] * 60 < 1e-3 * target[0] + 1e-9); /* a rate is never negative */
}

static void test_bench(void **state) {
  (void)state;
  MsLcma *lcma = open_one(1);
  assert_int_equal(ms_lcma_set_plan(lcma, "strassen"), MS_LCMA_OK);
  const MsBlas *libraries[] = {ms_lcma_blas(lcma), NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(MsGemmBench) bench = ms_gemm_bench(lcma, libraries, 1, MS_BLAS_F64, 130, 120, 110, 3, NULL, &error);
  assert_non_null(bench);
  assert_int_equal(bench->n, 2);
  assert_string_equal(bench->plan, "strassen");
  assert_int_equal(bench->levels, 1);
  assert_int_equal(bench->fastest, 1);
  for (int i = 0; i < 2; i++) {
    assert_true(bench->timing[i].best_s > 0 && bench->timing[i].best_s <= bench->timing[i].median_s);
    assert_true(bench->timing[i].relative_error > 0 && bench->timing[i].relative_error < 1e-13);
  }
  assert_close(bench->timing[0].ratio, 1, 0);
  ms_lcma_free(lcma);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_arguments),
      cmocka_unit_test(test_edge_cases),
      cmocka_unit_test(test_plans_and_limits),
      cmocka_unit_test(test_plans_that_cannot_run),
      cmocka_unit_test(test_int8),
      cmocka_unit_test(test_concurrent_contexts),
      cmocka_unit_test(test_scaling),
      cmocka_unit_test(test_decision_follows_the_rates),
      cmocka_unit_test(test_small_sides_keep_the_library),
      cmocka_unit_test(test_decision_by_hand),
      cmocka_unit_test(test_rates_by_hand),
      cmocka_unit_test(test_waiting_is_seen),
      cmocka_unit_test(test_a_team_that_rests),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_fused_by_hand),
      cmocka_unit_test(test_fit_of_rates),
      cmocka_unit_test(test_bench),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
