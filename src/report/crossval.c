/* src/report/crossval.c - shared figures refitted and judged on what was left out, as text and JSON. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

static void percent(MsTable *table, double fraction, gboolean sign) {
  if (isnan(fraction)) ms_table_cell(table, "-");
  else ms_table_cellf(table, sign ? "%+.1f %%" : "%.1f %%", 100 * fraction);
}

static void error_row(MsTable *table, const char *name, const char *how, const MsErrorSummary *s) {
  ms_table_cell(table, name);
  ms_table_cell(table, how);
  ms_table_cellf(table, "%u", s->n);
  percent(table, s->median_ape, FALSE), percent(table, s->mape, FALSE), percent(table, s->p90_ape, FALSE),
      percent(table, s->bias, TRUE);
}

static MsTable *error_table(const char *first) {
  static const char *const column[] = {"n", "median", "mean", "p90", "bias"};
  MsTable *table = ms_table_new();
  ms_table_column(table, first, FALSE);
  ms_table_column(table, "figures", FALSE);
  for (guint i = 0; i < G_N_ELEMENTS(column); i++) ms_table_column(table, column[i], TRUE);
  return table;
}

static void three_rows(MsTable *table, const char *name, const MsCrossErrors *e) {
  if (e->shipped.n == 0) return;
  error_row(table, name, "as shipped", &e->shipped);
  error_row(table, "", "refitted, in sample", &e->in_sample);
  error_row(table, "", "refitted, left out", &e->left_out);
}

static void take(GString *out, MsTable *table) {
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

char *ms_report_crossval(const MsCrossval *c) {
  GString *out = g_string_new(NULL);
  g_string_append_printf(
      out,
      "%u runs of %u files (fast), shared figures refitted without one of %u groups (a model on a GPU) at a time\n",
      c->runs, c->files, c->groups);
  MsTable *table = error_table("runs");
  three_rows(table, "all", &c->all);
  three_rows(table, "exactly known", &c->exact);
  for (guint i = 0; i < c->n_gpus; i++) three_rows(table, c->gpus[i].name, &c->gpus[i].errors);
  take(out, table);
  table = ms_table_new();
  ms_table_column(table, "figure", FALSE);
  ms_table_column(table, "runs", TRUE);
  ms_table_column(table, "refitted on all: times", TRUE);
  for (guint i = 0; i < c->n_shared; i++) {
    ms_table_cell(table, c->shared[i].name);
    ms_table_cellf(table, "%u", c->shared[i].runs);
    ms_table_cellf(table, "%.3f", c->shared[i].factor);
  }
  take(out, table);
  return g_string_free(out, FALSE);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */
static void write_errors(const MsErrorSummary *s, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_int(out, "n", s->n);
  ms_json_out_double(out, "median_ape", s->median_ape);
  ms_json_out_double(out, "mape", s->mape);
  ms_json_out_double(out, "p90_ape", s->p90_ape);
  ms_json_out_double(out, "bias", s->bias);
  ms_json_out_end(out);
}

static void write_three(const MsCrossErrors *e, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  write_errors(&e->shipped, "shipped", out);
  write_errors(&e->in_sample, "in_sample", out);
  write_errors(&e->left_out, "left_out", out);
  ms_json_out_end(out);
}

char *ms_report_crossval_json(const MsCrossval *c) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  write_three(&c->all, "all", out);
  write_three(&c->exact, "exact", out);
  ms_json_out_object(out, "gpu");
  for (guint i = 0; i < c->n_gpus; i++) write_three(&c->gpus[i].errors, c->gpus[i].name, out);
  ms_json_out_end(out);
  ms_json_out_object(out, "factors");
  for (guint i = 0; i < c->n_shared; i++) ms_json_out_double(out, c->shared[i].name, c->shared[i].factor);
  ms_json_out_end(out);
  ms_json_out_int(out, "runs", c->runs);
  ms_json_out_int(out, "groups", c->groups);
  ms_json_out_double(out, "elapsed_s", c->elapsed_s);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}
