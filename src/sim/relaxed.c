/* src/sim/relaxed.c - a tight lower bound of the step: what `full` would find if nothing were shared, slot by slot.
 *
 * Every time in the unshared step is a maximum of sums of durations ("max-plus linear"), so what one pass over one piece does to its stage is a
 * 3 x 3 table of lags: from (its input is there, the compute stream is free, the host is free) to (its output is there, the compute stream is free
 * again, the host is free again). The table of a chunk is the max-plus product of those of its pieces. The slots of the schedule then cost nine sums
 * each instead of hundreds of rows.
 *
 * Why it never exceeds `full`: sharing only lengthens rows; of all orders and waits that the lowering lays down (sim/lower.c) a subset is kept here,
 * and with fewer waits and shorter rows nothing starts later. Left out: rows of other streams that reach from one piece into the next, gradient
 * reductions and parameter gathers other than those at the ends of a chunk, what FSDP and offloading fetch. */
#include "sim/lower.h"
#include "base/err.h"

#define NEVER (-((MsTime)1 << 60)) /* minus infinity of max-plus; sums of a few of them do not overflow */

enum { ENTRY, COMPUTE, HOST, N_ENDS };
typedef struct { MsTime to[N_ENDS][N_ENDS]; } Lags; /* to[end][source] */

typedef struct { MsTime from[N_ENDS]; } Reach; /* of one moment: lag behind each source */

static const Reach nowhere = {{NEVER, NEVER, NEVER}};

static Reach later(Reach a, Reach b) {
  Reach r;
  for (int i = 0; i < N_ENDS; i++) r.from[i] = MAX(a.from[i], b.from[i]);
  return r;
}

static Reach plus(Reach a, MsTime by) {
  for (int i = 0; i < N_ENDS; i++) a.from[i] = MAX(a.from[i] + by, NEVER);
  return a;
}

static const Lags no_rows = {{{0, NEVER, NEVER}, {NEVER, 0, NEVER}, {NEVER, NEVER, 0}}};

static Lags product(const Lags *then, const Lags *first) {
  Lags r;
  for (int i = 0; i < N_ENDS; i++)
    for (int k = 0; k < N_ENDS; k++) {
      MsTime best = NEVER;
      for (int j = 0; j < N_ENDS; j++) best = MAX(best, then->to[i][j] + first->to[j][k]);
      r.to[i][k] = best;
    }
  return r;
}

typedef enum { PART_ALL, PART_INPUT, PART_WEIGHT } Part;

static gboolean in_part(const MsOp *op, Part part) {
  return part == PART_ALL || (op->pass == MS_PASS_WGRAD) == (part == PART_WEIGHT);
}

typedef struct { Reach *end; gboolean *laid; MsWindow *window; int capacity; } Scratch;

static void scratch_reserve(Scratch *s, int n) {
  if (n <= s->capacity) return;
  s->capacity = n;
  s->end = g_renew(Reach, s->end, n);
  s->laid = g_renew(gboolean, s->laid, n);
  s->window = g_renew(MsWindow, s->window, n);
}

/* The rows of one list in order, as lay_list of the lowering chains them. `alone`: rows of the compute stream may be issued in another order (pairs), so
 * only their own waits hold, and the host is left out. */
