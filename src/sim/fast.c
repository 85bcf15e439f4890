/* src/sim/fast.c - the schedule with whole chunks as tasks.
 *
 * Each distinct chunk is simulated alone, several times after one another, with every row, sharing and host launch; the
 * step between repetitions is its duration in steady state. The slots, messages and the step's own rows then go through
 * the engine as in `full`. */
#include "sim/fast.h"
#include "base/units.h"
#include "sim/account.h"
#include "sim/graph.h"
#include <string.h>

typedef struct { /* of the kinds that the schedule has; FB is in Fast.pair */
  MsTime time[MS_N_SLOTS];
  MsTimeParts part[MS_N_SLOTS];
  MsTime head; /* of these in a backward, the weight gradient of the head, and its parts */
  MsTimeParts head_part;
} ChunkTime;

static MsChunks lone_pass(const MsChunk *chunk, MsSlotKind kind) {
  return kind == MS_SLOT_F ? (MsChunks){.forward = chunk} : (MsChunks){.backward = chunk, .kind = kind};
}

static MsChunks both_of(const MsChunk *forward, const MsChunk *backward) {
  return (MsChunks){.forward = forward, .backward = backward, .kind = MS_SLOT_B};
}

/* Duration and parts of one repetition in steady state: between the last computes of repetitions 2 and 4. */
static MsTime steady(const MsProgram *p, MsChunks of, const MsOp *const *tag_op, MsTimeParts *parts, guint64 *events) {
  MsTime makespan[2];
  MsTimeParts part[2];
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsGraph) graph = ms_lower_chunk(p, of, i == 0 ? 2 : 4);
    g_autoptr(MsTrajectory) t = ms_graph_shares(graph) ? ms_engine_events(graph) : ms_engine_relax(graph);
    makespan[i] = t->makespan;
    MsTimeParts *all = g_new0(MsTimeParts, p->layout->pp);
    ms_account(p, graph, t, tag_op, all);
    part[i] = all[0];
    g_free(all);
    *events += t->events;
  }
  double *a = (double *)&part[0], *b = (double *)&part[1], *out = (double *)parts;
  for (size_t i = 0; i < sizeof *parts / sizeof(double); i++) out[i] = (b[i] - a[i]) / 2;
  return (makespan[1] - makespan[0]) / 2;
}

static void add_parts(MsTimeParts *to, const MsTimeParts *from, double times) {
  const double *f = (const double *)from;
  double *t = (double *)to;
  for (size_t i = 0; i < sizeof *to / sizeof(double); i++) t[i] += times * f[i];
}

/* The costed lists of the step are kept; every chunk becomes one row of one list. */
typedef struct {
  const MsProgram *p;
  const MsSchedule *s;
  ChunkTime *chunk; /* [num_chunks] chunk * pp + stage */
  MsTime *pair;     /* [num_chunks * vpp] forward chunk with backward chunk of the same stage; with EP overlap only */
  MsTimeParts *pair_parts;
  MsTime *made, message; /* [tensors of the walk]; how long a message between stages takes */
} Fast;

/* Rows [from, to) after `at`, each when its stream is free and its waits are over (those before `from` are). What
 * lengthens the list goes into `part` (may be NULL): compute is the optimizer's, communication is exposed. */
static MsTime list_end(const MsCosted *c, int from, int to, MsTime at, MsTime *stream, MsTimeParts *part) {
  MsTime last = at;
  g_autofree MsTime *end = g_new(MsTime, MAX(to - from, 1));
  for (int i = from; i < to; i++) {
    const MsOp *op = &c->list->op[i];
    MsTime start = MAX(stream[op->stream], at);
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= from) start = MAX(start, end[op->wait[j] - from]);
    end[i - from] = stream[op->stream] = start + c->duration[i];
    if (op->stream == MS_STREAM_D2H) continue; /* nobody waits for it but rows that say so */
    double longer = (double)MAX(0, end[i - from] - last) / MS_PS_PER_S;
    last = MAX(last, end[i - from]);
    if (!part) continue;
    int family = ms_op_families[op->kind];
    if (op->stream == MS_STREAM_COMPUTE && op->pass != MS_PASS_OPTIMIZER && family <= MS_FAMILY_MEMORY)
      part->compute_s += longer, part->family_s[family] += longer;
    else if (op->stream == MS_STREAM_COMPUTE && family != MS_FAMILY_COMM) part->optimizer_s += longer;
    else part->exposed_comm_s += longer, part->comm_exposed_s[ms_comm_class(op)] += longer;
  }
  return last;
}

