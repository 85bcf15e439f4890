/* Machines of several kinds in one job: pools that are alike predict as one machine to the bit, the fidelities keep
 * their order where they differ, and of a made-up pair, one machine twice as fast as the other and messages that take
 * no time, the planner finds the cut that is known to be best. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/plan_requests.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "sim/simulate.h"
#include "sim/graph.h"

#include <string.h>

static gboolean chance(GRand *rand, int percent) { return g_rand_int_range(rand, 0, 100) < percent; }

static MsScenario *mixed_of(const char *json) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "test.json", &error);
  MsScenario *s = doc ? ms_scenario_from_doc_mixed(doc, &error) : NULL;
  if (!s) fail_msg("%s\nin %s", error->message, json);
  return s;
}

/* --- alike ----------------------------------------------------------------------------------------------------- */

/* The last `of` GPUs are of a copy of the machine. */
static MsScenario *split_off(const MsScenario *s, int of) {
  MsScenario *mixed = ms_scenario_copy(s, FALSE);
  mixed->pools =
      (MsPools){.n = 2, .pool = {{mixed->hardware, NULL, s->gpus - of}, {ms_hardware_copy(s->hardware), NULL, of}}};
  return mixed;
}

/* Groups of a stage lie as in a job of the pool's own GPUs: 32 of a domain of 72 share it, whatever ranks 64 to 95
 * would cross. */
static void a_pool_is_measured_by_its_own_ranks(void **state) {
  (void)state;
  static const struct {
    const char *machine;
    int gpus, stages;
  } pools[] = {{"gb200-nvl72", 32, 1}, {"gb300-nvl72", 224, 7}};
#define TASK                                                                                              \
  "\"model\": {\"base\": \"qwen3-235b-a22b\", \"num_layers\": 56}, \"training\": {\"seq_length\": 4096, " \
  "\"global_batch_size\": 256}, \"layout\": {\"ep\": 32, \"pp\": %d}"
  g_autofree char *text = g_strdup_printf("{\"pools\": [{\"hardware\": \"gb200-nvl72\", \"gpus\": 32}, {\"hardware\": "
                                          "\"gb300-nvl72\", \"gpus\": 224}], " TASK "}",
                                          8);
  g_autoptr(MsScenario) mixed = mixed_of(text);
  MsRefusal refusal;
  g_autoptr(MsLayout) layout = ms_layout_new(mixed, &refusal);
  if (!layout) fail_msg("%s", refusal.why);
  assert_int_equal(layout->of_pool[0].group[MS_GROUP_EP].domains, 1);
  for (guint i = 0; i < G_N_ELEMENTS(pools); i++) {
    g_autofree char *alone = g_strdup_printf("{\"hardware\": \"%s\", \"gpus\": %d, " TASK "}", pools[i].machine,
                                             pools[i].gpus, pools[i].stages);
    g_autoptr(MsScenario) one = ms_test_scenario_of(alone);
    g_autoptr(MsLayout) own = ms_layout_new(one, &refusal);
    if (!own) fail_msg("%s", refusal.why);
    for (int kind = 0; kind < MS_N_GROUPS; kind++)
      if (!ms_group_spans_stages((MsGroupKind)kind))
        assert_memory_equal(&layout->of_pool[i].group[kind], &own->group[kind], sizeof(MsGroup));
  }
}

/* Of a pipeline of two stages or more in the usual order, some that are behind. */
static MsScenario *draw_split(GRand *rand) {
  g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
  if (!ms_model_finish(s->model, NULL, "", NULL)) return NULL;
  s->layout.order = MS_ORDER_DP_PP, s->cluster.expected = FALSE;
  s->hardware->fabric.kind = MS_FABRIC_NONE;
  MsLayoutSpec *l = &s->layout;
  if (l->pp == 1) l->pp = 2 << g_rand_int_range(rand, 0, 2), s->gpus *= l->pp;
  int pp = l->pp, dp = MAX(1, s->gpus / (l->tp * l->cp * pp));
  if (chance(rand, 80)) { /* what most layouts with a pipeline are refused by */
    g_clear_pointer(&l->pipeline_layout, g_free);
    l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
    l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
    l->dp = l->edp = MS_NULL_INT;
    s->training.global_batch_size = s->training.micro_batch_size * dp * pp * g_rand_int_range(rand, 1, 3);
    s->options.cpu_offloading_num_layers = 0, s->options.hybrid_context_parallel = FALSE;
  }
  if (s->gpus % pp != 0 || s->hardware->serial) return NULL;
  return split_off(s, s->gpus / pp * g_rand_int_range(rand, 1, pp));
}

