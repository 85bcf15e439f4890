/* Techniques as switches: each moves the quantities it should and leaves the rest (issue 4). */
#include "lib/close.h"

#include "lib/world.h"
#include "sim/lower.h"
#include "sim/simulate.h"

#include <string.h>

static MsResult *simulate(const MsScenario *s, MsFidelity fidelity) {
  GError *error = NULL;
  MsResult *r = ms_simulate(s, fidelity, NULL, &error);
  if (!r) fail_msg("%s", error->message);
  return r;
}

static double parts_sum(const MsTimeParts *t) { return t->compute_s + t->exposed_comm_s + t->bubble_s + t->host_s + t->optimizer_s + t->other_s; }

/* What every run must obey at every fidelity. Returns the full one. */
static MsResult *sound(const MsScenario *s) {
  MsResult *full = simulate(s, MS_FIDELITY_FULL);
  g_autoptr(MsResult) bound = simulate(s, MS_FIDELITY_BOUND), fast = simulate(s, MS_FIDELITY_FAST);
  if (bound->step_time_s > full->step_time_s) fail_msg("%s: bound %.6f above full %.6f", ms_schedule_words[s->layout.schedule], bound->step_time_s, full->step_time_s);
  if (fabs(fast->step_time_s / full->step_time_s - 1) > 0.15)
    fail_msg("%s: fast %.6f, full %.6f", ms_schedule_words[s->layout.schedule], fast->step_time_s, full->step_time_s);
  for (int i = 0; i < full->stages; i++)
    if (fabs(parts_sum(&full->stage_time[i]) / full->step_time_s - 1) > 1e-9)
      fail_msg("stage %d: parts %.9f of %.9f s", i, parts_sum(&full->stage_time[i]), full->step_time_s);
  return full;
}

/* --- schedules ------------------------------------------------------------------------------------------------------------- */

static MsScenario *pipeline(MsScheduleKind kind, int pp, int microbatches) {
  MsScenario *s = ms_test_run("gpt-1.5b", 0, "a100-sxm-80g", pp);
  s->model->num_layers = 4 * pp;
  s->layout.pp = pp;
  s->layout.schedule = kind;
  s->training.global_batch_size = microbatches;
  s->training.seq_length = 1024, s->training.micro_batch_size = 1;
  s->options.transformer_impl = MS_IMPL_TE;
  s->hardware->kernel_launch_s = s->hardware->sync_s = 0;
  return s;
}

static void every_schedule(void **state) {
  (void)state;
  double compute_s = 0, step_s[MS_N_SCHEDULES], live_B[MS_N_SCHEDULES];
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++) {
    g_autoptr(MsScenario) s = pipeline(kind, 4, 16);
    g_autoptr(MsResult) r = sound(s);
    if (kind == MS_SCHED_1F1B) compute_s = r->time.compute_s;
    assert_close(r->time.compute_s, compute_s, 1e-3); /* the same rows in another order; DualPipe puts two ends on one stage */
    step_s[kind] = r->step_time_s;
    live_B[kind] = r->memory->stage[0].activations_B;
  }
  assert_true(step_s[MS_SCHED_ZB_H1] < step_s[MS_SCHED_1F1B] && step_s[MS_SCHED_ZB_2P] <= step_s[MS_SCHED_ZB_1P]);
  assert_true(step_s[MS_SCHED_V_HALF] < step_s[MS_SCHED_V_MIN] && step_s[MS_SCHED_ZB_V] < step_s[MS_SCHED_V_HALF]);
  assert_true(live_B[MS_SCHED_V_MIN] < live_B[MS_SCHED_V_HALF] && live_B[MS_SCHED_V_HALF] < live_B[MS_SCHED_ZB_V]);
  assert_true(live_B[MS_SCHED_GPIPE] > live_B[MS_SCHED_1F1B]);
}

/* Without head and embedding every stage is alike, and the spans are the closed forms of schedules.md with the stage's own F, I and W. */
static void stages_alike_have_the_closed_forms(void **state) {
  (void)state;
  const int p = 4, m = 16;
  for (int kind = MS_SCHED_1F1B; kind <= MS_SCHED_ZB_H2; kind++) {
    g_autoptr(MsScenario) s = pipeline(kind, p, m);
    s->model->vocab_size = 128; /* the ends weigh little */
    g_autoptr(MsResult) r = sound(s);
    double pass = r->time.compute_s / m, share = kind == MS_SCHED_1F1B ? p - 1.0 : kind == MS_SCHED_ZB_H1 ? (p - 1) / 3.0 : 0.5; /* F + I exceeds 2 W a little */
    for (int i = 0; i < p; i++) pass = MAX(pass, r->stage_time[i].compute_s / m);
    double want = pass * (m + share) + r->time.optimizer_s + r->time.exposed_comm_s;
    if (fabs(r->step_time_s / want - 1) > 0.05) fail_msg("%s: %.6f s, closed form %.6f", ms_schedule_words[kind], r->step_time_s, want);
  }
}

