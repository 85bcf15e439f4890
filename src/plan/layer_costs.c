/* src/plan/layer_costs.c - what decoder layers, embedding, head and MTP blocks cost a pipeline stage. */
#include "plan/layer_costs_priv.h"
#include "plan/partition_priv.h"
#include "layout/layout.h"
#include <math.h>
#include <string.h>

MsLayerCosts *ms_layer_costs_blank(int layers) {
  MsLayerCosts *c = g_new0(MsLayerCosts, 1);
  c->layers = layers, c->layer = g_new0(double, layers);
  return c;
}

typedef double (*Figure)(MsPieceMemo *memo, int which, MsPieceKind kind, int index); /* of a piece */

static MsLayerCosts *of_pieces(MsPieceMemo *memo, const MsModel *model, Figure figure, int which) {
  MsLayerCosts *c = ms_layer_costs_blank(model->num_layers);
  for (int i = 0; i < c->layers; i++) c->layer[i] = figure(memo, which, MS_PIECE_LAYER, i);
  c->first = figure(memo, which, MS_PIECE_EMBEDDING, 0);
  c->last = figure(memo, which, MS_PIECE_HEAD, 0);
  for (int i = 0; i < model->mtp_num_layers; i++) c->mtp += figure(memo, which, MS_PIECE_MTP, i);
  return c;
}

static double params(MsPieceMemo *memo, int expert, MsPieceKind kind, int index) {
  return ms_memo_params(memo, kind, index, expert);
}

static double tensors(MsPieceMemo *memo, int expert, MsPieceKind kind, int index) {
  return ms_memo_tensors(memo, kind, index, expert);
}

static double on_device(MsPieceMemo *memo, int back, MsPieceKind kind, int index) {
  const MsPassPace *pace = ms_memo_pace(memo, kind, index);
  return pace ? (double)pace[back].device : 0;
}

static double on_host(MsPieceMemo *memo, int back, MsPieceKind kind, int index) {
  const MsPassPace *pace = ms_memo_pace(memo, kind, index);
  return pace ? (double)pace[back].host : 0;
}

/* An MTP block has a copy of the embedding, and so has a tied head: between two stages it always has, whatever pipeline
 * the pieces were made for. */
static MsLayerCosts *params_of(MsPieceMemo *memo, const MsModel *model, gboolean expert) {
  MsLayerCosts *c = of_pieces(memo, model, params, expert);
  if (model->tie_embeddings) c->last = c->first;
  if (model->mtp_num_layers > 0) c->mtp += c->first;
  return c;
}

static MsPassCosts *pass_of(MsPieceMemo *memo, const MsModel *model, int back) {
  const MsPassPace *last = &ms_memo_pace(memo, MS_PIECE_LAYER, model->num_layers - 1)[back];
  const MsPassCosts own = {of_pieces(memo, model, on_device, back), of_pieces(memo, model, on_host, back),
                           (double)last->late, last->early < MS_NEVER_EARLY ? (double)last->early : INFINITY};
  return g_memdup2(&own, sizeof own);
}

static void pass_free(MsPassCosts *p) {
  if (!p) return;
  ms_layer_costs_free(p->device), ms_layer_costs_free(p->host);
  g_free(p);
}

static MsLayerCosts *by_flop(const MsModel *model, int seq) {
  MsLayerCosts *c = ms_layer_costs_blank(model->num_layers);
  for (int i = 0; i < c->layers; i++) c->layer[i] = 1;
  c->last = ms_head_weight(model, seq), c->mtp = model->mtp_num_layers;
  return c;
}

static MsLayerCosts *costs_on(MsPieceMemo *memo, const MsScenario *s, int pool) {
  const MsModel *model = s->model;
  if (!memo) return by_flop(model, s->training.seq_length);
  MsLayerCosts *c = of_pieces(memo, model, ms_memo_layer, pool);
  if (pool > 0) return c;
  c->dense = params_of(memo, model, FALSE), c->expert = params_of(memo, model, TRUE);
  c->dense_tensors = of_pieces(memo, model, tensors, FALSE), c->expert_tensors = of_pieces(memo, model, tensors, TRUE);
  for (int back = 0; s->pools.n == 0 && back < 2; back++) c->pass[back] = pass_of(memo, model, back);
  return c;
}

static void make_others(MsLayerCosts *c, int n) {
  c->n_others = n;
  c->other = n > 0 ? g_new(MsLayerCosts *, n) : NULL;
}

static void scale(MsLayerCosts *c, double by) {
  for (int i = 0; i < ms_layer_costs_count(c); i++) *ms_layer_cost(c, i) *= by;
}

MsLayerCosts *ms_layer_costs_new(MsPieceMemo *memo, const MsScenario *s) {
  MsLayerCosts *c = costs_on(memo, s, 0);
  make_others(c, MAX(0, s->pools.n - 1));
  for (int i = 0; i < c->n_others; i++) {
    c->other[i] = costs_on(memo, s, i + 1);
    double faster = ms_hardware_peak_flops(s->pools.pool[i + 1].hardware, s->training.precision) /
                    ms_hardware_peak_flops(s->hardware, s->training.precision);
    if (!memo && faster > 0) scale(c->other[i], 1 / faster);
  }
  return c;
}

