/* src/study/budget.h - what a whole training takes on one layout: days with failures and restarts, GPU-hours, price,
 * energy and CO2e.
 *
 * days = days of steps / goodput. Goodput is the request's plan.goodput, else the closed form of study/goodput.h with
 * the failure rates of plan.reliability, checkpoints beside training at their optimal interval to a storage of 2 TB/s,
 * restarts of 5 minutes and 2 minutes of slow first steps (as scenarios/goodput/llama3-405b-16384.json). Energy is that
 * of the GPUs alone over all days; hosts, network and cooling are not counted. */
#ifndef MS_STUDY_BUDGET_H
#define MS_STUDY_BUDGET_H

#include "base/figure.h"
#include "plan/plan.h"

typedef struct { /* NaN: not known */
  double tokens; /* of the training; NaN: the request does not say, and nothing is known */
  double step_days, goodput, days, deadline_days, gpu_hours, price, energy_MWh, co2_t;
  double power_W, gpu_W;   /* of all GPUs, of one */
  gboolean late;           /* days > deadline */
  const char *reliability; /* NULL: the goodput was given, or is not known */
} MsBudget;

/* `result` is a prediction of the scenario under the request; what the budget borrows is the request's. */
void ms_budget_of(const MsRequest *request, const MsScenario *scenario, const MsResult *result, MsBudget *budget);
/* Something was found, and some of it keeps the deadline of the request, where it has one. */
gboolean ms_plan_in_time(const MsRequest *request, const MsPlan *plan);

#endif
