/* src/sim/steady.c - slots in steady state: tables of rows, and their pieces alone in the event engine. */
#include "sim/steady.h"
#include "base/units.h"
#include "sim/account.h"
#include "sim/turns.h"
#include "step/fetch.h"
#include "step/meeting.h"
#include <string.h>

typedef struct {
  MsChunks of;
  MsSteadySlot slot;
} Known;

typedef struct {
  MsSlotPart part;
  MsBeside beside;
  MsLags lags;
  double link[MS_N_LINKS];          /* picoseconds of the rows on each */
  double class[MS_SHARING_CLASSES]; /* of those that share the network by class */
  double stream[MS_N_STREAMS];      /* of those on each */
} SharedPart;

struct MsSteady {
  const MsProgram *p;
  MsProgram pieces; /* the program without units: `p` */
  MsPieceLags *lags;
  const MsOp *const *tag_op;
  MsSlotKind behind;   /* what follows a forward in the middle of the schedule: B or I */
  GPtrArray *known;    /* Known */
  int *alike;          /* [num_chunks] the first chunk whose slots are the same */
  MsSteadySlot **lone; /* [num_chunks][MS_SLOT_W + 1][2] of such a chunk by kind, leaving the head or not; NULL: not
                          asked for yet */
  GArray *shared;      /* SharedPart */
  MsRows rows, slow;   /* scratch */
  guint64 events;
};

static void free_known(gpointer data) {
  Known *k = data;
  g_free(k->slot.part), g_free(k->slot.length);
  g_array_unref(k->slot.slowed);
  g_free(k);
}

static gboolean same_chunk(const MsSteady *s, const MsChunk *a, const MsChunk *b) {
  return a == b || (a && b && ms_same_pieces(s->p->work, a, b));
}

/* They stand where their messages cost the same. */
static gboolean same_messages(const MsSteady *s, const MsChunks *a, const MsChunks *b) {
  const MsChunk *x = a->forward ? a->forward : a->backward, *y = b->forward ? b->forward : b->backward;
  return ms_program_p2p_of(s->p, x, FALSE)->time_s == ms_program_p2p_of(s->p, y, FALSE)->time_s &&
         ms_program_p2p_of(s->p, x, TRUE)->time_s == ms_program_p2p_of(s->p, y, TRUE)->time_s;
}

/* Of each chunk the first that has its slots. */
static int *find_alike(const MsSteady *s) {
  const MsLayout *l = s->p->layout;
  int *alike = g_new(int, l->num_chunks);
  for (int i = 0; i < l->num_chunks; i++) {
    const MsChunks of = {.forward = &l->chunks[i]};
    alike[i] = i;
    for (int k = 0; k < i && alike[i] == i; k++) {
      const MsChunks other = {.forward = &l->chunks[k]};
      if (alike[k] == k && same_chunk(s, of.forward, other.forward) &&
          (!s->p->message || same_messages(s, &of, &other)))
        alike[i] = k;
    }
  }
  return alike;
}

MsSteady *ms_steady_new(const MsProgram *p, MsPieceLags *lags, const MsSchedule *schedule, const MsOp *const *tag_op) {
  MsSteady *s = g_new0(MsSteady, 1);
  *s = (MsSteady){.pieces = *p, .lags = lags, .tag_op = tag_op};
  s->p = &s->pieces, s->pieces.unit = NULL;
  s->behind = ms_schedule_has(schedule, MS_SLOT_I) ? MS_SLOT_I : MS_SLOT_B;
  s->known = g_ptr_array_new_with_free_func(free_known);
  s->shared = g_array_new(FALSE, FALSE, sizeof(SharedPart));
  s->lone = g_new0(MsSteadySlot *, 2 * (MS_SLOT_W + 1) * (gsize)p->layout->num_chunks);
  s->alike = find_alike(s);
  return s;
}

void ms_steady_free(MsSteady *s) {
  if (!s) return;
  g_ptr_array_unref(s->known);
  g_array_unref(s->shared);
  g_free(s->lone);
  g_free(s->alike);
  ms_rows_clear(&s->rows);
  g_free(s);
}

guint64 ms_steady_events(const MsSteady *s) { return s->events; }

/* --- turns alone --- */

static MsTurnTime turn_time(MsSteady *s, MsChunks of, gboolean stream) {
  MsTurnTime x = ms_turn_time(s->p, of, s->tag_op, stream, s->lags);
  s->events += x.events;
  return x;
}

static MsChunks lone_pass(const MsChunk *chunk, MsSlotKind kind) {
  return kind == MS_SLOT_F ? (MsChunks){.forward = chunk} : (MsChunks){.backward = chunk, .kind = kind};
}

