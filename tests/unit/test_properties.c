/* What holds for every request, on random ones: the order of values changes nothing, a list of values is as good as the
 * best of them, and every way to search gives the same list.
 *
 * The seeds are fixed and few. `make soak` gives others (MOESIM_SEED) for as long as it is told (MOESIM_SOAK_S); what
 * it finds is kept as a request file, whose name is printed. */
#include "lib/close.h"
#include "lib/draw_request.h"
#include "lib/tier.h"

#include "base/err.h"
#include "base/units.h"
#include "layout/layout.h"
#include "plan/bound_priv.h"
#include "plan/plan.h"

#include <math.h>
#include <string.h>

/* --- one plan -------------------------------------------------------------------------------------------------- */
typedef struct {
  int status; /* 0: a list, MS_ERROR_NOTHING: nothing feasible, else that of the error */
  guint64 searched;
  GPtrArray *list; /* char *: "step time scenario", exact */
  double best_s;
} Answer;

static void answer_clear(Answer *a) { g_clear_pointer(&a->list, g_ptr_array_unref); }
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Answer, answer_clear)

static char *line_of(const MsPlanEntry *e) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(e->scenario, NULL, out);
  g_autofree char *text = ms_json_out_take(out);
  return g_strdup_printf("%a %s", e->result->step_time_s, text);
}

static Answer ask(JsonNode *request, const MsPlanOptions *options) {
  Answer a = {.status = MS_ERROR_INPUT, .list = g_ptr_array_new_with_free_func(g_free), .best_s = INFINITY};
  g_autofree char *text = json_to_string(request, FALSE);
  g_autoptr(GError) error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "drawn", &error);
  g_autoptr(MsRequest) parsed = doc ? ms_request_from_doc(doc, &error) : NULL;
  g_autoptr(MsPlan) plan = parsed ? ms_plan(parsed, options, &error) : NULL;
  if (!plan) {
    a.status = error->code;
    return a;
  }
  a.status = plan->n_best > 0 ? 0 : MS_ERROR_NOTHING;
  a.searched = plan->searched;
  for (int i = 0; i < plan->n_best; i++) g_ptr_array_add(a.list, line_of(&plan->best[i]));
  if (plan->n_best > 0) a.best_s = plan->best[0].result->step_time_s;
  return a;
}

static MsPlanOptions one_thread(int top) {
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.progress = FALSE, options.threads = 1, options.top = top;
  return options;
}

/* --- a list of values ------------------------------------------------------------------------------------------ */
static void put_list(JsonNode *request, const MsDrawnKey *key, gboolean reversed) {
  guint n = json_array_get_length(key->values);
  JsonArray *list = json_array_new();
  for (guint i = 0; i < n; i++)
    json_array_add_element(list, ms_json_copy(json_array_get_element(key->values, reversed ? n - 1 - i : i)));
  g_autoptr(JsonNode) node = json_node_init_array(json_node_alloc(), list);
  json_array_unref(list);
  ms_request_put(request, key->section, key->key, node);
}

static gboolean same_key(const MsDrawnKey *a, const MsDrawnKey *b) {
  return strcmp(a->section, b->section) == 0 && strcmp(a->key, b->key) == 0;
}

/* Of a request without a plan the step that `run` says; INFINITY where it cannot run. */
static double run_s(JsonNode *request) {
  g_autoptr(JsonNode) plain = ms_json_copy(request);
  json_object_remove_member(json_node_get_object(plain), "plan");
  g_autofree char *text = json_to_string(plain, FALSE);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "drawn", NULL);
  g_autoptr(MsScenario) s = doc ? ms_scenario_from_doc(doc, NULL) : NULL;
  g_autoptr(MsResult) r = s ? ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL) : NULL;
  return r ? r->step_time_s : INFINITY;
}

/* The best of all combinations, planned one by one; a run of the same keys is no faster. NULL, or what is wrong.
 * (transfer full) */
static char *best_alone(JsonNode *request, const MsDrawnKey *key, int n_keys, double *best_s) {
  guint n[2] = {json_array_get_length(key[0].values), n_keys > 1 ? json_array_get_length(key[1].values) : 1};
  MsPlanOptions options = one_thread(1);
  for (guint i = 0; i < n[0] * n[1]; i++) {
    ms_request_put(request, key[0].section, key[0].key, json_array_get_element(key[0].values, i % n[0]));
    if (n_keys > 1)
      ms_request_put(request, key[1].section, key[1].key, json_array_get_element(key[1].values, i / n[0]));
    g_auto(Answer) alone = ask(request, &options);
    *best_s = MIN(*best_s, alone.best_s);
    double run = run_s(request);
    if (alone.best_s > run * (1 + 1e-9)) return g_strdup_printf("planned alone %a, run %a", alone.best_s, run);
  }
  return NULL;
}

