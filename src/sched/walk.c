/* src/sched/walk.c - the order in which slots can run. */
#include "sched/walk.h"
#include "base/err.h"

#include <string.h>

typedef struct { /* one kind of pass through one chunk: what is the same for all its microbatches */
  MsSlotPass pass;
  int in, out, kept; /* tensors of microbatch 0, -1 = none */
} Way;

enum { ACTIVATION, GRADIENT, REST, N_TENSORS }; /* what a forward, a backward, a weight gradient waits for */

typedef struct { /* a chunk of a stage */
  Way way[MS_SLOT_W + 1];
  int first_mb, left; /* left: backwards still to come */
  int ran[N_TENSORS]; /* passes that wait for each */
} Place;

typedef struct { /* a stage */
  const MsSlot *next, *end;
  Place *place; /* [chunks] */
  int ahead;    /* forwards in front of its first pair */
} Line;

struct MsSlotWalk {
  const MsSchedule *schedule;
  Line *line, *here, *until; /* [stages]; whose turn it is, of those below `until` */
  guint8 *made;              /* [tensors]; NULL: alone, inputs come from elsewhere */
  gboolean beside, alone;    /* alone: over one stage */
  gboolean moved;            /* some slot ran since the first stage had its turn */
  gboolean halved;           /* the forward of an FB slot ran, its backward comes next */
  gboolean scattered;        /* some chunk did not take its microbatches in order */
  int tensors;
  Place *place; /* [stages][chunks] */
  MsTurn turn;
};

static int waits_for(MsSlotKind kind) { return kind == MS_SLOT_F ? ACTIVATION : kind == MS_SLOT_W ? REST : GRADIENT; }

static int tensor(const MsSchedule *s, int what, int virtual_stage) {
  return virtual_stage < 0 ? -1 : (what * s->stages * s->chunks + virtual_stage) * s->microbatches;
}

static gboolean elsewhere(const MsSchedule *s, int virtual_stage, int stage) {
  int owner = stage, chunk;
  if (virtual_stage >= 0) ms_virtual_owner(s, virtual_stage, &owner, &chunk);
  return owner != stage;
}

static Way way_of(const MsSchedule *s, MsSlotKind kind, int stage, int chunk, int from, int to) {
  return (Way){.pass = {.kind = kind,
                        .stage = stage,
                        .chunk = chunk,
                        .here = ms_virtual_stage(s, stage, chunk),
                        .from = from,
                        .to = to,
                        .kept = -1,
                        .comes = elsewhere(s, from, stage),
                        .goes = elsewhere(s, to, stage)},
               .kept = -1};
}

/* The output of the last virtual stage is the loss: the gradient of its own backward. Weight gradients wait for the
 * input gradients of their own chunk, and nobody waits for them. */
static Place place_of(const MsSchedule *s, int stage, int chunk) {
  int here = ms_virtual_stage(s, stage, chunk), before = ms_virtual_before(s, here), after = ms_virtual_after(s, here);
  Place p = {.ran = {0}};
  ms_chunk_microbatches(s, chunk, &p.first_mb, &p.left);
  Way *f = &p.way[MS_SLOT_F], *b = &p.way[MS_SLOT_B], *w = &p.way[MS_SLOT_W];
  *f = way_of(s, MS_SLOT_F, stage, chunk, before, after);
  f->in = before < 0 ? -1 : tensor(s, ACTIVATION, here);
  f->out = after < 0 ? tensor(s, GRADIENT, here) : tensor(s, ACTIVATION, after);
  *b = *f; /* the same way back */
  b->pass.kind = MS_SLOT_B, b->pass.from = after, b->pass.to = before;
  b->pass.comes = f->pass.goes, b->pass.goes = f->pass.comes;
  b->in = tensor(s, GRADIENT, here), b->out = tensor(s, GRADIENT, before);
  p.way[MS_SLOT_I] = *b;
  p.way[MS_SLOT_I].pass.kind = MS_SLOT_I, p.way[MS_SLOT_I].kept = tensor(s, REST, here);
  *w = way_of(s, MS_SLOT_W, stage, chunk, -1, -1);
  w->in = tensor(s, REST, here), w->out = -1;
  for (int kind = 0; kind <= MS_SLOT_W; kind++) p.way[kind].pass.of = p.left;
  return p;
}

