/* src/report/slots.c - a simulated step read slot by slot. */
#include "report/slots.h"

static int stages_of(const MsDetail *d) {
  if (d->schedule) return d->schedule->stages;
  guint32 most = 0;
  for (guint32 i = 0; i < ms_graph_count(d->graph); i++) most = MAX(most, ms_graph_task(d->graph, i)->device + 1);
  return (int)most;
}

MsWalk ms_walk_new(const MsDetail *detail) {
  MsWalk walk = {detail, stages_of(detail), NULL};
  walk.cursor = g_new0(guint32, walk.stages + 1);
  return walk;
}

const MsSlot *ms_walk_slot(MsWalk *walk, guint32 stage, guint32 index, guint32 *flat) {
  const MsDetail *d = walk->detail;
  if (!d->slot_task || !d->schedule || (int)stage >= walk->stages) return NULL;
  const guint32 *first = d->slot_task + d->slot_base[stage];
  guint32 n = (guint32)d->schedule->n[stage], *k = &walk->cursor[stage];
  if (n == 0 || index < first[0]) return NULL;
  while (*k < n && index >= first[*k + 1]) ++*k;
  if (*k >= n) return NULL;
  *flat = d->slot_base[stage] + *k;
  return &d->schedule->slot[stage][*k];
}

MsSlotSpans ms_slot_spans_new(const MsDetail *d) {
  MsWalk walk = ms_walk_new(d);
  guint32 slots = d->slot_task && d->schedule ? d->slot_base[walk.stages] : 0, flat = 0;
  MsSlotSpans passes = {g_new0(MsTime, slots + 1), g_new(MsTime, slots + 1)};
  for (guint32 i = 0; i < slots; i++) passes.end[i] = -1;
  for (guint32 i = 0; i < d->trajectory->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    if (!ms_walk_slot(&walk, task->device, i, &flat) || task->stream != MS_STREAM_COMPUTE) continue;
    if (passes.end[flat] < 0) passes.start[flat] = d->trajectory->start[i];
    passes.end[flat] = MAX(passes.end[flat], d->trajectory->end[i]);
  }
  g_free(walk.cursor);
  return passes;
}

void ms_slot_spans_clear(MsSlotSpans *passes) {
  g_free(passes->start);
  g_free(passes->end);
}

void ms_each_memory_point(const MsDetail *d, const MsSlotSpans *passes, MsMemoryPoint point, gpointer user) {
  if (!d->work || !d->schedule || !d->slot_task) return;
  for (int s = 0; s < d->schedule->stages; s++) {
    g_autofree double *bytes_B = ms_memory_timeline(d->work, d->schedule, s);
    MsTime now = 0;
    point(user, s, now, bytes_B[0], NULL);
    for (int k = 0; k < d->schedule->n[s]; k++) {
      now = MAX(now, passes->end[d->slot_base[s] + (guint32)k]);
      point(user, s, now, bytes_B[k + 1], &d->schedule->slot[s][k]);
    }
  }
}
