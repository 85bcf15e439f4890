/* src/step/program.c - costing every distinct row once. */
#include "step/program.h"
#include "step/meeting.h"
#include "step/pair.h"
#include "base/units.h"
#include "describe/framework.h"
#include "describe/module_sets.h"
#include <math.h>
#include <string.h>

MsTime ms_time_of(double time_s) {
  double ps = time_s * MS_PS_PER_S;
  if (!(ps > 0)) return 0;
  return ps > 4e18 ? (MsTime)4e18 : (MsTime)(ps + 0.5);
}

static guint8 use_of(const MsOp *op, const MsOpCost *cost) {
  if (ms_op_families[op->kind] == MS_FAMILY_HOST) return MS_USE_NOTHING;
  if (ms_op_families[op->kind] != MS_FAMILY_COMM) return MS_USE_COMPUTE;
  if (op->kind == MS_OP_H2D) return MS_USE_NOTHING; /* the link is full duplex, and one stream uses each direction */
  if (op->kind == MS_OP_D2H) return MS_USE_HOSTLINK;
  return cost->level == 0 ? MS_USE_LINK0 : MS_USE_LINK1;
}

/* Longest path to the last compute row with every stream free at the start. */
static MsTime shortest(const MsOpList *list, const MsTime *duration) {
  enum { FEW = 256 };
  MsTime few[FEW], *end = list->n > FEW ? g_new(MsTime, list->n) : few, stream[MS_N_STREAMS] = {0}, last = 0;
  for (int i = 0; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    MsTime start = stream[op->stream];
    for (int j = 0; j < 3; j++)
      if (op->wait[j] >= 0) start = MAX(start, end[op->wait[j]]);
    end[i] = stream[op->stream] = start + duration[i];
    if (op->stream == MS_STREAM_COMPUTE) last = end[i];
  }
  if (end != few) g_free(end);
  return last;
}

static gboolean opens_checkpoint(const MsOpList *list, int i) {
  return list->op[i].pass == MS_PASS_RECOMPUTE && (i == 0 || list->op[i - 1].pass != MS_PASS_RECOMPUTE);
}

enum { NEAR = 8 }; /* rows of another list in which the same one is looked for */

/* The row of the same kernel; -1 = none near. *at: behind the last that was found. */
static int find_kernel(const MsCosted *like, const MsOp *op, int *at) {
  for (int k = *at; k < MIN(*at + NEAR, like->list->n); k++)
    if (ms_op_same_kernel(op, &like->list->op[k])) return *at = k + 1, k;
  return -1;
}

double ms_operator_s(const MsScenario *s) {
  double learned = ms_anchor_factor(&s->hardware->anchor, MS_ANCHOR_HOST, s->model ? s->model->name : NULL);
  return s->hardware->kernel_launch_s * (s->stack.host > 0 ? s->stack.host : 1) * learned;
}

typedef struct { /* what lists of one pool are costed with */
  const MsScenario *scenario;
  const MsCost *cost; /* of all pools */
  int pool;
  gboolean beside;        /* streams of their own run them while passes compute */
  gboolean any, follows;  /* what follows the size of the pipeline takes nothing: rows between replicas; all rows */
  const MsBucket *bucket; /* [rows] or NULL: so do these, but the last to be reduced and the first to be gathered */
} Place;

static MsOpCost cost_alone(const Place *at, const MsOp *op) {
  if (at->pool < 0) return ms_cost_op(at->cost, op);
  return ms_group_spans_stages((MsGroupKind)op->group) ? ms_cost_of_all_pools(at->cost, at->pool, op)
                                                       : ms_cost_op(ms_cost_of_pool(at->cost, at->pool), op);
}

static gboolean runs_beside(const Place *at, int row) {
  return at->bucket ? at->bucket[row].chunk > 0 || at->bucket[row].piece > 0 : at->beside;
}

static MsOpCost cost_of(const Place *at, const MsOp *op, int row) {
  if (at->follows || (at->any && ms_group_spans_replicas((MsGroupKind)op->group))) return (MsOpCost){0};
  MsOpCost cost = cost_alone(at, op);
  if (runs_beside(at, row) && !at->scenario->hardware->serial) cost.time_s = MAX(cost.time_s, cost.beside_s);
  return cost;
}

