/* src/plan/planner.c - what a search does with the layouts that it finds: simulation of those that may enter the list,
 * the list, who watches it, and what is handed over. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "base/ranks.h"
#include "plan/planner_priv.h"
#include "plan/parallel_priv.h"

/* --- the list --- */

static int compare_entries(const MsListed *a, const MsListed *b) {
  if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
  if (a->step_time_s != b->step_time_s) return a->step_time_s < b->step_time_s ? -1 : 1;
  MsCandidate x = a->candidate, y = b->candidate;
  x.cost = y.cost = 0, x.bound = y.bound = 0;
  return ms_candidate_compare(&x, &y);
}

void ms_planner_keep(MsPlanner *x, const MsListed *entry) {
  int at = x->n_list;
  while (at > 0 && compare_entries(entry, &x->list[at - 1]) < 0) at--;
  memmove(&x->list[at + 1], &x->list[at], (size_t)(x->n_list - at) * sizeof *entry);
  x->list[at] = *entry;
  if (++x->n_list > x->top) ms_result_free(x->list[--x->n_list].result);
}

void ms_planner_forget(MsPlanner *x) {
  while (x->n_list > 0) ms_result_free(x->list[--x->n_list].result);
}

/* What costs more cannot enter the list. */
double ms_planner_threshold(const MsPlanner *x) {
  if (!x->s.options->prune) return INFINITY;
  double limit = x->s.options->limit_cost > 0 ? x->s.options->limit_cost : INFINITY;
  return x->n_list == x->top ? MIN(limit, x->list[x->top - 1].cost) : limit;
}

const MsCost *ms_planner_like(const MsPlanner *x) { return x->s.first ? x->s.first->cost : NULL; }

/* --- what is worth knowing --- */

/* A step that costs more than `cost`, if only a little. */
static double step_beyond(const MsPlanner *x, int gpus, double cost) {
  const MsRequest *r = x->s.space->request;
  double step_s = cost / ms_objective_cost(r, gpus, 1) * (1 + 1e-9);
  return ms_objective_cost(r, gpus, step_s) > cost ? step_s : INFINITY;
}

MsWorth ms_planner_worth(const MsPlanner *x, int gpus) {
  return (MsWorth){step_beyond(x, gpus, ms_planner_threshold(x)), x->s.plan->memory_limit_B};
}

const MsOutcome *ms_planner_known(const MsPlanner *x, const MsCandidate *c, double most) {
  const MsOutcome *o = ms_checkpoint_find(x->checkpoint, c);
  gboolean enough = o && (o->kind != MS_OUTCOME_DEAR ||
                          ms_objective_cost(x->s.space->request, c->value[MS_AXIS_GPUS], o->step_time_s) > most);
  return enough ? o : NULL;
}

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
  MsResult *result[MS_BATCH]; /* of the first `whole`, which probably stay in the list: they are simulated once */
  gboolean done[MS_BATCH];
  int whole;
  double most; /* what costs more cannot enter the list, and need not be known */
} Batch;

static gboolean rough_step_time(const MsScenario *s, double *step_s) {
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  if (r) *step_s = r->step_time_s;
  return r != NULL;
}

/* The step time, and with `result` the whole prediction (NULL: the scenario is impossible). */
static gboolean full_step_time(const MsPlanner *x, const MsScenario *s, double limit_s, double *step_s,
                               MsResult **result) {
  if (!result) return ms_step_time(s, ms_planner_like(x), limit_s, step_s, NULL);
  *result = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  if (*result) *step_s = (*result)->step_time_s;
  return *result != NULL;
}

static void simulate_one(int index, int thread, gpointer data) {
  (void)thread;
  Batch *b = data;
  const MsCandidate *c = &b->candidate[index];
  MsOutcome *out = &b->outcome[index];
  const MsOutcome *before = ms_planner_known(b->x, c, b->most);
  if (!before) before = ms_checkpoint_find(b->x->s.options->known, c);
  if (ms_interrupted()) return;
  if (before) {
    *out = *before, out->candidate = *c, out->index = index;
    b->done[index] = TRUE;
    return;
  }
  g_autoptr(MsScenario) s = ms_candidate_scenario(b->x->s.space, c, NULL);
  double step_s = 0, limit_s = step_beyond(b->x, s->gpus, b->most);
  gboolean ok = b->x->s.options->rough
                    ? rough_step_time(s, &step_s)
                    : full_step_time(b->x, s, limit_s, &step_s, index < b->whole ? &b->result[index] : NULL);
  gboolean dear = ok && isinf(step_s);
  *out = (MsOutcome){.candidate = *c,
                     .step_time_s = dear ? limit_s : step_s,
                     .kind = !ok    ? MS_OUTCOME_ERROR
                             : dear ? MS_OUTCOME_DEAR
                                    : MS_OUTCOME_RUN,
                     .index = index};
  b->done[index] = TRUE;
}

