/* src/sim/graph.c - the step as a graph: every row of every slot, laid down in an order in which each task's waits
 * already exist. */
#include "sim/graph.h"
#include "base/err.h"
#include "sim/account.h"
#include "step/pair.h"
#include <string.h>

#define NONE G_MAXUINT32

typedef struct { /* what is on its way for the next piece of a stage: parameters (FSDP), tensors from the host */
  int piece;     /* whose, -1 = none */
  gboolean backward;
  guint n;
  guint32 id[4]; /* the last row on each stream */
} Fetch;

typedef struct {
  int piece;
  gboolean backward;
} Need;
static const Need nobody = {-1, FALSE};

typedef struct {
  const MsProgram *p;
  const MsSchedule *schedule;
  MsGraph *graph;
  int stages, chunks, microbatches;
  int *next;          /* [stages] slot to lay down next */
  guint32 *arrived_f; /* [virtual stage * microbatches + mb] task that brings its input, NONE = not yet */
  guint32 *arrived_b; /* the same for its output gradient */
  guint32 **gather;   /* [stages][gather rows] task of each parameter gather row */
  guint32 *reduced;   /* [stages * streams] last gradient reduction on each stream, NONE = none */
  guint32 *tip;       /* [stages] last task of the chain of the last slot */
  guint32 *send;      /* [stages] last blocking send, NONE = none */
  guint32
      *split;  /* [virtual stage * microbatches + mb] end of its input gradient: what its weight gradient waits for */
  int *left_b; /* [stages * chunks] weight gradients still to come */
  guint32 *scratch; /* [n_scratch] task of each row of the list being laid down */
  int n_scratch;
  Fetch *fetch; /* [2 * stages] of the forward (or only) pass and of the backward pass beside it */
  gboolean fetches;
  guint32 *leaving; /* [2 * stages] last copies to the host of the two pieces before, NONE = none */
  guint32 *slot_task;
  const guint32 *slot_base;
} Lower;

/* --- laying down one costed list --- */

static guint32 add_task(Lower *l, int stage, const MsCosted *c, int i, MsTime duration, const guint32 *wait, guint n) {
  const MsOp *op = &c->list->op[i];
  MsTask task = {.device = (guint32)stage,
                 .stream = op->stream,
                 .use = c->use[i],
                 .host_sync = (op->flags & MS_OPF_SYNC) != 0,
                 .sms = c->sms[i],
                 .duration = duration,
                 .launch = c->launch[i],
                 .tag = c->tag + (guint32)i};
  return ms_graph_add(l->graph, &task, wait, n);
}

static guint32 add_row(Lower *l, int stage, const MsCosted *c, int i, const guint32 *wait, guint n) {
  return add_task(l, stage, c, i, c->duration[i], wait, n);
}

/* Lays the part down and returns the end of its chain, NONE when it has no rows. A row whose waits are all outside the
 * part waits for the entry. */
static guint32 lay_list(Lower *l, const MsCosted *c, guint32 device, const guint32 *entry, guint n_entry,
                        MsListPart part) {
  guint32 last = NONE;
  if (c->list->n > l->n_scratch) {
    l->n_scratch = c->list->n;
    l->scratch = g_renew(guint32, l->scratch, l->n_scratch);
  }
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    guint32 wait[8];
    guint n = 0;
    l->scratch[i] = NONE;
    if (!ms_in_list_part(op, part)) continue;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= 0 && l->scratch[op->wait[j]] != NONE) wait[n++] = l->scratch[op->wait[j]];
    if (n == 0)
      for (guint j = 0; j < n_entry && n < G_N_ELEMENTS(wait); j++)
        if (entry[j] != NONE) wait[n++] = entry[j];
    last = l->scratch[i] = add_row(l, (int)device, c, i, wait, n);
  }
  if (c->list->n > 0 && l->scratch[c->list->tip] != NONE) return l->scratch[c->list->tip];
  return last;
}

/* --- a forward layer beside a backward layer: rows in the order of pair.c, which wait only inside their own list ---
 */

typedef struct {
  const MsCosted *c;
  guint32 *id; /* [n] task of each row, NONE = not laid down yet */
  guint32 entry[8];
  guint n_entry;
} Side;

static void lay_row(Lower *l, int stage, Side *side, int i) {
  const MsOp *op = &side->c->list->op[i];
  guint32 wait[12];
  guint n = 0;
  gboolean own = FALSE;
  for (int j = 0; j < 3; j++) {
    if (op->wait[j] < 0) continue;
    own = TRUE;
    if (side->id[op->wait[j]] != NONE)
      wait[n++] = side->id[op->wait[j]]; /* a deferred weight gradient holds nobody up */
  }
  if (!own)
    for (guint j = 0; j < side->n_entry; j++) wait[n++] = side->entry[j];
  side->id[i] = add_task(l, stage, side->c, i, side->c->beside[i], wait, n);
}

static void side_init(Side *side, const MsCosted *c, const guint32 *entry, guint n_entry) {
  side->c = c;
  side->id = g_new(guint32, MAX(1, c->list->n));
  for (int i = 0; i < c->list->n; i++) side->id[i] = NONE;
  side->n_entry = MIN(n_entry, 8);
  memcpy(side->entry, entry, side->n_entry * sizeof *entry);
}

