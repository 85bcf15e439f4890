#include <math.h>
#include <string.h>

#include "base/text.h"
#include "report/report.h"

enum { WORST_ROWS = 12, FEW_REFUSALS = 15 };

static const char *const metric_title[] = {"step time", "peak memory"};

/* --- text ------------------------------------------------------------------------------------------------------ */
static void signed_percent(MsTable *table, double fraction) {
  if (isnan(fraction)) ms_table_cell(table, "-");
  else ms_table_cellf(table, "%+.1f %%", 100 * fraction);
}

static void plain_percent(MsTable *table, double fraction) {
  char buf[MS_TEXT];
  ms_table_cell(table, isnan(fraction) ? "-" : ms_text_percent(fraction, buf));
}

static MsTable *summary_table(const char *first) {
  static const char *const column[] = {"n", "MAPE", "median", "p90", "bias", "weighted MAPE", "in band", "common"};
  MsTable *table = ms_table_new();
  ms_table_column(table, first, FALSE);
  ms_table_column(table, "compared", FALSE);
  for (guint i = 0; i < G_N_ELEMENTS(column); i++) ms_table_column(table, column[i], TRUE);
  return table;
}

static void summary_row(MsTable *table, const char *name, MsMetric metric, const MsErrorSummary *s) {
  if (s->n == 0) return;
  ms_table_cell(table, name);
  ms_table_cell(table, metric_title[metric]);
  ms_table_cellf(table, "%u", s->n);
  plain_percent(table, s->mape);
  plain_percent(table, s->median_ape);
  plain_percent(table, s->p90_ape);
  signed_percent(table, s->bias);
  plain_percent(table, s->weighted_mape);
  plain_percent(table, s->inside);
  plain_percent(table, s->common);
}

static void append_table(GString *out, MsTable *table) {
  g_autofree char *text = ms_table_take(table);
  g_string_append_printf(out, "\n%s", text);
}

static gint worse_first(gconstpointer a, gconstpointer b) {
  const MsValidateRow *x = *(const MsValidateRow *const *)a, *y = *(const MsValidateRow *const *)b;
  double ex = fabs(x->error), ey = fabs(y->error);
  if (ex != ey) return ex < ey ? 1 : -1;
  return strcmp(x->file, y->file);
}

static void append_worst(GString *out, const MsValidation *v, MsMetric metric) {
  g_autoptr(GPtrArray) order = g_ptr_array_new();
  for (guint i = 0; i < v->n_rows; i++)
    if (v->rows[i].counted && v->rows[i].metric == metric) g_ptr_array_add(order, &v->rows[i]);
  if (order->len == 0) return;
  g_ptr_array_sort(order, worse_first);
  MsTable *table = ms_table_new();
  ms_table_column(table, metric == MS_METRIC_STEP_TIME ? "worst step times" : "worst peak memories", FALSE);
  ms_table_column(table, metric == MS_METRIC_STEP_TIME ? "measured s" : "measured GiB", TRUE);
  ms_table_column(table, "predicted", TRUE);
  ms_table_column(table, "error", TRUE);
  ms_table_column(table, "GPU", FALSE);
  ms_table_column(table, "model", FALSE);
  for (guint i = 0; i < order->len && i < WORST_ROWS; i++) {
    const MsValidateRow *row = g_ptr_array_index(order, i);
    ms_table_cell(table, row->name);
    ms_table_cellf(table, "%.4g", row->measured);
    ms_table_cellf(table, "%.4g", row->predicted);
    signed_percent(table, row->error);
    ms_table_cell(table, row->label[MS_BY_GPU]);
    ms_table_cell(table, row->label[MS_BY_MODEL]);
  }
  append_table(out, table);
}

static void append_refusals(GString *out, const MsValidation *v) {
  if (v->n_refusals == 0) return;
  MsTable *table = ms_table_new();
  ms_table_column(table, "not predicted", TRUE);
  ms_table_column(table, "because", FALSE);
  for (guint i = 0; i < v->n_refusals && i < FEW_REFUSALS; i++) {
    ms_table_cellf(table, "%u", v->refusals[i].n);
    ms_table_cell(table, v->refusals[i].n == 1 ? v->refusals[i].example : v->refusals[i].reason);
  }
  append_table(out, table);
  if (v->n_refusals > FEW_REFUSALS)
    g_string_append_printf(out, "... and %u more reasons\n", v->n_refusals - FEW_REFUSALS);
}

static void append_confidence(GString *out, const MsValidation *v) {
  MsTable *table = summary_table("configuration");
  for (int m = 0; m < MS_N_METRICS; m++)
    for (guint g = 0; g < v->n_confidence; g++)
      summary_row(table, v->confidence[g].name, m, &v->confidence[g].metric[m]);
  append_table(out, table);
}

