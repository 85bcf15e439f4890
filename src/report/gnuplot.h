/* src/report/gnuplot.h - private to report: pictures of rows through gnuplot. */
#ifndef MS_REPORT_GNUPLOT_H
#define MS_REPORT_GNUPLOT_H

#include <glib.h>

/* Runs plots/SCRIPT with the variables csv (a temporary file with `rows`), out (`filename`) and the pairs of
 * `variables` (name, text, ..., NULL; may be NULL). FALSE and an MS_ERROR_ENV when gnuplot is missing or fails. */
gboolean ms_gnuplot(const char *script, const char *rows, const char *filename, const char *const *variables,
                    GError **error);

#endif
