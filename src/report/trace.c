/* A trace holds up to millions of spans, so this writer formats numbers itself: what is constant per operator
 * (name, category, shape) is laid down as text once and copied; only times, microbatch and chunk are written per span.
 */
#include <string.h>

#include "base/io.h"
#include "base/units.h"
#include "report/slots.h"
#include "report/report.h"

/* --- numbers and text ------------------------------------------------------------------------------------------ */
#define PUT(sink, literal) ms_writer_put(sink, literal, sizeof literal - 1)
static void put_text(MsWriter *sink, const char *text) { ms_writer_put(sink, text, strlen(text)); }

static char *digits(char *end, guint64 value) { /* writes before `end`, returns the first digit */
  do *--end = (char)('0' + value % 10);
  while (value /= 10);
  return end;
}

static void put_int(MsWriter *sink, gint64 value) {
  char buf[24], *end = buf + sizeof buf;
  char *p = digits(end, value < 0 ? 0 - (guint64)value : (guint64)value);
  if (value < 0) *--p = '-';
  ms_writer_put(sink, p, (size_t)(end - p));
}

/* Picoseconds as microseconds, exactly, without trailing zeros. */
static void put_us(MsWriter *sink, MsTime ps) {
  char buf[32], *end = buf + sizeof buf, *p = end;
  guint64 value = ps < 0 ? 0 - (guint64)ps : (guint64)ps, fraction = value % 1000000;
  if (fraction) {
    int places = 6;
    for (; fraction % 10 == 0; fraction /= 10) places--;
    for (; places > 0; places--, fraction /= 10) *--p = (char)('0' + fraction % 10);
    *--p = '.';
  }
  p = digits(p, value / 1000000);
  if (ps < 0) *--p = '-';
  ms_writer_put(sink, p, (size_t)(end - p));
}

/* --- what is constant per operator ----------------------------------------------------------------------------- */
typedef struct {
  char *text; /* `"op":...},"name":...,"cat":...}` : rest of the span after `"args":{` */
  size_t length;
} Label;

static void nonzero(MsJsonOut *out, const char *key, double value) {
  if (value > 0) ms_json_out_double(out, key, value);
}

static void op_args(const MsOp *op, MsJsonOut *out) {
  if (!op) {
    ms_json_out_string(out, "op", "p2p");
    return;
  }
  ms_json_out_string(out, "op", ms_op_words[op->kind]);
  ms_json_out_string(out, "pass", ms_pass_words[op->pass]);
  nonzero(out, "m", op->m);
  nonzero(out, "n", op->n);
  nonzero(out, "k", op->k);
  if (op->groups > 1) ms_json_out_int(out, "groups", op->groups);
  nonzero(out, "flop", op->flop);
  nonzero(out, "read_B", op->read_B);
  nonzero(out, "write_B", op->write_B);
  nonzero(out, "message_B", op->message_B);
  if (op->group != MS_GROUP_NONE) ms_json_out_string(out, "group", ms_group_words[op->group]);
}

static Label label_new(const MsOp *op, const char *name) {
  MsJsonOut *args = ms_json_out_new(0), *rest = ms_json_out_new(0);
  ms_json_out_object(args, NULL);
  op_args(op, args);
  ms_json_out_end(args);
  ms_json_out_object(rest, NULL);
  ms_json_out_string(rest, "name", name ? name : "task");
  ms_json_out_string(rest, "cat", op ? ms_pass_words[op->pass] : "p2p");
  ms_json_out_end(rest);
  g_autofree char *a = g_strchomp(ms_json_out_take(args)), *b = g_strchomp(ms_json_out_take(rest));
  Label label;
  label.text = g_strconcat(a + 1, ",", b + 1, ",\n", NULL);
  label.length = strlen(label.text);
  return label;
}

/* --- spans ----------------------------------------------------------------------------------------------------- */
enum { PASSES_THREAD = 0, FIRST_STREAM_THREAD = 1, MAX_STREAMS = 256 };

