#include "study/picks.h"
#include "study/advice.h"

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
static gboolean gpus_are_open(const MsRequest *r) { return ms_open_place(r, "gpus") >= 0; }

static guint kinds_of_winner(const MsRequest *r) {
  const guint fastest = 1u << MS_PICK_FASTEST, cheapest = 1u << MS_PICK_CHEAPEST;
  if (!gpus_are_open(r)) return fastest | cheapest;
  return r->objective == MS_GOAL_STEP_TIME ? fastest : r->objective == MS_GOAL_DEADLINE ? 0 : cheapest;
}

static gboolean add_by_objective(Search *x, MsPickKind kind, MsGoal goal, GError **error) {
  if (!gpus_are_open(x->request) || (kinds_of_winner(x->request) & (1u << kind))) return TRUE;
  GError *why = NULL;
  MsRequest r = ms_variant_of(x->request);
  r.objective = goal;
  MsPlanEntry *found = best_of(x, &r, &why);
  if (found) add(x->picks, 1u << kind, found, found);
  ms_variant_clear(&r);
  if (why) g_propagate_error(error, why);
  return !why;
}

/* --- memory to spare ------------------------------------------------------------------------------------------- */
static double saved(const MsPlanEntry *first, const MsPlanEntry *e) {
  return 1 - ms_device_B(e->result) / ms_device_B(first->result);
}
static double lost(const MsPlanEntry *first, const MsPlanEntry *e) {
  return e->result->step_time_s / first->result->step_time_s - 1;
}

typedef struct {
  const MsPlanEntry *entry; /* NULL: none yet */
  MsPlanEntry *found;       /* NULL: of the ranking */
} Spare;

/* Takes `found`. */
static void offer(Spare *best, const MsPlanEntry *first, const MsPlanEntry *e, MsPlanEntry *found) {
  double worth = saved(first, e) - MS_PICK_WORTH * lost(first, e);
  gboolean better = !best->entry || worth > saved(first, best->entry) - MS_PICK_WORTH * lost(first, best->entry);
  if (better) {
    free_entry(best->found);
    *best = (Spare){e, found};
  } else free_entry(found);
}

static void offer_ranking(Spare *best, const MsPlan *plan) {
  const MsPlanEntry *first = &plan->best[0];
  for (int i = 1; i < plan->n_best; i++) {
    const MsPlanEntry *e = &plan->best[i];
    if (e->scenario->gpus == first->scenario->gpus && saved(first, e) >= MS_PICK_SAVES &&
        lost(first, e) <= MS_PICK_LOSS)
      offer(best, first, e, NULL);
  }
}

/* Of the memory of the first. */
static const double shares[] = {1 - MS_PICK_SAVES, 0.8, 0.7, 0.6, 0.5};

static double used(const MsPlanEntry *e) { return ms_device_B(e->result) / e->result->capacity_B; }

typedef struct {
  Spare *best;
  const MsRequest *near;
  const MsPlan *plan;
  GError *why;
} Neighbours;

/* NULL: the layout is not in the ranking. */
static const MsPlanEntry *ranked(const MsPlan *plan, const MsScenario *layout) {
  for (int i = 0; i < plan->n_best; i++)
    if (same_layout(&plan->best[i], layout)) return &plan->best[i];
  return NULL;
}

/* The next of the shares that this one does not fit into; 0: there is none, or it is too slow. */
static double offer_neighbour(const MsFrontPoint *p, gpointer user) {
  Neighbours *n = user;
  if (p->interrupted) return 0;
  const MsPlanEntry *first = &n->plan->best[0], *known = ranked(n->plan, p->scenario);
  MsPlanEntry *found = known ? NULL : predicted(n->near, ms_scenario_copy(p->scenario, TRUE), &n->why);
  const MsPlanEntry *e = known ? known : found;
  if (!e) return 0;
  gboolean dear = lost(first, e) > MS_PICK_LOSS;
  double own = used(e), next = 0;
  for (guint i = 0; i < G_N_ELEMENTS(shares) && !dear && next == 0; i++)
    if (shares[i] * used(first) < own) next = shares[i] * used(first);
  if (dear && n->best->entry) free_entry(found);
  else offer(n->best, first, e, found);
  return next;
}

/* With less and less memory, until what fits is too slow. */
static void offer_neighbours(Spare *best, const Search *x, MsRequest *near, GError **error) {
  Neighbours n = {best, near, x->plan, NULL};
  gboolean stopped;
  near->max_memory_fraction = shares[0] * used(&x->plan->best[0]);
  g_autoptr(GArray) points = ms_plan_front(near, &x->options, offer_neighbour, &n, &stopped, error);
  for (guint i = 0; points && i < points->len; i++) ms_scenario_free(g_array_index(points, MsFrontPoint, i).scenario);
  if (points && stopped && !n.why) ms_input_error(&n.why, NULL, 0, NULL, "interrupted");
  if (n.why) g_propagate_error(error, n.why);
}

static gboolean add_memory(Search *x, GError **error) {
  const MsPlanEntry *first = &x->plan->best[0];
  MsRequest *near = ms_neighbourhood(x->request, first->scenario, first->scenario->hardware);
  Spare best = {0};
  GError *why = NULL;
  offer_ranking(&best, x->plan);
  offer_neighbours(&best, x, near, &why);
  ms_neighbourhood_free(near);
  if (best.entry) add(x->picks, 1u << MS_PICK_MEMORY, best.entry, best.found);
  if (why) g_propagate_error(error, why);
  return !why;
}

/* --- simple to run --------------------------------------------------------------------------------------------- */
/* FALSE: the request leaves none of it open. */
static gboolean make_simple(MsRequest *r) {
  MsOptions *o = &r->base->options;
  int open = r->n_open;
  guint64 given = r->layout_given;
  if (ms_close_auto(r, "options.cuda_graph_scope")) o->cuda_graph_scope = 0;
  if (ms_close_auto(r, "options.ep_overlap")) o->ep_overlap = FALSE;
  if (ms_close_auto(r, "options.delay_wgrad")) o->delay_wgrad = FALSE;
  ms_close_dispatcher(r);
  if (ms_close_auto(r, "options.offload_modules")) o->offload_modules = 0;
  if (ms_close_auto(r, "options.optimizer_offload_fraction")) o->optimizer_offload_fraction = 0;
  if (ms_close_auto(r, "layout.schedule")) r->base->layout.schedule = MS_SCHED_1F1B;
  ms_close_size(r, "vpp", &r->base->layout.vpp);
  return r->n_open < open || r->layout_given != given;
}

static gboolean add_simplest(Search *x, GError **error) {
  GError *why = NULL;
  MsRequest r = ms_variant_of(x->request);
  MsPlanEntry *found = make_simple(&r) ? best_of(x, &r, &why) : NULL;
  if (found) add(x->picks, 1u << MS_PICK_SIMPLEST, found, found);
  ms_variant_clear(&r);
  if (why) g_propagate_error(error, why);
  return !why;
}

/* --- near-copies ----------------------------------------------------------------------------------------------- */
static gboolean of_a_copy(const char *path) {
  static const char *const minor[] = {"options.recompute", "options.cuda_graph_scope", "options.offload_modules",
                                      "options.dispatcher"};
  for (guint i = 0; i < G_N_ELEMENTS(minor); i++)
    if (strcmp(path, minor[i]) == 0) return TRUE;
  return FALSE;
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
  ms_picks_advise(p, reasons);
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
