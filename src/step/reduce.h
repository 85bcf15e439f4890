/* src/step/reduce.h - behind which slot the gradients of a chunk begin to be reduced.
 *
 * Either bucket by bucket inside the last backward of the chunk, as hooks of the parameters have it. Or, where the
 * framework aligns reductions over the stages of a pipeline (Megatron-Core core/pipeline_parallel/schedules.py with
 * grad_sync_func, which training/training.py sets unless align_grad_reduce is off), all buckets of a chunk together:
 *   - without interleaving the first stage, whose backward ends the step, bucket by bucket; others behind the last
 *     message that they send;
 *   - interleaved, on stage s behind the s-th backward after the last one of the chunk, so that all stages do at the
 *     same time; chunks that are not due by then behind the last message. */
#ifndef MS_STEP_REDUCE_H
#define MS_STEP_REDUCE_H

#include "step/program.h"

/* Buckets of a stage begin inside the last backward of their chunk. */
gboolean ms_reduces_in_passes(const MsProgram *program, int stage);

/* [pp][vpp] the slot of the stage's list behind which all buckets of a chunk begin; the length of the list: behind the
 * last slot and its message; -1: inside passes. NULL: inside passes everywhere. (transfer container) */
int *ms_reduce_slots(const MsProgram *program, const MsSchedule *schedule);

/* Those of the chunk begin behind the last slot and its message. slots: of ms_reduce_slots, or NULL. */
static inline gboolean ms_reduces_behind(const int *slots, const MsSchedule *schedule, int stage, int chunk) {
  return slots && slots[stage * schedule->chunks + chunk] >= schedule->n[stage];
}

/* The chunk whose buckets begin together behind the turn, -1: none. slots: of ms_reduce_slots, or NULL. */
int ms_reduce_due(const MsProgram *program, const int *slots, const MsTurn *turn);

/* The same, or the chunk whose last backward the turn is where buckets begin inside of it. */
int ms_reduce_ending(const MsProgram *program, const int *slots, const MsTurn *turn);

/* The backward of the turn is the last of its chunk, and buckets begin with its pieces. */
static inline gboolean ms_reduces_here(const MsProgram *program, const MsSlotPass *backward) {
  return backward && backward->last && ms_reduces_in_passes(program, backward->stage);
}

/* The input gradient of a turn leaves before what is done with its weight gradients: in a pair that delays them, or
 * whose stage reduces behind it (Megatron-LM model_chunk_schedule_plan.py, post_backward in front of backward_dw;
 * combined_1f1b.py, backward_step_helper_postprocess behind the pair). */
static inline gboolean ms_sends_first(const MsProgram *p, const MsTurn *turn) {
  return turn->forward && (p->scenario->options.delay_wgrad || !ms_reduces_in_passes(p, turn->stage));
}

#endif
