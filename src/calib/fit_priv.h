/* src/calib/fit_priv.h - shared by the files of the fit only. */
#ifndef MS_CALIB_FIT_PRIV_H
#define MS_CALIB_FIT_PRIV_H

#include "calib/fit.h"

/* The lines of an `segments` curve from rows (merged, ascending in size). */
void ms_fit_segments(const MsSeries *series, const MsRow *row, guint n, MsCurve *curve);

#endif
