/* src/plan/plan.c - the search: every layout bounded, the promising ones bounded again more tightly, and simulated in the order of those bounds until none
 * that is left can enter the list. */
#include "plan/plan_priv.h"
#include "base/ranks.h"
#include "base/err.h"
#include "base/io.h"
#include "base/units.h"
#include <math.h>
#include <string.h>

/* Fixed, so that counts do not depend on threads or ranks. */
#define BATCH 16    /* candidates simulated between two updates of the threshold */
#define SCREEN 512  /* candidates screened at once */

const char *const ms_shortcut_words[] = {"bound", "relaxed", "memory", "shared", "same-as-another", NULL};

void ms_plan_options_init(MsPlanOptions *options) { *options = (MsPlanOptions){.top = 10, .prune = TRUE, .progress = TRUE}; }

typedef struct { /* of the list */
  MsCandidate candidate;
  double cost, step_time_s;
  MsResult *result; /* NULL until somebody wants to see it */
} Entry;

typedef struct {
  MsCandidate candidate; /* with the tighter bound */
  double device_B;
  gint32 index, failed;
} Screened;

typedef struct {
  MsSearch s;
  MsCheckpoint *checkpoint;
  GArray *pool;     /* Screened that fit, ascending cost */
  Entry *list;      /* [top + 1] */
  int n_list, top;
  gint64 began_us;
  GError *error;
} Planner;

static gboolean cuts(const Planner *x, MsShortcut shortcut) { return x->s.options->prune && !(x->s.options->without & (1u << shortcut)); }

/* --- the list --- */

static int compare_entries(const Entry *a, const Entry *b) {
  if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
  if (a->step_time_s != b->step_time_s) return a->step_time_s < b->step_time_s ? -1 : 1;
  MsCandidate x = a->candidate, y = b->candidate;
  x.cost = y.cost = 0, x.bound = y.bound = 0;
  return ms_candidate_compare(&x, &y);
}

static void keep_best(Planner *x, Entry entry) {
  int at = x->n_list;
  while (at > 0 && compare_entries(&entry, &x->list[at - 1]) < 0) at--;
  memmove(&x->list[at + 1], &x->list[at], (size_t)(x->n_list - at) * sizeof entry);
  x->list[at] = entry;
  if (++x->n_list > x->top) ms_result_free(x->list[--x->n_list].result);
}

/* What costs more cannot enter the list. */
static double threshold(const Planner *x) { return x->s.options->prune && x->n_list == x->top ? x->list[x->top - 1].cost : INFINITY; }

static const MsCost *like_of(const Planner *x) { return x->s.first ? ms_memo_cost(x->s.first) : NULL; }

/* --- screening: exact memory, and a bound within a few percent --- */

typedef struct { Planner *x; const MsCandidate *candidate; GArray **found; } Screening;

static void screen_one(int index, int thread, gpointer data) {
  const Screening *job = data;
  Screened s = {.candidate = job->candidate[index], .index = index};
  MsScreen screen;
  if (ms_interrupted()) return;
  g_autoptr(MsScenario) scenario = ms_candidate_scenario(job->x->s.space, &s.candidate);
  s.failed = !ms_screen(scenario, like_of(job->x), &screen, NULL);
  if (!s.failed) {
    s.device_B = screen.device_B;
    if (cuts(job->x, MS_SHORT_RELAXED)) {
      s.candidate.bound = MAX(s.candidate.bound, (MsTime)(screen.step_time_lower_s * MS_PS_PER_S));
      s.candidate.cost = ms_objective_cost(job->x->s.space->request, s.candidate.value[MS_AXIS_GPUS], (double)s.candidate.bound / MS_PS_PER_S);
    }
  }
  g_array_append_val(job->found[thread], s);
}

static int by_index(const void *a, const void *b) { return ((const Screened *)a)->index - ((const Screened *)b)->index; }

static void refuse(Planner *x, int row, double miss, const MsCandidate *c) {
  ms_refused_add(&x->s.refused, ms_num_rules + row, 1, miss, G_MAXUINT64, c);
}

static double late_s(const Planner *x, const MsCandidate *c, double step_s) {
  const MsRequest *r = x->s.space->request;
  return ms_objective_figure(r, c->value[MS_AXIS_GPUS], step_s) - r->deadline_s;
}

static void settle_screened(Planner *x, const Screened *s) {
  double limit = x->s.plan->memory_limit_B;
  x->s.plan->screened++;
  if (s->failed) refuse(x, MS_REFUSED_ERROR, INFINITY, &s->candidate);
  else if (s->device_B > limit) refuse(x, MS_REFUSED_MEMORY, s->device_B - limit, &s->candidate);
  else {
    x->s.plan->feasible++;
    if (isinf(s->candidate.cost)) refuse(x, MS_REFUSED_DEADLINE, late_s(x, &s->candidate, (double)s->candidate.bound / MS_PS_PER_S), &s->candidate);
    else g_array_append_val(x->pool, *s);
  }
}

