/* The proven bounds against `full`: on random scenarios over every key, and on every layout of requests with EP
 * overlap, where the bounds are close as well. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/plan_requests.h"
#include "lib/world.h"

#include "base/stats.h"
#include "base/units.h"
#include "plan/enumerate_priv.h"
#include "plan/partition_priv.h"
#include "sim/graph.h"
#include "step/meeting.h"

enum { DRAWS = 6000, MOST_TASKS = 150000 };

typedef struct {
  MsTime bound, full;
} Times; /* the tighter bound; 0: not simulated */

static Times times_of(const MsScenario *s) {
  char why[192];
  Times t = {0};
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, NULL) : NULL;
  g_autoptr(MsCost) cost = work ? ms_cost_new(s, layout, NULL) : NULL;
  if (!cost) return t;
  g_autoptr(MsProgram) program = ms_program_new(work, cost);
  g_autoptr(MsSchedule) schedule = ms_program_schedule(program, why, sizeof why);
  if (!schedule || ms_program_tasks(program, schedule) > MOST_TASKS) return t;
  MsPieceLags *lags = ms_piece_lags_new(program->piece, work->n_pieces, s, NULL);
  t.bound =
      MAX(ms_bound_step(program, lags, s->layout.schedule, NULL), ms_relaxed_step(program, lags, schedule, G_MAXINT64));
  ms_piece_lags_free(lags);
  g_autoptr(MsGraph) graph = ms_lower_full(program, schedule, NULL, NULL);
  assert_true(ms_program_meet(program, NULL));
  g_autoptr(MsTrajectory) trajectory = ms_program_run(program, graph, NULL);
  g_autofree MsTimeParts *stage = g_new0(MsTimeParts, layout->pp);
  t.full = ms_lower_period(program, graph, trajectory, stage);
  return t;
}

static void on_random_scenarios(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(17);
  int n = 0, in_pairs = 0;
  for (int i = 0; i < DRAWS; i++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    if (!ms_model_finish(s->model, NULL, "", NULL)) continue;
    Times t = times_of(s);
    if (t.full == 0) continue;
    n++, in_pairs += s->options.ep_overlap;
    if (t.bound <= t.full) continue;
    g_autofree char *text = ms_scenario_text(s, 0);
    fail_msg("draw %d: bound %.9g s above full %.9g s\n%s", i, (double)t.bound / MS_PS_PER_S,
             (double)t.full / MS_PS_PER_S, text);
  }
  print_message("%d random scenarios, %d with EP overlap\n", n, in_pairs);
  assert_true(n > 200 && in_pairs > 5);
}

static const MsSmallRequest overlapped[] = {
    {"deepseek, pairs with every dispatcher",
     "{\"base\": \"deepseek-v3\", \"num_layers\": 10, \"moe_layer_freq\": \"[0]*2+[1]*8\"}", "gb200-nvl72", 64, 4096,
     512, "\"micro_batch_size\": [1, 2], \"precision\": \"mxfp8\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2, 5], \"ep\": [8, 32], \"etp\": [1, 2]",
     "\"dispatcher\": \"auto\", \"ep_overlap\": true, \"delay_wgrad\": \"auto\", \"recompute\": [{\"granularity\": "
     "\"none\"}, {\"granularity\": \"selective\", \"modules\": [\"moe_act\", \"mlp\"]}],"},
    {"deepseek, pairs both ways",
     "{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\", \"mtp_num_layers\": 0}",
     "h800-sxm", 64, 4096, 512, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"tp\": 1, \"cp\": [1, 2], \"pp\": [2, 4], \"vpp\": [1, 2], \"ep\": [8, 16], \"etp\": 1, \"schedule\": "
     "[\"1f1b\", \"dualpipe\", \"dualpipev\"]",
     "\"dispatcher\": \"auto\", \"ep_overlap\": true, \"delay_wgrad\": \"auto\", \"overlap_grad_reduce\": \"auto\", "
     "\"overlap_param_gather\": \"auto\","},
    {"mixtral, pairs sharded and offloaded", "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "h100-sxm", 16, 4096,
     128, "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2], \"etp\": 1, \"ep\": [4, 8]",
     "\"ep_overlap\": true, \"delay_wgrad\": \"auto\", \"fsdp\": \"auto\", \"offload_modules\": \"auto\", "
     "\"cuda_graph_scope\": \"auto\", \"optimizer_offload_fraction\": [0, 1],"},
};

