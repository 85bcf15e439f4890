#include "study/reasons.h"

static gboolean explain_plan(MsReasons *r, const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options, GError **error) {
  const MsPlanEntry *best = plan->best;
  if (plan->n_best == 0) return TRUE;
  if (plan->n_best > 1) r->runner_up = ms_compare(best[0].scenario, best[0].result, best[1].scenario, best[1].result);
  r->sensitivities = ms_sensitivities(request, plan, options, error);
  return r->sensitivities != NULL;
}

static gboolean compare_named(MsReasons *r, const MsRequest *request, const MsPlan *plan, const char *file, GError **error) {
  r->named = ms_scenario_load(file, error);
  if (!r->named || !ms_same_task(request->base, r->named, error)) return FALSE;
  r->named_result = ms_simulate(r->named, MS_FIDELITY_FULL, NULL, error);
  if (!r->named_result) return FALSE;
  if (plan->n_best > 0) r->compared = ms_compare(plan->best[0].scenario, plan->best[0].result, r->named, r->named_result);
  return TRUE;
}

MsReasons *ms_reasons_new(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options, gboolean explain, const char *compare, GError **error) {
  g_autoptr(MsReasons) r = g_new0(MsReasons, 1);
  if (compare && !compare_named(r, request, plan, compare, error)) return NULL;
  if (explain && !explain_plan(r, request, plan, options, error)) return NULL;
  return g_steal_pointer(&r);
}

void ms_reasons_free(MsReasons *r) {
  if (!r) return;
  ms_sensitivities_free(r->sensitivities);
  ms_comparison_free(r->runner_up);
  ms_comparison_free(r->compared);
  ms_result_free(r->named_result);
  ms_scenario_free(r->named);
  g_free(r);
}
