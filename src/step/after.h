/* src/step/after.h - what follows the last slots, over all stages: rows of each stage in the order of its list, and
 * those over a group that spans stages when all its stages have come so far. */
#ifndef MS_STEP_AFTER_H
#define MS_STEP_AFTER_H

#include "step/program.h"

typedef enum {
  MS_AFTER_ROW,    /* of one stage */
  MS_AFTER_MEETS,  /* the stage has come to a row over a group that spans stages, which is yet to run */
  MS_AFTER_CROSSES /* that row; all that meet in it have come */
} MsAfterEvent;
typedef struct {
  const MsProgram *program;
  int *at;      /* [stages] row that comes next */
  int crossing; /* number of the crossing that comes next */
  MsAfterEvent event;
  int stage, row; /* row of the stage's `after` list */
  gboolean world; /* of a crossing: over all ranks, the gradient norm */
  gboolean first; /* of the stages that meet in it */
} MsAfterWalk;
MsAfterWalk ms_after_walk(const MsProgram *program);
gboolean ms_after_next(MsAfterWalk *walk); /* FALSE at the end; frees what the walk holds */

#endif
