/* src/engine/engine_events.c - the event engine, where the speed of a running task depends on what else runs on its
 * device.
 *
 * Only the head of each stream can be running, starting or waiting, so a stream has at most one event and a device's
 * next event is the least over its few streams; a winner tree over the devices gives the next one of all, by (time,
 * task index): no event is ever deleted, it is replaced in place. A head that waits for an unfinished task sits in that
 * task's list of waiters, which is kept where its end will be. */
#include "base/err.h"
#include "engine/rounds.h"

#include <math.h>

/* --- rates ----------------------------------------------------------------------------------------------------- */

/* floor and ceil of a b / c; exact. */
static inline MsTime scale_down(MsTime a, gint64 b, gint64 c) {
  gint64 product;
  if (G_LIKELY(!__builtin_mul_overflow(a, b, &product))) return product / c;
  return (MsTime)((__int128)a * b / c);
}

static inline MsTime scale_up(MsTime a, gint64 b, gint64 c) {
  gint64 product;
  if (G_LIKELY(!__builtin_mul_overflow(a, b, &product) && product <= G_MAXINT64 - c)) return (product + c - 1) / c;
  return (MsTime)(((__int128)a * b + c - 1) / c);
}

/* Compute runs on the SMs that are left, at least a tenth, split between the streams that compute; a link is split
 * between the tasks that use it. */
static inline Rate rate_of(const Device *device, int use) {
  gint64 k = MAX(device->running[use], 1), sms = device->sm_count;
  if (use == MS_USE_NOTHING) return (Rate){1, 1};
  if (use != MS_USE_COMPUTE || !device->sms || !sms) return (Rate){1, k};
  return (Rate){MAX(10 * (sms - (gint64)device->sms), sms), 10 * sms * k};
}

/* As whole numbers: shares of few parts exactly. */
static Rate rate_near(double share) {
  const double near = 1e-9;
  if (share >= 1 - near) return (Rate){1, 1};
  for (gint64 parts = 2; parts <= 64; parts++)
    if (fabs(share * (double)parts - round(share * (double)parts)) < near && share * (double)parts > near)
      return (Rate){llround(share * (double)parts), parts};
  return (Rate){MAX((gint64)(share * (1 << 30)), 1), 1 << 30};
}

static int classes_of(const MsSharing *sharing) {
  int n = 0;
  for (int kind = 0; kind < 256; kind++)
    if (sharing->of[kind] != MS_SHARING_NONE) n = MAX(n, sharing->of[kind] + 1);
  return n;
}

static const Rate *rates_of_classes(const Engine *engine, const Device *device) {
  guint8 running[MS_SHARING_CLASSES];
  double share[MS_SHARING_CLASSES];
  Rate *rate = g_hash_table_lookup(engine->known, &device->classes);
  if (rate) return rate;
  for (int c = 0; c < MS_SHARING_CLASSES; c++) running[c] = (guint8)device->running[MS_N_USES + c];
  rate = g_new(Rate, MS_SHARING_CLASSES);
  engine->sharing->rates(engine->sharing->data, running, share);
  for (int c = 0; c < MS_SHARING_CLASSES; c++) rate[c] = running[c] ? rate_near(share[c]) : (Rate){1, 1};
  g_hash_table_insert(engine->known, g_memdup2(&device->classes, sizeof device->classes), rate);
  return rate;
}

/* All that rates follow from, without sharing by class; a device has at most 64 streams. */
static inline guint64 load_of(const Device *device) {
  guint64 load = device->sms;
  for (int use = MS_USE_COMPUTE; use < MS_N_USES; use++) load = load << 8 | device->running[use];
  return load;
}

/* Bits of the uses whose speed changed; `old` gets their speeds until now. */
static inline guint update_rates(const Engine *engine, Device *device, Rate *old) {
  guint changed = 0;
  guint64 load = load_of(device);
  if (load == device->load && device->classes == device->rated) return 0;
  device->load = load, device->rated = device->classes;
  const Rate *of_class = engine->sharing ? rates_of_classes(engine, device) : NULL;
  for (int use = MS_USE_COMPUTE; use < engine->rates; use++) {
    Rate rate = use < MS_N_USES ? rate_of(device, use) : of_class[use - MS_N_USES];
    old[use] = device->rate[use];
    if (rate.num == old[use].num && rate.den == old[use].den) continue;
    device->rate[use] = rate;
    changed |= 1u << use;
  }
  return changed;
}

/* --- winner tree ----------------------------------------------------------------------------------------------- */

static inline guint32 earlier(const Engine *engine, guint32 a, guint32 b) {
  MsTime ta = engine->next_time[a], tb = engine->next_time[b];
  gboolean second = tb < ta || (tb == ta && engine->next_task[b] < engine->next_task[a]);
  return second ? b : a;
}

