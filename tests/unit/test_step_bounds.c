/* The bounds of whole steps where they are easily too large: steps that overlap, collectives that claim more SMs than
 * there are, pieces that depend on the cut. */
#include "lib/close.h"
#include "lib/plan_requests.h"
#include "lib/world.h"

#include "base/units.h"
#include "bound/bound.h"
#include "plan/enumerate_priv.h"

typedef struct {
  MsTime step, passes; /* bounds: of the whole step, of its passes in their schedule */
  double full_s;
} Step;

static Step step_of(const MsScenario *s) {
  char why[192];
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = ms_work_new(s, layout, NULL);
  g_autoptr(MsCost) cost = ms_cost_new(s, layout, NULL);
  g_autoptr(MsProgram) program = ms_program_new(work, cost);
  g_autoptr(MsSchedule) schedule = ms_program_schedule(program, why, sizeof why);
  g_autoptr(MsPieceLags) lags = ms_piece_lags_new(program->piece, work->n_pieces, s, NULL);
  g_autoptr(MsResult) full = ms_test_simulate(s, MS_FIDELITY_FULL);
  MsTime step = ms_relaxed_step(program, lags, schedule, G_MAXINT64),
         passes = ms_relaxed_passes(s, work, program->piece, lags, G_MAXINT64);
  assert_true(ms_relaxed_step(program, lags, schedule, step) == step); /* what is not above the limit is found */
  assert_true(ms_relaxed_passes(s, work, program->piece, lags, passes) == passes);
  return (Step){MAX(ms_bound_step(program, lags, s->layout.schedule, NULL), step), passes, full->step_time_s};
}

static void holds(const char *what, MsTime bound, double full_s) {
  if ((double)bound / MS_PS_PER_S > full_s * (1 + 1e-9))
    fail_msg("%s: bound %.9g s above full %.9g s", what, (double)bound / MS_PS_PER_S, full_s);
}

/* Stages of ZB-H2 begin and end after one another: steps that overlap are as long as the span of one stage, however
 * late the last one ends; where stages meet at the gradient norm, as long as all of them. */
static void overlapping_steps(void **state) {
  (void)state;
  static const MsScheduleKind kinds[] = {MS_SCHED_ZB_H1, MS_SCHED_ZB_H2, MS_SCHED_ZB_V, MS_SCHED_ZB_1P, MS_SCHED_ZB_2P};
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "a100-sxm-80g", 8);
    s->model->num_layers = 16, s->model->vocab_size = 1024; /* a light head */
    s->training.seq_length = 2048, s->training.global_batch_size = 16;
    s->layout.pp = 8, s->layout.schedule = kinds[i];
    s->hardware->kernel_launch_s = s->hardware->sync_s = 0;
    s->options.optimizer_post_validation = TRUE;
    Step over = step_of(s);
    holds(ms_schedule_words[kinds[i]], MAX(over.step, over.passes), over.full_s);
    s->options.optimizer_post_validation = FALSE;
    Step apart = step_of(s);
    holds(ms_schedule_words[kinds[i]], MAX(apart.step, apart.passes), apart.full_s);
    if (kinds[i] == MS_SCHED_ZB_H2)
      if (!(apart.full_s > 1.1 * over.full_s))
        if (kinds[i] == MS_SCHED_ZB_H2) assert_true(apart.full_s > 1.05 * over.full_s);
  }
}

/* The order that the search of zb-1p and zb-2p finds is none of those that their bound has in mind: few and many
 * microbatches, stages of which some have more to do, with and without a step of its own. */
static void orders_that_costs_decide(void **state) {
  (void)state;
  for (int i = 0; i < 64; i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->model->num_layers = 16, s->model->vocab_size = i & 1 ? 1024 : 128256;
    s->training.seq_length = 2048;
    s->layout.pp = i & 2 ? 4 : 2, s->layout.tp = i & 4 ? 2 : 1;
    s->training.global_batch_size = (8 / (s->layout.pp * s->layout.tp)) * (i & 8 ? 2 : 9);
    s->layout.schedule = i & 16 ? MS_SCHED_ZB_1P : MS_SCHED_ZB_2P;
    s->options.optimizer_post_validation = (i & 32) != 0;
    if (i % 3 == 0) s->layout.decoder_first_pipeline_num_layers = s->layout.pp == 2 ? 5 : 1;
    Step step = step_of(s);
    holds("any order", MAX(step.step, step.passes), step.full_s);
    assert_true(step.passes > 0);
  }
}

