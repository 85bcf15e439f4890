/* src/exec/step.c - the slots of the schedule: pieces of chunks forward and back, messages between stages, and the rows
 * of the step around them. */
#include "exec/exec_priv.h"

#include "memory/memory.h"
#include <math.h>
#include <string.h>

/* --- a piece at work ------------------------------------------------------------------------------------------- */

static const MsChunk *chunk_of(const Exec *x, int chunk) { return ms_layout_chunk(x->layout, x->stage, chunk); }
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
static gboolean last_is_mlp(const Exec *x) { return (x->now->mixers & (MS_MIX_MLP | MS_MIX_MOE)) != 0; }

static void forward_in(Exec *x) {
  Store *stream = &x->mb->stream;
  int mtp = x->now->layer - x->model->num_layers;
  switch (piece_of(x)->kind) {
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
    ms_store_move(x, stream, "d hidden", x->frame, last_is_mlp(x) ? "d mlp residual" : "d attention residual");
    break;
  case MS_PIECE_MTP:
    ms_store_move(x, stream, numbered("d mtp out", x->now->layer - x->model->num_layers), x->frame, "d mtp out");
    break;
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
  for (int i = 0; i < rows->n; i++) {
    if (at[i].chunk != chunk || at[i].piece != piece) continue;
    x->bucket = bucket_number(x, chunk, piece);
    ms_exec_rows(x, rows, i, i + 1, PART_ALL, NULL);
  }
  x->bucket = -1;
}

static gboolean last_backward(Exec *x, int chunk) { return --x->left[chunk] == 0; }

/* --- passes over a chunk --------------------------------------------------------------------------------------- */

static void forward_chunk(Exec *x, int chunk, int mb) {
  int n = ms_work_chunk_length(chunk_of(x, chunk)), first, count;
  ms_chunk_microbatches(x->schedule, chunk, &first, &count);
  x->backward = x->split = FALSE;
  for (int at = 0; at < n; at++) {
    if (mb == first) bucket_rows(x, &x->gather, x->step_ops.gather_at, chunk, at);
    enter(x, chunk, mb, at);
    forward_in(x);
    const RowList *rows = &x->piece_rows[x->now->piece].forward;
    ms_exec_rows(x, rows, 0, rows->n, PART_ALL, piece_of(x));
    forward_out(x);
    ms_exec_forward_ended(x, piece_of(x));
    x->now = NULL;
  }
}

static void backward_chunk(Exec *x, int chunk, int mb, Part part) {
  int n = ms_work_chunk_length(chunk_of(x, chunk));
  gboolean last = part != PART_INPUT && last_backward(x, chunk);
  x->backward = TRUE, x->split = part != PART_ALL;
  for (int at = n - 1; at >= 0; at--) {
    enter(x, chunk, mb, at);
    if (part != PART_WEIGHT) backward_in(x);
    const RowList *rows = &x->piece_rows[x->now->piece].backward;
    ms_exec_rows(x, rows, 0, rows->n, part, piece_of(x));
    if (part != PART_WEIGHT) backward_out(x);
    if (part != PART_INPUT) {
      ms_exec_backward_ended(x, piece_of(x));
      ms_exec_routing_free(x->mb->routing[at]);
      x->mb->routing[at] = NULL;
    }
    x->now = NULL;
    if (last) bucket_rows(x, &x->reduce, x->step_ops.reduce_at, chunk, at);
  }
  x->backward = x->split = FALSE;
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

/* Takes what virtual stage `from` made for `here`, or leaves it for a chunk of this rank. */
static void receive(Exec *x, int here, int from, int chunk, int mb, gboolean back) {
  int stage, other;
  const char *name = back ? "d hidden" : "hidden";
  if (from < 0) return;
  ms_virtual_owner(x->schedule, from, &stage, &other);
  if (stage == x->stage) {
    ms_store_move(x, stream_of(x, other, mb), name, stream_of(x, chunk, mb), name);
    return;
  }
  x->frame = stream_of(x, chunk, mb);
  void *data = ms_exec_new(x, name, x->Tsp * x->h);
  ms_comm_receive(x->comm, rank_of_stage(x, stage), tag(x, here, mb, back), data, x->Tsp * x->h);
}

static void send_on(Exec *x, int to, int chunk, int mb, gboolean back) {
  int stage, other;
  const char *name = back ? "d hidden" : "hidden";
  if (to < 0) return;
  ms_virtual_owner(x->schedule, to, &stage, &other);
  if (stage == x->stage) return; /* taken from this stream by `receive` */
  x->frame = stream_of(x, chunk, mb);
  x->p2p_to = rank_of_stage(x, stage), x->p2p_tag = tag(x, to, mb, back), x->p2p_name = name;
  ms_exec_rows(x, &x->p2p_rows, 0, 1, PART_ALL, NULL);
  ms_exec_drop(x, name);
}

static void send_row(Exec *x) {
  gint64 n = x->Tsp * x->h;
  ms_comm_send(x->comm, x->p2p_to, x->p2p_tag, ms_exec_get(x, x->p2p_name, n), n);
  ms_exec_sent(x, (double)n, 2);
}
const Handler ms_exec_p2p_row = {MS_OP_P2P, "pipeline", -1, ~0u, send_row};

/* --- slots ----------------------------------------------------------------------------------------------------- */

static void forward(Exec *x, int chunk, int mb) {
  int v = ms_virtual_stage(x->schedule, x->stage, chunk);
  receive(x, v, ms_virtual_before(x->schedule, v), chunk, mb, FALSE);
  forward_chunk(x, chunk, mb);
  send_on(x, ms_virtual_after(x->schedule, v), chunk, mb, FALSE);
}

static void backward(Exec *x, int chunk, int mb, Part part) {
  int v = ms_virtual_stage(x->schedule, x->stage, chunk);
  if (part != PART_WEIGHT) receive(x, v, ms_virtual_after(x->schedule, v), chunk, mb, TRUE);
  backward_chunk(x, chunk, mb, part);
  if (part != PART_WEIGHT) send_on(x, ms_virtual_before(x->schedule, v), chunk, mb, TRUE);
}

static void run_slot(Exec *x, const MsSlot *slot) {
  switch ((MsSlotKind)slot->kind) {
  case MS_SLOT_F: forward(x, slot->chunk, slot->mb); break;
  case MS_SLOT_B: backward(x, slot->chunk, slot->mb, PART_ALL); break;
  case MS_SLOT_I: backward(x, slot->chunk, slot->mb, PART_INPUT); break;
  case MS_SLOT_W: backward(x, slot->chunk, slot->mb, PART_WEIGHT); break;
  case MS_SLOT_FB: /* one after the other: two cores have nothing to overlap */
    forward(x, slot->chunk, slot->mb);
    backward(x, slot->chunk2, slot->mb2, PART_ALL);
    break;
  case MS_N_SLOTS: break;
  }
}

static void check_timeline(Exec *x, int slot) {
  double said = x->timeline[slot + 1] - x->timeline[0];
  if (!x->options->unchecked && !ms_exec_natural(x) && fabs(x->kept_B - said) > 0.5 + 1e-9 * x->timeline[0])
    ms_exec_fail(x, MS_ERROR_NOTHING,
                 "ledger: after slot %d (%s of microbatch %d) %.0f B are held for backward, the memory model says %.0f",
                 slot, ms_slot_words[x->schedule->slot[x->stage][slot].kind], x->schedule->slot[x->stage][slot].mb,
                 x->kept_B, said);
}

static void group_of_rows(Exec *x, const RowList *rows) { ms_exec_rows(x, rows, 0, rows->n, PART_ALL, NULL); }

void ms_exec_step(Exec *x) {
  x->loss = x->step_message_B = x->step_flop = 0;
  x->bucket = -1;
  for (int c = 0, first; c < x->layout->vpp; c++) ms_chunk_microbatches(x->schedule, c, &first, &x->left[c]);
  group_of_rows(x, &x->before);
  for (int i = 0; i < x->schedule->n[x->stage]; i++) {
    run_slot(x, &x->schedule->slot[x->stage][i]);
    check_timeline(x, i);
  }
  group_of_rows(x, &x->after);
  ms_comm_flush(x->comm);
}
