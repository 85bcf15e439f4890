#include "study/align.h"

#include "base/stats.h"
#include "work/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What stays alone costs, by family; a pair that share times how far apart its times are, in factors of e up to
 * LARGEST: two that stay alone cost more than one pair with any times. */
#define PER_LOG     0.4
#define LARGEST     2.0
#define ALONE       1.0
#define ALONE_SMALL 0.25 /* classes that only move memory */
#define OUTSIDE     0.1  /* times that, of rows before the first and behind the last kernel */
enum { NARROWEST = 64, KERNEL_ALONE = 1, ROW_ALONE, PAIR };

/* --- two sequences --------------------------------------------------------------------------------------------- */
typedef struct {
  const MsAlignItem *kernel, *row;
  int n, rows, half; /* half: rows on either side of the band's middle */
  const double *weight;
  double *scale;                /* [classes] measured over simulated */
  double *kernel_log, *row_log; /* of their times, the latter as long as measured */
  int *middle;                  /* [n + 1] */
  guint8 *way;                  /* [n + 1][2 half + 1] */
  double *best[2];              /* [2 half + 1] */
} Table;

static double quartile(GArray *list) { return ms_quantile((double *)(gpointer)list->data, list->len, 0.75); }

/* How much longer kernels of a class take than its rows, before any is known to be one: by the upper quartiles, which a
 * profile of a part of the step has too. */
static double first_scale(const Table *t, int class_index) {
  g_autoptr(GArray) kernels = g_array_new(FALSE, FALSE, sizeof(double)),
                    rows = g_array_new(FALSE, FALSE, sizeof(double));
  for (int i = 0; i < t->n; i++)
    if (t->kernel[i].class_index == class_index) g_array_append_val(kernels, t->kernel[i].time_s);
  for (int i = 0; i < t->rows; i++)
    if (t->row[i].class_index == class_index) g_array_append_val(rows, t->row[i].time_s);
  double scale = kernels->len > 0 && rows->len > 0 ? quartile(kernels) / quartile(rows) : 1;
  return scale > 0 && isfinite(scale) ? scale : 1;
}

/* The same of the pairs that were found. */
static double paired_scale(const Table *t, int class_index, const gint32 *row_of) {
  g_autoptr(GArray) ratio = g_array_new(FALSE, FALSE, sizeof(double));
  for (int i = 0; i < t->n; i++) {
    if (row_of[i] < 0 || t->kernel[i].class_index != class_index || !(t->row[row_of[i]].time_s > 0)) continue;
    double one = t->kernel[i].time_s / t->row[row_of[i]].time_s;
    if (one > 0) g_array_append_val(ratio, one);
  }
  return ratio->len > 0 ? ms_quantile((double *)(gpointer)ratio->data, ratio->len, 0.5) : t->scale[class_index];
}

static void find_logs(Table *t) {
  for (int i = 0; i < t->n; i++) t->kernel_log[i] = log(t->kernel[i].time_s);
  for (int i = 0; i < t->rows; i++) t->row_log[i] = log(t->row[i].time_s * t->scale[t->row[i].class_index]);
}

/* The row at which as much of the time has gone by as at each kernel; it moves by no more than the band is wide. */
static void find_middles(Table *t) {
  double seen_s = 0, passed_s = 0;
  for (int i = 0, at = 0; i <= t->n; i++) {
    while (at < t->rows && passed_s < seen_s) passed_s += t->row[at].time_s * t->scale[t->row[at].class_index], at++;
    int most = i > 0 ? t->middle[i - 1] + t->half : 0,
        least = t->rows - (int)MIN((gint64)(t->n - i) * t->half, t->rows);
    t->middle[i] = CLAMP(at, MIN(least, most), most);
    if (i < t->n) seen_s += t->kernel[i].time_s;
  }
}

static double pair_cost(const Table *t, int i, int j) {
  double apart = fabs(t->kernel_log[i] - t->row_log[j]);
  return t->weight[t->kernel[i].class_index] * PER_LOG * (apart < LARGEST ? apart : LARGEST);
}

static double best_at(const Table *t, int i, int j) {
  int place = j - t->middle[i] + t->half;
  return place < 0 || place > 2 * t->half ? INFINITY : t->best[i % 2][place];
}

static guint8 *way_at(const Table *t, int i, int j) {
  return &t->way[(gsize)i * (2 * (gsize)t->half + 1) + (gsize)(j - t->middle[i] + t->half)];
}

