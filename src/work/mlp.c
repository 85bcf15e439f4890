/* src/work/mlp.c - rows of the dense MLP and of the MoE layer with its dispatchers (domain/model.md 3.3, 3.4; communication.md 5). */
#include "work/build.h"
#include <math.h>

static gboolean recomputes(const MsBuild *b, guint32 module) {
  return b->options->recompute.granularity == MS_RECOMPUTE_SELECTIVE && (b->options->recompute.modules & module);
}
static double fc1_width(const MsBuild *b, double f) { return (b->model->gated ? 2 : 1) * f; }

static void activation(MsBuild *b, MsOpKind kind, const char *name, double rows, double width) {
  double in = 2 * rows * fc1_width(b, width), out = 2 * rows * width;
  gboolean back = b->pass == MS_PASS_DGRAD;
  MsOp *op = ms_row_memory(b, kind, name, in + (back ? out : 0), back ? in : out, 1);
  op->m = rows, op->n = width;
  if (b->model->activation == MS_ACT_QUICK_GELU) { /* clamp, gate, offset, product and probability as kernels of their own, the last in FP32 */
    double passes = (back ? 70 : 34) * rows * width;
    op->read_B = op->write_B = passes / 2;
    op->kernels = back ? 16 : 8;
  }
}

/* --- inputs of SwiGLU that are kept in FP8: a cast behind it, and one back in front of its backward (kernels of their own in Megatron-Core and in DeepSeek's
 * profile) --- */

static double activation_input_B(const MsBuild *b, double elements) { return (b->options->activation_func_fp8_input_store ? 1 : 2) * elements; }

static MsOp *cast_activation_input(MsBuild *b, const char *name, double rows, double width, double read_B, double write_B) {
  double elements = rows * fc1_width(b, width);
  if (!b->options->activation_func_fp8_input_store) return NULL;
  MsOp *op = ms_row_memory(b, MS_OP_QUANTIZE, name, read_B * elements, write_B * elements, 1);
  op->m = rows, op->n = fc1_width(b, width), op->dtype = MS_ODT_FP8;
  return op;
}

static void store_activation_input(MsBuild *b, double rows, double width) { cast_activation_input(b, "store activation input", rows, width, 2, 1); }

static void restore_activation_input(MsBuild *b, double rows, double width) {
  MsOp *op = cast_activation_input(b, "restore activation input", rows, width, 1, 2);
  if (op) op->transient_B = op->write_B;
}

/* A two-layer MLP of width f over `rows` gathered rows: dense layers and shared experts. */
static void mlp_core_forward(MsBuild *b, const char *fc1, const char *fc2, double f) {
  MsLinear up = ms_linear_of(fc1, MS_LINEAR_COLUMN, b->rows, fc1_width(b, f) / b->t, b->h);
  MsLinear down = ms_linear_of(fc2, MS_LINEAR_ROW, b->rows, b->h, f / b->t);
  up.fused_norm = b->module == MS_MODULE_MLP; /* a shared expert gets what the layer's norm made for the router */
  ms_linear_forward(b, &up);
  activation(b, MS_OP_ACTIVATION, "activation", b->rows, f / b->t);
  store_activation_input(b, b->rows, f / b->t);
  ms_linear_forward(b, &down);
}

static void mlp_core_backward(MsBuild *b, const char *fc1, const char *fc2, double f) {
  MsLinear up = ms_linear_of(fc1, MS_LINEAR_COLUMN, b->rows, fc1_width(b, f) / b->t, b->h);
  MsLinear down = ms_linear_of(fc2, MS_LINEAR_ROW, b->rows, b->h, f / b->t);
  b->pass = MS_PASS_DGRAD;
  ms_linear_backward(b, &down);
  b->pass = MS_PASS_DGRAD;
  restore_activation_input(b, b->rows, f / b->t);
  activation(b, MS_OP_ACTIVATION, "activation", b->rows, f / b->t);
  ms_linear_backward(b, &up);
}

/* --- dense --- */

void ms_dense_mlp_forward(MsBuild *b) {
  double f = b->model->ffn_hidden_size, x = b->rows_sp * b->h;
  b->module = MS_MODULE_MLP;
  b->node = MS_NODE_ATTN;
  gboolean again = recomputes(b, MS_RM_MLP);
  ms_residual_in(b, MS_HALF_MLP);
  ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  if (!ms_inputs_recomputed(b)) ms_keep(b, "mlp input", 2 * x);
  if (!again && !ms_inputs_recomputed(b)) ms_keep(b, "normed mlp input", ms_input_B(b, x, TRUE));
  b->node = MS_NODE_EXPERTS;
  mlp_core_forward(b, "fc1", "fc2", f);
  if (!again) {
    ms_keep(b, "fc1 out", activation_input_B(b, b->rows * fc1_width(b, f) / b->t));
    ms_keep(b, "activation out", ms_input_B(b, b->rows * f / b->t, TRUE));
  }
  ms_residual_out(b, MS_HALF_MLP, 2, 1);
  if (b->model->hidden_dropout > 0) ms_keep(b, "mlp dropout mask", x);
}

