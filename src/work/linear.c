/* src/work/linear.c - the rows of linear layers: casts, gathers, products, what is summed over ranks. */
#include "work/build.h"
#include <math.h>

/* --- low precision --- */

/* Per-tensor scaling knows the scale only after a pass over the whole tensor for its maximum. */
static gboolean needs_amax(const MsBuild *b) { return ms_precision(b->training)->amax; }
static gboolean per_tensor(const MsBuild *b) { return ms_precision(b->training)->per_tensor; }

/* A tensor scaled by its own maximum: that is set to zero, found and made into a scale by a kernel each, two of one
 * thread (TransformerEngine common/recipe/current_scaling.cu). */
enum { MAXIMUM_KERNELS = 3 };

static void amax_row(MsBuild *b, double rows, double width) {
  MsOp *amax = ms_row_memory(b, MS_OP_AMAX, "amax", 2 * rows * width, 0, 1);
  amax->m = rows, amax->n = width;
  if (per_tensor(b)) amax->launches = MAXIMUM_KERNELS;
  amax->dtype = (guint8)b->odt;
}

/* Products with frozen weights read activations and gradients row by row only. */
static int operand_copies(const MsBuild *b) { return ms_frozen(b) ? 1 : ms_low_copies(b->scenario); }

static int cast_passes(const MsBuild *b, int copies) {
  return ms_stack_before(&b->scenario->stack, ms_precision(b->training)->casts_apart_until) ? copies : 1;
}

/* copies: row-wise and column-wise, in one kernel (docs/theory/precision.md 2). */
static MsOp *cast_row(MsBuild *b, const char *name, double rows, double width, int copies) {
  double read_B = 2 * rows * width * cast_passes(b, copies);
  MsOp *op = ms_row_memory(b, MS_OP_QUANTIZE, name, read_B, copies * b->quant_B * rows * width, 1);
  op->m = rows, op->n = width;
  op->dtype = (guint8)b->odt;
  return op;
}

void ms_row_quantize(MsBuild *b, const char *name, double rows, double width) {
  if (!b->quantized || rows * width <= 0) return;
  if (needs_amax(b)) amax_row(b, rows, width);
  cast_row(b, name, rows, width, operand_copies(b));
}

/* Scales are brought into the order that the library wants by a kernel for either operand of every product, until the
 * cast writes them so, of weights later. They are launched in the call of the product.
 * Of products of several experts one kernel turns all scales of an operand, which costs the host a framework operator
 * for 64 experts (TransformerEngine's issue 2897). */
void ms_row_swizzle(MsBuild *b, gboolean weights, double elements, int tensors) {
  const MsPrecisionRow *row = ms_precision(b->training);
  int until = weights ? row->weight_scales_turned_until : row->scales_turned_until;
  if (!ms_stack_before(&b->scenario->stack, until)) return;
  double scales_B = elements / row->scale_block;
  ms_row_memory(b, MS_OP_TRANSPOSE, "swizzle scales", scales_B, scales_B, (int)round(tensors / 64.0));
}

/* --- linear layers --- */

MsLinear ms_linear_of(const char *name, MsLinearKind kind, double m, double n, double k) {
  return (MsLinear){.name = name,
                    .kind = kind,
                    .m = m,
                    .n = n,
                    .k = k,
                    .low = TRUE,
                    .layer = TRUE,
                    .fused_accumulate = TRUE,
                    .model_flop = TRUE,
                    .comm_in = "tp gather",
                    .comm_out = "tp scatter"};
}

/* A framework linear costs the host several plain operators forward, and several backward: its weight gradient is one
 * more product in the same call of the autograd engine, unless it is delayed, which makes it a call of its own
 * (docs/theory/host.md 1; TransformerEngine pytorch/module/linear.py, _Linear.backward). */
int ms_linear_operators(const MsBuild *b) { return b->pass == MS_PASS_WGRAD && !b->options->delay_wgrad ? 1 : 4; }

