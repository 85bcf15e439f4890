#include <stdio.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "launch/launch.h"

typedef struct {
  char *form, *out;
  gboolean json, explain, preflight;
  int restarts;
} Options;

/* The text that is asked for; NULL and the error. (transfer full) */
static char *text_of(const Options *o, const MsScenario *s, int word, GError **error) {
  MsLaunch launch = ms_launch_of_word(word);
  launch.restarts = o->restarts, launch.file = o->out;
  return o->preflight ? ms_launch_preflight(s, error)
         : o->explain ? ms_launch_explain(s, launch, error)
                      : ms_launch_text(s, launch, error);
}

static int put(const Options *o, int word, char *text) {
  GError *error = NULL;
  if (!o->json) {
    int status = ms_write_file(o->out ? o->out : "-", text, -1, &error) ? 0 : ms_cli_fail(error);
    g_free(text);
    return status;
  }
  g_autofree char *line = ms_cli_launch_json(word, text);
  g_free(text);
  return ms_write_file(o->out ? o->out : "-", line, -1, &error) ? 0 : ms_cli_fail(error);
}

static int launch(const MsVerb *verb, const Options *o, int argc, char **argv) {
  GError *error = NULL;
  if (argc != 2) return ms_cli_usage(verb, "give one scenario, not %d", argc - 1);
  if (o->explain && o->preflight) return ms_cli_usage(verb, "--explain and --preflight print different things");
  if (o->preflight && (o->form || o->restarts))
    return ms_cli_usage(verb, "--preflight has no --form and no --restarts");
  if (o->restarts < 0 || o->restarts > 1000) return ms_cli_usage(verb, "--restarts %d: give 0 to 1000", o->restarts);
  int word = o->form ? ms_cli_word(verb, "form", o->form, ms_launch_words) : MS_LAUNCH_UNSAID;
  if (o->form && word < 0) return MS_ERROR_USAGE;
  if (o->restarts && (!o->form || ms_launch_of_word(word).around == MS_AROUND_NOTHING))
    return ms_cli_usage(verb, "--restarts belongs to a form with a scheduler around it, %s%s",
                        o->form ? "not to " : "such as --form ", o->form ? o->form : "slurm");
  g_autoptr(MsScenario) scenario = ms_scenario_load(argv[1], &error);
  if (scenario) word = ms_launch_word_for(scenario, word);
  char *text = scenario ? text_of(o, scenario, word, &error) : NULL;
  if (text && !o->preflight) ms_cli_warn_of_memory(scenario);
  return text ? put(o, word, text) : ms_cli_fail(error);
}

int ms_cli_launch(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("launch");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"form", 0, 0, G_OPTION_ARG_STRING, &o.form,
       "default that of the scenario's framework: megatron, mt-megatron, torchtitan or deepspeed; others are in "
       "docs/launch.md",
       "FORM"},
      {"restarts", 0, 0, G_OPTION_ARG_INT, &o.restarts,
       "times that a failed job starts again (default 0); needs a scheduler", "N"},
      {"explain", 0, 0, G_OPTION_ARG_NONE, &o.explain, "what each argument stands for, instead of the launch", NULL},
      {"dry-run", 0, 0, G_OPTION_ARG_NONE, &o.explain, "the same", NULL},
      {"preflight", 0, 0, G_OPTION_ARG_NONE, &o.preflight,
       "a script that checks every node against the machine file, instead of the launch", NULL},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object", NULL},
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &o.out, "write there instead of to standard output", "FILE"},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) status = launch(verb, &o, argc, argv);
  return ms_cli_done(entries, status);
}
