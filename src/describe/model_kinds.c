/* src/describe/model_kinds.c - linear, sparse and compressed attention, hyper-connections, front end: tables and
 * checks. */
#include "describe/model_kinds.h"

#include "describe/moe_freq.h"
#include "describe/rows.h"

#include <string.h>

#define MAX_LAYERS 10000
#define MAX_WIDTH  1048576

const MsFieldTable ms_linear_attention_table = MS_FIELD_TABLE(
    "model.linear_attention", "gated delta net",
    MS_INT(MsLinearAttention, num_key_heads, 0, 65536, "0", MS_NULLABLE, "heads of queries and keys"),
    MS_INT(MsLinearAttention, num_value_heads, 0, 65536, "0", MS_NULLABLE,
           "heads of values, gate, decay and write strength, a multiple of num_key_heads; 0 = no such layers"),
    MS_INT(MsLinearAttention, key_head_dim, 0, 65536, "0", MS_NULLABLE, "width of a query or key head"),
    MS_INT(MsLinearAttention, value_head_dim, 0, 65536, "0", MS_NULLABLE, "width of a value head"),
    MS_INT(MsLinearAttention, conv_kernel, 1, 1024, "4", 0, "taps of the short convolution over q, k and v"),
    MS_INT(MsLinearAttention, frequency, 0, MAX_LAYERS, "0", MS_NULLABLE,
           "every frequency-th layer is softmax attention, the others gated delta net; 0 = letters G of "
           "hybrid_layer_pattern"));

const MsFieldTable ms_sparse_attention_table = MS_FIELD_TABLE(
    "model.sparse_attention", "sparse attention behind an indexer (DSA); with compressed_attention: its indexer",
    MS_INT(MsSparseAttention, indexer_num_heads, 0, 65536, "0", MS_NULLABLE, "heads of the indexer"),
    MS_INT(MsSparseAttention, indexer_head_dim, 0, 65536, "0", MS_NULLABLE, "width of an indexer head"),
    MS_INT(MsSparseAttention, indexer_topk, 0, 1 << 24, "0", MS_NULLABLE,
           "keys that a query attends to; 0 = the model has no sparse attention"),
    MS_INT(MsSparseAttention, indexer_topk_freq, 1, MAX_LAYERS, "1", 0,
           "one layer in this many has an indexer, the others share its choice"),
    MS_INT(MsSparseAttention, indexer_skip_topk_offset, 0, MAX_LAYERS, "0", 0,
           "the layer (from 1) from which indexer_topk_freq counts; all before it have an indexer"),
    MS_BOOL(MsSparseAttention, indexer_loss, "true", 0, "the indexer has a loss of its own, and so a backward pass"));

const MsFieldTable ms_compressed_attention_table = MS_FIELD_TABLE(
    "model.compressed_attention", "compressed sparse attention of DeepSeek-V4",
    MS_INT(MsCompressedAttention, q_lora_rank, 0, MAX_WIDTH, "0", MS_NULLABLE, "rank of the query projection"),
    MS_INT(MsCompressedAttention, head_dim, 0, 65536, "0", MS_NULLABLE,
           "width of a head, of the one key that is the value too; 0 = the model has no compressed attention"),
    MS_INT(MsCompressedAttention, qk_pos_emb_head_dim, 0, 65536, "0", MS_NULLABLE,
           "part of head_dim that carries RoPE"),
    MS_INT(MsCompressedAttention, o_groups, 1, 65536, "1", 0, "groups of the low-rank output projection"),
    MS_INT(MsCompressedAttention, o_lora_rank, 0, MAX_WIDTH, "0", MS_NULLABLE, "rank of each group"),
    MS_INT(MsCompressedAttention, window, 1, 1 << 24, "128", 0, "latest tokens seen uncompressed"),
    MS_STRING(MsCompressedAttention, compress_ratios, MS_NULLABLE,
              "tokens in one compressed key of each layer, then of each MTP block, e.g. \"[0]*2+[4]+[128,4]*20+[0]\""));

const MsFieldTable ms_hyper_connections_table = MS_FIELD_TABLE(
    "model.hyper_connections", "manifold-constrained hyper-connections (mHC)",
    MS_INT(MsHyperConnections, num_residual_streams, 1, 64, "1", 0, "parallel residual streams; 1 = none"),
    MS_INT(MsHyperConnections, sinkhorn_iterations, 1, 1000, "20", 0,
           "iterations that make the mixing matrix doubly stochastic"));

