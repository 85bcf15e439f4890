/* src/plan/plan.c - one search: its list, simulation of what may enter it, and what is handed over. How the layouts are
 * found is in every.c and tree.c. */
#include "plan/plan_priv.h"
#include "base/ranks.h"
#include "base/err.h"
#include "base/io.h"
#include "base/units.h"
#include <math.h>
#include <string.h>

const char *const ms_shortcut_words[] = {"bound", "relaxed", "memory", "shared", "same-as-another", NULL};

void ms_plan_options_init(MsPlanOptions *options) {
  *options = (MsPlanOptions){.top = 10, .prune = TRUE, .progress = TRUE};
}

gboolean ms_planner_cuts(const MsPlanner *x, MsShortcut shortcut) {
  return x->s.options->prune && !(x->s.options->without & (1u << shortcut));
}

/* --- the list --- */

static int compare_entries(const MsListed *a, const MsListed *b) {
  if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
  if (a->step_time_s != b->step_time_s) return a->step_time_s < b->step_time_s ? -1 : 1;
  MsCandidate x = a->candidate, y = b->candidate;
  x.cost = y.cost = 0, x.bound = y.bound = 0;
  return ms_candidate_compare(&x, &y);
}

static void keep_best(MsPlanner *x, MsListed entry) {
  int at = x->n_list;
  while (at > 0 && compare_entries(&entry, &x->list[at - 1]) < 0) at--;
  memmove(&x->list[at + 1], &x->list[at], (size_t)(x->n_list - at) * sizeof entry);
  x->list[at] = entry;
  if (++x->n_list > x->top) ms_result_free(x->list[--x->n_list].result);
}

/* What costs more cannot enter the list. */
double ms_planner_threshold(const MsPlanner *x) {
  return x->s.options->prune && x->n_list == x->top ? x->list[x->top - 1].cost : INFINITY;
}

const MsCost *ms_planner_like(const MsPlanner *x) { return x->s.first ? ms_memo_cost(x->s.first) : NULL; }

/* --- simulation --- */

void ms_planner_refuse(MsPlanner *x, int row, double miss, const MsCandidate *c) {
  ms_refused_add(&x->s.refused, ms_num_rules + row, 1, miss, G_MAXUINT64, c);
}

double ms_planner_late_s(const MsPlanner *x, const MsCandidate *c, double step_s) {
  const MsRequest *r = x->s.space->request;
  return ms_objective_figure(r, c->value[MS_AXIS_GPUS], step_s) - r->deadline_s;
}

typedef struct {
  MsPlanner *x;
  const MsCandidate *candidate;
  MsOutcome outcome[MS_BATCH];
  gboolean done[MS_BATCH];
} Batch;

static gboolean rough_step_time(const MsScenario *s, double *step_s) {
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  if (r) *step_s = r->step_time_s;
  return r != NULL;
}

static void simulate_one(int index, int thread, gpointer data) {
  (void)thread;
  Batch *b = data;
  const MsCandidate *c = &b->candidate[index];
  MsOutcome *out = &b->outcome[index];
  const MsOutcome *before = ms_checkpoint_find(b->x->checkpoint, c);
  if (ms_interrupted()) return;
  if (before) {
    *out = *before, out->index = index;
    b->done[index] = TRUE;
    return;
  }
  g_autoptr(MsScenario) s = ms_candidate_scenario(b->x->s.space, c);
  double step_s = 0;
  gboolean ok =
      b->x->s.options->rough ? rough_step_time(s, &step_s) : ms_step_time(s, ms_planner_like(b->x), &step_s, NULL);
  *out = (MsOutcome){
      .candidate = *c, .step_time_s = step_s, .kind = ok ? MS_OUTCOME_RUN : MS_OUTCOME_ERROR, .index = index};
  b->done[index] = TRUE;
}

void ms_planner_settle(MsPlanner *x, const MsOutcome *o) {
  MsPlan *plan = x->s.plan;
  if (o->kind == MS_OUTCOME_ERROR) {
    plan->feasible--;
    ms_planner_refuse(x, MS_REFUSED_ERROR, INFINITY, &o->candidate);
    return;
  }
  double cost = ms_objective_cost(x->s.space->request, o->candidate.value[MS_AXIS_GPUS], o->step_time_s);
  plan->simulated++;
  if (isinf(cost)) {
    ms_planner_refuse(x, MS_REFUSED_DEADLINE, ms_planner_late_s(x, &o->candidate, o->step_time_s), &o->candidate);
    plan->simulated--;
  } else {
    keep_best(x, (MsListed){o->candidate, cost, o->step_time_s, NULL});
  }
}