/* Steps that overlap follow one another sooner than one would end whose host begins with it. */
static void overlapping_steps_of_a_busy_host(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("gpt3-175b", 0, "gb200-nvl72", 256);
  s->model->num_layers = 15;
  s->training.seq_length = 8192, s->training.micro_batch_size = 2, s->training.global_batch_size = 16;
  s->layout.tp = 8, s->layout.cp = 4, s->layout.pp = 4, s->layout.vpp = 2, s->layout.schedule = MS_SCHED_V_HALF;
  s->layout.account_for_loss_in_pipeline_split = TRUE;
  s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
  Step step = step_of(s);
  holds("v-half", MAX(step.step, step.passes), step.full_s);
}

/* A stage begins its next step when its host has issued all of this one: where the host takes longer than what it
 * issues, overlapping steps are as long as that. */
static void hosts_of_overlapping_steps(void **state) {
  (void)state;
  static const MsScheduleKind kinds[] = {MS_SCHED_ZB_H1, MS_SCHED_ZB_H2, MS_SCHED_ZB_1P, MS_SCHED_ZB_2P, MS_SCHED_ZB_V};
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->model->num_layers = 16, s->training.seq_length = 1024, s->training.global_batch_size = 16;
    s->layout.pp = 4, s->layout.schedule = kinds[i], s->layout.vpp = kinds[i] == MS_SCHED_ZB_V ? 2 : 1;
    s->hardware->kernel_launch_s = 1e-4;
    Step step = step_of(s);
    holds(ms_schedule_words[kinds[i]], MAX(step.step, step.passes), step.full_s);
    if (!((double)MIN(step.step, step.passes) / MS_PS_PER_S > 0.75 * step.full_s))
      fail_msg("%s: %.4g and %.4g of %.4g s", ms_schedule_words[kinds[i]], (double)step.step / MS_PS_PER_S,
               (double)step.passes / MS_PS_PER_S, step.full_s);
  }
}

/* With as many microbatches as stages, or fewer, the first stage waits for what it began to come back through all
 * others, in steps that overlap, too: no stage alone takes as long. */
static void overlapping_steps_of_few_microbatches(void **state) {
  (void)state;
  static const MsScheduleKind kinds[] = {MS_SCHED_ZB_H1, MS_SCHED_ZB_H2, MS_SCHED_ZB_V, MS_SCHED_ZB_1P, MS_SCHED_ZB_2P};
  for (guint i = 0; i < 2 * G_N_ELEMENTS(kinds); i++) {
    MsScheduleKind kind = kinds[i / 2];
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 8);
    s->model->num_layers = 16, s->model->vocab_size = 1024;
    s->training.seq_length = 2048, s->training.global_batch_size = i % 2 ? 8 : 16;
    s->layout.pp = 8, s->layout.schedule = kind, s->layout.vpp = kind == MS_SCHED_ZB_V ? 2 : 1;
    s->hardware->kernel_launch_s = s->hardware->sync_s = 0;
    Step step = step_of(s);
    holds(ms_schedule_words[kind], MAX(step.step, step.passes), step.full_s);
    if (!((double)step.step / MS_PS_PER_S > 0.98 * step.full_s &&
          (double)step.passes / MS_PS_PER_S > 0.9 * step.full_s))
      fail_msg("%s, %d microbatches: %.4g and %.4g of %.4g s", ms_schedule_words[kind], s->training.global_batch_size,
               (double)step.step / MS_PS_PER_S, (double)step.passes / MS_PS_PER_S, step.full_s);
  }
}

