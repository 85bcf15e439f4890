/* src/sim/lower.h - internal to sim/: rows with their costs, and the step as a graph of tasks.
 *
 * A costed list is an operator list with every row's duration, resources and host launch in engine units. Each row has
 * a tag, unique over the whole step program, so that a task of the graph leads back to its row. */
#ifndef MS_SIM_LOWER_H
#define MS_SIM_LOWER_H

#include "cost/cost.h"
#include "sim/simulate.h"

typedef struct {
  const MsOpList *list;
  MsTime *duration, *launch; /* [n]; of lists that were costed here, `duration` owns them all */
  MsTime *beside;            /* [n] duration in a pair, beside the pass of another microbatch */
  guint16 *sms;
  guint8 *use;
  guint32 tag;     /* of row 0 */
  MsTime shortest; /* from the start of the list to the end of its last compute row, alone on the machine: a lower bound
                      of it in any run */
  MsTime compute;  /* sum of compute rows */
  MsTime weight;   /* of those, weight gradients: what a W slot takes */
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

typedef struct MsPieceLags MsPieceLags;

typedef struct MsProgram { /* everything a step needs, costed; borrows scenario, layout, work, cost */
  const MsScenario *scenario;
  const MsLayout *layout;
  const MsWork *work;
  const MsCost *cost;
  MsCostedPiece *piece; /* [work->n_pieces] */
  MsPieceLags *lags;    /* of them, for the bounds */
  gboolean borrowed;    /* both belong to another */
  MsCostedUnit *unit;   /* [work->n_pieces], NULL without sharded gradients */
  MsCostedStep *step;   /* [pp] */
  MsOp p2p_op;          /* the message between virtual stages */
  MsOpCost p2p;
  guint32 p2p_tag, n_tags;
  gboolean p2p_blocks; /* non-interleaved: sends are waited for (communication.md 6) */
  gboolean skewed;     /* ms_steps_overlap */
} MsProgram;

MsProgram *ms_program_new(const MsWork *work, const MsCost *cost);
/* The same with pieces that belong to another layout of the same GPUs, parallel sizes but for PP and VPP, and options:
 * borrowed with their lags. */
MsProgram *ms_program_new_like(const MsWork *work, const MsCost *cost, MsCostedPiece *pieces, MsPieceLags *lags);
void ms_program_free(MsProgram *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsProgram, ms_program_free)

/* The pieces alone. *tag: of the first row; becomes that behind the last. like[n_like]: pieces, maybe of other work,
 * whose kernels cost the same (ms_cost_same_kernels): what is known of them is not costed again. (transfer full) */
MsCostedPiece *ms_costed_pieces_new(const MsWork *work, const MsCost *cost, const MsCostedPiece *like, int n_like,
                                    guint32 *tag);
void ms_costed_pieces_free(MsCostedPiece *pieces, int n);
MsTime ms_time_of(double time_s); /* nearest picosecond, saturating */

/* No step takes longer: everything on the stage that has most to do, after one another, as often as there are stages.
 * In seconds, as it may be beyond MsTime. */
double ms_program_longest_s(const MsProgram *program);
/* Tasks that the full step would have. */
double ms_program_tasks(const MsProgram *program, const MsSchedule *schedule);
/* The whole step. slot_task/slot_base as in MsDetail (may be NULL). */
MsGraph *ms_lower_full(const MsProgram *program, const MsSchedule *schedule, guint32 *slot_task,
                       const guint32 *slot_base);
/* One slot of one chunk, `repeat` times after one another, alone on one device. FB without EP overlap: the forward,
 * then the backward. */
typedef struct {
  const MsChunk *chunk, *chunk2 /* of FB: the backward */;
  MsSlotKind kind;
  gboolean leaves_head;
} MsLoneSlot;
MsGraph *ms_lower_chunk(const MsProgram *program, const MsLoneSlot *slot, int repeat);

/* Seconds between two steps; takes what is not part of them off the parts. */
MsTime ms_lower_period(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory,
                       MsTimeParts *stage);
/* Takes `by` off the waiting of every stage. */
void ms_parts_shorten(MsTimeParts *stage, int stages, MsTime by);

/* The schedule that the scenario names; zb-1p and zb-2p search with the costs of the program. NULL and `why` when it
 * cannot be built. (transfer full) */
MsSchedule *ms_program_schedule(const MsProgram *program, char *why, size_t size);
/* The optimizer validates its step afterwards: stages do not meet at the gradient norm (schedules.md 5). */
gboolean ms_steps_overlap(const MsScenario *scenario);
/* Communication of a slot may hide behind another slot: only compute rows are certain to follow one another. */
gboolean ms_slots_overlap(const MsScenario *scenario);

/* Time parts of each stage from a simulated full step. */
void ms_account(const MsProgram *program, const MsGraph *graph, const MsTrajectory *trajectory,
                const MsOp *const *tag_op, MsTimeParts *stage);
MsCommClass ms_comm_class(const MsOp *op);

/* --- pair.c: a forward chunk beside a backward chunk, with EP overlap --- */
typedef struct {
  const MsChunk *forward, *backward;
  int next_f,
      next_b; /* the pieces that come next, numbers within their chunk; next_f = its length, next_b = -1 at the end */
  int f, b;   /* of this step: both, or one of them beside -1 */
} MsPairWalk;
MsPairWalk ms_pair_walk(const MsChunk *forward, const MsChunk *backward);
gboolean ms_pair_step(MsPairWalk *walk); /* FALSE at the end */

/* Where the nodes of the schedule begin in a list: rows [cut[s], cut[s + 1]) are one. */
enum { MS_PAIR_NODES = 4 };
void ms_pair_cut(const MsOpList *list, gboolean backward, int cut[MS_PAIR_NODES + 1]);

typedef struct {
  gboolean backward;
  int row;
} MsPairRow;
/* The order in which the rows of a forward list and a backward list beside it are issued; order[] has room for all of
 * them. Returns how many. */
int ms_pair_order(const MsOpList *forward, const MsOpList *backward, gboolean delay_wgrad, MsPairRow *order);

/* Rows of a backward list that a slot takes: all (B), those of the input gradient (I), those of the weight gradients
 * (W). */
typedef enum { MS_LIST_ALL, MS_LIST_INPUT, MS_LIST_WEIGHT } MsListPart;
static inline gboolean ms_in_list_part(const MsOp *op, MsListPart part) {
  return part == MS_LIST_ALL || (op->pass == MS_PASS_WGRAD) == (part == MS_LIST_WEIGHT);
}

/* A backward that leaves the head's weight gradient to the rows behind the last slot (ms_work_deferred). */
gboolean ms_leaves_head(const MsProgram *program, const MsSchedule *schedule, int stage, int chunk, int mb);
/* The rows of one piece in a slot of that kind: of a head that is left, those of the input gradient only. MS_N_SLOTS:
 * none. */
MsSlotKind ms_piece_slot(const MsProgram *program, MsSlotKind kind, int piece, gboolean leaves_head);

/* --- rows.c: one list, or a pair of lists, as the bounds read them --- */
typedef struct {
  gint32 wait[3]; /* earlier rows, then -1 */
  guint8 stream;
  gboolean beside; /* of the backward list of a pair */
  gboolean opens;  /* waits for what its list waits for */
  gboolean host_waits;
  guint16 sms;
  guint8 use; /* MsUse */
  MsTime duration, launch;
} MsRow;
typedef struct {
  MsRow *row; /* [n], in the order in which they are issued */
  int n, capacity;
  int tip[2]; /* last row of the chain of the list (or the forward of a pair), and of the backward beside it; -1 = none
               */
  int *place; /* scratch */
} MsRows;
void ms_rows_of_list(MsRows *rows, const MsCosted *list, MsListPart part);
void ms_rows_of_pair(MsRows *rows, const MsCosted *forward, const MsCosted *backward, gboolean delay_wgrad);
void ms_rows_clear(MsRows *rows);

/* --- lags.c: what rows do to the stage they run on ---
 *
 * Every time in a step where nothing is shared is a maximum of sums of durations ("max-plus linear"), so what rows do
 * to their stage is a table of lags from (what the list waits for, what the list beside it waits for, the compute
 * stream is free, the host is free) to the same four afterwards. */
typedef enum { MS_END_ENTRY, MS_END_BESIDE, MS_END_COMPUTE, MS_END_HOST, MS_N_ENDS } MsEnd;
typedef struct {
  MsTime to[MS_N_ENDS][MS_N_ENDS];
} MsLags; /* to[end][source] */
enum {
  MS_FROM_ENTRY = 1 << MS_END_ENTRY,
  MS_FROM_COMPUTE = 1 << MS_END_COMPUTE,
  MS_FROM_ALL = (1 << MS_N_ENDS) - 1
};                                    /* sets of sources */
#define MS_NEVER (-((MsTime)1 << 60)) /* minus infinity of max-plus; sums of a few of them do not overflow */
#define MS_NO_ROWS                                                                                               \
  {                                                                                                              \
    {                                                                                                            \
      {0, MS_NEVER, MS_NEVER, MS_NEVER}, {MS_NEVER, 0, MS_NEVER, MS_NEVER}, {MS_NEVER, MS_NEVER, 0, MS_NEVER}, { \
        MS_NEVER, MS_NEVER, MS_NEVER, 0                                                                          \
      }                                                                                                          \
    }                                                                                                            \
  }
extern const MsLags ms_no_rows;
/* Fills in the lags behind each of the sources. */
void ms_lags_of_rows(const MsRows *rows, int sm_count, guint sources, MsLags *lags);
MsLags ms_lags_product(const MsLags *then, const MsLags *first);
MsLags ms_lags_beside(const MsLags *lags); /* of a list that runs as the backward of a pair */
void ms_lags_run(const MsLags *lags, const MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]);

