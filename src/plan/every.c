/* src/plan/every.c - a space small enough to look at every layout: all bounded, the promising ones bounded again more
 * tightly, and simulated in the order of those bounds until none that is left can enter the list. */
#include "plan/plan_priv.h"
#include "base/heap.h"
#include "base/ranks.h"
#include "base/units.h"
#include <math.h>

enum { SCREEN = 512 }; /* candidates screened at once: fixed, so that counts do not depend on threads or ranks */

typedef struct {
  MsCandidate candidate; /* with the tighter bound */
  double device_B;
  gint32 index, failed;
} Screened;

typedef struct {
  MsPlanner *planner;
  GArray *pool; /* Screened that fit, ascending cost */
} Every;

/* --- screening: exact memory, and a bound within a few percent --- */

typedef struct {
  MsPlanner *x;
  const MsCandidate *candidate;
  GArray **found;
} Screening;

static void screen_one(int index, int thread, gpointer data) {
  const Screening *job = data;
  Screened s = {.candidate = job->candidate[index], .index = index};
  MsScreen screen;
  if (ms_interrupted()) return;
  g_autoptr(MsScenario) scenario = ms_candidate_scenario(job->x->s.space, &s.candidate);
  s.failed = !ms_screen(scenario, ms_planner_like(job->x), &screen, NULL);
  if (!s.failed) {
    s.device_B = screen.device_B;
    if (ms_planner_cuts(job->x, MS_SHORT_RELAXED)) {
      s.candidate.bound = MAX(s.candidate.bound, (MsTime)(screen.step_time_lower_s * MS_PS_PER_S));
      s.candidate.cost = ms_objective_cost(job->x->s.space->request, s.candidate.value[MS_AXIS_GPUS],
                                           (double)s.candidate.bound / MS_PS_PER_S);
    }
  }
  g_array_append_val(job->found[thread], s);
}

static int by_index(const void *a, const void *b) {
  return ((const Screened *)a)->index - ((const Screened *)b)->index;
}

static void settle_screened(Every *e, const Screened *s) {
  MsPlanner *x = e->planner;
  double limit = x->s.plan->memory_limit_B;
  x->s.plan->screened++;
  if (s->failed) ms_planner_refuse(x, MS_REFUSED_ERROR, INFINITY, &s->candidate);
  else if (s->device_B > limit) ms_planner_refuse(x, MS_REFUSED_MEMORY, s->device_B - limit, &s->candidate);
  else {
    x->s.plan->feasible++;
    if (isinf(s->candidate.cost))
      ms_planner_refuse(x, MS_REFUSED_DEADLINE,
                        ms_planner_late_s(x, &s->candidate, (double)s->candidate.bound / MS_PS_PER_S), &s->candidate);
    else g_array_append_val(e->pool, *s);
  }
}

static void screen(Every *e, const MsCandidate *candidate, int n) {
  MsPlanner *x = e->planner;
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
  for (guint i = 0; i < found[0]->len; i++) settle_screened(e, &g_array_index(found[0], Screened, i));
  g_array_unref(found[0]);
}

static int by_cost(const void *a, const void *b) {
  return ms_candidate_compare(&((const Screened *)a)->candidate, &((const Screened *)b)->candidate);
}

static void tell(Every *e, double done, double all) {
  MsPlanner *x = e->planner;
  char note[96];
  double s = (double)(g_get_monotonic_time() - x->began_us) / 1e6;
  g_snprintf(note, sizeof note, "%.3g layouts/s, %" G_GUINT64_FORMAT " simulated, best %.4g s",
             (double)x->s.plan->searched / MAX(s, 1e-3), x->s.plan->simulated,
             x->n_list ? x->list[0].step_time_s : 0.0);
  ms_planner_tell(x, 1 - 0.8 * (1 - done / MAX(all, 1)), note);
}

/* Until the list is full no more than it takes, and a few for threads to share: most layouts cannot enter a full one.
 */
static int batch_size(const MsPlanner *x, guint left) {
  int missing = x->top - x->n_list;
  gboolean cuts = x->s.options->prune && missing > 0;
  return (int)MIN(left, (guint)(cuts ? CLAMP(missing, MS_LEAST_BATCH, MS_BATCH) : MS_BATCH));
}

