/* src/work/experts.c - rows of the routed experts: grouped GEMMs over what arrived, with what stands between them
 * (docs/theory/operators.md 3.4). */
#include "work/moe.h"
#include <math.h>

double ms_padded_expert_rows(
    const MsBuild *b) { /* expert rows with the alignment of low precision (docs/theory/precision.md 4) */
  double local = b->local_experts;
  if (ms_indexed(b)) return b->rows_expert + ms_group_padding(b);
  return b->rows_expert + (b->row_align > 1 && b->quantized ? local * (b->row_align - 1) / 2 : 0);
}

/* Of the tensors between grouped products. */
static double acted_rows(const MsBuild *b) { return ms_indexed(b) ? ms_group_places(b) : ms_padded_expert_rows(b); }

static double kept_rows(const MsBuild *b) { return acted_rows(b) - b->rows_expert + b->rows_kept; }

/* One kernel from fc1 over bias and activation to the quantised input of fc2, and back (MXFP8 on Blackwell:
 * docs/theory/host.md 3). */
static gboolean fused_mlp(const MsBuild *b) {
  return b->options->moe_grouped_gemm &&
         (b->options->fused_grouped_mlp || b->options->use_transformer_engine_op_fuser) && b->quantized &&
         ms_precision(b->training)->fused_mlp && b->model->gated;
}

/* That are launched one after another; what is counted stays within 16 bits. */
enum { MOST_LAUNCHED = 800 };
static int launched_experts(const MsBuild *b) { return (int)MIN(b->local_experts, MOST_LAUNCHED); }

/* Without grouped products each expert is an MLP of its own, called in a loop (Megatron-LM transformer/moe/experts.py,
 * SequentialMLP); what they make is put together again. */
static int experts_apart(const MsBuild *b) { return b->options->moe_grouped_gemm ? 1 : launched_experts(b); }

static void join_experts(MsBuild *b, double rows) {
  if (experts_apart(b) <= 1) return;
  MsOp *op = ms_row_memory(b, MS_OP_COPY, "join expert rows", 2 * rows * b->eh, 2 * rows * b->eh, 1);
  op->m = rows, op->n = b->eh;
}

/* The activation of every expert. */
static void activate(MsBuild *b, double rows, double fm) {
  int first = b->list->n;
  if (ms_torch_experts(b)) {
    ms_activation(b, MS_OP_ACTIVATION, "expert activation", acted_rows(b), fm);
    return;
  }
  ms_activation(b, MS_OP_WEIGHTED_ACTIVATION, "expert activation", rows, fm);
  for (int i = first; i < b->list->n; i++)
    b->list->op[i].kernels = (guint16)MIN(b->list->op[i].kernels * experts_apart(b), G_MAXUINT16);
}

/* What goes to the experts is cast before it leaves, once per token; what arrives is quantised row by row, and the
 * weight gradients need it column by column (DeepSeek's profile: a cast in front of dispatch, casts with transposition
 * in front of the weight gradients). */
gboolean ms_low_dispatch(const MsBuild *b) {
  return b->options->fp8_dispatch && b->quantized && b->layout->group[MS_GROUP_TP_EP].size > 1;
}

/* Primus-Turbo has one kernel for the products of all experts and casts what they read as one tensor (AMD-AGI/
 * Primus-Turbo primus_turbo/pytorch/ops/grouped_gemm.py, grouped_gemm_fp8.py), and so has PyTorch (torch._grouped_mm).
 */
static gboolean in_one_kernel(const MsBuild *b) {
  switch (b->options->grouped_gemm_library) {
  case MS_GROUPED_TE: break;
  case MS_GROUPED_TURBO: return TRUE;
  }
  return ms_torch_experts(b);
}

/* Host work of one expert, in framework operators. TransformerEngine casts the part of each expert on its own, but with
 * delayed scaling and in the fused expert MLP (v2.14, pytorch/csrc/extensions/cast.cpp: one quantize after another),
 * and its library loop sets up a product for each (common/gemm/cublaslt_gemm.cu, multi_stream_cublas_gemm: descriptors,
 * choice of the algorithm, launch): laws cast_operators and product_operators. */
static guint16 launches_of_experts(const MsBuild *b) {
  if (!b->options->moe_grouped_gemm) return (guint16)experts_apart(b);
  if (in_one_kernel(b)) return 1;
  gboolean at_once = b->options->use_transformer_engine_op_fuser || b->options->fused_grouped_mlp ||
                     ms_precision(b->training)->delayed;
  return (guint16)(at_once ? 1 : 1 + b->scenario->laws.cast_operators * launched_experts(b));
}