static guint32 side_tip(Side *side) {
  guint32 tip = side->c->list->n > 0 ? side->id[side->c->list->tip] : NONE;
  g_free(side->id);
  return tip;
}

static void lay_pair(Lower *l, int stage, const MsCosted *f, const MsCosted *b, guint32 *f_entry, guint *n_f,
                     guint32 *b_entry, guint *n_b) {
  Side side[2];
  side_init(&side[0], f, f_entry, *n_f);
  side_init(&side[1], b, b_entry, *n_b);
  int n = f->list->n + b->list->n;
  g_autofree MsPairRow *order = g_new(MsPairRow, MAX(n, 1));
  n = ms_pair_order(f->list, b->list, l->p->scenario->options.delay_wgrad, order);
  for (int i = 0; i < n; i++) lay_row(l, stage, &side[order[i].backward], order[i].row);
  f_entry[0] = side_tip(&side[0]), *n_f = 1;
  b_entry[0] = side_tip(&side[1]), *n_b = 1;
}

/* What happens at the borders of the pieces of one slot: parameters awaited before a forward, gradients reduced after a
 * backward. */
typedef struct {
  int stage, chunk;
  gboolean gather, reduce;
} Hooks;

typedef struct {
  gboolean backward;
  MsListPart part;
} Pass;
static Pass pass_of(MsSlotKind kind) {
  return (Pass){kind != MS_SLOT_F, kind == MS_SLOT_I   ? MS_LIST_INPUT
                                   : kind == MS_SLOT_W ? MS_LIST_WEIGHT
                                                       : MS_LIST_ALL};
}

static guint wait_gather(Lower *l, const Hooks *h, int piece, guint32 *entry, guint n);
static void issue_reduce(Lower *l, const Hooks *h, int piece, guint32 tip);

/* --- fetched one piece ahead: parameters that FSDP gathers, tensors that were offloaded --- */

static gboolean needs_params(const Lower *l, int piece, MsSlotKind kind) {
  if (!l->p->unit || l->p->unit[piece].gather.list->n == 0 || kind == MS_SLOT_W) return FALSE;
  return kind == MS_SLOT_F || ms_work_is_unit(&l->p->work->pieces[piece]);
}

static gboolean needs_fetch(const Lower *l, int piece, MsSlotKind kind) {
  return needs_params(l, piece, kind) ||
         (kind != MS_SLOT_F && kind != MS_SLOT_W && l->p->piece[piece].reload.list->n > 0);
}

static void fetch_list(Lower *l, guint32 device, Fetch *f, const MsCosted *c, const guint32 *entry, guint n_entry) {
  for (int i = 0; i < c->list->n; i++) {
    guint32 id = add_row(l, (int)device, c, i, entry, n_entry);
    guint k = 0;
    while (k < f->n && ms_graph_task(l->graph, f->id[k])->stream != c->list->op[i].stream) k++;
    f->id[k] = id, f->n = MAX(f->n, k + 1);
  }
}

/* May start when the piece before it does, whose entry is given. */
static void fetch(Lower *l, guint32 device, int side, Need need, const guint32 *entry, guint n_entry) {
  Fetch *f = &l->fetch[2 * device + (guint)side];
  *f = (Fetch){.piece = need.piece, .backward = need.backward};
  if (needs_params(l, need.piece, need.backward ? MS_SLOT_B : MS_SLOT_F))
    fetch_list(l, device, f, &l->p->unit[need.piece].gather, entry, n_entry);
  if (need.backward) fetch_list(l, device, f, &l->p->piece[need.piece].reload, entry, n_entry);
}

/* The entry of a piece with what it needs; `next` (nobody: none): for which pass of which piece the next fetch goes on
 * while it runs. */
static guint use_fetched(Lower *l, guint32 device, int side, int piece, MsSlotKind kind, Need next, guint32 *entry,
                         guint n) {
  Fetch *f = &l->fetch[2 * device + (guint)side], here = {.piece = -1};
  gboolean backward = kind != MS_SLOT_F;
  guint32 before[8];
  guint n_before = n;
  memcpy(before, entry, n * sizeof *entry);
  if (needs_fetch(l, piece, kind)) {
    if (f->piece != piece || f->backward != backward) fetch(l, device, side, (Need){piece, backward}, entry, n);
    here = *f;
    f->piece = -1;
  }
  if (next.piece >= 0) fetch(l, device, side, next, before, n_before); /* one piece ahead, no further */
  for (guint i = 0; i < here.n && n < 7; i++) entry[n++] = here.id[i];
  if (needs_params(l, piece, kind) && l->p->unit[piece].cast.list->n > 0) {
    entry[0] = lay_list(l, &l->p->unit[piece].cast, device, entry, n, MS_LIST_ALL);
    n = 1;
  }
  return n;
}

/* The host takes the tensors of one piece while the next one runs; the one after that waits for their memory. */
static guint wait_leaving(Lower *l, guint32 device, guint32 *entry, guint n) {
  guint32 *leaving = &l->leaving[2 * device];
  if (leaving[0] != NONE && n < 7) entry[n++] = leaving[0];
  leaving[0] = leaving[1], leaving[1] = NONE;
  return n;
}

