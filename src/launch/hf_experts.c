/* src/launch/hf_experts.c - families with experts beside those of hf_families.c (their published classes). */
#include <string.h>

#include "launch/hf_keys_priv.h"

/* Experts as wide as the dense layers of other families, softmax over the chosen ones. */
static gboolean like_mixtral(MsHf *c) {
  c->model->moe_ffn_hidden_size = c->model->ffn_hidden_size;
  return ms_hf_has_silu(c);
}

/* The bias that balances experts, where `key` says so, or by itself. */
static void balanced_by_bias(MsHf *c, const char *key) {
  MsModel *m = c->model;
  if (json_object_has_member(c->json, key) && !ms_hf_is_true(c, key)) return;
  m->moe_router_enable_expert_bias = TRUE;
  m->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
}

static gboolean phimoe(MsHf *c) {
  if (c->model->add_qkv_bias)
    ms_hf_remark(c,
                 "attention_bias: the bias of the output projection is not modelled: a vector of hidden_size a layer "
                 "is missing");
  return like_mixtral(c);
}

static gboolean minimax_m2(MsHf *c) {
  MsModel *m = c->model;
  int rotary, mtp, wide = 0;
  const char *norm = ms_hf_take_string(c, "qk_norm_type");
  if (m->qk_layernorm && norm && strcmp(norm, "per_layer") == 0)
    ms_hf_remark(c, "qk_norm_type: norms of whole queries and keys are counted as norms of one head");
  if (!ms_hf_take_int(c, "rotary_dim", 0, 65536, &rotary) || !ms_hf_take_int(c, "num_mtp_modules", 0, 64, &mtp) ||
      !ms_hf_take_int(c, "shared_intermediate_size", 0, 1048576, &wide))
    return FALSE;
  if (rotary > 0 && m->kv_channels > 0) m->rotary_percent = MIN(1.0, (double)rotary / m->kv_channels);
  if (ms_hf_is_true(c, "use_mtp")) m->mtp_num_layers = mtp;
  m->moe_shared_expert_intermediate_size = wide;
  balanced_by_bias(c, "use_routing_bias");
  return ms_hf_read_score(c, "sigmoid") && like_mixtral(c);
}

/* Layer i has experts when interleave_moe_layer_step divides i + 1, beside one that all tokens pass. */
static gboolean llama4(MsHf *c) {
  MsModel *m = c->model;
  int every, dense;
  if (!ms_hf_take_int(c, "interleave_moe_layer_step", 1, MS_HF_MOST_LAYERS, &every) ||
      !ms_hf_take_int(c, "intermediate_size_mlp", 16384, 1048576, &dense))
    return FALSE;
  m->moe_ffn_hidden_size = m->moe_shared_expert_intermediate_size = m->ffn_hidden_size;
  m->ffn_hidden_size = dense;
  m->moe_router_score_function = MS_SCORE_SIGMOID;
  g_autoptr(GString) list = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++) ms_hf_list_add(list, every > 0 && (i + 1) % every == 0);
  ms_hf_set_moe_layers(m, list);
  ms_hf_take(c, "moe_layers");
  if (m->qk_layernorm) {
    m->qk_layernorm = FALSE;
    ms_hf_remark(c, "use_qk_norm: a norm without gains is not modelled");
  }
  return ms_hf_has_silu(c) && ms_hf_read_windows(c, 4); /* every fourth layer has no positions and sees all */
}

static gboolean shared_experts(MsHf *c, const char *key) {
  int shared;
  if (!ms_hf_take_int(c, key, 0, 64, &shared)) return FALSE;
  c->model->moe_shared_expert_intermediate_size = shared * MIN(c->model->moe_ffn_hidden_size, 1 << 20);
  return TRUE;
}

/* Ling and Ring: DeepSeek's experts with grouped attention. */
static gboolean bailing(MsHf *c) {
  MsModel *m = c->model;
  int kept;
  if (!ms_hf_read_experts(c, 0) || !ms_hf_take_int(c, "moe_shared_expert_intermediate_size", 0, 1048576, &kept))
    return FALSE;
  if (kept > 0) {
    gint64 width = (gint64)kept * (m->moe_shared_expert_intermediate_size / MAX(m->moe_ffn_hidden_size, 1));
    m->moe_shared_expert_intermediate_size = (int)MIN(width, 1048576);
  }
  return ms_hf_has_silu(c) && ms_hf_read_norm_topk(c, TRUE);
}

static gboolean bailing_v1(MsHf *c) {
  c->model->add_qkv_bias |= ms_hf_is_true(c, "use_qkv_bias");
  return bailing(c);
}