static gboolean small_enough(const MsScenario *s) {
  char why[192];
  g_autoptr(MsLayout) layout = ms_layout_new(s, NULL);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, NULL) : NULL;
  g_autoptr(MsCost) cost = work ? ms_cost_new(s, layout, NULL) : NULL;
  g_autoptr(MsProgram) program = cost ? ms_program_new(work, cost) : NULL;
  g_autoptr(MsSchedule) schedule = program ? ms_program_schedule(program, why, sizeof why) : NULL;
  return schedule && ms_program_tasks(program, schedule) <= 20000;
}

/* All groups lie in both pools as they do in the job of one machine, and messages cross nodes anyway. */
static gboolean lies_the_same(const MsScenario *plain, const MsScenario *mixed) {
  g_autoptr(MsLayout) a = ms_layout_new(plain, NULL), b = ms_layout_new(mixed, NULL);
  if (!a || !b || a->group[MS_GROUP_PP].domains < 2) return FALSE;
  for (int i = 0; i < a->pp; i++) {
    int to = (i + 1) % a->pp, pool = ms_layout_pool(b, i);
    gboolean crosses = ms_layout_pool(b, to) != pool || ms_layout_message_crosses(&b->of_pool[pool], i, to);
    if (ms_layout_message_crosses(a, i, to) != crosses) return FALSE;
  }
  for (int i = 0; i < b->n_pools; i++)
    if (memcmp(a->group, b->of_pool[i].group, sizeof a->group) || a->cp_inner != b->of_pool[i].cp_inner) return FALSE;
  return TRUE;
}

/* Events of `fast` are of slots that differ, and those of another machine count apart. */
static void assert_same(const MsScenario *mixed, const MsResult *a, const MsResult *b) {
  g_autofree char *text = NULL;
  if (a->step_time_s != b->step_time_s || a->step_time_lower_s != b->step_time_lower_s ||
      fabs(a->mfu / b->mfu - 1) > 1e-14 /* of a mean peak */ ||
      (a->fidelity != MS_FIDELITY_FAST && a->events != b->events) || a->band != b->band ||
      memcmp(&a->time, &b->time, sizeof a->time) != 0)
    fail_msg("at %s %.15g s as one machine, %.15g s as two alike\n%s", ms_fidelity_words[a->fidelity], a->step_time_s,
             b->step_time_s, text = ms_scenario_text(mixed, 0));
  for (int i = 0; i < a->memory->stages; i++) assert_true(a->memory->stage[i].device_B == b->memory->stage[i].device_B);
}

/* At every fidelity; how many there are. */
static int same_predictions(const MsScenario *plain, const MsScenario *mixed) {
  int compared = 0;
  for (MsFidelity f = MS_FIDELITY_BOUND; f <= MS_FIDELITY_FULL; f++) {
    g_autoptr(MsResult) a = ms_simulate(plain, f, NULL, NULL), b = ms_simulate(mixed, f, NULL, NULL);
    assert_true(!a == !b);
    if (a) assert_same(mixed, a, b);
    compared += a != NULL;
  }
  return compared;
}

static void alike_is_one_machine(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(61);
  int compared = 0;
  for (int i = 0, n = ms_by_tier(400, 8000); i < n; i++) {
    g_autoptr(MsScenario) mixed = draw_split(rand);
    if (!mixed) continue;
    g_autoptr(MsScenario) plain = ms_scenario_copy(mixed, TRUE);
    plain->pools.n = 0;
    if (!lies_the_same(plain, mixed) || !small_enough(plain)) continue;
    compared += same_predictions(plain, mixed);
  }
  print_message("%d predictions the same\n", compared);
  assert_true(compared >= ms_by_tier(30, 600));
}

