#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

typedef struct {
  char *by, *fidelity;
  int threads;
  gboolean all, exact, json;
} Options;

static gboolean fill(const MsVerb *verb, const Options *o, MsValidateOptions *options) {
  ms_validate_options_init(options);
  int by = o->by ? ms_cli_word(verb, "grouping", o->by, ms_by_words) : MS_BY_NOTHING;
  int fidelity = by >= 0 && o->fidelity ? ms_cli_word(verb, "fidelity", o->fidelity, ms_fidelity_words) : MS_FIDELITY_FULL;
  options->by = (MsValidateBy)by;
  options->fidelity = (MsFidelity)fidelity;
  options->all = o->all;
  options->exact = o->exact;
  options->threads = o->threads;
  options->progress = TRUE;
  return by >= 0 && fidelity >= 0;
}

static int validate(const Options *o, const char *const *paths, const MsValidateOptions *options) {
  GError *error = NULL;
  ms_interrupt_install();
  g_autoptr(MsValidation) validation = ms_validate(paths, options, &error);
  if (!validation) return ms_cli_fail(error);
  if (o->json) {
    ms_cli_print(ms_report_validation_json(validation, options));
  } else {
    ms_cli_print(ms_report_validation(validation, options, ms_report_colour() ? MS_REPORT_COLOUR : 0));
  }
  return 0;
}

int ms_cli_validate(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("validate");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"by", 'b', 0, G_OPTION_ARG_STRING, &o.by, "summarise by gpu, model, source (folder), confidence or stack", "WHAT"},
      {"fidelity", 'f', 0, G_OPTION_ARG_STRING, &o.fidelity, "bound, fast or full (default)", "LEVEL"},
      {"all", 'a', 0, G_OPTION_ARG_NONE, &o.all, "count rows of weight 0 too", NULL},
      {"exact", 'x', 0, G_OPTION_ARG_NONE, &o.exact, "count only runs whose configuration is known exactly", NULL},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default)", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object: rows, summary, by", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    MsValidateOptions options;
    if (argc < 2)
      status = ms_cli_usage(verb, "give folders or files with a `measured` section");
    else if (!fill(verb, &o, &options))
      status = MS_ERROR_USAGE;
    else
      status = validate(&o, (const char *const *)argv + 1, &options);
  }
  g_free(o.by);
  g_free(o.fidelity);
  return status;
}
