/* src/work/count.c - parameters and model FLOP (docs/theory/operators.md 1 and 2). */
#include "work/build.h"

#include <math.h>

static double q_width(const MsModel *m) { return (double)m->num_attention_heads * m->kv_channels; }
static double kv_width(const MsModel *m) { return (double)m->num_query_groups * m->kv_channels; }

/* In front of a sub-layer, and behind it. */
static int norms_of_half(const MsModel *m) { return m->post_norm ? 2 : 1; }

double ms_norm_params(const MsModel *m, double width) {
  switch (m->normalization) {
  case MS_NORM_RMS: break;
  case MS_NORM_LAYER: return 2 * width;
  }
  return width;
}

static MsPartParams mla_params(const MsModel *m, double t) {
  const MsMla *a = &m->multi_latent_attention;
  double h = m->hidden_size, n = m->num_attention_heads;
  double ql = a->q_lora_rank, kl = a->kv_lora_rank, dn = a->qk_head_dim, dr = a->qk_pos_emb_head_dim,
         dv = a->v_head_dim;
  double down = h * (kl + dr) + (ql > 0 ? h * ql : 0);
  double up = (ql > 0 ? ql : h) * n * (dn + dr) + kl * n * (dn + dv) + n * dv * h;
  double norms = ms_norm_params(m, kl) + (ql > 0                          ? ms_norm_params(m, ql)
                                          : ms_model_norms_query_input(m) ? ms_norm_params(m, h)
                                                                          : 0);
  MsPartParams p = {.dense = down + up / t + norms, .quantizable_dense = down + up / t, .replicated = down + norms};
  return p;
}

static void add(MsPartParams *to, MsPartParams x) {
  to->dense += x.dense, to->expert += x.expert, to->replicated += x.replicated;
  to->quantizable_dense += x.quantizable_dense, to->quantizable_expert += x.quantizable_expert;
}

MsPartParams ms_attention_params(const MsModel *m, int layer, double t) {
  if (ms_model_has_compressed_attention(m)) return ms_compressed_params(m, layer);
  if (ms_model_has_mla(m)) {
    MsPartParams p = mla_params(m, t);
    if (ms_model_layer_has_indexer(m, layer)) add(&p, ms_indexer_params(m, layer));
    return p;
  }
  double h = m->hidden_size, q = q_width(m), k = kv_width(m);
  double ql = m->query_latent_size, down = h * ql, norm = ql > 0 ? ms_norm_params(m, ql) : 0;
  /* split by columns, groups too where there are fewer than ranks; every rank has the way down to a latent */
  double split = ((ql > 0 ? ql : h) * q + 2 * h * k + q * h) / t;
  MsPartParams p = {.dense = split + down + norm, .quantizable_dense = split + down, .replicated = down + norm};
  if (m->add_bias_linear || m->add_qkv_bias) p.dense += (q + 2 * k) / t;
  if (m->add_bias_linear) p.dense += h, p.replicated += h;
  if (m->attention_output_gate) p.dense += h * q / t, p.quantizable_dense += h * q / t;
  if (m->softmax_sink) p.dense += m->num_attention_heads / t;
  if (m->qk_layernorm) {
    double norms = 2 * ms_norm_params(m, m->kv_channels);
    p.dense += norms;
    p.replicated += norms;
  }
  return p;
}

/* Gated MLPs have three matrices, plain ones two. */
static double mlp_matrices(const MsModel *m) { return m->gated ? 3 : 2; }
static double mlp_bias(const MsModel *m, double f, double t) {
  return m->add_bias_linear ? (m->gated ? 2 : 1) * f / t + m->hidden_size : 0;
}

MsPartParams ms_mlp_params(const MsModel *m, double t) {
  double weights = mlp_matrices(m) * m->hidden_size * (double)m->ffn_hidden_size / t;
  MsPartParams p = {.dense = weights + mlp_bias(m, m->ffn_hidden_size, t), .quantizable_dense = weights};
  if (m->add_bias_linear) p.replicated = m->hidden_size;
  return p;
}

