/* tests/lib/exact_product.c */
#include "lib/exact_product.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CANARY_B = 65536 }; /* behind the workspace */

guint32 ms_exact_random(guint32 *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* All intermediate values are whole multiples of 1 / (product of denominators), bounded by sums of magnitudes. */
int ms_exact_magnitude(const MsLcmaPlan *plan, MsBlasType type) {
  if (plan->bits) return 127; /* exact whatever comes between */
  const double mantissa = 1 / (type == MS_BLAS_F64 ? DBL_EPSILON : (double)FLT_EPSILON);
  double worst = 8 * MS_EXACT_LONG, whole = 4; /* alpha, beta and k; alpha may be a half, beta too */
  double growth = 1;
  for (int i = 0; i < plan->n_stages; i++) {
    const MsScheme *s = plan->scheme[i];
    worst *= ms_scheme_growth(s) * s->k;
    growth *= ms_scheme_growth(s); /* of sums, at most */
    whole *= (double)s->u.denominator * s->v.denominator * s->w.denominator;
  }
  const double most = plan->in_bf16 ? 256 / growth / whole : 9; /* bfloat16 holds whole numbers to 256 */
  return (int)MIN(sqrt(mantissa / worst / whole), MIN(most, 9));
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

void ms_exact_problem(MsExactProblem *p, MsBlasType type, gint64 m, gint64 n, gint64 k, int most, guint32 *seed) {
  static const double alpha[] = {1, -2, 0.5}, beta[] = {0, 1, -0.5};
  const double whole = type == MS_BLAS_INT8 ? 2 : 1; /* no halves */
  guint32 kind = ms_exact_random(seed);
  MsGemm *g = &p->gemm;
  *g = (MsGemm){.type = type, .m = m, .n = n, .k = k, .a = p->a, .b = p->b, .c = p->c};
  g->trans_a = kind & 1;
  g->trans_b = kind >> 1 & 1;
  g->alpha = alpha[(kind >> 2) % 3] * whole;
  g->beta = beta[(kind >> 4) % 3] * whole;
  int pad = kind >> 6 & 1 ? 1 + (int)(kind >> 7) % MS_EXACT_PAD : 0;
  g->lda = (g->trans_a ? m : k) + pad;
  g->ldb = (g->trans_b ? k : n) + pad / 2;
  g->ldc = n + pad / 3;
  for (gint64 i = 0; i < m * k; i++) p->a_value[i] = (int)(ms_exact_random(seed) % (guint32)(2 * most + 1)) - most;
  for (gint64 i = 0; i < k * n; i++) p->b_value[i] = (int)(ms_exact_random(seed) % (guint32)(2 * most + 1)) - most;
  for (gint64 i = 0; i < m * n; i++) p->c_value[i] = (int)(ms_exact_random(seed) % (guint32)(2 * most + 1)) - most;
  for (gint64 i = 0; i < m * k && most == 127; i += 5) p->a_value[i] = -128; /* whose sums need the most bits */
  for (gint64 i = 0; i < k * n && most == 127; i += 3) p->b_value[i] = -128;
  operand(type, p->a, g->lda, p->a_value, m, k, g->trans_a);
  operand(type, p->b, g->ldb, p->b_value, k, n, g->trans_b);
}

/* (transfer full) */
static char *wrong_element(const MsExactProblem *p, const MsLcmaPlan *plan) {
  const MsGemm *g = &p->gemm;
  MsBlasType out = c_type(g);
  for (gint64 i = 0; i < g->m; i++)
    for (gint64 j = 0; j < g->ldc; j++) {
      double got = get(out, p->c, i * g->ldc + j);
      if (j >= g->n && untouched(out, got)) continue;
      if (j >= g->n) return g_strdup_printf("%s: written beyond C, row %d", plan->name, (int)i);
      int sum = 0;
      for (gint64 l = 0; l < g->k; l++) sum += p->a_value[i * g->k + l] * p->b_value[l * g->n + j];
      double want = g->alpha * sum + g->beta * p->c_value[i * g->n + j];
      if (got != want)
        return g_strdup_printf("%s, %s, %s m %d n %d k %d trans %d%d alpha %g beta %g, element %d %d: %g, not %g",
                               ms_vector_words[plan->unit], plan->name, ms_blas_type_words[g->type], (int)g->m,
                               (int)g->n, (int)g->k, g->trans_a, g->trans_b, g->alpha, g->beta, (int)i, (int)j, got,
                               want);
    }
  return NULL;
}

char *ms_exact_run(MsExactProblem *p, const MsLcmaPlan *plan, MsTeam *team) {
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
    if ((guint8)room[i] != 0xff)
      return g_strdup_printf("%s: byte %zu behind the workspace was written", plan->name, i - needed_B);
  return wrong_element(p, plan);
}
