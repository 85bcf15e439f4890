/* The three fidelities on random scenarios over every key: `bound` is above neither of the others, `fast` is near
 * `full`, and a faster machine is not slower. The draws are fixed; with MOESIM_SOAK_S they go on for so many seconds
 * from the seed MOESIM_SEED. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/plan_requests.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/kept.h"
#include "base/stats.h"
#include "base/units.h"
#include "bound/cycle.h"
#include "sim/graph.h"
#include "sim/simulate.h"

enum { MOST_TASKS = 60000 };

static gboolean small_enough(const MsScenario *s) {
  char why[192];
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, NULL) : NULL;
  g_autoptr(MsCost) cost = work ? ms_cost_new(s, layout, NULL) : NULL;
  g_autoptr(MsProgram) program = cost ? ms_program_new(work, cost) : NULL;
  g_autoptr(MsSchedule) schedule = program ? ms_program_schedule(program, why, sizeof why) : NULL;
  return schedule && ms_program_tasks(program, schedule) <= MOST_TASKS;
}

static void wrong(const MsScenario *s, const char *what, double is_s, double than_s) {
  g_autofree char *text = ms_scenario_text(s, 0);
  fail_msg("seed %" G_GUINT64_FORMAT ": %s: %.12g s against %.12g s\n%s", ms_soak_seed(24), what, is_s, than_s, text);
}

/* A search that does not want to know what is above a limit is told nothing wrong of what is not: with the step itself
 * as the limit, and a little below it. */
static void limits_hold(const MsScenario *s, double full_s) {
  for (int i = 0; i < 2; i++) {
    double limit_s = full_s * (i == 0 ? 1 : 0.98), step_s = 0;
    MsScreen screen;
    assert_true(ms_screen(s, NULL, &(MsWorth){limit_s, INFINITY}, &screen));
    if (screen.step_time_lower_s > full_s) wrong(s, "screened above full", screen.step_time_lower_s, full_s);
    assert_true(ms_step_time(s, NULL, limit_s, &step_s, NULL));
    if (step_s != full_s && (i == 0 || !isinf(step_s))) wrong(s, "with a limit", step_s, full_s);
  }
}

static void parts_add_up(const MsScenario *s, const MsResult *r) {
  for (int i = 0; i < r->stages; i++) {
    const MsStageMemory *m = &r->memory->stage[i];
    const double part_B[] = {m->parameters_B, m->gradients_B,   m->optimizer_B,
                             m->buffers_B,    m->activations_B, m->transient_B};
    double sum_B = 0;
    for (guint k = 0; k < G_N_ELEMENTS(part_B); k++) {
      if (part_B[k] < 0) wrong(s, "less than nothing is kept", part_B[k], 0);
      sum_B += part_B[k];
    }
    if (fabs(sum_B - m->peak_B) > 1e-9 * m->peak_B) wrong(s, "parts of memory", sum_B, m->peak_B);
    double slots_s = 0;
    for (int kind = 0; kind < MS_N_SLOTS; kind++) slots_s += r->passes[i].total_s[kind];
    double all_s = slots_s + r->passes[i].optimizer_s + r->passes[i].bubble_s;
    if (all_s < r->step_time_s * (1 - 1e-9)) wrong(s, "passes are not the step", all_s, r->step_time_s);
    if (MIN(r->passes[i].optimizer_s, r->passes[i].bubble_s) < 0) wrong(s, "a pass takes less than nothing", 0, 0);
  }
}

/* How far `fast` is off, where the scenario runs. */
static void compare(const MsScenario *s, GArray *off) {
  g_autoptr(MsResult) bound = ms_simulate(s, MS_FIDELITY_BOUND, NULL, NULL);
  if (!bound || !small_enough(s)) return;
  g_autoptr(MsResult) fast = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  assert_true(fast && full);
  if (bound->step_time_s > full->step_time_s) wrong(s, "bound above full", bound->step_time_s, full->step_time_s);
  if (bound->step_time_s > fast->step_time_s) wrong(s, "bound above fast", bound->step_time_s, fast->step_time_s);
  for (int i = 0; i < full->stages; i++)
    if (fast->memory->stage[i].peak_B != full->memory->stage[i].peak_B) wrong(s, "memory differs", 0, 0);
  parts_add_up(s, full), parts_add_up(s, fast);
  limits_hold(s, full->step_time_s);
  double error = fabs(fast->step_time_s / full->step_time_s - 1);
  g_array_append_val(off, error);
}

/* The rows that a weight gradient ends with, a gather beside the compute of the next one, are waited for by none. */
static void limits_of_weight_gradients(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"model\": \"gpt3-175b\", \"hardware\": \"a100-sxm-80g\", \"gpus\": 32, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": 64}, \"layout\": {\"tp\": 2, \"pp\": 4, \"schedule\": \"zb-2p\"}, \"options\": "
      "{\"overlap_grad_reduce\": false, \"overlap_param_gather\": false, \"optimizer_post_validation\": false}}");
  g_autoptr(MsResult) full = ms_test_simulate(s, MS_FIDELITY_FULL);
  limits_hold(s, full->step_time_s);
}

