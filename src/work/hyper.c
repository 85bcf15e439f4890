/* src/work/hyper.c - the residual stream, plain or as several streams (manifold-constrained hyper-connections, mHC).
 *
 * With n streams x[n,h] a sub-layer F runs as: mappings from a projection of all streams (n h -> n^2 + 2 n, FP32, with
 * the streams' RMS), the n x n one made doubly stochastic by Sinkhorn's iterations; input = pre . x; x' = res' x + post
 * F(input). Everything but F is bound by memory: the streams are read and written whole. Counts and order as
 * Megatron-LM's megatron/core/transformer/hyper_connection.py (dev branch, 2026-08). Recompute `mhc` drops the input of
 * the sub-layer, its norm and the merged streams, and makes them again before the backward; the streams of a layer's
 * first half stay.
 *
 * How often the streams are read depends on options.mhc_backend (fused_mhc_kernels.py, same commit). cutile has a
 * kernel for everything. Without the package cuda-tile, which Megatron-LM does not ask for and the published recipes do
 * not install, Triton does the Sinkhorn iterations, the input and the merge; the projection runs in PyTorch on an FP32
 * copy of the streams, as does the backward of the input, operator by operator. native, no fused kernels at all, also
 * stores the product of the n x n matrix and the streams before adding to it. */
#include "work/build.h"

static double mappings(double n) { return n * n + 2 * n; } /* per token */

typedef struct {
  gboolean plain_projection, plain_merge, plain_gradient; /* by operators of PyTorch: all mappings, the merge of an
                                                             output, the gradient of an input */
} Backend;

static Backend backend_of(const MsBuild *b) {
  switch (b->options->mhc_backend) {
  case MS_MHC_NATIVE: return (Backend){TRUE, TRUE, FALSE};
  case MS_MHC_TRITON: return (Backend){TRUE, FALSE, TRUE};
  case MS_MHC_CUTILE: return (Backend){FALSE, FALSE, FALSE};
  }
  return (Backend){FALSE, FALSE, FALSE};
}

static const struct {
  const char *streams, *maps, *output, *norm, *post_norm, *post_norm_in;
} names[] = {[MS_HALF_ATTENTION] = {"attention streams", "attention stream mappings", "attention output", "input norm",
                                    "attention post norm", "attention post norm in"},
             [MS_HALF_MLP] = {"mlp streams", "mlp stream mappings", "mlp output", "mlp norm", "mlp post norm",
                              "mlp post norm in"}};

double ms_hyper_params(const MsModel *m) {
  double n = ms_model_streams(m);
  return n > 1 ? mappings(n) * (n * m->hidden_size + 1) + 3 : 0; /* projection, bias, three scales */
}

double ms_hyper_head_params(const MsModel *m) {
  double n = ms_model_streams(m);
  return n > 1 ? n * n * m->hidden_size + n + 1 : 0;
}

gboolean ms_inputs_recomputed(const MsBuild *b) { return b->streams > 1 && ms_recomputes(b->options, MS_RM_MHC); }

static MsOp *mix(MsBuild *b, const char *name, double read_B, double write_B, int kernels) {
  MsOp *op = ms_row_memory(b, MS_OP_STREAM_MIX, name, read_B, write_B, kernels);
  op->m = b->rows_sp, op->n = b->streams * b->h;
  return op;
}

/* Bytes that the projection moves for each element of the streams. In one kernel: BF16 in; backward twice in, its
 * gradient out. In PyTorch: BF16 in, FP32 copy out and in; backward the copy again, in for the weights' gradient, the
 * FP32 gradient of the streams out and in, streams in for the norm's, BF16 out. */
static const struct {
  double read_B, write_B;
  int kernels;
} projection[2][2] = {{{2, 0, 2}, {4, 2, 4}}, {{6, 4, 5}, {12, 10, 9}}};

static void mapping_rows(MsBuild *b) {
  double n = b->streams, T = b->rows_sp, width = n * b->h, maps = 4 * T * mappings(n), weight = 4 * mappings(n) * width;
  gboolean back = b->pass == MS_PASS_DGRAD, plain = backend_of(b).plain_projection;
  double read = projection[plain][back].read_B * T * width, write = projection[plain][back].write_B * T * width;
  mix(b, "stream mappings", read + weight + (back ? maps : 0), write + maps + (back ? weight : 0),
      projection[plain][back].kernels);
  /* the backward stores the matrix of every half iteration, then walks back over them */
  double steps = back ? 2 * b->model->hyper_connections.sinkhorn_iterations : 0;
  mix(b, "sinkhorn", 4 * T * n * n * ((back ? 2 : 1) + steps), 4 * T * n * n * (1 + steps), 1);
}

