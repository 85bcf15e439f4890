/* src/lcma/kernel_units.h - the kernels of each unit, for float and for double; see unit_NAME.c. */
#ifndef MS_LCMA_KERNEL_UNITS_H
#define MS_LCMA_KERNEL_UNITS_H

#include "lcma/kernel.h"

/* A row of the table of a unit of unit_real.h, whose names begin with `type`. */
#define MS_REAL_KERNEL(title, element_B, rows, columns, type)                                                      \
  {                                                                                                                \
    .name = title, .real_B = element_B, .mr = rows, .nr = columns, .tile = type##_tile, .combine = type##_combine, \
    .depth = 1                                                                                                     \
  }

/* Tiles of 32 columns of elements of `numbers` numbers each. */
#define MS_NARROW_KERNEL(title, rows, multiply, numbers, for_a, for_b)                                       \
  {                                                                                                          \
    .name = title, .real_B = 4, .mr = rows, .nr = 32, .tile = multiply, .depth = numbers, .narrow_a = for_a, \
    .narrow_b = for_b                                                                                        \
  }

extern const MsKernel ms_kernels_plain[2];
#if defined(__x86_64__)
extern const MsKernel ms_kernels_sse2[2], ms_kernels_avx2[2], ms_kernels_avx512[2], ms_kernel_avx512_bf16,
    ms_kernels_avx512_whole[3], ms_kernel_amx_bf16, ms_kernel_amx_int8;
void ms_avx512_narrow_a_bf16(void *out, const float *in, size_t n); /* as in MsKernel */
void ms_avx512_narrow_b_bf16(void *out, size_t step, const float *in, size_t n, int which);
void ms_avx512_narrow_b_int8(void *out, size_t step, const float *in, size_t n, int which);
#elif defined(__aarch64__)
extern const MsKernel ms_kernels_neon[2];
const MsKernel *ms_kernels_sve(void); /* by the length of this CPU's vectors; NULL where the compiler lacks them */
#endif

#endif
