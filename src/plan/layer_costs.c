/* src/plan/layer_costs.c - what decoder layers, embedding, head and MTP blocks cost a pipeline stage. */
#include "plan/plan_priv.h"
#include "base/units.h"
#include "layout/layout.h"
#include <math.h>
#include <string.h>

MsLayerCosts *ms_layer_costs_new(MsPieceMemo *memo, const MsScenario *s) {
  const MsModel *model = s->model;
  MsLayerCosts *c = g_new0(MsLayerCosts, 1);
  c->layers = model->num_layers;
  c->layer = g_new(double, c->layers);
  for (int i = 0; i < c->layers; i++) c->layer[i] = memo ? ms_memo_layer(memo, MS_PIECE_LAYER, i) : 1;
  c->first = memo ? ms_memo_layer(memo, MS_PIECE_EMBEDDING, 0) : 0;
  c->last = memo ? ms_memo_layer(memo, MS_PIECE_HEAD, 0) : ms_head_weight(model, s->training.seq_length);
  for (int i = 0; i < model->mtp_num_layers; i++) c->mtp += memo ? ms_memo_layer(memo, MS_PIECE_MTP, i) : 1;
  return c;
}

void ms_layer_costs_free(MsLayerCosts *c) {
  if (!c) return;
  g_free(c->layer);
  g_free(c->after);
  g_free(c);
}

void ms_layer_costs_add_after(MsLayerCosts *c, const MsPieceMemo *memo, const MsScenario *s, const MsOptions *state) {
  const MsLayoutSpec *l = &s->layout;
  gboolean shards = state->distributed_optimizer || state->fsdp != MS_FSDP_NONE;
  double instances = state->outer_dp_sharding_strategy == MS_OUTER_OPTIM
                         ? 1
                         : MAX(1, state->num_distributed_optimizer_instances),
         of_dense = shards ? MAX(1, s->gpus / ((double)l->tp * instances)) : 1,
         of_expert = shards ? MAX(1, s->gpus / ((double)l->etp * l->ep * instances)) : 1;
#define SHARD(kind, index) (ms_memo_params(memo, kind, index, &dense, &expert), dense / of_dense + expert / of_expert)
  double dense, expert;
  c->after = g_new(double, c->layers);
  for (int i = 0; i < c->layers; i++) c->after[i] = SHARD(MS_PIECE_LAYER, i);
  c->after_first = SHARD(MS_PIECE_EMBEDDING, 0), c->after_last = SHARD(MS_PIECE_HEAD, 0);
  for (int i = 0; i < s->model->mtp_num_layers; i++) c->after_mtp += SHARD(MS_PIECE_MTP, i);
#undef SHARD
}

/* The pieces do not depend on the pipeline, so it is left out. */
MsLayerCosts *ms_layer_costs_flat(const MsScenario *scenario, const MsPieceMemo *like, const MsOptions *state) {
  g_autoptr(MsScenario) s = ms_scenario_copy(scenario, TRUE);
  MsLayoutSpec *l = &s->layout;
  g_clear_pointer(&l->pipeline_layout, g_free);
  l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
  l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
  l->pp = l->vpp = 1;
  l->schedule = MS_SCHED_1F1B, l->microbatch_group_size_per_virtual_pipeline_stage = 0;
  MsPieceMemo *memo = ms_memo_new(s, like, NULL);
  MsLayerCosts *c = ms_layer_costs_new(memo, s);
  if (memo) ms_layer_costs_add_after(c, memo, s, state);
  ms_memo_free(memo);
  return c;
}

/* When the last of the rows behind the gradient norm ends, each alone. */
static double update_s(const MsCost *cost, const MsOpList *list) {
  g_autofree double *end = g_new0(double, MAX(list->n, 1));
  double stream[MS_N_STREAMS] = {0}, last = 0;
  for (int i = 0, behind = FALSE; i < list->n; i++) {
    const MsOp *op = &list->op[i];
    behind |= op->kind == MS_OP_GRAD_NORM;
    if (!behind) continue;
    double start = stream[op->stream];
    for (int k = 0; k < 3; k++)
      if (op->wait[k] >= 0) start = MAX(start, end[op->wait[k]]);
    end[i] = stream[op->stream] = start + ms_cost_op(cost, op).time_s;
    last = MAX(last, end[i]);
  }
  return last;
}

