/* src/describe/field.c - loading, printing, copying and documenting objects by their tables. */
#include "describe/field.h"

#include "base/err.h"
#include "base/quantity.h"
#include "base/text.h"
#include "describe/enums.h"

#include <math.h>
#include <string.h>

#define AT(type, object, field) ((type *)(void *)((char *)(object) + (field)->offset))

static gboolean has_range(const MsField *field) { return field->lo <= field->hi && (field->lo != 0 || field->hi != 0); }

/* --- what a JSON value is ----------------------------------------------------------------------------------------- */
static const char *kind_of(JsonNode *node) {
  if (JSON_NODE_HOLDS_NULL(node)) return "null";
  if (JSON_NODE_HOLDS_OBJECT(node)) return "an object";
  if (JSON_NODE_HOLDS_ARRAY(node)) return "a list";
  if (ms_json_is(node, G_TYPE_STRING)) return "a string";
  if (ms_json_is(node, G_TYPE_BOOLEAN)) return "a boolean";
  return ms_json_is(node, G_TYPE_INT64) ? "an integer" : "a number with fraction or exponent";
}

static gboolean wrong_type(const MsJson *doc, JsonNode *node, const char *path, const char *wanted, GError **error) {
  const char *word = ms_json_string(node);
  if (word) return ms_json_error(doc, path, error, "is the string \"%.40s\", must be %s", word, wanted);
  return ms_json_error(doc, path, error, "is %s, must be %s", kind_of(node), wanted);
}

/* --- messages about words and keys -------------------------------------------------------------------------------- */
static char *word_list(const char *const *words) { return g_strjoinv(", ", (char **)words); }

static gboolean unknown_word(const MsField *field, const MsJson *doc, const char *word, const char *path,
                             GError **error) {
  g_autofree char *suggestion = ms_suggest(word, field->words, ms_word_sentences(field->words));
  if (suggestion) return ms_json_error(doc, path, error, "unknown word \"%s\", %s", word, suggestion);
  g_autofree char *all = word_list(field->words);
  return ms_json_error(doc, path, error, "unknown word \"%s\", must be one of %s", word, all);
}

static char *join_path(const char *path, const char *key) {
  return path && *path ? g_strconcat(path, ".", key, NULL) : g_strdup(key);
}

static const char **table_keys(const MsFieldTable *table) {
  guint n = 0;
  while (table->fields[n].key) n++;
  const char **keys = g_new0(const char *, n + 1);
  for (guint i = 0; i < n; i++) keys[i] = table->fields[i].key;
  return keys;
}

/* The path of the object below the table that has this very key, "training" for "seq_length"; NULL when none has. */
static char *home_of(const MsFieldTable *table, const char *key) {
  for (const MsField *field = table->fields; field->key; field++) {
    if (field->type != MS_T_OBJECT) continue;
    if (ms_field_find(field->sub, key)) return g_strdup(field->key);
    g_autofree char *below = home_of(field->sub, key);
    if (below) return join_path(field->key, below);
  }
  return NULL;
}

/* Words of other programs, for the key that they mean. */
static const struct {
  const char *word, *key;
} of_others[] = {{"num_gpus", "gpus"},
                 {"n_gpus", "gpus"},
                 {"world_size", "gpus"},
                 {"tensor_parallel", "tp"},
                 {"tensor_model_parallel_size", "tp"},
                 {"tensor_parallel_size", "tp"},
                 {"pipeline_parallel", "pp"},
                 {"pipeline_model_parallel_size", "pp"},
                 {"pipeline_parallel_size", "pp"},
                 {"expert_parallel", "ep"},
                 {"expert_model_parallel_size", "ep"},
                 {"expert_parallel_size", "ep"},
                 {"expert_tensor_parallel_size", "etp"},
                 {"context_parallel", "cp"},
                 {"context_parallel_size", "cp"},
                 {"data_parallel", "dp"},
                 {"data_parallel_size", "dp"},
                 {"virtual_pipeline_model_parallel_size", "vpp"},
                 {"num_virtual_stages_per_pipeline_rank", "vpp"},
                 {"mbs", "micro_batch_size"},
                 {"gbs", "global_batch_size"},
                 {"batch_size", "global_batch_size"},
                 {"dtype", "precision"}};

