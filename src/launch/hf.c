/* src/launch/hf.c - a Hugging Face config.json as a model (docs/launch.md, Import): one map of keys for all, and what
 * each family has by itself. */
#include <string.h>

#include "base/err.h"
#include "launch/hf_keys_priv.h"

/* --- the common map: the first key that is there wins --- */
typedef struct {
  const char *keys, *field;
  const char *required; /* NULL, or the key that may stand for it, "" when none may */
} MapRow;

static const MapRow map[] = {
    {"num_hidden_layers num_layers n_layer n_layers", "num_layers", "layers_block_type"},
    {"hidden_size n_embd d_model", "hidden_size", ""},
    {"num_attention_heads n_head n_heads", "num_attention_heads", ""},
    {"vocab_size padded_vocab_size", "vocab_size", ""},
    {"intermediate_size ffn_hidden_size n_inner ffn_dim", "ffn_hidden_size", NULL},
    {"num_key_value_heads multi_query_group_num num_kv_heads num_attention_groups", "num_query_groups", NULL},
    {"head_dim kv_channels attention_head_dim", "kv_channels", NULL},
    {"tie_word_embeddings", "tie_embeddings", NULL},
    {"attention_bias use_qkv_bias add_qkv_bias", "add_qkv_bias", NULL},
    {"mlp_bias", "add_bias_linear", NULL},
    {"use_qk_norm", "qk_layernorm", NULL},
    {"attention_dropout", "attention_dropout", NULL},
    {"num_experts num_local_experts n_routed_experts num_routed_experts moe_num_experts", "num_experts", NULL},
    {"num_experts_per_tok experts_per_token moe_topk moe_top_k moe_k", "moe_router_topk", NULL},
    {"moe_intermediate_size", "moe_ffn_hidden_size", NULL},
    {"router_aux_loss_coef aux_loss_alpha", "moe_aux_loss_coeff", NULL},
    {"routed_scaling_factor moe_routed_scaling_factor moe_router_scaling_factor router_scaling_factor",
     "moe_router_topk_scaling_factor", NULL},
    {"rms_norm_eps layer_norm_epsilon norm_epsilon norm_eps layer_norm_eps layernorm_epsilon", "norm_epsilon", NULL},
    {"initializer_range", "init_method_std", NULL},
    {"n_group", "moe_router_num_groups", NULL},
    {"topk_group", "moe_router_group_topk", NULL},
    {"num_nextn_predict_layers mtp_num_hidden_layers", "mtp_num_layers", NULL},
};

static gboolean read_map(MsHf *c) {
  for (guint i = 0; i < G_N_ELEMENTS(map); i++) {
    g_auto(GStrv) keys = g_strsplit(map[i].keys, " ", -1);
    JsonNode *node = NULL;
    int k = 0;
    for (; keys[k] && !node; k++) {
      node = json_object_get_member(c->json, keys[k]);
      if (node) g_hash_table_add(c->used, (gpointer)g_intern_string(keys[k]));
      if (node && JSON_NODE_HOLDS_NULL(node)) node = NULL;
    }
    if (!node && map[i].required && !json_object_has_member(c->json, map[i].required))
      return ms_hf_bad(c, "", "has no %s", keys[0]);
    if (node && !ms_field_set(ms_field_find(&ms_model_table, map[i].field), c->doc, node, ms_hf_path(c, keys[k - 1]),
                              c->model, c->error))
      return FALSE;
  }
  return TRUE;
}

/* --- the whole --- */
/* Rotary positions: the base and the part of a head stand beside the stretching, or, in newer files, in one object with
 * it (rope_parameters), sometimes one for each kind of layer. */
static gboolean rope_number(MsHf *c, JsonObject *object, const char *inside, const char *key, const char *field,
                            void *at, const MsFieldTable *table) {
  JsonNode *node = ms_json_member(object, key);
  if (!node || JSON_NODE_HOLDS_NULL(node)) return TRUE;
  g_autofree char *path = *inside ? g_strconcat(inside, ".", key, NULL) : g_strdup(key);
  return ms_field_set(ms_field_find(table, field), c->doc, node, ms_hf_path(c, path), at, c->error);
}

