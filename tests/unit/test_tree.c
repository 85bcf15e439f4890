/* Branch and bound: the list is that of looking at every layout, whatever the shortcut, thread or interruption; bounds
 * of sets of layouts hold for every one of them. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/world.h"
#include "lib/mutate.h"
#include "lib/plan_requests.h"
#include "lib/tier.h"

#include "base/err.h"
#include "base/io.h"
#include "base/units.h"
#include "plan/bound_priv.h"
#include "plan/plan.h"
#include "plan/search_priv.h"
#include "sim/pieces.h"
#include "study/parts.h"

#include <glib/gstdio.h>
#include <math.h>
#include <signal.h>
#include <string.h>

static MsPlan *branched(const MsRequest *request, guint without, int threads, int top) {
  GError *error = NULL;
  MsPlan *p = ms_plan(
      request, &(MsPlanOptions){.top = top, .prune = TRUE, .branch = TRUE, .without = without, .threads = threads},
      &error);
  if (!p) fail_msg("%s: %s", request->base->name, error->message);
  assert_true(p->branched);
  return p;
}

/* Without these shortcuts (bits), one set after another, the list is that of looking at every layout. */
static void same_list(const MsSmallRequest *small, const guint *without, int n) {
  g_autoptr(MsRequest) request = ms_small_request(small);
  g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 2, 10);
  assert_false(every->branched);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  for (int i = 0; i < n; i++) {
    g_autoptr(MsPlan) tree = branched(request, without[i], 2, 10);
    ms_assert_same_plans(request, every, tree);
    ms_assert_list(request, tree);
    ms_assert_counts(request, tree, ms_space_size(space));
    assert_close(tree->lower_cost, tree->best[0].result->step_time_s, 1e-12);
  }
  ms_space_free(space);
}

static void the_tree_finds_the_same_list(void **state) { /* of a few; test_full_plan.c takes all */
  (void)state;
  const guint none = 0;
  for (guint i = 0; i < ms_n_small_requests; i += (guint)ms_by_tier(15, 5)) same_list(&ms_small_requests[i], &none, 1);
}

/* With just the memory that a layout of DualPipe needs it is found: its two copies of the model share the optimizer
 * states, whichever schedule the request names first. So is everything else that needs no more. */
static void what_fits_exactly_is_found(void **state) {
  (void)state;
  const MsSmallRequest small = {
      "llama, two copies",
      "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
      "h100-sxm",
      8,
      512,
      32,
      "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
      "\"tp\": [1, 2], \"cp\": 1, \"pp\": [2, 4], \"vpp\": 1, \"schedule\": [\"1f1b\", \"dualpipe\"]",
      ""};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  g_autoptr(MsPlan) all = ms_small_plan(request, FALSE, 2, 100);
  int copies = 0;
  for (int i = 0; i < all->n_best; i++) {
    if (all->best[i].scenario->layout.schedule != MS_SCHED_DUALPIPE) continue;
    int fitting = 0;
    double needed_B = ms_device_B(all->best[i].result);
    for (int k = 0; k < all->n_best; k++) fitting += ms_device_B(all->best[k].result) <= needed_B;
    request->max_memory_fraction = needed_B * (1 + 1e-9) / request->base->hardware->hbm_B;
    g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 2, 100);
    g_autoptr(MsPlan) tree = branched(request, 0, 2, 100);
    assert_int_equal(every->n_best, fitting);
    ms_assert_same_plans(request, every, tree);
    copies++;
  }
  assert_true(copies >= 3);
}

/* What microbatches keep is part of the first bound of the memory of every schedule, also of those whose lists alone
 * say how many are alive, and of what holds for any cut. */
static void memory_counts_what_lists_keep_alive(void **state) {
  (void)state;
  static const char *const words[] = {"1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe", "dualpipev"};
  for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
    g_autofree char *layout = g_strdup_printf(
        "\"tp\": 1, \"cp\": 1, \"pp\": 4, \"vpp\": 1, \"pipeline_layout\": [null], \"schedule\": \"%s\"", words[i]);
    const MsSmallRequest small = {words[i],
                                  "{\"base\": \"llama3-8b\", \"num_layers\": 16}",
                                  "h100-sxm",
                                  8,
                                  8192,
                                  32,
                                  "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                  layout,
                                  "\"distributed_optimizer\": true,"};
    g_autoptr(MsRequest) request = ms_small_request(&small);
    MsSpace *space = ms_space_new(request, TRUE, NULL);
    MsCandidate c = {0};
    for (int axis = 0; axis < MS_N_AXES; axis++) c.value[axis] = space->axis[axis].value[0];
    g_autoptr(MsScenario) s = ms_candidate_scenario(space, &c, NULL);
    MsPieceMemo *memo = ms_memo_new(s, NULL);
    MsShapes *shapes = ms_shapes_new();
    int rule;
    const MsShape *shape = ms_shapes_get(shapes, ms_shapes_map(shapes, memo), memo, space, &c, s, &rule);
    const MsStateBytes bytes = ms_state_bytes(memo, s);
    MsScreen screen;
    assert_non_null(shape);
    assert_true(ms_screen(s, memo->cost, &(MsWorth){INFINITY, INFINITY}, &screen));
    double own_B = ms_bound_device_B(shape, memo, &bytes, 2, 2, s), any_B = ms_bound_any_cut_B(memo, &bytes, 2, 2, s);
    if (!(own_B > 0.8 * screen.device_B && own_B <= screen.device_B && any_B > 0.5 * own_B && any_B <= own_B))
      fail_msg("%s: %.4g bytes, by its shape %.4g, in any cut %.4g", words[i], screen.device_B, own_B, any_B);
    ms_shapes_free(shapes);
    ms_memo_free(memo);
    ms_space_free(space);
  }
}

/* A rule is settled with the last open key that it reads: where that is the precision, no piece of one that it refuses
 * is looked at. */
static void rules_are_settled_with_open_keys(void **state) {
  (void)state;
  for (int open = 0; open < 2; open++) {
    const MsSmallRequest small = {"mixtral, two precisions",
                                  "{\"base\": \"mixtral-8x7b\", \"num_layers\": 4}",
                                  "h100-sxm",
                                  8,
                                  2048,
                                  16,
                                  "\"micro_batch_size\": 1, \"precision\": [\"bf16\", \"fp8-blockwise\"]",
                                  "\"tp\": 1, \"cp\": 1, \"pp\": 1, \"vpp\": 1, \"ep\": 8",
                                  open ? "\"fp8_param_gather\": [true, false]," : "\"fp8_param_gather\": true,"};
    g_autoptr(MsRequest) request = ms_small_request(&small);
    MsSpace *space = ms_space_new(request, TRUE, NULL);
    int rule = 0;
    while (strcmp(ms_rules[rule].name, "fp8-params-need-fp8") != 0) rule++;
    assert_int_equal(ms_latest_role_read(space, &ms_rules[rule]), open ? MS_ROLE_STATE : MS_ROLE_WORK);
    ms_space_free(space);
    g_autoptr(MsPlan) tree = branched(request, 0, 1, 10);
    for (int i = 0; i < tree->n_best; i++)
      if (!open) assert_int_equal(tree->best[i].scenario->training.precision, MS_FP8_BLOCKWISE);
    assert_true(tree->n_best > 0);
  }
}

