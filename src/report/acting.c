/* src/report/acting.c - the laws that a run rests on, and a run as it is printed. */

#include "report/report.h"

static const char *change(double value, char *buf) {
  if (value == 0) return "-";
  g_snprintf(buf, MS_TEXT, "%+.2f %%", 100 * value);
  return buf;
}

static const char *short_number(double value, char *buf) {
  g_snprintf(buf, MS_TEXT, "%.4g", value);
  return buf;
}

static const char *said_by(const void *law) {
  return ((const MsActingLaw *)law)->given ? "scenario" : "software/laws.json";
}

#define CHANGE(m, d) MS_FIGURE(F64, MsLawEffect, m, "1", d, MS_OR_NULL)
static const MsFigures effect_figures = MS_FIGURE_TABLE("moved", "What another value of a law would do to the run.",
                                                        CHANGE(step, "relative change of the step, at fidelity fast"),
                                                        CHANGE(memory, "relative change of the fullest stage's memory"),
                                                        CHANGE(band, "change of the error band"));
static const MsFigures law_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("law", STRING, MsActingLaw, key, "",
                 "that moves the run when it is halved or doubled (within its range)"),
    MS_FIGURE(F64, MsActingLaw, value, "", "of the law in this run"),
    MS_FIGURE(STRING, MsActingLaw, unit, "", "of the value"),
    MS_FIGURE_TEXT("from", said_by, "software/laws.json, or the scenario"),
    MS_FIGURE_PART("halved", MsActingLaw, halved, &effect_figures, .doc = "what half of it would do"),
    MS_FIGURE_PART("doubled", MsActingLaw, doubled, &effect_figures, .doc = "what twice as much would do"),
    MS_FIGURE(STRING, MsActingLaw, source, "", "public source of the mechanism or of the figure"),
    MS_FIGURE(STRING, MsActingLaw, fitted_on, "", "runs and measurements that the value was chosen by"));

/* --- a run as it is printed ------------------------------------------------------------------------------------ */

const MsFigures ms_printed_run_figures = MS_FIGURE_TABLE(
    "run", "`moesim run --json`.",
    MS_FIGURE_ROWS_AT(MsPrintedRun, result, &ms_run_figures, .doc = "what was predicted; and"),
    MS_FIGURE_OBJECT_AT("draws", MsPrintedRun, draws, &ms_draws_figures, .only = "`--draws`"),
    MS_FIGURE_OBJECT_AT("cluster", MsPrintedRun, cluster, &ms_cluster_figures, .only = "`--fidelity cluster`"),
    MS_FIGURE_ROWS_AT(MsPrintedRun, acting,
                      MS_FIGURES(MS_FIGURE_ARRAY("laws", LIST, MsActingLaws, law, n, &law_figures)),
                      .only = "`--explain`"),
    MS_FIGURE_ROWS_AT(MsPrintedRun, changes, &ms_changes_figures, .only = "`--explain`"));

/* --- text ------------------------------------------------------------------------------------------------------ */
static void law_row(MsTable *table, const MsActingLaw *law) {
  const double effect[] = {law->halved.step, law->doubled.step, law->doubled.memory, law->doubled.band};
  ms_table_cellf(table, "  %s", law->key);
  ms_table_cellf(table, "%s%s%s", short_number(law->value, MS_ROOM), law->unit[0] ? " " : "", law->unit);
  for (guint i = 0; i < G_N_ELEMENTS(effect); i++) ms_table_cell(table, change(effect[i], MS_ROOM));
}

char *ms_report_acting(const MsActingLaws *acting) {
  if (acting->n == 0) return g_strdup("");
  MsTable *table = ms_table_of("  laws that act|>value|>step halved|>doubled|>memory doubled|>band doubled");
  GString *given = g_string_new(NULL);
  for (int i = 0; i < acting->n; i++) {
    law_row(table, &acting->law[i]);
    if (acting->law[i].given) g_string_append_printf(given, "%s%s", given->len ? ", " : "", acting->law[i].key);
  }
  g_autofree char *text = ms_table_take(table), *scenario = g_string_free(given, FALSE);
  return g_strdup_printf("\n%s  from software/laws.json%s%s%s; their sources and data: moesim show laws NAME\n", text,
                         *scenario ? ", of the scenario " : "", scenario, *scenario ? " alone" : "");
}
