/* What an anchor is worth on published runs: errors of the other runs of its site must not get worse. The table of
 * docs/theory/anchor.md is `moesim anchor --evaluate scenarios/published`, with and without --unnamed. */
#include "lib/close.h"

#include "study/anchor.h"

#include <string.h>

static MsAnchorEvaluation *evaluate(gboolean unnamed, const char *const *paths) {
  GError *error = NULL;
  MsValidateOptions options;
  ms_validate_options_init(&options);
  MsAnchorEvaluation *e = ms_anchor_evaluate(paths, unnamed, &options, &error);
  if (error) fail_msg("%s", error->message);
  return e;
}

static const char *const folders[] = {"scenarios/published/modelzoo", "scenarios/published/mlperf-v3.1",
                                      "scenarios/published/simumax", "scenarios/published/dgxc", NULL};

/* A machine whose software nobody has fitted: one run takes away most of the error, two more. */
static void unknown_software(void **state) {
  (void)state;
  g_autoptr(MsAnchorEvaluation) e = evaluate(TRUE, folders);
  assert_int_equal(e->n_sources, 4);
  assert_true(e->all.before > 0.15);
  assert_true(e->all.after[0] < 0.5 * e->all.before);
  assert_true(e->all.after[1] < e->all.after[0]);
}

/* Known software: there is little to learn; no folder gets worse by more than a point on average, all together get
 * better on average, their median (below 2 %: noise of single runs) not worse by half a point. */
static void known_software(void **state) {
  (void)state;
  g_autoptr(MsAnchorEvaluation) e = evaluate(FALSE, folders);
  for (guint i = 0; i < e->n_sources; i++)
    if (e->source[i].mean_after[0] > e->source[i].mean_before + 0.01)
      fail_msg("%s: %.2f %% with an anchor, %.2f %% without", e->source[i].name, 100 * e->source[i].mean_after[0],
               100 * e->source[i].mean_before);
  assert_true(e->all.after[0] < e->all.before + 0.005);
  assert_true(e->all.mean_after[0] < e->all.mean_before);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(unknown_software), cmocka_unit_test(known_software)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
