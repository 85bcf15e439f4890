/* Drawn routing: rows are conserved, the what-ifs do what they say, Monte Carlo is reproducible and its errors shrink
 * as 1/sqrt(n). */
#include "lib/close.h"
#include "lib/tier.h"

#include "base/err.h"
#include "base/stats.h"
#include "describe/framework.h"
#include "lib/world.h"
#include "sim/simulate.h"
#include "study/draws.h"

#include <string.h>

static MsScenario *run(MsRoutingKind kind, double skew, guint32 seed) {
  MsScenario *s = ms_test_run("qwen3-30b-a3b", 0, "h100-sxm", 32);
  s->layout.pp = 4, s->layout.ep = 8;
  s->training.global_batch_size = 8 * 16;
  s->training.routing = (MsRouting){.kind = kind, .skew = skew, .seed = seed};
  return s;
}

static MsRoutingDraw *draw_like(const MsScenario *s, MsRoutingDraw *like, const MsScenario *of) {
  GError *error = NULL;
  g_autoptr(MsLayout) l = ms_layout_new_or_error(s, &error);
  if (!l) fail_msg("%s", error->message);
  MsRoutingDraw *draw = ms_routing_draw(s, l, 4096, like, of, &error);
  if (!draw) fail_msg("%s", error ? error->message : "nothing drawn");
  return draw;
}

static MsRoutingDraw *draw_of(const MsScenario *s) { return draw_like(s, NULL, NULL); }

static double mean_hottest(const MsRoutingDraw *draw) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < draw->layers; i++)
    if (ms_routing_hottest(draw, i) > 0) sum += ms_routing_hottest(draw, i) / draw->mean, n++;
  return sum / n;
}

static MsHistogram *histogram(const char *text) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "h.json", &error);
  MsHistogram *h = doc ? ms_histogram_parse(doc, "h.json", &error) : NULL;
  if (!h) fail_msg("%s", error->message);
  return h;
}

/* 128 experts; `busy` tokens for expert 0, `rest` for each other. */
static MsHistogram *peaked(double busy, double rest) {
  GString *text = g_string_new("{\"schema\": 1, \"tokens\": [[");
  for (int i = 0; i < 128; i++) g_string_append_printf(text, "%s%g", i ? "," : "", i ? rest : busy);
  g_string_append(text, "]]}");
  MsHistogram *h = histogram(text->str);
  g_string_free(text, TRUE);
  return h;
}

/* --- draws ----------------------------------------------------------------------------------------------------- */
static void every_visit_arrives_once(void **state) {
  (void)state;
  const MsRoutingKind kinds[] = {MS_ROUTING_ZIPF, MS_ROUTING_DIRICHLET};
  for (int k = 0; k < 2; k++)
    for (int what = 0; what < 4; what++) {
      g_autoptr(MsScenario) s = run(kinds[k], 1, 5);
      if (what == 1) s->training.routing.bias_update_rate = 1e-3, s->training.routing.bias_updates = 100;
      if (what >= 2)
        s->training.routing.placement = MS_PLACEMENT_LOAD, s->training.routing.replicas = what == 3 ? 16 : 0;
      g_autoptr(MsRoutingDraw) d = draw_of(s), again = draw_of(s);
      assert_int_equal(d->ranks, 8);
      assert_close(d->mean, 4096 * 8, 0);
      assert_memory_equal(d->rows, again->rows, sizeof(double) * (size_t)d->layers * 8); /* same seed, same draw */
      for (int i = 0; i < s->model->num_layers; i++) {
        double sum = 0;
        for (int rank = 0; rank < 8; rank++) sum += d->rows[i * 8 + rank];
        assert_close(sum, 8 * d->mean, 1e-12);
      }
      s->training.routing.seed = 6;
      g_autoptr(MsRoutingDraw) other = draw_of(s);
      assert_true(memcmp(d->rows, other->rows, sizeof(double) * (size_t)d->layers * 8) != 0);
    }
}

