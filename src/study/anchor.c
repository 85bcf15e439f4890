#include "study/anchor.h"

#include "base/err.h"
#include "base/order.h"
#include "base/stats.h"
#include "describe/sources.h"
#include "sim/band.h"
#include "logs/training.h"
#include "study/diff.h"
#include "study/knobs.h"

#include <math.h>
#include <string.h>

/* State: log factor of the site, of each class, of each model. */
enum { SITE, FIRST_CLASS, FIRST_MODEL = FIRST_CLASS + MS_N_ANCHORS, MOST_MODELS = 64 };
#define STEP 0.1 /* of a log factor, for differences */

/* --- a run ----------------------------------------------------------------------------------------------------- */
typedef struct {
  MsJob job;
  char *file, *trace, *log; /* trace: a profile of it; log: what it printed; NULL */
  double log_s, log_tokens; /* what the log says of a step, and of tokens per second and GPU; NaN */
  int log_batch, log_gpus;  /* sequences of its step, GPUs; 0: it does not say */
  const char *hardware;
  gboolean usable, known; /* known: its software stack has factors of its own */
  MsScenario *scenario;
  MsRunLabels label;
  char *model, *site;
  double measured_s, predicted_s, log_error, noise_share; /* noise variance over that of a run of weight 1 */
  double follows[MS_N_ANCHORS];                           /* d log step / d log factor */
  double band, common;                                    /* of the prediction */
  MsBandGround ground;
  int n_assumed; /* figures of the machine that the prediction rests on */
  MsAssumed *assumed;
  guint place; /* of its model */
  GError *error;
} Run;

static void run_clear(gpointer data) {
  Run *r = data;
  g_free(r->file);
  g_free(r->trace);
  g_free(r->log);
  g_free(r->model);
  g_free(r->site);
  g_free(r->assumed);
  ms_run_labels_clear(&r->label);
  ms_scenario_free(r->scenario);
  g_clear_error(&r->error);
}

static double *class_factor(MsScenario *s, int c) { return &s->hardware->anchor.factor[c]; }

static gboolean fast_log_s(const MsScenario *s, double *log_s, GError **error) {
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, error);
  if (!r) return FALSE;
  *log_s = log(r->step_time_s);
  return r->step_time_s > 0;
}

static gboolean find_follows(Run *r, GError **error) {
  double base, moved;
  if (!fast_log_s(r->scenario, &base, error)) return FALSE;
  for (int c = 0; c < MS_N_ANCHORS; c++) {
    double before = *class_factor(r->scenario, c);
    *class_factor(r->scenario, c) = (before > 0 ? before : 1) * exp(STEP);
    if (!fast_log_s(r->scenario, &moved, error)) return FALSE;
    *class_factor(r->scenario, c) = before;
    r->follows[c] = (moved - base) / STEP;
  }
  return TRUE;
}

static double confidence(const MsMeasured *m) {
  if (g_strcmp0(m->config_confidence, "inferred") == 0) return 0.5;
  return g_strcmp0(m->config_confidence, "unknown") == 0 ? 0.25 : 1;
}

/* The machine in place of that of the scenario. */
static gboolean put_hardware(MsScenario *s, const char *name, GError **error) {
  MsHardware *other = name ? ms_hardware_load(name, error) : NULL;
  if (!name) return TRUE;
  if (!other) return FALSE;
  ms_hardware_free(s->hardware);
  s->hardware = other;
  return TRUE;
}

/* As if nobody had said whose software it is. */
static gboolean forget_stack(MsScenario *s, GError **error) {
  ms_stack_clear(&s->stack);
  return ms_stack_find(NULL, &s->stack, error);
}

/* In place of what the scenario says was measured. */
static void put_log(const Run *r, MsScenario *s) {
  if (!s->has_measured) ms_fields_defaults(&ms_measured_table, &s->measured);
  s->has_measured = TRUE;
  s->measured.step_time_s = r->log_s;
  s->measured.tokens_per_s_per_gpu = r->log_tokens;
}

/* No machine multiplies faster than its peak; `predicted` has the share that a step of the predicted length takes. */
static gboolean is_possible(const Run *r, const MsResult *predicted, GError **error) {
  double share =
      predicted->mfu / MAX(predicted->counted_over_run, 1) * predicted->step_time_s / MAX(r->measured_s, 1e-12);
  return !(r->measured_s > 0) || !(share > 1) ||
         ms_input_error(error, r->log ? r->log : r->file, 0, r->log ? NULL : "measured",
                        "%s a step is %.3g times the peak of %s: another run, or another unit?",
                        MS_SECONDS(r->measured_s), share, r->scenario->hardware->name);
}