/* Tables of pieces, made when they are asked for: not for two threads at once. `piece` is borrowed. Only the lags
 * behind `sources` are sure to be there. `like`: of other pieces, or NULL; what it knows of rows that are the same here
 * is taken over. */
MsPieceLags *ms_piece_lags_new(const MsCostedPiece *piece, int n, const MsScenario *scenario, const MsPieceLags *like);
void ms_piece_lags_free(MsPieceLags *lags);
const MsLags *ms_piece_lags_pass(MsPieceLags *lags, MsSlotKind kind /* F, B, I or W */, int piece, guint sources);
const MsLags *ms_piece_lags_pair(MsPieceLags *lags, int forward, int backward,
                                 guint sources); /* a layer beside a layer, with EP overlap */

/* Of these lags what the compute stream itself needs: rows, gaps in which nothing can be computed, and what is lost to
 * rows that take SMs. `own`: the rows alone. What else takes SMs while the stream computes comes on top, but for the
 * time that it may spend in the difference. shared[k]: all lags where k + 1 collectives of the step's own (rivals) are
 * under way all the time, which take their share of the network and of the SMs. `network`: what rows between the first
 * compute row and the last have to send over it. */
enum { MS_RIVALS = 2 }; /* reductions or gathers of dense and of expert parameters */
typedef struct {
  MsLags lags, shared[MS_RIVALS];
  MsTime own, network;
} MsForced;
extern const MsForced ms_nothing_forced;
MsForced ms_forced_product(const MsForced *then, const MsForced *first);
MsForced ms_forced_beside(const MsForced *forced); /* of a list that runs as the backward of a pair */
/* Before they are asked for: SMs that rivals take at least, one of them and both. */
void ms_piece_lags_meet(MsPieceLags *lags, const int sms[MS_RIVALS]);
const MsForced *ms_piece_forced_pass(MsPieceLags *lags, MsSlotKind kind, int piece);
const MsForced *ms_piece_forced_pair(MsPieceLags *lags, int forward, int backward);

