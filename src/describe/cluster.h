/* src/describe/cluster.h - what differs between the GPUs of a job: key `cluster` of a scenario. `run --fidelity
 * cluster` draws it; `fast` and `full` read it where the step is asked for that is expected. How much kernels, hosts
 * and GPUs vary by themselves are laws. */
#ifndef MS_DESCRIBE_CLUSTER_H
#define MS_DESCRIBE_CLUSTER_H

#include "describe/field.h"

typedef struct {
  gboolean jitter;                     /* kernels and launches vary, GPUs have their own clock */
  gboolean expected;                   /* `fast` and `full` say the step that is expected of such GPUs */
  int seed;                            /* of draw 0 */
  JsonNode *slow_gpus, *slow_nics;     /* object of rank -> times as slow; NULL: none */
  double slow_gpu_rate, slow_nic_rate; /* each with this probability, drawn anew for every step */
  double slow_gpu_factor, slow_nic_factor;
} MsClusterSpec;

extern const MsFieldTable ms_cluster_table;

/* What the tables cannot say, once the scenario is loaded: ranks that are ranks of a job of `gpus`, factors. */
gboolean ms_cluster_check(const MsClusterSpec *spec, int gpus, const MsJson *doc, GError **error);
/* factor[gpus] is 1 but for the ranks that the object names. */
void ms_cluster_named(const JsonNode *object, int gpus, double *factor);

#endif
