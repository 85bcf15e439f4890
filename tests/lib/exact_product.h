/* tests/lib/exact_product.h - products of small integers, whose sums are exact in every type, so that a wrong element
 * cannot hide under a tolerance. */
#ifndef MS_TESTS_EXACT_PRODUCT_H
#define MS_TESTS_EXACT_PRODUCT_H

#include "lcma/exec.h"

/* Two sides are at most SHORT, or one and another LONG. */
enum { MS_EXACT_SHORT = 40, MS_EXACT_LONG = 600, MS_EXACT_PAD = 19 };
enum { MS_EXACT_ROOM = (MS_EXACT_SHORT + MS_EXACT_PAD) * (MS_EXACT_LONG + MS_EXACT_PAD) };

typedef struct {
  MsGemm gemm;
  int a_value[MS_EXACT_SHORT * MS_EXACT_LONG], b_value[MS_EXACT_SHORT * MS_EXACT_LONG],
      c_value[MS_EXACT_SHORT * MS_EXACT_LONG];                 /* m x k, k x n, m x n */
  double a[MS_EXACT_ROOM], b[MS_EXACT_ROOM], c[MS_EXACT_ROOM]; /* room for any type */
} MsExactProblem;

guint32 ms_exact_random(guint32 *seed); /* 24 bits, the same everywhere */

/* Largest |element| of A, B and C with which everything that `plan` computes in `type` is exact; 0: none. */
int ms_exact_magnitude(const MsLcmaPlan *plan, MsBlasType type);

/* Drawn from the seed: transposes, leading dimensions, alpha and beta, elements of at most `most`. At most one of m, n,
 * k is above MS_EXACT_SHORT, and none above MS_EXACT_LONG. */
void ms_exact_problem(MsExactProblem *p, MsBlasType type, gint64 m, gint64 n, gint64 k, int most, guint32 *seed);

/* NULL, or what is wrong: an element of C, what lies between its rows, what lies behind the workspace. From one thread
 * at a time. (transfer full) */
char *ms_exact_run(MsExactProblem *p, const MsLcmaPlan *plan, MsTeam *team);

#endif
