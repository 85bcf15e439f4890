/* src/logs/trace_build.c - what all readers of profiles share: names, streams, shapes, steps. */
#include "logs/trace_priv.h"

#include "base/err.h"
#include "base/order.h"
#include "base/text.h"

#include <string.h>

enum { MOST_KERNELS = 1 << 24, MOST_STREAMS = 1 << 12, MOST_STEPS = 1 << 14, MOST_SHAPES = 1 << 20 };

/* --- a trace --------------------------------------------------------------------------------------------------- */
static void clear_name(gpointer name) { g_free(((MsTraceName *)name)->name); }

MsTrace *ms_trace_new(const char *file) {
  MsTrace *t = g_new0(MsTrace, 1);
  *t = (MsTrace){.file = g_strdup(file),
                 .rank = -1,
                 .kernels = g_array_new(FALSE, FALSE, sizeof(MsTraceKernel)),
                 .names = g_array_new(FALSE, FALSE, sizeof(MsTraceName)),
                 .shapes = g_array_new(FALSE, TRUE, sizeof(MsTraceShape)),
                 .streams = g_array_new(FALSE, FALSE, sizeof(MsTraceStreamId)),
                 .steps = g_array_new(FALSE, FALSE, sizeof(MsTraceStep)),
                 .messages = g_array_new(FALSE, FALSE, sizeof(MsTraceMessage))};
  g_array_set_clear_func(t->names, clear_name);
  return t;
}

void ms_trace_free(MsTrace *t) {
  if (!t) return;
  GArray *const arrays[] = {t->kernels, t->names, t->shapes, t->streams, t->steps, t->messages};
  for (gsize i = 0; i < G_N_ELEMENTS(arrays); i++) g_array_unref(arrays[i]);
  g_free(t->file);
  g_free(t->device);
  g_free(t);
}

void ms_trace_build_init(MsTraceBuild *b, const char *file, MsTraceForm form, const MsKernelTable *table) {
  *b = (MsTraceBuild){.t = ms_trace_new(file),
                      .table = table,
                      .name_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                      .stream_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                      .gpu_marks = g_array_new(FALSE, FALSE, sizeof(MsTraceStep)),
                      .marks = g_array_new(FALSE, FALSE, sizeof(MsTraceStep))};
  b->t->form = form;
}

void ms_trace_build_clear(MsTraceBuild *b) {
  ms_trace_free(b->t);
  g_hash_table_unref(b->name_of);
  g_hash_table_unref(b->stream_of);
  g_array_unref(b->gpu_marks);
  g_array_unref(b->marks);
  *b = (MsTraceBuild){0};
}

/* --- kernels --------------------------------------------------------------------------------------------------- */
static guint32 name_index(MsTraceBuild *b, const char *word, const char *collective) {
  g_autofree char *key = g_strdup_printf("%s\n%s", word, collective ? collective : "");
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(b->name_of, key));
  if (known) return known - 1;
  MsTraceName name = {g_utf8_make_valid(word, -1), ms_kernel_family(b->table, word, collective), -1};
  if (name.family >= 0)
    name.class_index = g_array_index(b->table->families, MsKernelFamily, (guint)name.family).class_index;
  g_array_append_val(b->t->names, name);
  g_hash_table_insert(b->name_of, g_steal_pointer(&key), GUINT_TO_POINTER(b->t->names->len));
  return b->t->names->len - 1;
}

/* -1: too many. */
static int stream_index(MsTraceBuild *b, gint64 device, gint64 number) {
  MsTraceStreamId id = {device, number, NULL};
  g_autofree char *key = g_strdup_printf("%" G_GINT64_FORMAT " %" G_GINT64_FORMAT, device, number);
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(b->stream_of, key));
  if (known) return (int)known - 1;
  if (b->t->streams->len == MOST_STREAMS) return -1;
  g_array_append_val(b->t->streams, id);
  g_hash_table_insert(b->stream_of, g_steal_pointer(&key), GUINT_TO_POINTER(b->t->streams->len));
  return (int)b->t->streams->len - 1;
}

