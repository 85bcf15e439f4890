#include "study/decide.h"

#include "study/knobs.h"

#include <gsl/gsl_linalg.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <string.h>

enum { SAMPLES = 4096, SEED = 1 };
#define HARDLY 1e-3 /* regret that is not worth a run */
#define WORTH  0.1  /* of the regret, that a further run must save */
#define TINY   1e-9 /* a variance: layouts whose keys are the same still give a matrix that has a root */

/* --- draws ----------------------------------------------------------------------------------------------------- */
typedef struct {
  int n;
  const double *cov;
  double noise;  /* of a measured step, sd of its logarithm */
  double *mean;  /* log times */
  double *log_s; /* [SAMPLES][n] */
  double *seen;  /* [SAMPLES][n] what a run of it would measure */
  double *least; /* [SAMPLES] of each draw */
} Draws;

static double *draw_of(const Draws *d, int sample) { return d->log_s + (gsize)sample * (gsize)d->n; }

static void draw_all(Draws *d) {
  gsl_matrix *root = gsl_matrix_alloc((size_t)d->n, (size_t)d->n);
  for (int i = 0; i < d->n; i++)
    for (int k = 0; k < d->n; k++) gsl_matrix_set(root, (size_t)i, (size_t)k, d->cov[i * d->n + k]);
  gsl_linalg_cholesky_decomp1(root);
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
  gsl_rng_set(rng, SEED);
  g_autofree double *z = g_new(double, d->n);
  for (int s = 0; s < SAMPLES; s++) {
    double *log_s = draw_of(d, s);
    for (int i = 0; i < d->n; i++) z[i] = gsl_ran_gaussian(rng, 1);
    d->least[s] = INFINITY;
    for (int i = 0; i < d->n; i++) {
      log_s[i] = d->mean[i];
      for (int k = 0; k <= i; k++) log_s[i] += gsl_matrix_get(root, (size_t)i, (size_t)k) * z[k];
      d->least[s] = MIN(d->least[s], log_s[i]);
    }
    for (int i = 0; i < d->n; i++)
      d->seen[(gsize)s * (gsize)d->n + (gsize)i] = log_s[i] + gsl_ran_gaussian(rng, d->noise);
  }
  gsl_rng_free(rng);
  gsl_matrix_free(root);
}

static double regret_of(const Draws *d, int sample, int choice) {
  return exp(draw_of(d, sample)[choice] - d->least[sample]) - 1;
}

/* --- what a measured run tells --------------------------------------------------------------------------------- */
/* weight[j][a] = C_jA (C_AA + noise)^-1: the mean of j moves by its product with what the measured ones are off. */
static void weights_of(const Draws *d, const int *run, int runs, double *weight) {
  gsl_matrix *own = gsl_matrix_alloc((size_t)runs, (size_t)runs);
  gsl_vector *with = gsl_vector_alloc((size_t)runs), *solved = gsl_vector_alloc((size_t)runs);
  for (int a = 0; a < runs; a++)
    for (int b = 0; b < runs; b++)
      gsl_matrix_set(own, (size_t)a, (size_t)b, d->cov[run[a] * d->n + run[b]] + (a == b ? d->noise * d->noise : 0));
  gsl_linalg_cholesky_decomp1(own);
  for (int j = 0; j < d->n; j++) {
    for (int a = 0; a < runs; a++) gsl_vector_set(with, (size_t)a, d->cov[j * d->n + run[a]]);
    gsl_linalg_cholesky_solve(own, with, solved);
    for (int a = 0; a < runs; a++) weight[j * runs + a] = gsl_vector_get(solved, (size_t)a);
  }
  gsl_vector_free(with), gsl_vector_free(solved);
  gsl_matrix_free(own);
}

/* Expected regret of the choice when these were measured. */
static double regret_after(const Draws *d, const int *run, int runs) {
  g_autofree double *weight = g_new(double, d->n *runs);
  double sum = 0;
  weights_of(d, run, runs, weight);
  for (int s = 0; s < SAMPLES; s++) {
    const double *seen = d->seen + (gsize)s * (gsize)d->n;
    double off[MS_DECIDE_RUNS], best = INFINITY;
    int choice = 0;
    for (int a = 0; a < runs; a++) off[a] = seen[run[a]] - d->mean[run[a]];
    for (int j = 0; j < d->n; j++) {
      double mean = d->mean[j];
      for (int a = 0; a < runs; a++) mean += weight[j * runs + a] * off[a];
      if (mean < best) best = mean, choice = j;
    }
    sum += regret_of(d, s, choice);
  }
  return sum / SAMPLES;
}

static gboolean is_among(int i, const int *run, int runs) {
  for (int a = 0; a < runs; a++)
    if (run[a] == i) return TRUE;
  return FALSE;
}

