/* src/sim/lags.c - rows as a table of lags (max-plus linear algebra), and the tables of the pieces of a step. */
#include "sim/lower.h"

typedef struct { MsTime from[MS_N_ENDS]; } Reach; /* of one moment: lag behind each source */

static const Reach nowhere = {{MS_NEVER, MS_NEVER, MS_NEVER, MS_NEVER}};
static const Reach at_source[MS_N_ENDS] = {{{0, MS_NEVER, MS_NEVER, MS_NEVER}}, {{MS_NEVER, 0, MS_NEVER, MS_NEVER}}, {{MS_NEVER, MS_NEVER, 0, MS_NEVER}},
                                           {{MS_NEVER, MS_NEVER, MS_NEVER, 0}}};
const MsLags ms_no_rows = {{{0, MS_NEVER, MS_NEVER, MS_NEVER}, {MS_NEVER, 0, MS_NEVER, MS_NEVER}, {MS_NEVER, MS_NEVER, 0, MS_NEVER},
                            {MS_NEVER, MS_NEVER, MS_NEVER, 0}}};

static Reach later(Reach a, Reach b) {
  Reach r;
  for (int i = 0; i < MS_N_ENDS; i++) r.from[i] = MAX(a.from[i], b.from[i]);
  return r;
}

static Reach plus(Reach a, MsTime by) {
  for (int i = 0; i < MS_N_ENDS; i++) a.from[i] = MAX(a.from[i] + by, MS_NEVER);
  return a;
}

MsLags ms_lags_of_rows(const MsRows *rows, int sm_count) {
  g_autofree Reach *end = g_new(Reach, MAX(rows->n, 1));
  Reach stream[MS_N_STREAMS], host = at_source[MS_END_HOST];
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = nowhere;
  stream[MS_STREAM_COMPUTE] = at_source[MS_END_COMPUTE];
  for (int i = 0; i < rows->n; i++) {
    const MsRow *r = &rows->row[i];
    Reach start = stream[r->stream];
    for (int j = 0; j < 3 && r->wait[j] >= 0; j++) start = later(start, end[r->wait[j]]);
    if (r->opens) start = later(start, at_source[r->beside ? MS_END_BESIDE : MS_END_ENTRY]);
    if (r->launch > 0) start = later(start, host = plus(host, r->launch));
    stream[r->stream] = end[i] = plus(start, r->duration);
    if (r->host_waits) host = later(host, end[i]);
  }
  MsLags lags = ms_no_rows;
  for (int k = 0; k < MS_N_ENDS; k++) {
    for (int side = 0; side < 2; side++)
      if (rows->tip[side] >= 0) lags.to[side ? MS_END_BESIDE : MS_END_ENTRY][k] = end[rows->tip[side]].from[k];
    lags.to[MS_END_COMPUTE][k] = stream[MS_STREAM_COMPUTE].from[k];
    lags.to[MS_END_HOST][k] = host.from[k];
  }
  ms_rows_busy(rows, sm_count, FALSE, &lags);
  return lags;
}

MsForced ms_forced_of_rows(const MsRows *rows, int sm_count) {
  MsForced f = {.lags = ms_no_rows};
  gboolean any = FALSE;
  for (int i = 0; i < rows->n; i++)
    if (rows->row[i].stream == MS_STREAM_COMPUTE) any = TRUE, f.own += rows->row[i].duration;
  if (!any) return f;
  for (int i = 0; i < MS_N_ENDS; i++)
    for (int k = 0; k < MS_N_ENDS; k++) f.lags.to[i][k] = MS_NEVER;
  ms_rows_busy(rows, sm_count, TRUE, &f.lags);
  return f;
}

MsForced ms_forced_product(const MsForced *then, const MsForced *first) {
  return (MsForced){.lags = ms_lags_product(&then->lags, &first->lags), .own = then->own + first->own};
}

MsLags ms_lags_product(const MsLags *then, const MsLags *first) {
  MsLags r;
  for (int i = 0; i < MS_N_ENDS; i++)
    for (int k = 0; k < MS_N_ENDS; k++) {
      MsTime best = MS_NEVER;
      for (int j = 0; j < MS_N_ENDS; j++) best = MAX(best, then->to[i][j] + first->to[j][k]);
      r.to[i][k] = best;
    }
  return r;
}

MsLags ms_lags_beside(const MsLags *l) {
  static const MsEnd swapped[MS_N_ENDS] = {MS_END_BESIDE, MS_END_ENTRY, MS_END_COMPUTE, MS_END_HOST};
  MsLags r;
  for (int i = 0; i < MS_N_ENDS; i++)
    for (int k = 0; k < MS_N_ENDS; k++) r.to[swapped[i]][swapped[k]] = l->to[i][k];
  return r;
}

