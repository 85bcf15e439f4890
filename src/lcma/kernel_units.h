/* src/lcma/kernel_units.h - the kernels of each unit, for float and for double; see unit_NAME.c. */
#ifndef MS_LCMA_KERNEL_UNITS_H
#define MS_LCMA_KERNEL_UNITS_H

#include "lcma/kernel.h"

extern const MsKernel ms_kernels_plain[2];
#if defined(__x86_64__)
extern const MsKernel ms_kernels_sse2[2], ms_kernels_avx2[2], ms_kernels_avx512[2], ms_kernel_avx512_bf16,
    ms_kernels_avx512_whole[3];
#elif defined(__aarch64__)
extern const MsKernel ms_kernels_neon[2];
const MsKernel *ms_kernels_sve(void); /* by the length of this CPU's vectors; NULL where the compiler lacks them */
#endif

#endif
