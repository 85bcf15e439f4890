/* src/work/mlp.c - rows of a two-layer MLP: the dense layer, and the shared expert that is one too
 * (docs/theory/operators.md 3.3). */
#include "work/moe.h"

#include <math.h>

double ms_fc1_width(const MsBuild *b, double f) { return (b->model->gated ? 2 : 1) * f; }

/* What Megatron-Core fuses with biases is fused only where its linears have them (megatron/training/arguments.py: no
 * bias_gelu_fusion without them): GELU of dense layers, quick GELU of routed experts (transformer/mlp.py,
 * moe/experts.py). Other frameworks compile the gate into one kernel. */
static gboolean gate_by_operators(const MsBuild *b, gboolean weighted) {
  const MsModel *m = b->model;
  gboolean launched = ms_framework(b->scenario)->launched;
  if (!m->gated) return FALSE;
  switch (m->activation) {
  case MS_ACT_SILU:
  case MS_ACT_SQUARED_RELU: break;
  case MS_ACT_GELU: return launched && (weighted || !m->add_bias_linear);
  case MS_ACT_QUICK_GELU: return launched ? !weighted || !m->add_bias_linear : !b->options->torch_compile;
  }
  return FALSE;
}

/* Quick GELU is GPT-OSS's gate: clamped, an offset on the other half. */
static gboolean clamped(const MsModel *m) { return m->gated && m->activation == MS_ACT_QUICK_GELU; }

gboolean ms_clamps_apart(const MsBuild *b) {
  return clamped(b->model) && ms_framework(b->scenario)->launched && !gate_by_operators(b, TRUE);
}

/* What was clamped, the activation, the other half with its offset; the product that is weighted. */
double ms_gate_parts_B(const MsBuild *b, double elements, gboolean weighted) {
  int parts = 2 + (clamped(b->model) ? 1 : 0) + (weighted ? 1 : 0);
  return gate_by_operators(b, weighted) ? parts * 2 * elements : 0;
}

/* In front of the fused kernel both halves are clamped and put together again, and the offset is copied to the device,
 * for which the host waits; backward the same ways back (Megatron-LM core/fusions/fused_bias_geglu.py,
 * weighted_bias_quick_geglu_impl). */
static void clamp_row(MsBuild *b, double rows, double width) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double half = 2 * rows * width;
  int before = b->list->n;
  ms_row_passing(b, MS_OP_COPY, back ? "gradients of clamped gate" : "clamp gate", (back ? 6 : 4) * half, 4 * half,
                 (int)ceil((back ? 3 : 4) * b->scenario->laws.plain_operators));
  if (!back && b->list->n > before) b->list->op[before].flags |= MS_OPF_SYNC;
}

/* Clamps, gate, offset and product as kernels of their own, behind them the router weight in FP32. */
static void operator_bytes(MsOp *op, double elements, gboolean clamps, gboolean weighted, gboolean back) {
  typedef struct {
    double both_B;
    int kernels;
  } Passes;
  static const Passes plain[] = {{14, 3}, {26, 4}}, clamp[] = {{8, 2}, {12, 2}}, weight[] = {{12, 3}, {32, 10}};
  double both_B = plain[back].both_B + (clamps ? clamp[back].both_B : 0) + (weighted ? weight[back].both_B : 0);
  op->read_B = op->write_B = both_B * elements / 2;
  op->kernels =
      (guint16)(plain[back].kernels + (clamps ? clamp[back].kernels : 0) + (weighted ? weight[back].kernels : 0));
}

void ms_activation(MsBuild *b, MsOpKind kind, const char *name, double rows, double width) {
  double in = 2 * rows * ms_fc1_width(b, width), out = 2 * rows * width;
  gboolean back = b->pass == MS_PASS_DGRAD, weighted = kind == MS_OP_WEIGHTED_ACTIVATION,
           clamps = weighted && ms_clamps_apart(b);
  if (clamps && !back) clamp_row(b, rows, width);
  MsOp *op = ms_row_memory(b, kind, name, in + (back ? out : 0), back ? in : out, 1);
  op->m = rows, op->n = width;
  if (!b->options->torch_compile && b->model->gated) { /* SiLU and product; the product's factors and SiLU's backward */
    op->read_B = (back ? 4 + 4 + 4 : 2 + 4) * rows * width, op->write_B = (back ? 2 + 2 + 2 : 2 + 2) * rows * width;
    op->kernels = back ? 3 : 2;
  }
  if (gate_by_operators(b, weighted)) operator_bytes(op, rows * width, clamped(b->model), weighted, back);
  if (weighted && !ms_weighted_in_kernel(b->model, b->options)) {
    /* the compiled activation, its product with the FP32 weight, and a cast back; backward the cast, both gradients of
     * the product (one cast, one summed) and the activation's */
    double bytes = (back ? 40 : 16) * rows * width;
    op->read_B = op->write_B = bytes / 2;
    op->kernels = back ? 6 : 3;
  }
  if (clamps && back) clamp_row(b, rows, width);
}

