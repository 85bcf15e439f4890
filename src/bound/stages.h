/* src/bound/stages.h - the stages of a pipeline while slots run as tables of lags (bound/lags.h): when their compute
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
  MsSlotPass held;                                       /* forward whose message leaves behind the next turn */
  MsTime held_tip;
} MsStages;
/* Messages take no time until ms_stages_send_messages. */
MsStages ms_stages_new(const MsProgram *program, const MsSchedule *schedule);
void ms_stages_send_messages(MsStages *stages);
void ms_stages_clear(MsStages *stages);
/* The message that the pass sends, or with `comes` the one that brings its input. */
static inline MsTime ms_stages_message(const MsStages *s, const MsSlotPass *pass, gboolean comes) {
  int other = comes ? pass->from : pass->to;
  if (!s->p->message || other < 0) return s->message[0];
  other = ms_program_stage_of(s->p, other);
  return s->message[comes ? ms_program_message_at(s->p, other, pass->stage)
                          : ms_program_message_at(s->p, pass->stage, other)];
}
static inline MsTime ms_stages_input(const MsStages *s, const MsSlotPass *pass) {
  return pass->in < 0 ? MS_NEVER : s->made[pass->in];
}
/* When the last message that a pass waits for is there, MS_NEVER: it waits for none. */
static inline MsTime ms_stages_arrival(const MsStages *s, const MsTurn *turn, const MsSlotPass *pass) {
  MsTime last = pass->comes && !turn->held ? ms_stages_input(s, pass) : MS_NEVER;
  for (int k = 0; k < 2; k++)
    if (turn->with[k] >= 0) last = MAX(last, s->made[turn->with[k]]);
  return last;
}
/* From when the rows of a pass may run; MS_NEVER: they wait for nothing. `sent`: the send that it waits for. A blocking
 * exchange ends in a device synchronisation. Weight gradients wait for their own input gradients. */
static inline MsTime ms_stages_entry(MsStages *s, const MsTurn *turn, const MsSlotPass *pass, MsTime sent) {
  MsTime input = ms_stages_input(s, pass), entry = input, last = ms_stages_arrival(s, turn, pass);
  int stage = pass->stage;
  if (pass->kind == MS_SLOT_W) return input;
  if (input == MS_NEVER) entry = s->tip[stage];
  entry = MAX(entry, last);
  if (s->p->p2p_blocks && last != MS_NEVER) {
    MsTime sync = s->sync[ms_layout_pool(s->p->layout, stage)], issued = s->host[stage] + sync;
    if (sync > 0) entry = MAX(entry, issued);
    s->host[stage] = MAX(issued, last);
  }
  return MAX(entry, sent);
}
/* The sends of the turn before that the forward and the backward of this one wait for. */
static inline void ms_stages_take_sends(MsStages *s, const MsTurn *turn, MsTime sent[2]) {
  MsTime *send = &s->send[2 * turn->stage];
  sent[0] = sent[1] = MS_NEVER;
  if (!turn->forward && turn->backward->kind == MS_SLOT_W) return;
  sent[0] = send[0], sent[1] = turn->forward && s->p->p2p_in_turn ? MS_NEVER : send[1];
  if (s->p->p2p_blocks) sent[0] = sent[1] = MAX(sent[0], sent[1]);
  send[0] = send[1] = MS_NEVER;
}
/* What a table does to the stage of a turn, `before` and `after` it; `beside` NULL: the turn is no pair. */
static inline void ms_stages_run(MsStages *s, int stage, const MsLags *lags, MsTime entry, const MsTime *beside,
                                 MsTime before[MS_N_ENDS], MsTime after[MS_N_ENDS]) {
  before[MS_END_ENTRY] = entry, before[MS_END_BESIDE] = beside ? *beside : MS_NEVER;
  before[MS_END_COMPUTE] = s->compute[stage], before[MS_END_HOST] = s->host[stage];
  ms_lags_run(lags, beside != NULL, before, after);
  MsTime host = s->host[stage];
  s->host_decides[stage] |= (after[MS_END_COMPUTE] <= host + lags->to[MS_END_COMPUTE][MS_END_HOST]) |
                            (after[MS_END_ENTRY] <= host + lags->to[MS_END_ENTRY][MS_END_HOST]) |
                            (beside && after[MS_END_BESIDE] <= host + lags->to[MS_END_BESIDE][MS_END_HOST]);
}
static inline MsTime *ms_stages_stream(const MsStages *s, const MsSlotPass *pass) {
  return pass->kind == MS_SLOT_F ? &s->stream_f[pass->stage] : &s->stream_b[pass->stage];
}
/* When the message leaves that a pass sends from `tip` on. */
static inline MsTime ms_stages_leaves(const MsStages *s, const MsSlotPass *pass, MsTime tip) {
  int stage = pass->stage;
  MsTime launch = s->launch[ms_layout_pool(s->p->layout, stage)], host = s->host[stage] + launch;
  tip = MAX(tip, *ms_stages_stream(s, pass));
  return launch > 0 ? MAX(tip, host) : tip;
}
static inline MsTime ms_stages_send(MsStages *s, const MsSlotPass *pass, gboolean beside, MsTime message, MsTime tip) {
  int stage = pass->stage;
  MsTime *stream = ms_stages_stream(s, pass), leaves = ms_stages_leaves(s, pass, tip),
         launch = s->launch[ms_layout_pool(s->p->layout, stage)], host = s->host[stage] += launch;
  s->host_decides[stage] |= launch > 0 && leaves == host;
  tip = leaves;
  *stream = tip += message;
  MsTime *awaited = &s->send[2 * stage];
  if (s->p->p2p_blocks) awaited[0] = awaited[1] = MAX(awaited[0], tip);
  else if (s->p->p2p_in_turn && !beside) awaited[pass->kind != MS_SLOT_F] = tip;
  return tip;
}
/* `beside`: the pass ran beside a backward; `longer`: what its message takes beside others. Returns how long the
 * message takes that it sends, 0: it sends none. */
