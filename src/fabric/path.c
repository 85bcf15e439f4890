/* src/fabric/path.c - the way from one GPU to another. */
#include "fabric/internal.h"

#include "base/err.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  guint32 *link;
  int n;
} Way;

static void pass(Way *way, guint32 link) {
  if (way->n == MS_FABRIC_PATH_MAX) MS_BUG("a way of more than %d links", way->n);
  way->link[way->n++] = link;
}

static gboolean adaptive(const MsFabricGraph *g) { return g->fabric->routing == MS_ROUTE_ADAPTIVE; }
static gboolean dragonfly(const MsFabricGraph *g) { return g->fabric->kind == MS_FABRIC_DRAGONFLY; }
static int pod_of_leaf(const MsFabricGraph *g, int leaf) { return leaf / (g->leaves / g->pods); }
static guint32 leaf_link(const MsFabricGraph *g, int leaf, int u) {
  return g->first_leaf + 2 * (guint32)(leaf * (adaptive(g) ? 1 : g->uplinks) + u);
}
static guint32 spine_link(const MsFabricGraph *g, int pod, int j) { /* j: spine x spine_uplinks + v, of the pod */
  return g->first_spine + 2 * (guint32)(pod * g->spines * g->spine_uplinks + j);
}
static double leaf_share(const MsFabricGraph *g, int leaf, int u) {
  return g->leaf_share[(gsize)leaf * (gsize)g->uplinks + (gsize)u];
}
static double spine_share(const MsFabricGraph *g, int pod, int j) {
  return g->spine_share[(gsize)pod * (gsize)(g->spines * g->spine_uplinks) + (gsize)j];
}

/* --- through spines and cores --- */

/* A link between the leaf and the spine that is up, the hash's choice or the next; -1: none. */
static int link_to(const MsFabricGraph *g, int leaf, int spine, guint64 hash) {
  int parallel = g->uplinks / g->spines, first = (int)(hash % (guint64)parallel);
  for (int i = 0; i < parallel; i++) {
    int u = spine + (first + i) % parallel * g->spines;
    if (leaf_share(g, leaf, u) > 0) return u;
  }
  return -1;
}

static gboolean by_spine(const MsFabricGraph *g, int from, int to, int spine, guint64 hash, Way *way) {
  int up = link_to(g, from, spine, hash >> 20), down = link_to(g, to, spine, hash >> 40);
  if (up < 0 || down < 0) return FALSE;
  pass(way, leaf_link(g, from, up)), pass(way, leaf_link(g, to, down) + 1);
  return TRUE;
}

static gboolean in_pod(const MsFabricGraph *g, int from, int to, guint64 hash, Way *way) {
  int first = (int)(hash % (guint64)g->spines);
  for (int i = 0; i < g->spines; i++)
    if (by_spine(g, from, to, (first + i) % g->spines, hash, way)) return TRUE;
  return FALSE;
}

/* Cable j of pod a to pod b: its place among those, and the cable of b at that place. */
static int far_cable(const MsFabricGraph *g, int a, int b, int j) {
  int peers = g->pods - 1, k = j / peers;
  return (a < b ? a : a - 1) + k * peers;
}

/* Over uplink j of the sender's pod: through the core to the same uplink of the other pod, or along a cable. */
static gboolean by_core(const MsFabricGraph *g, int from, int to, int j, guint64 hash, Way *way) {
  int a = pod_of_leaf(g, from), b = pod_of_leaf(g, to), cables = g->spines * g->spine_uplinks;
  int far = dragonfly(g) ? far_cable(g, a, b, j) : j;
  if (far >= cables || !(spine_share(g, a, j) > 0) || !(spine_share(g, b, far) > 0)) return FALSE;
  int up = link_to(g, from, j / g->spine_uplinks, hash >> 20),
      down = link_to(g, to, far / g->spine_uplinks, hash >> 40);
  if (up < 0 || down < 0) return FALSE;
  pass(way, leaf_link(g, from, up)), pass(way, spine_link(g, a, j));
  pass(way, spine_link(g, b, far) + 1), pass(way, leaf_link(g, to, down) + 1);
  return TRUE;
}

static gboolean between_pods(const MsFabricGraph *g, int from, int to, guint64 hash, Way *way) {
  int a = pod_of_leaf(g, from), b = pod_of_leaf(g, to), cables = g->spines * g->spine_uplinks;
  int step = dragonfly(g) ? g->pods - 1 : 1, t = dragonfly(g) ? (b < a ? b : b - 1) : 0;
  int choices = (cables - t + step - 1) / step, first = (int)(hash % (guint64)MAX(choices, 1));
  for (int i = 0; i < choices; i++)
    if (by_core(g, from, to, t + (first + i) % choices * step, hash, way)) return TRUE;
  return FALSE;
}

