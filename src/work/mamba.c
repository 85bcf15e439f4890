/* src/work/mamba.c - rows of a Mamba-2 mixer: projection, short convolution, state-space scan, gated norm, projection.
 *
 * Widths: inner d = heads x head_dim; the input projection makes z, x, B, C, dt: 2 d + 2 groups x state + heads per
 * token. The scan works in chunks of 128 tokens; its products are small beside the projections, and its kernels move
 * the projected tensors and the chunk states several times. The scan multiplies with the gate itself and saves what it
 * had before; the norm behind it saves its input (mamba_ssm/ops/triton/ssd_combined.py,
 * MambaSplitConv1dScanCombinedFn; megatron/core/ssm/mamba_mixer.py, _ssm_training).
 *
 * Context parallelism: heads are exchanged for tokens in front of the convolution and behind the scan, B and C once for
 * each rank that works on their group, and the zig-zag slices of attention are put in order and back
 * (megatron/core/ssm/mamba_context_parallel.py; five messages there, z, x, B, C and dt, are one row here). */
#include "work/build.h"

#define CHUNK 128.0
#define SCAN_PASSES \
  4.0 /* of the FP32 chunk states forward: written and read by the state, passing, and output kernels */

typedef struct {
  double inner, conv, projected, states;
} Widths; /* per token on this rank; states: FP32 elements per token */

static Widths widths(const MsBuild *b) {
  const MsMamba *m = &b->model->mamba;
  Widths w = {.inner = (double)m->num_heads * m->head_dim / b->t};
  double bc = 2.0 * m->num_groups * m->state_dim / b->t;
  w.conv = w.inner + bc;
  w.projected = 2 * w.inner + bc + m->num_heads / b->t;
  w.states = w.inner * m->state_dim / CHUNK;
  return w;
}

static double scan_flop(const MsBuild *b, const Widths *w) { /* scores per group, product with x, states in and out */
  const MsMamba *m = &b->model->mamba;
  double groups = m->num_groups / b->t;
  return b->rows * (CHUNK * m->state_dim * groups + CHUNK * w->inner + 4 * w->inner * m->state_dim);
}

static void scan_rows(MsBuild *b, const Widths *w) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double tokens = b->rows, times = back ? b->scenario->laws.sequence_backward_bytes : 1;
  MsOp *conv = ms_row_memory(b, MS_OP_CONV, "conv1d", 2 * tokens * w->conv * times, 2 * tokens * w->conv, back ? 3 : 1);
  conv->m = tokens, conv->n = w->conv;
  MsOp *scan = ms_row_memory(b, MS_OP_SCAN, "state-space scan",
                             tokens * times * (2 * (w->projected + w->inner) + SCAN_PASSES * 4 * w->states),
                             tokens * times * (2 * w->inner + SCAN_PASSES * 4 * w->states), back ? 10 : 6);
  scan->m = tokens, scan->n = w->inner, scan->k = b->model->mamba.state_dim;
  scan->flop = scan_flop(b, w) * times;
}

/* Passes over what is exchanged, in front of the messages and behind them, and their kernels: parts for each rank one
 * behind another, z, x, B, C and dt together or apart, chunks of the sequence in order (Megatron-LM
 * core/ssm/mamba_context_parallel.py, pre_conv_ssm and post_conv_ssm; core/tensor_parallel/mappings.py,
 * all_to_all_sp2hp). Backward cuts are sums of tensors, and sums of tensors views that a message copies. */
enum { EXCHANGED = 5 };
static const struct {
  int before, before_kernels, after, after_kernels;
} slices[2][2] = {{{1, 1, 1, 1}, {1, 1, 1, 1}},
                  {{1, EXCHANGED, 2, 2}, {2, 1 + EXCHANGED, 2, EXCHANGED + 1}}}; /* [in][backward] */

