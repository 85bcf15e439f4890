/* src/describe/field.h - one table of fields per JSON object.
 *
 * The same rows load a file, check it, print it back, set a single key (plan requests, what-if axes) and produce
 * `moesim schema` and the reference pages. A row that is not in a table is not a key: the loader names the nearest one.
 */
#ifndef MS_DESCRIBE_FIELD_H
#define MS_DESCRIBE_FIELD_H

#include "base/json.h"

typedef enum {
  MS_T_INT,    /* int */
  MS_T_F64,    /* double; JSON null = unknown = NaN when MS_NULLABLE */
  MS_T_BOOL,   /* gboolean */
  MS_T_STRING, /* char *, owned by the struct */
  MS_T_ENUM,   /* int, index into `words` */
  MS_T_WORDS,  /* guint32 bit set over `words`, written as a JSON list of strings */
  MS_T_OBJECT, /* nested struct at `offset`, described by `sub` */
  MS_T_FREE, /* any JSON; not loaded, kept as (JsonNode *), shared and const, or ignored when offset is MS_NO_OFFSET */
  MS_T_CUSTOM, /* `parse`/`print` of the row */
} MsFieldType;

enum {
  MS_REQUIRED = 1, /* an error when missing */
  MS_NULLABLE = 2, /* JSON null accepted; it means the default of the row or, without one: NaN for F64, NULL for STRING,
                      MS_NULL_INT for INT, -1 for BOOL and ENUM, the defaults of the sub-table for OBJECT */
  MS_OPEN = 4,     /* a plan request may leave it open: list, "auto" or {"from","to"} */
  MS_AUTO = 8,     /* what it is by default follows from other keys, as `doc` says; "auto" is that default */
};
#define MS_NULL_INT  G_MININT
#define MS_NO_OFFSET ((size_t)-1)

typedef struct MsFieldTable MsFieldTable;
typedef struct MsField {
  const char *key;
  MsFieldType type;
  const char *unit; /* "B", "Bps", "flops", "s", ... or "" */
  size_t offset;    /* of the member in the loaded struct */
  double lo, hi;    /* inclusive range of numbers; lo > hi or both 0: no range */
  unsigned flags;
  const char *fallback;     /* default as JSON text; NULL: none (required, or left as zero) */
  const char *const *words; /* NULL-terminated, for ENUM and WORDS; STRING: the only ones it may be; NULL: any */
  const MsFieldTable *sub;  /* for OBJECT; CUSTOM: of the object that it also takes, for the schema */
  /* CUSTOM: `member` is at `offset`; a row that fills several members has offset 0 and gets the whole struct. What it
   * owns is freed and copied by the module of the struct. print NULL: never written. */
  gboolean (*parse)(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error); /* CUSTOM */
  void (*print)(MsJsonOut *out, const char *key, const void *member);                                   /* CUSTOM */
  gboolean (*take)(MsJsonCursor *cursor, void *member); /* CUSTOM: `parse` without a tree; NULL: through one */
  const char *doc;                                      /* one sentence for schema and reference */
} MsField;

struct MsFieldTable {
  const char *name; /* "scenario.layout" */
  const char *doc;
  const MsField *fields; /* ends with a row whose key is NULL */
};
/* Rows with their end; a table of them. */
#define MS_FIELD_ROWS(...) ((const MsField[]){__VA_ARGS__, {0}})
#define MS_FIELD_TABLE(n, d, ...) \
  { .name = n, .doc = d, .fields = MS_FIELD_ROWS(__VA_ARGS__) }

/* Fills `object` with the defaults of the table (recursively). Strings are newly allocated. */
void ms_fields_defaults(const MsFieldTable *table, void *object);
/* Loads `json` over what is already in `object`; unknown keys, wrong types, ranges and (when `whole`) missing required
 * keys are errors. On failure `object` may be partly written but is still valid for ms_fields_clear. */
gboolean ms_fields_load(const MsFieldTable *table, const MsJson *doc, JsonObject *json, const char *path,
                        gboolean whole, void *object, GError **error);
/* ms_fields_load of the whole object at the cursor without a tree, over defaults. FALSE as all that takes: free what
 * there is, and load the tree. Of a CUSTOM row all required rows before it in the table stand before it. */
gboolean ms_fields_take(const MsFieldTable *table, MsJsonCursor *cursor, void *object);
/* Every key of `json` is in the table. */
gboolean ms_fields_check_keys(const MsFieldTable *table, const MsJson *doc, JsonObject *json, const char *path,
                              GError **error);
/* Sets one key from a JSON value; path as in "layout.tp" only for messages. */
gboolean ms_field_set(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, void *object,
                      GError **error);
/* The value "auto" of a key that has it: its default. */
gboolean ms_field_is_auto(const MsField *field, JsonNode *node);
const MsField *ms_field_find(const MsFieldTable *table, const char *key); /* NULL when unknown */
/* Writes every member that differs from its default (all of them when `all`) into the current JSON object; one row;
 * into an object of its own; that as text (of all) and as a tree (transfer full). */
void ms_fields_write(const MsFieldTable *table, const void *object, gboolean all, MsJsonOut *out);
void ms_field_write(const MsField *field, const void *object, gboolean all, MsJsonOut *out);
void ms_fields_object(const MsFieldTable *table, const void *object, gboolean all, const char *key, MsJsonOut *out);
char *ms_fields_text(const MsFieldTable *table, const void *object, int indent);
JsonNode *ms_fields_node(const MsFieldTable *table, const void *object, gboolean all);
/* The value of one row as it is written; NULL where it is not. (transfer full) */
JsonNode *ms_field_node(const MsField *field, const void *object, gboolean all);
void ms_fields_clear(const MsFieldTable *table, void *object); /* frees owned strings and nodes */
/* Deep copy into raw memory of every row but CUSTOM ones (copy the struct by assignment first, then call this). */
void ms_fields_copy(const MsFieldTable *table, const void *from, void *to);
/* Appends the reference of the table (and its sub-tables) as aligned text. */
void ms_fields_schema(const MsFieldTable *table, GString *out);
void ms_fields_markdown(const MsFieldTable *table, GString *out); /* the same as a section of docs/reference.md */

#endif
