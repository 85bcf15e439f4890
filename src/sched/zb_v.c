/* src/sched/zb_v.c - ZB-V: two chunks per stage in V order, split backward, greedy under a limit of 2p chunk
 * activations (docs/theory/schedules.md 5.4; checked against the authors' zbv.py).
 *
 * Passes are counted in the order in which a microbatch meets them on a stage: F of chunk 0, F of chunk 1, I of chunk
 * 1, I of chunk 0. So "half" 0 of the backward is chunk 1: gradients of half 0 come from the stage before, those of
 * half 1 from the stage after, as activations do. */
#include "sched/build.h"

#include <string.h>

enum { F, I, W };

typedef struct {
  int stages, microbatches;
  double cost[3], comm;
  int limit;
  gboolean fill_f, fill_i;
  MsSchedule *out;
  int *count;            /* [stage][kind * 2 + half] */
  double *time, *bubble; /* [stages] */
  double *approved;      /* [stages] bubbles of the try before this one; -1: first try */
  double worst, worst_approved;
  double *end;   /* [(F, I) * 2 + half][stage][microbatch], negative: not placed */
  int *oldest_i; /* [stages] slots before this one have their W in the list */
  gboolean failed;
} Search;

static int *count_of(const Search *search, int stage, int kind, int half) {
  return &search->count[stage * 6 + kind * 2 + half];
}

static double *end_of(const Search *search, int kind, int half, int stage, int mb) {
  return &search->end[((size_t)(kind * 2 + half) * search->stages + stage) * search->microbatches + mb];
}

static int live(const Search *search, int stage) {
  const int *count = &search->count[stage * 6];
  return count[0] + count[1] - count[4] - count[5];
}

static gboolean has_w(const Search *search, int stage) {
  const int *count = &search->count[stage * 6];
  return count[2] + count[3] > count[4] + count[5];
}

static int from_stage(int stage, int half) { return half ? stage + 1 : stage - 1; }

/* When the input of the next pass of this kind arrives; -1 when it comes from this stage itself or is not made yet. */
static double arrival(const Search *search, int kind, int half, int stage) {
  int from = from_stage(stage, half), mb = *count_of(search, stage, kind, half);
  if (from < 0 || from >= search->stages || mb >= search->microbatches) return -1;
  double end = *end_of(search, kind, half, from, mb);
  return end < 0 ? -1 : end + search->comm;
}

/* Whether the pass can be placed: a microbatch is left, and its input is made. */
static gboolean can_put(const Search *search, int kind, int half, int stage) {
  int mb = *count_of(search, stage, kind, half), from = from_stage(stage, half);
  if (mb >= search->microbatches || (kind == F && live(search, stage) >= search->limit)) return FALSE;
  if ((kind || half) && kind != W &&
      *end_of(search, (kind * 2 + half - 1) / 2, (kind * 2 + half - 1) % 2, stage, mb) < 0)
    return FALSE;
  return from < 0 || from >= search->stages || *end_of(search, kind, half, from, mb) >= 0;
}

static void put(Search *search, int kind, int half, int stage) {
  if (search->failed || (search->failed = kind != W && !can_put(search, kind, half, stage))) return;
  double in = kind == W ? -1 : arrival(search, kind, half, stage), alone = search->time[stage] + search->cost[kind],
         end = alone;
  if (in >= 0) end = MAX(end, in + search->cost[kind]);
  if (*count_of(search, stage, F, 0)) search->bubble[stage] += end - alone;
  search->worst = MAX(search->worst, search->bubble[stage]);
  search->time[stage] = end;
  int mb = (*count_of(search, stage, kind, half))++;
  if (kind != W) *end_of(search, kind, half, stage, mb) = end;
  ms_slot_put(search->out, stage,
              kind == F   ? MS_SLOT_F
              : kind == I ? MS_SLOT_I
                          : MS_SLOT_W,
              mb, kind == F ? half : 1 - half);
}

/* The oldest weight gradient that waits. */
static void put_w(Search *search, int stage) {
  if (search->failed || (search->failed = !has_w(search, stage))) return;
  const MsSlot *slot = search->out->slot[stage];
  while (slot[search->oldest_i[stage]].kind != MS_SLOT_I) search->oldest_i[stage]++;
  put(search, W, 1 - slot[search->oldest_i[stage]++].chunk, stage);
}

static void fill_gap(Search *search, int kind, int half, int stage, gboolean oversize) {
  double in = arrival(search, kind, half, stage);
  if (in < 0) return;
  while (!search->failed && has_w(search, stage) && in >= search->time[stage] + search->cost[W]) put_w(search, stage);
  double allowed = MAX(search->worst, search->worst_approved - search->approved[stage]) - search->bubble[stage];
  if (oversize && has_w(search, stage) && in - search->time[stage] > allowed) put_w(search, stage);
}

static int forwards(const Search *search, int stage) {
  return *count_of(search, stage, F, 0) + *count_of(search, stage, F, 1);
}

/* Forwards before the first gradient: down and up the V, more of chunk 0 while they fit into the wait, then level with
 * the stage before. */
