/* src/plan/candidate_priv.h - internal to plan/: one layout of the space. */
#ifndef MS_PLAN_CANDIDATE_PRIV_H
#define MS_PLAN_CANDIDATE_PRIV_H

#include "plan/memo_priv.h"
#include "plan/space_priv.h"

typedef struct {
  gint32 value[MS_N_AXES];
  gint64 combo;
  MsTime bound; /* of the step */
  double cost;  /* of the objective, for that bound */
} MsCandidate;

/* The complete scenario of a candidate, named: combination, axes and pipeline layout written in. `memo` as in
 * ms_cut_costs. (transfer full) */
MsScenario *ms_candidate_scenario(const MsSpace *space, const MsCandidate *candidate, MsPieceMemo *memo);
/* The same of one that obeys all rules but those about the split into stages; NULL: it breaks one of them, or its cut
 * is that of another. (transfer full) */
MsScenario *ms_candidate_try(const MsSpace *space, const MsCandidate *candidate);
int ms_candidate_compare(const void *a, const void *b); /* by cost of the bound, then bound, then values */

#endif
