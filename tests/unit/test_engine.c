/* tests/unit/test_engine.c - the two engines against each other, against a slow one written apart, and against numbers
 * worked out by hand. */
#include "lib/tier.h"
#include "lib/trajectory.h"
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

/* --- random graphs --------------------------------------------------------------------------------------------- */

typedef struct {
  guint64 state;
} Draw;
static guint32 below(Draw *draw, guint32 n) { /* xorshift64 */
  draw->state ^= draw->state << 13, draw->state ^= draw->state >> 7, draw->state ^= draw->state << 17;
  return (guint32)((draw->state >> 32) * n >> 32);
}

typedef struct {
  guint32 devices, streams, tasks, n_wait, longest, syncs_in_100, launches_in_100;
  gboolean share;
  guint32 first, period, rounds; /* from task `first` on so many rounds of `period` tasks are alike; period 0: none */
} Shape;

static MsGraph *random_graph(const Shape *shape, guint64 seed) {
  Draw draw = {seed * 0x9e3779b97f4a7c15u + 1};
  MsGraph *graph = ms_graph_new((int)shape->devices, (int)shape->streams);
  ms_graph_set_sms(graph, 132);
  for (guint32 i = 0; i < shape->tasks; i++) {
    if (shape->period && i == shape->first + shape->period) {
      ms_graph_repeat(graph, shape->period, shape->rounds - 1);
      i = ms_graph_count(graph);
      if (i == shape->tasks) break;
    }
    MsTask task = {.device = below(&draw, shape->devices),
                   .stream = (guint8)below(&draw, shape->streams),
                   .duration = below(&draw, shape->longest),
                   .tag = i};
    task.use = shape->share ? (guint8)below(&draw, MS_N_USES)
                            : (guint8)(task.stream % MS_N_USES); /* not shared: a use of its own for each stream */
    if (!shape->share && task.stream >= MS_N_USES) task.use = MS_USE_NOTHING;
    task.kind = task.use == MS_USE_LINK1;
    if (shape->share && below(&draw, 2)) task.sms = (guint16)below(&draw, 90);
    if (below(&draw, 100) < shape->launches_in_100) task.launch = 1 + below(&draw, shape->longest);
    task.host_sync = below(&draw, 100) < shape->syncs_in_100;
    guint32 wait[8], n = i ? below(&draw, shape->n_wait + 1) : 0;
    for (guint32 k = 0; k < n; k++) {
      guint32 reach = 1 + below(&draw, 60);
      wait[k] = i - 1 - below(&draw, MIN(i, reach));
    }
    ms_graph_add(graph, &task, wait, n);
  }
  return graph;
}

static Shape random_shape(guint64 seed, gboolean share) {
  Draw draw = {seed + 77};
  for (int k = 0; k < 8; k++) below(&draw, 2);
  guint32 longest[] = {1, 2, 5, 1000, 1000000};
  return (Shape){1 + below(&draw, 9),
                 1 + below(&draw, 8),
                 1 + below(&draw, 400),
                 below(&draw, 4),
                 longest[below(&draw, 5)],
                 below(&draw, 3) * 8,
                 below(&draw, 3) * 50,
                 share,
                 0,
                 0,
                 0};
}

static void assert_same(const MsTrajectory *a, const MsTrajectory *b) {
  assert_int_equal(a->n, b->n);
  assert_int_equal(a->makespan, b->makespan);
  for (guint32 i = 0; i < a->n; i++) {
    assert_int_equal(a->start[i], b->start[i]);
    assert_int_equal(a->end[i], b->end[i]);
    assert_int_equal(a->bound_by[i], b->bound_by[i]);
  }
}

static void assert_valid(const MsGraph *graph, const MsTrajectory *trajectory) {
  char why[200] = "";
  if (!ms_test_trajectory_valid(graph, trajectory, why, sizeof why)) fail_msg("%s", why);
}

static void engines_agree_where_nothing_is_shared(void **state) {
  (void)state;
  for (guint64 seed = 1; seed <= 400; seed++) {
    Shape shape = random_shape(seed, FALSE);
    g_autoptr(MsGraph) graph = random_graph(&shape, seed);
    g_autoptr(MsTrajectory) relax = ms_engine_relax(graph), events = ms_engine_events(graph, NULL);
    assert_false(ms_graph_shares(graph));
    assert_valid(graph, relax);
    assert_valid(graph, events);
    assert_same(relax, events);
    assert_true(events->events >= shape.tasks);
  }
}

/* --- a slow engine: at every instant looks at everything ------------------------------------------------------- */

typedef struct {
  const MsGraph *graph;
  MsTime *start, *end, *left, *since;
  __int128 (*rate)[2];
  gboolean *running;
  MsTime now;
  guint32 sms;
} Slow;

