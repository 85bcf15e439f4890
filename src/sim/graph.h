/* src/sim/graph.h - the step as a graph of tasks: every row of every slot. */
#ifndef MS_SIM_GRAPH_H
#define MS_SIM_GRAPH_H

#include "sim/result.h"
#include "sim/rivals.h"
#include "step/program.h"

/* Tasks that the full step would have. */
double ms_program_tasks(const MsProgram *program, const MsSchedule *schedule);
/* The whole step. slot_task/slot_base as in MsDetail (may be NULL). */
MsGraph *ms_lower_full(const MsProgram *program, const MsSchedule *schedule, guint32 *slot_task,
                       const guint32 *slot_base);
/* The same with fewer of its rounds where they share something and steps do not overlap (ms_graph_leave_out). Tasks of
 * slots are numbers. */
MsGraph *ms_lower_folded(const MsProgram *program, const MsSchedule *schedule, guint32 *slot_task,
                         const guint32 *slot_base);
/* The pieces of one turn, `repeat` times after one another, alone on one device. Both chunks without EP overlap: the
 * forward, then the backward. Each waits for what comes before it; `stream`: as in the middle of a pipeline, inputs are
 * there before the stage is free, and outputs leave. */
MsGraph *ms_lower_chunk(const MsProgram *program, MsChunks of, int repeat, gboolean stream);
/* What follows the last slots, where each stage's compute stream and host are free, and the chain of its slots has
 * ended, at the moments given; rivals[stages]: collectives of the step that have not ended. */
MsGraph *ms_lower_after(const MsProgram *program, const MsTime *compute, const MsTime *host, const MsTime *tip,
                        const MsRivals *rivals);

/* end[stages]: when the last task of each ends. */
void ms_lower_ends(const MsGraph *graph, const MsTrajectory *trajectory, int stages, MsTime *end);
/* From one step to the next where stages do not wait for one another between them: end[stages] is when those of a step
 * end that all begin at 0, `again` says when those end that begin at `from`. */
typedef void (*MsAgain)(gconstpointer data, const MsTime *from, MsTime *end);
MsTime ms_lower_period_of(int stages, const MsTime *end, MsAgain again, gconstpointer data);
/* The same of a step that was run; takes what is not part of it off the parts. */
MsTime ms_lower_period(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory,
                       MsTimeParts *stage);

#endif
