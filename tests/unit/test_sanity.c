/* What an expert would notice first: comparisons whose sign is known, on the shipped machines and models. */
#include "lib/close.h"

#include "lib/world.h"
#include "report/report.h"
#include "sim/simulate.h"

#include <string.h>

static double step_s(const MsScenario *s) {
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
  return r->step_time_s;
}

/* Where there is MXFP8, TransformerEngine runs the blockwise recipe on its kernels: the one is no faster than the
 * other. */
static void blockwise_is_mxfp8_on_blackwell(void **state) {
  (void)state;
  static const char *const machine[] = {"b200-sxm", "b300-sxm", "gb200-nvl72", "gb300-nvl72"};
  static const char *const model[] = {"llama3-70b", "qwen3-30b-a3b"};
  for (guint h = 0; h < G_N_ELEMENTS(machine); h++) {
    for (guint m = 0; m < G_N_ELEMENTS(model); m++) {
      g_autoptr(MsScenario) s = ms_test_run(model[m], 0, machine[h], 64);
      if (m == 1) s->layout.ep = 8;
      s->training.precision = MS_BF16;
      double bf16 = step_s(s);
      s->training.precision = MS_MXFP8;
      double mxfp8 = step_s(s);
      s->training.precision = MS_FP8_BLOCKWISE;
      double blockwise = step_s(s);
      if (!(blockwise >= 0.995 * mxfp8 && blockwise <= 1.02 * mxfp8))
        fail_msg("%s on %s: blockwise takes %.3f of mxfp8", model[m], machine[h], blockwise / mxfp8);
      if (m == 0 && !(mxfp8 < bf16 && mxfp8 > bf16 / 2))
        fail_msg("%s on %s: mxfp8 takes %.3f of bf16", model[m], machine[h], mxfp8 / bf16);
    }
  }
}

/* A faster part of the machine makes no run slower; one at a time, for a dense and an MoE run with every kind of
 * communication. */
static void faster_parts_are_never_slower(void **state) {
  (void)state;
  for (int moe = 0; moe < 2; moe++) {
    g_autoptr(MsScenario) s = ms_test_run(moe ? "mixtral-8x7b" : "llama3-70b", 0, "h100-sxm", 64);
    s->layout.tp = 2, s->layout.pp = 2, s->layout.cp = 2, s->options.sequence_parallel = TRUE;
    if (moe) s->layout.ep = 8;
    MsHardware *h = s->hardware;
    double *const rate[] = {&h->scaleup_Bps, &h->nic_Bps, &h->hbm_Bps, &h->peak_bf16_flops};
    double before = step_s(s);
    for (guint i = 0; i < G_N_ELEMENTS(rate); i++) {
      double own = *rate[i];
      *rate[i] = 2 * own;
      double faster = step_s(s);
      *rate[i] = own / 2;
      double slower = step_s(s);
      *rate[i] = own;
      if (!(faster <= before * 1.0001 && slower >= before * 0.9999))
        fail_msg("moe %d, rate %u: %g twice as fast, %g as it is, %g half as fast", moe, i, faster, before, slower);
    }
  }
}

/* Twice the GPUs with twice the batch: the same step, but for the wider data-parallel groups; never a faster one. */
static void weak_scaling_is_nearly_flat(void **state) {
  (void)state;
  double first = 0, last = 0;
  for (int gpus = 128; gpus <= 8192; gpus *= 2) {
    g_autoptr(MsScenario) s = ms_test_run("qwen3-30b-a3b", 0, "h100-sxm", gpus);
    s->layout.tp = 2, s->layout.pp = 4, s->layout.ep = 8, s->options.sequence_parallel = TRUE;
    s->training.global_batch_size = 4 * gpus;
    double now = step_s(s);
    if (first == 0) first = last = now;
    if (!(now >= 0.995 * last && now <= 1.1 * first))
      fail_msg("%d GPUs: %g s, half of them %g, 128 of them %g", gpus, now, last, first);
    last = now;
  }
}

/* Megatron-LM's convention charges dense attention: where sparse attention runs, MFU passes what the machine can do,
 * and the result says by how much. */
static void mfu_of_sparse_attention_is_told(void **state) {
  (void)state;
  for (int sparse = 0; sparse < 2; sparse++) {
    g_autoptr(MsScenario) s = ms_test_run(sparse ? "deepseek-v3.2" : "deepseek-v3", 0, "gb200-nvl72", 256);
    s->training.seq_length = 1 << 20, s->layout.cp = 32, s->layout.ep = 64, s->layout.cp_comm_type = MS_CP_ALL_GATHER;
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
    assert_close(r->peak_flops, 2.5e15, 0.01);
    g_autofree char *note = ms_report_mfu_note(r);
    if (sparse) assert_true(r->counted_over_run > 5 && note && strstr(note, "times the FLOP that run"));
    else assert_true(r->counted_over_run > 0.8 && r->counted_over_run < 1.05 && !note);
  }
}

/* --- what a file may leave out --------------------------------------------------------------------------------- */
static MsScenario *smallest(const char *model, const char *hardware, int gpus, const char *more) {
  g_autofree char *text =
      g_strdup_printf("{\"model\": \"%s\", \"hardware\": \"%s\", \"gpus\": %d, \"training\": {\"seq_length\": 4096, "
                      "\"global_batch_size\": %d}%s}",
                      model, hardware, gpus, gpus, more);
  MsScenario *s = ms_test_scenario_of(text);
  assert_string_equal(s->name, "test"); /* of its file */
  return s;
}

static char *text_of(const MsScenario *scenario) {
  MsJsonOut *out = ms_json_out_new(0);
  ms_scenario_write(scenario, NULL, out);
  return ms_json_out_take(out);
}

