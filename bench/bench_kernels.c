/* bench/bench_kernels.c - GB/s or GF/s of each CPU kernel on one thread, beside a triad and a GEMM. Prints, never
 * judges. bench_kernels [f64] [NAME…]: the f64 table; only kernels whose name contains a NAME. Bytes are those that a
 * row counts: every operand once. Best of several passes over all kernels, by CPU time, so that a busy machine shows
 * the same figures. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "exec/kernel.h"

enum { ROWS = 2048, WIDTH = 2048, N = ROWS * WIDTH, EXPERTS = 64, TOPK = 8, PASSES = 5 };

static const MsKernels *k;
static MsKernelRun run;
static void *a, *b, *c, *d, *e, *f, *g, *h; /* 3 N elements each */
static gint32 ints[ROWS * TOPK], positions[8192], chosen[256 * 512];
static gint64 longs[ROWS * TOPK], counts[EXPERTS];

static double cpu_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static MsAttentionShape attention(int s, int d_head) {
  return (MsAttentionShape){1, 8, 2, s, s, d_head, d_head, positions, positions, .scale = 1 / sqrt(d_head)};
}
static const MsSparseShape sparse = {1, 16, 1, 256, 2048, 192, 128, 512, 0.1, NULL, TRUE};
static const MsIndexerShape indexer = {1, 8, 1024, 1024, 128, positions, positions};
static const MsScanShape scan = {1, 2048, 16, 64, 1, 128, 1024, 128, 128, 16};
static const MsDeltaShape delta = {1, 2048, 8, 128, 128, 0.1};
static const MsDeltaGates gates = {ROWS, 4, 8, 128, 128, 16};
static const MsConvShape conv = {1, ROWS, WIDTH, 4, WIDTH, TRUE};
static const MsPoolShape pool = {1, ROWS / 4, 4, 2, 512};
static const gint64 grouped[4] = {512, 512, 512, 512}, one_group[1] = {ROWS};

#define KERNEL(name, call, elements) \
  static void do_##name(void) { call; }
#include "kernel_list.h"
#undef KERNEL

typedef struct {
  const char *name;
  void (*call)(void);
  double elements;
} Kernel; /* moved; 0: FLOP are counted */
static const Kernel kernels[] = {
#define KERNEL(name, call, elements) {#name, do_##name, elements},
#include "kernel_list.h"
#undef KERNEL
};

int main(int argc, char **argv) {
  gboolean f64 = argc > 1 && !strcmp(argv[1], "f64");
  void **arrays[] = {&a, &b, &c, &d, &e, &f, &g, &h};
  double best[G_N_ELEMENTS(kernels)], flop[G_N_ELEMENTS(kernels)];
  k = ms_kernels(f64 ? 8 : 4);
  run.blas = ms_blas_open(NULL, NULL);
  if (!run.blas) return fprintf(stderr, "no BLAS\n"), 4;
  ms_blas_set_threads(run.blas, 1);
  for (size_t i = 0; i < G_N_ELEMENTS(arrays); i++) {
    *arrays[i] = g_malloc(3 * (gsize)N * k->real_B);
    for (gint64 j = 0; j < 3 * N; j++) {
      double x = ((j * 7 + (gint64)i * 3) % 1009) / 1009.0 -
                 (i % 2 ? 0.5 : 1.001); /* a, c, e, g: all negative, as logarithms of decays are */
      if (f64) ((double *)*arrays[i])[j] = x;
      else ((float *)*arrays[i])[j] = (float)x;
    }
  }
  for (int i = 0; i < 8192; i++) positions[i] = i;
  for (int i = 0; i < 256 * 512; i++) chosen[i] = i % 512 * 4;
  for (int i = 0; i < ROWS * TOPK; i++) ints[i] = i * 37 % EXPERTS, longs[i] = i * 37 % ROWS;
  for (int pass = 0; pass < PASSES; pass++)
    for (size_t i = 0; i < G_N_ELEMENTS(kernels); i++) {
      gboolean wanted = argc <= 1 + f64;
      for (int j = 1 + f64; j < argc; j++) wanted = wanted || strstr(kernels[i].name, argv[j]);
      if (!wanted) continue;
      run.flop = 0;
      double begin = cpu_s();
      kernels[i].call();
      double took = cpu_s() - begin;
      flop[i] = run.flop;
      if (pass == 0 || took < best[i]) best[i] = took;
      if (pass < PASSES - 1) continue;
      if (kernels[i].elements > 0)
        printf("%-28s %8.2f ms %8.1f GB/s\n", kernels[i].name, 1e3 * best[i],
               kernels[i].elements * (double)k->real_B / best[i] * 1e-9);
      else printf("%-28s %8.2f ms %8.1f GF/s\n", kernels[i].name, 1e3 * best[i], flop[i] / best[i] * 1e-9);
    }
  return 0;
}
