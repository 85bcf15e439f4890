/* src/work/shared_expert.c - the shared expert beside the crossings (docs/theory/communication.md 8 end): its first
 * half beside dispatch, its second beside combine, on a stream of its own, TP collectives included. */
#include "work/moe.h"

#include <math.h>

gboolean ms_shared_beside(const MsBuild *b) {
  return b->options->moe_shared_expert_overlap && b->model->moe_shared_expert_intermediate_size > 0;
}

static gboolean keeps_shared(const MsBuild *b) {
  return !ms_recomputes(b->options, MS_RM_MOE) && !ms_recomputes(b->options, MS_RM_SHARED_EXPERTS);
}

/* All but delayed scaling save the BF16 tensor itself (Megatron-LM core/transformer/moe/shared_experts.py,
 * set_save_original_input): the router's, unless it was gathered apart. */
double ms_shared_input_B(const MsBuild *b) {
  gboolean delayed = b->quantized && ms_precision(b->training)->delayed;
  gboolean gathered = ms_shared_beside(b) && b->sp && b->t > 1;
  if (!delayed && !gathered) return 0;
  return (gathered ? b->rows : b->rows_sp) * b->h * (delayed ? b->quant_B : 2);
}

static void keep_shared(MsBuild *b, double fs) {
  if (!keeps_shared(b)) return;
  ms_keep_input(b, "shared input", ms_shared_input_B(b));
  ms_keep(b, "shared fc1 out", ms_activation_input_B(b, b->rows * ms_fc1_width(b, fs) / b->t));
  if (!ms_activation_again(b)) ms_keep(b, "shared gate parts", ms_gate_parts_B(b, b->rows * fs / b->t, FALSE));
  if (!ms_activation_again(b)) ms_keep_input(b, "shared activation out", ms_input_B(b, b->rows * fs / b->t, TRUE));
}

/* A sigmoid of one product per token scales the shared expert's output, which the product keeps; its backward
 * multiplies twice, sums the second, and makes both gradients of the 1-wide product (Megatron-LM
 * core/transformer/moe/shared_experts.py, forward and get_output). */
static void gate_row(MsBuild *b) {
  double x = 2 * b->rows_sp * b->h;
  gboolean back = b->pass == MS_PASS_DGRAD;
  int kernels = (int)ceil((back ? 6 : 3) * b->scenario->laws.plain_operators);
  ms_row_memory(b, MS_OP_ACTIVATION, "shared gate", (back ? 5 : 2) * x, (back ? 3 : 1) * x, kernels);
}

static void gate_forward(MsBuild *b) {
  if (!b->model->moe_shared_expert_gate) return;
  gate_row(b);
  if (keeps_shared(b)) ms_keep(b, "shared expert out", 2 * b->rows_sp * b->h);
}

void ms_shared_gate_backward(MsBuild *b) {
  if (!b->model->moe_shared_expert_gate) return;
  MsPass pass = b->pass;
  b->pass = MS_PASS_DGRAD;
  gate_row(b);
  ms_free_kept(b, "shared expert out");
  b->pass = pass;
}

/* `from`: the row that its input comes from. */
void ms_shared_half(MsBuild *b, gboolean first, int from) {
  double fs = b->model->moe_shared_expert_intermediate_size;
  if (!ms_shared_beside(b)) return;
  MsLinear up = ms_linear_fc1(b, "shared fc1", fs);
  MsLinear down = ms_linear_of("shared fc2", MS_LINEAR_ROW, b->rows, b->h, fs / b->t);
  /* Megatron-LM core/transformer/moe/shared_experts.py, pre_forward_comm and post_forward_comm */
  up.gathered = down.gathered = b->sp && b->t > 1;
  MsPass pass = b->pass;
  MsModule module = b->module;
  MsNode node = b->node;
  int tip = b->tip, join[2] = {b->join[0], b->join[1]};
  b->join[0] = b->join[1] = -1;
  b->tip = from, b->beside = MS_STREAM_SIDE, b->module = MS_MODULE_SHARED, b->node = MS_NODE_ATTN;
  if (b->shared >= 0 && b->shared != from) ms_join(b, b->shared);
  if (pass != MS_PASS_DGRAD && first) {
    ms_linear_forward(b, &up);
    ms_activation(b, MS_OP_ACTIVATION, "activation", b->rows, fs / b->t);
    ms_store_activation_input(b, b->rows, fs / b->t);
    keep_shared(b, fs);
  } else if (pass != MS_PASS_DGRAD) {
    ms_linear_forward(b, &down);
    gate_forward(b);
  } else if (first) {
    ms_shared_gate_backward(b);
    ms_recompute_activation(b, fs / b->t);
    ms_linear_backward(b, &down);
    b->pass = MS_PASS_DGRAD;
    ms_restore_activation_input(b, b->rows, fs / b->t);
    ms_activation(b, MS_OP_ACTIVATION, "activation", b->rows, fs / b->t);
  } else {
    ms_linear_backward(b, &up);
  }
  b->shared = b->tip;
  b->tip = tip, b->join[0] = join[0], b->join[1] = join[1];
  b->beside = MS_STREAM_COMPUTE, b->pass = pass, b->module = module, b->node = node;
}

void ms_shared_here(MsBuild *b) {
  double fs = b->model->moe_shared_expert_intermediate_size;
  if (fs <= 0 || ms_shared_beside(b)) return;
  b->module = MS_MODULE_SHARED;
  ms_mlp_core_forward(b, "shared fc1", "shared fc2", fs);
  keep_shared(b, fs);
  gate_forward(b);
}

void ms_join_shared(MsBuild *b) { /* the next row adds the output of the shared expert */
  ms_join(b, b->shared);
  b->shared = -1;
}
