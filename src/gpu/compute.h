/* src/gpu/compute.h - multiplication by generated kernels (lcma/source.h) on a device, through libraries loaded at run
 * time: CUDA (driver and NVRTC) or OpenCL. Nothing is needed at build time; $MOESIM_GPU_LIBRARIES names a folder to
 * look in first. Not thread safe. */
#ifndef MS_GPU_COMPUTE_H
#define MS_GPU_COMPUTE_H

#include "lcma/source.h"

typedef struct MsCompute MsCompute;
extern const char *const ms_compute_words[]; /* cuda opencl */

/* NULL and an MS_ERROR_ENV that says what is missing. `kind` is a word of ms_compute_words. */
MsCompute *ms_compute_open(const char *kind, int device, GError **error);
void ms_compute_close(MsCompute *compute); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCompute, ms_compute_close)
const char *ms_compute_device(const MsCompute *compute); /* as the driver calls it */
MsDialect ms_compute_dialect(const MsCompute *compute);

typedef struct { /* matrices in host memory, row-major; C is float, of int8 int */
  gint64 m, n, k;
  double alpha, beta;
  const void *a, *b;
  void *c;
  gint64 lda, ldb, ldc;
} MsComputeGemm;

/* A kernel compiled for the device, and a multiplication's matrices on it. */
typedef struct MsComputeKernel MsComputeKernel;
MsComputeKernel *ms_compute_kernel(MsCompute *compute, const MsScheme *scheme, const MsSourceOptions *options,
                                   GError **error);
void ms_compute_kernel_free(MsComputeKernel *kernel);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsComputeKernel, ms_compute_kernel_free)

/* C from A and B: copied to the device, multiplied `repeats` times (with beta != 0 each adds to the one before) and
 * copied back. `seconds` (repeats of them, may be NULL): of each multiplication, by events of the device. */
gboolean ms_compute_gemm(MsComputeKernel *kernel, const MsComputeGemm *gemm, int repeats, double *seconds,
                         GError **error);

#endif
