/* src/plan/branch.c - the children of a node of the tree, each with a bound below all layouts that it stands for
 * (tree.h lists the levels). */
#include "plan/cuts_priv.h"
#include "plan/tree.h"
#include "base/io.h"
#include "base/units.h"
#include "sim/pieces.h"
#include <math.h>
#include <string.h>

/* --- what a node stands for --- */

static guint64 layouts_below(const MsTree *t, MsLevel level, gint64 combo) {
  const MsSpace *space = t->space;
  guint64 ways = (guint64)ms_gradients_count(t, combo, level),
          inner = (guint64)ms_space_inners(space) * (guint64)t->n_late * ways;
  switch (level) {
  case MS_LEVEL_UNIT: return inner * (guint64)space->stride[MS_ROLE_WORK];
  case MS_LEVEL_KERNELS: return inner * (guint64)space->stride[MS_ROLE_KERNELS];
  case MS_LEVEL_BESIDE: return inner * (guint64)space->stride[MS_ROLE_BESIDE];
  case MS_LEVEL_ADDED: return inner * (guint64)space->stride[MS_ROLE_ADDED];
  case MS_LEVEL_SHAPE: return ways * (guint64)space->stride[MS_ROLE_SHAPE];
  case MS_LEVEL_STATE: return (guint64)space->stride[MS_ROLE_STATE];
  default: return 1;
  }
}

gboolean ms_tree_dear(const MsTree *t, double cost) {
  return ms_planner_cuts(t->x, MS_SHORT_BOUND) && cost > t->threshold;
}

/* Of whole picoseconds, as `full` counts them: an equal bound must not look dearer by rounding. */
static double cost_of(const MsTree *t, const MsCandidate *c, MsTime step) {
  return ms_objective_cost(t->space->request, c->value[MS_AXIS_GPUS], (double)step / MS_PS_PER_S);
}

/* Place of a layout in the whole space: the same whoever meets it. */
static guint64 order_of(const MsSpace *space, const MsCandidate *c) {
  guint64 order = (guint64)c->combo;
  for (int axis = 0; axis < MS_N_AXES; axis++) {
    const MsIntAxis *a = &space->axis[axis];
    order = order * (guint64)a->n + (guint64)ms_axis_place(a, c->value[axis]);
  }
  return order;
}

/* `times` as many as the candidate stands for. */
static void refuse_many(const MsTree *t, MsTreeWorker *w, int row, double miss, MsLevel level, const MsCandidate *c,
                        guint64 times) {
  ms_refused_add(&w->refused, row, times * layouts_below(t, level, c->combo), miss, order_of(t->space, c), c);
}

static void refuse(const MsTree *t, MsTreeWorker *w, int row, double miss, MsLevel level, const MsCandidate *c) {
  refuse_many(t, w, row, miss, level, c, 1);
}

static const MsRole role_of[MS_N_LEVELS] = {MS_ROLE_WORK,  MS_ROLE_KERNELS, MS_ROLE_BESIDE, MS_ROLE_ADDED,
                                            MS_ROLE_SHAPE, MS_ROLE_STATE,   MS_ROLE_BLIND}; /* which a level settles */

/* A child whose layouts take at least `step_ps`, and what its parent says. Dear ones are dropped: they stay uncounted,
 * cut. */
static void emit_with(const MsTree *t, MsTreeWorker *w, const MsBranch *parent, MsLevel level, MsCandidate c,
                      double step_ps, double had) {
  c.bound = MAX(parent->c.bound, (MsTime)step_ps);
  c.cost = cost_of(t, &c, c.bound);
  if (isinf(c.cost))
    refuse(t, w, ms_num_rules + MS_REFUSED_DEADLINE, ms_planner_late_s(t->x, &c, (double)c.bound / MS_PS_PER_S), level,
           &c);
  else if (t->front || !ms_tree_dear(t, c.cost)) {
    MsBranch child = {.c = c, .level = level, .had = had};
    memcpy(child.was, parent->was, sizeof child.was);
    if (level < MS_LEVEL_LAYOUT) child.was[level] = (gfloat)c.cost;
    g_array_append_val(w->children, child);
  }
}

static void emit(const MsTree *t, MsTreeWorker *w, const MsBranch *parent, MsLevel level, MsCandidate c,
                 double step_ps) {
  emit_with(t, w, parent, level, c, step_ps, 0);
}

/* Layouts that take at least `step` picoseconds may be told. */
static gboolean may_enter(const MsTree *t, const MsCandidate *c, double step) {
  double cost = cost_of(t, c, (MsTime)step);
  return !isinf(cost) && !ms_tree_dear(t, cost);
}

/* --- rules --- */

/* The first rule of these that refuses; -1 = none. */
static int refusing_rule(const MsScenario *s, const gboolean *of_these) {
  for (int i = 0; i < ms_num_rules; i++)
    if (of_these[i] && !ms_rules[i].holds(s, NULL, 0)) return i;
  return -1;
}

static int rule_named(const char *name) {
  for (int i = 0; i < ms_num_rules; i++)
    if (!strcmp(ms_rules[i].name, name)) return i;
  return -1;
}

/* What refuses all layouts that have the keys of a level settled, of what that level settles; -1 = nothing. Leaves the
 * combination written into the worker's scratch. */
static int settled_by(const MsTree *t, MsTreeWorker *w, const MsCandidate *c, MsLevel level) {
  MsScenario *s = w->scratch;
  ms_space_apply_combo(t->space, c->combo, s);
  ms_space_apply_axes(c->value, s);
  int rule = refusing_rule(s, t->asked[level]);
  gboolean idle = rule < 0 && ms_planner_cuts(t->x, MS_SHORT_SAME) &&
                  ms_space_idle_before(t->space, c->combo, s, role_of[level] + 1);
  return idle ? ms_num_rules + MS_REFUSED_SAME : rule;
}

/* --- pieces --- */

/* The pieces of a node's settled keys: they do not depend on the pipeline, so it is left out. With `plain` nothing is
 * recomputed or offloaded. FALSE: they depend on the cut. Writes into the worker's `flat`. */
static gboolean write_pieces(const MsTree *t, MsTreeWorker *w, const MsCandidate *c, gboolean plain) {
  MsScenario *s = w->flat;
  const MsOptions *base = &t->space->request->base->options;
  s->options.recompute = base->recompute,
  s->options.offload_modules = base->offload_modules; /* plain pieces lack them */
  ms_space_apply_combo(t->space, c->combo, s);
  ms_space_apply_axes(c->value, s);
  ms_leave_pipeline_out(s);
  if (plain)
    s->options.recompute = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_NONE, .num_layers = 1},
    s->options.offload_modules = 0;
  return !ms_pieces_depend_on_cut(s);
}

