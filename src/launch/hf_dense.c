/* src/launch/hf_dense.c - families without experts: mostly traits, a little code where keys have other meanings (the
 * classes of transformers, or those that lie beside the published weights). */
#include <string.h>

#include "launch/hf_keys_priv.h"

#define POSITIONS_OF_HEAD 0.5 /* of GLM's: half of a head turns */

static gboolean plain(MsHf *c) {
  const char *act = c->traits & MS_HF_ACTS ? NULL : ms_hf_take_string(c, "activation_function");
  if (act && strcmp(act, "silu") != 0) return ms_hf_bad(c, "activation_function", "is \"%.40s\", must be silu", act);
  if (c->model->ffn_hidden_size == 0 && c->model->hidden_size <= 1 << 24)
    c->model->ffn_hidden_size = 4 * c->model->hidden_size;
  return (c->traits & MS_HF_ACTS) || ms_hf_has_silu(c);
}

static gboolean minicpm(MsHf *c) { /* its MoE form has experts as wide as its MLP */
  if (c->model->num_experts > 0) c->model->moe_ffn_hidden_size = c->model->ffn_hidden_size;
  return plain(c);
}

static gboolean is_absent(const MsHf *c, const char *key) { return !json_object_has_member(c->json, key); }

static gboolean gemma2(MsHf *c) { return ms_hf_read_windows(c, 2); }
static gboolean gemma3(MsHf *c) { return ms_hf_read_windows(c, 6); }
static gboolean cohere2(MsHf *c) { return plain(c) && ms_hf_read_windows(c, 4); }

/* sliding_window_pattern is a word: L for layers with a window, G for the others. */
static gboolean exaone4(MsHf *c) {
  const char *pattern = ms_hf_take_string(c, "sliding_window_pattern");
  int period = pattern ? (int)MIN(strlen(pattern), (size_t)MS_HF_MOST_LAYERS) : 0;
  if (pattern) json_object_remove_member(c->json, "sliding_window_pattern");
  return plain(c) && ms_hf_read_windows(c, period);
}

/* 13B has ALiBi, 7B rotary positions; the file does not say which. */
static gboolean baichuan(MsHf *c) {
  if (c->model->hidden_size == 5120) c->model->position_embedding = MS_POS_NONE;
  return plain(c);
}

/* intermediate_size is that of gate and up-projection together. */
static gboolean qwen1(MsHf *c) {
  c->model->ffn_hidden_size /= 2;
  return plain(c);
}

static gboolean chatglm(MsHf *c) {
  MsModel *m = c->model;
  if (!is_absent(c, "multi_query_attention") && !ms_hf_is_true(c, "multi_query_attention"))
    m->num_query_groups = m->num_attention_heads;
  m->add_bias_linear = ms_hf_is_true(c, "add_bias_linear");
  if (!is_absent(c, "rmsnorm") && !ms_hf_is_true(c, "rmsnorm")) m->normalization = MS_NORM_LAYER;
  m->rotary_percent = POSITIONS_OF_HEAD;
  ms_hf_take(c, "num_layers"), ms_hf_take(c, "original_rope");
  return plain(c);
}

static gboolean glm(MsHf *c) {
  if (is_absent(c, "partial_rotary_factor")) c->model->rotary_percent = POSITIONS_OF_HEAD;
  return plain(c);
}

static gboolean minicpm3(MsHf *c) {
  MsModel *m = c->model;
  if (!ms_hf_read_latent(c)) return FALSE;
  if (is_absent(c, "v_head_dim"))
    m->multi_latent_attention.v_head_dim = m->hidden_size / MAX(m->num_attention_heads, 1);
  m->num_query_groups = m->num_attention_heads;
  m->kv_channels = m->multi_latent_attention.v_head_dim;
  m->qk_layernorm = TRUE;
  return plain(c);
}

/* Biases of starcoder2, internlm and stablelm are keys of their own. */
static gboolean with_bias_key(MsHf *c, const char *key, gboolean absent) {
  gboolean on = is_absent(c, key) ? absent : ms_hf_is_true(c, key);
  c->model->add_bias_linear = on;
  return plain(c);
}
static gboolean starcoder2(MsHf *c) { return with_bias_key(c, "use_bias", TRUE); }
static gboolean ernie(MsHf *c) { return with_bias_key(c, "use_bias", FALSE); }

