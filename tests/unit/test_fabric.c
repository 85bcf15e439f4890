/* Fabrics: flows against a slow solver written apart and against what fair sharing means; slowdowns against figures
 * worked out by hand; what a scenario's step makes of them; bad fabrics. */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/err.h"
#include "fabric/pattern.h"
#include "report/report.h"
#include "step/program.h"

#include <string.h>

/* --- random flows ---------------------------------------------------------------------------------------------- */

typedef struct {
  guint32 n, links, from[400], link[4000];
  double bytes[400], Bps[64];
} Case;

static Case *random_case(GRand *rand) {
  Case *c = g_new0(Case, 1);
  gboolean even = g_rand_boolean(rand); /* rates and bytes of which many are equal, as in a fabric */
  c->n = (guint32)g_rand_int_range(rand, 1, 120), c->links = (guint32)g_rand_int_range(rand, 1, 40);
  for (guint32 l = 0; l < c->links; l++)
    c->Bps[l] = even ? g_rand_int_range(rand, 1, 4) : g_rand_double_range(rand, 0.1, 10);
  for (guint32 i = 0; i < c->n; i++) {
    int hops = g_rand_int_range(rand, 1, 7);
    c->from[i + 1] = c->from[i];
    for (int k = 0; k < hops; k++) c->link[c->from[i + 1]++] = (guint32)g_rand_int_range(rand, 0, (gint32)c->links);
    c->bytes[i] = even ? g_rand_int_range(rand, 1, 3) : g_rand_double_range(rand, 0.01, 5);
  }
  return c;
}

static MsFlows *flows_of(const Case *c, const guint32 *order) {
  MsFlows *f = ms_flows_new(c->links);
  for (guint32 j = 0; j < c->n; j++) {
    guint32 i = order ? order[j] : j;
    ms_flows_add(f, c->bytes[i], c->link + c->from[i], c->from[i + 1] - c->from[i]);
  }
  return f;
}

static double passes(const Case *c, guint32 i, guint32 l) {
  double n = 0;
  for (guint32 k = c->from[i]; k < c->from[i + 1]; k++) n += c->link[k] == l;
  return n;
}

/* All rates grow together until a link is full; slow and plain. */
static void slow_rates(const Case *c, const double *left_B, double *rate) {
  gboolean grows[400];
  for (guint32 i = 0; i < c->n; i++) grows[i] = left_B[i] > 0, rate[i] = 0;
  for (;;) {
    double step = HUGE_VAL;
    for (guint32 l = 0; l < c->links; l++) {
      double used = 0, growing = 0;
      for (guint32 i = 0; i < c->n; i++) used += rate[i] * passes(c, i, l), growing += grows[i] ? passes(c, i, l) : 0;
      if (growing > 0) step = MIN(step, MAX(0, c->Bps[l] - used) / growing);
    }
    if (step == HUGE_VAL) return;
    for (guint32 i = 0; i < c->n; i++) rate[i] += grows[i] ? step : 0;
    for (guint32 l = 0; l < c->links; l++) {
      double used = 0;
      for (guint32 i = 0; i < c->n; i++) used += rate[i] * passes(c, i, l);
      for (guint32 i = 0; i < c->n; i++)
        if (used >= c->Bps[l] * (1 - 1e-11) && passes(c, i, l) > 0) grows[i] = FALSE;
    }
  }
}

static void slow_run(const Case *c, double *end_s) {
  double left_B[400], rate[400], now = 0;
  memcpy(left_B, c->bytes, sizeof left_B);
  for (guint32 left = c->n; left > 0;) {
    double next = HUGE_VAL;
    slow_rates(c, left_B, rate);
    for (guint32 i = 0; i < c->n; i++)
      if (left_B[i] > 0) next = MIN(next, left_B[i] / rate[i]);
    now += next;
    for (guint32 i = 0; i < c->n; i++) {
      if (left_B[i] <= 0) continue;
      left_B[i] -= rate[i] * next;
      if (left_B[i] <= 1e-9 * c->bytes[i]) left_B[i] = 0, end_s[i] = now, left--;
    }
  }
}

