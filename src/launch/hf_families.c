/* src/launch/hf_families.c - what each family of Hugging Face models has by itself (the classes of
 * transformers and the bridges of Megatron-Bridge for what a file does not say). */
#include <string.h>

#include "launch/hf_keys_priv.h"

/* --- what several families share --- */
gboolean ms_hf_has_silu(MsHf *c) {
  const char *act = ms_hf_take_string(c, "hidden_act");
  return !act || strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0 ||
         ms_hf_bad(c, "hidden_act", "is \"%.40s\", this family has silu", act);
}

static gboolean read_window(MsHf *c, gboolean on) {
  int window;
  if (!ms_hf_take_int(c, "sliding_window", 0, 1 << 30, &window)) return FALSE;
  c->model->sliding_window.window = on ? window : 0;
  return TRUE;
}

/* "[0]*dense+[1]*rest"; NULL when there is no dense layer. */
static char *dense_first(const MsModel *m, int dense) {
  return dense > 0 ? g_strdup_printf("[0]*%d+[1]*%d", dense, MAX(m->num_layers - dense, 0)) : NULL;
}

/* --- families --- */
static gboolean llama(MsHf *c) { return ms_hf_has_silu(c); }

static gboolean mistral(MsHf *c) { return ms_hf_has_silu(c) && read_window(c, TRUE); }

static gboolean mixtral(MsHf *c) {
  c->model->moe_ffn_hidden_size = c->model->ffn_hidden_size;
  return ms_hf_has_silu(c) && read_window(c, TRUE);
}

static gboolean qwen(MsHf *c, gboolean qkv_bias, gboolean qk_norm) {
  if (qkv_bias && !json_object_has_member(c->json, "attention_bias"))
    c->model->add_qkv_bias = TRUE; /* the class has it without a key */
  c->model->qk_layernorm |= qk_norm;
  return ms_hf_has_silu(c) && read_window(c, ms_hf_is_true(c, "use_sliding_window"));
}

static gboolean qwen2(MsHf *c) { return qwen(c, TRUE, FALSE); }
static gboolean qwen3(MsHf *c) { return qwen(c, FALSE, TRUE); }

/* --- experts --- */
/* decoder_sparse_step N: layers N, 2N, ... have experts; those of mlp_only_layers (from 0) never. */
static gboolean read_sparse_step(MsHf *c) {
  MsModel *m = c->model;
  int step;
  if (!ms_hf_take_int(c, "decoder_sparse_step", 1, MS_HF_MOST_LAYERS, &step)) return FALSE;
  JsonNode *only = ms_hf_take(c, "mlp_only_layers");
  JsonArray *dense = ms_json_array(only);
  if (only && !dense) return ms_hf_bad(c, "mlp_only_layers", "must be a list of layers");
  g_autoptr(GString) freq = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++) {
    gboolean moe = step > 0 && (i + 1) % step == 0;
    for (guint k = 0; dense && k < json_array_get_length(dense) && k < MS_HF_MOST_LAYERS; k++) {
      gint64 layer;
      if (!ms_hf_is_integer(json_array_get_element(dense, k), &layer))
        return ms_hf_bad(c, "mlp_only_layers", "must be a list of layers");
      moe &= layer != i;
    }
    ms_hf_list_add(freq, moe);
  }
  ms_hf_set_moe_layers(m, freq);
  return TRUE;
}

/* norm_topk_prob: the weights of the chosen experts add up to 1, as a softmax over them does; else the softmax is over
 * all experts, before the choice. Other scores are always divided by their sum. */
gboolean ms_hf_read_norm_topk(MsHf *c, gboolean absent) {
  gboolean given = json_object_has_member(c->json, "norm_topk_prob"), on = ms_hf_is_true(c, "norm_topk_prob");
  c->model->moe_router_pre_softmax = !ms_model_scores_apart(c->model) && !(given ? on : absent);
  return TRUE;
}

static gboolean qwen2_moe(MsHf *c) {
  MsModel *m = c->model;
  if (!ms_hf_take_int(c, "shared_expert_intermediate_size", 0, 1048576, &m->moe_shared_expert_intermediate_size))
    return FALSE;
  m->moe_shared_expert_gate = m->moe_shared_expert_intermediate_size > 0;
  return qwen(c, TRUE, FALSE) && read_sparse_step(c) && ms_hf_read_norm_topk(c, FALSE);
}

