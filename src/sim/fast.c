/* src/sim/fast.c - the schedule with slots as tables of lags, each as long as the event engine says of it in steady
 * state (sim/steady.c), gathers and reductions of the step beside them (sim/rivals.c), and what follows the last slots
 * row by row as in `full`. */
#include "sim/fast.h"
#include "base/units.h"
#include "bound/cycle.h"
#include "sim/account.h"
#include "sim/graph.h"
#include "sim/steady.h"
#include "step/fetch.h"
#include "step/meeting.h"
#include "step/reduce.h"

#define NEVER MS_NEVER

typedef struct { /* parameters on their way for a piece: these rivals */
  MsNeed need;
  int from, to;
} Fetch;
typedef struct {        /* a message beside which no slot of its stage has run yet */
  MsTime leaves, there; /* NEVER: there is none */
  double alone;         /* picoseconds that it takes */
  int of, mb;           /* the tensor that it brings: of microbatch 0, and of which it is */
} OnTheWay;
typedef struct {
  const MsProgram *p;
  const MsSchedule *schedule;
  const MsOp *const *tag_op;
  MsSteady *steady;
  MsStages at;
  MsRivals *rivals;     /* [stages] */
  const MsTime *begins; /* [stages] when the step of the stage begins */
  MsTime *from;         /* [stages] told so far: the parts of the stage add up to it */
  int *reduces;         /* of ms_reduce_slots */
  gboolean params_stay; /* the pieces of this turn find their parameters whole */
  OnTheWay *way;        /* [2 * stages] the message of the forward, of the backward of the turn before */
  Fetch *fetch;         /* [2 * stages] FSDP: of the forward (or only) pass, and of the backward beside it */
  MsTimeParts *stage;
  MsPasses *passes;
} Fast;

typedef struct { /* a turn on its stage */
  int stage;
  MsSteadySlot *slot;
  MsTime tip[2];         /* of the forward, of the backward: when its input is there, then when its output is */
  gboolean two;          /* one beside the other */
  MsTime longer, gather; /* for what runs beside it; waited for parameters */
  MsTime scaled;         /* end of the kernels in front of its reductions, 0: there are none */
  MsCommClass gathers;   /* over the group of these */
  gboolean host;         /* it ends when the host has issued it, */
  MsTime idle;           /* which until then waited for the input of the turn; 0: it did not */
} Run;

static double seconds(MsTime time) { return (double)time / MS_PS_PER_S; }

static double own_s(const MsTimeParts *t) { return t->compute_s + t->exposed_comm_s + t->host_s + t->optimizer_s; }

static void expose(MsTimeParts *part, MsCommClass class, MsTime time) {
  part->exposed_comm_s += seconds(time), part->comm_exposed_s[class] += seconds(time);
}

static MsTime not_exposed(const MsTimeParts *part, MsCommClass class) {
  return MAX(0, (MsTime)(MS_PS_PER_S * (part->comm_total_s[class] - part->comm_exposed_s[class])));
}

static void compute(MsTimeParts *part, const MsOp *op, MsTime time) {
  int family = ms_op_families[op->kind];
  if (family == MS_FAMILY_COMM) /* a serial machine: the cores move it */
    part->comm_total_s[ms_comm_class(op)] += seconds(time), expose(part, ms_comm_class(op), time);
  else if (op->pass == MS_PASS_OPTIMIZER) part->optimizer_s += seconds(time);
  else if (family <= MS_FAMILY_MEMORY) part->compute_s += seconds(time), part->family_s[family] += seconds(time);
}

/* --- gathers and reductions --- */

static void count_comm(MsTimeParts *part, const MsOp *op, MsTime time) {
  part->comm_total_s[ms_comm_class(op)] += seconds(time);
}

typedef struct {
  int rival; /* -1: on the compute stream, until then: */
  MsTime end;
} BucketRow;