static gboolean bailing_v2(MsHf *c) {
  const char *score = ms_hf_take_string(c, "score_function");
  if (score && !json_object_has_member(c->json, "scoring_func"))
    json_object_set_string_member(c->json, "scoring_func", score);
  balanced_by_bias(c, "moe_router_enable_expert_bias");
  return ms_hf_read_score(c, "sigmoid") && bailing_v1(c);
}

/* Layers moe_layer_start_index to moe_layer_end_index, every moe_layer_interval-th of them. */
static gboolean ernie_moe(MsHf *c) {
  MsModel *m = c->model;
  int start, end, every;
  if (!ms_hf_take_int(c, "moe_layer_start_index", 0, MS_HF_MOST_LAYERS, &start) ||
      !ms_hf_take_int(c, "moe_layer_interval", 1, MS_HF_MOST_LAYERS, &every))
    return FALSE;
  gint64 given;
  end = ms_hf_is_integer(ms_hf_take(c, "moe_layer_end_index"), &given) && given >= 0 && given < m->num_layers
            ? (int)given
            : m->num_layers - 1;
  g_autoptr(GString) list = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++)
    ms_hf_list_add(list, i >= start && i <= end && every > 0 && (i + 1) % every == 0);
  ms_hf_set_moe_layers(m, list);
  m->add_bias_linear = ms_hf_is_true(c, "use_bias");
  if (ms_hf_is_true(c, "moe_use_aux_free")) m->moe_router_enable_expert_bias = TRUE;
  return ms_hf_has_silu(c) && shared_experts(c, "moe_num_shared_experts");
}

static gboolean dots1(MsHf *c) {
  balanced_by_bias(c, "use_routing_bias");
  return ms_hf_has_silu(c) && ms_hf_read_score(c, "sigmoid") && ms_hf_read_experts(c, 0) &&
         ms_hf_read_norm_topk(c, TRUE) && ms_hf_read_windows(c, 0);
}

static gboolean hunyuan(MsHf *c) {
  MsModel *m = c->model;
  if (ms_hf_is_true(c, "use_cla"))
    return ms_hf_bad(c, "use_cla", "is true; moesim has no layers that share keys and values");
  if (ms_hf_is_true(c, "use_mla")) return ms_hf_bad(c, "use_mla", "is true; moesim imports grouped attention of it");
  if (m->moe_ffn_hidden_size == 0) m->moe_ffn_hidden_size = m->ffn_hidden_size;
  ms_hf_take(c, "use_mixed_mlp_moe"), ms_hf_take(c, "cla_share_factor");
  return ms_hf_has_silu(c) && shared_experts(c, "num_shared_expert");
}

/* Sizes of attention and experts in objects of their own. */
static gboolean dbrx(MsHf *c) {
  MsModel *m = c->model;
  static const struct {
    const char *object, *key, *field;
  } rows[] = {{"attn_config", "kv_n_heads", "num_query_groups"},
              {"attn_config", "rope_theta", "rotary_base"},
              {"ffn_config", "ffn_hidden_size", "moe_ffn_hidden_size"},
              {"ffn_config", "moe_num_experts", "num_experts"},
              {"ffn_config", "moe_top_k", "moe_router_topk"},
              {"ffn_config", "moe_loss_weight", "moe_aux_loss_coeff"}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    JsonNode *object = ms_hf_take(c, rows[i].object),
             *node = object && JSON_NODE_HOLDS_OBJECT(object)
                         ? json_object_get_member(json_node_get_object(object), rows[i].key)
                         : NULL;
    g_autofree char *path = g_strconcat(rows[i].object, ".", rows[i].key, NULL);
    if (!node) return ms_hf_bad(c, rows[i].object, "has no %s", rows[i].key);
    if (!ms_field_set(ms_field_find(&ms_model_table, rows[i].field), c->doc, node, ms_hf_path(c, path), m, c->error))
      return FALSE;
  }
  m->ffn_hidden_size = m->moe_ffn_hidden_size;
  m->normalization = MS_NORM_LAYER;
  m->moe_router_pre_softmax = TRUE;
  return TRUE;
}

/* "3,4,5": the layers with experts. */
static gboolean read_layers_enum(MsHf *c) {
  MsModel *m = c->model;
  const char *text = ms_hf_take_string(c, "moe_layers_enum");
  if (!text) return ms_hf_read_experts(c, 0);
  g_auto(GStrv) words = g_strsplit(text, ",", MS_HF_MOST_LAYERS);
  g_autofree guint8 *has = g_new0(guint8, m->num_layers + 1);
  for (int i = 0; words[i]; i++) {
    guint64 layer;
    if (!g_ascii_string_to_unsigned(g_strstrip(words[i]), 10, 0, MS_HF_MOST_LAYERS, &layer, NULL))
      return ms_hf_bad(c, "moe_layers_enum", "has \"%.40s\", must be layers from 0 with commas between", words[i]);
    if (layer < (guint64)m->num_layers) has[layer] = 1; /* MTP blocks are layers behind these */
  }
  g_autoptr(GString) list = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++) ms_hf_list_add(list, has[i]);
  ms_hf_set_moe_layers(m, list);
  return TRUE;
}

