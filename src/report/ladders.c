/* src/report/ladders.c - rank order and single-knob changes, as text and JSON. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

enum { FEW_KNOBS = 12 };

static void tau_cell(MsTable *table, const MsOrder *order) {
  double tau = ms_order_tau(order);
  if (isnan(tau)) ms_table_cell(table, "-");
  else ms_table_cellf(table, "%.3f", tau);
}

static void share_cell(MsTable *table, const MsOrder *order) {
  ms_table_cell(table, order->pairs > 0 ? MS_PERCENT((double)order->right / order->pairs) : "-");
}

static void order_row(MsTable *table, const char *name, const MsOrder *order) {
  MS_TABLE_ROW(table, name, MS_FORMAT("%u", order->pairs));
  tau_cell(table, order);
  share_cell(table, order);
}

static MsTable *order_table(const char *first) {
  MsTable *table = ms_table_new();
  ms_table_column(table, first, FALSE);
  ms_table_columns(table, ">pairs|>Kendall tau|>right");
  return table;
}

static void append_ladders(GString *out, const MsLadders *all) {
  MsTable *table = ms_table_of("published ladder|kind|>runs|>pairs|>Kendall tau|>single knob|>right");
  for (guint i = 0; i < all->n; i++) {
    const MsLadder *l = &all->ladders[i];
    if (!l->published) continue;
    MS_TABLE_ROW(table, l->name, l->kind);
    ms_table_cellf(table, l->found < l->listed ? "%u of %u" : "%u", l->found, l->listed);
    ms_table_cellf(table, "%u", l->order.pairs);
    tau_cell(table, &l->order);
    ms_table_cellf(table, "%u", l->single.pairs);
    share_cell(table, &l->single);
  }
  ms_table_append_below(table, out);
}

char *ms_report_ladders(const MsLadders *all) {
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%u ladders, %u with fewer than two predicted runs left out; mean Kendall tau %.3f\n",
                         all->n, all->skipped, all->mean_tau);
  MsTable *table = order_table("pairs of runs");
  order_row(table, "all", &all->all);
  order_row(table, "of published ladders", &all->published);
  order_row(table, "measured more than 1 % apart", &all->clear);
  order_row(table, "one knob apart", &all->single_all);
  order_row(table, "one knob and more than 1 % apart", &all->single);
  order_row(table, "of them in published ladders", &all->single_published);
  ms_table_append_below(table, out);
  table = order_table("knob (more than 1 % apart)");
  for (guint i = 0; i < all->n_knobs && i < FEW_KNOBS; i++) order_row(table, all->knobs[i].knob, &all->knobs[i].order);
  ms_table_append_below(table, out);
  append_ladders(out, all);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static double order_tau(const void *order) { return ms_order_tau(order); }
static double share_right(const void *order) {
  const MsOrder *o = order;
  return o->pairs > 0 ? (double)o->right / o->pairs : NAN;
}

static const MsFigures order_figures =
    MS_FIGURE_TABLE("order", "Of pairs of runs: whether the faster one was predicted to be the faster.",
                    MS_FIGURE(UINT, MsOrder, pairs, "", "right, wrong and ties of predictions"),
                    MS_FIGURE(UINT, MsOrder, right, "", "in the measured order"),
                    MS_FIGURE(UINT, MsOrder, wrong, "", "the other way round"),
                    MS_FIGURE_OF("tau", F64, order_tau, "1", "Kendall's: (right - wrong) / pairs", MS_OR_NULL),
                    MS_FIGURE_OF("share_right", F64, share_right, "1", "of the pairs", MS_OR_NULL));

#define S                 MsLadders
#define ORDER(k, S, m, d) MS_FIGURE_PART(k, S, m, &order_figures, .doc = d)
const MsFigures ms_ladders_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, S, mean_tau, "1", "mean of Kendall's tau over the ladders", MS_OR_NULL),
    ORDER("pooled", S, all, "pairs of runs of all ladders"), ORDER("published", S, published, "of published ladders"),
    ORDER("clear", S, clear, "measured more than 1 % apart"),
    ORDER("single_knob_all", S, single_all, "that differ in one key, with those less than 1 % apart"),
    ORDER("single_knob", S, single, "that differ in one key"),
    ORDER("single_knob_published", S, single_published, "of these in published ladders"),
    MS_FIGURE_ARRAY("by_knob", MAP, S, knobs, n_knobs, MS_FIGURES(MS_FIGURE_PART("", MsKnob, order, &order_figures)),
                    .name = ms_figure_first_string, .doc = "by the key in which the two differ"),
    MS_FIGURE_ARRAY("ladders", LIST, S, ladders, n,
                    MS_FIGURES(MS_FIGURE(STRING, MsLadder, name, "", "of the set of runs"),
                               MS_FIGURE(STRING, MsLadder, kind, "", "what the set varies"),
                               MS_FIGURE(BOOL, MsLadder, published, "", "as a series of its own"),
                               MS_FIGURE_AS("runs", UINT, MsLadder, found, "", "with a predicted time"),
                               ORDER("order", MsLadder, order, "all pairs"),
                               ORDER("single_knob", MsLadder, single, "that differ in one key"))),
    MS_FIGURE(UINT, S, skipped, "", "ladders with fewer than two validated runs"));
#undef S