static gboolean internlm(MsHf *c) {
  c->model->add_qkv_bias = ms_hf_is_true(c, "bias");
  return plain(c);
}

static gboolean gpt_bigcode(MsHf *c) {
  if (is_absent(c, "multi_query") || ms_hf_is_true(c, "multi_query")) c->model->num_query_groups = 1;
  return plain(c);
}

static gboolean gpt_neox(MsHf *c) {
  if (is_absent(c, "rotary_pct")) c->model->rotary_percent = 0.25;
  JsonNode *base = ms_hf_take(c, "rotary_emb_base");
  if (is_absent(c, "use_parallel_residual") || ms_hf_is_true(c, "use_parallel_residual"))
    ms_hf_remark(c, "attention and MLP run beside each other: here one after the other");
  (void)base; /* read with the positions */
  return plain(c);
}

/* 7B: one key-value head; 40B and 180B: groups; RW: ALiBi and a head for every query. */
static gboolean falcon(MsHf *c) {
  MsModel *m = c->model;
  gboolean grouped = ms_hf_is_true(c, "new_decoder_architecture"),
           single = is_absent(c, "multi_query") || ms_hf_is_true(c, "multi_query");
  if (!grouped) m->num_query_groups = single ? 1 : m->num_attention_heads;
  m->add_bias_linear = ms_hf_is_true(c, "bias");
  if (ms_hf_is_true(c, "alibi")) m->position_embedding = MS_POS_NONE;
  if (is_absent(c, "parallel_attn") || ms_hf_is_true(c, "parallel_attn"))
    ms_hf_remark(c, "attention and MLP run beside each other from one norm: here one after the other, with two");
  return plain(c);
}

static gboolean mpt(MsHf *c) {
  int ratio;
  if (!ms_hf_take_int(c, "expansion_ratio", 4, 64, &ratio)) return FALSE;
  if (c->model->hidden_size <= 1 << 24) c->model->ffn_hidden_size = ratio * c->model->hidden_size;
  return plain(c);
}

#define GEMMA        (MS_HF_GATED_GELU | MS_HF_TIED | MS_HF_GAIN_FROM_1)
#define GPT          (MS_HF_BIASED | MS_HF_LAYER_NORM | MS_HF_PLAIN_GELU)
#define OTHER_MIXERS "its layers have a recurrence that is neither Mamba-2 nor a gated delta net"
#define NO_DECODER   "it is not a decoder of text"
#define OTHER_WIDTHS "its layers differ from one another in heads or widths"

/* Layers that attend to an image run only where there is one. */
static gboolean mllama(MsHf *c) {
  MsModel *m = c->model;
  JsonNode *node = ms_hf_take(c, "cross_attention_layers");
  int layers = node && JSON_NODE_HOLDS_ARRAY(node) ? (int)json_array_get_length(json_node_get_array(node)) : 0;
  if (layers == 0 || layers >= m->num_layers)
    return ms_hf_bad(c, "cross_attention_layers", "must list the layers that attend to an image, and leave others");
  m->num_layers -= layers;
  ms_hf_remark(c,
               "cross_attention_layers: %d layers of attention to an image, which text passes over, are left out; "
               "with the images front_end says them",
               layers);
  return ms_hf_has_silu(c);
}