static void note_leaving(Lower *l, guint32 device, guint32 from) {
  for (guint32 i = ms_graph_count(l->graph); i-- > from;)
    if (ms_graph_task(l->graph, i)->stream == MS_STREAM_D2H) {
      l->leaving[2 * device + 1] = i;
      return;
    }
}

static void reduce_unit(Lower *l, guint32 device, int piece, guint32 tip) {
  const MsCosted *c = &l->p->unit[piece].reduce;
  for (int i = 0; i < c->list->n; i++) {
    guint32 id = add_row(l, (int)device, c, i, &tip, tip != NONE);
    if (l->reduced) l->reduced[MS_N_STREAMS * device + c->list->op[i].stream] = id;
  }
}

/* The piece after the i-th of a pass over the chunk, when it needs something; `then` after the last. */
static Need next_in_chunk(const Lower *l, const MsChunk *chunk, MsSlotKind kind, int i, Need then) {
  int n = ms_work_chunk_length(chunk);
  if (++i >= n) return then;
  int piece = ms_work_chunk_piece(l->p->work, chunk, kind == MS_SLOT_F ? i : n - 1 - i);
  return needs_fetch(l, piece, kind) ? (Need){piece, kind != MS_SLOT_F} : nobody;
}

/* The first piece of the next slot of a stage that is not a weight gradient, from `at` on. */
static Need next_in_slots(const Lower *l, int stage, int at) {
  if (!l->fetches) return nobody;
  while (at < l->schedule->n[stage] && l->schedule->slot[stage][at].kind == MS_SLOT_W) at++;
  if (at == l->schedule->n[stage]) return nobody;
  const MsSlot *slot = &l->schedule->slot[stage][at];
  if (slot->kind == MS_SLOT_FB && l->p->scenario->options.ep_overlap) return nobody; /* it fetches its own */
  return next_in_chunk(l, ms_layout_chunk(l->p->layout, stage, slot->chunk),
                       slot->kind == MS_SLOT_FB ? MS_SLOT_F : (MsSlotKind)slot->kind, -1, nobody);
}

static gboolean anything_fetched(const MsProgram *p) {
  for (int i = 0; i < p->work->n_pieces; i++)
    if (p->piece[i].reload.list->n > 0) return TRUE;
  return p->unit != NULL;
}

static guint32 lay_chunk(Lower *l, const MsLoneSlot *slot, guint32 device, guint32 *entry, guint n_entry,
                         const Hooks *hooks, Need then) {
  const MsChunk *chunk = slot->chunk;
  MsSlotKind kind = slot->kind;
  Pass pass = pass_of(kind);
  int n = ms_work_chunk_length(chunk);
  guint32 tip = NONE;
  for (int i = 0; i < n; i++) {
    int at = pass.backward ? n - 1 - i : i, piece = ms_work_chunk_piece(l->p->work, chunk, at);
    const MsCostedPiece *c = &l->p->piece[piece];
    if (hooks && hooks->gather) n_entry = wait_gather(l, hooks, at, entry, n_entry);
    if (l->fetches && !pass.backward) n_entry = wait_leaving(l, device, entry, n_entry);
    if (l->fetches && kind != MS_SLOT_W)
      n_entry = use_fetched(l, device, 0, piece, kind, next_in_chunk(l, chunk, kind, i, then), entry, n_entry);
    guint32 from = ms_graph_count(l->graph);
    MsSlotKind own = ms_piece_slot(l->p, kind, piece, slot->leaves_head);
    guint32 laid = own == MS_N_SLOTS ? NONE
                                     : lay_list(l, pass.backward ? &c->backward : &c->forward, device, entry, n_entry,
                                                pass_of(own).part);
    if (laid != NONE) entry[0] = tip = laid, n_entry = 1;
    if (l->fetches && !pass.backward) note_leaving(l, device, from);
    if (l->p->unit && pass.backward && kind != MS_SLOT_I) reduce_unit(l, device, piece, tip);
    if (hooks && hooks->reduce && tip != NONE) issue_reduce(l, hooks, at, tip);
  }
  if (hooks && hooks->reduce && n == 0) issue_reduce(l, hooks, 0, n_entry > 0 ? entry[0] : NONE);
  return tip;
}

/* --- the step's own rows --- */

/* Rows [from, to) of a reduce or gather list; their waits are inside the same bucket. ids may be NULL. */
static void lay_bucket(Lower *l, int stage, const MsCosted *c, int from, int to, guint32 after, guint32 *ids) {
  guint32 base = ms_graph_count(l->graph);
  for (int i = from; i < to; i++) {
    const MsOp *op = &c->list->op[i];
    guint32 wait[4];
    guint n = 0;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= from) wait[n++] = base + (guint32)(op->wait[j] - from);
    if (n == 0 && after != NONE) wait[n++] = after;
    guint32 id = add_row(l, stage, c, i, wait, n);
    if (ids) ids[i] = id;
  }
}

/* The whole gather list of a stage is issued at the start of the step; each forward piece waits for its own bucket. */
static void lay_before(Lower *l) {
  for (int s = 0; s < l->stages; s++) {
    const MsCostedStep *step = &l->p->step[s];
    l->tip[s] = lay_list(l, &step->before, (guint32)s, NULL, 0, MS_LIST_ALL);
    l->gather[s] = g_new(guint32, MAX(1, step->gather.list->n));
    for (int i = 0, to; i < step->gather.list->n; i = to) {
      const MsBucket *at = step->ops.gather_at;
      for (to = i + 1; to < step->gather.list->n && at[to].chunk == at[i].chunk && at[to].piece == at[i].piece;) to++;
      lay_bucket(l, s, &step->gather, i, to, NONE, l->gather[s]);
    }
  }
}

