/* src/bound/relaxed.c - a tight lower bound of the step: what `full` would find, slot by slot, if rows shared no more
 * than is proven of them.
 *
 * What one pass over one piece does to its stage is a table of lags (bound/lags.c); with EP overlap so is what a
 * forward piece does beside a backward piece. The table of a chunk is the max-plus product of those of its pieces. The
 * slots of the schedule then cost a few sums each instead of hundreds of rows.
 *
 * Why it never exceeds `full`: sharing only lengthens rows; of all orders and waits that the lowering lays down
 * (sim/graph.c) a subset is kept here, and with fewer waits and shorter rows nothing starts later. Left out: rows of
 * other streams that reach from one piece into the next, gradient reductions and parameter gathers other than those at
 * the ends of a chunk, what FSDP and offloading fetch. On top comes what is proven of rows that share: of a slot's own
 * (busy.c), of the step's collectives beside the slots and their messages (toll.c), and of two messages that leave a
 * stage together: the second of them to arrive, whichever that is, does so when the link has sent both. */
#include "bound/bound.h"
#include "bound/bound_priv.h"
#include "bound/cycle.h"
#include "step/after.h"
#include "step/meeting.h"
#include "step/reduce.h"
#include <string.h>

#define NEVER MS_NEVER

/* --- chunks --- */

typedef struct { /* of a slot */
  MsLags lags;
  MsNeed need;
  MsTime least; /* of a pair: that it takes of the compute stream */
} Table;

typedef struct {                /* of one chunk, by kind of slot */
  Table pass[2][MS_SLOT_W + 1]; /* the second: leaving the head's weight gradient */
  MsTime least[MS_SLOT_W + 1];  /* that a pass takes of the compute stream */
  int kind;                     /* chunks of the same pieces have the same number */
  gboolean empty;
} ChunkLags;

/* What the slots of a stage force on its compute stream, with the rows that run on from one into the next, which count
 * when the next one is over. A moment is no earlier than any before it and what is forced in between. */
typedef struct {
  gboolean told;
  MsTime sum, start; /* forced until now; the most by which a moment was later than that */
  MsCross last;      /* of the slot before */
} Forced;

enum { TIP = -1, NOTHING = -2 }; /* what is waited for if no tensor is: the turn before on the stage, or nothing */

typedef struct { /* a turn that was run */
  int stage, index;
  int in[2], out[2], kept; /* tensors of the forward (or only) pass, of the backward beside it; -1: none; in: TIP or
                              NOTHING */
  const Table *table;      /* NULL: it has no rows */
  MsTime message[2];       /* that brings `out` to where it is waited for */
  int ending;              /* chunk whose reductions begin with it, -1: of none */
  gboolean closes, two;
} Ran;

typedef struct {
  const MsProgram *p;
  MsPieceLags *lags;
  const MsSchedule *s;
  ChunkLags **chunk;     /* [num_chunks] chunk * pp + stage; those of the same pieces share one */
  ChunkLags **kind;      /* [n_kinds] each once */
  Table **pair_of_kinds; /* [n_kinds][n_kinds][2] forward chunk beside backward chunk, which leaves the head or not;
                            NULL = not asked for yet */
  int n_kinds;
  MsStages at;
  int *reduces;                /* of ms_reduce_slots */
  MsTime *last_b, *gather_at;  /* [num_chunks] */
  MsToll **toll;               /* [stages] NULL: none */
  MsTollBack **toll_back;      /* the same; of `ran` */
  Forced *forced;              /* [stages] */
  gboolean told[MS_MAX_POOLS]; /* Forced.told of the stages of a pool */
  gboolean splits;             /* backwards are split into I and W */
  gboolean needs, rivals;      /* it is asked what slots need, and what beside rivals */
  GArray *ran;                 /* Ran; NULL: nobody asks */
  int *left_with, turns;       /* [tensors of the walk] those whose messages leave one link of a stage with the same
                                * turn have the same number; 0: it has none, or leaves beside the step's own rows. NULL:
                                * no turn waits for two that share a link, or nothing is proven of the link */
  MsTime *left, limit; /* [stages] what is still to come behind the compute stream, NULL: nobody asks; a step above
                          `limit` need not be known */
} Relaxed;

static void at_least(MsTime *left, MsTime to) { *left = MAX(*left, to); }

/* By what rows force: from when the stream is free, or an input is there, to its end and the outputs. */
static void raise_lags(Table *t, const MsForced *f) {
  MsTime forced = t->need.forced + f->cross.inside;
  at_least(&t->lags.to[MS_END_COMPUTE][MS_END_COMPUTE], forced);
  for (int in = MS_END_ENTRY; in <= MS_END_BESIDE; in++) {
    at_least(&t->lags.to[in][MS_END_COMPUTE], f->tip[in]);
    at_least(&t->lags.to[MS_END_COMPUTE][in], f->reach[in]);
    if (f->opens[in] != NEVER) at_least(&t->lags.to[MS_END_COMPUTE][in], f->opens[in] + forced);
    for (int out = MS_END_ENTRY; out <= MS_END_BESIDE; out++) {
      at_least(&t->lags.to[out][in], f->through[in][out]);
      if (f->opens[in] != NEVER && f->tip[out] != NEVER) at_least(&t->lags.to[out][in], f->opens[in] + f->tip[out]);
    }
  }
}