static Lags list_lags(const MsCosted *c, int sm_count, Part part, gboolean alone, Scratch *s) {
  const Reach source[N_ENDS] = {{{0, NEVER, NEVER}}, {{NEVER, 0, NEVER}}, {{NEVER, NEVER, 0}}};
  Reach stream[MS_N_STREAMS], host = source[HOST], tip = source[ENTRY];
  int n = c->list->n;
  gboolean any_compute = FALSE;
  scratch_reserve(s, n);
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = nowhere;
  stream[MS_STREAM_COMPUTE] = source[COMPUTE];
  for (int i = 0; i < n; i++) {
    const MsOp *op = &c->list->op[i];
    s->laid[i] = in_part(op, part);
    if (!s->laid[i]) continue;
    Reach start = nowhere;
    gboolean waits = FALSE;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= 0 && s->laid[op->wait[j]]) start = later(start, s->end[op->wait[j]]), waits = TRUE;
    if (!waits) start = later(start, source[ENTRY]);
    if (!alone || op->stream == MS_STREAM_COMPUTE) start = later(start, alone ? source[COMPUTE] : stream[op->stream]);
    if (!alone && c->launch[i] > 0) start = later(start, host = plus(host, c->launch[i]));
    tip = s->end[i] = plus(start, c->duration[i]);
    stream[op->stream] = later(stream[op->stream], tip);
    if (op->stream == MS_STREAM_COMPUTE) any_compute = TRUE;
    if (!alone && (op->flags & MS_OPF_SYNC)) host = later(host, tip);
  }
  if (n > 0 && s->laid[c->list->tip]) tip = s->end[c->list->tip];
  Lags lags;
  if (!alone) { /* rows that share the SMs of a compute stream keep it longer than the longest path says */
    MsBusy busy = ms_list_busy(c->list, c->duration, c->sms, sm_count, s->laid, s->window);
    Reach *end = &stream[MS_STREAM_COMPUTE];
    if (any_compute) end->from[ENTRY] = MAX(end->from[ENTRY], busy.from_entry), end->from[COMPUTE] = MAX(end->from[COMPUTE], busy.from_compute);
    if (busy.tail >= 0) tip = later(tip, plus(*end, busy.tail));
  }
  for (int k = 0; k < N_ENDS; k++) {
    lags.to[ENTRY][k] = tip.from[k];
    lags.to[COMPUTE][k] = stream[MS_STREAM_COMPUTE].from[k];
    lags.to[HOST][k] = host.from[k];
  }
  return lags;
}

/* --- chunks --- */

typedef struct { /* of one chunk, by kind of slot; pairs: the same lists in any order */
  Lags pass[MS_SLOT_W + 1], forward_alone, backward_alone;
  MsTime compute_f, compute_b, launch_f, launch_b; /* compute rows and host time of each pass; for pairs */
  gboolean empty;
} ChunkLags;

typedef struct {
  const MsProgram *p;
  const MsSchedule *s;
  ChunkLags *chunk;  /* [num_chunks] chunk * pp + stage */
  Lags *piece[MS_SLOT_W + 1], *forward_alone, *backward_alone; /* [n_pieces] */
  MsTime *arrived_f, *arrived_b, *split; /* [virtual stage * microbatches + mb]; NEVER = not yet */
  MsTime *compute, *host, *tip, *send, *stream_f, *stream_b, *last_b, *gather_at; /* of each stage; the last two of each chunk */
  int *next;
  MsTime message, message_launch, sync;
  gboolean paired;
} Relaxed;

static void pieces_lags(Relaxed *r) {
  Scratch scratch = {0};
  int n = r->p->work->n_pieces, sm_count = r->p->scenario->hardware->sm_count;
  for (int kind = 0; kind <= MS_SLOT_W; kind++) r->piece[kind] = g_new(Lags, n);
  r->forward_alone = g_new(Lags, n), r->backward_alone = g_new(Lags, n);
  for (int i = 0; i < n; i++) {
    const MsCostedPiece *c = &r->p->piece[i];
    r->piece[MS_SLOT_F][i] = list_lags(&c->forward, sm_count, PART_ALL, FALSE, &scratch);
    r->piece[MS_SLOT_B][i] = list_lags(&c->backward, sm_count, PART_ALL, FALSE, &scratch);
    r->piece[MS_SLOT_I][i] = list_lags(&c->backward, sm_count, PART_INPUT, FALSE, &scratch);
    r->piece[MS_SLOT_W][i] = list_lags(&c->backward, sm_count, PART_WEIGHT, FALSE, &scratch);
    if (!r->paired) continue;
    r->forward_alone[i] = list_lags(&c->forward, sm_count, PART_ALL, TRUE, &scratch);
    r->backward_alone[i] = list_lags(&c->backward, sm_count, PART_ALL, TRUE, &scratch);
  }
  g_free(scratch.end), g_free(scratch.laid), g_free(scratch.window);
}

static MsTime launches(const MsCosted *c) {
  MsTime sum = 0;
  for (int i = 0; i < c->list->n; i++) sum += c->launch[i];
  return sum;
}

