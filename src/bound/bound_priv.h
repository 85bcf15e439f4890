/* src/bound/bound_priv.h - what bounds need besides lags: what rows force on the compute stream, and what the step's
 * own collectives take from it. Private to bound/. */
#ifndef MS_BOUND_PRIV_H
#define MS_BOUND_PRIV_H

#include "bound/cycle.h"

/* --- busy.c: rows that run on from one list into the next --- */
/* Of the stream of experts' messages: rows that begin behind a compute row and that no row of the list waits for, and
 * rows that begin with its input. The stream runs them one after the other, those of the next list behind those of this
 * one, so that all lie between a compute row of this list and one of the next. */
typedef struct {
  MsTime sends, computes; /* of rows that take SMs; of rows that compute, of which each takes as long from the stream */
} MsRunOn;
typedef struct {
  MsRunOn out, in;        /* of those that go on, and of those that begin with the input: how long they run */
  MsTime behind, before;  /* gaps of the compute stream from the first on; up to the row that waits for the last */
  MsTime inside;          /* what such rows cost between the lists of which this one is made */
  int sms, sm_count;      /* fewest that one of them takes; of so many */
  gboolean leads, awaits; /* rows of the stream begin behind a compute row; a compute row waits for some */
} MsCross;
/* What compute loses to rows that run on from one list into the next, at least. */
MsTime ms_cross_cost(const MsCross *then, const MsCross *first);

/* --- lags.c --- */
enum { MS_N_SIDES = MS_END_BESIDE + 1 }; /* inputs, and outputs, of a list or of a pair */
/* Of these lags what the compute stream itself needs: rows, gaps in which nothing can be computed, and what is lost to
 * rows that take SMs. `own`: the rows alone. What else takes SMs while the stream computes comes on top, but for the
 * time that it may spend in the difference. shared[k]: all lags where k + 1 collectives of the step's own (rivals) are
 * under way all the time, which take their share of the network and of the SMs. `network`: what rows between the first
 * compute row and the last have to send over it. */
enum { MS_RIVALS = 2 }; /* reductions or gathers of dense and of expert parameters */
typedef struct {
  MsLags lags, shared[MS_RIVALS];
  MsTime own, network;
  /* Of inputs and outputs, MS_NEVER where there are none: until the first compute row may start that an input opens,
   * and from its start until an output is there; from an input that opens some row of the first list to the end of all,
   * and until an output is there. */
  MsTime opens[MS_N_SIDES], tip[MS_N_SIDES], reach[MS_N_SIDES], through[MS_N_SIDES][MS_N_SIDES]; /* [input][output] */
  MsCross cross;
  gboolean met, many; /* shared[] is there; it is of several lists that compute */
} MsForced;
extern const MsForced ms_nothing_forced;
MsForced ms_forced_product(const MsForced *then, const MsForced *first);
MsForced ms_forced_beside(const MsForced *forced); /* of a list that runs as the backward of a pair */
typedef struct {
  int sms[MS_RIVALS]; /* that rivals take at least: one of them, and both */
  int parts, of;      /* a row of the network takes at least `parts` / `of` longer, at most twice, for each of them */
} MsRivalsMet;
/* Before they are asked for. Until then there are none. */
void ms_piece_lags_meet(MsPieceLags *lags, const MsRivalsMet *rivals);
const MsForced *ms_piece_forced_pass(MsPieceLags *lags, MsSlotKind kind, int piece);
const MsForced *ms_piece_forced_pair(MsPieceLags *lags, int forward, int backward);

/* busy.c: raises the lags behind those of `sources` that are entries or the compute stream to those that rows need
 * which share the SMs. */
void ms_rows_busy(const MsRows *rows, int sm_count, guint sources, MsLags *lags);
/* All of it but `shared`. */
MsForced ms_rows_forced(const MsRows *rows, int sm_count);

/* --- turns.c --- */
typedef struct {
  MsTime out, in;
} MsJoint; /* what a turn gets of what it costs together with the next, and with the one before */
/* joint[n], of turns that may stand in any order, the first of which is there most often (turns.h). Returns what both
 * are together for any turn that is not one of them. */
MsTime ms_joints_share(const MsForced *const *turn, int n, MsJoint *joint);

/* --- toll.c: what parameter gathers and gradient reductions of the step take from the compute of one stage --- */
void ms_note_sms(int most[MS_N_STREAMS], const MsCosted *list); /* raises most[] to what rows of each stream take */
typedef struct MsToll MsToll;
/* Experts' messages of pieces of one machine take SMs, and all rows of its slots together never so many that the engine
 * would leave compute its tenth: what they cost adds up. */
gboolean ms_pieces_cross(const MsCostedPiece *piece, int n, int sm_count);
gboolean ms_slots_cross(const MsProgram *program, int stage); /* those of a stage */
/* NULL when there are none. `slots` of the stage; `at`: when its compute stream is free for the first. */
MsToll *ms_toll_new(const MsProgram *program, int stage, int slots, MsTime at);
void ms_toll_free(MsToll *toll);
void ms_toll_last(MsToll *toll, int chunk); /* the slot that comes next is the last backward of a chunk */
typedef struct {
  MsTime forced, own, network;
  MsTime opens[MS_N_SIDES];
  MsLags shared[MS_RIVALS];
  MsCross cross;
} MsNeed; /* what a slot takes of the stream: MsForced */
MsNeed ms_need_of(const MsForced *forced);
/* A slot: `before` and `after` it as in ms_lags_run; raises what is there `after` it by the toll. */
void ms_toll_slot(MsToll *toll, const MsNeed *need, const MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]);
/* When the kernels in front of the reductions are over that began with the last slot, 0: none began. */
MsTime ms_toll_scaled(const MsToll *toll);
/* How much longer a message over the network takes that leaves at `from` behind the last slot and, with `behind`, the
 * kernels in front of its reductions. */
MsTime ms_toll_message(const MsToll *toll, MsTime from, MsTime message, gboolean behind);
/* All that slots read and change, but for the marks behind the last of them; until its queues are empty nothing is the
 * same again. */
void ms_toll_tell(MsToll *toll, MsCycle *cycle);
/* The same from the last slot back. */
typedef struct MsTollBack MsTollBack;
MsTollBack *ms_toll_back_new(const MsProgram *program, int stage); /* NULL: nothing is reduced */
void ms_toll_back_free(MsTollBack *toll);                          /* NULL is fine */
/* The slot before those until now; `ending`: the chunk whose last backward it is, or -1. Returns how long this slot,
 * those behind it and all reductions that these issue take at least, from the moment on when the stream is free for it.
 */
MsTime ms_toll_back_slot(MsTollBack *toll, const MsNeed *need, int ending);
/* What collectives of the step's own which go over the network take from slots, at least. FALSE: there are none. */
gboolean ms_toll_rivals(const MsProgram *program, MsRivalsMet *rivals);
/* Before the first forward of a chunk: the stream is not free for it before. */
MsTime ms_toll_gathered(MsToll *toll, int chunk);
/* All that the network brings for a piece of it is not there before. */
MsTime ms_toll_brought(const MsToll *toll, int chunk, int piece);
void ms_toll_not_before(MsToll *toll, MsTime at); /* the slot that comes next is not over before */
/* Behind the last slot the chunk is reduced, from `since` on. */
void ms_toll_behind(MsToll *toll, int chunk, MsTime since);
MsTime ms_toll_sent(const MsToll *toll);   /* reductions that go over the network are not over before */
MsTime ms_toll_joined(const MsToll *toll); /* slots and reductions are not over before */

#endif
