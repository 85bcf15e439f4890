/* src/sched/schedule.c - the rows of schedule.def: which is possible, and its builder. */
#include "base/kept.h"
#include "sched/build.h"

/* Why Megatron-Core cannot launch it, where several say the same. */
#define LAUNCHED       NULL
#define IN_ZERO_BUBBLE "the fork sail-sg/zero-bubble-pipeline-parallelism has it"
#define IN_DUALPIPE    "deepseek-ai/DualPipe has it; Megatron-Core overlaps pairs in 1f1b with options.ep_overlap"

#define SCHEDULE(id, ...) _Static_assert(sizeof #id > 1, "a schedule without an id");
#include "sched/schedule.def"
#undef SCHEDULE

/* Parentheses: an empty column is an error, wherever it stands. */
const MsScheduleRow ms_schedule_rows[] = {
#define SCHEDULE(id, word, about, build, fits, placement, chunks, copies, splits, sends, costs, pairs, steps, live, \
                 search, refused)                                                                                   \
  {(word),  (about), (build), (fits),  (placement), (chunks), (copies), (splits),                                   \
   (sends), (costs), (pairs), (steps), (live),      (search), (refused)},
#include "sched/schedule.def"
#undef SCHEDULE
};

const char *const ms_schedule_words[] = {
#define SCHEDULE(id, word, ...) word,
#include "sched/schedule.def"
#undef SCHEDULE
    NULL};

char *ms_schedule_words_of(gboolean (*is)(const MsScheduleRow *row)) {
  const char *word[MS_N_SCHEDULES];
  int n = 0;
  for (int kind = 0; kind < MS_N_SCHEDULES; kind++)
    if (is(&ms_schedule_rows[kind])) word[n++] = ms_schedule_rows[kind].word;
  GString *text = g_string_new(NULL);
  for (int i = 0; i < n; i++) g_string_append_printf(text, "%s%s", i == 0 ? "" : i < n - 1 ? ", " : " or ", word[i]);
  return g_string_free(text, FALSE);
}

static gboolean in_range(const MsScheduleNumbers *n, char *why, size_t size) {
  if (n->stages < 1 || n->microbatches < 1 || n->chunks < 1 || n->group < 0)
    return ms_schedule_refuse(
        why, size, "stages, microbatches and chunks must be at least 1 and the microbatch group not negative");
  if (n->stages > G_MAXINT16 || n->chunks > G_MAXINT16)
    return ms_schedule_refuse(why, size, "more than %d stages or chunks", G_MAXINT16);
  if (2.0 * n->stages * n->microbatches * n->chunks > MS_MOST_SLOTS)
    return ms_schedule_refuse(why, size, "%d stages x %d microbatches x %d chunks x 2 is more than 50 million passes",
                              n->stages, n->microbatches, n->chunks);
  return TRUE;
}

/* What the columns say about the numbers. Those of each copy of the model may be counted, or those on the rank. */
static gboolean columns_hold(const MsScheduleRow *row, const MsScheduleNumbers *n, char *why, size_t size) {
  int chunks = (int)row->chunks, on_rank = chunks * (int)row->copies;
  if (row->chunks != MS_CHUNKS_ANY && n->chunks != chunks && n->chunks != on_rank)
    return ms_schedule_refuse(why, size, "%s has %s per stage, not %d", row->word,
                              on_rank == 1 ? "one chunk" : "2 chunks", n->chunks);
  return row->pairs != MS_PAIRS_NEVER || !n->ep_overlap ||
         ms_schedule_refuse(why, size, "%s has no forward/backward pairs to overlap", row->word);
}

static gboolean possible(MsScheduleKind kind, const MsScheduleNumbers *numbers, char *why, size_t size) {
  if ((int)kind < 0 || kind >= MS_N_SCHEDULES) return ms_schedule_refuse(why, size, "unknown schedule %d", (int)kind);
  const MsScheduleRow *row = ms_schedule_row(kind);
  return in_range(numbers, why, size) && columns_hold(row, numbers, why, size) && row->fits(numbers, why, size);
}

/* The same lists once more for every `microbatches` of the first. (transfer full) */
static MsSchedule *again(MsSchedule *one, int microbatches) {
  int most = 0, times = microbatches / one->microbatches;
  for (int s = 0; s < one->stages; s++) most = MAX(most, one->n[s]);
  MsSchedule *all = ms_schedule_alloc(one->stages, microbatches, one->chunks, one->placement, most * times);
  all->kinds = one->kinds;
  for (int s = 0; s < one->stages; s++)
    for (int k = 0; k < times * one->n[s]; k++) {
      MsSlot slot = one->slot[s][k % one->n[s]];
      int later = k / one->n[s] * one->microbatches;
      slot.mb += later, slot.mb2 += slot.kind == MS_SLOT_FB ? later : 0;
      all->slot[s][all->n[s]++] = slot;
    }
  ms_schedule_free(one);
  return all;
}

MsSchedule *ms_schedule_for(MsScheduleKind kind, const MsScheduleNumbers *numbers, char *why, size_t size) {
  if (!possible(kind, numbers, why, size)) return NULL;
  const MsScheduleRow *row = ms_schedule_row(kind);
  MsScheduleNumbers once = *numbers;
  if (numbers->flush > 0) once.microbatches = MIN(numbers->flush, numbers->microbatches);
  MsSchedule *schedule = row->build(&once);
  if (schedule && once.microbatches < numbers->microbatches) schedule = again(schedule, numbers->microbatches);
  if (!schedule)
    ms_schedule_refuse(why, size, "schedule %s cannot be built for %d stages and %d microbatches", row->word,
                       numbers->stages, numbers->microbatches);
  else ms_schedule_find_period(schedule);
  return schedule;
}

enum { MOST_KEPT = 1 << 21, LARGEST_KEPT = 1 << 19 }; /* slots, of all and of one: 32 and 8 MiB */

static gsize slots_of(gconstpointer schedule) {
  const MsSchedule *s = schedule;
  gsize slots = 0;
  for (int i = 0; i < s->stages; i++) slots += (gsize)s->n[i];
  return slots;
}

MsSchedule *ms_schedule_shared(MsScheduleKind kind, const MsScheduleNumbers *n, char *why, size_t size) {
  static MsKeep schedules = {.most = MOST_KEPT, .size = slots_of};
  const gint64 is[] = {kind,          n->stages, n->microbatches, n->chunks,  n->group,
                       n->ep_overlap, n->flush,  n->exchanges,    n->receives};
  const double costs[] = {n->f, n->i, n->w, n->comm};
  g_autoptr(GByteArray) key = g_byte_array_sized_new(sizeof is + sizeof costs);
  g_byte_array_append(key, (const guint8 *)is, sizeof is),
      g_byte_array_append(key, (const guint8 *)costs, sizeof costs);
  MsSchedule *schedule = ms_kept_of(&schedules, key);
  if (schedule) return schedule;
  schedule = ms_schedule_for(kind, n, why, size);
  if (schedule && slots_of(schedule) <= LARGEST_KEPT) ms_kept_as(&schedules, g_steal_pointer(&key), schedule);
  return schedule;
}

MsSchedule *ms_schedule_new(int kind, int stages, int microbatches, int chunks, int group, gboolean ep_overlap,
                            char *why, size_t size) {
  MsScheduleNumbers numbers = {stages, microbatches, chunks, group, ep_overlap, 1, 1, 1, 0, 0, FALSE, FALSE};
  return ms_schedule_for((MsScheduleKind)kind, &numbers, why, size);
}
