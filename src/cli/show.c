#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cli/show.h"
#include "describe/scenario.h"

typedef struct {
  const char *word;
  const char *folder; /* of the data directory, whose names are listed when none is given; NULL: a file or a schedule */
  gboolean takes_schedule_options; /* and its names are listed when none is given */
  int (*show)(const MsShow *show, const char *name);
} What;

static const What whats[] = {
    {"model", "models", FALSE, ms_show_model},   {"hardware", "hardware", FALSE, ms_show_hardware},
    {"scenario", NULL, FALSE, ms_show_scenario}, {"ops", NULL, FALSE, ms_show_ops},
    {"schedule", NULL, TRUE, ms_show_schedule},  {"memory", NULL, FALSE, ms_show_memory},
    {"launch", NULL, FALSE, ms_show_launch},     {"laws", NULL, FALSE, ms_show_laws},
    {"fabric", NULL, FALSE, ms_show_fabric}};
static const char *const what_words[] = {"model",  "hardware", "scenario", "ops",    "schedule",
                                         "memory", "launch",   "laws",     "fabric", NULL};

static int list_names(const MsShow *show, const char *folder) {
  g_autoptr(GPtrArray) names = strcmp(folder, "models") == 0 ? ms_model_names() : ms_data_names(folder);
  if (names->len == 1) {
    fprintf(stderr, "moesim: %s/%s holds no file; MOESIM_DATA names the folder of models and machines\n", ms_data_dir(),
            folder);
    return MS_ERROR_ENV;
  }
  MsJsonOut *out = show->json ? ms_json_out_new(0) : NULL;
  if (out) ms_json_out_array(out, NULL);
  for (guint i = 0; i + 1 < names->len; i++) {
    if (out) ms_json_out_string(out, NULL, names->pdata[i]);
    else puts(names->pdata[i]);
  }
  if (!out) return 0;
  ms_json_out_end(out);
  ms_cli_print_json(out);
  return 0;
}

static int show_one(const MsVerb *verb, const MsShow *show, int argc, char **argv) {
  if (argc < 2)
    return ms_cli_usage(
        verb, "show what? model, hardware, scenario, ops, schedule, memory, launch or fabric, and its name; or laws");
  int what = ms_cli_word(verb, "subject", argv[1], what_words);
  if (what < 0) return MS_ERROR_USAGE;
  gboolean given = show->stages || show->microbatches || show->chunks != MS_CLI_UNSET || show->group != MS_CLI_UNSET ||
                   show->times || show->ep_overlap || show->svg;
  if (given && !whats[what].takes_schedule_options)
    return ms_cli_usage(
        verb, "--stages, --microbatches, --chunks, --group, --times, --ep-overlap and --svg belong to `show schedule`");
  if (show->form && whats[what].show != ms_show_launch) return ms_cli_usage(verb, "--form belongs to `show launch`");
  if (argc == 2 && whats[what].folder) return list_names(show, whats[what].folder);
  if (argc == 2 && whats[what].takes_schedule_options && !given) return ms_list_schedules(show);
  if (argc == 2 && whats[what].show == ms_show_laws) return ms_show_laws(show, NULL);
  if (argc != 3) return ms_cli_usage(verb, "show %s: give one name, not %d", argv[1], argc - 2);
  return whats[what].show(show, argv[2]);
}

int ms_cli_show(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("show");
  MsShow show = {.chunks = MS_CLI_UNSET, .group = MS_CLI_UNSET};
  const GOptionEntry entries[] = {
      {"json", 'j', 0, G_OPTION_ARG_NONE, &show.json, "one JSON object", NULL},
      {"stages", 0, 0, G_OPTION_ARG_INT, &show.stages, "schedule: pipeline stages", "P"},
      {"microbatches", 0, 0, G_OPTION_ARG_INT, &show.microbatches, "schedule: microbatches per step", "M"},
      {"chunks", 0, 0, G_OPTION_ARG_INT, &show.chunks,
       "schedule: model chunks per stage (default 1; 2 for V and bidirectional schedules)", "V"},
      {"group", 0, 0, G_OPTION_ARG_INT, &show.group, "schedule: microbatches per virtual-pipeline group (default P)",
       "N"},
      {"times", 0, 0, G_OPTION_ARG_STRING, &show.times,
       "schedule: forward, input gradient, weight gradient, p2p in any one unit (default 1,1,1,0)", "F,B,W,COMM"},
      {"ep-overlap", 0, 0, G_OPTION_ARG_NONE, &show.ep_overlap, "schedule: merge steady forward-backward pairs", NULL},
      {"svg", 0, 0, G_OPTION_ARG_FILENAME, &show.svg, "schedule: the picture as an SVG file, - is stdout", "FILE"},
      {"form", 0, 0, G_OPTION_ARG_STRING, &show.form, "launch: default that of its framework; see `moesim launch`",
       "FORM"},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) status = show_one(verb, &show, argc, argv);
  return ms_cli_done(entries, status);
}
