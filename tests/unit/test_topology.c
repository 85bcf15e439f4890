/* Fabrics from Slurm's topology.conf and from NCCL's description of a node. */
#include "lib/close.h"
#include "lib/world.h"

#include "base/err.h"
#include "logs/topology.h"
#include "sim/simulate.h"

#include <stdlib.h>
#include <string.h>

static void lists_of_hosts(void **state) {
  (void)state;
  static const struct {
    const char *list, *names;
  } cases[] = {{"a", "a"},
               {"a,b", "a b"},
               {"n[0-2,7]", "n0 n1 n2 n7"},
               {"n[08-11],login", "n08 n09 n10 n11 login"},
               {"r[1-2]n[0-1]x", "r1n0x r1n1x r2n0x r2n1x"}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *why = NULL;
    g_autoptr(GPtrArray) names = ms_host_list(cases[i].list, 100, &why);
    assert_non_null(names);
    g_ptr_array_add(names, NULL);
    g_autofree char *all = g_strjoinv(" ", (char **)names->pdata);
    assert_string_equal(all, cases[i].names);
  }
  static const char *const bad[] = {"", "n[0-", "n[2-1]", "n[a]", "n[]", "a,,b", "n[0-999]"};
  for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autofree char *why = NULL;
    assert_null(ms_host_list(bad[i], 100, &why));
    assert_non_null(why);
  }
}

static char *read_all(MsTopologyForm form, const char *text, const char *nodes, GError **error) {
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  return ms_topology_machine(form, text, "x.conf", "h100-sxm", nodes, notes, error);
}

static const char two_pods[] = "# two pods of two leaves\n"
                               "SwitchName=leaf0 Nodes=n[0-3]\nSwitchName=leaf1 Nodes=n[4-7] LinkSpeed=100\n"
                               "SwitchName=leaf2 Nodes=n[8-11]\nSwitchName=leaf3 \\\n  Nodes=n[12-14]\n"
                               "switchname=pod0 switches=leaf[0-1]\nSwitchName=pod1 Switches=leaf2,leaf3\n"
                               "SwitchName=core Switches=pod[0-1]\n";

/* The machine that comes out is one: a scenario on it has leaves and pods, and its ranks sit where the list says. */
static void slurm_makes_a_fabric(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *json = read_all(MS_TOPOLOGY_SLURM, two_pods, "n[2-3,12-13]", &error);
  if (!json) fail_msg("%s", error->message);
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": %s, \"gpus\": 32, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": 64}}",
      json);
  g_autoptr(MsScenario) s = ms_test_scenario_of(text);
  const MsFabric *f = &s->hardware->fabric;
  assert_int_equal(f->kind, MS_FABRIC_FAT_TREE);
  assert_int_equal(f->nodes, 16);
  assert_int_equal(f->leaf_nodes, 4);
  assert_int_equal(f->pod_nodes, 8);
  static const int want[] = {2, 3, 12, 13};
  JsonArray *place = json_node_get_array(f->placement);
  for (guint i = 0; i < 4; i++) assert_int_equal(json_array_get_int_element(place, i), want[i]);
}

/* Two nodes on two rails, two spines with two links to each leaf. */
static void ports_make_a_fabric(void **state) {
  (void)state;
  GString *text = g_string_new("vendid=0x2c9\n");
  for (int leaf = 0; leaf < 2; leaf++) {
    g_string_append_printf(text, "Switch\t4 \"S-%d\"\t# \"leaf%d\" lid 1\n", leaf, leaf);
    for (int node = 0; node < 2; node++)
      g_string_append_printf(text, "[%d]\t\"H-%d%d\"[1](1)\t# \"node%d mlx5_%d\" lid 5 4xNDR\n", node + 1, node, leaf,
                             node, leaf);
    for (int up = 0; up < 4; up++)
      g_string_append_printf(text, "[%d]\t\"S-spine%d\"[1]\t# \"spine\" lid 9 4xHDR\n", up + 3, up / 2);
  }
  g_string_append(text, "Switch\t4 \"S-spine0\"\t# \"spine\"\n[1]\t\"S-0\"[3]\t# \"leaf0\" lid 1 4xHDR\n"
                        "Ca\t1 \"H-00\"\t# \"node0 mlx5_0\"\n[1](1)\t\"S-0\"[1]\t# lid 5 \"leaf0\" lid 1 4xNDR\n");
  GError *error = NULL;
  g_autofree char *json = read_all(MS_TOPOLOGY_IB, text->str, "node1,node0", &error);
  g_string_free(text, TRUE);
  if (!json) fail_msg("%s", error->message);
  static const char *const says[] = {"\"kind\": \"rail-optimized\"",
                                     "\"nodes\": 2",
                                     "\"nics_per_node\": 2",
                                     "\"rails\": 2",
                                     "\"leaf_nodes\": 2",
                                     "\"leaf_uplinks\": 4",
                                     "\"spines\": 2",
                                     "\"link_Bps\": 25000000000",
                                     "\"placement\": [1, 0]"};
  for (guint i = 0; i < G_N_ELEMENTS(says); i++)
    if (!strstr(json, says[i])) fail_msg("no %s in %s", says[i], json);
}

