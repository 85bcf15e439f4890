/* src/step/reduce.c - slots behind which gradients begin to be reduced. */
#include "step/reduce.h"
#include "describe/framework.h"

static gboolean aligned(const MsProgram *p) {
  return ms_framework(p->scenario)->aligns_reductions && p->layout->pp > 1 && !p->unit &&
         ms_schedule_row(p->scenario->layout.schedule)->sends == MS_SENDS_BLOCK;
}

gboolean ms_reduces_in_passes(const MsProgram *p, int stage) {
  return !aligned(p) || (p->layout->vpp == 1 && stage == 0);
}

static int chunk_back(const MsSlot *slot) {
  if (slot->kind == MS_SLOT_F) return -1;
  return slot->kind == MS_SLOT_FB ? slot->chunk2 : slot->chunk;
}

/* Chunks take their microbatches in order: the last backward of one is the first that is found from the end. */
static void find_slots(const MsSchedule *s, int stage, int behind, int *at) {
  int end = s->n[stage], left = s->chunks, back = 0;
  g_autofree int *slot = g_new(int, MAX(end, 1)); /* of the backwards, from the end back */
  for (int c = 0; c < s->chunks; c++) at[c] = G_MININT;
  for (int i = end; i-- > 0 && left > 0;) {
    int chunk = chunk_back(&s->slot[stage][i]);
    if (chunk < 0) continue;
    slot[back] = i;
    if (at[chunk] == G_MININT) at[chunk] = back >= behind ? slot[back - behind] : end, left--;
    back++;
  }
}

int *ms_reduce_slots(const MsProgram *p, const MsSchedule *s) {
  int chunks = s->chunks;
  if (!aligned(p)) return NULL;
  int *slots = g_new(int, s->stages *chunks);
  for (int k = 0; k < s->stages; k++)
    if (chunks > 1) find_slots(s, k, k, &slots[k * chunks]);
    else slots[k] = k == 0 ? -1 : s->n[k];
  return slots;
}

int ms_reduce_due(const MsProgram *p, const int *slots, const MsTurn *turn) {
  int chunks = p->layout->vpp;
  if (!slots || !turn->backward || !turn->closes) return -1;
  for (int c = 0; c < chunks; c++)
    if (slots[turn->stage * chunks + c] == turn->index) return c;
  return -1;
}

int ms_reduce_ending(const MsProgram *p, const int *slots, const MsTurn *turn) {
  return ms_reduces_here(p, turn->backward) ? turn->backward->chunk : ms_reduce_due(p, slots, turn);
}