static inline void replay(Engine *engine, guint32 leaf) {
  for (guint32 node = (leaf + engine->leaves) / 2; node; node /= 2)
    engine->winner[node] = earlier(engine, engine->winner[2 * node], engine->winner[2 * node + 1]);
}

/* After everything that happens in one event: settles the running tasks whose speed changed, gives the ones that began
 * their event, and finds the device's next event. */
static void refresh(Engine *engine, guint32 d) {
  Device *device = &engine->device[d];
  guint32 streams = engine->graph->streams, base = d * streams, best = base;
  Stream *stream = engine->stream + base;
  MsTime *when = engine->when + base, best_time = NEVER, now = engine->now;
  Rate old[N_RATES];
  guint changed = update_rates(engine, device, old);
  for (guint64 left = device->active; left; left &= left - 1) {
    guint32 s = (guint32)__builtin_ctzll(left);
    Stream *own = &stream[s];
    if (own->fresh || (own->state == RUNNING && changed >> own->use & 1)) {
      Rate rate = device->rate[own->use];
      if (!own->fresh) own->remaining -= scale_down(now - own->since, old[own->use].num, old[own->use].den);
      own->since = now, own->fresh = 0;
      when[s] = now + (rate.num == rate.den ? own->remaining : scale_up(own->remaining, rate.den, rate.num));
    }
    if (when[s] < best_time || (when[s] == best_time && best_time != NEVER && own->head < engine->stream[best].head))
      best_time = when[s], best = base + s;
  }
  device->dirty = 0;
  engine->next_time[d] = best_time, engine->next_task[d] = engine->stream[best].head, engine->next_stream[d] = best;
  replay(engine, d);
}

static inline void mark_dirty(Engine *engine, guint32 d) {
  if (engine->device[d].dirty) return;
  engine->device[d].dirty = 1;
  engine->dirty[engine->n_dirty++] = d;
}

/* --- host ------------------------------------------------------------------------------------------------------ */

/* Lets the host go on up to and including `task`; FALSE when it is held by a task that has not ended. */
static gboolean host_reach(Engine *engine, Device *device, guint32 task) {
  while (device->host_next <= task) {
    guint32 i = device->host_next;
    const MsTask *row = &engine->graph->task[i];
    if (device->host_sync != NONE) {
      MsTime end = engine->end[device->host_sync];
      if (end < 0) return FALSE;
      device->host_cursor = MAX(device->host_cursor, end), device->host_sync = NONE;
    }
    if (row->launch > 0) engine->start[i] = device->host_cursor += row->launch;
    if (row->host_sync) device->host_sync = i;
    device->host_next = engine->host_next[i];
  }
  return TRUE;
}

/* --- tasks ----------------------------------------------------------------------------------------------------- */

/* In Device.classes; 0: no class. */
static inline guint64 one_of(int use) { return use < MS_N_USES ? 0 : 1ull << 4 * (use - MS_N_USES); }

static inline void begin(Engine *engine, guint32 s) {
  Stream *own = &engine->stream[s];
  const MsTask *task = &engine->graph->task[own->head];
  Device *device = &engine->device[task->device];
  guint8 of = engine->sharing ? engine->sharing->of[task->kind] : MS_SHARING_NONE;
  own->state = RUNNING, own->fresh = 1, own->remaining = task->duration;
  own->use = of == MS_SHARING_NONE ? task->use : (guint8)(MS_N_USES + of);
  device->active |= 1ull << task->stream;
  device->running[own->use]++, device->classes += one_of(own->use);
  if (task->use != MS_USE_COMPUTE) device->sms += task->sms;
  mark_dirty(engine, task->device);
}

/* Looks at what the head of the stream waits for; starts it when nothing is left. */
static void try_start(Engine *engine, guint32 s) {
  const MsGraph *graph = engine->graph;
  Stream *own = &engine->stream[s];
  const MsTask *task = &graph->task[own->head];
  for (guint32 last = graph->wait_base[own->head + 1]; own->wait_at < last; own->wait_at++) {
    guint32 w = graph->wait[own->wait_at];
    MsTime end = engine->end[w];
    if (end < 0) {
      own->next_waiter = end, engine->end[w] = -2 - (MsTime)s;
      return;
    }
    if (end > own->ready) own->ready = end, own->by = (gint32)(w + engine->more);
  }
  if (task->launch > 0) {
    if (!host_reach(engine, &engine->device[task->device], own->head)) {
      own->waits_for_host = 1;
      return;
    }
    if (engine->start[own->head] > own->ready)
      own->ready = engine->start[own->head], own->by = -1, engine->device[task->device].held_up = 1;
  }
  engine->start[own->head] = own->ready, engine->bound_by[own->head] = own->by;
  if (own->ready <= engine->now) {
    begin(engine, s);
    return;
  }
  own->state = STARTING, engine->when[s] = own->ready;
  engine->device[task->device].active |= 1ull << task->stream;
  mark_dirty(engine, task->device);
}

