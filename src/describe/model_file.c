/* src/describe/model_file.c - the table of models, their loading and their checks. */
#include "describe/model.h"

#include "base/err.h"
#include "base/kept.h"
#include "describe/model_kinds.h"
#include "describe/moe_freq.h"
#include "describe/rows.h"
#include "describe/scenario.h"

#include <string.h>

#define MAX_LAYERS 10000
#define MAX_WIDTH  1048576 /* of any matrix but the vocabulary */

static const MsFieldTable mla_table =
    MS_FIELD_TABLE("model.multi_latent_attention", "multi-latent attention",
                   MS_INT(MsMla, q_lora_rank, 0, MAX_WIDTH, "0", MS_NULLABLE,
                          "rank of the query projection, 0 or null = plain projection"),
                   MS_INT(MsMla, kv_lora_rank, 0, MAX_WIDTH, "0", MS_NULLABLE,
                          "rank of keys and values, 0 = the model has no latent attention"),
                   MS_INT(MsMla, qk_head_dim, 0, 65536, "0", 0, "head width of query and key without RoPE"),
                   MS_INT(MsMla, qk_pos_emb_head_dim, 0, 65536, "0", 0, "head width that carries RoPE"),
                   MS_INT(MsMla, v_head_dim, 0, 65536, "0", 0, "head width of the values"));

static const MsFieldTable window_table =
    MS_FIELD_TABLE("model.sliding_window", "sliding-window attention",
                   MS_INT(MsSlidingWindow, window, 0, 1 << 30, "0", MS_NULLABLE,
                          "tokens that a windowed layer sees, itself included; 0 = none"),
                   MS_INT(MsSlidingWindow, period, 0, MAX_LAYERS, "0", MS_NULLABLE,
                          "every period-th layer sees all tokens; 0 = every layer is windowed"),
                   MS_BOOL(MsSlidingWindow, chunked, "false", 0,
                           "a token sees its own chunk of `window` tokens, not the latest ones"));

static const MsFieldTable mamba_table =
    MS_FIELD_TABLE("model.mamba", "Mamba-2 mixer",
                   MS_INT(MsMamba, num_heads, 0, 65536, "0", MS_NULLABLE, "heads; 0 = the model has no Mamba layers"),
                   MS_INT(MsMamba, head_dim, 0, 65536, "0", MS_NULLABLE, "width of a head"),
                   MS_INT(MsMamba, state_dim, 0, 65536, "0", MS_NULLABLE, "state per head and channel"),
                   MS_INT(MsMamba, num_groups, 0, 65536, "0", MS_NULLABLE, "groups that share B and C"),
                   MS_INT(MsMamba, conv_kernel, 0, 1024, "4", MS_NULLABLE, "taps of the short convolution"));