MsPartParams ms_moe_params(const MsModel *m, double t, double e, double u) {
  double h = m->hidden_size, experts = m->num_experts, fm = m->moe_ffn_hidden_size;
  double fs = m->moe_shared_expert_intermediate_size;
  double width = m->moe_latent_size > 0 ? m->moe_latent_size : h, latent = m->moe_latent_size > 0 ? 2 * h * width : 0;
  double expert = mlp_matrices(m) * width * fm / u;
  double shared = fs > 0 ? mlp_matrices(m) * h * fs / t : 0;
  MsPartParams p = {0};
  p.replicated = h * experts + (m->add_bias_linear ? experts : 0) + (fs > 0 && m->moe_shared_expert_gate ? h : 0);
  p.replicated += latent;
  p.dense = p.replicated + shared;
  p.quantizable_dense = shared + latent;
  p.expert = experts / e * (expert + mlp_bias(m, fm, u));
  p.quantizable_expert = experts / e * expert;
  return p;
}

static MsPartParams mamba_params(const MsModel *m, double t) {
  const MsMamba *a = &m->mamba;
  double h = m->hidden_size, inner = (double)a->num_heads * a->head_dim, bc = 2.0 * a->num_groups * a->state_dim;
  double in = h * (2 * inner + bc + a->num_heads), out = inner * h;
  double small =
      (inner + bc) * (a->conv_kernel + 1) + 3.0 * a->num_heads + inner; /* convolution and bias, A D dt, gated norm */
  return (MsPartParams){.dense = (in + out + small) / t, .quantizable_dense = (in + out) / t};
}

MsPartParams ms_layer_params(const MsModel *m, guint8 mixers, int layer, double t, double e, double u) {
  MsPartParams p = {0};
  for (int bit = MS_MIX_MAMBA; bit <= MS_MIX_DELTA; bit *= 2) {
    if (!(mixers & bit)) continue;
    if (bit == MS_MIX_MAMBA) add(&p, mamba_params(m, t));
    if (bit == MS_MIX_DELTA) add(&p, ms_delta_params(m, t));
    if (bit == MS_MIX_ATTN) add(&p, ms_attention_params(m, layer, t));
    if (bit == MS_MIX_MLP) add(&p, ms_mlp_params(m, t));
    if (bit == MS_MIX_MOE) add(&p, ms_moe_params(m, t, e, u));
    double around = norms_of_half(m) * ms_norm_params(m, m->hidden_size) +
                    ms_hyper_params(m); /* its norms, and what feeds and merges the residual streams */
    p.dense += around, p.replicated += around;
  }
  return p;
}

static double sum(MsPartParams p) { return p.dense + p.expert; }

MsParamCount ms_model_params(const MsModel *m) {
  MsParamCount c = {0};
  double h = m->hidden_size, norms = 2 * norms_of_half(m) * ms_norm_params(m, h);
  double padded = ms_model_padded_vocab(m, 1);
  c.attention_per_layer = sum(ms_attention_params(m, m->num_layers - 1, 1));
  c.embedding = padded * h;
  if (m->num_experts > 0) {
    MsPartParams moe = ms_moe_params(m, 1, 1, 1);
    c.expert = moe.expert / m->num_experts;
    c.shared = moe.quantizable_dense - (m->moe_latent_size > 0 ? 2 * h * m->moe_latent_size : 0);
    c.router = h * m->num_experts;
    c.moe_layer = c.attention_per_layer + sum(moe) + norms;
  }
  c.dense_mlp = m->ffn_hidden_size > 0 ? sum(ms_mlp_params(m, 1)) : 0;
  c.dense_layer = c.attention_per_layer + c.dense_mlp + norms;
  double layers = 0, active = 0;
  for (int i = 0; i < m->num_layers; i++) {
    guint8 mixers = ms_model_mixers(m, i);
    double layer = sum(ms_layer_params(m, mixers, i, 1, 1, 1));
    layers += layer;
    active += layer - (mixers & MS_MIX_MOE ? c.expert * (m->num_experts - m->moe_router_topk) : 0);
  }
  double positions = ms_model_learns_positions(m) ? m->seq_length_max * h : 0;
  double ends = ms_norm_params(m, h) + ms_hyper_head_params(m) + c.embedding * (m->tie_embeddings ? 1 : 2) + positions +
                m->front_end.parameters;
  if (m->mtp_num_layers > 0)
    c.mtp_block = sum(ms_layer_params(m, ms_model_mtp_mixers(m), m->num_layers, 1, 1, 1)) + 2 * h * h +
                  3 * ms_norm_params(m, h) + ms_hyper_head_params(m);
  c.total = layers + ends;
  c.total_mtp = c.total + (m->mtp_use_repeated_layer ? MIN(m->mtp_num_layers, 1) : m->mtp_num_layers) * c.mtp_block;
  c.active = active + ends;
  return c;
}

