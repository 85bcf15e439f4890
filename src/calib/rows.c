/* src/calib/rows.c - see rows.h. */
#include "calib/rows.h"

#include "base/quantity.h"
#include "base/stats.h"
#include "calib/fit_priv.h"
#include "calib/solve.h"
#include "cost/terms.h"

#include <math.h>
#include <string.h>

enum { FOLDS = 5, FEWEST = 3, LINE = 2 };

/* --- which curve ----------------------------------------------------------------------------------------------- */
typedef enum { PASS_ANY, PASS_FORWARD, PASS_DGRAD, PASS_WGRAD, PASS_BACKWARD, N_PASSES } PassKey;
static const char *const pass_key_words[N_PASSES] = {NULL, "forward", "dgrad", "wgrad", "backward"};

/* Operands of matrix products are stored differently in every pass; attention and what memory bounds have one backward.
 */
static PassKey pass_of(const MsOp *op) {
  MsOpFamily family = ms_op_families[op->kind];
  if (op->pass == MS_PASS_OPTIMIZER) return PASS_ANY;
  if (op->pass == MS_PASS_FORWARD || op->pass == MS_PASS_RECOMPUTE) return PASS_FORWARD;
  if (family == MS_FAMILY_ATTENTION || family == MS_FAMILY_MEMORY) return PASS_BACKWARD;
  return op->pass == MS_PASS_WGRAD ? PASS_WGRAD : PASS_DGRAD;
}

static gboolean is_message(const MsOp *op) { return ms_op_families[op->kind] == MS_FAMILY_COMM; }

/* Dispatch and combine of an all-to-all dispatcher are that collective. */
static MsOpKind kind_of(const MsOp *op) { return ms_op_moves_tokens(op) ? MS_OP_ALL_TO_ALL : (MsOpKind)op->kind; }

/* Which curve a sample teaches: 0..., -1 none (work on the host). Equal for equal (kind, pass, dtype of messages,
 * ranks). */
static int curve_of(const MsRowSample *s) {
  const MsOp *op = &s->op;
  MsOpKind kind = kind_of(op);
  if (ms_op_families[kind] == MS_FAMILY_HOST || kind == MS_OP_D2H || kind == MS_OP_H2D) return -1;
  if (!is_message(op)) return (int)kind * 1000 + (int)pass_of(op);
  return s->ranks < 2 ? -1 : (int)kind * 1000 + MIN(s->ranks, 400) * 2 + (op->dtype == MS_ODT_FP32);
}

double ms_row_bus_B(const MsRowSample *s) {
  double z = MAX(s->ranks, 2), M = s->op.message_B,
         local = s->op.local_fraction > 0 ? MIN(s->op.local_fraction, 1) : 1 / z;
  switch (kind_of(&s->op)) {
  case MS_OP_ALL_REDUCE: return 2 * M * (z - 1) / z;
  case MS_OP_ALL_TO_ALL: return M * (1 - local);
  case MS_OP_P2P: return M;
  default: return M * (z - 1) / z;
  }
}

static int bucket_of(const MsRowSample *s) {
  const MsOp *op = &s->op;
  double x[MS_ROW_X] = {op->m,
                        op->n,
                        op->k,
                        op->groups,
                        op->kv_groups,
                        op->read_B + op->write_B,
                        is_message(op) ? ms_row_bus_B(s) : 0,
                        curve_of(s)};
  return ms_row_bucket(MS_N_ROW_KINDS, x);
}

char *ms_row_curve_name(const MsCurve *c) {
  return g_strdup_printf("%s%s%s%s%s", c->op, c->pass ? " " : "", c->pass ? c->pass : "", c->dtype ? " " : "",
                         c->dtype ? c->dtype : "");
}

/* --- one curve ------------------------------------------------------------------------------------------------- */
typedef struct {
  const MsRowSample *sample; /* of one curve, in order of shape */
  int *bucket;
  guint n;
} Rows;

typedef struct {
  double cache_B, smooth;
} Choice; /* 0: all bytes alike; < 0: no grid */

static gboolean learns(const Rows *rows, guint i, int fold) { /* fold < 0: all that is not held back */
  return rows->bucket[i] >= MS_HELD_BACK && (fold < 0 || rows->bucket[i] % FOLDS != fold);
}