void ms_dense_mlp_backward(MsBuild *b) {
  double f = b->model->ffn_hidden_size, x = b->rows_sp * b->h;
  b->module = MS_MODULE_MLP;
  b->node = MS_NODE_EXPERTS;
  ms_residual_out_backward(b, MS_HALF_MLP);
  if (recomputes(b, MS_RM_MLP)) {
    b->pass = MS_PASS_RECOMPUTE;
    ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
    mlp_core_forward(b, "fc1", "fc2", f);
  }
  int first = b->list->n;
  mlp_core_backward(b, "fc1", "fc2", f);
  /* gradient of the fc1 output and of the residual coincide with all that is kept (domain/memory.md 7) */
  double again = recomputes(b, MS_RM_MLP) ? 2 * x + 2 * b->rows * (fc1_width(b, f) + f) / b->t : 0;
  b->list->op[first].transient_B = 2 * b->rows * fc1_width(b, f) / b->t + 2 * b->rows * b->h / b->t + again;
  ms_free_kept(b, "mlp dropout mask");
  ms_free_kept(b, "fc1 out");
  ms_free_kept(b, "activation out");
  ms_free_kept(b, "normed mlp input");
  b->node = MS_NODE_ATTN;
  ms_norm_backward(b, "mlp norm", b->rows_sp, b->h);
  ms_residual_in_backward(b, MS_HALF_MLP, 2, 1);
  ms_free_kept(b, "mlp input");
}

/* --- experts --- */

static double padded_rows(const MsBuild *b) { /* expert rows with the alignment of low precision (precision_and_overheads.md 4) */
  double local = b->local_experts;
  return b->rows_expert + (b->row_align > 1 && b->quantized ? local * (b->row_align - 1) / 2 : 0);
}

static double kept_rows(const MsBuild *b) { return padded_rows(b) - b->rows_expert + b->rows_kept; }

/* One kernel from fc1 over bias and activation to the quantised input of fc2, and back (MXFP8 on Blackwell: precision_and_overheads.md 7). */
static gboolean fused_mlp(const MsBuild *b) {
  return (b->options->fused_grouped_mlp || b->options->use_transformer_engine_op_fuser) && b->quantized && b->odt == MS_ODT_MXFP8 && b->model->gated;
}

/* What goes to the experts is cast before it leaves, once per token; what arrives is quantised row by row, and the weight gradients need it column by
 * column (DeepSeek's profile: a cast in front of dispatch, casts with transposition in front of the weight gradients). */
static gboolean low_dispatch(const MsBuild *b) { return b->options->fp8_dispatch && b->quantized && b->layout->group[MS_GROUP_TP_EP].size > 1; }

/* TransformerEngine splits the rows and casts the part of each expert on its own, but with delayed scaling and in the fused expert MLP. Such a launch
 * costs the host about a quarter of a framework operator. */
static guint16 launches_of_experts(const MsBuild *b) {
  gboolean at_once = b->options->use_transformer_engine_op_fuser || b->options->fused_grouped_mlp || b->training->precision == MS_FP8_DELAYED;
  return (guint16)(at_once ? 1 : 1 + MIN(b->local_experts, 800) / 4);
}

static void quantize_experts(MsBuild *b, const char *name, double rows, double width) {
  int first = b->list->n;
  ms_row_quantize(b, name, rows, width);
  for (int i = first; i < b->list->n; i++) b->list->op[i].kernels = launches_of_experts(b);
}

static void turn_columns(MsBuild *b, const char *name, double rows) {
  MsOp *op = ms_row_memory(b, MS_OP_TRANSPOSE, name, b->quant_B * rows * b->eh, b->quant_B * rows * b->eh, launches_of_experts(b));
  op->m = rows, op->n = b->eh;
}

static MsOp *grouped(MsBuild *b, const char *name, double m, double n, double k) {
  MsOp *op = ms_row(b, MS_OP_GROUPED_GEMM, name);
  double local = b->local_experts;
  op->m = m, op->n = n, op->k = k, op->groups = (int)local;
  op->flop = 2 * m * n * k;
  op->dtype = (guint8)(b->quantized ? b->odt : MS_ODT_BF16);
  op->flags = (guint8)(MS_OPF_WEIGHT | MS_OPF_MODEL_FLOP | (b->quantized ? MS_OPF_QUANTIZED : 0));
  double in_B = b->quantized ? b->quant_B : 2;
  if (b->pass == MS_PASS_WGRAD) { /* m x n weights of each expert, k rows in total */
    double g_B = b->options->gradient_accumulation_fusion ? ms_dtype_B(b->options->main_grads_dtype) : 2;
    op->read_B = in_B * k * (m + n) + (b->options->gradient_accumulation_fusion ? g_B * local * m * n : 0);
    op->write_B = g_B * local * m * n;
    if (b->options->gradient_accumulation_fusion) op->flags |= MS_OPF_ACCUMULATE;
  } else {
    op->read_B = in_B * (m * k + local * n * k);
    op->write_B = 2 * m * n;
  }
  /* one grouped call, but its host work grows with the experts (multi-stream library loop) */
  op->kernels = (guint16)(b->options->use_transformer_engine_op_fuser || b->options->fused_grouped_mlp ? 2 : MIN(4 + local, 200));
  return op;
}

