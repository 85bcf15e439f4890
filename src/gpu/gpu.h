/* src/gpu/gpu.h - the GPUs of this machine, through libraries loaded at run time.
 *
 * CUDA (runtime, cuBLAS, NCCL) and MUSA (runtime, muBLAS, MCCL) behind one table of symbols: the second copies the
 * names of the first with another prefix and, but for the words of transposition, its numbers. Nothing is needed at
 * build time. Libraries are looked for in $MOESIM_GPU_LIBRARIES (a folder) first, then where the loader looks.
 *
 * What is measured is what the curves of a profile describe: kernels alone, on random operands (zeros draw less power
 * and run faster), on buffers that do not fit into the last-level cache, by events of the device. Not thread safe. */
#ifndef MS_GPU_GPU_H
#define MS_GPU_GPU_H

#include <glib.h>

typedef struct MsGpu MsGpu;

typedef struct {
  char vendor[8]; /* "cuda", "musa" */
  char name[128]; /* as the driver calls it; "" when it does not say */
  int count;      /* devices visible */
  int device;     /* the one that is measured */
  int multiprocessors;
  double memory_B, cache_B; /* whole device memory, last-level cache */
  int runtime_version;      /* 12040 */
  gboolean has_collectives; /* a collective library was found and there are at least two devices */
} MsGpuInfo;

extern const char *const ms_gpu_vendor_words[]; /* cuda musa */

/* NULL and an MS_ERROR_ENV that says what was looked for and what is missing: no library, no device, a device that does
 * not answer. `vendor` NULL: the first of the table that answers. */
MsGpu *ms_gpu_open(const char *vendor, int device, GError **error);
void ms_gpu_close(MsGpu *gpu); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsGpu, ms_gpu_close)
const MsGpuInfo *ms_gpu_info(const MsGpu *gpu);

/* How long one call takes: calls are repeated until a batch lasts `batch_s`, and the median over `batches` batches is
 * returned. */
typedef struct {
  double batch_s;
  int batches;
} MsGpuProtocol;

typedef enum { MS_GPU_FORWARD /* C = A B^T */, MS_GPU_DGRAD /* A B */, MS_GPU_WGRAD /* A^T B */ } MsGpuGemmPass;
/* C[m,n] in BF16 with sums in FP32, both operands in memory as a training step has them in that pass; m, n, k of the
 * product. FALSE and an MS_ERROR_ENV when the device refuses (out of memory among others: the message says which call).
 */
gboolean ms_gpu_gemm(MsGpu *gpu, MsGpuGemmPass pass, int m, int n, int k, MsGpuProtocol protocol, double *seconds,
                     GError **error);
/* A copy inside the device: `bytes` read and as many written. */
gboolean ms_gpu_copy(MsGpu *gpu, double bytes, MsGpuProtocol protocol, double *seconds, GError **error);
/* The same between two pairs of buffers again and again, which a last-level cache of more than four times the bytes
 * holds. */
gboolean ms_gpu_cache_copy(MsGpu *gpu, double bytes, MsGpuProtocol protocol, double *seconds, GError **error);

typedef enum {
  MS_GPU_ALL_REDUCE,
  MS_GPU_ALL_GATHER,
  MS_GPU_REDUCE_SCATTER,
  MS_GPU_ALL_TO_ALL,
  MS_GPU_N_COLLECTIVES
} MsGpuCollective;
extern const char *const ms_gpu_collective_words[]; /* all_reduce all_gather reduce_scatter alltoall */
/* The first `ranks` devices, one process; `bytes` as nccl-tests count them (the whole buffer of the larger side). BF16.
 */
gboolean ms_gpu_collective(MsGpu *gpu, MsGpuCollective what, int ranks, double bytes, MsGpuProtocol protocol,
                           double *seconds, GError **error);

#endif