/* Pools of the same machine side by side are one, and one pool is the plain scenario. */
static void pools_of_one_kind_are_joined(void **state) {
  (void)state;
  static const char rest[] =
      "\"model\": \"llama3-8b\", \"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, "
      "\"layout\": {\"pp\": 4}";
  g_autofree char *one = g_strdup_printf("{\"hardware\": \"h100-sxm\", \"gpus\": 16, %s}", rest),
                  *three =
                      g_strdup_printf("{\"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 4}, {\"hardware\": "
                                      "\"h100-sxm\", \"gpus\": 4}, {\"hardware\": \"h100-sxm\", \"gpus\": 8}], %s}",
                                      rest),
                  *two = g_strdup_printf("{\"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 8}, {\"hardware\": "
                                         "\"a100-sxm-80g\", \"gpus\": 4}, {\"hardware\": \"a100-sxm-80g\", \"gpus\": "
                                         "4}], %s}",
                                         rest);
  g_autoptr(MsScenario) plain = mixed_of(one);
  g_autoptr(MsScenario) joined = mixed_of(three);
  g_autoptr(MsScenario) mixed = mixed_of(two);
  assert_int_equal(joined->pools.n, 0);
  assert_int_equal(joined->gpus, 16);
  g_autoptr(MsResult) a = ms_test_simulate(plain, MS_FIDELITY_FULL), b = ms_test_simulate(joined, MS_FIDELITY_FULL);
  assert_same(joined, a, b);
  assert_int_equal(mixed->pools.n, 2);
  assert_int_equal(mixed->pools.pool[1].gpus, 8);
  g_autofree char *text = ms_scenario_text(mixed, 0);
  g_autoptr(MsScenario) again = mixed_of(text);
  g_autofree char *twice = ms_scenario_text(again, 0);
  assert_string_equal(text, twice);
}

/* --- different ------------------------------------------------------------------------------------------------- */

/* Another machine in the second pool. */
static void make_other(GRand *rand, MsHardware *h) {
  double *const rate[] = {&h->scaleup_Bps,     &h->nic_Bps, &h->hbm_Bps, &h->peak_bf16_flops,
                          &h->kernel_launch_s, &h->hbm_B,   &h->sync_s,  &h->sustained_derate};
  for (guint i = 0; i < G_N_ELEMENTS(rate); i++)
    if (chance(rand, 60)) *rate[i] *= g_rand_double_range(rand, 0.3, 1);
  if (chance(rand, 40)) h->sm_count = (int)(h->sm_count * g_rand_double_range(rand, 0.4, 1));
  if (chance(rand, 30)) h->gpus_per_node = h->nvlink_domain_gpus = 4;
}

static void fidelities_keep_their_order(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(62);
  int run = 0, draws = 0, far = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(450, 12000)); draws++) {
    g_autoptr(MsScenario) s = draw_split(rand);
    if (!s) continue;
    make_other(rand, s->pools.pool[1].hardware);
    g_autoptr(MsResult) bound = ms_simulate(s, MS_FIDELITY_BOUND, NULL, NULL);
    if (!bound || !small_enough(s)) continue;
    g_autoptr(MsResult) fast = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
    g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
    assert_true(fast && full);
    if (bound->step_time_s > full->step_time_s || bound->step_time_s > fast->step_time_s) {
      g_autofree char *text = ms_scenario_text(s, 0);
      fail_msg("seed %" G_GUINT64_FORMAT ": bound %.12g s, fast %.12g s, full %.12g s\n%s", ms_soak_seed(62),
               bound->step_time_s, fast->step_time_s, full->step_time_s, text);
    }
    double gap = 0;
    for (int i = 0; i < full->n_gap; i++) gap += full->gap[i].fraction;
    if (full->n_gap > 0) assert_close(gap, 1, 1e-9);
    far += fabs(fast->step_time_s / full->step_time_s - 1) > 0.1;
    run++;
  }
  print_message("%d of %d draws run, %d of them with fast more than 10 %% off\n", run, draws, far);
  assert_true(run >= ms_by_tier(30, 600));
  assert_true(far <= 0.03 * run);
}