/* Rows [from, to) of one bucket behind `tip`, kernels on the compute stream and collectives beside what follows. */
static void issue_bucket(Fast *f, int stage, const MsCosted *c, int from, int to, MsTime tip) {
  enum { FEW = 64 };
  MsTime *host = &f->at.host[stage], *stream = &f->at.compute[stage];
  BucketRow few[FEW], *row = to - from > FEW ? g_new(BucketRow, to - from) : few;
  for (int i = from; i < to; i++) {
    BucketRow *own = &row[i - from];
    const MsOp *op = &c->list->op[i];
    MsTime ready = 0;
    int wait[3], waits = 0;
    for (int j = 0; j < 3; j++) {
      int k = op->wait[j] - from;
      wait[j] = k >= 0 ? row[k].rival : -1;
      if (k >= 0) ready = MAX(ready, row[k].end), waits++;
    }
    if (!waits) ready = tip;
    *host += c->launch[i];
    if (c->launch[i] > 0) ready = MAX(ready, *host);
    *own = (BucketRow){.rival = -1};
    if (op->stream != MS_STREAM_COMPUTE) {
      own->rival = ms_rivals_add(&f->rivals[stage], c, i, ready, wait);
      continue;
    }
    own->end = *stream = MAX(ready, *stream) + c->duration[i];
    f->from[stage] += c->duration[i];
    compute(&f->stage[stage], op, c->duration[i]);
  }
  if (row != few) g_free(row);
}

static void reduce(Fast *f, Run *run, int chunk, int piece, MsTime tip) {
  const MsCostedStep *step = &f->p->step[run->stage];
  int from, to;
  ms_bucket_rows(step->ops.reduce_at, step->reduce.list->n, chunk, piece, &from, &to);
  issue_bucket(f, run->stage, &step->reduce, from, to, tip);
  for (int i = from; i < to; i++)
    if (step->reduce.list->op[i].stream == MS_STREAM_COMPUTE) run->scaled = f->at.compute[run->stage];
}

static void reduce_chunk(Fast *f, Run *run, int chunk, MsTime tip) {
  for (int at = ms_work_chunk_length(f->p->work, ms_layout_chunk(f->p->layout, run->stage, chunk)); at-- > 0;)
    reduce(f, run, chunk, at, tip);
}

/* Whether only its first piece waits for parameters, or leaves gradients. */
static gboolean one_bucket(const MsBucket *at, int n, int chunk) {
  for (int i = 0; i < n; i++)
    if (at[i].chunk == chunk && at[i].piece > 0) return FALSE;
  return TRUE;
}

/* --- messages --- */

static void arrives_later(Fast *f, int stage, gboolean backward, MsTime by) {
  OnTheWay *way = &f->way[2 * stage + backward];
  f->at.made[way->of + way->mb] += by, way->there += by;
  *(backward ? &f->at.stream_b[stage] : &f->at.stream_f[stage]) += by;
  f->stage[stage].comm_total_s[MS_COMM_PP] += seconds(by);
}

static int link_to(const Fast *f, const MsSlotPass *pass) {
  return ms_program_p2p(f->p, pass->stage, ms_program_stage_of(f->p, pass->to))->level ? MS_USE_LINK1 : MS_USE_LINK0;
}

/* Both messages of a pair share a link while both are on their way. */
static void share_link(Fast *f, const MsTurn *turn) {
  const OnTheWay *way = &f->way[2 * turn->stage];
  int use = link_to(f, turn->backward);
  MsTime both = MIN(way[0].there, way[1].there) - MAX(way[0].leaves, way[1].leaves);
  if (both <= 0 || link_to(f, turn->forward) != use) return;
  guint8 running[MS_SHARING_CLASSES] = {0};
  int class = ms_meets_class(f->p->meets, ms_row_kind(&f->p->p2p_op, use));
  if (class != MS_SHARING_NONE) running[class] = 2;
  double slower = class == MS_SHARING_NONE ? 2 : 1 / ms_meets_rate(f->p->meets, class, running);
  for (int k = 0; k < 2; k++) arrives_later(f, turn->stage, k, (MsTime)((double)both * (slower - 1)));
}

/* What of a message goes on beside the slot takes as much longer as it does in steady state (sim/steady.h). */
static void slow_messages(Fast *f, int stage, const MsSteadySlot *slot, MsTime begin) {
  for (int k = 0; k < 2; k++) {
    OnTheWay *way = &f->way[2 * stage + k];
    if (way->there == NEVER) continue;
    double time = (double)(way->there - way->leaves), beside = MIN(1, (double)(way->there - begin) / time),
           longer = slot->sent[k] * way->alone - time;
    if (beside > 0 && longer > 0) arrives_later(f, stage, k, (MsTime)(beside * longer));
    way->leaves = way->there = NEVER;
  }
}

