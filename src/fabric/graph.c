/* src/fabric/graph.c - links of a fabric, what is broken of them, and ways between GPUs. */
#include "fabric/internal.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_SWITCH_LINKS 1e8 /* of one tier, before they are counted exactly */

static gboolean refuse(const MsScenario *s, GError **error, const char *key, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
static gboolean refuse(const MsScenario *s, GError **error, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *why = g_strdup_vprintf(format, args), *path = g_strconcat("hardware.fabric.", key, NULL);
  va_end(args);
  return ms_input_error(error, s->file, 0, path, "%s", why);
}

static int or_all(int given, int all) { return given > 0 ? MIN(given, all) : all; }
static int ceil_div(double a, double b) { return (int)MIN(ceil(a / b - 1e-9), G_MAXINT / 2); }

static gboolean adaptive(const MsFabricGraph *g) { return g->fabric->routing == MS_ROUTE_ADAPTIVE; }

/* --- sizes ----------------------------------------------------------------------------------------------------- */

static gboolean size_nics(MsFabricGraph *g, const MsScenario *s, GError **error) {
  const MsFabric *f = g->fabric;
  g->nics = f->nics_per_node > 0 ? f->nics_per_node : g->node_gpus;
  g->rails = f->kind == MS_FABRIC_RAILS ? or_all(f->rails, g->nics) : 1;
  if (g->nics % g->node_gpus && g->node_gpus % g->nics)
    return refuse(s, error, "nics_per_node", "%d NICs for %d GPUs of a node, must be a multiple or a divisor", g->nics,
                  g->node_gpus);
  if (g->nics % g->rails)
    return refuse(s, error, "rails", "%d rails do not divide the %d NICs of a node", g->rails, g->nics);
  g->nic_Bps = s->hardware->nic_Bps * g->node_gpus / g->nics;
  if ((g->pcie_gpus = f->pcie_gpus) > 0 && g->node_gpus % g->pcie_gpus)
    return refuse(s, error, "pcie_gpus", "%d behind a PCIe switch do not divide the %d GPUs of a node", g->pcie_gpus,
                  g->node_gpus);
  g->pcie_switches = g->pcie_gpus > 0 ? g->node_gpus / g->pcie_gpus : 0;
  if (g->pcie_switches > 0 && g->nics % g->pcie_switches && g->pcie_switches % g->nics)
    return refuse(s, error, "pcie_gpus", "%d NICs for %d PCIe switches of a node, must be a multiple or a divisor",
                  g->nics, g->pcie_switches);
  g->pcie_Bps = f->pcie_Bps > 0 ? f->pcie_Bps : s->hardware->host_link_Bps;
  if (g->pcie_switches > 0 && !(g->pcie_Bps > 0))
    return refuse(s, error, "pcie_Bps", "must be given: the machine has no host_link_Bps");
  g->link_Bps = f->link_Bps > 0 ? f->link_Bps : g->nic_Bps;
  g->parts = MAX(1, g->nics / g->node_gpus) * (adaptive(g) ? 1 : f->paths_per_flow);
  return TRUE;
}

static gboolean need_ports(const MsFabricGraph *g, const MsScenario *s, const char *what, double ports,
                           GError **error) {
  int most = g->fabric->switch_ports;
  return most == 0 || ports <= most ||
         refuse(s, error, "switch_ports", "a %s needs %.0f ports, switches have %d", what, ports, most);
}

static gboolean size_spines(MsFabricGraph *g, const MsScenario *s, GError **error) {
  const MsFabric *f = g->fabric;
  int leaves = g->leaves / g->pods, per_spine = g->uplinks / g->spines;
  gboolean dragonfly = f->kind == MS_FABRIC_DRAGONFLY;
  g->spine_uplinks = g->pods == 1           ? 0
                     : f->spine_uplinks > 0 ? f->spine_uplinks
                                            : MAX(1, ceil_div((double)leaves * per_spine, f->core_oversubscription));
  if (dragonfly && g->pods > 1 && (double)g->spines * g->spine_uplinks < g->pods - 1)
    return refuse(s, error, "spine_uplinks", "disconnected: a group has %.0f links to %d others",
                  (double)g->spines * g->spine_uplinks, g->pods - 1);
  return need_ports(g, s, "spine", (double)leaves * per_spine + g->spine_uplinks, error) &&
         (dragonfly || g->pods == 1 || need_ports(g, s, "core switch", g->pods, error));
}

static gboolean size_tree(MsFabricGraph *g, const MsScenario *s, GError **error) {
  const MsFabric *f = g->fabric;
  g->pod_nodes = or_all(f->pod_nodes, g->nodes), g->leaf_nodes = or_all(f->leaf_nodes, g->pod_nodes);
  g->pods = (g->nodes + g->pod_nodes - 1) / g->pod_nodes;
  double leaves = (double)((g->pod_nodes + g->leaf_nodes - 1) / g->leaf_nodes) * g->rails * g->pods;
  double down = (double)g->leaf_nodes * g->nics / g->rails;
  g->uplinks =
      f->leaf_uplinks > 0 ? f->leaf_uplinks : MAX(1, ceil_div(down * g->nic_Bps, f->oversubscription * g->link_Bps));
  gboolean alone = leaves <= 1; /* one leaf has nowhere to go */
  if (alone) g->uplinks = 1;
  g->spines = or_all(f->spines, g->uplinks);
  if (f->spines > g->uplinks && !alone)
    return refuse(s, error, "spines", "disconnected: %d spines for %d uplinks of a leaf", f->spines, g->uplinks);
  if (g->uplinks % g->spines)
    return refuse(s, error, "spines", "%d spines do not divide the %d uplinks of a leaf", g->spines, g->uplinks);
  double links = leaves * g->uplinks * 2 + (double)g->pods * g->spines * f->spine_uplinks * 2;
  if (links > MOST_SWITCH_LINKS || leaves > MS_FABRIC_LINKS)
    return refuse(s, error, "nodes", "%.3g links between switches, at most %d in all", links, MS_FABRIC_LINKS);
  g->leaves = (int)leaves;
  return need_ports(g, s, "leaf", down + (alone ? 0 : g->uplinks), error) && size_spines(g, s, error);
}

static gboolean size_torus(MsFabricGraph *g, const MsScenario *s, GError **error) {
  gint64 nodes = 1;
  for (g->dims = 0; g->dims < MS_TORUS_DIMS && g->fabric->torus[g->dims]; g->dims++) {
    g->torus[g->dims] = g->fabric->torus[g->dims];
    if (nodes <= MS_FABRIC_NODES) nodes *= g->torus[g->dims];
  }
  if (nodes < g->nodes || nodes > MS_FABRIC_NODES)
    return refuse(s, error, "torus", "holds %" G_GINT64_FORMAT " nodes, must hold %d to %d", nodes, g->nodes,
                  MS_FABRIC_NODES);
  g->nodes = (int)nodes;
  if (!(g->fabric->link_Bps > 0)) g->link_Bps = g->nic_Bps * g->nics / (2 * g->dims);
  int farthest = 0;
  for (int d = 0; d < g->dims; d++) farthest += g->torus[d] / 2;
  const int most = MS_FABRIC_PATH_MAX - 2 - 2 * MS_FABRIC_PCIE_MAX;
  return farthest <= most || refuse(s, error, "torus", "nodes up to %d links apart, at most %d", farthest, most);
}

/* Numbers of the links of each tier. */
static gboolean number_links(MsFabricGraph *g, const MsScenario *s, GError **error) {
  double gpus = (double)g->nodes * g->node_gpus, nics = (double)g->nodes * g->nics, leaf = 0, spine = 0, torus = 0;
  double groups = (double)g->pods;
  if (ms_fabric_is_tree(g)) {
    leaf = 2.0 * g->leaves * (adaptive(g) ? 1 : g->uplinks);
    spine = g->pods == 1                             ? 0
            : !adaptive(g)                           ? 2 * groups * g->spines * g->spine_uplinks
            : g->fabric->kind == MS_FABRIC_DRAGONFLY ? groups * groups
                                                     : 2 * groups;
  } else torus = 2.0 * g->nodes * g->dims;
  double pcie = g->pcie_switches > 0 ? 2 * gpus : 0, switches = 2.0 * g->nodes * g->pcie_switches;
  double all = 2 * gpus + 2 * nics + leaf + spine + torus + pcie + switches;
  if (all > MS_FABRIC_LINKS) return refuse(s, error, "nodes", "%.3g links, at most %d", all, MS_FABRIC_LINKS);
  g->first_nic = (guint32)(2 * gpus), g->first_leaf = g->first_nic + (guint32)(2 * nics);
  g->first_spine = g->first_leaf + (guint32)leaf, g->first_torus = g->first_spine + (guint32)spine;
  g->first_pcie = g->first_torus + (guint32)torus, g->first_switch = g->first_pcie + (guint32)pcie;
  g->n_links = g->first_switch + (guint32)switches;
  return TRUE;
}

/* --- rates ----------------------------------------------------------------------------------------------------- */

static int leaves_of_pod(const MsFabricGraph *g) { return g->leaves / g->pods; }

/* The peer of group `a` that its cable `j` leads to. */
static int cable_peer(const MsFabricGraph *g, int a, int j) {
  int t = j % (g->pods - 1);
  return t < a ? t : t + 1;
}

static void rate_trunks(MsFabricGraph *g) {
  int spines = g->pods * g->spines;
  for (int l = 0; l < g->leaves; l++) {
    double sum = 0;
    for (int u = 0; u < g->uplinks; u++) sum += g->leaf_share[(gsize)l * (gsize)g->uplinks + (gsize)u];
    g->Bps[g->first_leaf + 2 * (guint32)l] = g->Bps[g->first_leaf + 2 * (guint32)l + 1] = sum * g->link_Bps;
  }
  if (g->pods == 1) return;
  for (int s = 0; s < spines; s++)
    for (int v = 0; v < g->spine_uplinks; v++) {
      int pod = s / g->spines, j = s % g->spines * g->spine_uplinks + v;
      double Bps = g->spine_share[(gsize)s * (gsize)g->spine_uplinks + (gsize)v] * g->link_Bps;
      if (g->fabric->kind == MS_FABRIC_DRAGONFLY)
        g->Bps[g->first_spine + (guint32)(pod * g->pods + cable_peer(g, pod, j))] += Bps;
      else g->Bps[g->first_spine + 2 * (guint32)pod] += Bps, g->Bps[g->first_spine + 2 * (guint32)pod + 1] += Bps;
    }
}

static void rate_single(MsFabricGraph *g) {
  for (guint32 i = 0; i < g->first_spine - g->first_leaf; i++)
    g->Bps[g->first_leaf + i] = g->leaf_share[i / 2] * g->link_Bps;
  for (guint32 i = 0; i < g->first_torus - g->first_spine; i++)
    g->Bps[g->first_spine + i] = g->spine_share[i / 2] * g->link_Bps;
}

static double *ones(gsize n) {
  double *a = g_new(double, MAX(n, 1));
  for (gsize i = 0; i < n; i++) a[i] = 1;
  return a;
}

static void rate_links(MsFabricGraph *g) {
  g->Bps = g_new0(double, g->n_links);
  for (guint32 i = 0; i < g->first_nic; i++) g->Bps[i] = g->scaleup_Bps;
  for (guint32 i = g->first_nic; i < g->first_leaf; i++) g->Bps[i] = g->nic_Bps;
  for (guint32 i = g->first_torus; i < g->first_pcie; i++) g->Bps[i] = g->link_Bps;
  for (guint32 i = g->first_pcie; i < g->n_links; i++) g->Bps[i] = g->pcie_Bps;
  g->leaf_share = ones((gsize)g->leaves * (gsize)g->uplinks);
  g->spine_share = ones((gsize)g->pods * (gsize)g->spines * (gsize)g->spine_uplinks);
}

/* --- what is broken -------------------------------------------------------------------------------------------- */

static void scale(double *Bps, double share) { Bps[0] *= share, Bps[1] *= share; }

static gboolean break_node(MsFabricGraph *g, int node, const char *part, int i, double share) {
  if (node < 0 || node >= g->nodes) return FALSE;
  if (strcmp(part, "nic") == 0 && i >= 0 && i < g->nics) {
    scale(&g->Bps[g->first_nic + 2 * (guint32)(node * g->nics + i)], share);
    return TRUE;
  }
  if (strcmp(part, "gpu") == 0 && i >= 0 && i < g->node_gpus && share > 0) {
    scale(&g->Bps[2 * (guint32)(node * g->node_gpus + i)], share);
    return TRUE;
  }
  if (strcmp(part, "pcie") == 0 && g->pcie_switches > 0 && i >= 0 && i < g->node_gpus && share > 0) {
    scale(&g->Bps[g->first_pcie + 2 * (guint32)(node * g->node_gpus + i)], share);
    return TRUE;
  }
  if (strcmp(part, "link") != 0 || i < 0 || i >= 2 * g->dims) return FALSE;
  g->Bps[g->first_torus + (guint32)(node * 2 * g->dims + i)] *= share;
  return TRUE;
}

/* One link (i >= 0), or the switch: all its links. */
static gboolean break_leaf(MsFabricGraph *g, int leaf, int i, double share) {
  if (leaf < 0 || leaf >= g->leaves || i >= g->uplinks) return FALSE;
  for (int u = 0; u < g->uplinks; u++)
    if (i < 0 || u == i) g->leaf_share[(gsize)leaf * (gsize)g->uplinks + (gsize)u] *= share;
  for (int n = 0; i < 0 && n < g->nodes; n++)
    for (int k = 0; k < g->nics; k++)
      if (ms_fabric_leaf(g, n, k) == leaf) scale(&g->Bps[g->first_nic + 2 * (guint32)(n * g->nics + k)], share);
  return TRUE;
}

static gboolean break_spine(MsFabricGraph *g, int spine, int i, double share) {
  if (spine < 0 || spine >= g->pods * g->spines || i >= g->spine_uplinks) return FALSE;
  for (int v = 0; v < g->spine_uplinks; v++)
    if (i < 0 || v == i) g->spine_share[(gsize)spine * (gsize)g->spine_uplinks + (gsize)v] *= share;
  int first = spine / g->spines * leaves_of_pod(g);
  for (int l = first; i < 0 && l < first + leaves_of_pod(g); l++)
    for (int u = spine % g->spines; u < g->uplinks; u += g->spines)
      g->leaf_share[(gsize)l * (gsize)g->uplinks + (gsize)u] *= share;
  return TRUE;
}

static gboolean break_named(MsFabricGraph *g, const char *name, double share) {
  int a = -1, b = -1, end = 0;
  char part[8] = "";
  if (sscanf(name, "node%d.%4[a-z]%d%n", &a, part, &b, &end) == 3 && !name[end])
    return break_node(g, a, part, b, share);
  if (!ms_fabric_is_tree(g)) return FALSE;
  if (sscanf(name, "leaf%d.up%d%n", &a, &b, &end) == 2 && !name[end]) return b >= 0 && break_leaf(g, a, b, share);
  if (sscanf(name, "spine%d.up%d%n", &a, &b, &end) == 2 && !name[end]) return b >= 0 && break_spine(g, a, b, share);
  if (sscanf(name, "leaf%d%n", &a, &end) == 1 && !name[end]) return break_leaf(g, a, -1, share);
  if (sscanf(name, "spine%d%n", &a, &end) == 1 && !name[end]) return break_spine(g, a, -1, share);
  return FALSE;
}

static const char no_such[] = "\"%s\" names nothing of this fabric; `moesim show fabric` lists what there is";

static gboolean break_links(MsFabricGraph *g, const MsScenario *s, GError **error) {
  const MsFabric *f = g->fabric;
  JsonArray *failed = f->failed && JSON_NODE_HOLDS_ARRAY(f->failed) ? json_node_get_array(f->failed) : NULL;
  for (guint i = 0; failed && i < json_array_get_length(failed); i++)
    if (!break_named(g, json_array_get_string_element(failed, i), 0))
      return refuse(s, error, "failed", no_such, json_array_get_string_element(failed, i));
  if (!f->slow || !JSON_NODE_HOLDS_OBJECT(f->slow)) return TRUE;
  for (MsJsonMember at = ms_json_members(json_node_get_object(f->slow)); ms_json_next(&at);)
    if (!break_named(g, at.key, 1 / json_node_get_double(at.value))) return refuse(s, error, "slow", no_such, at.key);
  return TRUE;
}

static gboolean has_nic(const MsFabricGraph *g, int gpu) {
  for (int k = 0; k < MAX(1, g->nics / g->node_gpus); k++)
    if (g->Bps[ms_fabric_nic_link(g, gpu / g->node_gpus, ms_fabric_nic_of(g, gpu, k))] > 0) return TRUE;
  return FALSE;
}

static gboolean has_nics(const MsFabricGraph *g, const MsScenario *s, GError **error) {
  for (int r = 0; r < g->seats->world * g->seats->jobs; r++)
    if (!has_nic(g, g->seats->gpu[r]))
      return refuse(s, error, "failed", "rank %d, node%d.gpu%d, is left without a NIC", r,
                    g->seats->gpu[r] / g->node_gpus, g->seats->gpu[r] % g->node_gpus);
  return TRUE;
}

/* A leaf that lost links must still reach all others of its pod through a spine of both, and other pods. */
static gboolean leaves_meet(const MsFabricGraph *g, int a, int b) {
  for (int u = 0; u < g->uplinks; u++)
    if (g->leaf_share[(gsize)a * (gsize)g->uplinks + (gsize)u] > 0)
      for (int w = u % g->spines; w < g->uplinks; w += g->spines)
        if (g->leaf_share[(gsize)b * (gsize)g->uplinks + (gsize)w] > 0) return TRUE;
  return FALSE;
}

static gboolean leaf_is_hurt(const MsFabricGraph *g, int leaf) {
  for (int u = 0; u < g->uplinks; u++)
    if (g->leaf_share[(gsize)leaf * (gsize)g->uplinks + (gsize)u] == 0) return TRUE;
  return FALSE;
}

static gboolean is_joined(const MsFabricGraph *g, const MsScenario *s, GError **error) {
  if (!g->fabric->failed) return TRUE;
  int per_pod = ms_fabric_is_tree(g) ? leaves_of_pod(g) : 0;
  for (int a = 0; per_pod > 1 && a < g->leaves; a++)
    for (int b = a / per_pod * per_pod; leaf_is_hurt(g, a) && b < (a / per_pod + 1) * per_pod; b++)
      if (a != b && !leaves_meet(g, a, b))
        return refuse(s, error, "failed", "disconnected: no spine joins leaf%d and leaf%d", a, b);
  for (guint32 i = g->first_torus; i < g->first_pcie; i++)
    if (g->Bps[i] == 0)
      return refuse(s, error, "failed", "a torus routes by dimension, no other way replaces a failed link");
  int from = 0, to = 0;
  if (g->pods > 1 && !ms_fabric_pods_meet(g, &from, &to))
    return refuse(s, error, "failed", "disconnected: no link left between pods %d and %d", from, to);
  return TRUE;
}

/* --- all of it ------------------------------------------------------------------------------------------------- */

static gboolean make(MsFabricGraph *g, const MsScenario *s, GError **error) {
  if (s->hardware->fabric_oversubscription > 1)
    return ms_input_error(error, s->file, 0, "hardware.fabric_oversubscription",
                          "is what `fabric` describes too; leave one of them out");
  if (!ms_hardware_need(s->hardware, s->hardware->nic_Bps, "nic_Bps", error) || !size_nics(g, s, error)) return FALSE;
  if (!(ms_fabric_is_tree(g) ? size_tree(g, s, error) : size_torus(g, s, error)) || !number_links(g, s, error))
    return FALSE;
  rate_links(g);
  if (!break_links(g, s, error)) return FALSE;
  if (ms_fabric_is_tree(g)) (adaptive(g) ? rate_trunks : rate_single)(g);
  return has_nics(g, s, error) && is_joined(g, s, error);
}

MsFabricGraph *ms_fabric_graph_new(const MsScenario *s, GError **error) {
  char why[192];
  g_autoptr(MsFabricGraph) g = g_new0(MsFabricGraph, 1);
  g->hardware = s->hardware, g->fabric = &s->hardware->fabric, g->pods = 1;
  g->scaleup_Bps = s->hardware->scaleup_Bps > 0 ? s->hardware->scaleup_Bps : HUGE_VAL;
  g->seats = ms_seats_new(s->hardware, s->gpus, why, sizeof why);
  if (!g->seats) return refuse(s, error, "nodes", "%s", why), NULL;
  g->nodes = g->seats->nodes, g->node_gpus = g->seats->node_gpus;
  return make(g, s, error) ? g_steal_pointer(&g) : NULL;
}

void ms_fabric_graph_free(MsFabricGraph *g) {
  if (!g) return;
  ms_seats_free(g->seats);
  g_free(g->Bps), g_free(g->leaf_share), g_free(g->spine_share);
  g_free(g);
}

double ms_fabric_ideal_Bps(const MsFabricGraph *g, guint32 link) {
  return link >= g->first_nic && link < g->first_leaf ? g->nic_Bps : HUGE_VAL;
}
