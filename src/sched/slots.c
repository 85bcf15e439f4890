/* src/sched/slots.c - the memory of a schedule's slots, and which stage holds what: what every builder uses. */
#include "sched/build.h"

#include <stdarg.h>

const char *const ms_slot_words[] = {"F", "B", "I", "W", "FB", NULL};

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
         lists = round_up(sizeof(MsSlot *) * stages), repeats = round_up(sizeof(MsPeriodOf) * stages);
  char *block = g_atomic_rc_box_alloc(head + counts + lists + repeats + sizeof(MsSlot) * (size_t)stages * capacity);
  MsSchedule *schedule = (MsSchedule *)block;
  *schedule = (MsSchedule){.stages = stages,
                           .microbatches = microbatches,
                           .chunks = chunks,
                           .placement = placement,
                           .n = (int *)(block + head),
                           .slot = (MsSlot **)(block + head + counts),
                           .repeat = (MsPeriodOf *)(block + head + counts + lists)};
  MsSlot *slots = (MsSlot *)(block + head + counts + lists + repeats);
  for (int s = 0; s < stages; s++) schedule->n[s] = 0, schedule->slot[s] = slots + (size_t)s * capacity;
  return schedule;
}

void ms_schedule_free(MsSchedule *schedule) {
  if (schedule) g_atomic_rc_box_release(schedule);
}

int ms_virtual_stage(const MsSchedule *schedule, int stage, int chunk) {
  switch (schedule->placement) {
  case MS_PLACE_ROUND_ROBIN: break;
  case MS_PLACE_V:
  case MS_PLACE_BIDIRECTIONAL: return chunk ? 2 * schedule->stages - 1 - stage : stage;
  }
  return chunk * schedule->stages + stage;
}

void ms_virtual_owner(const MsSchedule *schedule, int virtual_stage, int *stage, int *chunk) {
  int p = schedule->stages;
  *chunk = virtual_stage / p;
  *stage = ms_placement_stage(schedule->placement, p, virtual_stage);
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

gboolean ms_schedule_splits(const MsSchedule *s) {
  return ms_schedule_has(s, MS_SLOT_I) || ms_schedule_has(s, MS_SLOT_FB);
}
