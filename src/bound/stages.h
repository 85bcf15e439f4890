/* bound/stages.h - the stages of a pipeline while slots run as tables of lags (bound/lags.h): when their compute
 * streams, hosts and messages are free, and what they hand to each other. The relaxed bound and `fast` go through a
 * schedule with it; what a slot does to its stage is theirs. */
#ifndef MS_BOUND_STAGES_H
#define MS_BOUND_STAGES_H

#include "bound/lags.h"

typedef struct {
  const MsProgram *p;
  MsSlotWalk *walk;
  MsTime *made;                 /* [tensors of the walk] when it is there */
  MsTime *compute, *host, *tip; /* [stages] free from then on; end of the chain of the last slot */
  MsTime *stream_f, *stream_b;  /* [stages] streams of activations, gradients */
  MsTime *send;                 /* [2 * stages] that the next forward, the next backward waits for */
  gboolean *host_decides; /* [stages] some moment of the stage was that of its host, since somebody set it to FALSE */
  MsTime *message;        /* as MsProgram.message; of one alone: only the first */
  MsTime launch[MS_MAX_POOLS], sync[MS_MAX_POOLS], *all; /* `all` owns the tables */
} MsStages;
/* Messages take no time until ms_stages_send_messages. */
MsStages ms_stages_new(const MsProgram *program, const MsSchedule *schedule);
void ms_stages_send_messages(MsStages *stages);
void ms_stages_clear(MsStages *stages);
/* The message that the pass sends, or with `comes` the one that brings its input. */
MsTime ms_stages_message(const MsStages *stages, const MsSlotPass *pass, gboolean comes);
/* From when the rows of a pass may run; MS_NEVER: they wait for nothing. `sent`: the send that it waits for. */
MsTime ms_stages_entry(MsStages *stages, const MsSlotPass *pass, MsTime sent);
/* The sends of the turn before that the forward and the backward of this one wait for. */
void ms_stages_take_sends(MsStages *stages, const MsTurn *turn, MsTime sent[2]);
/* What a table does to the stage of a turn, `before` and `after` it; `beside` NULL: the turn is no pair. */
void ms_stages_run(MsStages *stages, int stage, const MsLags *lags, MsTime entry, const MsTime *beside,
                   MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]);
/* `beside`: the pass ran beside a backward. */
void ms_stages_hand_on(MsStages *stages, const MsSlotPass *pass, gboolean beside, MsTime tip);
/* What an empty virtual stage hands on. `before`: the end of the chain of the slot before. */
MsTime ms_stages_passed_on(const MsStages *stages, const MsSlotPass *pass, MsTime before);

typedef struct { /* rows of one list on one stage, with times instead of lags */
  MsTime *end, stream[MS_N_STREAMS], host;
} MsRowTimes;
MsRowTimes ms_row_times(int rows); /* all at 0; `end` is owned */
void ms_row_run(MsRowTimes *rows, const MsCosted *list, int i, MsTime start);
/* Latest of what row i waits for among rows from `from` on; `none` when it waits for no row. */
MsTime ms_row_waits(const MsRowTimes *rows, const MsOp *op, int from, MsTime none);
/* Rows in front of the first slot of a stage. The row times, which have them, go on with the parameter gathers. */
MsRowTimes ms_stages_before(MsStages *stages, int stage);

#endif
