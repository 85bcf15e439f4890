/* src/work/moe.c - the MoE layer: router, latent projections, crossings, experts and shared expert in their order
 * (docs/theory/operators.md 3.4). */
#include "work/moe.h"
#include <math.h>

static MsLinear router_linear(const MsBuild *b) {
  return (MsLinear){.name = "router",
                    .kind = MS_LINEAR_PLAIN,
                    .m = b->rows_sp,
                    .n = b->model->num_experts,
                    .k = b->h,
                    .comm_in = "",
                    .comm_out = ""};
}

/* Plain operators behind the gate, forward and backward, without and with the fused router: counted where Megatron-LM
 * d98e8a64 runs (core/transformer/moe/router.py and moe_utils.py), of fused kernels in its source. */
typedef struct {
  int plain[2], fused[2];
} RouterPart;

static int router_kernels(const MsBuild *b, gboolean back) {
  static const RouterPart choice = {{8, 5}, {1, 1}}, sigmoid = {{3, 7}}, groups = {{9, 1}}, bias = {{4, 0}, {2, 0}},
                          capacity = {{5, 1}, {5, 1}}, loss = {{15, 6}, {6, 4}}, sigmoid_loss = {{3, 8}};
  const MsModel *m = b->model;
  gboolean balances = m->moe_aux_loss_coeff > 0, sigmoids = ms_model_scores_apart(m);
  const struct {
    const RouterPart *part;
    gboolean there;
  } parts[] = {{&choice, TRUE},
               {&sigmoid, sigmoids},
               {&groups, m->moe_router_num_groups > 1},
               {&bias, m->moe_router_enable_expert_bias},
               {&capacity, b->training->routing.kind == MS_ROUTING_CAPACITY},
               {&loss, balances},
               {&sigmoid_loss, balances && sigmoids}};
  int n = 0;
  for (guint i = 0; i < G_N_ELEMENTS(parts); i++) {
    const RouterPart *p = parts[i].part;
    if (parts[i].there) n += (b->options->moe_router_fusion ? p->fused : p->plain)[back];
  }
  return (int)ceil(n * b->scenario->laws.plain_operators);
}

static void router_topk(MsBuild *b, gboolean back) {
  if (ms_torch_experts(b)) {
    ms_torch_router(b);
    return;
  }
  double logits = b->rows_sp * b->model->num_experts;
  MsOp *op = ms_row_memory(b, MS_OP_ROUTER_TOPK, "router top-k", 4 * logits * (back ? 3 : 2), 4 * logits * 2,
                           router_kernels(b, back));
  op->m = b->rows_sp, op->n = b->model->num_experts, op->k = b->model->moe_router_topk;
}

/* Tokens of each expert, summed over the ranks of a sequence, or of the batch, for a loss that balances them
 * (Megatron-LM core/transformer/moe/router.py, _apply_aux_loss): E int64, of every sequence where it balances each. A
 * forward whose graph autograd does not keep, because it is made again, leaves that out. */
static void balance_sum(MsBuild *b) {
  const MsModel *m = b->model;
  gboolean graph = b->pass == MS_PASS_RECOMPUTE || (b->keeping && !ms_recomputes(b->options, MS_RM_MOE));
  double counts_B = 8.0 * m->num_experts;
  if (!graph || !(m->moe_aux_loss_coeff > 0) || !ms_framework(b->scenario)->launched) return;
  switch (m->moe_router_load_balancing_type) {
  case MS_BALANCE_SEQ_AUX: counts_B *= b->training->micro_batch_size; break;
  case MS_BALANCE_AUX:
  case MS_BALANCE_GLOBAL_AUX: break;
  case MS_BALANCE_SINKHORN:
  case MS_BALANCE_NONE: return;
  }
  ms_row_comm(b, MS_OP_ALL_REDUCE, "expert counts", MS_STREAM_TP,
              m->moe_router_load_balancing_type == MS_BALANCE_GLOBAL_AUX ? MS_GROUP_TP_DP_CP : MS_GROUP_TP_CP,
              counts_B);
}

static gboolean routes(const MsBuild *b) { return b->training->routing.kind != MS_ROUTING_ROUND_ROBIN; }

/* Forward or recomputed: logits and choice. A gate that hands tokens out in turn has neither. */
static void router_forward(MsBuild *b) {
  MsLinear router = router_linear(b);
  if (!routes(b)) return;
  ms_linear_forward(b, &router);
  router_topk(b, FALSE);
  balance_sum(b);
}

