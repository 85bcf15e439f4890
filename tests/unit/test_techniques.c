/* Techniques as switches: each moves the quantities it should and leaves the rest. */
#include "lib/close.h"

#include "describe/framework.h"
#include "describe/module_sets.h"
#include "lib/world.h"
#include "step/pair.h"
#include "step/program.h"
#include "sim/simulate.h"

#include <string.h>

static double parts_sum(const MsTimeParts *t) {
  return t->compute_s + t->exposed_comm_s + t->bubble_s + t->host_s + t->optimizer_s + t->other_s;
}

static void parts_are_the_step(const MsResult *r) {
  for (int i = 0; i < r->stages; i++)
    if (fabs(parts_sum(&r->stage_time[i]) / r->step_time_s - 1) > 1e-9)
      fail_msg("%s, stage %d: parts %.9f of %.9f s", ms_fidelity_words[r->fidelity], i, parts_sum(&r->stage_time[i]),
               r->step_time_s);
}

/* What every run must obey at every fidelity. Returns the full one. */
static MsResult *sound(const MsScenario *s) {
  MsResult *full = ms_test_simulate(s, MS_FIDELITY_FULL);
  g_autoptr(MsResult) bound = ms_test_simulate(s, MS_FIDELITY_BOUND), fast = ms_test_simulate(s, MS_FIDELITY_FAST);
  if (bound->step_time_s > full->step_time_s)
    fail_msg("%s: bound %.6f above full %.6f", ms_schedule_words[s->layout.schedule], bound->step_time_s,
             full->step_time_s);
  if (fabs(fast->step_time_s / full->step_time_s - 1) > 0.15)
    fail_msg("%s: fast %.6f, full %.6f", ms_schedule_words[s->layout.schedule], fast->step_time_s, full->step_time_s);
  parts_are_the_step(full), parts_are_the_step(bound);
  return full;
}

/* --- schedules ------------------------------------------------------------------------------------------------- */

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
    assert_close(r->time.compute_s, compute_s,
                 1e-3); /* the same rows in another order; DualPipe puts two ends on one stage */
    step_s[kind] = r->step_time_s;
    live_B[kind] = r->memory->stage[0].activations_B;
  }
  assert_true(step_s[MS_SCHED_ZB_H1] < step_s[MS_SCHED_1F1B] &&
              step_s[MS_SCHED_ZB_2P] <= step_s[MS_SCHED_ZB_1P] * (1 + 1e-6));
  assert_true(step_s[MS_SCHED_V_HALF] < step_s[MS_SCHED_V_MIN] && step_s[MS_SCHED_ZB_V] < step_s[MS_SCHED_V_HALF]);
  assert_true(live_B[MS_SCHED_V_MIN] < live_B[MS_SCHED_V_HALF] && live_B[MS_SCHED_V_HALF] < live_B[MS_SCHED_ZB_V]);
  assert_true(live_B[MS_SCHED_GPIPE] > live_B[MS_SCHED_1F1B]);
}

static double eager_over_1f1b(int pp, gboolean free_messages) {
  double step_s[2];
  for (int eager = 0; eager < 2; eager++) {
    g_autoptr(MsScenario) s = pipeline(eager ? MS_SCHED_EAGER_1F1B : MS_SCHED_1F1B, pp, 16);
    s->model->vocab_size = 128; /* stages are alike */
    if (free_messages) s->hardware->scaleup_Bps = 1e30;
    MsCurve *curve = ms_curves_own(s->hardware, 0);
    for (int i = 0; free_messages && i < s->hardware->num_curves; i++, curve++) {
      for (int k = 0; !strcmp(curve->op, "p2p") && k < curve->n_segments; k++)
        curve->segment_alpha_s[k] = 0, curve->segment_Bps[k] = 1e30;
    }
    g_autoptr(MsResult) r = sound(s);
    step_s[eager] = r->step_time_s;
  }
  return step_s[1] / step_s[0];
}

/* Its gain is that messages are hidden, and nothing else. */
static void eager_1f1b_hides_messages(void **state) {
  (void)state;
  assert_true(eager_over_1f1b(1, FALSE) == 1);
  assert_close(eager_over_1f1b(4, TRUE), 1, 1e-9);
  double with_messages = eager_over_1f1b(4, FALSE);
  if (!(with_messages < 1 && with_messages > 0.95)) fail_msg("eager over 1f1b %.6f", with_messages);
}

/* Without head and embedding every stage is alike, and the spans are the closed forms of docs/theory/schedules.md with
 * the stage's own F, I and W. */
