/* src/sched/v_pattern.c - V-half and V-min: a repeating pattern of period 6 on a V of two chunks, squeezed
 * (docs/theory/schedules.md 5.5; arXiv 2405.15362; checked against the authors' zbv_greedy.py).
 *
 * Every pass takes one time slot. Kinds in the order in which a microbatch meets them on a stage: F of chunk 0, F of
 * chunk 1, I of chunk 1, I of chunk 0, then W. The pattern gives each F and I its slot; W goes into free slots.
 * Squeezing moves each pass of the start and of the end to the earliest free slot that its dependencies allow and that
 * does not raise the memory of its stage; twice: with W fixed, then with W put anew. */
#include "sched/build.h"

#include <string.h>

enum { F0, F1, I1, I0, W, KINDS }; /* W holds the weight gradients of both chunks */

typedef struct {
  int live, waiting; /* activations; input gradients whose weight gradients are not in the map */
} Kept;

typedef struct {
  int stages, microbatches;
  int *slot[KINDS]; /* [stage][number] time slot of the pass, ascending; 2 m numbers for W, m for the others */
  int length;       /* slots of the longest stage */
  guint8 *kind_at;  /* [stage][length] what is there, KINDS: nothing */
  Kept *before;     /* [stage][length] what the stage keeps in front of that slot */
} Pattern;

static int passes(const Pattern *pattern, int kind) {
  return kind == W ? 2 * pattern->microbatches : pattern->microbatches;
}
static int *slots(const Pattern *pattern, int stage, int kind) {
  return pattern->slot[kind] + (size_t)stage * passes(pattern, kind);
}

static void lay_pattern(Pattern *pattern, gboolean half) {
  int p = pattern->stages, delta = half ? (p % 2 ? 0 : 3) : p % 3 ? 0 : 2;
  for (int s = 0; s < p; s++) {
    int at_min[] = {s, 2 * p - 1 - s, 2 * p + delta + s, 4 * p + delta - 1 - s};
    int at_half[] = {2 * s, 3 * p - 2 - s, 3 * p + delta - 1 + 2 * s, 6 * p + delta - 2 - s};
    for (int kind = F0; kind <= I0; kind++)
      for (int mb = 0; mb < pattern->microbatches; mb++)
        slots(pattern, s, kind)[mb] = (half ? at_half : at_min)[kind] + 6 * mb;
  }
}

/* --- all passes in order of (slot, stage, kind) ---------------------------------------------------------------- */

static int last_slot(const Pattern *pattern, int stage, int kinds) {
  int last = 0;
  for (int kind = 0; kind < kinds; kind++) last = MAX(last, slots(pattern, stage, kind)[passes(pattern, kind) - 1]);
  return last;
}

static int length_of(const Pattern *pattern, int kinds) {
  int length = 0;
  for (int s = 0; s < pattern->stages; s++) length = MAX(length, last_slot(pattern, s, kinds) + 1);
  return length;
}

typedef struct {
  int slot, stage, kind, number;
} Pass;

/* Counted by slot, then put in their places. (transfer full) */
static Pass *in_order(const Pattern *pattern, int kinds, int *n) {
  int length = length_of(pattern, kinds);
  g_autofree int *place = g_new0(int, length + 1);
  *n = pattern->stages * pattern->microbatches * (kinds > W ? 6 : 4);
  Pass *order = g_new(Pass, *n);
  for (int s = 0; s < pattern->stages; s++)
    for (int kind = 0; kind < kinds; kind++)
      for (int k = 0; k < passes(pattern, kind); k++) place[slots(pattern, s, kind)[k] + 1]++;
  for (int t = 0; t < length; t++) place[t + 1] += place[t];
  for (int s = 0; s < pattern->stages; s++)
    for (int kind = 0; kind < kinds; kind++)
      for (int k = 0; k < passes(pattern, kind); k++) {
        int slot = slots(pattern, s, kind)[k];
        order[place[slot]++] = (Pass){slot, s, kind, k};
      }
  return order;
}

/* --- W and memory ---------------------------------------------------------------------------------------------- */

