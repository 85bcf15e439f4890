/* plan --around: the request around a run tries what the run has, so that no winner is slower than it. */
#include "lib/close.h"
#include "lib/world.h"

#include "plan/plan.h"

#include <string.h>

/* A run with what the planner would not try by itself: three sequences a microbatch, layers cut by hand, an uncommon
 * choice of what is recomputed. */
static const char run_text[] =
    "{\"schema\": 1, \"name\": \"own\", \"model\": {\"base\": \"qwen3-30b-a3b\", \"num_layers\": 10}, \"hardware\": "
    "\"h100-sxm\", \"gpus\": 8, \"software\": \"mcore-dev\", \"training\": {\"seq_length\": 2048, "
    "\"micro_batch_size\": 3, \"global_batch_size\": 48}, \"layout\": {\"tp\": 1, \"cp\": 1, \"pp\": 2, \"vpp\": 2, "
    "\"ep\": 4, \"etp\": 1, \"schedule\": \"1f1b\", \"pipeline_layout\": \"Ettt|ttt|tt|ttL\"}, \"options\": "
    "{\"sequence_parallel\": false, \"recompute\": {\"granularity\": \"selective\", \"modules\": [\"layernorm\"]}}, "
    "\"measured\": {\"step_time_s\": 1.5, \"source\": \"nowhere\"}}";

static MsRequest *request_around(const MsScenario *run, double needed) {
  g_autofree char *text = ms_request_around(run, needed);
  return ms_test_request_of(text);
}

static const MsOpenKey *open_key(const MsRequest *request, const char *path) {
  for (int i = 0; i < request->n_open; i++)
    if (strcmp(request->open[i].path, path) == 0) return &request->open[i];
  fail_msg("%s is not open", path);
  return NULL;
}

static gboolean offers_int(const MsRequest *request, const char *path, int value) {
  const MsOpenKey *key = open_key(request, path);
  for (int i = 0; i < key->n; i++)
    if (json_node_get_int(key->values[i]) == value) return TRUE;
  return FALSE;
}

static void what_the_run_has_is_tried(void **state) {
  (void)state;
  g_autoptr(MsScenario) run = ms_test_scenario_of(run_text);
  g_autoptr(MsRequest) request = request_around(run, 0);
  assert_true(offers_int(request, "training.micro_batch_size", 3) &&
              offers_int(request, "training.micro_batch_size", 4));
  assert_true(offers_int(request, "layout.pp", 2) && offers_int(request, "layout.pp", 8));
  assert_true(offers_int(request, "layout.vpp", 2) && offers_int(request, "layout.ep", 4) &&
              offers_int(request, "layout.tp", 8));
  const MsOpenKey *stages = open_key(request, "layout.pipeline_layout");
  assert_int_equal(stages->n, 2);
  assert_string_equal(json_node_get_string(stages->values[1]), "Ettt|ttt|tt|ttL");
  gboolean own = FALSE;
  const MsOpenKey *recompute = open_key(request, "options.recompute");
  for (int i = 0; i < recompute->n; i++) {
    JsonArray *modules = json_object_get_array_member(json_node_get_object(recompute->values[i]), "modules");
    own |= json_array_get_length(modules) == 1 && strcmp(json_array_get_string_element(modules, 0), "layernorm") == 0;
  }
  assert_true(own);
  assert_false(request->base->has_measured);
}

/* All but the run's own layout closed again: what is found is the run. */
static void the_run_is_one_of_the_layouts(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) run = ms_test_scenario_of(run_text);
  g_autoptr(MsResult) alone = ms_test_simulate(run, MS_FIDELITY_FULL);
  g_autoptr(MsRequest) request = request_around(run, 0);
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.top = 10000;
  options.prune = FALSE;
  /* few enough to simulate each: sizes as in the run, the rest open */
  static const char *const closed[] = {"layout.tp",  "layout.cp", "layout.ep",
                                       "layout.etp", "layout.pp", "training.micro_batch_size"};
  const int value[] = {1, 1, 4, 1, 2, 3};
  for (int i = 0; i < request->n_open; i++)
    for (guint k = 0; k < G_N_ELEMENTS(closed); k++) {
      MsOpenKey *key = &request->open[i];
      if (strcmp(key->path, closed[k]) != 0) continue;
      for (int j = 0; j < key->n; j++) json_node_unref(key->values[j]);
      key->n = 1;
      key->values[0] = json_node_new(JSON_NODE_VALUE);
      json_node_set_int(key->values[0], value[k]);
    }
  g_autoptr(MsPlan) plan = ms_plan(request, &options, &error);
  if (!plan) fail_msg("%s", error->message);
  int found = 0, cut = 0;
  for (int i = 0; i < plan->n_best; i++) {
    const MsScenario *s = plan->best[i].scenario;
    if (g_strcmp0(s->layout.pipeline_layout, run->layout.pipeline_layout) != 0) continue;
    cut++;
    assert_int_equal(s->layout.vpp, 2); /* VPP 1 beside the string would be the same layout again */
    if (s->options.recompute.granularity != run->options.recompute.granularity ||
        s->options.recompute.modules != run->options.recompute.modules)
      continue;
    found++;
    assert_true(plan->best[i].result->step_time_s == alone->step_time_s);
  }
  assert_int_equal(found, 1);
  assert_true(cut > 1);
  assert_true(plan->best[0].result->step_time_s <= alone->step_time_s);
}

static void a_run_that_trains_fits(void **state) {
  (void)state;
  g_autoptr(MsScenario) run = ms_test_scenario_of(run_text);
  g_autoptr(MsRequest) usual = request_around(run, 0.5), more = request_around(run, 0.97),
                       all = request_around(run, 1.2);
  assert_true(usual->max_memory_fraction == 0.94);
  assert_true(more->max_memory_fraction == 0.97);
  assert_true(all->max_memory_fraction == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_the_run_has_is_tried),
                                     cmocka_unit_test(the_run_is_one_of_the_layouts),
                                     cmocka_unit_test(a_run_that_trains_fits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