static void split_backward_keeps_everything(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 32);
  s->layout.tp = 2, s->layout.pp = 4, s->layout.ep = 4;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
  s->training.global_batch_size = 4 * 16;
  g_autoptr(MsResult) before = sound(s);
  for (int kind = MS_SCHED_ZB_H1; kind <= MS_SCHED_DUALPIPEV; kind++) {
    s->layout.schedule = kind;
    g_autoptr(MsResult) r = sound(s);
    if (kind == MS_SCHED_DUALPIPE) continue;
    for (int family = 0; family < 4; family++) assert_close(r->time.family_s[family], before->time.family_s[family], 0.05);
    assert_close(r->time.comm_total_s[MS_COMM_EP], before->time.comm_total_s[MS_COMM_EP], 0.05);
    assert_close(r->time.comm_total_s[MS_COMM_TP], before->time.comm_total_s[MS_COMM_TP], 0.05);
  }
}

/* DualPipe holds every stage twice; its optimizer shards are half as large. */
static void dualpipe_holds_two_copies(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 32);
  s->layout.pp = 4, s->layout.ep = 8;
  s->training.global_batch_size = 8 * 16;
  g_autoptr(MsResult) one = sound(s);
  s->layout.schedule = MS_SCHED_DUALPIPE;
  g_autoptr(MsResult) two = sound(s);
  double p1 = 0, p2 = 0, o1 = 0, o2 = 0;
  for (int i = 0; i < 4; i++) {
    p1 += one->memory->stage[i].parameters_B, p2 += two->memory->stage[i].parameters_B;
    o1 += one->memory->stage[i].optimizer_B, o2 += two->memory->stage[i].optimizer_B;
  }
  assert_close(p2, 2 * p1, 1e-9);
  assert_close(o2, o1, 1e-9);
  s->options.ep_overlap = TRUE;
  g_autoptr(MsResult) overlapped = sound(s);
  assert_true(overlapped->time.comm_exposed_s[MS_COMM_EP] < two->time.comm_exposed_s[MS_COMM_EP]);
}

/* --- Megatron-FSDP ---------------------------------------------------------------------------------------------------------- */

static void fsdp_shards(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 32);
  s->layout.ep = 8;
  s->training.global_batch_size = 64;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
  MsResult *level[MS_FSDP_OPTIM_GRADS_PARAMS + 1];
  for (int i = 0; i <= MS_FSDP_OPTIM_GRADS_PARAMS; i++) {
    s->options.fsdp = i;
    level[i] = sound(s);
    assert_close(level[i]->memory->stage[0].optimizer_B, level[0]->memory->stage[0].optimizer_B, 1e-12);
    assert_close(level[i]->memory->stage[0].activations_B, level[0]->memory->stage[0].activations_B, 1e-12);
    assert_close(level[i]->time.comm_total_s[MS_COMM_EP], level[0]->time.comm_total_s[MS_COMM_EP], 0.05);
  }
  assert_close(level[1]->step_time_s, level[0]->step_time_s, 1e-12); /* optim is the distributed optimizer */
  assert_true(level[2]->memory->stage[0].gradients_B < 0.3 * level[1]->memory->stage[0].gradients_B);
  assert_close(level[2]->memory->stage[0].parameters_B, level[1]->memory->stage[0].parameters_B, 1e-12);
  assert_true(level[3]->memory->stage[0].parameters_B < 0.3 * level[2]->memory->stage[0].parameters_B);
  double dp[4];
  for (int i = 0; i < 4; i++) dp[i] = level[i]->time.comm_total_s[MS_COMM_EDP];
  assert_true(dp[2] > 1.2 * dp[1] && dp[3] > 1.5 * dp[2]);
  for (int i = 0; i < 4; i++) ms_result_free(level[i]);
}

static void fsdp_of_one_rank_is_nothing(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = pipeline(MS_SCHED_1F1B, 1, 8);
  g_autoptr(MsResult) without = sound(s);
  s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
  g_autoptr(MsResult) with = sound(s);
  assert_close(with->step_time_s, without->step_time_s, 1e-3);
  assert_true(with->time.comm_total_s[MS_COMM_DP] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule),
      cmocka_unit_test(stages_alike_have_the_closed_forms),
      cmocka_unit_test(split_backward_keeps_everything),
      cmocka_unit_test(dualpipe_holds_two_copies),
      cmocka_unit_test(fsdp_shards),
      cmocka_unit_test(fsdp_of_one_rank_is_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
