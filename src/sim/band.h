/* src/sim/band.h - how far off a prediction may be: the half width of its 90 % band.
 *
 * Two things are uncertain. Every curve misses by its residual, each curve on its own: the 90 % residuals weighted by
 * the curve's share of the step add up as squares; a curve that was not fitted counts with the law default_band, one
 * whose shape another machine lent (provenance.lent_by) counts with lent_band times its own. And everything may be off
 * together: site, release, what the model of the step leaves out. That common term is what the published runs show
 * beyond their curves, of the software stack where it is named and known, else of the GPU, else of all runs (`band` in
 * software/stacks.json and hardware/NAME.json). */
#ifndef MS_SIM_BAND_H
#define MS_SIM_BAND_H

#include "sim/simulate.h"

/* From the origins and the time parts of the stage that computes longest. */
double ms_band_of_curves(const MsScenario *scenario, const MsResult *result, const MsTimeParts *stage);
double ms_band_common(const MsScenario *scenario);

#endif