/* `like`: a list much like it whose kernels cost the same, or NULL. */
static void cost_list(MsCosted *c, const Place *at_pool, const MsOpList *list, const MsCosted *like, guint32 *tag) {
  const MsScenario *s = at_pool->scenario;
  const MsHardware *hw = s->hardware;
  int n = list->n, at = 0;
  c->list = list;
  c->tag = *tag;
  *tag += (guint32)n;
  gsize costs = like || at_pool->pool >= 0 ? 0 : sizeof *c->cost;
  c->duration = g_malloc((gsize)MAX(n, 1) *
                         (3 * sizeof(MsTime) + costs + sizeof(guint16) + sizeof(guint8))); /* one block for all */
  c->beside = c->duration + n, c->launch = c->beside + n;
  c->cost = costs ? (MsOpCost *)(gpointer)(c->launch + n) : NULL;
  c->sms = costs ? (guint16 *)(gpointer)(c->cost + n) : (guint16 *)(gpointer)(c->launch + n);
  c->use = (guint8 *)(c->sms + n);
  gboolean in_graph = FALSE, sync = FALSE;
  double operator_s = ms_operator_s(s);
  const gboolean whole = MS_GRAPHS(s->options.cuda_graph_scope, whole_step) != 0;
  for (int i = 0; i < n; i++) {
    const MsOp *op = &list->op[i];
    int known = like ? find_kernel(like, op, &at) : -1;
    MsOpCost cost = known < 0 ? cost_of(at_pool, op, i) : (MsOpCost){0};
    if (c->cost) c->cost[i] = cost;
    c->duration[i] = known < 0 ? ms_time_of(cost.time_s) : like->duration[known];
    c->beside[i] = known < 0 ? ms_time_of(MAX(cost.time_s, cost.beside_s)) : like->duration[known];
    c->sms[i] = hw->sm_count > 0 && !hw->serial ? cost.sms : 0;
    c->most_sms[op->stream] = MAX(c->most_sms[op->stream], c->sms[i]);
    c->use[i] = use_of(op, &cost);
    if (c->use[i] == MS_USE_COMPUTE) c->compute += c->duration[i];
    if (c->use[i] == MS_USE_COMPUTE && op->pass == MS_PASS_WGRAD) c->weight += c->duration[i];
    gboolean graph = hw->cuda_graphs && ms_captured(&s->options, (MsModule)op->module);
    double launch_s = graph ? (in_graph || whole ? 0 : hw->graph_launch_s + s->laws.graph_call_operators * operator_s)
                            : (op->kernels + op->host) * operator_s;
    if (sync) launch_s += hw->sync_s;
    if (!graph && opens_checkpoint(list, i)) launch_s += s->laws.checkpoint_operators * operator_s;
    c->launch[i] = ms_time_of(launch_s);
    in_graph = graph;
    sync = (op->flags & MS_OPF_SYNC) != 0;
  }
  c->shortest = shortest(list, c->duration);
}

/* With EP overlap each node of the schedule is a call of its own: streams switched, events waited for and recorded,
 * inputs detached; a backward node is a run of the autograd engine besides, on its thread (Megatron-LM
 * pipeline_parallel/utils.py, ScheduleNode). Framework operators whose host time comes to as much. No graph but one of
 * the whole iteration captures it. */
static void add_node_calls(MsCosted *c, const MsScenario *s, gboolean backward) {
  if (!s->options.ep_overlap || MS_GRAPHS(s->options.cuda_graph_scope, whole_step)) return;
  int cut[MS_PAIR_NODES + 1];
  ms_pair_cut(c->list, backward, cut);
  double call_s = (backward ? s->laws.node_backward_operators : s->laws.node_forward_operators) * ms_operator_s(s);
  for (int i = 0; i < MS_PAIR_NODES; i++)
    if (cut[i + 1] > cut[i]) c->launch[cut[i]] += ms_time_of(call_s);
}

/* Of pool -1: there are none. */
static Place place_of(const MsWork *work, const MsCost *cost, int pool) {
  if (!work->of_pool) return (Place){.scenario = work->scenario, .cost = cost, .pool = -1};
  return (Place){.scenario = ms_work_on_pool(work, pool)->scenario, .cost = cost, .pool = pool};
}

/* Collectives out of registered buffers take few SMs (docs/theory/communication.md 9: user buffers on NVLink, on NVLink
 * and network, on the network alone). */
static void registered_buffers(const MsLayout *layout, MsCosted *c) {
  memset(c->most_sms, 0, sizeof c->most_sms);
  for (int i = 0; i < c->list->n; i++) {
    const MsGroup *group = &layout->group[c->list->op[i].group];
    c->sms[i] = MIN(c->sms[i], group->domains == 1 ? 4 : group->per_domain > 1 ? 16 : 4);
    guint16 *most = &c->most_sms[c->list->op[i].stream];
    *most = MAX(*most, c->sms[i]);
  }
}