static void threads_do_not_matter(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[14]);
  g_autoptr(MsPlan) one = branched(request, 0, 1, 5);
  g_autoptr(MsPlan) three = branched(request, 0, 3, 5);
  ms_assert_same_plans(request, one, three);
  assert_int_equal(one->simulated, three->simulated);
  assert_int_equal(one->screened, three->screened);
  assert_int_equal(one->bounded, three->bounded);
  assert_int_equal(one->n_refusals, three->n_refusals);
  for (int i = 0; i < one->n_refusals; i++) {
    assert_int_equal(one->refusals[i].count, three->refusals[i].count);
    assert_string_equal(one->refusals[i].example, three->refusals[i].example);
  }
}

/* What the request says of recomputation holds at every level of the tree: with just the memory that the best layout
 * needs it is found. Upper levels look at pieces where nothing is recomputed. */
static void what_is_recomputed_everywhere_fits(void **state) {
  (void)state;
  static const char *const options[] = {"\"recompute\": {\"granularity\": \"full\"}, ",
                                        "\"offload_modules\": [\"core_attn\", \"attn_proj\"], "};
  for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
    const MsSmallRequest small = {"llama, settled",
                                  "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                                  "h100-sxm",
                                  8,
                                  4096,
                                  32,
                                  "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                  "\"tp\": [1, 2], \"cp\": 1, \"pp\": [2, 4], \"vpp\": 1",
                                  options[i]};
    g_autoptr(MsRequest) request = ms_small_request(&small);
    g_autoptr(MsPlan) best = ms_small_plan(request, TRUE, 2, 1);
    request->max_memory_fraction = ms_device_B(best->best[0].result) * (1 + 1e-9) / request->base->hardware->hbm_B;
    g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 2, 100);
    g_autoptr(MsPlan) tree = branched(request, 0, 2, 100);
    assert_true(every->n_best >= 1);
    ms_assert_same_plans(request, every, tree);
  }
}

/* null of sequence_parallel stands in a list like any value; with TP it means true, which is then searched once. */
static void null_is_a_value_of_sequence_parallel(void **state) {
  (void)state;
  const MsSmallRequest small = {"llama, null",
                                "{\"base\": \"llama3-8b\", \"num_layers\": 4}",
                                "h100-sxm",
                                4,
                                2048,
                                8,
                                "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1",
                                "\"sequence_parallel\": [null, false, true], "};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 1, 100);
  g_autoptr(MsPlan) tree = branched(request, 0, 1, 100);
  int with = 0, without = 0;
  ms_assert_same_plans(request, every, tree);
  for (int i = 0; i < every->n_best; i++) {
    const MsScenario *s = every->best[i].scenario;
    if (s->layout.tp == 1 || s->layout.pp > 1) continue;
    with += s->options.sequence_parallel == TRUE, without += s->options.sequence_parallel == FALSE;
  }
  assert_int_equal(with, 1);
  assert_int_equal(without, 1);
}

static void shortcuts_change_nothing(void **state) {
  (void)state;
  guint without[MS_SHORT_SAME];
  for (int k = 0; k < MS_SHORT_SAME; k++) without[k] = 1u << k;
  same_list(&ms_small_requests[16], without, MS_SHORT_SAME);
}

/* NULL: nothing is. */
static const MsPlanRefusal *of_memory(const MsPlan *p) {
  for (int i = 0; i < p->n_refusals; i++)
    if (!strcmp(p->refusals[i].name, "memory")) return &p->refusals[i];
  return NULL;
}

static const MsPlanRefusal *short_of_memory(const MsPlan *p) {
  const MsPlanRefusal *r = of_memory(p);
  if (!r) fail_msg("nothing is short of memory");
  return r;
}

/* Where the states alone do not fit hardly anything is looked at, and what is told is within a hundredth of what comes
 * nearest of all. */
static void that_nothing_fits_is_seen_at_once(void **state) {
  (void)state;
  const MsSmallRequest small = {"llama, too large",
                                "\"llama3-8b\"",
                                "h100-sxm",
                                32,
                                4096,
                                64,
                                "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
                                "\"tp\": [1, 2, 4, 8], \"cp\": [1, 2], \"pp\": [1, 2, 4], \"vpp\": 1",
                                "\"recompute\": \"auto\", "};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  request->max_memory_fraction = 0.02;
  g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 2, 3);
  g_autoptr(MsPlan) tree = branched(request, 0, 2, 3);
  g_autoptr(MsPlan) one = branched(request, 0, 1, 3);
  const MsPlanRefusal *nearest = short_of_memory(every), *told = short_of_memory(tree);
  ms_assert_counts(request, tree, (double)tree->searched);
  assert_int_equal(tree->n_best + every->n_best, 0);
  assert_true(told->miss >= nearest->miss && told->miss <= 1.01 * nearest->miss);
  assert_string_equal(told->example, short_of_memory(one)->example);
  assert_true(4 * tree->bounded < every->bounded);
}

/* Layouts that fit in no cut are counted without one; with just the memory that one needs it is found, however it is
 * interleaved, and what comes nearest is what comes nearest of all, whoever meets it. */
static void what_fits_in_no_cut_is_counted(void **state) {
  (void)state;
  const MsSmallRequest small = {"llama, interleaved",
                                "{\"base\": \"llama3-8b\", \"num_layers\": 12}",
                                "h100-sxm",
                                8,
                                4096,
                                32,
                                "\"micro_batch_size\": [1, 2], \"precision\": \"bf16\"",
                                "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2, 3]",
                                "\"recompute\": [{\"granularity\": \"full\"}, {\"granularity\": \"none\"}], "};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  g_autoptr(MsPlan) all = ms_small_plan(request, FALSE, 2, 100),
                    loose = branched(request, 1u << MS_SHORT_BOUND, 2, 100);
  int step = ms_by_tier(60, 2), interleaved = 0;
  for (int i = step / 2; i < all->n_best; i += step) {
    double needed_B = ms_device_B(all->best[i].result);
    interleaved += all->best[i].scenario->layout.vpp > 1;
    request->max_memory_fraction = needed_B * (1 + 1e-9) / request->base->hardware->hbm_B;
    g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 2, 100);
    g_autoptr(MsPlan) tree = branched(request, 1u << MS_SHORT_BOUND, 3, 100);
    g_autoptr(MsPlan) one = branched(request, 1u << MS_SHORT_BOUND, 1, 100);
    ms_assert_same_plans(request, every, tree);
    ms_assert_counts(request, tree, (double)every->searched);
    if (!of_memory(every)) continue;
    assert_string_equal(short_of_memory(tree)->example, short_of_memory(every)->example);
    assert_string_equal(short_of_memory(one)->example, short_of_memory(every)->example);
    assert_int_equal(short_of_memory(one)->count, short_of_memory(tree)->count);
    assert_int_equal(one->bounded, tree->bounded);
    if (needed_B < 0.24 * request->base->hardware->hbm_B) assert_true(4 * tree->bounded < 3 * loose->bounded);
  }
  assert_true(interleaved >= ms_by_tier(1, 2));
}

