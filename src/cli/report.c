#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/report_plan.h"
#include "report/page.h"
#include "study/diff.h"

typedef struct {
  char *html, *title, **validation, **whatif, *plan, *around;
  gboolean no_validation, json, terminal;
} Options;

/* --- validation runs: those given, else the shipped ones of the same model on the same machine ----------------- */
static gboolean is_reported(const GPtrArray *scenarios, const MsScenario *run) {
  for (guint i = 0; i < scenarios->len; i++) {
    const MsScenario *s = scenarios->pdata[i];
    if (g_strcmp0(s->hardware->name, run->hardware->name) == 0 && g_strcmp0(s->model->name, run->model->name) == 0)
      return TRUE;
  }
  return FALSE;
}

static GPtrArray *shipped_runs(const GPtrArray *scenarios) { /* NULL-terminated file names */
  g_autofree char *folder = g_build_filename(ms_data_dir(), "scenarios", "published", NULL);
  g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);
  GPtrArray *chosen = g_ptr_array_new_with_free_func(g_free);
  const char *const paths[] = {folder, NULL};
  if (g_file_test(folder, G_FILE_TEST_IS_DIR) && ms_validation_files(paths, files, NULL))
    for (guint i = 0; i < files->len; i++) {
      g_autoptr(MsScenario) s = ms_scenario_load(files->pdata[i], NULL);
      gboolean comparable = s && s->has_measured && s->measured.weight > 0 && is_reported(scenarios, s);
      if (comparable) g_ptr_array_add(chosen, g_strdup(files->pdata[i]));
    }
  g_ptr_array_add(chosen, NULL);
  return chosen;
}

static gboolean add_validation(const Options *o, const GPtrArray *scenarios, MsPage *page, GError **error) {
  if (o->no_validation || ms_interrupted()) return TRUE;
  MsValidateOptions options;
  ms_validate_options_init(&options);
  options.progress = TRUE;
  g_autoptr(GPtrArray) shipped = o->validation ? NULL : shipped_runs(scenarios);
  const char *const *paths = o->validation ? (const char *const *)o->validation : (const char *const *)shipped->pdata;
  if (!paths[0]) return TRUE;
  g_autoptr(MsValidation) validation = ms_validate(paths, &options, error);
  if (!validation) return FALSE;
  g_autofree char *where =
      o->validation ? g_strjoinv(" ", o->validation) : g_strdup("Published runs of the same model on the same GPU");
  ms_page_set_validation(page, validation, where);
  return TRUE;
}

/* --- the page -------------------------------------------------------------------------------------------------- */
static gboolean add_run(MsPage *page, const char *file, GPtrArray *scenarios, GError **error) {
  MsScenario *scenario = ms_scenario_load_mixed(file, error);
  if (!scenario) return FALSE;
  g_ptr_array_add(scenarios, scenario);
  return ms_page_add_run(page, scenario, NULL, error);
}

/* The data of the page instead of the page. */
static int print_data(char **files, int n) {
  GError *error = NULL;
  for (int i = 0; i < n && (i == 0 || !ms_interrupted()); i++) {
    g_autoptr(MsScenario) scenario = ms_scenario_load_mixed(files[i], &error);
    char *json = scenario ? ms_page_run_json(scenario, NULL, &error) : NULL;
    if (!json) return ms_cli_fail(error);
    ms_cli_print(json);
  }
  return 0;
}

/* The run in characters instead of a page. */
static int print_terminal(char **files, int n) {
  GError *error = NULL;
  for (int i = 0; i < n && (i == 0 || !ms_interrupted()); i++) {
    g_autoptr(MsDetail) detail = NULL;
    g_autoptr(MsScenario) scenario = ms_scenario_load_mixed(files[i], &error);
    g_autoptr(MsResult) result = scenario ? ms_simulate(scenario, MS_FIDELITY_FULL, &detail, &error) : NULL;
    if (!result) return ms_cli_fail(error);
    if (i > 0) fputc('\n', stdout);
    ms_cli_print(ms_report_terminal(scenario, result, detail, ms_report_width(), ms_report_flags()));
  }
  return 0;
}

/* --- two files: what they differ in ---------------------------------------------------------------------------- */
static gboolean is_scenario(const char *file) {
  MsProfileKind kind;
  return strcmp(file, "-") == 0 || !ms_profile_kind(file, &kind, NULL) || kind == MS_PROFILE_SCENARIO;
}

/* Two scenarios that cannot be compared (other models) stand side by side only. */
static gboolean add_diff(MsPage *page, char **files, GError **error) {
  gboolean scenario[2] = {is_scenario(files[0]), is_scenario(files[1])}, both = scenario[0] && scenario[1];
  int first = scenario[0] ? 1 : 0; /* a scenario is shown at the stage of the other's rank */
  GError *cause = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(&cause);
  g_autoptr(MsProfile) a = table ? ms_profile_load(files[first], -1, -1, table, notes, &cause) : NULL;
  g_autoptr(MsProfile) b = a ? ms_profile_load(files[1 - first], -1, a->rank, table, notes, &cause) : NULL;
  g_autoptr(MsDiff) diff = b ? ms_diff_new(first ? b : a, first ? a : b, table, notes, &cause) : NULL;
  if (diff) ms_page_set_diff(page, diff);
  for (guint i = 0; diff && i < notes->len; i++) fprintf(stderr, "moesim: %s\n", (const char *)notes->pdata[i]);
  if (cause && !both) {
    g_propagate_error(error, cause);
    return FALSE;
  }
  g_clear_error(&cause);
  return TRUE;
}

