/* src/bound/toll.c - what parameter gathers and gradient reductions take from the compute that they run beside.
 *
 * Let T(a) and T(b) be moments of one stage, and let its compute rows in between last `own` alone. Then T(b) - T(a) =
 * own + R, where R is the time that the stream waits plus what it loses to rows that take SMs. Of R at least `forced -
 * own` is due to the rows of the slots themselves (MsForced). A collective that must run for C seconds between T(a) and
 * T(b) takes its share s of the SMs from compute for all but the seconds that it spends where the stream waits; those
 * count in full, which is more than s. So T(b) >= T(a) + forced + s (C - (forced - own)) for every a, and a lower bound
 * of T(a) may stand for it, since what ran before T(a) is at most T(a):
 *   - gathers: those that chunk c waits for have all run before its first forward;
 *   - reductions: those of chunks whose last backward comes after a run between a and the moment when all is done;
 *   - any: a stream that has rows runs them, so between the ends of two slots it runs for as long as these take or
 * until it has none left. Of two queues that share the network one runs until all is sent, and both until one is empty.
 * That needs the host to have issued them; it issues in order, so where the first compute row of every list goes
 * through the host none of the next slot runs before.
 *
 * The network. Two queues of collectives, dense and expert, that have l(1) and l(2) seconds to send from a moment on
 * are served together until one is empty: while queue q sends x the other sends s(q) x at least, the parts of a NIC of
 * its rows over those of q's (fabric/meeting.h). Let G be what they have sent since. A slot whose own rows send for e
 * seconds takes F(k) when k queues are never empty meanwhile (MsForced.shared), and P = T - G grows by e at least, the
 * network being busy with one or the other. So at the end of the slot T' is at least the least of
 *   - both queues left: T + F(2);
 *   - one left, that of r: T + F(1) and P + e + l(q) + min(s(q) l(q), l(r));
 *   - none left: T + F(0) and P + e + l(1) + l(2).
 * All grow with T and P, so that these may be bounds from below themselves. A slot that waited for gathers, g <= l(q)
 * seconds of them in queue q, is not over before P + e + g + min(s(q) g, l(r)). A message is a slot that sends alone:
 * beside queue q it takes q's parts of a NIC over its own longer.
 *   In whatever order they are sent: from before the last backward of a chunk until its reductions, and all that are
 * issued later, have been sent, the network has all of them and the rows of the slots in between to send. */
#include "bound/bound_priv.h"
#include "base/order.h"
#include "step/meeting.h"
#include "step/reduce.h"
#include <string.h>

typedef struct {
  MsTime at, forced, own;
} Mark; /* after some of the slots: when the stream is free at the earliest, and sums */

enum { N_QUEUES = 2, MOST_ANCHORS = 24 };
static const MsStream queue_stream[N_QUEUES] = {MS_STREAM_DP, MS_STREAM_EDP};

typedef struct {
  Mark from;
  gboolean shares; /* the network: instead of the two, of some queue that runs, and of both together */
  MsTime left[N_QUEUES], run[N_QUEUES];
} Anchor; /* a moment, and what the queues still have and have run since, at least */

typedef struct {
  MsTime unsent, left[N_QUEUES];
  gboolean gathers;
} Rivals; /* P; l(1) and l(2) */

typedef struct {
  MsTime since, moves;
} Backlog; /* from before a last backward on: when it begins, and all that the network has to send */

typedef struct {
  gint64 num, den;
} Fraction;

struct MsToll {
  const MsCostedStep *step;
  Fraction counts; /* of the SMs that a row of the step's own takes, those that compute loses whatever else runs */
  int sm_count, chunks, n; /* marks; the first is before all slots */
  Mark *mark;
  int *first,
      *last; /* [chunks] mark before the first forward and before the last backward of a chunk; -1 = not come yet */
  gboolean in_order; /* collectives run as soon as their stream is free, and are issued before the compute rows of the
                        next slot */
  gboolean together; /* buckets of a chunk begin behind the same slot */
  MsTime gathers[N_QUEUES];
  int share[N_QUEUES]; /* fewest SMs that compute loses to a row of the queue */
  Anchor anchor[MOST_ANCHORS];
  gboolean network[N_QUEUES], meets; /* all rows of the queue go over the network, and share NICs alone; that they share
                                        the links of a fabric (step/meeting.h) */
  Fraction beside[N_QUEUES];         /* s: what the other queue sends at least while this one does, of that */
  Fraction slows[N_QUEUES];          /* what a message takes longer beside the queue */
  Rivals rivals[MOST_ANCHORS];
  int n_rivals, n_before; /* those that had begun before the last slot ended */
  Backlog *backlog;       /* [chunks] */
  int n_backlogs;
  MsTime sent;           /* all reductions that were issued until now are not sent before */
  MsTime scaled;         /* of ms_toll_scaled */
  MsTime least;          /* when the next slot is over at the earliest */
  int n_anchors, ending; /* chunk whose last backward comes next; -1 = none */
};