static MsOp *gemm(MsBuild *b, const MsLinear *l, double m, double n, double k) {
  gboolean low = l->low && b->quantized;
  if (low) ms_row_swizzle(b, FALSE, m * k, 1), ms_row_swizzle(b, b->pass != MS_PASS_WGRAD, n * k, 1);
  MsOp *op = ms_row(b, MS_OP_GEMM, l->name);
  op->m = m, op->n = n, op->k = k;
  op->flop = 2 * m * n * k;
  double in_B = low ? b->quant_B : 2;
  op->dtype = (guint8)(low ? b->odt : MS_ODT_BF16);
  op->read_B = in_B * (m * k + n * k);
  op->write_B = 2 * m * n;
  op->flags = (guint16)(MS_OPF_WEIGHT | (low ? MS_OPF_QUANTIZED : 0) | (l->model_flop ? MS_OPF_MODEL_FLOP : 0));
  op->kernels = (guint16)ms_linear_operators(b);
  return op;
}

/* Meta's layers multiply q, k and v, gate and up one by one: outputs of each, and how many they are. */
enum { MOST_PRODUCTS = G_N_ELEMENTS(((MsLinear *)0)->part) };
static int products_of(const MsBuild *b, const MsLinear *l, double outputs[MOST_PRODUCTS]) {
  int n = 0;
  if (ms_framework(b->scenario)->llama_layers)
    for (int i = 0; i < MOST_PRODUCTS; i++)
      if (l->part[i] > 0) outputs[n++] = l->part[i];
  if (n == 0) outputs[n++] = l->n;
  return n;
}

static gboolean several(const MsBuild *b, const MsLinear *l) {
  double outputs[MOST_PRODUCTS];
  return products_of(b, l, outputs) > 1;
}

static void forward_products(MsBuild *b, const MsLinear *l) {
  double outputs[MOST_PRODUCTS];
  int n = products_of(b, l, outputs);
  for (int i = 0; i < n; i++) gemm(b, l, l->m, outputs[i], l->k);
}

/* Each product has an input gradient of its own. What reads their sum adds them in its kernel; where it is scattered
 * over tensor-parallel ranks, or another module reads it, a kernel does, the last one in BF16 the product itself
 * (torch/_inductor/fx_passes/ post_grad.py, addmm). */
static void input_gradients(MsBuild *b, const MsLinear *l) {
  double outputs[MOST_PRODUCTS], x_B = 2 * l->m * l->k;
  gboolean written = b->t > 1 || ms_modules_apart(b);
  int n = products_of(b, l, outputs), by_product = written && !(l->low && b->quantized), apart = n - by_product;
  for (int i = 0; i < n; i++) gemm(b, l, l->m, l->k, outputs[i]);
  if (n == 1) return;
  if (!b->options->torch_compile) {
    ms_row_memory(b, MS_OP_ADD, "gradients of products", 2 * (n - 1) * x_B, (n - 1) * x_B, n - 1);
    return;
  }
  if (written)
    ms_row_memory(b, MS_OP_ADD, "gradients of products", ((apart > 1 ? apart : 0) + by_product) * x_B,
                  apart > 1 ? x_B : 0, 1);
  else ms_row_memory(b, MS_OP_ADD, "gradients of products", (n - 1) * x_B, 0, 1);
}

/* Bytes on the wire per element of a tensor-parallel gather: quantised shards where the recipe allows
 * (docs/theory/communication.md 2). */
static double gather_B(const MsBuild *b, const MsLinear *l) { return l->low && b->quantized ? b->quant_B : 2; }

static gboolean trains(const MsBuild *b, const MsLinear *l) { return l->adapter || !ms_frozen(b); }

/* Copies of dY that are gathered: block recipes need it column by column for a weight gradient (TransformerEngine
 * pytorch/module/linear.py, _Linear.backward); of per-tensor ones, and BF16, one serves both products. */
static int gathered_copies(const MsBuild *b, const MsLinear *l) {
  return l->low && b->quantized && !per_tensor(b) && trains(b, l) ? 2 : 1;
}

