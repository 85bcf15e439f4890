#include "lcma/decide.h"

#include "base/order.h"
#include "base/stats.h"
#include <math.h>
#include <string.h>

typedef struct {
  char *name;
  MsLcmaCounts of;
  int levels;
  double growth;
} Counts;

static void counts_free(gpointer data) {
  Counts *c = data;
  g_free(c->name);
  g_free(c);
}

static Counts *counts_of(const MsScheme *s, const char *name) {
  Counts *c = g_new(Counts, 1);
  *c = (Counts){g_strdup(name),
                {s->m, s->k, s->n, s->r, s->u.nonzeros, s->v.nonzeros, s->w.nonzeros},
                s->levels,
                ms_scheme_growth(s)};
  return c;
}

static Counts *counts_product(const Counts *x, const Counts *y, char joint) {
  Counts *c = g_new(Counts, 1);
  const MsLcmaCounts *a = &x->of, *b = &y->of;
  *c = (Counts){g_strdup_printf("%s%c%s", x->name, joint, y->name),
                {a->m * b->m, a->k * b->k, a->n * b->n, a->r * b->r, a->nnz_u * b->nnz_u, a->nnz_v * b->nnz_v,
                 a->nnz_w * b->nnz_w},
                x->levels + y->levels,
                x->growth * y->growth};
  return c;
}

static gboolean has(const GPtrArray *list, int m, int k, int n) {
  for (guint i = 0; i < list->len; i++) {
    const MsLcmaCounts *c = &((const Counts *)list->pdata[i])->of;
    if (c->m == m && c->k == k && c->n == n) return TRUE;
  }
  return FALSE;
}

/* Every scheme of the table in every order of its sizes, and products with Strassen's; made once. Winograd's variant
 * saves additions only where sums are built from sums, which one pass does not do. */
static const GPtrArray *fused_stages(void) {
  static gsize once;
  static GPtrArray *list;
  if (!g_once_init_enter(&once)) return list;
  GPtrArray *all = g_ptr_array_new_with_free_func(counts_free);
  for (const MsSchemeText *t = ms_scheme_texts; t->name; t++) {
    if (strcmp(t->name, "winograd") == 0) continue;
    MsScheme *s = ms_scheme_parse(t, NULL);
    for (int turn = 0; turn < 6; turn++) {
      if (turn == 0) g_ptr_array_add(all, counts_of(s, t->name));
      else if (!has(all, s->m, s->k, s->n)) g_ptr_array_add(all, counts_of(s, s->name));
      MsScheme *next = turn == 2 ? ms_scheme_transposed(s) : ms_scheme_rotated(s);
      ms_scheme_free(s);
      s = next;
    }
    ms_scheme_free(s);
  }
  const Counts *strassen = NULL;
  for (guint i = 0; i < all->len; i++)
    if (strcmp(((Counts *)all->pdata[i])->name, "strassen") == 0) strassen = all->pdata[i];
  for (guint i = 0, n = all->len; i < n; i++) {
    const Counts *c = all->pdata[i];
    if (c->of.r > 1 && c->of.r * strassen->of.r <= 200) g_ptr_array_add(all, counts_product(c, strassen, '*'));
  }
  list = all;
  g_once_init_leave(&once, 1);
  return list;
}

static double up(double x, double to) { return ceil(x / to) * to; }

void ms_lcma_rows(const MsLcmaMachine *x, const MsLcmaCounts *s, const MsLcmaShape *q, double bm, double bn, double bk,
                  double groups, double *split, double *merge) {
  const size_t real_B = (size_t)x->product_B;
  double a = bm * bk, b = bk * bn, c = bm * bn, c_passes = 2 * groups - 1 + (q->beta ? 1 : 0); /* of C, see decide.h */
  double a_chunk = (double)ms_lcma_chunk(s->m * s->k, real_B), b_chunk = (double)ms_lcma_chunk(s->k * s->n, real_B);
  if (x->slab_B > 0) a_chunk = MIN(a_chunk, up(bk / ceil(bk * x->sum_B / x->slab_B), MS_COMBINE_ALIGN));
  split[MS_SPLIT_READ] = (q->m * q->k + q->k * q->n) * x->input_B * groups;
  split[MS_SPLIT_A] = s->r * a * x->sum_B;
  split[MS_SPLIT_B] = s->r * b * x->sum_B;
  split[MS_SPLIT_TERM] = s->nnz_u * a + s->nnz_v * b;
  split[MS_SPLIT_A_PIECE] = s->r * bm * ceil(bk / a_chunk);
  split[MS_SPLIT_B_PIECE] = s->r * bk * ceil(bn / b_chunk);
  split[MS_SPLIT_START] = groups;
  split[MS_SPLIT_BEYOND] =
      MAX(split[MS_SPLIT_READ] + split[MS_SPLIT_A] + split[MS_SPLIT_B] - groups * x->split_cache_B, 0);
  merge[MS_MERGE_READ] = s->r * c * x->product_B;
  merge[MS_MERGE_C] = c_passes * q->m * q->n * x->product_B;
  merge[MS_MERGE_TERM] = s->nnz_w * c;
  merge[MS_MERGE_PIECE] = s->m * s->n * bm * ceil(bn / (double)ms_lcma_chunk(s->r + 1, real_B));
  merge[MS_MERGE_START] = groups;
  merge[MS_MERGE_BEYOND] = MAX(merge[MS_MERGE_READ] - groups * x->merge_cache_B, 0);
}