static inline void next_head(Engine *engine, guint32 s, guint32 head, MsTime ready, gint32 by) {
  Stream *own = &engine->stream[s];
  own->head = head, own->state = WAITING, own->ready = ready, own->by = by;
  engine->when[s] = NEVER;
  if (head == NONE) return;
  own->wait_at = engine->graph->wait_base[head];
  try_start(engine, s);
}

static void release_host(Engine *engine, guint32 d) {
  for (guint32 s = d * engine->graph->streams, last = s + engine->graph->streams; s < last; s++)
    if (engine->stream[s].waits_for_host) engine->stream[s].waits_for_host = 0, try_start(engine, s);
}

static void finish(Engine *engine, guint32 s) {
  Stream *own = &engine->stream[s];
  guint32 i = own->head;
  const MsTask *task = &engine->graph->task[i];
  Device *device = &engine->device[task->device];
  gint64 waiter = engine->end[i];
  gboolean held_host = device->host_sync == i; /* asked now: the tasks that start below may move the host on */
  if (device->tail < device->no_tail && device->tail->task == i)
    engine->done |= engine->now + device->tail++->left > engine->limit;
  engine->end[i] = engine->now;
  device->active &= ~(1ull << task->stream);
  device->running[own->use]--, device->classes -= one_of(own->use);
  if (task->use != MS_USE_COMPUTE) device->sms -= task->sms;
  mark_dirty(engine, task->device);
  while (waiter != NOT_DONE) {
    guint32 who = (guint32)(-2 - waiter);
    waiter = engine->stream[who].next_waiter;
    try_start(engine, who);
  }
  next_head(engine, s, engine->stream_next[i], engine->now, engine->now > 0 ? (gint32)(i + engine->more) : -2);
  if (held_host) release_host(engine, task->device);
}

/* --- the loop -------------------------------------------------------------------------------------------------- */

/* Fills next[] with the next task of the same queue and returns the first of each queue. */
static guint32 *link_streams(const MsGraph *graph, guint32 *next) {
  guint32 queues = graph->devices * graph->streams, *first = g_new(guint32, queues);
  for (guint32 q = 0; q < queues; q++) first[q] = NONE;
  for (guint32 i = graph->n; i-- > 0;) {
    guint32 q = ms_queue_of(graph, &graph->task[i]);
    next[i] = first[q], first[q] = i;
  }
  return first;
}

static void link_hosts(Engine *engine) {
  for (guint32 d = 0; d < engine->graph->devices; d++) engine->device[d].host_next = engine->device[d].host_sync = NONE;
  if (!engine->graph->has_host) return;
  engine->host_next = g_new(guint32, engine->graph->n);
  for (guint32 i = engine->graph->n; i-- > 0;) {
    const MsTask *task = &engine->graph->task[i];
    if (!ms_on_host(task)) continue;
    engine->host_next[i] = engine->device[task->device].host_next;
    engine->device[task->device].host_next = i;
  }
}

static void open_engine(Engine *engine, const MsGraph *graph, const MsSharing *sharing, MsTrajectory *trajectory) {
  guint32 queues = graph->devices * graph->streams;
  *engine = (Engine){.graph = graph,
                     .start = trajectory->start,
                     .end = trajectory->end,
                     .bound_by = trajectory->bound_by,
                     .leaves = 1,
                     .sharing = sharing,
                     .rates = MS_N_USES + (sharing ? classes_of(sharing) : 0)};
  if (sharing) engine->known = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
  while (engine->leaves < graph->devices) engine->leaves *= 2;
  engine->stream_next = g_new(guint32, graph->n);
  engine->stream = g_new0(Stream, queues), engine->when = g_new(MsTime, queues);
  engine->device = g_new0(Device, graph->devices), engine->dirty = g_new(guint32, graph->devices);
  engine->winner = g_new(guint32, 2 * engine->leaves);
  engine->next_time = g_new(MsTime, engine->leaves);
  engine->next_task = g_new0(guint32, engine->leaves), engine->next_stream = g_new0(guint32, engine->leaves);
  for (guint32 i = 0; i < graph->n; i++) engine->end[i] = NOT_DONE;
  for (guint32 k = 0; k < engine->leaves; k++) engine->winner[engine->leaves + k] = k, engine->next_time[k] = NEVER;
  for (guint32 node = engine->leaves - 1; node; node--) engine->winner[node] = engine->winner[2 * node];
  for (guint32 q = 0; q < queues; q++) engine->when[q] = NEVER, engine->stream[q].head = NONE;
  for (guint32 d = 0; d < graph->devices; d++) {
    engine->device[d].sm_count = graph->device_sms ? graph->device_sms[d] : graph->sm_count;
    for (int use = 0; use < N_RATES; use++) engine->device[d].rate[use] = (Rate){1, 1};
  }
}

