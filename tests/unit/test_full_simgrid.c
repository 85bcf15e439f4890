/* Ends of flows against SimGrid's fluid model (Debian: libsimgrid-dev), flow by flow: collectives and traffic of other
 * kinds over each kind of fabric, with hashes, failed and slow links. Skipped by name where SimGrid or a C++ compiler
 * is missing. */
#include "lib/close.h"
#include "lib/traffic.h"
#include "lib/world.h"

#include <math.h>

static char *oracle; /* the program that asks SimGrid; NULL: there is none */

static int build_oracle(void **state) {
  (void)state;
  oracle = ms_test_oracle_new("/usr/include/simgrid/s4u.hpp", "flows_simgrid.cpp", "-lsimgrid");
  return 0;
}

static int remove_oracle(void **state) {
  (void)state;
  ms_test_oracle_remove(oracle);
  return 0;
}

/* --- what flows ------------------------------------------------------------------------------------------------- */

static const char *const fabrics[] = {
    "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4}",
    "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"pod_nodes\": 8, \"oversubscription\": 2, \"core_oversubscription\": "
    "3}",
    "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"routing\": \"ecmp\", \"seed\": 3}",
    "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"routing\": \"ecmp\", \"paths_per_flow\": 4, \"failed\": "
    "[\"leaf1.up2\"], \"slow\": {\"leaf0.up5\": 3}}",
    "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 4, \"oversubscription\": 2, \"slow\": {\"node3.nic2\": 4}}",
    "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 4, \"routing\": \"ecmp\", \"placement\": \"scattered\"}",
    "{\"kind\": \"dragonfly+\", \"leaf_nodes\": 2, \"pod_nodes\": 4, \"core_oversubscription\": 2}",
    "{\"kind\": \"torus\", \"torus\": [4, 4], \"link_Bps\": 100e9}"};

/* --- asking ------------------------------------------------------------------------------------------------------ */

static char *question(const MsFlows *f, const double *Bps) {
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%u\n", f->n_links);
  for (guint32 l = 0; l < f->n_links; l++) g_string_append_printf(text, "%.17g ", Bps[l]);
  g_string_append_printf(text, "\n%u\n", f->n);
  for (guint32 i = 0; i < f->n; i++) {
    g_string_append_printf(text, "%.17g %u", f->bytes[i], f->first[i + 1] - f->first[i]);
    for (guint32 k = f->first[i]; k < f->first[i + 1]; k++) g_string_append_printf(text, " %u", f->link[k]);
    g_string_append_c(text, '\n');
  }
  return g_string_free(text, FALSE);
}

/* Ends of all flows within 2 % of SimGrid's; the largest difference. */
static double compare(const MsFlows *f, const double *Bps, const char *what) {
  g_autofree char *asked = question(f, Bps), *answer = ms_test_oracle_ask(oracle, asked);
  g_autoptr(MsFlowTimes) t = ms_flows_run(f, Bps, 0);
  double worst = 0;
  char *at = answer;
  for (guint32 i = 0; i < f->n; i++) {
    double end_s = g_ascii_strtod(at, &at), off = fabs(t->end_s[i] / end_s - 1);
    if (!(end_s > 0 && off <= 0.02))
      fail_msg("%s: flow %u ends at %g s, SimGrid says %g s", what, i, t->end_s[i], end_s);
    worst = MAX(worst, off);
  }
  return worst;
}

static void flows_end_as_simgrid_says(void **state) {
  (void)state;
  if (!oracle) {
    print_message("skipped: no SimGrid (libsimgrid-dev) or no g++\n");
    skip();
  }
  int n = 0;
  for (guint i = 0; i < G_N_ELEMENTS(fabrics); i++) {
    GError *error = NULL;
    g_autoptr(MsScenario) s = ms_test_experts_on(fabrics[i], 128, 64);
    g_autoptr(MsLayout) l = ms_layout_new(s, NULL);
    g_autoptr(MsFabricGraph) g = ms_fabric_graph_new(s, &error);
    if (!g) fail_msg("%s", error->message);
    g_autofree double *Bps = g_memdup2(g->Bps, sizeof *g->Bps * g->n_links);
    for (guint32 k = 0; k < g->n_links; k++)
      Bps[k] = MAX(Bps[k], 1); /* SimGrid knows no link of rate 0; none is used */
    for (guint k = 0; k < MS_TEST_TRAFFICS; k++, n++) {
      g_autoptr(MsFlows) f = ms_test_traffic[k](g, l);
      g_autofree char *what = g_strdup_printf("fabric %u, pattern %u", i, k);
      assert_true(f->n > 0);
      double worst = compare(f, Bps, what);
      if (worst > 0.001) print_message("%s: %u flows, off by %.2f %% at most\n", what, f->n, 100 * worst);
    }
  }
  assert_true(n >= 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(flows_end_as_simgrid_says)};
  return cmocka_run_group_tests(tests, build_oracle, remove_oracle);
}
