/* src/engine/engine.h - the discrete-event engine.
 *
 * Input: tasks laid down in topological order. A task has a duration, belongs to one stream (FIFO, in order of
 * creation) of one device, waits for earlier tasks (any device), and may be issued by the host of its device, which
 * works through its tasks in creation order and may have to wait for some. Two engines behind one interface: `relax`
 * solves the longest path in one pass (valid when no duration depends on simulated time); `events` runs an event queue
 * where the rate of a running task depends on what else runs on its device (SMs taken by communication, shared links).
 * Where nothing is shared they agree to the last picosecond. Time is int64 picoseconds: ties are real ties, results do
 * not depend on compiler or threads. */
#ifndef MS_ENGINE_ENGINE_H
#define MS_ENGINE_ENGINE_H

#include <glib.h>

typedef gint64 MsTime; /* picoseconds */

/* What a task uses up on its device while it runs */
typedef enum {
  MS_USE_NOTHING,  /* copies, host work: never slowed */
  MS_USE_COMPUTE,  /* runs on the SMs: slowed by tasks that take SMs, and split equally between the streams
                      of a device that compute */
  MS_USE_LINK0,    /* scale-up link: shared equally between the tasks that use it */
  MS_USE_LINK1,    /* network */
  MS_USE_HOSTLINK, /* host link */
  MS_N_USES
} MsUse;

typedef struct MsGraph MsGraph;

/* Streams are numbered on each device from 0. (transfer full) */
MsGraph *ms_graph_new(int devices, int streams_per_device);
void ms_graph_free(MsGraph *graph);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsGraph, ms_graph_free)
void ms_graph_reserve(MsGraph *graph, guint tasks, guint waits); /* room; more may be added */

/* Adds a task and returns its index (0, 1, 2, ...). `wait` holds n_wait earlier task indices. `launch` is the host time
 * to issue it (0: not issued by the host, e.g. inside a graph replay); `host_sync`: the host issues nothing after it
 * until it has ended. `sms` taken from compute while it runs (of `sm_count` set for the device; 0, the default: taking
 * SMs has no effect); counts only for tasks that are not MS_USE_COMPUTE. `tag` is the caller's. */
typedef struct {
  guint32 device;
  guint8 stream, use, host_sync, kind; /* kind: the caller's, for MsSharing */
  guint16 sms;
  guint32 tag;
  MsTime duration, launch;
} MsTask;
guint32 ms_graph_add(MsGraph *graph, const MsTask *task, const guint32 *wait, guint n_wait);
/* Adds the last `period` tasks so many times more, each waiting for what the one before it waits for, `period` later.
 * `events` does not run what repeats itself, which changes nothing in what it finds (rounds.c). */
void ms_graph_repeat(MsGraph *graph, guint32 period, guint32 times);
/* Right behind it: so many times more are meant, but not laid down. `events` finds what it would find if they were, and
 * says so in MsTrajectory.fold; where it did not come to rounds that are alike that says nothing, nor do the times. Not
 * for `relax`, nor with tails. */
void ms_graph_leave_out(MsGraph *graph, guint32 times);
guint32 ms_graph_left_out(const MsGraph *graph);
guint32 ms_graph_count(const MsGraph *graph);
const MsTask *ms_graph_task(const MsGraph *graph, guint32 index);
const MsTask *ms_graph_tasks(const MsGraph *graph);                              /* all of them, until one is added */
guint ms_graph_waits(const MsGraph *graph, guint32 index, const guint32 **wait); /* explicit ones only */
/* Tasks of one device that compute take `factor` >= 1 times as long (rounded up). */
void ms_graph_slow(MsGraph *graph, guint32 device, double factor);
void ms_graph_set_sms(MsGraph *graph, int sm_count);                        /* of every device */
void ms_graph_set_device_sms(MsGraph *graph, guint32 device, int sm_count); /* of one, after that; more than 0 */

/* Rounds that are meant but were not laid down. Tasks have the numbers that they would have with them: from task `cut`
 * on so many more, and the `period` tasks before it once more for each round, each time `by` later. */
