/* The step pass by pass (sim/passes.h): parts add up, counts are the schedule's, and the pair of DeepSeek-V3's training
 * takes what its profile shows. */
#include "lib/close.h"

#include "describe/scenario.h"
#include "lib/world.h"
#include "step/program.h"
#include "sim/simulate.h"

static double sum_of(const MsPasses *p) {
  double sum = p->bubble_s + p->optimizer_s;
  for (int kind = 0; kind < MS_N_SLOTS; kind++) sum += p->total_s[kind];
  return sum;
}

static MsScenario *moe(MsScheduleKind kind, int pp, int microbatches) {
  MsScenario *s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 8 * pp);
  s->layout.pp = pp, s->layout.ep = 8, s->layout.schedule = kind;
  if (kind == MS_SCHED_ZB_V || kind == MS_SCHED_V_HALF || kind == MS_SCHED_V_MIN || kind == MS_SCHED_DUALPIPEV)
    s->layout.vpp = 2;
  s->training.global_batch_size = 8 * microbatches;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
  return s;
}

static void counts_of(const MsScenario *s, int stage, int *count) {
  char why[200];
  g_autoptr(MsSchedule) schedule = ms_schedule_new((int)s->layout.schedule, s->layout.pp, 16, MAX(s->layout.vpp, 1), 0,
                                                   s->options.ep_overlap, why, sizeof why);
  if (!schedule) fail_msg("%s", why);
  for (int i = 0; i < schedule->n[stage]; i++) count[schedule->slot[stage][i].kind]++;
}

static void every_schedule_adds_up(void **state) {
  (void)state;
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    g_autoptr(MsScenario) s = moe(kind, 4, 16);
    for (int f = MS_FIDELITY_FAST; f <= MS_FIDELITY_FULL; f++) {
      g_autoptr(MsResult) r = ms_test_simulate(s, (MsFidelity)f);
      for (int stage = 0; stage < 4; stage++) {
        const MsPasses *p = &r->passes[stage];
        assert_close(sum_of(p), r->step_time_s, 1e-12);
        assert_true(p->optimizer_s > 0 && p->bubble_s >= -1e-9);
        int count[MS_N_SLOTS] = {0};
        if (kind != MS_SCHED_ZB_1P && kind != MS_SCHED_ZB_2P) { /* those search with the stage's own costs */
          counts_of(s, stage, count);
          assert_memory_equal(p->count, count, sizeof count);
        }
        for (int k = 0; k < MS_N_SLOTS; k++) assert_true((p->count[k] > 0) == (p->total_s[k] > 0));
      }
    }
  }
}

/* 1F1B of equal stages: every stage forwards and backwards the same time, and the rest is the closed form's bubble. */
static void bubble_of_1f1b(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe(MS_SCHED_1F1B, 4, 16);
  s->model->vocab_size = 128;
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
  const MsPasses *p = &r->passes[1];
  double slots_s = p->total_s[MS_SLOT_F] + p->total_s[MS_SLOT_B];
  assert_int_equal(p->count[MS_SLOT_F], 16);
  assert_close(p->bubble_s / (slots_s + p->bubble_s), 3.0 / 19, 0.12); /* (p - 1) / (m + p - 1), and the messages */
}

static void one_stage_has_no_bubble(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe(MS_SCHED_1F1B, 1, 4);
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(fabs(r->passes[0].bubble_s) < 1e-3 * r->step_time_s);
  s->options.ep_overlap = TRUE; /* F0, F1 & B0, F2 & B1, F3 & B2, B3 */
  g_autoptr(MsResult) pairs = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_int_equal(pairs->passes[0].count[MS_SLOT_FB], 3);
  assert_true(pairs->passes[0].total_s[MS_SLOT_FB] / 3 <
              (r->passes[0].total_s[MS_SLOT_F] + r->passes[0].total_s[MS_SLOT_B]) / 4);
}

/* deepseek-ai/profile-data 4496024, train.json: one forward chunk with one backward chunk of 4 MoE layers, EP 64, takes
 * 129.01 ms on an H800. A layer computes 4370 + 4604 us forward (attention; experts) and 5306 + 4300 + 9341 + 2389 us
 * backward (experts, their weight gradients on two streams; attention, its weight gradients), on the 112 of 132 SMs
 * that communication leaves. */
static void the_pair_of_deepseek_v3(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_file("scenarios/tour/deepseek-v3-h800-dualpipe.json");
  s->training.global_batch_size = 128 * 32;
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
  assert_close(r->pass_s[MS_SLOT_FB], 129.01e-3, 0.1);
  assert_true(r->pass_s[MS_SLOT_FB] < r->pass_s[MS_SLOT_F] + r->pass_s[MS_SLOT_B]);
}

static void the_layer_of_deepseek_v3(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_file("scenarios/tour/deepseek-v3-h800-dualpipe.json");
  g_auto(MsLowered) l = ms_test_lower(s);
  MsCost *cost = ms_cost_new(s, l.layout, NULL);
  g_autoptr(MsProgram) p = ms_program_new(l.work, cost);
  const MsCostedPiece *moe_layer = &p->piece[l.work->piece_of_layer[s->model->num_layers - 1]];
  double left = 132.0 / 112;
  assert_close((double)moe_layer->forward.compute * 1e-12 * left, 8974e-6, 0.15);
  assert_close((double)moe_layer->backward.compute * 1e-12 * left, 21336e-6, 0.15);
  ms_cost_free(cost);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_schedule_adds_up), cmocka_unit_test(bubble_of_1f1b),
                                     cmocka_unit_test(one_stage_has_no_bubble),
                                     cmocka_unit_test(the_pair_of_deepseek_v3),
                                     cmocka_unit_test(the_layer_of_deepseek_v3)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