/* --- inputs of SwiGLU that are kept in FP8: a cast behind it, and one back in front of its backward (kernels of their
 * own in Megatron-Core and in DeepSeek's profile) --- */

double ms_activation_input_B(const MsBuild *b, double elements) {
  return (b->options->activation_func_fp8_input_store ? 1 : 2) * elements;
}

static MsOp *cast_activation_input(MsBuild *b, const char *name, double rows, double width, double read_B,
                                   double write_B) {
  double elements = rows * ms_fc1_width(b, width);
  if (!b->options->activation_func_fp8_input_store) return NULL;
  MsOp *op = ms_row_memory(b, MS_OP_QUANTIZE, name, read_B * elements, write_B * elements, 1);
  op->m = rows, op->n = ms_fc1_width(b, width), op->dtype = MS_ODT_FP8;
  return op;
}

void ms_store_activation_input(MsBuild *b, double rows, double width) {
  cast_activation_input(b, "store activation input", rows, width, 2, 1);
}

void ms_restore_activation_input(MsBuild *b, double rows, double width) {
  MsOp *op = cast_activation_input(b, "restore activation input", rows, width, 1, 2);
  if (op) op->transient_B = op->write_B;
}

MsLinear ms_linear_fc1(const MsBuild *b, const char *name, double f) {
  MsLinear l = ms_linear_of(name, MS_LINEAR_COLUMN, b->rows, ms_fc1_width(b, f) / b->t, b->h);
  if (b->model->gated) l.part[0] = l.part[1] = f / b->t;
  return l;
}

/* Up to the input of the second product. */
static void to_second(MsBuild *b, const char *fc1, double f) {
  MsLinear up = ms_linear_fc1(b, fc1, f);
  up.fused_norm = b->module == MS_MODULE_MLP; /* a shared expert gets what the layer's norm made for the router */
  ms_linear_forward(b, &up);
  ms_activation(b, MS_OP_ACTIVATION, "activation", b->rows, f / b->t);
  ms_store_activation_input(b, b->rows, f / b->t);
}

/* A two-layer MLP of width f over `rows` gathered rows: dense layers and shared experts. */
void ms_mlp_core_forward(MsBuild *b, const char *fc1, const char *fc2, double f) {
  MsLinear down = ms_linear_of(fc2, MS_LINEAR_ROW, b->rows, b->h, f / b->t);
  to_second(b, fc1, f);
  ms_linear_forward(b, &down);
}

gboolean ms_activation_again(const MsBuild *b) { return ms_recomputes(b->options, MS_RM_MLP_ACT); }

/* Made again before the second product's backward reads it (Ascend/MindSpeed core/memory/recompute/activation). */
void ms_recompute_activation(MsBuild *b, double width) {
  if (!ms_activation_again(b)) return;
  MsPass pass = b->pass;
  b->pass = MS_PASS_RECOMPUTE;
  ms_activation(b, MS_OP_ACTIVATION, "activation", b->rows, width);
  b->list->op[b->list->n - 1].transient_B = 2 * b->rows * width;
  b->pass = pass;
}

void ms_mlp_core_backward(MsBuild *b, const char *fc1, const char *fc2, double f) {
  MsLinear up = ms_linear_fc1(b, fc1, f);
  MsLinear down = ms_linear_of(fc2, MS_LINEAR_ROW, b->rows, b->h, f / b->t);
  ms_recompute_activation(b, f / b->t);
  b->pass = MS_PASS_DGRAD;
  ms_linear_backward(b, &down);
  b->pass = MS_PASS_DGRAD;
  ms_restore_activation_input(b, b->rows, f / b->t);
  ms_activation(b, MS_OP_ACTIVATION, "activation", b->rows, f / b->t);
  ms_linear_backward(b, &up);
}

/* --- dense --- */

/* The second product of a layer that is computed again, which only the residual would take: nothing behind it is saved,
 * and it saves its own input before it runs. */
static gboolean unread(const MsBuild *b) {
  gboolean plain = b->options->transformer_impl == MS_IMPL_LOCAL && !b->quantized,
           saves_behind = b->model->post_norm || b->streams > 1 || b->model->hidden_dropout > 0;
  return b->pass == MS_PASS_RECOMPUTE && (ms_drops_unread(b) || (ms_stops_early(b) && plain)) && !saves_behind &&
         !ms_lora_is_on(&b->training->lora);
}

/* What `operators` keeps: the fifth product of a layer, and the seventh of a gated one with its sum over
 * tensor-parallel ranks; of a plain MLP the sum alone, where a norm reads it. */
static void keep_products(MsBuild *b, double f) {
  double sum = b->t > 1 ? 2 * b->rows_sp * b->h : 0;
  ms_keep(b, "fc1 out", 2 * b->rows * f / b->t);
  if (b->model->gated) ms_keep(b, "fc2 out", 2 * b->rows * b->h + sum);
  else if (b->model->post_norm) ms_keep(b, "fc2 out", sum);
}