/* The least cost of the first i kernels and the first j rows, and what it ends with. */
static double find_best(const Table *t, int i, int j, guint8 *way) {
  double cost[] = {i == 0 && j == 0 ? 0 : INFINITY, INFINITY, INFINITY, INFINITY};
  if (i > 0) cost[KERNEL_ALONE] = best_at(t, i - 1, j) + t->weight[t->kernel[i - 1].class_index];
  if (j > 0)
    cost[ROW_ALONE] = best_at(t, i, j - 1) + t->weight[t->row[j - 1].class_index] * (i == 0 || i == t->n ? OUTSIDE : 1);
  if (i > 0 && j > 0 && t->kernel[i - 1].class_index == t->row[j - 1].class_index)
    cost[PAIR] = best_at(t, i - 1, j - 1) + pair_cost(t, i - 1, j - 1);
  *way = 0;
  for (guint8 k = 1; k < G_N_ELEMENTS(cost); k++)
    if (cost[k] < cost[*way]) *way = k;
  return cost[*way];
}

static void fill_line(Table *t, int i) {
  double *best = t->best[i % 2];
  for (int place = 0; place <= 2 * t->half; place++) {
    int j = t->middle[i] - t->half + place;
    best[place] = j < 0 || j > t->rows ? INFINITY : find_best(t, i, j, way_at(t, i, j));
  }
}

static void walk_back(const Table *t, gint32 *row_of) {
  for (int i = t->n, j = t->rows; i > 0 || j > 0;) {
    guint8 way = *way_at(t, i, j);
    if (way == PAIR) row_of[i - 1] = j - 1;
    i -= way != ROW_ALONE;
    j -= way != KERNEL_ALONE;
  }
}

/* Kernels right behind that of a row, and of its class, belong to it. */
static void join(const Table *t, gint32 *row_of) {
  for (int i = 1; i < t->n; i++)
    if (row_of[i] < 0 && row_of[i - 1] >= 0 && t->kernel[i].class_index == t->kernel[i - 1].class_index)
      row_of[i] = row_of[i - 1];
}

static void align(Table *t, gint32 *row_of) {
  find_logs(t);
  find_middles(t);
  for (int i = 0; i <= t->n; i++) fill_line(t, i);
  for (int i = 0; i < t->n; i++) row_of[i] = -1;
  walk_back(t, row_of);
}

void ms_align(const MsAlignItem *kernel, int n, const MsAlignItem *row, int rows, const double *weight, int classes,
              gsize most_pairs, gint32 *row_of) {
  gsize half = CLAMP(most_pairs / (2 * ((gsize)n + 1)), NARROWEST, (gsize)MAX(rows, NARROWEST)), width = 2 * half + 1;
  Table t = {.kernel = kernel, .n = n, .row = row, .rows = rows, .half = (int)half, .weight = weight};
  t.scale = g_new(double, classes), t.kernel_log = g_new(double, n + 1), t.row_log = g_new(double, rows + 1);
  t.middle = g_new(int, n + 1), t.way = g_malloc(width * ((gsize)n + 1));
  t.best[0] = g_new(double, width), t.best[1] = g_new(double, width);
  for (int c = 0; c < classes; c++) t.scale[c] = first_scale(&t, c);
  align(&t, row_of);
  for (int c = 0; c < classes; c++) t.scale[c] = paired_scale(&t, c, row_of);
  align(&t, row_of);
  join(&t, row_of);
  void *const owned[] = {t.scale, t.kernel_log, t.row_log, t.middle, t.way, t.best[0], t.best[1]};
  for (gsize i = 0; i < G_N_ELEMENTS(owned); i++) g_free(owned[i]);
}

/* --- of a trace ------------------------------------------------------------------------------------------------ */
typedef struct {
  GArray *item;  /* MsAlignItem */
  GArray *index; /* guint: of the kernel in its trace */
} Sequence;

static void sequence_clear(Sequence *s) {
  g_array_unref(s->item);
  g_array_unref(s->index);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Sequence, sequence_clear)

static const MsTraceKernel *kernel_at(const MsTrace *t, guint i) {
  return &g_array_index(t->kernels, MsTraceKernel, i);
}
static const MsTraceName *name_at(const MsTrace *t, guint i) {
  return &g_array_index(t->names, MsTraceName, kernel_at(t, i)->name);
}
static double seconds(gint64 ns) { return 1e-9 * (double)ns; }