static const char *meant(const char *key) {
  for (guint i = 0; i < G_N_ELEMENTS(of_others); i++)
    if (strcmp(of_others[i].word, key) == 0) return of_others[i].key;
  return NULL;
}

/* Below the table, or beside it in the object that it stands in (NULL: in none). */
static char *place_of(const MsFieldTable *table, const MsFieldTable *within, const char *key) {
  char *home = home_of(table, key);
  if (home || !within) return home;
  return ms_field_find(within, key) ? g_strdup(within->name) : home_of(within, key);
}

static char *unknown_key_hint(const MsFieldTable *table, const MsFieldTable *within, const char *key) {
  g_autofree char *home = place_of(table, within, key);
  if (home) return g_strdup_printf("\"%s\" is a key of \"%s\"", key, home);
  const char *ours = meant(key);
  if (ours && ms_field_find(table, ours)) return g_strdup_printf("did you mean \"%s\"?", ours);
  g_autofree char *place = ours ? place_of(table, within, ours) : NULL;
  if (place) return g_strdup_printf("did you mean \"%s\" of \"%s\"?", ours, place);
  const char **keys = table_keys(table);
  char *suggestion = ms_suggest(key, keys, NULL);
  g_free(keys);
  return suggestion;
}

static gboolean unknown_key(const MsFieldTable *table, const MsFieldTable *within, const MsJson *doc, const char *path,
                            const char *key, GError **error) {
  g_autofree char *suggestion = unknown_key_hint(table, within, key);
  g_autofree char *full = join_path(path, key);
  if (suggestion) return ms_json_error(doc, full, error, "unknown key, %s", suggestion);
  return ms_json_error(doc, full, error, "unknown key, `moesim schema` lists the keys of %s", table->name);
}

const MsField *ms_field_find(const MsFieldTable *table, const char *key) {
  for (const MsField *field = table->fields; field->key; field++)
    if (strcmp(field->key, key) == 0) return field;
  return NULL;
}

/* --- setting one field -------------------------------------------------------------------------------------------- */
static gboolean check_range(const MsField *field, const MsJson *doc, double value, const char *path, GError **error) {
  if (!has_range(field) || (value >= field->lo && value <= field->hi)) return TRUE;
  char got[32], lo[32], hi[32];
  ms_double_text(field->lo, lo);
  ms_double_text(field->hi, hi);
  g_autofree char *meant = ms_quantity_meant(value, field->unit, field->lo, field->hi);
  return ms_json_error(doc, path, error, "is %s, must be in [%s, %s]%s%s%s%s%s", ms_double_text(value, got), lo, hi,
                       field->unit && *field->unit ? " " : "", field->unit ? field->unit : "", meant ? "; " : "",
                       meant ? meant : "", meant ? " was probably meant" : "");
}

/* A number, or a text like "200GB/s" that is one in the field's unit. */
static gboolean read_number(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, double *value,
                            GError **error) {
  gboolean whole = field->type == MS_T_INT;
  const char *text = ms_json_string(node);
  if (text && ms_quantity_has_suffix(text)) {
    g_autofree char *why = NULL;
    return ms_quantity_parse(text, field->unit, whole, value, &why) || ms_json_error(doc, path, error, "%s", why);
  }
  if (whole ? !ms_json_is(node, G_TYPE_INT64) : isnan(ms_json_number(node)))
    return wrong_type(doc, node, path, whole ? "an integer" : "a number", error);
  *value = ms_json_number(node);
  return TRUE;
}

