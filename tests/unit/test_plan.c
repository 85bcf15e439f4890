/* The planner: pruned and exhaustive searches agree on the whole list, threads do not matter, counts add up, refusals
 * have names. */
#include "lib/world.h"
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/plan_requests.h"

#include "base/err.h"
#include "plan/bound_priv.h"
#include "plan/cuts_priv.h"
#include "plan/enumerate_priv.h"
#include "plan/partition_priv.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

typedef MsSmallRequest Small;
static const Small *const requests = ms_small_requests;

static MsRequest *request_of(const Small *r) { return ms_small_request(r); }
static MsPlan *plan(const MsRequest *request, gboolean prune, int threads, int top) {
  return ms_small_plan(request, prune, threads, top);
}

static void check_counts(const MsRequest *request, const MsPlan *p) {
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  assert_non_null(space);
  ms_assert_counts(request, p, ms_space_size(space));
  ms_space_free(space);
}

static void pruned_list_is_the_exhaustive_list(void **state) { /* of a few; test_full_plan.c takes all */
  (void)state;
  for (guint i = 0; i < ms_n_small_requests; i += (guint)ms_by_tier(36, 12)) ms_assert_exhaustive(&requests[i]);
}

/* Pieces costed with what is known of a neighbour are those costed alone. */
static void neighbours_tell_the_truth(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  int compared = 0;
  for (guint i = 0; i < ms_n_small_requests; i++) {
    g_autoptr(MsRequest) request = request_of(&requests[i]);
    MsSpace *space = ms_space_new(request, TRUE, NULL);
    MsPieceMemo *first = NULL, *last = NULL; /* the first one owns the kernel curves */
    for (int draw = 0, draws = ms_by_tier(40, 120); draw < draws; draw++) {
      MsCandidate c = {.combo = (gint64)(g_rand_double(rand) * (double)space->n_combos)};
      for (int axis = 0; axis < MS_N_AXES; axis++)
        c.value[axis] = space->axis[axis].value[g_rand_int_range(rand, 0, space->axis[axis].n)];
      MsRefusal refusal;
      g_autoptr(MsScenario) s = ms_candidate_scenario(space, &c, NULL);
      if (!ms_layout_check(s, &refusal)) continue;
      MsPieceMemo *alone = ms_memo_new(s, NULL), *beside = ms_memo_new(s, last);
      for (MsTotal total = 0; total <= MS_TOTAL_SPAN; total++)
        for (int splits = 0; splits < 2; splits++)
          assert_true(ms_memo_total(alone, total, splits, 2) == ms_memo_total(beside, total, splits, 2));
      compared += last != NULL;
      ms_memo_free(alone);
      if (last != first) ms_memo_free(last);
      if (!first) first = beside;
      last = beside;
    }
    if (last != first) ms_memo_free(last);
    ms_memo_free(first);
    ms_space_free(space);
  }
  assert_true(compared > ms_by_tier(300, 1000));
}

/* Every shortcut alone can be left out without changing the list. */
static void shortcuts_change_nothing(void **state) {
  (void)state;
  for (guint i = 2; i < ms_n_small_requests; i += (guint)ms_by_tier(16, 8)) {
    g_autoptr(MsRequest) request = request_of(&requests[i]);
    g_autoptr(MsPlan) all = plan(request, TRUE, 2, 5);
    for (int k = 0; k < MS_N_SHORT; k++) {
      GError *error = NULL;
      g_autoptr(MsPlan) less =
          ms_plan(request, &(MsPlanOptions){.top = 5, .prune = TRUE, .without = 1u << k, .threads = 2}, &error);
      assert_non_null(less);
      if (k != MS_SHORT_SAME) ms_assert_same_plans(request, all, less);
      else assert_close(less->best[0].result->step_time_s, all->best[0].result->step_time_s, 0);
      /* twins of one layout fill the list sooner */
      assert_true(less->simulated >= all->simulated || k == MS_SHORT_SAME);
      check_counts(request, less);
    }
  }
}

/* --- what changes a bound, and what does not (choices.c) ------------------------------------------------------- */

static char *opened(const char *name, gboolean overlap) {
  return g_strdup_printf("\"%s\": \"auto\", \"ep_overlap\": %s,", name, overlap ? "true" : "false");
}

/* First bounds of every layout that obeys the rules, in order. */
static GArray *bounds_of(const MsRequest *request, gboolean shared) {
  MsSpace *space = ms_space_new(request, shared, NULL);
  MsPlanOptions options = {.without = 1u << MS_SHORT_MEMORY | (shared ? 0 : 1u << MS_SHORT_SHARED)};
  MsPlan counted = {.memory_limit_B = INFINITY};
  MsSearch search = {.space = space,
                     .options = &options,
                     .plan = &counted,
                     .candidates = g_array_new(FALSE, TRUE, sizeof(MsCandidate))};
  ms_refused_init(&search.refused);
  assert_true(ms_enumerate(&search, NULL));
  ms_refused_clear(&search.refused);
  ms_memo_free(search.first);
  ms_space_free(space);
  g_array_sort(search.candidates, ms_candidate_compare);
  return search.candidates;
}

static void same_bounds(const MsRequest *request, const char *key) {
  g_autoptr(GArray) shared = bounds_of(request, TRUE), alone = bounds_of(request, FALSE);
  assert_int_equal(shared->len, alone->len);
  for (guint i = 0; i < shared->len; i++) {
    const MsCandidate *a = &g_array_index(shared, MsCandidate, i), *b = &g_array_index(alone, MsCandidate, i);
    if (a->bound != b->bound || a->combo != b->combo)
      fail_msg("%s: bound %" G_GINT64_FORMAT " shared, %" G_GINT64_FORMAT " alone", key, a->bound, b->bound);
  }
}

/* Keys that are said not to change the bound of the time, or of the memory, do not: with nothing shared the list, its
 * bounds and what was refused for memory are the same. */
static void roles_hold(void **state) {
  (void)state;
  static const char *const keys[] = {"cuda_graph_scope",
                                     "overlap_grad_reduce",
                                     "overlap_param_gather",
                                     "distributed_optimizer",
                                     "fsdp",
                                     "optimizer_offload_fraction",
                                     "offload_optimizer_states",
                                     "reuse_fp32_param",
                                     "overlap_p2p_comm",
                                     "delay_wgrad",
                                     "cuda_graph_shared_experts"};
  for (guint i = 0; i < 2 * G_N_ELEMENTS(keys); i += (guint)ms_by_tier(3, 1)) {
    g_autofree char *open = opened(keys[i / 2], i % 2);
    const Small r = {keys[i / 2],
                     "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 8}",
                     "h100-sxm",
                     16,
                     4096,
                     64,
                     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                     "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2], \"ep\": [4, 8], \"etp\": [1, 2]",
                     open};
    g_autoptr(MsRequest) request = request_of(&r);
    same_bounds(request, keys[i / 2]);
    GError *error = NULL;
    g_autoptr(MsPlan) shared = plan(request, TRUE, 1, 10);
    g_autoptr(MsPlan) alone = ms_plan(
        request, &(MsPlanOptions){.top = 10, .prune = TRUE, .without = 1u << MS_SHORT_SHARED, .threads = 1}, &error);
    assert_non_null(alone);
    ms_assert_same_plans(request, shared, alone);
    assert_int_equal(shared->simulated, alone->simulated);
    assert_int_equal(shared->n_refusals, alone->n_refusals);
    for (int k = 0; k < shared->n_refusals; k++) {
      assert_int_equal(shared->refusals[k].count, alone->refusals[k].count);
      assert_string_equal(shared->refusals[k].example, alone->refusals[k].example);
    }
  }
}

