#include "lcma/scale.h"

#include <math.h>
#include <string.h>

#include "lcma/kernel.h"

/* --- elements of any type -------------------------------------------------------------------------------------- */
static double get(MsBlasType type, const void *x, gint64 i) {
  if (type == MS_BLAS_F64) return ((const double *)x)[i];
  if (type == MS_BLAS_F32) return (double)((const float *)x)[i];
  float f;
  ms_widen_bf16(&f, (const guint16 *)x + i, 1);
  return (double)f;
}

static void put(MsBlasType type, void *x, gint64 i, double v) {
  float f = (float)v;
  guint32 bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == MS_BLAS_F64) ((double *)x)[i] = v;
  else if (type == MS_BLAS_F32) ((float *)x)[i] = f;
  else ((guint16 *)x)[i] = (guint16)(bits >> 16); /* a power of two changes no digit */
}

/* --- factors --------------------------------------------------------------------------------------------------- */
enum { MOST = 100 }; /* exponents beyond it would leave float */

/* 2^-e brings x to [1, 2); 0 for what has no size. */
static int exponent(double x) { return x > 0 && isfinite(x) ? CLAMP(ilogb(x), -MOST, MOST) : 0; }

/* Largest magnitude of each row and of each column of X = rows x cols, in row-major `x`. */
static void largest(MsBlasType type, const void *x, gint64 rows, gint64 cols, double *row, double *col) {
  for (gint64 i = 0; i < rows; i++)
    for (gint64 j = 0; j < cols; j++) {
      double v = fabs(get(type, x, i * cols + j));
      if (row) row[i] = MAX(row[i], v);
      if (col) col[j] = MAX(col[j], v);
    }
}

static void multiply(MsBlasType type, void *x, gint64 rows, gint64 cols, const int *row, const int *col) {
  for (gint64 i = 0; i < rows; i++)
    for (gint64 j = 0; j < cols; j++)
      put(type, x, i * cols + j, ldexp(get(type, x, i * cols + j), (row ? row[i] : 0) + (col ? col[j] : 0)));
}

/* op(X), rows x cols, without gaps. */
static void *copy(MsBlasType type, const void *x, gint64 ld, gboolean trans, gint64 rows, gint64 cols) {
  void *to = g_try_malloc((size_t)(rows * cols) * ms_blas_type_B(type));
  for (gint64 i = 0; i < rows && to; i++)
    for (gint64 j = 0; j < cols; j++) put(type, to, i * cols + j, get(type, x, trans ? j * ld + i : i * ld + j));
  return to;
}

/* Rows of A and columns of B to about one, then the common dimension so that both have the same size there. */
static void scale(MsScaled *s, void *a, void *b) {
  const MsGemm *g = &s->gemm;
  g_autofree double *row = g_new0(double, g->m), *col = g_new0(double, g->n), *a_depth = g_new0(double, g->k),
                    *b_depth = g_new0(double, g->k);
  g_autofree int *depth = g_new(int, g->k), *back = g_new(int, g->k);
  largest(g->type, a, g->m, g->k, row, NULL);
  largest(g->type, b, g->k, g->n, NULL, col);
  for (gint64 i = 0; i < g->m; i++) s->row[i] = -exponent(row[i]);
  for (gint64 j = 0; j < g->n; j++) s->col[j] = -exponent(col[j]);
  multiply(g->type, a, g->m, g->k, s->row, NULL);
  multiply(g->type, b, g->k, g->n, NULL, s->col);
  largest(g->type, a, g->m, g->k, NULL, a_depth);
  largest(g->type, b, g->k, g->n, b_depth, NULL);
  for (gint64 l = 0; l < g->k; l++) {
    depth[l] = a_depth[l] > 0 && b_depth[l] > 0 ? (exponent(b_depth[l]) - exponent(a_depth[l])) / 2 : 0;
    back[l] = -depth[l];
  }
  multiply(g->type, a, g->m, g->k, NULL, depth);
  multiply(g->type, b, g->k, g->n, back, NULL);
}

gboolean ms_scaled_make(MsScaled *s, const MsGemm *g) {
  void *a = copy(g->type, g->a, g->lda, g->trans_a, g->m, g->k),
       *b = copy(g->type, g->b, g->ldb, g->trans_b, g->k, g->n);
  size_t c_B = g->type == MS_BLAS_F64 ? 8 : 4;
  *s = (MsScaled){{.type = g->type,
                   .m = g->m,
                   .n = g->n,
                   .k = g->k,
                   .alpha = 1,
                   .a = a,
                   .lda = g->k,
                   .b = b,
                   .ldb = g->n,
                   .c = g_try_malloc((size_t)(g->m * g->n) * c_B),
                   .ldc = g->n},
                  g_new0(int, g->m),
                  g_new0(int, g->n)};
  if (!a || !b || !s->gemm.c) return FALSE;
  scale(s, a, b);
  return TRUE;
}

void ms_scaled_finish(const MsScaled *s, const MsGemm *g) {
  MsBlasType type = g->type == MS_BLAS_F64 ? MS_BLAS_F64 : MS_BLAS_F32;
  for (gint64 i = 0; i < g->m; i++)
    for (gint64 j = 0; j < g->n; j++) {
      double v = g->alpha * ldexp(get(type, s->gemm.c, i * g->n + j), -s->row[i] - s->col[j]);
      if (g->beta != 0) v += g->beta * get(type, g->c, i * g->ldc + j);
      put(type, g->c, i * g->ldc + j, v);
    }
}

void ms_scaled_release(MsScaled *s) {
  g_free((void *)s->gemm.a);
  g_free((void *)s->gemm.b);
  g_free(s->gemm.c);
  g_free(s->row);
  g_free(s->col);
}
