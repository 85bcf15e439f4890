/* bench/bench_engine.c - tasks per second of the engines on one core: a pipeline-like graph of 16 devices x 8 streams.
 * Prints, never judges. */
#include "engine/engine.h"

#include <stdio.h>

enum { DEVICES = 16, STREAMS = 8, TASKS = 1000000, REPEATS = 5 };

static guint64 state = 88172645463325252u;
static guint32 draw(guint32 below) { /* xorshift64: seeded, the same everywhere */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (guint32)((state >> 32) * below >> 32);
}

typedef struct {
  gboolean shared, host;
} Kind;

/* 30 % communication tasks; about 1.3 explicit waits a task, most of them recent. Unshared: compute on stream 0 only,
 * each link on one stream. */
static MsGraph *make_graph(Kind kind) {
  MsGraph *graph = ms_graph_new(DEVICES, STREAMS);
  ms_graph_reserve(graph, TASKS, 2 * TASKS);
  ms_graph_set_sms(graph, 132);
  for (guint32 i = 0; i < TASKS; i++) {
    gboolean comm = draw(10) < 3;
    MsTask task = {.device = draw(DEVICES), .duration = 1000 + draw(1000000), .launch = kind.host ? 2000 : 0, .tag = i};
    if (comm)
      task.stream = kind.shared ? 2 + draw(STREAMS - 2) : 2 + draw(3),
      task.use = kind.shared ? MS_USE_LINK0 + draw(2) : MS_USE_LINK0 + task.stream - 2;
    else task.stream = 0, task.use = MS_USE_COMPUTE;
    if (comm && kind.shared) task.sms = 20;
    guint32 wait[3], n = i < 200 ? 0 : draw(10) < 8 ? 1 + (draw(10) < 6) : 0;
    for (guint32 k = 0; k < n; k++) wait[k] = i - 1 - draw(k ? 200 : 50);
    ms_graph_add(graph, &task, wait, n);
  }
  return graph;
}

static double best_rate(const MsGraph *graph, MsTrajectory *(*engine)(const MsGraph *)) {
  double best = 0;
  for (int k = 0; k < REPEATS; k++) {
    gint64 begin = g_get_monotonic_time();
    MsTrajectory *trajectory = engine(graph);
    gint64 took = MAX(g_get_monotonic_time() - begin, 1);
    ms_trajectory_free(trajectory);
    best = MAX(best, TASKS / (took * 1e-6));
  }
  return best;
}

/* Share of the tasks that took longer than alone: shows that the shared graph shares. */
static double stretched(const MsGraph *graph) {
  g_autoptr(MsTrajectory) trajectory = ms_engine_events(graph, NULL);
  int n = 0;
  for (guint32 i = 0; i < TASKS; i++)
    n += trajectory->end[i] - trajectory->start[i] > ms_graph_task(graph, i)->duration;
  return (double)n / TASKS;
}

int main(void) {
  gint64 begin = g_get_monotonic_time();
  g_autoptr(MsGraph) plain = make_graph((Kind){FALSE, FALSE});
  double build = TASKS / ((g_get_monotonic_time() - begin) * 1e-6);
  g_autoptr(MsGraph) host = make_graph((Kind){FALSE, TRUE});
  g_autoptr(MsGraph) shared = make_graph((Kind){TRUE, FALSE});
  double relax = best_rate(plain, ms_engine_relax), events = best_rate(plain, ms_engine_events),
         sharing = best_rate(shared, ms_engine_events);
  const guint32 *wait;
  guint64 waits = 0;
  for (guint32 i = 0; i < TASKS; i++) waits += ms_graph_waits(plain, i, &wait);
  printf("engine: %d tasks, %d devices x %d streams, %.2f waits a task (millions of tasks/s, best of %d)\n", TASKS,
         DEVICES, STREAMS, (double)waits / TASKS, REPEATS);
  printf("  build            %8.1f\n", build * 1e-6);
  printf("  relax            %8.1f\n", relax * 1e-6);
  printf("  relax, host      %8.1f\n", best_rate(host, ms_engine_relax) * 1e-6);
  printf("  events, unshared %8.2f  (relax / events %.1f)\n", events * 1e-6, relax / events);
  printf("  events, host     %8.2f\n", best_rate(host, ms_engine_events) * 1e-6);
  printf("  events, shared   %8.2f  (unshared / shared %.1f; %.0f %% of the tasks stretched)\n", sharing * 1e-6,
         events / sharing, 100 * stretched(shared));
  return 0;
}
