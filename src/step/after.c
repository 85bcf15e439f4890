/* src/step/after.c - rows behind the last slots, stage by stage and crossing by crossing. */
#include "step/after.h"

static const MsGroupKind crossings[] = {MS_GROUP_EMBEDDING, MS_GROUP_WORLD}; /* in this order on every stage */

static gboolean crosses(const MsOp *op) { return op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING; }

MsAfterWalk ms_after_walk(const MsProgram *program) {
  return (MsAfterWalk){.program = program, .at = g_new0(int, program->layout->pp)};
}

/* Whether the next row of the stage is one that the walk looks for now. */
static gboolean is_next(const MsAfterWalk *w) {
  const MsOpList *list = w->program->step[w->stage].after.list;
  if (w->at[w->stage] == list->n) return FALSE;
  const MsOp *op = &list->op[w->at[w->stage]];
  return w->event == MS_AFTER_ROW ? !crosses(op) : op->group == crossings[w->crossing];
}

/* All stages have had their turn: their own rows, then who meets, then who crosses, then their own rows again. */
static gboolean go_on(MsAfterWalk *w) {
  w->first = TRUE;
  w->crossing += w->event == MS_AFTER_CROSSES;
  w->event = w->event == MS_AFTER_CROSSES ? MS_AFTER_ROW : w->event + 1;
  return w->event == MS_AFTER_ROW || w->crossing < (int)G_N_ELEMENTS(crossings);
}

gboolean ms_after_next(MsAfterWalk *w) {
  w->first = FALSE;
  w->stage += w->event != MS_AFTER_ROW; /* with its own rows a stage goes on as far as they reach */
  for (;; w->stage++) {
    if (w->stage == w->program->layout->pp) {
      if (!go_on(w)) break;
      w->stage = 0;
    }
    if (!is_next(w)) continue;
    w->row = w->at[w->stage];
    w->at[w->stage] += w->event != MS_AFTER_MEETS;
    w->world = w->event != MS_AFTER_ROW && crossings[w->crossing] == MS_GROUP_WORLD;
    return TRUE;
  }
  g_free(w->at);
  return FALSE;
}
