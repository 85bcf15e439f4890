/* Switches of memory and communication: memory-efficient permutation, depths of multi-token prediction, reduction in
 * the switches, shared links. */
#include "lib/close.h"

#include "cost/cost.h"
#include "lib/world.h"
#include "sim/simulate.h"

#include <string.h>

/* DeepSeek-V3 as the MoE report lays it out: PP 4, VPP 4, EP 64 on 256 GPUs, BF16, nothing recomputed. */
static MsScenario *report(void) {
  MsScenario *s = ms_test_run("deepseek-v3", 1, "gb200-nvl72", 256);
  s->layout.pp = 4, s->layout.vpp = 4, s->layout.ep = 64;
  s->layout.pipeline_layout = g_strdup("Et*4|(tttt|)*14tmL");
  s->training.global_batch_size = 64 * 32;
  s->options.dispatcher = MS_DISPATCH_HYBRIDEP;
  return s;
}

/* Published: about 26.3 GB saved at no cost (arXiv 2603.07685). */
static void memory_efficient_permutation(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = report();
  g_autoptr(MsResult) on = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->options.moe_memory_efficient_permutation = FALSE;
  g_autoptr(MsResult) off = ms_test_simulate(s, MS_FIDELITY_FULL);
  double saved = 0;
  for (int i = 0; i < on->stages; i++)
    saved = MAX(saved, off->memory->stage[i].activations_B - on->memory->stage[i].activations_B);
  if (fabs(saved / 26.3e9 - 1) > 1.0 / 3) fail_msg("saves %.1f GB, published 26.3", saved / 1e9);
  assert_close(on->memory->stage[0].between_steps_B, off->memory->stage[0].between_steps_B, 0);
  assert_close(on->time.comm_total_s[MS_COMM_EP], off->time.comm_total_s[MS_COMM_EP], 0.02);
  for (int family = MS_FAMILY_GEMM; family <= MS_FAMILY_ATTENTION; family++)
    assert_close(on->time.family_s[family], off->time.family_s[family], 0.01);
  assert_true(off->step_time_s >= on->step_time_s && off->step_time_s < 1.05 * on->step_time_s);
  /* with the whole layer recomputed nothing of it is kept either way */
  s->options.recompute.granularity = MS_RECOMPUTE_SELECTIVE, s->options.recompute.modules = MS_RM_MOE;
  g_autoptr(MsResult) again_off = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->options.moe_memory_efficient_permutation = TRUE;
  g_autoptr(MsResult) again_on = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_close(again_off->memory->stage[0].activations_B, again_on->memory->stage[0].activations_B, 0);
}

/* Every depth of multi-token prediction has its block and its own pass through the head. */
static void multi_token_prediction_depths(void **state) {
  (void)state;
  double before_B = 0, before_flop = 0, step_B = 0, step_flop = 0;
  for (int depth = 0; depth <= 7; depth++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", depth, "gb200-nvl72", 64);
    s->layout.ep = 64;
    g_auto(MsLowered) l = ms_test_lower(s);
    const MsPiece *head = &l.work->pieces[l.work->piece_head];
    double flop = 0;
    for (int i = 0; i < head->forward.n; i++) flop += head->forward.op[i].flop;
    if (depth == 1) step_B = head->kept_B - before_B, step_flop = flop - before_flop;
    if (depth > 1) assert_true(head->kept_B - before_B == step_B && flop - before_flop == step_flop);
    before_B = head->kept_B, before_flop = flop;
    assert_close(ms_model_params(s->model).total_mtp - ms_model_params(s->model).total, depth * 11610067968.0, 1e-12);
  }
  assert_close(step_flop, 2.0 * 4096 * 7168 * 129280, 1e-12);
}

/* --- reduction in the switches --------------------------------------------------------------------------------- */

typedef struct {
  double reduce_s, gather_s, exchange_s;
} Collectives;

static double alone_s(const MsCost *cost, MsOpKind kind, MsGroupKind group, double bytes_B) {
  return ms_cost_op(cost, &(MsOp){.kind = kind, .group = group, .message_B = bytes_B}).time_s;
}

static Collectives collectives(MsScenario *s, MsGroupKind group, double bytes_B) {
  g_auto(MsLowered) l = ms_test_lower(s);
  GError *error = NULL;
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  assert_non_null(cost);
  return (Collectives){alone_s(cost, MS_OP_ALL_REDUCE, group, bytes_B), alone_s(cost, MS_OP_ALL_GATHER, group, bytes_B),
                       alone_s(cost, MS_OP_ALL_TO_ALL, group, bytes_B)};
}

static void sharp_reduces_in_the_network(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 256);
  for (double bytes_B = 1e6; bytes_B < 1e10; bytes_B *= 10) {
    s->hardware->sharp = FALSE;
    Collectives off = collectives(s, MS_GROUP_DP, bytes_B);
    s->hardware->sharp = TRUE;
    Collectives on = collectives(s, MS_GROUP_DP, bytes_B);
    assert_true(on.reduce_s <= off.reduce_s);
    if (bytes_B <= 1e9) assert_true(on.reduce_s < off.reduce_s);
    assert_true(on.gather_s == off.gather_s && on.exchange_s == off.exchange_s);
  }
}

/* Without it no rank can be faster than its link lets 2 (n - 1) / n of the message through. */
static void nvls_reduces_in_the_scale_up_switch(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->layout.tp = 8;
  double bytes_B = 4e9;
  assert_true(s->hardware->nvls);
  Collectives on = collectives(s, MS_GROUP_TP, bytes_B);
  s->hardware->nvls = FALSE;
  Collectives off = collectives(s, MS_GROUP_TP, bytes_B);
  assert_true(off.reduce_s >= on.reduce_s && off.reduce_s >= 2 * bytes_B * 7 / 8 / s->hardware->scaleup_Bps);
  assert_true(on.gather_s == off.gather_s && on.exchange_s == off.exchange_s);
}

/* --- contention: two collectives on one link take longer than each alone, none loses bytes --------------------- */

static void collectives_share_a_link(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 64);
  s->layout.ep = 8, s->layout.pp = 2;
  s->training.global_batch_size = 32 * 4;
  g_autoptr(MsResult) apart = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->options.overlap_grad_reduce =
      TRUE; /* gradients cross the network while experts cross NVLink and the pipeline sends */
  g_autoptr(MsResult) beside = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(beside->time.comm_exposed_s[MS_COMM_DP] + beside->time.comm_exposed_s[MS_COMM_EDP] <
              apart->time.comm_exposed_s[MS_COMM_DP] + apart->time.comm_exposed_s[MS_COMM_EDP]);
  assert_true(beside->time.comm_total_s[MS_COMM_DP] >= apart->time.comm_total_s[MS_COMM_DP] * (1 - 1e-9));
  assert_true(beside->step_time_s < apart->step_time_s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_efficient_permutation), cmocka_unit_test(multi_token_prediction_depths),
      cmocka_unit_test(sharp_reduces_in_the_network), cmocka_unit_test(nvls_reduces_in_the_scale_up_switch),
      cmocka_unit_test(collectives_share_a_link),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
