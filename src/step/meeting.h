/* src/step/meeting.h - rows of a step that meet on the links of a fabric, and its graphs run so.
 *
 * Rows that go over the network beside each other share a NIC, or the links of a fabric, by kind (fabric/meeting.h);
 * told here once, for the event engine and for what `fast` says of rows beside each other. */
#ifndef MS_STEP_MEETING_H
#define MS_STEP_MEETING_H

#include "step/program.h"

/* That rows of the program meet on a fabric: then nothing is proven of how much the network moves in all. */
static inline gboolean ms_program_meets(const MsScenario *scenario) {
  return scenario->hardware->fabric.kind != MS_FABRIC_NONE && scenario->pools.n == 0;
}

/* MsTask.kind of a row; 0: it does not go over the network. */
enum { MS_ROW_FORMS = 3 };
static inline guint8 ms_row_kind(const MsOp *op, int use) {
  if (use != MS_USE_LINK1 || op->group == MS_GROUP_NONE) return 0;
  int form = op->kind == MS_OP_ALL_TO_ALL || ms_op_moves_tokens(op) ? 0 : op->kind == MS_OP_P2P ? 1 : 2;
  return (guint8)(1 + MS_ROW_FORMS * op->group + form);
}

/* Parts of a NIC that a row of the network has: beside others it gets its parts of those of all. */
int ms_row_parts(const MsProgram *program, const MsOp *op);

/* Finds how the rows of the program meet (MsProgram.meets), before graphs of it are run or `fast` asks. FALSE and
 * *error for more flows than can be held. */
gboolean ms_program_meet(MsProgram *program, GError **error);
void ms_meets_free(MsMeets *meets);
/* MS_SHARING_NONE: it shares in equal parts, as all do without `meets`. */
static inline int ms_meets_class(const MsMeets *meets, guint8 kind) {
  return meets ? meets->sharing.of[kind] : MS_SHARING_NONE;
}
/* Of a row of class `own` beside rows of
 * classes of which running[c] run, its own among them: speed over that alone. */
double ms_meets_rate(const MsMeets *meets, int own, const guint8 running[MS_SHARING_CLASSES]);

/* When the tasks of a graph of the program run: the longest path where nothing is shared, else the event engine.
 * `round` (or NULL): all that is asked for, NULL where it was found. */
MsTrajectory *ms_program_run(const MsProgram *program, const MsGraph *graph, MsRound *round);

#endif
