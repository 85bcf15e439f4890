/* src/plan/checkpoint_priv.h - internal to plan/: what was simulated, kept in a file. */
#ifndef MS_PLAN_CHECKPOINT_PRIV_H
#define MS_PLAN_CHECKPOINT_PRIV_H

#include "plan/candidate_priv.h"
#include "plan/plan.h"

/* DEAR: it was seen not to enter the list before it had ended, its step is above what is said */
typedef enum { MS_OUTCOME_RUN, MS_OUTCOME_ERROR, MS_OUTCOME_DEAR } MsOutcomeKind;
typedef struct { /* of one candidate, at `full` */
  MsCandidate candidate;
  double step_time_s;
  gint32 kind, index; /* index: of the job it belongs to */
} MsOutcome;

typedef MsPlanKnown MsCheckpoint; /* without a file: what searches of this process know of each other */
/* NULL file: nothing is kept. With `resume` what an earlier run of the same request kept is read first; it is an error
 * when there is none. */
MsCheckpoint *ms_checkpoint_new(const MsSpace *space, const char *file, const char *resume, GError **error);
const MsOutcome *ms_checkpoint_find(const MsCheckpoint *checkpoint /* may be NULL */,
                                    const MsCandidate *candidate); /* NULL: not simulated yet */
void ms_checkpoint_add(MsCheckpoint *checkpoint, const MsOutcome *outcome);
/* Writes the file when something was added (and, unless `now`, the last writing is a second ago). */
gboolean ms_checkpoint_write(MsCheckpoint *checkpoint, gboolean now, GError **error);
void ms_checkpoint_free(MsCheckpoint *checkpoint);

/* Everything that was kept or added; the rows belong to the checkpoint. */
const MsOutcome *ms_checkpoint_rows(const MsCheckpoint *checkpoint, guint *n);

#endif