static ChunkLags chunk_lags(const Relaxed *r, const MsChunk *chunk) {
  int n = ms_work_chunk_length(chunk);
  ChunkLags l = {.forward_alone = no_rows, .backward_alone = no_rows, .empty = n == 0};
  for (int kind = 0; kind <= MS_SLOT_W; kind++) l.pass[kind] = no_rows;
  for (int i = 0; i < n; i++) {
    int f = ms_work_chunk_piece(r->p->work, chunk, i), b = ms_work_chunk_piece(r->p->work, chunk, n - 1 - i);
    for (int kind = 0; kind <= MS_SLOT_W; kind++) l.pass[kind] = product(&r->piece[kind][kind == MS_SLOT_F ? f : b], &l.pass[kind]);
    if (!r->paired) continue;
    const MsCostedPiece *c = &r->p->piece[f];
    l.forward_alone = product(&r->forward_alone[f], &l.forward_alone);
    l.backward_alone = product(&r->backward_alone[b], &l.backward_alone);
    l.compute_f += c->forward.compute, l.compute_b += c->backward.compute;
    l.launch_f += launches(&c->forward), l.launch_b += launches(&c->backward);
  }
  return l;
}

/* --- slots, in step with sim/lower.c --- */

static MsTime *cell(const Relaxed *r, MsTime *table, int virtual_stage, int mb) {
  return &table[(size_t)virtual_stage * (size_t)r->s->microbatches + (size_t)mb];
}

static MsTime at_least(const MsTime *lag, MsTime entry, MsTime compute, MsTime host) {
  return MAX(MAX(entry + lag[ENTRY], compute + lag[COMPUTE]), MAX(host + lag[HOST], NEVER));
}

/* Runs a chunk's table on a stage; returns when its output is there. */
static MsTime run_lags(Relaxed *r, int stage, const Lags *l, MsTime entry) {
  MsTime c = r->compute[stage], h = r->host[stage];
  r->compute[stage] = at_least(l->to[COMPUTE], entry, c, h); /* never before c and h: both have a lag of at least 0 behind themselves */
  r->host[stage] = at_least(l->to[HOST], entry, c, h);
  return at_least(l->to[ENTRY], entry, c, h);
}

/* The input of a slot: when it is there; FALSE when it does not exist yet. `own`: no other stage sends it. */
static gboolean input_of(const Relaxed *r, int stage, int v, int mb, gboolean back, MsTime *input, gboolean *own) {
  int from = back ? ms_virtual_after(r->s, v) : ms_virtual_before(r->s, v), owner = stage, chunk;
  *input = NEVER, *own = TRUE;
  if (from < 0 && !back) return TRUE;
  if (from >= 0) ms_virtual_owner(r->s, from, &owner, &chunk);
  *own = owner == stage;
  *input = *cell(r, back ? r->arrived_b : r->arrived_f, v, mb);
  return *input != NEVER;
}

static MsTime entry_of(Relaxed *r, int stage, MsTime input, gboolean own, MsTime send) {
  MsTime entry = input;
  if (input == NEVER) entry = r->tip[stage];
  else if (r->p->p2p_blocks && !own) {
    MsTime issued = r->host[stage] + r->sync;
    entry = r->sync > 0 ? MAX(issued, input) : input;
    r->host[stage] = MAX(issued, input);
  }
  return MAX(entry, send);
}

static MsTime take_send(Relaxed *r, int stage) {
  MsTime send = r->send[stage];
  r->send[stage] = NEVER;
  return send;
}

static void deliver(Relaxed *r, int stage, MsTime tip, int to, int mb, gboolean back) {
  int owner, chunk;
  if (to < 0) return;
  ms_virtual_owner(r->s, to, &owner, &chunk);
  if (owner != stage) {
    MsTime *stream = back ? &r->stream_b[stage] : &r->stream_f[stage];
    r->host[stage] += r->message_launch;
    tip = MAX(tip, *stream);
    if (r->message_launch > 0) tip = MAX(tip, r->host[stage]);
    *stream = tip += r->message;
    if (r->p->p2p_blocks) r->send[stage] = tip;
  }
  *cell(r, back ? r->arrived_b : r->arrived_f, to, mb) = tip;
}

static void forward_done(Relaxed *r, int stage, int v, int mb, MsTime tip) {
  int next = ms_virtual_after(r->s, v);
  if (next < 0) *cell(r, r->arrived_b, v, mb) = tip;
  else deliver(r, stage, tip, next, mb, FALSE);
}

static const ChunkLags *chunk_of(const Relaxed *r, int stage, int chunk) { return &r->chunk[chunk * r->p->layout->pp + stage]; }

static MsTime gathered(Relaxed *r, int stage, int chunk, int mb) {
  int first, count;
  ms_chunk_microbatches(r->s, chunk, &first, &count);
  return mb == first ? r->gather_at[chunk * r->p->layout->pp + stage] : NEVER;
}

