/* src/engine/engine.c - the task graph, the longest-path engine, and the check of a trajectory. */
#include "base/err.h"
#include "engine/engine_priv.h"
#include <math.h>
#include <string.h>

/* --- graph ----------------------------------------------------------------------------------------------------- */

MsGraph *ms_graph_new(int devices, int streams_per_device) {
  if (devices < 1 || streams_per_device < 1 || streams_per_device > 64)
    MS_BUG("graph of %d devices, %d streams", devices, streams_per_device);
  MsGraph *graph = g_new0(MsGraph, 1);
  graph->devices = devices, graph->streams = streams_per_device;
  graph->first_stream = g_new0(guint8, (size_t)devices * MS_N_USES);
  ms_graph_reserve(graph, 64, 64);
  graph->wait_base[0] = 0;
  return graph;
}

void ms_graph_free(MsGraph *graph) {
  if (!graph) return;
  g_free(graph->task), g_free(graph->wait_base), g_free(graph->wait), g_free(graph->first_stream),
      g_free(graph->device_sms), g_free(graph);
}

void ms_graph_reserve(MsGraph *graph, guint tasks, guint waits) {
  if (tasks > graph->capacity) {
    graph->capacity = tasks;
    graph->task = g_renew(MsTask, graph->task, tasks);
    graph->wait_base = g_renew(guint32, graph->wait_base, (size_t)tasks + 1);
  }
  if (waits > graph->wait_capacity) {
    graph->wait_capacity = waits;
    graph->wait = g_renew(guint32, graph->wait, waits);
  }
}

static void make_room(MsGraph *graph, guint n_wait) {
  if (graph->n >= G_MAXINT32 || graph->n_waits > G_MAXUINT32 / 2 - n_wait) MS_BUG("more than 2^31 tasks or waits");
  if (graph->n == graph->capacity) ms_graph_reserve(graph, 2 * graph->capacity, 0);
  if (graph->n_waits + n_wait > graph->wait_capacity) ms_graph_reserve(graph, 0, 2 * (graph->n_waits + n_wait));
}

static void note_sharing(MsGraph *graph, const MsTask *task) {
  if (task->sms && task->use != MS_USE_COMPUTE) graph->takes_sms = TRUE;
  if (task->use == MS_USE_NOTHING) return;
  guint8 *first = &graph->first_stream[task->device * MS_N_USES + task->use];
  if (!*first) *first = task->stream + 1;
  else if (*first != task->stream + 1) graph->shares_use = TRUE;
}

guint32 ms_graph_add(MsGraph *graph, const MsTask *task, const guint32 *wait, guint n_wait) {
  guint32 index = graph->n;
  if (G_UNLIKELY(task->device >= graph->devices || task->stream >= graph->streams || task->use >= MS_N_USES ||
                 task->duration < 0 || task->launch < 0))
    MS_BUG("task %u: device %u, stream %u, use %u, duration %" G_GINT64_FORMAT ", launch %" G_GINT64_FORMAT, index,
           task->device, task->stream, task->use, task->duration, task->launch);
  if (G_UNLIKELY(index >= graph->capacity || graph->n_waits + n_wait > graph->wait_capacity)) make_room(graph, n_wait);
  for (guint k = 0; k < n_wait; k++) {
    if (G_UNLIKELY(wait[k] >= index)) MS_BUG("task %u waits for task %u, which is not before it", index, wait[k]);
    graph->wait[graph->n_waits + k] = wait[k];
  }
  graph->n_waits += n_wait;
  graph->task[index] = *task;
  graph->wait_base[index + 1] = graph->n_waits;
  graph->has_host |= ms_on_host(task);
  note_sharing(graph, task);
  graph->n++;
  return index;
}

