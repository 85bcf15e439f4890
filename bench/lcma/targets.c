/* bench/lcma/targets.c - the measured targets of lower-complexity multiplication, see bench/lcma_targets.sh.
 *
 * Contenders are interleaved and the least time of each counts. On one thread a time is CPU time, so that on a busy
 * machine the figures are what an idle one would show; on two wall time, since threads wait for each other, and since
 * the system knows the CPU time of a thread that runs elsewhere only as of its last tick. Threads are bound, the caller
 * to one CPU and the others to the next, since else both may stay on one for a second. A run in which a thread waited
 * for its CPU is done again, at most AGAIN times; the share of the runs without is printed. */
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "lcma/context.h"

enum { MOST = 10, AGAIN = 3 };
enum { OF_ONE = 100 }; /* random shapes that one context decides: it tries 128 at most (lcma.h) */
static float *a, *b, *c;
static int runs, quiet;

static float *pages(size_t n) {
  float *p = mmap(NULL, n * sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) exit(4);
  madvise(p, n * sizeof *p, MADV_HUGEPAGE);
  for (size_t i = 0; i < n; i++) p[i] = (float)((i * 2654435761u >> 7) % 2048) / 1024 - 1;
  return p;
}

static cpu_set_t all, caller; /* CPUs of the process as it was started, and of the bound caller */

/* Threads that exist now; those of a team begin where their maker is bound, so after each team again. */
static void bind_threads(void) {
  cpu_set_t others;
  if (CPU_COUNT(&all) == 0 && sched_getaffinity(0, sizeof all, &all) != 0) return;
  if (CPU_COUNT(&all) < 2) return;
  CPU_ZERO(&caller);
  CPU_ZERO(&others);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&others) == 0; cpu++)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, CPU_COUNT(&caller) == 0 ? &caller : &others);
  DIR *threads = opendir("/proc/self/task");
  for (const struct dirent *e; threads && (e = readdir(threads));)
    if (e->d_name[0] != '.') sched_setaffinity(atoi(e->d_name), sizeof others, &others);
  if (threads) closedir(threads);
  sched_setaffinity(0, sizeof caller, &caller);
}

/* BLIS makes its threads in each call, and they would stay where the caller is bound: it is not, meanwhile. */
static void loose_caller(const MsBlas *blas, int threads, gboolean loose) {
  if (CPU_COUNT(&caller) == 0 || threads == 1 || !blas || !g_str_has_prefix(ms_blas_name(blas), "blis")) return;
  sched_setaffinity(0, sizeof all, loose ? &all : &caller);
}

static double run(MsLcma *lcma, const MsBlas *blas, int threads, const gint64 *s) {
  loose_caller(blas, threads, TRUE);
  const double wall = ms_clock_s(CLOCK_MONOTONIC), cpu = ms_process_cpu_s();
  if (blas) {
    ms_blas_set_threads(blas, threads);
    ms_blas_sgemm(blas, FALSE, FALSE, s[0], s[1], s[2], 1, a, s[2], b, s[1], 0, c, s[1]);
  } else ms_lcma_sgemm(lcma, 'N', 'N', s[0], s[1], s[2], 1, a, s[2], b, s[1], 0, c, s[1]);
  const double time_s = threads == 1 ? ms_process_cpu_s() - cpu : ms_clock_s(CLOCK_MONOTONIC) - wall;
  loose_caller(blas, threads, FALSE);
  return time_s;
}

/* The threads of all libraries exist before they are bound; else they would stay where the caller is. */
static void warm(const MsBlas *const *blas, int n, int threads) {
  for (int l = 0; l < n; l++) run(NULL, blas[l], threads, (const gint64[]){512, 512, 512});
  bind_threads();
}

static double timed(MsLcma *lcma, const MsBlas *blas, int threads, const gint64 *s) {
  double least = HUGE_VAL;
  for (int left = AGAIN; left > 0; left--) {
    const double waited = ms_team_waited_s(), time_s = run(lcma, blas, threads, s);
    const gboolean undisturbed = ms_team_undisturbed(ms_team_waited_s() - waited, time_s);
    least = MIN(least, time_s);
    runs++;
    if (!undisturbed) continue;
    quiet++;
    return time_s;
  }
  return least;
}

