/* A hundred drawn scenarios exported to each launch form and imported again are equal; what the canonical form leaves
 * out changes no prediction. */
#include "lib/close.h"

#include "layout/layout.h"
#include "lib/draw.h"
#include "lib/round_trip.h"
#include "sim/simulate.h"

#define ROUNDS 100

static void megatron(void **state) {
  (void)state, ms_test_round_trips((MsLaunch){MS_LAUNCH_MEGATRON, FALSE}, 1, ROUNDS);
}
static void modelzoo(void **state) {
  (void)state, ms_test_round_trips((MsLaunch){MS_LAUNCH_MODELZOO, FALSE}, 2, ROUNDS);
}
static void mt_megatron(void **state) { (void)state, ms_test_round_trips((MsLaunch){MS_LAUNCH_MT, FALSE}, 3, ROUNDS); }
static void slurm_megatron(void **state) {
  (void)state, ms_test_round_trips((MsLaunch){MS_LAUNCH_MEGATRON, TRUE}, 4, ROUNDS);
}
static void slurm_modelzoo(void **state) {
  (void)state, ms_test_round_trips((MsLaunch){MS_LAUNCH_MODELZOO, TRUE}, 5, ROUNDS);
}
static void slurm_mt(void **state) { (void)state, ms_test_round_trips((MsLaunch){MS_LAUNCH_MT, TRUE}, 6, ROUNDS); }

/* What the canonical form leaves out changes no prediction. */
static void canonical_predicts_the_same(void **state) {
  (void)state;
  GRand *rand = g_rand_new_with_seed(7);
  int compared = 0;
  for (int i = 0; i < 4000 && compared < 60; i++) {
    g_autoptr(MsScenario) drawn = ms_test_draw(rand, FALSE);
    if (!ms_model_finish(drawn->model, NULL, "", NULL) || !ms_layout_check(drawn, NULL)) continue;
    g_autoptr(MsScenario) canonical = ms_launch_canonical(drawn);
    g_autoptr(GError) why = NULL, canonical_why = NULL;
    g_autoptr(MsResult) a = ms_simulate(drawn, MS_FIDELITY_FAST, NULL, &why),
                        b = ms_simulate(canonical, MS_FIDELITY_FAST, NULL, &canonical_why);
    if (!a != !b)
      fail_msg("draw %d: %s, canonical: %s", i, why ? why->message : "runs",
               canonical_why ? canonical_why->message : "runs");
    if (!a) continue;
    compared++;
    double peak = a->memory->stage[a->memory->peak_stage].peak_B,
           canonical_peak = b->memory->stage[b->memory->peak_stage].peak_B;
    gboolean same = a->step_time_s == b->step_time_s || (isnan(a->step_time_s) && isnan(b->step_time_s));
    if (same && peak == canonical_peak) continue;
    fail_msg("draw %d: %.17g s %.17g B, canonical %.17g s %.17g B", i, a->step_time_s, peak, b->step_time_s,
             canonical_peak);
  }
  g_rand_free(rand);
  assert_int_equal(compared, 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(megatron),
                                     cmocka_unit_test(modelzoo),
                                     cmocka_unit_test(mt_megatron),
                                     cmocka_unit_test(slurm_megatron),
                                     cmocka_unit_test(slurm_modelzoo),
                                     cmocka_unit_test(slurm_mt),
                                     cmocka_unit_test(canonical_predicts_the_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