static guint wait_gather(Lower *l, const Hooks *h, int piece, guint32 *entry, guint n) {
  const MsCostedStep *step = &l->p->step[h->stage];
  for (int i = 0; i < step->gather.list->n; i++)
    if (step->ops.gather_at[i].chunk == h->chunk && step->ops.gather_at[i].piece == piece && n < 7)
      entry[n++] = l->gather[h->stage][i];
  return n;
}

static void issue_reduce(Lower *l, const Hooks *h, int piece, guint32 tip) {
  const MsCostedStep *step = &l->p->step[h->stage];
  for (int i = 0; i < step->reduce.list->n; i++) {
    if (step->ops.reduce_at[i].chunk != h->chunk || step->ops.reduce_at[i].piece != piece) continue;
    int to = i + 1;
    while (to < step->reduce.list->n && step->ops.reduce_at[to].chunk == h->chunk &&
           step->ops.reduce_at[to].piece == piece)
      to++;
    guint32 first = ms_graph_count(l->graph);
    lay_bucket(l, h->stage, &step->reduce, i, to, tip, NULL);
    for (int k = i; k < to; k++)
      l->reduced[MS_N_STREAMS * h->stage + step->reduce.list->op[k].stream] = first + (guint32)(k - i);
    return;
  }
}

static gboolean crosses_stages(const MsOp *op) {
  return op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING;
}

/* Waits of row i of a list whose rows so far are id[]; the stage's tip when it has none. */
static guint row_waits(const Lower *l, int stage, const MsOp *op, const guint32 *id, guint32 *wait) {
  guint n = 0;
  for (int j = 0; j < 3; j++)
    if (op->wait[j] >= 0) wait[n++] = id[op->wait[j]];
  if (n == 0 && l->tip[stage] != NONE) wait[n++] = l->tip[stage];
  return n;
}

/* Rows of one stage up to its next row over a group that spans stages. */
static void lay_until_crossing(Lower *l, int stage, int *at, guint32 *id) {
  const MsCosted *c = &l->p->step[stage].after;
  for (; *at < c->list->n && !crosses_stages(&c->list->op[*at]); (*at)++) {
    guint32 wait[4];
    guint n = row_waits(l, stage, &c->list->op[*at], id, wait);
    id[*at] = add_row(l, stage, c, *at, wait, n);
  }
}

/* After-rows go in lockstep: a row over a group that spans stages starts when all its stages have come so far.
 * Post-validation (docs/theory/schedules.md 5) lets each stage go on with its own part of the gradient norm. */
static void lay_after(Lower *l) {
  g_autofree int *at = g_new0(int, (guint)l->stages);
  g_autofree guint32 *barrier = g_new(guint32, 4 * (guint)l->stages);
  g_autofree guint32 **id = g_new0(guint32 *, (guint)l->stages);
  for (int s = 0; s < l->stages; s++) id[s] = g_new(guint32, MAX(1, l->p->step[s].after.list->n));
  const MsGroupKind order[] = {MS_GROUP_EMBEDDING, MS_GROUP_WORLD};
  for (guint k = 0; k <= G_N_ELEMENTS(order); k++) {
    for (int s = 0; s < l->stages; s++) lay_until_crossing(l, s, &at[s], id[s]);
    if (k == G_N_ELEMENTS(order)) break;
    guint n = 0;
    for (int s = 0; s < l->stages; s++) {
      const MsOpList *list = l->p->step[s].after.list;
      if (at[s] < list->n && list->op[at[s]].group == order[k])
        n += row_waits(l, s, &list->op[at[s]], id[s], &barrier[n]);
    }
    for (int s = 0; s < l->stages; s++) {
      const MsCosted *c = &l->p->step[s].after;
      if (at[s] >= c->list->n || c->list->op[at[s]].group != order[k]) continue;
      if (l->p->skewed && order[k] == MS_GROUP_WORLD) n = row_waits(l, s, &c->list->op[at[s]], id[s], barrier);
      id[s][at[s]] = add_row(l, s, c, at[s], barrier, n);
      at[s]++;
    }
  }
  for (int s = 0; s < l->stages; s++) g_free(id[s]);
}

/* --- slots --- */

static guint32 *arrival(Lower *l, gboolean backward, int virtual_stage, int mb) {
  return &(backward ? l->arrived_b : l->arrived_f)[(size_t)virtual_stage * (size_t)l->microbatches + (size_t)mb];
}