static void screen(Planner *x, const MsCandidate *candidate, int n) {
  int threads = ms_parallel_threads(x->s.options->threads);
  g_autofree GArray **found = g_new(GArray *, threads);
  for (int i = 0; i < threads; i++) found[i] = g_array_new(FALSE, FALSE, sizeof(Screened));
  Screening job = {x, candidate, found};
  ms_parallel(n, threads, screen_one, &job);
  for (int i = 1; i < threads; i++) {
    g_array_append_vals(found[0], found[i]->data, found[i]->len);
    g_array_unref(found[i]);
  }
  ms_ranks_gather(found[0]);
  g_array_sort(found[0], by_index);
  for (guint i = 0; i < found[0]->len; i++) settle_screened(x, &g_array_index(found[0], Screened, i));
  g_array_unref(found[0]);
}

static int by_cost(const void *a, const void *b) { return ms_candidate_compare(&((const Screened *)a)->candidate, &((const Screened *)b)->candidate); }

/* --- simulation --- */

typedef struct { Planner *x; const Screened *screened; MsOutcome outcome[BATCH]; gboolean done[BATCH]; } Batch;

static void simulate_one(int index, int thread, gpointer data) {
  (void)thread;
  Batch *b = data;
  const MsCandidate *c = &b->screened[index].candidate;
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
  gboolean ok = ms_step_time(s, like_of(b->x), &step_s, NULL);
  *out = (MsOutcome){.candidate = *c, .step_time_s = step_s, .kind = ok ? MS_OUTCOME_RUN : MS_OUTCOME_ERROR, .index = index};
  b->done[index] = TRUE;
}

static void settle_outcome(Planner *x, const MsOutcome *o) {
  MsPlan *plan = x->s.plan;
  if (o->kind == MS_OUTCOME_ERROR) {
    plan->feasible--;
    refuse(x, MS_REFUSED_ERROR, INFINITY, &o->candidate);
    return;
  }
  double cost = ms_objective_cost(x->s.space->request, o->candidate.value[MS_AXIS_GPUS], o->step_time_s);
  plan->simulated++;
  if (isinf(cost)) {
    refuse(x, MS_REFUSED_DEADLINE, late_s(x, &o->candidate, o->step_time_s), &o->candidate);
    plan->simulated--;
  } else {
    keep_best(x, (Entry){o->candidate, cost, o->step_time_s, NULL});
  }
}

static void simulate_batch(Planner *x, const Screened *screened, int n) {
  Batch b = {.x = x, .screened = screened};
  ms_parallel(n, x->s.options->threads, simulate_one, &b);
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsOutcome));
  for (int i = 0; i < n; i++)
    if (b.done[i]) g_array_append_val(all, b.outcome[i]);
  ms_ranks_gather(all);
  gboolean seen[BATCH] = {FALSE};
  MsOutcome outcome[BATCH];
  for (guint i = 0; i < all->len; i++) {
    const MsOutcome *o = &g_array_index(all, MsOutcome, i);
    outcome[o->index] = *o, seen[o->index] = TRUE;
  }
  for (int i = 0; i < n; i++) {
    if (!seen[i]) continue; /* interrupted */
    if (ms_checkpoint_find(x->checkpoint, &outcome[i].candidate)) x->s.plan->resumed++;
    else ms_checkpoint_add(x->checkpoint, &outcome[i]);
    settle_outcome(x, &outcome[i]);
  }
  if (!x->error) ms_checkpoint_write(x->checkpoint, FALSE, &x->error);
}

static gboolean stopped(Planner *x) { return ms_ranks_any(ms_interrupted() || x->error); }

/* The whole prediction of one layout of the list. */
static void predict_one(int index, int thread, gpointer data) {
  (void)thread;
  Planner *x = data;
  MsPlanEntry *e = &x->s.plan->best[index];
  e->scenario = ms_candidate_scenario(x->s.space, &x->list[index].candidate);
  if (!x->list[index].result) x->list[index].result = ms_simulate(e->scenario, MS_FIDELITY_FULL, NULL, NULL);
  e->result = x->list[index].result;
  e->figure = ms_objective_figure(x->s.space->request, e->scenario->gpus, x->list[index].step_time_s);
}

static void predict_list(Planner *x) {
  x->s.plan->n_best = x->n_list;
  ms_parallel_here(x->n_list, x->s.options->threads, predict_one, x);
}

/* What was found so far, for who watches. */
static void show(Planner *x, double done) {
  MsPlan *p = x->s.plan;
  if (!x->s.options->watch || ms_ranks_own() != 0) return;
  predict_list(x);
  x->s.options->watch(p, done, x->s.options->watch_user);
  while (p->n_best > 0) ms_scenario_free(p->best[--p->n_best].scenario);
}

static void tell(Planner *x, double done, double all) {
  char note[96];
  double s = (double)(g_get_monotonic_time() - x->began_us) / 1e6;
  g_snprintf(note, sizeof note, "%.3g layouts/s, %" G_GUINT64_FORMAT " simulated, best %.4g s", (double)x->s.plan->searched / MAX(s, 1e-3), x->s.plan->simulated,
             x->n_list ? x->list[0].step_time_s : 0.0);
  ms_progress_update(x->s.progress, 0.2 + 0.8 * done / MAX(all, 1), note);
  show(x, 0.2 + 0.8 * done / MAX(all, 1));
}