static gboolean set_int(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, int *member,
                        GError **error) {
  double value;
  if (!read_number(field, doc, node, path, &value, error)) return FALSE;
  if (!check_range(field, doc, value, path, error)) return FALSE;
  if (value <= G_MININT || value > G_MAXINT)
    return ms_json_error(doc, path, error, "is %.0f, must be within +-%d", value, G_MAXINT);
  *member = (int)value;
  return TRUE;
}

static gboolean set_f64(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, double *member,
                        GError **error) {
  double value;
  if (!read_number(field, doc, node, path, &value, error) || !check_range(field, doc, value, path, error)) return FALSE;
  *member = value;
  return TRUE;
}

static gboolean set_bool(const MsJson *doc, JsonNode *node, const char *path, gboolean *member, GError **error) {
  if (!ms_json_is(node, G_TYPE_BOOLEAN)) return wrong_type(doc, node, path, "true or false", error);
  *member = json_node_get_boolean(node);
  return TRUE;
}

static int word_index(const char *word, const char *const *words) {
  for (int i = 0; words[i]; i++)
    if (strcmp(word, words[i]) == 0) return i;
  return -1;
}

/* Index of a JSON word, or -1 with *error. */
static int parse_word(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  if (!ms_json_is(node, G_TYPE_STRING)) {
    g_autofree char *all = word_list(field->words), *wanted = g_strdup_printf("one of %s", all);
    wrong_type(doc, node, path, wanted, error);
    return -1;
  }
  const char *word = json_node_get_string(node);
  int index = word_index(word, field->words);
  if (index < 0) unknown_word(field, doc, word, path, error);
  return index;
}

/* With words, one of them. */
static gboolean set_string(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, char **member,
                           GError **error) {
  if (field->words && parse_word(field, doc, node, path, error) < 0) return FALSE;
  if (!ms_json_is(node, G_TYPE_STRING)) return wrong_type(doc, node, path, "a string", error);
  if ((field->flags & MS_OPEN) && strcmp(json_node_get_string(node), "auto") == 0)
    return ms_json_error(doc, path, error, "is \"auto\", as only a plan request may leave it");
  g_free(*member);
  *member = g_strdup(json_node_get_string(node));
  return TRUE;
}

static gboolean set_enum(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, int *member,
                         GError **error) {
  int index = parse_word(field, doc, node, path, error);
  if (index < 0) return FALSE;
  *member = index;
  return TRUE;
}

static gboolean set_words(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, guint32 *member,
                          GError **error) {
  if (!JSON_NODE_HOLDS_ARRAY(node)) return wrong_type(doc, node, path, "a list of words", error);
  JsonArray *array = json_node_get_array(node);
  guint32 bits = 0;
  for (guint i = 0; i < json_array_get_length(array); i++) {
    char *item = g_strdup_printf("%s[%u]", path, i);
    int index = parse_word(field, doc, json_array_get_element(array, i), item, error);
    gboolean twice = index >= 0 && (bits & (1u << index));
    if (twice) ms_json_error(doc, item, error, "word \"%s\" is given twice", field->words[index]);
    g_free(item);
    if (index < 0 || twice) return FALSE;
    bits |= 1u << index;
  }
  *member = bits;
  return TRUE;
}

/* A word in place of the object that it belongs into, or a number of which the first key is. */
static gboolean no_object(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  const char *near = NULL;
  const MsField *f = field->sub->fields;
  for (; f->key && ms_json_is(node, G_TYPE_STRING); f++)
    if (f->type == MS_T_ENUM && (near = ms_nearest(json_node_get_string(node), f->words))) break;
  gboolean first = f == field->sub->fields && f->type == MS_T_INT && ms_json_is(node, G_TYPE_INT64);
  if (first)
    return ms_json_error(doc, path, error, "is %s, must be an object, did you mean {\"%s\": %" G_GINT64_FORMAT "}?",
                         kind_of(node), f->key, json_node_get_int(node));
  if (!near) return wrong_type(doc, node, path, "an object", error);
  return ms_json_error(doc, path, error, "is %s, must be an object, did you mean {\"%s\": \"%s\"}?", kind_of(node),
                       f->key, near);
}