/* The maximum of a tensor and its scale are two kernels that the call of the cast launches, a tenth of a framework
 * operator each (docs/theory/host.md 1); those of NVFP4 are found for all experts at once by newer
 * TransformerEngines where widths allow it (cast.cpp, split_quantize_nvfp4_impl). */
static guint16 launches_of_maxima(const MsBuild *b, double width) {
  int since = ms_precision(b->training)->maxima_at_once_since;
  gboolean at_once = since > 0 && fmod(width, 128) == 0 && !ms_stack_before(&b->scenario->stack, since);
  guint16 casts = launches_of_experts(b);
  return at_once ? 1 : (guint16)MIN(casts, 1 + 0.2 * launched_experts(b));
}

static void quantize_experts(MsBuild *b, const char *name, double rows, double width) {
  int first = b->list->n;
  ms_row_quantize(b, name, rows, width);
  for (int i = first; i < b->list->n; i++) {
    MsOp *op = &b->list->op[i];
    op->kernels = op->kind == MS_OP_AMAX ? launches_of_maxima(b, width) : launches_of_experts(b);
    if (op->kernels > 1) op->launches = (guint16)(MAX(op->launches, 1) * launched_experts(b));
  }
}

static void turn_columns(MsBuild *b, const char *name, double rows) {
  MsOp *op = ms_row_memory(b, MS_OP_TRANSPOSE, name, b->quant_B * rows * b->eh, b->quant_B * rows * b->eh,
                           launches_of_experts(b));
  op->m = rows, op->n = b->eh;
}

static MsOp *grouped(MsBuild *b, const char *name, double m, double n, double k) {
  double local = b->local_experts, operand = b->pass == MS_PASS_WGRAD ? n * k : local * n * k;
  if (b->quantized && !fused_mlp(b))
    ms_row_swizzle(b, FALSE, m * k, launched_experts(b)),
        ms_row_swizzle(b, b->pass != MS_PASS_WGRAD, operand, launched_experts(b));
  MsOp *op = ms_row(b, MS_OP_GROUPED_GEMM, name);
  op->m = m, op->n = n, op->k = k, op->groups = (int)local;
  op->flop = 2 * m * n * k;
  op->dtype = (guint8)(b->quantized ? b->odt : MS_ODT_BF16);
  op->flags = (guint16)(MS_OPF_WEIGHT | MS_OPF_MODEL_FLOP | (b->quantized ? MS_OPF_QUANTIZED : 0));
  double in_B = b->quantized ? b->quant_B : 2;
  if (b->pass == MS_PASS_WGRAD) { /* m x n weights of each expert, k rows in total */
    gboolean fused = b->options->gradient_accumulation_fusion;
    double g_B = fused ? ms_gradient_B(b, TRUE) : 2;
    op->read_B = in_B * k * (m + n) + (fused && !ms_overwrites(b) ? g_B * local * m * n : 0);
    op->write_B = g_B * local * m * n;
    if (b->options->gradient_accumulation_fusion) op->flags |= MS_OPF_ACCUMULATE;
  } else {
    op->read_B = in_B * (m * k + local * n * k);
    op->write_B = 2 * m * n;
  }
  if (!b->options->moe_grouped_gemm) op->kernels = (guint16)(4 * experts_apart(b)); /* a linear layer each */
  else if (b->options->use_transformer_engine_op_fuser || b->options->fused_grouped_mlp) op->kernels = 2;
  else if (in_one_kernel(b)) op->kernels = (guint16)ms_linear_operators(b);
  else op->kernels = (guint16)MIN(ms_linear_operators(b) + b->scenario->laws.product_operators * local, 200);
  return op;
}

/* Biases of fc1 are added by its products, and summed by those of the weight gradients (TransformerEngine
 * pytorch/module/grouped_linear.py). Behind fc2 they carry the FP32 router probability: an expert at a time is
 * multiplied and added in FP32, all are joined and cast back (Megatron-LM transformer/moe/experts.py, _apply_bias,
 * since its version 0.15); backward each has its gradient cast, multiplied with bias and probability, and both summed,
 * and gradients of both biases are added to those of the step (distributed/distributed_data_parallel.py).
 */
