/* src/plan/search.c - one search from its request to its plan. How the layouts are found is in every.c and tree.c, what
 * both do with one in planner.c. */
#include "plan/search_priv.h"
#include "plan/every_priv.h"
#include "plan/tree.h"
#include "base/ranks.h"
#include "base/io.h"
#include <math.h>
#include <string.h>

const char *const ms_shortcut_words[] = {"bound", "relaxed", "memory", "shared", "same-as-another", NULL};

void ms_plan_options_init(MsPlanOptions *options) {
  *options = (MsPlanOptions){.top = MS_PLAN_TOP, .prune = TRUE, .progress = TRUE};
}

static gboolean may_run_fp16(const MsRequest *request) {
  return ms_request_leaves_open(request, "training.precision") ||
         ms_precision(&request->base->training)->dtype == MS_DT_FP16;
}

/* What no layout can do without; every other figure that is unknown refuses the layouts that need it. */
static gboolean check(const MsRequest *request, GError **error) {
  for (int i = 0; i < ms_scenario_machines(request->base); i++) {
    const MsHardware *hw = ms_scenario_machine(request->base, i);
    if (!ms_hardware_need(hw, hw->hbm_B, "hbm_B", error) || !ms_hardware_need(hw, hw->hbm_Bps, "hbm_Bps", error) ||
        !(may_run_fp16(request) || ms_hardware_need(hw, hw->peak_bf16_flops, "peak_bf16_flops", error)))
      return FALSE;
  }
  return TRUE;
}

/* least_s, not NULL: only that of ms_plan_search. */
static gboolean run(MsPlanner *x, double *least_s, GError **error) {
  MsPlan *plan = x->s.plan;
  if (least_s) {
    *least_s = ms_tree_least_per_sequence_s(x);
    return TRUE;
  }
  if (plan->branched) ms_search_tree(x);
  else if (!ms_search_every(x, error)) return FALSE;
  if (!x->error) ms_checkpoint_write(x->checkpoint, TRUE, &x->error);
  plan->interrupted = ms_ranks_any(ms_interrupted());
  plan->lower_cost = x->n_list ? MIN(plan->lower_cost, x->list[0].cost) : plan->lower_cost;
  if (!x->error) ms_planner_hand_over(x);
  if (!x->error) return TRUE;
  g_propagate_error(error, x->error);
  return FALSE;
}

static MsPlan *new_plan(const MsRequest *request, const MsSpace *space, const MsPlanOptions *o) {
  MsPlan *plan = g_new0(MsPlan, 1);
  plan->best = g_new0(MsPlanEntry, o->top);
  plan->objective = request->objective;
  plan->memory_limit_B = request->max_memory_fraction * request->base->hardware->hbm_B;
  gboolean many = ms_space_size(space) > (o->rough ? MS_PLAN_EVERY_ROUGH : MS_PLAN_EVERY) ||
                  ms_space_shapes(space) > MS_PLAN_EVERY_SHAPE;
  plan->branched = o->prune && (o->branch || many);
  return plan;
}

/* What a search needs, with its options completed: they live as long as it does. FALSE and *error: nothing is to be
 * freed. */
static gboolean begin(MsPlanner *x, const MsRequest *request, MsPlanOptions *o, GError **error) {
  if (!ms_objective_check(request, error)) return FALSE;
  o->top = ms_plan_top(o, request);
  if (!o->prune)
    o->without |= 1u << MS_SHORT_BOUND | 1u << MS_SHORT_RELAXED | 1u << MS_SHORT_MEMORY | 1u << MS_SHORT_SHARED;
  MsSpace *space = ms_space_new(request, ms_shortcut_on(o, MS_SHORT_SHARED), error);
  if (!space) return FALSE;
  *x = (MsPlanner){.s = {.space = space, .options = o}, .top = o->top, .began_us = g_get_monotonic_time()};
  if (!check(request, error) || !(x->checkpoint = ms_checkpoint_new(space, o->checkpoint, o->resume, error))) {
    ms_space_free(space);
    return FALSE;
  }
  x->s.plan = new_plan(request, space, o);
  x->list = g_new0(MsListed, o->top + 1);
  x->s.candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  x->s.progress = o->progress && ms_ranks_own() == 0 ? ms_progress_begin("plan", 0) : NULL;
  ms_refused_init(&x->s.refused);
  return TRUE;
}

static void end(MsPlanner *x) {
  ms_progress_end(x->s.progress);
  ms_refused_clear(&x->s.refused);
  g_array_unref(x->s.candidates);
  g_free(x->list);
  ms_checkpoint_free(x->checkpoint);
  ms_memo_free(x->s.first);
  ms_space_free(x->s.space);
}