static gboolean slow_ready(const Slow *slow, guint32 i, MsTime *at) {
  const MsTask *task = ms_graph_task(slow->graph, i);
  const guint32 *wait;
  MsTime cursor = 0;
  *at = 0;
  for (guint k = 0, n = ms_graph_waits(slow->graph, i, &wait); k < n; k++) {
    if (slow->end[wait[k]] < 0) return FALSE;
    *at = MAX(*at, slow->end[wait[k]]);
  }
  for (guint32 j = 0; j < i; j++) {
    const MsTask *other = ms_graph_task(slow->graph, j);
    if (other->device != task->device) continue;
    if (other->stream == task->stream) {
      if (slow->end[j] < 0) return FALSE;
      *at = MAX(*at, slow->end[j]);
    }
    cursor += other->launch;
    if (task->launch && other->host_sync) {
      if (slow->end[j] < 0) return FALSE;
      cursor = MAX(cursor, slow->end[j]);
    }
  }
  if (task->launch) *at = MAX(*at, cursor + task->launch);
  return TRUE;
}

static void slow_rate(const Slow *slow, guint32 i, __int128 rate[2]) {
  const MsTask *task = ms_graph_task(slow->graph, i);
  __int128 together = 0, taken = 0, sms = slow->sms;
  for (guint32 j = 0; j < ms_graph_count(slow->graph); j++) {
    const MsTask *other = ms_graph_task(slow->graph, j);
    if (!slow->running[j] || other->device != task->device) continue;
    together += other->use == task->use;
    if (other->use != MS_USE_COMPUTE) taken += other->sms;
  }
  rate[0] = rate[1] = 1;
  if (task->use == MS_USE_NOTHING) return;
  rate[1] = together;
  if (task->use == MS_USE_COMPUTE && taken) rate[0] = MAX(10 * (sms - taken), sms), rate[1] = 10 * sms * together;
}

/* Settles tasks whose speed changed and returns the time of the next end. */
static MsTime slow_settle(Slow *slow) {
  MsTime next = G_MAXINT64;
  for (guint32 i = 0; i < ms_graph_count(slow->graph); i++) {
    if (!slow->running[i]) continue;
    __int128 rate[2];
    slow_rate(slow, i, rate);
    if (rate[0] != slow->rate[i][0] || rate[1] != slow->rate[i][1]) {
      if (slow->rate[i][1])
        slow->left[i] -= (MsTime)((slow->now - slow->since[i]) * slow->rate[i][0] / slow->rate[i][1]);
      slow->since[i] = slow->now, slow->rate[i][0] = rate[0], slow->rate[i][1] = rate[1];
    }
    next = MIN(next, slow->since[i] + (MsTime)((slow->left[i] * rate[1] + rate[0] - 1) / rate[0]));
  }
  return next;
}

static gboolean slow_end_due(Slow *slow) {
  gboolean any = FALSE;
  for (guint32 i = 0; i < ms_graph_count(slow->graph); i++)
    if (slow->running[i] && slow->rate[i][1] &&
        slow->since[i] + (MsTime)((slow->left[i] * slow->rate[i][1] + slow->rate[i][0] - 1) / slow->rate[i][0]) <=
            slow->now)
      slow->running[i] = FALSE, slow->end[i] = slow->now, any = TRUE;
  return any;
}

static MsTime slow_start_due(Slow *slow) {
  MsTime next = G_MAXINT64, at;
  for (guint32 i = 0; i < ms_graph_count(slow->graph); i++) {
    if (slow->running[i] || slow->end[i] >= 0 || !slow_ready(slow, i, &at)) continue;
    if (at > slow->now) next = MIN(next, at);
    else
      slow->running[i] = TRUE, slow->start[i] = slow->now, slow->since[i] = slow->now,
      slow->left[i] = ms_graph_task(slow->graph, i)->duration;
  }
  return next;
}

static void slow_engine(Slow *slow) {
  for (MsTime next = 0; next != G_MAXINT64;) {
    slow->now = next;
    MsTime start, end;
    do start = slow_start_due(slow), end = slow_settle(slow);
    while (slow_end_due(slow));
    next = MIN(start, end);
  }
}

static void events_match_the_slow_engine(void **state) {
  (void)state;
  int shared = 0, stretched = 0;
  for (guint64 seed = 1; seed <= 150; seed++) {
    Shape shape = random_shape(seed, TRUE);
    shape.tasks = 1 + shape.tasks / 5;
    g_autoptr(MsGraph) graph = random_graph(&shape, seed);
    g_autoptr(MsTrajectory) events = ms_engine_events(graph, NULL);
    guint32 n = shape.tasks;
    Slow slow = {graph,
                 g_new0(MsTime, n),
                 g_new0(MsTime, n),
                 g_new0(MsTime, n),
                 g_new0(MsTime, n),
                 g_malloc0(n * sizeof *slow.rate),
                 g_new0(gboolean, n),
                 0,
                 132};
    for (guint32 i = 0; i < n; i++) slow.end[i] = -1;
    slow_engine(&slow);
    assert_valid(graph, events);
    for (guint32 i = 0; i < n; i++) {
      assert_int_equal(events->start[i], slow.start[i]);
      assert_int_equal(events->end[i], slow.end[i]);
      stretched += events->end[i] - events->start[i] > ms_graph_task(graph, i)->duration;
    }
    shared += ms_graph_shares(graph);
    g_free(slow.start), g_free(slow.end), g_free(slow.left), g_free(slow.since), g_free(slow.rate),
        g_free(slow.running);
  }
  assert_true(shared > 100 && stretched > 500); /* the property is not empty */
}