/* --- an optimum that is known ---------------------------------------------------------------------------------- */

enum { LAYERS = 12 };

static char *machine_of(double speed, double memory_B, int gpus) {
  return g_strdup_printf(
      "{\"hardware\": {\"name\": \"speed %g\", \"peak_bf16_flops\": %g, \"hbm_B\": %g, \"hbm_Bps\": %g, "
      "\"sm_count\": 100, \"gpus_per_node\": 8, \"nvlink_domain_gpus\": 8, \"scaleup_Bps\": 1e11, \"nic_Bps\": 1e10, "
      "\"kernel_launch_s\": 0, \"sync_s\": 0, \"graph_launch_s\": 0}, \"gpus\": %d}",
      speed, speed * 1e14, memory_B, speed * 1e12, gpus);
}

/* A request of pools of `gpus` each, so fast, for twelve layers and next to no vocabulary; memory_B: of the first. */
static char *pair(double first, double second, int gpus, int pp, double memory_B) {
  g_autofree char *a = machine_of(first, memory_B, gpus), *b = machine_of(second, 1e12, gpus);
  return g_strdup_printf("{\"name\": \"pair\", \"pools\": [%s, %s], \"model\": {\"base\": \"llama3-8b\", "
                         "\"num_layers\": %d, \"vocab_size\": 1024}, \"training\": {\"seq_length\": 4096, "
                         "\"global_batch_size\": 32}, \"layout\": {\"tp\": 1, \"cp\": 1, \"pp\": %d, \"vpp\": 1}, "
                         "\"plan\": {\"top\": 3}}",
                         a, b, LAYERS, pp);
}

static MsRequest *request_of(const char *json) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "pair", &error);
  g_autoptr(GPtrArray) all = doc ? ms_requests_from_doc(doc, &error) : NULL;
  if (!all) fail_msg("%s", error->message);
  assert_int_equal(all->len, 1);
  MsRequest *r = g_ptr_array_steal_index(all, 0);
  double *const nothing[] = {&r->base->laws.default_gemm_launch_s, &r->base->laws.default_attention_launch_s,
                             &r->base->laws.default_memory_launch_s, &r->base->laws.default_ring_step_s,
                             &r->base->laws.default_p2p_alpha_s};
  for (guint i = 0; i < G_N_ELEMENTS(nothing); i++) *nothing[i] = 0;
  return r;
}

/* Messages take no time. */
static MsRequest *pair_request(const char *json) {
  MsRequest *r = request_of(json);
  for (int i = 0; i < r->base->pools.n; i++)
    r->base->pools.pool[i].hardware->scaleup_Bps = r->base->pools.pool[i].hardware->nic_Bps = 1e18;
  return r;
}

static MsPlan *plan_of(const MsRequest *request, gboolean prune, gboolean branch) {
  GError *error = NULL;
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.prune = prune, options.branch = branch, options.top = 3;
  MsPlan *plan = ms_plan(request, &options, &error);
  if (!plan) fail_msg("%s", error->message);
  return plan;
}

/* Every cut of the layers from stage `k` on; the least step. */
static double by_trying_all(MsScenario *s, int *counts, int k, int left, double limit_B) {
  double best = INFINITY;
  int pp = s->layout.pp;
  if (k < pp - 1) {
    for (counts[k] = k > 0; counts[k] <= left; counts[k]++) {
      double own = by_trying_all(s, counts, k + 1, left - counts[k], limit_B);
      best = MIN(best, own);
    }
    return best;
  }
  GString *text = g_string_new("E");
  counts[k] = left;
  for (int i = 0; i < pp; i++) {
    for (int j = 0; j < counts[i]; j++) g_string_append_c(text, 't');
    g_string_append_c(text, i + 1 < pp ? '|' : 'L');
  }
  g_free(s->layout.pipeline_layout);
  s->layout.pipeline_layout = g_string_free(text, FALSE);
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
  return r->memory->stage[0].device_B <= limit_B ? r->step_time_s : INFINITY;
}

