/* src/engine/rounds.c - rounds of a graph that end as the one before them did are written down, not run.
 *
 * Most of a step is the same tasks again: from some task on, task i + period is task i with the same waits, `period`
 * tasks later. What the engine does depends on differences of times alone, in whole picoseconds, and of equal times on
 * the order of tasks. So when one and the same task of two rounds in a row has ended, and all that is still to come can
 * ask for is later by one and the same time (the heads of the streams, what runs and how much of it is left, ends that
 * somebody may wait for, hosts), then every round that follows is the last one, later by that time: starts, ends, what
 * decided them and the number of events, up to where tasks are no longer alike. That is exact.
 *
 * A stream may also rest: its head waits for a task behind the rounds. And a host that waits for nothing goes on at its
 * own pace. If it was faster than its device and no task started when it was issued, none will: issue times fall
 * further behind what decides the starts with every round. */
#include "engine/rounds.h"

#include <string.h>

struct MsRounds {
  guint32 period, from, to; /* task i + period is like task i from `from` to before `to` - period */
  guint32 marker;           /* a moment is when this task has ended */
  guint8 *waits;            /* [devices] the host waits for some task of a round */
  gboolean has;             /* a moment was kept: */
  MsTime now;
  guint64 events;
  guint32 low, high; /* tasks below have ended, tasks from there on were not looked at */
  Stream *stream;
  MsTime *when;
  Device *device;
  MsTime *end, *start; /* [room] of tasks low .. high - 1 */
  guint32 room;
};

static gint refused;
static gsize left_out;

void ms_engine_allow_rounds(gboolean allow) { g_atomic_int_set(&refused, !allow); }
gboolean ms_engine_allows_rounds(void) { return !g_atomic_int_get(&refused); }
gsize ms_engine_left_out(void) { return (gsize)g_atomic_pointer_get(&left_out); }

/* --- where tasks are alike --- */

static gboolean alike(const MsGraph *graph, guint32 i, guint32 period) {
  const MsTask *x = &graph->task[i], *y = x + period;
  const guint32 *from = graph->wait_base + i, *to = from + period;
  guint32 n = from[1] - from[0];
  if (x->duration != y->duration || x->device != y->device || x->stream != y->stream || x->use != y->use ||
      x->host_sync != y->host_sync || x->kind != y->kind || x->sms != y->sms || x->launch != y->launch ||
      to[1] - to[0] != n)
    return FALSE;
  for (guint32 k = 0; k < n; k++)
    if (graph->wait[from[0] + k] + period != graph->wait[to[0] + k]) return FALSE;
  return TRUE;
}

MsRounds *ms_rounds_new(const Engine *engine) {
  const MsGraph *graph = engine->graph;
  guint32 first = graph->alike_from, period = graph->period;
  if (period == 0 || !ms_engine_allows_rounds()) return NULL;
  MsRounds *r = g_new0(MsRounds, 1);
  size_t queues = (size_t)graph->devices * graph->streams;
  *r = (MsRounds){.period = period, .from = first, .to = graph->alike_to - period};
  while (r->from > 0 && alike(graph, r->from - 1, period)) r->from--;
  while (r->to + period < graph->n && alike(graph, r->to, period)) r->to++;
  r->to += period;
  r->waits = g_new0(guint8, graph->devices);
  r->stream = g_new(Stream, queues), r->when = g_new(MsTime, queues), r->device = g_new(Device, graph->devices);
  for (guint32 i = first; i < first + period; i++) r->waits[graph->task[i].device] |= graph->task[i].host_sync;
  r->marker = r->from + (first - r->from) % period;
  return r;
}

void ms_rounds_free(MsRounds *r) {
  if (!r) return;
  g_free(r->waits), g_free(r->stream), g_free(r->when), g_free(r->device);
  g_free(r->end), g_free(r->start), g_free(r);
}

guint32 ms_rounds_next(const MsRounds *r) { return r ? r->marker : NONE; }

/* --- a moment --- */

/* What is still to come begins at `low`; nobody has looked at `high` or what is behind it. Of streams and hosts that do
 * not rest. */
static void span(const MsRounds *r, const Engine *engine, guint32 *low, guint32 *high) {
  const MsGraph *graph = engine->graph;
  *low = NONE, *high = 0;
  for (guint32 q = 0; q < graph->devices * graph->streams; q++) {
    guint32 head = engine->stream[q].head;
    if (head < r->to) *low = MIN(*low, head), *high = MAX(*high, head + 1);
  }
  for (guint32 d = 0; d < graph->devices; d++) {
    const Device *device = &engine->device[d];
    if (device->host_next < r->to) *low = MIN(*low, device->host_next), *high = MAX(*high, device->host_next + 1);
    if (device->host_sync < r->to) *low = MIN(*low, device->host_sync);
  }
}