/* --- by hand --------------------------------------------------------------------------------------------------- */

static guint32 add(MsGraph *graph, guint32 device, guint8 stream, MsUse use, guint16 sms, MsTime duration,
                   MsTime launch, gint64 wait) {
  MsTask task = {
      .device = device, .stream = stream, .use = (guint8)use, .sms = sms, .duration = duration, .launch = launch};
  guint32 w = (guint32)wait;
  return ms_graph_add(graph, &task, &w, wait >= 0);
}

#define CHECK(trajectory, task, from, to) \
  assert_int_equal((trajectory)->start[task], from), assert_int_equal((trajectory)->end[task], to)

static void a_link_is_split_equally(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(2, 3);
  add(graph, 0, 0, MS_USE_LINK0, 0, 1000, 0, -1);  /* 0: alone until 400, then half */
  add(graph, 0, 1, MS_USE_NOTHING, 0, 400, 0, -1); /* 1 */
  add(graph, 0, 1, MS_USE_LINK0, 0, 1000, 0, -1);  /* 2: from 400 */
  add(graph, 0, 2, MS_USE_LINK1, 0, 1000, 0, -1);  /* 3: another link */
  add(graph, 1, 0, MS_USE_LINK0, 0, 1000, 0, -1);  /* 4: another device */
  assert_true(ms_graph_shares(graph));
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  CHECK(t, 0, 0, 1600); /* 400 done, 600 left at 1/2 */
  CHECK(t, 1, 0, 400);
  CHECK(t, 2, 400, 2000); /* 600 done by 1600, 400 left at 1 */
  CHECK(t, 3, 0, 1000);
  CHECK(t, 4, 0, 1000);
  assert_int_equal(t->bound_by[0], -2);
  assert_int_equal(t->bound_by[2], 1);
  assert_int_equal(t->makespan, 2000);
}

static void communication_slows_compute(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 2);
  add(graph, 0, 0, MS_USE_COMPUTE, 0, 132000, 0, -1);
  add(graph, 0, 1, MS_USE_LINK0, 20, 66000, 0, -1);
  assert_false(ms_graph_shares(graph)); /* no number of SMs: no effect */
  ms_graph_set_sms(graph, 132);
  assert_true(ms_graph_shares(graph));
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  CHECK(t, 1, 0, 66000);
  CHECK(t, 0, 0, 142000); /* 66000 at 112/132 = 56000 done, 76000 left at 1 */
}

static void compute_keeps_a_tenth_of_its_speed(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 2);
  ms_graph_set_sms(graph, 100);
  add(graph, 0, 0, MS_USE_COMPUTE, 0, 1000, 0, -1);
  add(graph, 0, 1, MS_USE_LINK0, 100, 5000, 0, -1);
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  CHECK(t, 0, 0, 5500); /* 500 done at 5000 */
}

static void two_streams_that_compute_halve_each_other(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 3);
  ms_graph_set_sms(graph, 132);
  add(graph, 0, 0, MS_USE_COMPUTE, 50, 1000, 0, -1); /* SMs of compute tasks themselves do not count */
  add(graph, 0, 1, MS_USE_COMPUTE, 0, 400, 0, -1);
  assert_true(ms_graph_shares(graph));
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  CHECK(t, 1, 0, 800);
  CHECK(t, 0, 0, 1400);
}

static void rounding_is_up_at_the_end_and_down_on_the_way(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 3);
  add(graph, 0, 0, MS_USE_LINK0, 0, 10, 0, -1); /* 0 and 1 together from 0 to 5 (host task 2), then three */
  add(graph, 0, 1, MS_USE_LINK0, 0, 10, 0, -1);
  add(graph, 0, 2, MS_USE_NOTHING, 0, 5, 0, -1);
  add(graph, 0, 2, MS_USE_LINK0, 0, 1, 0, -1); /* 3: from 5, at 1/3: ends at 8 */
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  CHECK(t, 3, 5, 8);
  CHECK(t, 0, 0, 22); /* floor(5/2) = 2 done, 8 left; 3 x 1/3 = 1 done, 7 left; 7 x 2 = 14 more */
  CHECK(t, 1, 0, 22);
}

