/* Where the figures of a machine come from: every shipped profile marks each; an assumed figure widens the band, is
 * named beside the prediction and is refused under `strict`; machines are built upon machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "describe/sources.h"
#include "lib/world.h"
#include "sim/band.h"
#include "sim/simulate.h"

static MsHardware *machine(const char *json, const char *name, GError **error) {
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, name, error);
  return doc ? ms_hardware_from_json(doc, ms_json_root(doc), "", error) : NULL;
}

/* --- the shipped profiles -------------------------------------------------------------------------------------- */
/* Figures that no curve shows, by key: they decide whether and how fast a run is. */
static const char *const decisive[] = {"peak_bf16_flops", "hbm_B",         "hbm_Bps",
                                       "nic_Bps",         "gpus_per_node", "kernel_launch_s"};

static void every_figure_is_marked(void **state) {
  (void)state;
  g_autoptr(GPtrArray) files = ms_test_files("hardware");
  assert_true(files->len >= 20);
  for (guint i = 0; i < files->len; i++) {
    GError *error = NULL;
    g_autoptr(MsHardware) hw = ms_hardware_load(files->pdata[i], &error);
    if (!hw) fail_msg("%s", error->message);
    for (guint k = 0; k < G_N_ELEMENTS(decisive); k++) {
      g_autofree char *text = ms_source_text(hw, decisive[k]);
      if (!text || ms_source_mark(hw, decisive[k]) == MS_MARK_STATED)
        fail_msg("%s: %s has no marked source", hw->name, decisive[k]);
    }
    if (!(hw->peak_bf16_flops > 0 && hw->hbm_B > 0 && hw->hbm_Bps > 0 && hw->nic_Bps > 0 && hw->host_link_Bps > 0))
      fail_msg("%s: a figure that every run may need is neither known nor assumed", hw->name);
  }
}

/* Dense and MoE, on one node and on two: no machine lacks what a run needs. */
static void every_machine_answers(void **state) {
  (void)state;
  g_autoptr(GPtrArray) files = ms_test_files("hardware");
  for (guint i = 0; i < files->len; i++) {
    g_autofree char *file = g_path_get_basename(files->pdata[i]), *name = g_strndup(file, strlen(file) - 5);
    const char *const models[] = {"llama3-8b", "qwen3-30b-a3b"};
    for (int m = 0; m < 2; m++) {
      g_autoptr(MsScenario) s = ms_test_run(models[m], 0, name, 16);
      s->layout.ep = m == 1 ? 8 : 1;
      GError *error = NULL;
      g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_BOUND, NULL, &error);
      if (!r) fail_msg("%s on %s: %s", models[m], name, error->message);
      assert_true(r->step_time_s > 0 && r->mfu > 0.02 && r->mfu < 1 && r->band > 0 && r->band < 2);
      g_autofree char *caveat = ms_caveat(s, NULL, MS_FIDELITY_FULL);
      assert_true((caveat != NULL) == (strstr(caveat ? caveat : "", "assumed") || s->hardware->published_runs == 0));
    }
  }
}

/* --- what an assumption does ----------------------------------------------------------------------------------- */
static void an_assumption_is_said(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "mtt-s5000", 16);
  s->layout.tp = 2;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  assert_true(r && r->n_assumed >= 3);
  assert_string_equal(r->assumed[0].key, "peak_bf16_flops");
  assert_true(r->assumed[0].within == 0.2 && r->assumed[0].share > 0.5 && r->assumed[0].share <= 1);
  assert_true(r->band > hypot(r->band_curves, ms_band_common(&s->laws, &r->ground)));
  assert_non_null(strstr(r->caveat, "mtt-s5000: peak_bf16_flops (FLOP a second)"));
  assert_non_null(strstr(r->caveat, "no published runs compared"));
  for (int i = 1; i < r->n_assumed; i++)
    assert_true(r->assumed[i - 1].share * r->assumed[i - 1].within >= r->assumed[i].share * r->assumed[i].within);
}