void ms_residual_in(MsBuild *b, MsHalf half) {
  if (b->streams <= 1) return;
  double x = 2 * b->rows_sp * b->h;
  mapping_rows(b);
  if (half == MS_HALF_ATTENTION || !ms_inputs_recomputed(b)) ms_keep(b, names[half].streams, x * b->streams);
  ms_keep(b, names[half].maps, 8 * b->rows_sp * mappings(b->streams)); /* as projected, and as used */
  mix(b, "streams to input", x * b->streams, x, 1);
}

static void merge(MsBuild *b) {
  double x = 2 * b->rows_sp * b->h, streams = x * b->streams;
  gboolean native = backend_of(b).plain_merge;
  mix(b, "output to streams", (native ? 2 : 1) * streams + x, (native ? 2 : 1) * streams, native ? 2 : 1);
}

static void post_norm(MsBuild *b, MsHalf half) {
  ms_norm_forward(b, names[half].post_norm, b->rows_sp, b->h);
  if (ms_by_operators(b)) return; /* its input is a product: kept as one, or made again */
  ms_keep(b, names[half].post_norm_in, ms_norm_saved_B(b, b->rows_sp * b->h));
}

/* Sums of `adds` + 1 tensors as long as the residual stream: eager PyTorch and its autograd add two at a time
 * (Megatron-LM core/transformer/moe/moe_layer.py, output + shared_expert_output; torch/csrc/autograd/input_buffer.cpp),
 * code that is compiled reads each once. */
static void add_row(MsBuild *b, const char *name, int adds) {
  double x = 2 * b->rows_sp * b->h;
  gboolean at_once = ms_framework(b->scenario)->torch_parallel && b->options->torch_compile && !ms_modules_apart(b);
  if (adds > 0) ms_row_memory(b, MS_OP_ADD, name, (at_once ? adds + 1 : 2 * adds) * x, (at_once ? 1 : adds) * x, adds);
}

void ms_residual_out(MsBuild *b, MsHalf half, int adds) {
  double x = 2 * b->rows_sp * b->h;
  if (b->model->post_norm || b->streams > 1) { /* what is added to the stream is made first */
    add_row(b, "output add", adds - 1);
    adds = 1;
  }
  if (b->model->post_norm) post_norm(b, half);
  if (b->streams <= 1) {
    add_row(b, "residual add", adds);
    return;
  }
  merge(b);
  ms_keep(b, names[half].output, x);
}

static void streams_out_backward(MsBuild *b, MsHalf half) {
  if (b->streams <= 1) return;
  double x = 2 * b->rows_sp * b->h, streams = x * b->streams;
  if (ms_inputs_recomputed(b)) {
    b->pass = MS_PASS_RECOMPUTE;
    mix(b, "streams to input", streams, x, 1);
    if (!ms_recomputes(b->options, MS_RM_LAYERNORM)) ms_norm_forward(b, names[half].norm, b->rows_sp, b->h);
    merge(b);
  }
  b->pass = MS_PASS_DGRAD;
  /* two kernels: gradients of streams and output; of the mappings, from gradient, streams and output again */
  gboolean native = backend_of(b).plain_merge;
  mix(b, "output to streams", (native ? 5 : 3) * streams + x, streams + x, native ? 5 : 2);
  ms_free_kept(b, names[half].output);
}

void ms_residual_out_backward(MsBuild *b, MsHalf half) {
  streams_out_backward(b, half);
  if (!b->model->post_norm) return;
  ms_norm_backward(b, names[half].post_norm, b->rows_sp, b->h);
  ms_free_kept(b, names[half].post_norm_in);
}

void ms_residual_in_backward(MsBuild *b, MsHalf half, int adds) {
  double x = 2 * b->rows_sp * b->h, streams = x * b->streams;
  if (b->streams <= 1) {
    add_row(b, "gradient add", adds);
    return;
  }
  b->pass = MS_PASS_DGRAD;
  add_row(b, "gradient add", adds - 1);
  if (backend_of(b).plain_gradient)
    mix(b, "streams to input", 2 * (streams + x), 2 * streams, 3); /* both products stored, the second then summed */
  else mix(b, "streams to input", streams + x, streams, 1);
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