void ms_note_sms(int most[MS_N_STREAMS], const MsCosted *c) {
  for (int s = 0; s < MS_N_STREAMS; s++) most[s] = MAX(most[s], c->most_sms[s]);
}

static int most_of_pieces(const MsCostedPiece *piece, int n, int most[MS_N_STREAMS]) {
  for (int i = 0; i < n; i++) ms_note_sms(most, &piece[i].forward), ms_note_sms(most, &piece[i].backward);
  return ms_sum_sms(most);
}

gboolean ms_pieces_cross(const MsCostedPiece *piece, int n, int sm_count) {
  int most[MS_N_STREAMS] = {0}, sum = most_of_pieces(piece, n, most);
  return most[MS_STREAM_EP] > 0 && 10 * sum <= 9 * sm_count;
}

static int most_of_slots(const MsProgram *p, int stage, int most[MS_N_STREAMS]) {
  int from, to;
  ms_work_pieces_of(p->work, stage, &from, &to);
  return most_of_pieces(p->piece + from, to - from, most);
}

gboolean ms_slots_cross(const MsProgram *p, int stage) {
  int from, to;
  ms_work_pieces_of(p->work, stage, &from, &to);
  return ms_pieces_cross(p->piece + from, to - from, ms_program_machine_of(p, stage)->sm_count);
}

/* The engine leaves compute a tenth of the SMs: when rows of the slots take S, at most M, and those of the step R, at
 * most N, compute loses min(S + R, 9/10). That is at least S + g R with g = (9/10 - M) / N, at most 1: S + R where that
 * is less, and S + g R <= M + g N = 9/10. */
static Fraction share_of_rivals(const MsProgram *p, int stage) {
  int most[MS_N_STREAMS] = {0}, of_slots = most_of_slots(p, stage, most);
  ms_note_sms(most, &p->step[stage].gather), ms_note_sms(most, &p->step[stage].reduce);
  gint64 left = 9 * (gint64)ms_program_machine_of(p, stage)->sm_count - 10 * of_slots,
         others = 10 * (gint64)(ms_sum_sms(most) - of_slots);
  return left >= others ? (Fraction){1, 1} : (Fraction){MAX(left, 0), others};
}

static int lost_sms(Fraction of_rivals, int sms) { return (int)(sms * of_rivals.num / of_rivals.den); }

static gboolean opens_on_host(const MsCosted *c) {
  for (int i = 0; i < c->list->n; i++)
    if (c->list->op[i].stream == MS_STREAM_COMPUTE) return c->launch[i] > 0;
  return TRUE;
}

static gboolean is_queued(const MsOp *op) { return op->stream == queue_stream[0] || op->stream == queue_stream[1]; }

/* Gathers wait for nothing, so that they run from the start of the step on. */
static gboolean gathers_run_at_once(const MsCosted *c) {
  for (int i = 0; i < c->list->n; i++)
    for (int j = 0; j < 3; j++)
      if (is_queued(&c->list->op[i]) && c->list->op[i].wait[j] >= 0 &&
          c->list->op[c->list->op[i].wait[j]].stream != c->list->op[i].stream)
        return FALSE;
  return TRUE;
}

/* Reductions wait for compute rows of their own list, behind which the next slot comes on the compute stream. */
static gboolean reductions_run_after_compute(const MsCosted *c) {
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    gboolean waits = !is_queued(op);
    for (int j = 0; j < 3 && is_queued(op); j++) {
      const MsOp *w = op->wait[j] >= 0 ? &c->list->op[op->wait[j]] : NULL;
      if (w && w->stream != op->stream && w->stream != MS_STREAM_COMPUTE) return FALSE;
      waits |= w != NULL;
    }
    if (!waits) return FALSE;
  }
  return TRUE;
}

