/* src/study/whatif.h - runs a what-if study and takes the differences apart.
 *
 * Every point is predicted like any scenario. A point whose layout breaks a rule, that needs what is unknown, or that
 * does not fit is a row that says why; only a value that is wrong by itself is an error. The parts of a point and those
 * of the base are in the unit of the study (MsWhatifPer), so that the differences of the parts add up to the difference
 * of the whole. Same file, same figures, whatever the threads do. */
#ifndef MS_STUDY_WHATIF_H
#define MS_STUDY_WHATIF_H

#include "describe/whatif.h"
#include "study/jobs.h"
#include "study/parts.h"

typedef struct {
  char *label;                                    /* "base", "50 GB/s, 8" */
  gboolean done;                                  /* FALSE: the study was stopped before; nothing below is known */
  MsScenario *scenario;                           /* NULL when its values do not go together */
  MsResult *result;                               /* NULL when it cannot run: a rule, something unknown, no plan */
  char *why;                                      /* NULL: it runs and fits */
  double value_s;                                 /* step time, or GPU seconds per token; NaN without a result */
  double part_s[MS_N_PARTS], memory_B[MS_N_MEMS]; /* add up to value_s and to the device bytes of the fullest stage */
} MsWhatifRow;

typedef struct {
  MsWhatif *whatif; /* owned */
  MsExtent extent;  /* points done, of all */
  MsWhatifRow base;
  int n;
  MsWhatifRow *row; /* by point */
} MsWhatifRun;

typedef struct {
  int threads; /* 0 = all cores */
  gboolean progress;
} MsWhatifOptions;

/* Takes `whatif`. NULL and *error when the base cannot run, a value is wrong, or it was stopped while
 * the base was still planned (MS_ERROR_NOTHING). (transfer full) */
MsWhatifRun *ms_whatif_run(MsWhatif *whatif, const MsWhatifOptions *options, GError **error);
void ms_whatif_run_free(MsWhatifRun *run);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsWhatifRun, ms_whatif_run_free)

#endif
