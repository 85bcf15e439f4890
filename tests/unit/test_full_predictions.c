/* The project's own guard: its predictions are those of scenarios/check/baseline.json. `moesim check
 * scenarios/check/baseline.json` shows the same; who means to change them runs `make predictions-update`, reads the
 * diff and says why in the commit. Full tier only. */
#include "lib/close.h"

#include "report/report.h"

static void predictions_have_not_drifted(void **state) {
  (void)state;
  GError *error = NULL;
  const MsCheckOptions options = {.tolerance = NAN};
  MsBaseline *baseline = ms_baseline_load("scenarios/check/baseline.json", &error);
  g_autoptr(MsCheck) check = baseline ? ms_check(baseline, &options, &error) : NULL;
  if (!check) fail_msg("%s", error->message);
  g_autofree char *text = ms_report_check(check, 0);
  if (check->drifted > 0) fail_msg("%s(make predictions-update accepts them)", text);
  assert_true(baseline->n >= 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(predictions_have_not_drifted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