static void a_draw_is_shared_where_it_would_be_the_same(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_ZIPF, 1, 5), other = ms_scenario_copy(s, TRUE);
  g_autoptr(MsRoutingDraw) first = draw_of(s);
  other->layout.pp = 2, other->training.micro_batch_size = 2;
  g_autoptr(MsRoutingDraw) same = draw_like(other, first, s);
  assert_ptr_equal(same, first);
  other->layout.ep = 4;
  g_autoptr(MsRoutingDraw) fewer = draw_like(other, first, s), alone = draw_of(other);
  assert_int_equal(fewer->ranks, 4);
  assert_memory_equal(fewer->rows, alone->rows, sizeof(double) * (size_t)alone->layers * 4);
  other->layout.ep = 8, other->training.routing.seed = 6;
  g_autoptr(MsRoutingDraw) reseeded = draw_like(other, first, s);
  assert_memory_not_equal(reseeded->rows, first->rows, sizeof(double) * (size_t)first->layers * 8);
}

/* How popular an expert is in a layer follows from the seed alone: layouts and batches that are compared meet the same
 * skew, but for the noise of the tokens. */
static void popularity_is_the_same_for_all_tokens(void **state) {
  (void)state;
  const MsRoutingKind kinds[] = {MS_ROUTING_ZIPF, MS_ROUTING_DIRICHLET};
  for (int k = 0; k < 2; k++) {
    g_autoptr(MsScenario) s = run(kinds[k], 1, 5);
    g_autoptr(MsLayout) l = ms_layout_new_or_error(s, NULL);
    g_autoptr(MsRoutingDraw) few = ms_routing_draw(s, l, 4096, NULL, NULL, NULL),
                             other = ms_routing_draw(s, l, 5000, NULL, NULL, NULL);
    for (int i = 0; i < s->model->num_layers * 8; i++)
      assert_close(other->rows[i] / other->mean, few->rows[i] / few->mean, 0.05);
  }
}

static void histograms_are_followed(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_HISTOGRAM, 0, 1);
  s->training.routing.histogram = peaked(1, 1);
  g_autoptr(MsRoutingDraw) even = draw_of(s);
  assert_true(mean_hottest(even) < 1.02); /* 32768 rows a rank: the noise of the draw alone */
  ms_histogram_unref(s->training.routing.histogram);
  s->training.routing.histogram =
      peaked(127, 1); /* half of all tokens to expert 0, but it can get one visit of each at most: 1/8 */
  g_autoptr(MsRoutingDraw) busy = draw_of(s);
  for (int i = 0; i < s->model->num_layers; i++)
    assert_close(busy->rows[i * 8], (1 / 8.0 + 15 * (7 / 8.0) / 127) * 8 * busy->mean, 0.02);
  for (int i = 0; i < s->model->num_layers; i++) assert_close(ms_routing_hottest(busy, i), busy->rows[i * 8], 0);
}

static void layers_have_their_own_row(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_HISTOGRAM, 0, 1);
  GString *text = g_string_new("{\"schema\": 1, \"tokens\": [");
  for (int i = 0; i < s->model->num_layers; i++) { /* all tokens of layer i to rank i mod 8 */
    g_string_append(text, i ? ",[" : "[");
    for (int j = 0; j < 128; j++) g_string_append_printf(text, "%s%d", j ? "," : "", j / 16 == i % 8);
    g_string_append_c(text, ']');
  }
  g_string_append(text, "]}");
  s->training.routing.histogram = histogram(text->str);
  g_string_free(text, TRUE);
  g_autoptr(MsRoutingDraw) d = draw_of(s);
  for (int i = 0; i < s->model->num_layers; i++)
    for (int rank = 0; rank < 8; rank++) assert_close(d->rows[i * 8 + rank], rank == i % 8 ? 8 * d->mean : 0, 0);
}