static gboolean predict(Run *r, gboolean unnamed, GError **error) {
  const char *from = NULL;
  r->scenario = ms_scenario_load(r->file, error);
  if (!r->scenario || !put_hardware(r->scenario, r->hardware, error)) return FALSE;
  MsScenario *s = r->scenario;
  if (r->log) put_log(r, s);
  if (!ms_training_log_is_of(r->log, r->log_batch, r->log_gpus, s, error)) return FALSE;
  r->measured_s = s->has_measured ? ms_measured_time(s, &from) : NAN;
  if (!(r->measured_s > 0) && !r->trace)
    return ms_input_error(error, r->file, 0, "measured", "gives no step time: moesim import log reads one from a log");
  ms_run_labels_init(&r->label, s, r->file);
  r->model = g_strdup(s->model->name);
  r->site = g_strdup_printf("%s\n%s\n%s", r->label.of[MS_BY_SOURCE], r->label.of[MS_BY_GPU], r->label.of[MS_BY_STACK]);
  if (unnamed && !forget_stack(s, error)) return FALSE;
  r->known = g_strcmp0(s->stack.name, "default") != 0;
  double weight = isnan(s->measured.weight) ? 1 : s->measured.weight;
  r->noise_share = s->has_measured && weight > 0 ? 1 / (weight * confidence(&s->measured)) : 1;
  g_autoptr(MsResult) result = ms_simulate(s, MS_FIDELITY_FULL, NULL, error);
  if (!result || !is_possible(r, result, error)) return FALSE;
  r->predicted_s = result->step_time_s;
  r->log_error = r->measured_s > 0 ? log(r->measured_s / r->predicted_s) : NAN;
  r->band = result->band;
  r->ground = result->ground;
  r->n_assumed = result->n_assumed;
  r->assumed = g_memdup2(result->assumed, (gsize)result->n_assumed * sizeof *result->assumed);
  r->common = sqrt(MAX(result->band * result->band - result->band_curves * result->band_curves, 0));
  return r->predicted_s > 0 && find_follows(r, error);
}

typedef struct {
  gboolean unnamed, weighed; /* weighed: runs of weight 0 and those that ran out of memory stay out */
} Study;

static void look(gpointer item, gconstpointer data) {
  const Study *study = data;
  Run *r = item;
  r->usable = predict(r, study->unnamed, &r->error);
  if (r->usable && study->weighed)
    r->usable = !(r->scenario->measured.weight == 0) && !r->scenario->measured.out_of_memory && r->measured_s > 0;
  r->job.done = TRUE;
}

/* --- belief ---------------------------------------------------------------------------------------------------- */
typedef struct {
  int n;
  double *mean, *cov;             /* [n], [n][n] */
  double model_spread, run_noise; /* of a model that was not seen; of a run of weight 1 */
} Belief;

/* What may be out of the ordinary; each of the CASES is a set of them. */
enum { ODD_SITE = 1, ODD_MODELS = 2, ODD_RUNS = 4, CASES = 8 };

static Belief belief_new(const MsLaws *laws, int odd, int models) {
  Belief b = {.n = FIRST_MODEL + models,
              .model_spread = odd & ODD_MODELS ? laws->anchor_odd_model_spread : laws->anchor_model_spread,
              .run_noise = odd & ODD_RUNS ? laws->anchor_odd_run_noise : laws->anchor_run_noise};
  double site_spread = odd & ODD_SITE ? laws->anchor_site_spread : laws->anchor_known_spread;
  b.mean = g_new0(double, b.n);
  b.cov = g_new0(double, b.n *b.n);
  for (int i = 0; i < b.n; i++) {
    double sd = i == SITE ? site_spread : i < FIRST_MODEL ? laws->anchor_class_spread : b.model_spread;
    b.cov[i * b.n + i] = sd * sd;
  }
  return b;
}

static void belief_clear(Belief *b) {
  g_free(b->mean);
  g_free(b->cov);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Belief, belief_clear)

/* h' cov h */
static double variance(const Belief *b, const double *h) {
  double sum = 0;
  for (int i = 0; i < b->n; i++) sum += h[i] * ms_dot(b->cov + i * b->n, h, b->n);
  return sum;
}

/* One observation y = h x + noise of that variance; the logarithm of how likely it was. */
static double belief_observe(Belief *b, const double *h, double y, double noise) {
  g_autofree double *gain = g_new(double, b->n);
  for (int i = 0; i < b->n; i++) gain[i] = ms_dot(b->cov + i * b->n, h, b->n);
  double all = ms_dot(gain, h, b->n) + noise, miss = y - ms_dot(b->mean, h, b->n);
  for (int i = 0; i < b->n; i++) b->mean[i] += gain[i] * miss / all;
  for (int i = 0; i < b->n; i++)
    for (int k = 0; k < b->n; k++) b->cov[i * b->n + k] -= gain[i] * gain[k] / all;
  return -0.5 * (miss * miss / all + log(all));
}

/* --- one belief for each case ---------------------------------------------------------------------------------- */
typedef struct {
  Belief part[CASES];
  double log_weight[CASES];
} Mixture;

/* `known`: the software is one that factors were fitted for, so the site is none of its own. */
static Mixture mixture_new(const MsLaws *laws, gboolean known, int models) {
  Mixture m;
  for (int odd = 0; odd < CASES; odd++) {
    double chance = 1;
    for (int one = 1; one < CASES; one *= 2) {
      double of_it = one != ODD_SITE ? laws->anchor_odd_chance : known ? 0 : laws->anchor_odd_site_chance;
      chance *= odd & one ? of_it : 1 - of_it;
    }
    m.part[odd] = belief_new(laws, odd, models);
    m.log_weight[odd] = log(chance);
  }
  return m;
}

