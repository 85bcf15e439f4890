/* The program from outside: keys of docs/json.md, exit codes, traces, tables and JSON of plans; test_full_cli runs
 * every shipped file and the commands of the README. */
#include "lib/cli.h"
#include "lib/close.h"

#include "lib/json_doc.h"
#include "lib/tier.h"
#include "lib/world.h"

#include <glib/gstdio.h>
#include <string.h>

/* Every key of `path`, of the kind that its letter says: n number, s string, b boolean, a list, ? string or null. */
static void check_key(JsonNode *root, const char *kind_path) {
  JsonNode *node = ms_cli_at(root, kind_path + 1);
  GType type = JSON_NODE_HOLDS_VALUE(node) ? json_node_get_value_type(node) : 0;
  gboolean number = type == G_TYPE_INT64 || type == G_TYPE_DOUBLE;
  gboolean fine = *kind_path == 'n'   ? number
                  : *kind_path == 's' ? type == G_TYPE_STRING
                  : *kind_path == 'b' ? type == G_TYPE_BOOLEAN
                  : *kind_path == 'a' ? JSON_NODE_HOLDS_ARRAY(node)
                                      : JSON_NODE_HOLDS_NULL(node) || type == G_TYPE_STRING;
  if (!fine) fail_msg("%s is of the wrong type", kind_path + 1);
}

static const char *const run_keys[] = {"sname",
                                       "bfeasible",
                                       "?why_infeasible",
                                       "nstep_time_s",
                                       "ntokens_per_s_per_gpu",
                                       "nmodel_flop_per_token",
                                       "ntflops_per_gpu",
                                       "nmfu",
                                       "nbound.step_time_lower_s",
                                       "ntime.compute_s",
                                       "ntime.exposed_comm_s",
                                       "ntime.bubble_s",
                                       "ntime.host_s",
                                       "ntime.optimizer_s",
                                       "ntime.other_s",
                                       "ntime.comm.tp.total_s",
                                       "ntime.comm.tp.exposed_s",
                                       "ntime.comm.cp.total_s",
                                       "ntime.comm.cp.exposed_s",
                                       "ntime.comm.ep.total_s",
                                       "ntime.comm.ep.exposed_s",
                                       "ntime.comm.etp.total_s",
                                       "ntime.comm.etp.exposed_s",
                                       "ntime.comm.pp.total_s",
                                       "ntime.comm.pp.exposed_s",
                                       "ntime.comm.dp.total_s",
                                       "ntime.comm.dp.exposed_s",
                                       "ntime.comm.edp.total_s",
                                       "ntime.comm.edp.exposed_s",
                                       "ntime.comm.offload.total_s",
                                       "ntime.comm.offload.exposed_s",
                                       "nmemory.peak_B",
                                       "nmemory.capacity_B",
                                       "nmemory.peak_stage",
                                       "nmemory.stages[0].stage",
                                       "nmemory.stages[0].parameters_B",
                                       "nmemory.stages[0].gradients_B",
                                       "nmemory.stages[0].optimizer_B",
                                       "nmemory.stages[0].activations_B",
                                       "nmemory.stages[0].buffers_B",
                                       "nmemory.stages[0].reserved_B",
                                       "nmemory.stages[0].peak_B",
                                       "nlayout.dp",
                                       "nlayout.edp",
                                       "nlayout.microbatches",
                                       "nevents",
                                       "sfidelity"};

static void run_json_has_its_documented_keys(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("run-deepseek-v3-gb200-256.json");
  static const char *const fidelities[] = {"bound", "fast", "full"};
  for (guint f = 0; f < G_N_ELEMENTS(fidelities); f++) {
    g_auto(MsCliRun) r = RUN("run", "--json", "--fidelity", fidelities[f], file);
    ms_cli_expect(&r, 0, file);
    assert_string_equal(r.err, "");
    g_autoptr(MsJson) doc = ms_cli_json(r.out, "run --json");
    for (guint i = 0; i < G_N_ELEMENTS(run_keys); i++) check_key(ms_json_root(doc), run_keys[i]);
    check_key(ms_json_root(doc), "nelapsed_s");
    assert_string_equal(json_node_get_string(ms_cli_at(ms_json_root(doc), "fidelity")), fidelities[f]);
  }
}

/* One object per line, in the order of the files. */
static void many_scenarios_are_many_lines(void **state) {
  (void)state;
  g_autofree char *a = ms_cli_shipped("run-llama3-70b-h100-64.json"),
                  *b = ms_cli_shipped("run-qwen3-235b-h100-256.json");
  g_auto(MsCliRun) r = RUN("run", "--json", "-f", "fast", b, a, b);
  ms_cli_expect(&r, 0, "three scenarios");
  g_auto(GStrv) line = g_strsplit(r.out, "\n", -1);
  assert_int_equal(g_strv_length(line), 4);
  static const char *const names[] = {"run-qwen3-235b-h100-256", "run-llama3-70b-h100-64", "run-qwen3-235b-h100-256"};
  for (int i = 0; i < 3; i++) {
    g_autoptr(MsJson) doc = ms_cli_json(line[i], "line");
    assert_string_equal(json_node_get_string(ms_cli_at(ms_json_root(doc), "name")), names[i]);
  }
}

/* --hardware answers what a file with that machine would: in run, in a study whose points change the machine, and in a
 * validation. */
static void another_machine_stands_in_for_the_file_s(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  const char *format = "{\"schema\": 1, \"name\": \"nic\", \"base\": \"%s\", "
                       "\"axes\": [{\"key\": \"hardware.nic_Bps\", \"values\": [1e10, 2e10]}]}";
  g_autofree char *shipped = ms_cli_shipped("run-llama3-70b-h100-64.json"), *text = NULL;
  assert_true(g_file_get_contents(shipped, &text, NULL, NULL));
  g_auto(GStrv) around = g_strsplit(text, "\"h100-sxm\"", -1);
  assert_int_equal(g_strv_length(around), 2);
  g_autofree char *changed = g_strjoinv("\"b200-sxm\"", around), *stated = ms_cli_written("stated.json", changed);
  g_autofree char *of_shipped = g_strdup_printf(format, shipped), *of_stated = g_strdup_printf(format, stated);
  g_autofree char *a = ms_cli_written("a.json", of_shipped), *b = ms_cli_written("b.json", of_stated);
  g_auto(MsCliRun) run = RUN("run", "-f", "fast", "--hardware", "b200-sxm", shipped);
  g_auto(MsCliRun) run_stated = RUN("run", "-f", "fast", stated);
  assert_string_equal(strchr(run.out, '\n'), strchr(run_stated.out, '\n'));
  g_auto(MsCliRun) whatif = RUN("whatif", "--csv", "-", "-w", "b200-sxm", a);
  g_auto(MsCliRun) whatif_stated = RUN("whatif", "--csv", "-", b);
  ms_cli_expect(&whatif, 0, "whatif -w");
  assert_string_equal(whatif.out, whatif_stated.out);
  g_auto(MsCliRun) unknown = RUN("run", "-w", "nosuch", shipped);
  ms_cli_expect(&unknown, 3, "unknown machine");
  g_unlink(a), g_unlink(b), g_unlink(stated);
}

/* A validation on a machine whose file only builds upon another predicts the same, on another machine something else.
 */
static void validation_on_another_machine(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("published/mlperf-v4.0");
  g_autofree char *same =
      ms_cli_written("same.json", "{\"schema\": 1, \"name\": \"h100-sxm\", \"base\": \"h100-sxm\"}");
  const char *const quick[] = {"validate", "-f", "fast", "--csv", "-"};
  g_auto(MsCliRun) stated = RUN(quick[0], quick[1], quick[2], quick[3], quick[4], file);
  g_auto(MsCliRun) built = RUN(quick[0], quick[1], quick[2], quick[3], quick[4], "-w", same, file);
  g_auto(MsCliRun) other = RUN(quick[0], quick[1], quick[2], quick[3], quick[4], "-w", "b200-sxm", file);
  ms_cli_expect(&built, 0, "validate -w");
  assert_string_equal(stated.out, built.out);
  assert_string_not_equal(stated.out, other.out);
  g_unlink(same);
}