static void keep_least(double *least, double time_s, gboolean first) { *least = first ? time_s : MIN(*least, time_s); }

/* --- large shapes ---------------------------------------------------------------------------------------------- */
static void large_shapes(int threads, const MsBlas *const *blas, int n) {
  static const gint64 shapes[][3] = {{4096, 4096, 4096}, {8192, 8192, 8192}, {4096, 11008, 4096}, {16384, 1408, 2048},
                                     {2048, 8192, 2048}, {4096, 7168, 2048}, {8192, 4096, 4096}};
  MsLcma *lcma = ms_lcma_new(ms_blas_name(blas[0]), threads, NULL, 0);
  warm(blas, n, threads);
  double product = 1, best = 0;
  for (size_t i = 0; i < G_N_ELEMENTS(shapes); i++) {
    const gint64 *s = shapes[i];
    double ours = 0, least[MOST] = {0};
    int reps = s[0] * s[1] * s[2] > 200e9 ? 3 : 5;
    run(lcma, NULL, threads, s); /* rates, pages, trials */
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

static void add_plan(char **plan, int *n, const char *name) {
  for (int i = 0; i < *n; i++)
    if (strcmp(plan[i], name) == 0) return;
  plan[(*n)++] = g_strdup(name);
}

/* The plans worth timing: what was tried and chosen first, then what is predicted first, and the usual ones. */
static int candidates(const GPtrArray *choices, const char *settled, char **plan) {
  static const char *const usual[] = {"library", "strassen", "strassen*strassen", "4x2x4"};
  int n = 0;
  add_plan(plan, &n, settled);
  for (guint i = 0; i < choices->len && i < 3; i++) add_plan(plan, &n, ((const MsLcmaChoice *)choices->pdata[i])->plan);
  for (size_t u = 0; u < G_N_ELEMENTS(usual); u++) add_plan(plan, &n, usual[u]);
  return n;
}

typedef struct { /* of one way to decide: of its gains over the library */
  int right, slower;
  double log_gain, worst;
} Score;

typedef struct { /* least times of odd and even rounds alone */
  double of[2][MOST];
} Halves;

/* The fastest of one half is within 3 % of the best in the other: as often as that the measure itself is right. */
static gboolean agree(const Halves *h, int n) {
  int fastest = 0;
  double least = HUGE_VAL;
  for (int p = 0; p < n; p++) {
    if (h->of[0][p] < h->of[0][fastest]) fastest = p;
    least = MIN(least, h->of[1][p]);
  }
  return h->of[1][fastest] <= 1.03 * least;
}

static void score(Score *to, const double *least, int chosen, int library, double fastest) {
  const double gain = least[library] / least[chosen];
  to->right += least[chosen] <= 1.03 * fastest;
  to->slower += gain < 0.98;
  to->log_gain += log(gain);
  to->worst = MIN(to->worst, gain);
}

static void print_score(const char *name, const Score *s, int count) {
  printf(
      "  %s: within 3 %% of the best in %.1f %% (target 95), slower than 0.98 in %d (target 0), worst %.3f, mean gain "
      "%.3f\n",
      name, 100.0 * s->right / count, s->slower, s->worst, exp(s->log_gain / count));
}

static int index_of(char *const *plan, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcmp(plan[i], name) == 0) return i;
  return 0;
}

static void random_shapes(int count, int threads, const MsBlas *blas) {
  MsLcma *chooser = ms_lcma_new(ms_blas_name(blas), threads, NULL, 0),
         *runner = ms_lcma_new(ms_blas_name(blas), threads, NULL, 0);
  Score tried = {.worst = HUGE_VAL}, predicted = tried, kept = tried, ideal = tried;
  warm(&blas, 1, threads);
  int sure = 0;
  double tries_s = 0, best_s = 0, errors = 0, bias = 0, squares = 0;
  for (int i = 0; i < count; i++) {
    gint64 s[3];
    if (i > 0 && i % OF_ONE == 0) {
      ms_lcma_free(chooser);
      chooser = ms_lcma_new(ms_blas_name(blas), threads, NULL, 0);
      bind_threads();
    }
    do
      for (int d = 0; d < 3; d++) s[d] = (gint64)(128 * pow(40, uniform()));
    while ((double)s[0] * (double)s[1] * (double)s[2] > 12e9);
    const MsGemm g = {MS_BLAS_F32, .m = s[0], .n = s[1], .k = s[2], .alpha = 1};
    g_autoptr(GPtrArray) choices = ms_lcma_choices(chooser, &g);
    tries_s += run(chooser, NULL, threads, s);
    char *plan[MOST];
    int n = candidates(choices, ms_lcma_plan(chooser), plan);
    double least[MOST], spent_s = 0;
    Halves halves;
    for (int r = 0; r < 6 || (r < 24 && spent_s < 120e-3 * n); r++) /* short ones more often */
      for (int turn = 0; turn < n; turn++) {                        /* every second round backwards, as in trials */
        const int p = r % 2 ? n - 1 - turn : turn;
        ms_lcma_set_plan(runner, plan[p]);
        if (r == 0) run(runner, NULL, threads, s);
        const double time_s = timed(runner, NULL, threads, s);
        keep_least(&least[p], time_s, r == 0);
        keep_least(&halves.of[r % 2][p], time_s, r < 2);
        spent_s += least[p];
      }
    sure += agree(&halves, n);
    int best = 0, library = index_of(plan, n, "library");
    for (int p = 1; p < n; p++)
      if (least[p] < least[best]) best = p;
    best_s += least[best];
    score(&tried, least, 0, library, least[best]);
    score(&predicted, least, index_of(plan, n, ((const MsLcmaChoice *)choices->pdata[0])->plan), library, least[best]);
    score(&kept, least, library, library, least[best]);
    score(&ideal, least, best, library, least[best]);
    for (int p = 0; p < n; p++) {
      const MsLcmaChoice *x = ms_lcma_choice_of(choices, plan[p]);
      if (p == library || !x) continue;
      const double error = log(ms_lcma_choice_of(choices, "library")->time_s / x->time_s * least[p] / least[library]);
      errors++, bias += error, squares += error * error;
    }
    if (least[0] > 1.03 * least[best]) {
      printf("%5ld x %5ld x %5ld  %6.2f ms (predicted %6.2f): chose %s;", (long)s[0], (long)s[1], (long)s[2],
             1e3 * least[library], 1e3 * ms_lcma_choice_of(choices, "library")->time_s, plan[0]);
      for (int p = 0; p < n; p++) {
        const MsLcmaChoice *c = ms_lcma_choice_of(choices, plan[p]);
        printf(" %s %.3f (%.3f)", plan[p], least[library] / least[p],
               c ? ms_lcma_choice_of(choices, "library")->time_s / c->time_s : 1);
      }
      puts("");
    }
    for (int p = 0; p < n; p++) g_free(plan[p]);
    fflush(stdout);
  }
  printf("%d random shapes, %d thread%s, deciding took as long as %.1f multiplications of each:\n", count, threads,
         threads > 1 ? "s" : "", tries_s / best_s);
  bias /= errors;
  printf("  predicted gains of schemes over the library: %+.1f %% +- %.1f %% off\n", 100 * bias,
         100 * sqrt(squares / errors - bias * bias));
  print_score("tried (the default)", &tried, count);
  print_score("predicted", &predicted, count);
  print_score("always the library", &kept, count);
  print_score("the best", &ideal, count);
  printf("  half of the measurements finds the best of the other half within 3 %% in %.1f %%\n", 100.0 * sure / count);
  ms_lcma_free(chooser);
  ms_lcma_free(runner);
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 300;
  gboolean only_random = argc > 2;
  int only_threads = argc > 3 ? atoi(argv[3]) : 0;
  if (argc > 4) seed = g_ascii_strtoull(argv[4], NULL, 10);
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
