/* src/lcma/bench.h - one multiplication measured: right, and how fast beside the libraries.
 *
 * Runs are paired: each repetition times every contender once, one after the other, so that a change of the machine's
 * speed hits all; of each pair the ratio is taken, of the ratios the median. Matrices are uniform in [-1, 1), from a
 * fixed seed. */
#ifndef MS_LCMA_BENCH_H
#define MS_LCMA_BENCH_H

#include "lcma/context.h"

typedef struct {
  const char *library; /* word of ms_blas_names; NULL: our plan */
  double best_s, median_s;
  double relative_error; /* largest of 256 elements against sums in long double, over the largest of those sums */
  double ratio;          /* median of its time over ours in the same repetition: our speed-up over it; 1 for our own */
  double busy_ratio;     /* the same of CPU times: what the ratio is when nothing else runs */
  double
      quiet; /* share of its runs in which the process had its CPUs (CPU time over wall time > 0.95 of the threads) */
} MsGemmTiming;

typedef struct {
  MsGemmTiming *timing; /* ours first */
  int n;
  int fastest; /* the library with the least best_s; 0 when no library was timed */
  char *plan;
  int levels;
  double growth;
} MsGemmBench;

/* `others`: libraries beside the context's own, NULL-terminated words; NULL entries of the type they lack are left out.
 * `progress` may be NULL. NULL and an MS_ERROR_ENV when there is not enough memory. (transfer full) */
MsGemmBench *ms_gemm_bench(MsLcma *lcma, const MsBlas *const *others, int threads, MsBlasType type, gint64 m, gint64 n,
                           gint64 k, int reps, void (*progress)(int done, int all), GError **error);
void ms_gemm_bench_free(MsGemmBench *bench);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsGemmBench, ms_gemm_bench_free)

#endif
