/* src/describe/fabric.c - reading and writing the key `fabric`. */
#include "describe/fabric.h"

#include "describe/rows.h"

#include <math.h>
#include <string.h>

const char *const ms_fabric_kind_words[] = {"none", "fat-tree", "rail-optimized", "dragonfly+", "torus", NULL};
static const char *const routing_words[] = {"adaptive", "ecmp", NULL};
static const char *const placement_words[] = {"contiguous", "by-rail", "scattered", NULL};

/* --- the torus --- */
static gboolean torus_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  int *torus = member;
  JsonArray *list = JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
  guint n = list ? json_array_get_length(list) : 0;
  memset(torus, 0, sizeof(int) * MS_TORUS_DIMS);
  if (!list || n > MS_TORUS_DIMS)
    return ms_json_error(doc, path, error, "must be a list of at most %d numbers of nodes", MS_TORUS_DIMS);
  for (guint i = 0; i < n; i++) {
    JsonNode *one = json_array_get_element(list, i);
    gint64 size = ms_json_is(one, G_TYPE_INT64) ? json_node_get_int(one) : 0;
    if (size < 1 || size > MS_FABRIC_NODES)
      return ms_json_error(doc, path, error, "must hold numbers of nodes from 1 to %d", MS_FABRIC_NODES);
    torus[i] = (int)size;
  }
  return TRUE;
}

static void torus_print(MsJsonOut *out, const char *key, const void *member) {
  const int *torus = member;
  ms_json_out_array(out, key);
  for (int i = 0; i < MS_TORUS_DIMS && torus[i]; i++) ms_json_out_int(out, NULL, torus[i]);
  ms_json_out_end(out);
}

/* --- the table --- */
#define COUNT(k, most, d) MS_INT(MsFabric, k, 0, most, "0", 0, d)
const MsFieldTable ms_fabric_table = MS_FIELD_TABLE(
    "hardware.fabric", "the network between nodes",
    MS_ENUM(MsFabric, kind, ms_fabric_kind_words, "\"none\"", 0, "how switches are joined; none: an ideal network"),
    COUNT(nodes, MS_FABRIC_NODES, "nodes of the fabric; 0 = those of the job"),
    MS_INT(MsFabric, jobs, 1, 64, "1", 0,
           "jobs like this one on the fabric at once, seated one after another: their messages meet"),
    COUNT(segment_gpus, 65536,
          "GPUs that the job takes of each scale-up domain; 0 = the most, at least half, that divide it evenly"),
    COUNT(nics_per_node, 1024, "NICs that share a node's rate; 0 = one for each GPU"),
    COUNT(pcie_gpus, 65536,
          "GPUs behind one PCIe switch, with their share of the node's NICs: what a GPU sends passes a link of the "
          "switch, and to a NIC of another switch the links of both to the host; 0 = no limit"),
    MS_F64(MsFabric, pcie_Bps, "Bps", 1e6, 1e15, NULL, MS_NULLABLE,
           "one link of a PCIe switch, one direction; null = host_link_Bps of the machine"),
    COUNT(rails, 1024, "rail-optimized: leaves that the NICs of a node go to; 0 = one for each NIC"),
    COUNT(leaf_nodes, MS_FABRIC_NODES, "nodes below one leaf, or below one leaf of every rail; 0 = all"),
    COUNT(leaf_uplinks, 65536, "links from a leaf to its spines; 0 = as oversubscription says"),
    MS_F64(MsFabric, oversubscription, "", 1, 1000, "1", 0,
           "rate of a leaf's NICs over that of its uplinks, where leaf_uplinks is 0"),
    MS_F64(MsFabric, link_Bps, "Bps", 1e6, 1e15, NULL, MS_NULLABLE,
           "one link between switches, one direction; null = that of a NIC"),
    COUNT(spines, 65536, "spines of a pod or group; 0 = one for each uplink of a leaf"),
    COUNT(pod_nodes, MS_FABRIC_NODES, "nodes of a pod, of a dragonfly+ group; 0 = all"),
    COUNT(spine_uplinks, 65536,
          "links from a spine to the core, or to other groups; 0 = as core_oversubscription says"),
    MS_F64(MsFabric, core_oversubscription, "", 1, 1000, "1", 0,
           "rate of a spine's links down over that of its links up, where spine_uplinks is 0"),
    COUNT(switch_ports, 65536, "ports of a switch, which no switch may need more of; 0 = any number"),
    {MS_ROW(MsFabric, torus, MS_T_CUSTOM, "", "[]", 0, "torus: nodes along each dimension, [8, 8, 4]"),
     .parse = torus_parse, .print = torus_print},
    MS_ENUM(MsFabric, routing, routing_words, "\"adaptive\"", 0,
            "packets of a flow over all shortest paths, or each flow over one that a hash chooses"),
    MS_INT(MsFabric, seed, 0, G_MAXINT, "1", 0, "of hashes and of a scattered placement"),
    MS_INT(MsFabric, paths_per_flow, 1, 64, "1", 0, "ecmp: queue pairs of a flow, each with a hash of its own"),
    MS_FREE(
        MsFabric, placement,
        "ranks on nodes: contiguous (default), by-rail (neighbours on one rail of a leaf's nodes), scattered (nodes "
        "drawn with the seed), or the list of the job's nodes; a request may list several words: each is planned"),
    MS_FREE(MsFabric, failed, "list of what is down: leaf3.up2, leaf3, spine1, node5.nic2"),
    MS_FREE(MsFabric, slow,
            "object: name (also node5.gpu3, its scale-up port, and node5.pcie3, its link to a PCIe switch) -> times as "
            "slow"));

