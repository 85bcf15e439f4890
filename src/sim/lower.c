/* src/sim/lower.c - the step as a graph: every row of every slot, laid down in an order in which each task's waits already exist. */
#include "sim/lower.h"
#include "base/err.h"
#include <string.h>

#define NONE G_MAXUINT32

typedef struct {
  const MsProgram *p;
  const MsSchedule *schedule;
  MsGraph *graph;
  int stages, chunks, microbatches;
  int *next;             /* [stages] slot to lay down next */
  guint32 *arrived_f;    /* [virtual stage * microbatches + mb] task that brings its input, NONE = not yet */
  guint32 *arrived_b;    /* the same for its output gradient */
  guint32 *gather;       /* [stages * chunks * 2] last parameter gather rows, NONE = none */
  guint32 *reduce;       /* [stages * chunks * 2] gradient reductions */
  guint32 *tip;          /* [stages] last task of the chain of the last slot */
  guint32 *send;         /* [stages] last blocking send, NONE = none */
  int *left_b;           /* [stages * chunks] backwards still to come */
  guint32 *slot_task;
  const guint32 *slot_base;
} Lower;

/* --- laying down one costed list --- */

static guint32 add_row(Lower *l, int stage, const MsCosted *c, int i, const guint32 *wait, guint n) {
  const MsOp *op = &c->list->op[i];
  MsTask task = {.device = (guint32)stage, .stream = op->stream, .use = c->use[i], .host_sync = (op->flags & MS_OPF_SYNC) != 0,
                 .sms = c->sms[i], .duration = c->duration[i], .launch = c->launch[i], .tag = c->tag + (guint32)i};
  return ms_graph_add(l->graph, &task, wait, n);
}

typedef struct { guint32 first, tip; } Laid;

static Laid lay_list(Lower *l, const MsCosted *c, guint32 device, const guint32 *entry, guint n_entry) {
  Laid laid = {.first = ms_graph_count(l->graph), .tip = NONE};
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    guint32 wait[8];
    guint n = 0;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= 0) wait[n++] = laid.first + (guint32)op->wait[j];
    if (n == 0)
      for (guint j = 0; j < n_entry && n < G_N_ELEMENTS(wait); j++)
        if (entry[j] != NONE) wait[n++] = entry[j];
    add_row(l, (int)device, c, i, wait, n);
  }
  if (c->list->n > 0) laid.tip = laid.first + (guint32)c->list->tip;
  return laid;
}

static guint32 lay_chunk(Lower *l, const MsChunk *chunk, guint32 device, gboolean backward, guint32 *entry, guint n_entry) {
  int n = ms_work_chunk_length(chunk);
  guint32 tip = NONE;
  for (int i = 0; i < n; i++) {
    int piece = ms_work_chunk_piece(l->p->work, chunk, backward ? n - 1 - i : i);
    const MsCostedPiece *c = &l->p->piece[piece];
    Laid laid = lay_list(l, backward ? &c->backward : &c->forward, device, entry, n_entry);
    if (laid.tip == NONE) continue;
    tip = laid.tip;
    entry[0] = tip;
    n_entry = 1;
  }
  return tip;
}

/* --- the step's own rows --- */

static void lay_step_rows(Lower *l, int stage, const MsCosted *c, const int *chunk_of, guint32 *out, int chunk, guint32 after) {
  /* rows of `chunk` in a reduce or gather list; each list keeps rows of one chunk together and in order */
  const MsOpList *list = c->list;
  int first = 0;
  while (first < list->n && chunk_of[first] != chunk) first++;
  guint32 base = ms_graph_count(l->graph);
  int kept = 0;
  for (int i = first; i < list->n && chunk_of[i] == chunk; i++) {
    const MsOp *op = &list->op[i];
    guint32 wait[4];
    guint n = 0;
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= first) wait[n++] = base + (guint32)(op->wait[j] - first);
    if (n == 0 && after != NONE) wait[n++] = after;
    guint32 id = add_row(l, stage, c, i, wait, n);
    if (op->stream != MS_STREAM_COMPUTE && kept < 2) out[kept++] = id;
  }
}

static void lay_before(Lower *l) {
  for (int s = 0; s < l->stages; s++) {
    const MsCostedStep *step = &l->p->step[s];
    Laid laid = lay_list(l, &step->before, (guint32)s, NULL, 0);
    l->tip[s] = laid.tip;
    for (int c = 0; c < l->chunks; c++)
      lay_step_rows(l, s, &step->gather, step->ops.gather_chunk, &l->gather[2 * (s * l->chunks + c)], c, NONE);
  }
}

