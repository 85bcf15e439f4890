/* src/sim/account.h - where the time of a stage went. */
#ifndef MS_SIM_ACCOUNT_H
#define MS_SIM_ACCOUNT_H

#include "sim/result.h"
#include "step/program.h"

/* Time parts of each stage from a simulated full step. */
void ms_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory,
                const MsOp *const *tag_op, MsTimeParts *stage);
/* Also, as `first`, those of its first n tasks alone, which end at `end` (ms_trajectory_first_end). */
void ms_account_first(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory,
                      const MsOp *const *tag_op, guint32 n, MsTime end, MsTimeParts *first, MsTimeParts *stage);
/* Adds `times` the parts. */
void ms_parts_add(MsTimeParts *to, const MsTimeParts *parts, double times);
/* Takes what is left, but no more than there is, off a part. */
void ms_part_take(double *from, double *left_s);
/* Takes `by` off the waiting of every stage. */
void ms_parts_shorten(MsTimeParts *stage, int stages, MsTime by);

#endif
