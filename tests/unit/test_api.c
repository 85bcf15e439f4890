/* libmoesim as others see it: its header alone, its errors, the same numbers as the program. */
#include "lib/close.h"

#include "api/moesim.h"
#include "lib/cli.h"
#include "lib/world.h"
#include "report/report.h"
#include "study/parts.h"

#include <glib/gstdio.h>
#include <locale.h>
#include <math.h>
#include <string.h>

static void a_run_says_what_the_simulator_says(void **state) {
  (void)state;
  const char *file = MS_SOURCE_DIR "/scenarios/run-llama3-70b-h100-64.json";
  char *error = NULL;
  moesim_scenario *scenario = moesim_scenario_load(file, &error);
  if (!scenario) fail_msg("%s", error);
  moesim_result *result = moesim_run(scenario, MOESIM_FULL, &error);
  if (!result) fail_msg("%s", error);
  g_autoptr(MsScenario) own = ms_scenario_load(file, NULL);
  g_autoptr(MsResult) want = ms_simulate(own, MS_FIDELITY_FULL, NULL, NULL);
  assert_non_null(want);
  assert_true(moesim_result_step_time_s(result) == want->step_time_s);
  assert_true(moesim_result_mfu(result) == want->mfu);
  assert_true(moesim_result_peak_memory_B(result) ==
              ms_device_B(want)); /* with the reserve: what the command line says */
  assert_true(moesim_result_peak_memory_B(result) > want->memory->stage[want->memory->peak_stage].peak_B);
  assert_true(moesim_result_memory_capacity_B(result) == want->capacity_B);
  assert_int_equal(moesim_result_feasible(result), want->feasible);
  char *json = moesim_result_json(result);
  assert_non_null(strstr(json, "\"step_time_s\""));
  moesim_free(json);
  moesim_result_free(result);
  moesim_scenario_free(scenario);
}

/* The same words give the same plan through the library and on the command line (and in `serve`: tests/browser). */
static void a_few_words_are_the_command_lines_request(void **state) {
  (void)state;
  char *error = NULL, *own = moesim_request_json("llama3-8b", "h100-sxm", "8", NULL, 8192, 128, &error);
  if (!own) fail_msg("%s", error);
#define WORDS "--model", "llama3-8b", "--hardware", "h100-sxm", "--gpus", "8", "-s", "8192", "-b", "128"
  g_auto(MsCliRun) written = RUN("plan", WORDS, "--write-request", "-"), planned = RUN("plan", WORDS, "--json");
  ms_cli_expect(&written, 0, "plan --write-request");
  assert_string_equal(own, g_strchomp(written.out));
  moesim_plan *plan = moesim_plan_parse(own, "own", 3, 1, &error);
  if (!plan) fail_msg("%s", error);
  assert_int_equal(moesim_plan_count(plan), 3);
  char *json = moesim_plan_json(plan);
  g_autoptr(MsJson) mine = ms_cli_json(json, "library"), theirs = ms_cli_json(planned.out, "program");
  static const char *const parts[] = {"scenario", "step_time_s", "memory", "time"};
  for (guint i = 0; i < 3 * G_N_ELEMENTS(parts); i++) {
    g_autofree char *path = g_strdup_printf("best[%u].%s", i % 3, parts[i / 3]);
    assert_true(json_node_equal(ms_cli_at(ms_json_root(mine), path), ms_cli_at(ms_json_root(theirs), path)));
  }
  JsonNode *offered = ms_cli_at(ms_json_root(mine), "choices.list[0]"),
           *theirs_first = ms_cli_at(ms_json_root(theirs), "choices.list[0]");
  assert_true(json_node_equal(offered, theirs_first));
  moesim_free(json);
  moesim_plan_free(plan);
  moesim_free(own);
  assert_null(moesim_request_json("llama3-8b", NULL, "8", NULL, 0, 0, &error));
  assert_string_equal(error, "give model, hardware and gpus");
  moesim_free(error);
  assert_null(moesim_request_json("llama3-8b", "h100-sxm", "8,x", NULL, 0, 0, &error));
  assert_true(g_str_has_prefix(error, "gpus 8,x: "));
  moesim_free(error);
}

