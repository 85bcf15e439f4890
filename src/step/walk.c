/* src/step/walk.c - which piece comes next. */
#include "step/walk.h"

static int length(const MsWork *work, const MsChunk *chunk) { return chunk ? ms_work_chunk_length(work, chunk) : 0; }

MsPieceWalk ms_piece_walk(const MsWork *work, MsChunks of) {
  return (MsPieceWalk){.work = work, .of = of, .next_b = length(work, of.backward) - 1};
}

static gboolean is_layer(const MsChunk *c, int i) {
  int first = c->has_embedding ? 1 : 0;
  return i >= first && i < first + c->num_layers + c->num_mtp;
}

static MsPieceTurn turn_of(const MsPieceWalk *w, const MsChunk *chunk, int at, MsSlotKind kind) {
  if (at < 0) return (MsPieceTurn){.at = -1, .piece = -1, .rows = MS_N_SLOTS};
  MsPieceTurn t = {at, ms_work_chunk_piece(w->work, chunk, at), kind};
  if (kind == MS_SLOT_F || !w->of.leaves_head || !ms_work_is_head(w->work, t.piece)) return t;
  t.rows = kind == MS_SLOT_W ? MS_N_SLOTS : MS_SLOT_I;
  return t;
}

/* Only the embedding's backward is left, and it comes behind what the forward has left: the head too (Megatron-LM
 * model_chunk_schedule_plan.py, run). */
static gboolean waits(const MsPieceWalk *w) { return w->next_b == 0 && w->of.backward->has_embedding; }

/* The ends of the chunks alone, layers in pairs, first forward layer with last backward layer. */
gboolean ms_piece_next(MsPieceWalk *w) {
  const MsChunk *forward = w->of.forward, *backward = w->of.backward;
  gboolean any_f = w->next_f < length(w->work, forward), any_b = w->next_b >= 0;
  gboolean f_layer = any_f && is_layer(forward, w->next_f), b_layer = any_b && is_layer(backward, w->next_b);
  gboolean pair = f_layer && b_layer, first_f = any_f && any_b && waits(w),
           embeds = any_f && !f_layer && w->next_f == 0 && forward->has_embedding;
  gboolean lone_b = !pair && any_b && !embeds && !first_f;
  w->backward = turn_of(w, backward, pair || lone_b ? w->next_b-- : -1, w->of.kind);
  w->forward = turn_of(w, forward, any_f && !lone_b ? w->next_f++ : -1, MS_SLOT_F);
  return any_f || any_b;
}

int ms_piece_ahead(const MsPieceWalk *w, gboolean backward) {
  const MsChunk *chunk = backward ? w->of.backward : w->of.forward;
  int at = backward ? w->next_b : w->next_f;
  return at >= 0 && at < length(w->work, chunk) ? ms_work_chunk_piece(w->work, chunk, at) : -1;
}

int ms_bucket_end(const MsBucket *at, int n, int from) {
  int to = from;
  while (to < n && at[to].chunk == at[from].chunk && at[to].piece == at[from].piece) to++;
  return to;
}

void ms_bucket_rows(const MsBucket *at, int n, int chunk, int piece, int *from, int *to) {
  for (*from = 0; *from < n && (at[*from].chunk != chunk || at[*from].piece != piece);) (*from)++;
  *to = ms_bucket_end(at, n, *from);
}

gboolean ms_same_pieces(const MsWork *w, const MsChunk *a, const MsChunk *b) {
  int n = length(w, a);
  if (n != length(w, b)) return FALSE;
  for (int i = 0; i < n; i++)
    if (ms_work_chunk_piece(w, a, i) != ms_work_chunk_piece(w, b, i)) return FALSE;
  return TRUE;
}