static void stages_alike_have_the_closed_forms(void **state) {
  (void)state;
  const int p = 4, m = 16;
  for (int kind = MS_SCHED_1F1B; kind <= MS_SCHED_ZB_H2; kind++) {
    g_autoptr(MsScenario) s = pipeline(kind, p, m);
    s->model->vocab_size = 128; /* the ends weigh little */
    g_autoptr(MsResult) r = sound(s);
    double pass = r->time.compute_s / m, share = kind == MS_SCHED_1F1B    ? p - 1.0
                                                 : kind == MS_SCHED_ZB_H1 ? (p - 1) / 3.0
                                                                          : 0.5; /* F + I exceeds 2 W a little */
    for (int i = 0; i < p; i++) pass = MAX(pass, r->stage_time[i].compute_s / m);
    double want = pass * (m + share) + r->time.optimizer_s + r->time.exposed_comm_s;
    if (fabs(r->step_time_s / want - 1) > 0.05)
      fail_msg("%s: %.6f s, closed form %.6f", ms_schedule_words[kind], r->step_time_s, want);
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
    for (int family = 0; family < 4; family++)
      assert_close(r->time.family_s[family], before->time.family_s[family], 0.05);
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

/* MindSpeed's: a checkpointed layer runs forward again in front of its pair, whose crossings are hidden all the same.
 */
static void pairs_of_checkpointed_layers(void **state) {
  (void)state;
  double step_s[2][2], ep_s[2][2];
  for (int overlap = 0; overlap < 2; overlap++)
    for (int full = 0; full < 2; full++) {
      g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "ascend-910b", 32);
      s->layout.pp = 2, s->layout.vpp = 4, s->layout.ep = 8;
      s->training.global_batch_size = 16 * 16;
      s->options.ep_overlap = overlap;
      if (full) s->options.recompute.granularity = MS_RECOMPUTE_FULL;
      g_autoptr(MsResult) r = sound(s);
      step_s[overlap][full] = r->step_time_s, ep_s[overlap][full] = r->time.comm_exposed_s[MS_COMM_EP];
      if (!full || !overlap) continue;
      g_auto(MsLowered) l = ms_test_lower(s);
      for (int i = 0; i < l.work->n_pieces; i++) {
        const MsOpList *list = &l.work->pieces[i].backward;
        int cut[MS_PAIR_NODES + 1], again = 0, crossings = 0;
        while (again < list->n && list->op[again].pass == MS_PASS_RECOMPUTE) again++;
        if (!l.work->pieces[i].is_moe || again == 0) continue;
        ms_pair_cut(list, TRUE, cut);
        assert_true(cut[1] > again);
        for (int k = again; k < cut[1]; k++) crossings += list->op[k].node == MS_NODE_DISPATCH;
        assert_true(crossings > 0);
      }
    }
  assert_true(step_s[1][1] < step_s[0][1] && step_s[1][1] > step_s[1][0]);
  /* of three forward and backward crossings each what runs again stays exposed */
  assert_true(ep_s[1][1] > ep_s[1][0] && ep_s[1][1] < 0.6 * ep_s[0][1]);
}

static gboolean sums_embedding_gradients(MsScheduleKind kind) {
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", -1, "h100-sxm", 32);
  s->layout.pp = 4, s->layout.ep = 8, s->layout.schedule = kind;
  s->layout.pipeline_layout = g_strdup("Et*16|t*16|t*16|t*13mL");
  s->training.global_batch_size = 8 * 16;
  g_auto(MsLowered) l = ms_test_lower(s);
  gboolean found = FALSE;
  for (int stage = 0; stage < 4; stage++) {
    MsStepOps ops;
    ms_work_step_ops(l.work, stage, &ops);
    for (int i = 0; i < ops.after.n; i++) found |= !strcmp(ops.after.op[i].name, "embedding gradients");
    ms_step_ops_clear(&ops);
  }
  return found;
}

/* An MTP block on the last stage has a copy of the embedding, whose gradients are summed. DualPipe has both ends of the
 * model on one device. */
static void both_ends_share_the_embedding(void **state) {
  (void)state;
  assert_true(sums_embedding_gradients(MS_SCHED_1F1B));
  assert_false(sums_embedding_gradients(MS_SCHED_DUALPIPE));
}

/* --- Megatron-FSDP --------------------------------------------------------------------------------------------- */

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

/* Embedding and head are gathered with the first microbatch of a step: 2 bytes of 1.05 G parameters, beside 4 of all
 * and 4 of their gradients with every one. */
static void fsdp_ends_stay(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
  s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
  double dp_s[3];
  for (int i = 0; i < 3; i++) {
    s->training.global_batch_size = 8 * (i + 1);
    g_autoptr(MsResult) full = sound(s);
    g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST);
    assert_close(fast->time.comm_total_s[MS_COMM_DP], full->time.comm_total_s[MS_COMM_DP], 1e-6);
    dp_s[i] = full->time.comm_total_s[MS_COMM_DP];
  }
  double more_s = dp_s[1] - dp_s[0];
  assert_close(dp_s[2] - dp_s[1], more_s, 0.01);
  assert_true(dp_s[0] > 1.02 * more_s && dp_s[0] < 1.06 * more_s);
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

/* --- offload --------------------------------------------------------------------------------------------------- */

static MsScenario *moe_run(void) {
  MsScenario *s = ms_test_run("deepseek-v3", 0, "gb200-nvl72", 64);
  s->model->num_layers = 8;
  g_free(s->model->moe_layer);
  s->model->moe_layer = g_new0(guint8, 8);
  for (int i = 1; i < 8; i++) s->model->moe_layer[i] = 1;
  s->layout.ep = 64;
  s->training.global_batch_size = 256;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
  return s;
}

static double offloaded(const MsResult *r) { return r->time.comm_total_s[MS_COMM_OFFLOAD]; }

static void activation_offload(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  g_autoptr(MsResult) none = sound(s);
  assert_true(offloaded(none) == 0);
  s->options.offload_modules = MS_OM_EXPERT_FC1;
  g_autoptr(MsResult) one = sound(s);
  s->options.offload_modules = MS_OM_EXPERT_FC1 | MS_OM_MOE_ACT;
  g_autoptr(MsResult) two = sound(s);
  /* 2 Tk h bytes per MoE layer and microbatch leave and come back: Tk = 8 x 4096 */
  double bytes = 7.0 * 4 * 2 * 32768 * 7168, wire = 2 * bytes / s->hardware->host_link_Bps;
  assert_true(offloaded(one) > wire && offloaded(one) < 1.25 * wire);
  assert_true(one->memory->stage[0].activations_B < none->memory->stage[0].activations_B);
  assert_true(two->memory->stage[0].activations_B < one->memory->stage[0].activations_B);
  assert_close(none->memory->stage[0].activations_B - one->memory->stage[0].activations_B, bytes / 4, 1e-9);
  assert_close(one->memory->stage[0].between_steps_B, none->memory->stage[0].between_steps_B, 1e-12);
  assert_close(one->time.comm_total_s[MS_COMM_EP], none->time.comm_total_s[MS_COMM_EP], 0.01);
  assert_true(one->step_time_s >= none->step_time_s * 0.999);
  s->hardware->host_link_Bps = 5e9; /* copies take longer than the layers: the streams stall, and the step is theirs */
  g_autoptr(MsResult) slow = sound(s);
  assert_true(slow->step_time_s > 1.5 * two->step_time_s &&
              slow->time.comm_exposed_s[MS_COMM_OFFLOAD] > 0.3 * slow->step_time_s);
}

static void whole_layers_offloaded(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  double before = INFINITY;
  for (int n = 0; n <= 8; n += 4) {
    s->options.cpu_offloading_num_layers = n;
    g_autoptr(MsResult) r = sound(s);
    assert_true(r->memory->stage[0].activations_B < before);
    before = r->memory->stage[0].activations_B;
    assert_true((n > 0) == (offloaded(r) > 0));
  }
}

static void optimizer_offload(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  g_autoptr(MsResult) none = sound(s);
  s->options.optimizer_offload_fraction = 0.5;
  g_autoptr(MsResult) half = sound(s);
  s->options.optimizer_offload_fraction = 1;
  g_autoptr(MsResult) all = sound(s);
  assert_close(half->memory->stage[0].optimizer_B, 0.5 * none->memory->stage[0].optimizer_B, 1e-9);
  assert_true(all->memory->stage[0].optimizer_B == 0);
  assert_close(offloaded(all), 2 * offloaded(half), 0.01);
  assert_true(none->step_time_s < half->step_time_s && half->step_time_s < all->step_time_s);
  assert_close(all->time.compute_s, none->time.compute_s, 0.01);
  s->options.optimizer_offload_fraction = 0;
  s->options.offload_optimizer_states = TRUE;
  g_autoptr(MsResult) states = sound(s);
  assert_true(states->memory->stage[0].optimizer_B == 0); /* masters and moments alike */
  assert_true(offloaded(states) > 0 && states->step_time_s < all->step_time_s);
  s->training.optimizer = MS_OPT_MUON; /* no second moment of a matrix goes there, nor comes back */
  g_autoptr(MsResult) fewer = sound(s);
  assert_true(offloaded(fewer) < 0.75 * offloaded(states));
  s->training.global_batch_size = 64, s->training.seq_length = 1024; /* the update is the peak */
  g_autoptr(MsResult) muon = sound(s);
  s->options.offload_optimizer_states = FALSE;
  g_autoptr(MsResult) there = sound(s);
  const MsStageMemory *m = &muon->memory->stage[0];
  assert_string_equal(m->peak_where, "optimizer");
  assert_close(m->transient_B, there->memory->stage[0].optimizer_B, 1e-12);
}

/* Norms behind attention and MLP read products, which `operators` keeps, or makes again: of a plain MLP only what
 * tensor-parallel ranks have summed is kept for them. */
static void operators_and_norms_behind(void **state) {
  (void)state;
  for (int gated = 0; gated < 2; gated++)
    for (int tp = 1; tp <= 8; tp *= 8) {
      g_autofree char *json = g_strdup_printf(
          "{\"framework\": \"torchtitan\", \"model\": {\"base\": \"llama3-8b\", \"gated\": %s, \"activation\": "
          "\"%s\"}, "
          "\"hardware\": \"h100-sxm\", \"gpus\": 8, \"training\": {\"seq_length\": 8192, \"global_batch_size\": 8}, "
          "\"layout\": {\"tp\": %d}, \"options\": {\"recompute\": {\"granularity\": \"selective\", \"modules\": "
          "[\"operators\"]}}}",
          gated ? "true" : "false", gated ? "silu" : "gelu", tp);
      g_autoptr(MsScenario) s = ms_test_scenario_of(json);
      g_autoptr(MsResult) without = sound(s);
      s->model->post_norm = TRUE;
      g_autoptr(MsResult) with = sound(s);
      double sums = gated || tp == 1 ? 0 : 32.0 * 2 * 8192 / 8 * 4096;
      assert_close(with->memory->stage[0].activations_B, without->memory->stage[0].activations_B + sums, 1e-12);
      assert_true(with->time.compute_s > without->time.compute_s * (gated ? 1.01 : 1.05));
    }
}

/* States that visit the device part by part: all cross the link inside the update, and what leaves alone behind each
 * part grows with the number of parts; one part is there at a time. */
static void states_visit_in_parts(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "ascend-910b", 8);
  double states_s = 12 * ms_model_params(s->model).total / 8 / s->hardware->host_link_Bps, tensors = 32 * 6 + 3;
  s->options.swap_optimizer_times = 1;
  g_autoptr(MsResult) once = sound(s);
  s->options.swap_optimizer_times = 16;
  g_autoptr(MsResult) parts = sound(s);
  assert_true(parts->memory->stage[0].optimizer_B == 0);
  assert_close(offloaded(once), states_s * (1 + 8.0 / tensors), 0.02);
  assert_close(offloaded(parts), states_s * (1 + 16 * 8.0 / tensors), 0.02);
  s->layout.pp = 2, s->options.recompute.granularity = MS_RECOMPUTE_FULL; /* the update is the peak */
  g_autoptr(MsResult) full = sound(s);
  s->options.swap_optimizer_times = 1;
  g_autoptr(MsResult) whole = sound(s);
  assert_true(full->memory->stage[0].peak_B < whole->memory->stage[0].peak_B);
}

