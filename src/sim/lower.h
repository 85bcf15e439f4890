/* src/sim/lower.h - internal to sim/: rows with their costs, and the step as a graph of tasks.
 *
 * A costed list is an operator list with every row's duration, resources and host launch in engine units. Each row has a tag, unique over the
 * whole step program, so that a task of the graph leads back to its row. */
#ifndef MS_SIM_LOWER_H
#define MS_SIM_LOWER_H

#include "cost/cost.h"
#include "sim/simulate.h"

typedef struct {
  const MsOpList *list;
  MsTime *duration, *launch; /* [n] */
  guint16 *sms;
  guint8 *use;
  guint32 tag;      /* of row 0 */
  MsTime shortest;  /* from the start of the list to the end of its last compute row, alone on the machine: a lower bound of it in any run */
  MsTime compute;   /* sum of compute rows */
  MsTime weight;    /* of those, weight gradients: what a W slot takes */
} MsCosted;

typedef struct {
  MsCosted forward, backward, reload;
} MsCostedPiece;

typedef struct {
  MsStepOps ops;
  MsCosted before, reduce, gather, after;
} MsCostedStep;

typedef struct { /* Megatron-FSDP, around the passes of one piece */
  MsUnitOps ops;
  MsCosted gather, cast, reduce;
} MsCostedUnit;

typedef struct MsProgram { /* everything a step needs, costed; borrows scenario, layout, work, cost */
  const MsScenario *scenario;
  const MsLayout *layout;
  const MsWork *work;
  const MsCost *cost;
  MsCostedPiece *piece; /* [work->n_pieces] */
  MsCostedUnit *unit;   /* [work->n_pieces], NULL without sharded gradients */
  MsCostedStep *step;   /* [pp] */
  MsOp p2p_op;          /* the message between virtual stages */
  MsOpCost p2p;
  guint32 p2p_tag, n_tags;
  gboolean p2p_blocks;  /* non-interleaved: sends are waited for (communication.md 6) */
  gboolean skewed;      /* the optimizer validates its step afterwards: stages do not meet at the gradient norm (schedules.md 5) */
} MsProgram;

MsProgram *ms_program_new(const MsWork *work, const MsCost *cost);
void ms_program_free(MsProgram *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsProgram, ms_program_free)

/* The lower bound of one list (MsCosted.shortest, or .compute when `overlapped`) without keeping its costs. */
MsTime ms_list_shortest(const MsOpList *list, const MsCost *cost, gboolean overlapped);
MsTime ms_time_of(double time_s); /* nearest picosecond, saturating */

/* Tasks that the full step would have. */
double ms_program_tasks(const MsProgram *program, const MsSchedule *schedule);
/* The whole step. slot_task/slot_base as in MsDetail (may be NULL). */
MsGraph *ms_lower_full(const MsProgram *program, const MsSchedule *schedule, guint32 *slot_task, const guint32 *slot_base);
/* One slot of one chunk, `repeat` times after one another, alone on one device. FB without EP overlap: the forward, then the backward. */
MsGraph *ms_lower_chunk(const MsProgram *program, const MsChunk *chunk, MsSlotKind kind, const MsChunk *chunk2, int repeat);

/* Seconds between two steps; takes what is not part of them off the parts. */
MsTime ms_lower_period(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory, MsTimeParts *stage);
/* Takes `by` off the waiting of every stage. */
void ms_parts_shorten(MsTimeParts *stage, int stages, MsTime by);

/* The schedule that the scenario names; zb-1p and zb-2p search with the costs of the program. NULL and `why` when it cannot be built. (transfer full) */
MsSchedule *ms_program_schedule(const MsProgram *program, char *why, size_t size);
/* Communication of a slot may hide behind another slot: only compute rows are certain to follow one another. */
gboolean ms_slots_overlap(const MsScenario *scenario);

/* Time parts of each stage from a simulated full step. */
void ms_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory, const MsOp *const *tag_op, MsTimeParts *stage);
MsCommClass ms_comm_class(const MsOp *op);

/* --- busy.c: how long a list keeps the compute stream, from below --- */
typedef struct { int after, before; MsTime chain, loss; } MsWindow; /* scratch of one row */
typedef struct {
  MsTime from_compute; /* from the start of the first compute row to the end of the last */
  MsTime from_entry;   /* from what the list waits for to the end of the last compute row */
  MsTime tail;         /* from there to the end of its chain (`tip`); -1 = the chain does not follow the last compute row */
} MsBusy;
/* Compute rows, the gaps in which communication lets them wait, and what rows that run beside compute take from it with their SMs. laid[] (NULL: all):
 * the rows that take part. window[n] is scratch. */
MsBusy ms_list_busy(const MsOpList *list, const MsTime *duration, const guint16 *sms, int sm_count, const gboolean *laid, MsWindow *window);

/* bound: a lower bound of the step, picoseconds. `schedule` only for its kind of ends: NULL means 1F1B or interleaved. */
MsTime ms_bound_step(const MsProgram *program, MsScheduleKind kind, MsTimeParts *stage);
/* A tighter one: the whole step with nothing shared, slot by slot (sim/relaxed.c); 0 where steps overlap (`skewed`). */
MsTime ms_relaxed_step(const MsProgram *program, const MsSchedule *schedule);
/* Seconds of each kind of slot on the middle stage, alone and in steady state; F, B, I, W always, FB when the schedule has pairs. */
void ms_slot_times(const MsProgram *program, const MsSchedule *schedule, const MsOp *const *tag_op, double *slot_s);
gboolean ms_schedule_splits(const MsSchedule *schedule); /* has slots other than F and B */
/* fast: the schedule with chunk durations. */
MsTime ms_fast_step(const MsProgram *program, const MsSchedule *schedule, MsTimeParts *stage, MsPasses *passes, guint64 *events);

#endif
