/* src/report/trace_kineto.c - a simulated step in the form of the PyTorch profiler (Kineto), to be opened beside real
 * profiles and read by what reads those: kernels with stream and correlation, the host's launches, flow events between
 * them, marks of steps, distributedInfo. Process numbers are above those of any system. Host times are the engine's: it
 * issues the tasks of a device in their order, each for its launch time, and waits where a task says so. */
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "report/report.h"

enum { FIRST_PROCESS = 10000000, HOST_THREAD = 1, SLICE_OF_FLOW_PS = 1000000 };

typedef struct {
  const MsDetail *detail;
  const MsTrajectory *ran; /* of the rank */
  const MsKinetoOptions *options;
  const MsScenario *scenario;
  MsWriter *sink;
  GString *line;
  gsize written;
  guint64 correlation, left_out;
  double limit_B; /* of what is written by the end of this rank; 0: none */
  gboolean first, full;
} Writer;

static void put(Writer *w) {
  ms_writer_put(w->sink, w->line->str, w->line->len);
  w->written += w->line->len;
}

/* One event; FALSE: it would pass the limit, as one before it did. */
static gboolean put_event(Writer *w, MsJsonOut *out) {
  g_autofree char *text = g_strchomp(ms_json_out_take(out));
  g_string_printf(w->line, "%s%s", w->first ? "" : ",\n", text);
  w->full = w->full || (w->limit_B > 0 && (double)(w->written + w->line->len) > w->limit_B);
  if (w->full) {
    w->left_out++;
    return FALSE;
  }
  w->first = FALSE;
  put(w);
  return TRUE;
}

static double us(MsTime ps) { return (double)ps * 1e-6; }

static MsJsonOut *event(char phase, const char *category, const char *name, gint64 process, gint64 thread) {
  const char letter[2] = {phase, 0};
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "ph", letter);
  if (category) ms_json_out_string(out, "cat", category);
  ms_json_out_string(out, "name", name);
  ms_json_out_int(out, "pid", process);
  ms_json_out_int(out, "tid", thread);
  return out;
}

static MsJsonOut *span(const char *category, const char *name, gint64 process, gint64 thread, MsTime start,
                       MsTime end) {
  MsJsonOut *out = event('X', category, name, process, thread);
  ms_json_out_double(out, "ts", us(start));
  ms_json_out_double(out, "dur", us(end - start));
  ms_json_out_object(out, "args");
  return out;
}

/* Closes "args" and the event. */
static gboolean put_span(Writer *w, MsJsonOut *out) {
  ms_json_out_end(out);
  ms_json_out_end(out);
  return put_event(w, out);
}

static void put_name(Writer *w, const char *what, gint64 process, gint64 thread, const char *name) {
  MsJsonOut *out = event('M', NULL, what, process, thread);
  ms_json_out_object(out, "args");
  ms_json_out_string(out, "name", name);
  put_span(w, out);
}

static void put_flow(Writer *w, char phase, gint64 process, gint64 thread, MsTime at, guint64 correlation) {
  MsJsonOut *out = event(phase, "ac2g", "ac2g", process, thread);
  ms_json_out_double(out, "ts", us(at));
  ms_json_out_int(out, "id", (gint64)correlation);
  if (phase == 'f') ms_json_out_string(out, "bp", "e");
  ms_json_out_end(out);
  put_event(w, out);
}

/* --- one task -------------------------------------------------------------------------------------------------- */
typedef struct {
  int rank, device; /* of the node */
  gint64 gpu, host; /* processes */
  MsTime shift;     /* of the step */
  MsTime issued;    /* the host is busy until then */
} Rank;

static void put_dims(MsJsonOut *out, double a, double b) {
  ms_json_out_array(out, NULL);
  ms_json_out_double(out, NULL, a);
  ms_json_out_double(out, NULL, b);
  ms_json_out_end(out);
}

