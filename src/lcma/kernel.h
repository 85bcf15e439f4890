/* src/lcma/kernel.h - own product of packed operands, for CPUs with AVX-512 or AVX2.
 *
 * A library packs the operands of every product anew, which costs a tenth of the time at the sizes that schemes leave.
 * Here the pass that makes the sums writes them packed already. Depth k is cut into slabs of at most MS_KERNEL_ROW_B
 * bytes, equal but for the last: A: for each slab its m rows, MS_KERNEL_ROW_B apart; B: for each slab panels of `nr`
 * columns, each panel slab_k rows of nr elements. C is row-major. */
#ifndef MS_LCMA_KERNEL_H
#define MS_LCMA_KERNEL_H

#include <glib.h>

enum { MS_KERNEL_SLAB_B = 2048, MS_KERNEL_ROW_B = MS_KERNEL_SLAB_B + 64 };

typedef struct {
  const char *name;
  size_t real_B;
  int mr, nr; /* rows and columns of a tile; nr is two vectors */
  /* C (rows x vectors of half nr) = or += A B over k; `ahead` is the tile of A that comes next. By rows - 1 and vectors
   * - 1. */
  void (*const (*tile)[2])(gint64 k, const void *a, const void *b, void *c, gint64 ldc, gboolean add,
                           const void *ahead);
} MsKernel;

/* For elements of real_B bytes; NULL when this CPU has neither unit. */
const MsKernel *ms_kernel_for(size_t real_B);

typedef struct { /* slabs and sizes of packed operands of one product */
  gint64 m, n, k;
  gint64 slab_k; /* depth of all slabs but the last; a multiple of 16 */
  int slabs;
  gint64 a_row;                   /* elements from row to row of A */
  gint64 a_slab, b_panel, b_slab; /* elements from one to the next */
} MsPacked;
MsPacked ms_packed(const MsKernel *kernel, gint64 m, gint64 n, gint64 k);

/* Rows from `from` to `to` - 1 of C = A B, one thread. C has room for whole vectors at the end of its rows. */
void ms_kernel_multiply(const MsKernel *kernel, const MsPacked *packed, const void *a, const void *b, void *c,
                        gint64 ldc, gint64 from, gint64 to);

#endif