/* --- bounds of sets -------------------------------------------------------------------------------------------- */

static double per_stage(const MsScenario *s) {
  return (double)s->training.global_batch_size * s->layout.tp * s->layout.cp /
         ((double)s->training.micro_batch_size * s->gpus);
}

/* No row of a list takes longer than that of the layout. */
static void check_rows(const MsScenario *s, const MsCosted *any, const MsCosted *own) {
  assert_int_equal(any->list->n, own->list->n);
  for (int i = 0; i < own->list->n; i++)
    if (any->duration[i] > own->duration[i])
      fail_msg("%s: %s %" G_GINT64_FORMAT " ps, without its pipeline %" G_GINT64_FORMAT " ps", s->name,
               own->list->op[i].name, own->duration[i], any->duration[i]);
}

static void check_durations(const MsScenario *s, const MsPieceMemo *memo) {
  g_autoptr(MsLayout) layout = ms_layout_build(s);
  g_autoptr(MsWork) work = ms_work_new(s, layout, NULL);
  g_autoptr(MsCost) cost = ms_cost_new(s, layout, NULL);
  g_autoptr(MsProgram) program = ms_program_new(work, cost);
  for (int i = 0; i < work->n_pieces && !work->draw; i++)
    check_rows(s, &memo->piece[i].forward, &program->piece[i].forward),
        check_rows(s, &memo->piece[i].backward, &program->piece[i].backward);
}

/* Pieces that were costed without a pipeline stand for those of the layout: they say the same of it. */
static void check_pieces(const MsScenario *s) {
  g_autoptr(MsScenario) flat = ms_scenario_copy(s, TRUE);
  ms_leave_pipeline_out(flat);
  MsPieceMemo *memo = ms_memo_new(flat, NULL);
  const MsWorth any = {INFINITY, INFINITY};
  MsScreen own, other;
  assert_non_null(memo);
  const MsPiecesOf pieces = {memo->work, memo->cost, memo->piece, memo->lags};
  assert_true(ms_screen(s, NULL, &any, &own));
  if (ms_pieces_of_any_pipeline(memo->work)) {
    assert_true(ms_screen_pieces(s, &pieces, &any, &other));
    if (other.step_time_lower_s != own.step_time_lower_s || other.device_B != own.device_B)
      fail_msg("%s: %.12g s and %.12g B, with its own pieces %.12g s and %.12g B", s->name, other.step_time_lower_s,
               other.device_B, own.step_time_lower_s, own.device_B);
  }
  check_durations(s, memo);
  ms_memo_free(memo);
}

/* What sharded gradients, which stand for both kinds while only rows are summed, say of plain pieces. */
static void check_gradients(const MsScenario *plain) {
  const MsTotal total[] = {MS_TOTAL_PRODUCTS, MS_TOTAL_ROWS};
  g_autoptr(MsScenario) sharded = ms_scenario_copy(plain, TRUE);
  double main_B = ms_dtype_B(plain->options.main_grads_dtype);
  sharded->options.fsdp = MS_FSDP_OPTIM_GRADS;
  if (ms_dtype_B(plain->options.grad_reduce_dtype) > main_B || plain->cluster.expected) return;
  MsPieceMemo *own = ms_memo_new(plain, NULL), *other = ms_memo_new(sharded, NULL);
  assert_true(own && other);
  for (guint i = 0; i < G_N_ELEMENTS(total); i++) {
    double of_own = ms_memo_total(own, total[i], FALSE, 1), of_other = ms_memo_total(other, total[i], FALSE, 1),
           passage = ms_memo_passage(own, total[i], FALSE), of_sharded = ms_memo_passage(other, total[i], FALSE);
    if (of_other > of_own || of_sharded > passage)
      fail_msg("%s: %.12g and %.12g ps with sharded gradients, %.12g and %.12g ps", plain->name, of_other, of_sharded,
               of_own, passage);
  }
  ms_memo_free(own), ms_memo_free(other);
}

/* What the upper levels of the tree say of one layout: none is above the one below it, nor above `full`; its states
 * take no more than the whole. */
