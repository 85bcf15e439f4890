/* tests/unit/test_lcma_shapes.c - small integers, whose products and sums are exact in every type, so that a wrong
 * element cannot hide under a tolerance: shapes from 1 to 40 in every dimension, and longer ones, on every vector unit
 * of this CPU, with all transposes, leading dimensions, alpha and beta, types and kinds of schemes. Nothing is written
 * beyond C or the workspace. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lcma/exec.h"
#include "lib/close.h"
#include "lib/tier.h"

enum { MOST = 40, LONG = 600, PAD = 19, CANARY_B = 65536, ROOM = (MOST + PAD) * (LONG + PAD) };

static const char *const names[] = {"definition",
                                    "strassen",
                                    "winograd",
                                    "2x3x3",
                                    "3x2x3",
                                    "4x5x5",
                                    "4x4x4-48",
                                    "strassen*strassen",
                                    "3x3x6",
                                    "strassen/2x2x3",
                                    "strassen:library",
                                    "3x2x3/strassen:library",
                                    "5x5x5",
                                    "strassen/winograd",
                                    "definition:int8",
                                    "definition:int16",
                                    "strassen:int16",
                                    "winograd:int16",
                                    "strassen*strassen:int16"};
enum { PLANS = G_N_ELEMENTS(names) };
static MsLcmaPlan *plan_at[PLANS];
static int most_at[PLANS][2]; /* largest |element| that stays exact in float, in double; 0: none does */

