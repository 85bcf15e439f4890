/* What surrounds a plan: layouts side by side, what would help the winner. */
#include "lib/close.h"
#include "lib/world.h"

#include "base/err.h"
#include "study/parts.h"
#include "study/reasons.h"

#include <glib/gstdio.h>
#include <string.h>

/* Mixtral shortened to 8 layers on 16 H100, whose memory is cut so that recomputation pays; `hardware` and the open
 * keys come in from the test. */
static char *request_text(const char *hardware, const char *layout, const char *recompute) {
  g_autofree char *options = g_strconcat("\"recompute\": ", recompute, NULL);
  return ms_test_request_text("{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", hardware, "16",
                              "\"micro_batch_size\": [1, 2], \"global_batch_size\": 64", layout, options);
}

#define SIZES "\"tp\": [1, 2, 4, 8], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": 1, \"ep\": [2, 4, 8], \"etp\": 1"
#define CHOICES                                                                                                 \
  "[{\"granularity\": \"none\"}, {\"granularity\": \"selective\", \"modules\": [\"moe_act\", \"layernorm\"]}, " \
  "{\"granularity\": \"full\"}]"
#define SHORT_OF_MEMORY "{\"base\": \"h100-sxm\", \"hbm_B\": 36e9}"

static MsRequest *request_of(const char *hardware, const char *layout, const char *recompute) {
  g_autofree char *text = request_text(hardware, layout, recompute);
  return ms_test_request_of(text);
}

static const MsPlanOptions few = {.top = 3, .prune = TRUE, .threads = 2};

static MsPlan *plan_of(const MsRequest *request) {
  GError *error = NULL;
  MsPlan *plan = ms_plan(request, &few, &error);
  if (!plan) fail_msg("%s", error->message);
  return plan;
}

/* --- side by side ---------------------------------------------------------------------------------------------- */
static void parts_add_up(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of("\"h100-sxm\"", SIZES, CHOICES);
  g_autoptr(MsPlan) plan = plan_of(request);
  assert_int_equal(plan->n_best, 3);
  for (int other = 0; other < 3; other++) {
    const MsPlanEntry *a = &plan->best[0], *b = &plan->best[other];
    g_autoptr(MsComparison) c = ms_compare(a->scenario, a->result, b->scenario, b->result);
    double time[2] = {0}, memory[2] = {0};
    for (int i = 0; i < c->n_time; i++) time[0] += c->time[i].a, time[1] += c->time[i].b;
    for (int i = 0; i < c->n_memory; i++) memory[0] += c->memory[i].a, memory[1] += c->memory[i].b;
    assert_close(time[0], a->result->step_time_s, 1e-9);
    assert_close(time[1], b->result->step_time_s, 1e-9);
    assert_close(memory[0], ms_device_B(a->result), 1e-12);
    assert_close(memory[1], ms_device_B(b->result), 1e-12);
    assert_true(other == 0 ? c->n_keys == 0 : c->n_keys > 0);
    for (int i = 0; i < c->n_keys; i++) {
      assert_string_not_equal(c->key[i].a, c->key[i].b);
      if (i > 0) assert_true(strcmp(c->key[i - 1].path, c->key[i].path) < 0);
    }
  }
}

static void keys_that_differ(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of("\"h100-sxm\"", SIZES, CHOICES);
  g_autoptr(MsScenario) other = ms_scenario_copy(request->base, TRUE);
  MsStageMemory empty = {0};
  MsMemory memory = {.stages = 1, .stage = &empty};
  MsResult none = {.memory = &memory};
  other->layout.ep = 8;
  other->options.recompute = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_FULL, .num_layers = 2};
  g_autoptr(MsComparison) c = ms_compare(request->base, &none, other, &none);
  assert_int_equal(c->n_keys, 2);
  assert_string_equal(c->key[0].path, "layout.ep");
  assert_string_equal(c->key[0].a, "2");
  assert_string_equal(c->key[0].b, "8");
  assert_string_equal(c->key[1].path, "options.recompute");
  assert_non_null(strstr(c->key[1].b, "\"full\""));
}

