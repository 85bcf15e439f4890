/* Laws: every one acts somewhere, a scenario overrides them within their range, what it gives is written back, and the
 * file of their values is held to its table. */
#include "lib/close.h"
#include "lib/tier.h"

#include "base/err.h"
#include "base/io.h"
#include "describe/laws.h"
#include "describe/whatif.h"
#include "sim/simulate.h"
#include "study/acting.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

/* --- every law acts somewhere ---------------------------------------------------------------------------------- */
#define SMALL                                                                                              \
  "\"model\": {\"base\": \"moonlight-16b-a3b\", \"num_layers\": 3, \"mtp_num_layers\": 0}, \"gpus\": 16, " \
  "\"training.global_batch_size\": 64, \"layout\": {\"ep\": 16}"
#define BARE "\"hardware\": {\"base\": \"h100-sxm\", \"curves\": [], \"nccl_sms\": 0}"

static const char *const cases[] = {
    SMALL ", \"hardware\": \"h20-sxm\"",
    SMALL ", \"options.recompute\": {\"granularity\": \"selective\", \"modules\": [\"moe_act\", \"layernorm\"]}, "
          "\"options.cuda_graph_scope\": [], \"hardware.kernel_launch_s\": 1e-4", /* the host decides */
    SMALL ", \"training.routing\": \"natural\", \"training.precision\": \"fp8-blockwise\", "
          "\"options.dispatcher\": \"deepep\", \"options.ep_overlap\": true, \"options.recompute\": "
          "{\"granularity\": \"selective\", \"modules\": [\"moe_act\"]}, \"options.cuda_graph_scope\": []",
    SMALL ", \"options.dispatcher\": \"hybridep\", \"options.ep_overlap\": true, \"hardware.nic_Bps\": 1e10",
    SMALL ", \"options.dispatcher\": \"alltoall\", \"options.ep_overlap\": true, \"hardware.nic_Bps\": 1e10, "
          "\"options.moe_permute_fusion\": false",
    SMALL ", \"training.routing\": \"natural\", \"model.moe_aux_loss_coeff\": 0",
    SMALL ", \"training.routing\": \"natural\", \"model.moe_router_enable_expert_bias\": false, "
          "\"model.moe_aux_loss_coeff\": 1e-3",
    SMALL ", \"options.deterministic_mode\": true, \"options.cross_entropy_fusion\": false, "
          "\"options.cuda_graph_scope\": []",
    SMALL ", " BARE ", \"options.dispatcher\": \"deepep\", \"options.recompute\": {\"granularity\": \"none\"}",
    SMALL ", " BARE ", \"options.dispatcher\": \"alltoall\"",
    "\"model\": {\"base\": \"llama3-8b\", \"num_layers\": 4}, \"gpus\": 16, \"training.global_batch_size\": 64, "
    "\"layout\": {\"tp\": 2, \"pp\": 2}, " BARE,
    "\"model\": {\"base\": \"llama3-8b\", \"num_layers\": 4}, \"gpus\": 16, \"training.global_batch_size\": 64, "
    "\"layout\": {\"tp\": 8}, \"options.cpu_offloading_num_layers\": 1, \"options.recompute\": "
    "{\"granularity\": \"none\"}",
    "\"model\": {\"base\": \"llama3-8b\", \"num_layers\": 4}, \"gpus\": 16, \"training.global_batch_size\": 64, "
    "\"model.num_attention_heads\": 64, \"model.kv_channels\": 64, \"layout\": {\"tp\": 8}, "
    "\"options.attention_backend\": \"triton\", \"hardware.tdp_W\": 500, "
    "\"software\": \"mlperf-v3.1-nemo\"",
    "\"model\": {\"base\": \"qwen3-next-80b-a3b\", \"num_layers\": 4, \"mtp_num_layers\": 0}, \"gpus\": 16, "
    "\"training.global_batch_size\": 64, \"layout\": {\"ep\": 16}, " BARE,
    "\"model\": {\"base\": \"deepseek-v3.2\", \"num_layers\": 4, \"mtp_num_layers\": 0}, \"gpus\": 16, "
    "\"training.global_batch_size\": 64, \"layout\": {\"ep\": 16}",
    SMALL ", \"layout.ep\": 2, \"options.dispatcher\": \"alltoall\", \"hardware\": {\"base\": \"h20-sxm\", \"curves\": "
          "[{\"op\": \"all_to_all\", \"level\": \"nvlink\", \"ranks\": 8, \"form\": \"segments\", "
          "\"segments\": [[1e-4, 3e11]]}]}",
    SMALL ", \"hardware\": {\"base\": \"h100-sxm\", \"vboost\": true}",
    "\"model\": {\"base\": \"llama3-8b\", \"num_layers\": 4}, \"gpus\": 16, \"training.global_batch_size\": 64, "
    "\"layout\": {\"tp\": 4}, \"hardware\": \"gb200-nvl72\", \"software\": \"nemo-25.09\"",
};