static gboolean add_studies(const Options *o, MsPage *page, GError **error) {
  for (int i = 0; o->whatif && o->whatif[i] && !ms_interrupted(); i++) {
    MsWhatif *study = ms_whatif_load(o->whatif[i], error);
    g_autoptr(MsWhatifRun) run = study ? ms_whatif_run(study, &(MsWhatifOptions){.progress = TRUE}, error) : NULL;
    if (!run) return FALSE;
    ms_page_add_whatif(page, run);
  }
  return TRUE;
}

static int report(const Options *o, char **files, int n) {
  GError *error = NULL;
  int status = ms_cli_outputs(o->html);
  if (status != 0) return status;
  g_autoptr(GPtrArray) scenarios = g_ptr_array_new_with_free_func((GDestroyNotify)ms_scenario_free);
  MsPage *page = ms_page_new(o->title);
  gboolean ok = TRUE;
  if (o->plan || o->around) ok = ms_cli_report_plan(o->plan ? o->plan : o->around, !o->plan, page, scenarios, &error);
  for (int i = 0; ok && i < n && (i == 0 || !ms_interrupted()); i++)
    if (n != 2 || is_scenario(files[i])) ok = add_run(page, files[i], scenarios, &error);
  if (ok && n == 2 && strcmp(files[0], "-") != 0 && strcmp(files[1], "-") != 0) ok = add_diff(page, files, &error);
  ok = ok && add_studies(o, page, &error);
  ok = ok && add_validation(o, scenarios, page, &error);
  if (ms_interrupted()) ms_page_is_incomplete(page);
  g_autofree char *html = ms_page_take(page);
  return ok && ms_write_file(o->html, html, -1, &error) ? 0 : ms_cli_fail(error);
}

int ms_cli_report(int argc, char **argv) {
  const MsVerb *verb = ms_cli_verb("report");
  Options o = {0};
  const GOptionEntry entries[] = {
      {"html", 'o', 0, G_OPTION_ARG_FILENAME, &o.html, "the file to write, - is stdout", "FILE"},
      {"title", 0, 0, G_OPTION_ARG_STRING, &o.title, "heading of the page (default: the first scenario's name)",
       "TEXT"},
      {"validation", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o.validation,
       "runs with `measured` for the scatter (default: shipped ones of the same model and GPU); may be repeated",
       "DIR|FILE"},
      {"whatif", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o.whatif,
       "a study for curves of its own (`moesim help whatif`); may be repeated", "FILE"},
      {"plan", 'p', 0, G_OPTION_ARG_FILENAME, &o.plan,
       "instead of scenarios: the layouts to choose from of this plan request, and the map of all of them (searches)",
       "REQUEST"},
      {"around", 'a', 0, G_OPTION_ARG_FILENAME, &o.around,
       "instead of scenarios: this one, and beside it what `plan --around` finds, with the map of all layouts",
       "SCENARIO"},
      {"no-validation", 0, 0, G_OPTION_ARG_NONE, &o.no_validation, "leave the scatter out", NULL},
      {"terminal", 't', 0, G_OPTION_ARG_NONE, &o.terminal, "instead of a page a picture of characters", NULL},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "instead of a page its data, one JSON object per scenario and line",
       NULL},
      {NULL}};
  enum { MOST_RUNS = 16 };
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    if (!o.html && !o.json && !o.terminal) status = ms_cli_usage(verb, "where to? Give --html FILE or --terminal");
    else if ((o.plan || o.around) && (argc > 1 || !o.html || (o.plan && o.around)))
      status = ms_cli_usage(verb, "--plan and --around stand alone, and go with --html");
    else if (argc < 2 && !o.plan && !o.around) status = ms_cli_usage(verb, "which scenario? Give at least one file");
    else if (argc - 1 > MOST_RUNS)
      status = ms_cli_usage(verb, "%d scenarios on one page; at most %d", argc - 1, MOST_RUNS);
    else if (o.validation && o.no_validation)
      status = ms_cli_usage(verb, "--validation and --no-validation exclude each other");
    else if (!!o.json + !!o.html + !!o.terminal > 1)
      status = ms_cli_usage(verb, "--html, --terminal and --json exclude each other");
    else if (o.terminal && (o.title || o.validation || o.whatif || o.no_validation))
      status = ms_cli_usage(verb, "--terminal takes scenarios alone");
    else if (o.terminal) status = print_terminal(argv + 1, argc - 1);
    else if (o.json) status = print_data(argv + 1, argc - 1);
    else status = report(&o, argv + 1, argc - 1);
  }
  return ms_cli_done(entries, status);
}
