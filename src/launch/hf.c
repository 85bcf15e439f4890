/* src/launch/hf.c - a Hugging Face config.json as a model (domain/launch.md 6): one map of keys for all, and what each family has by itself. */
#include <string.h>

#include "base/err.h"
#include "launch/launch.h"

typedef struct {
  const MsJson *doc;
  JsonObject *json;
  MsModel *model;
  const char *within; /* "text_config." where the language model is a part of the file, else "" */
  GHashTable *used;   /* keys that say something */
  GError **error;
} Config;

static const char *path_of(const Config *c, const char *key) {
  g_autofree char *path = g_strconcat(c->within, key, NULL);
  return g_intern_string(path);
}

/* Always FALSE. */
G_GNUC_PRINTF(3, 4) static gboolean bad(const Config *c, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_json_error(c->doc, path_of(c, key), c->error, "%s", text);
}

/* --- reading one key --- */
/* The value of a key; NULL when it is missing or null. Marks it used. */
static JsonNode *take(Config *c, const char *key) {
  JsonNode *node = json_object_get_member(c->json, key);
  if (!node) return NULL;
  g_hash_table_add(c->used, (gpointer)key);
  return JSON_NODE_HOLDS_NULL(node) ? NULL : node;
}

static gboolean take_int(Config *c, const char *key, int absent, int hi, int *value) {
  JsonNode *node = take(c, key);
  *value = absent;
  if (!node) return TRUE;
  gboolean integer = JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_INT64;
  if (!integer || json_node_get_int(node) < 0 || json_node_get_int(node) > hi) return bad(c, key, "must be an integer in [0, %d]", hi);
  *value = (int)json_node_get_int(node);
  return TRUE;
}

static const char *take_string(Config *c, const char *key) {
  JsonNode *node = take(c, key);
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_STRING ? json_node_get_string(node) : NULL;
}

static gboolean is_true(Config *c, const char *key) {
  JsonNode *node = take(c, key);
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_BOOLEAN && json_node_get_boolean(node);
}

/* --- the common map: the first key that is there wins --- */
typedef struct {
  const char *keys, *field;
  gboolean required;
} MapRow;

static const MapRow map[] = {
    {"num_hidden_layers", "num_layers", TRUE},
    {"hidden_size", "hidden_size", TRUE},
    {"num_attention_heads", "num_attention_heads", TRUE},
    {"vocab_size", "vocab_size", TRUE},
    {"intermediate_size", "ffn_hidden_size", FALSE},
    {"num_key_value_heads", "num_query_groups", FALSE},
    {"head_dim", "kv_channels", FALSE},
    {"tie_word_embeddings", "tie_embeddings", FALSE},
    {"attention_bias", "add_qkv_bias", FALSE},
    {"mlp_bias", "add_bias_linear", FALSE},
    {"use_qk_norm", "qk_layernorm", FALSE},
    {"attention_dropout", "attention_dropout", FALSE},
    {"num_experts num_local_experts n_routed_experts", "num_experts", FALSE},
    {"num_experts_per_tok experts_per_token", "moe_router_topk", FALSE},
    {"moe_intermediate_size", "moe_ffn_hidden_size", FALSE},
    {"router_aux_loss_coef aux_loss_alpha", "moe_aux_loss_coeff", FALSE},
    {"n_group", "moe_router_num_groups", FALSE},
    {"topk_group", "moe_router_group_topk", FALSE},
    {"num_nextn_predict_layers mtp_num_hidden_layers", "mtp_num_layers", FALSE},
};