static gboolean load(const MsFieldTable *table, const MsFieldTable *within, const MsJson *doc, JsonObject *json,
                     const char *path, gboolean whole, void *object, GError **error);

static gboolean set_object(const MsField *field, const MsFieldTable *within, const MsJson *doc, JsonNode *node,
                           const char *path, gboolean whole, void *member, GError **error) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return no_object(field, doc, node, path, error);
  return load(field->sub, within, doc, json_node_get_object(node), path, whole, member, error);
}

static void set_free(JsonNode *node, JsonNode **member) {
  if (*member) json_node_unref(*member);
  *member = json_node_ref(node);
}

gboolean ms_field_is_auto(const MsField *field, JsonNode *node) {
  return (field->flags & MS_AUTO) && ms_json_is(node, G_TYPE_STRING) && strcmp(json_node_get_string(node), "auto") == 0;
}

static void set_default(const MsField *field, void *object);
static void clear_field(const MsField *field, void *object);

/* `within`: the table that it is a row of, whose keys an object may have in the wrong place; NULL: it is set alone. */
static gboolean set_field(const MsField *field, const MsFieldTable *within, const MsJson *doc, JsonNode *node,
                          const char *path, gboolean whole, void *object, GError **error) {
  if (field->type == MS_T_CUSTOM) return field->parse(doc, node, path, AT(void, object, field), error);
  if (field->offset == MS_NO_OFFSET) return TRUE;
  if ((JSON_NODE_HOLDS_NULL(node) && (field->flags & MS_NULLABLE)) || ms_field_is_auto(field, node)) {
    clear_field(field, object);
    set_default(field, object);
    return TRUE;
  }
  void *member = AT(void, object, field);
  switch (field->type) {
  case MS_T_INT: return set_int(field, doc, node, path, member, error);
  case MS_T_F64: return set_f64(field, doc, node, path, member, error);
  case MS_T_BOOL: return set_bool(doc, node, path, member, error);
  case MS_T_STRING: return set_string(field, doc, node, path, member, error);
  case MS_T_ENUM: return set_enum(field, doc, node, path, member, error);
  case MS_T_WORDS: return set_words(field, doc, node, path, member, error);
  case MS_T_OBJECT: return set_object(field, within, doc, node, path, whole, member, error);
  case MS_T_FREE: set_free(node, member); return TRUE;
  case MS_T_CUSTOM: break;
  }
  MS_BUG("field %s has no type", field->key);
}

gboolean ms_field_set(const MsField *field, const MsJson *doc, JsonNode *node, const char *path, void *object,
                      GError **error) {
  return set_field(field, NULL, doc, node, path, FALSE, object, error);
}

/* --- defaults ----------------------------------------------------------------------------------------------------- */
static void set_nothing(const MsField *field, void *object) {
  gboolean nullable = (field->flags & MS_NULLABLE) != 0;
  switch (field->type) {
  case MS_T_INT: *AT(int, object, field) = nullable ? MS_NULL_INT : 0; break;
  case MS_T_F64: *AT(double, object, field) = nullable ? NAN : 0; break;
  case MS_T_BOOL: *AT(gboolean, object, field) = nullable ? -1 : FALSE; break;
  case MS_T_STRING: *AT(char *, object, field) = NULL; break;
  case MS_T_ENUM: *AT(int, object, field) = nullable ? -1 : 0; break;
  case MS_T_WORDS: *AT(guint32, object, field) = 0; break;
  case MS_T_OBJECT: ms_fields_defaults(field->sub, AT(void, object, field)); break;
  case MS_T_FREE: *AT(JsonNode *, object, field) = NULL; break;
  case MS_T_CUSTOM: break;
  }
}

