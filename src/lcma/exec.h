/* src/lcma/exec.h - runs a plan: schemes on blocks.
 *
 * A plan is a list of stages, outermost first; a stage is a scheme (perhaps a tensor product of several). One stage, on
 * its blocks: split    one pass over A writes every S_r that is not a block of A itself, past the caches; the same for
 * B and T_r; multiply each product by the next stage; in the last stage by our own kernel, whose packed operands the
 * split has written, or by the library; each product on one thread, several products side by side; merge    one pass
 * reads the P_r and writes C = alpha sum W P + beta C. Products are taken in groups: a group's S, T and P are all that
 * a stage keeps, so that a limit of the workspace sets the size of the group. Any size works: blocks that reach beyond
 * the matrix are filled with zeros while they are read and cut while they are written. With trans_a the blocks stay
 * transposed until the last stage, which transposes while it packs, or the library does. bfloat16 is widened while it
 * is read: sums and products are float. */
#ifndef MS_LCMA_EXEC_H
#define MS_LCMA_EXEC_H

#include "base/vector.h"
#include "blas/blas.h"
#include "lcma/kernel.h"
#include "lcma/scheme.h"
#include "lcma/team.h"

enum { MS_LCMA_STAGES = 3 };

typedef struct {
  char *name; /* "library", or stages joined by "/" as in "strassen/strassen*strassen", perhaps with ":library" for
                 by_library, ":bf16" for in_bf16, ":int8" or ":int16" for bits */
  int n_stages;
  MsScheme *scheme[MS_LCMA_STAGES];
  int group[MS_LCMA_STAGES]; /* products at a time, 1 to r */
  gboolean by_library;       /* the products too, instead of by our kernel */
  gboolean in_bf16;          /* sums are rounded to bfloat16 and multiplied as such; operands must be bfloat16 */
  int bits;                  /* of sums of int8, which are multiplied as such: 8 (no sums), 16; 0: another type */
  MsVector unit;             /* of sums and products; ms_vector() of a new plan */
} MsLcmaPlan;

/* NULL and an MS_ERROR_USAGE when a name is unknown or there are more than MS_LCMA_STAGES. Groups are whole. (transfer
 * full) */
MsLcmaPlan *ms_lcma_plan_new(const char *name, GError **error);
void ms_lcma_plan_free(MsLcmaPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsLcmaPlan, ms_lcma_plan_free)
/* FALSE: this CPU or the type has not what the plan asks for. int8 wants a plan of one stage with `bits` that hold its
 * sums, and no fractions. */
gboolean ms_lcma_plan_runs(const MsLcmaPlan *plan, MsBlasType type);
int ms_lcma_plan_levels(const MsLcmaPlan *plan);    /* schemes of the table in it, 0 for the library */
double ms_lcma_plan_growth(const MsLcmaPlan *plan); /* product of ms_scheme_growth; 1 for the library */

typedef struct { /* one multiplication, as in blas/blas.h; alpha and beta are rounded to the type of C;
                 of int8, C is int32 and they are whole */
  MsBlasType type;
  gboolean trans_a, trans_b;
  gint64 m, n, k;
  double alpha;
  const void *a;
  gint64 lda;
  const void *b;
  gint64 ldb;
  double beta;
  void *c;
  gint64 ldc;
} MsGemm;

/* Block sizes of stage `stage` when the whole is m x n x k: rounded up so that rows of blocks suit the vector unit. */
typedef struct {
  gint64 m, n, k;
} MsLcmaBlock;
MsLcmaBlock ms_lcma_block(const MsScheme *scheme, gint64 m, gint64 n, gint64 k);

/* Columns of a row of blocks, `operands` of them, that a pass takes at a time: they stay in the first-level cache. */
size_t ms_lcma_chunk(int operands, size_t real_B);

/* Pieces of `m` rows that a product is cut into for which the threads are too many: as many for each thread, of no more
 * rows than the kernel keeps near, so that smaller ones would read B more often. Without a kernel (the library
 * multiplies) one for each thread. */
int ms_lcma_pieces(const MsKernel *tiles, gint64 m, int threads);

/* Bytes that ms_lcma_execute needs beside its arguments, of a plan that runs (ms_lcma_plan_runs); pointers and strides
 * of `gemm` are not read. */
size_t ms_lcma_workspace_B(const MsLcmaPlan *plan, const MsGemm *gemm);
/* Makes groups as large as a workspace of limit_B allows, outermost first; FALSE when one product at a time is still
 * too large. */
gboolean ms_lcma_plan_fit(MsLcmaPlan *plan, const MsGemm *gemm, size_t limit_B);

typedef struct {
  double split_s, multiply_s, merge_s; /* of all stages but the products of outer ones, which are inner stages */
} MsLcmaPhases;                        /* by ms_team_clock_s */

/* Runs it on the team's threads. `phases`, if not NULL, gets its times added. `workspace` has ms_lcma_workspace_B
 * bytes, aligned to 64. A plan without stages is one call of the library with the team's number of threads. m, n, k
 * >= 1. */
void ms_lcma_execute(const MsLcmaPlan *plan, const MsBlas *blas, MsTeam *team, void *workspace, const MsGemm *gemm,
                     MsLcmaPhases *phases);

#endif