const MsFieldTable ms_model_table = MS_FIELD_TABLE(
    "model", "a transformer, models/NAME.json", MS_SCHEMA(0),
    MS_STRING(MsModel, name, 0, "name, by default that of the file"), MS_STRING(MsModel, doc, MS_NULLABLE, "free text"),
    MS_STRING(MsModel, source, MS_NULLABLE, "where the dimensions come from"),
    MS_BOOL(MsModel, of_a_study, "false", 0,
            "a size that a paper or a test measured, no model that people use: listed last"),
    MS_INT(MsModel, num_layers, 1, MAX_LAYERS, NULL, MS_REQUIRED, "decoder layers L, without MTP"),
    MS_INT(MsModel, hidden_size, 1, MAX_WIDTH, NULL, MS_REQUIRED, "width of the residual stream h"),
    MS_INT(MsModel, ffn_hidden_size, 0, MAX_WIDTH, "0", MS_NULLABLE, "MLP width f of dense layers"),
    MS_INT(MsModel, num_attention_heads, 1, 65536, NULL, MS_REQUIRED, "query heads n"),
    MS_INT(MsModel, num_query_groups, 0, 65536, "0", MS_NULLABLE, "key-value heads g; 0 = num_attention_heads"),
    MS_INT(MsModel, kv_channels, 0, 65536, "0", MS_NULLABLE, "head width dh; 0 = hidden_size / num_attention_heads"),
    MS_INT(MsModel, query_latent_size, 0, MAX_WIDTH, "0", MS_NULLABLE,
           "width of the normed latent that the queries of grouped attention come from; 0 = projected at once"),
    MS_BOOL(MsModel, qk_layernorm, "false", 0, "norm of query and key heads"),
    MS_BOOL(MsModel, attention_output_gate, "false", 0, "gate on the attention output"),
    MS_BOOL(MsModel, post_norm, "false", 0, "norms behind attention and MLP too, in front of the residual addition"),
    MS_OBJECT(MsModel, multi_latent_attention, &mla_table, MS_NULLABLE, "multi-latent attention; null = none"),
    MS_OBJECT(MsModel, sliding_window, &window_table, MS_NULLABLE, "sliding-window attention; null = none"),
    MS_BOOL(MsModel, softmax_sink, "false", 0, "learnable softmax offset per head"),
    MS_INT(MsModel, vocab_size, 1, 1 << 24, NULL, MS_REQUIRED, "vocabulary before padding"),
    MS_INT(MsModel, make_vocab_size_divisible_by, 1, 1 << 20, "128", 0, "padding unit of the vocabulary, times tp"),
    MS_INT(MsModel, seq_length_max, 0, 1 << 30, "0", MS_NULLABLE, "positions of a learned table; 0 = none"),
    MS_INT(MsModel, num_experts, 0, 65536, "0", MS_NULLABLE, "routed experts E; 0 = dense model"),
    MS_INT(MsModel, moe_router_topk, 0, 65536, "0", MS_NULLABLE, "experts per token k"),
    MS_INT(MsModel, moe_ffn_hidden_size, 0, MAX_WIDTH, "0", MS_NULLABLE, "width fm of one routed expert"),
    MS_INT(MsModel, moe_shared_expert_intermediate_size, 0, MAX_WIDTH, "0", MS_NULLABLE,
           "total width fs of the shared experts"),
    MS_BOOL(MsModel, moe_shared_expert_gate, "false", 0, "gate on the shared expert"),
    MS_INT(MsModel, moe_router_num_groups, 0, 65536, "0", MS_NULLABLE,
           "groups of experts for group-limited routing; 0 = none"),
    MS_INT(MsModel, moe_router_group_topk, 0, 65536, "0", MS_NULLABLE, "groups a token may use"),
    MS_ENUM(MsModel, moe_router_score_function, ms_router_score_words, "\"softmax\"", 0, "score of the router"),
    MS_BOOL(MsModel, moe_router_pre_softmax, "false", 0,
            "softmax over all experts before the choice, so that the chosen weights need not add up to 1"),
    MS_F64(MsModel, moe_router_topk_scaling_factor, "", 0, 1e6, "0", MS_NULLABLE,
           "factor on the weights of the chosen experts; 0 = none"),
    MS_ENUM(MsModel, moe_router_load_balancing_type, ms_balance_words, "\"aux_loss\"", 0,
            "over what the loss that balances the experts is taken"),
    MS_BOOL(MsModel, moe_router_enable_expert_bias, "false", 0, "bias per expert for balance without a loss"),
    MS_F64(
        MsModel, moe_aux_loss_coeff, "", 0, 1, "0.001", 0,
        "weight of the loss that balances the experts; with 0 natural routing is far from balance in early training"),
    MS_STRING(MsModel, moe_layer_freq, MS_NULLABLE,
              "which layers are MoE, e.g. \"[0]*3+[1]*58\"; null = all when num_experts > 0"),
    MS_INT(MsModel, moe_latent_size, 0, MAX_WIDTH, "0", MS_NULLABLE,
           "width at which the routed experts work; 0 = hidden_size"),
    MS_OBJECT(MsModel, mamba, &mamba_table, MS_NULLABLE, "Mamba-2 mixer; null = none"),
    MS_OBJECT(MsModel, linear_attention, &ms_linear_attention_table, MS_NULLABLE, "gated delta net; null = none"),
    MS_OBJECT(MsModel, sparse_attention, &ms_sparse_attention_table, MS_NULLABLE,
              "sparse attention behind an indexer; null = none"),
    MS_OBJECT(MsModel, compressed_attention, &ms_compressed_attention_table, MS_NULLABLE,
              "compressed sparse attention; null = none"),
    MS_OBJECT(MsModel, hyper_connections, &ms_hyper_connections_table, MS_NULLABLE,
              "several residual streams; null = one"),
    MS_OBJECT(MsModel, front_end, &ms_front_end_table, MS_NULLABLE, "opaque stage before the decoder; null = none"),
    MS_STRING(MsModel, hybrid_layer_pattern, MS_NULLABLE,
              "one letter a layer: M Mamba, G gated delta net, * attention, E experts, - MLP; null = standard layers"),
    MS_STRING(MsModel, mtp_pattern, MS_NULLABLE, "letters of one MTP block; null = as the last layer"),
    MS_BOOL(MsModel, mtp_use_repeated_layer, "false", 0, "all MTP blocks share one set of weights"),
    MS_BOOL(MsModel, gated, "true", 0, "gated MLP: three matrices instead of two"),
    MS_ENUM(MsModel, activation, ms_activation_words, "\"silu\"", 0, "activation of the MLP"),
    MS_ENUM(MsModel, normalization, ms_norm_words, "\"RMSNorm\"", 0, "norm of the layers"),
    MS_F64(MsModel, norm_epsilon, "", 0, 1, "1e-05", 0, "added to the variance in norms"),
    MS_BOOL(MsModel, layernorm_zero_centered_gamma, "false", 0, "gains of norms are stored as their distance from 1"),
    MS_ENUM(MsModel, position_embedding, ms_position_words, "\"rope\"", 0, "position embedding"),
    MS_F64(MsModel, rotary_base, "", 1, 1e15, "10000", 0, "base of the rotary frequencies"),
    MS_F64(MsModel, rotary_percent, "", 0, 1, "1", 0, "part of a head that is rotated"),
    MS_OBJECT(MsModel, rope_scaling, &ms_rope_scaling_table, MS_NULLABLE, "rotary frequencies stretched; null = none"),
    MS_F64(MsModel, init_method_std, "", 0, 10, "0.02", 0, "standard deviation of the weights at the start"),
    MS_BOOL(MsModel, tie_embeddings, "false", 0, "output layer shares the word embedding"),
    MS_BOOL(MsModel, add_bias_linear, "false", 0, "bias in linear layers"),
    MS_BOOL(MsModel, add_qkv_bias, "false", 0, "bias in the query-key-value projection"),
    MS_INT(MsModel, mtp_num_layers, 0, 100, "0", MS_NULLABLE, "multi-token-prediction blocks M"),
    MS_F64(MsModel, hidden_dropout, "", 0, 1, "0", 0,
           "dropout of the residual stream; above 0 its masks are kept for backward"),
    MS_F64(MsModel, attention_dropout, "", 0, 1, "0", 0, "dropout of the attention scores"));