static double predict(const MsCurve *curve, const MsRowSample *s) {
  if (curve->form == MS_FORM_SEGMENTS) return ms_curve_segments_s(curve, ms_row_bus_B(s));
  MsTerms terms = ms_op_terms(&s->op);
  return ms_curve_terms_s(curve, &terms);
}

/* The columns of the least squares, in the order of the parameters of the form. */
static int columns(const MsRowSample *s, double cache_B, double *x) {
  if (is_message(&s->op)) {
    x[0] = 1, x[1] = ms_row_bus_B(s);
    return LINE;
  }
  MsTerms t = ms_op_terms(&s->op);
  gboolean memory = ms_op_families[s->op.kind] == MS_FAMILY_MEMORY,
           attention = ms_op_families[s->op.kind] == MS_FAMILY_ATTENTION;
  const double all[] = {1,
                        t.groups,
                        memory || attention ? t.m : 0,
                        t.mn,
                        memory ? 0 : t.mk,
                        memory ? 0 : t.nk,
                        t.flop,
                        memory ? t.bytes_B : 0,
                        cache_B > 0 ? MAX(0, t.bytes_B - cache_B) : 0};
  memcpy(x, all, sizeof all);
  if (t.groups == 1 && memory) x[MS_T_GROUP] = 0; /* the launch already */
  return MS_T_CACHE;
}

static void set_params(MsCurve *curve, const double *x, double cache_B) {
  if (curve->form == MS_FORM_SEGMENTS) {
    curve->n_segments = 1;
    curve->segment_alpha_s[0] = ms_round_digits(x[0], 4);
    curve->segment_Bps[0] = x[1] > 1e-15 ? ms_round_digits(1 / x[1], 4) : 1e15;
    return;
  }
  for (int i = 0; i < MS_T_CACHE; i++) curve->param[i] = ms_round_digits(x[i], 5);
  curve->param[MS_T_CACHE] = x[MS_T_FAR_BYTE] > 0 ? cache_B : 0;
}

static void fit_grid(MsCurve *curve, const Rows *rows, int fold, double smooth) {
  static const char *const names[][3] = {{"m", "n", "k"},
                                         {"rows_per_group", "hidden", "width"},
                                         {"seq", "batch_heads", "gqa_group"},
                                         {"bytes"},
                                         {"bytes"}};
  static const int nodes[][3] = {
      {4, 7, 4} /* n reaches from a router's experts to a vocabulary */, {5, 4, 3}, {5, 4, 3}, {10}, {24}};
  ms_grid_clear(&curve->grid);
  if (smooth < 0) return;
  g_autofree MsGridPoint *point = g_new0(MsGridPoint, rows->n + 1);
  guint n = 0;
  for (guint i = 0; i < rows->n; i++) {
    if (!learns(rows, i, fold)) continue;
    const MsRowSample *s = &rows->sample[i];
    if (is_message(&s->op)) {
      point[n].at[0] = ms_row_bus_B(s);
    } else {
      MsTerms terms = ms_op_terms(&s->op);
      memcpy(point[n].at, terms.at, sizeof terms.at);
    }
    point[n].log_ratio = log(s->time_s / MAX(predict(curve, s), 1e-12)), point[n].share = 1;
    n++;
  }
  int family = MIN(ms_op_families[rows->sample[0].op.kind], MS_FAMILY_COMM), dims = family >= MS_FAMILY_MEMORY ? 1 : 3;
  if (!ms_grid_axes(&curve->grid, dims, names[family], nodes[family], point, n)) return;
  ms_grid_fit(&curve->grid, point, n, smooth, 1, 4);
  ms_grid_round(&curve->grid);
}

/* One line cannot follow a collective from latency over cache to memory, and a robust one would call two of them
 * outliers. It goes through the middle of all in ratio, and the grid over bytes does the rest: start of the smallest
 * messages, mean rate of those that take four times as long. */
static void middle_line(const double *x, const double *time_s, guint n, double *line) {
  double logs = 0;
  guint count = 0;
  line[0] = HUGE_VAL, line[1] = 0;
  for (guint i = 0; i < n; i++) line[0] = MIN(line[0], time_s[i]);
  for (guint i = 0; i < n; i++)
    if (time_s[i] > 4 * line[0] && x[LINE * i + 1] > 0) logs += log((time_s[i] - line[0]) / x[LINE * i + 1]), count++;
  if (count > 0) line[1] = exp(logs / count);
}