static inline MsTime ms_stages_hand_on(MsStages *s, const MsSlotPass *pass, gboolean beside, MsTime tip,
                                       MsTime longer) {
  MsTime message = pass->goes ? ms_stages_message(s, pass, FALSE) + longer : 0;
  if (pass->kept >= 0) s->made[pass->kept] = tip;
  if (pass->out >= 0) s->made[pass->out] = pass->goes ? ms_stages_send(s, pass, beside, message, tip) : tip;
  return message;
}
/* The message of a forward that exchanges is kept until the backward behind it hands on; FALSE: it sends none, or goes
 * by itself. */
static inline gboolean ms_stages_hold(MsStages *s, const MsTurn *turn, MsTime tip) {
  if (!turn->holds || !turn->forward->goes) return FALSE;
  s->held = *turn->forward, s->held_tip = tip;
  return TRUE;
}
/* What was kept, NULL: nothing; it leaves from `tip` on. */
static inline const MsSlotPass *ms_stages_release(MsStages *s, const MsTurn *turn, MsTime *tip) {
  if (!turn->held || !s->held.goes || s->held.stage != turn->stage) return NULL;
  *tip = MAX(*tip, s->held_tip);
  return &s->held;
}
/* Nobody waits for the gradient that a pair has sent: what follows is no send in the same direction. */
static inline void ms_stages_forget(MsStages *s, const MsTurn *turn) {
  if (s->p->p2p_in_turn && turn->paired) s->send[2 * turn->stage + 1] = MS_NEVER;
}
/* What an empty virtual stage hands on, its input; nobody waits for weight gradients. `before`: the end of the chain of
 * the slot before. */
static inline MsTime ms_stages_passed_on(const MsStages *s, const MsSlotPass *pass, MsTime before) {
  MsTime input = pass->kind == MS_SLOT_W ? MS_NEVER : ms_stages_input(s, pass);
  return input != MS_NEVER ? input : before;
}

typedef struct { /* rows of one list on one stage, with times instead of lags */
  MsTime *end, stream[MS_N_STREAMS], host;
} MsRowTimes;
MsRowTimes ms_row_times(int rows); /* all at 0; `end` is owned */
/* Row i starts at `start`, or when its stream and its host are free. */
void ms_row_run(MsRowTimes *rows, const MsCosted *list, int i, MsTime start);
/* Latest of what row i waits for among rows from `from` on; `none` when it waits for no row. */
MsTime ms_row_waits(const MsRowTimes *rows, const MsOp *op, int from, MsTime none);
/* Rows in front of the first slot of a stage. The row times, which have them, go on with the parameter gathers. */
MsRowTimes ms_stages_before(MsStages *stages, int stage);

#endif
