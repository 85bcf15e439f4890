/* src/launch/hf_uneven.c - families whose layers differ in heads, or attend in a way that no model says: read as their
 * more frequent layer, or as the nearest kind, with a remark that says what that leaves out (their published classes).
 */
#include <math.h>
#include <string.h>

#include "launch/hf_keys_priv.h"

/* --- shared --- */
static int layers_that_see_all(const MsModel *m) {
  const MsSlidingWindow *w = &m->sliding_window;
  return w->window == 0 ? m->num_layers : w->period > 0 ? m->num_layers / w->period : 0;
}

/* "0.55e9 parameters are missing", for the end of a remark; `missing` below zero: there are too many. (transfer full)
 */
static char *difference(double missing) {
  return missing == 0 ? g_strdup("the parameters are the same")
                      : g_strdup_printf("%.3g million parameters are %s", ABS(missing) / 1e6,
                                        missing > 0 ? "missing" : "counted too many");
}

/* A list of 0 and 1 over the layers (transfer full); NULL and the error when it is something else. */
static guint8 *take_flags(MsHf *c, const char *key) {
  JsonArray *list = ms_json_array(ms_hf_take(c, key));
  int layers = c->model->num_layers;
  gint64 flag;
  if (!list || (int)json_array_get_length(list) != layers)
    return ms_hf_bad(c, key, "must be a list of %d layers", layers), NULL;
  g_autofree guint8 *flags = g_new0(guint8, layers);
  for (int i = 0; i < layers; i++) {
    if (!ms_hf_is_integer(json_array_get_element(list, (guint)i), &flag) || flag < 0 || flag > 1)
      return ms_hf_bad(c, key, "must be 0 or 1 at layer %d", i), NULL;
    flags[i] = (guint8)flag;
  }
  return g_steal_pointer(&flags);
}

/* moe_layer_freq as a list: 1 where the layer has experts. */
static gboolean read_expert_flags(MsHf *c) {
  g_autofree guint8 *flags = take_flags(c, "moe_layer_freq");
  if (!flags) return FALSE;
  g_autoptr(GString) list = g_string_new(NULL);
  for (int i = 0; i < c->model->num_layers; i++) ms_hf_list_add(list, flags[i]);
  ms_hf_set_moe_layers(c->model, list);
  return TRUE;
}

static void balanced_by_bias(MsModel *m) {
  m->moe_router_enable_expert_bias = TRUE;
  m->moe_router_load_balancing_type = MS_BALANCE_SEQ_AUX;
}

/* --- families --- */
/* Gemma-4: heads of the layers that see all are wider and share keys and values among more, and these are one. A dense
 * MLP runs beside the experts. */
static gboolean gemma4(MsHf *c) {
  MsModel *m = c->model;
  int wide, groups, shared, inputs;
  if (!ms_hf_take_int(c, "global_head_dim", m->kv_channels, 65536, &wide) ||
      !ms_hf_take_int(c, "num_global_key_value_heads", m->num_query_groups, 65536, &groups) ||
      !ms_hf_take_int(c, "num_kv_shared_layers", 0, MS_HF_MOST_LAYERS, &shared) ||
      !ms_hf_take_int(c, "hidden_size_per_layer_input", 0, 1048576, &inputs) || !ms_hf_read_windows(c, 6))
    return FALSE;
  if (shared > 0)
    return ms_hf_bad(c, "num_kv_shared_layers", "is %d; moesim has no layers that share keys and values", shared);
  if (inputs > 0)
    return ms_hf_bad(c, "hidden_size_per_layer_input", "is %d; moesim has no embeddings in every layer", inputs);
  gboolean one = ms_hf_is_true(c, "attention_k_eq_v");
  double h = m->hidden_size, n = m->num_attention_heads, d = m->kv_channels,
         there = 2 * h * n * wide + (one ? 1 : 2) * h * groups * wide,
         here = 2 * h * n * d + 2 * h * m->num_query_groups * d;
  g_autofree char *text = difference(layers_that_see_all(m) * (there - here));
  ms_hf_remark(
      c,
      "global_head_dim, num_global_key_value_heads: layers that see all have heads of %d, %d of them with keys "
      "and values%s; they are read as the others: %s, and their scores are counted at %.3g of their work",
      wide, groups, one ? " that are one" : "", text, wide > 0 ? d / wide : 1);
  if (!ms_hf_is_true(c, "enable_moe_block")) return m->num_experts = 0, TRUE;
  m->moe_shared_expert_intermediate_size = m->ffn_hidden_size;
  m->moe_router_pre_softmax = FALSE;
  return ms_hf_take_int(c, "top_k_experts", 1, 65536, &m->moe_router_topk);
}

