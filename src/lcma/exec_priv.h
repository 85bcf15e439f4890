/* src/lcma/exec_priv.h - what plan.c and exec.c share. */
#ifndef MS_LCMA_EXEC_PRIV_H
#define MS_LCMA_EXEC_PRIV_H

#include "lcma/exec.h"
#include "lcma/kernel.h"

enum {
  MS_CHUNK_B = 32 * 1024, /* of all operands of a chunk together */
  MS_CHUNK_LEAST = 64     /* elements */
};

typedef struct { /* one stage of one multiplication: sizes of its blocks and buffers */
  MsLcmaBlock block;
  size_t real_B;          /* of an element of a buffer */
  const MsKernel *kernel; /* of the sums */
  const MsKernel *merge;  /* of the combinations of products */
  const MsKernel *tiles;  /* of the products where `packs` */
  gboolean packs;         /* FALSE: products by the library or the next stage */
  MsPacked packed;        /* with `packs`: the layout of S and T */
  size_t a_stride_B, b_stride_B, c_stride_B;
  gboolean copy_a, copy_b; /* products of a single block need a buffer too */
  int a_buffers, b_buffers;
} MsStageSize;

/* Blocks and buffers of the operands that a stage of the plan multiplies. */
MsStageSize ms_stage_size(const MsLcmaPlan *plan, int stage, const MsGemm *gemm);
MsGemm ms_inner_gemm(const MsStageSize *size,
                     const MsGemm *gemm); /* the multiplication of one product, without its operands */
/* Elements from row to row of a buffer: whole groups of MS_COMBINE_ALIGN, and no multiple of a page. */
gint64 ms_lcma_ld(gint64 cols, size_t real_B);

#endif
