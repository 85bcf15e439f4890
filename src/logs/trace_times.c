#include "logs/trace_times.h"

#include "base/order.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOSTLY_ALONE  0.1 /* share of a kernel's time beside others */
#define MOSTLY_BESIDE 0.5
enum { MOST_STREAMS = 64 }; /* counted apart: the busiest; the rest together in the last */

typedef struct {
  const MsTrace *t;
  const MsKernelTable *table;
  MsTraceTimes *out;
  int *place;   /* of a stream of the trace: index into out->streams */
  double steps; /* that all is divided by */
} Sums;

static const MsTraceKernel *kernel(const Sums *s, guint i) { return &g_array_index(s->t->kernels, MsTraceKernel, i); }
static const MsTraceName *name_of(const Sums *s, const MsTraceKernel *k) {
  return &g_array_index(s->t->names, MsTraceName, k->name);
}
static double seconds(gint64 ns) { return (double)ns * 1e-9; }

/* --- growing lists of figures ---------------------------------------------------------------------------------- */
typedef struct {
  double kernels, time_s;
  GArray *each_s; /* of one kernel; NULL: not asked for */
} Pile;

static void pile_add(Pile *p, double time_s) {
  p->kernels++;
  p->time_s += time_s;
  if (p->each_s) g_array_append_val(p->each_s, time_s);
}

static double pile_median(const Pile *p) {
  return ms_quantile((double *)(gpointer)p->each_s->data, p->each_s->len, 0.5);
}

/* --- classes, families, names ---------------------------------------------------------------------------------- */
MS_ORDER(longer_class, MsTraceClassTime, MS_MORE(x->time_s, y->time_s), strcmp(x->word, y->word))

static void sum_classes(Sums *s) {
  int n = (int)s->table->classes->len + 1; /* the last: unrecognised */
  g_autofree Pile *pile = g_new0(Pile, n);
  for (int i = 0; i < n; i++) pile[i].each_s = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    int c = name_of(s, k)->class_index;
    if (k->step >= 0) pile_add(&pile[c < 0 ? n - 1 : c], seconds(k->length_ns));
  }
  s->out->classes = g_new0(MsTraceClassTime, n);
  for (int i = 0; i < n; i++) s->out->time_s += pile[i].time_s / s->steps;
  for (int i = 0; i < n; i++) {
    MsTraceClassTime one = {ms_kernel_class_word(s->table, i), pile[i].kernels / s->steps, pile[i].time_s / s->steps};
    one.share = s->out->time_s > 0 ? one.time_s / s->out->time_s : 0;
    one.median_s = pile_median(&pile[i]);
    if (pile[i].kernels > 0) s->out->classes[s->out->n_classes++] = one;
    if (i == n - 1) s->out->known = 1 - one.share;
    g_array_unref(pile[i].each_s);
  }
  qsort(s->out->classes, (size_t)s->out->n_classes, sizeof *s->out->classes, longer_class);
}

MS_ORDER(longer_kernel, MsTraceKernelTime, MS_MORE(x->time_s, y->time_s), strcmp(x->name, y->name))

/* Those of `row` that occur, the longest first. */
static MsTraceKernelTime *kept(const Sums *s, MsTraceKernelTime *row, int n, int *count) {
  *count = 0;
  for (int i = 0; i < n; i++) {
    if (row[i].kernels <= 0) continue;
    row[i].kernels /= s->steps;
    row[i].time_s /= s->steps;
    row[i].share = s->out->time_s > 0 ? row[i].time_s / s->out->time_s : 0;
    row[(*count)++] = row[i];
  }
  qsort(row, (size_t)*count, sizeof *row, longer_kernel);
  return row;
}