static gboolean run_forward(Relaxed *r, int stage, int chunk, int mb) {
  int v = ms_virtual_stage(r->s, stage, chunk);
  MsTime input, before = r->tip[stage];
  gboolean own;
  if (!input_of(r, stage, v, mb, FALSE, &input, &own)) return FALSE;
  MsTime entry = entry_of(r, stage, input, own, take_send(r, stage)), parameters = gathered(r, stage, chunk, mb);
  entry = MAX(entry, parameters);
  const ChunkLags *c = chunk_of(r, stage, chunk);
  MsTime tip = c->empty ? (input != NEVER ? input : before) : run_lags(r, stage, &c->pass[MS_SLOT_F], MAX(entry, 0));
  r->tip[stage] = tip;
  forward_done(r, stage, v, mb, tip);
  return TRUE;
}

static void backward_ended(Relaxed *r, int stage, int chunk, MsTime tip) { r->last_b[chunk * r->p->layout->pp + stage] = tip; }

static gboolean run_backward(Relaxed *r, int stage, MsSlotKind kind, int chunk, int mb) {
  int v = ms_virtual_stage(r->s, stage, chunk);
  MsTime input;
  gboolean own;
  if (!input_of(r, stage, v, mb, TRUE, &input, &own)) return FALSE;
  MsTime entry = entry_of(r, stage, input, own, take_send(r, stage));
  const ChunkLags *c = chunk_of(r, stage, chunk);
  MsTime tip = c->empty ? input : run_lags(r, stage, &c->pass[kind], entry);
  r->tip[stage] = tip;
  if (kind == MS_SLOT_I) *cell(r, r->split, v, mb) = tip;
  else backward_ended(r, stage, chunk, tip);
  deliver(r, stage, tip, ms_virtual_before(r->s, v), mb, TRUE);
  return TRUE;
}

static gboolean run_weight(Relaxed *r, int stage, int chunk, int mb) {
  MsTime entry = *cell(r, r->split, ms_virtual_stage(r->s, stage, chunk), mb);
  const ChunkLags *c = chunk_of(r, stage, chunk);
  if (entry == NEVER) return FALSE;
  if (!c->empty) r->tip[stage] = run_lags(r, stage, &c->pass[MS_SLOT_W], entry);
  backward_ended(r, stage, chunk, r->tip[stage]);
  return TRUE;
}

/* Layers in pairs: each list keeps its own waits; on the compute stream and on the host all rows of both follow one another in some order. */
static gboolean run_pair(Relaxed *r, int stage, const MsSlot *slot) {
  int vf = ms_virtual_stage(r->s, stage, slot->chunk), vb = ms_virtual_stage(r->s, stage, slot->chunk2);
  MsTime f_in, b_in, before = r->tip[stage];
  gboolean f_own, b_own;
  if (!input_of(r, stage, vf, slot->mb, FALSE, &f_in, &f_own) || !input_of(r, stage, vb, slot->mb2, TRUE, &b_in, &b_own)) return FALSE;
  if (!r->paired) return run_forward(r, stage, slot->chunk, slot->mb) && run_backward(r, stage, MS_SLOT_B, slot->chunk2, slot->mb2);
  MsTime send = take_send(r, stage);
  MsTime f_entry = entry_of(r, stage, f_in, f_own, send), b_entry = entry_of(r, stage, b_in, b_own, send);
  f_entry = MAX(f_entry, 0);
  const ChunkLags *f = chunk_of(r, stage, slot->chunk), *b = chunk_of(r, stage, slot->chunk2);
  MsTime c = r->compute[stage];
  MsTime f_tip = f->empty ? (f_in != NEVER ? f_in : before) : at_least(f->forward_alone.to[ENTRY], f_entry, c, NEVER);
  MsTime b_tip = b->empty ? b_in : at_least(b->backward_alone.to[ENTRY], b_entry, c, NEVER);
  r->compute[stage] = c + f->compute_f + b->compute_b;
  r->host[stage] += f->launch_f + b->launch_b;
  r->tip[stage] = b_tip;
  backward_ended(r, stage, slot->chunk2, b_tip);
  forward_done(r, stage, vf, slot->mb, f_tip);
  deliver(r, stage, b_tip, ms_virtual_before(r->s, vb), slot->mb2, TRUE);
  return TRUE;
}

