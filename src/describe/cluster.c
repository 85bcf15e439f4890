/* src/describe/cluster.c - the table of the key `cluster`. */
#include "describe/cluster.h"

#include "describe/rows.h"

#include <string.h>

const MsFieldTable ms_cluster_table = MS_FIELD_TABLE(
    "scenario.cluster", "what differs between GPUs: drawn by run --fidelity cluster, expected of fast and full",
    MS_BOOL(MsClusterSpec, jitter, "true", 0,
            "kernels and launches vary as the laws kernel_jitter and host_jitter say, GPUs as clock_spread; false: "
            "ranks are alike but for those that are slow"),
    MS_BOOL(MsClusterSpec, expected, "false", 0,
            "fidelities fast and full say the step that is expected of GPUs that differ like that, by order statistics "
            "(docs/theory/cluster.md); false: of GPUs that are all as slow as the slowest is expected to be"),
    MS_INT(MsClusterSpec, seed, 0, 1 << 30, "1", 0, "of the first draw"),
    MS_FREE(MsClusterSpec, slow_gpus, "object: rank -> how many times as long its kernels take, {\"17\": 1.3}"),
    MS_FREE(MsClusterSpec, slow_nics, "object: rank -> how many times as slow its NIC is, {\"17\": 4}"),
    MS_F64(MsClusterSpec, slow_gpu_rate, "", 0, 1, "0", 0, "probability that a GPU is slow in a step"),
    MS_F64(MsClusterSpec, slow_gpu_factor, "", 1, 1e3, "1.2", 0, "how many times as long its kernels take then"),
    MS_F64(MsClusterSpec, slow_nic_rate, "", 0, 1, "0", 0, "probability that a NIC is slow in a step"),
    MS_F64(MsClusterSpec, slow_nic_factor, "", 1, 1e3, "4", 0, "how many times as slow it is then"));

/* -1: no rank of the job. */
static int rank_of(const char *key, int gpus) {
  guint64 rank;
  return g_ascii_string_to_unsigned(key, 10, 0, (guint64)gpus - 1, &rank, NULL) ? (int)rank : -1;
}

static gboolean check_ranks(JsonNode *node, const char *key, int gpus, const MsJson *doc, GError **error) {
  g_autofree char *path = g_strconcat("cluster.", key, NULL);
  if (!node || JSON_NODE_HOLDS_NULL(node)) return TRUE;
  if (!JSON_NODE_HOLDS_OBJECT(node))
    return ms_json_error(doc, path, error, "must be an object of ranks and how many times as slow they are");
  for (MsJsonMember one = ms_json_members(json_node_get_object(node)); ms_json_next(&one);) {
    g_autofree char *at = g_strdup_printf("%s.%s", path, one.key);
    double factor = ms_json_number(one.value);
    if (rank_of(one.key, gpus) < 0)
      return ms_json_error(doc, at, error, "must be a rank of the job, 0 to %d", gpus - 1);
    if (!(factor >= 1 && factor <= 1e3))
      return ms_json_error(doc, at, error, "must say how many times as slow, 1 to 1000");
  }
  return TRUE;
}

gboolean ms_cluster_check(const MsClusterSpec *spec, int gpus, const MsJson *doc, GError **error) {
  gboolean named = (spec->slow_gpus && JSON_NODE_HOLDS_OBJECT(spec->slow_gpus)) ||
                   (spec->slow_nics && JSON_NODE_HOLDS_OBJECT(spec->slow_nics));
  if (spec->expected && named)
    return ms_json_error(doc, "cluster.expected", error,
                         "is of ranks that are slow by chance (slow_gpu_rate, slow_nic_rate); ranks by name need "
                         "`run --fidelity cluster` without it");
  return check_ranks(spec->slow_gpus, "slow_gpus", gpus, doc, error) &&
         check_ranks(spec->slow_nics, "slow_nics", gpus, doc, error);
}

void ms_cluster_named(const JsonNode *object, int gpus, double *factor) {
  for (int i = 0; i < gpus; i++) factor[i] = 1;
  JsonNode *node = (JsonNode *)object;
  if (!node || !JSON_NODE_HOLDS_OBJECT(node)) return;
  for (MsJsonMember at = ms_json_members(json_node_get_object(node)); ms_json_next(&at);)
    factor[rank_of(at.key, gpus)] = ms_json_number(at.value);
}