/* Simulates what is in the pool, cheapest first, until the rest cannot enter the list or, with `enough`, the list is full. */
static void drain(Planner *x, gboolean enough) {
  g_array_sort(x->pool, by_cost);
  guint at = 0;
  while (at < x->pool->len && !stopped(x)) {
    const Screened *s = &g_array_index(x->pool, Screened, at);
    if (s->candidate.cost > threshold(x) || (enough && x->n_list == x->top)) break;
    int n = (int)MIN((guint)BATCH, x->pool->len - at);
    simulate_batch(x, s, n);
    at += (guint)n;
    tell(x, at, x->pool->len);
  }
  g_array_remove_range(x->pool, 0, at);
}

/* First a full list from the layouts with the lowest bounds, for a threshold; then everything that it does not cut is screened; then what is left is
 * simulated. */
static void simulate_all(Planner *x) {
  g_array_sort(x->s.candidates, ms_candidate_compare);
  const MsCandidate *c = (const MsCandidate *)(gpointer)x->s.candidates->data;
  guint n = x->s.candidates->len, at = 0;
  while (at < n && !stopped(x)) {
    if (cuts(x, MS_SHORT_BOUND) && c[at].cost > threshold(x)) break;
    int batch = (int)MIN((guint)SCREEN, n - at);
    screen(x, c + at, batch);
    at += (guint)batch;
    if (x->s.options->prune && x->n_list < x->top) drain(x, TRUE);
    tell(x, 0, 1);
  }
  if (!stopped(x)) drain(x, FALSE);
  x->s.plan->pruned += n - at + x->pool->len;
}

/* --- in and out --- */

/* Only rank 0 prints, so only it needs the whole predictions. */
static void hand_over(Planner *x) {
  ms_refused_hand_over(&x->s.refused, x->s.space, x->s.plan);
  if (ms_ranks_own() == 0) predict_list(x);
}

static gboolean check(const MsRequest *request, GError **error) {
  const MsHardware *hw = request->base->hardware;
  return ms_hardware_need(hw, hw->hbm_B, "hbm_B", error);
}

static gboolean run(Planner *x, GError **error) {
  MsPlan *plan = x->s.plan;
  if (!ms_enumerate(&x->s, error)) return FALSE;
  if (!stopped(x)) simulate_all(x);
  if (!x->error) ms_checkpoint_write(x->checkpoint, TRUE, &x->error);
  plan->interrupted = ms_ranks_any(ms_interrupted());
  if (!x->error) hand_over(x);
  if (!x->error) return TRUE;
  g_propagate_error(error, x->error);
  return FALSE;
}

MsPlan *ms_plan(const MsRequest *request, const MsPlanOptions *options, GError **error) {
  if (!ms_objective_check(request, error)) return NULL;
  MsPlanOptions o = *options;
  if (o.top <= 0) o.top = request->top > 0 ? request->top : 10;
  if (!o.prune) o.without |= 1u << MS_SHORT_BOUND | 1u << MS_SHORT_RELAXED | 1u << MS_SHORT_MEMORY | 1u << MS_SHORT_SHARED;
  MsSpace *space = ms_space_new(request, !(o.without & 1u << MS_SHORT_SHARED), error);
  if (!space) return NULL;
  Planner x = {.s = {.space = space, .options = &o}, .top = o.top, .began_us = g_get_monotonic_time()};
  if (!check(request, error) || !(x.checkpoint = ms_checkpoint_new(space, o.checkpoint, o.resume, error))) {
    ms_space_free(space);
    return NULL;
  }
  MsPlan *plan = x.s.plan = g_new0(MsPlan, 1);
  plan->best = g_new0(MsPlanEntry, o.top);
  plan->objective = request->objective;
  plan->memory_limit_B = request->max_memory_fraction * request->base->hardware->hbm_B;
  x.list = g_new0(Entry, o.top + 1);
  x.pool = g_array_new(FALSE, FALSE, sizeof(Screened));
  x.s.candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  x.s.progress = o.progress && ms_ranks_own() == 0 ? ms_progress_begin("plan", 1) : NULL;
  ms_refused_init(&x.s.refused);
  gboolean ok = run(&x, error);
  ms_progress_end(x.s.progress);
  ms_refused_clear(&x.s.refused);
  g_array_unref(x.s.candidates);
  g_array_unref(x.pool);
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

void ms_plan_free(MsPlan *plan) {
  if (!plan) return;
  for (int i = 0; i < plan->n_best; i++) {
    ms_scenario_free(plan->best[i].scenario);
    ms_result_free(plan->best[i].result);
  }
  for (int i = 0; i < plan->n_refusals; i++) {
    g_free(plan->refusals[i].name);
    g_free(plan->refusals[i].example);
  }
  g_free(plan->best);
  g_free(plan->refusals);
  g_free(plan);
}
