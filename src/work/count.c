/* src/work/count.c - parameters and model FLOP (domain/model.md 1 and 2). */
#include "work/build.h"

static double q_width(const MsModel *m) { return (double)m->num_attention_heads * m->kv_channels; }
static double kv_width(const MsModel *m) { return (double)m->num_query_groups * m->kv_channels; }

double ms_norm_params(const MsModel *m, double width) { return m->normalization == MS_NORM_LAYER ? 2 * width : width; }

static MsPartParams mla_params(const MsModel *m, double t) {
  const MsMla *a = &m->multi_latent_attention;
  double h = m->hidden_size, n = m->num_attention_heads;
  double ql = a->q_lora_rank, kl = a->kv_lora_rank, dn = a->qk_head_dim, dr = a->qk_pos_emb_head_dim, dv = a->v_head_dim;
  double down = h * (kl + dr) + (ql > 0 ? h * ql : 0);
  double up = (ql > 0 ? ql : h) * n * (dn + dr) + kl * n * (dn + dv) + n * dv * h;
  double norms = ms_norm_params(m, kl) + (ql > 0 ? ms_norm_params(m, ql) : 0);
  MsPartParams p = {.dense = down + up / t + norms, .quantizable_dense = down + up / t, .replicated = down + norms};
  return p;
}

MsPartParams ms_attention_params(const MsModel *m, double t) {
  if (ms_model_has_mla(m)) return mla_params(m, t);
  double h = m->hidden_size, q = q_width(m), k = kv_width(m);
  double k_rank = m->num_query_groups < t ? m->kv_channels : k / t; /* replicated KV heads below one group a rank */
  double qkv = h * (q / t + 2 * k_rank), out = q * h / t;
  MsPartParams p = {.dense = qkv + out, .quantizable_dense = qkv + out};
  if (m->add_bias_linear || m->add_qkv_bias) p.dense += q / t + 2 * k_rank;
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
  double expert = mlp_matrices(m) * h * fm / u;
  double shared = fs > 0 ? mlp_matrices(m) * h * fs / t : 0;
  MsPartParams p = {0};
  p.replicated = h * experts + (m->add_bias_linear ? experts : 0) + (fs > 0 && m->moe_shared_expert_gate ? h : 0);
  p.dense = p.replicated + shared;
  p.quantizable_dense = shared;
  p.expert = experts / e * (expert + mlp_bias(m, fm, u));
  p.quantizable_expert = experts / e * expert;
  return p;
}

static double sum(MsPartParams p) { return p.dense + p.expert; }

MsParamCount ms_model_params(const MsModel *m) {
  MsParamCount c = {0};
  double h = m->hidden_size, norms = 2 * ms_norm_params(m, h);
  double padded = ms_model_padded_vocab(m, 1);
  c.attention_per_layer = sum(ms_attention_params(m, 1));
  c.embedding = padded * h;
  if (m->num_experts > 0) {
    MsPartParams moe = ms_moe_params(m, 1, 1, 1);
    c.expert = moe.expert / m->num_experts;
    c.shared = moe.quantizable_dense;
    c.router = h * m->num_experts;
    c.moe_layer = c.attention_per_layer + sum(moe) + norms;
  }
  c.dense_mlp = m->ffn_hidden_size > 0 ? sum(ms_mlp_params(m, 1)) : 0;
  c.dense_layer = c.attention_per_layer + c.dense_mlp + norms;
  double layers = 0, active = 0;
  for (int i = 0; i < m->num_layers; i++) {
    gboolean moe = m->num_experts > 0 && m->moe_layer[i];
    layers += moe ? c.moe_layer : c.dense_layer;
    active += moe ? c.moe_layer - c.expert * (m->num_experts - m->moe_router_topk) : c.dense_layer;
  }
  double ends = ms_norm_params(m, h) + c.embedding * (m->tie_embeddings ? 1 : 2);
  gboolean last_moe = m->num_experts > 0 && m->moe_layer[m->num_layers - 1];
  c.mtp_block = m->mtp_num_layers > 0 ? (last_moe ? c.moe_layer : c.dense_layer) + 2 * h * h + 3 * ms_norm_params(m, h) : 0;
  c.total = layers + ends;
  c.total_mtp = c.total + m->mtp_num_layers * c.mtp_block;
  c.active = active + ends;
  return c;
}

double ms_flop_attention_linear(const MsModel *m) {
  double h = m->hidden_size;
  if (!ms_model_has_mla(m)) {
    double q = q_width(m), k = kv_width(m);
    return 2 * (h * (q + 2 * k + (m->attention_output_gate ? q : 0)) + q * h);
  }
  const MsMla *a = &m->multi_latent_attention;
  double n = m->num_attention_heads, dn = a->qk_head_dim, dr = a->qk_pos_emb_head_dim, dv = a->v_head_dim;
  double ql = a->q_lora_rank, kl = a->kv_lora_rank;
  double q = ql > 0 ? ql * (h + n * (dn + dr) + 1) : h * n * (dn + dr);
  return 2 * (q + kl * (h + n * (dn + dv) + 1) + h * dr + n * dv * h);
}

/* Causal attention counted at half; a window of w tokens sees w s - w (w-1)/2 pairs of a sequence of s. */
double ms_flop_attention_core(const MsModel *m, int layer, double s) {
  double pairs = s / 2;
  if (ms_model_layer_is_windowed(m, layer)) {
    double w = MIN((double)m->sliding_window.window, s);
    pairs = w - w * (w - 1) / (2 * s);
  }
  if (!ms_model_has_mla(m)) return 4 * q_width(m) * pairs;
  const MsMla *a = &m->multi_latent_attention;
  return 2 * m->num_attention_heads * (double)(a->qk_head_dim + a->qk_pos_emb_head_dim + a->v_head_dim) * pairs;
}

double ms_flop_mlp(const MsModel *m, gboolean moe) {
  double h = m->hidden_size, k = mlp_matrices(m);
  if (!moe) return 2 * h * k * m->ffn_hidden_size;
  return 2 * h * k * ((double)m->moe_ffn_hidden_size * m->moe_router_topk + m->moe_shared_expert_intermediate_size);
}

MsModelFlop ms_model_flop_per_token(const MsModel *m, int seq_length) {
  MsModelFlop f = {0};
  double h = m->hidden_size;
  for (int i = 0; i < m->num_layers + m->mtp_num_layers; i++) {
    int layer = MIN(i, m->num_layers - 1);
    gboolean moe = m->num_experts > 0 && m->moe_layer[layer];
    f.attention_linear += 3 * ms_flop_attention_linear(m);
    f.attention_core += 3 * ms_flop_attention_core(m, layer, seq_length);
    f.mlp += 3 * ms_flop_mlp(m, moe);
  }
  f.mtp = 6.0 * m->mtp_num_layers * (3 * h + 2 * h * h);
  f.logits = 6.0 * h * ms_model_padded_vocab(m, 1) * (1 + m->mtp_num_layers);
  f.total = f.attention_linear + f.attention_core + f.mlp + f.mtp + f.logits;
  return f;
}