/* Compute rows before `to`: they hide nothing and nothing hides them. */
static MsTime compute_before(const MsCosted *c, int to, MsTimeParts *part) {
  MsTime sum = 0;
  for (int i = 0; i < to; i++)
    if (c->list->op[i].stream == MS_STREAM_COMPUTE) sum += c->duration[i];
  part->optimizer_s += (double)sum / MS_PS_PER_S;
  return sum;
}

static size_t pair_index(const Fast *f, int stage, int forward, int backward) {
  return ((size_t)forward * (size_t)f->p->layout->vpp + (size_t)backward) * (size_t)f->p->layout->pp + (size_t)stage;
}

static const ChunkTime *chunk_time(const Fast *f, const MsSlotPass *pass) {
  return &f->chunk[pass->chunk * f->p->layout->pp + pass->stage];
}

static MsTime pass_time(const Fast *f, const MsSlotPass *pass, MsTimeParts *part) {
  const ChunkTime *c = chunk_time(f, pass);
  add_parts(part, &c->part[pass->kind], 1);
  return c->time[pass->kind];
}

static MsTime whole_turn_time(const Fast *f, const MsTurn *turn, MsTimeParts *part) {
  const MsSlotPass *forward = turn->forward, *backward = turn->backward;
  if (forward && backward && f->pair) {
    size_t i = pair_index(f, turn->stage, forward->chunk, backward->chunk);
    add_parts(part, &f->pair_parts[i], 1);
    return f->pair[i];
  }
  MsTime time = forward ? pass_time(f, forward, part) : 0;
  return backward ? time + pass_time(f, backward, part) : time;
}

static MsTime turn_time(const Fast *f, const MsTurn *turn, MsTimeParts *part) {
  MsTime time = whole_turn_time(f, turn, part);
  const MsSlotPass *backward = turn->backward;
  if (!backward || backward->kind == MS_SLOT_I || !ms_chunks_of(f->p->work, turn).leaves_head) return time;
  add_parts(part, &chunk_time(f, backward)->head_part, -1);
  return time - chunk_time(f, backward)->head;
}

static void hand_on(const Fast *f, const MsSlotPass *pass, MsTime end) {
  if (pass->kept >= 0) f->made[pass->kept] = end;
  if (pass->out >= 0) f->made[pass->out] = end + (pass->goes ? f->message : 0);
}

/* Messages that a pass sends to another stage. */
static void count_send(const Fast *f, const MsSlotPass *pass, MsTime *done, MsTimeParts *part) {
  if (!pass->goes) return;
  double s = (double)f->message / MS_PS_PER_S;
  part->comm_total_s[MS_COMM_PP] += s;
  if (!f->p->p2p_blocks) return;
  *done += f->message;
  part->exposed_comm_s += s;
  part->comm_exposed_s[MS_COMM_PP] += s;
}

/* *first: when the stage stopped waiting for its first input. */
static void run_turn(const Fast *f, const MsTurn *turn, MsTime *done, MsTime *first, MsTimeParts *part,
                     MsPasses *passes) {
  const MsSlotPass *forward = turn->forward, *backward = turn->backward;
  MsSlotKind kind = forward && backward ? MS_SLOT_FB : forward ? MS_SLOT_F : backward->kind;
  MsTime begin = *done;
  if (forward && forward->in >= 0) begin = MAX(begin, f->made[forward->in]);
  if (backward) begin = MAX(begin, f->made[backward->in]);
  MsTime time = turn_time(f, turn, part);
  passes->count[kind]++, passes->total_s[kind] += (double)time / MS_PS_PER_S;
  if (*first < 0) *first = begin;
  *done = begin + time;
  if (forward) hand_on(f, forward, begin + time);
  if (backward) hand_on(f, backward, begin + time);
  if (forward) count_send(f, forward, done, part);
  if (backward) count_send(f, backward, done, part);
}