/* What a stage reduces behind its slots, and gathers before them, is between one step of it and the next. */
static void overlapping_steps_that_reduce(void **state) {
  (void)state;
  static const MsScheduleKind kinds[] = {MS_SCHED_ZB_H2, MS_SCHED_ZB_V, MS_SCHED_ZB_2P};
  for (guint i = 0; i < 2 * G_N_ELEMENTS(kinds); i++) {
    MsScheduleKind kind = kinds[i / 2];
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 64);
    s->training.seq_length = 2048, s->training.global_batch_size = 256;
    s->layout.pp = 4, s->layout.schedule = kind, s->layout.vpp = kind == MS_SCHED_ZB_V ? 2 : 1;
    s->options.distributed_optimizer = i % 2;
    s->options.overlap_grad_reduce = s->options.overlap_param_gather = FALSE;
    Step step = step_of(s);
    holds(ms_schedule_words[kind], MAX(step.step, step.passes), step.full_s);
    if (!((double)step.step / MS_PS_PER_S > 0.99 * step.full_s))
      fail_msg("%s: %.4g of %.4g s", ms_schedule_words[kind], (double)step.step / MS_PS_PER_S, step.full_s);
  }
}

/* Where collectives claim more SMs than there are, compute keeps a tenth of them: what each would cost alone does not
 * add up. */
static void claims_beyond_all_cores(void **state) {
  (void)state;
  static const int cores[] = {132, 24, 16, 12};
  for (guint i = 0; i < G_N_ELEMENTS(cores); i++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, "h100-sxm", 64);
    s->model->num_layers = 4, s->training.global_batch_size = 128;
    g_free(s->model->moe_layer_freq), s->model->moe_layer_freq = g_strdup("[0]*1+[1]*3");
    if (!ms_model_finish(s->model, NULL, "", NULL)) fail_msg("no such model");
    s->layout.ep = 8;
    s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
    s->hardware->kernel_launch_s = s->hardware->sync_s = 0;
    s->hardware->sm_count = cores[i], s->hardware->nic_Bps /= 4; /* collectives go on beside the passes */
    Step step = step_of(s);
    holds("many claims", MAX(step.step, step.passes), step.full_s);
  }
}

/* Reductions that the last slot issues lengthen its rows, also those behind the gradient that it hands on: the stage
 * before it does not wait for these, so that it may not be said to drain behind them. */
static void last_slots_beside_reductions(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-70b", 0, "mtt-s5000", 8);
  s->training.seq_length = 8192, s->training.micro_batch_size = 2, s->training.global_batch_size = 64;
  s->layout.pp = 2, s->layout.decoder_first_pipeline_num_layers = 4;
  s->options.overlap_grad_reduce = TRUE, s->options.overlap_param_gather = FALSE;
  Step step = step_of(s);
  holds("drained", MAX(step.step, step.passes), step.full_s);
}

/* Layouts found in a request, by what their axes are. */
static GArray *bounded(const MsSmallRequest *small) {
  g_autoptr(MsRequest) request = ms_small_request(small);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.without = 1u << MS_SHORT_MEMORY;
  MsPlan plan = {.objective = request->objective, .memory_limit_B = INFINITY};
  GArray *found = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  MsSearch search = {.space = space, .options = &options, .plan = &plan, .candidates = found};
  ms_refused_init(&search.refused);
  assert_true(ms_enumerate(&search, NULL));
  g_array_sort(found, ms_candidate_compare);
  ms_refused_clear(&search.refused);
  ms_memo_free(search.first);
  ms_space_free(space);
  return found;
}

/* Of `all` those of one PP are the same layouts, with the same bounds, as `own`; their number. */
static guint of_pp_are(const GArray *all, int pp, const GArray *own) {
  guint n = 0;
  for (guint i = 0; i < all->len; i++) {
    const MsCandidate *c = &g_array_index(all, MsCandidate, i);
    if (c->value[MS_AXIS_PP] != pp) continue;
    assert_true(n < own->len);
    const MsCandidate *o = &g_array_index(own, MsCandidate, n++);
    if (c->combo != o->combo || c->bound != o->bound)
      fail_msg("pp %d: %" G_GINT64_FORMAT " ps, alone %" G_GINT64_FORMAT " ps", pp, c->bound, o->bound);
  }
  assert_int_equal(n, own->len);
  return n;
}