static guint32 next(guint32 *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* All intermediate values are whole multiples of 1 / (product of denominators), bounded by sums of magnitudes. */
static int exact_magnitude(const MsLcmaPlan *plan, double mantissa) {
  double worst = 8 * LONG, whole = 4; /* alpha, beta and k; alpha may be a half, beta too */
  for (int i = 0; i < plan->n_stages; i++) {
    const MsScheme *s = plan->scheme[i];
    worst *= ms_scheme_growth(s) * s->k;
    whole *= (double)s->u.denominator * s->v.denominator * s->w.denominator;
  }
  return (int)MIN(sqrt(mantissa / worst / whole), 9);
}

#define INT32 MS_BLAS_ALL /* the type of C of int8 */
static void put(MsBlasType type, void *x, gint64 i, double v) {
  float f = (float)v;
  guint32 bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == MS_BLAS_F64) ((double *)x)[i] = v;
  else if (type == MS_BLAS_F32) ((float *)x)[i] = f;
  else if (type == MS_BLAS_INT8) ((gint8 *)x)[i] = (gint8)v;
  else if (type == INT32) ((gint32 *)x)[i] = (gint32)v;
  else ((guint16 *)x)[i] = (guint16)(bits >> 16);
}
static double get(MsBlasType type, const void *x, gint64 i) {
  if (type == INT32) return ((const gint32 *)x)[i];
  return type == MS_BLAS_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

typedef struct {
  MsGemm gemm;
  int a_value[MOST * LONG], b_value[MOST * LONG], c_value[MOST * LONG]; /* m x k, k x n, m x n */
  double a[ROOM], b[ROOM], c[ROOM];                                     /* room for any type */
} Problem;

static MsBlasType c_type(const MsGemm *g) {
  return g->type == MS_BLAS_F64 ? MS_BLAS_F64 : g->type == MS_BLAS_INT8 ? INT32 : MS_BLAS_F32;
}

/* What problem_make leaves between the rows. */
static gboolean untouched(MsBlasType type, double v) { return type == INT32 ? v == -1 : isnan(v); }

static void operand(MsBlasType type, void *to, gint64 ld, const int *value, gint64 rows, gint64 cols, gboolean trans) {
  memset(to, 0xff, sizeof(double) * (size_t)((trans ? cols : rows) * ld)); /* NaN between the rows */
  for (gint64 i = 0; i < rows; i++)
    for (gint64 j = 0; j < cols; j++) put(type, to, trans ? j * ld + i : i * ld + j, value[i * cols + j]);
}

static void problem_make(Problem *p, MsBlasType type, gint64 m, gint64 n, gint64 k, int most, guint32 *seed) {
  static const double alpha[] = {1, -2, 0.5}, beta[] = {0, 1, -0.5};
  const double whole = type == MS_BLAS_INT8 ? 2 : 1; /* no halves */
  guint32 kind = next(seed);
  MsGemm *g = &p->gemm;
  *g = (MsGemm){.type = type, .m = m, .n = n, .k = k, .a = p->a, .b = p->b, .c = p->c};
  g->trans_a = kind & 1;
  g->trans_b = kind >> 1 & 1;
  g->alpha = alpha[(kind >> 2) % 3] * whole;
  g->beta = beta[(kind >> 4) % 3] * whole;
  int pad = kind >> 6 & 1 ? 1 + (int)(kind >> 7) % PAD : 0;
  g->lda = (g->trans_a ? m : k) + pad;
  g->ldb = (g->trans_b ? k : n) + pad / 2;
  g->ldc = n + pad / 3;
  for (gint64 i = 0; i < m * k; i++) p->a_value[i] = (int)(next(seed) % (guint32)(2 * most + 1)) - most;
  for (gint64 i = 0; i < k * n; i++) p->b_value[i] = (int)(next(seed) % (guint32)(2 * most + 1)) - most;
  for (gint64 i = 0; i < m * n; i++) p->c_value[i] = (int)(next(seed) % (guint32)(2 * most + 1)) - most;
  for (gint64 i = 0; i < m * k && most == 127; i += 5) p->a_value[i] = -128; /* whose sums need the most bits */
  for (gint64 i = 0; i < k * n && most == 127; i += 3) p->b_value[i] = -128;
  operand(type, p->a, g->lda, p->a_value, m, k, g->trans_a);
  operand(type, p->b, g->ldb, p->b_value, k, n, g->trans_b);
}

static void expect(const Problem *p, const MsLcmaPlan *plan) {
  const MsGemm *g = &p->gemm;
  MsBlasType out = c_type(g);
  for (gint64 i = 0; i < g->m; i++)
    for (gint64 j = 0; j < g->ldc; j++) {
      double got = get(out, p->c, i * g->ldc + j);
      if (j >= g->n) {
        if (!untouched(out, got)) fail_msg("%s: written beyond C, row %d", plan->name, (int)i);
        continue;
      }
      int sum = 0;
      for (gint64 l = 0; l < g->k; l++) sum += p->a_value[i * g->k + l] * p->b_value[l * g->n + j];
      double want = g->alpha * sum + g->beta * p->c_value[i * g->n + j];
      if (got != want)
        fail_msg("%s, %s, %s m %d n %d k %d trans %d%d alpha %g beta %g, element %d %d: %g, not %g",
                 ms_vector_words[plan->unit], plan->name, ms_blas_type_words[g->type], (int)g->m, (int)g->n, (int)g->k,
                 g->trans_a, g->trans_b, g->alpha, g->beta, (int)i, (int)j, got, want);
    }
}

static void run(Problem *p, const MsLcmaPlan *plan, MsTeam *team) {
  static char *room;
  static size_t room_B;
  MsGemm *g = &p->gemm;
  operand(c_type(g), p->c, g->ldc, p->c_value, g->m, g->n, FALSE);
  if (g->beta == 0) memset(p->c, 0xff, sizeof p->c); /* must not be read */
  size_t needed_B = ms_lcma_workspace_B(plan, g), whole_B = needed_B + CANARY_B;
  if (whole_B > room_B) {
    g_free(room);
    room = g_aligned_alloc(1, whole_B, 64);
    room_B = whole_B;
  }
  memset(room, 0xff, whole_B);
  ms_lcma_execute(plan, ms_blas_open(NULL, NULL), team, room, g, NULL);
  for (size_t i = needed_B; i < whole_B; i++)
    if ((guint8)room[i] != 0xff) fail_msg("%s: byte %zu behind the workspace was written", plan->name, i - needed_B);
  expect(p, plan);
}

static void each_unit(Problem *p, int plan, MsTeam *team) {
  for (int unit = 0; unit < MS_VECTORS; unit++) {
    if (!ms_vector_has((MsVector)unit)) continue;
    plan_at[plan]->unit = (MsVector)unit;
    if (ms_lcma_plan_runs(plan_at[plan], p->gemm.type)) run(p, plan_at[plan], team);
  }
}

/* Each shape with one plan, and float and double in turn; the quick tier takes every 61st shape. */
static void test_all_shapes(void **state) {
  (void)state;
  static Problem p;
  MsTeam *team = ms_team_new(1);
  guint32 seed = 7;
  const int step = ms_by_tier(61, 1);
  for (int shape = 0; shape < MOST * MOST * MOST; shape += step)
    for (int turn = 0; turn < 2; turn++) {
      int plan = (int)(next(&seed) % PLANS), most = most_at[plan][turn];
      if (most == 0) continue;
      MsBlasType type = turn ? MS_BLAS_F64 : next(&seed) % 4 ? MS_BLAS_F32 : MS_BLAS_BF16;
      if (plan_at[plan]->in_bf16) type = MS_BLAS_BF16;
      if (plan_at[plan]->bits) type = MS_BLAS_INT8;
      problem_make(&p, type, 1 + shape % MOST, 1 + shape / MOST % MOST, 1 + shape / MOST / MOST, most, &seed);
      each_unit(&p, plan, team);
    }
  ms_team_free(team);
}

/* One side of 41 to 600: sums reach from one slab or panel into the next, and buffers end where they are told to. */
static void test_long_sides(void **state) {
  (void)state;
  static Problem p;
  MsTeam *team = ms_team_new(1);
  guint32 seed = 13;
  for (int i = 0, count = ms_by_tier(200, 6000); i < count; i++) {
    int plan = (int)(next(&seed) % PLANS), type = (int)(next(&seed) % MS_BLAS_TYPES), side = i % 3;
    if (plan_at[plan]->in_bf16) type = MS_BLAS_BF16;
    if (plan_at[plan]->bits) type = MS_BLAS_INT8;
    int most = most_at[plan][type == MS_BLAS_F64], size[3];
    if (most == 0) continue;
    for (int d = 0; d < 3; d++)
      size[d] = 1 + (int)(d == side ? MOST + next(&seed) % (LONG - MOST) : next(&seed) % MOST);
    problem_make(&p, (MsBlasType)type, size[0], size[1], size[2], most, &seed);
    each_unit(&p, plan, team);
  }
  ms_team_free(team);
}

/* Every plan in both types at the widths where panels, groups and edges of vectors meet, with one product at a time. */
static void test_edges(void **state) {
  (void)state;
  static const int sizes[] = {1, 4, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40};
  static Problem p;
  MsTeam *team = ms_team_new(2);
  guint32 seed = 11;
  for (int plan = 0; plan < PLANS; plan++)
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i += (size_t)ms_by_tier(3, 1))
      for (int type = 0; type < MS_BLAS_ALL; type++) {
        int most = most_at[plan][type == MS_BLAS_F64];
        if (most == 0) continue;
        problem_make(&p, (MsBlasType)type, sizes[next(&seed) % G_N_ELEMENTS(sizes)], sizes[i],
                     sizes[next(&seed) % G_N_ELEMENTS(sizes)], most, &seed);
        each_unit(&p, plan, team);
        ms_lcma_plan_fit(plan_at[plan], &p.gemm, 0);
        each_unit(&p, plan, team);
        ms_lcma_plan_fit(plan_at[plan], &p.gemm, G_MAXSIZE);
      }
  ms_team_free(team);
}

