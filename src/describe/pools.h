/* src/describe/pools.h - a job on machines of several kinds ("mixed cluster"): which of its GPUs are of which machine.
 *
 * `pools` of a scenario or request stands in place of `hardware` and `gpus`: kinds of machines in the order of ranks,
 * so that pool 0 has ranks 0 ... gpus - 1. Pools of the same machine next to each other are one; what is left of one
 * kind only is the plain scenario, of `hardware` and `gpus`, and predicted as that to the bit.
 *
 * Every pipeline stage lies wholly in one pool (rule pools-hold-stages), so that TP, CP, EP and DP groups do: rows of a
 * stage cost what they cost on its pool's machine, its memory is held to that machine's. Only messages between stages,
 * the sum of the gradient norm and the gradients of tied embeddings cross from one pool into another; they go over the
 * network and take as long as on the slower of the two sides.
 *
 * With `batch` the pools share the batch instead: each holds whole data-parallel replicas (rule pools-hold-replicas),
 * which do that many of the sequences of a step between them, in microbatches of the one size; so a replica of a faster
 * machine does more of them. What replicas exchange goes over the network and takes as long as on the slowest machine,
 * and the step is that of the replica that takes longest. */
#ifndef MS_DESCRIBE_POOLS_H
#define MS_DESCRIBE_POOLS_H

#include "describe/hardware.h"

enum { MS_MAX_POOLS = 8 };
typedef struct {
  MsHardware *hardware; /* owned, but for that of pool 0, which is the scenario's */
  JsonNode *json;       /* as written; owned */
  int gpus;
  int batch; /* sequences of a step that its replicas do; 0: it holds stages; MS_POOL_SEARCHED: the planner says */
} MsPool;
enum { MS_POOL_SEARCHED = -1 };

typedef struct {
  int n;      /* pools of stages. 0: one machine, `hardware` of the scenario, or pools of replicas; else 2 or more */
  int shares; /* pools of replicas, that share the batch; 0: none; else 2 or more */
  int own;    /* of those: whose replica is looked at, `hardware` being its machine (ms_scenario_seen_from) */
  MsPool pool[MS_MAX_POOLS];
} MsPools;

static inline int ms_pools_count(const MsPools *pools) { return pools->n + pools->shares; }
/* Sequences of a step that all pools of replicas do. */
gint64 ms_pools_batch(const MsPools *pools);

extern const MsFieldTable ms_pool_table;
/* The object of a scenario or request with what its pools stand for: `hardware` of the first and all `gpus`; without
 * `pools` where they are of one machine, as it is where it has none. NULL and *error. (transfer full) */
JsonObject *ms_pools_settled(const MsJson *doc, JsonObject *json, GError **error);
/* Parse and print of the row "pools"; `member` is an MsPools. */
gboolean ms_pools_parse(const MsJson *doc, JsonNode *node, const char *path, void *member, GError **error);
void ms_pools_print(MsJsonOut *out, const char *key, const void *member);
/* Deep copy in place of the machines of *pools, of which the scenario's own becomes `own`. */
void ms_pools_own(MsPools *pools, MsHardware *own);
void ms_pools_clear(MsPools *pools);
/* Of a pipeline of `pp` stages on `gpus` GPUs in all, which pool has `stage`: that of its first GPU. */
int ms_pool_of_stage(const MsPools *pools, int gpus, int pp, int stage);

#endif