static void standard_input_is_a_file(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("run-llama3-70b-h100-64.json"), *text = NULL;
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  const char *const argv[] = {"run", "--json", "-f", "fast", "-", NULL};
  g_auto(MsCliRun) r = ms_cli_run(argv, text);
  ms_cli_expect(&r, 0, "stdin");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "run -");
  assert_string_equal(json_node_get_string(ms_cli_at(ms_json_root(doc), "name")), "run-llama3-70b-h100-64");
  g_auto(MsCliRun) empty = RUN("run", "-", "--json"); /* an error of the file */
  ms_cli_expect(&empty, 3, "empty stdin");
}

/* --- trace and timeline ---------------------------------------------------------------------------------------- */
static void trace_and_timeline(void **state) {
  (void)state;
  /* few layers and microbatches: the reader takes traces of 64 MiB */
  g_autofree char *file = ms_cli_path("small.json"), *trace = ms_cli_path("t.json"), *csv = ms_cli_path("t.csv");
  MsScenario *s = ms_test_run("mixtral-8x7b", -1, "h100-sxm", 32);
  s->layout.pp = 4, s->layout.ep = 8, s->training.global_batch_size = 64;
  MsJsonOut *out = ms_json_out_new(2);
  ms_scenario_write(s, NULL, out);
  g_autofree char *text = ms_json_out_take(out);
  ms_scenario_free(s);
  assert_true(g_file_set_contents(file, text, -1, NULL));
  g_auto(MsCliRun) r = RUN("run", "--json", "--trace", trace, "--memory", csv, file);
  ms_cli_expect(&r, 0, "run --trace");
  g_auto(MsCliRun) both = RUN("run", "--json", "--trace", "-", file);
  assert_true(both.status == 2 && *both.out == '\0' && strstr(both.err, "both want standard output"));
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "run --json");
  GError *error = NULL;
  g_autoptr(MsJson) events = ms_json_load(trace, &error);
  if (!events) fail_msg("%s", error->message);
  JsonArray *list = json_node_get_array(ms_cli_at(ms_json_root(events), "traceEvents"));
  guint spans = 0, counters = 0;
  gboolean stage[4] = {FALSE};
  for (guint i = 0; i < json_array_get_length(list); i++) {
    JsonObject *e = json_array_get_object_element(list, i);
    const char *ph = json_object_get_string_member(e, "ph");
    spans += !strcmp(ph, "X"), counters += !strcmp(ph, "C");
    if (!strcmp(ph, "X") && json_object_get_int_member(e, "pid") < 4)
      stage[json_object_get_int_member(e, "pid")] = TRUE;
  }
  assert_true(spans > 1000 && counters >= 4 * 2 * 8); /* after every slot */
  for (int i = 0; i < 4; i++) assert_true(stage[i]);
  g_autofree char *rows = NULL;
  assert_true(g_file_get_contents(csv, &rows, NULL, NULL));
  assert_true(g_str_has_prefix(rows, "stage,time_s,allocated_B,slot\n"));
  g_remove(trace), g_remove(csv), g_remove(file);
}

/* --- plan ------------------------------------------------------------------------------------------------------ */
static const char request[] =
    "{\"schema\": 1, \"name\": \"small\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, \"hardware\": "
    "\"h100-sxm\", \"gpus\": 8, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 64, \"micro_batch_size\": "
    "[1, 2]}, \"layout\": {\"cp\": 1}, \"plan\": {\"training_tokens\": 1e12}}";

/* The request for two clusters. (transfer full) */
static char *two_clusters(void) {
  GString *text = g_string_new(request);
  assert_int_equal(g_string_replace(text, "\"gpus\": 8", "\"gpus\": [8, 16]", 1), 1);
  return g_string_free(text, FALSE);
}

static void plan_json_has_its_documented_keys(void **state) {
  (void)state;
  static const char *const keys[] = {"srequest",   "nsearched",  "nfeasible", "npruned",
                                     "nsimulated", "nelapsed_s", "abest"};
  g_autofree char *file = ms_cli_path("request.json"), *best = ms_cli_path("best.json");
  assert_true(g_file_set_contents(file, request, -1, NULL));
  g_auto(MsCliRun) r = RUN("plan", "--json", "--top", "3", file);
  ms_cli_expect(&r, 0, "plan --json");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "plan --json");
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++) check_key(ms_json_root(doc), keys[i]);
  JsonNode *list = ms_cli_at(ms_json_root(doc), "best");
  assert_int_equal(json_array_get_length(json_node_get_array(list)), 3);
  for (int p = 0; p < 3; p++)
    for (guint i = 0; i < G_N_ELEMENTS(run_keys); i++)
      check_key(json_array_get_element(json_node_get_array(list), (guint)p), run_keys[i]);
  /* best[0].scenario is a complete file: it runs, and gives the time of the ranking */
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_node(out, NULL, ms_cli_at(list, "0.scenario"));
  g_autofree char *text = ms_json_out_take(out);
  assert_true(g_file_set_contents(best, text, -1, NULL));
  g_auto(MsCliRun) again = RUN("run", "--json", best);
  ms_cli_expect(&again, 0, "run of the best");
  g_autoptr(MsJson) result = ms_cli_json(again.out, "run");
  assert_close(json_node_get_double(ms_cli_at(ms_json_root(result), "step_time_s")),
               json_node_get_double(ms_cli_at(list, "0.step_time_s")), 0);
  g_auto(MsCliRun) table = RUN("plan", "--explain", file);
  ms_cli_expect(&table, 0, "plan --explain");
  assert_non_null(strstr(table.out, "world-divides"));
  assert_non_null(strstr(table.out, "what would help the winner"));
  assert_non_null(strstr(table.out, "the runner-up takes "));
  /* the winner beside itself; a run of something else is no comparison */
  g_auto(MsCliRun) beside = RUN("plan", "--json", "--explain", "--compare", best, file);
  ms_cli_expect(&beside, 0, "plan --compare");
  g_autoptr(MsJson) reasons = ms_cli_json(beside.out, "plan --compare");
  JsonNode *root = ms_json_root(reasons);
  assert_close(json_node_get_double(ms_cli_at(root, "named.slower_than_winner")), 0, 0);
  assert_int_equal(json_array_get_length(json_node_get_array(ms_cli_at(root, "named.compared.keys"))), 0);
  assert_int_equal(json_array_get_length(json_node_get_array(ms_cli_at(root, "sensitivities"))), 7);
  assert_true(json_array_get_length(json_node_get_array(ms_cli_at(root, "runner_up.time_s"))) > 3);
  g_autofree char *qwen = ms_cli_shipped("run-qwen3-235b-h100-256.json");
  g_auto(MsCliRun) other = RUN("plan", "--compare", qwen, file);
  ms_cli_expect(&other, 3, "plan --compare of another task");
  assert_non_null(strstr(other.err, "only layouts of one task can be compared"));
  g_remove(file), g_remove(best);
}

/* --- docs/json.md ---------------------------------------------------------------------------------------------- */
/* What the command prints is what the table says. */
static void check_printed(MsJsonDoc *doc, const char *table, int status, const char *const *argv) {
  g_auto(MsCliRun) r = ms_cli_run(argv, "");
  ms_cli_expect(&r, status, table);
  g_autoptr(MsJson) json = ms_cli_json(r.out, table);
  ms_json_doc_check(doc, table, ms_json_root(json));
}
#define PRINTED(doc, table, status, ...) check_printed(doc, table, status, (const char *const[]){__VA_ARGS__, NULL})