/* Where memory is slow a product costs what it writes: added to whole gradients, over sharded ones in the type on the
 * wire. */
static void roles_of_gradients_hold(void **state) {
  (void)state;
  static const char *const open[] = {"\"fsdp\": \"auto\", ",
                                     "\"fsdp\": \"optim-grads\", \"grad_reduce_dtype\": [\"fp32\", \"bf16\"], "};
  for (guint i = 0; i < G_N_ELEMENTS(open); i++) {
    const Small r = {"gradients",
                     "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 8}",
                     "l40s",
                     16,
                     1024,
                     64,
                     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                     "\"tp\": [1, 2], \"cp\": 1, \"pp\": 1, \"vpp\": 1, \"ep\": [4, 8], \"etp\": 1",
                     open[i]};
    g_autoptr(MsRequest) request = request_of(&r);
    same_bounds(request, open[i]);
  }
}

/* --- objectives ------------------------------------------------------------------------------------------------ */

static MsPlan *plan_for(MsRequest *request, MsGoal goal, gboolean prune) {
  request->objective = goal;
  return plan(request, prune, 2, 5);
}

static void objectives_rank(void **state) {
  (void)state;
  const Small r = {"objectives",
                   "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                   "h100-sxm",
                   8,
                   4096,
                   32,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                   "\"cp\": 1, \"tp\": [1, 2, 4], \"pp\": [1, 2], \"vpp\": 1",
                   ""};
  g_autoptr(MsRequest) request = ms_small_request_gpus(&r, "[4, 8, 16, 32]");
  request->gpu_hour_price = 2.5, request->gpu_hour_price_source = g_strdup("the test");
  request->training_tokens = 1e9;
  MsPlan *fastest = plan_for(request, MS_GOAL_STEP_TIME, TRUE);
  assert_true(fastest->n_best == 5);
  request->deadline_s = 1e9 / (32 * 4096.0) * fastest->best[0].result->step_time_s * 3;
  for (int goal = 0; goal < MS_N_MsGoal; goal++) {
    g_autoptr(MsPlan) quick = plan_for(request, goal, TRUE);
    g_autoptr(MsPlan) slow = plan_for(request, goal, FALSE);
    ms_assert_same_plans(request, quick, slow);
    assert_true(quick->n_best > 0);
    for (int i = 0; i + 1 < quick->n_best; i++) {
      const MsPlanEntry *a = &quick->best[i], *b = &quick->best[i + 1];
      double x = ms_objective_cost(request, a->scenario->gpus, a->result->step_time_s),
             y = ms_objective_cost(request, b->scenario->gpus, b->result->step_time_s);
      assert_true(x <= y);
    }
    const MsPlanEntry *best = &quick->best[0];
    double tokens = 32 * 4096.0, step = best->result->step_time_s;
    int gpus = best->scenario->gpus;
    const double figure[] = {step, tokens / step / gpus, step * gpus / tokens * 1e6 * 2.5 / 3600,
                             step * gpus / tokens * 1e6 * 700, ceil(1e9 / tokens) * step};
    assert_close(best->figure, figure[goal], 1e-12);
    if (goal == MS_GOAL_STEP_TIME) assert_int_equal(gpus, 32);
    if (goal != MS_GOAL_DEADLINE) continue;
    assert_true(gpus < 32 && ceil(1e9 / tokens) * step <= request->deadline_s);
    gboolean late = FALSE;
    for (int i = 0; i < quick->n_refusals; i++) late |= !strcmp(quick->refusals[i].name, "deadline");
    assert_true(late); /* four GPUs are too few */
  }
  ms_plan_free(fastest);
}

/* For a deadline GPUs come first: whatever share of the time they need, fewer win; among equals the shorter step; too
 * late is worse than anything. */
static void deadlines_count_gpus_first(void **state) {
  (void)state;
  const Small r = {"deadline", "{\"base\": \"llama3-8b\", \"num_layers\": 8}",     "h100-sxm",  8, 4096,
                   32,         "\"micro_batch_size\": 1, \"precision\": \"bf16\"", "\"tp\": 1", ""};
  g_autoptr(MsRequest) request = ms_small_request_gpus(&r, "[8, 9]");
  request->objective = MS_GOAL_DEADLINE, request->training_tokens = 10 * 32 * 4096.0, request->deadline_s = 10;
  assert_true(ms_objective_cost(request, 8, 1) < ms_objective_cost(request, 9, 1e-3));
  assert_true(ms_objective_cost(request, 8, 0.5) < ms_objective_cost(request, 8, 1));
  assert_true(isinf(ms_objective_cost(request, 8, 1.001)));
  request->training_tokens += 1; /* an eleventh step */
  assert_true(isinf(ms_objective_cost(request, 8, 1)) && isfinite(ms_objective_cost(request, 8, 0.9)));
}

static void objectives_need_figures(void **state) {
  (void)state;
  static const struct {
    MsGoal goal;
    const char *path;
  } missing[] = {{MS_GOAL_COST, "plan.gpu_hour_price"}, {MS_GOAL_DEADLINE, "plan.deadline_s"}};
  for (guint i = 0; i < G_N_ELEMENTS(missing); i++) {
    g_autoptr(MsRequest) request = request_of(&requests[0]);
    GError *error = NULL;
    request->objective = missing[i].goal;
    assert_null(ms_plan(request, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 1}, &error));
    assert_int_equal(error->code, MS_ERROR_INPUT);
    assert_non_null(strstr(error->message, missing[i].path));
    g_error_free(error);
  }
}

/* --- checkpoints ----------------------------------------------------------------------------------------------- */

