/* src/work/deterministic.c - what deterministic_mode adds to the rows of a piece.
 *
 * Megatron-LM's --deterministic-mode switches torch.use_deterministic_algorithms on (megatron/training/determinism.py).
 * PyTorch then
 *   - fills every tensor that torch.empty or empty_like makes, from Python and from C++ (ATen
 * native/cuda/TensorFactories.cu), one more kernel and one more pass of writing for each. TransformerEngine, DeepEP,
 * Triton and cuDNN Frontend make their outputs so, and Megatron those of its exchanges; PyTorch's own products and
 * element-wise kernels, which nothing of TransformerEngine wraps, do not.
 *   - adds rows that meet (index_add, the way back of index_select) in the order of a sort: the rows times a scale into
 * a tensor of its own, a sort of the row numbers, a kernel that reads sum and row and writes the sum
 * (native/cuda/Indexing.cu). Plain permutation does that; the fused kernels gather. Ring sums and attention's backward
 * are slower as well: cost/cost.c. State-space scans add up in workspaces of their own, which nobody measured: only
 * their fills are here. */
#include "work/build.h"

#include <string.h>

static gboolean of_te(const MsBuild *b, const MsOp *op) {
  return b->options->transformer_impl == MS_IMPL_TE && op->module != MS_MODULE_ROUTER && op->module != MS_MODULE_HEAD &&
         op->groups <= 1;
}

static double product_B(const MsBuild *b, const MsOp *op) {
  gboolean fused = (op->flags & MS_OPF_ACCUMULATE) != 0;
  if (op->kind == MS_OP_GROUPED_GEMM) return fused ? 0 : op->write_B;
  if (op->module == MS_MODULE_HEAD)
    return fused ? 2 * op->m * op->n
                 : 0; /* Megatron's own linear: a gradient that nobody reads (tensor_parallel/layers.py) */
  return of_te(b, op) && !fused ? op->write_B : 0;
}

static double received_B(const MsBuild *b, const MsOp *op) {
  gboolean rows =
      ms_dispatcher(b->options)->carry == MS_CARRY_COPIES; /* one for each of a token's experts comes back */
  if (op->kind == MS_OP_COMBINE) return 2 * (rows ? b->rows_routed : b->rows_sp) * b->eh;
  if (op->kind == MS_OP_DISPATCH || op->kind == MS_OP_ALL_GATHER) return op->message_B;
  return op->kind == MS_OP_REDUCE_SCATTER ? op->message_B / MAX(b->layout->group[op->group].size, 1) : 0;
}

/* Bytes of the tensors that a row makes with torch.empty. */
static double filled_B(const MsBuild *b, const MsOp *op) {
  switch (op->kind) {
  case MS_OP_GEMM:
  case MS_OP_GROUPED_GEMM: return product_B(b, op);
  case MS_OP_NORM:
  case MS_OP_QUANTIZE:
  case MS_OP_SCAN:
  case MS_OP_CONV:
  case MS_OP_SPARSE_ATTENTION: return op->write_B;
  case MS_OP_ATTENTION: return ms_attn_backends[b->options->attention_backend].stores_scores ? 0 : op->write_B;
  case MS_OP_PERMUTE:
  case MS_OP_UNPERMUTE:
  case MS_OP_SORT_CHUNKS:
    return op->write_B / (b->options->moe_permute_fusion ? 1 : b->scenario->laws.plain_permute_bytes);
  default: return received_B(b, op);
  }
}

static MsOp beside(const MsOp *op, MsOpKind kind, const char *name) {
  MsOp row = {.name = name,
              .kind = (guint8)kind,
              .pass = op->pass,
              .stream = MS_STREAM_COMPUTE,
              .node = op->node,
              .module = op->module,
              .dtype = MS_ODT_BF16,
              .groups = 1,
              .kv_groups = 1,
              .wait = {-1, -1, -1}};
  return row;
}

/* The fill in front of `op`: issued before it, and waits for what it waits for. A few of them cost the host about a
 * framework operator. */
static MsOp fill_of(const MsBuild *b, const MsOp *op, double bytes_B, int *fills) {
  MsOp row = beside(op, MS_OP_FILL, "fill");
  row.write_B = bytes_B;
  row.kernels = (guint16)(++*fills % (int)b->scenario->laws.fills_per_operator == 0);
  memcpy(row.wait, op->wait, sizeof row.wait);
  return row;
}

/* Rows that meet: forward where expert outputs are summed, backward where one token went to several experts. */
static gboolean adds_up(const MsBuild *b, const MsOp *op) {
  return !b->options->moe_permute_fusion && op->kind == MS_OP_UNPERMUTE && op->m > 0;
}

#define KEY_B       16.0 /* a row number and its place */
#define SORT_PASSES 6.0  /* read and written for each of three digits of eight bits */

static MsOp sum_of(const MsOp *op) {
  MsOp row = beside(op, MS_OP_PERMUTE, "sorted sum");
  double rows = op->m, in = 2 * rows * op->n;
  row.m = rows, row.n = op->n;
  row.read_B = 2 * in + KEY_B * rows * SORT_PASSES / 2; /* rows to be scaled; sums read again for each row */
  row.write_B = in + KEY_B * rows * SORT_PASSES / 2;
  row.kernels = 3;
  return row;
}

void ms_make_deterministic(const MsBuild *b, MsOpList *list) {
  if (!b->options->deterministic_mode || list->n == 0) return;
  int old = list->n, n = 0, fills = 0;
  g_autofree int *place = g_new(int, old);
  MsOp *all = g_new(MsOp, 3 * old);
  for (int i = 0; i < old; i++) {
    MsOp op = list->op[i];
    for (int j = 0; j < 3; j++)
      if (op.wait[j] >= 0) op.wait[j] = (gint16)place[op.wait[j]];
    double bytes_B = filled_B(b, &op);
    if (bytes_B > 0) {
      all[n] = fill_of(b, &op, bytes_B, &fills);
      op.wait[0] = (gint16)n++, op.wait[1] = op.wait[2] = -1;
    }
    place[i] = n;
    all[n++] = op;
    if (!adds_up(b, &op)) continue;
    all[n] = sum_of(&op);
    all[n].wait[0] = (gint16)place[i];
    place[i] = n++; /* who waits for the row waits for its sum */
  }
  g_free(list->op);
  if (list->tip >= 0) list->tip = place[list->tip];
  list->op = all, list->n = n, list->capacity = 3 * old;
}
