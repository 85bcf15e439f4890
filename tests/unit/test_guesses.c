/* tests/unit/test_guesses.c - published runs whose file guessed knobs: their bands reach what those may have been. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "lib/close.h"
#include "lib/world.h"
#include "report/report.h"
#include "study/guesses.h"
#include "study/validate.h"

static MsScenario *run_of(const char *model, int gpus, const char *layout, const char *options, const char *unknown) {
  g_autofree char *text = g_strdup_printf(
      "{\"name\": \"guess\", \"model\": \"%s\", \"hardware\": \"h100-sxm\", \"gpus\": %d, \"training\": "
      "{\"seq_length\": "
      "4096, \"micro_batch_size\": 1, \"global_batch_size\": %d}, \"layout\": {%s}, \"options\": {%s}, \"measured\": "
      "{\"step_time_s\": 1, \"unknown\": %s}}",
      model, gpus, 2 * gpus, layout, options, unknown);
  return ms_test_scenario_of(text);
}

static double fast_s(const char *model, int gpus, const char *layout, const char *options) {
  g_autoptr(MsScenario) s = run_of(model, gpus, layout, options, "null");
  g_autoptr(MsResult) result = ms_test_simulate(s, MS_FIDELITY_FAST);
  return result->step_time_s;
}

static double width_of(const char *model, int gpus, const char *layout, const char *options, const char *unknown) {
  g_autoptr(MsScenario) s = run_of(model, gpus, layout, options, unknown);
  return ms_guesses_width(s);
}

static const char one[] = "\"tp\": 2, \"pp\": 4", deep[] = "\"tp\": 2, \"pp\": 4, \"vpp\": 8";

/* Words that are no knob, and knobs that do not matter here, add nothing. */
static void nothing_guessed(void **state) {
  (void)state;
  static const char *const silent[] = {
      "null", "[]", "\"vpp\"", "[\"weather\", 3, null, [\"vpp\"]]", "[\"ep\"]", "[\"recompute\"]"};
  for (gsize i = 0; i < G_N_ELEMENTS(silent); i++) assert_close(width_of("llama3-8b", 64, one, "", silent[i]), 0, 0);
  assert_close(width_of("llama3-8b", 64, "\"tp\": 2", "", "[\"vpp\"]"), 0, 0);
}

static void virtual_stages(void **state) {
  (void)state;
  double gain = 1 - fast_s("llama3-8b", 64, deep, "") / fast_s("llama3-8b", 64, one, "");
  assert_true(gain > 0.05);
  assert_close(width_of("llama3-8b", 64, one, "", "[\"weather\", \"vpp\"]"), gain, 1e-12);
  assert_close(width_of("llama3-8b", 64, deep, "", "[\"vpp\"]"), 0, 0);
}

/* 80 layers on 16 stages are 5 each; on 9 or 27 the head, or both ends, have chunks of their own. */
static void chunks_come_out_even(void **state) {
  (void)state;
  static const struct {
    int pp;
    const char *text;
  } cases[] = {{16, "Et|(t|)*78tL"}, {27, "Et|(t|)*79L"}, {41, "E|(t|)*80L"}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *own = g_strdup_printf("\"tp\": 8, \"pp\": %d, \"vpp\": 1, \"pipeline_layout\": \"Et*%d|(t|)*%dL\"",
                                           cases[i].pp, 82 - cases[i].pp, cases[i].pp - 2);
    g_autofree char *cut =
        g_strdup_printf("\"tp\": 8, \"pp\": %d, \"pipeline_layout\": \"%s\"", cases[i].pp, cases[i].text);
    int gpus = 8 * cases[i].pp;
    double gain = 1 - fast_s("llama3-70b", gpus, cut, "") / fast_s("llama3-70b", gpus, own, "");
    assert_true(gain > 0.1);
    assert_close(width_of("llama3-70b", gpus, own, "", "[\"vpp\"]"), gain, 1e-12);
  }
}

/* What is recomputed in vain; of both knobs as squares of logarithms. */
static void recompute_and_both(void **state) {
  (void)state;
  static const char full[] = "\"recompute\": {\"granularity\": \"full\", \"method\": \"uniform\", \"num_layers\": 1}";
  double own = fast_s("llama3-8b", 64, one, full), less = log(fast_s("llama3-8b", 64, one, "") / own),
         deeper = log(fast_s("llama3-8b", 64, deep, full) / own);
  assert_true(less < -0.15 && deeper < -0.1);
  assert_close(width_of("llama3-8b", 64, one, full, "[\"recompute\"]"), 1 - exp(less), 1e-12);
  assert_close(width_of("llama3-8b", 64, one, full, "[\"vpp\", \"recompute\"]"), 1 - exp(-hypot(less, deeper)), 1e-12);
}