static gboolean qwen3_moe(MsHf *c) {
  return qwen(c, FALSE, TRUE) && read_sparse_step(c) && ms_hf_read_norm_topk(c, FALSE);
}

/* Every `every`-th layer is softmax attention, the others are gated delta nets; `layer_types` may say it once more. */
static gboolean read_layer_types(MsHf *c, int every) {
  g_auto(GStrv) types = NULL;
  if (!ms_hf_take_words(c, "layer_types", &types)) return FALSE;
  for (int i = 0; types && types[i]; i++)
    if (strcmp(types[i], every > 0 && (i + 1) % every == 0 ? "full_attention" : "linear_attention") != 0)
      return ms_hf_bad(c, "layer_types",
                       "does not have full_attention in every layer that full_attention_interval = %d names, and "
                       "linear_attention in the others",
                       every);
  return TRUE;
}

/* Qwen3-Next, Qwen3.5: gated softmax attention with normed heads, gated delta nets, experts with a gated shared one. */
static gboolean qwen_hybrid(MsHf *c) {
  MsModel *m = c->model;
  MsLinearAttention *a = &m->linear_attention;
  gboolean moe = m->num_experts > 0;
  if (!ms_hf_take_int(c, "full_attention_interval", 4, MS_HF_MOST_LAYERS, &a->frequency) ||
      !ms_hf_take_int(c, "linear_num_key_heads", 16, 65536, &a->num_key_heads) ||
      !ms_hf_take_int(c, "linear_num_value_heads", 32, 65536, &a->num_value_heads) ||
      !ms_hf_take_int(c, "linear_key_head_dim", 128, 65536, &a->key_head_dim) ||
      !ms_hf_take_int(c, "linear_value_head_dim", 128, 65536, &a->value_head_dim) ||
      !ms_hf_take_int(c, "linear_conv_kernel_dim", 4, 1024, &a->conv_kernel) || !read_layer_types(c, a->frequency) ||
      (moe &&
       !ms_hf_take_int(c, "shared_expert_intermediate_size", 0, 1048576, &m->moe_shared_expert_intermediate_size)))
    return FALSE;
  m->moe_shared_expert_gate = m->moe_shared_expert_intermediate_size > 0;
  m->attention_output_gate =
      !json_object_has_member(c->json, "attn_output_gate") || ms_hf_is_true(c, "attn_output_gate");
  m->layernorm_zero_centered_gamma = TRUE;
  if (moe) m->moe_router_load_balancing_type = MS_BALANCE_GLOBAL_AUX;
  ms_hf_take(c, "use_sliding_window");
  return qwen(c, FALSE, TRUE) && (!moe || (read_sparse_step(c) && ms_hf_read_norm_topk(c, TRUE)));
}

gboolean ms_hf_read_latent(MsHf *c) {
  MsMla *mla = &c->model->multi_latent_attention;
  return ms_hf_take_int(c, "q_lora_rank", 0, 1048576, &mla->q_lora_rank) &&
         ms_hf_take_int(c, "kv_lora_rank", 512, 1048576, &mla->kv_lora_rank) &&
         ms_hf_take_int(c, "qk_nope_head_dim", 128, 65536, &mla->qk_head_dim) &&
         ms_hf_take_int(c, "qk_rope_head_dim", 64, 65536, &mla->qk_pos_emb_head_dim) &&
         ms_hf_take_int(c, "v_head_dim", 128, 65536, &mla->v_head_dim);
}

gboolean ms_hf_read_score(MsHf *c, const char *absent) {
  const char *score = ms_hf_take_string(c, "scoring_func");
  if (!score) score = absent;
  for (int i = 0; ms_router_score_words[i]; i++) {
    if (strcmp(ms_router_score_words[i], score) != 0) continue;
    c->model->moe_router_score_function = (MsRouterScore)i;
    return TRUE;
  }
  return ms_hf_bad(c, "scoring_func", "is \"%.40s\", must be softmax, sigmoid or sqrtsoftplus", score);
}

/* mlp_layer_types: "dense" or "sparse" for every layer. FALSE and the error when it is something else; *given when it
 * is there. */