void ms_graph_repeat(MsGraph *graph, guint32 period, guint32 times) {
  guint32 from = graph->n - period, first = graph->wait_base[from], waits = graph->n_waits - first;
  guint64 tasks = (guint64)graph->n + (guint64)times * period, all = graph->n_waits + (guint64)times * waits;
  if (tasks >= G_MAXINT32 || all > G_MAXUINT32 / 2) MS_BUG("more than 2^31 tasks or waits");
  ms_graph_reserve(graph, (guint)tasks, (guint)all);
  for (guint32 round = 0; round < times; round++) {
    memcpy(graph->task + graph->n, graph->task + from, sizeof *graph->task * period);
    for (guint32 i = graph->n; i < graph->n + period; i++)
      graph->wait_base[i + 1] = graph->wait_base[i + 1 - period] + waits;
    for (guint32 k = graph->n_waits; k < graph->n_waits + waits; k++) graph->wait[k] = graph->wait[k - waits] + period;
    graph->n += period, graph->n_waits += waits;
  }
  graph->alike_from = from, graph->alike_to = graph->n, graph->period = period;
}

void ms_graph_leave_out(MsGraph *graph, guint32 times) {
  if (graph->n != graph->alike_to) MS_BUG("rounds are left out behind other tasks");
  if ((guint64)graph->n + (guint64)times * graph->period >= G_MAXINT32) MS_BUG("more than 2^31 tasks");
  graph->left_out = times;
}

guint32 ms_graph_left_out(const MsGraph *graph) { return graph->left_out; }

guint32 ms_graph_count(const MsGraph *graph) { return graph->n; }
const MsTask *ms_graph_task(const MsGraph *graph, guint32 index) { return &graph->task[index]; }
const MsTask *ms_graph_tasks(const MsGraph *graph) { return graph->task; }
void ms_graph_slow(MsGraph *graph, guint32 device, double factor) {
  for (guint32 i = 0; i < graph->n; i++) {
    MsTask *task = &graph->task[i];
    if (task->device == device && task->use == MS_USE_COMPUTE)
      task->duration = (MsTime)ceil((double)task->duration * factor);
  }
}

void ms_graph_set_sms(MsGraph *graph, int sm_count) { graph->sm_count = MAX(sm_count, 0); }
void ms_graph_set_device_sms(MsGraph *graph, guint32 device, int sm_count) {
  if (!graph->device_sms) {
    graph->device_sms = g_new(guint32, graph->devices);
    for (guint32 i = 0; i < graph->devices; i++) graph->device_sms[i] = graph->sm_count;
  }
  graph->device_sms[device] = (guint32)MAX(sm_count, 1);
}
gboolean ms_graph_shares(const MsGraph *graph) { return graph->shares_use || (graph->takes_sms && graph->sm_count); }

guint ms_graph_waits(const MsGraph *graph, guint32 index, const guint32 **wait) {
  *wait = graph->wait + graph->wait_base[index];
  return graph->wait_base[index + 1] - graph->wait_base[index];
}

/* --- trajectory ------------------------------------------------------------------------------------------------ */

MsTrajectory *ms_trajectory_alloc(guint32 n) {
  MsTrajectory *trajectory = g_new0(MsTrajectory, 1);
  trajectory->n = n;
  trajectory->start = g_new(MsTime, n), trajectory->end = g_new(MsTime, n), trajectory->bound_by = g_new(gint32, n);
  return trajectory;
}

void ms_trajectory_free(MsTrajectory *trajectory) {
  if (!trajectory) return;
  g_free(trajectory->start), g_free(trajectory->end), g_free(trajectory->bound_by), g_free(trajectory);
}

gboolean ms_trajectory_is_whole(const MsTrajectory *trajectory, const MsGraph *graph) {
  return trajectory->fold.times == graph->left_out;
}

MsTime ms_trajectory_first_end(const MsTrajectory *t, guint32 n) {
  MsTime end = 0;
  for (guint32 i = 0; i < n; i++) end = MAX(end, t->end[i]);
  for (guint32 i = n; i < t->n; i++)
    if (t->start[i] < end) return -1;
  return end;
}

