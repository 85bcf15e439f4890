/* src/bound/lags.c - rows as a table of lags (max-plus linear algebra), and the tables of the pieces of a step. */
#include "base/kept.h"
#include "bound/bound_priv.h"
#include "step/number.h"
#include <string.h>

const MsLags ms_no_rows = MS_NO_ROWS;

static MsTime plus(MsTime at, MsTime by) { return MAX(at + by, MS_NEVER); }

/* When each row ends, and what the list leaves behind, if the source is there at 0 and the others never were.
 * end[rows->n]: scratch. */
static void behind(const MsRows *rows, MsEnd source, MsTime *end, MsLags *lags) {
  MsTime at[MS_N_ENDS] = {MS_NEVER, MS_NEVER, MS_NEVER, MS_NEVER}, stream[MS_N_STREAMS];
  at[source] = 0;
  for (int i = 0; i < MS_N_STREAMS; i++) stream[i] = MS_NEVER;
  stream[MS_STREAM_COMPUTE] = at[MS_END_COMPUTE];
  for (int i = 0; i < rows->n; i++) {
    const MsRow *r = &rows->row[i];
    MsTime start = stream[r->stream];
    for (int j = 0; j < 3 && r->wait[j] >= 0; j++) start = MAX(start, end[r->wait[j]]);
    if (r->opens) start = MAX(start, at[r->beside ? MS_END_BESIDE : MS_END_ENTRY]);
    if (r->launch > 0) {
      at[MS_END_HOST] = plus(at[MS_END_HOST], r->launch);
      start = MAX(start, at[MS_END_HOST]);
    }
    stream[r->stream] = end[i] = plus(start, r->duration);
    if (r->host_waits) at[MS_END_HOST] = MAX(at[MS_END_HOST], end[i]);
  }
  at[MS_END_COMPUTE] = stream[MS_STREAM_COMPUTE];
  for (int side = 0; side < 2; side++)
    if (rows->tip[side] >= 0) at[side ? MS_END_BESIDE : MS_END_ENTRY] = end[rows->tip[side]];
  for (int i = 0; i < MS_N_ENDS; i++) lags->to[i][source] = at[i];
}

/* Of one list there is nothing behind the entry of the other. */
static guint without_beside(const MsRows *rows, guint sources, MsLags *lags) {
  if (rows->tip[1] >= 0 || !(sources & 1u << MS_END_BESIDE)) return sources;
  for (int i = 0; i < MS_N_ENDS; i++) lags->to[i][MS_END_BESIDE] = i == MS_END_BESIDE ? 0 : MS_NEVER;
  return sources & ~(1u << MS_END_BESIDE);
}