/* The pieces of a turn as one table; beside a forward, a backward goes from the other entry to the other end. */
static Table table_of(const Relaxed *r, MsChunks of) {
  gboolean paired = of.forward && of.backward;
  Table t = {.lags = ms_no_rows};
  MsForced forced = ms_nothing_forced;
  forced.met = r->rivals; /* else nobody asks what they share */
  MsPieceWalk w = ms_piece_walk(r->p->work, of);
  while (ms_piece_next(&w)) {
    gboolean pair = w.forward.at >= 0 && w.backward.at >= 0, beside = paired && w.forward.at < 0;
    const MsPieceTurn *lone = w.forward.at >= 0 ? &w.forward : &w.backward;
    if (lone->rows == MS_N_SLOTS) continue;
    MsLags lags = pair ? *ms_piece_lags_pair(r->lags, w.forward.piece, w.backward.piece, MS_FROM_ALL)
                       : *ms_piece_lags_pass(r->lags, lone->rows, lone->piece, MS_FROM_ALL);
    if (beside) lags = ms_lags_beside(&lags);
    t.lags = ms_lags_product(&lags, &t.lags);
    if (!r->needs) continue;
    MsForced need = pair ? *ms_piece_forced_pair(r->lags, w.forward.piece, w.backward.piece)
                         : *ms_piece_forced_pass(r->lags, lone->rows, lone->piece);
    if (beside) need = ms_forced_beside(&need);
    forced = ms_forced_product(&need, &forced);
  }
  t.need = ms_need_of(&forced);
  const MsChunk *chunk = of.forward ? of.forward : of.backward;
  if (r->told[chunk->pool]) raise_lags(&t, &forced);
  return t;
}

static Table table_of_pass(const Relaxed *r, const MsChunk *chunk, MsSlotKind kind, gboolean leaves_head) {
  if (kind == MS_SLOT_F) return table_of(r, (MsChunks){.forward = chunk});
  return table_of(r, (MsChunks){.backward = chunk, .kind = kind, .leaves_head = leaves_head});
}

static gboolean may_leave_head(const Relaxed *r, const MsChunk *chunk) {
  return chunk->has_loss && ms_work_deferred(r->p->work, G_MAXINT) > 0;
}

static void chunk_lags(const Relaxed *r, const MsChunk *chunk, ChunkLags *l) {
  *l = (ChunkLags){.empty = ms_work_chunk_length(r->p->work, chunk) == 0};
  gboolean leaves = may_leave_head(r, chunk);
  for (int kind = 0; kind <= (r->splits ? MS_SLOT_W : MS_SLOT_B); kind++) {
    l->pass[0][kind] = l->pass[1][kind] = table_of_pass(r, chunk, (MsSlotKind)kind, FALSE);
    if (leaves) l->pass[1][kind] = table_of_pass(r, chunk, (MsSlotKind)kind, TRUE);
    for (int left = 0; left <= leaves; left++) {
      MsTime own = MAX(0, l->pass[left][kind].lags.to[MS_END_COMPUTE][MS_END_COMPUTE]);
      l->least[kind] = left ? MIN(l->least[kind], own) : own;
    }
  }
}

static void chunks_lags(Relaxed *r) {
  const MsLayout *l = r->p->layout;
  for (int i = 0; i < l->num_chunks; i++) {
    int like = 0;
    while (like < i && !ms_same_pieces(r->p->work, &l->chunks[like], &l->chunks[i])) like++;
    if (like < i) {
      r->chunk[i] = r->chunk[like];
      continue;
    }
    r->chunk[i] = r->kind[r->n_kinds] = g_new(ChunkLags, 1);
    chunk_lags(r, &l->chunks[i], r->chunk[i]);
    r->chunk[i]->kind = r->n_kinds++;
  }
  r->pair_of_kinds = g_new0(Table *, 2 * (size_t)r->n_kinds * (size_t)r->n_kinds);
}

static const ChunkLags *chunk_of(const Relaxed *r, const MsSlotPass *pass) {
  return r->chunk[pass->chunk * r->p->layout->pp + pass->stage];
}

static const Table *table_of_pair(Relaxed *r, const MsSlotPass *f, const MsSlotPass *b, gboolean leaves_head) {
  const MsLayout *l = r->p->layout;
  Table **known = &r->pair_of_kinds[2 * (chunk_of(r, f)->kind * r->n_kinds + chunk_of(r, b)->kind) + leaves_head];
  if (!*known) {
    Table t = table_of(r, (MsChunks){.forward = ms_layout_chunk(l, f->stage, f->chunk),
                                     .backward = ms_layout_chunk(l, b->stage, b->chunk),
                                     .kind = MS_SLOT_B,
                                     .leaves_head = leaves_head});
    MsTime forced = r->forced[f->stage].told ? t.need.forced + t.need.cross.inside : 0;
    t.least = MAX(forced, t.lags.to[MS_END_COMPUTE][MS_END_COMPUTE]);
    *known = g_memdup2(&t, sizeof t);
  }
  return *known;
}

static const Table *table_of_turn(Relaxed *r, const MsTurn *turn, MsChunks of) {
  const MsSlotPass *f = turn->forward, *b = turn->backward;
  if (!b) return &chunk_of(r, f)->pass[0][MS_SLOT_F];
  if (!f) return &chunk_of(r, b)->pass[of.leaves_head][b->kind];
  return table_of_pair(r, f, b, of.leaves_head);
}

/* --- turns --- */

/* A slot later: raises the moment when the stream is free. */
static void force(Forced *f, const MsNeed *need, MsTime before, MsTime *free) {
  f->sum += ms_cross_cost(&need->cross, &f->last);
  f->start = MAX(f->start, before - f->sum); /* what ran on may have ended before that */
  f->sum += need->forced + need->cross.inside;
  if (need->own > 0) f->last = need->cross;
  *free = MAX(*free, f->start + f->sum);
}

/* Runs a table on a stage; returns when its output is there. `beside`: what the backward of a pair waits for; becomes
 * when its output is there. */