static void flows_end_as_the_slow_solver_says(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(5);
  for (int k = 0; k < ms_by_tier(40, 150); k++) {
    g_autofree Case *c = random_case(rand);
    g_autoptr(MsFlows) f = flows_of(c, NULL);
    g_autoptr(MsFlowTimes) t = ms_flows_run(f, c->Bps, 0);
    double end_s[400];
    slow_run(c, end_s);
    for (guint32 i = 0; i < c->n; i++) assert_close(t->end_s[i], end_s[i], 1e-7);
  }
}

/* Fair: each flow passes a full link on which none is faster. No link has more than its rate. */
static void rates_are_fair(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(6);
  for (int k = 0; k < 300; k++) {
    g_autofree Case *c = random_case(rand);
    g_autoptr(MsFlows) f = flows_of(c, NULL);
    double rate[400], used[64] = {0}, most[64] = {0};
    ms_flows_rates(f, c->Bps, rate);
    for (guint32 i = 0; i < c->n; i++)
      for (guint32 j = c->from[i]; j < c->from[i + 1]; j++)
        used[c->link[j]] += rate[i], most[c->link[j]] = MAX(most[c->link[j]], rate[i]);
    for (guint32 l = 0; l < c->links; l++) assert_true(used[l] <= c->Bps[l] * (1 + 1e-9));
    for (guint32 i = 0; i < c->n; i++) {
      gboolean held = FALSE;
      for (guint32 j = c->from[i]; j < c->from[i + 1]; j++)
        held |= used[c->link[j]] >= c->Bps[c->link[j]] * (1 - 1e-9) && rate[i] >= most[c->link[j]] * (1 - 1e-9);
      assert_true(held);
    }
  }
}

/* Every byte passes every link of its flow, in no less time than the link needs. */
static void bytes_are_conserved(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  for (int k = 0; k < 100; k++) {
    g_autofree Case *c = random_case(rand);
    g_autoptr(MsFlows) f = flows_of(c, NULL);
    g_autofree double *carried = ms_flows_carried(f);
    double slack = k % 2 ? 0.01 : 0, want = 0, got = 0, alone[64] = {0};
    g_autoptr(MsFlowTimes) t = ms_flows_run(f, c->Bps, slack);
    g_autoptr(MsFlowTimes) exact = ms_flows_run(f, c->Bps, 0);
    for (guint32 i = 0; i < c->n; i++)
      for (guint32 j = c->from[i]; j < c->from[i + 1]; j++)
        want += c->bytes[i], alone[c->link[j]] = MAX(alone[c->link[j]], t->end_s[i]);
    for (guint32 l = 0; l < c->links; l++) {
      got += carried[l];
      assert_true(carried[l] <= c->Bps[l] * alone[l] * (1 + 1e-9));
    }
    assert_close(got, want, 1e-12);
    assert_close(t->makespan_s, exact->makespan_s, k % 2 ? 0.2 : 1e-12);
    assert_true(t->fillings <= exact->fillings);
  }
}

static void the_order_of_flows_does_not_matter(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(8);
  for (int k = 0; k < 100; k++) {
    g_autofree Case *c = random_case(rand);
    guint32 order[400];
    for (guint32 i = 0; i < c->n; i++) order[i] = i;
    for (guint32 i = c->n; i-- > 1;) {
      guint32 j = (guint32)g_rand_int_range(rand, 0, (gint32)i + 1), was = order[i];
      order[i] = order[j], order[j] = was;
    }
    g_autoptr(MsFlows) a = flows_of(c, NULL);
    g_autoptr(MsFlows) b = flows_of(c, order);
    g_autoptr(MsFlowTimes) x = ms_flows_run(a, c->Bps, 0);
    g_autoptr(MsFlowTimes) y = ms_flows_run(b, c->Bps, 0);
    for (guint32 j = 0; j < c->n; j++) assert_memory_equal(&y->end_s[j], &x->end_s[order[j]], sizeof(double));
  }
}