/* Step-3: queries come from a normed latent that all heads share. */
static gboolean step3_text(MsHf *c) {
  MsModel *m = c->model;
  return ms_hf_read_score(c, "softmax") && read_layers_enum(c) &&
         ms_hf_take_int(c, "share_q_dim", 0, 1048576, &m->query_latent_size) &&
         ms_hf_take_int(c, "share_expert_dim", 0, 1048576, &m->moe_shared_expert_intermediate_size) &&
         ms_hf_has_silu(c);
}

/* Step-3.5 and later: experts behind dense layers, one shared; a window in most layers, which have heads of their own.
 */
static gboolean step3(MsHf *c) {
  MsModel *m = c->model;
  const char *score = ms_hf_take_string(c, "moe_router_activation");
  if (score && !json_object_has_member(c->json, "scoring_func"))
    json_object_set_string_member(c->json, "scoring_func", score);
  balanced_by_bias(c, "use_moe_router_bias");
  if (!ms_hf_read_score(c, "sigmoid") || !read_layers_enum(c) ||
      !ms_hf_take_int(c, "share_expert_dims", m->moe_shared_expert_intermediate_size, 1048576,
                      &m->moe_shared_expert_intermediate_size) ||
      !ms_hf_take_int(c, "share_expert_dim", m->moe_shared_expert_intermediate_size, 1048576,
                      &m->moe_shared_expert_intermediate_size))
    return FALSE;
  if (ms_hf_is_true(c, "use_head_wise_attn_gate"))
    ms_hf_remark(c, "use_head_wise_attn_gate: a gate of one number for every head is left out");
  return ms_hf_has_silu(c) && ms_hf_read_windows(c, 0) && ms_hf_read_other_heads(c);
}

/* Hunyuan 3: DeepSeek's experts, scored by sigmoids, with grouped attention. */
static gboolean hy_v3(MsHf *c) {
  MsModel *m = c->model;
  int width;
  if (!ms_hf_take_int(c, "expert_hidden_dim", m->moe_ffn_hidden_size, 1048576, &width)) return FALSE;
  if (m->moe_ffn_hidden_size == 0) m->moe_ffn_hidden_size = width;
  const char *const same[] = {"qk_norm", "route_norm", "moe_router_use_sigmoid"};
  for (guint i = 0; i < G_N_ELEMENTS(same); i++) ms_hf_take(c, same[i]);
  balanced_by_bias(c, "moe_router_enable_expert_bias");
  return ms_hf_has_silu(c) && ms_hf_read_score(c, "sigmoid") && ms_hf_read_experts(c, 1);
}

/* K-EXAONE: the same, with a window in most layers. */
static gboolean exaone_moe(MsHf *c) {
  JsonNode *pattern = json_object_get_member(c->json, "sliding_window_pattern");
  const char *letters = ms_json_string(pattern); /* "LLLG" */
  int period = letters ? (int)MIN(strlen(letters), (size_t)MS_HF_MOST_LAYERS) : 4;
  if (letters) json_object_remove_member(c->json, "sliding_window_pattern");
  ms_hf_take(c, "is_moe_layer"), ms_hf_take(c, "topk_method"); /* say first_k_dense_replace and the bias once more */
  balanced_by_bias(c, "use_routing_bias");
  return ms_hf_has_silu(c) && ms_hf_read_score(c, "sigmoid") && ms_hf_read_experts(c, 1) &&
         ms_hf_read_norm_topk(c, TRUE) && ms_hf_read_windows(c, period);
}

/* Two letters a layer: Mamba or attention, then experts beside a shared MLP, or that alone. */
static char *granite_pattern(MsHf *c, gboolean experts) {
  const MsModel *m = c->model;
  g_auto(GStrv) types = NULL;
  if (!ms_hf_take_words(c, "layer_types", &types)) return NULL;
  if (m->num_layers < 1 || m->num_layers > MS_HF_MOST_LAYERS / 2)
    return ms_hf_bad(c, "num_hidden_layers", "is too large"), NULL;
  if (types && (int)g_strv_length(types) != m->num_layers)
    return ms_hf_bad(c, "layer_types", "has %u layers, must have %d", g_strv_length(types), m->num_layers), NULL;
  g_autoptr(GString) pattern = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++) {
    gboolean attends = types && strcmp(types[i], "attention") == 0;
    if (types && !attends && strcmp(types[i], "mamba") != 0)
      return ms_hf_bad(c, "layer_types", "is \"%.40s\" at layer %d, must be mamba or attention", types[i], i), NULL;
    g_string_append(pattern, attends ? "*" : "M"), g_string_append(pattern, experts ? "E" : "-");
  }
  return g_strdup(pattern->str);
}