/* --- turns that are kept --- */

/* Changes one thing that turns follow from; not every scenario can run with it. */
static void change(MsScenario *s, int what) {
  MsHardware *h = s->hardware;
  double *const rates[] = {&h->scaleup_Bps, &h->nic_Bps, &h->hbm_Bps, &h->kernel_launch_s, &h->sync_s};
  const int n = G_N_ELEMENTS(rates);
  if (what < n) *rates[what] *= 2;
  else if (what == n) h->sm_count /= 2;
  else if (what == n + 1) s->options.ep_overlap = !s->options.ep_overlap;
  else if (what == n + 2) s->options.delay_wgrad = !s->options.delay_wgrad;
  else if (what == n + 3) s->options.overlap_p2p_comm = !s->options.overlap_p2p_comm;
  else s->training.global_batch_size *= 2;
}
enum { CHANGES = 10 };

static gboolean same_results(const MsResult *a, const MsResult *b) {
  size_t stages = (size_t)a->stages;
  return a->step_time_s == b->step_time_s && a->events == b->events &&
         !memcmp(a->stage_time, b->stage_time, stages * sizeof *a->stage_time) &&
         !memcmp(a->passes, b->passes, stages * sizeof *a->passes) && !memcmp(a->pass_s, b->pass_s, sizeof a->pass_s);
}

/* The prediction is the same to the bit whatever ran before it. Returns whether it can run. */
static gboolean follows_from_nothing_before(const MsScenario *s) {
  g_autoptr(MsResult) after = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  if (!after) return FALSE;
  ms_kept_allow(FALSE);
  g_autoptr(MsResult) alone = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  ms_kept_allow(TRUE);
  if (!same_results(after, alone)) wrong(s, "it depends on what ran before", after->step_time_s, alone->step_time_s);
  return TRUE;
}

static void what_is_kept_changes_nothing(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(32);
  int draws = 0, runs = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(160, 2000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    if (!ms_model_finish(s->model, NULL, "", NULL) || !small_enough(s)) continue;
    for (int i = 0; i < CHANGES; i++) {
      g_autoptr(MsResult) first = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
      g_autoptr(MsScenario) other = ms_scenario_copy(s, FALSE);
      change(other, i);
      runs += first && follows_from_nothing_before(other);
    }
  }
  print_message("%d changed runs of %d draws\n", runs, draws);
  assert_true(runs >= ms_by_tier(50, 100));
}

/* --- turns that are left out --- */

static void same_figures(const MsScenario *s, const MsResult *all, const MsResult *some) {
  if (all->step_time_s != some->step_time_s || all->step_time_lower_s != some->step_time_lower_s)
    wrong(s, "turns are left out that are not alike", some->step_time_s, all->step_time_s);
  for (int i = 0; i < all->stages; i++) {
    const double *of_all = (const double *)&all->stage_time[i], *of_some = (const double *)&some->stage_time[i];
    for (gsize k = 0; k < sizeof *all->stage_time / sizeof(double); k++)
      if (fabs(of_all[k] - of_some[k]) > 1e-9 * all->step_time_s)
        wrong(s, "a part of the step differs", of_some[k], of_all[k]);
    if (!all->passes) continue;
    for (int kind = 0; kind < MS_N_SLOTS; kind++)
      if (all->passes[i].count[kind] != some->passes[i].count[kind] ||
          fabs(all->passes[i].total_s[kind] - some->passes[i].total_s[kind]) > 1e-9 * all->step_time_s)
        wrong(s, "passes differ", some->passes[i].total_s[kind], all->passes[i].total_s[kind]);
  }
}

static double screened_s(const MsScenario *s, double limit_s) {
  MsScreen screen;
  assert_true(ms_screen(s, NULL, &(MsWorth){limit_s, INFINITY}, &screen));
  return screen.step_time_lower_s;
}

/* Returns how many turns were left out. */
static gsize all_and_some(const MsScenario *s) {
  ms_cycle_allow(FALSE);
  g_autoptr(MsResult) all = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  double limit_s = all ? 0.9 * all->step_time_lower_s : 0, screened[2] = {0};
  if (all) screened[0] = screened_s(s, limit_s);
  ms_cycle_allow(TRUE);
  gsize before = ms_cycle_left_out();
  g_autoptr(MsResult) some = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  if (!all) return 0;
  same_figures(s, all, some);
  screened[1] = screened_s(s, limit_s);
  for (int i = 0; i < 2; i++) /* of a step above the limit any bound above it is as good (ms_screen) */
    if (!(screened[i] > limit_s && screened[i] <= all->step_time_lower_s))
      wrong(s, "screened with a limit", screened[i], all->step_time_lower_s);
  return ms_cycle_left_out() - before;
}