static void every_figure_is_found_by_its_key(void **state) {
  (void)state;
  moesim_scenario *scenario = moesim_scenario_load(MS_SOURCE_DIR "/scenarios/run-llama3-70b-h100-64.json", NULL);
  moesim_result *r = moesim_run(scenario, MOESIM_FULL, NULL);
  assert_non_null(r);
  const MsResult *own = (const MsResult *)r;
  assert_true(moesim_result_get(r, "step_time_s") == own->step_time_s);
  assert_true(moesim_result_get(r, "feasible") == 1);
  assert_true(moesim_result_get(r, "bound.step_time_lower_s") == own->step_time_lower_s);
  assert_true(moesim_result_get(r, "time.comm.tp.exposed_s") == own->time.comm_exposed_s[MS_COMM_TP]);
  assert_true(moesim_result_get(r, "memory.stages[1].peak_B") == own->memory->stage[1].peak_B);
  assert_true(moesim_result_get(r, "memory.stages[1].stage") == 1);
  assert_true(moesim_result_get(r, "stage_time[1].bubble_s") == own->stage_time[1].bubble_s);
  assert_true(moesim_result_get(r, "passes[0].F.count") == own->passes[0].count[MS_SLOT_F]);
  assert_true(moesim_result_get(r, "events") == (double)own->events);
  assert_string_equal(moesim_result_get_text(r, "fidelity"), "full");
  assert_string_equal(moesim_result_get_text(r, "gap[0].part"), own->gap[0].name);
  assert_string_equal(moesim_result_get_text(r, "bottleneck"), moesim_result_bottleneck(r));
  static const char *const none[] = {"",
                                     "step_time",
                                     "step_time_s.x",
                                     "step_time_s[0]",
                                     "time",
                                     "memory.stages[99].peak_B",
                                     "memory.stages[].peak_B",
                                     "memory.stages[1",
                                     "time.comm.xp.exposed_s",
                                     "lcma.time_s",
                                     "passes[0].W.count",
                                     "fidelity",
                                     "why_infeasible",
                                     NULL};
  for (int i = 0; none[i]; i++) assert_true(isnan(moesim_result_get(r, none[i])));
  assert_null(moesim_result_get_text(r, "why_infeasible"));
  assert_null(moesim_result_get_text(r, "step_time_s"));
  moesim_result_free(r);
  moesim_scenario_free(scenario);
}

static void one_line(char *error) {
  assert_non_null(error);
  assert_null(strchr(error, '\n'));
  moesim_free(error);
}

static void null_is_no_crash(void **state) {
  (void)state;
  static const char *const run = MS_SOURCE_DIR "/scenarios/run-llama3-70b-h100-64.json";
  char *error = NULL;
  moesim_scenario *kept = NULL;
  moesim_result *figures = NULL;
  assert_int_equal(moesim_predict(run, NULL, MOESIM_BOUND, 0, NULL, &figures, &error), 2), one_line(error);
  assert_int_equal(moesim_predict(run, NULL, MOESIM_BOUND, 0, &kept, NULL, &error), 2), one_line(error);
  assert_int_equal(moesim_predict(run, NULL, (moesim_fidelity)99, 0, &kept, &figures, &error), 2), one_line(error);
  assert_int_equal(moesim_predict(NULL, NULL, MOESIM_BOUND, 0, &kept, &figures, &error), 2), one_line(error);
  assert_true(kept == NULL && figures == NULL);
  assert_null(moesim_run(NULL, MOESIM_FULL, &error)), one_line(error), error = NULL;
  assert_null(moesim_scenario_load(NULL, &error)), one_line(error), error = NULL;
  assert_null(moesim_scenario_parse(NULL, NULL, &error)), one_line(error), error = NULL;
  assert_null(moesim_plan_load(NULL, 1, 1, &error)), one_line(error), error = NULL;
  assert_null(moesim_plan_parse(NULL, NULL, 1, 1, &error)), one_line(error), error = NULL;
  assert_null(moesim_run(NULL, MOESIM_FULL, NULL));
  assert_null(moesim_scenario_parse("{", NULL, NULL));
  assert_null(moesim_request_json(NULL, NULL, NULL, NULL, 0, 0, &error)), one_line(error);
  assert_int_equal(moesim_result_feasible(NULL), -1);
  assert_null(moesim_result_why_infeasible(NULL));
  assert_null(moesim_result_bottleneck(NULL));
  assert_true(isnan(moesim_result_step_time_s(NULL)) && isnan(moesim_result_step_time_band(NULL)));
  assert_true(isnan(moesim_result_tokens_per_s_per_gpu(NULL)) && isnan(moesim_result_tflops_per_gpu(NULL)));
  assert_true(isnan(moesim_result_mfu(NULL)) && isnan(moesim_result_peak_memory_B(NULL)));
  assert_true(isnan(moesim_result_memory_capacity_B(NULL)) && isnan(moesim_result_get(NULL, "mfu")));
  assert_null(moesim_result_get_text(NULL, "name"));
  assert_null(moesim_result_json(NULL));
  assert_int_equal(moesim_plan_count(NULL), -1);
  assert_null(moesim_plan_result(NULL, 0));
  assert_null(moesim_plan_scenario_json(NULL, 0));
  assert_null(moesim_plan_json(NULL));
  moesim_scenario_free(NULL), moesim_result_free(NULL), moesim_plan_free(NULL), moesim_free(NULL);
}

