/* tests/unit/test_lcma_exec.c - plans against a naive product in double: types, transposes, alpha and beta, leading
 * dimensions, odd sizes, one and several stages, one and several threads, small workspaces, on every vector unit that
 * this CPU has; what lies beyond the matrix or the workspace is neither read nor written; error growth by level. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lcma/exec.h"
#include "lib/close.h"
#include "lib/tier.h"

static guint32 seed;
static double uniform(void) { /* in [-1, 1), the same everywhere */
  seed = seed * 1664525u + 1013904223u;
  return (double)(seed >> 8) / 8388608.0 - 1;
}

static size_t c_element_B(MsBlasType type) { return type == MS_BLAS_F64 ? 8 : 4; }

/* Element `index` of an array of the type, and back. */
static void put(MsBlasType type, void *x, gint64 index, double v) {
  float f = (float)v;
  guint32 bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == MS_BLAS_F64) ((double *)x)[index] = v;
  if (type == MS_BLAS_F32) ((float *)x)[index] = f;
  if (type == MS_BLAS_BF16) ((guint16 *)x)[index] = (guint16)(bits >> 16);
}
static double get(MsBlasType type, const void *x, gint64 index) {
  if (type == MS_BLAS_F64) return ((const double *)x)[index];
  if (type == MS_BLAS_F32) return (double)((const float *)x)[index];
  guint32 bits = (guint32)((const guint16 *)x)[index] << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

/* An operand whose last element is the last of its allocation, so that sanitizers see a read beyond it; padding between
 * rows is NaN. */
static void *matrix(MsBlasType type, gint64 rows, gint64 cols, gint64 ld) {
  void *x = g_malloc(((size_t)((rows - 1) * ld + cols)) * (type == MS_BLAS_BF16 ? 2 : c_element_B(type)));
  for (gint64 i = 0; i < rows; i++)
    for (gint64 j = 0; j < ld && i * ld + j < (rows - 1) * ld + cols; j++)
      put(type, x, i * ld + j, j < cols ? uniform() : (double)NAN);
  return x;
}

enum { CANARY_B = 4096 }; /* behind the workspace */

typedef struct {
  MsBlasType type;
  gint64 m, n, k;
  gboolean ta, tb;
  double alpha, beta;
  int pad; /* added to each leading dimension */
} Case;

/* Largest |error| relative to |alpha| k max|A| max|B| + |beta C| (fast schemes are accurate relative to norms, not to
 * elements), in units of the type's rounding. */
static double worst_error(const Case *q, const MsLcmaPlan *plan, int threads) {
  seed = 1;
  MsBlasType out = q->type == MS_BLAS_F64 ? MS_BLAS_F64 : MS_BLAS_F32;
  gint64 lda = (q->ta ? q->m : q->k) + q->pad, ldb = (q->tb ? q->k : q->n) + q->pad, ldc = q->n + q->pad;
  g_autofree void *a = q->ta ? matrix(q->type, q->k, q->m, lda) : matrix(q->type, q->m, q->k, lda);
  g_autofree void *b = q->tb ? matrix(q->type, q->n, q->k, ldb) : matrix(q->type, q->k, q->n, ldb);
  g_autofree void *c = matrix(out, q->m, q->n, ldc), *old = matrix(out, q->m, q->n, ldc);
  if (q->beta == 0)
    for (gint64 i = 0; i < q->m; i++)
      for (gint64 j = 0; j < q->n; j++) put(out, c, i * ldc + j, (double)NAN); /* must not be read */
  memcpy(old, c, (size_t)((q->m - 1) * ldc + q->n) * c_element_B(q->type));
  MsGemm g = {q->type, q->ta, q->tb, q->m, q->n, q->k, q->alpha, a, lda, b, ldb, q->beta, c, ldc};
  size_t workspace_B = ms_lcma_workspace_B(plan, &g);
  char *raw = g_malloc(workspace_B + 64 + CANARY_B), *workspace = raw + (64 - ((guintptr)raw & 63));
  memset(raw, 0xff, workspace_B + 64 + CANARY_B); /* NaN in every type */
  MsTeam *team = ms_team_new(threads);
  ms_lcma_execute(plan, ms_blas_open(NULL, NULL), team, workspace, &g, NULL);
  ms_team_free(team);
  for (size_t i = workspace_B; i < workspace_B + CANARY_B; i++) assert_int_equal((guint8)workspace[i], 0xff);
  g_free(raw);
  double worst = 0;
  for (gint64 i = 0; i < q->m; i++) {
    for (gint64 j = 0; j < q->n; j++) {
      double sum = 0;
      for (gint64 l = 0; l < q->k; l++) {
        sum += get(q->type, a, q->ta ? l * lda + i : i * lda + l) * get(q->type, b, q->tb ? j * ldb + l : l * ldb + j);
      }
      double before = q->beta == 0 ? 0 : q->beta * get(out, old, i * ldc + j);
      double error =
          fabs(get(out, c, i * ldc + j) - (q->alpha * sum + before)) / (fabs(q->alpha) * (double)q->k + fabs(before));
      if (!(error <= worst)) worst = error; /* a NaN counts */
    }
    for (gint64 j = q->n; j < ldc && i < q->m - 1; j++) assert_true(isnan(get(out, c, i * ldc + j)));
  }
  return worst / (out == MS_BLAS_F64 ? DBL_EPSILON : (double)FLT_EPSILON);
}

static MsLcmaPlan *plan_of(const char *name) {
  g_autoptr(GError) error = NULL;
  MsLcmaPlan *plan = ms_lcma_plan_new(name, &error);
  if (!plan) fail_msg("%s", error->message);
  return plan;
}

/* The bound of the analysis is growth * (k + additions) roundings; errors of random numbers add up like their square
 * root at most. On every unit. */
static void right(const Case *q, MsLcmaPlan *plan, int threads) {
  double bound = 2 + 0.5 * ms_lcma_plan_growth(plan) * sqrt((double)q->k);
  for (int unit = 0; unit < MS_VECTORS; unit++) {
    if (!ms_vector_has((MsVector)unit)) continue;
    plan->unit = (MsVector)unit;
    double worst = worst_error(q, plan, threads);
    if (!(worst < bound))
      fail_msg("%s, %s, %s %" G_GINT64_FORMAT "x%" G_GINT64_FORMAT "x%" G_GINT64_FORMAT
               " trans %d%d: error %g of the rounding, bound %g",
               ms_vector_words[unit], plan->name, ms_blas_type_words[q->type], q->m, q->n, q->k, q->ta, q->tb, worst,
               bound);
  }
}

static const char *const plans[] = {"definition",
                                    "strassen",
                                    "winograd",
                                    "3x2x3",
                                    "4x4x4-48",
                                    "strassen*strassen",
                                    "strassen/strassen",
                                    "2x3x4/winograd",
                                    "3x3x6",
                                    "definition:library",
                                    "strassen:library",
                                    "3x2x3:library",
                                    "strassen*strassen:library",
                                    "strassen/2x2x3:library"};

static void test_types_and_transposes(void **state) {
  (void)state;
  for (size_t i = 0; i < G_N_ELEMENTS(plans); i += (size_t)ms_by_tier(3, 1)) {
    g_autoptr(MsLcmaPlan) plan = plan_of(plans[i]);
    for (int type = 0; type < MS_BLAS_TYPES; type++)
      for (int trans = 0; trans < 4; trans++)
        right(&(Case){(MsBlasType)type, 96, 128, 72, trans & 1, trans >> 1, 1.25, trans == 2 ? 0 : -0.5,
                      trans == 1 ? 5 : 0},
              plan, 1 + trans % 2);
  }
}

static void test_odd_sizes(void **state) {
  (void)state;
  static const gint64 sizes[][3] = {{1, 1, 1},       {1, 200, 3}, {97, 1, 33},    {5, 3, 211},   {65, 129, 67},
                                    {127, 131, 113}, {33, 66, 1}, {258, 70, 130}, {30, 50, 1100}};
  for (size_t i = 0; i < G_N_ELEMENTS(plans); i++) {
    g_autoptr(MsLcmaPlan) plan = plan_of(plans[i]);
    for (size_t s = ms_by_tier(i % 3, 0); s < G_N_ELEMENTS(sizes); s += (size_t)ms_by_tier(3, 1))
      right(&(Case){(MsBlasType)((s + i) % MS_BLAS_TYPES), sizes[s][0], sizes[s][1], sizes[s][2], s % 2, s / 2 % 2, -1,
                    s % 3 ? 0.5 : 0, (int)(s % 4)},
            plan, 1);
  }
}

/* Wide enough for several chunks, groups of rows and threads. */
static void test_several_chunks(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  for (size_t i = 0; i < G_N_ELEMENTS(plans); i += 2) {
    g_autoptr(MsLcmaPlan) plan = plan_of(plans[i]);
    right(&(Case){MS_BLAS_F32, 70, 2300, 90, FALSE, FALSE, 1, 0, 0}, plan, 3);
    right(&(Case){MS_BLAS_F32, 70, 90, 2300, TRUE, FALSE, 1, 1, 3}, plan, 2);
    right(&(Case){MS_BLAS_F64, 2300, 70, 90, TRUE, TRUE, 1, 1, 0}, plan, 2);
  }
}

/* Any limit of the workspace from the least to enough gives the same product. */
static void test_workspace_limit(void **state) {
  (void)state;
  Case q = {MS_BLAS_F32, 120, 100, 88, FALSE, TRUE, 2, 0.5, 1};
  MsGemm g = {.type = q.type, .trans_b = TRUE, .m = q.m, .n = q.n, .k = q.k};
  static const char *const names[] = {"strassen*strassen", "strassen/2x2x3"};
  for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autoptr(MsLcmaPlan) plan = plan_of(names[i]);
    size_t whole_B = ms_lcma_workspace_B(plan, &g), least_B = 0;
    assert_false(ms_lcma_plan_fit(plan, &g, 0));
    for (int s = 0; s < plan->n_stages; s++) assert_int_equal(plan->group[s], 1);
    least_B = ms_lcma_workspace_B(plan, &g);
    assert_true(least_B < whole_B / 2);
    for (int step = 0; step <= 8; step++) {
      size_t limit_B = least_B + (whole_B - least_B) / 8 * (size_t)step;
      if (step == 8) limit_B = whole_B;
      assert_true(ms_lcma_plan_fit(plan, &g, limit_B));
      assert_true(ms_lcma_workspace_B(plan, &g) <= limit_B);
      right(&q, plan, 2);
    }
    for (int s = 0; s < plan->n_stages; s++) assert_int_equal(plan->group[s], plan->scheme[s]->r);
  }
}

