#include "study/validate.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/order.h"
#include "base/stats.h"
#include "base/units.h"
#include "describe/module_sets.h"
#include "study/guesses.h"
#include "study/jobs.h"

const char *const ms_metric_words[] = {"step_time", "peak_memory", NULL};
const char *const ms_by_words[] = {"none", "gpu", "model", "source", "confidence", "stack", NULL};

enum { MAX_WALK_DEPTH = 16 };

typedef struct { /* one file; a worker fills what stands under the line */
  MsJob job;     /* first, as ms_jobs_run wants it */
  char *file;
  MsJson *doc; /* NULL when the file is broken: `message` says how */
  const MsValidateOptions *options;
  /* --- */
  char *message; /* why it could not be predicted */
  gboolean predicted, feasible, oom_measured;
  guint n_rows;
  MsValidateRow row[MS_N_METRICS];
} Job;

/* The folder that names the source: the parent, or the one above "loose" and "memory". */
static char *source_of(const char *file) {
  g_autofree char *parent = g_path_get_dirname(file);
  char *name = g_path_get_basename(parent);
  if (g_str_equal(name, "loose") || g_str_equal(name, "memory")) {
    g_autofree char *above = g_path_get_dirname(parent);
    g_free(name);
    name = g_path_get_basename(above);
  }
  return name;
}

void ms_run_labels_init(MsRunLabels *labels, const MsScenario *s, const char *file) {
  *labels = (MsRunLabels){0};
  labels->of[MS_BY_GPU] = g_strdup(s->hardware->name);
  labels->of[MS_BY_MODEL] = g_strdup(s->model->name);
  labels->of[MS_BY_SOURCE] = source_of(file);
  labels->of[MS_BY_CONFIDENCE] = g_strdup(s->measured.config_confidence ? s->measured.config_confidence : "unknown");
  labels->of[MS_BY_STACK] = g_strdup(s->software ? s->software : "unnamed");
}

void ms_run_labels_clear(MsRunLabels *labels) {
  for (int i = 0; i < MS_N_BYS; i++) g_free(labels->of[i]);
}

static void row_clear(MsValidateRow *row) {
  g_free(row->name);
  g_free(row->file);
  ms_run_labels_clear(&row->label);
}

void ms_validate_options_init(MsValidateOptions *options) {
  *options = (MsValidateOptions){.fidelity = MS_FIDELITY_FULL, .by = MS_BY_NOTHING};
}

/* --- finding files --------------------------------------------------------------------------------------------- */
static gboolean walk(const char *folder, int depth, GPtrArray *files, GError **error) {
  g_autoptr(GError) inner = NULL;
  g_autoptr(GDir) dir = g_dir_open(folder, 0, &inner);
  if (!dir) return ms_error(error, MS_ERROR_ENV, "%s", inner->message);
  g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
  const char *entry;
  while ((entry = g_dir_read_name(dir))) g_ptr_array_add(names, g_strdup(entry));
  g_ptr_array_sort(names, ms_by_text);
  for (guint i = 0; i < names->len; i++) {
    const char *name = g_ptr_array_index(names, i);
    g_autofree char *path = g_build_filename(folder, name, NULL);
    if (name[0] == '.') continue;
    if (g_file_test(path, G_FILE_TEST_IS_DIR)) {
      if (depth < MAX_WALK_DEPTH && !walk(path, depth + 1, files, error)) return FALSE;
    } else if (g_str_has_suffix(name, ".json")) {
      g_ptr_array_add(files, g_steal_pointer(&path));
    }
  }
  return TRUE;
}

/* --- one file -------------------------------------------------------------------------------------------------- */
static gboolean has_measured(const MsJson *doc) {
  JsonNode *root = ms_json_root(doc);
  if (!root || !JSON_NODE_HOLDS_OBJECT(root)) return FALSE;
  JsonNode *measured = json_object_get_member(json_node_get_object(root), "measured");
  return measured && JSON_NODE_HOLDS_OBJECT(measured);
}

