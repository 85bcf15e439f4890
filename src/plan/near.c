/* src/plan/near.c - layouts near the best one, looked at before their turn: those that differ from it in one size or
 * one key, and those of every other pipeline; where none of them is better, those that do not fit with another
 * recomputation or offloading. Where a proof takes long, the tree comes late to many that are better; steps from one to
 * a better one find some of them at once, and what is above them is cut. Nothing is proven here: the tree comes to each
 * in its turn, and leaves out those that were simulated. */
#include "base/io.h"
#include "base/ranks.h"
#include "base/units.h"
#include "plan/parallel_priv.h"
#include "plan/tree.h"
#include <string.h>

enum { STEPS = 12, BATCHES = 2 }; /* at most, from one layout to a better one; of layouts simulated for each */

typedef struct {
  MsTree *t;
  MsCandidate from;
  GArray *near;     /* MsCandidate */
  GArray **bounded; /* [threads] MsCandidate: those that may be better */
  GArray **large;   /* [threads] those that do not fit */
} Near;

/* --- which there are --- */

/* Keys that mean nothing with these sizes get the values that stand for all. */
static void add(Near *n, MsCandidate c) {
  MsScenario *s = n->t->worker[0].scratch;
  ms_space_apply_combo(n->t->space, c.combo, s);
  ms_space_apply_axes(c.value, s);
  c.combo = ms_space_standing(n->t->space, c.combo, s);
  c.bound = 0, c.cost = 0;
  g_array_append_val(n->near, c);
}

static void add_sizes(Near *n) {
  for (int axis = 0; axis < MS_N_OUTER; axis++) {
    const MsIntAxis *of = &n->t->space->axis[axis];
    for (int i = 0; i < of->n; i++) {
      MsCandidate c = n->from;
      c.value[axis] = of->value[i];
      add(n, c);
    }
  }
}

static void add_pipelines(Near *n) {
  for (int inner = 0; inner < ms_space_inners(n->t->space); inner++) {
    MsCandidate c = n->from;
    ms_space_inner(n->t->space, inner, c.value);
    add(n, c);
  }
}

/* With another schedule other numbers of chunks are of use. */
static void add_of_schedule(Near *n, MsCandidate c) {
  const MsIntAxis *vpp = &n->t->space->axis[MS_AXIS_VPP];
  for (int i = 0; i < vpp->n; i++) {
    c.value[MS_AXIS_VPP] = vpp->value[i];
    add(n, c);
  }
}

/* `role`: of keys of that role; MS_N_ROLES: of all. */
static void add_keys(Near *n, MsRole role) {
  for (int k = 0; k < n->t->space->n_choices; k++) {
    const MsChoice *of = &n->t->space->choice[k];
    if (role < MS_N_ROLES && of->role != role) continue;
    gboolean schedule = !strcmp(of->open->path, "layout.schedule");
    for (int i = 0; i < of->n; i++) {
      MsCandidate c = n->from;
      c.combo = ms_choice_with(of, c.combo, i);
      if (schedule) add_of_schedule(n, c);
      else add(n, c);
    }
  }
}

static void leave_one_of_each(GArray *near) {
  guint kept = 0;
  g_array_sort(near, ms_candidate_compare);
  for (guint i = 0; i < near->len; i++) {
    const MsCandidate c = g_array_index(near, MsCandidate, i);
    if (kept > 0 && ms_candidate_compare(&c, &g_array_index(near, MsCandidate, kept - 1)) == 0) continue;
    g_array_index(near, MsCandidate, kept++) = c;
  }
  g_array_set_size(near, kept);
}

/* --- bounded, and simulated --- */

/* NULL: some rule refuses it, or it is looked at as another. (transfer full) */
static MsScenario *scenario_of(const MsTree *t, MsTreeWorker *w, const MsCandidate *c) {
  const MsPlanOptions *o = t->x->s.options;
  if (ms_tree_size_rule(t, c->value) >= 0) return NULL;
  ms_space_apply_combo(t->space, c->combo, w->scratch);
  ms_space_apply_axes(c->value, w->scratch);
  if (ms_layout_check_kinds(w->scratch, MS_RULE_OPTIONS | MS_RULE_RANKS | MS_RULE_PIPELINE) >= 0 ||
      ms_space_same_as_another(t->space, c->combo, w->scratch))
    return NULL;
  MsScenario *s = ms_candidate_try(t->space, c);
  if (!s || !o->starts || o->starts(s, o->starts_user, NULL)) return s;
  ms_scenario_free(s);
  return NULL;
}