/* By family of the operators that a class covers: what it costs alone; 0: it is left out. */
static double *find_weights(const MsKernelTable *table) {
  double *weight = g_new0(double, table->classes->len + 1);
  for (int op = 0; op < MS_N_OPS; op++) {
    int c = ms_kernel_class_of_op(table, ms_op_words[op]);
    MsOpFamily family = ms_op_families[op];
    if (c >= 0 && family < MS_FAMILY_COMM) weight[c] = family == MS_FAMILY_MEMORY ? ALONE_SMALL : ALONE;
  }
  return weight;
}

static Sequence sequence_of(const MsTrace *t, int step, const double *weight) {
  Sequence s = {g_array_new(FALSE, FALSE, sizeof(MsAlignItem)), g_array_new(FALSE, FALSE, sizeof(guint))};
  for (guint i = 0; i < t->kernels->len; i++) {
    int c = name_at(t, i)->class_index;
    if (kernel_at(t, i)->step != step || c < 0 || !(weight[c] > 0)) continue;
    MsAlignItem item = {c, seconds(kernel_at(t, i)->length_ns)};
    g_array_append_val(s.item, item);
    g_array_append_val(s.index, i);
  }
  return s;
}

/* For which its stream waits in front of each kernel; -1: not known. */
static gint64 *find_gaps(const MsTrace *t) {
  gint64 *gap = g_new(gint64, t->kernels->len + 1);
  g_autofree gint64 *end = g_new(gint64, t->streams->len + 1);
  g_autofree gboolean *begun = g_new0(gboolean, t->streams->len + 1);
  for (guint i = 0; i < t->kernels->len; i++) {
    const MsTraceKernel *k = kernel_at(t, i);
    gint64 last = end[k->stream], mine = k->start_ns + k->length_ns;
    gap[i] = begun[k->stream] ? MAX(k->start_ns - last, 0) : -1;
    if (seconds(gap[i]) > MS_TRACE_GAP_MOST_S) gap[i] = -1;
    end[k->stream] = begun[k->stream] ? MAX(last, mine) : mine;
    begun[k->stream] = TRUE;
  }
  return gap;
}

/* --- operators ------------------------------------------------------------------------------------------------- */
typedef struct {
  MsAlignedOp op;
  GArray *a_s, *b_s, *gap_s;
} Pile;

static void pile_clear(gpointer data) {
  Pile *p = data;
  g_array_unref(p->a_s), g_array_unref(p->b_s), g_array_unref(p->gap_s);
}

static double median(GArray *list) { return ms_quantile((double *)(gpointer)list->data, list->len, 0.5); }

/* Rows of one name and shape are one operator: the place of each row of the sequence. */
static guint *find_piles(const MsTrace *t, const Sequence *s, const MsKernelTable *table, GArray *piles) {
  guint *place = g_new(guint, s->index->len + 1);
  g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < s->index->len; i++) {
    const MsTraceKernel *k = kernel_at(t, g_array_index(s->index, guint, i));
    const MsTraceName *name = &g_array_index(t->names, MsTraceName, k->name);
    const MsTraceShape none = {0}, *shape = k->link ? &g_array_index(t->shapes, MsTraceShape, k->link - 1) : &none;
    g_autofree char *key = g_strdup_printf("%s %g %g %g", name->name, shape->m, shape->n, shape->k);
    gpointer at = g_hash_table_lookup(seen, key);
    if (!at) {
      Pile p = {{.name = name->name,
                 .word = ms_kernel_class_word(table, name->class_index),
                 .m = shape->m,
                 .n = shape->n,
                 .k = shape->k}};
      p.a_s = g_array_new(FALSE, FALSE, sizeof(double)), p.b_s = g_array_new(FALSE, FALSE, sizeof(double));
      p.gap_s = g_array_new(FALSE, FALSE, sizeof(double));
      g_array_append_val(piles, p);
      at = GUINT_TO_POINTER(piles->len);
      g_hash_table_insert(seen, g_steal_pointer(&key), at);
    }
    place[i] = GPOINTER_TO_UINT(at) - 1;
    g_array_append_val(g_array_index(piles, Pile, place[i]).a_s, g_array_index(s->item, MsAlignItem, i).time_s);
  }
  return place;
}

