/* src/cli/gemm_device.c - moesim gemm source, and gemm run|bench --device: generated GPU kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "base/stats.h"
#include "base/text.h"
#include "cli/gemm.h"
#include "gpu/compute.h"
#include "gpu/gpu.h"

int ms_cli_gemm_source(const MsGemmRequest *q) {
  GError *error = NULL;
  g_autoptr(MsScheme) scheme = ms_scheme_new(q->scheme ? q->scheme : "strassen", &error);
  if (!scheme) return ms_cli_fail(error);
  MsSourceOptions options = ms_source_options(scheme, (MsDialect)q->dialect, (MsGpuType)q->type);
  options.groups = q->groups;
  g_autofree char *source = ms_source(scheme, &options, &error);
  if (!source) return ms_cli_fail(error);
  ms_cli_print_file(g_steal_pointer(&source));
  return 0;
}

/* --- operands -------------------------------------------------------------------------------------------------- */
enum { SAMPLES = 64, CONTENDERS = 3 };

typedef struct {
  MsGpuType type;
  MsComputeGemm gemm;
  void *a, *b, *c;
} Problem;

/* Random operands: whole numbers of int8, else in [-1, 1), of eleven bits where tf32, bf16 or fp16 is to hold them. */
static void fill(MsGpuType type, void *x, gint64 i, guint64 *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  double v = type == MS_GPU_F32 ? (double)(*seed >> 40) / 8388608 : (double)(*seed >> 53) / 1024;
  float f = (float)(v - 1);
  guint32 bits;
  if (type == MS_GPU_FP16) {
    gint64 scaled = (gint64)(f * 1024); /* f is a multiple of 2^-10, at most 1 */
    guint16 h = 0;
    if (scaled) {
      int e = g_bit_nth_msf((gulong)ABS(scaled), -1);
      h = (guint16)((scaled < 0 ? 0x8000 : 0) | (e + 5) << 10 | (((guint)ABS(scaled) << (10 - e)) & 1023));
    }
    ((guint16 *)x)[i] = h;
    return;
  }
  memcpy(&bits, &f, sizeof bits);
  if (type == MS_GPU_INT8) ((gint8 *)x)[i] = (gint8)((gint64)(*seed >> 33) % 19 - 9);
  else if (type == MS_GPU_BF16) ((guint16 *)x)[i] = (guint16)(bits >> 16);
  else ((float *)x)[i] = f;
}

static double element(MsGpuType type, const void *x, gint64 i) {
  if (type == MS_GPU_INT8) return ((const gint8 *)x)[i];
  if (type == MS_GPU_FP16) {
    guint16 h = ((const guint16 *)x)[i];
    double v = (h & 0x7fff) ? ldexp(1024 + (h & 1023), (h >> 10 & 31) - 25) : 0;
    return h & 0x8000 ? -v : v;
  }
  float f;
  guint32 bits = type == MS_GPU_BF16 ? (guint32)((const guint16 *)x)[i] << 16 : 0;
  memcpy(&f, type == MS_GPU_BF16 ? (const void *)&bits : (const void *)((const float *)x + i), sizeof f);
  return (double)f;
}

static gboolean problem_make(Problem *p, const MsGemmRequest *q, GError **error) {
  guint64 seed = 1;
  size_t element_B = ms_gpu_type_B((MsGpuType)q->type);
  p->type = (MsGpuType)q->type;
  p->a = g_try_malloc((size_t)(q->m * q->k) * element_B);
  p->b = g_try_malloc((size_t)(q->k * q->n) * element_B);
  p->c = g_try_malloc0((size_t)(q->m * q->n) * 4);
  if (!p->a || !p->b || !p->c) return ms_error(error, MS_ERROR_ENV, "not enough memory for the matrices");
  for (gint64 i = 0; i < q->m * q->k; i++) fill(p->type, p->a, i, &seed);
  for (gint64 i = 0; i < q->k * q->n; i++) fill(p->type, p->b, i, &seed);
  p->gemm = (MsComputeGemm){q->m, q->n, q->k, 1, 0, p->a, p->b, p->c, q->k, q->n, q->n};
  return TRUE;
}

