/* src/step/fetch.c - which piece has something brought to it next. */
#include "step/fetch.h"

static const MsNeed nobody = {-1, FALSE};

gboolean ms_program_fetches(const MsProgram *p) {
  for (int i = 0; i < p->work->n_pieces; i++)
    if (p->piece[i].reload.list->n > 0) return TRUE;
  return p->unit != NULL;
}

gboolean ms_needs_params(const MsProgram *p, int piece, MsSlotKind kind) {
  if (!p->unit || p->unit[piece].gather.list->n == 0 || kind == MS_SLOT_W) return FALSE;
  return kind == MS_SLOT_F || ms_work_is_unit(&p->work->pieces[piece]);
}

gboolean ms_needs_fetch(const MsProgram *p, int piece, MsSlotKind kind) {
  return ms_needs_params(p, piece, kind) ||
         (kind != MS_SLOT_F && kind != MS_SLOT_W && p->piece[piece].reload.list->n > 0);
}

MsNeed ms_need_ahead(const MsProgram *p, const MsPieceWalk *w, gboolean backward, MsNeed then) {
  int piece = ms_piece_ahead(w, backward);
  if (piece < 0) return then;
  return ms_needs_fetch(p, piece, backward ? w->of.kind : MS_SLOT_F) ? (MsNeed){piece, backward} : nobody;
}

MsNeed ms_first_need(const MsProgram *p, MsChunks of) {
  MsPieceWalk w = ms_piece_walk(p->work, of);
  return ms_need_ahead(p, &w, !of.forward, nobody);
}

MsNeed ms_need_of_slots(const MsProgram *p, const MsSchedule *schedule, int stage, int at) {
  while (at < schedule->n[stage] && schedule->slot[stage][at].kind == MS_SLOT_W) at++;
  if (at == schedule->n[stage]) return nobody;
  const MsSlot *slot = &schedule->slot[stage][at];
  if (slot->kind == MS_SLOT_FB && p->scenario->options.ep_overlap) return nobody; /* it fetches its own */
  const MsChunk *chunk = ms_layout_chunk(p->layout, stage, slot->chunk);
  gboolean forward = slot->kind == MS_SLOT_F || slot->kind == MS_SLOT_FB;
  return ms_first_need(p, forward ? (MsChunks){.forward = chunk}
                                  : (MsChunks){.backward = chunk, .kind = (MsSlotKind)slot->kind});
}
