/* src/report/page_steps.c - the step over time, thinned to what a screen can show: every pass of every stage, how busy
 * every stream is, every operator of a window in the middle of the step, and allocated memory. Where something is left
 * out the data says so. */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "report/page.h"
#include "report/slots.h"

enum {
  MOST_PASSES = 100000,   /* of all stages shown */
  MOST_STAGES = 64,       /* with streams and memory */
  BINS = 500,             /* of a step, for how busy a stream is */
  MOST_OPERATORS = 24000, /* of all windows */
  MOST_POINTS = 1500      /* of one stage's memory */
};

static gint64 whole(double value) { return (gint64)llround(value); }
static gint64 us_of(MsTime ps) { return whole((double)ps / 1e6); }
static gint64 ns_of(MsTime ps) { return whole((double)ps / 1e3); }

/* Of `n` stages, `most` spread evenly with both ends; returns the stage at place `i`. */
static int spread(int n, int most, int i) {
  return n <= most ? i : (int)llround((double)i * (n - 1) / MAX(most - 1, 1));
}

/* --- passes ---------------------------------------------------------------------------------------------------- */
static void write_stage_passes(const MsDetail *d, const MsSlotSpans *passes, int stage, int most, MsJsonOut *out) {
  int n = d->schedule->n[stage], skip_from = n <= most ? n : most / 2, skip_to = n <= most ? n : n - most / 2;
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "stage", stage);
  ms_json_out_int(out, "left_out", skip_to - skip_from);
  ms_json_out_array(out, "slots"); /* kind, microbatch, chunk, microbatch 2, chunk 2, start us, duration us */
  for (int k = 0; k < n; k++) {
    if (k == skip_from && skip_to > skip_from) k = skip_to;
    const MsSlot *slot = &d->schedule->slot[stage][k];
    guint32 flat = d->slot_base[stage] + (guint32)k;
    if (passes->end[flat] < 0) continue;
    gboolean pair = slot->kind == MS_SLOT_FB;
    const gint64 row[] = {slot->kind,
                          slot->mb,
                          slot->chunk,
                          pair ? slot->mb2 : -1,
                          pair ? slot->chunk2 : -1,
                          us_of(passes->start[flat]),
                          us_of(passes->end[flat]) - us_of(passes->start[flat])};
    for (guint i = 0; i < G_N_ELEMENTS(row); i++) ms_json_out_int(out, NULL, row[i]);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
}

static void write_passes(const void *of, const char *key, MsJsonOut *out) {
  const MsPageRun *run = of;
  const MsDetail *d = run->detail;
  const MsSlotSpans *passes = &run->passes;
  int longest = 1, stages = d->schedule->stages;
  for (int s = 0; s < stages; s++) longest = MAX(longest, d->schedule->n[s]);
  int shown = CLAMP(MOST_PASSES / longest, MIN(stages, 4), stages);
  ms_json_out_array(out, key);
  for (int i = 0; i < shown; i++)
    write_stage_passes(d, passes, spread(stages, shown, i), MAX(MOST_PASSES / shown, 2), out);
  ms_json_out_end(out);
}

/* --- streams: share of each bin in which something runs -------------------------------------------------------- */
typedef struct {
  int stages;
  double width; /* of a bin, ps */
  double *busy; /* [stages][MS_N_STREAMS][BINS] ps */
} Streams;

static void add_busy(Streams *x, int stage, int stream, MsTime start, MsTime end) {
  double *bin = x->busy + ((size_t)stage * MS_N_STREAMS + (size_t)stream) * BINS;
  int first = CLAMP((int)((double)start / x->width), 0, BINS - 1),
      last = CLAMP((int)((double)end / x->width), 0, BINS - 1);
  for (int b = first; b <= last; b++)
    bin[b] += MAX(MIN((double)end, (b + 1) * x->width) - MAX((double)start, b * x->width), 0);
}

static void write_stream(const Streams *x, int stage, int stream, MsJsonOut *out) {
  const double *bin = x->busy + ((size_t)stage * MS_N_STREAMS + (size_t)stream) * BINS;
  double sum = 0;
  for (int b = 0; b < BINS; b++) sum += bin[b];
  if (!(sum > 0)) return;
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "stage", stage);
  ms_json_out_string(out, "stream", ms_stream_words[stream]);
  ms_json_out_double(out, "busy_s", sum / MS_PS_PER_S);
  ms_json_out_array(out, "percent");
  for (int b = 0; b < BINS; b++) ms_json_out_int(out, NULL, MIN(whole(100 * bin[b] / x->width), 100));
  ms_json_out_end(out);
  ms_json_out_end(out);
}

