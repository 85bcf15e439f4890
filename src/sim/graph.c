/* src/sim/graph.c - the step as a graph: every row of every slot, laid down in an order in which each task's waits
 * already exist. */
#include "sim/graph.h"

#include "base/err.h"
#include "base/order.h"
#include "sim/account.h"
#include "step/after.h"
#include "step/fetch.h"
#include "step/meeting.h"
#include "step/pair.h"
#include "step/reduce.h"
#include <string.h>

#define NONE G_MAXUINT32

typedef struct { /* what is on its way for the next piece of a stage: parameters (FSDP), tensors from the host */
  MsNeed need;
  guint n;
  guint32 id[4]; /* the last row on each stream */
} Fetch;

typedef struct { /* earlier tasks that something waits for; those of no number are left out */
  guint32 id[16];
  guint n;
} Waits;

static void wait_for(Waits *w, guint32 id) {
  if (id == NONE) return;
  if (w->n == G_N_ELEMENTS(w->id)) MS_BUG("a task waits for more than %u", w->n);
  w->id[w->n++] = id;
}

static Waits only(guint32 id) { return (Waits){.id = {id}, .n = id != NONE}; }

typedef struct {
  const MsProgram *p;
  const MsSchedule *schedule; /* NULL: pieces alone on one device, without the step around them */
  MsGraph *graph;
  int stages;           /* 0: pieces alone */
  const MsChunk *lone;  /* of pieces alone, what they are of */
  guint32 *made;        /* [tensors of the walk] task that makes it, NONE = no task */
  gboolean params_stay; /* the pieces of this turn find their parameters whole */
  guint32 **gather;     /* [stages][gather rows] task of each parameter gather row */
  guint32 *reduced;     /* [stages * streams] last gradient reduction on each stream, NONE = none */
  guint32 *tip;         /* [stages] last task of the chain of the last slot */
  guint32 *send;        /* [2 * stages] send that the next forward, the next backward waits for, NONE = none */
  guint32 *sent;        /* [stages] message of the backward before, NONE = none */
  int *reduces;         /* of ms_reduce_slots */
  MsSlotPass held;      /* forward whose message leaves behind the next turn */
  guint32 held_tip;
  guint32 scaled;   /* last kernel in front of the reductions of this turn, NONE = none */
  guint32 *scratch; /* [n_scratch] task of each row of the list being laid down */
  int n_scratch;
  Fetch *fetch; /* [2 * stages] of the forward (or only) pass and of the backward pass beside it */
  gboolean fetches;
  guint32 *leaving; /* [2 * stages] last copies to the host of the two pieces before, NONE = none */
} Lower;

static guint32 *no_tasks(size_t n) {
  guint32 *a = g_new(guint32, MAX(n, 1));
  for (size_t i = 0; i < n; i++) a[i] = NONE;
  return a;
}

/* --- laying down one costed list --- */

static MsTask task_of(int stage, const MsCosted *c, int i, MsTime duration) {
  const MsOp *op = &c->list->op[i];
  return (MsTask){.device = (guint32)stage,
                  .stream = op->stream,
                  .use = c->use[i],
                  .host_sync = (op->flags & MS_OPF_SYNC) != 0,
                  .kind = ms_row_kind(op, c->use[i]),
                  .sms = c->sms[i],
                  .duration = duration,
                  .launch = c->launch[i],
                  .tag = c->tag + (guint32)i};
}

static guint32 add_task(Lower *l, int stage, const MsCosted *c, int i, MsTime duration, const Waits *wait) {
  MsTask task = task_of(stage, c, i, duration);
  return ms_graph_add(l->graph, &task, wait->id, wait->n);
}

static guint32 add_row(Lower *l, int stage, const MsCosted *c, int i, const Waits *wait) {
  return add_task(l, stage, c, i, c->duration[i], wait);
}

/* Lays the part down and returns the end of its chain, NONE when it has no rows. A row whose waits are all outside the
 * part waits for the entry. */
static guint32 lay_list(Lower *l, const MsCosted *c, int stage, const Waits *entry, MsListPart part) {
  guint32 last = NONE;
  if (c->list->n > l->n_scratch) {
    l->n_scratch = c->list->n;
    l->scratch = g_renew(guint32, l->scratch, l->n_scratch);
  }
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    Waits wait;
    wait.n = 0;
    l->scratch[i] = NONE;
    if (!ms_in_list_part(op, part)) continue;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= 0 && l->scratch[op->wait[j]] != NONE) wait.id[wait.n++] = l->scratch[op->wait[j]];
    last = l->scratch[i] = add_row(l, stage, c, i, wait.n > 0 ? &wait : entry);
  }
  if (c->list->n > 0 && l->scratch[c->list->tip] != NONE) return l->scratch[c->list->tip];
  return last;
}

/* --- a forward layer beside a backward layer: rows in the order of pair.c, which wait only inside their own list ---
 */

typedef struct {
  const MsCosted *c;
  guint32 *id; /* [n] task of each row, NONE = not laid down yet */
  const Waits *entry;
} InPair;

static void lay_row(Lower *l, int stage, InPair *side, int i) {
  const MsOp *op = &side->c->list->op[i];
  Waits wait;
  wait.n = 0;
  gboolean own = FALSE;
  for (int j = 0; j < 3; j++) {
    if (op->wait[j] < 0) continue;
    own = TRUE;
    wait_for(&wait, side->id[op->wait[j]]); /* a deferred weight gradient holds nobody up */
  }
  side->id[i] = add_task(l, stage, side->c, i, side->c->beside[i], own ? &wait : side->entry);
}

static InPair in_pair(const MsCosted *c, const Waits *entry) {
  return (InPair){c, no_tasks((size_t)c->list->n), entry};
}

static guint32 tip_of(InPair *side) {
  guint32 tip = side->c->list->n > 0 ? side->id[side->c->list->tip] : NONE;
  g_free(side->id);
  return tip;
}

