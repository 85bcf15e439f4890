/* src/launch/hf_research.c - families of research: models of flash-linear-attention (fla/models), Mamba-2, and decoders
 * before Llama whose files name things in their own way (the classes of transformers). */
#include <math.h>
#include <string.h>

#include "launch/hf_keys_priv.h"

static gboolean has_key(const MsHf *c, const char *key) { return json_object_has_member(c->json, key); }

/* A gated MLP of flash-linear-attention: hidden_ratio widths in all three matrices together, in steps of 256. */
static gboolean fla_width(MsHf *c) {
  MsModel *m = c->model;
  int ratio;
  if (!ms_hf_take_int(c, "hidden_ratio", 4, 64, &ratio)) return FALSE;
  ms_hf_take(c, "norm_eps");
  if (m->ffn_hidden_size > 0 || m->hidden_size > 1 << 20) return ms_hf_has_silu(c);
  m->ffn_hidden_size = (m->hidden_size * ratio * 2 / 3 + 255) / 256 * 256;
  return ms_hf_has_silu(c);
}

gboolean ms_hf_read_fla_transformer(MsHf *c) {
  MsModel *m = c->model;
  int window;
  if (!ms_hf_take_int(c, "num_heads", 32, 65536, &m->num_attention_heads) ||
      !ms_hf_take_int(c, "num_kv_heads", m->num_attention_heads, 65536, &m->num_query_groups) ||
      !ms_hf_take_int(c, "window_size", 0, 1 << 30, &window))
    return FALSE;
  m->sliding_window.window = window;
  m->add_qkv_bias = ms_hf_is_true(c, "qkv_bias");
  return fla_width(c);
}

/* The layers of a pattern of letters, again and again. */
static gboolean set_pattern(MsHf *c, const char *letters) {
  MsModel *m = c->model;
  if (m->num_layers < 1 || m->num_layers > MS_HF_MOST_LAYERS / 2)
    return ms_hf_bad(c, "num_hidden_layers", "is too large");
  g_autoptr(GString) pattern = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++) g_string_append(pattern, letters);
  m->num_layers = (int)pattern->len;
  m->hybrid_layer_pattern = g_strdup(pattern->str);
  m->position_embedding = MS_POS_NONE;
  return TRUE;
}

/* Every block: a gated delta net, and a gated MLP. */
static gboolean fla_gated_delta(MsHf *c) {
  MsModel *m = c->model;
  MsLinearAttention *a = &m->linear_attention;
  int expand;
  if (!ms_hf_take_int(c, "num_heads", 6, 65536, &a->num_key_heads) ||
      !ms_hf_take_int(c, "num_v_heads", a->num_key_heads, 65536, &a->num_value_heads) ||
      !ms_hf_take_int(c, "head_dim", 256, 65536, &a->key_head_dim) || !ms_hf_take_int(c, "expand_v", 2, 64, &expand) ||
      !ms_hf_take_int(c, "conv_size", 4, 1024, &a->conv_kernel))
    return FALSE;
  if (has_key(c, "use_gate") && !ms_hf_is_true(c, "use_gate"))
    return ms_hf_bad(c, "use_gate", "is false; moesim has delta nets with a gate");
  a->value_head_dim = expand * a->key_head_dim;
  m->kv_channels = 0;
  return fla_width(c) && set_pattern(c, "G-");
}

/* A part of the width in each of `heads`. */
static gboolean head_part(MsHf *c, const char *key, double absent, int heads, int *dim) {
  JsonNode *node = ms_hf_take(c, key);
  gboolean number = node && JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) != G_TYPE_STRING;
  double part = number ? json_node_get_double(node) : absent, width = part * c->model->hidden_size;
  if ((node && !number) || !(part > 0 && part <= 16) || heads < 1 || c->model->hidden_size > 1 << 20 ||
      fmod(width, heads) != 0)
    return ms_hf_bad(c, key, "must be a part of hidden_size = %d that %d heads share evenly", c->model->hidden_size,
                     heads);
  *dim = (int)width / heads;
  return TRUE;
}

