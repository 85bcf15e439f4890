/* src/work/sparse.c - sparse attention behind an indexer (DSA: DeepSeek-V3.2, GLM-5), and the indexer itself.
 *
 * The latent attention runs absorbed, as Megatron-LM's AbsorbedMLASelfAttention does (dev branch, 2026-08): the key
 * half of the up-projection is applied to the queries, the value half to the result, and all heads share one key of
 * width kl + dr whose first kl are the value. Every query attends to the `indexer_topk` keys with the highest scores,
 * score = sum over indexer heads of weight x relu(q . k). The indexer sees its inputs detached: its weights learn from
 * a loss of its own (the attention probabilities of the chosen keys), nothing flows back into the layer. All of it is
 * replicated over TP. Context parallelism gathers latents and indexer keys ("all_gather" only, as in Megatron). */
#include "work/build.h"

#include <math.h>

MsPartParams ms_indexer_params(const MsModel *m, int layer) {
  const MsSparseAttention *a = &m->sparse_attention;
  double h = m->hidden_size, heads = a->indexer_num_heads, d = a->indexer_head_dim;
  gboolean compressed = ms_model_has_compressed_attention(m);
  double q = (compressed                                  ? m->compressed_attention.q_lora_rank
              : m->multi_latent_attention.q_lora_rank > 0 ? m->multi_latent_attention.q_lora_rank
                                                          : h) *
             heads * d;
  double ratio = ms_model_compress_ratio(m, layer);
  /* keys: a projection and a LayerNorm; with compressed attention a compressor of its own (key and weight projections
   * of two halves, positions, norm) */
  double keys = compressed ? 4 * h * d + 2 * ratio * d + d : h * d + 2 * d;
  MsPartParams p = {.dense = q + h * heads + keys, .quantizable_dense = q};
  p.replicated = p.dense;
  return p;
}

/* Keys per query on average when each sees at most `most` of those before it, itself included. */
static double keys_of_sequence(double s, double most) {
  double w = MIN(most, s);
  return w - w * (w - 1) / (2 * s);
}

typedef struct {
  double most, per_key;
} Seen;

static double seen_of(double length, const void *data) {
  const Seen *seen = data;
  return keys_of_sequence(length / seen->per_key, seen->most);
}

/* The same over the packed sequences of the busiest rank, each `per_key` tokens one key. */
static double keys_seen(const MsBuild *b, double most, double per_key) {
  Seen seen = {most, per_key};
  const MsPackLengths *l = &b->packing->lengths;
  return ms_packing_busiest(b->packing, ms_packing_mean(l, 0, l->n, seen_of, &seen), seen_of(b->packing->whole, &seen));
}

#define KEY_BLOCK 64.0 /* of FlashMLA and cuDNN Frontend on Blackwell; Hopper's forward takes two at a time */
double ms_key_blocks(double keys) { return KEY_BLOCK * ceil(keys / KEY_BLOCK); }

/* Of a list that ends after a query's last key: the last block is full only once in a block while the list grows. */
static double keys_in_blocks(const MsBuild *b, double most) {
  double s = ms_packed_length(b);
  return keys_seen(b, most, 1) + (KEY_BLOCK - 1) / 2 * MIN(most, s) / s;
}

/* Both take 64 heads, or that many times two: fewer are padded with zeros, which are computed with
 * (dsa_cudnn_kernels.py, _get_head_padding; of the indexer in its loss _pad_indexer_heads_for_backward). */
#define KERNEL_HEADS 64.0
static double kernel_heads(double heads) { return KERNEL_HEADS * ceil(heads / KERNEL_HEADS); }

static void copy_rows(MsBuild *b, const char *name, double bytes_B) {
  ms_row_memory(b, MS_OP_COPY, name, bytes_B, bytes_B, 1);
}