/* done[]: from when each stage could start, to when it ended. idle[]: how long it waited for its first input. */
static void run_slots(Fast *f, MsTime *done, MsTime *idle, MsTimeParts *stage, MsPasses *passes) {
  int p = f->s->stages;
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(f->s, MS_ALL_STAGES, TRUE);
  g_autofree MsTime *made = f->made = g_new(MsTime, ms_slot_walk_tensors(walk));
  g_autofree MsTime *first = g_new(MsTime, p), *ready = g_memdup2(done, sizeof *done * (size_t)p);
  f->message = ms_time_of(f->p->p2p.time_s);
  for (int s = 0; s < p; s++) first[s] = -1;
  for (const MsTurn *t; (t = ms_slot_walk_next(walk));)
    run_turn(f, t, &done[t->stage], &first[t->stage], &stage[t->stage], &passes[t->stage]);
  ms_slot_walk_must_end(walk);
  for (int s = 0; s < p; s++) idle[s] = MAX(0, first[s] - ready[s]);
}

/* The pair (forward chunk a, backward chunk b) of one stage; an equal pair seen before is reused. */
static void pair_cost(Fast *f, int stage, int a, int b, const MsOp *const *tag_op, guint64 *events) {
  const MsLayout *l = f->p->layout;
  const MsChunk *ca = ms_layout_chunk(l, stage, a), *cb = ms_layout_chunk(l, stage, b);
  size_t at = pair_index(f, stage, a, b);
  for (int s = 0; s <= stage; s++)
    for (int x = 0; x < l->vpp; x++)
      for (int y = 0; y < l->vpp; y++) {
        size_t other = pair_index(f, s, x, y);
        if (s == stage && x * l->vpp + y >= a * l->vpp + b) continue;
        if (!ms_same_pieces(f->p->work, ca, ms_layout_chunk(l, s, x)) ||
            !ms_same_pieces(f->p->work, cb, ms_layout_chunk(l, s, y)))
          continue;
        f->pair[at] = f->pair[other];
        f->pair_parts[at] = f->pair_parts[other];
        return;
      }
  f->pair[at] = steady(f->p, both_of(ca, cb), tag_op, &f->pair_parts[at], events);
}

/* FSDP: communication of a backward goes on beside the forward that follows it, so a backward is what it adds to a
 * forward. */
static void backward_beside_forward(const MsProgram *p, const MsChunk *chunk, ChunkTime *c, const MsOp *const *tag_op,
                                    guint64 *events) {
  MsTimeParts both;
  MsTime time = steady(p, both_of(chunk, chunk), tag_op, &both, events);
  if (time - c->time[MS_SLOT_F] >= c->time[MS_SLOT_B]) return;
  c->time[MS_SLOT_B] = time - c->time[MS_SLOT_F];
  c->part[MS_SLOT_B] = both;
  add_parts(&c->part[MS_SLOT_B], &c->part[MS_SLOT_F], -1);
}

/* What a backward (or a slot of weight gradients) is shorter by when it leaves the head's weight gradient. */
static void head_of_backward(const MsProgram *p, const MsChunk *chunk, ChunkTime *c, const MsOp *const *tag_op,
                             guint64 *events) {
  MsTimeParts without, with;
  if (!chunk->has_loss || ms_work_deferred(p->work, G_MAXINT) == 0) return;
  MsChunks of = lone_pass(chunk, MS_SLOT_B);
  MsTime time = steady(p, of, tag_op, &with, events);
  of.leaves_head = TRUE;
  c->head = time - steady(p, of, tag_op, &without, events);
  c->head_part = with;
  add_parts(&c->head_part, &without, -1);
}

