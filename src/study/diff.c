#include "study/diff.h"

#include "base/err.h"
#include "base/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- rows ------------------------------------------------------------------------------------------------------ */
static double part_s(const MsProfilePart *part, int n, const char *word) {
  for (int i = 0; i < n; i++)
    if (strcmp(part[i].word, word) == 0) return part[i].time_s;
  return 0;
}

static double ratio_of(double a, double b) { return a > 0 && b > 0 ? a / b : NAN; }

MS_ORDER(costlier_row, MsDiffRow, MS_MORE(fabs(x->stake_s), fabs(y->stake_s)), strcmp(x->word, y->word))

static void add_row(MsDiff *d, const char *word) {
  for (int i = 0; i < d->n_rows; i++)
    if (strcmp(d->row[i].word, word) == 0) return;
  double a = part_s(d->a->part, d->a->n_parts, word), b = part_s(d->b->part, d->b->n_parts, word);
  d->row = g_renew(MsDiffRow, d->row, d->n_rows + 1);
  d->row[d->n_rows++] = (MsDiffRow){g_strdup(word), a, b, ratio_of(a, b), a - b};
}

static void compare_rows(MsDiff *d) {
  for (int i = 0; i < d->a->n_parts; i++) add_row(d, d->a->part[i].word);
  for (int i = 0; i < d->b->n_parts; i++) add_row(d, d->b->part[i].word);
  if (d->n_rows > 1) qsort(d->row, (size_t)d->n_rows, sizeof *d->row, costlier_row);
}

/* --- streams --------------------------------------------------------------------------------------------------- */
/* Seconds of the same classes. */
static double in_common(const MsProfileStream *a, const MsProfileStream *b) {
  double sum = 0;
  for (int i = 0; i < a->n_parts; i++) sum += MIN(a->part[i].time_s, part_s(b->part, b->n_parts, a->part[i].word));
  return sum;
}

static void add_stream(MsDiff *d, const MsProfileStream *a, const MsProfileStream *b) {
  MsDiffStream s = {
      a ? g_strdup(a->name) : NULL, b ? g_strdup(b->name) : NULL, a ? a->busy_s : 0, b ? b->busy_s : 0, NAN, NAN};
  s.ratio = ratio_of(s.a_s, s.b_s);
  s.stake_s = s.a_s - s.b_s;
  d->stream = g_renew(MsDiffStream, d->stream, d->n_streams + 1);
  d->stream[d->n_streams++] = s;
}

MS_ORDER(costlier_stream, MsDiffStream, MS_MORE(fabs(x->stake_s), fabs(y->stake_s)),
         g_strcmp0(x->a ? x->a : x->b, y->a ? y->a : y->b))

/* Again and again the two that have most in common. */
static void pair_streams(MsDiff *d) {
  int n = d->a->n_streams, m = d->b->n_streams;
  g_autofree gboolean *done_a = g_new0(gboolean, n + 1), *done_b = g_new0(gboolean, m + 1);
  for (;;) {
    int best_a = -1, best_b = -1;
    double most = 0;
    for (int i = 0; i < n; i++) {
      for (int k = 0; k < m && !done_a[i]; k++) {
        double common = done_b[k] ? 0 : in_common(&d->a->stream[i], &d->b->stream[k]);
        if (common > most) most = common, best_a = i, best_b = k;
      }
    }
    if (best_a < 0) break;
    add_stream(d, &d->a->stream[best_a], &d->b->stream[best_b]);
    done_a[best_a] = done_b[best_b] = TRUE;
  }
  for (int i = 0; i < n; i++)
    if (!done_a[i]) add_stream(d, &d->a->stream[i], NULL);
  for (int k = 0; k < m; k++)
    if (!done_b[k]) add_stream(d, NULL, &d->b->stream[k]);
  if (d->n_streams > 1) qsort(d->stream, (size_t)d->n_streams, sizeof *d->stream, costlier_stream);
}

/* --- configurations -------------------------------------------------------------------------------------------- */
static void add_key(MsDiff *d, const char *path, const char *a, const char *b) {
  if (!a || !b || strcmp(a, b) == 0) return;
  d->key = g_renew(MsComparedKey, d->key, d->n_keys + 1);
  d->key[d->n_keys++] = (MsComparedKey){g_strdup(path), g_strdup(a), g_strdup(b)};
}

static void compare_keys(MsDiff *d) {
  const MsProfile *a = d->a, *b = d->b;
  if (a->scenario && b->scenario) {
    add_key(d, "model", a->scenario->model->name, b->scenario->model->name);
    add_key(d, "hardware", a->scenario->hardware->name, b->scenario->hardware->name);
    MsComparison *c = ms_compare(a->scenario, a->result, b->scenario, b->result);
    for (int i = 0; i < c->n_keys; i++) add_key(d, c->key[i].path, c->key[i].a, c->key[i].b);
    ms_comparison_free(c);
    return;
  }
  g_autofree char *x = a->ranks > 0 ? g_strdup_printf("%d", a->ranks) : NULL,
                  *y = b->ranks > 0 ? g_strdup_printf("%d", b->ranks) : NULL;
  add_key(d, "device", a->device, b->device);
  add_key(d, "gpus", x, y);
}

/* --- the model ------------------------------------------------------------------------------------------------- */
MS_ORDER(by_size, double, MS_LESS(*x, *y), 0)