/* What may not differ: `change` is put into a scenario of the request. */
static void refused(const char *model, const char *hardware, int gpus, const char *want) {
  GError *error = NULL;
  g_autoptr(MsRequest) request = request_of("\"h100-sxm\"", SIZES, CHOICES);
  g_autofree char *text = request_text(hardware, "\"ep\": 2", "{\"granularity\": \"none\"}");
  GString *changed = g_string_new(text);
  g_string_replace(changed, "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", model, 1);
  g_string_replace(changed, "[1, 2], \"global", "1, \"global", 1);
  g_autofree char *number = g_strdup_printf("\"gpus\": %d", gpus);
  g_string_replace(changed, "\"gpus\": 16", number, 1);
  g_autoptr(MsScenario) other = ms_test_scenario_of(changed->str);
  g_string_free(changed, TRUE);
  gboolean same = ms_same_task(request->base, other, &error);
  assert_true(same == !want);
  if (want) assert_string_equal(error->message, want);
  g_clear_error(&error);
}

static void only_one_task(void **state) {
  (void)state;
  const char *model = "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}";
  refused(model, "\"h100-sxm\"", 16, NULL);
  refused("\"mixtral-8x7b\"", "\"h100-sxm\"", 16,
          "test.json: model: is a changed model, must be mixtral-8x7b as in the request: only layouts of one task can "
          "be compared");
  refused("\"mixtral-8x22b\"", "\"h100-sxm\"", 16,
          "test.json: model: is mixtral-8x22b, must be mixtral-8x7b as in the request: only layouts of one task can "
          "be compared");
  refused(model, "{\"base\": \"h100-sxm\", \"nic_Bps\": 1e10}", 16,
          "test.json: hardware: is a changed machine, must be h100-sxm as in the request: only layouts of one task "
          "can be compared");
  refused(model, "\"h100-sxm\"", 32,
          "test.json: gpus: is 32, must be 16 as in the request: only layouts of one task can be compared");
}

static MsScenario *run_by(const char *software) {
  MsScenario *s = ms_test_scenario_of(
      "{\"schema\": 1, \"model\": \"mixtral-8x7b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": "
      "{\"seq_length\": 4096, \"micro_batch_size\": 1, \"global_batch_size\": 8}, \"layout\": {\"ep\": 8}}");
  g_free(s->software);
  s->software = g_strdup(software);
  ms_stack_clear(&s->stack);
  assert_true(ms_stack_find(software, &s->stack, NULL));
  return s;
}

/* Releases that stacks.json has no factors for are as little the same as those that it has. */
static void software_is_of_the_task(void **state) {
  (void)state;
  g_autoptr(MsScenario) one = run_by("nemo-26.02"), other = run_by("nemo-26.04"), none = run_by(NULL),
                        slow = run_by("nemo-25.09");
  g_autoptr(GError) error = NULL;
  assert_true(ms_same_task(one, one, NULL) && ms_same_task(none, one, NULL));
  assert_false(ms_same_task(none, slow, NULL));
  assert_true(slow->stack.released_year > 2025 && slow->stack.released_year < one->stack.released_year &&
              one->stack.released_year < other->stack.released_year && none->stack.released_year == 0);
  assert_int_equal(slow->stack.transformer_engine, 7);
  assert_int_equal(other->stack.transformer_engine, 14);
  assert_true(ms_stack_before(&one->stack, 14) && !ms_stack_before(&other->stack, 14));
  assert_false(ms_stack_before(&none->stack, 14)); /* not known: the newest */
  assert_false(ms_same_task(one, other, &error));
  assert_non_null(strstr(error->message, "software: is nemo-26.04, must be nemo-26.02"));
}

/* --- what would help ------------------------------------------------------------------------------------------- */
static const MsSensitivity *row_named(const MsSensitivities *s, const char *what) {
  for (int i = 0; i < s->n; i++)
    if (strcmp(s->row[i].what, what) == 0) return &s->row[i];
  fail_msg("no row %s", what);
  return NULL;
}