/* MiMo-V2: heads whose values are narrower than their keys, fewer key-value heads where a layer sees all. A width
 * between the two has the parameters and the FLOP of both. */
static gboolean mimo_v2(MsHf *c) {
  MsModel *m = c->model;
  int value, heads, groups, key_dim, value_dim;
  if (!ms_hf_take_int(c, "v_head_dim", m->kv_channels, 65536, &value) ||
      !ms_hf_take_int(c, "swa_num_attention_heads", m->num_attention_heads, 65536, &heads) ||
      !ms_hf_take_int(c, "swa_num_key_value_heads", m->num_query_groups, 65536, &groups) ||
      !ms_hf_take_int(c, "swa_head_dim", m->kv_channels, 65536, &key_dim) ||
      !ms_hf_take_int(c, "swa_v_head_dim", value, 65536, &value_dim))
    return FALSE;
  if (heads != m->num_attention_heads || key_dim != m->kv_channels || value_dim != value)
    return ms_hf_bad(c, "swa_num_attention_heads", "and the widths of heads must be those of layers without a window");
  if ((m->kv_channels + value) % 2)
    return ms_hf_bad(c, "v_head_dim", "is %d beside head_dim = %d: their sum must be even", value, m->kv_channels);
  g_autofree guint8 *windowed = take_flags(c, "hybrid_layer_pattern");
  if (!windowed || !read_expert_flags(c)) return FALSE;
  g_autoptr(JsonArray) types = json_array_new();
  int all = 0;
  for (int i = 0; i < m->num_layers; i++) {
    json_array_add_string_element(types, windowed[i] ? "sliding_attention" : "full_attention");
    all += !windowed[i];
  }
  json_object_set_array_member(c->json, "layer_types", g_steal_pointer(&types));
  int keys = m->kv_channels, few = m->num_query_groups;
  m->kv_channels = (keys + value) / 2, m->num_query_groups = groups;
  g_autofree char *text = difference((double)all * m->hidden_size * (few - groups) * (keys + value));
  ms_hf_remark(c,
               "v_head_dim: heads have keys of %d and values of %d, read as %d each; %d layers that see all have %d "
               "key-value heads, read as the %d of the others: %s",
               keys, value, m->kv_channels, all, few, groups, text);
  if (ms_hf_is_true(c, "add_swa_attention_sink_bias") || ms_hf_is_true(c, "add_full_attention_sink_bias"))
    ms_hf_remark(c, "add_swa_attention_sink_bias: the sinks, a number for every head, are left out");
  ms_hf_take(c, "sliding_window_size"), ms_hf_take(c, "n_shared_experts"), ms_hf_take(c, "topk_method");
  balanced_by_bias(m);
  if (m->moe_router_num_groups <= 1) m->moe_router_num_groups = m->moe_router_group_topk = 0;
  return ms_hf_has_silu(c) && ms_hf_read_score(c, "sigmoid") && ms_hf_read_norm_topk(c, TRUE) &&
         ms_hf_read_windows(c, 6);
}

/* A number in an object that lists how layers attend; FALSE and the error when it is none. */
static gboolean inner_int(MsHf *c, JsonObject *object, const char *within, const char *key, int absent, int *value) {
  gint64 given = absent;
  JsonNode *node = ms_json_member(object, key);
  if (node && !ms_hf_is_integer(node, &given)) given = -1;
  if (given < 0 || given > 65536) return ms_hf_bad(c, within, "has no %s in [0, 65536]", key);
  *value = (int)given;
  return TRUE;
}

static JsonObject *take_object(MsHf *c, const char *key) { return ms_json_object(ms_hf_take(c, key)); }