/* Gated linear attention: the same projections, a gate of low rank in place of a number for each head. */
static gboolean fla_gated_linear(MsHf *c) {
  MsModel *m = c->model;
  MsLinearAttention *a = &m->linear_attention;
  if (!ms_hf_take_int(c, "num_heads", 4, 65536, &a->num_key_heads) ||
      !head_part(c, "expand_k", 0.5, a->num_key_heads, &a->key_head_dim) ||
      !head_part(c, "expand_v", 1, a->num_key_heads, &a->value_head_dim))
    return FALSE;
  int shared;
  if (!ms_hf_take_int(c, "num_kv_heads", a->num_key_heads, 65536, &shared)) return FALSE;
  if (shared != a->num_key_heads)
    return ms_hf_bad(c, "num_kv_heads", "is %d; moesim has linear attention with keys and values in all %d heads",
                     shared, a->num_key_heads);
  a->num_value_heads = a->num_key_heads, a->conv_kernel = 1;
  if (ms_hf_is_true(c, "use_short_conv") && !ms_hf_take_int(c, "conv_size", 4, 1024, &a->conv_kernel)) return FALSE;
  if ((has_key(c, "use_output_gate") && !ms_hf_is_true(c, "use_output_gate")) || ms_hf_is_true(c, "use_gv"))
    return ms_hf_bad(c, "use_output_gate", "must be true and use_gv false, as in the published models");
  ms_hf_remark(c, "gated linear attention is read as gated delta nets of the same sizes: their delta rule takes longer "
                  "than its recurrence, and its gate of low rank is not counted");
  m->kv_channels = 0;
  return fla_width(c) && set_pattern(c, "G-");
}

static gboolean mamba2(MsHf *c) {
  MsModel *m = c->model;
  MsMamba *a = &m->mamba;
  int expand, absent;
  if (!ms_hf_take_int(c, "expand", 2, 64, &expand) || !ms_hf_take_int(c, "head_dim", 64, 65536, &a->head_dim))
    return FALSE;
  absent = a->head_dim > 0 && m->hidden_size <= 1 << 20 ? expand * m->hidden_size / a->head_dim : 0;
  if (!ms_hf_take_int(c, "num_heads", absent, 65536, &a->num_heads) ||
      !ms_hf_take_int(c, "state_size", 128, 65536, &a->state_dim) ||
      !ms_hf_take_int(c, "n_groups", 1, 65536, &a->num_groups) ||
      !ms_hf_take_int(c, "conv_kernel", 4, 1024, &a->conv_kernel))
    return FALSE;
  m->kv_channels = 0;
  return ms_hf_has_silu(c) && set_pattern(c, "M");
}

static gboolean widest_by_four(MsHf *c) {
  if (c->model->ffn_hidden_size == 0 && c->model->hidden_size <= 1 << 24)
    c->model->ffn_hidden_size = 4 * c->model->hidden_size;
  return TRUE;
}

static gboolean gptj(MsHf *c) {
  MsModel *m = c->model;
  int rotary, head = m->num_attention_heads > 0 ? m->hidden_size / m->num_attention_heads : 0;
  if (!ms_hf_take_int(c, "rotary_dim", 64, 65536, &rotary)) return FALSE;
  if (head > 0 && rotary <= head) m->rotary_percent = (double)rotary / head;
  ms_hf_remark(c, "attention has no biases there: four vectors of hidden_size a layer are counted too many");
  return widest_by_four(c);
}

static gboolean phi_msft(MsHf *c) {
  MsModel *m = c->model;
  int rotary, head = m->num_attention_heads > 0 ? m->hidden_size / m->num_attention_heads : 0;
  if (!ms_hf_take_int(c, "n_head_kv", m->num_attention_heads, 65536, &m->num_query_groups) ||
      !ms_hf_take_int(c, "rotary_dim", 32, 65536, &rotary))
    return FALSE;
  if (head > 0 && rotary <= head) m->rotary_percent = (double)rotary / head;
  return widest_by_four(c);
}

