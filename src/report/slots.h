/* src/report/slots.h - internal to report/: a simulated step read slot by slot, for the trace, the timeline and the
 * page. */
#ifndef MS_REPORT_SLOTS_H
#define MS_REPORT_SLOTS_H

#include "sim/simulate.h"

typedef struct { /* walks tasks in ascending order and knows the slot of each */
  const MsDetail *detail;
  int stages;
  guint32 *cursor; /* [stages] slot that the next task of the stage belongs to; owned, free with g_free */
} MsWalk;
MsWalk ms_walk_new(const MsDetail *detail);
/* The slot that task `index` of `stage` runs for and its flat number; NULL before the first slot and after the last. */
const MsSlot *ms_walk_slot(MsWalk *walk, guint32 stage, guint32 index, guint32 *flat);

typedef struct { /* compute time of every slot, flat as MsDetail.slot_base; end < 0: nothing ran */
  MsTime *start, *end;
} MsSlotSpans;
MsSlotSpans ms_slot_spans_new(const MsDetail *detail);
void ms_slot_spans_clear(MsSlotSpans *passes);

/* Calls `point` with the allocated bytes at the start of the step and at the end of every slot, stage by stage; slot is
 * NULL at the start. */
typedef void (*MsMemoryPoint)(gpointer user, int stage, MsTime time_ps, double allocated_B, const MsSlot *slot);
void ms_each_memory_point(const MsDetail *detail, const MsSlotSpans *passes, MsMemoryPoint point, gpointer user);

#endif
