/* src/step/program.h - the rows of a step with their costs.
 *
 * A costed list is an operator list with every row's duration, resources and host launch in engine units. Each row has
 * a tag, unique over the whole step program, so that a task of a graph leads back to its row. */
#ifndef MS_STEP_PROGRAM_H
#define MS_STEP_PROGRAM_H

#include "cost/cost.h"
#include "engine/engine.h"
#include "step/walk.h"
#include <math.h>

typedef struct {
  const MsOpList *list;
  MsTime *duration, *launch; /* [n]; of lists that were costed here, `duration` owns them all */
  MsTime *beside;            /* [n] duration in a pair, beside the pass of another microbatch */
  MsOpCost *cost;            /* [n] NULL: where machines differ, and of a list that was costed like another */
  guint16 *sms;
  guint8 *use;
  guint16 most_sms[MS_N_STREAMS]; /* that a row of each stream takes */
  guint32 tag;                    /* of row 0 */
  MsTime shortest; /* from the start of the list to the end of its last compute row, alone on the machine: a lower bound
                      of it in any run */
  MsTime compute;  /* sum of compute rows */
  MsTime weight;   /* of those, weight gradients: what a W slot takes */
} MsCosted;

/* Host time of one operator of the framework, in seconds. */
double ms_operator_s(const MsScenario *scenario);

typedef struct {
  MsCosted forward, backward, reload;
} MsCostedPiece;

typedef struct {
  MsStepOps ops;
  MsCosted before, reduce, gather, after;
} MsCostedStep;

typedef struct { /* FSDP, around the passes of one piece */
  MsUnitOps ops;
  union {
    struct {
      MsCosted first, gather, again, cast[2], reduce;
    };
    MsCosted list[MS_UNIT_LISTS]; /* the same, one after another */
  };
} MsCostedUnit;

typedef struct { /* how rows share a NIC, or the links of a fabric (step/meeting.h) */
  MsMeeting *meeting;
  MsSharing sharing; /* for the engine */
} MsMeets;

typedef struct MsProgram { /* everything a step needs, costed; borrows scenario, layout, work, cost */
  const MsScenario *scenario;
  const MsLayout *layout;
  const MsWork *work;
  const MsCost *cost;
  MsCostedPiece *piece;            /* [work->n_pieces] */
  gboolean borrowed;               /* they belong to another */
  MsCostedUnit *unit;              /* [work->n_pieces], NULL without sharded gradients */
  MsCostedStep *step;              /* [pp] */
  MsOp p2p_op;                     /* the message between virtual stages */
  MsOpCost p2p;                    /* the slowest between neighbours */
  MsOpCost *message;               /* [2][pp] from a stage to the next (the last: to the first), and back; NULL: all as
                                      p2p */
  guint32 p2p_tag, no_tag, n_tags; /* no_tag: of tasks that are no row */
  gboolean p2p_blocks;             /* non-interleaved: sends are waited for (docs/theory/communication.md 6) */
  gboolean p2p_in_turn;            /* interleaved: only by the next turn, where that goes in the same direction alone */
  gboolean skewed;                 /* ms_steps_overlap */
  MsMeets *meets;                  /* NULL: the network is shared in equal parts, or ms_program_meet was not called */
} MsProgram;

/* Standard deviation of what the host works `launch` for, over that: operators of `one` each vary on their own. */
static inline double ms_host_deviation(double jitter, MsTime launch, MsTime one) {
  return launch > one && one > 0 ? jitter * sqrt((double)one / (double)launch) : jitter;
}

/* Costs every list of `work` once; borrows both. (transfer full) */
MsProgram *ms_program_new(const MsWork *work, const MsCost *cost);
/* The same with pieces that belong to another layout of the same GPUs, parallel sizes but for PP and VPP, and options:
 * borrowed. */
MsProgram *ms_program_new_like(const MsWork *work, const MsCost *cost, MsCostedPiece *pieces);
void ms_program_free(MsProgram *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsProgram, ms_program_free)

/* Calls `each` with all lists of rows: of pieces, of what FSDP does around them, of the step on every stage. */
void ms_program_each_list(const MsProgram *program, void (*each)(const MsCosted *list, gpointer data), gpointer data);

/* The pieces alone; `any_pipeline`: what follows from the number of stages (rows between replicas, scales of all layers
 * of a rank) takes nothing. *tag: of the first row; becomes that behind the last. like[n_like]: pieces, maybe of other
 * work, whose kernels cost the same (ms_cost_same_kernels): what is known of them is not costed again. (transfer full)
 */
MsCostedPiece *ms_costed_pieces_new(const MsWork *work, const MsCost *cost, gboolean any_pipeline,
                                    const MsCostedPiece *like, int n_like, guint32 *tag);
void ms_costed_pieces_free(MsCostedPiece *pieces, int n);
MsTime ms_costed_issue(const MsCosted *list, MsListPart part); /* how long the host issues it */
MsTime ms_time_of(double time_s);                              /* nearest picosecond, saturating */

/* The message between physical stages that are neighbours. */
const MsOpCost *ms_program_p2p(const MsProgram *program, int from, int to);
/* Where it stands in MsProgram.message. */
static inline int ms_program_message_at(const MsProgram *p, int from, int to) {
  int pp = p->layout->pp;
  return to == from + 1 || (to == 0 && from == pp - 1 && pp > 2) ? from : pp + to;
}
/* What a pass of a chunk of the layout sends, in the middle of a pipeline: its output, or with `backward` its input
 * gradient. */
const MsOpCost *ms_program_p2p_of(const MsProgram *program, const MsChunk *chunk, gboolean backward);
/* The physical stage of a virtual one. */
int ms_program_stage_of(const MsProgram *program, int virtual_stage);
/* The machine of a pool, or of a stage; without pools the only one. */
static inline const MsHardware *ms_program_machine(const MsProgram *p, int pool) {
  return ms_scenario_stage_machine(p->scenario, pool);
}
static inline const MsHardware *ms_program_machine_of(const MsProgram *p, int stage) {
  return p->layout->n_pools > 0 ? ms_program_machine(p, ms_layout_pool(p->layout, stage)) : p->scenario->hardware;
}

/* No step takes longer: everything on the stage that has most to do, after one another, as often as there are stages.
 * In seconds, as it may be beyond MsTime. */
double ms_program_longest_s(const MsProgram *program);
/* The schedule that the scenario names; zb-1p and zb-2p search with the costs of the program. NULL and `why` when it
 * cannot be built. (transfer full) */
MsSchedule *ms_program_schedule(const MsProgram *program, char *why, size_t size);
/* The optimizer validates its step afterwards: stages do not meet at the gradient norm (docs/theory/schedules.md 5). */
gboolean ms_steps_overlap(const MsScenario *scenario);
/* Communication of a slot may hide behind another slot: only compute rows are certain to follow one another. */
gboolean ms_slots_overlap(const MsScenario *scenario);

#endif
