/* src/report/reasons.c - why the winner of a plan is the winner: two layouts side by side, what would help. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "report/report.h"
#include "study/parts.h"

enum { MOST_VALUE = 44 /* columns of a value that is compared */ };

/* --- side by side ---------------------------------------------------------------------------------------------- */
static void value_cell(MsTable *table, const char *json) {
  g_autofree char *text = ms_report_setting(json);
  if (g_utf8_strlen(text, -1) <= MOST_VALUE) {
    ms_table_cell(table, text);
    return;
  }
  g_autofree char *start = g_utf8_substring(text, 0, MOST_VALUE - 3);
  ms_table_cellf(table, "%s...", start);
}

static void append_keys(GString *out, const MsComparison *c, const char *a, const char *b) {
  if (c->n_keys == 0) {
    g_string_append(out, "differs in nothing\n");
    return;
  }
  MsTable *table = ms_table_of("differs in");
  ms_table_column(table, a, FALSE);
  ms_table_column(table, b, FALSE);
  for (int i = 0; i < c->n_keys; i++) {
    ms_table_cell(table, c->key[i].path);
    value_cell(table, c->key[i].a);
    value_cell(table, c->key[i].b);
  }
  ms_table_append(table, out);
}

typedef const char *(*UnitText)(double value, char *buf);

enum { NOTHING = 1000000 }; /* a difference below 1 / NOTHING of the whole is rounding, a part below it is none */

static void part_row(MsTable *table, const char *name, double a, double b, UnitText unit, double whole) {
  if (fabs(a) * NOTHING < whole && fabs(b) * NOTHING < whole) return;
  if (fabs(b - a) * NOTHING < whole) b = a;
  MS_TABLE_ROW(table, name, unit(a, MS_ROOM), unit(b, MS_ROOM));
  if (a == b) {
    MS_TABLE_ROW(table, "same", "-");
    return;
  }
  ms_table_cellf(table, "%s%s", b > a ? "+" : "-", unit(fabs(b - a), MS_ROOM));
  ms_table_cell(table, whole > 0 ? MS_FORMAT("%+.2f %%", 100 * (b - a) / whole) : "-");
}

static void append_parts(GString *out, const char *title, const MsComparedPart *part, int n, const char *a,
                         const char *b, UnitText unit) {
  double sum_a = 0, sum_b = 0;
  MsTable *table = ms_table_new();
  ms_table_column(table, title, FALSE);
  ms_table_column(table, a, TRUE);
  ms_table_column(table, b, TRUE);
  ms_table_columns(table, ">difference|>of the whole");
  for (int i = 0; i < n; i++) sum_a += part[i].a, sum_b += part[i].b;
  for (int i = 0; i < n; i++) part_row(table, part[i].name, part[i].a, part[i].b, unit, sum_a);
  part_row(table, "sum", sum_a, sum_b, unit, sum_a);
  ms_table_append_below(table, out);
}

/* Two layouts under the names `a` and `b` of their columns (keys in JSON): keys that differ, parts of time and memory.
 */
static char *comparison_text(const MsComparison *c, const char *a, const char *b) {
  GString *out = g_string_new(NULL);
  append_keys(out, c, a, b);
  append_parts(out, "step time, mean over stages", c->time, c->n_time, a, b, ms_text_seconds);
  append_parts(out, "memory of the fullest stage", c->memory, c->n_memory, a, b, ms_text_bytes);
  return g_string_free(out, FALSE);
}

/* Two layouts under the keys `winner` and `other`. */
#define BOTH(t, S, u, d, other)                                      \
  MS_FIGURE_AS("winner", t, S, a, u, d, .flags = MS_FIGURE_ANY_KEY), \
      MS_FIGURE_AS(other, t, S, b, u, NULL, .flags = MS_FIGURE_ANY_KEY)
#define PART_BOTH(u, other)                                                                         \
  MS_FIGURES(MS_FIGURE_AS("part", CHARS, MsComparedPart, name, "", "the largest difference first"), \
             BOTH(F64, MsComparedPart, u, "of each of the two", other))
#define COMPARISON(other)                                                                                   \
  (&(const MsFigures){                                                                                      \
      "comparison", "Of the winner with another: `*` are `winner` and the name of the other.",              \
      (const MsFigure[]){                                                                                   \
          MS_FIGURE_ARRAY(                                                                                  \
              "keys", LIST, MsComparison, key, n_keys,                                                      \
              MS_FIGURES(MS_FIGURE_AS("key", STRING, MsComparedKey, path, "", "that differs"),              \
                         BOTH(STRING, MsComparedKey, "", "its value in each of the two, as JSON", other))), \
          MS_FIGURE_ARRAY("time_s", LIST, MsComparison, time, n_time, PART_BOTH("s", other)),               \
          MS_FIGURE_ARRAY("memory_B", LIST, MsComparison, memory, n_memory, PART_BOTH("B", other)),         \
          {0}}})

/* --- what would help ------------------------------------------------------------------------------------------- */
static char *change_text(const MsSensitivity *row) {
  if (row->change) return ms_report_change(row->change);
  return g_strdup(row->planned ? "no other layout nearby is faster" : "");
}