static void mixture_clear(Mixture *m) {
  for (int k = 0; k < CASES; k++) belief_clear(&m->part[k]);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Mixture, mixture_clear)

static void find_weights(const Mixture *m, double weight[CASES]) {
  double most = m->log_weight[0], sum = 0;
  for (int k = 1; k < CASES; k++) most = MAX(most, m->log_weight[k]);
  for (int k = 0; k < CASES; k++) sum += weight[k] = exp(m->log_weight[k] - most);
  for (int k = 0; k < CASES; k++) weight[k] /= sum;
}

/* Mean and covariance of all together. */
static Belief settled(const Mixture *m) {
  int n = m->part[0].n;
  double weight[CASES];
  Belief b = {.n = n, .mean = g_new0(double, n), .cov = g_new0(double, n *n)};
  find_weights(m, weight);
  for (int k = 0; k < CASES; k++)
    for (int i = 0; i < n; i++) b.mean[i] += weight[k] * m->part[k].mean[i];
  for (int k = 0; k < CASES; k++) {
    const Belief *p = &m->part[k];
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        b.cov[i * n + j] += weight[k] * (p->cov[i * n + j] + (p->mean[i] - b.mean[i]) * (p->mean[j] - b.mean[j]));
  }
  return b;
}

/* What a step follows; a model that was not seen (place beyond) has no entry of its own. */
static double *steps_of(const Belief *b, const Run *r, guint place) {
  double *h = g_new0(double, b->n);
  for (int c = 0; c < MS_N_ANCHORS; c++) h[SITE] += h[FIRST_CLASS + c] = r->follows[c];
  if (FIRST_MODEL + (int)place < b->n) h[FIRST_MODEL + (int)place] = h[SITE];
  return h;
}

static void observe_run(Mixture *m, const Run *r) {
  g_autofree double *h = steps_of(&m->part[0], r, r->place);
  for (int k = 0; k < CASES; k++) {
    Belief *b = &m->part[k];
    m->log_weight[k] += belief_observe(b, h, r->log_error, b->run_noise * b->run_noise * r->noise_share);
  }
}

/* Half of the interval that holds the log error of another run like `r` in 90 % of all cases, around its mean; of its
 * model nothing may be known. */
static double half_width(const Mixture *m, const Run *r, guint place) {
  g_autofree double *h = steps_of(&m->part[0], r, place);
  gboolean seen = FIRST_MODEL + (int)place < m->part[0].n;
  double weight[CASES], at[CASES], sd[CASES], mean = 0, low = 0, high = 8;
  find_weights(m, weight);
  for (int k = 0; k < CASES; k++) {
    const Belief *b = &m->part[k];
    double model = seen ? 0 : b->model_spread * h[SITE];
    at[k] = ms_dot(b->mean, h, b->n);
    sd[k] = sqrt(variance(b, h) + b->run_noise * b->run_noise + model * model);
    mean += weight[k] * at[k];
  }
  for (int i = 0; i < 40; i++) {
    double middle = (low + high) / 2, inside = 0;
    for (int k = 0; k < CASES; k++)
      inside += weight[k] *
                (ms_normal_below((mean + middle - at[k]) / sd[k]) - ms_normal_below((mean - middle - at[k]) / sd[k]));
    *(inside < 0.9 ? &low : &high) = middle;
  }
  return high;
}

/* The common band afterwards. That of a named stack shrinks as the interval does. Where nobody has checked, the
 * interval says it. */
static double band_after(const Mixture *before, const Mixture *after, const Run *r, double common, guint place) {
  double left = half_width(after, r, place);
  return r->known ? common * left / half_width(before, r, MOST_MODELS) : left;
}

/* --- profiles -------------------------------------------------------------------------------------------------- */
/* Families of a folded profile that compute; times of messages hold the waiting for other ranks. */
static const struct {
  const char *word;
  MsAnchorClass class_index;
} families[] = {{"gemm", MS_ANCHOR_GEMM},
                {"grouped_gemm", MS_ANCHOR_GROUPED_GEMM},
                {"attention", MS_ANCHOR_ATTENTION},
                {"memory_bound", MS_ANCHOR_MEMORY_BOUND}};
#define LEAST_SHARE 0.02 /* of the time of both, of a class that is compared */

static double sum_s(const MsProfile *p) {
  double sum = 0;
  for (int i = 0; i < p->n_parts; i++) sum += p->part[i].time_s;
  return sum;
}