static gboolean read_mlp_types(MsHf *c, gboolean *given) {
  g_auto(GStrv) types = NULL;
  if (!ms_hf_take_words(c, "mlp_layer_types", &types)) return FALSE;
  *given = types != NULL;
  if (!types) return TRUE;
  if ((int)g_strv_length(types) != c->model->num_layers)
    return ms_hf_bad(c, "mlp_layer_types", "has %u layers, must have %d", g_strv_length(types), c->model->num_layers);
  g_autoptr(GString) freq = g_string_new(NULL);
  for (int i = 0; types[i]; i++) {
    gboolean dense = strcmp(types[i], "dense") == 0;
    if (!dense && strcmp(types[i], "sparse") != 0)
      return ms_hf_bad(c, "mlp_layer_types", "is \"%.40s\" at layer %d, must be dense or sparse", types[i], i);
    ms_hf_list_add(freq, !dense);
  }
  ms_hf_set_moe_layers(c->model, freq);
  return TRUE;
}

/* Which layers have experts (the first `absent` have none where the file does not say), and the width of the shared
 * expert. */
gboolean ms_hf_read_experts(MsHf *c, int absent) {
  MsModel *m = c->model;
  int dense, shared;
  gboolean given;
  if (!ms_hf_take_int(c, "first_k_dense_replace", absent, MS_HF_MOST_LAYERS, &dense) ||
      !ms_hf_take_int(c,
                      json_object_has_member(c->json, "n_shared_experts") ? "n_shared_experts" : "num_shared_experts",
                      0, 1024, &shared) ||
      !read_mlp_types(c, &given))
    return FALSE;
  if (dense > m->num_layers)
    return ms_hf_bad(c, "first_k_dense_replace", "is %d, the model has %d layers", dense, m->num_layers);
  gint64 width = (gint64)shared * m->moe_ffn_hidden_size;
  if (width > 1048576) return ms_hf_bad(c, "n_shared_experts", "make shared experts wider than 1048576");
  if (!given) m->moe_layer_freq = dense_first(m, dense);
  m->moe_shared_expert_intermediate_size = (int)width;
  if (m->moe_router_num_groups <= 1)
    m->moe_router_num_groups = m->moe_router_group_topk = 0; /* one group limits nothing */
  return TRUE;
}

static gboolean deepseek(MsHf *c, const char *score, int unit, int dense) {
  MsModel *m = c->model;
  int every;
  if (!ms_hf_has_silu(c) || !ms_hf_read_latent(c) || !ms_hf_read_score(c, score) || !ms_hf_read_experts(c, dense) ||
      !ms_hf_take_int(c, "moe_layer_freq", 1, MS_HF_MOST_LAYERS, &every))
    return FALSE;
  if (every != 1)
    return ms_hf_bad(c, "moe_layer_freq", "is %d; moesim imports 1, experts in every layer after the first dense ones",
                     every);
  m->num_query_groups = m->num_attention_heads; /* keys and values come from the latent */
  m->kv_channels = m->multi_latent_attention.v_head_dim;
  m->qk_layernorm = TRUE;
  m->position_embedding = MS_POS_ROPE; /* its own scaling, in the attention */
  m->make_vocab_size_divisible_by = unit;
  gboolean given = json_object_has_member(c->json, "seq_aux");
  if (ms_hf_is_true(c, "seq_aux") || !given) m->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
  return ms_hf_read_norm_topk(c, FALSE);
}

/* The first models, and small ones of the second: attention with whole keys and values. */
static gboolean deepseek_plain(MsHf *c) {
  c->model->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
  return ms_hf_has_silu(c) && ms_hf_read_score(c, "softmax") && ms_hf_read_experts(c, 0) &&
         ms_hf_read_norm_topk(c, FALSE);
}

static gboolean deepseek_v2(MsHf *c) {
  gboolean whole = json_object_has_member(c->json, "use_mla") && !ms_hf_is_true(c, "use_mla");
  return whole ? deepseek_plain(c) : deepseek(c, "softmax", 3200, 0);
}