static void keep(MsRounds *r, Engine *engine) {
  const MsGraph *graph = engine->graph;
  size_t queues = (size_t)graph->devices * graph->streams;
  span(r, engine, &r->low, &r->high);
  r->has = r->low >= r->from && r->low < r->high;
  for (guint32 d = 0; d < graph->devices; d++) engine->device[d].held_up = 0;
  if (!r->has) return;
  if (r->high - r->low > r->room) {
    r->room = 2 * (r->high - r->low);
    r->end = g_renew(MsTime, r->end, r->room), r->start = g_renew(MsTime, r->start, r->room);
  }
  r->now = engine->now, r->events = engine->events;
  memcpy(r->stream, engine->stream, sizeof *r->stream * queues);
  memcpy(r->when, engine->when, sizeof *r->when * queues);
  memcpy(r->device, engine->device, sizeof *r->device * graph->devices);
  memcpy(r->end, engine->end + r->low, sizeof *r->end * (r->high - r->low));
  memcpy(r->start, engine->start + r->low, sizeof *r->start * (r->high - r->low));
}

/* --- two moments compared --- */

static gint32 later_task(gint32 task, guint32 by) { return task < 0 ? task : task + (gint32)by; }

static gboolean rests(const Stream *x, const Stream *y) { return x->head == y->head; }

static gboolean same_rest(const Stream *x, const Stream *y) {
  return x->head == NONE ||
         (x->state == WAITING && y->state == WAITING && !x->waits_for_host && !y->waits_for_host &&
          x->wait_at == y->wait_at && x->next_waiter == y->next_waiter && x->ready == y->ready && x->by == y->by);
}

static gboolean same_wait(const MsRounds *r, const MsGraph *graph, const Stream *x, const Stream *y, MsTime by) {
  return y->ready - x->ready == by && y->by == later_task(x->by, r->period) && x->waits_for_host == y->waits_for_host &&
         x->wait_at - graph->wait_base[x->head] == y->wait_at - graph->wait_base[y->head] &&
         (x->waits_for_host || x->next_waiter == y->next_waiter);
}

static gboolean same_stream(const MsRounds *r, const Engine *engine, guint32 q, MsTime by) {
  const Stream *x = &r->stream[q], *y = &engine->stream[q];
  if (rests(x, y)) return same_rest(x, y);
  if (x->head == NONE || y->head != x->head + r->period || x->state != y->state) return FALSE;
  if (x->state == WAITING) return same_wait(r, engine->graph, x, y, by);
  if (engine->when[q] - r->when[q] != by || engine->start[y->head] - engine->start[x->head] != by ||
      engine->bound_by[y->head] != later_task(engine->bound_by[x->head], r->period))
    return FALSE;
  return x->state == STARTING || (x->use == y->use && x->remaining == y->remaining && y->since - x->since == by);
}

/* The host, where it does not rest: as much later as all else, or too fast for anybody to notice. */
static gboolean same_host(const MsRounds *r, const Device *x, const Device *y, guint32 d, MsTime by) {
  MsTime own = y->host_cursor - x->host_cursor;
  if (x->host_next == y->host_next) return own == 0 && x->host_sync == y->host_sync;
  if (x->host_next == NONE || y->host_next != x->host_next + r->period) return FALSE;
  if (x->host_sync == NONE ? y->host_sync != NONE : y->host_sync != x->host_sync + r->period) return FALSE;
  return own == by || (own < by && !y->held_up && !r->waits[d] && x->host_sync == NONE);
}

static gboolean same_device(const MsRounds *r, const Engine *engine, guint32 d, MsTime by) {
  const Device *x = &r->device[d], *y = &engine->device[d];
  return x->load == y->load && x->active == y->active && x->sms == y->sms &&
         !memcmp(x->running, y->running, sizeof x->running) && same_host(r, x, y, d, by);
}

static MsTime host_by(const MsRounds *r, const Engine *engine, guint32 d) {
  return engine->device[d].host_cursor - r->device[d].host_cursor;
}

/* Ends that are known, who waits for the others, and when hosts have issued those that have not begun. What ended below
 * `low` ended by now: nobody who waits for it as well starts when it ended. */
