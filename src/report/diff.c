/* src/report/diff.c - two profiles of a step beside each other. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

/* --- figures --------------------------------------------------------------------------------------------------- */

static const MsFigures side_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsProfile, file, "", "what was given"),
    MS_FIGURE_WORDS("kind", MsProfile, kind, ms_profile_words, "scenario, trace, saved profile, saved prediction"),
    MS_FIGURE(STRING, MsProfile, device, "", "machine of a scenario, what a profiler calls the GPU", MS_OR_NULL),
    MS_FIGURE(INT, MsProfile, stage, "", "pipeline stage of a scenario that is shown, -1 otherwise"),
    MS_FIGURE(F64, MsProfile, step_s, "s", "of a step", MS_OR_NULL),
    MS_FIGURE(F64, MsProfile, busy_s, "s", "of these, some kernel runs", MS_OR_NULL));
static const MsFigures row_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("class", STRING, MsDiffRow, word, "", "of kernels, or family of operators"),
    MS_FIGURE(F64, MsDiffRow, a_s, "s", "of a step, all kernels one behind the other"),
    MS_FIGURE(F64, MsDiffRow, b_s, "s", "likewise"), MS_FIGURE(F64, MsDiffRow, ratio, "1", "a / b", MS_OR_NULL),
    MS_FIGURE(F64, MsDiffRow, stake_s, "s", "a - b"));
static const MsFigures stream_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(STRING, MsDiffStream, a, "", "a stream", MS_OR_NULL),
                      MS_FIGURE(STRING, MsDiffStream, b, "", "that which has most of its classes", MS_OR_NULL),
                      MS_FIGURE(F64, MsDiffStream, a_s, "s", "of a step in which it is busy", MS_OR_NULL),
                      MS_FIGURE(F64, MsDiffStream, b_s, "s", "likewise", MS_OR_NULL),
                      MS_FIGURE(F64, MsDiffStream, ratio, "1", "a / b", MS_OR_NULL),
                      MS_FIGURE(F64, MsDiffStream, stake_s, "s", "a - b", MS_OR_NULL));
static const MsFigures key_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_AS("key", STRING, MsComparedKey, path, "", "that differs"),
                      MS_FIGURE(STRING, MsComparedKey, a, "", "its value, as JSON where it is of a scenario"),
                      MS_FIGURE(STRING, MsComparedKey, b, "", "likewise"));
static const MsFigures operator_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_AS("operator", STRING, MsAlignedOp, name, "", "of the scenario, with its pass"),
                      MS_FIGURE_AS("class", STRING, MsAlignedOp, word, "", "of its kernels"),
                      MS_FIGURE(F64, MsAlignedOp, m, "", "rows of a product; 0: of no known shape"),
                      MS_FIGURE(F64, MsAlignedOp, n, "", "columns"), MS_FIGURE(F64, MsAlignedOp, k, "", "depth"),
                      MS_FIGURE(F64, MsAlignedOp, rows, "", "how many a step has"),
                      MS_FIGURE(F64, MsAlignedOp, found, "", "of these, found in a measured step"),
                      MS_FIGURE_AS("predicted_s", F64, MsAlignedOp, a_s, "s", "median of one"),
                      MS_FIGURE_AS("measured_s", F64, MsAlignedOp, b_s, "s", "likewise, of those found", MS_OR_NULL),
                      MS_FIGURE(F64, MsAlignedOp, ratio, "1", "predicted / measured", MS_OR_NULL),
                      MS_FIGURE(F64, MsAlignedOp, stake_s, "s", "predicted - measured, of all in a step"),
                      MS_FIGURE(F64, MsAlignedOp, gap_s, "s",
                                "median wait of its stream in front of it, of waits up to 100 us", MS_OR_NULL));
static const MsFigures aligned_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, MsAligned, share, "1", "of the time of kernels that compute, those of an operator"),
    MS_FIGURE_ARRAY("operators", LIST, MsAligned, op, n, &operator_figures));
const MsFigures ms_diff_figures = MS_FIGURE_TABLE(
    "diff", "`moesim diff --json`.", MS_FIGURE_OBJECT_AT("a", MsDiff, a, &side_figures, .doc = "the first file"),
    MS_FIGURE_OBJECT_AT("b", MsDiff, b, &side_figures, .doc = "the second"),
    MS_FIGURE_ARRAY("classes", LIST, MsDiff, row, n_rows, &row_figures),
    MS_FIGURE_ARRAY("streams", LIST, MsDiff, stream, n_streams, &stream_figures),
    MS_FIGURE_ARRAY("configuration", LIST, MsDiff, key, n_keys, &key_figures),
    MS_FIGURE_OBJECT_AT("aligned", MsDiff, aligned, &aligned_figures, .only = "a scenario beside a trace",
                        .doc = "which kernel is which operator"));

/* --- text ------------------------------------------------------------------------------------------------------ */
static gboolean is_predicted(const MsProfile *p) {
  return p->kind == MS_PROFILE_SCENARIO || p->kind == MS_PROFILE_SAVED_RUN;
}

