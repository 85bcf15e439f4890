/* src/study/sensitivity.h - what would make the winner of a plan faster: the same step on a slightly better machine.
 *
 * A rate is raised by 10 % (with the curves that were measured at it, describe/hardware.h) and the winner simulated
 * again in full, its layout unchanged. More memory does not change a step that fits already, it allows other layouts:
 * these rows plan again in the neighbourhood of the winner, that is over the next smaller and larger value of every
 * parallel size and microbatch size that the request leaves open, and over everything else it leaves open. "The memory
 * of one more GPU" gives every GPU twice its memory. */
#ifndef MS_STUDY_SENSITIVITY_H
#define MS_STUDY_SENSITIVITY_H

#include "plan/plan.h"
#include "study/compare.h"

typedef struct {
  char *what;       /* "+10 % NIC bandwidth" */
  gboolean planned; /* again, in the neighbourhood; else the winner's own layout */
  double step_time_s;
  double gain; /* 1 - step time / the winner's; 0 when the winner stays the best */
  MsComparison
      *change; /* the winner (a) and what is faster now (b); NULL when the layout stays: its step is the same then */
} MsSensitivity;

typedef struct {
  int n;
  MsSensitivity *row;
} MsSensitivities; /* descending gain */

/* plan->n_best > 0. NULL and *error when a simulation fails or the user interrupts. (transfer full) */
MsSensitivities *ms_sensitivities(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                                  GError **error);
void ms_sensitivities_free(MsSensitivities *sensitivities);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSensitivities, ms_sensitivities_free)

/* The request around one scenario of it, on `machine` (borrowed, must outlive the result). For tests. (transfer full)
 */
MsRequest *ms_neighbourhood(const MsRequest *request, const MsScenario *centre, MsHardware *machine);
void ms_neighbourhood_free(MsRequest *neighbourhood);

#endif
