#include "study/knobs.h"

static void flatten(GHashTable *to, const char *path, JsonNode *node) {
  if (JSON_NODE_HOLDS_OBJECT(node) && !g_str_equal(path, "options.recompute")) {
    JsonObjectIter iter;
    const char *key;
    JsonNode *member;
    json_object_iter_init(&iter, json_node_get_object(node));
    while (json_object_iter_next(&iter, &key, &member)) {
      g_autofree char *inner = g_strconcat(path, ".", key, NULL);
      flatten(to, inner, member);
    }
    return;
  }
  g_autoptr(JsonGenerator) text = json_generator_new();
  json_generator_set_root(text, node);
  g_hash_table_insert(to, g_strdup(path), json_generator_to_data(text, NULL));
}

GHashTable *ms_knobs_of(JsonNode *root) {
  static const char *const parts[] = {"model", "hardware", "gpus", "training", "layout", "options"};
  GHashTable *knobs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  JsonObject *object = ms_json_object(root);
  for (guint i = 0; object && i < G_N_ELEMENTS(parts); i++) {
    JsonNode *node = json_object_get_member(object, parts[i]);
    if (node) flatten(knobs, parts[i], node);
  }
  return knobs;
}

GHashTable *ms_knobs_of_scenario(const MsScenario *scenario) {
  g_autoptr(JsonNode) node = ms_scenario_node(scenario);
  return ms_knobs_of(node);
}

static gboolean is_foreign(gpointer path, gpointer value, gpointer user) {
  (void)value, (void)user;
  return !g_str_has_prefix(path, "layout.") && !g_str_has_prefix(path, "training.") &&
         !g_str_has_prefix(path, "options.");
}

GHashTable *ms_knobs_of_layout(const MsScenario *scenario) {
  GHashTable *knobs = ms_knobs_of_scenario(scenario);
  g_hash_table_foreach_remove(knobs, is_foreign, NULL);
  return knobs;
}

gboolean ms_knobs_differ(GHashTable *const *knobs, guint n, const char *path) {
  for (guint i = 1; i < n; i++)
    if (g_strcmp0(g_hash_table_lookup(knobs[i], path), g_hash_table_lookup(knobs[0], path)) != 0) return TRUE;
  return FALSE;
}
