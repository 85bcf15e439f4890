/* src/report/regret.c - what it costs to believe the predicted order, as text and JSON. */
#include "base/text.h"
#include "report/report.h"

enum { WORST = 8 };

char *ms_report_regret(const MsRegret *all) {
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "regret: %u tasks of %u runs, %u chosen right, mean %s, at most %s\n", all->n, all->runs,
                         all->right, MS_PERCENT(all->mean), MS_PERCENT(all->max));
  MsTable *table = ms_table_of("chosen by prediction|fastest|>of runs|>slower by");
  for (guint i = 0; i < all->n && i < WORST && all->tasks[i].regret > 0; i++) {
    MS_TABLE_ROW(table, all->tasks[i].chosen, all->tasks[i].best, MS_FORMAT("%u", all->tasks[i].runs),
                 MS_PERCENT(all->tasks[i].regret));
  }
  g_autofree char *text = ms_table_take(table);
  if (all->right < all->n) g_string_append_printf(out, "\n%s", text);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
const MsFigures ms_regret_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_AS("n", UINT, MsRegret, n, "", "tasks with two runs or more"),
    MS_FIGURE(UINT, MsRegret, runs, "", "of all of them"),
    MS_FIGURE(UINT, MsRegret, right, "", "tasks whose fastest run was predicted to be it"),
    MS_FIGURE(F64, MsRegret, mean, "1", "measured step of the run predicted fastest over the best, less one"),
    MS_FIGURE(F64, MsRegret, max, "1", "the largest of them"),
    MS_FIGURE_ARRAY("tasks", LIST, MsRegret, tasks, n,
                    MS_FIGURES(MS_FIGURE(STRING, MsRegretTask, chosen, "", "run that was predicted fastest"),
                               MS_FIGURE(STRING, MsRegretTask, best, "", "run that was measured fastest"),
                               MS_FIGURE(UINT, MsRegretTask, runs, "", "of the task"),
                               MS_FIGURE(F64, MsRegretTask, regret, "1", "of the task"))));