static char *order_of_values(GRand *rand, JsonNode *request) {
  MsDrawnKey key[2] = {ms_draw_key(rand), ms_draw_key(rand)};
  int n_keys = same_key(&key[0], &key[1]) || g_rand_boolean(rand) ? 1 : 2;
  ms_request_put_text(request, "plan", "max_memory_fraction", "1");
  g_autofree char *hardware = g_strdup_printf("{\"base\": \"%s\", \"hbm_B\": 1e15}",
                                              json_object_get_string_member(json_node_get_object(request), "hardware"));
  ms_request_put_text(request, "", "hardware", hardware);
  double best_s = INFINITY;
  char *wrong = best_alone(request, key, n_keys, &best_s);
  for (int reversed = 0; reversed < 2 && !wrong; reversed++) {
    for (int k = 0; k < n_keys; k++) put_list(request, &key[k], reversed);
    MsPlanOptions options = one_thread(1);
    g_auto(Answer) list = ask(request, &options);
    if (list.best_s != best_s && !(list.status == MS_ERROR_INPUT && isinf(best_s)))
      wrong = g_strdup_printf("%s %s%s%s in %s: %a (status %d), alone %a", key[0].section, key[0].key,
                              n_keys > 1 ? ", " : "", n_keys > 1 ? key[1].key : "",
                              reversed ? "reversed order" : "order", list.best_s, list.status, best_s);
  }
  ms_drawn_key_clear(&key[0]), ms_drawn_key_clear(&key[1]);
  return wrong;
}

/* --- ways to search -------------------------------------------------------------------------------------------- */
static void open_sizes(GRand *rand, JsonNode *request) {
  static const char *const tp[] = {"[1, 2]", "[1, 2, 4]", "1"}, *const pp[] = {"[1, 2]", "[1, 2, 4]", "[2, 4]"},
                           *const ep[] = {"[1, 2, 4]", "[2, 8]", "8", "[1, 8]"}, *const mbs[] = {"1", "[1, 2]", "2"},
                           *const schedule[] = {"\"auto\"", "[\"1f1b\", \"zb-h1\"]",
                                                "[\"1f1b\", \"dualpipe\", \"dualpipev\"]",
                                                "[\"zb-v\", \"v-half\", \"v-min\", \"1f1b\"]", "[\"zb-h2\", \"1f1b\"]"};
#define ONE_OF(list) list[g_rand_int_range(rand, 0, G_N_ELEMENTS(list))]
  gboolean moe =
      json_object_get_int_member(json_object_get_object_member(json_node_get_object(request), "layout"), "ep") > 1;
  ms_request_put_text(request, "layout", "tp", ONE_OF(tp)), ms_request_put_text(request, "layout", "pp", ONE_OF(pp));
  if (moe) ms_request_put_text(request, "layout", "ep", ONE_OF(ep));
  ms_request_put_text(request, "layout", "vpp", g_rand_boolean(rand) ? "1" : "[1, 2]");
  ms_request_put_text(request, "layout", "cp", g_rand_int_range(rand, 0, 3) ? "1" : "[1, 2]");
  if (g_rand_int_range(rand, 0, 3) == 0) ms_request_put_text(request, "layout", "schedule", ONE_OF(schedule));
  ms_request_put_text(request, "training", "micro_batch_size", ONE_OF(mbs));
  ms_request_put_text(request, "", "gpus", g_rand_boolean(rand) ? "8" : "16");
  ms_request_put_text(request, "training", "global_batch_size", g_rand_boolean(rand) ? "32" : "64");
#undef ONE_OF
}

static gboolean same_answer(const Answer *a, const Answer *b) {
  if (a->status != b->status || a->list->len != b->list->len) return FALSE;
  for (guint i = 0; i < a->list->len; i++)
    if (strcmp(a->list->pdata[i], b->list->pdata[i]) != 0) return FALSE;
  return TRUE;
}

