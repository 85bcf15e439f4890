/* src/plan/tree.c - branch and bound over a space too large to look at every layout: which node of the tree (tree.h) is
 * taken next, and when it is enough.
 *
 * Nodes are taken in rounds: the cheapest ones, which alone raise what is proven, or those that may come to least,
 * which improve the list. What a node may come to is its bound times what a good layout costs by its bound on that
 * level: a set of sizes whose matrix products take a second is no nearer to a layout than a pipeline that takes three.
 * The latter are taken until the list is full, and for a share of the work from then on. Who takes a node does not
 * show: children are put in order. The search ends when the cheapest node left costs more than the last of the list;
 * stopped before, the cheapest node left is what is proven. For a front it goes on from there: dear nodes were kept,
 * and what was simulated and fits is in the next list from the start. */
#include "plan/tree.h"
#include "plan/parallel_priv.h"
#include "base/heap.h"
#include "base/io.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/units.h"
#include <math.h>
#include <string.h>

enum {
  ROUND = 64,     /* nodes that are cheapest */
  HOPEFUL = 16,   /* nodes that may come to least */
  FIRST = 8,      /* the same until the list is full */
  HOPE_SHARE = 2, /* work on the cheapest for each on these */
  CLIMB = 16,     /* rounds from one look around the best layout to the next */
  NEAREST = 4 /* nodes too large for the memory that are looked into where nothing fits, to say what comes nearest */
};

/* Of each level: how long it takes to expand a node, and what a good layout costs by its bound there at least, both
 * measured on requests with few and with many open keys. They decide the order alone. */
static const int work_of[MS_N_LEVELS] = {1, 2, 2, 3, 1, 1, 8};
#define LEARNS 0.1
static const double usual[MS_N_LEVELS] = {3, 1.45, 1.35, 1.3, 1.17, 1.17, 1.07};

MS_ORDER(compare_nodes, MsBranch, ms_candidate_compare(&x->c, &y->c), 0)
/* The schedule of a node that settles it, which its heap is of. */
static int schedule_of(const MsTree *t, const MsBranch *node) {
  const MsSpace *space = t->space;
  if (node->level < MS_LEVEL_SHAPE) return 0;
  return t->schedule_of[node->c.combo / space->stride[MS_ROLE_SHAPE] % space->n_of_role[MS_ROLE_SHAPE]];
}

static void push_node(MsTree *t, const MsBranch *node) {
  ms_heap_push(t->heap[node->level][schedule_of(t, node)], node, compare_nodes);
}

static MsBranch pop(GArray *heap) {
  MsBranch top;
  ms_heap_pop(heap, &top, compare_nodes);
  return top;
}

static const MsBranch *top_of(const MsTree *t, int level, int schedule) {
  GArray *heap = t->heap[level][schedule];
  return heap->len ? &g_array_index(heap, MsBranch, 0) : NULL;
}

static double least_cost(const MsTree *t) {
  double cost = INFINITY;
  for (int level = 0; level < MS_N_LEVELS; level++)
    for (int k = 0; k < MS_N_SCHEDULES; k++)
      if (top_of(t, level, k)) cost = MIN(cost, top_of(t, level, k)->c.cost);
  return cost;
}

static void expand(int index, int thread, gpointer data) {
  MsTree *t = data;
  if (!ms_interrupted()) ms_tree_expand(t, &t->worker[thread], &t->round[index]);
}

static void expand_root(int index, int thread, gpointer data) {
  MsTree *t = data;
  if (!ms_interrupted()) ms_tree_expand_axes(t, &t->worker[thread], index);
}

/* --- rounds --- */

static void move(GArray *into, GArray *from) {
  g_array_append_vals(into, from->data, from->len);
  g_array_set_size(from, 0);
}

static void collect(MsTree *t) {
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsBranch));
  for (int i = 0; i < t->threads; i++) move(all, t->worker[i].children);
  ms_ranks_gather(all);
  for (guint i = 0; i < all->len; i++) push_node(t, &g_array_index(all, MsBranch, i));
}

/* As 1F1B keeps microbatches, PP of a PP-th of the model each. */
MS_ORDER(nearest_first, MsTooLarge, MS_LESS(x->miss_B + x->kept_B, y->miss_B + y->kept_B),
         compare_nodes(&x->node, &y->node))

