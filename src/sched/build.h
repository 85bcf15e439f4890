/* src/sched/build.h - what the builders of single schedules share. Private to sched/. */
#ifndef MS_SCHED_BUILD_H
#define MS_SCHED_BUILD_H

#include "sched/sched.h"

#define MS_MOST_SLOTS 50e6 /* of a schedule: about 1 GB */

/* One block: room for `capacity` slots on every stage, n[] = 0. */
MsSchedule *ms_schedule_alloc(int stages, int microbatches, int chunks, MsPlacement placement, int capacity);

/* Appends to the list of one stage. */
static inline void ms_slot_put(MsSchedule *schedule, int stage, MsSlotKind kind, int mb, int chunk) {
  schedule->kinds |= 1u << kind;
  schedule->slot[stage][schedule->n[stage]++] = (MsSlot){kind, (gint16)chunk, 0, mb, 0};
}
static inline void ms_slot_put_pair(MsSchedule *schedule, int stage, int mb, int chunk, int mb2, int chunk2) {
  schedule->kinds |= 1u << MS_SLOT_FB;
  schedule->slot[stage][schedule->n[stage]++] = (MsSlot){MS_SLOT_FB, (gint16)chunk, (gint16)chunk2, mb, mb2};
}

/* Of a schedule whose lists are whole: fills `period` and `repeat`. */
void ms_schedule_find_period(MsSchedule *schedule);

#define SCHEDULE(id, word, about, build, fits, placement, chunks, copies, splits, sends, costs, pairs, steps, live, \
                 ...)                                                                                               \
  MsSchedule *build(const MsScheduleNumbers *numbers);                                                              \
  gboolean fits(const MsScheduleNumbers *numbers, char *why, size_t size);                                          \
  gint64 live(const MsScheduleNumbers *numbers, int stage, int chunk);
#include "sched/schedule.def"
#undef SCHEDULE

/* FALSE with a reason printed into why. */
gboolean ms_schedule_refuse(char *why, size_t size, const char *format, ...) G_GNUC_PRINTF(3, 4);

#endif