static const char *word_in(JsonObject *object, const char *key) {
  JsonNode *node = json_object_get_member(object, key);
  gboolean text = ms_json_is(node, G_TYPE_STRING);
  return text ? json_node_get_string(node) : NULL;
}

static gboolean rope_kind(MsHf *c, JsonObject *object, const char *inside) {
  static const struct {
    const char *word;
    MsRopeKind kind;
  } kinds[] = {{"default", MS_ROPE_PLAIN}, {"none", MS_ROPE_PLAIN}, {"mrope", MS_ROPE_PLAIN},
               {"dynamic", MS_ROPE_PLAIN}, {"gptj", MS_ROPE_PLAIN}, {"linear", MS_ROPE_LINEAR},
               {"llama3", MS_ROPE_LLAMA3}, {"yarn", MS_ROPE_YARN},  {"deepseek_yarn", MS_ROPE_YARN}},
    lists[] = {{"longrope", MS_ROPE_PLAIN}, {"su", MS_ROPE_PLAIN}};
  const char *word = word_in(object, "rope_type");
  if (!word) word = word_in(object, "type");
  if (!word) return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (strcmp(kinds[i].word, word) == 0) return c->model->rope_scaling.type = kinds[i].kind, TRUE;
  for (guint i = 0; i < G_N_ELEMENTS(lists); i++)
    if (strcmp(lists[i].word, word) == 0)
      return ms_hf_remark(c, "%s: a factor for every frequency (%s) is not kept; no prediction depends on it", inside,
                          word),
             TRUE;
  return ms_hf_bad(c, inside, "stretches rotary frequencies by \"%.40s\"; moesim has linear, llama3 and yarn", word);
}

static gboolean read_rope_object(MsHf *c, const char *inside) {
  static const char *const numbers[] = {"factor",           "original_max_position_embeddings",
                                        "low_freq_factor",  "beta_fast",
                                        "high_freq_factor", "beta_slow",
                                        "mscale",           "mscale_all_dim",
                                        "truncate"};
  MsModel *m = c->model;
  JsonObject *object = ms_json_object(ms_hf_take(c, inside));
  if (!object) return TRUE;
  if (!rope_kind(c, object, inside)) return FALSE;
  const MsFieldTable *table = ms_field_find(&ms_model_table, "rope_scaling")->sub;
  for (guint i = 0; m->rope_scaling.type != MS_ROPE_PLAIN && i < G_N_ELEMENTS(numbers); i++)
    if (!rope_number(c, object, inside, numbers[i], numbers[i], &m->rope_scaling, table)) return FALSE;
  return rope_number(c, object, inside, "rope_theta", "rotary_base", m, &ms_model_table) &&
         rope_number(c, object, inside, "partial_rotary_factor", "rotary_percent", m, &ms_model_table);
}

static gboolean read_positions(MsHf *c) {
  static const char *const tops[][2] = {{"rope_theta", "rotary_base"},
                                        {"rotary_emb_base", "rotary_base"},
                                        {"partial_rotary_factor", "rotary_percent"},
                                        {"rotary_pct", "rotary_percent"}};
  MsModel *m = c->model;
  m->position_embedding = MS_POS_ROPE;
  for (guint i = 0; i < G_N_ELEMENTS(tops); i++) {
    JsonNode *node = ms_hf_take(c, tops[i][0]);
    gboolean number = node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) != G_TYPE_STRING;
    if (number && !rope_number(c, c->json, "", tops[i][0], tops[i][1], m, &ms_model_table)) return FALSE;
  }
  return read_rope_object(c, "rope_scaling") && read_rope_object(c, "rope_parameters");
}

static char *name_of(MsHf *c, const char *type) {
  const char *path = ms_hf_take_string(c, "_name_or_path"), *file = ms_json_filename(c->doc);
  g_autofree char *base = g_path_get_basename(file);
  if (strcmp(base, "config.json") != 0 && g_str_has_suffix(base, ".json"))
    return g_strndup(base, strlen(base) - strlen(".json"));
  return path && *path ? g_path_get_basename(path) : g_strdup(type);
}

static void list_ignored(MsHf *c, GPtrArray *ignored) {
  g_autoptr(GList) members = json_object_get_members(c->json);
  for (GList *m = members; m; m = m->next)
    if (!g_hash_table_contains(c->used, m->data)) g_ptr_array_add(ignored, g_strconcat(c->within, m->data, NULL));
}

