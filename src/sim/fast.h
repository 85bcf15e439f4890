/* src/sim/fast.h - the step with whole chunks as tasks, each distinct chunk simulated alone. */
#ifndef MS_SIM_FAST_H
#define MS_SIM_FAST_H

#include "sim/result.h"
#include "step/program.h"

/* The schedule with chunk durations. */
MsTime ms_fast_step(const MsProgram *program, const MsSchedule *schedule, MsTimeParts *stage, MsPasses *passes,
                    guint64 *events);
/* Seconds of each kind of slot on the middle stage, alone and in steady state; F, B, I, W always, FB when the schedule
 * has pairs. */
void ms_slot_times(const MsProgram *program, const MsSchedule *schedule, const MsOp *const *tag_op, double *slot_s);

#endif
