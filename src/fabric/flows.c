/* src/fabric/flows.c - progressive filling, event by event, in each set of flows that share links. */
#include "fabric/flows.h"

#include "base/heap.h"
#include "base/order.h"

#include <math.h>
#include <string.h>

#define SAME 1e-12 /* relative: rounding, no difference of rates */

/* --- the list --- */

MsFlows *ms_flows_new(guint32 n_links) {
  MsFlows *f = g_new0(MsFlows, 1);
  f->n_links = n_links, f->room = 64, f->link_room = 256;
  f->bytes = g_new(double, f->room), f->first = g_new0(guint32, f->room + 1), f->link = g_new(guint32, f->link_room);
  return f;
}

void ms_flows_free(MsFlows *f) {
  if (!f) return;
  g_free(f->bytes), g_free(f->first), g_free(f->link);
  g_free(f);
}

void ms_flows_also(MsFlows *f, const guint32 *link, guint32 n) {
  guint32 *end = &f->first[f->n];
  while (*end + n > f->link_room) f->link = g_renew(guint32, f->link, f->link_room *= 2);
  if (n > 0) memcpy(f->link + *end, link, sizeof *link * n);
  *end += n;
}

void ms_flows_add(MsFlows *f, double bytes, const guint32 *link, guint32 n) {
  if (f->n == f->room) {
    f->room *= 2;
    f->bytes = g_renew(double, f->bytes, f->room), f->first = g_renew(guint32, f->first, f->room + 1);
  }
  f->bytes[f->n++] = bytes;
  f->first[f->n] = f->first[f->n - 1];
  ms_flows_also(f, link, n);
}

double *ms_flows_carried(const MsFlows *f) {
  double *carried = g_new0(double, MAX(f->n_links, 1));
  for (guint32 i = 0; i < f->n; i++)
    for (guint32 k = f->first[i]; k < f->first[i + 1]; k++) carried[f->link[k]] += f->bytes[i];
  return carried;
}

/* --- sets of flows that share links --- */

typedef struct {
  const MsFlows *flows;
  const double *Bps;
  guint32 *users_from, *user; /* [n_links + 1]; flows of each link, one as often as it passes it */
  guint32 *order, *set;       /* [n] flows, those of a set together; [n_sets + 1] where each begins */
  guint32 n_sets;
  /* of one filling */
  double *left;    /* [n_links] of the rate */
  guint32 *count;  /* [n_links] passes of flows that still grow */
  guint32 *frozen; /* [n_links] passes that stopped in this round */
  double *rate;    /* [n] of each flow */
  guint8 *active;  /* [n] */
  guint32 *touched, *full;
  GArray *heap; /* Level: when links would be full */
} Filling;

typedef struct {
  double share;
  guint32 link;
} Level;