static void what_ifs(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_ZIPF, 0.8, 2);
  g_autoptr(MsRoutingDraw) plain = draw_of(s);
  s->training.routing.bias_update_rate = 1e-3;
  double before = mean_hottest(plain);
  for (int updates = 100; updates <= ms_by_tier(1000, 10000); updates *= 10) { /* the longer, the less skew is left */
    s->training.routing.bias_updates = updates;
    g_autoptr(MsRoutingDraw) balanced = draw_of(s);
    assert_true(mean_hottest(balanced) < before);
    before = mean_hottest(balanced);
  }
  assert_true(before < (ms_by_tier(0, 1) ? 1.03 : 1.25));
  s->training.routing.bias_update_rate = 0, s->training.routing.bias_updates = 0;
  s->training.routing.placement = MS_PLACEMENT_LOAD;
  g_autoptr(MsRoutingDraw) placed = draw_of(s);
  assert_true(mean_hottest(placed) < mean_hottest(plain));
  before = mean_hottest(placed);
  for (int replicas = 8; replicas <= 32; replicas *= 2) {
    s->training.routing.replicas = replicas;
    g_autoptr(MsRoutingDraw) more = draw_of(s);
    assert_true(mean_hottest(more) < before);
    before = mean_hottest(more);
  }
}

/* --- what a run makes of it ------------------------------------------------------------------------------------ */
static void the_slowest_rank_decides(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_BALANCED, 0, 0);
  g_autoptr(MsResult) balanced = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->training.routing = (MsRouting){.kind = MS_ROUTING_ZIPF, .skew = 0.6, .seed = 4};
  g_autoptr(MsResult) bound = ms_test_simulate(s, MS_FIDELITY_BOUND), fast = ms_test_simulate(s, MS_FIDELITY_FAST),
                      full = ms_test_simulate(s, MS_FIDELITY_FULL);
  assert_true(bound->step_time_s <= full->step_time_s);
  assert_close(fast->step_time_s, full->step_time_s, 0.05);
  double grouped = full->time.family_s[MS_FAMILY_GROUPED] / balanced->time.family_s[MS_FAMILY_GROUPED];
  assert_close(grouped, full->routing.hottest, 0.1); /* expert GEMMs follow the rows of the hottest rank */
  assert_close(full->time.family_s[MS_FAMILY_ATTENTION], balanced->time.family_s[MS_FAMILY_ATTENTION], 0.01);
  assert_true(full->routing.peak_B > balanced->memory->stage[balanced->memory->peak_stage].device_B);
  assert_true(full->routing.peak_coldest_B < balanced->memory->stage[balanced->memory->peak_stage].device_B);
  assert_true(balanced->routing.hottest == 0);
  double least = full->stage_time[1].family_s[MS_FAMILY_GROUPED],
         most = least; /* every layer has its own draw: stages differ */
  for (int i = 1; i < 3; i++) {
    double at = full->stage_time[i].family_s[MS_FAMILY_GROUPED];
    least = MIN(least, at), most = MAX(most, at);
  }
  assert_true(most > least);
}

typedef struct {
  double busiest, sent_B; /* rows of the busiest rank; bytes of a dispatch forward */
} Arriving;

static Arriving arriving(const char *model, MsDispatcher dispatcher, MsRouting routing) {
  g_autoptr(MsScenario) s = ms_test_run(model, 0, "h100-sxm", 32);
  s->layout.pp = 4, s->layout.ep = 8;
  s->training.global_batch_size = 8 * 16;
  s->options.dispatcher = dispatcher;
  s->training.routing = routing;
  GError *error = NULL;
  g_autoptr(MsLayout) l = ms_layout_new_or_error(s, &error);
  g_autoptr(MsWork) work = l ? ms_work_new(s, l, &error) : NULL;
  if (!work) fail_msg("%s", error->message);
  Arriving a = {.busiest = work->rows_expert};
  for (int i = 0; i < work->n_pieces; i++)
    for (int k = 0; work->pieces[i].is_moe && k < work->pieces[i].forward.n; k++)
      if (work->pieces[i].forward.op[k].kind == MS_OP_DISPATCH) a.sent_B = work->pieces[i].forward.op[k].message_B;
  return a;
}

