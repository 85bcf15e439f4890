/* src/exec/block.c - copies and sums of blocks of elements that are no kernels of a row of their own, and the batch. */
#include "exec/state_priv.h"

#include "base/hash.h"
#include <string.h>

void ms_exec_copy(const Exec *x, gint64 rows, gint64 width, const void *from, gint64 from_stride, void *to,
                  gint64 to_stride) {
  size_t e = x->k->real_B;
  for (gint64 i = 0; i < rows; i++)
    memcpy((char *)to + (size_t)(i * to_stride) * e, (const char *)from + (size_t)(i * from_stride) * e,
           (size_t)width * e);
}

#define BOTH(body)                     \
  if (x->k->real_B == sizeof(float)) { \
    typedef float real;                \
    body                               \
  } else {                             \
    typedef double real;               \
    body                               \
  }

void ms_exec_add_to(const Exec *x, gint64 rows, gint64 width, const void *from, gint64 from_stride, void *to,
                    gint64 to_stride) {
  BOTH(const real *a = from; real *b = to;
       for (gint64 i = 0; i < rows; i++, a += from_stride, b += to_stride) for (gint64 j = 0; j < width; j++) b[j] +=
       a[j];)
}

void ms_exec_add_row(const Exec *x, gint64 rows, gint64 width, const void *row, void *to) {
  ms_exec_add_to(x, rows, width, row, 0, to, width);
}
void ms_exec_sum_rows(const Exec *x, gint64 rows, gint64 width, const void *from, void *to) {
  ms_exec_add_to(x, rows, width, from, width, to, 0);
}

void ms_exec_fill(const Exec *x, gint64 n, double value, void *to) {
  BOTH(real *a = to; for (gint64 i = 0; i < n; i++) a[i] = (real)value;)
}

double ms_exec_read(const Exec *x, const void *p, gint64 i) {
  return x->k->real_B == sizeof(float) ? ((const float *)p)[i] : ((const double *)p)[i];
}

void ms_exec_write(const Exec *x, void *p, gint64 i, double value) {
  if (x->k->real_B == sizeof(float)) ((float *)p)[i] = (float)value;
  else ((double *)p)[i] = value;
}

/* --- the batch and the weights: functions of names and numbers only -------------------------------------------- */

static guint64 name_seed(const char *name) {
  guint64 seed = 0xcbf29ce484222325u;
  for (; *name; name++) seed = (seed ^ (guint8)*name) * 0x100000001b3u;
  return seed;
}

double ms_exec_weight(const char *name, gint64 index) {
  return (double)(gint64)(ms_drawn(name_seed(name) ^ ms_drawn((guint64)index)) >> 11) * 0x1p-52 - 1;
}

gint64 ms_exec_sequence(const Exec *x, int mb, int b) { return ((gint64)mb * x->layout->dp + x->di) * x->b + b; }

gint32 ms_exec_token(const Exec *x, gint64 sequence, gint64 position) {
  return (gint32)(ms_drawn(ms_drawn((guint64)sequence) + (guint64)position) % (guint64)x->model->vocab_size);
}