/* Optimizer states and activations leave on streams of their own: they share the link, and nobody queues. (In one queue
 * the step with both was 28 % longer than with activations alone, and `fast` a fifth too short.) */
static void states_leave_beside_activations(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "a100-sxm-80g", 8);
  s->model->num_layers = 8;
  s->training.seq_length = 8192;
  s->options.offload_modules = MS_OM_ATTN_NORM | MS_OM_QKV_LINEAR | MS_OM_MLP_NORM;
  g_autoptr(MsResult) activations = sound(s);
  s->options.offload_optimizer_states = TRUE;
  g_autoptr(MsResult) both = sound(s);
  g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST);
  s->options.offload_modules = 0;
  g_autoptr(MsResult) states = sound(s);
  assert_close(fast->step_time_s, both->step_time_s, 0.05);
  assert_close(offloaded(both), offloaded(activations) + offloaded(states), 0.3);
  assert_true(both->step_time_s >= MAX(activations->step_time_s, states->step_time_s));
  assert_true(both->step_time_s < 1.15 * states->step_time_s);
}

static void muon(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  g_autoptr(MsResult) adam = sound(s);
  s->training.optimizer = MS_OPT_MUON;
  g_autoptr(MsResult) r = sound(s);
  assert_true(r->time.optimizer_s > 2 * adam->time.optimizer_s);
  assert_true(r->memory->stage[0].optimizer_B < 0.75 * adam->memory->stage[0].optimizer_B);
  assert_close(r->time.compute_s, adam->time.compute_s, 1e-3);
}

