#include "local/messages.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "calib/csv.h"
#include "local/machine.h"

enum {
  SMALLEST = 64,
  CLOSE = 4 << 20 /* sizes up to here lie close to each other */,
  LARGEST = 32 << 20,
  QUICK_LARGEST = 8 << 20,
  MOST_SIZES = 128,
  REAL_B = 4,
  TIMES = 4 /* of one timing */,
  MOST_REPEATS = 9,
  EVICT_L2 = 4 /* times that cache is written between two messages */,
  EVICT_B = 8 << 20 /* where its size is unknown */,
  REFERENCE_EVERY = 8 /* sizes */,
  SIDE = 512 /* of the products that are compared from rank to rank: as long as those of a step */,
  PRODUCTS = 12
};
static const double budget_s = 0.03; /* of the repetitions of one size in one pass */

typedef enum { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, P2P, N_KINDS } Kind;
static const MsOpKind op_kind[N_KINDS] = {MS_OP_ALL_GATHER, MS_OP_REDUCE_SCATTER, MS_OP_ALL_REDUCE, MS_OP_ALL_TO_ALL,
                                          MS_OP_P2P};
static const char *const csv_words[N_KINDS] = {"all_gather", "reduce_scatter", "all_reduce", "alltoall",
                                               "p2p"}; /* as nccl-tests call them */

typedef struct {
  MsComm *comm;
  int own, ranks;
  float *a, *b; /* LARGEST bytes each */
  char *evict;  /* [evict_B] */
  gsize evict_B;
  gint64 *counts; /* [ranks] */
  GArray *jitter; /* double, of every place where ranks were compared */
} Bench;

/* One operation over `n` elements: the whole of an all-gather, reduce-scatter or all-to-all, the buffer of an
 * all-reduce, the message of p2p there and back. */
static void once(const Bench *x, Kind kind, gint64 n) {
  gint64 part = n / x->ranks;
  for (int i = 0; i < x->ranks; i++) x->counts[i] = part;
  switch (kind) {
  case ALL_GATHER: ms_comm_all_gather(x->comm, MS_GROUP_TP, x->a, x->b, x->counts, 0); break;
  case REDUCE_SCATTER: ms_comm_reduce_scatter(x->comm, MS_GROUP_TP, x->a, x->b, x->counts); break;
  case ALL_REDUCE: ms_comm_all_reduce(x->comm, MS_GROUP_TP, x->a, n, FALSE); break;
  case ALL_TO_ALL: ms_comm_all_to_all(x->comm, MS_GROUP_TP, x->a, x->counts, x->b, x->counts, 0); break;
  default:
    if (x->own > 1) return;
    if (x->own == 0) ms_comm_send(x->comm, 1, 0, x->a, n);
    ms_comm_receive(x->comm, 1 - x->own, 0, x->b, n);
    if (x->own == 1) ms_comm_send(x->comm, 0, 0, x->a, n);
    ms_comm_flush(x->comm);
  }
}

/* Mean seconds of some operations, as the slowest rank saw them; *quiet when every rank had its core. Before each its
 * core's own cache is filled with something else, as the layers between two messages of a step leave it: one on top of
 * another, messages below a megabyte take half the time. */
static double timed(const Bench *x, Kind kind, gint64 n, gboolean *quiet) {
  double cpu_s = 0, data[2] = {0};
  for (int i = 0; i < TIMES; i++) {
    memset(x->evict, i, x->evict_B);
    ms_comm_barrier(x->comm);
    double cpu = ms_process_cpu_s(), wall = ms_clock_s(CLOCK_MONOTONIC);
    once(x, kind, n);
    data[0] += ms_clock_s(CLOCK_MONOTONIC) - wall, cpu_s += ms_process_cpu_s() - cpu;
  }
  data[1] = -cpu_s / MAX(data[0], 1e-9);
  ms_comm_world_max(x->comm, data, 2);
  *quiet = -data[1] > MS_QUIET;
  return data[0] / TIMES / (kind == P2P ? 2 : 1);
}

typedef struct { /* HUGE_VAL: not yet; each with what the reference reached beside it */
  double least_s, least_flops, quiet_s, quiet_flops;
} Least;

static const Least nothing = {HUGE_VAL, 1, HUGE_VAL, 1};

/* The least by time alone (local/survey.c). */
static void keep(double s, double flops, double *least_s, double *least_flops) {
  if (s < *least_s) *least_s = s, *least_flops = flops;
}