/* A block of ibnetdiscover: `up` "NAME*COUNT ..." switches it is joined to, `node` nodes that hang on it. Every switch
 * has the port of its aggregation node, as they have where SHARP is on. */
static void add_switch(GString *text, const char *name, const char *up, const char *node, const char *speed) {
  g_auto(GStrv) ups = g_strsplit(up, " ", -1), nodes = g_strsplit(node, " ", -1);
  int port = 1;
  g_string_append_printf(text, "Switch\t41 \"S-%s\"\t# \"%s\" enhanced port 0 lid 1 lmc 0\n", name, name);
  for (int i = 0; *node && nodes[i]; i++)
    g_string_append_printf(text, "[%d]\t\"H-%s-%s\"[1](1)\t# \"%s mlx5_0\" lid 5 4xHDR\n", port++, nodes[i], name,
                           nodes[i]);
  for (int i = 0; *up && ups[i]; i++) {
    g_auto(GStrv) part = g_strsplit(ups[i], "*", 2);
    for (int k = 0; k < atoi(part[1]); k++)
      g_string_append_printf(text, "[%d]\t\"S-%s\"[%d]\t# \"%s\" lid 9 %s\n", port++, part[0], k, part[0], speed);
  }
  g_string_append_printf(text, "[41]\t\"H-a%s\"[1](1)\t# \"Mellanox Technologies Aggregation Node\" lid 7 4xHDR\n",
                         name);
}

static void expect_fabric(const char *text, const char *nodes, const char *const *says, const char *note) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *json = ms_topology_machine(MS_TOPOLOGY_IB, text, "x", "h100-sxm", nodes, notes, &error);
  if (!json) fail_msg("%s", error->message);
  for (int i = 0; says[i]; i++)
    if (!strstr(json, says[i])) fail_msg("no %s in %s", says[i], json);
  gboolean noted = FALSE;
  for (guint i = 0; i < notes->len; i++) noted |= note && strstr(notes->pdata[i], note);
  if (noted != (note != NULL) || (!note && notes->len > 0)) fail_msg("%u notes, not %s", notes->len, note);
  g_autofree char *scenario = g_strdup_printf(
      "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": %s, \"gpus\": 32, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": 64}}",
      json);
  g_autoptr(MsScenario) s = ms_test_scenario_of(scenario);
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
  if (!r) fail_msg("%s", error->message);
}

/* Leaves, spines and core by what leads to what, in whatever order they stand; the second pod is a leaf short. */
static void tiers_follow_from_links(void **state) {
  (void)state;
  g_autoptr(GString) text = g_string_new(NULL);
  add_switch(text, "core0", "p0s0*2 p0s1*2 p1s0*2 p1s1*2", "", "4xNDR");
  add_switch(text, "p1s0", "p1l0*2 core0*2", "", "4xNDR");
  add_switch(text, "p1l0", "p1s0*2 p1s1*2", "n4 n5", "4xHDR");
  add_switch(text, "p0s0", "p0l0*2 p0l1*2 core0*2", "", "4xNDR");
  add_switch(text, "p0s1", "p0l0*2 p0l1*2 core0*2", "", "4xNDR");
  add_switch(text, "p0l0", "p0s0*2 p0s1*2", "n0 n1", "4xHDR");
  add_switch(text, "p0l1", "p0s0*2 p0s1*2", "n2 n3", "4xHDR");
  add_switch(text, "p1s1", "p1l0*2 core0*2", "", "4xNDR");
  expect_fabric(text->str, "n[0-1,4-5]",
                (const char *const[]){"\"kind\": \"fat-tree\"", "\"nodes\": 8", "\"nics_per_node\": 1",
                                      "\"leaf_nodes\": 2", "\"leaf_uplinks\": 4", "\"spines\": 2", "\"pod_nodes\": 4",
                                      "\"spine_uplinks\": 2", "\"link_Bps\": 25000000000",
                                      "\"placement\": [4, 5, 0, 1]", NULL},
                "the pod of S-p1s0 has 1 leaves");
}