/* busy.c: raises the lags behind those of `sources` that are entries or the compute stream to those that rows need
 * which share the SMs. */
void ms_rows_busy(const MsRows *rows, int sm_count, guint sources, MsLags *lags);
/* All of it but `shared`. */
MsForced ms_rows_forced(const MsRows *rows, int sm_count);

/* --- toll.c: what parameter gathers and gradient reductions of the step take from the compute of one stage --- */
typedef struct MsToll MsToll;
/* NULL when there are none, or when SMs could be taken faster than costs add up. `slots` of the stage; `at`: when its
 * compute stream is free for the first. */
MsToll *ms_toll_new(const MsProgram *program, int stage, int slots, MsTime at);
void ms_toll_free(MsToll *toll);
void ms_toll_last(MsToll *toll, int chunk); /* the slot that comes next is the last backward of a chunk */
typedef struct {
  MsTime forced, own, network;
  MsLags shared[MS_RIVALS];
} MsNeed; /* what a slot takes of the stream: MsForced */
MsNeed ms_need_of(const MsForced *forced);
/* A slot: `before` and `after` it as in ms_lags_run; raises what is there `after` it by the toll. */
void ms_toll_slot(MsToll *toll, const MsNeed *need, const MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]);
/* SMs that collectives of the step's own which go over the network take at least: one of them, and one of both kinds.
 * FALSE: there are none. */
