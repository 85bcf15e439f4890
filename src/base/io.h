/* src/base/io.h - files and standard streams.
 *
 * Files are written to a temporary name beside the target and renamed, so that an interrupt or a full disk never leaves
 * half a file. Data goes to stdout, everything else to stderr. */
#ifndef MS_BASE_IO_H
#define MS_BASE_IO_H

#include <gio/gio.h>
#include <stdio.h>

/* Writes `length` bytes (-1: NUL-terminated) to `filename`, "-" is stdout. FALSE and an MS_ERROR_ENV on failure. */
gboolean ms_write_file(const char *filename, const char *data, gssize length, GError **error);

/* The folder with those around it, which may be there already; NULL: none is wanted. FALSE and an MS_ERROR_ENV. */
gboolean ms_make_folder(const char *folder, GError **error);

/* Whether ms_write_file could begin there, to be asked before long work whose result it would lose; NULL and "-" can.
 * FALSE and an MS_ERROR_ENV. */
gboolean ms_can_write(const char *filename, GError **error);

/* The same piece by piece, for what is too large to hold: open, put any number of times, close. What goes wrong in
 * between is kept for _close, which frees the writer and returns FALSE with an MS_ERROR_ENV; of a file that is not
 * whole nothing is left. _open: NULL and an MS_ERROR_ENV. */
typedef struct MsWriter MsWriter;
MsWriter *ms_writer_open(const char *filename, GError **error);
void ms_writer_put(MsWriter *writer, const char *data, size_t length);
gboolean ms_writer_close(MsWriter *writer, GError **error);
/* Closes, or where the work was stopped (ms_interrupted) leaves nothing behind, FALSE with an MS_ERROR_NOTHING. */
gboolean ms_writer_close_unless_stopped(MsWriter *writer, GError **error);

/* All of a file, "-" is standard input, with a NUL behind it; of what is larger than `most` bytes a little more than
 * that, for the caller to refuse. NULL and an MS_ERROR_ENV when it cannot be read. (transfer full) */
char *ms_read_file(const char *filename, gsize most, gsize *length, GError **error);
/* The same to be read piece by piece, by GIO. NULL and an MS_ERROR_ENV when it cannot be opened. (transfer full) */
GInputStream *ms_open_file(const char *filename, GError **error);
/* A file that is called nearly as one that is not there, in its folder; NULL: none. (transfer full) */
char *ms_file_suggestion(const char *filename);

/* Flushes and checks stdout; FALSE and an MS_ERROR_ENV when something was lost (full disk, closed pipe). */
gboolean ms_flush_stdout(GError **error);
/* Standard output is a pipe that nobody reads any more (`moesim ... | head`). */
gboolean ms_stdout_abandoned(void);

/* Where models/, hardware/ and scenarios/ live: $MOESIM_DATA, else the source tree this binary was built from (if it
 * still exists), else the installation's share directory. (transfer none), never NULL. */
const char *ms_data_dir(void);
/* Where the user's own go: $XDG_DATA_HOME/moesim/FOLDER/NAME.json. (transfer full) */
char *ms_user_data_file(const char *folder, const char *name);

/* Progress on stderr. On a terminal one line, drawn at most ten times a second and removed by _end; elsewhere a line of
 * its own every 30 s of the long work (MOESIM_PROGRESS_S seconds, 0: at every update), so that short work is quiet.
 * `total` is what `done` counts up to; the time left is estimated from it. 0: nobody knows how much there is, and only
 * the note is shown. */
typedef struct MsProgress MsProgress;
MsProgress *ms_progress_begin(const char *what, double total);
void ms_progress_update(MsProgress *progress, double done, const char *note);
void ms_progress_end(MsProgress *progress); /* frees; NULL is fine */

/* Long work begins: from now on the first SIGINT or SIGTERM, or the end of `limit_s` seconds (INFINITY: no limit), only
 * sets a flag; a second signal ends the program. What works then stops soon and hands over what it has. */
void ms_interrupt_install(double limit_s);
gboolean ms_interrupted(void);
/* Why: "interrupted", "the time limit was reached"; NULL when it was not. */
const char *ms_interrupt_reason(void);

#endif