/* --- experts --------------------------------------------------------------------------------------------------- */

static void shared_expert_overlap(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  g_autoptr(MsResult) off = sound(s);
  s->options.moe_shared_expert_overlap = TRUE;
  g_autoptr(MsResult) on = sound(s);
  assert_true(on->step_time_s < off->step_time_s);
  assert_true(off->step_time_s - on->step_time_s <
              off->time.compute_s - on->time.compute_s + 1e-3); /* no more than what left the compute stream */
  assert_close(on->time.comm_total_s[MS_COMM_EP], off->time.comm_total_s[MS_COMM_EP], 0.01);
  assert_close(on->memory->stage[0].peak_B, off->memory->stage[0].peak_B, 0.01);
  s->model->moe_shared_expert_intermediate_size = 0;
  g_autoptr(MsResult) without = sound(s);
  s->options.moe_shared_expert_overlap = FALSE;
  g_autoptr(MsResult) neither = sound(s);
  assert_close(without->step_time_s, neither->step_time_s, 1e-12); /* no shared expert, nothing to overlap */
}

static void paged_stash(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  s->options.dispatcher = MS_DISPATCH_HYBRIDEP;
  s->options.use_transformer_engine_op_fuser = TRUE;
  g_autoptr(MsResult) exact = sound(s);
  s->options.moe_expert_rank_capacity_factor = 1.5;
  g_autoptr(MsResult) budget = sound(s);
  s->options.moe_paged_stash = TRUE;
  g_autoptr(MsResult) paged = sound(s);
  double a = exact->memory->stage[0].activations_B, b = budget->memory->stage[0].activations_B,
         c = paged->memory->stage[0].activations_B;
  assert_close((c - a) / (b - a), 0.2, 1e-6); /* 1.10 of the balanced rows instead of 1.5 */
  s->options.moe_paged_stash_buffer_size_factor_cuda = 1.3;
  g_autoptr(MsResult) roomy = sound(s);
  assert_close((roomy->memory->stage[0].activations_B - a) / (b - a), 0.6, 1e-6);
  s->options.moe_paged_stash_buffer_size_factor_cuda = 4; /* no more than the budget */
  g_autoptr(MsResult) whole = sound(s);
  assert_close(whole->memory->stage[0].activations_B, b, 1e-12);
  assert_close(budget->step_time_s, paged->step_time_s, 1e-12);
  assert_close(budget->time.compute_s, exact->time.compute_s, 1e-3); /* counts on the device: what came is computed */
}

