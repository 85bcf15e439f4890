#include "study/picks.h"
#include "study/advice.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "study/parts.h"
#include "study/sensitivity.h"
#include "study/variant.h"

const char *const ms_pick_words[] = {"fastest", "cheapest", "memory", "simplest", "robust", NULL};

typedef struct {
  MsPicks *picks;
  const MsRequest *request;
  const MsPlan *plan;
  MsPlanOptions options;
} Search;

/* --- a pick more ----------------------------------------------------------------------------------------------- */
static gboolean same_layout(const MsPlanEntry *entry, const MsScenario *layout) {
  const MsLayoutSpec *a = &entry->scenario->layout, *b = &layout->layout;
  if (a->tp != b->tp || a->cp != b->cp || a->pp != b->pp || a->vpp != b->vpp || a->ep != b->ep) return FALSE;
  g_autoptr(MsComparison) c = ms_compare(entry->scenario, entry->result, layout, entry->result); /* its keys */
  return c->n_keys == 0;
}

static void free_entry(MsPlanEntry *e) {
  if (!e) return;
  ms_scenario_free(e->scenario);
  ms_result_free(e->result);
  g_free(e);
}

/* Takes `found`. */
static void add(MsPicks *p, guint kinds, const MsPlanEntry *entry, MsPlanEntry *found) {
  for (int i = 0; i < p->n; i++)
    if (same_layout(p->pick[i].entry, entry->scenario)) {
      p->pick[i].kinds |= kinds;
      free_entry(found);
      return;
    }
  p->pick = g_renew(MsPick, p->pick, p->n + 1);
  MsPick *pick = &p->pick[p->n++];
  *pick = (MsPick){.kinds = kinds, .entry = entry, .found = found};
  const MsPlanEntry *first = p->pick[0].entry;
  if (entry == first) return;
  double ratio = entry->result->step_time_s / first->result->step_time_s;
  pick->slower = ratio - 1;
  pick->gpu_time = ratio * entry->scenario->gpus / first->scenario->gpus - 1;
  pick->more_free_B = ms_device_B(first->result) - ms_device_B(entry->result);
  pick->change = ms_compare(first->scenario, first->result, entry->scenario, entry->result);
}

/* The layout predicted in full. Takes the scenario; NULL: *error. (transfer full) */
static MsPlanEntry *predicted(const MsRequest *request, MsScenario *scenario, GError **error) {
  MsResult *full = ms_simulate(scenario, MS_FIDELITY_FULL, NULL, error);
  if (!full) return ms_scenario_free(scenario), NULL;
  MsPlanEntry *e = g_new(MsPlanEntry, 1);
  *e = (MsPlanEntry){scenario, full, ms_objective_figure(request, scenario->gpus, full->step_time_s)};
  return e;
}

/* The best of `variant`, predicted in full; NULL: nothing of it fits, or *error. (transfer full) */
static MsPlanEntry *best_of(const Search *x, MsRequest *variant, GError **error) {
  g_autoptr(MsPlan) plan = ms_plan(variant, &x->options, error);
  if (!plan || plan->n_best == 0) return NULL;
  if (plan->interrupted) return ms_input_error(error, NULL, 0, NULL, "interrupted"), NULL;
  return predicted(variant, g_steal_pointer(&plan->best[0].scenario), error);
}

/* --- by objective ---------------------------------------------------------------------------------------------- */
static gboolean gpus_are_open(const MsRequest *r) { return ms_request_leaves_open(r, "gpus"); }

static guint kinds_of_winner(const MsRequest *r) {
  const guint fastest = 1u << MS_PICK_FASTEST, cheapest = 1u << MS_PICK_CHEAPEST;
  if (!gpus_are_open(r)) return fastest | cheapest;
  return r->objective == MS_GOAL_STEP_TIME ? fastest : r->objective == MS_GOAL_DEADLINE ? 0 : cheapest;
}

/* The best of a request, which is cleared. */
static gboolean add_best(Search *x, MsPickKind kind, MsRequest *r, GError **error) {
  GError *why = NULL;
  MsPlanEntry *found = best_of(x, r, &why);
  if (found) add(x->picks, 1u << kind, found, found);
  ms_variant_clear(r);
  if (why) g_propagate_error(error, why);
  return !why;
}

static gboolean add_by_objective(Search *x, MsPickKind kind, MsGoal goal, GError **error) {
  if (!gpus_are_open(x->request) || (kinds_of_winner(x->request) & (1u << kind))) return TRUE;
  MsRequest r = ms_variant_of(x->request);
  r.objective = goal;
  return add_best(x, kind, &r, error);
}

/* --- memory to spare ------------------------------------------------------------------------------------------- */
typedef struct {                 /* what is asked of a layout before it is predicted in full */
  double step_s, device_B, used; /* used: share of the device memory */
} Seen;

