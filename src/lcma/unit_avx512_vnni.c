/* src/lcma/unit_avx512_vnni.c - products of whole numbers for CPUs with AVX512-VNNI, exact modulo 2^32: the tiles of
 * unit_real.h on four numbers of eight bits, or on two of sixteen, which take the place of a float; combinations of
 * products in 32 bits. vpdpbusd wants its first operand without a sign: A holds its numbers plus 128. */
#include "lcma/kernel_units.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define UNIT     "avx512f,avx512bw,avx512vl,avx512vnni"
#define WHOLE(x) _mm512_castps_si512(x)
#define BITS(x)  _mm512_castsi512_ps(x)

#define NAME(x)      int8_##x
#define TARGET       __attribute__((target(UNIT)))
#define REAL         float
#define VECTOR       __m512
#define LANES        16
#define MR           12
#define LOAD(p)      _mm512_loadu_ps(p)
#define STORE(p, x)  _mm512_storeu_ps(p, x)
#define SET(x)       _mm512_set1_ps(x)
#define ADD(x, y)    BITS(_mm512_add_epi32(WHOLE(x), WHOLE(y)))
#define SUB(x, y)    BITS(_mm512_sub_epi32(WHOLE(x), WHOLE(y)))
#define FMA(x, y, z) BITS(_mm512_dpbusd_epi32(WHOLE(z), WHOLE(x), WHOLE(y)))
#define BIAS         BITS(_mm512_set1_epi8((char)0x80))
#define ZERO()       _mm512_setzero_ps()
#define NO_COMBINE
#include "lcma/unit_real.h"

#define NAME(x)      int16_##x
#define TARGET       __attribute__((target(UNIT)))
#define REAL         float
#define VECTOR       __m512
#define LANES        16
#define MR           14
#define LOAD(p)      _mm512_loadu_ps(p)
#define STORE(p, x)  _mm512_storeu_ps(p, x)
#define SET(x)       _mm512_set1_ps(x)
#define ADD(x, y)    BITS(_mm512_add_epi32(WHOLE(x), WHOLE(y)))
#define FMA(x, y, z) BITS(_mm512_dpwssd_epi32(WHOLE(z), WHOLE(x), WHOLE(y)))
#define ZERO()       _mm512_setzero_ps()
#include "lcma/unit_real.h"
#undef NO_COMBINE

#define NO_TILES
#define NAME(x)      int32_##x
#define TARGET       __attribute__((target(UNIT)))
#define REAL         int32_t
#define VECTOR       __m512i
#define LANES        16
#define MR           4
#define LOAD(p)      _mm512_loadu_si512(p)
#define STORE(p, x)  _mm512_storeu_si512(p, x)
#define STREAM(p, x) _mm512_stream_si512((void *)(p), x)
#define SET(x)       _mm512_set1_epi32(x)
#define MUL(x, y)    _mm512_mullo_epi32(x, y)
#define FMA(x, y, z) _mm512_add_epi32(_mm512_mullo_epi32(x, y), z)
#include "lcma/unit_real.h"
#undef NO_TILES

#define TARGET __attribute__((target(UNIT)))

TARGET static __m512i whole(const float *in) { return _mm512_cvtps_epi32(_mm512_loadu_ps(in)); }

TARGET static void narrow_a8(void *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    _mm_storeu_si128((__m128i *)(void *)((int8_t *)out + i),
                     _mm512_cvtepi32_epi8(_mm512_add_epi32(whole(in + i), _mm512_set1_epi32(128))));
}

TARGET static void narrow_a16(void *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    _mm256_storeu_si256((__m256i *)(void *)((int16_t *)out + i), _mm512_cvtepi32_epi16(whole(in + i)));
}

/* Row `which` of each 32 / bits. */
TARGET static inline void narrow_b(void *out, size_t step, const float *in, size_t n, int which, int bits) {
  uint32_t *to = out;
  for (size_t i = 0, v = 0; i < n; i += 16, v++) {
    uint32_t *at = to + v / 2 * step + v % 2 * 16;
    __m512i x = _mm512_and_si512(whole(in + i), _mm512_set1_epi32((1 << bits) - 1));
    x = _mm512_sll_epi32(x, _mm_cvtsi32_si128(which * bits));
    if (which) x = _mm512_or_si512(x, _mm512_loadu_si512(at));
    _mm512_storeu_si512(at, x);
  }
}
TARGET void ms_avx512_narrow_b_int8(void *out, size_t step, const float *in, size_t n, int which) {
  narrow_b(out, step, in, n, which, 8);
}
TARGET static void narrow_b16(void *out, size_t step, const float *in, size_t n, int which) {
  narrow_b(out, step, in, n, which, 16);
}

const MsKernel ms_kernels_avx512_whole[3] = {
    MS_NARROW_KERNEL("avx512 int8 12x32", 12, int8_tile, 4, narrow_a8, ms_avx512_narrow_b_int8),
    MS_NARROW_KERNEL("avx512 int16 14x32", 14, int16_tile, 2, narrow_a16, narrow_b16),
    {.name = "avx512 int32", .real_B = 4, .nr = 32, .combine = int32_combine, .depth = 1}};
#endif
