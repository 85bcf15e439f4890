/* src/study/changes.h - what single changes of a run would gain: one key at a time is left to the planner (with the
 * layers of the stages cut anew where the key needs it), everything else stays as the scenario says. All at fidelity
 * `fast`. */
#ifndef MS_STUDY_CHANGES_H
#define MS_STUDY_CHANGES_H

#include "study/compare.h"

typedef struct {
  MsComparison *change; /* the run (a) and the changed one (b) */
  double step_time_s;   /* of the changed one */
  double gain;          /* 1 - its step / the run's; negative where it is slower */
  double freed_B;       /* of the fullest stage's memory */
} MsChange;

typedef struct {
  int n;
  MsChange *row;   /* descending gain, each at least MS_CHANGE_GAIN */
  MsChange *frees; /* of a run above the planner's limit of memory: the fastest that stays below it; NULL: none is
                      needed, or none does */
  double limit_B;
} MsChanges;

#define MS_CHANGE_GAIN 0.005

/* Keys that the planner cannot settle for it give no row. NULL on Ctrl-C, and for what cannot be simulated. (transfer
 * full) */
MsChanges *ms_changes_new(const MsScenario *scenario);
void ms_changes_free(MsChanges *changes);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsChanges, ms_changes_free)

#endif
