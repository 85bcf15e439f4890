/* src/sched/zb_h.c - ZB-H1 and ZB-H2: zero-bubble schedules by rule (docs/theory/schedules.md 5.1, 5.2; arXiv
 * 2401.10241). */
#include "sched/build.h"

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

MsSchedule *ms_zb_h1_build(const MsScheduleNumbers *n) {
  MsSchedule *schedule = ms_schedule_alloc(n->stages, n->microbatches, 1, MS_PLACE_ROUND_ROBIN, 3 * n->microbatches);
  for (int s = 0; s < n->stages; s++) put_stage(schedule, s, MIN(n->stages - 1 - s, n->microbatches), s);
  return schedule;
}

MsSchedule *ms_zb_h2_build(const MsScheduleNumbers *n) {
  MsSchedule *schedule = ms_schedule_alloc(n->stages, n->microbatches, 1, MS_PLACE_ROUND_ROBIN, 3 * n->microbatches);
  for (int s = 0; s < n->stages; s++) put_stage(schedule, s, MIN(2 * (n->stages - 1 - s), n->microbatches), 2 * s);
  return schedule;
}