static gboolean crosses_stages(const MsOp *op) { return op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING; }

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

/* After-rows go in lockstep: a row over a group that spans stages starts when all its stages have come so far. */
static void lay_after(Lower *l) {
  g_autofree int *at = g_new0(int, l->stages);
  g_autofree guint32 *barrier = g_new(guint32, 4 * (gsize)l->stages);
  g_autofree guint32 **id = g_new0(guint32 *, l->stages);
  for (int s = 0; s < l->stages; s++) id[s] = g_new(guint32, MAX(1, l->p->step[s].after.list->n));
  const MsGroupKind order[] = {MS_GROUP_EMBEDDING, MS_GROUP_WORLD};
  for (guint k = 0; k <= G_N_ELEMENTS(order); k++) {
    for (int s = 0; s < l->stages; s++) lay_until_crossing(l, s, &at[s], id[s]);
    if (k == G_N_ELEMENTS(order)) break;
    guint n = 0;
    for (int s = 0; s < l->stages; s++) {
      const MsOpList *list = l->p->step[s].after.list;
      if (at[s] < list->n && list->op[at[s]].group == order[k]) n += row_waits(l, s, &list->op[at[s]], id[s], &barrier[n]);
    }
    for (int s = 0; s < l->stages; s++) {
      const MsCosted *c = &l->p->step[s].after;
      if (at[s] >= c->list->n || c->list->op[at[s]].group != order[k]) continue;
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
    MsTask task = {.device = (guint32)stage, .stream = MS_STREAM_PP_SEND, .use = l->p->p2p.level ? MS_USE_LINK1 : MS_USE_LINK0,
                   .sms = l->p->scenario->hardware->sm_count > 0 ? l->p->p2p.sms : 0, .duration = ms_time_of(l->p->p2p.time_s),
                   .launch = ms_time_of(l->p->p2p_op.kernels * l->p->scenario->hardware->kernel_launch_s), .tag = l->p->p2p_tag};
    if (backward) task.stream = MS_STREAM_PP_RECV; /* the second communicator: gradients do not queue behind activations */
    task_id = ms_graph_add(l->graph, &task, &tip, 1);
    if (l->p->p2p_blocks) l->send[stage] = task_id;
  }
  *arrival(l, backward, to_virtual, mb) = task_id;
  return task_id;
}

static int virtual_count(const Lower *l) { return l->stages * l->chunks; }

static gboolean input_ready(Lower *l, int virtual_stage, int mb, gboolean backward, guint32 *task) {
  gboolean end = backward ? virtual_stage == virtual_count(l) - 1 : virtual_stage == 0;
  *task = NONE;
  if (end && !backward) return TRUE;
  guint32 t = *arrival(l, backward, virtual_stage, mb);
  if (t == NONE) return FALSE;
  *task = t;
  return TRUE;
}

static guint entry_of(Lower *l, int stage, int chunk, guint32 input, gboolean backward, int mb, guint32 *entry) {
  guint n = 0;
  if (input != NONE) entry[n++] = input;
  if (l->tip[stage] != NONE && n == 0) entry[n++] = l->tip[stage];
  if (l->send[stage] != NONE) entry[n++] = l->send[stage], l->send[stage] = NONE;
  if (!backward && mb == 0)
    for (int k = 0; k < 2; k++) {
      guint32 g = l->gather[2 * (stage * l->chunks + chunk) + k];
      if (g != NONE) entry[n++] = g;
    }
  return n;
}

static gboolean lay_forward(Lower *l, int stage, int chunk, int mb) {
  int v = ms_virtual_stage(l->schedule, stage, chunk);
  guint32 input, entry[8];
  if (!input_ready(l, v, mb, FALSE, &input)) return FALSE;
  guint n = entry_of(l, stage, chunk, input, FALSE, mb, entry);
  guint32 before = l->tip[stage];
  guint32 tip = lay_chunk(l, ms_layout_chunk(l->p->layout, stage, chunk), (guint32)stage, FALSE, entry, n);
  if (tip == NONE) tip = input != NONE ? input : before; /* an empty virtual stage passes its input on */
  l->tip[stage] = tip;
  if (v + 1 < virtual_count(l)) {
    if (tip != NONE) send(l, stage, tip, v + 1, mb, FALSE);
  } else {
    *arrival(l, TRUE, v, mb) = tip; /* the loss: backward of the last stage follows its own forward */
  }
  return TRUE;
}

static gboolean lay_backward(Lower *l, int stage, int chunk, int mb) {
  int v = ms_virtual_stage(l->schedule, stage, chunk);
  guint32 input, entry[8];
  if (!input_ready(l, v, mb, TRUE, &input)) return FALSE;
  guint n = entry_of(l, stage, chunk, input, TRUE, mb, entry);
  guint32 tip = lay_chunk(l, ms_layout_chunk(l->p->layout, stage, chunk), (guint32)stage, TRUE, entry, n);
  if (tip == NONE) tip = input;
  l->tip[stage] = tip;
  if (v > 0) send(l, stage, tip, v - 1, mb, TRUE);
  if (--l->left_b[stage * l->chunks + chunk] == 0) {
    const MsCostedStep *step = &l->p->step[stage];
    lay_step_rows(l, stage, &step->reduce, step->ops.reduce_chunk, &l->reduce[2 * (stage * l->chunks + chunk)], chunk, tip);
  }
  return TRUE;
}

static gboolean lay_slot(Lower *l, int stage, const MsSlot *slot) {
  switch ((MsSlotKind)slot->kind) {
  case MS_SLOT_F: return lay_forward(l, stage, slot->chunk, slot->mb);
  case MS_SLOT_B: return lay_backward(l, stage, slot->chunk, slot->mb);
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
        rows += piece->forward.list->n + piece->backward.list->n;
      }
      tasks += rows * schedule->microbatches;
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
    g_autofree guint32 *wait = g_new(guint32, 2 * l->chunks + 1);
    guint n = 0;
    if (l->tip[s] != NONE) wait[n++] = l->tip[s];
    for (int k = 0; k < 2 * l->chunks; k++) {
      guint32 r = l->reduce[2 * s * l->chunks + k];
      if (r != NONE) wait[n++] = r;
    }
    if (n < 2) continue;
    MsTask join = {.device = (guint32)s, .stream = MS_STREAM_SIDE, .use = MS_USE_NOTHING, .tag = l->p->p2p_tag};
    l->tip[s] = ms_graph_add(l->graph, &join, wait, n);
  }
}

