/* src/describe/goodput.h - how often machines fail (reliability/NAME.json) and what a run does about it (files of
 * scenarios/goodput). const after load. */
#ifndef MS_DESCRIBE_GOODPUT_H
#define MS_DESCRIBE_GOODPUT_H

#include "describe/scenario.h"

typedef enum {
  MS_FAIL_GPU,
  MS_FAIL_HOST,
  MS_FAIL_NIC,
  MS_FAIL_LINK,
  MS_FAIL_SOFTWARE,
  MS_FAIL_ANY,
  MS_N_COMPONENTS
} MsComponent;
extern const char *const ms_component_words[]; /* gpu host nic link software any */
typedef enum { MS_PER_GPU, MS_PER_NODE, MS_PER_JOB } MsFailurePer;

typedef struct {
  MsComponent component;
  MsFailurePer per;
  double per_1000_days; /* failures of 1000 such units in a day */
  gboolean takes_node;  /* the node must be replaced; else a restart in place does */
  double detection_s;   /* until the failure is noticed and the job stopped */
  char *source;
} MsFailure;

typedef struct {
  char *name, *doc;
  int n;
  MsFailure *failure;
} MsReliability;

typedef enum { MS_CHECKPOINT_SYNCHRONOUS, MS_CHECKPOINT_ASYNCHRONOUS, MS_CHECKPOINT_IN_MEMORY } MsCheckpointMode;
extern const char *const ms_checkpoint_words[]; /* synchronous asynchronous in-memory */

typedef struct {
  MsCheckpointMode mode;
  double interval_s;  /* useful seconds between two; NaN: the optimal one */
  double size_B;      /* of one checkpoint of the whole job; NaN: from the model and the optimizer's data types */
  double storage_Bps; /* of the whole job, writing and reading; NaN where the mode needs none */
} MsCheckpointSpec;

typedef struct {
  double restart_s; /* schedule, start processes, connect, build */
  double rewarm_s;  /* useful time lost to slow first steps: compilation, caches, data loaders */
} MsRecoverySpec;

typedef struct {
  int nodes;       /* idle ones; MS_NULL_INT: always enough */
  double repair_s; /* until a failed node is back */
} MsSpareSpec;

typedef struct {
  double per_1000_node_days; /* nodes that become slow */
  double speed;              /* of the whole job while it has one */
  double detection_s;        /* until the node is found and replaced by a planned restart */
} MsSlowSpec;

typedef struct {
  double tokens; /* to train; NaN: none */
  double days;   /* of wall clock; NaN: none. Exactly one of the two is given */
} MsBudgetSpec;

typedef struct {
  int runs, seed;
} MsMonteCarloSpec;

typedef struct MsGoodput {
  char *file, *name, *doc;
  MsScenario *run;
  MsFidelity fidelity; /* of its prediction */
  double step_time_s;  /* measured or given; NaN: predicted */
  MsReliability reliability;
  MsCheckpointSpec checkpoint;
  MsRecoverySpec recovery;
  MsSpareSpec spares;
  gboolean elastic; /* runs on with fewer replicas while no spare node is there */
  MsSlowSpec slow_nodes;
  MsBudgetSpec budget;
  MsMonteCarloSpec monte_carlo;
} MsGoodput;

extern const MsFieldTable ms_goodput_table, ms_reliability_table;

/* NULL and *error for what is refused. (transfer full) */
MsGoodput *ms_goodput_load(const char *filename, GError **error);
MsGoodput *ms_goodput_from_doc(const MsJson *doc, GError **error);
void ms_goodput_free(MsGoodput *goodput);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsGoodput, ms_goodput_free)

/* A name in reliability/, a path, or an object. FALSE and *error; on failure still valid for _clear. */
gboolean ms_reliability_load(const MsJson *doc, JsonNode *node, const char *path, MsReliability *reliability,
                             GError **error);
void ms_reliability_clear(MsReliability *reliability);

#endif