MsPlan *ms_plan_search(const MsRequest *request, const MsPlanOptions *options, double *least_s, GError **error) {
  MsPlanOptions o = *options;
  MsPlanner x;
  if (!begin(&x, request, &o, error)) return NULL;
  MsPlan *plan = x.s.plan;
  gboolean ok = run(&x, least_s, error);
  if (!ok) ms_planner_forget(&x);
  end(&x);
  plan->elapsed_s = (double)(g_get_monotonic_time() - x.began_us) / 1e6;
  if (ok) return plan;
  ms_plan_free(plan);
  return NULL;
}

/* --- the front --- */

typedef struct {
  MsPlanner *x;
  GArray *points;
  MsFrontNext next;
  gpointer user;
} Front;

static double gap_of(const MsRequest *request, double lower_cost, double cost) {
  if (!(lower_cost > 0)) return NAN;
  if (lower_cost >= cost) return 0;
  return request->objective == MS_GOAL_DEADLINE ? NAN : 1 - lower_cost / cost; /* costs of that goal are no quantity */
}

double ms_front_step(const MsFrontPoint *found, gpointer step) {
  return found->device_B / found->scenario->hardware->hbm_B - *(double *)step;
}

static gboolean add_found(const MsFrontFound *found, gpointer user) {
  Front *f = user;
  MsSearch *s = &f->x->s;
  const MsRequest *request = s->space->request;
  MsFrontPoint p = {.scenario = ms_candidate_scenario(s->space, &found->candidate, NULL),
                    .step_time_s = found->step_time_s,
                    .device_B = found->device_B,
                    .interrupted = ms_interrupted(),
                    .proven_within = gap_of(request, found->lower_cost, found->cost)};
  g_array_append_val(f->points, p);
  double fraction = f->next(&p, f->user);
  s->plan->memory_limit_B = fraction * request->base->hardware->hbm_B;
  return fraction > 0;
}

static double device_B(const MsResult *r) {
  double most = 0;
  for (int i = 0; i < r->memory->stages; i++) most = MAX(most, r->memory->stage[i].device_B);
  return most;
}

/* One plan after the other, for what is searched without any bound. */
static gboolean plan_points(const MsRequest *request, const MsPlanOptions *options, const Front *front,
                            gboolean *stopped, GError **error) {
  MsRequest tighter = *request; /* only read */
  for (*stopped = FALSE; tighter.max_memory_fraction > 0 && !*stopped;) {
    g_autoptr(MsPlan) plan = ms_plan_search(&tighter, options, NULL, error);
    if (!plan) return FALSE;
    *stopped = plan->interrupted;
    if (plan->n_best == 0) return TRUE;
    const MsPlanEntry *best = &plan->best[0];
    MsFrontPoint p = {.scenario = ms_scenario_copy(best->scenario, TRUE),
                      .step_time_s = best->result->step_time_s,
                      .device_B = device_B(best->result),
                      .interrupted = plan->interrupted,
                      .proven_within = ms_plan_gap(plan, request)};
    g_array_append_val(front->points, p);
    tighter.max_memory_fraction = front->next(&p, front->user);
  }
  return TRUE;
}

static void clear_point(gpointer point) { ms_scenario_free(((MsFrontPoint *)point)->scenario); }

GArray *ms_plan_front(const MsRequest *request, const MsPlanOptions *options, MsFrontNext next, gpointer user,
                      gboolean *stopped, GError **error) {
  MsPlanOptions o = *options;
  MsPlanner x;
  o.top = 1;
  if (!begin(&x, request, &o, error)) return NULL;
  GArray *points = g_array_new(FALSE, FALSE, sizeof(MsFrontPoint));
  Front front = {&x, points, next, user};
  gboolean ok = TRUE;
  if (x.s.plan->branched) ms_search_tree_front(&x, add_found, &front);
  else if (o.prune) ok = ms_search_front(&x, add_found, &front, error);
  *stopped = ms_interrupted();
  if (x.error) g_propagate_error(error, x.error), ok = FALSE;
  ms_plan_free(x.s.plan);
  ms_planner_forget(&x);
  end(&x);
  if (!o.prune) ok = plan_points(request, &o, &front, stopped, error);
  if (ok) return points;
  g_array_set_clear_func(points, clear_point);
  g_array_unref(points);
  return NULL;
}

double ms_plan_gap(const MsPlan *plan, const MsRequest *request) {
  if (plan->n_best == 0) return NAN;
  return gap_of(request, plan->lower_cost,
                ms_objective_cost(request, plan->best[0].scenario->gpus, plan->best[0].result->step_time_s));
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