/* A number in range, a word or an empty list, set without the reader of JSON: a machine has hundreds of defaults.
 * FALSE: it is something else. */
static gboolean plain_default(const MsField *field, void *object) {
  const char *text = field->fallback;
  size_t length = strlen(text);
  char *end;
  double value;
  switch (field->type) {
  case MS_T_INT:
  case MS_T_F64:
    value = g_ascii_strtod(text, &end);
    if (*end != '\0' || !(g_ascii_isdigit(text[0]) || text[0] == '-') || !g_ascii_isdigit(end[-1])) return FALSE;
    if (has_range(field) && !(value >= field->lo && value <= field->hi)) return FALSE;
    if (field->type == MS_T_F64) *AT(double, object, field) = value;
    else if (strspn(text, "-0123456789") == length && fabs(value) < G_MAXINT) *AT(int, object, field) = (int)value;
    else return FALSE;
    return TRUE;
  case MS_T_ENUM:
    for (int i = 0; length > 2 && text[0] == '"' && field->words[i]; i++)
      if (strlen(field->words[i]) == length - 2 && memcmp(field->words[i], text + 1, length - 2) == 0) {
        *AT(int, object, field) = i;
        return TRUE;
      }
    return FALSE;
  case MS_T_BOOL:
    *AT(gboolean, object, field) = strcmp(text, "true") == 0;
    return *AT(gboolean, object, field) || strcmp(text, "false") == 0;
  case MS_T_WORDS: return strcmp(text, "[]") == 0; /* set_nothing has */
  default: return FALSE;
  }
}

/* Leaves the member as new memory: what it owned is not freed. */
static void set_default(const MsField *field, void *object) {
  if (field->offset == MS_NO_OFFSET) return;
  set_nothing(field, object);
  if (!field->fallback || plain_default(field, object)) return;
  GError *error = NULL;
  MsJson *doc = ms_json_parse(field->fallback, -1, "default", &error);
  if (!doc || !set_field(field, NULL, NULL, ms_json_root(doc), field->key, FALSE, object, &error))
    MS_BUG("default of %s: %s", field->key, error->message);
  ms_json_free(doc);
}

void ms_fields_defaults(const MsFieldTable *table, void *object) {
  for (const MsField *field = table->fields; field->key; field++) set_default(field, object);
}

/* --- loading ------------------------------------------------------------------------------------------------------ */
static gboolean check_keys(const MsFieldTable *table, const MsFieldTable *within, const MsJson *doc, JsonObject *json,
                           const char *path, GError **error) {
  for (MsJsonMember at = ms_json_members(json); ms_json_next(&at);)
    if (!ms_field_find(table, at.key)) return unknown_key(table, within, doc, path, at.key, error);
  return TRUE;
}

gboolean ms_fields_check_keys(const MsFieldTable *table, const MsJson *doc, JsonObject *json, const char *path,
                              GError **error) {
  return check_keys(table, NULL, doc, json, path, error);
}

/* A required key is missing: an error that names it, and the others that are. */
static gboolean missing_key(const MsField *field, const MsJson *doc, JsonObject *json, const char *path,
                            GError **error) {
  g_autoptr(GString) more = g_string_new(NULL);
  for (const MsField *f = field + 1; f->key; f++)
    if ((f->flags & MS_REQUIRED) && !json_object_get_member(json, f->key))
      g_string_append_printf(more, "%s%s", more->len ? ", " : "; so are ", f->key);
  return ms_json_error(doc, path, error, "required key is missing%s", more->str);
}

static gboolean load_field(const MsField *field, const MsFieldTable *table, const MsJson *doc, JsonObject *json,
                           const char *path, gboolean whole, void *object, GError **error) {
  JsonNode *node = json_object_get_member(json, field->key);
  if (!node && !(whole && (field->flags & MS_REQUIRED))) return TRUE;
  g_autofree char *full = join_path(path, field->key);
  return node ? set_field(field, table, doc, node, full, whole, object, error)
              : missing_key(field, doc, json, full, error);
}