/* Expert biases are added by a loop over the experts and a concatenation; after fc2 they carry the FP32 router probability (add_bias_linear models:
 * GPT-OSS). Bytes: add and concatenate in BF16, or in FP32 and cast back. */
static void expert_bias(MsBuild *b, double rows, double width, gboolean weighted) {
  if (!b->model->add_bias_linear || fused_mlp(b)) return;
  gboolean back = b->pass == MS_PASS_DGRAD;
  double bytes = (weighted ? back ? 16 : 20 : 8) * rows * width;
  int kernels = (int)MIN(2 + 2 * b->local_experts, 200);
  MsOp *op = ms_row_memory(b, MS_OP_ADD, "expert bias", bytes / 2, bytes / 2, kernels);
  op->m = rows, op->n = width;
}

/* Grouped GEMMs in low precision need rows in multiples of a block. Unless the router pads its map, HybridEP what it delivers or DeepSeek's DeepEP what it
 * sends, a kernel of the expert module copies the rows apart in front of fc1 and together behind fc2, and so for the gradients (precision_and_overheads.md 4;
 * Megatron-LM transformer/moe/experts.py). Nothing is copied where capacities are multiples already. */
static void copy_padded(MsBuild *b, const char *name) {
  const MsRouting *routing = &b->training->routing;
  gboolean fixed = routing->kind == MS_ROUTING_CAPACITY && routing->pad_to_capacity;
  if (!b->quantized || b->row_align <= 1 || b->options->moe_router_padding_for_quantization || b->options->dispatcher == MS_DISPATCH_HYBRIDEP || low_dispatch(b) || fixed) return;
  MsOp *op = ms_row_memory(b, MS_OP_COPY, name, 2 * b->rows_expert * b->eh, 2 * padded_rows(b) * b->eh, 2);
  op->m = b->rows_expert, op->n = b->eh;
}

static void experts_forward(MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = padded_rows(b), kept = kept_rows(b);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  copy_padded(b, "pad expert rows");
  if (!low_dispatch(b)) quantize_experts(b, "quantize expert input", rows, b->eh);
  grouped(b, "expert fc1", rows, fc1_width(b, fm), b->eh);
  expert_bias(b, rows, fc1_width(b, fm), FALSE);
  if (!recomputes(b, MS_RM_MOE)) {
    ms_keep(b, "expert input", ms_input_B(b, kept * b->eh, TRUE));
    ms_keep(b, "expert fc1 out", activation_input_B(b, kept * fc1_width(b, fm)));
    ms_keep(b, "permuted probs", 4 * kept);
  }
  if (fused_mlp(b)) {
    b->list->op[b->list->n - 1].write_B += 2 * b->quant_B * rows * fm;
  } else {
    activation(b, MS_OP_WEIGHTED_ACTIVATION, "expert activation", rows, fm);
    store_activation_input(b, rows, fm);
    quantize_experts(b, "quantize expert activation", rows, fm);
  }
  grouped(b, "expert fc2", rows, b->eh, fm);
  expert_bias(b, rows, b->eh, TRUE);
  copy_padded(b, "unpad expert rows");
  if (recomputes(b, MS_RM_MOE) || recomputes(b, MS_RM_MOE_ACT)) return;
  ms_keep(b, "expert activation out", ms_input_B(b, kept * fm, TRUE));
  /* only the gated activation has a kernel with the routing weight inside; others multiply after it and keep both factors */
  if (!b->model->gated) ms_keep(b, "expert activation, unweighted", 2 * kept * fm);
}

static void experts_backward(MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = padded_rows(b);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  if (!fused_mlp(b)) restore_activation_input(b, rows, fm);
  if (recomputes(b, MS_RM_MOE_ACT)) {
    b->pass = MS_PASS_RECOMPUTE;
    activation(b, MS_OP_WEIGHTED_ACTIVATION, "expert activation", rows, fm);
  }
  b->pass = MS_PASS_DGRAD;
  copy_padded(b, "pad expert rows");
  expert_bias(b, rows, b->eh, TRUE);
  if (!low_dispatch(b)) quantize_experts(b, "quantize expert gradient", rows, b->eh);
  grouped(b, "expert fc2", rows, fm, b->eh);
  int chain = b->tip;
  b->pass = MS_PASS_WGRAD;
  if (low_dispatch(b)) turn_columns(b, "turn expert gradient", rows);
  grouped(b, "expert fc2", b->eh, fm, rows);
  ms_row_accumulate(b, b->local_experts * b->eh * fm, (int)MIN(b->local_experts, 200));
  ms_free_kept(b, "expert activation out");
  b->tip = chain;
  b->pass = MS_PASS_DGRAD;
  if (!fused_mlp(b)) activation(b, MS_OP_WEIGHTED_ACTIVATION, "expert activation", rows, fm);
  ms_free_kept(b, "expert activation, unweighted"); /* the gradient of the router weights reads it */
  ms_free_kept(b, "expert fc1 out");
  ms_free_kept(b, "permuted probs");
  expert_bias(b, rows, fc1_width(b, fm), FALSE);
  if (!fused_mlp(b)) quantize_experts(b, "quantize expert gradient", rows, fc1_width(b, fm));
  grouped(b, "expert fc1", rows, b->eh, fc1_width(b, fm));
  chain = b->tip;
  b->pass = MS_PASS_WGRAD;
  if (low_dispatch(b)) turn_columns(b, "turn expert input", rows);
  grouped(b, "expert fc1", fc1_width(b, fm), b->eh, rows);
  ms_row_accumulate(b, b->local_experts * fc1_width(b, fm) * b->eh, (int)MIN(b->local_experts, 200));
  ms_free_kept(b, "expert input");
  b->tip = chain;
  b->pass = MS_PASS_DGRAD;
  copy_padded(b, "unpad expert rows");
}