static Seen seen_of(const MsResult *r) {
  double device_B = ms_device_B(r);
  return (Seen){r->step_time_s, device_B, device_B / r->capacity_B};
}

static double saved(const Seen *first, const Seen *e) { return 1 - e->device_B / first->device_B; }
static double lost(const Seen *first, const Seen *e) { return e->step_s / first->step_s - 1; }
static double worth(const Seen *first, const Seen *e) { return saved(first, e) - MS_PICK_WORTH * lost(first, e); }

typedef struct {
  const MsPlanEntry *entry; /* of the ranking, or */
  MsScenario *scenario;     /* its own; both NULL: none yet */
  Seen seen;
} Spare;

static gboolean is_found(const Spare *best) { return best->entry || best->scenario; }

/* One of the two, or a layout of the ranking by both. */
static void offer(Spare *best, const Seen *first, const Seen *e, const MsPlanEntry *entry, const MsScenario *scenario) {
  if (is_found(best) && !(worth(first, e) > worth(first, &best->seen))) return;
  ms_scenario_free(best->scenario);
  *best = (Spare){entry, entry ? NULL : ms_scenario_copy(scenario, TRUE), *e};
}

static void offer_ranking(Spare *best, const MsPlan *plan) {
  const Seen first = seen_of(plan->best[0].result);
  for (int i = 1; i < plan->n_best; i++) {
    const MsPlanEntry *e = &plan->best[i];
    const Seen own = seen_of(e->result);
    if (e->scenario->gpus == plan->best[0].scenario->gpus && saved(&first, &own) >= MS_PICK_SAVES &&
        lost(&first, &own) <= MS_PICK_LOSS)
      offer(best, &first, &own, e, NULL);
  }
}

/* Of the memory of the first. */
static const double shares[] = {1 - MS_PICK_SAVES, 0.8, 0.7, 0.6, 0.5};

typedef struct {
  Spare *best;
  const MsPlan *plan;
  Seen first;
  GError *why;
} Neighbours;

/* NULL: the layout is not in the ranking. */
static const MsPlanEntry *ranked(const MsPlan *plan, const MsScenario *layout) {
  for (int i = 0; i < plan->n_best; i++)
    if (same_layout(&plan->best[i], layout)) return &plan->best[i];
  return NULL;
}

/* Of a point that is not in the ranking. A step beyond `limit_s` may be INFINITY. FALSE: *error. */
static gboolean look_at(const MsFrontPoint *p, double limit_s, Seen *seen, GError **error) {
  const MsScenario *s = p->scenario;
  *seen = (Seen){.device_B = p->device_B, .used = p->device_B / s->hardware->hbm_B};
  if (s->pools.n == 0 && s->pools.shares == 0) return ms_step_time(s, NULL, limit_s, &seen->step_s, error);
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, NULL, error);
  if (full) *seen = seen_of(full);
  return full != NULL;
}

/* The next of the shares that this one does not fit into; 0: there is none, or it is too slow. */
static double offer_neighbour(const MsFrontPoint *p, gpointer user) {
  Neighbours *n = user;
  if (p->interrupted) return 0;
  const Seen *first = &n->first;
  const MsPlanEntry *known = ranked(n->plan, p->scenario);
  double most_s = is_found(n->best) ? first->step_s * (1 + MS_PICK_LOSS) * (1 + 1e-9) : INFINITY, next = 0;
  Seen own;
  if (known) own = seen_of(known->result);
  else if (!look_at(p, most_s, &own, &n->why)) return 0;
  gboolean dear = lost(first, &own) > MS_PICK_LOSS;
  for (guint i = 0; i < G_N_ELEMENTS(shares) && !dear && next == 0; i++)
    if (shares[i] * first->used < own.used) next = shares[i] * first->used;
  if (!dear || !is_found(n->best)) offer(n->best, first, &own, known, p->scenario);
  return next;
}

/* With less and less memory, until what fits is too slow. */
static void offer_neighbours(Spare *best, const Search *x, MsRequest *near, GError **error) {
  Neighbours n = {best, x->plan, seen_of(x->plan->best[0].result), NULL};
  gboolean stopped;
  near->max_memory_fraction = shares[0] * n.first.used;
  g_autoptr(GArray) points = ms_plan_front(near, &x->options, offer_neighbour, &n, &stopped, error);
  for (guint i = 0; points && i < points->len; i++) ms_scenario_free(g_array_index(points, MsFrontPoint, i).scenario);
  if (points && stopped && !n.why) ms_input_error(&n.why, NULL, 0, NULL, "interrupted");
  if (n.why) g_propagate_error(error, n.why);
}

