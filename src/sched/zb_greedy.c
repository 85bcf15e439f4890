/* src/sched/zb_greedy.c - zb-1p and zb-2p: the greedy that places F, I and W under a memory limit
 * (docs/theory/schedules.md 5.3; arXiv 2401.10241; checked against the authors' zb.py). It keeps the time of every
 * stage, so the order depends on the costs. */
#include "sched/build.h"

#include <string.h>

enum { F, I, W };

typedef struct { /* one combination of switches */
  gboolean bubble_before_first_i, prefer_i, fill_any_gap;
} Switches;

typedef struct {
  int stages, microbatches;
  double limit, i_frees; /* in activations of one microbatch */
  double cost[3], comm;
  Switches switches;
  MsSchedule *out;
  int *done[3];          /* [stages] passes of each kind so far: the next microbatch */
  double *time, *bubble; /* [stages] end of the last pass; idle time since the first one */
  double *first;         /* [stages] start of the first pass */
  double worst;          /* largest bubble */
  double *end[2];        /* [stage][microbatch] end of F and I */
} Greedy;

static double *end_of(const Greedy *greedy, int kind, int stage, int mb) {
  return &greedy->end[kind][(size_t)stage * greedy->microbatches + mb];
}
/* Activations held by the stage, from counts: no drift. */
static double live(const Greedy *greedy, int stage) {
  return greedy->done[F][stage] - greedy->done[I][stage] * greedy->i_frees -
         greedy->done[W][stage] * (1 - greedy->i_frees);
}
static gboolean fits(const Greedy *greedy, double held) { return held <= greedy->limit + 1e-9; }
static gboolean has_w(const Greedy *greedy, int stage) { return greedy->done[W][stage] < greedy->done[I][stage]; }

static void put(Greedy *greedy, int stage, int kind) {
  int mb = greedy->done[kind][stage]++;
  double cost = greedy->cost[kind], alone = greedy->time[stage] + cost, end = alone;
  if (kind == F && stage > 0) end = MAX(end, *end_of(greedy, F, stage - 1, mb) + greedy->comm + cost);
  if (kind == I && stage < greedy->stages - 1) end = MAX(end, *end_of(greedy, I, stage + 1, mb) + greedy->comm + cost);
  if (kind == F && mb == 0) greedy->first[stage] = end - cost;
  else greedy->bubble[stage] += end - alone;
  greedy->worst = MAX(greedy->worst, greedy->bubble[stage]);
  greedy->time[stage] = end;
  if (kind != W) *end_of(greedy, kind, stage, mb) = end;
  ms_slot_put(greedy->out, stage, kind == F ? MS_SLOT_F : kind == I ? MS_SLOT_I : MS_SLOT_W, mb, 0);
}

/* Fills the stage until `arrival` with W: those that fit, and one that does not when the gap is more than this stage
 * may still lose, or always when the switch says so. */
static void fill_gap(Greedy *greedy, int stage, double arrival) {
  while (has_w(greedy, stage) && greedy->time[stage] + greedy->cost[W] <= arrival) put(greedy, stage, W);
  if (!has_w(greedy, stage) || greedy->time[stage] >= arrival) return;
  if (arrival - greedy->time[stage] > greedy->worst - greedy->bubble[stage] || greedy->switches.fill_any_gap)
    put(greedy, stage, W);
}

/* --- before the first input gradient --------------------------------------------------------------------------- */

/* More forwards for `stage` while they fit before `arrival`, the first gradient from downstream. Returns the time when
 * they are done. */
static double count_warm_up(const Greedy *greedy, int stage, double arrival, int *extra) {
  double time = greedy->time[stage];
  for (double held = live(greedy, stage) + 1;
       greedy->done[F][stage] + *extra < greedy->microbatches && fits(greedy, held); held++, ++*extra) {
    if (greedy->switches.bubble_before_first_i ? time + greedy->cost[F] > arrival : time >= arrival) break;
    time += greedy->cost[F];
  }
  return time;
}

static void start_up(Greedy *greedy, int *extra) {
  int p = greedy->stages;
  for (int s = 0; s < p; s++) put(greedy, s, F);
  memset(extra, 0, sizeof(int) * p);
  double last = greedy->time[p - 1] + greedy->cost[I];
  for (int s = p - 2; s >= 0; s--) {
    double arrival = last + greedy->comm, ready = count_warm_up(greedy, s, arrival, &extra[s]);
    last = MAX(ready, arrival) + greedy->cost[I];
  }
  for (int s = 1; s < p; s++)
    while (extra[s] > 0 && extra[s] >= extra[s - 1] && greedy->done[F][s] + extra[s] < greedy->microbatches) extra[s]--;
  for (int s = 0; s < p; s++)
    for (int k = 0; k < extra[s]; k++) put(greedy, s, F);
  for (int s = p - 1; s >= 0; s--) put(greedy, s, I);
}

/* --- one round: at most one F, then one I on every stage ------------------------------------------------------- */

/* Whether a forward may be left out on a stage that is two ahead of the next one. */
static gboolean skip_forward(const Greedy *greedy, int stage) {
  if (!greedy->switches.prefer_i || stage + 1 >= greedy->stages ||
      greedy->done[F][stage] < greedy->done[F][stage + 1] + 2)
    return FALSE;
  double next = greedy->time[stage + 1] + greedy->cost[F] + greedy->cost[I] + greedy->comm, drain = 0;
  if (greedy->time[stage] >= next) return TRUE;
  double held = live(greedy, stage) + 1;
  for (int w = greedy->done[W][stage]; !fits(greedy, held) && w < greedy->done[I][stage]; w++)
    drain += greedy->cost[W], held -= 1 - greedy->i_frees;
  if (greedy->time[stage] + greedy->cost[F] + drain <= next) return FALSE;
  return next - greedy->time[stage] <= greedy->worst - greedy->bubble[stage];
}