static char *other_way(JsonNode *request, const Answer *mine, const char *name, const MsPlanOptions *options) {
  g_auto(Answer) other = ask(request, options);
  return same_answer(mine, &other)
             ? NULL
             : g_strdup_printf("%s: status %d and %d, %u and %u layouts, best %a and %a", name, mine->status,
                               other.status, mine->list->len, other.list->len, mine->best_s, other.best_s);
}

static char *no_worse(JsonNode *request, const Answer *mine, const char *name) {
  MsPlanOptions options = one_thread(1);
  g_auto(Answer) more = ask(request, &options);
  return more.best_s <= mine->best_s ? NULL
                                     : g_strdup_printf("%s is worse: %a and %a", name, mine->best_s, more.best_s);
}

static double memory_of(GRand *rand) { return 1e9 * (double)g_rand_int_range(rand, 16, 96); }

static void put_memory(JsonNode *request, const char *machine, double memory_B) {
  g_autofree char *hardware = g_strdup_printf("{\"base\": \"%s\", \"hbm_B\": %.0f}", machine, memory_B);
  ms_request_put_text(request, "", "hardware", hardware);
}

static char *ways_to_search(GRand *rand, JsonNode *request) {
  MsDrawnKey key = ms_draw_key(rand);
  g_autofree char *machine = g_strdup(json_object_get_string_member(json_node_get_object(request), "hardware"));
  double memory_B = memory_of(rand);
  put_memory(request, machine, memory_B);
  open_sizes(rand, request);
  put_list(request, &key, FALSE);
  ms_drawn_key_clear(&key);
  MsPlanOptions options = one_thread(1 + g_rand_int_range(rand, 0, 4));
  g_auto(Answer) mine = ask(request, &options);
  if (mine.status != 0 && mine.status != MS_ERROR_NOTHING) return NULL;
  options.threads = 2;
  char *wrong = other_way(request, &mine, "two threads", &options);
  options.branch = TRUE;
  if (!wrong) wrong = other_way(request, &mine, "branch", &options);
  options.branch = options.prune = FALSE;
  if (!wrong && mine.searched <= 400) wrong = other_way(request, &mine, "no-prune", &options);
  if (wrong || mine.status != 0) return wrong;
  put_memory(request, machine, 1.5 * memory_B);
  wrong = no_worse(request, &mine, "more memory");
  put_memory(request, machine, memory_B);
  ms_request_put_text(request, "layout", "pp", "[1, 2, 4, 8]");
  return wrong ? wrong : no_worse(request, &mine, "a larger space");
}

/* --- bounds ---------------------------------------------------------------------------------------------------- */
static struct {
  double sum;
  int n;
} tightness, overlapped; /* of the first bound of the memory, as shares of what is needed (FSDP's are of the largest
                          * unit alone); of the bounds of passes with EP overlap, as shares of the step */

static int sharded; /* layouts of which FSDP moves at least half of what the busiest stream has */

/* The bound of a layout's memory that holds for every cut against the first of its own, and that against what it needs.
 * (transfer full) */
static char *memory_bound(const MsScenario *s, MsPieceMemo *memo, const MsShape *shape) {
  MsScreen screen;
  const MsLayoutSpec *l = &s->layout;
  const MsStateBytes bytes = ms_state_bytes(memo, s);
  double dp_cp = (double)s->gpus / l->tp / l->pp, edp = (double)s->gpus / l->etp / l->ep / l->pp,
         bound_B = ms_bound_device_B(shape, memo, &bytes, dp_cp, edp, s),
         any_cut_B = ms_bound_any_cut_B(memo, &bytes, dp_cp, edp, s);
  if (any_cut_B > bound_B)
    return g_strdup_printf("%s: at least %.9g bytes in any cut, %.9g in its own", s->name, any_cut_B, bound_B);
  if (!ms_screen(s, memo->cost, &(MsWorth){INFINITY, INFINITY}, &screen)) return NULL;
  if (s->options.fsdp == MS_FSDP_NONE) tightness.sum += bound_B / screen.device_B, tightness.n++;
  return bound_B <= screen.device_B
             ? NULL
             : g_strdup_printf("%s: at least %.9g bytes, needs %.9g", s->name, bound_B, screen.device_B);
}