static void assert_optimum(double first, double second, int gpus, int pp, const char *cut) {
  g_autofree char *text = pair(first, second, gpus, pp, 1e12);
  g_autoptr(MsRequest) request = pair_request(text);
  g_autoptr(MsScenario) s = ms_scenario_copy(request->base, TRUE);
  int counts[8];
  double best_s = by_trying_all(s, counts, 0, LAYERS, INFINITY);
  for (int way = 0; way < 3; way++) {
    g_autoptr(MsPlan) plan = plan_of(request, way != 1, way == 2);
    const MsPlanEntry *winner = &plan->best[0];
    assert_true(plan->n_best > 0);
    if (cut) assert_string_equal(winner->scenario->layout.pipeline_layout, cut);
    assert_close(winner->result->step_time_s, best_s, 1e-12);
  }
}

static void the_known_optimum_is_found(void **state) {
  (void)state;
  assert_optimum(1, 2, 1, 2, "Et*4|t*8L");
  if (!ms_by_tier(0, 1)) return;
  assert_optimum(2, 1, 1, 2, "Et*8|t*4L");
  assert_optimum(1, 3, 1, 2, "Ettt|t*9L");
  assert_optimum(2, 1, 2, 4, "Et*4|t*4|tt|ttL");
}

/* What would be fastest does not fit onto the first machine: fewer layers stand there than by time, as many as fit into
 * one of the cuts between that and one by memory. */
static void layers_are_cut_to_fit(void **state) {
  (void)state;
  double limit_B = 30e9;
  g_autofree char *text = pair(2, 1, 1, 2, limit_B);
  g_autoptr(MsRequest) request = pair_request(text);
  g_autoptr(MsScenario) s = ms_scenario_copy(request->base, TRUE);
  int counts[8];
  double free_s = by_trying_all(s, counts, 0, LAYERS, INFINITY),
         fits_s = by_trying_all(s, counts, 0, LAYERS, 0.94 * limit_B);
  assert_true(fits_s > free_s * 1.05 && !isinf(fits_s));
  g_autoptr(MsPlan) plan = plan_of(request, TRUE, FALSE), all = plan_of(request, FALSE, FALSE);
  assert_true(plan->n_best > 0);
  const MsResult *winner = plan->best[0].result;
  assert_true(winner->feasible && winner->memory->stage[0].device_B <= 0.94 * limit_B);
  assert_close(winner->step_time_s, fits_s, 1e-12);
  print_message("%s: %.4g s, %.4g s with unlimited memory, %.4g s the best that fits\n",
                plan->best[0].scenario->layout.pipeline_layout, winner->step_time_s, free_s, fits_s);
  assert_close(all->best[0].result->step_time_s, winner->step_time_s, 0);
}

/* --- replicas of several machines -------------------------------------------------------------------------------- */

/* The first of `of` parts of the GPUs on each of two copies of the machine: whole replicas, with their part of the
 * batch.
 */
static MsScenario *share_out(const MsScenario *s, int part, int of) {
  MsScenario *mixed = ms_scenario_copy(s, FALSE);
  int gpus = s->gpus / of * part, batch = s->training.global_batch_size / of * part;
  mixed->pools =
      (MsPools){.shares = 2,
                .pool = {{mixed->hardware, NULL, gpus, batch},
                         {ms_hardware_copy(s->hardware), NULL, s->gpus - gpus, s->training.global_batch_size - batch}}};
  return mixed;
}

/* Groups of replicas cross nodes anyway, and every machine has the same share: what one machine predicts. */
/* Of a pool of replicas every message counts as one between domains (layout/resolve.c). */
static gboolean crosses_everywhere(const MsLayout *l) {
  for (int i = 0; i < l->pp; i++)
    if (l->group[MS_GROUP_PP].domains > 1 && !ms_layout_message_crosses(l, i, (i + 1) % l->pp)) return FALSE;
  return TRUE;
}