gboolean ms_hf_read_other_heads(MsHf *c) {
  static const char key[] = "attention_other_setting";
  MsModel *m = c->model;
  JsonObject *other = take_object(c, key);
  JsonNode *type = ms_json_member(other, "attention_type");
  int heads, groups, width;
  if (!other) return TRUE;
  if (!type || !JSON_NODE_HOLDS_VALUE(type) || g_strcmp0(json_node_get_string(type), "sliding_attention") != 0)
    return ms_hf_bad(c, key, "must be of the attention_type sliding_attention");
  if (!inner_int(c, other, key, "num_attention_heads", m->num_attention_heads, &heads) ||
      !inner_int(c, other, key, "num_attention_groups", m->num_query_groups, &groups) ||
      !inner_int(c, other, key, "head_dim", m->kv_channels, &width))
    return FALSE;
  if (width != m->kv_channels || m->sliding_window.window == 0)
    return ms_hf_bad(c, key, "has head_dim = %d: must be that of the other layers, beside a sliding_window", width);
  int all = layers_that_see_all(m);
  double missing = 2.0 * all * m->hidden_size * width * (m->num_attention_heads - heads + m->num_query_groups - groups);
  g_autofree char *text = difference(missing);
  ms_hf_remark(c,
               "%s: layers that see all have %d heads, %d of them with keys and values, read as the %d and %d of those "
               "with a window: %s",
               key, m->num_attention_heads, m->num_query_groups, heads, groups, text);
  m->num_attention_heads = heads, m->num_query_groups = groups;
  return TRUE;
}

/* MiniMax-M3: MiniMax-M2's layers behind dense ones, queries that choose blocks of keys. */
static gboolean minimax_m3(MsHf *c) {
  MsModel *m = c->model;
  int rotary, dense, heads, width, blocks, size;
  JsonObject *sparse = take_object(c, "sparse_attention_config");
  if (!ms_hf_take_int(c, "rotary_dim", 0, 65536, &rotary) ||
      !ms_hf_take_int(c, "dense_intermediate_size", m->ffn_hidden_size, 1048576, &dense) ||
      !ms_hf_take_int(c, "shared_intermediate_size", 0, 1048576, &m->moe_shared_expert_intermediate_size) ||
      !inner_int(c, sparse, "sparse_attention_config", "sparse_num_index_heads", 0, &heads) ||
      !inner_int(c, sparse, "sparse_attention_config", "sparse_index_dim", 0, &width) ||
      !inner_int(c, sparse, "sparse_attention_config", "sparse_topk_blocks", 0, &blocks) ||
      !inner_int(c, sparse, "sparse_attention_config", "sparse_block_size", 0, &size) || !read_expert_flags(c))
    return FALSE;
  if (m->moe_ffn_hidden_size == 0) m->moe_ffn_hidden_size = m->ffn_hidden_size;
  m->ffn_hidden_size = dense;
  m->activation = MS_ACT_QUICK_GELU; /* swigluoai: clamped, as GPT-OSS has it */
  const char *act = ms_hf_take_string(c, "hidden_act");
  if (act && strcmp(act, "swigluoai") != 0) return ms_hf_bad(c, "hidden_act", "is \"%.40s\", must be swigluoai", act);
  ms_hf_take(c, "swiglu_alpha"), ms_hf_take(c, "swiglu_limit"), ms_hf_take(c, "qk_norm_type");
  ms_hf_take(c, "first_k_dense_replace"), ms_hf_take(c, "n_shared_experts"), ms_hf_take(c, "use_routing_bias");
  m->attention_output_gate = ms_hf_is_true(c, "attention_output_gate");
  if (ms_hf_take(c, "num_mtp_modules") && m->mtp_num_layers > 0)
    ms_hf_remark(c, "num_mtp_modules: num_nextn_predict_layers = %d is read", m->mtp_num_layers);
  if (sparse)
    ms_hf_remark(c,
                 "sparse_attention_config: queries that choose %d blocks of %d keys are read as attention to all keys, "
                 "the same up to %d tokens and longer beyond; the choice is left out, %.3g million parameters a layer",
                 blocks, size, blocks * size, (heads + 1.0) * width * m->hidden_size / 1e6);
  balanced_by_bias(m);
  return ms_hf_read_score(c, "sigmoid");
}