gboolean ms_trace_build_kernel(MsTraceBuild *b, const MsTraceLaunch *launch, int line, guint32 *name, GError **error) {
  MsTrace *t = b->t;
  if (launch->length_ns < 0 || launch->length_ns > G_GINT64_CONSTANT(1) << 53 ||
      ABS(launch->start_ns) > G_GINT64_CONSTANT(1) << 61) {
    b->odd++;
    return TRUE;
  }
  int stream = stream_index(b, launch->device, launch->stream);
  if (stream < 0 || t->kernels->len == MOST_KERNELS)
    return ms_input_error(error, t->file, line, NULL, "holds more than %d %s", stream < 0 ? MOST_STREAMS : MOST_KERNELS,
                          stream < 0 ? "streams" : "kernels");
  MsTraceKernel k = {.start_ns = launch->start_ns,
                     .length_ns = launch->length_ns,
                     .name = name_index(b, launch->name, launch->collective),
                     .link = launch->link,
                     .grid = launch->grid,
                     .stream = (guint16)stream};
  g_array_append_val(t->kernels, k);
  if (name) *name = k.name;
  return TRUE;
}

/* "c10::BFloat16", "DT_FLOAT16", "float8_e4m3fn": bf16, bf16, fp8; "": none of ours. */
static const char *dtype_of(const char *type) {
  static const char *const words[][2] = {{"bfloat16", "bf16"}, {"bf16", "bf16"}, {"half", "bf16"}, {"float8", "fp8"},
                                         {"float16", "bf16"},  {"fp16", "bf16"}, {"float", "fp32"}};
  g_autofree char *low = g_ascii_strdown(type, -1);
  for (gsize i = 0; i < G_N_ELEMENTS(words); i++)
    if (strstr(low, words[i][0])) return words[i][1];
  return "";
}

guint32 ms_trace_build_shape(MsTraceBuild *b, const MsTraceShape *shape, const char *type) {
  MsTraceShape s = *shape;
  gboolean sound = s.groups >= 1 && s.m >= 1 && s.n >= 1 && s.k >= 1 && s.groups * s.m * s.n * s.k < 1e18;
  if (!sound || b->t->shapes->len == MOST_SHAPES) return 0;
  g_strlcpy(s.dtype, dtype_of(type), sizeof s.dtype);
  g_array_append_val(b->t->shapes, s);
  return b->t->shapes->len;
}

/* --- one of several devices -------------------------------------------------------------------------------------- */
MS_ORDER(by_value, gint64, MS_LESS(*x, *y), 0)

/* Devices of all streams, in order. (transfer full) */
static GArray *devices_of(const MsTrace *t) {
  GArray *all = g_array_new(FALSE, FALSE, sizeof(gint64));
  for (guint i = 0; i < t->streams->len; i++)
    g_array_append_val(all, g_array_index(t->streams, MsTraceStreamId, i).device);
  g_array_sort(all, by_value);
  guint kept = 0;
  for (guint i = 0; i < all->len; i++) {
    gint64 one = g_array_index(all, gint64, i);
    if (kept == 0 || g_array_index(all, gint64, kept - 1) != one) g_array_index(all, gint64, kept++) = one;
  }
  g_array_set_size(all, kept);
  return all;
}

/* Its streams and their kernels alone. */
static void keep_device(MsTrace *t, gint64 device) {
  g_autofree int *place = g_new(int, t->streams->len);
  guint streams = 0, kernels = 0;
  for (guint i = 0; i < t->streams->len; i++) {
    MsTraceStreamId id = g_array_index(t->streams, MsTraceStreamId, i);
    place[i] = id.device == device ? (int)streams : -1;
    if (place[i] >= 0) g_array_index(t->streams, MsTraceStreamId, streams++) = id;
  }
  g_array_set_size(t->streams, streams);
  for (guint i = 0; i < t->kernels->len; i++) {
    MsTraceKernel k = g_array_index(t->kernels, MsTraceKernel, i);
    if (place[k.stream] < 0) continue;
    k.stream = (guint16)place[k.stream];
    g_array_index(t->kernels, MsTraceKernel, kernels++) = k;
  }
  g_array_set_size(t->kernels, kernels);
}

gboolean ms_trace_build_device(MsTraceBuild *b, int device, GPtrArray *notes, GError **error) {
  g_autoptr(GArray) all = devices_of(b->t);
  guint wanted = (guint)MAX(device, 0);
  if (wanted >= all->len)
    return ms_input_error(error, b->t->file, 0, NULL, "has kernels of %u GPU%s, counted from 0: no GPU %d", all->len,
                          all->len == 1 ? "" : "s", device);
  if (all->len == 1) return TRUE;
  if (device < 0)
    ms_note(notes, "%s: holds %u GPUs, the first counts: --device 0 to %u of moesim import takes one of them",
            b->t->file, all->len, all->len - 1);
  keep_device(b->t, g_array_index(all, gint64, wanted));
  return TRUE;
}

