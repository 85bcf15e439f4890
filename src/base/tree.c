/* src/base/tree.c - nodes of JSON. */
#include "base/tree.h"

#include <string.h>

struct JsonNode {
  gint refs;
  JsonKind kind;
  union {
    gint64 whole; /* of a truth too */
    double number;
    char *text;
    JsonArray *array;
    JsonObject *object;
  };
};

struct JsonArray {
  gint refs;
  guint n, room;
  JsonNode **element;
};

typedef struct {
  char *key;
  JsonNode *node;
} Member;

struct JsonObject {
  gint refs;
  guint n, room;
  Member *member;
  GHashTable *place; /* key: number + 1, when there are more than FEW; NULL: not yet */
};

enum { FEW = 16 };

/* --- nodes ----------------------------------------------------------------------------------------------------- */

JsonNode *json_node_alloc(void) {
  JsonNode *node = g_new(JsonNode, 1);
  *node = (JsonNode){.refs = 1, .kind = JSON_NULL};
  return node;
}

static void clear(JsonNode *node) {
  if (node->kind == JSON_STRING) g_free(node->text);
  else if (node->kind == JSON_ARRAY) json_array_unref(node->array);
  else if (node->kind == JSON_OBJECT) json_object_unref(node->object);
}

JsonNode *json_node_ref(JsonNode *node) {
  g_atomic_int_inc(&node->refs);
  return node;
}

void json_node_unref(JsonNode *node) {
  if (!g_atomic_int_dec_and_test(&node->refs)) return;
  clear(node);
  g_free(node);
}

/* A node of that kind in its place, its value still to come. */
static JsonNode *become(JsonNode *node, JsonKind kind) {
  clear(node);
  node->kind = kind;
  return node;
}

JsonNode *json_node_init_boolean(JsonNode *node, gboolean value) {
  become(node, JSON_BOOLEAN)->whole = value != 0;
  return node;
}

JsonNode *json_node_init_int(JsonNode *node, gint64 value) {
  become(node, JSON_INT)->whole = value;
  return node;
}

JsonNode *json_node_init_double(JsonNode *node, double value) {
  become(node, JSON_DOUBLE)->number = value;
  return node;
}

JsonNode *json_node_init_string(JsonNode *node, const char *value) {
  char *text = g_strdup(value); /* it may be the node's own */
  become(node, JSON_STRING)->text = text;
  return node;
}

JsonNode *json_node_take_array(JsonNode *node, JsonArray *array) {
  become(node, JSON_ARRAY)->array = array;
  return node;
}

JsonNode *json_node_take_object(JsonNode *node, JsonObject *object) {
  become(node, JSON_OBJECT)->object = object;
  return node;
}

JsonNode *json_node_init_array(JsonNode *node, JsonArray *array) {
  g_atomic_int_inc(&array->refs);
  return json_node_take_array(node, array);
}

JsonNode *json_node_init_object(JsonNode *node, JsonObject *object) {
  return json_node_take_object(node, json_object_ref(object));
}

JsonKind json_node_kind(const JsonNode *node) { return node ? node->kind : JSON_NULL; }
gboolean json_node_holds(const JsonNode *node, JsonKind kind) { return node && node->kind == kind; }

const char *json_node_get_string(const JsonNode *node) {
  return json_node_holds(node, JSON_STRING) ? node->text : NULL;
}
JsonArray *json_node_get_array(const JsonNode *node) { return JSON_NODE_HOLDS_ARRAY(node) ? node->array : NULL; }
JsonObject *json_node_get_object(const JsonNode *node) { return JSON_NODE_HOLDS_OBJECT(node) ? node->object : NULL; }

gint64 json_node_get_int(const JsonNode *node) {
  JsonKind kind = json_node_kind(node);
  return kind == JSON_INT || kind == JSON_BOOLEAN ? node->whole : kind == JSON_DOUBLE ? (gint64)node->number : 0;
}

double json_node_get_double(const JsonNode *node) {
  JsonKind kind = json_node_kind(node);
  return kind == JSON_DOUBLE ? node->number : kind == JSON_INT || kind == JSON_BOOLEAN ? (double)node->whole : 0;
}

gboolean json_node_get_boolean(const JsonNode *node) { return json_node_get_double(node) != 0; }