char *ms_report_validation(const MsValidation *v, const MsValidateOptions *options, unsigned flags) {
  (void)flags;
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "%u runs: %u predicted (%s), %u refused; error = predicted / measured - 1%s\n", v->files,
                         v->predicted, ms_fidelity_words[options->fidelity], v->refused,
                         options->exact ? "; exactly known configurations"
                         : options->all ? ""
                                        : "; rows of weight 0 are left out");
  if (v->oom_measured > 0)
    g_string_append_printf(out, "out of memory: %u of %u such runs predicted not to fit\n", v->oom_agreed,
                           v->oom_measured);
  if (v->fit_refused > 0)
    g_string_append_printf(out, "ran, but predicted not to fit: %u of %u\n", v->fit_refused, v->fit_measured);
  MsTable *table = summary_table(options->by == MS_BY_NOTHING ? "" : ms_by_words[options->by]);
  for (int m = 0; m < MS_N_METRICS; m++) {
    summary_row(table, "all", m, &v->metric[m]);
    for (guint g = 0; g < v->n_groups; g++) summary_row(table, v->groups[g].name, m, &v->groups[g].metric[m]);
  }
  append_table(out, table);
  if (options->by != MS_BY_CONFIDENCE) append_confidence(out, v);
  for (int m = 0; m < MS_N_METRICS; m++) append_worst(out, v, m);
  append_refusals(out, v);
  return g_string_free(out, FALSE);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */
static void write_summary(const MsErrorSummary *s, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_json_out_int(out, "n", s->n);
  ms_json_out_double(out, "mape", s->mape);
  ms_json_out_double(out, "median_ape", s->median_ape);
  ms_json_out_double(out, "p90_ape", s->p90_ape);
  ms_json_out_double(out, "bias", s->bias);
  ms_json_out_double(out, "weighted_mape", s->weighted_mape);
  ms_json_out_double(out, "inside_band", s->inside);
  ms_json_out_double(out, "common_term", s->common);
  ms_json_out_end(out);
}

static void write_row(const MsValidateRow *row, MsJsonOut *out) {
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "name", row->name);
  ms_json_out_string(out, "metric", ms_metric_words[row->metric]);
  ms_json_out_double(out, "measured", row->measured);
  ms_json_out_double(out, "predicted", row->predicted);
  ms_json_out_double(out, "error", row->error);
  ms_json_out_string(out, "unit", row->metric == MS_METRIC_STEP_TIME ? "s" : "GiB");
  ms_json_out_string(out, "from", row->from);
  ms_json_out_double(out, "weight", row->weight);
  ms_json_out_double(out, "rounding", row->rounding);
  ms_json_out_bool(out, "counted", row->counted);
  if (row->metric == MS_METRIC_STEP_TIME) {
    ms_json_out_double(out, "error_band", row->band);
    ms_json_out_bool(out, "inside_band", row->inside);
  }
  for (int by = MS_BY_GPU; by < MS_N_BYS; by++) ms_json_out_string(out, ms_by_words[by], row->label[by]);
  ms_json_out_string(out, "file", row->file);
  ms_json_out_end(out);
}

static void write_refusals(const MsValidation *v, MsJsonOut *out) {
  ms_json_out_array(out, "refused");
  for (guint i = 0; i < v->n_refusals; i++) {
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "reason", v->refusals[i].reason);
    ms_json_out_int(out, "n", v->refusals[i].n);
    ms_json_out_string(out, "example", v->refusals[i].example);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

static void write_fit(const MsValidation *v, MsJsonOut *out) {
  ms_json_out_object(out, "fits");
  ms_json_out_int(out, "out_of_memory", v->oom_measured);
  ms_json_out_int(out, "out_of_memory_agreed", v->oom_agreed);
  ms_json_out_int(out, "ran", v->fit_measured);
  ms_json_out_int(out, "ran_predicted_infeasible", v->fit_refused);
  ms_json_out_end(out);
}

static void write_groups(const MsValidateGroup *groups, guint n, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  for (guint g = 0; g < n; g++) {
    ms_json_out_object(out, groups[g].name);
    for (int m = 0; m < MS_N_METRICS; m++) write_summary(&groups[g].metric[m], ms_metric_words[m], out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
}

char *ms_report_validation_json(const MsValidation *v, const MsLadders *ladders, const MsValidateOptions *options) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_array(out, "rows");
  for (guint i = 0; i < v->n_rows; i++) write_row(&v->rows[i], out);
  ms_json_out_end(out);
  ms_json_out_object(out, "summary");
  for (int m = 0; m < MS_N_METRICS; m++) write_summary(&v->metric[m], ms_metric_words[m], out);
  ms_json_out_end(out);
  write_groups(v->groups, v->n_groups, "by", out);
  write_groups(v->confidence, v->n_confidence, "confidence", out);
  if (ladders) ms_report_ladders_json(ladders, "ladders", out);
  write_fit(v, out);
  ms_json_out_int(out, "files", v->files);
  ms_json_out_int(out, "predicted", v->predicted);
  write_refusals(v, out);
  ms_json_out_string(out, "fidelity", ms_fidelity_words[options->fidelity]);
  ms_json_out_double(out, "elapsed_s", v->elapsed_s);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}