static void append_sensitivities(GString *out, const MsSensitivities *s) {
  MsTable *table = ms_table_of("what would help the winner|>step time|>gain|with");
  for (int i = 0; i < s->n; i++) {
    g_autofree char *change = change_text(&s->row[i]);
    MS_TABLE_ROW(table, s->row[i].what, MS_SECONDS(s->row[i].step_time_s), MS_FORMAT("%.2f %%", 100 * s->row[i].gain),
                 change);
  }
  ms_table_append_below(table, out);
}

static void append_named(GString *out, const MsPlan *plan, const MsReasons *r) {
  const MsResult *named = ms_reasons_named(r);
  double device_B = ms_device_B(named), over_B = device_B - plan->memory_limit_B;
  g_string_append_printf(out, "\n%s: %s, %s on the fullest stage", r->named->name, MS_SECONDS(named->step_time_s),
                         MS_BYTES(device_B));
  if (over_B > 0) g_string_append_printf(out, ", which is %s too much", MS_BYTES(over_B));
  if (r->compared) {
    double slower = named->step_time_s / plan->best[0].result->step_time_s - 1;
    g_string_append_printf(out, "; %.2f %% %s than the winner\n", 100 * fabs(slower),
                           slower >= 0 ? "slower" : "faster");
    ms_text_append(out, comparison_text(r->compared, "winner", "yours"));
  } else {
    g_string_append_c(out, '\n');
  }
}

char *ms_report_reasons(const MsPlan *plan, const MsReasons *r) {
  GString *out = g_string_new(NULL);
  if (r->sensitivities) append_sensitivities(out, r->sensitivities);
  if (r->runner_up) {
    double gap_s = plan->best[1].result->step_time_s - plan->best[0].result->step_time_s;
    g_string_append_printf(out, "\nthe runner-up takes %s (%.2f %%) longer\n", MS_SECONDS(gap_s),
                           100 * gap_s / plan->best[0].result->step_time_s);
    ms_text_append(out, comparison_text(r->runner_up, "winner", "runner-up"));
  }
  if (r->named) append_named(out, plan, r);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const MsReasons *reasons_of(const void *o) { return ((const MsPrintedPlan *)o)->reasons; }
static double winner_s(const void *o) { return ((const MsPrintedPlan *)o)->plan->best[0].result->step_time_s; }
static double named_s(const void *o) { return ms_reasons_named(reasons_of(o))->step_time_s; }
static double named_device_B(const void *o) { return ms_device_B(ms_reasons_named(reasons_of(o))); }
static double named_fits(const void *o) {
  return named_device_B(o) <= ((const MsPrintedPlan *)o)->plan->memory_limit_B;
}
static gboolean is_compared(const void *o) { return reasons_of(o)->compared != NULL; }
static double named_slower(const void *o) { return named_s(o) / winner_s(o) - 1; }
static const void *has_named(const void *o) { return reasons_of(o)->named ? o : NULL; }

static const MsFigures sensitivity_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsSensitivity, what, "", "what would help the winner"),
    MS_FIGURE_AS("planned_again", BOOL, MsSensitivity, planned, "", "in its neighbourhood; else its own layout"),
    MS_FIGURE(F64, MsSensitivity, step_time_s, "s", "of the best then"),
    MS_FIGURE(F64, MsSensitivity, gain, "1", "1 - that / the winner's"),
    MS_FIGURE_OBJECT_AT("change", MsSensitivity, change, COMPARISON("new"), .doc = "where another layout wins then",
                        .only = "rare"));
#define REASON(...) MS_FIGURE_ROWS_AT(MsPrintedPlan, reasons, MS_FIGURES(__VA_ARGS__))
static const MsFigures sensitivities_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_ARRAY("sensitivities", LIST, MsSensitivities, row, n, &sensitivity_figures));
static const MsFigures named_figures = MS_FIGURE_UNNAMED(
    REASON(MS_FIGURE_ROWS_AT(MsReasons, named,
                             MS_FIGURES(MS_FIGURE(STRING, MsScenario, name, "", "of the layout to compare with"),
                                        MS_FIGURE(STRING, MsScenario, file, "", "where it stands")))),
    MS_FIGURE_OF("step_time_s", F64, named_s, "s", "its step"),
    MS_FIGURE_OF("device_B", F64, named_device_B, "B", "memory of its fullest stage"),
    MS_FIGURE_OF("fits", BOOL, named_fits, "", "into the memory of the request"),
    MS_FIGURE_OF("slower_than_winner", F64, named_slower, "1", "its step over the winner's - 1", .when = is_compared),
    REASON(MS_FIGURE_OBJECT_AT("compared", MsReasons, compared, COMPARISON("named"), .only = ""),
           MS_FIGURE_FILE_AT("scenario", MsReasons, named, ms_report_scenario, "complete: it runs")));
const MsFigures ms_reasons_figures = MS_FIGURE_UNNAMED(
    REASON(MS_FIGURE_ROWS_AT(MsReasons, sensitivities, &sensitivities_figures, .only = "`--explain`"),
           MS_FIGURE_OBJECT_AT("runner_up", MsReasons, runner_up, COMPARISON("runner_up"), .only = "`--explain`")),
    MS_FIGURE_FOUND("named", has_named, &named_figures, .only = "`--compare`"));