void ms_planner_simulate(MsPlanner *x, const MsCandidate *candidate, int n, gboolean *done) {
  Batch b = {.x = x, .candidate = candidate};
  ms_parallel(n, x->s.options->threads, simulate_one, &b);
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsOutcome));
  for (int i = 0; i < n; i++)
    if (b.done[i]) g_array_append_val(all, b.outcome[i]);
  ms_ranks_gather(all);
  gboolean seen[MS_BATCH] = {FALSE};
  MsOutcome outcome[MS_BATCH];
  for (guint i = 0; i < all->len; i++) {
    const MsOutcome *o = &g_array_index(all, MsOutcome, i);
    outcome[o->index] = *o, seen[o->index] = TRUE;
  }
  for (int i = 0; i < n; i++) {
    if (done) done[i] = seen[i];
    if (!seen[i]) continue; /* interrupted */
    if (ms_checkpoint_find(x->checkpoint, &outcome[i].candidate)) x->s.plan->resumed++;
    else ms_checkpoint_add(x->checkpoint, &outcome[i]);
    ms_planner_settle(x, &outcome[i]);
  }
  if (!x->error) ms_checkpoint_write(x->checkpoint, FALSE, &x->error);
}

gboolean ms_planner_stopped(MsPlanner *x) { return ms_ranks_any(ms_interrupted() || x->error); }

/* The whole prediction of one layout of the list. */
static void predict_one(int index, int thread, gpointer data) {
  (void)thread;
  MsPlanner *x = data;
  MsPlanEntry *e = &x->s.plan->best[index];
  e->scenario = ms_candidate_scenario(x->s.space, &x->list[index].candidate);
  MsFidelity fidelity = x->s.options->rough ? MS_FIDELITY_FAST : MS_FIDELITY_FULL;
  if (!x->list[index].result) x->list[index].result = ms_simulate(e->scenario, fidelity, NULL, NULL);
  e->result = x->list[index].result;
  e->figure = ms_objective_figure(x->s.space->request, e->scenario->gpus, x->list[index].step_time_s);
}

/* Times that stood in a file are those that this program simulates, or the file is refused. */
static gboolean check_resumed(MsPlanner *x) {
  const char *file = x->s.options->resume;
  for (int i = 0; file && !x->error && i < x->n_list; i++) {
    const MsResult *r = x->list[i].result;
    if (r && fabs(r->step_time_s - x->list[i].step_time_s) <= 1e-9 * r->step_time_s) continue;
    g_set_error(&x->error, MS_ERROR, MS_ERROR_INPUT,
                "%s: simulated: has a layout with %.9g s a step, which %s: it was changed, or written by another "
                "version; start without --resume",
                file, x->list[i].step_time_s, r ? "takes another time" : "cannot be");
  }
  return !x->error;
}

/* The plan without its list; the results stay in x->list. */
static void unlist(MsPlanner *x) {
  MsPlan *p = x->s.plan;
  while (p->n_best > 0) ms_scenario_free(p->best[--p->n_best].scenario);
}

/* FALSE: there is an error. */
static gboolean predict_list(MsPlanner *x) {
  x->s.plan->n_best = x->n_list;
  ms_parallel_here(x->n_list, x->s.options->threads, predict_one, x);
  return check_resumed(x);
}

/* What was found so far, for who watches. */
static void show(MsPlanner *x, double done) {
  MsPlan *p = x->s.plan;
  if (!x->s.options->watch || ms_ranks_own() != 0) return;
  if (predict_list(x)) x->s.options->watch(p, done, x->s.options->watch_user);
  unlist(x);
}

void ms_planner_tell(MsPlanner *x, double done, const char *note) {
  ms_progress_update(x->s.progress, done, note);
  show(x, done);
}

/* --- in and out --- */

/* Only rank 0 prints, so only it needs the whole predictions. */
static void hand_over(MsPlanner *x) {
  ms_refused_hand_over(&x->s.refused, x->s.space, x->s.plan);
  if (ms_ranks_own() == 0 && !predict_list(x)) unlist(x);
}

static gboolean may_run_fp16(const MsRequest *request) {
  for (int i = 0; i < request->n_open; i++)
    if (!strcmp(request->open[i].path, "training.precision")) return TRUE;
  return request->base->training.precision == MS_FP16;
}