/* --- checks that one row cannot make ------------------------------------------------------------------------------ */
typedef struct {
  const MsJson *doc;
  const char *path;
  GError **error;
} Where;

G_GNUC_PRINTF(3, 4) static gboolean bad(const Where *where, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = g_strdup_vprintf(format, args);
  va_end(args);
  char *path = where->path && *where->path ? g_strdup_printf("%s.%s", where->path, key) : g_strdup(key);
  ms_json_error(where->doc, path, where->error, "%s", text);
  g_free(path);
  g_free(text);
  return FALSE;
}

static gboolean finish_heads(MsModel *m, const Where *where) {
  int heads = m->num_attention_heads;
  if (m->num_query_groups == 0) m->num_query_groups = heads;
  if (heads % m->num_query_groups != 0)
    return bad(where, "num_query_groups", "is %d, must divide num_attention_heads = %d", m->num_query_groups, heads);
  if (m->kv_channels > 0) return TRUE;
  if (m->hidden_size % heads != 0)
    return bad(where, "kv_channels", "is not given, and num_attention_heads = %d does not divide hidden_size = %d",
               heads, m->hidden_size);
  m->kv_channels = m->hidden_size / heads;
  return TRUE;
}

static gboolean check_mla(const MsModel *m, const Where *where) {
  const MsMla *mla = &m->multi_latent_attention;
  gboolean any = mla->q_lora_rank || mla->qk_head_dim || mla->qk_pos_emb_head_dim || mla->v_head_dim;
  if (mla->kv_lora_rank == 0)
    return !any ||
           bad(where, "multi_latent_attention.kv_lora_rank", "is 0 beside other dimensions, must be at least 1");
  if (mla->qk_head_dim == 0) return bad(where, "multi_latent_attention.qk_head_dim", "is 0, must be at least 1");
  if (mla->v_head_dim == 0) return bad(where, "multi_latent_attention.v_head_dim", "is 0, must be at least 1");
  return TRUE;
}

