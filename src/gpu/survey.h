/* src/gpu/survey.h - the list of measurements that calibrates a GPU, written as the tables that `moesim fit` reads.
 *
 *   NAME-gemm.csv         dtype,m,n,k,latency_us             forward products of training steps and a low-discrepancy
 * cloud around them NAME-train-gemm.csv   role,m,n,k,latency_us              the same layers forward, input gradient
 * and weight gradient NAME-copy.csv         op,bytes,latency_us                copies inside the device and inside its
 * last-level cache, bytes read and written together NAME-collectives.csv  op,num_gpus,bytes,latency_us       over 2, 4,
 * ... devices; no such table on a machine with one device NAME is the device's. Not measured: low-precision products (a
 * row of such a table holds the cast too), attention and expert kernels, which are libraries of their own: a profile
 * keeps those curves of its nearest relative. */
#ifndef MS_GPU_SURVEY_H
#define MS_GPU_SURVEY_H

#include "gpu/gpu.h"

typedef struct {
  gboolean quick; /* fewer shapes, shorter batches */
  gboolean progress;
} MsSurveyOptions;

typedef struct {
  char *file; /* written */
  int rows;
  char *best; /* one phrase: the highest rate seen */
} MsSurveyTable;

typedef struct {
  int n;
  MsSurveyTable *table;
  gboolean interrupted; /* Ctrl-C: the tables hold what was measured until then */
  int refused;          /* measurements that did not fit into the device's memory */
} MsSurvey;

/* Measures and writes into `folder` (made when it is not there). NULL and an MS_ERROR_ENV when the device fails or a
 * file cannot be written; what was measured before a failure is written. (transfer full) */
MsSurvey *ms_gpu_survey(MsGpu *gpu, const char *folder, const MsSurveyOptions *options, GError **error);
void ms_survey_free(MsSurvey *survey);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSurvey, ms_survey_free)

#endif
