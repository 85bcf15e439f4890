#include "lib/unshared.h"

MsGraph *ms_test_unshared(const MsGraph *graph, int stages, gboolean host) {
  MsGraph *copy = ms_graph_new(stages, MS_N_STREAMS);
  for (guint32 i = 0; i < ms_graph_count(graph); i++) {
    MsTask task = *ms_graph_task(graph, i);
    const guint32 *wait;
    guint n = ms_graph_waits(graph, i, &wait);
    if (task.use != MS_USE_COMPUTE || task.stream != MS_STREAM_COMPUTE)
      task.use = MS_USE_NOTHING; /* some kernels run on the stream of the exchanges */
    task.sms = 0;
    if (!host) task.launch = 0, task.host_sync = 0;
    ms_graph_add(copy, &task, wait, n);
  }
  return copy;
}