static const MsPieceMemo *like_of(const MsTree *t, const MsTreeWorker *w) { return w->last ? w->last : t->x->s.first; }

static MsPieceMemo *memo_of(MsTree *t, MsTreeWorker *w, const MsCandidate *c, gboolean plain) {
  if (!write_pieces(t, w, c, plain)) return NULL;
  MsPieceMemo *memo = ms_memo_new(w->flat, like_of(t, w));
  if (memo) ms_memo_free(w->last), w->last = memo;
  return memo;
}

/* Microbatches of a step over stages, whatever the pipeline: an even share of the work of all stages, which the busiest
 * has at least. */
static double microbatches_per_stage(const MsTree *t, const MsCandidate *c) {
  const gint32 *v = c->value;
  double replicas = (double)v[MS_AXIS_GPUS] / ((double)v[MS_AXIS_TP] * v[MS_AXIS_CP]);
  return MS_ROUNDING * t->space->request->base->training.global_batch_size / (v[MS_AXIS_MBS] * replicas);
}

/* So much of all pieces: shared out evenly by the stages, and by one microbatch on its way through all of them. */
static double whole_model(const MsTree *t, MsPieceMemo *memo, MsTotal total, gboolean splits, double microbatches) {
  double share = ms_memo_total(memo, total, splits, microbatches);
  return t->in_proportion ? share : MAX(share, MS_ROUNDING * ms_memo_passage(memo, total, splits));
}

/* The rule about options and the schedule alone that refuses schedule `k` beside the keys that are written into `s`,
 * which are settled down to `role`; -1: none does. */
static int rule_of_schedule(const MsTree *t, MsScenario *s, int k, MsRole role) {
  MsScheduleKind kept = s->layout.schedule;
  int rule = -1;
  s->layout.schedule = (MsScheduleKind)k;
  for (int i = 0; i < ms_num_rules && rule < 0; i++)
    if (t->of_schedule[i] <= role && !ms_rules[i].holds(s, NULL, 0)) rule = i;
  s->layout.schedule = kept;
  return rule;
}

/* Bits of the schedules that none refuses. */
static guint schedules_of(const MsTree *t, MsScenario *s, MsRole role) {
  guint open = t->schedules ? t->schedules : 1u << s->layout.schedule, bits = 0;
  for (int k = 0; k < MS_N_SCHEDULES; k++)
    if (open & 1u << k && rule_of_schedule(t, s, k, role) < 0) bits |= 1u << k;
  return bits;
}

/* What the passes of all pieces take; of whole and of split backwards, whichever is less where both may be. */
static double passes(const MsTree *t, MsPieceMemo *memo, double microbatches, guint schedules) {
  gboolean may[2] = {FALSE, FALSE};
  for (int k = 0; k < MS_N_SCHEDULES; k++)
    if (schedules & 1u << k) may[ms_schedule_may_split((MsScheduleKind)k)] = TRUE;
  double stream = ms_memo_total(memo, MS_TOTAL_STREAM, FALSE, microbatches), span = INFINITY;
  for (int splits = 0; splits < 2; splits++)
    if (may[splits]) span = MIN(span, whole_model(t, memo, MS_TOTAL_SPAN, splits, microbatches));
  double host = MIN(ms_memo_total(memo, MS_TOTAL_HOST, FALSE, microbatches),
                    ms_memo_total(memo, MS_TOTAL_HOST, TRUE, microbatches));
  return MAX(MAX(stream, isfinite(span) ? span : 0), host);
}

/* --- memory of states --- */

static gboolean needs_no_less(const MsStateBytes *a, const MsStateBytes *b) {
  return a->whole_B >= b->whole_B && a->frozen_B >= b->frozen_B && a->low_B >= b->low_B && a->shared_B >= b->shared_B &&
         a->unit_gradient_B >= b->unit_gradient_B && a->unit_expert_B >= b->unit_expert_B && a->unit_B >= b->unit_B &&
         a->unit_low_B >= b->unit_low_B && a->ends_B >= b->ends_B && a->shards <= b->shards && a->around >= b->around;
}

static void add_bytes(MsBytesList *list, MsStateBytes bytes) {
  int kept = 0;
  for (int i = 0; i < list->n; i++)
    if (needs_no_less(&bytes, &list->of[i])) return;
  for (int i = 0; i < list->n; i++)
    if (!needs_no_less(&list->of[i], &bytes)) list->of[kept++] = list->of[i];
  list->of[kept] = bytes, list->n = kept + 1;
}

/* Number of the value that a combination has of the late key; the combination with another. */
static int late_of(const MsTree *t, gint64 combo) { return t->late ? ms_choice_value(t->late, combo) : 0; }
static gint64 with_late(const MsTree *t, gint64 combo, int value) {
  return t->late ? ms_choice_with(t->late, combo, value) : combo;
}

/* Of all states of one way of FSDP. */
static void add_states(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, gint64 combo, MsBytesList *list) {
  const MsSpace *space = t->space;
  for (gint64 state = 0; state < space->n_of_role[MS_ROLE_STATE]; state++) {
    ms_space_apply_combo(space, combo + state * space->stride[MS_ROLE_STATE], w->flat);
    ms_space_write_least(space, w->flat);
    add_bytes(list, ms_state_bytes(memo, w->flat));
  }
}

/* Of the options of every state that a node of that level stands for; they do not depend on the pieces. */
static void find_bytes(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, const MsCandidate *c, MsLevel level) {
  const MsSpace *space = t->space;
  gint64 first = with_late(t, c->combo, 0), work = first / space->stride[MS_ROLE_WORK], own;
  if (w->bytes_of == work && w->bytes_level == level) return;
  w->bytes_of = work, w->bytes_level = level;
  for (int late = 0; late < t->n_late; late++) {
    w->bytes[late].n = 0;
    for (int i = 0; (own = ms_gradients_nth(t, with_late(t, first, late), level, i)) >= 0; i++)
      add_states(t, w, memo, own, &w->bytes[late]);
  }
}