static guint fit(MsCurve *curve, const Rows *rows, int fold, Choice choice) {
  g_autofree double *x = g_new0(double, rows->n *MS_MAX_PARAMS + 1), *target = g_new(double, rows->n + 1);
  double solution[MS_MAX_PARAMS] = {0};
  guint n = 0;
  int width = 0;
  for (guint i = 0; i < rows->n; i++) {
    if (!learns(rows, i, fold)) continue;
    width = columns(&rows->sample[i], choice.cache_B, x + (gsize)n * (gsize)MAX(width, 0));
    target[n++] = rows->sample[i].time_s;
  }
  if (n > 0 && is_message(&rows->sample[0].op)) middle_line(x, target, n, solution);
  else if (n > 0) ms_solve_terms(x, target, n, width, solution);
  set_params(curve, solution, choice.cache_B);
  fit_grid(curve, rows, fold, choice.smooth);
  return n;
}

/* Mean over the rows that each fold leaves out, of relative errors up to a half. */
static double cross_validated(const MsCurve *like, const Rows *rows, Choice choice) {
  double sum = 0;
  guint n = 0;
  for (int fold = 0; fold < FOLDS; fold++) {
    MsCurve curve = {.form = like->form};
    fit(&curve, rows, fold, choice);
    for (guint i = 0; i < rows->n; i++) {
      if (rows->bucket[i] < MS_HELD_BACK || rows->bucket[i] % FOLDS != fold) continue;
      sum += MIN(0.5, fabs(log(MAX(predict(&curve, &rows->sample[i]), 1e-12) / rows->sample[i].time_s))), n++;
    }
    ms_grid_clear(&curve.grid);
  }
  return n > 0 ? sum / n : HUGE_VAL;
}

/* The simpler one of equals stays. */
static void prefer(const MsCurve *like, const Rows *rows, Choice mine, Choice *best, double *least) {
  double score = cross_validated(like, rows, mine);
  if (score < *least * 0.98) *least = score, *best = mine;
}

/* First the cache, without a grid that could hide it, then the grid. */
static Choice choose(const MsCurve *like, const Rows *rows, guint learned) {
  static const double smooth[] = {10, 3, 1, 0.3, 0.1, 0.03};
  Choice best = {0, -1};
  gboolean message = is_message(&rows->sample[0].op);
  if (learned < 2 * FOLDS) return best;
  double least = HUGE_VAL;
  for (double cache_B = 0; cache_B <= 128e6 && (cache_B == 0 || !message);
       cache_B = cache_B > 0 ? 2 * cache_B : 1 << 20)
    prefer(like, rows, (Choice){cache_B, -1}, &best, &least);
  for (guint i = 0; i < G_N_ELEMENTS(smooth); i++) prefer(like, rows, (Choice){best.cache_B, smooth[i]}, &best, &least);
  return best;
}

static void set_residuals(MsRowCurve *out, const Rows *rows, guint learned) {
  g_autofree double *error = g_new(double, rows->n + 1);
  guint n = 0;
  for (guint i = 0; i < rows->n; i++) {
    if (rows->bucket[i] >= MS_HELD_BACK) continue;
    error[n++] = fabs(predict(&out->curve, &rows->sample[i]) / rows->sample[i].time_s - 1);
  }
  MsProvenance *p = &out->curve.provenance;
  p->n_fitted = learned, p->n_held_back = n;
  p->residual_median = ms_round_digits(ms_quantile(error, n, 0.5), 3);
  p->residual_p90 = ms_round_digits(ms_quantile(error, n, 0.9), 3);
  p->cast_launch_s = p->cast_bw_efficiency = NAN;
}