static void collect_first(MsTree *t) {
  collect(t);
  for (int i = 0; i < t->threads; i++) move(t->too_large, t->worker[i].too_large);
  ms_ranks_gather(t->too_large);
  g_array_sort(t->too_large, nearest_first);
}

static gboolean may_enter(const MsTree *t, const MsBranch *node) { return node && !ms_tree_dear(t, node->c.cost); }

/* What is taken before its turn improves the list: of layouts, which cost a simulation each, only what may be the best.
 */
static gboolean may_improve(const MsTree *t, const MsBranch *node) {
  const MsPlanner *x = t->x;
  gboolean waits = node && node->level == MS_LEVEL_LAYOUT && x->n_list == x->top && node->c.cost > x->list[0].cost;
  return may_enter(t, node) && !waits;
}

static gboolean list_is_full(const MsTree *t) { return t->x->n_list == t->x->top; }

/* What a node may come to; until there is a list to compare with layouts are taken as they come. */
static double hoped(const MsTree *t, const MsBranch *node) {
  gboolean at_once = node->level == MS_LEVEL_LAYOUT && !list_is_full(t);
  return node->c.cost * (at_once ? 0.5 : t->hope[node->level][schedule_of(t, node)]);
}

/* The heap to take the next node from, or NULL: of the node that may come to least; of the cheapest. */
static GArray *hopeful(const MsTree *t) {
  GArray *best = NULL;
  double least = INFINITY;
  for (int level = 0; level < MS_N_LEVELS; level++)
    for (int k = 0; k < MS_N_SCHEDULES; k++) {
      const MsBranch *top = top_of(t, level, k);
      if (may_improve(t, top) && hoped(t, top) < least) least = hoped(t, top), best = t->heap[level][k];
    }
  return best;
}

static GArray *cheapest(const MsTree *t) {
  GArray *best = NULL;
  for (int level = 0; level < MS_N_LEVELS; level++)
    for (int k = 0; k < MS_N_SCHEDULES; k++) {
      const MsBranch *top = top_of(t, level, k);
      if (may_enter(t, top) && (!best || top->c.cost <= g_array_index(best, MsBranch, 0).c.cost))
        best = t->heap[level][k];
    }
  return best;
}

static gboolean has_memory(const MsBranch *node) {
  return node->level == MS_LEVEL_SHAPE || node->level == MS_LEVEL_LAYOUT;
}

/* FALSE: it is not to be looked at. */
static gboolean take(MsTree *t, GArray *heap, MsBranch *node) {
  *node = pop(heap);
  if (has_memory(node) && node->had > t->x->s.plan->memory_limit_B) return FALSE; /* of a front */
  if (node->level < MS_LEVEL_LAYOUT || !ms_planner_known(t->x, &node->c, t->threshold)) return TRUE;
  t->x->s.plan->feasible--; /* it is near the best and was counted there */
  return FALSE;
}

/* The nodes of the next round; of layouts at most a batch. */
static int choose(MsTree *t, MsBranch *round) {
  gboolean full = list_is_full(t), hopes = !full || HOPE_SHARE * t->worked[TRUE] <= t->worked[FALSE];
  int n = 0, layouts = 0, most = !hopes ? ROUND : full ? HOPEFUL : FIRST;
  while (n < most) {
    GArray *heap = hopes ? hopeful(t) : NULL;
    if (!heap && !(heap = cheapest(t))) break;
    gboolean layout = g_array_index(heap, MsBranch, 0).level == MS_LEVEL_LAYOUT;
    if (layout && layouts == MS_BATCH) break;
    if (!take(t, heap, &round[n])) continue;
    t->worked[hopes] += full ? work_of[round[n].level] : 0;
    n++;
    layouts += layout;
  }
  return n;
}

static void put_back(MsTree *t, const MsBranch *round, int n) {
  for (int i = 0; i < n; i++) push_node(t, &round[i]);
}

static void tell(MsTree *t) {
  MsPlanner *x = t->x;
  char note[128];
  double left = least_cost(t), best = x->n_list ? x->list[0].cost : INFINITY,
         gap = x->n_list ? MAX(0, 1 - MIN(left, best) / best) : 1;
  if (x->n_list)
    g_snprintf(note, sizeof note, "best %.4g s, at most %.2g %% better to be found, %" G_GUINT64_FORMAT " simulated",
               x->list[0].step_time_s, 100 * gap, x->s.plan->simulated);
  else g_strlcpy(note, "bounding layouts", sizeof note);
  ms_planner_tell(x, 1 - gap, note);
}