int ms_tree_size_rule(const MsTree *t, const gint32 *v) {
  gint64 dense = (gint64)v[MS_AXIS_TP] * v[MS_AXIS_CP] * v[MS_AXIS_PP],
         expert = (gint64)v[MS_AXIS_ETP] * v[MS_AXIS_EP] * v[MS_AXIS_PP];
  if (v[MS_AXIS_GPUS] % dense) return rule_named("world-divides");
  if (v[MS_AXIS_GPUS] % expert) return rule_named("expert-world-divides");
  gint64 sequences = v[MS_AXIS_MBS] * (v[MS_AXIS_GPUS] / dense);
  return t->space->request->base->training.global_batch_size % sequences ? rule_named("batch-divides") : -1;
}

typedef struct {
  double dp_cp, edp;
} Replicas; /* that share what the optimizer has of dense and of expert parameters */

static Replicas replicas_of(const gint32 *v) {
  return (Replicas){(double)v[MS_AXIS_GPUS] / v[MS_AXIS_TP] / v[MS_AXIS_PP],
                    (double)v[MS_AXIS_GPUS] / v[MS_AXIS_ETP] / v[MS_AXIS_EP] / v[MS_AXIS_PP]};
}

/* Least that the states alone need in any pipeline, which is written into the candidate; INFINITY: none divides. */
static double least_states_B(const MsTree *t, MsTreeWorker *w, MsPieceMemo *memo, MsCandidate *c) {
  const MsIntAxis *pp = &t->space->axis[MS_AXIS_PP];
  gint32 at = c->value[MS_AXIS_PP];
  double least = INFINITY;
  find_bytes(t, w, memo, c, MS_LEVEL_UNIT);
  for (int k = 0; k < pp->n; k++) {
    c->value[MS_AXIS_PP] = pp->value[k];
    if (ms_tree_size_rule(t, c->value) >= 0) continue;
    const Replicas r = replicas_of(c->value);
    for (int late = 0; late < t->n_late; late++)
      for (int i = 0; i < w->bytes[late].n; i++) {
        const MsStateBytes *bytes = &w->bytes[late].of[i];
        double own = ms_bound_states_B(memo, bytes, r.dp_cp, r.edp, pp->value[k], t->space->request->base);
        if (own < least) least = own, at = pp->value[k];
      }
  }
  c->value[MS_AXIS_PP] = at;
  return least;
}

/* --- branching --- */

/* The rule about sizes that every layout of the unit breaks, or NULL. */
static const char *broken_by_unit(const gint32 *v) {
  gint64 dense = (gint64)v[MS_AXIS_TP] * v[MS_AXIS_CP], expert = (gint64)v[MS_AXIS_ETP] * v[MS_AXIS_EP];
  return v[MS_AXIS_GPUS] % dense ? "world-divides" : v[MS_AXIS_GPUS] % expert ? "expert-world-divides" : NULL;
}

/* The last child, if the states of all its layouts take more than there is. */
static void set_apart(MsTree *t, MsTreeWorker *w, MsPieceMemo *memo) {
  MsTooLarge own = {.node = g_array_index(w->children, MsBranch, w->children->len - 1)};
  double limit = t->x->s.plan->memory_limit_B, least = least_states_B(t, w, memo, &own.node.c);
  if (!(least > limit) || isinf(least) || !ms_planner_cuts(t->x, MS_SHORT_MEMORY)) return;
  own.miss_B = least - limit, own.kept_B = ms_memo_kept_B(memo);
  g_array_append_val(w->too_large, own);
  g_array_set_size(w->children, w->children->len - 1);
}

void ms_tree_expand_axes(MsTree *t, MsTreeWorker *w, int unit) {
  MsBranch root = {.c = {.combo = 0}};
  MsCandidate *c = &root.c;
  ms_space_unit(t->space, unit, c->value);
  const char *broken = broken_by_unit(c->value);
  for (gint64 work = 0; work < t->space->n_of_role[MS_ROLE_WORK]; work++) {
    c->combo = work * t->space->stride[MS_ROLE_WORK];
    if (late_of(t, c->combo) > 0 || !ms_gradients_first(t, c->combo)) continue;
    int rule = broken ? rule_named(broken) : settled_by(t, w, c, MS_LEVEL_UNIT);
    if (rule >= 0) {
      refuse(t, w, rule, INFINITY, MS_LEVEL_UNIT, c);
      continue;
    }
    MsPieceMemo *memo = memo_of(t, w, c, TRUE);
    guint before = w->children->len;
    emit(t, w, &root, MS_LEVEL_UNIT, *c,
         memo ? whole_model(t, memo, MS_TOTAL_PRODUCTS, FALSE, microbatches_per_stage(t, c)) : 0);
    if (memo && w->children->len > before) set_apart(t, w, memo);
  }
}

void ms_tree_refuse_too_large(const MsTree *t, MsTreeWorker *w, const MsTooLarge *of, gboolean tell) {
  refuse(t, w, ms_num_rules + MS_REFUSED_MEMORY, tell ? of->miss_B : INFINITY, MS_LEVEL_UNIT, &of->node.c);
}

/* Of so many microbatches of the whole model, nothing recomputed or offloaded. */
typedef double (*PlainBound)(const MsTree *, const MsTreeWorker *, MsPieceMemo *, double microbatches);

static double plain_rows(const MsTree *t, const MsTreeWorker *w, MsPieceMemo *memo, double microbatches) {
  (void)w;
  return whole_model(t, memo, MS_TOTAL_ROWS, FALSE, microbatches);
}

/* The children of a node that settle one role, bounded by pieces where nothing is recomputed or offloaded. `combo`: of
 * the node. */
static void settle_role(MsTree *t, MsTreeWorker *w, const MsBranch *node, gint64 combo, MsRole role, MsLevel level,
                        PlainBound bound) {
  MsCandidate c = node->c;
  for (gint64 i = 0; i < t->space->n_of_role[role] && !ms_interrupted(); i++) {
    c.combo = combo + i * t->space->stride[role];
    int rule = settled_by(t, w, &c, level);
    if (rule >= 0) {
      refuse(t, w, rule, INFINITY, level, &c);
      continue;
    }
    MsPieceMemo *memo = memo_of(t, w, &c, TRUE);
    emit(t, w, node, level, c, memo ? bound(t, w, memo, microbatches_per_stage(t, &c)) : 0);
  }
}