/* Both lists with what they wait for; becomes what follows them. */
static void lay_pair(Lower *l, int stage, const MsCosted *f, const MsCosted *b, Waits *f_entry, Waits *b_entry) {
  InPair side[2] = {in_pair(f, f_entry), in_pair(b, b_entry)};
  int n = f->list->n + b->list->n;
  g_autofree MsPairRow *order = g_new(MsPairRow, MAX(n, 1));
  n = ms_pair_order(f->list, b->list, l->p->scenario->options.delay_wgrad, order);
  for (int i = 0; i < n; i++) lay_row(l, stage, &side[order[i].backward], order[i].row);
  *f_entry = only(tip_of(&side[0]));
  *b_entry = only(tip_of(&side[1]));
}

/* --- fetched one piece ahead: parameters that FSDP gathers, tensors that were offloaded --- */

static void fetch_list(Lower *l, int stage, Fetch *f, const MsCosted *c, const Waits *entry) {
  for (int i = 0; i < c->list->n; i++) {
    guint32 id = add_row(l, stage, c, i, entry);
    guint k = 0;
    while (k < f->n && ms_graph_task(l->graph, f->id[k])->stream != c->list->op[i].stream) k++;
    f->id[k] = id, f->n = MAX(f->n, k + 1);
  }
}

/* May start when the piece before it does, whose entry is given. */
static void fetch(Lower *l, int stage, Fetch *f, MsNeed need, const Waits *entry) {
  const MsCosted *c[MS_GATHERS];
  int n = ms_params_gathered(l->p, need, l->params_stay, c);
  *f = (Fetch){.need = need};
  for (int i = 0; i < n; i++) fetch_list(l, stage, f, c[i], entry);
  if (need.backward) fetch_list(l, stage, f, &l->p->piece[need.piece].reload, entry);
}

/* What a piece waits for, with what it needs; `next`: for which pass of which piece the next fetch goes on while it
 * runs. */
static void use_fetched(Lower *l, int stage, Fetch *f, MsNeed own, MsSlotKind kind, MsNeed next, Waits *entry) {
  Fetch here = {.n = 0};
  Waits before = *entry;
  if (ms_needs_fetch(l->p, own.piece, kind)) {
    if (f->need.piece != own.piece || f->need.backward != own.backward) {
      if (l->tip && ms_passes_wait(l->p)) wait_for(&before, l->tip[stage]);
      fetch(l, stage, f, own, &before);
    }
    here = *f;
    f->need = MS_NO_NEED;
  }
  if (next.piece >= 0) fetch(l, stage, f, next, &before); /* one piece ahead, no further */
  for (guint i = 0; i < here.n; i++) wait_for(entry, here.id[i]);
  const MsCosted *cast = ms_params_cast(l->p, own, l->params_stay);
  if (cast) *entry = only(lay_list(l, cast, stage, entry, MS_LIST_ALL));
}

/* The host takes the tensors of one piece while the next one runs; the one after that waits for their memory. */
static void wait_leaving(Lower *l, int stage, Waits *entry) {
  guint32 *leaving = &l->leaving[2 * stage];
  wait_for(entry, leaving[0]);
  leaving[0] = leaving[1], leaving[1] = NONE;
}

static void note_leaving(Lower *l, int stage, guint32 from) {
  for (guint32 i = ms_graph_count(l->graph); i-- > from;)
    if (ms_graph_task(l->graph, i)->stream == MS_STREAM_D2H) {
      l->leaving[2 * stage + 1] = i;
      return;
    }
}

/* --- the step's own rows --- */

/* Rows [from, to) of a reduce or gather list; their waits are inside the same bucket. ids may be NULL. */
static void lay_bucket(Lower *l, int stage, const MsCosted *c, int from, int to, guint32 after, guint32 *ids) {
  guint32 base = ms_graph_count(l->graph);
  for (int i = from; i < to; i++) {
    const MsOp *op = &c->list->op[i];
    Waits wait;
    wait.n = 0;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= from) wait_for(&wait, base + (guint32)(op->wait[j] - from));
    if (wait.n == 0) wait_for(&wait, after);
    guint32 id = add_row(l, stage, c, i, &wait);
    if (ids) ids[i] = id;
  }
}

/* The whole gather list of a stage is issued at the start of the step; each forward piece waits for its own bucket. */
static void lay_before(Lower *l) {
  for (int s = 0; s < l->stages; s++) {
    const MsCostedStep *step = &l->p->step[s];
    l->tip[s] = lay_list(l, &step->before, s, &(Waits){.n = 0}, MS_LIST_ALL);
    l->gather[s] = g_new(guint32, MAX(1, step->gather.list->n));
    for (int i = 0, to; i < step->gather.list->n; i = to) {
      const MsBucket *at = step->ops.gather_at;
      to = ms_bucket_end(at, step->gather.list->n, i);
      lay_bucket(l, s, &step->gather, i, to, NONE, l->gather[s]);
    }
  }
}

static void wait_gather(const Lower *l, const MsSlotPass *pass, int at, Waits *entry) {
  const MsCostedStep *step = &l->p->step[pass->stage];
  int from, to;
  ms_bucket_rows(step->ops.gather_at, step->gather.list->n, pass->chunk, at, &from, &to);
  for (int i = from; i < to; i++) wait_for(entry, l->gather[pass->stage][i]);
}

static void reduce_unit(Lower *l, int stage, int piece, guint32 tip) {
  const MsCosted *c = &l->p->unit[piece].reduce;
  guint32 first = ms_graph_count(l->graph);
  lay_bucket(l, stage, c, 0, c->list->n, tip, NULL);
  for (int i = 0; l->reduced && i < c->list->n; i++)
    l->reduced[MS_N_STREAMS * stage + c->list->op[i].stream] = first + (guint32)i;
}

static void issue_reduce(Lower *l, int stage, int chunk, int at, guint32 tip) {
  const MsCostedStep *step = &l->p->step[stage];
  int from, to;
  ms_bucket_rows(step->ops.reduce_at, step->reduce.list->n, chunk, at, &from, &to);
  guint32 first = ms_graph_count(l->graph);
  lay_bucket(l, stage, &step->reduce, from, to, tip, NULL);
  for (int i = from; i < to; i++)
    if (step->reduce.list->op[i].stream == MS_STREAM_COMPUTE) l->scaled = first + (guint32)(i - from);
  for (int i = from; i < to; i++)
    l->reduced[MS_N_STREAMS * stage + step->reduce.list->op[i].stream] = first + (guint32)(i - from);
}

