#include "study/robust.h"

#include "base/io.h"
#include "base/order.h"
#include "cost/cost.h"
#include "cost/curve.h"
#include "sim/band.h"
#include "study/jobs.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <string.h>

#define P90_OF_SIGMA 1.6448536269514722 /* half width of the central 90 % of a normal distribution */

/* --- outcomes -------------------------------------------------------------------------------------------------- */
MS_ORDER(by_time, MsOutcome, MS_LESS(x->time_s, y->time_s), 0)

double ms_outcomes_mean(const MsOutcome *o, int n) {
  double sum = 0, weight = 0;
  for (int i = 0; i < n; i++)
    if (o[i].weight > 0) sum += o[i].time_s * o[i].weight, weight += o[i].weight;
  return sum / weight;
}

double ms_outcomes_quantile(MsOutcome *o, int n, double share) {
  double whole = 0, sum = 0;
  qsort(o, (size_t)n, sizeof *o, by_time);
  for (int i = 0; i < n; i++) whole += o[i].weight;
  for (int i = 0; i < n; i++)
    if ((sum += o[i].weight) >= share * whole * (1 - 1e-12)) return o[i].time_s;
  return o[n - 1].time_s;
}

/* --- machines of a state --------------------------------------------------------------------------------------- */
typedef struct { /* one draw of one state */
  MsHardware *machine;
  double common; /* factor on the whole step */
  double floor;  /* no task gets shorter than this share of itself */
} Draw;

typedef struct {
  const MsDisturbance *state;
  int n;
  Draw *draw;
} State;

static void draw_errors(Draw *d, const MsScenario *s, guint32 seed) {
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
  gsl_rng_set(rng, seed);
  /* what is the same for every candidate */
  const MsBandGround machine = {.unseen = ms_band_unseen(s->hardware)};
  d->common = exp(gsl_ran_gaussian(rng, ms_band_common(&s->laws, &machine) / P90_OF_SIGMA));
  double least = 1;
  MsCurve *curves = ms_curves_own(d->machine, 0);
  for (int i = 0; i < d->machine->num_curves; i++) {
    double band = ms_curve_band(&curves[i], s->laws.default_band);
    double factor = exp(gsl_ran_gaussian(rng, band / P90_OF_SIGMA));
    ms_curve_slow(&curves[i], factor);
    least = MIN(least, factor);
  }
  d->floor *= least;
  gsl_rng_free(rng);
}

/* A rate that falls or a time that rises makes nothing faster. */
static gboolean slows(const MsScaledKey *k) {
  const char *unit = ms_field_find(&ms_hardware_table, k->key)->unit;
  gboolean rate = strcmp(unit, "Bps") == 0 || strcmp(unit, "flops") == 0, time = strcmp(unit, "s") == 0;
  return k->factor == 1 || (rate && k->factor < 1) || (time && k->factor > 1);
}

static Draw draw_of(const MsDisturbance *state, const MsScenario *s, int sample) {
  Draw d = {ms_hardware_copy(s->hardware), 1, 1};
  for (int i = 0; i < state->n_scale; i++) {
    ms_hardware_scale(d.machine, state->scale[i].key, state->scale[i].factor);
    if (!slows(&state->scale[i])) d.floor = 0;
  }
  if (state->differ) /* the clock of one GPU, not of the slowest of all */
    d.floor *= MIN(ms_clock_of(s, 0) / ms_clock_of(s, ms_expected_maximum(s->gpus)), 1);
  if (state->has_routing && s->training.routing.kind != MS_ROUTING_BALANCED) d.floor = 0;
  if (state->samples > 0)
    draw_errors(&d, s, (guint32)state->seed * 1000003u + (guint32)sample + 1); /* 0 would be gsl's default */
  return d;
}

static State *states_new(const MsDisturbances *all, const MsScenario *s) {
  State *states = g_new0(State, all->n);
  for (int i = 0; i < all->n; i++) {
    states[i] = (State){.state = &all->row[i], .n = MAX(all->row[i].samples, 1)};
    states[i].draw = g_new0(Draw, states[i].n);
    for (int k = 0; k < states[i].n; k++) states[i].draw[k] = draw_of(&all->row[i], s, k);
  }
  return states;
}

