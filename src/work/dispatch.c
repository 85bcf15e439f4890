/* src/work/dispatch.c - rows that bring tokens to their experts and back: permutation, dispatch, combine, expert tensor
 * parallelism (docs/theory/communication.md 5). */
#include "work/moe.h"
#include "describe/framework.h"
#include <math.h>

static const MsDispatcherRow *dispatcher(const MsBuild *b) { return ms_dispatcher(b->options); }
static const MsGroup *group(const MsBuild *b) { return &b->layout->group[MS_GROUP_TP_EP]; }
static gboolean carries_once(const MsBuild *b) { return dispatcher(b)->carry == MS_CARRY_ONCE && group(b)->size > 1; }

typedef struct {                  /* bytes of a crossing (docs/theory/communication.md 5) */
  double hidden, copy_B, token_B; /* of a row; what goes with each copy, and once with each token */
  guint16 messages;
} Load;

/* Router weights go with the tokens to the experts, their gradients with those of the tokens. Where they multiply in
 * unpermute they stay with the rank of the token, but for a dispatcher that brings tokens once. */
static double weight_B(const MsBuild *b, gboolean out) {
  const MsDispatcherRow *row = dispatcher(b);
  gboolean back = b->pass == MS_PASS_DGRAD;
  if (row->carry == MS_CARRY_COPIES && !b->options->moe_memory_efficient_permutation) return 0;
  return out == back ? 0 : back ? row->weight_back_B : row->weight_B;
}

/* Outputs of the experts, or their gradients; else tokens or theirs. */
static gboolean is_sum(const MsBuild *b, gboolean out) { return out == (b->pass == MS_PASS_DGRAD); }

static double element_B(const MsBuild *b, gboolean out) {
  if (out && ms_low_dispatch(b)) return b->quant_B;
  return is_sum(b, out) && !ms_torch_experts(b) ? dispatcher(b)->sum_B : 2;
}

static Load load(const MsBuild *b, gboolean out) {
  const MsDispatcherRow *row = dispatcher(b);
  double w = weight_B(b, out);
  Load l = {.hidden = element_B(b, out) * b->eh, .messages = row->weights_apart && w > 0 ? 2 : 1};
  switch (row->weight_with) {
  case MS_WITH_COPY: l.copy_B = w; break;
  case MS_WITH_EXPERT: l.token_B = w * b->model->num_experts; break;
  case MS_WITH_CHOICE: l.token_B = b->model->moe_router_topk * w; break;
  case MS_WITH_DOMAIN_EXPERT: l.copy_B = w * b->model->num_experts / MAX(group(b)->domains, 1); break;
  }
  return l;
}

/* Outputs of the experts that only the residual takes are not made again where recomputation stops at the last tensor
 * that a backward reads; PyTorch's experts multiply what came back by the router weights, and keep it. */
static gboolean unread(const MsBuild *b, gboolean out) {
  return !out && b->pass == MS_PASS_RECOMPUTE && ms_stops_early(b) && !ms_torch_experts(b) &&
         b->model->moe_latent_size <= 0;
}

/* A collective sums outputs, and gathers their gradients, as the router weights are stored, in FP32: a cast on either
 * side (Megatron-LM core/transformer/moe/token_dispatcher.py, token_combine and combine_preprocess). */
static void cast_outputs(MsBuild *b, double rows, gboolean wide) {
  double elements = rows * b->eh;
  ms_row_passing(b, MS_OP_COPY, wide ? "outputs in FP32" : "outputs in BF16", (wide ? 2 : 4) * elements,
                 (wide ? 4 : 2) * elements, 1);
}

/* All tokens of the group to this rank, or sums of its own back from all. */
static void cross_all(MsBuild *b, gboolean out, MsOpKind kind, const char *name, Load l) {
  double own = b->rows_sp, all = own * group(b)->size;
  gboolean wide = is_sum(b, out) && element_B(b, out) > 2;
  if (wide) cast_outputs(b, out ? own : all, TRUE);
  MsOp *op = ms_row_comm(b, kind, name, MS_STREAM_EP, MS_GROUP_TP_EP, (l.hidden + l.copy_B + l.token_B) * all);
  if (op) op->kernels = (guint16)(l.messages + (l.messages > 1 && out)); /* the map of tokens and experts, apart */
  if (wide) cast_outputs(b, out ? all : own, FALSE);
}