static void machines_of_several_kinds(void **state) {
  (void)state;
  static const char *const job = "\"schema\": 1, \"model\": \"llama3-8b\", \"pools\": [{\"hardware\": \"h100-sxm\", "
                                 "\"gpus\": 8}, {\"hardware\": \"a100-sxm-80g\", \"gpus\": 8}], \"training\": "
                                 "{\"seq_length\": 4096, \"global_batch_size\": 32}";
  g_autofree char *run = g_strdup_printf("{%s, \"layout\": {\"pp\": 2, \"tp\": 2}}", job),
                  *request = g_strdup_printf("{%s, \"layout\": {\"tp\": 2}}", job);
  char *error = NULL;
  moesim_scenario *scenario = moesim_scenario_parse(run, "mixed", &error);
  if (!scenario) fail_msg("%s", error);
  moesim_result *result = moesim_run(scenario, MOESIM_FULL, &error);
  assert_true(result && moesim_result_step_time_s(result) > 0);
  moesim_plan *plan = moesim_plan_parse(request, "mixed", 1, 1, &error);
  if (!plan) fail_msg("%s", error);
  assert_true(moesim_result_step_time_s(moesim_plan_result(plan, 0)) <= moesim_result_step_time_s(result));
  moesim_plan_free(plan), moesim_result_free(result), moesim_scenario_free(scenario);
}

static void errors_are_one_line_of_text(void **state) {
  (void)state;
  char *error = NULL;
  assert_null(moesim_scenario_load("/nonexistent.json", &error));
  assert_non_null(strstr(error, "/nonexistent.json"));
  moesim_free(error);
  error = NULL;
  assert_null(moesim_scenario_parse("{\"schema\": 1,\n \"nmae\": \"x\"}", "mine", &error));
  assert_true(g_str_has_prefix(error, "mine:2: nmae"));
  assert_null(strchr(error, '\n'));
  moesim_free(error);
  assert_null(moesim_scenario_parse("{", "mine", NULL)); /* nobody asked why */
  error = NULL;
  assert_null(moesim_plan_parse("{}", "mine", 1, 0, &error));
  assert_true(g_str_has_prefix(error, "mine:"));
  moesim_free(error);
  error = NULL;
  assert_null(moesim_plan_load(MS_SOURCE_DIR "/scenarios/plan-llama3-70b-h100-64.json", -1, 0, &error));
  moesim_free(error);
  moesim_scenario *scenario = moesim_scenario_load(MS_SOURCE_DIR "/scenarios/run-llama3-70b-h100-64.json", NULL);
  assert_non_null(scenario);
  error = NULL;
  assert_null(moesim_run(scenario, (moesim_fidelity)7, &error));
  assert_non_null(error);
  moesim_free(error);
  moesim_scenario_free(scenario);
}

static void a_plan_gives_the_layouts_in_order_and_as_scenarios(void **state) {
  (void)state;
  char *error = NULL;
  g_autofree char *file = NULL;
  g_close(g_file_open_tmp("moesim-api-XXXXXX", &file, NULL), NULL);
  assert_true(g_file_set_contents(file, ms_test_small_request, -1, NULL));
  moesim_plan *plan = moesim_plan_load(file, 3, 1, &error);
  if (!plan) fail_msg("%s", error);
  g_remove(file);
  int n = moesim_plan_count(plan);
  assert_in_range(n, 2, 3);
  for (int i = 0; i < n; i++) {
    const moesim_result *result = moesim_plan_result(plan, i);
    if (i > 0)
      assert_true(moesim_result_step_time_s(result) >= moesim_result_step_time_s(moesim_plan_result(plan, i - 1)));
    char *text = moesim_plan_scenario_json(plan, i);
    moesim_scenario *scenario = moesim_scenario_parse(text, "winner", &error);
    if (!scenario) fail_msg("%s", error);
    moesim_result *again = moesim_run(scenario, MOESIM_FULL, &error);
    assert_true(moesim_result_step_time_s(again) == moesim_result_step_time_s(result));
    moesim_result_free(again);
    moesim_scenario_free(scenario);
    moesim_free(text);
  }
  assert_null(moesim_plan_result(plan, n));
  assert_null(moesim_plan_scenario_json(plan, -1));
  char *json = moesim_plan_json(plan);
  assert_non_null(strstr(json, "\"searched\""));
  moesim_free(json);
  moesim_plan_free(plan);
}

