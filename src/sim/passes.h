/* src/sim/passes.h - the step of a stage, pass by pass, in the words of the schedules' authors (DualPipe, zero bubble).
 *
 *   1F    forward of one microbatch over one chunk, alone
 *   1B    backward of one microbatch over one chunk, alone: whole (B), or of the input gradient only (I)
 *   1W    weight gradients of a chunk whose backward was split, as a slot of their own
 *   1F1B  forward of one microbatch with backward of another in one slot, overlapped
 *   optimizer  the step's own rows before the first slot and after the last: zeroing, what is left of gradient
 * reduction, norm, optimizer, gather bubble     the rest: waiting for another stage, and for what comes late into a
 * slot from outside
 *
 * A slot lasts from its first row (not before the slot before it has ended) to its last; messages between stages,
 * gradient reductions and copies to and from the host run beside the slots and are not part of them. The parts of a
 * stage add up to the step. */
#ifndef MS_SIM_PASSES_H
#define MS_SIM_PASSES_H

#include "sched/sched.h"

#include "engine/engine.h"

typedef struct {
  int count[MS_N_SLOTS];
  double total_s[MS_N_SLOTS]; /* by MsSlotKind, all slots of the step */
  double optimizer_s, bubble_s;
} MsPasses;

struct MsProgram;
/* From a simulated full step; slot_task and slot_base as in MsDetail. passes[stages]; bubble_s is left to
 * ms_passes_close. */
void ms_passes_of_step(const struct MsProgram *program, const MsSchedule *schedule, const MsGraph *graph,
                       const MsTrajectory *trajectory, const guint32 *slot_task, const guint32 *slot_base,
                       MsPasses *passes);
/* The rest of the step is bubble. Where steps overlap, what the optimizer does beside the slots of the next step is not
 * counted. */
void ms_passes_close(MsPasses *passes, int stages, double step_s);
/* Mean over stages: the counts are those of the stage with most slots. */
MsPasses ms_passes_mean(const MsPasses *passes, int stages);

#endif