/* Of the whole model on one GPU: what an element takes depends on the options, not on how many there are. */
double ms_update_ps(const MsScenario *base, const MsPieceMemo *like) {
  g_autoptr(MsScenario) s = ms_scenario_copy(base, TRUE);
  MsLayoutSpec *l = &s->layout;
  g_clear_pointer(&l->pipeline_layout, g_free);
  l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
  l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
  s->gpus = l->tp = l->cp = l->ep = l->etp = l->pp = l->vpp = 1;
  l->schedule = MS_SCHED_1F1B, l->microbatch_group_size_per_virtual_pipeline_stage = 0;
  g_autoptr(MsLayout) layout = ms_layout_build(s);
  g_autoptr(MsWork) work = ms_work_new(s, layout, NULL);
  g_autoptr(MsCost) cost = work ? ms_cost_new_like(like ? ms_memo_cost(like) : NULL, s, layout, NULL) : NULL;
  if (!cost) return 0;
  MsStageParams params = ms_work_stage_params(work, 0);
  MsStepOps ops;
  ms_work_step_ops(work, 0, &ops);
  double s_of_all = update_s(cost, &ops.after);
  ms_step_ops_clear(&ops);
  return MS_PS_PER_S * s_of_all / MAX(1, params.params_dense + params.params_expert);
}

static double rounded(double cost, double quantum) { return quantum * nearbyint(cost / quantum); }

MsLayerCosts *ms_layer_costs_rounded(const MsLayerCosts *c, double quantum, double after_scale, double after_quantum) {
  double unit = c->layer[c->layers - 1];
  int odd = 0;
  for (int i = 0; i < c->layers; i++) odd += c->layer[i] != unit;
  double of_odd = quantum;
  for (; odd > 2; odd = (odd + 1) / 2) of_odd /= 2;
  if (!(unit > 0)) unit = 1;
  MsLayerCosts *r = g_new0(MsLayerCosts, 1);
  r->layers = c->layers;
  r->layer = g_new(double, c->layers);
  for (int i = 0; i < c->layers; i++)
    r->layer[i] = i > 0 && c->layer[i] == c->layer[i - 1] ? r->layer[i - 1] : rounded(c->layer[i] / unit, of_odd);
  r->first = rounded(c->first / unit, quantum), r->last = rounded(c->last / unit, quantum),
  r->mtp = c->mtp > 0 ? MAX(rounded(c->mtp / unit, quantum), MIN(quantum, 0.5)) : 0;
  if (!c->after) return r;
  after_scale /= unit;
  r->after = g_new(double, c->layers);
  for (int i = 0; i < c->layers; i++) r->after[i] = rounded(after_scale * c->after[i], after_quantum);
  r->after_first = rounded(after_scale * c->after_first, after_quantum);
  r->after_last = rounded(after_scale * c->after_last, after_quantum);
  r->after_mtp = rounded(after_scale * c->after_mtp, after_quantum);
  return r;
}

/* Runs of equal layers are one triple: most layers of a model are alike. */
GBytes *ms_layer_costs_bytes(const MsLayerCosts *c) {
  double *all = g_new(double, 3 * (gsize)c->layers + 6);
  gsize n = 0;
  for (int i = 0, from = 0; i < c->layers; i++) {
    if (i + 1 < c->layers && c->layer[i + 1] == c->layer[from] && (!c->after || c->after[i + 1] == c->after[from]))
      continue;
    all[n++] = c->layer[from], all[n++] = c->after ? c->after[from] : 0, all[n++] = i + 1 - from;
    from = i + 1;
  }
  all[n++] = c->first, all[n++] = c->last, all[n++] = c->mtp;
  all[n++] = c->after_first, all[n++] = c->after_last, all[n++] = c->after_mtp;
  return g_bytes_new_take(all, sizeof *all * n);
}