/* Every shipped model runs from its name, a machine, GPUs, a sequence length and a batch, or does not fit and says so;
 * and a file that spells out every default means the same. */
static void five_keys_make_a_scenario(void **state) {
  (void)state;
  g_autoptr(GPtrArray) names = ms_data_names("models");
  int fit = 0, too_large = 0;
  for (guint i = 0; i + 1 < names->len; i++) {
    g_autoptr(MsScenario) s = smallest(names->pdata[i], "b300-sxm", 64, "");
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
    fit += r->feasible, too_large += !r->feasible;
    if (r->feasible) assert_true(r->step_time_s > 0);
    else assert_non_null(strstr(r->why_infeasible, "GiB"));
    g_autofree char *spelt = text_of(s);
    g_autoptr(MsScenario) whole = ms_test_scenario_of(spelt);
    g_autoptr(MsResult) again = ms_test_simulate(whole, MS_FIDELITY_FAST);
    assert_close(again->step_time_s, r->step_time_s, 0);
  }
  assert_true(fit >= 20 && too_large >= 5);
}

static void dispatcher_follows_machine_and_ep(void **state) {
  (void)state;
  static const struct {
    const char *model, *hardware, *more;
    MsDispatcher want;
  } cases[] = {
      {"qwen3-30b-a3b", "h100-sxm", "", MS_DISPATCH_ALLTOALL},
      {"qwen3-30b-a3b", "h100-sxm", ", \"layout\": {\"ep\": 8}", MS_DISPATCH_ALLTOALL},
      {"qwen3-30b-a3b", "h100-sxm", ", \"layout\": {\"ep\": 16}", MS_DISPATCH_DEEPEP},
      {"qwen3-30b-a3b", "h100-sxm", ", \"layout\": {\"ep\": 8, \"etp\": 2}", MS_DISPATCH_DEEPEP},
      {"qwen3-30b-a3b", "h100-sxm", ", \"layout\": {\"ep\": 24}", MS_DISPATCH_DEEPEP},
      {"qwen3-30b-a3b", "h100-sxm", ", \"layout\": {\"ep\": 40}", MS_DISPATCH_ALLTOALL},
      {"qwen3-30b-a3b", "a100-sxm-80g", ", \"layout\": {\"ep\": 16}", MS_DISPATCH_ALLTOALL},
      {"qwen3-30b-a3b", "gb200-nvl72", ", \"layout\": {\"ep\": 8}", MS_DISPATCH_HYBRIDEP},
      {"llama3-8b", "gb200-nvl72", "", MS_DISPATCH_ALLTOALL},
      {"qwen3-30b-a3b", "gb200-nvl72", ", \"layout\": {\"ep\": 8}, \"options\": {\"dispatcher\": \"alltoall\"}",
       MS_DISPATCH_ALLTOALL},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(MsScenario) s = smallest(cases[i].model, cases[i].hardware, 64, cases[i].more);
    if (s->options.dispatcher != cases[i].want)
      fail_msg("%s%s: %s", cases[i].hardware, cases[i].more, ms_dispatcher_words[s->options.dispatcher]);
    g_autofree char *defaults = ms_scenario_defaults(s);
    assert_non_null(strstr(defaults, "precision bf16"));
    g_autofree char *said = g_strconcat("dispatcher ", ms_dispatcher_words[cases[i].want], NULL);
    assert_int_equal(strstr(defaults, said) != NULL, !strstr(cases[i].more, "options"));
  }
}

/* "auto" is what schema prints for keys that follow from others, and the same as leaving them out. */
static void auto_is_the_default(void **state) {
  (void)state;
  GString *keys[] = {g_string_new(NULL), g_string_new(NULL)};
  const MsFieldTable *const table[] = {&ms_layout_table, &ms_options_table};
  for (int t = 0; t < 2; t++)
    for (const MsField *f = table[t]->fields; f->key; f++) {
      if (!(f->flags & MS_AUTO)) continue;
      g_string_append_printf(keys[t], "%s\"%s\": \"auto\"", keys[t]->len ? ", " : "", f->key);
      if (!strstr(f->doc, "auto: ")) fail_msg("%s does not say what auto is", f->key);
    }
  g_autofree char *more =
      g_strdup_printf(", \"software\": \"zero-bubble-repo\", \"layout\": {\"ep\": 16, \"tp\": 2, %s}, "
                      "\"options\": {%s}",
                      keys[0]->str, keys[1]->str);
  g_autoptr(MsScenario) said = smallest("qwen3-30b-a3b", "h100-sxm", 64, more),
                        left_out =
                            smallest("qwen3-30b-a3b", "h100-sxm", 64,
                                     ", \"software\": \"zero-bubble-repo\", \"layout\": {\"ep\": 16, \"tp\": 2}");
  for (int t = 0; t < 2; t++) g_string_free(keys[t], TRUE);
  g_autofree char *a = text_of(said), *b = text_of(left_out);
  assert_string_equal(a, b);
  assert_int_equal(said->options.dispatcher, MS_DISPATCH_DEEPEP);
  assert_false(ms_scenario_states(said, &ms_options_table, "dispatcher"));
  assert_true(ms_scenario_states(said, &ms_layout_table, "ep"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blockwise_is_mxfp8_on_blackwell),
      cmocka_unit_test(faster_parts_are_never_slower),
      cmocka_unit_test(weak_scaling_is_nearly_flat),
      cmocka_unit_test(mfu_of_sparse_attention_is_told),
      cmocka_unit_test(five_keys_make_a_scenario),
      cmocka_unit_test(dispatcher_follows_machine_and_ep),
      cmocka_unit_test(auto_is_the_default),
  };
  return cmocka_run_group_tests_name("sanity", tests, NULL, NULL);
}