static void cost_units(MsProgram *p, guint32 *tag) {
  if (p->scenario->options.fsdp < MS_FSDP_OPTIM_GRADS) return;
  p->unit = g_new0(MsCostedUnit, p->work->n_pieces);
  for (int i = 0; i < p->work->n_pieces; i++) {
    MsCostedUnit *u = &p->unit[i];
    int pool = ms_work_pool_of_piece(p->work, i);
    Place at = place_of(p->work, p->cost, pool);
    at.beside = TRUE;
    const MsLayout *layout = ms_layout_on(p->layout, pool);
    ms_work_unit_ops(p->work, i, &u->ops);
    for (int k = 0; k < MS_UNIT_LISTS; k++) cost_list(&u->list[k], &at, &u->ops.list[k], NULL, tag);
    if (!ms_framework(at.scenario)->registered_buffers) continue;
    registered_buffers(layout, &u->first), registered_buffers(layout, &u->gather),
        registered_buffers(layout, &u->reduce);
  }
}

static void costed_clear(MsCosted *c) { g_free(c->duration); }

MsCostedPiece *ms_costed_pieces_new(const MsWork *work, const MsCost *cost, gboolean any_pipeline,
                                    const MsCostedPiece *like, int n_like, guint32 *tag) {
  MsCostedPiece *piece = g_new0(MsCostedPiece, work->n_pieces);
  for (int i = 0; i < work->n_pieces; i++) {
    const MsCostedPiece *known = i < n_like ? &like[i] : NULL;
    Place at = place_of(work, cost, ms_work_pool_of_piece(work, i));
    at.any = any_pipeline, at.follows = any_pipeline && work->pieces[i].kind == MS_PIECE_SCALES;
    cost_list(&piece[i].forward, &at, &work->pieces[i].forward, known ? &known->forward : NULL, tag);
    cost_list(&piece[i].backward, &at, &work->pieces[i].backward, known ? &known->backward : NULL, tag);
    cost_list(&piece[i].reload, &at, &work->pieces[i].reload, NULL, tag);
    add_node_calls(&piece[i].forward, at.scenario, FALSE), add_node_calls(&piece[i].backward, at.scenario, TRUE);
  }
  return piece;
}

void ms_costed_pieces_free(MsCostedPiece *piece, int n) {
  for (int i = 0; piece && i < n; i++)
    costed_clear(&piece[i].forward), costed_clear(&piece[i].backward), costed_clear(&piece[i].reload);
  g_free(piece);
}

static guint32 tag_behind(const MsCostedPiece *piece, int n) {
  return n > 0 ? piece[n - 1].reload.tag + (guint32)piece[n - 1].reload.list->n : 0;
}

/* The message is there when it is whole. */
static MsOpCost message_between(const MsProgram *p, int from, int to) {
  MsOpCost c = ms_cost_message(p->cost, p->layout, from, to, &p->p2p_op);
  MsOp gather = ms_work_p2p_gather(p->work);
  if (gather.message_B > 0)
    c.time_s += ms_cost_op(ms_cost_of_pool(p->cost, ms_layout_pool(p->layout, to)), &gather).time_s;
  return c;
}

/* Of neighbours that share no domain, nobody stands apart: all cost the same. */
static gboolean messages_differ(const MsProgram *p) {
  if (p->layout->pp == 1) return FALSE;
  if (!ms_cost_messages_alike(p->cost)) return TRUE;
  gboolean first = ms_layout_message_crosses(p->layout, 0, 1);
  for (int i = 1; i < p->layout->pp; i++)
    if (ms_layout_message_crosses(p->layout, i, (i + 1) % p->layout->pp) != first) return TRUE;
  return FALSE;
}

static void cost_messages(MsProgram *p) {
  int pp = p->layout->pp, known[2] = {-1, -1};
  if (!messages_differ(p)) {
    p->p2p = message_between(p, 0, pp > 1);
    return;
  }
  p->message = g_new(MsOpCost, 2 * (gsize)pp);
  for (int i = 0; i < 2 * pp; i++) {
    int from = i < pp ? i : (i + 1) % pp, to = i < pp ? (i + 1) % pp : i - pp;
    int *like = &known[ms_layout_message_crosses(p->layout, from, to)];
    p->message[i] = ms_cost_messages_alike(p->cost) && *like >= 0 ? p->message[*like] : message_between(p, from, to);
    *like = i;
    gboolean sends = p->layout->pp_closes || (i + 1) % pp > 0;
    if (sends && p->message[i].time_s > p->p2p.time_s) p->p2p = p->message[i];
  }
}