/* Keys without which a file of experts would be read as a dense model, and one that no model file can say. */
static gboolean check_experts(MsHf *c) {
  int width, none;
  if (!ms_hf_take_int(c, "zero_expert_num", 0, 65536, &none)) return FALSE;
  if (none > 0) return ms_hf_bad(c, "zero_expert_num", "is %d; moesim has no experts that compute nothing", none);
  if (c->model->num_experts > 0 || c->model->hybrid_layer_pattern) return TRUE;
  const char *const counts[] = {"num_experts", "num_local_experts", "n_routed_experts", "num_routed_experts",
                                "moe_num_experts"};
  for (guint i = 0; i < G_N_ELEMENTS(counts); i++)
    if (g_hash_table_contains(c->used, counts[i])) return TRUE; /* says 0 or null */
  if (!ms_hf_take_int(c, "moe_intermediate_size", 0, 1048576, &width)) return FALSE;
  return width == 0 || ms_hf_bad(c, "moe_intermediate_size",
                                 "is %d, but the file does not say how many experts there are (num_experts, "
                                 "num_local_experts or n_routed_experts)",
                                 width);
}

/* --- families --- */
static const MsHfFamily *const tables[] = {ms_hf_families, ms_hf_dense_families, ms_hf_expert_families,
                                           ms_hf_research_families, ms_hf_uneven_families};

static const char *architecture(const MsHf *c) {
  JsonArray *list = ms_json_array(json_object_get_member(c->json, "architectures"));
  JsonNode *first = list && json_array_get_length(list) > 0 ? json_array_get_element(list, 0) : NULL;
  gboolean text = ms_json_is(first, G_TYPE_STRING);
  return text ? json_node_get_string(first) : "";
}

static gboolean is_draft(MsHf *c) {
  const char *name = architecture(c);
  return strstr(name, "Eagle") || strstr(name, "DraftModel") || json_object_has_member(c->json, "draft_vocab_size");
}

/* "Qwen2_5VL" of Qwen2_5VLForConditionalGeneration against "qwen2_5_vl". */
static gboolean is_class_of(const char *name, const char *type) {
  const char *end = strstr(name, "For");
  for (; name != end && *name; name++) {
    if (*name == '_') continue;
    type += strspn(type, "_");
    if (g_ascii_tolower(*name) != *type) return FALSE;
    type++;
  }
  return end && *type == '\0';
}

/* The family that the class of a file without model_type names; those whose keys have changed their meaning since are
 * not told so. */
static const char *type_of_class(const MsHf *c) {
  const char *name = architecture(c);
  for (guint t = 0; t < G_N_ELEMENTS(tables); t++)
    for (const MsHfFamily *f = tables[t]; f->type; f++)
      if (is_class_of(name, f->type)) {
        if (strcmp(f->type, "qwen") != 0) return f->type;
        if (json_object_has_member(c->json, "num_key_value_heads")) return "qwen2"; /* which the first had not */
      }
  return NULL;
}

/* The family that a file is of: that of its class where this is a later version ("bailing_moe", whose class is
 * BailingMoeV2ForCausalLM), or where there is no model_type. */
static const char *type_of(MsHf *c) {
  const char *type = ms_hf_take_string(c, "model_type"), *of_class = type_of_class(c);
  gboolean later = type && of_class && g_str_has_prefix(of_class, type);
  const char *version = later ? of_class + strlen(type) : "";
  later = g_str_has_prefix(version, "_v") && g_ascii_isdigit(version[2]);
  if (later) ms_hf_remark(c, "model_type: is %s, %s of architectures is read", type, of_class);
  else if (!type && of_class) ms_hf_remark(c, "model_type: is missing, %s of architectures is read", of_class);
  return later || !type ? of_class : type;
}

static const MsHfFamily *family_named(const char *type) {
  for (guint t = 0; t < G_N_ELEMENTS(tables); t++)
    for (const MsHfFamily *f = tables[t]; f->type; f++)
      if (strcmp(f->type, type) == 0) return f;
  return NULL;
}

