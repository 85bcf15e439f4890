/* src/exec/kernel_f32.c - the kernels for float. */
#define REAL      float
#define REAL_B    4
#define SQRT      sqrtf
#define LOG       logf
#define LOG1P     log1pf
#define REAL_TINY G_MINFLOAT
#define TABLE     ms_kernels_f32
#include "exec/kernel_units.inc"
