/* src/sched/dualpipe.c - DualPipe and DualPipeV (docs/theory/schedules.md 6; order checked against github
 * deepseek-ai/DualPipe 3da1bbe). */
#include "sched/build.h"

static gboolean enough(const char *word, const MsScheduleNumbers *n, char *why, size_t size) {
  return n->microbatches >= 2 * n->stages ||
         ms_schedule_refuse(why, size, "%s over %d stages needs at least %d microbatches, not %d", word, n->stages,
                            2 * n->stages, n->microbatches);
}

gboolean ms_dualpipe_fits(const MsScheduleNumbers *n, char *why, size_t size) {
  if (n->stages % 2) return ms_schedule_refuse(why, size, "dualpipe needs an even number of stages, not %d", n->stages);
  if (n->microbatches % 2)
    return ms_schedule_refuse(why, size, "dualpipe needs an even number of microbatches, not %d", n->microbatches);
  return enough("dualpipe", n, why, size);
}

gboolean ms_dualpipev_fits(const MsScheduleNumbers *n, char *why, size_t size) {
  return enough("dualpipev", n, why, size);
}

typedef struct {
  MsSchedule *schedule;
  int stage, flip; /* flip: chunk = phase ^ flip */
  int f[2], b[2];  /* next microbatch of each chunk */
  int weight;      /* slots before this one have their W in the list */
} Pen;

static void forward(Pen *pen, int phase) {
  int chunk = phase ^ pen->flip;
  ms_slot_put(pen->schedule, pen->stage, MS_SLOT_F, pen->f[chunk]++, chunk);
}

static void backward(Pen *pen, int phase, gboolean split) {
  int chunk = phase ^ pen->flip;
  ms_slot_put(pen->schedule, pen->stage, split ? MS_SLOT_I : MS_SLOT_B, pen->b[chunk]++, chunk);
}

static void pair(Pen *pen, int f_phase, int b_phase) {
  int f = f_phase ^ pen->flip, b = b_phase ^ pen->flip;
  ms_slot_put_pair(pen->schedule, pen->stage, pen->f[f]++, f, pen->b[b]++, b);
}

/* The oldest weight gradient that waits. */
static void weight(Pen *pen) {
  const MsSlot *slot = pen->schedule->slot[pen->stage];
  while (slot[pen->weight].kind != MS_SLOT_I) pen->weight++;
  int of = pen->weight++;
  ms_slot_put(pen->schedule, pen->stage, MS_SLOT_W, slot[of].mb, slot[of].chunk);
}

/* The eight steps on the device `near` places from the end where phase 0 enters, `half` devices deep, with `steady`
 * rounds of the main step. */
static void put_steps(Pen *pen, int half, int near, int steady) {
  int far = half - near - 1;
  for (int i = 0; i < 2 * far; i++) forward(pen, 0);
  for (int i = 0; i <= near; i++) forward(pen, 0), forward(pen, 1);
  for (int i = 0; i < far; i++) backward(pen, 1, TRUE), weight(pen), forward(pen, 1);
  for (int i = 0; i < steady; i++) {
    if (i == 0 && far == 0)
      forward(pen, 0), backward(pen, 1, FALSE); /* left apart on the middle devices: less bubble */
    else pair(pen, 0, 1);
    pair(pen, 1, 0);
  }
  for (int i = 0; i < far; i++) backward(pen, 1, FALSE), pair(pen, 1, 0);
  for (int i = 0, middle = (near + 1) / 2; i <= near;
       i++) { /* split from the middle on; there only the second one when near is even */
    backward(pen, 1, i > middle || (i == middle && near % 2));
    backward(pen, 0, i >= middle);
  }
  for (int i = 0; i < far; i++) weight(pen), backward(pen, 0, TRUE);
  for (int i = 0; i <= near; i++) weight(pen);
}

MsSchedule *ms_dualpipe_build(const MsScheduleNumbers *n) {
  int p = n->stages, half = n->microbatches / 2;
  MsSchedule *schedule = ms_schedule_alloc(p, n->microbatches, 2, MS_PLACE_BIDIRECTIONAL, 3 * n->microbatches);
  for (int s = 0; s < p; s++) {
    int near = MIN(s, p - 1 - s);
    Pen pen = {schedule, s, s >= p / 2, {0, half}, {0, half}, 0};
    put_steps(&pen, p / 2, near, half - p + near + 1);
  }
  return schedule;
}

MsSchedule *ms_dualpipev_build(const MsScheduleNumbers *n) {
  int p = n->stages;
  MsSchedule *schedule = ms_schedule_alloc(p, n->microbatches, 2, MS_PLACE_V, 6 * n->microbatches);
  for (int s = 0; s < p; s++) {
    Pen pen = {schedule, s, 0, {0, 0}, {0, 0}, 0};
    put_steps(&pen, p, s, n->microbatches - 2 * p + s + 1);
  }
  return schedule;
}