/* One crossing of the expert group: tokens out (dispatch) or back (combine). */
static void cross(MsBuild *b, gboolean out) {
  const MsGroup *g = group(b);
  if (g->size <= 1 || unread(b, out)) return;
  Load l = load(b, out);
  double skew = ms_rank_skew(b);
  MsOpKind kind = out ? MS_OP_DISPATCH : MS_OP_COMBINE;
  const char *name = out ? "dispatch" : "combine";
  b->node = out ? MS_NODE_DISPATCH : MS_NODE_COMBINE;
  b->module = MS_MODULE_MOE;
  switch (dispatcher(b)->carry) {
  case MS_CARRY_COPIES: {
    double message_B = skew * b->rows_routed * (l.hidden + l.copy_B) + b->rows_sp * l.token_B;
    MsOp *op = ms_row_comm(b, kind, name, MS_STREAM_EP, MS_GROUP_EP, message_B);
    if (op) op->local_fraction = 1 / b->e, op->kernels = l.messages;
    break;
  }
  case MS_CARRY_ALL: cross_all(b, out, kind, name, l); break;
  case MS_CARRY_ONCE: {
    MsFan f = ms_fan_out(b, skew);
    double copy_B = l.hidden + l.copy_B;
    MsOp *op = ms_row_comm(b, kind, name, MS_STREAM_EP, MS_GROUP_TP_EP, b->rows_sp * f.x_rank * l.hidden);
    if (!op) break;
    op->m = b->rows_sp, op->n = l.hidden;
    op->level_B[0] = b->rows_sp * (f.x_rank * copy_B + skew * l.token_B) * (1 - 1 / f.per_domain);
    op->level_B[1] = f.domains > 1 ? b->rows_sp * f.x_domain * (copy_B + l.token_B) * (1 - 1 / f.domains) : 0;
    break;
  }
  }
}

static gboolean padded(const MsBuild *b) {
  return b->training->routing.kind == MS_ROUTING_CAPACITY && b->training->routing.pad_to_capacity;
}

static gboolean dropless(const MsBuild *b) { return !padded(b) && isnan(b->options->moe_expert_rank_capacity_factor); }

/* ETP: tokens of the expert group on every ETP rank, and back (docs/theory/communication.md 4). Tokens in BF16 with the
 * router weights in FP32; outputs, and their gradients, in FP32. */
static void etp_gather(MsBuild *b, gboolean gather) {
  if (b->u <= 1 || dispatcher(b)->carry != MS_CARRY_COPIES) return;
  gboolean tokens = !is_sum(b, gather);
  double own = b->rows_expert / b->u;
  if (!tokens) cast_outputs(b, gather ? own : b->rows_expert, TRUE);
  MsOp *op = ms_row_comm(b, gather ? MS_OP_ALL_GATHER : MS_OP_REDUCE_SCATTER, gather ? "etp gather" : "etp scatter",
                         MS_STREAM_EP, MS_GROUP_ETP, b->rows_expert * (tokens ? 2 * b->eh + 4 : 4 * b->eh));
  op->kernels = tokens ? 2 : 1; /* tokens and router weights by a message each */
  if (!tokens) cast_outputs(b, gather ? b->rows_expert : own, FALSE);
}

/* Plain unpermute in deterministic mode sums with index_add_ (Megatron-LM core/transformer/moe/moe_utils.py), which
 * saves the rows that it adds, for their shape alone (PyTorch derivatives.yaml). */
static gboolean sums_saved_rows(const MsBuild *b) {
  return b->options->deterministic_mode && !b->options->moe_permute_fusion;
}

/* The framework's unpermute stands where the rows arrived, else where tokens came from. */
static gboolean sums_received_rows(const MsBuild *b) {
  switch (dispatcher(b)->permutes) {
  case MS_PERMUTE_RECEIVER: return TRUE;
  case MS_PERMUTE_SENDER:
  case MS_PERMUTE_EXCHANGE: break;
  }
  return FALSE;
}

