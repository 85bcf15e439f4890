/* tests/units/units.c [STEP [sve]] - products and combinations of every vector unit that was compiled in, those of
 * bfloat16 and of whole numbers too, on small integers, against plain loops, equal to the bit: all shapes from 1 to 40
 * in every dimension, some longer ones, and a canary behind each result (of shapes, every STEP-th). Without GLib, so
 * that it is built for another CPU and run under an emulator: tests/units.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tiles.h"
#include "lcma/kernel_units.h"

enum { MOST = 40, LONG = 1100 /* elements */, DEPTH = 4 /* numbers in one, at most */, CANARY = 64, MOST_TERMS = 9 };

static uint32_t seed = 5;
static int small(void) { /* -3 … 3 */
  seed = seed * 1664525u + 1013904223u;
  return (int)(seed >> 8) % 7 - 3;
}

static int is_whole(const MsKernel *u) { return strstr(u->name, " int") != NULL; }
static void put(const MsKernel *u, void *x, int64_t i, double v) {
  if (is_whole(u)) ((int32_t *)x)[i] = (int32_t)v;
  else if (u->real_B == 8) ((double *)x)[i] = v;
  else ((float *)x)[i] = (float)v;
}
static double get(const MsKernel *u, const void *x, int64_t i) {
  if (is_whole(u)) return ((const int32_t *)x)[i];
  return u->real_B == 8 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* As `room` left it. */
static int untouched(const MsKernel *u, const void *x, int64_t i) {
  return is_whole(u) ? get(u, x, i) == -1 : get(u, x, i) != get(u, x, i);
}

static void *room(size_t size_B) {
  void *p = aligned_alloc(64, (size_B + 63) / 64 * 64);
  if (!p) exit(4);
  memset(p, 0xff, (size_B + 63) / 64 * 64); /* NaN */
  return p;
}

static int wrong(const MsKernel *u, const char *what, int64_t m, int64_t n, int64_t k) {
  printf("%s: wrong %s of %d x %d x %d\n", u->name, what, (int)m, (int)n, (int)k);
  return 1;
}

static int64_t ld_of(int64_t n) { return (n + MS_COMBINE_ALIGN - 1) / MS_COMBINE_ALIGN * MS_COMBINE_ALIGN; }

/* Elements are u->depth numbers each, k of them in a row of A. */
static void pack_narrow(const MsKernel *u, const MsPacked *p, int64_t k, const int *a, const int *b, char *to_a,
                        char *to_b) {
  static float row[LONG * DEPTH + MS_COMBINE_ALIGN];
  const int64_t slab = p->slab_k * u->depth;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t from = 0; from < k; from += slab) {
      const int64_t n = k - from < slab ? k - from : slab;
      memset(row, 0, sizeof row);
      for (int64_t l = 0; l < n; l++) row[l] = (float)a[i * k + from + l];
      u->narrow_a(to_a + (from / slab * p->a_slab + i * p->a_row) * 4, row, (size_t)ld_of(n));
    }
  for (int64_t l = 0; l < p->k * u->depth; l++) {
    memset(row, 0, sizeof row);
    for (int64_t j = 0; j < p->n && l < k; j++) row[j] = (float)b[l * p->n + j];
    u->narrow_b(to_b + (l / slab * p->b_slab + l % slab / u->depth * u->nr) * 4, (size_t)p->b_panel, row,
                (size_t)ld_of(p->n), (int)(l % u->depth));
  }
}

static void pack(const MsKernel *u, const MsPacked *p, const int *a, const int *b, void *to_a, void *to_b) {
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t l = 0; l < p->k; l++)
      put(u, to_a, l / p->slab_k * p->a_slab + i * p->a_row + l % p->slab_k, a[i * p->k + l]);
  for (int64_t l = 0; l < p->k; l++)
    for (int64_t j = 0; j < p->n; j++)
      put(u, to_b, l / p->slab_k * p->b_slab + j / u->nr * p->b_panel + l % p->slab_k * u->nr + j % u->nr,
          b[l * p->n + j]);
}

/* C = A B by the tiles, rows in two parts as two threads would do. */
static int product(const MsKernel *u, int64_t m, int64_t n, int64_t k) {
  static int a[MOST * LONG * DEPTH], b[MOST * LONG * DEPTH];
  MsPacked p = ms_packed(u, k % 2, m, n, (k + u->depth - 1) / u->depth); /* as a large or a small cache asks for */
  int64_t ld = ld_of(n), size = m * ld, bad = 0;
  void *to_a = room((size_t)(p.a_slab * p.slabs) * u->real_B), *to_b = room((size_t)(p.b_slab * p.slabs) * u->real_B),
       *c = room((size_t)(size + CANARY) * u->real_B);
  for (int64_t i = 0; i < m * k; i++) a[i] = small();
  for (int64_t i = 0; i < k * n; i++) b[i] = small();
  if (u->depth > 1) pack_narrow(u, &p, k, a, b, to_a, to_b);
  else pack(u, &p, a, b, to_a, to_b);
  ms_kernel_multiply(u, &p, to_a, to_b, c, ld, 0, m / 3);
  ms_kernel_multiply(u, &p, to_a, to_b, c, ld, m / 3, m);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      int sum = 0;
      for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
      bad += get(u, c, i * ld + j) != sum;
    }
  for (int64_t i = size; i < size + CANARY; i++) bad += !untouched(u, c, i);
  free(to_a);
  free(to_b);
  free(c);
  return bad ? wrong(u, "product", m, n, k) : 0;
}

