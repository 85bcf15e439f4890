/* src/base/json.h - strict reading and one way of writing JSON.
 *
 * Reading: a scan of our own (RFC 8259 grammar, UTF-8, no duplicate keys, no NaN/Infinity/overflow, integers within
 * +-2^53, nesting <= 64, file <= 64 MiB, <= 4 million values, <= 32768 keys an object, nothing after the document)
 * builds the json-glib tree, because the parser of json-glib 1.6 accepts much that is wrong and crashes on deep
 * nesting. The text is kept, so that later checks can say `file:line: path`. Paths look like
 * "options.recompute.modules[1]".
 *
 * Writing: numbers in the shortest form that reads back to the same double ("%.17g" only when needed), integers
 * without a point, never NaN or Infinity (written as null). Keys keep the order in which they are written. */
#ifndef MS_BASE_JSON_H
#define MS_BASE_JSON_H

#include <glib.h>
#include <json-glib/json-glib.h>

typedef struct MsJson MsJson;

/* Reads a whole file ("-" is standard input). NULL and *error (MS_ERROR_INPUT for content, MS_ERROR_ENV when it cannot
 * be read) on failure. (transfer full): free with ms_json_free. */
MsJson *ms_json_load(const char *filename, GError **error);
/* The same in two steps: a document without a tree, for ms_json_take, and its tree. */
MsJson *ms_json_open(const char *filename, GError **error);
gboolean ms_json_build(MsJson *doc, GError **error);
/* ms_json_load from memory; `length` -1 for a NUL-terminated text; `filename` only names it in messages. */
MsJson *ms_json_parse(const char *text, gssize length, const char *filename, GError **error);
void ms_json_free(MsJson *doc);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsJson, ms_json_free)

/* A copy that shares nothing, to be changed; a node that nobody changes is shared by json_node_ref. Copies of json-glib
 * (json_node_copy) share values, lists and objects and count them without atomics: where threads copy one tree its
 * parts are freed too early. (transfer full) */
JsonNode *ms_json_copy(JsonNode *node);
JsonNode *ms_json_root(const MsJson *doc);       /* (transfer none); NULL: not built */
const char *ms_json_filename(const MsJson *doc); /* (transfer none) */
/* Line of the value at `path` (of its key, for a member), 1-based; the line of the nearest enclosing value when the
 * path does not exist; "" is the root. */
