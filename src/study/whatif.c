#include "study/whatif.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "plan/plan.h"
#include "study/jobs.h"

typedef struct { /* one point at work */
  MsJob job;     /* first, as ms_jobs_run wants it */
  const MsWhatif *whatif;
  const MsJson *base;
  int index;
  MsWhatifRow *row;
  GError *error;
} Job;

/* --- one row --------------------------------------------------------------------------------------------------- */
static void row_clear(MsWhatifRow *row) {
  g_free(row->label);
  ms_scenario_free(row->scenario);
  ms_result_free(row->result);
  g_free(row->why);
}

/* GPU seconds per token, or 1. */
static double scale_of(const MsWhatif *w, const MsScenario *s) {
  return w->per == MS_WHATIF_TOKEN ? s->gpus / ((double)ms_scenario_batch(s) * s->training.seq_length) : 1;
}

/* FALSE and *error when it cannot run. */
static gboolean predict(const MsWhatif *w, MsWhatifRow *row, GError **error) {
  row->value_s = NAN;
  row->result = ms_simulate(row->scenario, (MsFidelity)w->fidelity, NULL, error);
  if (!row->result) return FALSE;
  double scale = scale_of(w, row->scenario);
  ms_parts_of_time(row->result, row->part_s);
  ms_parts_of_memory(row->result, row->memory_B);
  for (int p = 0; p < MS_N_PARTS; p++) row->part_s[p] *= scale;
  row->value_s = row->result->step_time_s * scale;
  if (!row->result->feasible) row->why = g_strdup_printf("does not fit: %s", row->result->why_infeasible);
  return TRUE;
}

/* The winner of a request; NULL and *error, or NULL and *why when nothing fits. */
static MsScenario *winner(const MsJson *doc, const MsWhatifOptions *options, char **why, GError **error) {
  g_autoptr(MsRequest) request = ms_request_from_doc(doc, error);
  if (!request) return NULL;
  MsPlanOptions plan_options;
  ms_plan_options_init(&plan_options);
  plan_options.top = 1;
  plan_options.threads = options->threads;
  plan_options.progress = options->progress;
  g_autoptr(MsPlan) plan = ms_plan(request, &plan_options, error);
  if (!plan) return NULL;
  if (plan->interrupted) { /* another layout may win */
    return ms_error(error, MS_ERROR_NOTHING, "%s before the layout was found", ms_interrupt_reason()), NULL;
  }
  if (plan->n_best > 0) return ms_scenario_copy(plan->best[0].scenario, FALSE);
  *why = g_strdup_printf("no layout is feasible; of %" G_GUINT64_FORMAT " most fail by %s", plan->searched,
                         plan->n_refusals > 0 ? plan->refusals[0].name : "nothing");
  return NULL;
}

static void refuse(MsWhatifRow *row, const MsJson *base, GError *error) {
  row->why = g_strdup(ms_error_text(error->message, ms_json_filename(base)));
  g_error_free(error);
}

/* --- points: scenarios side by side, requests one after another ------------------------------------------------ */
static void job_run(gpointer item, gconstpointer data) {
  (void)data;
  Job *job = item;
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_whatif_apply(job->whatif, job->base, job->index);
  job->row->scenario = ms_scenario_from_doc_mixed(doc, &error);
  if (!job->row->scenario) {
    ms_whatif_blame(job->whatif, job->base, FALSE, job->index, error, &job->row->why, &job->error);
    return;
  }
  if (!predict(job->whatif, job->row, &error)) refuse(job->row, job->base, error);
}

static void job_plan(Job *job, const MsWhatifOptions *options) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_whatif_apply(job->whatif, job->base, job->index);
  if (!(job->row->scenario = winner(doc, options, &job->row->why, &error))) {
    job->job.done = !g_error_matches(error, MS_ERROR, MS_ERROR_NOTHING);
    if (!job->job.done) {
      g_error_free(error);
      return;
    }
    g_autoptr(MsRequest) request = error ? ms_request_from_doc(doc, NULL) : NULL;
    if (request) refuse(job->row, job->base, error);
    else if (error) ms_whatif_blame(job->whatif, job->base, TRUE, job->index, error, &job->row->why, &job->error);
    return;
  }
  if (!predict(job->whatif, job->row, &error)) refuse(job->row, job->base, error);
}

