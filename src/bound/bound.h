/* src/bound/bound.h - lower bounds of a step that `full` never undercuts, in picoseconds. They borrow the program and
 * the lags of its pieces. */
#ifndef MS_BOUND_BOUND_H
#define MS_BOUND_BOUND_H

#include "bound/lags.h"

/* Of a stage, for all microbatches, one after the other: rows of the busiest stream, messages, fetches and offloads
 * too; or all that a link moves, whichever streams it is on; or compute with the SMs that all others take. */
MsTime ms_bound_streams(const MsProgram *program);
typedef struct {
  MsTime stream[MS_N_STREAMS], use[MS_N_USES];
} MsBusy; /* what rows keep each stream and each link busy with */
/* What FSDP gathers and reduces around the passes of each piece for one microbatch: unit[n_pieces]. Part of what
 * ms_bound_streams counts. */
void ms_bound_units(const MsProgram *program, MsBusy *unit);
/* The rows of the passes of a piece itself, which streams and links have beside that. */
MsBusy ms_bound_passes_of(const MsCostedPiece *piece, gboolean leaves_wgrad);
/* Of the slowest stage: compute rows after the gradient norm, where all meet. */
MsTime ms_bound_behind(const MsProgram *program);
/* compute_s[stages], may be NULL: what each stage computes at least. */
MsTime ms_bound_step(const MsProgram *program, MsPieceLags *lags, MsScheduleKind kind, double *compute_s);
/* after[stages]: what follows the last compute row of the last slot of each stage at least, where steps do not overlap.
 */
void ms_bound_after_slots(const MsProgram *program, MsPieceLags *lags, MsScheduleKind kind, MsTime *after);
/* The same of the passes alone, with messages that take no time; of the program only pieces and layout are asked. */
void ms_bound_drain(const MsProgram *program, MsPieceLags *lags, MsScheduleKind kind, MsTime *after);
/* How long a piece still computes at most when its backward has handed on its gradient. */
MsTime ms_bound_late(MsPieceLags *lags, int piece);
/* A tighter one: the whole step with nothing shared, slot by slot (bound/relaxed.c); where steps overlap (`skewed`) of
 * the stage that takes longest by itself. Of a step above `limit` any bound above it. */
MsTime ms_relaxed_step(const MsProgram *program, MsPieceLags *lags, const MsSchedule *schedule, MsTime limit);
/* Of every slot, stage after stage (schedule->n[stage] each): when its last compute row has ended, the step does not
 * end before another so much time. The duals of the same tables, slot by slot from the last. NULL where steps overlap.
 * (transfer full) */
MsTime *ms_relaxed_tails(const MsProgram *program, MsPieceLags *lags, const MsSchedule *schedule);
/* The passes of a scenario alone, with messages that take no time: below the step of all scenarios that differ from it
 * in options which change neither the rows of the pieces nor their schedule. `work`, `piece`, `lags`: of the same
 * pieces, maybe in another pipeline. Where costs decide the schedule, of passes in any order that it may find.
 * Of passes above `limit` any bound above it. */
MsTime ms_relaxed_passes(const MsScenario *scenario, const MsWork *work, MsCostedPiece *piece, MsPieceLags *lags,
                         MsTime limit);

#endif