/* DeepSeek-V3's block; the first `dense` layers have no experts where the file does not say. */
static gboolean deepseek_block(MsHf *c, int dense) {
  const char *method = ms_hf_take_string(c, "topk_method");
  c->model->moe_router_enable_expert_bias = !method || strcmp(method, "noaux_tc") == 0;
  if (!json_object_has_member(c->json, "aux_loss_alpha")) c->model->moe_aux_loss_coeff = 1e-4; /* Megatron-Bridge's */
  return deepseek(c, "sigmoid", 1280, dense);
}

static gboolean deepseek_v3(MsHf *c) { return deepseek_block(c, 0); }
static gboolean glm4_moe_lite(MsHf *c) {
  if (!deepseek_block(c, 1)) return FALSE;
  if (!json_object_has_member(c->json, "aux_loss_alpha"))
    c->model->moe_aux_loss_coeff = 1e-3; /* Megatron-Bridge, glm47_flash_bridge.py */
  return TRUE;
}

static gboolean kimi_k2(MsHf *c) {
  if (!deepseek_v3(c)) return FALSE;
  if (!json_object_has_member(c->json, "aux_loss_alpha")) c->model->moe_aux_loss_coeff = 1e-3;
  return TRUE;
}

/* Mistral Small 4: DeepSeek-V3's block, scored by a softmax, without the bias that balances experts. */
static gboolean mistral4(MsHf *c) { return deepseek(c, "softmax", 128, 0) && ms_hf_read_norm_topk(c, TRUE); }

static gboolean gpt_oss(MsHf *c) {
  MsModel *m = c->model;
  m->moe_ffn_hidden_size = m->ffn_hidden_size;
  m->add_bias_linear = TRUE;
  m->softmax_sink = TRUE;
  m->moe_aux_loss_coeff = 0; /* so trained, whatever the file says */
  m->moe_router_load_balancing_type = MS_BALANCE_NONE;
  m->activation = MS_ACT_QUICK_GELU;
  m->sliding_window.period = 2;
  ms_hf_take(c, "hidden_act");
  ms_hf_take(c, "layer_types");
  return read_window(c, TRUE);
}

/* --- sparse attention --- */
static gboolean read_indexer(MsHf *c) {
  MsSparseAttention *a = &c->model->sparse_attention;
  return ms_hf_take_int(c, "index_n_heads", 64, 65536, &a->indexer_num_heads) &&
         ms_hf_take_int(c, "index_head_dim", 128, 65536, &a->indexer_head_dim) &&
         ms_hf_take_int(c, "index_topk", 2048, 1 << 30, &a->indexer_topk);
}

static gboolean deepseek_v32(MsHf *c) { return deepseek_v3(c) && read_indexer(c); }

/* GLM-5: DeepSeek-V3.2's layers; some share the choice of an earlier layer's indexer. */
static gboolean glm_moe_dsa(MsHf *c) {
  MsModel *m = c->model;
  MsSparseAttention *a = &m->sparse_attention;
  g_auto(GStrv) types = NULL;
  if (!deepseek_block(c, 3) || !read_indexer(c) ||
      !ms_hf_take_int(c, "index_topk_freq", 1, MS_HF_MOST_LAYERS, &a->indexer_topk_freq) ||
      !ms_hf_take_int(c, "index_skip_topk_offset", 2, MS_HF_MOST_LAYERS, &a->indexer_skip_topk_offset) ||
      !ms_hf_take_words(c, "indexer_types", &types))
    return FALSE;
  if (a->indexer_topk_freq <= 1) a->indexer_topk_freq = 1, a->indexer_skip_topk_offset = 0; /* every layer chooses */
  ms_hf_take(c, "layer_types"); /* says sparse attention of every layer once more */
  for (int i = 0; types && types[i]; i++)
    if ((strcmp(types[i], "full") == 0) != ms_model_layer_has_indexer(m, MIN(i, m->num_layers - 1)))
      return ms_hf_bad(c, "indexer_types",
                       "is \"%.40s\" at layer %d, against index_topk_freq and index_skip_topk_offset", types[i], i);
  if (!json_object_has_member(c->json, "aux_loss_alpha"))
    m->moe_aux_loss_coeff = 0; /* balanced by the bias of the experts alone */
  return TRUE;
}

/* compress_ratios: a number for every layer, and for MTP blocks as far as it goes; the rest of these see their window
 * only. */