static MsSensitivities *sensitivities_of(const MsRequest *request, const MsPlan *plan) {
  GError *error = NULL;
  MsSensitivities *s = ms_sensitivities(request, plan, &few, &error);
  if (!s) fail_msg("%s", error->message);
  return s;
}

/* A faster machine never slows the step; no rate that is 10 % higher gains more than 10 %; the winner on a machine that
 * the user changes in the file takes exactly as long. */
static void rates(void **state) {
  (void)state;
  g_autoptr(MsRequest) request =
      request_of("\"h100-sxm\"", "\"tp\": 2, \"cp\": 1, \"pp\": 2, \"vpp\": 1, \"ep\": [4, 8], \"etp\": 1",
                 "{\"granularity\": \"none\"}");
  g_autoptr(MsPlan) plan = plan_of(request);
  g_autoptr(MsSensitivities) s = sensitivities_of(request, plan);
  double before = plan->best[0].result->step_time_s;
  assert_int_equal(s->n, 7);
  for (int i = 0; i < s->n; i++) {
    assert_close(s->row[i].gain, 1 - s->row[i].step_time_s / before, 1e-12);
    assert_true(s->row[i].gain >= 0);
    if (!s->row[i].planned) assert_true(s->row[i].gain < 1 - 1 / 1.1);
    if (i > 0) assert_true(s->row[i - 1].gain >= s->row[i].gain);
  }
  assert_true(row_named(s, "+10 % FLOP/s")->gain > 0.01);
  assert_true(row_named(s, "+10 % NIC bandwidth")->gain > 0 && row_named(s, "+10 % scale-up bandwidth")->gain > 0);
  g_autoptr(MsRequest) faster =
      request_of("{\"base\": \"h100-sxm\", \"nic_Bps\": 5.5e10}", "\"ep\": 2", "{\"granularity\": \"none\"}");
  g_autoptr(MsScenario) winner = ms_scenario_copy(plan->best[0].scenario, TRUE);
  winner->hardware = faster->base->hardware;
  g_autoptr(MsResult) r = ms_simulate(winner, MS_FIDELITY_FULL, NULL, NULL);
  assert_close(r->step_time_s, row_named(s, "+10 % NIC bandwidth")->step_time_s, 1e-9);
}

/* With more memory less is recomputed; the neighbourhood finds no more than a search over everything on that machine.
 */
static void memory_is_used(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of(SHORT_OF_MEMORY, SIZES, CHOICES),
                       rich = request_of("{\"base\": \"h100-sxm\", \"hbm_B\": 72e9}", SIZES, CHOICES);
  g_autoptr(MsPlan) plan = plan_of(request), best = plan_of(rich);
  g_autoptr(MsSensitivities) s = sensitivities_of(request, plan);
  const MsSensitivity *twice = row_named(s, "the memory of one more GPU"), *more = row_named(s, "+10 % HBM size");
  assert_true(twice->planned && twice->gain > 0.01 && twice->change && twice->change->n_keys > 0);
  assert_true(more->planned && more->gain <= twice->gain);
  assert_true(twice->step_time_s >= best->best[0].result->step_time_s);
}

static int values_of(const MsRequest *request, const char *path, int *value) {
  for (int i = 0; i < request->n_open; i++)
    if (strcmp(request->open[i].path, path) == 0) {
      for (int j = 0; j < request->open[i].n; j++) value[j] = (int)json_node_get_int(request->open[i].values[j]);
      return request->open[i].n;
    }
  return -1;
}