void ms_report_diff_titles(const MsDiff *d, const char **a, const char **b) {
  gboolean x = is_predicted(d->a), y = is_predicted(d->b);
  *a = x == y ? "A" : x ? "predicted" : "measured";
  *b = x == y ? "B" : y ? "predicted" : "measured";
}

static void append_side(GString *out, const char *title, const MsProfile *p) {
  g_string_append_printf(out, "%s: %s (%s", title, p->file, ms_profile_words[p->kind]);
  if (p->device) g_string_append_printf(out, ", %s", p->device);
  if (p->stage >= 0 && (!p->result || p->result->stages > 1)) g_string_append_printf(out, ", stage %d", p->stage);
  g_string_append_printf(out, "), step %s", MS_SECONDS(p->step_s));
  if (!isnan(p->busy_s)) g_string_append_printf(out, ", some kernel runs in %s", MS_SECONDS(p->busy_s));
  g_string_append_c(out, '\n');
}

static void seconds(MsTable *table, double time_s) {
  ms_table_cell(table, time_s == 0 || isnan(time_s) ? "-" : MS_SECONDS(time_s));
}

static void figures(MsTable *table, double a_s, double b_s, double ratio, double stake_s) {
  seconds(table, a_s);
  seconds(table, b_s);
  if (isnan(ratio)) ms_table_cell(table, "");
  else ms_table_cellf(table, "%.3f", ratio);
  if (isnan(stake_s)) ms_table_cell(table, "");
  else if (fabs(stake_s) < 5e-10) ms_table_cell(table, "-"); /* a profiler's clock */
  else ms_table_cellf(table, "%s%s", stake_s < 0 ? "-" : "+", MS_SECONDS(fabs(stake_s)));
}

static void four_columns(MsTable *table, const char *a, const char *b) {
  ms_table_column(table, a, TRUE);
  ms_table_column(table, b, TRUE);
  ms_table_columns(table, ">ratio|>at stake");
}

enum { MOST_OPERATORS = 15 };

static void append_classes(GString *out, const MsDiff *d, const char *a, const char *b) {
  MsTable *table = ms_table_new();
  double sum_a = 0, sum_b = 0;
  ms_table_column(table, "class", FALSE);
  four_columns(table, a, b);
  for (int i = 0; i < d->n_rows; i++) {
    const MsDiffRow *r = &d->row[i];
    ms_table_cell(table, r->word);
    figures(table, r->a_s, r->b_s, r->ratio, r->stake_s);
    sum_a += r->a_s, sum_b += r->b_s;
  }
  ms_table_cell(table, "all kernels");
  figures(table, sum_a, sum_b, sum_b > 0 ? sum_a / sum_b : NAN, sum_a - sum_b);
  ms_table_append_below(table, out);
}

static void append_streams(GString *out, const MsDiff *d, const char *a, const char *b) {
  if (d->a->n_streams == 0 || d->b->n_streams == 0) return;
  MsTable *table = ms_table_of("streams");
  four_columns(table, a, b);
  for (int i = 0; i < d->n_streams; i++) {
    const MsDiffStream *s = &d->stream[i];
    ms_table_cellf(table, "%s | %s", s->a ? s->a : "-", s->b ? s->b : "-");
    figures(table, s->a_s, s->b_s, s->ratio, s->stake_s);
  }
  ms_table_append_below(table, out);
}

static void append_operators(GString *out, const MsAligned *a) {
  if (!a || a->n == 0) return;
  MsTable *table = ms_table_of("operator|>rows|>found|>predicted|>measured|>ratio|>at stake|>gap before");
  for (int i = 0; i < a->n && i < MOST_OPERATORS; i++) {
    const MsAlignedOp *op = &a->op[i];
    MS_TABLE_ROW(table, op->name, MS_FORMAT("%g", op->rows), MS_FORMAT("%.4g", op->found));
    figures(table, op->a_s, op->b_s, op->ratio, op->found > 0 ? op->stake_s : NAN);
    seconds(table, op->gap_s);
  }
  ms_table_append_below(table, out);
  g_string_append_printf(out, "operators were found for %s of the time of the kernels that compute\n",
                         MS_PERCENT(a->share));
  if (a->n > MOST_OPERATORS) g_string_append_printf(out, "%d more: --json\n", a->n - MOST_OPERATORS);
}

static void append_keys(GString *out, const MsDiff *d, const char *a, const char *b) {
  if (d->n_keys == 0) return;
  MsTable *table = ms_table_of("differs in");
  ms_table_column(table, a, FALSE);
  ms_table_column(table, b, FALSE);
  for (int i = 0; i < d->n_keys; i++) { MS_TABLE_ROW(table, d->key[i].path, d->key[i].a, d->key[i].b); }
  ms_table_append_below(table, out);
}

char *ms_report_diff(const MsDiff *diff) {
  const char *a, *b;
  ms_report_diff_titles(diff, &a, &b);
  GString *out = g_string_new(NULL);
  append_side(out, a, diff->a);
  append_side(out, b, diff->b);
  append_classes(out, diff, a, b);
  append_streams(out, diff, a, b);
  append_operators(out, diff->aligned);
  append_keys(out, diff, a, b);
  return g_string_free(out, FALSE);
}