/* --- what can be said without a machine --- */
static gboolean bad(const MsJson *doc, const char *path, const char *key, GError **error, const char *why) {
  g_autofree char *full = g_strdup_printf("%s.%s", path, key);
  return ms_json_error(doc, full, error, "%s", why);
}

MsSeating ms_fabric_seating(const MsFabric *fabric) {
  if (!fabric->placement || JSON_NODE_HOLDS_NULL(fabric->placement)) return MS_SEAT_CONTIGUOUS;
  if (!ms_json_is(fabric->placement, G_TYPE_STRING)) return MS_SEAT_LIST;
  for (int i = 0; placement_words[i]; i++)
    if (strcmp(json_node_get_string(fabric->placement), placement_words[i]) == 0) return (MsSeating)i;
  return MS_SEAT_CONTIGUOUS;
}

static gboolean check_list(const MsJson *doc, JsonArray *list, const char *path, GError **error) {
  g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
  for (guint i = 0; i < json_array_get_length(list); i++) {
    JsonNode *one = json_array_get_element(list, i);
    g_autofree char *key = g_strdup_printf("placement[%u]", i);
    gint64 node = ms_json_is(one, G_TYPE_INT64) ? json_node_get_int(one) : -1;
    if (node < 0 || node >= MS_FABRIC_NODES) return bad(doc, path, key, error, "must be the number of a node, from 0");
    if (!g_hash_table_add(seen, GINT_TO_POINTER((int)node + 1)))
      return bad(doc, path, key, error, "stands in the list twice");
  }
  return json_array_get_length(list) > 0 || bad(doc, path, "placement", error, "must name the nodes of the job");
}

static gboolean check_placement(const MsFabric *f, const MsJson *doc, const char *path, GError **error) {
  JsonNode *node = f->placement;
  if (!node || JSON_NODE_HOLDS_NULL(node)) return TRUE;
  if (JSON_NODE_HOLDS_ARRAY(node)) return check_list(doc, json_node_get_array(node), path, error);
  const char *word = ms_json_string(node);
  if (!word) return bad(doc, path, "placement", error, "must be a word or a list of nodes");
  if (g_strv_contains(placement_words, word)) return TRUE;
  g_autofree char *near = ms_suggest(word, placement_words, NULL);
  g_autofree char *why = g_strdup_printf("unknown word \"%s\", %s", word,
                                         near ? near : "must be contiguous, by-rail, scattered or a list of nodes");
  return bad(doc, path, "placement", error, why);
}

static gboolean check_failed(const MsFabric *f, const MsJson *doc, const char *path, GError **error) {
  if (!f->failed || JSON_NODE_HOLDS_NULL(f->failed)) return TRUE;
  JsonArray *list = JSON_NODE_HOLDS_ARRAY(f->failed) ? json_node_get_array(f->failed) : NULL;
  if (!list || json_array_get_length(list) > MS_FABRIC_BROKEN)
    return bad(doc, path, "failed", error, "must be a list of at most 4096 names such as leaf3.up2");
  for (guint i = 0; i < json_array_get_length(list); i++)
    if (!ms_json_is(json_array_get_element(list, i), G_TYPE_STRING))
      return bad(doc, path, "failed", error, "must hold names only");
  return TRUE;
}