/* --- moesim_call: the verbs as the command line has them --- */
typedef struct {
  int status;
  char *answer, *error;
} Called;
static void called_clear(Called *c) {
  moesim_free(c->answer);
  moesim_free(c->error);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Called, called_clear)

static Called call(const char *verb, const char *file, const char *json, const char *options) {
  Called c = {0};
  c.status = moesim_call(verb, file, json, options, NULL, &c.answer, &c.error);
  assert_true((c.answer != NULL) != (c.error != NULL));
  if (c.error) assert_null(strchr(c.error, '\n'));
  return c;
}

/* Both answers but for the seconds that they took. */
static void same_but_for_time(const char *mine, const char *theirs) {
  g_autoptr(GRegex) seconds = g_regex_new("\"elapsed_s\":[^,}]*", 0, 0, NULL);
  g_autofree char *a = g_regex_replace_literal(seconds, mine, -1, 0, "", 0, NULL),
                  *b = g_regex_replace_literal(seconds, theirs, -1, 0, "", 0, NULL);
  assert_string_equal(g_strchomp(a), g_strchomp(b));
}

static void a_call_answers_what_the_command_line_prints(void **state) {
  (void)state;
  g_autofree char *run = ms_cli_shipped("run-llama3-70b-h100-64.json"),
                  *request = ms_cli_written("request.json", ms_test_small_request);
  g_auto(Called) fast = call("run", run, NULL, "{\"fidelity\": \"fast\"}"), planned = call("plan", request, NULL, NULL),
                 asked =
                     call("request", NULL, NULL, "{\"model\":\"llama3-8b\",\"hardware\":\"h100-sxm\",\"gpus\":\"8\"}"),
                 text = call("launch", run, NULL, "{\"form\": \"slurm\"}"), all = call("names", NULL, NULL, NULL);
  g_auto(MsCliRun) ran = RUN("run", run, "--fidelity", "fast", "--json"), plan = RUN("plan", request, "--json"),
                   words = RUN("plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8", "--write-request", "-"),
                   shown = RUN("show", "launch", run, "--form", "slurm");
  assert_int_equal(fast.status, 0), same_but_for_time(fast.answer, ran.out);
  assert_int_equal(planned.status, 0), same_but_for_time(planned.answer, plan.out);
  assert_string_equal(asked.answer, g_strchomp(words.out));
  assert_string_equal(g_strchomp(text.answer), g_strchomp(shown.out));
  assert_non_null(strstr(all.answer, "\"deepseek-v3\"")), assert_non_null(strstr(all.answer, "\"h100-sxm\""));
  g_remove(request);
}

/* Nobody names a form: the one of the scenario's framework, at every door. */
static void a_launch_without_a_form_is_that_of_its_framework(void **state) {
  (void)state;
  static const struct {
    const char *file, *has;
  } of[] = {{"run-llama3-70b-h100-64.json", "torchrun"},
            {"published/torchtitan/TT-8b-h100-8-compile-fp8.json", "[parallelism]"}};
  for (guint i = 0; i < G_N_ELEMENTS(of); i++) {
    g_autofree char *run = ms_cli_shipped(of[i].file);
    g_auto(Called) unsaid = call("launch", run, NULL, NULL), null = call("launch", run, NULL, "{\"form\": null}");
    g_auto(MsCliRun) launched = RUN("launch", run), shown = RUN("show", "launch", run);
    assert_non_null(strstr(launched.out, of[i].has));
    assert_string_equal(launched.out, shown.out);
    assert_string_equal(unsaid.answer, null.answer);
    assert_string_equal(g_strchomp(unsaid.answer), g_strchomp(launched.out));
  }
}

