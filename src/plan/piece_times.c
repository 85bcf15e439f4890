/* src/plan/piece_times.c - what one piece adds to the bound of its stage, however the slots fall.
 *
 * Slots follow one another on the compute stream, so from the first compute row of a stage to its last pass at least
 * the sums of direct: each piece from its first compute row to its last, and line:   each piece from its input to its
 * output, less what the first piece of a slot may have done before the stream was free for it (`start`, `end`: by the
 * piece at the start and at the end of a chunk; a backward begins at its end) and what the last one has left when the
 * stream is free again. With EP overlap a layer's forward may run beside a layer's backward, in less than the two take
 * alone. Then the time of both passes is shared out between them so that no pair which could meet takes less than its
 * two shares, and no pass alone less than its own (the dual of assigning passes to slots); what turns cost one another
 * is shared out before (bound/turns.h). */
#include "plan/piece_times_priv.h"
#include "base/order.h"
#include "bound/turns.h"
#include <string.h>

static MsTime lag(const MsLags *l, MsEnd to, MsEnd from) { return l->to[to][from]; }
static MsTime span(const MsLags *l) { return MAX(0, lag(l, MS_END_COMPUTE, MS_END_COMPUTE)); }
static MsTime line_of(const MsLags *l) { return MAX(0, lag(l, MS_END_ENTRY, MS_END_ENTRY)); }
static MsTime span_of_pass(MsPieceLags *lags, MsSlotKind kind, int piece) {
  return span(ms_piece_lags_pass(lags, kind, piece, MS_FROM_COMPUTE));
}
static MsTime span_of_pair(MsPieceLags *lags, int forward, int backward) {
  return span(ms_piece_lags_pair(lags, forward, backward, MS_FROM_COMPUTE));
}

/* --- slots of one pass after another --- */

static void line_of_pass(const MsLags *l, MsTime *line, MsTime *first, MsTime *last) {
  *line = line_of(l);
  *first = MAX(0, *line - MAX(0, lag(l, MS_END_ENTRY, MS_END_COMPUTE)));
  *last = MAX(0, MAX(*line - MAX(0, lag(l, MS_END_COMPUTE, MS_END_ENTRY)),
                     *line - *first - span(l))); /* a piece that is both counts its span at most */
}

/* `later`: weight gradients may wait. */
static void alone(MsPieceLags *lags, int piece, MsSlotKind backward, gboolean later, MsPieceTime *t) {
  const guint ends = MS_FROM_ENTRY | MS_FROM_COMPUTE;
  const MsLags *f = ms_piece_lags_pass(lags, MS_SLOT_F, piece, ends),
               *b = ms_piece_lags_pass(lags, backward, piece, ends);
  MsTime f_line, f_first, f_last, b_line, b_first, b_last;
  line_of_pass(f, &f_line, &f_first, &f_last);
  line_of_pass(b, &b_line, &b_first, &b_last);
  t->direct = span(f) + span(b);
  t->line = t->ahead = f_line + b_line;
  t->passage = f_line + (later ? MIN(b_line, line_of(ms_piece_lags_pass(lags, MS_SLOT_I, piece, ends))) : b_line);
  t->start = f_first + b_last, t->end = f_last + b_first;
  t->late = ms_bound_late(lags, piece);
}

/* --- passes that are split, or run in pairs: no line, only what holds of every order --- */

typedef struct { /* what passes and pairs take of the stream: from their first compute row to their last, or what they
                  * add to their stage among other turns */
  MsPieceLags *lags;
  const MsCostedPiece *piece;
  gboolean splits;
  const MsTurns *turns; /* NULL: spans */
} Taken;

static MsTime by_pass(const Taken *t, MsSlotKind kind, int piece) {
  return t->turns ? ms_turns_pass(t->turns, kind, piece) : span_of_pass(t->lags, kind, piece);
}

static MsTime whole_or_split(const Taken *t, int piece, gboolean left) {
  if (left) return by_pass(t, MS_SLOT_I, piece);
  MsTime whole = by_pass(t, MS_SLOT_B, piece);
  if (!t->splits) return whole;
  return MIN(whole, by_pass(t, MS_SLOT_I, piece) + by_pass(t, MS_SLOT_W, piece));
}

enum {
  RARE = 16
}; /* kinds that less than one layer in so many is of: of their pairs only the compute rows count, which are known */

typedef struct {
  int piece, layers;
  gboolean rare;
  MsTime forward, backward; /* of a pair */
  MsTime lone[2];           /* alone: what more they take */
} Share;

MS_ORDER(most_layers, Share, MS_MORE(x->layers, y->layers), MS_LESS(x->piece, y->piece))

static gboolean only_rows(const Share *f, const Share *b) { return f->rare || b->rare; }

static MsTime together(const Taken *t, const Share *f, const Share *b) {
  if (only_rows(f, b))
    return t->piece[f->piece].forward.compute + t->piece[b->piece].backward.compute +
           (t->turns ? ms_turns_other(t->turns) : 0);
  return t->turns ? ms_turns_pair(t->turns, f->piece, b->piece) : span_of_pair(t->lags, f->piece, b->piece);
}

