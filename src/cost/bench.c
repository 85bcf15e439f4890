/* src/cost/bench.c - one collective alone. */
#include "cost/bench.h"

#include "cost/internal.h"

#include <math.h>
#include <string.h>

double ms_bench_collective_s(const MsScenario *scenario, const char *op, const MsGroup *group, double message_B) {
  static const char *const words[MS_N_COLL] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"};
  for (int kind = 0; kind < MS_N_COLL; kind++) {
    if (strcmp(words[kind], op) != 0) continue;
    MsCollective c = ms_collective_prepare(scenario, (MsCollKind)kind, NULL, group);
    return ms_collective_s(&c, (MsCollKind)kind, message_B, 0, scenario->options.deterministic_mode).time_s;
  }
  return NAN;
}

MsGroup ms_bench_group(const MsHardware *hardware, int ranks, int per_node) {
  int node = per_node > 0 ? per_node : MAX(1, hardware->gpus_per_node);
  /* a domain of several nodes holds as many of these nodes, one within a node a part of it */
  int domain = MAX(1, hardware->nvlink_domain_gpus), nodes = MAX(1, domain / MAX(1, hardware->gpus_per_node));
  int per_domain = domain >= hardware->gpus_per_node ? node * nodes : MIN(domain, node);
  per_domain = CLAMP(per_domain, 1, ranks);
  int domains = (ranks + per_domain - 1) / per_domain, last = ranks - (domains - 1) * per_domain;
  return (MsGroup){.size = ranks,
                   .stride = 1,
                   .domains = domains,
                   .per_domain = per_domain,
                   .min_per_domain = last,
                   .nodes = (ranks + node - 1) / node};
}
