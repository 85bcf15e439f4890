#include <stdio.h>

#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

typedef struct {
  char *hardware, *by, *fidelity, *ladders, *plot, *csv, *leave, *fitted;
  int threads;
  gboolean all, exact, cross, regret, json;
} Options;

static gboolean fill(const MsVerb *verb, const Options *o, MsValidateOptions *options) {
  ms_validate_options_init(options);
  int by = o->by ? ms_cli_word(verb, "grouping", o->by, ms_by_words) : MS_BY_NOTHING;
  int fidelity =
      by >= 0 && o->fidelity ? ms_cli_word(verb, "fidelity", o->fidelity, ms_fidelity_words) : MS_FIDELITY_FULL;
  options->by = (MsValidateBy)by;
  options->fidelity = (MsFidelity)fidelity;
  options->hardware = o->hardware;
  options->all = o->all;
  options->exact = o->exact;
  options->threads = o->threads;
  options->progress = TRUE;
  return by >= 0 && fidelity >= 0;
}

static gboolean write_files(const Options *o, const MsValidation *validation, GError **error) {
  if (o->csv) {
    g_autofree char *rows = ms_report_validation_csv(validation);
    if (!ms_write_file(o->csv, rows, -1, error)) return FALSE;
  }
  return !o->plot || ms_report_validation_plot(validation, o->plot, error);
}

static void print(const Options *o, const MsValidation *validation, const MsLadders *ladders, const MsRegret *regret,
                  const MsValidateOptions *options) {
  if (g_strcmp0(o->csv, "-") == 0) return;
  if (o->json) {
    ms_cli_print(ms_report_validation_json(validation, ladders, regret, options));
    return;
  }
  ms_cli_print(ms_report_validation(validation, options, ms_report_flags()));
  if (ladders) fputc('\n', stdout), ms_cli_print(ms_report_ladders(ladders));
  if (regret) fputc('\n', stdout), ms_cli_print(ms_report_regret(regret));
}

static int validate(const Options *o, const char *const *paths, const MsValidateOptions *options) {
  GError *error = NULL;
  int status = ms_cli_outputs(o->csv);
  if (status != 0) return status;
  g_autoptr(MsJson) sets = o->ladders ? ms_json_load(o->ladders, &error) : NULL; /* before the long work */
  if (o->ladders && !sets) return ms_cli_fail(error);
  if (!ms_report_can_plot(o->plot, &error)) return ms_cli_fail(error);
  g_autoptr(MsValidation) validation = ms_validate(paths, options, &error);
  if (!validation) return ms_cli_fail(error);
  g_autoptr(MsLadders) ladders = sets ? ms_ladders(validation, sets, &error) : NULL;
  if (o->ladders && !ladders && !ms_interrupted()) return ms_cli_fail(error);
  g_clear_error(&error);
  g_autoptr(MsRegret) regret = o->regret ? ms_regret(validation, &error) : NULL;
  if (o->regret && !regret && !ms_interrupted()) return ms_cli_fail(error);
  g_clear_error(&error);
  print(o, validation, ladders, regret, options);
  gboolean nothing = ms_interrupted() && validation->n_rows == 0; /* to draw */
  if (!nothing && !write_files(o, validation, &error)) return ms_cli_fail(error);
  gboolean all_refused = validation->predicted == 0 && validation->refused > 0;
  return all_refused ? MS_ERROR_NOTHING : ms_cli_found(validation->predicted > 0);
}

static int cross_validate(const MsVerb *verb, const Options *o, const char *const *paths,
                          const MsValidateOptions *options) {
  GError *error = NULL;
  int leave = o->leave ? ms_cli_word(verb, "what to leave out", o->leave, ms_leave_words) : MS_LEAVE_GROUP;
  if (leave < 0) return MS_ERROR_USAGE;
  if (!ms_crossval_can_write(o->fitted, &error)) return ms_cli_fail(error);
  g_autoptr(MsCrossval) crossval = ms_crossval(paths, options, (MsLeave)leave, &error);
  if (!crossval) return ms_cli_fail(error);
  ms_cli_print(o->json ? ms_figures_json(&ms_crossval_figures, crossval) : ms_report_crossval(crossval));
  return ms_crossval_write(crossval, o->fitted, &error) ? ms_cli_found(crossval->runs > 0) : ms_cli_fail(error);
}

/* NULL, or what is wrong with the options taken together. */
static const char *wrong(const Options *o, int paths) {
  if (paths < 1) return "give folders or files with a `measured` section";
  if (ms_cli_picture(o->plot)) return ms_cli_picture(o->plot);
  if (o->cross && (o->hardware || o->fidelity || o->ladders || o->plot || o->csv || o->all || o->regret))
    return "--cross-validate goes with --by, --exact, --leave, --write-fitted, --threads and --json only";
  if (!o->cross && (o->leave || o->fitted)) return "--leave and --write-fitted belong to --cross-validate";
  return NULL;
}

int ms_cli_validate(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("validate");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"hardware", 'w', 0, G_OPTION_ARG_STRING, &o.hardware,
       "all runs on this machine, such as an anchored one, whatever their files say", "NAME"},
      {"by", 'b', 0, G_OPTION_ARG_STRING, &o.by,
       "summarise by this (source is the folder); cross-validate: what is left out, group: gpu",
       "gpu|model|source|confidence|stack"},
      {"fidelity", 'f', 0, G_OPTION_ARG_STRING, &o.fidelity,
       "closed form, schedule of chunks, or every operator (default full)", "bound|fast|full"},
      {"all", 'a', 0, G_OPTION_ARG_NONE, &o.all, "count rows of weight 0 too", NULL},
      {"exact", 'x', 0, G_OPTION_ARG_NONE, &o.exact, "count only runs whose configuration is known exactly", NULL},
      {"ladders", 'l', 0, G_OPTION_ARG_FILENAME, &o.ladders,
       "rank order and single-knob changes over the sets of a ladders file", "FILE"},
      {"regret", 0, 0, G_OPTION_ARG_NONE, &o.regret,
       "what the run predicted fastest takes over the fastest one, among runs of one task", NULL},
      {"csv", 0, 0, G_OPTION_ARG_FILENAME, &o.csv, "write every row, - is stdout", "FILE"},
      {"plot", 'p', 0, G_OPTION_ARG_FILENAME, &o.plot,
       "predicted against measured step times, .svg or .png (needs gnuplot)", "FILE"},
      {"cross-validate", 'c', 0, G_OPTION_ARG_NONE, &o.cross,
       "refit the shared figures and laws, leaving out one group at a time", NULL},
      {"leave", 0, 0, G_OPTION_ARG_STRING, &o.leave,
       "cross-validate: what is left out at a time; group: a model on a GPU (default)", "group|source|model|gpu"},
      {"write-fitted", 0, 0, G_OPTION_ARG_FILENAME, &o.fitted,
       "cross-validate: write the data files that the fit on all runs changes: laws, stacks, clocks, host times",
       "FOLDER"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default)", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object: rows, summary, by", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    MsValidateOptions options;
    const char *message = wrong(&o, argc - 1);
    if (message) status = ms_cli_usage(verb, "%s", message);
    else if (!fill(verb, &o, &options)) status = MS_ERROR_USAGE;
    else if (o.cross) status = cross_validate(verb, &o, (const char *const *)argv + 1, &options);
    else status = validate(&o, (const char *const *)argv + 1, &options);
  }
  return ms_cli_done(entries, status);
}