static void a_link_that_is_down_ends_nothing(void **state) {
  (void)state;
  g_autoptr(MsFlows) f = ms_flows_new(2);
  ms_flows_add(f, 1, (const guint32[]){0, 1}, 2), ms_flows_add(f, 1, (const guint32[]){0}, 1);
  g_autoptr(MsFlowTimes) t = ms_flows_run(f, (const double[]){2, 0}, 0);
  assert_true(isinf(t->end_s[0]));
  assert_close(t->end_s[1], 0.5, 1e-12);
}

/* --- a job on a fabric ------------------------------------------------------------------------------------------ */

static double slowdown(const char *fabric, int gpus, MsGroupKind kind, MsPattern pattern) {
  GError *error = NULL;
  g_autoptr(MsScenario) s = ms_test_experts_on(fabric, gpus, 64);
  g_autoptr(MsLayout) l = ms_layout_new_or_error(s, &error);
  g_autoptr(MsFabricGraph) g = l ? ms_fabric_graph_new(s, &error) : NULL;
  if (!g) fail_msg("%s", error->message);
  MsFabricTime t;
  assert_true(ms_pattern_time(g, l, kind, pattern, &t, &error));
  return t.slowdown;
}

static double step_s(const char *fabric, int gpus) {
  g_autoptr(MsScenario) s = ms_test_experts_on(fabric, gpus, 64);
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
  return r->step_time_s;
}

static const char *const ideal[] = {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4}",
                                    "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"pod_nodes\": 8}",
                                    "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 4, \"spines\": 2}",
                                    "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 32, \"nodes\": 64}",
                                    "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"placement\": \"scattered\"}",
                                    "{\"kind\": \"dragonfly+\", \"leaf_nodes\": 4, \"pod_nodes\": 16}"};

/* Where nothing is shared, not one bit of a prediction changes. */
static void an_ideal_fabric_changes_nothing(void **state) {
  (void)state;
  double want = step_s("null", 128);
  for (guint i = 0; i < G_N_ELEMENTS(ideal); i++) {
    double got = step_s(ideal[i], 128);
    assert_memory_equal(&got, &want, sizeof got);
  }
}

/* Eight nodes under two leaves: of the 7 messages of a GPU 4 leave for the other leaf, 32 GPUs share 32 / o uplinks. */
static void oversubscription_by_hand(void **state) {
  (void)state;
  for (int o = 1; o <= 7; o++) {
    g_autofree char *f =
        g_strdup_printf("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": %d, \"link_Bps\": 1e9}", o);
    assert_close(slowdown(f, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), MAX(1, 4.0 * o / 7), 0.002);
  }
}

/* Rings of neighbours cross a leaf's border once a rail, so that few uplinks serve them; expert replicas 8 nodes apart
 * all cross at once. */
static void rings_cross_once(void **state) {
  (void)state;
  const char *f = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4}";
  assert_close(slowdown(f, 128, MS_GROUP_DP_CP, MS_PATTERN_RING), 1, 0);
  assert_close(slowdown(f, 128, MS_GROUP_EDP, MS_PATTERN_RING), 4, 1e-9);
}

/* Rounds of eight nodes below two leaves: of HCCL's the last takes 4 of 7 blocks to the other leaf, all at once; of
 * PAT's those to the next node carry 4 and cross twice, those two ahead 2 and cross with half of the nodes, those four
 * ahead 1 with all. */
static void rounds_by_hand(void **state) {
  (void)state;
  const char *hccl = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4}, \"collectives\": \"hccl\"";
  assert_close(slowdown(hccl, 64, MS_GROUP_DP_CP, MS_PATTERN_HALVING), (3 + 4 * 4) / 7.0, 1e-9);
  GError *error = NULL;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": {\"base\": \"h100-sxm\", \"collectives\": "
      "\"nccl-pat\", \"fabric\": {\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4}}, \"gpus\": "
      "64, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 64}, \"layout\": {\"tp\": 8}}");
  g_autoptr(MsLayout) l = ms_layout_new_or_error(s, &error);
  g_autoptr(MsFabricGraph) g = l ? ms_fabric_graph_new(s, &error) : NULL;
  if (!g) fail_msg("%s", error->message);
  MsFabricTime t;
  double times[64];
  assert_true(ms_pattern_time(g, l, MS_GROUP_DP_CP, MS_PATTERN_PAT, &t, &error));
  assert_close(t.slowdown, (4 * 1 + 2 * 2 + 1 * 4) / 7.0, 1e-9);
  assert_true(ms_pattern_group_times(g, l, MS_GROUP_DP_CP, MS_PATTERN_PAT, times, &error));
  for (int i = 0; i < 64; i++) assert_close(times[i], t.slowdown, 1e-9);
  assert_true(ms_pattern_serves(s->hardware, &l->group[MS_GROUP_DP_CP], MS_PATTERN_PAT));
  assert_false(ms_pattern_serves(s->hardware, &l->group[MS_GROUP_DP_CP], MS_PATTERN_HALVING));
}

