#include "study/goodput.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "base/units.h"
#include "sim/simulate.h"
#include "study/jobs.h"

#define HOUR_S      3600.0
#define NO_PROGRESS 0.01 /* of the time useful: not worth simulating */
#define MOST_EVENTS 1e8  /* of all runs together */
#define PATIENCE    10.0 /* times the useful time, then a run is given up */

const char *const ms_goodput_part_words[] = {"work", "rework", "slowed", "checkpoint", "recovery", "waiting", NULL};

/* --- the job --------------------------------------------------------------------------------------------------- */
/* Seconds that a GPU takes for its share of a checkpoint, over the link to the host or over the network: those of the
 * slowest machine. NaN and *error where one does not say its rate. */
static double share_s(const MsGoodputResult *r, gboolean host, GError **error) {
  const MsScenario *s = r->goodput->run;
  double most_s = 0;
  for (int i = 0; i < ms_scenario_machines(s); i++) {
    const MsHardware *h = ms_scenario_machine(s, i);
    if (!ms_hardware_need(h, host ? h->host_link_Bps : h->nic_Bps, host ? "host_link_Bps" : "nic_Bps", error))
      return NAN;
    most_s = MAX(most_s, r->gpu_share_B / (host ? ms_hardware_host_Bps(h) : h->nic_Bps));
  }
  return most_s;
}

static int nodes_of(const MsScenario *s) {
  int nodes = 0;
  for (int i = 0; i < ms_scenario_machines(s); i++) {
    int per_node = ms_scenario_machine(s, i)->gpus_per_node;
    nodes += (ms_scenario_machine_gpus(s, i) + per_node - 1) / per_node;
  }
  return nodes;
}

static gboolean predict(MsGoodputResult *r, GError **error) {
  MsGoodput *g = r->goodput;
  g_autoptr(MsResult) result = ms_simulate(g->run, g->fidelity, NULL, error);
  if (!result) return FALSE;
  if (!result->feasible && isnan(g->step_time_s))
    return ms_input_error(error, g->file, 0, "run", "does not fit: %s", result->why_infeasible);
  r->step_time_s = isnan(g->step_time_s) ? result->step_time_s : g->step_time_s;
  if (isnan(g->step_time_s)) r->caveat = g_strdup(result->caveat);
  r->band = isnan(g->step_time_s) ? result->band : 0;
  r->tokens_per_step = (double)g->run->training.global_batch_size * g->run->training.seq_length;
  if (g->budget.tokens < r->tokens_per_step)
    return ms_input_error(error, g->file, 0, "budget.tokens", "is %.6g, fewer than a step has (%.6g)", g->budget.tokens,
                          r->tokens_per_step);
  r->gpus = g->run->gpus;
  r->nodes = nodes_of(g->run);
  r->model.replicas = MAX(result->dp, 1);
  r->model.nodes = r->nodes;
  r->model.nodes_per_replica = (double)r->nodes / r->model.replicas;
  return TRUE;
}

/* Weights, main parameters and moments of every parameter once; the orthogonalised matrices of Muon have one moment. */
static double checkpoint_B(const MsScenario *s) {
  MsParamCount count = ms_model_params(s->model);
  const MsOptions *o = &s->options;
  double second = ms_optimizer_matrix_second(s->training.optimizer) ? ms_dtype_B(o->exp_avg_sq_dtype) : 0;
  return count.total_mtp * (2 + ms_dtype_B(o->main_params_dtype) + ms_dtype_B(o->exp_avg_dtype) + second);
}

static gboolean checkpoint(MsGoodputResult *r, GError **error) {
  const MsGoodput *g = r->goodput;
  const MsCheckpointSpec *c = &g->checkpoint;
  r->checkpoint_B = isnan(c->size_B) ? checkpoint_B(g->run) : c->size_B;
  r->gpu_share_B = r->checkpoint_B / r->gpus;
  gboolean copies = FALSE, memory = FALSE;
  switch (c->mode) {
  case MS_CHECKPOINT_SYNCHRONOUS: break;
  case MS_CHECKPOINT_ASYNCHRONOUS: copies = TRUE; break;
  case MS_CHECKPOINT_IN_MEMORY: copies = memory = TRUE; break;
  }
  double host_s = copies ? share_s(r, TRUE, error) : 0;
  if (isnan(host_s)) return FALSE;
  double storage_s = memory ? share_s(r, FALSE, error) : r->checkpoint_B / c->storage_Bps;
  if (isnan(storage_s)) return FALSE;
  r->model.stall_s = copies ? host_s : storage_s;
  r->model.write_s = copies ? storage_s : 0;
  r->load_s = storage_s + host_s;
  r->model.restart_s = g->recovery.restart_s + r->load_s + g->recovery.rewarm_s;
  return TRUE;
}

