/* src/study/ways.h - what would fit or be in time, when no layout of a request does: the GPUs filled up, more of them,
 * memory saved by options, machines with more memory.
 *
 * Each way is found by planning the request with that change, and with what is open to the planner set to what needs
 * least memory, so that the answer comes at once: what is found fits, and a plan of it may still find a faster layout.
 */
#ifndef MS_STUDY_WAYS_H
#define MS_STUDY_WAYS_H

#include "plan/plan.h"

typedef enum { MS_WAY_GPUS, MS_WAY_OPTIONS, MS_WAY_MACHINE, MS_N_WAYS } MsWayKind;
extern const char *const ms_way_words[]; /* gpus options machine */

typedef struct {
  MsWayKind kind;
  char *change;         /* "512 x h100-sxm", "optimizer_offload_fraction 1" */
  MsScenario *scenario; /* the layout that fits; with `machine` where that is not the request's own */
  MsHardware *machine;
  double step_time_s, device_B;
} MsWay;

typedef struct {
  int n;
  MsWay *way;
  GArray *gpus_tried; /* double: numbers of GPUs that do not do, ascending */
  int most_gpus;      /* more draw more power than the request allows, and were not tried; 0: no limit was met */
} MsWays;

/* Nothing fits, or with the objective gpus_for_deadline nothing is in time. NULL on Ctrl-C. (transfer full) */
MsWays *ms_ways_new(const MsRequest *request, const MsPlanOptions *options);
void ms_ways_free(MsWays *ways);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsWays, ms_ways_free)

/* Multiples of the GPUs of a node beside `gpus`, below and above; FALSE where it is one, or less than a node. */
gboolean ms_whole_nodes(const MsHardware *hardware, int gpus, int *below, int *above);

#endif