void ms_lags_of_rows(const MsRows *rows, int sm_count, guint sources, MsLags *lags) {
  enum { FEW = 256 };
  sources = without_beside(rows, sources, lags);
  MsTime few[FEW], *end = rows->n > FEW ? g_new(MsTime, rows->n) : few;
  for (int source = 0; source < MS_N_ENDS; source++)
    if (sources & 1u << source) behind(rows, (MsEnd)source, end, lags);
  if (end != few) g_free(end);
  ms_rows_busy(rows, sm_count, sources, lags);
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

static MsTime of_compute(const MsForced *f) { return f->lags.to[MS_END_COMPUTE][MS_END_COMPUTE]; }

/* Of two lists as one. Where the stream waits between them the wait may count what the second one's rows cost that
 * begin with its input; as long as it waits nothing is lost. */
static MsCross cross_of(const MsForced *then, const MsForced *first, MsTime waits) {
  if (first->own == 0) return then->cross; /* nothing is computed: the rows run on through it */
  if (then->own == 0) return first->cross;
  MsCross c = then->cross, next = then->cross;
  if (waits > 0) next.in = (MsRunOn){0}, next.before += waits;
  c.in = first->cross.in, c.before = first->cross.before, c.awaits = first->cross.awaits;
  c.sms = MIN(c.sms, first->cross.sms);
  c.inside += first->cross.inside + ms_cross_cost(&next, &first->cross);
  return c;
}

static MsTime later(MsTime there, MsTime by) { return there == MS_NEVER ? MS_NEVER : there + by; }

/* What runs on from the first into the second may come before the row that an input opens, or behind an output. */
static void sides_of(MsForced *f, const MsForced *then, const MsForced *first) {
  MsTime between = f->cross.inside - then->cross.inside - first->cross.inside,
         all = of_compute(first) + first->cross.inside,
         rest = of_compute(then) + then->cross.inside + (first->many ? between : 0);
  const MsForced *opened = first->own > 0 ? first : then;
  for (int side = 0; side < MS_N_SIDES; side++) {
    gboolean ends = then->tip[side] != MS_NEVER;
    f->opens[side] = opened->opens[side];
    f->tip[side] = ends ? then->tip[side] + all : first->tip[side];
    f->reach[side] = MAX(then->reach[side], later(first->reach[side], rest));
    for (int in = 0; in < MS_N_SIDES; in++) {
      MsTime there = ends ? later(first->reach[in], then->tip[side]) : first->through[in][side];
      f->through[in][side] = MAX(there, then->through[in][side]);
    }
  }
}

MsForced ms_forced_product(const MsForced *then, const MsForced *first) {
  MsForced f = {.lags = ms_lags_product(&then->lags, &first->lags),
                .own = then->own + first->own,
                .network = then->network + first->network};
  f.cross = cross_of(then, first, of_compute(&f) - of_compute(then) - of_compute(first));
  f.met = then->met && first->met;
  f.many = first->many || (first->own > 0 && then->own > 0);
  sides_of(&f, then, first);
  for (int k = 0; k < MS_RIVALS && f.met; k++) f.shared[k] = ms_lags_product(&then->shared[k], &first->shared[k]);
  return f;
}

MsLags ms_lags_beside(const MsLags *l) {
  static const MsEnd swapped[MS_N_ENDS] = {MS_END_BESIDE, MS_END_ENTRY, MS_END_COMPUTE, MS_END_HOST};
  MsLags r;
  for (int i = 0; i < MS_N_ENDS; i++)
    for (int k = 0; k < MS_N_ENDS; k++) r.to[swapped[i]][swapped[k]] = l->to[i][k];
  return r;
}

MsForced ms_forced_beside(const MsForced *forced) {
  MsForced f = *forced;
  f.lags = ms_lags_beside(&forced->lags);
  for (int side = 0, other = 1; side < MS_N_SIDES; side++, other--) {
    f.opens[side] = forced->opens[other], f.tip[side] = forced->tip[other], f.reach[side] = forced->reach[other];
    for (int in = 0; in < MS_N_SIDES; in++) f.through[in][side] = forced->through[1 - in][other];
  }
  for (int k = 0; k < MS_RIVALS && f.met; k++) f.shared[k] = ms_lags_beside(&forced->shared[k]);
  return f;
}

/* --- of pieces --- */

typedef struct {
  MsLags lags;
  guint sources;
} Table; /* sources: whose lags are there */

enum { NO_RIVAL = -1 };
static const MsRivalsMet no_rivals = {.sms = {NO_RIVAL, NO_RIVAL}};

struct MsPieceLags {
  const MsCostedPiece *piece;
  int n, of_pool, sm_count[MS_MAX_POOLS]; /* pieces of a pool; SMs of its machine */
  MsRivalsMet rivals;
  gboolean delay_wgrad;
  Table **pass;                          /* [(MS_SLOT_W + 1) * n] NULL = not asked for yet */
  Table **pair;                          /* [n * n] forward of one beside backward of another */
  MsForced **forced_pass, **forced_pair; /* the same */
  guint64 *number;                       /* [2 * n] of the lists, 0 = not asked for yet; NULL: nothing is kept */
  MsPieceLags *unshared;                 /* NULL = not asked for yet */
  MsRows rows;                           /* scratch */
};

/* Rows that look the same to rows.c. */
static gboolean same_rows(const MsCosted *a, const MsCosted *b) {
  int n = a->list->n;
  size_t times = (size_t)n * sizeof(MsTime);
  if (n != b->list->n || a->list->tip != b->list->tip || memcmp(a->duration, b->duration, times) ||
      memcmp(a->beside, b->beside, times) || memcmp(a->launch, b->launch, times) ||
      memcmp(a->sms, b->sms, (size_t)n * sizeof *a->sms) || memcmp(a->use, b->use, (size_t)n * sizeof *a->use))
    return FALSE;
  for (int i = 0; i < n; i++) {
    const MsOp *x = &a->list->op[i], *y = &b->list->op[i];
    if (x->stream != y->stream || x->pass != y->pass || x->node != y->node || x->flags != y->flags ||
        memcmp(x->wait, y->wait, sizeof x->wait))
      return FALSE;
  }
  return TRUE;
}

static int sms_of(const MsPieceLags *l, int piece) { return l->sm_count[piece / l->of_pool]; }

/* Tables are counted (g_atomic_rc_box): some are kept. */
static Table *new_table(const Table *like) { return memcpy(g_atomic_rc_box_new(Table), like, sizeof *like); }

static Table *copy_of(const Table *table) { return table ? new_table(table) : NULL; }

/* They are forgotten when rivals are met, and until then hold without. */
static MsForced *same_forced(MsForced *forced) { return forced ? g_atomic_rc_box_acquire(forced) : NULL; }

static void take_over(MsPieceLags *l, const MsPieceLags *like) {
  int n = MIN(l->n, like->n);
  g_autofree gboolean *forward = g_new(gboolean, n), *backward = g_new(gboolean, n);
  for (int i = 0; i < n; i++) {
    gboolean same_machine = sms_of(l, i) == sms_of(like, i);
    forward[i] = same_machine && same_rows(&l->piece[i].forward, &like->piece[i].forward),
    backward[i] = same_machine && same_rows(&l->piece[i].backward, &like->piece[i].backward);
    for (int kind = 0; kind <= MS_SLOT_W; kind++)
      if (kind == MS_SLOT_F ? forward[i] : backward[i]) {
        l->pass[kind * l->n + i] = copy_of(like->pass[kind * like->n + i]);
        l->forced_pass[kind * l->n + i] = same_forced(like->forced_pass[kind * like->n + i]);
      }
  }
  for (int i = 0; i < n * n && l->delay_wgrad == like->delay_wgrad; i++) {
    int own = i / n * l->n + i % n, other = i / n * like->n + i % n;
    if (!forward[i / n] || !backward[i % n]) continue;
    l->pair[own] = copy_of(like->pair[other]);
    l->forced_pair[own] = same_forced(like->forced_pair[other]);
  }
}

static void new_tables(MsPieceLags *l) {
  gsize n = (gsize)l->n;
  l->pass = g_new0(Table *, (MS_SLOT_W + 1) * n);
  l->pair = g_new0(Table *, n * n);
  l->forced_pass = g_new0(MsForced *, (MS_SLOT_W + 1) * n);
  l->forced_pair = g_new0(MsForced *, n * n);
}

MsPieceLags *ms_piece_lags_new(const MsCostedPiece *piece, int n, const MsScenario *scenario, const MsPieceLags *like) {
  MsPieceLags *l = g_new0(MsPieceLags, 1);
  *l = (MsPieceLags){.piece = piece, .n = n, .rivals = no_rivals, .delay_wgrad = scenario->options.delay_wgrad};
  l->of_pool = MAX(1, n / ms_scenario_stage_machines(scenario));
  for (int i = 0; i < ms_scenario_stage_machines(scenario); i++)
    l->sm_count[i] = ms_scenario_stage_machine(scenario, i)->sm_count;
  new_tables(l);
  if (like) take_over(l, like);
  return l;
}

MsPieceLags *ms_piece_lags_unshared(MsPieceLags *l) {
  if (l->unshared) return l->unshared;
  MsPieceLags *own = l->unshared = g_new0(MsPieceLags, 1);
  *own = (MsPieceLags){
      .piece = l->piece, .n = l->n, .of_pool = l->of_pool, .rivals = no_rivals, .delay_wgrad = l->delay_wgrad};
  new_tables(own);
  if (l->number) ms_piece_lags_keep(own);
  return own;
}

void ms_piece_lags_keep(MsPieceLags *l) { l->number = g_new0(guint64, 2 * (gsize)l->n); }

guint64 ms_piece_lags_number(MsPieceLags *l, int piece, gboolean backward) {
  guint64 *number = &l->number[2 * piece + backward];
  if (*number == 0) *number = ms_list_number(backward ? &l->piece[piece].backward : &l->piece[piece].forward);
  return *number;
}

/* --- what is kept: tables of one pass or pair, and what they force */
static MsKeep tables = {.most = 512}, forced_tables = {.most = 256};

static void forget(MsForced **forced) {
  ms_kept_release(&forced_tables, *forced);
  *forced = NULL;
}

static void forget_all(MsPieceLags *l) {
  for (int i = 0; i < (MS_SLOT_W + 1) * l->n; i++) forget(&l->forced_pass[i]);
  for (int i = 0; i < l->n * l->n; i++) forget(&l->forced_pair[i]);
}

/* All that a table follows from; the forward, the backward or -1. `rivals`: what is forced follows from them too. */
static GByteArray *key_of(MsPieceLags *l, MsSlotKind kind, int f, int b, const MsRivalsMet *rivals) {
  const guint64 is[] = {f < 0 ? 0 : ms_piece_lags_number(l, f, FALSE),
                        b < 0 ? 0 : ms_piece_lags_number(l, b, TRUE),
                        kind,
                        (guint64)sms_of(l, f < 0 ? b : f),
                        l->delay_wgrad,
                        rivals ? (guint64)rivals->sms[0] : 0,
                        rivals ? (guint64)rivals->sms[1] : 0,
                        rivals ? (guint64)rivals->parts << 32 | (guint64)rivals->of : 0};
  return g_byte_array_append(g_byte_array_sized_new(sizeof is), (const guint8 *)is, sizeof is);
}

void ms_piece_lags_free(MsPieceLags *l) {
  if (!l) return;
  ms_piece_lags_free(l->unshared);
  forget_all(l);
  for (int i = 0; i < (MS_SLOT_W + 1) * l->n; i++) ms_kept_release(&tables, l->pass[i]);
  for (int i = 0; i < l->n * l->n; i++) ms_kept_release(&tables, l->pair[i]);
  g_free(l->pass), g_free(l->pair), g_free(l->forced_pass), g_free(l->forced_pair), g_free(l->number);
  ms_rows_clear(&l->rows);
  g_free(l);
}

void ms_piece_lags_meet(MsPieceLags *l, const MsRivalsMet *rivals) {
  if (!memcmp(&l->rivals, rivals, sizeof l->rivals)) return;
  l->rivals = *rivals;
  forget_all(l);
}

static void rows_of_pass(MsPieceLags *l, MsSlotKind kind, int piece) {
  static const MsListPart part[] = {
      [MS_SLOT_F] = MS_LIST_ALL, [MS_SLOT_B] = MS_LIST_ALL, [MS_SLOT_I] = MS_LIST_INPUT, [MS_SLOT_W] = MS_LIST_WEIGHT};
  const MsCostedPiece *c = &l->piece[piece];
  ms_rows_of_list(&l->rows, kind == MS_SLOT_F ? &c->forward : &c->backward, part[kind]);
}

static void rows_of_pair(MsPieceLags *l, int f, int b) {
  ms_rows_of_pair(&l->rows, &l->piece[f].forward, &l->piece[b].backward, l->delay_wgrad);
}

static gboolean has(const Table *table, guint sources) { return table && !(sources & ~table->sources); }

static void rows_of(MsPieceLags *l, MsSlotKind kind, int f, int b) {
  if (f >= 0 && b >= 0) rows_of_pair(l, f, b);
  else rows_of_pass(l, kind, MAX(f, b));
}

/* f and b as in key_of. */
static const MsLags *lags_of(MsPieceLags *l, Table **table, MsSlotKind kind, int f, int b, guint sources) {
  if (has(*table, sources)) return &(*table)->lags;
  GByteArray *key = l->number ? key_of(l, kind, f, b, NULL) : NULL;
  if (key && (*table = ms_kept_of(&tables, key))) {
    g_byte_array_unref(key);
    return &(*table)->lags;
  }
  if (key) sources = MS_FROM_ALL;
  if (!*table) *table = new_table(&(Table){.sources = 0});
  rows_of(l, kind, f, b);
  ms_lags_of_rows(&l->rows, sms_of(l, f < 0 ? b : f), sources & ~(*table)->sources, &(*table)->lags);
  (*table)->sources |= sources;
  if (key) ms_kept_as(&tables, key, *table);
  return &(*table)->lags;
}

const MsLags *ms_piece_lags_pass(MsPieceLags *l, MsSlotKind kind, int piece, guint sources) {
  gboolean forward = kind == MS_SLOT_F;
  return lags_of(l, &l->pass[(int)kind * l->n + piece], kind, forward ? piece : -1, forward ? -1 : piece, sources);
}

const MsLags *ms_piece_lags_pair(MsPieceLags *l, int f, int b, guint sources) {
  return lags_of(l, &l->pair[f * l->n + b], MS_SLOT_FB, f, b, sources);
}

static void share_with_rivals(const MsRows *rows, int sm_count, const MsRivalsMet *rivals, MsForced *forced) {
  g_autofree MsRow *row = g_memdup2(rows->row, sizeof *row * (gsize)rows->n);
  MsRows shared = *rows;
  forced->met = TRUE;
  shared.row = row;
  for (int k = 0; k < MS_RIVALS; k++) {
    int sms = rivals->sms[k];
    for (int i = 0; i < rows->n; i++) {
      MsTime alone = rows->row[i].duration;
      if (row[i].use == MS_USE_LINK1) row[i].duration += alone / rivals->of * rivals->parts;
      if (row[i].use == MS_USE_COMPUTE && sm_count > sms) row[i].duration = alone + alone / (sm_count - sms) * sms;
    }
    ms_lags_of_rows(&shared, sm_count, MS_FROM_ALL, &forced->shared[k]);
  }
}

static const MsForced *forced_of(MsPieceLags *l, MsForced **known, MsSlotKind kind, int f, int b) {
  if (*known) return *known;
  GByteArray *key = l->number ? key_of(l, kind, f, b, &l->rivals) : NULL;
  if (key && (*known = ms_kept_of(&forced_tables, key))) {
    g_byte_array_unref(key);
    return *known;
  }
  rows_of(l, kind, f, b);
  int sm_count = sms_of(l, f < 0 ? b : f);
  *known = g_atomic_rc_box_new(MsForced);
  **known = ms_rows_forced(&l->rows, sm_count);
  if (l->rivals.sms[0] != NO_RIVAL) share_with_rivals(&l->rows, sm_count, &l->rivals, *known);
  if (key) ms_kept_as(&forced_tables, key, *known);
  return *known;
}

const MsForced *ms_piece_forced_pass(MsPieceLags *l, MsSlotKind kind, int piece) {
  gboolean forward = kind == MS_SLOT_F;
  return forced_of(l, &l->forced_pass[(int)kind * l->n + piece], kind, forward ? piece : -1, forward ? -1 : piece);
}

const MsForced *ms_piece_forced_pair(MsPieceLags *l, int f, int b) {
  return forced_of(l, &l->forced_pair[f * l->n + b], MS_SLOT_FB, f, b);
}