static void check_levels(const MsScenario *s, double *tightest) {
  g_autoptr(MsScenario) plain = ms_scenario_copy(s, TRUE), changed = ms_scenario_copy(s, TRUE);
  double step_s = 0, share = (1 - 1e-9) * per_stage(s);
  if (ms_pieces_depend_on_cut(s)) return;
  check_pieces(s);
  assert_true(ms_step_time(s, NULL, INFINITY, &step_s, NULL));
  double step_ps = step_s * MS_PS_PER_S * (1 + 1e-12);
  plain->options.recompute = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_NONE, .num_layers = 1},
  plain->options.offload_modules = 0;
  if (ms_role_of_key("options.cuda_graph_scope") > MS_ROLE_BESIDE) plain->options.cuda_graph_scope = 0;
  changed->options.cuda_graph_scope = 0, changed->options.recompute = plain->options.recompute,
  changed->options.offload_modules = 0;
  changed->options.dispatcher = MS_DISPATCH_ALLTOALL,
  changed->options.ep_overlap = changed->options.delay_wgrad = changed->options.tp_comm_overlap = FALSE;
  changed->options.cross_entropy_fusion = !s->options.cross_entropy_fusion, changed->layout.cp_comm_type = MS_CP_P2P;
  gboolean splits = s->layout.schedule != MS_SCHED_1F1B && s->layout.schedule != MS_SCHED_GPIPE;
  check_gradients(plain);
  MsPieceMemo *own = ms_memo_new(s, NULL), *least = ms_memo_new(plain, NULL), *other = ms_memo_new(changed, NULL);
  assert_true(own && least && other);
  const double level[] = {ms_memo_total(other, MS_TOTAL_PRODUCTS, FALSE, share),
                          ms_memo_total(least, MS_TOTAL_ROWS, FALSE, share),
                          ms_memo_total(own, MS_TOTAL_STREAM, FALSE, share)};
  for (guint i = 0; i < G_N_ELEMENTS(level); i++)
    if ((i > 0 && level[i] * (1 + 1e-9) < level[i - 1]) || level[i] > step_ps)
      fail_msg("%s: level %u: %.9g ps after %.9g ps, full %.9g ps", s->name, i, level[i], i > 0 ? level[i - 1] : 0.0,
               step_ps);
  double own_span = ms_memo_total(own, MS_TOTAL_SPAN, splits, share),
         least_span = ms_memo_total(least, MS_TOTAL_SPAN, splits, share),
         own_host = ms_memo_total(own, MS_TOTAL_HOST, splits, share),
         least_host = ms_memo_total(least, MS_TOTAL_HOST, splits, share);
  const double passage[] = {ms_memo_passage(other, MS_TOTAL_PRODUCTS, splits),
                            ms_memo_passage(least, MS_TOTAL_ROWS, splits),
                            ms_memo_passage(least, MS_TOTAL_SPAN, splits), ms_memo_passage(own, MS_TOTAL_SPAN, splits)};
  for (guint i = 0; i < G_N_ELEMENTS(passage); i++)
    if ((i > 0 && passage[i] * (1 + 1e-9) < passage[i - 1]) || passage[i] > step_ps)
      fail_msg("%s: one microbatch, level %u: %.9g ps after %.9g ps, full %.9g ps", s->name, i, passage[i],
               i > 0 ? passage[i - 1] : 0.0, step_ps);
  if (MAX(own_span, least_span) > step_ps)
    fail_msg("%s: passes %.9g ps, plain %.9g ps, full %.9g ps", s->name, own_span, least_span, step_ps);
  if (ms_schedule_row(s->layout.schedule)->steps == MS_STEPS_APART && MAX(own_host, least_host) > step_ps)
    fail_msg("%s: host %.9g ps, plain %.9g ps, full %.9g ps", s->name, own_host, least_host, step_ps);
  assert_true((double)ms_bound_passes(least, s, G_MAXINT64) / MS_PS_PER_S <= step_s); /* less is done there */
  double passes_s = (double)ms_bound_passes(own, s, G_MAXINT64) / MS_PS_PER_S;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  const MsStateBytes bytes = ms_state_bytes(own, s);
  const MsLayoutSpec *l = &s->layout;
  double dp_cp = (double)s->gpus / (l->tp * l->pp), edp = (double)s->gpus / (l->etp * l->ep * l->pp);
  double states_B = ms_bound_states_B(own, &bytes, dp_cp, edp, l->pp, s), device_B = ms_device_B(r);
  if (states_B > device_B) fail_msg("%s: states %.9g B, the device %.9g B", s->name, states_B, device_B);
  *tightest = MAX(*tightest, states_B / device_B);
  ms_memo_free(own), ms_memo_free(least), ms_memo_free(other);
  g_autoptr(MsScenario) same = ms_scenario_copy(s, TRUE);
  g_autoptr(MsPassScreen) exact = ms_pass_screen_new(same, NULL);
  double options_s = ms_pass_screen_options_s(exact, passes_s);
  if (passes_s > options_s || options_s > step_s)
    fail_msg("%s: passes %.9g s, with options %.9g s, full %.9g s", s->name, passes_s, options_s, step_s);
}

/* The same of layouts that nobody chose. */
static void bounds_of_sets_hold_on_draws(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(44);
  double tightest = 0;
  int draws = 0, runs = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(300, 4000)); draws++) {
    g_autoptr(MsScenario) s = draws % 2 ? ms_test_draw_large(rand) : ms_test_draw(rand, FALSE);
    double step_s;
    if (!ms_model_finish(s->model, NULL, "", NULL) || !ms_step_time(s, NULL, 0, &step_s, NULL)) continue;
    check_levels(s, &tightest);
    runs++;
  }
  print_message("%d of %d draws\n", runs, draws);
  assert_true(runs >= ms_by_tier(15, 200));
}

/* The loss that balances experts over the batch counts their tokens on all replicas, of which there are fewer the more
 * stages there are. */
static void rows_between_replicas_follow_the_pipeline(void **state) {
  (void)state;
  double tightest = 0;
  for (int pp = 2; pp <= 4; pp += 2) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-next-80b-a3b", 2, "h100-sxm", 64);
    s->training.global_batch_size = 128, s->layout.ep = 8, s->layout.pp = pp;
    check_levels(s, &tightest);
  }
}

static void bounds_of_sets_hold(void **state) {
  (void)state;
  double tightest = 0;
  for (guint i = 0; i < ms_n_small_requests; i += (guint)ms_by_tier(3, 1)) {
    g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[i]);
    g_autoptr(MsPlan) best = ms_small_plan(request, TRUE, 2, 4);
    for (int k = 0; k < best->n_best; k++) check_levels(best->best[k].scenario, &tightest);
  }
  assert_true(tightest > 0.8);
}

/* One GPU that does little but products: the first bound of all, an even share of them, is nearly the whole step. */
static void products_are_bounded_closely(void **state) {
  (void)state;
  double least_s = 0;
  const MsSmallRequest small = {"one GPU",
                                "{\"base\": \"llama3-405b\", \"num_layers\": 2, \"vocab_size\": 1024}",
                                "h100-sxm",
                                1,
                                1024,
                                256,
                                "\"micro_batch_size\": [4, 8], \"precision\": \"bf16\"",
                                "\"tp\": 1, \"cp\": 1, \"pp\": 1",
                                ""};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  request->base->hardware->hbm_B = 1e15;
  g_autoptr(MsPlan) best = ms_small_plan(request, FALSE, 1, 1);
  ms_plan_free(ms_plan_search(request, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 1}, &least_s, NULL));
  double bound_s = small.batch * least_s, step_s = best->best[0].result->step_time_s;
  if (bound_s > step_s || bound_s < 0.985 * step_s) fail_msg("bound %.6g s, step %.6g s", bound_s, step_s);
}

static const MsSmallRequest gradients_open = {
    "gradients, slow memory",
    "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 4}",
    "l40s",
    16,
    256,
    64,
    "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
    "\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1, \"ep\": [4, 8], \"etp\": 1",
    "\"fsdp\": \"auto\", \"distributed_optimizer\": \"auto\", \"overlap_param_gather\": \"auto\", "
    "\"recompute\": \"auto\", "};