static guint32 send(Lower *l, int stage, guint32 tip, int to_virtual, int mb, gboolean backward) {
  int owner, chunk;
  ms_virtual_owner(l->schedule, to_virtual, &owner, &chunk);
  guint32 task_id = tip;
  if (owner != stage) {
    MsTask task = {.device = (guint32)stage,
                   .stream = MS_STREAM_PP_SEND,
                   .use = l->p->p2p.level ? MS_USE_LINK1 : MS_USE_LINK0,
                   .sms = l->p->scenario->hardware->sm_count > 0 ? l->p->p2p.sms : 0,
                   .duration = ms_time_of(l->p->p2p.time_s),
                   .launch = ms_time_of(l->p->p2p_op.kernels * l->p->scenario->hardware->kernel_launch_s),
                   .tag = l->p->p2p_tag};
    if (backward)
      task.stream = MS_STREAM_PP_RECV; /* the second communicator: gradients do not queue behind activations */
    task_id = ms_graph_add(l->graph, &task, &tip, 1);
    if (l->p->p2p_blocks) l->send[stage] = task_id;
  }
  *arrival(l, backward, to_virtual, mb) = task_id;
  return task_id;
}

/* The task that brings the input of a slot; FALSE when it is not laid down yet. *task NONE: nothing to wait for. */
static gboolean input_ready(Lower *l, int virtual_stage, int mb, gboolean backward, guint32 *task) {
  *task = NONE;
  if (!backward && ms_virtual_before(l->schedule, virtual_stage) < 0) return TRUE;
  guint32 t = *arrival(l, backward, virtual_stage, mb);
  if (t == NONE) return FALSE;
  *task = t;
  return TRUE;
}

/* A blocking exchange ends in a device synchronisation: the host issues nothing of the next slot before the message is
 * here (docs/theory/communication.md 6). */
static guint32 receive(Lower *l, int stage, guint32 input) {
  if (!l->p->p2p_blocks || (int)ms_graph_task(l->graph, input)->device == stage) return input;
  MsTask task = {.device = (guint32)stage,
                 .stream = MS_STREAM_SIDE,
                 .use = MS_USE_NOTHING,
                 .host_sync = 1,
                 .tag = l->p->p2p_tag,
                 .launch = ms_time_of(l->p->scenario->hardware->sync_s)};
  return ms_graph_add(l->graph, &task, &input, 1);
}

static guint entry_of(Lower *l, int stage, guint32 input, guint32 *entry) {
  guint n = 0;
  if (input != NONE) entry[n++] = receive(l, stage, input);
  if (l->tip[stage] != NONE && n == 0) entry[n++] = l->tip[stage];
  if (l->send[stage] != NONE) entry[n++] = l->send[stage], l->send[stage] = NONE;
  return n;
}

static gboolean first_microbatch(const Lower *l, int chunk, int mb) {
  int first, count;
  ms_chunk_microbatches(l->schedule, chunk, &first, &count);
  return mb == first;
}

static gboolean last_backward(Lower *l, int stage, int chunk) { return --l->left_b[stage * l->chunks + chunk] == 0; }

/* The output of forward at virtual stage v goes on to the next one, or is the loss, after which the backward of the
 * same stage may run. */
static void forward_done(Lower *l, int stage, int v, int mb, guint32 tip) {
  int next = ms_virtual_after(l->schedule, v);
  if (next < 0) *arrival(l, TRUE, v, mb) = tip;
  else if (tip != NONE) send(l, stage, tip, next, mb, FALSE);
}

static void backward_done(Lower *l, int stage, int v, int mb, guint32 tip) {
  int before = ms_virtual_before(l->schedule, v);
  if (before >= 0) send(l, stage, tip, before, mb, TRUE);
}

static gboolean lay_forward(Lower *l, int stage, int chunk, int mb) {
  int v = ms_virtual_stage(l->schedule, stage, chunk);
  guint32 input, entry[8];
  if (!input_ready(l, v, mb, FALSE, &input)) return FALSE;
  guint n = entry_of(l, stage, input, entry);
  Hooks hooks = {.stage = stage, .chunk = chunk, .gather = first_microbatch(l, chunk, mb)};
  guint32 before = l->tip[stage];
  MsLoneSlot slot = {.chunk = ms_layout_chunk(l->p->layout, stage, chunk), .kind = MS_SLOT_F};
  guint32 tip = lay_chunk(l, &slot, (guint32)stage, entry, n, &hooks, next_in_slots(l, stage, l->next[stage] + 1));
  if (tip == NONE) tip = input != NONE ? input : before; /* an empty virtual stage passes its input on */
  l->tip[stage] = tip;
  forward_done(l, stage, v, mb, tip);
  return TRUE;
}

static MsLoneSlot backward_slot(const Lower *l, int stage, MsSlotKind kind, int chunk, int mb) {
  return (MsLoneSlot){.chunk = ms_layout_chunk(l->p->layout, stage, chunk),
                      .kind = kind,
                      .leaves_head = ms_leaves_head(l->p, l->schedule, stage, chunk, mb)};
}

/* Whole backward (B) or its input gradient (I). */
static gboolean lay_backward(Lower *l, int stage, MsSlotKind kind, int chunk, int mb) {
  int v = ms_virtual_stage(l->schedule, stage, chunk);
  guint32 input, entry[8];
  if (!input_ready(l, v, mb, TRUE, &input)) return FALSE;
  guint n = entry_of(l, stage, input, entry);
  Hooks hooks = {.stage = stage, .chunk = chunk, .reduce = kind == MS_SLOT_B && last_backward(l, stage, chunk)};
  MsLoneSlot slot = backward_slot(l, stage, kind, chunk, mb);
  guint32 tip = lay_chunk(l, &slot, (guint32)stage, entry, n, &hooks, next_in_slots(l, stage, l->next[stage] + 1));
  if (tip == NONE) tip = input;
  l->tip[stage] = tip;
  if (kind == MS_SLOT_I) l->split[(size_t)v * (size_t)l->microbatches + (size_t)mb] = tip;
  backward_done(l, stage, v, mb, tip);
  return TRUE;
}

