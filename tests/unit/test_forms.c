/* What verbs print in their other forms: the text beside the JSON, lines on the way, scripts that come back as the
 * scenario they were made of. */
#include "lib/cli.h"
#include "lib/close.h"
#include "lib/world.h"

#include <glib/gstdio.h>
#include <string.h>

static double number_at(MsJson *doc, const char *path) {
  return json_node_get_double(ms_cli_at(ms_json_root(doc), path));
}

static void expect_text(const MsCliRun *r, const char *part) {
  if (!strstr(r->out, part)) fail_msg("no \"%s\" in:\n%s", part, r->out);
}

static void under_disturbances_as_text(void **state) {
  (void)state;
  g_autofree char *plan = ms_cli_written("small.json", ms_test_small_request),
                  *under = ms_cli_shipped("under/common.json");
  g_auto(MsCliRun) json = RUN("plan", "--json", "--under", under, plan), text = RUN("plan", "--under", under, plan);
  ms_cli_expect(&json, 0, "plan --under --json");
  ms_cli_expect(&text, 0, "plan --under");
  g_autoptr(MsJson) doc = ms_cli_json(json.out, "plan --under");
  g_autofree char *times = g_strdup_printf(
      "%.2f ms  %.2f ms  %.2f ms", 1e3 * number_at(doc, "robust.ranking.0.expected_s"),
      1e3 * number_at(doc, "robust.ranking.0.p95_s"), 1e3 * number_at(doc, "robust.ranking.0.step_time_s"));
  expect_text(&text, "under disturbances, by expected step time\n");
  expect_text(&text, times);
  g_remove(plan);
}

/* The lines on the way are objects of their own; the last one is that of the plan without them. */
static void lines_on_the_way(void **state) {
  (void)state;
  g_autofree char *plan = ms_cli_written("small.json", ms_test_small_request);
  g_auto(MsCliRun) follow = RUN("plan", "--json", "--follow", "--threads", "1", plan),
                   alone = RUN("plan", "--json", "--threads", "1", plan);
  ms_cli_expect(&follow, 0, "plan --follow");
  ms_cli_expect(&alone, 0, "plan --json");
  g_auto(GStrv) line = g_strsplit(g_strchomp(follow.out), "\n", -1);
  int n = (int)g_strv_length(line);
  assert_true(n >= 2);
  for (int i = 0; i + 1 < n; i++) {
    g_autoptr(MsJson) doc = ms_cli_json(line[i], "plan --follow");
    double done = number_at(doc, "done");
    assert_true(done >= 0 && done <= 1);
    assert_true(JSON_NODE_HOLDS_ARRAY(ms_cli_at(ms_json_root(doc), "best")));
  }
  g_autoptr(MsJson) last = ms_cli_json(line[n - 1], "plan --follow"), want = ms_cli_json(alone.out, "plan --json");
  assert_close(number_at(last, "best.0.step_time_s"), number_at(want, "best.0.step_time_s"), 0);
  assert_close(number_at(last, "simulated"), number_at(want, "simulated"), 0);
  g_remove(plan);
}

/* For people: lines of better and better layouts, then what is printed without them (but for the time it took). */
static void better_and_better(void **state) {
  (void)state;
  g_autofree char *plan = ms_cli_written("small.json", ms_test_small_request);
  g_auto(MsCliRun) follow = RUN("plan", "--follow", "--threads", "1", plan),
                   alone = RUN("plan", "--threads", "1", plan), mixed = RUN("plan", "--follow", "--out", "-", plan);
  ms_cli_expect(&follow, 0, "plan --follow");
  ms_cli_expect(&alone, 0, "plan");
  ms_cli_expect(&mixed, 2, "plan --follow --out -");
  g_auto(GStrv) line = g_strsplit(follow.out, "\n", -1);
  int n = 0;
  double last_ms = INFINITY;
  for (; line[n] && strstr(line[n], " mbs ") && strchr(line[n], '%'); n++) {
    double ms = g_ascii_strtod(strstr(line[n], "%  ") + 3, NULL);
    assert_true(ms < last_ms);
    last_ms = ms;
  }
  assert_true(n > 0);
  g_autofree char *rest = g_strjoinv("\n", line + n);
  assert_string_equal(rest, alone.out);
  g_remove(plan);
}

