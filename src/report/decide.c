/* src/report/decide.c - how sure the choice of a layout is, and which runs would settle it, as text and JSON. */
#include "base/text.h"
#include "report/report.h"

#define LEAST 0.01 /* chance of being the fastest, of a row that is listed */
enum { FEW = 8 };

static gboolean is_named(const MsDecision *d, int i) {
  gboolean named = i == d->pick;
  for (int k = 0; k < d->n_runs; k++) named |= d->run[k] == i;
  return named;
}

static void append_rows(GString *out, const MsDecision *d) {
  MsTable *table = ms_table_of(">#|layout|>step|>fastest|>regret");
  g_autoptr(GPtrArray) listed = g_ptr_array_new();
  g_autofree int *place = g_new(int, d->n);
  for (int i = 0; i < d->n; i++) {
    const MsDecisionRow *row = &d->row[i];
    if (i > 0 && !is_named(d, i) && (i >= FEW || row->chance < LEAST)) continue;
    g_autofree char *layout = ms_report_layout(row->entry->scenario);
    ms_table_cellf(table, "%d%s", row->place, i == d->pick ? " *" : "  ");
    MS_TABLE_ROW(table, layout, MS_SECONDS(row->entry->result->step_time_s), MS_PERCENT(row->chance),
                 MS_PERCENT(row->regret));
    place[listed->len] = row->place;
    g_ptr_array_add(listed, row->entry->scenario);
  }
  ms_table_append(table, out);
  ms_report_append_apart(out, listed, place);
  int left = d->n - (int)listed->len;
  if (left > 0) g_string_append_printf(out, "%d more (--json lists them)\n", left);
}

/* "1, 4 and 7" (transfer full) */
static char *places_of(const MsDecision *d, int runs) {
  GString *out = g_string_new(NULL);
  for (int i = 0; i < runs; i++)
    g_string_append_printf(out, "%s%d", i == 0 ? "" : i + 1 < runs ? ", " : " and ", d->row[d->run[i]].place);
  return g_string_free(out, FALSE);
}

static void append_runs(GString *out, const MsDecision *d) {
  if (d->n_runs == 0) {
    g_string_append(out, "no short run would tell more\n");
    return;
  }
  g_autofree char *places = places_of(d, d->n_runs);
  int place = d->row[d->run[0]].place;
  g_string_append_printf(out,
                         "to settle it: run %s for 20 steps each; expected regret %s -> %s\n"
                         "  moesim plan --top %d --rank %d --out run-%d.json REQUEST && moesim launch run-%d.json\n"
                         "  moesim anchor run-%d.json run-%d.log --out mine.json     of all; then plan with it\n"
                         "  --decide-out FOLDER writes scenarios and scripts of all\n",
                         places, MS_PERCENT(d->row[d->pick].regret), MS_PERCENT(d->regret_after[d->n_runs - 1]), d->n,
                         place, place, place, place, place);
}

char *ms_report_decision(const MsDecision *d) {
  GString *out =
      g_string_new("\nhow sure is it? Chance of being the fastest of those that were kept, expected regret of each\n");
  append_rows(out, d);
  if (d->n_known > 0)
    g_string_append_printf(out, "%d run%s that the machine was anchored by %s taken into account\n", d->n_known,
                           d->n_known == 1 ? "" : "s", d->n_known == 1 ? "is" : "are");
  if (d->fastest_known_s > 0) {
    g_string_append_printf(out, "the fastest of them took %s; of what is taken now %s is expected%s\n",
                           MS_SECONDS(d->fastest_known_s), MS_SECONDS(d->expected_s),
                           d->fastest_known_s < d->expected_s ? ": stay with that run" : "");
  }
  const MsDecisionRow *pick = &d->row[d->pick];
  g_string_append_printf(out, "least expected regret: %d, %s", pick->place, MS_PERCENT(pick->regret));
  if (d->pick > 0) g_string_append_printf(out, " (%d: %s)", d->row[0].place, MS_PERCENT(d->row[0].regret));
  g_string_append_c(out, '\n');
  append_runs(out, d);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const void *proposed(const void *decision, guint i, MsFigureCursor *room) {
  return ms_figure_place(decision, i, (guint)((const MsDecision *)decision)->n_runs, room);
}
static double pick_place(const void *decision) {
  const MsDecision *d = decision;
  return d->row[d->pick].place;
}
static double run_place(const void *c) {
  const MsDecision *d = MS_FIGURE_OWNER(MsDecision, c);
  return d->row[d->run[MS_FIGURE_I(c)]].place;
}
static double run_after(const void *c) { return MS_FIGURE_OWNER(MsDecision, c)->regret_after[MS_FIGURE_I(c)]; }

static const MsFigure rows[] = {
    MS_FIGURE_AS("known_runs", INT, MsDecision, n_known, "", "that the machine was anchored by, taken into account"),
    MS_FIGURE(F64, MsDecision, fastest_known_s, "s", "step of the fastest of these that is of this task, measured",
              MS_OR_NULL),
    MS_FIGURE(F64, MsDecision, expected_s, "s", "step of the layout to take, after these runs"),
    MS_FIGURE_OF("take", INT, pick_place, "", "place of the layout with the least expected regret"),
    MS_FIGURE_ARRAY(
        "layouts", LIST, MsDecision, row, n,
        MS_FIGURES(MS_FIGURE(INT, MsDecisionRow, place, "", "in the ranking, from 1"),
                   MS_FIGURE(F64, MsDecisionRow, chance, "1", "of being the fastest of those that were kept"),
                   MS_FIGURE(F64, MsDecisionRow, regret, "1", "expected share of the step that choosing it costs"),
                   MS_REPORT_OF_RESULT(MsDecisionRow, entry, MS_FIGURE(F64, MsResult, step_time_s, "s", "predicted")))),
    MS_FIGURE_EACH(
        "runs", LIST, proposed,
        MS_FIGURES(
            MS_FIGURE_OF("place", INT, run_place, "", "of the layout to measure, the most telling first"),
            MS_FIGURE_OF("regret_after", F64, run_after, "1", "expected, when this and those before were measured"))),
    {0}};
const MsFigures ms_decision_figures = {.rows = rows};
