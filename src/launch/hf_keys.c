/* src/launch/hf_keys.c - one key of a config.json, and what is wrong with it. */
#include "launch/hf_keys_priv.h"

const char *ms_hf_path(const MsHf *c, const char *key) {
  g_autofree char *path = g_strconcat(c->within, key, NULL);
  return g_intern_string(path);
}

gboolean ms_hf_bad(const MsHf *c, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_json_error(c->doc, ms_hf_path(c, key), c->error, "%s", text);
}

JsonNode *ms_hf_take(MsHf *c, const char *key) {
  JsonNode *node = json_object_get_member(c->json, key);
  if (!node) return NULL;
  g_hash_table_add(c->used, (gpointer)key);
  return JSON_NODE_HOLDS_NULL(node) ? NULL : node;
}

gboolean ms_hf_take_int(MsHf *c, const char *key, int absent, int hi, int *value) {
  JsonNode *node = ms_hf_take(c, key);
  *value = absent;
  if (!node) return TRUE;
  gboolean integer = ms_json_is(node, G_TYPE_INT64);
  if (!integer || json_node_get_int(node) < 0 || json_node_get_int(node) > hi)
    return ms_hf_bad(c, key, "must be an integer in [0, %d]", hi);
  *value = (int)json_node_get_int(node);
  return TRUE;
}

const char *ms_hf_take_string(MsHf *c, const char *key) {
  JsonNode *node = ms_hf_take(c, key);
  return ms_json_string(node);
}

gboolean ms_hf_is_true(MsHf *c, const char *key) {
  JsonNode *node = ms_hf_take(c, key);
  return ms_json_is(node, G_TYPE_BOOLEAN) && json_node_get_boolean(node);
}

gboolean ms_hf_take_words(MsHf *c, const char *key, char ***words) {
  JsonNode *node = ms_hf_take(c, key);
  *words = NULL;
  if (!node) return TRUE;
  JsonArray *list = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
  guint n = list ? json_array_get_length(list) : 0;
  if (n == 0 || n > MS_HF_MOST_LAYERS) return ms_hf_bad(c, key, "must be a list of 1 to %d words", MS_HF_MOST_LAYERS);
  g_auto(GStrv) copy = g_new0(char *, n + 1);
  for (guint i = 0; i < n; i++) {
    JsonNode *one = json_array_get_element(list, i);
    if (!ms_json_is(one, G_TYPE_STRING)) return ms_hf_bad(c, key, "must be a list of words");
    copy[i] = g_strdup(json_node_get_string(one));
  }
  *words = g_steal_pointer(&copy);
  return TRUE;
}

void ms_hf_remark(MsHf *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = g_strdup_vprintf(format, args);
  va_end(args);
  g_ptr_array_add(c->remarks, text);
}
