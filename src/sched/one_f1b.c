/* src/sched/one_f1b.c - GPipe, 1F1B, interleaved and eager 1F1B (docs/theory/schedules.md 1-4; Megatron-Core
 * pipeline_parallel/schedules.py). */
#include "sched/build.h"

gboolean ms_gpipe_fits(const MsScheduleNumbers *n, char *why, size_t size) {
  if (n->chunks > 1 && n->stages == 1)
    return ms_schedule_refuse(why, size, "%d chunks per stage need at least 2 stages", n->chunks);
  if (n->chunks > 1 && n->group > n->microbatches)
    return ms_schedule_refuse(why, size, "the microbatch group %d is more than the %d microbatches", n->group,
                              n->microbatches);
  return TRUE;
}

gboolean ms_1f1b_fits(const MsScheduleNumbers *n, char *why, size_t size) {
  int p = n->stages, m = n->microbatches, group = n->group ? n->group : p;
  if (n->chunks == 1) {
    if (n->ep_overlap && p > 1)
      return ms_schedule_refuse(
          why, size, "overlapping forward with backward over %d stages needs at least 2 chunks per stage", p);
    return TRUE;
  }
  if (p == 1) return ms_schedule_refuse(why, size, "%d chunks per stage need at least 2 stages", n->chunks);
  if (group < p || group > m)
    return ms_schedule_refuse(why, size,
                              "the microbatch group %d of the interleaved schedule is not between PP %d and %d "
                              "microbatches",
                              group, p, m);
  if (m % group && m % group < p)
    return ms_schedule_refuse(why, size, "%d microbatches leave %d after groups of %d, fewer than PP %d", m, m % group,
                              group, p);
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
static gint64 warm_up(const MsScheduleNumbers *n, int stage, int group) {
  gint64 distance = n->stages - stage - 1;
  return (n->chunks == 1 ? distance : 2 * distance + (gint64)(n->chunks - 1) * group) + (n->ep_overlap ? 1 : 0);
}

/* All forwards, then all backwards, both in the order of the table: any group serves, since every stage has the same
 * list. */
MsSchedule *ms_gpipe_build(const MsScheduleNumbers *numbers) {
  int m = numbers->microbatches, chunks = numbers->chunks, n = m * chunks;
  g_autofree Entry *table = g_new(Entry, n);
  fill_table(table, m, chunks, chunks == 1 ? m : numbers->group ? numbers->group : MIN(numbers->stages, m));
  MsSchedule *schedule = ms_schedule_alloc(numbers->stages, m, chunks, MS_PLACE_ROUND_ROBIN, 2 * n);
  for (int s = 0; s < numbers->stages; s++) {
    for (int k = 0; k < n; k++) ms_slot_put(schedule, s, MS_SLOT_F, table[k].mb, table[k].chunk);
    for (int k = 0; k < n; k++) ms_slot_put(schedule, s, MS_SLOT_B, table[k].mb, chunks - 1 - table[k].chunk);
  }
  return schedule;
}

gint64 ms_gpipe_live(const MsScheduleNumbers *numbers, int stage, int chunk) {
  (void)stage, (void)chunk;
  return numbers->microbatches;
}

/* Of n forwards and backwards in the order of the table: the first `ahead` forwards, one backward after each of the
 * others, and the backwards that are left. */
static void put_stage(MsSchedule *schedule, int stage, const Entry *table, int n, int ahead,
                      const MsScheduleNumbers *numbers) {
  int last = schedule->chunks - 1;
  for (int k = 0; k < ahead; k++) ms_slot_put(schedule, stage, MS_SLOT_F, table[k].mb, table[k].chunk);
  for (int k = 0; k < n - ahead; k++) {
    const Entry *f = &table[k + ahead], *b = &table[k];
    if (numbers->ep_overlap) {
      ms_slot_put_pair(schedule, stage, f->mb, f->chunk, b->mb, last - b->chunk);
    } else {
      ms_slot_put(schedule, stage, MS_SLOT_F, f->mb, f->chunk);
      if (numbers->exchanges) schedule->slot[stage][schedule->n[stage] - 1].chunk2 = MS_EXCHANGES;
      ms_slot_put(schedule, stage, MS_SLOT_B, b->mb, last - b->chunk);
    }
  }
  for (int k = n - ahead; k < n; k++) ms_slot_put(schedule, stage, MS_SLOT_B, table[k].mb, last - table[k].chunk);
}

MsSchedule *ms_1f1b_build(const MsScheduleNumbers *numbers) {
  int m = numbers->microbatches, chunks = numbers->chunks, n = m * chunks;
  int group = numbers->group && chunks > 1 ? numbers->group : numbers->stages;
  g_autofree Entry *table = g_new(Entry, n);
  fill_table(table, m, chunks, group);
  MsSchedule *schedule = ms_schedule_alloc(numbers->stages, m, chunks, MS_PLACE_ROUND_ROBIN, 2 * n);
  if (numbers->receives && !numbers->ep_overlap && chunks > 1 && group > numbers->stages)
    schedule->early = numbers->exchanges ? MS_EARLY_ALWAYS : MS_EARLY_AT_ENDS;
  for (int s = 0; s < numbers->stages; s++)
    put_stage(schedule, s, table, n, (int)MIN(warm_up(numbers, s, group), n), numbers);
  return schedule;
}

/* Forwards run ahead by another pass per stage below, in which the message of a forward can travel; backwards follow
 * one another all the same (arXiv 2211.05322; alpa-projects/alpa at 080cf63, pipeline_parallel/schedules.py). */
static int eager_warm_up(const MsScheduleNumbers *n, int stage) {
  return MIN(2 * (n->stages - 1 - stage), n->microbatches);
}

MsSchedule *ms_eager_1f1b_build(const MsScheduleNumbers *n) {
  int m = n->microbatches;
  g_autofree Entry *table = g_new(Entry, m);
  fill_table(table, m, 1, m);
  MsSchedule *schedule = ms_schedule_alloc(n->stages, m, 1, MS_PLACE_ROUND_ROBIN, 2 * m);
  for (int s = 0; s < n->stages; s++) put_stage(schedule, s, table, m, eager_warm_up(n, s), n);
  return schedule;
}

gint64 ms_eager_1f1b_live(const MsScheduleNumbers *n, int stage, int chunk) {
  (void)chunk;
  return MIN(n->microbatches, eager_warm_up(n, stage) + 1);
}

/* Forwards of chunk c among the first n of the interleaved table. */
static gint64 forwards_of(gint64 n, int c, int chunks, int group) {
  gint64 cycle = (gint64)group * chunks, rest = n % cycle;
  return n / cycle * group + CLAMP(rest - (gint64)c * group, 0, group);
}

/* Those of the warm-up and the first of the steady state, not counting the one more of pairs. */
gint64 ms_1f1b_live(const MsScheduleNumbers *n, int stage, int chunk) {
  gint64 m = n->microbatches, distance = n->stages - stage - 1;
  if (n->chunks == 1) return MIN(m, distance + 1);
  int group = MIN(n->group ? n->group : n->stages, n->microbatches);
  gint64 forwards = MIN(m * n->chunks, 2 * distance + (gint64)(n->chunks - 1) * group + 1);
  return forwards_of(forwards, chunk, n->chunks, group);
}