/* TP overlap with user buffers (docs/theory/communication.md 2): the collective goes in t chunks beside the GEMM; one
 * chunk stays outside. Layers only. */
static gboolean pipelined(const MsBuild *b, const MsLinear *l) {
  return b->options->tp_comm_overlap && b->sp && l->layer && !l->gathered && b->layout->group[MS_GROUP_TP].size > 1;
}

/* Tensor-parallel ranks with a sequence-parallel shard each, gathered for the GEMM. */
static gboolean gathered_shards(const MsBuild *b) { return b->sp && b->layout->group[MS_GROUP_TP].size > 1; }

/* Cast of a shard that is gathered: the ranks agree on one maximum, and only rows travel (TransformerEngine v2.9:
 * with_amax_reduction of current scaling and NVFP4, supports_only_rowwise_all_gather of per-tensor FP8). */
static void quantize_shard(MsBuild *b, const char *name, double rows, double width, gboolean amax_by_norm) {
  if (!b->quantized || rows * width <= 0) return;
  if (needs_amax(b)) {
    if (!amax_by_norm) amax_row(b, rows, width);
    MsOp *agree = ms_row_comm(b, MS_OP_ALL_REDUCE, "amax reduce", MS_STREAM_TP, MS_GROUP_TP, 4);
    if (agree) agree->dtype = MS_ODT_FP32;
  }
  MsOp *cast = cast_row(b, name, rows, width, per_tensor(b) || ms_frozen(b) ? 1 : 2);
  if (amax_by_norm && needs_amax(b)) cast->launches = MAXIMUM_KERNELS; /* the norm finds the maximum in its kernel */
}

/* What was gathered row by row, turned for the weight gradient where a GEMM cannot read it as it lies. */
static void turn_gathered(MsBuild *b, const MsLinear *l, const char *name, double rows, double width) {
  if (!l->low || !b->quantized || !per_tensor(b) || operand_copies(b) == 1 || !gathered_shards(b) || l->gathered)
    return;
  MsPass pass = b->pass;
  b->pass = MS_PASS_WGRAD;
  MsOp *op = ms_row_memory(b, MS_OP_TRANSPOSE, name, b->quant_B * rows * width, b->quant_B * rows * width, 1);
  op->m = rows, op->n = width;
  b->pass = pass;
}

/* A product in as many parts as there are tensor-parallel ranks, each of the rows that one of them has. */
static void gemm_in_parts(MsBuild *b, const MsLinear *l, double m, double n, double k) {
  MsOp *op = gemm(b, l, m / b->t, n, k);
  op->groups = (int)b->t, op->flags |= MS_OPF_PARTS;
  op->flop *= b->t, op->read_B *= b->t, op->write_B *= b->t;
}

/* Gather then GEMM: the first chunk before it, the others beside it. Returns the row of the others. */
static int gather_chunks(MsBuild *b, const char *name, double message_B) {
  ms_row_comm(b, MS_OP_ALL_GATHER, name, MS_STREAM_TP, MS_GROUP_TP, message_B / b->t);
  return ms_row_index(
      b, ms_row_comm_async(b, MS_OP_ALL_GATHER, name, MS_STREAM_TP, MS_GROUP_TP, message_B * (b->t - 1) / b->t));
}

/* One gather serves all products of the layer (torch/_inductor/fx_passes/micro_pipeline_tp.py). */
static void gather_products(MsBuild *b, const MsLinear *l) {
  double outputs[MOST_PRODUCTS];
  int n = products_of(b, l, outputs), beside = gather_chunks(b, l->comm_in, gather_B(b, l) * l->m * l->k);
  for (int i = 0; i < n; i++) gemm_in_parts(b, l, l->m, outputs[i], l->k);
  ms_join(b, beside);
}