/* The kind of layer that there is most of gets all of the time of its own pairs; every other what the ones before it
 * leave. */
static void share_out(const Taken *t, Share *share, int n) {
  for (int i = 0; i < n; i++) {
    Share *s = &share[i];
    MsTime own = together(t, s, s);
    s->forward = s->lone[0] = by_pass(t, MS_SLOT_F, s->piece);
    s->backward = s->lone[1] = whole_or_split(t, s->piece, FALSE);
    for (int j = 0; j < i; j++) {
      s->forward = MIN(s->forward, together(t, s, &share[j]) - share[j].backward);
      s->backward = MIN(s->backward, together(t, &share[j], s) - share[j].forward);
    }
    MsTime over = MAX(0, s->forward + s->backward - own);
    double forward = MAX(0, (double)s->forward), both = forward + MAX(0, (double)s->backward);
    MsTime from_forward = (MsTime)((double)over * (both > 0 ? forward / both : 0.5));
    s->forward -= from_forward, s->backward -= over - from_forward;
    s->lone[0] -= s->forward, s->lone[1] -= s->backward;
  }
}

int *ms_pieces_of_model(const MsWork *w) {
  const MsModel *model = w->scenario->model;
  int *count = g_new0(int, MAX(w->n_pieces, 1));
  for (int i = 0; i < model->num_layers; i++) count[w->piece_of_layer[i]]++;
  if (w->piece_embedding >= 0) count[w->piece_embedding]++;
  if (w->piece_head >= 0) count[w->piece_head]++;
  for (int i = 0; i < model->mtp_num_layers && w->piece_mtp >= 0; i++) count[ms_work_mtp_piece(w, i)]++;
  return count;
}

/* Kinds of layers of one pool, from piece `first` on, those that there are most of first. Returns how many. */
static int kinds_of(const MsWork *w, int first, Share *share) {
  int n = 0;
  g_autofree int *count = ms_pieces_of_model(w);
  for (int i = 0; i < w->pool_pieces; i++)
    if (ms_work_is_unit(&w->pieces[i])) share[n++] = (Share){.piece = first + i, .layers = count[i]};
  qsort(share, (size_t)n, sizeof *share, most_layers);
  for (int i = 1; i < n; i++) share[i].rare = share[i].layers * RARE < w->scenario->model->num_layers;
  return n;
}

static void take_share(MsPieceTime *t, const Share *share) {
  t->direct = share->forward + share->backward;
  memcpy(t->lone, share->lone, sizeof t->lone);
}

static void in_pairs(const MsWork *w, const Taken *spans, int first, MsPieceTime *time) {
  g_autofree Share *share = g_new0(Share, MAX(w->n_pieces, 1));
  int n = kinds_of(w, first, share);
  share_out(spans, share, n);
  for (int i = 0; i < n; i++) {
    MsPieceTime *t = &time[share[i].piece];
    t->usual = MIN(
        t->usual,
        span_of_pair(spans->lags, share[i].piece,
                     share[i].piece)); /* a rare kind too: an MTP block hides less of its exchanges than a layer does */
    take_share(t, &share[i]);
    if (!share[i].rare) t->usual = t->direct;
  }
}

double ms_piece_times_sum(const MsPieceTime *time, const int *count, int n, gboolean of_host) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += count[i] * (double)(of_host ? time[i].issue : time[i].direct);
  return sum;
}

/* The same with what turns cost one another, if that is more. Returns what comes off once. */
static MsTime among_turns(const MsWork *w, const Taken *spans, MsPieceTime *time) {
  g_autofree Share *share = g_new0(Share, MAX(w->n_pieces, 1));
  int n = kinds_of(w, 0, share), n_pairs = 0;
  g_autofree MsPair *pair = g_new(MsPair, n * n + 1);
  for (int i = 0; i < n * n; i++)
    if (!only_rows(&share[i / n], &share[i % n])) pair[n_pairs++] = (MsPair){share[i / n].piece, share[i % n].piece};
  g_autoptr(MsTurns) turns = ms_turns_new(w, spans->piece, spans->lags, spans->splits, pair, n_pairs);
  if (!turns) return 0;
  Taken taken = *spans;
  taken.turns = turns;
  share_out(&taken, share, n);
  g_autofree MsPieceTime *own = g_memdup2(time, sizeof *time * (gsize)w->n_pieces);
  for (int i = 0; i < w->n_pieces; i++)
    own[i].direct = by_pass(&taken, MS_SLOT_F, i) + whole_or_split(&taken, i, ms_work_may_defer(w, i));
  for (int i = 0; i < n; i++) take_share(&own[share[i].piece], &share[i]);
  g_autofree int *count = ms_pieces_of_model(w);
  if (ms_piece_times_sum(own, count, w->n_pieces, FALSE) <= ms_piece_times_sum(time, count, w->n_pieces, FALSE))
    return 0;
  memcpy(time, own, sizeof *time * (gsize)w->n_pieces);
  return ms_turns_ends(turns);
}

