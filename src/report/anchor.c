/* src/report/anchor.c - what runs of one's own said of a machine, and what such anchors are worth. */
#include <math.h>
#include <stdlib.h>

#include "base/order.h"
#include "base/text.h"
#include "report/report.h"

/* --- what was learned ------------------------------------------------------------------------------------------ */
MS_ORDER_AT(by_change, MsAnchorLearned, MS_MORE(fabs(log(x->factor)), fabs(log(y->factor))), MS_LESS(x->word, y->word))

static void append_learned(GString *out, const MsAnchored *a) {
  enum { MOST = 3 };
  const MsAnchorLearned *order[MS_N_ANCHORS];
  for (int c = 0; c < MS_N_ANCHORS; c++) order[c] = &a->learned[c];
  qsort(order, MS_N_ANCHORS, sizeof *order, by_change);
  for (int i = 0; i < MOST; i++) {
    const MsAnchorLearned *l = order[i];
    double change = 100 * (l->factor - 1);
    g_string_append_printf(out, "%s%s %.1f %% %s than predicted (+-%.1f, before +-%.1f)", i ? "; " : "", l->word,
                           fabs(change), change < 0 ? "faster" : "slower", 100 * 1.645 * l->sd,
                           100 * 1.645 * l->sd_before);
    if (l->profiles > 0) g_string_append_printf(out, ", %u profile%s", l->profiles, l->profiles > 1 ? "s" : "");
  }
  g_string_append_c(out, '\n');
}

char *ms_report_anchored(const MsAnchored *a) {
  GString *out = g_string_new(NULL);
  append_learned(out, a);
  g_string_append_printf(out, "%u run%s, %u profile%s on %s", a->runs, a->runs == 1 ? "" : "s", a->traces,
                         a->traces == 1 ? "" : "s", a->hardware);
  for (guint i = 0, shown = 0; i < a->n_seen && shown < 4; i++) {
    if (isnan(a->seen[i].before)) continue;
    g_string_append_printf(out, "%s%+.1f %%, now %+.1f %%", shown++ ? "; " : ": ", 100 * a->seen[i].before,
                           100 * a->seen[i].after);
  }
  if (!isnan(a->unexplained)) g_string_append_printf(out, "; unexplained %.1f %%", 100 * a->unexplained);
  g_string_append_printf(out,
                         "\nwhat all errors have in common: +-%.0f %% instead of %.0f, of these models +-%.0f; most is "
                         "still unknown of %s\n",
                         100 * a->band, 100 * a->band_before, 100 * a->models_band, a->unknown);
  return g_string_free(out, FALSE);
}

/* --- what it is worth ------------------------------------------------------------------------------------------ */
#define SHARE(m, d)   MS_FIGURE(F64, MsAnchorWorth, m, "1", d, MS_OR_NULL)
#define MADE(k, m, d) MS_FIGURE_AS(k, F64, MsAnchorWorth, m, "1", d, MS_OR_NULL)
static const MsFigures worth_figures = MS_FIGURE_TABLE(
    "anchor-worth", "Errors of runs with other runs of their site as anchors.",
    MS_FIGURE(STRING, MsAnchorWorth, name, "", "folder of the runs; all"),
    MS_FIGURE(UINT, MsAnchorWorth, sites, "", "of three runs or more: machine and software stack"),
    MS_FIGURE(UINT, MsAnchorWorth, runs, "", "of these sites"),
    MS_FIGURE(UINT, MsAnchorWorth, pairs, "", "of an anchor and a run that is predicted"),
    SHARE(before, "median |error| without an anchor"), SHARE(mean_before, "mean of it"),
    MADE("after_one", after[0], "median |error| with one run as anchor"),
    MADE("mean_after_one", mean_after[0], "mean of it"), MADE("after_two", after[1], "median |error| with two"),
    MADE("mean_after_two", mean_after[1], "mean of it"),
    SHARE(inside_before, "of the times inside their band without an anchor"),
    SHARE(inside_after, "of the times inside their band with one"));
const MsFigures ms_anchor_figures = MS_FIGURE_TABLE(
    "anchor", "`moesim anchor --evaluate --json`.", MS_FIGURE(UINT, MsAnchorEvaluation, runs, "", "that took part"),
    MS_FIGURE(UINT, MsAnchorEvaluation, sites, "", "of three runs or more"),
    MS_FIGURE_ARRAY("sources", LIST, MsAnchorEvaluation, source, n_sources, &worth_figures),
    MS_FIGURE_PART("all", MsAnchorEvaluation, all, &worth_figures, .doc = "all pairs together"));

static void percent(MsTable *table, double value) { ms_table_cell(table, isnan(value) ? "" : MS_PERCENT(value)); }

static void worth_row(MsTable *table, const MsAnchorWorth *w) {
  const double cells[] = {w->before,   w->mean_before,   w->after[0],      w->mean_after[0],
                          w->after[1], w->mean_after[1], w->inside_before, w->inside_after};
  MS_TABLE_ROW(table, w->name, MS_FORMAT("%u", w->sites), MS_FORMAT("%u", w->runs));
  for (gsize i = 0; i < G_N_ELEMENTS(cells); i++) percent(table, cells[i]);
}

char *ms_report_anchor_evaluation(const MsAnchorEvaluation *e) {
  GString *out = g_string_new(NULL);
  MsTable *table = ms_table_new();
  ms_report_extent(out, &e->extent);
  ms_table_column(table, "|error| of the others", FALSE);
  ms_table_columns(table, ">sites|>runs|>median|>mean|>1 anchor|>mean|>2 anchors|>mean|>in band|>1 anchor");
  for (guint i = 0; i < e->n_sources; i++) worth_row(table, &e->source[i]);
  worth_row(table, &e->all);
  ms_table_append(table, out);
  return g_string_free(out, FALSE);
}
