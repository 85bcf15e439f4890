/* src/report/changes.c - what to do with a run, from what single changes of it would gain. */
#include <string.h>

#include "base/text.h"
#include "report/report.h"

enum { MOST_SENTENCES = 3 };

/* With the layers of the stages, where other sizes need others: as it stands the change can be made. (transfer full) */
static char *whole_change(const MsComparison *c) {
  const MsComparedKey *cut = NULL;
  for (int i = 0; c->n_keys > 1 && i < c->n_keys; i++)
    if (strcmp(c->key[i].path, "layout.pipeline_layout") == 0) cut = &c->key[i];
  char *change = ms_report_change(c);
  if (!cut || strcmp(cut->b, "null") == 0) return change;
  g_autofree char *sizes = change, *layers = ms_report_setting(cut->b);
  return g_strdup_printf("%s with pipeline_layout %s", sizes, layers);
}

/* Above the planner's limit of memory nothing else is of use. (transfer full) */
static char *about_memory(const MsResult *run, const MsChanges *c) {
  double used = 100 * ms_device_B(run) / run->capacity_B;
  if (!c->frees)
    return g_strdup_printf("at %.0f %% of the memory no single change helps: plan --around looks at all layouts", used);
  g_autofree char *change = whole_change(c->frees->change);
  double slower = -c->frees->gain;
  if (used <= 100 && slower > MS_PICK_LOSS)
    return g_strdup_printf(
        "at %.0f %% of the memory it is tight, and no single change that helps is cheap: %s frees %s "
        "for %.1f %% of the step; plan --around looks at all layouts",
        used, change, MS_BYTES(c->frees->freed_B), 100 * slower);
  return g_strdup_printf("at %.0f %% of the memory: %s frees %s and %s %.1f %% of the step", used, change,
                         MS_BYTES(c->frees->freed_B), slower < 0 ? "saves" : "costs", 100 * ABS(slower));
}

MsAdvice ms_advice_of(const MsResult *run, const MsChanges *c) {
  MsAdvice advice = {0, g_new0(char *, MOST_SENTENCES + 1)};
  if (ms_device_B(run) > c->limit_B) advice.line[advice.n++] = about_memory(run, c);
  for (int i = 0; i < c->n && advice.n < MOST_SENTENCES; i++) {
    g_autofree char *change = whole_change(c->row[i].change);
    advice.line[advice.n++] = g_strdup_printf("%s gains %.1f %%", change, 100 * c->row[i].gain);
  }
  return advice;
}

void ms_advice_clear(MsAdvice *advice) { g_clear_pointer(&advice->line, g_strfreev); }

char *ms_report_changes(const MsResult *run, const MsChanges *c) {
  MsAdvice advice = ms_advice_of(run, c);
  GString *out = g_string_new(NULL);
  for (int i = 0; i < advice.n; i++) g_string_append_printf(out, "%-15s%s\n", i ? "" : "  do", advice.line[i]);
  ms_advice_clear(&advice);
  return g_string_free(out, FALSE);
}

/* --- figures --------------------------------------------------------------------------------------------------- */
static const MsFigures change_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ROWS_AT(
        MsChange, change,
        MS_FIGURES(MS_FIGURE_ARRAY(
            "keys", LIST, MsComparison, key, n_keys,
            MS_FIGURES(MS_FIGURE_AS("key", STRING, MsComparedKey, path, "", "that differs"),
                       MS_FIGURE_AS("from", STRING, MsComparedKey, a, "", "its value in the run, as JSON"),
                       MS_FIGURE_AS("to", STRING, MsComparedKey, b, "", "and with the change"))))),
    MS_FIGURE(F64, MsChange, step_time_s, "s", "with it"),
    MS_FIGURE(F64, MsChange, gain, "1", "share of the step; negative where it is slower"),
    MS_FIGURE(F64, MsChange, freed_B, "B", "of the fullest stage"));
const MsFigures ms_changes_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_ARRAY("changes", LIST, MsChanges, row, n, &change_figures),
    MS_FIGURE_OBJECT_AT("frees", MsChanges, frees, &change_figures,
                        .doc = "the fastest change that brings it below the planner's limit of memory",
                        .only = "runs above it"));