static void host_issues_in_order_and_waits(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 2);
  MsTask task = {.use = MS_USE_COMPUTE, .duration = 100, .launch = 10};
  ms_graph_add(graph, &task, NULL, 0); /* 0: issued 10, runs 10-110 */
  ms_graph_add(graph, &task, NULL, 0); /* 1: issued 20, runs 110-210 */
  task.host_sync = 1;
  ms_graph_add(graph, &task, NULL, 0); /* 2: issued 30, runs 210-310; the host waits for it */
  task = (MsTask){.stream = 1, .duration = 5};
  ms_graph_add(graph, &task, NULL, 0); /* 3: not issued by the host: runs 0-5 */
  task.launch = 7;
  ms_graph_add(graph, &task, NULL, 0); /* 4: issued 317 */
  task = (MsTask){.use = MS_USE_COMPUTE, .duration = 1, .launch = 3};
  ms_graph_add(graph, &task, (guint32[]){4}, 1); /* 5: issued 320, waits for 4: 322 */
  g_autoptr(MsTrajectory) relax = ms_engine_relax(graph), events = ms_engine_events(graph, NULL);
  MsTime want[6][2] = {{10, 110}, {110, 210}, {210, 310}, {0, 5}, {317, 322}, {322, 323}};
  gint32 by[6] = {-1, 0, 1, -2, -1, 4};
  for (guint32 i = 0; i < 6; i++) {
    CHECK(relax, i, want[i][0], want[i][1]);
    assert_int_equal(relax->bound_by[i], by[i]);
  }
  assert_same(relax, events);
}

/* --- the rest -------------------------------------------------------------------------------------------------- */

/* Every third task of a stream, with what follows it. (transfer full) */
static MsTail *tails_of(const MsGraph *graph, const MsTrajectory *whole, guint32 devices, guint32 *base) {
  MsTail *tail = g_new(MsTail, whole->n);
  guint32 n = 0;
  for (guint32 d = 0; d < devices; d++) {
    base[d] = n;
    for (guint32 i = 0; i < whole->n; i++)
      if (ms_graph_task(graph, i)->device == d && ms_graph_task(graph, i)->stream == 0 && i % 3)
        tail[n++] = (MsTail){i, whole->makespan - whole->end[i]};
  }
  base[devices] = n;
  return tail;
}

/* Tasks of one stream with what really follows them: within the makespan nothing changes, below it there is nothing. */
static void assert_stops_when_late(const MsGraph *graph, const MsTrajectory *whole, guint32 devices) {
  g_autofree guint32 *base = g_new(guint32, devices + 1);
  g_autofree MsTail *tail = tails_of(graph, whole, devices, base);
  const MsTails tails = {tail, base};
  g_autoptr(MsTrajectory) within = ms_engine_events_within(graph, NULL, whole->makespan, &tails);
  assert_non_null(within);
  assert_same(whole, within);
  g_autoptr(MsTrajectory) late = ms_engine_events_within(graph, NULL, whole->makespan - 1, &tails);
  assert_true(!late == (base[devices] > 0));
}

static void stops_when_it_is_late(void **state) {
  (void)state;
  for (guint64 seed = 0; seed < 200; seed++) {
    Shape shape = random_shape(seed, TRUE);
    g_autoptr(MsGraph) graph = random_graph(&shape, seed);
    g_autoptr(MsTrajectory) whole = ms_engine_events(graph, NULL);
    assert_stops_when_late(graph, whole, shape.devices);
  }
}

/* How many tasks were left out. */
static gsize assert_rounds_change_nothing(const MsGraph *graph, const MsSharing *sharing) {
  gsize before = ms_engine_left_out();
  ms_engine_allow_rounds(FALSE);
  g_autoptr(MsTrajectory) all = ms_engine_events(graph, sharing);
  ms_engine_allow_rounds(TRUE);
  assert_int_equal(ms_engine_left_out(), before);
  g_autoptr(MsTrajectory) fewer = ms_engine_events(graph, sharing);
  gsize left_out = ms_engine_left_out() - before;
  assert_same(all, fewer);
  assert_int_equal(all->events, fewer->events);
  return left_out;
}

static void rounds_that_are_left_out_change_nothing(void **state) {
  (void)state;
  int some = 0, graphs = ms_by_tier(500, 2000);
  for (guint64 seed = 1; seed <= (guint64)graphs; seed++) {
    Shape shape = random_shape(seed, TRUE);
    Draw draw = {seed * 31 + 7};
    shape.first = below(&draw, 80), shape.period = 1 + below(&draw, 60), shape.rounds = 4 + below(&draw, 60);
    shape.tasks = shape.first + shape.period * shape.rounds + below(&draw, 60);
    if (below(&draw, 2)) shape.launches_in_100 = 100;
    g_autoptr(MsGraph) graph = random_graph(&shape, seed);
    some += assert_rounds_change_nothing(graph, NULL) > 0;
    g_autoptr(MsTrajectory) whole = ms_engine_events(graph, NULL);
    assert_stops_when_late(graph, whole, shape.devices);
  }
  print_message("rounds of %d of %d graphs were left out\n", some, graphs);
  assert_true(some >= graphs / 5);
}

/* A task as every round has it: it waits for those so many tasks before it. */
typedef struct {
  MsTask task;
  guint32 n, back[3];
} Row;