static void write_streams(const void *run, const char *key, MsJsonOut *out) {
  const MsDetail *d = ((const MsPageRun *)run)->detail;
  int stages = d->schedule->stages, shown = MIN(stages, MOST_STAGES);
  Streams x = {stages, MAX((double)d->trajectory->makespan, 1) / BINS,
               g_new0(double, (size_t)stages *MS_N_STREAMS *BINS)};
  for (guint32 i = 0; i < d->trajectory->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    if ((int)task->device < stages && task->stream < MS_N_STREAMS)
      add_busy(&x, (int)task->device, task->stream, d->trajectory->start[i], d->trajectory->end[i]);
  }
  ms_json_out_array(out, key);
  for (int i = 0; i < shown; i++)
    for (int stream = 0; stream < MS_N_STREAMS; stream++) write_stream(&x, spread(stages, shown, i), stream, out);
  ms_json_out_end(out);
  g_free(x.busy);
}

/* --- the window: every operator between a forward in the middle of the step and the end of the backward that follows
 * --- */
typedef struct {
  MsTime from, to;
} Window;

static Window window_of(const MsDetail *d, const MsSlotSpans *passes, int stage) {
  int n = d->schedule->n[stage], k = n / 2;
  Window w = {0, 0};
  while (k < n - 1 && !ms_slot_has_forward(&d->schedule->slot[stage][k])) k++;
  if (n == 0 || passes->end[d->slot_base[stage] + (guint32)k] < 0) return w;
  w.from = passes->start[d->slot_base[stage] + (guint32)k], w.to = passes->end[d->slot_base[stage] + (guint32)k];
  for (int j = k + 1; j < n && j <= k + 2; j++) {
    MsTime end = passes->end[d->slot_base[stage] + (guint32)j];
    if (end < 0) continue;
    w.to = MAX(w.to, end);
    if (d->schedule->slot[stage][j].kind != MS_SLOT_F)
      break; /* the backward that belongs beside it; two forwards in the warm-up */
  }
  return w;
}

static void write_windows(const void *of, const char *key, MsJsonOut *out) {
  const MsPageRun *run = of;
  const MsDetail *d = run->detail;
  const MsSlotSpans *passes = &run->passes;
  int stages = d->schedule->stages, shown = MIN(stages, MOST_STAGES), written = 0;
  g_autofree Window *window = g_new0(Window, stages);
  g_autofree int *place = g_new(int, stages);
  g_autofree GArray **ops = g_new0(GArray *, shown);
  memset(place, -1, sizeof *place * (size_t)stages);
  for (int i = 0; i < shown; i++) {
    int s = spread(stages, shown, i);
    place[s] = i, window[s] = window_of(d, passes, s), ops[i] = g_array_new(FALSE, FALSE, sizeof(guint32));
  }
  for (guint32 i = 0; i < d->trajectory->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    int s = (int)task->device;
    if (s >= stages || place[s] < 0 || d->trajectory->end[i] <= window[s].from ||
        d->trajectory->start[i] >= window[s].to)
      continue;
    g_array_append_val(ops[place[s]], i);
  }
  ms_json_out_array(out, key);
  for (int i = 0; i < shown; i++) {
    int s = spread(stages, shown, i);
    if (ops[i]->len > 0 && written + (int)ops[i]->len <= MOST_OPERATORS) {
      written += (int)ops[i]->len;
      ms_json_out_object(out, NULL);
      ms_json_out_int(out, "stage", s);
      ms_json_out_double(out, "from_s", (double)window[s].from / MS_PS_PER_S);
      ms_json_out_double(out, "to_s", (double)window[s].to / MS_PS_PER_S);
      ms_json_out_array(out, "tasks"); /* stream, tag, start ns after `from_s`, duration ns */
      for (guint j = 0; j < ops[i]->len; j++) {
        guint32 index = g_array_index(ops[i], guint32, j);
        const MsTask *task = ms_graph_task(d->graph, index);
        ms_json_out_int(out, NULL, task->stream);
        ms_json_out_int(out, NULL, task->tag);
        ms_json_out_int(out, NULL, ns_of(d->trajectory->start[index] - window[s].from));
        ms_json_out_int(out, NULL, ns_of(d->trajectory->end[index] - d->trajectory->start[index]));
      }
      ms_json_out_end(out);
      ms_json_out_end(out);
    }
    g_array_free(ops[i], TRUE);
  }
  ms_json_out_end(out);
}

