/* src/sim/band.h - how far off a prediction may be: the half width of its 90 % band.
 *
 * Two things are uncertain. Every curve misses by its residual, each curve on its own: the 90 % residuals weighted by
 * the curve's share of the step add up as squares; a curve that was not fitted counts with the law default_band, one
 * whose shape another machine lent (provenance.lent_by) counts with lent_band times its own. And everything may be off
 * together: site, release, what the model of the step leaves out. That common term is what the published runs show
 * beyond their curves, of the software stack where it is named and known, else of the GPU, else of all runs (`band` in
 * software/stacks.json and hardware/NAME.json). A figure of the machine that is assumed (describe/sources.h) adds how
 * far off it may be, times its share of the step. */
#ifndef MS_SIM_BAND_H
#define MS_SIM_BAND_H

#include "sim/simulate.h"

/* From the origins and the time parts of the stage that computes longest. */
double ms_band_of_curves(const MsScenario *scenario, const MsResult *result, const MsTimeParts *stage);
double ms_band_common(const MsScenario *scenario);

/* Rows of that much time follow the machine's figure `key`: kept in result->assumed where it is assumed. */
void ms_band_add_assumed(const MsScenario *scenario, MsResult *result, const char *key, gboolean communication,
                         double time_s);
/* Makes shares of these times, those that matter most in front; returns what they add to the band, relative, 90 %. */
double ms_band_of_assumed(const MsScenario *scenario, MsResult *result, const MsTimeParts *stage);
/* What must stand beside every figure of this machine at this fidelity: assumed figures that the result rests on (NULL:
 * all that the machine has), a machine whose published runs nobody has compared, an estimate. One sentence, NULL where
 * there is nothing to say. (transfer full) */
char *ms_caveat(const MsScenario *scenario, const MsResult *result, MsFidelity fidelity);

#endif