/* AMD's machines have kernels of one MI300X (AMD-AGI/Primus-Turbo) and ratios of AMD's means and of AITER's, and no run
 * but six of MI300X was fitted. Samples/s of Llama 2 70B with LoRA on eight (mlcommons/training_results_v5.1, AMD's own
 * and Cisco's), of which MI300X recomputes 21 layers. */
static void relatives_of_a_measured_machine_are_near(void **state) {
  (void)state;
  static const struct {
    const char *machine;
    int recomputed;
    double samples_per_s, within;
  } published[] = {
      {"mi300x", 21, 2.118, 0.1}, {"mi325x", 0, 2.836, 0.15}, {"mi350x", 0, 4.822, 0.1}, {"mi355x", 0, 5.874, 0.15}};
  for (guint i = 0; i < G_N_ELEMENTS(published); i++) {
    g_autofree char *text = g_strdup_printf(
        "{\"name\": \"lora\", \"model\": \"llama2-70b\", \"hardware\": \"%s\", \"gpus\": 8, \"training\": "
        "{\"seq_length\": 8192, \"micro_batch_size\": 1, \"global_batch_size\": 8, \"precision\": \"fp8-delayed\", "
        "\"lora\": {\"rank\": 16, \"targets\": [\"linear_qkv\", \"linear_proj\"]}}, \"layout\": {}, \"options\": "
        "{\"sequence_parallel\": false, \"fp8_param_gather\": true, \"main_grads_dtype\": \"bf16\", "
        "\"grad_reduce_dtype\": \"bf16\", \"disable_parameter_transpose_cache\": true, \"recompute\": "
        "{\"granularity\": \"%s\"%s}, \"activation_func_fp8_input_store\": true}}",
        published[i].machine, published[i].recomputed ? "full" : "none",
        published[i].recomputed ? ", \"method\": \"block\", \"num_layers\": 21" : "");
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
    double error = r->step_time_s / (8 / published[i].samples_per_s) - 1;
    if (!(fabs(error) < published[i].within)) fail_msg("%s: %+.1f %%", published[i].machine, 100 * error);
  }
}

/* The vendor's figures for its own clusters: 60 % MFU dense, about 40 % MoE (ldeepai.com, reportify.ai). */
static void the_vendors_figures_lie_in_the_band(void **state) {
  (void)state;
  g_autoptr(MsScenario) dense = ms_test_run("llama3-8b", 0, "mtt-s5000", 64);
  g_autoptr(MsScenario) moe = ms_test_run("qwen3-235b-a22b", 0, "mtt-s5000", 256);
  dense->training.global_batch_size = 1024;
  moe->training.global_batch_size = 4096; /* as MoE models are trained; 64 microbatches */
  dense->options.overlap_grad_reduce = dense->options.overlap_param_gather = TRUE;
  moe->options.overlap_grad_reduce = moe->options.overlap_param_gather = TRUE;
  moe->layout.tp = moe->layout.pp = 2, moe->layout.ep = 8;
  g_autoptr(MsResult) a = ms_simulate(dense, MS_FIDELITY_FAST, NULL, NULL),
                      b = ms_simulate(moe, MS_FIDELITY_FAST, NULL, NULL);
  assert_true(fabs(0.6 / a->mfu - 1) < a->band);
  assert_true(fabs(0.4 / b->mfu - 1) < b->band);
}

/* Whether a run fits into a memory that nobody knows is no answer, neither is "not". */
static void a_memory_is_needed(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h100-sxm", 16);
  s->hardware->hbm_B = NAN;
  for (int fidelity = MS_FIDELITY_BOUND; fidelity <= MS_FIDELITY_FULL; fidelity++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(MsResult) r = ms_simulate(s, (MsFidelity)fidelity, NULL, &error);
    assert_null(r);
    assert_non_null(strstr(error->message, "hardware h100-sxm: hbm_B is unknown; give it"));
  }
}