/* The first point that is wrong, in the order of the file. */
static gboolean first_error(GArray *jobs, GError **error) {
  for (guint i = 0; i < jobs->len; i++) {
    Job *job = &g_array_index(jobs, Job, i);
    if (!job->error) continue;
    g_propagate_error(error, g_steal_pointer(&job->error));
    return FALSE;
  }
  return TRUE;
}

static void job_clear(gpointer data) {
  Job *job = data;
  g_clear_error(&job->error);
}

static gboolean run_points(MsWhatifRun *run, const MsJson *base, const MsWhatifOptions *options, GError **error) {
  const MsWhatif *w = run->whatif;
  g_autoptr(GArray) jobs = g_array_new(FALSE, TRUE, sizeof(Job));
  g_array_set_clear_func(jobs, job_clear);
  run->n = ms_whatif_points(w);
  run->row = g_new0(MsWhatifRow, run->n);
  for (int i = 0; i < run->n; i++) {
    run->row[i].label = ms_whatif_label(w, i);
    run->row[i].value_s = NAN;
    Job job = {.job = {run->row[i].label}, .whatif = w, .base = base, .index = i, .row = &run->row[i]};
    g_array_append_val(jobs, job);
  }
  if (w->plan == MS_WHATIF_PLAN_POINTS) {
    run->extent = (MsExtent){0, jobs->len, "points"};
    for (guint i = 0; i < jobs->len && !ms_interrupted(); i++) {
      Job *job = &g_array_index(jobs, Job, i);
      job->job.done = TRUE;
      job_plan(job, options);
      run->extent.done += job->job.done;
    }
  } else {
    const MsJobsOptions shift = {"whatif", "points", options->threads, options->progress};
    if (!ms_jobs_run(jobs, job_run, NULL, &shift, &run->extent, error)) return FALSE;
  }
  for (guint i = 0; i < jobs->len; i++) run->row[i].done = g_array_index(jobs, Job, i).job.done;
  return first_error(jobs, error);
}

/* --- the study ------------------------------------------------------------------------------------------------- */
static MsJson *doc_of(const MsScenario *scenario, const char *filename) {
  g_autoptr(JsonNode) node = ms_scenario_node(scenario);
  return ms_json_doc(node, filename);
}

static gboolean run_base(MsWhatifRun *run, const MsWhatifOptions *options, GError **error) {
  const MsWhatif *w = run->whatif;
  char *why = NULL;
  run->base.label = g_strdup("base");
  run->base.done = TRUE;
  run->base.scenario = w->plan == MS_WHATIF_PLAN_NONE ? ms_scenario_from_doc_mixed(w->base, error)
                                                      : winner(w->base, options, &why, error);
  if (why) ms_json_error(w->source, "base", error, "%s", why);
  g_free(why);
  return run->base.scenario && predict(w, &run->base, error);
}

MsWhatifRun *ms_whatif_run(MsWhatif *whatif, const MsWhatifOptions *options, GError **error) {
  MsWhatifRun *run = g_new0(MsWhatifRun, 1);
  run->whatif = whatif;
  gboolean ok = run_base(run, options, error);
  if (ok) {
    g_autoptr(MsJson) fixed =
        whatif->plan == MS_WHATIF_PLAN_BASE ? doc_of(run->base.scenario, ms_json_filename(whatif->base)) : NULL;
    ok = run_points(run, fixed ? fixed : whatif->base, options, error);
  }
  if (!ok) g_clear_pointer(&run, ms_whatif_run_free);
  return run;
}

void ms_whatif_run_free(MsWhatifRun *run) {
  if (!run) return;
  row_clear(&run->base);
  for (int i = 0; i < run->n; i++) row_clear(&run->row[i]);
  g_free(run->row);
  ms_whatif_free(run->whatif);
  g_free(run);
}