static MsTime run_lags(Relaxed *r, int stage, const Table *t, MsTime entry, MsTime *beside) {
  MsTime before[MS_N_ENDS], after[MS_N_ENDS];
  ms_stages_run(&r->at, stage, &t->lags, entry, beside, before, after);
  if (r->forced[stage].told) force(&r->forced[stage], &t->need, before[MS_END_COMPUTE], &after[MS_END_COMPUTE]);
  if (r->toll[stage]) ms_toll_slot(r->toll[stage], &t->need, before, after);
  r->at.compute[stage] = after[MS_END_COMPUTE];
  r->at.host[stage] = after[MS_END_HOST];
  if (beside) *beside = after[MS_END_BESIDE];
  return after[MS_END_ENTRY];
}

/* Parameters that the first forward of a chunk waits for. */
static MsTime gathered(Relaxed *r, const MsSlotPass *f, MsTime entry) {
  int stage = f->stage;
  if (f->nth > 0) return entry;
  if (r->toll[stage]) {
    MsTime free = ms_toll_gathered(r->toll[stage], f->chunk);
    r->at.compute[stage] = MAX(r->at.compute[stage], free);
  }
  return MAX(entry, r->gather_at[f->chunk * r->p->layout->pp + stage]);
}

/* Of the first forward of a chunk, each piece of which waits for its own parameters: when its output is there at the
 * earliest. */
static MsTime brought(Relaxed *r, const MsSlotPass *f) {
  MsToll *toll = f->nth == 0 ? r->toll[f->stage] : NULL;
  if (!toll) return NEVER;
  const MsCostedStep *step = &r->p->step[f->stage];
  const MsChunk *chunk = ms_layout_chunk(r->p->layout, f->stage, f->chunk);
  MsLags rest = ms_no_rows;
  MsTime tip = NEVER;
  for (int at = ms_work_chunk_length(r->p->work, chunk), from, to; at-- > 0;) {
    int piece = ms_work_chunk_piece(r->p->work, chunk, at);
    rest = ms_lags_product(&rest, ms_piece_lags_pass(r->lags, MS_SLOT_F, piece, MS_FROM_ALL));
    ms_bucket_rows(step->ops.gather_at, step->gather.list->n, f->chunk, at, &from, &to);
    MsTime there = to > from ? ms_toll_brought(toll, f->chunk, at) : 0;
    if (there == 0) continue;
    ms_toll_not_before(toll, there + rest.to[MS_END_COMPUTE][MS_END_ENTRY]);
    tip = MAX(tip, there + rest.to[MS_END_ENTRY][MS_END_ENTRY]);
  }
  return tip;
}

static void note_side(Relaxed *r, const MsSlotPass *pass, int side, Ran *ran) {
  ran->in[side] = pass->in >= 0 ? pass->in : pass->kind == MS_SLOT_W ? NOTHING : TIP, ran->out[side] = pass->out;
  if (pass->kept >= 0) ran->kept = pass->kept;
  if (pass->goes) ran->message[side] = ms_stages_message(&r->at, pass, FALSE);
}

static void note(Relaxed *r, const MsTurn *turn, const Table *table) {
  const MsSlotPass *f = turn->forward, *b = turn->backward;
  Ran ran = {.stage = turn->stage,
             .index = turn->index,
             .in = {-1, -1},
             .out = {-1, -1},
             .kept = -1,
             .table = table,
             .ending = ms_reduce_ending(r->p, r->reduces, turn),
             .closes = turn->closes,
             .two = f && b};
  if (f) note_side(r, f, 0, &ran);
  if (b) note_side(r, b, ran.two, &ran);
  g_array_append_val(r->ran, ran);
}

/* behind: the kernels in front of the turn's reductions. */
static void hand_on(Relaxed *r, const MsSlotPass *pass, gboolean beside, MsTime tip, gboolean behind) {
  const MsToll *toll = pass->goes ? r->toll[pass->stage] : NULL;
  gboolean asked = toll || r->left_with,
           network =
               asked && pass->goes && ms_program_p2p(r->p, pass->stage, ms_program_stage_of(r->p, pass->to))->level > 0;
  MsTime longer = 0;
  if (toll && behind) tip = MAX(tip, ms_toll_scaled(toll));
  if (toll && network)
    longer = ms_toll_message(toll, ms_stages_leaves(&r->at, pass, tip), ms_stages_message(&r->at, pass, FALSE), behind);
  ms_stages_hand_on(&r->at, pass, beside, tip, longer);
  if (r->left_with && pass->goes && pass->out >= 0 && longer == 0) r->left_with[pass->out] = 2 * r->turns + 2 + network;
}

/* When the second of the messages is there that both passes of a pair wait for: they share a link if they left behind
 * one turn. */
static MsTime both_here(const Relaxed *r, const MsSlotPass *f, const MsSlotPass *b) {
  if (!r->left_with || !f->comes || !b->comes || r->left_with[f->in] == 0 || r->left_with[f->in] != r->left_with[b->in])
    return NEVER;
  MsTime message[] = {ms_stages_message(&r->at, f, TRUE), ms_stages_message(&r->at, b, TRUE)};
  return MIN(r->at.made[f->in] - message[0], r->at.made[b->in] - message[1]) + message[0] + message[1];
}

/* What is there behind the second of two inputs, whichever it is. */
static MsTime behind_both(const Table *t, MsTime second, MsEnd end) {
  return second + MIN(t->lags.to[end][MS_END_ENTRY], t->lags.to[end][MS_END_BESIDE]);
}

