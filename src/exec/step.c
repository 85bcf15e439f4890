/* src/exec/step.c - the slots of the schedule: pieces of chunks forward and back, messages between stages, and the rows
 * of the step around them. */
#include "exec/state_priv.h"

#include "memory/memory.h"
#include <math.h>
#include <string.h>

/* --- a piece at work ------------------------------------------------------------------------------------------- */

static const MsPiece *piece_of(const Exec *x) { return &x->work->pieces[x->now->piece]; }

static void enter(Exec *x, int chunk, int mb, int at) {
  x->chunk = chunk, x->mb_index = mb;
  x->mb = &x->microbatch[chunk * x->layout->microbatches + mb];
  x->now = &x->instance[x->instance_at[chunk] + at];
  x->frame = &x->mb->piece[at];
}

static const char *numbered(const char *name, int i) {
  char text[32];
  g_snprintf(text, sizeof text, "%s %d", name, i + 1);
  return g_intern_string(text);
}

static gboolean first_is_attention(const Exec *x) { return (x->now->mixers & MS_MIX_ATTN) != 0; }

static void forward_in(Exec *x) {
  Store *stream = &x->mb->stream;
  int mtp = x->now->layer - x->model->num_layers;
  switch (piece_of(x)->kind) {
  case MS_PIECE_SCALES: /* the executor knows no delayed scaling */
  case MS_PIECE_EMBEDDING: break;
  case MS_PIECE_LAYER:
    ms_store_move(x, stream, "hidden", x->frame, first_is_attention(x) ? "layer input" : "mlp input");
    break;
  case MS_PIECE_MTP:
    ms_store_share(x, stream, mtp == 0 ? "hidden" : numbered("mtp out", mtp - 1), x->frame, "mtp hidden");
    break;
  case MS_PIECE_HEAD:
    ms_store_move(x, stream, "hidden", x->frame, "final norm in");
    for (int i = 0; i < x->model->mtp_num_layers; i++)
      ms_store_move(x, stream, numbered("mtp out", i), x->frame, ms_exec_head(x, i + 1)->in);
    break;
  }
}

static void forward_out(Exec *x) {
  Store *stream = &x->mb->stream;
  MsPieceKind kind = piece_of(x)->kind;
  if (kind == MS_PIECE_MTP)
    ms_store_move(x, x->frame, "mtp out", stream, numbered("mtp out", x->now->layer - x->model->num_layers));
  else if (kind != MS_PIECE_HEAD) ms_store_move(x, x->frame, "layer out", stream, "hidden");
}

static void backward_in(Exec *x) {
  Store *stream = &x->mb->stream;
  switch (piece_of(x)->kind) {
  case MS_PIECE_EMBEDDING: ms_store_move(x, stream, "d hidden", x->frame, "d embedding out"); break;
  case MS_PIECE_LAYER:
    ms_store_move(x, stream, "d hidden", x->frame, ms_exec_has_mlp(x) ? "d mlp residual" : "d attention residual");
    break;
  case MS_PIECE_MTP:
    ms_store_move(x, stream, numbered("d mtp out", x->now->layer - x->model->num_layers), x->frame, "d mtp out");
    break;
  case MS_PIECE_SCALES:
  case MS_PIECE_HEAD: break;
  }
}

/* The hidden state of an MTP block came from two: the gradient is added to what the head gave it. */
static void mtp_back_out(Exec *x) {
  int mtp = x->now->layer - x->model->num_layers;
  const char *to = mtp == 0 ? "d hidden" : numbered("d mtp out", mtp - 1);
  gint64 n = x->Tsp * x->h;
  const void *d = ms_exec_get(x, "d mtp hidden", n);
  Store *frame = x->frame;
  x->frame = &x->mb->stream;
  ms_exec_accumulate(x, to, d, n);
  x->frame = frame;
}

static void backward_out(Exec *x) {
  Store *stream = &x->mb->stream;
  switch (piece_of(x)->kind) {
  case MS_PIECE_SCALES: /* the executor knows no delayed scaling */
  case MS_PIECE_EMBEDDING: break;
  case MS_PIECE_LAYER: ms_store_move(x, x->frame, "d layer out", stream, "d hidden"); break;
  case MS_PIECE_MTP: mtp_back_out(x); break;
  case MS_PIECE_HEAD:
    ms_store_move(x, x->frame, "d final norm in", stream, "d hidden");
    for (int i = 0; i < x->model->mtp_num_layers; i++)
      ms_store_move(x, x->frame, ms_exec_head(x, i + 1)->d_in, stream, numbered("d mtp out", i));
    break;
  }
}

/* --- overlapped buckets ---------------------------------------------------------------------------------------- */

static int bucket_number(const Exec *x, int chunk, int at) {
  for (int i = 0; i < x->n_ranges; i++)
    if (x->range[i].chunk == chunk && x->range[i].piece == at) return x->range[i].bucket;
  return -1;
}

static void bucket_rows(Exec *x, const RowList *rows, const MsBucket *at, int chunk, int piece) {
  int from, to;
  ms_bucket_rows(at, rows->n, chunk, piece, &from, &to);
  x->bucket = bucket_number(x, chunk, piece);
  if (from < to) ms_exec_rows(x, rows, from, to, MS_LIST_ALL, NULL);
  x->bucket = -1;
}

/* --- pieces ---------------------------------------------------------------------------------------------------- */

static void forward_piece(Exec *x, const MsSlotPass *pass, int at) {
  if (pass->nth == 0) bucket_rows(x, &x->gather, x->step_ops.gather_at, pass->chunk, at);
  enter(x, pass->chunk, pass->mb, at);
  forward_in(x);
  const RowList *rows = &x->piece_rows[x->now->piece].forward;
  ms_exec_rows(x, rows, 0, rows->n, MS_LIST_ALL, piece_of(x));
  forward_out(x);
  ms_exec_forward_ended(x, piece_of(x));
  x->now = NULL;
}