static void alike_replicas_are_one_machine(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(64);
  int compared = 0;
  for (int i = 0, n = ms_by_tier(1200, 24000); i < n; i++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    if (!ms_model_finish(s->model, NULL, "", NULL)) continue;
    s->layout.order = MS_ORDER_PP_DP, s->cluster.expected = FALSE, s->hardware->fabric.kind = MS_FABRIC_NONE;
    int of = g_rand_int_range(rand, 2, 5);
    s->gpus *= of, s->training.global_batch_size *= of;
    if (s->hardware->serial) continue;
    g_autoptr(MsScenario) mixed = share_out(s, g_rand_int_range(rand, 1, of), of);
    g_autoptr(MsLayout) plain = ms_layout_new(s, NULL), own = ms_layout_new(mixed, NULL);
    if (!plain || !own || memcmp(plain->group, own->group, sizeof own->group) != 0 ||
        memcmp(plain->group, own->beside[1].group, sizeof own->group) != 0 || !crosses_everywhere(plain) ||
        !small_enough(s))
      continue;
    compared += same_predictions(s, mixed);
  }
  print_message("%d predictions the same\n", compared);
  assert_true(compared >= ms_by_tier(30, 600));
}

/* Pools of `first` and `second` GPUs share a batch of 24, in no more than the axes that are given. */
static char *shared(double fast, double slow, const int gpus[2], const char *batch, const char *layout) {
  g_autofree char *a = machine_of(fast, 1e12, gpus[0]), *b = machine_of(slow, 1e12, gpus[1]);
  a[strlen(a) - 1] = b[strlen(b) - 1] = '\0'; /* the batch follows */
  return g_strdup_printf("{\"name\": \"shares\", \"pools\": [%s, \"batch\": %s}, %s, \"batch\": %s}], \"model\": "
                         "{\"base\": \"llama3-8b\", \"num_layers\": %d, \"vocab_size\": 1024}, \"training\": "
                         "{\"seq_length\": 4096, \"global_batch_size\": 24}, \"layout\": {%s}, \"plan\": {\"top\": "
                         "3}}",
                         a, batch, b, batch, LAYERS, layout);
}

static void assert_shares(double fast, double slow, int first, int second, int a, int b) {
  g_autofree char *text =
      shared(fast, slow, (int[]){first, second}, "\"auto\"", "\"tp\": 1, \"cp\": 1, \"pp\": 1, \"vpp\": 1");
  g_autoptr(MsRequest) request = pair_request(text);
  for (int way = 0; way < 3; way++) {
    g_autoptr(MsPlan) plan = plan_of(request, way != 1, way == 2);
    assert_true(plan->n_best > 0);
    const MsPlanEntry *winner = &plan->best[0];
    assert_int_equal(winner->scenario->pools.pool[0].batch, a);
    assert_int_equal(winner->scenario->pools.pool[1].batch, b);
    assert_int_equal(winner->scenario->training.global_batch_size, 24);
    assert_int_equal(winner->result->n_shares, 2);
    g_autoptr(MsResult) again = ms_test_simulate(winner->scenario, MS_FIDELITY_FULL);
    assert_true(again->step_time_s == winner->result->step_time_s);
  }
}

/* Exchanges take no time: what a machine does in a step goes with its GPUs and their speed. */
static void a_faster_machine_has_more_microbatches(void **state) {
  (void)state;
  assert_shares(2, 1, 1, 1, 16, 8); /* twice as fast: twice the microbatches */
  assert_shares(1, 2, 1, 1, 8, 16);
  assert_shares(3, 1, 1, 1, 18, 6);
  assert_shares(2, 1, 2, 4, 12, 12); /* two replicas twice as fast as four */
  assert_shares(2, 1, 4, 4, 16, 8);
}

/* As long as its slowest replica on its own takes, which waits for nobody; what they exchange on the slowest network.
 */
