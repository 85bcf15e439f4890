/* src/fabric/graph.h - a fabric as links, each of one direction with a rate, and the way from one GPU to another.
 *
 * Links: a GPU's port of the scale-up link out and in; a NIC out and in; leaf to spine and back; spine to core (or to
 * another group) and back; a torus' links; where PCIe has a limit a GPU's link to its switch and that of the switch to
 * the host. With adaptive routing the parallel links of a tier are one trunk, since
 * every packet may take any of them; with ECMP each is a link of its own and a hash chooses. const after it is built.
 */
#ifndef MS_FABRIC_GRAPH_H
#define MS_FABRIC_GRAPH_H

#include "layout/seats.h"

#define MS_FABRIC_LINKS    (8 << 20) /* more are refused */
#define MS_FABRIC_PATH_MAX 256       /* links of one way */

typedef struct {
  const MsHardware *hardware; /* borrowed */
  const MsFabric *fabric;     /* borrowed */
  MsSeats *seats;
  int nodes, node_gpus, nics;                                                     /* NICs of a node */
  int rails, leaf_nodes, leaves, uplinks, spines, pods, pod_nodes, spine_uplinks; /* spines of a pod */
  int dims, torus[MS_TORUS_DIMS];
  int pcie_gpus, pcie_switches;                    /* behind a PCIe switch, of a node; 0: no limit */
  int parts;                                       /* of a flow: NICs of a GPU, and hashes */
  double nic_Bps, link_Bps, scaleup_Bps, pcie_Bps; /* of one link, unbroken */
  guint32 first_nic, first_leaf, first_spine, first_torus, first_pcie, first_switch, n_links;
  double *Bps;                      /* [n_links] of links and trunks; 0: down */
  double *leaf_share, *spine_share; /* [leaves x uplinks], [pods x spines x spine_uplinks]: of its rate, 0 = down */
} MsFabricGraph;

/* NULL and an MS_ERROR_INPUT at the key of the scenario's machine: too many links, too few ports, a rank without a NIC,
 * parts that no link joins, names that name nothing. (transfer full) */
MsFabricGraph *ms_fabric_graph_new(const MsScenario *scenario, GError **error);
void ms_fabric_graph_free(MsFabricGraph *graph);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsFabricGraph, ms_fabric_graph_free)

/* Links that part `part` (of graph->parts) of a flow from one GPU to another passes; `salt` goes into the hash. Within
 * a scale-up domain its two ports; else over the NICs, on the rail of the receiver where there are rails (PXN). Returns
 * how many, at most MS_FABRIC_PATH_MAX. */
int ms_fabric_path(const MsFabricGraph *graph, int from, int to, int part, guint32 salt, guint32 *link);
/* "leaf3.up2", "node5.nic1.in", ...; returns buf. */
enum { MS_LINK_NAME = 48 };
const char *ms_fabric_link_name(const MsFabricGraph *graph, guint32 link, char buf[MS_LINK_NAME]);
/* What it joins: "scale-up port", "NIC", "leaf to spine", "spine to core", "group to group", "torus link", "GPU to PCIe
 * switch" or "PCIe switch to host". */
const char *ms_fabric_link_tier(const MsFabricGraph *graph, guint32 link);
/* What the link has on an ideal network: a NIC its rate, everything else no limit. */
double ms_fabric_ideal_Bps(const MsFabricGraph *graph, guint32 link);
static inline gboolean ms_fabric_is_port(const MsFabricGraph *graph, guint32 link) { return link < graph->first_nic; }

#endif
