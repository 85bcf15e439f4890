/* src/lcma/measure.h - the rates of this machine, measured in some seconds.
 *
 * Library: seconds = c0 mnk + c1 mn + c2 mk + c3 kn (docs/theory/fast-matmul.md 3: what a blocked multiplication reads
 * and packs), non-negative relative least squares on some shapes. Products: MS_PRODUCT_* below. Passes: the rates of
 * decide.h; the caches they know are those that fit best. The shapes are uneven as any are: where rows of blocks end
 * within a cache line passes are slower. All from the least of several passes, in each of which the library and the
 * plans take turns at every shape, so that what slows the machine for a while slows all; runs in which others had the
 * CPUs are done again. On the given number of threads, because that is how they will run: on one thread by CPU time,
 * which other programs disturb less, on several by wall time, since threads wait for each other. */
#ifndef MS_LCMA_MEASURE_H
#define MS_LCMA_MEASURE_H

#include "lcma/decide.h"
#include "lcma/kernel.h"

/* With a side below this the library multiplies at once, and nothing is measured: blocks are hardly larger than the
 * tiles of a kernel, and deciding would cost more than it saves. */
#define MS_LCMA_LEAST_SIDE 128

enum { MS_LIBRARY_RATES = 4 };
enum {                            /* rates of products, seconds of one of these */
       MS_PRODUCT_MULTIPLICATION, /* n in half tiles */
       MS_PRODUCT_C,              /* an element of C in a slab of k */
       MS_PRODUCT_A,              /* an element of A */
       MS_PRODUCT_B,              /* an element of B, as often as rows that stay near pass over it */
       MS_PRODUCT_PIECE,          /* a product, or a piece of one that threads share */
       MS_PRODUCT_SHARED, /* a multiplication in a product that threads share: they read the same B and wait for each
                             other */
       MS_PRODUCT_FAR,    /* an element of C that left the second-level cache between two slabs */
       MS_PRODUCT_BEYOND, /* a byte of the operands that is more than product_cache_B */
       MS_PRODUCT_RATES
};

typedef struct {
  MsBlasType type;
  int threads;
  const MsKernel *kernel; /* of the products */
  gboolean by_library; /* the library is faster at products even though it packs anew: an old unit, or a forced one */
  double library[MS_LIBRARY_RATES], product[MS_PRODUCT_RATES], product_cache_B;
  double error; /* root mean square of the relative errors of all plans' times on the shapes that were measured */
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

/* Non-negative coefficients x that make sum over rows of ((row . x) / target - 1)^2 least, which it returns. rows: n x
 * width, width <= 8. */
double ms_fit_rates(const double *rows, const double *target, int n, int width, double *x);

#endif