/* Without memory-efficient permutation the router weights multiply in unpermute: its backward needs the output of the
 * experts, which is kept, and reads it once more for the gradient of the weights (arXiv 2603.07685,
 * memory-efficient permutation). */
void ms_keep_expert_output(MsBuild *b) {
  double rows = sums_received_rows(b) ? b->rows_kept : b->rows_routed;
  if (ms_recomputes(b->options, MS_RM_MOE)) return;
  if (ms_indexed(b)) ms_keep(b, "expert output", 4 * b->rows_routed * b->eh + ms_indexed_kept_B(b)); /* in FP32 */
  else if (ms_torch_experts(b)) ms_keep(b, "expert output", 2 * b->rows_kept * b->eh);
  else if (!b->options->moe_memory_efficient_permutation) ms_keep(b, "expert output", 2 * b->rows_routed * b->eh);
  else if (sums_saved_rows(b)) ms_keep(b, "expert output", 2 * rows * b->eh);
}

void ms_weigh_backward(MsBuild *b) {
  if (ms_torch_experts(b) || b->options->moe_memory_efficient_permutation) return;
  double x = 2 * b->rows_routed * b->eh;
  b->module = MS_MODULE_MOE, b->node = MS_NODE_COMBINE;
  MsOp *op = ms_row_memory(b, MS_OP_UNPERMUTE, "router weight gradient", 2 * x, x + 4 * b->rows_routed, 1);
  op->m = b->rows_routed, op->n = b->eh;
  ms_free_kept(b, "expert output");
}

static void permute(MsBuild *b, MsOpKind kind, const char *name, double rows_in, double rows_out) {
  int kernels = b->options->moe_permute_fusion ? 2 : 6;
  double element_B = kind == MS_OP_PERMUTE && ms_low_dispatch(b) ? b->quant_B : 2;
  MsOp *op = ms_row_memory(b, kind, name, element_B * rows_in * b->eh, element_B * rows_out * b->eh, kernels);
  op->m = MAX(rows_in, rows_out), op->n = b->eh;
  double passes = b->options->moe_permute_fusion ? 1 : b->scenario->laws.plain_permute_bytes;
  op->read_B *= passes, op->write_B *= passes;
}

static gboolean sorts(const MsBuild *b) {
  return dispatcher(b)->permutes == MS_PERMUTE_SENDER && b->e * b->u > 1 && b->local_experts > 1;
}

/* With EP overlap all that a layer does around combine runs on the stream of the exchanges: forward the sum over the
 * experts and the residual behind it, backward their gradients in front of it (Megatron-LM
 * models/common/fine_grained_callables.py, the node of combine). Compute of the other microbatch does not wait for it.
 */
void ms_enter_exchange_stream(MsBuild *b) {
  if (b->options->ep_overlap && group(b)->size > 1) b->beside = MS_STREAM_EP;
}

void ms_leave_exchange_stream(MsBuild *b) { b->beside = MS_STREAM_COMPUTE; }

/* A dispatcher that sorts the tokens by expert itself (HybridEP) does so in an ordinary kernel behind dispatch and one
 * in front of combine unless they are fused into the exchange, which Megatron-LM leaves off
 * (moe_permute_fusion_into_hybridep; DeepEP branch hybrid-ep 94a9f8f, executor.cu). They belong to the exchange: with
 * EP overlap they run on its stream. */
static void permute_of_exchange(MsBuild *b, MsOpKind kind, const char *name, double rows_in, double rows_out) {
  if (dispatcher(b)->permutes != MS_PERMUTE_EXCHANGE || group(b)->size <= 1) return;
  MsStream stream = b->beside;
  b->node = kind == MS_OP_PERMUTE ? MS_NODE_DISPATCH : MS_NODE_COMBINE;
  ms_enter_exchange_stream(b);
  MsOp *op = ms_row_memory(b, kind, name, 2 * rows_in * b->eh, 2 * rows_out * b->eh, 1);
  op->m = MAX(rows_in, rows_out), op->n = b->eh;
  b->beside = stream;
}

/* Without a fixed budget the host must know how many rows arrive before it can make room for them and issue what moves
 * them: sizes of an all-to-all, which a copy brings; counters that the first kernel of DeepEP's or HybridEP's dispatch
 * writes (docs/theory/communication.md 5). Where all tokens move the host asks for the numbers behind that. */