/* --- relax ----------------------------------------------------------------------------------------------------- */

typedef struct {
  MsTime end;
  gint32 last;
} Queue; /* of one stream: its last task */

/* The host reaches `task`: when it has issued it. */
static inline MsTime host_issue(MsTime *cursor, const MsTask *task) { return *cursor += task->launch; }
/* Every later task of this device is issued after `end`. */
static inline void host_wait(MsTime *cursor, MsTime end) { *cursor = MAX(*cursor, end); }

/* One pass in creation order: everything a task waits for has its end already. Inlined twice, with and without the
 * host. */
static inline MsTime relax(const MsGraph *graph, MsTrajectory *trajectory, Queue *queue, MsTime *cursor,
                           gboolean host) {
  const MsTask *task = graph->task;
  const guint32 *base = graph->wait_base, *wait = graph->wait;
  MsTime *restrict start = trajectory->start, *restrict end = trajectory->end;
  gint32 *restrict bound_by = trajectory->bound_by;
  MsTime makespan = 0;
  guint32 streams = graph->streams, k = 0;
  for (guint32 i = 0, n = graph->n; i < n; i++) {
    Queue *own = &queue[task[i].device * streams + task[i].stream];
    MsTime ready = own->end;
    gint32 by = ready > 0 ? own->last : -2;
    for (guint32 last = base[i + 1]; k < last; k++) {
      guint32 w = wait[k];
      MsTime e = end[w];
      by = e > ready ? (gint32)w : by;
      ready = e > ready ? e : ready;
    }
    if (host && task[i].launch > 0) {
      MsTime issued = host_issue(&cursor[task[i].device], &task[i]);
      if (issued > ready) ready = issued, by = -1;
    }
    MsTime done = ready + task[i].duration;
    start[i] = ready, end[i] = done, bound_by[i] = by;
    own->end = done, own->last = (gint32)i;
    makespan = MAX(makespan, done);
    if (host && task[i].host_sync) host_wait(&cursor[task[i].device], done);
  }
  return makespan;
}

void ms_engine_again(const MsGraph *graph, const MsTrajectory *t, const MsTime *from, MsTime *end) {
  guint32 queues = graph->devices * graph->streams;
  g_autofree MsTime *queue = g_new(MsTime, queues), *done = g_new(MsTime, graph->n);
  g_autofree MsTime *cursor = g_memdup2(from, graph->devices * sizeof *from);
  for (guint32 q = 0; q < queues; q++) queue[q] = from[q / graph->streams];
  memcpy(end, from, graph->devices * sizeof *from);
  for (guint32 i = 0, k = 0; i < graph->n; i++) {
    const MsTask *task = &graph->task[i];
    MsTime *own = &queue[ms_queue_of(graph, task)], ready = *own;
    for (guint32 last = graph->wait_base[i + 1]; k < last; k++) ready = MAX(ready, done[graph->wait[k]]);
    MsTime issued = task->launch > 0 ? host_issue(&cursor[task->device], task) : 0;
    done[i] = *own = MAX(ready, issued) + t->end[i] - t->start[i];
    end[task->device] = MAX(end[task->device], done[i]);
    if (task->host_sync) host_wait(&cursor[task->device], done[i]);
  }
}

MsTrajectory *ms_engine_relax(const MsGraph *graph) {
  if (graph->left_out) MS_BUG("rounds are left out of a graph that is run in one pass");
  MsTrajectory *trajectory = ms_trajectory_alloc(graph->n);
  g_autofree Queue *queue = g_new0(Queue, (size_t)graph->devices * graph->streams);
  g_autofree MsTime *cursor = g_new0(MsTime, graph->devices);
  trajectory->makespan =
      graph->has_host ? relax(graph, trajectory, queue, cursor, TRUE) : relax(graph, trajectory, queue, cursor, FALSE);
  trajectory->events = graph->n;
  return trajectory;
}
