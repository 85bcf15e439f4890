/* src/describe/open.c - keys that a plan request leaves open. */
#include "describe/rows.h"

/* A list of words is one value of such a key, a list of lists is many. */
static gboolean is_list_of_values(const MsField *field, JsonNode *node) {
  if (!JSON_NODE_HOLDS_ARRAY(node)) return FALSE;
  if (field->type != MS_T_WORDS) return TRUE;
  JsonArray *array = json_node_get_array(node);
  return json_array_get_length(array) > 0 && JSON_NODE_HOLDS_ARRAY(json_array_get_element(array, 0));
}

static gboolean is_range(JsonNode *node) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return FALSE;
  JsonObject *json = json_node_get_object(node);
  return json_object_has_member(json, "from") || json_object_has_member(json, "to");
}

gboolean ms_field_is_open(const MsField *field, JsonNode *node) {
  return (field->flags & MS_OPEN) &&
         (g_strcmp0(ms_json_string(node), "auto") == 0 || is_list_of_values(field, node) || is_range(node));
}

char *ms_first_open(const MsFieldTable *table, JsonObject *json, const char *path) {
  char *found = NULL;
  for (MsJsonMember at = ms_json_members(json); !found && ms_json_next(&at);) {
    const MsField *field = ms_field_find(table, at.key);
    g_autofree char *full = *path ? g_strconcat(path, ".", at.key, NULL) : g_strdup(at.key);
    if (!field) continue;
    if (ms_field_is_open(field, at.value) && !ms_field_is_auto(field, at.value)) found = g_steal_pointer(&full);
    else if (field->type == MS_T_OBJECT && JSON_NODE_HOLDS_OBJECT(at.value))
      found = ms_first_open(field->sub, json_node_get_object(at.value), full);
  }
  return found;
}