static void sum_names(Sums *s) {
  guint n_families = s->table->families->len, n_names = s->t->names->len;
  MsTraceKernelTime *family = g_new0(MsTraceKernelTime, n_families + 1),
                    *strange = g_new0(MsTraceKernelTime, n_names + 1);
  for (guint i = 0; i < n_families; i++) {
    const MsKernelFamily *f = &g_array_index(s->table->families, MsKernelFamily, i);
    family[i].name = f->name, family[i].class_word = f->class_word;
  }
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    const MsTraceName *name = name_of(s, k);
    MsTraceKernelTime *row = name->family >= 0 ? &family[name->family] : &strange[k->name];
    if (k->step < 0) continue;
    if (name->family < 0) row->name = name->name, row->class_word = ms_kernel_class_word(s->table, -1);
    row->kernels++;
    row->time_s += seconds(k->length_ns);
  }
  s->out->families = kept(s, family, (int)n_families, &s->out->n_families);
  s->out->strange = kept(s, strange, (int)n_names, &s->out->n_strange);
}

/* --- streams --------------------------------------------------------------------------------------------------- */
typedef struct {
  double time_s;
  int index;
} Busy;

MS_ORDER(busier, Busy, MS_MORE(x->time_s, y->time_s), MS_LESS(x->index, y->index))

char *ms_trace_stream_name(const MsTrace *t, int index) {
  const MsTraceStreamId *id = &g_array_index(t->streams, MsTraceStreamId, (guint)index);
  return id->word ? g_strdup(id->word) : g_strdup_printf("%" G_GINT64_FORMAT, id->number);
}

/* The busiest come first, each with its name. */
static void name_streams(Sums *s) {
  int n = (int)s->t->streams->len;
  g_autofree Busy *busy = g_new0(Busy, n + 1);
  for (int i = 0; i < n; i++) busy[i].index = i;
  for (guint i = 0; i < s->t->kernels->len; i++)
    if (kernel(s, i)->step >= 0) busy[kernel(s, i)->stream].time_s += seconds(kernel(s, i)->length_ns);
  qsort(busy, (size_t)n, sizeof *busy, busier);
  s->place = g_new0(int, n + 1);
  s->out->n_streams = MIN(n, MOST_STREAMS);
  s->out->streams = g_new0(MsTraceStreamTime, MOST_STREAMS);
  for (int i = 0; i < n; i++) {
    int place = MIN(i, MOST_STREAMS - 1);
    s->place[busy[i].index] = place;
    if (i >= MOST_STREAMS - 1 && n > MOST_STREAMS) {
      if (i == place) s->out->streams[place].name = g_strdup("others");
    } else s->out->streams[place].name = ms_trace_stream_name(s->t, busy[i].index);
  }
}

MS_ORDER(longer_part, MsTraceClassPart, MS_MORE(x->time_s, y->time_s), strcmp(x->word, y->word))

static void sum_parts(Sums *s) {
  int classes = (int)s->table->classes->len + 1;
  g_autofree double *time_s = g_new0(double, classes * s->out->n_streams);
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    int c = name_of(s, k)->class_index, at = s->place[k->stream];
    if (k->step < 0) continue;
    time_s[at * classes + (c < 0 ? classes - 1 : c)] += seconds(k->length_ns) / s->steps;
    s->out->streams[at].kernels += 1 / s->steps;
    s->out->streams[at].time_s += seconds(k->length_ns) / s->steps;
  }
  for (int i = 0; i < s->out->n_streams; i++) {
    MsTraceStreamTime *stream = &s->out->streams[i];
    stream->parts = g_new0(MsTraceClassPart, classes);
    for (int c = 0; c < classes; c++)
      if (time_s[i * classes + c] > 0)
        stream->parts[stream->n_parts++] =
            (MsTraceClassPart){ms_kernel_class_word(s->table, c), time_s[i * classes + c]};
    qsort(stream->parts, (size_t)stream->n_parts, sizeof *stream->parts, longer_part);
  }
}

/* --- busy, alone, together ------------------------------------------------------------------------------------- */
typedef struct { /* a stretch in which one stream is busy without a break */
  gint64 start_ns, end_ns;
} Stretch;

typedef struct {
  gint64 at_ns;
  gint8 stream;
  gint8 begins;
} Edge;

MS_ORDER(earlier, Edge, MS_LESS(x->at_ns, y->at_ns),
         x->begins != y->begins ? x->begins - y->begins : x->stream - y->stream)