static void expand_unit(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  settle_role(t, w, node, node->c.combo, MS_ROLE_KERNELS, MS_LEVEL_KERNELS, plain_rows);
}
static double plain_passes(const MsTree *t, const MsTreeWorker *w, MsPieceMemo *memo, double microbatches) {
  return passes(t, memo, microbatches, schedules_of(t, w->scratch, MS_ROLE_BESIDE));
}
static void expand_kernels(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  gint64 combo;
  for (int kind = 0; (combo = ms_gradients_kind(t, node->c.combo, kind)) >= 0; kind++)
    settle_role(t, w, node, combo, MS_ROLE_BESIDE, MS_LEVEL_BESIDE, plain_passes);
}

/* --- pieces of a node of MS_LEVEL_ADDED, and the shapes that they may take --- */

typedef struct {
  MsTree *t;
  MsTreeWorker *w;
  MsPieceMemo *memo; /* NULL: they depend on the cut */
  gboolean own;      /* the memo is of one cut */
  gboolean sizes;    /* the memo has no times yet */
  int map;
  GHashTable *passed; /* of shapes what their passes take: picoseconds */
  double most;        /* shapes whose first bound costs more are left for later */
  gboolean again;     /* what refuses shapes of this pipeline size has been told */
  guint schedules;    /* bits of those that no rule refuses */
  int rule_of[MS_N_SCHEDULES];
} Pieces;

static void take_pieces(Pieces *p, const MsCandidate *c) {
  p->map = ms_shapes_map(p->w->shapes, p->memo);
  find_bytes(p->t, p->w, p->memo, c, MS_LEVEL_ADDED);
}

static gboolean may_fit(const Pieces *p, double least_B) {
  return least_B <= p->t->x->s.plan->memory_limit_B || !ms_planner_cuts(p->t->x, MS_SHORT_MEMORY);
}

/* *ways: bits of what FSDP moves around passes where that fits. */
static double least_device_B(const Pieces *p, const MsShape *shape, const MsCandidate *c, guint *ways) {
  const Replicas r = replicas_of(c->value);
  const MsBytesList *list = &p->w->bytes[late_of(p->t, c->combo)];
  double least = INFINITY;
  for (int i = 0; i < list->n; i++) {
    double device_B = ms_bound_device_B(shape, p->memo, &list->of[i], r.dp_cp, r.edp, p->t->space->request->base);
    least = MIN(least, device_B);
    if (may_fit(p, device_B)) *ways |= 1u << list->of[i].around;
  }
  return least;
}

/* What all layouts with the PP of `c` need at least, whatever their cuts; *ways as above. */
static double any_cut_B(const Pieces *p, const MsCandidate *c, guint *ways) {
  const Replicas r = replicas_of(c->value);
  const MsBytesList *list = &p->w->bytes[late_of(p->t, c->combo)];
  const GArray *lives = ms_shape_lives(p->t, p->w, c);
  double least = lives->len > 0 ? INFINITY : 0; /* none: rules refuse them all */
  for (guint k = 0; k < lives->len; k++)
    for (int i = 0; i < list->n; i++) {
      double cut_B = ms_bound_cut_of_live_B(p->memo, &list->of[i], r.dp_cp, r.edp, &g_array_index(lives, MsLive, k),
                                            p->t->space->request->base);
      least = MIN(least, cut_B);
      if (may_fit(p, cut_B)) *ways |= 1u << list->of[i].around;
    }
  return least;
}

/* What the passes of a shape take in their schedule. */
static MsTime passes_of_shape(const Pieces *p, const MsCandidate *c) {
  g_autoptr(MsScenario) s = ms_candidate_scenario(p->t->space, c, p->own ? NULL : p->memo);
  ms_space_write_least(p->t->space, s);
  const MsPlanner *x = p->t->x;
  double worth_ps = ms_planner_worth(x, s->gpus).step_time_s * MS_PS_PER_S;
  gboolean told = x->s.space->request->deadline_s > 0 || p->t->front; /* by how much they are late; to another list */
  return ms_bound_passes(p->memo, s, told || worth_ps >= 0x1p62 ? G_MAXINT64 : (MsTime)worth_ps);
}

/* The rule that refuses a layout of the shape that is written in, which has been made; -1 = none. */
static int settled_rule(const Pieces *p, const MsCandidate *c) {
  const MsScenario *s = p->w->scratch;
  int rule = refusing_rule(s, p->t->settled);
  gboolean same =
      rule < 0 && ms_planner_cuts(p->t->x, MS_SHORT_SAME) && ms_space_same_as_another_shape(p->t->space, c->combo, s);
  return same ? ms_num_rules + MS_REFUSED_SAME : rule;
}

/* The same once for all that have the shape: the late key changes it only where it changes the cut. */
static MsTime passes_once(const Pieces *p, const MsCandidate *c, const MsShape *shape) {
  gpointer known;
  if (g_hash_table_lookup_extended(p->passed, shape, NULL, &known)) return (MsTime)GPOINTER_TO_SIZE(known);
  MsTime own = passes_of_shape(p, c);
  g_hash_table_insert(p->passed, (gpointer)shape, GSIZE_TO_POINTER(own));
  return own;
}

/* The second bound; of pieces that have been costed in some pipeline, or (NULL) of the layout's own. */
static gboolean screen(const MsTree *t, MsPieceMemo *memo, const MsScenario *s, MsScreen *out) {
  MsWorth worth = ms_planner_worth(t->x, s->gpus);
  if (t->front) worth.step_time_s = INFINITY; /* what is too dear for this list may enter the next */
  if (!memo || !ms_pieces_of_any_pipeline(memo->work)) return ms_screen(s, ms_planner_like(t->x), &worth, out);
  const MsPiecesOf pieces = {memo->work, memo->cost, memo->piece, memo->lags};
  return ms_screen_pieces(s, &pieces, &worth, out);
}

/* A layout, which takes at least `step` picoseconds. `memo` may be NULL: pieces that stand for its own. */
static void screen_layout(MsTree *t, MsTreeWorker *w, const MsBranch *node, const MsCandidate *c, double step,
                          MsPieceMemo *memo) {
  MsScreen found;
  MsRefusal refusal;
  double limit = t->x->s.plan->memory_limit_B;
  if (ms_planner_known(t->x, c, t->threshold)) return; /* it has been simulated */
  g_autoptr(MsScenario) s = ms_candidate_scenario(t->space, c, memo);
  if (!ms_layout_check(s, &refusal)) refuse(t, w, refusal.rule, INFINITY, MS_LEVEL_LAYOUT, c);
  else if (ms_planner_cuts(t->x, MS_SHORT_SAME) && ms_space_same_as_another(t->space, c->combo, s))
    refuse(t, w, ms_num_rules + MS_REFUSED_SAME, INFINITY, MS_LEVEL_LAYOUT, c);
  else {
    w->screened++;
    if (!screen(t, memo, s, &found)) refuse(t, w, ms_num_rules + MS_REFUSED_ERROR, INFINITY, MS_LEVEL_LAYOUT, c);
    else if (found.device_B > limit)
      refuse(t, w, ms_num_rules + MS_REFUSED_MEMORY, found.device_B - limit, MS_LEVEL_LAYOUT, c);
    else {
      gboolean tighter = ms_planner_cuts(t->x, MS_SHORT_RELAXED);
      w->feasible++;
      emit_with(t, w, node, MS_LEVEL_LAYOUT, *c, tighter ? MAX(step, found.step_time_lower_s * MS_PS_PER_S) : step,
                found.device_B);
    }
  }
}

