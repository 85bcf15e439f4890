/* src/sched/one_f1b.c - GPipe, 1F1B and interleaved 1F1B (schedules.md 1-4; Megatron-Core
 * pipeline_parallel/schedules.py). */
#include "sched/build.h"

gboolean ms_gpipe_applicable(MS_SCHEDULE_WHY) {
  if (ep_overlap) return ms_schedule_refuse(why, size, "gpipe has no forward/backward pairs to overlap");
  if (chunks > 1 && stages == 1)
    return ms_schedule_refuse(why, size, "%d chunks per stage need at least 2 stages", chunks);
  if (chunks > 1 && group > microbatches)
    return ms_schedule_refuse(why, size, "the microbatch group %d is more than the %d microbatches", group,
                              microbatches);
  return TRUE;
}

gboolean ms_1f1b_applicable(MS_SCHEDULE_WHY) {
  if (chunks == 1) {
    if (ep_overlap && stages > 1)
      return ms_schedule_refuse(
          why, size, "overlapping forward with backward over %d stages needs at least 2 chunks per stage", stages);
    return TRUE;
  }
  int n = group ? group : stages;
  if (stages == 1) return ms_schedule_refuse(why, size, "%d chunks per stage need at least 2 stages", chunks);
  if (n < stages || n > microbatches)
    return ms_schedule_refuse(why, size,
                              "the microbatch group %d must be at least the %d stages and at most the %d microbatches",
                              n, stages, microbatches);
  if (microbatches % n && microbatches % n < stages)
    return ms_schedule_refuse(why, size,
                              "%d microbatches in groups of %d leave a group of %d, fewer than the %d stages",
                              microbatches, n, microbatches % n, stages);
  return TRUE;
}

typedef struct {
  gint32 mb;
  gint16 chunk;
} Entry;

/* Groups of `group` microbatches; each group runs through all chunks before the next starts; the last group may be
 * smaller. */
static void fill_table(Entry *table, int microbatches, int chunks, int group) {
  for (int first = 0; first < microbatches; first += group)
    for (int c = 0, last = MIN(first + group, microbatches); c < chunks; c++)
      for (int mb = first; mb < last; mb++) *table++ = (Entry){mb, (gint16)c};
}

/* Forwards that a stage runs before its first backward. */
static gint64 warm_up(int stages, int stage, int chunks, int group, gboolean ep_overlap) {
  gint64 distance = stages - stage - 1;
  return chunks == 1 ? distance + (ep_overlap ? 1 : 0)
                     : 2 * distance + (gint64)(chunks - 1) * group + (ep_overlap ? 1 : 0);
}

/* All forwards, then all backwards, both in the order of the table: any group serves, since every stage has the same
 * list. */
MsSchedule *ms_gpipe_build(MS_SCHEDULE_ARGS) {
  (void)ep_overlap;
  int n = microbatches * chunks;
  g_autofree Entry *table = g_new(Entry, n);
  fill_table(table, microbatches, chunks, chunks == 1 ? microbatches : group ? group : MIN(stages, microbatches));
  MsSchedule *schedule = ms_schedule_alloc(stages, microbatches, chunks, MS_PLACE_ROUND_ROBIN, 2 * n);
  for (int s = 0; s < stages; s++) {
    for (int k = 0; k < n; k++) ms_slot_put(schedule, s, MS_SLOT_F, table[k].mb, table[k].chunk);
    for (int k = 0; k < n; k++) ms_slot_put(schedule, s, MS_SLOT_B, table[k].mb, chunks - 1 - table[k].chunk);
  }
  return schedule;
}

MsSchedule *ms_1f1b_build(MS_SCHEDULE_ARGS) {
  int n = microbatches * chunks, last = chunks - 1;
  g_autofree Entry *table = g_new(Entry, n);
  if (!group || chunks == 1) group = stages;
  fill_table(table, microbatches, chunks, group);
  MsSchedule *schedule = ms_schedule_alloc(stages, microbatches, chunks, MS_PLACE_ROUND_ROBIN, 2 * n);
  for (int s = 0; s < stages; s++) {
    gint64 wanted = warm_up(stages, s, chunks, group, ep_overlap);
    int w = (int)MIN(wanted, n);
    for (int k = 0; k < w; k++) ms_slot_put(schedule, s, MS_SLOT_F, table[k].mb, table[k].chunk);
    for (int k = 0; k < n - w; k++) {
      const Entry *f = &table[k + w], *b = &table[k];
      if (ep_overlap) {
        ms_slot_put_pair(schedule, s, f->mb, f->chunk, b->mb, last - b->chunk);
      } else {
        ms_slot_put(schedule, s, MS_SLOT_F, f->mb, f->chunk);
        ms_slot_put(schedule, s, MS_SLOT_B, b->mb, last - b->chunk);
      }
    }
    for (int k = n - w; k < n; k++) ms_slot_put(schedule, s, MS_SLOT_B, table[k].mb, last - table[k].chunk);
  }
  return schedule;
}