static void add_stretch(GArray *edges, const Stretch *one, int stream) {
  if (one->end_ns == one->start_ns) return;
  Edge a = {one->start_ns, (gint8)stream, 1}, b = {one->end_ns, (gint8)stream, 0};
  g_array_append_val(edges, a);
  g_array_append_val(edges, b);
}

/* Kernels come by start: those of a stream that touch or lie in each other make one stretch. */
static GArray *find_edges(Sums *s, GArray *const *gaps) {
  GArray *edges = g_array_new(FALSE, FALSE, sizeof(Edge));
  Stretch open[MOST_STREAMS];
  gboolean is_open[MOST_STREAMS] = {FALSE};
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    if (k->step < 0) continue;
    int at = s->place[k->stream];
    Stretch mine = {k->start_ns, k->start_ns + k->length_ns};
    if (is_open[at] && mine.start_ns <= open[at].end_ns) {
      open[at].end_ns = MAX(open[at].end_ns, mine.end_ns);
      continue;
    }
    if (is_open[at]) {
      double gap_s = seconds(mine.start_ns - open[at].end_ns);
      add_stretch(edges, &open[at], at);
      if (gap_s <= MS_TRACE_GAP_MOST_S) g_array_append_val(gaps[at], gap_s);
    }
    open[at] = mine;
    is_open[at] = TRUE;
  }
  for (int i = 0; i < s->out->n_streams; i++)
    if (is_open[i]) add_stretch(edges, &open[i], i);
  g_array_sort(edges, earlier);
  return edges;
}

static void add_time(Sums *s, guint64 running, double time_s, double *both_s) {
  if (running == 0) return;
  s->out->busy_s += time_s;
  for (int a = 0; a < s->out->n_streams; a++) {
    if (!(running >> a & 1)) continue;
    s->out->streams[a].busy_s += time_s;
    if (running == G_GUINT64_CONSTANT(1) << a) s->out->streams[a].alone_s += time_s;
    for (int b = a + 1; b < s->out->n_streams; b++)
      if (running >> b & 1) both_s[a * MOST_STREAMS + b] += time_s;
  }
}

static int longer_overlap(const void *a, const void *b) {
  const MsTraceOverlap *x = a, *y = b;
  if (x->both_s != y->both_s) return x->both_s < y->both_s ? 1 : -1;
  int order = strcmp(x->a, y->a);
  return order ? order : strcmp(x->b, y->b);
}

static void list_overlaps(Sums *s, const double *both_s) {
  int n = s->out->n_streams;
  s->out->overlaps = g_new0(MsTraceOverlap, n * n + 1);
  for (int a = 0; a < n; a++)
    for (int b = a + 1; b < n; b++)
      if (both_s[a * MOST_STREAMS + b] > 0)
        s->out->overlaps[s->out->n_overlaps++] =
            (MsTraceOverlap){s->out->streams[a].name, s->out->streams[b].name, both_s[a * MOST_STREAMS + b]};
  qsort(s->out->overlaps, (size_t)s->out->n_overlaps, sizeof *s->out->overlaps, longer_overlap);
}

static void sweep(Sums *s) {
  GArray *gaps[MOST_STREAMS];
  for (int i = 0; i < MOST_STREAMS; i++) gaps[i] = g_array_new(FALSE, FALSE, sizeof(double));
  g_autoptr(GArray) edges = find_edges(s, gaps);
  g_autofree double *both_s = g_new0(double, MOST_STREAMS *MOST_STREAMS);
  guint64 running = 0;
  gint64 last_ns = 0;
  for (guint i = 0; i < edges->len; i++) {
    const Edge *e = &g_array_index(edges, Edge, i);
    add_time(s, running, seconds(e->at_ns - last_ns) / s->steps, both_s);
    last_ns = e->at_ns;
    if (e->begins) running |= G_GUINT64_CONSTANT(1) << e->stream;
    else running &= ~(G_GUINT64_CONSTANT(1) << e->stream);
  }
  for (int i = 0; i < MOST_STREAMS; i++) {
    MsTraceStreamTime *stream = &s->out->streams[i];
    double *gap = (double *)(gpointer)gaps[i]->data;
    for (guint k = 0; k < gaps[i]->len; k++) stream->gap_s += gap[k] / s->steps;
    stream->gaps = gaps[i]->len / s->steps;
    stream->median_gap_s = ms_quantile(gap, gaps[i]->len, 0.5);
    g_array_unref(gaps[i]);
  }
  list_overlaps(s, both_s);
}