static const MsHfFamily *find_family(MsHf *c) {
  const char *type = type_of(c);
  g_autoptr(GPtrArray) known = g_ptr_array_new();
  const MsHfFamily *found = type ? family_named(type) : NULL;
  for (guint t = 0; t < G_N_ELEMENTS(tables); t++)
    for (const MsHfFamily *f = tables[t]; f->type; f++)
      if (!f->refused) g_ptr_array_add(known, (gpointer)f->type);
  guint families = known->len;
  g_ptr_array_add(known, NULL);
  const char *near = type ? ms_nearest(type, (const char *const *)known->pdata) : NULL;
  if (!type) ms_hf_bad(c, "model_type", "is missing, must name one of the %u families of docs/launch.md", families);
  else if (!found && near) ms_hf_bad(c, "model_type", "is \"%.60s\", did you mean \"%s\"?", type, near);
  else if (!found)
    ms_hf_bad(c, "model_type", "is \"%.60s\", moesim imports %u families, which docs/launch.md lists", type, families);
  else if (found->refused)
    ms_hf_bad(c, "model_type", "is \"%s\", which moesim has no model of: %s", found->type, found->refused);
  else if (is_draft(c))
    ms_hf_bad(c, "architectures", "name a draft model of speculative decoding, which is trained beside another model");
  else return found;
  return NULL;
}

/* Keys of a text_config that Python leaves out because they are as its class has them. */
static gboolean fill_in(MsHf *c, const char *absent) {
  gboolean counts = absent && (*c->within || c->traits & MS_HF_FILLED);
  g_autoptr(MsJson) doc = counts ? ms_json_parse(absent, -1, "", c->error) : NULL;
  if (!doc) return !counts;
  JsonObject *values = json_node_get_object(ms_json_root(doc));
  g_autoptr(GList) members = json_object_get_members(values);
  for (GList *m = members; m; m = m->next)
    if (!json_object_has_member(c->json, m->data))
      json_object_set_member(c->json, m->data, ms_json_copy(json_object_get_member(values, m->data)));
  return TRUE;
}

/* --- what the class takes for a key that the file lacks --- */
static const struct {
  const char *families, *keys;
} absent_rows[] = {
#define MS_HF_ABSENT(families, keys) {families, keys},
#include "launch/hf_absent.def"
#undef MS_HF_ABSENT
};

static gboolean has_word(const char *words, const char *word) {
  g_auto(GStrv) list = g_strsplit(words, " ", -1);
  return g_strv_contains((const char *const *)list, word);
}

/* The file has the key, by this or another name. */
static gboolean says(const MsHf *c, const char *key) {
  static const char *const others[] = {"rope_theta rotary_emb_base rope_parameters",
                                       "partial_rotary_factor rotary_pct rotary_dim rope_parameters",
                                       "n_positions max_position_embeddings", "n_shared_experts num_shared_experts"};
  g_autoptr(GString) names = g_string_new(key);
  for (guint i = 0; i < G_N_ELEMENTS(map); i++)
    if (has_word(map[i].keys, key)) g_string_append_printf(names, " %s", map[i].keys);
  for (guint i = 0; i < G_N_ELEMENTS(others); i++)
    if (has_word(others[i], key)) g_string_append_printf(names, " %s", others[i]);
  g_auto(GStrv) list = g_strsplit(names->str, " ", -1);
  for (int i = 0; list[i]; i++)
    if (json_object_has_member(c->json, list[i])) return TRUE;
  return FALSE;
}

static void fill_as_class(MsHf *c, const char *keys) {
  g_auto(GStrv) list = g_strsplit(keys, " ", -1);
  g_autoptr(GString) taken = g_string_new(NULL);
  for (int i = 0; list[i]; i++) {
    g_auto(GStrv) pair = g_strsplit(list[i], "=", 2);
    if (says(c, pair[0])) continue;
    double value = g_ascii_strtod(pair[1], NULL);
    gboolean whole = !strpbrk(pair[1], ".e");
    JsonNode *node = json_node_new(JSON_NODE_VALUE);
    if (whole) json_node_set_int(node, (gint64)value);
    else json_node_set_double(node, value);
    json_object_set_member(c->json, pair[0], node);
    g_hash_table_add(c->used, (gpointer)g_intern_string(pair[0]));
    if (whole) g_string_append_printf(taken, "%s%s %g", taken->len ? ", " : "", pair[0], value); /* a size */
  }
  if (taken->len) ms_hf_remark(c, "not in the file, taken as the class of the family has it: %s", taken->str);
}

