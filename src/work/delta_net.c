/* src/work/delta_net.c - a gated delta net: projection to q, k, v, output gate, decay and write strength; short
 * convolution over q, k, v; norms and gates; chunked delta rule; gated norm; projection. Shapes as Megatron-LM's
 * megatron/core/ssm/gated_delta_net (dev branch, 2026-08) and Qwen3-Next's configuration state them.
 *
 * Widths: keys K = key heads x key width (queries too), values V = value heads x value width; the input projection
 * makes 2 K + 2 V + 2 value heads. Context parallelism: what the projection makes, and the gated output, are exchanged
 * so that a rank has some heads of the whole sequence (`linear_cp_mode` headwise); or the layer takes contiguous
 * slices, so that the zig-zag slices of attention are exchanged before and after it, and the state and the transition
 * of every slice are gathered (chunkwise). */
#include "work/build.h"

#include <math.h>

#define CHUNK MS_DELTA_CHUNK

typedef struct {
  double keys, values, heads, conv, projected;
} Widths; /* per token on this rank */

static Widths widths(const MsModel *m, double t) {
  const MsLinearAttention *a = &m->linear_attention;
  Widths w = {.keys = (double)a->num_key_heads * a->key_head_dim / t,
              .values = (double)a->num_value_heads * a->value_head_dim / t,
              .heads = a->num_value_heads / t};
  w.conv = 2 * w.keys + w.values;
  w.projected = 2 * w.keys + 2 * w.values + 2 * w.heads;
  return w;
}

MsPartParams ms_delta_params(const MsModel *m, double t) {
  const MsLinearAttention *a = &m->linear_attention;
  Widths w = widths(m, t);
  double h = m->hidden_size, gemm = h * (w.projected + w.values);
  MsPartParams p = {.quantizable_dense = gemm,
                    .replicated = a->value_head_dim}; /* the norm of the output is that of one head */
  p.dense =
      gemm + w.conv * a->conv_kernel + 2 * w.heads + p.replicated; /* taps; decay and its bias for each value head */
  return p;
}

/* Megatron's convention: K K', V K', the state times a (I - b K K'), S Q as square products of the value width. */
double ms_flop_delta(const MsModel *m) {
  const MsLinearAttention *a = &m->linear_attention;
  Widths w = widths(m, 1);
  double h = m->hidden_size, dv = a->value_head_dim;
  return 2 * (h * w.projected + a->conv_kernel * w.conv + a->num_value_heads * dv * dv * 4 + h * w.values);
}

/* Executed: against the state 3 products of key width x value width a token; inside a chunk K K' and its inverse
 * applied to keys and values, Q K' and its product with the values, half of each square. Reads q, k, v, writes the
 * output, both gates in FP32. */
MsDeltaWork ms_delta_work(double tokens, double key_heads, double value_heads, double dk, double dv) {
  return (MsDeltaWork){.flop = 2 * tokens * value_heads * (3 * dk * dv + CHUNK * (3 * dk + 2 * dv) / 2),
                       .read_B = tokens * (2 * (2 * key_heads * dk + value_heads * dv) + 8 * value_heads),
                       .write_B = tokens * 2 * value_heads * dv};
}

#define BACKWARD 3.0 /* the states of the chunks again, then two products for each of the forward */

static gboolean headwise(const MsBuild *b) {
  switch (b->options->linear_cp_mode) {
  case MS_LINEAR_CP_HEADWISE: return TRUE;
  case MS_LINEAR_CP_CHUNKWISE: break;
  }
  return FALSE;
}

static void rule_row(MsBuild *b) {
  const MsLinearAttention *a = &b->model->linear_attention;
  gboolean back = b->pass == MS_PASS_DGRAD;
  double times = back ? BACKWARD : 1, ranks = headwise(b) ? b->c : 1, local = ms_packed_length(b) * ranks / b->c,
         mb = ms_packed_sequences(b) / ranks;
  MsDeltaWork work =
      ms_delta_work(b->rows, a->num_key_heads / b->t, a->num_value_heads / b->t, a->key_head_dim, a->value_head_dim);
  MsOp *op = ms_row(b, MS_OP_DELTA_RULE, "delta rule");
  op->m = op->n = local, op->k = a->key_head_dim + a->value_head_dim;
  op->groups = (int)MAX(mb * a->num_value_heads / b->t, 1), op->kv_groups = (int)MAX(mb * a->num_key_heads / b->t, 1);
  op->flop = times * work.flop, op->read_B = times * work.read_B, op->write_B = times * work.write_B;
  op->kernels = back ? 10 : 6;
}