static double flop_attention_linear(const MsModel *m, int layer) {
  double h = m->hidden_size;
  if (ms_model_has_compressed_attention(m)) return ms_flop_compressed_linear(m, layer);
  if (!ms_model_has_mla(m)) {
    double q = q_width(m), k = kv_width(m);
    double ql = m->query_latent_size, queries = ql > 0 ? ql * (h + q) : h * q;
    return 2 * (queries + h * (2 * k + (m->attention_output_gate ? q : 0)) + q * h);
  }
  const MsMla *a = &m->multi_latent_attention;
  double n = m->num_attention_heads, dn = a->qk_head_dim, dr = a->qk_pos_emb_head_dim, dv = a->v_head_dim;
  double ql = a->q_lora_rank, kl = a->kv_lora_rank;
  double q = ql > 0 ? ql * (h + n * (dn + dr) + 1) : h * n * (dn + dr);
  return 2 * (q + kl * (h + n * (dn + dv) + 1) + h * dr + n * dv * h);
}

/* Causal attention counted at half, behind an indexer too: Megatron's formula does not know sparse attention but
 * DeepSeek-V4's. */
double ms_flop_attention_core(const MsModel *m, int layer, double s) {
  if (ms_model_has_compressed_attention(m)) return ms_flop_compressed_core(m, layer, s);
  double pairs = ms_model_pairs(m, layer, s);
  if (!ms_model_has_mla(m)) return 4 * q_width(m) * pairs;
  const MsMla *a = &m->multi_latent_attention;
  return 2 * m->num_attention_heads * (double)(a->qk_head_dim + a->qk_pos_emb_head_dim + a->v_head_dim) * pairs;
}

/* The diagonal counts at half, as in s / 2: a window as wide as the sequence is none. */
double ms_model_pairs(const MsModel *m, int layer, double s) {
  if (!ms_model_layer_is_windowed(m, layer)) return s / 2;
  double w = MIN((double)m->sliding_window.window, s), chunks = floor(s / w), rest = s - chunks * w;
  if (m->sliding_window.chunked) return (chunks * w * w + rest * rest) / (2 * s);
  return w - w * w / (2 * s);
}

static double flop_mlp(const MsModel *m, gboolean moe) {
  double h = m->hidden_size, k = mlp_matrices(m), z = m->moe_latent_size;
  if (!moe) return 2 * h * k * m->ffn_hidden_size;
  double routed =
      2 * (z > 0 ? z : h) * k * (double)m->moe_ffn_hidden_size * m->moe_router_topk + (z > 0 ? 4 * h * z : 0);
  return routed + 2 * h * k * m->moe_shared_expert_intermediate_size;
}

/* Megatron's formula takes the inner width as 2 h whatever the heads say (checked against Nemotron-3's published TFLOPS
 * per token). */
static double flop_mamba(const MsModel *m) {
  const MsMamba *a = &m->mamba;
  double h = m->hidden_size, inner = 2 * h;
  return 2 * h * (2 * inner + 2.0 * a->num_groups * a->state_dim + a->num_heads) + 7 * inner * a->state_dim +
         2 * inner * h;
}