static void set_key(MsCurve *curve, const MsRowSample *s) {
  curve->op = g_strdup(ms_op_words[kind_of(&s->op)]);
  curve->sustained = 1;
  curve->form = is_message(&s->op) ? MS_FORM_SEGMENTS : MS_FORM_TERMS;
  if (!is_message(&s->op)) {
    curve->pass = g_strdup(pass_key_words[pass_of(&s->op)]);
    return;
  }
  curve->level = g_strdup("nvlink");
  curve->dtype = g_strdup(s->op.dtype == MS_ODT_FP32 ? "fp32" : "bf16");
  curve->ranks = s->ranks;
}

static MsRowCurve fit_curve(const Rows *rows) {
  MsRowCurve out = {.curve = {0}};
  guint learned = 0;
  for (guint i = 0; i < rows->n; i++) learned += learns(rows, i, -1), out.share += rows->sample[i].share;
  set_key(&out.curve, &rows->sample[0]);
  Choice choice = choose(&out.curve, rows, learned);
  fit(&out.curve, rows, -1, choice);
  set_residuals(&out, rows, learned);
  gboolean message = is_message(&rows->sample[0].op);
  out.curve.provenance.form =
      g_strconcat(message ? "alpha + bus bytes / bandwidth"
                          : "sum of seconds per call, group, row, element, FLOP and byte, none negative",
                  out.curve.grid.dims ? ", times residual grid" : "", NULL);
  return out;
}

/* --- all of them ----------------------------------------------------------------------------------------------- */
static int by_shape(const void *a, const void *b) {
  const MsRowSample *x = a, *y = b;
  int c = curve_of(x), d = curve_of(y);
  if (c != d) return c < d ? -1 : 1;
  const MsOp *p = &x->op, *q = &y->op;
  const double u[] = {p->m,         p->n,    p->k,     p->groups, p->kv_groups, p->read_B + p->write_B,
                      p->message_B, p->flop, x->time_s},
               v[] = {q->m,         q->n,    q->k,     q->groups, q->kv_groups, q->read_B + q->write_B,
                      q->message_B, q->flop, y->time_s};
  for (size_t i = 0; i < G_N_ELEMENTS(u); i++)
    if (u[i] != v[i]) return u[i] < v[i] ? -1 : 1;
  return 0;
}

static void set_provenance(MsCurve *curve, const char *data, const char *command, const char *date) {
  curve->provenance.data = g_strdup(data), curve->provenance.command = g_strdup(command),
  curve->provenance.date = g_strdup(date);
}

GArray *ms_fit_rows(const MsRowSample *sample, guint n, const char *data, const char *command, const char *date,
                    GPtrArray *notes) {
  GArray *curves = g_array_new(FALSE, TRUE, sizeof(MsRowCurve));
  g_autofree MsRowSample *sorted = n > 0 ? g_memdup2(sample, sizeof *sample * n) : NULL;
  g_autofree int *bucket = g_new(int, n + 1);
  double total = 0;
  if (n > 0) qsort(sorted, n, sizeof *sorted, by_shape);
  for (guint i = 0; i < n; i++) bucket[i] = bucket_of(&sorted[i]);
  for (guint from = 0, to; from < n; from = to) {
    int key = curve_of(&sorted[from]);
    guint learned = 0;
    for (to = from; to < n && curve_of(&sorted[to]) == key; to++)
      learned += bucket[to] >= MS_HELD_BACK, total += key >= 0 ? sorted[to].share : 0;
    if (key < 0) continue;
    if (learned < FEWEST) {
      PassKey pass = pass_of(&sorted[from].op);
      if (notes)
        g_ptr_array_add(notes, g_strdup_printf("%s%s%s: %u shapes, too few for a curve",
                                               ms_op_words[kind_of(&sorted[from].op)], pass_key_words[pass] ? " " : "",
                                               pass_key_words[pass] ? pass_key_words[pass] : "", learned));
      continue;
    }
    MsRowCurve curve = fit_curve(&(Rows){&sorted[from], &bucket[from], to - from});
    set_provenance(&curve.curve, data, command, date);
    g_array_append_val(curves, curve);
  }
  for (guint i = 0; i < curves->len && total > 0; i++) g_array_index(curves, MsRowCurve, i).share /= total;
  return curves;
}

void ms_row_curves_free(GArray *curves) {
  if (!curves) return;
  for (guint i = 0; i < curves->len; i++) ms_fit_curve_clear(&g_array_index(curves, MsRowCurve, i).curve);
  g_array_unref(curves);
}
