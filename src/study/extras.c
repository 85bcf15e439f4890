#include "study/extras.h"

#include "base/io.h"

static gboolean add(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                    const MsExtrasAsked *asked, MsPlanExtras *e, GError **error) {
  gboolean any = plan->n_best > 0;
  const MsDisturbances *under = asked->under ? asked->under : request->under;
  e->reasons = ms_reasons_new(request, plan, options, asked->explain && !plan->interrupted, asked->compare, error);
  if (!e->reasons) return FALSE;
  if (under && any && !(e->robust = ms_robust(plan, options->top, under, options, error))) return FALSE;
  if (plan->interrupted) return TRUE;
  if (!any) e->ways = ms_ways_new(request, options);
  if (!any || asked->no_picks) return TRUE;
  e->picks = ms_picks_new(request, plan, e->robust, options, error);
  return e->picks != NULL;
}

gboolean ms_plan_extras(const MsRequest *request, const MsPlan *plan, const MsPlanOptions *options,
                        const MsExtrasAsked *asked, MsPlanExtras *extras, GError **error) {
  *extras = (MsPlanExtras){0};
  if (add(request, plan, options, asked, extras, error)) return TRUE;
  if (!ms_interrupted()) return ms_plan_extras_clear(extras), FALSE;
  g_clear_error(error);
  return TRUE;
}

void ms_plan_extras_clear(MsPlanExtras *e) {
  g_clear_pointer(&e->picks, ms_picks_free);
  g_clear_pointer(&e->ways, ms_ways_free);
  g_clear_pointer(&e->robust, ms_robust_free);
  g_clear_pointer(&e->reasons, ms_reasons_free);
}