static gboolean put_forward(Greedy *greedy, int stage) {
  while (!fits(greedy, live(greedy, stage) + 1)) {
    if (!has_w(greedy, stage)) return FALSE;
    put(greedy, stage, W);
  }
  if (stage > 0) fill_gap(greedy, stage, *end_of(greedy, F, stage - 1, greedy->done[F][stage]) + greedy->comm);
  put(greedy, stage, F);
  return TRUE;
}

static gboolean round_of(Greedy *greedy, int i, int *wanted) {
  int p = greedy->stages;
  for (int s = 0; s < p; s++) wanted[s] = greedy->done[F][s] < greedy->microbatches && !skip_forward(greedy, s);
  for (int s = p - 2; s >= 0; s--) wanted[s] = MIN(wanted[s], wanted[s + 1]);
  for (int s = 0; s < p; s++)
    if (wanted[s] && !put_forward(greedy, s)) return FALSE;
  for (int s = p - 1; s >= 0; s--) {
    if (greedy->done[F][s] <= i) return FALSE; /* its forward was never placed */
    if (s + 1 < p) fill_gap(greedy, s, *end_of(greedy, I, s + 1, i) + greedy->comm);
    if (s == 0 && greedy->done[F][s] == greedy->microbatches)
      while (has_w(greedy, s)) put(greedy, s, W);
    put(greedy, s, I);
  }
  return TRUE;
}

/* --- one combination, and the best of all eight ---------------------------------------------------------------- */

static gboolean try_switches(Greedy *greedy) {
  int p = greedy->stages;
  g_autofree int *scratch = g_new(int, p);
  for (int s = 0; s < p; s++) {
    for (int kind = F; kind <= W; kind++) greedy->done[kind][s] = 0;
    greedy->time[s] = greedy->bubble[s] = greedy->out->n[s] = 0;
  }
  greedy->worst = 0;
  start_up(greedy, scratch);
  for (int i = 1; i < greedy->microbatches; i++)
    if (!round_of(greedy, i, scratch)) return FALSE;
  for (int s = 0; s < p; s++)
    while (greedy->done[W][s] < greedy->microbatches) put(greedy, s, W);
  return TRUE;
}

static double longest_span(const Greedy *greedy) {
  double span = 0;
  for (int s = 0; s < greedy->stages; s++) span = MAX(span, greedy->time[s] - greedy->first[s]);
  return span;
}

MsSchedule *ms_schedule_zb_greedy(int stages, int microbatches, double f, double i, double w, double comm, double limit,
                                  double i_frees, char *why, size_t size) {
  if (stages < 1 || microbatches < 1 || !(limit >= 1) || !(i_frees >= 0 && i_frees <= 1) ||
      2.0 * stages * microbatches > MS_MOST_SLOTS || !(f > 0) || !(i > 0) || !(w >= 0) || !(comm >= 0))
    return ms_schedule_refuse(why, size,
                              "the zero-bubble search needs stages, microbatches, a limit of at least 1, a freed share "
                              "of at most 1, and costs"),
           NULL;
  Greedy greedy = {.stages = stages,
                   .microbatches = microbatches,
                   .limit = limit,
                   .i_frees = i_frees,
                   .cost = {f, i, w},
                   .comm = comm};
  for (int kind = F; kind <= W; kind++) greedy.done[kind] = g_new(int, stages);
  for (int kind = F; kind <= I; kind++) greedy.end[kind] = g_new(double, (size_t)stages *microbatches);
  greedy.time = g_new(double, stages), greedy.bubble = g_new(double, stages), greedy.first = g_new(double, stages);
  MsSchedule *best = NULL;
  double best_span = 0;
  for (int k = 0; k < 8; k++) {
    greedy.switches = (Switches){!(k & 4), !(k & 2), !(k & 1)};
    if (!greedy.out) greedy.out = ms_schedule_alloc(stages, microbatches, 1, MS_PLACE_ROUND_ROBIN, 3 * microbatches);
    if (!try_switches(&greedy)) continue;
    double span = longest_span(&greedy);
    if (best && span >= best_span) continue;
    ms_schedule_free(best);
    best = g_steal_pointer(&greedy.out), best_span = span;
  }
  ms_schedule_free(greedy.out);
  for (int kind = F; kind <= W; kind++) g_free(greedy.done[kind]);
  g_free(greedy.end[F]), g_free(greedy.end[I]), g_free(greedy.time), g_free(greedy.bubble), g_free(greedy.first);
  if (!best)
    ms_schedule_refuse(why, size,
                       "no zero-bubble order of %d microbatches over %d stages keeps at most %g of them live",
                       microbatches, stages, limit);
  return best;
}

int ms_schedule_in_flight(MsScheduleKind kind, int stages) { return kind == MS_SCHED_ZB_1P ? stages : 2 * stages; }

static MsSchedule *build(MsScheduleKind kind, const MsScheduleNumbers *n) {
  return ms_schedule_zb_greedy(n->stages, n->microbatches, n->f, n->i, n->w, n->comm,
                               ms_schedule_in_flight(kind, n->stages), 0, NULL, 0);
}

MsSchedule *ms_zb_1p_build(const MsScheduleNumbers *n) { return build(MS_SCHED_ZB_1P, n); }
MsSchedule *ms_zb_2p_build(const MsScheduleNumbers *n) { return build(MS_SCHED_ZB_2P, n); }