/* --- turns --- */

/* From `begin`, the compute stream would be busy for `alone`; returns how much longer what runs beside makes it. */
static MsTime slowed_by(Fast *f, const Run *run, int part, MsTime begin, double alone) {
  MsRivals *r = &f->rivals[run->stage];
  MsBeside beside;
  double left = 1;
  ms_rivals_alone(r, begin);
  while (left > 0 && ms_rivals_beside(r, &beside)) {
    MsSlowed s = ms_steady_beside(f->steady, run->slot, part, beside);
    MsTime was = r->now, end = was + (MsTime)(left * s.length) + 1;
    ms_rivals_go(r, end, &s.use);
    left = r->now >= end ? 0 : left - (double)(r->now - was) / s.length;
  }
  MsTime end = r->now + (MsTime)(left * alone);
  return MAX(0, end - begin - (MsTime)alone - 1);
}

/* Runs a table; the slot's, or that of one part (>= 0). */
static void run_table(Fast *f, Run *run, int part, const MsLags *lags) {
  int stage = run->stage;
  MsTime before[MS_N_ENDS], after[MS_N_ENDS];
  ms_stages_run(&f->at, stage, lags, run->tip[0], run->two ? &run->tip[1] : NULL, before, after);
  MsTime alone = MAX(0, lags->to[MS_END_COMPUTE][MS_END_COMPUTE]);
  gboolean host = after[MS_END_COMPUTE] == before[MS_END_HOST] + lags->to[MS_END_COMPUTE][MS_END_HOST];
  MsTime begin = after[MS_END_COMPUTE] - alone,
         first = host ? MAX(before[MS_END_COMPUTE], MAX(before[MS_END_ENTRY], before[MS_END_BESIDE])) : begin;
  if (f->rivals[stage].left > 0) {
    MsTime longer = slowed_by(f, run, part, MIN(first, begin), (double)alone) - MAX(0, begin - first);
    longer = MAX(0, longer);
    after[MS_END_COMPUTE] += longer, after[MS_END_ENTRY] += longer, after[MS_END_BESIDE] += longer;
    if (lags->to[MS_END_HOST][MS_END_COMPUTE] > NEVER / 2) after[MS_END_HOST] += longer;
    run->longer += longer;
  }
  run->host |= host;
  f->at.compute[stage] = after[MS_END_COMPUTE], f->at.host[stage] = after[MS_END_HOST];
  run->tip[0] = after[MS_END_ENTRY];
  if (run->two) run->tip[1] = after[MS_END_BESIDE];
}

/* The pass waits for rivals [from, to), which bring it its parameters. */
static void wait_rivals(Fast *f, Run *run, int from, int to, MsTime *entry) {
  MsRivals *r = &f->rivals[run->stage];
  MsTime free = MAX(*entry, f->at.compute[run->stage]);
  for (int i = from; i < to; i++) {
    MsTime end = ms_rivals_end(r, i);
    const MsRival *x = &g_array_index(r->rows, MsRival, i);
    if (end > *entry) *entry = end, run->gathers = ms_comm_class(&x->list->list->op[x->row]);
  }
  run->gather += MAX(0, *entry - free);
}

/* Those of the bucket that begins with the piece: the first rivals, or rows of a serial machine's only stream. */
static void wait_gathered(Fast *f, Run *run, const MsSlotPass *pass, int piece) {
  const MsCostedStep *step = &f->p->step[pass->stage];
  int from, to;
  ms_bucket_rows(step->ops.gather_at, step->gather.list->n, pass->chunk, piece, &from, &to);
  if (to > from && step->gather.list->op[from].stream != MS_STREAM_COMPUTE) wait_rivals(f, run, from, to, &run->tip[0]);
}

/* --- FSDP: parameters are gathered one piece ahead, gradients reduced behind each piece --- */

