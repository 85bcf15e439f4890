/* src/fabric/flows.h - flows that share links max-min fairly, until the last has ended.
 *
 * A flow moves bytes over a set of links at one rate: a message over its path, or all hops of a ring at once, which
 * go at the pace of the slowest (a link that it passes k times gives it k times its rate). Progressive filling: all
 * rates grow until a link is full; its flows stay there, the others grow on. When flows end, the rest is filled anew.
 * Flows that share no link with others are on their own. The result does not depend on the order in which flows were
 * added. Knows no GPUs. */
#ifndef MS_FABRIC_FLOWS_H
#define MS_FABRIC_FLOWS_H

#include <glib.h>

typedef struct {
  guint32 n, n_links;
  double *bytes;  /* [n] */
  guint32 *first; /* [n + 1] in link[] */
  guint32 *link;  /* of each flow, in any order */
  guint32 room, link_room;
} MsFlows;

MsFlows *ms_flows_new(guint32 n_links); /* (transfer full) */
void ms_flows_free(MsFlows *flows);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsFlows, ms_flows_free)
void ms_flows_add(MsFlows *flows, double bytes, const guint32 *link, guint32 n); /* a flow, with its links */
void ms_flows_also(MsFlows *flows, const guint32 *link, guint32 n);              /* more links of the last one */

/* Rates of all flows while all are active; Bps[n_links]. A flow over no link has HUGE_VAL, one over a link of rate 0
 * has 0. */
void ms_flows_rates(const MsFlows *flows, const double *Bps, double *rate);

typedef struct {
  double *end_s; /* [n] HUGE_VAL: never */
  double makespan_s;
  guint64 fillings;
} MsFlowTimes;
/* `slack`: flows that would end within this share of the time after the next one end together with the last of these
 * (at their own rates, so that no link has more than its rate); 0: exactly. */
MsFlowTimes *ms_flows_run(const MsFlows *flows, const double *Bps, double slack);
void ms_flow_times_free(MsFlowTimes *times);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsFlowTimes, ms_flow_times_free)
/* Bytes that have passed each link in the end. (transfer full), [n_links] */
double *ms_flows_carried(const MsFlows *flows);

#endif