/* Rows of the busiest rank over the mean. */
static double natural_rows(const char *model) {
  return arriving(model, MS_DISPATCH_ALLTOALL, (MsRouting){.kind = MS_ROUTING_NATURAL}).busiest /
         arriving(model, MS_DISPATCH_ALLTOALL, (MsRouting){.kind = MS_ROUTING_BALANCED}).busiest;
}

static MsRouting dropping(double factor, gboolean forced) {
  return (MsRouting){.kind = MS_ROUTING_CAPACITY, .capacity_factor = factor, .forced_balance = forced};
}

/* A router that chooses by itself under a capacity of F: the busiest rank has what it would have, F times the mean at
 * most; forced into balance it has the mean. */
static void capacity_cuts_the_busiest(void **state) {
  (void)state;
  const char *model = "gpt-oss-20b"; /* no balancing loss: the busiest has twice the mean and more */
  const MsDispatcher all = MS_DISPATCH_ALLTOALL;
  Arriving mean = arriving(model, all, (MsRouting){.kind = MS_ROUTING_BALANCED}),
           natural = arriving(model, all, (MsRouting){.kind = MS_ROUTING_NATURAL});
  assert_close(arriving(model, all, dropping(1000, FALSE)).busiest, natural.busiest, 1e-9);
  assert_close(arriving(model, all, dropping(1000, TRUE)).busiest, mean.busiest, 1e-9);
  assert_close(arriving(model, all, dropping(1.5, FALSE)).busiest, 1.5 * mean.busiest, 1e-9);
  assert_close(arriving(model, all, dropping(0.5, FALSE)).busiest, mean.busiest / 2, 1e-9);
}

/* What is dropped is not sent. */
static void dropped_copies_stay(void **state) {
  (void)state;
  static const MsDispatcher kinds[] = {MS_DISPATCH_ALLTOALL, MS_DISPATCH_DEEPEP, MS_DISPATCH_HYBRIDEP};
  for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++) {
    double all = arriving("qwen3-30b-a3b", kinds[i], dropping(1, TRUE)).sent_B,
           quarter = arriving("qwen3-30b-a3b", kinds[i], dropping(0.25, TRUE)).sent_B;
    assert_true(quarter > 0 && quarter < 0.5 * all);
  }
}

static void routing_without_a_balancing_loss(void **state) {
  (void)state;
  double with = natural_rows("qwen3-30b-a3b"), without = natural_rows("gpt-oss-20b");
  assert_true(with > 1 && with < 1.8);
  /* most visits go to the same 4 of 32 experts, and the fullest of 8 ranks has nearly 1.6 of these: three times the
   * mean */
  assert_true(without > 2 && without < ms_expected_fullest(32, 4, 8) * 8 / 4);
}

/* Copies of a token that DeepEP sends, per pass of a layer, and combines made again. */
typedef struct {
  double to_ranks_B, to_domains_B; /* of a dispatch forward */
  int again;                       /* combines among the recomputed rows of a layer */
  int routers;                     /* products of the router in a layer's forward */
} Exchange;