static void random_rows(Row *row, guint32 period, const Shape *shape, Draw *draw) {
  for (guint32 k = 0; k < period; k++) {
    row[k].task = (MsTask){.device = below(draw, shape->devices),
                           .stream = (guint8)below(draw, shape->streams),
                           .use = (guint8)below(draw, MS_N_USES),
                           .kind = (guint8)below(draw, 3),
                           .sms = (guint16)(below(draw, 3) * 30),
                           .duration = below(draw, shape->longest),
                           .host_sync = below(draw, 100) < shape->syncs_in_100};
    if (below(draw, 100) < shape->launches_in_100) row[k].task.launch = 1 + below(draw, shape->longest);
    row[k].n = below(draw, 4);
    for (guint32 w = 0; w < 3; w++) row[k].back[w] = 1 + below(draw, 2 * period);
  }
}

static void change_one_thing(Row *row, const Shape *shape, Draw *draw) {
  MsTask *task = &row->task;
  switch (below(draw, 10)) {
  case 0: task->duration += 1 + below(draw, shape->longest); break;
  case 1: task->device = (task->device + 1) % shape->devices; break;
  case 2: task->stream = (guint8)((task->stream + 1u) % shape->streams); break;
  case 3: task->use = (task->use + 1) % MS_N_USES; break;
  case 4: task->host_sync = !task->host_sync; break;
  case 5: task->kind = (task->kind + 1) % 3; break;
  case 6: task->sms += 60; break;
  case 7: task->launch += shape->longest; break;
  case 8: row->n = (row->n + 1) % 4; break;
  default: row->back[below(draw, 3)]++;
  }
}

static void lay_rounds(MsGraph *graph, const Row *row, guint32 period, guint32 rounds) {
  for (guint32 k = 0; k < period * rounds; k++) {
    const Row *own = &row[k % period];
    guint32 i = ms_graph_count(graph), wait[3];
    for (guint32 w = 0; w < 3; w++) wait[w] = i - MIN(i, own->back[w]);
    ms_graph_add(graph, &own->task, wait, i ? own->n : 0);
  }
}

/* Most of its rounds are told to be alike, `left_out` of them are not laid down; before and behind those are some of
 * which one may be all but alike. */
static MsGraph *graph_of_rounds(const Shape *shape, Draw *draw, guint32 left_out) {
  g_autofree Row *row = g_new(Row, shape->period), *other = g_new(Row, shape->period);
  MsGraph *graph = ms_graph_new((int)shape->devices, (int)shape->streams);
  ms_graph_set_sms(graph, 132);
  random_rows(row, shape->period, shape, draw);
  memcpy(other, row, sizeof *row * shape->period);
  change_one_thing(&other[below(draw, shape->period)], shape, draw);
  lay_rounds(graph, row, shape->period, below(draw, 4));
  if (below(draw, 2)) lay_rounds(graph, other, shape->period, 1);
  lay_rounds(graph, row, shape->period, 1 + below(draw, 3));
  ms_graph_repeat(graph, shape->period, shape->rounds - left_out);
  ms_graph_leave_out(graph, left_out);
  lay_rounds(graph, row, shape->period, below(draw, 3));
  lay_rounds(graph, other, shape->period, 1);
  lay_rounds(graph, row, shape->period, below(draw, 8));
  return graph;
}

/* Of one of its tasks is known what follows it, of the one behind that only that something does. */
static void assert_one_tail_is_enough(const MsGraph *graph, const MsTrajectory *whole, guint32 devices, guint32 after) {
  g_autofree guint32 *base = g_new0(guint32, devices + 1);
  MsTail tail[2];
  guint32 n = 0, device = 0;
  for (guint32 i = after; i < whole->n && n < 2; i++) {
    const MsTask *task = ms_graph_task(graph, i);
    if (n > 0 && (task->device != device || task->stream != ms_graph_task(graph, tail[0].task)->stream)) continue;
    device = task->device;
    tail[n] = (MsTail){i, n ? 0 : whole->makespan - whole->end[i]}, n++;
  }
  for (guint32 d = device; d < devices; d++) base[d + 1] = n;
  const MsTails tails = {tail, base};
  g_autoptr(MsTrajectory) late = ms_engine_events_within(graph, NULL, whole->makespan - 1, &tails);
  assert_true(!late == (n > 0));
}

static void thirds_and_a_fifth(gconstpointer data, const guint8 *running, double *rate) {
  (void)data;
  for (int c = 0; c < MS_SHARING_CLASSES; c++) rate[c] = 1;
  if (running[0] + running[1] > 1) rate[0] = 1.0 / 3, rate[1] = 0.2 / running[1];
}