/* With just the memory that the smallest layout of each way needs it is found. */
static void every_way_fits_exactly(const MsSmallRequest *small) {
  double least_B[MS_FSDP_OPTIM_GRADS_PARAMS + 1] = {0};
  g_autoptr(MsRequest) request = ms_small_request(small);
  request->base->hardware->hbm_B = 1e12;
  g_autoptr(MsPlan) all = ms_small_plan(request, FALSE, 2, 1000);
  for (int i = 0; i < all->n_best; i++) {
    double *own = &least_B[all->best[i].scenario->options.fsdp], needed_B = ms_device_B(all->best[i].result);
    *own = *own > 0 ? MIN(*own, needed_B) : needed_B;
  }
  for (int k = 0; k <= MS_FSDP_OPTIM_GRADS_PARAMS; k++) {
    assert_true(least_B[k] > 0);
    request->max_memory_fraction = least_B[k] * (1 + 1e-9) / request->base->hardware->hbm_B;
    g_autoptr(MsPlan) every = ms_small_plan(request, TRUE, 2, 100);
    g_autoptr(MsPlan) tree = branched(request, 0, 2, 100);
    assert_true(every->n_best > 0);
    ms_assert_same_plans(request, every, tree);
  }
}

static void levels_of_every_way(const MsSmallRequest *small) {
  int seen[MS_FSDP_OPTIM_GRADS_PARAMS + 1] = {0};
  double tightest = 0;
  g_autoptr(MsRequest) request = ms_small_request(small);
  g_autoptr(MsPlan) all = ms_small_plan(request, FALSE, 2, 1000);
  for (int i = 0; i < all->n_best; i++)
    if (seen[all->best[i].scenario->options.fsdp]++ < ms_by_tier(2, 20)) check_levels(all->best[i].scenario, &tightest);
  for (int k = 0; k <= MS_FSDP_OPTIM_GRADS_PARAMS; k++) assert_true(seen[k] > 0);
}

/* Ways of FSDP that share pieces share nodes: the list is that of looking at every layout where products are bound by
 * what they write, and no level is above `full`, that of whole states least of all. */
static void ways_of_fsdp_share_nodes(void **state) {
  (void)state;
  static const char *const more[] = {"\"fsdp\": \"auto\", \"grad_reduce_dtype\": [\"fp32\", \"bf16\"], ",
                                     "\"fsdp\": [\"optim-grads-params\", \"none\", \"optim-grads\"], "
                                     "\"ep_overlap\": \"auto\", \"distributed_optimizer\": [true], "};
  const guint without[] = {0, 1u << MS_SHORT_BOUND};
  same_list(&gradients_open, without, G_N_ELEMENTS(without));
  for (int i = 0; i < ms_by_tier(0, G_N_ELEMENTS(more)); i++) {
    MsSmallRequest own = gradients_open;
    own.options = more[i];
    own.layout = "\"schedule\": \"auto\", \"tp\": 1, \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2], \"ep\": [2, 4], "
                 "\"etp\": 1";
    same_list(&own, without, G_N_ELEMENTS(without));
  }
  const MsSmallRequest alone = {
      "gradients, nobody to share them with",
      "{\"base\": \"llama3-8b\", \"num_layers\": 2}",
      "l40s",
      1,
      256,
      64,
      "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
      "\"tp\": 1, \"cp\": 1, \"pp\": 1, \"vpp\": 1",
      "\"fsdp\": \"auto\", \"distributed_optimizer\": [true], \"overlap_param_gather\": \"auto\", "};
  same_list(&alone, without, G_N_ELEMENTS(without));
  MsSmallRequest dense = alone;
  dense.model = "{\"base\": \"llama3-8b\", \"num_layers\": 30}", dense.gpus = 8;
  every_way_fits_exactly(&dense);
  levels_of_every_way(&gradients_open);
  levels_of_every_way(&alone);
}

/* Fewer microbatches than stages: what one takes on its way through all of them is most of the step, where an even
 * share of the stages is little of it. A step for another batch is no larger in proportion. */
static void one_microbatch_passes_all_stages(void **state) {
  (void)state;
  static const char *const schedule[] = {"1f1b", "gpipe", "zb-h1", "zb-v"};
  for (guint i = 0; i < G_N_ELEMENTS(schedule); i++) {
    double tightest = 0, step_s = 0, least_s = 0;
    g_autofree char *layout =
        g_strdup_printf("\"tp\": 1, \"cp\": 1, \"pp\": 8, \"vpp\": \"auto\", \"schedule\": \"%s\"", schedule[i]);
    const MsSmallRequest small = {"llama, few microbatches",
                                  "{\"base\": \"llama3-8b\", \"num_layers\": 16}",
                                  "h100-sxm",
                                  8,
                                  4096,
                                  2,
                                  "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                  layout,
                                  ""};
    g_autoptr(MsRequest) few = ms_small_request(&small);
    MsSmallRequest larger = small;
    larger.batch = 16;
    g_autoptr(MsRequest) many = ms_small_request(&larger);
    g_autoptr(MsPlan) best = ms_small_plan(few, TRUE, 2, 1), best_of_many = ms_small_plan(many, TRUE, 2, 1);
    assert_true(best->n_best > 0 && best_of_many->n_best > 0);
    const MsScenario *s = best->best[0].scenario;
    check_levels(s, &tightest);
    g_autoptr(MsScenario) flat = ms_scenario_copy(s, TRUE);
    ms_leave_pipeline_out(flat);
    MsPieceMemo *memo = ms_memo_new(flat, NULL);
    gboolean splits = ms_schedule_may_split(s->layout.schedule);
    assert_true(ms_step_time(s, NULL, INFINITY, &step_s, NULL));
    double passage_s = ms_memo_passage(memo, MS_TOTAL_SPAN, splits) / MS_PS_PER_S,
           share_s = ms_memo_total(memo, MS_TOTAL_SPAN, splits, per_stage(s)) / MS_PS_PER_S;
    if (passage_s < 0.45 * step_s || share_s > 0.6 * passage_s)
      fail_msg("%s: %.6g s of one microbatch, %.6g s shared out, full %.6g s", schedule[i], passage_s, share_s, step_s);
    ms_memo_free(memo);
    ms_plan_free(ms_plan_search(few, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 1}, &least_s, NULL));
    assert_true(least_s > 0 && 16 * least_s <= best_of_many->best[0].result->step_time_s);
  }
}

/* Where the host lags behind a step is shorter with graphs than its passes without. */
static void graphs_are_settled_before_passes_are_bounded(void **state) {
  (void)state;
  double tightest = 0;
  const MsSmallRequest small = {"mixtral, a host that lags behind",
                                "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}",
                                "h100-sxm",
                                16,
                                4096,
                                256,
                                "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                "\"tp\": 1, \"cp\": 4, \"pp\": 2, \"vpp\": 4, \"ep\": 8, \"etp\": 1",
                                "\"ep_overlap\": true, \"cuda_graph_scope\": \"auto\", "};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  g_autoptr(MsPlan) best = ms_small_plan(request, TRUE, 2, 1);
  assert_true(best->n_best == 1 && best->best[0].scenario->options.cuda_graph_scope != 0);
  check_levels(best->best[0].scenario, &tightest);
}

