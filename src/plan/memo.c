/* src/plan/memo.c - the pieces of one setting of the outer axes and the work keys, costed once for all (pp, vpp). */
#include "plan/memo_priv.h"
#include "describe/framework.h"
#include "memory/memory.h"

#include <math.h>

typedef struct {
  double host_share;
  int pp, number;
} CostNumber;

void ms_leave_pipeline_out(MsScenario *s) {
  MsLayoutSpec *l = &s->layout;
  g_clear_pointer(&l->pipeline_layout, g_free);
  l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
  l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
  l->pp = l->vpp = 1;
  l->schedule = MS_SCHED_1F1B, l->microbatch_group_size_per_virtual_pipeline_stage = 0;
}

gboolean ms_pieces_depend_on_cut(const MsScenario *s) {
  const MsRecomputeSpec *r = &s->options.recompute;
  return (r->granularity == MS_RECOMPUTE_FULL && (r->num_layers > 1 || r->method != MS_RECOMPUTE_UNIFORM)) ||
         ms_routing_is_drawn(&s->training.routing);
}

void ms_memo_free(MsPieceMemo *m) {
  if (!m) return;
  if (m->cost_number) g_array_unref(m->cost_number);
  g_free(m->busy);
  g_free(m->time[0]);
  g_free(m->time[1]);
  ms_piece_lags_free(m->lags);
  ms_costed_pieces_free(m->piece, m->n);
  g_free(m->kept);
  g_free(m->unit);
  g_free(m->in_model);
  ms_cost_free(m->cost);
  ms_work_free(m->work);
  ms_layout_free(m->layout);
  ms_scenario_free(m->scenario);
  g_free(m);
}

MsPieceMemo *ms_memo_begin(const MsScenario *scenario, const MsPieceMemo *like) {
  MsPieceMemo *m = g_new0(MsPieceMemo, 1);
  m->scenario = ms_scenario_copy(scenario, TRUE);
  m->layout = ms_layout_build(m->scenario);
  if (!(m->work = ms_work_new_like(like ? like->work : NULL, m->scenario, m->layout, NULL))) {
    ms_memo_free(m);
    return NULL;
  }
  m->n = m->work->n_pieces;
  m->cost_number = g_array_new(FALSE, FALSE, sizeof(CostNumber));
  m->kept = g_new0(double, 9 * m->n);
  m->dense = m->kept + m->n, m->expert = m->dense + m->n, m->low = m->expert + m->n, m->frozen = m->low + m->n;
  m->buffers = m->frozen + m->n, m->transient = m->buffers + m->n;
  m->dense_tensors = m->transient + m->n, m->expert_tensors = m->dense_tensors + m->n;
  m->unit = g_new(gboolean, m->n);
  m->in_model = ms_pieces_of_model(m->work);
  const MsFrameworkRow *framework = ms_framework(scenario);
  for (int i = 0; i < m->n; i++) {
    const MsPiece *p = &m->work->pieces[i];
    m->kept[i] = p->kept_B;
    m->dense[i] = p->params_dense, m->expert[i] = p->params_expert;
    m->low[i] = p->params_quantizable_dense + p->params_quantizable_expert;
    m->frozen[i] = p->params_frozen + p->params_frozen_expert;
    m->unit[i] = ms_work_is_unit(p) || framework->ends_are_units;
    m->buffers[i] = ms_memory_piece_buffers_B(m->work, i);
    m->transient[i] = framework->records_streams ? 0 : p->forward_transient_B; /* given back where memory is short */
  }
  return m;
}

gboolean ms_memo_cost_pieces(MsPieceMemo *m, const MsPieceMemo *like) {
  if (m->cost) return TRUE;
  if (!(m->cost = ms_cost_new_like(like ? like->cost : NULL, m->scenario, m->layout, NULL))) return FALSE;
  guint32 tag = 0;
  gboolean same = like && ms_cost_same_kernels(like->cost, m->cost) &&
                  (!m->work->of_pool || like->n == m->n); /* a piece stands for that of the same pool */
  m->piece = ms_costed_pieces_new(m->work, m->cost, TRUE, same ? like->piece : NULL, same ? like->n : 0, &tag);
  m->lags = ms_piece_lags_new(m->piece, m->n, m->scenario, like ? like->lags : NULL);
  for (int i = 0; i < m->n; i++) ms_work_add_tensors(&m->work->pieces[i], &m->dense_tensors[i], &m->expert_tensors[i]);
  return TRUE;
}

