#include "lib/round_trip.h"

#include <string.h>

#include "base/err.h"
#include "layout/layout.h"
#include "lib/close.h"
#include "lib/draw.h"

static char *json_of(const MsScenario *s) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_scenario_write(s, NULL, out);
  return ms_json_out_take(out);
}

static MsImport *import_text(const char *text, MsLaunchForm form, GError **error) {
  const MsImportOptions options = {0};
  return form == MS_LAUNCH_MODELZOO ? ms_import_modelzoo(text, strlen(text), "export", &options, error)
                                    : ms_import_megatron(text, strlen(text), "export", &options, error);
}

/* Ends the test with the first line that differs. */
static void fail_with_difference(const char *want, const char *got) {
  g_auto(GStrv) wants = g_strsplit(want, "\n", -1), gots = g_strsplit(got, "\n", -1);
  int i = 0;
  while (wants[i] && gots[i] && strcmp(wants[i], gots[i]) == 0) i++;
  fail_msg("line %d is %s, not %s", i + 1, gots[i] ? gots[i] : "missing", wants[i] ? wants[i] : "nothing");
}

static void check_refusal(const GError *error) {
  assert_non_null(error);
  assert_int_equal(error->code, MS_ERROR_INPUT);
  assert_null(strchr(error->message, '\n'));
}

gboolean ms_test_round_trip(const MsScenario *scenario, MsLaunch launch) {
  g_autoptr(GError) error = NULL;
  g_autofree char *text = ms_launch_text(scenario, launch, &error);
  if (!text) return check_refusal(error), FALSE;
  g_autoptr(MsImport) import = import_text(text, launch.form, &error);
  if (!import) fail_msg("%s\n%s", error->message, text);
  g_autoptr(MsScenario) canonical = ms_launch_said(scenario);
  g_autofree char *want = json_of(canonical), *got = json_of(import->scenario);
  if (strcmp(want, got) != 0) fail_with_difference(want, got);
  if (import->ignored->len) fail_msg("ignored %s of:\n%s", (char *)import->ignored->pdata[0], text);
  if (import->remarks->len) fail_msg("remark %s about:\n%s", (char *)import->remarks->pdata[0], text);
  return TRUE;
}

#define DRAWS 20000

void ms_test_round_trips(MsLaunch launch, guint32 seed, int rounds) {
  GRand *rand = g_rand_new_with_seed(seed);
  int said = 0, draws = 0;
  for (; said < rounds && draws < DRAWS; draws++) {
    g_autoptr(MsScenario) drawn = ms_test_draw(rand, launch.form == MS_LAUNCH_MT);
    gboolean valid = ms_model_finish(drawn->model, NULL, "", NULL) && ms_layout_check(drawn, NULL);
    if (valid) said += ms_test_round_trip(drawn, launch);
  }
  g_rand_free(rand);
  if (said < rounds) fail_msg("only %d of %d drawn scenarios could be launched", said, draws);
}