static void expert_bias(MsBuild *b, double rows) {
  static const struct {
    double read_B, write_B;                    /* an element */
    int once, each;                            /* plain operators */
  } add[2] = {{14, 14, 2, 2}, {24, 16, 5, 8}}; /* [backward] */
  if (!b->model->add_bias_linear || fused_mlp(b)) return;
  int back = b->pass == MS_PASS_DGRAD;
  double elements = rows * b->eh, operators = add[back].once + add[back].each * launched_experts(b);
  MsOp *op = ms_row_memory(b, MS_OP_ADD, "expert bias", add[back].read_B * elements, add[back].write_B * elements,
                           (int)ceil(operators * b->scenario->laws.plain_operators));
  op->m = rows, op->n = b->eh;
}

/* Grouped GEMMs in low precision need rows in multiples of a block. Unless the router pads its map, HybridEP what it
 * delivers or DeepSeek's DeepEP what it sends, a kernel of the expert module copies the rows apart in front of fc1 and
 * together behind fc2, and so for the gradients (docs/theory/precision.md 4; Megatron-LM transformer/moe/experts.py).
 * Nothing is copied where capacities are multiples already. */
static gboolean arrives_padded(const MsBuild *b) {
  switch (ms_dispatcher(b->options)->pads) {
  case MS_PAD_ALWAYS: return TRUE;
  case MS_PAD_NOT:
  case MS_PAD_SENDER:
  case MS_PAD_RECEIVER: break;
  }
  return b->options->moe_router_padding_for_quantization;
}

static gboolean copies_padded(const MsBuild *b) {
  const MsRouting *routing = &b->training->routing;
  gboolean fixed = routing->kind == MS_ROUTING_CAPACITY && routing->pad_to_capacity;
  return b->quantized && b->row_align > 1 && !ms_indexed(b) && !arrives_padded(b) && !ms_low_dispatch(b) && !fixed;
}

static void copy_padded(MsBuild *b, const char *name) {
  if (!copies_padded(b)) return;
  MsOp *op = ms_row_memory(b, MS_OP_COPY, name, 2 * b->rows_expert * b->eh, 2 * ms_padded_expert_rows(b) * b->eh, 2);
  op->m = b->rows_expert, op->n = b->eh;
}

/* Outputs, and the BF16 activation where it is not kept; around both the padded copies of input and output (Megatron-LM
 * core/transformer/moe/experts.py, locals of TEGroupedMLP.forward). */
double ms_experts_transient_B(const MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = ms_padded_expert_rows(b), token_B = 2 * b->eh;
  gboolean kept = !b->quantized && !ms_recomputes(b->options, MS_RM_MOE_ACT);
  return rows * token_B + (kept || fused_mlp(b) ? 0 : 2 * rows * fm) +
         (copies_padded(b) ? (rows + b->rows_expert) * token_B : 0);
}

/* Of an m x n weight of each expert, over `rows` rows in all; the chain does not wait for it. */
static void weight_gradient(MsBuild *b, const char *name, const char *turn, double m, double n, double rows) {
  int chain = b->tip;
  if (ms_frozen(b)) return;
  b->pass = MS_PASS_WGRAD;
  if (ms_low_dispatch(b)) turn_columns(b, turn, rows);
  MsOp *op = grouped(b, name, m, n, rows);
  op->flags |= MS_OPF_EXPERT | (n == b->eh ? MS_OPF_ROWS_SPLIT : MS_OPF_COLUMNS_SPLIT); /* of fc1, of fc2 */
  ms_row_accumulate(b, MS_GROUP_EDP, b->local_experts * m * n, (int)MIN(b->local_experts, 200));
  b->tip = chain;
}

/* PyTorch's experts have weights of gate and up apart: as many products, and the input's gradients added. */
static int first_products(const MsBuild *b) { return ms_torch_experts(b) && b->model->gated ? 2 : 1; }

static void up_forward(MsBuild *b, double rows, double fm) {
  int n = first_products(b);
  for (int i = 0; i < n; i++) grouped(b, "expert fc1", rows, ms_fc1_width(b, fm) / n, b->eh);
}

static void up_backward(MsBuild *b, double rows, double fm) {
  int n = first_products(b);
  double x_B = 2 * rows * b->eh, width = ms_fc1_width(b, fm) / n;
  for (int i = 0; i < n; i++) grouped(b, "expert fc1", rows, b->eh, width);
  if (n > 1) ms_row_memory(b, MS_OP_ADD, "gradients of products", 2 * x_B, x_B, 1);
  for (int i = 0; i < n; i++) weight_gradient(b, "expert fc1", "turn expert input", width, b->eh, rows);
}

/* Router weights behind the experts, on their rank. */
static void weigh_arrived(MsBuild *b) {
  if (!ms_torch_experts(b) || ms_indexed(b)) return;
  ms_indexed_row(b, MS_INDEXED_WEIGH_ARRIVED);
  if (b->pass == MS_PASS_DGRAD) ms_free_kept(b, "expert output");
}