/* Something else is open than what a shape has settled. */
static gboolean open_behind(const MsTree *t, gint64 combo) {
  return t->space->stride[MS_ROLE_SHAPE] > 1 || ms_gradients_count(t, combo, MS_LEVEL_SHAPE) > 1;
}

/* A layout of a shape that may fit, with the axes and combination of `c`. */
static void expand_use(const Pieces *p, const MsBranch *node, const MsCandidate *c, MsTime step, double least_B,
                       MsShapeUse use) {
  MsTree *t = p->t;
  gboolean at_once = !open_behind(t, c->combo) && !p->own; /* and pieces are at hand */
  if (ms_planner_cuts(t->x, MS_SHORT_RELAXED)) step = MAX(step, passes_once(p, c, use.shape));
  if (at_once && may_enter(t, c, (double)step)) screen_layout(t, p->w, node, c, (double)step, p->memo);
  else emit_with(t, p->w, node, MS_LEVEL_SHAPE, *c, (double)step, least_B);
}

/* The node was expanded before: what refuses whole sizes has been told. */
static gboolean again(const MsBranch *node) { return node->had > 0; }

/* What fits only with FSDP has what that moves around its passes. Of a front the memory that there is changes. */
static gboolean only_sharded(const Pieces *p, guint ways) {
  return ways != 0 && !(ways & 1u << MS_FSDP_NONE) && !p->own && !p->t->front &&
         ms_planner_cuts(p->t->x, MS_SHORT_RELAXED) && ms_planner_cuts(p->t->x, MS_SHORT_MEMORY);
}

static MsTime moved(const Pieces *p, const MsCandidate *c, const MsShape *shape, guint ways) {
  return only_sharded(p, ways) ? ms_sharded_least(p->t, p->w, p->memo, p->map, c, shape, ways) : 0;
}

/* By that all shapes at the PP of `c` are dear, or left for later. Notes whether they were taken before. */
static gboolean waits_for_sharded(Pieces *p, const MsBranch *node, const MsCandidate *c, guint ways) {
  double share = only_sharded(p, ways)
                     ? ms_sharded_share(p->t, p->w, p->memo, p->map, c, microbatches_per_stage(p->t, c), ways)
                     : 0,
         cost = cost_of(p->t, c, (MsTime)share);
  gboolean dear = ms_tree_dear(p->t, cost), later = cost > p->most && !isinf(cost);
  p->again = again(node) && (cost <= node->had || isinf(cost));
  if (!dear && later) p->w->left_cost = MIN(p->w->left_cost, cost);
  return dear || later;
}

/* All layouts of one shape at the PP of `c`. Those that do not fit are told at once. */
static void expand_group(const Pieces *p, const MsBranch *node, MsCandidate c, const MsShapeGroup *group) {
  MsTree *t = p->t;
  MsTime step = ms_bound_time(group->shape, p->memo);
  guint ways = 0;
  p->w->bounded += !p->again;
  if (ms_tree_dear(t, cost_of(t, &c, step)) && !t->front) return;
  double least_B = least_device_B(p, group->shape, &c, &ways),
         cost = cost_of(t, &c, MAX(step, moved(p, &c, group->shape, ways)));
  if (p->again && (cost <= node->had || isinf(cost))) return;
  gboolean fits = may_fit(p, least_B), dear = ms_tree_dear(t, cost), later = cost > p->most && !isinf(cost);
  if (dear && !t->front) return;
  if (fits && (dear || later)) p->w->left_cost = MIN(p->w->left_cost, cost);
  if (dear || (fits ? later : p->again)) return;
  for (guint i = 0; i < group->use->len; i++) {
    MsShapeUse use = g_array_index(group->use, MsShapeUse, i);
    c.value[MS_AXIS_VPP] = use.vpp, c.combo = node->c.combo + use.choice * t->space->stride[MS_ROLE_SHAPE];
    ms_tree_write_shape(t, p->w, &c);
    int rule = settled_rule(p, &c);
    if (rule >= 0) refuse(t, p->w, rule, INFINITY, MS_LEVEL_SHAPE, &c);
    else if (!fits)
      refuse(t, p->w, ms_num_rules + MS_REFUSED_MEMORY, least_B - t->x->s.plan->memory_limit_B, MS_LEVEL_SHAPE, &c);
    else expand_use(p, node, &c, step, least_B, use);
  }
}

/* One value of the late key of a node that stands for all: the node, with its combination and sizes written into the
 * worker's scratch. */
static MsBranch write_late(const Pieces *p, const MsBranch *node, int late) {
  MsBranch own = *node;
  own.c.combo = with_late(p->t, own.c.combo, late);
  ms_space_apply_combo(p->t->space, own.c.combo, p->w->scratch);
  ms_space_apply_axes(own.c.value, p->w->scratch);
  return own;
}

/* Times for pieces that have none. FALSE: the machine cannot, and there are none. */
static gboolean cost_pieces(Pieces *p) {
  MsPieceMemo *memo = p->memo;
  if (!p->sizes) return TRUE;
  if (!ms_memo_cost_pieces(memo, like_of(p->t, p->w))) return FALSE;
  ms_memo_free(p->w->last), p->w->last = memo, p->sizes = FALSE;
  return TRUE;
}