typedef struct {
  const MsTrace *simulated;
  MsTrace *measured;
  const Sequence *rows;
  const guint *place;
  const gint64 *gap;
  GArray *piles;
  double time_s, known_s;
} Match;

static void take_shape(Match *m, guint kernel, guint row) {
  MsTraceKernel *to = &g_array_index(m->measured->kernels, MsTraceKernel, kernel);
  guint32 link = kernel_at(m->simulated, row)->link;
  if (to->link || !link) return;
  g_array_append_val(m->measured->shapes, g_array_index(m->simulated->shapes, MsTraceShape, link - 1));
  to->link = m->measured->shapes->len;
}

/* The kernels of each row are one behind the other. */
static void take_step(Match *m, const Sequence *s, const gint32 *row_of) {
  for (guint i = 0, end; i < s->item->len; i = end) {
    double sum_s = 0;
    for (end = i; end < s->item->len && (end == i || (row_of[i] >= 0 && row_of[end] == row_of[i])); end++)
      sum_s += g_array_index(s->item, MsAlignItem, end).time_s;
    m->time_s += sum_s;
    if (row_of[i] < 0) continue;
    guint kernel = g_array_index(s->index, guint, i);
    Pile *p = &g_array_index(m->piles, Pile, m->place[row_of[i]]);
    double gap_s = seconds(m->gap[kernel]);
    m->known_s += sum_s;
    g_array_append_val(p->b_s, sum_s);
    if (m->gap[kernel] >= 0) g_array_append_val(p->gap_s, gap_s);
    if (end == i + 1) take_shape(m, kernel, g_array_index(m->rows->index, guint, row_of[i]));
  }
}

static int costlier(const void *x, const void *y) {
  const MsAlignedOp *a = x, *b = y;
  double p = fabs(a->stake_s), q = fabs(b->stake_s);
  if (p != q) return p < q ? 1 : -1;
  int order = strcmp(a->name, b->name);
  return order ? order : (a->n > b->n) - (a->n < b->n);
}

static MsAligned *settle(const Match *m) {
  MsAligned *a = g_new0(MsAligned, 1);
  a->op = g_new0(MsAlignedOp, m->piles->len + 1);
  a->share = m->time_s > 0 ? m->known_s / m->time_s : 0;
  for (guint i = 0; i < m->piles->len; i++) {
    Pile *p = &g_array_index(m->piles, Pile, i);
    MsAlignedOp op = p->op;
    op.rows = p->a_s->len;
    op.found = (double)p->b_s->len / m->measured->steps->len;
    op.a_s = median(p->a_s), op.b_s = median(p->b_s), op.gap_s = median(p->gap_s);
    op.ratio = op.b_s > 0 ? op.a_s / op.b_s : NAN;
    op.stake_s = p->b_s->len > 0 ? (op.a_s - op.b_s) * op.rows : 0;
    a->op[a->n++] = op;
  }
  if (a->n > 1) qsort(a->op, (size_t)a->n, sizeof *a->op, costlier);
  return a;
}

MsAligned *ms_aligned_new(const MsTrace *simulated, MsTrace *measured, const MsKernelTable *table) {
  g_autofree double *weight = find_weights(table);
  g_auto(Sequence) rows = sequence_of(simulated, 0, weight);
  g_autoptr(GArray) piles = g_array_new(FALSE, TRUE, sizeof(Pile));
  g_array_set_clear_func(piles, pile_clear);
  g_autofree guint *place = find_piles(simulated, &rows, table, piles);
  g_autofree gint64 *gap = find_gaps(measured);
  Match m = {simulated, measured, &rows, place, gap, piles, 0, 0};
  for (guint step = 0; step < measured->steps->len; step++) {
    g_auto(Sequence) s = sequence_of(measured, (int)step, weight);
    g_autofree gint32 *row_of = g_new(gint32, s.item->len + 1);
    ms_align((const MsAlignItem *)(gpointer)s.item->data, (int)s.item->len,
             (const MsAlignItem *)(gpointer)rows.item->data, (int)rows.item->len, weight, (int)table->classes->len,
             MS_ALIGN_MOST_PAIRS, row_of);
    take_step(&m, &s, row_of);
  }
  return settle(&m);
}

void ms_aligned_free(MsAligned *a) {
  if (!a) return;
  g_free(a->op);
  g_free(a);
}
