/* src/lcma/unit_avx2.c - the arithmetic of kernel.h in AVX2 with FMA. */
#include "lcma/kernel_units.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x)      f32_##x
#define TARGET       __attribute__((target("avx2,fma")))
#define REAL         float
#define VECTOR       __m256
#define LANES        8
#define MR           6
#define LOAD(p)      _mm256_loadu_ps(p)
#define STORE(p, x)  _mm256_storeu_ps(p, x)
#define STREAM(p, x) _mm256_stream_ps(p, x)
#define SET(x)       _mm256_set1_ps(x)
#define ADD(x, y)    _mm256_add_ps(x, y)
#define MUL(x, y)    _mm256_mul_ps(x, y)
#define FMA(x, y, z) _mm256_fmadd_ps(x, y, z)
#define ZERO()       _mm256_setzero_ps()
#include "lcma/unit_real.h"

#define NAME(x)      f64_##x
#define TARGET       __attribute__((target("avx2,fma")))
#define REAL         double
#define VECTOR       __m256d
#define LANES        4
#define MR           6
#define LOAD(p)      _mm256_loadu_pd(p)
#define STORE(p, x)  _mm256_storeu_pd(p, x)
#define STREAM(p, x) _mm256_stream_pd(p, x)
#define SET(x)       _mm256_set1_pd(x)
#define ADD(x, y)    _mm256_add_pd(x, y)
#define MUL(x, y)    _mm256_mul_pd(x, y)
#define FMA(x, y, z) _mm256_fmadd_pd(x, y, z)
#define ZERO()       _mm256_setzero_pd()
#include "lcma/unit_real.h"

const MsKernel ms_kernels_avx2[2] = {MS_REAL_KERNEL("avx2 f32 6x16", 4, 6, 16, f32),
                                     MS_REAL_KERNEL("avx2 f64 6x8", 8, 6, 8, f64)};
#endif