static void repeat(const Bench *x, Kind kind, gint64 n, Least *least) {
  gboolean quiet;
  *least = nothing;
  double first = timed(x, kind, n, &quiet); /* the same on all ranks, so that all repeat as often */
  int repeats = (int)CLAMP(budget_s / (first * TIMES), 2, MOST_REPEATS);
  for (int i = 0; i < repeats; i++) {
    double s = timed(x, kind, n, &quiet);
    least->least_s = MIN(least->least_s, s);
    if (quiet) least->quiet_s = MIN(least->quiet_s, s);
  }
}

static void add(GArray *samples, Kind kind, int ranks, double bytes_B, double time_s, double flops) {
  for (int fp32 = 0; fp32 < 2; fp32++) {
    MsRowSample s = {.op = {.name = csv_words[kind],
                            .kind = (guint8)op_kind[kind],
                            .dtype = fp32 ? MS_ODT_FP32 : MS_ODT_BF16,
                            .group = MS_GROUP_TP},
                     .ranks = ranks,
                     .time_s = time_s,
                     .share = 0,
                     .reference_flops = flops};
    s.op.message_B = fp32 ? bytes_B : bytes_B / 2;
    g_array_append_val(samples, s);
  }
}

/* Whole multiples of `unit` bytes, ascending. */
static int sizes_of(gboolean quick, int unit, gint64 *bytes) {
  int n = 0;
  double largest = quick ? QUICK_LARGEST : LARGEST;
  for (double at = SMALLEST; at <= largest * 1.001; at *= exp2(quick ? 0.5 : at < CLOSE ? 0.25 : 0.5))
    bytes[n++] = MAX((gint64)(at + 0.5) / unit, 1) * unit;
  return n;
}

/* Of all ranks at the same time. */
static double slowest_reference(const Bench *x, const MsBlas *blas) {
  ms_comm_barrier(x->comm);
  double least[1] = {-ms_blas_reference_flops(blas)};
  ms_comm_world_max(x->comm, least, 1);
  return -least[0];
}

/* The same products on all ranks at the same time; CPU time, as a step counts whose ranks had their cores. */
static void compare_ranks(const Bench *x, const MsBlas *blas) {
  g_autofree double *s = g_new0(double, x->ranks *PRODUCTS); /* [products][ranks] */
  double variance = 0, square = 0;
  ms_comm_barrier(x->comm);
  for (int i = 0; i < PRODUCTS; i++) {
    double since = ms_process_cpu_s();
    ms_blas_sgemm(blas, FALSE, FALSE, SIDE, SIDE, SIDE, 1, x->a, SIDE, x->a + SIDE * SIDE, SIDE, 0, x->b, SIDE);
    s[i * x->ranks + x->own] = ms_process_cpu_s() - since;
  }
  ms_comm_world_sum(x->comm, s, x->ranks * PRODUCTS);
  for (int i = 0; i < PRODUCTS; i++) {
    double mean = gsl_stats_mean(s + i * x->ranks, 1, (size_t)x->ranks);
    variance += gsl_stats_variance_m(s + i * x->ranks, 1, (size_t)x->ranks, mean), square += mean * mean;
  }
  g_array_append_vals(x->jitter, &(double){sqrt(variance / square)}, 1);
}

/* Sizes [from, to), at the better of the references before and after them, as a disturbance can only lower one. Returns
 * the one after. */
static double some_sizes(const Bench *x, const MsBlas *blas, const gint64 *bytes, int from, int to, double before_flops,
                         Least *least) {
  Least now[REFERENCE_EVERY * N_KINDS];
  for (int i = 0; i < (to - from) * N_KINDS; i++)
    repeat(x, (Kind)(i % N_KINDS), bytes[from + i / N_KINDS] / REAL_B, &now[i]);
  compare_ranks(x, blas);
  double after_flops = slowest_reference(x, blas), flops = MAX(before_flops, after_flops);
  for (int i = 0; i < (to - from) * N_KINDS; i++) {
    Least *l = &least[from * N_KINDS + i];
    keep(now[i].least_s, flops, &l->least_s, &l->least_flops),
        keep(now[i].quiet_s, flops, &l->quiet_s, &l->quiet_flops);
  }
  return after_flops;
}