static gsize left_out_of(const char *name, MsFidelity fidelity) {
  g_autofree char *file = g_strdup_printf(MS_SOURCE_DIR "/scenarios/%s.json", name);
  g_autoptr(MsScenario) s = ms_scenario_load(file, NULL);
  gsize before = ms_cycle_left_out();
  g_autoptr(MsResult) r = ms_simulate(s, fidelity, NULL, NULL);
  assert_non_null(r);
  return ms_cycle_left_out() - before;
}

/* The first moment that a bound keeps is behind what still shows the warm-up: the next one is like it. */
static void moments_are_alike_at_once(void **state) {
  (void)state;
  static const struct {
    const char *file;
    gsize left_out;
  } runs[] = {{"run-llama3-70b-h100-64", 13 * 80 * 8},
              {"run-deepseek-v3-gb200-256", 13 * 32 * 4},
              {"run-deepseek-v3-2048-pp16", 97 * 16 * 2}};
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++)
    assert_int_equal(left_out_of(runs[i].file, MS_FIDELITY_BOUND), runs[i].left_out);
}

/* What this run does repeats itself every other microbatch. */
static void moments_are_alike_every_other_period(void **state) {
  (void)state;
  const char *run = "published/dgxc/DG-dsv3-gb200-bf16-128";
  assert_int_equal(left_out_of(run, MS_FIDELITY_FAST) - left_out_of(run, MS_FIDELITY_BOUND), 12 * 8 * 4);
}

static void turns_that_are_left_out_change_nothing(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(33);
  int draws = 0, runs = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(450, 6000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    if (!ms_model_finish(s->model, NULL, "", NULL) || s->pools.shares > 0) continue;
    s->training.global_batch_size *= g_rand_int_range(rand, 1, 9);
    runs += all_and_some(s) > 0;
  }
  print_message("turns of %d of %d draws were left out\n", runs, draws);
  assert_true(runs >= ms_by_tier(25, 100));
}

static void fast_is_near_full(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(26);
  g_autoptr(GArray) off = g_array_new(FALSE, FALSE, sizeof(double));
  int draws = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(700, 6000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    if (ms_model_finish(s->model, NULL, "", NULL)) compare(s, off);
  }
  double *error = (double *)(void *)off->data;
  guint n = off->len, far = 0;
  for (guint i = 0; i < n; i++) far += error[i] > 0.1;
  print_message("%u of %d draws run; fast against full: median %.2f %%, p95 %.2f %%, worst %.1f %%\n", n, draws,
                100 * ms_quantile(error, n, 0.5), 100 * ms_quantile(error, n, 0.95), 100 * ms_quantile(error, n, 1));
  assert_true(n >= (guint)ms_by_tier(30, 100));
  assert_true(ms_quantile(error, n, 0.5) <= 0.02);
  assert_true(far <= 0.01 * n);
}

/* Long pipelines on clusters, many of them of schedules that split backwards or whose steps overlap. */
static void of_clusters(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(43);
  g_autoptr(GArray) off = g_array_new(FALSE, FALSE, sizeof(double));
  int draws = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(200, 2500)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw_large(rand);
    if (ms_model_finish(s->model, NULL, "", NULL)) compare(s, off);
  }
  double *error = (double *)(void *)off->data;
  print_message("%u of %d draws of clusters run; fast against full: median %.2f %%, worst %.1f %%\n", off->len, draws,
                100 * ms_quantile(error, off->len, 0.5), 100 * ms_quantile(error, off->len, 1));
  assert_true((int)off->len >= ms_by_tier(14, 300));
  assert_true(ms_quantile(error, off->len, 0.5) <= 0.02);
}

/* Models of layers of more kinds, which draws do not have. */
static void of_hybrids(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(45);
  g_autoptr(GArray) off = g_array_new(FALSE, FALSE, sizeof(double));
  int draws = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(400, 4000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw_hybrid(rand);
    if (ms_model_finish(s->model, NULL, "", NULL)) compare(s, off);
  }
  double *error = (double *)(void *)off->data;
  print_message("%u of %d draws of hybrids run; fast against full: median %.2f %%, worst %.1f %%\n", off->len, draws,
                100 * ms_quantile(error, off->len, 0.5), 100 * ms_quantile(error, off->len, 1));
  assert_true((int)off->len >= ms_by_tier(10, 150));
  assert_true(ms_quantile(error, off->len, 0.5) <= 0.02);
}

