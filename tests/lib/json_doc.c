#include "lib/json_doc.h"

#include "lib/close.h"

#include <string.h>

typedef struct {
  char *text; /* "stages[].peak_B" */
  GStrv step; /* "stages", "[]", "peak_B" */
  guint n;
  GStrv type; /* words between " or " */
  gboolean optional, rare, met;
} Row;

struct MsJsonDoc {
  GHashTable *table;
}; /* name -> GPtrArray of Row */

static void row_free(gpointer data) {
  Row *row = data;
  g_free(row->text), g_strfreev(row->step), g_strfreev(row->type);
  g_free(row);
}

static GStrv steps_of(const char *text) {
  g_auto(GStrv) spaced = g_strsplit(text, "[]", -1);
  g_autofree char *dotted = g_strjoinv(".[]", spaced);
  return g_strsplit(dotted, ".", -1);
}

/* "| `key` | type | unit | meaning |"; the key "." is the object itself */
static Row *row_of(const char *line) {
  g_auto(GStrv) cell = g_strsplit(line, "|", 6);
  guint n = g_strv_length(cell);
  if (n < 6 || cell[1][1] != '`') fail_msg("docs/json.md: no row: %s", line);
  for (guint i = 0; i < n; i++) g_strstrip(cell[i]);
  Row *row = g_new0(Row, 1);
  row->text = g_strndup(cell[1] + 1, strlen(cell[1]) - 2);
  row->step = steps_of(strcmp(row->text, ".") == 0 ? "" : row->text);
  row->n = g_strv_length(row->step);
  row->type = g_strsplit(cell[2], " or ", -1);
  row->optional = g_str_has_prefix(cell[4], "optional");
  row->rare = g_str_has_prefix(cell[4], "optional (rare");
  return row;
}

MsJsonDoc *ms_json_doc_load(const char *filename) {
  g_autofree char *text = NULL;
  if (!g_file_get_contents(filename, &text, NULL, NULL)) fail_msg("%s cannot be read", filename);
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  MsJsonDoc *doc = g_new0(MsJsonDoc, 1);
  doc->table = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
  GPtrArray *rows = NULL;
  for (int i = 0; line[i]; i++) {
    if (g_str_has_prefix(line[i], "## ")) {
      rows = g_ptr_array_new_with_free_func(row_free);
      g_hash_table_insert(doc->table, g_strdup(line[i] + 3), rows);
    } else if (rows && line[i][0] == '|' && !g_str_has_prefix(line[i], "| key |") &&
               !g_str_has_prefix(line[i], "|---")) {
      g_ptr_array_add(rows, row_of(line[i]));
    }
  }
  return doc;
}

void ms_json_doc_free(MsJsonDoc *doc) {
  if (!doc) return;
  g_hash_table_unref(doc->table);
  g_free(doc);
}

static GPtrArray *rows_of(const MsJsonDoc *doc, const char *name) {
  GPtrArray *rows = g_hash_table_lookup(doc->table, name);
  if (!rows) fail_msg("docs/json.md has no table %s", name);
  return rows;
}

/* --- one value against the rows that lead to it ---------------------------------------------------------------- */

typedef struct {
  MsJsonDoc *doc;
  const char *name;
  GPtrArray *rows, *at; /* steps from the top, char * */
} Walk;

/* The row starts with the steps so far. */
static gboolean leads_on(const Row *row, const GPtrArray *at) {
  if (row->n < at->len) return FALSE;
  for (guint i = 0; i < at->len; i++)
    if (strcmp(row->step[i], "*") != 0 && strcmp(row->step[i], at->pdata[i]) != 0) return FALSE;
  return TRUE;
}

static char *place(const Walk *w) {
  GString *text = g_string_new(w->name);
  for (guint i = 0; i < w->at->len; i++)
    g_string_append_printf(text, strcmp(w->at->pdata[i], "[]") ? ".%s" : "%s", (char *)w->at->pdata[i]);
  return g_string_free(text, FALSE);
}

static const char *type_of(JsonNode *node) {
  if (JSON_NODE_HOLDS_NULL(node)) return "null";
  if (JSON_NODE_HOLDS_OBJECT(node)) return "object";
  if (JSON_NODE_HOLDS_ARRAY(node)) return "list";
  GType type = json_node_get_value_type(node);
  return type == G_TYPE_STRING ? "string" : type == G_TYPE_BOOLEAN ? "bool" : "number";
}

