/* src/cost/bench.h - one collective alone, as a benchmark (nccl-tests) times it. */
#ifndef MS_COST_BENCH_H
#define MS_COST_BENCH_H

#include "describe/scenario.h"
#include "layout/layout.h"

/* Seconds of `op` (all_reduce, all_gather, reduce_scatter, all_to_all, p2p) with `message_B` bytes, counted as
 * nccl-tests do, over the group; NaN for another word. Of the scenario hardware, laws and `deterministic_mode` are
 * looked at. */
double ms_bench_collective_s(const MsScenario *scenario, const char *op, const MsGroup *group, double message_B);
/* `ranks` in order on nodes and scale-up domains of the machine, `per_node` of them on each node (0: full nodes). */
MsGroup ms_bench_group(const MsHardware *hardware, int ranks, int per_node);

#endif
