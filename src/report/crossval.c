/* src/report/crossval.c - shared figures refitted and judged on what was left out, as text and JSON. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

static void percent(MsTable *table, double fraction, gboolean sign) {
  if (isnan(fraction)) ms_table_cell(table, "-");
  else ms_table_cellf(table, sign ? "%+.1f %%" : "%.1f %%", 100 * fraction);
}

static void error_row(MsTable *table, const char *name, const char *how, const MsErrorSummary *s) {
  MS_TABLE_ROW(table, name, how, MS_FORMAT("%u", s->n));
  percent(table, s->median_ape, FALSE), percent(table, s->mape, FALSE), percent(table, s->p90_ape, FALSE),
      percent(table, s->bias, TRUE), percent(table, s->worst, TRUE);
}

static void three_rows(MsTable *table, const char *name, const MsCrossErrors *e) {
  if (e->shipped.n == 0) return;
  error_row(table, name, "refitted, left out", &e->left_out);
  error_row(table, "", "refitted, in sample", &e->in_sample);
  error_row(table, "", "as shipped", &e->shipped);
}

static void coverage_row(MsTable *table, const char *name, const char *how, const MsBandCoverage *c) {
  MS_TABLE_ROW(table, name, how, MS_FORMAT("%u", c->n));
  for (guint q = 0; q < G_N_ELEMENTS(c->inside); q++) percent(table, c->inside[q], FALSE);
}

static void coverage_rows(MsTable *table, const char *name, const MsBandCoverage *shipped,
                          const MsBandCoverage *refitted) {
  if (shipped->n == 0) return;
  coverage_row(table, name, "as shipped", shipped);
  coverage_row(table, "", "refitted without the group", refitted);
}

static void slope_row(MsTable *table, const char *name, const MsCrossSlope *s) {
  if (s->n == 0) return;
  MS_TABLE_ROW(table, name, MS_FORMAT("%u", s->n), MS_FORMAT("%+.2f", 100 * s->left_out),
               MS_FORMAT("%+.2f", 100 * s->in_sample), MS_FORMAT("%+.2f", 100 * s->shipped));
}

static void slopes(GString *out, const MsCrossval *c) {
  if (c->slope.n == 0) return;
  g_string_append(out, "points of error for each doubling of the GPUs (one source, model and machine)\n");
  MsTable *table = ms_table_of("runs|>n|>left out|>in sample|>as shipped");
  slope_row(table, "all", &c->slope);
  for (guint i = 0; i < c->n_parts; i++) slope_row(table, c->parts[i].name, &c->parts[i].slope);
  ms_table_append_below(table, out);
}

char *ms_report_crossval(const MsCrossval *c) {
  static const char *const left[] = {"a model on a GPU", "the runs of one source", "a model", "a GPU"};
  GString *out = g_string_new(NULL);
  ms_report_extent(out, &c->extent);
  g_string_append_printf(
      out,
      "%u runs (%u configurations) of %u files, %u shared figures refitted without one of %u groups (%s) at a "
      "time\n",
      c->runs, c->configurations, c->files, c->n_shared, c->groups, left[c->leave]);
  MsTable *table = ms_table_of("runs|figures|>n|>median|>mean|>p90|>bias|>worst");
  three_rows(table, "all", &c->all);
  three_rows(table, "exactly known", &c->exact);
  for (guint i = 0; i < c->n_parts; i++) three_rows(table, c->parts[i].name, &c->parts[i].errors);
  ms_table_append_below(table, out);
  slopes(out, c);
  table = ms_table_of("runs left out|bands|>n|>in 90 %|>in 80 %|>in 50 %");
  coverage_rows(table, "all", &c->bands, &c->bands_refitted);
  coverage_rows(table, "exactly known", &c->bands_exact, &c->bands_exact_refitted);
  for (guint i = 0; i < c->n_parts; i++)
    coverage_rows(table, c->parts[i].name, &c->parts[i].bands, &c->parts[i].bands_refitted);
  ms_table_append_below(table, out);
  table = ms_table_of("figure|>runs|>refitted on all: times|>shipped|>refitted");
  for (guint i = 0; i < c->n_shared; i++) {
    MS_TABLE_ROW(table, c->shared[i].name, MS_FORMAT("%u", c->shared[i].runs), MS_FORMAT("%.3f", c->shared[i].factor));
    gboolean law = !isnan(c->shared[i].shipped);
    ms_table_cellf(table, law ? "%.3g" : "", c->shared[i].shipped);
    ms_table_cellf(table, law ? "%.3g" : "", c->shared[i].shipped * c->shared[i].factor);
  }
  ms_table_append_below(table, out);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const MsFigures error_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(UINT, MsErrorSummary, n, "", "runs"),
    MS_FIGURE(F64, MsErrorSummary, median_ape, "1", "median of the absolute relative errors", MS_OR_NULL),
    MS_FIGURE(F64, MsErrorSummary, mape, "1", "their mean", MS_OR_NULL),
    MS_FIGURE(F64, MsErrorSummary, p90_ape, "1", "a tenth is larger", MS_OR_NULL),
    MS_FIGURE(F64, MsErrorSummary, bias, "1", "mean of the signed ones", MS_OR_NULL),
    MS_FIGURE(F64, MsErrorSummary, worst, "1", "the signed one that is farthest off", MS_OR_NULL));

#define THREE(S, m)                                                \
  MS_FIGURE_PART("left_out", S, m.left_out, &error_figures),       \
      MS_FIGURE_PART("in_sample", S, m.in_sample, &error_figures), \
      MS_FIGURE_PART("shipped", S, m.shipped, &error_figures)
#define INSIDE(k, q, d) MS_FIGURE_AS(k, F64, MsBandCoverage, inside[q], "1", d)
static const MsFigures coverage_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE(UINT, MsBandCoverage, n, "", "runs that were left out"),
                      INSIDE("inside_90", 0, "share inside the 90 % band"),
                      INSIDE("inside_80", 1, "inside the 80 % band"), INSIDE("inside_50", 2, "inside the 50 % band"));
#define COVERAGE(S, m, r) \
  MS_FIGURE_PART("bands", S, m, &coverage_figures), MS_FIGURE_PART("bands_refitted", S, r, &coverage_figures)

static const MsFigures slope_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(UINT, MsCrossSlope, n, "", "runs of a source, model and machine on three numbers of GPUs or more"),
    MS_FIGURE(F64, MsCrossSlope, left_out, "1", "error for each doubling of the GPUs, left out", MS_OR_NULL),
    MS_FIGURE(F64, MsCrossSlope, in_sample, "1", "the same in sample", MS_OR_NULL),
    MS_FIGURE(F64, MsCrossSlope, shipped, "1", "the same as shipped", MS_OR_NULL));
#define SLOPE(S) MS_FIGURE_PART("slope", S, slope, &slope_figures)

const MsFigures ms_crossval_figures = MS_FIGURE_TABLE(
    "cross-validate",
    "`moesim validate --cross-validate --json`: shared figures as shipped, refitted, refitted without the run's group.",
    MS_REPORT_EXTENT(MsCrossval, extent),
    MS_FIGURE_GROUP("all",
                    MS_FIGURES(THREE(MsCrossval, all), COVERAGE(MsCrossval, bands, bands_refitted), SLOPE(MsCrossval))),
    MS_FIGURE_GROUP("exact",
                    MS_FIGURES(THREE(MsCrossval, exact), COVERAGE(MsCrossval, bands_exact, bands_exact_refitted))),
    MS_FIGURE_ARRAY(
        "by", MAP, MsCrossval, parts, n_parts,
        MS_FIGURES(THREE(MsCrossPart, errors), COVERAGE(MsCrossPart, bands, bands_refitted), SLOPE(MsCrossPart)),
        .name = ms_figure_first_string,
        .doc = "by the label that --by asks for, else by what is left out, the GPU where that is a group"),
    MS_FIGURE_ARRAY("factors", MAP, MsCrossval, shared, n_shared,
                    MS_FIGURES(MS_FIGURE_AS("", F64, MsCrossShared, factor, "1", NULL)), .name = ms_figure_first_string,
                    .unit = "1", .doc = "of the shared figure in the fit on all runs"),
    MS_FIGURE(UINT, MsCrossval, runs, "", "with a measured step time and weight"),
    MS_FIGURE(UINT, MsCrossval, groups, "", "left out one at a time"),
    MS_FIGURE_WORDS("leave", MsCrossval, leave, ms_leave_words, "what is left out at a time; group: a model on a GPU"),
    MS_FIGURE(UINT, MsCrossval, configurations, "",
              "of the runs, that differ in more than name, software and what was measured"),
    MS_FIGURE(F64, MsCrossval, elapsed_s, "s", "of the whole cross-validation"));
