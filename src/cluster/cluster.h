/* src/cluster/cluster.h - steps of a job whose GPUs differ: how long they take, what each cause costs, who is waited
 * for. */
#ifndef MS_CLUSTER_CLUSTER_H
#define MS_CLUSTER_CLUSTER_H

#include "cluster/walk.h"
#include "study/draws.h"

typedef enum {
  MS_CAUSE_KERNELS,   /* kernel_jitter */
  MS_CAUSE_HOSTS,     /* host_jitter */
  MS_CAUSE_CLOCKS,    /* clock_spread */
  MS_CAUSE_SLOW_GPUS, /* named and drawn */
  MS_CAUSE_SLOW_NICS,
  MS_CAUSE_EXPERTS, /* drawn routing: ranks of experts have rows of their own */
  MS_N_CAUSES
} MsCause;
extern const char *const ms_cause_words[];

typedef struct {
  MsCause cause;
  double cost_s; /* mean over the draws of the step less the step without it: all GPUs of mean clock, none slow, the
                    mean of rows on every expert rank */
} MsCauseCost;

enum { MS_CLUSTER_SHARES = 16 };
typedef struct {
  MsExtent extent; /* draws done, of those asked for */
  int world, stages;
  guint32 units, first_seed; /* ranks of a stage that are told apart */
  double full_s;             /* the full step: every GPU as slow as the slowest is expected to be, no jitter */
  MsSpread step_s;
  int n_causes;
  MsCauseCost cause[MS_N_CAUSES]; /* those that act */
  double waits_s[MS_N_GROUPS];    /* as in MsWalked, mean over the draws */
  /* of the first draw */
  double path_compute_s, path_comm_s, path_host_s, path_other_s;
  int path_ranks, n_shares;             /* ranks on the critical path */
  MsRankShare share[MS_CLUSTER_SHARES]; /* most of the path first, then longest awaited */
  guint64 tasks;                        /* of one step, times ranks that are told apart */
  GArray *links;                        /* MsLinkLoad, the fullest first; NULL: no fabric. Owned */
  double elapsed_s;
} MsCluster;
void ms_cluster_clear(MsCluster *cluster);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MsCluster, ms_cluster_clear)

typedef struct {
  int draws, threads;
  gboolean progress, merge;
  MsRankTimes *times; /* of the first draw, filled in; ranks of the job. NULL: not asked for */
} MsClusterOptions;
/* `full` and its detail: of the scenario at full fidelity. n draws on `threads` threads (0: one per processor), shared
 * out among the processes of an mpirun, the same figures for any number of both; what is told of the first draw alone
 * only process 0 has. `merge` FALSE: equal ranks are not taken together, which changes nothing but the time. What
 * was stopped before the first draw has unknown figures (NAN). FALSE and *error when the costs cannot be prepared. */
gboolean ms_cluster_run(const MsScenario *scenario, const MsResult *full, const MsDetail *detail,
                        const MsClusterOptions *options, MsCluster *out, GError **error);

#endif