/* All buckets of a chunk, from its last piece to its first. */
static void reduce_chunk(Lower *l, int stage, int chunk, guint32 tip) {
  for (int at = ms_work_chunk_length(l->p->work, ms_layout_chunk(l->p->layout, stage, chunk)); at-- > 0;)
    issue_reduce(l, stage, chunk, at, tip);
}

/* Waits of row i of a list whose rows so far are id[]; the stage's tip when it has none. */
static void row_waits(const Lower *l, int stage, const MsOp *op, const guint32 *id, GArray *wait) {
  gboolean own = FALSE;
  for (int j = 0; j < 3; j++)
    if (op->wait[j] >= 0) g_array_append_val(wait, id[op->wait[j]]), own = TRUE;
  if (!own && l->tip[stage] != NONE) g_array_append_val(wait, l->tip[stage]);
}

/* Post-validation (docs/theory/schedules.md 5) lets each stage go on with its own part of the gradient norm. */
static void lay_after(Lower *l) {
  g_autoptr(GArray) wait = g_array_new(FALSE, FALSE, sizeof(guint32));
  g_autofree guint32 **id = g_new0(guint32 *, (guint)l->stages);
  for (int s = 0; s < l->stages; s++) id[s] = g_new(guint32, MAX(1, l->p->step[s].after.list->n));
  for (MsAfterWalk w = ms_after_walk(l->p); ms_after_next(&w);) {
    const MsCosted *c = &l->p->step[w.stage].after;
    gboolean own = w.event == MS_AFTER_ROW || (l->p->skewed && w.world);
    if (own || (w.event == MS_AFTER_MEETS && w.first)) g_array_set_size(wait, 0);
    if (own || w.event == MS_AFTER_MEETS) row_waits(l, w.stage, &c->list->op[w.row], id[w.stage], wait);
    if (w.event == MS_AFTER_MEETS) continue;
    MsTask task = task_of(w.stage, c, w.row, c->duration[w.row]);
    id[w.stage][w.row] = ms_graph_add(l->graph, &task, (const guint32 *)(void *)wait->data, wait->len);
  }
  for (int s = 0; s < l->stages; s++) g_free(id[s]);
}

/* --- the pieces of a turn --- */

typedef struct {          /* the forward, or the backward, of a turn */
  const MsSlotPass *pass; /* NULL: there is none, or no step around it */
  Fetch *fetch;
  MsNeed then; /* what its stage needs when it has ended */
  Waits entry; /* of its next piece */
  guint32 tip; /* end of its chain so far, NONE = no rows */
} Side;

/* What a piece waits for besides its input. */
static void enter_piece(Lower *l, int stage, const MsPieceWalk *w, const MsPieceTurn *turn, Side *side) {
  gboolean backward = turn == &w->backward, paired = w->of.forward && w->of.backward;
  MsSlotKind kind = backward ? w->of.kind : MS_SLOT_F;
  if (side->pass && !backward && side->pass->nth == 0) wait_gather(l, side->pass, turn->at, &side->entry);
  if (!l->fetches || kind == MS_SLOT_W) return;
  if (!backward && !paired) wait_leaving(l, stage, &side->entry);
  MsNeed own = {turn->piece, backward, !backward && w->of.first};
  use_fetched(l, stage, side->fetch, own, kind, ms_need_ahead(l->p, w, backward, side->then), &side->entry);
}

static void lay_alone(Lower *l, int stage, const MsCosted *c, MsSlotKind rows, Side *side) {
  guint32 laid = rows == MS_N_SLOTS ? NONE : lay_list(l, c, stage, &side->entry, ms_list_part(rows));
  if (laid != NONE) side->tip = laid, side->entry = only(laid);
}

static void lay_piece(Lower *l, int stage, const MsPieceWalk *w, Side *f, Side *b) {
  const MsCosted *forward = w->forward.at < 0 ? NULL : &l->p->piece[w->forward.piece].forward,
                 *backward = w->backward.at < 0 ? NULL : &l->p->piece[w->backward.piece].backward;
  guint32 from = ms_graph_count(l->graph);
  if (forward && backward) {
    lay_pair(l, stage, forward, backward, &f->entry, &b->entry);
    f->tip = f->entry.n > 0 ? f->entry.id[0] : NONE, b->tip = b->entry.n > 0 ? b->entry.id[0] : NONE;
  } else if (backward) lay_alone(l, stage, backward, w->backward.rows, b);
  else lay_alone(l, stage, forward, w->forward.rows, f);
  if (l->fetches && !w->of.backward) note_leaving(l, stage, from);
}

/* Gradients that the backward of a piece completes are reduced behind it. */
static void leave_piece(Lower *l, int stage, const MsPieceWalk *w, const Side *side) {
  if (l->p->unit && w->of.kind != MS_SLOT_I) reduce_unit(l, stage, w->backward.piece, side->tip);
  if (side->tip != NONE && ms_reduces_here(l->p, side->pass))
    issue_reduce(l, stage, side->pass->chunk, w->backward.at, side->tip);
}

static void lay_pieces(Lower *l, int stage, MsChunks of, Side *f, Side *b) {
  MsPieceWalk w = ms_piece_walk(l->p->work, of);
  while (ms_piece_next(&w)) {
    if (w.forward.at >= 0) enter_piece(l, stage, &w, &w.forward, f);
    if (w.backward.at >= 0) enter_piece(l, stage, &w, &w.backward, b);
    lay_piece(l, stage, &w, f, b);
    if (w.backward.at >= 0) leave_piece(l, stage, &w, b);
  }
}

/* --- turns --- */

/* A blocking exchange ends in a device synchronisation: the host issues nothing of the next slot before the message is
 * here (docs/theory/communication.md 6). */
static const MsHardware *machine_of(const Lower *l, int stage) {
  return l->stages > 0 ? ms_program_machine_of(l->p, stage) : ms_program_machine(l->p, l->lone->pool);
}

static const MsOpCost *message_of(const Lower *l, const MsSlotPass *pass) {
  if (!l->p->message) return &l->p->p2p;
  if (l->stages == 0) return ms_program_p2p_of(l->p, l->lone, pass->kind != MS_SLOT_F);
  return ms_program_p2p(l->p, pass->stage, ms_program_stage_of(l->p, pass->to));
}

static void wait_with(const Lower *l, const MsTurn *turn, Waits *wait) {
  for (int k = 0; k < 2; k++)
    if (turn->with[k] >= 0) wait_for(wait, l->made[turn->with[k]]);
}

