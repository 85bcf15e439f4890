/* src/lcma/unit_avx512_bf16.c - products of bfloat16 for CPUs with AVX512-BF16: the tiles of unit_real.h on pairs of
 * bfloat16, which take the place of a float. */
#include "lcma/kernel_units.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x)      pair_##x
#define TARGET       __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
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
#define FMA(x, y, z) _mm512_dpbf16_ps(z, (__m512bh)(x), (__m512bh)(y))
#define ZERO()       _mm512_setzero_ps()
#define NO_COMBINE
#include "lcma/unit_real.h"
#undef NO_COMBINE

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

TARGET void ms_avx512_narrow_a_bf16(void *out, const float *in, size_t n) {
  uint16_t *to = out;
  for (size_t i = 0; i < n; i += 16)
    _mm256_storeu_si256((__m256i *)(void *)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(in + i)));
}

TARGET void ms_avx512_narrow_b_bf16(void *out, size_t step, const float *in, size_t n, int which) {
  uint32_t *to = out;
  for (size_t i = 0, v = 0; i < n; i += 16, v++) {
    uint32_t *at = to + v / 2 * step + v % 2 * 16;
    __m512i x = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(in + i)));
    if (which) x = _mm512_or_si512(_mm512_slli_epi32(x, 16), _mm512_loadu_si512(at));
    _mm512_storeu_si512(at, x);
  }
}

const MsKernel ms_kernel_avx512_bf16 =
    MS_NARROW_KERNEL("avx512 bf16 14x32", 14, pair_tile, 2, ms_avx512_narrow_a_bf16, ms_avx512_narrow_b_bf16);
#endif