void ms_lags_run(const MsLags *l, const MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]) {
  for (int i = 0; i < MS_N_ENDS; i++) {
    MsTime best = MS_NEVER;
    for (int k = 0; k < MS_N_ENDS; k++) best = MAX(best, before[k] + l->to[i][k]);
    after[i] = best;
  }
}

/* --- of pieces --- */

struct MsPieceLags {
  const MsCostedPiece *piece;
  int n, sm_count;
  gboolean delay_wgrad;
  MsLags **pass; /* [(MS_SLOT_W + 1) * n] NULL = not asked for yet */
  MsLags **pair; /* [n * n] forward of one beside backward of another */
  MsForced **forced_pass, **forced_pair; /* the same */
  MsRows rows;   /* scratch */
};

MsPieceLags *ms_piece_lags_new(const MsCostedPiece *piece, int n, const MsScenario *scenario) {
  MsPieceLags *l = g_new0(MsPieceLags, 1);
  *l = (MsPieceLags){.piece = piece, .n = n, .sm_count = scenario->hardware->sm_count, .delay_wgrad = scenario->options.delay_wgrad};
  l->pass = g_new0(MsLags *, (MS_SLOT_W + 1) * (gsize)n);
  l->pair = g_new0(MsLags *, (gsize)n * (gsize)n);
  l->forced_pass = g_new0(MsForced *, (MS_SLOT_W + 1) * (gsize)n);
  l->forced_pair = g_new0(MsForced *, (gsize)n * (gsize)n);
  return l;
}

void ms_piece_lags_free(MsPieceLags *l) {
  if (!l) return;
  for (int i = 0; i < (MS_SLOT_W + 1) * l->n; i++) g_free(l->pass[i]), g_free(l->forced_pass[i]);
  for (int i = 0; i < l->n * l->n; i++) g_free(l->pair[i]), g_free(l->forced_pair[i]);
  g_free(l->pass), g_free(l->pair), g_free(l->forced_pass), g_free(l->forced_pair);
  ms_rows_clear(&l->rows);
  g_free(l);
}

static const MsLags *keep_lags(MsPieceLags *l, MsLags **known) {
  MsLags lags = ms_lags_of_rows(&l->rows, l->sm_count);
  return *known = g_memdup2(&lags, sizeof lags);
}

static void rows_of_pass(MsPieceLags *l, MsSlotKind kind, int piece) {
  static const MsListPart part[] = {[MS_SLOT_F] = MS_LIST_ALL, [MS_SLOT_B] = MS_LIST_ALL, [MS_SLOT_I] = MS_LIST_INPUT, [MS_SLOT_W] = MS_LIST_WEIGHT};
  const MsCostedPiece *c = &l->piece[piece];
  ms_rows_of_list(&l->rows, kind == MS_SLOT_F ? &c->forward : &c->backward, part[kind]);
}

static void rows_of_pair(MsPieceLags *l, int f, int b) {
  ms_rows_of_pair(&l->rows, &l->piece[f].forward, &l->piece[b].backward, l->delay_wgrad);
}

const MsLags *ms_piece_lags_pass(MsPieceLags *l, MsSlotKind kind, int piece) {
  MsLags **known = &l->pass[(int)kind * l->n + piece];
  if (*known) return *known;
  rows_of_pass(l, kind, piece);
  return keep_lags(l, known);
}

const MsLags *ms_piece_lags_pair(MsPieceLags *l, int f, int b) {
  MsLags **known = &l->pair[f * l->n + b];
  if (*known) return *known;
  rows_of_pair(l, f, b);
  return keep_lags(l, known);
}

static const MsForced *keep_forced(MsPieceLags *l, MsForced **known) {
  MsForced forced = ms_forced_of_rows(&l->rows, l->sm_count);
  return *known = g_memdup2(&forced, sizeof forced);
}

const MsForced *ms_piece_forced_pass(MsPieceLags *l, MsSlotKind kind, int piece) {
  MsForced **known = &l->forced_pass[(int)kind * l->n + piece];
  if (*known) return *known;
  rows_of_pass(l, kind, piece);
  return keep_forced(l, known);
}

const MsForced *ms_piece_forced_pair(MsPieceLags *l, int f, int b) {
  MsForced **known = &l->forced_pair[f * l->n + b];
  if (*known) return *known;
  rows_of_pair(l, f, b);
  return keep_forced(l, known);
}