static void states_free(State *states, int n) {
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < states[i].n; k++) ms_hardware_free(states[i].draw[k].machine);
    g_free(states[i].draw);
  }
  g_free(states);
}

static double floor_of(const State *states, int n) {
  double floor = 0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < states[i].n; k++)
      floor += states[i].state->weight / states[i].n * states[i].draw[k].floor * states[i].draw[k].common;
  return floor;
}

/* --- one candidate --------------------------------------------------------------------------------------------- */
typedef struct {
  MsJob job; /* first, as ms_jobs_run wants it */
  const State *states;
  int n_states;
  MsRobustRow *row;
  GError *error;
} Job;

/* Infinite when it does not fit; negative and *error when it fails. */
static double time_of(const MsScenario *s, const MsDisturbance *d, int stage, GError **error) {
  g_autoptr(MsResult) r =
      stage < 0 ? ms_simulate(s, MS_FIDELITY_FULL, NULL, error) : ms_simulate_slow_gpu(s, stage, d->slow_factor, error);
  return !r ? -1 : r->feasible ? r->step_time_s : INFINITY;
}

/* No GPU slow, or the slowest of the stages that have one: the stage that costs most first, each with a slow GPU while
 * none before it has. */
static gboolean slow_outcomes(const MsScenario *s, const MsDisturbance *d, double weight, double common, GArray *out,
                              GError **error) {
  int stages = s->layout.pp;
  double q = 1 - pow(1 - d->slow_rate, (double)s->gpus / stages), left = weight;
  g_autofree MsOutcome *slow = g_new0(MsOutcome, stages);
  for (int i = 0; i < stages; i++)
    if ((slow[i].time_s = time_of(s, d, i, error)) < 0) return FALSE;
  qsort(slow, (size_t)stages, sizeof *slow, by_time);
  for (int i = stages - 1; i >= 0; i--) {
    MsOutcome o = {slow[i].time_s * common, left * q};
    left -= o.weight;
    g_array_append_val(out, o);
  }
  MsOutcome none = {time_of(s, d, -1, error) * common, left};
  g_array_append_val(out, none);
  return none.time_s >= 0;
}

/* One of a distribution of that mean and standard deviation: three steps that have both (Gauss and Hermite). */
static void expected_outcomes(const MsResult *r, double weight, double common, GArray *out) {
  const double beyond_s = sqrt(3) * r->scale.sd_s;
  for (int side = -1; side <= 1; side++) {
    double time_s = r->feasible ? (r->step_time_s + side * beyond_s) * common : INFINITY;
    g_array_append_val(out, ((MsOutcome){time_s, side == 0 ? weight * 2 / 3 : weight / 6}));
  }
}

static gboolean differing_outcomes(MsScenario *s, const MsDisturbance *d, double weight, double common, GArray *out,
                                   GError **error) {
  s->cluster.expected = s->cluster.jitter = TRUE;
  if (d->slow_rate > 0) s->cluster.slow_gpu_rate = d->slow_rate, s->cluster.slow_gpu_factor = d->slow_factor;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, error);
  if (r) expected_outcomes(r, weight, common, out);
  return r != NULL;
}

static void use_routing(MsScenario *s, const MsRouting *routing) {
  g_clear_pointer(&s->training.routing.histogram, ms_histogram_unref);
  s->training.routing = *routing;
  ms_histogram_ref(s->training.routing.histogram);
}

static gboolean draw_outcomes(const Job *job, const State *state, const Draw *draw, GArray *out, GError **error) {
  g_autoptr(MsScenario) s = ms_scenario_copy(job->row->entry->scenario, TRUE);
  double weight = state->state->weight / state->n;
  s->hardware = draw->machine;
  if (state->state->has_routing) use_routing(s, &state->state->routing);
  if (state->state->differ) return differing_outcomes(s, state->state, weight, draw->common, out, error);
  if (state->state->slow_rate > 0) return slow_outcomes(s, state->state, weight, draw->common, out, error);
  MsOutcome o = {time_of(s, state->state, -1, error) * draw->common, weight};
  g_array_append_val(out, o);
  return o.time_s >= 0;
}

