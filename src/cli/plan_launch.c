#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cli/plan_launch.h"
#include "launch/launch.h"
#include "report/report.h"

/* The JSON object of the plan with the launch as one more member. (transfer full) */
static char *with_launch(const char *json, const char *form, int rank, const char *text) {
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "plan", NULL);
  JsonObject *launch = json_object_new();
  json_object_set_string_member(launch, "form", form);
  json_object_set_int_member(launch, "rank", rank);
  json_object_set_string_member(launch, "text", text);
  json_object_set_object_member(json_node_get_object(ms_json_root(doc)), "launch", launch);
  return ms_json_text(ms_json_root(doc), 0);
}

char *ms_cli_why_not_started(const MsScenario *s) {
  const char *form = ms_report_launch_form(s);
  g_autoptr(GError) error = NULL;
  g_autofree char *text = NULL;
  for (int word = 0; form && ms_launch_words[word] && !text && !error; word++)
    if (strcmp(ms_launch_words[word], form) == 0) text = ms_launch_text(s, ms_launch_of_word(word), &error);
  if (!error) return NULL;
  gsize file = strlen(s->file);
  gboolean said = strncmp(error->message, s->file, file) == 0 && g_str_has_prefix(error->message + file, ": ");
  return g_strdup(error->message + (said ? file + 2 : 0));
}

int ms_cli_plan_launch_check(const MsVerb *verb, const char *form, const char *out, int rank) {
  if (form && ms_cli_word(verb, "form", form, ms_launch_words) < 0) return MS_ERROR_USAGE;
  if (rank == MS_CLI_UNSET) return 0;
  if (!form && !out) return ms_cli_usage(verb, "--rank belongs to --launch and --out");
  return rank > 0 ? 0 : ms_cli_usage(verb, "--rank %d: give 1 or more", rank);
}

/* The layout of that place, counted from 1 (MS_CLI_UNSET: the first); NULL after a message. */
static const MsPlanEntry *entry_of(const MsPlan *plan, const MsRobust *robust, int rank) {
  int kept = robust ? robust->n : plan->n_best;
  rank = MAX(rank, 1);
  if (rank <= kept) return robust ? robust->row[rank - 1].entry : &plan->best[rank - 1];
  fprintf(stderr, "moesim: no such layout: %d were kept, --rank %d is asked for; --top %d keeps as many, if they fit\n",
          kept, rank, rank);
  return NULL;
}

int ms_cli_plan_keep(const MsPlan *plan, const MsRobust *robust, const char *file, int rank) {
  const MsPlanEntry *entry = entry_of(plan, robust, rank);
  if (!entry) return MS_ERROR_NOTHING;
  g_autofree char *text = ms_scenario_text_in(entry->scenario, file);
  return ms_cli_write(file, text);
}

int ms_cli_plan_launch(const MsVerb *verb, const MsPlan *plan, const MsRobust *robust, const char *form, int rank,
                       const char *json) {
  GError *error = NULL;
  const MsPlanEntry *entry = entry_of(plan, robust, rank);
  if (!entry) return MS_ERROR_NOTHING;
  rank = MAX(rank, 1);
  g_autofree char *text =
      ms_launch_text(entry->scenario, ms_launch_of_word(ms_cli_word(verb, "form", form, ms_launch_words)), &error);
  if (!text) return ms_cli_fail(error);
  ms_cli_print_file(json ? with_launch(json, form, rank, text) : g_steal_pointer(&text));
  return 0;
}

/* The place of a run in the ranking names its files. */
static char *name_of(const char *what, int place, const char *suffix) {
  return g_strdup_printf("%s-%d.%s", what, place, suffix);
}

/* Where no form is asked for, that of its framework. */
static MsLaunch launch_of(const MsVerb *verb, const char *form, const MsScenario *s) {
  int word = form ? ms_cli_word(verb, "form", form, ms_launch_words) : MS_LAUNCH_UNSAID;
  return ms_launch_of_word(ms_launch_word_for(s, word));
}

static gboolean write_run(const MsDecisionRow *row, const char *folder, MsLaunch launch, GError **error) {
  const MsScenario *s = row->entry->scenario;
  g_autofree char *json = name_of("run", row->place, "json"),
                  *script = name_of("start", row->place, ms_launch_suffix(launch)),
                  *file = g_build_filename(folder, json, NULL), *other = g_build_filename(folder, script, NULL);
  launch.file = other;
  g_autofree char *start = ms_launch_text(s, launch, error);
  if (!start) return FALSE;
  g_autofree char *text = ms_scenario_text_in(s, file), *lines = g_strconcat(text, "\n", NULL);
  return ms_write_file(file, lines, -1, error) && ms_write_file(other, start, -1, error);
}

int ms_cli_plan_decide_out(const MsVerb *verb, const MsDecision *d, const char *folder, const char *form) {
  GError *error = NULL;
  MsLaunch launch = {0};
  for (int i = 0; i < d->n_runs; i++) {
    launch = launch_of(verb, form, d->row[d->run[i]].entry->scenario);
    if (!write_run(&d->row[d->run[i]], folder, launch, &error)) return ms_cli_fail(error);
  }
  if (d->n_runs == 0) {
    fprintf(stderr, "moesim: no run would tell more: nothing is written into %s\n", folder);
    return 0;
  }
  int place = d->row[d->run[0]].place;
  fflush(stdout); /* the plan first, where both go the same way */
  g_autofree char *start = name_of("start", place, ms_launch_suffix(launch)), *log = name_of("run", place, "log");
  fprintf(stderr,
          "moesim: %d runs written into %s: start each for 20 steps and keep what it prints beside it, %s%s %s; then "
          "moesim anchor %s/run-* --out my-cluster.json\n",
          d->n_runs, folder, start, g_str_has_suffix(start, ".sh") ? " >" : " as", log, folder);
  return 0;
}