GArray *ms_messages_measure(MsComm *comm, const MsBlas *blas, int own, gboolean quick, int passes, double *jitter) {
  g_autoptr(GArray) of_ranks = g_array_new(FALSE, FALSE, sizeof(double));
  Bench x = {.comm = comm, .own = own, .ranks = ms_comm_size(comm, MS_GROUP_TP), .jitter = of_ranks};
  x.counts = g_new0(gint64, x.ranks);
  x.a = g_malloc0(LARGEST), x.b = g_malloc0(LARGEST);
  memset(x.a, 1, LARGEST), memset(x.b, 1, LARGEST); /* pages are there */
  g_autoptr(MsMachine) machine = ms_machine_new(blas);
  x.evict_B = machine->l2_B > 0 ? (gsize)(EVICT_L2 * machine->l2_B) : EVICT_B, x.evict = g_malloc(x.evict_B);
  gint64 bytes[MOST_SIZES];
  int steps = sizes_of(quick, x.ranks * REAL_B, bytes);
  g_autofree Least *least = g_new(Least, steps * N_KINDS);
  for (int i = 0; i < steps * N_KINDS; i++) least[i] = nothing;
  for (int pass = 0; pass < passes; pass++) {
    double before_flops = slowest_reference(&x, blas);
    for (int from = 0; from < steps; from += REFERENCE_EVERY)
      before_flops = some_sizes(&x, blas, bytes, from, MIN(from + REFERENCE_EVERY, steps), before_flops, least);
  }
  *jitter = ms_quantile((double *)(void *)of_ranks->data, of_ranks->len, 0.5);
  GArray *samples = g_array_new(FALSE, FALSE, sizeof(MsRowSample));
  for (int i = 0; i < steps; i++)
    for (int kind = 0; kind < N_KINDS; kind++) {
      const Least *l = &least[i * N_KINDS + kind];
      add(samples, (Kind)kind, x.ranks, (double)bytes[i], isfinite(l->quiet_s) ? l->quiet_s : l->least_s,
          isfinite(l->quiet_s) ? l->quiet_flops : l->least_flops);
    }
  g_free(x.a), g_free(x.b), g_free(x.counts), g_free(x.evict);
  return samples;
}

/* --- as text --------------------------------------------------------------------------------------------------- */
char *ms_messages_text(const GArray *samples) {
  GString *out = g_string_new("op,num_gpus,bytes,latency_us,reference_flops\n");
  for (guint i = 0; i < samples->len; i++) {
    const MsRowSample *s = &g_array_index(samples, MsRowSample, i);
    if (s->op.dtype == MS_ODT_FP32)
      g_string_append_printf(out, "%s,%d,%.0f,%.6g,%.6g\n", s->op.name, s->ranks, s->op.message_B, s->time_s * 1e6,
                             s->reference_flops);
  }
  return g_string_free(out, FALSE);
}

GArray *ms_messages_parse(const char *text, const char *filename, GError **error) {
  g_autoptr(MsCsv) csv = ms_csv_parse(text, strlen(text), filename, error);
  if (!csv) return NULL;
  g_autoptr(GArray) samples = g_array_new(FALSE, FALSE, sizeof(MsRowSample));
  int op = ms_csv_column(csv, "op"), ranks = ms_csv_column(csv, "num_gpus"), bytes = ms_csv_column(csv, "bytes"),
      latency = ms_csv_column(csv, "latency_us"), reference = ms_csv_column(csv, "reference_flops");
  GError *cause = NULL;
  while (ms_csv_next(csv, &cause)) {
    double z, B, us, flops = 0;
    int kind = 0;
    while (kind < N_KINDS && strcmp(ms_csv_text(csv, op), csv_words[kind]) != 0) kind++;
    if (kind == N_KINDS)
      return ms_csv_error(csv, op, error, "must be one of all_gather, reduce_scatter, all_reduce, alltoall, p2p"), NULL;
    if (!ms_csv_number(csv, ranks, 2, 1e6, &z, error) || !ms_csv_number(csv, bytes, 1, 1e15, &B, error) ||
        !ms_csv_number(csv, latency, 1e-6, 1e12, &us, error) ||
        (reference >= 0 && !ms_csv_number(csv, reference, 0, 1e18, &flops, error)))
      return NULL;
    add(samples, (Kind)kind, (int)z, B, us * 1e-6, flops);
  }
  if (cause) {
    g_propagate_error(error, cause);
    return NULL;
  }
  return g_steal_pointer(&samples);
}
