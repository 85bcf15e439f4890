/* src/sim/turns.h - turns of the schedule alone on a device, run again and again in the event engine: what one takes.
 *
 * Runs of one process ask for the same turns again: with another batch, other data parallelism, other stages around
 * them. What was found is kept with everything that it follows from, row by row, and found again only where all of that
 * is the same to the bit; so the answer does not depend on what ran before. Any number of threads. */
#ifndef MS_SIM_TURNS_H
#define MS_SIM_TURNS_H

#include "bound/lags.h"
#include "sim/result.h"
#include "step/program.h"

enum { MS_TURNS_FEW = 2, MS_TURNS_MORE = 4 }; /* repetitions; between them the state is steady */

typedef struct {
  MsTime time;       /* of one repetition */
  MsTimeParts parts; /* of it; not of one in the middle of a pipeline, */
  MsTime sent[2];    /* but how long its messages take there: of the forward, of the backward; 0: it sends none */
  guint64 events;
} MsTurnTime;

/* `stream`: in the middle of a pipeline, where inputs are early. `lags` of the program's pieces know their numbers. */
MsTurnTime ms_turn_time(const MsProgram *program, MsChunks of, const MsOp *const *tag_op, gboolean stream,
                        MsPieceLags *lags);

#endif