MsGraph *ms_lower_full(const MsProgram *p, const MsSchedule *schedule, guint32 *slot_task, const guint32 *slot_base) {
  Lower l = {.p = p, .schedule = schedule, .stages = schedule->stages, .chunks = schedule->chunks, .microbatches = schedule->microbatches,
             .slot_task = slot_task, .slot_base = slot_base};
  l.graph = new_graph(p, l.stages, ms_program_tasks(p, schedule) + 64.0 * l.stages);
  size_t virtual_mb = (size_t)(l.stages * l.chunks) * (size_t)l.microbatches, per_chunk = (size_t)(l.stages * l.chunks);
  l.next = g_new0(int, l.stages);
  l.arrived_f = filled(virtual_mb, NONE), l.arrived_b = filled(virtual_mb, NONE);
  l.gather = filled(2 * per_chunk, NONE), l.reduce = filled(2 * per_chunk, NONE);
  l.tip = filled((size_t)l.stages, NONE), l.send = filled((size_t)l.stages, NONE);
  l.left_b = g_new(int, per_chunk);
  for (size_t i = 0; i < per_chunk; i++) l.left_b[i] = l.microbatches;
  lay_before(&l);
  lay_slots(&l);
  if (slot_task)
    for (int s = 0; s < l.stages; s++) slot_task[slot_base[s] + (guint32)schedule->n[s]] = ms_graph_count(l.graph);
  join_reductions(&l);
  lay_after(&l);
  g_free(l.next), g_free(l.arrived_f), g_free(l.arrived_b), g_free(l.gather), g_free(l.reduce), g_free(l.tip), g_free(l.send), g_free(l.left_b);
  return l.graph;
}

MsGraph *ms_lower_chunk(const MsProgram *p, const MsChunk *chunk, MsSlotKind kind, const MsChunk *chunk2, int repeat) {
  (void)chunk2;
  Lower l = {.p = p};
  l.graph = new_graph(p, 1, 256);
  guint32 tip = NONE;
  for (int i = 0; i < repeat; i++) {
    guint32 entry[1] = {tip};
    guint32 t = lay_chunk(&l, chunk, 0, kind != MS_SLOT_F, entry, 1);
    if (t != NONE) tip = t;
  }
  return l.graph;
}
