#include "study/extras.h"

#include <string.h>

#include "base/io.h"
#include "study/knobs.h"

/* {path: value} of what differs from `first`; names and files do not count. (transfer full) */
static char *differences(GHashTable *first, const MsScenario *s) {
  g_autoptr(GHashTable) own = ms_knobs_of_scenario(s);
  g_autoptr(GList) paths = g_list_sort(g_hash_table_get_keys(own), (GCompareFunc)strcmp);
  MsJsonOut *out = ms_json_out_new(0);
  ms_json_out_object(out, NULL);
  for (const GList *at = paths; at; at = at->next) {
    const char *value = g_hash_table_lookup(own, at->data);
    if (g_strcmp0(value, g_hash_table_lookup(first, at->data)) == 0) continue;
    g_autoptr(JsonNode) node = json_from_string(value, NULL);
    ms_json_out_node(out, at->data, node);
  }
  ms_json_out_end(out);
  return ms_json_out_take(out);
}

static gboolean add_map(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options, MsPlanExtras *e,
                        GError **error) {
  e->map = ms_layout_map(request, options, MS_MAP_POINTS, error);
  g_autoptr(GHashTable) first = ms_knobs_of_scenario(plan->best[0].scenario);
  for (int i = 0; e->map && i < e->map->n; i++) e->map->point[i].set = differences(first, e->map->point[i].scenario);
  return e->map != NULL;
}

gboolean ms_plan_answers(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras) {
  for (int i = 0; extras->picks && i < extras->picks->n; i++)
    if (!extras->picks->pick[i].budget.late) return TRUE;
  return ms_plan_in_time(request, plan);
}

/* Layouts fit, but nothing starts them: more memory would not help. */
static gboolean nothing_starts(const MsPlan *plan) {
  for (int i = 0; i < plan->n_refusals; i++)
    if (strcmp(plan->refusals[i].name, "not-started") == 0) return plan->n_best == 0;
  return FALSE;
}

/* What would fit; where something does but is late, what would be in time with the goodput of the first. */
static MsWays *ways_out(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options) {
  if (plan->n_best == 0) return ms_ways_new(request, options);
  MsRequest r = *request; /* only read */
  MsBudget b;
  ms_budget_of(request, plan->best[0].scenario, plan->best[0].result, &b);
  r.objective = MS_GOAL_DEADLINE;
  if (b.goodput > 0) r.deadline_s *= b.goodput;
  return ms_ways_new(&r, options);
}

static gboolean add(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                    const MsExtrasAsked *asked, MsPlanExtras *e, GError **error) {
  gboolean any = plan->n_best > 0;
  const MsDisturbances *under = asked->under ? asked->under : request->under;
  e->reasons = ms_reasons_new(request, plan, options, asked->explain && !plan->interrupted, asked->compare, error);
  if (!e->reasons) return FALSE;
  if (under && any && !(e->robust = ms_robust(plan, options->top, under, options, error))) return FALSE;
  if (plan->interrupted) return TRUE;
  if (any && asked->map && !add_map(request, plan, options, e, error)) return FALSE;
  if (any && asked->decide && plan->objective == MS_GOAL_STEP_TIME) e->decision = ms_decide(plan);
  if (any && !asked->no_picks && !(e->picks = ms_picks_new(request, plan, e->reasons, e->robust, options, error)))
    return FALSE;
  gboolean wanted = !any || (!asked->no_picks && !ms_plan_answers(request, plan, e));
  if (wanted && !nothing_starts(plan) && ms_scenario_machines(request->base) == 1)
    e->ways = ways_out(request, plan, options);
  return TRUE;
}

gboolean ms_plan_extras_check(const MsRequest *request, const MsExtrasAsked *asked, GError **error) {
  const char *what = asked->under || request->under ? "a choice under disturbances (--under, plan.under) is"
                     : asked->decide                ? "--decide is"
                     : asked->compare               ? "--compare is"
                                                    : NULL;
  return !what || ms_scenario_refuse_pools(request->base, what, error);
}

gboolean ms_plan_extras(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                        const MsExtrasAsked *asked, MsPlanExtras *extras, GError **error) {
  *extras = (MsPlanExtras){0};
  if (ms_plan_extras_check(request, asked, error) && add(request, plan, options, asked, extras, error)) return TRUE;
  if (!ms_interrupted()) return ms_plan_extras_clear(extras), FALSE;
  g_clear_error(error);
  return TRUE;
}

void ms_plan_extras_clear(MsPlanExtras *e) {
  g_clear_pointer(&e->not_started, g_free);
  g_clear_pointer(&e->decision, ms_decision_free);
  g_clear_pointer(&e->map, ms_layout_map_free);
  g_clear_pointer(&e->picks, ms_picks_free);
  g_clear_pointer(&e->ways, ms_ways_free);
  g_clear_pointer(&e->robust, ms_robust_free);
  g_clear_pointer(&e->reasons, ms_reasons_free);
}
