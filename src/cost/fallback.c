/* src/cost/fallback.c - curves of a machine that has none: forms of cost/curve.h with the laws as parameters. */
#include "cost/internal.h"

#include <string.h>

/* Sparse attention and the indexer's loss have no curve in any profile. Forward is as fast as dense attention to as
 * many keys; backward gathers keys and adds gradients one query at a time: launches, the tensors of the queries once,
 * and a rate, here as a share of dense attention forward's. */
void ms_fallback_curves(const MsLaws *l, MsCurve curve[MS_N_FALLBACKS]) {
  const MsCurve all[MS_N_FALLBACKS] = {
      [MS_FALLBACK_GEMM] = {.form = MS_FORM_GEMM_SATURATING,
                            .param = {l->default_gemm_share, l->default_gemm_bandwidth, l->default_gemm_launch_s,
                                      l->default_gemm_m_half, l->default_gemm_n_half, l->default_gemm_k_half}},
      [MS_FALLBACK_GROUPED] = {.form = MS_FORM_GROUPED_GEMM,
                               .param = {l->default_grouped_share, l->default_grouped_bandwidth_weights,
                                         l->default_grouped_launch_s, l->default_grouped_tokens_half,
                                         l->default_grouped_width_half, l->default_grouped_per_expert_s,
                                         l->default_grouped_bandwidth_tokens}},
      [MS_FALLBACK_ATTENTION] = {.form = MS_FORM_ATTENTION,
                                 .param = {l->default_attention_share, l->default_attention_bandwidth,
                                           l->default_attention_launch_s, l->default_attention_length_half,
                                           l->default_attention_block_share}},
      [MS_FALLBACK_DELTA] = {.form = MS_FORM_ATTENTION,
                             .param = {l->default_delta_share, l->default_delta_bandwidth, l->default_delta_launch_s,
                                       l->default_delta_length_half, l->default_delta_block_share}},
      [MS_FALLBACK_SPARSE_BACKWARD] = {.form = MS_FORM_ATTENTION,
                                       .param = {l->sparse_backward_share, l->sparse_backward_bandwidth,
                                                 l->sparse_backward_launch_s, l->sparse_backward_length_half,
                                                 l->sparse_backward_block_share}},
      [MS_FALLBACK_MEMORY] = {.form = MS_FORM_BANDWIDTH,
                              .param = {l->default_memory_bandwidth, l->default_memory_launch_s}},
  };
  memcpy(curve, all, sizeof all);
}
