/* src/plan/search_priv.h - internal to plan/: one search, of which pools of replicas take one for each way to share the
 * batch. */
#ifndef MS_PLAN_SEARCH_PRIV_H
#define MS_PLAN_SEARCH_PRIV_H

#include "plan/plan.h"

/* least_s, not NULL: nothing but ms_tree_least_per_sequence_s, an empty plan. */
MsPlan *ms_plan_search(const MsRequest *request, const MsPlanOptions *options, double *least_s, GError **error);

#endif