static void through_trunks(const MsFabricGraph *g, int from, int to, Way *way) {
  int a = pod_of_leaf(g, from), b = pod_of_leaf(g, to);
  pass(way, leaf_link(g, from, 0));
  if (a != b && dragonfly(g)) pass(way, g->first_spine + (guint32)(a * g->pods + b));
  if (a != b && !dragonfly(g))
    pass(way, g->first_spine + 2 * (guint32)a), pass(way, g->first_spine + 2 * (guint32)b + 1);
  pass(way, leaf_link(g, to, 0) + 1);
}

static void through_tree(const MsFabricGraph *g, int from, int to, guint64 hash, Way *way) {
  if (from == to) return;
  if (adaptive(g)) through_trunks(g, from, to, way);
  else if (!(pod_of_leaf(g, from) == pod_of_leaf(g, to) ? in_pod : between_pods)(g, from, to, hash, way))
    MS_BUG("no way from leaf %d to leaf %d", from, to);
}

gboolean ms_fabric_pods_meet(const MsFabricGraph *g, int *from, int *to) {
  guint32 links[MS_FABRIC_PATH_MAX];
  int per_pod = g->leaves / g->pods;
  for (*from = 0; *from < g->pods; ++*from)
    for (*to = 0; *to < g->pods; ++*to)
      for (int l = 0; *from != *to && l < per_pod; l++) {
        Way way = {links, 0};
        if (!between_pods(g, *from * per_pod + l, *to * per_pod + (g->fabric->failed ? l : 0), 0, &way)) return FALSE;
      }
  return TRUE;
}

/* --- through a torus: dimension by dimension, the shorter way round --- */

static void through_torus(const MsFabricGraph *g, int from, int to, Way *way) {
  for (int d = 0, stride = 1; d < g->dims; stride *= g->torus[d++]) {
    int size = g->torus[d], at = from / stride % size, end = to / stride % size;
    int ahead = (end - at + size) % size;
    gboolean up = ahead <= size - ahead;
    for (; at != end; at = (at + (up ? 1 : size - 1)) % size) {
      pass(way, g->first_torus + (guint32)(from * 2 * g->dims + 2 * d + !up));
      from += ((at + (up ? 1 : size - 1)) % size - at) * stride;
    }
  }
}

/* --- from GPU to GPU --- */

/* A NIC that is up: that of the part, or another of the GPU's. */
static int nic_up(const MsFabricGraph *g, int gpu, int part) {
  int node = gpu / g->node_gpus;
  for (int k = 0; k < MAX(1, g->nics / g->node_gpus); k++) {
    int nic = ms_fabric_nic_of(g, gpu, part + k);
    if (g->Bps[ms_fabric_nic_link(g, node, nic)] > 0) return nic;
  }
  MS_BUG("GPU %d has no NIC", gpu);
}

/* Where there are rails, a sender hands over in its own node to the GPU whose NIC is on the receiver's rail (PXN). */
static int sender_nic(const MsFabricGraph *g, int from, int to_nic, int part) {
  int own = nic_up(g, from, part), node = from / g->node_gpus;
  if (g->rails == 1 || own % g->rails == to_nic % g->rails) return own;
  return g->Bps[ms_fabric_nic_link(g, node, to_nic)] > 0 ? to_nic : own;
}

static gboolean is_own_nic(const MsFabricGraph *g, int gpu, int nic) {
  int own = gpu % g->node_gpus;
  return g->nics >= g->node_gpus ? nic / (g->nics / g->node_gpus) == own : own / (g->node_gpus / g->nics) == nic;
}

/* Between a GPU (with PXN that whose NIC it is) and a NIC of its node, on the way out or in. */
static void through_pcie(const MsFabricGraph *g, int gpu, int nic, gboolean in, Way *way) {
  if (g->pcie_switches == 0) return;
  int node = gpu / g->node_gpus;
  if (!is_own_nic(g, gpu, nic)) gpu = node * g->node_gpus + nic * g->node_gpus / g->nics;
  int own = gpu % g->node_gpus / g->pcie_gpus, other = nic * g->pcie_switches / g->nics, from = in ? other : own;
  pass(way, g->first_pcie + 2 * (guint32)gpu + (guint32)in);
  if (own == other) return;
  pass(way, g->first_switch + 2 * (guint32)(node * g->pcie_switches + from));
  pass(way, g->first_switch + 2 * (guint32)(node * g->pcie_switches + own + other - from) + 1);
}