/* Phi-3-small: in every layer but each N-th a query sees the latest blocks, and every few blocks before them. */
static gboolean phi3small(MsHf *c) {
  MsModel *m = c->model;
  int size, local, every, stride;
  if (!ms_hf_take_int(c, "ff_intermediate_size", 4 * MIN(m->hidden_size, 1 << 18), 1048576, &m->ffn_hidden_size) ||
      !ms_hf_take_int(c, "blocksparse_block_size", 64, 65536, &size) ||
      !ms_hf_take_int(c, "blocksparse_num_local_blocks", 16, 16384, &local) ||
      !ms_hf_take_int(c, "blocksparse_vert_stride", 8, 65536, &stride) ||
      !ms_hf_take_int(c, "dense_attention_every_n_layers", 2, MS_HF_MOST_LAYERS, &every))
    return FALSE;
  const char *act = ms_hf_take_string(c, "hidden_act");
  if (act && strcmp(act, "gegelu") != 0) return ms_hf_bad(c, "hidden_act", "is \"%.40s\", must be gegelu", act);
  m->activation = MS_ACT_GELU;
  m->sliding_window = (MsSlidingWindow){.window = size * local, .period = every};
  ms_hf_remark(c, "blocksparse_vert_stride: blocks behind the latest %d, of which one in %d is seen, are left out",
               local, stride);
  return TRUE;
}

/* Stick-breaking attention of flash-linear-attention: a transformer's projections, another weighting of the keys. */
static gboolean stick_breaking(MsHf *c) {
  ms_hf_remark(c, "stick-breaking attention is read as softmax attention: the same products, a slower kernel");
  return ms_hf_read_fla_transformer(c);
}

/* --- Nemotron-NAS --- */
/* Layers of a search: each keeps, drops or replaces its attention and its MLP, whose widths differ. The pattern has
 * those that are there, their widths are their mean: parameters and FLOP of the whole are the same. */
typedef struct {
  GString *pattern; /* letters of MsModel.hybrid_layer_pattern */
  double widths;    /* of the MLPs, added up */
  int mlps, groups, attentions;
} NasLayers;

static gboolean nas_flag(JsonObject *part, const char *key) {
  JsonNode *node = ms_json_member(part, key);
  return node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_BOOLEAN &&
         json_node_get_boolean(node);
}

static void nas_mlp(NasLayers *n, double width) {
  g_string_append_c(n->pattern, '-');
  n->widths += width, n->mlps++;
}

/* A linear layer in the place of another is as large as a gated MLP of a third of the width. */
static gboolean nas_attention(MsHf *c, NasLayers *n, JsonObject *part) {
  int shared;
  if (!part) return ms_hf_bad(c, "block_configs", "has a layer without attention, not even one that does nothing");
  if (nas_flag(part, "no_op")) return TRUE;
  if (nas_flag(part, "replace_with_linear")) return nas_mlp(n, c->model->hidden_size / 3.0), TRUE;
  if (!inner_int(c, part, "block_configs", "n_heads_in_group", 0, &shared)) return FALSE;
  if (shared < 1 || c->model->num_attention_heads % shared != 0)
    return ms_hf_bad(c, "block_configs", "has n_heads_in_group = %d, must divide the %d heads", shared,
                     c->model->num_attention_heads);
  g_string_append_c(n->pattern, '*');
  n->groups += c->model->num_attention_heads / shared, n->attentions++;
  return TRUE;
}

/* Two thirds of ffn_mult hidden sizes, in steps of 256. */
static gboolean nas_ffn(MsHf *c, NasLayers *n, JsonObject *part) {
  if (!part) return ms_hf_bad(c, "block_configs", "has a layer without ffn, not even one that does nothing");
  if (nas_flag(part, "no_op")) return TRUE;
  if (nas_flag(part, "replace_with_linear")) return nas_mlp(n, c->model->hidden_size / 3.0), TRUE;
  JsonNode *node = json_object_get_member(part, "ffn_mult");
  gboolean number = node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) != G_TYPE_STRING;
  double part_of = number ? json_node_get_double(node) : 0;
  if (!(part_of > 0 && part_of <= 64)) return ms_hf_bad(c, "block_configs", "has an ffn_mult that is not in (0, 64]");
  nas_mlp(n, ceil(floor(2 * part_of * c->model->hidden_size / 3) / 256) * 256);
  return TRUE;
}

static JsonObject *nas_part(JsonNode *block, const char *key) {
  return ms_json_object(ms_json_member(ms_json_object(block), key));
}

