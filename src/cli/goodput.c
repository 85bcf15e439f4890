#include <stdio.h>

#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

enum { MOST_THREADS = 1024 };

typedef struct {
  int threads;
  gboolean json;
} Options;

static int goodput(const Options *o, const char *file, gboolean first, gboolean *found) {
  GError *error = NULL;
  const MsGoodputOptions options = {.threads = o->threads, .progress = TRUE};
  MsGoodput *study = ms_goodput_load(file, &error);
  g_autoptr(MsGoodputResult) result = study ? ms_goodput_run(study, &options, &error) : NULL;
  if (!result) return ms_cli_fail(error);
  if (!first && !o->json) fputc('\n', stdout);
  ms_cli_print(o->json ? ms_figures_json(&ms_goodput_figures, result) : ms_report_goodput(result, ms_report_flags()));
  *found |= result->extent.done > 0 || !ms_extent_stopped(&result->extent);
  return 0;
}

int ms_cli_goodput(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("goodput");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default); the answer is the same", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object per study and line", NULL},
      {NULL}};
  int status = 0;
  if (!ms_cli_options(verb, entries, &argc, &argv, &status)) return status;
  if (argc < 2) return ms_cli_usage(verb, "give one or more goodput files; scenarios/goodput/ has some");
  if (o.threads < 0 || o.threads > MOST_THREADS)
    return ms_cli_usage(verb, "--threads takes 0 (all cores) to %d", MOST_THREADS);
  gboolean found = FALSE;
  for (int i = 1; i < argc && status == 0 && (i == 1 || !ms_interrupted()); i++)
    status = goodput(&o, argv[i], i == 1, &found);
  return status != 0 ? status : ms_cli_found(found);
}