/* The forward of the first pair is one more that no backward comes before. */
static int ahead_of(const Line *l) {
  int n = 0, all = (int)(l->end - l->next) / 2;
  while (n < all && l->next[n].kind == MS_SLOT_F) n++;
  return n < all ? n - 1 : n;
}

MsSlotWalk *ms_slot_walk_new(const MsSchedule *s, int stage, gboolean beside) {
  size_t stages = (size_t)s->stages, places = stages * (size_t)s->chunks,
         tensors = N_TENSORS * places * (size_t)s->microbatches;
  gboolean alone = stage >= 0;
  MsSlotWalk *w = g_malloc(sizeof *w + stages * sizeof(Line) + places * sizeof(Place) + (alone ? 0 : tensors));
  *w = (MsSlotWalk){.schedule = s, .beside = beside, .alone = alone, .tensors = (int)tensors};
  w->line = (Line *)(w + 1), w->place = (Place *)(w->line + stages);
  w->made = alone ? NULL : (guint8 *)(w->place + places);
  w->turn.stage = MAX(stage, 0);
  w->here = &w->line[w->turn.stage], w->until = stage >= 0 ? w->here + 1 : w->line + stages;
  for (int k = 0; k < s->stages; k++)
    w->line[k] = (Line){s->slot[k], s->slot[k] + s->n[k], w->place + k * s->chunks, 0};
  for (Line *l = w->here; s->early && l < w->until; l++) l->ahead = ahead_of(l);
  for (const Line *l = w->here; l < w->until; l++)
    for (int c = 0; c < s->chunks; c++) l->place[c] = place_of(s, (int)(l - w->line), c);
  if (w->made) memset(w->made, 0, tensors);
  return w;
}

void ms_slot_walk_free(MsSlotWalk *walk) { g_free(walk); }

int ms_slot_walk_tensors(const MsSlotWalk *w) { return w->tensors; }

/* Of the stages that it goes over. */
static int first_stage(const MsSlotWalk *w) { return w->alone ? w->turn.stage : 0; }

int ms_slot_walk_stuck(const MsSlotWalk *w, int *slot) {
  for (int s = first_stage(w); w->line + s < w->until; s++)
    if (w->line[s].next < w->line[s].end) return *slot = ms_slot_walk_at(w, s), s;
  return -1;
}

void ms_slot_walk_must_end(const MsSlotWalk *w) {
  int slot, stage = ms_slot_walk_stuck(w, &slot);
  if (stage >= 0) MS_BUG("schedule deadlocks at stage %d slot %d", stage, slot);
}

/* What the backward behind a forward that exchanges waits for; -1: what that forward gives. */
static int comes_with(const MsSlotWalk *w, const MsSlot *slot) {
  if (!ms_slot_exchanges(slot)) return -1;
  const Place *place = w->here->place;
  int in = place[slot[1].chunk].way[MS_SLOT_B].in + slot[1].mb, out = place[slot->chunk].way[MS_SLOT_F].out + slot->mb;
  return in == out ? -1 : in;
}

/* Lists of 1F1B: `ahead` forwards, pairs of a forward and a backward, backwards. */
static const MsSlot *forward_slot(const MsSlotWalk *w, int f) {
  int ahead = w->here->ahead;
  return &w->schedule->slot[w->turn.stage][f < ahead ? f : 2 * f - ahead];
}

static const MsSlot *backward_slot(const MsSlotWalk *w, int b) {
  int ahead = w->here->ahead, all = w->schedule->n[w->turn.stage] / 2;
  return &w->schedule->slot[w->turn.stage][b < all - ahead ? ahead + 2 * b + 1 : all + b];
}

static int input_of(const MsSlotWalk *w, MsSlotKind kind, int chunk, int mb) {
  return chunk < 0 || chunk >= w->schedule->chunks ? -1 : w->here->place[chunk].way[kind].in + mb;
}

/* Behind forward f, and behind backward b, of the first and the last stage (MsEarly); -1: nothing. */
static int early_forward(const MsSlotWalk *w, int f) {
  int p = w->schedule->stages;
  if (f < p || (w->schedule->early == MS_EARLY_AT_ENDS && f > w->here->ahead)) return -1;
  const MsSlot *then = forward_slot(w, f - p);
  return input_of(w, MS_SLOT_F, then->chunk + 1, then->mb);
}

