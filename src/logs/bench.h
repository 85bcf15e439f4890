/* src/logs/bench.h - what benchmarks of networks and memories print, read as rows.
 *
 * nccl-tests and rccl-tests (one form), hccl-test, perftest (ib_write_bw and its like), STREAM, Intel's mlc: each a row
 * of a table (bench.c). A log that ends in the middle of a row is one row shorter, which the notes say; anything else
 * that is wrong is an error at its line. */
#ifndef MS_LOGS_BENCH_H
#define MS_LOGS_BENCH_H

#include "logs/reader.h"

typedef struct {
  double size_B; /* as the benchmark counts them: nccl-tests' "size" */
  double time_s; /* of one operation */
} MsBenchRow;

typedef struct {
  char *file;
  const char *op; /* all_reduce, all_gather, reduce_scatter, all_to_all, p2p; perftest: "link"; STREAM, mlc: "memory" */
  int ranks, hosts; /* 0: the log does not say, or has none (link, memory) */
  char *device;     /* "NVIDIA H100 80GB HBM3", NULL */
  GArray *rows;     /* MsBenchRow, in order of the log */
  const char *by;   /* the word of its form */
} MsBench;
void ms_bench_free(MsBench *bench);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsBench, ms_bench_free)

extern const char *const ms_bench_words[]; /* nccl-tests rccl-tests hccl-test ib_write_bw stream mlc */

/* One log of the form ms_bench_words[form]. `ranks`: for a log that does not say them (0: then that is an error; others
 * than those it says are one, too). NULL and *error. (transfer full) */
MsBench *ms_bench_read(int form, MsReader *stream, const char *file, int ranks, GPtrArray *notes, GError **error);

#endif
