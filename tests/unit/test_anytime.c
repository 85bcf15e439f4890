/* Every verb that takes long, stopped by a signal, by the end of its time, and before it begins: it prints what it has,
 * says that it is not all, and returns as a plan does. A signal is sent when the verb itself tells of its progress, and
 * the work asked for is far more than fits between the two. */
#include "lib/cli.h"
#include "lib/tier.h"
#include "lib/close.h"

#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>

enum { MANY = 400 };

/* MANY arguments behind `head`. (transfer container) */
static char **many(const char *const *head, const char *file) {
  GPtrArray *all = g_ptr_array_new();
  for (; *head; head++) g_ptr_array_add(all, (gpointer)*head);
  for (int i = 0; i < MANY; i++) g_ptr_array_add(all, (gpointer)file);
  g_ptr_array_add(all, NULL);
  return (char **)g_ptr_array_free(all, FALSE);
}

/* It stopped with exit 0, its JSON says so, and that `done` of `of` are done; the JSON. */
static MsJson *stopped(const MsCliRun *r, const char *why, gint64 most) {
  ms_cli_expect(r, 0, "stopped");
  g_autofree char *said = g_strdup_printf("moesim: %s: what is printed was found until then\n", why);
  assert_non_null(strstr(r->err, said));
  MsJson *doc = ms_cli_json(r->out, "what it had");
  JsonNode *root = ms_json_root(doc);
  assert_true(json_node_get_boolean(ms_cli_at(root, "interrupted")));
  gint64 done = json_node_get_int(ms_cli_at(root, "stopped.done")),
         of = json_node_get_int(ms_cli_at(root, "stopped.of"));
  assert_true(done >= 1 && done < of && (most == 0 || of == most));
  return doc;
}

static guint length(MsJson *doc, const char *path) {
  return json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(doc), path)));
}

static gint64 number(MsJson *doc, const char *path) { return json_node_get_int(ms_cli_at(ms_json_root(doc), path)); }

/* A study of a thousand points. */
static char *long_study(void) {
  g_autoptr(GString) text = g_string_new("{\"schema\":1,\"name\":\"long\",\"base\":\"");
  g_autofree char *base = ms_cli_shipped("run-qwen3-235b-h100-256.json");
  g_string_append_printf(text, "%s\",\"axes\":[{\"key\":\"hardware.nic_Bps\",\"values\":[", base);
  for (int i = 0; i < 1000; i++) g_string_append_printf(text, "%s%d", i ? "," : "", 1000000000 + i * 1000000);
  g_string_append(text, "]}]}");
  return ms_cli_written("study.json", text->str);
}

