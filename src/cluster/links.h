/* src/cluster/links.h - how full the links of a fabric are in a step. */
#ifndef MS_CLUSTER_LINKS_H
#define MS_CLUSTER_LINKS_H

#include "cluster/walk.h"

#define MS_LINKS_SHOWN 4096

typedef struct {
  guint32 link; /* its place in the graph */
  char name[MS_LINK_NAME];
  const char *tier;     /* ms_fabric_link_tier */
  double bytes_B, load; /* that pass it in a step; over what it could carry meanwhile */
} MsLinkLoad;

/* NICs and links between switches that carry something in a step of `step_s`, the fullest first, at most `most`.
 * *links: NULL without a fabric. FALSE and *error when the flows cannot be held. (transfer full) */
gboolean ms_link_loads(const MsScenario *scenario, const MsStepPlan *plan, double step_s, guint most, GArray **links,
                       GError **error);

#endif