static void resume_simulates_nothing_twice(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-XXXXXX", NULL), *file = g_build_filename(folder, "plan.json", NULL);
  g_autoptr(MsRequest) request = request_of(&requests[8]);
  g_autoptr(MsPlan) first =
      ms_plan(request, &(MsPlanOptions){.top = 3, .prune = TRUE, .threads = 2, .checkpoint = file}, &error);
  assert_non_null(first);
  assert_int_equal(first->resumed, 0);
  g_autoptr(MsPlan) again = ms_plan(
      request, &(MsPlanOptions){.top = 3, .prune = TRUE, .threads = 1, .checkpoint = file, .resume = file}, &error);
  assert_non_null(again);
  assert_int_equal(again->resumed, first->simulated);
  assert_int_equal(again->simulated, first->simulated);
  ms_assert_same_plans(request, first, again);
  /* half of it */
  g_autofree char *text = NULL;
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  char *middle = strstr(text, "[0,");
  for (guint64 i = 0; middle && i < first->simulated / 2; i++) middle = strstr(middle + 1, "[0,");
  assert_non_null(middle);
  while (*middle != ']') middle--;
  g_autofree char *half = g_strdup_printf("%.*s]}", (int)(middle + 1 - text), text);
  assert_true(g_file_set_contents(file, half, -1, NULL));
  g_autoptr(MsPlan) rest =
      ms_plan(request, &(MsPlanOptions){.top = 3, .prune = TRUE, .threads = 1, .resume = file}, &error);
  assert_non_null(rest);
  assert_true(rest->resumed > 0 && rest->resumed < first->simulated);
  ms_assert_same_plans(request, first, rest);
  /* another request */
  g_autoptr(MsRequest) other = request_of(&requests[9]);
  GError *why = NULL;
  assert_null(ms_plan(other, &(MsPlanOptions){.top = 3, .prune = TRUE, .threads = 1, .resume = file}, &why));
  assert_int_equal(why->code, MS_ERROR_INPUT);
  assert_non_null(strstr(why->message, "another request"));
  g_clear_error(&why);
  assert_true(
      g_file_set_contents(file, "{\"moesim_plan_checkpoint\": 1, \"request\": \"x\", \"simulated\": [[7]]}", -1, NULL));
  assert_null(ms_plan(request, &(MsPlanOptions){.top = 3, .prune = TRUE, .threads = 1, .resume = file}, &why));
  assert_int_equal(why->code, MS_ERROR_INPUT);
  g_clear_error(&why);
  g_remove(file), g_rmdir(folder);
}

/* The winner does not depend on how many are kept, though less is simulated for fewer. */
static void fewer_kept_is_a_prefix(void **state) {
  (void)state;
  for (guint i = 3; i < ms_n_small_requests; i += 9) {
    g_autoptr(MsRequest) request = request_of(&requests[i]);
    g_autoptr(MsPlan) ten = plan(request, TRUE, 2, 10);
    g_autoptr(MsPlan) one = plan(request, TRUE, 2, 1);
    assert_int_equal(one->n_best, 1);
    assert_true(one->simulated <= ten->simulated);
    g_autofree char *x = ms_scenario_text(one->best[0].scenario, 0), *y = ms_scenario_text(ten->best[0].scenario, 0);
    assert_string_equal(x, y);
  }
}

static void nothing_fits(void **state) {
  (void)state;
  const Small r = {"too large",
                   "\"deepseek-v3\"",
                   "h100-sxm",
                   8,
                   4096,
                   8,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                   "\"cp\": 1",
                   ""};
  g_autoptr(MsRequest) request = request_of(&r);
  g_autoptr(MsPlan) p = plan(request, TRUE, 2, 10);
  assert_int_equal(p->n_best, 0);
  assert_int_equal(p->feasible, 0);
  gboolean memory = FALSE;
  for (int i = 0; i < p->n_refusals; i++) memory |= !strcmp(p->refusals[i].name, "memory");
  assert_true(memory);
  check_counts(request, p);
}

/* A setting that the request closes is not opened by the planner. */
static void what_is_given_stays(void **state) {
  (void)state;
  const Small r = {"given",
                   "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                   "h100-sxm",
                   8,
                   8192,
                   16,
                   "\"micro_batch_size\": 2, \"precision\": \"bf16\"",
                   "\"tp\": 2, \"cp\": 1, \"pp\": [1, 2]",
                   "\"sequence_parallel\": false,"};
  g_autoptr(MsRequest) request = request_of(&r);
  g_autoptr(MsPlan) p = plan(request, TRUE, 1, 10);
  assert_true(p->n_best > 0);
  for (int i = 0; i < p->n_best; i++) {
    assert_int_equal(p->best[i].scenario->layout.tp, 2);
    assert_int_equal(p->best[i].scenario->layout.cp, 1);
    assert_int_equal(p->best[i].scenario->training.micro_batch_size, 2);
    assert_true(p->best[i].scenario->options.sequence_parallel == FALSE);
  }
}

static void auto_without_candidates_is_an_error(void **state) {
  (void)state;
  const Small r = {"no auto",
                   "\"llama3-8b\"",
                   "h100-sxm",
                   8,
                   8192,
                   16,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                   "\"decoder_first_pipeline_num_layers\": \"auto\"",
                   ""};
  g_autoptr(MsRequest) request = request_of(&r);
  GError *error = NULL;
  assert_null(ms_plan(request, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 1}, &error));
  assert_int_equal(error->code, MS_ERROR_INPUT);
  assert_non_null(strstr(error->message, "layout.decoder_first_pipeline_num_layers"));
  g_error_free(error);
}

/* --- pieces ---------------------------------------------------------------------------------------------------- */
static void partitions_are_balanced(void **state) {
  (void)state;
  static const double none = 0;
  double layer[96];
  int counts[32], rank[32];
  for (int i = 0; i < 96; i++) layer[i] = 1;
  for (int layers = 4; layers <= 96; layers += 7)
    for (int stages = 2; stages <= MIN(32, layers); stages++) {
      MsLayerCosts costs = {.layers = layers, .layer = layer, .first = 0.3, .last = 0.8};
      for (int i = 0; i < stages; i++) rank[i] = i;
      assert_int_equal(ms_partition_by_cost(&costs, &(MsVirtualStages){.n = stages, .ranks = stages, .rank = rank},
                                            &none, 1, counts, NULL),
                       1);
      int sum = 0, most = 0, least = layers;
      for (int i = 0; i < stages; i++) sum += counts[i];
      for (int i = 1; i + 1 < stages; i++) most = MAX(most, counts[i]), least = MIN(least, counts[i]);
      assert_int_equal(sum, layers);
      if (stages > 2) assert_true(most - least <= 1);
      assert_true(counts[0] <= most + 1 || stages == 2);
      g_autofree char *text = ms_partition_text(counts, stages, 1, FALSE);
      int chunks;
      char why[128];
      MsChunk *chunk = ms_pipeline_layout_parse(text, &chunks, why, sizeof why);
      if (!chunk) fail_msg("%s: %s", text, why);
      assert_int_equal(chunks, stages);
      for (int i = 0; i < stages; i++) assert_int_equal(chunk[i].num_layers, counts[i]);
      assert_int_equal(chunk[stages - 1].num_mtp, 1);
      g_free(chunk);
    }
}