/* A node whose shape is settled bounds every value of the keys of states. How many optimizer instances there are
 * decides how far the messages of FSDP go: a bound of one is above what eight take, so that they are settled before. */
static void instances_are_settled_with_messages(void **state) {
  (void)state;
  const char *key = "options.num_distributed_optimizer_instances";
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 512);
  s->training.seq_length = 1024, s->options.recompute.granularity = MS_RECOMPUTE_FULL;
  s->options.fsdp = MS_FSDP_OPTIM_GRADS_PARAMS;
  g_autoptr(MsPassScreen) of_one = ms_pass_screen_new(s, NULL);
  double one_s = ms_pass_screen_options_s(of_one, 0), eight_s;
  s->options.num_distributed_optimizer_instances = 8;
  g_autoptr(MsPassScreen) of_eight = ms_pass_screen_new(s, NULL);
  assert_true(ms_step_time(s, NULL, INFINITY, &eight_s, NULL));
  assert_true(ms_pass_screen_options_s(of_eight, 0) <= eight_s && eight_s < one_s);
  assert_true(ms_role_of_key(key) < MS_ROLE_STATE);
}

/* A node whose shape and state are settled stands for every value of the keys that only the simulation sees, whichever
 * of them its bound was computed with. Of the keys named here some are settled earlier: then there is nothing to
 * compare. */
static void check_unsettled(const MsRequest *request, const MsScenario *like, const char *path, int *members,
                            int *other_steps) {
  const MsFieldTable *table = g_str_has_prefix(path, "layout.") ? &ms_layout_table : &ms_options_table;
  MsOpenKey open = {.path = (char *)path, .field = ms_field_find(table, strchr(path, '.') + 1)};
  MsChoice choice;
  double least_s = INFINITY, most_s = 0, bound_s = 0;
  assert_true(open.field && ms_choice_init(&choice, request, &open, NULL));
  for (int value = 0; choice.role == MS_ROLE_BLIND && value < choice.n; value++) {
    g_autoptr(MsScenario) s = ms_scenario_copy(like, TRUE);
    double step_s;
    s->options.overlap_param_gather = s->options.overlap_param_gather_with_optimizer_step =
        FALSE; /* they ask for overlap_grad_reduce */
    ms_choice_apply(&choice, value, s);
    if (!ms_layout_check(s, NULL) || !ms_step_time(s, NULL, INFINITY, &step_s, NULL)) continue;
    g_autoptr(MsPassScreen) screen = ms_pass_screen_new(s, NULL);
    MsPieceMemo *memo = ms_memo_new(s, NULL);
    bound_s =
        MAX(bound_s, ms_pass_screen_options_s(screen, (double)ms_bound_passes(memo, s, G_MAXINT64) / MS_PS_PER_S));
    ms_memo_free(memo);
    least_s = MIN(least_s, step_s), most_s = MAX(most_s, step_s);
    ++*members;
  }
  ms_choice_clear(&choice);
  *other_steps += most_s > least_s;
  if (bound_s > least_s) fail_msg("%s, %s: bound %.9g s, full %.9g s", like->name, path, bound_s, least_s);
}

static void unsettled_keys_may_take_any_value(void **state) {
  (void)state;
  static const char *const path[] = {"options.overlap_p2p_comm", "options.overlap_grad_reduce",
                                     "options.overlap_param_gather", "options.overlap_param_gather_with_optimizer_step",
                                     "layout.order"};
  int members = 0, other_steps = 0, every = ms_by_tier(3, 1);
  for (guint i = 0; i < ms_n_small_requests; i += (guint)every) {
    g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[i]);
    g_autoptr(MsPlan) best = ms_small_plan(request, TRUE, 2, 4);
    for (int n = 0; n < best->n_best; n++)
      for (guint k = 0; k < G_N_ELEMENTS(path); k++)
        check_unsettled(request, best->best[n].scenario, path[k], &members, &other_steps);
  }
  assert_true(members > 100 / every && other_steps > 10 / every);
}

static MsScenario *first_of(const MsSpace *space) {
  MsCandidate c = {0};
  for (int axis = 0; axis < MS_N_AXES; axis++) c.value[axis] = space->axis[axis].value[0];
  return ms_candidate_scenario(space, &c, NULL);
}

/* Where messages may go beside passes or in exchanges that these wait for, a set that leaves it open counts no such
 * wait. */
static void sets_wait_for_no_exchange(void **state) {
  (void)state;
  const MsSmallRequest small = {"llama, messages beside passes or not",
                                "{\"base\": \"llama3-8b\", \"num_layers\": 8}",
                                "a100-sxm-80g",
                                16,
                                4096,
                                32,
                                "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
                                "\"tp\": 2, \"cp\": 1, \"pp\": 2, \"vpp\": 2, \"pipeline_layout\": \"Ett|ttt|ttt|L\"",
                                "\"overlap_p2p_comm\": \"auto\","};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  g_autoptr(MsScenario) s = first_of(space);
  double passes_s[2];
  for (int beside = 0; beside < 2; beside++) {
    s->options.overlap_p2p_comm = beside;
    MsPieceMemo *memo = ms_memo_new(s, NULL);
    passes_s[beside] = (double)ms_bound_passes(memo, s, G_MAXINT64) / MS_PS_PER_S;
    ms_memo_free(memo);
  }
  s->options.overlap_p2p_comm = FALSE;
  ms_space_write_least(space, s);
  assert_true(s->options.overlap_p2p_comm && passes_s[1] < passes_s[0]);
  ms_space_free(space);
}

/* What FSDP moves around passes is found once for all pieces of the same sizes: no key that is settled between these
 * and the pipeline changes it. */