static gboolean host_waits(const MsBuild *b) { return dropless(b) && !ms_serial(b); }

static gboolean waits_behind(const MsBuild *b) {
  switch (dispatcher(b)->host_waits) {
  case MS_WAIT_BEFORE: break;
  case MS_WAIT_BEHIND: return TRUE;
  }
  return FALSE;
}

static void await_counts(MsBuild *b) {
  if (!host_waits(b) || waits_behind(b)) return;
  b->node = MS_NODE_DISPATCH;
  MsOp *op = ms_row_comm(b, MS_OP_D2H, "row counts to host", MS_STREAM_EP, MS_GROUP_TP_EP, 8.0 * b->local_experts);
  if (op) op->flags |= MS_OPF_SYNC;
}

/* Rows that are dropped, or padded by the router, are counted before there is room for them: the host waits in front of
 * the permutation, else behind it (Megatron-LM core/transformer/moe/token_dispatcher.py, cuda_sync_point). */
static gboolean permutes_counted(const MsBuild *b) {
  return dispatcher(b)->permutes == MS_PERMUTE_SENDER &&
         (b->training->routing.kind == MS_ROUTING_CAPACITY || b->options->moe_router_padding_for_quantization);
}

/* Experts of one rank alone: nothing is exchanged, but the host reads how many rows each of them has before it issues
 * their products, from a copy that follows the counting. */
static void await_own_counts(MsBuild *b, int counted) {
  if (group(b)->size > 1 || !host_waits(b) || !ms_framework(b->scenario)->launched || b->pass == MS_PASS_DGRAD) return;
  MsOp *op = ms_row_async(b, MS_OP_PREPROCESS, "row counts to host", MS_STREAM_SIDE);
  op->read_B = op->write_B = 8.0 * b->local_experts;
  op->wait[0] = (gint16)counted, op->wait[1] = op->wait[2] = -1;
  op->flags |= MS_OPF_SYNC;
}

/* How many rows each rank sends to each expert, E int64 of every rank (docs/theory/communication.md 5.2). */
static void gather_counts(MsBuild *b) {
  if (!dropless(b)) return;
  ms_row_comm(b, MS_OP_ALL_GATHER, "token counts", MS_STREAM_EP, MS_GROUP_TP_EP,
              8.0 * b->model->num_experts * group(b)->size);
}

/* HybridEP gathers the map of all ranks, a byte for each token and expert, before every dispatch forward, with NCCL,
 * and reads it through for the places of tokens (DeepEP, branch hybrid-ep: executor.cu; the published calls go without,
 * they are given the handle of an earlier one). */
static void gather_routing_map(MsBuild *b) {
  const MsGroup *g = group(b);
  if (g->size <= 1) return;
  double map_B = b->rows_sp * b->model->num_experts * g->size, rows = b->rows_sp * g->size;
  b->node = MS_NODE_DISPATCH;
  b->module = MS_MODULE_MOE;
  ms_row_comm(b, MS_OP_ALL_GATHER, "routing map", MS_STREAM_EP, MS_GROUP_TP_EP, map_B);
  ms_enter_exchange_stream(b); /* as all of dispatch */
  ms_row_memory(b, MS_OP_PREPROCESS, "places of tokens", map_B,
                5 * rows * b->local_experts + 4 * b->rows_sp * g->per_domain, 2);
  ms_leave_exchange_stream(b);
}

/* In preprocessing, and in front of dispatch. */
static void ask(MsBuild *b, gboolean in_preprocess) {
  switch (dispatcher(b)->asks) {
  case MS_ASK_NOTHING: break;
  case MS_ASK_COUNTS:
    if (in_preprocess) gather_counts(b);
    break;
  case MS_ASK_MAP:
    if (!in_preprocess) gather_routing_map(b);
    break;
  }
}

/* Rows that arrive before they are sorted by expert. */
static double received_rows(const MsBuild *b) {
  if (group(b)->size <= 1) return b->rows_sp;
  switch (dispatcher(b)->carry) {
  case MS_CARRY_COPIES: return b->rows_expert;
  case MS_CARRY_ALL: return MIN(b->rows_expert, b->rows_sp * group(b)->size);
  case MS_CARRY_ONCE: return b->rows_sp * ms_fan_out(b, ms_rank_skew(b)).x_rank;
  }
  return b->rows_sp;
}

