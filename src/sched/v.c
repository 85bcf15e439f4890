/* src/sched/v.c - schedules over two chunks in V order: ZB-V, V-half, V-min (schedules.md 5.4, 5.5). */
#include "sched/build.h"
gboolean ms_zb_v_applicable(MS_SCHEDULE_WHY) { (void)stages, (void)microbatches, (void)chunks, (void)group, (void)ep_overlap; return ms_schedule_refuse(why, size, "not built"); }
gboolean ms_v_applicable(MS_SCHEDULE_WHY) { (void)stages, (void)microbatches, (void)chunks, (void)group, (void)ep_overlap; return ms_schedule_refuse(why, size, "not built"); }