static void neighbours(void **state) {
  (void)state;
  int v[8];
  g_autoptr(MsRequest) request = request_of(
      "\"h100-sxm\"", "\"tp\": [1, 2, 4, 8], \"pp\": \"auto\", \"vpp\": 1, \"ep\": [2, 8], \"etp\": 1", CHOICES);
  g_autoptr(MsScenario) centre = ms_scenario_copy(request->base, TRUE);
  centre->layout.tp = 4, centre->layout.pp = 2, centre->layout.ep = 2;
  MsRequest *n = ms_neighbourhood(request, centre, request->base->hardware);
  assert_int_equal(values_of(n, "layout.tp", v), 3);
  assert_true(v[0] == 2 && v[1] == 4 && v[2] == 8);
  assert_int_equal(values_of(n, "layout.pp", v), 3); /* auto: half and double */
  assert_true(v[0] == 1 && v[1] == 2 && v[2] == 4);
  assert_int_equal(values_of(n, "layout.ep", v), 2);
  assert_true(v[0] == 2 && v[1] == 8);
  assert_int_equal(values_of(n, "layout.cp", v), 2);   /* left out: searched; 1 has no half */
  assert_int_equal(values_of(n, "layout.vpp", v), -1); /* fixed */
  assert_int_equal(values_of(n, "training.micro_batch_size", v), 2);
  ms_neighbourhood_free(n);
}

/* --- all of it ------------------------------------------------------------------------------------------------- */
static void nothing_feasible(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRequest) request = request_of("{\"base\": \"h100-sxm\", \"hbm_B\": 4e9}", SIZES, CHOICES);
  g_autoptr(MsPlan) plan = plan_of(request);
  assert_int_equal(plan->n_best, 0);
  for (int i = 0; i < plan->n_refusals; i++)
    if (strcmp(plan->refusals[i].name, "memory") == 0) assert_non_null(strstr(plan->refusals[i].example, ": fits if "));
  g_autoptr(MsReasons) r = ms_reasons_new(request, plan, &few, TRUE, NULL, &error);
  assert_non_null(r);
  assert_true(!r->sensitivities && !r->runner_up && !r->named);
}

static MsReasons *named(const MsRequest *request, const MsPlan *plan, const char *layout, const char *recompute,
                        GError **error) {
  g_autofree char *text = request_text("\"h100-sxm\"", layout, recompute),
                  *file = g_build_filename(g_get_tmp_dir(), "moesim-named-XXXXXX", NULL);
  int fd = g_mkstemp(file);
  assert_true(fd >= 0 && g_close(fd, NULL) && g_file_set_contents(file, text, -1, NULL));
  MsReasons *r = ms_reasons_new(request, plan, &few, FALSE, file, error);
  g_remove(file);
  return r;
}

/* What is not known of a named layout is chosen well for it; it never beats a winner that had the same choice. */
static void named_layout_with_open_keys(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRequest) request = request_of("\"h100-sxm\"", SIZES, CHOICES);
  g_autoptr(MsPlan) plan = plan_of(request);
  g_autoptr(MsReasons) r =
      named(request, plan, "\"tp\": 2, \"cp\": 1, \"pp\": 4, \"vpp\": 1, \"ep\": 2, \"etp\": 1", CHOICES, &error);
  if (!r) fail_msg("%s", error->message);
  assert_int_equal(r->named->layout.pp, 4);
  assert_int_equal(r->named->layout.ep, 2);
  assert_true(ms_reasons_named(r)->step_time_s >= plan->best[0].result->step_time_s);
  assert_true(r->compared->n_keys > 0);
  g_autoptr(MsReasons) none =
      named(request, plan, "\"tp\": 1, \"cp\": 1, \"pp\": 3, \"vpp\": 1, \"ep\": 2, \"etp\": 1", CHOICES, &error);
  assert_true(!none && strstr(error->message, "no layout of it fits"));
  g_clear_error(&error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_add_up),
      cmocka_unit_test(keys_that_differ),
      cmocka_unit_test(only_one_task),
      cmocka_unit_test(software_is_of_the_task),
      cmocka_unit_test(rates),
      cmocka_unit_test(memory_is_used),
      cmocka_unit_test(neighbours),
      cmocka_unit_test(nothing_feasible),
      cmocka_unit_test(named_layout_with_open_keys),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
