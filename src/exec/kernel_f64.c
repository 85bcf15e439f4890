/* src/exec/kernel_f64.c - the kernels for double. */
#define REAL      double
#define REAL_B    8
#define SQRT      sqrt
#define LOG       log
#define LOG1P     log1p
#define REAL_TINY G_MINDOUBLE
#define TABLE     ms_kernels_f64
#include "exec/kernel_units.inc"