static gboolean read_config(MsHf *c) {
  MsModel *m = c->model;
  const MsHfFamily *family = find_family(c);
  const char *const lists[] = {"moe_intermediate_size", "moe_topk", "num_shared_expert", "moe_num_experts"};
  m->norm_epsilon = 1e-6; /* of the classes whose files do not say it */
  if (!family) return FALSE;
  c->traits = family->traits;
  if (!fill_in(c, family->absent)) return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(absent_rows); i++)
    if (has_word(absent_rows[i].families, family->type)) fill_as_class(c, absent_rows[i].keys);
  for (guint i = 0; i < G_N_ELEMENTS(lists); i++) ms_hf_flatten(c, lists[i]);
  if (!read_map(c) || !read_positions(c) || !ms_hf_read_traits(c) || !family->read(c) || !check_experts(c))
    return FALSE;
  if (m->num_experts > 0 && m->moe_ffn_hidden_size == 0) return ms_hf_bad(c, "", "has no moe_intermediate_size");
  if (!ms_model_finish(m, c->doc, "", c->error)) return FALSE;
  m->name = name_of(c, family->type);
  ms_model_canonical(m, 0);
  m->source = g_strdup_printf("%s, Hugging Face model_type %s", ms_json_filename(c->doc), family->type);
  return TRUE;
}

/* A language model without a model_type is of the family that the whole is named by: minimax_m3_vl. */
static void name_part(MsHf *c, JsonObject *inner) {
  const char *whole = word_in(c->json, "model_type");
  if (!whole || !g_str_has_suffix(whole, "_vl") || json_object_has_member(inner, "model_type")) return;
  g_autofree char *family = g_strndup(whole, strlen(whole) - strlen("_vl"));
  if (!family_named(family)) return;
  json_object_set_string_member(inner, "model_type", family);
  ms_hf_remark(c, "model_type: the language model has none, %s of the whole is read", family);
}

/* The part of a multimodal file that is the language model; what is around it would be a front_end. */
static void enter_part(MsHf *c, GPtrArray *ignored) {
  static const struct {
    const char *key, *within;
  } parts[] = {{"thinker_config", "thinker_config."},
               {"text_config", "text_config."},
               {"language_config", "language_config."},
               {"llm_config", "llm_config."}};
  for (guint i = 0; i < G_N_ELEMENTS(parts); i++) {
    JsonNode *part = json_object_get_member(c->json, parts[i].key);
    if (!part || !JSON_NODE_HOLDS_OBJECT(part)) continue;
    g_hash_table_add(c->used, (gpointer)parts[i].key);
    g_hash_table_add(c->used, (gpointer) "model_type");
    list_ignored(c, ignored);
    g_autofree char *within = g_strconcat(c->within, parts[i].within, NULL);
    JsonObject *inner = json_node_get_object(part);
    JsonNode *tie = json_object_get_member(c->json, "tie_word_embeddings");
    name_part(c, inner);
    if (tie && !json_object_has_member(inner, "tie_word_embeddings"))
      json_object_set_member(inner, "tie_word_embeddings", ms_json_copy(tie)); /* of the whole */
    c->json = inner, c->within = g_intern_string(within);
  }
}

MsModel *ms_import_hf(const MsJson *doc, GPtrArray *ignored, GPtrArray *remarks, GError **error) {
  JsonNode *root = ms_json_root(doc);
  if (!JSON_NODE_HOLDS_OBJECT(root))
    return ms_json_error(doc, "", error, "must be one JSON object, the config.json of a model"), NULL;
  g_autoptr(MsModel) model = g_new0(MsModel, 1);
  g_autoptr(GHashTable) used = g_hash_table_new(g_str_hash, g_str_equal);
  ms_fields_defaults(&ms_model_table, model);
  MsHf c = {.doc = doc,
            .json = json_node_get_object(root),
            .model = model,
            .within = "",
            .used = used,
            .remarks = remarks,
            .error = error};
  g_hash_table_add(used, (gpointer) "architectures"); /* says the family once more */
  enter_part(&c, ignored);
  if (!read_config(&c)) return NULL;
  list_ignored(&c, ignored);
  return g_steal_pointer(&model);
}
