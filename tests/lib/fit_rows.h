/* tests/lib/fit_rows.h - synthetic rows of a curve whose parameters are known, and the curve that is fitted to them. */
#ifndef MS_TESTS_FIT_ROWS_H
#define MS_TESTS_FIT_ROWS_H

#include "lib/close.h"

#include "calib/fit_priv.h"

static const MsDeviceRates device = {1e15, 3e12, 132};

/* --- noise that is the same everywhere: a linear congruential generator, sum of four for a bell ---------------- */
static guint64 seed = 1;
static inline double uniform(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(seed >> 11) / 9007199254740992.0;
}
static inline double bell(void) { return (uniform() + uniform() + uniform() + uniform() - 2) * sqrt(3.0); }

static inline MsSeries series_new(MsRowKind kind, const char *op, const char *dtype, int odt) {
  seed = 1;
  return (MsSeries){.kind = kind,
                    .key = {.op = op, .dtype = dtype},
                    .dtype = odt,
                    .file = (char *)"t.csv",
                    .gpu = (char *)"",
                    .library = (char *)"",
                    .rows = g_array_new(FALSE, FALSE, sizeof(MsRow))};
}

/* A row as `truth` says, with some noise; every `spoil`th is four times too slow. */
static inline void add_row(MsSeries *series, const MsCurve *truth, const MsRow *shape, double noise, guint spoil) {
  MsRow row = *shape;
  row.time_s = ms_predict(truth, &device, series, row.x).time_s * exp(noise * bell());
  if (spoil && series->rows->len % spoil == spoil - 1) row.time_s *= 4;
  g_array_append_vals(series->rows, &row, 1);
}

static inline double pick(const double *list, int n) { return list[(int)(uniform() * n)]; }
static const double row_sizes[] = {128,  192,  256,  384,  512,  768,   1024, 1536,
                                   2048, 3072, 4096, 6144, 8192, 12288, 16384};
#define SIZE() pick(row_sizes, G_N_ELEMENTS(row_sizes))

static inline void gemm_rows(MsSeries *series, const MsCurve *truth, int n, double noise, guint spoil) {
  for (int i = 0; i < n; i++)
    add_row(series, truth, &(MsRow){.x = {256 + floor(uniform() * 16000), SIZE(), SIZE()}}, noise, spoil);
  ms_series_merge(series->rows);
}

/* Median and p90 error of `curve` against the truth without noise. */
static inline void expect(const MsCurve *curve, const MsCurve *truth, const MsSeries *series, double median,
                          double p90) {
  g_autoptr(GArray) error = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = 0; i < series->rows->len; i++) {
    const double *x = g_array_index(series->rows, MsRow, i).x;
    double e = fabs(ms_predict(curve, &device, series, x).time_s / ms_predict(truth, &device, series, x).time_s - 1);
    g_array_append_val(error, e);
  }
  double *e = (double *)(void *)error->data;
  for (guint i = 0; i < error->len; i++)
    for (guint j = i; j > 0 && e[j] < e[j - 1]; j--) {
      double t = e[j];
      e[j] = e[j - 1], e[j - 1] = t;
    }
  if (e[error->len / 2] > median || e[error->len * 9 / 10] > p90)
    fail_msg("%s: median %.4f p90 %.4f, at most %.4f %.4f", ms_curve_form_words[curve->form], e[error->len / 2],
             e[error->len * 9 / 10], median, p90);
}

static inline MsCurve fit_it(const MsSeries *series, const MsFitContext *context) {
  MsCurve curve = {0};
  char *why = NULL;
  if (!ms_fit_series(series, &device, context, &curve, &why)) fail_msg("not fitted: %s", why);
  return curve;
}

static inline void done(MsSeries *series, MsCurve *curve) {
  g_array_unref(series->rows);
  ms_fit_curve_clear(curve);
}

static const MsFitContext plain = {.launch_s = NAN};
#define TRUTH(op_, form_, ...)                                                  \
  {                                                                             \
    .op = (char *)(op_), .form = form_, .param = {__VA_ARGS__}, .provenance = { \
      .cast_launch_s = NAN,                                                     \
      .cast_bw_efficiency = NAN                                                 \
    }                                                                           \
  }

#endif