static void strict_refuses_by_name(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "mtt-s5000", 16);
  ms_scenario_be_strict(s);
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_BOUND, NULL, &error);
  assert_null(r);
  assert_non_null(strstr(error->message, "hardware mtt-s5000: peak_bf16_flops is unknown"));
  g_clear_error(&error);
  g_autoptr(MsScenario) known = ms_test_run("llama3-8b", 0, "h100-sxm", 16);
  ms_scenario_be_strict(known);
  g_autoptr(MsResult) same = ms_simulate(known, MS_FIDELITY_FULL, NULL, NULL);
  assert_true(same && !same->caveat && same->n_assumed == 0);
  g_autoptr(MsResult) least = ms_simulate(known, MS_FIDELITY_BOUND, NULL, NULL);
  assert_true(least && g_str_has_prefix(least->caveat, "bound: "));
}

/* Bandwidths that were measured on the machine do not rest on what is assumed of its links; those of a machine that it
 * is built upon do, where it assumes another figure. */
static double share_of_link(const char *provenance) {
  g_autofree char *text = g_strdup_printf(
      "{\"base\": \"mtt-s5000\", \"curves\": [{\"op\": \"all_gather\", \"level\": \"nvlink\", \"form\": \"segments\", "
      "\"segments\": [[2e-5, 2e11]], \"provenance\": {%s}}, {\"op\": \"reduce_scatter\", \"level\": \"nvlink\", "
      "\"form\": \"segments\", \"segments\": [[2e-5, 2e11]], \"provenance\": {%s}}]}",
      provenance, provenance);
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "mtt-s5000", 8);
  s->layout.tp = 8;
  ms_hardware_free(s->hardware);
  s->hardware = machine(text, "x.json", NULL);
  assert_non_null(s->hardware);
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  for (int i = 0; i < r->n_assumed; i++)
    if (strcmp(r->assumed[i].key, "scaleup_Bps") == 0) return r->assumed[i].share;
  return 0;
}

static void what_was_measured_is_not_assumed(void **state) {
  (void)state;
  double stated = share_of_link(""), measured = share_of_link("\"n_fitted\": 12");
  assert_true(stated > 0.02 && measured < stated / 5);
  g_autoptr(MsHardware) base = ms_hardware_load("h200-sxm", NULL);
  g_autoptr(MsHardware) nvl = ms_hardware_load("h200-nvl", NULL);
  int own = 0;
  for (int i = 0; i < base->num_curves; i++) own += ms_curve_is_own(&base->curves[i]);
  assert_true(own > 10 && ms_source_within(nvl, "nic_Bps") > 0);
  for (int i = 0; i < nvl->num_curves; i++) assert_false(ms_curve_is_own(&nvl->curves[i]));
}

/* Of a link all of whose messages were measured the assumed bandwidth moves nothing: strict takes it. Where one of them
 * was not, or stands in a file without points, it does not. */