typedef struct {
  guint32 cut, period, times; /* times 0: none */
  MsTime by;
} MsFold;
/* The task that stands for the one of this number, and how many rounds before it that is. */
static inline guint32 ms_fold_task(const MsFold *fold, guint32 number, guint32 *rounds) {
  guint32 all = fold->times * fold->period;
  *rounds = 0;
  if (number < fold->cut || all == 0) return number;
  if (number - fold->cut >= all) return number - all;
  *rounds = (number - fold->cut) / fold->period + 1;
  return number - *rounds * fold->period;
}

typedef struct {
  guint32 n;
  MsTime *start, *end; /* [n] owned */
  gint32 *bound_by;    /* [n] owned: number of the task whose end decided the start (of several, the one before it on
                          its stream, else the first of its waits); -1 the host, -2 nothing (time 0) */
  MsTime makespan;
  guint64 events; /* tasks (relax), or ends plus starts that had to wait for their issue time (events) */
  MsFold fold;
} MsTrajectory;
void ms_trajectory_free(MsTrajectory *trajectory);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsTrajectory, ms_trajectory_free)

/* TRUE when `relax` may differ from `events`: some task takes SMs, or two streams of one device use the same link or
 * both compute. */
gboolean ms_graph_shares(const MsGraph *graph);
/* The longest path, in one pass: every task as fast as alone. */
MsTrajectory *ms_engine_relax(const MsGraph *graph);
/* The graph once more, every task as long as it was in `trajectory`, on devices that are free from `from`: end[devices]
 * gets when each of them has ended. */
void ms_engine_again(const MsGraph *graph, const MsTrajectory *trajectory, const MsTime *from, MsTime *end);
/* Tasks of some classes may share by a rule of their own: `rates` gets how many tasks of each class run on a device
 * (its streams are at most 15 then) and says at what share of full speed one of each then runs, at most 1; it is asked
 * once for each such set. */
enum { MS_SHARING_CLASSES = 16, MS_SHARING_NONE = 255 };
typedef struct {
  guint8 of[256]; /* class of tasks of each kind, MS_SHARING_NONE: they share as their use says */
  void (*rates)(gconstpointer data, const guint8 running[MS_SHARING_CLASSES], double rate[MS_SHARING_CLASSES]);
  gconstpointer data;
} MsSharing;
/* With sharing. With k running MS_USE_COMPUTE tasks and S SMs taken of SM, each of the k runs at rate max(SM - S, SM /
 * 10) / (SM k); with k running tasks of one link, each runs at 1 / k; `sharing` (NULL: none) goes before. When a rate
 * changes, the work done so far (elapsed x rate, rounded down to a picosecond) is settled; while it does not change
 * nothing is rounded except the end (up). Integers only: the same on every machine. */
MsTrajectory *ms_engine_events(const MsGraph *graph, const MsSharing *sharing);
/* The same, or NULL as soon as it is proven that the makespan is above `limit`: when `task` has ended nothing ends
 * before another `left`. of[base[d]] .. of[base[d + 1]] are those of device d, in the order in which they end. */
typedef struct {
  guint32 task;
  MsTime left;
} MsTail;
typedef struct {
  const MsTail *of;
  const guint32 *base; /* [devices + 1] */
} MsTails;
MsTrajectory *ms_engine_events_within(const MsGraph *graph, const MsSharing *sharing, MsTime limit,
                                      const MsTails *tails);

/* The same, or NULL as soon as it is known that each of the last two rounds of ms_graph_repeat, at least, makes the
 * makespan longer by one and the same time. */
typedef struct {
  MsTime time;
  guint64 events; /* until that was known */
  MsTime *lasts;  /* NULL, or room for how long each of the tasks that are repeated runs, which is told too */
} MsRound;
MsTrajectory *ms_engine_events_until_round(const MsGraph *graph, const MsSharing *sharing, MsRound *round);
/* FALSE: rounds are missing, and `events` did not find what they would do. */
gboolean ms_trajectory_is_whole(const MsTrajectory *trajectory, const MsGraph *graph);
/* When the first n tasks have ended; -1 where those behind begin before, and so may change what they do: else they do
 * what they would if those were not there. */
MsTime ms_trajectory_first_end(const MsTrajectory *trajectory, guint32 n);

/* For tests: whether rounds are left out, and how many tasks were until now. */
void ms_engine_allow_rounds(gboolean allow);
gboolean ms_engine_allows_rounds(void);
gsize ms_engine_left_out(void);

#endif