static gboolean run_slot(Relaxed *r, int stage, const MsSlot *slot) {
  switch ((MsSlotKind)slot->kind) {
  case MS_SLOT_F: return run_forward(r, stage, slot->chunk, slot->mb);
  case MS_SLOT_B:
  case MS_SLOT_I: return run_backward(r, stage, slot->kind, slot->chunk, slot->mb);
  case MS_SLOT_W: return run_weight(r, stage, slot->chunk, slot->mb);
  default: return run_pair(r, stage, slot);
  }
}

static void run_slots(Relaxed *r) {
  gboolean moved = TRUE;
  while (moved) {
    moved = FALSE;
    for (int s = 0; s < r->s->stages; s++)
      while (r->next[s] < r->s->n[s] && run_slot(r, s, &r->s->slot[s][r->next[s]])) r->next[s]++, moved = TRUE;
  }
  for (int s = 0; s < r->s->stages; s++)
    if (r->next[s] < r->s->n[s]) MS_BUG("schedule deadlocks at stage %d slot %d", s, r->next[s]);
}

/* --- the step's own rows --- */

typedef struct { MsTime *end, stream[MS_N_STREAMS], host; } Rows; /* of one list on one stage, with times instead of lags */

static void run_row(Rows *rows, const MsCosted *c, int i, MsTime start) {
  const MsOp *op = &c->list->op[i];
  start = MAX(start, rows->stream[op->stream]);
  if (c->launch[i] > 0) {
    rows->host += c->launch[i];
    start = MAX(start, rows->host);
  }
  rows->end[i] = rows->stream[op->stream] = start + c->duration[i];
  if (op->flags & MS_OPF_SYNC) rows->host = MAX(rows->host, rows->end[i]);
}

/* Latest of what row i waits for among rows from `from` on; `none` when it waits for no row. */
static MsTime waits_of(const Rows *rows, const MsOp *op, int from, MsTime none) {
  MsTime start = NEVER;
  gboolean any = FALSE;
  for (int j = 0; j < 3; j++)
    if (op->wait[j] >= from) start = MAX(start, rows->end[op->wait[j]]), any = TRUE;
  return any ? start : none;
}

/* What a stage does before its first slot; parameters that the first piece of a chunk waits for. */
static void run_before(Relaxed *r, int stage) {
  const MsCostedStep *step = &r->p->step[stage];
  Rows rows = {.end = g_new(MsTime, MAX(MAX(step->before.list->n, step->gather.list->n), 1))};
  for (int i = 0; i < step->before.list->n; i++) {
    run_row(&rows, &step->before, i, waits_of(&rows, &step->before.list->op[i], 0, 0));
    r->tip[stage] = rows.end[i];
  }
  const MsOpList *before = step->before.list;
  if (before->n > 0) r->tip[stage] = rows.end[before->tip];
  r->compute[stage] = rows.stream[MS_STREAM_COMPUTE];
  for (int i = 0, from = 0; i < step->gather.list->n; i++) {
    const MsBucket *at = &step->ops.gather_at[i];
    if (i > 0 && (at->chunk != at[-1].chunk || at->piece != at[-1].piece)) from = i;
    run_row(&rows, &step->gather, i, waits_of(&rows, &step->gather.list->op[i], from, 0));
    MsTime *first = &r->gather_at[at->chunk * r->p->layout->pp + stage];
    if (at->piece == 0) *first = MAX(*first, rows.end[i]);
  }
  r->host[stage] = rows.host;
  g_free(rows.end);
}

/* The last reductions of each chunk, which its last slot issues at its end: when the stage has nothing of them left. Those of different chunks may queue
 * behind each other in an order that the list does not tell. */
static MsTime run_reductions(Relaxed *r, int stage) {
  const MsCostedStep *step = &r->p->step[stage];
  MsTime stream[MS_N_STREAMS], joined = r->tip[stage];
  for (int i = 0, chunk = -1; i < step->reduce.list->n; i++) {
    const MsBucket *at = &step->ops.reduce_at[i];
    if (at->piece != 0) continue;
    for (int k = 0; at->chunk != chunk && k < MS_N_STREAMS; k++) stream[k] = r->last_b[at->chunk * r->p->layout->pp + stage];
    chunk = at->chunk;
    MsTime *own = &stream[step->reduce.list->op[i].stream];
    *own += step->reduce.duration[i];
    joined = MAX(joined, *own);
  }
  return joined;
}

static gboolean crosses_stages(const MsOp *op) { return op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING; }