/* The operator that a profiler records shapes of. */
static void put_operator(Writer *w, const Rank *r, const MsOp *op, MsTime start, MsTime end) {
  MsJsonOut *out = span("cpu_op", "aten::mm", r->host, HOST_THREAD, start, end);
  ms_json_out_int(out, "External id", (gint64)w->correlation);
  ms_json_out_array(out, "Input Dims");
  put_dims(out, op->m, op->k);
  put_dims(out, op->k, op->n);
  ms_json_out_end(out);
  ms_json_out_array(out, "Input type");
  ms_json_out_string(out, NULL,
                     op->dtype == MS_ODT_BF16   ? "c10::BFloat16"
                     : op->dtype == MS_ODT_FP32 ? "float"
                                                : "c10::Float8_e4m3fn");
  ms_json_out_end(out);
  put_span(w, out);
}

static void put_launch(Writer *w, const Rank *r, const MsOp *op, MsTime start, MsTime end) {
  if (op && op->kind == MS_OP_GEMM && op->m > 0 && op->n > 0 && op->k > 0) put_operator(w, r, op, start, end);
  MsJsonOut *out = span("cuda_runtime", "cudaLaunchKernel", r->host, HOST_THREAD, start, end);
  ms_json_out_int(out, "External id", (gint64)w->correlation);
  ms_json_out_int(out, "correlation", (gint64)w->correlation);
  put_span(w, out);
  put_flow(w, 's', r->host, HOST_THREAD, start, w->correlation);
}

static void put_kernel(Writer *w, const Rank *r, const MsOp *op, const char *row, int stream, MsTime start,
                       MsTime end) {
  gboolean copy = op && (op->kind == MS_OP_D2H || op->kind == MS_OP_H2D);
  g_autofree char *name = g_strdup_printf("%s: %s", op ? ms_op_words[op->kind] : "p2p", row ? row : "message");
  MsJsonOut *out = span(copy ? "gpu_memcpy" : "kernel", name, r->gpu, stream, start, end);
  ms_json_out_int(out, "External id", (gint64)w->correlation);
  ms_json_out_int(out, "device", r->device);
  ms_json_out_int(out, "context", 1);
  ms_json_out_int(out, "stream", stream);
  ms_json_out_int(out, "correlation", (gint64)w->correlation);
  if (op) ms_json_out_string(out, "pass", ms_pass_words[op->pass]);
  if (op && op->message_B > 0) ms_json_out_double(out, "bytes", op->message_B);
  put_span(w, out);
  put_flow(w, 'f', r->gpu, stream, start, w->correlation);
}

static void put_task(Writer *w, Rank *r, guint32 index) {
  const MsDetail *d = w->detail;
  const MsTask *task = ms_graph_task(d->graph, index);
  MsTime start = w->ran->start[index], end = w->ran->end[index];
  const MsOp *op = task->tag < d->n_tags ? d->tag_op[task->tag] : NULL;
  MsTime issue = MIN(r->issued + task->launch, start), begun = MAX(issue - MAX(task->launch, SLICE_OF_FLOW_PS), 0);
  w->correlation++;
  put_launch(w, r, op, r->shift + begun, r->shift + MAX(issue, begun));
  put_kernel(w, r, op, task->tag < d->n_tags ? d->tag_name[task->tag] : NULL, task->stream, r->shift + start,
             r->shift + end);
  r->issued = task->host_sync ? MAX(issue, end) : issue;
}

/* --- steps ----------------------------------------------------------------------------------------------------- */
static void put_step(Writer *w, Rank *r, int stage, int step) {
  g_autofree char *name = g_strdup_printf("ProfilerStep#%d", step);
  MsTime length = w->ran->makespan;
  r->shift = step * length;
  r->issued = 0;
  put_span(w, span("user_annotation", name, r->host, HOST_THREAD, r->shift, r->shift + length));
  for (guint32 i = 0; i < w->ran->n && !(i % 1024 == 0 && ms_interrupted()); i++)
    if ((int)ms_graph_task(w->detail->graph, i)->device == stage && w->ran->end[i] > w->ran->start[i])
      put_task(w, r, i);
}

/* --- ranks and files ------------------------------------------------------------------------------------------- */
static Rank rank_begin(Writer *w, int rank, int streams) {
  Rank r = {.rank = rank,
            .device = rank % MAX(1, w->scenario->hardware->gpus_per_node),
            .gpu = FIRST_PROCESS + 2 * (gint64)rank,
            .host = FIRST_PROCESS + 2 * (gint64)rank + 1};
  g_autofree char *gpu = g_strdup_printf("moesim rank %d: GPU", rank),
                  *host = g_strdup_printf("moesim rank %d: host", rank);
  put_name(w, "process_name", r.gpu, 0, gpu);
  put_name(w, "process_name", r.host, 0, host);
  for (int i = 0; i < streams; i++) {
    g_autofree char *name = g_strdup_printf("stream %d %s", i, ms_stream_words[i]);
    put_name(w, "thread_name", r.gpu, i, name);
  }
  return r;
}

