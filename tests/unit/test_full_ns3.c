/* Ends of flows against ns-3, packet by packet: the same patterns over small fat trees, with TCP in place of fair
 * shares. When all is done agrees but for what TCP loses. Skipped by name where ns-3 or a C++ compiler is missing. */
#include "lib/close.h"
#include "lib/traffic.h"
#include "lib/world.h"

#include <math.h>

#define WIRE    (1502.0 / 1448) /* a segment with its headers over its payload */
#define NIC_Bps 1e8             /* slower NICs and shorter messages than real ones: fewer packets */
#define SECONDS 0.008           /* what of a message's time is simulated: its bytes are those of so long */
#define WITHIN  0.06

static char *oracle; /* the program that asks ns-3; NULL: there is none */

static int build_oracle(void **state) {
  (void)state;
  oracle = ms_test_oracle_new("/usr/include/ns3/core-module.h", "flows_ns3.cpp",
                              "-lns3-core -lns3-network -lns3-internet -lns3-point-to-point -lns3-traffic-control "
                              "-lns3-applications");
  return 0;
}

static int remove_oracle(void **state) {
  (void)state;
  ms_test_oracle_remove(oracle);
  return 0;
}

/* --- the same as hosts, switches and cables --- */

/* What stays in a scale-up domain is none of the network's. */
static gboolean stays(const MsFabricGraph *g, const MsFlows *f, guint32 i) {
  return ms_fabric_is_port(g, f->link[f->first[i]]);
}

static int host_of(const MsFabricGraph *g, guint32 link) { return (int)(link - g->first_nic) / 2; }

/* Hosts are NICs; behind them come the leaves, whose uplinks are one trunk to the only spine. */
static char *question(const MsFabricGraph *g, const MsFlows *f, double bytes) {
  GString *text = g_string_new(NULL);
  int hosts = g->nodes * g->nics;
  double scale = NIC_Bps / g->nic_Bps;
  g_string_append_printf(text, "%d %d\n", hosts + g->leaves + 1, hosts + g->leaves);
  for (int i = 0; i < hosts; i++)
    g_string_append_printf(text, "%d %d %.17g\n", i, hosts + i / (g->leaf_nodes * g->nics),
                           scale * g->Bps[g->first_nic + 2 * (guint32)i]);
  for (int i = 0; i < g->leaves; i++)
    g_string_append_printf(text, "%d %d %.17g\n", hosts + i, hosts + g->leaves,
                           scale * g->Bps[g->first_leaf + 2 * (guint32)i]);
  int messages = 0;
  for (guint32 i = 0; i < f->n; i++) messages += !stays(g, f, i);
  g_string_append_printf(text, "%d\n", messages);
  for (guint32 i = 0; i < f->n; i++)
    if (!stays(g, f, i))
      g_string_append_printf(text, "%d %d %.0f\n", host_of(g, f->link[f->first[i]]),
                             host_of(g, f->link[f->first[i + 1] - 1]), bytes * f->bytes[i]);
  return g_string_free(text, FALSE);
}

/* --- when all is done --- */

static void compare(const MsFabricGraph *g, const MsFlows *f, const char *what) {
  g_autoptr(MsFlowTimes) t = ms_flows_run(f, g->Bps, 0);
  double bytes = SECONDS * NIC_Bps / (t->makespan_s * g->nic_Bps); /* of one in the flows */
  g_autofree char *asked = question(g, f, bytes), *answer = ms_test_oracle_ask(oracle, asked);
  double last_s = 0, sum_s = 0, want_s = 0;
  char *at = answer;
  for (guint32 i = 0; i < f->n; i++) {
    if (stays(g, f, i)) continue;
    double end_s = g_ascii_strtod(at, &at);
    if (!(end_s > 0)) fail_msg("%s: message %u never ends in ns-3", what, i);
    last_s = MAX(last_s, end_s), sum_s += end_s, want_s += t->end_s[i];
  }
  double scale = WIRE * bytes * g->nic_Bps / NIC_Bps, off = scale * t->makespan_s / last_s - 1;
  print_message("  %s: %u messages, the last ends %+.1f %%, in the mean %+.1f %% against ns-3\n", what, f->n, 100 * off,
                100 * (scale * want_s / sum_s - 1));
  if (!(fabs(off) < WITHIN)) fail_msg("%s: the last ends at %g s, ns-3 says %g s", what, scale * t->makespan_s, last_s);
}

static void all_is_done_when_ns3_says(void **state) {
  (void)state;
  static const char *const fabrics[] = {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 2}",
                                        "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 4}",
                                        "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"slow\": {\"node1.nic2\": 4}}"};
  if (!oracle) {
    print_message("skipped: no ns-3 (libns3-dev) or no g++\n");
    skip();
  }
  for (guint i = 0; i < G_N_ELEMENTS(fabrics); i++) {
    GError *error = NULL;
    g_autoptr(MsScenario) s = ms_test_experts_on(fabrics[i], 32, 16);
    g_autoptr(MsLayout) l = ms_layout_new(s, NULL);
    g_autoptr(MsFabricGraph) g = ms_fabric_graph_new(s, &error);
    if (!g) fail_msg("%s", error->message);
    for (int k = 0; k < MS_TEST_TRAFFICS; k++) {
      g_autoptr(MsFlows) f = ms_test_traffic[k](g, l);
      g_autofree char *what = g_strdup_printf("fabric %u, pattern %d", i, k);
      compare(g, f, what);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_is_done_when_ns3_says)};
  return cmocka_run_group_tests(tests, build_oracle, remove_oracle);
}