static char *ratios_of_list(MsHf *c, JsonArray *list) {
  int layers = c->model->num_layers, blocks = layers + c->model->mtp_num_layers,
      n = (int)MIN(json_array_get_length(list), MS_HF_MOST_LAYERS);
  g_autoptr(GString) ratios = g_string_new(NULL);
  for (int i = 0; i < blocks; i++) {
    gint64 ratio = 0;
    if ((i < n || i < layers) && !ms_hf_is_integer(i < n ? json_array_get_element(list, (guint)i) : NULL, &ratio))
      return ms_hf_bad(c, "compress_ratios", "must be a list of an integer for every layer"), NULL;
    ms_hf_list_add(ratios, ratio);
  }
  return ms_hf_list_text(ratios);
}

/* layer_types, with compress_rates where a kind has another rate than usual; MTP blocks see their window only. */
static char *ratios_of_types(MsHf *c, char *const *types, JsonNode *rates) {
  const MsModel *m = c->model;
  if ((int)g_strv_length((char **)types) != m->num_layers)
    return ms_hf_bad(c, "layer_types", "has %u layers, must have %d", g_strv_length((char **)types), m->num_layers),
           NULL;
  JsonObject *rate_of = ms_json_object(rates);
  g_autoptr(GString) ratios = g_string_new(NULL);
  for (int i = 0; i < m->num_layers + m->mtp_num_layers; i++) {
    const char *type = i < m->num_layers ? types[i] : "sliding_attention";
    gint64 ratio = strcmp(type, "compressed_sparse_attention") == 0    ? 4
                   : strcmp(type, "heavily_compressed_attention") == 0 ? 128
                                                                       : 0;
    ms_hf_is_integer(ms_json_member(rate_of, type), &ratio);
    if (ratio == 0 && strcmp(type, "sliding_attention") != 0)
      return ms_hf_bad(c, "layer_types",
                       "is \"%.40s\" at layer %d, must be sliding_attention, compressed_sparse_attention or "
                       "heavily_compressed_attention",
                       type, i),
             NULL;
    ms_hf_list_add(ratios, ratio);
  }
  return ms_hf_list_text(ratios);
}

static char *read_ratios(MsHf *c) {
  JsonNode *list = ms_hf_take(c, "compress_ratios"), *rates = ms_hf_take(c, "compress_rates");
  g_auto(GStrv) types = NULL;
  if (!ms_hf_take_words(c, "layer_types", &types)) return NULL;
  if (list && JSON_NODE_HOLDS_ARRAY(list)) return ratios_of_list(c, json_node_get_array(list));
  return types ? ratios_of_types(c, types, rates)
               : (ms_hf_bad(c, "", "has neither compress_ratios nor layer_types"), NULL);
}

static gboolean deepseek_v4(MsHf *c) {
  MsModel *m = c->model;
  MsCompressedAttention *a = &m->compressed_attention;
  if (!ms_hf_has_silu(c) || !ms_hf_read_score(c, "sqrtsoftplus") || !ms_hf_read_experts(c, 0) || !read_indexer(c) ||
      !ms_hf_take_int(c, "q_lora_rank", 1024, 1048576, &a->q_lora_rank) ||
      !ms_hf_take_int(c, "qk_rope_head_dim", 64, 65536, &a->qk_pos_emb_head_dim) ||
      !ms_hf_take_int(c, "o_groups", 8, 65536, &a->o_groups) ||
      !ms_hf_take_int(c, "o_lora_rank", 1024, 1048576, &a->o_lora_rank) ||
      !ms_hf_take_int(c, "sliding_window", 128, 1 << 30, &a->window) ||
      !ms_hf_take_int(c, "hc_mult", 4, 64, &m->hyper_connections.num_residual_streams) ||
      !ms_hf_take_int(c, "hc_sinkhorn_iters", 20, 10000, &m->hyper_connections.sinkhorn_iterations))
    return FALSE;
  a->head_dim = m->kv_channels;
  a->compress_ratios = read_ratios(c);
  ms_hf_take(c, "num_hash_layers"); /* routed by a hash of the token, at the cost of the others */
  m->qk_layernorm = TRUE;
  m->moe_router_enable_expert_bias = TRUE; /* balanced by it alone */
  if (!json_object_has_member(c->json, "router_aux_loss_coef")) m->moe_aux_loss_coeff = 0;
  m->position_embedding = MS_POS_ROPE;
  m->make_vocab_size_divisible_by = 3232;
  return a->compress_ratios != NULL;
}