static guint32 receive(Lower *l, const MsTurn *turn, const MsSlotPass *pass, guint32 input) {
  Waits wait = only(pass->comes ? input : NONE);
  wait_with(l, turn, &wait);
  if (!l->p->p2p_blocks || wait.n == 0 || turn->held) return input;
  MsTask task = {.device = (guint32)pass->stage,
                 .stream = MS_STREAM_SIDE,
                 .use = MS_USE_NOTHING,
                 .host_sync = 1,
                 .tag = l->p->p2p_tag,
                 .launch = ms_time_of(machine_of(l, pass->stage)->sync_s)};
  return ms_graph_add(l->graph, &task, wait.id, wait.n);
}

static guint32 send(Lower *l, const MsSlotPass *pass, const Waits *wait) {
  const MsOpCost *message = message_of(l, pass);
  const MsHardware *machine = machine_of(l, pass->stage);
  MsTask task = {.device = (guint32)pass->stage,
                 .stream = MS_STREAM_PP_SEND,
                 .use = message->level ? MS_USE_LINK1 : MS_USE_LINK0,
                 .sms = machine->sm_count > 0 ? message->sms : 0,
                 .duration = ms_time_of(message->time_s),
                 .launch = ms_time_of(l->p->p2p_op.kernels * machine->kernel_launch_s),
                 .tag = l->p->p2p_tag};
  task.kind = ms_row_kind(&l->p->p2p_op, task.use);
  if (pass->kind != MS_SLOT_F)
    task.stream = MS_STREAM_PP_RECV; /* the second communicator: gradients do not queue behind activations */
  guint32 sent = ms_graph_add(l->graph, &task, wait->id, wait->n);
  guint32 *awaited = &l->send[2 * pass->stage];
  if (l->p->p2p_blocks) awaited[0] = awaited[1] = sent;
  else if (l->p->p2p_in_turn) awaited[pass->kind != MS_SLOT_F] = sent;
  return sent;
}

static guint32 input_of(const Lower *l, const MsSlotPass *pass) { return pass->in < 0 ? NONE : l->made[pass->in]; }

/* What the first piece waits for: the input, else the slot before; and the last blocking send. Weight gradients wait
 * for their own input gradients and for their turn on the compute stream. */
static Side open_side(Lower *l, const MsTurn *turn, const MsSlotPass *pass, Fetch *fetch, MsNeed then, guint32 sent) {
  Side side = {.pass = pass, .fetch = fetch, .then = then, .tip = NONE};
  if (!pass) return side;
  guint32 input = input_of(l, pass);
  if (input == NONE) wait_for(&side.entry, l->tip[pass->stage]);
  if (pass->kind != MS_SLOT_W) input = receive(l, turn, pass, input);
  if (!l->p->p2p_blocks) wait_with(l, turn, &side.entry);
  wait_for(&side.entry, input);
  if (pass->kind != MS_SLOT_W) wait_for(&side.entry, sent);
  return side;
}

/* An empty virtual stage passes its input on; nobody waits for weight gradients. */
static guint32 end_of(const Lower *l, const Side *side, guint32 before) {
  if (side->tip != NONE) return side->tip;
  guint32 input = side->pass->kind == MS_SLOT_W ? NONE : input_of(l, side->pass);
  return input != NONE ? input : before;
}

/* NCCL's stream waits for all that the compute stream has been given (torch ProcessGroupNCCL.cpp, syncStream): a
 * message for `given` too. */
static void hand_on(Lower *l, const MsSlotPass *pass, guint32 tip, guint32 given) {
  Waits wait = only(tip);
  wait_for(&wait, given);
  guint32 sent = pass->goes && tip != NONE ? send(l, pass, &wait) : NONE;
  if (pass->out >= 0) l->made[pass->out] = sent != NONE ? sent : tip;
  if (pass->kind != MS_SLOT_F) l->sent[pass->stage] = sent;
  if (pass->kept >= 0) l->made[pass->kept] = tip;
}

/* Reductions of experts began before the rest of their layer went back: only the last of the others is waited for. */
static guint32 when_reduced(Lower *l, int stage, guint32 tip) {
  Waits wait = only(tip);
  wait_for(&wait, l->reduced[MS_N_STREAMS * stage + MS_STREAM_DP]);
  MsTask join = {.device = (guint32)stage, .stream = MS_STREAM_COMPUTE, .tag = l->p->no_tag};
  return ms_graph_add(l->graph, &join, wait.id, wait.n);
}

/* The message of the forward of an exchange, behind its backward. */
static guint32 release(Lower *l, int stage, guint32 given) {
  if (!l->held.goes || l->held.stage != stage) return NONE;
  hand_on(l, &l->held, l->held_tip, given);
  l->held.goes = FALSE;
  return l->send[2 * stage];
}

static void lay_turn(Lower *l, const MsTurn *turn) {
  const MsSlotPass *f = turn->forward, *b = turn->backward;
  int stage = turn->stage;
  guint32 before = l->tip[stage], *send = &l->send[2 * stage], sent_f = send[0],
          sent_b = f && l->p->p2p_in_turn ? NONE : send[1];
  if (f || b->kind != MS_SLOT_W) send[0] = send[1] = NONE;
  guint32 other = l->p->p2p_blocks && sent_b != sent_f ? sent_b : NONE; /* of an exchange */
  MsNeed then = (f && b) || !l->fetches ? MS_NO_NEED : ms_need_of_slots(l->p, l->schedule, stage, turn->index + 1);
  l->params_stay = l->fetches && ms_params_stay(l->p, l->schedule, stage, turn->index);
  Side forward = open_side(l, turn, f, &l->fetch[2 * stage], then, sent_f),
       backward = open_side(l, turn, b, &l->fetch[2 * stage + (f != NULL)], then, sent_b);
  wait_for(f ? &forward.entry : &backward.entry, f ? other : other == NONE ? NONE : sent_f);
  l->scaled = NONE;
  lay_pieces(l, stage, ms_chunks_of(l->p->work, turn), &forward, &backward);
  guint32 f_tip = f ? end_of(l, &forward, before) : NONE, b_tip = b ? end_of(l, &backward, before) : NONE;
  if (b && b->kind != MS_SLOT_I && ms_passes_wait(l->p)) b_tip = when_reduced(l, stage, b_tip);
  l->tip[stage] = b ? b_tip : f_tip;
  int due = ms_reduce_due(l->p, l->reduces, turn);
  if (due >= 0) reduce_chunk(l, stage, due, b_tip);
  guint32 held = turn->held ? release(l, stage, l->scaled != NONE ? l->scaled : b_tip) : NONE;
  if (f && turn->holds && f->goes) l->held = *f, l->held_tip = f_tip;
  else if (f) hand_on(l, f, f_tip, NONE);
  if (b) hand_on(l, b, b_tip, ms_sends_first(l->p, turn) ? NONE : l->scaled);
  if (held != NONE) send[0] = held;
  if (f && b && l->p->p2p_in_turn) send[0] = NONE;
  if (turn->paired && l->p->p2p_in_turn) send[1] = NONE;
}

