/* src/lcma/measure.h - the rates of this machine, measured in about a second.
 *
 * Library: seconds = c0 mnk + c1 mn + c2 mk + c3 kn (docs/theory/fast-matmul.md 3: what a blocked multiplication reads
 * and packs), non-negative relative least squares on a dozen shapes. Products: c0 mnk (n in half tiles) + c1 mn slabs.
 * Passes: seconds a byte and seconds a term. All from the least of several interleaved passes, on the given number of
 * threads, because that is how they will run. */
#ifndef MS_LCMA_MEASURE_H
#define MS_LCMA_MEASURE_H

#include "lcma/decide.h"
#include "lcma/kernel.h"

/* On a CPU no scheme has ever gained with a side below this (crossover near 1300 for squares,
 * docs/theory/fast-matmul.md 3), and deciding would cost more than it saves. */
#define MS_LCMA_LEAST_SIDE 384

typedef struct {
  MsBlasType type;
  int threads;
  const MsKernel *kernel; /* of the products */
  gboolean by_library; /* the library is faster at products even though it packs anew: an old unit, or a forced one */
  double library[4], product[4];
  double residual; /* largest relative error of the library's fit on its own shapes */
  double elapsed_s;
  MsLcmaMachine machine; /* its data is this struct: do not move it */
} MsLcmaLocal;

/* The plan without a scheme: the library; of bfloat16 where it has none our own kernels, on numbers as they are or
 * widened; of int8 our own. */
const char *ms_lcma_plain(const MsBlas *blas, MsBlasType type);

/* What the names of schemes end with on this machine: "", ":library", or ":int16" for int8. */
const char *ms_lcma_suffix(const MsLcmaLocal *local);

/* (transfer full): g_free. `blas` must have the type, or float where the type is bfloat16. */
MsLcmaLocal *ms_lcma_measure(const MsBlas *blas, MsTeam *team, MsBlasType type);

/* Non-negative coefficients x that make sum over rows of ((row . x) / target - 1)^2 least. rows: n x width, width <= 8.
 */
void ms_fit_rates(const double *rows, const double *target, int n, int width, double *x);

#endif
