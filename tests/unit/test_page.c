/* The page: what goes into its data, that nothing gets out of it, and that the files of src/report/page stand in it as
 * they are. */
#include "lib/close.h"

#include "base/units.h"
#include "lib/world.h"
#include "report/page.h"
#include "report/page_text.h"
#include "step/program.h"

#include <string.h>

typedef struct {
  MsScenario *scenario;
  MsResult *result;
  MsDetail *detail;
} Run;

static Run run_of(MsScenario *scenario) {
  GError *error = NULL;
  Run run = {.scenario = scenario};
  run.result = ms_simulate(scenario, MS_FIDELITY_FULL, &run.detail, &error);
  if (!run.result) fail_msg("%s", error->message);
  return run;
}
static void run_clear(Run *run) {
  ms_detail_free(run->detail);
  ms_result_free(run->result);
  ms_scenario_free(run->scenario);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Run, run_clear)

/* DeepSeek-V2-Lite on two nodes: pipeline, experts across nodes, data parallel. */
static MsScenario *moe_run(void) {
  MsScenario *s = ms_test_run("deepseek-v2-lite", -1, "h100-sxm", 16);
  s->layout.pp = 2, s->layout.ep = 8, s->training.global_batch_size = 64;
  s->layout.pipeline_layout = g_strdup("Et*13|t*14L");
  return s;
}

static MsJson *data_of(const Run *run) {
  GError *error = NULL;
  MsJsonOut *out = ms_json_out_new(0);
  ms_page_run(run->scenario, run->result, run->detail, NULL, out);
  g_autofree char *text = ms_json_out_take(out);
  MsJson *doc = ms_json_parse(text, -1, "page", &error);
  if (!doc) fail_msg("%s", error->message);
  return doc;
}
static JsonArray *list(JsonObject *o, const char *key) {
  if (!json_object_has_member(o, key)) fail_msg("no %s", key);
  return json_object_get_array_member(o, key);
}
static double number(JsonObject *o, const char *key) { return json_object_get_double_member(o, key); }

/* --- the files ------------------------------------------------------------------------------------------------- */
static void files_stand_in_the_program_as_they_are(void **state) {
  (void)state;
  static const char *const names[] = {"page.html", "page.css", "base.js"};
  const char *const in[] = {ms_page_markup, ms_page_style, ms_page_script};
  for (int i = 0; i < 3; i++) {
    g_autofree char *file = g_build_filename(MS_SOURCE_DIR, "src/report/page", names[i], NULL), *text = NULL;
    assert_true(g_file_get_contents(file, &text, NULL, NULL));
    assert_non_null(strstr(in[i], text));
  }
}

static void nothing_leaves_the_data_block(void **state) {
  (void)state;
  static const char name[] = "</script><script>alert(1)</script><!-- @@DATA@@ & <b>";
  g_autoptr(MsScenario) run = moe_run();
  MsPage *page = ms_page_new(NULL);
  GError *error = NULL;
  if (!ms_page_add_run(page, run, name, &error)) fail_msg("%s", error->message);
  g_autofree char *html = ms_page_take(page);
  assert_null(strstr(html, "<script>alert"));
  assert_non_null(strstr(html, "<title>&lt;/script&gt;"));
  const char *from = strstr(html, "id=\"data\">");
  assert_non_null(from);
  from += strlen("id=\"data\">");
  const char *to = strstr(from, "</script>");
  assert_non_null(to);
  assert_null(memchr(from, '<', (size_t)(to - from)));
  g_autofree char *block = g_strndup(from, (size_t)(to - from));
  g_autoptr(MsJson) doc = ms_json_parse(block, -1, "block", &error);
  if (!doc) fail_msg("%s", error->message);
  JsonObject *first = json_array_get_object_element(list(json_node_get_object(ms_json_root(doc)), "runs"), 0);
  assert_string_equal(json_object_get_string_member(first, "name"), name);
  assert_null(strstr(html, "@@STYLE@@"));
}

/* A run as a worker of the server printed it makes the page that the program writes. */
static void printed_runs_make_the_same_page(void **state) {
  (void)state;
  g_autoptr(MsScenario) run = moe_run();
  GError *error = NULL;
  MsPage *direct = ms_page_new(NULL), *printed = ms_page_new(NULL);
  if (!ms_page_add_run(direct, run, "mine", &error)) fail_msg("%s", error->message);
  g_autofree char *json = ms_page_run_json(run, "mine", &error);
  ms_page_add_printed(printed, json);
  g_autofree char *a = ms_page_take(direct), *b = ms_page_take(printed);
  const char *end = strstr(b, "\"elapsed_s\":");
  assert_non_null(strstr(b, "<title>mine "));
  assert_int_equal(strncmp(a, b, end ? (size_t)(end - b) : strlen(b)), 0);
}

