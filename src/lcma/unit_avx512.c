/* src/lcma/unit_avx512.c - the arithmetic of kernel.h in AVX-512. */
#include "lcma/kernel_units.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x)      f32_##x
#define TARGET       __attribute__((target("avx512f")))
#define REAL         float
#define VECTOR       __m512
#define LANES        16
#define MR           14
#define LOAD(p)      _mm512_loadu_ps(p)
#define STORE(p, x)  _mm512_storeu_ps(p, x)
#define STREAM(p, x) _mm512_stream_ps(p, x)
#define SET(x)       _mm512_set1_ps(x)
#define ADD(x, y)    _mm512_add_ps(x, y)
#define MUL(x, y)    _mm512_mul_ps(x, y)
#define FMA(x, y, z) _mm512_fmadd_ps(x, y, z)
#define ZERO()       _mm512_setzero_ps()
#include "lcma/unit_real.h"

#define NAME(x)      f64_##x
#define TARGET       __attribute__((target("avx512f")))
#define REAL         double
#define VECTOR       __m512d
#define LANES        8
#define MR           14
#define LOAD(p)      _mm512_loadu_pd(p)
#define STORE(p, x)  _mm512_storeu_pd(p, x)
#define STREAM(p, x) _mm512_stream_pd(p, x)
#define SET(x)       _mm512_set1_pd(x)
#define ADD(x, y)    _mm512_add_pd(x, y)
#define MUL(x, y)    _mm512_mul_pd(x, y)
#define FMA(x, y, z) _mm512_fmadd_pd(x, y, z)
#define ZERO()       _mm512_setzero_pd()
#include "lcma/unit_real.h"

const MsKernel ms_kernels_avx512[2] = {MS_REAL_KERNEL("avx512 f32 14x32", 4, 14, 32, f32),
                                       MS_REAL_KERNEL("avx512 f64 14x16", 8, 14, 16, f64)};
#endif