static gboolean check_query_latent(const MsModel *m, const Where *where) {
  if (m->query_latent_size == 0) return TRUE;
  const char *beside = ms_model_has_mla(m)                     ? "multi_latent_attention"
                       : ms_model_has_compressed_attention(m)  ? "compressed_attention"
                       : m->attention_output_gate              ? "attention_output_gate"
                       : m->add_bias_linear || m->add_qkv_bias ? "biases of the projections"
                                                               : NULL;
  return !beside || bad(where, "query_latent_size", "does not go with %s", beside);
}

static gboolean check_router_groups(const MsModel *m, const Where *where) {
  int groups = m->moe_router_num_groups, used = m->moe_router_group_topk;
  if (groups == 0) return TRUE;
  if (m->num_experts % groups != 0)
    return bad(where, "moe_router_num_groups", "is %d, must divide num_experts = %d", groups, m->num_experts);
  if (used < 1 || used > groups)
    return bad(where, "moe_router_group_topk", "is %d, must be in [1, moe_router_num_groups = %d]", used, groups);
  if (m->moe_router_topk > used * (m->num_experts / groups))
    return bad(where, "moe_router_topk", "is %d, but %d of %d groups hold only %d experts", m->moe_router_topk, used,
               groups, used * (m->num_experts / groups));
  return TRUE;
}

static gboolean check_experts(const MsModel *m, const Where *where) {
  if (m->num_experts == 0) return TRUE;
  if (m->moe_router_topk < 1 || m->moe_router_topk > m->num_experts)
    return bad(where, "moe_router_topk", "is %d, must be in [1, num_experts = %d]", m->moe_router_topk, m->num_experts);
  if (m->moe_ffn_hidden_size == 0)
    return bad(where, "moe_ffn_hidden_size", "is 0, must be at least 1 with num_experts > 0");
  return check_router_groups(m, where);
}

static gboolean finish_layers(MsModel *m, const Where *where) {
  g_free(m->moe_layer);
  m->moe_layer = g_new0(guint8, (gsize)m->num_layers);
  if (m->num_experts == 0) return TRUE;
  if (!m->moe_layer_freq) {
    memset(m->moe_layer, 1, (size_t)m->num_layers);
    return TRUE;
  }
  char why[160];
  int n = ms_moe_freq_parse(m->moe_layer_freq, m->moe_layer, m->num_layers, why, sizeof why);
  if (n < 0) return bad(where, "moe_layer_freq", "%s", why);
  return n == m->num_layers ||
         bad(where, "moe_layer_freq", "gives %d layers, must give num_layers = %d", n, m->num_layers);
}

static gboolean check_letters(const MsModel *m, const char *key, const char *pattern, const Where *where) {
  const MsMamba *a = &m->mamba;
  for (const char *c = pattern; *c; c++) {
    if (!ms_mixer_of(*c))
      return bad(where, key, "has the letter '%c', must be made of M, G, *, E and -", g_ascii_isprint(*c) ? *c : '?');
    if (*c == 'E' && m->num_experts == 0) return bad(where, key, "has expert layers, but num_experts is 0");
    if (*c == 'M' && (a->num_heads < 1 || a->head_dim < 1 || a->state_dim < 1 || a->num_groups < 1))
      return bad(where, key, "has Mamba layers, but mamba gives no heads, head_dim, state_dim or num_groups");
    if (*c == 'G' && m->linear_attention.num_value_heads == 0)
      return bad(where, key, "has gated delta net layers, but linear_attention is not given");
  }
  return TRUE;
}

/* Layers of a hybrid model from its letters. */
static gboolean finish_hybrid(MsModel *m, const Where *where) {
  g_clear_pointer(&m->mixers, g_free);
  if (m->mtp_pattern && !check_letters(m, "mtp_pattern", m->mtp_pattern, where)) return FALSE;
  if (!m->hybrid_layer_pattern) return TRUE;
  if (!check_letters(m, "hybrid_layer_pattern", m->hybrid_layer_pattern, where)) return FALSE;
  size_t n = strlen(m->hybrid_layer_pattern);
  if (n != (size_t)m->num_layers)
    return bad(where, "hybrid_layer_pattern", "has %d layers, must have num_layers = %d", (int)MIN(n, 1000000),
               m->num_layers);
  m->mixers = g_new0(guint8, n);
  for (size_t i = 0; i < n; i++) {
    m->mixers[i] = (guint8)ms_mixer_of(m->hybrid_layer_pattern[i]);
    m->moe_layer[i] = m->mixers[i] == MS_MIX_MOE;
  }
  return TRUE;
}

