/* src/exec/dump_file.h - the file of `moesim exec --dump`: named matrices, each with its gradients and its updated
 * parameters.
 *
 * The line "moesim exec dump 1", then for each matrix a line "NAME<tab>ELEMENTS" and twice as many doubles of the
 * machine that wrote it: gradients, then parameters, row by row of the whole matrix. Names are not empty, have no
 * control characters, and none comes twice. What is read may be anything: it is checked before it is believed. */
#ifndef MS_EXEC_DUMP_FILE_H
#define MS_EXEC_DUMP_FILE_H

#include <glib.h>

typedef struct {
  char *name;
  gint64 n;                         /* elements, at least 1 */
  const char *gradient, *parameter; /* n doubles each, not aligned: ms_dump_at */
} MsDumpMatrix;

typedef struct {
  char *bytes;       /* of the file */
  GPtrArray *matrix; /* MsDumpMatrix, in the order of the file */
} MsDump;

/* NULL and *error: MS_ERROR_INPUT `file: what is wrong`, MS_ERROR_ENV when the file cannot be read. (transfer full) */
MsDump *ms_dump_load(const char *file, GError **error);
/* The same from `bytes`, which it takes whatever comes of it; `file` is for messages. (transfer full) */
MsDump *ms_dump_parse(char *bytes, gsize length, const char *file, GError **error);
void ms_dump_free(MsDump *dump);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsDump, ms_dump_free)

double ms_dump_at(const char *elements, gint64 i);

/* A file to write: begin, then every matrix. */
GString *ms_dump_text_new(void);
void ms_dump_text_add(GString *text, const char *name, gint64 n, const void *gradient, const void *parameter);

#endif
