#include "api/library.h"
#include "api/moesim.h"

#include <gsl/gsl_errno.h>
#include <math.h>

#include "base/err.h"
#include "base/library.h"
#include "report/report.h"
#include "study/parts.h"
#include "study/ask.h"

/* The opaque types are the program's own: a scenario, a result, a plan with its request. */
struct moesim_plan {
  MsRequest *request;
  MsPlan *plan;
  MsPlanOptions options;
};

/* Every run takes half a megabyte and gives it back. glibc gives the kernel what is free above 128 kB until it has seen
 * a larger block come and go; from then on twice that block. The caller's own settings (mallopt) stand. */
static void keep_memory(void) { g_free(g_malloc(4 << 20)); }

static locale_t with_points(void) { return newlocale(LC_NUMERIC_MASK, "C", duplocale(LC_GLOBAL_LOCALE)); }

MsApiCall ms_api_start(void) {
  static gsize started;
  static locale_t points;
  if (g_once_init_enter(&started)) {
    gsl_set_error_handler_off(); /* its default aborts; every status is checked */
    keep_memory();
    points = with_points();
    g_once_init_leave(&started, 1);
  }
  return uselocale(points);
}

void ms_api_end(MsApiCall call) { uselocale(call); }

GError *ms_api_missing(const char *what) { return g_error_new(MS_ERROR, MS_ERROR_USAGE, "%s is NULL", what); }

/* Always NULL, so that callers can return it. Takes `reason`. */
static void *fail(char **error, GError *reason) {
  if (error) *error = g_strdup(reason ? reason->message : "out of range");
  g_clear_error(&reason);
  return NULL;
}

const char *moesim_version(void) { return MS_VERSION; }
void moesim_free(void *text) { g_free(text); }
void moesim_set_data(const char *folder) { ms_data_dir_set(folder); }

static const MsScenario *scenario_of(const moesim_scenario *s) { return (const MsScenario *)s; }

static moesim_scenario *scenario_from(MsJson *doc, GError *reason, char **error) {
  MsScenario *scenario = doc ? ms_scenario_from_doc_mixed(doc, &reason) : NULL;
  ms_json_free(doc);
  return scenario ? (moesim_scenario *)scenario : fail(error, reason);
}

moesim_scenario *moesim_scenario_load(const char *file, char **error) {
  if (!file) return fail(error, ms_api_missing("file"));
  MS_API_CALL;
  GError *reason = NULL;
  MsJson *doc = ms_json_load(file, &reason);
  return scenario_from(doc, reason, error);
}

moesim_scenario *moesim_scenario_parse(const char *json, const char *name, char **error) {
  if (!json) return fail(error, ms_api_missing("json"));
  MS_API_CALL;
  GError *reason = NULL;
  MsJson *doc = ms_json_parse(json, -1, name ? name : "json", &reason);
  return scenario_from(doc, reason, error);
}

void moesim_scenario_free(moesim_scenario *scenario) { ms_scenario_free((MsScenario *)scenario); }

gboolean ms_api_has_fidelity(moesim_fidelity fidelity, GError **error) {
  return (fidelity >= MOESIM_BOUND && fidelity <= MOESIM_FULL) ||
         ms_usage_error(error, "fidelity %d: give MOESIM_BOUND, MOESIM_FAST or MOESIM_FULL", (int)fidelity);
}

moesim_result *moesim_run(const moesim_scenario *scenario, moesim_fidelity fidelity, char **error) {
  if (!scenario) return fail(error, ms_api_missing("scenario"));
  MS_API_CALL;
  GError *reason = NULL;
  if (!ms_api_has_fidelity(fidelity, &reason)) return fail(error, reason);
  MsResult *result = ms_simulate(scenario_of(scenario), (MsFidelity)fidelity, NULL, &reason);
  return result ? (moesim_result *)result : fail(error, reason);
}

void moesim_result_free(moesim_result *result) { ms_result_free((MsResult *)result); }

/* One figure of a run, by its key in docs/json.md. */
static MsFigureValue figure(const moesim_result *result, const char *key) {
  MsFigureValue value = {NAN, NULL};
  if (result && key) ms_figures_get(&ms_run_figures, result, key, &value);
  return value;
}