/* What was guessed may be anything between its least and its most: four fifths of that with 80 %. */
static void widen(MsValidateRow *row, double guessed) {
  row->guessed = guessed;
  row->band = hypot(row->band, guessed);
  row->band_80 = hypot(row->band_80, 0.8 * guessed), row->band_50 = hypot(row->band_50, 0.5 * guessed);
}

static void add_row(Job *job, const MsScenario *s, MsMetric metric, const char *from, double measured, double predicted,
                    const MsResult *r) {
  if (!(measured > 0) || !isfinite(predicted)) return;
  MsValidateRow *row = &job->row[job->n_rows++];
  row->name = g_strdup(s->name);
  row->file = g_strdup(job->file);
  ms_run_labels_init(&row->label, s, job->file);
  row->metric = metric;
  row->from = from;
  row->measured = measured;
  row->predicted = predicted;
  row->error = predicted / measured - 1;
  row->weight = isnan(s->measured.weight) ? 1 : s->measured.weight;
  row->rounding = s->measured.rounding;
  row->counted = (job->options->all || row->weight > 0) &&
                 (!job->options->exact || g_str_equal(row->label.of[MS_BY_CONFIDENCE], "exact"));
  gboolean time = metric == MS_METRIC_STEP_TIME;
  row->band = time ? r->band : NAN, row->band_80 = time ? r->band_80 : NAN, row->band_50 = time ? r->band_50 : NAN;
  row->band_curves = time ? r->band_curves : NAN;
  if (time) widen(row, ms_guesses_width(s));
  row->inside = fabs(measured / predicted - 1) <= row->band;
}

double ms_measured_time(const MsScenario *s, const char **from) {
  const MsMeasured *m = &s->measured;
  double tokens = (double)s->training.global_batch_size * s->training.seq_length;
  if (!isnan(m->step_time_s)) {
    *from = "step_time_s";
    return m->step_time_s;
  }
  if (!isnan(m->tokens_per_s_per_gpu)) {
    *from = "tokens_per_s_per_gpu";
    return tokens / (m->tokens_per_s_per_gpu * s->gpus);
  }
  if (isnan(m->tflops_per_gpu) || g_strcmp0(m->flops_convention, "causal-half") != 0) return NAN;
  *from = "tflops_per_gpu";
  return ms_training_flop_per_token(s->model, &s->training).total * tokens / (m->tflops_per_gpu * 1e12 * s->gpus);
}

static void compare_time(Job *job, const MsScenario *s, const MsResult *r) {
  const char *from = NULL;
  double measured = ms_measured_time(s, &from);
  if (from) add_row(job, s, MS_METRIC_STEP_TIME, from, measured, r->step_time_s, r);
}

/* The peak that PyTorch reports is that of the steps before the capture where a run has CUDA graphs of modules:
 * TransformerEngine lets go of what a graph has taken as soon as the next one may use it (pytorch/graph.py
 * make_weak_ref), so that the allocator counts it as free, though every replay uses it. In the golden values of
 * Megatron-LM's scoped_cudagraph tests the peak stands still from the second step on and the capture comes before the
 * fourth. */
static MsResult *before_capture(const MsScenario *s) {
  g_autoptr(MsScenario) eager = ms_scenario_copy(s, FALSE);
  eager->options.cuda_graph_scope = 0;
  return ms_simulate(eager, MS_FIDELITY_BOUND, NULL, NULL);
}

/* Allocated memory; reserved where a run printed that alone. */
static void compare_memory(Job *job, const MsScenario *s, const MsResult *r) {
  const guint32 scope = s->options.cuda_graph_scope;
  g_autoptr(MsResult) eager =
      !isnan(s->measured.peak_memory_GiB) && scope && !MS_GRAPHS(scope, whole_step) ? before_capture(s) : NULL;
  const MsMemory *memory = eager ? eager->memory : r->memory;
  gboolean reserved = isnan(s->measured.peak_memory_GiB);
  if ((reserved && isnan(s->measured.peak_reserved_GiB)) || !memory || memory->stages < 1) return;
  const char *rank = s->measured.memory_rank;
  int stage = memory->peak_stage;
  if (g_strcmp0(rank, "0") == 0) stage = 0;
  if (g_strcmp0(rank, "last") == 0) stage = memory->stages - 1;
  const MsStageMemory *of = &memory->stage[stage];
  if (reserved)
    add_row(job, s, MS_METRIC_PEAK_MEMORY, "peak_reserved_GiB", s->measured.peak_reserved_GiB,
            (of->device_B - s->hardware->context_B) / MS_GIB, r);
  else add_row(job, s, MS_METRIC_PEAK_MEMORY, "peak_memory_GiB", s->measured.peak_memory_GiB, of->peak_B / MS_GIB, r);
}