/* Of layouts that are counted as short of memory: the one that is so by least, if none before it was by less. */
static void tell_nearest(const Pieces *p, gint64 node, MsCandidate c, const MsShapeGroup *group) {
  int row = ms_num_rules + MS_REFUSED_MEMORY;
  guint ways = 0;
  double miss_B =
      group->shape ? least_device_B(p, group->shape, &c, &ways) - p->t->x->s.plan->memory_limit_B : INFINITY;
  if (miss_B > p->w->refused.row[row].miss) return;
  for (guint i = 0; i < group->use->len; i++) {
    MsShapeUse use = g_array_index(group->use, MsShapeUse, i);
    c.value[MS_AXIS_VPP] = use.vpp, c.combo = node + use.choice * p->t->space->stride[MS_ROLE_SHAPE];
    ms_tree_write_shape(p->t, p->w, &c);
    if (settled_rule(p, &c) < 0) refuse_many(p->t, p->w, row, miss_B, MS_LEVEL_SHAPE, &c, 0);
  }
}

/* TRUE: no layout with the PP of `c` fits, whatever its cut, and all are counted as short of memory. Of what may be the
 * nearest miss cuts are made, to say by how much. */
static gboolean fits_in_no_cut(Pieces *p, const MsCandidate *c, guint *ways) {
  const MsSpace *space = p->t->space;
  double least_B = any_cut_B(p, c, ways), miss_B = least_B - p->t->x->s.plan->memory_limit_B;
  int row = ms_num_rules + MS_REFUSED_MEMORY;
  if (may_fit(p, least_B)) return FALSE;
  p->w->bounded++;
  refuse_many(p->t, p->w, row, INFINITY, MS_LEVEL_SHAPE, c,
              (guint64)space->axis[MS_AXIS_VPP].n * (guint64)space->n_of_role[MS_ROLE_SHAPE]);
  if (miss_B > p->w->refused.row[row].miss || !cost_pieces(p)) return TRUE;
  const GArray *list = ms_shape_list(p->t, p->w, p->memo, p->map, c);
  for (guint i = 0; i < list->len; i++) tell_nearest(p, c->combo, *c, &g_array_index(list, MsShapeGroup, i));
  return TRUE;
}

/* `c`: with the PP of the list. */
static void expand_list(Pieces *p, const MsBranch *node, MsCandidate c, const GArray *list) {
  int refused[MS_N_SCHEDULES] = {0};
  for (guint i = 0; i < list->len && !ms_interrupted(); i++) {
    const MsShapeGroup *group = &g_array_index(list, MsShapeGroup, i);
    const MsShapeUse *first = &g_array_index(group->use, MsShapeUse, 0);
    gboolean left = group->schedules & p->schedules;
    c.value[MS_AXIS_VPP] = first->vpp, c.combo = node->c.combo + first->choice * p->t->space->stride[MS_ROLE_SHAPE];
    if (group->shape && left) expand_group(p, node, c, group);
    else if (!group->shape && !p->again)
      refuse_many(p->t, p->w, group->rule, INFINITY, MS_LEVEL_SHAPE, &c, group->use->len);
    for (int k = 0; k < MS_N_SCHEDULES && group->shape && !left; k++) refused[k] += group->uses_of[k];
  }
  c.combo = node->c.combo;
  for (int k = 0; k < MS_N_SCHEDULES; k++)
    if (refused[k] > 0 && !p->again)
      refuse_many(p->t, p->w, p->rule_of[k], INFINITY, MS_LEVEL_SHAPE, &c, (guint64)refused[k]);
}

/* Which schedules the keys of the node, written into the worker's scratch, leave. */
static void find_schedules_left(Pieces *p) {
  p->schedules = ~0u;
  for (int k = 0; k < MS_N_SCHEDULES && p->t->schedules; k++) {
    p->rule_of[k] = rule_of_schedule(p->t, p->w->scratch, k, MS_ROLE_ADDED);
    if (p->rule_of[k] >= 0) p->schedules &= ~(1u << k);
  }
}

static void expand_late(Pieces *p, const MsBranch *node) {
  const MsSpace *space = p->t->space;
  find_schedules_left(p);
  for (int pp = 0; pp < space->axis[MS_AXIS_PP].n; pp++) {
    MsCandidate c = node->c;
    c.value[MS_AXIS_PP] = space->axis[MS_AXIS_PP].value[pp];
    int rule = ms_tree_size_rule(p->t, c.value);
    if (rule >= 0 && !again(node))
      refuse_many(p->t, p->w, rule, INFINITY, MS_LEVEL_SHAPE, &c,
                  (guint64)space->axis[MS_AXIS_VPP].n * (guint64)space->n_of_role[MS_ROLE_SHAPE]);
    guint ways = 0;
    if (rule >= 0 || (again(node) ? !may_fit(p, any_cut_B(p, &c, &ways)) : fits_in_no_cut(p, &c, &ways))) continue;
    if (waits_for_sharded(p, node, &c, ways)) continue;
    expand_list(p, node, c, ms_shape_list(p->t, p->w, p->memo, p->map, &c));
  }
}

static void expand_pieces(Pieces *p, const MsBranch *node) {
  for (int late = 0; late < p->t->n_late; late++) {
    const MsBranch own = write_late(p, node, late);
    expand_late(p, &own);
  }
}

static gboolean any_fits_late(const Pieces *p, MsCandidate c) {
  const MsIntAxis *pp = &p->t->space->axis[MS_AXIS_PP];
  guint ways = 0;
  for (int k = 0; k < pp->n; k++) {
    c.value[MS_AXIS_PP] = pp->value[k];
    if (ms_tree_size_rule(p->t, c.value) < 0 && may_fit(p, any_cut_B(p, &c, &ways))) return TRUE;
  }
  return FALSE;
}

/* FALSE: at no pipeline size is there a cut that they fit in. */
static gboolean any_fits(const Pieces *p, const MsBranch *node) {
  gboolean fits = FALSE;
  for (int late = 0; late < p->t->n_late && !fits; late++) fits = any_fits_late(p, write_late(p, node, late).c);
  return fits;
}

/* The node for its dearer shapes, and for a list with less memory, which the dear ones may enter. */
static void leave_rest(const Pieces *p, const MsBranch *node) {
  MsBranch rest = *node;
  if (isinf(p->w->left_cost)) return;
  rest.c.cost = p->w->left_cost;
  rest.had = ms_planner_cuts(p->t->x, MS_SHORT_BOUND) ? MIN(p->t->threshold, p->most) : p->most;
  g_array_append_val(p->w->children, rest);
}

/* Shapes are taken in steps, each as large as all before it: what the passes take of those that the search never comes
 * to is not asked. */
#define STEP      0x1p-6 /* of its cost */
#define MOST_STEP 0x1p-3