/* --- rounds that are laid down as those before them ---------------------------------------------------------------
 *
 * In the middle of a schedule the lists of all stages repeat themselves (MsSchedule.period). When what the next turns
 * ask for is what they asked for some periods before, all of it so many tasks later, they lay down the same again. */

enum {
  MOMENTS = 16, /* the order in which stages have their turns may repeat itself after a few periods only */
  LAID = 4      /* rounds of a folded graph behind the one that all are like: most steps are steady before they end */
};

typedef struct {
  GArray *place; /* int: slots that come next, what is fetched, tensors that are waited for */
  GArray *task;  /* guint32: tasks that somebody may wait for */
  guint32 count; /* tasks until then */
} Moment;

typedef struct {
  Lower *l;
  MsSlotWalk *walk;
  guint32 *slot_task;
  const guint32 *slot_base;
  Moment moment[MOMENTS];
  int n; /* moments so far; -1: no more */
  gboolean folds;
  guint32 left_out; /* tasks that were not laid down */
} Rounds;

static void add_tasks(Moment *m, const guint32 *id, size_t n) { g_array_append_vals(m->task, id, (guint)n); }

static Moment moment_now(const Rounds *r) {
  const Lower *l = r->l;
  size_t stages = (size_t)l->stages;
  Moment m = {g_array_new(FALSE, FALSE, sizeof(int)), g_array_new(FALSE, FALSE, sizeof(guint32)),
              ms_graph_count(l->graph)};
  add_tasks(&m, l->reduced, MS_N_STREAMS * stages);
  add_tasks(&m, l->tip, stages), add_tasks(&m, l->send, 2 * stages), add_tasks(&m, l->leaving, 2 * stages);
  for (int s = 0; s < l->stages; s++) {
    int at = ms_slot_walk_at(r->walk, s);
    g_array_append_val(m.place, at);
  }
  for (size_t i = 0; i < 2 * stages; i++) {
    const Fetch *f = &l->fetch[i];
    const int place[] = {f->need.piece, f->need.backward, (int)f->n};
    g_array_append_vals(m.place, place, G_N_ELEMENTS(place));
    add_tasks(&m, f->id, f->n);
  }
  guint first = m.place->len;
  int n = ms_slot_walk_waiting(r->walk, NULL, 0);
  g_array_set_size(m.place, first + (guint)n);
  int *tensor = &g_array_index(m.place, int, first);
  ms_slot_walk_waiting(r->walk, tensor, n);
  for (int i = 0; i < n; i++) add_tasks(&m, &l->made[tensor[i]], 1);
  return m;
}

static void moment_clear(Moment *m) {
  if (!m->place) return;
  g_array_unref(m->place), g_array_unref(m->task);
}

static guint first_tensor(const Lower *l) { return 7 * (guint)l->stages; }

/* The same some periods later: slots and tensors by as many, tasks by as many as were laid down; reductions may rest.
 */
static gboolean same_later(const Rounds *r, const Moment *then, const Moment *now, int periods) {
  const Lower *l = r->l;
  guint32 by = now->count - then->count, reductions = MS_N_STREAMS * (guint32)l->stages;
  if (then->place->len != now->place->len || then->task->len != now->task->len) return FALSE;
  for (guint i = 0; i < now->place->len; i++) {
    int more = i < (guint)l->stages  ? periods * l->schedule->repeat[i].slots
               : i < first_tensor(l) ? 0
                                     : periods * l->schedule->period;
    if (g_array_index(now->place, int, i) != g_array_index(then->place, int, i) + more) return FALSE;
  }
  for (guint i = 0; i < now->task->len; i++) {
    guint32 x = g_array_index(then->task, guint32, i), y = g_array_index(now->task, guint32, i);
    if (!(x == y && (x == NONE || i < reductions)) && (x == NONE || y != x + by)) return FALSE;
  }
  return TRUE;
}

/* Behind the first forwards of all chunks, and behind backwards that leave their head where others do not. */
static gboolean is_steady(const Rounds *r) {
  MsTaken taken;
  int all = r->l->schedule->microbatches, deferred = ms_work_deferred(r->l->p->work, all);
  for (int s = 0; s < r->l->stages; s++)
    if (ms_slot_walk_at(r->walk, s) < r->l->schedule->repeat[s].from) return FALSE;
  return ms_slot_walk_taken(r->walk, &taken) && taken.forward > 0 && (taken.back >= deferred || deferred == all);
}

/* As often as all slots, and the one behind them, lie within the repetition and none is a chunk's last. */
static int most_times(const Rounds *r, int periods) {
  const MsSchedule *s = r->l->schedule;
  MsTaken taken;
  if (!ms_slot_walk_taken(r->walk, &taken)) return 0;
  int times = (taken.left - 1) / (periods * s->period);
  for (int k = 0; k < s->stages; k++) {
    int slots = periods * s->repeat[k].slots;
    times = MIN(times, (s->repeat[k].to - ms_slot_walk_at(r->walk, k)) / slots - 1);
  }
  return MAX(0, times);
}

static void later(guint32 *id, size_t n, guint32 by) {
  for (size_t i = 0; i < n; i++) id[i] += id[i] != NONE ? by : 0;
}