/* Optimizers in several instances, which draws rarely have: plain ones and those of FSDP, beside everything else. */
static void of_optimizer_instances(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(41);
  g_autoptr(GArray) off = g_array_new(FALSE, FALSE, sizeof(double));
  int draws = 0, fsdp = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(700, 5000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    MsOptions *o = &s->options;
    o->num_distributed_optimizer_instances = 1 << g_rand_int_range(rand, 1, 4);
    o->distributed_optimizer = TRUE;
    o->fsdp = (MsFsdp)g_rand_int_range(rand, MS_FSDP_NONE, MS_FSDP_OPTIM_GRADS_PARAMS + 1);
    if (o->fsdp == MS_FSDP_OPTIM_GRADS_PARAMS) o->outer_dp_sharding_strategy = (MsOuterDp)g_rand_int_range(rand, 0, 2);
    guint before = off->len;
    if (ms_model_finish(s->model, NULL, "", NULL)) compare(s, off);
    fsdp += off->len > before && o->fsdp >= MS_FSDP_OPTIM_GRADS;
  }
  double *error = (double *)(void *)off->data;
  print_message("%u of %d draws run, %d with FSDP of gradients; fast against full: median %.2f %%, worst %.1f %%\n",
                off->len, draws, fsdp, 100 * ms_quantile(error, off->len, 0.5), 100 * ms_quantile(error, off->len, 1));
  assert_true(fsdp >= ms_by_tier(5, 40) && (int)off->len >= ms_by_tier(15, 120));
  assert_true(ms_quantile(error, off->len, 0.5) <= 0.02);
}

/* Adapters beside frozen weights, which draws do not have, half of them stepped by Muon. */
static void of_adapters(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(42);
  g_autoptr(GArray) off = g_array_new(FALSE, FALSE, sizeof(double));
  int draws = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(400, 4000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    s->training.lora.rank = 8 << g_rand_int_range(rand, 0, 3);
    s->training.lora.targets = 0;
    for (int i = 0; i < ms_n_lora_targets; i++)
      if (ms_lora_target_exists(&ms_lora_targets[i], s->model) && g_rand_boolean(rand))
        s->training.lora.targets |= 1u << i;
    s->training.optimizer = g_rand_boolean(rand) ? MS_OPT_MUON : MS_OPT_ADAM;
    s->options.muon_tp_mode = g_rand_int_range(rand, 0, 3), s->model->mtp_num_layers = 0;
    if (ms_model_finish(s->model, NULL, "", NULL)) compare(s, off);
  }
  double *error = (double *)(void *)off->data;
  print_message("%u of %d draws run with adapters; fast against full: worst %.1f %%\n", off->len, draws,
                100 * ms_quantile(error, off->len, 1));
  assert_true((int)off->len >= ms_by_tier(5, 60));
  assert_true(ms_quantile(error, off->len, 0.5) <= 0.02);
}

/* One microbatch, whose activations go to the host meanwhile: no stage waits for that, as it would in steady state. */
static void fast_is_full_of_few_turns(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"model\": {\"base\": \"deepseek-v2-lite\", \"num_layers\": 8, \"moe_layer_freq\": \"[1]*8\"}, "
      "\"hardware\": \"ascend-910b2\", \"gpus\": 128, \"training\": {\"seq_length\": 32768, "
      "\"micro_batch_size\": 2, \"global_batch_size\": 2}, \"layout\": {\"tp\": 8, \"cp\": 2, \"pp\": 8, "
      "\"etp\": 2, \"cp_comm_type\": \"a2a\", \"schedule\": \"zb-h1\"}, "
      "\"options\": {\"offload_modules\": [\"core_attn\", \"mlp_norm\"]}}");
  g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST), full = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(fast->step_time_s == full->step_time_s && fast->time.bubble_s == full->time.bubble_s);
}

/* What goes to the host goes on beside the slots behind it, of a split backward beside both halves. Of few microbatches
 * all are run. */
static void fast_offloads_beside_both_halves(void **state) {
  (void)state;
  static const struct {
    int batch;
    double within;
  } runs[] = {{32, 0}, {33, 0.03}};
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autofree char *text = g_strdup_printf(
        "{\"model\": {\"base\": \"qwen3-30b-a3b\", \"num_layers\": 16}, \"hardware\": \"a100-sxm-80g\", \"gpus\": 8, "
        "\"training\": {\"seq_length\": 2048, \"global_batch_size\": %d}, \"layout\": {\"pp\": 8, "
        "\"schedule\": \"zb-h1\"}, \"options\": {\"dispatcher\": \"alltoall\", \"offload_modules\": "
        "[\"core_attn\", \"mlp_norm\", \"expert_fc1\", \"attn_norm\", \"attn_proj\"]}}",
        runs[i].batch);
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST), full = ms_test_simulate(s, MS_FIDELITY_FULL);
    assert_close(fast->step_time_s, full->step_time_s, runs[i].within);
  }
}

/* A host that waits for a message is not late: of a pipeline whose kernels are long almost nothing is the host's. */
static void fast_waits_for_what_full_does(void **state) {
  (void)state;
  for (int vpp = 1; vpp <= 2; vpp++) {
    g_autofree char *text = g_strdup_printf(
        "{\"model\": \"llama3-70b\", \"hardware\": \"h100-sxm\", \"gpus\": 32, \"training\": {\"seq_length\": 8192, "
        "\"global_batch_size\": 8}, \"layout\": {\"tp\": 8, \"pp\": 4, \"vpp\": %d}, "
        "\"options\": {\"overlap_p2p_comm\": false}}",
        vpp);
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST), full = ms_test_simulate(s, MS_FIDELITY_FULL);
    double step_s = full->step_time_s;
    assert_true(full->time.host_s < 0.01 * step_s && full->time.bubble_s > 0.1 * step_s);
    assert_true(fabs(fast->time.host_s - full->time.host_s) < 0.01 * step_s);
    assert_true(fabs(fast->time.bubble_s - full->time.bubble_s) < 0.02 * step_s);
  }
}

