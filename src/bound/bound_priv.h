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
  MsTime out, behind;     /* how long those run that go on and take SMs; gaps of the compute stream from then on */
  MsTime in, before;      /* the same of those that begin with the input; gaps up to the row that waits for them */
  MsTime inside;          /* what such rows cost between the lists of which this one is made */
  int sms, sm_count;      /* fewest that one of them takes; of so many */
  gboolean leads, awaits; /* rows of the stream begin behind a compute row; a compute row waits for some */
} MsCross;
/* What compute loses to rows that run on from one list into the next, at least. */
MsTime ms_cross_cost(const MsCross *then, const MsCross *first);

/* --- lags.c --- */
/* Of these lags what the compute stream itself needs: rows, gaps in which nothing can be computed, and what is lost to
 * rows that take SMs. `own`: the rows alone. What else takes SMs while the stream computes comes on top, but for the
 * time that it may spend in the difference. shared[k]: all lags where k + 1 collectives of the step's own (rivals) are
 * under way all the time, which take their share of the network and of the SMs. `network`: what rows between the first
 * compute row and the last have to send over it. */
enum { MS_RIVALS = 2 }; /* reductions or gathers of dense and of expert parameters */
typedef struct {
  MsLags lags, shared[MS_RIVALS];
  MsTime own, network;
  MsCross cross;
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
/* Experts' messages of a stage take SMs, and all rows of its slots together never so many that the engine would leave
 * compute its tenth: what they cost adds up. */
gboolean ms_slots_cross(const MsProgram *program, int stage);
/* NULL when there are none. `slots` of the stage; `at`: when its compute stream is free for the first. */
MsToll *ms_toll_new(const MsProgram *program, int stage, int slots, MsTime at);
void ms_toll_free(MsToll *toll);
void ms_toll_last(MsToll *toll, int chunk); /* the slot that comes next is the last backward of a chunk */
typedef struct {
  MsTime forced, own, network;
  MsLags shared[MS_RIVALS];
  MsCross cross;
} MsNeed; /* what a slot takes of the stream: MsForced */
MsNeed ms_need_of(const MsForced *forced);
/* A slot: `before` and `after` it as in ms_lags_run; raises what is there `after` it by the toll. */
void ms_toll_slot(MsToll *toll, const MsNeed *need, const MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]);
/* All that slots read and change, but for the marks behind the last of them; until its queues are empty nothing is the
 * same again. */
void ms_toll_tell(MsToll *toll, MsCycle *cycle);
/* SMs that compute loses to collectives of the step's own which go over the network, at least: to one of them, and to
 * one of both kinds. FALSE: there are none. */
gboolean ms_toll_rivals(const MsProgram *program, int sms[MS_RIVALS]);
MsTime ms_toll_gathered(MsToll *toll,
                        int chunk); /* before the first forward of a chunk: the stream is not free for it before */
MsTime ms_toll_joined(const MsToll *toll); /* slots and reductions are not over before */

#endif