static void backward_piece(Exec *x, const MsSlotPass *pass, int at) {
  enter(x, pass->chunk, pass->mb, at);
  if (pass->kind != MS_SLOT_W) backward_in(x);
  const RowList *rows = &x->piece_rows[x->now->piece].backward;
  ms_exec_rows(x, rows, 0, rows->n, ms_list_part(pass->kind), piece_of(x));
  if (pass->kind != MS_SLOT_W) backward_out(x);
  if (pass->kind != MS_SLOT_I) {
    ms_exec_backward_ended(x, piece_of(x));
    ms_exec_routing_free(x->mb->routing[at]);
    x->mb->routing[at] = NULL;
  }
  x->now = NULL;
  if (pass->last) bucket_rows(x, &x->reduce, x->step_ops.reduce_at, pass->chunk, at);
}

/* --- between stages -------------------------------------------------------------------------------------------- */

static int rank_of_stage(const Exec *x, int stage) {
  int coord[4];
  ms_rank_coords(x->layout, FALSE, x->rank, coord);
  coord[3] = stage;
  return ms_rank_of(x->layout, FALSE, coord);
}

static int tag(const Exec *x, int virtual_stage, int mb, gboolean back) {
  return 2 * (virtual_stage * x->layout->microbatches + mb) + back;
}

static Store *stream_of(Exec *x, int chunk, int mb) {
  return &x->microbatch[chunk * x->layout->microbatches + mb].stream;
}

static const char *handed_on(gboolean back) { return back ? "d hidden" : "hidden"; }

/* Takes what another stage sent, or another chunk of this rank left. */
static void receive(Exec *x, const MsSlotPass *pass) {
  int stage, other;
  gboolean back = pass->kind != MS_SLOT_F;
  if (pass->from < 0) return;
  ms_virtual_owner(x->schedule, pass->from, &stage, &other);
  Store *stream = stream_of(x, pass->chunk, pass->mb);
  if (!pass->comes) {
    ms_store_move(x, stream_of(x, other, pass->mb), handed_on(back), stream, handed_on(back));
    return;
  }
  x->frame = stream;
  void *data = ms_exec_new(x, handed_on(back), x->Tsp * x->h);
  ms_comm_receive(x->comm, rank_of_stage(x, stage), tag(x, pass->here, pass->mb, back), data, x->Tsp * x->h);
}

/* What stays on this rank is taken from its stream by `receive`. */
static void send_on(Exec *x, const MsSlotPass *pass) {
  int stage, other;
  gboolean back = pass->kind != MS_SLOT_F;
  if (!pass->goes) return;
  ms_virtual_owner(x->schedule, pass->to, &stage, &other);
  x->frame = stream_of(x, pass->chunk, pass->mb);
  x->p2p_to = rank_of_stage(x, stage), x->p2p_tag = tag(x, pass->to, pass->mb, back), x->p2p_name = handed_on(back);
  ms_exec_rows(x, &x->p2p_rows, 0, 1, MS_LIST_ALL, NULL);
  ms_exec_drop(x, handed_on(back));
}

static void send_row(Exec *x) {
  gint64 n = x->Tsp * x->h;
  ms_comm_send(x->comm, x->p2p_to, x->p2p_tag, ms_exec_get(x, x->p2p_name, n), n);
  ms_exec_sent(x, (double)n, 2);
}
const Handler ms_exec_p2p_row = {MS_OP_P2P, "pipeline", -1, ~0u, send_row};

/* --- slots ----------------------------------------------------------------------------------------------------- */

static void run_turn(Exec *x, const MsTurn *turn) {
  const MsSlotPass *pass = turn->forward ? turn->forward : turn->backward;
  MsPieceWalk w = ms_piece_walk(x->work, ms_chunks_of(x->work, turn));
  receive(x, pass);
  x->backward = turn->backward != NULL, x->split = pass->kind == MS_SLOT_I || pass->kind == MS_SLOT_W;
  while (ms_piece_next(&w))
    if (turn->forward) forward_piece(x, pass, w.forward.at);
    else backward_piece(x, pass, w.backward.at);
  x->backward = x->split = FALSE;
  send_on(x, pass);
}

static void check_timeline(Exec *x, int slot) {
  double said = x->timeline[slot + 1] - x->timeline[0];
  if (!x->options->unchecked && !ms_exec_natural(x) && fabs(x->kept_B - said) > 0.5 + 1e-9 * x->timeline[0])
    ms_exec_fail(x, MS_ERROR_NOTHING,
                 "ledger: after slot %d (%s of microbatch %d) %.0f B are held for backward, the memory model says %.0f",
                 slot, ms_slot_words[x->schedule->slot[x->stage][slot].kind], x->schedule->slot[x->stage][slot].mb,
                 x->kept_B, said);
}

static void group_of_rows(Exec *x, const RowList *rows) { ms_exec_rows(x, rows, 0, rows->n, MS_LIST_ALL, NULL); }

void ms_exec_step(Exec *x) {
  x->loss = x->step_message_B = x->step_flop = 0;
  x->bucket = -1;
  group_of_rows(x, &x->before);
  x->walk = ms_slot_walk_new(x->schedule, x->stage, FALSE); /* a pair one after the other: two cores overlap nothing */
  for (const MsTurn *turn; (turn = ms_slot_walk_next(x->walk));) {
    run_turn(x, turn);
    if (turn->closes) check_timeline(x, turn->index);
  }
  ms_slot_walk_free(x->walk);
  x->walk = NULL;
  group_of_rows(x, &x->after);
  ms_comm_flush(x->comm);
}