static double step_of(const char *scenario) {
  g_auto(MsCliRun) run = ms_cli_run((const char *const[]){"run", "--json", "-", NULL}, scenario);
  ms_cli_expect(&run, 0, scenario);
  g_autoptr(MsJson) doc = ms_cli_json(run.out, "run");
  return number_at(doc, "step_time_s");
}

/* What starts the winner, or a run, is read back as a scenario that takes the same time. */
static void scripts_come_back(void **state) {
  (void)state;
  g_autofree char *plan = ms_cli_written("small.json", ms_test_small_request),
                  *scenario = ms_cli_shipped("run-llama3-70b-h100-64.json"), *text = NULL;
  g_auto(MsCliRun) winner = RUN("plan", "--json", plan), script = RUN("plan", "--launch", "megatron", plan),
                   shown = RUN("show", "launch", "--form", "slurm", scenario);
  ms_cli_expect(&winner, 0, "plan --json");
  ms_cli_expect(&script, 0, "plan --launch");
  ms_cli_expect(&shown, 0, "show launch");
  g_autoptr(MsJson) doc = ms_cli_json(winner.out, "plan");
  assert_true(g_file_get_contents(scenario, &text, NULL, NULL));
  const char *const import[] = {"import", "megatron", "-", NULL};
  g_auto(MsCliRun) first = ms_cli_run(import, script.out), second = ms_cli_run(import, shown.out);
  ms_cli_expect(&first, 0, "import of plan --launch");
  ms_cli_expect(&second, 0, "import of show launch");
  assert_close(step_of(first.out), number_at(doc, "best.0.step_time_s"), 0);
  assert_close(step_of(second.out), step_of(text), 0);
  assert_true(g_str_has_prefix(shown.out, "#!/bin/bash\n#SBATCH "));
  g_remove(plan);
}

static void a_model_of_hugging_face(void **state) {
  (void)state;
  g_autofree char *out = ms_cli_path("model.json");
  g_auto(MsCliRun) r = RUN("import", "hf", MS_SOURCE_DIR "/tests/data/hf/mixtral-8x7b.json", "--out", out);
  ms_cli_expect(&r, 0, "import hf");
  assert_string_equal(r.out, "");
  assert_non_null(strstr(r.err, "ignored: "));
  g_auto(MsCliRun) own = RUN("show", "model", out, "--json"), shipped = RUN("show", "model", "mixtral-8x7b", "--json");
  ms_cli_expect(&own, 0, "show model of the import");
  g_autoptr(MsJson) a = ms_cli_json(own.out, "import"), b = ms_cli_json(shipped.out, "shipped");
  static const char *const keys[] = {"model.num_layers", "model.hidden_size", "model.num_experts",
                                     "model.moe_router_topk", "model.vocab_size"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++) assert_close(number_at(a, keys[i]), number_at(b, keys[i]), 0);
  g_remove(out);
}

/* The same comparison of a profile with rows, as text and as JSON. */
static void a_profile_against_rows(void **state) {
  (void)state;
  g_autofree char *table = ms_cli_written("t.csv", "gpu,dtype,m,n,k,latency_us\nh100_sxm,bf16,4096,4096,4096,230\nh100_"
                                                   "sxm,bf16,8192,4096,4096,450\nh100_sxm,bf16,8192,8192,4096,880\n");
  g_auto(MsCliRun) json = RUN("fit", "--evaluate", "--json", "--hardware", "h100-sxm", table),
                   text = RUN("fit", "--evaluate", "--hardware", "h100-sxm", table);
  ms_cli_expect(&json, 0, "fit --evaluate --json");
  ms_cli_expect(&text, 0, "fit --evaluate");
  g_autoptr(MsJson) doc = ms_cli_json(json.out, "fit --evaluate");
  assert_close(number_at(doc, "rows.0.n"), 3, 0);
  g_autofree char *median = g_strdup_printf("%.1f %%", 100 * number_at(doc, "rows.0.median"));
  expect_text(&text, median);
  g_remove(table);
}

int main(int argc, char **argv) {
  (void)argc;
  ms_cli_begin(argv[0]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(under_disturbances_as_text), cmocka_unit_test(lines_on_the_way),
      cmocka_unit_test(better_and_better),          cmocka_unit_test(scripts_come_back),
      cmocka_unit_test(a_model_of_hugging_face),    cmocka_unit_test(a_profile_against_rows)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ms_cli_end();
  return failed;
}
