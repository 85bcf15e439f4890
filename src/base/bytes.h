/* src/base/bytes.h - the bytes of a file of any size, plain or gzip (by content, not by name). Members of gzip behind
 * each other are one text (RFC 1952), as those that bgzip or an appended log have. */
#ifndef MS_BASE_BYTES_H
#define MS_BASE_BYTES_H

#include <glib.h>

typedef struct MsBytes MsBytes;

/* "-" is standard input. NULL and an MS_ERROR_ENV when it cannot be read. (transfer full) */
MsBytes *ms_bytes_open(const char *filename, GError **error);
/* From memory, which must stay; never fails. */
MsBytes *ms_bytes_of(const char *bytes, gsize length, const char *filename);
void ms_bytes_close(MsBytes *bytes);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsBytes, ms_bytes_close)

/* The next bytes, at most `most`: > 0; 0 at the end; -1 and *error, an MS_ERROR_INPUT of damaged gzip data. */
gssize ms_bytes_read(MsBytes *bytes, char *to, gsize most, GError **error);
/* The gzip data ended before its end: what was read is what was left of it. */
gboolean ms_bytes_cut(const MsBytes *bytes);

#endif