/* in: what the projection made, or its gradient; otherwise of the output. */
static void exchange_heads(MsBuild *b, const Widths *w, gboolean in) {
  double groups = b->model->mamba.num_groups / b->t, repeated = MAX(b->c / groups, 1);
  double width = in ? w->projected + (repeated - 1) * (w->conv - w->inner) : w->inner, all_B = 2 * b->rows * width;
  int back = b->pass == MS_PASS_DGRAD, before = slices[in][back].before, after = slices[in][back].after;
  if (b->c <= 1) return;
  ms_row_memory(b, MS_OP_COPY, "slices by rank", before * all_B, before * all_B, slices[in][back].before_kernels);
  MsOp *op = ms_row_comm(b, MS_OP_ALL_TO_ALL, in ? "cp a2a in" : "cp a2a out", MS_STREAM_CP, MS_GROUP_CP, all_B);
  op->kernels = in ? EXCHANGED : 1;
  ms_row_memory(b, MS_OP_COPY, "slices in order", after * all_B, after * all_B, slices[in][back].after_kernels);
}

static void gated_norm(MsBuild *b, const Widths *w) {
  double x = 2 * b->rows * w->inner;
  gboolean back = b->pass == MS_PASS_DGRAD;
  ms_row_memory(b, MS_OP_NORM, "gated norm", (back ? 3 : 2) * x, (back ? 2 : 1) * x, back ? 2 : 1);
}

void ms_mamba_forward(MsBuild *b) {
  Widths w = widths(b);
  MsLinear in = ms_linear_of("mamba in", MS_LINEAR_COLUMN, b->rows, w.projected, b->h);
  MsLinear out = ms_linear_of("mamba out", MS_LINEAR_ROW, b->rows, b->h, w.inner);
  double x = b->rows_sp * b->h;
  b->module = MS_MODULE_MAMBA;
  b->node = MS_NODE_ATTN;
  ms_norm_forward(b, "mamba norm", b->rows_sp, b->h);
  ms_keep(b, "mamba input", 2 * x);
  ms_keep(b, "normed mamba input", ms_input_B(b, x, TRUE));
  in.fused_norm = TRUE;
  ms_linear_forward(b, &in);
  ms_keep(b, "mamba projected", 2 * b->rows * w.projected);
  exchange_heads(b, &w, TRUE);
  scan_rows(b, &w);
  exchange_heads(b, &w, FALSE);
  ms_keep(b, "scan out", 2 * b->rows * w.inner);
  ms_keep(b, "gated scan out", 2 * b->rows * w.inner);
  gated_norm(b, &w);
  ms_keep(b, "normed scan out", ms_input_B(b, b->rows * w.inner, TRUE));
  ms_linear_forward(b, &out);
  ms_row_memory(b, MS_OP_ADD, "residual add", 4 * x, 2 * x, 1);
}

void ms_mamba_backward(MsBuild *b) {
  Widths w = widths(b);
  MsLinear in = ms_linear_of("mamba in", MS_LINEAR_COLUMN, b->rows, w.projected, b->h);
  MsLinear out = ms_linear_of("mamba out", MS_LINEAR_ROW, b->rows, b->h, w.inner);
  double x = b->rows_sp * b->h;
  b->module = MS_MODULE_MAMBA;
  b->node = MS_NODE_ATTN;
  b->pass = MS_PASS_DGRAD;
  ms_linear_backward(b, &out);
  ms_free_kept(b, "normed scan out");
  b->pass = MS_PASS_DGRAD;
  gated_norm(b, &w);
  ms_free_kept(b, "gated scan out");
  exchange_heads(b, &w, FALSE);
  scan_rows(b, &w);
  exchange_heads(b, &w, TRUE);
  ms_free_kept(b, "scan out");
  ms_free_kept(b, "mamba projected");
  ms_linear_backward(b, &in);
  ms_free_kept(b, "normed mamba input");
  ms_norm_backward(b, "mamba norm", b->rows_sp, b->h);
  ms_row_memory(b, MS_OP_ADD, "gradient add", 4 * x, 2 * x, 1);
  ms_free_kept(b, "mamba input");
}