static void bound_one(int index, int thread, gpointer data) {
  const Near *n = data;
  MsTree *t = n->t;
  MsCandidate c = g_array_index(n->near, MsCandidate, index);
  MsScreen found;
  if (ms_interrupted() || ms_planner_known(t->x, &c, t->threshold)) return;
  g_autoptr(MsScenario) s = scenario_of(t, &t->worker[thread], &c);
  if (!s) return;
  const MsWorth worth = ms_planner_worth(t->x, s->gpus);
  if (!ms_screen(s, ms_planner_like(t->x), &worth, &found)) return;
  if (found.device_B > worth.device_B) {
    g_array_append_val(n->large[thread], c);
    return;
  }
  c.bound = (MsTime)(found.step_time_lower_s * MS_PS_PER_S);
  c.cost = ms_objective_cost(t->space->request, s->gpus, found.step_time_lower_s);
  if (c.cost < t->x->list[0].cost) g_array_append_val(n->bounded[thread], c);
}

static GArray **arrays_of_threads(const MsTree *t) {
  GArray **own = g_new(GArray *, t->threads);
  for (int i = 0; i < t->threads; i++) own[i] = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  return own;
}

/* Of all threads and ranks, in order. Frees `own`. */
static void put_together(const MsTree *t, GArray **own, GArray *all) {
  for (int i = 0; i < t->threads; i++) {
    g_array_append_vals(all, own[i]->data, own[i]->len);
    g_array_unref(own[i]);
  }
  g_free(own);
  ms_ranks_gather(all);
  g_array_sort(all, ms_candidate_compare);
}

/* What may be better than the best, the lowest bound first; what does not fit. */
static void bound_all(Near *n, GArray *better, GArray *large) {
  n->bounded = arrays_of_threads(n->t), n->large = arrays_of_threads(n->t);
  ms_parallel((int)n->near->len, n->t->threads, bound_one, n);
  put_together(n->t, n->bounded, better);
  put_together(n->t, n->large, large);
}

/* As many as a batch holds; returns how many. */
static guint simulate(MsTree *t, const GArray *all, guint at) {
  gboolean done[MS_BATCH];
  int n = 0;
  while (n < MS_BATCH && at + (guint)n < all->len &&
         g_array_index(all, MsCandidate, at + (guint)n).cost < t->x->list[0].cost)
    n++;
  if (n > 0) ms_planner_simulate(t->x, &g_array_index(all, MsCandidate, at), n, done);
  for (int i = 0; i < n; i++) t->x->s.plan->feasible += (guint64)done[i];
  return (guint)n;
}

/* TRUE: one of n->near is better. The others that do not fit are put into `large`. */
static gboolean try_all(Near *n, GArray *large) {
  MsTree *t = n->t;
  double before = t->x->list[0].cost;
  g_autoptr(GArray) better = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  leave_one_of_each(n->near);
  bound_all(n, better, large);
  guint at = 0;
  for (int batch = 0; batch < BATCHES && t->x->list[0].cost == before; batch++) at += simulate(t, better, at);
  return t->x->list[0].cost < before;
}

/* TRUE: there is a better one. Of those that do not fit, some may with another recomputation or offloading. */
static gboolean step(MsTree *t) {
  g_autoptr(GArray) near = g_array_new(FALSE, FALSE, sizeof(MsCandidate)),
                    large = g_array_new(FALSE, FALSE, sizeof(MsCandidate)),
                    none = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  Near n = {.t = t, .from = t->x->list[0].candidate, .near = near};
  add_sizes(&n), add_pipelines(&n), add_keys(&n, MS_N_ROLES);
  if (try_all(&n, large)) return TRUE;
  g_array_set_size(near, 0);
  for (guint i = 0; i < large->len; i++) {
    n.from = g_array_index(large, MsCandidate, i);
    add_keys(&n, MS_ROLE_ADDED);
  }
  return try_all(&n, none);
}

void ms_tree_climb(MsTree *t) {
  if (t->x->list[0].cost == t->climbed) return;
  for (int i = 0; i < STEPS && !ms_planner_stopped(t->x); i++) {
    t->threshold = ms_planner_threshold(t->x);
    if (!step(t)) break;
  }
  t->climbed = t->x->list[0].cost;
}