/* --- families of one kind of attention each --- */
static gboolean glm4_moe(MsHf *c) {
  MsModel *m = c->model;
  m->moe_router_score_function = MS_SCORE_SIGMOID;
  m->moe_router_enable_expert_bias = TRUE;
  m->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
  if (!json_object_has_member(c->json, "router_aux_loss_coef"))
    m->moe_aux_loss_coeff = 1e-3; /* Megatron-Bridge, glm45_bridge.py */
  return ms_hf_has_silu(c) && ms_hf_read_experts(c, 1) && ms_hf_read_norm_topk(c, TRUE);
}

static gboolean olmoe(MsHf *c) {
  c->model->moe_ffn_hidden_size = c->model->ffn_hidden_size;
  c->model->qk_layernorm = TRUE;
  c->model->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
  return ms_hf_has_silu(c) && ms_hf_read_norm_topk(c, FALSE);
}

/* One letter a layer (MsModel.hybrid_layer_pattern) from a pattern or from a list of words, the newer form; NULL when
 * the file has neither. */
static gboolean read_pattern(MsHf *c, const char *pattern_key, const char *words_key, char **pattern) {
  static const struct {
    const char *word;
    char letter;
  } kinds[] = {{"mamba", 'M'}, {"linear_attention", 'M'}, {"attention", '*'}, {"full_attention", '*'}, {"moe", 'E'},
               {"mlp", '-'}};
  const char *written = ms_hf_take_string(c, pattern_key);
  g_auto(GStrv) words = NULL;
  *pattern = NULL;
  if (!ms_hf_take_words(c, words_key, &words)) return FALSE;
  if (written) *pattern = g_strndup(written, MS_HF_MOST_LAYERS);
  if (written || !words) return TRUE;
  g_autoptr(GString) letters = g_string_new(NULL);
  for (int i = 0; words[i]; i++) {
    guint k = 0;
    while (k < G_N_ELEMENTS(kinds) && strcmp(kinds[k].word, words[i]) != 0) k++;
    if (k == G_N_ELEMENTS(kinds))
      return ms_hf_bad(c, words_key, "is \"%.40s\" at layer %d, must be linear_attention, full_attention, mlp or moe",
                       words[i], i);
    g_string_append_c(letters, kinds[k].letter);
  }
  *pattern = g_strdup(letters->str);
  return TRUE;
}

