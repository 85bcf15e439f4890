/* src/bound/relaxed.c - a tight lower bound of the step: what `full` would find if links were not shared, slot by slot.
 *
 * What one pass over one piece does to its stage is a table of lags (bound/lags.c); with EP overlap so is what a
 * forward piece does beside a backward piece. The table of a chunk is the max-plus product of those of its pieces. The
 * slots of the schedule then cost a few sums each instead of hundreds of rows.
 *
 * Why it never exceeds `full`: sharing only lengthens rows; of all orders and waits that the lowering lays down
 * (sim/graph.c) a subset is kept here, and with fewer waits and shorter rows nothing starts later. Left out: rows of
 * other streams that reach from one piece into the next, gradient reductions and parameter gathers other than those at
 * the ends of a chunk, what FSDP and offloading fetch. */
#include "bound/bound.h"
#include "bound/bound_priv.h"
#include "step/pair.h"
#include "base/err.h"

#define NEVER MS_NEVER

/* --- chunks --- */

typedef struct {
  MsLags lags;
  MsNeed need;
} Table; /* of a slot */

typedef struct {                /* of one chunk, by kind of slot */
  Table pass[2][MS_SLOT_W + 1]; /* the second: leaving the head's weight gradient */
  int kind;                     /* chunks of the same pieces have the same number */
} ChunkLags;

typedef struct {
  const MsProgram *p;
  MsPieceLags *lags;
  const MsSchedule *s;
  ChunkLags *chunk;      /* [num_chunks] chunk * pp + stage */
  Table **pair_of_kinds; /* [n_kinds][n_kinds][2] forward chunk beside backward chunk, which leaves the head or not;
                            NULL = not asked for yet */
  int n_kinds;
  MsTime *arrived_f, *arrived_b, *split; /* [virtual stage * microbatches + mb]; NEVER = not yet */
  MsTime *compute, *host, *tip, *send, *stream_f, *stream_b, *last_b,
      *gather_at;     /* of each stage; the last two of each chunk */
  int *next, *left_b; /* slot of each stage that comes next; backwards of each chunk still to come */
  MsToll **toll;      /* [stages] NULL: none */
  MsTime message, message_launch, sync;
  gboolean paired, splits, tolls; /* layers run in pairs; backwards are split into I and W; some stage has a toll */
} Relaxed;

static gboolean same_pieces(const MsWork *w, const MsChunk *a, const MsChunk *b) {
  int n = ms_work_chunk_length(a);
  if (n != ms_work_chunk_length(b) || a->has_embedding != b->has_embedding ||
      a->num_layers + a->num_mtp != b->num_layers + b->num_mtp)
    return FALSE;
  for (int i = 0; i < n; i++)
    if (ms_work_chunk_piece(w, a, i) != ms_work_chunk_piece(w, b, i)) return FALSE;
  return TRUE;
}

static Table table_of_chunk(const Relaxed *r, const MsChunk *chunk, MsSlotKind kind, gboolean leaves_head) {
  int n = ms_work_chunk_length(chunk);
  Table t = {.lags = ms_no_rows};
  MsForced forced = ms_nothing_forced;
  for (int i = 0; i < n; i++) {
    int piece = ms_work_chunk_piece(r->p->work, chunk, kind == MS_SLOT_F ? i : n - 1 - i);
    MsSlotKind own = ms_piece_slot(r->p, kind, piece, leaves_head);
    if (own == MS_N_SLOTS) continue;
    t.lags = ms_lags_product(ms_piece_lags_pass(r->lags, own, piece, MS_FROM_ALL), &t.lags);
    if (r->tolls) forced = ms_forced_product(ms_piece_forced_pass(r->lags, own, piece), &forced);
  }
  t.need = ms_need_of(&forced);
  return t;
}

static ChunkLags chunk_lags(const Relaxed *r, const MsChunk *chunk) {
  ChunkLags l;
  gboolean leaves = chunk->has_loss && ms_work_deferred(r->p->work, G_MAXINT) > 0;
  for (int kind = 0; kind <= (r->splits ? MS_SLOT_W : MS_SLOT_B); kind++) {
    l.pass[0][kind] = l.pass[1][kind] = table_of_chunk(r, chunk, (MsSlotKind)kind, FALSE);
    if (leaves) l.pass[1][kind] = table_of_chunk(r, chunk, (MsSlotKind)kind, TRUE);
  }
  return l;
}

static void chunks_lags(Relaxed *r) {
  const MsLayout *l = r->p->layout;
  for (int i = 0; i < l->num_chunks; i++) {
    int like = 0;
    while (like < i && !same_pieces(r->p->work, &l->chunks[like], &l->chunks[i])) like++;
    if (like < i) {
      r->chunk[i] = r->chunk[like];
      continue;
    }
    r->chunk[i] = chunk_lags(r, &l->chunks[i]);
    r->chunk[i].kind = r->n_kinds++;
  }
  r->pair_of_kinds = g_new0(Table *, 2 * (size_t)r->n_kinds * (size_t)r->n_kinds);
}