static void a_slow_nic_slows_its_groups(void **state) {
  (void)state;
  const char *f = "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 32, \"slow\": {\"node3.nic2\": 4}}";
  assert_close(slowdown(f, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 4, 1e-9);
  const char *uplink = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"failed\": [\"leaf0.up3\"], \"oversubscription\": "
                       "4}"; /* 8 uplinks, of which 7 */
  assert_close(slowdown(uplink, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 4.0 / 7 * 32 / 7, 0.002);
}

/* 64 ranks on 8 nodes: 7 messages of each in an exchange; 8 rings of 8 hops of 4 links or, over a leaf's border, 4. Out
 * of every NIC goes what comes into every NIC. */
static void patterns_are_complete(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_experts_on(ideal[0], 64, 64);
  g_autoptr(MsLayout) l = ms_layout_new(s, NULL);
  g_autoptr(MsFabricGraph) g = ms_fabric_graph_new(s, NULL);
  g_autoptr(MsFlows) exchange = ms_pattern_flows(g, l, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE, NULL);
  g_autoptr(MsFlows) ring = ms_pattern_flows(g, l, MS_GROUP_TP_EP, MS_PATTERN_RING, NULL);
  g_autoptr(MsFlows) tree = ms_pattern_flows(g, l, MS_GROUP_TP_EP, MS_PATTERN_TREE, NULL);
  assert_int_equal(exchange->n, 64 * 7);
  assert_int_equal(ring->n, 8);
  assert_int_equal(ring->first[1], 8 * 2 + 2 * 2); /* two NICs a hop, and two borders of two links */
  assert_int_equal(tree->n, 8 * 2);
  const MsFlows *all[] = {exchange, ring, tree};
  for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
    g_autofree double *carried = ms_flows_carried(all[i]);
    double out = 0, in = 0, bytes = g->nic_Bps;
    for (guint32 n = g->first_nic; n < g->first_leaf; n += 2) {
      out += carried[n], in += carried[n + 1];
      if (i < 2) assert_close(carried[n], bytes, 1e-9);
    }
    assert_close(out, in, 1e-12);
    assert_close(out, i < 2 ? 64 * bytes : 8 * 14 * bytes, 1e-9); /* of a tree 7 edges up and down, half in each */
  }
}

/* One path for each flow is never better than all paths, two queue pairs never worse than one by much. */
static void hashes_collide(void **state) {
  (void)state;
  double one = slowdown("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"routing\": \"ecmp\"}", 128, MS_GROUP_TP_EP,
                        MS_PATTERN_EXCHANGE);
  double many = slowdown("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"routing\": \"ecmp\", \"paths_per_flow\": 16}",
                         128, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE);
  double other = slowdown("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"routing\": \"ecmp\", \"seed\": 7}", 128,
                          MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE);
  assert_true(one > 1.2 && one < 3);
  assert_true(many < one && many >= 1);
  assert_true(other != one && other > 1.2);
}

/* Two jobs on leaves of their own do not meet; on nodes that were drawn they share the uplinks. */
static void jobs_meet(void **state) {
  (void)state;
  const char *leaves = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4, \"jobs\": %d, "
                       "\"nodes\": %d, \"placement\": \"%s\"}";
  double s[2][2];
  for (int jobs = 1; jobs <= 2; jobs++)
    for (int drawn = 0; drawn < 2; drawn++) {
      g_autofree char *f = g_strdup_printf(leaves, jobs, drawn ? 24 : 0, drawn ? "scattered" : "contiguous");
      s[jobs - 1][drawn] = slowdown(f, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE);
    }
  assert_memory_equal(&s[0][0], &s[1][0], sizeof(double));
  if (!(s[1][1] > s[0][1] * 1.05)) fail_msg("alone %g, beside another job %g", s[0][1], s[1][1]);
}

/* A torus of 2 x 4 nodes: rings of neighbours are its own; by dimension order an exchange loads links by hand. */
static void torus_by_hand(void **state) {
  (void)state;
  const char *f = "{\"kind\": \"torus\", \"torus\": [8], \"link_Bps\": 400e9}";
  /* 8 GPUs x 1 / 7 of a NIC to each node; on a ring of 8, up to 4 ahead: 1 + 2 + 3 + 4 ways over each link ahead */
  g_autoptr(MsScenario) s = ms_test_experts_on(f, 64, 64);
  double nic = s->hardware->nic_Bps;
  assert_close(slowdown(f, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), MAX(1, 10.0 * 8 / 7 * nic / 400e9), 0.01);
}

/* A GPU's link to its PCIe switch carries all that it sends. With fewer switches' NICs than switches, what GPUs send to
 * the NIC of another switch passes both links to the host: 4 NICs behind every second of 8 switches, so that of 2 GPUs
 * at each one is behind the next switch. */
static void pcie_by_hand(void **state) {
  (void)state;
  const char *half = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"pcie_gpus\": 2, \"pcie_Bps\": 25e9}",
             *two = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"nics_per_node\": 16, \"pcie_gpus\": 4, "
                    "\"pcie_Bps\": 25e9}",
             *wide = "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 4, \"pcie_gpus\": 2}",
             *slow = "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 4, \"pcie_gpus\": 2, \"pcie_Bps\": 50e9, "
                     "\"slow\": {\"node3.pcie2\": 4}}",
             *across = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"nics_per_node\": 4, \"pcie_gpus\": 1, "
                       "\"pcie_Bps\": 50e9}";
  assert_close(slowdown(half, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 2, 1e-9);
  assert_close(slowdown(two, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 2, 1e-9);
  assert_close(slowdown(wide, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 1, 0);
  assert_close(slowdown(slow, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 4, 1e-9);
  assert_close(slowdown(across, 64, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE), 1, 0);
  g_autoptr(MsScenario) s = ms_test_experts_on(across, 64, 64);
  g_autoptr(MsFabricGraph) g = ms_fabric_graph_new(s, NULL);
  guint32 link[MS_FABRIC_PATH_MAX];
  g_autoptr(GString) way = g_string_new(NULL);
  for (int i = 0, n = ms_fabric_path(g, 1, 10, 0, 0, link); i < n; i++) {
    char name[MS_LINK_NAME];
    g_string_append_printf(way, "%s ", ms_fabric_link_name(g, link[i], name));
  }
  assert_string_equal(way->str, "node0.nic0 node0.pcie1 node0.switch1 node0.switch0.in node1.pcie2.in node1.nic1.in ");
}

/* More oversubscription is never faster, and costs something in a step. */
static void steps_follow(void **state) {
  (void)state;
  double last = step_s("null", 128);
  for (int o = 1; o <= 8; o *= 2) {
    g_autofree char *f = g_strdup_printf("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": %d}", o);
    double now = step_s(f, 128);
    assert_true(o == 1 ? now == last : o == 2 ? now >= last : now > last);
    last = now;
  }
}

/* --- segments and seats ------------------------------------------------------------------------------------------ */

static MsGroup group_on_nvl72(const char *fabric, MsGroupKind kind) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"model\": \"qwen3-30b-a3b\", \"hardware\": {\"base\": \"gb200-nvl72\", \"fabric\": %s}, "
      "\"gpus\": 576, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 2304}, \"layout\": {\"ep\": 32}}",
      fabric);
  g_autoptr(MsScenario) s = ms_test_scenario_of(text);
  g_autoptr(MsLayout) l = ms_layout_new(s, NULL);
  assert_non_null(l);
  return l->group[kind];
}

static void segments_cut_groups(void **state) {
  (void)state;
  MsGroup whole = group_on_nvl72("{\"kind\": \"fat-tree\", \"segment_gpus\": 32}", MS_GROUP_EP);
  assert_int_equal(whole.domains, 1);
  MsGroup cut = group_on_nvl72("{\"kind\": \"fat-tree\", \"segment_gpus\": 36}", MS_GROUP_EP);
  assert_int_equal(cut.domains, 2);
  assert_int_equal(cut.min_per_domain, 4);
}

static void seats_are_a_permutation(void **state) {
  (void)state;
  static const char *const placements[] = {"\"contiguous\"", "\"by-rail\"", "\"scattered\"",
                                           "[3, 1, 2, 9, 8, 7, 15, 14, 0, 4, 5, 6, 10, 11, 12, 13]"};
  for (guint i = 0; i < G_N_ELEMENTS(placements); i++) {
    g_autofree char *f =
        g_strdup_printf("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"nodes\": 16, \"placement\": %s}", placements[i]);
    g_autoptr(MsScenario) s = ms_test_experts_on(f, 128, 64);
    g_autoptr(MsSeats) seats = ms_seats_new(s->hardware, 128, NULL, 0);
    gboolean taken[128] = {FALSE};
    for (int r = 0; r < 128; r++) {
      assert_in_range(seats->gpu[r], 0, 127);
      assert_false(taken[seats->gpu[r]]);
      taken[seats->gpu[r]] = TRUE;
    }
  }
}

/* Groups measured seat by seat are those of the closed form where ranks sit in a row. */
static void seats_in_a_row_measure_alike(void **state) {
  (void)state;
  g_autoptr(MsScenario) plain = ms_test_experts_on("{\"kind\": \"fat-tree\"}", 128, 64);
  g_autoptr(MsScenario) listed = ms_test_experts_on(
      "{\"kind\": \"fat-tree\", \"placement\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}", 128, 64);
  g_autoptr(MsLayout) a = ms_layout_new(plain, NULL);
  g_autoptr(MsLayout) b = ms_layout_new(listed, NULL);
  for (int k = MS_GROUP_NONE + 1; k < MS_N_GROUPS; k++)
    assert_memory_equal(&a->group[k], &b->group[k], sizeof a->group[k]);
  assert_memory_equal(a->pp_across, b->pp_across, sizeof a->pp_across);
}

/* --- messages between stages ------------------------------------------------------------------------------------- */

static MsScenario *pipeline_on(const char *hardware, const char *fabric, int gpus, const char *layout) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": {\"base\": \"%s\", \"fabric\": %s}, \"gpus\": %d, "
      "\"training\": {\"seq_length\": 8192, \"global_batch_size\": 64}, \"cluster\": {\"jitter\": false}, "
      "\"layout\": %s}",
      hardware, fabric, gpus, layout);
  return ms_test_scenario_of(text);
}

/* Stages of a pipeline in two racks of 64 GPUs, 16 to a stage: only two of eight messages leave a rack. */
static void messages_inside_a_rack_stay_there(void **state) {
  (void)state;
  const char *layout = "{\"tp\": 4, \"cp\": 2, \"pp\": 8, \"vpp\": 2}";
  g_autoptr(MsScenario) racks =
      pipeline_on("gb200-nvl72", "{\"kind\": \"fat-tree\", \"segment_gpus\": 64}", 128, layout);
  g_autoptr(MsScenario) apart =
      pipeline_on("gb200-nvl72", "{\"kind\": \"fat-tree\", \"segment_gpus\": 16}", 128, layout);
  GError *error = NULL;
  g_autoptr(MsDetail) a = NULL, b = NULL;
  g_autoptr(MsResult) in_racks = ms_simulate(racks, MS_FIDELITY_FULL, &a, &error),
                      all_apart = ms_simulate(apart, MS_FIDELITY_FULL, &b, &error),
                      fast = ms_simulate(racks, MS_FIDELITY_FAST, NULL, &error);
  if (!in_racks || !all_apart || !fast) fail_msg("%s", error->message);
  const MsProgram *p = a->owned, *q = b->owned;
  double inside_s = ms_program_p2p(p, 0, 1)->time_s, across_s = ms_program_p2p(p, 3, 4)->time_s;
  assert_true(inside_s * 5 < across_s);
  for (int i = 0; i < 8; i++) {
    const MsOpCost *on = ms_program_p2p(p, i, (i + 1) % 8), *back = ms_program_p2p(p, (i + 1) % 8, i);
    assert_true(on->time_s == (i % 4 == 3 ? across_s : inside_s) && on->level == (i % 4 == 3));
    assert_true(back->time_s == on->time_s && back->level == on->level);
    assert_true(ms_program_p2p(q, i, (i + 1) % 8)->time_s == across_s);
  }
  assert_true(in_racks->step_time_s < all_apart->step_time_s);
  assert_true(in_racks->step_time_lower_s <= in_racks->step_time_s);
  assert_true(fabs(fast->step_time_s / in_racks->step_time_s - 1) < 0.02);
  guint32 by_level[2] = {0};
  for (guint32 i = 0; i < ms_graph_count(a->graph); i++) {
    const MsTask *task = ms_graph_task(a->graph, i);
    if (a->tag_op[task->tag] == &p->p2p_op && task->duration > 0) by_level[task->use == MS_USE_LINK1]++;
  }
  assert_int_equal(by_level[0] * 3, by_level[1] * 12); /* 12 of 15 messages of a microbatch stay in a rack */
}

/* A node to a stage, two nodes to a leaf with half as many uplinks as a node has NICs: messages from one leaf to
 * another take twice as long, the one that closes an interleaved pipeline among them. */
static void messages_have_their_own_paths(void **state) {
  (void)state;
  const char *fabric = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 4}";
  for (int vpp = 1; vpp <= 2; vpp++) {
    g_autofree char *layout = g_strdup_printf("{\"tp\": 8, \"pp\": 8, \"vpp\": %d}", vpp);
    g_autoptr(MsScenario) s = pipeline_on("h100-sxm", fabric, 64, layout);
    g_autoptr(MsLayout) l = ms_layout_new(s, NULL);
    MsFabricCosts *costs = ms_fabric_costs_new(s, NULL);
    double times[8], each[64];
    assert_true(ms_fabric_pair_slowdowns(costs, l, times, NULL));
    assert_true(ms_pattern_message_times(ms_fabric_costs_graph(costs), l, each, NULL));
    ms_fabric_costs_unref(costs);
    for (int i = 0; i < 8; i++) assert_close(times[i], i % 2 && (i < 7 || vpp == 2) ? 2 : 1, 1e-9);
    for (int r = 0; r < 64; r++) assert_close(each[r], times[r / 8], 1e-9);
    g_autoptr(MsDetail) d = NULL;
    g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &d, NULL);
    const MsProgram *p = d->owned;
    assert_true(ms_program_p2p(p, 1, 2)->time_s > 1.5 * ms_program_p2p(p, 0, 1)->time_s);
    assert_true(ms_program_p2p(p, 2, 1)->time_s == ms_program_p2p(p, 1, 2)->time_s);
    assert_true(full->step_time_lower_s <= full->step_time_s);
  }
}