/* --- what kernels take beside others ---------------------------------------------------------------------------- */
typedef struct {
  guint32 name, size;      /* 0: not known */
  double time_s, beside_s; /* of the latter another stream is busy */
} Companion;

MS_ORDER(by_name_and_size, Companion, MS_LESS(x->name, y->name), MS_LESS(x->size, y->size))

/* Stretches in which some stream but this one is busy; kernels come by start. */
static GArray *busy_others(const Sums *s, int stream) {
  GArray *out = g_array_new(FALSE, FALSE, sizeof(Stretch));
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    if (s->place[k->stream] == stream || k->step < 0) continue;
    Stretch mine = {k->start_ns, k->start_ns + k->length_ns},
            *last = out->len > 0 ? &g_array_index(out, Stretch, out->len - 1) : NULL;
    if (last && mine.start_ns <= last->end_ns) last->end_ns = MAX(last->end_ns, mine.end_ns);
    else g_array_append_val(out, mine);
  }
  return out;
}

static gboolean is_product(const Sums *s, const MsTraceKernel *k) {
  return g_str_has_suffix(ms_kernel_class_word(s->table, name_of(s, k)->class_index), "gemm");
}

/* The same number for kernels of one name that can be compared; of a product by its sizes, which stand there once for
 * each launch. */
static guint32 size_of(const Sums *s, GHashTable *sizes, const MsTraceKernel *k) {
  if (!is_product(s, k)) return k->grid;
  if (k->link == 0) return 0;
  const MsTraceShape *p = &g_array_index(s->t->shapes, MsTraceShape, k->link - 1);
  g_autofree char *key = g_strdup_printf("%s %g %g %g %g", p->dtype, p->groups, p->m, p->n, p->k);
  gpointer at = g_hash_table_lookup(sizes, key);
  if (!at) g_hash_table_insert(sizes, g_steal_pointer(&key), at = GUINT_TO_POINTER(g_hash_table_size(sizes) + 1));
  return GPOINTER_TO_UINT(at);
}

static void add_companions(const Sums *s, int stream, GHashTable *sizes, GArray *all) {
  g_autoptr(GArray) others = busy_others(s, stream);
  guint first = 0;
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    gint64 end_ns = k->start_ns + k->length_ns, both_ns = 0;
    if (s->place[k->stream] != stream || k->step < 0) continue;
    while (first < others->len && g_array_index(others, Stretch, first).end_ns <= k->start_ns) first++;
    for (guint j = first; j < others->len && g_array_index(others, Stretch, j).start_ns < end_ns; j++) {
      const Stretch *o = &g_array_index(others, Stretch, j);
      both_ns += MIN(o->end_ns, end_ns) - MAX(o->start_ns, k->start_ns);
    }
    Companion one = {k->name, size_of(s, sizes, k), seconds(k->length_ns), seconds(both_ns)};
    g_array_append_val(all, one);
  }
}

/* Whether they may be of one size: what launches as many blocks may still work on more. */
static gboolean agree(GArray *time_s, double most) {
  double *list = (double *)(gpointer)time_s->data;
  return time_s->len >= MS_TRACE_LEAST &&
         ms_quantile(list, time_s->len, 0.9) <= most * ms_quantile(list, time_s->len, 0.1);
}

