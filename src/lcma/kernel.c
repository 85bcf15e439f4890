#include "lcma/kernel.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x)      avx512_f32_##x
#define TARGET       __attribute__((target("avx512f")))
#define REAL         float
#define VECTOR       __m512
#define LANES        16
#define MR           14
#define LOAD(p)      _mm512_loadu_ps(p)
#define STORE(p, x)  _mm512_storeu_ps(p, x)
#define SET(x)       _mm512_set1_ps(x)
#define ADD(x, y)    _mm512_add_ps(x, y)
#define FMA(x, y, z) _mm512_fmadd_ps(x, y, z)
#define ZERO()       _mm512_setzero_ps()
#include "lcma/kernel_tile.h"

#define NAME(x)      avx512_f64_##x
#define TARGET       __attribute__((target("avx512f")))
#define REAL         double
#define VECTOR       __m512d
#define LANES        8
#define MR           14
#define LOAD(p)      _mm512_loadu_pd(p)
#define STORE(p, x)  _mm512_storeu_pd(p, x)
#define SET(x)       _mm512_set1_pd(x)
#define ADD(x, y)    _mm512_add_pd(x, y)
#define FMA(x, y, z) _mm512_fmadd_pd(x, y, z)
#define ZERO()       _mm512_setzero_pd()
#include "lcma/kernel_tile.h"

#define NAME(x)      avx2_f32_##x
#define TARGET       __attribute__((target("avx2,fma")))
#define REAL         float
#define VECTOR       __m256
#define LANES        8
#define MR           6
#define LOAD(p)      _mm256_loadu_ps(p)
#define STORE(p, x)  _mm256_storeu_ps(p, x)
#define SET(x)       _mm256_set1_ps(x)
#define ADD(x, y)    _mm256_add_ps(x, y)
#define FMA(x, y, z) _mm256_fmadd_ps(x, y, z)
#define ZERO()       _mm256_setzero_ps()
#include "lcma/kernel_tile.h"

#define NAME(x)      avx2_f64_##x
#define TARGET       __attribute__((target("avx2,fma")))
#define REAL         double
#define VECTOR       __m256d
#define LANES        4
#define MR           6
#define LOAD(p)      _mm256_loadu_pd(p)
#define STORE(p, x)  _mm256_storeu_pd(p, x)
#define SET(x)       _mm256_set1_pd(x)
#define ADD(x, y)    _mm256_add_pd(x, y)
#define FMA(x, y, z) _mm256_fmadd_pd(x, y, z)
#define ZERO()       _mm256_setzero_pd()
#include "lcma/kernel_tile.h"
#endif

const MsKernel *ms_kernel_for(size_t real_B) {
#if defined(__x86_64__)
  static const MsKernel kernels[] = {{"avx512 f32 14x32", 4, 14, 32, avx512_f32_tiles},
                                     {"avx512 f64 14x16", 8, 14, 16, avx512_f64_tiles},
                                     {"avx2 f32 6x16", 4, 6, 16, avx2_f32_tiles},
                                     {"avx2 f64 6x8", 8, 6, 8, avx2_f64_tiles}};
  int first = __builtin_cpu_supports("avx512f")                                 ? 0
              : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 2
                                                                                : -1;
  return first < 0 ? NULL : &kernels[first + (real_B == 8)];
#else
  (void)real_B;
  return NULL;
#endif
}

static gint64 parts(gint64 x, gint64 of) { return (x + of - 1) / of; }

MsPacked ms_packed(const MsKernel *kernel, gint64 m, gint64 n, gint64 k) {
  MsPacked p = {.m = m, .n = n, .k = k, .a_row = (gint64)(MS_KERNEL_ROW_B / kernel->real_B)};
  p.slabs = (int)parts(k, MS_KERNEL_SLAB_B / (gint64)kernel->real_B);
  p.slab_k = parts(parts(k, p.slabs), 16) * 16;
  p.slabs = (int)parts(k, p.slab_k);
  p.a_slab = m * p.a_row;
  p.b_panel = p.slab_k * kernel->nr;
  p.b_slab = parts(n, kernel->nr) * p.b_panel;
  return p;
}

/* Rows of A that stay in the second-level cache, a slab deep. */
static gint64 rows_in_cache(const MsKernel *kernel) {
  long cache_B = sysconf(_SC_LEVEL2_CACHE_SIZE);
  gint64 rows = (cache_B > 0 ? cache_B : 256 * 1024) / MS_KERNEL_ROW_B;
  return MAX(rows / kernel->mr, 4) * kernel->mr;
}

void ms_kernel_multiply(const MsKernel *kernel, const MsPacked *p, const void *a, const void *b, void *c, gint64 ldc,
                        gint64 from, gint64 to) {
  const gint64 mr = kernel->mr, nr = kernel->nr, real_B = (gint64)kernel->real_B;
  if (from >= to) return;
  gint64 blocks = parts(to - from, rows_in_cache(kernel)), block = parts(parts(to - from, blocks), mr) * mr;
  for (int slab = 0; slab < p->slabs; slab++) {
    const char *as = (const char *)a + slab * p->a_slab * real_B, *bs = (const char *)b + slab * p->b_slab * real_B;
    gint64 k = MIN(p->slab_k, p->k - slab * p->slab_k);
    for (gint64 top = from; top < to; top += block)
      for (gint64 j = 0; j < p->n; j += nr) {
        const char *panel = bs + j / nr * p->b_panel * real_B;
        int vectors = p->n - j > nr / 2 ? 2 : 1;
        gint64 bottom = MIN(top + block, to);
        for (gint64 i = top; i < bottom; i += mr) {
          gint64 rows = MIN(mr, bottom - i), next = i + mr < bottom ? i + mr : top;
          next = MIN(next, MAX(p->m - mr, 0)); /* what is fetched ahead lies in A */
          kernel->tile[rows - 1][vectors - 1](k, as + i * MS_KERNEL_ROW_B, panel, (char *)c + (i * ldc + j) * real_B,
                                              ldc, slab > 0, as + next * MS_KERNEL_ROW_B);
        }
      }
  }
}