static gboolean same_tasks(const MsRounds *r, const Engine *engine, MsTime by) {
  const MsGraph *graph = engine->graph;
  for (guint32 i = r->low; i < r->high; i++) {
    MsTime then = r->end[i - r->low], now = engine->end[i + r->period];
    const MsTask *task = &graph->task[i];
    const Device *device = &r->device[task->device];
    if (then >= 0 ? now - then != by : now != then) return FALSE;
    if (then >= 0 || task->launch == 0 || i >= device->host_next) continue;
    if (r->stream[ms_queue_of(graph, task)].head == i && r->stream[ms_queue_of(graph, task)].state != WAITING) continue;
    if (engine->start[i + r->period] - r->start[i - r->low] != host_by(r, engine, task->device)) return FALSE;
  }
  return TRUE;
}

static gboolean same(const MsRounds *r, const Engine *engine) {
  const MsGraph *graph = engine->graph;
  MsTime by = engine->now - r->now;
  guint32 low, high;
  span(r, engine, &low, &high);
  if (by <= 0 || low != r->low + r->period || high != r->high + r->period || high > r->to) return FALSE;
  for (guint32 d = 0; d < graph->devices; d++)
    if (!same_device(r, engine, d, by)) return FALSE;
  for (guint32 q = 0; q < graph->devices * graph->streams; q++)
    if (!same_stream(r, engine, q, by)) return FALSE;
  return same_tasks(r, engine, by);
}

/* As many as are alike, and as what streams at rest wait for is behind. */
static guint32 most_rounds(const MsRounds *r, const Engine *engine) {
  const MsGraph *graph = engine->graph;
  guint32 until = r->to, high = r->high + r->period;
  for (guint32 q = 0; q < graph->devices * graph->streams; q++) {
    const Stream *own = &engine->stream[q];
    if (own->head != NONE && rests(&r->stream[q], own)) until = MIN(until, graph->wait[own->wait_at]);
  }
  return until > high ? (until - high) / r->period : 0;
}

/* The graph with two rounds less is at such a moment two rounds sooner, and what is left of it is what is left of this
 * one behind the rounds: no stream of a round has gone ahead to tasks that it has not, and of hosts at their own pace
 * all that is left is issued before it could start. So each of the two makes the end later by the time of a round. */
static gboolean same_of_fewer(const MsRounds *r, const Engine *engine) {
  const MsGraph *graph = engine->graph;
  for (guint32 i = r->marker; i < r->marker + r->period; i++) {
    guint32 q = ms_queue_of(graph, &graph->task[i]);
    if (rests(&r->stream[q], &engine->stream[q])) return FALSE;
  }
  for (guint32 d = 0; d < graph->devices; d++) {
    guint32 next = engine->device[d].host_next;
    MsTime issued = r->device[d].host_cursor;
    if (host_by(r, engine, d) == engine->now - r->now) continue;
    if (next != NONE && next == r->device[d].host_next) return FALSE;
    for (guint32 i = next; next != NONE && i + r->period < graph->n; i++)
      if (graph->task[i + r->period].device == d) issued += graph->task[i + r->period].launch;
    if (issued > r->now) return FALSE;
  }
  return TRUE;
}

/* --- rounds left out --- */

typedef struct {
  guint32 laid, more; /* rounds of the graph, and those behind them that were not laid down */
  MsTime by;
} Skip;

static guint32 rounds_of(const Skip *skip) { return skip->laid + skip->more; }

/* Of a task that will have ended as one some rounds before it did, of one that will be what another is now. */
static void end_as(const MsRounds *r, Engine *engine, guint32 i, guint32 like, guint32 rounds, MsTime by) {
  engine->end[i] = engine->end[like] + rounds * by, engine->start[i] = engine->start[like] + rounds * by;
  engine->bound_by[i] = later_task(engine->bound_by[like], rounds * r->period);
}

static void move_tasks(const MsRounds *r, Engine *engine, const Skip *skip) {
  guint32 low = r->low + r->period, tasks = r->high - r->low, behind = skip->laid * r->period;
  for (guint32 i = low; i < low + behind; i++)
    if (engine->end[i] < 0) end_as(r, engine, i, i - r->period, 1, skip->by);
  for (guint32 k = 0; k < tasks; k++) {
    guint32 own = low + k, i = own + behind;
    const MsTask *task = &engine->graph->task[own];
    if (r->end[k] >= 0) {
      end_as(r, engine, i, own, rounds_of(skip), skip->by);
      continue;
    }
    engine->end[i] = r->end[k];
    if (task->launch > 0 && own < engine->device[task->device].host_next)
      engine->start[i] = r->start[k] + (rounds_of(skip) + 1) * host_by(r, engine, task->device);
  }
}