/* What no layout can do without; every other figure that is unknown refuses the layouts that need it. */
static gboolean check(const MsRequest *request, GError **error) {
  const MsHardware *hw = request->base->hardware;
  return ms_hardware_need(hw, hw->hbm_B, "hbm_B", error) && ms_hardware_need(hw, hw->hbm_Bps, "hbm_Bps", error) &&
         (may_run_fp16(request) || ms_hardware_need(hw, hw->peak_bf16_flops, "peak_bf16_flops", error));
}

static gboolean run(MsPlanner *x, GError **error) {
  MsPlan *plan = x->s.plan;
  if (plan->branched) ms_search_tree(x);
  else if (!ms_search_every(x, error)) return FALSE;
  if (!x->error) ms_checkpoint_write(x->checkpoint, TRUE, &x->error);
  plan->interrupted = ms_ranks_any(ms_interrupted());
  plan->lower_cost = x->n_list ? MIN(plan->lower_cost, x->list[0].cost) : plan->lower_cost;
  if (!x->error) hand_over(x);
  if (!x->error) return TRUE;
  g_propagate_error(error, x->error);
  return FALSE;
}

static MsPlan *new_plan(const MsRequest *request, const MsSpace *space, const MsPlanOptions *o) {
  MsPlan *plan = g_new0(MsPlan, 1);
  plan->best = g_new0(MsPlanEntry, o->top);
  plan->objective = request->objective;
  plan->memory_limit_B = request->max_memory_fraction * request->base->hardware->hbm_B;
  plan->branched = o->prune && (o->branch || ms_space_size(space) > MS_PLAN_EVERY);
  return plan;
}

MsPlan *ms_plan(const MsRequest *request, const MsPlanOptions *options, GError **error) {
  if (!ms_objective_check(request, error)) return NULL;
  MsPlanOptions o = *options;
  if (o.top <= 0) o.top = request->top > 0 ? request->top : 10;
  if (!o.prune)
    o.without |= 1u << MS_SHORT_BOUND | 1u << MS_SHORT_RELAXED | 1u << MS_SHORT_MEMORY | 1u << MS_SHORT_SHARED;
  MsSpace *space = ms_space_new(request, !(o.without & 1u << MS_SHORT_SHARED), error);
  if (!space) return NULL;
  MsPlanner x = {.s = {.space = space, .options = &o}, .top = o.top, .began_us = g_get_monotonic_time()};
  if (!check(request, error) || !(x.checkpoint = ms_checkpoint_new(space, o.checkpoint, o.resume, error))) {
    ms_space_free(space);
    return NULL;
  }
  MsPlan *plan = x.s.plan = new_plan(request, space, &o);
  x.list = g_new0(MsListed, o.top + 1);
  x.s.candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  x.s.progress = o.progress && ms_ranks_own() == 0 ? ms_progress_begin("plan", 0) : NULL;
  ms_refused_init(&x.s.refused);
  gboolean ok = run(&x, error);
  ms_progress_end(x.s.progress);
  ms_refused_clear(&x.s.refused);
  g_array_unref(x.s.candidates);
  for (int i = 0; !ok && i < x.n_list; i++) ms_result_free(x.list[i].result);
  g_free(x.list);
  ms_checkpoint_free(x.checkpoint);
  ms_memo_free(x.s.first);
  ms_space_free(space);
  plan->elapsed_s = (double)(g_get_monotonic_time() - x.began_us) / 1e6;
  if (ok) return plan;
  ms_plan_free(plan);
  return NULL;
}

double ms_plan_gap(const MsPlan *plan, const MsRequest *request) {
  if (plan->n_best == 0 || !(plan->lower_cost > 0)) return NAN;
  double best = ms_objective_cost(request, plan->best[0].scenario->gpus, plan->best[0].result->step_time_s);
  if (plan->lower_cost >= best) return 0;
  return request->objective == MS_GOAL_DEADLINE ? NAN
                                                : 1 - plan->lower_cost / best; /* costs of that goal are no quantity */
}

void ms_plan_free(MsPlan *plan) {
  if (!plan) return;
  for (int i = 0; i < plan->n_best; i++) {
    ms_scenario_free(plan->best[i].scenario);
    ms_result_free(plan->best[i].result);
  }
  for (int i = 0; i < plan->n_refusals; i++) {
    g_free(plan->refusals[i].name);
    g_free(plan->refusals[i].example);
    g_free(plan->refusals[i].layout);
  }
  g_free(plan->best);
  g_free(plan->refusals);
  g_free(plan);
}