/* With the value as an axis of a study, or the shipped ones. */
static MsScenario *case_with(int i, const char *law, const char *value) {
  GError *error = NULL;
  g_autofree char *study = g_strdup_printf("{\"schema\": 1, \"base\": \"run-qwen3-235b-h100-256.json\", \"set\": {%s}, "
                                           "\"axes\": [{\"key\": \"laws.%s\", \"values\": [%s]}]}",
                                           cases[i], law, value);
  MsJson *doc = ms_json_parse(study, -1, MS_SOURCE_DIR "/scenarios/study.json", &error);
  g_autoptr(MsWhatif) whatif = doc ? ms_whatif_from_doc(doc, &error) : NULL;
  if (!whatif) fail_msg("case %d: %s", i, error->message);
  g_autoptr(MsJson) point = ms_whatif_apply(whatif, whatif->base, 0);
  MsScenario *s = ms_scenario_from_doc(point, &error);
  if (!s) fail_msg("case %d: %s", i, error->message);
  return s;
}

typedef struct {
  double step_s, device_B, band;
} Outcome;

static Outcome outcome(const MsScenario *s) {
  GError *error = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
  if (!r) fail_msg("%s", error->message);
  return (Outcome){r->step_time_s, r->memory->stage[r->memory->peak_stage].device_B, r->band};
}

static gboolean moves(MsScenario *s, MsLaw law, double to, const Outcome *was) {
  double value = ms_law_get(&s->laws, law);
  ms_law_set(&s->laws, law, to);
  Outcome is = outcome(s);
  ms_law_set(&s->laws, law, value);
  return memcmp(&is, was, sizeof is) != 0;
}

static void every_law_acts_somewhere(void **state) {
  (void)state;
  gboolean acts[MS_N_LAWS] = {[MS_LAW_last_gradients_band] = TRUE,
                              [MS_LAW_unseen_machine_band] = TRUE, /* these four in test_study */
                              [MS_LAW_band_80_share] = TRUE,
                              [MS_LAW_band_50_share] = TRUE,
                              [MS_LAW_kernel_jitter] = TRUE, /* these two in test_cluster */
                              [MS_LAW_host_jitter] = TRUE,
                              [MS_LAW_fp8_training_rate] = TRUE, /* these two in `moesim fit` */
                              [MS_LAW_mxfp8_training_rate] = TRUE,
                              [MS_LAW_anchor_site_spread] = TRUE, /* these ten in test_anchor */
                              [MS_LAW_anchor_known_spread] = TRUE,
                              [MS_LAW_anchor_class_spread] = TRUE,
                              [MS_LAW_anchor_model_spread] = TRUE,
                              [MS_LAW_anchor_run_noise] = TRUE,
                              [MS_LAW_anchor_profile_noise] = TRUE,
                              [MS_LAW_anchor_odd_model_spread] = TRUE,
                              [MS_LAW_anchor_odd_run_noise] = TRUE,
                              [MS_LAW_anchor_odd_chance] = TRUE,
                              [MS_LAW_anchor_odd_site_chance] = TRUE,
                              [MS_LAW_decision_layout_spread] = TRUE, /* these three in test_decide */
                              [MS_LAW_decision_option_spread] = TRUE,
                              [MS_LAW_decision_run_noise] = TRUE,
                              [MS_LAW_machine_clock_spread] =
                                  TRUE, /* these four in the fit of `validate --cross-validate` */
                              [MS_LAW_architecture_clock_spread] = TRUE,
                              [MS_LAW_lent_clock_spread] = TRUE,
                              [MS_LAW_run_noise] = TRUE};
  for (int i = 0; i < (int)G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = case_with(i, "natural_spread", "0.7");
    Outcome was = outcome(s);
    for (int law = 0; law < MS_N_LAWS; law++) {
      double value = ms_law_get(&s->laws, (MsLaw)law);
      acts[law] = acts[law] || moves(s, (MsLaw)law, value / 2, &was) || moves(s, (MsLaw)law, value * 4, &was);
    }
  }
  for (int law = 0; law < MS_N_LAWS; law++)
    if (!acts[law]) fail_msg("law %s changes nothing", ms_laws_table.fields[law].key);
}