static gboolean observe_profile(Mixture *m, const Run *r, const char *scenario, MsAnchored *a, GPtrArray *notes,
                                GError **error) {
  double noise = r->scenario->laws.anchor_profile_noise;
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(error);
  g_autoptr(MsProfile) measured = table ? ms_profile_load(r->trace, -1, -1, table, notes, error) : NULL;
  g_autoptr(MsProfile) predicted = measured ? ms_profile_load(scenario, -1, measured->rank, table, notes, error) : NULL;
  if (!predicted) return FALSE;
  if (measured->kind != MS_PROFILE_TRACE && measured->kind != MS_PROFILE_SAVED_TRACE)
    return ms_input_error(error, r->trace, 0, NULL, "is no profile");
  ms_profile_fold(measured, table);
  ms_profile_fold(predicted, table);
  g_autoptr(MsDiff) d = ms_diff_new(predicted, measured, table, notes, error);
  g_autofree char *stranger = d ? ms_diff_stranger(predicted, measured, table) : NULL;
  if (stranger) return ms_input_error(error, r->trace, 0, NULL, "%s", stranger);
  double speed = ms_profile_speed(measured, r->scenario->hardware);
  for (gsize i = 0; d && i < G_N_ELEMENTS(families); i++) {
    for (int k = 0; k < d->n_rows; k++) {
      const MsDiffRow *row = &d->row[k];
      if (strcmp(row->word, families[i].word) != 0 || isnan(row->ratio) ||
          MIN(row->a_s / sum_s(predicted), row->b_s / sum_s(measured)) < LEAST_SHARE)
        continue;
      g_autofree double *h = g_new0(double, m->part[0].n);
      h[SITE] = h[FIRST_CLASS + families[i].class_index] = h[FIRST_MODEL + (int)r->place] = 1;
      for (int c = 0; c < CASES; c++)
        m->log_weight[c] += belief_observe(&m->part[c], h, log(speed / row->ratio), noise * noise);
      a->learned[families[i].class_index].profiles++;
    }
  }
  return d != NULL;
}

/* --- logs ------------------------------------------------------------------------------------------------------ */
static gboolean is_log(const char *file) {
  g_autoptr(MsReader) reader = ms_reader_open(file, NULL);
  return reader && ms_training_log_is(reader);
}

static gboolean take_log(Run *r, const char *file, GPtrArray *notes, GError **error) {
  g_autoptr(MsReader) reader = ms_reader_open(file, error);
  g_autoptr(MsTrainingLog) log = reader ? ms_training_log_read(reader, file, notes, error) : NULL;
  if (!log) return FALSE;
  r->log = g_strdup(file);
  r->log_s = log->time_s, r->log_tokens = log->tokens_per_s;
  r->log_batch = log->global_batch, r->log_gpus = log->world_size;
  return TRUE;
}

/* Lines of logs begin with "[" too, then a date. */
static gboolean is_json(const char *file) {
  g_autoptr(MsReader) reader = ms_reader_open(file, NULL);
  const char *line = reader ? ms_reader_line(reader, NULL) : NULL;
  while (line && !*(line += strspn(line, " \t"))) line = ms_reader_line(reader, NULL);
  if (!line || *line != '[') return line && *line == '{';
  line += 1 + strspn(line + 1, " \t");
  return !*line || strchr("{]", *line);
}

/* --- the files ------------------------------------------------------------------------------------------------- */
/* The same evidence twice would count as two measurements. */
static gboolean given_once(const char *const *files, int at, GError **error) {
  g_autofree char *own = g_canonicalize_filename(files[at], NULL);
  for (int i = 0; i < at; i++) {
    g_autofree char *other = g_canonicalize_filename(files[i], NULL);
    if (strcmp(own, other) == 0)
      return ms_input_error(error, files[at], 0, NULL, "is given twice, and would count as two measurements");
  }
  return TRUE;
}

/* Scenarios, each with its profile and its log behind it. */
static GArray *read_files(const MsAnchorOptions *o, GPtrArray *notes, GError **error) {
  GArray *runs = g_array_new(FALSE, TRUE, sizeof(Run));
  g_array_set_clear_func(runs, run_clear);
  gboolean good = TRUE;
  for (int i = 0; good && o->files[i]; i++) good = given_once(o->files, i, error);
  for (int i = 0; good && o->files[i]; i++) {
    MsProfileKind kind;
    Run run = {.file = g_strdup(o->files[i]), .hardware = o->hardware};
    Run *last = runs->len > 0 ? &g_array_index(runs, Run, runs->len - 1) : NULL;
    if (last && !last->log && !is_json(o->files[i]) && is_log(o->files[i])) {
      good = take_log(last, o->files[i], notes, error);
      g_free(run.file);
      continue;
    }
    good = ms_profile_kind(o->files[i], &kind, error);
    if (good && kind == MS_PROFILE_SAVED_RUN)
      good = ms_input_error(error, run.file, 0, NULL, "is a prediction: nothing was measured");
    else if (good && kind != MS_PROFILE_SCENARIO && last && last->trace)
      good = ms_input_error(error, run.file, 0, NULL, "is a second profile of %s: one of a run counts, beside %s",
                            last->file, last->trace);
    else if (good && kind != MS_PROFILE_SCENARIO && !last)
      good = ms_input_error(error, run.file, 0, NULL, "is a profile: give the scenario of its run in front of it");
    if (!good || kind != MS_PROFILE_SCENARIO) {
      if (good) last->trace = g_steal_pointer(&run.file);
      g_free(run.file);
      continue;
    }
    run.job.name = run.file;
    g_array_append_val(runs, run);
  }
  if (!good) g_clear_pointer(&runs, g_array_unref);
  return runs;
}

