/* src/base/tree.h - JSON as a tree.
 *
 * Functions and types have the names of json-glib, in whose place this stands: programs that end after milliseconds
 * would spend one of them on linking GObject and GIO. In object files the names begin with ms_, so that a program may
 * have both. Nodes, lists and objects are counted atomically; whoever changes one must be the only one to have it.
 * Members keep the order in which they came. */
#ifndef MS_BASE_TREE_H
#define MS_BASE_TREE_H

#include <glib.h>

typedef enum { JSON_NULL, JSON_BOOLEAN, JSON_INT, JSON_DOUBLE, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;
typedef struct JsonNode JsonNode;
typedef struct JsonArray JsonArray;
typedef struct JsonObject JsonObject;
#define MS_LINK(name) __asm__("ms_json_" #name)

/* --- nodes ------------------------------------------------------------------------------------------------------ */
JsonNode *json_node_alloc(void) MS_LINK(node_alloc); /* a null */
JsonNode *json_node_ref(JsonNode *node) MS_LINK(node_ref);
void json_node_unref(JsonNode *node) MS_LINK(node_unref);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonNode, json_node_unref)

/* What stood in `node` before is let go; returns it. */
JsonNode *json_node_init_boolean(JsonNode *node, gboolean value) MS_LINK(node_init_boolean);
JsonNode *json_node_init_int(JsonNode *node, gint64 value) MS_LINK(node_init_int);
JsonNode *json_node_init_double(JsonNode *node, double value) MS_LINK(node_init_double);
JsonNode *json_node_init_string(JsonNode *node, const char *value) MS_LINK(node_init_string);
JsonNode *json_node_init_array(JsonNode *node, JsonArray *array) MS_LINK(node_init_array);
JsonNode *json_node_init_object(JsonNode *node, JsonObject *object) MS_LINK(node_init_object);
JsonNode *json_node_take_array(JsonNode *node, JsonArray *array) MS_LINK(node_take_array);     /* (transfer full) */
JsonNode *json_node_take_object(JsonNode *node, JsonObject *object) MS_LINK(node_take_object); /* (transfer full) */

/* Of NULL: JSON_NULL. */
JsonKind json_node_kind(const JsonNode *node) MS_LINK(node_kind);
gboolean json_node_holds(const JsonNode *node, JsonKind kind) MS_LINK(node_holds); /* FALSE of NULL */
#define JSON_NODE_HOLDS_NULL(node)   json_node_holds(node, JSON_NULL)
#define JSON_NODE_HOLDS_ARRAY(node)  json_node_holds(node, JSON_ARRAY)
#define JSON_NODE_HOLDS_OBJECT(node) json_node_holds(node, JSON_OBJECT)
/* A string, a number or a truth. */
#define JSON_NODE_HOLDS_VALUE(node) (json_node_kind(node) > JSON_NULL && json_node_kind(node) < JSON_ARRAY)

/* Borrowed; NULL of another kind. */
const char *json_node_get_string(const JsonNode *node) MS_LINK(node_get_string);
JsonArray *json_node_get_array(const JsonNode *node) MS_LINK(node_get_array);
JsonObject *json_node_get_object(const JsonNode *node) MS_LINK(node_get_object);
/* Numbers and truths become one another; 0 of all else. */
gint64 json_node_get_int(const JsonNode *node) MS_LINK(node_get_int);
double json_node_get_double(const JsonNode *node) MS_LINK(node_get_double);
gboolean json_node_get_boolean(const JsonNode *node) MS_LINK(node_get_boolean);
/* 4 equals 4.0; of objects the order does not count. */
gboolean json_node_equal(const JsonNode *a, const JsonNode *b) MS_LINK(node_equal);

