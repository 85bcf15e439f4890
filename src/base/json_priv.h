/* src/base/json_priv.h - shared by the files of the JSON reader only. */
#ifndef MS_BASE_JSON_PRIV_H
#define MS_BASE_JSON_PRIV_H

#include "base/json.h"

#define MS_JSON_MAX_BYTES   (64u << 20)
#define MS_JSON_MAX_DEPTH   64
#define MS_JSON_MAX_VALUES  4000000 /* what json-glib needs for them stays below 1 GiB */
#define MS_JSON_MAX_MEMBERS 32768   /* per object */

/* The checked tree of `text` (NUL-terminated at `length`), or NULL and an MS_ERROR_INPUT. (transfer full) */
JsonNode *ms_json_scan(const char *text, size_t length, const char *filename, GError **error);
/* ms_json_take of such a text. */
gboolean ms_json_walk(const char *text, size_t length, MsJsonTake take, gpointer user);
/* Line of `path` in a text that ms_json_scan accepted. */
int ms_json_locate(const char *text, const char *path);

#endif
