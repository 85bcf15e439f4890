#include <math.h>
#include <stdio.h>

#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

enum { MOST_THREADS = 1024 };

typedef struct {
  char *junit, *markdown, *tolerance;
  int threads;
  gboolean update, json;
} Options;

static int update(const char *file, char **scenarios, const MsCheckOptions *options) {
  GError *error = NULL;
  int status = ms_cli_outputs(file);
  if (status != 0) return status;
  g_autoptr(MsBaseline) kept = *scenarios ? NULL : ms_baseline_load(file, &error);
  g_autoptr(MsBaseline) made = *scenarios ? ms_baseline_new(file, (const char *const *)scenarios, &error) : NULL;
  MsBaseline *baseline = kept ? kept : made;
  if (!baseline || !ms_check_update(baseline, options, &error)) return ms_cli_fail(error);
  g_autofree char *text = ms_baseline_text(baseline);
  if (!ms_write_file(file, text, -1, &error)) return ms_cli_fail(error);
  fprintf(stderr, "moesim: wrote %d predictions to %s\n", baseline->n, file);
  return 0;
}

static int write_report(const char *file, char *text, GError **error) {
  g_autofree char *owned = text;
  return !file || ms_write_file(file, owned, -1, error);
}

static int check(const Options *o, const char *file, const MsCheckOptions *options) {
  GError *error = NULL;
  int status = ms_cli_outputs(o->junit, o->markdown);
  if (status != 0) return status;
  MsBaseline *baseline = ms_baseline_load(file, &error);
  g_autoptr(MsCheck) result = baseline ? ms_check(baseline, options, &error) : NULL;
  if (!result) return ms_cli_fail(error);
  gboolean to_stdout = g_strcmp0(o->junit, "-") == 0 || g_strcmp0(o->markdown, "-") == 0;
  if (!to_stdout)
    ms_cli_print(o->json ? ms_figures_json(&ms_check_figures, result) : ms_report_check(result, ms_report_flags()));
  if (!write_report(o->junit, ms_report_check_junit(result), &error) ||
      !write_report(o->markdown, ms_report_check_markdown(result), &error))
    return ms_cli_fail(error);
  return result->drifted > 0 || ms_extent_stopped(&result->extent) ? MS_ERROR_NOTHING : 0;
}

/* A fraction in [0, 1]; FALSE when it is none. */
static gboolean parse_tolerance(const char *text, double *value) {
  char *end;
  *value = NAN;
  if (!text) return TRUE;
  *value = g_ascii_strtod(text, &end);
  return end != text && !*end && *value >= 0 && *value <= 1;
}

static const char *wrong(const Options *o, int arguments) {
  if (arguments < 1) return "give the baseline file; --update writes one";
  if (arguments > 1 && !o->update) return "give one baseline; scenarios go with --update";
  if (o->update && (o->junit || o->markdown || o->json))
    return "--update compares nothing: --junit, --markdown and --json do not go with it";
  if (g_strcmp0(o->junit, "-") == 0 && g_strcmp0(o->markdown, "-") == 0)
    return "--junit and --markdown cannot both go to standard output";
  if (o->threads < 0 || o->threads > MOST_THREADS) return "--threads takes 0 (all cores) to 1024";
  return NULL;
}

int ms_cli_check(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("check");
  Options o = {0};
  MsCheckOptions options = {.progress = TRUE};
  const GOptionEntry entries[] = {
      {"update", 'u', 0, G_OPTION_ARG_NONE, &o.update,
       "write the baseline: of the scenarios and folders given, else of those it holds", NULL},
      {"tolerance", 't', 0, G_OPTION_ARG_STRING, &o.tolerance,
       "relative drift that passes, of every quantity (default: as the file says); with --update: its default", "X"},
      {"junit", 0, 0, G_OPTION_ARG_FILENAME, &o.junit, "write JUnit XML for CI systems, - is stdout", "FILE"},
      {"markdown", 0, 0, G_OPTION_ARG_FILENAME, &o.markdown, "write a Markdown summary, - is stdout", "FILE"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default); the answer is the same", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    const char *message = wrong(&o, argc - 1);
    argv[argc] = NULL;
    if (!message && !parse_tolerance(o.tolerance, &options.tolerance))
      message = "--tolerance takes a fraction, such as 0.001";
    options.threads = o.threads;
    if (message) status = ms_cli_usage(verb, "%s", message);
    else status = o.update ? update(argv[1], argv + 2, &options) : check(&o, argv[1], &options);
  }
  return ms_cli_done(entries, status);
}
