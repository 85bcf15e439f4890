/* src/plan/every_priv.h - internal to plan/: every layout looked at. */
#ifndef MS_PLAN_EVERY_PRIV_H
#define MS_PLAN_EVERY_PRIV_H

#include "plan/planner_priv.h"

/* Looks at every layout, so that what was refused is counted rule by rule (every.c). */
gboolean ms_search_every(MsPlanner *planner, GError **error);
/* Of the same layouts those that no faster one beats in free memory, fastest first (every.c): calls `found` for each,
 * which lowers plan->memory_limit_B for the next, or returns FALSE: enough. Of a search that was stopped `lower_cost`
 * is what is proven of the last; else it is the cost of the layout. */
typedef struct {
  MsCandidate candidate;
  double cost, step_time_s, device_B, lower_cost;
} MsFrontFound;
typedef gboolean MsFrontTell(const MsFrontFound *found, gpointer user);
gboolean ms_search_front(MsPlanner *planner, MsFrontTell *found, gpointer user, GError **error);

#endif