static double units_of(const MsGoodputResult *r, MsFailurePer per) {
  switch (per) {
  case MS_PER_GPU: return r->gpus;
  case MS_PER_NODE: return r->nodes;
  case MS_PER_JOB: return 1;
  }
  return NAN;
}

static void failures(MsGoodputResult *r) {
  const MsGoodput *g = r->goodput;
  r->model.n_kinds = g->reliability.n;
  for (int i = 0; i < g->reliability.n; i++) {
    const MsFailure *f = &g->reliability.failure[i];
    r->kind_Hz[i] = f->per_1000_days / 1000 * units_of(r, f->per) / MS_DAY_S;
    r->model.kind[i] = (MsFaultKind){r->kind_Hz[i], f->detection_s, f->takes_node};
  }
  r->model.spares = g->spares.nodes == MS_NULL_INT ? -1 : g->spares.nodes;
  r->model.repair_s = g->spares.repair_s;
  r->model.elastic = g->elastic;
  r->model.slow_Hz = g->slow_nodes.per_1000_node_days / 1000 * r->nodes / MS_DAY_S;
  r->model.slow_speed = g->slow_nodes.speed;
  r->model.slow_detection_s = g->slow_nodes.detection_s;
}

/* --- closed forms ---------------------------------------------------------------------------------------------- */
static gboolean interval(MsGoodputResult *r, GError **error) {
  MsFaultModel *m = &r->model;
  r->mtbf_s = 1 / ms_fault_rate(m);
  r->young_s = ms_fault_young_s(m);
  r->daly_s = ms_fault_daly_s(m);
  r->optimal_s = ms_fault_optimal_s(m, r->step_time_s);
  r->interval_given = !isnan(r->goodput->checkpoint.interval_s);
  m->interval_s = r->interval_given ? r->goodput->checkpoint.interval_s : r->optimal_s;
  if (m->interval_s < r->step_time_s)
    return ms_input_error(error, r->goodput->file, 0, "checkpoint.interval_s",
                          "is %.6g s, but a step takes %.6g s: a checkpoint follows whole steps", m->interval_s,
                          r->step_time_s);
  if (m->interval_s >= m->write_s) return TRUE;
  return ms_input_error(error, r->goodput->file, 0, "checkpoint.interval_s", "is %.6g s, but writing one takes %.6g s",
                        m->interval_s, m->write_s);
}

static void closed_forms(MsGoodputResult *r) {
  MsFaultModel *m = &r->model;
  const MsBudgetSpec *b = &r->goodput->budget;
  r->work_s = b->tokens / r->tokens_per_step * r->step_time_s; /* NaN with days */
  m->horizon_s = b->days * MS_DAY_S;
  m->work_s = INFINITY;
  r->expected_s = NAN;
  if (!isnan(r->work_s)) {
    double n = MAX(1, round(r->work_s / m->interval_s)); /* whole intervals, each long enough to write one */
    if (n > 1 && r->work_s / n < MAX(m->write_s, r->step_time_s)) n--;
    m->interval_s = r->work_s / n;
    m->work_s = r->work_s;
    m->horizon_s = PATIENCE * r->work_s;
    r->expected_s = ms_fault_expected_s(m, m->interval_s, n);
  }
  r->ettr = ms_fault_ettr(m, m->interval_s);
  r->ettr_first_order = ms_fault_ettr_first_order(m, m->interval_s);
  r->shortage = ms_fault_shortage(m);
}

/* --- Monte Carlo ----------------------------------------------------------------------------------------------- */
typedef struct {
  MsJob job; /* first, as ms_jobs_run wants it */
  guint32 index;
  MsFaultRun run;
} One;

static void run_one(gpointer item, gconstpointer data) {
  const MsGoodputResult *r = data;
  One *one = item;
  ms_fault_simulate(&r->model, (guint32)r->goodput->monte_carlo.seed, one->index, &one->run);
}

/* Those that are done, in their own order, into `run`. */
static gboolean simulate_all(MsGoodputResult *r, const MsGoodputOptions *options, MsFaultRun *run, guint runs,
                             GError **error) {
  g_autoptr(GArray) all = g_array_sized_new(FALSE, TRUE, sizeof(One), runs);
  for (guint32 i = 0; i < runs; i++) g_array_append_val(all, ((One){.job = {"runs"}, .index = i}));
  const MsJobsOptions shift = {"goodput", "runs", options->threads, options->progress};
  if (!ms_jobs_run(all, run_one, r, &shift, &r->extent, error)) return FALSE;
  for (guint i = 0; i < runs; i++) {
    const One *one = &g_array_index(all, One, i);
    if (one->job.done) *run++ = one->run;
  }
  return TRUE;
}