static void job_predict(Job *job) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScenario) scenario = ms_scenario_from_doc(job->doc, &error);
  g_autoptr(MsResult) result = scenario ? ms_simulate(scenario, job->options->fidelity, NULL, &error) : NULL;
  if (!result) {
    job->message = g_strdup(error ? error->message : "no reason given");
    return;
  }
  job->predicted = TRUE;
  job->feasible = result->feasible;
  job->oom_measured = scenario->measured.out_of_memory;
  if (job->oom_measured) return; /* it did not run: nothing but feasibility to compare */
  compare_time(job, scenario, result);
  compare_memory(job, scenario, result);
}

static void job_run(gpointer item, gconstpointer data) {
  Job *job = item;
  job->options = data;
  if (job->doc) job_predict(job);
}

/* --- all files ------------------------------------------------------------------------------------------------- */
static void job_clear(gpointer data) {
  Job *job = data;
  for (guint r = 0; r < job->n_rows; r++) row_clear(&job->row[r]);
  g_free(job->file);
  g_free(job->message);
  ms_json_free(job->doc);
}

static gboolean collect_file(const char *file, const char *hardware, GArray *jobs, GError **error) {
  g_autoptr(MsJson) doc = ms_json_load(file, error);
  if (!doc) return FALSE;
  if (!has_measured(doc))
    return ms_input_error(error, file, 0, NULL, "no `measured` section: nothing to compare a prediction with");
  if (!ms_put_on(doc, hardware, error)) return FALSE;
  Job job = {.file = g_strdup(file), .doc = g_steal_pointer(&doc)};
  g_array_append_val(jobs, job);
  return TRUE;
}

static gboolean collect_folder(const char *folder, const char *hardware, GArray *jobs, GError **error) {
  g_autoptr(GPtrArray) found = g_ptr_array_new_with_free_func(g_free);
  if (!walk(folder, 0, found, error)) return FALSE;
  for (guint i = 0; i < found->len; i++) {
    const char *file = g_ptr_array_index(found, i);
    g_autoptr(GError) broken = NULL;
    g_autoptr(MsJson) doc = ms_json_load(file, &broken);
    if (doc && !has_measured(doc)) continue;
    if (doc && !ms_put_on(doc, hardware, &broken)) g_clear_pointer(&doc, ms_json_free);
    Job job = {
        .file = g_strdup(file), .doc = g_steal_pointer(&doc), .message = broken ? g_strdup(broken->message) : NULL};
    g_array_append_val(jobs, job);
  }
  return TRUE;
}

gboolean ms_validation_files(const char *const *paths, GPtrArray *files, GError **error) {
  for (; *paths; paths++) {
    if (!g_file_test(*paths, G_FILE_TEST_IS_DIR)) g_ptr_array_add(files, g_strdup(*paths));
    else if (!walk(*paths, 0, files, error)) return FALSE;
  }
  return TRUE;
}

/* The files that are validation scenarios; one named by the user must be one, a broken one in a folder counts as
 * refused. */
static gboolean collect(const char *const *paths, const char *hardware, GArray *jobs, GError **error) {
  for (; *paths; paths++) {
    gboolean ok = g_file_test(*paths, G_FILE_TEST_IS_DIR) ? collect_folder(*paths, hardware, jobs, error)
                                                          : collect_file(*paths, hardware, jobs, error);
    if (!ok) return FALSE;
  }
  if (jobs->len > 0) return TRUE;
  return ms_error(error, MS_ERROR_INPUT, "no scenario with a `measured` section found");
}