/* What the last `periods` laid down is laid down `times` more, or is meant to be. */
static void repeat(Rounds *r, const Moment *then, const Moment *now, int periods, int times) {
  Lower *l = r->l;
  size_t stages = (size_t)l->stages;
  int laid = r->folds && times > 2 * LAID && ms_graph_shares(l->graph) ? LAID : times;
  guint32 period = now->count - then->count, by = (guint32)laid * period;
  int microbatches = times * periods * l->schedule->period;
  g_autofree int *slots = g_new(int, stages);
  ms_graph_repeat(l->graph, period, (guint32)laid);
  ms_graph_leave_out(l->graph, (guint32)(times - laid)), r->left_out = (guint32)(times - laid) * period;
  for (int s = 0; s < l->stages; s++) {
    int one = periods * l->schedule->repeat[s].slots, at = ms_slot_walk_at(r->walk, s);
    guint32 *first = r->slot_task ? r->slot_task + r->slot_base[s] : NULL;
    slots[s] = times * one;
    for (int k = at; first && k < at + slots[s]; k++) first[k] = first[k - one] + period;
  }
  for (guint i = 0; i < MS_N_STREAMS * stages; i++)
    if (l->reduced[i] != g_array_index(then->task, guint32, i)) l->reduced[i] += by;
  later(l->tip, stages, by), later(l->send, 2 * stages, by), later(l->leaving, 2 * stages, by);
  for (size_t i = 0; i < 2 * stages; i++) later(l->fetch[i].id, l->fetch[i].n, by);
  for (guint i = now->place->len; i-- > first_tensor(l);) {
    int tensor = g_array_index(now->place, int, i);
    guint32 made = l->made[tensor];
    l->made[tensor + microbatches] = made == NONE ? NONE : made + by;
  }
  ms_slot_walk_skip(r->walk, slots, microbatches);
}

/* A turn of the first stage has ended one more period of its list. */
static gboolean ends_period(const Rounds *r, const MsTurn *turn) {
  const MsPeriodOf *of = r->l->schedule->repeat;
  return r->n >= 0 && turn->stage == 0 && turn->closes && !turn->holds && turn->index + 1 >= of->from &&
         turn->index + 1 < of->to && (turn->index + 1 - of->from) % of->slots == 0;
}

static void look_for_round(Rounds *r) {
  if (r->n == 0 && !is_steady(r)) return;
  Moment now = moment_now(r);
  for (int periods = 1; periods <= MIN(r->n, MOMENTS); periods++) {
    const Moment *then = &r->moment[(r->n - periods) % MOMENTS];
    if (!same_later(r, then, &now, periods)) continue;
    int times = most_times(r, periods);
    if (times > 0) repeat(r, then, &now, periods, times);
    moment_clear(&now);
    r->n = -1;
    return;
  }
  moment_clear(&r->moment[r->n % MOMENTS]);
  r->moment[r->n++ % MOMENTS] = now;
}

/* slot_task/slot_base as in MsDetail. */
static void lay_slots(Lower *l, MsSlotWalk *walk, guint32 *slot_task, const guint32 *slot_base, gboolean folds) {
  Rounds rounds = {.l = l, .walk = walk, .slot_task = slot_task, .slot_base = slot_base, .folds = folds};
  if (l->schedule->period == 0 || !ms_engine_allows_rounds()) rounds.n = -1;
  for (const MsTurn *turn; (turn = ms_slot_walk_next(walk));) {
    if (slot_task && turn->opens)
      slot_task[slot_base[turn->stage] + (guint32)turn->index] = ms_graph_count(l->graph) + rounds.left_out;
    lay_turn(l, turn);
    if (ends_period(&rounds, turn)) look_for_round(&rounds);
  }
  ms_slot_walk_must_end(walk);
  for (int i = 0; i < MOMENTS; i++) moment_clear(&rounds.moment[i]);
  for (int s = 0; slot_task && s < l->stages; s++)
    slot_task[slot_base[s] + (guint32)l->schedule->n[s]] = ms_graph_count(l->graph) + rounds.left_out;
}

double ms_program_tasks(const MsProgram *p, const MsSchedule *schedule) {
  double tasks = 0;
  for (int s = 0; s < p->layout->pp; s++)
    for (int c = 0; c < p->layout->vpp; c++) {
      const MsChunk *chunk = ms_layout_chunk(p->layout, s, c);
      double rows = 2;
      for (int i = 0; i < ms_work_chunk_length(p->work, chunk); i++) {
        const MsCostedPiece *piece = &p->piece[ms_work_chunk_piece(p->work, chunk, i)];
        rows += piece->forward.list->n + piece->backward.list->n + (p->unit ? 8 : 0);
      }
      int first, count;
      ms_chunk_microbatches(schedule, c, &first, &count);
      tasks += rows * count;
    }
  return tasks;
}

static void set_sms(const Lower *l, MsGraph *graph) {
  ms_graph_set_sms(graph, MAX(machine_of(l, 0)->sm_count, 1));
  for (int s = 0; l->p->layout->n_pools > 0 && s < l->stages; s++)
    ms_graph_set_device_sms(graph, (guint32)s, ms_program_machine_of(l->p, s)->sm_count);
}

static MsGraph *new_graph(const Lower *l, int devices, double tasks) {
  MsGraph *graph = ms_graph_new(devices, MS_N_STREAMS);
  set_sms(l, graph);
  ms_graph_reserve(graph, (guint)tasks, (guint)(1.3 * tasks));
  return graph;
}

