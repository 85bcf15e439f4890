/* src/calib/fit_priv.h - shared by the files of the fit only. */
#ifndef MS_CALIB_FIT_PRIV_H
#define MS_CALIB_FIT_PRIV_H

#include "calib/fit.h"

/* The lines of an `segments` curve from rows (merged, ascending in size). */
void ms_fit_segments(const MsSeries *series, const MsRow *row, guint n, MsCurve *curve);

double ms_round_digits(double value, int digits);

/* The profile's text with these curves in place of those with the same key (others stay as they are, to the byte), and
 * flat members replaced: `members` are triples key, JSON text, JSON text of its source, then NULL. NULL and *error when
 * the text is no profile. */
char *ms_profile_edit(const char *text, const char *filename, const GPtrArray *curves, const char *const *members,
                      GError **error);

#endif