static int early_backward(const MsSlotWalk *w, int b) {
  int p = w->schedule->stages, pairs = w->schedule->n[w->turn.stage] / 2 - w->here->ahead;
  if (b < p || (w->schedule->early == MS_EARLY_AT_ENDS && b <= pairs)) return -1;
  const MsSlot *then = backward_slot(w, b - p);
  return input_of(w, MS_SLOT_B, then->chunk - 1, then->mb);
}

static int comes_early(const MsSlotWalk *w, const MsSlot *slot) {
  const MsSchedule *s = w->schedule;
  if (s->early == MS_EARLY_NOT) return -1;
  int stage = w->turn.stage, i = (int)(slot - s->slot[stage]), ahead = w->here->ahead, pairs = s->n[stage] / 2 - ahead;
  gboolean forward = slot->kind == MS_SLOT_F;
  if (stage == 0 && forward) return early_forward(w, i < ahead ? i : ahead + (i - ahead) / 2);
  if (stage < s->stages - 1) return -1;
  if (ms_slot_exchanges(slot)) return early_backward(w, (i - ahead) / 2);
  return forward || i < ahead + 2 * pairs ? -1 : early_backward(w, i - s->n[stage] / 2);
}

static gboolean may_run(const MsSlotWalk *w, const MsSlot *slot) {
  gboolean both = slot->kind == MS_SLOT_FB;
  if (!w->made) return TRUE;
  const Place *place = w->here->place;
  int in = place[slot->chunk].way[both ? MS_SLOT_F : slot->kind].in, with = comes_with(w, slot),
      early = comes_early(w, slot);
  if ((in >= 0 && !w->made[in + slot->mb]) || (with >= 0 && !w->made[with]) || (early >= 0 && !w->made[early]))
    return FALSE;
  return !both || w->made[place[slot->chunk2].way[MS_SLOT_B].in + slot->mb2];
}

static int of_microbatch(int tensor, int mb) { return tensor < 0 ? -1 : tensor + mb; }

static inline const MsSlotPass *run(MsSlotWalk *w, MsSlotKind kind, int chunk, int mb) {
  Place *at = &w->here->place[chunk];
  Way *way = &at->way[kind];
  MsSlotPass *pass = &way->pass;
  pass->mb = mb, pass->nth = mb - at->first_mb;
  pass->in = of_microbatch(way->in, mb), pass->out = of_microbatch(way->out, mb);
  w->scattered |= pass->nth != at->ran[waits_for(kind)]++;
  if (w->made && pass->out >= 0) w->made[pass->out] = 1;
  if (kind == MS_SLOT_I) pass->kept = way->kept + mb;
  if (w->made && kind == MS_SLOT_I) w->made[pass->kept] = 1;
  if (kind == MS_SLOT_B || kind == MS_SLOT_W) pass->last = --at->left == 0;
  return pass;
}

/* An FB slot, or the half of it that comes next. */
static void run_both(MsSlotWalk *w, const MsSlot *slot) {
  if (!w->halved) w->turn.forward = run(w, MS_SLOT_F, slot->chunk, slot->mb);
  if (w->halved || w->beside) w->turn.backward = run(w, MS_SLOT_B, slot->chunk2, slot->mb2);
  w->halved = !w->turn.backward;
}

static inline const MsTurn *take(MsSlotWalk *w, const MsSlot *slot) {
  MsTurn *turn = &w->turn;
  turn->index = (int)(slot - w->schedule->slot[turn->stage]);
  turn->opens = !w->halved;
  turn->held = turn->holds, turn->holds = ms_slot_exchanges(slot);
  turn->with[0] = comes_with(w, slot), turn->with[1] = comes_early(w, slot);
  turn->forward = turn->backward = NULL;
  if (slot->kind == MS_SLOT_F) turn->forward = run(w, MS_SLOT_F, slot->chunk, slot->mb);
  else if (slot->kind == MS_SLOT_FB) run_both(w, slot);
  else turn->backward = run(w, (MsSlotKind)slot->kind, slot->chunk, slot->mb);
  turn->closes = !w->halved;
  turn->paired = turn->backward && (turn->forward || (turn->index > 0 && slot[-1].kind == MS_SLOT_F));
  w->here->next += turn->closes;
  return turn;
}

