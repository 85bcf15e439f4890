/* src/calib/segments.c - the least of a few lines through collective timings. */
#include "base/quantity.h"
#include "calib/fit_priv.h"
#include "calib/solve.h"

#include <math.h>
#include <string.h>

enum { MOST_LINES = 4, POINTS_PER_LINE = 4 };
static const double worth = 0.97; /* one more line must lower the loss to this share */

typedef struct {
  const MsSeries *series;
  const MsRow *row;
  MsCurve *curve;
  int lines;
} Job;

static void set_lines(const Job *job, const double *p) {
  job->curve->n_segments = job->lines;
  for (int i = 0; i < job->lines; i++)
    job->curve->segment_alpha_s[i] = p[2 * i], job->curve->segment_Bps[i] = p[2 * i + 1];
}

static double residual(const double *p, guint i, const void *data) {
  static const MsDeviceRates none = {1, 1, 1};
  const Job *job = data;
  set_lines(job, p);
  return log(ms_predict(job->curve, &none, job->series, job->row[i].x).time_s / job->row[i].time_s);
}

static double bus_of(const Job *job, guint i) {
  static const MsDeviceRates none = {1, 1, 1};
  return ms_predict(job->curve, &none, job->series, job->row[i].x).at[0];
}

/* The line through rows [from, to) with relative errors least. */
static void line_through(const Job *job, guint from, guint to, double *alpha, double *Bps) {
  double s1 = 0, sx = 0, sxx = 0, sy = 0, sxy = 0; /* weights 1 / t^2 */
  for (guint i = from; i < to; i++) {
    double t = job->row[i].time_s, x = bus_of(job, i), w = 1 / (t * t);
    s1 += w, sx += w * x, sxx += w * x * x, sy += w * t, sxy += w * x * t;
  }
  double determinant = s1 * sxx - sx * sx;
  double slope = determinant > 0 ? (s1 * sxy - sx * sy) / determinant : 0;
  *Bps = slope > 1e-15 ? MIN(1 / slope, 1e14) : bus_of(job, to - 1) / job->row[from].time_s * 10;
  *alpha = s1 > 0 ? (sy - sx / *Bps) / s1 : 1e-5;
}

/* Start s: the rows cut into as many parts, at places that move with s. */
static void make_start(const Job *job, guint n, int s, double *start) {
  static const double shift[] = {0, -0.5, 0.5};
  guint from = 0;
  for (int i = 0; i < job->lines; i++) {
    double cut = (i + 1 + (i + 1 < job->lines ? shift[s] : 0)) / job->lines * n;
    guint to = i + 1 == job->lines ? n : CLAMP((guint)cut, from + 1, n - (guint)(job->lines - 1 - i));
    line_through(job, from, to, &start[2 * i], &start[2 * i + 1]);
    start[2 * i] = CLAMP(start[2 * i], 2e-7, 0.5), start[2 * i + 1] = CLAMP(start[2 * i + 1], 2e6, 5e13);
    from = to;
  }
}

static double fit_lines(Job *job, guint n, double *p) {
  MsBound bound[MS_MAX_PARAMS];
  double starts[3][MS_MAX_PARAMS] = {{0}};
  for (int s = 0; s < 3; s++) make_start(job, n, s, starts[s]);
  for (int i = 0; i < job->lines; i++)
    bound[2 * i] = (MsBound){1e-7, 1, TRUE}, bound[2 * i + 1] = (MsBound){1e6, 1e14, TRUE};
  return ms_solve(2 * job->lines, bound, n, residual, job, 3, (const double(*)[MS_MAX_PARAMS])starts, p);
}

/* Lines that are nowhere the least by latency order are dropped by the sort's second pass: fastest start first, then
 * wider. */
static void sort_lines(MsCurve *curve) {
  for (int i = 1; i < curve->n_segments; i++)
    for (int j = i; j > 0 && curve->segment_alpha_s[j] < curve->segment_alpha_s[j - 1]; j--) {
      double alpha = curve->segment_alpha_s[j], Bps = curve->segment_Bps[j];
      curve->segment_alpha_s[j] = curve->segment_alpha_s[j - 1], curve->segment_Bps[j] = curve->segment_Bps[j - 1];
      curve->segment_alpha_s[j - 1] = alpha, curve->segment_Bps[j - 1] = Bps;
    }
  int kept = 0;
  for (int i = 0; i < curve->n_segments; i++) {
    if (kept > 0 && curve->segment_Bps[i] <= curve->segment_Bps[kept - 1]) continue;
    curve->segment_alpha_s[kept] = ms_round_digits(curve->segment_alpha_s[i], 4);
    curve->segment_Bps[kept++] = ms_round_digits(curve->segment_Bps[i], 4);
  }
  curve->n_segments = kept;
}

void ms_fit_segments(const MsSeries *series, const MsRow *row, guint n, MsCurve *curve) {
  Job job = {series, row, curve, 1};
  double best[MS_MAX_PARAMS] = {0}, least = HUGE_VAL;
  int lines = 1, most = CLAMP((int)(n / POINTS_PER_LINE), 1, MOST_LINES);
  for (job.lines = 1; job.lines <= most; job.lines++) {
    double p[MS_MAX_PARAMS] = {0}, loss = fit_lines(&job, n, p);
    if (job.lines > 1 && loss > worth * least) continue;
    least = loss, lines = job.lines;
    memcpy(best, p, sizeof best);
  }
  job.lines = lines;
  set_lines(&job, best);
  sort_lines(curve);
}