/* Sums of rows, whole or in panels `step` apart, from element `at` of a cache line on. */
static int combination(const MsKernel *u, int terms, int64_t n, int64_t step, int stream, int64_t at) {
  void *in[MOST_TERMS], *out;
  double coefficient[MOST_TERMS];
  int64_t panels = (n + u->nr - 1) / u->nr, size = at + (step ? panels * step : n), bad = 0;
  out = room((size_t)(size + CANARY) * u->real_B);
  for (int t = 0; t < terms; t++) {
    in[t] = room((size_t)n * u->real_B);
    coefficient[t] = is_whole(u) ? small() : small() / 2.0;
    for (int64_t i = 0; i < n; i++) put(u, in[t], i, small());
  }
  u->combine((char *)out + (size_t)at * u->real_B, (size_t)step, (const void *const *)in, coefficient, terms, (size_t)n,
             stream);
  ms_kernel_fence();
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int t = 0; t < terms; t++) sum += coefficient[t] * get(u, in[t], i);
    bad += get(u, out, at + (step ? i / u->nr * step + i % u->nr : i)) != sum;
  }
  for (int64_t i = 0; i < at; i++) bad += !untouched(u, out, i);
  for (int64_t i = size; i < size + CANARY; i++) bad += !untouched(u, out, i);
  for (int t = 0; t < terms; t++) free(in[t]);
  free(out);
  return bad ? wrong(u, "combination", terms, n, step) : 0;
}

static int check(const MsKernel *u, int step) {
  int bad = 0, products = 0, combinations = 0;
  for (int shape = 0; shape < MOST * MOST * MOST && bad < 5 && u->tile; shape += step, products++)
    bad += product(u, 1 + shape % MOST, 1 + shape / MOST % MOST, 1 + shape / MOST / MOST);
  for (int64_t k = MOST; k <= LONG * u->depth && bad < 5 && u->tile; k += 53, products++) bad += product(u, 17, 21, k);
  for (int terms = 1; terms <= MOST_TERMS && u->combine; terms++)
    for (int64_t n = MS_COMBINE_ALIGN; n <= 320; n += MS_COMBINE_ALIGN)
      for (int kind = 0; kind < 4 && bad < 5; kind++, combinations++)
        bad += combination(u, terms, n, kind & 1 ? 48 * u->nr : 0, kind >> 1, 0);
  for (int64_t at = 0; at < 16 && u->combine; at++) /* rows of C: they begin and end anywhere */
    for (int64_t n = MS_COMBINE_ALIGN; n <= 320 && bad < 5; n += 7, combinations++)
      bad += combination(u, 1 + (int)n % MOST_TERMS, n, 0, n % 5 > 0, at);
  if (!bad) printf("%s: %d products, %d combinations right\n", u->name, products, combinations);
  return bad;
}

static int check_both(const MsKernel *of_unit, int step) { /* float and double */
  return of_unit ? check(&of_unit[0], step) + check(&of_unit[1], step) : 0;
}

int main(int argc, char **argv) {
  int bad = 0, step = argc > 1 ? atoi(argv[1]) : 1;
  if (step < 1) return 2;
  bad += check_both(ms_kernels_plain, step);
#if defined(__x86_64__)
  const int has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl"),
            has_bf16 = has_avx512 && __builtin_cpu_supports("avx512bf16"),
            has_vnni = has_avx512 && __builtin_cpu_supports("avx512vnni");
  bad += check_both(ms_kernels_sse2, step);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) bad += check_both(ms_kernels_avx2, step);
  if (has_avx512) bad += check_both(ms_kernels_avx512, step);
  if (has_bf16) bad += check(&ms_kernel_avx512_bf16, step);
  for (int i = 0; i < 3 && has_vnni; i++) bad += check(&ms_kernels_avx512_whole[i], step);
  if (has_bf16 && has_vnni && ms_tiles_allowed())
    bad += check(&ms_kernel_amx_bf16, step) + check(&ms_kernel_amx_int8, step);
#elif defined(__aarch64__)
  bad += check_both(ms_kernels_neon, step);
  if (argc > 2 && strcmp(argv[2], "sve") == 0) bad += check_both(ms_kernels_sve(), step);
#endif
  return bad != 0;
}
