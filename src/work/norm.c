/* src/work/norm.c - rows of a norm over the width of its tensor. */
#include "work/build.h"

void ms_norm_forward(MsBuild *b, const char *name, double rows, double width) {
  MsOp *op = ms_row_memory(b, MS_OP_NORM, name, 2 * rows * width, 2 * rows * width, 1);
  op->m = rows, op->n = width;
}

void ms_norm_backward(MsBuild *b, const char *name, double rows, double width) {
  b->pass = MS_PASS_DGRAD;
  MsOp *op = ms_row_memory(b, MS_OP_NORM, name, 4 * rows * width, 2 * rows * width, 2);
  op->m = rows, op->n = width;
}
