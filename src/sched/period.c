/* src/sched/period.c - where the lists of a schedule repeat themselves. */
#include "sched/build.h"

/* `then` is `slot` some microbatches later. */
static gboolean follows(const MsSlot *slot, const MsSlot *then, int microbatches) {
  return then->kind == slot->kind && then->chunk == slot->chunk && then->mb == slot->mb + microbatches &&
         (slot->kind != MS_SLOT_FB || (then->chunk2 == slot->chunk2 && then->mb2 == slot->mb2 + microbatches));
}

/* From slot `at` on a whole period is followed by another. */
static gboolean repeats(const MsSlot *slot, int at, int slots, int n, int microbatches) {
  if (at + 2 * slots > n) return FALSE;
  for (int k = at; k < at + slots; k++)
    if (!follows(&slot[k], &slot[k + slots], microbatches)) return FALSE;
  return TRUE;
}

static void extend(const MsSlot *slot, int n, int at, int microbatches, MsPeriodOf *of) {
  of->from = at, of->to = at + 2 * of->slots;
  while (of->from > 0 && follows(&slot[of->from - 1], &slot[of->from - 1 + of->slots], microbatches)) of->from--;
  while (of->to < n && follows(&slot[of->to - of->slots], &slot[of->to], microbatches)) of->to++;
}

/* Microbatches of a group follow one another too, but not for long. */
static gboolean is_long(const MsPeriodOf *of, int n) { return of->to - of->from >= MAX(4 * of->slots, n / 4); }

/* microbatches 0: the fewest by which the list repeats itself. Returns them, 0 = it does not. */
static int period_of(const MsSlot *slot, int n, int microbatches, MsPeriodOf *of) {
  int at = n / 3; /* behind the warm-up of any schedule that is long enough to be worth it */
  for (int k = at + 1; 2 * k - at <= n; k++) {
    int later = slot[k].mb - slot[at].mb;
    if (later <= 0 || (microbatches && later != microbatches) || !follows(&slot[at], &slot[k], later)) continue;
    of->slots = k - at;
    if (!repeats(slot, at, of->slots, n, later)) continue;
    extend(slot, n, at, later, of);
    if (is_long(of, n)) return later;
  }
  return 0;
}

typedef struct {
  int forward, backward, weights;
} Passes;

static void count(const MsSlot *slot, int chunk, Passes *n) {
  gboolean first = slot->chunk == chunk, pair = slot->kind == MS_SLOT_FB && slot->chunk2 == chunk;
  gboolean whole = (first && slot->kind == MS_SLOT_B) || pair;
  n->forward += first && ms_slot_has_forward(slot);
  n->backward += whole || (first && slot->kind == MS_SLOT_I);
  n->weights += whole || (first && slot->kind == MS_SLOT_W);
}

static Passes passes_in_period(const MsSchedule *s, int virtual_stage) {
  int stage, chunk;
  Passes n = {0, 0, 0};
  ms_virtual_owner(s, virtual_stage, &stage, &chunk);
  const MsPeriodOf *of = &s->repeat[stage];
  for (int k = of->from; k < of->from + of->slots; k++) count(&s->slot[stage][k], chunk, &n);
  return n;
}

/* What a period of one stage gives a period of another takes, and weight gradients follow their input gradients: where
 * they do not (all of them at the end), every period adds to what waits, and none can be left out. */
static gboolean takes_what_it_gives(const MsSchedule *s) {
  for (int v = 0; v < s->stages * s->chunks; v++) {
    int after = ms_virtual_after(s, v);
    Passes own = passes_in_period(s, v), next = after >= 0 ? passes_in_period(s, after) : own;
    if (own.backward != own.weights || own.forward != next.forward || own.backward != next.backward) return FALSE;
  }
  return TRUE;
}

void ms_schedule_find_period(MsSchedule *s) {
  s->period = 0;
  for (int stage = 0; stage < s->stages; stage++) {
    s->period = period_of(s->slot[stage], s->n[stage], s->period, &s->repeat[stage]);
    if (s->period == 0) return;
  }
  if (!takes_what_it_gives(s)) s->period = 0;
}
