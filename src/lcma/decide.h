/* src/lcma/decide.h - which plan for a shape on a machine: FLOP saved against bytes added.
 *
 * Pure: a machine is a few functions and rates. Seconds of a plan of one stage <m,k,n;r> on blocks of bm x bk, bk x bn,
 * bm x bn (after Huang et al., arXiv 1611.01120, with the terms of streamed sums and merged products instead of fused
 * ones):
 *   split     A read once + r bm bk written, the same for B, a second a byte each; a term is an element of nnz(U) bm bk
 *   multiply  r products of a block, which several threads take at a time
 *   merge     r bm bn read + C written, read first when beta is not 0; nnz(W) bm bn terms
 * Split and merge have a start, and their pieces (what one call of the kernel writes) one too; what they move beyond a
 * cache costs more. The rates of each are those of MS_SPLIT_* and MS_MERGE_*. An
 * inner stage stands in for product_s. A limit of the workspace cuts the products into g groups: A and B are then read,
 * and C read and written, g times. Where the machine is a GPU
 * whose rates are known, a generated kernel (source.h) that forms the sums while it loads tiles is a candidate of each
 * scheme too, with the name ":fused" behind it: seconds = launch + max(waves x the slower of a thread group's
 * multiplications and of its loads from the last-level cache (nnz(U) / r tiles of A and nnz(V) / r of B for each
 * product), bytes that are left for device memory / its bandwidth). Waves are whole: thread groups over SMs times what
 * fits on one. Products are shared among thread groups where that is faster. The library is one more candidate, and
 * wins unless a plan with `doubt` more for its sums and merge is faster by `margin`. */
#ifndef MS_LCMA_DECIDE_H
#define MS_LCMA_DECIDE_H

#include "lcma/exec.h"
#include "lcma/source.h"

#define MS_LCMA_MARGIN 1.03 /* of a profile: a predicted gain below this is within its error, */
#define MS_LCMA_DOUBT \
  0.2                    /* and so is this share of the time of sums and merge: memory is less steady than arithmetic */
#define MS_LCMA_TIE 1.01 /* of plans that differ by less, the one with the least growth of the error is taken */

typedef struct { /* a GPU, for generated kernels */
  MsGpuType type;
  double sms, flops, hbm_Bps, l2_Bps; /* 0 SMs: no such candidates; flops: what its products reach; l2: of all SMs */
  double launch_s;
} MsLcmaDevice;

enum {                   /* rates of a split: seconds of one of these */
       MS_SPLIT_READ,    /* a byte of A or B */
       MS_SPLIT_A,       /* a byte of a sum of A */
       MS_SPLIT_B,       /* a byte of a sum of B */
       MS_SPLIT_TERM,    /* an element of a block in a sum */
       MS_SPLIT_A_PIECE, /* a row of a sum of A, as far as a pass writes it at a time */
       MS_SPLIT_B_PIECE, /* the same of B */
       MS_SPLIT_START,   /* a pass over A and B */
       MS_SPLIT_BEYOND,  /* a byte read or written that is more than split_cache_B */
       MS_SPLIT_RATES
};
enum {                  /* rates of a merge */
       MS_MERGE_READ,   /* a byte of the products */
       MS_MERGE_C,      /* a byte of C, read or written */
       MS_MERGE_TERM,   /* an element of a product in a block of C */
       MS_MERGE_PIECE,  /* a row of a block of C, ms_lcma_chunk columns of it */
       MS_MERGE_START,  /* a pass */
       MS_MERGE_BEYOND, /* a byte of the products that is more than merge_cache_B */
       MS_MERGE_RATES
};

typedef struct { /* what the model needs of a scheme; those of tensor products multiply */
  int m, k, n, r;
  double nnz_u, nnz_v, nnz_w;
} MsLcmaCounts;

typedef struct {
  const void *data; /* of the two functions */
  double (*library_s)(const void *data, double m, double n,
                      double k); /* one multiplication by the library on the whole machine */
  double (*product_s)(const void *data, double m, double n, double k,
                      double count); /* `count` products of one group on the whole machine */
  double split[MS_SPLIT_RATES], merge[MS_MERGE_RATES], split_cache_B, merge_cache_B;
  double slab_B;                    /* of a row of a sum of A that is written in one piece; 0: the row */
  double input_B, sum_B, product_B; /* of an element of A and B, of a sum, of a product and of C */
  double least_side;                /* with a side below the library is kept: what a call costs beside its passes */
  double margin, doubt;             /* as MS_LCMA_MARGIN and MS_LCMA_DOUBT; a measured machine has less of both */
  MsLcmaDevice device;
} MsLcmaMachine;

typedef struct {
  double m, n, k;
  gboolean beta;  /* C is read */
  double limit_B; /* of the workspace; 0: none */
} MsLcmaShape;

typedef struct {
  char *plan; /* for ms_lcma_plan_new, or with ":fused" */
  int levels;
  double time_s, split_s, multiply_s, merge_s;
  double workspace_B;
  int groups;    /* of the outermost stage; of a generated kernel, thread groups that share the products of a tile */
  double growth; /* of the rounding error over the definition's, ms_lcma_plan_growth */
  double flop;   /* of the products */
} MsLcmaChoice;

/* What split[] and merge[] are seconds of, for a stage of blocks bm x bk and bk x bn in `groups` groups of products. */
void ms_lcma_rows(const MsLcmaMachine *machine, const MsLcmaCounts *scheme, const MsLcmaShape *shape, double bm,
                  double bn, double bk, double groups, double *split, double *merge);

/* All candidates, the chosen one first, the others by time. (transfer full): GPtrArray of MsLcmaChoice. Never empty:
 * the library is always there. */
GPtrArray *ms_lcma_decide(const MsLcmaMachine *machine, const MsLcmaShape *shape);
const MsLcmaChoice *ms_lcma_choice_of(const GPtrArray *choices, const char *plan); /* NULL when it is not among them */

#endif