/* What FSDP moves around the passes of a shape against the busiest stream and link of the layout. (transfer full) */
static char *moved_bound(const MsScenario *s, MsPieceMemo *memo, const MsShape *shape) {
  g_autoptr(MsProgram) program = ms_program_new_like(memo->work, memo->cost, memo->piece);
  g_autofree MsBusy *unit = g_new(MsBusy, memo->n);
  ms_bound_units(program, unit);
  MsTime moved = ms_bound_moved(shape, memo, unit), streams = ms_bound_streams(program);
  sharded += s->options.fsdp >= MS_FSDP_OPTIM_GRADS && 2 * moved > streams;
  return moved <= streams ? NULL
                          : g_strdup_printf("%s: FSDP moves for %.9g ps, the busiest stream for %.9g", s->name,
                                            (double)moved, (double)streams);
}

/* Bounds of one layout, and what they may not exceed, in picoseconds. */
typedef struct {
  MsTime first, passes; /* sums over its busiest stage; its passes slot by slot (0: not known) */
  double stages;        /* whole model, shared out evenly */
  double passage;       /* one microbatch through all of it */
  double full;
} Bounds;

/* FALSE: the layout cannot be. *wrong (transfer full): what is wrong of its memory. `simulates`: with `full`. */
static gboolean bounds_of(const MsSpace *space, const MsCandidate *c, gboolean simulates, Bounds *b, char **wrong) {
  MsRefusal refusal;
  int rule;
  g_autoptr(MsScenario) s = ms_candidate_scenario(space, c, NULL), scratch = ms_space_scratch(space);
  MsPieceMemo *memo = ms_layout_check(s, &refusal) ? ms_memo_new(s, NULL) : NULL;
  if (!memo) return FALSE;
  MsShapes *shapes = ms_shapes_new();
  ms_space_apply_combo(space, c->combo, scratch);
  ms_space_apply_axes(c->value, scratch);
  const MsShape *shape = ms_shapes_get(shapes, ms_shapes_map(shapes, memo), memo, space, c, scratch, &rule);
  gboolean splits = ms_schedule_may_split(s->layout.schedule);
  double replicas = (double)s->gpus / (s->layout.tp * s->layout.cp),
         microbatches = (1 - 1e-9) * s->training.global_batch_size / (s->training.micro_batch_size * replicas), full_s;
  if (shape) {
    *b =
        (Bounds){.first = ms_bound_time(shape, memo), .passes = ms_bound_passes(memo, s, G_MAXINT64), .full = INFINITY};
    b->stages = ms_memo_total(memo, MS_TOTAL_SPAN, splits, microbatches);
    b->passage = MAX(ms_memo_passage(memo, MS_TOTAL_SPAN, splits), ms_memo_passage(memo, MS_TOTAL_ROWS, splits));
    if (ms_schedule_row(s->layout.schedule)->steps == MS_STEPS_APART)
      b->stages = MAX(b->stages, ms_memo_total(memo, MS_TOTAL_HOST, splits, microbatches));
    if (simulates && ms_step_time(s, memo->cost, INFINITY, &full_s, NULL)) b->full = full_s * MS_PS_PER_S * (1 + 1e-12);
    *wrong = memory_bound(s, memo, shape);
    if (!*wrong) *wrong = moved_bound(s, memo, shape);
    MsTime within = ms_bound_passes(memo, s, b->passes);
    if (!*wrong && within != b->passes)
      *wrong = g_strdup_printf("passes %.9g ps, with that as the limit %.9g", (double)b->passes, (double)within);
  }
  ms_shapes_free(shapes);
  ms_memo_free(memo);
  return shape != NULL;
}

static MsSpace *space_of(JsonNode *request, MsRequest **parsed) {
  g_autofree char *text = json_to_string(request, FALSE);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "drawn", NULL);
  *parsed = doc ? ms_request_from_doc(doc, NULL) : NULL;
  return *parsed ? ms_space_new(*parsed, TRUE, NULL) : NULL;
}

/* The first bound of each layout against its passes: both are of the passes alone, so that neither messages nor the
 * optimizer hide what the first counts too much. With EP overlap they count what runs on from one turn into the next
 * in different ways, the first one also compute of the exchanges' stream, which the passes put beside other compute
 * and which only `full` lets share the SMs: all are held to `full`. (transfer full) */
