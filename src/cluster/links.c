/* src/cluster/links.c - bytes of a step, laid on the links that the flows of their collectives pass. */
#include "cluster/links.h"

#include "base/order.h"
typedef struct {
  double *stage_B[MS_N_GROUPS][MS_N_PATTERNS]; /* [pp] that a rank sends over
                                                  the network, NULL: none */
} Sent;

static MsGroupKind kind_of(const MsStepTask *t) {
  return t->role == MS_ROLE_PASSES ? MS_GROUP_PP : t->role == MS_ROLE_MEETS ? (MsGroupKind)t->group : MS_GROUP_NONE;
}

static void add_up(Sent *sent, const MsScenario *s, const MsStepPlan *plan) {
  const MsDetail *d = plan->detail;
  g_autofree double *row_B = g_new(double, MAX(d->n_tags, 1));
  for (guint32 tag = 0; tag < d->n_tags; tag++) row_B[tag] = -1;
  for (guint32 i = 0; i < plan->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    MsGroupKind kind = kind_of(&plan->task[i]);
    if (task->use != MS_USE_LINK1 || kind == MS_GROUP_NONE) continue;
    double **stage_B = &sent->stage_B[kind][plan->task[i].pattern], level_B[3];
    if (!*stage_B) *stage_B = g_new0(double, d->layout->pp);
    if (row_B[task->tag] < 0) {
      ms_cost_level_B(s, d->layout, d->tag_op[task->tag], level_B);
      row_B[task->tag] = level_B[1];
    }
    /* messages of a pair of stages: half of them go back, over the same links the other way */
    int pair = kind == MS_GROUP_PP ? ms_layout_pair(d->layout, (int)task->device, plan->task[i].to) : -1;
    (*stage_B)[pair >= 0 ? pair : (int)task->device] += row_B[task->tag] * (pair >= 0 ? 0.5 : 1);
  }
}

MS_ORDER(by_load, MsLinkLoad, MS_MORE(x->load, y->load), g_strcmp0(x->name, y->name))

static GArray *sorted(const MsFabricGraph *g, const double *carried_B, double step_s, guint most) {
  GArray *links = g_array_new(FALSE, TRUE, sizeof(MsLinkLoad));
  for (guint32 l = 0; l < g->n_links; l++) {
    if (ms_fabric_is_port(g, l) || !(carried_B[l] > 0)) continue;
    MsLinkLoad x = {.link = l,
                    .tier = ms_fabric_link_tier(g, l),
                    .bytes_B = carried_B[l],
                    .load = carried_B[l] / (g->Bps[l] * step_s)};
    ms_fabric_link_name(g, l, x.name);
    g_array_append_val(links, x);
  }
  g_array_sort(links, by_load);
  if (links->len > most) g_array_set_size(links, most);
  return links;
}

gboolean ms_link_loads(const MsScenario *s, const MsStepPlan *plan, double step_s, guint most, GArray **links,
                       GError **error) {
  const MsLayout *l = plan->detail->layout;
  *links = NULL;
  if (s->hardware->fabric.kind == MS_FABRIC_NONE) return TRUE;
  g_autoptr(MsFabricGraph) g = ms_fabric_graph_new(s, error);
  if (!g) return FALSE;
  Sent sent = {{{NULL}}};
  add_up(&sent, s, plan);
  gboolean ok = TRUE;
  g_autofree double *carried_B = g_new0(double, g->n_links);
  for (int kind = 0; kind < MS_N_GROUPS; kind++)
    for (int pattern = 0; pattern < MS_N_PATTERNS; pattern++) {
      double *stage_B = sent.stage_B[kind][pattern];
      ok = ok && (!stage_B || ms_pattern_carry(g, l, (MsGroupKind)kind, (MsPattern)pattern, stage_B, carried_B, error));
      g_free(stage_B);
    }
  if (ok) *links = sorted(g, carried_B, step_s, most);
  return ok;
}
