/* src/plan/every.c - a space small enough to look at every layout: all bounded, the promising ones bounded again more
 * tightly, and simulated in the order of those bounds until none that is left can enter the list. */
#include "plan/every_priv.h"
#include "plan/parallel_priv.h"
#include "base/heap.h"
#include "base/order.h"
#include "base/ranks.h"
#include "base/units.h"
#include <math.h>

/* SCREEN: candidates screened at once; FETCH: taken from all ranks at once. Fixed, so that counts do not depend on
 * threads or ranks. */
enum { SCREEN = 64, FETCH = 512 };

typedef struct {
  MsCandidate candidate; /* with the tighter bound; of the front and simulated: with what it costs */
  double device_B, step_time_s;
  gint32 index, failed, simulated;
} Screened;

typedef struct {
  MsPlanner *planner;
  GArray *pool;  /* Screened that fit: a heap by cost */
  GArray *queue; /* MsCandidate of all ranks, ascending: the cheapest that are not screened, from `next` on */
  guint next;
  guint64 screened;
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
  g_autoptr(MsScenario) scenario = ms_candidate_scenario(job->x->s.space, &s.candidate, NULL);
  const MsWorth worth = ms_planner_worth(job->x, scenario->gpus);
  s.failed = !ms_screen(scenario, ms_planner_like(job->x), &worth, &screen);
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

MS_ORDER(by_index, Screened, MS_LESS(x->index, y->index), 0)

/* What was simulated comes behind what may be as good, and then in the order of the list. */
static int by_cost(const void *a, const void *b) {
  const Screened *x = a, *y = b;
  if (!x->simulated && !y->simulated) return ms_candidate_compare(&x->candidate, &y->candidate);
  if (x->candidate.cost != y->candidate.cost) return x->candidate.cost < y->candidate.cost ? -1 : 1;
  if (x->simulated != y->simulated) return x->simulated - y->simulated;
  if (x->step_time_s != y->step_time_s) return x->step_time_s < y->step_time_s ? -1 : 1;
  MsCandidate p = x->candidate, q = y->candidate;
  p.bound = q.bound = 0;
  return ms_candidate_compare(&p, &q);
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
    else ms_heap_push(e->pool, s, by_cost);
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

static void tell(Every *e, double done, double all) {
  MsPlanner *x = e->planner;
  char note[96];
  double s = (double)(g_get_monotonic_time() - x->began_us) / 1e6;
  int n = g_snprintf(note, sizeof note, "%.3g layouts/s, %" G_GUINT64_FORMAT " simulated",
                     (double)x->s.plan->searched / MAX(s, 1e-3), x->s.plan->simulated);
  if (x->n_list) g_snprintf(note + n, sizeof note - (size_t)n, ", best %.4g s", x->list[0].step_time_s);
  ms_planner_tell(x, 1 - 0.8 * (1 - done / MAX(all, 1)), note);
}

/* Until the list is full no more than it takes, and a few for threads to share: most layouts cannot enter a full one.
 */
static int batch_size(const MsPlanner *x) {
  int missing = x->top - x->n_list;
  gboolean cuts = x->s.options->prune && missing > 0;
  return cuts ? CLAMP(missing, MS_LEAST_BATCH, MS_BATCH) : MS_BATCH;
}

static double pool_cost(const Every *e) {
  return e->pool->len > 0 ? g_array_index(e->pool, Screened, 0).candidate.cost : INFINITY;
}

/* Simulates the cheapest of the pool, whose cost is at most `most`. FALSE: stopped. */
static gboolean simulate_some(Every *e, double most) {
  MsPlanner *x = e->planner;
  Screened taken[MS_BATCH];
  MsCandidate batch[MS_BATCH];
  gboolean done[MS_BATCH], all = TRUE;
  int n = 0, size = batch_size(x);
  for (; n < size && e->pool->len > 0 && pool_cost(e) <= most; n++) {
    ms_heap_pop(e->pool, &taken[n], by_cost);
    batch[n] = taken[n].candidate;
  }
  ms_planner_simulate(x, batch, n, done);
  for (int i = 0; i < n; i++) {
    if (!done[i]) ms_heap_push(e->pool, &taken[i], by_cost); /* interrupted */
    all &= done[i];
  }
  return all;
}

/* The next candidates of all ranks, cheapest first, FETCH at most, into the queue: each rank offers the cheapest of its
 * own, and keeps those that others undercut. */
static void fetch(Every *e) {
  GArray *own = e->planner->s.candidates, *queue = e->queue;
  g_autoptr(GArray) offer = g_array_new(FALSE, FALSE, sizeof(MsCandidate));
  MsCandidate c;
  while (own->len > 0 && offer->len < FETCH) {
    ms_heap_pop(own, &c, ms_candidate_compare);
    g_array_append_val(offer, c);
  }
  e->next = 0;
  g_array_set_size(queue, 0);
  g_array_append_vals(queue, offer->data, offer->len);
  ms_ranks_gather(queue);
  g_array_sort(queue, ms_candidate_compare);
  if (queue->len <= FETCH) return;
  g_array_set_size(queue, FETCH);
  const MsCandidate *last = &g_array_index(queue, MsCandidate, FETCH - 1);
  while (offer->len > 0 && ms_candidate_compare(&g_array_index(offer, MsCandidate, offer->len - 1), last) > 0) {
    ms_heap_push(own, &g_array_index(offer, MsCandidate, offer->len - 1), ms_candidate_compare);
    g_array_set_size(offer, offer->len - 1);
  }
}

/* The least cost that what is not screened may have. INFINITY: everything is. */
static double queue_cost(Every *e) {
  if (e->next == e->queue->len) fetch(e);
  return e->next < e->queue->len ? g_array_index(e->queue, MsCandidate, e->next).cost : INFINITY;
}

static void screen_some(Every *e) {
  guint n = MIN(e->queue->len - e->next, SCREEN);
  screen(e, &g_array_index(e->queue, MsCandidate, e->next), (int)n);
  e->next += n, e->screened += n;
}

/* First a full list from the layouts with the lowest bounds, for a threshold. Then always what has the lowest bound of
 * all: it is screened, which lifts its bound, or simulated, until nothing is left that may enter the list. So nothing
 * is screened or simulated whose bound exceeds that of the list's end (but for what a batch takes along). */
static void simulate_all(Every *e) {
  MsPlanner *x = e->planner;
  double rest = INFINITY; /* bound of what has not been screened */
  gboolean going = TRUE, filled = !x->s.options->prune;
  ms_heap_make(x->s.candidates, ms_candidate_compare);
  while (going) {
    double limit = ms_planner_threshold(x);
    rest = queue_cost(e);
    gboolean screens = e->next < e->queue->len && !(ms_planner_cuts(x, MS_SHORT_BOUND) && rest > limit);
    gboolean simulates = pool_cost(e) <= limit && e->pool->len > 0;
    if (!screens && !simulates) break;
    filled |= x->n_list == x->top;
    if (simulates && (!screens || !filled || pool_cost(e) < rest)) going = simulate_some(e, limit);
    else screen_some(e);
    tell(e, screens ? 0 : (double)x->s.plan->simulated, (double)x->s.plan->simulated + e->pool->len);
    going &= !ms_planner_stopped(x);
  }
  if (!ms_planner_stopped(x)) x->s.plan->pruned += x->s.n_candidates - e->screened + e->pool->len;
  x->s.plan->lower_cost = MIN(rest, pool_cost(e));
}

static Every new_every(MsPlanner *x) {
  return (Every){.planner = x,
                 .pool = g_array_new(FALSE, FALSE, sizeof(Screened)),
                 .queue = g_array_new(FALSE, FALSE, sizeof(MsCandidate))};
}

static void clear_every(Every *e) {
  g_array_unref(e->pool);
  g_array_unref(e->queue);
}

gboolean ms_search_every(MsPlanner *x, GError **error) {
  Every e = new_every(x);
  gboolean ok = ms_enumerate(&x->s, error);
  if (ok && !ms_planner_stopped(x)) simulate_all(&e);
  clear_every(&e);
  return ok;
}

/* --- the front --- */

static const Screened *cheapest_that_fits(Every *e) {
  Screened out;
  while (e->pool->len > 0 && g_array_index(e->pool, Screened, 0).device_B > e->planner->s.plan->memory_limit_B)
    ms_heap_pop(e->pool, &out, by_cost); /* the limit never rises again */
  return e->pool->len > 0 ? &g_array_index(e->pool, Screened, 0) : NULL;
}

/* Simulates the cheapest and puts it back with what it costs: one at a time, which is all that the front takes. */
static void settle_first(Every *e) {
  MsPlanner *x = e->planner;
  Screened s;
  MsOutcome outcome;
  gboolean done;
  ms_heap_pop(e->pool, &s, by_cost);
  ms_planner_outcomes(x, &s.candidate, 1, &outcome, &done);
  if (done) {
    ms_planner_settle(x, &outcome, NULL); /* into the list, for who watches */
    if (outcome.kind == MS_OUTCOME_ERROR) return;
    s.simulated = TRUE, s.step_time_s = outcome.step_time_s;
    s.candidate.cost = ms_objective_cost(x->s.space->request, s.candidate.value[MS_AXIS_GPUS], s.step_time_s);
  }
  if (!isinf(s.candidate.cost)) ms_heap_push(e->pool, &s, by_cost);
}

static MsFrontFound found_of(const Screened *s, double lower_cost) {
  return (MsFrontFound){.candidate = s->candidate,
                        .cost = s->candidate.cost,
                        .step_time_s = s->step_time_s,
                        .device_B = s->device_B,
                        .lower_cost = lower_cost};
}

/* Of a search that was stopped: the best that was simulated, with what is proven of it. */
static gboolean best_so_far(Every *e, MsFrontFound *found) {
  double lower = queue_cost(e);
  for (const Screened *s; (s = cheapest_that_fits(e));) {
    lower = MIN(lower, s->candidate.cost);
    if (s->simulated) {
      *found = found_of(s, lower);
      return TRUE;
    }
    Screened out;
    ms_heap_pop(e->pool, &out, by_cost);
  }
  return FALSE;
}

/* Always what has the lowest bound is screened or simulated; where that is the cost of a layout, no other one that
 * fits is better. */
static void walk_front(Every *e, MsFrontTell *tell_of, gpointer user) {
  MsPlanner *x = e->planner;
  MsFrontFound found;
  gboolean going = TRUE;
  ms_heap_make(x->s.candidates, ms_candidate_compare);
  while (going && !ms_planner_stopped(x)) {
    double rest = queue_cost(e);
    const Screened *s = cheapest_that_fits(e);
    if (e->next < e->queue->len && !(s && s->candidate.cost < rest)) screen_some(e);
    else if (!s) return;
    else if (!s->simulated) settle_first(e);
    else {
      found = found_of(s, s->candidate.cost), going = tell_of(&found, user);
      ms_planner_forget(x);
    }
    tell(e, 0, 1);
  }
  if (going && best_so_far(e, &found)) tell_of(&found, user);
}

gboolean ms_search_front(MsPlanner *x, MsFrontTell *found, gpointer user, GError **error) {
  Every e = new_every(x);
  gboolean ok = ms_enumerate(&x->s, error);
  if (ok && !ms_planner_stopped(x)) walk_front(&e, found, user);
  clear_every(&e);
  return ok;
}
