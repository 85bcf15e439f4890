/* src/study/band_fit.h - how wide bands must be, from runs that no figure was fitted to.
 *
 * The laws of the bands (sim/band.h) are those with the least quantile loss, summed over the 90, 80 and 50 % bands:
 * with the miss y = |measured / predicted - 1| of a run and the half width w of its band of level q, q (y - w) where y
 * is beyond the band and (1 - q) (w - y) inside. The loss is least where a share q of the runs lies inside, near and
 * far: a law that widens the band of some runs pays for it on those that did not need it. Coordinate descent, golden
 * section; the same runs give the same laws. */
#ifndef MS_STUDY_BAND_FIT_H
#define MS_STUDY_BAND_FIT_H

#include "sim/band.h"

typedef struct {
  const char *group; /* what was left out with it */
  MsBandGround ground;
  double miss;
} MsBandRun;

enum { MS_N_BAND_LAWS = 7 };
extern const MsLaw ms_band_laws[MS_N_BAND_LAWS];
extern const double ms_band_levels[MS_N_BAND_LEVELS]; /* 0.9 0.8 0.5 */

/* Moves the band laws in `laws` to those that suit the runs, but for the group `without` (NULL: all). A law that no run
 * tells of stays. Where a machine was left out at a time (`machines`), unseen_machine_band alone: every run would take
 * it for a part of site_band. Else all but that one: it would rest on the few runs whose machine is nowhere else. */
void ms_band_fit(const MsBandRun *runs, guint n, const char *without, gboolean machines, MsLaws *laws);
/* Whether the miss of a run is inside its band, for each level. */
void ms_band_inside(const MsBandRun *run, const MsLaws *laws, gboolean inside[MS_N_BAND_LEVELS]);

#endif
