/* bench/lcma/targets.c - the measured targets of lower-complexity multiplication, see bench/lcma_targets.sh.
 *
 * Contenders are interleaved and the least time of each counts. On one thread a time is CPU time, so that on a busy
 * machine the figures are what an idle one would show; on two wall time, since threads wait for each other, and since
 * the system knows the CPU time of a thread that runs elsewhere only as of its last tick. The share of the runs in
 * which the process had its CPUs (CPU time over wall time above 0.95 of the threads) is printed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "lcma/context.h"

enum { MOST = 10 };
static float *a, *b, *c;
static int runs, quiet;

static float *pages(size_t n) {
  float *p = mmap(NULL, n * sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) exit(4);
  madvise(p, n * sizeof *p, MADV_HUGEPAGE);
  for (size_t i = 0; i < n; i++) p[i] = (float)((i * 2654435761u >> 7) % 2048) / 1024 - 1;
  return p;
}

static double timed(MsLcma *lcma, const MsBlas *blas, int threads, const gint64 *s) {
  gint64 wall = g_get_monotonic_time();
  double cpu = ms_process_cpu_s();
  if (blas) {
    ms_blas_set_threads(blas, threads);
    ms_blas_sgemm(blas, FALSE, FALSE, s[0], s[1], s[2], 1, a, s[2], b, s[1], 0, c, s[1]);
  } else ms_lcma_sgemm(lcma, 'N', 'N', s[0], s[1], s[2], 1, a, s[2], b, s[1], 0, c, s[1]);
  cpu = (ms_process_cpu_s() - cpu) / threads;
  double wall_s = 1e-6 * (double)(g_get_monotonic_time() - wall);
  runs++;
  if (cpu > 0.95 * wall_s) quiet++;
  return threads == 1 ? cpu : wall_s;
}

static void keep_least(double *least, double time_s, gboolean first) { *least = first ? time_s : MIN(*least, time_s); }

/* --- large shapes ---------------------------------------------------------------------------------------------- */
static void large_shapes(int threads, const MsBlas *const *blas, int n) {
  static const gint64 shapes[][3] = {{4096, 4096, 4096}, {8192, 8192, 8192}, {4096, 11008, 4096}, {16384, 1408, 2048},
                                     {2048, 8192, 2048}, {4096, 7168, 2048}, {8192, 4096, 4096}};
  MsLcma *lcma = ms_lcma_new(ms_blas_name(blas[0]), threads, NULL, 0);
  double product = 1, best = 0;
  for (size_t i = 0; i < G_N_ELEMENTS(shapes); i++) {
    const gint64 *s = shapes[i];
    double ours = 0, least[MOST] = {0};
    int reps = s[0] * s[1] * s[2] > 200e9 ? 3 : 5;
    timed(lcma, NULL, threads, s); /* rates, pages */
    for (int r = 0; r < reps; r++) {
      keep_least(&ours, timed(lcma, NULL, threads, s), r == 0);
      for (int l = 0; l < n; l++)
        if (r == 0 || least[l] < 1.1 * least[0]) keep_least(&least[l], timed(NULL, blas[l], threads, s), r == 0);
    }
    int fastest = 0;
    for (int l = 1; l < n; l++)
      if (least[l] < least[fastest]) fastest = l;
    double gain = least[fastest] / ours, flop = 2.0 * (double)(s[0] * s[1] * s[2]);
    product *= gain;
    best = MAX(best, gain);
    printf("%5ld x %5ld x %5ld  %d thread%s  %-28s %7.1f GFLOP/s  %-8s %7.1f  gain %.3f  error bound x%g\n", (long)s[0],
           (long)s[1], (long)s[2], threads, threads > 1 ? "s" : " ", ms_lcma_plan(lcma), 1e-9 * flop / ours,
           ms_blas_name(blas[fastest]), 1e-9 * flop / least[fastest], gain, ms_lcma_error_growth(lcma));
    fflush(stdout);
  }
  printf("%d thread%s: geometric mean %.3f (target %.2f), best %.3f (target 1.30)\n\n", threads,
         threads > 1 ? "s" : " ", pow(product, 1.0 / G_N_ELEMENTS(shapes)), threads > 1 ? 1.14 : 1.17, best);
  ms_lcma_free(lcma);
}

/* --- random shapes --------------------------------------------------------------------------------------------- */
static guint64 seed = 1;
static double uniform(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(seed >> 11) / 9007199254740992.0;
}

/* The candidates worth timing: what the model puts first, and the usual ones. */
static int candidates(const GPtrArray *choices, char **plan) {
  static const char *const usual[] = {"library", "strassen", "strassen*strassen", "4x2x4"};
  int n = 0;
  for (guint i = 0; i < choices->len && n < 3; i++)
    plan[n++] = g_strdup(((const MsLcmaChoice *)choices->pdata[i])->plan);
  for (size_t u = 0; u < G_N_ELEMENTS(usual); u++) {
    gboolean known = FALSE;
    for (int i = 0; i < n; i++) known |= strcmp(plan[i], usual[u]) == 0;
    if (!known) plan[n++] = g_strdup(usual[u]);
  }
  return n;
}