static gboolean permutes(const MsBuild *b, MsPermutes side) {
  return group(b)->size > 1 ? dispatcher(b)->permutes == side : side == MS_PERMUTE_SENDER;
}

/* Experts of PyTorch's operators (indexed.c): the ranks of an expert group tell each other how many rows come, the host
 * waits for the sums of that, and rows go as they are in order; gradients on the way back come the same ways. */
static void indexed_counts(MsBuild *b) {
  if (b->pass == MS_PASS_DGRAD) return;
  b->node = MS_NODE_DISPATCH;
  ms_row_comm(b, MS_OP_ALL_TO_ALL, "token counts", MS_STREAM_EP, MS_GROUP_EP, 8.0 * b->model->num_experts);
  await_counts(b);
}

static void indexed_to_experts(MsBuild *b) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  b->node = MS_NODE_ATTN;
  b->module = MS_MODULE_MOE;
  if (!back) ms_indexed_order(b);
  if (back) ms_indexed_row(b, MS_INDEXED_WEIGH);
  ms_indexed_row(b, back ? MS_INDEXED_PLACE : MS_INDEXED_GATHER);
  if (back) ms_free_kept(b, "expert output");
  indexed_counts(b);
  cross(b, TRUE);
  b->node = MS_NODE_EXPERTS;
  if (!back) {
    ms_indexed_row(b, MS_INDEXED_STACK);
    ms_indexed_places(b);
  }
  ms_indexed_row(b, back ? MS_INDEXED_UNGROUP : MS_INDEXED_GROUP);
}

/* What combine brings is waited for where PyTorch's layers use it, behind the shared expert (a backward waits at once:
 * torch/csrc/distributed/c10d/Functional.cpp, AllToAllSingle). */
static void combine(MsBuild *b) {
  int ready = b->tip;
  cross(b, FALSE);
  if (!ms_torch_experts(b) || b->pass == MS_PASS_DGRAD) return;
  int combined = b->tip;
  b->tip = ready;
  ms_shared_here(b);
  if (combined != ready) ms_join(b, combined);
  b->module = MS_MODULE_MOE;
}

static void indexed_from_experts(MsBuild *b) {
  gboolean back = b->pass == MS_PASS_DGRAD;
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  ms_indexed_row(b, back ? MS_INDEXED_GROUP : MS_INDEXED_UNGROUP);
  combine(b);
  b->node = MS_NODE_COMBINE;
  ms_indexed_row(b, back ? MS_INDEXED_GATHER : MS_INDEXED_PLACE);
  if (!back) ms_indexed_row(b, MS_INDEXED_WEIGH);
}

/* Tokens from the router to expert order on their expert ranks. */
void ms_to_experts(MsBuild *b) {
  if (ms_indexed(b)) {
    indexed_to_experts(b);
    return;
  }
  double arrive = received_rows(b);
  gboolean back = b->pass == MS_PASS_DGRAD;
  int counted = -1;
  b->node = MS_NODE_ATTN;
  b->module = back ? MS_MODULE_MOE : MS_MODULE_PREPROCESS;
  if (!back) {
    double maps = padded(b) ? 0 : 9 * b->rows_sp * b->model->num_experts; /* experts have as many rows as it was said */
    ms_row_memory(b, MS_OP_PREPROCESS, "dispatch preprocess", maps, maps / 2,
                  padded(b)                        ? 1
                  : b->options->moe_permute_fusion ? 4
                                                   : 10);
    counted = b->tip;
    ask(b, TRUE);
    b->module = MS_MODULE_MOE;
    if (permutes_counted(b)) await_counts(b);
    b->node = MS_NODE_ATTN;
  }
  if (permutes(b, MS_PERMUTE_SENDER)) permute(b, MS_OP_PERMUTE, "permute", b->rows_sp, b->rows_routed);
  if (ms_low_dispatch(b)) ms_row_quantize(b, "quantize tokens", b->rows_sp, b->eh);
  int input = b->tip;
  if (!back) ask(b, FALSE);
  if (!back && !permutes_counted(b)) await_counts(b);
  await_own_counts(b, counted);
  cross(b, TRUE);
  if (!back && dropless(b) && group(b)->size > 1 && waits_behind(b)) b->list->op[b->list->n - 1].flags |= MS_OPF_SYNC;
  permute_of_exchange(b, MS_OP_PERMUTE, "permute", arrive, b->rows_expert);
  ms_leave_exchange_stream(b);
  ms_shared_half(b, TRUE, input);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  etp_gather(b, TRUE);
  if (sorts(b)) permute(b, MS_OP_SORT_CHUNKS, "sort chunks", b->rows_expert, b->rows_expert);
  if (permutes(b, MS_PERMUTE_RECEIVER)) permute(b, MS_OP_PERMUTE, "permute", arrive, b->rows_expert);
}