/* In lockstep as lay_after: a row over a group that spans stages starts when all its stages have come so far. Returns the end of the step. */
static MsTime run_after(Relaxed *r) {
  int stages = r->s->stages;
  MsTime end = 0;
  g_autofree int *at = g_new0(int, (guint)stages);
  g_autofree Rows *rows = g_new0(Rows, (guint)stages);
  for (int s = 0; s < stages; s++) {
    rows[s].end = g_new0(MsTime, MAX(1, r->p->step[s].after.list->n));
    rows[s].stream[MS_STREAM_COMPUTE] = r->compute[s], rows[s].host = r->host[s];
    r->tip[s] = run_reductions(r, s);
    end = MAX(MAX(end, r->tip[s]), r->compute[s]);
  }
  const MsGroupKind order[] = {MS_GROUP_EMBEDDING, MS_GROUP_WORLD};
  for (guint k = 0; k <= G_N_ELEMENTS(order); k++) {
    for (int s = 0; s < stages; s++) {
      const MsCosted *c = &r->p->step[s].after;
      for (; at[s] < c->list->n && !crosses_stages(&c->list->op[at[s]]); at[s]++) run_row(&rows[s], c, at[s], waits_of(&rows[s], &c->list->op[at[s]], 0, r->tip[s]));
    }
    if (k == G_N_ELEMENTS(order)) break;
    MsTime barrier = 0;
    for (int s = 0; s < stages; s++) {
      const MsOpList *list = r->p->step[s].after.list;
      if (at[s] < list->n && list->op[at[s]].group == order[k]) barrier = MAX(barrier, waits_of(&rows[s], &list->op[at[s]], 0, r->tip[s]));
    }
    for (int s = 0; s < stages; s++) {
      const MsCosted *c = &r->p->step[s].after;
      if (at[s] < c->list->n && c->list->op[at[s]].group == order[k]) run_row(&rows[s], c, at[s]++, barrier);
    }
  }
  for (int s = 0; s < stages; s++) {
    for (int i = 0; i < at[s]; i++) end = MAX(end, rows[s].end[i]);
    g_free(rows[s].end);
  }
  return end;
}

static MsTime *filled(size_t n, MsTime value) {
  MsTime *a = g_new(MsTime, MAX(n, 1));
  for (size_t i = 0; i < n; i++) a[i] = value;
  return a;
}

MsTime ms_relaxed_step(const MsProgram *p, const MsSchedule *schedule) {
  if (p->skewed) return 0; /* steps overlap: their period is not the end of one */
  const MsLayout *l = p->layout;
  size_t cells = (size_t)l->num_chunks * (size_t)schedule->microbatches, stages = (size_t)l->pp, chunks = (size_t)l->num_chunks;
  Relaxed r = {.p = p, .s = schedule, .paired = p->scenario->options.ep_overlap, .message = ms_time_of(p->p2p.time_s),
               .message_launch = ms_time_of(p->p2p_op.kernels * p->scenario->hardware->kernel_launch_s), .sync = ms_time_of(p->scenario->hardware->sync_s)};
  r.arrived_f = filled(cells, NEVER), r.arrived_b = filled(cells, NEVER), r.split = filled(cells, NEVER);
  r.compute = filled(stages, 0), r.host = filled(stages, 0), r.tip = filled(stages, NEVER), r.send = filled(stages, NEVER);
  r.stream_f = filled(stages, 0), r.stream_b = filled(stages, 0), r.last_b = filled(chunks, 0), r.gather_at = filled(chunks, 0);
  r.next = g_new0(int, (guint)stages);
  r.chunk = g_new(ChunkLags, chunks);
  pieces_lags(&r);
  for (int i = 0; i < l->num_chunks; i++) r.chunk[i] = chunk_lags(&r, &l->chunks[i]);
  for (int s = 0; s < l->pp; s++) run_before(&r, s);
  run_slots(&r);
  MsTime end = run_after(&r);
  MsTime *const owned[] = {r.arrived_f, r.arrived_b, r.split, r.compute, r.host, r.tip, r.send, r.stream_f, r.stream_b, r.last_b, r.gather_at};
  for (guint i = 0; i < G_N_ELEMENTS(owned); i++) g_free(owned[i]);
  for (int kind = 0; kind <= MS_SLOT_W; kind++) g_free(r.piece[kind]);
  g_free(r.forward_alone), g_free(r.backward_alone), g_free(r.chunk), g_free(r.next);
  return end;
}
