/* src/sim/toll.c - what parameter gathers and gradient reductions take from the compute that they run beside.
 *
 * Let T(a) and T(b) be moments of one stage, and let its compute rows in between last `own` alone. Then T(b) - T(a) = own + R, where R is the time that the
 * stream waits plus what it loses to rows that take SMs. Of R at least `forced - own` is due to the rows of the slots themselves (MsForced). A collective that
 * must run for C seconds between T(a) and T(b) takes its share s of the SMs from compute for all but the seconds that it spends where the stream
 * waits; those count in full, which is more than s. So T(b) >= T(a) + forced + s (C - (forced - own)) for every a, and a lower bound of T(a) may stand
 * for it, since what ran before T(a) is at most T(a):
 *   - gathers: those that chunk c waits for have all run before its first forward;
 *   - reductions: those of chunks whose last backward comes after a run between a and the moment when all is done;
 *   - any: a stream that has rows runs them, so between the ends of two slots it runs for `forced` or until it has none left. That needs the host to have
 *     issued them; it issues in order, so where the first compute row of every list goes through the host none of the next slot runs before. */
#include "sim/lower.h"

typedef struct { MsTime at, forced, own; } Mark; /* after some of the slots: when the stream is free at the earliest, and sums */

enum { N_QUEUES = 2, MOST_ANCHORS = 24 };
static const MsStream queue_stream[N_QUEUES] = {MS_STREAM_DP, MS_STREAM_EDP};

typedef struct { Mark from; MsTime left[N_QUEUES], run[N_QUEUES]; } Anchor; /* a moment, and what the queues still have and have run since, at least */

struct MsToll {
  const MsCostedStep *step;
  int sm_count, chunks, n; /* marks; the first is before all slots */
  Mark *mark;
  int *first, *last;       /* [chunks] mark before the first forward and before the last backward of a chunk; -1 = not come yet */
  gboolean in_order;       /* collectives run as soon as their stream is free, and are issued before the compute rows of the next slot */
  MsTime gathers[N_QUEUES];
  int share[N_QUEUES];     /* fewest SMs that a row of the queue takes */
  Anchor anchor[MOST_ANCHORS];
  int n_anchors, ending;   /* ending: chunk whose last backward comes next, -1 = none */
};

static void note_sms(int most[MS_N_STREAMS], const MsCosted *c) {
  for (int i = 0; i < c->list->n; i++) most[c->list->op[i].stream] = MAX(most[c->list->op[i].stream], c->sms[i]);
}

/* The engine leaves compute a tenth of the SMs: below that, costs of rows at the same time add up. */
static gboolean costs_add_up(const MsProgram *p, int stage) {
  int most[MS_N_STREAMS] = {0}, sum = 0;
  for (int i = 0; i < p->work->n_pieces; i++) note_sms(most, &p->piece[i].forward), note_sms(most, &p->piece[i].backward);
  note_sms(most, &p->step[stage].gather), note_sms(most, &p->step[stage].reduce);
  for (int s = 0; s < MS_N_STREAMS; s++) sum += most[s];
  return 10 * sum <= 9 * p->scenario->hardware->sm_count;
}

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
      if (is_queued(&c->list->op[i]) && c->list->op[i].wait[j] >= 0 && c->list->op[c->list->op[i].wait[j]].stream != c->list->op[i].stream) return FALSE;
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
  if (!gathers_run_at_once(&p->step[stage].gather) || !reductions_run_after_compute(&p->step[stage].reduce)) return FALSE;
  if (p->scenario->hardware->kernel_launch_s <= 0) return TRUE; /* no host at all */
  for (int i = 0; i < p->work->n_pieces; i++)
    if (!opens_on_host(&p->piece[i].forward) || !opens_on_host(&p->piece[i].backward)) return FALSE;
  return TRUE;
}

static void fill_queues(MsToll *t) {
  for (int q = 0; q < N_QUEUES; q++) t->share[q] = t->sm_count;
  for (int k = 0; k < 2; k++) {
    const MsCosted *c = k ? &t->step->reduce : &t->step->gather;
    for (int i = 0; i < c->list->n; i++)
      for (int q = 0; q < N_QUEUES; q++) {
        if (c->list->op[i].stream != queue_stream[q]) continue;
        t->share[q] = MIN(t->share[q], c->sms[i]);
        if (k == 0) t->gathers[q] += c->duration[i];
      }
  }
}

/* From now on: what is left of the gathers, at least, and `more` of each queue. */
static void drop_anchor(MsToll *t, const MsTime more[N_QUEUES]) {
  if (!t->in_order || t->n_anchors == MOST_ANCHORS) return;
  Anchor a = {.from = t->mark[t->n - 1]};
  gboolean any = FALSE;
  for (int q = 0; q < N_QUEUES; q++) {
    a.left[q] = MAX(0, t->gathers[q] - a.from.at) + (more ? more[q] : 0);
    any |= a.left[q] > 0 && t->share[q] > 0;
  }
  if (any) t->anchor[t->n_anchors++] = a;
}

