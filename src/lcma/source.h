/* src/lcma/source.h - GPU kernels as source text, generated from the table of a scheme.
 *
 * One kernel is a whole multiplication C = alpha op(A) op(B) + beta C, row-major. A thread group owns the same tile of
 * every block of C and walks over the products: the sums of blocks of A and of B are formed while their tiles are
 * loaded into local memory, the product stays in registers, and what it adds to the blocks of C is added at its end, to
 * registers where all blocks of C fit there, else to C itself, which nobody else touches. So no sum goes through device
 * memory, nothing is atomic, and the result is the same in every run.
 *
 * With `groups` > 1 the products are shared by that many thread groups (the third dimension of the launch), for shapes
 * with too few tiles to fill the device: each adds up its own part of C, float or int32, in a buffer of groups x m x n,
 * and the kernel `merge` adds the parts.
 *
 * Sums are rounded to what the multipliers of the type take: tf32, bf16 and fp16 to their mantissa, with products in
 * float; int8 sums and products are whole numbers in int, so only schemes without fractions are possible. With `matrix`
 * (CUDA C; tf32, bf16, fp16) products use the matrix units (mma.sync), else ordinary multiply-add. */
#ifndef MS_LCMA_SOURCE_H
#define MS_LCMA_SOURCE_H

#include "lcma/scheme.h"

typedef enum { MS_DIALECT_CUDA, MS_DIALECT_HIP, MS_DIALECT_MUSA, MS_DIALECT_OPENCL, MS_DIALECTS } MsDialect;
extern const char *const ms_dialect_words[]; /* cuda hip musa opencl */

typedef enum { MS_GPU_F32, MS_GPU_TF32, MS_GPU_BF16, MS_GPU_FP16, MS_GPU_INT8, MS_GPU_TYPES } MsGpuType;
extern const char *const ms_gpu_type_words[]; /* f32 tf32 bf16 fp16 int8 */
size_t ms_gpu_type_B(MsGpuType type);         /* of an element of A and B; C has 4 bytes */

typedef struct {
  MsDialect dialect;
  MsGpuType type;
  gboolean trans_a, trans_b, matrix;
  int groups;         /* 1 to the number of products */
  int tile_m, tile_n; /* of C, for one thread group: 32, 64, 96 or 128; with `matrix` 64 or 128 */
  int tile_k;         /* 8, 16 or 32; with `matrix` 16 or 32 */
} MsSourceOptions;

enum { MS_SOURCE_THREADS = 256 }; /* of a thread group, in one dimension */
#define MS_SOURCE_KERNEL "lcma"
#define MS_SOURCE_MERGE  "merge"

/* Options that suit the scheme: the largest tile whose blocks of C fit into registers, one group. */
MsSourceOptions ms_source_options(const MsScheme *scheme, MsDialect dialect, MsGpuType type);
gboolean ms_source_in_registers(const MsScheme *scheme, const MsSourceOptions *options);

/* The source; NULL and an MS_ERROR_USAGE for fractions in int8 or options that are not as above. (transfer full)
 * Kernel `lcma`, launched with (tiles along n, tiles along m, groups) thread groups of a block of C:
 *   int m, n, k, float|int alpha, A, int lda, B, int ldb, float|int beta, C, int ldc, part
 * Kernel `merge` when groups > 1, one thread for each of m n elements:
 *   int m, n, float|int alpha, part, float|int beta, C, int ldc */
char *ms_source(const MsScheme *scheme, const MsSourceOptions *options, GError **error);

/* Thread groups along n and m. */
void ms_source_grid(const MsScheme *scheme, const MsSourceOptions *options, gint64 m, gint64 n, int grid[2]);

#endif