static gboolean read_map(Config *c) {
  for (guint i = 0; i < G_N_ELEMENTS(map); i++) {
    g_auto(GStrv) keys = g_strsplit(map[i].keys, " ", -1);
    JsonNode *node = NULL;
    int k = 0;
    for (; keys[k] && !node; k++) {
      node = json_object_get_member(c->json, keys[k]);
      if (node) g_hash_table_add(c->used, (gpointer)g_intern_string(keys[k]));
      if (node && JSON_NODE_HOLDS_NULL(node)) node = NULL;
    }
    if (!node && map[i].required) return bad(c, "", "has no %s", keys[0]);
    if (node && !ms_field_set(ms_field_find(&ms_model_table, map[i].field), c->doc, node, path_of(c, keys[k - 1]), c->model, c->error)) return FALSE;
  }
  return TRUE;
}

/* --- what several families share --- */
static gboolean has_silu(Config *c) {
  const char *act = take_string(c, "hidden_act");
  return !act || strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0 || bad(c, "hidden_act", "is \"%.40s\", this family has silu", act);
}

/* YaRN where the file says so; other scalings of RoPE change no shapes. */
static void read_positions(Config *c) {
  JsonNode *scaling = take(c, "rope_scaling");
  c->model->position_embedding = MS_POS_ROPE;
  if (!scaling || !JSON_NODE_HOLDS_OBJECT(scaling)) return;
  JsonObject *object = json_node_get_object(scaling);
  const char *const keys[] = {"rope_type", "type"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++) {
    JsonNode *type = json_object_get_member(object, keys[i]);
    gboolean text = type && JSON_NODE_HOLDS_VALUE(type) && json_node_get_value_type(type) == G_TYPE_STRING;
    if (text && strcmp(json_node_get_string(type), "yarn") == 0) c->model->position_embedding = MS_POS_YARN;
  }
}

static gboolean read_window(Config *c, gboolean on) {
  int window;
  if (!take_int(c, "sliding_window", 0, 1 << 30, &window)) return FALSE;
  c->model->sliding_window.window = on ? window : 0;
  return TRUE;
}

/* "[0]*dense+[1]*rest"; NULL when there is no dense layer. */
static char *dense_first(const MsModel *m, int dense) { return dense > 0 ? g_strdup_printf("[0]*%d+[1]*%d", dense, MAX(m->num_layers - dense, 0)) : NULL; }

/* --- families --- */
static gboolean llama(Config *c) { return has_silu(c); }

static gboolean mistral(Config *c) { return has_silu(c) && read_window(c, TRUE); }

static gboolean mixtral(Config *c) {
  c->model->moe_ffn_hidden_size = c->model->ffn_hidden_size;
  return has_silu(c) && read_window(c, TRUE);
}

static gboolean qwen(Config *c, gboolean qkv_bias, gboolean qk_norm) {
  if (qkv_bias && !json_object_has_member(c->json, "attention_bias")) c->model->add_qkv_bias = TRUE; /* the class has it without a key */
  c->model->qk_layernorm |= qk_norm;
  return has_silu(c) && read_window(c, is_true(c, "use_sliding_window"));
}

static gboolean qwen2(Config *c) { return qwen(c, TRUE, FALSE); }
static gboolean qwen3(Config *c) { return qwen(c, FALSE, TRUE); }

/* decoder_sparse_step N: layers N, 2N, ... have experts; those of mlp_only_layers (from 0) never. */
static gboolean read_sparse_step(Config *c) {
  MsModel *m = c->model;
  int step;
  if (!take_int(c, "decoder_sparse_step", 1, 10000, &step)) return FALSE;
  JsonNode *only = take(c, "mlp_only_layers");
  JsonArray *dense = only && JSON_NODE_HOLDS_ARRAY(only) ? json_node_get_array(only) : NULL;
  if (only && !dense) return bad(c, "mlp_only_layers", "must be a list of layers");
  g_autoptr(GString) freq = g_string_new("[");
  gboolean any_dense = FALSE;
  for (int i = 0; i < m->num_layers; i++) {
    gboolean moe = step > 0 && (i + 1) % step == 0;
    for (guint k = 0; dense && k < json_array_get_length(dense) && k < 10000; k++) {
      JsonNode *node = json_array_get_element(dense, k);
      if (!JSON_NODE_HOLDS_VALUE(node) || json_node_get_value_type(node) != G_TYPE_INT64)
        return bad(c, "mlp_only_layers", "must be a list of layers");
      moe &= json_node_get_int(node) != i;
    }
    any_dense |= !moe;
    g_string_append_printf(freq, "%s%d", i ? "," : "", moe);
  }
  g_string_append_c(freq, ']');
  if (any_dense) m->moe_layer_freq = g_strdup(freq->str);
  return TRUE;
}