/* Tensors of all heads, `widths` wide together: zeros for the padded ones, then a copy of what there is. */
static void pad_heads(MsBuild *b, const char *name, double heads, double widths, int tensors) {
  double padded = kernel_heads(heads);
  if (padded == heads) return;
  double head_B = 2 * b->rows * widths;
  ms_row_memory(b, MS_OP_COPY, name, head_B * heads, head_B * (padded + heads), 2 * tensors);
}

double ms_packed_length(const MsBuild *b) { return b->packing->length; }
double ms_packed_sequences(const MsBuild *b) { return b->rows * b->c / b->packing->length; }

/* A compressor between its projections and its norm, operator by operator in PyTorch for sequences that are not packed
 * (csa.py, Compressor._forward_sbhd): positions are added (weights become FP32), groups that overlap are laid out
 * twice, softmax over a group in FP32, product, sum. Passes over an element, keys and weights together, in bytes read
 * and written; the backward of a slice zeroes and copies. */
void ms_pool_rows(MsBuild *b, const char *name, double width, double ratio) {
  static const struct {
    double read_B, write_B;
    int kernels;
  } passes[2][2] = {{{16, 12, 5}, {22, 14, 7}}, {{22, 24, 11}, {52, 56, 25}}};
  gboolean back = b->pass == MS_PASS_DGRAD, overlap = ratio == 4;
  double elements = b->rows * (overlap ? 2 : 1) * width, out = 2 * b->rows / ratio * width;
  ms_row_memory(b, MS_OP_POOL, name, passes[overlap][back].read_B * elements + (back ? out : 0),
                passes[overlap][back].write_B * elements + (back ? 0 : out), passes[overlap][back].kernels);
}

/* --- the indexer ----------------------------------------------------------------------------------------------- */

static MsLinear plain(const char *name, double m, double n, double k, gboolean low) {
  MsLinear l = ms_linear_of(name, MS_LINEAR_PLAIN, m, n, k);
  l.low = low, l.model_flop = FALSE,
  l.input_quantized_by_producer = TRUE; /* their inputs are cast already, or stay as they are */
  return l;
}

static gboolean shares_choice(const MsBuild *b) {
  return b->model->sparse_attention.indexer_topk_freq > 1 && !ms_model_has_compressed_attention(b->model);
}

static double topk_of(const MsBuild *b, const MsIndexer *ix) {
  return MIN((double)b->model->sparse_attention.indexer_topk, ms_packed_length(b) / ix->per_key);
}

static double pairs_B(const MsBuild *b, const MsIndexer *ix) { /* FP32 scores of all queries */
  return 4 * b->rows * ms_packed_length(b) / (2 * ix->per_key);
}

static void score_row(MsBuild *b, const char *name, const MsIndexer *ix, double flop, double keys) {
  const MsSparseAttention *a = &b->model->sparse_attention;
  double width = (double)a->indexer_num_heads * a->indexer_head_dim, s = ms_packed_length(b),
         sequences = ms_packed_sequences(b);
  MsOp *op = ms_row(b, MS_OP_INDEXER, name);
  op->m = s / b->c, op->n = MAX(keys, 1), op->k = 2.0 * a->indexer_head_dim;
  op->groups = (int)MAX(sequences * a->indexer_num_heads, 1), op->kv_groups = (int)MAX(sequences, 1);
  op->flop = flop;
  op->read_B = 2 * b->rows * (width + a->indexer_num_heads) + 2 * b->rows * b->c / ix->per_key * a->indexer_head_dim;
  op->kernels = 4;
}

/* cuDNN scores sequences that start at the first query and key, in one chunk of at most 1 GiB; where layers share a
 * choice (indexer_topk_freq), with packed sequences or context parallelism every query has bounds of its own, which it
 * does not take. Packed sequences over context-parallel ranks are cut so that it does. Elsewhere Megatron-LM falls into
 * a loop over the heads: a product of FP32 copies for all pairs, masked ones too, ReLU, the weight, the sum
 * (dsa_cudnn_kernels.py, _indexer_topk_bshd, _indexer_topk_from_score_chunks). */