static gboolean issues_in_order(const MsProgram *p, int stage) {
  if (!gathers_run_at_once(&p->step[stage].gather) || !reductions_run_after_compute(&p->step[stage].reduce))
    return FALSE;
  if (ms_program_machine_of(p, stage)->kernel_launch_s <= 0) return TRUE; /* no host at all */
  int from, to;
  ms_work_pieces_of(p->work, stage, &from, &to);
  for (int i = from; i < to; i++)
    if (!opens_on_host(&p->piece[i].forward) || !opens_on_host(&p->piece[i].backward)) return FALSE;
  return TRUE;
}

/* Fewest and most parts of a NIC. */
typedef struct {
  int fewest, most;
} Parts;

static const Parts no_parts = {G_MAXINT, 0};

static void note_parts(Parts *parts, const MsProgram *p, const MsCosted *c, int i) {
  if (c->use[i] != MS_USE_LINK1) return;
  int own = ms_row_parts(p, &c->list->op[i]);
  *parts = (Parts){MIN(parts->fewest, own), MAX(parts->most, own)};
}

/* At least, of rows with some parts beside a row with others. */
static Fraction parts_beside(Parts others, Parts own) {
  if (own.most == 0 || others.most == 0) return (Fraction){1, 1};
  return (Fraction){others.fewest, own.most};
}

static void fill_queues(MsToll *t, const MsProgram *p) {
  Parts parts[N_QUEUES] = {no_parts, no_parts};
  for (int q = 0; q < N_QUEUES; q++) t->share[q] = t->sm_count, t->network[q] = TRUE;
  for (int k = 0; k < 2; k++) {
    const MsCosted *c = k ? &t->step->reduce : &t->step->gather;
    for (int i = 0; i < c->list->n; i++)
      for (int q = 0; q < N_QUEUES; q++) {
        if (c->list->op[i].stream != queue_stream[q]) continue;
        t->share[q] = MIN(t->share[q], lost_sms(t->counts, c->sms[i]));
        t->network[q] &= c->use[i] == MS_USE_LINK1 && !t->meets;
        note_parts(&parts[q], p, c, i);
        if (k == 0) t->gathers[q] += c->duration[i];
      }
  }
  int message = ms_row_parts(p, &p->p2p_op);
  for (int q = 0; q < N_QUEUES; q++) {
    t->beside[q] = parts_beside(parts[!q], parts[q]);
    t->slows[q] = parts_beside(parts[q], (Parts){message, message});
  }
}

/* What both queues send while one of them sends so much, at least. */
static MsTime sent_with(const MsToll *t, const MsTime left[N_QUEUES], int q, MsTime sent) {
  return sent + MIN(sent / t->beside[q].den * t->beside[q].num, left[!q]);
}

/* What they have sent when one of them is empty. */
static MsTime first_empty(const MsToll *t, const MsTime left[N_QUEUES]) {
  return MIN(sent_with(t, left, 0, left[0]), sent_with(t, left, 1, left[1]));
}

/* Fewest SMs that compute loses to what Anchor.left[q] is of. */
static int share_of(const MsToll *t, const Anchor *a, int q) {
  return !a->shares ? t->share[q] : q == 0 ? MIN(t->share[0], t->share[1]) : MAX(t->share[0], t->share[1]);
}

static void add_left(const MsToll *t, Anchor *a, const MsTime more[N_QUEUES]) {
  a->left[0] += a->shares ? more[0] + more[1] : more[0];
  a->left[1] += a->shares ? first_empty(t, more) : more[1];
}

static gint64 claims(const MsToll *t, const Anchor *a) {
  return share_of(t, a, 0) * a->left[0] + share_of(t, a, 1) * a->left[1];
}

/* From now on: what is left of the gathers, at least, and `more` of each queue. */
static void drop_anchor(MsToll *t, const MsTime more[N_QUEUES]) {
  if (!t->in_order || t->n_anchors == MOST_ANCHORS) return;
  Anchor a = {.from = t->mark[t->n - 1]}, shared = {.from = a.from, .shares = t->network[0] && t->network[1]};
  MsTime left[N_QUEUES];
  for (int q = 0; q < N_QUEUES; q++) left[q] = MAX(0, t->gathers[q] - a.from.at) + (more ? more[q] : 0);
  add_left(t, &a, left), add_left(t, &shared, left);
  if (claims(t, &shared) > claims(t, &a)) a = shared;
  if (claims(t, &a) > 0) t->anchor[t->n_anchors++] = a;
}

