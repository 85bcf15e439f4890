/* The gap between MFU and 100 %: its parts add up to the step exactly, on a sample of the published runs and on made-up
 * ones. */
#include "lib/close.h"
#include "lib/tier.h"

#include "lib/world.h"
#include "sim/simulate.h"

#include <string.h>

static double part_of(const MsResult *r, const char *name) {
  for (int i = 0; i < r->n_gap; i++)
    if (strcmp(r->gap[i].name, name) == 0) return r->gap[i].fraction;
  return 0;
}

static gboolean may_be_negative(const char *name, MsFidelity fidelity) {
  static const char *const signed_parts[] = {"FLOP beyond the convention", "FLOP beside other work",
                                             "slowed by communication beside it", "wider types than the run's", NULL};
  return g_strv_contains(signed_parts, name) || (fidelity != MS_FIDELITY_FULL && strcmp(name, "other") == 0);
}

static void check_gap(const char *file, const MsResult *r) {
  double sum = 0;
  if (r->n_gap == 0) fail_msg("%s: no parts", file);
  assert_string_equal(r->gap[0].name, "model FLOP at peak");
  assert_close(r->gap[0].fraction, r->mfu, 1e-12);
  for (int i = 0; i < r->n_gap; i++) {
    sum += r->gap[i].fraction;
    if (!(r->gap[i].fraction > -1e-9) && !may_be_negative(r->gap[i].name, r->fidelity))
      fail_msg("%s at %s: %s is %g", file, ms_fidelity_words[r->fidelity], r->gap[i].name, r->gap[i].fraction);
    for (int j = 0; j < i; j++) assert_string_not_equal(r->gap[i].name, r->gap[j].name);
  }
  if (fabs(sum - 1) > 1e-9) fail_msg("%s at %s: parts add up to %.12g", file, ms_fidelity_words[r->fidelity], sum);
}

static void published_parts_add_up(void **state) {
  (void)state;
  g_autoptr(GPtrArray) files = ms_test_files("scenarios/published");
  int checked = 0, every = ms_by_tier(48, 12);
  for (guint i = 0; i < files->len; i += (guint)every) {
    const char *file = g_ptr_array_index(files, i);
    g_autoptr(MsScenario) s = ms_scenario_load(file, NULL);
    for (int f = MS_FIDELITY_FAST; s && f <= MS_FIDELITY_FULL; f++) {
      g_autoptr(MsResult) r = ms_simulate(s, (MsFidelity)f, NULL, NULL);
      if (!r) continue; /* refused by name; test_full_fidelity looks at why */
      check_gap(file, r);
      checked++;
    }
  }
  assert_true(checked > 480 / every);
}

static MsResult *run(MsScenario *s) {
  GError *error = NULL;
  MsResult *r = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
  if (!r) fail_msg("%s", error->message);
  check_gap(s->name, r);
  return r;
}

static void recomputation_has_a_part_of_its_own(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", 8);
  g_autoptr(MsResult) plain = run(s);
  s->options.recompute.granularity = MS_RECOMPUTE_FULL;
  g_autoptr(MsResult) full = run(s);
  assert_true(part_of(plain, "recomputation") == 0);
  assert_true(part_of(full, "recomputation") > 0.1);
  assert_close(part_of(full, "kernels: GEMM") * full->step_time_s, part_of(plain, "kernels: GEMM") * plain->step_time_s,
               1e-9);
}

static void one_gpu_waits_for_nobody(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", 1);
  g_autoptr(MsResult) r = run(s);
  assert_true(part_of(r, "pipeline bubble") == 0 && part_of(r, "uneven stages") == 0);
  for (int i = 0; i < r->n_gap; i++) assert_false(g_str_has_prefix(r->gap[i].name, "exposed"));
}

static void low_precision_shows_quantisation_and_wider_types(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", 8);
  g_autoptr(MsResult) bf16 = run(s);
  s->training.precision = MS_FP8_TENSORWISE;
  g_autoptr(MsResult) fp8 = run(s);
  assert_true(part_of(bf16, "quantisation") == 0);
  assert_true(part_of(fp8, "quantisation") > 0);
  assert_true(part_of(fp8, "wider types than the run's") > part_of(bf16, "wider types than the run's"));
}

static void a_last_stage_with_the_head_makes_stages_uneven(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_run("llama3-8b", -1, "h100-sxm", 8);
  s->layout.pp = 4;
  s->training.global_batch_size = 32;
  g_autoptr(MsResult) r = run(s);
  assert_true(part_of(r, "uneven stages") > 0);
  assert_true(part_of(r, "pipeline bubble") > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(published_parts_add_up), cmocka_unit_test(recomputation_has_a_part_of_its_own),
      cmocka_unit_test(one_gpu_waits_for_nobody), cmocka_unit_test(low_precision_shows_quantisation_and_wider_types),
      cmocka_unit_test(a_last_stage_with_the_head_makes_stages_uneven)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