static void problem_clear(Problem *p) {
  g_free(p->a);
  g_free(p->b);
  g_free(p->c);
}

/* Largest error of some elements against sums in double, over the largest of those. */
static double error_of(const Problem *p) {
  double worst = 0, largest = 0;
  const MsComputeGemm *g = &p->gemm;
  guint64 seed = 9;
  for (int s = 0; s < SAMPLES; s++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    gint64 i = (gint64)(seed >> 33) % g->m, j = (gint64)(seed >> 12 & 0x7fffffff) % g->n;
    double sum = 0, got = p->type == MS_GPU_INT8 ? ((const int *)p->c)[i * g->n + j]
                                                 : (double)((const float *)p->c)[i * g->n + j];
    for (gint64 l = 0; l < g->k; l++)
      sum += element(p->type, p->a, i * g->k + l) * element(p->type, p->b, l * g->n + j);
    worst = MAX(worst, fabs(got - sum));
    largest = MAX(largest, fabs(sum));
  }
  return largest > 0 ? worst / largest : worst;
}

/* --- measuring ------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *name;
  MsComputeKernel *kernel;
  double *time_s, median_s, best_s, ratio, relative_error;
} Contender;

static gboolean contender_open(Contender *c, MsCompute *compute, const MsGemmRequest *q, const char *name,
                               GError **error) {
  g_autoptr(MsScheme) scheme = ms_scheme_new(name, error);
  if (!scheme) return FALSE;
  MsSourceOptions options = ms_source_options(scheme, ms_compute_dialect(compute), (MsGpuType)q->type);
  options.groups = MIN(q->groups, scheme->r);
  c->name = name;
  c->time_s = g_new0(double, q->reps);
  c->kernel = ms_compute_kernel(compute, scheme, &options, error);
  return c->kernel != NULL;
}

/* Each repetition times every contender once; the first is for warmth and for the errors. */
static gboolean measure(Contender *all, int n, Problem *p, int reps, GError **error) {
  for (int r = -1; r < reps; r++)
    for (int i = 0; i < n; i++) {
      if (!ms_compute_gemm(all[i].kernel, &p->gemm, 1, &all[i].time_s[MAX(r, 0)], error)) return FALSE;
      if (r < 0) all[i].relative_error = error_of(p);
    }
  g_autofree double *work = g_new(double, reps);
  for (int i = n - 1; i >= 0; i--) {
    for (int r = 0; r < reps; r++) work[r] = all[i].time_s[r] / all[0].time_s[r];
    all[i].ratio = ms_quantile(work, (size_t)reps, 0.5);
    memcpy(work, all[i].time_s, sizeof *work * (size_t)reps);
    all[i].median_s = ms_quantile(work, (size_t)reps, 0.5);
    all[i].best_s = work[0];
  }
  return TRUE;
}

/* The vendor's library on the same shape; 0 where it is not there or has not the type. */
static double library_s(const MsGemmRequest *q) {
  if (strcmp(q->device, "cuda") != 0 || q->type != MS_GPU_BF16) return 0;
  double seconds = 0;
  g_autoptr(MsGpu) gpu = ms_gpu_open("cuda", 0, NULL);
  if (!gpu ||
      !ms_gpu_gemm(gpu, MS_GPU_DGRAD, (int)q->m, (int)q->n, (int)q->k, (MsGpuProtocol){0.05, q->reps}, &seconds, NULL))
    return 0;
  return seconds;
}

typedef struct {
  const char *machine, *dtype;
  const Contender *all;
  int n;
  double library; /* 0: none */
} Compared;
static const char *best_scheme(const void *c) { return ((const Compared *)c)->all[0].name; }
static gboolean has_library(const void *c) { return ((const Compared *)c)->library > 0; }

