/* src/describe/precision.c - the rows of precision.def. */
#include "describe/precision.h"

#include "describe/hardware.h"

#include <stddef.h>

/* As many parameters as MsPrecisionRow has columns: a row that leaves one out does not compile. */
#define MS_PRECISION(id, w, d, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, \
                     c20, c21, c22, c23, c24, c25)                                                                   \
  [MS_##id] = {c1,  c2,  c3,  c4,  c5,  c6,  c7,  c8,  c9,  c10, c11, c12,       c13,     c14,                       \
               c15, c16, c17, c18, c19, c20, c21, c22, c23, c24, c25, .word = w, .doc = d},
#define MS_PEAK(key) \
  { offsetof(MsHardware, key), #key }
const MsPrecisionRow ms_precisions[] = {
#include "describe/precision.def"
};

#define MS_NO_OTHER -1
#define MS_CURVES_OF(...) \
  (const gint8[]) { __VA_ARGS__, -1 }
#define MS_OP_DTYPE(id, w, c1, c2, c3, c4, c5) [MS_ODT_##id] = {c1, c2, c3, c4, c5, .word = w},
const MsOpDtypeRow ms_op_dtypes[] = {
#include "describe/op_dtype.def"
};

int ms_precision_of(int bits, MsDtype dtype) {
  for (int i = 0; i < MS_N_PRECISIONS; i++)
    if (ms_precisions[i].bits == bits && ms_precisions[i].dtype == dtype) return i;
  return -1;
}