const MsOpCost *ms_program_p2p(const MsProgram *p, int from, int to) {
  return p->message ? &p->message[ms_program_message_at(p, from, to)] : &p->p2p;
}

/* At the ends of the pipeline and at the bend of a V, where nothing is sent, that between the stage and its only
 * neighbour. */
const MsOpCost *ms_program_p2p_of(const MsProgram *p, const MsChunk *chunk, gboolean backward) {
  const MsLayout *l = p->layout;
  int pp = l->pp, at = (int)(chunk - l->chunks), from = at % pp;
  gboolean turns = ms_schedule_row(p->scenario->layout.schedule)->placement != MS_PLACE_ROUND_ROBIN && at >= pp;
  int to = from + (backward != turns ? -1 : 1);
  if (to < 0 || to >= pp) to = l->pp_closes ? (to + pp) % pp : 2 * from - to;
  return p->message && pp > 1 ? ms_program_p2p(p, from, to) : &p->p2p;
}

int ms_program_stage_of(const MsProgram *p, int virtual_stage) {
  return ms_placement_stage(ms_schedule_row(p->scenario->layout.schedule)->placement, p->layout->pp, virtual_stage);
}

static gboolean waits_for_messages(const MsScenario *s) {
  switch (ms_schedule_row(s->layout.schedule)->sends) {
  case MS_SENDS_BLOCK: return TRUE;
  case MS_SENDS_BESIDE: break;
  }
  return FALSE;
}

MsProgram *ms_program_new(const MsWork *work, const MsCost *cost) { return ms_program_new_like(work, cost, NULL); }

MsProgram *ms_program_new_like(const MsWork *work, const MsCost *cost, MsCostedPiece *pieces) {
  MsProgram *p = g_new0(MsProgram, 1);
  p->scenario = work->scenario;
  p->layout = work->layout;
  p->work = work;
  p->cost = cost;
  guint32 tag = 0;
  p->borrowed = pieces != NULL;
  p->piece = pieces ? pieces : ms_costed_pieces_new(work, cost, FALSE, NULL, 0, &tag);
  tag = tag_behind(p->piece, work->n_pieces);
  cost_units(p, &tag);
  p->step = g_new0(MsCostedStep, p->layout->pp);
  for (int i = 0; i < p->layout->pp; i++) {
    MsCostedStep *s = &p->step[i];
    const Place at = place_of(work, cost, ms_layout_pool(p->layout, i));
    Place reduce = at, gather = at;
    ms_work_step_ops(work, i, &s->ops);
    reduce.bucket = s->ops.reduce_at, gather.bucket = s->ops.gather_at;
    cost_list(&s->before, &at, &s->ops.before, NULL, &tag);
    cost_list(&s->reduce, &reduce, &s->ops.reduce, NULL, &tag);
    cost_list(&s->gather, &gather, &s->ops.gather, NULL, &tag);
    cost_list(&s->after, &at, &s->ops.after, NULL, &tag);
  }
  p->p2p_op = ms_work_p2p(work);
  cost_messages(p);
  p->p2p_tag = tag++, p->no_tag = tag++;
  p->n_tags = tag;
  gboolean waits = waits_for_messages(p->scenario);
  p->p2p_blocks =
      (waits && (p->layout->vpp == 1 || !p->scenario->options.overlap_p2p_comm)) || p->scenario->hardware->serial;
  p->p2p_in_turn = waits && !p->p2p_blocks && !p->scenario->options.overlap_p2p_comm_warmup_flush;
  p->skewed = ms_steps_overlap(p->scenario);
  return p;
}

/* All rows and their launches after one another. */
static double serial_s(const MsCosted *c) {
  double sum = 0;
  for (int i = 0; i < c->list->n; i++) sum += (double)c->beside[i] + (double)c->launch[i];
  return sum / MS_PS_PER_S;
}

/* A microbatch forward and back. */
static double serial_piece_s(const MsProgram *p, int piece) {
  const MsCostedPiece *x = &p->piece[piece];
  double pass_s = serial_s(&x->forward) + serial_s(&x->backward) + serial_s(&x->reload);
  for (int k = 0; p->unit && k < MS_UNIT_LISTS; k++) pass_s += serial_s(&p->unit[piece].list[k]);
  return p->unit ? pass_s + serial_s(&p->unit[piece].gather) : pass_s; /* gathered twice */
}