static void run_turn(Relaxed *r, const MsTurn *turn) {
  const MsSlotPass *f = turn->forward, *b = turn->backward;
  int stage = turn->stage;
  MsChunks of = ms_chunks_of(r->p->work, turn);
  MsTime before = r->at.tip[stage], sent[2], f_tip = NEVER, b_tip = NEVER;
  ms_stages_take_sends(&r->at, turn, sent);
  if (f) f_tip = ms_stages_entry(&r->at, turn, f, sent[0]);
  if (b) b_tip = ms_stages_entry(&r->at, turn, b, sent[1]);
  if (!b) f_tip = gathered(r, f, f_tip);
  int ending = r->toll[stage] ? ms_reduce_ending(r->p, r->reduces, turn) : -1;
  if (ending >= 0) ms_toll_last(r->toll[stage], ending);
  gboolean f_empty = f && chunk_of(r, f)->empty, b_empty = b && chunk_of(r, b)->empty;
  const Table *table = (f ? b || !f_empty : !b_empty) ? table_of_turn(r, turn, of) : NULL;
  MsTime least = table && !b ? brought(r, f) : NEVER, second = table && f && b ? both_here(r, f, b) : NEVER;
  if (table && f) f_tip = run_lags(r, stage, table, MAX(f_tip, 0), b ? &b_tip : NULL), f_tip = MAX(f_tip, least);
  else if (table) b_tip = run_lags(r, stage, table, b_tip, NULL);
  if (second != NEVER) {
    at_least(&r->at.compute[stage], behind_both(table, second, MS_END_COMPUTE));
    at_least(&f_tip, behind_both(table, second, MS_END_ENTRY)),
        at_least(&b_tip, behind_both(table, second, MS_END_BESIDE));
  }
  r->turns++;
  if (r->ran) note(r, turn, table);
  if (f_empty) f_tip = ms_stages_passed_on(&r->at, f, before);
  if (b_empty) b_tip = ms_stages_passed_on(&r->at, b, before);
  r->at.tip[stage] = b ? b_tip : f_tip;
  if (b && b->kind != MS_SLOT_I) r->last_b[b->chunk * r->p->layout->pp + stage] = b_tip;
  MsTime behind = b_tip;
  const MsSlotPass *held = ms_stages_release(&r->at, turn, &behind);
  if (held) hand_on(r, held, FALSE, behind, TRUE), r->at.held.goes = FALSE;
  if (f && !ms_stages_hold(&r->at, turn, f_tip)) hand_on(r, f, b != NULL, f_tip, FALSE);
  if (b) hand_on(r, b, FALSE, b_tip, !ms_sends_first(r->p, turn)), ms_stages_forget(&r->at, turn);
}

/* The least that a turn takes of the compute stream. Of a pair its rows there, not what computes on others, which may
 * run beside the turns before and behind. */
static MsTime least_of(Relaxed *r, const MsSlotPass *f, const MsSlotPass *b) {
  if (f && b) {
    MsTime least = table_of_pair(r, f, b, FALSE)->least;
    if (!may_leave_head(r, ms_layout_chunk(r->p->layout, b->stage, b->chunk))) return least;
    return MIN(least, table_of_pair(r, f, b, TRUE)->least);
  }
  return f ? chunk_of(r, f)->least[MS_SLOT_F] : chunk_of(r, b)->least[b->kind];
}

/* On top of what is there behind the last slots. */
static void find_left(Relaxed *r, gboolean beside) {
  for (int s = 0; s < r->s->stages; s++)
    for (int k = 0; k < r->s->n[s]; k++) {
      const MsSlot *slot = &r->s->slot[s][k];
      gboolean both = slot->kind == MS_SLOT_FB;
      const MsSlotPass f = {.kind = MS_SLOT_F, .stage = s, .chunk = slot->chunk},
                       b = {.kind = both ? MS_SLOT_B : (MsSlotKind)slot->kind,
                            .stage = s,
                            .chunk = both ? slot->chunk2 : slot->chunk};
      if (both && beside) r->left[s] += least_of(r, &f, &b);
      else if (both) r->left[s] += least_of(r, &f, NULL) + least_of(r, NULL, &b);
      else r->left[s] += slot->kind == MS_SLOT_F ? least_of(r, &f, NULL) : least_of(r, NULL, &b);
    }
}

/* All that turns of a stage read and change beside r->at. What runs on from the last slot is that of the same slot. */
static void tell(gpointer visitor, int stage, MsCycle *c) {
  Relaxed *r = visitor;
  Forced *f = &r->forced[stage];
  MsTime free = f->start + f->sum;
  for (int k = 0; k < r->p->layout->vpp; k++) ms_cycle_end(c, &r->last_b[k * r->p->layout->pp + stage]);
  if (f->told) ms_cycle_moments(c, &free, 1), ms_cycle_sum(c, &f->sum), f->start = free - f->sum;
  if (r->toll[stage]) ms_toll_tell(r->toll[stage], c);
  if (!r->left) return;
  ms_cycle_until(c, r->at.compute[stage] + r->left[stage], r->limit);
  ms_cycle_sum(c, &r->left[stage]);
}

/* Of its stage. What its rows lose to others may come behind the gradient that it hands on, for which the stages before
 * it do not wait. */
static gboolean is_last(const Relaxed *r, const MsTurn *turn) {
  return turn->closes && turn->index == r->s->n[turn->stage] - 1;
}