static void find_runs(const Draws *d, MsDecision *out) {
  double before = out->row[out->pick].regret;
  for (out->n_runs = 0; out->n_runs < MIN(MS_DECIDE_RUNS, d->n) && before > HARDLY; out->n_runs++) {
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < d->n; i++) {
      if (is_among(i, out->run, out->n_runs)) continue;
      out->run[out->n_runs] = i;
      double after = regret_after(d, out->run, out->n_runs + 1);
      if (after < least) least = after, best = i;
    }
    /* one run alone may tell nothing where two tell the difference */
    if (out->n_runs > 0 && least > (1 - WORTH) * before) break;
    out->run[out->n_runs] = best;
    out->regret_after[out->n_runs] = before = least;
  }
  if (out->n_runs > 0 && before > (1 - WORTH) * out->row[out->pick].regret) out->n_runs = 0;
}

void ms_decide_among(const double *time_s, const double *covariance, double run_noise, MsDecision *out) {
  gsize all = (gsize)SAMPLES * (gsize)out->n;
  Draws d = {out->n,
             covariance,
             run_noise,
             g_new(double, out->n),
             g_new(double, all),
             g_new(double, all),
             g_new(double, SAMPLES)};
  for (int i = 0; i < d.n; i++) d.mean[i] = log(time_s[i]);
  draw_all(&d);
  out->pick = 0;
  for (int i = 0; i < d.n; i++) {
    MsDecisionRow *row = &out->row[i];
    row->chance = row->regret = 0;
    for (int s = 0; s < SAMPLES; s++) {
      row->chance += draw_of(&d, s)[i] <= d.least[s];
      row->regret += regret_of(&d, s, i);
    }
    row->chance /= SAMPLES, row->regret /= SAMPLES;
    if (row->regret < out->row[out->pick].regret) out->pick = i;
  }
  find_runs(&d, out);
  g_free(d.mean), g_free(d.log_s), g_free(d.seen), g_free(d.least);
}

/* --- layouts of a plan ----------------------------------------------------------------------------------------- */
static gboolean follows(const char *path) { return strcmp(path, "options.sequence_parallel") == 0; }

static gboolean is_size(const char *path) {
  return (g_str_has_prefix(path, "layout.") && strcmp(path, "layout.pipeline_layout") != 0) ||
         strcmp(path, "training.micro_batch_size") == 0;
}

/* Doublings between two sizes; words that differ count as one. */
static double doublings(const char *a, const char *b) {
  double x = g_ascii_strtod(a, NULL), y = b ? g_ascii_strtod(b, NULL) : 0;
  return x > 0 && y > 0 ? fabs(log2(x / y)) : 1;
}

/* Variance that the log errors of two layouts differ by. */
static double distance(GHashTable *a, GHashTable *b, const MsLaws *laws) {
  GHashTableIter each;
  gpointer path, value;
  double sum = 0;
  g_hash_table_iter_init(&each, a);
  while (g_hash_table_iter_next(&each, &path, &value)) {
    if (follows(path) || g_strcmp0(value, g_hash_table_lookup(b, path)) == 0) continue;
    sum += is_size(path) ? doublings(value, g_hash_table_lookup(b, path)) * laws->decision_layout_spread *
                               laws->decision_layout_spread
                         : laws->decision_option_spread * laws->decision_option_spread;
  }
  return sum;
}

/* --- runs that the machine was anchored by --------------------------------------------------------------------- */
/* A run of the very task: what it trains on is the same. */
static gboolean same_task(GHashTable *run, GHashTable *task) {
  static const char *const keys[] = {"training.seq_length", "training.global_batch_size", "training.precision"};
  gboolean same = TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(keys); i++)
    same = same && g_strcmp0(g_hash_table_lookup(run, keys[i]), g_hash_table_lookup(task, keys[i])) == 0;
  return same;
}

/* Their keys to `knobs`, which begins with those of a layout of the task, what is left of their errors to `left`. */
static void known_runs(const MsScenario *s, GPtrArray *knobs, GArray *left, double *fastest_s) {
  JsonNode *node = s->hardware->anchor.runs;
  JsonArray *runs = node ? json_node_get_array(node) : NULL;
  for (guint i = 0; runs && i < json_array_get_length(runs); i++) {
    JsonObject *run = json_array_get_object_element(runs, i);
    if (g_strcmp0(json_object_get_string_member(run, "model"), s->model->name) != 0) continue;
    GHashTable *keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    JsonObjectIter iter;
    const char *path;
    JsonNode *value;
    json_object_iter_init(&iter, json_object_get_object_member(run, "keys"));
    while (json_object_iter_next(&iter, &path, &value))
      g_hash_table_insert(keys, g_strdup(path), g_strdup(json_node_get_string(value)));
    double step_s = json_object_get_double_member(run, "step_s");
    if (same_task(keys, knobs->pdata[0]) && json_object_get_int_member(run, "gpus") == s->gpus &&
        !(*fastest_s < step_s))
      *fastest_s = step_s;
    g_ptr_array_add(knobs, keys);
    g_array_append_vals(left, &(double){json_object_get_double_member(run, "left")}, 1);
  }
}