static gboolean nas_layers(MsHf *c, NasLayers *n) {
  JsonArray *blocks = ms_json_array(ms_hf_take(c, "block_configs"));
  int layers = c->model->num_layers;
  if (!blocks || (int)json_array_get_length(blocks) != layers || layers > MS_HF_MOST_LAYERS / 2)
    return ms_hf_bad(c, "block_configs", "must be a list of %d layers", layers);
  for (int i = 0; i < layers; i++) {
    JsonNode *block = json_array_get_element(blocks, (guint)i);
    if (!nas_attention(c, n, nas_part(block, "attention")) || !nas_ffn(c, n, nas_part(block, "ffn"))) return FALSE;
  }
  return (n->attentions > 0 && n->mlps > 0) || ms_hf_bad(c, "block_configs", "must have attention and MLPs");
}

static gboolean nemotron_nas(MsHf *c) {
  MsModel *m = c->model;
  g_autoptr(GString) pattern = g_string_new(NULL);
  NasLayers n = {.pattern = pattern};
  if (!ms_hf_has_silu(c) || !nas_layers(c, &n)) return FALSE;
  if (n.groups % n.attentions != 0)
    return ms_hf_bad(c, "block_configs", "has %d key-value heads in %d layers, which no model can say", n.groups,
                     n.attentions);
  m->ffn_hidden_size = (int)lround(n.widths / n.mlps / 64) * 64; /* in steps that TP divides */
  m->num_query_groups = n.groups / n.attentions;
  g_autofree char *text = difference(3.0 * m->hidden_size * (n.widths - (double)n.mlps * m->ffn_hidden_size));
  ms_hf_remark(
      c,
      "block_configs: %d of %d layers have attention; %d MLPs (and linear layers in the place of others), which "
      "differ in widths, are read as of %d each, their mean: %s",
      n.attentions, m->num_layers, n.mlps, m->ffn_hidden_size, text);
  m->num_layers = (int)pattern->len;
  m->hybrid_layer_pattern = g_strdup(pattern->str);
  return TRUE;
}

/* --- Kimi-Linear --- */
/* The layers of a list that counts from 1. */
static gboolean mark_layers(MsHf *c, JsonObject *object, const char *key, guint8 *marks) {
  JsonArray *list = ms_json_array(json_object_get_member(object, key));
  gint64 layer;
  for (guint i = 0; list && i < json_array_get_length(list); i++) {
    if (!ms_hf_is_integer(json_array_get_element(list, i), &layer) || layer < 1 || layer > c->model->num_layers)
      return ms_hf_bad(c, "linear_attn_config", "has a %s that is no layer from 1 to %d", key, c->model->num_layers);
    marks[layer - 1] = 1;
  }
  return list || ms_hf_bad(c, "linear_attn_config", "has no list %s", key);
}

/* Two layers of the pattern each: how it attends, and experts or an MLP. */
static gboolean kimi_pattern(MsHf *c, JsonObject *linear, int dense) {
  MsModel *m = c->model;
  g_autofree guint8 *full = g_new0(guint8, m->num_layers);
  if (!mark_layers(c, linear, "full_attn_layers", full)) return FALSE;
  g_autoptr(GString) pattern = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++)
    g_string_append(pattern, full[i] ? "*" : "G"), g_string_append_c(pattern, i < dense ? '-' : 'E');
  m->num_layers = (int)pattern->len;
  m->hybrid_layer_pattern = g_strdup(pattern->str);
  m->position_embedding = MS_POS_NONE;
  return TRUE;
}

/* Delta attention whose decay is a number for every channel: read as gated delta nets, whose decay is one for every
 * head; its projection, and a gate of low rank, differ by `missing` parameters a layer. */
static gboolean kimi_delta(MsHf *c, JsonObject *linear, double *missing) {
  MsModel *m = c->model;
  MsLinearAttention *a = &m->linear_attention;
  int heads, dim;
  const char *at = "linear_attn_config";
  if (!inner_int(c, linear, at, "num_heads", 32, &heads) || !inner_int(c, linear, at, "head_dim", 128, &dim) ||
      !inner_int(c, linear, at, "short_conv_kernel_size", 4, &a->conv_kernel))
    return FALSE;
  a->num_key_heads = a->num_value_heads = heads, a->key_head_dim = a->value_head_dim = dim;
  JsonNode *whole = json_object_get_member(linear, "use_full_rank_gate");
  double h = m->hidden_size, width = (double)heads * dim, low_rank = h * dim + width * dim;
  *missing = low_rank - h * heads;
  if (!whole || !JSON_NODE_HOLDS_VALUE(whole) || !json_node_get_boolean(whole)) *missing += low_rank - h * width;
  return TRUE;
}

