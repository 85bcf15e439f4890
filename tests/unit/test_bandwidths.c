/* Bus bandwidths of collectives over 1 to 64 nodes as published, none of them fitted to. */
#include "lib/close.h"
#include "lib/world.h"

#include "cost/cost.h"

/* nanotron's ultra-scale playbook (Apache-2.0), H100 on AWS with EFA. Sizes of messages are not said: of those that
 * are powers of two this one is nearest to the 14 gathers and scatters, whose fall from 250 to 11 GB/s it gives with
 * the steps of a ring alone. All-reduces of more than two nodes lie between a ring of that size and the tree that NCCL
 * would take. */
#define NANOTRON_B (32 << 20)
static const struct {
  int nodes;
  double reduce, gather, scatter; /* GB/s, means */
} nanotron[] = {{1, 435.97, 249.85, 249.73}, {2, 361.75, 184.61, 181.55}, {4, 160.14, 118.97, 115.76},
                {8, 99.56, 69.0, 68.55},     {16, 84.74, 54.97, 54.52},   {32, 64.93, 27.97, 27.94},
                {64, 32.94, 11.04, 11.07}};

/* AWS P6-B200, 32 GPUs on 4 nodes with EFA of 400 Gbit/s a GPU (stas00/ml-engineering@744d01e, CC BY-SA 4.0). */
static const struct {
  double bytes, GBps;
} b200[] = {{16777216, 64.43},  {33554432, 91.19},    {67108864, 156.74},   {134217728, 197.94},  {268435456, 229.09},
            {536870912, 326.9}, {1073741824, 361.99}, {2147483648, 372.42}, {4294967296, 377.34}, {17179869184, 381.8}};

/* SimAI@cef83f9d, astra-sim-alibabacloud/inputs/ratio/ata_ratio.csv (Apache-2.0): all-to-all over 4, 8 and 16 nodes of
 * 8, share of the NICs' rate. */
static const struct {
  double bytes, share[3];
} simai[] = {{67108864, {0.83, 0.82, 0.66}},
             {268435456, {0.92, 0.87, 0.75}},
             {1073741824, {0.94, 0.92, 0.85}},
             {4294967296, {0.95, 0.94, 0.89}}};

typedef struct {
  MsScenario *s;
  MsLayout *l;
  MsCost *cost;
} Machine;

static Machine machine(const char *name, int gpus) {
  g_autofree char *text =
      g_strdup_printf("{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": %s, \"gpus\": %d, \"training\": "
                      "{\"seq_length\": 4096, \"global_batch_size\": %d}}",
                      name, gpus, gpus);
  Machine m = {.s = ms_test_scenario_of(text)};
  m.l = ms_layout_new(m.s, NULL), m.cost = ms_cost_new(m.s, m.l, NULL);
  return m;
}

static void machine_clear(Machine *m) { ms_cost_free(m->cost), ms_layout_free(m->l), ms_scenario_free(m->s); }

/* Among all GPUs, counted as nccl-tests does. */
static double bus_GBps(const Machine *m, MsOpKind kind, double bytes) {
  double ranks = m->l->group[MS_GROUP_DP_CP].size, factor = (kind == MS_OP_ALL_REDUCE ? 2 : 1) * (ranks - 1) / ranks;
  MsOp op = {.kind = kind, .group = MS_GROUP_DP_CP, .message_B = bytes};
  return factor * bytes / ms_cost_op(m->cost, &op).time_s / 1e9;
}

static void rings_of_1_to_64_nodes(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(nanotron); i++) {
    Machine m = machine("\"h100-sxm\"", 8 * nanotron[i].nodes);
    double gather = bus_GBps(&m, MS_OP_ALL_GATHER, NANOTRON_B),
           scatter = bus_GBps(&m, MS_OP_REDUCE_SCATTER, NANOTRON_B),
           reduce = bus_GBps(&m, MS_OP_ALL_REDUCE, NANOTRON_B);
    print_message("  %2d nodes: gather %.0f GB/s (published %.0f), scatter %.0f (%.0f), reduce %.0f (%.0f)\n",
                  nanotron[i].nodes, gather, nanotron[i].gather, scatter, nanotron[i].scatter, reduce,
                  nanotron[i].reduce);
    assert_close(gather, nanotron[i].gather, 0.35);
    assert_close(scatter, nanotron[i].scatter, 0.35);
    if (nanotron[i].nodes <= 2) assert_close(reduce, nanotron[i].reduce, 0.3);
    else assert_true(nanotron[i].reduce < reduce && nanotron[i].reduce > gather);
    machine_clear(&m);
  }
}

