/* src/plan/cuts_priv.h - internal to plan/: the planner's own cuts of a layout into stages. */
#ifndef MS_PLAN_CUTS_PRIV_H
#define MS_PLAN_CUTS_PRIV_H

#include "plan/memo_priv.h"
#include "plan/space_priv.h"

/* Number of what the layers of a scenario cost, which has the axes and the combination written in; -1: nothing is left
 * to the planner. `memo`: pieces of the combination that do not depend on the cut; NULL: they are made. */
int ms_cut_costs(const MsSpace *space, const gint32 *value, gint64 combo, MsPieceMemo *memo,
                 const MsScenario *scenario);
/* The planner's own cuts of a layout: balanced by what a step costs, or the first and the second of the ways in which
 * the layers, counted, divide; where there is no second one, balanced by the passes alone. */
typedef enum { MS_CUT_BALANCED, MS_CUT_EVEN, MS_CUT_OTHER, MS_N_CUTS } MsCut;
/* With pools also: from that by time step by step to one by memory, which layers fit into that do not into the first.
 */
enum { MS_CUT_MEMORY_STEPS = 4, MS_N_POOL_CUTS = MS_N_CUTS + MS_CUT_MEMORY_STEPS };
MsCut ms_space_cut_of(const MsSpace *space, gint64 combo);
/* Writes the pipeline layout. FALSE: a counted cut is asked for, and there is none, or the layers stand no different
 * from those balanced by cost, or nothing is left to the planner (costs -1). */
gboolean ms_space_balance(const MsSpace *space, int costs, MsCut cut, MsScenario *scenario);
/* FALSE: what ms_space_balance returns, and whether the layout obeys the rules, does not depend on what layers cost. */
gboolean ms_space_makes_cut(const MsScenario *scenario, MsCut cut);
typedef struct {
  gboolean given, same;
} MsUnbalanced;
/* The same, to be undone; `same`: it returned FALSE. */
MsUnbalanced ms_space_try_balance(const MsSpace *space, int costs, MsCut cut, MsScenario *scenario);
void ms_space_undo_balance(MsUnbalanced before, MsScenario *scenario);

/* The rule about the split into stages that the cut of a combination breaks, -1 = none; `known` as in ms_cut_costs.
 * Then, with `memo`, the pieces of that cut, or ms_num_rules + MS_REFUSED_ERROR when they cannot be costed. `scenario`
 * has axes and combination written in, the cut only meanwhile. */
int ms_try_cut(const MsSpace *space, const gint32 *value, gint64 combo, MsPieceMemo *known, MsScenario *scenario,
               const MsPieceMemo *like, MsPieceMemo **memo);

#endif