int ms_fabric_path(const MsFabricGraph *g, int from, int to, int part, guint32 salt, guint32 *link) {
  Way way = {link, 0};
  if (from / g->seats->domain_gpus == to / g->seats->domain_gpus) {
    pass(&way, 2 * (guint32)from), pass(&way, 2 * (guint32)to + 1);
    return way.n;
  }
  int in = nic_up(g, to, part), out = sender_nic(g, from, in, part);
  int a = from / g->node_gpus, b = to / g->node_gpus;
  guint32 first = ms_fabric_nic_link(g, a, out), last = ms_fabric_nic_link(g, b, in);
  guint64 hash = ms_drawn(ms_drawn((guint64)first << 32 | last) + (guint64)part + ((guint64)salt << 32) +
                          ((guint64)g->fabric->seed << 16));
  pass(&way, first);
  through_pcie(g, from, out, FALSE, &way), through_pcie(g, to, in, TRUE, &way);
  if (ms_fabric_is_tree(g)) through_tree(g, ms_fabric_leaf(g, a, out), ms_fabric_leaf(g, b, in), hash, &way);
  else through_torus(g, a, b, &way);
  pass(&way, last + 1);
  return way.n;
}

/* --- names --- */

static const char *spine_name(const MsFabricGraph *g, guint32 i, char *buf) {
  int n = g->spines * g->spine_uplinks;
  if (!adaptive(g)) {
    int spine = (int)i / 2 / g->spine_uplinks, v = (int)i / 2 % g->spine_uplinks;
    g_snprintf(buf, MS_LINK_NAME, "spine%d.up%d%s", spine, v, i % 2 ? ".in" : "");
  } else if (dragonfly(g)) g_snprintf(buf, MS_LINK_NAME, "group%u to group%u", i / (guint)g->pods, i % (guint)g->pods);
  else g_snprintf(buf, MS_LINK_NAME, "pod%u.up (%d links)%s", i / 2, n, i % 2 ? ".in" : "");
  return buf;
}

const char *ms_fabric_link_tier(const MsFabricGraph *g, guint32 link) {
  if (link < g->first_nic) return "scale-up port";
  if (link < g->first_leaf) return "NIC";
  if (link < g->first_spine) return "leaf to spine";
  if (link >= g->first_switch) return "PCIe switch to host";
  if (link >= g->first_pcie) return "GPU to PCIe switch";
  if (link >= g->first_torus) return "torus link";
  return g->fabric->kind == MS_FABRIC_DRAGONFLY ? "group to group" : "spine to core";
}

const char *ms_fabric_link_name(const MsFabricGraph *g, guint32 link, char buf[MS_LINK_NAME]) {
  const char *in = link % 2 ? ".in" : "";
  guint32 i = link / 2;
  if (link < g->first_nic)
    g_snprintf(buf, MS_LINK_NAME, "node%u.gpu%u%s", i / (guint)g->node_gpus, i % (guint)g->node_gpus, in);
  else if (link < g->first_leaf) {
    i = (link - g->first_nic) / 2, in = (link - g->first_nic) % 2 ? ".in" : "";
    g_snprintf(buf, MS_LINK_NAME, "node%u.nic%u%s", i / (guint)g->nics, i % (guint)g->nics, in);
  } else if (link < g->first_spine) {
    i = (link - g->first_leaf) / 2, in = (link - g->first_leaf) % 2 ? ".in" : "";
    if (adaptive(g)) g_snprintf(buf, MS_LINK_NAME, "leaf%u.up (%d links)%s", i, g->uplinks, in);
    else g_snprintf(buf, MS_LINK_NAME, "leaf%u.up%u%s", i / (guint)g->uplinks, i % (guint)g->uplinks, in);
  } else if (link < g->first_torus) return spine_name(g, link - g->first_spine, buf);
  else if (link >= g->first_pcie) {
    gboolean host = link >= g->first_switch;
    guint32 t = link - (host ? g->first_switch : g->first_pcie),
            each = (guint32)(host ? g->pcie_switches : g->node_gpus);
    g_snprintf(buf, MS_LINK_NAME, "node%u.%s%u%s", t / 2 / each, host ? "switch" : "pcie", t / 2 % each,
               t % 2 ? ".in" : "");
  } else {
    guint32 t = link - g->first_torus, ports = 2 * (guint32)g->dims;
    g_snprintf(buf, MS_LINK_NAME, "node%u.link%u", t / ports, t % ports);
  }
  return buf;
}