static void fetch(Fast *f, int stage, Fetch *fetch, MsNeed need, MsTime entry) {
  GArray *rows = f->rivals[stage].rows;
  *fetch = (Fetch){.need = need, .from = (int)rows->len};
  const MsCosted *c[MS_GATHERS];
  int n = ms_params_gathered(f->p, need, f->params_stay, c);
  for (int i = 0; i < n; i++) issue_bucket(f, stage, c[i], 0, c[i]->list->n, entry);
  fetch->to = (int)rows->len;
}

/* The piece waits for its parameters and for their low-precision copies; meanwhile those of the next are fetched. */
static void use_fetched(Fast *f, Run *run, Fetch *own, MsNeed here, MsNeed next, MsTime *entry) {
  Fetch now = {.from = 0};
  MsTime before = *entry;
  if (ms_needs_fetch(f->p, here.piece, here.backward ? MS_SLOT_B : MS_SLOT_F)) {
    if (own->need.piece != here.piece || own->need.backward != here.backward) {
      if (ms_passes_wait(f->p)) before = MAX(before, f->at.compute[run->stage]);
      fetch(f, run->stage, own, here, before);
    }
    now = *own, own->need = MS_NO_NEED;
  }
  if (next.piece >= 0) fetch(f, run->stage, own, next, before);
  wait_rivals(f, run, now.from, now.to, entry);
  const MsCosted *cast = ms_params_cast(f->p, here, f->params_stay);
  if (!cast) return;
  issue_bucket(f, run->stage, cast, 0, cast->list->n, *entry);
  *entry = f->at.compute[run->stage];
}

static void fetch_ahead(Fast *f, Run *run, const MsPieceWalk *w, MsNeed then) {
  Fetch *own = &f->fetch[2 * run->stage];
  if (w->forward.at >= 0)
    use_fetched(f, run, own, (MsNeed){w->forward.piece, FALSE, w->of.first}, ms_need_ahead(f->p, w, FALSE, then),
                &run->tip[0]);
  if (w->backward.at >= 0 && w->of.kind != MS_SLOT_W)
    use_fetched(f, run, own + run->two, (MsNeed){w->backward.piece, TRUE, FALSE}, ms_need_ahead(f->p, w, TRUE, then),
                &run->tip[run->two]);
}

static void reduce_unit(Fast *f, Run *run, const MsPieceWalk *w) {
  const MsCosted *c = &f->p->unit[w->backward.piece].reduce;
  if (w->of.kind == MS_SLOT_I) return;
  issue_bucket(f, run->stage, c, 0, c->list->n, run->tip[run->two]);
  int rows = (int)f->rivals[run->stage].rows->len;
  MsTime *tip = &run->tip[run->two];
  if (!ms_passes_wait(f->p) || w->next_b >= 0) return;
  *tip = MAX(*tip, f->at.compute[run->stage]);
  for (int i = rows - 1; i >= 0; i--) {
    const MsRival *x = &g_array_index(f->rivals[run->stage].rows, MsRival, i);
    if (x->list->list->op[x->row].stream != MS_STREAM_DP) continue;
    wait_rivals(f, run, i, i + 1, tip);
    break;
  }
  f->at.compute[run->stage] = MAX(f->at.compute[run->stage], *tip);
}

/* Piece by piece where buckets begin or end inside a chunk. */
static void run_pieces(Fast *f, Run *run, const MsTurn *turn, MsChunks of) {
  const MsSlotPass *forward = turn->forward, *backward = turn->backward;
  MsNeed then = run->two || !f->p->unit ? MS_NO_NEED : ms_need_of_slots(f->p, f->schedule, run->stage, turn->index + 1);
  MsPieceWalk w = ms_piece_walk(f->p->work, of);
  for (int i = 0; ms_piece_next(&w); i++) {
    if (w.forward.at >= 0 && forward->nth == 0) wait_gathered(f, run, forward, w.forward.at);
    if (f->p->unit) fetch_ahead(f, run, &w, then);
    MsLags lags = ms_steady_part(f->steady, run->slot, i);
    run_table(f, run, i, &lags);
    if (f->p->unit && w.backward.at >= 0) reduce_unit(f, run, &w);
    if (w.backward.at >= 0 && ms_reduces_here(f->p, backward))
      reduce(f, run, backward->chunk, w.backward.at, run->tip[run->two]);
  }
}