/* Of chunks that are not due before the last message has gone, which the host waits for where it blocks. */
static void reduce_behind(Lower *l) {
  for (int s = 0; s < l->stages; s++)
    for (int c = 0; c < l->p->layout->vpp; c++) {
      if (!ms_reduces_behind(l->reduces, l->schedule, s, c)) continue;
      Waits wait = only(l->tip[s]);
      wait_for(&wait, l->sent[s]);
      MsTask gone = {.device = (guint32)s,
                     .stream = MS_STREAM_SIDE,
                     .use = MS_USE_NOTHING,
                     .host_sync = l->p->p2p_blocks,
                     .tag = l->p->p2p_tag,
                     .launch = l->p->p2p_blocks ? ms_time_of(machine_of(l, s)->sync_s) : 0};
      reduce_chunk(l, s, c, ms_graph_add(l->graph, &gone, wait.id, wait.n));
    }
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

static MsGraph *lower(const MsProgram *p, const MsSchedule *schedule, guint32 *slot_task, const guint32 *slot_base,
                      gboolean folds) {
  size_t stages = (size_t)schedule->stages;
  g_autoptr(MsSlotWalk) walk = ms_slot_walk_new(schedule, MS_ALL_STAGES, p->scenario->options.ep_overlap);
  Lower l = {.p = p, .schedule = schedule, .stages = schedule->stages, .fetches = ms_program_fetches(p)};
  l.graph = new_graph(&l, l.stages, ms_program_tasks(p, schedule) + 64.0 * l.stages);
  l.made = no_tasks((size_t)ms_slot_walk_tensors(walk));
  l.gather = g_new0(guint32 *, stages), l.reduced = no_tasks(MS_N_STREAMS * stages);
  l.tip = no_tasks(stages), l.send = no_tasks(2 * stages), l.leaving = no_tasks(2 * stages);
  l.sent = no_tasks(stages), l.reduces = ms_reduce_slots(p, schedule);
  l.fetch = g_new0(Fetch, 2 * stages);
  for (size_t i = 0; i < 2 * stages; i++) l.fetch[i].need = MS_NO_NEED;
  lay_before(&l);
  lay_slots(&l, walk, slot_task, slot_base, folds);
  reduce_behind(&l);
  join_reductions(&l);
  lay_after(&l);
  for (int i = 0; i < l.stages; i++) g_free(l.gather[i]);
  g_free(l.gather), g_free(l.made), g_free(l.reduced), g_free(l.tip), g_free(l.send);
  g_free(l.scratch), g_free(l.fetch), g_free(l.leaving), g_free(l.sent), g_free(l.reduces);
  return l.graph;
}

MsGraph *ms_lower_full(const MsProgram *p, const MsSchedule *schedule, guint32 *slot_task, const guint32 *slot_base) {
  return lower(p, schedule, slot_task, slot_base, FALSE);
}

MsGraph *ms_lower_folded(const MsProgram *p, const MsSchedule *schedule, guint32 *slot_task, const guint32 *slot_base) {
  return lower(p, schedule, slot_task, slot_base, !p->skewed);
}

/* --- what follows the last slots, alone --- */

MS_ORDER(by_time, MsTime, MS_LESS(*x, *y), 0)

/* Tasks that end at these times (sorted), on a stream of their own. (transfer container) */
static guint32 *lay_moments(Lower *l, int stage, const GArray *times) {
  guint32 *id = g_new(guint32, times->len);
  MsTime told = 0;
  for (guint i = 0; i < times->len; i++) {
    MsTime at = g_array_index(times, MsTime, i);
    MsTask task = {.device = (guint32)stage, .stream = MS_N_STREAMS, .duration = at - told, .tag = l->p->no_tag};
    id[i] = ms_graph_add(l->graph, &task, NULL, 0);
    told = at;
  }
  return id;
}

static guint32 moment(const GArray *times, const guint32 *id, MsTime at) {
  guint i = 0;
  while (g_array_index(times, MsTime, i) < at) i++;
  return id[i];
}

/* When a collective may go on. */
static MsTime goes_on(const MsRivals *r, const MsRival *x) {
  MsTime at = x->left < (double)x->list->duration[x->row] ? r->now : x->ready;
  for (int j = 0; j < 3; j++)
    if (x->wait[j] >= 0) at = MAX(at, g_array_index(r->rows, MsRival, x->wait[j]).end);
  return at;
}

static void lay_rivals(Lower *l, int stage, const MsRivals *r, const GArray *times, const guint32 *moments) {
  g_autofree guint32 *id = no_tasks(r->rows->len);
  for (guint i = 0; i < r->rows->len; i++) {
    const MsRival *x = &g_array_index(r->rows, MsRival, i);
    if (x->end >= 0) continue;
    Waits wait = only(moment(times, moments, goes_on(r, x)));
    for (int j = 0; j < 3; j++)
      if (x->wait[j] >= 0) wait_for(&wait, id[x->wait[j]]);
    MsTask task = task_of(stage, x->list, x->row, (MsTime)x->left);
    task.launch = 0; /* issued */
    id[i] = ms_graph_add(l->graph, &task, wait.id, wait.n);
    if (task.stream != MS_STREAM_STATES) l->reduced[MS_N_STREAMS * stage + task.stream] = id[i];
  }
}

static void lay_ends(Lower *l, int stage, MsTime compute, MsTime host, MsTime tip, const MsRivals *r) {
  g_autoptr(GArray) times = g_array_new(FALSE, FALSE, sizeof(MsTime));
  tip = MAX(tip, 0);
  g_array_append_val(times, compute), g_array_append_val(times, tip);
  for (guint i = 0; i < r->rows->len; i++) {
    const MsRival *x = &g_array_index(r->rows, MsRival, i);
    MsTime at = goes_on(r, x);
    if (x->end < 0) g_array_append_val(times, at);
  }
  g_array_sort(times, by_time);
  g_autofree guint32 *id = lay_moments(l, stage, times);
  guint32 begins = moment(times, id, compute);
  MsTask busy = {.device = (guint32)stage, .stream = MS_STREAM_COMPUTE, .tag = l->p->no_tag},
         issue = {.device = (guint32)stage, .stream = MS_N_STREAMS, .launch = host, .tag = l->p->no_tag};
  ms_graph_add(l->graph, &busy, &begins, 1);
  ms_graph_add(l->graph, &issue, NULL, 0);
  l->tip[stage] = moment(times, id, tip);
  lay_rivals(l, stage, r, times, id);
}

MsGraph *ms_lower_after(const MsProgram *p, const MsTime *compute, const MsTime *host, const MsTime *tip,
                        const MsRivals *rivals) {
  size_t stages = (size_t)p->layout->pp;
  Lower l = {.p = p, .stages = p->layout->pp, .graph = ms_graph_new(p->layout->pp, MS_N_STREAMS + 1)};
  set_sms(&l, l.graph);
  l.tip = no_tasks(stages), l.reduced = no_tasks(MS_N_STREAMS * stages);
  for (int s = 0; s < l.stages; s++) lay_ends(&l, s, compute[s], host[s], tip[s], &rivals[s]);
  join_reductions(&l);
  lay_after(&l);
  g_free(l.tip), g_free(l.reduced);
  return l.graph;
}

/* One turn of pieces on the one device; what follows waits for its ends. */
static void lay_lone(Lower *l, MsChunks of, MsNeed then, guint32 *f_tip, guint32 *b_tip) {
  gboolean both = of.forward && of.backward;
  Side f = {.fetch = &l->fetch[0], .then = then, .entry = only(*f_tip), .tip = NONE},
       b = {.fetch = &l->fetch[both], .then = then, .entry = only(*b_tip), .tip = NONE};
  lay_pieces(l, 0, of, &f, &b);
  if (f.tip != NONE) *f_tip = f.tip;
  if (b.tip != NONE) *b_tip = b.tip;
}

/* The same in the middle of a pipeline. */
static void lay_streaming(Lower *l, MsChunks of, MsNeed then) {
  guint32 f_tip = NONE, b_tip = NONE;
  lay_lone(l, of, then, &f_tip, &b_tip);
  const Waits forward = only(f_tip), backward = only(b_tip);
  if (f_tip != NONE) send(l, &(MsSlotPass){.kind = MS_SLOT_F}, &forward);
  if (b_tip != NONE && of.kind != MS_SLOT_W) send(l, &(MsSlotPass){.kind = of.kind}, &backward);
}

/* Of the lists of its pieces; `chunk` may be NULL. */
static double rows_of_chunk(const MsProgram *p, const MsChunk *chunk, gboolean backward) {
  double rows = 0;
  for (int i = 0; chunk && i < ms_work_chunk_length(p->work, chunk); i++) {
    const MsCostedPiece *piece = &p->piece[ms_work_chunk_piece(p->work, chunk, i)];
    rows += backward ? piece->backward.list->n + piece->reload.list->n : piece->forward.list->n;
  }
  return rows;
}

MsGraph *ms_lower_chunk(const MsProgram *p, MsChunks of, int repeat, gboolean stream) {
  Fetch fetch[2] = {{.need = MS_NO_NEED}, {.need = MS_NO_NEED}};
  guint32 leaving[2] = {NONE, NONE}, f_tip = NONE, b_tip = NONE, sent[2] = {NONE, NONE};
  Lower l = {.p = p, .fetch = fetch, .leaving = leaving, .send = sent, .fetches = ms_program_fetches(p)};
  l.lone = of.forward ? of.forward : of.backward;
  l.graph = new_graph(&l, 1, repeat * (4 + rows_of_chunk(p, of.forward, FALSE) + rows_of_chunk(p, of.backward, TRUE)));
  gboolean both = of.forward && of.backward, paired = both && p->scenario->options.ep_overlap;
  MsChunks forward = {.forward = of.forward}, backward = of;
  backward.forward = NULL;
  MsNeed first = ms_first_need(p, of.forward ? forward : backward);
  for (int i = 0; i < repeat; i++) {
    guint32 begun = ms_graph_count(l.graph);
    if (stream && both && !paired)
      lay_streaming(&l, forward, ms_first_need(p, backward)), lay_streaming(&l, backward, first);
    else if (stream) lay_streaming(&l, of, both ? MS_NO_NEED : first);
    else if (both && !paired)
      lay_lone(&l, forward, ms_first_need(p, backward), &b_tip, &b_tip), lay_lone(&l, backward, first, &b_tip, &b_tip);
    else lay_lone(&l, of, both ? MS_NO_NEED : first, &f_tip, &b_tip);
    /* Those behind wait for what this one does, which is in it, or at the end of the one before. */
    if (l.fetches || p->unit || i < !stream || i + 1 == repeat || ms_graph_count(l.graph) == begun) continue;
    ms_graph_repeat(l.graph, ms_graph_count(l.graph) - begun, (guint32)(repeat - i - 1));
    break;
  }
  g_free(l.scratch);
  return l.graph;
}

/* Post-validation: a stage starts its next step as soon as it has ended this one. Steps that follow one another so are
 * a max-plus linear system: after a few of them every stage ends as much later each time, or each time a few of them
 * are over (F. Baccelli et al., "Synchronization and Linearity", 1992, 3.7). A stage that has less to do than others
 * may take long to be held up by them: then what the slowest gained last, which is no less. */
MsTime ms_lower_period_of(int stages, const MsTime *end, MsAgain again, gconstpointer data) {
  enum { STEPS = 12, LAST = 6 };
  const MsTime near = 1000; /* rounding of `fast` */
  g_autofree MsTime *ends = g_new(MsTime, (gsize)stages * (STEPS + 1));
  MsTime slowest = 0;
  memcpy(ends, end, sizeof *end * (gsize)stages);
  for (int k = 1; k <= STEPS; k++) {
    MsTime *now = ends + k * stages;
    again(data, now - stages, now);
    for (int j = k - 1; j >= 0; j--) {
      MsTime most = 0, least = G_MAXINT64;
      for (int s = 0; s < stages; s++) {
        MsTime later = now[s] - ends[j * stages + s];
        most = MAX(most, later), least = MIN(least, later);
      }
      if (most - least <= near) return (most + k - j - 1) / (k - j);
      if (j == k - LAST) slowest = most;
    }
  }
  return (slowest + LAST - 1) / LAST;
}

typedef struct {
  const MsGraph *graph;
  const MsTrajectory *t;
} Step;

static void step_again(gconstpointer data, const MsTime *from, MsTime *end) {
  const Step *step = data;
  ms_engine_again(step->graph, step->t, from, end);
}

void ms_lower_ends(const MsGraph *graph, const MsTrajectory *t, int stages, MsTime *end) {
  for (int s = 0; s < stages; s++) end[s] = 0;
  for (guint32 i = 0; i < t->n; i++) {
    guint32 s = ms_graph_task(graph, i)->device;
    end[s] = MAX(end[s], t->end[i]);
  }
}

MsTime ms_lower_period(const MsProgram *p, const MsGraph *graph, const MsTrajectory *t, MsTimeParts *stage) {
  if (!p->skewed) return t->makespan;
  int stages = p->layout->pp;
  g_autofree MsTime *end = g_new(MsTime, stages);
  ms_lower_ends(graph, t, stages, end);
  MsTime period = ms_lower_period_of(stages, end, step_again, &(Step){graph, t});
  ms_parts_shorten(stage, stages, t->makespan - period);
  return period;
}