static void start_up(Search *search) {
  int p = search->stages, m = search->microbatches;
  for (int s = 0; s < p; s++) put(search, F, 0, s);
  put(search, F, 1, p - 1);
  for (int s = p - 2; s >= 0 && !search->failed; s--) {
    double in = *end_of(search, F, 1, s + 1, 0) + search->comm;
    while (!search->failed && live(search, s) + 2 + 2 * s <= search->limit && search->time[s] + search->cost[F] <= in &&
           *count_of(search, s, F, 0) < m)
      for (int k = 0; k <= s; k++) put(search, F, 0, k);
    put(search, F, 1, s);
  }
  for (int s = 1, half = 0; s < p; s++)
    while (!search->failed &&
           (forwards(search, s) < forwards(search, s - 1) ||
            (*count_of(search, s, F, 1) <= *count_of(search, s - 1, F, 1) && *count_of(search, s - 1, F, 1) < m))) {
      for (int k = p - 1; k >= s; k--)
        if (*count_of(search, k, F, half) < m) put(search, F, half, k);
      half = 1 - half;
    }
}

/* The half whose gradient this stage takes next: the one that comes back up the V when it is there. */
static int next_gradient(const Search *search, int stage) {
  int first = *count_of(search, stage, I, 0), second = *count_of(search, stage, I, 1);
  if (second >= first) return 0;
  if (stage == search->stages - 1) return 1;
  return *end_of(search, I, 1, stage + 1, second) >= 0 || first >= search->microbatches;
}

static void put_gradient(Search *search, int stage, int half) {
  fill_gap(search, I, half, stage, half == 1 || search->fill_i);
  put(search, I, half, stage);
}

static void put_gradients(Search *search, guint8 *half) {
  for (int s = 0; s < search->stages; s++) half[s] = (guint8)next_gradient(search, s);
  for (int s = search->stages - 1; s >= 0; s--)
    if (half[s] == 1) put_gradient(search, s, 1);
  for (int s = 0; s < search->stages; s++)
    if (half[s] == 0) put_gradient(search, s, 0);
}

/* The half of the forward that this stage takes next; -1 none. */
static int next_forward(const Search *search, int stage) {
  int first = *count_of(search, stage, F, 0), second = *count_of(search, stage, F, 1);
  if (second >= search->microbatches) return -1;
  if (second >= first) return 0;
  if (stage == search->stages - 1 || *end_of(search, F, 1, stage + 1, second) >= 0) return 1;
  if (first >= search->microbatches) return -1;
  return stage == 0 || *end_of(search, F, 0, stage - 1, first) >= 0 ? 0 : -1;
}

static void put_forwards(Search *search) {
  for (int s = 0; s < search->stages; s++) {
    int half = next_forward(search, s);
    if (half < 0) continue;
    while (!search->failed && live(search, s) >= search->limit) put_w(search, s);
    fill_gap(search, F, half, s, search->fill_f);
    put(search, F, half, s);
  }
}

static gboolean search_once(Search *search) {
  int p = search->stages, m = search->microbatches;
  g_autofree guint8 *half = g_new(guint8, p);
  for (size_t k = 0, n = 4 * (size_t)p * m; k < n; k++) search->end[k] = -1;
  memset(search->count, 0, sizeof(int) * 6 * p);
  for (int s = 0; s < p; s++) search->time[s] = search->bubble[s] = 0, search->out->n[s] = search->oldest_i[s] = 0;
  search->worst = 0, search->failed = FALSE;
  start_up(search);
  for (int k = 0; k < 2 * m && !search->failed; k++) put_gradients(search, half), put_forwards(search);
  for (int s = 0; s < p; s++)
    while (!search->failed && has_w(search, s)) put_w(search, s);
  return !search->failed;
}

/* Again with the bubbles of the last try allowed, as long as the worst one shrinks. Keeps the best list in *best. */
static void search_all(Search *search, MsSchedule **best, double *best_bubble) {
  double before = G_MAXDOUBLE;
  search->worst_approved = -1;
  for (int s = 0; s < search->stages; s++) search->approved[s] = -1;
  while (search_once(search) && search->worst < before) {
    before = search->worst_approved = search->worst;
    memcpy(search->approved, search->bubble, sizeof(double) * search->stages);
    if (*best && search->worst >= *best_bubble) continue;
    MsSchedule *kept = search->out;
    search->out =
        *best ? *best
              : ms_schedule_alloc(search->stages, search->microbatches, 2, MS_PLACE_V, 6 * search->microbatches);
    *best = kept, *best_bubble = search->worst;
  }
}

MsSchedule *ms_zb_v_build(const MsScheduleNumbers *numbers) {
  int p = numbers->stages, m = numbers->microbatches;
  Search search = {.stages = p, .microbatches = m, .cost = {1, 1, 1}, .limit = 2 * p};
  search.count = g_new(int, 6 * p), search.oldest_i = g_new(int, p);
  search.time = g_new(double, p), search.bubble = g_new(double, p), search.approved = g_new(double, p);
  search.end = g_new(double, 4 * (size_t)p * m);
  search.out = ms_schedule_alloc(p, m, 2, MS_PLACE_V, 6 * m);
  MsSchedule *best = NULL;
  double best_bubble = 0;
  for (int k = 0; k < 4; k++) {
    search.fill_i = !(k & 2), search.fill_f = !(k & 1);
    search_all(&search, &best, &best_bubble);
  }
  ms_schedule_free(search.out);
  g_free(search.count), g_free(search.oldest_i), g_free(search.time), g_free(search.bubble), g_free(search.approved),
      g_free(search.end);
  return best;
}
