#include "lcma/bench.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "lcma/kernel.h"

enum { SAMPLES = 256, CONTENDERS = 8 };

typedef struct {
  MsGemm gemm;
  size_t a_B, b_B, c_B;
  int row[SAMPLES], col[SAMPLES];
  double exact[SAMPLES], largest;
} Problem;

static double uniform(guint64 *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(*seed >> 11) / 4503599627370496.0 - 1; /* all bits of a double */
}

static void fill(MsBlasType type, void *x, size_t n, guint64 *seed) {
  for (size_t i = 0; i < n; i++) {
    double v = uniform(seed);
    float f = (float)v;
    guint32 bits;
    memcpy(&bits, &f, sizeof bits);
    if (type == MS_BLAS_F64) ((double *)x)[i] = v;
    else if (type == MS_BLAS_F32) ((float *)x)[i] = f;
    else if (type == MS_BLAS_INT8) ((gint8 *)x)[i] = (gint8)floor(v * 128);
    else ((guint16 *)x)[i] = (guint16)(bits >> 16);
  }
}

static double element(MsBlasType type, const void *x, gint64 i) {
  if (type == MS_BLAS_F64) return ((const double *)x)[i];
  if (type == MS_BLAS_F32) return (double)((const float *)x)[i];
  if (type == MS_BLAS_INT8) return (double)((const gint8 *)x)[i];
  float f;
  ms_widen_bf16(&f, (const guint16 *)x + i, 1);
  return (double)f;
}