/* --- bad ones --------------------------------------------------------------------------------------------------- */

static void bad_fabrics_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *fabric, *why;
  } bad[] = {
      {"{\"kind\": \"fat-tree\", \"nodes\": 8}", "fabric of 8 nodes for a job that needs 16"},
      {"{\"kind\": \"fat-tree\", \"switch_ports\": 64}", "a leaf needs 128 ports, switches have 64"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"switch_ports\": 63}", "a leaf needs 64 ports"},
      {"{\"kind\": \"rail-optimized\", \"rails\": 3}", "3 rails do not divide the 8 NICs"},
      {"{\"kind\": \"fat-tree\", \"nics_per_node\": 3}", "3 NICs for 8 GPUs"},
      {"{\"kind\": \"fat-tree\", \"pcie_gpus\": 3}", "3 behind a PCIe switch do not divide the 8 GPUs"},
      {"{\"kind\": \"fat-tree\", \"pcie_gpus\": 2, \"nics_per_node\": 2, \"failed\": [\"node0.pcie9\"]}",
       "nothing of this"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"failed\": [\"node3.nic1\"]}", "rank 25, node3.gpu1, is left"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"failed\": [\"leaf2\"]}", "without a NIC"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"leaf_uplinks\": 2, \"failed\": [\"leaf1.up0\", \"leaf2.up1\"]}",
       "disconnected: no spine joins leaf1 and leaf2"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"failed\": [\"leaf9.up0\"]}", "names nothing of this fabric"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"slow\": {\"leaf0.up77\": 2}}", "names nothing of this fabric"},
      {"{\"kind\": \"dragonfly+\", \"leaf_nodes\": 1, \"pod_nodes\": 1, \"leaf_uplinks\": 1, \"spine_uplinks\": 2}",
       "disconnected: a group has 2 links to 15 others"},
      {"{\"kind\": \"torus\", \"torus\": [3, 5]}", "holds 15 nodes, must hold 16"},
      {"{\"kind\": \"fat-tree\", \"nodes\": 1000000, \"leaf_nodes\": 1, \"leaf_uplinks\": 1000}", "links"},
      {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4, \"spines\": 3}", "3 spines do not divide"},
      {"{\"kind\": \"fat-tree\", \"segment_gpus\": 9}", "segments of 9 GPUs in scale-up domains of 8"},
      {"{\"kind\": \"fat-tree\", \"placement\": [1, 2, 3]}", "placement names 3 nodes, the job has 16"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
    GError *error = NULL;
    g_autoptr(MsScenario) s = ms_test_experts_on(bad[i].fabric, 128, 64);
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
    if (r) fail_msg("accepted: %s", bad[i].fabric);
    if (!strstr(error->message, bad[i].why)) fail_msg("%s: %s", bad[i].fabric, error->message);
    assert_int_equal(error->code, MS_ERROR_INPUT);
    assert_null(strchr(error->message, '\n'));
    g_error_free(error);
  }
}

