/* src/logs/reader.h - bytes and lines of a file of any size: plain or gzip (by content, not by name), "-" is standard
 * input. Nothing is held but a buffer. */
#ifndef MS_LOGS_READER_H
#define MS_LOGS_READER_H

#include <glib.h>

typedef struct MsReader MsReader;

/* NULL and an MS_ERROR_ENV when it cannot be read. (transfer full) */
MsReader *ms_reader_open(const char *filename, GError **error);
/* From memory, which must stay; never fails. */
MsReader *ms_reader_of(const char *bytes, gsize length, const char *filename);
void ms_reader_close(MsReader *stream);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsReader, ms_reader_close)

/* The gzip data ended before its end: what was read is what was left of it. */
gboolean ms_reader_cut(const MsReader *stream);

/* Both before anything was read, which they do not take: the first byte that is no space, -1: there is none; whether
 * the file begins with these bytes. */
int ms_reader_peek(MsReader *stream);
gboolean ms_reader_begins(MsReader *stream, const char *bytes, gsize length);

/* The next bytes, as many as there are at hand: > 0, 0 at the end, -1 and *error. They are valid until the next call.
 * Not between lines. */
gssize ms_reader_chunk(MsReader *stream, const char **bytes, GError **error);

/* The next line without its end ("\n", "\r\n"; a "\r" alone, as progress bars write it, ends one too) and without
 * colours of a terminal; valid until the next call. NULL at the end, and with *error on failure. What a line holds
 * beyond MS_LINE_MOST bytes is left out, a zero byte is an error. */
enum { MS_LINE_MOST = 1 << 20 };
const char *ms_reader_line(MsReader *stream, GError **error);
int ms_reader_line_number(const MsReader *stream); /* of that line, by "\n" */
/* An MS_ERROR_INPUT at that line, in valid UTF-8 whatever the line holds; `path` may be NULL. FALSE. */
gboolean ms_reader_wrong(const MsReader *stream, const char *path, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);

#endif
