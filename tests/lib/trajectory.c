#include "lib/trajectory.h"

#include "engine/engine_priv.h"

typedef struct {
  MsTime end;
  gint32 last;
} Queue;

static gboolean wrong(char *why, size_t size, guint32 task, const char *what, gint64 is, gint64 should) {
  if (why && size)
    g_snprintf(why, size, "task %u: %s (%" G_GINT64_FORMAT ", should be %" G_GINT64_FORMAT ")", task, what, is, should);
  return FALSE;
}

/* A task starts at the latest of what it waits for, not before and not after. */
static gboolean check_start(const MsGraph *graph, const MsTrajectory *trajectory, guint32 i, MsTime issued,
                            const Queue *queue, char *why, size_t size) {
  const guint32 *wait;
  guint n_wait = ms_graph_waits(graph, i, &wait);
  MsTime ready = queue->end, start = trajectory->start[i];
  gint32 by = ready > 0 ? queue->last : -2;
  if (start < queue->end) return wrong(why, size, i, "starts before its stream is free", start, queue->end);
  for (guint k = 0; k < n_wait; k++) {
    MsTime end = trajectory->end[wait[k]];
    if (start < end) return wrong(why, size, i, "starts before a task that it waits for has ended", start, end);
    if (end > ready) ready = end, by = (gint32)wait[k];
  }
  if (start < issued) return wrong(why, size, i, "starts before the host has issued it", start, issued);
  if (issued > ready) ready = issued, by = -1;
  if (start != ready) return wrong(why, size, i, "starts later than it could", start, ready);
  if (trajectory->bound_by[i] != by)
    return wrong(why, size, i, "start is put down to the wrong task", trajectory->bound_by[i], by);
  return TRUE;
}

static gboolean check_duration(const MsGraph *graph, const MsTrajectory *trajectory, guint32 i, char *why,
                               size_t size) {
  MsTime took = trajectory->end[i] - trajectory->start[i], alone = graph->task[i].duration;
  if (took < alone) return wrong(why, size, i, "takes less time than alone", took, alone);
  gboolean may_share = ms_graph_shares(graph) && graph->task[i].use != MS_USE_NOTHING;
  if (took > alone && !may_share)
    return wrong(why, size, i, "takes more time than alone although nothing is shared", took, alone);
  return TRUE;
}

gboolean ms_test_trajectory_valid(const MsGraph *graph, const MsTrajectory *trajectory, char *why, size_t size) {
  if (trajectory->n != graph->n) return wrong(why, size, 0, "not the same number of tasks", trajectory->n, graph->n);
  g_autofree Queue *queue = g_new0(Queue, (size_t)graph->devices * graph->streams);
  g_autofree MsTime *cursor = g_new0(MsTime, graph->devices);
  MsTime makespan = 0;
  for (guint32 i = 0; i < graph->n; i++) {
    const MsTask *task = &graph->task[i];
    Queue *own = &queue[ms_queue_of(graph, task)];
    MsTime issued = task->launch > 0 ? (cursor[task->device] += task->launch) : 0;
    if (!check_start(graph, trajectory, i, issued, own, why, size) || !check_duration(graph, trajectory, i, why, size))
      return FALSE;
    *own = (Queue){trajectory->end[i], (gint32)i};
    if (task->host_sync) cursor[task->device] = MAX(cursor[task->device], trajectory->end[i]);
    makespan = MAX(makespan, trajectory->end[i]);
  }
  if (makespan != trajectory->makespan) return wrong(why, size, 0, "makespan", trajectory->makespan, makespan);
  return TRUE;
}
