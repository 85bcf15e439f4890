/* src/logs/trace.h - profiles of a GPU, read kernel by kernel; what wrote them is known by their content:
 *
 *   kineto   the PyTorch profiler: Chrome's trace format, {"traceEvents": [...]} or the list alone. Kernels are
 * complete events ("ph": "X") of the categories kernel, gpu_memcpy and gpu_memset; operators of the host count where
 *            they recorded the shapes of a matrix product.
 *   nsys     Nsight Systems: the SQLite file of `nsys export --type sqlite`, or the table of `nsys stats --report
 *            cuda_gpu_trace --format csv`.
 *   rocprof  ROCm: kernel_trace.csv of rocprofv3, the database of rocpd, results.csv of rocprof.
 *   msprof   CANN: op_summary_*.csv of msprof, kernel_details.csv of torch_npu; shapes of products are in them.
 *
 * JSON and CSV may be gzip and of any size: the file goes by once, of every kernel 32 bytes are kept. Of a file that
 * was cut what is whole counts.
 *
 * Steps are marks: ProfilerStep# of the PyTorch profiler, the GPU's own where it wrote them, else the host's; ranges of
 * NVTX that are called step, iteration or alike; the column "Step Id". Where there is none, a step ends with its
 * optimizer; without optimizer all is one step. A kernel belongs to the step in which it began, one before the first or
 * behind the last mark to the nearest. All times are of one rank: clocks of several files are never compared; of a
 * profile of several GPUs or ranks one counts. */
#ifndef MS_LOGS_TRACE_H
#define MS_LOGS_TRACE_H

#include "logs/kernels.h"
#include "logs/reader.h"

typedef struct {
  gint64 start_ns, length_ns;
  guint32 name;   /* index into names */
  guint32 link;   /* reading: the operator that launched it; then index + 1 into shapes, 0: not known */
  guint32 grid;   /* the same for launches of as many blocks; 0: not known */
  guint16 stream; /* index into streams */
  gint16 step;
} MsTraceKernel;

typedef struct {
  char *name;
  int family, class_index; /* of the kernel table, -1: no family knows it */
} MsTraceName;

typedef struct { /* of a matrix product C[m,n] = A[m,k] B[k,n], `groups` of them */
  double groups, m, n, k;
  char dtype[8]; /* "bf16" */
} MsTraceShape;

typedef struct {
  gint64 device;    /* tells the GPUs of a file apart, in order */
  gint64 number;    /* as the file calls it */
  const char *word; /* in place of the number; NULL */
} MsTraceStreamId;

typedef struct {
  gint64 start_ns, end_ns;
  gint64 number; /* of its mark; 0 */
} MsTraceStep;

typedef struct { /* a collective whose size the profiler recorded */
  guint32 name;  /* of its kernel */
  double bytes_B, length_ns;
  int ranks;
} MsTraceMessage;

typedef enum { MS_TRACE_KINETO, MS_TRACE_NSYS, MS_TRACE_ROCPROF, MS_TRACE_MSPROF, MS_N_TRACE_FORMS } MsTraceForm;
extern const char *const ms_trace_words[]; /* kineto, nsys, ...; ends with NULL */

typedef struct {
  MsTraceForm form;
  char *file, *device;    /* "NVIDIA H800"; NULL: the file does not say */
  int rank, ranks;        /* -1, 0: the file does not say */
  double reference_flops; /* of moesim exec: what its reference kernel reached beside the steps; 0 */
  GArray *kernels;        /* MsTraceKernel, by start */
  GArray *names;          /* MsTraceName */
  GArray *shapes;         /* MsTraceShape */
  GArray *streams;        /* MsTraceStreamId */
  GArray *steps;          /* MsTraceStep, by start; at least one */
  GArray *messages;       /* MsTraceMessage */
  const char *steps_by;   /* "marks of the GPU", "marks of the host", "its optimizer", "nothing: all is one" */
} MsTrace;

/* Without kernels, steps and streams. (transfer full) */
MsTrace *ms_trace_new(const char *file);
/* `device`: which of the GPUs in the file, counted from 0 in their order; -1: the first, and a note says so. NULL and
 * *error when there is no kernel in it. What was repaired or left out goes to `notes`. (transfer full) */
MsTrace *ms_trace_load(const char *file, int device, const MsKernelTable *table, GPtrArray *notes, GError **error);
/* The same of JSON or CSV that a reader gives. (transfer full) */
MsTrace *ms_trace_read(MsReader *reader, const char *file, int device, const MsKernelTable *table, GPtrArray *notes,
                       GError **error);
void ms_trace_free(MsTrace *trace);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsTrace, ms_trace_free)

#endif