/* Wherever a law acts, in every case where one does (every_law_acts_somewhere): where the number of the step stands
 * still, so does the step. GPUs differ, so that what acts beside the rows is there too. */
static void a_step_of_one_number_takes_one_time(void **state) {
  (void)state;
  int same = 0, other = 0;
  for (int i = 0; i < (int)G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = case_with(i, "natural_spread", "0.7");
    s->cluster.expected = s->cluster.jitter = TRUE;
    guint64 number = ms_step_number(s);
    double step_s = outcome(s).step_s;
    assert_true(number != 0);
    const int every = ms_by_tier(20, 1);
    for (int law = i % every; law < MS_N_LAWS; law += every) {
      double value = ms_law_get(&s->laws, (MsLaw)law);
      ms_law_set(&s->laws, (MsLaw)law, value * 2);
      if (ms_law_get(&s->laws, (MsLaw)law) == value) ms_law_set(&s->laws, (MsLaw)law, value / 2);
      gboolean alike = ms_step_number(s) == number;
      if (alike && outcome(s).step_s != step_s)
        fail_msg("case %d: law %s moves a step whose number stands still", i, ms_laws_table.fields[law].key);
      ms_law_set(&s->laws, (MsLaw)law, value);
      same += alike, other += !alike;
    }
  }
  assert_true(same > 0 && other > 0);
}

static void an_axis_may_be_a_law(void **state) {
  (void)state;
  g_autoptr(MsScenario) low = case_with(0, "unbalanced_share", "0.1"), high = case_with(0, "unbalanced_share", "0.9");
  assert_close(low->laws.unbalanced_share, 0.1, 0);
  assert_close(high->laws.unbalanced_share, 0.9, 0);
}

/* --- what a run says of them ----------------------------------------------------------------------------------- */
static const MsActingLaw *find(const MsActingLaws *acting, const char *key) {
  for (int i = 0; i < acting->n; i++)
    if (strcmp(acting->law[i].key, key) == 0) return &acting->law[i];
  return NULL;
}

static void a_run_names_the_laws_that_move_it(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) s = case_with(5, "natural_spread", "0.7");
  g_autoptr(MsActingLaws) acting = ms_acting_laws(s, &error);
  if (!acting) fail_msg("%s", error->message);
  Outcome was = outcome(s);
  for (int i = 0; i < MS_N_LAWS; i++) {
    const char *key = ms_laws_table.fields[i].key;
    double value = ms_law_get(&s->laws, (MsLaw)i);
    gboolean acts = moves(s, (MsLaw)i, value / 2, &was) || moves(s, (MsLaw)i, value * 2, &was);
    if (acts != (find(acting, key) != NULL)) fail_msg("law %s is %snamed", key, acts ? "not " : "");
  }
  const MsActingLaw *spread = find(acting, "natural_spread"), *clock = find(acting, "attention_clock_loss");
  assert_true(spread->given && !clock->given);
  assert_close(spread->value, 0.7, 0);
  ms_law_set(&s->laws, MS_LAW_natural_spread, 1.4);
  assert_close(1 + spread->doubled.step, outcome(s).step_s / was.step_s, 1e-12);
  assert_true(spread->doubled.step > 0 && spread->halved.step < 0);
}

static void an_origin_without_a_curve_names_its_laws(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = case_with(9, "natural_spread", "0.7");
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  int named = 0;
  assert_non_null(r);
  for (int i = 0; i < r->n_origins; i++) {
    assert_true(!r->origins[i].curve == (r->origins[i].laws != NULL));
    named += strcmp(r->origins[i].op, "gemm") == 0 && strcmp(r->origins[i].laws, "laws default_gemm_*") == 0;
  }
  assert_int_equal(named, 1);
}

/* --- overrides ------------------------------------------------------------------------------------------------- */
static MsScenario *with_laws(const char *laws, GError **error) {
  g_autofree char *text = NULL, *file = g_build_filename(MS_SOURCE_DIR, "scenarios/run-llama3-70b-h100-64.json", NULL);
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  g_autofree char *changed = g_strdup_printf("{\"laws\": %s, %s", laws, strchr(text, '{') + 1);
  g_autoptr(MsJson) doc = ms_json_parse(changed, -1, "run.json", error);
  return doc ? ms_scenario_from_doc(doc, error) : NULL;
}