MsPieceMemo *ms_memo_new(const MsScenario *scenario, const MsPieceMemo *like) {
  MsPieceMemo *m = ms_memo_begin(scenario, like);
  if (!m || ms_memo_cost_pieces(m, like)) return m;
  ms_memo_free(m);
  return NULL;
}

int *ms_memo_cost_number(MsPieceMemo *m, int pp, double host_share) {
  for (guint i = 0; i < m->cost_number->len; i++) {
    CostNumber *known = &g_array_index(m->cost_number, CostNumber, i);
    if (known->pp == pp && known->host_share == host_share) return &known->number;
  }
  CostNumber own = {host_share, pp, -1};
  g_array_append_val(m->cost_number, own);
  return &g_array_index(m->cost_number, CostNumber, m->cost_number->len - 1).number;
}

const MsPieceTime *ms_memo_times(MsPieceMemo *m, gboolean splits) {
  if (m->time[splits]) return m->time[splits];
  m->time[splits] = g_new(MsPieceTime, m->n);
  m->ends[splits] = ms_piece_times(m->work, m->piece, m->lags, splits, m->time[splits]);
  return m->time[splits];
}

const MsBusy *ms_memo_busy(MsPieceMemo *m) {
  if (m->busy) return m->busy;
  m->busy = g_new(MsBusy, m->n);
  for (int i = 0; i < m->n; i++) m->busy[i] = ms_bound_passes_of(&m->piece[i], ms_work_may_defer(m->work, i));
  return m->busy;
}

/* --- layers, and the whole model -----------------------------------------------------------------------------------
 */
typedef enum { PRODUCTS, COMPUTE, EVERY_ROW } Rows;

static gboolean counts(const MsOp *op, Rows rows) {
  MsOpFamily family = ms_op_families[op->kind];
  if (rows == EVERY_ROW) return TRUE;
  if (rows == COMPUTE) return family != MS_FAMILY_COMM && family != MS_FAMILY_HOST;
  return (family == MS_FAMILY_GEMM || family == MS_FAMILY_GROUPED) && op->pass != MS_PASS_RECOMPUTE;
}

/* Picoseconds of `times` passes over a list, by stream. */
static void add_streams(const MsCosted *c, MsListPart part, Rows rows, int times, double *busy) {
  for (int i = 0; i < c->list->n; i++) {
    const MsOp *op = &c->list->op[i];
    if (ms_in_list_part(op, part) && counts(op, rows)) busy[op->stream] += (double)times * (double)c->duration[i];
  }
}

static int piece_of(const MsWork *w, MsPieceKind kind, int index) {
  return kind == MS_PIECE_LAYER       ? w->piece_of_layer[index]
         : kind == MS_PIECE_EMBEDDING ? w->piece_embedding
         : kind == MS_PIECE_HEAD      ? w->piece_head
                                      : ms_work_mtp_piece(w, index);
}

double ms_memo_layer(MsPieceMemo *m, int pool, MsPieceKind kind, int index) {
  int piece = piece_of(m->work, kind, index);
  if (piece < 0) return 0;
  const MsPieceTime *t = &ms_memo_times(m, FALSE)[pool * m->work->pool_pieces + piece];
  return (double)MAX(t->usual, t->pace[0].host + t->pace[1].host);
}

const MsPassPace *ms_memo_pace(MsPieceMemo *m, MsPieceKind kind, int index) {
  int piece = piece_of(m->work, kind, index);
  return piece < 0 ? NULL : ms_memo_times(m, FALSE)[piece].pace;
}

/* Machines of several kinds: what ms_memo_total says, of the time that each piece takes on each, [pools][pieces]. */
static double shared_by_pools(const MsPieceMemo *m, const int *count, const double *time) {
  const MsPools *pools = &m->scenario->pools;
  int n = m->work->pool_pieces;
  double work = 0, slower[MS_MAX_POOLS], stages = 0;
  for (int q = 0; q < pools->n; q++) slower[q] = INFINITY;
  for (int i = 0; i < n; i++) {
    double least = time[i];
    for (int q = 1; q < pools->n; q++) least = MIN(least, time[q * n + i]);
    work += count[i] * least;
    for (int q = 0; q < pools->n && count[i] > 0 && least > 0; q++) slower[q] = MIN(slower[q], time[q * n + i] / least);
  }
  for (int q = 0; q < pools->n; q++) stages += pools->pool[q].gpus / (isinf(slower[q]) ? 1 : slower[q]);
  return work * m->scenario->gpus / stages;
}

double ms_memo_params(const MsPieceMemo *m, MsPieceKind kind, int index, gboolean expert) {
  int piece = piece_of(m->work, kind, index);
  return piece < 0 ? 0 : expert ? m->expert[piece] : m->dense[piece];
}