/* Kernels of one name and size: what those beside others take, and would take alone. */
static void compare_alone(const Companion *one, guint n, double *beside_s, double *alone_s) {
  g_autoptr(GArray) alone = g_array_new(FALSE, FALSE, sizeof(double)),
                    beside = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = 0; i < n; i++) {
    double share = one[i].time_s > 0 ? one[i].beside_s / one[i].time_s : 0;
    if (share <= MOSTLY_ALONE) g_array_append_val(alone, one[i].time_s);
    if (share >= MOSTLY_BESIDE) g_array_append_val(beside, one[i].time_s);
  }
  if (!agree(alone, MS_TRACE_ALIKE) || !agree(beside, MS_TRACE_ALIKE_BESIDE)) return;
  for (guint i = 0; i < beside->len; i++) *beside_s += g_array_index(beside, double, i);
  *alone_s += beside->len * ms_quantile((double *)(gpointer)alone->data, alone->len, 0.5);
}

static MsTraceClassTime *class_time(MsTraceTimes *out, const char *word) {
  for (int i = 0; i < out->n_classes; i++)
    if (strcmp(out->classes[i].word, word) == 0) return &out->classes[i];
  return NULL;
}

static void sum_companions(Sums *s) {
  int n = (int)s->table->classes->len + 1;
  g_autofree double *beside_s = g_new0(double, n), *slow_s = g_new0(double, n), *alone_s = g_new0(double, n);
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Companion));
  g_autoptr(GHashTable) sizes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (int i = 0; i < s->out->n_streams; i++) add_companions(s, i, sizes, all);
  g_array_sort(all, by_name_and_size);
  for (guint i = 0, end; i < all->len; i = end) {
    const Companion *first = &g_array_index(all, Companion, i);
    int c = g_array_index(s->t->names, MsTraceName, first->name).class_index, at = c < 0 ? n - 1 : c;
    for (end = i; end < all->len && by_name_and_size(first, &g_array_index(all, Companion, end)) == 0; end++)
      beside_s[at] += g_array_index(all, Companion, end).beside_s / s->steps;
    if (first->size > 0) compare_alone(first, end - i, &slow_s[at], &alone_s[at]);
  }
  for (int i = 0; i < n; i++) {
    MsTraceClassTime *one = class_time(s->out, ms_kernel_class_word(s->table, i < n - 1 ? i : -1));
    if (!one) continue;
    one->beside = one->time_s > 0 ? beside_s[i] / one->time_s : 0;
    one->slowdown = alone_s[i] > 0 ? slow_s[i] / alone_s[i] : NAN;
  }
}

/* --- steps ----------------------------------------------------------------------------------------------------- */
static void time_steps(Sums *s) {
  GArray *steps = s->t->steps;
  g_autofree double *length_s = g_new0(double, steps->len + 1);
  double span_s = 0;
  for (guint i = 0; i < steps->len; i++) {
    const MsTraceStep *step = &g_array_index(steps, MsTraceStep, i);
    length_s[i] = seconds((i + 1 < steps->len ? step[1].start_ns : step->end_ns) - step->start_ns);
  }
  for (guint i = 0; i < s->t->kernels->len;) { /* the kernels of a step follow each other */
    int step = kernel(s, i)->step;
    gint64 start = kernel(s, i)->start_ns, end = start;
    for (; i < s->t->kernels->len && kernel(s, i)->step == step; i++)
      end = MAX(end, kernel(s, i)->start_ns + kernel(s, i)->length_ns);
    if (step >= 0) span_s += seconds(end - start);
  }
  s->out->step_s = ms_quantile(length_s, steps->len, 0.5);
  s->out->span_s = span_s / s->steps;
}

/* --- shapes ---------------------------------------------------------------------------------------------------- */
static int by_shape(const void *a, const void *b) {
  const MsTraceProduct *x = a, *y = b;
  const double p[] = {x->m, x->n, x->k, x->groups}, q[] = {y->m, y->n, y->k, y->groups};
  for (int i = 0; i < 4; i++)
    if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
  return strcmp(x->dtype, y->dtype);
}

MS_ORDER(by_shape_and_time, MsTraceProduct, by_shape(x, y), MS_LESS(x->median_s, y->median_s))

