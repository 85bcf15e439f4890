/* src/work/mamba.c - rows of a Mamba-2 mixer: projection, short convolution, state-space scan, gated norm, projection.
 *
 * Widths: inner d = heads x head_dim; the input projection makes z, x, B, C, dt: 2 d + 2 groups x state + heads per
 * token. The scan works in chunks of 128 tokens, by a dozen kernels whose products are small beside the projections.
 * It multiplies with the gate itself and saves what it had before; the norm behind it saves its input
 * (mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn; megatron/core/ssm/mamba_mixer.py,
 * _ssm_training). It works batch first: with several sequences what it reads and gives is made contiguous, and so are
 * their gradients.
 *
 * Context parallelism: heads are exchanged for tokens in front of the convolution and behind the scan, B and C once for
 * each rank that works on their group, and the zig-zag slices of attention are put in order and back
 * (megatron/core/ssm/mamba_context_parallel.py; five messages there, z, x, B, C and dt, are one row here). */
#include "work/build.h"

#define CHUNK 128.0

typedef struct {
  double inner, conv, projected, states;
} Widths; /* per token on this rank; states: elements of the chunks' states per token */

/* What its kernels read and write, in bytes an element of a token: of x, the chunks' states, B or C, scores a chunk
 * wide for each group, and what is one number a head (state-spaces/mamba e9594ce, July 2026). Forward the state of each
 * chunk in FP32, passed on into BF16, scores C B' of each group in FP32, the output with and without its gate. Backward
 * states and scores again, the gate's gradient, those of the states and back through all chunks, of x, B, C and the
 * scores, of B and C by the scores, of the decays. */
enum { SCAN_X, SCAN_STATES, SCAN_GROUP, SCAN_SCORES, SCAN_HEADS, SCAN_PARTS };
static const double scan_bytes[2][2][SCAN_PARTS] = {/* [backward][write] */
                                                    {{6, 6, 8, 4, 18}, {4, 6, 0, 4, 8}},
                                                    {{28, 18, 34, 20, 80}, {6, 16, 20, 12, 60}}};

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

/* The convolution is made again for its backward, which reads input and gradient. */
static void conv_row(MsBuild *b, const Widths *w) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  double x = 2 * b->rows * w->conv;
  MsOp *op = ms_row_memory(b, MS_OP_CONV, "conv1d", (back ? 3 : 1) * x, (back ? 2 : 1) * x, back ? 3 : 1);
  op->m = b->rows, op->n = w->conv;
}

static void scan_row(MsBuild *b, const Widths *w) {
  const MsMamba *a = &b->model->mamba;
  gboolean back = b->pass == MS_PASS_DGRAD;
  double bytes[2] = {0}, groups = a->num_groups / b->t;
  const double elements[SCAN_PARTS] = {[SCAN_X] = w->inner,
                                       [SCAN_STATES] = w->states,
                                       [SCAN_GROUP] = groups * a->state_dim,
                                       [SCAN_SCORES] = groups * CHUNK,
                                       [SCAN_HEADS] = a->num_heads / b->t};
  for (int i = 0; i < 2 * SCAN_PARTS; i++)
    bytes[i / SCAN_PARTS] += scan_bytes[back][i / SCAN_PARTS][i % SCAN_PARTS] * elements[i % SCAN_PARTS];
  MsOp *op = ms_row_memory(b, MS_OP_SCAN, "state-space scan", b->rows * bytes[0], b->rows * bytes[1], back ? 10 : 6);
  op->m = b->rows, op->n = w->inner, op->k = a->state_dim;
  op->flop = scan_flop(b, w) * (back ? b->scenario->laws.sequence_backward_bytes : 1);
}

static void scan_rows(MsBuild *b, const Widths *w) {
  conv_row(b, w);
  scan_row(b, w);
}

/* Passes over what is exchanged, in front of the messages and behind them, and their kernels: parts for each rank one
 * behind another, z, x, B, C and dt together or apart, chunks of the sequence in order (Megatron-LM
 * core/ssm/mamba_context_parallel.py, pre_conv_ssm and post_conv_ssm; core/tensor_parallel/mappings.py,
 * all_to_all_sp2hp). Backward cuts are sums of tensors, and sums of tensors views that a message copies. */
enum { EXCHANGED = 5 };
static const MsExchange slices[2][2] = {
    {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
    {{1, EXCHANGED, EXCHANGED, 2, 2}, {2, 1 + EXCHANGED, EXCHANGED, 2, EXCHANGED + 1}}}; /* [in][backward] */

/* in: what the projection made, or its gradient; otherwise of the output. */
static void exchange_heads(MsBuild *b, const Widths *w, gboolean in) {
  double groups = b->model->mamba.num_groups / b->t, repeated = MAX(b->c / groups, 1);
  double width = in ? w->projected + (repeated - 1) * (w->conv - w->inner) : w->inner;
  const MsExchange *of = &slices[in][b->pass == MS_PASS_DGRAD];
  ms_row_exchange(b, of, "slices by rank", in ? "cp a2a in" : "cp a2a out", "slices in order", width);
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
  ms_row_batch_first(b, "projected, batch first", w.projected);
  scan_rows(b, &w);
  ms_row_batch_first(b, "scan out, sequence first", w.inner);
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
  ms_row_batch_first(b, "scan out, sequence first", w.inner);
  scan_rows(b, &w);
  ms_row_batch_first(b, "projected, batch first", w.projected);
  exchange_heads(b, &w, TRUE);
  ms_free_kept(b, "scan out");
  ms_free_kept(b, "mamba projected");
  ms_linear_backward(b, &in);
  ms_free_kept(b, "normed mamba input");
  ms_norm_backward(b, "mamba norm", b->rows_sp, b->h);
  ms_row_memory(b, MS_OP_ADD, "gradient add", 4 * x, 2 * x, 1);
  ms_free_kept(b, "mamba input");
}