static const MsFigures kernel_figures =
    MS_FIGURE_UNNAMED(MS_FIGURE_AS("scheme", STRING, Contender, name, "", "of the products"),
                      MS_FIGURE_AS("time_s", F64, Contender, median_s, "s", "median of a product"),
                      MS_FIGURE(F64, Contender, best_s, "s", "the fastest"),
                      MS_FIGURE_AS("speedup", F64, Contender, ratio, "1", "over the library's"),
                      MS_FIGURE(F64, Contender, relative_error, "1", "largest over largest element"));
const MsFigures ms_gemm_device_figures = MS_FIGURE_TABLE(
    "gemm-device", "`moesim gemm --device --json`.", MS_FIGURE(STRING, Compared, machine, "", "as its driver calls it"),
    MS_FIGURE(STRING, Compared, dtype, "", "of the matrices"),
    MS_FIGURE_TEXT("scheme", best_scheme, "of the fastest kernel"),
    MS_FIGURE_AS("cublas_s", F64, Compared, library, "s", "of the library", .when = has_library,
                 .only = "cuBLAS is there"),
    MS_FIGURE_ARRAY("kernels", LIST, Compared, all, n, &kernel_figures));

static void print_json(const MsGemmRequest *q, const char *device, const Contender *all, int n, double library) {
  const Compared c = {device, ms_gpu_type_words[q->type], all, n, library};
  ms_cli_print(ms_figures_json(&ms_gemm_device_figures, &c));
}

static void print_table(const MsGemmRequest *q, const char *device, const Contender *all, int n, double library) {
  double flop = 2.0 * (double)q->m * (double)q->n * (double)q->k;
  MsTable *table = ms_table_of("kernel|>median|>best|>GFLOP/s|>speed-up|>relative error");
  for (int i = 0; i < n; i++) {
    MS_TABLE_ROW(table, all[i].name, MS_SECONDS(all[i].median_s), MS_SECONDS(all[i].best_s),
                 MS_FORMAT("%.1f", 1e-9 * flop / all[i].best_s), MS_FORMAT("%.3f", all[i].ratio),
                 MS_FORMAT("%.2g", all[i].relative_error));
  }
  if (library > 0) {
    MS_TABLE_ROW(table, "cuBLAS, C in bf16", MS_SECONDS(library), "", MS_FORMAT("%.1f", 1e-9 * flop / library),
                 MS_FORMAT("%.3f", library / all[0].median_s), "");
  }
  printf("%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " %s on %s\n\n", q->m, q->n, q->k,
         ms_gpu_type_words[q->type], device);
  ms_cli_print(ms_table_take(table));
  puts("\nspeed-up: median over the paired runs of its time over that of the first.");
}

int ms_cli_gemm_device(const MsGemmRequest *q, gboolean alone) {
  GError *error = NULL;
  g_autoptr(MsCompute) compute = ms_compute_open(q->device, 0, &error);
  if (!compute) return ms_cli_fail(error);
  const char *name = q->scheme ? q->scheme : "strassen";
  Contender all[CONTENDERS] = {{0}};
  Problem problem = {0};
  int n = 0;
  gboolean ok = problem_make(&problem, q, &error) && contender_open(&all[n++], compute, q, name, &error);
  if (ok && !alone && strcmp(name, "definition") != 0) ok = contender_open(&all[n++], compute, q, "definition", &error);
  ok = ok && measure(all, n, &problem, q->reps, &error);
  if (ok) {
    double library = alone ? 0 : library_s(q);
    (q->json ? print_json : print_table)(q, ms_compute_device(compute), all, n, library);
  }
  for (int i = 0; i < n; i++) {
    ms_compute_kernel_free(all[i].kernel);
    g_free(all[i].time_s);
  }
  problem_clear(&problem);
  return ok ? 0 : ms_cli_fail(error);
}