/* Eager SiLU keeps what it gives to the product. */
static void keep_gate(MsBuild *b, double rows, double fm) {
  if (ms_torch_experts(b) && b->model->gated && !b->options->torch_compile) ms_keep(b, "expert gate", 2 * rows * fm);
}

double ms_expert_gate_parts_B(const MsBuild *b, double rows) {
  double fm = b->model->moe_ffn_hidden_size / b->u;
  if (fused_mlp(b) || ms_torch_experts(b)) return 0;
  return ms_clamps_apart(b) ? 2 * rows * ms_fc1_width(b, fm) : ms_gate_parts_B(b, rows * fm, TRUE);
}

void ms_experts_forward(MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = ms_padded_expert_rows(b), kept = kept_rows(b);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  copy_padded(b, "pad expert rows");
  if (!ms_low_dispatch(b)) quantize_experts(b, "quantize expert input", rows, b->eh);
  up_forward(b, rows, fm);
  ms_lora_experts_forward(b, "expert fc1", rows, ms_fc1_width(b, fm), b->eh);
  if (!ms_recomputes(b->options, MS_RM_MOE)) {
    ms_keep_input(b, "expert input", ms_input_B(b, kept * b->eh, TRUE));
    ms_keep(b, "expert fc1 out", ms_activation_input_B(b, kept * ms_fc1_width(b, fm)));
    ms_keep(b, "permuted probs", 4 * kept);
    keep_gate(b, kept, fm);
  }
  if (fused_mlp(b)) {
    b->list->op[b->list->n - 1].write_B += 2 * b->quant_B * rows * fm;
  } else {
    activate(b, rows, fm);
    ms_store_activation_input(b, rows, fm);
    quantize_experts(b, "quantize expert activation", rows, fm);
  }
  grouped(b, "expert fc2", rows, b->eh, fm);
  ms_lora_experts_forward(b, "expert fc2", rows, b->eh, fm);
  expert_bias(b, rows);
  join_experts(b, rows);
  copy_padded(b, "unpad expert rows");
  weigh_arrived(b);
  if (ms_recomputes(b->options, MS_RM_MOE) || ms_recomputes(b->options, MS_RM_MOE_ACT)) return;
  ms_keep_input(b, "expert activation out", ms_input_B(b, kept * fm, TRUE));
  ms_keep(b, "expert gate parts", ms_expert_gate_parts_B(b, kept));
  /* what multiplies after its kernel keeps both factors */
  if (!ms_weighted_in_kernel(b->model, b->options)) ms_keep(b, "expert activation, unweighted", 2 * kept * fm);
}

void ms_experts_backward(MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = ms_padded_expert_rows(b);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  if (!fused_mlp(b)) ms_restore_activation_input(b, rows, fm);
  b->pass = MS_PASS_DGRAD;
  weigh_arrived(b);
  copy_padded(b, "pad expert rows");
  expert_bias(b, rows);
  if (ms_recomputes(b->options,
                    MS_RM_MOE_ACT)) { /* when the gradient of what fc2 gave is there (experts.py, forward) */
    b->pass = MS_PASS_RECOMPUTE;
    activate(b, rows, fm);
    b->pass = MS_PASS_DGRAD;
  }
  if (!ms_low_dispatch(b)) quantize_experts(b, "quantize expert gradient", rows, b->eh);
  ms_lora_experts_backward(b, "expert fc2", rows, b->eh, fm);
  grouped(b, "expert fc2", rows, fm, b->eh);
  weight_gradient(b, "expert fc2", "turn expert gradient", b->eh, fm, rows);
  ms_free_kept(b, "expert activation out");
  b->pass = MS_PASS_DGRAD;
  if (!fused_mlp(b)) activate(b, rows, fm);
  ms_free_kept(b, "expert activation, unweighted"); /* the gradient of the router weights reads it */
  ms_free_kept(b, "expert gate parts");
  ms_free_kept(b, "expert fc1 out");
  ms_free_kept(b, "permuted probs");
  ms_free_kept(b, "expert gate");
  if (!fused_mlp(b)) quantize_experts(b, "quantize expert gradient", rows, ms_fc1_width(b, fm));
  ms_lora_experts_backward(b, "expert fc1", rows, ms_fc1_width(b, fm), b->eh);
  up_backward(b, rows, fm);
  ms_free_kept(b, "expert input");
  b->pass = MS_PASS_DGRAD;
  join_experts(b, rows);
  copy_padded(b, "unpad expert rows");
}
