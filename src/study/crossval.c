/* src/study/crossval.c - leave-group-out over the figures that come from training runs. */
#include "study/crossval.h"

#include "base/err.h"
#include "base/io.h"
#include "study/band_fit.h"
#include "study/jobs.h"

#include <math.h>
#include <string.h>

enum { N_DERATE = 5, N_LAUNCH = 7, SCAN = 13, ROUNDS = 4 };
#define LOW_DERATE  (-0.36) /* log of the smallest and largest factor */
#define HIGH_DERATE 0.36
#define LOW_LAUNCH  (-1.4)
#define HIGH_LAUNCH 1.4
#define PRIOR       0.005 /* loss of a log factor of 1 */
#define NOISE       0.04 /* mean |log error| of a run of weight 1 that no law can take away: sets priors against runs */

const char *const ms_leave_words[] = {"group", "source", "model", "gpu", NULL};

typedef struct { /* a law that training runs tell of */
  MsLaw law;
  double value, spread;
  double low, high; /* log of the smallest and largest factor that is tried */
} Free;

typedef struct { /* one run */
  MsJob job;     /* first, as ms_jobs_run wants it */
  char *file;
  gboolean usable, exact;
  MsRunLabels label;
  char *stack; /* of software/stacks.json, or "default" */
  char *configuration;
  const char *group; /* one of the above, or `both` */
  char *both;        /* model and GPU */
  guint derate,
      factor; /* index of its GPU and of its stack among the parameters; factor 0: the default stack, no parameter */
  double measured, weight;
  double log_time[N_DERATE][N_LAUNCH];
  double detail;               /* added to each */
  double effect[MS_N_LAWS][2]; /* of each free law at its lowest and highest factor, on log time */
  double error[3];             /* shipped, in sample, left out */
  double log_clock;            /* of its GPU, as shipped */
  MsBandGround ground;
} Run;

static void run_clear(gpointer data) {
  Run *run = data;
  g_free(run->file);
  ms_run_labels_clear(&run->label);
  g_free(run->stack);
  g_free(run->configuration);
  g_free(run->both);
}

/* --- the laws -------------------------------------------------------------------------------------------------- */
typedef struct {
  guint n;
  Free law[MS_N_LAWS];
} FreeLaws;

/* NULL and *error, or those with a spread. */
static gboolean free_laws(FreeLaws *f, GError **error) {
  MsLawEntry *entries = ms_law_entries_load(error);
  f->n = 0;
  for (int i = 0; entries && i < MS_N_LAWS; i++) {
    const MsField *field = &ms_laws_table.fields[i];
    double value = entries[i].value, reach = 2 * entries[i].spread;
    if (isnan(reach) || !(value > 0)) continue;
    double low = field->lo > 0 ? MAX(-reach, log(field->lo / value)) : -reach;
    f->law[f->n++] = (Free){(MsLaw)i, value, entries[i].spread, low, MIN(reach, log(field->hi / value))};
  }
  ms_law_entries_free(entries);
  return entries != NULL;
}

/* --- predictions on the grid ----------------------------------------------------------------------------------- */
static double node(double low, double high, int i, int n) { return low + (high - low) * i / (n - 1); }

static gboolean log_s_at(const MsScenario *s, MsFidelity fidelity, double *log_s, MsBandGround *ground) {
  g_autoptr(MsResult) r = ms_interrupted() ? NULL : ms_simulate(s, fidelity, NULL, NULL);
  if (!r || !(r->step_time_s > 0)) return FALSE;
  *log_s = log(r->step_time_s);
  if (ground) *ground = r->ground;
  return TRUE;
}

static gboolean fast_log_s(const MsScenario *s, double *log_s) { return log_s_at(s, MS_FIDELITY_FAST, log_s, NULL); }

/* What `full` adds to `fast` with the shipped figures; taken for the same with others. */
static gboolean fill_detail(Run *run, const MsScenario *s) {
  double fast, full;
  if (!fast_log_s(s, &fast) || !log_s_at(s, MS_FIDELITY_FULL, &full, &run->ground)) return FALSE;
  run->detail = full - fast;
  return TRUE;
}