#define SCORE_CHUNK_B 1073741824.0
static gboolean scores_are_fused(const MsBuild *b) {
  gboolean packed = b->packing->packed;
  if (ms_model_has_compressed_attention(b->model) || (packed && b->c > 1)) return TRUE;
  return !packed && b->c == 1 && !shares_choice(b) && 4 * b->rows * b->training->seq_length <= SCORE_CHUNK_B;
}

/* FP32, masked ones too, at once: a chunk, and of a head another one. */
static double scores_alive_B(const MsBuild *b, const MsIndexer *ix) {
  if (ms_model_has_compressed_attention(b->model)) return 4 * b->rows * ms_packed_length(b) / ix->per_key;
  return (scores_are_fused(b) ? 1 : 2) * MIN(4 * b->rows * b->training->seq_length, SCORE_CHUNK_B);
}

static void scores_by_head(MsBuild *b, const MsIndexer *ix) {
  const MsSparseAttention *a = &b->model->sparse_attention;
  double heads = a->indexer_num_heads, keys = b->training->seq_length, pairs = b->rows * keys; /* of the whole pack */
  score_row(b, "indexer scores", ix, 2 * pairs * heads * a->indexer_head_dim, keys);
  MsOp *op = &b->list->op[b->list->n - 1];
  op->dtype = MS_ODT_FP32, op->write_B = 4 * pairs * heads,
  op->kernels = (guint16)(2 * heads); /* a cast and a product */
  op = ms_row_memory(b, MS_OP_ADD, "sum indexer heads", 16 * pairs * heads, 12 * pairs * heads, (int)(4 * heads));
  op->transient_B = scores_alive_B(b, ix);
}

/* The chosen keys are moved to the front of their list and put in order: two sorts of every list, four in a pass with
 * gradients, one more where other TP ranks have other heads. Bytes of an element and sort: comparisons, gathers and
 * masks around it, and as many again for each digit of 4 bits that PyTorch's sort in shared memory moves key and place
 * (mean of 8-byte and 4-byte keys); nobody measured it, it is taken to run at the rate of memory. */
static void sort_lists(MsBuild *b, double topk) {
  gboolean gradients = b->model->sparse_attention.indexer_loss && (b->keeping || b->pass == MS_PASS_RECOMPUTE);
  double sorts = (gradients ? 4 : 2) + (gradients && b->t > 1), elements = b->rows * topk;
  MsOp *op =
      ms_row_memory(b, MS_OP_TOPK, "sort chosen keys", sorts * elements * 226, sorts * elements * 226, (int)sorts * 12);
  op->m = b->rows, op->n = topk;
}

/* Rotary embedding of queries and keys, then Hadamard's transform. Beside DSA no kernel rotates
 * (transformer_config.py): plain operators turn part of each head and join it to the rest, keys through a norm of their
 * own (dsa.py, _apply_rope, forward_before_topk). */
static void rotate(MsBuild *b, double width) {
  double turned = 4 * b->rows * width, d = b->model->sparse_attention.indexer_head_dim;
  if (ms_model_has_compressed_attention(b->model)) {
    ms_row_memory(b, MS_OP_ROPE, "indexer rope", turned, turned, 4);
    return;
  }
  gboolean back = b->pass == MS_PASS_DGRAD;
  if (!back) ms_norm_forward(b, "indexer key norm", b->rows, d);
  double heads = b->model->sparse_attention.indexer_num_heads + 1;
  ms_row_plain_rope(b, b->rows * heads * b->model->multi_latent_attention.qk_pos_emb_head_dim, b->rows * heads * d);
  ms_row_memory(b, MS_OP_ROPE, "indexer hadamard", 2 * b->rows * heads * d, 2 * b->rows * heads * d, 2);
  if (back) ms_norm_backward(b, "indexer key norm", b->rows, d);
}

