/* src/work/compressed.c - DeepSeek-V4's attention: one key head that is the value too, a window of the latest tokens,
 * and keys that stand for several tokens.
 *
 * A layer's ratio says what it sees beside the window: 0 nothing, 4 the `indexer_topk` compressed keys that an indexer
 * chose, else all compressed keys. A compressor makes a key of `ratio` tokens (of twice as many, overlapping, when the
 * ratio is 4): projections to keys and to weights, softmax over the tokens. Query heads are normed, without weights.
 * The output returns through RoPE's inverse and a grouped low-rank projection. Recompute `mla_up_proj` drops what lies
 * between the normed query latent and attention: queries, their norm, the key, RoPE. Shapes, dtypes (compressors and
 * the grouped projection stay in BF16), FLOP convention as in Megatron-LM's deepseek_v4_hybrid_attention.py, csa.py and
 * training.py (dev branch, 2026-08). Megatron runs it with TP 1. Context parallelism gathers the compressed keys; the
 * window reaches into the slice before. */
#include "work/build.h"

#include <math.h>

typedef struct {
  double n, d, dr, ql, og, ol, window, ratio, wide;
} Sizes; /* wide: halves of the compressor, 2 when its groups overlap */

static Sizes sizes(const MsModel *m, int layer) {
  const MsCompressedAttention *a = &m->compressed_attention;
  Sizes z = {.n = m->num_attention_heads,
             .d = a->head_dim,
             .dr = a->qk_pos_emb_head_dim,
             .ql = a->q_lora_rank,
             .og = a->o_groups,
             .ol = a->o_lora_rank,
             .window = a->window,
             .ratio = ms_model_compress_ratio(m, layer)};
  z.wide = z.ratio == 4 ? 2 : 1;
  return z;
}

/* --- counts ---------------------------------------------------------------------------------------------------- */

MsPartParams ms_compressed_params(const MsModel *m, int layer) {
  Sizes z = sizes(m, layer);
  double h = m->hidden_size, low = h * z.ql + z.ql * z.n * z.d + h * z.d + z.og * z.ol * h, high = z.n * z.d * z.ol;
  MsPartParams p = {.quantizable_dense = low,
                    .dense = low + high + z.ql + z.d + z.n}; /* two norms, a sink for each head */
  if (z.ratio > 0)
    p.dense += 2 * h * z.wide * z.d + z.ratio * z.wide * z.d + z.d; /* keys and weights, positions, norm */
  if (z.ratio == 4) {
    MsPartParams x = ms_indexer_params(m, layer);
    p.dense += x.dense, p.quantizable_dense += x.quantizable_dense;
  }
  p.replicated = p.dense;
  return p;
}

double ms_flop_compressed_linear(const MsModel *m, int layer) {
  const MsSparseAttention *x = &m->sparse_attention;
  Sizes z = sizes(m, layer);
  double h = m->hidden_size, width = (double)x->indexer_num_heads * x->indexer_head_dim;
  double flop = z.ql * (h + z.n * z.d + 1) + h * z.d + z.d + z.n * z.d * z.ol + z.og * z.ol * h;
  if (z.ratio > 0) flop += 2 * h * z.wide * z.d;
  if (z.ratio == 4) flop += 4 * h * x->indexer_head_dim + z.ql * width + h * x->indexer_num_heads;
  return 2 * flop;
}

double ms_flop_compressed_core(const MsModel *m, int layer, double s) {
  const MsSparseAttention *x = &m->sparse_attention;
  Sizes z = sizes(m, layer);
  double keys = z.window, scores = 0;
  if (z.ratio == 4) {
    double top = MIN((double)x->indexer_topk, s / 4);
    keys += top * (1 - top * 4 / (2 * s));
    scores = (double)x->indexer_num_heads * x->indexer_head_dim / 4 * s;
  } else if (z.ratio > 0) {
    keys += s / (2 * z.ratio);
  }
  return 2 * (2 * z.n * z.d * keys + scores);
}

/* --- rows ------------------------------------------------------------------------------------------------------ */

typedef struct {
  Sizes z;
  MsLinear q_down, q_up, kv, compressor, out;
  MsBlockLinear group;
  MsIndexer indexer;
} Csa;

static Csa parts(const MsBuild *b, int layer) {
  Csa p = {.z = sizes(b->model, layer)};
  const Sizes *z = &p.z;
  p.q_down = ms_linear_of("q down", MS_LINEAR_PLAIN, b->rows, z->ql, b->h);
  p.q_up = ms_linear_of("q up", MS_LINEAR_PLAIN, b->rows, z->n * z->d, z->ql);
  p.kv = ms_linear_of("kv", MS_LINEAR_PLAIN, b->rows, z->d, b->h);
  p.compressor = ms_linear_of("compressor", MS_LINEAR_PLAIN, b->rows, 2 * z->wide * z->d,
                              b->h); /* keys and weights, two GEMMs in one row */
  p.compressor.low = FALSE;
  p.out = ms_linear_of("attention out", MS_LINEAR_PLAIN, b->rows, b->h, z->og * z->ol);
  p.group = (MsBlockLinear){"group out", b->rows, z->ol, z->n * z->d / z->og, (int)z->og};
  p.indexer = (MsIndexer){.q_rank = z->ql, .per_key = 4};
  return p;
}

/* The list of keys is as long for every query, places without a key hold -1, and its length is not passed on (csa.py,
 * fused_sparse_attention.py): masked keys are multiplied like the others. */
static double list_length(const MsBuild *b, const Sizes *z) {
  double compressed = z->ratio == 4  ? b->model->sparse_attention.indexer_topk
                      : z->ratio > 0 ? floor(ms_packed_length(b) / z->ratio)
                                     : 0;
  return ms_key_blocks(z->window + compressed);
}

