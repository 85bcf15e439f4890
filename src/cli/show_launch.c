#include <stdio.h>

#include "cli/show.h"
#include "launch/launch.h"
#include "report/report.h"
#include "sim/simulate.h"

char *ms_cli_launch_json(int word, const char *text) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "form", ms_launch_words[word]);
  ms_json_out_string(out, "suffix", ms_launch_suffix(ms_launch_of_word(word)));
  ms_json_out_string(out, "text", text);
  ms_json_out_end(out);
  g_autofree char *line = ms_json_out_take(out);
  return g_strconcat(line, "\n", NULL);
}

void ms_cli_warn_of_memory(const MsScenario *s) {
  g_autoptr(MsResult) result = ms_simulate(s, MS_FIDELITY_BOUND, NULL, NULL);
  if (!result || result->feasible) return;
  g_autofree char *why = ms_report_name(result->why_infeasible);
  fprintf(stderr, "moesim: %s: does not fit: %s\n", s->file, why);
}

int ms_show_launch(const MsShow *show, const char *name) {
  GError *error = NULL;
  int word = show->form ? ms_cli_word(ms_cli_verb("show"), "form", show->form, ms_launch_words) : MS_LAUNCH_UNSAID;
  if (show->form && word < 0) return MS_ERROR_USAGE;
  g_autoptr(MsScenario) scenario = ms_scenario_load(name, &error);
  if (scenario) word = ms_launch_word_for(scenario, word);
  char *text = scenario ? ms_launch_text(scenario, ms_launch_of_word(word), &error) : NULL;
  if (!text) return ms_cli_fail(error);
  ms_cli_warn_of_memory(scenario);
  if (!show->json) return ms_cli_print_file(text), 0;
  ms_cli_print(ms_cli_launch_json(word, text));
  g_free(text);
  return 0;
}