void ms_indexer_forward(MsBuild *b, const MsIndexer *ix) {
  const MsSparseAttention *a = &b->model->sparse_attention;
  double heads = a->indexer_num_heads, d = a->indexer_head_dim, width = heads * d, s = ms_packed_length(b);
  gboolean compressed = ix->per_key > 1;
  MsLinear q = plain("indexer q", b->rows, width, ix->q_rank, TRUE),
           w = plain("indexer weights", b->rows, heads, b->h, FALSE);
  MsLinear k =
      plain("indexer k", b->rows, compressed ? 4 * d : d, b->h, FALSE); /* key and weight of a compressor in one row */
  /* With sequence parallelism its inputs come whole (dsa.py, forward_before_topk), and stay for its weights. */
  if (b->sp)
    ms_row_comm(b, MS_OP_ALL_GATHER, "tp gather index", MS_STREAM_TP, MS_GROUP_TP, 2 * b->rows * (b->h + ix->q_rank));
  ms_linear_forward(b, &q);
  ms_linear_forward(b, &w);
  ms_linear_forward(b, &k);
  rotate(b, width);
  if (compressed) ms_pool_rows(b, "indexer pool", d, ix->per_key);
  ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather index", MS_STREAM_CP, MS_GROUP_CP, 2 * b->rows * b->c / ix->per_key * d);
  if (!scores_are_fused(b)) {
    scores_by_head(b, ix);
  } else {
    score_row(b, "indexer scores", ix, 2 * b->rows * width * s / (2 * ix->per_key), s / ix->per_key);
    b->list->op[b->list->n - 1].write_B = pairs_B(b, ix);
    b->list->op[b->list->n - 1].transient_B = scores_alive_B(b, ix);
  }
  MsOp *top = ms_row_memory(b, MS_OP_TOPK, "indexer top-k", pairs_B(b, ix), 4 * b->rows * topk_of(b, ix), 8);
  top->m = b->rows, top->n = s / ix->per_key;
  if (!compressed) sort_lists(b, topk_of(b, ix));
  ms_keep(b, "chosen keys", 4 * b->rows * topk_of(b, ix));
  if (!a->indexer_loss) return;
  ms_keep(b, "indexer q, k, weights", 2 * b->rows * (width + heads + d / ix->per_key + (compressed ? 4 * d : 0)));
  if (b->sp) ms_keep(b, "indexer inputs", 2 * b->rows * b->h + ms_input_B(b, b->rows * ix->q_rank, TRUE));
}

void ms_indexer_backward(MsBuild *b, const MsIndexer *ix, double attention_heads, double dqk) {
  const MsSparseAttention *a = &b->model->sparse_attention;
  double heads = a->indexer_num_heads, d = a->indexer_head_dim, width = heads * d;
  gboolean compressed = ix->per_key > 1;
  ms_free_kept(b, "chosen keys");
  if (!a->indexer_loss) return;
  b->pass = MS_PASS_DGRAD;
  double pairs = b->rows * (compressed ? ms_key_blocks(a->indexer_topk) : keys_in_blocks(b, a->indexer_topk));
  /* probabilities of attention over the chosen keys; the indexer's own again; its gradient to queries and keys */
  double outside =
      shares_choice(b) ? 2 * dqk : 0; /* the loss has no attention of its own to take the sums from, and runs it */
  if (!compressed) {
    pad_heads(b, "pad heads", attention_heads, (shares_choice(b) ? 2 : 1) * dqk, shares_choice(b) ? 2 : 1);
    pad_heads(b, "pad indexer heads", heads, d, 1);
    attention_heads = kernel_heads(attention_heads);
  }
  double learning = compressed ? heads : kernel_heads(heads);
  score_row(b, "indexer loss", ix, 2 * pairs * (attention_heads * (dqk + outside) + 3 * learning * d), topk_of(b, ix));
  MsOp *loss = &b->list->op[b->list->n - 1];
  loss->read_B += 2 * b->rows * attention_heads * dqk + 4 * pairs,
      loss->write_B = 2 * b->rows * width + 4 * b->rows * d;
  loss->kernels = 36; /* target, softmax over the chosen keys, divergence, gradients, each of several */
  if (learning > heads) copy_rows(b, "gradients of indexer heads", 2 * b->rows * width);
  /* every rank has the probabilities of its heads (_all_reduce_tp_target) */
  ms_row_comm(b, MS_OP_ALL_REDUCE, "tp sum index targets", MS_STREAM_TP, MS_GROUP_TP, 4 * b->rows * topk_of(b, ix));
  ms_row_comm(b, MS_OP_REDUCE_SCATTER, "cp scatter index", MS_STREAM_CP, MS_GROUP_CP,
              2 * b->rows * b->c / ix->per_key * d);
  if (compressed) ms_pool_rows(b, "indexer pool", d, ix->per_key);
  rotate(b, width);
  MsLinear q = plain("indexer q", b->rows, width, ix->q_rank, TRUE),
           w = plain("indexer weights", b->rows, heads, b->h, FALSE);
  MsLinear k = plain("indexer k", b->rows, compressed ? 4 * d : d, b->h, FALSE);
  ms_linear_backward_weight(b, &k);
  ms_linear_backward_weight(b, &w);
  ms_linear_backward_weight(b, &q);
  ms_free_kept(b, "indexer inputs");
  ms_free_kept(b, "indexer q, k, weights");
}