static void rounds_that_are_nearly_alike_are_told_apart(void **state) {
  (void)state;
  const MsSharing sharing = {.of = {0, 1, MS_SHARING_NONE}, .rates = thirds_and_a_fifth};
  gsize left_out = 0;
  for (guint64 seed = 1; seed <= 2000; seed++) {
    Draw draw = {seed * 0x9e3779b97f4a7c15u};
    Shape shape = random_shape(seed, TRUE);
    shape.devices = 1 + below(&draw, 3), shape.streams = 1 + below(&draw, 4);
    shape.period = 1 + below(&draw, 12), shape.rounds = 2 + below(&draw, 12);
    g_autoptr(MsGraph) graph = graph_of_rounds(&shape, &draw, 0);
    left_out += assert_rounds_change_nothing(graph, seed % 2 ? &sharing : NULL);
    if (seed % 4) continue;
    g_autoptr(MsTrajectory) whole = ms_engine_events(graph, NULL);
    assert_one_tail_is_enough(graph, whole, shape.devices, below(&draw, whole->n));
  }
  print_message("%" G_GSIZE_FORMAT " tasks were left out\n", left_out);
  assert_true(left_out >= 56378); /* whoever leaves out more may say so here */
}

/* Task for task, by their numbers. */
static void assert_stands_for(const MsTrajectory *fewer, const MsTrajectory *all) {
  const MsFold *fold = &fewer->fold;
  assert_int_equal(fewer->makespan, all->makespan);
  assert_int_equal(fewer->events, all->events);
  assert_int_equal(fewer->n + fold->times * fold->period, all->n);
  for (guint32 number = 0; number < all->n; number++) {
    guint32 rounds, i = ms_fold_task(fold, number, &rounds);
    MsTime later = rounds * fold->by;
    assert_int_equal(fewer->start[i] + later, all->start[number]);
    assert_int_equal(fewer->end[i] + later, all->end[number]);
    gint32 by = fewer->bound_by[i];
    assert_int_equal(by < 0 ? by : by + (gint32)(rounds * fold->period), all->bound_by[number]);
  }
}

static void rounds_that_are_not_laid_down_change_nothing(void **state) {
  (void)state;
  const MsSharing sharing = {.of = {0, 1, MS_SHARING_NONE}, .rates = thirds_and_a_fifth};
  int whole = 0, graphs = ms_by_tier(4000, 20000);
  for (guint64 seed = 30001; seed <= 30000 + (guint64)graphs; seed++) {
    Draw draw = {seed * 0x9e3779b97f4a7c15u};
    Shape shape = random_shape(seed, TRUE);
    shape.devices = 1 + below(&draw, 3), shape.streams = 1 + below(&draw, 4), shape.period = 1 + below(&draw, 12);
    guint32 left_out = 1 + below(&draw, 20);
    shape.rounds = 1 + below(&draw, 12) + left_out;
    if (below(&draw, 2)) shape.launches_in_100 = 100;
    Draw again = draw;
    g_autoptr(MsGraph) all = graph_of_rounds(&shape, &draw, 0), fewer = graph_of_rounds(&shape, &again, left_out);
    g_autoptr(MsTrajectory) run = ms_engine_events(all, seed % 2 ? &sharing : NULL);
    g_autoptr(MsTrajectory) folded = ms_engine_events(fewer, seed % 2 ? &sharing : NULL);
    if (!ms_trajectory_is_whole(folded, fewer)) continue;
    whole++;
    assert_stands_for(folded, run);
  }
  print_message("%d of %d graphs were whole without some of their rounds\n", whole, graphs);
  assert_true(whole >= graphs / 10);
}

static MsGraph *rounds_alone(const Shape *shape, const Row *row, guint32 before, guint32 rounds, guint32 behind) {
  MsGraph *graph = ms_graph_new((int)shape->devices, (int)shape->streams);
  ms_graph_set_sms(graph, 132);
  lay_rounds(graph, row, shape->period, before);
  ms_graph_repeat(graph, shape->period, rounds - 1);
  lay_rounds(graph, row, shape->period - 1, behind);
  return graph;
}

/* Task k of a round, in some of them. */
static gboolean lasts_so_long(const MsTrajectory *t, guint32 period, guint32 rounds, guint32 k, MsTime time) {
  for (guint32 task = k; task < rounds * period; task += period)
    if (t->end[task] - t->start[task] == time) return TRUE;
  return FALSE;
}

/* A round that is known is what the last two add, whatever stands behind them. The host decides in one of 5000. */
static void a_known_round_is_what_each_adds(void **state) {
  (void)state;
  const MsSharing thirds = {.of = {0, 1, MS_SHARING_NONE}, .rates = thirds_and_a_fifth};
  int known = 0;
  for (guint64 seed = 12001; seed <= 16000; seed++) {
    Draw draw = {seed * 0x9e3779b97f4a7c15u};
    const MsSharing *sharing = seed % 2 ? &thirds : NULL;
    Shape shape = random_shape(seed, TRUE);
    shape.devices = 1 + below(&draw, 2), shape.streams = 1 + below(&draw, 4), shape.period = 2 + below(&draw, 12);
    if (below(&draw, 2)) shape.launches_in_100 = 100, shape.syncs_in_100 = 0;
    g_autofree Row *row = g_new(Row, shape.period);
    random_rows(row, shape.period, &shape, &draw);
    guint32 before = 1 + below(&draw, 3), rounds = 3 + below(&draw, 3), behind = below(&draw, 2);
    g_autoptr(MsGraph) graph = rounds_alone(&shape, row, before, rounds, behind);
    g_autofree MsTime *lasts = g_new(MsTime, shape.period);
    MsRound round = {.lasts = lasts};
    g_autoptr(MsTrajectory) whole = ms_engine_events(graph, sharing);
    g_autoptr(MsTrajectory) asked = ms_engine_events_until_round(graph, sharing, &round);
    if (asked) {
      assert_same(whole, asked);
      continue;
    }
    known++;
    assert_true(round.events < whole->events);
    for (guint32 k = 0; k < shape.period; k++)
      assert_true(lasts_so_long(whole, shape.period, before + rounds - 1, k, lasts[k]));
    for (guint32 less = 1; less <= 2; less++) {
      g_autoptr(MsGraph) shorter = rounds_alone(&shape, row, before, rounds - less, behind);
      g_autoptr(MsTrajectory) t = ms_engine_events(shorter, sharing);
      assert_int_equal(whole->makespan - t->makespan, less * round.time);
    }
  }
  print_message("the round of %d of 4000 graphs was known\n", known);
  assert_true(known >= 1810); /* whoever knows more may say so here */
}