static guint place_models(Run *const *runs, guint n) {
  guint places = 0;
  for (guint i = 0; i < n; i++) {
    runs[i]->place = places;
    for (guint k = 0; k < i; k++)
      if (strcmp(runs[i]->model, runs[k]->model) == 0) runs[i]->place = runs[k]->place;
    places += runs[i]->place == places;
  }
  return places;
}

static gboolean same_machine(const Run *a, const Run *b, GError **error) {
  const char *x = a->scenario->hardware->name, *y = b->scenario->hardware->name;
  return strcmp(x, y) == 0 || ms_input_error(error, b->file, 0, "hardware",
                                             "is %s, that of %s %s: runs of one machine are wanted", y, a->file, x);
}

/* --- the machine file ------------------------------------------------------------------------------------------ */
/* What the new file is built upon: a name, or the members of an object that stands in the scenario. */
static void put_base(MsJsonOut *out, const MsAnchorOptions *o, const Run *r) {
  JsonNode *node = r->scenario->hardware_json;
  gboolean object = !o->hardware && node && JSON_NODE_HOLDS_OBJECT(node);
  const char *name = o->hardware ? o->hardware : object ? NULL : json_node_get_string(node);
  if (object) {
    JsonObject *members = json_node_get_object(node);
    g_autoptr(GList) keys = json_object_get_members(members);
    for (GList *l = keys; l; l = l->next)
      if (strcmp(l->data, "name") != 0 && strcmp(l->data, "schema") != 0 && strcmp(l->data, "anchor") != 0 &&
          strcmp(l->data, "sources") != 0)
        ms_json_out_node(out, l->data, json_object_get_member(members, l->data));
    return;
  }
  g_autofree char *path = ms_mentioned_path(name, o->hardware ? "-" : r->file);
  ms_json_out_string(out, "base", path);
}

static double rounded(double factor) { return round(1e4 * factor) / 1e4; }

/* As the file has it, whose range is as far as one goes. */
static double within_range(double factor) { return CLAMP(rounded(factor), MS_ANCHOR_LEAST, MS_ANCHOR_MOST); }

static gboolean is_seen(Run *const *runs, guint n, const char *model) {
  for (guint i = 0; i < n; i++)
    if (strcmp(runs[i]->model, model) == 0) return TRUE;
  return FALSE;
}

/* Upon what a machine says that was anchored before: predictions held that already. */
static void put_factors(MsJsonOut *out, const MsAnchored *a, const Belief *b, Run *const *runs, guint n) {
  const MsAnchor *old = &runs[0]->scenario->hardware->anchor;
  JsonObject *models = old->models ? json_node_get_object(old->models) : NULL;
  for (int c = 0; c < MS_N_ANCHORS; c++)
    ms_json_out_double(out, a->learned[c].word,
                       within_range(a->learned[c].factor * ms_anchor_factor(old, (MsAnchorClass)c, NULL)));
  ms_json_out_object(out, "models");
  for (guint i = 0, place = 0; i < n; i++) {
    if (runs[i]->place != place) continue;
    double before = models && json_object_has_member(models, runs[i]->model)
                        ? json_object_get_double_member(models, runs[i]->model)
                        : 1;
    ms_json_out_double(out, runs[i]->model, within_range(before * exp(b->mean[FIRST_MODEL + (int)place++])));
  }
  g_autoptr(GList) names = models ? json_object_get_members(models) : NULL;
  for (GList *l = names; l; l = l->next)
    if (!is_seen(runs, n, l->data)) ms_json_out_node(out, l->data, json_object_get_member(models, l->data));
  ms_json_out_end(out);
}

/* What is left of the error of a run that was measured. */
static double left_of(const Belief *b, const Run *r) {
  g_autofree double *h = steps_of(b, r, r->place);
  return r->log_error - ms_dot(b->mean, h, b->n);
}

static void put_run(MsJsonOut *out, const Belief *b, const Run *r) {
  g_autoptr(GHashTable) keys = ms_knobs_of_layout(r->scenario);
  g_autoptr(GList) paths = g_list_sort(g_hash_table_get_keys(keys), (GCompareFunc)strcmp);
  ms_json_out_object(out, NULL);
  ms_json_out_string(out, "model", r->model);
  ms_json_out_int(out, "gpus", r->scenario->gpus);
  ms_json_out_double(out, "step_s", r->measured_s);
  ms_json_out_double(out, "left", rounded(CLAMP(left_of(b, r), -3, 3)));
  ms_json_out_object(out, "keys");
  for (GList *l = paths; l; l = l->next) ms_json_out_string(out, l->data, g_hash_table_lookup(keys, l->data));
  ms_json_out_end(out);
  ms_json_out_end(out);
}

/* Those seen now behind those that the machine was anchored by before: what these had left hardly moves against each
 * other. */