static void test_units(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autofree char *before = g_strdup(g_getenv("MOESIM_VECTOR"));
  for (int unit = 0; unit < MS_VECTORS; unit++) {
    g_setenv("MOESIM_VECTOR", ms_vector_words[unit], TRUE);
    if (!ms_vector_has((MsVector)unit)) assert_false(ms_vector_check(NULL));
    else {
      assert_true(ms_vector_check(NULL));
      assert_int_equal(ms_vector(), unit);
      g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new("strassen", NULL);
      assert_int_equal(plan->unit, unit);
    }
  }
  g_setenv("MOESIM_VECTOR", "avx1024", TRUE);
  assert_false(ms_vector_check(&error));
  assert_int_equal(error->code, MS_ERROR_USAGE);
  assert_non_null(strstr(error->message, "avx1024"));
  assert_true(ms_vector_has(ms_vector()));
  if (before) g_setenv("MOESIM_VECTOR", before, TRUE);
  else g_unsetenv("MOESIM_VECTOR");
}

int main(void) {
  for (int i = 0; i < PLANS; i++) {
    plan_at[i] = ms_lcma_plan_new(names[i], NULL);
    most_at[i][0] = exact_magnitude(plan_at[i], 1 / (double)FLT_EPSILON);
    most_at[i][1] = exact_magnitude(plan_at[i], 1 / DBL_EPSILON);
    if (plan_at[i]->bits) most_at[i][0] = most_at[i][1] = 127; /* exact whatever comes between */
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_shapes), cmocka_unit_test(test_long_sides),
                                     cmocka_unit_test(test_edges), cmocka_unit_test(test_units)};
  int status = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < PLANS; i++) ms_lcma_plan_free(plan_at[i]);
  return status;
}