/* Simulates what is in the pool, cheapest first, until the rest cannot enter the list or, with `enough`, the list is
 * full. */
static void drain(Every *e, gboolean enough) {
  MsPlanner *x = e->planner;
  g_array_sort(e->pool, by_cost);
  guint at = 0;
  while (at < e->pool->len && !ms_planner_stopped(x)) {
    const Screened *s = &g_array_index(e->pool, Screened, at);
    if (s->candidate.cost > ms_planner_threshold(x) || (enough && x->n_list == x->top)) break;
    int most = batch_size(x, e->pool->len - at), n = 0;
    MsCandidate batch[MS_BATCH];
    while (n < most && !(s[n].candidate.cost > ms_planner_threshold(x))) batch[n] = s[n].candidate, n++;
    gboolean done[MS_BATCH], all = TRUE;
    ms_planner_simulate(x, batch, n, done);
    for (int i = 0; i < n; i++) all &= done[i];
    if (!all) break; /* interrupted */
    at += (guint)n;
    tell(e, at, e->pool->len);
  }
  g_array_remove_range(e->pool, 0, at);
}

static double cheapest(const Every *e, double rest) {
  double cost = rest;
  for (guint i = 0; i < e->pool->len; i++) cost = MIN(cost, g_array_index(e->pool, Screened, i).candidate.cost);
  return cost;
}

/* The next candidates of all ranks, cheapest first, SCREEN at most: each rank offers the cheapest of its own, and keeps
 * those that others undercut. */
static void next_batch(Every *e, GArray *batch) {
  GArray *own = e->planner->s.candidates;
  g_autoptr(GArray) offer = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  MsCandidate c;
  while (own->len > 0 && offer->len < SCREEN) {
    ms_heap_pop(own, &c, ms_candidate_compare);
    g_array_append_val(offer, c);
  }
  g_array_set_size(batch, 0);
  g_array_append_vals(batch, offer->data, offer->len);
  ms_ranks_gather(batch);
  g_array_sort(batch, ms_candidate_compare);
  if (batch->len <= SCREEN) return;
  g_array_set_size(batch, SCREEN);
  const MsCandidate *last = &g_array_index(batch, MsCandidate, SCREEN - 1);
  while (offer->len > 0 && ms_candidate_compare(&g_array_index(offer, MsCandidate, offer->len - 1), last) > 0) {
    ms_heap_push(own, &g_array_index(offer, MsCandidate, offer->len - 1), ms_candidate_compare);
    g_array_set_size(offer, offer->len - 1);
  }
}

/* First a full list from the layouts with the lowest bounds, for a threshold; then everything that it does not cut is
 * screened; then what is left is simulated. */
static void simulate_all(Every *e) {
  MsPlanner *x = e->planner;
  g_autoptr(GArray) batch = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  guint64 screened = 0;
  double rest = INFINITY; /* bound of what may not have been screened */
  gboolean whole = TRUE;  /* nothing of the batches so far was left out */
  ms_heap_make(x->s.candidates, ms_candidate_compare);
  while (whole) {
    next_batch(e, batch);
    rest = batch->len > 0 ? g_array_index(batch, MsCandidate, 0).cost : INFINITY;
    if (batch->len == 0 || (ms_planner_cuts(x, MS_SHORT_BOUND) && rest > ms_planner_threshold(x))) break;
    screen(e, (const MsCandidate *)(gpointer)batch->data, (int)batch->len);
    screened += batch->len;
    if (x->s.options->prune && x->n_list < x->top) drain(e, TRUE);
    tell(e, 0, 1);
    whole = !ms_planner_stopped(x);
  }
  if (!ms_planner_stopped(x)) drain(e, FALSE);
  x->s.plan->pruned += x->s.n_candidates - screened + e->pool->len;
  x->s.plan->lower_cost = cheapest(e, rest);
}

gboolean ms_search_every(MsPlanner *x, GError **error) {
  Every e = {x, g_array_new(FALSE, FALSE, sizeof(Screened))};
  gboolean ok = ms_enumerate(&x->s, error);
  if (ok && !ms_planner_stopped(x)) simulate_all(&e);
  g_array_unref(e.pool);
  return ok;
}
