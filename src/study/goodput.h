/* src/study/goodput.h - how much of the time a run trains: its prediction, the failures of its machines, closed forms
 * and Monte Carlo.
 *
 * From the scenario come step time, GPUs, nodes, replicas and the bytes of a checkpoint; from reliability/ the failure
 * rates. A checkpoint stops training synchronous    while all of it goes to storage; asynchronous   while every GPU
 * copies its share to the host (host_link_Bps); the write to storage goes on beside training; in-memory      as
 * asynchronous, but the copy goes to the memory of another node (nic_Bps) and a restart loads from there. That the
 * write beside training slows it is not modelled, nor that two nodes which hold each other's copy may fail together.
 * Runs are independent and numbered: the same seed gives the same figures on any number of threads. Means have standard
 * errors over the runs. */
#ifndef MS_STUDY_GOODPUT_H
#define MS_STUDY_GOODPUT_H

#include "describe/goodput.h"
#include "fault/fault.h"
#include "study/jobs.h"

typedef struct {
  double mean, error /* standard error of the mean */, p5, p50, p95;
} MsRunSpread;

typedef struct {
  MsGoodput *goodput; /* owned */
  double step_time_s, tokens_per_step;
  int gpus, nodes;
  double checkpoint_B, gpu_share_B; /* of the job; the largest share that one GPU saves */
  double load_s;
  double kind_Hz[MS_FAULT_KINDS]; /* per failure of the reliability profile */
  MsFaultModel model;             /* interval_s: the one that is used */
  gboolean interval_given;
  double mtbf_s, young_s, daly_s, optimal_s;
  double ettr, ettr_first_order, expected_s; /* at the used interval; wall time of the budget (in tokens) */
  double shortage;
  double work_s;   /* useful time of the token budget; NaN with days */
  MsExtent extent; /* runs simulated, of those asked for; of 0: it makes no progress, nothing was simulated */
  int runs;        /* simulated */
  int unfinished;  /* runs that did not reach the tokens in 10 times the useful time */
  MsRunSpread wall_s, gpu_hours, ettr_runs, failures, tokens; /* of a run */
  double band;  /* of the step: half width of 90 %, relative; 0 where the step is given */
  char *caveat; /* what must stand beside the step (sim/band.h); NULL: nothing, or the step is given */
  double tokens_per_day, tokens_per_day_p5, tokens_per_day_p95; /* errors of the step and failures together; p5 and p95
                                                                    are of the step alone where nothing was simulated */
  double part_s[6];                                             /* means: work rework slowed stall recovery waiting */
  double kind_failures[MS_FAULT_KINDS];                         /* mean of a run */
  double planned;
} MsGoodputResult;
extern const char *const ms_goodput_part_words[]; /* work rework slowed checkpoint recovery waiting */

typedef struct {
  int threads; /* 0 = all cores */
  gboolean progress;
  gboolean closed_form; /* nothing is simulated */
} MsGoodputOptions;

/* Takes `goodput`. NULL and *error. (transfer full) */
MsGoodputResult *ms_goodput_run(MsGoodput *goodput, const MsGoodputOptions *options, GError **error);
void ms_goodput_result_free(MsGoodputResult *result);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsGoodputResult, ms_goodput_result_free)

#endif