static void map_slots(Pattern *pattern, int kinds) {
  pattern->length = length_of(pattern, kinds);
  pattern->kind_at = g_realloc(pattern->kind_at, (size_t)pattern->stages * pattern->length);
  pattern->before = g_renew(Kept, pattern->before, (size_t)pattern->stages * pattern->length);
  memset(pattern->kind_at, KINDS, (size_t)pattern->stages * pattern->length);
  for (int s = 0; s < pattern->stages; s++)
    for (int kind = 0; kind < kinds; kind++)
      for (int k = 0; k < passes(pattern, kind); k++)
        pattern->kind_at[(size_t)s * pattern->length + slots(pattern, s, kind)[k]] = (guint8)kind;
}

/* A weight gradient into every free slot where one waits. */
static void put_w(Pattern *pattern) {
  map_slots(pattern, W);
  for (int s = 0; s < pattern->stages; s++) {
    const guint8 *kind_at = pattern->kind_at + (size_t)s * pattern->length;
    int waiting = 0, done = 0, t = 0, last = last_slot(pattern, s, W);
    for (; t <= last; t++) {
      if (kind_at[t] == I1 || kind_at[t] == I0) waiting++;
      else if (kind_at[t] == KINDS && waiting) slots(pattern, s, W)[done++] = t, waiting--;
    }
    while (waiting--) slots(pattern, s, W)[done++] = t++;
  }
}

/* Without W in the map, free slots do them. */
static Kept behind(Kept kept, int kind, int kinds) {
  if (kind == F0 || kind == F1) kept.live++;
  else if (kind == I1 || kind == I0) kept.waiting++;
  else if (kind == W) kept.live--;
  else if (kinds == W && kept.waiting) kept.waiting--, kept.live--;
  return kept;
}

/* Most activations live on a stage. Notes what it keeps in front of each slot. */
static int memory_of(Pattern *pattern, int stage, int kinds) {
  size_t first = (size_t)stage * pattern->length;
  Kept kept = {0, 0};
  int peak = 0;
  for (int t = 0; t < pattern->length; t++) {
    pattern->before[first + t] = kept;
    kept = behind(kept, pattern->kind_at[first + t], kinds);
    peak = MAX(peak, kept.live);
  }
  return peak;
}

/* --- squeeze --------------------------------------------------------------------------------------------------- */

/* Slot of the number-th input gradient of the stage, of either chunk. */
static int nth_gradient(const Pattern *pattern, int stage, int number) {
  const int *a = slots(pattern, stage, I1), *b = slots(pattern, stage, I0);
  int i = 0, j = 0, slot = 0;
  for (int k = 0; k <= number; k++)
    slot = j >= pattern->microbatches || (i < pattern->microbatches && a[i] < b[j]) ? a[i++] : b[j++];
  return slot;
}

static int earliest(const Pattern *pattern, const Pass *pass) {
  int s = pass->stage, kind = pass->kind, k = pass->number, after = -1;
  if ((kind == F0 || kind == I1) && s > 0) after = slots(pattern, s - 1, kind)[k];
  if ((kind == F1 || kind == I0) && s + 1 < pattern->stages) after = slots(pattern, s + 1, kind)[k];
  if (kind > F0 && kind < W) after = MAX(after, slots(pattern, s, kind - 1)[k]);
  if (kind == W) after = MAX(after, nth_gradient(pattern, s, k));
  if (k > 0) after = MAX(after, slots(pattern, s, kind)[k - 1]);
  return after + 1;
}

/* FALSE: more than `limit` live on the stage, which they did not before its map changed in slots `from` to `to`; behind
 * these it is as it was from where it keeps the same. With `note` that is noted. */
static gboolean stays_within(Pattern *pattern, int stage, int kinds, int from, int to, int limit, gboolean note) {
  const guint8 *kind_at = pattern->kind_at + (size_t)stage * pattern->length;
  Kept *before = pattern->before + (size_t)stage * pattern->length, kept = before[from];
  for (int t = from; t < pattern->length; t++) {
    if (t > to && kept.live == before[t].live && kept.waiting == before[t].waiting) break;
    if (note) before[t] = kept;
    kept = behind(kept, kind_at[t], kinds);
    if (kept.live > limit) return FALSE;
  }
  return TRUE;
}

static void move_early(Pattern *pattern, const Pass *pass, int kinds, int limit) {
  guint8 *kind_at = pattern->kind_at + (size_t)pass->stage * pattern->length;
  for (int t = earliest(pattern, pass); t < pass->slot; t++) {
    if (kind_at[t] != KINDS) continue;
    kind_at[t] = (guint8)pass->kind, kind_at[pass->slot] = KINDS;
    if (stays_within(pattern, pass->stage, kinds, t, pass->slot, limit, FALSE)) {
      stays_within(pattern, pass->stage, kinds, t, pass->slot, limit, TRUE);
      slots(pattern, pass->stage, pass->kind)[pass->number] = t;
      return;
    }
    kind_at[t] = KINDS, kind_at[pass->slot] = (guint8)pass->kind;
  }
}