/* Amounts are written with their units, and what is refused says what was meant. */
static void amounts_of_options(void **state) {
  (void)state;
  static const struct {
    const char *argv[12], *says; /* NULL: taken */
  } rows[] = {
      {{"gemm", "decide", "64", "64", "64", "--hardware", "h100-sxm", "-w", "200MB"}, NULL},
      {{"gemm", "decide", "64", "64", "64", "--hardware", "h100-sxm", "-w", "0.5"}, NULL},
      {{"gemm", "decide", "64", "64", "64", "--hardware", "h100-sxm", "-w", "200Mb"}, "is a size in bits"},
      {{"import", "hf", "--vocab-size", "128k", "x.json"}, "may be 128000 or 131072"},
      {{"import", "megatron", "--gpus", "8GB", "x.sh"}, "is a size in bytes"},
      {{"plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "--tokens", "1T", "--deadline", "20"}, "\"20d\" was"},
      {{"plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "--tokens", "20"}, "\"20T\" was probably"},
      {{"plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "--max-memory", "190%"}, "of a GPU's memory up to 1"},
      {{"plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "--tokens", "1TB"}, "is a size in bytes"},
      {{"run", "--fidelity", "bound", "--time-limit", "5days", "x.json"}, "--time-limit 5days: give a time"},
      {{"show", "model", "--time-limit", "1min"}, "unknown option"},
      {{"plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "1k"}, "may be 1000 or 1024"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_auto(MsCliRun) r = ms_cli_run(rows[i].argv, "");
    ms_cli_expect(&r, rows[i].says ? 2 : 0, rows[i].argv[1]);
    if (rows[i].says && !strstr(r.err, rows[i].says)) fail_msg("\"%s\" has not \"%s\"", r.err, rows[i].says);
  }
}

/* Names steer no terminal; a job that does not fit is written with a word; all refused is nothing found. */
static void files_that_are_odd(void **state) {
  (void)state;
#define SCENARIO(name, machine)                                                                                   \
  "{\"name\": \"" name "\", \"model\": \"llama3-8b\", \"hardware\": \"" machine "\", \"gpus\": 8, \"training\": " \
  "{\"seq_length\": 4096, \"global_batch_size\": 32}, \"layout\": {\"tp\": 1}}"
  g_autofree char *steers = ms_cli_written("steers.json", SCENARIO("x\\u001b[31m\\u0007\\ny", "h100-sxm")),
                  *large = ms_cli_written("large-job.json", SCENARIO("large", "l40s")),
                  *wrong = ms_cli_written("wrong.json", "{\"measured\": {}, \"training\": 1}");
  g_auto(MsCliRun) run = RUN("run", "--fidelity", "bound", steers);
  ms_cli_expect(&run, 0, "a name with control characters");
  assert_true(g_str_has_prefix(run.out, "x [31m  y   ["));
  g_auto(MsCliRun) job = RUN("launch", large), shown = RUN("show", "launch", large);
  ms_cli_expect(&job, 0, "a job that does not fit");
  assert_true(strstr(job.err, "large-job.json: does not fit: stage 0 needs") && strstr(job.out, "torchrun"));
  assert_string_equal(job.err, shown.err);
  g_auto(MsCliRun) refused = RUN("validate", wrong);
  ms_cli_expect(&refused, 1, "validate of what is refused");
  g_remove(steers), g_remove(large), g_remove(wrong);
}

static void a_data_folder_that_is_empty(void **state) {
  (void)state;
  g_autofree char *before = g_strdup(g_getenv("MOESIM_DATA"));
  g_setenv("MOESIM_DATA", "/nonexistent", TRUE);
  g_auto(MsCliRun) plan = RUN("plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8");
  if (before) g_setenv("MOESIM_DATA", before, TRUE);
  else g_unsetenv("MOESIM_DATA");
  assert_true(plan.status == 3 && strstr(plan.err, "/nonexistent/models holds no file; MOESIM_DATA names the folder"));
}

static void says_once(const char *what, const char *text) {
  const char *at = strstr(text, what);
  assert_non_null(at);
  assert_null(strstr(at + 1, what));
}

static const char every_part[] =
    "{\"schema\": 1, \"name\": \"parts\", \"fidelity\": \"fast\", \"base\": \"%s\", \"axes\": [{\"name\": \"a\", "
    "\"points\": ["
    "{\"label\": \"skewed\", \"set\": {\"training.routing\": {\"zipf\": 0.5, \"seed\": 1}}},"
    "{\"label\": \"scheme\", \"set\": {\"options.lcma\": true, \"options.lcma_workspace_B\": 5e8, "
    "\"hardware.hbm_Bps\": 3.35e13}},"
    "{\"label\": \"split\", \"set\": {\"layout.vpp\": 1, \"layout.pipeline_layout\": \"Et*12|(t*12|)*6t*10L\", "
    "\"layout.schedule\": \"zb-h1\", \"options.ep_overlap\": false}},"
    "{\"label\": \"impossible\", \"set\": {\"layout.ep\": 7}}]}]}";

/* A baseline whose stored figures are not today's. */
static char *moved_baseline(const char *scenario) {
  g_autofree char *file = ms_cli_path("moved.json"), *text = NULL;
  g_auto(MsCliRun) r = RUN("check", "--update", file, scenario);
  ms_cli_expect(&r, 0, "check --update");
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  g_autoptr(GRegex) time = g_regex_new("(\"step_time_s\": *)[0-9.]+", 0, 0, NULL),
                    input = g_regex_new("(\"num_layers\": *)[0-9]+(,\\s*\"hidden_size\": *8192,\\s*\"ffn)", 0, 0, NULL);
  g_autofree char *other_time = g_regex_replace(time, text, -1, 0, "\\g<1>1.5", 0, NULL),
                  *other = g_regex_replace(input, other_time, -1, 0, "\\g<1>79\\2", 0, NULL);
  return ms_cli_written("moved.json", other);
}

static char *drawn_routing(const char *scenario) {
  g_autofree char *text = NULL;
  assert_true(g_file_get_contents(scenario, &text, NULL, NULL));
  g_autoptr(GRegex) routing = g_regex_new("\"routing\": *\"[a-z]*\"", 0, 0, NULL);
  g_autofree char *drawn =
      g_regex_replace_literal(routing, text, -1, 0, "\"routing\": {\"zipf\": 0.5, \"seed\": 1}", 0, NULL);
  return ms_cli_written("drawn.json", drawn);
}

/* Where its line stands in what was printed. */
static gssize line_of(const MsCliRun *r, const char *key) {
  const char *at = strstr(r->out, key);
  return at ? at - r->out : G_MAXSSIZE;
}

/* By the share of a step that follows each times how far off it may be: the peak of the S5000 and the clock of a Gaudi
 * before the launches of their hosts, which may be further off and which both steps hardly wait for. */
static void what_to_measure_first_stands_first(void **state) {
  (void)state;
  g_auto(MsCliRun) s5000 = RUN("show", "hardware", "mtt-s5000"), gaudi = RUN("show", "hardware", "gaudi2");
  ms_cli_expect(&s5000, 0, "of a MoE step");
  assert_true(line_of(&s5000, "\npeak_bf16_flops  20.0 %") < line_of(&s5000, "\nkernel_launch_s  50.0 %"));
  assert_true(line_of(&s5000, "\nnic_Bps          50.0 %") < line_of(&s5000, "\nhost_link_Bps    50.0 %"));
  assert_true(line_of(&gaudi, "\nsustained_derate  30.0 %") < line_of(&gaudi, "\nkernel_launch_s   50.0 %"));
}

static void printed_json_is_as_documented(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autoptr(MsJsonDoc) doc = ms_json_doc_load(MS_SOURCE_DIR "/docs/json.md");
  g_autofree char *dense = ms_cli_shipped("run-llama3-70b-h100-64.json"),
                  *moe = ms_cli_shipped("run-qwen3-235b-h100-256.json"),
                  *runs = ms_cli_shipped("goodput/elastic-llama3-70b-64.json");
  g_autofree char *budget = ms_cli_shipped("goodput/deepseek-v3-2048.json"),
                  *states = ms_cli_shipped("under/common.json"), *slow = ms_cli_shipped("fabric/slow-ranks.json"),
                  *published =
                      ms_cli_shipped("published/mcore-moe-recipes/MR-deepseek-v3-gb200-mxfp8_256GPU_TP1PP4EP64.json");
  g_autofree char *study = g_strdup_printf(every_part, moe), *drawn = drawn_routing(moe);
  g_autofree char *whatif = ms_cli_written("parts.json", study), *baseline = moved_baseline(dense),
                  *plan = ms_cli_written("small.json", request);
  g_autofree char *two = two_clusters(), *clusters = ms_cli_written("clusters.json", two),
                  *best = ms_cli_path("best.json");
  g_autofree char *assumed = ms_cli_written(
      "assumed.json", "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": \"mtt-s5000\", \"gpus\": 8, "
                      "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, \"layout\": {\"tp\": 2}, "
                      "\"cluster\": {\"expected\": true}}");
  g_autofree char *pools = ms_cli_written(
      "pools.json", "{\"model\": \"llama3-8b\", \"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 4}, {\"hardware\": "
                    "\"a100-sxm-80g\", \"gpus\": 4}], \"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, "
                    "\"layout\": {\"tp\": 2, \"pp\": 2}}");
  g_autofree char *shares = ms_cli_written(
      "shares.json", "{\"model\": \"llama3-8b\", \"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 4, \"batch\": 20}, "
                     "{\"hardware\": \"a100-sxm-80g\", \"gpus\": 4, \"batch\": 12}], \"training\": {\"seq_length\": "
                     "4096, \"global_batch_size\": 32}, \"layout\": {\"tp\": 2}}");
  g_autofree char *large =
      ms_cli_written("large.json", "{\"model\": \"llama3-70b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
                                   "{\"seq_length\": 4096, \"global_batch_size\": 32}, \"layout\": {\"cp\": 1}}");
  g_autofree char *full = ms_cli_written(
      "full.json", "{\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": {\"seq_length\": "
                   "4096, \"global_batch_size\": 32, \"micro_batch_size\": 4}, \"layout\": {\"tp\": 2}}");
  PRINTED(doc, "plan", 1, "plan", "--json", large);
  PRINTED(doc, "run", 0, "run", "--json", "--explain", dense);
  PRINTED(doc, "run", 0, "run", "--json", assumed);
  PRINTED(doc, "run", 0, "run", "--json", "--fidelity", "bound", pools);
  g_auto(MsCliRun) around = RUN("plan", "--around", pools);
  assert_true(around.status == 3 && strstr(around.err, "pools: --around is not modelled for machines of several"));
  PRINTED(doc, "run", 0, "run", "--json", shares);
  PRINTED(doc, "report", 0, "report", "--json", pools);
  PRINTED(doc, "report", 0, "report", "--json", shares);
  PRINTED(doc, "run", 0, "run", "--json", "--explain", full);
  PRINTED(doc, "report", 0, "report", "--json", dense);
  PRINTED(doc, "schedule", 0, "show", "schedule", "dualpipe", "--stages", "4", "--microbatches", "8", "--json");
  PRINTED(doc, "model", 0, "show", "model", "mixtral-8x7b", "--json");
  PRINTED(doc, "run", 0, "run", "--json", "--fidelity", "bound", moe);
  PRINTED(doc, "run", 0, "run", "--json", "--explain", "--draws", "2", drawn);
  PRINTED(doc, "run", 0, "run", "--json", "--fidelity", "cluster", "--draws", "1", slow);
  PRINTED(doc, "whatif", 0, "whatif", "--json", whatif);
  PRINTED(doc, "check", 1, "check", "--json", baseline);
  PRINTED(doc, "goodput", 0, "goodput", "--json", runs);
  PRINTED(doc, "goodput", 0, "goodput", "--json", budget);
  PRINTED(doc, "validate", 0, "validate", "--json", "--by", "gpu", published);
  g_auto(MsCliRun) first = RUN("plan", "--json", plan);
  g_autoptr(MsJson) list = ms_cli_json(first.out, "plan");
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_node(out, NULL, ms_cli_at(ms_json_root(list), "best.0.scenario"));
  g_autofree char *winner = ms_json_out_take(out);
  assert_true(g_file_set_contents(best, winner, -1, NULL));
  PRINTED(doc, "plan", 0, "plan", "--json", "--decide", "--explain", "--compare", best, plan);
  PRINTED(doc, "plan", 0, "plan", "--json", "--under", states, "--map", plan);
  PRINTED(doc, "sweep", 0, "plan", "--json", "--front", "--top", "1", clusters);
  g_auto(MsCliRun) sweep = RUN("plan", "--json", clusters);
  says_once("\"elapsed_s\"", first.out), says_once("\"elapsed_s\"", sweep.out);
  static const char *const tables[] = {"run",        "result", "time",  "memory", "plan",    "sweep",
                                       "comparison", "whatif", "point", "check",  "goodput", "spread",
                                       "validate",   "errors", "drawn", "moved"};
  for (guint i = 0; i < G_N_ELEMENTS(tables); i++) ms_json_doc_check_met(doc, tables[i]);
  g_remove(whatif), g_remove(baseline), g_remove(plan), g_remove(clusters), g_remove(best), g_remove(drawn),
      g_remove(large);
}

/* The request that options mean is a file that plans to the same list. */
static void plan_without_a_file(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *file = ms_cli_path("asked.json");
  g_auto(MsCliRun) kept = RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8",
                              "--global-batch-size", "64", "--write-request", file);
  ms_cli_expect(&kept, 0, "plan --write-request");
  assert_string_equal(kept.out, "");
  g_auto(MsCliRun) asked =
      RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8", "--global-batch-size", "64");
  g_auto(MsCliRun) read = RUN("plan", file);
  ms_cli_expect(&asked, 0, "plan --model");
  ms_cli_expect(&read, 0, "plan of the kept request");
  assert_non_null(strstr(asked.out, "sequence 4096, batch 64"));
  assert_string_equal(asked.out, read.out);
  g_auto(MsCliRun) path = RUN("plan", "--model", MS_SOURCE_DIR "/models/llama3-8b.json", "--hardware", "h100-sxm",
                              "--gpus", "8", "--write-request", "-");
  ms_cli_expect(&path, 0, "plan of a model's file");
  assert_non_null(strstr(path.out, "\"name\": \"llama3-8b-h100-sxm-8\""));
  g_autofree char *states = ms_cli_shipped("under/common.json");
#define SMALL "plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "-b", "64", "--write-request", "-"
  g_auto(MsCliRun) keys = RUN(SMALL, "--top", "3", "--strict", "--under", states);
  ms_cli_expect(&keys, 0, "options that are keys");
  g_autoptr(MsJson) doc = ms_cli_json(keys.out, "a request with keys");
  assert_int_equal(json_node_get_int(ms_cli_at(ms_json_root(doc), "plan.top")), 3);
  assert_true(json_node_get_boolean(ms_cli_at(ms_json_root(doc), "strict")));
  assert_non_null(ms_cli_at(ms_json_root(doc), "plan.under[1].name"));
  g_auto(MsCliRun) assumed = RUN("plan", "-m", "llama3-8b", "-w", "mtt-s4000", "-g", "8", "-b", "64", "--strict");
  assert_non_null(strstr(assumed.out, "refused by --strict, since the file of mtt-s4000 only assumes scaleup_Bps"));
  assert_null(strstr(assumed.out, "8 x mtt-s5000")); /* its peak is assumed */
  static const char *const of_a_plan[] = {"--explain", "--decide", "--front", "--all", "--no-prune", "--out=z.json"};
  for (guint i = 0; i < G_N_ELEMENTS(of_a_plan); i++) {
    g_auto(MsCliRun) refused = RUN(SMALL, of_a_plan[i]);
    g_autofree char *name = g_strndup(of_a_plan[i], strcspn(of_a_plan[i], "="));
    assert_true(refused.status == 2 && *refused.out == '\0' && strstr(refused.err, name));
  }
  g_remove(file);
}

/* On the words of a command line: what starts on all of these machines. */
static void the_framework_is_one_that_starts_there(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  static const struct {
    const char *machines, *framework;
  } cases[] = {{"mtt-s5000", "mt-megatron"}, {"mtt-s4000,mtt-s5000", "mt-megatron"},
               {"gaudi3", "deepspeed"},      {"h100-sxm", NULL},
               {"ascend-910b", NULL},        {"mtt-s5000,h100-sxm", NULL}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_auto(MsCliRun) written =
        RUN("plan", "-m", "deepseek-v3", "-w", cases[i].machines, "-g", "1024", "--write-request", "-");
    ms_cli_expect(&written, 0, cases[i].machines);
    g_autofree char *said = cases[i].framework ? g_strdup_printf("\"framework\": \"%s\"", cases[i].framework) : NULL;
    assert_int_equal(strstr(written.out, said ? said : "\"framework\"") != NULL, cases[i].framework != NULL);
  }
  g_auto(MsCliRun) planned = RUN("plan", "-m", "deepseek-v3", "-w", "mtt-s5000", "-g", "1024");
  ms_cli_expect(&planned, 0, "plan");
  assert_non_null(strstr(planned.out, "layouts of mt-megatron: Megatron-LM has no backend for MUSA"));
  assert_non_null(strstr(planned.out, "--launch slurm:mt-megatron prints what starts it"));
}

/* What a release rejects in every layout is said when it is read, below a plan, and before a search. */
static void what_nothing_starts_is_said(void **state) {
  (void)state;
  g_autofree char *script = ms_cli_path("te.sh"), *file = ms_cli_path("te.json");
  const char *text = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --bf16 "
                     "--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
                     "--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
                     "--position-embedding-type rope --rotary-base 500000 --max-position-embeddings 8192 "
                     "--seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --vocab-size 128256 "
                     "--use-distributed-optimizer --cross-entropy-loss-fusion --cross-entropy-fusion-impl te\n";
  assert_true(g_file_set_contents(script, text, -1, NULL));
  g_auto(MsCliRun) read = RUN("import", "megatron", script, "--set", "NODES=2", "--out", file);
  ms_cli_expect(&read, 0, "import");
  assert_non_null(strstr(read.err, "moesim launch will refuse this: options.cross_entropy_fusion_impl: "));
  assert_non_null(strstr(read.err, "--set NODES=2: nothing that is read of the file asks for NODES"));
  assert_non_null(strstr(read.err, "--max-position-embeddings 8192")); /* ignored: no table of them */
  g_auto(MsCliRun) plan = RUN("plan", "--around", file);
  ms_cli_expect(&plan, 0, "plan --around");
  assert_non_null(strstr(plan.out, "--launch does not start it: options.cross_entropy_fusion_impl: "));
  g_auto(MsCliRun) launch = RUN("plan", "--around", file, "--launch", "slurm");
  ms_cli_expect(&launch, 3, "plan --around --launch");
  assert_non_null(strstr(launch.err, "options.cross_entropy_fusion_impl: Megatron-LM would reject it: "));
  g_remove(script);
  g_remove(file);
}

/* Two scenarios may be of different layouts: what differs is named. */
static void diff_of_layouts(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *file = ms_cli_shipped("run-llama3-70b-h100-64.json"), *other = ms_cli_path("other.json");
  g_autoptr(MsScenario) s = ms_scenario_load(file, NULL);
  assert_non_null(s);
  s->layout.tp *= 2, s->layout.pp /= 2, s->layout.vpp = 1, s->training.micro_batch_size = 2;
  g_autofree char *text = ms_scenario_text(s, 2);
  assert_true(g_file_set_contents(other, text, -1, NULL));
  g_auto(MsCliRun) diff = RUN("diff", file, other);
  ms_cli_expect(&diff, 0, "diff");
  assert_true(strstr(diff.out, "differs in") && strstr(diff.out, "layout.tp") && strstr(diff.out, "micro_batch_size"));
  g_remove(other);
  g_auto(MsCliRun) plan = RUN("plan", file);
  ms_cli_expect(&plan, 0, "a plan of a finished run");
  assert_non_null(strstr(plan.out, "sizes of the layout that the file gives are kept"));
}

/* The scenario that --out keeps is that place of the ranking: it runs to the same figures. */
static void plan_keeps_a_scenario(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *file = ms_cli_path("kept.json");
  g_auto(MsCliRun) plan = RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8",
                              "--global-batch-size", "64", "--top", "3", "--json", "--out", file, "--rank", "2");
  ms_cli_expect(&plan, 0, "plan --out");
  g_auto(MsCliRun) run = RUN("run", "--json", file);
  ms_cli_expect(&run, 0, "run of what --out kept");
  g_autoptr(MsJson) all = ms_json_parse(plan.out, -1, "plan", NULL), one = ms_json_parse(run.out, -1, "run", NULL);
  JsonObject *second =
      json_array_get_object_element(json_object_get_array_member(json_node_get_object(ms_json_root(all)), "best"), 1);
  JsonObject *figures = json_node_get_object(ms_json_root(one));
  assert_true(json_object_get_double_member(second, "step_time_s") ==
              json_object_get_double_member(figures, "step_time_s"));
  assert_true(json_object_get_double_member(figures, "mfu_peak_flops") == 989.4e12);
  g_auto(MsCliRun) printed = RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8",
                                 "--global-batch-size", "64", "--out", "-", "--rank", "2");
  g_autofree char *kept = NULL;
  assert_true(g_file_get_contents(file, &kept, NULL, NULL));
  assert_string_equal(printed.out, kept);
  g_auto(MsCliRun) both =
      RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8", "--out", "-", "--json");
  ms_cli_expect(&both, 2, "two things for standard output");
  g_auto(MsCliRun) far = RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8", "--top", "1",
                             "--out", file, "--rank", "5");
  ms_cli_expect(&far, 1, "a place that was not kept");
  g_auto(MsCliRun) nowhere =
      RUN("plan", "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8", "--top", "1", "--out", "/nowhere/x");
  ms_cli_expect(&nowhere, 4, "--out that cannot be written");
  g_remove(file);
}

/* With every run of blanks as one: where a line was folded does not matter. (transfer full) */
static char *one_line(const char *text) {
  g_autoptr(GRegex) blanks = g_regex_new("\\s+", G_REGEX_DEFAULT, G_REGEX_MATCH_DEFAULT, NULL);
  return g_regex_replace_literal(blanks, text, -1, 0, " ", G_REGEX_MATCH_DEFAULT, NULL);
}

/* An open key in which the printed layouts differ has a column; one that is the same in all stands below the table. */
static void plan_table_shows_open_keys(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_path("open.json");
  GString *text = g_string_new(request);
  g_string_replace(text, "\"layout\": {\"cp\": 1}",
                   "\"layout\": {\"cp\": 1, \"tp\": 1, \"pp\": 1, \"vpp\": 1}, \"options\": {\"overlap_grad_reduce\": "
                   "[true], \"cuda_graph_scope\": [[], [\"attn\", \"mlp\"]]}",
                   1);
  g_string_replace(text, "\"micro_batch_size\": [1, 2]", "\"micro_batch_size\": 1", 1);
  assert_true(g_file_set_contents(file, text->str, -1, NULL));
  g_string_free(text, TRUE);
  g_auto(MsCliRun) two = RUN("plan", "--all", file);
  ms_cli_expect(&two, 0, "plan with open options");
  const char *title = strstr(two.out, "cuda_graph_scope"), *with = strstr(two.out, "attn+mlp"),
             *without = strstr(two.out, "  none\n");
  assert_true(title && with && without && title < with && title < without);
  assert_non_null(strstr(two.out, "\nall of them: cp 1, etp 1, mbs 1, precision "));
  g_autofree char *all = one_line(two.out);
  assert_non_null(strstr(all, ", overlap_grad_reduce yes MFU is of "));
  g_auto(MsCliRun) one = RUN("plan", "--top", "1", file);
  ms_cli_expect(&one, 0, "plan --top 1");
  g_autofree char *top = one_line(one.out);
  assert_non_null(strstr(top, ", overlap_grad_reduce yes, cuda_graph_scope "));
  g_remove(file);
}

/* A request without sizes searches them, and pools have no one number of GPUs to raise and no one power. */
static void advice_of_a_request(void **state) {
  (void)state;
  static const char pools[] =
      "{\"schema\": 1, \"model\": \"llama3-8b\", \"training\": {\"seq_length\": 4096, \"global_batch_size\": 16}, "
      "\"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 8}, {\"hardware\": \"a100-sxm-80g\", \"gpus\": 8}], "
      "\"plan\": {\"training_tokens\": 1e12, \"deadline_s\": 86400}}";
  g_autofree char *file = ms_cli_path("pools.json");
  assert_true(g_file_set_contents(file, pools, -1, NULL));
  g_auto(MsCliRun) run = RUN("plan", file);
  ms_cli_expect(&run, 1, "a deadline that pools miss");
  g_autofree char *text = one_line(run.out);
  assert_null(strstr(text, "sizes of the layout that the file gives are kept"));
  assert_non_null(strstr(text, "LATE, so give one of the pools more GPUs"));
  assert_non_null(strstr(text, "a GPU of h100-sxm and a100-sxm-80g, on average, 550 W"));
  g_remove(file);
}

/* Help and messages name objects inside of files: so can the reader. */
static void schema_of_a_part(void **state) {
  (void)state;
  static const char *const parts[] = {"lora", "cluster", "goodput.recovery", "multi_latent_attention"},
                           *const keys[] = {"targets", "slow_gpu_rate", "rewarm_s", "q_lora_rank"};
  for (gsize i = 0; i < G_N_ELEMENTS(parts); i++) {
    g_auto(MsCliRun) run = RUN("schema", parts[i]);
    ms_cli_expect(&run, 0, parts[i]);
    if (!strstr(run.out, keys[i])) fail_msg("%s lacks %s", parts[i], keys[i]);
  }
  g_auto(MsCliRun) none = RUN("schema", "nothing");
  ms_cli_expect(&none, 2, "schema of nothing");
}

/* Model FLOP/s alone compare with nothing: sources count them differently. */
static void validate_says_what_it_leaves_out(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_path("tflops.json");
  static const char text[] =
      "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
      "{\"seq_length\": 4096, \"global_batch_size\": 8}, \"measured\": {\"tflops_per_gpu\": 400}}";
  assert_true(g_file_set_contents(file, text, -1, NULL));
  g_auto(MsCliRun) run = RUN("validate", "--fidelity", "fast", file);
  ms_cli_expect(&run, 0, "validate of TFLOP/s");
  assert_non_null(strstr(run.out, "\n1 of them measured nothing that is compared"));
  g_remove(file);
}

/* Of a first-time user's questions: what the answer says to do, and that doing it works. */
static void first_questions(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *run = ms_cli_shipped("run-llama3-70b-h100-64.json");
  g_auto(MsCliRun) late =
      RUN("plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "-b", "32", "--tokens", "1T", "--deadline", "30d");
  ms_cli_expect(&late, 1, "a deadline that is missed");
  assert_true(strstr(late.out, " LATE") && strstr(late.out, "\nnone of these keeps the deadline\n\nin time "));
  assert_non_null(strstr(late.out, "give more GPUs (--gpus 8..64"));
  g_auto(MsCliRun) lacks = RUN("plan", "-m", "llama3-8b", "-w", "a100-sxm-80g", "-g", "8", "-b", "32", "-p", "mxfp8");
  ms_cli_expect(&lacks, 1, "a type that the machine lacks");
  assert_non_null(strstr(lacks.out, "a100-sxm-80g cannot do mxfp8"));
  assert_non_null(strstr(lacks.out, "with precision bf16"));
  assert_null(strstr(lacks.out, "GPUs are too few"));
  g_auto(MsCliRun) broken = RUN("plan", "-m", "deepseek-v3", "-w", "h100-sxm", "-g", "64", "--lora", "16");
  ms_cli_expect(&broken, 1, "a rule that no number of GPUs obeys");
  assert_true(strstr(broken.out, " do not help\n") && !strstr(broken.out, "are too few"));
  g_auto(MsCliRun) lora = RUN("plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "-b", "32", "--lora", "16");
  ms_cli_expect(&lora, 0, "LoRA");
  assert_true(strstr(lora.out, ", LoRA of rank 16\n") && !strstr(lora.out, "--launch"));
  g_auto(MsCliRun) nics =
      RUN("whatif", "--json", "--base", run, "--set", "hardware.nic_Bps=200Gb/s,400Gb/s", "--set", "gpus=64,128");
  ms_cli_expect(&nics, 0, "whatif of a few words");
  g_autoptr(MsJson) doc = ms_cli_json(nics.out, "whatif of a few words");
  assert_int_equal(json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(doc), "points"))), 4);
  g_auto(MsCliRun) bare = RUN("whatif", "--base", run, "--set", "nic_Bps=200Gb/s");
  assert_true(bare.status == 3 && strstr(bare.err, "did you mean \"hardware.nic_Bps\"?"));
  g_auto(MsCliRun) misplaced = RUN("whatif", "--base", run, "--set", "options.precision=bf16");
  assert_true(misplaced.status == 3 && strstr(misplaced.err, "did you mean \"training.precision\"?"));
  g_auto(MsCliRun) wrong = RUN("whatif", "--base", run, "--set", "hardware.nic_Bps");
  ms_cli_expect(&wrong, 2, "--set without a value");
  g_auto(MsCliRun) twice = RUN("whatif", "--base", run, "--set", "layout.tp=1", "--set", "layout.tp=2");
  assert_true(twice.status == 2 && strstr(twice.err, "--set layout.tp is given twice"));
}

/* --- exit codes ------------------------------------------------------------------------------------------------ */
/* Several clusters in one request: a table, cells and front in JSON; what needs one cluster says so. */
static void plan_of_several_clusters(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *text = two_clusters(), *file = ms_cli_written("clusters.json", text),
                  *under = ms_cli_path("under.json");
  assert_true(g_file_set_contents(under,
                                  "{\"schema\": 1, \"disturbances\": [{\"name\": \"as planned\"}, {\"name\": \"slow "
                                  "NIC\", \"scale\": {\"nic_Bps\": 0.8}}]}",
                                  -1, NULL));
  g_auto(MsCliRun) r = RUN("plan", "--json", "--front", "--top", "2", file);
  ms_cli_expect(&r, 0, "plan --front");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "plan --front");
  JsonNode *root = ms_json_root(doc);
  assert_int_equal(json_array_get_length(json_node_get_array(ms_cli_at(root, "cells"))), 2);
  assert_int_equal(json_node_get_int(ms_cli_at(root, "cells.1.gpus")), 16);
  assert_close(json_node_get_double(ms_cli_at(root, "front.0.step_time_s")),
               json_node_get_double(ms_cli_at(root, "cells.0.best.0.step_time_s")), 0);
  g_auto(MsCliRun) table = RUN("plan", "--front", file);
  ms_cli_expect(&table, 0, "plan --front as text");
  assert_non_null(strstr(table.out, "front of step time, free memory and GPUs"));
  g_auto(MsCliRun) followed = RUN("plan", "--json", "--follow", "--map", "--top", "1", file);
  ms_cli_expect(&followed, 0, "plan --follow --map of two clusters");
  const char *last = strstr(followed.out, "{\"interrupted\"");
  assert_true(last > followed.out && strstr(followed.out, "{\"done\":") == followed.out);
  g_autoptr(MsJson) mapped = ms_cli_json(last, "the last line");
  for (int i = 0; i < 2; i++) {
    g_autofree char *points = g_strdup_printf("cells.%d.map.points", i),
                    *choices = g_strdup_printf("cells.%d.choices.list", i);
    assert_true(json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(mapped), points))) > 0);
    assert_true(json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(mapped), choices))) > 0);
  }
  g_auto(MsCliRun) told = RUN("plan", "--follow", file);
  assert_true(told.status == 0 && strstr(told.out, " on 16 x "));
  g_auto(MsCliRun) both = RUN("plan", "--json", "--front", "--map", file);
  ms_cli_expect(&both, 2, "plan --front --map");
  g_auto(MsCliRun) no = RUN("plan", "--explain", file);
  ms_cli_expect(&no, 2, "plan --explain of two clusters");
  g_auto(MsCliRun) no_file = RUN("plan", "--under", "/nowhere.json", file);
  ms_cli_expect(&no_file, 2, "plan --under of two clusters");
  assert_true(g_file_set_contents(file, request, -1, NULL));
  g_auto(MsCliRun) robust = RUN("plan", "--json", "--top", "2", "--under", under, file);
  ms_cli_expect(&robust, 0, "plan --under");
  g_autoptr(MsJson) judged = ms_cli_json(robust.out, "plan --under");
  assert_int_equal(json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(judged), "best"))), 2);
  assert_true(json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(judged), "robust.ranking"))) >= 2);
  assert_true(json_node_get_double(ms_cli_at(ms_json_root(judged), "robust.ranking.0.p95_s")) >=
              json_node_get_double(ms_cli_at(ms_json_root(judged), "robust.ranking.0.step_time_s")));
  g_auto(MsCliRun) missing = RUN("plan", "--under", "/nowhere.json", file);
  ms_cli_expect(&missing, 4, "plan --under without the file");
  g_remove(file), g_remove(under);
}

