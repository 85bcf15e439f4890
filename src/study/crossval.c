/* src/study/crossval.c - leave-group-out over the figures that come from training runs. */
#include "study/crossval.h"

#include "base/err.h"
#include "base/io.h"
#include "base/order.h"
#include "sim/band.h"
#include "study/band_fit.h"
#include "study/jobs.h"
#include "study/joint.h"

#include <math.h>
#include <string.h>

enum { N_DERATE = 5, N_LAUNCH = 7 };
#define LOW_DERATE  (-0.36) /* log of the smallest and largest factor */
#define HIGH_DERATE 0.36
#define LOW_LAUNCH  (-1.4)
#define HIGH_LAUNCH 1.4
#define SD_90       1.645 /* half width of a 90 % band over the standard deviation */

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
  double gpus;
  const char *group; /* one of the above, or `both` */
  char *both;        /* model and GPU */
  char *architecture_name, *site_name;
  guint derate, factor; /* index of its GPU and of its stack among the figures; factor 0: the default stack, none */
  guint architecture, site;
  gboolean lent; /* its machine has the curves of another */
  double measured, weight;
  double log_time[N_DERATE][N_LAUNCH];
  double detail;               /* added to each */
  double effect[MS_N_LAWS][2]; /* of each free law at its lowest and highest factor, on log time */
  double error[3];             /* shipped, in sample, left out */
  double log_clock;            /* of its GPU, as shipped */
  double log_power;            /* of the limit that this clock was found under, W */
  MsBandGround ground;
} Run;

static void run_clear(gpointer data) {
  Run *run = data;
  g_free(run->file);
  ms_run_labels_clear(&run->label);
  g_free(run->stack);
  g_free(run->configuration);
  g_free(run->both);
  g_free(run->architecture_name);
  g_free(run->site_name);
}

/* --- the laws -------------------------------------------------------------------------------------------------- */
typedef struct {
  guint n;
  Free law[MS_N_LAWS];
  MsLaws shipped;
} FreeLaws;