/* Latent experts: a projection down before dispatch and one up after combine, replicated over TP
 * (docs/theory/operators.md 1).
 */
static MsLinear latent(const MsBuild *b, gboolean down) {
  MsLinear l = ms_linear_of(down ? "latent down" : "latent up", MS_LINEAR_PLAIN, b->rows_sp, down ? b->eh : b->h,
                            down ? b->h : b->eh);
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

/* A map of booleans and scores, with the fused permutation row numbers; PyTorch's gather keeps scores and choice. */
static double maps_B(const MsBuild *b) {
  double logits = b->rows_sp * b->model->num_experts;
  if (ms_torch_experts(b)) return 4 * logits + 8 * b->rows_sp * b->model->moe_router_topk;
  return (b->options->moe_permute_fusion ? 9 + 8 : 9) * logits;
}

void ms_moe_forward(MsBuild *b) {
  double x = b->rows_sp * b->h, fs = b->model->moe_shared_expert_intermediate_size;
  gboolean again = ms_recomputes(b->options, MS_RM_MOE);
  b->node = MS_NODE_ATTN;
  b->module = MS_MODULE_ROUTER;
  ms_residual_in(b, MS_HALF_MLP);
  ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  if (!ms_inputs_recomputed(b)) ms_keep(b, "mlp input", ms_norm_saved_B(b, x));
  if (!ms_mlp_norm_recomputed(b) && !ms_inputs_recomputed(b)) ms_keep_input(b, "normed mlp input", 2 * x);
  if (!ms_torch_experts(b)) ms_shared_here(b);
  b->module = MS_MODULE_ROUTER;
  router_forward(b);
  if (!again) ms_keep(b, "router maps", maps_B(b));
  ms_keep_router_graph_outputs(b);
  latent_forward(b, TRUE);
  /* the projection quantises the router's BF16 input in a copy of its own (Megatron-LM moe_layer.py, fc1_latent_proj)
   */
  if (b->model->moe_latent_size > 0 && b->quantized && !again)
    ms_keep_input(b, "latent input", ms_input_B(b, b->rows_sp * b->h, TRUE));
  ms_to_experts(b);
  ms_experts_forward(b);
  ms_from_experts(b);
  b->list->op[b->list->n - 1].transient_B = ms_dispatch_transient_B(b);
  ms_keep_expert_output(b);
  if (b->model->moe_latent_size > 0) {
    b->module = MS_MODULE_MOE;
    latent_forward(b, FALSE);
    if (!again) ms_keep_input(b, "latent tokens", ms_input_B(b, b->rows_sp * b->eh, TRUE));
  }
  ms_join_shared(b);
  ms_residual_out(b, MS_HALF_MLP, fs > 0 ? 2 : 1);
  ms_leave_exchange_stream(b);
  if (b->model->hidden_dropout > 0) ms_keep(b, "mlp dropout mask", x);
}

/* What `moe` recompute brings back to life during the backward of this layer. */
static double moe_revived_B(const MsBuild *b) {
  double fm = b->model->moe_ffn_hidden_size / b->u, rows = ms_padded_expert_rows(b),
         fs = b->model->moe_shared_expert_intermediate_size;
  return ms_input_B(b, rows * b->eh, TRUE) + ms_activation_input_B(b, rows * ms_fc1_width(b, fm)) +
         ms_input_B(b, rows * fm, TRUE) + ms_expert_gate_parts_B(b, rows) + 4 * rows +
         (b->model->moe_latent_size > 0
              ? ms_input_B(b, b->rows_sp * b->eh, TRUE) + (b->quantized ? ms_input_B(b, b->rows_sp * b->h, TRUE) : 0)
              : 0) +
         17 * b->rows_sp * b->model->num_experts + (fs > 0 ? ms_shared_input_B(b) : 0) +
         (ms_activation_input_B(b, b->rows * ms_fc1_width(b, fs)) + 2 * b->rows * fs) / b->t;
}

static void moe_recompute(MsBuild *b) { /* `moe`: the layer once more, communication included */
  b->pass = MS_PASS_RECOMPUTE;
  gboolean keeping = b->keeping;
  b->keeping = FALSE;
  ms_shared_here(b);
  b->module = MS_MODULE_ROUTER;
  router_forward(b);
  latent_forward(b, TRUE);
  ms_to_experts(b);
  ms_experts_forward(b);
  ms_from_experts(b);
  b->list->op[b->list->n - 1].transient_B = ms_dispatch_transient_B(b) + moe_revived_B(b);
  latent_forward(b, FALSE);
  b->keeping = keeping;
  b->pass = MS_PASS_DGRAD;
}

/* Gradients of Megatron-LM's gate, which it is launched with in FP32 (launch/table.c), are products of FP32: its input
 * is cast, their input gradient back (core/transformer/moe/moe_utils.py, RouterGatingLinearFunction). The two more
 * bytes an element that the products read and write are counted here, as their curve is that of BF16. */
static void router_backward(MsBuild *b) {
  MsLinear router = router_linear(b);
  gboolean wide = ms_framework(b->scenario)->launched && b->options->transformer_impl == MS_IMPL_TE;
  double x = 2 * b->rows_sp * b->h;
  if (!routes(b)) return;
  if (wide) ms_row_passing(b, MS_OP_COPY, "router input in FP32", 2 * x, 2 * x, 2);
  ms_linear_backward(b, &router);
  if (wide) ms_row_passing(b, MS_OP_COPY, "router gradients in BF16", 2 * x, 2 * x, 2);
}

static void norm_again(MsBuild *b) {
  b->pass = MS_PASS_RECOMPUTE;
  ms_norm_forward(b, "mlp norm", b->rows_sp, b->h);
  b->pass = MS_PASS_DGRAD;
}

/* From the sum over the experts of a token to what they were given: combine backward sends the output gradient the way
 * dispatch sends tokens, and dispatch backward comes back like a combine. */
static void routed_backward(MsBuild *b) {
  ms_enter_exchange_stream(b);
  latent_backward(b, FALSE);
  ms_free_kept(b, "latent tokens");
  ms_weigh_backward(b);
  ms_to_experts(b);
  if (!ms_torch_experts(b) && b->options->moe_memory_efficient_permutation) ms_free_kept(b, "expert output");
  ms_free_kept(b, "mlp dropout mask");
  if (ms_recomputes(b->options, MS_RM_MOE)) b->list->op[b->list->n - 1].transient_B = moe_revived_B(b);
  ms_experts_backward(b);
  ms_from_experts(b);
  latent_backward(b, TRUE);
  ms_free_kept(b, "latent input");
}

static void shared_backward(MsBuild *b, double fs) {
  b->module = MS_MODULE_SHARED;
  if (ms_recomputes(b->options, MS_RM_SHARED_EXPERTS) && !ms_recomputes(b->options, MS_RM_MOE)) {
    b->pass = MS_PASS_RECOMPUTE;
    ms_shared_here(b);
  }
  if (!ms_shared_beside(b)) {
    ms_shared_gate_backward(b);
    ms_mlp_core_backward(b, "shared fc1", "shared fc2", fs);
  }
  ms_free_kept(b, "shared input");
  ms_free_kept(b, "shared fc1 out");
  ms_free_kept(b, "shared gate parts");
  ms_free_kept(b, "shared activation out");
  b->pass = MS_PASS_DGRAD;
}

void ms_moe_backward(MsBuild *b) {
  double fs = b->model->moe_shared_expert_intermediate_size;
  gboolean again = ms_recomputes(b->options, MS_RM_MOE);
  b->module = MS_MODULE_ROUTER;
  b->node = MS_NODE_ATTN;
  ms_enter_exchange_stream(b);
  ms_residual_out_backward(b, MS_HALF_MLP);
  ms_leave_exchange_stream(b);
  if (again && ms_mlp_norm_recomputed(b)) norm_again(b);
  if (again) moe_recompute(b);
  b->pass = MS_PASS_DGRAD;
  routed_backward(b);
  b->node = MS_NODE_ATTN;
  b->module = MS_MODULE_ROUTER;
  ms_reenter_router_graph(b);
  if (routes(b)) router_topk(b, TRUE);
  ms_free_kept(b, "router maps");
  if (!again && ms_mlp_norm_recomputed(b)) norm_again(b);
  router_backward(b);
  if (fs > 0) shared_backward(b, fs);
  b->module = MS_MODULE_ROUTER;
  ms_norm_backward(b, "mlp norm", b->rows_sp, b->h);
  ms_free_kept(b, "normed mlp input");
  ms_join_shared(b);
  ms_residual_in_backward(b, MS_HALF_MLP, fs > 0 ? 3 : 2);
  ms_free_kept(b, "mlp input");
}