/* Where pieces depend on the cut (the first layer of each stage is run again, experts are drawn), each
 * layout has its own: its bound is the one that it has in a request where nothing else is open. */
static void bounds_are_of_their_own_cut(void **state) {
  (void)state;
  static const char *const training[] = {"\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                         "\"micro_batch_size\": 1, \"precision\": \"bf16\", "
                                         "\"routing\": {\"zipf\": 0.5, \"seed\": 1}"};
  static const char *const recompute[] = {
      "\"recompute\": {\"granularity\": \"full\", \"method\": \"block\", \"num_layers\": 1}, ", ""};
  for (guint i = 0; i < G_N_ELEMENTS(training); i++) {
    MsSmallRequest small = {"own cut",   "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}",
                            "h100-sxm",  8,
                            4096,        32,
                            training[i], "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": 1, \"ep\": 2, \"etp\": 1",
                            recompute[i]};
    g_autoptr(GArray) all = bounded(&small);
    guint n = 0;
    for (int pp = 1; pp <= 4; pp *= 2) {
      g_autofree char *layout =
          g_strdup_printf("\"tp\": 1, \"cp\": 1, \"pp\": %d, \"vpp\": 1, \"ep\": 2, \"etp\": 1", pp);
      small.layout = layout;
      g_autoptr(GArray) own = bounded(&small);
      n += of_pp_are(all, pp, own);
    }
    assert_true(n == all->len && n >= 3);
  }
}

/* Gathers of experts, whose groups fill their nodes, have two parts of a NIC, dense ones among every eighth GPU four:
 * the dense ones do not wait for as much of the others. */
static void queues_of_unequal_parts(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) {
    g_autoptr(MsScenario) s = ms_test_run("moonlight-16b-a3b", 0, "b200-sxm", 32);
    s->model->num_layers = 4;
    g_free(s->model->moe_layer_freq), s->model->moe_layer_freq = g_strdup("[0]*1+[1]*3");
    s->model->front_end.parameters = 1.5e8 * (1 + (i & 3)), s->model->front_end.forward_flop = 1e12;
    s->training.seq_length = 1024, s->training.micro_batch_size = 1, s->training.global_batch_size = i & 4 ? 32 : 4;
    s->layout.tp = 8, s->options.sequence_parallel = TRUE;
    s->layout.ep = s->layout.etp = 1;
    s->options.overlap_param_gather = s->options.overlap_grad_reduce = TRUE;
    Step step = step_of(s);
    holds("unequal parts", MAX(step.step, step.passes), step.full_s);
    assert_true((double)step.step / MS_PS_PER_S > 0.9 * step.full_s);
  }
}

/* A ring of attention adds up its steps on a stream of its own. Where the host lags behind in the first step they run
 * beside nothing, and last as long in those that follow it. */
static void overlapping_steps_with_rings(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "mtt-s5000", 4096 >> i);
    s->training.seq_length = 4096, s->training.micro_batch_size = 1, s->training.global_batch_size = 256 >> i;
    s->layout.tp = 4, s->layout.cp = 2, s->layout.pp = 2, s->layout.schedule = MS_SCHED_ZB_1P;
    s->layout.cp_comm_type = MS_CP_P2P;
    s->options.sequence_parallel = TRUE, s->options.overlap_grad_reduce = s->options.overlap_param_gather = FALSE;
    Step step = step_of(s);
    holds("rings", MAX(step.step, step.passes), step.full_s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(overlapping_steps),
                                     cmocka_unit_test(overlapping_steps_with_rings),
                                     cmocka_unit_test(orders_that_costs_decide),
                                     cmocka_unit_test(overlapping_steps_of_a_busy_host),
                                     cmocka_unit_test(hosts_of_overlapping_steps),
                                     cmocka_unit_test(overlapping_steps_of_few_microbatches),
                                     cmocka_unit_test(overlapping_steps_that_reduce),
                                     cmocka_unit_test(claims_beyond_all_cores),
                                     cmocka_unit_test(last_slots_beside_reductions),
                                     cmocka_unit_test(queues_of_unequal_parts),
                                     cmocka_unit_test(bounds_are_of_their_own_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