typedef struct {
  GArray *first, *second;
} Gaps; /* how far the bounds are below full, of each layout */

static void check_layout(const MsSmallRequest *small, const MsSpace *space, const MsCandidate *c, Gaps *gaps) {
  g_autoptr(MsScenario) s = ms_candidate_scenario(space, c, NULL);
  Times t = times_of(s);
  if (t.full == 0) return;
  if (c->bound > t.full || t.bound > t.full)
    fail_msg("%s, %s: bounds %.9g and %.9g s above full %.9g s", small->name, s->name, (double)c->bound / MS_PS_PER_S,
             (double)t.bound / MS_PS_PER_S, (double)t.full / MS_PS_PER_S);
  double quick = 1 - (double)c->bound / (double)t.full, close = 1 - (double)t.bound / (double)t.full;
  g_array_append_val(gaps->first, quick), g_array_append_val(gaps->second, close);
}

/* Both bounds of about `most` layouts of a request. */
static void check_request(const MsSmallRequest *small, guint most, Gaps *gaps) {
  g_autoptr(MsRequest) request = ms_small_request(small);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.without = 1u << MS_SHORT_MEMORY;
  MsPlan plan = {.objective = request->objective, .memory_limit_B = INFINITY};
  g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  MsSearch search = {.space = space, .options = &options, .plan = &plan, .candidates = found};
  ms_refused_init(&search.refused);
  assert_true(ms_enumerate(&search, NULL));
  g_array_sort(found, ms_candidate_compare);
  for (guint i = 0; i < found->len; i += 1 + found->len / most)
    check_layout(small, space, &g_array_index(found, MsCandidate, i), gaps);
  ms_refused_clear(&search.refused);
  ms_memo_free(search.first);
  ms_space_free(space);
}

static double median(GArray *a) { return ms_quantile((double *)(gpointer)a->data, a->len, 0.5); }

static void check_requests(const MsSmallRequest *small, guint n, guint most, double first, double second) {
  g_autoptr(GArray) a = g_array_new(FALSE, FALSE, sizeof(double)), b = g_array_new(FALSE, FALSE, sizeof(double));
  Gaps gaps = {a, b};
  for (guint i = 0; i < n; i++) check_request(&small[i], most, &gaps);
  print_message("%u layouts; below full: %.1f %% at first, %.1f %% at the second look (medians)\n", a->len,
                100 * median(a), 100 * median(b));
  assert_true(a->len > 100 && median(a) <= first && median(b) <= second); /* a bound that says nothing is no use */
}

static void with_ep_overlap(void **state) {
  (void)state;
  check_requests(&overlapped[0], 1, 1000, 0.3, 0.04);
  check_requests(&overlapped[1], 1, 1000, 0.25, 0.06);
  check_requests(&overlapped[2], 1, 400, 0.4,
                 0.15); /* of what FSDP and offloading fetch only the busiest stream counts */
}

/* The whole model, where reductions and gathers share the network and the SMs with the exchanges of warm-up and
 * cool-down. */