/* A law that the scenario gives is its own. */
static gboolean fill_effects(Run *run, MsScenario *s, const FreeLaws *laws) {
  double is, at;
  if (!fast_log_s(s, &is)) return FALSE;
  for (guint i = 0; i < laws->n; i++) {
    const Free *f = &laws->law[i];
    double shipped = ms_law_get(&s->laws, f->law);
    for (int side = 0; side < 2 && !s->laws.given[f->law]; side++) {
      ms_law_set(&s->laws, f->law, shipped * exp(side ? f->high : f->low));
      if (!fast_log_s(s, &at)) return FALSE;
      run->effect[i][side] = at - is;
    }
    ms_law_set(&s->laws, f->law, shipped);
  }
  return TRUE;
}

static gboolean fill_grid(Run *run, MsScenario *s) {
  double derate = s->hardware->sustained_derate > 0 ? s->hardware->sustained_derate : 1,
         launch = s->hardware->kernel_launch_s;
  run->log_clock = log(derate);
  for (int d = 0; d < N_DERATE; d++)
    for (int l = 0; l < N_LAUNCH; l++) {
      s->hardware->sustained_derate = derate * exp(node(LOW_DERATE, HIGH_DERATE, d, N_DERATE));
      s->hardware->kernel_launch_s = launch * exp(node(LOW_LAUNCH, HIGH_LAUNCH, l, N_LAUNCH));
      if (!fast_log_s(s, &run->log_time[d][l])) return FALSE;
    }
  return TRUE;
}

/* All that decides a prediction, but for the software stack. */
static char *configuration_of(const MsScenario *s) {
  MsScenario bare = *s;
  bare.name = bare.software = bare.doc = NULL;
  bare.has_measured = FALSE;
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(&bare, NULL, out);
  return ms_json_out_take(out);
}

static double confidence(const MsMeasured *measured) {
  if (g_strcmp0(measured->config_confidence, "exact") == 0) return 1;
  return g_strcmp0(measured->config_confidence, "inferred") == 0 ? 0.5 : 0.25;
}

typedef struct {
  const MsValidateOptions *options;
  FreeLaws laws;
} Study;

static void simulate(gpointer item, gconstpointer data) {
  const Study *study = data;
  Run *run = item;
  g_autoptr(MsScenario) s = ms_scenario_load(run->file, NULL);
  const char *from = NULL;
  if (!s || !s->has_measured || s->measured.out_of_memory) return;
  run->measured = ms_measured_time(s, &from);
  run->weight = (isnan(s->measured.weight) ? 1 : s->measured.weight) * confidence(&s->measured);
  run->exact = g_strcmp0(s->measured.config_confidence, "exact") == 0;
  if (!from || !(run->measured > 0) || !(run->weight > 0) || (study->options->exact && !run->exact)) return;
  run->error[1] = run->error[2] = NAN;
  ms_run_labels_init(&run->label, s, run->file);
  run->stack = g_strdup(s->stack.name);
  run->both = g_strdup_printf("%s on %s", s->model->name, s->hardware->name);
  run->configuration = configuration_of(s);
  run->usable = fill_detail(run, s) && fill_effects(run, s, &study->laws) && fill_grid(run, s);
  run->job.done = run->usable || !ms_interrupted();
}

/* Position of x among n nodes: cell and how far into it. */
static int cell(double x, double low, double high, int n, double *part) {
  double at = CLAMP((x - low) / (high - low), 0, 1) * (n - 1);
  int i = MIN((int)at, n - 2);
  *part = at - i;
  return i;
}

/* log of the time with log factors d, l. */
static double interpolate(const Run *run, double d, double l) {
  double x, y;
  int i = cell(d, LOW_DERATE, HIGH_DERATE, N_DERATE, &x), j = cell(l, LOW_LAUNCH, HIGH_LAUNCH, N_LAUNCH, &y);
  return (1 - x) * ((1 - y) * run->log_time[i][j] + y * run->log_time[i][j + 1]) +
         x * ((1 - y) * run->log_time[i + 1][j] + y * run->log_time[i + 1][j + 1]);
}

/* --- fit ------------------------------------------------------------------------------------------------------- */
double ms_golden_minimum(double (*f)(double x, gpointer data), gpointer data, double low, double high,
                         double tolerance) {
  const double phi = 0.6180339887498949;
  double a = high - phi * (high - low), b = low + phi * (high - low), fa = f(a, data), fb = f(b, data);
  while (high - low > tolerance) {
    if (fa <= fb) {
      high = b, b = a, fb = fa;
      a = high - phi * (high - low), fa = f(a, data);
    } else {
      low = a, a = b, fa = fb;
      b = low + phi * (high - low), fb = f(b, data);
    }
  }
  return (low + high) / 2;
}

