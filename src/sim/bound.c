/* src/sim/bound.c - a lower bound of the step that `full` can never undercut.
 *
 * Slots follow one another on the compute stream of their stage, so a stage's span is at least the sum over its pieces of the time from the first compute
 * row of each pass to the end of the last, sharing included (only the compute rows where backwards are split or run beside forwards). For 1F1B,
 * interleaved and GPipe the first slot of stage i waits for chunk 0 of the stages before it, and when its last slot (chunk 0 backward) has handed on its
 * gradient the earlier stages still run theirs. All stages meet at the gradient norm; what follows it on the slowest stage is added. Everything is
 * summed in the engine's own picoseconds. */
#include "sim/lower.h"
#include "base/units.h"

/* A weight gradient of the head that is left may hide beside the others' last backwards. */
static gboolean leaves_head(const MsProgram *p) { return ms_work_deferred(p->work, G_MAXINT) > 0; }

static MsTime piece_span(const MsProgram *p, int piece, MsSlotKind kind) {
  const MsCostedPiece *c = &p->piece[piece];
  gboolean left = kind == MS_SLOT_B && leaves_head(p) && piece == p->work->piece_head;
  if (ms_slots_overlap(p->scenario)) return kind == MS_SLOT_F ? c->forward.compute : c->backward.compute - (left ? c->backward.weight : 0);
  if (left) kind = MS_SLOT_I;
  return MAX(0, ms_piece_lags_pass(p->lags, kind, piece)->to[MS_END_COMPUTE][MS_END_COMPUTE]);
}

static MsTime chunk_span(const MsProgram *p, const MsChunk *chunk) {
  MsTime sum = 0;
  for (int i = 0; i < ms_work_chunk_length(chunk); i++) {
    int piece = ms_work_chunk_piece(p->work, chunk, i);
    sum += piece_span(p, piece, MS_SLOT_F) + piece_span(p, piece, MS_SLOT_B);
  }
  return sum;
}

/* From a chunk's input to its output. */
static MsTime chunk_passage(const MsProgram *p, const MsChunk *chunk, MsSlotKind kind) {
  MsTime sum = 0;
  for (int i = 0; i < ms_work_chunk_length(chunk); i++)
    sum += MAX(0, ms_piece_lags_pass(p->lags, kind, ms_work_chunk_piece(p->work, chunk, i))->to[MS_END_ENTRY][MS_END_ENTRY]);
  return sum;
}

MsTime ms_bound_late(MsPieceLags *lags, int piece) {
  const MsLags *l = ms_piece_lags_pass(lags, MS_SLOT_B, piece);
  return MAX(0, l->to[MS_END_COMPUTE][MS_END_COMPUTE] - MAX(0, l->to[MS_END_ENTRY][MS_END_COMPUTE]));
}

static MsTime after_barrier(const MsCosted *c) { /* compute rows behind the gradient norm */
  MsTime sum = 0;
  gboolean behind = FALSE;
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    if (behind && op->stream == MS_STREAM_COMPUTE) sum += c->duration[i];
    if (op->flags & MS_OPF_SYNC) behind = TRUE;
  }
  return sum;
}

MsTime ms_bound_step(const MsProgram *p, MsScheduleKind kind, MsTimeParts *stage) {
  const MsLayout *l = p->layout;
  gboolean ends = kind == MS_SCHED_1F1B || kind == MS_SCHED_GPIPE;
  MsTime head = 0, tail = 0, meet = 0, behind = 0, message = l->pp > 1 ? ms_time_of(p->p2p.time_s) : 0;
  for (int s = 0; s < l->pp; s++) {
    MsTime sum = 0, microbatches = kind == MS_SCHED_DUALPIPE ? l->microbatches / 2 : l->microbatches; /* two copies of the model: half each */
    for (int c = 0; c < l->vpp; c++) {
      const MsChunk *chunk = ms_layout_chunk(l, s, c);
      sum += chunk_span(p, chunk);
    }
    MsTime span = sum * microbatches;
    if (stage) stage[s].compute_s = (double)span / MS_PS_PER_S;
    MsTime after = after_barrier(&p->step[s].after);
    const MsChunk *first = ms_layout_chunk(l, s, 0);
    MsTime late = s > 0 && ms_work_chunk_length(first) > 0 ? ms_bound_late(p->lags, ms_work_chunk_piece(p->work, first, 0)) : 0;
    meet = MAX(meet, span + (ends ? head + tail - late : 0) + (p->skewed ? after : 0));
    behind = MAX(behind, p->skewed ? 0 : after);
    head += chunk_passage(p, first, MS_SLOT_F) + message;
    tail += chunk_passage(p, first, MS_SLOT_B) + message;
  }
  return meet + behind;
}