static gboolean host_waits(const MsCosted *c) {
  for (int i = 0; i < c->list->n; i++)
    if (c->list->op[i].flags & MS_OPF_SYNC) return TRUE;
  return FALSE;
}

/* Where the host takes this share of what the device takes for a pass, or more, they are asked what each waits for the
 * other. */
#define CLOSE 0.75

static MsPassPace pace_alone(const MsCosted *c, MsPieceLags *lags, MsSlotKind kind, int piece) {
  return (MsPassPace){.device = span_of_pass(lags, kind, piece),
                      .host = ms_costed_issue(c, kind == MS_SLOT_I ? MS_LIST_INPUT : MS_LIST_ALL),
                      .early = MS_NEVER_EARLY};
}

static gboolean is_close(const MsPassPace *p) { return (double)p->host >= CLOSE * (double)p->device; }

static void tell_waits(MsPieceLags *lags, MsSlotKind kind, int piece, MsPassPace *p) {
  const MsLags *l = ms_piece_lags_pass(lags, kind, piece, MS_FROM_COMPUTE | MS_FROM_HOST);
  MsTime ready = lag(l, MS_END_HOST, MS_END_COMPUTE);
  p->host = MAX(p->host, lag(l, MS_END_HOST, MS_END_HOST));
  if (ready > 0) p->host = MAX(p->host, p->device), p->early = p->host - ready;
  p->late = MAX(0, lag(l, MS_END_COMPUTE, MS_END_HOST) - MAX(p->device, p->host));
}

/* Beside another pass: a third of both is the forward's. */
static void share_pace(const MsCostedPiece *piece, MsPieceTime *t) {
  MsTime host = ms_costed_issue(&piece->forward, MS_LIST_ALL) + ms_costed_issue(&piece->backward, MS_LIST_ALL);
  if (host_waits(&piece->forward) || host_waits(&piece->backward)) t->usual = host = MAX(t->usual, host);
  for (int back = 0; back < 2; back++)
    t->pace[back] =
        (MsPassPace){.device = (1 + back) * t->usual / 3, .host = (1 + back) * host / 3, .early = MS_NEVER_EARLY};
}

/* A host that waits for the device in a pass neither runs ahead of it nor falls behind. */
static void pace_of(const MsCostedPiece *piece, MsPieceLags *lags, int i, MsSlotKind backward, MsPieceTime *t) {
  const MsSlotKind kind[2] = {MS_SLOT_F, backward};
  t->pace[0] = pace_alone(&piece->forward, lags, MS_SLOT_F, i);
  t->pace[1] = pace_alone(&piece->backward, lags, backward, i);
  gboolean close = is_close(&t->pace[0]) || is_close(&t->pace[1]);
  for (int k = 0; close && k < 2; k++) tell_waits(lags, kind[k], i, &t->pace[k]);
  MsTime each[2];
  for (int k = 0; k < 2; k++) each[k] = MAX(t->pace[k].device, t->pace[k].host);
  if (host_waits(&piece->forward) || host_waits(&piece->backward)) t->usual = MAX(t->usual, each[0] + each[1]);
}

enum {
  MANY = 12
}; /* with drawn routing every layer is a piece of its own: too many pairs for a bound that must be quick */

MsTime ms_piece_times(const MsWork *w, const MsCostedPiece *piece, MsPieceLags *lags, gboolean splits,
                      MsPieceTime *time) {
  gboolean pairs = w->scenario->options.ep_overlap, few = w->pool_pieces <= MANY;
  const Taken spans = {lags, piece, splits, NULL};
  for (int i = 0; i < w->n_pieces; i++) {
    MsPieceTime *t = &time[i];
    gboolean left = ms_work_may_defer(w, i);
    t->lone[0] = t->lone[1] = 0;
    t->issue = ms_costed_issue(&piece[i].forward, MS_LIST_ALL) +
               ms_costed_issue(&piece[i].backward, left ? MS_LIST_INPUT : MS_LIST_ALL);
    alone(lags, i, left ? MS_SLOT_I : MS_SLOT_B, splits || pairs, t);
    t->usual = t->direct;
    if (!splits && !pairs) continue;
    t->usual = t->direct = span_of_pass(lags, MS_SLOT_F, i) + whole_or_split(&spans, i, left);
    if (pairs && ms_work_is_unit(&w->pieces[i])) t->direct = piece[i].forward.compute + piece[i].backward.compute;
    if (pairs && !few) t->usual = t->direct;
    t->line = t->start = t->end = 0;
  }
  for (int first = 0; pairs && few && first < w->n_pieces; first += w->pool_pieces) in_pairs(w, &spans, first, time);
  for (int i = 0; i < w->n_pieces; i++)
    if (pairs) share_pace(&piece[i], &time[i]);
    else pace_of(&piece[i], lags, i, ms_work_may_defer(w, i) ? MS_SLOT_I : MS_SLOT_B, &time[i]);
  return pairs && few ? among_turns(w, &spans, time) : 0;
}