/* Weight gradients: they wait for their own input gradient and for their turn on the compute stream; nobody waits for
 * them. */
static gboolean lay_weight(Lower *l, int stage, int chunk, int mb) {
  int v = ms_virtual_stage(l->schedule, stage, chunk);
  guint32 entry[8] = {l->split[(size_t)v * (size_t)l->microbatches + (size_t)mb]};
  if (entry[0] == NONE) return FALSE;
  Hooks hooks = {.stage = stage, .chunk = chunk, .reduce = last_backward(l, stage, chunk)};
  MsLoneSlot slot = backward_slot(l, stage, MS_SLOT_W, chunk, mb);
  guint32 tip = lay_chunk(l, &slot, (guint32)stage, entry, 1, &hooks, nobody);
  if (tip != NONE) l->tip[stage] = tip;
  return TRUE;
}

/* One slot of the combined schedule, piece by piece in the order of pair.c. */
static void lay_layers_paired(Lower *l, int stage, const MsLoneSlot *slot, guint32 *f_entry, guint n_f,
                              guint32 *b_entry, guint n_b, const Hooks *f_hooks, const Hooks *b_hooks, guint32 *f_tip,
                              guint32 *b_tip) {
  const MsChunk *f = slot->chunk, *b = slot->chunk2;
  const MsWork *w = l->p->work;
  int nf = ms_work_chunk_length(f), nb = ms_work_chunk_length(b);
  *f_tip = *b_tip = NONE;
  MsPairWalk walk = ms_pair_walk(f, b);
  while (ms_pair_step(&walk)) {
    const MsCosted *fp = walk.f >= 0 ? &l->p->piece[ms_work_chunk_piece(w, f, walk.f)].forward : NULL;
    const MsCosted *bp = walk.b >= 0 ? &l->p->piece[ms_work_chunk_piece(w, b, walk.b)].backward : NULL;
    int next_f = walk.f >= 0 ? walk.f : walk.next_f;
    if (next_f < nf && f_hooks && f_hooks->gather) n_f = wait_gather(l, f_hooks, next_f, f_entry, n_f);
    if (l->fetches && fp)
      n_f = use_fetched(l, (guint32)stage, 0, ms_work_chunk_piece(w, f, walk.f), MS_SLOT_F,
                        next_in_chunk(l, f, MS_SLOT_F, walk.f, nobody), f_entry, n_f);
    if (l->fetches && bp)
      n_b = use_fetched(l, (guint32)stage, 1, ms_work_chunk_piece(w, b, walk.b), MS_SLOT_B,
                        next_in_chunk(l, b, MS_SLOT_B, nb - 1 - walk.b, nobody), b_entry, n_b);
    if (fp && bp) {
      lay_pair(l, stage, fp, bp, f_entry, &n_f, b_entry, &n_b);
      *f_tip = f_entry[0], *b_tip = b_entry[0];
    } else if (bp) {
      MsSlotKind own = ms_piece_slot(l->p, MS_SLOT_B, ms_work_chunk_piece(w, b, walk.b),
                                     slot->leaves_head); /* the head is never in a pair */
      guint32 laid = lay_list(l, bp, (guint32)stage, b_entry, n_b, pass_of(own).part);
      if (laid != NONE) b_entry[0] = *b_tip = laid, n_b = 1;
    } else {
      guint32 laid = lay_list(l, fp, (guint32)stage, f_entry, n_f, MS_LIST_ALL);
      if (laid != NONE) f_entry[0] = *f_tip = laid, n_f = 1;
    }
    if (bp && l->p->unit) reduce_unit(l, (guint32)stage, ms_work_chunk_piece(w, b, walk.b), *b_tip);
    if (bp && b_hooks && b_hooks->reduce && *b_tip != NONE) issue_reduce(l, b_hooks, walk.b, *b_tip);
  }
}

/* Forward of one microbatch with backward of another: layers in pairs with EP overlap, one after the other without. */
static gboolean lay_both(Lower *l, int stage, const MsSlot *slot) {
  int vf = ms_virtual_stage(l->schedule, stage, slot->chunk), vb = ms_virtual_stage(l->schedule, stage, slot->chunk2);
  guint32 f_in, b_in, f_entry[8], b_entry[8], f_tip, b_tip;
  if (!input_ready(l, vf, slot->mb, FALSE, &f_in) || !input_ready(l, vb, slot->mb2, TRUE, &b_in)) return FALSE;
  if (!l->p->scenario->options.ep_overlap)
    return lay_forward(l, stage, slot->chunk, slot->mb) && lay_backward(l, stage, MS_SLOT_B, slot->chunk2, slot->mb2);
  guint32 before = l->tip[stage], sent = l->send[stage];
  guint n_f = entry_of(l, stage, f_in, f_entry);
  l->send[stage] = sent;
  guint n_b = entry_of(l, stage, b_in, b_entry);
  Hooks f_hooks = {.stage = stage, .chunk = slot->chunk, .gather = first_microbatch(l, slot->chunk, slot->mb)};
  Hooks b_hooks = {.stage = stage, .chunk = slot->chunk2, .reduce = last_backward(l, stage, slot->chunk2)};
  MsLoneSlot pair = {ms_layout_chunk(l->p->layout, stage, slot->chunk),
                     ms_layout_chunk(l->p->layout, stage, slot->chunk2), MS_SLOT_FB,
                     ms_leaves_head(l->p, l->schedule, stage, slot->chunk2, slot->mb2)};
  lay_layers_paired(l, stage, &pair, f_entry, n_f, b_entry, n_b, &f_hooks, &b_hooks, &f_tip, &b_tip);
  if (f_tip == NONE) f_tip = f_in != NONE ? f_in : before;
  if (b_tip == NONE) b_tip = b_in;
  l->tip[stage] = b_tip;
  forward_done(l, stage, vf, slot->mb, f_tip);
  backward_done(l, stage, vb, slot->mb2, b_tip);
  return TRUE;
}