static void strict_takes_measured_curves(void **state) {
  (void)state;
  static const char *const ops[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"};
  for (int lacking = -1; lacking < (int)G_N_ELEMENTS(ops); lacking++) {
    g_autoptr(GString) text = g_string_new("{\"base\": \"h20-sxm\", \"curves\": [");
    for (int i = 0; i < (int)G_N_ELEMENTS(ops); i++)
      g_string_append_printf(text,
                             "%s{\"op\": \"%s\", \"level\": \"network\", \"form\": \"segments\", \"segments\": [[2e-5, "
                             "4e10]], \"provenance\": {%s}}",
                             i ? ", " : "", ops[i], i == lacking ? "" : "\"n_fitted\": 12");
    g_string_append(text, "]}");
    g_autoptr(MsScenario) s = ms_test_run("llama3-8b", 0, "h20-sxm", 32);
    ms_hardware_free(s->hardware);
    s->hardware = machine(text->str, "x.json", NULL);
    assert_true(ms_source_within(s->hardware, "nic_Bps") > 0);
    g_autoptr(MsResult) before = ms_test_simulate(s, MS_FIDELITY_FULL);
    ms_scenario_be_strict(s);
    g_autoptr(GError) error = NULL;
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
    if (lacking < 0) {
      assert_non_null(r);
      assert_true(r->step_time_s == before->step_time_s);
    } else assert_true(!r && strstr(error->message, "nic_Bps is unknown"));
  }
}

/* Cores of one CPU hand messages on through its cache: a busy host's memory may be the slower of both. */
static void cores_share_a_cache(void **state) {
  (void)state;
  for (int serial = 0; serial < 2; serial++) {
    g_autofree char *text =
        g_strdup_printf("{\"base\": \"h100-sxm\", \"serial\": %s, \"scaleup_Bps\": 1.9e10, \"nic_Bps\": "
                        "1.9e10, \"host_link_Bps\": 1.9e10, \"hbm_Bps\": 1.3e10, \"curves\": [], "
                        "\"peak_bf16_flops\": 2e10, \"peak_fp8_flops\": null, \"peak_fp16_flops\": "
                        "null, \"peak_fp32_flops\": null}",
                        serial ? "true" : "false");
    g_autoptr(GError) error = NULL;
    g_autoptr(MsHardware) hw = machine(text, "x.json", &error);
    if (serial && !hw) fail_msg("%s", error->message);
    assert_true(serial || (!hw && strstr(error->message, "no link is faster than the memory behind it")));
  }
}

/* A device with another peak is none that published runs were compared on; one with another network is. */
static void another_peak_is_another_device(void **state) {
  (void)state;
  g_autoptr(MsHardware) base = ms_hardware_load("b200-sxm", NULL);
  g_autoptr(MsHardware) faster = machine("{\"base\": \"b200-sxm\", \"peak_bf16_flops\": 4e15}", "x.json", NULL);
  g_autoptr(MsHardware) wider = machine("{\"base\": \"b200-sxm\", \"nic_Bps\": 1e11}", "x.json", NULL);
  g_autoptr(MsHardware) said =
      machine("{\"base\": \"b200-sxm\", \"peak_bf16_flops\": 4e15, \"published_runs\": 3}", "x.json", NULL);
  assert_true(base->published_runs > 0 && faster->published_runs == 0);
  assert_int_equal(wider->published_runs, base->published_runs);
  assert_int_equal(said->published_runs, 3);
}

/* --- machines upon machines ------------------------------------------------------------------------------------ */
static void an_override_is_stated(void **state) {
  (void)state;
  g_autoptr(MsHardware) hw = machine("{\"base\": \"mtt-s5000\", \"nic_Bps\": 4e10}", "x.json", NULL);
  assert_true(hw->nic_Bps == 4e10 && ms_source_mark(hw, "nic_Bps") == MS_MARK_STATED);
  assert_true(ms_source_within(hw, "nic_Bps") == 0 && ms_source_within(hw, "peak_bf16_flops") == 0.2);
  g_autoptr(MsHardware) own = machine(
      "{\"base\": \"h100-sxm\", \"nic_Bps\": 1e10, \"sources\": {\"nic_Bps\": {\"mark\": \"measured\", \"text\": "
      "\"ours\"}}}",
      "x.json", NULL);
  g_autofree char *text = ms_source_text(own, "nic_Bps"), *kept = ms_source_text(own, "hbm_Bps");
  assert_string_equal(text, "measured: ours");
  assert_true(g_str_has_prefix(kept, "datasheet: "));
}

static void a_file_has_a_base(void **state) {
  (void)state;
  g_autoptr(MsHardware) base = ms_hardware_load("h200-sxm", NULL);
  g_autoptr(MsHardware) nvl = ms_hardware_load("h200-nvl", NULL);
  assert_string_equal(nvl->name, "h200-nvl");
  assert_true(nvl->num_curves == base->num_curves && nvl->hbm_Bps == base->hbm_Bps);
  assert_true(nvl->nvlink_domain_gpus == 4 && nvl->peak_bf16_flops < base->peak_bf16_flops);
  for (int i = 0; i < nvl->num_curves; i++) /* those of the network follow its slower port */
    if (nvl->curves[i].form == MS_FORM_SEGMENTS && g_strcmp0(nvl->curves[i].level, "network") == 0)
      assert_true(fabs(nvl->curves[i].segment_Bps[0] / base->curves[i].segment_Bps[0] - 0.5) < 1e-12);
}

/* MI300X with the figures of MI325X is that machine, with all it has of its own; with one less it is not, but power
 * still raises the clock. */
static void figures_name_a_variant(void **state) {
  (void)state;
  g_autoptr(MsHardware) variant = ms_hardware_load("mi325x", NULL);
  g_autoptr(MsHardware) same = machine("{\"base\": \"mi300x\", \"hbm_B\": 274877906944, \"hbm_Bps\": 6e12, "
                                       "\"tdp_W\": 1000, \"nic_Bps\": 4e10}",
                                       "x.json", NULL);
  g_autoptr(MsHardware) other = machine("{\"base\": \"mi300x\", \"hbm_Bps\": 6e12, \"tdp_W\": 1000}", "x.json", NULL);
  g_autoptr(MsHardware) third = machine("{\"base\": \"mi300x\", \"peak_bf16_flops\": 2.5166e15, "
                                        "\"peak_fp8_flops\": 5.0332e15, \"hbm_B\": 309237645312, "
                                        "\"hbm_Bps\": 8e12, \"tdp_W\": 1400}",
                                        "x.json", NULL);
  assert_string_equal(same->name, "mi325x");
  assert_true(same->sustained_derate == variant->sustained_derate && isnan(same->sustained_tdp_W));
  assert_true(same->nic_Bps == 4e10);
  assert_string_equal(third->name, "mi355x");
  assert_string_equal(other->name, "mi300x");
  assert_true(other->sustained_tdp_W == 750 && other->sustained_derate < variant->sustained_derate);
}

static void a_model_file_has_a_base(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-base-XXXXXX", NULL);
  g_autofree char *a = g_build_filename(folder, "a.json", NULL), *b = g_build_filename(folder, "b.json", NULL),
                  *c = g_build_filename(folder, "c.json", NULL);
  assert_true(ms_write_file(a, "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}\n", -1, NULL));
  assert_true(ms_write_file(b, "{\"base\": \"./a.json\", \"name\": \"wide\", \"num_experts\": 16}\n", -1, NULL));
  assert_true(ms_write_file(c, "{\"base\": \"./c.json\"}\n", -1, NULL));
  g_autoptr(MsModel) first = ms_model_load(a, &error);
  g_autoptr(MsModel) second = ms_model_load(b, &error);
  if (!first || !second) fail_msg("%s", error->message);
  assert_string_equal(first->name, "a");
  assert_string_equal(second->name, "wide");
  assert_true(first->num_layers == 8 && second->num_layers == 8);
  assert_true(first->num_experts == 8 && second->num_experts == 16);
  assert_null(ms_model_load(c, &error));
  assert_non_null(strstr(error->message, "base: more than 8 models upon one another"));
  g_clear_error(&error);
  remove(a), remove(b), remove(c), remove(folder);
}

static void circles_end(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-base-XXXXXX", NULL);
  g_autofree char *a = g_build_filename(folder, "a.json", NULL), *b = g_build_filename(folder, "b.json", NULL);
  assert_true(ms_write_file(a, "{\"base\": \"./b.json\"}\n", -1, NULL));
  assert_true(ms_write_file(b, "{\"base\": \"./a.json\", \"hbm_B\": 1e10}\n", -1, NULL));
  g_autoptr(MsHardware) hw = ms_hardware_load(a, &error);
  assert_null(hw);
  assert_non_null(strstr(error->message, "machines upon one another"));
  g_clear_error(&error);
  remove(a), remove(b), remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_figure_is_marked),
                                     cmocka_unit_test(every_machine_answers),
                                     cmocka_unit_test(an_assumption_is_said),
                                     cmocka_unit_test(relatives_of_a_measured_machine_are_near),
                                     cmocka_unit_test(the_vendors_figures_lie_in_the_band),
                                     cmocka_unit_test(a_memory_is_needed),
                                     cmocka_unit_test(strict_refuses_by_name),
                                     cmocka_unit_test(strict_takes_measured_curves),
                                     cmocka_unit_test(cores_share_a_cache),
                                     cmocka_unit_test(what_was_measured_is_not_assumed),
                                     cmocka_unit_test(another_peak_is_another_device),
                                     cmocka_unit_test(an_override_is_stated),
                                     cmocka_unit_test(a_file_has_a_base),
                                     cmocka_unit_test(figures_name_a_variant),
                                     cmocka_unit_test(a_model_file_has_a_base),
                                     cmocka_unit_test(circles_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