#define S MsRopeScaling
const MsFieldTable ms_rope_scaling_table = MS_FIELD_TABLE(
    "model.rope_scaling", "stretched rotary frequencies",
    MS_ENUM(S, type, ms_rope_kind_words, "\"none\"", 0, "how rotary frequencies are stretched"),
    MS_F64(S, factor, "", 0, 1e6, "1", 0, "how far"),
    MS_INT(S, original_max_position_embeddings, 1, 1 << 30, "4096", 0, "llama3, yarn: sequence before stretching"),
    MS_F64(S, low_freq_factor, "", 0, 1e6, "1", 0, "llama3: wavelengths above original / this are stretched whole"),
    MS_F64(S, high_freq_factor, "", 0, 1e6, "4", 0, "llama3: wavelengths below original / this are not stretched"),
    MS_F64(S, beta_fast, "", 0, 1e6, "32", 0, "yarn: turns from which a dimension is not stretched"),
    MS_F64(S, beta_slow, "", 0, 1e6, "1", 0, "yarn: turns up to which a dimension is stretched whole"),
    MS_F64(S, mscale, "", 0, 1e6, "1", 0, "yarn: scale of the attention scores"),
    MS_F64(S, mscale_all_dim, "", 0, 1e6, "0", 0, "yarn: the same over all dimensions"),
    MS_BOOL(S, truncate, "true", 0, "yarn: the range between beta_fast and beta_slow is rounded"));
#undef S

const MsFieldTable ms_front_end_table = MS_FIELD_TABLE(
    "model.front_end", "opaque stage before the decoder (vision, audio)",
    MS_F64(MsFrontEnd, parameters, "", 0, 1e13, "0", MS_NULLABLE,
           "weights, on every tensor-parallel rank of the first stage; 0 = no front end"),
    MS_F64(MsFrontEnd, forward_flop, "flop", 0, 1e21, "0", MS_NULLABLE, "executed forward per sequence"),
    MS_F64(MsFrontEnd, forward_B, "B", 0, 1e18, "0", MS_NULLABLE, "HBM traffic forward per sequence"),
    MS_F64(MsFrontEnd, kept_B, "B", 0, 1e15, "0", MS_NULLABLE, "activations kept for backward per sequence"),
    MS_BOOL(MsFrontEnd, frozen, "false", 0, "not trained: no backward, gradients or optimizer states"));

/* --- checks ---------------------------------------------------------------------------------------------------- */

typedef struct {
  const char **key;
  char *why;
  size_t size;
} Why;

G_GNUC_PRINTF(3, 4) static gboolean bad(const Why *w, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_vsnprintf(w->why, w->size, format, args);
  va_end(args);
  *w->key = key;
  return FALSE;
}

static gboolean check_linear(const MsModel *m, const Why *w) {
  const MsLinearAttention *a = &m->linear_attention;
  if (a->num_value_heads == 0)
    return (a->num_key_heads == 0 && a->frequency == 0) ||
           bad(w, "linear_attention.num_value_heads", "is 0 beside other dimensions, must be at least 1");
  if (a->num_key_heads < 1 || a->num_value_heads % a->num_key_heads != 0)
    return bad(w, "linear_attention.num_key_heads", "is %d, must be at least 1 and divide num_value_heads = %d",
               a->num_key_heads, a->num_value_heads);
  if (a->key_head_dim < 1) return bad(w, "linear_attention.key_head_dim", "is 0, must be at least 1");
  if (a->value_head_dim < 1) return bad(w, "linear_attention.value_head_dim", "is 0, must be at least 1");
  if (a->frequency > 0 && m->hybrid_layer_pattern)
    return bad(w, "linear_attention.frequency",
               "is given beside hybrid_layer_pattern, which says it with the letter G");
  return a->frequency > 0 || m->hybrid_layer_pattern ||
         bad(w, "linear_attention.frequency", "is 0, must be at least 1 without hybrid_layer_pattern");
}

