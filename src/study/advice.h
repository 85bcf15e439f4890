/* src/study/advice.h - what to do with the choices of a plan, and with clusters to choose from. */
#ifndef MS_STUDY_ADVICE_H
#define MS_STUDY_ADVICE_H

#include "study/picks.h"
#include "study/sweep.h"

/* Sets n_advice and advice of choices of `plan` that are complete but for them. `reasons` (NULL: none) may hold a named
 * layout beside the winner. */
void ms_picks_advise(MsPicks *picks, const MsPlan *plan, const MsReasons *reasons);
/* The same of a sweep: with a price the cheapest cluster of those that keep the deadline, else the one that trains
 * soonest, then what differs from it in kind. */
void ms_sweep_advise(MsSweep *sweep);
/* Seconds by which the nearest layout of a cell without any misses the deadline; INFINITY: that is not what it lacks.
 */
double ms_sweep_late_s(const MsSweepCell *cell);

#endif
