/* src/sched/zb_h.c - ZB-H1 and ZB-H2: zero-bubble schedules by rule (schedules.md 5.1, 5.2; arXiv 2401.10241). */
#include "sched/build.h"

gboolean ms_zb_applicable(MS_SCHEDULE_WHY) {
  (void)stages, (void)microbatches, (void)group;
  if (chunks != 1)
    return ms_schedule_refuse(why, size, "this zero-bubble schedule has one chunk per stage, not %d", chunks);
  if (ep_overlap)
    return ms_schedule_refuse(why, size, "a zero-bubble schedule has no forward/backward pairs to overlap");
  return TRUE;
}

/* One W, the oldest, as soon as more than `kept` input gradients wait for theirs. H1 runs it after B (before the next
 * F), H2 just before the next F: in the list that is the same place. */
static void put_stage(MsSchedule *schedule, int stage, int first, int kept) {
  int m = schedule->microbatches, w = 0;
  for (int j = 0; j < first; j++) ms_slot_put(schedule, stage, MS_SLOT_F, j, 0);
  for (int j = 0; j < m; j++) {
    if (first + j < m) ms_slot_put(schedule, stage, MS_SLOT_F, first + j, 0);
    ms_slot_put(schedule, stage, MS_SLOT_I, j, 0);
    if (j >= kept) ms_slot_put(schedule, stage, MS_SLOT_W, w++, 0);
  }
  while (w < m) ms_slot_put(schedule, stage, MS_SLOT_W, w++, 0);
}

MsSchedule *ms_zb_h1_build(MS_SCHEDULE_ARGS) {
  (void)group, (void)ep_overlap;
  MsSchedule *schedule = ms_schedule_alloc(stages, microbatches, chunks, MS_PLACE_ROUND_ROBIN, 3 * microbatches);
  for (int s = 0; s < stages; s++) put_stage(schedule, s, MIN(stages - 1 - s, microbatches), s);
  return schedule;
}

MsSchedule *ms_zb_h2_build(MS_SCHEDULE_ARGS) {
  (void)group, (void)ep_overlap;
  MsSchedule *schedule = ms_schedule_alloc(stages, microbatches, chunks, MS_PLACE_ROUND_ROBIN, 3 * microbatches);
  for (int s = 0; s < stages; s++) put_stage(schedule, s, MIN(2 * (stages - 1 - s), microbatches), 2 * s);
  return schedule;
}