/* From `at` on the queues have what the last backward of a chunk issues at its end, or the gathers (chunk -1), which
 * began with the step; issuing takes the host a while. */
static void meet_rivals(MsToll *t, const MsCosted *c, int chunk, MsTime at) {
  Rivals r = {.unsent = chunk < 0 ? 0 : at, .gathers = chunk < 0};
  MsTime launches = 0;
  if (!t->in_order || t->n_rivals == MOST_ANCHORS) return;
  for (int i = 0; i < c->list->n; i++) {
    if (chunk >= 0 && (t->step->ops.reduce_at[i].chunk != chunk || t->step->ops.reduce_at[i].piece != 0)) continue;
    launches += c->launch[i];
    for (int q = 0; q < N_QUEUES; q++)
      if (c->list->op[i].stream == queue_stream[q] && t->network[q]) r.left[q] += c->duration[i];
  }
  for (int q = 0; q < N_QUEUES; q++) r.left[q] = MAX(0, r.left[q] - launches);
  if (r.left[0] + r.left[1] > 0) t->rivals[t->n_rivals++] = r;
}

MsToll *ms_toll_new(const MsProgram *p, int stage, int slots, MsTime at) {
  const MsCostedStep *step = &p->step[stage];
  if (step->gather.list->n + step->reduce.list->n == 0 || ms_program_machine_of(p, stage)->sm_count <= 0) return NULL;
  MsToll *t = g_new(MsToll, 1);
  *t = (MsToll){.step = step,
                .counts = share_of_rivals(p, stage),
                .sm_count = ms_program_machine_of(p, stage)->sm_count,
                .chunks = p->layout->vpp,
                .meets = ms_program_meets(p->scenario),
                .together = !ms_reduces_in_passes(p, stage),
                .n = 1};
  t->mark = g_new(Mark, 2 * slots + 1); /* a forward with a backward may be two */
  t->mark[0] = (Mark){.at = at};
  t->first = g_new(int, 2 * t->chunks);
  t->last = t->first + t->chunks;
  for (int c = 0; c < 2 * t->chunks; c++) t->first[c] = -1;
  t->backlog = g_new(Backlog, t->chunks);
  t->ending = -1;
  t->in_order = issues_in_order(p, stage);
  fill_queues(t, p);
  drop_anchor(t, NULL);
  meet_rivals(t, &step->gather, -1, at);
  return t;
}

void ms_toll_free(MsToll *t) {
  if (!t) return;
  g_free(t->mark);
  g_free(t->first);
  g_free(t->backlog);
  g_free(t);
}

void ms_toll_not_before(MsToll *t, MsTime at) { t->least = MAX(t->least, at); }

void ms_toll_last(MsToll *t, int chunk) { t->last[chunk] = t->n - 1, t->ending = chunk; }

/* What a slot takes beside the queues, which run for as long: the more they take, the longer. */
static MsTime lasts(const MsToll *t, const Anchor *a, const Mark *before, const Mark *now) {
  MsTime forced = now->forced - before->forced, waits = MAX(0, forced - (now->own - before->own)), time = forced,
         last = 0;
  while (time - last > time >> 10) {
    last = time, time = forced;
    for (int q = 0; q < N_QUEUES; q++) time += MAX(0, MIN(a->left[q], last) - waits) / t->sm_count * share_of(t, a, q);
  }
  return time;
}

/* A slot later: what the queues have run since the anchor, and when the stream is free at the earliest. */
static MsTime advance(const MsToll *t, Anchor *a, const Mark *before, const Mark *now) {
  MsTime at = a->from.at + (now->forced - a->from.forced),
         waited = MAX(0, now->forced - now->own - (a->from.forced - a->from.own));
  MsTime time = lasts(t, a, before, now);
  for (int q = 0; q < N_QUEUES; q++) {
    MsTime run = MIN(a->left[q], time);
    a->left[q] -= run, a->run[q] += run;
    at += MAX(0, a->run[q] - waited) / t->sm_count * share_of(t, a, q);
  }
  return at;
}

MsNeed ms_need_of(const MsForced *f) {
  MsNeed need = {.own = f->own, .network = f->network, .cross = f->cross};
  memcpy(need.opens, f->opens, sizeof need.opens);
  need.forced = MAX(f->own, f->lags.to[MS_END_COMPUTE][MS_END_COMPUTE]);
  memcpy(need.shared, f->shared, sizeof need.shared);
  return need;
}