static void put_runs(MsJsonOut *out, const Belief *b, Run *const *runs, guint n) {
  JsonNode *old = runs[0]->scenario->hardware->anchor.runs;
  guint before = old ? json_array_get_length(json_node_get_array(old)) : 0;
  ms_json_out_array(out, "runs");
  for (guint i = 0; i < before; i++) ms_json_out_node(out, NULL, json_array_get_element(json_node_get_array(old), i));
  for (guint i = 0; i < n; i++)
    if (runs[i]->measured_s > 0) put_run(out, b, runs[i]);
  ms_json_out_end(out);
}

static double share_of(const Run *r, const char *key) {
  for (int i = 0; i < r->n_assumed; i++)
    if (strcmp(r->assumed[i].key, key) == 0) return r->assumed[i].share;
  return 0;
}

/* How much of a measured step followed each assumed figure, upon what the machine was anchored by before. A profile
 * alone says nothing of messages and of the host, and leaves it as it was. */
static void put_rested(MsJsonOut *out, Run *const *runs, guint n) {
  const MsHardware *machine = runs[0]->scenario->hardware;
  ms_json_out_object(out, "rested");
  for (const MsField *field = ms_hardware_table.fields; field->key; field++) {
    double most = 0, before = ms_anchor_rested(&machine->anchor, field->key);
    for (guint i = 0; i < n; i++)
      if (runs[i]->measured_s > 0) most = MAX(most, share_of(runs[i], field->key));
    if (rounded(before + most) > 0) ms_json_out_double(out, field->key, MIN(rounded(before + most), 1));
  }
  ms_json_out_end(out);
}

/* Without folders, so that the text does not depend on where files lie. */
static char *command_of(const MsAnchorOptions *o) {
  GString *text = g_string_new("moesim anchor");
  if (o->hardware) g_string_append_printf(text, " --hardware %s", o->hardware);
  for (int i = 0; o->files[i]; i++) {
    g_autofree char *name = g_path_get_basename(o->files[i]);
    g_string_append_printf(text, " %s", name);
  }
  return g_string_free(text, FALSE);
}

