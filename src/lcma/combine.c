#include "lcma/combine.h"

#include <string.h>

/* Plain C: one element is a vector; the compiler may do better. */
#define LOAD(p)        (*(p))
#define STORE(p, x)    (*(p) = (x))
#define STREAM(p, x)   (*(p) = (x))
#define SET(c)         (c)
#define FMA(c, x, acc) ((acc) + (c) * (x))
#define MUL(c, x)      ((c) * (x))
#define LANES          1
#define TARGET
#define NAME   plain_f32
#define REAL   float
#define VECTOR float
#include "lcma/combine_kernel.h"

#define LOAD(p)        (*(p))
#define STORE(p, x)    (*(p) = (x))
#define STREAM(p, x)   (*(p) = (x))
#define SET(c)         (c)
#define FMA(c, x, acc) ((acc) + (c) * (x))
#define MUL(c, x)      ((c) * (x))
#define LANES          1
#define TARGET
#define NAME   plain_f64
#define REAL   double
#define VECTOR double
#include "lcma/combine_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME           avx512_f32
#define TARGET         __attribute__((target("avx512f")))
#define REAL           float
#define VECTOR         __m512
#define LANES          16
#define LOAD(p)        _mm512_loadu_ps(p)
#define STORE(p, x)    _mm512_storeu_ps(p, x)
#define STREAM(p, x)   _mm512_stream_ps(p, x)
#define SET(c)         _mm512_set1_ps(c)
#define FMA(c, x, acc) _mm512_fmadd_ps(c, x, acc)
#define MUL(c, x)      _mm512_mul_ps(c, x)
#include "lcma/combine_kernel.h"

#define NAME           avx512_f64
#define TARGET         __attribute__((target("avx512f")))
#define REAL           double
#define VECTOR         __m512d
#define LANES          8
#define LOAD(p)        _mm512_loadu_pd(p)
#define STORE(p, x)    _mm512_storeu_pd(p, x)
#define STREAM(p, x)   _mm512_stream_pd(p, x)
#define SET(c)         _mm512_set1_pd(c)
#define FMA(c, x, acc) _mm512_fmadd_pd(c, x, acc)
#define MUL(c, x)      _mm512_mul_pd(c, x)
#include "lcma/combine_kernel.h"

#define NAME           avx2_f32
#define TARGET         __attribute__((target("avx2,fma")))
#define REAL           float
#define VECTOR         __m256
#define LANES          8
#define LOAD(p)        _mm256_loadu_ps(p)
#define STORE(p, x)    _mm256_storeu_ps(p, x)
#define STREAM(p, x)   _mm256_stream_ps(p, x)
#define SET(c)         _mm256_set1_ps(c)
#define FMA(c, x, acc) _mm256_fmadd_ps(c, x, acc)
#define MUL(c, x)      _mm256_mul_ps(c, x)
#include "lcma/combine_kernel.h"

#define NAME           avx2_f64
#define TARGET         __attribute__((target("avx2,fma")))
#define REAL           double
#define VECTOR         __m256d
#define LANES          4
#define LOAD(p)        _mm256_loadu_pd(p)
#define STORE(p, x)    _mm256_storeu_pd(p, x)
#define STREAM(p, x)   _mm256_stream_pd(p, x)
#define SET(c)         _mm256_set1_pd(c)
#define FMA(c, x, acc) _mm256_fmadd_pd(c, x, acc)
#define MUL(c, x)      _mm256_mul_pd(c, x)
#include "lcma/combine_kernel.h"

static gboolean has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
static gboolean has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

static gboolean aligned(const void *p) { return ((guintptr)p & 63) == 0; }

void ms_combine_f32(float *out, size_t step, const float *const *in, const double *coefficient, int terms, size_t n,
                    gboolean stream) {
  stream = stream && aligned(out);
#if defined(__x86_64__)
  if (has_avx512()) {
    avx512_f32(out, step, in, coefficient, terms, n, stream);
    return;
  }
  if (has_avx2()) {
    avx2_f32(out, step, in, coefficient, terms, n, stream);
    return;
  }
#endif
  plain_f32(out, step, in, coefficient, terms, n, stream);
}

void ms_combine_f64(double *out, size_t step, const double *const *in, const double *coefficient, int terms, size_t n,
                    gboolean stream) {
  stream = stream && aligned(out);
#if defined(__x86_64__)
  if (has_avx512()) {
    avx512_f64(out, step, in, coefficient, terms, n, stream);
    return;
  }
  if (has_avx2()) {
    avx2_f64(out, step, in, coefficient, terms, n, stream);
    return;
  }
#endif
  plain_f64(out, step, in, coefficient, terms, n, stream);
}

void ms_combine_fence(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

void ms_widen_bf16(float *out, const guint16 *in, size_t n) {
  for (size_t i = 0; i < n; i++) {
    guint32 bits = (guint32)in[i] << 16;
    memcpy(out + i, &bits, sizeof bits);
  }
}
