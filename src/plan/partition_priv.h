/* src/plan/partition_priv.h - internal to plan/: layers to virtual stages. */
#ifndef MS_PLAN_PARTITION_PRIV_H
#define MS_PLAN_PARTITION_PRIV_H

#include "plan/layer_costs_priv.h"

typedef struct { /* the virtual stages that a model is cut into */
  int n, ranks;
  const int *rank;    /* [n] where each stands */
  const int *pool;    /* [ranks] on which machine; NULL: all are alike */
  gboolean mtp_apart; /* the MTP blocks stand on the stage before the loss, which stands alone; else with it */
} MsVirtualStages;
/* The last that may have decoder layers. */
static inline int ms_stages_last(const MsVirtualStages *on) { return on->n - 1 - (on->mtp_apart ? 1 : 0); }
/* What stage k has beside decoder layers. */
static inline double ms_layer_costs_ends(const MsLayerCosts *c, const MsVirtualStages *on, int k) {
  return (k == 0 ? c->first : 0) + (k == on->n - 1 ? c->last : 0) + (k == ms_stages_last(on) ? c->mtp : 0);
}
/* What layers cost on stage k. */
static inline const MsLayerCosts *ms_layer_costs_at(const MsLayerCosts *c, const MsVirtualStages *on, int k) {
  int pool = on->pool && c->n_others > 0 ? on->pool[on->rank[k]] : 0;
  return pool > 0 ? c->other[pool - 1] : c;
}
/* Cuts, the decoder layers of each stage: counts[n_slacks][n]. The dearest rank costs least, then, when no rank may
 * cost more than (1 + slack) of that, the dearest stage. How many there are: one for each slack; of mixed layers
 * (partition.c) one for all, then one for each slack but the last as if layers were alike; on machines that differ one;
 * 0 when there are too few layers. Layers that equal stages cannot share stand behind, where fewer are kept; in
 * `front`, [n] or NULL, in front, for the first slack; front[0] -1: there is no such cut.
 * Deterministic. */
int ms_partition_by_cost(const MsLayerCosts *costs, const MsVirtualStages *stages, const double *slack, int n_slacks,
                         int *counts, int *front);
void ms_stage_costs(const MsLayerCosts *costs, const MsVirtualStages *stages, const int *counts,
                    double *cost /* [n] */);
/* The layout string of such a partition. (transfer full) */
char *ms_partition_text(const int *counts, int stages, int mtp, gboolean mtp_apart);

/* Weight of the head in layers, from FLOP. */
double ms_head_weight(const MsModel *model, int seq_length);

#endif