gboolean ms_toll_rivals(const MsProgram *program, int sms[MS_RIVALS]);
MsTime ms_toll_gathered(MsToll *toll,
                        int chunk); /* before the first forward of a chunk: the stream is not free for it before */
MsTime ms_toll_joined(const MsToll *toll); /* slots and reductions are not over before */

/* bound: a lower bound of the step, picoseconds. */
MsTime ms_bound_streams(const MsProgram *program); /* rows of the busiest stream of a stage, one after the other:
                                                      messages, fetches and offloads too */
MsTime ms_bound_behind(
    const MsProgram *program); /* of the slowest stage: compute rows after the gradient norm, where all meet */
MsTime ms_bound_step(const MsProgram *program, MsScheduleKind kind, MsTimeParts *stage);
/* How long a piece still computes at most when its backward has handed on its gradient. */
MsTime ms_bound_late(MsPieceLags *lags, int piece);
/* A tighter one: the whole step with nothing shared, slot by slot (sim/relaxed.c); 0 where steps overlap (`skewed`). */
MsTime ms_relaxed_step(const MsProgram *program, const MsSchedule *schedule);
/* The passes of a scenario alone, with messages that take no time: below the step of all scenarios that differ from it
 * in options which change neither the rows of the pieces nor their schedule. `work`, `lags`: of the same pieces, maybe
 * in another pipeline. 0 where costs decide the schedule. */
MsTime ms_relaxed_passes(const MsScenario *scenario, const MsWork *work, MsPieceLags *lags);
/* Seconds of each kind of slot on the middle stage, alone and in steady state; F, B, I, W always, FB when the schedule
 * has pairs. */
void ms_slot_times(const MsProgram *program, const MsSchedule *schedule, const MsOp *const *tag_op, double *slot_s);
gboolean ms_schedule_has(const MsSchedule *schedule, MsSlotKind kind);
gboolean ms_schedule_splits(const MsSchedule *schedule); /* has slots other than F and B */
/* fast: the schedule with chunk durations. */
MsTime ms_fast_step(const MsProgram *program, const MsSchedule *schedule, MsTimeParts *stage, MsPasses *passes,
                    guint64 *events);

#endif