static gboolean lay_slot(Lower *l, int stage, const MsSlot *slot) {
  switch ((MsSlotKind)slot->kind) {
  case MS_SLOT_F: return lay_forward(l, stage, slot->chunk, slot->mb);
  case MS_SLOT_B:
  case MS_SLOT_I: return lay_backward(l, stage, slot->kind, slot->chunk, slot->mb);
  case MS_SLOT_W: return lay_weight(l, stage, slot->chunk, slot->mb);
  case MS_SLOT_FB: return lay_both(l, stage, slot);
  default: MS_BUG("slot kind %d reached the lowering", slot->kind);
  }
}

static void lay_slots(Lower *l) {
  gboolean moved = TRUE;
  while (moved) {
    moved = FALSE;
    for (int s = 0; s < l->stages; s++)
      while (l->next[s] < l->schedule->n[s]) {
        int i = l->next[s];
        if (l->slot_task) l->slot_task[l->slot_base[s] + (guint32)i] = ms_graph_count(l->graph);
        if (!lay_slot(l, s, &l->schedule->slot[s][i])) break;
        l->next[s]++;
        moved = TRUE;
      }
  }
  for (int s = 0; s < l->stages; s++)
    if (l->next[s] < l->schedule->n[s]) MS_BUG("schedule deadlocks at stage %d slot %d", s, l->next[s]);
}

double ms_program_tasks(const MsProgram *p, const MsSchedule *schedule) {
  double tasks = 0;
  for (int s = 0; s < p->layout->pp; s++)
    for (int c = 0; c < p->layout->vpp; c++) {
      const MsChunk *chunk = ms_layout_chunk(p->layout, s, c);
      double rows = 2;
      for (int i = 0; i < ms_work_chunk_length(chunk); i++) {
        const MsCostedPiece *piece = &p->piece[ms_work_chunk_piece(p->work, chunk, i)];
        rows += piece->forward.list->n + piece->backward.list->n + (p->unit ? 8 : 0);
      }
      int first, count;
      ms_chunk_microbatches(schedule, c, &first, &count);
      tasks += rows * count;
    }
  return tasks;
}

static guint32 *filled(size_t n, guint32 value) {
  guint32 *a = g_new(guint32, MAX(n, 1));
  for (size_t i = 0; i < n; i++) a[i] = value;
  return a;
}

static MsGraph *new_graph(const MsProgram *p, int devices, double tasks) {
  MsGraph *graph = ms_graph_new(devices, MS_N_STREAMS);
  ms_graph_set_sms(graph, MAX(p->scenario->hardware->sm_count, 1));
  ms_graph_reserve(graph, (guint)tasks, (guint)(1.3 * tasks));
  return graph;
}

/* What follows the last slot on a stage waits for its chain and for its gradient reductions. */
static void join_reductions(Lower *l) {
  for (int s = 0; s < l->stages; s++) {
    guint32 wait[MS_N_STREAMS + 1];
    guint n = 0;
    if (l->tip[s] != NONE) wait[n++] = l->tip[s];
    for (int k = 0; k < MS_N_STREAMS; k++) {
      guint32 r = l->reduced[MS_N_STREAMS * s + k];
      if (r != NONE) wait[n++] = r;
    }
    if (n < 2) continue;
    MsTask join = {.device = (guint32)s, .stream = MS_STREAM_SIDE, .use = MS_USE_NOTHING, .tag = l->p->p2p_tag};
    l->tip[s] = ms_graph_add(l->graph, &join, wait, n);
  }
}