/* The shapes of pieces that are costed, a step of them. */
static void take_step(Pieces *p, const MsBranch *node) {
  double before = node->c.cost / (double)node->was[MS_LEVEL_ADDED] - 1; /* all steps until now */
  p->w->left_cost = INFINITY;
  p->most = (1 + CLAMP(before, STEP, MOST_STEP)) * node->c.cost;
  p->passed = g_hash_table_new(NULL, NULL);
  expand_pieces(p, node);
  leave_rest(p, node);
  g_clear_pointer(&p->passed, g_hash_table_unref);
}

/* One child. Where memory decides the pieces are not costed. Where nothing else is open behind the pipeline the first
 * step is taken while they are at hand. */
static void settle_added(Pieces *p, const MsBranch *node, MsBranch *child) {
  MsTree *t = p->t;
  MsCandidate *c = &child->c;
  double share = 0;
  if (p->memo) take_pieces(p, c);
  if (p->memo && !any_fits(p, child)) {
    if (!t->front) expand_pieces(p, child); /* says what refuses them, as the pieces are at hand */
    return;
  }
  if (p->memo && cost_pieces(p))
    share = passes(t, p->memo, microbatches_per_stage(t, c), schedules_of(t, p->w->scratch, MS_ROLE_ADDED));
  guint before = p->w->children->len;
  emit(t, p->w, node, MS_LEVEL_ADDED, *c, share);
  if (!p->memo || !p->memo->cost || t->front || open_behind(t, c->combo) || p->w->children->len == before) return;
  const MsBranch own = g_array_index(p->w->children, MsBranch, before);
  g_array_set_size(p->w->children, before);
  take_step(p, &own);
}

static void expand_beside(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  MsBranch child = *node;
  child.level = MS_LEVEL_ADDED;
  for (gint64 i = 0; i < t->space->n_of_role[MS_ROLE_ADDED] && !ms_interrupted(); i++) {
    child.c.combo = node->c.combo + i * t->space->stride[MS_ROLE_ADDED];
    int rule = settled_by(t, w, &child.c, MS_LEVEL_ADDED);
    if (rule >= 0) {
      refuse(t, w, rule, INFINITY, MS_LEVEL_ADDED, &child.c);
      continue;
    }
    Pieces p = {.t = t, .w = w, .sizes = TRUE, .most = INFINITY};
    if (write_pieces(t, w, &child.c, FALSE)) p.memo = ms_memo_begin(w->flat, like_of(t, w));
    settle_added(&p, node, &child);
    if (p.sizes) ms_memo_free(p.memo);
  }
}

/* --- pieces that depend on the cut: of every layout its own --- */

/* FALSE with the rule that the split breaks, or MS_REFUSED_ERROR. */
static gboolean pieces_of_cut(Pieces *p, const MsCandidate *c, int *rule) {
  if (p->own) ms_memo_free(p->memo), p->memo = NULL;
  g_hash_table_remove_all(p->passed);
  *rule = ms_try_cut(p->t->space, c->value, c->combo, NULL, p->w->scratch, p->t->x->s.first, &p->memo);
  p->own = TRUE;
  if (!p->memo) return FALSE;
  take_pieces(p, c);
  return TRUE;
}

static void expand_cut(Pieces *p, const MsBranch *node, MsCandidate c, gint64 choice) {
  MsTree *t = p->t;
  c.combo = node->c.combo + choice * t->space->stride[MS_ROLE_SHAPE];
  ms_tree_write_shape(t, p->w, &c);
  int rule = refusing_rule(p->w->scratch, t->settled);
  const MsShape *shape = NULL;
  if (rule < 0 && pieces_of_cut(p, &c, &rule))
    shape = ms_shapes_get(p->w->shapes, p->map, p->memo, t->space, &c, p->w->scratch, &rule);
  MsShapeUse use = {shape, c.value[MS_AXIS_VPP], (gint32)choice};
  g_autoptr(GArray) uses = g_array_new(FALSE, FALSE, sizeof use);
  g_array_append_val(uses, use);
  if (shape) expand_group(p, node, c, &(MsShapeGroup){.shape = shape, .rule = -1, .use = uses});
  else if (rule >= 0) refuse(t, p->w, rule, INFINITY, MS_LEVEL_SHAPE, &c);
}

static void expand_cuts(Pieces *p, const MsBranch *shared, int late) {
  const MsSpace *space = p->t->space;
  const MsBranch own = write_late(p, shared, late), *node = &own;
  MsCandidate c = node->c;
  for (int inner = 0; inner < ms_space_inners(space); inner++) {
    ms_space_inner(space, inner, c.value);
    int rule = ms_tree_size_rule(p->t, c.value);
    if (rule >= 0)
      refuse_many(p->t, p->w, rule, INFINITY, MS_LEVEL_SHAPE, &c, (guint64)space->n_of_role[MS_ROLE_SHAPE]);
    for (gint64 i = 0; rule < 0 && i < space->n_of_role[MS_ROLE_SHAPE]; i++) expand_cut(p, node, c, i);
  }
}

static void expand_added(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  Pieces p = {.t = t, .w = w, .memo = memo_of(t, w, &node->c, FALSE), .most = INFINITY};
  if (p.memo) {
    take_pieces(&p, &node->c);
    take_step(&p, node);
    return;
  } /* or the machine cannot: then every layout that obeys the rules says why */
  p.passed = g_hash_table_new(NULL, NULL);
  w->left_cost = INFINITY;
  for (int late = 0; late < t->n_late; late++) expand_cuts(&p, node, late);
  leave_rest(&p, node);
  g_hash_table_unref(p.passed);
  if (p.own) ms_memo_free(p.memo);
}

static void expand_state(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  MsCandidate c = node->c;
  for (gint64 blind = 0; blind < t->space->n_of_role[MS_ROLE_BLIND] && !ms_interrupted(); blind++) {
    c.combo = node->c.combo + blind * t->space->stride[MS_ROLE_BLIND];
    screen_layout(t, w, node, &c, 0, NULL);
  }
}

