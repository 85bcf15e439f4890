/* src/report/robust.c - layouts ranked under disturbances, as text and JSON. */
#include <math.h>

#include "base/text.h"
#include "report/report.h"

static void seconds_cell(MsTable *table, double time_s) {
  ms_table_cell(table, isfinite(time_s) ? MS_SECONDS(time_s) : "no memory");
}

static void append_proof(GString *out, const MsRobust *r) {
  if (r->proven && !isfinite(r->outside_s))
    g_string_append_printf(out, "the best of all layouts that fit: all %d were judged\n", r->n);
  else if (r->proven)
    g_string_append_printf(out, "the best of all layouts: one outside these %d expects at least %s\n", r->n,
                           MS_SECONDS(r->outside_s));
  else if (!isfinite(r->row[0].expected_s)) g_string_append(out, "every candidate runs out of memory in some state\n");
  else
    g_string_append_printf(out,
                           "the best of the %d layouts that are fastest nominally; not proven for the others: one of "
                           "them expects at least %s, the best here %s (--top looks at more)\n",
                           r->n, MS_SECONDS(r->outside_s), MS_SECONDS(r->row[0].expected_s));
}

char *ms_report_robust(const MsRobust *r, int top) {
  GString *out = g_string_new("\nunder disturbances, by expected step time\n");
  MsTable *table = ms_table_of(">#|>by p95|>by nominal|layout|>expected|>p95|>nominal");
  for (int d = 0; d < r->disturbances->n; d++) ms_table_column(table, r->disturbances->row[d].name, TRUE);
  g_autoptr(GPtrArray) listed = g_ptr_array_new();
  g_autofree int *place = g_new(int, r->n);
  for (int i = 0; i < r->n && (top <= 0 || i < top); i++) {
    const MsRobustRow *row = &r->row[i];
    g_autofree char *layout = ms_report_layout(row->entry->scenario);
    place[i] = i + 1;
    g_ptr_array_add(listed, row->entry->scenario);
    MS_TABLE_ROW(table, MS_FORMAT("%d", i + 1), MS_FORMAT("%d", row->place_p95), MS_FORMAT("%d", row->place), layout);
    seconds_cell(table, row->expected_s), seconds_cell(table, row->p95_s),
        seconds_cell(table, row->entry->result->step_time_s);
    for (int d = 0; d < r->disturbances->n; d++) seconds_cell(table, row->state_s[d]);
  }
  ms_table_append(table, out);
  ms_report_append_apart(out, listed, place);
  append_proof(out, r);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const MsRobustRow *row_of(const void *c) { return &MS_FIGURE_OWNER(MsRobust, c)->row[MS_FIGURE_I(c)]; }
static const void *ranked(const void *robust, guint i, MsFigureCursor *room) {
  return ms_figure_place(robust, i, (guint)((const MsRobust *)robust)->n, room);
}
static const void *row_at(const void *c) { return row_of(c); }
static const void *state_s(const void *c, guint i, MsFigureCursor *room) {
  (void)room;
  return i < (guint)MS_FIGURE_OWNER(MsRobust, c)->disturbances->n ? &row_of(c)->state_s[i] : NULL;
}

static const MsFigures ranked_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(F64, MsRobustRow, expected_s, "s", "mean step time over the states; null: some do not fit", MS_OR_NULL),
    MS_FIGURE(F64, MsRobustRow, p95_s, "s", "of the states' steps", MS_OR_NULL),
    MS_REPORT_OF_RESULT(MsRobustRow, entry, MS_FIGURE(F64, MsResult, step_time_s, "s", "undisturbed")),
    MS_FIGURE_AS("place_nominal", INT, MsRobustRow, place, "", "by the undisturbed step, from 1"),
    MS_FIGURE(INT, MsRobustRow, place_p95, "", "by p95, from 1"));
const MsFigures ms_robust_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(BOOL, MsRobust, proven, "", "no layout outside the list can be better"),
    MS_FIGURE(F64, MsRobust, outside_s, "s", "none outside expects less; null: none is outside", MS_OR_NULL),
    MS_FIGURE_ROWS_AT(MsRobust, disturbances,
                      MS_FIGURES(MS_FIGURE_ARRAY("states", LIST, MsDisturbances, row, n,
                                                 MS_FIGURES(MS_FIGURE(STRING, MsDisturbance, name, "", "of the state"),
                                                            MS_FIGURE_AS("probability", F64, MsDisturbance, weight, "1",
                                                                         "they add up to 1"))))),
    MS_FIGURE_EACH("ranking", LIST, ranked,
                   MS_FIGURES(MS_FIGURE_ROWS_OF(row_at, &ranked_figures),
                              MS_FIGURE_EACH("states_s", LIST, state_s, &ms_figure_numbers, .unit = "s",
                                             .doc = "mean step in each state", MS_OR_NULL),
                              MS_FIGURE_ROWS_OF(row_at, MS_FIGURES(MS_REPORT_ENTRY_SCENARIO(MsRobustRow, entry))))));