/* Passes over what is exchanged: heads of a rank side by side, those of each rank one behind another, chunks of the
 * sequence in order; of the output the last two (Megatron-LM core/ssm/gated_delta_net/common.py, a2a_cp_to_hp and
 * a2a_hp_to_cp; core/ssm/mamba_context_parallel.py). Backward the first is a sum into zeros. */
static const MsExchange passes[2][2] = {{{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
                                        {{2, 2, 1, 1, 1}, {1, 1, 1, 3, 3}}}; /* [in][backward] */

static void exchange_heads(MsBuild *b, const char *name, double width, gboolean in) {
  const MsExchange *of = &passes[in][b->pass == MS_PASS_DGRAD];
  if (headwise(b)) ms_row_exchange(b, of, "heads by rank", name, "tokens in order", width);
}

/* Slices of attention to contiguous ones, or back. */
static void relayout(MsBuild *b, const char *name) {
  if (headwise(b)) return;
  ms_row_comm(b, MS_OP_ALL_TO_ALL, name, MS_STREAM_CP, MS_GROUP_CP, 2 * b->rows_sp * b->h);
}

/* FP32 state and transition of every head of every slice. */
static void gather_states(MsBuild *b) {
  if (headwise(b)) return;
  const MsLinearAttention *a = &b->model->linear_attention;
  double per_head = a->key_head_dim * ((double)a->value_head_dim + a->key_head_dim);
  ms_row_comm(b, MS_OP_ALL_GATHER, "cp gather states", MS_STREAM_CP, MS_GROUP_CP,
              4 * per_head * (a->num_value_heads / b->t) * b->training->micro_batch_size * b->c);
}

static void conv_row(MsBuild *b, const Widths *w) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double times = back ? b->scenario->laws.sequence_backward_bytes : 1;
  MsOp *op = ms_row_memory(b, MS_OP_CONV, "conv1d", times * 2 * b->rows * w->conv, 2 * b->rows * w->conv, back ? 3 : 1);
  op->m = b->rows, op->n = w->conv;
}

/* Queries and keys for each value head, and values. */
static double repeated(const MsBuild *b, const Widths *w) {
  return 2 * w->heads * b->model->linear_attention.key_head_dim + w->values;
}

/* Between convolution and rule, a pass each: queries and keys out of what the convolution gave, their L2 norm, a copy
 * for every value head; values, and the gate out of what was projected; decay and write strength. Backward the sums
 * over the copies, both parts joined, the norm, values beside them (Megatron-LM core/ssm/gated_delta_net/common.py,
 * _prepare_input_for_gated_delta_rule). */
static void gate_row(MsBuild *b, const Widths *w) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double qk = 2 * w->keys, copies = repeated(b, w) - w->values, v = w->values, gates = 4 * w->heads,
         read = back ? copies + 4 * qk + v : 3 * qk + 2 * v, write = back ? 4 * qk + v : 2 * qk + copies + 2 * v;
  ms_row_memory(b, MS_OP_GATES, "delta gates", b->rows * (2 * read + (back ? 2 : 1) * gates),
                b->rows * (2 * write + (back ? 1 : 2) * gates), back ? 6 : 4);
}

/* Gradients of the parts of what was projected, side by side again. */
static void join_gradients(MsBuild *b, const Widths *w) {
  ms_row_memory(b, MS_OP_COPY, "delta gradients joined", 2 * b->rows * w->projected, 2 * b->rows * w->projected, 1);
}

static void output_norm(MsBuild *b, const Widths *w) {
  double x = 2 * b->rows * w->values;
  gboolean back = b->pass == MS_PASS_DGRAD;
  MsOp *op = ms_row_memory(b, MS_OP_NORM, "gated norm", (back ? 3 : 2) * x, (back ? 2 : 1) * x, back ? 2 : 1);
  op->m = b->rows * w->heads, op->n = b->model->linear_attention.value_head_dim;
  ms_row_batch_first(b, "delta out, sequence first", w->values);
}

static MsLinear lin_in(const MsBuild *b, const Widths *w) {
  MsLinear l = ms_linear_of("delta in", MS_LINEAR_COLUMN, b->rows, w->projected, b->h);
  l.fused_norm = TRUE;
  return l;
}
static MsLinear lin_out(const MsBuild *b, const Widths *w) {
  return ms_linear_of("delta out", MS_LINEAR_ROW, b->rows, b->h, w->values);
}

/* `gdn_norm_out`: what the projection reads is made again from the output of the rule and the gate. */
static gboolean recomputes_output(const MsBuild *b) { return ms_recomputes(b->options, MS_RM_GDN_NORM_OUT); }

