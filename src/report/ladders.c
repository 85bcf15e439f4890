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
  char buf[MS_TEXT];
  ms_table_cell(table, order->pairs > 0 ? ms_text_percent((double)order->right / order->pairs, buf) : "-");
}

static void order_row(MsTable *table, const char *name, const MsOrder *order) {
  ms_table_cell(table, name);
  ms_table_cellf(table, "%u", order->pairs);
  tau_cell(table, order);
  share_cell(table, order);
}

static MsTable *order_table(const char *first) {
  MsTable *table = ms_table_new();
  ms_table_column(table, first, FALSE);
  ms_table_column(table, "pairs", TRUE);
  ms_table_column(table, "Kendall tau", TRUE);
  ms_table_column(table, "right", TRUE);
  return table;
}

static void take(GString *out, MsTable *table) {
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

static void append_ladders(GString *out, const MsLadders *all) {
  MsTable *table = ms_table_new();
  static const char *const column[] = {"runs", "pairs", "Kendall tau", "single knob", "right"};
  ms_table_column(table, "published ladder", FALSE);
  ms_table_column(table, "kind", FALSE);
  for (guint i = 0; i < G_N_ELEMENTS(column); i++) ms_table_column(table, column[i], TRUE);
  for (guint i = 0; i < all->n; i++) {
    const MsLadder *l = &all->ladders[i];
    if (!l->published) continue;
    ms_table_cell(table, l->name);
    ms_table_cell(table, l->kind);
    ms_table_cellf(table, l->found < l->listed ? "%u of %u" : "%u", l->found, l->listed);
    ms_table_cellf(table, "%u", l->order.pairs);
    tau_cell(table, &l->order);
    ms_table_cellf(table, "%u", l->single.pairs);
    share_cell(table, &l->single);
  }
  take(out, table);
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
  take(out, table);
  table = order_table("knob (more than 1 % apart)");
  for (guint i = 0; i < all->n_knobs && i < FEW_KNOBS; i++) order_row(table, all->knobs[i].knob, &all->knobs[i].order);
  take(out, table);
  append_ladders(out, all);
  return g_string_free(out, FALSE);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */
static void write_order(const MsOrder *order, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_int(out, "pairs", order->pairs);
  ms_json_out_int(out, "right", order->right);
  ms_json_out_int(out, "wrong", order->wrong);
  ms_json_out_double(out, "tau", ms_order_tau(order));
  ms_json_out_double(out, "share_right", order->pairs > 0 ? (double)order->right / order->pairs : NAN);
  ms_json_out_end(out);
}

void ms_report_ladders_json(const MsLadders *all, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_double(out, "mean_tau", all->mean_tau);
  write_order(&all->all, "pooled", out);
  write_order(&all->published, "published", out);
  write_order(&all->clear, "clear", out);
  write_order(&all->single_all, "single_knob_all", out);
  write_order(&all->single, "single_knob", out);
  write_order(&all->single_published, "single_knob_published", out);
  ms_json_out_object(out, "by_knob");
  for (guint i = 0; i < all->n_knobs; i++) write_order(&all->knobs[i].order, all->knobs[i].knob, out);
  ms_json_out_end(out);
  ms_json_out_array(out, "ladders");
  for (guint i = 0; i < all->n; i++) {
    const MsLadder *l = &all->ladders[i];
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "name", l->name);
    ms_json_out_string(out, "kind", l->kind);
    ms_json_out_bool(out, "published", l->published);
    ms_json_out_int(out, "runs", l->found);
    write_order(&l->order, "order", out);
    write_order(&l->single, "single_knob", out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_int(out, "skipped", all->skipped);
  ms_json_out_end(out);
}
