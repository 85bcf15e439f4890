/* src/study/near.h - how much of the error of one run another on the same machine shares: what neither site, classes of
 * operators nor model explain is alike where runs are alike (kriging: D. G. Krige, 1951; Gaussian process). The
 * correlation of two runs is exp(-distance), the distance a sum, by the laws anchor_near_*: of the share of the step
 * that follows other operators; of doublings of the microbatch, TP, CP, VPP and EP; of doublings of GPUs, sequence, PP
 * and batch; of another model; of other precision, recomputation and FSDP; of another dispatcher and other CUDA graphs.
 * docs/theory/anchor.md. */
#ifndef MS_STUDY_NEAR_H
#define MS_STUDY_NEAR_H

#include "sim/simulate.h"

enum { MS_NEAR_SPLITS = 5, MS_NEAR_SIZES = 4, MS_NEAR_KINDS = 3, MS_NEAR_LAUNCHES = 2 };

typedef struct {                                     /* where a run lies among others */
  double share[MS_N_ANCHORS];                        /* d log step / d log time of the class */
  double split[MS_NEAR_SPLITS], size[MS_NEAR_SIZES]; /* log2 */
  char *model, *kind[MS_NEAR_KINDS], *launch[MS_NEAR_LAUNCHES];
} MsNearPlace;

/* `keys`: path -> JSON text, as ms_knobs_of_layout has them. */
void ms_near_place_init(MsNearPlace *place, const char *model, double gpus, GHashTable *keys, const double *share);
void ms_near_place_clear(MsNearPlace *place);
/* exp(-distance). */
double ms_near_correlation(const MsLaws *laws, const MsNearPlace *a, const MsNearPlace *b);

/* d log step / d log factor of each class, by `fast` simulations; the scenario's own factors are as before. FALSE and
 * *error. */
gboolean ms_near_shares(MsScenario *scenario, double share[MS_N_ANCHORS], GError **error);

/* Half of the interval around 0 that holds 90 % of what has n distributions of these weights, means and standard
 * deviations, each beside what odd runs have more; MS_ANCHOR_BAND_MOST at most. */
double ms_near_half_width(const MsLaws *laws, int n, const double *weight, const double *at, const double *sd);

typedef struct {
  guint runs;         /* 0: the machine knows of none */
  double step_time_s; /* as they say */
  double band;        /* of it, 90 %, relative */
  double nearest;     /* correlation with the nearest */
} MsNear;

/* What the runs that a machine was anchored by say of another, whose step is predicted to take `step_time_s`. FALSE and
 * *error. */
gboolean ms_near_predict(MsScenario *scenario, double step_time_s, MsNear *near, GError **error);

#endif