/* Messages that nothing hides are slower while parameters and gradients move: 5 % of this step. */
static void fast_sends_beside_collectives(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"model\": \"gpt3-175b\", \"hardware\": \"h100-sxm\", \"gpus\": 4096, \"training\": {\"seq_length\": 2048, "
      "\"global_batch_size\": 1024, \"precision\": \"fp8-delayed\"}, \"layout\": {\"tp\": 4, \"pp\": 8, \"vpp\": 12}}");
  g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST), full = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_close(fast->step_time_s, full->step_time_s, 0.025);
}

/* Messages that are on the way all the time take three times as long beside the exchanges of the next turn; so do both
 * of a pair beside each other. Reductions hold up the exchanges behind them, and these the layers. */
static void fast_sends_beside_exchanges(void **state) {
  (void)state;
  static const struct {
    const char *rest;
    double within;
  } runs[] = {
      {"\"hyper_connections\": {\"num_residual_streams\": 4}}, \"hardware\": \"b200-sxm\", \"gpus\": 32, "
       "\"training\": {\"seq_length\": 2048, \"micro_batch_size\": 3, \"global_batch_size\": 192}, "
       "\"layout\": {\"pp\": 2, \"ep\": 16, \"pipeline_layout\": \"Et|(tt|)*46tL\"}, "
       "\"options\": {\"ep_overlap\": true}}",
       0.015},
      {"\"hyper_connections\": {\"num_residual_streams\": 4}}, \"hardware\": {\"base\": \"gb200-nvl72\", "
       "\"fabric\": {\"kind\": \"dragonfly+\", \"pod_nodes\": 36, \"oversubscription\": 4}}, \"gpus\": 256, "
       "\"training\": {\"seq_length\": 2048, \"micro_batch_size\": 3, \"global_batch_size\": 1536}, "
       "\"layout\": {\"pp\": 4, \"ep\": 16, \"pipeline_layout\": \"Ettt|(t*4|)*22tttL\"}, "
       "\"options\": {\"ep_overlap\": true}}",
       0.005},
      {"\"num_layers\": 16}, \"hardware\": \"b200-sxm\", \"gpus\": 64, "
       "\"training\": {\"seq_length\": 2048, \"micro_batch_size\": 2, \"global_batch_size\": 768, "
       "\"precision\": \"fp8-blockwise\"}, \"layout\": {\"pp\": 2, \"vpp\": 4, \"ep\": 16}, "
       "\"options\": {\"ep_overlap\": true, \"delay_wgrad\": true, \"fsdp\": \"optim-grads\"}}",
       0.07},
  };
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++) {
    g_autofree char *text = g_strdup_printf("{\"model\": {\"base\": \"qwen3-235b-a22b\", %s", runs[i].rest);
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST), full = ms_test_simulate(s, MS_FIDELITY_FULL);
    assert_close(fast->step_time_s, full->step_time_s, runs[i].within);
  }
}

/* The host issues a message once, where it is what decides too. */
static void fast_issues_messages_once(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"model\": {\"base\": \"gpt-tiny\", \"num_layers\": 16}, \"hardware\": \"b200-sxm\", \"gpus\": 4, "
      "\"training\": {\"seq_length\": 1024, \"global_batch_size\": 32}, \"layout\": {\"pp\": 4, \"vpp\": 4}, "
      "\"options\": {\"cuda_graph_scope\": [\"layer\"]}}");
  g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST), full = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_close(fast->step_time_s, full->step_time_s, 0.03);
}

static void no_part_of_run_is_negative(const char *scenario, MsFidelity fidelity) {
  g_autoptr(MsScenario) s = ms_test_scenario_of(scenario);
  g_autoptr(MsResult) r = ms_test_simulate(s, fidelity);
  for (int i = 0; i < r->stages; i++) {
    const MsTimeParts *t = &r->stage_time[i];
    const MsPasses *p = &r->passes[i];
    double least = MIN(MIN(t->bubble_s, t->host_s), MIN(t->exposed_comm_s, t->other_s));
    if (least < -1e-9) fail_msg("stage %d has a part of %g s", i, least);
    if (p->bubble_s < 0 || p->optimizer_s < 0) fail_msg("stage %d: %g, %g s", i, p->bubble_s, p->optimizer_s);
  }
}

/* What a stage gains by beginning its next step early was its host's where the host is what it waits for; states that
 * go to the host go on beside the slots of that step. */