/* 0, or a bound that is above the limit before all have run. */
static MsTime run_slots(Relaxed *r) {
  g_autoptr(MsCycle) cycle = r->ran ? NULL : ms_cycle_new(&r->at, r->s, tell, r);
  ms_cycle_settle(cycle);
  for (const MsTurn *turn; (turn = ms_slot_walk_next(r->at.walk));) {
    run_turn(r, turn);
    if (r->left) {
      r->left[turn->stage] -= least_of(r, turn->forward, turn->backward);
      MsTime end = r->at.compute[turn->stage] + r->left[turn->stage];
      if (end > r->limit && !is_last(r, turn)) return end;
    }
    ms_cycle_turn(cycle, turn);
  }
  ms_slot_walk_must_end(r->at.walk);
  return 0;
}

/* --- the step's own rows --- */

/* What a stage does before its first slot; parameters that the first piece of a chunk waits for. */
static void run_before(Relaxed *r, int stage) {
  const MsCostedStep *step = &r->p->step[stage];
  MsRowTimes rows = ms_stages_before(&r->at, stage);
  for (int i = 0, from = 0; i < step->gather.list->n; i++) {
    const MsBucket *at = &step->ops.gather_at[i];
    if (i > 0 && (at->chunk != at[-1].chunk || at->piece != at[-1].piece)) from = i;
    ms_row_run(&rows, &step->gather, i, ms_row_waits(&rows, &step->gather.list->op[i], from, 0));
    MsTime *first = &r->gather_at[at->chunk * r->p->layout->pp + stage];
    if (at->piece == 0) *first = MAX(*first, rows.end[i]);
  }
  r->at.host[stage] = rows.host;
  g_free(rows.end);
}

/* The last reductions of each chunk, which its last slot issues at its end: when the stage has nothing of them left.
 * Those of different chunks may queue behind each other in an order that the list does not tell. */
static MsTime run_reductions(Relaxed *r, int stage) {
  const MsCostedStep *step = &r->p->step[stage];
  MsTime stream[MS_N_STREAMS], joined = r->at.tip[stage];
  for (int i = 0, chunk = -1; i < step->reduce.list->n; i++) {
    const MsBucket *at = &step->ops.reduce_at[i];
    if (at->piece != 0) continue;
    for (int k = 0; at->chunk != chunk && k < MS_N_STREAMS; k++)
      stream[k] = r->last_b[at->chunk * r->p->layout->pp + stage];
    chunk = at->chunk;
    MsTime *own = &stream[step->reduce.list->op[i].stream];
    *own += step->reduce.duration[i];
    joined = MAX(joined, *own);
  }
  return joined;
}

/* Of chunks whose reductions begin behind the last slot. */
static void end_behind(const Relaxed *r, int stage) {
  for (int c = 0; c < r->p->layout->vpp; c++)
    if (ms_reduces_behind(r->reduces, r->s, stage, c))
      ms_toll_behind(r->toll[stage], c, r->last_b[c * r->p->layout->pp + stage]);
}

/* Returns the end of the step. `others`: when streams but for compute are free. */
static MsTime run_after(Relaxed *r, MsTime others) {
  int stages = r->s->stages;
  MsTime end = 0, barrier = 0;
  g_autofree MsRowTimes *rows = g_new(MsRowTimes, (guint)stages);
  for (int s = 0; s < stages; s++) {
    rows[s] = ms_row_times(r->p->step[s].after.list->n);
    for (int k = 0; k < MS_N_STREAMS; k++) rows[s].stream[k] = others;
    rows[s].stream[MS_STREAM_COMPUTE] = r->at.compute[s], rows[s].host = r->at.host[s];
    r->at.tip[s] = run_reductions(r, s);
    if (r->toll[s]) {
      end_behind(r, s);
      at_least(&r->at.tip[s], ms_toll_sent(r->toll[s]));
      at_least(&r->at.compute[s], ms_toll_joined(r->toll[s]));
      rows[s].stream[MS_STREAM_COMPUTE] = r->at.compute[s];
    }
    end = MAX(MAX(end, r->at.tip[s]), r->at.compute[s]);
  }
  for (MsAfterWalk w = ms_after_walk(r->p); ms_after_next(&w);) {
    const MsCosted *c = &r->p->step[w.stage].after;
    MsRowTimes *own = &rows[w.stage];
    MsTime there = ms_row_waits(own, &c->list->op[w.row], 0, r->at.tip[w.stage]);
    if (w.event == MS_AFTER_MEETS) barrier = MAX(w.first ? 0 : barrier, there);
    else ms_row_run(own, c, w.row, w.event == MS_AFTER_CROSSES ? barrier : there), end = MAX(end, own->end[w.row]);
  }
  for (int s = 0; s < stages; s++) g_free(rows[s].end);
  return end;
}

static void open_tables(Relaxed *r) {
  const MsLayout *l = r->p->layout;
  size_t chunks = (size_t)l->num_chunks;
  r->at = ms_stages_new(r->p, r->s);
  r->last_b = g_new0(MsTime, MAX(2 * chunks, 1)), r->gather_at = r->last_b + chunks;
  r->chunk = g_new(ChunkLags *, 2 * chunks), r->kind = r->chunk + chunks;
  r->toll = g_new0(MsToll *, l->pp), r->forced = g_new0(Forced, l->pp);
  r->toll_back = g_new0(MsTollBack *, l->pp);
  if (r->p->step && r->p->scenario->options.ep_overlap && !ms_program_meets(r->p->scenario))
    r->left_with = g_new0(int, MAX(1, ms_slot_walk_tensors(r->at.walk)));
  r->reduces = r->p->step ? ms_reduce_slots(r->p, r->s) : NULL;
}

static void close_tables(Relaxed *r) {
  ms_stages_clear(&r->at);
  for (int i = 0; i < 2 * r->n_kinds * r->n_kinds; i++) g_free(r->pair_of_kinds[i]);
  for (int s = 0; s < r->p->layout->pp; s++) ms_toll_free(r->toll[s]), ms_toll_back_free(r->toll_back[s]);
  for (int i = 0; i < r->n_kinds; i++) g_free(r->kind[i]);
  g_free(r->pair_of_kinds), g_free(r->chunk), g_free(r->toll), g_free(r->toll_back), g_free(r->forced),
      g_free(r->last_b), g_free(r->left), g_free(r->reduces), g_free(r->left_with);
}