gboolean ms_planner_starts(MsPlanner *x, const MsCandidate *c) {
  const MsPlanOptions *options = x->s.options;
  if (!options->starts) return TRUE;
  g_autoptr(MsScenario) s = ms_candidate_scenario(x->s.space, c, NULL);
  if (options->starts(s, options->starts_user, NULL)) return TRUE;
  x->s.plan->feasible--;
  ms_planner_refuse(x, MS_REFUSED_START, INFINITY, c);
  return FALSE;
}

void ms_planner_settle(MsPlanner *x, const MsOutcome *o, MsResult *result) {
  MsPlan *plan = x->s.plan;
  if (o->kind == MS_OUTCOME_ERROR) {
    plan->feasible--;
    ms_planner_refuse(x, MS_REFUSED_ERROR, INFINITY, &o->candidate);
    return;
  }
  plan->simulated++;
  if (o->kind == MS_OUTCOME_DEAR) return;
  double cost = ms_objective_cost(x->s.space->request, o->candidate.value[MS_AXIS_GPUS], o->step_time_s);
  if (isinf(cost)) {
    ms_result_free(result);
    ms_planner_refuse(x, MS_REFUSED_DEADLINE, ms_planner_late_s(x, &o->candidate, o->step_time_s), &o->candidate);
    plan->simulated--;
  } else {
    ms_planner_keep(x, &(MsListed){o->candidate, cost, o->step_time_s, result});
  }
}

/* outcome[n] of those that `seen` says. */
static void simulate_batch(Batch *b, int n, MsOutcome *outcome, gboolean *seen) {
  MsPlanner *x = b->x;
  ms_parallel(n, x->s.options->threads, simulate_one, b);
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsOutcome));
  for (int i = 0; i < n; i++)
    if (b->done[i]) g_array_append_val(all, b->outcome[i]);
  ms_ranks_gather(all);
  for (int i = 0; i < n; i++) seen[i] = FALSE;
  for (guint i = 0; i < all->len; i++) {
    const MsOutcome *o = &g_array_index(all, MsOutcome, i);
    outcome[o->index] = *o, seen[o->index] = TRUE;
  }
  for (int i = 0; i < n; i++) {
    if (!seen[i]) continue; /* interrupted */
    if (ms_planner_known(x, &outcome[i].candidate, b->most)) x->s.plan->resumed++;
    else ms_checkpoint_add(x->checkpoint, &outcome[i]);
    if (x->s.options->known && outcome[i].kind != MS_OUTCOME_DEAR) ms_checkpoint_add(x->s.options->known, &outcome[i]);
  }
  if (!x->error) ms_checkpoint_write(x->checkpoint, FALSE, &x->error);
}

void ms_planner_outcomes(MsPlanner *x, const MsCandidate *candidate, int n, MsOutcome *outcome, gboolean *done) {
  simulate_batch(&(Batch){.x = x, .candidate = candidate, .most = INFINITY}, n, outcome, done);
}

void ms_planner_simulate(MsPlanner *x, const MsCandidate *candidate, int n, gboolean *done) {
  MsCandidate started[MS_BATCH];
  Batch b = {.x = x,
             .candidate = started,
             .whole = ms_ranks_count() == 1 ? x->top - x->n_list : 0,
             .most = ms_planner_threshold(x)};
  MsOutcome outcome[MS_BATCH];
  gboolean seen[MS_BATCH];
  int place[MS_BATCH], m = 0;
  for (int i = 0; i < n; i++) {
    if (done) done[i] = TRUE;
    if (ms_planner_starts(x, &candidate[i])) started[m] = candidate[i], place[m++] = i;
  }
  simulate_batch(&b, m, outcome, seen);
  for (int i = 0; i < m; i++) {
    if (done) done[place[i]] = seen[i];
    if (seen[i]) ms_planner_settle(x, &outcome[i], b.result[i]);
  }
}

gboolean ms_planner_stopped(MsPlanner *x) { return ms_ranks_any(ms_interrupted() || x->error); }

/* The whole prediction of one layout of the list. */
static void predict_one(int index, int thread, gpointer data) {
  (void)thread;
  MsPlanner *x = data;
  MsPlanEntry *e = &x->s.plan->best[index];
  e->scenario = ms_candidate_scenario(x->s.space, &x->list[index].candidate, NULL);
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

/* Only rank 0 prints, so only it needs the whole predictions. */
void ms_planner_hand_over(MsPlanner *x) {
  ms_refused_hand_over(&x->s.refused, x->s.space, x->s.options, x->s.plan);
  if (ms_ranks_own() == 0 && !predict_list(x)) unlist(x);
}
