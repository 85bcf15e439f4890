#include "base/vector.h"
#include "lcma/kernel_units.h"

const MsKernel *ms_kernel_for(int unit, size_t real_B) {
  const MsKernel *kernels = unit == MS_VECTOR_PLAIN ? ms_kernels_plain : NULL;
#if defined(__x86_64__)
  if (unit == MS_VECTOR_SSE2) kernels = ms_kernels_sse2;
  if (unit == MS_VECTOR_AVX2) kernels = ms_kernels_avx2;
  if (unit == MS_VECTOR_AVX512 || unit == MS_VECTOR_AMX) kernels = ms_kernels_avx512;
#elif defined(__aarch64__)
  if (unit == MS_VECTOR_NEON) kernels = ms_kernels_neon;
  if (unit == MS_VECTOR_SVE) kernels = ms_kernels_sve();
#endif
  return kernels ? &kernels[real_B == 8] : NULL;
}

const MsKernel *ms_kernel_bf16(int unit) {
#if defined(__x86_64__)
  if (unit == MS_VECTOR_AMX) return &ms_kernel_amx_bf16;
  if (unit == MS_VECTOR_AVX512 && __builtin_cpu_supports("avx512bf16")) return &ms_kernel_avx512_bf16;
#endif
  (void)unit;
  return NULL;
}

const MsKernel *ms_kernel_whole(int unit, int bits) {
#if defined(__x86_64__)
  if (unit == MS_VECTOR_AMX && bits == 8) return &ms_kernel_amx_int8;
  if ((unit == MS_VECTOR_AVX512 || unit == MS_VECTOR_AMX) && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return &ms_kernels_avx512_whole[bits / 16];
#endif
  (void)unit;
  (void)bits;
  return NULL;
}
