/* src/lcma/unit_sse2.c - the arithmetic of kernel.h in SSE2. */
#include "lcma/kernel_units.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x)      f32_##x
#define TARGET       __attribute__((target("sse2")))
#define REAL         float
#define VECTOR       __m128
#define LANES        4
#define MR           6
#define LOAD(p)      _mm_loadu_ps(p)
#define STORE(p, x)  _mm_storeu_ps(p, x)
#define STREAM(p, x) _mm_stream_ps(p, x)
#define SET(x)       _mm_set1_ps(x)
#define ADD(x, y)    _mm_add_ps(x, y)
#define MUL(x, y)    _mm_mul_ps(x, y)
#define FMA(x, y, z) _mm_add_ps(_mm_mul_ps(x, y), z)
#define ZERO()       _mm_setzero_ps()
#include "lcma/unit_real.h"

#define NAME(x)      f64_##x
#define TARGET       __attribute__((target("sse2")))
#define REAL         double
#define VECTOR       __m128d
#define LANES        2
#define MR           6
#define LOAD(p)      _mm_loadu_pd(p)
#define STORE(p, x)  _mm_storeu_pd(p, x)
#define STREAM(p, x) _mm_stream_pd(p, x)
#define SET(x)       _mm_set1_pd(x)
#define ADD(x, y)    _mm_add_pd(x, y)
#define MUL(x, y)    _mm_mul_pd(x, y)
#define FMA(x, y, z) _mm_add_pd(_mm_mul_pd(x, y), z)
#define ZERO()       _mm_setzero_pd()
#include "lcma/unit_real.h"

const MsKernel ms_kernels_sse2[2] = {MS_REAL_KERNEL("sse2 f32 6x8", 4, 6, 8, f32),
                                     MS_REAL_KERNEL("sse2 f64 6x4", 8, 6, 4, f64)};
#endif