static void exit_codes(void **state) {
  (void)state;
  g_autofree char *scenario = ms_cli_shipped("run-llama3-70b-h100-64.json"), *text = NULL,
                  *large = ms_cli_path("large.json");
  g_autofree char *nothing = ms_cli_path("nothing.json"), *wrong = ms_cli_path("wrong.json");
  /* too large for its machine: a result */
  assert_true(g_file_get_contents(scenario, &text, NULL, NULL));
  g_auto(GStrv) part = g_strsplit(text, "\"model\": \"llama3-70b\"", 2);
  g_autofree char *larger =
      g_strconcat(part[0], "\"model\": {\"base\": \"llama3-70b\", \"hidden_size\": 32768, \"ffn_hidden_size\": 131072}",
                  part[1], NULL);
  assert_true(g_file_set_contents(large, larger, -1, NULL));
  g_auto(MsCliRun) infeasible = RUN("run", "--json", "-f", "bound", large);
  ms_cli_expect(&infeasible, 0, "infeasible");
  g_autoptr(MsJson) doc = ms_cli_json(infeasible.out, "run");
  check_key(ms_json_root(doc), "swhy_infeasible");
  assert_false(json_node_get_boolean(ms_cli_at(ms_json_root(doc), "feasible")));
  /* nothing feasible */
  g_auto(GStrv) of = g_strsplit(request, "{\"base\": \"llama3-8b\", \"num_layers\": 8}", 2);
  g_autofree char *huge = g_strconcat(of[0], "\"llama3-405b\"", of[1], NULL);
  assert_true(g_file_set_contents(nothing, huge, -1, NULL));
  g_auto(MsCliRun) none = RUN("plan", nothing);
  ms_cli_expect(&none, 1, "nothing feasible");
  assert_non_null(strstr(none.out, "nothing feasible"));
  g_auto(MsCliRun) start = RUN("plan", nothing, "--launch", "megatron"); /* a script is expected there */
  ms_cli_expect(&start, 1, "nothing to start");
  assert_true(*start.out == '\0' && strstr(start.err, "nothing feasible"));
  /* a machine whose links nobody has given: what is unknown is named */
  g_autofree char *bare = ms_cli_written(
      "bare.json", "{\"schema\": 1, \"name\": \"bare\", \"curves_from\": \"h100-sxm\", \"peak_bf16_flops\": 5e14, "
                   "\"hbm_B\": 103079215104, \"hbm_Bps\": 4e12}");
  g_auto(MsCliRun) unknown = RUN("plan", "-m", "llama3-8b", "-w", bare, "-g", "8", "-b", "32");
  ms_cli_expect(&unknown, 1, "a machine without links");
  assert_non_null(strstr(unknown.out, "none can be simulated"));
  assert_non_null(strstr(unknown.out, "scaleup_Bps"));
  /* an impossible layout: a rule, its name, one line */
  g_auto(GStrv) vpp = g_strsplit(text, "\"vpp\": 5", 2);
  g_autofree char *seven = g_strconcat(vpp[0], "\"vpp\": 7", vpp[1], NULL);
  assert_true(g_file_set_contents(wrong, seven, -1, NULL));
  g_auto(MsCliRun) rule = RUN("run", wrong);
  ms_cli_expect(&rule, 3, "vpp 7");
  assert_string_equal(rule.out, "");
  assert_non_null(strstr(rule.err, "layout."));
  assert_non_null(strstr(rule.err, "(rule layers-divide)"));
  assert_ptr_equal(strchr(rule.err, '\n'), rule.err + strlen(rule.err) - 1);
  g_auto(MsCliRun) usage = RUN("run", "--fidelity", "exact", scenario);
  ms_cli_expect(&usage, 2, "unknown fidelity");
  g_auto(MsCliRun) undrawn = RUN("run", "--draws", "0", scenario);
  ms_cli_expect(&undrawn, 2, "--draws takes a number from 1");
  g_autofree char *kept = NULL;
  g_auto(MsCliRun) over = RUN("run", "--trace", large, scenario);
  ms_cli_expect(&over, 2, "the output is a scenario");
  assert_true(g_file_get_contents(large, &kept, NULL, NULL));
  assert_string_equal(kept, larger);
  g_auto(MsCliRun) verb = RUN("fly");
  ms_cli_expect(&verb, 2, "unknown verb");
  g_auto(MsCliRun) unwritable = RUN("run", "--trace", "/nonexistent/folder/t.json", scenario);
  ms_cli_expect(&unwritable, 4, "unwritable trace");
  g_remove(large), g_remove(nothing), g_remove(wrong);
}