/* --- dispatch and combine --- */

static gboolean flex(const MsBuild *b) {
  return b->options->dispatcher == MS_DISPATCH_DEEPEP || b->options->dispatcher == MS_DISPATCH_HYBRIDEP;
}

/* --- the shared expert beside the crossings (communication.md 8 end): its first half beside dispatch, its second beside combine, on a stream of its own,
 * TP collectives included --- */

static gboolean shared_beside(const MsBuild *b) {
  return b->options->moe_shared_expert_overlap && b->model->moe_shared_expert_intermediate_size > 0;
}

static void keep_shared(MsBuild *b, double fs) {
  if (recomputes(b, MS_RM_MOE) || recomputes(b, MS_RM_SHARED_EXPERTS)) return;
  ms_keep(b, "shared fc1 out", activation_input_B(b, b->rows * fc1_width(b, fs) / b->t));
  ms_keep(b, "shared activation out", ms_input_B(b, b->rows * fs / b->t, TRUE));
}

/* `from`: the row that its input comes from. */
static void shared_half(MsBuild *b, gboolean first, int from) {
  double fs = b->model->moe_shared_expert_intermediate_size;
  if (!shared_beside(b)) return;
  MsLinear up = ms_linear_of("shared fc1", MS_LINEAR_COLUMN, b->rows, fc1_width(b, fs) / b->t, b->h);
  MsLinear down = ms_linear_of("shared fc2", MS_LINEAR_ROW, b->rows, b->h, fs / b->t);
  MsPass pass = b->pass;
  MsModule module = b->module;
  MsNode node = b->node;
  int tip = b->tip, join[2] = {b->join[0], b->join[1]};
  b->join[0] = b->join[1] = -1;
  b->tip = from, b->beside = MS_STREAM_SIDE, b->module = MS_MODULE_SHARED, b->node = MS_NODE_ATTN;
  if (b->shared >= 0 && b->shared != from) ms_join(b, b->shared);
  if (pass != MS_PASS_DGRAD && first) {
    ms_linear_forward(b, &up);
    activation(b, MS_OP_ACTIVATION, "activation", b->rows, fs / b->t);
    store_activation_input(b, b->rows, fs / b->t);
    keep_shared(b, fs);
  } else if (pass != MS_PASS_DGRAD) {
    ms_linear_forward(b, &down);
  } else if (first) {
    ms_linear_backward(b, &down);
    b->pass = MS_PASS_DGRAD;
    restore_activation_input(b, b->rows, fs / b->t);
    activation(b, MS_OP_ACTIVATION, "activation", b->rows, fs / b->t);
  } else {
    ms_linear_backward(b, &up);
  }
  b->shared = b->tip;
  b->tip = tip, b->join[0] = join[0], b->join[1] = join[1];
  b->beside = MS_STREAM_COMPUTE, b->pass = pass, b->module = module, b->node = node;
}

static void join_shared(MsBuild *b) { /* the next row adds the output of the shared expert */
  ms_join(b, b->shared);
  b->shared = -1;
}

