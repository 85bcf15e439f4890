/* tests/lib/kernel_case.h - one kernel of exec/kernel.h as a function of some inputs to some outputs, checked in every
 * way at once.
 *
 * A case says how long its arrays are, calls the kernel forward and (if it has one) backward, and computes the outputs
 * naively in double. ms_kernel_case_check draws inputs that float can hold and asserts, for float and double and for
 * every vector unit of the CPU: forward against the naive oracle, largest error over largest value: `bound32` float,
 * 1e-12 double (of sums of a few hundred terms); backward in double against central differences of the oracle, 2e-6; in
 * float against backward in double, `bound32`; gradients that are added to: what stood there stays in the sum; those
 * that are written: NaN stood there; all units give the same bits. */
#ifndef MS_TESTS_KERNEL_CASE_H
#define MS_TESTS_KERNEL_CASE_H

#include "exec/kernel.h"

enum { MS_CASE_ARRAYS = 8 };

typedef struct MsKernelCase MsKernelCase;
struct MsKernelCase {
  const char *name;
  gint64 p[12];                                   /* whatever the functions read: rows, width, kind … */
  gint64 in[MS_CASE_ARRAYS], out[MS_CASE_ARRAYS]; /* elements of each array; 0 ends */
  double low, high;                               /* of the inputs; 0, 0 = -2, 2 */
  double bound32;                                 /* 0 = 2e-6 */
  guint added;                                    /* bit i: the gradient of input i is added to */
  guint constant;                                 /* bit i: input i has no gradient */
  void (*forward)(const MsKernelCase *c, const MsKernels *k, MsKernelRun *run, void *const *x, void **y);
  void (*backward)(const MsKernelCase *c, const MsKernels *k, MsKernelRun *run, void *const *x, void *const *y,
                   void *const *dy, void **dx); /* NULL = none */
  void (*oracle)(const MsKernelCase *c, double *const *x, double **y);
};
void ms_kernel_case_check(const MsKernelCase *c);

/* Integers that cases draw: the same for the same arguments. */
gint32 *ms_case_ints(gint64 n, gint32 below, guint32 seed); /* (transfer full) */
gint64 *ms_case_longs(gint64 n, gint64 low, gint64 below, guint32 seed);

/* Element i of an array that k's kernels work on. */
double ms_case_get(const MsKernels *k, const void *x, gint64 i);
void ms_case_set(const MsKernels *k, void *x, gint64 i, double value);

/* The three functions of a case, and its row in a table of cases. */
#define FORWARD(name) \
  static void name##_forward(const MsKernelCase *c, const MsKernels *k, MsKernelRun *run, void *const *x, void **y)
#define BACKWARD(name)                                                                                     \
  static void name##_backward(const MsKernelCase *c, const MsKernels *k, MsKernelRun *run, void *const *x, \
                              void *const *y, void *const *dy, void **dx)
#define ORACLE(name) static void name##_oracle(const MsKernelCase *c, double *const *x, double **y)
#define THREE(name)  .forward = name##_forward, .backward = name##_backward, .oracle = name##_oracle
#define UNUSED       (void)c, (void)k, (void)run, (void)x, (void)y
#define CHECK_ALL(cases)                                                         \
  for (size_t case_number = 0; case_number < G_N_ELEMENTS(cases); case_number++) \
  ms_kernel_case_check(&(cases)[case_number])

#endif