/* --- the core -------------------------------------------------------------------------------------------------- */

void ms_row_sparse_core(MsBuild *b, double heads, double dqk, double dv, double keys) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double per_pair = 2 * heads * (back ? 3 * dqk + 2 * dv : dqk + dv), q_B = 2 * b->rows * heads * dqk,
         o_B = 2 * b->rows * heads * dv, kv_B = 2 * b->rows * b->c * dqk;
  MsOp *op = ms_row(b, MS_OP_SPARSE_ATTENTION, "sparse attention");
  op->flop = per_pair * b->rows * keys;
  op->m = ms_packed_length(b) / b->c, op->n = MAX(keys, 1), op->k = dqk + dv;
  op->groups = (int)MAX(ms_packed_sequences(b) * heads, 1), op->kv_groups = (int)MAX(ms_packed_sequences(b), 1);
  op->read_B = q_B + (back ? 2 * o_B + 3 * kv_B : kv_B) + 4 * b->rows * keys; /* the list of keys too */
  op->write_B = (back ? q_B + 3 * kv_B : o_B) +
                4 * b->rows * heads; /* FP32 gradients of the keys add up in the L2 cache, then become BF16 */
  op->kernels =
      back ? 8 : 14; /* most build the list of keys: offsets of window and batch, compaction, padding, lengths */
}

/* --- the block ------------------------------------------------------------------------------------------------- */

typedef struct {
  double heads, ql, kl, dr, dn, dv;
  MsLinear q_down, kv_down, q_up, out;
  MsBlockLinear absorb, lift;
  MsIndexer indexer;
} Dsa;

static Dsa parts(const MsBuild *b) {
  const MsMla *a = &b->model->multi_latent_attention;
  Dsa p = {.heads = b->model->num_attention_heads / b->t,
           .ql = a->q_lora_rank,
           .kl = a->kv_lora_rank,
           .dr = a->qk_pos_emb_head_dim,
           .dn = a->qk_head_dim,
           .dv = a->v_head_dim};
  p.indexer = (MsIndexer){.q_rank = p.ql > 0 ? p.ql : b->h, .per_key = 1};
  p.q_down = ms_linear_of("q down", MS_LINEAR_PLAIN, b->rows_sp, p.ql, b->h);
  p.kv_down = ms_linear_of("kv down", MS_LINEAR_PLAIN, b->rows_sp, p.kl + p.dr, b->h);
  p.q_up = ms_linear_of("q up", MS_LINEAR_COLUMN, b->rows, p.heads * (p.dn + p.dr), p.ql > 0 ? p.ql : b->h);
  p.out = ms_linear_of("attention out", MS_LINEAR_ROW, b->rows, b->h, p.heads * p.dv);
  p.absorb = (MsBlockLinear){"k up, absorbed", b->rows, p.kl, p.dn, (int)p.heads};
  p.lift = (MsBlockLinear){"v up, absorbed", b->rows, p.dv, p.kl, (int)p.heads};
  return p;
}

