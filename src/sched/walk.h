/* src/sched/walk.h - a schedule slot by slot, in an order in which it can run.
 *
 * The only place that knows when a slot may run, which virtual stage a pass takes its input from and hands its output
 * to, and which pass of a chunk is its first and which its last. Whoever runs a step - checks it, lays it down as a
 * graph, bounds it, executes it - goes from turn to turn:
 *
 *   MsSlotWalk *walk = ms_slot_walk_new(schedule, MS_ALL_STAGES, TRUE);
 *   for (const MsTurn *turn; (turn = ms_slot_walk_next(walk));) ...
 *   ms_slot_walk_must_end(walk);
 *   ms_slot_walk_free(walk);
 *
 * What passes hand on are tensors with numbers 0 .. ms_slot_walk_tensors() - 1: the input of a forward, the output
 * gradient of a backward, what is left for a weight gradient. A pass may run when its `in` was made, so that a caller
 * who keeps "when" or "where" in a table by those numbers needs no other knowledge of the pipeline. */
#ifndef MS_SCHED_WALK_H
#define MS_SCHED_WALK_H

#include "sched/sched.h"

typedef struct {   /* one way of one microbatch through one chunk */
  MsSlotKind kind; /* F, B, I or W */
  int stage, chunk, mb;
  int nth, of;          /* microbatch `nth` (0: the first forward) of the `of` that the chunk takes */
  gboolean last;        /* of a backward: nothing is left to add to the gradients of the chunk */
  int here, from, to;   /* virtual stages: its own, the one it gets its input from and the one that gets its output;
                           -1: none */
  int in, out, kept;    /* tensors: waited for, made for others, left for the weight gradient; -1: none */
  gboolean comes, goes; /* the message crosses from another stage, to another stage */
} MsSlotPass;

typedef struct {                        /* a slot, or the half of one */
  int stage, index;                     /* slot `index` of the list of `stage` */
  const MsSlotPass *forward, *backward; /* both: one beside the other; else one is NULL */
  gboolean opens, closes;               /* begins its slot, ends it: both, but in a half */
  gboolean holds, held;                 /* a forward whose message leaves behind the next turn, the backward of its
                                           exchange; that backward (MS_EXCHANGES) */
  gboolean paired;                      /* its backward is beside a forward, or right behind one */
  int with[2]; /* tensors of other passes that it waits for too, by MS_EXCHANGES and by MsEarly; -1: none */
} MsTurn;

enum { MS_ALL_STAGES = -1 };
typedef struct MsSlotWalk MsSlotWalk;
/* Over all stages: each goes as far as it can before the next one's turn. Over one: its slots in order, inputs come
 * from elsewhere. `beside`: the two passes of an FB slot are one turn; else the forward, then the backward. The
 * schedule is borrowed, and its lists are in order (ms_schedule_valid). (transfer full) */
MsSlotWalk *ms_slot_walk_new(const MsSchedule *schedule, int stage, gboolean beside);
const MsTurn *ms_slot_walk_next(MsSlotWalk *walk); /* NULL at the end; valid until the next call */
/* In any other order: whether the next slot of a stage may run, and what it waits for (-1: nothing); then it. */
enum { MS_SLOT_WAITS = 4 };
gboolean ms_slot_walk_waits(MsSlotWalk *walk, int stage, int tensor[MS_SLOT_WAITS]);
const MsTurn *ms_slot_walk_take(MsSlotWalk *walk, int stage);
int ms_slot_walk_tensors(const MsSlotWalk *walk);
/* After the end: a stage that waits for ever, and its slot; -1 = all slots ran. */
int ms_slot_walk_stuck(const MsSlotWalk *walk, int *slot);
void ms_slot_walk_must_end(const MsSlotWalk *walk); /* of a schedule that was found valid: a stuck stage is a bug */
void ms_slot_walk_free(MsSlotWalk *walk);

/* Leaving out turns where the schedule repeats itself (bound/cycle.h). Between two turns of a walk over all stages: */
int ms_slot_walk_at(const MsSlotWalk *walk, int stage); /* the slot that comes next */
typedef struct { /* microbatches that every chunk, at least, has taken forward, has taken back, has yet to take back */
  int forward, back, left;
} MsTaken;
/* FALSE: a slot is half done, or a chunk does not take them in order. */
gboolean ms_slot_walk_taken(const MsSlotWalk *walk, MsTaken *taken);
/* Tensors that were made and are still waited for, in the same order whenever the walk stands so: up to `room` of them.
 * Returns how many there are. */
int ms_slot_walk_waiting(const MsSlotWalk *walk, int *tensor, int room);
/* Goes on by slots[stage] on each stage, `microbatches` more: what is waited for then are the same tensors that much
 * later (their number + microbatches). The first and the last passes of a chunk are not told if they are among these.
 * Over one stage too. */
void ms_slot_walk_skip(MsSlotWalk *walk, const int *slots, int microbatches);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSlotWalk, ms_slot_walk_free)

#endif