enum { LAUNCH, FIRST_GPU, MAX_PARAMETERS = 64 + MS_N_LAWS };

typedef struct {
  Run *const *runs;
  const FreeLaws *laws;
  guint n, n_gpus, n_stacks; /* parameters: launch, a derate per GPU, a factor per named stack, the laws */
  const char *group;         /* left out; NULL: nothing */
  double x[MAX_PARAMETERS];  /* log factors on what is shipped */
  guint free;                /* which of them is moved */
} Fit;

static gboolean left_out(const Fit *fit, const Run *run) { return fit->group && g_str_equal(run->group, fit->group); }

static guint first_law(const Fit *fit) { return FIRST_GPU + fit->n_gpus + fit->n_stacks; }

/* Straight between the lowest factor, 1, and the highest. */
static double effect(const Free *f, const double at[2], double x) {
  return x < 0 ? at[0] * x / f->low : at[1] * x / f->high;
}

static double predict(const Fit *fit, const Run *run) {
  double sum =
      run->detail + interpolate(run, fit->x[run->derate] + (run->factor ? fit->x[run->factor] : 0), fit->x[LAUNCH]);
  for (guint i = 0; i < fit->laws->n; i++) {
    double x = fit->x[first_law(fit) + i];
    if (x != 0) sum += effect(&fit->laws->law[i], run->effect[i], x);
  }
  return sum;
}

static gboolean uses(const Fit *fit, const Run *run, guint parameter) {
  if (parameter < first_law(fit)) return parameter == LAUNCH || run->derate == parameter || run->factor == parameter;
  const double *at = run->effect[parameter - first_law(fit)];
  return at[0] != 0 || at[1] != 0;
}

/* Of a log factor x, beside runs of `weights` together. */
static double prior(const Fit *fit, double x, double weights) {
  if (fit->free < first_law(fit)) return PRIOR * x * x;
  double off = x / fit->laws->law[fit->free - first_law(fit)].spread;
  return NOISE * off * off / 2 / MAX(weights, 1e-3);
}

/* Of the runs that the moved parameter touches; the prior only decides where the runs do not. */
static double loss(double x, gpointer data) {
  Fit *fit = data;
  double sum = 0, weights = 0, before = fit->x[fit->free];
  fit->x[fit->free] = x;
  for (guint i = 0; i < fit->n; i++) {
    const Run *run = fit->runs[i];
    if (!uses(fit, run, fit->free) || left_out(fit, run)) continue;
    sum += run->weight * fabs(predict(fit, run) - log(run->measured));
    weights += run->weight;
  }
  fit->x[fit->free] = before;
  return (weights > 0 ? sum / weights : 0) + prior(fit, x, weights);
}

/* A scan finds the valley, golden section its bottom. */
static void minimise(Fit *fit, guint which, double low, double high) {
  int best = 0;
  double least = HUGE_VAL, step = (high - low) / (SCAN - 1);
  fit->free = which;
  for (int i = 0; i < SCAN; i++) {
    double value = loss(low + i * step, fit);
    if (value < least) least = value, best = i;
  }
  fit->x[which] =
      ms_golden_minimum(loss, fit, low + MAX(best - 1, 0) * step, low + MIN(best + 1, SCAN - 1) * step, 1e-4);
}

static gboolean has_runs(const Fit *fit, guint parameter) {
  for (guint i = 0; i < fit->n; i++)
    if (uses(fit, fit->runs[i], parameter) && !left_out(fit, fit->runs[i])) return TRUE;
  return FALSE;
}

static double log_clock_of(const Fit *fit, guint gpu) {
  for (guint i = 0; i < fit->n; i++)
    if (fit->runs[i]->derate == gpu) return fit->runs[i]->log_clock;
  return 0;
}

/* A GPU of which nothing is left has the mean clock of the others. */
static void fill_empty(Fit *fit) {
  double sum = 0;
  guint known = 0;
  for (guint g = FIRST_GPU; g < FIRST_GPU + fit->n_gpus; g++)
    if (has_runs(fit, g)) sum += log_clock_of(fit, g) + fit->x[g], known++;
  for (guint g = FIRST_GPU; g < FIRST_GPU + fit->n_gpus; g++)
    if (!has_runs(fit, g)) fit->x[g] = known > 0 ? sum / known - log_clock_of(fit, g) : 0;
}