static MsChunks both_of(const MsChunk *forward, const MsChunk *backward) {
  return (MsChunks){.forward = forward, .backward = backward, .kind = MS_SLOT_B};
}

void ms_slot_times(const MsProgram *p, MsPieceLags *lags, const MsSchedule *s, const MsOp *const *tag_op,
                   double *slot_s) {
  const MsLayout *l = p->layout;
  const MsChunk *first = ms_layout_chunk(l, l->pp / 2, 0), *last = ms_layout_chunk(l, l->pp / 2, l->vpp - 1);
  for (int kind = MS_SLOT_F; kind <= MS_SLOT_FB; kind++) {
    if (kind == MS_SLOT_FB && !ms_schedule_has(s, MS_SLOT_FB)) continue;
    MsChunks of = kind == MS_SLOT_FB ? both_of(first, last) : lone_pass(first, (MsSlotKind)kind);
    slot_s[kind] = (double)ms_turn_time(p, of, tag_op, FALSE, lags).time / MS_PS_PER_S;
  }
}

/* Of a difference: what one of the two had more of is not told. */
static void no_less_than_nothing(MsTimeParts *t) {
  double *part = (double *)t;
  for (size_t i = 0; i < sizeof *t / sizeof(double); i++) part[i] = MAX(part[i], 0);
  t->exposed_comm_s = t->compute_s = 0;
  for (int i = 0; i < MS_N_COMMS; i++) t->exposed_comm_s += t->comm_exposed_s[i];
  for (guint i = 0; i < G_N_ELEMENTS(t->family_s); i++) t->compute_s += t->family_s[i];
}

/* Fetches from the host go on from one slot into the next, so that a backward behind a forward is what it adds to the
 * forward; of a split one the first half is what it adds to the forward and the other half. */
static void behind_forward(MsSteady *s, MsChunks of, MsSteadySlot *slot) {
  const MsSteadySlot *forward = ms_steady_slot(s, (MsChunks){.forward = of.backward, .kind = MS_SLOT_B}),
                     *rest = of.kind == MS_SLOT_I ? ms_steady_slot(s, lone_pass(of.backward, MS_SLOT_W)) : NULL;
  MsTurnTime all = turn_time(s, both_of(of.backward, of.backward), FALSE);
  MsTime adds = MAX(0, all.time - forward->time - (rest ? rest->time : 0));
  if (adds >= slot->time) return;
  slot->time = adds, slot->parts = all.parts;
  ms_parts_add(&slot->parts, &forward->parts, -1);
  if (rest) ms_parts_add(&slot->parts, &rest->parts, -1);
  no_less_than_nothing(&slot->parts);
}

/* --- tables --- */

static const MsLags *lags_of(MsSteady *s, const MsSlotPart *x) {
  if (x->forward >= 0 && x->backward >= 0) return ms_piece_lags_pair(s->lags, x->forward, x->backward, MS_FROM_ALL);
  return ms_piece_lags_pass(s->lags, x->rows, MAX(x->forward, x->backward), MS_FROM_ALL);
}

static MsLags in_turn(const MsLags *lags, const MsSlotPart *x) { return x->beside ? ms_lags_beside(lags) : *lags; }

static void parts_of(MsSteady *s, MsChunks of, MsSteadySlot *slot) {
  GArray *all = g_array_new(FALSE, FALSE, sizeof(MsSlotPart));
  for (MsPieceWalk w = ms_piece_walk(s->p->work, of); ms_piece_next(&w);) {
    gboolean f = w.forward.at >= 0, b = w.backward.at >= 0;
    MsSlotPart x = {.forward = f ? w.forward.piece : -1,
                    .backward = b ? w.backward.piece : -1,
                    .rows = f ? w.forward.rows : w.backward.rows,
                    .beside = of.forward && of.backward && !f};
    g_array_append_val(all, x);
  }
  slot->n = (int)all->len, slot->part = (MsSlotPart *)(void *)g_array_free(all, FALSE);
}

static gboolean has_rows(const MsSlotPart *x) { return x->rows != MS_N_SLOTS; }

enum { FEW = MS_TURNS_FEW, MORE = MS_TURNS_MORE };

/* A stage that runs these in turn and nothing else: how long that takes with nothing shared. `sends`: inputs are early,
 * and the host issues messages behind each for so long; NULL: neither. */