static void all_reduces_of_four_nodes(void **state) {
  (void)state;
  Machine m = machine("\"b200-sxm\"", 32);
  for (guint i = 0; i < G_N_ELEMENTS(b200); i++) {
    double got = bus_GBps(&m, MS_OP_ALL_REDUCE, b200[i].bytes);
    print_message("  %6.0f MiB: %.0f GB/s, published %.0f\n", b200[i].bytes / (1 << 20), got, b200[i].GBps);
    if (b200[i].bytes >= 512 << 20) assert_close(got, b200[i].GBps, 0.1);
    else assert_true(got > b200[i].GBps); /* start-ups over EFA are longer than those of InfiniBand */
  }
  machine_clear(&m);
}

static void exchanges_of_4_to_16_nodes(void **state) {
  (void)state;
  for (int k = 0; k < 3; k++) {
    int gpus = 32 << k;
    Machine m = machine("\"h100-sxm\"", gpus);
    for (guint i = 0; i < G_N_ELEMENTS(simai); i++) {
      double leaves = (double)(gpus - 8) / (gpus - 1); /* of what goes to others */
      double share = leaves * bus_GBps(&m, MS_OP_ALL_TO_ALL, simai[i].bytes) * 1e9 / m.s->hardware->nic_Bps;
      print_message("  %3d GPUs, %4.0f MiB: %.2f of the NICs, published %.2f\n", gpus, simai[i].bytes / (1 << 20),
                    share, simai[i].share[k]);
      assert_close(share, simai[i].share[k], 0.28);
    }
    machine_clear(&m);
  }
}

/* NCCL's ring has a step for each rank, PAT fewer and 3/4 of the bandwidth: taken where it is faster. HCCL's ring has
 * one for each server, halving and doubling one for each doubling. */
static void libraries_have_steps_of_their_own(void **state) {
  (void)state;
#define ALONE(word) \
  "{\"base\": \"h100-sxm\", \"gpus_per_node\": 1, \"nvlink_domain_gpus\": 1, \"collectives\": \"" word "\"}"
#define HCCL "{\"base\": \"h100-sxm\", \"collectives\": \"hccl\"}"
  Machine ring = machine(ALONE("nccl"), 64), pat = machine(ALONE("nccl-pat"), 64);
  double steps = 8 / 14.0 + 6 / 3.5 + 64 * 0.2,
         less = bus_GBps(&ring, MS_OP_ALL_GATHER, 64) / bus_GBps(&pat, MS_OP_ALL_GATHER, 64);
  assert_close(less, steps / 63, 1e-3); /* next to no bytes */
  assert_close(bus_GBps(&pat, MS_OP_REDUCE_SCATTER, 1e9), bus_GBps(&ring, MS_OP_REDUCE_SCATTER, 1e9), 0);
  assert_close(bus_GBps(&pat, MS_OP_ALL_REDUCE, 64), bus_GBps(&ring, MS_OP_ALL_REDUCE, 64), 0);
  Machine eight = machine(HCCL, 64), six = machine(HCCL, 48);
  double factor = 47 / 48.0 / (63 / 64.0);
  assert_close(factor * bus_GBps(&eight, MS_OP_ALL_GATHER, 64) / bus_GBps(&six, MS_OP_ALL_GATHER, 64), 5 / 3.0, 1e-3);
  machine_clear(&ring), machine_clear(&pat), machine_clear(&eight), machine_clear(&six);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rings_of_1_to_64_nodes), cmocka_unit_test(all_reduces_of_four_nodes),
      cmocka_unit_test(exchanges_of_4_to_16_nodes), cmocka_unit_test(libraries_have_steps_of_their_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