static void the_step_is_the_slowest_replicas(void **state) {
  (void)state;
  g_autofree char *text = shared(2, 1, (int[]){4, 4}, "12", "\"tp\": 1, \"cp\": 1, \"pp\": 1, \"vpp\": 1");
  g_autoptr(MsRequest) request = request_of(text);
  const MsScenario *base = request->base;
  for (int i = 0; i < 2; i++) {
    MsHardware *machine = base->pools.pool[i].hardware;
    machine->gpus_per_node = machine->nvlink_domain_gpus = 4, machine->sm_count -= 50 * i;
    machine->hbm_Bps = base->pools.pool[1].hardware->hbm_Bps; /* which slows what is exchanged beside compute */
  }
  base->pools.pool[0].hardware->nic_Bps = 1e9; /* the faster machine has the slower network */
  g_autoptr(MsResult) both = ms_test_simulate(base, MS_FIDELITY_FULL);
  assert_true(both->shares[1].waits_s == 0 && both->shares[0].waits_s > 0);
  g_autoptr(MsScenario) alone = ms_scenario_copy(base, FALSE);
  ms_pools_clear(&alone->pools);
  alone->hardware = ms_hardware_copy(base->pools.pool[1].hardware);
  g_autoptr(MsResult) usual = ms_test_simulate(alone, MS_FIDELITY_FULL);
  alone->hardware->nic_Bps = 1e9;
  g_autoptr(MsResult) slow = ms_test_simulate(alone, MS_FIDELITY_FULL);
  assert_true(slow->step_time_s > 1.001 * usual->step_time_s);
  assert_close(both->step_time_s, slow->step_time_s, 1e-12);
}

/* Memory that is shown is that of the machine which is fullest, whichever takes longest. */
static void memory_is_of_the_fullest(void **state) {
  (void)state;
  g_autofree char *text = shared(2, 1, (int[]){4, 4}, "12", "\"tp\": 1, \"cp\": 1, \"pp\": 1, \"vpp\": 1");
  g_autoptr(MsRequest) request = request_of(text);
  for (int small = 0; small < 2; small++) {
    MsPool *pool = request->base->pools.pool;
    pool[small].hardware->hbm_B = 1e11, pool[1 - small].hardware->hbm_B = 1e12;
    for (MsFidelity f = MS_FIDELITY_BOUND; f <= MS_FIDELITY_FULL; f++) {
      g_autoptr(MsResult) r = ms_test_simulate(request->base, f);
      assert_true(r->shares[1].waits_s == 0);
      assert_int_equal(r->memory->stage[0].pool, small);
      assert_close(r->capacity_B, 1e11, 1e-12);
      assert_close(r->memory->stage[0].device_B, r->shares[small].device_B, 1e-12);
    }
  }
}

static void refused(const char *json, const char *why) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "test.json", &error);
  g_autoptr(MsScenario) s = doc ? ms_scenario_from_doc_mixed(doc, &error) : NULL;
  g_autoptr(MsResult) r = s ? ms_simulate(s, MS_FIDELITY_FULL, NULL, &error) : NULL;
  assert_null(r);
  if (!strstr(error->message, why)) fail_msg("%s\nnot: %s", error->message, why);
  g_error_free(error);
}