/* Products by head come out head by head and are copied token by token; rotated and other columns of a query are put
 * side by side (absorbed_mla.py: contiguous and cat). Backward the parts of the query's gradient are put together; what
 * went through a product by head is read where it lies. */
static void queries_to_tokens(MsBuild *b, const Dsa *p) {
  copy_rows(b, "absorbed query to tokens", 2 * b->rows * p->heads * p->kl);
  copy_rows(b, "query concat", 2 * b->rows * p->heads * (p->kl + p->dr));
}

static void up_rows(MsBuild *b, const Dsa *p) { /* from latents to absorbed queries */
  if (p->ql > 0) ms_norm_forward(b, "q latent norm", b->rows_sp, p->ql);
  ms_linear_forward(b, &p->q_up);
  ms_norm_forward(b, "kv latent norm", b->rows_sp, p->kl);
  ms_block_linear_forward(b, &p->absorb);
  ms_row_plain_rope(b, b->rows * (p->heads + 1) * p->dr, 0);
  queries_to_tokens(b, p);
}

/* The backward of attention leaves out queries without a key: the host asks for their numbers, and all that belongs to
 * the others is copied twice, a row longer and gathered (dsa_cudnn_kernels.py, _run_sparse_attention_backward); the
 * gradient goes into zeros. Not where it is known that all have one: packed sequences over context-parallel ranks, in a
 * layer whose choice no other shares. */
static gboolean leaves_out_queries(const MsBuild *b) { return shares_choice(b) || !b->packing->packed || b->c == 1; }

static void gather_queries(MsBuild *b, const Dsa *p) {
  pad_heads(b, "pad heads", p->heads, 3 * p->kl + p->dr, 3);
  if (!leaves_out_queries(b)) return;
  double heads = kernel_heads(p->heads), q_B = 2 * b->rows * heads * (p->kl + p->dr), o_B = 2 * b->rows * heads * p->kl;
  MsOp *count = ms_row_memory(b, MS_OP_COPY, "queries with keys", 4 * b->rows, 8 * b->rows, 3);
  count->flags |= MS_OPF_SYNC;
  double each_B = q_B + 2 * o_B + 4 * b->rows * topk_of(b, &p->indexer);
  ms_row_memory(b, MS_OP_COPY, "gather queries", 2 * each_B, 2 * each_B, 14);
}

static void core_rows(MsBuild *b, const Dsa *p) {
  ms_row_sparse_core(b, kernel_heads(p->heads), p->kl + p->dr, p->kl,
                     keys_in_blocks(b, b->model->sparse_attention.indexer_topk));
}

static double latents_B(const MsBuild *b, const Dsa *p) { return 2 * b->rows * (p->kl + p->dr); }

/* Ranks of context parallelism ask each other for the lengths of their slices, and their hosts compare them
 * (dsa.py, _validate_nonpacked_cp_uniform_length). */
static void lengths_agree(MsBuild *b) {
  if (b->c == 1 || b->packing->packed) return;
  ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather lengths", MS_STREAM_CP, MS_GROUP_CP, 8.0 * b->c);
  MsOp *ask = ms_row_memory(b, MS_OP_COPY, "lengths agree", 8.0 * b->c, 8.0 * b->c, 6);
  ask->flags |= MS_OPF_SYNC;
}