/* Expert outputs back to token order, summed. */
void ms_from_experts(MsBuild *b) {
  if (ms_indexed(b)) {
    indexed_from_experts(b);
    return;
  }
  double arrive = received_rows(b);
  b->node = MS_NODE_EXPERTS;
  b->module = MS_MODULE_MOE;
  if (sorts(b)) permute(b, MS_OP_SORT_CHUNKS, "unsort chunks", b->rows_expert, b->rows_expert);
  if (permutes(b, MS_PERMUTE_RECEIVER)) permute(b, MS_OP_UNPERMUTE, "unpermute", b->rows_expert, arrive);
  etp_gather(b, FALSE);
  permute_of_exchange(b, MS_OP_UNPERMUTE, "unpermute", b->rows_expert, arrive);
  int input = b->tip;
  combine(b);
  ms_shared_half(b, FALSE, input);
  b->node = MS_NODE_COMBINE;
  if (b->pass == MS_PASS_FORWARD) ms_enter_exchange_stream(b);
  if (permutes(b, MS_PERMUTE_SENDER)) permute(b, MS_OP_UNPERMUTE, "unpermute", b->rows_routed, b->rows_sp);
}

/* Copies of tokens are referenced until the layer is done: as they were sent, as they arrived and sorted by expert,
 * where these are not the same; of the last that which is kept, if it is in BF16, does not count (Megatron-LM
 * core/transformer/moe/moe_layer.py, forward; token_dispatcher.py, dispatch_postprocess). */
static double copied_transient_B(const MsBuild *b, double tokens) {
  gboolean crosses = group(b)->size > 1, apart = b->local_experts > 1 || b->u > 1;
  double in_front = (crosses && apart ? 2 : 1) + (b->quantized ? 1 : 0);
  return MAX((in_front + 2) * tokens, in_front * tokens + ms_experts_transient_B(b));
}

/* All tokens of the group stand in the buffer of the gather. Beside them first the experts' outputs and the sums over
 * this rank's experts, then those sums, FP32 copies of them and what is left of them for the rank's own tokens
 * (Megatron-LM core/transformer/moe/token_dispatcher.py, MoEAllGatherTokenDispatcher). */
static double gathered_transient_B(const MsBuild *b, double tokens) {
  double own = 2 * b->rows_sp * b->eh, all = own * group(b)->size, sorted = b->quantized ? tokens : 0;
  if (group(b)->size <= 1) return sorted + tokens + own;
  return all + MAX(sorted + MAX(tokens + all, ms_experts_transient_B(b)), 3 * all + 2 * own);
}

/* Buffers that are all referenced while the layer's own kept tensors exist (docs/theory/memory.md 7). */
double ms_dispatch_transient_B(const MsBuild *b) {
  double factor =
      b->options->moe_expert_rank_capacity_factor; /* buffers are sized for the budget, whatever is computed of it */
  double tokens = 2 * MAX(b->rows_expert, isnan(factor) ? 0 : factor * b->rows_routed * b->u) * b->eh;
  if (carries_once(b)) return 2 * b->rows_sp * b->eh * (ms_fan_out(b, 1).x_rank + 1) + 2 * tokens;
  return dispatcher(b)->carry == MS_CARRY_ALL ? gathered_transient_B(b, tokens) : copied_transient_B(b, tokens);
}