static MsTime relaxed_time(const MsLags *const *lags, int n, const MsTime *sends) {
  MsTime at[MS_N_ENDS] = {0}, end[2];
  for (int i = 0; i < MORE * n; i++) {
    MsTime after[MS_N_ENDS];
    if (sends) at[MS_END_ENTRY] = at[MS_END_BESIDE] = 0;
    ms_lags_run(lags[i % n], TRUE, at, after);
    memcpy(at, after, sizeof at);
    if (sends) at[MS_END_HOST] += sends[i % n];
    if (i + 1 == FEW * n || i + 1 == MORE * n)
      end[i + 1 == MORE * n] = MAX(MAX(at[MS_END_ENTRY], at[MS_END_BESIDE]), at[MS_END_COMPUTE]);
  }
  return (end[1] - end[0]) / (MORE - FEW);
}

static gboolean is_never(MsTime lag) { return lag < MS_NEVER / 2; }

/* All but what the host does by itself; that too where it decides. */
static void lengthen(MsLags *l, const MsTime by[2], gboolean host) {
  for (int end = 0; end < MS_N_ENDS; end++)
    for (int source = 0; source < MS_N_ENDS; source++) {
      MsTime *lag = &l->to[end][source];
      gboolean idle = end != MS_END_COMPUTE && end == source && *lag == 0; /* nothing runs from there to here */
      if (is_never(*lag) || idle || (!host && end == MS_END_HOST && source == MS_END_HOST)) continue;
      *lag += by[source == MS_END_COMPUTE || source == MS_END_HOST];
    }
}

static MsLags table_of(MsSteady *s, const MsSteadySlot *slot) {
  MsLags all = ms_no_rows;
  for (int i = 0; i < slot->n; i++) {
    if (!has_rows(&slot->part[i])) continue;
    MsLags lags = in_turn(lags_of(s, &slot->part[i]), &slot->part[i]);
    all = ms_lags_product(&lags, &all);
  }
  return all;
}

/* For how long the host issues the messages of a slot; what walks through the schedule counts them by itself. */
static MsTime sends_of(const MsSteady *s, MsChunks of) {
  const MsChunk *chunk = of.forward ? of.forward : of.backward;
  int messages = (of.forward != NULL) + (of.backward && of.kind != MS_SLOT_W);
  return messages * ms_time_of(s->p->p2p_op.kernels * ms_program_machine(s->p, chunk->pool)->kernel_launch_s);
}

/* How many times as long as alone a message takes in the stream. */
static double slower(const MsSteady *s, const MsChunk *chunk, const MsTurnTime *x, gboolean backward) {
  MsTime alone = ms_time_of(ms_program_p2p_of(s->p, chunk, backward)->time_s);
  return alone > 0 ? MAX(1, (double)x->sent[backward] / (double)alone) : 1;
}

/* In the middle of a pipeline a slot's input is there before its turn, so that its first exchanges, and the messages of
 * the slot before it, run beside that slot. A forward and the backward behind it share what they take longer then. */
static MsTime longer_in_stream(MsSteady *s, MsChunks of, const MsLags *own, double sent[2]) {
  const MsLags *in_turn[2] = {own};
  const MsChunk *chunk = of.forward ? of.forward : of.backward;
  MsTime sends[2] = {sends_of(s, of), sends_of(s, of)};
  if (of.kind == MS_SLOT_W || s->p->scenario->options.ep_overlap) {
    MsTurnTime x = turn_time(s, of, TRUE);
    sent[0] = slower(s, chunk, &x, !of.forward),
    sent[1] = slower(s, of.backward ? of.backward : chunk, &x, of.backward != NULL);
    return x.time - relaxed_time(in_turn, 1, sends);
  }
  MsChunks both = {.forward = chunk, .backward = chunk, .kind = of.forward ? s->behind : of.kind};
  MsSteadySlot other = {0};
  parts_of(s, of.forward ? (MsChunks){.backward = chunk, .kind = both.kind} : (MsChunks){.forward = chunk}, &other);
  MsLags table = table_of(s, &other);
  in_turn[!of.backward] = &table, in_turn[!!of.backward] = own;
  double cycle = (double)own->to[MS_END_COMPUTE][MS_END_COMPUTE],
         sum = cycle + (double)table.to[MS_END_COMPUTE][MS_END_COMPUTE];
  MsTurnTime x = turn_time(s, both, TRUE);
  MsTime longer = x.time - relaxed_time(in_turn, 2, sends);
  sent[0] = sent[1] = slower(s, chunk, &x, of.forward != NULL); /* the other's runs beside it */
  g_free(other.part);
  return cycle > 0 ? (MsTime)((double)longer * cycle / sum) : 0;
}

