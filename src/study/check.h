/* src/study/check.h - today's predictions against the stored ones.
 *
 * A quantity drifts when |today - stored| > tolerance x max(|stored|, floor); the floor of a part is a thousandth of
 * its whole (step time, device bytes), so that a part that hardly exists cannot fail a check. A scenario that no longer
 * runs or fits, or does now, drifts too. Which figures of machines, models and stacks differ from those stored is said
 * beside it; by themselves they fail nothing. Order is that of the file, whatever the threads do. */
#ifndef MS_STUDY_CHECK_H
#define MS_STUDY_CHECK_H

#include "study/baseline.h"
#include "study/jobs.h"

typedef struct {
  int quantity;
  double stored, today, change, tolerance; /* change: relative, as compared */
} MsDrift;

typedef struct {
  const char *name;  /* of the baseline */
  gboolean compared; /* FALSE: the check was stopped before */
  char *state;       /* what changed besides quantities ("does not run any more: ..."), NULL: nothing */
  char *part; /* "time.host_s": the part that moved most of the step time's change, NULL: it did not drift or nothing
                 stands out */
  int n;
  MsDrift *drift; /* totals first, then parts by falling difference of their whole */
  double worst;   /* largest |change| of the step time or any total, within tolerance or not */
} MsChecked;

typedef struct { /* a figure that is not what it was; NULL: it is not there */
  char *of, *key, *stored, *today;
} MsInputChange;

typedef struct {
  MsBaseline *baseline; /* owned; with the stored predictions */
  int drifted;          /* scenarios */
  MsExtent extent;      /* compared, of all */
  MsChecked *checked;   /* [baseline->n] */
  int n_inputs;
  MsInputChange *input;
} MsCheck;

typedef struct {
  double tolerance; /* of every quantity; NaN: those of the file */
  int threads;      /* 0 = all cores */
  gboolean progress;
} MsCheckOptions;

/* Takes `baseline`. NULL and *error only when threads cannot start. (transfer full) */
MsCheck *ms_check(MsBaseline *baseline, const MsCheckOptions *options, GError **error);
void ms_check_free(MsCheck *check);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCheck, ms_check_free)
/* Puts today's predictions and inputs into the baseline (and the tolerance of the options as default, when given).
 * FALSE and *error also when it was stopped: the baseline is then as it was. */
gboolean ms_check_update(MsBaseline *baseline, const MsCheckOptions *options, GError **error);

#endif
