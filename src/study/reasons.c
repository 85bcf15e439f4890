#include "study/reasons.h"

#include "base/err.h"

static gboolean explain_plan(MsReasons *r, const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                             GError **error) {
  const MsPlanEntry *best = plan->best;
  if (plan->n_best == 0) return TRUE;
  if (plan->n_best > 1) r->runner_up = ms_compare(best[0].scenario, best[0].result, best[1].scenario, best[1].result);
  r->sensitivities = ms_sensitivities(request, plan, options, error);
  return r->sensitivities != NULL;
}

static gboolean best_of_named(MsReasons *r, const MsPlanOptions *options, GError **error) {
  MsPlanOptions one = *options;
  one.top = 1;
  r->named_plan = ms_plan(r->named_request, &one, error);
  if (!r->named_plan) return FALSE;
  if (r->named_plan->interrupted) return ms_input_error(error, r->named_request->base->file, 0, "", "interrupted");
  if (r->named_plan->n_best == 0)
    return ms_input_error(error, r->named_request->base->file, 0, "",
                          "no layout of it fits, there is nothing to compare");
  r->named = r->named_plan->best[0].scenario;
  return TRUE;
}

static gboolean compare_named(MsReasons *r, const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                              const char *file, GError **error) {
  r->named_request = ms_request_load(file, error);
  const MsScenario *task =
      plan->n_best > 0 ? plan->best[0].scenario : request->base; /* the number of GPUs may have been searched */
  if (!r->named_request || !ms_same_task(task, r->named_request->base, error)) return FALSE;
  r->named_request->max_memory_fraction = request->max_memory_fraction;
  if (r->named_request->n_open > 0) {
    if (!best_of_named(r, options, error)) return FALSE;
  } else {
    r->named = r->named_request->base;
    if (!(r->named_result = ms_simulate(r->named, MS_FIDELITY_FULL, NULL, error))) return FALSE;
  }
  const MsPlanEntry *best = plan->best;
  if (plan->n_best > 0) r->compared = ms_compare(best->scenario, best->result, r->named, ms_reasons_named(r));
  return TRUE;
}

const MsResult *ms_reasons_named(const MsReasons *r) {
  return r->named_plan ? r->named_plan->best[0].result : r->named_result;
}

MsReasons *ms_reasons_new(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options, gboolean explain,
                          const char *compare, GError **error) {
  g_autoptr(MsReasons) r = g_new0(MsReasons, 1);
  if (compare && !compare_named(r, request, plan, options, compare, error)) return NULL;
  if (explain && !explain_plan(r, request, plan, options, error)) return NULL;
  return g_steal_pointer(&r);
}

void ms_reasons_free(MsReasons *r) {
  if (!r) return;
  ms_sensitivities_free(r->sensitivities);
  ms_comparison_free(r->runner_up);
  ms_comparison_free(r->compared);
  ms_result_free(r->named_result);
  ms_plan_free(r->named_plan);
  ms_request_free(r->named_request);
  g_free(r);
}