MsToll *ms_toll_new(const MsProgram *p, int stage, int slots, MsTime at) {
  const MsCostedStep *step = &p->step[stage];
  if (step->gather.list->n + step->reduce.list->n == 0 || p->scenario->hardware->sm_count <= 0 || !costs_add_up(p, stage)) return NULL;
  MsToll *t = g_new0(MsToll, 1);
  *t = (MsToll){.step = step, .sm_count = p->scenario->hardware->sm_count, .chunks = p->layout->vpp, .n = 1};
  t->mark = g_new(Mark, 2 * slots + 1); /* a forward with a backward may be two */
  t->mark[0] = (Mark){.at = at};
  t->first = g_new(int, 2 * t->chunks);
  t->last = t->first + t->chunks;
  for (int c = 0; c < 2 * t->chunks; c++) t->first[c] = -1;
  t->ending = -1;
  t->in_order = issues_in_order(p, stage);
  fill_queues(t);
  drop_anchor(t, NULL);
  return t;
}

void ms_toll_free(MsToll *t) {
  if (!t) return;
  g_free(t->mark);
  g_free(t->first);
  g_free(t);
}

void ms_toll_last(MsToll *t, int chunk) { t->last[chunk] = t->n - 1, t->ending = chunk; }

/* A slot later: what the queues have run since the anchor, and when the stream is free at the earliest. */
static MsTime advance(const MsToll *t, Anchor *a, const Mark *before, const Mark *now) {
  MsTime at = a->from.at + (now->forced - a->from.forced), waited = MAX(0, now->forced - now->own - (a->from.forced - a->from.own));
  for (int q = 0; q < N_QUEUES; q++) {
    MsTime run = MIN(a->left[q], now->forced - before->forced);
    a->left[q] -= run, a->run[q] += run;
    at += MAX(0, a->run[q] - waited) / t->sm_count * t->share[q];
  }
  return at;
}

static gboolean idle(const Anchor *a) {
  for (int q = 0; q < N_QUEUES; q++)
    if (a->left[q] > 0) return FALSE;
  return TRUE;
}

/* What the last backward of a chunk adds to the queues; returns the compute rows that come at the end of the slot (those within may fill its gaps). */
static MsTime reductions_of(const MsToll *t, int chunk, MsTime more[N_QUEUES]) {
  const MsCosted *r = &t->step->reduce;
  MsTime compute = 0;
  for (int q = 0; q < N_QUEUES; q++) more[q] = 0;
  for (int i = 0; i < r->list->n; i++) {
    if (t->step->ops.reduce_at[i].chunk != chunk) continue;
    if (r->list->op[i].stream == MS_STREAM_COMPUTE && t->step->ops.reduce_at[i].piece == 0) compute += r->duration[i];
    for (int q = 0; q < N_QUEUES; q++)
      if (r->list->op[i].stream == queue_stream[q]) more[q] += r->duration[i];
  }
  return compute;
}

MsTime ms_toll_slot(MsToll *t, MsTime at, MsTime forced, MsTime own) {
  const Mark *before = &t->mark[t->n - 1];
  MsTime more[N_QUEUES], extra = t->ending >= 0 ? reductions_of(t, t->ending, more) : 0;
  Mark now = {at + extra, before->forced + forced + extra, before->own + own + extra};
  int kept = 0;
  for (int i = 0; i < t->n_anchors; i++) {
    now.at = MAX(now.at, advance(t, &t->anchor[i], before, &now));
    if (!idle(&t->anchor[i])) t->anchor[kept++] = t->anchor[i];
  }
  t->n_anchors = kept;
  t->mark[t->n++] = now;
  for (int i = 0; t->ending >= 0 && i < t->n_anchors; i++)
    for (int q = 0; q < N_QUEUES; q++) t->anchor[i].left[q] += more[q];
  if (t->ending >= 0 || t->n == 2) drop_anchor(t, t->ending >= 0 ? more : NULL); /* mark 1: behind the wait for the first input */
  t->ending = -1;
  return now.at;
}

typedef struct { MsTime taken; int most; } Claim; /* of one stream: SMs times time, and the most SMs of a row */

static void claim(Claim *of, const MsCosted *c, int i) {
  Claim *k = &of[c->list->op[i].stream];
  k->taken += c->sms[i] * c->duration[i];
  k->most = MAX(k->most, c->sms[i]);
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
    if (t->step->ops.gather_at[i].chunk == chunk && t->step->ops.gather_at[i].piece == 0) last[g->list->op[i].stream] = i;
  for (int i = 0; i < g->list->n; i++)
    if (i <= last[g->list->op[i].stream]) claim(of, g, i);
}

static MsTime after_gathers(const MsToll *t, const Claim *of, int from) {
  const Mark *a = &t->mark[from], *now = &t->mark[t->n - 1];
  return a->at + (now->forced - a->forced) + lost(t, of, a->at + waited(a, now));
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

static int descending(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }

/* From before the last backward of each chunk; any moment since the one before is no better, for `at` grows by `forced` at least. */
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
      if (t->last[t->step->ops.reduce_at[i].chunk] == from[k]) claim(of, r, i);
    const Mark *a = &t->mark[from[k]];
    at = MAX(at, a->at + (end->forced - a->forced) + lost(t, of, waited(a, end)));
  }
  return at;
}
