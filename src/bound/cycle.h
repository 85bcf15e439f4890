/* src/bound/cycle.h - the steady part of a step is walked until it repeats itself, and as often as it would from then
 * on it is left out, exactly.
 *
 * In the middle of a schedule every stage's list repeats itself (MsSchedule.period), and what turns do is the same
 * then if it depends on differences of times alone: maxima of sums of durations, in whole picoseconds. So when all
 * stages stand where they stood some periods before, and every moment that a later turn can ask for is later by one and
 * the same time, all that follows is later by that time too, period after period, up to the end of the repetition.
 * Moments and sums of whole numbers are then the same as if all turns had run; figures in doubles but for rounding.
 *
 * A stream that sends nothing rests while others go on, and a host that waits for nothing goes on at its own pace (a
 * program whose hosts do wait has them in step). If a host moves on by less than the stages do, and no moment of its
 * stage between the two was as early as it let it be, none will be: what decided them moves on by more. Where it did
 * decide some, both have to have moved on by the same in two such spans in a row; then no moment of the stages is the
 * hosts' either, and none will be: let a moment be MAX(a, b), where a follows from the stages' moments and b from the
 * hosts'. After the first span a is later by T, and b by less; were the moment b in the first, it would be later by
 * less than T in the second.
 *
 *   MsCycle *cycle = ms_cycle_new(&stages, schedule, tell, visitor);
 *   for (const MsTurn *turn; (turn = ms_slot_walk_next(stages.walk));) ... run it, then ms_cycle_turn(cycle, turn) */
#ifndef MS_BOUND_CYCLE_H
#define MS_BOUND_CYCLE_H

#include "bound/stages.h"

typedef struct MsCycle MsCycle;
/* Tells the cycle all that turns of a stage read and change beside `stages`, by the functions below, always as much and
 * in the same order. */
typedef void (*MsCycleTell)(gpointer visitor, int stage, MsCycle *cycle);
void ms_cycle_moments(MsCycle *cycle, MsTime *moment, int n); /* MS_NEVER stays */
void ms_cycle_end(MsCycle *cycle, MsTime *moment);            /* of passes that no turn asks for */
void ms_cycle_sum(MsCycle *cycle, MsTime *sum);               /* grows by the same in every period; no turn asks */
void ms_cycle_counts(MsCycle *cycle, int *sum, int n);
void ms_cycle_figures(MsCycle *cycle, double *sum, int n);
void ms_cycle_same(MsCycle *cycle, gint64 number); /* nothing is left out unless it is what it was */
/* A number that only grows, and as long as it is not above the limit. */
void ms_cycle_until(MsCycle *cycle, MsTime number, MsTime limit);

/* Both are borrowed. Before the first turn; NULL: the schedule does not repeat itself often enough. (transfer full) */
MsCycle *ms_cycle_new(MsStages *stages, const MsSchedule *schedule, MsCycleTell tell, gpointer visitor);
/* The first moment is kept a few slots behind the warm-up, whose last waits have mostly gone by then: a fifth fewer
 * turns of the published runs. Figures end elsewhere in their last digits than without it. NULL is fine. */
void ms_cycle_settle(MsCycle *cycle);
/* After each turn: may move stages and visitor on. NULL is fine. */
void ms_cycle_turn(MsCycle *cycle, const MsTurn *turn);
void ms_cycle_free(MsCycle *cycle);
/* For tests: whether any are made, and how many turns were left out until now. */
void ms_cycle_allow(gboolean allow);
gsize ms_cycle_left_out(void);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCycle, ms_cycle_free)

#endif
