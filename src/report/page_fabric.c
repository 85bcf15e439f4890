/* src/report/page_fabric.c - the fabric of a run, and how full its links are in the step. */
#include "report/page.h"
#include "base/order.h"

enum { MOST_LINKS = 16384 }; /* that the page draws: more would be most of its size */

MS_ORDER(by_place, MsLinkLoad, MS_LESS(x->link, y->link), 0)

void ms_page_find_fabric(MsPageRun *run) {
  const MsScenario *s = run->scenario;
  if (s->hardware->fabric.kind == MS_FABRIC_NONE || s->pools.n > 0) return;
  double step_s = run->result->step_time_s;
  g_autoptr(MsStepPlan) plan = ms_step_plan_new(run->detail, step_s);
  run->fabric = ms_fabric_view_new(s, NULL);
  if (run->fabric && ms_link_loads(s, plan, step_s, MOST_LINKS, &run->links, NULL)) g_array_sort(run->links, by_place);
}

void ms_page_clear_fabric(MsPageRun *run) {
  ms_fabric_view_free(run->fabric);
  if (run->links) g_array_free(run->links, TRUE);
}

const MsFigures ms_page_fabric_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_OBJECT_AT("fabric", MsPageRun, fabric, &ms_fabric_figures, .only = "machines with a fabric"),
    MS_FIGURE_GARRAY("links", MsPageRun, links, MsLinkLoad, &ms_link_figures, .only = ""));