/* Sharded parameters are gathered for every microbatch. A larger one must fit: with recomputation guessed, by that. */
static void microbatches(void **state) {
  (void)state;
  static const char layout[] = "\"tp\": 2, \"ep\": 8", fsdp[] = "\"fsdp\": \"optim-grads-params\"",
                    full[] = "\"fsdp\": \"optim-grads-params\", \"recompute\": {\"granularity\": \"full\", "
                             "\"method\": \"uniform\", \"num_layers\": 1}";
  static const char model[] = "mixtral-8x22b";
  double own = fast_s(model, 64, layout, fsdp), least = own;
  for (int n = 2; n <= 4; n *= 2) {
    g_autoptr(MsScenario) s = run_of(model, 64, layout, full, "null");
    s->training.micro_batch_size = n;
    g_autoptr(MsResult) result = ms_test_simulate(s, MS_FIDELITY_FAST);
    assert_true(result->feasible);
    least = MIN(least, result->step_time_s);
  }
  assert_true(least < 0.6 * own);
  assert_close(width_of(model, 64, layout, fsdp, "[\"mbs\"]"), 0, 0);
  assert_close(width_of(model, 64, layout, fsdp, "[\"mbs\", \"recompute\"]"), 1 - least / own, 1e-12);
}

/* Megatron-Core had experts cut like attention: what is slower counts as well. */
static void experts(void **state) {
  (void)state;
  static const char whole[] = "\"tp\": 4, \"ep\": 8", cut[] = "\"tp\": 4, \"ep\": 8, \"etp\": 4",
                    alone[] = "\"tp\": 4, \"etp\": 4";
  double own = fast_s("mixtral-8x7b", 64, whole, ""),
         most = MAX(fast_s("mixtral-8x7b", 64, cut, ""), fast_s("mixtral-8x7b", 64, alone, ""));
  assert_true(most > 1.1 * own);
  assert_close(width_of("mixtral-8x7b", 64, whole, "", "[\"ep\"]"), most / own - 1, 1e-12);
}

/* Rows of `moesim validate` have it in their bands. */
static void rows_are_wider(void **state) {
  (void)state;
  static const char *const said[] = {"[\"vpp\"]", "null"};
  MsValidateRow row[2];
  MsValidation *v[2];
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsScenario) s = run_of("llama3-8b", 64, one, "", said[i]);
    g_autofree char *text = ms_scenario_text(s, 0), *folder = g_dir_make_tmp(NULL, NULL),
                    *file = g_build_filename(folder, "guess.json", NULL);
    const char *const paths[] = {file, NULL};
    assert_true(g_file_set_contents(file, text, -1, NULL));
    MsValidateOptions options;
    ms_validate_options_init(&options);
    v[i] = ms_validate(paths, &options, NULL);
    assert_true(g_unlink(file) == 0 && g_rmdir(folder) == 0);
    assert_non_null(v[i]);
    row[i] = v[i]->rows[0];
  }
  assert_true(row[0].guessed > 0.05 && row[1].guessed == 0);
  assert_close(row[0].predicted, row[1].predicted, 0);
  assert_close(row[0].band, hypot(row[1].band, row[0].guessed), 1e-12);
  assert_close(row[0].band_80, hypot(row[1].band_80, 0.8 * row[0].guessed), 1e-12);
  assert_close(row[0].band_50, hypot(row[1].band_50, 0.5 * row[0].guessed), 1e-12);
  for (int i = 0; i < 2; i++) ms_validation_free(v[i]);
}

static char *said_of(const MsScenario *s, const MsResult *result) { return ms_report_result(s, result, NULL, 0); }

/* `moesim run` says that the band is of the layout as it stands. */
static void told_beside_the_run(void **state) {
  (void)state;
  static const char *const said[] = {"[\"vpp\"]", "null"};
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsScenario) s = run_of("llama3-8b", 64, one, "", said[i]);
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FAST);
    double reach = hypot(r->band, ms_guesses_width(s));
    s->measured.step_time_s = r->step_time_s * (1 - (r->band + reach) / 2);
    g_autofree char *near = said_of(s, r);
    s->measured.step_time_s = r->step_time_s * (1 - 1.01 * reach);
    g_autofree char *far = said_of(s, r);
    s->measured.step_time_s = r->step_time_s * (1 - 0.99 * r->band);
    g_autofree char *inside = said_of(s, r);
    assert_int_equal(strstr(near, "of which the file guessed some") != NULL, i == 0);
    assert_non_null(strstr(far, ", outside the band\n"));
    assert_non_null(strstr(inside, ", which is inside the band\n"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_guessed),      cmocka_unit_test(virtual_stages),
      cmocka_unit_test(chunks_come_out_even), cmocka_unit_test(recompute_and_both),
      cmocka_unit_test(microbatches),         cmocka_unit_test(experts),
      cmocka_unit_test(rows_are_wider),       cmocka_unit_test(told_beside_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