static gboolean read_norm_topk(Config *c) {
  take(c, "norm_topk_prob"); /* before or after the softmax: no difference to shapes */
  return TRUE;
}

static gboolean qwen2_moe(Config *c) {
  MsModel *m = c->model;
  if (!take_int(c, "shared_expert_intermediate_size", 0, 1048576, &m->moe_shared_expert_intermediate_size)) return FALSE;
  m->moe_shared_expert_gate = m->moe_shared_expert_intermediate_size > 0;
  return qwen(c, TRUE, FALSE) && read_sparse_step(c) && read_norm_topk(c);
}

static gboolean qwen3_moe(Config *c) { return qwen(c, FALSE, TRUE) && read_sparse_step(c) && read_norm_topk(c); }

/* Every `every`-th layer is softmax attention, the others are gated delta nets; `layer_types` may say it once more. */
static gboolean read_layer_types(Config *c, int every) {
  JsonNode *node = take(c, "layer_types");
  if (!node) return TRUE;
  JsonArray *types = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
  for (guint i = 0; types && i < json_array_get_length(types); i++) {
    JsonNode *one = json_array_get_element(types, i);
    const char *type = JSON_NODE_HOLDS_VALUE(one) && json_node_get_value_type(one) == G_TYPE_STRING ? json_node_get_string(one) : "";
    if (strcmp(type, every > 0 && (i + 1) % (guint)every == 0 ? "full_attention" : "linear_attention") != 0)
      return bad(c, "layer_types", "does not have full_attention in every layer that full_attention_interval = %d names, and linear_attention in the others", every);
  }
  return types || bad(c, "layer_types", "must be a list of words");
}

/* Qwen3-Next, Qwen3.5: gated softmax attention with normed heads, gated delta nets, experts with a gated shared one. */
static gboolean qwen_hybrid(Config *c) {
  MsModel *m = c->model;
  MsLinearAttention *a = &m->linear_attention;
  gboolean moe = m->num_experts > 0;
  if (!take_int(c, "full_attention_interval", 4, 10000, &a->frequency) || !take_int(c, "linear_num_key_heads", 16, 65536, &a->num_key_heads) ||
      !take_int(c, "linear_num_value_heads", 32, 65536, &a->num_value_heads) || !take_int(c, "linear_key_head_dim", 128, 65536, &a->key_head_dim) ||
      !take_int(c, "linear_value_head_dim", 128, 65536, &a->value_head_dim) || !take_int(c, "linear_conv_kernel_dim", 4, 1024, &a->conv_kernel) ||
      !read_layer_types(c, a->frequency) || (moe && !take_int(c, "shared_expert_intermediate_size", 0, 1048576, &m->moe_shared_expert_intermediate_size)))
    return FALSE;
  m->moe_shared_expert_gate = m->moe_shared_expert_intermediate_size > 0;
  m->attention_output_gate = !json_object_has_member(c->json, "attn_output_gate") || is_true(c, "attn_output_gate");
  take(c, "use_sliding_window");
  return qwen(c, FALSE, TRUE) && (!moe || (read_sparse_step(c) && read_norm_topk(c)));
}

static gboolean read_latent(Config *c) {
  MsMla *mla = &c->model->multi_latent_attention;
  return take_int(c, "q_lora_rank", 0, 1048576, &mla->q_lora_rank) && take_int(c, "kv_lora_rank", 512, 1048576, &mla->kv_lora_rank) &&
         take_int(c, "qk_nope_head_dim", 128, 65536, &mla->qk_head_dim) && take_int(c, "qk_rope_head_dim", 64, 65536, &mla->qk_pos_emb_head_dim) &&
         take_int(c, "v_head_dim", 128, 65536, &mla->v_head_dim);
}

