/* src/bound/bound.c - a lower bound of the step that `full` can never undercut.
 *
 * Slots follow one another on the compute stream of their stage, so a stage's span is at least the sum over its pieces
 * of the time from the first compute row of each pass to the end of the last, sharing included (only the compute rows
 * where backwards are split or run beside forwards). For 1F1B, interleaved and GPipe the first slot of stage i waits
 * for chunk 0 of the stages before it, and when its last slot (chunk 0 backward) has handed on its gradient the earlier
 * stages still run theirs. Nor is it shorter than what any other stream of the stage has to run. All stages meet at the
 * gradient norm; what follows it on the slowest stage is added. Everything is summed in the engine's own picoseconds.
 */
#include "bound/bound_priv.h"
#include "base/units.h"
#include "bound/bound.h"
#include "step/meeting.h"
#include <string.h>

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

/* Of one stage, wherever all meet: rows after that which its last compute row comes before. */
static MsTime behind_stage(const MsProgram *p, int stage) { return after_barrier(&p->step[stage].after); }

MsTime ms_bound_behind(const MsProgram *p) {
  MsTime most = 0;
  for (int s = 0; s < p->layout->pp && !p->skewed; s++) most = MAX(most, behind_stage(p, s));
  return most;
}

/* What rows of one stage use up, alone. */
typedef struct {
  MsTime stream[MS_N_STREAMS], use[MS_N_USES];
  double sms; /* SMs that rows of others than compute take, times seconds: picoseconds */
} Busy;

static void add_list(Busy *busy, const MsCosted *c, MsListPart part, int times) {
  for (int i = 0; i < c->list->n; i++) {
    const MsTime duration = times * c->duration[i];
    if (!ms_in_list_part(&c->list->op[i], part)) continue;
    busy->stream[c->list->op[i].stream] += duration;
    busy->use[c->use[i]] += duration;
    if (c->use[i] != MS_USE_COMPUTE) busy->sms += (double)c->sms[i] * (double)duration;
  }
}

/* What FSDP does around the passes of a piece: whole parameters before its forward and, but for embedding and head,
 * again before its backward; between two backwards where only they drop them. */
static int times_gathered(const MsProgram *p, int piece) {
  gboolean every = ms_unit_gathers(p->scenario) == MS_GATHERS_EVERY;
  return p->unit[piece].gather.list->n == 0 ? 0 : every && ms_work_is_unit(&p->work->pieces[piece]) ? 2 : 1;
}

static void add_unit(Busy *busy, const MsProgram *p, int piece) {
  const MsCostedUnit *u = &p->unit[piece];
  int fetched = times_gathered(p, piece);
  add_list(busy, &u->gather, MS_LIST_ALL, fetched), add_list(busy, &u->cast[0], MS_LIST_ALL, MIN(fetched, 1));
  if (fetched > 1) add_list(busy, &u->cast[1], MS_LIST_ALL, 1);
  add_list(busy, &u->again, MS_LIST_ALL, 1), add_list(busy, &u->reduce, MS_LIST_ALL, 1);
}

static MsBusy busy_of(const Busy *busy) {
  MsBusy own;
  memcpy(own.stream, busy->stream, sizeof own.stream), memcpy(own.use, busy->use, sizeof own.use);
  return own;
}

void ms_bound_units(const MsProgram *p, MsBusy *unit) {
  for (int i = 0; i < p->work->n_pieces; i++) {
    Busy busy = {0};
    if (p->unit) add_list(&busy, &p->unit[i].gather, MS_LIST_ALL, times_gathered(p, i));
    if (p->unit) add_list(&busy, &p->unit[i].reduce, MS_LIST_ALL, 1);
    unit[i] = busy_of(&busy);
  }
}

MsBusy ms_bound_passes_of(const MsCostedPiece *c, gboolean leaves_wgrad) {
  Busy busy = {0};
  add_list(&busy, &c->forward, MS_LIST_ALL, 1);
  add_list(&busy, &c->backward, leaves_wgrad ? MS_LIST_INPUT : MS_LIST_ALL, 1);
  add_list(&busy, &c->reload, MS_LIST_ALL, 1);
  return busy_of(&busy);
}

static void add_piece(Busy *busy, const MsProgram *p, int piece) {
  const MsCostedPiece *c = &p->piece[piece];
  add_list(busy, &c->forward, MS_LIST_ALL, 1);
  add_list(busy, &c->backward, leaves_head(p) && ms_work_is_head(p->work, piece) ? MS_LIST_INPUT : MS_LIST_ALL, 1);
  add_list(busy, &c->reload, MS_LIST_ALL, 1);
  if (p->unit) add_unit(busy, p, piece);
}

