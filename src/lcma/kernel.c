#include "lcma/kernel.h"

#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static int64_t parts(int64_t x, int64_t of) { return (x + of - 1) / of; }
static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

static int64_t cache_B(void) { /* second level */
  long size_B = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return size_B > 0 ? size_B : 256 * 1024;
}

static int64_t slab_B(int deep) { return deep ? MS_KERNEL_DEEP_SLAB_B : MS_KERNEL_SLAB_B; }

int ms_kernel_deep(void) { return cache_B() >= 2 << 20; }
int64_t ms_kernel_slab_B(void) { return slab_B(ms_kernel_deep()); }

MsPacked ms_packed(const MsKernel *kernel, int deep, int64_t m, int64_t n, int64_t k) {
  const int64_t real_B = (int64_t)kernel->real_B;
  MsPacked p = {.m = m, .n = n, .k = k, .deep = deep, .a_row = MS_KERNEL_ROW_B(slab_B(deep)) / real_B};
  p.slabs = (int)parts(k, slab_B(deep) / real_B);
  p.slab_k = parts(parts(k, p.slabs), 16) * 16;
  p.slabs = (int)parts(k, p.slab_k);
  p.a_slab = m * p.a_row;
  p.b_panel = p.slab_k * kernel->nr;
  p.b_slab = parts(parts(n, MS_COMBINE_ALIGN) * MS_COMBINE_ALIGN, kernel->nr) * p.b_panel;
  return p;
}

int64_t ms_kernel_near(const MsKernel *kernel) {
  int64_t tiles = cache_B() / 2 / (ms_kernel_slab_B() + 64) / kernel->mr; /* a line of each row to spare */
  return (tiles > 4 ? tiles : 4) * kernel->mr;
}

/* What a slab adds to rows from `top` to `bottom` - 1 of C. A panel of B stays in the first-level cache meanwhile, and
 * each tile asks for its share of the next one. */
static void multiply_slab(const MsKernel *kernel, const MsPacked *p, int slab, const char *a, const char *b, char *c,
                          int64_t ldc, int64_t top, int64_t bottom) {
  const int64_t mr = kernel->mr, nr = kernel->nr, real_B = (int64_t)kernel->real_B, panel_B = p->b_panel * real_B;
  const int64_t k = least(p->slab_k, p->k - slab * p->slab_k), row_B = p->a_row * real_B;
  const int64_t share_B = parts(k * nr * real_B, parts(bottom - top, mr));
  const char *panel = b + slab * p->b_slab * real_B;
  a += slab * p->a_slab * real_B;
  for (int64_t j = 0; j < p->n; j += nr, panel += panel_B) {
    const char *fetch = panel + panel_B;
    int vectors = p->n - j > nr / 2 ? 2 : 1, is_last = j + nr >= p->n;
    for (int64_t i = top; i < bottom; i += mr, fetch += share_B) {
      int64_t rows = least(mr, bottom - i), next = i + mr < bottom ? i + mr : top;
      next = least(next, p->m > mr ? p->m - mr : 0); /* what is fetched ahead lies in A */
      for (int64_t at_B = 0; at_B < share_B && !is_last; at_B += 64) __builtin_prefetch(fetch + at_B, 0, 2);
      kernel->tile((int)rows, vectors, p->deep, k, a + i * row_B, panel, c + (i * ldc + j) * real_B, ldc, slab > 0,
                   a + next * row_B);
    }
  }
}

void ms_kernel_multiply(const MsKernel *kernel, const MsPacked *p, const void *a, const void *b, void *c, int64_t ldc,
                        int64_t from, int64_t to) {
  if (from >= to) return;
  int64_t blocks = parts(to - from, ms_kernel_near(kernel)),
          block = parts(parts(to - from, blocks), kernel->mr) * kernel->mr;
  if (kernel->open) kernel->open();
  for (int64_t top = from; top < to; top += block) /* rows of C stay near while the slabs are added to them */
    for (int slab = 0; slab < p->slabs; slab++)
      multiply_slab(kernel, p, slab, a, b, c, ldc, top, least(top + block, to));
  if (kernel->close) kernel->close();
}

void ms_kernel_fence(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

void ms_widen_bf16(float *out, const uint16_t *in, size_t n) {
  size_t i = 0;
#if defined(__x86_64__) /* which compilers leave to scalar code */
  for (const __m128i zero = _mm_setzero_si128(); i + 8 <= n; i += 8) {
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
    _mm_storeu_si128((__m128i *)(void *)(out + i), _mm_unpacklo_epi16(zero, x));
    _mm_storeu_si128((__m128i *)(void *)(out + i + 4), _mm_unpackhi_epi16(zero, x));
  }
#endif
  for (; i < n; i++) {
    uint32_t bits = (uint32_t)in[i] << 16;
    memcpy(out + i, &bits, sizeof bits);
  }
}

void ms_widen_int8(float *out, const int8_t *in, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = (float)in[i];
}
