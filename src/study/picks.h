/* src/study/picks.h - a few layouts of a plan that differ in kind, where its ranking is full of near-copies.
 *
 *   fastest      the winner of the step time
 *   cheapest     least GPU time for a token: the fastest where the number of GPUs is given, else searched for
 *   memory       of the ranking and of layouts near the fastest that lose at most MS_PICK_LOSS and save at least
 *                MS_PICK_SAVES of the memory, the one that saves most where a share of the step is worth
 *                MS_PICK_WORTH of the memory; where none does, the fastest of those near it that save as much
 *   simplest     the fastest without virtual stages, other schedules, CUDA graphs, overlap of experts' messages,
 *                offloading and dispatchers of their own, as far as the request leaves these open; none where it leaves
 *                none of them open
 *   robust       the smallest expected step under disturbances, where they were asked about
 *
 * Each is found by a search of its own (`fast` in place of `full`; of memory one for all limits), then predicted in
 * full, so that the same request gives the same picks on any number of threads. Searches that find the same layout
 * share one pick. */
#ifndef MS_STUDY_PICKS_H
#define MS_STUDY_PICKS_H

#include "study/compare.h"
#include "study/budget.h"
#include "study/reasons.h"
#include "study/robust.h"

#define MS_PICK_LOSS  0.05
#define MS_PICK_SAVES 0.1
#define MS_PICK_WORTH 2

typedef enum {
  MS_PICK_FASTEST,
  MS_PICK_CHEAPEST,
  MS_PICK_MEMORY,
  MS_PICK_SIMPLEST,
  MS_PICK_ROBUST,
  MS_N_PICKS
} MsPickKind;
extern const char *const ms_pick_words[]; /* fastest cheapest memory simplest robust */

typedef struct {
  guint kinds;              /* bits of MsPickKind */
  const MsPlanEntry *entry; /* borrowed from the plan, or of `found` */
  MsPlanEntry *found;       /* owned; NULL: of the plan itself */
  double slower;            /* step over that of the first pick - 1 */
  double gpu_time;          /* GPU-seconds of a step over those of the first pick - 1 */
  double more_free_B;       /* of a GPU, than with the first pick */
  gboolean tied;            /* with the first pick: `slower` is below the noise */
  double figure;            /* of the request's objective, whatever it was found by */
  MsBudget budget;          /* of the training on it */
  MsComparison *change;     /* from the first pick (a) to this one (b); NULL of the first */
} MsPick;

typedef struct {
  int n;
  MsPick *pick; /* the winner of the plan first */
  double noise; /* what two layouts of one task may differ by and be equal: the band of the curves of the first */
  gboolean all_tied;
  int copies; /* of the plan's ranking: differ from the first only in recomputation, graphs, offloading, dispatcher */
  double copies_within; /* slower than the first, at most */
  int n_advice;
  char **advice; /* [n_advice] what to do, a sentence each with what was predicted; choices are numbered from 1 */
} MsPicks;

/* plan->n_best > 0; plan and robust (NULL: none) must outlive the result. `reasons` (NULL: none) may name a layout to
 * be told about. NULL and *error as of ms_plan, and on Ctrl-C.
 * (transfer full) */
MsPicks *ms_picks_new(const MsRequest *request, const MsPlan *plan, const MsReasons *reasons, const MsRobust *robust,
                      const MsPlanOptions *options, GError **error);
void ms_picks_free(MsPicks *picks);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPicks, ms_picks_free)

#endif