static void *pages(size_t size_B) {
  void *p = mmap(NULL, size_B, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  madvise(p, size_B, MADV_HUGEPAGE);
  return p;
}

static void problem_clear(Problem *p) {
  if (p->gemm.a) munmap((void *)p->gemm.a, p->a_B);
  if (p->gemm.b) munmap((void *)p->gemm.b, p->b_B);
  if (p->gemm.c) munmap(p->gemm.c, p->c_B);
}

static gboolean problem_make(Problem *p, MsBlasType type, gint64 m, gint64 n, gint64 k) {
  size_t in_B = ms_blas_type_B(type), out_B = type == MS_BLAS_F64 ? 8 : 4;
  p->a_B = (size_t)m * (size_t)k * in_B;
  p->b_B = (size_t)k * (size_t)n * in_B;
  p->c_B = (size_t)m * (size_t)n * out_B;
  p->gemm = (MsGemm){.type = type,
                     .m = m,
                     .n = n,
                     .k = k,
                     .alpha = 1,
                     .a = pages(p->a_B),
                     .lda = k,
                     .b = pages(p->b_B),
                     .ldb = n,
                     .c = pages(p->c_B),
                     .ldc = n};
  if (!p->gemm.a || !p->gemm.b || !p->gemm.c) return FALSE;
  guint64 seed = 1;
  fill(type, (void *)p->gemm.a, (size_t)(m * k), &seed);
  fill(type, (void *)p->gemm.b, (size_t)(k * n), &seed);
  memset(p->gemm.c, 0, p->c_B);
  for (int s = 0; s < SAMPLES; s++) {
    p->row[s] = (int)((uniform(&seed) + 1) / 2 * (double)m);
    p->col[s] = (int)((uniform(&seed) + 1) / 2 * (double)n);
    long double sum = 0;
    for (gint64 l = 0; l < k; l++)
      sum += (long double)element(type, p->gemm.a, p->row[s] * k + l) *
             (long double)element(type, p->gemm.b, l * n + p->col[s]);
    p->exact[s] = (double)sum;
    p->largest = MAX(p->largest, fabs(p->exact[s]));
  }
  return TRUE;
}

static double error_of(const Problem *p) {
  double worst = 0;
  MsBlasType out = p->gemm.type == MS_BLAS_F64 ? MS_BLAS_F64 : MS_BLAS_F32;
  for (int s = 0; s < SAMPLES; s++) {
    gint64 at = p->row[s] * p->gemm.ldc + p->col[s];
    double got = p->gemm.type == MS_BLAS_INT8 ? (double)((const gint32 *)p->gemm.c)[at] : element(out, p->gemm.c, at);
    worst = MAX(worst, fabs(got - p->exact[s]));
  }
  return p->largest > 0 ? worst / p->largest : 0;
}

static void by_library(const MsBlas *blas, const MsGemm *g, int threads) {
  ms_blas_set_threads(blas, threads);
  if (g->type == MS_BLAS_F64)
    ms_blas_dgemm(blas, FALSE, FALSE, g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb, 0, g->c, g->ldc);
  else if (g->type == MS_BLAS_F32)
    ms_blas_sgemm(blas, FALSE, FALSE, g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb, 0, g->c, g->ldc);
  else ms_blas_bf16gemm(blas, FALSE, FALSE, g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb, 0, g->c, g->ldc);
}

/* One run, of our plan when blas is NULL: wall time and CPU time over the number of threads. */
static gboolean timed(MsLcma *lcma, const MsBlas *blas, const MsGemm *g, int threads, double *time_s, double *busy_s) {
  gboolean ok = TRUE;
  gint64 wall = g_get_monotonic_time();
  double cpu = ms_process_cpu_s();
  if (blas) by_library(blas, g, threads);
  else ok = ms_lcma_gemm(lcma, g) == MS_LCMA_OK;
  *busy_s = MAX((ms_process_cpu_s() - cpu) / threads, 1e-7);
  *time_s = MAX(1e-6 * (double)(g_get_monotonic_time() - wall), 1e-7);
  return ok;
}

/* time_s[contender][rep] and busy_s to the summary. */
static void summarise(MsGemmBench *bench, double *const *time_s, double *const *busy_s, int reps) {
  g_autofree double *work = g_new(double, reps);
  for (int i = 0; i < bench->n; i++) {
    MsGemmTiming *t = &bench->timing[i];
    for (int r = 0; r < reps; r++) work[r] = time_s[i][r] / time_s[0][r];
    t->ratio = ms_quantile(work, (size_t)reps, 0.5);
    for (int r = 0; r < reps; r++) work[r] = busy_s[i][r] / busy_s[0][r];
    t->busy_ratio = ms_quantile(work, (size_t)reps, 0.5);
    for (int r = 0; r < reps; r++) t->quiet += busy_s[i][r] > 0.95 * time_s[i][r] ? 1.0 / reps : 0;
    memcpy(work, time_s[i], sizeof(double) * (size_t)reps);
    t->median_s = ms_quantile(work, (size_t)reps, 0.5);
    t->best_s = work[0]; /* sorted by ms_quantile */
    if (i > 0 && (bench->fastest == 0 || t->best_s < bench->timing[bench->fastest].best_s)) bench->fastest = i;
  }
}

MsGemmBench *ms_gemm_bench(MsLcma *lcma, const MsBlas *const *others, int threads, MsBlasType type, gint64 m, gint64 n,
                           gint64 k, int reps, void (*progress)(int done, int all), GError **error) {
  Problem problem = {0};
  if (!problem_make(&problem, type, m, n, k)) {
    problem_clear(&problem);
    return ms_error(error, MS_ERROR_ENV,
                    "not enough memory for matrices of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT,
                    m, n, k),
           NULL;
  }
  const MsBlas *blas[CONTENDERS] = {NULL};
  MsGemmBench *bench = g_new0(MsGemmBench, 1);
  bench->timing = g_new0(MsGemmTiming, CONTENDERS);
  bench->n = 1;
  for (int i = 0; others && others[i] && bench->n < CONTENDERS; i++)
    if (ms_blas_has(others[i], type)) {
      bench->timing[bench->n].library = ms_blas_name(others[i]);
      blas[bench->n++] = others[i];
    }
  double *time_s[CONTENDERS], *busy_s[CONTENDERS];
  gboolean ok = TRUE;
  for (int i = 0; i < bench->n; i++) {
    time_s[i] = g_new(double, reps);
    busy_s[i] = g_new(double, reps);
  }
  for (int r = -1; r < reps && ok;
       r++) /* the first round is for pages, the measuring of rates, trials and the errors */
    for (int i = 0; i < bench->n; i++) {
      int at = MAX(r, 0);
      ok &= timed(lcma, blas[i], &problem.gemm, threads, &time_s[i][at], &busy_s[i][at]);
      if (r < 0) bench->timing[i].relative_error = error_of(&problem);
      if (progress) progress((r + 1) * bench->n + i + 1, (reps + 1) * bench->n);
    }
  if (ok) summarise(bench, time_s, busy_s, reps);
  for (int i = 0; i < bench->n; i++) {
    g_free(time_s[i]);
    g_free(busy_s[i]);
  }
  problem_clear(&problem);
  if (!ok) {
    ms_gemm_bench_free(bench);
    return ms_error(error, MS_ERROR_ENV, "not enough memory for the workspace"), NULL;
  }
  bench->plan = g_strdup(ms_lcma_plan(lcma));
  bench->growth = ms_lcma_error_growth(lcma);
  g_autoptr(MsLcmaPlan) plan = ms_lcma_plan_new(bench->plan, NULL);
  bench->levels = ms_lcma_plan_levels(plan);
  return bench;
}

void ms_gemm_bench_free(MsGemmBench *bench) {
  if (!bench) return;
  g_free(bench->timing);
  g_free(bench->plan);
  g_free(bench);
}
