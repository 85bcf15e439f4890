/* src/plan/once_priv.h - internal to plan/: what a GPU does once a step, and where the host sets the pace, for cuts. */
#ifndef MS_PLAN_ONCE_PRIV_H
#define MS_PLAN_ONCE_PRIV_H

#include "plan/layer_costs_priv.h"

/* What a GPU does once a step for each piece that it has, in the unit of the costs. */
typedef struct {
  MsLayerCosts *sent;    /* gradients, from its last backward on; half as long before its first forward: parameters */
  MsLayerCosts *updated; /* by the optimizer, behind the gradient norm */
} MsOnce;
/* Of the scenario's groups and `costs` of its pieces, in picoseconds, with parameters. NULL: next to nothing beside so
 * many microbatches, or not known. */
MsOnce *ms_once_new(const MsLayerCosts *costs, const MsScenario *scenario, double microbatches);
void ms_once_free(MsOnce *once);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsOnce, ms_once_free)
/* The costs of a whole step, both added up. (transfer full) */
MsLayerCosts *ms_once_with(const MsOnce *once, MsLayerCosts *costs, double microbatches);

/* Where the host issues passes for longer than they run: it runs ahead in dear pieces and falls behind in cheap ones,
 * and may wait for the device within a pass. In the unit of the costs. */
typedef struct {
  MsLayerCosts *bare;                /* what the device takes */
  MsLayerCosts *device[2], *host[2]; /* of forwards and backwards */
  double late[2], early[2];          /* of a stage that has layers (MsPassCosts) */
} MsPace;
/* Of costs in picoseconds. NULL: no layer's pass is issued for longer than it runs. */
MsPace *ms_pace_new(const MsLayerCosts *costs);
void ms_pace_free(MsPace *pace);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPace, ms_pace_free)

#endif