static gboolean in_pieces(const Fast *f, const MsTurn *turn) {
  const MsCostedStep *step = &f->p->step[turn->stage];
  if (f->p->unit) return TRUE;
  if (turn->forward && turn->forward->nth == 0 &&
      !one_bucket(step->ops.gather_at, step->gather.list->n, turn->forward->chunk))
    return TRUE;
  return ms_reduces_here(f->p, turn->backward) &&
         !one_bucket(step->ops.reduce_at, step->reduce.list->n, turn->backward->chunk);
}

static void run_slot(Fast *f, Run *run, const MsTurn *turn, MsChunks of) {
  MsTime begin = MAX(f->at.compute[run->stage], MAX(run->tip[0], run->tip[1]));
  run->slot = ms_steady_slot(f->steady, of);
  slow_messages(f, run->stage, run->slot, begin);
  if (in_pieces(f, turn)) {
    run_pieces(f, run, turn, of);
    return;
  }
  if (turn->forward && turn->forward->nth == 0) wait_gathered(f, run, turn->forward, 0);
  run_table(f, run, -1, &run->slot->lags);
}

static void add_parts(MsTimeParts *part, const MsTimeParts *of_slot, double time_s) {
  double told_s = own_s(of_slot) + of_slot->bubble_s;
  ms_parts_add(part, of_slot, told_s > 0 ? time_s / told_s : 0);
}

/* The parts of a slot that took `time_s`: when less than in steady state, it waited less, and for the host. */
static void add_slot(MsTimeParts *part, const MsSteadySlot *slot, double time_s) {
  double less_s = own_s(&slot->parts) + slot->parts.bubble_s - time_s;
  if (less_s <= 0 && slot->parts.bubble_s >= 0 && slot->parts.host_s >= 0) {
    add_parts(part, &slot->parts, time_s);
    return;
  }
  MsTimeParts own = slot->parts;
  ms_part_take(&own.bubble_s, &less_s), ms_part_take(&own.host_s, &less_s);
  add_parts(part, &own, time_s);
}

/* What the compute stream did since it was told last. */
static void tell(Fast *f, const Run *run, const MsTurn *turn) {
  int stage = run->stage;
  MsTimeParts *part = &f->stage[stage];
  MsTime time = run->slot->time + run->longer, span = MAX(0, f->at.compute[stage] - f->from[stage]), gap = span - time;
  const MsSlotPass *last = turn->backward ? turn->backward : turn->forward;
  MsSlotKind kind = (MsSlotKind)f->schedule->slot[stage][turn->index].kind;
  add_slot(part, run->slot, seconds(MIN(time, span)));
  f->passes[stage].count[kind] += turn->opens, f->passes[stage].total_s[kind] += seconds(MIN(time, span));
  f->from[stage] += span;
  if (gap <= 0) return;
  MsTime waited = MIN(gap, run->gather), gather = MIN(waited, not_exposed(part, run->gathers)),
         message = last->comes ? MIN(gap - waited, ms_stages_message(&f->at, last, TRUE)) : 0;
  expose(part, run->gathers, gather), expose(part, MS_COMM_PP, message);
  part->host_s += seconds(waited - gather); /* more than the messages take: that they were begun late */
  gap -= waited + message;
  MsTime late = run->host ? CLAMP(f->from[stage] - time - run->idle, 0, gap) : 0;
  part->host_s += seconds(late), part->bubble_s += seconds(gap - late);
}

/* Of the message that a pass sends: what it loses to the collectives that are under way. */
static MsTime message_longer(Fast *f, const MsSlotPass *pass) {
  int use = link_to(f, pass);
  return ms_rivals_delay(&f->rivals[pass->stage], use, ms_row_kind(&f->p->p2p_op, use),
                         ms_stages_message(&f->at, pass, FALSE));
}

static void hand_on(Fast *f, const MsSlotPass *pass, gboolean beside, MsTime tip) {
  MsTime longer = pass->goes && f->rivals[pass->stage].left > 0 ? message_longer(f, pass) : 0,
         message = ms_stages_hand_on(&f->at, pass, beside, tip, longer);
  if (!pass->goes) return;
  f->stage[pass->stage].comm_total_s[MS_COMM_PP] += seconds(message);
  MsTime there = f->at.made[pass->out];
  f->way[2 * pass->stage + (pass->kind != MS_SLOT_F)] =
      (OnTheWay){there - message, there, (double)message, pass->out - pass->mb, pass->mb};
}