static void fit_all(Fit *fit) {
  guint shared = first_law(fit);
  memset(fit->x, 0, sizeof fit->x);
  for (int round = 0; round < ROUNDS; round++) {
    for (guint i = FIRST_GPU; i < shared; i++) minimise(fit, i, LOW_DERATE, HIGH_DERATE);
    minimise(fit, LAUNCH, LOW_LAUNCH, HIGH_LAUNCH);
    for (guint i = 0; i < fit->laws->n; i++)
      if (has_runs(fit, shared + i)) minimise(fit, shared + i, fit->laws->law[i].low, fit->laws->law[i].high);
  }
  fill_empty(fit);
}

/* --- groups ---------------------------------------------------------------------------------------------------- */
static const char *gpu_of(const Run *run) { return run->label.of[MS_BY_GPU]; }

static gint by_gpu_then_model(gconstpointer a, gconstpointer b) {
  const Run *x = *(const Run *const *)a, *y = *(const Run *const *)b;
  int gpu = strcmp(gpu_of(x), gpu_of(y)), model = strcmp(x->label.of[MS_BY_MODEL], y->label.of[MS_BY_MODEL]);
  return gpu ? gpu : model ? model : strcmp(x->file, y->file);
}

static MsErrorSummary summarise(Run *const *runs, guint n, int which, gboolean exact) {
  g_autofree double *errors = g_new(double, n + 1);
  guint kept = 0;
  for (guint i = 0; i < n; i++)
    if ((!exact || runs[i]->exact) && !isnan(runs[i]->error[which])) errors[kept++] = runs[i]->error[which];
  return ms_error_summary(errors, NULL, kept);
}

static MsCrossErrors summarise_three(Run *const *runs, guint n, gboolean exact) {
  return (MsCrossErrors){summarise(runs, n, 0, exact), summarise(runs, n, 1, exact), summarise(runs, n, 2, exact)};
}

static void set_errors(const Fit *fit, Run *const *runs, guint n, int which) {
  for (guint i = 0; i < n; i++) runs[i]->error[which] = exp(predict(fit, runs[i])) / runs[i]->measured - 1;
}

/* First run of each GPU, sorted; sets the runs' parameter. */
static guint number_gpus(Run *const *runs, guint n, guint *first) {
  guint gpus = 0;
  for (guint i = 0; i < n; i++) {
    if (i == 0 || !g_str_equal(gpu_of(runs[i]), gpu_of(runs[i - 1]))) first[gpus++] = i;
    runs[i]->derate = FIRST_GPU + gpus - 1;
  }
  first[gpus] = n;
  return gpus;
}

static guint number_stacks(Run *const *runs, guint n, guint from, GPtrArray *names) {
  for (guint i = 0; i < n; i++) {
    guint at;
    char *stack = runs[i]->stack;
    if (g_str_equal(stack, "default")) continue;
    if (!g_ptr_array_find_with_equal_func(names, stack, g_str_equal, &at)) {
      at = names->len;
      g_ptr_array_add(names, stack);
    }
    runs[i]->factor = from + at;
  }
  return names->len;
}

/* What a run is labelled with where that is left out; a group has a name of its own. */
static const MsValidateBy label_of_leave[] = {MS_BY_NOTHING, MS_BY_SOURCE, MS_BY_MODEL, MS_BY_GPU};

static void set_groups(Run *const *runs, guint n, MsLeave leave) {
  for (guint i = 0; i < n; i++)
    runs[i]->group = leave == MS_LEAVE_GROUP ? runs[i]->both : runs[i]->label.of[label_of_leave[leave]];
}

static guint count_groups(Run *const *runs, guint n) {
  g_autoptr(GHashTable) all = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < n; i++) g_hash_table_add(all, (gpointer)runs[i]->group);
  return g_hash_table_size(all);
}

