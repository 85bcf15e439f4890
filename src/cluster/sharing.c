/* src/cluster/sharing.c - what each kind of collective puts on each link, and how fast kinds run beside each other. */
#include "cluster/sharing.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

/* --- what a kind puts on the links --- */

static gboolean load_links(MsLinkSharing *x, int c, const MsFabricGraph *g, const MsLayout *l, GError **error) {
  double *load = x->load_Bps[c] = g_new0(double, g->n_links);
  g_autoptr(MsFlows) f = ms_pattern_flows(g, l, (MsGroupKind)x->kind[c].group, (MsPattern)x->kind[c].pattern, error);
  if (!f) return FALSE;
  for (guint32 i = 0; i < f->n; i++)
    for (guint32 k = f->first[i]; k < f->first[i + 1]; k++) load[f->link[k]] += f->bytes[i];
  double most = 0; /* of what a NIC moves: that is speed 1 */
  for (guint32 k = g->first_nic; k < g->first_leaf; k++) most = MAX(most, load[k] / g->nic_Bps);
  for (guint32 k = 0; most > 0 && k < g->n_links; k++) load[k] /= most;
  x->alone[c] = INFINITY;
  for (guint32 k = 0; k < g->n_links; k++)
    if (load[k] > 0) x->alone[c] = MIN(x->alone[c], g->Bps[k] / load[k]);
  return TRUE;
}

/* Its number, -1 and *error when there are too many. */
static int kind_of(MsLinkSharing *x, const MsStepTask *t, MsGroupKind group, const MsFabricGraph *g,
                   const MsScenario *s, const MsLayout *l, GError **error) {
  for (int c = 0; c < x->n; c++)
    if (x->kind[c].group == group && x->kind[c].pattern == t->pattern) return c;
  if (x->n == MS_SHARING_CLASSES) {
    ms_input_error(error, s->file, 0, "hardware.fabric", "more than %d kinds of collectives meet on it",
                   MS_SHARING_CLASSES);
    return -1;
  }
  x->kind[x->n].group = (guint8)group, x->kind[x->n].pattern = t->pattern;
  return load_links(x, x->n++, g, l, error) ? x->n - 1 : -1;
}

gboolean ms_link_sharing_new(const MsScenario *s, const MsDetail *d, MsLinkSharing *x, guint8 *of, GError **error) {
  *x = (MsLinkSharing){0};
  g_autoptr(MsFabricGraph) g = ms_fabric_graph_new(s, error);
  if (!g) return FALSE;
  g_autoptr(MsStepPlan) plan = ms_step_plan_new(d, 0);
  x->n_links = g->n_links, x->Bps = g_memdup2(g->Bps, sizeof *g->Bps * g->n_links);
  for (guint32 i = 0; i < plan->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    const MsOp *op = d->tag_op[task->tag];
    of[i] = MS_SHARING_NONE;
    if (task->use != MS_USE_LINK1 || !op || op->group == MS_GROUP_NONE || d->layout->group[op->group].domains <= 1)
      continue;
    int c = kind_of(x, &plan->task[i], (MsGroupKind)op->group, g, s, d->layout, error);
    if (c < 0) return FALSE;
    if (x->alone[c] > 0 && isfinite(x->alone[c])) of[i] = (guint8)c;
  }
  return TRUE;
}

void ms_link_sharing_clear(MsLinkSharing *x) {
  for (int c = 0; c < x->n; c++) g_free(x->load_Bps[c]);
  g_free(x->Bps);
  *x = (MsLinkSharing){0};
}

/* --- speeds --- */

typedef struct {
  const MsLinkSharing *x;
  const guint8 *running;
  double *speed;
  gboolean grows[MS_SHARING_CLASSES];
} Fill;

/* What the kinds that grow would need of a link for each unit of speed, and what the others leave of it. */
static double need_of(const Fill *f, guint32 link, double *left) {
  double need = 0;
  *left = f->x->Bps[link];
  for (int c = 0; c < f->x->n; c++) {
    double load = f->running[c] * f->x->load_Bps[c][link];
    if (f->grows[c]) need += load;
    else *left -= load * f->speed[c];
  }
  return need;
}

static double full_at(const Fill *f) {
  double at = INFINITY, left;
  for (guint32 l = 0; l < f->x->n_links; l++) {
    double need = need_of(f, l, &left);
    if (need > 0) at = MIN(at, MAX(left, 0) / need);
  }
  return at;
}

/* Kinds on links that are full at this speed stay. */
static void stay(Fill *f, double at) {
  const double near = 1e-12;
  gboolean stays[MS_SHARING_CLASSES] = {FALSE};
  double left;
  for (guint32 l = 0; l < f->x->n_links; l++) {
    double need = need_of(f, l, &left);
    if (!(need > 0) || MAX(left, 0) / need > at * (1 + near)) continue;
    for (int c = 0; c < f->x->n; c++) stays[c] |= f->grows[c] && f->x->load_Bps[c][l] > 0;
  }
  for (int c = 0; c < f->x->n; c++)
    if (stays[c]) f->grows[c] = FALSE, f->speed[c] = at;
}

void ms_link_sharing_speeds(const MsLinkSharing *x, const guint8 *running, double *speed) {
  Fill f = {.x = x, .running = running, .speed = speed};
  int growing = 0;
  for (int c = 0; c < x->n; c++) {
    speed[c] = 0, f.grows[c] = running[c] > 0 && x->alone[c] > 0 && isfinite(x->alone[c]);
    growing += f.grows[c];
  }
  while (growing > 0) {
    stay(&f, full_at(&f));
    growing = 0;
    for (int c = 0; c < x->n; c++) growing += f.grows[c];
  }
}

static void rates(gconstpointer data, const guint8 *running, double *rate) {
  const MsLinkSharing *x = data;
  double speed[MS_SHARING_CLASSES];
  ms_link_sharing_speeds(x, running, speed);
  for (int c = 0; c < MS_SHARING_CLASSES; c++) rate[c] = c < x->n && running[c] > 0 ? speed[c] / x->alone[c] : 1;
}

MsTrajectory *ms_shared_step(const MsScenario *s, const MsDetail *d, GError **error) {
  g_auto(MsLinkSharing) x = {0};
  g_autofree guint8 *of = g_new(guint8, MAX(ms_graph_count(d->graph), 1));
  if (!ms_link_sharing_new(s, d, &x, of, error)) return NULL;
  return ms_engine_events_shared(d->graph, &(MsSharing){of, rates, &x});
}