static void no_part_is_negative(void **state) {
  (void)state;
  static const char *const runs[] = {
      "{\"model\": \"gpt-tiny\", \"hardware\": \"gb200-nvl72\", \"gpus\": 4, \"training\": {\"seq_length\": 1024, "
      "\"global_batch_size\": 16}, \"layout\": {\"pp\": 4, \"schedule\": \"zb-h1\"}}",
      "{\"model\": {\"base\": \"glm-4.5-air\", \"num_layers\": 16, \"moe_layer_freq\": \"[0]*1+[1]*15\", "
      "\"mtp_num_layers\": 0}, \"hardware\": \"a100-sxm-40g\", \"gpus\": 32, \"training\": {\"seq_length\": 1024, "
      "\"global_batch_size\": 8}, \"layout\": {\"tp\": 8, \"pp\": 4, \"schedule\": \"zb-2p\"}, \"options\": "
      "{\"offload_optimizer_states\": true, \"dispatcher\": \"alltoall\"}}"};
  for (guint i = 0; i < G_N_ELEMENTS(runs); i++)
    for (int fidelity = MS_FIDELITY_FAST; fidelity <= MS_FIDELITY_FULL; fidelity++)
      no_part_of_run_is_negative(runs[i], (MsFidelity)fidelity);
}

/* --- a faster machine --- */

typedef struct {
  MsTime alone, shared; /* the step with nothing shared, and as it is; 0: it cannot run */
} Times;

static gboolean same_task(const MsGraph *a, const MsGraph *b, guint32 i) {
  const MsTask *x = ms_graph_task(a, i), *y = ms_graph_task(b, i);
  const guint32 *x_wait, *y_wait;
  guint n = ms_graph_waits(a, i, &x_wait);
  return x->device == y->device && x->stream == y->stream && x->use == y->use && x->host_sync == y->host_sync &&
         x->kind == y->kind && x->sms == y->sms && x->duration == y->duration && x->launch == y->launch &&
         x->tag == y->tag && ms_graph_waits(b, i, &y_wait) == n && !memcmp(x_wait, y_wait, n * sizeof *x_wait);
}

/* Of every slot its first task; behind the last of a stage the end of all. (transfer full) */
static guint32 *slot_bases(const MsSchedule *schedule) {
  guint32 *base = g_new0(guint32, schedule->stages + 1);
  for (int i = 0; i < schedule->stages; i++) base[i + 1] = base[i] + (guint32)schedule->n[i] + 1;
  return base;
}

/* Rounds that are laid down as those before them, and left out, change nothing. */
static void compare_rounds(const MsScenario *s, const MsProgram *program, const MsSchedule *schedule) {
  g_autofree guint32 *base = slot_bases(schedule);
  gsize slots = base[schedule->stages];
  g_autofree guint32 *slot = g_new0(guint32, slots), *own = g_new0(guint32, slots);
  g_autoptr(MsGraph) some = ms_lower_full(program, schedule, slot, base);
  g_autoptr(MsTrajectory) left = ms_engine_events(some, NULL);
  ms_engine_allow_rounds(FALSE);
  g_autoptr(MsGraph) all = ms_lower_full(program, schedule, own, base);
  g_autoptr(MsTrajectory) run = ms_engine_events(all, NULL);
  ms_engine_allow_rounds(TRUE);
  gsize n = run->n;
  gboolean same = left->n == n && !memcmp(slot, own, slots * sizeof *slot);
  for (guint32 i = 0; same && i < n; i++) same = same_task(some, all, i);
  if (!same) wrong(s, "a round is not laid down as the one before", (double)left->n, (double)n);
  if (memcmp(run->start, left->start, n * sizeof *run->start) || memcmp(run->end, left->end, n * sizeof *run->end) ||
      memcmp(run->bound_by, left->bound_by, n * sizeof *run->bound_by) || run->events != left->events)
    wrong(s, "rounds are left out that are not alike", (double)left->makespan, (double)run->makespan);
}

/* Rounds that are not laid down change nothing in what a step takes, nor where its time goes. How many were not. */
static guint32 compare_folded(const MsScenario *s) {
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, NULL) : NULL;
  g_autoptr(MsCost) cost = work ? ms_cost_new(s, layout, NULL) : NULL;
  g_autoptr(MsProgram) program = cost ? ms_program_new(work, cost) : NULL;
  g_autoptr(MsSchedule) schedule = program ? ms_program_schedule(program, NULL, 0) : NULL;
  if (!schedule || program->skewed || ms_program_tasks(program, schedule) > 10.0 * MOST_TASKS) return 0;
  g_autofree guint32 *base = slot_bases(schedule);
  gsize slots = base[schedule->stages];
  g_autofree guint32 *slot = g_new0(guint32, slots), *own = g_new0(guint32, slots);
  g_autoptr(MsGraph) folded = ms_lower_folded(program, schedule, slot, base);
  if (ms_graph_left_out(folded) == 0) return 0;
  g_autoptr(MsGraph) all = ms_lower_full(program, schedule, own, base);
  if (memcmp(slot, own, slots * sizeof *slot)) wrong(s, "a slot of a folded step begins with another task", 0, 0);
  MsDetail *detail = NULL;
  g_autoptr(MsResult) fewer = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  g_autoptr(MsResult) whole = ms_simulate(s, MS_FIDELITY_FULL, &detail, NULL);
  ms_detail_free(detail);
  if (!same_results(fewer, whole)) wrong(s, "a folded step is another", fewer->step_time_s, whole->step_time_s);
  return ms_graph_left_out(folded);
}