/* What the first tasks of a graph do is told where it is what they do alone. */
static void first_tasks_do_what_they_do_alone(void **state) {
  (void)state;
  int told = 0;
  for (guint64 seed = 1; seed <= 4000; seed++) {
    Draw draw = {seed * 0x9e3779b97f4a7c15u};
    Shape shape = random_shape(seed, TRUE);
    shape.tasks = 2 + below(&draw, 30), shape.devices = 1 + below(&draw, 2), shape.streams = 1 + below(&draw, 3);
    shape.n_wait = 3;
    g_autoptr(MsGraph) graph = random_graph(&shape, seed);
    g_autoptr(MsTrajectory) whole = ms_engine_events(graph, NULL);
    shape.tasks = 1 + below(&draw, shape.tasks - 1);
    g_autoptr(MsGraph) few = random_graph(&shape, seed);
    g_autoptr(MsTrajectory) alone = ms_engine_events(few, NULL);
    MsTime end = ms_trajectory_first_end(whole, shape.tasks);
    if (end < 0) continue;
    told++;
    assert_int_equal(alone->makespan, end);
    whole->n = shape.tasks, whole->makespan = end;
    assert_same(alone, whole);
  }
  print_message("told of %d of 4000 graphs\n", told);
  assert_true(told >= 2529); /* whoever tells more may say so here */
}

/* Of two chains of 10 a round one is 25 behind; a third waits for the first, and its first task ends at zero. */
static void what_ended_at_zero_has_ended(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 3);
  add(graph, 0, 0, MS_USE_NOTHING, 0, 0, 0, -1);
  add(graph, 0, 1, MS_USE_NOTHING, 0, 25, 0, -1);
  add(graph, 0, 2, MS_USE_NOTHING, 0, 0, 0, -1);
  add(graph, 0, 0, MS_USE_NOTHING, 0, 10, 0, -1);
  add(graph, 0, 1, MS_USE_NOTHING, 0, 10, 0, -1);
  add(graph, 0, 2, MS_USE_NOTHING, 0, 0, 0, 0); /* for the one of the first chain before */
  ms_graph_repeat(graph, 3, 20);
  assert_true(assert_rounds_change_nothing(graph, NULL) > 0);
}

static void same_input_same_output(void **state) {
  (void)state;
  Shape shape = {8, 8, 20000, 3, 1000000, 2, 50, TRUE, 0, 0, 0};
  g_autoptr(MsGraph) a = random_graph(&shape, 5), b = random_graph(&shape, 5);
  g_autoptr(MsTrajectory) ta = ms_engine_events(a, NULL), tb = ms_engine_events(b, NULL),
                          again = ms_engine_events(a, NULL);
  assert_valid(a, ta);
  assert_same(ta, tb);
  assert_same(ta, again);
}

static void long_times_do_not_overflow(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 2);
  ms_graph_set_sms(graph, 1000);
  MsTime day = G_GINT64_CONSTANT(86400000000000000);
  add(graph, 0, 0, MS_USE_COMPUTE, 0, 2 * day, 0, -1);
  add(graph, 0, 1, MS_USE_LINK0, 1, day, 0, -1);
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, NULL);
  CHECK(t, 0, 0, 2 * day + day / 1000); /* a day at 0.999 */
}

static void nothing_takes_no_time(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(3, 2);
  g_autoptr(MsTrajectory) relax = ms_engine_relax(graph), events = ms_engine_events(graph, NULL);
  assert_int_equal(relax->makespan + events->makespan, 0);
  assert_int_equal(relax->n + events->n, 0);
}