/* Of packed sequences every layer asks on the host whether their ends agree with what it got and with each other, and
 * divide among the ranks: five questions (common.py, _resolve_cu_seqlens; gdn.py, forward). */
static void ends_of_sequences(MsBuild *b) {
  if (ms_packed_length(b) >= b->training->seq_length) return;
  MsOp *op = ms_row_memory(b, MS_OP_COPY, "ends of sequences", 8 * ms_packed_sequences(b), 0,
                           (int)ceil(12 * b->scenario->laws.plain_operators));
  op->flags |= MS_OPF_SYNC;
}

void ms_delta_forward(MsBuild *b) {
  Widths w = widths(b->model, b->t);
  MsLinear in = lin_in(b, &w), out = lin_out(b, &w);
  double x = b->rows_sp * b->h;
  b->module = MS_MODULE_DELTA;
  b->node = MS_NODE_ATTN;
  ends_of_sequences(b);
  ms_residual_in(b, MS_HALF_ATTENTION);
  ms_norm_forward(b, "input norm", b->rows_sp, b->h);
  if (!ms_inputs_recomputed(b)) {
    ms_keep(b, "layer input", 2 * x);
    ms_keep(b, "normed input", ms_input_B(b, x, TRUE));
  }
  relayout(b, "cp to slices");
  ms_linear_forward(b, &in);
  exchange_heads(b, "cp a2a in", w.projected, TRUE);
  ms_keep(b, "delta projected", 2 * b->rows * w.projected);
  conv_row(b, &w);
  /* the L2 norm has queries and keys; values are copied for the rule, and the gate for its product, out of what was
   * projected, which the convolution keeps whole (Megatron-LM core/ssm/gated_delta_net/common.py,
   * _prepare_input_for_gated_delta_rule; flash-linear-attention since 9afb9fb8, January 2026, takes the columns where
   * they lie) */
  ms_keep(b, "delta conv out", 2 * b->rows * 2 * w.keys);
  gate_row(b, &w);
  ms_keep(b, "delta q, k, v", 2 * b->rows * repeated(b, &w) + 8 * b->rows * w.heads);
  ms_keep(b, "delta gate", 2 * b->rows * w.values);
  gather_states(b);
  rule_row(b);
  ms_keep(b, "delta chunks", 2 * b->rows * w.heads * CHUNK); /* the inverse inside each chunk */
  ms_keep(b, "delta out", 2 * b->rows * w.values);
  output_norm(b, &w);
  exchange_heads(b, "cp a2a out", w.values, FALSE);
  if (!recomputes_output(b)) {
    ms_keep(b, "normed delta out", 2 * b->rows * w.values); /* the gate multiplies it */
    ms_keep(b, "gated delta out", ms_input_B(b, b->rows * w.values, TRUE));
  }
  ms_linear_forward(b, &out);
  relayout(b, "cp from slices");
  ms_residual_out(b, MS_HALF_ATTENTION, 1);
}

void ms_delta_backward(MsBuild *b) {
  Widths w = widths(b->model, b->t);
  MsLinear in = lin_in(b, &w), out = lin_out(b, &w);
  b->module = MS_MODULE_DELTA;
  b->node = MS_NODE_ATTN;
  b->pass = MS_PASS_DGRAD;
  ms_residual_out_backward(b, MS_HALF_ATTENTION);
  relayout(b, "cp to slices");
  if (recomputes_output(b)) {
    b->pass = MS_PASS_RECOMPUTE;
    output_norm(b, &w);
    exchange_heads(b, "cp a2a out", w.values, FALSE);
  }
  ms_linear_backward(b, &out);
  ms_free_kept(b, "gated delta out");
  b->pass = MS_PASS_DGRAD;
  exchange_heads(b, "cp a2a out", w.values, FALSE);
  output_norm(b, &w);
  ms_free_kept(b, "normed delta out");
  ms_free_kept(b, "delta gate");
  ms_free_kept(b, "delta out");
  gather_states(b);
  rule_row(b);
  ms_free_kept(b, "delta chunks");
  ms_free_kept(b, "delta q, k, v");
  gate_row(b, &w);
  ms_free_kept(b, "delta conv out");
  conv_row(b, &w);
  join_gradients(b, &w);
  ms_free_kept(b, "delta projected");
  exchange_heads(b, "cp a2a in", w.projected, TRUE);
  ms_linear_backward(b, &in);
  relayout(b, "cp from slices");
  ms_free_kept(b, "normed input");
  ms_norm_backward(b, "input norm", b->rows_sp, b->h);
  ms_residual_in_backward(b, MS_HALF_ATTENTION, 1);
  ms_free_kept(b, "layer input");
}
