/* src/plan/objective.c - what a plan is ranked by: a figure of the step time and the number of GPUs. */
#include "plan/plan.h"
#include "base/err.h"
#include "base/text.h"
#include "base/units.h"
#include <math.h>
#include <string.h>

#define S_PER_HOUR       3600.0
#define TOKENS_OF_FIGURE 1e6 /* prices and energies are said per million tokens */

static double tokens_per_step(const MsScenario *s) { return (double)ms_scenario_batch(s) * s->training.seq_length; }

double ms_request_gpu_W(const MsRequest *r) {
  if (r->gpu_power_W > 0) return r->gpu_power_W;
  double sum = 0; /* the mean of all GPUs */
  for (int i = 0; i < ms_scenario_machines(r->base); i++)
    sum += ms_scenario_machine_gpus(r->base, i) * ms_scenario_machine(r->base, i)->tdp_W;
  return sum / r->base->gpus;
}

double ms_request_tokens(const MsRequest *r, const MsScenario *s) {
  return r->training_tokens * (r->critical_batch_tokens > 0 ? 1 + tokens_per_step(s) / r->critical_batch_tokens : 1);
}

/* The last step may be partly filled. */
static double training_s(const MsRequest *r, double step_s) {
  return ceil(ms_request_tokens(r, r->base) / tokens_per_step(r->base)) * step_s;
}

static gboolean power_suffices(const MsRequest *r, int gpus, GError **error) {
  double W = ms_request_gpu_W(r);
  if (!(W > 0))
    return ms_input_error(error, r->base->file, 0, "plan.gpu_power_W",
                          "max_power_W needs the power of a GPU, and the hardware has no tdp_W");
  return gpus * W <= r->max_power_W ||
         ms_input_error(error, r->base->file, 0, "gpus",
                        "%d GPUs of %g W draw %.4g kW, more than plan.max_power_W, %.4g kW: at most %d", gpus, W,
                        gpus * W / 1e3, r->max_power_W / 1e3, (int)(r->max_power_W / W));
}

gboolean ms_objective_check(const MsRequest *r, GError **error) {
  const char *file = r->base->file;
  if (r->gpu_hour_price > 0 && !r->gpu_hour_price_source)
    return ms_input_error(error, file, 0, "plan.gpu_hour_price",
                          "needs gpu_hour_price_source: say where the price comes from");
  for (int i = 0; r->max_power_W > 0 && i < r->n_open; i++)
    for (int k = 0; strcmp(r->open[i].path, "gpus") == 0 && k < r->open[i].n; k++)
      if (!power_suffices(r, (int)json_node_get_int(r->open[i].values[k]), error)) return FALSE;
  if (r->max_power_W > 0 && !power_suffices(r, r->base->gpus, error)) return FALSE;
  g_autofree char *failures = r->reliability ? ms_find_data_file("reliability", r->reliability, error) : NULL;
  if (r->reliability && !failures) return g_prefix_error(error, "plan.reliability: "), FALSE;
  if (r->objective == MS_GOAL_COST && !(r->gpu_hour_price > 0))
    return ms_input_error(error, file, 0, "plan.gpu_hour_price",
                          "the objective cost_per_token needs the price of a GPU-hour");
  if (r->objective == MS_GOAL_ENERGY && !(ms_request_gpu_W(r) > 0))
    return ms_input_error(error, file, 0, "plan.gpu_power_W",
                          "the objective energy_per_token needs a power, and the hardware has no tdp_W");
  if (r->objective == MS_GOAL_DEADLINE && !(r->training_tokens > 0 && r->deadline_s > 0))
    return ms_input_error(error, file, 0, "plan.deadline_s",
                          "the objective gpus_for_deadline needs training_tokens and deadline_s");
  return TRUE;
}

/* GPUs first; among equals, the step as a fraction of the longest one allowed, which adds less than one GPU. */
static double deadline_cost(const MsRequest *r, int gpus, double step_s) {
  double share = training_s(r, step_s) / r->deadline_s;
  return share <= 1 ? gpus + share / 2 : INFINITY;
}

double ms_objective_cost(const MsRequest *r, int gpus, double step_s) {
  switch (r->objective) {
  case MS_GOAL_STEP_TIME: return step_s;
  case MS_GOAL_DEADLINE: return deadline_cost(r, gpus, step_s);
  default:
    return step_s * gpus; /* GPU-seconds of a step; price, power and tokens of a step are the same for every plan */
  }
}

double ms_objective_figure(const MsRequest *r, int gpus, double step_s) {
  double gpu_s_per_token = step_s * gpus / tokens_per_step(r->base);
  switch (r->objective) {
  case MS_GOAL_STEP_TIME: return step_s;
  case MS_GOAL_TOKENS: return 1 / gpu_s_per_token;
  case MS_GOAL_COST: return gpu_s_per_token * TOKENS_OF_FIGURE * r->gpu_hour_price / S_PER_HOUR;
  case MS_GOAL_ENERGY: return gpu_s_per_token * TOKENS_OF_FIGURE * ms_request_gpu_W(r);
  default: return training_s(r, step_s);
  }
}

const char *ms_objective_unit(MsGoal goal) {
  static const char *const unit[] = {"s", "tokens/s/GPU", "price/Mtoken", "J/Mtoken", "s of training"};
  G_STATIC_ASSERT(G_N_ELEMENTS(unit) == MS_N_MsGoal);
  return unit[goal];
}

const char *ms_objective_phrase(MsGoal goal) {
  static const char *const phrase[] = {"the shortest step", "the most tokens per second and GPU",
                                       "the lowest price of a token", "the least energy of a token",
                                       "the fewest GPUs that keep the deadline"};
  G_STATIC_ASSERT(G_N_ELEMENTS(phrase) == MS_N_MsGoal);
  return phrase[goal];
}

char *ms_objective_assumption(const MsRequest *r) {
  if (r->objective == MS_GOAL_COST)
    return g_strdup_printf("%g per GPU and hour (%s)", r->gpu_hour_price, r->gpu_hour_price_source);
  if (r->objective == MS_GOAL_ENERGY)
    return g_strdup_printf("%g W per GPU throughout (%s); hosts, network and cooling are not counted",
                           ms_request_gpu_W(r),
                           r->gpu_power_W > 0 ? "the request's gpu_power_W" : "tdp_W of the hardware");
  if (r->objective == MS_GOAL_DEADLINE)
    return g_strdup_printf("%s tokens within %.4g days of uninterrupted steps",
                           ms_text_tokens(r->training_tokens, MS_ROOM), r->deadline_s / MS_DAY_S);
  return NULL;
}
