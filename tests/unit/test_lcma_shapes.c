/* tests/unit/test_lcma_shapes.c - small integers, whose products and sums are exact in every type, so that a wrong
 * element cannot hide under a tolerance: shapes from 1 to 40 in every dimension, and longer ones, on every vector unit
 * of this CPU, with all transposes, leading dimensions, alpha and beta, types and kinds of schemes. Nothing is written
 * beyond C or the workspace. */
#include <string.h>

#include "base/err.h"
#include "lib/close.h"
#include "lib/exact_product.h"
#include "lib/tier.h"

enum { MOST = MS_EXACT_SHORT, LONG = MS_EXACT_LONG };

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
                                    "definition:bf16",
                                    "strassen:bf16",
                                    "definition:int8",
                                    "definition:int16",
                                    "strassen:int16",
                                    "winograd:int16",
                                    "strassen*strassen:int16"};
enum { PLANS = G_N_ELEMENTS(names) };
static MsLcmaPlan *plan_at[PLANS];
static int most_at[PLANS][2]; /* largest |element| that stays exact in float, in double; 0: none does */

static void run(MsExactProblem *p, const MsLcmaPlan *plan, MsTeam *team) {
  g_autofree char *wrong = ms_exact_run(p, plan, team);
  if (wrong) fail_msg("%s", wrong);
}

static void each_unit(MsExactProblem *p, int plan, MsTeam *team) {
  for (int unit = 0; unit < MS_VECTORS; unit++) {
    if (!ms_vector_has((MsVector)unit)) continue;
    plan_at[plan]->unit = (MsVector)unit;
    if (ms_lcma_plan_runs(plan_at[plan], p->gemm.type)) run(p, plan_at[plan], team);
  }
}

/* Each shape with one plan, and float and double in turn; the quick tier takes every 127th shape. */
static void test_all_shapes(void **state) {
  (void)state;
  static MsExactProblem p;
  MsTeam *team = ms_team_new(1);
  guint32 seed = 7;
  const int step = ms_by_tier(127, 1);
  for (int shape = 0; shape < MOST * MOST * MOST; shape += step) {
    int turn = (int)(ms_exact_random(&seed) % 2), plan = (int)(ms_exact_random(&seed) % PLANS),
        most = most_at[plan][turn];
    if (most == 0) continue;
    MsBlasType type = turn ? MS_BLAS_F64 : ms_exact_random(&seed) % 4 ? MS_BLAS_F32 : MS_BLAS_BF16;
    if (plan_at[plan]->in_bf16) type = MS_BLAS_BF16;
    if (plan_at[plan]->bits) type = MS_BLAS_INT8;
    ms_exact_problem(&p, type, 1 + shape % MOST, 1 + shape / MOST % MOST, 1 + shape / MOST / MOST, most, &seed);
    each_unit(&p, plan, team);
  }
  ms_team_free(team);
}

/* One side of 41 to 600: sums reach from one slab or panel into the next, and buffers end where they are told to. */
static void test_long_sides(void **state) {
  (void)state;
  static MsExactProblem p;
  MsTeam *team = ms_team_new(1);
  guint32 seed = 13;
  for (int i = 0, count = ms_by_tier(80, 6000); i < count; i++) {
    int plan = (int)(ms_exact_random(&seed) % PLANS), type = (int)(ms_exact_random(&seed) % MS_BLAS_TYPES),
        side = i % 3;
    if (plan_at[plan]->in_bf16) type = MS_BLAS_BF16;
    if (plan_at[plan]->bits) type = MS_BLAS_INT8;
    int most = most_at[plan][type == MS_BLAS_F64], size[3];
    if (most == 0) continue;
    for (int d = 0; d < 3; d++)
      size[d] = 1 + (int)(d == side ? MOST + ms_exact_random(&seed) % (LONG - MOST) : ms_exact_random(&seed) % MOST);
    ms_exact_problem(&p, (MsBlasType)type, size[0], size[1], size[2], most, &seed);
    each_unit(&p, plan, team);
  }
  ms_team_free(team);
}

/* Every plan in both types at the widths where panels, groups and edges of vectors meet, with one product at a time. */
static void test_edges(void **state) {
  (void)state;
  static const int sizes[] = {1, 4, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40};
  static MsExactProblem p;
  MsTeam *team = ms_team_new(2);
  guint32 seed = 11;
  for (int plan = 0; plan < PLANS; plan++)
    for (size_t i = (size_t)ms_by_tier(plan % 13, 0); i < G_N_ELEMENTS(sizes); i += (size_t)ms_by_tier(13, 1))
      for (int type = 0; type < MS_BLAS_ALL; type++) {
        int most = most_at[plan][type == MS_BLAS_F64];
        if (most == 0) continue;
        ms_exact_problem(&p, (MsBlasType)type, sizes[ms_exact_random(&seed) % G_N_ELEMENTS(sizes)], sizes[i],
                         sizes[ms_exact_random(&seed) % G_N_ELEMENTS(sizes)], most, &seed);
        each_unit(&p, plan, team);
        if (!ms_lcma_plan_runs(plan_at[plan], p.gemm.type)) continue; /* not on the last unit: the widest one */
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
    most_at[i][0] = ms_exact_magnitude(plan_at[i], MS_BLAS_F32);
    most_at[i][1] = ms_exact_magnitude(plan_at[i], MS_BLAS_F64);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_shapes), cmocka_unit_test(test_long_sides),
                                     cmocka_unit_test(test_edges), cmocka_unit_test(test_units)};
  int status = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < PLANS; i++) ms_lcma_plan_free(plan_at[i]);
  return status;
}