static gboolean is_empty(const Fast *f, const MsChunk *chunk) {
  return !chunk || ms_work_chunk_length(f->p->work, chunk) == 0;
}

/* From when the rows of the pass may run. */
static MsTime enter(Fast *f, Run *run, const MsTurn *turn, const MsSlotPass *pass, MsTime sent) {
  MsTime entry = ms_stages_entry(&f->at, turn, pass, sent), last = ms_stages_arrival(&f->at, turn, pass);
  if (f->p->p2p_blocks && last != NEVER && f->at.host[run->stage] == last) run->idle = last;
  return entry;
}

static void run_turn(Fast *f, const MsTurn *turn) {
  const MsSlotPass *fw = turn->forward, *bw = turn->backward;
  int stage = turn->stage;
  f->params_stay = ms_params_stay(f->p, f->schedule, stage, turn->index);
  MsChunks of = ms_chunks_of(f->p->work, turn);
  MsTime before = f->at.tip[stage], sent[2];
  ms_stages_take_sends(&f->at, turn, sent);
  Run run = {.stage = stage, .tip = {NEVER, NEVER}, .two = fw && bw};
  if (fw) run.tip[0] = MAX(0, enter(f, &run, turn, fw, sent[0]));
  if (bw) run.tip[run.two] = enter(f, &run, turn, bw, sent[1]);
  if (!is_empty(f, of.forward) || !is_empty(f, of.backward)) run_slot(f, &run, turn, of), tell(f, &run, turn);
  MsTime f_tip = fw && is_empty(f, of.forward) ? ms_stages_passed_on(&f->at, fw, before) : run.tip[0],
         b_tip = bw && is_empty(f, of.backward) ? ms_stages_passed_on(&f->at, bw, before) : run.tip[run.two];
  f->at.tip[stage] = bw ? b_tip : f_tip;
  if (ms_reduces_here(f->p, bw) && !is_empty(f, of.backward) && !in_pieces(f, turn))
    reduce(f, &run, bw->chunk, 0, b_tip);
  int due = ms_reduce_due(f->p, f->reduces, turn);
  if (due >= 0) reduce_chunk(f, &run, due, b_tip);
  MsTime behind = MAX(b_tip, run.scaled);
  const MsSlotPass *held = ms_stages_release(&f->at, turn, &behind);
  if (held) hand_on(f, held, FALSE, behind), f->at.held.goes = FALSE;
  if (fw && !ms_stages_hold(&f->at, turn, f_tip)) hand_on(f, fw, bw != NULL, f_tip);
  if (bw) hand_on(f, bw, FALSE, bw->goes && !ms_sends_first(f->p, turn) ? MAX(b_tip, run.scaled) : b_tip);
  if (fw && bw && fw->goes && bw->goes) share_link(f, turn);
  ms_stages_forget(&f->at, turn);
}

/* --- before and after the slots --- */

/* Rows in front of the first slot that run beside it: behind the gathers, which are the first rivals. */
static void leave_states(Fast *f, int stage, const MsRowTimes *rows) {
  static const int nothing[3] = {-1, -1, -1};
  MsTime begins = f->begins[stage];
  const MsCosted *before = &f->p->step[stage].before;
  for (int i = 0; i < before->list->n; i++)
    if (before->list->op[i].stream != MS_STREAM_COMPUTE)
      ms_rivals_add(&f->rivals[stage], before, i, begins + rows->end[i] - before->duration[i], nothing);
}