/* In the order of their first runs. */
static void leave_groups_out(MsCrossval *c, Fit *fit, gboolean progress) {
  g_autoptr(GHashTable) done = g_hash_table_new(g_str_hash, g_str_equal);
  c->extent = (MsExtent){0, c->groups, "groups"};
  MsProgress *shown = progress ? ms_progress_begin("leave out", c->groups) : NULL;
  for (guint i = 0; i < fit->n && !ms_interrupted(); i++) {
    fit->group = fit->runs[i]->group;
    if (!g_hash_table_add(done, (gpointer)fit->group)) continue;
    fit_all(fit);
    for (guint k = i; k < fit->n; k++) {
      if (!left_out(fit, fit->runs[k])) continue;
      set_errors(fit, fit->runs + k, 1, 2);
      if (!has_runs(fit, fit->runs[k]->derate)) fit->runs[k]->ground.unseen = 1;
    }
    ms_progress_update(shown, ++c->extent.done, fit->group);
  }
  ms_progress_end(shown);
  fit->group = NULL;
}

static guint count_configurations(Run *const *runs, guint n) {
  g_autoptr(GHashTable) all = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < n; i++) g_hash_table_add(all, runs[i]->configuration);
  return g_hash_table_size(all);
}

static guint count_users(const Fit *fit, guint parameter) {
  guint users = 0;
  for (guint i = 0; i < fit->n; i++) users += uses(fit, fit->runs[i], parameter) != 0;
  return users;
}

static void add_shared(MsCrossval *c, const Fit *fit, guint at, MsSharedKind kind, const char *of, double shipped) {
  static const char *const names[] = {"kernel_launch_s", "sustained_derate of ", "speed of stack ", "law "};
  c->shared = g_renew(MsCrossShared, c->shared, c->n_shared + 1);
  c->shared[c->n_shared++] = (MsCrossShared){.name = g_strconcat(names[kind], of, NULL),
                                             .of = g_strdup(of),
                                             .kind = kind,
                                             .runs = count_users(fit, at),
                                             .factor = exp(fit->x[at]),
                                             .shipped = shipped};
}

static void report_fit(MsCrossval *c, const Fit *fit, const guint *first, const GPtrArray *stacks) {
  add_shared(c, fit, LAUNCH, MS_SHARED_HOST, NULL, NAN);
  for (guint g = 0; g < fit->n_gpus; g++)
    add_shared(c, fit, FIRST_GPU + g, MS_SHARED_CLOCK, gpu_of(fit->runs[first[g]]), NAN);
  for (guint k = 0; k < stacks->len; k++)
    add_shared(c, fit, FIRST_GPU + fit->n_gpus + k, MS_SHARED_STACK, g_ptr_array_index(stacks, k), NAN);
  for (guint i = 0; i < fit->laws->n; i++) {
    const Free *f = &fit->laws->law[i];
    add_shared(c, fit, first_law(fit) + i, MS_SHARED_LAW, ms_laws_table.fields[f->law].key, f->value);
  }
}

/* --- bands ----------------------------------------------------------------------------------------------------- */
static void cover(MsBandCoverage *c, const gboolean inside[MS_N_BAND_LEVELS]) {
  for (int q = 0; q < MS_N_BAND_LEVELS; q++) c->inside[q] = (c->inside[q] * c->n + (inside[q] ? 1 : 0)) / (c->n + 1);
  c->n++;
}

static MsCrossPart *part_of(MsCrossval *c, const Run *run, MsValidateBy by) {
  for (guint i = 0; i < c->n_parts; i++)
    if (g_str_equal(c->parts[i].name, run->label.of[by])) return &c->parts[i];
  return NULL;
}

static void cover_run(MsCrossval *c, const Run *run, MsValidateBy by, gboolean refitted, const gboolean inside[]) {
  MsCrossPart *part = part_of(c, run, by);
  cover(refitted ? &c->bands_refitted : &c->bands, inside);
  if (run->exact) cover(refitted ? &c->bands_exact_refitted : &c->bands_exact, inside);
  if (part) cover(refitted ? &part->bands_refitted : &part->bands, inside);
}

/* Runs that were left out, with the bands as shipped and with those fitted to the other groups' left-out runs; what
 * fits all of them is reported among the laws. */
