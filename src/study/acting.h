/* src/study/acting.h - the laws that a run rests on.
 *
 * No list says which law acts where: each is halved and doubled, within its range, and the run predicted again at
 * fidelity `fast`. A law acts where its step, its memory or its error band moves. */
#ifndef MS_STUDY_ACTING_H
#define MS_STUDY_ACTING_H

#include "sim/simulate.h"
#include "study/jobs.h"

typedef struct {
  double step, memory; /* relative change of the step and of the fullest stage's memory */
  double band;         /* change of the error band */
} MsLawEffect;

typedef struct {
  MsJob job;       /* first, as ms_jobs_run wants it */
  const char *key; /* borrowed */
  const char *unit;
  double value;
  gboolean given; /* by the scenario, not by software/laws.json */
  MsLawEffect halved, doubled;
  char *source, *fitted_on; /* of the value in software/laws.json */
} MsActingLaw;

typedef struct {
  int n;
  MsActingLaw *law; /* those that move the step most first */
} MsActingLaws;

/* NULL and *error when software/laws.json is wrong, the scenario cannot be predicted, or it was stopped. */
MsActingLaws *ms_acting_laws(const MsScenario *scenario, GError **error);
void ms_acting_laws_free(MsActingLaws *acting);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsActingLaws, ms_acting_laws_free)

#endif