static gboolean opt(MsHf *c) {
  MsModel *m = c->model;
  int projected;
  if (!ms_hf_take_int(c, "word_embed_proj_dim", m->hidden_size, 1 << 20, &projected)) return FALSE;
  if (projected != m->hidden_size)
    return ms_hf_bad(c, "word_embed_proj_dim", "is %d; moesim has embeddings of hidden_size = %d", projected,
                     m->hidden_size);
  const char *act = ms_hf_take_string(c, "activation_function");
  if (act && strcmp(act, "relu") != 0)
    return ms_hf_bad(c, "activation_function", "is \"%.40s\", this family has relu", act);
  m->gated = FALSE;
  m->activation = MS_ACT_GELU;
  ms_hf_remark(c, "activation_function: relu is read as gelu, as wide and as often read and written");
  return widest_by_four(c);
}

static gboolean orion(MsHf *c) { return ms_hf_has_silu(c); }

static gboolean phi4mm(MsHf *c) {
  const char *const adapters[] = {"vision_lora", "speech_lora"};
  for (guint i = 0; i < G_N_ELEMENTS(adapters); i++)
    if (ms_hf_take(c, adapters[i])) ms_hf_remark(c, "%s: adapters for one kind of input are not counted", adapters[i]);
  return ms_hf_has_silu(c);
}

/* Experts in every N-th layer, where the dense MLP stays beside them as a shared expert. */
static gboolean openmoe(MsHf *c) {
  MsModel *m = c->model;
  int every;
  if (!ms_hf_take_int(c, "topk", 2, 65536, &m->moe_router_topk) ||
      !ms_hf_take_int(c, "moe_layer_interval", 1, MS_HF_MOST_LAYERS, &every))
    return FALSE;
  const char *act = ms_hf_take_string(c, "hidden_act");
  if (!ms_hf_is_true(c, "gated") || (act && strcmp(act, "swiglu") != 0))
    return ms_hf_bad(c, "hidden_act", "must be swiglu with gated experts, as in the published models");
  g_autoptr(GString) freq = g_string_new(NULL);
  for (int i = 0; i < m->num_layers; i++) ms_hf_list_add(freq, every > 0 && (i + 1) % every == 0);
  m->moe_ffn_hidden_size = m->moe_shared_expert_intermediate_size = m->ffn_hidden_size;
  ms_hf_set_moe_layers(m, freq);
  return TRUE;
}

#define GPT (MS_HF_BIASED | MS_HF_LAYER_NORM | MS_HF_PLAIN_GELU | MS_HF_PARALLEL)
#define FLA "{\"num_attention_heads\":1,\"vocab_size\":32000,\"hidden_size\":2048}"

const MsHfFamily ms_hf_research_families[] = {
    {"transformer", ms_hf_read_fla_transformer, MS_HF_FILLED, FLA},
    {"gated_deltanet", fla_gated_delta, MS_HF_FILLED, FLA},
    {"gla", fla_gated_linear, MS_HF_FILLED, FLA},
    {"mamba2", mamba2, MS_HF_FILLED, "{\"num_attention_heads\":1}"},
    {"gptj", gptj, GPT},
    {"codegen", gptj, GPT},
    {"phi-msft", phi_msft, GPT},
    {"opt", opt, MS_HF_BIASED | MS_HF_LAYER_NORM | MS_HF_LEARNED | MS_HF_TIED},
    {"orion", orion, MS_HF_LAYER_NORM},
    {"openmoe", openmoe, MS_HF_TIED},
    {"minicpm4", orion, MS_HF_TIED},
    {"phi4mm", phi4mm, MS_HF_WINDOWED | MS_HF_TIED},
    {NULL}};