/* One crossing of the expert group: tokens out (dispatch) or back (combine). Bytes: communication.md 5. */
static void cross(MsBuild *b, gboolean out) {
  const MsGroup *g = &b->layout->group[MS_GROUP_TP_EP];
  if (g->size <= 1) return;
  gboolean back = b->pass == MS_PASS_DGRAD, weights = out != back; /* of the router: with the tokens to the experts, their gradients with those of the tokens */
  double hidden = (out && low_dispatch(b) ? b->quant_B : 2) * b->eh, skew = ms_rank_skew(b);
  b->node = out ? MS_NODE_DISPATCH : MS_NODE_COMBINE;
  b->module = MS_MODULE_MOE;
  MsOpKind kind = out ? MS_OP_DISPATCH : MS_OP_COMBINE;
  const char *name = out ? "dispatch" : "combine";
  switch (b->options->dispatcher) {
  case MS_DISPATCH_ALLTOALL: {
    MsOp *op = ms_row_comm(b, kind, name, MS_STREAM_EP, MS_GROUP_EP, skew * b->rows_routed * (hidden + (weights ? 4 : 0)));
    if (op) op->local_fraction = 1 / b->e;
    break;
  }
  case MS_DISPATCH_ALLGATHER: {
    double ranks = g->size, experts = b->model->num_experts;
    double message = hidden * b->rows_sp * ranks + (weights ? (back ? 4 : 5) * b->rows_sp * experts * ranks : 0); /* weights, and the map */
    ms_row_comm(b, kind, name, MS_STREAM_EP, MS_GROUP_TP_EP, message);
    break;
  }
  case MS_DISPATCH_DEEPEP:
  case MS_DISPATCH_HYBRIDEP: {
    MsFan f = ms_fan_out(b, skew);
    double meta = weights ? b->model->moe_router_topk * (back ? 4.0 : 12.0) : 0, copy = hidden; /* weights, and the experts' numbers */
    if (b->options->dispatcher == MS_DISPATCH_HYBRIDEP) { /* an FP32 weight for every expert of the domain goes with each copy (hybrid_ep_backend.cuh) */
      meta = 0;
      if (weights) copy += 4 * b->model->num_experts / MAX(f.domains, 1);
    }
    MsOp *op = ms_row_comm(b, kind, name, MS_STREAM_EP, MS_GROUP_TP_EP, b->rows_sp * f.x_rank * hidden);
    if (!op) break;
    op->m = b->rows_sp, op->n = hidden;
    op->level_B[0] = b->rows_sp * (f.x_rank * copy + skew * meta) * (1 - 1 / f.per_domain);
    op->level_B[1] = f.domains > 1 ? b->rows_sp * f.x_domain * (copy + meta) * (1 - 1 / f.domains) : 0;
    break;
  }
  }
}

static gboolean dropless(const MsBuild *b) {
  return !(b->training->routing.kind == MS_ROUTING_CAPACITY && b->training->routing.pad_to_capacity) &&
         isnan(b->options->moe_expert_rank_capacity_factor);
}

/* ETP: tokens of the expert group on every ETP rank, and back (communication.md 4). Tokens in BF16 with the router weights in FP32; outputs, and their
 * gradients, in FP32. */
static void etp_gather(MsBuild *b, gboolean gather) {
  if (b->u <= 1 || b->options->dispatcher != MS_DISPATCH_ALLTOALL) return;
  gboolean tokens = gather != (b->pass == MS_PASS_DGRAD);
  ms_row_comm(b, gather ? MS_OP_ALL_GATHER : MS_OP_REDUCE_SCATTER, gather ? "etp gather" : "etp scatter", MS_STREAM_EP, MS_GROUP_ETP,
              b->rows_expert * (tokens ? 2 * b->eh + 4 : 4 * b->eh));
}

/* Without memory-efficient permutation the router weights multiply in unpermute: its backward needs the output of the experts, which is kept, and reads
 * it once more for the gradient of the weights (arXiv 2603.07685; domain/moe-facts.md). */
static void keep_expert_output(MsBuild *b) {
  if (!b->options->moe_memory_efficient_permutation && !recomputes(b, MS_RM_MOE)) ms_keep(b, "expert output", 2 * b->rows_routed * b->eh);
}

static void weigh_backward(MsBuild *b) {
  if (b->options->moe_memory_efficient_permutation) return;
  double x = 2 * b->rows_routed * b->eh;
  b->module = MS_MODULE_MOE, b->node = MS_NODE_COMBINE;
  MsOp *op = ms_row_memory(b, MS_OP_UNPERMUTE, "router weight gradient", 2 * x, x + 4 * b->rows_routed, 1);
  op->m = b->rows_routed, op->n = b->eh;
  ms_free_kept(b, "expert output");
}

static void permute(MsBuild *b, MsOpKind kind, const char *name, double rows_in, double rows_out) {
  int kernels = b->options->moe_permute_fusion ? 2 : 6;
  double element_B = kind == MS_OP_PERMUTE && low_dispatch(b) ? b->quant_B : 2;
  MsOp *op = ms_row_memory(b, kind, name, element_B * rows_in * b->eh, element_B * rows_out * b->eh, kernels);
  op->m = MAX(rows_in, rows_out), op->n = b->eh;
  if (!b->options->moe_permute_fusion) op->read_B *= 1.5, op->write_B *= 1.5; /* index_select and scatter passes */
}

static gboolean sorts(const MsBuild *b) {
  return b->options->dispatcher == MS_DISPATCH_ALLTOALL && b->e * b->u > 1 && b->local_experts > 1;
}

/* With EP overlap all that a layer does around combine runs on the stream of the exchanges: forward the sum over the experts and the residual behind it,
 * backward their gradients in front of it (Megatron-LM models/common/fine_grained_callables.py, the node of combine). Compute of the other microbatch
 * does not wait for it. */
static void enter_exchange_stream(MsBuild *b) {
  if (b->options->ep_overlap && b->layout->group[MS_GROUP_TP_EP].size > 1) b->beside = MS_STREAM_EP;
}

static void leave_exchange_stream(MsBuild *b) { b->beside = MS_STREAM_COMPUTE; }

/* HybridEP sorts the tokens by expert itself, in an ordinary kernel behind dispatch and one in front of combine unless they are fused into the exchange, which
 * Megatron-LM leaves off (moe_permute_fusion_into_hybridep; DeepEP branch hybrid-ep 94a9f8f, executor.cu). They belong to the exchange: with EP overlap
 * they run on its stream. */
