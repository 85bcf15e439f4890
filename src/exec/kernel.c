/* src/exec/kernel.c - what does not depend on the element type: the choice of a table, FLOP of chunks, which rows have
 * which kernels. */
#include "exec/kernel.h"

#include "base/err.h"

const MsKernels *ms_kernels_f32(int unit);
const MsKernels *ms_kernels_f64(int unit);

const MsKernels *ms_kernels_of_unit(size_t real_B, int unit) {
  if (real_B == 4) return ms_kernels_f32(unit);
  if (real_B == 8) return ms_kernels_f64(unit);
  MS_BUG("kernels for elements of %zu B", real_B);
}

const MsKernels *ms_kernels(size_t real_B) {
  const MsVector most = ms_vector();
  int unit = 0;
  while (ms_kernels_of_unit(real_B, unit)->vector > most) unit++;
  return ms_kernels_of_unit(real_B, unit);
}

/* --- rows of the registry -------------------------------------------------------------------------------------- */

#define K(field) \
  { #field, offsetof(MsKernels, field) }
#define MESSAGES \
  { .none = "messages between ranks" }
const MsKernelRow ms_kernel_rows[MS_N_OPS] = {
    [MS_OP_EMBEDDING] = {{K(embedding_forward)}, {K(embedding_backward)}},
    [MS_OP_NORM] = {{K(norm_forward), K(gated_norm_forward)}, {K(norm_backward), K(gated_norm_backward)}},
    [MS_OP_GEMM] = {{K(gemm), K(newton_schulz)}, {K(gemm)}},
    [MS_OP_GROUPED_GEMM] = {{K(grouped_forward)}, {K(grouped_dgrad), K(grouped_wgrad)}},
    [MS_OP_ATTENTION] = {{K(attention_forward), K(attention_merge)}, {K(attention_backward)}},
    [MS_OP_SPARSE_ATTENTION] = {{K(sparse_attention_forward)}, {K(sparse_attention_backward)}},
    [MS_OP_INDEXER] = {{K(indexer_forward)}, {K(indexer_loss)}},
    [MS_OP_DELTA_RULE] = {{K(delta_forward)}, {K(delta_backward)}},
    [MS_OP_ROPE] = {{K(rope)}, {K(rope)}},
    [MS_OP_COPY] = {{K(copy_rows)}, {K(copy_rows)}},
    [MS_OP_ACTIVATION] = {{K(activation_forward), K(sigmoid_gate_forward)},
                          {K(activation_backward), K(sigmoid_gate_backward)}},
    [MS_OP_WEIGHTED_ACTIVATION] = {{K(activation_forward)}, {K(activation_backward)}},
    [MS_OP_ADD] = {{K(add), K(bias_forward)}, {K(add), K(bias_backward)}},
    [MS_OP_ROUTER_TOPK] = {{K(router_forward)}, {K(router_backward)}},
    [MS_OP_PREPROCESS] = {{K(dispatch_map)}},
    [MS_OP_PERMUTE] = {{K(gather_rows)}, {K(scatter_rows)}},
    [MS_OP_UNPERMUTE] = {{K(scatter_rows)}, {K(gather_rows), K(scatter_weight_grad)}},
    [MS_OP_SORT_CHUNKS] = {{K(gather_rows)}, {K(gather_rows)}},
    [MS_OP_CROSS_ENTROPY] = {{K(loss_max), K(loss_exp)}, {K(loss_grad)}},
    [MS_OP_CROSS_ENTROPY_TE] = {{K(loss_max), K(loss_exp)}, {K(loss_grad)}},
    [MS_OP_QUANTIZE] = {{K(quantize), K(cast)}, {K(quantize), K(cast)}},
    [MS_OP_AMAX] = {{K(amax)}, {K(amax)}},
    [MS_OP_TRANSPOSE] = {{K(transpose)}, {K(transpose)}},
    [MS_OP_SCORES] = {{K(softmax_forward)}, {K(softmax_backward)}},
    [MS_OP_CONV] = {{K(conv_forward)}, {K(conv_backward)}},
    [MS_OP_SCAN] = {{K(scan_forward)}, {K(scan_backward)}},
    [MS_OP_GATES] = {{K(delta_gates_forward)}, {K(delta_gates_backward)}},
    [MS_OP_TOPK] = {{K(topk)}},
    [MS_OP_POOL] = {{K(pool_forward)}, {K(pool_backward)}},
    [MS_OP_STREAM_MIX] = {{K(stream_maps_forward), K(sinkhorn_forward), K(streams_to_input), K(output_to_streams),
                           K(streams_expand), K(streams_sum)},
                          {K(stream_maps_backward), K(sinkhorn_backward), K(streams_to_input_backward),
                           K(output_to_streams_backward), K(streams_expand), K(streams_sum), K(add)}},
    [MS_OP_FRONT_END] = {{K(front_end)}, {K(front_end)}},
    [MS_OP_FILL] = {{K(zero)}},
    [MS_OP_ZERO_GRAD] = {{K(zero)}},
    [MS_OP_GRAD_SCALE] = {{K(scale)}},
    [MS_OP_GRAD_NORM] = {{K(sum_squares)}},
    [MS_OP_ADAM] = {{K(adam), K(muon_momentum), K(muon_apply)}},
    [MS_OP_ALL_GATHER] = MESSAGES,
    [MS_OP_REDUCE_SCATTER] = MESSAGES,
    [MS_OP_ALL_REDUCE] = MESSAGES,
    [MS_OP_ALL_TO_ALL] = MESSAGES,
    [MS_OP_DISPATCH] = MESSAGES,
    [MS_OP_COMBINE] = MESSAGES,
    [MS_OP_P2P] = MESSAGES,
    [MS_OP_D2H] = {{K(copy_rows)}},
    [MS_OP_H2D] = {{K(copy_rows)}},
    [MS_OP_CPU_ADAM] = {{K(adam)}},
};