static Exchange exchange_of(const char *model, MsRoutingKind kind, int gpus) {
  g_autoptr(MsScenario) s = ms_test_run(model, 0, "h100-sxm", gpus);
  ms_fields_defaults(&ms_options_table, &s->options);
  s->framework = MS_FRAMEWORK_AUTOMODEL;
  ms_framework_defaults(s->framework, &s->options);
  s->layout.ep = gpus, s->layout.pp = 1, s->options.dispatcher = MS_DISPATCH_DEEPEP;
  s->options.recompute = (MsRecomputeSpec){
      .granularity = MS_RECOMPUTE_FULL, .method = MS_RECOMPUTE_UNIFORM, .num_layers = 1, .modules = 0};
  s->training.global_batch_size = gpus * s->training.micro_batch_size;
  s->training.routing = (MsRouting){.kind = kind};
  GError *error = NULL;
  g_autoptr(MsLayout) l = ms_layout_new_or_error(s, &error);
  g_autoptr(MsWork) work = l ? ms_work_new(s, l, &error) : NULL;
  if (!work) fail_msg("%s", error->message);
  Exchange x = {0};
  const MsPiece *piece = NULL;
  for (int i = 0; i < work->n_pieces && !piece; i++)
    if (work->pieces[i].is_moe) piece = &work->pieces[i];
  assert_non_null(piece);
  for (int i = 0; i < piece->forward.n; i++) {
    const MsOp *op = &piece->forward.op[i];
    if (op->kind == MS_OP_DISPATCH) x.to_ranks_B = op->level_B[0], x.to_domains_B = op->level_B[1];
    x.routers += strcmp(op->name, "router") == 0;
  }
  for (int i = 0; i < piece->backward.n; i++)
    x.again += piece->backward.op[i].pass == MS_PASS_RECOMPUTE && piece->backward.op[i].kind == MS_OP_COMBINE;
  return x;
}

/* Weights travel once with a token whatever it reaches: a few hundredths of its bytes. 128 experts, 8 a token. On 8
 * ranks of 16 experts every run of 8 lies in one rank; chosen at random it reaches 8 (1 - C(112, 8) / C(128, 8))
 * = 5.38. On 64 ranks of 2 in 8 nodes of 16 it reaches 4 ranks of one node. */
static void experts_in_turn_are_neighbours(void **state) {
  (void)state;
  Exchange any = exchange_of("qwen3-30b-a3b", MS_ROUTING_BALANCED, 8),
           turn = exchange_of("qwen3-30b-a3b", MS_ROUTING_ROUND_ROBIN, 8);
  assert_close(any.to_ranks_B / turn.to_ranks_B, ms_expected_blocks(128, 8, 8), 0.04);
  assert_int_equal(any.routers, 1);
  assert_int_equal(turn.routers, 0);
  assert_int_equal(turn.again, 0);
  any = exchange_of("qwen3-30b-a3b", MS_ROUTING_BALANCED, 64),
  turn = exchange_of("qwen3-30b-a3b", MS_ROUTING_ROUND_ROBIN, 64);
  assert_close(any.to_domains_B / turn.to_domains_B, ms_expected_blocks(128, 8, 8), 1e-9);
  assert_close(any.to_ranks_B / turn.to_ranks_B, ms_expected_blocks(128, 8, 64) / 4, 0.04);
  /* 512 experts, 22 a token, 8 a rank: counted one by one. The latent projection behind combine reads what it gave. */
  turn = exchange_of("nemotron-3-super", MS_ROUTING_ROUND_ROBIN, 64);
  double ranks = 0;
  for (int t = 0; t < 256; t++) {
    gboolean hit[64] = {FALSE};
    for (int j = 0; j < 22; j++) hit[(t * 22 + j) % 512 / 8] = TRUE;
    for (int r = 0; r < 64; r++) ranks += hit[r] / 256.0;
  }
  any = exchange_of("nemotron-3-super", MS_ROUTING_BALANCED, 64);
  assert_close(any.to_ranks_B / turn.to_ranks_B, ms_expected_blocks(512, 22, 64) / ranks, 0.04);
  assert_int_equal(turn.again, 1);
}