static void what_is_moved_depends_on_sizes_alone(void **state) {
  (void)state;
  static const char *const path[] = {"options.dispatcher",
                                     "options.ep_overlap",
                                     "options.delay_wgrad",
                                     "options.tp_comm_overlap",
                                     "options.cross_entropy_fusion",
                                     "layout.cp_comm_type",
                                     "options.recompute",
                                     "options.offload_modules",
                                     "options.cuda_graph_scope",
                                     "options.optimizer_offload_fraction"};
  const MsSmallRequest small = {"deepseek, sharded parameters",
                                "{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\"}",
                                "gb200-nvl72",
                                64,
                                4096,
                                64,
                                "\"micro_batch_size\": 1, \"precision\": \"mxfp8\"",
                                "\"tp\": 2, \"cp\": 2, \"ep\": 8, \"pp\": 2, \"vpp\": 2",
                                "\"fsdp\": \"optim-grads-params\","};
  g_autoptr(MsRequest) request = ms_small_request(&small);
  MsSpace *space = ms_space_new(request, TRUE, NULL);
  g_autoptr(MsScenario) own = first_of(space);
  int others = 0;
  g_autofree MsBusy *first = NULL;
  for (guint k = 0; k < G_N_ELEMENTS(path); k++) {
    const MsFieldTable *table = g_str_has_prefix(path[k], "layout.") ? &ms_layout_table : &ms_options_table;
    MsOpenKey open = {.path = (char *)path[k], .field = ms_field_find(table, strchr(path[k], '.') + 1)};
    MsChoice choice;
    assert_true(open.field && ms_choice_init(&choice, request, &open, NULL));
    assert_true(choice.role < MS_ROLE_SHAPE);
    for (int value = 0; value < choice.n; value++) {
      g_autoptr(MsScenario) s = ms_scenario_copy(own, TRUE);
      ms_choice_apply(&choice, value, s);
      MsPieceMemo *memo = ms_layout_check(s, NULL) ? ms_memo_new(s, NULL) : NULL;
      if (!memo) continue;
      MsProgram *program = ms_program_new_like(memo->work, memo->cost, memo->piece);
      MsBusy *unit = g_new0(MsBusy, memo->n);
      ms_bound_units(program, unit);
      ms_program_free(program);
      if (first) assert_memory_equal(first, unit, sizeof *unit * (size_t)memo->n);
      else first = g_memdup2(unit, sizeof *unit * (size_t)memo->n);
      assert_true(unit[memo->work->piece_of_layer[4]].stream[MS_STREAM_EDP] > 0);
      g_free(unit);
      ms_memo_free(memo);
      others++;
    }
    ms_choice_clear(&choice);
  }
  assert_true(others > 15);
  ms_space_free(space);
}

static void stop_with_a_list(const MsPlan *so_far, double done, gpointer user) {
  (void)done;
  if (so_far->n_best == *(int *)user) raise(SIGINT);
}

/* The first layouts that are simulated are no random ones, though their hosts are what decides, of which sets of
 * layouts know nothing before graphs and overlap are settled. */
static void the_first_list_is_near_the_best(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  const MsSmallRequest open = {
      "deepseek, a busy host",
      "{\"base\": \"deepseek-v3\", \"num_layers\": 8, \"moe_layer_freq\": \"[0]*1+[1]*7\"}",
      "gb200-nvl72",
      64,
      4096,
      512,
      "\"micro_batch_size\": 1, \"precision\": \"mxfp8\"",
      "\"schedule\": \"auto\", \"tp\": 1, \"cp\": 1, \"pp\": [1, 2], \"vpp\": [1, 2], \"ep\": [8, 32], \"etp\": 1",
      "\"dispatcher\": \"auto\", \"ep_overlap\": \"auto\", \"delay_wgrad\": \"auto\", \"recompute\": \"auto\", "
      "\"offload_modules\": \"auto\", \"cuda_graph_scope\": \"auto\", \"fsdp\": \"auto\", "
      "\"overlap_grad_reduce\": \"auto\", \"overlap_param_gather\": \"auto\","};
  int top = 4;
  g_autoptr(MsRequest) request = ms_small_request(&open);
  g_autoptr(MsPlan) whole = branched(request, 0, 2, 20);
  for (int i = 0; i < whole->n_best; i++) /* what was found near the best is not met again */
    for (int k = 0; k < i; k++) {
      g_autofree char *a = ms_scenario_text(whole->best[i].scenario, 0),
                      *b = ms_scenario_text(whole->best[k].scenario, 0);
      assert_string_not_equal(a, b);
    }
  MsPlanOptions options = {.top = top, .prune = TRUE, .branch = TRUE, .threads = 2};
  options.watch = stop_with_a_list, options.watch_user = &top;
  ms_interrupt_install(INFINITY);
  g_autoptr(MsPlan) first = ms_plan(request, &options, NULL);
  ms_interrupt_install(INFINITY); /* for those that follow */
  assert_true(first && first->interrupted && first->simulated < whole->simulated);
  double found_s = first->best[0].result->step_time_s, least_s = whole->best[0].result->step_time_s;
  if (found_s > 1.1 * least_s) fail_msg("%.4g s found first, %.4g s at last", found_s, least_s);
}

/* --- stopped, and gone on with --------------------------------------------------------------------------------- */

static void resume_goes_on(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-XXXXXX", NULL), *file = g_build_filename(folder, "plan.json", NULL);
  g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[15]);
  g_autoptr(MsPlan) first = ms_plan(
      request, &(MsPlanOptions){.top = 3, .prune = TRUE, .branch = TRUE, .threads = 2, .checkpoint = file}, &error);
  assert_non_null(first);
  g_autoptr(MsPlan) again =
      ms_plan(request, &(MsPlanOptions){.top = 3, .prune = TRUE, .branch = TRUE, .threads = 1, .resume = file}, &error);
  assert_non_null(again);
  assert_true(again->resumed > 0 && again->resumed == first->simulated && again->simulated == first->simulated);
  ms_assert_same_plans(request, first, again);
  g_remove(file), g_rmdir(folder);
}

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Layouts that a checkpoint holds: behind kind and time every row has another candidate. */
static guint layouts_kept(const char *file) {
  g_autofree char *text = NULL;
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  g_autoptr(GRegex) row = g_regex_new("\\[[012], [0-9.e-]+, ([0-9, ]+)\\]", 0, 0, NULL);
  g_autoptr(GMatchInfo) at = NULL;
  g_autoptr(GPtrArray) kept = g_ptr_array_new_with_free_func(g_free);
  for (g_regex_match(row, text, 0, &at); g_match_info_matches(at); g_match_info_next(at, NULL))
    g_ptr_array_add(kept, g_match_info_fetch(at, 1));
  qsort(kept->pdata, kept->len, sizeof *kept->pdata, compare_text);
  for (guint i = 1; i < kept->len; i++) assert_string_not_equal(kept->pdata[i - 1], kept->pdata[i]);
  return kept->len;
}

/* What was dear for a short list is simulated to its end for a longer one, and counts as one layout. */
static void longer_lists_count_layouts_once(void **state) {
  (void)state;
  static const int top[] = {1, 3, 10, 20, 40};
  g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[15]);
  for (int branch = 0; branch < 2; branch++) {
    g_autofree char *folder = g_dir_make_tmp("moesim-XXXXXX", NULL), *file = g_build_filename(folder, "p.json", NULL);
    for (guint i = 0; i < G_N_ELEMENTS(top); i += (guint)ms_by_tier(2, 1)) {
      g_autoptr(MsPlan) fresh =
          ms_plan(request, &(MsPlanOptions){.top = top[i], .prune = TRUE, .branch = branch, .threads = 2}, NULL);
      const char *before = i > 0 ? file : NULL;
      MsPlanOptions options = {
          .top = top[i], .prune = TRUE, .branch = branch, .threads = 2, .checkpoint = file, .resume = before};
      g_autoptr(MsPlan) plan = ms_plan(request, &options, NULL);
      assert_true(fresh && plan);
      ms_assert_same_plans(request, fresh, plan);
      assert_true(plan->simulated <= layouts_kept(file) && plan->resumed <= plan->simulated);
      ms_assert_counts(request, plan, (double)plan->searched);
    }
    g_remove(file), g_rmdir(folder);
  }
}