static gboolean equal_arrays(const JsonArray *a, const JsonArray *b) {
  gboolean equal = a->n == b->n;
  for (guint i = 0; equal && i < a->n; i++) equal = json_node_equal(a->element[i], b->element[i]);
  return equal;
}

static gboolean equal_objects(const JsonObject *a, const JsonObject *b) {
  gboolean equal = a->n == b->n;
  for (guint i = 0; equal && i < a->n; i++)
    equal = json_node_equal(a->member[i].node, json_object_get_member(b, a->member[i].key));
  return equal;
}

static gboolean is_number(const JsonNode *node) { return node->kind == JSON_INT || node->kind == JSON_DOUBLE; }

gboolean json_node_equal(const JsonNode *a, const JsonNode *b) {
  if (a == b || !a || !b) return a == b;
  if (a->kind != b->kind) return is_number(a) && is_number(b) && json_node_get_double(a) == json_node_get_double(b);
  switch (a->kind) {
  case JSON_NULL: return TRUE;
  case JSON_DOUBLE: return a->number == b->number;
  case JSON_STRING: return g_strcmp0(a->text, b->text) == 0;
  case JSON_ARRAY: return equal_arrays(a->array, b->array);
  case JSON_OBJECT: return equal_objects(a->object, b->object);
  default: return a->whole == b->whole;
  }
}

/* --- lists ------------------------------------------------------------------------------------------------------ */

JsonArray *json_array_new(void) {
  JsonArray *array = g_new(JsonArray, 1);
  *array = (JsonArray){.refs = 1};
  return array;
}

void json_array_unref(JsonArray *array) {
  if (!g_atomic_int_dec_and_test(&array->refs)) return;
  for (guint i = 0; i < array->n; i++) json_node_unref(array->element[i]);
  g_free(array->element);
  g_free(array);
}

void json_array_add_element(JsonArray *array, JsonNode *node) {
  if (array->n == array->room) {
    array->room = MAX(4, 2 * array->room);
    array->element = g_renew(JsonNode *, array->element, array->room);
  }
  array->element[array->n++] = node;
}

void json_array_add_string_element(JsonArray *array, const char *value) {
  json_array_add_element(array, json_node_init_string(json_node_alloc(), value));
}

guint json_array_get_length(const JsonArray *array) { return array->n; }

JsonNode *json_array_get_element(const JsonArray *array, guint i) { return i < array->n ? array->element[i] : NULL; }

const char *json_array_get_string_element(const JsonArray *array, guint i) {
  return json_node_get_string(json_array_get_element(array, i));
}

gint64 json_array_get_int_element(const JsonArray *array, guint i) {
  return json_node_get_int(json_array_get_element(array, i));
}

double json_array_get_double_element(const JsonArray *array, guint i) {
  return json_node_get_double(json_array_get_element(array, i));
}

JsonObject *json_array_get_object_element(const JsonArray *array, guint i) {
  return json_node_get_object(json_array_get_element(array, i));
}

/* --- objects ---------------------------------------------------------------------------------------------------- */

JsonObject *json_object_new(void) {
  JsonObject *object = g_new(JsonObject, 1);
  *object = (JsonObject){.refs = 1};
  return object;
}

JsonObject *json_object_ref(JsonObject *object) {
  g_atomic_int_inc(&object->refs);
  return object;
}

void json_object_unref(JsonObject *object) {
  if (!g_atomic_int_dec_and_test(&object->refs)) return;
  g_clear_pointer(&object->place, g_hash_table_unref);
  for (guint i = 0; i < object->n; i++) g_free(object->member[i].key), json_node_unref(object->member[i].node);
  g_free(object->member);
  g_free(object);
}

guint json_object_get_size(const JsonObject *object) { return object->n; }

static Member *find(const JsonObject *object, const char *key) {
  if (object->place) {
    guint number = GPOINTER_TO_UINT(g_hash_table_lookup(object->place, key));
    return number ? &object->member[number - 1] : NULL;
  }
  for (guint i = 0; i < object->n; i++)
    if (strcmp(object->member[i].key, key) == 0) return &object->member[i];
  return NULL;
}

