/* src/sim/explain.h - the gap between the step and the time that its model FLOP take at peak, in named parts.
 *
 * Every compute row runs a known number of times on every stage. Its time alone on the machine is split by what it is:
 * FLOP at the peak of the run's precision (of which the published convention counts some), FLOP of a row in a wider
 * type at that type's lower peak, what its kernel takes beyond that, recomputation, quantisation, memory-bound work by
 * kind. What the simulated compute took beyond the rows alone is contention. Exposed communication, bubble, host,
 * optimizer and other come from MsResult.time. Everything is the mean over stages, so the fractions add up to 1. */
#ifndef MS_SIM_EXPLAIN_H
#define MS_SIM_EXPLAIN_H

#include "sim/result.h"
#include "step/program.h"

/* Fills result->gap from a result whose time parts and MFU are set. No parts where the peak is unknown or the step
 * takes no time. */
void ms_explain(MsResult *result, const MsProgram *program, const MsSchedule *schedule);

#endif
