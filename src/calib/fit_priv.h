/* src/calib/fit_priv.h - shared by the files of the fit only. */
#ifndef MS_CALIB_FIT_PRIV_H
#define MS_CALIB_FIT_PRIV_H

#include "calib/fit.h"

/* The lines of an `segments` curve from rows (merged, ascending in size). */
void ms_fit_segments(const MsSeries *series, const MsRow *row, guint n, MsCurve *curve);

/* --- rescale.c: few rows beside a curve that was fitted to many ------------------------------------------------ */
/* TRUE when the rows are too few to take the place of what the donor was fitted to. */
gboolean ms_fit_is_small(const MsSeries *series, const MsCurve *donor);
/* The donor at another level, in *curve, which must be zero: its times go by one factor, the median of measured over
 * predicted shrunk towards 1. With n rows that each miss the donor's curve as its own held-back rows do, and a level
 * that is as uncertain before they are seen, the posterior mean of the factor's logarithm is n / (n + 1) of theirs. The
 * residual gets the level's remaining uncertainty on top. Provenance: the donor's, and a note; data, command and date
 * are the caller's. What was done, in one sentence. (transfer full) */
char *ms_fit_rescale(const MsSeries *series, const MsDeviceRates *device, const MsCurve *donor, MsCurve *curve);

#endif
