/* src/study/draws.c - many draws of the routing, and what their results spread over. */
#include "study/draws.h"

#include "base/err.h"
#include "base/stats.h"
#include "study/jobs.h"

#include <math.h>

typedef struct {
  MsJob job; /* first, as ms_jobs_run wants it */
  const MsScenario *base;
  MsFidelity fidelity;
  int index;
  double step_s, peak_B, hottest;
  gboolean feasible;
  int code; /* of an error, 0: none; `why` is its message, here as it may be of another process */
  char why[512];
} One;

static void draw(gpointer item, gconstpointer data) {
  One *one = item;
  (void)data;
  g_autoptr(MsScenario) s = ms_scenario_copy(one->base, TRUE);
  s->training.routing.seed += (guint32)one->index;
  g_autoptr(GError) error = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, one->fidelity, NULL, &error);
  if (!r) {
    one->code = error->code;
    g_strlcpy(one->why, error->message, sizeof one->why);
    return;
  }
  one->step_s = r->step_time_s, one->feasible = r->feasible;
  one->peak_B = r->routing.peak_B, one->hottest = r->routing.hottest;
}

static double quantile_error(double *values, int n, double q) {
  double s = sqrt(q * (1 - q) / n);
  return (ms_quantile(values, (size_t)n, MIN(q + s, 1)) - ms_quantile(values, (size_t)n, MAX(q - s, 0))) / 2;
}

MsSpread ms_spread(double *values, int n) {
  double sum = 0, squares = 0;
  for (int i = 0; i < n; i++) sum += values[i];
  double mean = sum / n;
  for (int i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
  double sd = n > 1 ? sqrt(squares / (n - 1)) : 0;
  return (MsSpread){.mean = mean,
                    .mean_error = sd / sqrt(n),
                    .sd = sd,
                    .p50 = ms_quantile(values, (size_t)n, 0.5),
                    .p50_error = quantile_error(values, n, 0.5),
                    .p95 = ms_quantile(values, (size_t)n, 0.95),
                    .p95_error = quantile_error(values, n, 0.95),
                    .least = ms_quantile(values, (size_t)n, 0),
                    .most = ms_quantile(values, (size_t)n, 1)};
}

static MsSpread spread_of(GArray *all, size_t offset) {
  g_autofree double *value = g_new(double, all->len);
  int n = 0;
  for (guint i = 0; i < all->len; i++) {
    const One *one = &g_array_index(all, One, i);
    if (one->job.done) value[n++] = *(const double *)((const char *)one + offset);
  }
  return n > 0 ? ms_spread(value, n) : (MsSpread){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
}

/* Draws in their own order, whatever order they ended in. FALSE with the error of the first that failed. */
static gboolean sum_up(GArray *all, MsDraws *out, GError **error) {
  for (guint i = 0; i < all->len; i++) {
    One *one = &g_array_index(all, One, i);
    if (one->code) return ms_error(error, one->code, "%s", one->why);
    out->feasible += one->job.done && one->feasible;
  }
  out->n = (int)out->extent.done;
  out->step_time_s = spread_of(all, offsetof(One, step_s));
  out->peak_B = spread_of(all, offsetof(One, peak_B));
  out->hottest = spread_of(all, offsetof(One, hottest));
  return TRUE;
}

gboolean ms_draws_run(const MsScenario *s, MsFidelity fidelity, int n, int threads, gboolean progress, MsDraws *out,
                      GError **error) {
  *out = (MsDraws){.first_seed = s->training.routing.seed};
  if (!ms_routing_is_drawn(&s->training.routing) || s->model->num_experts == 0 || s->layout.ep <= 1)
    return ms_input_error(error, s->file, 0, "training.routing",
                          "is the same in every draw; draws need zipf, dirichlet or histogram, experts, and ep > 1");
  g_autoptr(GArray) all = g_array_new(FALSE, TRUE, sizeof(One));
  for (int i = 0; i < n; i++)
    g_array_append_val(all, ((One){.job = {s->file}, .base = s, .fidelity = fidelity, .index = i}));
  const MsJobsOptions shift = {"draws", "draws", threads, progress};
  return ms_jobs_run_on_ranks(all, draw, NULL, &shift, &out->extent, error) && sum_up(all, out, error);
}