typedef struct {
  double rank, stage;
} Dearest;

static Dearest dearest_of(const MsLayerCosts *c, const MsVirtualStages *on, const int *counts) {
  double cost[8], load[8] = {0};
  Dearest d = {0};
  ms_stage_costs(c, on, counts, cost);
  for (int k = 0; k < on->n; k++) load[on->rank[k]] += cost[k], d.stage = MAX(d.stage, cost[k]);
  for (int r = 0; r < on->ranks; r++) d.rank = MAX(d.rank, load[r]);
  return d;
}

/* Every way to cut: the least dearest rank, or with a cap on it the least dearest stage. */
static double by_trying_all(const MsLayerCosts *c, const MsVirtualStages *on, double cap, int k, int left,
                            int *counts) {
  int last = on->n - 1 - on->mtp_apart;
  double best = INFINITY;
  if (k == on->n) {
    Dearest d = dearest_of(c, on, counts);
    return left > 0 ? INFINITY : isinf(cap) ? d.rank : d.rank <= cap ? d.stage : INFINITY;
  }
  for (int n = k == 0 || k >= last ? 0 : 1; n <= (k > last ? 0 : left); n++) {
    counts[k] = n;
    best = MIN(best, by_trying_all(c, on, cap, k + 1, left - n, counts));
  }
  return best;
}

/* Some first layers of their own cost, then equal ones, MTP blocks with the loss or before it, one or several stages on
 * a rank. */
static void cuts_of_a_body_are_the_best(void **state) {
  (void)state;
  static const double slack[] = {0, 0.05};
  g_autoptr(GRand) rand = g_rand_new_with_seed(3);
  int checked = 0;
  for (int draw = 0; draw < 300; draw++) {
    double layer[11];
    int ranks = g_rand_int_range(rand, 1, 4), chunks = g_rand_int_range(rand, 1, 4), odd = g_rand_int_range(rand, 0, 4),
        rank[9], counts[2 * 9], tried[9];
    MsVirtualStages on = {.n = ranks * chunks, .ranks = ranks, .rank = rank, .mtp_apart = g_rand_boolean(rand)};
    MsLayerCosts c = {.layers = g_rand_int_range(rand, 4, 11),
                      .layer = layer,
                      .first = 0.3 * g_rand_double(rand),
                      .last = 3 * g_rand_double(rand),
                      .mtp = 1.4 * g_rand_double(rand)};
    if (on.n < 2 || on.n > 6) continue;
    gboolean back = chunks == 2 && g_rand_boolean(rand);
    for (int k = 0; k < on.n; k++) rank[k] = back && k >= ranks ? on.n - 1 - k : k % ranks;
    for (int i = 0; i < c.layers; i++) layer[i] = i < odd ? 0.3 + g_rand_double(rand) : 1;
    double least = by_trying_all(&c, &on, INFINITY, 0, c.layers, tried);
    int found = ms_partition_by_cost(&c, &on, slack, 2, counts, NULL);
    assert_int_equal(found, isinf(least) ? 0 : 2);
    for (int i = 0; i < found; i++, checked++) {
      Dearest d = dearest_of(&c, &on, counts + i * on.n);
      double stage = by_trying_all(&c, &on, least * (1 + slack[i]) * (1 + 1e-12), 0, c.layers, tried);
      int sum = 0;
      for (int k = 0; k < on.n; k++) sum += counts[i * on.n + k];
      assert_int_equal(sum, c.layers);
      assert_true(d.rank <= least * (1 + slack[i]) * (1 + 1e-9));
      assert_true(d.stage <= stage * (1 + slack[i]) * (1 + 1e-9));
    }
  }
  assert_true(checked > 200);
}

/* Every layer costs something else: the dearest stage is the cheapest that there is. */
static void cuts_of_mixed_layers_are_the_best(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(5);
  for (int draw = 0; draw < 60; draw++) {
    double layer[11], none = 0;
    int rank[6] = {0, 1, 2, 3, 4, 5}, counts[6], tried[6];
    MsVirtualStages on = {.n = g_rand_int_range(rand, 2, 6), .rank = rank, .mtp_apart = g_rand_boolean(rand)};
    on.ranks = on.n;
    MsLayerCosts c = {.layers = g_rand_int_range(rand, 8, 11),
                      .layer = layer,
                      .first = g_rand_double(rand),
                      .last = 3 * g_rand_double(rand),
                      .mtp = g_rand_double(rand)};
    for (int i = 0; i < c.layers; i++) layer[i] = 1 + 0.2 * g_rand_double(rand);
    assert_int_equal(ms_partition_by_cost(&c, &on, &none, 1, counts, NULL), 1);
    assert_close(dearest_of(&c, &on, counts).stage, by_trying_all(&c, &on, INFINITY, 0, c.layers, tried), 1e-9);
  }
}

/* Where ranks have several stages of mixed layers, no layer that moves to the next stage or back makes the dearest rank
 * cheaper. */
static void mixed_layers_stand_where_they_should(void **state) {
  (void)state;
  static const int rank[6] = {0, 1, 2, 0, 1, 2};
  g_autoptr(GRand) rand = g_rand_new_with_seed(9);
  for (int draw = 0; draw < 100; draw++) {
    double layer[18], none = 0;
    int counts[6], ranks = g_rand_int_range(rand, 2, 4), two[6] = {0, 1, 0, 1, 0, 1};
    MsVirtualStages on = {.n = 6, .ranks = ranks, .rank = ranks == 2 ? two : rank, .mtp_apart = g_rand_boolean(rand)};
    MsLayerCosts c = {.layers = 18, .layer = layer, .first = g_rand_double(rand), .last = 3 * g_rand_double(rand)};
    for (int i = 0; i < c.layers; i++) layer[i] = 1 + 2 * g_rand_double(rand);
    assert_int_equal(ms_partition_by_cost(&c, &on, &none, 1, counts, NULL), 1);
    double dearest = dearest_of(&c, &on, counts).rank;
    int last = on.n - 1 - on.mtp_apart;
    for (int from = 0; from <= last; from++)
      for (int to = MAX(0, from - 1); to <= MIN(last, from + 1); to++) {
        if (from == to || counts[from] <= (from > 0 && from < last)) continue;
        counts[from]--, counts[to]++;
        assert_true(dearest_of(&c, &on, counts).rank >= dearest * (1 - 1e-9));
        counts[from]++, counts[to]--;
      }
  }
}