/* Spines that lead to those of other groups: a dragonfly+. */
static void groups_follow_from_links(void **state) {
  (void)state;
  g_autoptr(GString) text = g_string_new(NULL);
  for (int g = 0; g < 3; g++) {
    char name[3][8], up[64], node[16];
    g_snprintf(name[0], 8, "l%d", g), g_snprintf(name[1], 8, "a%d", g), g_snprintf(name[2], 8, "b%d", g);
    g_snprintf(up, sizeof up, "a%d*1 b%d*1", g, g), g_snprintf(node, sizeof node, "n%d m%d", g, g);
    add_switch(text, name[0], up, node, "4xHDR");
    g_snprintf(up, sizeof up, "l%d*1 a%d*3", g, (g + 1) % 3);
    add_switch(text, name[1], up, "", "4xHDR");
    g_snprintf(up, sizeof up, "l%d*1 b%d*3", g, (g + 2) % 3);
    add_switch(text, name[2], up, "", "4xHDR");
  }
  expect_fabric(text->str, "n0,n2,m[1-2]",
                (const char *const[]){"\"kind\": \"dragonfly+\"", "\"nodes\": 6", "\"leaf_nodes\": 2",
                                      "\"leaf_uplinks\": 2", "\"spines\": 2", "\"pod_nodes\": 2",
                                      "\"spine_uplinks\": 3", "\"placement\": [0, 4, 3, 5]", NULL},
                NULL);
}

static void nccl_describes_a_node(void **state) {
  (void)state;
  const char *xml =
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0\"><pci busid=\"1\"><gpu dev=\"0\" sm=\"90\"/>"
      "</pci><pci busid=\"2\"><nic><net name=\"mlx5_0\" speed=\"400000\"/></nic></pci></pci>"
      "<pci busid=\"3\"><gpu dev=\"1\" sm=\"90\"/><nic><net name=\"mlx5_1\" speed=\"200000\"/></nic></pci>"
      "</cpu></system>";
  GError *error = NULL;
  g_autofree char *json = read_all(MS_TOPOLOGY_NCCL, xml, NULL, &error);
  if (!json) fail_msg("%s", error->message);
  assert_non_null(strstr(json, "\"gpus_per_node\": 2"));
  assert_non_null(strstr(json, "\"nic_Bps\": 25000000000"));
  assert_non_null(strstr(json, "\"nics_per_node\": 2"));
}