static void fused_experts(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  s->training.precision = MS_MXFP8;
  g_autoptr(MsResult) apart = sound(s);
  s->options.fused_grouped_mlp = TRUE;
  g_autoptr(MsResult) fused = sound(s);
  assert_true(fused->time.family_s[MS_FAMILY_MEMORY] < apart->time.family_s[MS_FAMILY_MEMORY]);
  assert_close(fused->time.family_s[MS_FAMILY_GROUPED], apart->time.family_s[MS_FAMILY_GROUPED], 0.01);
  assert_close(fused->memory->stage[0].activations_B, apart->memory->stage[0].activations_B, 1e-9);
}

static void fp8_attention(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  s->options.fp8_dot_product_attention = TRUE;
  g_autoptr(MsResult) bf16 = sound(s); /* nothing runs in FP8 */
  s->options.fp8_dot_product_attention = FALSE;
  g_autoptr(MsResult) plain = sound(s);
  assert_close(bf16->step_time_s, plain->step_time_s, 1e-12);
  s->training.precision = MS_MXFP8;
  g_autoptr(MsResult) off = sound(s);
  s->options.fp8_dot_product_attention = TRUE;
  g_autoptr(MsResult) on = sound(s);
  assert_true(on->time.family_s[MS_FAMILY_ATTENTION] < off->time.family_s[MS_FAMILY_ATTENTION]);
  assert_true(on->memory->stage[0].activations_B < off->memory->stage[0].activations_B);
  assert_close(on->time.family_s[MS_FAMILY_GROUPED], off->time.family_s[MS_FAMILY_GROUPED], 0.01);
}