/* `reference_flops` 0: none. */
static gboolean file_begin(Writer *w, const char *device, int rank, int ranks, double reference_flops,
                           const char *filename, GError **error) {
  if (!(w->sink = ms_writer_open(filename, error))) return FALSE;
  w->line = g_string_new(NULL);
  g_autofree char *quoted = ms_json_quoted(device);
  g_string_printf(w->line,
                  "{\"schemaVersion\": 1,\n\"deviceProperties\": [{\"id\": 0, \"name\": %s}],\n"
                  "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %d, \"world_size\": %d},\n",
                  quoted, rank, ranks);
  if (reference_flops > 0) g_string_append_printf(w->line, "\"reference_flops\": %.9g,\n", reference_flops);
  g_string_append(w->line, "\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n");
  put(w);
  return TRUE;
}

static gboolean file_end(Writer *w, gboolean (*writer_close)(MsWriter *, GError **), GError **error) {
  g_string_assign(w->line, "\n]}\n");
  put(w);
  g_string_free(w->line, TRUE);
  return writer_close(w->sink, error);
}

gboolean ms_report_trace_kineto(const MsScenario *scenario, const MsDetail *detail, const MsKinetoOptions *options,
                                const char *filename, guint64 *left_out, GError **error) {
  for (int i = 0; i < options->n_ranks; i++)
    if (options->rank[i] < 0 || options->rank[i] >= detail->layout->world)
      return ms_input_error(error, scenario->file, 0, "gpus", "is %d: no rank %d", detail->layout->world,
                            options->rank[i]);
  Writer w = {.detail = detail, .options = options, .scenario = scenario, .first = TRUE};
  if (!file_begin(&w, scenario->hardware->name, options->rank[0], detail->layout->world, 0, filename, error))
    return FALSE;
  for (int i = 0; i < options->n_ranks && !ms_interrupted(); i++) { /* each has its share of the limit */
    w.limit_B = options->limit_B * (i + 1) / options->n_ranks;
    w.full = FALSE;
    w.ran = options->ran ? options->ran[i] : detail->trajectory;
    Rank r = rank_begin(&w, options->rank[i], MS_N_STREAMS);
    for (int step = 0; step < options->steps && !ms_interrupted(); step++)
      put_step(&w, &r, ms_rank_stage(detail->layout, r.rank), step);
  }
  *left_out = w.left_out;
  return file_end(&w, ms_writer_close_unless_stopped, error);
}

/* --- a run that was timed -------------------------------------------------------------------------------------- */
static MsTime ps(double s) { return (MsTime)(s * 1e12 + 0.5); }

gboolean ms_report_trace_run(const MsScenario *scenario, const MsKinetoRun *run, const char *filename, GError **error) {
  Writer w = {.scenario = scenario, .first = TRUE};
  if (!file_begin(&w, run->device, run->rank, run->ranks, run->reference_flops, filename, error)) return FALSE;
  Rank r = rank_begin(&w, run->rank, 1);
  for (int i = 0; i < run->steps; i++) {
    MsTime start = ps(run->step_start_s[i]);
    g_autofree char *name = g_strdup_printf("ProfilerStep#%d", i);
    put_span(&w, span("user_annotation", name, r.host, HOST_THREAD, start, start + ps(run->step_s[i])));
  }
  for (int i = 0; i < run->n_rows; i++) {
    const MsKinetoRow *row = &run->row[i];
    MsTime start = ps(row->start_s), end = MAX(ps(row->end_s), start);
    w.correlation++;
    put_launch(&w, &r, row->op, start, MIN(start + SLICE_OF_FLOW_PS, end));
    put_kernel(&w, &r, row->op, row->op->name, MS_STREAM_COMPUTE, start, end);
  }
  return file_end(&w, ms_writer_close, error); /* of a run that was stopped, what ran */
}