static void up_rows(MsBuild *b, const Csa *p) {
  const Sizes *z = &p->z;
  ms_linear_forward(b, &p->q_up);
  ms_norm_forward(b, "q head norm", b->rows * z->n, z->d);
  ms_linear_forward(b, &p->kv);
  ms_norm_forward(b, "kv norm", b->rows, z->d);
  ms_row_memory(b, MS_OP_ROPE, "rope", 2 * b->rows * (z->n + 1) * z->dr, 2 * b->rows * (z->n + 1) * z->dr, 2);
}

static double compressed_B(const MsBuild *b, const Sizes *z) {
  return z->ratio > 0 ? 2 * b->rows * b->c / z->ratio * z->d : 0;
}
static double window_B(const MsBuild *b, const Sizes *z) {
  return 2 * b->training->micro_batch_size * z->window * b->h;
}

static void unrotate(MsBuild *b,
                     const Sizes *z) { /* a tensor of its own: the backward of attention still needs its output */
  ms_row_memory(b, MS_OP_ROPE, "inverse rope", 2 * b->rows * z->n * z->d, 2 * b->rows * z->n * z->d, 1);
}

void ms_compressed_forward(MsBuild *b, int layer) {
  Csa p = parts(b, layer);
  const Sizes *z = &p.z;
  gboolean again = ms_recomputes(b->options, MS_RM_MLA_UP_PROJ);
  ms_row_comm(b, MS_OP_P2P, "cp window", MS_STREAM_CP, MS_GROUP_CP, window_B(b, z));
  ms_linear_forward(b, &p.q_down);
  ms_norm_forward(b, "q latent norm", b->rows, z->ql);
  ms_keep(b, "latents", 2 * b->rows * z->ql);
  ms_keep(b, "normed latents", again ? 2 * b->rows * z->ql : ms_input_B(b, b->rows * z->ql, TRUE));
  up_rows(b, &p);
  double qkv_B = 2 * b->rows * (z->n + 1) * z->d;
  if (!again) ms_keep(b, "qkv before norms", qkv_B), ms_keep(b, "qkv", qkv_B);
  else ms_send_copy(b, MS_OM_CORE_ATTN, qkv_B);
  if (z->ratio > 0) {
    ms_linear_forward(b, &p.compressor);
    ms_keep(b, "compressor out", 4 * b->rows * z->wide * z->d);
    ms_pool_rows(b, "compress keys", z->d, z->ratio);
    ms_keep(b, "compressed keys", 2 * b->rows * b->c / z->ratio * z->d);
    ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather keys", MS_STREAM_CP, MS_GROUP_CP, compressed_B(b, z));
  }
  if (z->ratio == 4) ms_indexer_forward(b, &p.indexer);
  ms_row_sparse_core(b, z->n, z->d, z->d, list_length(b, z));
  ms_keep(b, "attention out, rotated", 2 * b->rows * z->n * z->d);
  ms_keep(b, "lse", 4 * b->rows * z->n);
  unrotate(b, z);
  ms_keep(b, "attention out, unrotated", 2 * b->rows * z->n * z->d);
  ms_block_linear_forward(b, &p.group);
  ms_keep(b, "group out", ms_input_B(b, b->rows * z->og * z->ol, TRUE));
  ms_linear_forward(b, &p.out);
}

void ms_compressed_backward(MsBuild *b, int layer) {
  Csa p = parts(b, layer);
  const Sizes *z = &p.z;
  b->pass = MS_PASS_DGRAD;
  ms_linear_backward(b, &p.out);
  ms_free_kept(b, "group out");
  ms_block_linear_backward(b, &p.group);
  ms_free_kept(b, "attention out, unrotated");
  unrotate(b, z);
  if (ms_recomputes(b->options, MS_RM_MLA_UP_PROJ)) {
    b->pass = MS_PASS_RECOMPUTE;
    up_rows(b, &p);
  }
  b->pass = MS_PASS_DGRAD;
  ms_row_sparse_core(b, z->n, z->d, z->d, list_length(b, z));
  ms_free_kept(b, "attention out, rotated");
  ms_free_kept(b, "lse");
  if (z->ratio == 4) ms_indexer_backward(b, &p.indexer, z->n, z->d);
  b->pass = MS_PASS_DGRAD;
  if (z->ratio > 0) {
    ms_row_comm(b, MS_OP_REDUCE_SCATTER, "cp scatter keys", MS_STREAM_CP, MS_GROUP_CP, compressed_B(b, z));
    ms_pool_rows(b, "compress keys", z->d, z->ratio);
    ms_free_kept(b, "compressed keys");
    ms_free_kept(b, "compressor out");
    ms_linear_backward(b, &p.compressor);
  }
  b->pass = MS_PASS_DGRAD;
  ms_row_memory(b, MS_OP_ROPE, "rope", 2 * b->rows * (z->n + 1) * z->dr, 2 * b->rows * (z->n + 1) * z->dr, 2);
  ms_norm_backward(b, "kv norm", b->rows, z->d);
  ms_linear_backward(b, &p.kv);
  b->pass = MS_PASS_DGRAD;
  ms_norm_backward(b, "q head norm", b->rows * z->n, z->d);
  ms_free_kept(b, "qkv");
  ms_free_kept(b, "qkv before norms");
  ms_linear_backward(b, &p.q_up);
  ms_norm_backward(b, "q latent norm", b->rows, z->ql);
  ms_free_kept(b, "normed latents");
  ms_linear_backward(b, &p.q_down);
  ms_free_kept(b, "latents");
  ms_row_comm(b, MS_OP_P2P, "cp window", MS_STREAM_CP, MS_GROUP_CP, window_B(b, z));
}
