/* src/plan/plan_priv.h - internal to plan/: axes, candidates, and the search. */
#ifndef MS_PLAN_PRIV_H
#define MS_PLAN_PRIV_H

#include "plan/plan.h"

typedef struct { int n, *value; } MsIntAxis; /* ascending, owned */

enum { MS_AXIS_TP, MS_AXIS_CP, MS_AXIS_PP, MS_AXIS_VPP, MS_AXIS_EP, MS_AXIS_ETP, MS_AXIS_MBS, MS_N_AXES };
extern const char *const ms_axis_paths[]; /* "layout.tp", ... */

typedef struct { /* the request taken apart */
  const MsRequest *request;
  MsIntAxis axis[MS_N_AXES];
  double tail;          /* weight of MTP blocks and head in layers */
  int n_combos;         /* every combination of the other open keys (options, precision, schedule, ...) */
  MsScenario **combo;   /* owned copies that borrow model and hardware; axis values still to be set */
} MsSpace;

/* NULL and *error for an "auto" that has no candidates of its own. */
MsSpace *ms_space_new(const MsRequest *request, GError **error);
void ms_space_free(MsSpace *space);
double ms_space_size(const MsSpace *space);

typedef struct {
  gint32 value[MS_N_AXES];
  gint32 combo;
  MsTime bound;
} MsCandidate;

/* Writes the candidate into `scenario` (a copy of its combo): axis values, and a balanced pipeline layout where layers do not divide evenly and
 * the request gives none. */
void ms_candidate_apply(const MsSpace *space, const MsCandidate *candidate, MsScenario *scenario);
int ms_candidate_compare(const void *a, const void *b); /* by bound, then values */

/* Layers of each of `stages` virtual stages, balanced: the embedding weighs `embedding` layers, MTP blocks and the head weigh `mtp` and `head` at the end.
 * FALSE when some stage other than the ends would be empty. counts[stages]. */
gboolean ms_partition(int layers, int stages, double embedding, double tail, int *counts);
/* The layout string of such a partition, with MTP blocks before the loss. (transfer full) */
char *ms_partition_text(const int *counts, int stages, int mtp);
/* Weights of the ends in layers, from FLOP. */
double ms_head_weight(const MsModel *model, int seq_length);

#endif