/* What costs more than the first of this list may be the first of the next, so that it is known exactly. */
static void simulate_for_front(MsTree *t, const MsBranch *node, const MsCandidate *layout, int n, gboolean *done) {
  MsOutcome outcome[MS_BATCH];
  ms_planner_outcomes(t->x, layout, n, outcome, done);
  for (int i = 0; i < n; i++) {
    if (!done[i]) continue;
    ms_planner_settle(t->x, &outcome[i], NULL);
    double step_s = outcome[i].step_time_s,
           cost = ms_objective_cost(t->space->request, layout[i].value[MS_AXIS_GPUS], step_s);
    const MsOnFront own = {{layout[i], cost, step_s, NULL}, node[i].had};
    if (outcome[i].kind == MS_OUTCOME_RUN && !isinf(cost)) g_array_append_val(t->front, own);
  }
}

/* Of a layout that was simulated: what it costs, at least, by its bound on each level. Those of a schedule count the
 * less the longer ago they were, so that bounds which mislead do so for a while only. */
static void learn(MsTree *t, const MsBranch *leaf) {
  const MsOutcome *o = ms_checkpoint_find(t->x->checkpoint, &leaf->c);
  if (!o || o->kind == MS_OUTCOME_ERROR) return;
  double cost = ms_objective_cost(t->space->request, leaf->c.value[MS_AXIS_GPUS], o->step_time_s);
  gboolean best = o->kind == MS_OUTCOME_RUN && cost < t->hope_of;
  for (int level = 0; level < MS_N_LEVELS; level++) {
    double bound = level < MS_LEVEL_LAYOUT ? leaf->was[level] : leaf->c.cost, *own = &t->hope[level][0];
    if (!(bound > 0) || isinf(cost) || (level < MS_LEVEL_SHAPE && !best)) continue;
    if (level < MS_LEVEL_SHAPE) *own = MAX(cost / bound, usual[level]);
    else own += schedule_of(t, leaf), *own += LEARNS * (cost / bound - *own);
  }
  if (best) t->hope_of = cost;
}

static void one_round(MsTree *t) {
  MsBranch round[ROUND], rest[ROUND], leaf[MS_BATCH];
  MsCandidate layout[MS_BATCH];
  gboolean done[MS_BATCH];
  t->threshold = ms_planner_threshold(t->x);
  int n = choose(t, round), layouts = 0, others = 0;
  for (int i = 0; i < n; i++) {
    if (round[i].level == MS_LEVEL_LAYOUT) layout[layouts] = round[i].c, leaf[layouts++] = round[i];
    else rest[others++] = round[i];
  }
  if (layouts > 0 && t->front) simulate_for_front(t, leaf, layout, layouts, done);
  else if (layouts > 0) ms_planner_simulate(t->x, layout, layouts, done);
  for (int i = 0; i < layouts; i++) learn(t, &leaf[i]);
  t->threshold = ms_planner_threshold(t->x);
  t->round = rest;
  ms_parallel(others, t->threads, expand, t);
  collect(t);
  if (ms_ranks_any(ms_interrupted())) { /* some may not be done: what is proven holds for all of them */
    put_back(t, rest, others);
    for (int i = 0; i < layouts; i++)
      if (!done[i]) push_node(t, &leaf[i]);
  }
  tell(t);
}

/* --- beginning and end --- */

static void settle_known(MsTree *t, gboolean dear) {
  guint n;
  const MsOutcome *known = ms_checkpoint_rows(t->x->checkpoint, &n);
  for (guint i = 0; i < n; i++) {
    if ((known[i].kind == MS_OUTCOME_DEAR) != dear ||
        !ms_planner_known(t->x, &known[i].candidate, ms_planner_threshold(t->x)))
      continue;
    t->x->s.plan->resumed++;
    if (ms_planner_starts(t->x, &known[i].candidate)) ms_planner_settle(t->x, &known[i], NULL);
  }
}

/* What an earlier run simulated is in the list from the start. What it saw to be dear for its list may not be for this
 * one, and is simulated when its turn comes. */
static void take_known(MsTree *t) {
  settle_known(t, FALSE);
  settle_known(t, TRUE);
  t->x->s.plan->feasible = t->x->s.plan->simulated; /* they are not screened again */
}