/* The norm, the other half of a gated MLP and the activation again; of a plain MLP also the sixth product where a norm
 * behind it reads it. */
static void recompute_operators(MsBuild *b, double f) {
  MsLinear up = ms_linear_of("fc1", MS_LINEAR_COLUMN, b->rows, f / b->t, b->h);
  MsLinear down = ms_linear_of("fc2", MS_LINEAR_PLAIN, b->rows, b->h, f / b->t);
  up.fused_norm = TRUE;
  b->pass = MS_PASS_RECOMPUTE;
  ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  if (b->model->gated) ms_linear_forward(b, &up);
  ms_activation(b, MS_OP_ACTIVATION, "activation", b->rows, f / b->t);
  if (b->model->post_norm && !b->model->gated) ms_linear_forward(b, &down);
}

/* Bytes of what is made again of a layer, all of it before its backward. */
static double remade_B(const MsBuild *b, double f) {
  const MsModel *m = b->model;
  double qk = b->rows * (m->num_attention_heads + m->num_query_groups) * m->kv_channels / b->t;
  int normed = m->post_norm && b->t == 1 ? m->gated ? 1 : 2 : 0; /* products that a norm behind them reads */
  return 2 * ((3 + normed) * b->rows_sp * b->h + qk + b->rows * ms_fc1_width(b, f) / b->t);
}

void ms_dense_mlp_forward(MsBuild *b) {
  double f = b->model->ffn_hidden_size, x = b->rows_sp * b->h;
  b->module = MS_MODULE_MLP;
  b->node = MS_NODE_ATTN;
  gboolean again = ms_recomputes(b->options, MS_RM_MLP);
  ms_residual_in(b, MS_HALF_MLP);
  ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  if (!ms_inputs_recomputed(b) && !ms_by_operators(b)) ms_keep(b, "mlp input", ms_norm_saved_B(b, x));
  if (!again && !ms_inputs_recomputed(b) && !ms_by_operators(b))
    ms_keep_input(b, "normed mlp input", ms_input_B(b, x, TRUE));
  b->node = MS_NODE_EXPERTS;
  if (unread(b)) {
    to_second(b, "fc1", f);
    return;
  }
  ms_mlp_core_forward(b, "fc1", "fc2", f);
  if (ms_by_operators(b)) {
    keep_products(b, f);
  } else if (!again) {
    ms_keep(b, "fc1 out", ms_activation_input_B(b, b->rows * ms_fc1_width(b, f) / b->t));
    if ((ms_framework(b->scenario)->keeps_gate || !b->options->torch_compile) && b->model->gated)
      ms_keep(b, "gate", 2 * b->rows * f / b->t);
    if (!ms_activation_again(b)) {
      ms_keep(b, "gate parts", ms_gate_parts_B(b, b->rows * f / b->t, FALSE));
      ms_keep_input(b, "activation out", ms_input_B(b, b->rows * f / b->t, TRUE));
    }
  }
  ms_residual_out(b, MS_HALF_MLP, 1);
  if (b->model->hidden_dropout > 0) ms_keep(b, "mlp dropout mask", x);
}

void ms_dense_mlp_backward(MsBuild *b) {
  double f = b->model->ffn_hidden_size, x = b->rows_sp * b->h;
  b->module = MS_MODULE_MLP;
  b->node = MS_NODE_EXPERTS;
  ms_residual_out_backward(b, MS_HALF_MLP);
  if (ms_recomputes(b->options, MS_RM_MLP)) {
    b->pass = MS_PASS_RECOMPUTE;
    ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
    ms_mlp_core_forward(b, "fc1", "fc2", f);
  }
  if (ms_by_operators(b)) recompute_operators(b, f);
  int first = b->list->n;
  ms_mlp_core_backward(b, "fc1", "fc2", f);
  /* gradient of the fc1 output and of the residual coincide with all that is kept (docs/theory/memory.md 7) */
  double again = 0, parts = ms_gate_parts_B(b, b->rows * f / b->t, FALSE);
  if (ms_recomputes(b->options, MS_RM_MLP)) again = 2 * x + 2 * b->rows * (ms_fc1_width(b, f) + f) / b->t + parts;
  if (ms_by_operators(b)) again = remade_B(b, f);
  if (ms_activation_again(b)) again = 2 * b->rows * f / b->t;
  b->list->op[first].transient_B = 2 * b->rows * ms_fc1_width(b, f) / b->t + 2 * b->rows * b->h / b->t + again;
  ms_free_kept(b, "mlp dropout mask");
  ms_free_kept(b, "fc1 out");
  ms_free_kept(b, "fc2 out");
  ms_free_kept(b, "gate");
  ms_free_kept(b, "gate parts");
  ms_free_kept(b, "activation out");
  ms_free_kept(b, "normed mlp input");
  b->node = MS_NODE_ATTN;
  ms_norm_backward(b, "mlp norm", b->rows_sp, b->h);
  ms_residual_in_backward(b, MS_HALF_MLP, 1);
  ms_free_kept(b, "mlp input");
}