static void permute_of_exchange(MsBuild *b, MsOpKind kind, const char *name, double rows_in, double rows_out) {
  if (b->options->dispatcher != MS_DISPATCH_HYBRIDEP || b->layout->group[MS_GROUP_TP_EP].size <= 1) return;
  MsStream stream = b->beside;
  b->node = kind == MS_OP_PERMUTE ? MS_NODE_DISPATCH : MS_NODE_COMBINE;
  enter_exchange_stream(b);
  MsOp *op = ms_row_memory(b, kind, name, 2 * rows_in * b->eh, 2 * rows_out * b->eh, 1);
  op->m = MAX(rows_in, rows_out), op->n = b->eh;
  b->beside = stream;
}

/* Without a fixed budget the host must know how many rows arrive before it can make room for them and issue what moves them: sizes of an all-to-all, which a
 * copy brings; counters that the first kernel of DeepEP's or HybridEP's dispatch writes (communication.md 5). The all-gather dispatcher moves all tokens
 * and asks for the numbers behind that. */
static void await_counts(MsBuild *b) {
  if (!dropless(b) || b->scenario->hardware->serial || b->options->dispatcher == MS_DISPATCH_ALLGATHER) return;
  b->node = MS_NODE_DISPATCH;
  MsOp *op = ms_row_comm(b, MS_OP_D2H, "row counts to host", MS_STREAM_EP, MS_GROUP_TP_EP, 8.0 * b->local_experts);
  if (op) op->flags |= MS_OPF_SYNC;
}

/* HybridEP gathers the map of all ranks, a byte for each token and expert, before every dispatch forward, with NCCL, and reads it through for the places of tokens
 * (DeepEP, branch hybrid-ep: executor.cu; the published calls go without, they are given the handle of an earlier one). */
static void gather_routing_map(MsBuild *b) {
  const MsGroup *g = &b->layout->group[MS_GROUP_TP_EP];
  if (b->options->dispatcher != MS_DISPATCH_HYBRIDEP || g->size <= 1) return;
  double map_B = b->rows_sp * b->model->num_experts * g->size, rows = b->rows_sp * g->size;
  b->node = MS_NODE_DISPATCH;
  b->module = MS_MODULE_MOE;
  ms_row_comm(b, MS_OP_ALL_GATHER, "routing map", MS_STREAM_EP, MS_GROUP_TP_EP, map_B);
  enter_exchange_stream(b); /* as all of dispatch */
  ms_row_memory(b, MS_OP_PREPROCESS, "places of tokens", map_B, 5 * rows * b->local_experts + 4 * b->rows_sp * g->per_domain, 2);
  leave_exchange_stream(b);
}

/* Tokens from the router to expert order on their expert ranks. */
static void to_experts(MsBuild *b) {
  const MsGroup *g = &b->layout->group[MS_GROUP_TP_EP];
  double x = flex(b) && g->size > 1 ? b->rows_sp * ms_fan_out(b, ms_rank_skew(b)).x_rank : b->rows_sp;
  gboolean back = b->pass == MS_PASS_DGRAD;
  b->node = MS_NODE_ATTN;
  b->module = back ? MS_MODULE_MOE : MS_MODULE_PREPROCESS;
  if (!back) {
    double maps = 9 * b->rows_sp * b->model->num_experts;
    ms_row_memory(b, MS_OP_PREPROCESS, "dispatch preprocess", maps, maps / 2, b->options->moe_permute_fusion ? 4 : 10);
    if (dropless(b) && b->options->dispatcher == MS_DISPATCH_ALLTOALL) /* how many rows each rank sends to each expert, E int64 of every rank (communication.md 5.2) */
      ms_row_comm(b, MS_OP_ALL_GATHER, "token counts", MS_STREAM_EP, MS_GROUP_TP_EP, 8.0 * b->model->num_experts * g->size);
    b->module = MS_MODULE_MOE;
  }
  if (g->size <= 1 || b->options->dispatcher == MS_DISPATCH_ALLTOALL) permute(b, MS_OP_PERMUTE, "permute", b->rows_sp, b->rows_routed);
  if (low_dispatch(b)) ms_row_quantize(b, "quantize tokens", b->rows_sp, b->eh);
  int input = b->tip;
  if (!back) gather_routing_map(b);
  if (!back) await_counts(b);
  cross(b, TRUE);
  permute_of_exchange(b, MS_OP_PERMUTE, "permute", x, b->rows_expert);
  if (!back && dropless(b) && g->size > 1 && b->options->dispatcher == MS_DISPATCH_ALLGATHER) b->list->op[b->list->n - 1].flags |= MS_OPF_SYNC;
  leave_exchange_stream(b);
  shared_half(b, TRUE, input);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  etp_gather(b, TRUE);
  if (sorts(b)) permute(b, MS_OP_SORT_CHUNKS, "sort chunks", b->rows_expert, b->rows_expert);
  if (g->size > 1 && b->options->dispatcher == MS_DISPATCH_DEEPEP) permute(b, MS_OP_PERMUTE, "permute", x, b->rows_expert);
  if (g->size > 1 && b->options->dispatcher == MS_DISPATCH_ALLGATHER)
    permute(b, MS_OP_PERMUTE, "permute", MIN(b->rows_expert, b->rows_sp * g->size), b->rows_expert);
}