static void begin(MsTree *t) {
  ms_tree_sort_keys(t);
  for (int level = 0; level < MS_N_LEVELS; level++)
    for (int k = 0; k < MS_N_SCHEDULES; k++)
      t->heap[level][k] = g_array_new(FALSE, FALSE, sizeof(MsBranch)), t->hope[level][k] = usual[level];
  t->hope_of = t->climbed = INFINITY;
  t->too_large = g_array_new(FALSE, FALSE, sizeof(MsTooLarge));
  t->worker = g_new0(MsTreeWorker, t->threads);
  for (int i = 0; i < t->threads; i++) {
    MsTreeWorker *w = &t->worker[i];
    w->children = g_array_new(FALSE, FALSE, sizeof(MsBranch));
    w->too_large = g_array_new(FALSE, FALSE, sizeof(MsTooLarge));
    w->shapes = ms_shapes_new();
    w->lists = ms_shape_lists_new();
    w->sharded = ms_sharded_new();
    w->bytes = g_new0(MsBytesList, t->n_late), w->bytes_of = -1;
    gsize ways = t->gradients.choice ? (gsize)t->gradients.choice->n : 1;
    for (int k = 0; k < t->n_late; k++)
      w->bytes[k].of = g_new(MsStateBytes, ways * (gsize)t->space->n_of_role[MS_ROLE_STATE]);
    w->scratch = ms_space_scratch(t->space), w->flat = ms_space_scratch(t->space);
    ms_refused_init(&w->refused);
  }
}

typedef struct {
  guint64 bounded, screened, feasible;
} Counts;

static void put_together(MsTree *t) {
  MsPlan *plan = t->x->s.plan;
  MsRefusedTable own;
  ms_refused_init(&own);
  Counts sum = {0};
  for (int i = 0; i < t->threads; i++) {
    ms_refused_merge(&own, &t->worker[i].refused);
    sum.bounded += t->worker[i].bounded, sum.screened += t->worker[i].screened, sum.feasible += t->worker[i].feasible;
  }
  g_autoptr(GArray) counts = g_array_new(FALSE, FALSE, sizeof(Counts));
  g_array_append_val(counts, sum);
  ms_ranks_gather(counts);
  for (guint i = 0; i < counts->len; i++) {
    const Counts *c = &g_array_index(counts, Counts, i);
    plan->bounded += c->bounded, plan->screened += c->screened, plan->feasible += c->feasible;
  }
  ms_refused_gather(&t->x->s.refused, &own);
  ms_refused_clear(&own);
  guint64 by_rule = 0, refused = 0;
  for (int i = 0; i < t->x->s.refused.n; i++) {
    refused += t->x->s.refused.row[i].count;
    if (i < ms_num_rules || i == ms_num_rules + MS_REFUSED_SAME) by_rule += t->x->s.refused.row[i].count;
  }
  plan->searched = (guint64)ms_space_size(t->space);
  plan->valid = plan->searched - by_rule;
  plan->pruned = ms_planner_stopped(t->x) ? 0 : plan->searched - refused - plan->simulated;
  plan->lower_cost = least_cost(t);
}

static void end(MsTree *t) {
  for (int i = 0; i < t->threads; i++) {
    MsTreeWorker *w = &t->worker[i];
    g_array_unref(w->children);
    g_array_unref(w->too_large);
    ms_shape_lists_free(w->lists);
    g_hash_table_unref(w->sharded);
    ms_shapes_free(w->shapes);
    for (int k = 0; k < t->n_late; k++) g_free(w->bytes[k].of);
    g_free(w->bytes);
    ms_scenario_free(w->scratch), ms_scenario_free(w->flat);
    ms_memo_free(w->last);
    ms_refused_clear(&w->refused);
  }
  for (int level = 0; level < MS_N_LEVELS; level++)
    for (int k = 0; k < MS_N_SCHEDULES; k++) g_array_unref(t->heap[level][k]);
  g_array_unref(t->too_large);
  g_free(t->worker);
  for (int level = 0; level < MS_N_LEVELS; level++) g_free(t->asked[level]);
  ms_gradients_clear(t);
  g_free(t->settled), g_free(t->of_order), g_free(t->schedule_of), g_free(t->of_schedule);
}

