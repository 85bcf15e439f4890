/* src/step/fetch.c - which piece has something brought to it next. */
#include "step/fetch.h"

#include "describe/framework.h"

gboolean ms_program_fetches(const MsProgram *p) {
  for (int i = 0; i < p->work->n_pieces; i++)
    if (p->piece[i].reload.list->n > 0) return TRUE;
  return p->unit != NULL;
}

gboolean ms_needs_params(const MsProgram *p, int piece, MsSlotKind kind) {
  if (!p->unit || p->unit[piece].gather.list->n + p->unit[piece].first.list->n == 0 || kind == MS_SLOT_W) return FALSE;
  return kind == MS_SLOT_F || ms_work_is_unit(&p->work->pieces[piece]);
}

gboolean ms_needs_fetch(const MsProgram *p, int piece, MsSlotKind kind) {
  return ms_needs_params(p, piece, kind) ||
         (kind != MS_SLOT_F && kind != MS_SLOT_W && p->piece[piece].reload.list->n > 0);
}

static gboolean gathers(const MsProgram *p, MsNeed need, gboolean stay) {
  return !stay && ms_needs_params(p, need.piece, need.backward ? MS_SLOT_B : MS_SLOT_F);
}

int ms_params_gathered(const MsProgram *p, MsNeed need, gboolean stay, const MsCosted *list[MS_GATHERS]) {
  const MsCostedUnit *unit = p->unit ? &p->unit[need.piece] : NULL;
  int n = 0;
  if (unit && need.first) list[n++] = &unit->first;
  if (!gathers(p, need, stay)) return n;
  list[n++] = &unit->gather;
  if (need.backward) list[n++] = &unit->again;
  return n;
}

const MsCosted *ms_params_cast(const MsProgram *p, MsNeed need, gboolean stay) {
  const MsCosted *cast = gathers(p, need, stay) ? &p->unit[need.piece].cast[need.backward] : NULL;
  return cast && cast->list->n > 0 ? cast : NULL;
}

gboolean ms_passes_wait(const MsProgram *p) { return p->unit && ms_framework_has_units(ms_framework(p->scenario)); }

/* fully_shard fetches ahead in a backward by the order of its forwards, which is forgotten at the end of every backward
 * (of other microbatches, in a pipeline), and to which a recomputed unit adds itself, so that what it fetches next is
 * the wrong one (FSDPParamGroup, _backward_prefetch). Blocks that were told what to fetch need no order, and the first
 * FullyShardedDataParallel remembers that of its first pass (_exec_order_utils.py). */
static gboolean loses_order(const MsProgram *p, int piece) {
  gboolean told = ms_framework(p->scenario)->fetches_blocks && p->layout->ep > 1;
  if (!ms_passes_wait(p) || told || ms_framework(p->scenario)->flat_parameters) return FALSE;
  return ms_unit_gathers(p->scenario) == MS_GATHERS_DROPPED || (piece >= 0 && p->unit[piece].again.list->n > 0);
}

gboolean ms_params_stay(const MsProgram *p, const MsSchedule *schedule, int stage, int at) {
  if (!p->unit || ms_unit_gathers(p->scenario) != MS_GATHERS_DROPPED) return FALSE;
  const MsSlot *slot = schedule->slot[stage];
  int before = at - 1;
  while (before >= 0 && (slot[before].chunk != slot[at].chunk || slot[before].kind == MS_SLOT_W)) before--;
  return before >= 0 && slot[before].kind == MS_SLOT_F;
}

MsNeed ms_need_ahead(const MsProgram *p, const MsPieceWalk *w, gboolean backward, MsNeed then) {
  int piece = ms_piece_ahead(w, backward);
  if (piece < 0) return then;
  if (backward && loses_order(p, w->backward.piece)) return MS_NO_NEED;
  if (!ms_needs_fetch(p, piece, backward ? w->of.kind : MS_SLOT_F)) return MS_NO_NEED;
  return (MsNeed){piece, backward, !backward && w->of.first};
}

MsNeed ms_first_need(const MsProgram *p, MsChunks of) {
  MsPieceWalk w = ms_piece_walk(p->work, of);
  return ms_need_ahead(p, &w, !of.forward, MS_NO_NEED);
}

static gboolean is_first_forward(const MsSlot *slots, int at) {
  for (int i = 0; i < at; i++)
    if (ms_slot_has_forward(&slots[i]) && slots[i].chunk == slots[at].chunk) return FALSE;
  return TRUE;
}

MsNeed ms_need_of_slots(const MsProgram *p, const MsSchedule *schedule, int stage, int at) {
  if (ms_passes_wait(p)) return MS_NO_NEED;
  while (at < schedule->n[stage] && schedule->slot[stage][at].kind == MS_SLOT_W) at++;
  if (at == schedule->n[stage]) return MS_NO_NEED;
  const MsSlot *slot = &schedule->slot[stage][at];
  if (slot->kind == MS_SLOT_FB && p->scenario->options.ep_overlap) return MS_NO_NEED; /* it fetches its own */
  const MsChunk *chunk = ms_layout_chunk(p->layout, stage, slot->chunk);
  if (!ms_slot_has_forward(slot))
    return ms_first_need(p, (MsChunks){.backward = chunk, .kind = (MsSlotKind)slot->kind});
  return ms_first_need(p, (MsChunks){.forward = chunk, .first = is_first_forward(schedule->slot[stage], at)});
}