static void add_times(Busy *sum, const Busy *own, MsTime times) {
  for (int k = 0; k < MS_N_STREAMS; k++) sum->stream[k] += times * own->stream[k];
  for (int k = 0; k < MS_N_USES; k++) sum->use[k] += times * own->use[k];
  sum->sms += (double)times * own->sms;
}

static int most_of_messages(const MsProgram *p) {
  int most = p->p2p.sms;
  for (int i = 0; p->message && i < 2 * p->layout->pp; i++) most = MAX(most, p->message[i].sms);
  return most;
}

/* The engine leaves compute a tenth of the SMs. With S of them taken, at most M, compute loses min(S, 9/10) >= g S,
 * where g = 9 / (10 M), at most 1. While nothing is computed g S is no more than the time that passes. So compute and g
 * times what takes SMs beside it fit into the step, one after the other. */
static double lost_to_sms(const MsProgram *p, const Busy *busy, int stage) {
  int most[MS_N_STREAMS] = {0}, sm_count = ms_program_machine_of(p, stage)->sm_count,
      sum = 2 * most_of_messages(p); /* there and back */
  if (sm_count <= 0) return 0;
  for (int i = 0; i < p->work->n_pieces; i++) {
    ms_note_sms(most, &p->piece[i].forward), ms_note_sms(most, &p->piece[i].backward);
    ms_note_sms(most, &p->piece[i].reload);
    for (int k = 0; p->unit && k < MS_UNIT_LISTS; k++) ms_note_sms(most, &p->unit[i].list[k]);
  }
  const MsCostedStep *step = &p->step[stage];
  ms_note_sms(most, &step->before), ms_note_sms(most, &step->gather), ms_note_sms(most, &step->reduce);
  ms_note_sms(most, &step->after);
  return busy->sms / MAX(sm_count, 10.0 / 9 * (sum + ms_sum_sms(most)));
}

/* Of what a link moves, and of what is computed on whichever streams, no two rows run faster than one after the other
 * (engine/engine.h); on the network of a fabric they may. The period of steps that overlap begins with the first
 * compute row, before which something may have been fetched. */
static MsTime longest_of(const MsProgram *p, const Busy *busy, int stage) {
  MsTime most = 0;
  for (int k = 0; k < MS_N_STREAMS; k++) most = MAX(most, busy->stream[k]);
  if (ms_schedule_row(p->scenario->layout.schedule)->steps == MS_STEPS_OVERLAP && p->layout->pp > 1) return most;
  for (int k = MS_USE_COMPUTE; k < MS_N_USES; k++)
    if (k != MS_USE_LINK1 || !ms_program_meets(p->scenario)) most = MAX(most, busy->use[k]);
  double computes = (1 - 0x1p-30) * ((double)busy->use[MS_USE_COMPUTE] + lost_to_sms(p, busy, stage));
  return MAX(most, (MsTime)computes);
}

/* `once`: with rows that a step has once, but for reductions. */
static MsTime busiest(const MsProgram *p, gboolean once) {
  const MsLayout *l = p->layout;
  MsTime most = 0, microbatches = ms_schedule_share(p->scenario->layout.schedule, l->microbatches);
  g_autofree Busy *of_piece = g_new0(Busy, (gsize)p->work->n_pieces);
  for (int k = 0; k < p->work->n_pieces; k++) add_piece(&of_piece[k], p, k);
  for (int s = 0; s < l->pp; s++) {
    Busy busy = {0};
    for (MsStagePiece at = ms_stage_pieces(p->work, s); ms_next_piece(&at);)
      add_times(&busy, &of_piece[at.piece], microbatches);
    if (once)
      add_list(&busy, &p->step[s].before, MS_LIST_ALL, 1), add_list(&busy, &p->step[s].gather, MS_LIST_ALL, 1),
          add_list(&busy, &p->step[s].after, MS_LIST_ALL, 1);
    most = MAX(most, longest_of(p, &busy, s));
  }
  return most;
}

MsTime ms_bound_streams(const MsProgram *p) { return busiest(p, FALSE); }

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
    meet = MAX(meet, span + (in_turn ? head + tail - late_of(p, lags, s) : 0) + (p->skewed ? behind_stage(p, s) : 0));
    if (s + 1 == l->pp) break;
    head +=
        chunk_passage(p, lags, ms_layout_chunk(l, s, 0), MS_SLOT_F) + ms_time_of(ms_program_p2p(p, s, s + 1)->time_s);
    tail += back_to(p, lags, s);
  }
  meet += ms_bound_behind(p);
  return MAX(meet, busiest(p, !p->skewed));
}