static guint32 root_of(guint32 *parent, guint32 i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

/* Flows sorted by the least flow of their set, which does not depend on how sets were joined. */
static void find_sets(Filling *x) {
  const MsFlows *f = x->flows;
  g_autofree guint32 *parent = g_new(guint32, MAX(f->n_links, 1)), *place = g_new0(guint32, f->n + 1);
  for (guint32 l = 0; l < f->n_links; l++) parent[l] = l;
  for (guint32 i = 0; i < f->n; i++)
    for (guint32 k = f->first[i] + 1; k < f->first[i + 1]; k++) {
      guint32 a = root_of(parent, f->link[f->first[i]]), b = root_of(parent, f->link[k]);
      parent[MAX(a, b)] = MIN(a, b);
    }
  g_autofree guint32 *number = g_new(guint32, MAX(f->n_links, 1)), *of = g_new(guint32, f->n + 1);
  memset(number, 0xff, sizeof *number * MAX(f->n_links, 1));
  for (guint32 i = 0; i < f->n; i++) {
    guint32 root = f->first[i] < f->first[i + 1] ? root_of(parent, f->link[f->first[i]]) : G_MAXUINT32;
    if (root == G_MAXUINT32) of[i] = x->n_sets++; /* over no link: on its own */
    else of[i] = number[root] == G_MAXUINT32 ? (number[root] = x->n_sets++) : number[root];
  }
  x->set = g_new0(guint32, x->n_sets + 1), x->order = g_new(guint32, f->n + 1);
  for (guint32 i = 0; i < f->n; i++) x->set[of[i] + 1]++;
  for (guint32 s = 0; s < x->n_sets; s++) x->set[s + 1] += x->set[s];
  for (guint32 i = 0; i < f->n; i++) x->order[x->set[of[i]] + place[of[i]]++] = i;
}

static void find_users(Filling *x) {
  const MsFlows *f = x->flows;
  guint32 passes = f->first[f->n];
  x->users_from = g_new0(guint32, f->n_links + 2), x->user = g_new(guint32, MAX(passes, 1));
  for (guint32 k = 0; k < passes; k++) x->users_from[f->link[k] + 2]++;
  for (guint32 l = 0; l < f->n_links; l++) x->users_from[l + 2] += x->users_from[l + 1];
  for (guint32 i = 0; i < f->n; i++)
    for (guint32 k = f->first[i]; k < f->first[i + 1]; k++) x->user[x->users_from[f->link[k] + 1]++] = i;
}

static void open_filling(Filling *x, const MsFlows *f, const double *Bps) {
  guint32 links = MAX(f->n_links, 1);
  *x = (Filling){.flows = f, .Bps = Bps};
  find_sets(x), find_users(x);
  x->left = g_new(double, links), x->rate = g_new0(double, f->n + 1), x->active = g_malloc0(f->n + 1);
  x->count = g_new0(guint32, links), x->frozen = g_new0(guint32, links), x->touched = g_new(guint32, links);
  x->full = g_new(guint32, links), x->heap = g_array_new(FALSE, FALSE, sizeof(Level));
  memset(x->active, 1, f->n);
}

static void close_filling(Filling *x) {
  g_free(x->users_from), g_free(x->user), g_free(x->order), g_free(x->set), g_free(x->left), g_free(x->count);
  g_free(x->frozen), g_free(x->rate), g_free(x->active), g_free(x->touched), g_free(x->full), g_array_unref(x->heap);
}

/* --- one filling of one set --- */

MS_ORDER(lower, Level, MS_LESS(x->share, y->share), MS_LESS(x->link, y->link))

/* What each of its passes would get if they all stopped now. */
static inline double share_of(const Filling *x, guint32 l) { return MAX(x->left[l], 0) / x->count[l]; }

/* Links that the active flows of the set pass. */
static void fill_heap(Filling *x, guint32 set) {
  const MsFlows *f = x->flows;
  guint32 n = 0;
  for (guint32 j = x->set[set]; j < x->set[set + 1]; j++) {
    guint32 i = x->order[j];
    if (!x->active[i]) continue;
    x->rate[i] = f->first[i] == f->first[i + 1] ? HUGE_VAL : -1;
    for (guint32 k = f->first[i]; k < f->first[i + 1]; k++)
      if (x->count[f->link[k]]++ == 0) x->touched[n++] = f->link[k], x->left[f->link[k]] = x->Bps[f->link[k]];
  }
  g_array_set_size(x->heap, n);
  for (guint32 k = 0; k < n; k++) g_array_index(x->heap, Level, k) = (Level){share_of(x, x->touched[k]), x->touched[k]};
  ms_heap_make(x->heap, lower);
}

/* The next share at which links are full, and these in full[]; 0: none is left. */
static guint32 next_full(Filling *x, double *share) {
  guint32 n = 0;
  while (x->heap->len > 0) {
    Level top = g_array_index(x->heap, Level, 0);
    double now = x->count[top.link] > 0 ? share_of(x, top.link) : 0;
    gboolean late = x->count[top.link] > 0 && now > top.share * (1 + SAME); /* others have stopped on it meanwhile */
    if (!late && x->count[top.link] > 0 && n > 0 && top.share > *share * (1 + SAME)) return n;
    ms_heap_pop(x->heap, &top, lower);
    if (x->count[top.link] == 0) continue;
    if (late) {
      ms_heap_push(x->heap, &(Level){now, top.link}, lower);
      continue;
    }
    if (n == 0) *share = top.share;
    x->full[n++] = top.link;
  }
  return n;
}

/* Flows over a full link stay at its share. What they take of other links is taken at once, so that their order does
 * not matter. */
static void stop_flows(Filling *x, guint32 n_full, double share) {
  const MsFlows *f = x->flows;
  guint32 n = 0;
  for (guint32 j = 0; j < n_full; j++)
    for (guint32 u = x->users_from[x->full[j]]; u < x->users_from[x->full[j] + 1]; u++) {
      guint32 i = x->user[u];
      if (!x->active[i] || x->rate[i] >= 0) continue;
      x->rate[i] = share;
      for (guint32 k = f->first[i]; k < f->first[i + 1]; k++)
        if (x->frozen[f->link[k]]++ == 0) x->touched[n++] = f->link[k];
    }
  for (guint32 k = 0; k < n; k++) {
    guint32 l = x->touched[k];
    x->left[l] -= share * x->frozen[l], x->count[l] -= x->frozen[l], x->frozen[l] = 0;
  }
}

static void fill(Filling *x, guint32 set) {
  guint32 n;
  fill_heap(x, set);
  for (double share = 0; (n = next_full(x, &share)) > 0;) stop_flows(x, n, share);
}

void ms_flows_rates(const MsFlows *f, const double *Bps, double *rate) {
  Filling x;
  open_filling(&x, f, Bps);
  for (guint32 s = 0; s < x.n_sets; s++) fill(&x, s);
  memcpy(rate, x.rate, sizeof *rate * f->n);
  close_filling(&x);
}

/* --- until the last has ended --- */

typedef struct {
  Filling fill;
  double *bytes; /* [n] still to move */
  double slack;
  MsFlowTimes *times;
} Run;

static inline double lasts(const Run *r, guint32 i) {
  double rate = r->fill.rate[i];
  return r->bytes[i] <= 0 || rate == HUGE_VAL ? 0 : rate > 0 ? r->bytes[i] / rate : HUGE_VAL;
}

/* Ends what ends next, from `now`; returns when that is, HUGE_VAL: nothing ends any more. */
static double end_next(Run *r, guint32 set, double now) {
  const Filling *x = &r->fill;
  double first = HUGE_VAL, last = 0;
  for (guint32 j = x->set[set]; j < x->set[set + 1]; j++)
    if (x->active[x->order[j]]) first = MIN(first, lasts(r, x->order[j]));
  if (first == HUGE_VAL) return HUGE_VAL;
  double until = first + MAX(r->slack, SAME) * (now + first);
  for (guint32 j = x->set[set]; j < x->set[set + 1]; j++) {
    double own = x->active[x->order[j]] ? lasts(r, x->order[j]) : HUGE_VAL;
    if (own <= until) last = MAX(last, own);
  }
  for (guint32 j = x->set[set]; j < x->set[set + 1]; j++) {
    guint32 i = x->order[j];
    if (!x->active[i]) continue;
    double own = lasts(r, i);
    if (own <= until) x->active[i] = 0, r->times->end_s[i] = now + own, r->bytes[i] = 0;
    else r->bytes[i] -= x->rate[i] * last;
  }
  return now + last;
}

static void run_set(Run *r, guint32 set) {
  Filling *x = &r->fill;
  double now = 0;
  for (;;) {
    fill(x, set);
    r->times->fillings++;
    now = end_next(r, set, now);
    if (now == HUGE_VAL) break;
    gboolean left = FALSE;
    for (guint32 j = x->set[set]; j < x->set[set + 1] && !left; j++) left = x->active[x->order[j]];
    if (!left) return;
  }
  for (guint32 j = x->set[set]; j < x->set[set + 1]; j++)
    if (x->active[x->order[j]]) r->times->end_s[x->order[j]] = HUGE_VAL;
}

MsFlowTimes *ms_flows_run(const MsFlows *f, const double *Bps, double slack) {
  Run r = {.slack = slack, .times = g_new0(MsFlowTimes, 1)};
  r.times->end_s = g_new0(double, MAX(f->n, 1));
  r.bytes = g_memdup2(f->bytes, sizeof *f->bytes * MAX(f->n, 1));
  open_filling(&r.fill, f, Bps);
  for (guint32 s = 0; s < r.fill.n_sets; s++) run_set(&r, s);
  for (guint32 i = 0; i < f->n; i++) r.times->makespan_s = MAX(r.times->makespan_s, r.times->end_s[i]);
  close_filling(&r.fill);
  g_free(r.bytes);
  return r.times;
}

void ms_flow_times_free(MsFlowTimes *t) {
  if (!t) return;
  g_free(t->end_s);
  g_free(t);
}