static char *machine_text(const MsAnchorOptions *o, const MsAnchored *a, const Belief *b, Run *const *runs, guint n) {
  MsJsonOut *out = ms_json_out_new(1);
  g_autofree char *name = g_strdup_printf("%s-anchored", a->hardware), *command = command_of(o),
                  *source = g_strdup_printf("%u run%s, %u profile%s; %s; %s", a->runs, a->runs == 1 ? "" : "s",
                                            a->traces, a->traces == 1 ? "" : "s", command, o->date);
  ms_json_out_object(out, NULL);
  ms_json_out_int(out, "schema", 1);
  ms_json_out_string(out, "name", o->name ? o->name : name);
  put_base(out, o, runs[0]);
  ms_json_out_object(out, "anchor");
  put_factors(out, a, b, runs, n);
  put_rested(out, runs, n);
  put_runs(out, b, runs, n);
  ms_json_out_double(out, "band", rounded(a->band));
  ms_json_out_double(out, "models_band", rounded(a->models_band));
  ms_json_out_end(out);
  ms_json_out_object(out, "sources");
  ms_source_put_measured(out, "anchor", source);
  ms_json_out_end(out);
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

/* --- what was learned ------------------------------------------------------------------------------------------ */
static void learn(MsAnchored *a, const Belief *before, const Belief *after) {
  for (int c = 0; c < MS_N_ANCHORS; c++) {
    MsAnchorLearned *l = &a->learned[c];
    g_autofree double *h = g_new0(double, after->n);
    h[SITE] = h[FIRST_CLASS + c] = 1;
    l->word = ms_anchor_table.fields[c].key;
    l->factor = exp(ms_dot(after->mean, h, after->n));
    l->sd = sqrt(variance(after, h));
    l->sd_before = sqrt(variance(before, h));
  }
}

static void see(MsAnchored *a, const Belief *b, Run *const *runs, guint n) {
  double squares = 0;
  guint timed = 0;
  a->seen = g_new0(MsAnchorSeen, 2 * n + 1);
  for (guint i = 0; i < n; i++) {
    const Run *r = runs[i];
    double left = left_of(b, r);
    a->seen[a->n_seen++] = (MsAnchorSeen){g_strdup(r->file), r->measured_s, expm1(-r->log_error), expm1(-left)};
    if (r->trace) a->seen[a->n_seen++] = (MsAnchorSeen){g_strdup(r->trace), NAN, NAN, NAN};
    a->runs += r->measured_s > 0;
    a->traces += r->trace != NULL;
    if (r->measured_s > 0) squares += left * left, timed++;
  }
  a->unexplained = timed > 0 ? sqrt(squares / timed) : NAN;
}

/* The class that makes most of the spread of these runs: measuring it would tell most. */
static const char *most_unknown(const Belief *b, Run *const *runs, guint n) {
  int most = 0;
  double most_variance = -1;
  for (int c = 0; c < MS_N_ANCHORS; c++) {
    double sum = 0;
    for (guint i = 0; i < n; i++)
      sum += runs[i]->follows[c] * runs[i]->follows[c] * b->cov[(FIRST_CLASS + c) * (b->n + 1)];
    if (sum > most_variance) most_variance = sum, most = c;
  }
  return ms_anchor_table.fields[most].key;
}

static void bands(MsAnchored *a, const Mixture *before, const Mixture *after, Run *const *runs, guint n) {
  for (guint i = 0; i < n; i++) {
    double common = hypot(ms_band_common(&runs[i]->scenario->laws, &runs[i]->ground),
                          runs[i]->measured_s > 0 ? runs[i]->ground.assumed : 0);
    a->band_before = MAX(a->band_before, common);
    a->band = MAX(a->band, band_after(before, after, runs[i], common, MOST_MODELS));
    a->models_band = MAX(a->models_band, band_after(before, after, runs[i], common, runs[i]->place));
  }
}

static gboolean update(MsAnchored *a, const MsAnchorOptions *o, Run *const *runs, guint n, GPtrArray *notes,
                       GError **error) {
  guint models = place_models(runs, n);
  if (models > MOST_MODELS) return ms_input_error(error, NULL, 0, NULL, "runs of more than %d models", MOST_MODELS);
  gboolean known = TRUE;
  for (guint i = 0; i < n; i++) {
    known = known && runs[i]->known;
    if (!same_machine(runs[0], runs[i], error)) return FALSE;
  }
  const MsLaws *laws = &runs[0]->scenario->laws;
  g_auto(Mixture) nothing = mixture_new(laws, known, (int)models), all = mixture_new(laws, known, (int)models);
  for (guint i = 0; i < n; i++) {
    if (runs[i]->trace && !observe_profile(&all, runs[i], runs[i]->file, a, notes, error)) return FALSE;
    if (runs[i]->measured_s > 0) observe_run(&all, runs[i]);
  }
  g_auto(Belief) before = settled(&nothing), after = settled(&all);
  a->hardware = g_strdup(runs[0]->scenario->hardware->name);
  learn(a, &before, &after);
  see(a, &after, runs, n);
  bands(a, &nothing, &all, runs, n);
  a->unknown = most_unknown(&after, runs, n);
  a->text = machine_text(o, a, &after, runs, n);
  return TRUE;
}

static gboolean look_at_all(GArray *runs, const Study *study, int threads, gboolean progress, MsExtent *extent,
                            GError **error) {
  const MsJobsOptions options = {"anchor", "files", threads, progress};
  return ms_jobs_run(runs, look, study, &options, extent, error);
}

static gboolean interrupted(const MsExtent *extent, GError **error) {
  if (!ms_extent_stopped(extent)) return FALSE;
  g_set_error(error, MS_ERROR, MS_ERROR_NOTHING, "stopped before all files were predicted: nothing was learned");
  return TRUE;
}

MsAnchored *ms_anchor(const MsAnchorOptions *o, GPtrArray *notes, GError **error) {
  const Study study = {FALSE, FALSE};
  MsExtent extent;
  g_autoptr(GArray) runs = read_files(o, notes, error);
  if (!runs || !look_at_all(runs, &study, o->threads, FALSE, &extent, error) || interrupted(&extent, error))
    return NULL;
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  for (guint i = 0; i < runs->len; i++) {
    Run *r = &g_array_index(runs, Run, i);
    if (r->error) {
      g_propagate_error(error, g_steal_pointer(&r->error));
      return NULL;
    }
    g_ptr_array_add(all, r);
  }
  g_autoptr(MsAnchored) a = g_new0(MsAnchored, 1);
  return update(a, o, (Run *const *)all->pdata, all->len, notes, error) ? g_steal_pointer(&a) : NULL;
}

void ms_anchored_free(MsAnchored *a) {
  if (!a) return;
  for (guint i = 0; i < a->n_seen; i++) g_free(a->seen[i].file);
  g_free(a->seen);
  g_free(a->text);
  g_free(a->hardware);
  g_free(a);
}

/* --- what it is worth ------------------------------------------------------------------------------------------ */
typedef struct {
  GArray *before, *after[2]; /* |error| */
  guint inside_before, inside_after, runs, sites;
} Pile;

static void pile_init(Pile *p) {
  *p = (Pile){.before = g_array_new(FALSE, FALSE, sizeof(double))};
  for (int k = 0; k < 2; k++) p->after[k] = g_array_new(FALSE, FALSE, sizeof(double));
}

static void pile_clear(Pile *p) {
  g_array_unref(p->before);
  g_array_unref(p->after[0]);
  g_array_unref(p->after[1]);
}

static void add(GArray *list, double error) {
  double size = fabs(error);
  g_array_append_val(list, size);
}

/* Predicts run `at` of the site with the belief after its anchors. */
static void try_on(Pile *p, const Mixture *before, const Mixture *after, const Belief *mean, const Run *r,
                   int anchors) {
  double left = left_of(mean, r), rest = r->band * r->band - r->common * r->common;
  add(p->after[anchors - 1], expm1(-left));
  if (anchors > 1) return;
  double common = band_after(before, after, r, r->common, r->place);
  add(p->before, expm1(-r->log_error));
  p->inside_before += fabs(expm1(r->log_error)) <= r->band;
  p->inside_after += fabs(expm1(left)) <= sqrt(MAX(rest, 0) + common * common);
}

static void try_site(Pile *p, Run *const *site, guint n) {
  guint models = place_models(site, n);
  p->runs += n;
  p->sites++;
  if (models > MOST_MODELS) return;
  g_auto(Mixture) nothing = mixture_new(&site[0]->scenario->laws, site[0]->known, (int)models);
  for (guint i = 0; i < n; i++) {
    for (int anchors = 1; anchors <= 2; anchors++) {
      guint second = (i + 1) % n;
      g_auto(Mixture) both = mixture_new(&site[0]->scenario->laws, site[0]->known, (int)models);
      observe_run(&both, site[i]);
      if (anchors > 1) observe_run(&both, site[second]);
      g_auto(Belief) mean = settled(&both);
      for (guint k = 0; k < n; k++)
        if (k != i && (anchors == 1 || k != second)) try_on(p, &nothing, &both, &mean, site[k], anchors);
    }
  }
}

static double median(GArray *list) {
  return ms_error_summary((double *)(gpointer)list->data, NULL, list->len).median_ape;
}
static double mean(GArray *list) { return ms_error_summary((double *)(gpointer)list->data, NULL, list->len).mape; }

static MsAnchorWorth worth_of(const char *name, const Pile *p) {
  guint n = p->before->len;
  MsAnchorWorth w = {.name = g_strdup(name), .sites = p->sites, .runs = p->runs, .pairs = n};
  w.before = median(p->before);
  w.mean_before = mean(p->before);
  for (int k = 0; k < 2; k++) w.after[k] = median(p->after[k]), w.mean_after[k] = mean(p->after[k]);
  w.inside_before = n > 0 ? (double)p->inside_before / n : NAN;
  w.inside_after = n > 0 ? (double)p->inside_after / n : NAN;
  return w;
}

MS_ORDER_AT(by_site, Run, strcmp(x->site, y->site), strcmp(x->file, y->file))

static void merge(Pile *to, const Pile *from) {
  g_array_append_vals(to->before, from->before->data, from->before->len);
  for (int k = 0; k < 2; k++) g_array_append_vals(to->after[k], from->after[k]->data, from->after[k]->len);
  to->inside_before += from->inside_before;
  to->inside_after += from->inside_after;
  to->runs += from->runs;
  to->sites += from->sites;
}

/* Sites come together, and those of a folder follow each other. */
static void evaluate(MsAnchorEvaluation *e, Run *const *runs, guint n) {
  enum { LEAST = 3 };
  Pile all, source;
  pile_init(&all);
  for (guint i = 0; i < n;) {
    const char *folder = runs[i]->label.of[MS_BY_SOURCE];
    pile_init(&source);
    while (i < n && strcmp(folder, runs[i]->label.of[MS_BY_SOURCE]) == 0) {
      guint end = i + 1;
      while (end < n && strcmp(runs[i]->site, runs[end]->site) == 0) end++;
      if (end - i >= LEAST) try_site(&source, runs + i, end - i);
      i = end;
    }
    if (source.sites > 0) {
      e->source = g_renew(MsAnchorWorth, e->source, e->n_sources + 1);
      e->source[e->n_sources++] = worth_of(folder, &source);
      merge(&all, &source);
    }
    pile_clear(&source);
  }
  e->runs = all.runs;
  e->sites = all.sites;
  e->all = worth_of("all", &all);
  pile_clear(&all);
}

MsAnchorEvaluation *ms_anchor_evaluate(const char *const *paths, gboolean unnamed, const MsValidateOptions *options,
                                       GError **error) {
  const Study study = {unnamed, TRUE};
  g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free), usable = g_ptr_array_new();
  if (!ms_validation_files(paths, files, error)) return NULL;
  g_autoptr(GArray) runs = g_array_new(FALSE, TRUE, sizeof(Run));
  g_array_set_clear_func(runs, run_clear);
  for (guint i = 0; i < files->len; i++) {
    Run run = {.file = g_strdup(files->pdata[i])};
    run.job.name = files->pdata[i];
    g_array_append_val(runs, run);
  }
  g_autofree MsAnchorEvaluation *e = g_new0(MsAnchorEvaluation, 1);
  if (!look_at_all(runs, &study, options->threads, options->progress, &e->extent, error)) return NULL;
  for (guint i = 0; i < runs->len; i++)
    if (g_array_index(runs, Run, i).usable) g_ptr_array_add(usable, &g_array_index(runs, Run, i));
  if (usable->len == 0 && !ms_extent_stopped(&e->extent))
    return ms_error(error, MS_ERROR_INPUT, "no run with a measured step time that can be predicted"), NULL;
  g_ptr_array_sort(usable, by_site);
  evaluate(e, (Run *const *)usable->pdata, usable->len);
  return g_steal_pointer(&e);
}

void ms_anchor_evaluation_free(MsAnchorEvaluation *e) {
  if (!e) return;
  for (guint i = 0; i < e->n_sources; i++) g_free(e->source[i].name);
  g_free(e->all.name);
  g_free(e->source);
  g_free(e);
}
