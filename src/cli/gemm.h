/* src/cli/gemm.h - what gemm.c asks of gemm_device.c. */
#ifndef MS_CLI_GEMM_H
#define MS_CLI_GEMM_H

#include "cli/cli.h"

typedef struct {
  const char *device, *scheme; /* word of ms_compute_words; NULL: strassen */
  int type, dialect, groups;   /* MsGpuType, MsDialect, at least 1 */
  gint64 m, n, k;
  int reps;
  gboolean json;
} MsGemmRequest;

int ms_cli_gemm_source(const MsGemmRequest *request);
/* `alone`: the scheme, else beside the definition and, for bf16 on CUDA, cuBLAS. */
int ms_cli_gemm_device(const MsGemmRequest *request, gboolean alone);

#endif