/* What is to spare is taken from the first stages, and a dear head leaves its stage. */
static void first_stages_have_less(void **state) {
  (void)state;
  double ones[] = {1, 1, 1, 1, 1, 1, 1, 1}, none = 0;
  int counts[4];
  assert_int_equal(ms_partition_by_cost(&(MsLayerCosts){.layers = 6, .layer = ones, .last = 4},
                                        &(MsVirtualStages){.n = 3, .ranks = 3, .rank = (const int[]){0, 1, 2}}, &none,
                                        1, counts, NULL),
                   1);
  assert_memory_equal(counts, ((int[]){3, 3, 0}), 3 * sizeof(int));
  assert_int_equal(ms_partition_by_cost(&(MsLayerCosts){.layers = 6, .layer = ones, .last = 1},
                                        &(MsVirtualStages){.n = 4, .ranks = 4, .rank = (const int[]){0, 1, 2, 3}},
                                        &none, 1, counts, NULL),
                   1);
  assert_memory_equal(counts, ((int[]){1, 2, 2, 1}), 4 * sizeof(int));
}

/* Rounded costs share cuts: what layouts cost in layers, not how long they take. */
static void costs_are_rounded(void **state) {
  (void)state;
  double layer[] = {300, 300, 300, 410, 410, 410, 410};
  g_autoptr(GBytes) bytes = NULL;
  MsLayerCosts c = {.layers = 7, .layer = layer, .first = 20, .last = 1150, .mtp = 30},
               *r = ms_layer_costs_rounded(&c, 0.25);
  assert_true(r->layer[6] == 1 && r->layer[0] == 0.75 && r->first == 0 && r->last == 2.75 &&
              r->mtp == 0.25); /* an MTP block is never nothing: it may not lose its place */
  for (int i = 0; i < 7; i++) layer[i] *= 2;
  c.first *= 2, c.last *= 2, c.mtp *= 2;
  MsLayerCosts *twice = ms_layer_costs_rounded(&c, 0.25);
  g_autoptr(GBytes) a = ms_layer_costs_bytes(r), b = ms_layer_costs_bytes(twice);
  assert_true(g_bytes_equal(a, b));
  ms_layer_costs_free(r), ms_layer_costs_free(twice);
}

/* The bound of a layout and its simulation see the same cut: whatever pieces the costs were asked of. */
static void costs_agree(const char *model) {
  const Small r = {"costs",
                   model,
                   "h100-sxm",
                   64,
                   4096,
                   256,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                   "\"tp\": [1, 2], \"cp\": 1, \"pp\": [2, 4], \"vpp\": [2, 4], \"ep\": [8, 16], \"etp\": 1",
                   "\"recompute\": \"auto\", \"ep_overlap\": \"auto\", \"dispatcher\": \"auto\","};
  g_autoptr(MsRequest) request = request_of(&r);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  int compared = 0;
  for (gint64 combo = 0; combo < space->n_combos; combo++)
    for (int tp = 1; tp <= 2; tp++)
      for (int ep = 8; ep <= 16; ep += 8)
        for (int pp = 2; pp <= 4; pp += 2) {
          g_autoptr(MsScenario) s = ms_space_scratch(space);
          const gint32 value[MS_N_AXES] = {64, tp, 1, ep, 1, 1, pp, 2};
          ms_space_apply_combo(space, combo, s);
          ms_space_apply_axes(value, s);
          if (ms_layout_check_kinds(s, MS_RULE_RANKS | MS_RULE_PIPELINE | MS_RULE_OPTIONS) >= 0 ||
              ms_pieces_depend_on_cut(s))
            continue;
          int flat = ms_cut_costs(space, value, combo, NULL, s);
          g_autoptr(MsScenario) whole = ms_scenario_copy(s, TRUE);
          ms_space_balance(space, flat, ms_space_cut_of(space, combo), whole);
          MsPieceMemo *memo = ms_memo_new(whole, NULL);
          assert_non_null(memo);
          assert_int_equal(ms_cut_costs(space, value, combo, memo, s), flat);
          compared++;
          ms_memo_free(memo);
        }
  assert_true(compared > 50);
  ms_space_free(space);
}

/* Selective recompute of a framework that only the software names is its own in lists of a request as in a run. */
static void lists_take_the_modules_of_the_framework(void **state) {
  (void)state;
  static const char *const lists[] = {
      "[{\"granularity\": \"selective\", \"modules\": [\"core_attn\"]}, {\"granularity\": \"full\"}]",
      "[{\"granularity\": \"full\"}, {\"granularity\": \"selective\", \"modules\": [\"core_attn\"]}]",
      "{\"granularity\": [\"full\", \"selective\"], \"modules\": [\"core_attn\"]}",
      "{\"granularity\": \"selective\", \"modules\": [[\"core_attn\"], [\"operators\"]]}"};
  for (int named = 0; named < 2; named++)
    for (guint i = 0; i < G_N_ELEMENTS(lists); i++) {
      g_autofree char *text = g_strdup_printf(
          "{\"name\": \"x\", \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 8, \"software\": "
          "\"torchtitan-2025-06\", %s\"training\": {\"seq_length\": 8192, \"micro_batch_size\": 1, "
          "\"global_batch_size\": 8}, \"layout\": {}, \"options\": {\"recompute\": %s}}",
          named ? "\"framework\": \"torchtitan\", " : "", lists[i]);
      g_autoptr(MsRequest) request = ms_test_request_of(text);
      MsSpace *space = ms_space_new(request, TRUE, NULL);
      int own = 0, others = 0;
      for (gint64 combo = 0; combo < space->n_combos; combo++) {
        g_autoptr(MsScenario) s = ms_space_scratch(space);
        ms_space_apply_combo(space, combo, s);
        if (s->options.recompute.granularity != MS_RECOMPUTE_SELECTIVE) continue;
        if (s->options.recompute.modules == MS_RM_OPERATORS) own++;
        else others++;
      }
      assert_true(named ? others > 0 : others == 0);
      assert_true((own > 0) == (!named || i == 3));
      ms_space_free(space);
    }
}

static void costs_do_not_depend_on_the_pipeline(void **state) {
  (void)state;
  costs_agree("{\"base\": \"deepseek-v3\", \"num_layers\": 16, \"moe_layer_freq\": \"[0]*3+[1]*13\"}");
  costs_agree("{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 16, \"tie_embeddings\": true}");
}

/* Experts left the MTP block of DeepSeek-V3 a virtual stage of its own before the loss; so does the planner, as fast or
 * faster (to a thousandth: cuts are ranked by what their layers cost, not by simulating them all). */
