/* src/study/guesses.h - published runs of which the file had to guess knobs (`measured.unknown`): how far the step goes
 * with what they may have been. The bands of a prediction are of runs whose layout is known.
 *
 * A knob is tried as others set it: virtual stages of one layer each; the microbatch doubled while that fits (with full
 * recomputation where that is guessed too) and halved; no recomputation; tensor parallel experts like attention, as
 * Megatron-Core had them before 0.10, and whole ones. What does not fit is left out, and what is slower too, since
 * nobody publishes it, but for experts. What the step can gain by one knob adds to the others as squares of
 * logarithms, what it can lose likewise. All at fidelity `fast`. */
#ifndef MS_STUDY_GUESSES_H
#define MS_STUDY_GUESSES_H

#include "describe/scenario.h"

/* The most that a step with other values of the guessed knobs differs from this one, as a share of it; 0: none is
 * guessed, or none of them matters. */
double ms_guesses_width(const MsScenario *scenario);

#endif