static void bad_files_are_refused(void **state) {
  (void)state;
  static const struct {
    MsTopologyForm form;
    const char *text, *nodes, *says;
  } cases[] = {
      {MS_TOPOLOGY_SLURM, "", NULL, "x.conf:1: no SwitchName: this is no topology.conf of topology/tree"},
      {MS_TOPOLOGY_SLURM, "SwitchName=a\n", NULL, "x.conf:1: switch a must have Nodes or Switches, and one of them"},
      {MS_TOPOLOGY_SLURM, "\nSwitchName=a Nods=n1\n", NULL,
       "x.conf:2: unknown key \"Nods\", must be SwitchName, Nodes, Switches or LinkSpeed"},
      {MS_TOPOLOGY_SLURM, "SwitchName=a Nodes=n[0-\n", NULL, "x.conf:1: a bracket is not closed at \"[0-\""},
      {MS_TOPOLOGY_SLURM, "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n", NULL,
       "x.conf:1: switch a is joined to no other"},
      {MS_TOPOLOGY_SLURM, "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\nSwitchName=s Switches=a,b\n", NULL,
       "x.conf:2: node n1 hangs on two switches"},
      {MS_TOPOLOGY_SLURM, "SwitchName=s Switches=a\n", NULL, "x.conf:1: switch s has an unknown switch a below it"},
      {MS_TOPOLOGY_SLURM, "SwitchName=s Switches=t\nSwitchName=t Switches=s\n", NULL,
       "x.conf:1: switch s: more than eight tiers, or a circle"},
      {MS_TOPOLOGY_SLURM, "SwitchName=a Nodes=n1\n", "n2", "x.conf: no switch has the node n2"},
      {MS_TOPOLOGY_SLURM, "SwitchName=a Nodes=n[1-2]\n", "n[1-2],n1", "x.conf: list of nodes: n1 stands in it twice"},
      {MS_TOPOLOGY_SLURM, "SwitchName= Nodes=n1\n", NULL, "x.conf:1: SwitchName is missing"},
      {MS_TOPOLOGY_SLURM, "SwitchName=a Nodes=n1 Nodes=n2\n", NULL, "x.conf:1: Nodes stands here twice"},
      {MS_TOPOLOGY_IB, "Ca\t1 \"H-0\"\n", NULL, "x.conf:1: no Switch: this is nothing that ibnetdiscover prints"},
      {MS_TOPOLOGY_IB, "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1]\n", NULL,
       "x.conf:2: a port must be joined to \"H-...\" or \"S-...\" and say what that is behind #"},
      {MS_TOPOLOGY_IB,
       "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1] # \"a\"\n[2]\t\"S-1\"[2] # \"b\"\nSwitch\t4 \"S-1\"\n"
       "[1]\t\"H-1\"[1] # \"c\"\n[2]\t\"S-0\"[2] # \"d\"\n",
       NULL, "x.conf:1: two switches with nodes are joined: a fabric has leaves and spines"},
      {MS_TOPOLOGY_IB, "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1] # \"a\"\nSwitch\t4 \"S-1\"\n[1]\t\"H-1\"[1] # \"b\"\n", NULL,
       "x.conf:1: disconnected: switch S-0 is joined to no other"},
      {MS_TOPOLOGY_IB,
       "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1] # \"a\"\n[2]\t\"S-2\"[1] # \"s\"\nSwitch\t4 \"S-1\"\n[1]\t\"H-1\"[1] # "
       "\"b\"\n[2]\t\"S-3\"[1] # \"s\"\n",
       NULL, "x.conf:4: disconnected: no way from S-0 to S-1"},
      {MS_TOPOLOGY_IB,
       "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1] # \"a\"\n[2]\t\"S-1\"[1] # \"s\"\nSwitch\t4 \"S-1\"\n[1]\t\"S-2\"[1] # "
       "\"s\"\nSwitch\t4 \"S-2\"\n[1]\t\"S-3\"[1] # \"s\"\n",
       NULL, "x.conf:7: S-3 is of a fourth tier, a fabric has three"},
      {MS_TOPOLOGY_IB,
       "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1] # \"a\"\n[2]\t\"S-1\"[1] # \"s\"\n[3]\t\"S-2\"[1] # \"s\"\nSwitch\t4 "
       "\"S-1\"\n[1]\t\"S-2\"[1] # \"s\"\n",
       NULL, "x.conf:6: S-1 and S-2 are joined and of one tier"},
      {MS_TOPOLOGY_IB,
       "Switch\t4 \"S-0\"\n[1]\t\"H-0\"[1] # \"a\"\n[2]\t\"H-1\"[1] # \"b\"\n[3]\t\"S-2\"[1] # \"s\"\nSwitch\t4 "
       "\"S-1\"\n[1]\t\"H-2\"[1] # \"b\"\n[2]\t\"H-3\"[1] # \"c\"\n[3]\t\"S-2\"[1] # \"s\"\n",
       NULL, "x.conf:5: switch S-1 has some nodes of an earlier switch, and others"},
      {MS_TOPOLOGY_IB, "Switch\t4 \"S-0\"\nSwitch\t4 \"S-0\"\n", NULL, "x.conf:2: switch S-0 stands here twice"},
      {MS_TOPOLOGY_NCCL, "<system><gpu/></system>", NULL, "x.conf:1: no <net>: the node has no NIC that NCCL knows"},
      {MS_TOPOLOGY_NCCL, "<system><gpu/><net speed=\"-400000\"/></system>", NULL,
       "x.conf:1: <net speed=\"-400000\">: must be 1 to 1e8, in Mbit/s"},
      {MS_TOPOLOGY_NCCL, "<system><gpu/><net speed=\"1e30\"/></system>", NULL,
       "x.conf:1: <net speed=\"1e30\">: must be 1 to 1e8, in Mbit/s"},
      {MS_TOPOLOGY_NCCL, "<system/>", NULL, "x.conf:1: no <gpu>: this is no file of NCCL_TOPO_DUMP_FILE"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    g_autofree char *json = read_all(cases[i].form, cases[i].text, cases[i].nodes, &error);
    assert_null(json);
    assert_string_equal(error->message, cases[i].says);
  }
  g_autoptr(GError) error = NULL;
  assert_null(read_all(MS_TOPOLOGY_NCCL, "<system><gpu></system>", NULL, &error));
  assert_true(g_str_has_prefix(error->message, "x.conf:1: "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_of_hosts),           cmocka_unit_test(slurm_makes_a_fabric),
      cmocka_unit_test(ports_make_a_fabric),      cmocka_unit_test(tiers_follow_from_links),
      cmocka_unit_test(groups_follow_from_links), cmocka_unit_test(nccl_describes_a_node),
      cmocka_unit_test(bad_files_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