/* Of n + m log errors with covariance `all` the last m were measured, each within `noise`: means and covariance [n][n]
 * of the others. */
static void condition(const double *all, int n, int m, const double *left, double noise, double *log_s, double *cov) {
  int t = n + m;
  gsl_matrix *own = gsl_matrix_alloc((size_t)m, (size_t)m);
  gsl_vector *with = gsl_vector_alloc((size_t)m), *solved = gsl_vector_alloc((size_t)m);
  for (int a = 0; a < m; a++)
    for (int b = 0; b < m; b++)
      gsl_matrix_set(own, (size_t)a, (size_t)b, all[(n + a) * t + n + b] + (a == b ? noise * noise : 0));
  gsl_linalg_cholesky_decomp1(own);
  for (int i = 0; i < n; i++) {
    for (int a = 0; a < m; a++) gsl_vector_set(with, (size_t)a, all[i * t + n + a]);
    gsl_linalg_cholesky_solve(own, with, solved);
    for (int a = 0; a < m; a++) log_s[i] += gsl_vector_get(solved, (size_t)a) * left[a];
    for (int k = 0; k < n; k++) {
      double known = 0;
      for (int a = 0; a < m; a++) known += gsl_vector_get(solved, (size_t)a) * all[k * t + n + a];
      cov[i * n + k] = all[i * t + k] - known;
    }
  }
  for (int i = 0; i < n; i++) /* what rounding made of it */
    for (int k = 0; k <= i; k++)
      cov[i * n + k] = cov[k * n + i] = (cov[i * n + k] + cov[k * n + i]) / 2 + (i == k ? TINY : 0);
  gsl_vector_free(with), gsl_vector_free(solved);
  gsl_matrix_free(own);
}

/* Covariance of all as seen from the first, with `common` as the variance of what all share. (transfer full) */
static double *covariance_of(const GPtrArray *knobs, double common, const MsLaws *laws) {
  int n = (int)knobs->len;
  g_autofree double *apart = g_new0(double, n *n);
  double *cov = g_new(double, n *n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++) apart[i * n + k] = apart[k * n + i] = distance(knobs->pdata[i], knobs->pdata[k], laws);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      cov[i * n + k] = (apart[i * n] + apart[k * n] - apart[i * n + k]) / 2 + common + (i == k ? TINY : 0);
  return cov;
}

MsDecision *ms_decide(const MsPlan *plan) {
  int n = plan->n_best;
  const MsScenario *first = plan->best[0].scenario;
  const MsLaws *laws = &first->laws;
  MsDecision *out = g_new0(MsDecision, 1);
  out->n = n;
  out->row = g_new0(MsDecisionRow, n);
  g_autoptr(GPtrArray) knobs = g_ptr_array_new_with_free_func((GDestroyNotify)g_hash_table_unref);
  g_autoptr(GArray) left = g_array_new(FALSE, FALSE, sizeof(double));
  g_autofree double *time_s = g_new(double, n), *posterior = g_new(double, n *n);
  for (int i = 0; i < n; i++) {
    out->row[i] = (MsDecisionRow){&plan->best[i], i + 1, 0, 0};
    time_s[i] = plan->best[i].result->step_time_s;
    g_ptr_array_add(knobs, ms_knobs_of_layout(plan->best[i].scenario));
  }
  out->fastest_known_s = NAN;
  known_runs(first, knobs, left, &out->fastest_known_s);
  out->n_known = (int)left->len;
  double common = out->n_known > 0 ? laws->anchor_site_spread * laws->anchor_site_spread : 0;
  g_autofree double *all = covariance_of(knobs, common, laws);
  if (out->n_known > 0) {
    for (int i = 0; i < n; i++) time_s[i] = log(time_s[i]);
    condition(all, n, out->n_known, (const double *)(gpointer)left->data, laws->decision_run_noise, time_s, posterior);
    for (int i = 0; i < n; i++) time_s[i] = exp(time_s[i]);
  }
  ms_decide_among(time_s, out->n_known > 0 ? posterior : all, laws->decision_run_noise, out);
  out->expected_s = time_s[out->pick];
  return out;
}

void ms_decision_free(MsDecision *d) {
  if (!d) return;
  g_free(d->row);
  g_free(d);
}