static void costs_of_chunks(Fast *f, const MsOp *const *tag_op, guint64 *events) {
  const MsLayout *l = f->p->layout;
  gboolean used[MS_N_SLOTS] = {FALSE};
  for (int s = 0; s < f->s->stages; s++)
    for (int i = 0; i < f->s->n[s]; i++) used[f->s->slot[s][i].kind] = TRUE;
  if (used[MS_SLOT_FB] && !f->pair) used[MS_SLOT_F] = used[MS_SLOT_B] = TRUE;
  for (int i = 0; i < l->num_chunks; i++) {
    int same = -1;
    for (int j = 0; j < i && same < 0; j++)
      if (ms_same_pieces(f->p->work, &l->chunks[i], &l->chunks[j])) same = j;
    if (same >= 0) {
      f->chunk[i] = f->chunk[same];
      continue;
    }
    ChunkTime *c = &f->chunk[i];
    for (int kind = MS_SLOT_F; kind < MS_SLOT_FB; kind++)
      if (used[kind])
        c->time[kind] = steady(f->p, lone_pass(&l->chunks[i], (MsSlotKind)kind), tag_op, &c->part[kind], events);
    head_of_backward(f->p, &l->chunks[i], c, tag_op, events);
    if (f->p->unit && used[MS_SLOT_F] && used[MS_SLOT_B])
      backward_beside_forward(f->p, &l->chunks[i], c, tag_op, events);
  }
  if (!f->pair) return;
  for (int s = 0; s < l->pp; s++)
    for (int a = 0; a < l->vpp; a++)
      for (int b = 0; b < l->vpp; b++) pair_cost(f, s, a, b, tag_op, events);
}

void ms_slot_times(const MsProgram *p, const MsSchedule *s, const MsOp *const *tag_op, double *slot_s) {
  const MsLayout *l = p->layout;
  const MsChunk *first = ms_layout_chunk(l, l->pp / 2, 0), *last = ms_layout_chunk(l, l->pp / 2, l->vpp - 1);
  MsTimeParts parts;
  guint64 events = 0;
  for (int kind = MS_SLOT_F; kind <= MS_SLOT_FB; kind++)
    if (kind != MS_SLOT_FB || ms_schedule_has(s, MS_SLOT_FB))
      slot_s[kind] = (double)steady(p, kind == MS_SLOT_FB ? both_of(first, last) : lone_pass(first, (MsSlotKind)kind),
                                    tag_op, &parts, &events) /
                     MS_PS_PER_S;
}

static int crossing(const MsOpList *list) {
  for (int i = 0; i < list->n; i++)
    if (list->op[i].flags & MS_OPF_SYNC) return i + 1;
  return list->n;
}

static void comm_totals(const MsCosted *c, MsTimeParts *part) {
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    if (op->stream != MS_STREAM_COMPUTE || ms_op_families[op->kind] == MS_FAMILY_COMM)
      part->comm_total_s[ms_comm_class(op)] += (double)c->duration[i] / MS_PS_PER_S;
  }
}

/* --- the step --- */
static void tag_list(const MsCosted *c, const MsOp **tag_op) {
  for (int i = 0; i < c->list->n; i++) tag_op[c->tag + (guint32)i] = &c->list->op[i];
}

/* The row of every tag of the pieces. (transfer container) */
static const MsOp **tags_of(const MsProgram *p) {
  const MsOp **tag_op = g_new0(const MsOp *, p->n_tags);
  for (int i = 0; i < p->work->n_pieces; i++) {
    tag_list(&p->piece[i].forward, tag_op), tag_list(&p->piece[i].backward, tag_op),
        tag_list(&p->piece[i].reload, tag_op);
    if (p->unit)
      tag_list(&p->unit[i].gather, tag_op), tag_list(&p->unit[i].cast, tag_op), tag_list(&p->unit[i].reduce, tag_op);
  }
  return tag_op;
}

/* When the stage may begin its first chunk: parameters of that one are awaited, those of later ones hide behind it. */
static MsTime before_passes(const MsCostedStep *step, MsTimeParts *part) {
  MsTime stream[MS_N_STREAMS] = {0};
  MsTime ready = list_end(&step->before, 0, step->before.list->n, 0, stream, part);
  memset(stream, 0, sizeof stream);
  const MsCosted *g = &step->gather;
  int n = 0;
  while (n < g->list->n && step->ops.gather_at[n].chunk == 0 &&
         step->ops.gather_at[n].piece == step->ops.gather_at[0].piece)
    n++;
  MsTime gather = list_end(g, 0, n, 0, stream, NULL);
  if (gather > ready) {
    part->exposed_comm_s += (double)(gather - ready) / MS_PS_PER_S;
    part->comm_exposed_s[MS_COMM_DP] += (double)(gather - ready) / MS_PS_PER_S;
  }
  comm_totals(g, part);
  return MAX(ready, gather);
}