static void drawn_routing(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = moe_run();
  g_autoptr(MsResult) balanced = sound(s);
  s->training.routing.kind = MS_ROUTING_ZIPF;
  s->training.routing.seed = 7;
  double before = balanced->time.family_s[MS_FAMILY_GROUPED];
  for (int i = 0; i < 3; i++) {
    s->training.routing.skew = 0.2 + 0.3 * i;
    g_autoptr(MsResult) r = sound(s), again = ms_test_simulate(s, MS_FIDELITY_FULL);
    assert_true(r->step_time_s == again->step_time_s); /* same seed, same draw */
    assert_true(r->time.family_s[MS_FAMILY_GROUPED] > before);
    assert_true(r->memory->stage[0].activations_B > balanced->memory->stage[0].activations_B);
    assert_close(r->time.family_s[MS_FAMILY_ATTENTION], balanced->time.family_s[MS_FAMILY_ATTENTION], 0.01);
    before = r->time.family_s[MS_FAMILY_GROUPED];
  }
  s->training.routing.kind = MS_ROUTING_DIRICHLET;
  s->training.routing.skew = 1e5; /* so many that all experts are alike */
  g_autoptr(MsResult) alike = sound(s);
  assert_close(alike->step_time_s, balanced->step_time_s, 0.03);
  s->training.routing.skew = 1;
  g_autoptr(MsResult) skewed = sound(s);
  assert_true(skewed->step_time_s > alike->step_time_s);
}

/* --- context parallelism: heads inside, ring outside ----------------------------------------------------------- */

static double cp_step(int cp, MsCpComm type, int domain, int *inner) {
  g_autoptr(MsScenario) s = ms_test_run("mixtral-8x7b", 0, "h100-sxm", 16);
  s->layout.cp = cp, s->layout.cp_comm_type = type;
  s->training.seq_length = 32768, s->training.global_batch_size = 16;
  s->hardware->nvlink_domain_gpus = s->hardware->gpus_per_node = domain;
  g_auto(MsLowered) l = ms_test_lower(s);
  *inner = l.layout->cp_inner;
  assert_int_equal(l.layout->group[MS_GROUP_CP_INNER].size, *inner);
  assert_int_equal(l.layout->group[MS_GROUP_CP_OUTER].size, *inner > 1 ? cp / *inner : 1);
  assert_int_equal(l.layout->group[MS_GROUP_CP_INNER].domains, 1);
  for (int kind = MS_GROUP_CP_INNER; kind <= MS_GROUP_CP_OUTER; kind++)
    for (int rank = 0; rank < 16; rank++) {
      int member[16], again[16], n = ms_group_members(l.layout, kind, rank, member, 16);
      assert_int_equal(n, l.layout->group[kind].size);
      for (int i = 0; i < n; i++) { /* every member names the same group */
        assert_int_equal(ms_group_members(l.layout, kind, member[i], again, 16), n);
        assert_memory_equal(member, again, sizeof(int) * (size_t)n);
      }
    }
  g_autoptr(MsResult) r = sound(s);
  return r->step_time_s;
}

static void heads_inside_ring_outside(void **state) {
  (void)state;
  int inner;
  double both = cp_step(8, MS_CP_A2A_P2P, 8, &inner);
  assert_int_equal(inner, 8); /* all in one domain: the heads alone */
  assert_close(both, cp_step(8, MS_CP_A2A, 8, &inner), 1e-12);
  both = cp_step(8, MS_CP_A2A_P2P, 1, &inner);
  assert_int_equal(inner, 1); /* no neighbours in the domain: the ring alone */
  assert_close(both, cp_step(8, MS_CP_P2P, 1, &inner), 1e-12);
  both = cp_step(16, MS_CP_A2A_P2P, 8, &inner);
  assert_int_equal(inner, 8);                            /* 8 KV heads */
  assert_true(both < cp_step(16, MS_CP_P2P, 8, &inner)); /* two steps over the network instead of sixteen */
}

/* Lower-complexity products: nothing where memory is too slow for them, less time where it is not, never more; the
 * workspace counts as a buffer. */
static void lower_complexity_products(void **state) {
  (void)state;
  double step_s[2][2];
  for (int fast = 0; fast < 2; fast++)
    for (int on = 0; on < 2; on++) {
      g_autoptr(MsScenario) s = ms_test_run("llama3-70b", 0, "h100-sxm", 8);
      s->model->num_layers = 8;
      s->layout.tp = 8;
      s->training.seq_length = 16384;
      s->options.lcma = on;
      s->options.lcma_workspace_B = 2e9;
      if (fast) s->hardware->hbm_Bps *= 10;
      g_autoptr(MsResult) r = sound(s);
      step_s[fast][on] = r->step_time_s;
      if (!on) assert_close(r->lcma_growth, 0, 0);
      if (fast && on) {
        assert_true(r->lcma_growth >= 6 && r->lcma_s > 0 && r->lcma_s < r->step_time_s);
        s->options.lcma = FALSE;
        g_autoptr(MsResult) off = ms_test_simulate(s, MS_FIDELITY_FULL);
        assert_close(r->memory->stage[0].buffers_B, off->memory->stage[0].buffers_B + 2e9, 1e-12);
        assert_close(r->model_flop_per_token, off->model_flop_per_token,
                     0); /* the model's FLOP, not what is multiplied */
      }
    }
  assert_true(step_s[0][1] <= step_s[0][0]);
  assert_true(step_s[1][1] < 0.99 * step_s[1][0]);
}