static void a_scenario_overrides_within_the_range(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScenario) s = with_laws("{\"natural_spread\": 0.25}", &error);
  MsLaws shipped;
  assert_true(ms_laws_load(&shipped, NULL));
  assert_close(s->laws.natural_spread, 0.25, 0);
  assert_close(s->laws.biased_spread, shipped.biased_spread, 0);
  g_autofree char *text = ms_scenario_text(s, 0);
  assert_non_null(strstr(text, "\"laws\":{\"natural_spread\":0.25}"));
}

static void refused(const char *laws, const char *why) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsScenario) s = with_laws(laws, &error);
  if (s) fail_msg("%s was taken", laws);
  if (!strstr(error->message, why)) fail_msg("%s: \"%s\" does not say \"%s\"", laws, error->message, why);
}

static void bad_laws_are_refused(void **state) {
  (void)state;
  refused("{\"attention_clock_loss\": 1.5}", "laws.attention_clock_loss: is 1.5, must be in [0, 1]");
  refused("{\"natural_spred\": 1}", "laws.natural_spred: unknown key, did you mean \"natural_spread\"?");
  refused("{\"natural_spread\": null}", "laws.natural_spread: ");
  refused("[1]", "laws: must be an object");
}

/* --- the file -------------------------------------------------------------------------------------------------- */
static void every_law_has_a_source(void **state) {
  (void)state;
  MsLawEntry *entries = ms_law_entries_load(NULL);
  assert_non_null(entries);
  for (int i = 0; i < MS_N_LAWS; i++)
    if (!*entries[i].source || !*entries[i].fitted_on) fail_msg("law %s has no source", ms_laws_table.fields[i].key);
  ms_law_entries_free(entries);
}

/* A fit may drive a law to its limit: exchanges over four nodes that compute crowds out still come to an end, at every
 * fidelity, and take no less for it. */
static void a_step_ends_with_laws_at_their_limits(void **state) {
  (void)state;
  static const char *const files[] = {"mcore-moe-recipes/MR-qwen3-235b-a22b-h100-bf16_256GPU_TP2PP8EP32.json",
                                      "nemo-bridge/B26.04.01-b200-nemotron-3-super-mxfp8-118.json"};
  static const MsLaw crowded[] = {MS_LAW_crowded_hybridep, MS_LAW_crowded_deepep, MS_LAW_crowded_collective};
  for (int i = 0; i < ms_by_tier(1, (int)G_N_ELEMENTS(files)); i++) {
    g_autofree char *file = g_strdup_printf("%s/scenarios/published/%s", MS_SOURCE_DIR, files[i]);
    g_autoptr(MsScenario) s = ms_scenario_load(file, NULL);
    assert_non_null(s);
    const MsLaws shipped = s->laws;
    double last[MS_FIDELITY_FULL + 1] = {0};
    for (int limit = 0; limit < 3; limit++) {
      for (guint k = 0; k < G_N_ELEMENTS(crowded); k++) {
        const MsField *field = &ms_laws_table.fields[crowded[k]];
        double is = ms_law_get(&shipped, crowded[k]);
        ms_law_set(&s->laws, crowded[k], limit == 0 ? field->lo : limit == 1 ? is : field->hi);
      }
      for (int f = 0; f <= MS_FIDELITY_FULL; f++) {
        g_autoptr(MsResult) r = ms_simulate(s, (MsFidelity)f, NULL, NULL);
        assert_true(r && isfinite(r->step_time_s) && r->step_time_s >= last[f]);
        last[f] = r->step_time_s;
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_law_acts_somewhere),
                                     cmocka_unit_test(a_step_of_one_number_takes_one_time),
                                     cmocka_unit_test(an_axis_may_be_a_law),
                                     cmocka_unit_test(a_run_names_the_laws_that_move_it),
                                     cmocka_unit_test(an_origin_without_a_curve_names_its_laws),
                                     cmocka_unit_test(a_scenario_overrides_within_the_range),
                                     cmocka_unit_test(bad_laws_are_refused),
                                     cmocka_unit_test(every_law_has_a_source),
                                     cmocka_unit_test(a_step_ends_with_laws_at_their_limits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