/* Granite 4: Mamba-2 in most layers, attention without positions in the others. */
static gboolean granite_hybrid(MsHf *c) {
  MsModel *m = c->model;
  MsMamba *a = &m->mamba;
  int shared, expand;
  if (ms_json_string(json_object_get_member(c->json, "mamba_d_head"))) /* "auto" */
    json_object_remove_member(c->json, "mamba_d_head");
  if (!ms_hf_take_int(c, "shared_intermediate_size", 1024, 1048576, &shared) ||
      !ms_hf_take_int(c, "mamba_expand", 2, 64, &expand) ||
      !ms_hf_take_int(c, "mamba_n_heads", 128, 65536, &a->num_heads) ||
      !ms_hf_take_int(c, "mamba_d_head", expand * MIN(m->hidden_size, 1 << 20) / MAX(a->num_heads, 1), 65536,
                      &a->head_dim) ||
      !ms_hf_take_int(c, "mamba_d_state", 256, 65536, &a->state_dim) ||
      !ms_hf_take_int(c, "mamba_n_groups", 1, 65536, &a->num_groups) ||
      !ms_hf_take_int(c, "mamba_d_conv", 4, 1024, &a->conv_kernel))
    return FALSE;
  const char *const same[] = {"mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "normalization_function"};
  for (guint i = 0; i < G_N_ELEMENTS(same); i++) ms_hf_take(c, same[i]);
  const char *positions = ms_hf_take_string(c, "position_embedding_type");
  if (!positions || strcmp(positions, "rope") != 0) m->position_embedding = MS_POS_NONE;
  gboolean experts = m->num_experts > 0;
  if (experts) m->moe_ffn_hidden_size = m->ffn_hidden_size, m->moe_shared_expert_intermediate_size = shared;
  else m->ffn_hidden_size = shared, m->moe_router_topk = 0;
  m->hybrid_layer_pattern = granite_pattern(c, experts);
  if (!m->hybrid_layer_pattern) return FALSE;
  m->num_layers = (int)strlen(m->hybrid_layer_pattern);
  return ms_hf_has_silu(c);
}

const MsHfFamily ms_hf_expert_families[] = {
    {"phimoe", phimoe, MS_HF_LAYER_NORM | MS_HF_WINDOWED},
    {"granitemoe", like_mixtral, 0},
    {"minimax_m2", minimax_m2, 0},
    {"llama4_text", llama4, 0},
    {"bailing_moe", bailing_v1, 0},
    {"bailing_moe_v2", bailing_v2, MS_HF_QK_NORM},
    {"ernie4_5_moe", ernie_moe, MS_HF_TIED},
    {"dots1", dots1, MS_HF_QK_NORM},
    {"hunyuan", hunyuan, 0},
    {"hunyuan_v1_moe", hunyuan, MS_HF_QK_NORM},
    {"dbrx", dbrx, 0},
    {"step3_text", step3_text, 0},
    {"step3p5", step3, MS_HF_QK_NORM},
    {"step3p7", step3, MS_HF_QK_NORM},
    {"hy_v3", hy_v3, MS_HF_QK_NORM},
    {"exaone_moe", exaone_moe, MS_HF_QK_NORM},
    {"granitemoehybrid", granite_hybrid, 0},
    /* --- refused --- */
    {"minimax", NULL, .refused = "it has lightning attention in most layers"},
    {"minimax_text_01", NULL, .refused = "it has lightning attention in most layers"},
    {"minimax_m1", NULL, .refused = "it has lightning attention in most layers"},
    {"longcat_flash", NULL, .refused = "it has experts that compute nothing, and two attentions a layer"},
    {"bailing_moe_linear", NULL, .refused = "it has lightning attention in most layers"},
    {"bailing_hybrid", NULL, .refused = "it has lightning attention in most layers"},
    {"falcon_h1", NULL, .refused = "attention and Mamba-2 run beside each other in every layer"},
    {"zamba2", NULL, .refused = "its Mamba-2 layers share one attention layer, each with adapters of its own"},
    {"ernie4_5_moe_vl", NULL, .refused = "text and images have experts of their own"},
    {NULL}};