static double flop_layer(const MsModel *m, guint8 mixers, int layer, double seq) {
  double flop = mixers & MS_MIX_MAMBA ? flop_mamba(m) : 0;
  if (mixers & MS_MIX_DELTA) flop += ms_flop_delta(m);
  if (mixers & MS_MIX_ATTN) flop += flop_attention_linear(m, layer) + ms_flop_attention_core(m, layer, seq);
  if (mixers & MS_MIX_MLP) flop += flop_mlp(m, FALSE);
  if (mixers & MS_MIX_MOE) flop += flop_mlp(m, TRUE);
  return flop;
}

typedef struct {
  const MsModel *m;
  guint8 mixers;
  int layer;
} LayerFlop;

static double layer_flop_of(double length, const void *data) {
  const LayerFlop *f = data;
  return flop_layer(f->m, f->mixers, f->layer, length);
}

double ms_flop_layer_packed(const MsModel *m, guint8 mixers, int layer, const MsPackLengths *l) {
  LayerFlop f = {m, mixers, layer};
  return ms_packing_mean(l, 0, l->n, layer_flop_of, &f);
}

MsModelFlop ms_model_flop_per_token(const MsModel *m, double seq_length) {
  MsModelFlop f = {0};
  double h = m->hidden_size;
  for (int i = 0; i < m->num_layers + m->mtp_num_layers; i++) {
    guint8 mixers = i < m->num_layers ? ms_model_mixers(m, i) : ms_model_mtp_mixers(m);
    double attention = mixers & MS_MIX_ATTN ? flop_attention_linear(m, i) : 0,
           core = mixers & MS_MIX_ATTN ? ms_flop_attention_core(m, i, seq_length) : 0;
    if (mixers & MS_MIX_DELTA) attention += ms_flop_delta(m);
    f.attention_linear += 3 * attention;
    f.attention_core += 3 * core;
    f.mlp += 3 * (flop_layer(m, mixers, i, seq_length) - attention - core);
  }
  if (!m->hybrid_layer_pattern)
    f.mtp = 6.0 * m->mtp_num_layers * (3 * h + 2 * h * h); /* the hybrid convention leaves the projection out */
  f.logits = 6.0 * h * ms_model_padded_vocab(m, 1) * (1 + m->mtp_num_layers);
  f.total = f.attention_linear + f.attention_core + f.mlp + f.mtp + f.logits;
  return f;
}

/* Weights without a gradient save one of the three products of a linear layer. Adapters are not counted. */
static MsModelFlop flop_without_weight_gradients(MsModelFlop f) {
  enum { PRODUCTS = 3 };
  f.attention_linear -= f.attention_linear / PRODUCTS, f.mlp -= f.mlp / PRODUCTS;
  f.logits -= f.logits / PRODUCTS, f.mtp -= f.mtp / PRODUCTS;
  f.total = f.attention_linear + f.attention_core + f.mlp + f.mtp + f.logits;
  return f;
}

static MsModelFlop flop_of_all_trained(const MsModel *m, const MsTraining *t) {
  const MsPackLengths l = ms_pack_lengths(t, t->seq_length);
  MsModelFlop sum = {0};
  for (int i = 0; i < l.n; i++) {
    MsModelFlop f = ms_model_flop_per_token(m, l.length[i]);
    double w = l.tokens[i];
    sum.attention_linear += w * f.attention_linear, sum.attention_core += w * f.attention_core, sum.mlp += w * f.mlp;
    sum.mtp += w * f.mtp, sum.logits += w * f.logits, sum.total += w * f.total;
  }
  return sum;
}

MsModelFlop ms_training_flop_per_token(const MsModel *m, const MsTraining *t) {
  MsModelFlop f = flop_of_all_trained(m, t);
  return ms_lora_is_on(&t->lora) ? flop_without_weight_gradients(f) : f;
}