static Relaxed relaxed_of(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule) {
  return (Relaxed){.p = p, .lags = lags, .s = schedule, .splits = ms_schedule_has(schedule, MS_SLOT_I)};
}

/* --- from the end back: how long the step still takes, at least, once something is there --- */

typedef struct {
  MsTime *compute, *host, *tip, *made; /* behind what the tables of MsStages say */
  MsTime *end;                         /* [stages] behind the last slot */
  MsTime *chain;                       /* [stages] from before the next slot on, through what slots force */
  const MsNeed **next;                 /* [stages] of that slot; NULL: none */
} Back;

/* Behind the moment when one stage has ended all of its slots: its compute stream, or its chain (of: r->at.compute or
 * r->at.tip). */
static MsTime behind_slots(Relaxed *r, MsTime *of, int stage) {
  for (int s = 0; s < r->s->stages; s++) r->at.compute[s] = r->at.tip[s] = r->at.host[s] = NEVER;
  for (int c = 0; c < r->p->layout->num_chunks; c++) r->last_b[c] = NEVER;
  of[stage] = 0;
  return run_after(r, NEVER);
}

static MsTime later(MsTime left, MsTime by) { return left == NEVER ? NEVER : left + by; }

/* What slots force on the compute stream, with what runs on from this one into the next. */
static MsTime force_back(Back *b, int stage, const MsNeed *need) {
  MsTime left = b->compute[stage];
  if (b->next[stage]) at_least(&left, ms_cross_cost(&b->next[stage]->cross, &need->cross) + b->chain[stage]);
  left += need->forced + need->cross.inside;
  if (need->own > 0) b->chain[stage] = left, b->next[stage] = need;
  return left;
}

static void run_back(const Relaxed *r, const Ran *ran, Back *b) {
  int stage = ran->stage;
  MsTime after[MS_N_ENDS] = {NEVER, NEVER, b->compute[stage], b->host[stage]}, before[MS_N_ENDS];
  for (int side = 0; side <= ran->two; side++)
    if (ran->out[side] >= 0) after[side] = later(b->made[ran->out[side]], ran->message[side]);
  if (ran->kept >= 0) at_least(&after[MS_END_ENTRY], b->made[ran->kept]);
  at_least(&after[ran->two], b->tip[stage]);
  b->tip[stage] = NEVER;
  memcpy(before, after, sizeof before);
  if (ran->table) {
    for (int x = 0; x < MS_N_ENDS; x++) {
      before[x] = NEVER;
      for (int i = 0; i < MS_N_ENDS; i++) at_least(&before[x], MAX(NEVER, after[i] + ran->table->lags.to[i][x]));
    }
    if (r->forced[stage].told) at_least(&before[MS_END_COMPUTE], force_back(b, stage, &ran->table->need));
  }
  b->compute[stage] = before[MS_END_COMPUTE], b->host[stage] = before[MS_END_HOST];
  for (int side = 0; side <= ran->two; side++)
    if (ran->in[side] != NOTHING)
      at_least(ran->in[side] == TIP ? &b->tip[stage] : &b->made[ran->in[side]], before[side]);
}

/* What reductions take from the slots that they run beside. */
static void reduce_back(const Relaxed *r, const Ran *ran, Back *b) {
  MsTime left = ms_toll_back_slot(r->toll_back[ran->stage], &ran->table->need, ran->ending);
  at_least(&b->compute[ran->stage], later(b->end[ran->stage], left));
}

static MsTime *all_back(Relaxed *r) {
  size_t stages = (size_t)r->s->stages, tensors = (size_t)ms_slot_walk_tensors(r->at.walk), slots = 0;
  g_autofree MsTime *all = g_new(MsTime, 5 * stages + tensors);
  g_autofree const MsNeed **next = g_new0(const MsNeed *, stages);
  g_autofree size_t *base = g_new(size_t, stages);
  Back b = {all, all + stages, all + 2 * stages, all + 5 * stages, all + 4 * stages, all + 3 * stages, next};
  for (size_t i = 0; i < 5 * stages + tensors; i++) all[i] = NEVER;
  for (size_t s = 0; s < stages; s++) {
    base[s] = slots, slots += (size_t)r->s->n[s];
    b.compute[s] = b.end[s] = behind_slots(r, r->at.compute, (int)s);
    b.tip[s] = behind_slots(r, r->at.tip, (int)s);
  }
  MsTime *tail = g_new0(MsTime, slots);
  for (guint i = r->ran->len; i-- > 0;) {
    const Ran *ran = &g_array_index(r->ran, Ran, i);
    if (ran->closes) tail[base[ran->stage] + (size_t)ran->index] = MAX(0, b.compute[ran->stage]);
    run_back(r, ran, &b);
    if (r->toll_back[ran->stage] && ran->table) reduce_back(r, ran, &b);
  }
  return tail;
}

/* --- */

static void find_forced(Relaxed *r) {
  for (int s = 0; s < r->p->layout->pp; s++) {
    r->rivals |= r->toll[s] != NULL;
    r->forced[s].told = r->told[ms_layout_pool(r->p->layout, s)] = ms_slots_cross(r->p, s);
    r->needs |= r->toll[s] || r->toll_back[s] || r->forced[s].told;
  }
}

/* Slots with what they force and with what the step's own collectives take, which turns that are noted get on the way
 * back. Returns what run_slots does. */
