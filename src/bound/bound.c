/* src/bound/bound.c - a lower bound of the step that `full` can never undercut.
 *
 * Slots follow one another on the compute stream of their stage, so a stage's span is at least the sum over its pieces
 * of the time from the first compute row of each pass to the end of the last, sharing included (only the compute rows
 * where backwards are split or run beside forwards). For 1F1B, interleaved and GPipe the first slot of stage i waits
 * for chunk 0 of the stages before it, and when its last slot (chunk 0 backward) has handed on its gradient the earlier
 * stages still run theirs. Nor is it shorter than what any other stream of the stage has to run. All stages meet at the
 * gradient norm; what follows it on the slowest stage is added. Everything is summed in the engine's own picoseconds.
 */
#include "bound/bound.h"
#include "base/units.h"

/* A weight gradient of the head that is left may hide beside the others' last backwards. */
static gboolean leaves_head(const MsProgram *p) { return ms_work_deferred(p->work, G_MAXINT) > 0; }

static MsTime piece_span(const MsProgram *p, MsPieceLags *lags, int piece, MsSlotKind kind) {
  const MsCostedPiece *c = &p->piece[piece];
  gboolean left = kind == MS_SLOT_B && leaves_head(p) && ms_work_is_head(p->work, piece);
  if (ms_slots_overlap(p->scenario))
    return kind == MS_SLOT_F ? c->forward.compute : c->backward.compute - (left ? c->backward.weight : 0);
  if (left) kind = MS_SLOT_I;
  return MAX(0, ms_piece_lags_pass(lags, kind, piece, MS_FROM_COMPUTE)->to[MS_END_COMPUTE][MS_END_COMPUTE]);
}

static MsTime chunk_span(const MsProgram *p, MsPieceLags *lags, const MsChunk *chunk) {
  MsTime sum = 0;
  for (int i = 0; i < ms_work_chunk_length(p->work, chunk); i++) {
    int piece = ms_work_chunk_piece(p->work, chunk, i);
    sum += piece_span(p, lags, piece, MS_SLOT_F) + piece_span(p, lags, piece, MS_SLOT_B);
  }
  return sum;
}

/* From a chunk's input to its output. */
static MsTime chunk_passage(const MsProgram *p, MsPieceLags *lags, const MsChunk *chunk, MsSlotKind kind) {
  MsTime sum = 0;
  for (int i = 0; i < ms_work_chunk_length(p->work, chunk); i++)
    sum += MAX(0, ms_piece_lags_pass(lags, kind, ms_work_chunk_piece(p->work, chunk, i), MS_FROM_ENTRY)
                      ->to[MS_END_ENTRY][MS_END_ENTRY]);
  return sum;
}

MsTime ms_bound_late(MsPieceLags *lags, int piece) {
  const MsLags *l = ms_piece_lags_pass(lags, MS_SLOT_B, piece, MS_FROM_COMPUTE);
  return MAX(0, l->to[MS_END_COMPUTE][MS_END_COMPUTE] - MAX(0, l->to[MS_END_ENTRY][MS_END_COMPUTE]));
}

/* The row at which all stages have met: the sum of the gradient norm, the last that the host waits for. */
static int meeting_row(const MsOpList *list) {
  int row = list->n - 1;
  while (row >= 0 && !(list->op[row].flags & MS_OPF_SYNC)) row--;
  return row < 0 ? list->n : row;
}

/* From the gradient norm, where all stages meet, to the end of the last row that cannot start before it: compute rows
 * behind it in the list, what waits for those (an optimizer on the host does), and what follows on the same stream. */
static MsTime after_barrier(const MsCosted *c) {
  enum { FREE = -1 }; /* may start before */
  MsTime last = 0, stream[MS_N_STREAMS];
  g_autofree MsTime *end = g_new(MsTime, MAX(c->list->n, 1));
  int meeting = meeting_row(c->list);
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = FREE;
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    MsTime start = i > meeting && op->stream == MS_STREAM_COMPUTE ? 0 : FREE;
    start = MAX(start, stream[op->stream]);
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= 0) start = MAX(start, end[op->wait[j]]);
    end[i] = start == FREE ? FREE : start + c->duration[i];
    stream[op->stream] = end[i];
    last = MAX(last, end[i]);
  }
  return last;
}

MsTime ms_bound_behind(const MsProgram *p) {
  MsTime most = 0;
  for (int s = 0; s < p->layout->pp && !p->skewed; s++) most = MAX(most, after_barrier(&p->step[s].after));
  return most;
}

static void add_list(MsTime *busy, const MsCosted *c, MsListPart part, int times) {
  for (int i = 0; i < c->list->n; i++)
    if (ms_in_list_part(&c->list->op[i], part)) busy[c->list->op[i].stream] += times * c->duration[i];
}

/* What FSDP does around the passes of a piece: whole parameters before its forward and, but for embedding and head,
 * again before its backward; between two backwards where only they drop them. */