static void measure_parts(MsSteady *s, MsSteadySlot *slot) {
  slot->length = g_new0(double, slot->n);
  for (int i = 0; i < slot->n; i++) {
    if (!has_rows(&slot->part[i])) continue;
    slot->length[i] = (double)MAX(0, lags_of(s, &slot->part[i])->to[MS_END_COMPUTE][MS_END_COMPUTE]);
    slot->sum += slot->length[i];
  }
}

/* Of what the slot is longer, each part has its share. */
static double share_of(const MsSteadySlot *slot, int part) {
  return slot->sum > 0 ? slot->length[part] / slot->sum : 0;
}

static MsSteadySlot slot_of(MsSteady *s, MsChunks of) {
  MsSteadySlot slot = {.sent = {1, 1}, .slowed = g_array_new(FALSE, FALSE, sizeof(MsSlowed))};
  parts_of(s, of, &slot);
  slot.lags = table_of(s, &slot);
  measure_parts(s, &slot);
  MsTurnTime alone = turn_time(s, of, FALSE);
  slot.time = alone.time, slot.parts = alone.parts;
  if (of.backward && !of.forward && of.kind != MS_SLOT_W && ms_program_fetches(s->p) &&
      !s->p->scenario->options.ep_overlap)
    behind_forward(s, of, &slot);
  const MsLags *lags = &slot.lags;
  MsTime relaxed = relaxed_time(&lags, 1, NULL);
  slot.longer[0] = slot.longer[1] = MAX(0, slot.time - relaxed);
  MsTime streams =
      s->p->layout->pp > 1 && !s->p->p2p_blocks ? longer_in_stream(s, of, lags, slot.sent) : slot.longer[1];
  slot.longer[1] = MAX(0, streams);
  lengthen(&slot.lags, slot.longer, slot.lags.to[MS_END_HOST][MS_END_HOST] >= relaxed);
  return slot;
}

static gboolean same_turn(const MsSteady *s, const MsChunks *a, const MsChunks *b) {
  return a->kind == b->kind && a->leaves_head == b->leaves_head && same_chunk(s, a->forward, b->forward) &&
         same_chunk(s, a->backward, b->backward) && (!s->p->message || same_messages(s, a, b));
}

static MsSteadySlot *find_slot(MsSteady *s, MsChunks of) {
  for (guint i = 0; i < s->known->len; i++) {
    Known *k = s->known->pdata[i];
    if (same_turn(s, &k->of, &of)) return &k->slot;
  }
  Known *k = g_new0(Known, 1);
  k->of = of, k->slot = slot_of(s, of);
  g_ptr_array_add(s->known, k);
  return &k->slot;
}

MsSteadySlot *ms_steady_slot(MsSteady *s, MsChunks of) {
  if (of.forward && of.backward) return find_slot(s, of);
  gsize chunk = (gsize)((of.forward ? of.forward : of.backward) - s->p->layout->chunks),
        kind = of.forward ? MS_SLOT_F : of.kind;
  MsSteadySlot **lone = &s->lone[2 * ((MS_SLOT_W + 1) * (gsize)s->alike[chunk] + kind) + (of.leaves_head != 0)];
  if (!*lone) *lone = find_slot(s, of);
  return *lone;
}

MsLags ms_steady_part(MsSteady *s, const MsSteadySlot *slot, int part) {
  const MsSlotPart *x = &slot->part[part];
  if (!has_rows(x)) return ms_no_rows;
  MsLags lags = in_turn(lags_of(s, x), x);
  double share = share_of(slot, part);
  lengthen(&lags, (MsTime[]){(MsTime)(share * (double)slot->longer[0]), (MsTime)(share * (double)slot->longer[1])},
           FALSE);
  return lags;
}

/* --- with collectives beside --- */

static void rows_of(MsSteady *s, const MsSlotPart *x) {
  const MsCostedPiece *piece = s->p->piece;
  if (x->forward >= 0 && x->backward >= 0)
    ms_rows_of_pair(&s->rows, &piece[x->forward].forward, &piece[x->backward].backward,
                    s->p->scenario->options.delay_wgrad);
  else if (x->forward >= 0) ms_rows_of_list(&s->rows, &piece[x->forward].forward, MS_LIST_ALL);
  else ms_rows_of_list(&s->rows, &piece[x->backward].backward, ms_list_part(x->rows));
}