static void replicas_cost_memory_and_gradients(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_ZIPF, 0.8, 4);
  s->training.routing.placement = MS_PLACEMENT_LOAD;
  g_autoptr(MsResult) none = ms_test_simulate(s, MS_FIDELITY_FULL);
  s->training.routing.replicas = 32; /* a quarter more experts on every rank */
  g_autoptr(MsResult) more = ms_test_simulate(s, MS_FIDELITY_FULL);
  g_auto(MsLowered) l = ms_test_lower(s);
  MsStageParams p = ms_work_stage_params(l.work, 1);
  s->training.routing.replicas = 0;
  g_auto(MsLowered) without = ms_test_lower(s);
  assert_close(p.params_expert, 1.25 * ms_work_stage_params(without.work, 1).params_expert, 1e-12);
  assert_true(more->memory->stage[1].parameters_B > none->memory->stage[1].parameters_B);
  assert_true(more->time.family_s[MS_FAMILY_GROUPED] < none->time.family_s[MS_FAMILY_GROUPED]);
  MsStepOps ops;
  s->training.routing.replicas = 32;
  ms_work_step_ops(l.work, 1, &ops);
  int rows = 0;
  for (int i = 0; i < ops.after.n; i++)
    if (!strcmp(ops.after.op[i].name,
                "replica gradients")) { /* 2 x 32 of 160 copies have a partner; EDP is 1: the whole FP32 gradient */
      assert_close(ops.after.op[i].message_B, 4 * 0.4 * p.params_expert, 1e-12);
      rows++;
    }
  assert_int_equal(rows, 1);
  ms_step_ops_clear(&ops);
}

static void assert_refused(MsScenario *s, const char *part) {
  GError *error = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
  assert_null(r);
  if (!strstr(error->message, part)) fail_msg("\"%s\" does not contain \"%s\"", error->message, part);
  g_clear_error(&error);
}

static void impossible_draws_are_refused(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_HISTOGRAM, 0, 1);
  s->training.routing.histogram = histogram("{\"schema\": 1, \"tokens\": [[1, 2, 3]]}");
  assert_refused(s, "h.json has 3 experts a layer, the model has 128");
  ms_histogram_unref(s->training.routing.histogram);
  MsHistogram *h = s->training.routing.histogram = peaked(1, 1);
  h->layers = 2; /* as if it had two */
  assert_refused(s, "h.json has 2 layers, the model has 48 with experts");
  h->layers = 1;
  s->training.routing.placement = MS_PLACEMENT_LOAD, s->training.routing.replicas = 12;
  assert_refused(s, "12 copies cannot be spread evenly over ep 8");
}

static void wrong_files_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *why;
  } wrong[] = {{"{\"schema\": 1}", "tokens"},
               {"{\"schema\": 1, \"tokens\": []}", "must be a list of layers"},
               {"{\"schema\": 1, \"tokens\": [[1, 2], [3]]}", "tokens[1]: has 1 experts, the layers before it have 2"},
               {"{\"schema\": 1, \"tokens\": [[1, -2]]}", "tokens[0][1]: must be a number of tokens"},
               {"{\"schema\": 1, \"tokens\": [[1, \"2\"]]}", "tokens[0][1]: must be a number of tokens"},
               {"{\"schema\": 1, \"tokens\": [[0, 0]]}", "tokens[0]: has no token at all"},
               {"{\"schema\": 1, \"tokens\": [[]]}", "tokens[0]: has no token at all"},
               {"{\"schema\": 1, \"tokens\": [[1]], \"layers\": 1}", "layers"}};
  for (guint i = 0; i < G_N_ELEMENTS(wrong); i++) {
    GError *error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(wrong[i].text, -1, "h.json", NULL);
    assert_null(ms_histogram_parse(doc, "h.json", &error));
    assert_true(g_str_has_prefix(error->message, "h.json:1: "));
    if (!strstr(error->message, wrong[i].why)) fail_msg("\"%s\" does not contain \"%s\"", error->message, wrong[i].why);
    g_clear_error(&error);
  }
}

/* --- Monte Carlo ----------------------------------------------------------------------------------------------- */
static MsDraws draws(const MsScenario *s, int n, int threads) {
  MsDraws d;
  GError *error = NULL;
  if (!ms_draws_run(s, MS_FIDELITY_FAST, n, threads, FALSE, &d, &error)) fail_msg("%s", error->message);
  return d;
}