/* The children of a shape with one way of FSDP, which is written into `s`; `screen`, NULL: nobody asks. */
static void settle_states(MsTree *t, MsTreeWorker *w, const MsBranch *node, gint64 combo, MsScenario *s,
                          const MsPassScreen *screen) {
  MsCandidate c = node->c;
  gboolean tighter = ms_planner_cuts(t->x, MS_SHORT_RELAXED), memory = ms_planner_cuts(t->x, MS_SHORT_MEMORY);
  double limit = t->x->s.plan->memory_limit_B,
         passes_s = (double)node->c.bound / MS_PS_PER_S; /* whatever it was made of ends before the gradient norm */
  for (gint64 state = 0; state < t->space->n_of_role[MS_ROLE_STATE] && !ms_interrupted(); state++) {
    c.combo = combo + state * t->space->stride[MS_ROLE_STATE];
    ms_space_apply_choices(t->space, MS_ROLE_STATE, c.combo, s);
    double device_B = screen && memory ? ms_pass_screen_device_B(screen) : 0;
    if (device_B > limit) refuse(t, w, ms_num_rules + MS_REFUSED_MEMORY, device_B - limit, MS_LEVEL_STATE, &c);
    else
      emit(t, w, node, MS_LEVEL_STATE, c,
           screen && tighter ? ms_pass_screen_options_s(screen, passes_s) * MS_PS_PER_S : 0);
  }
}

static void expand_shape(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  if (!open_behind(t, node->c.combo)) {
    expand_state(t, w, node); /* the second bound says it all */
    return;
  }
  gint64 combo;
  gboolean asks = ms_planner_cuts(t->x, MS_SHORT_RELAXED) || ms_planner_cuts(t->x, MS_SHORT_MEMORY);
  g_autoptr(MsScenario) s = ms_candidate_scenario(t->space, &node->c, NULL);
  ms_space_write_least(t->space, s);
  g_autoptr(MsPassScreen) screen = asks ? ms_pass_screen_new(s, ms_planner_like(t->x)) : NULL;
  for (int i = 0; (combo = ms_gradients_nth(t, node->c.combo, MS_LEVEL_SHAPE, i)) >= 0; i++) {
    ms_space_apply_choices(t->space, MS_ROLE_WORK, combo, s);
    settle_states(t, w, node, combo, s, screen);
  }
}

void ms_tree_expand(MsTree *t, MsTreeWorker *w, const MsBranch *node) {
  static void (*const how[MS_N_LEVELS])(MsTree *, MsTreeWorker *, const MsBranch *) = {
      expand_unit, expand_kernels, expand_beside, expand_added, expand_shape, expand_state};
  ms_shape_lists_trim(w->lists);
  how[node->level](t, w, node);
}

/* --- before the first --- */

void ms_tree_find_first(MsTree *t) {
  MsTreeWorker *w = &t->worker[0];
  for (int unit = 0; unit < ms_space_units(t->space) && !t->x->s.first; unit++) {
    MsCandidate c = {0};
    ms_space_unit(t->space, unit, c.value);
    for (gint64 work = 0; work < t->space->n_of_role[MS_ROLE_WORK] && !t->x->s.first && !broken_by_unit(c.value);
         work++) {
      c.combo = work * t->space->stride[MS_ROLE_WORK];
      memo_of(t, w, &c, TRUE);
      t->space->like = t->x->s.first = g_steal_pointer(&w->last);
    }
  }
}

/* Combinations of the keys of MS_ROLE_SHAPE that differ in the rank order alone have the same passes and cuts. */
static void find_orders(MsTree *t) {
  const MsSpace *space = t->space;
  t->of_order = g_new(gint32, space->n_of_role[MS_ROLE_SHAPE]);
  for (gint32 i = 0; i < space->n_of_role[MS_ROLE_SHAPE]; i++) t->of_order[i] = i;
  const MsChoice *c = ms_space_choice(space, "layout.order");
  gint32 stride = c ? (gint32)(c->stride / space->stride[MS_ROLE_SHAPE]) : 0; /* 0 also where nothing is shared */
  for (gint32 i = 0; stride > 0 && i < space->n_of_role[MS_ROLE_SHAPE]; i++)
    t->of_order[i] -= i / stride % c->n * stride;
}

/* The schedule of each combination of the keys of MS_ROLE_SHAPE; rules that read no other open key behind some role. */
static void find_schedules(MsTree *t) {
  static const char path[] = "layout.schedule";
  const MsSpace *space = t->space;
  gboolean open = ms_space_choice(space, path) != NULL;
  MsScenario *s = ms_space_scratch(space);
  t->schedule_of = g_new0(guint8, space->n_of_role[MS_ROLE_SHAPE]);
  for (gint64 i = 0; open && i < space->n_of_role[MS_ROLE_SHAPE]; i++) {
    ms_space_apply_choices(space, MS_ROLE_SHAPE, i * space->stride[MS_ROLE_SHAPE], s);
    t->schedule_of[i] = (guint8)s->layout.schedule;
    t->schedules |= 1u << s->layout.schedule;
  }
  ms_scenario_free(s);
  t->of_schedule = g_new(MsRole, ms_num_rules);
  for (int i = 0; i < ms_num_rules; i++) {
    gboolean whole = ms_rules[i].kind == MS_RULE_OPTIONS && ms_rule_reads(&ms_rules[i], path);
    t->of_schedule[i] = whole ? MS_ROLE_WORK : MS_N_ROLES;
    for (int k = 0; k < space->n_choices && whole; k++) {
      const MsChoice *c = &space->choice[k];
      if (!strcmp(c->open->path, path) || !ms_rule_reads(&ms_rules[i], c->open->path)) continue;
      t->of_schedule[i] = c == t->late ? MS_N_ROLES : MAX(t->of_schedule[i], c->role);
    }
    if (ms_gradients_decide(t, &ms_rules[i])) t->of_schedule[i] = MS_N_ROLES;
  }
}

void ms_tree_sort_keys(MsTree *t) {
  t->late = ms_space_choice(t->space, MS_LATE_KEY), t->n_late = t->late ? t->late->n : 1;
  ms_gradients_find(t);
  find_orders(t);
  find_schedules(t);
  t->settled = g_new(gboolean, ms_num_rules);
  for (int level = 0; level < MS_N_LEVELS; level++) t->asked[level] = g_new0(gboolean, ms_num_rules);
  for (int i = 0; i < ms_num_rules; i++) {
    MsRole latest = ms_latest_role_read(t->space, &ms_rules[i]);
    gboolean decided = ms_gradients_decide(t, &ms_rules[i]),
             reads_late = (t->late && ms_rule_reads(&ms_rules[i], MS_LATE_KEY)) || decided;
    t->settled[i] = ms_rules[i].kind != MS_RULE_SPLIT && latest < MS_ROLE_STATE && !decided;
    for (int level = 0; level < MS_LEVEL_SHAPE; level++)
      t->asked[level][i] = ms_rules[i].kind == MS_RULE_OPTIONS && latest == role_of[level] && !reads_late;
  }
}