/* Whatever stands in the file: one line of error, or layouts that this program simulates to the time that the list has.
 * TRUE: a plan. */
static gboolean resumed(const MsRequest *request, const char *file, gboolean branch, const char *want) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsPlan) p = ms_plan(
      request, &(MsPlanOptions){.top = 3, .prune = TRUE, .branch = branch, .threads = 1, .resume = file}, &error);
  if (!p) {
    assert_int_equal(error->code, MS_ERROR_INPUT);
    assert_null(strchr(error->message, '\n'));
    if (want && !strstr(error->message, want)) fail_msg("\"%s\" does not say \"%s\"", error->message, want);
  }
  for (int i = 0; p && i < p->n_best; i++) assert_true(p->best[i].result && p->best[i].scenario);
  return p != NULL;
}

static void damaged_checkpoints_are_refused(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-XXXXXX", NULL), *file = g_build_filename(folder, "plan.json", NULL),
                  *text = NULL;
  g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[15]);
  g_autoptr(MsPlan) plan = ms_plan(
      request, &(MsPlanOptions){.top = 20, .prune = TRUE, .branch = TRUE, .threads = 2, .checkpoint = file}, &error);
  assert_true(plan && g_file_get_contents(file, &text, NULL, NULL));
  assert_true(resumed(request, file, TRUE, NULL));
  g_autoptr(GRegex) first_time = g_regex_new("\\[0, [0-9.]*, ", 0, 0, NULL),
                    gpus = g_regex_new("\\[0, ([0-9.]*, [0-9]*), 8, [0-9]*", 0, 0, NULL);
  g_autofree char *faster = g_regex_replace_literal(first_time, text, -1, 0, "[0, 1e-6, ", 0, NULL),
                  *off_axis = g_regex_replace(gpus, text, -1, 0, "[0, \\1, 8, 2147483647", 0, NULL);
  assert_true(strcmp(text, faster) != 0 && strcmp(text, off_axis) != 0);
  assert_true(g_file_set_contents(file, faster, -1, NULL));
  assert_false(resumed(request, file, TRUE, "simulated: has a layout with 1e-06 s a step, which takes another time"));
  assert_true(g_file_set_contents(file, off_axis, -1, NULL));
  assert_false(resumed(request, file, TRUE, "simulated[0]: is not a simulated layout of this request"));
  g_autoptr(GRand) rand = g_rand_new_with_seed(1);
  const char *rows = strstr(text, "\"simulated\"");
  int accepted = 0, rounds = ms_by_tier(30, 400);
  for (int i = 0; i < rounds; i++) { /* only behind the digest, which would refuse them all */
    g_autofree char *mutant = ms_test_mutate(rand, rows),
                    *whole = g_strdup_printf("%.*s%s", (int)(rows - text), text, mutant);
    assert_true(g_file_set_contents(file, whole, -1, NULL));
    accepted += resumed(request, file, i % 2, NULL);
  }
  assert_in_range(accepted, 1, rounds - 1);
  g_remove(file), g_rmdir(folder);
}

/* Products add to whole gradients and overwrite sharded ones, so that layers cost another share of a stage: in either
 * order of the values each has its own cut. */
static void sharded_gradients_have_their_own_cut(void **state) {
  (void)state;
  static const char *const fsdp[] = {"\"fsdp\": [\"none\", \"optim-grads\"], ",
                                     "\"fsdp\": [\"optim-grads\", \"none\"], ", "\"fsdp\": \"optim-grads\", "};
  double best[G_N_ELEMENTS(fsdp)];
  for (guint i = 0; i < G_N_ELEMENTS(fsdp); i++) {
    const MsSmallRequest small = {
        "sharded gradients",
        "\"nemotron-3-super\"",
        "l40s",
        16,
        1024,
        4,
        "\"micro_batch_size\": 1, \"precision\": \"bf16\", \"routing\": {\"capacity_factor\": 1.25}",
        "\"tp\": 8, \"cp\": 1, \"pp\": 2, \"vpp\": 4, \"ep\": 8, \"etp\": 1",
        fsdp[i]};
    g_autoptr(MsRequest) request = ms_small_request(&small);
    request->base->hardware->hbm_B = 1e15;
    g_autoptr(MsPlan) plan = ms_plan(request, &(MsPlanOptions){.top = 20, .prune = TRUE, .threads = 1}, NULL);
    assert_true(plan && plan->n_best > 0);
    best[i] = plan->best[0].result->step_time_s;
  }
  assert_true(best[0] == best[1] && best[0] == best[2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_tree_finds_the_same_list),
                                     cmocka_unit_test(sharded_gradients_have_their_own_cut),
                                     cmocka_unit_test(ways_of_fsdp_share_nodes),
                                     cmocka_unit_test(what_fits_exactly_is_found),
                                     cmocka_unit_test(memory_counts_what_lists_keep_alive),
                                     cmocka_unit_test(what_is_recomputed_everywhere_fits),
                                     cmocka_unit_test(null_is_a_value_of_sequence_parallel),
                                     cmocka_unit_test(rules_are_settled_with_open_keys),
                                     cmocka_unit_test(threads_do_not_matter),
                                     cmocka_unit_test(shortcuts_change_nothing),
                                     cmocka_unit_test(that_nothing_fits_is_seen_at_once),
                                     cmocka_unit_test(what_fits_in_no_cut_is_counted),
                                     cmocka_unit_test(bounds_of_sets_hold),
                                     cmocka_unit_test(bounds_of_sets_hold_on_draws),
                                     cmocka_unit_test(rows_between_replicas_follow_the_pipeline),
                                     cmocka_unit_test(instances_are_settled_with_messages),
                                     cmocka_unit_test(products_are_bounded_closely),
                                     cmocka_unit_test(one_microbatch_passes_all_stages),
                                     cmocka_unit_test(graphs_are_settled_before_passes_are_bounded),
                                     cmocka_unit_test(unsettled_keys_may_take_any_value),
                                     cmocka_unit_test(sets_wait_for_no_exchange),
                                     cmocka_unit_test(what_is_moved_depends_on_sizes_alone),
                                     cmocka_unit_test(the_first_list_is_near_the_best),
                                     cmocka_unit_test(resume_goes_on),
                                     cmocka_unit_test(longer_lists_count_layouts_once),
                                     cmocka_unit_test(damaged_checkpoints_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