static void judge_bands(MsCrossval *c, Run *const *runs, guint n, MsValidateBy by) {
  g_autofree MsBandRun *row = g_new0(MsBandRun, n + 1);
  g_autofree guint *of = g_new(guint, n + 1);
  g_autoptr(GHashTable) done = g_hash_table_new(g_str_hash, g_str_equal);
  MsLaws shipped, laws;
  guint kept = 0;
  gboolean inside[MS_N_BAND_LEVELS];
  for (guint i = 0; i < n; i++)
    if (!isnan(runs[i]->error[2]))
      row[kept] = (MsBandRun){runs[i]->group, runs[i]->ground, fabs(1 / (1 + runs[i]->error[2]) - 1)}, of[kept++] = i;
  if (kept == 0 || !ms_laws_load(&shipped, NULL)) return;
  for (guint i = 0; i < kept; i++) {
    ms_band_inside(&row[i], &shipped, inside);
    cover_run(c, runs[of[i]], by, FALSE, inside);
    if (!g_hash_table_add(done, (gpointer)row[i].group)) continue;
    laws = shipped;
    ms_band_fit(row, kept, row[i].group, &laws);
    for (guint k = i; k < kept; k++) {
      if (!g_str_equal(row[k].group, row[i].group)) continue;
      ms_band_inside(&row[k], &laws, inside);
      cover_run(c, runs[of[k]], by, TRUE, inside);
    }
  }
  laws = shipped;
  ms_band_fit(row, kept, NULL, &laws);
  for (int i = 0; i < MS_N_BAND_LAWS; i++) {
    double was = ms_law_get(&shipped, ms_band_laws[i]);
    const char *key = ms_laws_table.fields[ms_band_laws[i]].key;
    c->shared = g_renew(MsCrossShared, c->shared, c->n_shared + 1);
    c->shared[c->n_shared++] = (MsCrossShared){.name = g_strconcat("law ", key, NULL),
                                               .of = g_strdup(key),
                                               .kind = MS_SHARED_LAW,
                                               .runs = kept,
                                               .factor = was > 0 ? ms_law_get(&laws, ms_band_laws[i]) / was : 1,
                                               .shipped = was};
  }
}

