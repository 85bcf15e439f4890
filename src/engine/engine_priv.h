/* src/engine/engine_priv.h - what the two engines share. Private to the engine. */
#ifndef MS_ENGINE_PRIV_H
#define MS_ENGINE_PRIV_H

#include "engine/engine.h"

struct MsGraph {
  guint32 devices, streams; /* streams of each device */
  guint32 n, capacity;
  guint32 n_waits, wait_capacity;
  MsTask *task;       /* [n] */
  guint32 *wait_base; /* [n + 1] first explicit wait of each task */
  guint32 *wait;
  guint32 sm_count;
  guint32 *device_sms; /* [devices] where they differ, else NULL: sm_count */
  gboolean has_host;   /* some task is issued or waited for by the host */
  gboolean shares_use, takes_sms;
  guint32 alike_from, alike_to, period; /* task i + period is like task i up to there; period 0: none was told */
  guint32 left_out;                     /* rounds behind those that are meant too */
  guint8 *first_stream; /* [devices][MS_N_USES] 1 + the first stream seen with this use; 0 none. A stream is < 255. */
};

MsTrajectory *ms_trajectory_alloc(guint32 n);

static inline guint32 ms_queue_of(const MsGraph *graph, const MsTask *task) {
  return task->device * graph->streams + task->stream;
}
static inline gboolean ms_on_host(const MsTask *task) { return task->launch > 0 || task->host_sync; }

#endif
