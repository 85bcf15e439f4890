#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "report/report.h"

enum { MOST_THREADS = 1024 };

typedef struct {
  char *hardware, *csv, *plot, *base, **set;
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
  ms_cli_print(o->json ? ms_report_whatif_json(run) : ms_report_whatif(run, ms_report_flags()));
}

static gboolean any_predicted(const MsWhatifRun *run) {
  for (int i = 0; i < run->n; i++)
    if (run->row[i].result) return TRUE;
  return FALSE;
}

/* --- a study of a few words: --base RUN --set KEY=VALUE,VALUE --- */
static void write_value(MsJsonOut *out, const char *text) {
  g_autoptr(JsonNode) node = ms_json_of_word(text);
  ms_json_out_node(out, NULL, node);
}

static MsWhatif *study_of_words(const Options *o, GError **error) {
  MsJsonOut *out = ms_json_out_new(0);
  g_autofree char *name = g_path_get_basename(o->base);
  if (g_str_has_suffix(name, ".json")) name[strlen(name) - strlen(".json")] = '\0';
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "name", name);
  ms_json_out_string(out, "base", o->base);
  ms_json_out_array(out, "axes");
  for (char **set = o->set; *set; set++) {
    const char *equals = strchr(*set, '=');
    g_autofree char *key = g_strndup(*set, (gsize)(equals - *set));
    g_auto(GStrv) values = g_strsplit(equals + 1, ",", -1);
    ms_json_out_object(out, NULL);
    ms_json_out_string(out, "key", key);
    ms_json_out_array(out, "values");
    for (char **value = values; *value; value++) write_value(out, *value);
    ms_json_out_end(out);
    ms_json_out_end(out);
  }
  ms_json_out_end(out);
  ms_json_out_end(out);
  g_autofree char *text = ms_json_out_take(out);
  MsJson *doc = ms_json_parse(text, -1, "command line", error);
  return doc ? ms_whatif_from_doc_on(doc, o->hardware, error) : NULL;
}

static int run_files(const Options *o, char **files, GPtrArray *runs) {
  const MsWhatifOptions options = {.threads = o->threads, .progress = TRUE};
  GError *error = NULL;
  gboolean any = FALSE;
  int status = ms_cli_outputs(o->csv);
  if (status != 0) return status;
  if (!ms_report_can_plot(o->plot, &error)) return ms_cli_fail(error);
  for (int i = 0; (o->base ? i == 0 : files[i] != NULL) && (i == 0 || !ms_interrupted()); i++) {
    MsWhatif *whatif = o->base ? study_of_words(o, &error) : ms_whatif_load_on(files[i], o->hardware, &error);
    MsWhatifRun *run = whatif ? ms_whatif_run(whatif, &options, &error) : NULL;
    if (!run) return ms_cli_fail(error);
    g_ptr_array_add(runs, run);
    any |= any_predicted(run);
    print(o, run, runs->len == 1);
  }
  if (runs->len > 0 && !write_files(o, runs, &error)) return ms_cli_fail(error);
  return any ? 0 : MS_ERROR_NOTHING;
}

/* The first key that stands in two --set; NULL: none. (transfer full) */
static char *key_set_twice(char **set) {
  g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (; set && *set; set++) {
    char *key = g_strndup(*set, strcspn(*set, "="));
    if (g_hash_table_contains(seen, key)) return key;
    g_hash_table_add(seen, key);
  }
  return NULL;
}

static const char *wrong(const Options *o, int files) {
  for (int i = 0; o->set && o->set[i]; i++)
    if (!strchr(o->set[i], '=') || o->set[i][0] == '=') return "--set takes KEY=VALUE, or KEY=VALUE,VALUE";
  if (!o->base != !o->set) return "--base RUN and --set KEY=VALUE go together";
  if (o->base && files > 0) return "--base and --set stand for a what-if file: give one or the other";
  if (g_strcmp0(o->base, "-") == 0) return "--base takes a file: it is read for every point";
  if (files < 1 && !o->base) return "give one or more what-if files (scenarios/whatif/ has some), or --base and --set";
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
      {"base", 'b', 0, G_OPTION_ARG_FILENAME, &o.base, "without a what-if file: the run whose keys --set changes",
       "SCENARIO"},
      {"set", 's', 0, G_OPTION_ARG_STRING_ARRAY, &o.set,
       "with --base: a key and its values, such as hardware.nic_Bps=200Gb/s,800Gb/s; may be repeated", "KEY=V,…"},
      {"csv", 0, 0, G_OPTION_ARG_FILENAME, &o.csv, "write every point of every study, - is stdout", "FILE"},
      {"plot", 'p', 0, G_OPTION_ARG_FILENAME, &o.plot,
       "parts and throughput of the points, .svg or .png (needs gnuplot)", "FILE"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "0: all cores (default); the answer is the same", "N"},
      {"json", 'j', 0, G_OPTION_ARG_NONE, &o.json, "one JSON object per study and line", NULL},
      {NULL}};
  int status = 0;
  if (ms_cli_options(verb, entries, &argc, &argv, &status)) {
    const char *message = wrong(&o, argc - 1);
    g_autofree char *twice = key_set_twice(o.set);
    GPtrArray *runs = g_ptr_array_new();
    argv[argc] = NULL;
    status = message ? ms_cli_usage(verb, "%s", message)
             : twice ? ms_cli_usage(verb, "--set %s is given twice; give its values in one: %s=V,V", twice, twice)
                     : run_files(&o, argv + 1, runs);
    runs_free(runs);
  }
  return ms_cli_done(entries, status);
}