/* Nemotron-H and Nemotron-3: Mamba-2, attention, MLP and expert layers in the order of a pattern. */
static gboolean nemotron_h(MsHf *c) {
  MsModel *m = c->model;
  MsMamba *a = &m->mamba;
  const char *act = ms_hf_take_string(c, "mlp_hidden_act");
  if (act && strcmp(act, "relu2") != 0)
    return ms_hf_bad(c, "mlp_hidden_act", "is \"%.40s\", this family has relu2", act);
  if (!ms_hf_take_int(c, "mamba_num_heads", 128, 65536, &a->num_heads) ||
      !ms_hf_take_int(c, "mamba_head_dim", 64, 65536, &a->head_dim) ||
      !ms_hf_take_int(c, "ssm_state_size", 128, 65536, &a->state_dim) ||
      !ms_hf_take_int(c, "n_groups", 8, 65536, &a->num_groups) ||
      !ms_hf_take_int(c, "conv_kernel", 4, 1024, &a->conv_kernel) ||
      !ms_hf_take_int(c, "moe_latent_size", 0, 1048576, &m->moe_latent_size) ||
      !ms_hf_take_int(c, "moe_shared_expert_intermediate_size", 0, 1048576, &m->moe_shared_expert_intermediate_size))
    return FALSE;
  if (m->kv_channels == 0 && !ms_hf_take_int(c, "attention_head_dim", 0, 65536, &m->kv_channels)) return FALSE;
  if (!read_pattern(c, "hybrid_override_pattern", "layers_block_type", &m->hybrid_layer_pattern)) return FALSE;
  if (!m->hybrid_layer_pattern) return ms_hf_bad(c, "", "has neither hybrid_override_pattern nor layers_block_type");
  if (m->num_layers == 0) m->num_layers = (int)strlen(m->hybrid_layer_pattern);
  const char *const same[] = {"hidden_act", "mamba_hidden_act", "n_shared_experts", "expand",
                              "chunk_size", "use_conv_bias"}; /* say nothing that the keys above do not */
  for (guint i = 0; i < G_N_ELEMENTS(same); i++) ms_hf_take(c, same[i]);
  m->add_bias_linear |= ms_hf_is_true(c, "use_bias");
  m->gated = FALSE;
  m->activation = MS_ACT_SQUARED_RELU;
  m->position_embedding = MS_POS_NONE;
  if (!strchr(m->hybrid_layer_pattern, 'E')) { /* the class has sizes of experts that a dense model does not use */
    m->num_experts = m->moe_router_topk = m->moe_ffn_hidden_size = m->moe_shared_expert_intermediate_size =
        m->moe_latent_size = 0;
    m->moe_router_num_groups = m->moe_router_group_topk = 0;
  } else {
    m->moe_router_score_function = MS_SCORE_SIGMOID;
    m->moe_router_enable_expert_bias = TRUE;
    m->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
    m->moe_aux_loss_coeff = 1e-4; /* Megatron-Bridge, nemotron_h_bridge.py */
    if (m->moe_router_num_groups <= 1) m->moe_router_num_groups = m->moe_router_group_topk = 0;
  }
  if (m->mtp_num_layers > 0) {
    if (!read_pattern(c, "mtp_hybrid_override_pattern", "mtp_layers_block_type", &m->mtp_pattern)) return FALSE;
    if (!m->mtp_pattern) m->mtp_pattern = g_strdup("*E"); /* what the class has */
  }
  return ms_hf_read_norm_topk(c, TRUE);
}

const MsHfFamily ms_hf_families[] = {{"llama", llama, 0,
                                      "{\"num_hidden_layers\":32,\"hidden_size\":4096,\"num_attention_heads\":32,"
                                      "\"intermediate_size\":11008,\"vocab_size\":32000}"},
                                     {"mistral", mistral},
                                     {"mixtral", mixtral},
                                     {"qwen2", qwen2},
                                     {"qwen3", qwen3},
                                     {"qwen_ascend", qwen3}, /* a class of mllm without model_type */
                                     {"qwen2_vl", qwen2},
                                     {"qwen2_vl_text", qwen2},
                                     {"qwen2_5_vl", qwen2},
                                     {"qwen2_5_vl_text", qwen2},
                                     {"qwen2_5_omni_text", qwen2},
                                     {"qwen3_omni_moe_text", qwen3_moe},
                                     {"qwen3_vl_text", qwen3},
                                     {"qwen3_vl_moe_text", qwen3_moe},
                                     {"mimo", qwen2},
                                     {"deepseek_ref", deepseek_v4},
                                     {"qwen2_moe", qwen2_moe},
                                     {"qwen3_moe", qwen3_moe},
                                     {"deepseek", deepseek_plain},
                                     {"deepseek_v2", deepseek_v2},
                                     {"deepseek_v3", deepseek_v3},
                                     {"deepseek_v32", deepseek_v32},
                                     {"deepseek_v4", deepseek_v4},
                                     {"kimi_k2", kimi_k2},
                                     {"mistral4", mistral4},
                                     {"glm4_moe", glm4_moe},
                                     {"glm4v_moe_text", glm4_moe},
                                     {"glm4_moe_lite", glm4_moe_lite},
                                     {"glm_moe_dsa", glm_moe_dsa},
                                     {"gpt_oss", gpt_oss},
                                     {"olmoe", olmoe},
                                     {"nemotron_h", nemotron_h},
                                     {"qwen3_next", qwen_hybrid},
                                     {"qwen3_5_text", qwen_hybrid},
                                     {"qwen3_5_moe_text", qwen_hybrid},
                                     {"qwen3_5", qwen_hybrid},
                                     {"qwen3_5_moe", qwen_hybrid},
                                     {NULL}};
