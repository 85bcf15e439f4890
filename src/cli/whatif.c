#include <stdio.h>

#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

enum { MOST_THREADS = 1024 };

typedef struct {
  char *hardware, *csv, *plot;
  int threads;
  gboolean json;
} Options;

static void runs_free(GPtrArray *runs) {
  for (guint i = 0; i < runs->len; i++) ms_whatif_run_free(runs->pdata[i]);
  g_ptr_array_free(runs, TRUE);
}

static gboolean write_files(const Options *o, const GPtrArray *runs, GError **error) {
  if (o->csv) {
    g_autofree char *rows = ms_report_whatif_csv((MsWhatifRun *const *)runs->pdata, runs->len);
    if (!ms_write_file(o->csv, rows, -1, error)) return FALSE;
  }
  return !o->plot || ms_report_whatif_plot(runs->pdata[0], o->plot, error);
}

static void print(const Options *o, const MsWhatifRun *run, gboolean first) {
  if (g_strcmp0(o->csv, "-") == 0) return;
  if (!first && !o->json) fputc('\n', stdout);
  ms_cli_print(o->json ? ms_report_whatif_json(run) : ms_report_whatif(run, ms_report_colour() ? MS_REPORT_COLOUR : 0));
}

static int run_files(const Options *o, char **files, GPtrArray *runs) {
  const MsWhatifOptions options = {.threads = o->threads, .progress = TRUE};
  GError *error = NULL;
  guint points = 0;
  int status = ms_cli_outputs(o->csv);
  if (status != 0) return status;
  if (!ms_report_can_plot(o->plot, &error)) return ms_cli_fail(error);
  for (; *files && (runs->len == 0 || !ms_interrupted()); files++) {
    MsWhatif *whatif = ms_whatif_load_on(*files, o->hardware, &error);
    MsWhatifRun *run = whatif ? ms_whatif_run(whatif, &options, &error) : NULL;
    if (!run) return ms_cli_fail(error);
    g_ptr_array_add(runs, run);
    points += run->extent.done;
    print(o, run, runs->len == 1);
  }
  if (runs->len > 0 && !write_files(o, runs, &error)) return ms_cli_fail(error);
  return ms_cli_found(points > 0);
}

static const char *wrong(const Options *o, int files) {
  if (files < 1) return "give one or more what-if files; scenarios/whatif/ has some";
  if (o->plot && files > 1) return "--plot draws one study; give one file";
  if (ms_cli_picture(o->plot)) return ms_cli_picture(o->plot);
  if (o->threads < 0 || o->threads > MOST_THREADS) return "--threads takes 0 (all cores) to 1024";
  return NULL;
}

int ms_cli_whatif(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("whatif");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"hardware", 'w', 0, G_OPTION_ARG_STRING, &o.hardware, "on this machine, whatever the base says", "NAME"},
      {"csv", 0, 0, G_OPTION_ARG_FILENAME, &o.csv, "write every point of every study, - is stdout", "FILE"},
      {"plot", 'p', 0, G_OPTION_ARG_FILENAME, &o.plot,
       "parts and throughput of the points, .svg or .png (needs gnuplot)", "FILE"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default); the answer is the same", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object per study and line", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    const char *message = wrong(&o, argc - 1);
    GPtrArray *runs = g_ptr_array_new();
    argv[argc] = NULL;
    status = message ? ms_cli_usage(verb, "%s", message) : run_files(&o, argv + 1, runs);
    runs_free(runs);
  }
  g_free(o.hardware);
  g_free(o.csv);
  g_free(o.plot);
  return status;
}