/* GEMM then scatter: all chunks but the last beside it. */
static void gemm_scatter(MsBuild *b, const MsLinear *l, const char *name, double message_B, double m, double n,
                         double k) {
  int issued = ms_last_compute(b->list);
  if (issued > b->tip) ms_join(b, issued);
  MsOp *most =
      ms_row_comm_async(b, MS_OP_REDUCE_SCATTER, name, MS_STREAM_TP, MS_GROUP_TP, message_B * (b->t - 1) / b->t);
  int beside = ms_row_index(b, most);
  gemm_in_parts(b, l, m, n, k);
  ms_join(b, beside);
  ms_row_comm(b, MS_OP_REDUCE_SCATTER, name, MS_STREAM_TP, MS_GROUP_TP, message_B / b->t);
  if (ms_framework(b->scenario)->torch_parallel) /* _pipelined_produce_and_all2all leaves the parts to be added */
    ms_row_memory(b, MS_OP_ADD, "sum of parts", 2 * m * n, 2 * m * n / b->t, 1);
}

static void quantize_input(MsBuild *b, const MsLinear *l) {
  gboolean by_norm = l->fused_norm && per_tensor(b);
  if (l->kind == MS_LINEAR_COLUMN && !l->gathered && gathered_shards(b)) {
    quantize_shard(b, "quantize input", l->m / b->t, l->k, by_norm);
  } else if (by_norm && b->quantized) {
    MsOp *cast = cast_row(b, "quantize input", l->m, l->k, operand_copies(b));
    if (needs_amax(b)) cast->launches = MAXIMUM_KERNELS;
  } else {
    ms_row_quantize(b, "quantize input", l->m, l->k);
  }
}

void ms_layer_forward(MsBuild *b, const MsLinear *l) {
  gboolean column = l->kind == MS_LINEAR_COLUMN, row = l->kind == MS_LINEAR_ROW;
  if (column && b->sp && l->gathered)
    ms_row_comm(b, MS_OP_ALL_GATHER, l->comm_in, MS_STREAM_TP, MS_GROUP_TP, 2 * l->m * l->k);
  if (l->low && !l->input_quantized_by_producer) quantize_input(b, l);
  if (pipelined(b, l) && column) {
    gather_products(b, l);
    return;
  }
  if (pipelined(b, l) && row) {
    gemm_scatter(b, l, l->comm_out, 2 * l->m * l->n, l->m, l->n, l->k);
    return;
  }
  if (column && b->sp && !l->gathered)
    ms_row_comm(b, MS_OP_ALL_GATHER, l->comm_in, MS_STREAM_TP, MS_GROUP_TP, gather_B(b, l) * l->m * l->k);
  forward_products(b, l);
  if (row)
    ms_row_comm(b, b->sp ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE, l->comm_out, MS_STREAM_TP, MS_GROUP_TP,
                2 * l->m * l->n);
}

/* torch.distributed.fsdp reduces and drops a gradient when the backward of its unit ends (_fsdp_param_group.py,
 * post_backward; _runtime_utils.py, _post_backward_hook), as DeepSpeed does (zero/stage3.py, partition_grads), so that
 * autograd finds none to add to and hands its tensor over (accumulate_grad.h). */
static gboolean handed_over(const MsBuild *b, MsGroupKind reduced_in) {
  return ms_framework_drops_gradients(ms_framework(b->scenario)) && b->options->fsdp >= MS_FSDP_OPTIM_GRADS &&
         b->layout->group[reduced_in].size > 1;
}

double ms_gradient_B(const MsBuild *b, gboolean expert) {
  if (!ms_overwrites(b)) return ms_dtype_B(b->options->main_grads_dtype);
  return expert ? ms_expert_reduce_B(b->options) : ms_dtype_B(b->options->grad_reduce_dtype);
}

void ms_row_accumulate(MsBuild *b, MsGroupKind reduced_in, double weights, int kernels) {
  double g_B = ms_gradient_B(b, reduced_in == MS_GROUP_EDP), read_B = 2 + (ms_overwrites(b) ? 0 : g_B);
  if (!b->options->gradient_accumulation_fusion && !handed_over(b, reduced_in))
    ms_row_memory(b, MS_OP_ADD, "gradient accumulate", read_B * weights, g_B * weights, kernels);
}

