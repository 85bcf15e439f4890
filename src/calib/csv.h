/* src/calib/csv.h - reading measured tables: CSV with a header line, plain or gzip (by content, not by name), "-" is
 * standard input.
 *
 * Columns are found by their header name. Fields may be quoted ("" inside quotes is a quote; no line breaks inside).
 * Every error is an MS_ERROR_INPUT `file:line: column: message`; a file that cannot be read is an MS_ERROR_ENV. Limits:
 * 1 GiB of text, 256 columns. */
#ifndef MS_CALIB_CSV_H
#define MS_CALIB_CSV_H

#include <glib.h>

typedef struct MsCsv MsCsv;

/* Reads the file and its header. NULL and *error on failure. (transfer full) */
MsCsv *ms_csv_open(const char *filename, GError **error);
/* The same from memory: the text is copied. */
MsCsv *ms_csv_parse(const char *text, gsize length, const char *filename, GError **error);
void ms_csv_free(MsCsv *csv);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCsv, ms_csv_free)

const char *ms_csv_filename(const MsCsv *csv);
int ms_csv_column(const MsCsv *csv, const char *name); /* -1 when there is none */
/* The next row; FALSE at the end and on failure (then *error is set). */
gboolean ms_csv_next(MsCsv *csv, GError **error);
/* A field of the current row; "" for column -1. (transfer none), valid until the next row. */
const char *ms_csv_text(const MsCsv *csv, int column);
/* A decimal number in [lo, hi]. */
gboolean ms_csv_number(const MsCsv *csv, int column, double lo, double hi, double *value, GError **error);
/* An error at the current line. Returns FALSE. */
gboolean ms_csv_error(const MsCsv *csv, int column, GError **error, const char *format, ...) G_GNUC_PRINTF(4, 5);

/* Cuts one line into its fields, in place; -1 and *wrong (a phrase) when it is none or holds more than `most`. */
int ms_csv_cut(char *line, char **field, int most, const char **wrong);

#endif
