/* src/fabric/meeting.c - what each kind of collective puts on each link, and how fast kinds run beside each other. */
#include "fabric/meeting.h"

#include <math.h>
#include <string.h>

/* --- what a kind puts on the links --- */

static gboolean load_links(MsMeeting *x, int c, const MsFabricGraph *g, const MsLayout *l, GError **error) {
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

/* --- links that are alike --- */

static gint by_loads(gconstpointer a, gconstpointer b, gpointer data) {
  const MsMeeting *x = data;
  guint32 i = *(const guint32 *)a, k = *(const guint32 *)b;
  if (x->Bps[i] != x->Bps[k]) return x->Bps[i] < x->Bps[k] ? -1 : 1;
  for (int c = 0; c < x->n; c++)
    if (x->load_Bps[c][i] != x->load_Bps[c][k]) return x->load_Bps[c][i] < x->load_Bps[c][k] ? -1 : 1;
  return 0;
}

static gboolean is_loaded(const MsMeeting *x, guint32 link) {
  for (int c = 0; c < x->n; c++)
    if (x->load_Bps[c][link] > 0) return TRUE;
  return FALSE;
}

static void keep(double **of, const guint32 *link, guint32 n) {
  double *kept = g_new(double, MAX(n, 1));
  for (guint32 i = 0; i < n; i++) kept[i] = (*of)[link[i]];
  g_free(*of);
  *of = kept;
}

static void take_together(MsMeeting *x) {
  g_autofree guint32 *link = g_new(guint32, MAX(x->n_links, 1));
  guint32 n = 0, kept = 0;
  for (guint32 i = 0; i < x->n_links; i++)
    if (is_loaded(x, i)) link[n++] = i;
  g_qsort_with_data(link, (gint)n, sizeof *link, by_loads, x);
  for (guint32 i = 0; i < n; i++)
    if (kept == 0 || by_loads(&link[kept - 1], &link[i], x) != 0) link[kept++] = link[i];
  keep(&x->Bps, link, kept);
  for (int c = 0; c < x->n; c++) keep(&x->load_Bps[c], link, kept);
  x->n_links = kept;
}

MsMeeting *ms_meeting_new(const MsFabricGraph *g, const MsLayout *l, const MsMeetingKind *kind, int n, GError **error) {
  g_autoptr(MsMeeting) x = g_new0(MsMeeting, 1);
  x->n = n, x->n_links = g->n_links, x->Bps = g_memdup2(g->Bps, sizeof *g->Bps * g->n_links);
  memcpy(x->kind, kind, sizeof *kind * (gsize)n);
  for (int c = 0; c < n; c++)
    if (!load_links(x, c, g, l, error)) return NULL;
  take_together(x);
  return g_steal_pointer(&x);
}

MsMeeting *ms_meeting_of_nic(const MsMeetingKind *kind, int n) {
  MsMeeting *x = g_new0(MsMeeting, 1);
  x->n = n, x->n_links = 1, x->Bps = g_new(double, 1), x->Bps[0] = 1;
  memcpy(x->kind, kind, sizeof *kind * (gsize)n);
  for (int c = 0; c < n; c++) x->load_Bps[c] = g_new(double, 1), x->load_Bps[c][0] = x->alone[c] = 1;
  return x;
}

void ms_meeting_free(MsMeeting *x) {
  if (!x) return;
  for (int c = 0; c < x->n; c++) g_free(x->load_Bps[c]);
  g_free(x->Bps);
  g_free(x);
}

/* --- speeds --- */

typedef struct {
  const MsMeeting *x;
  const guint8 *running;
  double *speed;
  gboolean grows[MS_MEETING_KINDS];
} Fill;

/* What the kinds that grow would need of a link for each part, and what the others leave of it. */
static double need_of(const Fill *f, guint32 link, double *left) {
  double need = 0;
  *left = f->x->Bps[link];
  for (int c = 0; c < f->x->n; c++) {
    double load = f->running[c] * f->x->load_Bps[c][link];
    if (f->grows[c]) need += load * f->x->kind[c].parts;
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

/* Kinds on links that are full at this speed of a part stay. */
static void stay(Fill *f, double at) {
  const double near = 1e-12;
  gboolean stays[MS_MEETING_KINDS] = {FALSE};
  double left;
  for (guint32 l = 0; l < f->x->n_links; l++) {
    double need = need_of(f, l, &left);
    if (!(need > 0) || MAX(left, 0) / need > at * (1 + near)) continue;
    for (int c = 0; c < f->x->n; c++) stays[c] |= f->grows[c] && f->x->load_Bps[c][l] > 0;
  }
  for (int c = 0; c < f->x->n; c++)
    if (stays[c]) f->grows[c] = FALSE, f->speed[c] = at * f->x->kind[c].parts;
}

void ms_meeting_speeds(const MsMeeting *x, const guint8 *running, double *speed) {
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

void ms_meeting_rates(const MsMeeting *x, const guint8 *running, double *rate) {
  double speed[MS_MEETING_KINDS];
  ms_meeting_speeds(x, running, speed);
  for (int c = 0; c < MS_MEETING_KINDS; c++)
    rate[c] = c < x->n && running[c] > 0 && speed[c] > 0 ? MIN(speed[c] / x->alone[c], 1) : 1;
}