/* Every pass as early as its stage's order and its dependencies allow, one slot each. */
static void pack(Pattern *pattern, int kinds) {
  int n;
  g_autofree Pass *order = in_order(pattern, kinds, &n);
  g_autofree int *clock = g_new0(int, pattern->stages);
  for (int k = 0; k < n; k++) {
    const Pass *pass = &order[k];
    int t = clock[pass->stage];
    if (pass->kind != W) t = MAX(t, earliest(pattern, pass));
    slots(pattern, pass->stage, pass->kind)[pass->number] = t;
    clock[pass->stage] = t + 1;
  }
}

/* Moves what comes before the first I0 of stage 0, and what comes after the last F0. With W in the walk (kinds = KINDS)
 * both, else only the end. */
static void squeeze(Pattern *pattern, int kinds) {
  int n, limit = 0;
  enum { START, STEADY, END } phase = START;
  if (kinds == KINDS) put_w(pattern);
  map_slots(pattern, kinds);
  for (int s = 0; s < pattern->stages; s++) limit = MAX(limit, memory_of(pattern, s, kinds));
  g_autofree Pass *order = in_order(pattern, kinds, &n);
  for (int k = 0; k < n; k++) {
    const Pass *pass = &order[k];
    if (phase == START && pass->kind == I0 && pass->stage == 0) phase = STEADY;
    if (phase == STEADY) {
      if (pass->kind == F0 && pass->number == pattern->microbatches - 1) phase = END;
      continue;
    }
    if (phase == END || kinds == KINDS) move_early(pattern, pass, kinds, limit);
  }
  if (kinds == W) put_w(pattern);
  pack(pattern, KINDS);
}

/* --- the schedule ---------------------------------------------------------------------------------------------- */

/* The lists in order of the slots, with W in the free ones: of chunk 1 first when both wait. */
static MsSchedule *read_lists(Pattern *pattern) {
  MsSchedule *schedule =
      ms_schedule_alloc(pattern->stages, pattern->microbatches, 2, MS_PLACE_V, 6 * pattern->microbatches);
  static const MsSlotKind kinds[] = {MS_SLOT_F, MS_SLOT_F, MS_SLOT_I, MS_SLOT_I};
  static const int chunks[] = {0, 1, 1, 0};
  map_slots(pattern, W);
  for (int s = 0; s < pattern->stages; s++) {
    const guint8 *kind_at = pattern->kind_at + (size_t)s * pattern->length;
    int next[W] = {0}, waiting[2] = {0}, w_next[2] = {0};
    for (int t = 0, left = 2 * pattern->microbatches; left; t++) {
      int kind = t < pattern->length ? kind_at[t] : KINDS;
      if (kind < W) {
        ms_slot_put(schedule, s, kinds[kind], next[kind]++, chunks[kind]);
        if (kind >= I1) waiting[chunks[kind]]++;
        continue;
      }
      int chunk = waiting[1] ? 1 : 0;
      if (!waiting[chunk]) continue;
      ms_slot_put(schedule, s, MS_SLOT_W, w_next[chunk]++, chunk);
      waiting[chunk]--, left--;
    }
  }
  return schedule;
}

static MsSchedule *build(int stages, int microbatches, gboolean half) {
  Pattern pattern = {.stages = stages, .microbatches = microbatches};
  for (int kind = F0; kind < KINDS; kind++) pattern.slot[kind] = g_new(int, (size_t)stages *passes(&pattern, kind));
  lay_pattern(&pattern, half);
  squeeze(&pattern, KINDS);
  squeeze(&pattern, W);
  MsSchedule *schedule = read_lists(&pattern);
  for (int kind = F0; kind < KINDS; kind++) g_free(pattern.slot[kind]);
  g_free(pattern.kind_at), g_free(pattern.before);
  return schedule;
}

MsSchedule *ms_v_half_build(const MsScheduleNumbers *n) { return build(n->stages, n->microbatches, TRUE); }

MsSchedule *ms_v_min_build(const MsScheduleNumbers *n) { return build(n->stages, n->microbatches, FALSE); }