/* --- summaries ------------------------------------------------------------------------------------------------- */
MsErrorSummary ms_error_summary(const double *errors, const double *weights, guint n) {
  MsErrorSummary s = {n, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  if (n == 0) return s;
  g_autofree double *ape = g_new(double, n);
  double sum = 0, bias = 0, weighted = 0, weight_sum = 0;
  s.worst = errors[0];
  for (guint i = 0; i < n; i++) {
    double weight = weights ? weights[i] : 1;
    ape[i] = fabs(errors[i]);
    sum += ape[i];
    bias += errors[i];
    if (ape[i] > fabs(s.worst)) s.worst = errors[i];
    weighted += weight * ape[i];
    weight_sum += weight;
  }
  s.mape = sum / n;
  s.bias = bias / n;
  if (weight_sum > 0) s.weighted_mape = weighted / weight_sum;
  s.median_ape = ms_quantile(ape, n, 0.5);
  s.p90_ape = ms_quantile(ape, n, 0.9);
  return s;
}

static gboolean in_group(const MsValidateRow *row, MsMetric metric, MsValidateBy by, const char *group) {
  return row->counted && row->metric == metric && (!group || g_str_equal(row->label.of[by], group));
}

/* Shares inside the bands. */
static void coverage(const MsValidation *v, MsValidateBy by, const char *group, MsErrorSummary *s) {
  guint n = 0, inside[3] = {0};
  for (guint i = 0; i < v->n_rows; i++) {
    const MsValidateRow *row = &v->rows[i];
    if (!in_group(row, MS_METRIC_STEP_TIME, by, group)) continue;
    double miss = fabs(row->measured / row->predicted - 1);
    n++;
    inside[0] += miss <= row->band, inside[1] += miss <= row->band_80, inside[2] += miss <= row->band_50;
  }
  if (n == 0) return;
  s->inside = (double)inside[0] / n, s->inside_80 = (double)inside[1] / n, s->inside_50 = (double)inside[2] / n;
}

/* Over the counted rows of `metric`, all of them or those of one group. */
static MsErrorSummary summarise(const MsValidation *v, MsMetric metric, MsValidateBy by, const char *group) {
  g_autofree double *errors = g_new(double, v->n_rows + 1), *weights = g_new(double, v->n_rows + 1);
  guint n = 0;
  for (guint i = 0; i < v->n_rows; i++) {
    const MsValidateRow *row = &v->rows[i];
    if (!in_group(row, metric, by, group)) continue;
    errors[n] = row->error;
    weights[n++] = row->weight;
  }
  MsErrorSummary s = ms_error_summary(errors, weights, n);
  if (metric == MS_METRIC_STEP_TIME) coverage(v, by, group, &s);
  return s;
}

MsValidateGroup *ms_validation_groups(const MsValidation *v, MsValidateBy by, guint *n) {
  *n = 0;
  if (by == MS_BY_NOTHING) return NULL;
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  for (guint i = 0; i < v->n_rows; i++)
    if (v->rows[i].counted && !g_ptr_array_find_with_equal_func(names, v->rows[i].label.of[by], g_str_equal, NULL))
      g_ptr_array_add(names, v->rows[i].label.of[by]);
  g_ptr_array_sort(names, ms_by_text);
  MsValidateGroup *groups = g_new0(MsValidateGroup, names->len + 1);
  *n = names->len;
  for (guint g = 0; g < names->len; g++) {
    groups[g].name = g_strdup(g_ptr_array_index(names, g));
    for (int m = 0; m < MS_N_METRICS; m++) groups[g].metric[m] = summarise(v, m, by, groups[g].name);
  }
  return groups;
}

void ms_validation_groups_free(MsValidateGroup *groups, guint n) {
  for (guint i = 0; i < n; i++) g_free(groups[i].name);
  g_free(groups);
}

/* The message without its file and line, numbers as '#', so that the same reason counts once. */
static char *reason_of(const char *message, const char *file) {
  message = ms_error_text(message, file);
  GString *out = g_string_new(NULL);
  for (const char *p = message; *p;) {
    gboolean starts = p == message || !(g_ascii_isalnum(p[-1]) || strchr("-_.", p[-1]));
    if (starts && g_ascii_isdigit(*p)) {
      while (g_ascii_isdigit(*p) || (*p == '.' && g_ascii_isdigit(p[1]))) p++;
      g_string_append_c(out, '#');
    } else {
      g_string_append_c(out, *p++);
    }
  }
  return g_string_free(out, FALSE);
}

MS_ORDER(compare_refusals, MsValidateRefusal, MS_MORE(x->n, y->n), strcmp(x->reason, y->reason))

static void count_refusal(GArray *refusals, const Job *job) {
  g_autofree char *reason = reason_of(job->message, job->file);
  for (guint i = 0; i < refusals->len; i++) {
    MsValidateRefusal *r = &g_array_index(refusals, MsValidateRefusal, i);
    if (g_str_equal(r->reason, reason)) {
      r->n++;
      return;
    }
  }
  MsValidateRefusal r = {g_steal_pointer(&reason), g_strdup(job->message), 1};
  g_array_append_val(refusals, r);
}

static void gather(MsValidation *v, Job *jobs, guint n) {
  GArray *rows = g_array_new(FALSE, FALSE, sizeof(MsValidateRow));
  GArray *refusals = g_array_new(FALSE, FALSE, sizeof(MsValidateRefusal));
  v->files = n;
  for (guint i = 0; i < n; i++) {
    Job *job = &jobs[i];
    if (!job->job.done) continue;
    if (!job->predicted) {
      v->refused++;
      count_refusal(refusals, job);
      continue;
    }
    v->predicted++;
    if (job->oom_measured) {
      v->oom_measured++;
      if (!job->feasible) v->oom_agreed++;
    } else if (job->n_rows == 0) { /* nobody says that it ran: parts of the memory of a layout, say, computed or
                                      measured on fewer layers */
      v->nothing_to_compare++;
    } else {
      v->fit_measured++;
      if (!job->feasible) v->fit_refused++;
    }
    g_array_append_vals(rows, job->row, job->n_rows);
    job->n_rows = 0; /* moved */
  }
  g_array_sort(refusals, compare_refusals);
  v->n_rows = rows->len;
  v->rows = (MsValidateRow *)g_array_free(rows, FALSE);
  v->n_refusals = refusals->len;
  v->refusals = (MsValidateRefusal *)g_array_free(refusals, FALSE);
}

MsValidation *ms_validate(const char *const *paths, const MsValidateOptions *options, GError **error) {
  gint64 begin_us = g_get_monotonic_time();
  g_autoptr(GArray) jobs = g_array_new(FALSE, TRUE, sizeof(Job));
  g_array_set_clear_func(jobs, job_clear);
  if (!collect(paths, options->hardware, jobs, error)) return NULL;
  for (guint i = 0; i < jobs->len; i++) g_array_index(jobs, Job, i).job.name = g_array_index(jobs, Job, i).file;
  const MsJobsOptions shift = {"validate", "files", options->threads, options->progress};
  MsExtent extent;
  if (!ms_jobs_run(jobs, job_run, options, &shift, &extent, error)) return NULL;
  MsValidation *v = g_new0(MsValidation, 1);
  v->extent = extent;
  gather(v, (Job *)jobs->data, jobs->len);
  for (int m = 0; m < MS_N_METRICS; m++) v->metric[m] = summarise(v, m, MS_BY_NOTHING, NULL);
  v->groups = ms_validation_groups(v, options->by, &v->n_groups);
  v->confidence = ms_validation_groups(v, MS_BY_CONFIDENCE, &v->n_confidence);
  v->elapsed_s = (double)(g_get_monotonic_time() - begin_us) * 1e-6;
  return v;
}

void ms_validation_free(MsValidation *v) {
  if (!v) return;
  for (guint i = 0; i < v->n_rows; i++) row_clear(&v->rows[i]);
  for (guint i = 0; i < v->n_refusals; i++) {
    g_free(v->refusals[i].reason);
    g_free(v->refusals[i].example);
  }
  g_free(v->rows);
  ms_validation_groups_free(v->groups, v->n_groups);
  ms_validation_groups_free(v->confidence, v->n_confidence);
  g_free(v->refusals);
  g_free(v);
}