static char *bounds_of_all(JsonNode *request, gboolean simulates) {
  g_autoptr(MsRequest) parsed = NULL;
  MsSpace *space = space_of(request, &parsed);
  char *wrong = NULL;
  MsCandidate c = {0};
  Bounds b = {0};
  for (int axis = 0; space && axis < MS_N_AXES; axis++) c.value[axis] = space->axis[axis].value[0];
  for (int v = 0; space && v < space->axis[MS_AXIS_VPP].n; v++)
    for (c.combo = 0; c.combo < space->n_combos && !wrong; c.combo++) {
      c.value[MS_AXIS_VPP] = space->axis[MS_AXIS_VPP].value[v];
      if (!bounds_of(space, &c, simulates, &b, &wrong) || wrong) continue;
      double passes = b.passes > 0 ? (double)b.passes : INFINITY, most = simulates ? b.full : passes,
             least = MAX(MAX((double)b.first, (double)b.passes), MAX(b.stages, b.passage));
      if (b.full < INFINITY) overlapped.sum += MAX((double)b.first, (double)b.passes) / b.full, overlapped.n++;
      if ((!simulates && (double)b.first > passes) || least > most)
        wrong = g_strdup_printf("combination %d, vpp %d: whole model %.9g ps, one microbatch %.9g, first bound %.9g, "
                                "passes %.9g, full %.9g",
                                (int)c.combo, c.value[MS_AXIS_VPP], b.stages, b.passage, (double)b.first,
                                (double)b.passes, b.full);
    }
  ms_space_free(space);
  return wrong;
}

static char *first_bound_is_below(GRand *rand, JsonNode *request) {
  ms_request_put_text(request, "layout", "vpp", "[1, 2]");
  ms_request_put_text(request, "layout", "schedule", "[\"1f1b\", \"gpipe\"]"); /* stages end one after the other */
  if (g_rand_boolean(rand)) ms_request_put_text(request, "training", "optimizer", "\"muon\"");
  if (g_rand_int_range(rand, 0, 4) == 0) ms_request_put_text(request, "options", "fsdp", "\"auto\"");
  return bounds_of_all(request, FALSE);
}

static char *overlapped_bounds_are_below(GRand *rand, JsonNode *request) {
  static const char *const dispatchers[] = {"\"alltoall\"", "\"deepep\"", "\"hybridep\"", "\"allgather\""};
  ms_request_put_text(request, "options", "ep_overlap", "true");
  ms_request_put_text(request, "options", "dispatcher", dispatchers[g_rand_int_range(rand, 0, 4)]);
  ms_request_put_text(request, "options", "cuda_graph_scope", "[[], [\"attn\"]]");
  ms_request_put_text(request, "options", "delay_wgrad", g_rand_boolean(rand) ? "true" : "false");
  ms_request_put_text(request, "layout", "vpp", "[1, 2, 4]");
  ms_request_put_text(request, "layout", "schedule", "[\"1f1b\", \"dualpipe\", \"dualpipev\"]");
  return bounds_of_all(request, TRUE);
}

/* --- draws ----------------------------------------------------------------------------------------------------- */
typedef char *(*Property)(GRand *rand, JsonNode *request); /* NULL, or what is wrong (transfer full) */

static double number_of(const char *variable, double fallback) {
  const char *given = g_getenv(variable);
  return given && *given ? g_ascii_strtod(given, NULL) : fallback;
}

/* Draw i of a seed is the same alone. */
static gboolean holds(Property property, const char *name, guint32 seed, guint32 i) {
  const guint32 seeds[] = {seed, i};
  g_autoptr(GRand) rand = g_rand_new_with_seed_array(seeds, G_N_ELEMENTS(seeds));
  g_autoptr(JsonNode) request = ms_draw_request(rand);
  g_autofree char *wrong = property(rand, request);
  if (!wrong) return TRUE;
  g_autofree char *kept = g_strdup_printf("%s/moesim-%s-%u-%u.json", g_get_tmp_dir(), name, seed, i),
                  *text = json_to_string(request, TRUE);
  g_file_set_contents(kept, text, -1, NULL);
  print_message("%s, seed %u, draw %u: %s; %s\n", name, seed, i, wrong, kept);
  return FALSE;
}

static void hold(Property property, const char *name, guint few) {
  double soak_s = number_of("MOESIM_SOAK_S", 0);
  guint32 seed = (guint32)number_of("MOESIM_SEED", 1), draws = 0, wrong = 0;
  gint64 until_us = g_get_monotonic_time() + (gint64)(soak_s * 1e6);
  for (; soak_s > 0 ? g_get_monotonic_time() < until_us : draws < few; draws++)
    wrong += !holds(property, name, seed, draws);
  if (soak_s > 0) print_message("%s: seed %u, %u draws, %u counterexamples\n", name, seed, draws, wrong);
  assert_int_equal(wrong, 0);
}

