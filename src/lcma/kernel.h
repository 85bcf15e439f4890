/* src/lcma/kernel.h - the arithmetic of one vector unit: products of packed operands, and linear combinations of rows.
 *
 * A library packs the operands of every product anew, which costs a tenth of the time at the sizes that schemes leave.
 * Here the pass that makes the sums writes them packed already. Depth k is cut into slabs of at most
 * ms_kernel_slab_B() bytes of a row, equal but for the last: A: for each slab its m rows, MS_KERNEL_ROW_B apart; B: for
 * each slab panels of `nr` columns, each panel slab_k rows of nr elements. C is row-major.
 *
 * Combinations are driven by the table of coefficients instead of being generated as one function per scheme: operands
 * of a chunk lie in the first-level cache, so that the loop over the terms costs a tenth of the time that the stores
 * take, and any scheme and any tensor product of schemes runs without code of its own.
 *
 * unit_real.h is the one description of both; unit_NAME.c gives it the vectors of a unit. Nothing of GLib here and
 * there: the units are compiled for other CPUs without it (make check-units). */
#ifndef MS_LCMA_KERNEL_H
#define MS_LCMA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* Rows of A are 17 or 34 cache lines apart: the 14 of a tile, of which 16 or 32 lines are in use, spread over the sets
 * of a first-level cache, and hardly any page is left half used. */
enum { MS_KERNEL_SLAB_B = 1024, MS_KERNEL_DEEP_SLAB_B = 2048 };
#define MS_KERNEL_ROW_B(slab_B) ((slab_B) + (slab_B) / 16)
enum { MS_COMBINE_ALIGN = 16 }; /* combinations handle elements in groups of 16; no vector is wider */

typedef struct {
  const char *name;
  size_t real_B;
  int mr, nr; /* rows and columns of a tile; nr is two vectors */
  /* C (rows <= mr, 1 or 2 vectors of half nr) = or += A B over k; `ahead` is the tile of A that comes next, `deep` says
   * that rows of both are those of MS_KERNEL_DEEP_SLAB_B. */
  void (*tile)(int rows, int vectors, int deep, int64_t k, const void *a, const void *b, void *c, int64_t ldc, int add,
               const void *ahead);
  /* What this thread does before its first tile and after its last; NULL: nothing. */
  void (*open)(void);
  void (*close)(void);
  /* out[i] = sum over t < terms of coefficient[t] * in[t][i] for i < n; terms >= 1, n a multiple of MS_COMBINE_ALIGN.
   * With `step` > 0 the result is cut into pieces of nr, which go `step` elements apart (panels of B). Without, where
   * `out` is none of the inputs, n may be anything from MS_COMBINE_ALIGN on. `stream`: the result goes past the caches,
   * `out` is none of the inputs, and with `step` it and that are aligned to 64 bytes; ms_kernel_fence before others
   * read it. */
  void (*combine)(void *out, size_t step, const void *const *in, const double *coefficient, int terms, size_t n,
                  int stream);
  /* Elements of the packed operands are `depth` numbers deep: 1, or 2 (bfloat16, 16 bits) or 4 (8 bits), which these
   * make of n floats of a sum: a row of A; row depth i + which of B, cut into pieces as above, `which` = 0 first. */
  int depth;
  void (*narrow_a)(void *out, const float *in, size_t n);
  void (*narrow_b)(void *out, size_t step, const float *in, size_t n, int which);
} MsKernel;

/* The kernel of a unit (MsVector) for elements of real_B bytes, 4 or 8; NULL when it was not built for this CPU. */
const MsKernel *ms_kernel_for(int unit, size_t real_B);
/* Products of bfloat16 with sums in float; NULL where the unit or this CPU has none. */
const MsKernel *ms_kernel_bf16(int unit);
/* Of whole numbers, exact modulo 2^32: products of 8 or 16 bits, combinations of 32; NULL where there are none. */
const MsKernel *ms_kernel_whole(int unit, int bits);

typedef struct { /* slabs and sizes of packed operands of one product; k counts packed elements */
  int64_t m, n, k;
  int64_t slab_k; /* depth of all slabs but the last; a multiple of 16 */
  int slabs;
  int deep;                        /* slabs are of MS_KERNEL_DEEP_SLAB_B */
  int64_t a_row;                   /* elements from row to row of A */
  int64_t a_slab, b_panel, b_slab; /* elements from one to the next; of B as many panels as whole groups fill */
} MsPacked;
/* How operands of m x k and k x n elements are packed; `deep`: in deep slabs. */
MsPacked ms_packed(const MsKernel *kernel, int deep, int64_t m, int64_t n, int64_t k);

/* Rows from `from` to `to` - 1 of C = A B, one thread. C has room for whole vectors at the end of its rows. */
void ms_kernel_multiply(const MsKernel *kernel, const MsPacked *packed, const void *a, const void *b, void *c,
                        int64_t ldc, int64_t from, int64_t to);
/* Whether slabs are deep here: where the second-level cache has 2 MiB. What a tile multiplies before it adds to C is a
 * slab of a row of A; deep ones read and write C less often, and leave room for fewer rows of A. */
int ms_kernel_deep(void);
int64_t ms_kernel_slab_B(void);
/* Rows of A that fill half of the second-level cache, a slab deep; panels of B and C pass through the other half. What
 * ms_kernel_multiply takes at a time: so often it reads B. */
int64_t ms_kernel_near(const MsKernel *kernel);
void ms_kernel_fence(void);

/* out[i] = in[i] for i < n, widened. */
void ms_widen_bf16(float *out, const uint16_t *in, size_t n);
void ms_widen_int8(float *out, const int8_t *in, size_t n);

#endif
