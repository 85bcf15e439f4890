/* src/plan/layer_costs_priv.h - internal to plan/: what each layer takes. */
#ifndef MS_PLAN_LAYER_COSTS_PRIV_H
#define MS_PLAN_LAYER_COSTS_PRIV_H

#include "plan/memo_priv.h"

/* What each layer takes, forward and backward; the embedding (first), the head with its loss (last), and all MTP
 * blocks. Any unit. */
typedef struct MsLayerCosts {
  int layers;
  double *layer, first, last, mtp;
  int n_others;                        /* pools behind the first: what the same costs on their machines */
  struct MsLayerCosts **other;         /* [n_others] */
  struct MsLayerCosts *dense, *expert; /* of the same, owned: parameters of a GPU; NULL: not counted */
  struct MsLayerCosts *dense_tensors, *expert_tensors; /* the tensors that hold them */
  struct MsPassCosts *pass[2]; /* with pieces and no pools: of the forward and of the backward; owned, or NULL */
} MsLayerCosts;
/* All costs one after the other: those of the layers, then first, last and mtp. */
static inline int ms_layer_costs_count(const MsLayerCosts *c) { return c->layers + 3; }
static inline double *ms_layer_cost(MsLayerCosts *c, int i) {
  return i < c->layers ? &c->layer[i] : i == c->layers ? &c->first : i == c->layers + 1 ? &c->last : &c->mtp;
}
typedef struct MsPassCosts {
  MsLayerCosts *device, *host; /* owned: what it takes, and what the host takes to issue it */
  double late, early;          /* of the last layer, as MsPassPace; early INFINITY: never */
} MsPassCosts;
MsLayerCosts *ms_layer_costs_blank(int layers); /* nothing costs anything */
MsLayerCosts *ms_layer_costs_new(MsPieceMemo *memo,
                                 const MsScenario *scenario); /* picoseconds; NULL memo: by FLOP, in layers */
MsLayerCosts *ms_layer_costs_flat(const MsScenario *scenario,
                                  const MsPieceMemo *like); /* of the scenario's pieces without a pipeline */
/* In units of the last layer; the embedding, the head and the MTP blocks, and all other layers together, are within a
 * `quantum` each. */
/* With pools: those of the other machines in units of a layer on the first, to a 128th. */
MsLayerCosts *ms_layer_costs_rounded(const MsLayerCosts *costs, double quantum);
GBytes *ms_layer_costs_bytes(const MsLayerCosts *costs); /* equal when the costs are */
void ms_layer_costs_free(MsLayerCosts *costs);
/* As they would have to be for cuts balanced by cost to give the pools layers by their memory, to a `share` of that: 0
 * by time, 1 in proportion to memory. (transfer full) */
MsLayerCosts *ms_layer_costs_by_memory(const MsLayerCosts *costs, const MsPools *pools, double share);

#endif
