/* src/launch/mention.c - is this model one of the shipped ones, or nearly? */
#include "describe/scenario.h"
#include "launch/launch.h"

#include <string.h>

#include "launch/mention.h"

#define MOST_DIFFERENCES 12

/* All keys of a canonical model but its name. (transfer full) */
static JsonObject *keys_of(const MsModel *model) {
  JsonNode *node = ms_fields_node(&ms_model_table, model, TRUE);
  JsonObject *keys = json_object_ref(json_node_get_object(node));
  json_node_unref(node);
  static const char *const aside[] = {"schema", "name", "doc", "source", "of_a_study"};
  for (guint i = 0; i < G_N_ELEMENTS(aside); i++)
    if (json_object_has_member(keys, aside[i])) json_object_remove_member(keys, aside[i]);
  return keys;
}

/* An object at its defaults is written as null, which means "none". (transfer full) */
static JsonNode *none_or(const MsModel *plain, const char *key, JsonNode *node) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return ms_json_copy(node);
  JsonObject *keys = keys_of(plain);
  gboolean none = json_node_equal(json_object_get_member(keys, key), node);
  json_object_unref(keys);
  return none ? json_node_new(JSON_NODE_NULL) : ms_json_copy(node);
}

/* {"base": name, ...} with the members of `keys` that differ from those of `base`; NULL when more than MOST_DIFFERENCES
 * do. (transfer full) */
static JsonObject *differences(JsonObject *keys, JsonObject *base, const char *name) {
  JsonObject *result = json_object_new();
  json_object_set_string_member(result, "base", name);
  g_autoptr(GList) members = json_object_get_members(keys);
  g_autoptr(MsModel) plain = g_new0(MsModel, 1);
  ms_fields_defaults(&ms_model_table, plain);
  for (GList *m = members; m; m = m->next) {
    JsonNode *mine = json_object_get_member(keys, m->data), *its = json_object_get_member(base, m->data);
    if (!its || !json_node_equal(mine, its)) json_object_set_member(result, m->data, none_or(plain, m->data, mine));
  }
  if (json_object_get_size(result) <= MOST_DIFFERENCES + 1) return result;
  json_object_unref(result);
  return NULL;
}

gboolean ms_model_is_near(const MsModel *a, const MsModel *b) {
  return a->hidden_size == b->hidden_size && a->num_attention_heads == b->num_attention_heads &&
         a->num_experts == b->num_experts;
}

/* TRUE when the mention loads as the model it stands for. */
static gboolean stands_for(JsonNode *mention, const MsModel *model, JsonObject *keys) {
  g_autoptr(MsJson) doc = ms_json_doc(mention, "model");
  g_autoptr(MsModel) loaded = ms_model_from_json(doc, ms_json_root(doc), "", NULL);
  if (!loaded) return FALSE;
  ms_model_canonical(loaded, model->seq_length_max);
  JsonObject *its = keys_of(loaded), *rest = differences(keys, its, "");
  gboolean same = rest && json_object_get_size(rest) == 1;
  json_object_unref(its);
  g_clear_pointer(&rest, json_object_unref);
  return same;
}

static JsonNode *node_of(JsonObject *difference, const char *name) {
  JsonNode *node = json_node_new(JSON_NODE_VALUE);
  if (json_object_get_size(difference) == 1) json_node_set_string(node, name);
  else json_node_init_object(node, difference);
  return node;
}

/* The name itself when the shipped model of that name is this one: most are. */
static JsonNode *by_own_name(const MsModel *model, JsonObject *keys) {
  JsonNode *mention = json_node_new(JSON_NODE_VALUE);
  json_node_set_string(mention, model->name ? model->name : "");
  g_autoptr(GPtrArray) names = ms_data_names("models");
  gboolean shipped = model->name && g_strv_contains((const char *const *)names->pdata, model->name);
  if (!shipped || !stands_for(mention, model, keys)) g_clear_pointer(&mention, json_node_unref);
  return mention;
}

JsonNode *ms_model_mention(const MsModel *model) {
  g_autoptr(GPtrArray) names = ms_data_names("models");
  JsonObject *keys = keys_of(model), *best = NULL;
  const char *best_name = NULL;
  JsonNode *own = by_own_name(model, keys);
  if (own) {
    json_object_unref(keys);
    return own;
  }
  for (guint i = 0; i + 1 < names->len; i++) {
    g_autoptr(MsModel) shipped = ms_model_load(names->pdata[i], NULL);
    if (!shipped || !ms_model_is_near(model, shipped)) continue;
    ms_model_canonical(shipped, model->seq_length_max);
    JsonObject *its = keys_of(shipped), *found = differences(keys, its, names->pdata[i]);
    json_object_unref(its);
    gboolean better = found && (!best || json_object_get_size(found) < json_object_get_size(best));
    if (better) best_name = names->pdata[i];
    if (better && best) json_object_unref(best);
    if (better) best = found;
    else if (found) json_object_unref(found);
  }
  JsonNode *mention = best ? node_of(best, best_name) : NULL;
  if (mention && !stands_for(mention, model, keys)) g_clear_pointer(&mention, json_node_unref);
  if (best) json_object_unref(best);
  json_object_unref(keys);
  return mention ? mention : ms_fields_node(&ms_model_table, model, TRUE);
}