static void mtp_blocks_leave_the_loss(void **state) {
  (void)state;
  Small r = {"mtp",
             "\"deepseek-v3\"",
             "h100-sxm",
             1024,
             4096,
             8192,
             "\"micro_batch_size\": 1, \"precision\": \"fp8-blockwise\"",
             "\"tp\": 2, \"cp\": 1, \"pp\": 8, \"vpp\": 4, \"ep\": 64, \"etp\": 1",
             "\"dispatcher\": \"deepep\", \"ep_overlap\": true, \"recompute\": {\"granularity\": \"selective\", "
             "\"modules\": [\"mla_up_proj\", \"mlp\"]},"};
  g_autoptr(MsRequest) own = request_of(&r);
  r.layout =
      "\"tp\": 2, \"cp\": 1, \"pp\": 8, \"vpp\": 4, \"ep\": 64, \"etp\": 1, \"pipeline_layout\": \"Et*3|(tt|)*29m|L\"";
  g_autoptr(MsRequest) published = request_of(&r);
  g_autoptr(MsPlan) a = plan(own, TRUE, 1, 1), b = plan(published, TRUE, 1, 1);
  assert_true(a->n_best == 1 && b->n_best == 1);
  assert_true(a->best[0].result->step_time_s <= 1.001 * b->best[0].result->step_time_s);
  assert_true(g_str_has_suffix(a->best[0].scenario->layout.pipeline_layout, "m|L"));
}

/* A model whose first layers are dense, and whose last stage has a head: cut by cost it is faster than with layers
 * counted alike, which "auto" tries as well, where it makes a difference. */
static void counted_alike_is_a_candidate(void **state) {
  (void)state;
  const Small r = {
      "cut by cost",
      "{\"base\": \"deepseek-v3\", \"num_layers\": 16, \"moe_layer_freq\": \"[0]*3+[1]*13\", \"mtp_num_layers\": 0}",
      "gb200-nvl72",
      32,
      4096,
      256,
      "\"micro_batch_size\": 1, \"precision\": \"mxfp8\"",
      "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], \"ep\": [8], \"etp\": 1, \"pipeline_layout\": [null]",
      ""};
  Small open = r;
  open.layout = "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], \"ep\": [8], \"etp\": 1, "
                "\"pipeline_layout\": \"auto\"";
  g_autoptr(MsRequest) by_cost = request_of(&r), both = request_of(&open);
  g_autoptr(MsPlan) a = plan(by_cost, TRUE, 2, 10), b = plan(both, TRUE, 1, 10), all = plan(both, FALSE, 2, 10);
  assert_true(a->n_best > 0 && b->n_best > a->n_best);
  assert_close(b->best[0].result->step_time_s, a->best[0].result->step_time_s, 1e-12);
  int slower = 0;
  for (int i = 0; i < b->n_best; i++)
    for (int k = i + 1; k < b->n_best; k++) {
      const MsLayoutSpec *x = &b->best[i].scenario->layout, *y = &b->best[k].scenario->layout;
      if (x->pp != y->pp || x->vpp != y->vpp) continue;
      assert_string_not_equal(x->pipeline_layout ? x->pipeline_layout : "",
                              y->pipeline_layout ? y->pipeline_layout : "");
      assert_int_equal(y->decoder_first_pipeline_num_layers, 0);
      slower += b->best[k].result->step_time_s > 1.01 * b->best[i].result->step_time_s;
    }
  assert_true(slower > 0);
  ms_assert_same_plans(both, b, all);
  ms_assert_list(both, b);
  g_autoptr(MsPlan) tree =
      ms_plan(both, &(MsPlanOptions){.top = 10, .prune = TRUE, .branch = TRUE, .threads = 2}, NULL);
  ms_assert_same_plans(both, b, tree);
  Small even = {
      "even",
      "{\"base\": \"mixtral-8x7b\", \"num_layers\": 16}",
      "h100-sxm",
      32,
      4096,
      256,
      "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
      "\"tp\": [2, 4], \"cp\": 1, \"pp\": 2, \"vpp\": 1, \"ep\": 8, \"etp\": 1, \"pipeline_layout\": \"auto\"",
      ""};
  g_autoptr(MsRequest) once = request_of(&even);
  for (int branch = 0; branch < 2;
       branch++) { /* a stage of eight layers: the head makes no difference, and the layout is listed once */
    g_autoptr(MsPlan) c =
        ms_plan(once, &(MsPlanOptions){.top = 10, .prune = TRUE, .branch = branch, .threads = 1}, NULL);
    assert_int_equal(c->n_best, 2);
    for (int i = 0; i < 2; i++) assert_null(c->best[i].scenario->layout.pipeline_layout);
  }
}

/* A list of first-stage layers with 0 in it leaves the cut to the planner there: all its cuts are among the layouts. */
static void first_layers_leave_own_cuts(void **state) {
  (void)state;
  Small r = {"first layers",
             "{\"base\": \"llama3-8b\", \"num_layers\": 14}",
             "h100-sxm",
             8,
             4096,
             32,
             "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
             "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2]",
             ""};
  g_autoptr(MsRequest) closed = request_of(&r);
  r.layout = "\"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], "
             "\"decoder_first_pipeline_num_layers\": [3, 0, 5]";
  g_autoptr(MsRequest) open = request_of(&r);
  g_autoptr(MsPlan) a = plan(closed, TRUE, 1, 50), b = plan(open, TRUE, 1, 50), all = plan(open, FALSE, 2, 50);
  g_autoptr(MsPlan) tree =
      ms_plan(open, &(MsPlanOptions){.top = 50, .prune = TRUE, .branch = TRUE, .threads = 1}, NULL);
  ms_assert_same_plans(open, b, all);
  ms_assert_same_plans(open, b, tree);
  int left = 0;
  for (int i = 0; i < b->n_best; i++) {
    const MsLayoutSpec *l = &b->best[i].scenario->layout;
    if (l->decoder_first_pipeline_num_layers > 0) assert_null(l->pipeline_layout);
    else assert_close(b->best[i].result->step_time_s, a->best[left++].result->step_time_s, 1e-12);
  }
  assert_true(left == a->n_best && b->n_best > a->n_best);
}

static double best_step_s(const Small *r, gboolean branch) {
  g_autoptr(MsRequest) request = request_of(r);
  g_autoptr(MsPlan) p =
      ms_plan(request, &(MsPlanOptions){.top = 3, .prune = TRUE, .branch = branch, .threads = 1}, NULL);
  assert_non_null(p);
  return p->n_best > 0 ? p->best[0].result->step_time_s : -1;
}

/* In which order a request lists the values of a key changes nothing. A schedule with two chunks on a rank does not
 * divide 15 layers; what a plain one does with them is none of its business. */
static const MsShape *shape_of(MsShapes *shapes, const MsSpace *space, int tp, int micro_batch, int *rule) {
  const MsCandidate c = {.value = {16, tp, 1, 1, 1, micro_batch, 4, 2}};
  g_autoptr(MsScenario) s = ms_space_scratch(space);
  ms_space_apply_combo(space, 0, s);
  ms_space_apply_axes(c.value, s);
  MsPieceMemo *memo = ms_memo_new(s, NULL);
  const MsShape *shape = ms_shapes_get(shapes, ms_shapes_map(shapes, memo), memo, space, &c, s, rule);
  ms_memo_free(memo);
  return shape;
}