/* --- the data -------------------------------------------------------------------------------------------------- */
static void every_pass_is_there_once(void **state) {
  (void)state;
  g_auto(Run) run = run_of(moe_run());
  g_autoptr(MsJson) doc = data_of(&run);
  JsonArray *passes = list(json_node_get_object(ms_json_root(doc)), "passes");
  assert_int_equal(json_array_get_length(passes), 2);
  for (guint s = 0; s < 2; s++) {
    JsonObject *stage = json_array_get_object_element(passes, s);
    JsonArray *slots = list(stage, "slots");
    assert_int_equal(json_object_get_int_member(stage, "left_out"), 0);
    assert_int_equal(json_array_get_length(slots), 7 * run.detail->schedule->n[s]);
    gint64 end = 0;
    for (guint k = 0; k < json_array_get_length(slots); k += 7) {
      assert_int_equal(json_array_get_int_element(slots, k), run.detail->schedule->slot[s][k / 7].kind);
      assert_int_equal(json_array_get_int_element(slots, k + 1), run.detail->schedule->slot[s][k / 7].mb);
      gint64 start = json_array_get_int_element(slots, k + 5);
      assert_true(start >= end - 1); /* one after another, to the microsecond */
      end = start + json_array_get_int_element(slots, k + 6);
    }
    assert_true((double)end <= 1e6 * number(json_node_get_object(ms_json_root(doc)), "makespan_s") + 1);
  }
}

static void communication_adds_up_to_the_result(void **state) {
  (void)state;
  g_auto(Run) run = run_of(moe_run());
  g_autoptr(MsJson) doc = data_of(&run);
  JsonArray *comm = list(json_node_get_object(ms_json_root(doc)), "comm");
  double total[MS_N_COMMS] = {0};
  for (guint i = 0; i < json_array_get_length(comm); i++) {
    JsonObject *row = json_array_get_object_element(comm, i);
    for (int c = 0; c < MS_N_COMMS; c++)
      if (strcmp(ms_comm_words[c], json_object_get_string_member(row, "class")) == 0)
        total[c] += number(row, "time_s") / run.result->stages;
    assert_true(number(row, "scaleup_B") + number(row, "network_B") > 0);
  }
  for (int c = 0; c < MS_N_COMMS; c++) assert_close(total[c], run.result->time.comm_total_s[c], 1e-9);
  assert_true(total[MS_COMM_EP] > 0 && total[MS_COMM_PP] > 0);
}

static void operators_add_up_to_compute_and_optimizer(void **state) {
  (void)state;
  g_auto(Run) run = run_of(moe_run());
  g_autoptr(MsJson) doc = data_of(&run);
  JsonArray *rows = list(json_node_get_object(ms_json_root(doc)), "operators");
  double sum = 0, last = INFINITY;
  for (guint i = 0; i < json_array_get_length(rows); i++) {
    double time_s = number(json_array_get_object_element(rows, i), "time_s");
    assert_true(time_s <= last);
    last = time_s, sum += time_s;
  }
  const MsTimeParts *t = &run.result->time;
  assert_close(sum, t->compute_s + t->optimizer_s, 1e-6);
}

static double kept_B(const MsWork *work, const MsChunk *chunk) { /* of one microbatch */
  double bytes = 0;
  for (int i = 0; i < ms_work_chunk_length(work, chunk); i++)
    bytes += work->pieces[ms_work_chunk_piece(work, chunk, i)].kept_B;
  return bytes;
}

/* Kept tensors of the forwards that live are the kept activations of the memory model, but for the pass under way. */
static void kept_tensors_are_the_activations(void **state) {
  (void)state;
  g_auto(Run) run = run_of(moe_run());
  g_autoptr(MsJson) doc = data_of(&run);
  JsonArray *kept = list(json_node_get_object(ms_json_root(doc)), "kept");
  for (int s = 0; s < run.result->stages; s++) {
    JsonObject *stage = json_array_get_object_element(kept, (guint)s);
    JsonArray *tensors = list(stage, "tensors");
    double sum = 0, chunk = kept_B(run.detail->work, ms_layout_chunk(run.detail->layout, s, 0));
    for (guint i = 0; i < json_array_get_length(tensors); i++)
      sum += number(json_array_get_object_element(tensors, i), "bytes_B");
    assert_close(sum, chunk * json_object_get_int_member(stage, "live_forwards"), 1e-9);
    double activations = run.result->memory->stage[s].activations_B;
    assert_true(activations >= sum * (1 - 1e-9) && activations <= (sum + chunk) * (1 + 1e-9));
  }
}

