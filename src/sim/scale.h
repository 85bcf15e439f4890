/* src/sim/scale.h - the step that is expected of GPUs that differ: order statistics over the ranks of each stage and of
 * each group, as closed forms.
 *
 * What `run --fidelity cluster` draws, by the same laws and keys: a clock of each GPU, jitter of kernels, slow GPUs and
 * NICs. Formulas: docs/theory/cluster.md, The law of scale. */
#ifndef MS_SIM_SCALE_H
#define MS_SIM_SCALE_H

#include "sim/result.h"
#include "step/program.h"

/* How far GPUs differ: all that the step that is expected of them takes from the laws beside what its rows cost. Zeros:
 * not at all. */
typedef struct {
  double clock, attention; /* standard deviation, relative to the engine's clock; part of it that attention follows */
  double kernel_jitter, host_jitter;
  MsTime operator_of_host;
} MsGpuSpread;
MsGpuSpread ms_scale_spread(const MsScenario *scenario);

typedef struct {
  const MsSchedule *schedule;
  double step_s;
  const MsProgram *slower; /* every NIC `slow_nic_factor` times as slow, and the step then; NULL: none are */
  double slower_s;
} MsScaleOf;
/* `result` has the times of its stages; the program's costs are those of a scenario with `cluster.expected`, whose
 * clocks are of GPUs that meet. Fills result->scale, adds what others are waited for to the stages' `other_s`, and
 * returns the expected step, never less than step_s. */
double ms_scale_step(const MsProgram *program, const MsScaleOf *of, MsResult *result);

/* For tests. Expected wait of the last of a group of n: the slowest GPU of the job, whose kernels take sd_s more or
 * less, and n - 1 others, each ahead of it by `ahead` standard deviations of clock_s, give or take one of those and
 * sd_s. 0 where sd_s is. */
double ms_scale_wait(double sd_s, double clock_s, double ahead, double n);

#endif