void ms_sparse_forward(MsBuild *b, int layer) {
  Dsa p = parts(b);
  gboolean again = ms_recomputes(b->options, MS_RM_MLA_UP_PROJ);
  if (p.ql > 0) ms_linear_forward(b, &p.q_down);
  ms_linear_forward(b, &p.kv_down);
  ms_keep(b, "latents", 2 * b->rows_sp * (p.ql + p.kl + p.dr));
  up_rows(b, &p);
  if (!again) ms_keep(b, "normed latents", ms_input_B(b, b->rows_sp * p.ql, TRUE) + 2 * b->rows * (p.kl + p.dr));
  if (!again) ms_keep(b, "q", 2 * b->rows * p.heads * (p.dn + p.dr));
  if (!again)
    ms_keep(b, "qkv", 2 * b->rows * p.heads * (p.kl + p.dr)); /* absorbed queries; the key stands with the latents */
  lengths_agree(b);
  if (b->sp) ms_row_comm(b, MS_OP_ALL_GATHER, "tp gather latents", MS_STREAM_TP, MS_GROUP_TP, latents_B(b, &p));
  ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather latents", MS_STREAM_CP, MS_GROUP_CP, latents_B(b, &p) * b->c);
  if (ms_model_layer_has_indexer(b->model, layer)) ms_indexer_forward(b, &p.indexer);
  pad_heads(b, "pad heads", p.heads, p.kl + p.dr, 1);
  core_rows(b, &p);
  double out_B = 2 * b->rows * kernel_heads(p.heads) * p.kl; /* seen through a window, kept whole */
  ms_keep(b, "attention out, latent", out_B);                /* by attention and by the product that lifts it */
  ms_send_copy(b, MS_OM_CORE_ATTN, out_B);
  ms_keep(b, "lse", 4 * b->rows * kernel_heads(p.heads));
  ms_block_linear_forward(b, &p.lift);
  copy_rows(b, "values to tokens", 2 * b->rows * p.heads * p.dv);
  ms_keep(b, "attention values", 2 * b->rows * p.heads * p.dv);
  ms_linear_forward(b, &p.out);
}

void ms_sparse_backward(MsBuild *b, int layer) {
  Dsa p = parts(b);
  b->pass = MS_PASS_DGRAD;
  ms_linear_backward(b, &p.out);
  ms_block_linear_backward(b, &p.lift);
  ms_free_kept(b, "attention values");
  if (ms_recomputes(b->options, MS_RM_MLA_UP_PROJ)) {
    b->pass = MS_PASS_RECOMPUTE;
    up_rows(b, &p);
  }
  b->pass = MS_PASS_DGRAD;
  gather_queries(b, &p);
  core_rows(b, &p);
  if (kernel_heads(p.heads) > p.heads) copy_rows(b, "gradients of heads", 2 * b->rows * p.heads * (p.kl + p.dr));
  if (leaves_out_queries(b))
    ms_row_memory(b, MS_OP_COPY, "spread query gradients", 2 * b->rows * p.heads * (p.kl + p.dr),
                  4 * b->rows * p.heads * (p.kl + p.dr), 2);
  ms_free_kept(b, "attention out, latent");
  ms_free_kept(b, "lse");
  if (ms_model_layer_has_indexer(b->model, layer)) ms_indexer_backward(b, &p.indexer, p.heads, p.kl + p.dr);
  b->pass = MS_PASS_DGRAD;
  ms_row_comm(b, MS_OP_REDUCE_SCATTER, "cp scatter latents", MS_STREAM_CP, MS_GROUP_CP, latents_B(b, &p) * b->c);
  if (b->sp) ms_row_comm(b, MS_OP_REDUCE_SCATTER, "tp scatter latents", MS_STREAM_TP, MS_GROUP_TP, latents_B(b, &p));
  ms_row_plain_rope(b, b->rows * (p.heads + 1) * p.dr, 0);
  ms_block_linear_backward(b, &p.absorb);
  copy_rows(b, "query gradient concat", 2 * b->rows * p.heads * (p.dn + p.dr));
  ms_free_kept(b, "qkv");
  ms_free_kept(b, "q");
  ms_norm_backward(b, "kv latent norm", b->rows_sp, p.kl);
  ms_linear_backward(b, &p.q_up);
  if (p.ql > 0) ms_norm_backward(b, "q latent norm", b->rows_sp, p.ql);
  ms_free_kept(b, "normed latents");
  ms_linear_backward(b, &p.kv_down);
  if (p.ql > 0) ms_linear_backward(b, &p.q_down);
  ms_free_kept(b, "latents");
}
