/* src/report/draws.c - Monte Carlo over the routing, as text. */
#include "base/text.h"
#include "report/report.h"

typedef const char *(*Format)(double value, char *buf);

static const char *plain(double value, char *buf) {
  g_snprintf(buf, MS_TEXT, "%.4f", value);
  return buf;
}

static void spread_row(MsTable *table, const char *name, const MsSpread *s, Format format) {
  const double value[] = {s->mean, s->sd, s->p50, s->p95, s->least, s->most},
               error[] = {s->mean_error, -1, s->p50_error, s->p95_error, -1, -1};
  ms_table_cell(table, name);
  for (guint i = 0; i < G_N_ELEMENTS(value); i++) {
    if (error[i] < 0) ms_table_cell(table, format(value[i], MS_ROOM));
    else ms_table_cellf(table, "%s +- %s", format(value[i], MS_ROOM), format(error[i], MS_ROOM));
  }
}

char *ms_report_draws(const MsDraws *d) {
  if (d->n == 0) {
    GString *out = g_string_new("\n");
    ms_report_extent(out, &d->extent);
    return g_string_free(out, FALSE);
  }
  g_autofree char *title =
      g_strdup_printf("  %d draws, seeds %u to %u", d->n, d->first_seed, d->first_seed + d->extent.of - 1);
  MsTable *table = ms_table_new();
  ms_table_column(table, title, FALSE);
  ms_table_columns(table, ">mean|>sd|>p50|>p95|>least|>most");
  spread_row(table, "  step time", &d->step_time_s, ms_text_seconds);
  spread_row(table, "  peak memory", &d->peak_B, ms_text_bytes);
  spread_row(table, "  hottest rank over mean", &d->hottest, plain);
  g_autofree char *text = ms_table_take(table);
  GString *out = g_string_new("\n");
  ms_report_extent(out, &d->extent);
  g_string_append_printf(out, "%s  +- standard error; %d of %d draws fit into memory\n", text, d->feasible, d->n);
  return g_string_free(out, FALSE);
}

const MsFigures ms_spread_figures = MS_FIGURE_TABLE(
    "drawn", "A figure over the draws of `moesim run --draws`.", MS_FIGURE(F64, MsSpread, mean, "", "of the draws"),
    MS_FIGURE_AS("mean_standard_error", F64, MsSpread, mean_error, "", "of the mean"),
    MS_FIGURE_AS("standard_deviation", F64, MsSpread, sd, "", "of a draw"), MS_FIGURE(F64, MsSpread, p50, "", "median"),
    MS_FIGURE_AS("p50_standard_error", F64, MsSpread, p50_error, "", "of the median"),
    MS_FIGURE(F64, MsSpread, p95, "", "of 100 draws 95 are below"),
    MS_FIGURE_AS("p95_standard_error", F64, MsSpread, p95_error, "", "of p95"),
    MS_FIGURE_AS("min", F64, MsSpread, least, "", "of the draws"),
    MS_FIGURE_AS("max", F64, MsSpread, most, "", "of the draws"));
const MsFigures ms_draws_figures =
    MS_FIGURE_UNNAMED(MS_REPORT_EXTENT(MsDraws, extent), MS_FIGURE(INT, MsDraws, n, "", "draws of the routing"),
                      MS_FIGURE_AS("first_seed", UINT, MsDraws, first_seed, "", "of the first of them"),
                      MS_FIGURE(INT, MsDraws, feasible, "", "of them, that fit into memory"),
                      MS_FIGURE_PART("step_time_s", MsDraws, step_time_s, &ms_spread_figures, .unit = "s"),
                      MS_FIGURE_PART("peak_memory_B", MsDraws, peak_B, &ms_spread_figures, .unit = "B"),
                      MS_FIGURE_PART("hottest_rank_over_mean", MsDraws, hottest, &ms_spread_figures, .unit = "1"));
