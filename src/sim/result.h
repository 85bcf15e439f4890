/* src/sim/result.h - what a prediction says. Plain data; report/ and cli/ read only this. */
#ifndef MS_SIM_RESULT_H
#define MS_SIM_RESULT_H

#include "base/figure.h"
#include "engine/engine.h"
#include "memory/memory.h"
#include "sim/passes.h"

typedef enum {
  MS_COMM_TP,
  MS_COMM_CP,
  MS_COMM_EP,
  MS_COMM_ETP,
  MS_COMM_PP,
  MS_COMM_DP,
  MS_COMM_EDP,
  MS_COMM_OFFLOAD,
  MS_N_COMMS
} MsCommClass;
extern const char *const ms_comm_words[]; /* tp cp ep etp pp dp edp offload */
MsCommClass ms_comm_class(const MsOp *op);

enum { MS_N_TIME_PARTS = 6 };
typedef struct { /* of one pipeline stage, or the mean over stages; the parts add up to the step time */
  union {
    struct {
      double compute_s, exposed_comm_s, bubble_s, host_s, optimizer_s, other_s;
    };
    double part_s[MS_N_TIME_PARTS]; /* the same, one after another */
  };
  double comm_total_s[MS_N_COMMS], comm_exposed_s[MS_N_COMMS];
  double family_s[4]; /* compute by family: gemm, grouped, attention, memory */
} MsTimeParts;

typedef struct {        /* where numbers came from: one row per curve that was used */
  const MsCurve *curve; /* borrowed from the scenario's hardware; NULL: none */
  const char *laws;     /* in its place: "laws default_gemm_*" */
  char op[24];
  double time_s; /* compute or communication time of one step that it decided, on the slowest stage */
  double band;   /* relative residual (p90), a default where none is known */
  gboolean communication;
} MsOrigin;

typedef struct { /* an assumed figure of the machine that the prediction rests on */
  const char *key;
  gboolean communication;
  double within; /* how far off it may be, relative, 90 % */
  double share;  /* of the step that follows it, on the slowest stage; of communication what compute waits for */
} MsAssumed;

typedef struct {          /* what the band follows from (sim/band.h): shares of the step, relative errors */
  double curves, assumed; /* half widths of 90 %: residuals of the curves; assumed figures of the machine */
  double host, bubble;    /* shares of the step, mean over the stages */
  double ranks;           /* half width of 90 %: which GPUs the job gets (MsScale) */
  double learned;         /* what own runs left (describe/anchor.h), in place of what no run tells; 0: none */
  gboolean single;        /* one microbatch for each replica, of several */
  double unseen;          /* 1 / sqrt(1 + published runs of the machine) */
} MsBandGround;

typedef struct { /* one part of the step, sim/explain.h; fractions of all parts add up to 1, the first is MFU. A part
                    may be negative: work saved */
  char name[48];
  double fraction;
} MsGapPart;

typedef struct {         /* drawn routing: ranks of an expert group differ; 0 throughout when it is not drawn */
  double hottest;        /* routed rows of the hottest rank over the mean: mean over the layers, what time follows */
  double hottest_most;   /* the same of the layer where it is largest */
  double peak_B;         /* largest peak memory of a stage, on the rank that gets most of its layers' rows */
  double peak_coldest_B; /* the same, on the rank that gets least */
} MsRoutingLoad;

typedef struct {            /* GPUs that differ (sim/scale.h); all 0 unless `cluster.expected` */
  double alike_s;           /* the step if all were as slow as one group is expected to be */
  double sd_s, p5_s, p95_s; /* of the step over the GPUs that a job may get */
  double clocks_s, jitter_s, slow_gpus_s, slow_nics_s; /* what the expected step loses to each */
} MsScale;

typedef struct {                     /* the replicas of one machine, where those of several share the batch */
  const char *machine;               /* borrowed from the scenario */
  int replicas, batch, microbatches; /* sequences of a step; microbatches of each replica */
  double step_time_s, waits_s;       /* until its own step would end; until the slowest one's does */
  double device_B, capacity_B;       /* of its fullest stage */
  gboolean feasible;
} MsShare;

typedef struct MsResult {
  char *name;
  MsFidelity fidelity;
  gboolean feasible;
  char *why_infeasible; /* NULL when feasible */
  double step_time_s;
  double step_time_lower_s; /* proven: never above `full`, nor above `fast` */
  MsScale scale;
  double band, band_80, band_50; /* relative half widths of the 90, 80 and 50 % bands (sim/band.h) */
  double band_curves;            /* of the 90 % band of the curves alone */
  MsBandGround ground;
  int n_assumed;
  MsAssumed *assumed; /* what to measure first in front */
  char *caveat;       /* a sentence that must stand beside the figures (sim/band.h), NULL: none */
  double tokens_per_s_per_gpu, model_flop_per_token, tflops_per_gpu, mfu;
  double peak_flops;       /* FLOP/s that mfu is a fraction of: dense peak of the run's precision; 0: not known */
  double counted_over_run; /* model FLOP by the convention / FLOP of the rows, recomputation apart. Far above 1 where
                              the convention counts dense attention and sparse attention runs: mfu may then pass 1. 0:
                              not known */
  MsTimeParts time;        /* mean over stages */
  int stages;
  MsTimeParts *stage_time; /* [stages] */
  MsMemory *memory;
  double capacity_B;
  MsRoutingLoad routing;
  int dp, edp, microbatches;
  int n_shares; /* 0: all replicas are alike; else time and microbatches are of those that take longest, memory is of
                   the machine of which they fill most */
  MsShare *shares;
  guint64 events;
  double elapsed_s;
  char *bottleneck;           /* one sentence: what holds it back most */
  double lcma_s, lcma_growth; /* of the same stage: time of products by lower-complexity schemes, largest growth of
                                 their rounding error; 0 = none */
  int n_origins;
  MsOrigin *origins;
  MsPasses *passes;          /* [stages] the step pass by pass; NULL at `bound` */
  double pass_s[MS_N_SLOTS]; /* one pass of the middle stage, alone and in steady state, by MsSlotKind; 0 where the
                                schedule is plain 1F1B or GPipe */
  int n_gap;
  MsGapPart *gap;
} MsResult;

void ms_result_free(MsResult *result);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsResult, ms_result_free)
/* Everything that is predicted; and how long that took, once for a run. */
extern const MsFigures ms_result_figures, ms_run_figures;
extern const MsFigures ms_time_figures, ms_family_figures; /* of MsTimeParts: the six parts; compute by family */
extern const MsFigures ms_memory_figures;                  /* of an MsResult that has memory */
extern const MsFigures ms_stage_memory_figures;            /* of MsStageMemory */
extern const MsFigures ms_share_figures;                   /* of MsShare */

#endif