typedef struct {
  MsWalk walk;
  MsSlotSpans passes;
  MsWriter *sink;
  Label *label;                /* [n_tags] */
  guint8 (*used)[MAX_STREAMS]; /* [stages] streams seen */
} Trace;

static void put_span_head(MsWriter *sink, gint64 pid, gint64 tid, MsTime start, MsTime end) {
  PUT(sink, "{\"ph\":\"X\",\"pid\":");
  put_int(sink, pid);
  PUT(sink, ",\"tid\":");
  put_int(sink, tid);
  PUT(sink, ",\"ts\":");
  put_us(sink, start);
  PUT(sink, ",\"dur\":");
  put_us(sink, end - start);
  PUT(sink, ",\"args\":{");
}

static void put_slot_args(MsWriter *sink, const MsSlot *slot) {
  PUT(sink, "\"mb\":");
  put_int(sink, slot->mb);
  PUT(sink, ",\"chunk\":");
  put_int(sink, slot->chunk);
  if (slot->kind == MS_SLOT_FB) {
    PUT(sink, ",\"mb2\":");
    put_int(sink, slot->mb2);
    PUT(sink, ",\"chunk2\":");
    put_int(sink, slot->chunk2);
  }
}

/* The activations of an exchange leave behind its backward (MsSlot). */
static const MsSlot *sent_by(const MsSlot *slot, const MsTask *task) {
  gboolean behind = slot && slot->kind == MS_SLOT_B && task->stream == MS_STREAM_PP_SEND;
  return behind && ms_slot_exchanges(slot - 1) ? slot - 1 : slot;
}

static void put_task(Trace *t, guint32 index) {
  const MsDetail *d = t->walk.detail;
  const MsTask *task = ms_graph_task(d->graph, index);
  guint32 flat = 0;
  const MsSlot *slot = sent_by(ms_walk_slot(&t->walk, task->device, index, &flat), task);
  put_span_head(t->sink, task->device, FIRST_STREAM_THREAD + task->stream, d->trajectory->start[index],
                d->trajectory->end[index]);
  if (slot) {
    put_slot_args(t->sink, slot);
    PUT(t->sink, ",");
  }
  if (task->tag < d->n_tags) ms_writer_put(t->sink, t->label[task->tag].text, t->label[task->tag].length);
  else PUT(t->sink, "\"op\":\"task\"},\"name\":\"task\"},\n");
  if ((int)task->device < t->walk.stages) t->used[task->device][task->stream] = 1;
}

static void put_passes(Trace *t) {
  const MsDetail *d = t->walk.detail;
  if (!d->slot_task || !d->schedule) return;
  for (int s = 0; s < t->walk.stages; s++) {
    for (int k = 0; k < d->schedule->n[s]; k++) {
      const MsSlot *slot = &d->schedule->slot[s][k];
      guint32 flat = d->slot_base[s] + (guint32)k;
      if (t->passes.end[flat] < 0) continue;
      put_span_head(t->sink, s, PASSES_THREAD, t->passes.start[flat], t->passes.end[flat]);
      put_slot_args(t->sink, slot);
      PUT(t->sink, "},\"cat\":\"pass\",\"name\":\"");
      put_text(t->sink, ms_slot_words[slot->kind]);
      put_int(t->sink, slot->mb);
      PUT(t->sink, ".");
      put_int(t->sink, slot->chunk);
      PUT(t->sink, "\"},\n");
    }
  }
}

/* --- memory ---------------------------------------------------------------------------------------------------- */
static void put_counter(gpointer user, int stage, MsTime time_ps, double allocated_B, const MsSlot *slot) {
  (void)slot;
  MsWriter *sink = user;
  char number[32];
  PUT(sink, "{\"ph\":\"C\",\"name\":\"allocated\",\"pid\":");
  put_int(sink, stage);
  PUT(sink, ",\"ts\":");
  put_us(sink, time_ps);
  PUT(sink, ",\"args\":{\"GiB\":");
  put_text(sink, ms_double_text(allocated_B / MS_GIB, number));
  PUT(sink, "}},\n");
}