static guint16 split_of(const MsLinear *l) {
  if (l->adapter) return l->weight;
  switch (l->kind) {
  case MS_LINEAR_COLUMN: return MS_OPF_ROWS_SPLIT;
  case MS_LINEAR_ROW: return MS_OPF_COLUMNS_SPLIT;
  case MS_LINEAR_PLAIN: break;
  }
  return 0;
}

static void weight_gradient(MsBuild *b, const MsLinear *l) {
  MsPass pass = b->pass;
  if (!trains(b, l)) return;
  double outputs[MOST_PRODUCTS], g_B = ms_gradient_B(b, FALSE);
  int n = products_of(b, l, outputs);
  b->pass = MS_PASS_WGRAD;
  for (int i = 0; i < n; i++) {
    MsOp *op = gemm(b, l, outputs[i], l->k, l->m);
    op->flags |= split_of(l);
    if (!l->fused_accumulate || !b->options->gradient_accumulation_fusion) continue;
    op->flags |= MS_OPF_ACCUMULATE;
    op->write_B = g_B * outputs[i] * l->k; /* read and written: docs/theory/operators.md 4 */
    if (!ms_overwrites(b)) op->read_B += g_B * outputs[i] * l->k;
  }
  if (l->fused_accumulate) ms_row_accumulate(b, MS_GROUP_DP_CP, l->n * l->k, n);
  b->pass = pass;
}

/* Weights that are kept row by row only, turned for the input gradient. */
static void turn_weight(MsBuild *b, const MsLinear *l) {
  if (!l->low || !b->quantized || ms_weight_copies(b->scenario) == ms_low_copies(b->scenario)) return;
  double weight_B = b->quant_B * l->n * l->k;
  MsOp *op = ms_row_memory(b, MS_OP_TRANSPOSE, "transpose weight", weight_B, weight_B, 1);
  op->m = l->n, op->n = l->k, op->transient_B = weight_B;
}

static gboolean of_torch(const MsBuild *b) { return ms_framework(b->scenario)->torch_parallel; }

/* A gather that the weight gradient alone waits for; -1: of one rank. */
static int gather_for_weight(MsBuild *b, const char *name, double message_B) {
  MsOp *op = ms_row_comm_async(b, MS_OP_ALL_GATHER, name, MS_STREAM_TP, MS_GROUP_TP, message_B);
  if (!op) return -1;
  op->pass = MS_PASS_WGRAD;
  return ms_row_index(b, op);
}

/* A row layer that gathers its gradient part by part, beside the product of those that are there. */
static void row_backward_in_parts(MsBuild *b, const MsLinear *l) {
  double message_B = gather_B(b, l) * l->m * l->n;
  int beside = gather_chunks(b, l->comm_out, message_B), columns = -1;
  if (!of_torch(b) && gathered_copies(b, l) > 1) /* behind the rows, beside the product that reads those */
    columns = gather_for_weight(b, l->comm_out, message_B);
  gemm_in_parts(b, l, l->m, l->k, l->n);
  ms_join(b, beside);
  int chain = b->tip;
  ms_join(b, columns);
  turn_gathered(b, l, "transpose gradient", l->m, l->n);
  weight_gradient(b, l);
  b->tip = chain;
}

/* dX, of a column layer summed over tensor-parallel ranks. Returns the row that has it, which may run beside what
 * follows in the chain. */
static int input_gradients_and_sum(MsBuild *b, const MsLinear *l) {
  double x_B = 2 * l->m * l->k;
  MsOpKind sum = b->sp ? MS_OP_REDUCE_SCATTER : MS_OP_ALL_REDUCE;
  gboolean column = l->kind == MS_LINEAR_COLUMN;
  if (column && of_torch(b) && pipelined(b, l) && !several(b, l)) { /* of a sum nothing is scattered early */
    gemm_scatter(b, l, l->comm_in, x_B, l->m, l->k, l->n);
    return b->tip;
  }
  input_gradients(b, l);
  if (!column) return b->tip;
  if (of_torch(b)) {
    ms_row_comm(b, sum, l->comm_in, MS_STREAM_TP, MS_GROUP_TP, x_B);
    return b->tip;
  }
  MsOp *op = ms_row_comm_async(b, sum, l->comm_in, MS_STREAM_TP, MS_GROUP_TP, x_B);
  return op ? ms_row_index(b, op) : b->tip;
}