static void run_before(Fast *f, int stage) {
  const MsCosted *before = &f->p->step[stage].before, *gather = &f->p->step[stage].gather;
  MsRowTimes rows = ms_stages_before(&f->at, stage);
  MsTimeParts *part = &f->stage[stage];
  MsTime told = 0, begins = f->begins[stage];
  for (int i = 0; i < before->list->n; i++) {
    if (before->list->op[i].stream != MS_STREAM_COMPUTE) continue;
    MsTime begin = MAX(told, rows.end[i] - before->duration[i]);
    part->host_s += seconds(begin - told);
    compute(part, &before->list->op[i], rows.end[i] - begin);
    told = rows.end[i];
  }
  told = MAX(told, f->at.compute[stage]);
  f->at.host[stage] = begins + rows.host;
  f->from[stage] = f->at.compute[stage] = begins + told;
  if (before->list->n > 0) f->at.tip[stage] += begins;
  const MsBucket *at = f->p->step[stage].ops.gather_at;
  for (int i = 0, to; i < gather->list->n; i = to) {
    to = ms_bucket_end(at, gather->list->n, i);
    issue_bucket(f, stage, gather, i, to, begins);
  }
  leave_states(f, stage, &rows);
  g_free(rows.end);
  f->passes[stage].optimizer_s = seconds(told);
}

/* What ran of the collectives of a stage beside its slots. */
static void count_rivals(const MsRivals *r, MsTimeParts *part) {
  for (guint i = 0; i < r->rows->len; i++) {
    const MsRival *x = &g_array_index(r->rows, MsRival, i);
    MsTime left = x->end < 0 ? (MsTime)x->left : 0;
    count_comm(part, &x->list->list->op[x->row], x->list->duration[x->row] - left);
  }
}

/* Rows behind the slots; last[stages] gets when those of each stage end. Returns when all do. */
static MsTime run_after(Fast *f, MsTime *last, guint64 *events) {
  int stages = f->p->layout->pp;
  for (int s = 0; s < stages; s++) count_rivals(&f->rivals[s], &f->stage[s]);
  g_autoptr(MsGraph) graph = ms_lower_after(f->p, f->at.compute, f->at.host, f->at.tip, f->rivals);
  g_autoptr(MsTrajectory) t = ms_program_run(f->p, graph, NULL);
  g_autofree MsTimeParts *part = g_new0(MsTimeParts, stages);
  ms_account(f->p, graph, t, f->tag_op, part);
  ms_lower_ends(graph, t, stages, last);
  for (int s = 0; s < stages; s++) f->passes[s].optimizer_s += own_s(&part[s]), ms_parts_add(&f->stage[s], &part[s], 1);
  *events += t->events;
  return t->makespan;
}

/* What is not in another part waited for other stages. */
static void close_parts(MsTimeParts *t, MsTime end) {
  double total = seconds(end), known = own_s(t) + t->other_s;
  t->bubble_s = MAX(0, total - known);
  if (known > total) t->other_s += total - known; /* rounding */
}

/* All that turns of a stage read and change beside f->at, while no collectives of the step are under way. */
static void tell_state(gpointer visitor, int stage, MsCycle *c) {
  Fast *f = visitor;
  MsPasses *passes = &f->passes[stage];
  ms_cycle_moments(c, &f->from[stage], 1);
  for (OnTheWay *way = &f->way[2 * stage]; way < &f->way[2 * stage + 2]; way++)
    ms_cycle_moments(c, &way->leaves, 1), ms_cycle_moments(c, &way->there, 1), ms_cycle_counts(c, &way->mb, 1);
  ms_cycle_same(c, f->rivals[stage].rows->len);
  ms_cycle_same(c, f->rivals[stage].left > 0 ? f->at.compute[stage] : -1); /* a moment never comes again */
  ms_cycle_figures(c, (double *)&f->stage[stage], sizeof *f->stage / sizeof(double));
  ms_cycle_figures(c, passes->total_s, G_N_ELEMENTS(passes->total_s));
  ms_cycle_counts(c, passes->count, G_N_ELEMENTS(passes->count));
}

/* Of chunks that are not due before the last message has gone. */
static void reduce_behind(Fast *f, int stage) {
  Run run = {.stage = stage};
  MsTime gone = MAX(f->at.tip[stage], f->at.stream_b[stage]);
  for (int c = 0; c < f->p->layout->vpp; c++) {
    if (!ms_reduces_behind(f->reduces, f->schedule, stage, c)) continue;
    if (f->p->p2p_blocks)
      f->at.host[stage] = MAX(f->at.host[stage] + f->at.sync[ms_layout_pool(f->p->layout, stage)], gone);
    reduce_chunk(f, &run, c, gone);
  }
}