/* --- modules of sets: a row that nothing heeds would be predicted as if it were not there ------------------------- */

static const char *const alike[] = {"deepseek-v3",        "llama3-8b",       "mixtral-8x7b", "deepseek-v4-flash",
                                    "qwen3-next-80b-a3b", "nemotron-3-nano", "gpt-oss-20b"};

enum { PLAIN, PADDED, FUSED, TORCH, N_WAYS };

static MsScenario *on_rack(guint model, int way) {
  MsScenario *s = ms_test_run(alike[model], 0, "gb200-nvl72", 64);
  s->layout.ep = s->model->num_experts > 0 ? 8 : 1;
  if (way == PADDED)
    s->training.routing = (MsRouting){MS_ROUTING_CAPACITY, .capacity_factor = 1, .pad_to_capacity = TRUE};
  if (way == FUSED) s->training.precision = MS_MXFP8, s->options.fused_grouped_mlp = TRUE;
  if (way == TORCH) {
    s->framework = MS_FRAMEWORK_TORCHTITAN;
    s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
    ms_framework_defaults(s->framework, &s->options);
  }
  return s;
}

static gboolean is_allowed(const MsScenario *s) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, &error);
  return layout != NULL;
}

typedef struct {
  const char *const *words;
  guint32 (*take)(MsOptions *options, guint32 module); /* puts it there: with what else it needs */
} Set;
static guint32 recompute(MsOptions *o, guint32 module) {
  o->recompute.granularity = MS_RECOMPUTE_SELECTIVE, o->recompute.modules = module;
  return 0;
}
static guint32 offload(MsOptions *o, guint32 module) {
  guint32 needs = module ? ms_offload_modules[g_bit_nth_lsf(module, -1)].needs : 0;
  o->offload_modules = module | needs;
  return needs;
}
static guint32 capture(MsOptions *o, guint32 module) {
  guint32 needs = module ? ms_cuda_graphs[g_bit_nth_lsf(module, -1)].needs : 0;
  o->cuda_graph_scope = module | needs;
  return needs;
}

static MsResult *result_of(MsScenario *s, const Set *set, guint32 module) {
  set->take(&s->options, module);
  return is_allowed(s) ? ms_test_simulate(s, MS_FIDELITY_FAST) : NULL;
}

/* Beside what it needs, of which none needs more. */
static gboolean is_heeded(MsScenario *s, const Set *set, guint32 module) {
  g_autoptr(MsResult) with = result_of(s, set, module);
  g_autoptr(MsResult) without = with ? result_of(s, set, set->take(&s->options, module)) : NULL;
  return without && (with->step_time_s != without->step_time_s ||
                     with->memory->stage[0].peak_B != without->memory->stage[0].peak_B);
}

static void each_is_heeded(const Set *set) {
  for (int i = 0; set->words[i]; i++) {
    gboolean heeded = FALSE;
    for (int k = 0; k < N_WAYS * (int)G_N_ELEMENTS(alike) && !heeded; k++) {
      g_autoptr(MsScenario) s = on_rack((guint)k / N_WAYS, k % N_WAYS);
      heeded = is_heeded(s, set, 1u << i);
    }
    if (!heeded) fail_msg("%s changes neither time nor memory of any model", set->words[i]);
  }
}

static void every_module_is_heeded(void **state) {
  (void)state;
  each_is_heeded(&(Set){ms_recompute_module_words, recompute});
  each_is_heeded(&(Set){ms_offload_module_words, offload});
  each_is_heeded(&(Set){ms_cuda_graph_words, capture});
}

/* Names of tensors and rows in tables are those that are kept and laid somewhere. */
static void add_names(GHashTable *names, MsScenario *s) {
  g_auto(MsLowered) l = ms_test_lower(s);
  for (int i = 0; i < l.work->n_pieces; i++) {
    const MsPiece *piece = &l.work->pieces[i];
    for (int k = 0; k < piece->n_kept; k++) g_hash_table_add(names, g_strdup(piece->kept[k].name));
    for (int k = 0; k < piece->forward.n; k++) g_hash_table_add(names, g_strdup(piece->forward.op[k].name));
  }
}

