/* tests/unit/test_changes.c - what single changes of a run gain: each is what the changed run is predicted to take, and
 * a run that is short of memory is told what frees some. */
#include <string.h>

#include "lib/close.h"
#include "lib/world.h"
#include "report/report.h"
#include "study/changes.h"
#include "study/parts.h"

static const MsChange *change_of(const MsChanges *changes, const char *path) {
  for (int i = 0; i < changes->n; i++)
    for (int k = 0; k < changes->row[i].change->n_keys; k++)
      if (strcmp(changes->row[i].change->key[k].path, path) == 0) return &changes->row[i];
  return NULL;
}

static double fast_s(const MsScenario *scenario) {
  g_autoptr(MsResult) result = ms_test_simulate(scenario, MS_FIDELITY_FAST);
  return result->step_time_s;
}

static void test_gains_are_those_of_the_changed_run(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 64);
  s->layout.tp = 2;
  s->options.sequence_parallel = TRUE;
  double before_s = fast_s(s);
  g_autoptr(MsChanges) changes = ms_changes_new(s);
  const MsChange *c = change_of(changes, "options.overlap_grad_reduce");
  assert_non_null(c);
  assert_int_equal(c->change->n_keys, 1);
  s->options.overlap_grad_reduce = TRUE;
  assert_close(c->step_time_s, fast_s(s), 0);
  assert_close(c->gain, 1 - fast_s(s) / before_s, 1e-12);
  for (int i = 0; i < changes->n; i++) {
    assert_true(changes->row[i].gain >= MS_CHANGE_GAIN);
    assert_true(i == 0 || changes->row[i].gain <= changes->row[i - 1].gain);
  }
}

/* Layers that are cut badly; with another key open the cut stays as it is, so that its gain is not counted twice. */
static void test_a_change_is_alone(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 64);
  s->layout.pp = 2;
  s->training.global_batch_size = 256;
  s->options.recompute = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_FULL, .num_layers = 1};
  s->layout.pipeline_layout = g_strdup("Et*4|t*28L");
  g_autoptr(MsChanges) changes = ms_changes_new(s);
  const MsChange *cut = change_of(changes, "layout.pipeline_layout"), *kept = change_of(changes, "options.recompute");
  assert_true(cut && cut->gain > 0.2);
  assert_true(kept && kept->gain > 0.1);
  assert_int_equal(kept->change->n_keys, 1);
}

/* A size that cuts the layers anew is advised with the cut, without which it may break a rule. */
static void test_advice_can_be_followed(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", 0, "h100-sxm", 64);
  s->layout.tp = 4, s->layout.pp = 8, s->layout.vpp = 5;
  s->training.global_batch_size = 128;
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
  g_autoptr(MsChanges) changes = ms_changes_new(s);
  MsAdvice advice = ms_advice_of(r, changes);
  int sizes = 0;
  for (int i = 0; i < advice.n; i++)
    if (strstr(advice.line[i], "vpp ")) sizes++, assert_non_null(strstr(advice.line[i], " with pipeline_layout E"));
  assert_int_equal(sizes, 1);
  ms_advice_clear(&advice);
}

static void test_memory_is_freed_where_it_is_short(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->layout.tp = 2;
  s->training.micro_batch_size = 4;
  s->training.global_batch_size = 32;
  g_autoptr(MsResult) own = ms_test_simulate(s, MS_FIDELITY_FAST);
  g_autoptr(MsChanges) changes = ms_changes_new(s);
  assert_true(ms_device_B(own) > changes->limit_B);
  assert_non_null(changes->frees);
  assert_true(ms_device_B(own) - changes->frees->freed_B <= changes->limit_B);
  assert_int_equal(changes->n, 0); /* nothing else is of use before that */
}

/* A run that fits is told of dear memory that it is dear; one that does not, what frees it, whatever it costs. */
static void test_dear_memory_is_no_advice(void **state) {
  (void)state;
  MsComparedKey key = {.path = (char *)"training.micro_batch_size", .a = (char *)"8", .b = (char *)"1"};
  MsComparison change = {.n_keys = 1, .key = &key};
  MsChange frees = {.change = &change, .gain = -0.2, .freed_B = 2e9};
  MsChanges changes = {.frees = &frees, .limit_B = 90e9};
  MsStageMemory stage = {.capacity_B = 100e9};
  MsMemory memory = {.stages = 1, .stage = &stage};
  static const struct {
    double used_B, gain;
    const char *says;
  } row[] = {{95e9, -0.2, "no single change that helps is cheap: "},
             {95e9, -0.02, "and costs 2.0 % of the step"},
             {120e9, -0.2, "and costs 20.0 % of the step"}};
  for (guint i = 0; i < G_N_ELEMENTS(row); i++) {
    stage.device_B = row[i].used_B, frees.gain = row[i].gain;
    MsResult run = {.capacity_B = 100e9, .memory = &memory, .stages = 1};
    MsAdvice advice = ms_advice_of(&run, &changes);
    assert_int_equal(advice.n, 1);
    if (!strstr(advice.line[0], row[i].says)) fail_msg("%s", advice.line[0]);
    ms_advice_clear(&advice);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gains_are_those_of_the_changed_run), cmocka_unit_test(test_a_change_is_alone),
      cmocka_unit_test(test_advice_can_be_followed), cmocka_unit_test(test_memory_is_freed_where_it_is_short),
      cmocka_unit_test(test_dear_memory_is_no_advice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