const MsTurn *ms_slot_walk_next(MsSlotWalk *w) {
  for (;;) {
    const MsSlot *slot = w->here->next;
    if (slot < w->here->end && (w->halved || may_run(w, slot))) return w->moved = TRUE, take(w, slot);
    if (w->alone || (w->here + 1 == w->until && !w->moved)) return NULL;
    w->here++, w->turn.stage++;
    if (w->here == w->until) w->here = w->line, w->turn.stage = 0, w->moved = FALSE;
  }
}

static void go_to(MsSlotWalk *w, int stage) { w->here = w->line + stage, w->turn.stage = stage; }

gboolean ms_slot_walk_waits(MsSlotWalk *w, int stage, int tensor[MS_SLOT_WAITS]) {
  if (w->halved && stage != w->turn.stage) return FALSE;
  go_to(w, stage);
  const MsSlot *slot = w->here->next;
  if (slot == w->here->end || !(w->halved || may_run(w, slot))) return FALSE;
  gboolean both = slot->kind == MS_SLOT_FB;
  const Place *place = w->here->place;
  tensor[0] = of_microbatch(place[slot->chunk].way[both ? MS_SLOT_F : slot->kind].in, slot->mb);
  tensor[1] = both ? of_microbatch(place[slot->chunk2].way[MS_SLOT_B].in, slot->mb2) : -1;
  tensor[2] = comes_with(w, slot), tensor[3] = comes_early(w, slot);
  return TRUE;
}

const MsTurn *ms_slot_walk_take(MsSlotWalk *w, int stage) {
  go_to(w, stage);
  return take(w, w->here->next);
}

/* --- turns that are left out ----------------------------------------------------------------------------------- */

int ms_slot_walk_at(const MsSlotWalk *w, int stage) { return (int)(w->line[stage].next - w->schedule->slot[stage]); }

gboolean ms_slot_walk_taken(const MsSlotWalk *w, MsTaken *taken) {
  int all = w->schedule->microbatches;
  *taken = (MsTaken){all, all, all};
  for (int i = 0; i < w->schedule->stages * w->schedule->chunks && w->made; i++) {
    const Place *p = &w->place[i];
    taken->forward = MIN(taken->forward, p->ran[ACTIVATION]);
    taken->back = MIN(taken->back, p->way[MS_SLOT_B].pass.of - p->left), taken->left = MIN(taken->left, p->left);
  }
  return !w->halved && !w->turn.holds && !w->scattered && w->made;
}

int ms_slot_walk_waiting(const MsSlotWalk *w, int *tensor, int room) {
  static const MsSlotKind kind[N_TENSORS] = {MS_SLOT_F, MS_SLOT_B, MS_SLOT_W};
  int n = 0;
  for (int i = 0; i < w->schedule->stages * w->schedule->chunks && w->made; i++)
    for (int what = 0; what < N_TENSORS; what++) {
      const Place *p = &w->place[i];
      int in = p->way[kind[what]].in, mb = p->first_mb + p->ran[what];
      for (; in >= 0 && mb < w->schedule->microbatches && w->made[in + mb]; mb++)
        if (n++ < room) tensor[n - 1] = in + mb;
    }
  return n;
}

static void skip_place(Place *p, int microbatches) {
  p->left -= microbatches;
  for (int what = 0; what < N_TENSORS; what++)
    if (p->ran[what] > 0) p->ran[what] += microbatches;
}

void ms_slot_walk_skip(MsSlotWalk *w, const int *slots, int microbatches) {
  int n = ms_slot_walk_waiting(w, NULL, 0);
  g_autofree int *tensor = g_new(int, MAX(n, 1));
  ms_slot_walk_waiting(w, tensor, n);
  for (int i = 0; i < n; i++) w->made[tensor[i] + microbatches] = 1;
  for (int s = first_stage(w); w->line + s < w->until; s++) {
    for (int c = 0; c < w->schedule->chunks; c++) skip_place(&w->place[s * w->schedule->chunks + c], microbatches);
    w->line[s].next += slots[s];
  }
}
