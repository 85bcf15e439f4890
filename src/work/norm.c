/* src/work/norm.c - rows of a norm over the width of its tensor. */
#include "work/build.h"

/* RMSNorm of PyTorch as its operators (aten/src/ATen/native/layer_norm.cpp before 2.9): to FP32, square, mean, root,
 * product with it, to BF16, product with the weight; LayerNorm is one kernel. */
static gboolean one_by_one(const MsBuild *b) {
  switch (b->model->normalization) {
  case MS_NORM_RMS: return !b->options->torch_compile;
  case MS_NORM_LAYER: break;
  }
  return FALSE;
}

double ms_norm_saved_B(const MsBuild *b, double elements) {
  return (one_by_one(b) && !ms_by_operators(b) ? 4 + 2 : 2) * elements; /* a checkpoint has the input alone */
}

static void row(MsBuild *b, const char *name, double rows, double width, double read_B, double write_B, int kernels) {
  MsOp *op = ms_row_memory(b, one_by_one(b) ? MS_OP_ADD : MS_OP_NORM, name, read_B * rows * width,
                           write_B * rows * width, kernels);
  op->m = rows, op->n = width;
}

void ms_norm_forward(MsBuild *b, const char *name, double rows, double width) {
  if (one_by_one(b)) row(b, name, rows, width, 2 + 4 + 4 + 4 + 4 + 2, 4 + 4 + 4 + 2 + 2, 8);
  else row(b, name, rows, width, 2, 2, 1);
}

/* Backward of each operator (tools/autograd/derivatives.yaml): of the weight's product both factors and a sum over
 * rows, to FP32, of the root's product both factors and a sum over the width, of the mean one tensor, of the square a
 * power and two products, the sum of both gradients of the FP32 tensor, to BF16. */
void ms_norm_backward(MsBuild *b, const char *name, double rows, double width) {
  b->pass = MS_PASS_DGRAD;
  if (one_by_one(b)) row(b, name, rows, width, 8 + 2 + 16 + 16 + 8 + 4, 4 + 4 + 8 + 4 + 12 + 4 + 2, 18);
  else row(b, name, rows, width, 4, 2, 2);
}