static gboolean kimi_router(MsHf *c, int *dense) {
  MsModel *m = c->model;
  const char *score = ms_hf_take_string(c, "moe_router_activation_func");
  int shared;
  if (score && !json_object_has_member(c->json, "scoring_func"))
    json_object_set_string_member(c->json, "scoring_func", score);
  if (!ms_hf_take_int(c, "num_experts_per_token", m->moe_router_topk, 65536, &m->moe_router_topk) ||
      !ms_hf_take_int(c, "num_expert_group", 0, 65536, &m->moe_router_num_groups) ||
      !ms_hf_take_int(c, "routed_expert_hidden_size", 0, 1048576, &m->moe_latent_size) ||
      !ms_hf_take_int(c, "first_k_dense_replace", 0, MS_HF_MOST_LAYERS, dense) ||
      !ms_hf_take_int(c, "num_shared_experts", 0, 64, &shared) || !ms_hf_read_score(c, "sigmoid"))
    return FALSE;
  m->moe_shared_expert_intermediate_size = shared * MIN(m->moe_ffn_hidden_size, 1 << 20);
  if (m->moe_router_num_groups <= 1) m->moe_router_num_groups = m->moe_router_group_topk = 0;
  balanced_by_bias(m);
  ms_hf_take(c, "moe_renormalize"), ms_hf_take(c, "use_grouped_topk"), ms_hf_take(c, "topk_method");
  return TRUE;
}

static gboolean kimi_linear(MsHf *c) {
  MsModel *m = c->model;
  JsonObject *linear = take_object(c, "linear_attn_config");
  double missing;
  int dense, every;
  if (!linear) return ms_hf_bad(c, "linear_attn_config", "is missing");
  if (m->num_layers < 1 || m->num_layers > MS_HF_MOST_LAYERS / 2)
    return ms_hf_bad(c, "num_hidden_layers", "is too large");
  if (!kimi_delta(c, linear, &missing) || !ms_hf_read_latent(c) || !kimi_router(c, &dense) ||
      !ms_hf_take_int(c, "moe_layer_freq", 1, MS_HF_MOST_LAYERS, &every) || !kimi_pattern(c, linear, dense))
    return FALSE;
  if (every != 1) return ms_hf_bad(c, "moe_layer_freq", "is %d, must be 1", every);
  m->num_query_groups = m->num_attention_heads;
  m->kv_channels = m->multi_latent_attention.v_head_dim;
  m->qk_layernorm = TRUE;
  g_autofree char *text = difference(missing);
  ms_hf_remark(
      c,
      "linear_attn_config: Kimi's delta attention, with a decay for every channel, is read as gated delta nets "
      "of the same sizes: %s in such a layer",
      text);
  if (ms_hf_is_true(c, "mla_use_output_gate"))
    ms_hf_remark(c,
                 "mla_use_output_gate: the gate behind latent attention is left out, %.3g million parameters a layer",
                 (double)m->hidden_size * m->num_attention_heads * m->kv_channels / 1e6);
  if (ms_hf_take(c, "attn_res_block_size"))
    ms_hf_remark(c,
                 "attn_res_block_size: layers are read as adding to the one before, not as attending to earlier ones");
  const char *act = ms_hf_take_string(c, "hidden_act");
  if (act && strcmp(act, "situ") == 0)
    return ms_hf_remark(c, "hidden_act: situ is read as silu, which reads and writes as much"), TRUE;
  return !act || strcmp(act, "silu") == 0 || ms_hf_bad(c, "hidden_act", "is \"%.40s\", must be silu or situ", act);
}

const MsHfFamily ms_hf_uneven_families[] = {
    {"gemma4_text", gemma4, MS_HF_GATED_GELU | MS_HF_TIED | MS_HF_POST_NORMS | MS_HF_QK_NORM},
    {"mimo_v2_flash", mimo_v2, 0},
    {"minimax_m3", minimax_m3, MS_HF_GAIN_FROM_1},
    {"phi3small", phi3small, MS_HF_BIASED | MS_HF_LAYER_NORM | MS_HF_TIED},
    {"sba", stick_breaking, MS_HF_FILLED, "{\"num_attention_heads\":1,\"vocab_size\":32000,\"hidden_size\":2048}"},
    {"kimi_linear", kimi_linear, 0},
    {"nemotron-nas", nemotron_nas, 0},
    {NULL}};