/* As many microbatches of a step, half as many between two flushes: too few for the schedule, which is said although
 * the cut is known. */
static void flushes_tell_shapes_apart(void **state) {
  (void)state;
  const Small r = {"flushes",
                   "\"llama3-8b\"",
                   "h100-sxm",
                   16,
                   4096,
                   64,
                   "\"micro_batch_size\": [1, 2], \"local_batch_size\": 4, \"precision\": \"bf16\"",
                   "\"tp\": [1, 2], \"cp\": 1, \"pp\": 4, \"vpp\": 2, \"pipeline_layout\": \"E(t*4|)*7t*4L\"",
                   ""};
  g_autoptr(MsRequest) request = request_of(&r);
  request->base->framework = MS_FRAMEWORK_TORCHTITAN;
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  MsShapes *shapes = ms_shapes_new();
  int rule;
  assert_non_null(shape_of(shapes, space, 1, 1, &rule));
  assert_null(shape_of(shapes, space, 2, 2, &rule));
  assert_string_equal(ms_rules[rule].name, "microbatch-group");
  ms_shapes_free(shapes);
  ms_space_free(space);
}

static void the_order_of_values_changes_nothing(void **state) {
  (void)state;
  static const char *const layouts[] = {"\"schedule\": [\"zb-v\", \"v-half\", \"1f1b\"]",
                                        "\"schedule\": [\"1f1b\", \"zb-v\", \"v-half\"]"},
                           *const options[] = {"", "\"recompute\": {\"granularity\": \"full\", \"method\": \"block\", "
                                                   "\"num_layers\": [1, 3]},"};
  for (int i = 0; i < 4; i++) {
    char *layout[2];
    Small r[2];
    for (int k = 0; k < 2; k++) {
      layout[k] = g_strdup_printf("\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1, %s", layouts[k]);
      r[k] = (Small){"order",
                     "{\"base\": \"llama3-8b\", \"num_layers\": 15}",
                     "b200-sxm",
                     8,
                     4096,
                     32,
                     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                     layout[k],
                     options[i / 2]};
    }
    double a = best_step_s(&r[0], i % 2), b = best_step_s(&r[1], i % 2);
    g_free(layout[0]), g_free(layout[1]);
    assert_true(a > 0 && a == b);
  }
}

/* A figure of the machine that is not known refuses the layouts that need it, by name, and no others; in every mode. */
static void what_is_unknown_is_one_more_reason(void **state) {
  (void)state;
  static const struct {
    const char *options, *hole, *rule;
  } cases[] = {{"\"optimizer_offload_fraction\": [1, 0],", "host_link_Bps", "optimizer-link-known"},
               {"\"offload_modules\": [[\"core_attn\"], []],", "host_link_Bps", "offload-link-known"},
               {"", "nic_Bps", "not-simulated"}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    const Small r = {"unknown",
                     "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                     "h100-sxm",
                     8,
                     4096,
                     64,
                     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                     "\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1",
                     cases[i].options};
    g_autoptr(MsRequest) request = request_of(&r);
    MsHardware *hardware = (MsHardware *)request->base->hardware;
    *(i < 2 ? &hardware->host_link_Bps : &hardware->nic_Bps) = NAN;
    if (i == 2) hardware->nvlink_domain_gpus = hardware->gpus_per_node = 4;
    MsPlanOptions options[3] = {{.top = 5, .prune = TRUE}, {.top = 5}, {.top = 5, .prune = TRUE, .branch = TRUE}};
    double best_s = 0;
    for (int mode = 0; mode < 3; mode++) {
      g_autoptr(GError) error = NULL;
      g_autoptr(MsPlan) p = ms_plan(request, &options[mode], &error);
      if (!p) fail_msg("%s, mode %d: %s", cases[i].hole, mode, error->message);
      gboolean named = FALSE;
      for (int k = 0; k < p->n_refusals; k++)
        named |= !strcmp(p->refusals[k].name, cases[i].rule) && strstr(p->refusals[k].example, cases[i].hole);
      assert_true(named);
      if (i == 2) assert_int_equal(p->n_best, 0);
      else assert_true(p->n_best > 0 && (mode == 0 || p->best[0].result->step_time_s == best_s));
      if (p->n_best > 0) best_s = p->best[0].result->step_time_s;
    }
  }
}

static gboolean starts_pipelines(const MsScenario *s, gpointer user, GError **error) {
  return s->layout.pp >= *(const int *)user || ms_input_error(error, NULL, 0, "layout.pp", "is %d", s->layout.pp);
}

/* What nothing starts is refused with what the form says, and the list is that of the others, in every mode. */
static void what_is_not_started_is_refused(void **state) {
  (void)state;
  const Small r = {"started",
                   "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                   "h100-sxm",
                   8,
                   4096,
                   64,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                   "\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": 1",
                   ""},
              deep = {r.name, r.model, r.hardware, r.gpus,
                      r.seq,  r.batch, r.training, "\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [2, 4], \"vpp\": 1",
                      ""};
  g_autoptr(MsRequest) request = request_of(&r), fewer = request_of(&deep);
  int least = 2;
  g_autoptr(MsPlan) want = plan(fewer, TRUE, 1, 3), all = plan(request, TRUE, 1, 3);
  assert_int_equal(all->best[0].scenario->layout.pp, 1);
  for (int mode = 0; mode < 3; mode++) {
    const MsPlanOptions options = {.top = 3,
                                   .prune = mode != 1,
                                   .branch = mode == 2,
                                   .threads = 1,
                                   .starts = starts_pipelines,
                                   .starts_user = &least};
    g_autoptr(MsPlan) p = ms_plan(request, &options, NULL);
    assert_int_equal(p->n_best, want->n_best);
    for (int i = 0; i < p->n_best; i++)
      assert_true(p->best[i].result->step_time_s == want->best[i].result->step_time_s);
    gboolean named = FALSE;
    for (int k = 0; k < p->n_refusals; k++)
      named |= !strcmp(p->refusals[k].name, "not-started") && strstr(p->refusals[k].example, "layout.pp: is 1");
    assert_true(named);
  }
}

