/* src/step/fetch.h - what is brought to a stage one piece ahead: parameters that FSDP gathers, tensors that were
 * offloaded. */
#ifndef MS_STEP_FETCH_H
#define MS_STEP_FETCH_H

#include "step/program.h"

typedef struct {
  int piece;                /* -1: none */
  gboolean backward, first; /* the pass; of a forward: the first of the step */
} MsNeed;
#define MS_NO_NEED ((MsNeed){.piece = -1})

/* Some piece has something brought to it. */
gboolean ms_program_fetches(const MsProgram *program);
gboolean ms_needs_params(const MsProgram *program, int piece, MsSlotKind kind);
gboolean ms_needs_fetch(const MsProgram *program, int piece, MsSlotKind kind); /* those, or what was offloaded */
/* Lists that gather what a pass needs, in their order; returns how many. The list that casts it; NULL: there is none.
 * `stay`: the parameters are whole (ms_params_stay). */
enum { MS_GATHERS = 3 };
int ms_params_gathered(const MsProgram *program, MsNeed need, gboolean stay, const MsCosted *list[MS_GATHERS]);
const MsCosted *ms_params_cast(const MsProgram *program, MsNeed need, gboolean stay);
/* Passes of that slot find the parameters of their chunk whole: MS_GATHERS_DROPPED, and the slot of that chunk before
 * it was no backward. */
gboolean ms_params_stay(const MsProgram *program, const MsSchedule *schedule, int stage, int at);
/* torch fully_shard: nothing is fetched for a pass before it begins, and its end waits for reductions. */
gboolean ms_passes_wait(const MsProgram *program);
/* What the forward, or the backward, of a walk needs next; `then` when it has ended. */
MsNeed ms_need_ahead(const MsProgram *program, const MsPieceWalk *walk, gboolean backward, MsNeed then);
/* The first piece of a turn. */
MsNeed ms_first_need(const MsProgram *program, MsChunks of);
/* Of the slots of a stage from `at` on, that of the first which is not a weight gradient. */
MsNeed ms_need_of_slots(const MsProgram *program, const MsSchedule *schedule, int stage, int at);

#endif