/* The same from when the slot starts, if it waits for its input: until then the queues run on. */
static MsTime go_on(const MsToll *t, Anchor *a, const Mark *before, const Mark *now, MsTime starts) {
  Anchor moved = {.from = {starts, before->forced, before->own}, .shares = a->shares};
  for (int q = 0; q < N_QUEUES; q++) moved.left[q] = MAX(0, a->left[q] + a->run[q] - (starts - a->from.at));
  MsTime at = advance(t, a, before, now), later = starts > before->at ? advance(t, &moved, before, now) : 0;
  if (later <= at) return at;
  *a = moved;
  return later;
}

/* When the first compute row of a slot may start. */
static MsTime starts_at(const MsNeed *need, const MsTime ends[MS_N_ENDS]) {
  MsTime at = ends[MS_END_COMPUTE];
  for (int end = MS_END_ENTRY; end <= MS_END_BESIDE; end++)
    if (need->opens[end] != MS_NEVER) at = MAX(at, ends[end] + need->opens[end]);
  return at;
}

/* When an end of a slot is there if k + 1 rivals are under way all the time. What the slot waits for may have been
 * there before them: then they count from `from` on. */
static MsTime beside_rivals(const MsLags *shared, int end, MsTime from, const MsTime before[MS_N_ENDS]) {
  MsTime at = from + shared->to[end][MS_END_COMPUTE];
  for (int source = MS_END_ENTRY; source <= MS_END_BESIDE; source++)
    if (before[source] > from)
      at = MAX(at, before[source] + MIN(shared->to[end][source], shared->to[end][MS_END_COMPUTE]));
  return at;
}

/* A slot later; `alone`: what is there after it if nobody sends beside it; raises `after`. */
static void meet(const MsToll *t, Rivals *r, MsTime from, const MsNeed *need, const MsTime before[MS_N_ENDS],
                 const MsTime alone[MS_N_ENDS], MsTime after[MS_N_ENDS]) {
  MsTime one_empty = first_empty(t, r->left);
  for (int end = MS_END_ENTRY; end <= MS_END_COMPUTE; end++) {
    MsTime unsent = r->unsent + (end == MS_END_COMPUTE ? need->network : 0);
    MsTime none = MAX(alone[end], unsent + r->left[0] + r->left[1]),
           one = MAX(alone[end], MAX(beside_rivals(&need->shared[0], end, from, before), unsent + one_empty));
    MsTime both = MIN(r->left[0], r->left[1]) > 0 ? beside_rivals(&need->shared[1], end, from, before) : one;
    after[end] = MAX(after[end], MIN(none, MIN(one, both)));
  }
  r->unsent += need->network;
}

/* The stream is not free for what waits for gathers of a chunk, up to one piece of it, before these and all ahead of
 * them have been sent. */
static MsTime after_sending(const MsToll *t, const Rivals *r, int chunk, int last_piece) {
  const MsCosted *g = &t->step->gather;
  MsTime sum[N_QUEUES] = {0}, until[N_QUEUES] = {0}, launches = 0;
  if (!r->gathers) return 0;
  for (int i = 0; i < g->list->n; i++) {
    const MsBucket *at = &t->step->ops.gather_at[i];
    launches += g->launch[i];
    for (int q = 0; q < N_QUEUES; q++) {
      if (g->list->op[i].stream != queue_stream[q] || !t->network[q]) continue;
      sum[q] += g->duration[i];
      if (at->chunk == chunk && at->piece <= last_piece) until[q] = sum[q];
    }
  }
  MsTime sent = 0;
  for (int q = 0; q < N_QUEUES; q++)
    sent = MAX(sent, sent_with(t, r->left, q, CLAMP(until[q] - launches, 0, r->left[q])));
  return sent > 0 ? r->unsent + sent : 0;
}

MsTime ms_toll_scaled(const MsToll *t) { return t->scaled; }

static MsTime slowed(const MsToll *t, int q, MsTime message) { return message / t->slows[q].den * t->slows[q].num; }

/* Beside one rival, which was under way before it left. */
static MsTime message_beside(const MsToll *t, const Rivals *r, MsTime from, MsTime message) {
  MsTime there = MAX(from + message, r->unsent + message + r->left[0] + r->left[1]), both = from + message;
  for (int q = 0; q < N_QUEUES; q++) {
    MsTime own = r->left[q] > 0 ? slowed(t, q, message) : 0, one = from + message + own;
    both += own;
    there = MIN(there, MAX(one, r->unsent + message + sent_with(t, r->left, !q, r->left[!q])));
  }
  return MIN(there, both);
}