static void close_engine(Engine *engine) {
  g_free(engine->stream_next), g_free(engine->host_next), g_free(engine->stream), g_free(engine->when),
      g_free(engine->device), g_free(engine->dirty);
  if (engine->known) g_hash_table_unref(engine->known);
  g_free(engine->winner), g_free(engine->next_time), g_free(engine->next_task), g_free(engine->next_stream);
}

static void refresh_dirty(Engine *engine) {
  while (engine->n_dirty) refresh(engine, engine->dirty[--engine->n_dirty]);
}

static void look_at_round(Engine *engine, MsRounds *rounds) {
  if (!ms_rounds_look(rounds, engine)) return;
  for (guint32 d = 0; d < engine->graph->devices; d++) mark_dirty(engine, d);
  refresh_dirty(engine);
}

static void run_events(Engine *engine) {
  MsRounds *rounds = ms_rounds_new(engine);
  guint32 marker = ms_rounds_next(rounds);
  for (;;) {
    guint32 d = engine->winner[1];
    if (engine->next_time[d] == NEVER || engine->done) break;
    guint32 s = engine->next_stream[d];
    engine->now = engine->next_time[d];
    engine->events++;
    if (engine->stream[s].state == RUNNING) finish(engine, s);
    else engine->when[s] = NEVER, begin(engine, s);
    refresh_dirty(engine);
    if (marker == NONE || engine->end[marker] < 0) continue;
    look_at_round(engine, rounds);
    marker = ms_rounds_next(rounds);
    if (marker == NONE && engine->fold.times < engine->graph->left_out) break;
  }
  ms_rounds_free(rounds);
}

static void watch(Engine *engine, MsTime limit, const MsTails *tails) {
  engine->limit = limit;
  for (guint32 d = 0; d < engine->graph->devices; d++)
    engine->device[d].tail = tails->of + tails->base[d], engine->device[d].no_tail = tails->of + tails->base[d + 1];
}

/* The last of the rounds that were not laid down may be the last that a stream has to do. */
static MsTime end_of_all(const Engine *engine) {
  const MsFold *fold = &engine->fold;
  MsTime last = 0;
  for (guint32 i = 0; i < engine->graph->n; i++) {
    if (engine->end[i] < 0) MS_BUG("task %u never ended", i);
    last = MAX(last, engine->end[i]);
  }
  for (guint32 i = fold->cut - fold->period; i < fold->cut; i++)
    last = MAX(last, engine->end[i] + fold->times * fold->by);
  return last;
}

static MsTrajectory *run_graph(const MsGraph *graph, const MsSharing *sharing, MsTime limit, const MsTails *tails,
                               MsRound *round) {
  if (sharing && graph->streams > 15) MS_BUG("%u streams of a device share", graph->streams);
  if (graph->left_out && (tails || round)) MS_BUG("rounds are left out of a graph of which not all is asked");
  MsTrajectory *trajectory = ms_trajectory_alloc(graph->n);
  Engine engine;
  open_engine(&engine, graph, sharing, trajectory);
  engine.round = round;
  if (tails) watch(&engine, limit, tails);
  g_autofree guint32 *first = link_streams(graph, engine.stream_next);
  link_hosts(&engine);
  for (guint32 q = 0; q < graph->devices * graph->streams; q++) next_head(&engine, q, first[q], 0, -2);
  refresh_dirty(&engine);
  run_events(&engine);
  trajectory->events = engine.events, trajectory->fold = engine.fold;
  if (!engine.done && ms_trajectory_is_whole(trajectory, graph)) trajectory->makespan = end_of_all(&engine);
  close_engine(&engine);
  if (engine.done) g_clear_pointer(&trajectory, ms_trajectory_free);
  return trajectory;
}

MsTrajectory *ms_engine_events(const MsGraph *graph, const MsSharing *sharing) {
  return run_graph(graph, sharing, 0, NULL, NULL);
}

MsTrajectory *ms_engine_events_within(const MsGraph *graph, const MsSharing *sharing, MsTime limit,
                                      const MsTails *tails) {
  return run_graph(graph, sharing, limit, tails, NULL);
}

MsTrajectory *ms_engine_events_until_round(const MsGraph *graph, const MsSharing *sharing, MsRound *round) {
  return run_graph(graph, sharing, 0, NULL, round);
}