/* As the engine shares: a link between those that use it, SMs to what takes them, a tenth at least to compute. */
static void slow_down(const MsMeets *meets, MsRow *row, MsBeside beside, int sms) {
  double left = MAX(10 * (sms - beside.sms), sms);
  if (row->use == MS_USE_COMPUTE && sms > 0) row->duration = (MsTime)((double)row->duration * (10 * sms) / left);
  int class = ms_meets_class(meets, row->kind);
  if (class == MS_SHARING_NONE) {
    if (row->use >= MS_USE_LINK0) row->duration *= 1 + beside.link[row->use - MS_USE_LINK0];
    return;
  }
  beside.running[class]++;
  row->duration = (MsTime)((double)row->duration / ms_meets_rate(meets, class, beside.running));
}

static const SharedPart *shared_part(MsSteady *s, const MsSlotPart *x, MsBeside beside) {
  for (guint i = 0; i < s->shared->len; i++) {
    const SharedPart *known = &g_array_index(s->shared, SharedPart, i);
    if (!memcmp(&known->part, x, sizeof *x) && !memcmp(&known->beside, &beside, sizeof beside)) return known;
  }
  int piece = MAX(x->forward, x->backward),
      sms = ms_program_machine(s->p, ms_work_pool_of_piece(s->p->work, piece))->sm_count;
  SharedPart new = {.part = *x, .beside = beside};
  rows_of(s, x);
  for (int i = 0; i < s->rows.n; i++) {
    MsRow *row = &s->rows.row[i];
    slow_down(s->p->meets, row, beside, sms);
    int class = ms_meets_class(s->p->meets, row->kind);
    if (class != MS_SHARING_NONE) new.class[class] += (double)row->duration;
    if (row->use >= MS_USE_LINK0) new.link[row->use - MS_USE_LINK0] += (double)row->duration;
    new.stream[row->stream] += (double)row->duration;
  }
  ms_lags_of_rows(&s->rows, sms, MS_FROM_ALL, &new.lags);
  g_array_append_val(s->shared, new);
  return &g_array_index(s->shared, SharedPart, s->shared->len - 1);
}

static guint8 most_of(const double class[MS_SHARING_CLASSES]) {
  guint8 most = MS_SHARING_NONE;
  for (int k = 0; k < MS_SHARING_CLASSES; k++)
    if (class[k] > 0 && (most == MS_SHARING_NONE || class[k] > class[most])) most = (guint8)k;
  return most;
}

/* [from, to) of its parts. No piece runs ahead of what leaves for the host (sim/graph.c, wait_leaving). */
static MsSlowed slowed(MsSteady *s, const MsSteadySlot *slot, int from, int to, MsBeside beside) {
  MsLags all = ms_no_rows;
  double link[MS_N_LINKS] = {0}, class[MS_SHARING_CLASSES] = {0}, stream[MS_N_STREAMS] = {0}, longer = 0;
  for (int i = from; i < to; i++) {
    if (!has_rows(&slot->part[i])) continue;
    const SharedPart *x = shared_part(s, &slot->part[i], beside);
    MsLags lags = in_turn(&x->lags, &slot->part[i]);
    all = ms_lags_product(&lags, &all);
    for (int k = 0; k < MS_N_LINKS; k++) link[k] += x->link[k];
    for (int k = 0; k < MS_SHARING_CLASSES; k++) class[k] += x->class[k];
    for (int k = 0; k < MS_N_STREAMS; k++) stream[k] += x->stream[k];
    if (to - from < slot->n) longer += share_of(slot, i) * (double)slot->longer[1];
  }
  if (to - from == slot->n) longer = (double)slot->longer[1];
  MsSlowed r = {.beside = beside,
                .use.class = most_of(class),
                .length = (double)MAX(1, all.to[MS_END_COMPUTE][MS_END_COMPUTE]) + longer};
  r.length = MAX(r.length, link[MS_USE_HOSTLINK - MS_USE_LINK0]);
  for (int k = 0; k < MS_N_STREAMS; k++) r.length = MAX(r.length, stream[k]);
  for (int k = 0; k < MS_N_LINKS; k++) r.use.of[k] = MIN(1, link[k] / r.length);
  return r;
}

MsSlowed ms_steady_beside(MsSteady *s, MsSteadySlot *slot, int part, MsBeside beside) {
  if (part >= 0) return slowed(s, slot, part, part + 1, beside);
  for (guint i = 0; i < slot->slowed->len; i++) {
    const MsSlowed *known = &g_array_index(slot->slowed, MsSlowed, i);
    if (!memcmp(&known->beside, &beside, sizeof beside)) return *known;
  }
  MsSlowed r = slowed(s, slot, 0, slot->n, beside);
  g_array_append_val(slot->slowed, r);
  return r;
}