/* --- steps ----------------------------------------------------------------------------------------------------- */
MS_ORDER(by_kernel_start, MsTraceKernel, MS_LESS(x->start_ns, y->start_ns), MS_LESS(x->stream, y->stream))

MS_ORDER(by_start, MsTraceStep, MS_LESS(x->start_ns, y->start_ns), 0)

MS_ORDER(by_number, MsTraceStep, MS_LESS(x->number, y->number), by_start(x, y))

static const MsTraceKernel *kernel_at(const MsTrace *t, guint i) {
  return &g_array_index(t->kernels, MsTraceKernel, i);
}

static gboolean is_class(const MsTraceBuild *b, const MsTraceKernel *k, const char *word) {
  int index = g_array_index(b->t->names, MsTraceName, k->name).class_index;
  return index >= 0 && strcmp(ms_kernel_class_word(b->table, index), word) == 0;
}

static gint64 last_end(const MsTrace *t) {
  gint64 end = G_MININT64;
  for (guint i = 0; i < t->kernels->len; i++) end = MAX(end, kernel_at(t, i)->start_ns + kernel_at(t, i)->length_ns);
  return end;
}

/* A step ends where products follow the optimizer. What is behind the last end is no whole step. */
static void steps_by_optimizer(MsTraceBuild *b) {
  MsTrace *t = b->t;
  gboolean updated = FALSE;
  gint64 start = kernel_at(t, 0)->start_ns;
  for (guint i = 0; i < t->kernels->len; i++) {
    const MsTraceKernel *k = kernel_at(t, i);
    if (is_class(b, k, "optimizer")) updated = TRUE;
    if (!updated || !is_class(b, k, "gemm") || t->steps->len >= MOST_STEPS) continue;
    MsTraceStep step = {start, k->start_ns, 0};
    g_array_append_val(t->steps, step);
    start = k->start_ns;
    updated = FALSE;
  }
  MsTraceStep final = {start, last_end(t), 0};
  if (updated && t->steps->len < MOST_STEPS) g_array_append_val(t->steps, final);
  if (t->steps->len > 0) t->steps_by = "its optimizer";
}

/* The GPU's marks of a step are one for each stream. A step ends where the next begins at the latest. */
static void steps_by_marks(MsTraceBuild *b, GArray *marks, const char *by) {
  GArray *steps = b->t->steps;
  g_array_sort(marks, by_number);
  for (guint i = 0; i < marks->len && steps->len < MOST_STEPS; i++) {
    MsTraceStep m = g_array_index(marks, MsTraceStep, i);
    MsTraceStep *before = steps->len > 0 ? &g_array_index(steps, MsTraceStep, steps->len - 1) : NULL;
    if (before && m.number == before->number) before->end_ns = MAX(before->end_ns, m.end_ns);
    else g_array_append_val(steps, m);
  }
  g_array_sort(steps, by_start);
  for (guint i = 0; i + 1 < steps->len; i++) {
    MsTraceStep *step = &g_array_index(steps, MsTraceStep, i);
    step->end_ns = MIN(step->end_ns, step[1].start_ns);
  }
  b->t->steps_by = by;
}

static void find_steps(MsTraceBuild *b) {
  MsTrace *t = b->t;
  if (b->gpu_marks->len > 0) steps_by_marks(b, b->gpu_marks, "marks of the GPU");
  else if (b->marks->len > 0) steps_by_marks(b, b->marks, "marks of the host");
  else steps_by_optimizer(b);
  if (t->steps->len == 0) {
    MsTraceStep all = {kernel_at(t, 0)->start_ns, last_end(t), 0};
    g_array_append_val(t->steps, all);
    t->steps_by = "nothing: all is one";
  }
}