static void write_tags(const void *run, const char *key, MsJsonOut *out) {
  const MsDetail *d = ((const MsPageRun *)run)->detail;
  ms_json_out_array(out, key); /* name, operator, pass, group */
  for (guint32 i = 0; i < d->n_tags; i++) {
    const MsOp *op = d->tag_op[i];
    ms_json_out_string(out, NULL, d->tag_name[i] ? d->tag_name[i] : "task");
    ms_json_out_string(out, NULL, op ? ms_op_words[op->kind] : "p2p");
    ms_json_out_string(out, NULL, op ? ms_pass_words[op->pass] : "forward");
    ms_json_out_string(out, NULL, op && op->group != MS_GROUP_NONE ? ms_group_words[op->group] : "");
  }
  ms_json_out_end(out);
}

/* --- memory ---------------------------------------------------------------------------------------------------- */
typedef struct {
  GArray *time, *bytes; /* of double, one stage */
  int stage;
  int shown, stages;
  MsJsonOut *out;
} Memory;

/* Of the points of a bin the lowest and the highest stay, in their order. */
static void flush_memory(Memory *m) {
  int n = (int)m->time->len, bins = MOST_POINTS / 2;
  gboolean wanted = FALSE;
  for (int i = 0; i < m->shown; i++) wanted |= spread(m->stages, m->shown, i) == m->stage;
  if (n > 0 && wanted) {
    ms_json_out_object(m->out, NULL);
    ms_json_out_int(m->out, "stage", m->stage);
    ms_json_out_array(m->out, "points"); /* us, MiB */
    for (int b = 0, from = 0; from < n; b++) {
      int to = n <= MOST_POINTS ? from + 1 : (int)((gint64)(b + 1) * n / bins), low = from, high = from;
      for (int i = from; i < to; i++) {
        if (g_array_index(m->bytes, double, i) < g_array_index(m->bytes, double, low)) low = i;
        if (g_array_index(m->bytes, double, i) > g_array_index(m->bytes, double, high)) high = i;
      }
      for (int i = MIN(low, high); i <= MAX(low, high); i += MAX(abs(high - low), 1)) {
        ms_json_out_int(m->out, NULL, whole(1e6 * g_array_index(m->time, double, i)));
        ms_json_out_int(m->out, NULL, whole(g_array_index(m->bytes, double, i) / MS_MIB));
      }
      from = to;
    }
    ms_json_out_end(m->out);
    ms_json_out_end(m->out);
  }
  g_array_set_size(m->time, 0);
  g_array_set_size(m->bytes, 0);
}

static void add_point(gpointer user, int stage, MsTime time_ps, double allocated_B, const MsSlot *slot) {
  (void)slot;
  Memory *m = user;
  if (stage != m->stage) flush_memory(m);
  m->stage = stage;
  double time_s = (double)time_ps / MS_PS_PER_S;
  g_array_append_val(m->time, time_s);
  g_array_append_val(m->bytes, allocated_B);
}

static void write_memory(const void *of, const char *key, MsJsonOut *out) {
  const MsPageRun *run = of;
  const MsDetail *d = run->detail;
  int stages = d->schedule->stages;
  Memory m = {g_array_new(FALSE, FALSE, sizeof(double)),
              g_array_new(FALSE, FALSE, sizeof(double)),
              0,
              MIN(stages, MOST_STAGES),
              stages,
              out};
  ms_json_out_array(out, key);
  ms_each_memory_point(d, &run->passes, add_point, &m);
  flush_memory(&m);
  ms_json_out_end(out);
  g_array_free(m.time, TRUE);
  g_array_free(m.bytes, TRUE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
#define R(run) ((const MsPageRun *)(run))
static const void *this_run(const void *run) { return run; }
static double makespan_s(const void *run) { return (double)R(run)->detail->trajectory->makespan / MS_PS_PER_S; }
const MsFigures ms_page_steps_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_OF("makespan_s", F64, makespan_s, "s", "of the simulated passes"),
    MS_FIGURE_WORD_LIST("slot_kinds", ms_slot_words, "that numbers of `passes` stand for"),
    MS_FIGURE_WORD_LIST("stream_kinds", ms_stream_words, "that numbers of `windows` stand for"),
    /* slots: kind, microbatch, chunk, microbatch and chunk of a pair's backward or -1, start us, duration us */
    MS_FIGURE_FILE_OF("passes", this_run, write_passes, "of each stage shown: stage, left_out, slots of seven numbers"),
    MS_FIGURE_FILE_OF("streams", this_run, write_streams, "busy_s, and percent busy of each 500th of the step"),
    MS_FIGURE_FILE_OF("windows", this_run, write_windows, "tasks: stream, tag, start ns, duration ns"),
    MS_FIGURE_FILE_OF("tags", this_run, write_tags, "name, operator, pass, group of each tag"),
    MS_FIGURE_FILE_OF("memory_timeline", this_run, write_memory, "of each stage: points (us, MiB)"));