static void a_whatif_has_its_points(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *file = long_study(), *csv = ms_cli_path("points.csv"), *rows = NULL;
  const char *const argv[] = {"whatif", "--json", "--threads", "1", "--csv", csv, file, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: whatif", SIGINT);
  g_autoptr(MsJson) doc = stopped(&r, "interrupted", 1000);
  guint points = length(doc, "points");
  assert_int_equal(points, number(doc, "stopped.done"));
  assert_true(g_file_get_contents(csv, &rows, NULL, NULL));
  g_auto(GStrv) line = g_strsplit(g_strchomp(rows), "\n", -1);
  assert_int_equal(g_strv_length(line), points + 2); /* heads, base */
  const char *const text[] = {"whatif", "--threads", "1", file, NULL};
  g_auto(MsCliRun) t = ms_cli_stop(text, "moesim: whatif", SIGTERM);
  ms_cli_expect(&t, 0, "text");
  assert_non_null(strstr(t.out, "INTERRUPTED: "));
  assert_non_null(strstr(t.out, " of 1000 points are done, the rest is missing\n"));
  g_remove(csv), g_remove(file);
}

static void a_page_says_that_it_is_incomplete(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *file = long_study(), *run = ms_cli_shipped("run-llama3-70b-h100-64.json");
  const char *const argv[] = {"report", "--html", "-", "--no-validation", "--whatif", file, run, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: whatif", SIGINT);
  ms_cli_expect(&r, 0, "page");
  assert_non_null(strstr(r.out, "(interrupted: not all of it)"));
  assert_non_null(strstr(r.out, "the study was stopped before this point"));
  g_remove(file);
}

static char *published(void) { return g_build_filename(MS_SOURCE_DIR, "scenarios", "published", NULL); }

static void a_validation_has_its_files(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autofree char *all = published();
  const char *const argv[] = {"validate", "--json", "--threads", "1", all, all, all, all, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: validate", SIGTERM);
  g_autoptr(MsJson) doc = stopped(&r, "interrupted", 0);
  assert_true(number(doc, "predicted") >= 1 && number(doc, "predicted") <= number(doc, "stopped.done"));
}

/* Stopped while it predicts, one of 19 runs being done: errors as shipped, none of a fit, and no file of laws. */
static void a_cross_validation_has_what_was_predicted(void **state) {
  (void)state;
  g_autofree char *published_runs = published(), *all = g_build_filename(published_runs, "modelzoo", NULL),
                  *fitted = ms_cli_path("fitted");
  const char *const argv[] = {"validate", "--cross-validate", "--json", "--threads", "1", all, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: cross-validate   5 %", SIGINT);
  g_autoptr(MsJson) doc = stopped(&r, "interrupted", 0);
  assert_true(number(doc, "all.shipped.n") >= 1);
  assert_int_equal(number(doc, "all.in_sample.n"), 0);
  assert_int_equal(number(doc, "all.left_out.n"), 0);
  const char *const kept[] = {"validate", "--cross-validate", "--threads", "1", "--write-fitted", fitted, all, NULL};
  g_auto(MsCliRun) w = ms_cli_stop(kept, "moesim: cross-validate   5 %", SIGINT);
  ms_cli_expect(&w, 1, "figures of half of the runs");
  static const char *const folders[] = {"software", "hardware", ""};
  for (guint i = 0; i < G_N_ELEMENTS(folders); i++) {
    g_autofree char *empty = g_build_filename(fitted, folders[i], NULL);
    assert_int_equal(g_rmdir(empty), 0); /* made before the work, and nothing written */
  }
}

static void goodput_has_its_runs(void **state) {
  (void)state;
  g_autofree char *run = ms_cli_shipped("run-llama3-70b-h100-64.json"),
                  *text = g_strdup_printf("{\"schema\":1,\"name\":\"long\",\"run\":\"%s\",\"fidelity\":\"fast\","
                                          "\"recovery\":{\"restart_s\":300,\"rewarm_s\":60},\"reliability\":\"llama3-"
                                          "h100\",\"checkpoint\":{\"mode\":\"asynchronous\","
                                          "\"storage_Bps\":2e11,\"interval_s\":1800},\"budget\":{\"days\":30},"
                                          "\"monte_carlo\":{\"runs\":60000}}",
                                          run),
                  *file = ms_cli_written("goodput.json", text);
  const char *const argv[] = {"goodput", "--json", "--threads", "1", file, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: goodput", SIGINT);
  g_autoptr(MsJson) doc = stopped(&r, "interrupted", 60000);
  assert_int_equal(number(doc, "monte_carlo.runs"), number(doc, "stopped.done"));
  assert_true(json_node_get_double(ms_cli_at(ms_json_root(doc), "monte_carlo.effective_time.mean")) > 0.5);
  g_remove(file);
}

/* A check that was stopped has passed nothing: exit 1, and who was not compared is skipped in JUnit. */
static void a_check_is_no_pass(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("check/baseline.json"), *junit = ms_cli_path("junit.xml"), *xml = NULL;
  const char *const argv[] = {"check", "--json", "--threads", "1", "--junit", junit, file, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: check", SIGINT);
  ms_cli_expect(&r, 1, "a check that was stopped");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "check");
  assert_true(json_node_get_boolean(ms_cli_at(ms_json_root(doc), "interrupted")));
  assert_int_equal(number(doc, "drifted"), 0);
  assert_int_equal(length(doc, "results"), number(doc, "stopped.done"));
  assert_true(g_file_get_contents(junit, &xml, NULL, NULL));
  assert_non_null(strstr(xml, "<skipped/>"));
  g_remove(junit);
}

static void draws_are_those_that_were_drawn(void **state) {
  (void)state;
  g_autofree char *base = ms_cli_shipped("run-qwen3-235b-h100-256.json"), *text = NULL;
  assert_true(g_file_get_contents(base, &text, NULL, NULL));
  g_autoptr(MsJson) read = ms_cli_json(text, "run"), routing = ms_cli_json("{\"zipf\":0.5}", "routing");
  json_object_set_member(json_node_get_object(ms_cli_at(ms_json_root(read), "training")), "routing",
                         ms_json_copy(ms_json_root(routing)));
  g_autofree char *drawn = json_to_string(ms_json_root(read), FALSE), *file = ms_cli_written("drawn.json", drawn);
  const char *const argv[] = {"run", "--json", "-f", "fast", "--draws", "100000", file, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: draws", SIGINT);
  ms_cli_expect(&r, 0, "draws");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "run --draws");
  assert_true(json_node_get_boolean(ms_cli_at(ms_json_root(doc), "draws.interrupted")));
  gint64 n = number(doc, "draws.n");
  assert_true(n >= 1 && n < 100000 && number(doc, "draws.feasible") <= n);
  assert_true(json_node_get_double(ms_cli_at(ms_json_root(doc), "draws.step_time_s.mean")) > 0);
  g_remove(file);
}

static void an_evaluation_has_its_tables(void **state) {
  (void)state;
  g_autoptr(GString) rows = g_string_new("gpu,dtype,m,n,k,latency_us\n");
  for (int i = 1; i <= 2000; i++) g_string_append_printf(rows, "h100-sxm,bfloat16,%d,4096,4096,%d\n", 8 * i, 20 + i);
  g_autofree char *csv = ms_cli_written("gemm.csv", rows->str);
  static const char *const head[] = {"fit", "--hardware", "h100-sxm", "--evaluate", "--json", NULL};
  g_autofree char **argv = many(head, csv);
  g_auto(MsCliRun) r = ms_cli_stop((const char *const *)argv, "moesim: evaluate", SIGINT);
  ms_cli_expect(&r, 0, "tables");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "evaluation");
  assert_true(json_node_get_boolean(ms_cli_at(ms_json_root(doc), "interrupted")));
  assert_true(length(doc, "rows") >= 1 && length(doc, "rows") < MANY);
  g_remove(csv);
}

static void an_execution_has_its_steps(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("exec/dense-1.json");
  const char *const argv[] = {"exec", "--json", "--steps", "100000", file, NULL};
  g_auto(MsCliRun) r = ms_cli_stop(argv, "moesim: exec", SIGINT);
  ms_cli_expect(&r, 0, "steps");
  g_autoptr(MsJson) doc = ms_cli_json(r.out, "exec");
  assert_true(json_node_get_boolean(ms_cli_at(ms_json_root(doc), "interrupted")));
  assert_true(length(doc, "step_s") >= 1 && length(doc, "step_s") < 100000);
}

/* A time that is over at once: what has no result then returns 1, and every JSON that is printed says why. */
static void a_time_limit_is_a_signal(void **state) {
  (void)state;
  static const struct {
    const char *argv[6];
    const char *file;
    int status;
    gboolean json;
  } verb[] = {{{"whatif", "--json"}, "whatif/nic.json", 1, TRUE},
              {{"validate", "--json"}, "published", 1, TRUE},
              {{"validate", "--cross-validate", "--json"}, "published", 1, FALSE},
              {{"goodput", "--json"}, "goodput/deepseek-v3-2048.json", 1, TRUE},
              {{"check", "--json"}, "check/baseline.json", 1, TRUE},
              {{"calibrate", "--quick", "--json"}, NULL, 1, TRUE},
              {{"plan", "--json"}, "plan-llama3-70b-h100-64.json", 1, TRUE},
              {{"plan", "--json", "--front"}, "plan-mixtral-clusters.json", 1, TRUE},
              {{"run", "--fidelity", "cluster", "--json"}, "fabric/slow-ranks.json", 1, TRUE},
              {{"exec", "--json"}, "exec/dense-1.json", 0, FALSE},
              {{"report", "--html", "-"}, "run-llama3-70b-h100-64.json", 0, FALSE}};
  for (guint i = 0; i < G_N_ELEMENTS(verb); i += (guint)ms_by_tier(3, 1)) {
    const char *argv[16] = {verb[i].argv[0], "--time-limit", "0.000001s"};
    int n = 3;
    for (int k = 1; verb[i].argv[k]; k++) argv[n++] = verb[i].argv[k];
    g_autofree char *file = verb[i].file ? ms_cli_shipped(verb[i].file) : NULL;
    argv[n] = file;
    g_auto(MsCliRun) r = ms_cli_run(argv, "");
    ms_cli_expect(&r, verb[i].status, argv[0]);
    assert_non_null(strstr(r.err, "moesim: the time limit was reached: what is printed was found until then\n"));
    if (verb[i].json && !strstr(r.out, "\"interrupted\":true")) fail_msg("%s: %s", argv[0], r.out);
  }
}

/* What was not looked at is not cut by a bound. */
static void a_stopped_plan_claims_no_cut(void **state) {
  (void)state;
  static const char *const file[] = {"plan-deepseek-v3-gb200-4096-open.json", "plan-llama3-70b-h100-64.json"};
  for (guint i = 0; i < G_N_ELEMENTS(file); i++) {
    g_autofree char *request = ms_cli_shipped(file[i]);
    g_auto(MsCliRun) r = RUN("plan", "--time-limit", "0.000001s", "--json", request),
                     t = RUN("plan", "--time-limit", "0.000001s", request);
    g_autoptr(MsJson) doc = ms_cli_json(r.out, "plan");
    assert_int_equal(number(doc, "pruned"), 0);
    assert_null(strstr(t.out, "cut in sets"));
  }
}

/* The prediction is there before the first draw, and is printed whatever comes after it. */
static void a_cluster_without_a_draw_has_its_prediction(void **state) {
  (void)state;
  g_autofree char *file = ms_cli_shipped("fabric/slow-ranks.json"), *trace = ms_cli_path("rank.json");
  g_auto(MsCliRun) r = RUN("run", "--fidelity", "cluster", "--time-limit", "0.000001s", file),
                   t = RUN("run", "--fidelity", "cluster", "--time-limit", "0.000001s", "--json", "--ranks", "3",
                           "--trace", trace, file),
                   whole = RUN("run", "--fidelity", "full", "--json", file);
  ms_cli_expect(&r, 1, "text");
  assert_non_null(strstr(r.out, "step time"));
  assert_non_null(strstr(r.out, "INTERRUPTED: 0 of 8 draws are done, the rest is missing\n"));
  assert_null(strstr(r.out, "GPUs on their own"));
  ms_cli_expect(&t, 1, "JSON");
  assert_false(g_file_test(trace, G_FILE_TEST_EXISTS));
  g_autoptr(MsJson) doc = ms_cli_json(t.out, "cluster"), full = ms_cli_json(whole.out, "full");
  assert_true(json_node_get_double(ms_cli_at(ms_json_root(doc), "step_time_s")) ==
              json_node_get_double(ms_cli_at(ms_json_root(full), "step_time_s")));
  assert_true(JSON_NODE_HOLDS_NULL(ms_cli_at(ms_json_root(doc), "cluster.step_time_s.mean")));
  assert_int_equal(number(doc, "cluster.stopped.done"), 0);
}

/* What is to be written is asked for before the work, which would take very long. */
static void outputs_are_asked_for_first(void **state) {
  (void)state;
  g_autofree char *study = long_study(), *all = published(), *base = ms_cli_shipped("check/baseline.json"),
                  *run = ms_cli_shipped("run-llama3-70b-h100-64.json"), *step = ms_cli_shipped("exec/dense-1.json");
  const char *const argv[][8] = {{"whatif", "--csv", "/nonexistent/x", study},
                                 {"validate", "--csv", "/nonexistent/x", all},
                                 {"validate", "--cross-validate", "--write-fitted", "/dev/null/x", all},
                                 {"check", "--junit", "/nonexistent/x", base},
                                 {"check", "--markdown", "/nonexistent/x", base},
                                 {"check", "--update", "/nonexistent/x", all},
                                 {"report", "--html", "/nonexistent/x", "--whatif", study, run},
                                 {"run", "--trace", "/nonexistent/x", run},
                                 {"run", "--memory", "/nonexistent/x", run},
                                 {"exec", "--steps", "100000", "--dump", "/nonexistent/x", step},
                                 {"calibrate", "--out", "/dev/null/x"},
                                 {"calibrate", "--check", "--out", "/dev/null/x"}};
  for (guint i = 0; i < G_N_ELEMENTS(argv); i++) {
    g_auto(MsCliRun) r = ms_cli_run(argv[i], "");
    ms_cli_expect(&r, 4, argv[i][0]);
    assert_string_equal(r.out, "");
  }
  g_remove(study);
}

int main(int argc, char **argv) {
  (void)argc;
  ms_cli_begin(argv[0]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_whatif_has_its_points),
      cmocka_unit_test(a_page_says_that_it_is_incomplete),
      cmocka_unit_test(a_validation_has_its_files),
      cmocka_unit_test(a_cross_validation_has_what_was_predicted),
      cmocka_unit_test(goodput_has_its_runs),
      cmocka_unit_test(a_check_is_no_pass),
      cmocka_unit_test(draws_are_those_that_were_drawn),
      cmocka_unit_test(an_evaluation_has_its_tables),
      cmocka_unit_test(an_execution_has_its_steps),
      cmocka_unit_test(a_time_limit_is_a_signal),
      cmocka_unit_test(a_stopped_plan_claims_no_cut),
      cmocka_unit_test(a_cluster_without_a_draw_has_its_prediction),
      cmocka_unit_test(outputs_are_asked_for_first),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ms_cli_end();
  return failed;
}
