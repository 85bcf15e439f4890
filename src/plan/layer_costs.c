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
  g_free(c);
}

/* The pieces do not depend on the pipeline, so it is left out. */
MsLayerCosts *ms_layer_costs_flat(const MsScenario *scenario, const MsPieceMemo *like) {
  g_autoptr(MsScenario) s = ms_scenario_copy(scenario, TRUE);
  MsLayoutSpec *l = &s->layout;
  g_clear_pointer(&l->pipeline_layout, g_free);
  l->account_for_embedding_in_pipeline_split = l->account_for_loss_in_pipeline_split = FALSE;
  l->decoder_first_pipeline_num_layers = l->decoder_last_pipeline_num_layers = 0;
  l->pp = l->vpp = 1;
  l->schedule = MS_SCHED_1F1B, l->microbatch_group_size_per_virtual_pipeline_stage = 0;
  MsPieceMemo *memo = ms_memo_new(s, like, NULL);
  MsLayerCosts *c = ms_layer_costs_new(memo, s);
  ms_memo_free(memo);
  return c;
}

static double rounded(double cost, double quantum) { return quantum * nearbyint(cost / quantum); }

MsLayerCosts *ms_layer_costs_rounded(const MsLayerCosts *c, double quantum) {
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
  return r;
}

/* Runs of equal layers are one pair: most layers of a model are alike. */
GBytes *ms_layer_costs_bytes(const MsLayerCosts *c) {
  double *all = g_new(double, 2 * (gsize)c->layers + 3);
  gsize n = 0;
  for (int i = 0, from = 0; i < c->layers; i++) {
    if (i + 1 < c->layers && c->layer[i + 1] == c->layer[from]) continue;
    all[n++] = c->layer[from], all[n++] = i + 1 - from;
    from = i + 1;
  }
  all[n++] = c->first, all[n++] = c->last, all[n++] = c->mtp;
  return g_bytes_new_take(all, sizeof *all * n);
}
