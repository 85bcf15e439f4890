/* src/describe/field_take.c - objects straight from the text of a file, without a tree of JSON. What is not as most
 * files have it is refused without a word: whoever asked reads the tree, and so every complaint is field.c's. */
#include "describe/field.h"

#define AT(type, object, field) ((type *)(void *)((char *)(object) + (field)->offset))

enum { MOST_FIELDS = 256 };

typedef struct {
  const MsFieldTable *table;
  const MsField *next; /* behind the last one, most likely that of the next key */
  gboolean taken[MOST_FIELDS];
} Rows;

static gboolean is_key(const MsField *field, const MsJsonWord *key) {
  return field->key && ms_json_word_is(key, field->key);
}

/* NULL: unknown, or given twice. */
static const MsField *row_of(Rows *rows, const MsJsonWord *key) {
  const MsField *first = rows->table->fields, *field = rows->next;
  if (!is_key(field, key))
    for (field = first; field->key && !is_key(field, key);) field++;
  if (!field->key || field - first >= MOST_FIELDS || rows->taken[field - first]) return NULL;
  rows->taken[field - first] = TRUE;
  rows->next = field + 1;
  return field;
}

/* Before `end`, NULL: all. */
static gboolean all_required(const Rows *rows, const MsField *end) {
  const MsField *field = rows->table->fields;
  for (; field->key && field != end; field++)
    if ((field->flags & MS_REQUIRED) && !rows->taken[field - rows->table->fields]) return FALSE;
  return TRUE;
}

static gboolean set_figure(const MsField *field, double value, gboolean integral, void *object) {
  if (field->lo < field->hi && !(value >= field->lo && value <= field->hi)) return FALSE;
  if (field->type == MS_T_F64) *AT(double, object, field) = value;
  else if (integral && value > G_MININT && value <= G_MAXINT) *AT(int, object, field) = (int)value;
  else return FALSE;
  return TRUE;
}

static gboolean take_text(const MsField *field, MsJsonCursor *cursor, void *object) {
  MsJsonWord text;
  if (!ms_json_take_string(cursor, &text)) return FALSE;
  g_free(*AT(char *, object, field));
  *AT(char *, object, field) = ms_json_word_text(&text);
  return TRUE;
}

static gboolean take_word(const MsField *field, MsJsonCursor *cursor, void *object) {
  MsJsonWord word;
  if (!ms_json_take_string(cursor, &word)) return FALSE;
  for (int i = 0; field->words[i]; i++)
    if (ms_json_word_is(&word, field->words[i])) return *AT(int, object, field) = i, TRUE;
  return FALSE;
}

/* As field.c sets it. */
static gboolean take_node(const MsField *field, MsJsonCursor *cursor, void *object) {
  g_autoptr(JsonNode) node = ms_json_take_node(cursor);
  return node && ms_field_set(field, NULL, node, field->key, object, NULL);
}

static gboolean take_value(const MsField *field, MsJsonCursor *cursor, void *object) {
  gboolean plain = field->type != MS_T_CUSTOM && field->offset != MS_NO_OFFSET, integral;
  double value;
  if (field->take) return field->take(cursor, AT(void, object, field));
  if (plain && (field->flags & MS_NULLABLE) && ms_json_take_null(cursor)) return TRUE; /* which the member is */
  if (plain && (field->type == MS_T_INT || field->type == MS_T_F64) && ms_json_take_number(cursor, &value, &integral))
    return set_figure(field, value, integral, object);
  if (plain && field->type == MS_T_STRING && !field->words) return take_text(field, cursor, object);
  if (plain && field->type == MS_T_ENUM && !(field->flags & MS_AUTO)) return take_word(field, cursor, object);
  if (plain && field->type == MS_T_OBJECT) return ms_fields_take(field->sub, cursor, AT(void, object, field));
  return take_node(field, cursor, object);
}

gboolean ms_fields_take(const MsFieldTable *table, MsJsonCursor *cursor, void *object) {
  Rows rows = {.table = table, .next = table->fields};
  gboolean more;
  if (!ms_json_take_open(cursor, '{', &more)) return FALSE;
  while (more) {
    MsJsonWord key;
    const MsField *field = ms_json_take_key(cursor, &key) ? row_of(&rows, &key) : NULL;
    if (!field || (field->type == MS_T_CUSTOM && !all_required(&rows, field))) return FALSE;
    if (!take_value(field, cursor, object) || !ms_json_take_next(cursor, '{', &more)) return FALSE;
  }
  return all_required(&rows, NULL);
}