/* In the order in which they begin: a message is late by what its stage runs beside it, and waited for later. */
static const MsTurn *next_turn(const Fast *f) {
  MsTime first = G_MAXINT64;
  int stage = -1, in[MS_SLOT_WAITS];
  if (f->p->p2p_blocks) return ms_slot_walk_next(f->at.walk); /* nothing runs beside a message */
  for (int s = 0; s < f->schedule->stages; s++) {
    if (!ms_slot_walk_waits(f->at.walk, s, in)) continue;
    MsTime begin = f->at.compute[s];
    for (int k = 0; k < MS_SLOT_WAITS; k++)
      if (in[k] >= 0) begin = MAX(begin, f->at.made[in[k]]);
    if (begin < first) first = begin, stage = s;
  }
  return stage < 0 ? NULL : ms_slot_walk_take(f->at.walk, stage);
}

/* With FSDP collectives are under way all the time. */
static void run_slots(Fast *f) {
  g_autoptr(MsCycle) cycle = f->p->unit ? NULL : ms_cycle_new(&f->at, f->schedule, tell_state, f);
  for (const MsTurn *turn; (turn = next_turn(f));) run_turn(f, turn), ms_cycle_turn(cycle, turn);
  ms_slot_walk_must_end(f->at.walk);
}

/* All stages, each from f->begins on; last[] gets when they have ended. Returns when all have. */
static MsTime run_stages(Fast *f, MsTime *last, guint64 *events) {
  int stages = f->schedule->stages;
  f->at = ms_stages_new(f->p, f->schedule);
  ms_stages_send_messages(&f->at);
  for (int i = 0; i < 2 * stages; i++)
    f->fetch[i].need = MS_NO_NEED, f->way[i] = (OnTheWay){.leaves = NEVER, .there = NEVER};
  for (int s = 0; s < stages; s++) {
    f->stage[s] = (MsTimeParts){0}, f->rivals[s] = ms_rivals_new(f->p->meets);
    run_before(f, s);
  }
  run_slots(f);
  for (int s = 0; s < stages; s++) reduce_behind(f, s);
  MsTime end = run_after(f, last, events);
  for (int s = 0; s < stages; s++) ms_rivals_clear(&f->rivals[s]);
  ms_stages_clear(&f->at);
  return end;
}

/* One more step behind those that ended at `from`. */
static void run_again(gconstpointer data, const MsTime *from, MsTime *end) {
  Fast f = *(const Fast *)data;
  guint64 events = 0;
  g_autofree MsTimeParts *stage = f.stage = g_new(MsTimeParts, f.schedule->stages);
  g_autofree MsPasses *passes = f.passes = g_new0(MsPasses, f.schedule->stages);
  f.begins = from;
  run_stages(&f, end, &events);
}

MsTime ms_fast_step(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule, const MsOp *const *tag_op,
                    MsTimeParts *stage, MsPasses *passes, guint64 *events) {
  int stages = schedule->stages;
  g_autoptr(MsSteady) steady = ms_steady_new(p, lags, schedule, tag_op);
  g_autofree MsTime *times = g_new0(MsTime, 3 * (gsize)stages);
  g_autofree MsRivals *rivals = g_new(MsRivals, stages);
  g_autofree Fetch *fetches = g_new(Fetch, 2 * (gsize)stages);
  g_autofree OnTheWay *ways = g_new(OnTheWay, 2 * (gsize)stages);
  MsTime *last = times + 2 * stages;
  g_autofree int *reduces = ms_reduce_slots(p, schedule);
  Fast f = {.p = p,
            .schedule = schedule,
            .reduces = reduces,
            .tag_op = tag_op,
            .steady = steady,
            .rivals = rivals,
            .fetch = fetches,
            .way = ways,
            .begins = times,
            .from = times + stages,
            .stage = stage,
            .passes = passes};
  MsTime end = run_stages(&f, last, events), period = end;
  if (p->skewed) period = ms_lower_period_of(stages, last, run_again, &f);
  ms_parts_shorten(stage, stages, end - period);
  for (int s = 0; s < stages; s++) close_parts(&stage[s], period);
  *events += ms_steady_events(steady) + (guint64)schedule->n[0] * (guint64)stages;
  return period;
}
