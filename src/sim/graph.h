/* src/sim/graph.h - the step as a graph of tasks: every row of every slot. */
#ifndef MS_SIM_GRAPH_H
#define MS_SIM_GRAPH_H

#include "sim/result.h"
#include "step/program.h"

/* Tasks that the full step would have. */
double ms_program_tasks(const MsProgram *program, const MsSchedule *schedule);
/* The whole step. slot_task/slot_base as in MsDetail (may be NULL). */
MsGraph *ms_lower_full(const MsProgram *program, const MsSchedule *schedule, guint32 *slot_task,
                       const guint32 *slot_base);
/* The pieces of one turn, `repeat` times after one another, alone on one device. Both chunks without EP overlap: the
 * forward, then the backward. */
MsGraph *ms_lower_chunk(const MsProgram *program, MsChunks of, int repeat);

/* Seconds between two steps; takes what is not part of them off the parts. */
MsTime ms_lower_period(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory,
                       MsTimeParts *stage);

#endif
