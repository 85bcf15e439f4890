/* src/base/err.h - errors.
 *
 * Three words, three meanings (kept apart everywhere):
 *   GError (domain MS_ERROR)  the user's input or the environment; the code IS the exit status of the program;
 *   MS_BUG()                  our own fault: prints file:line and exits with 70;
 *   "infeasible"/"refused"    a normal result that carries its reason (layout/rules.h, sim/result.h), never a GError.
 * Messages are one line, `file:line: path: what is wrong, what would be right`, without the program's name. */
#ifndef MS_BASE_ERR_H
#define MS_BASE_ERR_H

#include <glib.h>

#define MS_ERROR (ms_error_quark())
GQuark ms_error_quark(void);

typedef enum {
  MS_ERROR_NOTHING = 1, /* a regression was found, or nothing is feasible */
  MS_ERROR_USAGE = 2,   /* the command line */
  MS_ERROR_INPUT = 3,   /* a file's content */
  MS_ERROR_ENV = 4,     /* I/O, MPI, a missing library */
} MsErrorCode;

/* Sets *error. Always returns FALSE, so that callers can `return ms_error(...)`. */
gboolean ms_error(GError **error, MsErrorCode code, const char *format, ...) G_GNUC_PRINTF(3, 4);

/* Sets *error to an MS_ERROR_INPUT with the text "file:line: path: message"; line 0 and an empty or NULL path are left
 * out. Newlines in the message become spaces. Returns FALSE. */
gboolean ms_input_error(GError **error, const char *file, int line, const char *path, const char *format, ...)
    G_GNUC_PRINTF(5, 6);

/* The same of MS_ERROR_USAGE, without a place: for messages that quote what somebody typed. */
gboolean ms_usage_error(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Such a message without its "file: " or "file:line: ", when it starts with that file. (transfer none), a part of
 * `message`. */
const char *ms_error_text(const char *message, const char *file);

#define MS_BUG(...) ms_bug(__FILE__, __LINE__, __VA_ARGS__)
G_NORETURN void ms_bug(const char *file, int line, const char *format, ...) G_GNUC_PRINTF(3, 4);

#endif
