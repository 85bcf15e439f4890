/* src/report/validation.c - predictions beside published measurements, as text and JSON. */
#include <math.h>
#include <string.h>

#include "base/order.h"
#include "base/text.h"
#include "report/report.h"

enum { WORST_ROWS = 12, FEW_REFUSALS = 15 };

static const char *const metric_title[] = {"step time", "peak memory"};

/* --- errors ---------------------------------------------------------------------------------------------------- */
static const char *signed_percent(double fraction, char *buf) {
  if (isnan(fraction)) return "-";
  g_snprintf(buf, MS_TEXT, "%+.1f %%", 100 * fraction);
  return buf;
}

static const char *plain_percent(double fraction, char *buf) {
  return isnan(fraction) ? "-" : ms_text_percent(fraction, buf);
}

#define SHARE(k, m, t, p, d) MS_FIGURE_AS(k, F64, MsErrorSummary, m, "1", d, MS_OR_NULL, .title = t, .print = p)
static const MsFigures error_figures = MS_FIGURE_TABLE(
    "errors", "Of predictions: predicted / measured - 1.", MS_FIGURE(UINT, MsErrorSummary, n, "", "runs", .title = "n"),
    SHARE("mape", mape, "MAPE", plain_percent, "mean absolute relative error"),
    SHARE("median_ape", median_ape, "median", plain_percent, "median of the absolute ones"),
    SHARE("p90_ape", p90_ape, "p90", plain_percent, "a tenth is larger"),
    SHARE("bias", bias, "bias", signed_percent, "mean signed relative error"),
    SHARE("worst", worst, "worst", signed_percent, "the one that is farthest off"),
    SHARE("weighted_mape", weighted_mape, "weighted MAPE", plain_percent, "by the weights of the runs"),
    SHARE("inside_band", inside, "in 90 %", plain_percent, "share of runs inside their 90 % band"),
    SHARE("inside_band_80", inside_80, "in 80 %", plain_percent, "inside their 80 % band"),
    SHARE("inside_band_50", inside_50, "in 50 %", plain_percent, "inside their 50 % band"));

/* --- text ------------------------------------------------------------------------------------------------------ */

static const char *const summary[] = {"n",     "mape",          "median_ape",  "p90_ape",        "bias",
                                      "worst", "weighted_mape", "inside_band", "inside_band_80", "inside_band_50",
                                      NULL};

static MsTable *summary_table(const char *first) {
  MsTable *table = ms_table_new();
  ms_table_column(table, first, FALSE);
  ms_table_column(table, "compared", FALSE);
  ms_figures_columns(&error_figures, summary, table);
  return table;
}

static void summary_row(MsTable *table, const char *name, MsMetric metric, const MsErrorSummary *s) {
  if (s->n == 0) return;
  MS_TABLE_ROW(table, name, metric_title[metric]);
  ms_figures_cells(&error_figures, summary, s, table);
}

MS_ORDER_AT(worse_first, MsValidateRow, MS_MORE(fabs(x->error), fabs(y->error)), strcmp(x->file, y->file))

static void append_worst(GString *out, const MsValidation *v, MsMetric metric) {
  g_autoptr(GPtrArray) order = g_ptr_array_new();
  for (guint i = 0; i < v->n_rows; i++)
    if (v->rows[i].counted && v->rows[i].metric == metric) g_ptr_array_add(order, &v->rows[i]);
  if (order->len == 0) return;
  g_ptr_array_sort(order, worse_first);
  MsTable *table = ms_table_new();
  ms_table_column(table, metric == MS_METRIC_STEP_TIME ? "worst step times" : "worst peak memories", FALSE);
  ms_table_column(table, metric == MS_METRIC_STEP_TIME ? "measured s" : "measured GiB", TRUE);
  ms_table_columns(table, ">predicted|>error|GPU|model");
  for (guint i = 0; i < order->len && i < WORST_ROWS; i++) {
    const MsValidateRow *row = g_ptr_array_index(order, i);
    MS_TABLE_ROW(table, row->name, MS_FORMAT("%.4g", row->measured), MS_FORMAT("%.4g", row->predicted),
                 signed_percent(row->error, MS_ROOM), row->label.of[MS_BY_GPU], row->label.of[MS_BY_MODEL]);
  }
  ms_table_append_below(table, out);
}