static void move_stream(const MsRounds *r, Engine *engine, guint32 q, const Skip *skip) {
  Stream *own = &engine->stream[q];
  const guint32 *base = engine->graph->wait_base;
  if (rests(&r->stream[q], own)) return;
  guint32 head = own->head, then = head + skip->laid * r->period, number = rounds_of(skip) * r->period;
  MsTime by = rounds_of(skip) * skip->by;
  if (own->state != WAITING) {
    engine->when[q] += by;
    engine->start[then] = engine->start[head] + by, engine->bound_by[then] = later_task(engine->bound_by[head], number);
  }
  own->wait_at += base[then] - base[head], own->head = then;
  own->ready += by, own->since += by, own->by = later_task(own->by, number);
}

static void move_device(const MsRounds *r, Engine *engine, guint32 d, const Skip *skip) {
  Device *own = &engine->device[d];
  MsTime by = host_by(r, engine, d);
  if (own->host_next != r->device[d].host_next) {
    own->host_next += skip->laid * r->period, own->host_cursor += rounds_of(skip) * by;
    if (own->host_sync != NONE) own->host_sync += skip->laid * r->period;
  }
  for (; own->tail < own->no_tail && engine->end[own->tail->task] >= 0; own->tail++)
    engine->done |= engine->end[own->tail->task] + own->tail->left > engine->limit;
}

static void leave_out(const MsRounds *r, Engine *engine, const Skip *skip) {
  const MsGraph *graph = engine->graph;
  move_tasks(r, engine, skip);
  for (guint32 q = 0; q < graph->devices * graph->streams; q++) move_stream(r, engine, q, skip);
  for (guint32 d = 0; d < graph->devices; d++) move_device(r, engine, d, skip);
  engine->now += rounds_of(skip) * skip->by, engine->events += rounds_of(skip) * (engine->events - r->events);
  engine->more = skip->more * r->period;
  engine->fold = (MsFold){r->low + (skip->laid + 1) * r->period, r->period, skip->more, skip->by};
  g_atomic_pointer_add(&left_out, rounds_of(skip) * r->period);
}

/* Until now all was as if the rounds that were not laid down stood behind those that are: whoever has something to do
 * in a round is still in these. All that moves on from here begins behind the window of two rounds that are alike. */
static gboolean are_as_many_more(const MsRounds *r, const Engine *engine, guint32 laid) {
  const MsGraph *graph = engine->graph;
  if (laid * r->period < r->high - r->low) return FALSE;
  for (guint32 i = r->marker; i < r->marker + r->period; i++) {
    const MsTask *task = &graph->task[i];
    guint32 q = ms_queue_of(graph, task), d = task->device;
    if (rests(&r->stream[q], &engine->stream[q]) || engine->stream[q].head >= r->to) return FALSE;
    guint32 next = engine->device[d].host_next;
    if (ms_on_host(task) && (next == r->device[d].host_next || next >= r->to)) return FALSE;
  }
  return TRUE;
}

/* Each task as it was in the last round in which it has ended. */
static void tell_lasts(const MsRounds *r, const Engine *engine, MsTime *lasts) {
  guint32 first = engine->graph->alike_from, rounds = r->marker > first ? (r->marker - first) / r->period : 0;
  for (guint32 k = 0; k < r->period; k++) {
    guint32 i = first + k + rounds * r->period;
    while (i >= r->from + r->period && engine->end[i] < 0) i -= r->period;
    lasts[k] = engine->end[i] < 0 ? 0 : engine->end[i] - engine->start[i];
  }
}

gboolean ms_rounds_look(MsRounds *r, Engine *engine) {
  gboolean alike_now = r->has && same(r, engine);
  guint32 times = alike_now ? most_rounds(r, engine) : 0, more = engine->graph->left_out;
  if (more > 0 && times > 0 && !are_as_many_more(r, engine, times)) times = 0;
  const Skip skip = {times, more, engine->now - r->now};
  if (times > 0 && engine->round && same_of_fewer(r, engine)) {
    engine->round->time = engine->now - r->now, engine->round->events = engine->events, engine->done = TRUE;
    if (engine->round->lasts) tell_lasts(r, engine, engine->round->lasts);
  } else if (times > 0) leave_out(r, engine, &skip);
  else if (!alike_now) keep(r, engine);
  r->marker += r->period;
  if (alike_now || r->marker + r->period >= r->to) r->marker = NONE;
  return times > 0;
}