static gboolean check_dense_width(const MsModel *m, const Where *where) {
  if (m->ffn_hidden_size > 0 || !memchr(m->moe_layer, 0, (size_t)m->num_layers)) return TRUE;
  if (m->hybrid_layer_pattern && !strchr(m->hybrid_layer_pattern, '-')) return TRUE;
  return bad(where, "ffn_hidden_size", "is 0, must be at least 1 for dense layers");
}

static gboolean finish_kinds(MsModel *m, const Where *where) {
  const char *key = NULL;
  char why[200];
  return ms_model_finish_kinds(m, &key, why, sizeof why) || bad(where, key, "%s", why);
}

gboolean ms_model_finish(MsModel *model, const MsJson *doc, const char *path, GError **error) {
  Where where = {doc, path, error};
  return finish_heads(model, &where) && check_mla(model, &where) && check_query_latent(model, &where) &&
         check_experts(model, &where) && finish_layers(model, &where) && finish_hybrid(model, &where) &&
         check_dense_width(model, &where) && finish_kinds(model, &where);
}

/* --- loading ------------------------------------------------------------------------------------------------------ */
enum { DEEPEST_BASE = 8 };

static MsModel *model_new(void) {
  MsModel *model = g_new0(MsModel, 1);
  ms_fields_defaults(&ms_model_table, model);
  return model;
}

static MsModel *from_base(const MsJson *doc, JsonObject *json, const char *path, int depth, GError **error);

/* Loaded, but not finished: overrides may follow. `depth`: of models upon one another. */
static MsModel *load_raw(const MsJson *doc, int depth, GError **error) {
  JsonObject *json = json_node_get_object(ms_json_root(doc));
  MsModel *model = NULL;
  if (json_object_has_member(json, "base")) model = from_base(doc, json, "", depth, error);
  else {
    model = model_new();
    if (!ms_fields_load(&ms_model_table, doc, json, "", TRUE, model, error)) g_clear_pointer(&model, ms_model_free);
  }
  if (model && !json_object_has_member(json, "name")) {
    g_free(model->name);
    model->name = ms_name_of_file(ms_json_filename(doc));
  }
  return model;
}

static MsModel *finished(MsModel *model, const MsJson *doc, const char *path, GError **error) {
  if (model && !ms_model_finish(model, doc, path, error)) g_clear_pointer(&model, ms_model_free);
  return model;
}

/* Models that one file says by itself, boxes of one pointer. */
static void kept_clear(gpointer model) { ms_model_free(*(MsModel **)model); }
static MsKeep kept = {.clear = kept_clear};

static MsModel *read_file(const char *file, const MsStamp *stamp, gboolean finish, int depth, GError **error) {
  g_autoptr(MsJson) doc = ms_load_object(file, error);
  MsModel *model = doc ? load_raw(doc, depth, error) : NULL;
  if (finish) model = finished(model, doc, "", error);
  if (!model || !finish || !stamp->known || json_object_has_member(json_node_get_object(ms_json_root(doc)), "base"))
    return model;
  MsModel **own = g_atomic_rc_box_new(MsModel *);
  *own = ms_model_copy(model);
  ms_kept_add(&kept, file, "", stamp, own);
  ms_kept_release(&kept, own);
  return model;
}

/* Takes `file`, which may be NULL. */
static MsModel *load_file(char *file, gboolean finish, int depth, GError **error) {
  MsStamp stamp = {0};
  MsModel **known = finish && file && strcmp(file, "-") != 0 ? ms_kept_find(&kept, file, "", &stamp) : NULL;
  MsModel *model = known ? ms_model_copy(*known) : file ? read_file(file, &stamp, finish, depth, error) : NULL;
  ms_kept_release(&kept, known);
  g_free(file);
  return model;
}

MsModel *ms_model_load(const char *name, GError **error) {
  char *file = strcmp(name, "-") == 0 ? g_strdup(name) : ms_find_data_file("models", name, error);
  return load_file(file, TRUE, 0, error);
}

GPtrArray *ms_model_names(void) {
  g_autoptr(GPtrArray) all = ms_data_names("models");
  GPtrArray *names = g_ptr_array_new_with_free_func(g_free), *studies = g_ptr_array_new();
  for (guint i = 0; i + 1 < all->len; i++) {
    MsModel *model = ms_model_load(all->pdata[i], NULL);
    g_ptr_array_add(model && model->of_a_study ? studies : names, g_strdup(all->pdata[i]));
    ms_model_free(model);
  }
  g_ptr_array_extend_and_steal(names, studies);
  g_ptr_array_add(names, NULL);
  return names;
}