double ms_memo_tensors(const MsPieceMemo *m, MsPieceKind kind, int index, gboolean expert) {
  int piece = piece_of(m->work, kind, index);
  return piece < 0 ? 0 : expert ? m->expert_tensors[piece] : m->dense_tensors[piece];
}

static double times_of_model(MsPieceMemo *m, gboolean splits, gboolean of_host) {
  const MsPieceTime *time = ms_memo_times(m, splits);
  if (!m->work->of_pool) return ms_piece_times_sum(time, m->in_model, m->n, of_host);
  g_autofree double *own = g_new(double, m->n);
  for (int i = 0; i < m->n; i++) own[i] = (double)(of_host ? time[i].issue : time[i].direct);
  return shared_by_pools(m, m->in_model, own);
}

/* Picoseconds of `times` passes over piece i, by stream. */
static void add_piece(const MsPieceMemo *m, int i, Rows rows, int times, double *busy) {
  const MsCostedPiece *p = &m->piece[i];
  add_streams(&p->forward, MS_LIST_ALL, rows, times, busy);
  add_streams(&p->backward, ms_work_may_defer(m->work, i) ? MS_LIST_INPUT : MS_LIST_ALL, rows, times, busy);
  add_streams(&p->reload, MS_LIST_ALL, rows, times, busy);
}

static void streams_of_pools(const MsPieceMemo *m, const int *count, Rows rows, double *busy) {
  g_autofree double *time = g_new(double, (gsize)m->n *MS_N_STREAMS);
  for (int i = 0; i < m->n; i++) {
    double own[MS_N_STREAMS] = {0};
    add_piece(m, i, rows, 1, own);
    for (int k = 0; k < MS_N_STREAMS; k++) time[k * m->n + i] = own[k];
  }
  for (int k = 0; k < MS_N_STREAMS; k++) busy[k] = shared_by_pools(m, count, time + k * m->n);
}

double ms_memo_total(MsPieceMemo *m, MsTotal total, gboolean splits, double microbatches) {
  const int *count = m->in_model;
  if (total == MS_TOTAL_HOST) return microbatches * times_of_model(m, splits, TRUE);
  if (total == MS_TOTAL_SPAN) {
    double sum = microbatches * times_of_model(m, splits, FALSE);
    return sum - (double)m->ends[splits];
  }
  Rows rows = total == MS_TOTAL_PRODUCTS ? PRODUCTS : total == MS_TOTAL_ROWS ? COMPUTE : EVERY_ROW;
  double most = 0, busy[MS_N_STREAMS] = {0};
  if (m->work->of_pool) streams_of_pools(m, count, rows, busy);
  for (int i = 0; !m->work->of_pool && i < m->n; i++) add_piece(m, i, rows, count[i], busy);
  for (int i = 0; i < MS_N_STREAMS; i++) most = MAX(most, rows == EVERY_ROW || i == MS_STREAM_COMPUTE ? busy[i] : 0);
  return microbatches * most;
}

/* Of what the next piece waits for: compute rows of a pass up to its output. */
static double until_output(const MsCosted *c, MsListPart part, Rows rows) {
  double sum = 0;
  for (int i = 0; i <= c->list->tip; i++) {
    const MsOp *op = &c->list->op[i];
    if (op->stream == MS_STREAM_COMPUTE && ms_in_list_part(op, part) && counts(op, rows)) sum += (double)c->duration[i];
  }
  return sum;
}

static double passage_of(const MsPieceMemo *m, const MsPieceTime *time, MsTotal total, int piece) {
  const MsCostedPiece *p = &m->piece[piece];
  Rows rows = total == MS_TOTAL_PRODUCTS ? PRODUCTS : COMPUTE;
  if (total == MS_TOTAL_SPAN) return (double)time[piece].passage;
  return until_output(&p->forward, MS_LIST_ALL, rows) + until_output(&p->backward, MS_LIST_INPUT, rows);
}

double ms_memo_passage(MsPieceMemo *m, MsTotal total, gboolean splits) {
  const MsPieceTime *time = total == MS_TOTAL_SPAN ? ms_memo_times(m, splits) : NULL;
  double sum = 0;
  for (int i = 0; i < m->work->pool_pieces; i++) {
    double least = INFINITY;
    for (int piece = i; piece < m->n; piece += m->work->pool_pieces)
      least = MIN(least, passage_of(m, time, total, piece));
    sum += m->in_model[i] * least;
  }
  return sum;
}