static MsTime run_step(Relaxed *r) {
  open_tables(r);
  ms_stages_send_messages(&r->at);
  for (int s = 0; s < r->p->layout->pp; s++) {
    run_before(r, s);
    if (r->ran) r->toll_back[s] = ms_toll_back_new(r->p, s);
    else r->toll[s] = ms_toll_new(r->p, s, r->s->n[s] + 1, r->at.compute[s]);
  }
  find_forced(r);
  MsRivalsMet met;
  if (r->rivals && ms_toll_rivals(r->p, &met)) ms_piece_lags_meet(r->lags, &met);
  chunks_lags(r);
  if (r->limit == G_MAXINT64) return run_slots(r);
  r->left = g_new(MsTime, r->s->stages);
  ms_bound_after_slots(r->p, r->lags, r->p->scenario->layout.schedule, r->left);
  find_left(r, r->p->scenario->options.ep_overlap);
  return run_slots(r);
}

/* A stage begins its step now, with what it does before its first slot; the others began long ago. */
static void begin_alone(Relaxed *r, int stage) {
  const MsLayout *l = r->p->layout;
  for (int s = 0; s < l->pp; s++) {
    r->at.compute[s] = r->at.host[s] = s == stage ? 0 : NEVER, r->at.tip[s] = NEVER;
    r->forced[s] = (Forced){.told = r->forced[s].told, .start = r->at.compute[s]};
  }
  for (int c = 0; c < l->num_chunks; c++) r->last_b[c] = r->gather_at[c] = NEVER;
  if (r->p->step) run_before(r, stage);
}

/* When it has ended it, what it does behind its last slot included. Of groups that span stages only its own part is
 * waited for. */
static MsTime end_alone(Relaxed *r, int stage) {
  MsTime end = MAX(MAX(r->at.compute[stage], r->at.tip[stage]), r->at.host[stage]);
  if (!r->p->step) return end;
  const MsCosted *after = &r->p->step[stage].after;
  MsRowTimes rows = ms_row_times(after->list->n);
  for (int k = 0; k < MS_N_STREAMS; k++) rows.stream[k] = NEVER;
  rows.stream[MS_STREAM_COMPUTE] = r->at.compute[stage], rows.host = r->at.host[stage];
  MsTime reduced = run_reductions(r, stage);
  end = MAX(end, reduced);
  for (int i = 0; i < after->list->n; i++) {
    ms_row_run(&rows, after, i, ms_row_waits(&rows, &after->list->op[i], 0, reduced));
    end = MAX(end, rows.end[i]);
  }
  g_free(rows.end);
  return end;
}

/* Slots of one stage, one after the other, whose inputs are all there when it begins. */
static MsTime stage_alone(Relaxed *r, int stage) {
  const MsLayout *l = r->p->layout;
  begin_alone(r, stage);
  for (int k = 0; k < r->s->n[stage]; k++) {
    const MsSlot *slot = &r->s->slot[stage][k];
    int chunk = slot->chunk * l->pp + stage;
    if (slot->kind > MS_SLOT_W || r->chunk[chunk]->empty) continue;
    MsTime *last = slot->kind == MS_SLOT_B || slot->kind == MS_SLOT_W ? &r->last_b[chunk] : &r->at.tip[stage];
    MsTime entry = slot->kind == MS_SLOT_F ? MAX(0, r->gather_at[chunk]) : 0;
    *last = run_lags(r, stage, &r->chunk[chunk]->pass[1][slot->kind], entry, NULL);
  }
  return end_alone(r, stage);
}

/* Slots as they follow one another from the moment when the first stage begins its step, to the end of that stage: the
 * others go on with whatever they did before and wait for nothing but their inputs. */
static MsTime first_to_first(Relaxed *r) {
  begin_alone(r, 0);
  run_slots(r);
  return end_alone(r, 0);
}

/* Where steps overlap a stage begins its next one when it has ended all of this one, host and streams, so that one step
 * follows another no sooner than the longest way from where a stage begins to where it ends, whatever others still do
 * of the step before (engine/engine.h: ms_engine_again, where rows last as they did in the first step, whatever they
 * run beside: what rows lose to one another does not count). That is what its own rows take when all that they wait for
 * is there; of the first stage, where all microbatches begin and end, it is asked through the others, too. */
static MsTime longest_alone(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule, MsTime limit) {
  Relaxed r = relaxed_of(p, ms_piece_lags_unshared(lags), schedule);
  MsTime longest = 0;
  open_tables(&r);
  chunks_lags(&r);
  for (int s = 0; s < p->layout->pp; s++) {
    MsTime own = stage_alone(&r, s);
    longest = MAX(longest, own);
  }
  if (longest <= limit) {
    if (p->step) ms_stages_send_messages(&r.at);
    MsTime through = first_to_first(&r);
    longest = MAX(longest, through);
  }
  close_tables(&r);
  return longest;
}

/* The slots alone, with messages that take no time. */
static MsTime slots_of(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule, MsTime limit) {
  Relaxed r = relaxed_of(p, lags, schedule);
  open_tables(&r);
  find_forced(&r);
  chunks_lags(&r);
  r.limit = limit;
  if (limit < G_MAXINT64) {
    r.left = g_new0(MsTime, schedule->stages);
    ms_bound_drain(p, lags, p->scenario->layout.schedule, r.left);
    find_left(&r, p->scenario->options.ep_overlap);
  }
  MsTime end = run_slots(&r);
  for (int s = 0; s < p->layout->pp; s++) end = MAX(end, MAX(r.at.compute[s], r.at.tip[s]));
  close_tables(&r);
  return end;
}