/* Every kernel to its step; those behind the last step of an optimizer stay out (-1), so does a step that was cut. */
static void give_steps(MsTraceBuild *b) {
  MsTrace *t = b->t;
  guint step = 0, whole_steps = t->steps->len - (b->cut && t->steps->len > 1);
  gboolean open = strcmp(t->steps_by, "its optimizer") == 0;
  for (guint i = 0; i < t->kernels->len; i++) {
    MsTraceKernel *k = &g_array_index(t->kernels, MsTraceKernel, i);
    while (step + 1 < t->steps->len && k->start_ns >= g_array_index(t->steps, MsTraceStep, step + 1).start_ns) step++;
    gboolean behind = open && k->start_ns >= g_array_index(t->steps, MsTraceStep, step).end_ns;
    k->step = step < whole_steps && !behind ? (gint16)step : -1;
  }
  g_array_set_size(t->steps, whole_steps);
}

/* --- what no GPU does ------------------------------------------------------------------------------------------ */
#define PAUSE 10.  /* times all its kernels: longer is no wait for anything of the run */
#define OVER  0.15 /* share of a stream's kernels that lie over each other: launches that depend overlap a little */

static void note_pause(const MsTrace *t, GPtrArray *notes) {
  gint64 end = G_MININT64, longest = 0;
  double busy_ns = 0;
  for (guint i = 0; i < t->kernels->len; i++) {
    const MsTraceKernel *k = kernel_at(t, i);
    if (i > 0) longest = MAX(longest, k->start_ns - end);
    end = MAX(end, k->start_ns + k->length_ns), busy_ns += (double)k->length_ns;
  }
  if ((double)longest > PAUSE * busy_ns)
    ms_note(notes,
            "%s: no kernel for %.3g s, and %.3g s of kernels around that: clocks apart, or two recordings in one "
            "file?",
            t->file, 1e-9 * (double)longest, 1e-9 * busy_ns);
}

/* A stream runs one kernel behind another. */
static void note_overlaps(const MsTrace *t, GPtrArray *notes) {
  typedef struct {
    double over_ns, sum_ns;
    gint64 end;
  } Lane;
  g_autofree Lane *lane = g_new0(Lane, t->streams->len + 1);
  for (guint i = 0; i < t->kernels->len; i++) {
    const MsTraceKernel *k = kernel_at(t, i);
    Lane *l = &lane[k->stream];
    gint64 stop = k->start_ns + k->length_ns;
    if (l->sum_ns > 0 && l->end > k->start_ns) l->over_ns += (double)(MIN(l->end, stop) - k->start_ns);
    l->end = l->sum_ns > 0 ? MAX(l->end, stop) : stop, l->sum_ns += (double)k->length_ns;
  }
  for (guint s = 0; s < t->streams->len; s++) {
    const MsTraceStreamId *id = &g_array_index(t->streams, MsTraceStreamId, s);
    if (lane[s].over_ns <= OVER * lane[s].sum_ns) continue;
    g_autofree char *name = id->word ? g_strdup(id->word) : g_strdup_printf("%" G_GINT64_FORMAT, id->number);
    ms_note(notes,
            "%s: kernels of stream %s lie over each other for %.0f %% of their time: several ranks in one file, "
            "or events written twice?",
            t->file, name, 100 * lane[s].over_ns / lane[s].sum_ns);
    return;
  }
}

/* Of several steps that which was cut stays out; one alone is what there is. */
static void note_part(const MsTraceBuild *b, GPtrArray *notes) {
  const MsTraceStep *s = &g_array_index(b->t->steps, MsTraceStep, 0);
  if (b->cut && b->t->steps->len == 1)
    ms_note(notes, "%s: its one step is not whole: times and counts are of its first %.3g s", b->t->file,
            1e-9 * (double)(last_end(b->t) - s->start_ns));
}

MsTrace *ms_trace_build_take(MsTraceBuild *b, GPtrArray *notes) {
  if (b->odd > 0)
    ms_note(notes, "%s: %" G_GUINT64_FORMAT " kernels without a usable time are left out", b->t->file, b->odd);
  g_array_sort(b->t->kernels, by_kernel_start);
  for (guint i = 0; i < b->t->kernels->len; i++) { /* beside a product an operator launches copies and casts */
    MsTraceKernel *k = &g_array_index(b->t->kernels, MsTraceKernel, i);
    if (!is_class(b, k, "gemm")) k->link = 0;
  }
  note_pause(b->t, notes);
  if (b->t->form <= MS_TRACE_NSYS) note_overlaps(b->t, notes); /* a queue of ROCm or CANN is not one stream */
  find_steps(b);
  note_part(b, notes);
  give_steps(b);
  MsTrace *trace = g_steal_pointer(&b->t);
  ms_trace_build_clear(b);
  return trace;
}