/* Each level costs accuracy, and no more than its growth says. */
static void test_error_growth(void **state) {
  (void)state;
  static const char *const levels[] = {"definition", "strassen", "strassen*strassen", "strassen/strassen*strassen"};
  double before = 0;
  for (size_t i = 0; i < G_N_ELEMENTS(levels); i++) {
    g_autoptr(MsLcmaPlan) plan = plan_of(levels[i]);
    assert_int_equal(ms_lcma_plan_levels(plan), i == 0 ? 1 : (int)i);
    double worst = worst_error(&(Case){MS_BLAS_F32, 256, 256, 256, FALSE, FALSE, 1, 0, 0}, plan, 1);
    assert_true(worst > before);
    if (i > 0) assert_true(worst < before * 6);
    before = worst;
  }
}

static void test_names(void **state) {
  (void)state;
  static const char *const wrong[] = {"",        "/",         "strassen/", "strassen/strassen/strassen/strassen",
                                      "librari", "two\nlines"};
  for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
    g_autoptr(GError) error = NULL;
    assert_null(ms_lcma_plan_new(wrong[i], &error));
    assert_int_equal(error->code, MS_ERROR_USAGE);
    assert_null(strchr(error->message, '\n'));
  }
  g_autoptr(MsLcmaPlan) library = plan_of("library");
  assert_int_equal(ms_lcma_plan_levels(library), 0);
  assert_int_equal(ms_lcma_workspace_B(library, &(MsGemm){.m = 9, .n = 9, .k = 9}), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types_and_transposes), cmocka_unit_test(test_odd_sizes),
      cmocka_unit_test(test_several_chunks),       cmocka_unit_test(test_workspace_limit),
      cmocka_unit_test(test_error_growth),         cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