static void named_in_tables(GHashTable *names) {
  static const char *const offloaded[] = {
#define MS_OFFLOAD_MODULE(id, word, doc, c1, c2, c3, c4, c5, c6, ...) __VA_ARGS__,
#include "describe/offload_module.def"
#undef MS_OFFLOAD_MODULE
  };
  for (guint i = 0; i < G_N_ELEMENTS(offloaded); i++)
    if (!g_hash_table_contains(names, offloaded[i])) fail_msg("no model keeps \"%s\"", offloaded[i]);
  for (int i = 0; i < ms_n_lora_targets; i++)
    for (int k = 0; k < MS_LORA_ROWS && ms_lora_targets[i].row[k]; k++)
      if (!g_hash_table_contains(names, ms_lora_targets[i].row[k]))
        fail_msg("%s: no model has a row \"%s\"", ms_lora_targets[i].word, ms_lora_targets[i].row[k]);
}

static void every_name_is_one_of_work(void **state) {
  (void)state;
  static const MsAttnBackend backends[] = {MS_ATTN_UNFUSED, MS_ATTN_FUSED, MS_ATTN_FLASH};
  g_autoptr(GHashTable) names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint m = 0; m < G_N_ELEMENTS(alike); m++)
    for (int i = 0; i < (int)G_N_ELEMENTS(backends); i++) {
      g_autoptr(MsScenario) s = on_rack(m, PLAIN);
      s->options.attention_backend = backends[i];
      if (backends[i] == MS_ATTN_FUSED) s->layout.cp = 2, s->layout.cp_comm_type = MS_CP_A2A;
      if (backends[i] == MS_ATTN_FLASH) s->training.micro_batch_size = 2, s->training.global_batch_size = 128;
      if (is_allowed(s)) add_names(names, s);
    }
  g_autoptr(MsScenario) sparse = ms_test_run("deepseek-v3.2", 0, "gb200-nvl72", 64);
  sparse->layout.ep = 8;
  add_names(names, sparse);
  named_in_tables(names);
}

/* FSDP of Llama 3 8B over 64 nodes, short sequences: the more optimizer instances, the shorter the rings of every
 * layer, and the more states each rank updates and sums over the instances. So neither one nor 64 of a node each is
 * best. */
static void instances_trade_rings_for_states(void **state) {
  (void)state;
  double step_s[4], comm_s[4], update_s[4];
  for (int i = 0; i < 4; i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 512);
    s->training.seq_length = 1024, s->options.recompute.granularity = MS_RECOMPUTE_FULL;
    s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS, s->options.num_distributed_optimizer_instances = 1 << 2 * i;
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
    step_s[i] = r->step_time_s, comm_s[i] = r->time.comm_total_s[MS_COMM_DP], update_s[i] = r->time.optimizer_s;
    assert_close(r->memory->stage[0].optimizer_B, 12 * 8030261248.0 / 512 * (1 << 2 * i), 1e-12);
  }
  assert_true(comm_s[0] > 1.5 * comm_s[1] && comm_s[1] > comm_s[2]);
  for (int i = 1; i < 4; i++) assert_true(update_s[i] > update_s[i - 1]);
  assert_true(step_s[1] < 0.7 * step_s[0] && step_s[2] < step_s[3] && step_s[1] < step_s[3]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_module_is_heeded),
      cmocka_unit_test(every_name_is_one_of_work),
      cmocka_unit_test(every_schedule),
      cmocka_unit_test(instances_trade_rings_for_states),
      cmocka_unit_test(lower_complexity_products),
      cmocka_unit_test(eager_1f1b_hides_messages),
      cmocka_unit_test(stages_alike_have_the_closed_forms),
      cmocka_unit_test(split_backward_keeps_everything),
      cmocka_unit_test(dualpipe_holds_two_copies),
      cmocka_unit_test(both_ends_share_the_embedding),
      cmocka_unit_test(fsdp_shards),
      cmocka_unit_test(fsdp_ends_stay),
      cmocka_unit_test(fsdp_of_one_rank_is_nothing),
      cmocka_unit_test(activation_offload),
      cmocka_unit_test(whole_layers_offloaded),
      cmocka_unit_test(optimizer_offload),
      cmocka_unit_test(operators_and_norms_behind),
      cmocka_unit_test(states_visit_in_parts),
      cmocka_unit_test(states_leave_beside_activations),
      cmocka_unit_test(muon),
      cmocka_unit_test(shared_expert_overlap),
      cmocka_unit_test(pairs_of_checkpointed_layers),
      cmocka_unit_test(paged_stash),
      cmocka_unit_test(fused_experts),
      cmocka_unit_test(fp8_attention),
      cmocka_unit_test(drawn_routing),
      cmocka_unit_test(heads_inside_ring_outside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