static gboolean load(const MsFieldTable *table, const MsFieldTable *within, const MsJson *doc, JsonObject *json,
                     const char *path, gboolean whole, void *object, GError **error) {
  if (!check_keys(table, within, doc, json, path, error)) return FALSE;
  for (const MsField *field = table->fields; field->key; field++)
    if (!load_field(field, table, doc, json, path, whole, object, error)) return FALSE;
  return TRUE;
}

gboolean ms_fields_load(const MsFieldTable *table, const MsJson *doc, JsonObject *json, const char *path,
                        gboolean whole, void *object, GError **error) {
  return load(table, NULL, doc, json, path, whole, object, error);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */
static void write_words(const MsField *field, const char *key, guint32 bits, MsJsonOut *out) {
  ms_json_out_array(out, key);
  for (int i = 0; field->words[i]; i++)
    if (bits & (1u << i)) ms_json_out_string(out, NULL, field->words[i]);
  ms_json_out_end(out);
}

static void write_int(const char *key, int value, MsJsonOut *out) {
  if (value == MS_NULL_INT) ms_json_out_null(out, key);
  else ms_json_out_int(out, key, value);
}

static void write_bool(const char *key, gboolean value, MsJsonOut *out) {
  if (value < 0) ms_json_out_null(out, key);
  else ms_json_out_bool(out, key, value);
}

static void write_enum(const MsField *field, const char *key, int index, MsJsonOut *out) {
  if (index < 0) ms_json_out_null(out, key);
  else ms_json_out_string(out, key, field->words[index]);
}

static void write_field(const MsField *field, const void *object, const char *key, gboolean all, MsJsonOut *out) {
  const void *member = AT(const void, object, field);
  switch (field->type) {
  case MS_T_INT: write_int(key, *(const int *)member, out); break;
  case MS_T_F64: ms_json_out_double(out, key, *(const double *)member); break;
  case MS_T_BOOL: write_bool(key, *(const gboolean *)member, out); break;
  case MS_T_STRING: ms_json_out_string(out, key, *(char *const *)member); break;
  case MS_T_ENUM: write_enum(field, key, *(const int *)member, out); break;
  case MS_T_WORDS: write_words(field, key, *(const guint32 *)member, out); break;
  case MS_T_OBJECT: ms_fields_object(field->sub, member, all, key, out); break;
  case MS_T_FREE: ms_json_out_node(out, key, *(JsonNode *const *)member); break;
  case MS_T_CUSTOM: field->print(out, key, member); break;
  }
}

/* The text of a value alone, to compare it with the text of its default. */
static char *field_text(const MsField *field, const void *object) {
  MsJsonOut *out = ms_json_out_new(0);
  write_field(field, object, NULL, FALSE, out);
  return ms_json_out_take(out);
}

static char *default_text(const MsField *field) {
  static const char *const nothing[] = {
      [MS_T_INT] = "0",    [MS_T_F64] = "0",     [MS_T_BOOL] = "false", [MS_T_STRING] = "null", [MS_T_ENUM] = "",
      [MS_T_WORDS] = "[]", [MS_T_OBJECT] = "{}", [MS_T_FREE] = "null",  [MS_T_CUSTOM] = "null"};
  if (!field->fallback) return g_strdup(field->flags & MS_NULLABLE ? "null" : nothing[field->type]);
  g_autoptr(MsJson) doc = ms_json_parse(field->fallback, -1, "default", NULL);
  return ms_json_text(ms_json_root(doc), 0);
}

static gboolean is_default(const MsField *field, const void *object) {
  if (field->type == MS_T_CUSTOM && !field->fallback) return FALSE;
  g_autofree char *is = field_text(field, object),
                  *was = field->type == MS_T_OBJECT ? g_strdup("{}") : default_text(field);
  return strcmp(is, was) == 0;
}

static gboolean is_written(const MsField *field) {
  return field->type == MS_T_CUSTOM ? field->print != NULL : field->offset != MS_NO_OFFSET;
}

void ms_field_write(const MsField *field, const void *object, gboolean all, MsJsonOut *out) {
  if (is_written(field) && (all || !is_default(field, object))) write_field(field, object, field->key, all, out);
}

void ms_fields_write(const MsFieldTable *table, const void *object, gboolean all, MsJsonOut *out) {
  for (const MsField *field = table->fields; field->key; field++) ms_field_write(field, object, all, out);
}

void ms_fields_object(const MsFieldTable *table, const void *object, gboolean all, const char *key, MsJsonOut *out) {
  ms_json_out_object(out, key);
  ms_fields_write(table, object, all, out);
  ms_json_out_end(out);
}

char *ms_fields_text(const MsFieldTable *table, const void *object, int indent) {
  MsJsonOut *out = ms_json_out_new(indent);
  ms_fields_object(table, object, TRUE, NULL, out);
  return ms_json_out_take(out);
}

JsonNode *ms_fields_node(const MsFieldTable *table, const void *object, gboolean all) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_fields_object(table, object, all, NULL, out);
  return ms_json_out_take_node(out);
}