/* A forward chunk beside a backward chunk, piece by piece as the lowering lays them. */
static const Table *pair_of_chunks(Relaxed *r, const ChunkLags *f, const MsChunk *f_chunk, const ChunkLags *b,
                                   const MsChunk *b_chunk, gboolean leaves_head) {
  Table **known = &r->pair_of_kinds[2 * (f->kind * r->n_kinds + b->kind) + (leaves_head ? 1 : 0)];
  if (*known) return *known;
  MsPieceLags *lags = r->lags;
  Table t = {.lags = ms_no_rows};
  MsForced forced = ms_nothing_forced;
  MsPairWalk walk = ms_pair_walk(f_chunk, b_chunk);
  while (ms_pair_step(&walk)) {
    int fp = walk.f >= 0 ? ms_work_chunk_piece(r->p->work, f_chunk, walk.f) : -1,
        bp = walk.b >= 0 ? ms_work_chunk_piece(r->p->work, b_chunk, walk.b) : -1;
    MsSlotKind alone = bp < 0 ? MS_SLOT_B : ms_piece_slot(r->p, MS_SLOT_B, bp, leaves_head);
    MsLags step = fp < 0   ? ms_lags_beside(ms_piece_lags_pass(lags, alone, bp, MS_FROM_ALL))
                  : bp < 0 ? *ms_piece_lags_pass(lags, MS_SLOT_F, fp, MS_FROM_ALL)
                           : *ms_piece_lags_pair(lags, fp, bp, MS_FROM_ALL);
    t.lags = ms_lags_product(&step, &t.lags);
    if (!r->tolls) continue;
    MsForced need = fp < 0   ? *ms_piece_forced_pass(lags, alone, bp)
                    : bp < 0 ? *ms_piece_forced_pass(lags, MS_SLOT_F, fp)
                             : *ms_piece_forced_pair(lags, fp, bp);
    if (fp < 0) need = ms_forced_beside(&need);
    forced = ms_forced_product(&need, &forced);
  }
  t.need = ms_need_of(&forced);
  return *known = g_memdup2(&t, sizeof t);
}

/* --- slots, in step with sim/graph.c --- */

static MsTime *cell(const Relaxed *r, MsTime *table, int virtual_stage, int mb) {
  return &table[(size_t)virtual_stage * (size_t)r->s->microbatches + (size_t)mb];
}

/* Runs a chunk's table on a stage; returns when its output is there. `beside`: what the backward of a pair waits for;
 * becomes when its output is there. */
static MsTime run_lags(Relaxed *r, int stage, const Table *t, MsTime entry, MsTime *beside) {
  MsTime before[MS_N_ENDS] = {entry, beside ? *beside : NEVER, r->compute[stage], r->host[stage]}, after[MS_N_ENDS];
  ms_lags_run(&t->lags, before, after);
  if (r->toll[stage]) ms_toll_slot(r->toll[stage], &t->need, before, after);
  r->compute[stage] = after[MS_END_COMPUTE];
  r->host[stage] = after[MS_END_HOST];
  if (beside) *beside = after[MS_END_BESIDE];
  return after[MS_END_ENTRY];
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

static const ChunkLags *chunk_of(const Relaxed *r, int stage, int chunk) {
  return &r->chunk[chunk * r->p->layout->pp + stage];
}

static gboolean is_empty(const Relaxed *r, int stage, int chunk) {
  return ms_work_chunk_length(ms_layout_chunk(r->p->layout, stage, chunk)) == 0;
}

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
  if (r->toll[stage] && parameters != NEVER) {
    MsTime free = ms_toll_gathered(r->toll[stage], chunk);
    r->compute[stage] = MAX(r->compute[stage], free);
  }
  MsTime tip = is_empty(r, stage, chunk) ? (input != NEVER ? input : before)
                                         : run_lags(r, stage, &c->pass[0][MS_SLOT_F], MAX(entry, 0), NULL);
  r->tip[stage] = tip;
  forward_done(r, stage, v, mb, tip);
  return TRUE;
}

static void backward_ended(Relaxed *r, int stage, int chunk, MsTime tip) {
  r->last_b[chunk * r->p->layout->pp + stage] = tip;
}

/* Before every slot that ends a backward. */
static void backward_comes(Relaxed *r, int stage, int chunk) {
  if (r->toll[stage] && --r->left_b[chunk * r->p->layout->pp + stage] == 0) ms_toll_last(r->toll[stage], chunk);
}