static void judge(gpointer item, gconstpointer data) {
  (void)data;
  Job *job = item;
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(MsOutcome));
  for (int i = 0; i < job->n_states; i++) {
    guint before = all->len;
    for (int k = 0; k < job->states[i].n; k++) {
      job->job.done = !ms_interrupted();
      if (!job->job.done || !draw_outcomes(job, &job->states[i], &job->states[i].draw[k], all, &job->error)) return;
    }
    job->row->state_s[i] = ms_outcomes_mean(&g_array_index(all, MsOutcome, before), (int)(all->len - before));
  }
  job->row->expected_s = ms_outcomes_mean((MsOutcome *)(void *)all->data, (int)all->len);
  job->row->p95_s = ms_outcomes_quantile((MsOutcome *)(void *)all->data, (int)all->len, 0.95);
}

/* --- ranking --------------------------------------------------------------------------------------------------- */
MS_ORDER_AT(by_p95, MsRobustRow, MS_LESS(x->p95_s, y->p95_s), x->place - y->place)

MS_ORDER(by_expected, MsRobustRow, MS_LESS(x->expected_s, y->expected_s), x->place_p95 - y->place_p95)

static void rank(MsRobust *r) {
  g_autofree MsRobustRow **order = g_new(MsRobustRow *, r->n);
  for (int i = 0; i < r->n; i++) order[i] = &r->row[i];
  qsort(order, (size_t)r->n, sizeof *order, by_p95);
  for (int i = 0; i < r->n; i++) order[i]->place_p95 = i + 1;
  qsort(r->row, (size_t)r->n, sizeof *r->row, by_expected);
}

static gboolean judge_all(MsRobust *r, const State *states, const MsPlanOptions *options, GError **error) {
  g_autoptr(GArray) jobs = g_array_new(FALSE, FALSE, sizeof(Job));
  for (int i = 0; i < r->n; i++) {
    Job job = {{r->row[i].entry->scenario->name}, states, r->disturbances->n, &r->row[i], NULL};
    g_array_append_val(jobs, job);
  }
  const MsJobsOptions shift = {"disturbances", "layouts", options->threads, options->progress};
  gboolean ok = ms_jobs_run_all(jobs, judge, NULL, &shift, error);
  for (guint i = 0; i < jobs->len; i++) {
    GError *why = g_array_index(jobs, Job, i).error;
    if (why && ok) g_propagate_error(error, why), ok = FALSE;
    else g_clear_error(&why);
  }
  return ok;
}

MsRobust *ms_robust(const MsPlan *plan, int kept, const MsDisturbances *disturbances, const MsPlanOptions *options,
                    GError **error) {
  MsRobust *r = g_new0(MsRobust, 1);
  r->disturbances = disturbances;
  r->n = plan->n_best;
  r->row = g_new0(MsRobustRow, MAX(r->n, 1));
  for (int i = 0; i < r->n; i++)
    r->row[i] = (MsRobustRow){.entry = &plan->best[i], .place = i + 1, .state_s = g_new0(double, disturbances->n)};
  State *states = states_new(disturbances, plan->best[0].scenario);
  gboolean ok = judge_all(r, states, options, error);
  if (ok) {
    double last_s = plan->best[plan->n_best - 1].result->step_time_s;
    rank(r);
    r->outside_s = plan->n_best < kept                    ? INFINITY
                   : plan->objective == MS_GOAL_STEP_TIME ? floor_of(states, disturbances->n) * last_s
                                                          : 0;
    r->proven = r->outside_s >= r->row[0].expected_s && isfinite(r->row[0].expected_s);
  }
  states_free(states, disturbances->n);
  if (ok) return r;
  ms_robust_free(r);
  return NULL;
}

void ms_robust_free(MsRobust *r) {
  if (!r) return;
  for (int i = 0; i < r->n; i++) g_free(r->row[i].state_s);
  g_free(r->row);
  g_free(r);
}