static void rounds_that_are_not_laid_down_change_nothing(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(31);
  int draws = 0, folded = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(150, 1000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    s->training.global_batch_size *= 1 << g_rand_int_range(rand, 3, 7);
    if (ms_model_finish(s->model, NULL, "", NULL)) folded += compare_folded(s) > 0;
  }
  print_message("%d of %d draws were folded\n", folded, draws);
  assert_true(folded >= draws / 40);
}

static Times times_of(const MsScenario *s) {
  char why[192];
  Times t = {0};
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, NULL) : NULL;
  g_autoptr(MsCost) cost = work ? ms_cost_new(s, layout, NULL) : NULL;
  g_autoptr(MsProgram) program = cost ? ms_program_new(work, cost) : NULL;
  g_autoptr(MsSchedule) schedule = program ? ms_program_schedule(program, why, sizeof why) : NULL;
  if (!schedule || ms_schedule_row(s->layout.schedule)->costs == MS_COSTS_DECIDE ||
      ms_program_tasks(program, schedule) > MOST_TASKS)
    return t;
  g_autofree MsTimeParts *stage = g_new0(MsTimeParts, layout->pp);
  g_autoptr(MsGraph) graph = ms_lower_full(program, schedule, NULL, NULL);
  g_autoptr(MsTrajectory) alone = ms_engine_relax(graph), shared = ms_engine_events(graph, NULL);
  compare_rounds(s, program, schedule);
  t.alone = ms_lower_period(program, graph, alone, stage), t.shared = ms_lower_period(program, graph, shared, stage);
  return t;
}

static MsSchedule *order_of(const MsScenario *s) {
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = ms_work_new(s, layout, NULL);
  g_autoptr(MsCost) cost = ms_cost_new(s, layout, NULL);
  g_autoptr(MsProgram) program = ms_program_new(work, cost);
  return ms_program_schedule(program, NULL, 0);
}

static gboolean same_order(const MsSchedule *a, const MsSchedule *b) {
  for (int k = 0; k < a->stages; k++)
    if (a->n[k] != b->n[k] || memcmp(a->slot[k], b->slot[k], sizeof *a->slot[k] * a->n[k]) != 0) return FALSE;
  return TRUE;
}

/* Orders that costs decide come from times of passes that wait for the host: a memory twice as fast changes nothing
 * where the host launches too slowly, and an order where it does not. */
static void a_slow_host_decides_the_order(void **state) {
  (void)state;
  for (int slow = 0; slow < 2; slow++) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 0, "gb200-nvl72", 64);
    s->model->num_layers = 16, s->training.global_batch_size = 8;
    s->layout.tp = 2, s->layout.cp = 4, s->layout.pp = 4, s->layout.ep = 2, s->layout.schedule = MS_SCHED_ZB_2P;
    s->hardware->kernel_launch_s = slow ? 20e-6 : 0;
    g_autoptr(MsSchedule) before = order_of(s);
    s->hardware->hbm_Bps *= 2;
    g_autoptr(MsSchedule) after = order_of(s);
    assert_int_equal(same_order(before, after), slow);
  }
}

static double full_s(const MsScenario *s) {
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
  return r->step_time_s;
}

/* With nothing shared the step is a maximum of sums of durations: no longer where each is no longer. Rows that share
 * may get into each other's way when others end sooner (docs/theory/schedules.md 9), by no more than sharing costs. */
static double faster(MsScenario *s, guint rate) {
  MsHardware *h = s->hardware;
  double *const rates[] = {&h->scaleup_Bps, &h->nic_Bps, &h->hbm_Bps, &h->host_link_Bps, &h->peak_bf16_flops};
  double *own = rates[rate % G_N_ELEMENTS(rates)], was = *own;
  if (!(was > 0)) return 0;
  Times slow = times_of(s);
  *own = 2 * was;
  Times fast = slow.shared > 0 ? times_of(s) : slow;
  *own = was;
  if (slow.shared == 0 || fast.shared == 0) return 0;
  if (fast.alone > slow.alone)
    wrong(s, "a doubled rate makes the unshared step longer", (double)fast.alone / MS_PS_PER_S,
          (double)slow.alone / MS_PS_PER_S);
  double longer = (double)fast.shared / (double)slow.shared - 1;
  if (longer > 0.01)
    wrong(s, "a doubled rate makes the step longer", (double)fast.shared / MS_PS_PER_S,
          (double)slow.shared / MS_PS_PER_S);
  return longer;
}