/* One stage, done `times` times: adds to the choice's phases. Products by the stage `inner`, NULL: by the machine. */
static void stage(const MsLcmaMachine *x, const Counts *counts, const Counts *inner, const MsLcmaShape *q, double times,
                  double limit_B, MsLcmaChoice *to) {
  const MsLcmaCounts *s = &counts->of;
  double bm = ceil(q->m / s->m), bn = up(q->n / s->n, 4), bk = up(q->k / s->k, 4);
  double each_B = (bm * bk + bk * bn) * x->sum_B + bm * bn * x->product_B, group = s->r;
  if (limit_B > 0 && each_B * s->r > limit_B) group = MAX(floor(limit_B / each_B), 1);
  const double groups = ceil(s->r / group);
  to->workspace_B += each_B * ceil(s->r / groups);
  if (to->groups == 0) to->groups = (int)groups;
  double split[MS_SPLIT_RATES], merge[MS_MERGE_RATES];
  ms_lcma_rows(x, s, q, bm, bn, bk, groups, split, merge);
  to->split_s += times * ms_dot(x->split, split, MS_SPLIT_RATES);
  to->merge_s += times * ms_dot(x->merge, merge, MS_MERGE_RATES);
  to->levels += counts->levels;
  to->growth *= counts->growth;
  if (inner) {
    MsLcmaMachine in_sums = *x; /* the inner stage reads sums */
    in_sums.input_B = x->sum_B;
    stage(&in_sums, inner, NULL, &(MsLcmaShape){bm, bn, bk, FALSE, 0}, times * s->r, MAX(limit_B - to->workspace_B, 0),
          to);
    return;
  }
  to->flop = times * s->r * 2 * bm * bn * bk;
  to->multiply_s = x->product_s(x->data, bm, bn, bk, s->r - (groups - 1) * group);
  if (groups > 1) to->multiply_s += (groups - 1) * x->product_s(x->data, bm, bn, bk, group);
  to->multiply_s *= times;
}

static MsLcmaChoice *choice_new(const MsLcmaMachine *x, const Counts *s, const Counts *inner, const MsLcmaShape *q) {
  MsLcmaChoice *to = g_new0(MsLcmaChoice, 1);
  to->growth = 1;
  stage(x, s, inner, q, 1, q->limit_B, to);
  to->plan = inner ? g_strdup_printf("%s/%s", s->name, inner->name) : g_strdup(s->name);
  to->time_s = to->split_s + to->multiply_s + to->merge_s;
  if (s->of.r == 1) to->levels = 0;
  return to;
}

/* Seconds of the generated kernel, products shared among `groups` thread groups of a tile. */
static double fused_s(const MsLcmaMachine *x, const MsLcmaCounts *s, const MsLcmaShape *q, int groups) {
  const MsLcmaDevice *d = &x->device;
  const MsScheme sizes = {.m = s->m, .k = s->k, .n = s->n, .r = s->r};
  MsSourceOptions o = ms_source_options(&sizes, MS_DIALECT_CUDA, d->type);
  gboolean registers = ms_source_in_registers(&sizes, &o);
  double bm = ceil(q->m / s->m), bn = ceil(q->n / s->n), bk = ceil(q->k / s->k), tile_m = o.tile_m, tile_n = o.tile_n;
  double tiles_m = ceil(bm / tile_m), tiles_n = ceil(bn / tile_n), products = ceil((double)s->r / groups);
  double slots = d->sms * (registers ? 1 : 2) /* C fills the registers of an SM */, all = tiles_m * tiles_n * groups;
  double waves = ceil(all / slots);
  double multiply_s = products * 2 * tile_m * tile_n * bk * slots / d->flops;
  double load_B = products * bk * (s->nnz_u * tile_m + s->nnz_v * tile_n) / s->r * x->input_B;
  double rows = MIN(ceil(slots / tiles_n), tiles_m), cols = MIN(slots, tiles_n); /* of tiles in a wave */
  double memory_B = waves * q->k * x->input_B * (rows * tile_m * s->m + cols * tile_n * s->n);
  memory_B += x->product_B * (registers ? q->m * q->n * (q->beta ? 2 : 1) : 2 * s->nnz_w * bm * bn);
  if (groups > 1) memory_B += 2 * groups * q->m * q->n * x->product_B;
  return d->launch_s * (groups > 1 ? 2 : 1) +
         MAX(waves * MAX(multiply_s, load_B * slots / d->l2_Bps), memory_B / d->hbm_Bps);
}

