/* src/work/hyper.c - the residual stream, plain or as several streams (manifold-constrained hyper-connections, mHC).
 *
 * With n streams x[n,h] a sub-layer F runs as: mappings from a projection of all streams (n h -> n^2 + 2 n, FP32, with the streams' RMS), the n x n one
 * made doubly stochastic by Sinkhorn's iterations; input = pre . x; x' = res' x + post F(input). Everything but F is bound by memory: the streams are
 * read and written whole. Counts and order as Megatron-LM's megatron/core/transformer/hyper_connection.py (dev branch, 2026-08). Recompute `mhc`
 * drops the input of the sub-layer, its norm and the merged streams, and makes them again before the backward; the streams of a layer's first half stay. */
#include "work/build.h"

static double mappings(double n) { return n * n + 2 * n; } /* per token */

static const struct { const char *streams, *maps, *output, *norm; } names[] = {
    [MS_HALF_ATTENTION] = {"attention streams", "attention stream mappings", "attention output", "input norm"},
    [MS_HALF_MLP] = {"mlp streams", "mlp stream mappings", "mlp output", "mlp norm"}};

double ms_hyper_params(const MsModel *m) {
  double n = ms_model_streams(m);
  return n > 1 ? mappings(n) * (n * m->hidden_size + 1) + 3 : 0; /* projection, bias, three scales */
}

double ms_hyper_head_params(const MsModel *m) {
  double n = ms_model_streams(m);
  return n > 1 ? n * n * m->hidden_size + n + 1 : 0;
}

static gboolean selected(const MsBuild *b, guint32 modules) {
  return b->options->recompute.granularity == MS_RECOMPUTE_SELECTIVE && (b->options->recompute.modules & modules);
}

gboolean ms_inputs_recomputed(const MsBuild *b) { return b->streams > 1 && selected(b, MS_RM_MHC); }

static MsOp *mix(MsBuild *b, const char *name, double read_B, double write_B, int kernels) {
  MsOp *op = ms_row_memory(b, MS_OP_STREAM_MIX, name, read_B, write_B, kernels);
  op->m = b->rows_sp, op->n = b->streams * b->h;
  return op;
}

static void mapping_rows(MsBuild *b) {
  double n = b->streams, T = b->rows_sp, width = n * b->h, maps = 4 * T * mappings(n), weight = 4 * mappings(n) * width;
  gboolean back = b->pass == MS_PASS_DGRAD;
  mix(b, "stream mappings", (back ? 4 : 2) * T * width + weight + (back ? maps : 0), (back ? 2 * T * width + weight : 0) + maps, back ? 4 : 2);
  mix(b, "sinkhorn", (back ? 8 : 4) * T * n * n, 4 * T * n * n, 1);
}

void ms_residual_in(MsBuild *b, MsHalf half) {
  if (b->streams <= 1) return;
  double x = 2 * b->rows_sp * b->h;
  mapping_rows(b);
  if (half == MS_HALF_ATTENTION || !ms_inputs_recomputed(b)) ms_keep(b, names[half].streams, x * b->streams);
  ms_keep(b, names[half].maps, 8 * b->rows_sp * mappings(b->streams)); /* as projected, and as used */
  mix(b, "streams to input", x * b->streams, x, 1);
}

void ms_residual_out(MsBuild *b, MsHalf half, double reads, int kernels) {
  double x = 2 * b->rows_sp * b->h;
  if (b->streams <= 1) {
    ms_row_memory(b, MS_OP_ADD, "residual add", reads * x, x, kernels);
    return;
  }
  if (reads > 2) ms_row_memory(b, MS_OP_ADD, "output add", (reads - 1) * x, x, kernels - 1);
  mix(b, "output to streams", x * b->streams + x, x * b->streams, 1);
  ms_keep(b, names[half].output, x);
}

void ms_residual_out_backward(MsBuild *b, MsHalf half) {
  if (b->streams <= 1) return;
  double x = 2 * b->rows_sp * b->h, streams = x * b->streams;
  if (ms_inputs_recomputed(b)) {
    b->pass = MS_PASS_RECOMPUTE;
    mix(b, "streams to input", streams, x, 1);
    if (!selected(b, MS_RM_LAYERNORM)) ms_norm_forward(b, names[half].norm, b->rows_sp, b->h);
    mix(b, "output to streams", streams + x, streams, 1);
  }
  b->pass = MS_PASS_DGRAD;
  mix(b, "output to streams", 2 * streams + x, streams + x, 1);
  ms_free_kept(b, names[half].output);
}

void ms_residual_in_backward(MsBuild *b, MsHalf half, double reads, int kernels) {
  double x = 2 * b->rows_sp * b->h, streams = x * b->streams;
  if (b->streams <= 1) {
    ms_row_memory(b, MS_OP_ADD, "gradient add", reads * x, x, kernels);
    return;
  }
  b->pass = MS_PASS_DGRAD;
  if (reads > 2) ms_row_memory(b, MS_OP_ADD, "gradient add", (reads - 1) * x, x, kernels - 1);
  mix(b, "streams to input", streams + x, streams, 1);
  mapping_rows(b);
  mix(b, "stream gradients", 3 * streams, streams, 1);
  ms_free_kept(b, names[half].streams);
  ms_free_kept(b, names[half].maps);
}

void ms_streams_expand(MsBuild *b, gboolean back) {
  if (b->streams <= 1) return;
  double x = 2 * b->rows_sp * b->h;
  mix(b, "embedding to streams", back ? x * b->streams : x, back ? x : x * b->streams, 1);
}

void ms_streams_join(MsBuild *b, gboolean back) {
  if (b->streams <= 1) return;
  double x = 2 * b->rows_sp * b->h, streams = x * b->streams;
  mix(b, "streams to head", back ? streams + x : streams, back ? streams : x, back ? 3 : 2);
}
