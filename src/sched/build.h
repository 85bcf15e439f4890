/* src/sched/build.h - what the builders of single schedules share. Private to sched/. */
#ifndef MS_SCHED_BUILD_H
#define MS_SCHED_BUILD_H

#include "sched/sched.h"

/* One block: room for `capacity` slots on every stage, n[] = 0. */
MsSchedule *ms_schedule_alloc(int stages, int microbatches, int chunks, MsPlacement placement, int capacity);

/* Appends to the list of one stage. */
static inline void ms_slot_put(MsSchedule *schedule, int stage, MsSlotKind kind, int mb, int chunk) {
  schedule->slot[stage][schedule->n[stage]++] = (MsSlot){kind, (gint16)chunk, 0, mb, 0};
}
static inline void ms_slot_put_pair(MsSchedule *schedule, int stage, int mb, int chunk, int mb2, int chunk2) {
  schedule->slot[stage][schedule->n[stage]++] = (MsSlot){MS_SLOT_FB, (gint16)chunk, (gint16)chunk2, mb, mb2};
}

#define MS_SCHEDULE_ARGS int stages, int microbatches, int chunks, int group, gboolean ep_overlap
#define MS_SCHEDULE_WHY  MS_SCHEDULE_ARGS, char *why, size_t size
gboolean ms_1f1b_applicable(MS_SCHEDULE_WHY), ms_gpipe_applicable(MS_SCHEDULE_WHY), ms_zb_applicable(MS_SCHEDULE_WHY),
    ms_zb_v_applicable(MS_SCHEDULE_WHY), ms_v_applicable(MS_SCHEDULE_WHY), ms_dualpipe_applicable(MS_SCHEDULE_WHY),
    ms_dualpipev_applicable(MS_SCHEDULE_WHY);
MsSchedule *ms_1f1b_build(MS_SCHEDULE_ARGS), *ms_gpipe_build(MS_SCHEDULE_ARGS), *ms_zb_h1_build(MS_SCHEDULE_ARGS),
    *ms_zb_h2_build(MS_SCHEDULE_ARGS), *ms_zb_1p_build(MS_SCHEDULE_ARGS), *ms_zb_2p_build(MS_SCHEDULE_ARGS),
    *ms_zb_v_build(MS_SCHEDULE_ARGS), *ms_v_half_build(MS_SCHEDULE_ARGS), *ms_v_min_build(MS_SCHEDULE_ARGS),
    *ms_dualpipe_build(MS_SCHEDULE_ARGS), *ms_dualpipev_build(MS_SCHEDULE_ARGS);

/* FALSE with a reason printed into why. */
gboolean ms_schedule_refuse(char *why, size_t size, const char *format, ...) G_GNUC_PRINTF(3, 4);

#endif
