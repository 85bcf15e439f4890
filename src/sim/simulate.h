/* src/sim/simulate.h - from a scenario to a prediction.
 *
 *   bound  memory (lower bound) and a lower bound of step time, closed form
 *   fast   the schedule with slots as tables, as long as the event engine says of each distinct slot in steady state
 *   full   every operator row of every stage and microbatch through the event engine */
#ifndef MS_SIM_SIMULATE_H
#define MS_SIM_SIMULATE_H

#include "cost/cost.h"
#include "sim/result.h"

typedef struct MsDetail { /* the simulated step itself, for traces and timelines; only from `full` */
  MsGraph *graph;
  MsTrajectory *trajectory;
  MsSchedule *schedule;
  MsLayout *layout;
  MsWork *work;
  guint32 n_tags;      /* MsTask.tag indexes these */
  const MsOp **tag_op; /* borrowed from work or step rows; NULL for p2p rows made by the lowering */
  const char **tag_name;
  guint32 *slot_task; /* first task of each slot, stage-major; n_slots + 1 entries per stage, flattened */
  guint32 *slot_base; /* [stages + 1] offset of each stage in slot_task */
  gpointer owned;     /* private */
  MsScenario *seen;   /* of pools of replicas: the views that it is of and in, owned; NULL elsewhere */
} MsDetail;
void ms_detail_free(MsDetail *detail);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsDetail, ms_detail_free)

/* A prediction. NULL and *error (MS_ERROR_INPUT) for an impossible scenario or one that needs what is unknown. Not
 * fitting into memory is a result (feasible FALSE). `detail` may be NULL; set only for `full`. (transfer full) */
MsResult *ms_simulate(const MsScenario *scenario, MsFidelity fidelity, MsDetail **detail, GError **error);

/* The same as `full` on a cluster with one slow GPU in pipeline stage `stage`: its kernels take `factor` >= 1 times as
 * long, and all that meet it in collectives wait for it. */
MsResult *ms_simulate_slow_gpu(const MsScenario *scenario, int stage, double factor, GError **error);

/* What a planner asks first: a lower bound of the step that `full` never undercuts, within a few percent of it, and the
 * device memory of the stage that needs most, exactly as `full` says it. `like`: the machine prepared for another
 * layout of the same model (ms_cost_new_like), or NULL. FALSE where ms_simulate has an error. */
typedef struct {
  double step_time_lower_s, device_B;
} MsScreen;
typedef struct { /* what is above it need not be known: where more memory is needed the step has no bound, and a bound
                    above is any that is */
  double step_time_s, device_B;
} MsWorth;
gboolean ms_screen(const MsScenario *scenario, const MsCost *like, const MsWorth *worth, MsScreen *screen);
/* What a planner asks of all scenarios that differ from this one in options which change neither the rows of the pieces
 * nor their schedule (sharding and place of the optimizer, overlap of its collectives, overlap of pipeline messages);
 * it need not obey the rules about those. The scenario is borrowed, and such options may be changed in it between two
 * questions. NULL as above. (transfer full) */
typedef struct MsPassScreen MsPassScreen;
MsPassScreen *ms_pass_screen_new(MsScenario *scenario, const MsCost *like);
void ms_pass_screen_free(MsPassScreen *screen);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPassScreen, ms_pass_screen_free)
/* Lower bound of the step with the scenario's options as they are now, `passes_s` being a bound of the time in which
 * all passes end: compute rows behind the gradient norm come on top, and no stream has more to run. */
double ms_pass_screen_options_s(const MsPassScreen *screen, double passes_s);
/* Device memory of the fullest stage with the scenario's options as they are now. */
double ms_pass_screen_device_B(const MsPassScreen *screen);
/* Of two scenarios that differ in laws alone: equal where no row of the step costs anything else, nor what makes GPUs
 * differ, so that both take the same time at any fidelity. 0: it is not known. */
guint64 ms_step_number(const MsScenario *scenario);
/* What it asks next: the step time of `full` and nothing else; INFINITY where that is proven to be above `limit_s`. */
gboolean ms_step_time(const MsScenario *scenario, const MsCost *like, double limit_s, double *step_time_s,
                      GError **error);

#endif
