#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

typedef struct {
  char *out, *hardware, *name, *date;
  gboolean evaluate, unnamed, json;
  int threads;
} Options;

static int anchor(const Options *o, char **files) {
  GError *error = NULL;
  int status = ms_cli_outputs(o->out);
  if (status != 0) return status;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *date = ms_cli_date_of(o->date);
  const MsAnchorOptions options = {(const char *const *)files, o->hardware, o->name, date, o->threads};
  g_autoptr(MsAnchored) anchored = ms_anchor(&options, notes, &error);
  if (!anchored) return ms_cli_fail(error);
  ms_cli_print_notes(notes);
  g_autofree char *said = ms_report_anchored(anchored);
  fputs(said, stderr);
  return ms_cli_write(o->out, anchored->text);
}

static int evaluate(const Options *o, char **paths) {
  GError *error = NULL;
  MsValidateOptions options;
  ms_validate_options_init(&options);
  options.threads = o->threads;
  options.progress = TRUE;
  g_autoptr(MsAnchorEvaluation) e = ms_anchor_evaluate((const char *const *)paths, o->unnamed, &options, &error);
  if (!e) return ms_cli_fail(error);
  ms_cli_print(o->json ? ms_figures_json(&ms_anchor_figures, e) : ms_report_anchor_evaluation(e));
  return ms_cli_found(e->runs > 0);
}

static const char *wrong(const Options *o, int files) {
  const char *date = ms_cli_date(o->date);
  if (files == 0) return "give scenarios with `measured`, or each with the profile or the log of its run behind it";
  if (o->evaluate && (o->out || o->hardware || o->name || o->date))
    return "--evaluate takes folders, --unnamed, --threads and --json";
  if (!o->evaluate && (o->unnamed || o->json)) return "--unnamed and --json are for --evaluate";
  if (o->threads < 0 || o->threads > 4096) return "--threads takes a number from 0 to 4096";
  return date;
}

int ms_cli_anchor(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("anchor");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &o.out, "write the machine there instead of to standard output", "FILE"},
      {"hardware", 0, 0, G_OPTION_ARG_STRING, &o.hardware,
       "machine to start from, in place of that of the scenarios: a name in hardware/ or a path", "NAME"},
      {"name", 0, 0, G_OPTION_ARG_STRING, &o.name, "name of the new machine (default: NAME-anchored)", "NAME"},
      {"date", 0, 0, G_OPTION_ARG_STRING, &o.date, "date of the provenance (default: $SOURCE_DATE_EPOCH, else today)",
       "YYYY-MM-DD"},
      {"evaluate", 0, 0, G_OPTION_ARG_NONE, &o.evaluate,
       "each run of folders as the only anchor of its site, and every two: errors of the others", NULL},
      {"unnamed", 0, 0, G_OPTION_ARG_NONE, &o.unnamed,
       "--evaluate: as if the software of the runs were not known, as on a machine of one's own", NULL},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default)", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "--evaluate: one JSON object", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    g_autofree char **words = g_new0(char *, argc); /* ends with NULL */
    memcpy(words, argv + 1, sizeof *words * (size_t)(argc - 1));
    const char *why = wrong(&o, argc - 1);
    status = why ? ms_cli_usage(verb, "%s", why) : o.evaluate ? evaluate(&o, words) : anchor(&o, words);
  }
  return ms_cli_done(entries, status);
}
