/* src/lcma/scale.h - diagonal scaling: A' = R A D, B' = inverse(D) B S, C = inverse(R) (A' B') inverse(S).
 *
 * Fast schemes are accurate relative to the largest elements of A and B. Where rows of A or columns of B differ by many
 * orders of magnitude, small elements of C lose their digits, which ordinary multiplication keeps. With R, S and D such
 * that rows of A', columns of B' and the common dimension are about equally large, they are kept (Ballard et al.,
 * arXiv 1507.00687, "outside-inside" scaling). All factors are powers of two: nothing is rounded, but for elements so
 * small beside their neighbours that they vanish. */
#ifndef MS_LCMA_SCALE_H
#define MS_LCMA_SCALE_H

#include "lcma/exec.h"

typedef struct {
  MsGemm gemm;    /* of the copies: alpha 1, beta 0, nothing transposed */
  int *row, *col; /* exponents that C's rows and columns are multiplied with */
} MsScaled;

/* Scaled copies of A and B and room for C. FALSE when there is not enough memory; release in both cases. */
gboolean ms_scaled_make(MsScaled *scaled, const MsGemm *gemm);
/* C of `gemm` from that of `scaled`: alpha C' + beta C, scaled back. */
void ms_scaled_finish(const MsScaled *scaled, const MsGemm *gemm);
void ms_scaled_release(MsScaled *scaled);

#endif