int ms_json_line(const MsJson *doc, const char *path);
/* ms_input_error with this document's name and the line of `path`. Returns FALSE. */
gboolean ms_json_error(const MsJson *doc, const char *path, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* The same of what is wrong in the document that stands at `path` of this one: "KEY: ..." at "path.KEY". Takes `inner`.
 */
gboolean ms_json_error_inside(const MsJson *doc, const char *path, GError **error, GError *inner);
/* --- reading without a tree, a tenth of the work ---------------------------------------------------------------- */
typedef struct MsJsonCursor MsJsonCursor;
typedef gboolean (*MsJsonTake)(MsJsonCursor *cursor, gpointer user);
/* `take` gets a cursor on the root of the document and moves it over all of it. Whatever is called for a value moves
 * over it when it is what was asked for and well formed. FALSE: it is not, or written in a way that is seldom used
 * (escapes in a string); then nothing is known but that the tree has to be read. */
gboolean ms_json_take(const MsJson *doc, MsJsonTake take, gpointer user);
typedef struct { /* in the text of the document, not terminated */
  const char *text;
  gsize length;
} MsJsonWord;
/* An object, '{', or a list, '[': *more values follow; behind each the same again. */
gboolean ms_json_take_open(MsJsonCursor *cursor, char bracket, gboolean *more);
gboolean ms_json_take_next(MsJsonCursor *cursor, char bracket, gboolean *more);
gboolean ms_json_take_key(MsJsonCursor *cursor, MsJsonWord *key); /* whether it came before is for the caller to see */
gboolean ms_json_take_string(MsJsonCursor *cursor, MsJsonWord *text);
char *ms_json_word_text(const MsJsonWord *word); /* (transfer full) */
gboolean ms_json_word_is(const MsJsonWord *word, const char *text);
gboolean ms_json_take_number(MsJsonCursor *cursor, double *value, gboolean *integral);
gboolean ms_json_take_null(MsJsonCursor *cursor);
/* values[*n] of a list of numbers, one at least, until the next one is taken. (transfer none) */
const double *ms_json_take_numbers(MsJsonCursor *cursor, guint *n);
JsonNode *ms_json_take_node(MsJsonCursor *cursor); /* a tree of any value. (transfer full) */

/* What a person gives as one word: a number, true, false or null as JSON writes it, all else a string: 8, 400Gb/s.
 * (transfer full) */
JsonNode *ms_json_of_word(const char *text);

/* What a value is: of that type, its string (NULL: it is none), its number (NaN: it is none). `node` may be NULL. */
gboolean ms_json_is(JsonNode *node, GType type);
const char *ms_json_string(JsonNode *node);
double ms_json_number(JsonNode *node);
/* An object or a list, NULL: it is none; a member of an object that may be NULL. (transfer none) */
JsonObject *ms_json_object(JsonNode *node);
JsonArray *ms_json_array(JsonNode *node);
JsonNode *ms_json_member(JsonObject *object, const char *key);
/* Members in their order: `for (MsJsonMember at = ms_json_members(object); ms_json_next(&at);)`. */
typedef struct {
  JsonObjectIter iter;
  const char *key;
  JsonNode *value;
} MsJsonMember;
MsJsonMember ms_json_members(JsonObject *object);
gboolean ms_json_next(MsJsonMember *at);
/* The list under that key of the whole document; NULL and *error where it has none. (transfer none) */
JsonArray *ms_json_need_list(const MsJson *doc, const char *key, GError **error);
/* TRUE when `node` is an object, else FALSE with that as the error. */
gboolean ms_json_need_object(const MsJson *doc, JsonNode *node, const char *path, GError **error);

/* The known word nearest to `word` by edit distance, or NULL when none is near enough to help. (transfer none) */
const char *ms_nearest(const char *word, const char *const *known);
/* The known word that differs from `word` as a slip of the hand does: a letter in a word of five, two in one of ten,
 * not the first; case and -/_; NULL: none. (transfer none) */
const char *ms_misspelt(const char *word, const char *const *known);
/* "did you mean ...?": every known word that contains this one ("fp8", "deepseek"), else the nearest, else those of its
 * family ("llama9-1b"); NULL when nothing is like it. With `glosses`, one for each known word, several are explained.
 * (transfer full) */
char *ms_suggest(const char *word, const char *const *known, const char *const *glosses);

/* --- writing --------------------------------------------------------------------------------------------------- */
typedef struct MsJsonOut MsJsonOut;

/* indent 0: one line, `{"a":1,"b":[1,2]}`; indent > 0: pretty, short lists of scalars stay on one line. */
MsJsonOut *ms_json_out_new(int indent);
/* Takes the text (transfer full) and frees the writer. */
char *ms_json_out_take(MsJsonOut *out);
/* The same as a tree, to be changed. (transfer full) */
JsonNode *ms_json_out_take_node(MsJsonOut *out);
/* `key` is NULL inside an array and for the root. */
void ms_json_out_object(MsJsonOut *out, const char *key);
void ms_json_out_array(MsJsonOut *out, const char *key);
void ms_json_out_end(MsJsonOut *out);
void ms_json_out_string(MsJsonOut *out, const char *key, const char *value); /* NULL writes null */
void ms_json_out_double(MsJsonOut *out, const char *key, double value);
void ms_json_out_int(MsJsonOut *out, const char *key, gint64 value);
void ms_json_out_bool(MsJsonOut *out, const char *key, gboolean value);
void ms_json_out_null(MsJsonOut *out, const char *key);
void ms_json_out_node(MsJsonOut *out, const char *key, JsonNode *node); /* any json-glib tree, copied */

/* A tree as text. (transfer full) */
char *ms_json_text(JsonNode *node, int indent);
/* A string as JSON text, of NULL "null". (transfer full) */
char *ms_json_quoted(const char *value);
/* A tree that was read or written here as a document of its own; `filename` names it in messages. Never NULL.
 * (transfer full) */
MsJson *ms_json_doc(JsonNode *node, const char *filename);
/* Appends `value`, which is UTF-8, as a JSON string. */
void ms_json_quote(GString *text, const char *value);
/* Shortest decimal that reads back to `value`; buf >= 32 bytes; returns buf. */
const char *ms_double_text(double value, char *buf);

#endif
