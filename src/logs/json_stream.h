/* src/logs/json_stream.h - JSON of any size, token by token: nothing is held but the place and the latest text.
 *
 * For files that profilers write, which are larger than base/json.h reads and looser than JSON is: NaN, inf and their
 * like are numbers, a backslash before a letter that JSON does not know is itself, text need not be UTF-8 (it is made
 * so), a comma may stand before the end of a list. A document that ends before its end (a program that was killed)
 * gives MS_TOKEN_CUT there. Nesting up to 64; of a text the first 64 KiB are kept. */
#ifndef MS_LOGS_JSON_STREAM_H
#define MS_LOGS_JSON_STREAM_H

#include "logs/reader.h"

typedef enum {
  MS_TOKEN_OBJECT, /* begins */
  MS_TOKEN_LIST,   /* begins */
  MS_TOKEN_END,    /* of either */
  MS_TOKEN_KEY,
  MS_TOKEN_TEXT,
  MS_TOKEN_NUMBER,
  MS_TOKEN_WORD, /* true, false, null */
  MS_TOKEN_DONE, /* the document is whole */
  MS_TOKEN_CUT,  /* it ended early */
  MS_TOKEN_WRONG /* *error is set: MS_ERROR_INPUT at its line, or that the file cannot be read */
} MsToken;

typedef struct MsJsonStream MsJsonStream;
/* Both stay the caller's. */
MsJsonStream *ms_json_stream_new(MsReader *reader, const char *file);
void ms_json_stream_free(MsJsonStream *stream);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsJsonStream, ms_json_stream_free)

MsToken ms_json_stream_next(MsJsonStream *stream, GError **error);
/* Of the latest key, text, number or word; valid until the next call. */
const char *ms_json_stream_text(const MsJsonStream *stream);
int ms_json_stream_depth(const MsJsonStream *stream); /* objects and lists that are open */
int ms_json_stream_line(const MsJsonStream *stream);
/* With the token that began a value: what is left of it goes by. Its last token, or CUT, or WRONG. */
MsToken ms_json_stream_skip(MsJsonStream *stream, MsToken token, GError **error);

#endif