static MsLcmaChoice *fused_choice(const MsLcmaMachine *x, const Counts *counts, const MsLcmaShape *q) {
  const MsLcmaCounts *s = &counts->of;
  MsLcmaChoice *to = g_new0(MsLcmaChoice, 1);
  to->plan = g_strconcat(counts->name, ":fused", NULL);
  to->levels = counts->levels;
  to->growth = counts->growth;
  to->flop = 2.0 * s->r * ceil(q->m / s->m) * ceil(q->n / s->n) * ceil(q->k / s->k);
  for (int groups = 1; groups <= s->r; groups *= 2) {
    double time_s = fused_s(x, s, q, groups);
    if (groups > 1 && time_s >= to->time_s) continue;
    to->time_s = to->multiply_s = time_s;
    to->groups = groups;
    to->workspace_B = groups > 1 ? groups * q->m * q->n * x->product_B : 0;
  }
  return to;
}

static MsLcmaChoice *library_choice(const MsLcmaMachine *x, const MsLcmaShape *q) {
  MsLcmaChoice *to = g_new0(MsLcmaChoice, 1);
  double time_s = x->library_s(x->data, q->m, q->n, q->k);
  *to = (MsLcmaChoice){.plan = g_strdup("library"),
                       .time_s = time_s,
                       .multiply_s = time_s,
                       .growth = 1,
                       .groups = 1,
                       .flop = 2 * q->m * q->n * q->k};
  return to;
}

static void choice_free(gpointer data) {
  MsLcmaChoice *c = data;
  g_free(c->plan);
  g_free(c);
}

/* By time; equal times by name, so that the order is always the same. */
MS_ORDER_AT(by_time, MsLcmaChoice, MS_LESS(x->time_s, y->time_s), strcmp(x->plan, y->plan))

/* Of the plans that are as good as the fastest, the most accurate comes first. */
static void prefer_accurate(GPtrArray *choices) {
  guint best = 0;
  for (guint i = 1; i < choices->len; i++) {
    const MsLcmaChoice *x = choices->pdata[i], *first = choices->pdata[0], *y = choices->pdata[best];
    if (x->time_s < MS_LCMA_TIE * first->time_s && x->growth < y->growth) best = i;
  }
  if (best > 0) g_ptr_array_insert(choices, 0, g_ptr_array_steal_index(choices, best));
}

GPtrArray *ms_lcma_decide(const MsLcmaMachine *machine, const MsLcmaShape *shape) {
  GPtrArray *choices = g_ptr_array_new_with_free_func(choice_free);
  const GPtrArray *fused = fused_stages();
  const Counts *strassen = NULL, *strassen2 = NULL;
  for (guint i = 0; i < fused->len; i++) {
    const Counts *c = fused->pdata[i];
    if (strcmp(c->name, "strassen") == 0) strassen = c;
    if (strcmp(c->name, "strassen*strassen") == 0) strassen2 = c;
    if (c->of.m > shape->m || c->of.k > shape->k || c->of.n > shape->n) continue;
    g_ptr_array_add(choices, choice_new(machine, c, NULL, shape));
    if (machine->device.sms > 0 && c->of.r > 1) g_ptr_array_add(choices, fused_choice(machine, c, shape));
  }
  g_ptr_array_add(choices, choice_new(machine, strassen, strassen, shape));
  g_ptr_array_add(choices, choice_new(machine, strassen, strassen2,
                                      shape)); /* three levels: depth first, so that the workspace stays bounded */
  for (guint i = choices->len; i-- > 0 && shape->limit_B > 0;)
    if (((MsLcmaChoice *)choices->pdata[i])->workspace_B > shape->limit_B) g_ptr_array_remove_index(choices, i);
  g_ptr_array_sort(choices, by_time);
  if (choices->len > 0) prefer_accurate(choices);
  MsLcmaChoice *library = library_choice(machine, shape);
  guint at = 0;
  gboolean small = MIN(MIN(shape->m, shape->n), shape->k) < machine->least_side;
  const MsLcmaChoice *best = choices->len && !small ? choices->pdata[0] : NULL;
  if (best && (best->time_s + machine->doubt * (best->split_s + best->merge_s)) * machine->margin < library->time_s)
    while (at < choices->len && ((MsLcmaChoice *)choices->pdata[at])->time_s < library->time_s) at++;
  g_ptr_array_insert(choices, (gint)at, library);
  return choices;
}

const MsLcmaChoice *ms_lcma_choice_of(const GPtrArray *choices, const char *plan) {
  for (guint i = 0; i < choices->len; i++)
    if (strcmp(((const MsLcmaChoice *)choices->pdata[i])->plan, plan) == 0) return choices->pdata[i];
  return NULL;
}