/* When the stage comes to where all stages meet: reductions of the last chunk are exposed, earlier chunks' hide behind
 * the backward that follows. */
static MsTime to_the_meeting(const MsCostedStep *step, MsTime done, MsTimeParts *part) {
  MsTime stream[MS_N_STREAMS] = {0};
  const MsCosted *r = &step->reduce, *a = &step->after;
  int to = r->list->n, from = to; /* the bucket that ends last */
  while (from > 0 && step->ops.reduce_at[from - 1].chunk == 0 && step->ops.reduce_at[from - 1].piece == 0) from--;
  MsTime at = done + compute_before(r, from, part);
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = at;
  at = list_end(r, from, to, at, stream, part);
  comm_totals(r, part);
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = at;
  at = list_end(a, 0, crossing(a->list), at, stream, part);
  comm_totals(a, part);
  return at;
}

static MsTime after_the_meeting(const MsCostedStep *step, MsTime from, MsTimeParts *part) {
  MsTime stream[MS_N_STREAMS];
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = from;
  return list_end(&step->after, crossing(step->after.list), step->after.list->n, from, stream, part);
}

/* What is not in another part waited for other stages. */
static void close_parts(MsTimeParts *t, MsTime end) {
  double total = (double)end / MS_PS_PER_S, known = t->compute_s + t->exposed_comm_s + t->host_s + t->optimizer_s;
  t->bubble_s = MAX(0, total - known);
  double sum = known + t->bubble_s;
  if (sum > total) t->other_s = total - sum; /* rounding */
}

MsTime ms_fast_step(const MsProgram *p, const MsSchedule *schedule, MsTimeParts *stage, MsPasses *passes,
                    guint64 *events) {
  const MsLayout *l = p->layout;
  Fast f = {.p = p, .s = schedule, .chunk = g_new0(ChunkTime, l->num_chunks)};
  if (p->scenario->options.ep_overlap) {
    f.pair = g_new0(MsTime, (size_t)l->num_chunks * (size_t)l->vpp);
    f.pair_parts = g_new0(MsTimeParts, (size_t)l->num_chunks * (size_t)l->vpp);
  }
  g_autofree const MsOp **tag_op = tags_of(p);
  memset(stage, 0, (size_t)l->pp * sizeof *stage);
  costs_of_chunks(&f, tag_op, events);
  g_autofree MsTime *done = g_new0(MsTime, l->pp), *idle = g_new0(MsTime, l->pp), *came = g_new0(MsTime, l->pp);
  for (int s = 0; s < l->pp; s++) {
    done[s] = before_passes(&p->step[s], &stage[s]);
    passes[s].optimizer_s = (double)done[s] / MS_PS_PER_S;
  }
  run_slots(&f, done, idle, stage, passes);
  MsTime meet = 0, end = 0, period = 0;
  for (int s = 0; s < l->pp; s++) {
    came[s] = to_the_meeting(&p->step[s], done[s], &stage[s]);
    passes[s].optimizer_s += (double)(came[s] - done[s]) / MS_PS_PER_S;
    meet = MAX(meet, came[s]);
  }
  for (int s = 0; s < l->pp; s++) {
    MsTime from = p->skewed ? came[s] : meet, at = after_the_meeting(&p->step[s], from, &stage[s]);
    passes[s].optimizer_s += (double)(at - from) / MS_PS_PER_S;
    end = MAX(end, at);
    period = MAX(period, at - idle[s]);
  }
  if (p->skewed) end = period;
  for (int s = 0; s < l->pp; s++) close_parts(&stage[s], end);
  *events += (guint64)schedule->n[0] * (guint64)l->pp;
  g_free(f.pair), g_free(f.pair_parts);
  g_free(f.chunk);
  return end;
}