static void a_wrong_trajectory_is_rejected(void **state) {
  (void)state;
  Shape shape = {3, 3, 60, 2, 1000, 10, 50, FALSE, 0, 0, 0};
  g_autoptr(MsGraph) graph = random_graph(&shape, 9);
  char why[200];
  for (guint32 i = 0; i < shape.tasks; i++)
    for (int how = 0; how < 5; how++) {
      g_autoptr(MsTrajectory) t = ms_engine_relax(graph);
      if (how == 0) t->start[i] -= 1, t->end[i] -= 1;
      if (how == 1) t->start[i] += 1, t->end[i] += 1;
      if (how == 2) t->end[i] += 1;
      if (how == 3) t->bound_by[i] = t->bound_by[i] == -2 ? -1 : -2;
      if (how == 4) t->makespan++;
      assert_false(ms_test_trajectory_valid(graph, t, why, sizeof why));
      assert_true(strlen(why) > 10);
    }
}

/* --- classes that share by a rule of their own --- */

static int asked; /* how often the rule was */

static void a_quarter_and_the_rest(gconstpointer data, const guint8 *running, double *rate) {
  (void)data;
  asked++;
  for (int c = 0; c < MS_SHARING_CLASSES; c++) rate[c] = 1;
  if (running[0] && running[1]) rate[0] = 0.25, rate[1] = 0.75;
  if (running[0] == 2 && !running[1]) rate[0] = 0.5;
}

static void an_equal_share(gconstpointer data, const guint8 *running, double *rate) {
  (void)data;
  int k = 0;
  for (int c = 0; c < MS_SHARING_CLASSES; c++) k += running[c];
  for (int c = 0; c < MS_SHARING_CLASSES; c++) rate[c] = 1.0 / MAX(k, 1);
}

/* 1000 at a quarter beside 900 at three quarters, then alone: ends at 1900 and 1200; who is of no class is not slowed.
 */
static void classes_share_by_their_rule(void **state) {
  (void)state;
  g_autoptr(MsGraph) graph = ms_graph_new(1, 4);
  const MsSharing sharing = {.of = {0, 1, MS_SHARING_NONE}, .rates = a_quarter_and_the_rest};
  const MsTime duration[] = {1000, 900, 500, 100}, end[] = {1900, 1200, 500, 2000};
  for (guint32 i = 0; i < 4; i++) {
    const guint32 wait = 0;
    ms_graph_add(graph,
                 &(MsTask){.stream = (guint8)i,
                           .use = i == 2 ? MS_USE_LINK0 : MS_USE_LINK1,
                           .kind = (guint8)(i % 3),
                           .duration = duration[i]},
                 &wait, i == 3);
  }
  asked = 0;
  g_autoptr(MsTrajectory) t = ms_engine_events(graph, &sharing);
  for (guint32 i = 0; i < 4; i++) assert_int_equal(t->end[i], end[i]);
  assert_in_range(asked, 1, 4); /* once for each set that runs */
}

/* Where every task is of no class, or the rule is an equal share, as without one. */
static void an_equal_rule_changes_nothing(void **state) {
  (void)state;
  const Shape shape = {3, 4, 300, 3, 50, 5, 20, TRUE};
  for (guint64 seed = 1; seed <= 10; seed++) {
    g_autoptr(MsGraph) graph = random_graph(&shape, seed);
    MsSharing none = {.of = {MS_SHARING_NONE, MS_SHARING_NONE}, .rates = a_quarter_and_the_rest},
              equal = {.of = {MS_SHARING_NONE, 5}, .rates = an_equal_share};
    g_autoptr(MsTrajectory) a = ms_engine_events(graph, NULL);
    g_autoptr(MsTrajectory) b = ms_engine_events(graph, &none);
    g_autoptr(MsTrajectory) c = ms_engine_events(graph, &equal);
    for (guint32 i = 0; i < ms_graph_count(graph); i++)
      assert_int_equal(a->end[i], b->end[i]), assert_int_equal(a->end[i], c->end[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(engines_agree_where_nothing_is_shared),
      cmocka_unit_test(events_match_the_slow_engine),
      cmocka_unit_test(a_link_is_split_equally),
      cmocka_unit_test(communication_slows_compute),
      cmocka_unit_test(compute_keeps_a_tenth_of_its_speed),
      cmocka_unit_test(two_streams_that_compute_halve_each_other),
      cmocka_unit_test(rounding_is_up_at_the_end_and_down_on_the_way),
      cmocka_unit_test(host_issues_in_order_and_waits),
      cmocka_unit_test(stops_when_it_is_late),
      cmocka_unit_test(rounds_that_are_left_out_change_nothing),
      cmocka_unit_test(a_known_round_is_what_each_adds),
      cmocka_unit_test(first_tasks_do_what_they_do_alone),
      cmocka_unit_test(rounds_that_are_nearly_alike_are_told_apart),
      cmocka_unit_test(rounds_that_are_not_laid_down_change_nothing),
      cmocka_unit_test(what_ended_at_zero_has_ended),
      cmocka_unit_test(same_input_same_output),
      cmocka_unit_test(classes_share_by_their_rule),
      cmocka_unit_test(an_equal_rule_changes_nothing),
      cmocka_unit_test(long_times_do_not_overflow),
      cmocka_unit_test(nothing_takes_no_time),
      cmocka_unit_test(a_wrong_trajectory_is_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
