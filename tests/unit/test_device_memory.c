/* tests/unit/test_device_memory.c - what stands on the device beside parameters and activations: deferred gradients of the head. */
#include "lib/close.h"

#include "lib/world.h"
#include "sim/simulate.h"

static MsResult *simulate(const MsScenario *s, MsFidelity fidelity) {
  GError *error = NULL;
  MsResult *r = ms_simulate(s, fidelity, NULL, &error);
  if (!r) fail_msg("%s", error->message);
  return r;
}

/* --- defer_embedding_wgrad_compute --- */

enum { MICROBATCHES = 16, STAGES = 4 };

static MsScenario *pipeline(gboolean defer, int limit) {
  MsScenario *s = ms_test_run("llama3-8b", 0, "h100-sxm", 2 * STAGES);
  s->layout.tp = 2, s->layout.pp = STAGES;
  s->training.global_batch_size = MICROBATCHES;
  s->options.defer_embedding_wgrad_compute = defer, s->options.wgrad_deferral_limit = limit;
  return s;
}

/* Bytes that wait on the last stage: BF16 gradient of the logits and input of the head, for every microbatch up to the limit. */
static void deferred_gradients_wait(void **state) {
  (void)state;
  double before_B = 0;
  for (int limit = 0; limit <= 20; limit++) {
    g_autoptr(MsScenario) s = pipeline(limit > 0, limit);
    g_auto(MsLowered) l = ms_test_lower(s);
    g_autoptr(MsSchedule) schedule = ms_schedule_new(MS_SCHED_1F1B, STAGES, MICROBATCHES, 1, STAGES, FALSE, (char[64]){0}, 64);
    g_autofree double *live = ms_memory_timeline(l.work, schedule, STAGES - 1);
    double end_B = live[schedule->n[STAGES - 1]] - live[0], each_B = 2.0 * 8192 * 128256 / 2 + 2.0 * 8192 * 4096 / 2;
    assert_close(end_B, MIN(limit, MICROBATCHES) * (each_B * s->training.seq_length / 8192), 1e-9);
    assert_true(end_B >= before_B);
    before_B = end_B;
  }
}

/* Work is moved, not lost: all compute of the step stays, the last stage gets it behind its last slot, where the flush of the pipeline hides it. */
static void deferred_gradients_hide_in_the_flush(void **state) {
  (void)state;
  g_autoptr(MsScenario) off = pipeline(FALSE, 0);
  g_autoptr(MsResult) plain = simulate(off, MS_FIDELITY_FULL);
  double last_s = plain->step_time_s;
  for (int limit = 1; limit <= 2; limit++) {
    g_autoptr(MsScenario) on = pipeline(TRUE, limit);
    g_autoptr(MsResult) full = simulate(on, MS_FIDELITY_FULL), fast = simulate(on, MS_FIDELITY_FAST), bound = simulate(on, MS_FIDELITY_BOUND);
    assert_close(full->time.compute_s, plain->time.compute_s, 1e-4); /* what shares SMs with it differs */
    assert_close(fast->time.compute_s, plain->time.compute_s, 1e-3);
    assert_close(fast->step_time_s, full->step_time_s, 0.02);
    assert_true(bound->step_time_s <= full->step_time_s);
    assert_true(full->step_time_s < last_s); /* the last stage is the slowest here: its head */
    last_s = full->step_time_s;
    for (int i = 0; i < STAGES - 1; i++) assert_true(full->memory->stage[i].peak_B == plain->memory->stage[i].peak_B);
  }
  g_autoptr(MsScenario) alone = ms_test_run("llama3-8b", 0, "h100-sxm", 8); /* without a pipeline nothing is deferred */
  g_autoptr(MsResult) one = simulate(alone, MS_FIDELITY_FULL);
  alone->options.defer_embedding_wgrad_compute = TRUE;
  g_autoptr(MsResult) same = simulate(alone, MS_FIDELITY_FULL);
  assert_true(one->step_time_s == same->step_time_s && one->memory->stage[0].peak_B == same->memory->stage[0].peak_B);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(deferred_gradients_wait), cmocka_unit_test(deferred_gradients_hide_in_the_flush)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