/* Steps that must be there below this one: those of rows that are not optional. */
static void check_complete(const Walk *w, JsonObject *object) {
  for (guint i = 0; i < w->rows->len; i++) {
    const Row *row = w->rows->pdata[i];
    if (row->optional || row->n <= w->at->len || !leads_on(row, w->at) || *row->step[w->at->len] == '*') continue;
    if (!json_object_has_member(object, row->step[w->at->len])) {
      g_autofree char *where = place(w);
      fail_msg("%s has no %s, which docs/json.md lists", where, row->step[w->at->len]);
    }
  }
}

static void walk(Walk *w, JsonNode *node);

static void into(Walk *w, const char *step, JsonNode *node) {
  g_ptr_array_add(w->at, (char *)step);
  walk(w, node);
  g_ptr_array_set_size(w->at, (int)w->at->len - 1);
}

/* Whether the value is of the type; an object of a table is checked by that table, but for keys that the caller lists
 * beside. */
static gboolean is_of(Walk *w, const char *type, JsonNode *node) {
  if (strcmp(type, "file") == 0) return TRUE;
  if (!JSON_NODE_HOLDS_OBJECT(node) || !g_hash_table_contains(w->doc->table, type))
    return strcmp(type, type_of(node)) == 0;
  JsonObject *own = json_object_new();
  check_complete(w, json_node_get_object(node));
  g_autoptr(GList) keys = json_object_get_members(json_node_get_object(node));
  for (GList *key = keys; key; key = key->next) {
    gboolean beside = FALSE;
    g_ptr_array_add(w->at, key->data);
    for (guint i = 0; i < w->rows->len; i++) beside |= leads_on(w->rows->pdata[i], w->at);
    JsonNode *member = json_object_get_member(json_node_get_object(node), key->data);
    if (beside) walk(w, member);
    else json_object_set_member(own, key->data, ms_json_copy(member));
    g_ptr_array_set_size(w->at, (int)w->at->len - 1);
  }
  g_autoptr(JsonNode) rest = json_node_new(JSON_NODE_OBJECT);
  json_node_take_object(rest, own);
  ms_json_doc_check(w->doc, type, rest);
  return TRUE;
}

static void walk(Walk *w, JsonNode *node) {
  gboolean known = FALSE, inner = FALSE;
  for (guint i = 0; i < w->rows->len; i++) {
    Row *row = w->rows->pdata[i];
    if (!leads_on(row, w->at)) continue;
    if (row->n > w->at->len) {
      inner = TRUE;
      continue;
    }
    for (int k = 0; row->type[k] && !known; k++) known = is_of(w, row->type[k], node);
    row->met |= known;
    if (known) return;
  }
  if (inner && JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *object = json_node_get_object(node);
    g_autoptr(GList) keys = json_object_get_members(object);
    check_complete(w, object);
    for (GList *key = keys; key; key = key->next) into(w, key->data, json_object_get_member(object, key->data));
  } else if (inner && JSON_NODE_HOLDS_ARRAY(node)) {
    JsonArray *array = json_node_get_array(node);
    for (guint i = 0; i < json_array_get_length(array); i++) into(w, "[]", json_array_get_element(array, i));
  } else {
    g_autofree char *where = place(w);
    fail_msg("%s is a %s: docs/json.md does not list it so", where, type_of(node));
  }
}

void ms_json_doc_check(MsJsonDoc *doc, const char *name, JsonNode *node) {
  g_autoptr(GPtrArray) at = g_ptr_array_new();
  Walk w = {doc, name, rows_of(doc, name), at};
  if (!JSON_NODE_HOLDS_OBJECT(node)) fail_msg("%s is no object", name);
  walk(&w, node);
}

void ms_json_doc_check_met(const MsJsonDoc *doc, const char *name) {
  GPtrArray *rows = rows_of(doc, name);
  for (guint i = 0; i < rows->len; i++) {
    const Row *row = rows->pdata[i];
    if (!row->met && !row->rare) fail_msg("docs/json.md lists %s of %s, which nothing printed", row->text, name);
  }
}
