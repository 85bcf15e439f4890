/* src/study/advice.h - internal to study/: what to do with the choices of a plan. */
#ifndef MS_STUDY_ADVICE_H
#define MS_STUDY_ADVICE_H

#include "study/picks.h"

/* Sets n_advice and advice of choices that are complete but for them. */
void ms_picks_advise(MsPicks *picks);

#endif
