/* src/sim/band.h - how far off a prediction may be: the half widths of its 90, 80 and 50 % bands.
 *
 * Two things are uncertain. Every curve misses by its residual, each curve on its own: the 90 % residuals weighted by
 * the curve's share of the step add up as squares; a curve that was not fitted counts with the law default_band, one
 * whose shape another machine lent (provenance.lent_by) counts with lent_band times its own. And everything may be off
 * together. What that is follows from how far off runs were whose source took no part in any fit (study/band_fit.h),
 * by laws: a site and a release that nobody has seen (site_band), the time in which the step waits for the host
 * (host_band) and for other stages (bubble_band), a replica of one microbatch (last_gradients_band), a machine without
 * published runs (unseen_machine_band; n runs leave 1 / sqrt(1 + n) of it). A figure of the machine that is assumed
 * (describe/sources.h) adds how far off it may be, times its share of the step in which no curve was measured on the
 * machine itself, and beyond the share that runs followed by which it was anchored. All add up as squares. The 80 and
 * 50 % bands are shares of the 90 % band (band_80_share, band_50_share) but for what an unseen machine adds: that is
 * one error of all its runs, its clock, of which a normal is believed, so its shares are those of a normal. Rates
 * (tokens/s, MFU) have the same relative bands.
 */
#ifndef MS_SIM_BAND_H
#define MS_SIM_BAND_H

#include "sim/simulate.h"

/* From the origins and the time parts of the stage that computes longest. */
double ms_band_of_curves(const MsScenario *scenario, const MsResult *result, const MsTimeParts *stage);
/* What errors have in common beside curves and assumed figures. */
double ms_band_common(const MsLaws *laws, const MsBandGround *ground);
double ms_band_unseen(const MsHardware *machine); /* share of unseen_machine_band that is left */
/* Half width of the 90 % band. */
double ms_band_of(const MsLaws *laws, const MsBandGround *ground);
enum { MS_N_BAND_LEVELS = 3 };
/* Half widths of the 90, 80 and 50 % bands. */
void ms_band_levels_of(const MsLaws *laws, const MsBandGround *ground, double width[MS_N_BAND_LEVELS]);
/* Fills ground (but for assumed and curves, which it takes from there) and the bands of a result whose times stand. */
void ms_band_fill(const MsScenario *scenario, MsResult *result);

/* Rows of that much time follow the machine's figure `key`: kept in result->assumed where it is assumed. */
void ms_band_add_assumed(const MsScenario *scenario, MsResult *result, const char *key, gboolean communication,
                         double time_s);
/* Makes shares of these times, those that matter most in front; returns what they add to the band, relative, 90 %. */
double ms_band_of_assumed(const MsScenario *scenario, MsResult *result, const MsTimeParts *stage);
/* What must stand beside every figure of this machine at this fidelity: assumed figures that the result rests on (NULL:
 * all that the machine has), a machine whose published runs nobody has compared, software of an unknown name, an
 * estimate. One sentence, NULL where there is nothing to say. (transfer full) */
char *ms_caveat(const MsScenario *scenario, const MsResult *result, MsFidelity fidelity);

#endif