/* Forward, dgrad and wgrad of a product have the same three sizes in another order. */
static gboolean same_sizes(const MsTraceProduct *a, const MsTraceProduct *b) {
  double x[3] = {a->m, a->n, a->k}, y[3] = {b->m, b->n, b->k};
  qsort(x, 3, sizeof *x, by_size);
  qsort(y, 3, sizeof *y, by_size);
  return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

static double product_s(const MsTraceProduct *p) { return p->kernels * p->median_s; }

/* Share of the time of a's products whose sizes b has too; *strange: the longest that it has not. */
static double shared(const MsProfile *a, const MsProfile *b, const MsTraceProduct **strange) {
  double all = 0, found = 0, longest = 0;
  for (int i = 0; i < a->n_products; i++) {
    const MsTraceProduct *p = &a->product[i];
    gboolean has = FALSE;
    for (int k = 0; k < b->n_products && !has; k++) has = same_sizes(p, &b->product[k]);
    all += product_s(p);
    if (has) found += product_s(p);
    else if (product_s(p) > longest) longest = product_s(p), *strange = p;
  }
  return all > 0 ? found / all : 1;
}

static gboolean same_model(const MsProfile *a, const MsProfile *b, GPtrArray *notes, GError **error) {
  const MsTraceProduct *strange = NULL;
  if (a->n_products == 0 || b->n_products == 0) return TRUE;
  if (a->kind == MS_PROFILE_SCENARIO && b->kind == MS_PROFILE_SCENARIO) return TRUE; /* what differs is named below */
  double share = shared(b, a, &strange);
  if (share > 0 && strange)
    g_ptr_array_add(notes, g_strdup_printf("%s: %.0f %% of the time of its products have sizes that %s does not have, "
                                           "%g x %g x %g most of all",
                                           b->file, 100 * (1 - share), a->file, strange->m, strange->n, strange->k));
  return share > 0 || ms_input_error(error, b->file, 0, NULL,
                                     "is of another model or layout than %s: no product there has the sizes %g x %g x "
                                     "%g of its longest, nor of any other",
                                     a->file, strange->m, strange->n, strange->k);
}

/* --- the step ---------------------------------------------------------------------------------------------------- */
/* Kernels of a class in a step. A product is a kernel; experts may be one each and attention three backward, but no run
 * has a third of what its step needs. */
static const struct {
  const char *word;
  double least, most; /* measured over predicted */
} classes_counted[] = {{"gemm", 1. / 3, INFINITY}, {"attention", 1. / 3, 6}};

static double kernels_of(const MsTrace *t, const MsKernelTable *table, const char *word) {
  double n = 0;
  for (guint i = 0; i < t->kernels->len; i++) {
    const MsTraceKernel *k = &g_array_index(t->kernels, MsTraceKernel, i);
    int c = g_array_index(t->names, MsTraceName, k->name).class_index;
    n += k->step >= 0 && c >= 0 && strcmp(ms_kernel_class_word(table, c), word) == 0;
  }
  return n / MAX(t->steps->len, 1);
}

char *ms_diff_stranger(const MsProfile *scenario, const MsProfile *trace, const MsKernelTable *table) {
  for (gsize i = 0; scenario->trace && trace->trace && i < G_N_ELEMENTS(classes_counted); i++) {
    double want = kernels_of(scenario->trace, table, classes_counted[i].word),
           has = kernels_of(trace->trace, table, classes_counted[i].word);
    if (want > 0 && has > 0 && (has < classes_counted[i].least * want || has > classes_counted[i].most * want))
      return g_strdup_printf("has %.0f kernels of the class %s a step where %s has %.0f: a part of its step, or of "
                             "another run",
                             has, classes_counted[i].word, scenario->file, want);
  }
  return NULL;
}

/* Times stay as they were measured. */
static void note_speed(const MsProfile *scenario, const MsProfile *trace, GPtrArray *notes) {
  double speed = ms_profile_speed(trace, scenario->scenario->hardware);
  if (fabs(speed - 1) > 0.01)
    g_ptr_array_add(notes, g_strdup_printf("%s: this machine ran at %.2f of the speed that %s is of", trace->file,
                                           speed, scenario->device));
}

MsDiff *ms_diff_new(MsProfile *a, MsProfile *b, const MsKernelTable *table, GPtrArray *notes, GError **error) {
  if (!same_model(a, b, notes, error)) return NULL;
  if (a->coarse || b->coarse) {
    ms_profile_fold(a, table);
    ms_profile_fold(b, table);
  }
  MsDiff *d = g_new0(MsDiff, 1);
  d->a = a;
  d->b = b;
  compare_rows(d);
  pair_streams(d);
  compare_keys(d);
  if (a->kind == MS_PROFILE_SCENARIO && b->kind == MS_PROFILE_TRACE) {
    g_autofree char *stranger = ms_diff_stranger(a, b, table);
    if (stranger) g_ptr_array_add(notes, g_strdup_printf("%s: %s", b->file, stranger));
    d->aligned = ms_aligned_new(a->trace, b->trace, table);
    note_speed(a, b, notes);
  }
  if (b->kind == MS_PROFILE_SCENARIO && a->kind == MS_PROFILE_TRACE) {
    d->aligned = ms_aligned_new(b->trace, a->trace, table);
    note_speed(b, a, notes);
  }
  return d;
}

void ms_diff_free(MsDiff *d) {
  if (!d) return;
  for (int i = 0; i < d->n_rows; i++) g_free(d->row[i].word);
  for (int i = 0; i < d->n_streams; i++) {
    g_free(d->stream[i].a);
    g_free(d->stream[i].b);
  }
  for (int i = 0; i < d->n_keys; i++) {
    g_free(d->key[i].path);
    g_free(d->key[i].a);
    g_free(d->key[i].b);
  }
  ms_aligned_free(d->aligned);
  g_free(d->row);
  g_free(d->stream);
  g_free(d->key);
  g_free(d);
}
