/* src/sched/schedule.c - the table of schedules, their memory, and which stage holds what. */
#include "sched/build.h"

#include <stdarg.h>
#include <string.h>

const char *const ms_slot_words[] = {"F", "B", "I", "W", "FB", NULL};

/* In the order of ms_schedule_words (describe/enums.h), which this layer may not include. */
const MsScheduleRow ms_schedule_rows[] = {
    {"1f1b", ms_1f1b_applicable, ms_1f1b_build},
    {"zb-h1", ms_zb_applicable, ms_zb_h1_build},
    {"zb-h2", ms_zb_applicable, ms_zb_h2_build},
    {"zb-1p", ms_zb_applicable, ms_zb_1p_build},
    {"zb-2p", ms_zb_applicable, ms_zb_2p_build},
    {"zb-v", ms_zb_v_applicable, ms_zb_v_build},
    {"v-half", ms_v_applicable, ms_v_half_build},
    {"v-min", ms_v_applicable, ms_v_min_build},
    {"dualpipe", ms_dualpipe_applicable, ms_dualpipe_build},
    {"dualpipev", ms_dualpipev_applicable, ms_dualpipev_build},
    {"gpipe", ms_gpipe_applicable, ms_gpipe_build},
    {NULL, NULL, NULL},
};

#define MAX_PASSES 50e6 /* p m v 2: about 1 GB of slots */

gboolean ms_schedule_refuse(char *why, size_t size, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (why && size) g_vsnprintf(why, size, format, args);
  va_end(args);
  return FALSE;
}

static size_t round_up(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

MsSchedule *ms_schedule_alloc(int stages, int microbatches, int chunks, MsPlacement placement, int capacity) {
  size_t head = round_up(sizeof(MsSchedule)), counts = round_up(sizeof(int) * stages),
         lists = round_up(sizeof(MsSlot *) * stages);
  char *block = g_malloc(head + counts + lists + sizeof(MsSlot) * (size_t)stages * capacity);
  MsSchedule *schedule = (MsSchedule *)block;
  *schedule =
      (MsSchedule){stages, microbatches, chunks, placement, (int *)(block + head), (MsSlot **)(block + head + counts)};
  MsSlot *slots = (MsSlot *)(block + head + counts + lists);
  for (int s = 0; s < stages; s++) schedule->n[s] = 0, schedule->slot[s] = slots + (size_t)s * capacity;
  return schedule;
}

void ms_schedule_free(MsSchedule *schedule) { g_free(schedule); }

static gboolean in_range(MS_SCHEDULE_WHY) {
  (void)ep_overlap;
  if (stages < 1 || microbatches < 1 || chunks < 1 || group < 0)
    return ms_schedule_refuse(
        why, size, "stages, microbatches and chunks must be at least 1 and the microbatch group not negative");
  if (stages > G_MAXINT16 || chunks > G_MAXINT16)
    return ms_schedule_refuse(why, size, "more than %d stages or chunks", G_MAXINT16);
  if (2.0 * stages * microbatches * chunks > MAX_PASSES)
    return ms_schedule_refuse(why, size, "%d stages x %d microbatches x %d chunks x 2 is more than 50 million passes",
                              stages, microbatches, chunks);
  return TRUE;
}

MsSchedule *ms_schedule_new(int kind, int stages, int microbatches, int chunks, int group, gboolean ep_overlap,
                            char *why, size_t size) {
  if (kind < 0 || kind >= (int)G_N_ELEMENTS(ms_schedule_rows) - 1)
    return ms_schedule_refuse(why, size, "unknown schedule %d", kind), NULL;
  const MsScheduleRow *row = &ms_schedule_rows[kind];
  if (!row->build) return ms_schedule_refuse(why, size, "schedule %s is not built yet", row->word), NULL;
  if (!in_range(stages, microbatches, chunks, group, ep_overlap, why, size)) return NULL;
  if (!row->applicable(stages, microbatches, chunks, group, ep_overlap, why, size)) return NULL;
  MsSchedule *schedule = row->build(stages, microbatches, chunks, group, ep_overlap);
  if (!schedule)
    ms_schedule_refuse(why, size, "schedule %s cannot be built for %d stages and %d microbatches", row->word, stages,
                       microbatches);
  return schedule;
}

int ms_virtual_stage(const MsSchedule *schedule, int stage, int chunk) {
  if (schedule->placement == MS_PLACE_ROUND_ROBIN) return chunk * schedule->stages + stage;
  return chunk ? 2 * schedule->stages - 1 - stage : stage;
}

void ms_virtual_owner(const MsSchedule *schedule, int virtual_stage, int *stage, int *chunk) {
  int p = schedule->stages;
  *chunk = virtual_stage / p;
  *stage = schedule->placement != MS_PLACE_ROUND_ROBIN && *chunk ? 2 * p - 1 - virtual_stage : virtual_stage % p;
}

int ms_virtual_before(const MsSchedule *schedule, int virtual_stage) {
  if (schedule->placement == MS_PLACE_BIDIRECTIONAL && virtual_stage == schedule->stages) return -1;
  return virtual_stage - 1;
}

int ms_virtual_after(const MsSchedule *schedule, int virtual_stage) {
  if (schedule->placement == MS_PLACE_BIDIRECTIONAL && virtual_stage == schedule->stages - 1) return -1;
  return virtual_stage + 1 < schedule->stages * schedule->chunks ? virtual_stage + 1 : -1;
}

void ms_chunk_microbatches(const MsSchedule *schedule, int chunk, int *first, int *count) {
  gboolean half = schedule->placement == MS_PLACE_BIDIRECTIONAL;
  *count = half ? schedule->microbatches / 2 : schedule->microbatches;
  *first = half && chunk ? *count : 0;
}

gboolean ms_schedule_has(const MsSchedule *s, MsSlotKind kind) {
  for (int stage = 0; stage < s->stages; stage++)
    for (int i = 0; i < s->n[stage]; i++)
      if (s->slot[stage][i].kind == kind) return TRUE;
  return FALSE;
}

gboolean ms_schedule_splits(const MsSchedule *s) {
  return ms_schedule_has(s, MS_SLOT_I) || ms_schedule_has(s, MS_SLOT_FB);
}