static MsTime through(const ChunkLags *l, MsSlotKind kind, MsEnd from) {
  MsTime least = MIN(l->pass[0][kind].lags.to[MS_END_ENTRY][from], l->pass[1][kind].lags.to[MS_END_ENTRY][from]);
  return MAX(0, least);
}

/* The chunks of schedules whose order costs decide; chunk: room for twice as many as there are. */
static Relaxed chunks_alone(const MsProgram *p, MsPieceLags *lags, ChunkLags **chunk) {
  Relaxed r = {.p = p, .lags = lags, .splits = TRUE, .chunk = chunk, .kind = chunk + p->layout->num_chunks};
  chunks_lags(&r);
  return r;
}

static void chunks_clear(Relaxed *r) {
  for (int i = 0; i < r->n_kinds; i++) g_free(r->kind[i]);
  g_free(r->pair_of_kinds);
}

/* Of schedules that costs decide: before the gradient of its first microbatch is back, the first stage has begun no
 * more forwards than may be in flight; the others, and all backwards, come then. */
static MsTime slots_in_any_order(const MsProgram *p, MsPieceLags *lags, gint64 in_flight) {
  const MsLayout *l = p->layout;
  g_autofree ChunkLags **chunk = g_new(ChunkLags *, 2 * (size_t)l->num_chunks);
  Relaxed r = chunks_alone(p, lags, chunk);
  const ChunkLags *own = chunk[0];
  gint64 n = ms_schedule_share(p->scenario->layout.schedule, l->microbatches);
  MsTime backward = MIN(own->least[MS_SLOT_B], own->least[MS_SLOT_I] + own->least[MS_SLOT_W]),
         back = through(own, MS_SLOT_F, MS_END_COMPUTE);
  for (int s = 1; s < l->pp; s++)
    back += through(chunk[s], MS_SLOT_F, MS_END_ENTRY) +
            MIN(through(chunk[s], MS_SLOT_I, MS_END_ENTRY), through(chunk[s], MS_SLOT_B, MS_END_ENTRY));
  MsTime behind = n * backward + MAX(0, n - in_flight) * own->least[MS_SLOT_F],
         least = MAX(back + behind, n * (own->least[MS_SLOT_F] + backward));
  chunks_clear(&r);
  return least;
}

/* Of the passes of a chunk for one microbatch, whatever its schedule makes of the backward: from `end` to `end`. */
static MsTime least_pass(const ChunkLags *l, MsEnd end) {
  MsTime own[MS_SLOT_W + 1];
  for (int kind = 0; kind <= MS_SLOT_W; kind++) own[kind] = MAX(0, l->pass[1][kind].lags.to[end][end]);
  return own[MS_SLOT_F] + MIN(own[MS_SLOT_B], own[MS_SLOT_I] + own[MS_SLOT_W]);
}

/* longest_alone of schedules that costs decide. */
static MsTime alone_in_any_order(const MsProgram *p, MsPieceLags *lags) {
  const MsLayout *l = p->layout;
  g_autofree ChunkLags **chunk = g_new(ChunkLags *, 2 * (size_t)l->num_chunks);
  Relaxed r = chunks_alone(p, lags, chunk);
  MsTime longest = 0;
  for (int s = 0; s < l->pp; s++)
    for (MsEnd end = MS_END_COMPUTE; end <= MS_END_HOST; end++) {
      MsTime sum = 0;
      for (int c = 0; c < l->vpp; c++) sum += least_pass(chunk[c * l->pp + s], end);
      longest = MAX(longest, sum * ms_schedule_share(p->scenario->layout.schedule, l->microbatches));
    }
  chunks_clear(&r);
  return longest;
}

MsTime ms_relaxed_step(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule, MsTime limit) {
  if (p->skewed) return longest_alone(p, lags, schedule, limit); /* their period is not the end of one */
  Relaxed r = relaxed_of(p, lags, schedule);
  r.limit = limit;
  MsTime end = run_step(&r);
  if (end == 0) end = run_after(&r, 0);
  close_tables(&r);
  return end;
}

MsTime *ms_relaxed_tails(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule) {
  if (p->skewed) return NULL;
  Relaxed r = relaxed_of(p, lags, schedule);
  r.limit = G_MAXINT64, r.ran = g_array_new(FALSE, FALSE, sizeof(Ran));
  run_step(&r);
  MsTime *tail = all_back(&r);
  g_array_unref(r.ran);
  close_tables(&r);
  return tail;
}

MsTime ms_relaxed_passes(const MsScenario *scenario, const MsWork *work, MsCostedPiece *piece, MsPieceLags *lags,
                         MsTime limit) {
  MsScheduleKind kind = scenario->layout.schedule;
  char why[192];
  g_autoptr(MsLayout) layout = ms_layout_build(scenario);
  MsWork own = *work; /* the pieces are borrowed */
  own.scenario = scenario, own.layout = layout;
  MsProgram p = {.scenario = scenario, .layout = layout, .work = &own, .piece = piece};
  gboolean overlap = ms_steps_overlap(scenario);
  if (ms_schedule_row(kind)->costs == MS_COSTS_DECIDE) {
    MsPieceLags *used = overlap ? ms_piece_lags_unshared(lags) : lags;
    MsTime alone = overlap ? alone_in_any_order(&p, used) : 0,
           first = slots_in_any_order(&p, used, ms_schedule_in_flight(kind, layout->pp));
    return MAX(alone, first);
  }
  g_autoptr(MsSchedule) schedule = ms_program_schedule(&p, why, sizeof why);
  if (!schedule) return 0;
  return overlap ? longest_alone(&p, lags, schedule, limit) : slots_of(&p, lags, schedule, limit);
}
