/* src/launch/peft.c - PEFT's adapter_config.json as training.lora (docs/launch.md, Import). */
#include "launch/launch.h"

#include "base/err.h"
#include "base/text.h"

#include <string.h>

typedef struct {
  const MsJson *doc;
  JsonObject *json;
  const MsModel *model;
  GHashTable *used; /* keys that were read */
  GError **error;
} Reader;

static gboolean bad(const Reader *r, const char *key, const char *format, ...) G_GNUC_PRINTF(3, 4);
static gboolean bad(const Reader *r, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_json_error(r->doc, key, r->error, "%s", text);
}

/* The value of a key that is not null; NULL. */
static JsonNode *take(const Reader *r, const char *key) {
  JsonNode *node = json_object_get_member(r->json, key);
  if (node) g_hash_table_add(r->used, (gpointer)key);
  return node && !JSON_NODE_HOLDS_NULL(node) ? node : NULL;
}

static gboolean is_text(JsonNode *node, const char *text) {
  return ms_json_is(node, G_TYPE_STRING) && (!text || strcmp(json_node_get_string(node), text) == 0);
}

static gboolean is_empty(JsonNode *node) {
  if (JSON_NODE_HOLDS_ARRAY(node)) return json_array_get_length(json_node_get_array(node)) == 0;
  if (JSON_NODE_HOLDS_OBJECT(node)) return json_object_get_size(json_node_get_object(node)) == 0;
  return ms_json_is(node, G_TYPE_BOOLEAN) && !json_node_get_boolean(node);
}

/* What changes the parameters or the step in a way that training.lora cannot say. */
static gboolean nothing_else(const Reader *r) {
  static const struct {
    const char *key, *is;
  } others[] = {{"use_dora", "DoRA's magnitudes"},
                {"rank_pattern", "ranks that differ between layers"},
                {"layers_to_transform", "adapters in some layers only"},
                {"layer_replication", "replicated layers"},
                {"modules_to_save", "modules that are trained whole"},
                {"target_parameters", "adapters of bare parameters"},
                {"exclude_modules", "excluded modules"},
                {"lora_bias", "biases of adapters"}};
  for (guint i = 0; i < G_N_ELEMENTS(others); i++) {
    JsonNode *node = take(r, others[i].key);
    if (node && !is_empty(node)) return bad(r, others[i].key, "%s are not modelled", others[i].is);
  }
  JsonNode *bias = take(r, "bias");
  return !bias || is_text(bias, "none") || bad(r, "bias", "biases that are trained are not modelled");
}

static gboolean apart(const MsLoraTarget *whole, const MsModel *model) {
  for (int i = 0; i < ms_n_lora_targets; i++)
    if (ms_lora_targets[i].part != MS_LORA_WHOLE && strcmp(ms_lora_targets[i].row[0], whole->row[0]) == 0 &&
        ms_lora_target_exists(&ms_lora_targets[i], model))
      return TRUE;
  return FALSE;
}

/* "all-linear": layers that Hugging Face has apart get an adapter each. */
static guint32 all_targets(const MsModel *model) {
  guint32 all = 0;
  for (int i = 0; i < ms_n_lora_targets; i++) {
    const MsLoraTarget *t = &ms_lora_targets[i];
    if (ms_lora_target_exists(t, model) && (t->part != MS_LORA_WHOLE || !apart(t, model))) all |= 1u << i;
  }
  return all;
}

static gboolean add_target(const Reader *r, const char *path, const char *module, guint32 *targets) {
  const char *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;
  for (int i = 0; i < ms_n_lora_targets; i++)
    if (ms_text_has_word(ms_lora_targets[i].peft, name) && ms_lora_target_exists(&ms_lora_targets[i], r->model))
      return *targets |= 1u << i, TRUE;
  g_autoptr(GString) known = g_string_new(NULL);
  for (int i = 0; i < ms_n_lora_targets; i++)
    if (ms_lora_target_exists(&ms_lora_targets[i], r->model))
      g_string_append_printf(known, "%s%s", known->len ? " " : "", ms_lora_targets[i].peft);
  return bad(r, path, "\"%.60s\" is no linear layer of %s that moesim knows: %s", module, r->model->name, known->str);
}

static gboolean read_targets(const Reader *r, guint32 *targets) {
  JsonNode *node = take(r, "target_modules");
  *targets = 0;
  if (is_text(node, "all-linear")) return *targets = all_targets(r->model), TRUE;
  if (!node || !JSON_NODE_HOLDS_ARRAY(node))
    return bad(r, "target_modules", "must be a list of names or \"all-linear\"; patterns are not read");
  JsonArray *names = json_node_get_array(node);
  for (guint i = 0; i < json_array_get_length(names); i++) {
    g_autofree char *path = g_strdup_printf("target_modules[%u]", i);
    JsonNode *name = json_array_get_element(names, i);
    if (!is_text(name, NULL)) return bad(r, path, "must be a name");
    if (!add_target(r, path, json_node_get_string(name), targets)) return FALSE;
  }
  return *targets != 0 || bad(r, "target_modules", "is empty: nothing is trained");
}

static gboolean experts_have_one(const Reader *r, const MsLora *lora) {
  const MsLoraTarget *beside = ms_lora_beside_experts(lora, r->model);
  return !beside || bad(r, "target_modules",
                        "PEFT gives every expert an adapter of its own, Megatron-Bridge those of a rank one together: "
                        "only the latter is modelled; leave %s out",
                        beside->peft);
}

static gboolean read_number(const Reader *r, const char *key, const char *field, MsLora *lora) {
  JsonNode *node = take(r, key);
  return !node || ms_field_set(ms_field_find(&ms_lora_table, field), r->doc, node, key, lora, r->error);
}

static gboolean read_adapter(const Reader *r, MsLora *lora) {
  if (!is_text(take(r, "peft_type"), "LORA"))
    return bad(r, "peft_type", "must be \"LORA\": moesim has no other adapters");
  if (!read_number(r, "r", "rank", lora) || !read_number(r, "lora_alpha", "alpha", lora) ||
      !read_number(r, "lora_dropout", "dropout", lora))
    return FALSE;
  if (!ms_lora_is_on(lora)) return bad(r, "r", "is missing or 0, must be the rank of the adapters");
  return nothing_else(r) && read_targets(r, &lora->targets) && experts_have_one(r, lora);
}

gboolean ms_import_peft(const MsJson *doc, const MsModel *model, MsLora *lora, GPtrArray *ignored, GError **error) {
  if (!ms_json_need_object(doc, ms_json_root(doc), "", error)) return FALSE;
  g_autoptr(GHashTable) used = g_hash_table_new(g_str_hash, g_str_equal);
  Reader r = {doc, json_node_get_object(ms_json_root(doc)), model, used, error};
  ms_fields_defaults(&ms_lora_table, lora);
  if (!read_adapter(&r, lora)) return FALSE;
  g_autoptr(GList) members = json_object_get_members(r.json);
  for (GList *m = members; m; m = m->next)
    if (!g_hash_table_contains(used, m->data)) g_ptr_array_add(ignored, g_strdup(m->data));
  return TRUE;
}