static gboolean run_backward(Relaxed *r, int stage, MsSlotKind kind, int chunk, int mb) {
  int v = ms_virtual_stage(r->s, stage, chunk);
  MsTime input;
  gboolean own;
  if (!input_of(r, stage, v, mb, TRUE, &input, &own)) return FALSE;
  MsTime entry = entry_of(r, stage, input, own, take_send(r, stage));
  const ChunkLags *c = chunk_of(r, stage, chunk);
  if (kind == MS_SLOT_B) backward_comes(r, stage, chunk);
  MsTime tip = is_empty(r, stage, chunk)
                   ? input
                   : run_lags(r, stage, &c->pass[ms_leaves_head(r->p, r->s, stage, chunk, mb)][kind], entry, NULL);
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
  backward_comes(r, stage, chunk);
  if (!is_empty(r, stage, chunk))
    r->tip[stage] = run_lags(r, stage, &c->pass[ms_leaves_head(r->p, r->s, stage, chunk, mb)][MS_SLOT_W], entry, NULL);
  backward_ended(r, stage, chunk, r->tip[stage]);
  return TRUE;
}

/* Layers in pairs. */
static gboolean run_pair(Relaxed *r, int stage, const MsSlot *slot) {
  int vf = ms_virtual_stage(r->s, stage, slot->chunk), vb = ms_virtual_stage(r->s, stage, slot->chunk2);
  MsTime f_in, b_in, before = r->tip[stage];
  gboolean f_own, b_own;
  if (!input_of(r, stage, vf, slot->mb, FALSE, &f_in, &f_own) ||
      !input_of(r, stage, vb, slot->mb2, TRUE, &b_in, &b_own))
    return FALSE;
  if (!r->paired)
    return run_forward(r, stage, slot->chunk, slot->mb) && run_backward(r, stage, MS_SLOT_B, slot->chunk2, slot->mb2);
  MsTime send = take_send(r, stage);
  MsTime f_entry = entry_of(r, stage, f_in, f_own, send), b_entry = entry_of(r, stage, b_in, b_own, send);
  const MsChunk *f = ms_layout_chunk(r->p->layout, stage, slot->chunk),
                *b = ms_layout_chunk(r->p->layout, stage, slot->chunk2);
  backward_comes(r, stage, slot->chunk2);
  const Table *lags = pair_of_chunks(r, chunk_of(r, stage, slot->chunk), f, chunk_of(r, stage, slot->chunk2), b,
                                     ms_leaves_head(r->p, r->s, stage, slot->chunk2, slot->mb2));
  MsTime b_tip = b_entry, f_tip = run_lags(r, stage, lags, MAX(f_entry, 0), &b_tip);
  if (is_empty(r, stage, slot->chunk)) f_tip = f_in != NEVER ? f_in : before;
  if (is_empty(r, stage, slot->chunk2)) b_tip = b_in;
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

typedef struct {
  MsTime *end, stream[MS_N_STREAMS], host;
} Rows; /* of one list on one stage, with times instead of lags */

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

/* The last reductions of each chunk, which its last slot issues at its end: when the stage has nothing of them left.
 * Those of different chunks may queue behind each other in an order that the list does not tell. */
static MsTime run_reductions(Relaxed *r, int stage) {
  const MsCostedStep *step = &r->p->step[stage];
  MsTime stream[MS_N_STREAMS], joined = r->tip[stage];
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

static gboolean crosses_stages(const MsOp *op) {
  return op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING;
}

/* In lockstep as lay_after: a row over a group that spans stages starts when all its stages have come so far. Returns
 * the end of the step. */
static MsTime run_after(Relaxed *r) {
  int stages = r->s->stages;
  MsTime end = 0;
  g_autofree int *at = g_new0(int, (guint)stages);
  g_autofree Rows *rows = g_new0(Rows, (guint)stages);
  for (int s = 0; s < stages; s++) {
    rows[s].end = g_new0(MsTime, MAX(1, r->p->step[s].after.list->n));
    rows[s].stream[MS_STREAM_COMPUTE] = r->compute[s], rows[s].host = r->host[s];
    r->tip[s] = run_reductions(r, s);
    if (r->toll[s]) rows[s].stream[MS_STREAM_COMPUTE] = r->compute[s] = MAX(r->compute[s], ms_toll_joined(r->toll[s]));
    end = MAX(MAX(end, r->tip[s]), r->compute[s]);
  }
  const MsGroupKind order[] = {MS_GROUP_EMBEDDING, MS_GROUP_WORLD};
  for (guint k = 0; k <= G_N_ELEMENTS(order); k++) {
    for (int s = 0; s < stages; s++) {
      const MsCosted *c = &r->p->step[s].after;
      for (; at[s] < c->list->n && !crosses_stages(&c->list->op[at[s]]); at[s]++)
        run_row(&rows[s], c, at[s], waits_of(&rows[s], &c->list->op[at[s]], 0, r->tip[s]));
    }
    if (k == G_N_ELEMENTS(order)) break;
    MsTime barrier = 0;
    for (int s = 0; s < stages; s++) {
      const MsOpList *list = r->p->step[s].after.list;
      if (at[s] < list->n && list->op[at[s]].group == order[k])
        barrier = MAX(barrier, waits_of(&rows[s], &list->op[at[s]], 0, r->tip[s]));
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

static void open_tables(Relaxed *r) {
  const MsLayout *l = r->p->layout;
  size_t cells = (size_t)l->num_chunks * (size_t)r->s->microbatches, stages = (size_t)l->pp,
         chunks = (size_t)l->num_chunks;
  r->arrived_f = filled(cells, NEVER), r->arrived_b = filled(cells, NEVER), r->split = filled(cells, NEVER);
  r->compute = filled(stages, 0), r->host = filled(stages, 0), r->tip = filled(stages, NEVER),
  r->send = filled(stages, NEVER);
  r->stream_f = filled(stages, 0), r->stream_b = filled(stages, 0), r->last_b = filled(chunks, 0),
  r->gather_at = filled(chunks, 0);
  r->next = g_new0(int, (guint)stages);
  r->chunk = g_new(ChunkLags, chunks);
  r->left_b = g_new(int, chunks);
  for (int i = 0, first; i < l->num_chunks; i++) ms_chunk_microbatches(r->s, i / l->pp, &first, &r->left_b[i]);
  r->toll = g_new0(MsToll *, stages);
}

static void close_tables(Relaxed *r) {
  MsTime *const owned[] = {r->arrived_f, r->arrived_b, r->split,    r->compute, r->host,     r->tip,
                           r->send,      r->stream_f,  r->stream_b, r->last_b,  r->gather_at};
  for (guint i = 0; i < G_N_ELEMENTS(owned); i++) g_free(owned[i]);
  for (int i = 0; i < 2 * r->n_kinds * r->n_kinds; i++) g_free(r->pair_of_kinds[i]);
  for (int s = 0; s < r->p->layout->pp; s++) ms_toll_free(r->toll[s]);
  g_free(r->pair_of_kinds), g_free(r->chunk), g_free(r->next), g_free(r->left_b), g_free(r->toll);
}

static Relaxed relaxed_of(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule) {
  return (Relaxed){.p = p,
                   .lags = lags,
                   .s = schedule,
                   .paired = p->scenario->options.ep_overlap,
                   .splits = ms_schedule_has(schedule, MS_SLOT_I)};
}

MsTime ms_relaxed_step(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule) {
  if (p->skewed) return 0; /* steps overlap: their period is not the end of one */
  Relaxed r = relaxed_of(p, lags, schedule);
  r.message = ms_time_of(p->p2p.time_s);
  r.message_launch = ms_time_of(p->p2p_op.kernels * p->scenario->hardware->kernel_launch_s),
  r.sync = ms_time_of(p->scenario->hardware->sync_s);
  open_tables(&r);
  for (int s = 0; s < p->layout->pp; s++) {
    run_before(&r, s);
    r.toll[s] = ms_toll_new(p, s, schedule->n[s] + 1, r.compute[s]);
    r.tolls |= r.toll[s] != NULL;
  }
  int sms[MS_RIVALS];
  if (r.tolls && ms_toll_rivals(p, sms)) ms_piece_lags_meet(lags, sms);
  chunks_lags(&r);
  run_slots(&r);
  MsTime end = run_after(&r);
  close_tables(&r);
  return end;
}

MsTime ms_relaxed_passes(const MsScenario *scenario, const MsWork *work, MsPieceLags *lags) {
  MsScheduleKind kind = scenario->layout.schedule;
  if (ms_schedule_row(kind)->costs == MS_COSTS_DECIDE) return 0;
  char why[192];
  g_autoptr(MsLayout) layout = ms_layout_build(scenario);
  MsWork own = *work; /* the pieces are borrowed */
  own.scenario = scenario, own.layout = layout;
  MsProgram p = {.scenario = scenario, .layout = layout, .work = &own};
  g_autoptr(MsSchedule) schedule = ms_program_schedule(&p, why, sizeof why);
  if (!schedule) return 0;
  Relaxed r = relaxed_of(&p, lags, schedule);
  open_tables(&r);
  chunks_lags(&r);
  run_slots(&r);
  MsTime end = 0;
  int stages = ms_steps_overlap(scenario) ? 1 : layout->pp; /* steps that overlap follow one another at the span of some
                                                               stage, and that of the first begins with the step */
  for (int s = 0; s < stages; s++) end = MAX(end, MAX(r.compute[s], r.tip[s]));
  close_tables(&r);
  return end;
}