static gboolean check_sparse(const MsModel *m, const Why *w) {
  const MsSparseAttention *a = &m->sparse_attention;
  if (a->indexer_topk == 0)
    return (a->indexer_num_heads == 0 && a->indexer_head_dim == 0) ||
           bad(w, "sparse_attention.indexer_topk", "is 0 beside other dimensions, must be at least 1");
  if (a->indexer_num_heads < 1) return bad(w, "sparse_attention.indexer_num_heads", "is 0, must be at least 1");
  if (a->indexer_head_dim < 1) return bad(w, "sparse_attention.indexer_head_dim", "is 0, must be at least 1");
  return ms_model_has_mla(m) || ms_model_has_compressed_attention(m) ||
         bad(w, "sparse_attention", "needs multi_latent_attention or compressed_attention");
}

static gboolean check_compressed(const MsModel *m, const Why *w) {
  const MsCompressedAttention *a = &m->compressed_attention;
  if (a->head_dim == 0)
    return (!a->compress_ratios && a->q_lora_rank == 0 && a->o_lora_rank == 0) ||
           bad(w, "compressed_attention.head_dim", "is 0 beside other keys, must be at least 1");
  if (ms_model_has_mla(m))
    return bad(w, "compressed_attention", "stands beside multi_latent_attention, a model has one of them");
  if (m->hybrid_layer_pattern || m->sliding_window.window > 0)
    return bad(w, "compressed_attention", "does not go with %s",
               m->hybrid_layer_pattern ? "hybrid_layer_pattern" : "sliding_window");
  if (a->q_lora_rank < 1) return bad(w, "compressed_attention.q_lora_rank", "is 0, must be at least 1");
  if (a->o_lora_rank < 1) return bad(w, "compressed_attention.o_lora_rank", "is 0, must be at least 1");
  if (a->qk_pos_emb_head_dim > a->head_dim)
    return bad(w, "compressed_attention.qk_pos_emb_head_dim", "is %d, must be at most head_dim = %d",
               a->qk_pos_emb_head_dim, a->head_dim);
  if (m->num_attention_heads % a->o_groups != 0)
    return bad(w, "compressed_attention.o_groups", "is %d, must divide num_attention_heads = %d", a->o_groups,
               m->num_attention_heads);
  return a->compress_ratios || bad(w, "compressed_attention.compress_ratios", "is missing");
}

static gboolean finish_ratios(MsModel *m, const Why *w) {
  g_clear_pointer(&m->compress_ratio, g_free);
  if (!ms_model_has_compressed_attention(m)) return TRUE;
  char why[160];
  int want = m->num_layers + m->mtp_num_layers;
  g_autofree guint8 *ratio = g_new0(guint8, (gsize)want + 1);
  int n = ms_layer_list_parse(m->compressed_attention.compress_ratios, ratio, want + 1, 255, why, sizeof why);
  if (n < 0) return bad(w, "compressed_attention.compress_ratios", "%s", why);
  if (n != want &&
      !(n == want + 1 && m->mtp_num_layers == 0)) /* a run without the MTP block leaves the last entry over */
    return bad(w, "compressed_attention.compress_ratios", "gives %d layers, must give num_layers + mtp_num_layers = %d",
               n, want);
  for (int i = 0; i < n; i++)
    if (ratio[i] == 4 && m->sparse_attention.indexer_topk == 0)
      return bad(w, "sparse_attention", "is missing: layers of ratio 4 choose their keys with its indexer");
  m->compress_ratio = g_steal_pointer(&ratio), m->num_compress_ratios = n;
  return TRUE;
}

static gboolean check_front_end(const MsModel *m, const Why *w) {
  const MsFrontEnd *f = &m->front_end;
  return f->parameters > 0 || (f->forward_flop == 0 && f->forward_B == 0 && f->kept_B == 0) ||
         bad(w, "front_end.parameters", "is 0 beside other figures, must be above 0");
}

static gboolean check_hyper(const MsModel *m, const Why *w) {
  return ms_model_streams(m) == 1 || !m->hybrid_layer_pattern ||
         bad(w, "hyper_connections", "does not go with hybrid_layer_pattern");
}

gboolean ms_model_finish_kinds(MsModel *m, const char **key, char *why, size_t size) {
  Why w = {key, why, size};
  return check_linear(m, &w) && check_compressed(m, &w) && check_sparse(m, &w) && finish_ratios(m, &w) &&
         check_hyper(m, &w) && check_front_end(m, &w);
}