static void bad_shares_are_refused(void **state) {
  (void)state;
  static const char rest[] = "\"model\": \"llama3-8b\", \"training\": {\"seq_length\": 4096, "
                             "\"global_batch_size\": 24}, \"layout\": {\"tp\": 2";
  static const struct {
    const char *first, *second, *more, *why;
  } cases[] = {
      {", \"batch\": 8", "", "}", "give each machine a batch"},
      {", \"batch\": 8", ", \"batch\": 8", "}", "the pools do 16 between them"},
      {", \"batch\": \"auto\"", ", \"batch\": \"auto\"", "}", "is what `moesim plan` finds"},
      {", \"batch\": 18", ", \"batch\": 6", "}", "do not divide the batch 18 of pools[0]"},
      {", \"batch\": 16", ", \"batch\": 8", ", \"cp\": 8}", "no whole replicas"},
      {", \"batch\": 16", ", \"batch\": 8", ", \"pp\": 2, \"order\": \"tp-cp-ep-dp-pp\"}", "no whole replica"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *json = g_strdup_printf("{\"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 8%s}, {\"hardware\": "
                                            "\"a100-sxm-80g\", \"gpus\": 8%s}], %s%s}",
                                            cases[i].first, cases[i].second, rest, cases[i].more);
    refused(json, cases[i].why);
  }
}

/* Drawn machines and numbers of GPUs: pruned, branched and exhaustive searches of the shares have the same list. */
static void searches_of_shares_agree(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(65);
  for (int i = 0, n = ms_by_tier(1, 20); i < n; i++) {
    const int gpus[] = {2 << g_rand_int_range(rand, 0, 2), 2 << g_rand_int_range(rand, 0, 2)};
    g_autofree char *text = shared(g_rand_double_range(rand, 1, 3), 1, gpus, "\"auto\"", "\"cp\": 1, \"vpp\": 1");
    g_autoptr(MsRequest) request = request_of(text);
    g_autoptr(MsPlan) pruned = plan_of(request, TRUE, FALSE), branched = plan_of(request, TRUE, TRUE),
                      every = plan_of(request, FALSE, FALSE);
    assert_true(every->n_best == 3);
    assert_true(every->simulated > pruned->simulated);
    ms_assert_same_plans(request, every, pruned);
    ms_assert_same_plans(request, every, branched);
  }
}

/* --- the search ------------------------------------------------------------------------------------------------ */

/* Pruned, branched and exhaustive searches of small requests on drawn pairs have the same list. */
static void searches_agree(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(63);
  static const char
      *const layout[] = {"\"tp\": [1, 2], \"cp\": 1, \"pp\": [2, 4], \"vpp\": [1, 2]",
                         "\"tp\": 1, \"cp\": 1, \"pp\": [2, 4], \"ep\": [2, 4], \"etp\": 1, \"vpp\": [1, 2]"},
             *const options[] = {"\"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}]",
                                 "\"ep_overlap\": [true, false], \"dispatcher\": \"alltoall\""},
             *const model[] = {"{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                               "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 8}"};
  for (int i = 0, n = ms_by_tier(3, 24); i < n; i++) {
    int kind = i % 2;
    g_autofree char *text = g_strdup_printf(
        "{\"name\": \"small\", \"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 8}, {\"hardware\": {\"base\": "
        "\"h100-sxm\", \"doc\": \"other\"}, \"gpus\": 8}], \"model\": %s, \"training\": {\"seq_length\": 4096, "
        "\"global_batch_size\": 32}, \"layout\": {%s}, \"options\": {%s}}",
        model[kind], layout[kind], options[kind]);
    g_autoptr(MsRequest) request = request_of(text);
    make_other(rand, request->base->pools.pool[1].hardware);
    g_autoptr(MsPlan) pruned = plan_of(request, TRUE, FALSE), branched = plan_of(request, TRUE, TRUE),
                      every = plan_of(request, FALSE, FALSE);
    assert_true(every->n_best == 3);
    ms_assert_same_plans(request, every, pruned);
    ms_assert_same_plans(request, every, branched);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_pool_is_measured_by_its_own_ranks),
                                     cmocka_unit_test(alike_is_one_machine),
                                     cmocka_unit_test(pools_of_one_kind_are_joined),
                                     cmocka_unit_test(fidelities_keep_their_order),
                                     cmocka_unit_test(the_known_optimum_is_found),
                                     cmocka_unit_test(layers_are_cut_to_fit),
                                     cmocka_unit_test(searches_agree),
                                     cmocka_unit_test(alike_replicas_are_one_machine),
                                     cmocka_unit_test(a_faster_machine_has_more_microbatches),
                                     cmocka_unit_test(the_step_is_the_slowest_replicas),
                                     cmocka_unit_test(memory_is_of_the_fullest),
                                     cmocka_unit_test(bad_shares_are_refused),
                                     cmocka_unit_test(searches_of_shares_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