static void of_large_layouts(void **state) {
  (void)state;
  static const struct {
    int tp, cp, vpp, ep;
    double gap;
  } layouts[] = {{2, 2, 4, 128, 0.045}, {2, 2, 5, 32, 0.035}, {4, 1, 5, 32, 0.035}, {4, 1, 8, 32, 0.035}};
  for (guint i = 0; i < G_N_ELEMENTS(layouts); i++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "h100-sxm", 2048);
    s->training.global_batch_size = 2048, s->training.seq_length = 4096, s->training.micro_batch_size = 1;
    s->layout.tp = layouts[i].tp, s->layout.cp = layouts[i].cp, s->layout.pp = 4, s->layout.vpp = layouts[i].vpp,
    s->layout.ep = layouts[i].ep;
    s->options.sequence_parallel = TRUE, s->options.dispatcher = MS_DISPATCH_HYBRIDEP, s->options.ep_overlap = TRUE;
    int stages = 4 * layouts[i].vpp, counts[64], rank[64];
    for (int k = 0; k < stages; k++) rank[k] = k % 4;
    MsLayerCosts *costs = ms_layer_costs_new(NULL, s);
    assert_int_equal(ms_partition_by_cost(costs, &(MsVirtualStages){.n = stages, .ranks = 4, .rank = rank},
                                          &(double){0}, 1, counts, NULL),
                     1);
    ms_layer_costs_free(costs);
    g_free(s->layout.pipeline_layout);
    s->layout.pipeline_layout = ms_partition_text(counts, stages, 1, FALSE);
    GError *error = NULL;
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
    if (!r) fail_msg("%s", error->message);
    double below = 1 - r->step_time_lower_s / r->step_time_s;
    print_message("tp %d cp %d vpp %d ep %d: %.2f %% below full\n", layouts[i].tp, layouts[i].cp, layouts[i].vpp,
                  layouts[i].ep, 100 * below);
    assert_true(below >= 0 && below < layouts[i].gap);
  }
}

/* Two stages, whose queues of dense and of expert gradients share NICs in unequal parts, with each other and with the
 * messages of the pipeline, and take SMs from the passes beside them; of few replicas, where the stages wait for each
 * other's passes, which exchanges that run on make longer. */
static void of_layouts_that_wait_for_others(void **state) {
  (void)state;
  static const struct {
    int replicas;
    gboolean overlap;
    MsPrecision precision;
    double gap;
  } layouts[] = {{2048, FALSE, MS_BF16, 0.015}, {2048, TRUE, MS_BF16, 0.018}, {64, TRUE, MS_FP8_DELAYED, 0.0235}};
  for (guint i = 0; i < G_N_ELEMENTS(layouts); i++) {
    g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 1, "gb200-nvl72", 2 * layouts[i].replicas);
    s->training.global_batch_size = 8 * layouts[i].replicas, s->training.seq_length = 4096;
    s->training.micro_batch_size = 1, s->training.precision = layouts[i].precision;
    s->layout.tp = 1, s->layout.pp = 2, s->layout.vpp = 5, s->layout.ep = 64;
    g_free(s->layout.pipeline_layout);
    s->layout.pipeline_layout = g_strdup("Et*7|(t*7|)*7t*5|mL");
    s->options.dispatcher = MS_DISPATCH_HYBRIDEP, s->options.ep_overlap = layouts[i].overlap;
    s->options.overlap_grad_reduce = s->options.overlap_param_gather = TRUE;
    if (layouts[i].overlap) s->options.cuda_graph_scope = MS_CG_ATTN;
    GError *error = NULL;
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
    if (!r) fail_msg("%s", error->message);
    double below = 1 - r->step_time_lower_s / r->step_time_s;
    print_message("%d replicas, EP overlap %d: %.2f %% below full\n", layouts[i].replicas, layouts[i].overlap,
                  100 * below);
    assert_true(below >= 0 && below < layouts[i].gap);
  }
}

static void of_small_requests(void **state) {
  (void)state;
  check_requests(ms_small_requests, ms_n_small_requests, 40, 0.25, 0.05);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_random_scenarios), cmocka_unit_test(with_ep_overlap), cmocka_unit_test(of_large_layouts),
      cmocka_unit_test(of_layouts_that_wait_for_others), cmocka_unit_test(of_small_requests)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