/* Whoever reads it, piece by piece or at once. */
static void files_that_cannot_be_read(void **state) {
  (void)state;
  static const struct {
    const char *argv[6], *line;
  } runs[] = {
      {{"run", "/nonexistent/x.json"}, "moesim: /nonexistent/x.json: cannot be read: No such file or directory\n"},
      {{"diff", "/nonexistent/x.json", "y.json"},
       "moesim: /nonexistent/x.json: cannot be read: No such file or directory\n"},
      {{"import", "kineto", "/nonexistent/x.json"},
       "moesim: /nonexistent/x.json: cannot be read: No such file or directory\n"},
      {{"fit", "--hardware", "h100-sxm", "/nonexistent/x.csv"},
       "moesim: /nonexistent/x.csv: cannot be read: No such file or directory\n"},
      {{"import", "kineto", "/"}, "moesim: /: cannot be read: Is a directory\n"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_auto(MsCliRun) r = ms_cli_run(runs[i].argv, "");
    ms_cli_expect(&r, 4, runs[i].argv[0]);
    assert_string_equal(r.err, runs[i].line);
  }
}

static void check_unwritable(const char *file, const char *why, const char *const *argv) {
  g_auto(MsCliRun) r = ms_cli_run(argv, "");
  ms_cli_expect(&r, 4, argv[0]);
  assert_string_equal(r.out, ""); /* the work was not begun */
  g_autofree char *line = g_strdup_printf("moesim: %s: cannot be written: %s\n", file, why);
  assert_string_equal(r.err, line);
}
#define UNWRITABLE(file, why, ...) check_unwritable(file, why, (const char *const[]){__VA_ARGS__, NULL})

/* Where a result cannot go is said before the long work whose result it would be. */
static void what_cannot_be_written_is_said_first(void **state) {
  (void)state;
  static const char missing[] = "No such file or directory", folder[] = "/",
                    in_file[] = MS_SOURCE_DIR "/README.md/x.svg";
  g_autofree char *plan = ms_cli_written("small.json", request), *text = two_clusters(),
                  *sweep = ms_cli_written("two.json", text);
  UNWRITABLE("/nowhere/x", missing, "plan", "--json", "--out", "/nowhere/x", plan);
  UNWRITABLE(folder, "Is a directory", "plan", "--out", folder, plan);
  g_autofree char *gnuplot = g_find_program_in_path("gnuplot"); /* without it that is said first */
  if (gnuplot) UNWRITABLE(in_file, "Not a directory", "plan", "--plot", in_file, sweep);
  g_autofree char *study = ms_cli_shipped("whatif/nic.json"), *published = ms_cli_shipped("published");
  UNWRITABLE("/nowhere/x", missing, "whatif", "--csv", "/nowhere/x", study);
  if (gnuplot) UNWRITABLE("/nowhere/x.png", missing, "whatif", "--plot", "/nowhere/x.png", study);
  UNWRITABLE("/nowhere/x", missing, "validate", "--csv", "/nowhere/x", published);
  UNWRITABLE("/nowhere/x", missing, "fit", "--hardware", "h100-sxm", "--out", "/nowhere/x", "/nowhere/table.csv");
  g_remove(plan), g_remove(sweep);
}

/* --- show, schema, help ---------------------------------------------------------------------------------------- */
static void parts_of_a_scenario_are_shown(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("run-deepseek-v3-gb200-256.json");
  static const char *const of[] = {"scenario", "ops", "memory"};
  for (guint i = 0; i < G_N_ELEMENTS(of); i++) {
    g_auto(MsCliRun) r = RUN("show", of[i], file);
    ms_cli_expect(&r, 0, of[i]);
    assert_true(strlen(r.out) > 200);
  }
}

static void schema_and_help(void **state) {
  (void)state;
  g_auto(MsCliRun) all = RUN("schema");
  ms_cli_expect(&all, 0, "schema");
  static const char *const keys[] = {"seq_length", "pipeline_layout", "moe_router_topk", "nvlink_domain_gpus",
                                     "max_memory_fraction"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (!strstr(all.out, keys[i])) fail_msg("`moesim schema` does not say %s", keys[i]);
  static const char *const verbs[] = {"run", "plan", "show", "schema", "validate"};
  for (guint i = 0; i < G_N_ELEMENTS(verbs); i++) {
    g_auto(MsCliRun) help = RUN(verbs[i], "--help");
    ms_cli_expect(&help, 0, verbs[i]);
    assert_non_null(strstr(help.out, verbs[i]));
    assert_string_equal(help.err, "");
  }
}

/* What a script says is written although it says no run: that is said. */
static void an_import_that_cannot_run_says_so(void **state) {
  (void)state;
#define SCRIPT                                                                                                \
  "torchrun --nproc_per_node 8 pretrain_gpt.py --pipeline-model-parallel-size 4 --bf16 --micro-batch-size 1 " \
  "--global-batch-size 64 --seq-length 4096 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "     \
  "--vocab-size 32000 --tensor-model-parallel-size "
  static const char *const why = "moesim run will refuse this: gpus: TP 4 x CP 1 x PP 4 does not divide 8 GPUs";
  for (int tp = 2; tp <= 4; tp += 2) {
    g_autofree char *text = g_strdup_printf(SCRIPT "%d\n", tp), *file = ms_cli_written("run.sh", text);
    g_auto(MsCliRun) r = RUN("import", "megatron", "--hardware", "h100-sxm", file);
    ms_cli_expect(&r, 0, "import megatron");
    assert_int_equal(strstr(r.err, why) != NULL, tp == 4);
    remove(file);
  }
}

/* A time limit that is over at once, a line for every step of the work, and a picture that nobody can draw. */
/* What a refusal offers stands in the help, too. */
static void every_kind_of_import_is_in_its_help(void **state) {
  (void)state;
  g_auto(MsCliRun) refused = RUN("import", "nothing", "file"), help = RUN("help", "import");
  ms_cli_expect(&refused, 2, "import nothing");
  const char *known = strstr(refused.err, "Known: ");
  assert_non_null(known);
  g_autofree char *line = g_strndup(known + strlen("Known: "), strcspn(known, "\n") - strlen("Known: "));
  g_auto(GStrv) kinds = g_strsplit(line, ", ", -1);
  g_autofree char *usage = g_strndup(help.out, (gsize)(strstr(help.out, "\n\n") - help.out));
  g_auto(GStrv) words = g_strsplit_set(usage, " |\n", -1);
  assert_true(g_strv_length(kinds) > 20);
  for (char **kind = kinds; *kind; kind++)
    if (!g_strv_contains((const char *const *)words, *kind)) fail_msg("moesim help import does not know %s", *kind);
}

static void long_work_is_cut_short(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("plan-mixtral-clusters.json"), *picture = ms_cli_path("front.svg"),
                  *path = g_strdup(g_getenv("PATH"));
  g_auto(MsCliRun) stopped = RUN("plan", "--front", "--json", "--time-limit", "0.001s", file);
  ms_cli_expect(&stopped, 1, "a time limit");
  assert_non_null(strstr(stopped.out, "\"interrupted\":true"));
  assert_non_null(strstr(stopped.err, "the time limit was reached"));
  g_auto(MsCliRun) wrong = RUN("plan", "--time-limit", "5 days", file);
  ms_cli_expect(&wrong, 2, "a time limit that is none");
  g_setenv("PATH", "/nonexistent", TRUE);
  g_auto(MsCliRun) blind = RUN("plan", "--front", "--plot", picture, "--time-limit", "0.001s", file);
  g_setenv("PATH", path, TRUE);
  ms_cli_expect(&blind, 4, "no gnuplot");
  assert_string_equal(blind.err, "moesim: --plot needs gnuplot, which is not installed\n");
}

static void progress_is_lines_in_a_pipe(void **state) {
  (void)state;
  g_autofree char *small = ms_cli_written("small.json", request);
  const char *const ask[] = {"plan", small, NULL};
  g_auto(MsCliRun) quiet = ms_cli_run(ask, "");
  g_setenv("MOESIM_PROGRESS_S", "0", TRUE);
  g_auto(MsCliRun) told = ms_cli_run(ask, "");
  g_unsetenv("MOESIM_PROGRESS_S");
  assert_string_equal(quiet.err, "");
  assert_non_null(strstr(told.err, "moesim: plan: "));
  assert_non_null(strstr(told.err, " s so far\n"));
  g_remove(small);
}

/* A machine beside the request is found from wherever the winner is kept: by the whole path where it is elsewhere. */
static void a_winner_finds_its_machine(void **state) {
  (void)state;
  static const char *const text =
      "{\"model\": \"llama3-8b\", \"hardware\": \"./mine.json\", \"gpus\": 8, \"training\": "
      "{\"seq_length\": 4096, \"global_batch_size\": 64}, \"layout\": {\"tp\": [2, 4]}}";
  g_autofree char *folder = ms_cli_path("own"), *machine = g_build_filename(folder, "mine.json", NULL),
                  *asked = g_build_filename(folder, "request.json", NULL),
                  *near = g_build_filename(folder, "best.json", NULL), *far = ms_cli_path("best.json"), *kept = NULL;
  assert_int_equal(g_mkdir_with_parents(folder, 0700), 0);
  assert_true(g_file_set_contents(machine, "{\"base\": \"h100-sxm\", \"nic_Bps\": 25e9}", -1, NULL));
  assert_true(g_file_set_contents(asked, text, -1, NULL));
  const char *const files[] = {near, far};
  for (int i = 0; i < 2; i++) {
    g_auto(MsCliRun) plan = RUN("plan", "--out", files[i], asked), run = RUN("run", "--json", files[i]);
    ms_cli_expect(&plan, 0, "plan");
    ms_cli_expect(&run, 0, "the winner");
  }
  assert_true(g_file_get_contents(near, &kept, NULL, NULL));
  assert_non_null(strstr(kept, "\"hardware\": \"./mine.json\""));
  const char *const made[] = {machine, asked, near, far, folder};
  for (guint i = 0; i < G_N_ELEMENTS(made); i++) g_remove(made[i]);
}

int main(int argc, char **argv) {
  (void)argc;
  ms_cli_begin(argv[0]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_winner_finds_its_machine),
      cmocka_unit_test(amounts_of_options),
      cmocka_unit_test(files_that_are_odd),
      cmocka_unit_test(a_data_folder_that_is_empty),
      cmocka_unit_test(run_json_has_its_documented_keys),
      cmocka_unit_test(many_scenarios_are_many_lines),
      cmocka_unit_test(another_machine_stands_in_for_the_file_s),
      cmocka_unit_test(validation_on_another_machine),
      cmocka_unit_test(standard_input_is_a_file),
      cmocka_unit_test(trace_and_timeline),
      cmocka_unit_test(plan_json_has_its_documented_keys),
      cmocka_unit_test(what_to_measure_first_stands_first),
      cmocka_unit_test(printed_json_is_as_documented),
      cmocka_unit_test(plan_without_a_file),
      cmocka_unit_test(the_framework_is_one_that_starts_there),
      cmocka_unit_test(what_nothing_starts_is_said),
      cmocka_unit_test(diff_of_layouts),
      cmocka_unit_test(plan_keeps_a_scenario),
      cmocka_unit_test(plan_table_shows_open_keys),
      cmocka_unit_test(advice_of_a_request),
      cmocka_unit_test(schema_of_a_part),
      cmocka_unit_test(validate_says_what_it_leaves_out),
      cmocka_unit_test(first_questions),
      cmocka_unit_test(plan_of_several_clusters),
      cmocka_unit_test(long_work_is_cut_short),
      cmocka_unit_test(progress_is_lines_in_a_pipe),
      cmocka_unit_test(exit_codes),
      cmocka_unit_test(files_that_cannot_be_read),
      cmocka_unit_test(what_cannot_be_written_is_said_first),
      cmocka_unit_test(parts_of_a_scenario_are_shown),
      cmocka_unit_test(schema_and_help),
      cmocka_unit_test(every_kind_of_import_is_in_its_help),
      cmocka_unit_test(an_import_that_cannot_run_says_so),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ms_cli_end();
  return failed;
}
