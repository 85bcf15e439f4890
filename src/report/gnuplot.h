/* src/report/gnuplot.h - private to report: rows as CSV, and pictures of them through gnuplot. */
#ifndef MS_REPORT_GNUPLOT_H
#define MS_REPORT_GNUPLOT_H

#include <glib.h>

/* A field and the comma behind it, quoted where it must be. */
void ms_rows_text(GString *out, const char *text);
/* The shortest text that reads back to `value` (nothing when it is not finite), then `end`. */
void ms_rows_number(GString *out, double value, char end);

/* Runs plots/SCRIPT with the variables csv (a temporary file with `rows`), out (`filename`) and the pairs of
 * `variables` (name, text, ..., NULL; may be NULL). FALSE and an MS_ERROR_ENV when gnuplot is missing or fails. */
gboolean ms_gnuplot(const char *script, const char *rows, const char *filename, const char *const *variables,
                    GError **error);

#endif