MsTime ms_toll_message(const MsToll *t, MsTime from, MsTime message, gboolean behind) {
  MsTime there = from + message;
  for (int i = 0; i < (behind ? t->n_rivals : t->n_before); i++) {
    MsTime own = message_beside(t, &t->rivals[i], from, message);
    there = MAX(there, own);
  }
  return there - from - message;
}

static gboolean all_sent(const Rivals *r, MsTime at) { return r->unsent + r->left[0] + r->left[1] <= at; }

static gboolean idle(const Anchor *a) {
  for (int q = 0; q < N_QUEUES; q++)
    if (a->left[q] > 0) return FALSE;
  return TRUE;
}

/* What the last backward of a chunk adds to the queues; returns the compute rows that come at the end of the slot
 * (those within may fill its gaps). */
static MsTime reductions_of(const MsToll *t, int chunk, MsTime more[N_QUEUES]) {
  const MsCosted *r = &t->step->reduce;
  MsTime compute = 0;
  for (int q = 0; q < N_QUEUES; q++) more[q] = 0;
  for (int i = 0; i < r->list->n; i++) {
    if (t->step->ops.reduce_at[i].chunk != chunk) continue;
    if (r->list->op[i].stream == MS_STREAM_COMPUTE && (t->together || t->step->ops.reduce_at[i].piece == 0))
      compute += r->duration[i];
    for (int q = 0; q < N_QUEUES; q++)
      if (r->list->op[i].stream == queue_stream[q]) more[q] += r->duration[i];
  }
  return compute;
}

static void meet_all(MsToll *t, const MsNeed *need, const MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]) {
  MsTime alone[MS_N_ENDS];
  int unsent = 0;
  memcpy(alone, after, sizeof alone);
  for (int i = 0; i < t->n_rivals; i++) {
    Rivals *r = &t->rivals[i];
    meet(t, r, before[MS_END_COMPUTE], need, before, alone, after);
    if (!all_sent(r, after[MS_END_COMPUTE])) t->rivals[unsent++] = *r;
  }
  t->n_rivals = unsent;
}

static void back_up(MsToll *t, MsTime moves) {
  for (int i = 0; i < t->n_backlogs; i++) t->backlog[i].moves += moves;
}

/* `more` of each queue, none of which is issued before `since`, or before the rows of a slot that sends so long. */
static void issue(MsToll *t, const MsTime more[N_QUEUES], MsTime since, MsTime network) {
  MsTime moves = 0;
  for (int q = 0; q < N_QUEUES; q++) moves += t->network[q] ? more[q] : 0;
  t->backlog[t->n_backlogs++] = (Backlog){since, 0};
  back_up(t, moves + network);
  for (int i = 0; i < t->n_backlogs && moves > 0; i++)
    t->sent = MAX(t->sent, t->backlog[i].since + t->backlog[i].moves);
}

/* Nothing of the step is under way, or begins with the slot. */
static gboolean is_quiet(const MsToll *t) {
  return t->n_anchors + t->n_rivals + t->n_backlogs == 0 && t->ending < 0 && t->n > 1;
}

void ms_toll_slot(MsToll *t, const MsNeed *need, const MsTime ends[MS_N_ENDS], MsTime after[MS_N_ENDS]) {
  const Mark *before = &t->mark[t->n - 1];
  after[MS_END_COMPUTE] = MAX(after[MS_END_COMPUTE], t->least);
  t->n_before = 0, t->scaled = 0;
  if (is_quiet(t)) {
    t->mark[t->n++] = (Mark){after[MS_END_COMPUTE], before->forced + need->forced, before->own + need->own};
    return;
  }
  MsTime more[N_QUEUES], extra = t->ending >= 0 ? reductions_of(t, t->ending, more) : 0;
  meet_all(t, need, ends, after);
  gboolean within = t->ending >= 0 && !t->together;
  if (within) issue(t, more, before->at, need->network);
  else back_up(t, need->network);
  Mark now = {after[MS_END_COMPUTE] + extra, before->forced + need->forced + extra, before->own + need->own + extra};
  MsTime starts = starts_at(need, ends);
  int kept = 0;
  for (int i = 0; i < t->n_anchors; i++) {
    MsTime free = go_on(t, &t->anchor[i], before, &now, starts);
    now.at = MAX(now.at, free);
    if (!idle(&t->anchor[i])) t->anchor[kept++] = t->anchor[i];
  }
  t->n_anchors = kept;
  t->mark[t->n++] = now;
  t->n_before = t->n_rivals, t->scaled = extra > 0 ? now.at : 0;
  for (int i = 0; t->ending >= 0 && i < t->n_anchors; i++) add_left(t, &t->anchor[i], more);
  if (t->ending >= 0 || t->n == 2)
    drop_anchor(t, t->ending >= 0 ? more : NULL); /* mark 1: behind the wait for the first input */
  if (t->ending >= 0 && t->together) issue(t, more, now.at - extra, 0); /* the first behind its own kernels */
  if (t->ending >= 0) meet_rivals(t, &t->step->reduce, t->ending, now.at);
  t->ending = -1;
  after[MS_END_COMPUTE] = now.at;
}