/* Expert outputs back to token order, summed. */
static void from_experts(MsBuild *b) {
  const MsGroup *g = &b->layout->group[MS_GROUP_TP_EP];
  double x = flex(b) && g->size > 1 ? b->rows_sp * ms_fan_out(b, ms_rank_skew(b)).x_rank : b->rows_sp;
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  if (sorts(b)) permute(b, MS_OP_SORT_CHUNKS, "unsort chunks", b->rows_expert, b->rows_expert);
  if (g->size > 1 && b->options->dispatcher == MS_DISPATCH_DEEPEP) permute(b, MS_OP_UNPERMUTE, "unpermute", b->rows_expert, x);
  if (g->size > 1 && b->options->dispatcher == MS_DISPATCH_ALLGATHER)
    permute(b, MS_OP_UNPERMUTE, "unpermute", b->rows_expert, MIN(b->rows_expert, b->rows_sp * g->size));
  etp_gather(b, FALSE);
  permute_of_exchange(b, MS_OP_UNPERMUTE, "unpermute", b->rows_expert, x);
  int input = b->tip;
  cross(b, FALSE);
  shared_half(b, FALSE, input);
  b->node = MS_NODE_COMBINE;
  if (b->pass == MS_PASS_FORWARD) enter_exchange_stream(b);
  if (g->size <= 1 || b->options->dispatcher == MS_DISPATCH_ALLTOALL) permute(b, MS_OP_UNPERMUTE, "unpermute", b->rows_routed, b->rows_sp);
}

/* Buffers that are all referenced while the layer's own kept tensors exist (domain/memory.md 7). */
static double moe_transient_B(const MsBuild *b) {
  double factor = b->options->moe_expert_rank_capacity_factor; /* buffers are sized for the budget, whatever is computed of it */
  double tokens = 2 * MAX(b->rows_expert, isnan(factor) ? 0 : factor * b->rows_routed * b->u) * b->eh;
  if (flex(b) && b->layout->group[MS_GROUP_TP_EP].size > 1) return 2 * b->rows_sp * b->eh * (ms_fan_out(b, 1).x_rank + 1) + 2 * tokens;
  return 4 * tokens;
}

/* --- router --- */

static MsLinear router_linear(const MsBuild *b) {
  return (MsLinear){.name = "router", .kind = MS_LINEAR_PLAIN, .m = b->rows_sp, .n = b->model->num_experts, .k = b->h, .comm_in = "", .comm_out = ""};
}

static void router_rows(MsBuild *b, gboolean back) {
  double logits = b->rows_sp * b->model->num_experts;
  MsOp *op = ms_row_memory(b, MS_OP_ROUTER_TOPK, "router top-k", 4 * logits * (back ? 3 : 2), 4 * logits * 2, b->options->moe_router_fusion ? 3 : back ? 14 : 18);
  op->m = b->rows_sp, op->n = b->model->num_experts, op->k = b->model->moe_router_topk;
}

/* Latent experts: a projection down before dispatch and one up after combine, replicated over TP (domain/model.md 1). */
static MsLinear latent(const MsBuild *b, gboolean down) {
  MsLinear l = ms_linear_of(down ? "latent down" : "latent up", MS_LINEAR_PLAIN, b->rows_sp, down ? b->eh : b->h, down ? b->h : b->eh);
  l.comm_in = l.comm_out = "";
  return l;
}

static void latent_forward(MsBuild *b, gboolean down) {
  if (b->model->moe_latent_size <= 0) return;
  MsLinear l = latent(b, down);
  ms_linear_forward(b, &l);
}

static void latent_backward(MsBuild *b, gboolean down) {
  if (b->model->moe_latent_size <= 0) return;
  MsLinear l = latent(b, down);
  ms_linear_backward(b, &l);
  b->pass = MS_PASS_DGRAD;
}

/* --- the MoE layer --- */