/* --- the file -------------------------------------------------------------------------------------------------- */
static void put_metadata(MsWriter *sink, int pid, int tid, const char *what, const char *name, int order) {
  PUT(sink, "{\"ph\":\"M\",\"pid\":");
  put_int(sink, pid);
  PUT(sink, ",\"tid\":");
  put_int(sink, tid);
  PUT(sink, ",\"name\":\"");
  put_text(sink, what);
  if (name) {
    PUT(sink, "\",\"args\":{\"name\":\"");
    put_text(sink, name);
    PUT(sink, "\"}},\n");
  } else {
    PUT(sink, "\",\"args\":{\"sort_index\":");
    put_int(sink, order);
    PUT(sink, "}},\n");
  }
}

static void put_names(Trace *t) {
  char name[32];
  for (int s = 0; s < t->walk.stages; s++) {
    g_snprintf(name, sizeof name, "stage %d", s);
    put_metadata(t->sink, s, 0, "process_name", name, 0);
    put_metadata(t->sink, s, 0, "process_sort_index", NULL, s);
    put_metadata(t->sink, s, PASSES_THREAD, "thread_name", "passes", 0);
    for (int i = 0; i < MAX_STREAMS; i++) {
      if (!t->used[s][i]) continue;
      g_snprintf(name, sizeof name, "stream %d", i);
      put_metadata(t->sink, s, FIRST_STREAM_THREAD + i, "thread_name", i < MS_N_STREAMS ? ms_stream_words[i] : name, 0);
      put_metadata(t->sink, s, FIRST_STREAM_THREAD + i, "thread_sort_index", NULL, FIRST_STREAM_THREAD + i);
    }
  }
}

static void put_trace(Trace *t) {
  const MsTrajectory *trajectory = t->walk.detail->trajectory;
  PUT(t->sink, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (guint32 i = 0; i < trajectory->n; i++) put_task(t, i);
  put_passes(t);
  ms_each_memory_point(t->walk.detail, &t->passes, put_counter, t->sink);
  put_names(t);
  /* closes the list: the last element stands without a comma */
  PUT(t->sink, "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace_end\",\"args\":{\"makespan_us\":");
  put_us(t->sink, trajectory->makespan);
  PUT(t->sink, "}}\n]}\n");
}

gboolean ms_report_trace(const MsDetail *detail, const char *filename, GError **error) {
  MsWriter *sink = ms_writer_open(filename, error);
  if (!sink) return FALSE;
  Trace t = {.walk = ms_walk_new(detail),
             .passes = ms_slot_spans_new(detail),
             .sink = sink,
             .label = g_new0(Label, detail->n_tags + 1)};
  t.used = g_malloc0(sizeof *t.used * (size_t)(t.walk.stages + 1));
  for (guint32 i = 0; i < detail->n_tags; i++) t.label[i] = label_new(detail->tag_op[i], detail->tag_name[i]);
  put_trace(&t);
  for (guint32 i = 0; i < detail->n_tags; i++) g_free(t.label[i].text);
  g_free(t.label);
  g_free(t.used);
  g_free(t.walk.cursor);
  ms_slot_spans_clear(&t.passes);
  return ms_writer_close(sink, error);
}

static void append_csv(gpointer user, int stage, MsTime time_ps, double allocated_B, const MsSlot *slot) {
  char time_text[32], bytes_text[32];
  g_string_append_printf(user, "%d,%s,%s,", stage, ms_double_text((double)time_ps / MS_PS_PER_S, time_text),
                         ms_double_text(allocated_B, bytes_text));
  if (slot) g_string_append_printf(user, "%s%d.%d\n", ms_slot_words[slot->kind], slot->mb, slot->chunk);
  else g_string_append(user, "begin\n");
}

gboolean ms_report_timeline(const MsDetail *detail, const char *filename, GError **error) {
  g_autoptr(GString) out = g_string_new("stage,time_s,allocated_B,slot\n");
  MsSlotSpans passes = ms_slot_spans_new(detail);
  ms_each_memory_point(detail, &passes, append_csv, out);
  ms_slot_spans_clear(&passes);
  return ms_write_file(filename, out->str, (gssize)out->len, error);
}