static void a_fabric_is_drawn_level_by_level(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) s =
      ms_test_experts_on("{\"kind\": \"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 2}", 128, 64);
  g_autofree char *text = ms_report_fabric(s, FALSE, &error);
  assert_non_null(strstr(text, "       16  spines\n"
                               "         |    64 x leaf to spine, 50.00 GB/s each\n"
                               "        4  leaves\n"
                               "         |    128 x NIC, 50.00 GB/s each\n"
                               "       16  nodes\n"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(flows_end_as_the_slow_solver_says),
                                     cmocka_unit_test(rates_are_fair),
                                     cmocka_unit_test(bytes_are_conserved),
                                     cmocka_unit_test(the_order_of_flows_does_not_matter),
                                     cmocka_unit_test(a_link_that_is_down_ends_nothing),
                                     cmocka_unit_test(an_ideal_fabric_changes_nothing),
                                     cmocka_unit_test(oversubscription_by_hand),
                                     cmocka_unit_test(rings_cross_once),
                                     cmocka_unit_test(a_slow_nic_slows_its_groups),
                                     cmocka_unit_test(patterns_are_complete),
                                     cmocka_unit_test(hashes_collide),
                                     cmocka_unit_test(torus_by_hand),
                                     cmocka_unit_test(jobs_meet),
                                     cmocka_unit_test(rounds_by_hand),
                                     cmocka_unit_test(pcie_by_hand),
                                     cmocka_unit_test(steps_follow),
                                     cmocka_unit_test(segments_cut_groups),
                                     cmocka_unit_test(seats_are_a_permutation),
                                     cmocka_unit_test(seats_in_a_row_measure_alike),
                                     cmocka_unit_test(messages_inside_a_rack_stay_there),
                                     cmocka_unit_test(messages_have_their_own_paths),
                                     cmocka_unit_test(a_fabric_is_drawn_level_by_level),
                                     cmocka_unit_test(bad_fabrics_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