void ms_moe_forward(MsBuild *b) {
  double x = b->rows_sp * b->h, fs = b->model->moe_shared_expert_intermediate_size;
  gboolean again = recomputes(b, MS_RM_MOE);
  b->node = MS_NODE_ATTN;
  b->module = MS_MODULE_ROUTER;
  ms_residual_in(b, MS_HALF_MLP);
  ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  if (!ms_inputs_recomputed(b)) ms_keep(b, "mlp input", 2 * x);
  if (!ms_mlp_norm_recomputed(b) && !ms_inputs_recomputed(b)) ms_keep(b, "normed mlp input", 2 * x);
  if (fs > 0) {
    b->module = MS_MODULE_SHARED;
    if (!shared_beside(b)) {
      mlp_core_forward(b, "shared fc1", "shared fc2", fs);
      keep_shared(b, fs);
    }
  }
  b->module = MS_MODULE_ROUTER;
  MsLinear router = router_linear(b);
  ms_linear_forward(b, &router);
  router_rows(b, FALSE);
  if (!again) {
    double maps = 9 * b->rows_sp * b->model->num_experts;
    if (b->options->moe_permute_fusion) maps += 8 * b->rows_sp * b->model->num_experts;
    ms_keep(b, "router maps", maps);
  }
  ms_keep_router_graph_outputs(b);
  latent_forward(b, TRUE);
  to_experts(b);
  experts_forward(b);
  from_experts(b);
  b->list->op[b->list->n - 1].transient_B = moe_transient_B(b);
  keep_expert_output(b);
  if (b->model->moe_latent_size > 0) {
    b->module = MS_MODULE_MOE;
    latent_forward(b, FALSE);
    ms_keep(b, "latent tokens", ms_input_B(b, b->rows_sp * b->eh, TRUE));
  }
  join_shared(b);
  ms_residual_out(b, MS_HALF_MLP, fs > 0 ? 3 : 2, fs > 0 ? 2 : 1);
  leave_exchange_stream(b);
  if (b->model->hidden_dropout > 0) ms_keep(b, "mlp dropout mask", x);
}

static void moe_recompute(MsBuild *b) { /* `moe`: the layer once more, communication included */
  b->pass = MS_PASS_RECOMPUTE;
  gboolean keeping = b->keeping;
  b->keeping = FALSE;
  double fs = b->model->moe_shared_expert_intermediate_size;
  if (fs > 0 && !shared_beside(b)) b->module = MS_MODULE_SHARED, mlp_core_forward(b, "shared fc1", "shared fc2", fs);
  b->module = MS_MODULE_ROUTER;
  MsLinear router = router_linear(b);
  ms_linear_forward(b, &router);
  router_rows(b, FALSE);
  to_experts(b);
  experts_forward(b);
  from_experts(b);
  b->keeping = keeping;
  b->pass = MS_PASS_DGRAD;
}

/* What `moe` recompute brings back to life during the backward of this layer. */
static double moe_revived_B(const MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = padded_rows(b), fs = b->model->moe_shared_expert_intermediate_size;
  return ms_input_B(b, rows * b->eh, TRUE) + activation_input_B(b, rows * fc1_width(b, fm)) + ms_input_B(b, rows * fm, TRUE) + 4 * rows +
         17 * b->rows_sp * b->model->num_experts + (activation_input_B(b, b->rows * fc1_width(b, fs)) + 2 * b->rows * fs) / b->t;
}

void ms_moe_backward(MsBuild *b) {
  double fs = b->model->moe_shared_expert_intermediate_size;
  b->module = MS_MODULE_ROUTER;
  b->node = MS_NODE_ATTN;
  enter_exchange_stream(b);
  ms_residual_out_backward(b, MS_HALF_MLP);
  leave_exchange_stream(b);
  b->pass = MS_PASS_RECOMPUTE;
  if (ms_mlp_norm_recomputed(b) && recomputes(b, MS_RM_MOE)) ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  if (recomputes(b, MS_RM_MOE)) moe_recompute(b);
  b->pass = MS_PASS_DGRAD;
  enter_exchange_stream(b);
  latent_backward(b, FALSE);
  ms_free_kept(b, "latent tokens");
  weigh_backward(b);
  /* combine backward sends the output gradient the way dispatch sends tokens, and dispatch backward comes back like a combine */
  to_experts(b);
  ms_free_kept(b, "mlp dropout mask");
  if (recomputes(b, MS_RM_MOE)) b->list->op[b->list->n - 1].transient_B = moe_revived_B(b);
  experts_backward(b);
  from_experts(b);
  latent_backward(b, TRUE);
  b->node = MS_NODE_ATTN;
  b->module = MS_MODULE_ROUTER;
  router_rows(b, TRUE);
  ms_free_kept(b, "router maps");
  if (ms_mlp_norm_recomputed(b) && !recomputes(b, MS_RM_MOE)) {
    b->pass = MS_PASS_RECOMPUTE;
    ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
    b->pass = MS_PASS_DGRAD;
  }
  MsLinear router = router_linear(b);
  ms_linear_backward(b, &router);
  if (fs > 0) {
    b->module = MS_MODULE_SHARED;
    if (recomputes(b, MS_RM_SHARED_EXPERTS) && !recomputes(b, MS_RM_MOE)) {
      b->pass = MS_PASS_RECOMPUTE;
      mlp_core_forward(b, "shared fc1", "shared fc2", fs);
    }
    if (!shared_beside(b)) mlp_core_backward(b, "shared fc1", "shared fc2", fs);
    ms_free_kept(b, "shared fc1 out");
    ms_free_kept(b, "shared activation out");
    b->pass = MS_PASS_DGRAD;
  }
  b->module = MS_MODULE_ROUTER;
  ms_norm_backward(b, "mlp norm", b->rows_sp, b->h);
  ms_free_kept(b, "normed mlp input");
  join_shared(b);
  ms_residual_in_backward(b, MS_HALF_MLP, fs > 0 ? 4 : 3, fs > 0 ? 3 : 2);
  ms_free_kept(b, "mlp input");
}
