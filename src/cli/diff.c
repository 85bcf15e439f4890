#include <stdio.h>

#include "cli/cli.h"
#include "report/report.h"

typedef struct {
  gboolean json;
  int stage; /* MS_CLI_UNSET */
} Options;

static int diff(const Options *o, const char *a_file, const char *b_file) {
  GError *error = NULL;
  int stage = o->stage == MS_CLI_UNSET ? -1 : o->stage;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(&error);
  MsProfileKind a_kind;
  if (!table || !ms_profile_kind(a_file, &a_kind, &error)) return ms_cli_fail(error);
  /* a prediction is shown at the stage of the other's rank: that one is read first */
  gboolean b_first = a_kind == MS_PROFILE_SCENARIO || a_kind == MS_PROFILE_SAVED_RUN;
  g_autoptr(MsProfile) first = ms_profile_load(b_first ? b_file : a_file, stage, -1, table, notes, &error);
  g_autoptr(MsProfile) second =
      first ? ms_profile_load(b_first ? a_file : b_file, stage, first->rank, table, notes, &error) : NULL;
  if (!second) return ms_cli_fail(error);
  g_autoptr(MsDiff) d = ms_diff_new(b_first ? second : first, b_first ? first : second, table, notes, &error);
  if (!d) return ms_cli_fail(error);
  for (guint i = 0; i < notes->len; i++) fprintf(stderr, "moesim: %s\n", (const char *)notes->pdata[i]);
  ms_cli_print(o->json ? ms_figures_json(&ms_diff_figures, d) : ms_report_diff(d));
  return 0;
}

int ms_cli_diff(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("diff");
  Options o = {.stage = MS_CLI_UNSET};
  const GOptionEntry entries[] = {
      {"stage", 0, 0, G_OPTION_ARG_INT, &o.stage,
       "pipeline stage of predictions, counted from 0 (default: that of the trace's rank, else the one that computes "
       "longest)",
       "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object", NULL},
      {NULL}};
  int status = 0;
  if (!ms_cli_options(verb, entries, &argc, &argv, &status)) return status;
  if (argc != 3) return ms_cli_usage(verb, "give two files: scenarios, traces or saved results");
  if (g_str_equal(argv[1], "-") || g_str_equal(argv[2], "-"))
    return ms_cli_usage(verb, "diff looks at a file twice: give files, not standard input");
  if (o.stage != MS_CLI_UNSET && o.stage < 0) return ms_cli_usage(verb, "--stage %d: stages count from 0", o.stage);
  return diff(&o, argv[1], argv[2]);
}