JsonNode *ms_field_node(const MsField *field, const void *object, gboolean all) {
  const MsFieldTable alone = {"", "", (const MsField[]){*field, {0}}};
  g_autoptr(JsonNode) written = ms_fields_node(&alone, object, all);
  JsonNode *node = json_object_get_member(json_node_get_object(written), field->key);
  return node ? ms_json_copy(node) : NULL;
}

/* --- ownership ---------------------------------------------------------------------------------------------------- */
static void clear_field(const MsField *field, void *object) {
  if (field->offset == MS_NO_OFFSET) return;
  if (field->type == MS_T_OBJECT) ms_fields_clear(field->sub, AT(void, object, field));
  if (field->type == MS_T_STRING) g_clear_pointer(AT(char *, object, field), g_free);
  if (field->type == MS_T_FREE) g_clear_pointer(AT(JsonNode *, object, field), json_node_unref);
}

void ms_fields_clear(const MsFieldTable *table, void *object) {
  for (const MsField *field = table->fields; field->key; field++) clear_field(field, object);
}

static void share_node(JsonNode *from, JsonNode **to) { *to = from ? json_node_ref(from) : NULL; }

static void copy_field(const MsField *field, const void *from, void *to) {
  const void *source = AT(const void, from, field);
  void *target = AT(void, to, field);
  switch (field->type) {
  case MS_T_INT:
  case MS_T_ENUM: *(int *)target = *(const int *)source; break;
  case MS_T_BOOL: *(gboolean *)target = *(const gboolean *)source; break;
  case MS_T_F64: *(double *)target = *(const double *)source; break;
  case MS_T_WORDS: *(guint32 *)target = *(const guint32 *)source; break;
  case MS_T_STRING: *(char **)target = g_strdup(*(char *const *)source); break;
  case MS_T_OBJECT: ms_fields_copy(field->sub, source, target); break;
  case MS_T_FREE: share_node(*(JsonNode *const *)source, target); break;
  case MS_T_CUSTOM: break;
  }
}

void ms_fields_copy(const MsFieldTable *table, const void *from, void *to) {
  for (const MsField *field = table->fields; field->key; field++)
    if (field->offset != MS_NO_OFFSET) copy_field(field, from, to);
}

/* --- reference ---------------------------------------------------------------------------------------------------- */
static const char *type_text(const MsField *field) {
  static const char *const names[] = {"integer",       "number", "true|false", "string",     "word",
                                      "list of words", "object", "any",        "see meaning"};
  return names[field->type];
}