static gboolean read_score(Config *c, const char *absent) {
  const char *score = take_string(c, "scoring_func");
  if (!score) score = absent;
  for (int i = 0; ms_router_score_words[i]; i++) {
    if (strcmp(ms_router_score_words[i], score) != 0) continue;
    c->model->moe_router_score_function = (MsRouterScore)i;
    return TRUE;
  }
  return bad(c, "scoring_func", "is \"%.40s\", must be softmax, sigmoid or sqrtsoftplus", score);
}

static gboolean deepseek(Config *c, const char *score, int unit) {
  MsModel *m = c->model;
  int dense, shared, every;
  if (!has_silu(c) || !read_latent(c) || !read_score(c, score) || !take_int(c, "first_k_dense_replace", 0, 10000, &dense) ||
      !take_int(c, "n_shared_experts", 0, 1024, &shared) || !take_int(c, "moe_layer_freq", 1, 10000, &every))
    return FALSE;
  if (every != 1) return bad(c, "moe_layer_freq", "is %d; moesim imports 1, experts in every layer after the first dense ones", every);
  if (dense > m->num_layers) return bad(c, "first_k_dense_replace", "is %d, the model has %d layers", dense, m->num_layers);
  gint64 width = (gint64)shared * m->moe_ffn_hidden_size;
  if (width > 1048576) return bad(c, "n_shared_experts", "make shared experts wider than 1048576");
  m->moe_layer_freq = dense_first(m, dense);
  m->moe_shared_expert_intermediate_size = (int)width;
  m->num_query_groups = m->num_attention_heads; /* keys and values come from the latent */
  m->kv_channels = m->multi_latent_attention.v_head_dim;
  m->qk_layernorm = TRUE;
  m->position_embedding = MS_POS_ROPE; /* its own scaling, in the attention */
  m->make_vocab_size_divisible_by = unit;
  if (m->moe_router_num_groups <= 1) m->moe_router_num_groups = m->moe_router_group_topk = 0; /* one group limits nothing */
  return TRUE;
}

static gboolean deepseek_v2(Config *c) { return deepseek(c, "softmax", 3200); }

static gboolean deepseek_v3(Config *c) {
  const char *method = take_string(c, "topk_method");
  c->model->moe_router_enable_expert_bias = !method || strcmp(method, "noaux_tc") == 0;
  if (!json_object_has_member(c->json, "aux_loss_alpha")) c->model->moe_aux_loss_coeff = 1e-4; /* domain/launch.md 6 */
  return deepseek(c, "sigmoid", 1280);
}

static gboolean kimi_k2(Config *c) {
  if (!deepseek_v3(c)) return FALSE;
  if (!json_object_has_member(c->json, "aux_loss_alpha")) c->model->moe_aux_loss_coeff = 1e-3;
  return TRUE;
}

static gboolean gpt_oss(Config *c) {
  MsModel *m = c->model;
  m->moe_ffn_hidden_size = m->ffn_hidden_size;
  m->add_bias_linear = TRUE;
  m->softmax_sink = TRUE;
  m->moe_aux_loss_coeff = 0; /* trained without, whatever the file says (domain/launch.md 6) */
  m->activation = MS_ACT_QUICK_GELU;
  m->sliding_window.period = 2;
  take(c, "hidden_act");
  take(c, "layer_types");
  return read_window(c, TRUE);
}