/* As soon as there are many: whoever only reads must not change it. */
static void number_members(JsonObject *object) {
  g_clear_pointer(&object->place, g_hash_table_unref);
  if (object->n <= FEW) return;
  object->place = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < object->n; i++)
    g_hash_table_insert(object->place, object->member[i].key, GUINT_TO_POINTER(i + 1));
}

static void add(JsonObject *object, Member member) {
  if (object->n == object->room) {
    object->room = MAX(4, 2 * object->room);
    object->member = g_renew(Member, object->member, object->room);
  }
  object->member[object->n++] = member;
  if (object->place) g_hash_table_insert(object->place, member.key, GUINT_TO_POINTER(object->n));
  else if (object->n > FEW) number_members(object);
}

gboolean json_object_has_member(const JsonObject *object, const char *key) { return find(object, key) != NULL; }

JsonNode *json_object_get_member(const JsonObject *object, const char *key) {
  const Member *member = find(object, key);
  return member ? member->node : NULL;
}

const char *json_object_get_string_member(const JsonObject *object, const char *key) {
  return json_node_get_string(json_object_get_member(object, key));
}

gint64 json_object_get_int_member(const JsonObject *object, const char *key) {
  return json_node_get_int(json_object_get_member(object, key));
}

double json_object_get_double_member(const JsonObject *object, const char *key) {
  return json_node_get_double(json_object_get_member(object, key));
}

gboolean json_object_get_boolean_member(const JsonObject *object, const char *key) {
  return json_node_get_boolean(json_object_get_member(object, key));
}

JsonArray *json_object_get_array_member(const JsonObject *object, const char *key) {
  return json_node_get_array(json_object_get_member(object, key));
}

JsonObject *json_object_get_object_member(const JsonObject *object, const char *key) {
  return json_node_get_object(json_object_get_member(object, key));
}

void json_object_set_member(JsonObject *object, const char *key, JsonNode *node) {
  Member *member = find(object, key);
  if (!node) node = json_node_alloc();
  if (!member) {
    add(object, (Member){g_strdup(key), node});
    return;
  }
  JsonNode *before = member->node;
  member->node = node;
  json_node_unref(before);
}

void json_object_set_null_member(JsonObject *object, const char *key) {
  json_object_set_member(object, key, json_node_alloc());
}

void json_object_set_int_member(JsonObject *object, const char *key, gint64 value) {
  json_object_set_member(object, key, json_node_init_int(json_node_alloc(), value));
}

void json_object_set_double_member(JsonObject *object, const char *key, double value) {
  json_object_set_member(object, key, json_node_init_double(json_node_alloc(), value));
}

void json_object_set_string_member(JsonObject *object, const char *key, const char *value) {
  json_object_set_member(object, key, json_node_init_string(json_node_alloc(), value));
}

void json_object_set_array_member(JsonObject *object, const char *key, JsonArray *array) {
  json_object_set_member(object, key, json_node_take_array(json_node_alloc(), array));
}

void json_object_set_object_member(JsonObject *object, const char *key, JsonObject *value) {
  json_object_set_member(object, key, json_node_take_object(json_node_alloc(), value));
}

void json_object_remove_member(JsonObject *object, const char *key) {
  Member *member = find(object, key);
  if (!member) return;
  Member gone = *member;
  guint behind = --object->n - (guint)(member - object->member);
  memmove(member, member + 1, behind * sizeof *member);
  if (object->place) number_members(object);
  g_free(gone.key);
  json_node_unref(gone.node);
}

GList *json_object_get_members(const JsonObject *object) {
  GList *all = NULL;
  for (guint i = object->n; i-- > 0;) all = g_list_prepend(all, object->member[i].key);
  return all;
}

GList *json_object_get_values(const JsonObject *object) {
  GList *all = NULL;
  for (guint i = object->n; i-- > 0;) all = g_list_prepend(all, object->member[i].node);
  return all;
}

void json_object_iter_init_ordered(JsonObjectIter *iter, const JsonObject *object) {
  *iter = (JsonObjectIter){object, 0};
}

gboolean json_object_iter_next_ordered(JsonObjectIter *iter, const char **key, JsonNode **node) {
  if (iter->at >= iter->object->n) return FALSE;
  const Member *member = &iter->object->member[iter->at++];
  if (key) *key = member->key;
  if (node) *node = member->node;
  return TRUE;
}