static void sum_products(Sums *s) {
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsTraceProduct));
  for (guint i = 0; i < s->t->kernels->len; i++) {
    const MsTraceKernel *k = kernel(s, i);
    if (k->link == 0 || k->step < 0 || k->length_ns <= 0) continue;
    const MsTraceShape *shape = &g_array_index(s->t->shapes, MsTraceShape, k->link - 1);
    MsTraceProduct p = {shape->groups, shape->m, shape->n, shape->k, 1, seconds(k->length_ns), 0, ""};
    g_strlcpy(p.dtype, shape->dtype, sizeof p.dtype);
    g_array_append_val(all, p);
  }
  g_array_sort(all, by_shape_and_time);
  s->out->products = g_new0(MsTraceProduct, all->len + 1);
  for (guint i = 0, end; i < all->len; i = end) {
    const MsTraceProduct *first = &g_array_index(all, MsTraceProduct, i);
    for (end = i + 1; end < all->len && by_shape(first, &g_array_index(all, MsTraceProduct, end)) == 0;) end++;
    MsTraceProduct p = g_array_index(all, MsTraceProduct, i + (end - i) / 2);
    p.kernels = end - i;
    p.flops = 2 * p.groups * p.m * p.n * p.k / p.median_s;
    s->out->products[s->out->n_products++] = p;
  }
}

static int by_message(const void *a, const void *b) {
  const MsTraceCollective *x = a, *y = b;
  int order = strcmp(x->op, y->op);
  if (order) return order;
  if (x->ranks != y->ranks) return x->ranks - y->ranks;
  return (x->bytes_B > y->bytes_B) - (x->bytes_B < y->bytes_B);
}

MS_ORDER(by_message_and_time, MsTraceCollective, by_message(x, y), MS_LESS(x->best_s, y->best_s))

static void sum_messages(Sums *s) {
  static const char *const known[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", NULL};
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsTraceCollective));
  for (guint i = 0; i < s->t->messages->len; i++) {
    const MsTraceMessage *m = &g_array_index(s->t->messages, MsTraceMessage, i);
    const MsTraceName *name = &g_array_index(s->t->names, MsTraceName, m->name);
    const char *op = ms_kernel_class_word(s->table, name->class_index);
    MsTraceCollective one = {(char *)op, m->bytes_B, 1, m->length_ns * 1e-9, m->ranks};
    if (g_strv_contains(known, op) && m->length_ns > 0) g_array_append_val(all, one);
  }
  g_array_sort(all, by_message_and_time);
  s->out->collectives = g_new0(MsTraceCollective, all->len + 1);
  for (guint i = 0, end; i < all->len; i = end) {
    MsTraceCollective one = g_array_index(all, MsTraceCollective, i);
    for (end = i + 1; end < all->len && by_message(&one, &g_array_index(all, MsTraceCollective, end)) == 0;) end++;
    one.kernels = end - i;
    s->out->collectives[s->out->n_collectives++] = one;
  }
}

/* --- all of it ------------------------------------------------------------------------------------------------- */
MsTraceTimes *ms_trace_times_new(const MsTrace *t, const MsKernelTable *table) {
  MsTraceTimes *out = g_new0(MsTraceTimes, 1);
  *out = (MsTraceTimes){.file = t->file,
                        .device = t->device,
                        .steps_by = t->steps_by,
                        .rank = t->rank,
                        .ranks = t->ranks,
                        .reference_flops = t->reference_flops,
                        .steps = (int)t->steps->len};
  Sums s = {t, table, out, NULL, t->steps->len};
  sum_classes(&s);
  sum_names(&s);
  name_streams(&s);
  sum_parts(&s);
  sweep(&s);
  sum_companions(&s);
  time_steps(&s);
  sum_products(&s);
  sum_messages(&s);
  g_free(s.place);
  return out;
}

void ms_trace_times_free(MsTraceTimes *times) {
  if (!times) return;
  for (int i = 0; i < times->n_streams; i++) {
    g_free(times->streams[i].name);
    g_free(times->streams[i].parts);
  }
  void *const owned[] = {times->classes, times->streams,  times->overlaps,   times->families,
                         times->strange, times->products, times->collectives};
  for (gsize i = 0; i < G_N_ELEMENTS(owned); i++) g_free(owned[i]);
  g_free(times);
}