double ms_tree_least_per_sequence_s(MsPlanner *x) {
  MsTree t = {.x = x, .space = x->s.space, .threads = 1, .threshold = INFINITY, .in_proportion = TRUE};
  GArray *heap;
  begin(&t);
  ms_tree_find_first(&t);
  ms_parallel(ms_space_units(t.space), t.threads, expand_root, &t);
  collect(&t);
  while ((heap = cheapest(&t)) && g_array_index(heap, MsBranch, 0).level < MS_LEVEL_BESIDE) {
    const MsBranch node = pop(heap);
    t.round = &node;
    ms_parallel(1, t.threads, expand, &t);
    collect(&t);
  }
  double least_s = heap && !ms_planner_stopped(x) ? (double)g_array_index(heap, MsBranch, 0).c.bound / MS_PS_PER_S : 0;
  end(&t);
  return (1 - 1e-9) * least_s /
         x->s.space->request->base->training.global_batch_size; /* bounds are whole picoseconds */
}

/* Until nothing is left that may enter the list. */
static void take_all(MsTree *t) {
  while (!ms_planner_stopped(t->x)) {
    t->threshold = ms_planner_threshold(t->x);
    if (!cheapest(t)) break;
    one_round(t);
    if (++t->rounds % CLIMB == 0 && !t->front && list_is_full(t)) ms_tree_climb(t);
  }
}

/* Where nothing fits, what comes nearest is told of layouts that were looked at; all others are counted. */
static void settle_too_large(MsTree *t) {
  gboolean looks = t->x->n_list == 0 && !ms_planner_stopped(t->x);
  guint n = looks ? MIN(t->too_large->len, (guint)NEAREST) : 0;
  for (guint i = 0; i < n; i++) push_node(t, &g_array_index(t->too_large, MsTooLarge, i).node);
  take_all(t);
  for (guint i = n; i < t->too_large->len && ms_ranks_own() == 0; i++)
    ms_tree_refuse_too_large(t, &t->worker[0], &g_array_index(t->too_large, MsTooLarge, i), !looks);
}

static MsTree tree_of(MsPlanner *x) {
  return (MsTree){
      .x = x, .space = x->s.space, .threads = ms_parallel_threads(x->s.options->threads), .threshold = INFINITY};
}

/* FALSE: stopped, some units never were bounded, and nothing is proven. */
static gboolean bound_units(MsTree *t) {
  t->threshold = ms_planner_threshold(t->x);
  ms_tree_find_first(t);
  ms_parallel(ms_space_units(t->space), t->threads, expand_root, t);
  collect_first(t);
  return !ms_planner_stopped(t->x);
}

void ms_search_tree(MsPlanner *x) {
  MsTree t = tree_of(x);
  begin(&t);
  take_known(&t);
  gboolean bounded = bound_units(&t);
  take_all(&t);
  settle_too_large(&t);
  put_together(&t);
  if (!bounded) x->s.plan->lower_cost = 0;
  end(&t);
}

/* --- the front --- */

static double device_of_first(const MsTree *t) {
  for (guint i = 0; i < t->front->len; i++) {
    const MsOnFront *own = &g_array_index(t->front, MsOnFront, i);
    if (ms_candidate_compare(&own->listed.candidate, &t->x->list[0].candidate) == 0) return own->device_B;
  }
  g_assert_not_reached();
}

/* Of what was simulated, what fits into the limit as it is now; the rest never will again. */
static void list_again(MsTree *t) {
  guint kept = 0;
  for (guint i = 0; i < t->front->len; i++) {
    const MsOnFront own = g_array_index(t->front, MsOnFront, i);
    if (own.device_B > t->x->s.plan->memory_limit_B) continue;
    g_array_index(t->front, MsOnFront, kept++) = own;
    ms_planner_keep(t->x, &own.listed);
  }
  g_array_set_size(t->front, kept);
}

void ms_search_tree_front(MsPlanner *x, MsFrontTell *found, gpointer user) {
  MsTree t = tree_of(x);
  t.front = g_array_new(FALSE, FALSE, sizeof(MsOnFront));
  begin(&t);
  gboolean bounded = bound_units(&t);
  for (gboolean going = TRUE; going;) {
    take_all(&t);
    if (x->n_list == 0) break;
    const MsListed *first = &x->list[0];
    const MsFrontFound own = {.candidate = first->candidate,
                              .cost = first->cost,
                              .step_time_s = first->step_time_s,
                              .device_B = device_of_first(&t),
                              .lower_cost = bounded ? MIN(first->cost, least_cost(&t)) : 0};
    gboolean stopped = ms_planner_stopped(x);
    going = found(&own, user) && !stopped;
    ms_planner_forget(x);
    if (going) list_again(&t);
  }
  end(&t);
  g_array_unref(t.front);
}