double ms_program_longest_s(const MsProgram *p) {
  const MsLayout *l = p->layout;
  double longest = 0;
  g_autofree double *piece_s = g_new(double, p->work->n_pieces);
  for (int i = 0; i < p->work->n_pieces; i++) piece_s[i] = serial_piece_s(p, i);
  for (int s = 0; s < l->pp; s++) {
    const MsCostedStep *step = &p->step[s];
    double pass_s = 0;
    for (int c = 0; c < l->vpp; c++) {
      const MsChunk *chunk = ms_layout_chunk(l, s, c);
      pass_s += 2 * p->p2p.time_s;
      for (int i = 0; i < ms_work_chunk_length(p->work, chunk); i++)
        pass_s += piece_s[ms_work_chunk_piece(p->work, chunk, i)];
    }
    longest = MAX(longest, l->microbatches * pass_s + serial_s(&step->before) + serial_s(&step->reduce) +
                               serial_s(&step->gather) + serial_s(&step->after));
  }
  return l->pp * longest;
}

gboolean ms_steps_overlap(const MsScenario *s) {
  return ms_schedule_row(s->layout.schedule)->steps == MS_STEPS_OVERLAP && s->layout.pp > 1 &&
         s->options.optimizer_post_validation != FALSE;
}

gboolean ms_slots_overlap(const MsScenario *s) {
  return s->options.ep_overlap || ms_schedule_may_split(s->layout.schedule);
}

MsTime ms_costed_issue(const MsCosted *c, MsListPart part) {
  MsTime sum = 0;
  for (int i = 0; i < c->list->n; i++)
    if (ms_in_list_part(&c->list->op[i], part)) sum += c->launch[i];
  return sum;
}

/* Mean over the stages: the search knows one cost for each pass, and one for messages. What a pass is timed at is the
 * host's time where that is the longer (sail-sg/zero-bubble-pipeline-parallelism
 * core/pipeline_parallel/zerobubble/timer.py, core/timers.py: each is timed between two synchronisations). */
static void mean_costs(const MsProgram *p, MsScheduleNumbers *numbers) {
  const MsLayout *l = p->layout;
  double f = 0, b = 0, w = 0, n = l->pp, host_f = 0, host_b = 0, host_w = 0;
  for (int i = 0; i < l->num_chunks; i++)
    for (int j = 0; j < ms_work_chunk_length(p->work, &l->chunks[i]); j++) {
      const MsCostedPiece *piece = &p->piece[ms_work_chunk_piece(p->work, &l->chunks[i], j)];
      f += (double)piece->forward.shortest, b += (double)piece->backward.shortest, w += (double)piece->backward.weight;
      host_f += (double)ms_costed_issue(&piece->forward, MS_LIST_ALL);
      host_b += (double)ms_costed_issue(&piece->backward, MS_LIST_ALL);
      host_w += (double)ms_costed_issue(&piece->backward, MS_LIST_WEIGHT);
    }
  b = MAX(b - w, host_b - host_w), w = MAX(w, host_w), f = MAX(f, host_f);
  numbers->f = MAX(1, round(f / n)), numbers->i = MAX(1, round(b / n)), numbers->w = round(w / n);
  for (int i = 0; i + 1 < l->pp; i++) numbers->comm += (double)ms_time_of(ms_program_p2p(p, i, i + 1)->time_s);
  numbers->comm /= MAX(1, l->pp - 1);
}

MsSchedule *ms_program_schedule(const MsProgram *p, char *why, size_t size) {
  MsScheduleKind kind = p->scenario->layout.schedule;
  MsScheduleNumbers numbers = ms_layout_schedule_numbers(p->scenario, p->layout);
  if (ms_schedule_row(kind)->costs == MS_COSTS_DECIDE) mean_costs(p, &numbers);
  return ms_schedule_shared(kind, &numbers, why, size);
}

void ms_program_free(MsProgram *p) {
  if (!p) return;
  if (!p->borrowed) ms_costed_pieces_free(p->piece, p->work->n_pieces);
  for (int i = 0; p->unit && i < p->work->n_pieces; i++) {
    for (int k = 0; k < MS_UNIT_LISTS; k++) costed_clear(&p->unit[i].list[k]);
    ms_unit_ops_clear(&p->unit[i].ops);
  }
  g_free(p->unit);
  for (int i = 0; i < p->layout->pp; i++) {
    MsCostedStep *s = &p->step[i];
    costed_clear(&s->before), costed_clear(&s->reduce), costed_clear(&s->gather), costed_clear(&s->after);
    ms_step_ops_clear(&s->ops);
  }
  g_free(p->step);
  g_free(p->message);
  ms_meets_free(p->meets);
  g_free(p);
}