static void add_unit(MsTime *busy, const MsProgram *p, int piece) {
  const MsCostedUnit *u = &p->unit[piece];
  gboolean every = ms_unit_gathers(p->scenario) == MS_GATHERS_EVERY;
  int fetched = u->gather.list->n == 0 ? 0 : every && ms_work_is_unit(&p->work->pieces[piece]) ? 2 : 1;
  add_list(busy, &u->gather, MS_LIST_ALL, fetched), add_list(busy, &u->cast, MS_LIST_ALL, fetched);
  add_list(busy, &u->again, MS_LIST_ALL, 1), add_list(busy, &u->reduce, MS_LIST_ALL, 1);
}

static void add_piece(MsTime *busy, const MsProgram *p, int piece) {
  const MsCostedPiece *c = &p->piece[piece];
  add_list(busy, &c->forward, MS_LIST_ALL, 1);
  add_list(busy, &c->backward, leaves_head(p) && ms_work_is_head(p->work, piece) ? MS_LIST_INPUT : MS_LIST_ALL, 1);
  add_list(busy, &c->reload, MS_LIST_ALL, 1);
  if (p->unit) add_unit(busy, p, piece);
}

MsTime ms_bound_streams(const MsProgram *p) {
  const MsLayout *l = p->layout;
  MsTime most = 0, microbatches = ms_schedule_share(p->scenario->layout.schedule, l->microbatches);
  g_autofree MsTime *of_piece = g_new0(MsTime, (gsize)p->work->n_pieces * MS_N_STREAMS);
  for (int k = 0; k < p->work->n_pieces; k++) add_piece(&of_piece[k * MS_N_STREAMS], p, k);
  for (int s = 0; s < l->pp; s++) {
    MsTime busy[MS_N_STREAMS] = {0};
    for (int c = 0; c < l->vpp; c++) {
      const MsChunk *chunk = ms_layout_chunk(l, s, c);
      for (int i = 0; i < ms_work_chunk_length(p->work, chunk); i++) {
        const MsTime *own = &of_piece[ms_work_chunk_piece(p->work, chunk, i) * MS_N_STREAMS];
        for (int k = 0; k < MS_N_STREAMS; k++) busy[k] += own[k];
      }
    }
    for (int k = 0; k < MS_N_STREAMS; k++) most = MAX(most, microbatches * busy[k]);
  }
  return most;
}

/* When its last slot has handed on its gradient. */
static MsTime late_of(const MsProgram *p, MsPieceLags *lags, int stage) {
  const MsChunk *first = ms_layout_chunk(p->layout, stage, 0);
  return stage > 0 && ms_work_chunk_length(p->work, first) > 0
             ? ms_bound_late(lags, ms_work_chunk_piece(p->work, first, 0))
             : 0;
}

static MsTime back_through(const MsProgram *p, MsPieceLags *lags, int stage) {
  return chunk_passage(p, lags, ms_layout_chunk(p->layout, stage, 0), MS_SLOT_B);
}

static MsTime back_to(const MsProgram *p, MsPieceLags *lags, int stage) {
  return back_through(p, lags, stage) + ms_time_of(ms_program_p2p(p, stage + 1, stage)->time_s);
}

static void drain(const MsProgram *p, MsPieceLags *lags, MsScheduleKind kind,
                  MsTime (*back)(const MsProgram *, MsPieceLags *, int), MsTime *after) {
  MsTime tail = 0;
  for (int s = 0; s < p->layout->pp; s++) {
    after[s] = s > 0 && ms_schedule_ends_in_turn(kind) ? MAX(0, tail - late_of(p, lags, s)) : 0;
    if (s + 1 < p->layout->pp) tail += back(p, lags, s);
  }
}

void ms_bound_drain(const MsProgram *p, MsPieceLags *lags, MsScheduleKind kind, MsTime *after) {
  drain(p, lags, kind, back_through, after);
}

void ms_bound_after_slots(const MsProgram *p, MsPieceLags *lags, MsScheduleKind kind, MsTime *after) {
  MsTime behind = ms_bound_behind(p);
  drain(p, lags, kind, back_to, after);
  for (int s = 0; s < p->layout->pp; s++) after[s] += behind;
}

MsTime ms_bound_step(const MsProgram *p, MsPieceLags *lags, MsScheduleKind kind, double *compute_s) {
  const MsLayout *l = p->layout;
  gboolean in_turn = ms_schedule_ends_in_turn(kind);
  MsTime head = 0, tail = 0, meet = 0;
  for (int s = 0; s < l->pp; s++) {
    MsTime sum = 0;
    for (int c = 0; c < l->vpp; c++) {
      const MsChunk *chunk = ms_layout_chunk(l, s, c);
      sum += chunk_span(p, lags, chunk);
    }
    MsTime span = sum * ms_schedule_share(kind, l->microbatches);
    if (compute_s) compute_s[s] = (double)span / MS_PS_PER_S;
    meet = MAX(meet, span + (in_turn ? head + tail - late_of(p, lags, s) : 0) +
                         (p->skewed ? after_barrier(&p->step[s].after) : 0));
    if (s + 1 == l->pp) break;
    head +=
        chunk_passage(p, lags, ms_layout_chunk(l, s, 0), MS_SLOT_F) + ms_time_of(ms_program_p2p(p, s, s + 1)->time_s);
    tail += back_to(p, lags, s);
  }
  MsTime streams = ms_bound_streams(p);
  meet += ms_bound_behind(p);
  return MAX(meet, streams);
}