/* Offloading needs a link to the host: without one "auto" is to offload nothing. */
static void offloading_needs_a_link(void **state) {
  (void)state;
  static const Small small[] = {
      {"link", "\"mixtral-8x7b\"", "h100-sxm", 8, 4096, 32, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
       "\"tp\": 1, \"pp\": 2, \"ep\": 4", "\"offload_modules\": \"auto\","},
      {"no link", "\"mixtral-8x7b\"", "ascend-910b", 8, 4096, 32, "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
       "\"tp\": 1, \"pp\": 2, \"ep\": 4", "\"offload_modules\": \"auto\","}};
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsRequest) request = request_of(&small[i]);
    if (i == 1) ms_scenario_be_strict(request->base); /* its link is assumed */
    MsSpace *space = ms_space_new(request, TRUE, NULL);
    int found = 0;
    for (int k = 0; k < space->n_choices; k++) {
      const MsChoice *c = &space->choice[k];
      if (strcmp(c->open->path, "options.offload_modules")) continue;
      found++;
      assert_int_equal(c->n, i == 0 ? 3 : 1);
      assert_true(c->value[0].value.bits == 0);
    }
    assert_int_equal(found, 1);
    ms_space_free(space);
  }
}

/* Dispatchers that need nobody to talk to sort tokens each in its own way: none stands for the other. */
static void dispatchers_sort_without_a_group(void **state) {
  (void)state;
  static const char *const dispatchers[] = {"\"alltoall\"", "\"allgather\"", "[\"alltoall\", \"allgather\"]"};
  double best_s[G_N_ELEMENTS(dispatchers)];
  for (guint i = 0; i < G_N_ELEMENTS(dispatchers); i++) {
    g_autofree char *text = g_strdup_printf(
        "{\"model\": {\"base\": \"gpt-oss-20b\", \"num_layers\": 4}, \"hardware\": \"h100-sxm\", \"gpus\": 8, "
        "\"training\": {\"seq_length\": 1024, \"global_batch_size\": 8}, \"layout\": {\"tp\": 1, \"cp\": 1, \"pp\": 1, "
        "\"vpp\": 1, \"ep\": 1, \"etp\": 1}, \"options\": {\"dispatcher\": %s, \"recompute\": {\"granularity\": "
        "\"none\"}, "
        "\"cuda_graph_scope\": [\"moe_router\", \"moe_preprocess\"]}}",
        dispatchers[i]);
    g_autoptr(MsRequest) request = ms_test_request_of(text);
    g_autoptr(MsPlan) p = plan(request, TRUE, 1, 2);
    assert_true(p->n_best > 0);
    best_s[i] = p->best[0].result->step_time_s;
  }
  assert_true(best_s[1] < best_s[0] && best_s[2] == best_s[1]);
}

/* EP that does not divide the experts is refused in every mode where their loads are drawn, and shown with a cut. */
static void experts_that_do_not_divide_are_refused(void **state) {
  (void)state;
  const Small r = {"experts",
                   "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}",
                   "h100-sxm",
                   48,
                   2048,
                   48,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\", \"routing\": {\"zipf\": 0.5}",
                   "\"tp\": 1, \"cp\": 1, \"pp\": 2, \"vpp\": 1, \"ep\": [24, 2]",
                   ""};
  g_autoptr(MsRequest) request = request_of(&r);
  for (int mode = 0; mode < 3; mode++) {
    const MsPlanOptions options = {.top = 3, .prune = mode != 1, .branch = mode == 2, .threads = 1};
    g_autoptr(MsPlan) p = ms_plan(request, &options, NULL);
    assert_true(p->n_best > 0);
    for (int i = 0; i < p->n_best; i++) assert_int_equal(p->best[i].scenario->layout.ep, 2);
    gboolean named = FALSE;
    for (int k = 0; k < p->n_refusals; k++) named |= !strcmp(p->refusals[k].name, "ep-divides-experts");
    assert_true(named);
  }
}

/* More optimizer instances than ranks are refused in every mode, though pieces and cuts are costed before. */
static void instances_beyond_ranks_are_refused(void **state) {
  (void)state;
  const Small r = {"instances",
                   "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}",
                   "h100-sxm",
                   16,
                   4096,
                   16,
                   "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                   "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1, \"ep\": 2, \"order\": \"auto\"",
                   "\"num_distributed_optimizer_instances\": [2, 64],"},
              beyond = {r.name,     r.model,  r.hardware,
                        r.gpus,     r.seq,    r.batch,
                        r.training, r.layout, "\"num_distributed_optimizer_instances\": 64,"};
  g_autoptr(MsRequest) request = request_of(&r), none = request_of(&beyond);
  double best_s = 0;
  for (int mode = 0; mode < 3; mode++) {
    const MsPlanOptions options = {.top = 3, .prune = mode != 1, .branch = mode == 2, .threads = 1};
    g_autoptr(MsPlan) some = ms_plan(request, &options, NULL), empty = ms_plan(none, &options, NULL);
    assert_true(some->n_best > 0 && empty->n_best == 0);
    gboolean named = FALSE;
    for (int k = 0; k < empty->n_refusals; k++) named |= !strcmp(empty->refusals[k].name, "optimizer-instances-divide");
    assert_true(named);
    if (mode == 0) best_s = some->best[0].result->step_time_s;
    assert_true(some->best[0].result->step_time_s == best_s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pruned_list_is_the_exhaustive_list),
      cmocka_unit_test(neighbours_tell_the_truth),
      cmocka_unit_test(fewer_kept_is_a_prefix),
      cmocka_unit_test(nothing_fits),
      cmocka_unit_test(offloading_needs_a_link),
      cmocka_unit_test(experts_that_do_not_divide_are_refused),
      cmocka_unit_test(instances_beyond_ranks_are_refused),
      cmocka_unit_test(dispatchers_sort_without_a_group),
      cmocka_unit_test(shortcuts_change_nothing),
      cmocka_unit_test(roles_hold),
      cmocka_unit_test(roles_of_gradients_hold),
      cmocka_unit_test(objectives_rank),
      cmocka_unit_test(deadlines_count_gpus_first),
      cmocka_unit_test(objectives_need_figures),
      cmocka_unit_test(resume_simulates_nothing_twice),
      cmocka_unit_test(what_is_given_stays),
      cmocka_unit_test(auto_without_candidates_is_an_error),
      cmocka_unit_test(partitions_are_balanced),
      cmocka_unit_test(cuts_of_a_body_are_the_best),
      cmocka_unit_test(cuts_of_mixed_layers_are_the_best),
      cmocka_unit_test(mixed_layers_stand_where_they_should),
      cmocka_unit_test(first_stages_have_less),
      cmocka_unit_test(costs_are_rounded),
      cmocka_unit_test(lists_take_the_modules_of_the_framework),
      cmocka_unit_test(costs_do_not_depend_on_the_pipeline),
      cmocka_unit_test(mtp_blocks_leave_the_loss),
      cmocka_unit_test(counted_alike_is_a_candidate),
      cmocka_unit_test(first_layers_leave_own_cuts),
      cmocka_unit_test(flushes_tell_shapes_apart),
      cmocka_unit_test(the_order_of_values_changes_nothing),
      cmocka_unit_test(what_is_not_started_is_refused),
      cmocka_unit_test(what_is_unknown_is_one_more_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