/* NULL and *error, or those with a spread. */
static gboolean free_laws(FreeLaws *f, GError **error) {
  MsLawEntry *entries = ms_law_entries_load(error);
  f->n = 0;
  if (entries && !ms_laws_load(&f->shipped, error)) g_clear_pointer(&entries, ms_law_entries_free);
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

/* A law that the scenario gives is its own; most laws leave all rows of a run as they are. */
static gboolean fill_effects(Run *run, MsScenario *s, const FreeLaws *laws) {
  double is, at;
  guint64 number = ms_step_number(s);
  if (!fast_log_s(s, &is)) return FALSE;
  for (guint i = 0; i < laws->n; i++) {
    const Free *f = &laws->law[i];
    double shipped = ms_law_get(&s->laws, f->law);
    for (int side = 0; side < 2 && !s->laws.given[f->law]; side++) {
      ms_law_set(&s->laws, f->law, shipped * exp(side ? f->high : f->low));
      if (number && ms_step_number(s) == number) at = is;
      else if (!fast_log_s(s, &at)) return FALSE;
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
  return ms_scenario_text(&bare, 0);
}

/* The first word of `arch`: Hopper of "Hopper sm90"; a machine that has none stands alone. */
static char *architecture_of(const MsHardware *h) {
  const char *name = h->arch ? h->arch : h->name;
  return g_strndup(name, strcspn(name, " "));
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
  run->site_name =
      g_strdup_printf("%s\n%s\n%s", run->label.of[MS_BY_SOURCE], run->label.of[MS_BY_GPU], run->label.of[MS_BY_STACK]);
  run->architecture_name = architecture_of(s->hardware);
  run->lent = s->hardware->curves_from != NULL;
  double limit_W = s->hardware->sustained_tdp_W > 0 ? s->hardware->sustained_tdp_W : s->hardware->tdp_W;
  run->log_power = limit_W > 0 ? log(limit_W) : 0;
  run->configuration = configuration_of(s);
  run->gpus = s->gpus;
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
enum { LAUNCH, FIRST_GPU };

typedef struct {
  Run *const *runs;
  const FreeLaws *laws;
  /* figures: launch, a derate per GPU, a factor per named stack, the laws, a clock per architecture, their mean, sites
   */
  guint n, n_gpus, n_stacks, n_architectures, n_sites;
  const char *group; /* left out; NULL: nothing */
  double *x;         /* log factors on what is shipped; of architectures and their mean the log of a clock */
} Fit;

static gboolean left_out(const Fit *fit, const Run *run) { return fit->group && g_str_equal(run->group, fit->group); }

static guint first_law(const Fit *fit) { return FIRST_GPU + fit->n_gpus + fit->n_stacks; }
static guint first_architecture(const Fit *fit) { return first_law(fit) + fit->laws->n; }
static guint mean_clock(const Fit *fit) { return first_architecture(fit) + fit->n_architectures; }
static guint first_site(const Fit *fit) { return mean_clock(fit) + 1; }
static guint n_figures(const Fit *fit) { return first_site(fit) + fit->n_sites; }

/* Straight between the lowest factor, 1, and the highest. */
static double effect(const Free *f, const double at[2], double x) {
  return x < 0 ? at[0] * x / f->low : at[1] * x / f->high;
}

static double predict(const Fit *fit, const Run *run, const double *x) {
  double sum = run->detail + interpolate(run, x[run->derate] + (run->factor ? x[run->factor] : 0), x[LAUNCH]);
  for (guint i = 0; i < fit->laws->n; i++) {
    double of = x[first_law(fit) + i];
    if (of != 0) sum += effect(&fit->laws->law[i], run->effect[i], of);
  }
  return sum;
}

static gboolean uses(const Fit *fit, const Run *run, guint figure) {
  if (figure < first_law(fit)) return figure == LAUNCH || run->derate == figure || run->factor == figure;
  const double *at = run->effect[figure - first_law(fit)];
  return at[0] != 0 || at[1] != 0;
}

static double residual(guint i, const double *x, gconstpointer data) {
  const Fit *fit = data;
  const Run *run = fit->runs[i];
  return predict(fit, run, x) + x[first_site(fit) + run->site] - log(run->measured);
}

static guint depends(guint i, guint on[MS_JOINT_DEPENDS], gconstpointer data) {
  const Fit *fit = data;
  guint n = 0;
  for (guint k = 0; k < first_architecture(fit); k++)
    if (uses(fit, fit->runs[i], k)) on[n++] = k;
  on[n++] = first_site(fit) + fit->runs[i]->site;
  return n;
}

static gboolean has_runs(const Fit *fit, guint figure) {
  for (guint i = 0; i < fit->n; i++)
    if (uses(fit, fit->runs[i], figure) && !left_out(fit, fit->runs[i])) return TRUE;
  return FALSE;
}

static const Run *run_of_gpu(const Fit *fit, guint gpu) {
  for (guint i = 0; i < fit->n; i++)
    if (fit->runs[i]->derate == gpu) return fit->runs[i];
  return NULL;
}

static void believe(GArray *beliefs, guint of, int than, double shift, double spread) {
  MsJointBelief b = {of, than, shift, spread};
  g_array_append_val(beliefs, b);
}

/* Mean log power limit of the machines of an architecture. */
static double mean_log_power(const Fit *fit, guint architecture) {
  double sum = 0;
  guint n = 0;
  for (guint g = 0; g < fit->n_gpus; g++) {
    const Run *run = run_of_gpu(fit, FIRST_GPU + g);
    if (run->architecture == architecture) sum += run->log_power, n++;
  }
  return n > 0 ? sum / n : 0;
}

/* Curves of another architecture were scaled by peaks: what the clock is found to be makes up for them too. */
static double spread_of_architecture(const Fit *fit, guint architecture) {
  gboolean lent = TRUE;
  for (guint i = 0; i < fit->n; i++)
    if (fit->runs[i]->architecture == architecture) lent = lent && fit->runs[i]->lent;
  return lent ? fit->laws->shipped.lent_clock_spread : fit->laws->shipped.architecture_clock_spread;
}

/* Machines of one architecture are the same silicon under different power limits, architectures have something in
 * common, and what runs of one site share is the site's. */
static GArray *beliefs_of(const Fit *fit) {
  GArray *beliefs = g_array_new(FALSE, FALSE, sizeof(MsJointBelief));
  const MsLaws *laws = &fit->laws->shipped;
  believe(beliefs, LAUNCH, -1, 0, laws->host_band / SD_90);
  for (guint g = 0; g < fit->n_gpus; g++) {
    const Run *run = run_of_gpu(fit, FIRST_GPU + g);
    double power = laws->power_clock_exponent * (run->log_power - mean_log_power(fit, run->architecture));
    believe(beliefs, FIRST_GPU + g, (int)(first_architecture(fit) + run->architecture), run->log_clock - power,
            laws->machine_clock_spread);
  }
  for (guint i = 0; i < fit->n_stacks; i++)
    believe(beliefs, FIRST_GPU + fit->n_gpus + i, -1, 0, laws->site_band / SD_90);
  for (guint i = 0; i < fit->laws->n; i++) believe(beliefs, first_law(fit) + i, -1, 0, fit->laws->law[i].spread);
  for (guint i = 0; i < fit->n_architectures; i++)
    believe(beliefs, first_architecture(fit) + i, (int)mean_clock(fit), 0, spread_of_architecture(fit, i));
  believe(beliefs, mean_clock(fit), -1, 0, 1);
  for (guint i = 0; i < fit->n_sites; i++) believe(beliefs, first_site(fit) + i, -1, 0, laws->site_band / SD_90);
  return beliefs;
}

static void fit_all(Fit *fit) {
  guint n = n_figures(fit);
  g_autofree double *weight = g_new(double, fit->n + 1), *step = g_new(double, n), *low = g_new(double, n),
                    *high = g_new(double, n);
  g_autoptr(GArray) beliefs = beliefs_of(fit);
  for (guint i = 0; i < fit->n; i++) weight[i] = left_out(fit, fit->runs[i]) ? 0 : fit->runs[i]->weight;
  for (guint i = 0; i < n; i++) step[i] = 0.1 * HIGH_DERATE, low[i] = LOW_DERATE, high[i] = HIGH_DERATE;
  step[LAUNCH] = 0.1 * HIGH_LAUNCH, low[LAUNCH] = LOW_LAUNCH, high[LAUNCH] = HIGH_LAUNCH;
  for (guint i = first_architecture(fit); i < n; i++) low[i] = -HUGE_VAL, high[i] = HUGE_VAL;
  for (guint i = 0; i < fit->laws->n; i++) {
    const Free *law = &fit->laws->law[i];
    guint at = first_law(fit) + i;
    step[at] = 0.3 * law->spread, low[at] = law->low, high[at] = law->high;
  }
  memset(fit->x, 0, n * sizeof *fit->x);
  const MsJoint joint = {.n = n,
                         .n_runs = fit->n,
                         .n_beliefs = beliefs->len,
                         .weight = weight,
                         .scale = fit->laws->shipped.run_noise,
                         .step = step,
                         .low = low,
                         .high = high,
                         .belief = (const MsJointBelief *)(gpointer)beliefs->data,
                         .residual = residual,
                         .depends = depends,
                         .data = fit};
  ms_joint_fit(&joint, fit->x);
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

/* Runs of one source, model and machine. */
static gboolean of_one_ladder(const Run *a, const Run *b) {
  return g_str_equal(a->both, b->both) && g_str_equal(a->label.of[MS_BY_SOURCE], b->label.of[MS_BY_SOURCE]);
}

enum { LEAST_COUNTS = 3 }; /* different numbers of GPUs that make a ladder */

/* Whether the run's ladder has that many; its runs, the mean log2 of their GPUs and their mean errors. */
static gboolean ladder_of(const Run *run, Run *const *runs, guint n, double *mean_log2, double mean_error[3]) {
  double seen[LEAST_COUNTS], sum = 0, error[3] = {0};
  guint counts = 0, kept = 0;
  for (guint i = 0; i < n; i++) {
    guint k = 0;
    if (!of_one_ladder(run, runs[i])) continue;
    while (k < counts && seen[k] != runs[i]->gpus) k++;
    if (k == counts && counts < LEAST_COUNTS) seen[counts++] = runs[i]->gpus;
    sum += log2(runs[i]->gpus), kept++;
    for (int e = 0; e < 3; e++) error[e] += runs[i]->error[e];
  }
  *mean_log2 = sum / kept;
  for (int e = 0; e < 3; e++) mean_error[e] = error[e] / kept;
  return counts == LEAST_COUNTS;
}

/* Least squares within each ladder, all with one slope. */
static MsCrossSlope slope_of(Run *const *runs, guint n) {
  MsCrossSlope slope = {0};
  double xx = 0, xe[3] = {0}, mean, error[3];
  for (guint i = 0; i < n; i++) {
    if (!ladder_of(runs[i], runs, n, &mean, error)) continue;
    double x = log2(runs[i]->gpus) - mean;
    slope.n++, xx += x * x;
    for (int e = 0; e < 3; e++) xe[e] += x * (runs[i]->error[e] - error[e]);
  }
  slope.shipped = xe[0] / xx, slope.in_sample = xe[1] / xx, slope.left_out = xe[2] / xx;
  return slope;
}

static void set_errors(const Fit *fit, Run *const *runs, guint n, int which) {
  for (guint i = 0; i < n; i++) runs[i]->error[which] = exp(predict(fit, runs[i], fit->x)) / runs[i]->measured - 1;
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

/* Numbers what runs are named by, in the order of their first; how many there are. */
static guint number_names(Run *const *runs, guint n, size_t name, size_t number) {
  g_autoptr(GHashTable) all = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < n; i++) {
    char *of = G_STRUCT_MEMBER(char *, runs[i], name);
    gpointer at;
    if (!g_hash_table_lookup_extended(all, of, NULL, &at))
      g_hash_table_insert(all, of, at = GUINT_TO_POINTER(g_hash_table_size(all)));
    G_STRUCT_MEMBER(guint, runs[i], number) = GPOINTER_TO_UINT(at);
  }
  return g_hash_table_size(all);
}

/* What a run is labelled with where that is left out; a group has a name of its own. */
static const MsValidateBy label_of_leave[] = {MS_BY_NOTHING, MS_BY_SOURCE, MS_BY_MODEL, MS_BY_GPU};

static void set_groups(Run *const *runs, guint n, MsLeave leave) {
  for (guint i = 0; i < n; i++)
    runs[i]->group = leave == MS_LEAVE_GROUP ? runs[i]->both : runs[i]->label.of[label_of_leave[leave]];
}

/* How many runs differ in the text at `member`. */
static guint count_texts(Run *const *runs, guint n, glong member) {
  g_autoptr(GHashTable) all = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < n; i++) g_hash_table_add(all, G_STRUCT_MEMBER(char *, runs[i], member));
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

static guint count_users(const Fit *fit, guint parameter) {
  guint users = 0;
  for (guint i = 0; i < fit->n; i++) users += uses(fit, fit->runs[i], parameter) != 0;
  return users;
}

static void add_shared(MsCrossval *c, MsSharedKind kind, const char *of, guint runs, double factor, double shipped) {
  static const char *const names[] = {"kernel_launch_s", "sustained_derate of ", "speed of stack ", "law "};
  c->shared = g_renew(MsCrossShared, c->shared, c->n_shared + 1);
  c->shared[c->n_shared++] =
      (MsCrossShared){g_strconcat(names[kind], of, NULL), g_strdup(of), kind, runs, factor, shipped};
}

static void add_figure(MsCrossval *c, const Fit *fit, guint at, MsSharedKind kind, const char *of, double shipped) {
  add_shared(c, kind, of, count_users(fit, at), exp(fit->x[at]), shipped);
}

static void report_fit(MsCrossval *c, const Fit *fit, const guint *first, const GPtrArray *stacks) {
  add_figure(c, fit, LAUNCH, MS_SHARED_HOST, NULL, NAN);
  for (guint g = 0; g < fit->n_gpus; g++)
    add_figure(c, fit, FIRST_GPU + g, MS_SHARED_CLOCK, gpu_of(fit->runs[first[g]]), NAN);
  for (guint k = 0; k < stacks->len; k++)
    add_figure(c, fit, FIRST_GPU + fit->n_gpus + k, MS_SHARED_STACK, g_ptr_array_index(stacks, k), NAN);
  for (guint i = 0; i < fit->laws->n; i++) {
    const Free *f = &fit->laws->law[i];
    add_figure(c, fit, first_law(fit) + i, MS_SHARED_LAW, ms_laws_table.fields[f->law].key, f->value);
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

/* What is known of a run when its group is left out: runs on its machine are then only those of other groups. */
static MsBandGround ground_without(Run *const *runs, guint n, const Run *run) {
  MsBandGround ground = run->ground;
  MsHardware machine = {.published_runs = 0};
  for (guint i = 0; i < n; i++)
    machine.published_runs += runs[i]->derate == run->derate && !g_str_equal(runs[i]->group, run->group);
  ground.unseen = ms_band_unseen(&machine);
  return ground;
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
      row[kept] = (MsBandRun){runs[i]->group, ground_without(runs, n, runs[i]), fabs(1 / (1 + runs[i]->error[2]) - 1)},
      of[kept++] = i;
  if (kept == 0 || !ms_laws_load(&shipped, NULL)) return;
  for (guint i = 0; i < kept; i++) {
    ms_band_inside(&row[i], &shipped, inside);
    cover_run(c, runs[of[i]], by, FALSE, inside);
    if (!g_hash_table_add(done, (gpointer)row[i].group)) continue;
    laws = shipped;
    ms_band_fit(row, kept, row[i].group, c->leave == MS_LEAVE_GPU, &laws);
    for (guint k = i; k < kept; k++) {
      if (!g_str_equal(row[k].group, row[i].group)) continue;
      ms_band_inside(&row[k], &laws, inside);
      cover_run(c, runs[of[k]], by, TRUE, inside);
    }
  }
  laws = shipped;
  ms_band_fit(row, kept, NULL, c->leave == MS_LEAVE_GPU, &laws);
  for (int i = 0; i < MS_N_BAND_LAWS; i++) {
    double was = ms_law_get(&shipped, ms_band_laws[i]);
    const char *key = ms_laws_table.fields[ms_band_laws[i]].key;
    add_shared(c, MS_SHARED_LAW, key, kept, was > 0 ? ms_law_get(&laws, ms_band_laws[i]) / was : 1, was);
  }
}

/* Errors of the runs of each label, by name. */
static void add_parts(MsCrossval *c, Run *const *runs, guint n, MsValidateBy by) {
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  g_autofree Run **some = g_new(Run *, n + 1);
  for (guint i = 0; i < n; i++)
    if (!g_ptr_array_find_with_equal_func(names, runs[i]->label.of[by], g_str_equal, NULL))
      g_ptr_array_add(names, runs[i]->label.of[by]);
  g_ptr_array_sort(names, ms_by_text);
  c->parts = g_new0(MsCrossPart, names->len + 1);
  for (c->n_parts = 0; c->n_parts < names->len; c->n_parts++) {
    const char *name = g_ptr_array_index(names, c->n_parts);
    guint kept = 0;
    for (guint i = 0; i < n; i++)
      if (g_str_equal(runs[i]->label.of[by], name)) some[kept++] = runs[i];
    c->parts[c->n_parts] = (MsCrossPart){
        .name = g_strdup(name), .errors = summarise_three(some, kept, FALSE), .slope = slope_of(some, kept)};
  }
}

/* The fit on all runs, then those without a group; nothing of either where the predictions were stopped already. */
static void study(MsCrossval *c, const Study *how, Run *const *runs, guint n) {
  const FreeLaws *laws = &how->laws;
  g_autofree guint *first = g_new(guint, n + 1);
  g_autoptr(GPtrArray) stacks = g_ptr_array_new();
  Fit fit = {.laws = laws, .runs = runs, .n = n};
  fit.n_gpus = number_gpus(runs, n, first);
  fit.n_stacks = number_stacks(runs, n, FIRST_GPU + fit.n_gpus, stacks);
  fit.n_architectures = number_names(runs, n, offsetof(Run, architecture_name), offsetof(Run, architecture));
  fit.n_sites = number_names(runs, n, offsetof(Run, site_name), offsetof(Run, site));
  g_autofree double *x = fit.x = g_new0(double, n_figures(&fit));
  set_errors(&fit, runs, n, 0);
  set_groups(runs, n, c->leave);
  c->runs = n;
  c->configurations = count_texts(runs, n, offsetof(Run, configuration));
  c->groups = count_texts(runs, n, offsetof(Run, group));
  if (!ms_extent_stopped(&c->extent)) {
    fit_all(&fit);
    set_errors(&fit, runs, n, 1);
    report_fit(c, &fit, first, stacks);
    leave_groups_out(c, &fit, how->options->progress);
  }
  c->all = summarise_three(runs, n, FALSE);
  c->exact = summarise_three(runs, n, TRUE);
  c->slope = slope_of(runs, n);
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
  if (usable->len == 0 && ms_extent_stopped(&extent))
    return ms_error(error, MS_ERROR_NOTHING, "%s before a run was predicted", ms_interrupt_reason()), NULL;
  if (usable->len == 0)
    return ms_error(error, MS_ERROR_INPUT, "no run with a measured step time that can be predicted"), NULL;
  g_ptr_array_sort(usable, by_gpu_then_model);
  MsCrossval *c = g_new0(MsCrossval, 1);
  c->files = chosen->len;
  c->leave = leave;
  c->extent = extent;
  study(c, &data, (Run *const *)usable->pdata, usable->len);
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