/* --- tables for fit -------------------------------------------------------------------------------------------- */
char *ms_trace_gemm_csv(const MsTraceTimes *const *times, int n) {
  GString *out = g_string_new("dtype,m,n,k,latency_us\n");
  gsize head = out->len;
  char text[32];
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < times[i]->n_products; j++) {
      const MsTraceProduct *p = &times[i]->products[j];
      if (p->groups > 1 || !*p->dtype) continue;
      g_string_append_printf(out, "%s,%.0f,%.0f,%.0f,%s\n", p->dtype, p->m, p->n, p->k,
                             ms_double_text(p->median_s * 1e6, text));
    }
  }
  return g_string_free(out, out->len == head);
}

char *ms_trace_collective_csv(const MsTraceTimes *const *times, int n) {
  GString *out = g_string_new("op,num_gpus,bytes,latency_us\n");
  gsize head = out->len;
  char text[32];
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < times[i]->n_collectives; j++) {
      const MsTraceCollective *c = &times[i]->collectives[j];
      g_string_append_printf(out, "%s,%d,%.0f,%s\n", c->op, c->ranks, c->bytes_B,
                             ms_double_text(c->best_s * 1e6, text));
    }
  }
  return g_string_free(out, out->len == head);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const MsFigures class_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("class", STRING, MsTraceClassTime, word, "", "of software/kernels.json, or unrecognised"),
    MS_FIGURE(F64, MsTraceClassTime, kernels, "", "in a step"),
    MS_FIGURE(F64, MsTraceClassTime, time_s, "s", "of a step, all kernels one behind the other"),
    MS_FIGURE(F64, MsTraceClassTime, share, "1", "of the time of all kernels"),
    MS_FIGURE(F64, MsTraceClassTime, median_s, "s", "of one kernel"),
    MS_FIGURE(F64, MsTraceClassTime, beside, "1", "of its time, another stream is busy"),
    MS_FIGURE(F64, MsTraceClassTime, slowdown, "1",
              "what its kernels beside others take, over those of the same name and size "
              "that are alone",
              MS_OR_NULL));
static const MsFigures part_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_AS("class", STRING, MsTraceClassPart, word, "", "on this stream"),
                      MS_FIGURE(F64, MsTraceClassPart, time_s, "s", "of a step"));
static const MsFigures stream_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("stream", STRING, MsTraceStreamTime, name, "", "its number; with its device where there are several"),
    MS_FIGURE(F64, MsTraceStreamTime, kernels, "", "in a step"),
    MS_FIGURE(F64, MsTraceStreamTime, time_s, "s", "of a step, all kernels one behind the other"),
    MS_FIGURE(F64, MsTraceStreamTime, busy_s, "s", "while a kernel of it runs"),
    MS_FIGURE(F64, MsTraceStreamTime, alone_s, "s", "of these, no other stream is busy"),
    MS_FIGURE(F64, MsTraceStreamTime, gaps, "", "between its kernels, up to 100 us: longer ones are waits"),
    MS_FIGURE(F64, MsTraceStreamTime, gap_s, "s", "all of them in a step"),
    MS_FIGURE(F64, MsTraceStreamTime, median_gap_s, "s", "one of them", MS_OR_NULL),
    MS_FIGURE_ARRAY("classes", LIST, MsTraceStreamTime, parts, n_parts, &part_figures));
static const MsFigures overlap_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsTraceOverlap, a, "", "a stream"), MS_FIGURE(STRING, MsTraceOverlap, b, "", "another"),
    MS_FIGURE(F64, MsTraceOverlap, both_s, "s", "of a step in which both are busy"));