void ms_toll_tell(MsToll *t, MsCycle *c) {
  Mark *now = &t->mark[t->n - 1];
  ms_cycle_same(c, t->n_anchors + t->n_rivals + t->n_backlogs > 0 ? t->n : -1); /* marks are never as many again */
  ms_cycle_moments(c, &now->at, 1);
  ms_cycle_sum(c, &now->forced), ms_cycle_sum(c, &now->own);
}

typedef struct {
  MsTime taken;
  int most;
} Claim; /* of one stream: SMs times time, and the most SMs of a row */

static void claim(const MsToll *t, Claim *of, const MsCosted *c, int i) {
  Claim *k = &of[c->list->op[i].stream];
  int sms = lost_sms(t->counts, c->sms[i]);
  k->taken += sms * c->duration[i];
  k->most = MAX(k->most, sms);
}

/* Seconds lost, when each stream may spend `free` of its time where nothing is computed. */
static MsTime lost(const MsToll *t, const Claim *of, MsTime free) {
  MsTime sum = 0;
  for (int s = 0; s < MS_N_STREAMS; s++)
    if (s != MS_STREAM_COMPUTE) sum += MAX(0, of[s].taken - of[s].most * free) / t->sm_count;
  return sum;
}

static MsTime waited(const Mark *a, const Mark *b) { return MAX(0, b->forced - b->own - (a->forced - a->own)); }

/* The rows of each stream up to the last one that the first piece of the chunk waits for. */
static void claim_gathers(const MsToll *t, int chunk, Claim *of) {
  const MsCosted *g = &t->step->gather;
  int last[MS_N_STREAMS];
  for (int s = 0; s < MS_N_STREAMS; s++) last[s] = -1;
  for (int i = 0; i < g->list->n; i++)
    if (t->step->ops.gather_at[i].chunk == chunk && t->step->ops.gather_at[i].piece == 0)
      last[g->list->op[i].stream] = i;
  for (int i = 0; i < g->list->n; i++)
    if (i <= last[g->list->op[i].stream]) claim(t, of, g, i);
}

static MsTime after_gathers(const MsToll *t, const Claim *of, int from) {
  const Mark *a = &t->mark[from], *now = &t->mark[t->n - 1];
  return a->at + (now->forced - a->forced) + lost(t, of, a->at + waited(a, now));
}

MsTime ms_toll_brought(const MsToll *t, int chunk, int piece) {
  MsTime there = 0;
  for (int i = 0; i < t->n_rivals; i++) {
    MsTime own = after_sending(t, &t->rivals[i], chunk, piece);
    there = MAX(there, own);
  }
  return there;
}

/* From the beginning, from behind the wait for the first input, and from the first forwards of the chunks before. */
MsTime ms_toll_gathered(MsToll *t, int chunk) {
  Claim of[MS_N_STREAMS] = {{0}};
  claim_gathers(t, chunk, of);
  MsTime at = after_gathers(t, of, 0);
  if (t->n > 1) at = MAX(at, after_gathers(t, of, 1));
  t->first[chunk] = t->n - 1;
  for (int c = 0; c < t->chunks; c++)
    if (t->first[c] >= 0) at = MAX(at, after_gathers(t, of, t->first[c]));
  drop_anchor(t, NULL);
  return at;
}