static gint compare_text(gconstpointer a, gconstpointer b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Errors of the runs of each label, by name. */
static void add_parts(MsCrossval *c, Run *const *runs, guint n, MsValidateBy by) {
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  g_autofree Run **some = g_new(Run *, n + 1);
  for (guint i = 0; i < n; i++)
    if (!g_ptr_array_find_with_equal_func(names, runs[i]->label.of[by], g_str_equal, NULL))
      g_ptr_array_add(names, runs[i]->label.of[by]);
  g_ptr_array_sort(names, compare_text);
  c->parts = g_new0(MsCrossPart, names->len + 1);
  for (c->n_parts = 0; c->n_parts < names->len; c->n_parts++) {
    const char *name = g_ptr_array_index(names, c->n_parts);
    guint kept = 0;
    for (guint i = 0; i < n; i++)
      if (g_str_equal(runs[i]->label.of[by], name)) some[kept++] = runs[i];
    c->parts[c->n_parts] = (MsCrossPart){.name = g_strdup(name), .errors = summarise_three(some, kept, FALSE)};
  }
}

/* The fit on all runs, then those without a group; nothing of either where the predictions were stopped already. */
static gboolean study(MsCrossval *c, const Study *how, Run *const *runs, guint n, GError **error) {
  const FreeLaws *laws = &how->laws;
  g_autofree guint *first = g_new(guint, n + 1);
  g_autoptr(GPtrArray) stacks = g_ptr_array_new();
  Fit fit = {.laws = laws, .runs = runs, .n = n};
  fit.n_gpus = number_gpus(runs, n, first);
  fit.n_stacks = number_stacks(runs, n, FIRST_GPU + fit.n_gpus, stacks);
  if (first_law(&fit) + laws->n > MAX_PARAMETERS) {
    g_set_error(error, MS_ERROR, MS_ERROR_INPUT, "runs of more than %d machines and stacks",
                MAX_PARAMETERS - FIRST_GPU - (int)laws->n);
    return FALSE;
  }
  set_errors(&fit, runs, n, 0);
  set_groups(runs, n, c->leave);
  c->runs = n;
  c->configurations = count_configurations(runs, n);
  c->groups = count_groups(runs, n);
  if (!ms_extent_stopped(&c->extent)) {
    fit_all(&fit);
    set_errors(&fit, runs, n, 1);
    report_fit(c, &fit, first, stacks);
    leave_groups_out(c, &fit, how->options->progress);
  }
  c->all = summarise_three(runs, n, FALSE);
  c->exact = summarise_three(runs, n, TRUE);
  return TRUE;
}

/* --- files ----------------------------------------------------------------------------------------------------- */
static gint by_hash(gconstpointer a, gconstpointer b) {
  const char *x = *(const char *const *)a, *y = *(const char *const *)b;
  g_autofree char *p = g_path_get_basename(x), *q = g_path_get_basename(y);
  guint hx = g_str_hash(p) * 2654435761u, hy = g_str_hash(q) * 2654435761u;
  return hx != hy ? (hx < hy ? -1 : 1) : strcmp(p, q);
}

/* Of folders with more than a few hundred files (all of them small runs) the first by hash. */
static GPtrArray *sample(GPtrArray *files) {
  enum { MANY = 300 };
  GPtrArray *kept = g_ptr_array_new();
  g_autoptr(GHashTable) folders =
      g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
  for (guint i = 0; i < files->len; i++) {
    g_autofree char *folder = g_path_get_dirname(g_ptr_array_index(files, i));
    GPtrArray *list = g_hash_table_lookup(folders, folder);
    if (!list) g_hash_table_insert(folders, g_strdup(folder), list = g_ptr_array_new());
    g_ptr_array_add(list, g_ptr_array_index(files, i));
  }
  GHashTableIter iter;
  gpointer list;
  g_hash_table_iter_init(&iter, folders);
  while (g_hash_table_iter_next(&iter, NULL, &list)) {
    GPtrArray *of_folder = list;
    gboolean many = of_folder->len > MANY;
    if (many) g_ptr_array_sort(of_folder, by_hash);
    for (guint i = 0; i < of_folder->len && (!many || i < MS_CROSSVAL_SMALL); i++)
      g_ptr_array_add(kept, g_ptr_array_index(of_folder, i));
  }
  return kept;
}

MsCrossval *ms_crossval(const char *const *paths, const MsValidateOptions *options, MsLeave leave, GError **error) {
  Study data = {.options = options};
  gint64 begin_us = g_get_monotonic_time();
  g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);
  if (!free_laws(&data.laws, error) || !ms_validation_files(paths, files, error)) return NULL;
  g_autoptr(GPtrArray) chosen = sample(files), usable = g_ptr_array_new();
  g_autoptr(GArray) runs = g_array_new(FALSE, TRUE, sizeof(Run));
  g_array_set_clear_func(runs, run_clear);
  for (guint i = 0; i < chosen->len; i++) {
    Run run = {.file = g_strdup(g_ptr_array_index(chosen, i))};
    run.job.name = run.file;
    g_array_append_val(runs, run);
  }
  const MsJobsOptions shift = {"cross-validate", "files", options->threads, options->progress};
  MsExtent extent;
  if (!ms_jobs_run(runs, simulate, &data, &shift, &extent, error)) return NULL;
  for (guint i = 0; i < runs->len; i++)
    if (g_array_index(runs, Run, i).usable) g_ptr_array_add(usable, &g_array_index(runs, Run, i));
  if (usable->len == 0 && ms_extent_stopped(&extent)) {
    g_set_error(error, MS_ERROR, MS_ERROR_NOTHING, "%s before a run was predicted", ms_interrupt_reason());
    return NULL;
  }
  if (usable->len == 0) {
    g_set_error_literal(error, MS_ERROR, MS_ERROR_INPUT, "no run with a measured step time that can be predicted");
    return NULL;
  }
  g_ptr_array_sort(usable, by_gpu_then_model);
  MsCrossval *c = g_new0(MsCrossval, 1);
  c->files = chosen->len;
  c->leave = leave;
  c->extent = extent;
  if (!study(c, &data, (Run *const *)usable->pdata, usable->len, error)) {
    ms_crossval_free(c);
    return NULL;
  }
  MsValidateBy natural = leave == MS_LEAVE_GROUP ? MS_BY_GPU : label_of_leave[leave];
  MsValidateBy by = options->by == MS_BY_NOTHING ? natural : options->by;
  add_parts(c, (Run *const *)usable->pdata, usable->len, by);
  judge_bands(c, (Run *const *)usable->pdata, usable->len, by);
  c->elapsed_s = (double)(g_get_monotonic_time() - begin_us) * 1e-6;
  return c;
}

void ms_crossval_free(MsCrossval *c) {
  if (!c) return;
  for (guint i = 0; i < c->n_parts; i++) g_free(c->parts[i].name);
  for (guint i = 0; i < c->n_shared; i++) g_free(c->shared[i].name), g_free(c->shared[i].of);
  g_free(c->parts);
  g_free(c->shared);
  g_free(c);
}
