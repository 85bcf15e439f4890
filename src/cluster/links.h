/* src/cluster/links.h - how full the links of a fabric are in a step. */
#ifndef MS_CLUSTER_LINKS_H
#define MS_CLUSTER_LINKS_H

#include "cluster/walk.h"

#define MS_LINKS_SHOWN 4096

typedef struct {
  char name[MS_LINK_NAME];
  double bytes_B, load; /* that pass it in a step; over what it could carry meanwhile */
} MsLinkLoad;

/* NICs and links between switches that carry something in a step of `step_s`,
 * the fullest first, at most MS_LINKS_SHOWN. *links: NULL without a fabric.
 * FALSE and *error when the flows cannot be held. (transfer full) */
gboolean ms_link_loads(const MsScenario *scenario, const MsStepPlan *plan, double step_s, GArray **links,
                       GError **error);

#endif