void ms_toll_behind(MsToll *t, int chunk, MsTime since) {
  MsTime more[N_QUEUES];
  ms_toll_last(t, chunk);
  reductions_of(t, chunk, more);
  issue(t, more, t->in_order ? MAX(since, t->mark[t->n - 1].at) : since, 0);
}

MsTime ms_toll_sent(const MsToll *t) { return t->sent; }

MS_ORDER(descending, int, MS_MORE(*x, *y), 0)

/* From before the last backward of each chunk; any moment since the one before is no better, for `at` grows by `forced`
 * at least. */
MsTime ms_toll_joined(const MsToll *t) {
  const MsCosted *r = &t->step->reduce;
  const Mark *end = &t->mark[t->n - 1];
  Claim of[MS_N_STREAMS] = {{0}};
  MsTime at = end->at;
  g_autofree int *from = g_memdup2(t->last, sizeof *t->last * (gsize)t->chunks);
  qsort(from, (size_t)t->chunks, sizeof *from, descending);
  for (int k = 0; k < t->chunks && from[k] >= 0; k++) { /* from the end back: more and more reductions lie between */
    if (k > 0 && from[k] == from[k - 1]) continue;
    for (int i = 0; i < r->list->n; i++)
      if (t->last[t->step->ops.reduce_at[i].chunk] == from[k]) claim(t, of, r, i);
    const Mark *a = &t->mark[from[k]];
    at = MAX(at, a->at + (end->forced - a->forced) + lost(t, of, waited(a, end)));
  }
  return at;
}

/* --- from the end back --- */

struct MsTollBack {
  MsToll *toll;
  Claim of[MS_N_STREAMS];
  MsTime forced, own;
};

MsTollBack *ms_toll_back_new(const MsProgram *p, int stage) {
  MsToll *toll = p->step[stage].reduce.list->n > 0 ? ms_toll_new(p, stage, 0, 0) : NULL;
  MsTollBack *b = toll ? g_new0(MsTollBack, 1) : NULL;
  if (b) b->toll = toll;
  return b;
}

void ms_toll_back_free(MsTollBack *b) {
  if (b) ms_toll_free(b->toll);
  g_free(b);
}

MsTime ms_toll_back_slot(MsTollBack *b, const MsNeed *need, int ending) {
  const MsCosted *r = &b->toll->step->reduce;
  MsTime more[N_QUEUES], extra = ending >= 0 ? reductions_of(b->toll, ending, more) : 0;
  for (int i = 0; ending >= 0 && i < r->list->n; i++)
    if (b->toll->step->ops.reduce_at[i].chunk == ending) claim(b->toll, b->of, r, i);
  b->forced += need->forced + extra, b->own += need->own + extra;
  return b->forced + lost(b->toll, b->of, MAX(0, b->forced - b->own));
}

static Parts parts_of_slots(const MsProgram *p) {
  Parts parts = no_parts;
  for (int i = 0; i < p->work->n_pieces; i++)
    for (int k = 0; k < 2; k++) {
      const MsCosted *c = k ? &p->piece[i].backward : &p->piece[i].forward;
      for (int j = 0; j < c->list->n; j++) note_parts(&parts, p, c, j);
    }
  return parts;
}

gboolean ms_toll_rivals(const MsProgram *p, MsRivalsMet *met) {
  int least[N_QUEUES] = {G_MAXINT, G_MAXINT};
  Parts parts = no_parts;
  for (int s = 0; s < p->layout->pp; s++) {
    Fraction counts = share_of_rivals(p, s);
    for (int k = 0; k < 2; k++) {
      const MsCosted *c = k ? &p->step[s].reduce : &p->step[s].gather;
      for (int i = 0; i < c->list->n; i++)
        for (int q = 0; q < N_QUEUES; q++)
          if (c->list->op[i].stream == queue_stream[q] && c->use[i] == MS_USE_LINK1)
            least[q] = MIN(least[q], lost_sms(counts, c->sms[i])), note_parts(&parts, p, c, i);
    }
  }
  if (MIN(least[0], least[1]) == G_MAXINT) return FALSE;
  Fraction beside = parts_beside(parts, parts_of_slots(p));
  *met = (MsRivalsMet){.parts = (int)MIN(beside.num, beside.den), .of = (int)beside.den};
  met->sms[0] = MIN(least[0], least[1]);
  met->sms[1] = MAX(least[0], least[1]) < G_MAXINT ? least[0] + least[1] : met->sms[0];
  return TRUE;
}