static void a_call_says_what_is_wrong_with_the_status_of_the_command_line(void **state) {
  (void)state;
  static const struct {
    const char *verb, *file, *json, *options, *says;
    int status;
  } wrong[] = {
      {"ran", NULL, NULL, NULL, "did you mean \"run\"", 2},
      {NULL, NULL, NULL, NULL, "verb NULL", 2},
      {"run", NULL, NULL, NULL, "file and json are both NULL", 2},
      {"names", "x.json", NULL, NULL, "no document", 2},
      {"run", "mine", "{}", "{\"fidelty\": \"fast\"}", "options:1: fidelty: unknown key", 3},
      {"run", "mine", "{}", "[]", "options:1: ", 3},
      {"run", "mine", "{\n \"nmae\": 1}", NULL, "mine:2: nmae", 3},
      {"run", "/nonexistent.json", NULL, NULL, "/nonexistent.json", 4},
      {"request", NULL, NULL, "{\"model\": \"llama3-8b\"}", "give model, hardware and gpus", 2},
      {"anchor", NULL, NULL, "{\"files\": \"x.json\"}", "give files and date", 2},
  };
  for (guint i = 0; i < G_N_ELEMENTS(wrong); i++) {
    g_auto(Called) c = call(wrong[i].verb, wrong[i].file, wrong[i].json, wrong[i].options);
    if (c.status != wrong[i].status || !c.error || !strstr(c.error, wrong[i].says))
      fail_msg("%s %s: %d %s", wrong[i].verb, wrong[i].options, c.status, c.error);
  }
  assert_int_equal(moesim_call("names", NULL, NULL, NULL, NULL, NULL, NULL), 0); /* nobody wants to know */
}

static void stop_at_once(double done, const char *so_far, void *user) {
  assert_true(done >= 0 && done <= 1);
  assert_non_null(strstr(so_far, "\"best\""));
  *(volatile int *)user = 1;
}

/* A plan that is stopped from its own progress answers with what it has; a caller beside it is not stopped. */
static void one_of_two_callers_stops(void **state) {
  (void)state;
  static volatile int stop;
  moesim_watch watch = {.stop = &stop, .progress = stop_at_once, .user = (void *)&stop};
  g_autofree char *request = moesim_request_json("deepseek-v3", "h100-sxm", "2048", NULL, 0, 0, NULL);
  char *answer = NULL, *error = NULL;
  int status = moesim_call("plan", "big", request, "{\"threads\": 2}", &watch, &answer, &error);
  if (!answer) fail_msg("%d: %s", status, error);
  assert_int_equal(stop, 1);
  assert_non_null(strstr(answer, "\"interrupted\":true"));
  moesim_free(answer);
  g_auto(Called) other = call("plan", "small", ms_test_small_request, NULL);
  assert_non_null(strstr(other.answer, "\"interrupted\":false"));
}

/* Sentences too, in a program whose own numbers have commas; where no such locale is installed there is nothing to see.
 */
static void texts_are_those_of_no_locale(void **state) {
  (void)state;
  static const char file[] = MS_SOURCE_DIR "/scenarios/run-llama3-70b-h100-64.json";
  static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8"};
  char *usual, *here;
  assert_int_equal(moesim_call("run", file, NULL, "{\"fidelity\": \"bound\"}", NULL, &usual, NULL), 0);
  const char *found = NULL;
  for (gsize i = 0; !found && i < G_N_ELEMENTS(commas); i++) found = setlocale(LC_NUMERIC, commas[i]);
  assert_int_equal(moesim_call("run", file, NULL, "{\"fidelity\": \"bound\"}", NULL, &here, NULL), 0);
  g_autofree char *own = g_strdup_printf("%.1f", 1.5);
  assert_string_equal(own, found ? "1,5" : "1.5"); /* of the program nothing has changed */
  setlocale(LC_NUMERIC, "C");
  char *a = strstr(usual, "\"bottleneck\""), *b = strstr(here, "\"bottleneck\"");
  assert_memory_equal(a, b, strcspn(a, "}"));
  moesim_free(usual), moesim_free(here);
}

int main(int argc, char **argv) {
  (void)argc;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_few_words_are_the_command_lines_request),
      cmocka_unit_test(a_run_says_what_the_simulator_says),
      cmocka_unit_test(every_figure_is_found_by_its_key),
      cmocka_unit_test(null_is_no_crash),
      cmocka_unit_test(machines_of_several_kinds),
      cmocka_unit_test(errors_are_one_line_of_text),
      cmocka_unit_test(a_plan_gives_the_layouts_in_order_and_as_scenarios),
      cmocka_unit_test(a_call_answers_what_the_command_line_prints),
      cmocka_unit_test(a_launch_without_a_form_is_that_of_its_framework),
      cmocka_unit_test(a_call_says_what_is_wrong_with_the_status_of_the_command_line),
      cmocka_unit_test(one_of_two_callers_stops),
      cmocka_unit_test(texts_are_those_of_no_locale),
  };
  ms_cli_begin(argv[0]);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ms_cli_end();
  return failed;
}
