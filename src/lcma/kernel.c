#include "lcma/kernel.h"

#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static int64_t parts(int64_t x, int64_t of) { return (x + of - 1) / of; }
static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

MsPacked ms_packed(const MsKernel *kernel, int64_t m, int64_t n, int64_t k) {
  MsPacked p = {.m = m, .n = n, .k = k, .a_row = (int64_t)(MS_KERNEL_ROW_B / kernel->real_B)};
  p.slabs = (int)parts(k, MS_KERNEL_SLAB_B / (int64_t)kernel->real_B);
  p.slab_k = parts(parts(k, p.slabs), 16) * 16;
  p.slabs = (int)parts(k, p.slab_k);
  p.a_slab = m * p.a_row;
  p.b_panel = p.slab_k * kernel->nr;
  p.b_slab = parts(parts(n, MS_COMBINE_ALIGN) * MS_COMBINE_ALIGN, kernel->nr) * p.b_panel;
  return p;
}

/* Rows of A that stay in the second-level cache, a slab deep. */
static int64_t rows_in_cache(const MsKernel *kernel) {
  long cache_B = sysconf(_SC_LEVEL2_CACHE_SIZE);
  int64_t tiles = (cache_B > 0 ? cache_B : 256 * 1024) / MS_KERNEL_ROW_B / kernel->mr;
  return (tiles > 4 ? tiles : 4) * kernel->mr;
}

void ms_kernel_multiply(const MsKernel *kernel, const MsPacked *p, const void *a, const void *b, void *c, int64_t ldc,
                        int64_t from, int64_t to) {
  const int64_t mr = kernel->mr, nr = kernel->nr, real_B = (int64_t)kernel->real_B;
  if (from >= to) return;
  int64_t blocks = parts(to - from, rows_in_cache(kernel)), block = parts(parts(to - from, blocks), mr) * mr;
  for (int slab = 0; slab < p->slabs; slab++) {
    const char *as = (const char *)a + slab * p->a_slab * real_B, *bs = (const char *)b + slab * p->b_slab * real_B;
    int64_t k = least(p->slab_k, p->k - slab * p->slab_k);
    for (int64_t top = from; top < to; top += block)
      for (int64_t j = 0; j < p->n; j += nr) {
        const char *panel = bs + j / nr * p->b_panel * real_B;
        int vectors = p->n - j > nr / 2 ? 2 : 1;
        int64_t bottom = least(top + block, to);
        for (int64_t i = top; i < bottom; i += mr) {
          int64_t rows = least(mr, bottom - i), next = i + mr < bottom ? i + mr : top;
          next = least(next, p->m > mr ? p->m - mr : 0); /* what is fetched ahead lies in A */
          kernel->tile[rows - 1][vectors - 1](k, as + i * MS_KERNEL_ROW_B, panel, (char *)c + (i * ldc + j) * real_B,
                                              ldc, slab > 0, as + next * MS_KERNEL_ROW_B);
        }
      }
  }
}

void ms_kernel_fence(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

void ms_widen_bf16(float *out, const uint16_t *in, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)in[i] << 16;
    memcpy(out + i, &bits, sizeof bits);
  }
}
