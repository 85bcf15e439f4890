/* src/sim/steady.h - what a slot does to its stage when the stage goes on like that: rows as a table of lags
 * (bound/lags.h), lengthened to what the event engine says of its pieces run again and again. */
#ifndef MS_SIM_STEADY_H
#define MS_SIM_STEADY_H

#include "bound/lags.h"
#include "sim/result.h"
#include "sim/rivals.h"

typedef struct {         /* a piece, or a pair */
  int forward, backward; /* -1: none */
  MsSlotKind rows;       /* of a lone one */
  gboolean beside;       /* of the backward of a turn that has both */
} MsSlotPart;

typedef struct {
  MsBeside beside;
  double length; /* of the compute stream */
  MsLinkUse use; /* for shares of it */
} MsSlowed;

typedef struct {
  int n;
  MsSlotPart *part;
  double *length, sum; /* picoseconds for which each part keeps the compute stream, alone; all of them */
  MsLags lags;
  MsTime longer[2]; /* than its rows if nothing were shared: from its input; from when the compute stream is free */
  double sent[2];   /* how many times as long as alone a forward's, a backward's message takes beside it */
  MsTime time;      /* in steady state, behind itself */
  MsTimeParts parts;
  GArray *slowed; /* MsSlowed: known ones */
} MsSteadySlot;

/* Of the pieces alone, without what FSDP does around them. */
typedef struct MsSteady MsSteady;
MsSteady *ms_steady_new(const MsProgram *program, MsPieceLags *lags, const MsSchedule *schedule,
                        const MsOp *const *tag_op);
void ms_steady_free(MsSteady *steady);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSteady, ms_steady_free)
/* The pieces of a turn; those of equal turns are the same slot. */
MsSteadySlot *ms_steady_slot(MsSteady *steady, MsChunks of);
guint64 ms_steady_events(const MsSteady *steady);
/* One of its parts, lengthened by its share. */
MsLags ms_steady_part(MsSteady *steady, const MsSteadySlot *slot, int part);
/* The slot, or one of its parts (`part` >= 0), while those run. */
MsSlowed ms_steady_beside(MsSteady *steady, MsSteadySlot *slot, int part, MsBeside beside);

/* Seconds of each kind of slot of a stage in the middle, in steady state. */
void ms_slot_times(const MsProgram *program, MsPieceLags *lags, const MsSchedule *schedule, const MsOp *const *tag_op,
                   double *slot_s);

#endif