/* --- bytes by level -------------------------------------------------------------------------------------------- */
static void level(const MsScenario *s, const MsLayout *l, MsOpKind kind, MsGroupKind group, double inside, double away,
                  const char *what) {
  const MsOp op = {.kind = (guint8)kind, .group = (guint8)group, .message_B = 1e6};
  double level_B[3];
  ms_cost_level_B(s, l, &op, level_B);
  if (fabs(level_B[0] - inside) > 1 || fabs(level_B[1] - away) > 1 || level_B[2] != 0)
    fail_msg("%s: %g %g %g, not %g %g", what, level_B[0], level_B[1], level_B[2], inside, away);
}

/* Two nodes of 8. The expert group of 8 lies in a node; the dense data-parallel group of 16 in both; 1 MB each. */
static void bytes_stand_on_the_level_that_carries_them(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v2-lite", -1, "h100-sxm", 16);
  s->layout.ep = 8;
  g_auto(MsLowered) l = ms_test_lower(s);
  level(s, l.layout, MS_OP_ALL_TO_ALL, MS_GROUP_EP, 1e6 * 7 / 8, 0, "all-to-all inside: all but the own eighth");
  level(s, l.layout, MS_OP_ALL_GATHER, MS_GROUP_DP, 1e6 * 15 / 16 - 1e6 / 16, 1e6 / 16,
        "all-gather: half of the whole enters a node over 8 NICs");
  level(s, l.layout, MS_OP_ALL_REDUCE, MS_GROUP_DP, 2e6 * 15 / 16 - 2e6 / 16, 2e6 / 16, "all-reduce: twice that");
  level(s, l.layout, MS_OP_ALL_TO_ALL, MS_GROUP_DP, 1e6 * 7 / 16, 1e6 * 8 / 16,
        "all-to-all across: 7 peers here, 8 there");
  level(s, l.layout, MS_OP_ALL_GATHER, MS_GROUP_TP, 0, 0, "a group of one");
  level(s, l.layout, MS_OP_GEMM, MS_GROUP_DP, 0, 0, "no communication");
  const MsOp copy = {.kind = MS_OP_D2H, .message_B = 3e6};
  double level_B[3];
  ms_cost_level_B(s, l.layout, &copy, level_B);
  assert_true(level_B[0] == 0 && level_B[1] == 0 && level_B[2] == 3e6);
}

/* What NICs send in a step others receive, at most as fast as they can. */
static void links_of_a_fabric_carry_the_step(void **state) {
  (void)state;
  g_auto(Run) run = run_of(ms_test_scenario_of(
      "{\"schema\": 1, \"model\": \"deepseek-v2-lite\", \"hardware\": {\"base\": \"h100-sxm\", \"fabric\": {\"kind\": "
      "\"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 2}}, \"gpus\": 32, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": 64}, \"layout\": {\"ep\": 16}, \"options\": {\"dispatcher\": \"alltoall\"}}"));
  g_autoptr(MsJson) doc = data_of(&run);
  JsonObject *data = json_node_get_object(ms_json_root(doc));
  assert_int_equal(number(json_object_get_object_member(data, "fabric"), "leaves"), 2);
  JsonArray *links = list(data, "links");
  double nic_B[2] = {0, 0}; /* out, in */
  for (guint i = 0; i < json_array_get_length(links); i++) {
    JsonObject *l = json_array_get_object_element(links, i);
    const char *name = json_object_get_string_member(l, "name"), *tier = json_object_get_string_member(l, "tier");
    assert_true(number(l, "load") > 0 && number(l, "load") <= 1);
    if (strcmp(tier, "NIC") != 0) continue;
    nic_B[g_str_has_suffix(name, ".in")] += number(l, "bytes_B");
    assert_close(number(l, "load"), number(l, "bytes_B") / run.scenario->hardware->nic_Bps / run.result->step_time_s,
                 1e-9);
  }
  assert_true(nic_B[0] > 0);
  assert_close(nic_B[1], nic_B[0], 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_stand_in_the_program_as_they_are),
                                     cmocka_unit_test(printed_runs_make_the_same_page),
                                     cmocka_unit_test(nothing_leaves_the_data_block),
                                     cmocka_unit_test(every_pass_is_there_once),
                                     cmocka_unit_test(communication_adds_up_to_the_result),
                                     cmocka_unit_test(operators_add_up_to_compute_and_optimizer),
                                     cmocka_unit_test(kept_tensors_are_the_activations),
                                     cmocka_unit_test(bytes_stand_on_the_level_that_carries_them),
                                     cmocka_unit_test(links_of_a_fabric_carry_the_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