static void values_in_any_order(void **state) {
  (void)state;
  assert_true(holds(order_of_values, "order-of-values", 815, 142)); /* kernels of attention that only the cost tells */
  hold(order_of_values, "order-of-values", (guint)ms_by_tier(24, 240));
}

static void every_way_finds_the_same(void **state) {
  (void)state;
  hold(ways_to_search, "ways-to-search", (guint)ms_by_tier(4, 60));
}

static void first_bounds_hold(void **state) {
  (void)state;
  hold(first_bound_is_below, "first-bound", (guint)ms_by_tier(60, 300));
  assert_true(tightness.sum > 0.955 * tightness.n && sharded > 0);
}

static void bounds_with_overlap_hold(void **state) {
  (void)state;
  hold(overlapped_bounds_are_below, "overlapped-bounds", (guint)ms_by_tier(60, 300));
  print_message("bounds with EP overlap: %d layouts, %.3f of the step\n", overlapped.n, overlapped.sum / overlapped.n);
}

/* Four layers on one stage with EP overlap, and a network that is slow beside compute: bounds of the only layout, and
 * *lone (picoseconds) what its bound would be if no pass had another beside it. */
static Bounds bounds_on_one_stage(int microbatches, MsTime *lone) {
  g_autofree char
      *wrong = NULL,
      *text = g_strdup_printf(
          "{\"schema\": 1, \"model\": {\"base\": \"mixtral-8x7b\", \"num_layers\": 4}, \"hardware\": "
          "{\"base\": \"h100-sxm\", \"scaleup_Bps\": 1.2e11}, \"gpus\": 8, \"training\": {\"seq_length\": "
          "4096, \"micro_batch_size\": 1, \"global_batch_size\": %d, \"precision\": \"bf16\", \"routing\": "
          "\"balanced\"}, \"layout\": {\"tp\": 1, \"cp\": 1, \"pp\": 1, \"vpp\": 1, \"ep\": 8, \"etp\": 1}, "
          "\"options\": {\"ep_overlap\": true, \"dispatcher\": \"alltoall\", \"recompute\": "
          "{\"granularity\": \"none\"}}}",
          8 * microbatches);
  g_autoptr(MsRequest) parsed = NULL;
  g_autoptr(JsonNode) request = json_from_string(text, NULL);
  MsSpace *space = space_of(request, &parsed);
  MsCandidate c = {0};
  Bounds b = {0};
  assert_non_null(space);
  for (int axis = 0; axis < MS_N_AXES; axis++) c.value[axis] = space->axis[axis].value[0];
  assert_true(bounds_of(space, &c, TRUE, &b, &wrong));
  if (wrong) fail_msg("%s", wrong);
  g_autoptr(MsScenario) s = ms_candidate_scenario(space, &c, NULL);
  MsPieceMemo *memo = ms_memo_new(s, NULL);
  const MsPieceTime *time = ms_memo_times(memo, FALSE);
  *lone = -memo->ends[FALSE];
  for (int i = 0; i < memo->n; i++)
    *lone += microbatches * memo->in_model[i] * (time[i].direct + time[i].lone[0] + time[i].lone[1]);
  ms_memo_free(memo);
  ms_space_free(space);
  return b;
}

/* Of one microbatch no pass has another beside it. Of many nearly all passes have one, and the sum of what each adds is
 * close to the step, but not above it. */
static void pairs_and_lone_passes_are_counted_once(void **state) {
  (void)state;
  MsTime lone;
  const Bounds one = bounds_on_one_stage(1, &lone);
  if (one.first != lone) fail_msg("one microbatch: %.9g ps, passes alone %.9g", (double)one.first, (double)lone);
  const Bounds many = bounds_on_one_stage(64, &lone);
  if ((double)many.first > many.full || (double)many.first < 0.95 * many.full || many.first >= lone)
    fail_msg("first bound %.9g ps, full %.9g, passes alone %.9g", (double)many.first, many.full, (double)lone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_in_any_order),
      cmocka_unit_test(every_way_finds_the_same),
      cmocka_unit_test(first_bounds_hold),
      cmocka_unit_test(bounds_with_overlap_hold),
      cmocka_unit_test(pairs_and_lone_passes_are_counted_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
