/* src/lcma/scheme.h - bilinear schemes that multiply matrices with fewer products than the definition.
 *
 * A scheme <m,k,n;r> multiplies an m x k matrix A of blocks by a k x n matrix B of blocks with r products of blocks:
 *   S_r = sum U[r][i,l] A_il,  T_r = sum V[r][l,j] B_lj,  P_r = S_r T_r,  C_ij = sum_r W[r][i,j] P_r.
 * It is right exactly when Brent's equations hold: sum_r U[r][a] V[r][b] W[r][c] is 1 where A_a B_b is a term of C_c,
 * else 0 (Brent 1970). Coefficients are rational: whole numbers over one denominator for each of U, V, W. The table of
 * schemes is scheme_data.c; others follow from it by permuting the three sizes and by tensor products. */
#ifndef MS_LCMA_SCHEME_H
#define MS_LCMA_SCHEME_H

#include <glib.h>

typedef struct { /* as written down; ends with a NULL name */
  const char *name;
  int m, k, n, r;
  const char *source;
  const char *text; /* r lines "(a11 + 1/2 a12)(-b21) -> c11 - c12\n" */
} MsSchemeText;
extern const MsSchemeText ms_scheme_texts[];

typedef struct {
  int rows, cols;  /* r and the number of blocks */
  int denominator; /* > 0 */
  int *numerator;  /* rows x cols */
  int nonzeros;
} MsCoefficients;

typedef struct {
  char *name; /* "strassen", "3x2x4", "strassen*strassen" */
  int m, k, n, r;
  int levels;             /* schemes of the table multiplied into it */
  MsCoefficients u, v, w; /* r x mk, r x kn, r x mn; blocks row-major */
} MsScheme;

/* Parses one row. NULL and an MS_ERROR_INPUT that names the line. Does not prove the scheme right. (transfer full) */
MsScheme *ms_scheme_parse(const MsSchemeText *text, GError **error);
/* A scheme by name: a name of the table, "MxKxN" for the table's scheme of that shape in any order of the sizes (3x2x2
 * from 2x2x3), or several of them joined by "*" for their tensor product ("strassen*strassen" is <4,4,4;49>). NULL and
 * an MS_ERROR_USAGE when unknown or when the product has more than MS_SCHEME_PRODUCTS products or blocks. (transfer
 * full) */
MsScheme *ms_scheme_new(const char *name, GError **error);
enum { MS_SCHEME_PRODUCTS = 512 };
void ms_scheme_free(MsScheme *scheme);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsScheme, ms_scheme_free)

/* The same algorithm for <k,n,m> (by the cyclic symmetry of the trace) and for <n,k,m> (by transposing). (transfer
 * full) */
MsScheme *ms_scheme_rotated(const MsScheme *scheme);
MsScheme *ms_scheme_transposed(const MsScheme *scheme);

/* Growth of the rounding error of one application, relative to the definition: max over C_ij of sum_r |W| ||U_r||_1
 * ||V_r||_1, divided by k. 1 for the definition, 6 for Strassen's (12 for <2,2,2> over k = 2). Source: Bini, Lotti
 * 1980; Ballard et al. 2016. */
double ms_scheme_growth(const MsScheme *scheme);

static inline double ms_coefficient(const MsCoefficients *c, int row, int col) {
  return (double)c->numerator[row * c->cols + col] / c->denominator;
}

#endif