static MsLayerCosts *copy_of(const MsLayerCosts *c) {
  MsLayerCosts *copy = g_memdup2(c, sizeof *c);
  copy->layer = g_memdup2(c->layer, sizeof *c->layer * (gsize)c->layers);
  copy->dense = copy->expert = copy->dense_tensors = copy->expert_tensors = NULL;
  copy->pass[0] = copy->pass[1] = NULL;
  make_others(copy, c->n_others);
  for (int i = 0; i < c->n_others; i++) copy->other[i] = copy_of(c->other[i]);
  return copy;
}

/* A GPU of a pool has layers in proportion to its speed, its memory, or, of the pools' shares of all layers, something
 * between the two; layers cost it the inverse. */
MsLayerCosts *ms_layer_costs_by_memory(const MsLayerCosts *c, const MsPools *pools, double share) {
  double speed[MS_MAX_POOLS], all_speed = 0, all_memory = 0, first = 1;
  MsLayerCosts *own = copy_of(c);
  for (int i = 0; i < pools->n; i++) {
    const MsLayerCosts *there = i > 0 ? c->other[i - 1] : c;
    speed[i] = 1 / there->layer[c->layers - 1];
    all_speed += pools->pool[i].gpus * speed[i], all_memory += pools->pool[i].gpus * pools->pool[i].hardware->hbm_B;
  }
  for (int i = 0; i < pools->n; i++) {
    double layers = (1 - share) * speed[i] / all_speed + share * pools->pool[i].hardware->hbm_B / all_memory,
           by = speed[i] / layers;
    if (i == 0) first = by;
    else if (by > 0 && isfinite(by / first)) scale(own->other[i - 1], by / first);
  }
  return own;
}

void ms_layer_costs_free(MsLayerCosts *c) {
  if (!c) return;
  for (int i = 0; i < c->n_others; i++) ms_layer_costs_free(c->other[i]);
  g_free(c->other);
  ms_layer_costs_free(c->dense);
  ms_layer_costs_free(c->expert);
  ms_layer_costs_free(c->dense_tensors);
  ms_layer_costs_free(c->expert_tensors);
  pass_free(c->pass[0]), pass_free(c->pass[1]);
  g_free(c->layer);
  g_free(c);
}

/* The pieces do not depend on the pipeline, so it is left out. */
MsLayerCosts *ms_layer_costs_flat(const MsScenario *scenario, const MsPieceMemo *like) {
  g_autoptr(MsScenario) s = ms_scenario_copy(scenario, TRUE);
  ms_leave_pipeline_out(s);
  MsPieceMemo *memo = ms_memo_new(s, like);
  MsLayerCosts *c = ms_layer_costs_new(memo, s);
  ms_memo_free(memo);
  return c;
}

static double rounded(double cost, double quantum) { return quantum * nearbyint(cost / quantum); }

#define OTHER_QUANTUM (1.0 / 128)

static MsLayerCosts *rounded_to(const MsLayerCosts *c, double quantum, double unit) {
  int odd = 0;
  for (int i = 0; i < c->layers; i++) odd += c->layer[i] != unit;
  double of_odd = quantum;
  for (; odd > 2; odd = (odd + 1) / 2) of_odd /= 2;
  MsLayerCosts *r = ms_layer_costs_blank(c->layers);
  for (int i = 0; i < c->layers; i++)
    r->layer[i] = i > 0 && c->layer[i] == c->layer[i - 1] ? r->layer[i - 1] : rounded(c->layer[i] / unit, of_odd);
  r->first = rounded(c->first / unit, quantum), r->last = rounded(c->last / unit, quantum),
  r->mtp = c->mtp > 0 ? MAX(rounded(c->mtp / unit, quantum), MIN(quantum, 0.5)) : 0;
  return r;
}

MsLayerCosts *ms_layer_costs_rounded(const MsLayerCosts *c, double quantum) {
  double unit = c->layer[c->layers - 1] > 0 ? c->layer[c->layers - 1] : 1;
  MsLayerCosts *r = rounded_to(c, quantum, unit);
  make_others(r, c->n_others);
  for (int i = 0; i < c->n_others; i++) {
    r->other[i] = rounded_to(c->other[i], OTHER_QUANTUM, unit);
    for (int k = 0; k < c->layers; k++) r->other[i]->layer[k] = MAX(r->other[i]->layer[k], OTHER_QUANTUM);
  }
  return r;
}

/* Runs of equal layers are one pair: most layers of a model are alike. */
static gsize write_bytes(const MsLayerCosts *c, double *all) {
  gsize n = 0;
  for (int i = 0, from = 0; i < c->layers; i++) {
    if (i + 1 < c->layers && c->layer[i + 1] == c->layer[from]) continue;
    all[n++] = c->layer[from], all[n++] = i + 1 - from;
    from = i + 1;
  }
  all[n++] = c->first, all[n++] = c->last, all[n++] = c->mtp;
  return n;
}

GBytes *ms_layer_costs_bytes(const MsLayerCosts *c) {
  double *all = g_new(double, (2 * (gsize)c->layers + 3) * (gsize)(c->n_others + 1));
  gsize n = write_bytes(c, all);
  for (int i = 0; i < c->n_others; i++) n += write_bytes(c->other[i], all + n);
  return g_bytes_new_take(all, sizeof *all * n);
}