static void random_shapes(int count, int threads, const MsBlas *blas) {
  MsLcma *chooser = ms_lcma_new(ms_blas_name(blas), threads, NULL, 0),
         *runner = ms_lcma_new(ms_blas_name(blas), threads, NULL, 0);
  double product = 1, ideal = 1, worst = HUGE_VAL, tried = 1, tried_worst = HUGE_VAL;
  int right = 0, slower = 0, tried_right = 0;
  ms_lcma_set_trials(chooser, 2);
  for (int i = 0; i < count; i++) {
    gint64 s[3];
    do
      for (int d = 0; d < 3; d++) s[d] = (gint64)(128 * pow(40, uniform()));
    while ((double)s[0] * (double)s[1] * (double)s[2] > 12e9);
    const MsGemm g = {MS_BLAS_F32, .m = s[0], .n = s[1], .k = s[2], .alpha = 1};
    g_autoptr(GPtrArray) choices = ms_lcma_choices(chooser, &g);
    char *plan[MOST];
    int n = candidates(choices, plan), library = 0, settled = 0;
    do timed(chooser, NULL, threads, s);
    while (!ms_lcma_settled(chooser, &g));
    timed(chooser, NULL, threads, s); /* with what the trials left */
    double least[MOST];
    for (int r = 0; r < 4; r++)
      for (int p = 0; p < n; p++) {
        ms_lcma_set_plan(runner, plan[p]);
        if (r == 0) timed(runner, NULL, threads, s);
        keep_least(&least[p], timed(runner, NULL, threads, s), r == 0);
      }
    double fastest = least[0];
    for (int p = 0; p < n; p++) {
      fastest = MIN(fastest, least[p]);
      if (strcmp(plan[p], "library") == 0) library = p;
      if (strcmp(plan[p], ms_lcma_plan(chooser)) == 0) settled = p;
    }
    tried_right += least[settled] <= 1.03 * fastest;
    tried_worst = MIN(tried_worst, least[library] / least[settled]);
    tried *= pow(least[library] / least[settled], 1.0 / count);
    double gain = least[library] / least[0];
    right += least[0] <= 1.03 * fastest;
    slower += gain < 0.98;
    worst = MIN(worst, gain);
    product *= pow(gain, 1.0 / count);
    ideal *= pow(least[library] / fastest, 1.0 / count);
    if (gain < 0.98 || least[0] > 1.03 * fastest) {
      printf("%5ld x %5ld x %5ld  chose %s, gain %.3f;", (long)s[0], (long)s[1], (long)s[2], plan[0], gain);
      for (int p = 1; p < n; p++) printf(" %s %.3f", plan[p], least[library] / least[p]);
      puts("");
    }
    for (int p = 0; p < n; p++) g_free(plan[p]);
    fflush(stdout);
  }
  printf(
      "%d random shapes, %d thread%s: decision within 3 %% of the best in %.1f %% (target 95), slower than 0.98 in %d "
      "(target 0), worst %.3f, mean gain %.3f of %.3f; with two trials within 3 %% in %.1f %%, worst %.3f, gain %.3f\n",
      count, threads, threads > 1 ? "s" : "", 100.0 * right / count, slower, worst, product, ideal,
      100.0 * tried_right / count, tried_worst, tried);
  ms_lcma_free(chooser);
  ms_lcma_free(runner);
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 300;
  gboolean only_random = argc > 2;
  int only_threads = argc > 3 ? atoi(argv[3]) : 0;
  const MsBlas *blas[MOST];
  int n = 0;
  g_setenv("OPENBLAS_THREAD_TIMEOUT", "4", FALSE); /* else its threads keep the CPUs from who comes next */
  for (int i = 0; ms_blas_names[i]; i++) {
    blas[n] = ms_blas_open(ms_blas_names[i], NULL);
    if (blas[n] && ms_blas_note(blas[n])) printf("%s\n", ms_blas_note(blas[n]));
    if (blas[n]) n++;
  }
  if (n == 0) return 4;
  a = pages((size_t)8192 * 8192);
  b = pages((size_t)8192 * 8192);
  c = pages((size_t)8192 * 8192);
  gint64 since = g_get_monotonic_time();
  for (int threads = 1; threads <= 2 && !only_random; threads++) large_shapes(threads, blas, n);
  for (int threads = 1; threads <= 2; threads++)
    if (count > 0 && (only_threads == 0 || only_threads == threads)) random_shapes(count, threads, blas[0]);
  printf("%.0f s, %.0f %% of the runs undisturbed\n", 1e-6 * (double)(g_get_monotonic_time() - since),
         100.0 * quiet / runs);
  return 0;
}
