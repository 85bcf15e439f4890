#include "study/guesses.h"

#include <math.h>

#include "layout/layout.h"
#include "sim/simulate.h"
#include "study/parts.h"

typedef struct {
  const MsScenario *run;
  double step_s;
  gboolean recompute_too; /* it is guessed as well */
  double least, most;     /* logarithms of step times over that of the run, of the knob at hand: <= 0, >= 0 */
} Tries;

/* --- one value ------------------------------------------------------------------------------------------------- */
#define ROOM 1.1 /* of the device: what a run needs is predicted to a few percent, where its layout is known */

/* FALSE: it breaks a rule or does not fit. */
static gboolean try(Tries *t, const MsScenario *s) {
  MsRefusal refusal;
  if (!ms_layout_check(s, &refusal)) return FALSE;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  if (!r || !(r->step_time_s > 0) || ms_device_B(r) > ROOM * r->capacity_B) return FALSE;
  double log_ratio = log(r->step_time_s / t->step_s);
  t->least = MIN(t->least, log_ratio), t->most = MAX(t->most, log_ratio);
  return TRUE;
}

/* --- knobs ----------------------------------------------------------------------------------------------------- */
/* So many chunks that each holds one layer, the embedding and the head on their own where the stages ask for that; 0:
 * they do not come out even. */
static int one_layer_chunks(int layers, int pp) {
  for (int n = layers; n <= layers + 2; n++)
    if (n % pp == 0) return n;
  return 0;
}

/* (transfer full) */
static char *layout_of_chunks(int layers, int n) {
  return n == layers       ? g_strdup_printf("Et|(t|)*%dtL", layers - 2)
         : n == layers + 1 ? g_strdup_printf("Et|(t|)*%dL", layers - 1)
                           : g_strdup_printf("E|(t|)*%dL", layers);
}

static void other_vpp(Tries *t) {
  g_autoptr(MsScenario) s = ms_scenario_copy(t->run, TRUE);
  int layers = s->model->num_layers, pp = s->layout.pp, n = layers < 2 ? 0 : one_layer_chunks(layers, pp);
  if (pp < 2 || n == 0 || s->model->mtp_num_layers > 0) return;
  g_free(s->layout.pipeline_layout);
  s->layout.pipeline_layout = layout_of_chunks(layers, n);
  s->layout.vpp = n / pp;
  try(t, s);
}

static void set_full(MsRecomputeSpec *r) { *r = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_FULL, .num_layers = 1}; }

/* As it stands or, where that does not fit and is guessed too, with all recomputed. */
static gboolean try_spare(Tries *t, MsScenario *s) {
  if (try(t, s)) return TRUE;
  if (!t->recompute_too) return FALSE;
  MsRecomputeSpec own = s->options.recompute;
  set_full(&s->options.recompute);
  gboolean fits = try(t, s);
  s->options.recompute = own;
  return fits;
}

static void other_mbs(Tries *t) {
  g_autoptr(MsScenario) s = ms_scenario_copy(t->run, TRUE);
  do s->training.micro_batch_size *= 2;
  while (try_spare(t, s));
  s->training.micro_batch_size = t->run->training.micro_batch_size / 2;
  if (t->run->training.micro_batch_size % 2 == 0) try(t, s);
}

static void other_recompute(Tries *t) {
  g_autoptr(MsScenario) s = ms_scenario_copy(t->run, TRUE);
  s->options.recompute = (MsRecomputeSpec){.granularity = MS_RECOMPUTE_NONE, .num_layers = 1};
  try(t, s);
}

static void other_experts(Tries *t) {
  g_autoptr(MsScenario) s = ms_scenario_copy(t->run, TRUE);
  if (s->model->num_experts == 0) return;
  s->layout.etp = 1;
  try(t, s);
  s->layout.etp = s->layout.tp;
  try(t, s);
  s->layout.ep = 1;
  try(t, s);
}

static const struct {
  const char *word; /* in `unknown` */
  void (*others)(Tries *);
  gboolean forced; /* what is slower may be all that the software had */
} knobs[] = {{"vpp", other_vpp, FALSE},
             {"mbs", other_mbs, FALSE},
             {"microbatch", other_mbs, FALSE},
             {"recompute", other_recompute, FALSE},
             {"ep", other_experts, TRUE}};

/* --- the run --------------------------------------------------------------------------------------------------- */
static gboolean is_guessed(const MsScenario *s, const char *word) {
  JsonNode *list = s->measured.unknown;
  if (!list || !JSON_NODE_HOLDS_ARRAY(list)) return FALSE;
  JsonArray *words = json_node_get_array(list);
  for (guint i = 0; i < json_array_get_length(words); i++) {
    JsonNode *one = json_array_get_element(words, i);
    if (JSON_NODE_HOLDS_VALUE(one) && g_strcmp0(json_node_get_string(one), word) == 0) return TRUE;
  }
  return FALSE;
}

static gboolean guesses_any(const MsScenario *s) {
  for (guint i = 0; i < G_N_ELEMENTS(knobs); i++)
    if (is_guessed(s, knobs[i].word)) return TRUE;
  return FALSE;
}

double ms_guesses_width(const MsScenario *scenario) {
  if (!guesses_any(scenario)) return 0;
  g_autoptr(MsResult) own = ms_simulate(scenario, MS_FIDELITY_FAST, NULL, NULL);
  if (!own || !(own->step_time_s > 0)) return 0;
  Tries t = {.run = scenario, .step_s = own->step_time_s, .recompute_too = is_guessed(scenario, "recompute")};
  double faster = 0, slower = 0;
  for (guint i = 0; i < G_N_ELEMENTS(knobs); i++) {
    if (!is_guessed(scenario, knobs[i].word)) continue;
    t.least = t.most = 0;
    knobs[i].others(&t);
    faster = hypot(faster, t.least);
    if (knobs[i].forced) slower = hypot(slower, t.most);
  }
  return MAX(1 - exp(-faster), exp(slower) - 1);
}