/* Another number of layers without its own moe_layer_freq: dense layers first, then MoE layers, is continued
 * or cut; any other pattern stays as it is and must fit. */
static void refit_moe_layers(MsModel *model, int old_layers) {
  guint8 layer[MAX_LAYERS];
  char why[160];
  if (!model->moe_layer_freq ||
      ms_moe_freq_parse(model->moe_layer_freq, layer, old_layers, why, sizeof why) != old_layers)
    return;
  int dense = 0;
  while (dense < old_layers && !layer[dense]) dense++;
  if (memchr(layer + dense, 0, (size_t)(old_layers - dense))) return;
  dense = dense == old_layers ? model->num_layers : MIN(dense, model->num_layers);
  g_free(model->moe_layer_freq);
  model->moe_layer_freq = g_strdup_printf("[0]*%d+[1]*%d", dense, model->num_layers - dense);
}

static gboolean override(MsModel *model, const MsJson *doc, JsonObject *changes, const char *path, GError **error) {
  int old_layers = model->num_layers;
  gboolean every_head_its_own = model->num_query_groups == model->num_attention_heads;
  if (!ms_fields_load(&ms_model_table, doc, changes, path, FALSE, model, error)) return FALSE;
  if (every_head_its_own && json_object_has_member(changes, "num_attention_heads") &&
      !json_object_has_member(changes, "num_query_groups"))
    model->num_query_groups = 0;
  if (model->num_layers != old_layers && !json_object_has_member(changes, "moe_layer_freq"))
    refit_moe_layers(model, old_layers);
  return TRUE;
}

static MsModel *from_base(const MsJson *doc, JsonObject *json, const char *path, int depth, GError **error) {
  char *base_path = g_strconcat(path, *path ? "." : "", "base", NULL);
  JsonNode *base = json_object_get_member(json, "base");
  MsModel *model = NULL;
  if (!ms_json_is(base, G_TYPE_STRING)) ms_json_error(doc, base_path, error, "must be the name of a model or a path");
  else if (depth >= DEEPEST_BASE)
    ms_json_error(doc, base_path, error, "more than %d models upon one another: do they name each other?",
                  DEEPEST_BASE);
  else
    model = load_file(ms_find_mentioned("models", json_node_get_string(base), doc, base_path, error), FALSE, depth + 1,
                      error);
  JsonObject *changes = ms_object_without(json, "base");
  if (model && !override(model, doc, changes, path, error)) g_clear_pointer(&model, ms_model_free);
  json_object_unref(changes);
  g_free(base_path);
  return model;
}

static MsModel *from_inline(const MsJson *doc, JsonObject *json, const char *path, GError **error) {
  MsModel *model = model_new();
  if (!ms_fields_load(&ms_model_table, doc, json, path, TRUE, model, error)) g_clear_pointer(&model, ms_model_free);
  if (model && !model->name) model->name = g_strdup("inline");
  return model;
}

MsModel *ms_model_from_json(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  if (JSON_NODE_HOLDS_OBJECT(node)) {
    JsonObject *json = json_node_get_object(node);
    MsModel *model = json_object_has_member(json, "base") ? from_base(doc, json, path, 0, error)
                                                          : from_inline(doc, json, path, error);
    return finished(model, doc, path, error);
  }
  if (ms_json_is(node, G_TYPE_STRING))
    return load_file(ms_find_mentioned("models", json_node_get_string(node), doc, path, error), TRUE, 0, error);
  ms_json_error(doc, path, error, "must be the name of a model, a path, or an object with \"base\" and overrides");
  return NULL;
}

MsModel *ms_model_copy(const MsModel *model) {
  MsModel *copy = g_new(MsModel, 1);
  *copy = *model;
  ms_fields_copy(&ms_model_table, model, copy);
  if (model->moe_layer) copy->moe_layer = g_memdup2(model->moe_layer, (gsize)model->num_layers);
  if (model->mixers) copy->mixers = g_memdup2(model->mixers, (gsize)model->num_layers);
  if (model->compress_ratio) copy->compress_ratio = g_memdup2(model->compress_ratio, (gsize)model->num_compress_ratios);
  return copy;
}

void ms_model_free(MsModel *model) {
  if (!model) return;
  ms_fields_clear(&ms_model_table, model);
  g_free(model->moe_layer);
  g_free(model->mixers);
  g_free(model->compress_ratio);
  g_free(model);
}