static gboolean check_slow(const MsFabric *f, const MsJson *doc, const char *path, GError **error) {
  if (!f->slow || JSON_NODE_HOLDS_NULL(f->slow)) return TRUE;
  JsonObject *names = ms_json_object(f->slow);
  if (!names || json_object_get_size(names) > MS_FABRIC_BROKEN)
    return bad(doc, path, "slow", error, "must be an object of at most 4096 names, {\"node5.nic2\": 4}");
  for (MsJsonMember one = ms_json_members(names); ms_json_next(&one);) {
    g_autofree char *at = g_strdup_printf("slow.%s", one.key);
    double times = ms_json_number(one.value);
    if (!(times >= 1 && times <= 1e6)) return bad(doc, path, at, error, "must say how many times as slow, 1 to 1e6");
  }
  return TRUE;
}

/* Keys that the kind has no use for say nothing: they are refused. */
static gboolean check_kind(const MsFabric *f, const MsJson *doc, const char *path, GError **error) {
  gboolean tree = f->kind == MS_FABRIC_FAT_TREE || f->kind == MS_FABRIC_RAILS;
  if (f->kind != MS_FABRIC_TORUS && f->torus[0]) return bad(doc, path, "torus", error, "is a key of the kind torus");
  if (f->kind == MS_FABRIC_TORUS && !f->torus[0])
    return bad(doc, path, "torus", error, "must give the nodes along each dimension");
  if (f->kind != MS_FABRIC_RAILS && f->rails) return bad(doc, path, "rails", error, "is a key of rail-optimized");
  if (f->kind == MS_FABRIC_DRAGONFLY && !f->pod_nodes)
    return bad(doc, path, "pod_nodes", error, "must give the nodes of a group");
  if (f->kind == MS_FABRIC_TORUS && (f->leaf_nodes || f->leaf_uplinks || f->spines || f->pod_nodes || f->spine_uplinks))
    return bad(doc, path, "kind", error, "a torus has no leaves, spines and pods");
  if (f->kind == MS_FABRIC_TORUS && f->oversubscription > 1)
    return bad(doc, path, "oversubscription", error, "a torus has none: link_Bps is the rate of its links");
  if (f->pod_nodes && f->leaf_nodes && f->pod_nodes % f->leaf_nodes)
    return bad(doc, path, "pod_nodes", error, "must be a multiple of leaf_nodes");
  if (f->spines && f->leaf_uplinks && f->leaf_uplinks % f->spines && f->spines % f->leaf_uplinks)
    return bad(doc, path, "spines", error, "must divide leaf_uplinks");
  if (f->pcie_Bps > 0 && !f->pcie_gpus) return bad(doc, path, "pcie_Bps", error, "belongs to pcie_gpus");
  if (f->paths_per_flow > 1 && f->routing != MS_ROUTE_ECMP)
    return bad(doc, path, "paths_per_flow", error, "belongs to routing ecmp");
  if (tree && f->pod_nodes == 0 && f->spine_uplinks)
    return bad(doc, path, "spine_uplinks", error, "lead to other pods, so pod_nodes must be given");
  return TRUE;
}

gboolean ms_fabric_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error) {
  MsFabric *f = member;
  if (JSON_NODE_HOLDS_NULL(node)) {
    ms_fields_clear(&ms_fabric_table, f);
    ms_fields_defaults(&ms_fabric_table, f);
    return TRUE;
  }
  if (!ms_json_need_object(doc, node, path, error)) return FALSE;
  if (!ms_fields_load(&ms_fabric_table, doc, json_node_get_object(node), path, FALSE, f, error)) return FALSE;
  if (f->kind == MS_FABRIC_NONE && json_object_get_size(json_node_get_object(node)) > 0 &&
      !json_object_has_member(json_node_get_object(node), "kind"))
    return bad(doc, path, "kind", error, "must be fat-tree, rail-optimized, dragonfly+ or torus");
  return check_kind(f, doc, path, error) && check_placement(f, doc, path, error) && check_failed(f, doc, path, error) &&
         check_slow(f, doc, path, error);
}

void ms_fabric_print(MsJsonOut *out, const char *key, const void *member) {
  const MsFabric *f = member;
  if (f->kind == MS_FABRIC_NONE) return;
  ms_fields_object(&ms_fabric_table, f, FALSE, key, out);
}