/* Once slower with another memory: the reduction of a chunk began under the message that had left beside the kernel
 * that scales its gradients. With another network: only what a stage waits for its first input was left out of
 * its step, whatever its end waited for. */
static void these_were_slower(void **state) {
  (void)state;
  const char *texts[] = {
      "{\"model\": {\"base\": \"llama3-8b\", \"num_layers\": 16}, \"hardware\": \"mi350x\", \"gpus\": 512, "
      "\"training\": {\"seq_length\": 2048, \"micro_batch_size\": 2, \"global_batch_size\": 16}, "
      "\"layout\": {\"tp\": 2, \"cp\": 4, \"pp\": 8, \"cp_comm_type\": \"a2a+p2p\"}}",
      "{\"model\": {\"base\": \"qwen3-235b-a22b\", \"num_layers\": 16}, \"hardware\": \"h200-nvl\", \"gpus\": 32, "
      "\"training\": {\"seq_length\": 1024, \"micro_batch_size\": 1, \"global_batch_size\": 4}, "
      "\"layout\": {\"tp\": 2, \"cp\": 2, \"pp\": 8, \"vpp\": 2, \"schedule\": \"zb-v\", \"cp_comm_type\": \"a2a\"}}"};
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
    g_autoptr(MsScenario) s = ms_test_scenario_of(texts[i]);
    MsHardware *h = s->hardware;
    double *rates[] = {&h->hbm_Bps, &h->nic_Bps, &h->peak_bf16_flops};
    double before_s = full_s(s);
    for (guint k = 0; k < G_N_ELEMENTS(rates); k++) {
      *rates[k] *= 2;
      double after_s = full_s(s);
      *rates[k] /= 2;
      if (after_s > before_s * (1 + 1e-6)) fail_msg("run %u, rate %u: %g s, before %g s", i, k, after_s, before_s);
    }
  }
}

/* y[0] = max(x[0] + 3, x[1] + 1), y[1] = max(x[0] + 6, x[1] + 2): the cycle through both takes 7 for two steps. */
static void two_stages(gconstpointer unit, const MsTime *x, MsTime *y) {
  MsTime u = *(const MsTime *)unit;
  y[0] = MAX(x[0] + 3 * u, x[1] + u), y[1] = MAX(x[0] + 6 * u, x[1] + 2 * u);
}

static void steps_follow_one_another(void **state) {
  (void)state;
  const MsTime unit = 1000000, end[] = {3 * unit, 6 * unit};
  assert_int_equal(ms_lower_period_of(2, end, two_stages, &unit), 7 * unit / 2);
}

static void a_faster_machine_is_not_slower(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(16);
  double most = 0;
  int draws = 0, runs = 0, slower = 0;
  gsize before = ms_engine_left_out();
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(450, 3500)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    guint rate = g_rand_int(rand);
    if (!ms_model_finish(s->model, NULL, "", NULL)) continue;
    double longer = faster(s, rate);
    runs += longer != 0, slower += longer > 0.0005, most = MAX(most, longer);
  }
  print_message("%d of %d draws run with a doubled rate; %d are slower by more than 0.05 %%, at most %.3f %%\n", runs,
                draws, slower, 100 * most);
  assert_true(runs >= ms_by_tier(12, 40));
  print_message("%" G_GSIZE_FORMAT " tasks of their rounds were left out\n", ms_engine_left_out() - before);
  assert_true(slower <= 0.01 * runs);
  assert_true(ms_engine_left_out() - before > (gsize)ms_by_tier(12000, 50000));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_kept_changes_nothing),
                                     cmocka_unit_test(moments_are_alike_at_once),
                                     cmocka_unit_test(moments_are_alike_every_other_period),
                                     cmocka_unit_test(turns_that_are_left_out_change_nothing),
                                     cmocka_unit_test(rounds_that_are_not_laid_down_change_nothing),
                                     cmocka_unit_test(limits_of_weight_gradients),
                                     cmocka_unit_test(fast_is_near_full),
                                     cmocka_unit_test(of_clusters),
                                     cmocka_unit_test(of_hybrids),
                                     cmocka_unit_test(of_optimizer_instances),
                                     cmocka_unit_test(of_adapters),
                                     cmocka_unit_test(fast_is_full_of_few_turns),
                                     cmocka_unit_test(fast_offloads_beside_both_halves),
                                     cmocka_unit_test(fast_waits_for_what_full_does),
                                     cmocka_unit_test(fast_sends_beside_collectives),
                                     cmocka_unit_test(a_slow_host_decides_the_order),
                                     cmocka_unit_test(fast_issues_messages_once),
                                     cmocka_unit_test(fast_sends_beside_exchanges),
                                     cmocka_unit_test(fast_sends_beside_exchanges),
                                     cmocka_unit_test(no_part_is_negative),
                                     cmocka_unit_test(these_were_slower),
                                     cmocka_unit_test(steps_follow_one_another),
                                     cmocka_unit_test(a_faster_machine_is_not_slower)};
  return cmocka_run_group_tests_name("fidelities", tests, NULL, NULL);
}
