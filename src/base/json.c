/* src/base/json.c - documents: a checked tree, its text (for lines) and its name. */
#include "base/json.h"

#include "base/err.h"
#include "base/io.h"
#include "base/json_priv.h"

#include <math.h>
#include <string.h>

struct MsJson {
  char *filename, *text;
  size_t length; /* of the text */
  JsonNode *root;
};

/* Takes `text`. */
static MsJson *document(char *text, size_t length, const char *filename) {
  MsJson *doc = g_new0(MsJson, 1);
  *doc = (MsJson){.filename = g_strdup(filename), .text = text, .length = length};
  return doc;
}

/* Takes `doc`, which may be NULL. */
static MsJson *built(MsJson *doc, GError **error) {
  if (doc && !ms_json_build(doc, error)) g_clear_pointer(&doc, ms_json_free);
  return doc;
}

MsJson *ms_json_parse(const char *text, gssize length, const char *filename, GError **error) {
  size_t n = length < 0 ? strlen(text) : (size_t)length;
  char *copy = g_malloc(n + 1);
  memcpy(copy, text, n);
  copy[n] = '\0';
  return built(document(copy, n, filename), error);
}

MsJson *ms_json_open(const char *filename, GError **error) {
  gsize length;
  char *text = ms_read_file(filename, MS_JSON_MAX_BYTES, &length, error);
  return text ? document(text, length, strcmp(filename, "-") == 0 ? "<stdin>" : filename) : NULL;
}

gboolean ms_json_build(MsJson *doc, GError **error) {
  doc->root = ms_json_scan(doc->text, doc->length, doc->filename, error);
  return doc->root != NULL;
}

MsJson *ms_json_load(const char *filename, GError **error) { return built(ms_json_open(filename, error), error); }

gboolean ms_json_take(const MsJson *doc, MsJsonTake take, gpointer user) {
  return ms_json_walk(doc->text, doc->length, take, user);
}

void ms_json_free(MsJson *doc) {
  if (!doc) return;
  g_clear_pointer(&doc->root, json_node_unref);
  g_free(doc->filename);
  g_free(doc->text);
  g_free(doc);
}

JsonNode *ms_json_root(const MsJson *doc) { return doc->root; }
const char *ms_json_filename(const MsJson *doc) { return doc->filename; }
int ms_json_line(const MsJson *doc, const char *path) { return ms_json_locate(doc->text, path ? path : ""); }

gboolean ms_json_error(const MsJson *doc, const char *path, GError **error, const char *format, ...) {
  if (!error) return FALSE;
  va_list args;
  va_start(args, format);
  char *message = g_strdup_vprintf(format, args);
  va_end(args);
  ms_input_error(error, doc ? doc->filename : NULL, doc ? ms_json_line(doc, path) : 0, path, "%s", message);
  g_free(message);
  return FALSE;
}

gboolean ms_json_error_inside(const MsJson *doc, const char *path, GError **error, GError *inner) {
  const char *text = ms_error_text(inner->message, ms_json_filename(doc)), *colon = strstr(text, ": ");
  g_autofree char *full = colon ? g_strdup_printf("%s.%.*s", path, (int)(colon - text), text) : g_strdup(path);
  ms_json_error(doc, full, error, "%s", colon ? colon + 2 : text);
  g_error_free(inner);
  return FALSE;
}

gboolean ms_json_is(JsonNode *node, GType type) {
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == type;
}

const char *ms_json_string(JsonNode *node) {
  return ms_json_is(node, G_TYPE_STRING) ? json_node_get_string(node) : NULL;
}

double ms_json_number(JsonNode *node) {
  return ms_json_is(node, G_TYPE_INT64) || ms_json_is(node, G_TYPE_DOUBLE) ? json_node_get_double(node) : (double)NAN;
}

JsonObject *ms_json_object(JsonNode *node) {
  return node && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

JsonArray *ms_json_array(JsonNode *node) {
  return node && JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
}

JsonNode *ms_json_member(JsonObject *object, const char *key) {
  return object ? json_object_get_member(object, key) : NULL;
}

MsJsonMember ms_json_members(JsonObject *object) {
  MsJsonMember at = {.key = NULL};
  json_object_iter_init_ordered(&at.iter, object);
  return at;
}

gboolean ms_json_next(MsJsonMember *at) { return json_object_iter_next_ordered(&at->iter, &at->key, &at->value); }

JsonArray *ms_json_need_list(const MsJson *doc, const char *key, GError **error) {
  JsonArray *list = ms_json_array(ms_json_member(ms_json_object(ms_json_root(doc)), key));
  if (!list) ms_json_error(doc, "", error, "must be an object with a list \"%s\"", key);
  return list;
}

gboolean ms_json_need_object(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  return JSON_NODE_HOLDS_OBJECT(node) || ms_json_error(doc, path, error, "must be an object");
}

/* --- copies ---------------------------------------------------------------------------------------------------- */
static JsonNode *copy_value(JsonNode *node, JsonNode *copy) {
  switch (json_node_get_value_type(node)) {
  case G_TYPE_STRING: return json_node_init_string(copy, json_node_get_string(node));
  case G_TYPE_BOOLEAN: return json_node_init_boolean(copy, json_node_get_boolean(node));
  case G_TYPE_INT64: return json_node_init_int(copy, json_node_get_int(node));
  case G_TYPE_DOUBLE: return json_node_init_double(copy, json_node_get_double(node));
  default: MS_BUG("a value of JSON is neither a string nor a number nor a truth");
  }
}

JsonNode *ms_json_copy(JsonNode *node) {
  JsonNode *copy = json_node_alloc();
  if (JSON_NODE_HOLDS_ARRAY(node)) {
    JsonArray *from = json_node_get_array(node), *to = json_array_new();
    for (guint i = 0; i < json_array_get_length(from); i++)
      json_array_add_element(to, ms_json_copy(json_array_get_element(from, i)));
    json_node_take_array(json_node_init(copy, JSON_NODE_ARRAY), to);
  } else if (JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *to = json_object_new();
    for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);)
      json_object_set_member(to, at.key, ms_json_copy(at.value));
    json_node_take_object(json_node_init(copy, JSON_NODE_OBJECT), to);
  } else if (JSON_NODE_HOLDS_NULL(node)) {
    json_node_init_null(copy);
  } else {
    copy_value(node, copy);
  }
  return copy;
}

JsonNode *ms_json_of_word(const char *text) {
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, NULL, NULL);
  JsonNode *node = doc ? ms_json_root(doc) : NULL;
  if (node && (JSON_NODE_HOLDS_VALUE(node) || JSON_NODE_HOLDS_NULL(node))) return ms_json_copy(node);
  return json_node_init_string(json_node_alloc(), text);
}
