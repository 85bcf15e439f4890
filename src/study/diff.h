/* src/study/diff.h - two profiles of a step beside each other: where they differ, the costliest first. */
#ifndef MS_STUDY_DIFF_H
#define MS_STUDY_DIFF_H

#include "study/align.h"
#include "study/compare.h"
#include "study/profile.h"

typedef struct {
  char *word;
  double a_s, b_s, ratio, stake_s; /* 0 where one has none of it; a / b, NaN; a - b */
} MsDiffRow;

typedef struct {
  char *a, *b;     /* names of the streams, NULL: it has no counterpart */
  double a_s, b_s; /* busy; NaN */
  double ratio, stake_s;
} MsDiffStream;

typedef struct {
  const MsProfile *a, *b; /* borrowed */
  int n_rows, n_streams, n_keys;
  MsDiffRow *row;       /* by |stake|, the largest first */
  MsDiffStream *stream; /* likewise; streams belong together that have most of their classes in common */
  MsComparedKey *key;   /* what differs in the configurations */
  MsAligned *aligned;   /* of a scenario and a trace, `a` the simulated step; else NULL */
} MsDiff;

/* Folds both when one is coarse. NULL and *error when they are of different models: where both have products of known
 * shape, none of which the other has. (transfer full) */
MsDiff *ms_diff_new(MsProfile *a, MsProfile *b, const MsKernelTable *table, GPtrArray *notes, GError **error);
/* What tells that a profile is not of the step of a scenario: kernels that it has too few or too many of. NULL: nothing
 * does. (transfer full) */
char *ms_diff_stranger(const MsProfile *scenario, const MsProfile *trace, const MsKernelTable *table);
void ms_diff_free(MsDiff *diff);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsDiff, ms_diff_free)

#endif
