/* src/plan/planner_priv.h - internal to plan/: a search under way: the list, and simulation. */
#ifndef MS_PLAN_PLANNER_PRIV_H
#define MS_PLAN_PLANNER_PRIV_H

#include "plan/checkpoint_priv.h"
#include "plan/enumerate_priv.h"

enum {
  MS_BATCH = 16,
  MS_LEAST_BATCH = 4
}; /* candidates simulated between two updates of the threshold: fixed, so that counts do not depend on threads or ranks
    */

typedef struct { /* of the list */
  MsCandidate candidate;
  double cost, step_time_s;
  MsResult *result; /* NULL until somebody wants to see it */
} MsListed;

typedef struct {
  MsSearch s;
  MsCheckpoint *checkpoint;
  MsListed *list; /* [top + 1] ascending */
  int n_list, top;
  gint64 began_us;
  GError *error;
} MsPlanner;

static inline gboolean ms_planner_cuts(const MsPlanner *x, MsShortcut shortcut) {
  return ms_shortcut_on(x->s.options, shortcut);
}
double ms_planner_threshold(const MsPlanner *planner); /* what costs more cannot enter the list */
const MsCost *ms_planner_like(const MsPlanner *planner);
/* What is kept of it, as far as it is known: of no more than `most` it has to be more than that it costs more. */
const MsOutcome *ms_planner_known(const MsPlanner *planner, const MsCandidate *candidate, double most);
/* Of a layout of so many GPUs, now: a step that cannot enter the list, memory that there is not. */
MsWorth ms_planner_worth(const MsPlanner *planner, int gpus);
gboolean ms_planner_stopped(MsPlanner *planner); /* Ctrl-C or an error, on any rank */
/* Seconds by which the training of a candidate misses the deadline. */
double ms_planner_late_s(const MsPlanner *planner, const MsCandidate *candidate, double step_s);
void ms_planner_refuse(MsPlanner *planner, int row /* MS_REFUSED_... */, double miss, const MsCandidate *candidate);
/* FALSE: it is refused, as nothing starts it (MsPlanOptions.starts). */
gboolean ms_planner_starts(MsPlanner *planner, const MsCandidate *candidate);
/* Simulates n <= MS_BATCH candidates on all threads and ranks and puts them into the list. done[n], may be NULL: FALSE
 * for those that an interrupt left out. */
void ms_planner_simulate(MsPlanner *planner, const MsCandidate *candidate, int n, gboolean *done);
/* Simulates them likewise, without the list: outcome[n] of those that done[n] says. */
void ms_planner_outcomes(MsPlanner *planner, const MsCandidate *candidate, int n, MsOutcome *outcome, gboolean *done);
/* Into the list. Takes `result`, the whole prediction, which may be NULL. */
void ms_planner_settle(MsPlanner *planner, const MsOutcome *outcome, MsResult *result);
void ms_planner_keep(MsPlanner *planner, const MsListed *entry); /* into the list, what was simulated before */
void ms_planner_forget(MsPlanner *planner);                      /* empties the list */
/* Says on the terminal, and to whom watches, how far it is: `done` of 1. */
void ms_planner_tell(MsPlanner *planner, double done, const char *note);
void ms_planner_hand_over(MsPlanner *planner); /* fills the plan: its list, on rank 0, and what was refused */

/* How many layouts are kept. */
static inline int ms_plan_top(const MsPlanOptions *options, const MsRequest *request) {
  return options->top > 0 ? options->top : request->top > 0 ? request->top : MS_PLAN_TOP;
}

#endif