static void append_refusals(GString *out, const MsValidation *v) {
  if (v->n_refusals == 0) return;
  MsTable *table = ms_table_of(">not predicted|because");
  for (guint i = 0; i < v->n_refusals && i < FEW_REFUSALS; i++) {
    MS_TABLE_ROW(table, MS_FORMAT("%u", v->refusals[i].n),
                 v->refusals[i].n == 1 ? v->refusals[i].example : v->refusals[i].reason);
  }
  ms_table_append_below(table, out);
  if (v->n_refusals > FEW_REFUSALS)
    g_string_append_printf(out, "... and %u more reasons\n", v->n_refusals - FEW_REFUSALS);
}

static void append_confidence(GString *out, const MsValidation *v) {
  MsTable *table = summary_table("configuration");
  for (int m = 0; m < MS_N_METRICS; m++)
    for (guint g = 0; g < v->n_confidence; g++)
      summary_row(table, v->confidence[g].name, m, &v->confidence[g].metric[m]);
  ms_table_append_below(table, out);
}

char *ms_report_validation(const MsValidation *v, const MsValidateOptions *options, unsigned flags) {
  (void)flags;
  GString *out = g_string_new(NULL);
  ms_report_extent(out, &v->extent);
  g_string_append_printf(out, "%u runs: %u predicted (%s), %u refused; error = predicted / measured - 1%s\n", v->files,
                         v->predicted, ms_fidelity_words[options->fidelity], v->refused,
                         options->exact ? "; exactly known configurations"
                         : options->all ? ""
                                        : "; rows of weight 0 are left out");
  if (v->nothing_to_compare > 0)
    ms_text_paragraph(out, 2,
                      "%u of them measured nothing that is compared: a step time, tokens_per_s_per_gpu or a memory "
                      "(`moesim schema measured`)",
                      v->nothing_to_compare);
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
  ms_table_append_below(table, out);
  if (options->by != MS_BY_CONFIDENCE) append_confidence(out, v);
  for (int m = 0; m < MS_N_METRICS; m++) append_worst(out, v, m);
  append_refusals(out, v);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static gboolean is_time(const void *row) { return ((const MsValidateRow *)row)->metric == MS_METRIC_STEP_TIME; }
static const char *unit(const void *row) { return is_time(row) ? "s" : "GiB"; }

#define S MsValidateRow
static const MsFigures row_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, S, name, "", "of the scenario"),
    MS_FIGURE_WORDS("metric", S, metric, ms_metric_words, "step_time or peak_memory"),
    MS_FIGURE(F64, S, measured, "", "in the unit below"), MS_FIGURE(F64, S, predicted, "", "in the same", MS_OR_NULL),
    MS_FIGURE(F64, S, error, "1", "predicted / measured - 1", MS_OR_NULL), MS_FIGURE_TEXT("unit", unit, "s or GiB"),
    MS_FIGURE(STRING, S, from, "", "key of `measured` that it was compared with"),
    MS_FIGURE(F64, S, weight, "", "of the run; 0: not in the summaries"),
    MS_FIGURE(F64, S, rounding, "1", "half of the last printed digit, as a share", MS_OR_NULL),
    MS_FIGURE(BOOL, S, counted, "", "in the summaries"),
    MS_FIGURE_AS(
        "error_band", F64, S, band, "1",
        "of the predicted time; wider than that of `moesim run` where `measured.unknown` names a knob that matters",
        MS_OR_NULL, .when = is_time, .only = "times"),
    MS_FIGURE_AS("error_band_80", F64, S, band_80, "1", "80 %", MS_OR_NULL, .when = is_time, .only = "times"),
    MS_FIGURE_AS("error_band_50", F64, S, band_50, "1", "50 %", MS_OR_NULL, .when = is_time, .only = "times"),
    MS_FIGURE_AS("guessed_band", F64, S, guessed, "1", "what knobs that the file guessed add to these", .when = is_time,
                 .only = "times"),
    MS_FIGURE_AS("inside_band", BOOL, S, inside, "", "the measured time is within it", .when = is_time,
                 .only = "times"),
    MS_FIGURE_AS("gpu", STRING, S, label.of[MS_BY_GPU], "", "the machine"),
    MS_FIGURE_AS("model", STRING, S, label.of[MS_BY_MODEL], "", "what was trained"),
    MS_FIGURE_AS("source", STRING, S, label.of[MS_BY_SOURCE], "", "folder of the file", MS_OR_NULL),
    MS_FIGURE_AS("confidence", STRING, S, label.of[MS_BY_CONFIDENCE], "", "how well its configuration is known",
                 MS_OR_NULL),
    MS_FIGURE_AS("stack", STRING, S, label.of[MS_BY_STACK], "", "software"),
    MS_FIGURE(STRING, S, file, "", "of the scenario"));