const MsHfFamily ms_hf_dense_families[] = {
    {"gemma", plain, GEMMA},
    {"gemma2", gemma2, GEMMA | MS_HF_POST_NORMS},
    {"gemma3_text", gemma3, GEMMA | MS_HF_POST_NORMS | MS_HF_QK_NORM,
     "{\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,\"vocab_size\":262208,"
     "\"hidden_size\":2304,\"intermediate_size\":9216,\"num_hidden_layers\":26,\"sliding_window\":4096}"},
    {"phi", plain, GPT | MS_HF_PARALLEL},
    {"phi3", plain, MS_HF_WINDOWED},
    {"phi3_v", plain, MS_HF_WINDOWED},
    {"stablelm", plain, MS_HF_LAYER_NORM},
    {"cohere", plain, MS_HF_LAYER_NORM | MS_HF_PARALLEL | MS_HF_TIED},
    {"cohere2", cohere2, MS_HF_LAYER_NORM | MS_HF_PARALLEL | MS_HF_TIED},
    {"exaone", plain, 0},
    {"exaone4", exaone4, MS_HF_QK_NORM},
    {"internlm", internlm, 0},
    {"internlm2", internlm, 0},
    {"internlm3", internlm, 0},
    {"baichuan", baichuan, 0},
    {"qwen", qwen1, MS_HF_QKV_BIAS},
    {"xverse", plain, 0},
    {"Yi", plain, 0},
    {"llava", plain, 0},
    {"minicpm", minicpm, MS_HF_TIED},
    {"minicpm3", minicpm3, MS_HF_TIED},
    {"chatglm", chatglm, MS_HF_QKV_BIAS},
    {"glm", glm, 0},
    {"glm4", glm, MS_HF_POST_NORMS},
    {"glm4v_text", glm, MS_HF_POST_NORMS},
    {"seed_oss", plain, MS_HF_QKV_BIAS},
    {"granite", plain, 0},
    {"olmo", plain, MS_HF_LAYER_NORM},
    {"olmo2", plain, MS_HF_WIDE_QK_NORM},
    {"olmo3", plain, MS_HF_WIDE_QK_NORM | MS_HF_WINDOWED},
    {"starcoder2", starcoder2, MS_HF_LAYER_NORM | MS_HF_PLAIN_GELU | MS_HF_WINDOWED | MS_HF_TIED},
    {"gpt2", plain, GPT | MS_HF_LEARNED | MS_HF_TIED},
    {"gpt_bigcode", gpt_bigcode, GPT | MS_HF_LEARNED | MS_HF_TIED},
    {"gpt_neox", gpt_neox, GPT},
    {"bloom", plain, GPT | MS_HF_ALIBI | MS_HF_TIED},
    {"mpt", mpt, MS_HF_LAYER_NORM | MS_HF_PLAIN_GELU | MS_HF_ALIBI | MS_HF_TIED},
    {"falcon", falcon, MS_HF_LAYER_NORM | MS_HF_PLAIN_GELU | MS_HF_TIED},
    {"nemotron", plain, MS_HF_LAYER_NORM | MS_HF_SQUARED_RELU | MS_HF_GAIN_FROM_1},
    {"arcee", plain, MS_HF_SQUARED_RELU},
    {"smollm3", plain, MS_HF_TIED},
    {"ministral", plain, MS_HF_WINDOWED},
    {"ministral3", plain, MS_HF_WINDOWED},
    {"ernie4_5", ernie, MS_HF_TIED},
    {"hunyuan_v1_dense", plain, MS_HF_QK_NORM},
    {"mllama_text_model", mllama},
    /* --- refused --- */
    {"t5", NULL, .refused = NO_DECODER},
    {"decoder_only_t5", NULL, .refused = "its MLP has ReLU and its attention learned distances"},
    {"bert", NULL, .refused = NO_DECODER},
    {"xlm-roberta", NULL, .refused = NO_DECODER},
    {"clip_vision_model", NULL, .refused = NO_DECODER},
    {"whisper", NULL, .refused = NO_DECODER},
    {"gemma3n_text", NULL, .refused = "it has embeddings in every layer and layers that share keys and values"},
    {"openelm", NULL, .refused = OTHER_WIDTHS},
    {"mamba", NULL, .refused = OTHER_MIXERS},
    {"samba", NULL, .refused = OTHER_MIXERS},
    {"gsa", NULL, .refused = OTHER_MIXERS},
    {"hgrn2", NULL, .refused = OTHER_MIXERS},
    {"rwkv", NULL, .refused = OTHER_MIXERS},
    {"rwkv7", NULL, .refused = OTHER_MIXERS},
    {"delta_net", NULL, .refused = OTHER_MIXERS},
    {"jamba", NULL, .refused = OTHER_MIXERS},
    {"lfm2", NULL, .refused = "it has short convolutions instead of attention"},
    {"lfm2_moe", NULL, .refused = "it has short convolutions instead of attention"},
    {NULL}};
