/* src/cluster/walk.h - a step in which every GPU of the job is a device of its own.
 *
 * Tasks are those of the full step, each once for every unit of its stage. A task starts when its stream, what it waits
 * for and its host are ready, each on its own unit; a collective moves when the last of its group has come. What tasks
 * take is what they took in the full step, sharing of SMs and links included, times what differs: so a step of ranks
 * that do not differ is the full step, to the bit. docs/theory/cluster.md. */
#ifndef MS_CLUSTER_WALK_H
#define MS_CLUSTER_WALK_H

#include "cluster/units.h"
#include "fabric/pattern.h"
#include "sim/simulate.h"

typedef enum {
  MS_ROLE_OTHER,     /* copies, host work */
  MS_ROLE_COMPUTE,   /* kernels that memory limits */
  MS_ROLE_CLOCKED,   /* products, which follow the clock */
  MS_ROLE_ATTENTION, /* follows a part of it */
  MS_ROLE_MEETS,     /* a collective inside a stage */
  MS_ROLE_WORLD,     /* one over all ranks */
  MS_ROLE_PASSES     /* a message to another stage */
} MsRole;

typedef struct {
  MsTime duration;
  guint32 last_use; /* last task that needs its end; itself: none does */
  guint16 to; /* stage that a message goes to, its own: nobody waits for it; of kernels on the rows of experts that
                 were drawn 1 + their layer, else 0 */
  guint8 role : 4, pattern : 4; /* MsRole; MsPattern of what communicates */
  guint8 group;                 /* MsGroupKind of a collective */
} MsStepTask;

typedef struct {          /* what all draws share */
  const MsDetail *detail; /* borrowed */
  guint32 n;
  MsStepTask *task;        /* [n] */
  MsTime makespan, period; /* of the full step: with post-validation steps
                              follow one another faster than they last */
} MsStepPlan;
MsStepPlan *ms_step_plan_new(const MsDetail *detail, double step_time_s); /* (transfer full) */
void ms_step_plan_free(MsStepPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsStepPlan, ms_step_plan_free)

typedef struct {                         /* how ranks differ in one step: times as long as in the full
                                            step, times as slow */
  double *clock, *attention, *gpu, *nic; /* [world] of products, of attention, of all kernels; of messages */
  double kernel_jitter, host_jitter;     /* standard deviations over the means; 0: none */
  MsTime operator_of_host;               /* mean host time of one */
  guint64 seed;                          /* of jitter */
  /* Rows of an expert rank over those of its layer's hottest, which the full step has: [layers * ranks of an expert
   * group]; NULL: all are alike. Borrowed. */
  const double *rows;
  /* [world] what the fabric slows the rank's group by, over what it slows the worst by, which the full step has; NULL:
   * all alike. Borrowed. */
  const double *fabric[MS_N_GROUPS][MS_N_PATTERNS];
} MsRankStates;

/* Time of a row that communicates where the network is `factor` times as slow, over its time. */
typedef double (*MsSlowRow)(gconstpointer data, guint32 tag, double factor);

typedef struct { /* of one rank */
  int rank, stage;
  double path_s;    /* of the critical path that ran on it */
  double awaited_s; /* summed over the ranks of its collectives, how long they
                       waited when it came last */
} MsRankShare;

typedef struct {
  double step_s;               /* as the full step counts it */
  guint64 tasks;               /* times units */
  double waits_s[MS_N_GROUPS]; /* in collectives for the last to come, whether
                                  hidden or not; mean over the ranks */
  /* when asked for: */
  MsRankShare *share;                                            /* [world], NULL: not asked for */
  double path_compute_s, path_comm_s, path_host_s, path_other_s; /* of the critical path */
} MsWalked;

/* When the tasks of some ranks ran. */
typedef struct {
  int n;
  const int *rank;    /* [n] */
  MsTrajectory **ran; /* [n] owned by the caller: start and end of the tasks of the rank's stage, the others 0; a
                         collective starts when its rank is there; makespan that of all ranks */
} MsRankTimes;

/* `times`: NULL, or filled in. `shares`: also the critical path over the ranks, for which a byte is kept for each task
 * of each unit. */
MsWalked ms_walk_step(const MsStepPlan *plan, const MsUnits *units, const MsRankStates *states, MsSlowRow slow,
                      gconstpointer data, gboolean shares, MsRankTimes *times);
void ms_walked_clear(MsWalked *walked);

#endif