/* Issue order inside one linear (docs/theory/operators.md 4): gather of the saved shard, dgrad, scatter of dX, wgrad;
 * the gather overlaps dgrad and the scatter overlaps wgrad. Without sequence parallelism dX of a column layer is
 * all-reduced beside wgrad. PyTorch has kept what it gathered forward, and waits for every message. */
void ms_layer_backward(MsBuild *b, const MsLinear *l) {
  gboolean column = l->kind == MS_LINEAR_COLUMN, row = l->kind == MS_LINEAR_ROW;
  b->pass = MS_PASS_DGRAD;
  turn_weight(b, l);
  if (row && b->sp && l->gathered)
    ms_row_comm(b, MS_OP_ALL_GATHER, l->comm_out, MS_STREAM_TP, MS_GROUP_TP, 2 * l->m * l->n);
  if (l->low && row && gathered_shards(b) && !l->gathered)
    quantize_shard(b, "quantize gradient", l->m / b->t, l->n, FALSE);
  else if (l->low) ms_row_quantize(b, "quantize gradient", l->m, l->n);
  if (row && pipelined(b, l)) {
    row_backward_in_parts(b, l);
    return;
  }
  if (row && b->sp && !l->gathered)
    ms_row_comm(b, MS_OP_ALL_GATHER, l->comm_out, MS_STREAM_TP, MS_GROUP_TP,
                gathered_copies(b, l) * gather_B(b, l) * l->m * l->n);
  int input = column && b->sp && !l->gathered && trains(b, l) && !of_torch(b)
                  ? gather_for_weight(b, l->comm_in, gather_B(b, l) * l->m * l->k)
                  : -1;
  int gradients = input_gradients_and_sum(b, l);
  ms_join(b, input);
  if (column) turn_gathered(b, l, "transpose input", l->m, l->k);
  if (row) turn_gathered(b, l, "transpose gradient", l->m, l->n);
  weight_gradient(b, l);
  b->tip = gradients; /* what follows needs dX, not dW */
}

void ms_linear_backward_weight(MsBuild *b, const MsLinear *l) {
  b->pass = MS_PASS_DGRAD;
  if (l->low) ms_row_quantize(b, "quantize gradient", l->m, l->n);
  int chain = b->tip;
  weight_gradient(b, l);
  b->tip = chain;
}

/* --- block-diagonal weights --- */

static MsOp *block_gemm(MsBuild *b, const MsBlockLinear *l, double m, double n, double k) {
  MsOp *op = ms_row(b, MS_OP_GEMM, l->name);
  op->m = m, op->n = n, op->k = k, op->groups = l->groups;
  op->flop = 2 * m * n * k * l->groups;
  op->read_B = 2 * (m * k + n * k) * l->groups;
  op->write_B = 2 * m * n * l->groups;
  op->flags = MS_OPF_WEIGHT | MS_OPF_MODEL_FLOP;
  op->kernels = 4;
  return op;
}

void ms_block_linear_forward(MsBuild *b, const MsBlockLinear *l) { block_gemm(b, l, l->m, l->n, l->k); }

void ms_block_linear_backward(MsBuild *b, const MsBlockLinear *l) {
  b->pass = MS_PASS_DGRAD;
  block_gemm(b, l, l->m, l->k, l->n);
  int chain = b->tip;
  if (ms_frozen(b)) return;
  b->pass = MS_PASS_WGRAD;
  MsOp *op = block_gemm(b, l, l->n, l->k, l->m);
  double weights = l->n * l->k * l->groups,
         g_B = ms_dtype_B(b->options->main_grads_dtype); /* a tensor of its own, then added to the main gradient */
  op->read_B += (2 + g_B) * weights, op->write_B += g_B * weights;
  b->pass = MS_PASS_DGRAD;
  b->tip = chain;
}
