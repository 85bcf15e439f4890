#include "study/budget.h"

#include <math.h>

#include "base/units.h"
#include "study/goodput.h"

#define HOUR_S         3600.0
#define W_H_OF_MWH     1e6
#define KWH_OF_MWH     1e3
#define KG_OF_T        1e3
#define STORAGE_BPS    "2e12"
#define RECOVERY       "{\"restart_s\": 300, \"rewarm_s\": 120}"
#define USUAL_FAILURES "llama3-h100"

/* The study of the run with what is usual, as a file would say it. */
static MsGoodput *study_of(const MsScenario *s, double step_s, double tokens, const char *reliability,
                           const char *mode) {
  char step[32], all[32];
  g_autofree char *run = ms_scenario_text(s, 0), *failures = ms_json_quoted(reliability),
                  *text = g_strdup_printf("{\"schema\": 1, \"run\": %s, \"fidelity\": \"%s\", \"step_time_s\": %s, "
                                          "\"reliability\": %s, \"checkpoint\": {\"mode\": \"%s\", "
                                          "\"storage_Bps\": " STORAGE_BPS "}, \"recovery\": " RECOVERY ", "
                                          "\"budget\": {\"tokens\": %s}}",
                                          run, ms_fidelity_words[MS_FIDELITY_BOUND], ms_double_text(step_s, step),
                                          failures, mode, ms_double_text(tokens, all));
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, s->file ? s->file : "plan", NULL);
  return doc ? ms_goodput_from_doc(doc, NULL) : NULL;
}

/* Copies beside training where the machine says how fast its host link is, else training waits. */
static double closed_form(const MsScenario *s, double step_s, double tokens, const char *reliability) {
  MsGoodput *study = study_of(
      s, step_s, tokens, reliability,
      ms_checkpoint_words[s->hardware->host_link_Bps > 0 ? MS_CHECKPOINT_ASYNCHRONOUS : MS_CHECKPOINT_SYNCHRONOUS]);
  g_autoptr(MsGoodputResult) r = study ? ms_goodput_run(study, &(MsGoodputOptions){.closed_form = TRUE}, NULL) : NULL;
  return r ? r->work_s / r->expected_s : NAN;
}

void ms_budget_of(const MsRequest *q, const MsScenario *s, const MsResult *r, MsBudget *b) {
  double per_step = (double)s->training.global_batch_size * s->training.seq_length;
  *b = (MsBudget){
      .tokens = ms_request_tokens(q, s), .step_days = NAN, .goodput = NAN, .days = NAN, .deadline_days = NAN};
  b->gpu_hours = b->price = b->energy_MWh = b->co2_t = NAN;
  b->gpu_W = ms_request_gpu_W(q);
  b->power_W = b->gpu_W * s->gpus;
  if (!(b->tokens > 0) || !(r->step_time_s > 0)) return;
  double steps = ceil(b->tokens / per_step); /* the last one may be partly filled */
  b->step_days = steps * r->step_time_s / MS_DAY_S;
  b->deadline_days = q->deadline_s / MS_DAY_S;
  b->goodput = q->goodput;
  if (isnan(b->goodput)) {
    b->reliability = q->reliability ? q->reliability : USUAL_FAILURES;
    b->goodput = closed_form(s, r->step_time_s, steps * per_step, b->reliability);
  }
  if (!(b->goodput > 0)) b->goodput = NAN, b->reliability = NULL;
  b->days = b->step_days / (isnan(b->goodput) ? 1 : b->goodput);
  b->late = b->days > b->deadline_days;
  b->gpu_hours = b->days * MS_DAY_S / HOUR_S * s->gpus;
  b->price = b->gpu_hours * q->gpu_hour_price;
  b->energy_MWh = b->gpu_hours * b->gpu_W / W_H_OF_MWH;
  b->co2_t = b->energy_MWh * KWH_OF_MWH * q->grid_kg_per_kWh / KG_OF_T;
}

gboolean ms_plan_in_time(const MsRequest *request, const MsPlan *plan) {
  for (int i = 0; i < plan->n_best; i++) {
    MsBudget b;
    ms_budget_of(request, plan->best[i].scenario, plan->best[i].result, &b);
    if (!b.late) return TRUE;
  }
  return FALSE;
}