MsGraph *ms_lower_full(const MsProgram *p, const MsSchedule *schedule, guint32 *slot_task, const guint32 *slot_base) {
  Lower l = {.p = p,
             .schedule = schedule,
             .stages = schedule->stages,
             .chunks = schedule->chunks,
             .microbatches = schedule->microbatches,
             .slot_task = slot_task,
             .slot_base = slot_base};
  l.graph = new_graph(p, l.stages, ms_program_tasks(p, schedule) + 64.0 * l.stages);
  size_t virtual_mb = (size_t)(l.stages * l.chunks) * (size_t)l.microbatches;
  l.next = g_new0(int, l.stages);
  l.arrived_f = filled(virtual_mb, NONE), l.arrived_b = filled(virtual_mb, NONE), l.split = filled(virtual_mb, NONE);
  l.gather = g_new0(guint32 *, l.stages), l.reduced = filled((size_t)MS_N_STREAMS * (size_t)l.stages, NONE);
  l.tip = filled((size_t)l.stages, NONE), l.send = filled((size_t)l.stages, NONE);
  l.left_b = g_new(int, l.stages *l.chunks);
  l.fetches = anything_fetched(p);
  l.leaving = filled(2 * (size_t)l.stages, NONE);
  l.fetch = g_new0(Fetch, 2 * l.stages);
  for (int i = 0; i < 2 * l.stages; i++) l.fetch[i].piece = -1;
  for (int i = 0, first; i < l.stages * l.chunks; i++)
    ms_chunk_microbatches(schedule, i % l.chunks, &first, &l.left_b[i]);
  lay_before(&l);
  lay_slots(&l);
  if (slot_task)
    for (int s = 0; s < l.stages; s++) slot_task[slot_base[s] + (guint32)schedule->n[s]] = ms_graph_count(l.graph);
  join_reductions(&l);
  lay_after(&l);
  for (int i = 0; i < l.stages; i++) g_free(l.gather[i]);
  g_free(l.gather), g_free(l.next), g_free(l.arrived_f), g_free(l.arrived_b), g_free(l.reduced), g_free(l.tip),
      g_free(l.send), g_free(l.left_b);
  g_free(l.split), g_free(l.scratch), g_free(l.fetch), g_free(l.leaving);
  return l.graph;
}

MsGraph *ms_lower_chunk(const MsProgram *p, const MsLoneSlot *slot, int repeat) {
  MsSlotKind kind = slot->kind;
  const MsChunk *chunk = slot->chunk;
  MsLoneSlot forward = {.chunk = chunk, .kind = MS_SLOT_F},
             backward = {.chunk = slot->chunk2, .kind = MS_SLOT_B, .leaves_head = slot->leaves_head};
  Fetch fetch[2] = {{.piece = -1}, {.piece = -1}};
  guint32 leaving[2] = {NONE, NONE};
  Lower l = {.p = p, .fetch = fetch, .leaving = leaving, .fetches = anything_fetched(p)};
  l.graph = new_graph(p, 1, 256);
  Need first = l.fetches ? next_in_chunk(&l, chunk, kind == MS_SLOT_FB ? MS_SLOT_F : kind, -1, nobody) : nobody;
  guint32 f_tip = NONE, b_tip = NONE;
  for (int i = 0; i < repeat; i++) {
    guint32 f_entry[8] = {f_tip}, b_entry[8] = {b_tip}, f = NONE, b = NONE;
    guint n_f = f_tip != NONE, n_b = b_tip != NONE;
    if (kind == MS_SLOT_FB && !p->scenario->options.ep_overlap) {
      f = lay_chunk(&l, &forward, 0, b_entry, n_b, NULL, next_in_chunk(&l, slot->chunk2, MS_SLOT_B, -1, nobody));
      if (f != NONE) b_entry[0] = f, n_b = 1;
      b = lay_chunk(&l, &backward, 0, b_entry, n_b, NULL, first);
    } else if (kind == MS_SLOT_FB) lay_layers_paired(&l, 0, slot, f_entry, n_f, b_entry, n_b, NULL, NULL, &f, &b);
    else if (kind == MS_SLOT_F) f = lay_chunk(&l, slot, 0, f_entry, n_f, NULL, first);
    else b = lay_chunk(&l, slot, 0, b_entry, n_b, NULL, first);
    if (f != NONE) f_tip = f;
    if (b != NONE) b_tip = b;
  }
  g_free(l.scratch);
  return l.graph;
}

/* Post-validation: a stage starts its next step as soon as it has ended this one, so steps follow one another at the
 * longest span of a stage, from when it stopped waiting for its first input. The parts of each stage lose the rest of
 * the makespan: waiting at its ends. */
MsTime ms_lower_period(const MsProgram *p, const MsGraph *graph, const MsTrajectory *t, MsTimeParts *stage) {
  if (!p->skewed) return t->makespan;
  int stages = p->layout->pp;
  g_autofree MsTime *own = g_new0(MsTime, stages), *idle = g_new(MsTime, stages), *end = g_new0(MsTime, stages);
  for (int s = 0; s < stages; s++) idle[s] = -1;
  for (guint32 i = 0; i < t->n; i++) {
    const MsTask *task = ms_graph_task(graph, i);
    guint32 s = task->device;
    const MsCostedStep *step = &p->step[s];
    gboolean before = (task->tag >= step->before.tag && task->tag < step->before.tag + (guint32)step->before.list->n) ||
                      (task->tag >= step->gather.tag && task->tag < step->gather.tag + (guint32)step->gather.list->n);
    if (before && task->stream == MS_STREAM_D2H) continue;
    if (before) own[s] = MAX(own[s], t->end[i]);
    else if (idle[s] < 0 && task->stream == MS_STREAM_COMPUTE) idle[s] = MAX(0, t->start[i] - own[s]);
    end[s] = MAX(end[s], t->end[i]);
  }
  MsTime period = 0;
  for (int s = 0; s < stages; s++) period = MAX(period, end[s] - MAX(idle[s], 0));
  ms_parts_shorten(stage, stages, t->makespan - period);
  return period;
}
