/* src/sim/bound.c - a lower bound of the step that `full` can never undercut.
 *
 * On one stage the rows of a slot take at least `shortest` (longest path with every stream free and nothing shared), and slots follow one another on
 * the compute stream, so their sum is a bound of the stage's span (only of compute rows where slots overlap). For 1F1B, interleaved and GPipe the first slot of stage i waits for chunk 0 of the
 * stages before it, and after its last slot (chunk 0 backward) the earlier stages still run theirs. All stages meet at the gradient norm; what
 * follows it on the slowest stage is added. Everything is summed in the engine's own picoseconds. */
#include "sim/lower.h"
#include "base/units.h"

static MsTime chunk_shortest(const MsProgram *p, const MsChunk *chunk, gboolean backward) {
  MsTime sum = 0;
  for (int i = 0; i < ms_work_chunk_length(chunk); i++) {
    const MsCostedPiece *c = &p->piece[ms_work_chunk_piece(p->work, chunk, i)];
    const MsCosted *list = backward ? &c->backward : &c->forward;
    sum += ms_slots_overlap(p->scenario) ? list->compute : list->shortest;
  }
  return sum;
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
      sum += chunk_shortest(p, chunk, FALSE) + chunk_shortest(p, chunk, TRUE);
    }
    MsTime span = sum * microbatches;
    if (stage) stage[s].compute_s = (double)span / MS_PS_PER_S;
    MsTime after = after_barrier(&p->step[s].after);
    meet = MAX(meet, span + (ends ? head + tail : 0) + (p->skewed ? after : 0));
    behind = MAX(behind, p->skewed ? 0 : after);
    const MsChunk *first = ms_layout_chunk(l, s, 0);
    head += chunk_shortest(p, first, FALSE) + message;
    tail += chunk_shortest(p, first, TRUE) + message;
  }
  return meet + behind;
}