static const MsFigures kernel_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(STRING, MsTraceKernelTime, name, "", "of the family, or the kernel"),
                      MS_FIGURE_AS("class", STRING, MsTraceKernelTime, class_word, "", "what it counts as"),
                      MS_FIGURE(F64, MsTraceKernelTime, kernels, "", "in a step"),
                      MS_FIGURE(F64, MsTraceKernelTime, time_s, "s", "of a step"),
                      MS_FIGURE(F64, MsTraceKernelTime, share, "1", "of the time of all kernels"));
static const MsFigures product_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(CHARS, MsTraceProduct, dtype, "", "of the operands"),
    MS_FIGURE(F64, MsTraceProduct, groups, "", "products in one kernel"), MS_FIGURE(F64, MsTraceProduct, m, "", "rows"),
    MS_FIGURE(F64, MsTraceProduct, n, "", "columns"), MS_FIGURE(F64, MsTraceProduct, k, "", "depth"),
    MS_FIGURE(F64, MsTraceProduct, kernels, "", "in all steps"),
    MS_FIGURE(F64, MsTraceProduct, median_s, "s", "of one"),
    MS_FIGURE(F64, MsTraceProduct, flops, "FLOP/s", "of that one"));
static const MsFigures collective_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsTraceCollective, op, "", "the collective"),
    MS_FIGURE(INT, MsTraceCollective, ranks, "", "of its group"),
    MS_FIGURE(F64, MsTraceCollective, bytes_B, "B", "as nccl-tests count"),
    MS_FIGURE(F64, MsTraceCollective, kernels, "", "in the whole file"),
    MS_FIGURE(F64, MsTraceCollective, best_s, "s", "the fastest: the others wait for ranks that are late"));
static gboolean has_reference(const void *times) { return ((const MsTraceTimes *)times)->reference_flops > 0; }
const MsFigures ms_trace_figures = MS_FIGURE_TABLE(
    "trace", "`moesim import kineto|nsys|rocprof|msprof --json`: one object a line for each trace.",
    MS_FIGURE(STRING, MsTraceTimes, file, "", "the trace"),
    MS_FIGURE(STRING, MsTraceTimes, device, "", "as the trace says", MS_OR_NULL),
    MS_FIGURE(INT, MsTraceTimes, rank, "", "as the trace says, -1 where it does not"),
    MS_FIGURE(INT, MsTraceTimes, ranks, "", "as the trace says, 0 where it does not"),
    MS_FIGURE(F64, MsTraceTimes, reference_flops, "FLOP/s", "of the reference kernel beside the steps",
              .when = has_reference, .only = "traces of `moesim exec`"),
    MS_FIGURE(INT, MsTraceTimes, steps, "", "whole steps in the trace; every figure is of one"),
    MS_FIGURE(STRING, MsTraceTimes, steps_by, "", "what they were found by"),
    MS_FIGURE(F64, MsTraceTimes, step_s, "s", "median length of a step"),
    MS_FIGURE(F64, MsTraceTimes, span_s, "s", "from its first kernel to the end of its last"),
    MS_FIGURE(F64, MsTraceTimes, busy_s, "s", "of these, some kernel runs"),
    MS_FIGURE(F64, MsTraceTimes, time_s, "s", "all kernels one behind the other"),
    MS_FIGURE(F64, MsTraceTimes, known, "1", "of that time, kernels that a family of software/kernels.json knows"),
    MS_FIGURE_ARRAY("classes", LIST, MsTraceTimes, classes, n_classes, &class_figures),
    MS_FIGURE_ARRAY("streams", LIST, MsTraceTimes, streams, n_streams, &stream_figures),
    MS_FIGURE_ARRAY("overlaps", LIST, MsTraceTimes, overlaps, n_overlaps, &overlap_figures),
    MS_FIGURE_ARRAY("families", LIST, MsTraceTimes, families, n_families, &kernel_figures),
    MS_FIGURE_ARRAY("unrecognised", LIST, MsTraceTimes, strange, n_strange, &kernel_figures),
    MS_FIGURE_ARRAY("gemms", LIST, MsTraceTimes, products, n_products, &product_figures),
    MS_FIGURE_ARRAY("collectives", LIST, MsTraceTimes, collectives, n_collectives, &collective_figures));
