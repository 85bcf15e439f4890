/* src/logs/trace_times.h - where the time of a profile went: by class, by stream, beside each other.
 *
 * Only kernels of whole steps count, and all times and counts are of one step: the sum over the steps divided by their
 * number. A stream is busy while a kernel of it runs; two streams overlap while both are. */
#ifndef MS_LOGS_TRACE_TIMES_H
#define MS_LOGS_TRACE_TIMES_H

#include "base/figure.h"
#include "logs/trace.h"

typedef struct {
  const char *word;              /* of the kernel table, "unrecognised" */
  double kernels, time_s, share; /* of a step; of the time of all kernels */
  double median_s;               /* of one kernel */
  double beside;                 /* share of its time in which another stream is busy */
  double slowdown;               /* what its kernels take longer beside others: see below; NaN */
} MsTraceClassTime;

/* Slowdown of a class: its kernels of one name and size which are beside another stream for half of their time or more,
 * over the median of those that are for a tenth or less: the sum of their times over the sum of the medians. The size
 * is that of a product, else the blocks of its launch; kernels of which it is not known do not count. Nor do names and
 * sizes that have fewer than MS_TRACE_LEAST of either, or whose times (10th to 90th percentile) are further apart than
 * one size explains: MS_TRACE_ALIKE times alone, MS_TRACE_ALIKE_BESIDE times beside others. */
#define MS_TRACE_ALIKE        1.25
#define MS_TRACE_ALIKE_BESIDE 1.6
enum { MS_TRACE_LEAST = 3 };

typedef struct {
  const char *word;
  double time_s;
} MsTraceClassPart;

typedef struct {
  char *name;                       /* "7"; "others" */
  double kernels, time_s;           /* of a step; sum of its kernels */
  double busy_s, alone_s;           /* while something of it runs; and nothing of any other stream */
  double gap_s, gaps, median_gap_s; /* between its kernels, shorter than MS_TRACE_GAP_MOST_S; NaN: none */
  int n_parts;
  MsTraceClassPart *parts; /* its classes, the longest first */
} MsTraceStreamTime;

/* What is longer is no gap between two launches, but a wait for something. */
#define MS_TRACE_GAP_MOST_S 1e-4

typedef struct {
  const char *a, *b; /* streams */
  double both_s;
} MsTraceOverlap;

typedef struct {
  const char *name; /* of the kernel, or of its family */
  const char *class_word;
  double kernels, time_s, share;
} MsTraceKernelTime;

typedef struct {
  double groups, m, n, k, kernels /* in all steps */, median_s, flops;
  char dtype[8];
} MsTraceProduct;

typedef struct {
  char *op;
  double bytes_B;         /* as nccl-tests count */
  double kernels, best_s; /* in all steps; the fastest: what others take longer they wait for other ranks */
  int ranks;
} MsTraceCollective;

typedef struct {
  const char *file, *device, *steps_by;
  int rank, ranks;        /* -1, 0: not known */
  double reference_flops; /* as of the trace */
  int steps;
  double step_s;         /* median length of the marks, or from start to start where there are several */
  double span_s, busy_s; /* from its first kernel to the end of its last; while any kernel runs */
  double time_s, known;  /* sum of all kernels; share of it that a family knows */
  int n_classes, n_streams, n_overlaps, n_families, n_strange, n_products, n_collectives;
  MsTraceClassTime *classes;      /* the longest first; those that occur */
  MsTraceStreamTime *streams;     /* the busiest first */
  MsTraceOverlap *overlaps;       /* the longest first */
  MsTraceKernelTime *families;    /* the longest first */
  MsTraceKernelTime *strange;     /* kernels that no family knows, the longest first */
  MsTraceProduct *products;       /* matrix products of known shape, by shape */
  MsTraceCollective *collectives; /* collectives of known size, by size */
} MsTraceTimes;

/* The trace and the table must outlive it. (transfer full) */
MsTraceTimes *ms_trace_times_new(const MsTrace *trace, const MsKernelTable *table);
void ms_trace_times_free(MsTraceTimes *times);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsTraceTimes, ms_trace_times_free)

/* "7". (transfer full) */
char *ms_trace_stream_name(const MsTrace *trace, int index);

extern const MsFigures ms_trace_figures; /* of MsTraceTimes */

/* Tables for `moesim fit`, NULL where there is nothing for one. (transfer full) */
char *ms_trace_gemm_csv(const MsTraceTimes *const *times, int n);
char *ms_trace_collective_csv(const MsTraceTimes *const *times, int n);

#endif