static const struct {
  const char *type;
  gboolean (*read)(Config *config);
} families[] = {{"llama", llama}, {"mistral", mistral}, {"mixtral", mixtral}, {"qwen2", qwen2}, {"qwen3", qwen3}, {"qwen2_moe", qwen2_moe}, {"qwen3_moe", qwen3_moe},
                {"deepseek_v2", deepseek_v2}, {"deepseek_v3", deepseek_v3}, {"kimi_k2", kimi_k2}, {"gpt_oss", gpt_oss}, {"qwen3_next", qwen_hybrid},
                {"qwen3_5_text", qwen_hybrid}, {"qwen3_5_moe_text", qwen_hybrid}, {"qwen3_5", qwen_hybrid}, {"qwen3_5_moe", qwen_hybrid}};

static gboolean read_family(Config *c) {
  const char *type = take_string(c, "model_type");
  for (guint i = 0; type && i < G_N_ELEMENTS(families); i++) {
    if (strcmp(families[i].type, type) != 0) continue;
    read_positions(c);
    return families[i].read(c);
  }
  GString *known = g_string_new(NULL);
  for (guint i = 0; i < G_N_ELEMENTS(families); i++) g_string_append_printf(known, "%s%s", i ? ", " : "", families[i].type);
  bad(c, "model_type", "%s%.60s%s, moesim imports %s", type ? "is \"" : "is missing", type ? type : "", type ? "\"" : "", known->str);
  g_string_free(known, TRUE);
  return FALSE;
}

/* --- the whole --- */
static char *name_of(Config *c) {
  const char *path = take_string(c, "_name_or_path"), *file = ms_json_filename(c->doc);
  g_autofree char *base = g_path_get_basename(file);
  if (strcmp(base, "config.json") != 0 && g_str_has_suffix(base, ".json")) return g_strndup(base, strlen(base) - strlen(".json"));
  return path && *path ? g_path_get_basename(path) : g_strdup(take_string(c, "model_type"));
}

static void list_ignored(Config *c, GPtrArray *ignored) {
  g_autoptr(GList) members = json_object_get_members(c->json);
  for (GList *m = members; m; m = m->next)
    if (!g_hash_table_contains(c->used, m->data)) g_ptr_array_add(ignored, g_strconcat(c->within, m->data, NULL));
}

static gboolean read_config(Config *c) {
  MsModel *m = c->model;
  if (!read_map(c) || !read_family(c)) return FALSE;
  if (m->num_experts > 0 && m->moe_ffn_hidden_size == 0) m->moe_ffn_hidden_size = m->ffn_hidden_size;
  if (!ms_model_finish(m, c->doc, "", c->error)) return FALSE;
  m->name = name_of(c);
  ms_model_canonical(m, 0);
  m->source = g_strdup_printf("%s, Hugging Face model_type %s", ms_json_filename(c->doc), take_string(c, "model_type"));
  return TRUE;
}

MsModel *ms_import_hf(const MsJson *doc, GPtrArray *ignored, GError **error) {
  JsonNode *root = ms_json_root(doc);
  if (!JSON_NODE_HOLDS_OBJECT(root)) return ms_json_error(doc, "", error, "must be one JSON object, the config.json of a model"), NULL;
  g_autoptr(MsModel) model = g_new0(MsModel, 1);
  g_autoptr(GHashTable) used = g_hash_table_new(g_str_hash, g_str_equal);
  ms_fields_defaults(&ms_model_table, model);
  Config c = {.doc = doc, .json = json_node_get_object(root), .model = model, .within = "", .used = used, .error = error};
  g_hash_table_add(used, (gpointer)"architectures"); /* says the family once more */
  JsonNode *part = json_object_get_member(c.json, "text_config");
  if (part && JSON_NODE_HOLDS_OBJECT(part)) { /* a multimodal model: what is around its language model would be a front_end */
    g_hash_table_add(used, (gpointer)"text_config");
    g_hash_table_add(used, (gpointer)"model_type");
    list_ignored(&c, ignored);
    c.json = json_node_get_object(part), c.within = "text_config.";
  }
  if (!read_config(&c)) return NULL;
  list_ignored(&c, ignored);
  return g_steal_pointer(&model);
}
