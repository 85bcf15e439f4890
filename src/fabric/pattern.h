/* src/fabric/pattern.h - collectives of a layout as flows on a fabric, and how much longer they take than on an ideal
 * one.
 *
 *   ring      all-gather, reduce-scatter, all-reduce: a channel for each member of the emptiest domain, each a ring
 *             over the domains in order of ranks
 *   tree      all-reduce: the double binary tree of each channel
 *   exchange  all-to-all, dispatch, combine: each member to its like in every other domain (PXN, DeepEP, HybridEP);
 *             what is inside a domain the scale-up link carries
 *   pair      each member to the next, over all groups at once
 *   pat       all-gather, reduce-scatter of NCCL where a domain has one member, HCCL's NHR (nonuniform
 *             hierarchical ring): round k to the one 2^k ahead, whose lowest bit says how many blocks of others it
 *             carries; most bytes go to the nearest
 *   halving   HCCL's recursive halving and doubling, of a power of two of domains: round k with the one whose
 *             number differs in bit k; most bytes go to the farthest
 *
 * All groups of a kind are active at once, as they are in a step, and those of other jobs on the fabric. Slowdown: time
 * until the last flow has ended over that of the same flows where only NICs have a limit; 1 exactly where nothing else
 * binds. */
#ifndef MS_FABRIC_PATTERN_H
#define MS_FABRIC_PATTERN_H

#include "fabric/flows.h"
#include "fabric/graph.h"

typedef enum {
  MS_PATTERN_RING,
  MS_PATTERN_TREE,
  MS_PATTERN_EXCHANGE,
  MS_PATTERN_PAIR,
  MS_PATTERN_PAT,
  MS_PATTERN_HALVING,
  MS_N_PATTERNS
} MsPattern;
extern const char *const ms_pattern_words[];
/* That the machine's library may use the pattern for rings and trees of this group. */
gboolean ms_pattern_serves(const MsHardware *hardware, const MsGroup *group, MsPattern pattern);
/* That of long gathers, scatters and reductions. */
static inline MsPattern ms_pattern_of_rings(const MsHardware *hardware, const MsGroup *group) {
  return ms_pattern_serves(hardware, group, MS_PATTERN_HALVING) ? MS_PATTERN_HALVING : MS_PATTERN_RING;
}

/* Flows between domains; bytes are in units of what one NIC moves on an ideal network. NULL and *error for more than
 * can be held. (transfer full) */
MsFlows *ms_pattern_flows(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                          GError **error);

typedef struct {
  double slowdown;
  guint32 flows, busiest; /* link with the most bytes for its rate */
  double load;            /* of it: share of the time in which it is full */
} MsFabricTime;
gboolean ms_pattern_time(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                         MsFabricTime *time, GError **error);

/* The same for the group of every rank, all of them at work: time until the last flow of its own has ended; of none 1.
 * times[world]. */
gboolean ms_pattern_group_times(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                                double *times, GError **error);
/* Of messages to the next stage, all under way at once: how much longer that of every rank takes than on an ideal
 * network, 1 inside a domain; of the last stage that to the first where the pipeline closes. times[world]. */
gboolean ms_pattern_message_times(const MsFabricGraph *graph, const MsLayout *layout, double *times, GError **error);
/* Adds to carried_B[n_links] what of this job passes each link when every rank sends stage_B[pp], by the stage of its
 * group's first rank, over the network; between stages as much to the next one as back, by the earlier one. */
gboolean ms_pattern_carry(const MsFabricGraph *graph, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                          const double *stage_B, double *carried_B, GError **error);

/* The slowest scale-up port of the job's GPUs: how many times as slow as the data sheet says. */
double ms_fabric_port_slowdown(const MsFabricGraph *graph);

/* --- what a machine prepared for lookups keeps of a fabric: slowdowns of groups seen before --- */
typedef struct MsFabricCosts MsFabricCosts;
MsFabricCosts *ms_fabric_costs_new(const MsScenario *scenario, GError **error); /* (transfer full) */
MsFabricCosts *ms_fabric_costs_ref(MsFabricCosts *costs);                       /* NULL is fine */
void ms_fabric_costs_unref(MsFabricCosts *costs);
/* 1 for groups inside a domain. Groups of equal members are worked out once, by whichever thread comes first. FALSE and
 * *error as above. */
gboolean ms_fabric_slowdown(MsFabricCosts *costs, const MsLayout *layout, MsGroupKind kind, MsPattern pattern,
                            double *slowdown, GError **error);
/* Of messages between neighbouring stages (ms_layout_pair), of the slowest pipeline. times[pp]. */
gboolean ms_fabric_pair_slowdowns(MsFabricCosts *costs, const MsLayout *layout, double *times, GError **error);
const MsFabricGraph *ms_fabric_costs_graph(const MsFabricCosts *costs);

#endif