double moesim_result_get(const moesim_result *result, const char *key) { return figure(result, key).number; }
const char *moesim_result_get_text(const moesim_result *result, const char *key) { return figure(result, key).text; }
int moesim_result_feasible(const moesim_result *result) {
  return result ? moesim_result_get(result, "feasible") > 0 : -1;
}
const char *moesim_result_why_infeasible(const moesim_result *result) {
  return moesim_result_get_text(result, "why_infeasible");
}
const char *moesim_result_bottleneck(const moesim_result *result) {
  return moesim_result_get_text(result, "bottleneck");
}
double moesim_result_step_time_s(const moesim_result *result) { return moesim_result_get(result, "step_time_s"); }
double moesim_result_step_time_band(const moesim_result *result) { return moesim_result_get(result, "error_band"); }
double moesim_result_tokens_per_s_per_gpu(const moesim_result *result) {
  return moesim_result_get(result, "tokens_per_s_per_gpu");
}
double moesim_result_tflops_per_gpu(const moesim_result *result) { return moesim_result_get(result, "tflops_per_gpu"); }
double moesim_result_mfu(const moesim_result *result) { return moesim_result_get(result, "mfu"); }
double moesim_result_peak_memory_B(const moesim_result *result) {
  return result ? ms_device_B((const MsResult *)result) : NAN;
}
double moesim_result_memory_capacity_B(const moesim_result *result) {
  return moesim_result_get(result, "memory.capacity_B");
}
char *moesim_result_json(const moesim_result *result) {
  MS_API_CALL;
  return result ? ms_figures_json(&ms_run_figures, result) : NULL;
}

char *moesim_request_json(const char *model, const char *hardware, const char *gpus, const char *precision,
                          int seq_length, int global_batch_size, char **error) {
  MS_API_CALL;
  GError *reason = NULL;
  MsAsk ask = {.model = model,
               .hardware = hardware,
               .gpus = gpus,
               .precision = precision,
               .seq_length = seq_length ? seq_length : MS_ASK_UNSET,
               .global_batch_size = global_batch_size ? global_batch_size : MS_ASK_UNSET};
  char *text = ms_ask_request(&ask, FALSE, &reason);
  return text ? text : fail(error, reason);
}

static moesim_plan *plan_from(MsJson *doc, GError *reason, int top, int threads, char **error) {
  if (doc && (top < 0 || threads < 0))
    reason = g_error_new(MS_ERROR, MS_ERROR_USAGE, "top %d, threads %d: give 0 or more", top, threads);
  MsRequest *request = doc && !reason ? ms_request_from_doc_mixed(doc, &reason) : NULL;
  ms_json_free(doc);
  if (!request) return fail(error, reason);
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.threads = threads;
  if (request->top > 0) options.top = request->top;
  if (top > 0) options.top = top;
  moesim_plan *plan = g_new0(moesim_plan, 1);
  *plan = (moesim_plan){.request = request, .plan = ms_plan(request, &options, &reason), .options = options};
  if (plan->plan) return plan;
  moesim_plan_free(plan);
  return fail(error, reason);
}

moesim_plan *moesim_plan_load(const char *file, int top, int threads, char **error) {
  if (!file) return fail(error, ms_api_missing("file"));
  MS_API_CALL;
  GError *reason = NULL;
  MsJson *doc = ms_json_load(file, &reason);
  return plan_from(doc, reason, top, threads, error);
}

moesim_plan *moesim_plan_parse(const char *json, const char *name, int top, int threads, char **error) {
  if (!json) return fail(error, ms_api_missing("json"));
  MS_API_CALL;
  GError *reason = NULL;
  MsJson *doc = ms_json_parse(json, -1, name ? name : "json", &reason);
  return plan_from(doc, reason, top, threads, error);
}

void moesim_plan_free(moesim_plan *plan) {
  if (!plan) return;
  if (plan->plan) ms_plan_free(plan->plan);
  ms_request_free(plan->request);
  g_free(plan);
}

static const MsPlanEntry *entry(const moesim_plan *plan, int i) {
  return plan && i >= 0 && i < plan->plan->n_best ? &plan->plan->best[i] : NULL;
}

int moesim_plan_count(const moesim_plan *plan) { return plan ? plan->plan->n_best : -1; }

const moesim_result *moesim_plan_result(const moesim_plan *plan, int i) {
  const MsPlanEntry *e = entry(plan, i);
  return e ? (const moesim_result *)e->result : NULL;
}

char *moesim_plan_scenario_json(const moesim_plan *plan, int i) {
  const MsPlanEntry *e = entry(plan, i);
  return e ? ms_scenario_text(e->scenario, 2) : NULL;
}

char *moesim_plan_json(const moesim_plan *plan) {
  if (!plan) return NULL;
  MS_API_CALL;
  MsPlanOptions options = plan->options;
  g_auto(MsPlanExtras) extras = {0};
  ms_plan_extras(plan->request, plan->plan, &options, &(MsExtrasAsked){0}, &extras, NULL);
  return ms_report_plan_json(plan->request, plan->plan, &extras, 0);
}