#undef S

#define METRICS(S, m, ...)                                                             \
  MS_FIGURE_PART("step_time", S, m[MS_METRIC_STEP_TIME], &error_figures, __VA_ARGS__), \
      MS_FIGURE_PART("peak_memory", S, m[MS_METRIC_PEAK_MEMORY], &error_figures, __VA_ARGS__)
#define GROUPS(k, m, n, ...)                                                                            \
  MS_FIGURE_ARRAY(k, MAP, Printed, v.m, v.n, MS_FIGURES(METRICS(MsValidateGroup, metric, __VA_ARGS__)), \
                  .name = ms_figure_first_string)
typedef struct { /* what is printed beside the validation itself */
  MsValidation v;
  const MsLadders *ladders;
  const MsRegret *regret;
  MsFidelity fidelity;
} Printed;

#define V(t, m, d) MS_FIGURE_AS(#m, t, Printed, v.m, "", d)
const MsFigures ms_validation_figures = MS_FIGURE_TABLE(
    "validate", "`moesim validate --json`.", MS_REPORT_EXTENT(Printed, v.extent),
    MS_FIGURE_ARRAY("rows", LIST, Printed, v.rows, v.n_rows, &row_figures),
    MS_FIGURE_GROUP("summary", MS_FIGURES(METRICS(Printed, v.metric))),
    GROUPS("by", groups, n_groups, .only = "`--by`"), GROUPS("confidence", confidence, n_confidence),
    MS_FIGURE_OBJECT_AT("ladders", Printed, ladders, &ms_ladders_figures, .only = "rare: `--ladders`"),
    MS_FIGURE_OBJECT_AT("regret", Printed, regret, &ms_regret_figures, .only = "rare: `--regret`"),
    MS_FIGURE_GROUP(
        "fits",
        MS_FIGURES(MS_FIGURE_AS("out_of_memory", UINT, Printed, v.oom_measured, "", "runs that ran out of memory"),
                   MS_FIGURE_AS("out_of_memory_agreed", UINT, Printed, v.oom_agreed, "", "of these predicted so"),
                   MS_FIGURE_AS("ran", UINT, Printed, v.fit_measured, "", "runs that fitted"),
                   MS_FIGURE_AS("ran_predicted_infeasible", UINT, Printed, v.fit_refused, "",
                                "of these predicted not to fit"))),
    V(UINT, files, "looked at"), V(UINT, predicted, "of them"),
    MS_FIGURE_ARRAY(
        "refused", LIST, Printed, v.refusals, v.n_refusals,
        MS_FIGURES(MS_FIGURE(STRING, MsValidateRefusal, reason, "",
                             "why files were not predicted, numbers replaced by #", .only = "rare"),
                   MS_FIGURE(UINT, MsValidateRefusal, n, "", "files", .only = "rare"),
                   MS_FIGURE(STRING, MsValidateRefusal, example, "", "message of the first one", .only = "rare"))),
    MS_FIGURE_WORDS("fidelity", Printed, fidelity, ms_fidelity_words, "bound, fast or full"),
    V(F64, elapsed_s, "of the whole validation"));

char *ms_report_validation_json(const MsValidation *v, const MsLadders *ladders, const MsRegret *regret,
                                const MsValidateOptions *options) {
  return ms_figures_json(&ms_validation_figures, &(Printed){*v, ladders, regret, options->fidelity});
}

char *ms_report_validation_csv(const MsValidation *v) {
  static const char *const columns[] = {"name",        "file",   "gpu",      "model",     "source", "stack",
                                        "confidence",  "metric", "measured", "predicted", "error",  "error_band",
                                        "inside_band", "weight", "counted",  NULL};
  GString *out = ms_figures_csv(columns);
  for (guint i = 0; i < v->n_rows; i++) ms_figures_csv_cells(&row_figures, columns, &v->rows[i], '\n', out);
  return g_string_free(out, FALSE);
}