static char *range_text(const MsField *field) {
  char lo[32], hi[32];
  if (!has_range(field)) return g_strdup("");
  ms_double_text(field->lo, lo);
  return g_strdup_printf("[%s, %s]", lo, ms_double_text(field->hi, hi));
}

static const char *default_column(const MsField *field) {
  if (field->flags & MS_REQUIRED) return "required";
  if (field->flags & MS_AUTO) return "auto";
  if (field->fallback) return field->fallback;
  if (field->type == MS_T_OBJECT && !(field->flags & MS_NULLABLE) && field->offset != MS_NO_OFFSET) return "{}";
  return field->flags & MS_NULLABLE ? "null" : "-";
}

static char *meaning(const MsField *field) {
  g_autofree char *words = field->words ? g_strjoinv("|", (char **)field->words) : NULL;
  return g_strdup_printf("%s%s%s", field->doc ? field->doc : "", words ? ": " : "", words ? words : "");
}

static void schema_row(const MsField *field, MsTable *rows) {
  g_autofree char *range = range_text(field), *text = meaning(field);
  ms_table_cellf(rows, "  %s", field->key);
  ms_table_cell(rows, type_text(field));
  ms_table_cell(rows, field->unit);
  ms_table_cell(rows, range);
  ms_table_cell(rows, default_column(field));
  ms_table_cell(rows, text);
}

void ms_fields_schema(const MsFieldTable *table, GString *out) {
  static const char *const titles[] = {"  key", "type", "unit", "range", "default", "meaning"};
  MsTable *rows = ms_table_new();
  g_string_append_printf(out, "%s%s: %s\n", out->len ? "\n" : "", table->name, table->doc);
  for (guint i = 0; i < G_N_ELEMENTS(titles); i++) ms_table_column(rows, titles[i], FALSE);
  for (const MsField *field = table->fields; field->key; field++) schema_row(field, rows);
  char *text = ms_table_take(rows);
  g_string_append(out, text);
  g_free(text);
  for (const MsField *field = table->fields; field->key; field++)
    if (field->sub) ms_fields_schema(field->sub, out);
}

/* Markdown takes "|" as the next cell and "<" as HTML. */
static void markdown_cell(GString *out, const char *text) {
  for (const char *c = text; *c; c++)
    if (*c == '|') g_string_append(out, "\\|");
    else if (*c == '<') g_string_append(out, "&lt;");
    else g_string_append_c(out, *c);
  g_string_append(out, " | ");
}

/* The meaning with a sentence for each word, where its table has one: too long for a terminal. */
static char *long_meaning(const MsField *field) {
  const char *const *sentence = field->words ? ms_word_sentences(field->words) : NULL;
  if (!sentence) return meaning(field);
  GString *text = g_string_new(field->doc);
  for (int i = 0; field->words[i]; i++)
    g_string_append_printf(text, "%s `%s` (%s)", i ? "," : ":", field->words[i], sentence[i]);
  return g_string_free(text, FALSE);
}

static void markdown_row(const MsField *field, GString *out) {
  g_autofree char *range = range_text(field), *text = long_meaning(field);
  g_string_append_printf(out, "| `%s` | ", field->key);
  const char *const cells[] = {type_text(field), field->unit ? field->unit : "", range, default_column(field), text};
  for (guint i = 0; i < G_N_ELEMENTS(cells); i++) markdown_cell(out, cells[i]);
  while (out->str[out->len - 1] == ' ') g_string_truncate(out, out->len - 1);
  g_string_append_c(out, '\n');
}

void ms_fields_markdown(const MsFieldTable *table, GString *out) {
  g_string_append_printf(
      out, "\n## %s\n\n%s\n\n| key | type | unit | range | default | meaning |\n|---|---|---|---|---|---|\n",
      table->name, table->doc);
  for (const MsField *field = table->fields; field->key; field++) markdown_row(field, out);
  for (const MsField *field = table->fields; field->key; field++)
    if (field->sub) ms_fields_markdown(field->sub, out);
}