static void threads_change_nothing(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_DIRICHLET, 5, 11);
  MsDraws one = draws(s, 24, 1), four = draws(s, 24, 4);
  assert_memory_equal(&one.step_time_s, &four.step_time_s, 3 * sizeof one.step_time_s);
  MsDraws first = draws(s, 1, 2);
  g_autoptr(MsResult) alone = ms_test_simulate(s, MS_FIDELITY_FAST);
  assert_true(first.step_time_s.mean == alone->step_time_s && first.step_time_s.sd == 0); /* draw 0 is the scenario */
  assert_true(one.step_time_s.least <= alone->step_time_s && alone->step_time_s <= one.step_time_s.most);
}

static void errors_shrink_with_the_root_of_n(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autoptr(MsScenario) s = run(MS_ROUTING_DIRICHLET, 5, 1);
  s->model->num_layers = 4; /* quick */
  MsDraws few = draws(s, 64, 0), many = draws(s, 1024, 0);
  assert_close(few.step_time_s.mean_error / many.step_time_s.mean_error, 4,
               0.3); /* sqrt(1024 / 64), each known to 1/sqrt(2 n) */
  assert_close(few.step_time_s.p50_error / many.step_time_s.p50_error, 4, 0.6);
  assert_true(fabs(few.step_time_s.mean - many.step_time_s.mean) < 4 * few.step_time_s.mean_error);
  assert_true(many.step_time_s.least <= few.step_time_s.least && many.step_time_s.most >= few.step_time_s.most);
  assert_true(many.step_time_s.p50 < many.step_time_s.p95 && many.peak_B.sd > 0);
}

static void spread_of_known_values(void **state) {
  (void)state;
  double value[1001];
  for (int i = 0; i <= 1000; i++) value[i] = (i * 10) % 1001; /* 0 .. 1000 in some order */
  MsSpread s = ms_spread(value, 1001);
  assert_close(s.mean, 500, 1e-12);
  assert_close(s.sd, sqrt(1001.0 * 1002 / 12), 1e-12); /* of a uniform distribution */
  assert_close(s.mean_error, s.sd / sqrt(1001), 1e-12);
  assert_close(s.p50, 500, 1e-12);
  assert_close(s.p95, 950, 1e-12);
  assert_close(s.p50_error, 1000 * sqrt(0.25 / 1001), 1e-6); /* density 1/1000 */
  assert_close(s.p95_error, 1000 * sqrt(0.95 * 0.05 / 1001), 1e-6);
}

static void nothing_to_draw(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = run(MS_ROUTING_BALANCED, 0, 0);
  MsDraws d;
  GError *error = NULL;
  assert_false(ms_draws_run(s, MS_FIDELITY_FAST, 3, 1, FALSE, &d, &error));
  assert_non_null(strstr(error->message, "training.routing: is the same in every draw"));
  g_clear_error(&error);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_visit_arrives_once),
                                     cmocka_unit_test(a_draw_is_shared_where_it_would_be_the_same),
                                     cmocka_unit_test(popularity_is_the_same_for_all_tokens),
                                     cmocka_unit_test(histograms_are_followed),
                                     cmocka_unit_test(layers_have_their_own_row),
                                     cmocka_unit_test(what_ifs),
                                     cmocka_unit_test(the_slowest_rank_decides),
                                     cmocka_unit_test(routing_without_a_balancing_loss),
                                     cmocka_unit_test(capacity_cuts_the_busiest),
                                     cmocka_unit_test(dropped_copies_stay),
                                     cmocka_unit_test(experts_in_turn_are_neighbours),
                                     cmocka_unit_test(replicas_cost_memory_and_gradients),
                                     cmocka_unit_test(impossible_draws_are_refused),
                                     cmocka_unit_test(wrong_files_are_refused),
                                     cmocka_unit_test(threads_change_nothing),
                                     cmocka_unit_test(errors_shrink_with_the_root_of_n),
                                     cmocka_unit_test(spread_of_known_values),
                                     cmocka_unit_test(nothing_to_draw)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
