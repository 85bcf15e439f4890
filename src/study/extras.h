/* src/study/extras.h - what is said beside the ranking of a plan: why, under what, what to choose from, what would fit.
 * The command line and the library ask for it here, so that both say the same. */
#ifndef MS_STUDY_EXTRAS_H
#define MS_STUDY_EXTRAS_H

#include "plan/map.h"
#include "study/decide.h"
#include "study/picks.h"
#include "study/reasons.h"
#include "study/robust.h"
#include "study/ways.h"

typedef struct { /* each may be NULL; owned */
  MsReasons *reasons;
  MsRobust *robust;
  MsWays *ways;
  MsPicks *picks;
  MsDecision *decision;
  MsLayoutMap *map;  /* what its points differ in from the winner is set */
  char *not_started; /* set by the caller: why no form starts the winner */
} MsPlanExtras;

typedef struct {
  const MsDisturbances *under; /* NULL: those of the request, if any; must outlive the extras */
  gboolean explain;
  const char *compare; /* file, NULL: none */
  gboolean no_picks;   /* nothing to choose from is looked for */
  gboolean decide;     /* where something fits, ranked by step time: how sure the choice is */
  gboolean map;        /* where something fits: what all layouts look like */
} MsExtrasAsked;

/* All that is asked for and that the plan can say; what there is no time for once it is stopped is left out. `request`
 * and `plan` must outlive `extras`, which is cleared on failure. FALSE and *error as of the parts. */
gboolean ms_plan_extras(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                        const MsExtrasAsked *asked, MsPlanExtras *extras, GError **error);
/* Before the search: FALSE and *error (MS_ERROR_INPUT) for what is not known of machines of several kinds. */
gboolean ms_plan_extras_check(const MsRequest *request, const MsExtrasAsked *asked, GError **error);
/* What was found keeps the deadline, where there is one: exit status 0. */
gboolean ms_plan_answers(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras);
void ms_plan_extras_clear(MsPlanExtras *extras);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MsPlanExtras, ms_plan_extras_clear)

#endif