static gboolean add_memory(Search *x, GError **error) {
  const MsPlanEntry *first = &x->plan->best[0];
  MsRequest *near = ms_neighbourhood(x->request, first->scenario, first->scenario->hardware);
  Spare best = {0};
  MsPlanEntry *found = NULL;
  GError *why = NULL;
  offer_ranking(&best, x->plan);
  offer_neighbours(&best, x, near, &why);
  if (best.scenario && !why) found = predicted(near, g_steal_pointer(&best.scenario), &why);
  ms_scenario_free(best.scenario);
  ms_neighbourhood_free(near);
  if (best.entry || found) add(x->picks, 1u << MS_PICK_MEMORY, found ? found : best.entry, found);
  if (why) g_propagate_error(error, why);
  return !why;
}

/* --- simple to run --------------------------------------------------------------------------------------------- */
/* FALSE: the request leaves none of it open. */
static gboolean make_simple(MsRequest *r) {
  MsOptions *o = &r->base->options;
  int open = r->n_open;
  guint64 given = r->layout_given;
  ms_close_overlaps(r);
  if (ms_close_auto(r, "options.offload_modules")) o->offload_modules = 0;
  if (ms_close_auto(r, "options.optimizer_offload_fraction")) o->optimizer_offload_fraction = 0;
  return r->n_open < open || r->layout_given != given;
}

static gboolean add_simplest(Search *x, GError **error) {
  MsRequest r = ms_variant_of(x->request);
  if (make_simple(&r)) return add_best(x, MS_PICK_SIMPLEST, &r, error);
  ms_variant_clear(&r);
  return TRUE;
}

/* --- near-copies ----------------------------------------------------------------------------------------------- */
static gboolean of_a_copy(const char *path) {
  static const char *const minor[] = {"options.recompute", "options.cuda_graph_scope", "options.offload_modules",
                                      "options.dispatcher", NULL};
  return g_strv_contains(minor, path);
}

static void count_copies(MsPicks *p, const MsPlan *plan) {
  const MsPlanEntry *first = &plan->best[0];
  for (int i = 1; i < plan->n_best; i++) {
    MsComparison *c = ms_compare(first->scenario, first->result, plan->best[i].scenario, plan->best[i].result);
    gboolean copy = TRUE;
    for (int k = 0; k < c->n_keys; k++) copy &= of_a_copy(c->key[k].path);
    ms_comparison_free(c);
    if (!copy) continue;
    p->copies++;
    p->copies_within = MAX(p->copies_within, plan->best[i].result->step_time_s / first->result->step_time_s - 1);
  }
}

static void mark_ties(MsPicks *p) {
  p->noise = p->pick[0].entry->result->band_curves;
  p->all_tied = p->n > 1;
  for (int i = 1; i < p->n; i++) {
    p->pick[i].tied =
        p->pick[i].entry->scenario->gpus == p->pick[0].entry->scenario->gpus && ABS(p->pick[i].slower) <= p->noise;
    p->all_tied &= p->pick[i].tied;
  }
}

MsPicks *ms_picks_new(const MsRequest *request, const MsPlan *plan, const MsReasons *reasons, const MsRobust *robust,
                      const MsPlanOptions *options, GError **error) {
  g_autoptr(MsPicks) p = g_new0(MsPicks, 1);
  Search x = {p, request, plan, {.top = 1, .prune = TRUE, .rough = TRUE, .threads = options->threads}};
  add(p, kinds_of_winner(request), &plan->best[0], NULL);
  if (!add_by_objective(&x, MS_PICK_FASTEST, MS_GOAL_STEP_TIME, error) ||
      !add_by_objective(&x, MS_PICK_CHEAPEST, MS_GOAL_TOKENS, error) || !add_memory(&x, error) ||
      !add_simplest(&x, error))
    return NULL;
  if (robust) add(p, 1u << MS_PICK_ROBUST, robust->row[0].entry, NULL);
  if (ms_interrupted()) return ms_input_error(error, NULL, 0, NULL, "interrupted"), NULL;
  count_copies(p, plan);
  mark_ties(p);
  for (int i = 0; i < p->n; i++) {
    const MsPlanEntry *e = p->pick[i].entry;
    p->pick[i].figure = ms_objective_figure(request, e->scenario->gpus, e->result->step_time_s);
    ms_budget_of(request, e->scenario, e->result, &p->pick[i].budget);
  }
  ms_picks_advise(p, plan, reasons);
  return g_steal_pointer(&p);
}

void ms_picks_free(MsPicks *p) {
  if (!p) return;
  for (int i = 0; i < p->n; i++) {
    ms_comparison_free(p->pick[i].change);
    free_entry(p->pick[i].found);
  }
  for (int i = 0; i < p->n_advice; i++) g_free(p->advice[i]);
  g_free(p->advice);
  g_free(p->pick);
  g_free(p);
}