static MsRunSpread scaled(MsRunSpread s, double by) {
  return (MsRunSpread){s.mean * by, s.error * by, s.p5 * by, s.p50 * by, s.p95 * by};
}

static MsRunSpread spread(double *value, int n) {
  double sum = 0, squares = 0;
  for (int i = 0; i < n; i++) sum += value[i];
  double mean = sum / n;
  for (int i = 0; i < n; i++) squares += (value[i] - mean) * (value[i] - mean);
  return (MsRunSpread){mean, sqrt(squares / MAX(n - 1, 1) / n), ms_quantile(value, (size_t)n, 0.05),
                       ms_quantile(value, (size_t)n, 0.5), ms_quantile(value, (size_t)n, 0.95)};
}

static void summarise(MsGoodputResult *r, const MsFaultRun *run, int n) {
  g_autofree double *wall = g_new(double, n), *ettr = g_new(double, n), *failed = g_new0(double, n),
                    *tokens = g_new(double, n);
  for (int i = 0; i < n; i++) {
    const MsFaultRun *one = &run[i];
    const double part[] = {one->work_s, one->rework_s, one->slowed_s, one->stall_s, one->recovery_s, one->waiting_s};
    for (guint p = 0; p < G_N_ELEMENTS(part); p++) r->part_s[p] += part[p] / n;
    for (int k = 0; k < r->model.n_kinds; k++)
      failed[i] += one->failures[k], r->kind_failures[k] += one->failures[k] / n;
    r->planned += one->planned / n;
    wall[i] = one->wall_s;
    ettr[i] = one->work_s / one->wall_s;
    tokens[i] = one->work_s / r->step_time_s * r->tokens_per_step;
    r->unfinished += one->work_s < r->model.work_s * (1 - 1e-9) && isfinite(r->model.work_s);
  }
  r->runs = n;
  r->wall_s = spread(wall, n), r->ettr_runs = spread(ettr, n), r->failures = spread(failed, n),
  r->tokens = spread(tokens, n);
  r->gpu_hours = scaled(r->wall_s, r->gpus / HOUR_S);
}

/* The step and the failures miss apart from one another: half widths of 90 % add as squares. */
static void tokens_per_day(MsGoodputResult *r) {
  double ettr = r->runs > 0 ? r->ettr_runs.mean : r->ettr, whole = r->tokens_per_step / r->step_time_s * MS_DAY_S;
  double less = r->runs > 0 ? 1 - r->ettr_runs.p5 / ettr : 0, more = r->runs > 0 ? r->ettr_runs.p95 / ettr - 1 : 0;
  r->tokens_per_day = whole * ettr;
  r->tokens_per_day_p5 = r->tokens_per_day * MAX(1 - hypot(r->band, less), 0);
  r->tokens_per_day_p95 = r->tokens_per_day * (1 + hypot(r->band, more));
}

static gboolean monte_carlo(MsGoodputResult *r, const MsGoodputOptions *options, GError **error) {
  int runs = r->goodput->monte_carlo.runs;
  if (!(r->ettr >= NO_PROGRESS)) return TRUE;
  double wall_s = isnan(r->work_s) ? r->model.horizon_s : r->expected_s,
         events = runs * wall_s * (1 / r->model.interval_s + ms_fault_rate(&r->model) + r->model.slow_Hz);
  if (events > MOST_EVENTS)
    return ms_input_error(error, r->goodput->file, 0, "monte_carlo.runs",
                          "would take %.2g events (at most %.2g); give fewer runs", events, MOST_EVENTS);
  g_autofree MsFaultRun *run = g_new0(MsFaultRun, runs);
  if (!simulate_all(r, options, run, (guint)runs, error)) return FALSE;
  if (r->extent.done > 0) summarise(r, run, (int)r->extent.done);
  return TRUE;
}

MsGoodputResult *ms_goodput_run(MsGoodput *goodput, const MsGoodputOptions *options, GError **error) {
  MsGoodputResult *r = g_new0(MsGoodputResult, 1);
  r->goodput = goodput;
  gboolean ok = predict(r, error) && checkpoint(r, error);
  if (ok) failures(r);
  ok = ok && interval(r, error);
  if (ok) closed_forms(r);
  ok = ok && (options->closed_form || monte_carlo(r, options, error));
  if (ok) tokens_per_day(r);
  if (!ok) g_clear_pointer(&r, ms_goodput_result_free);
  return r;
}

void ms_goodput_result_free(MsGoodputResult *r) {
  if (!r) return;
  ms_goodput_free(r->goodput);
  g_free(r->caveat);
  g_free(r);
}
