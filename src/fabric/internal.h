/* src/fabric/internal.h - what building a graph and finding ways in it share. Not for other rooms. */
#ifndef MS_FABRIC_INTERNAL_H
#define MS_FABRIC_INTERNAL_H

#include "fabric/graph.h"

static inline gboolean ms_fabric_is_tree(const MsFabricGraph *g) { return g->fabric->kind != MS_FABRIC_TORUS; }
/* The leaf that a NIC of a node is on: nodes side by side in their pod, NICs by rail. */
static inline int ms_fabric_leaf(const MsFabricGraph *g, int node, int nic) {
  int pod = node / g->pod_nodes, in_pod = (g->pod_nodes + g->leaf_nodes - 1) / g->leaf_nodes;
  return (pod * in_pod + node % g->pod_nodes / g->leaf_nodes) * g->rails + nic % g->rails;
}

/* NIC of its node that part `k` of a GPU's flows takes. */
static inline int ms_fabric_nic_of(const MsFabricGraph *g, int gpu, int k) {
  int own = gpu % g->node_gpus;
  return g->nics >= g->node_gpus ? own * (g->nics / g->node_gpus) + k % (g->nics / g->node_gpus)
                                 : own / (g->node_gpus / g->nics);
}
/* Its link out; the next one leads in. */
static inline guint32 ms_fabric_nic_link(const MsFabricGraph *g, int node, int nic) {
  return g->first_nic + 2 * (guint32)(node * g->nics + nic);
}
enum { MS_FABRIC_PCIE_MAX = 3 }; /* links of PCIe on either end of a way */
/* FALSE with two pods between which every link has failed. */
gboolean ms_fabric_pods_meet(const MsFabricGraph *graph, int *from, int *to);

#endif