/* --- lists ------------------------------------------------------------------------------------------------------- */
JsonArray *json_array_new(void) MS_LINK(array_new);
void json_array_unref(JsonArray *array) MS_LINK(array_unref);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonArray, json_array_unref)
void json_array_add_element(JsonArray *array, JsonNode *node) MS_LINK(array_add_element); /* takes it */
void json_array_add_string_element(JsonArray *array, const char *value) MS_LINK(array_add_string_element);
guint json_array_get_length(const JsonArray *array) MS_LINK(array_get_length);
JsonNode *json_array_get_element(const JsonArray *array, guint i)
    MS_LINK(array_get_element); /* borrowed; NULL behind the end */
const char *json_array_get_string_element(const JsonArray *array, guint i) MS_LINK(array_get_string_element);
gint64 json_array_get_int_element(const JsonArray *array, guint i) MS_LINK(array_get_int_element);
double json_array_get_double_element(const JsonArray *array, guint i) MS_LINK(array_get_double_element);
JsonObject *json_array_get_object_element(const JsonArray *array, guint i) MS_LINK(array_get_object_element);

/* --- objects ----------------------------------------------------------------------------------------------------- */
JsonObject *json_object_new(void) MS_LINK(object_new);
JsonObject *json_object_ref(JsonObject *object) MS_LINK(object_ref);
void json_object_unref(JsonObject *object) MS_LINK(object_unref);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonObject, json_object_unref)
guint json_object_get_size(const JsonObject *object) MS_LINK(object_get_size);
gboolean json_object_has_member(const JsonObject *object, const char *key) MS_LINK(object_has_member);
JsonNode *json_object_get_member(const JsonObject *object, const char *key)
    MS_LINK(object_get_member); /* borrowed; NULL: none */
/* As a node of that kind says it; 0 or NULL where there is none. */
const char *json_object_get_string_member(const JsonObject *object, const char *key) MS_LINK(object_get_string_member);
gint64 json_object_get_int_member(const JsonObject *object, const char *key) MS_LINK(object_get_int_member);
double json_object_get_double_member(const JsonObject *object, const char *key) MS_LINK(object_get_double_member);
gboolean json_object_get_boolean_member(const JsonObject *object, const char *key) MS_LINK(object_get_boolean_member);
JsonArray *json_object_get_array_member(const JsonObject *object, const char *key) MS_LINK(object_get_array_member);
JsonObject *json_object_get_object_member(const JsonObject *object, const char *key) MS_LINK(object_get_object_member);
/* In the place of what was there, else behind all others. Takes `node`; NULL is a null. */
void json_object_set_member(JsonObject *object, const char *key, JsonNode *node) MS_LINK(object_set_member);
void json_object_set_null_member(JsonObject *object, const char *key) MS_LINK(object_set_null_member);
void json_object_set_int_member(JsonObject *object, const char *key, gint64 value) MS_LINK(object_set_int_member);
void json_object_set_double_member(JsonObject *object, const char *key, double value) MS_LINK(object_set_double_member);
void json_object_set_string_member(JsonObject *object, const char *key, const char *value)
    MS_LINK(object_set_string_member);
void json_object_set_array_member(JsonObject *object, const char *key, JsonArray *array)
    MS_LINK(object_set_array_member); /* takes it */
void json_object_set_object_member(JsonObject *object, const char *key, JsonObject *value)
    MS_LINK(object_set_object_member); /* takes it */
void json_object_remove_member(JsonObject *object, const char *key) MS_LINK(object_remove_member);
/* In order; free the list only. (transfer container) */
GList *json_object_get_members(const JsonObject *object) MS_LINK(object_get_members);
GList *json_object_get_values(const JsonObject *object) MS_LINK(object_get_values);

typedef struct {
  const JsonObject *object;
  guint at;
} JsonObjectIter;
void json_object_iter_init_ordered(JsonObjectIter *iter, const JsonObject *object) MS_LINK(object_iter_init_ordered);
/* FALSE at the end; key and node are borrowed, and may be NULL. */
gboolean json_object_iter_next_ordered(JsonObjectIter *iter, const char **key, JsonNode **node)
    MS_LINK(object_iter_next_ordered);

#endif
