/* Files of every kind that must be refused, and with which line: tests/lib/refusals.h. */
#include "lib/close.h"

#include "base/err.h"
#include "describe/goodput.h"
#include "describe/whatif.h"
#include "study/baseline.h"
#include "lib/data.h"
#include "lib/refusals.h"

#include <string.h>

static gboolean load_model(const char *file, GError **error) {
  MsModel *model = ms_model_load(file, error);
  ms_model_free(model);
  return model != NULL;
}

static gboolean load_hardware(const char *file, GError **error) {
  MsHardware *hardware = ms_hardware_load(file, error);
  ms_hardware_free(hardware);
  return hardware != NULL;
}

static gboolean load_scenario(const char *file, GError **error) {
  MsScenario *scenario = ms_scenario_load(file, error);
  ms_scenario_free(scenario);
  return scenario != NULL;
}

static gboolean load_request(const char *file, GError **error) {
  MsRequest *request = ms_request_load(file, error);
  ms_request_free(request);
  return request != NULL;
}

static gboolean load_whatif(const char *file, GError **error) {
  MsWhatif *whatif = ms_whatif_load(file, error);
  ms_whatif_free(whatif);
  return whatif != NULL;
}

static gboolean load_baseline(const char *file, GError **error) {
  MsBaseline *baseline = ms_baseline_load(file, error);
  ms_baseline_free(baseline);
  return baseline != NULL;
}

static gboolean load_under(const char *file, GError **error) {
  MsDisturbances *d = ms_disturbances_load(file, error);
  ms_disturbances_free(d);
  return d != NULL;
}

static gboolean load_goodput(const char *file, GError **error) {
  MsGoodput *goodput = ms_goodput_load(file, error);
  ms_goodput_free(goodput);
  return goodput != NULL;
}

static const struct {
  const char *kind;
  gboolean (*load)(const char *, GError **);
  int at_least;
} kinds[] = {{"model", load_model, 70},     {"hardware", load_hardware, 45}, {"scenario", load_scenario, 70},
             {"request", load_request, 29}, {"whatif", load_whatif, 31},     {"baseline", load_baseline, 23},
             {"under", load_under, 19},     {"goodput", load_goodput, 26}};

static GError *refuse(const char *kind, const char *file, const char *text, gsize length) {
  (void)text, (void)length;
  GError *error = NULL;
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (strcmp(kinds[i].kind, kind) == 0) kinds[i].load(file, &error);
  return error;
}

static void corpus(void **state) {
  (void)state;
  g_autofree char *folder = ms_test_data_path("");
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) ms_test_refusals(kinds[i].kind, folder, refuse, kinds[i].at_least);
}

/* Too large for the repository. */
static void generated(void **state) {
  (void)state;
  static const char *const open[] = {"[", "{\"a\":", "{\"layout\":{\"tp\":["};
  for (guint i = 0; i < G_N_ELEMENTS(open); i++) {
    GString *text = g_string_new(NULL);
    for (int n = 0; n < 100000; n++) g_string_append(text, open[i]);
    ms_test_data_write("deep.json", text->str);
    g_string_free(text, TRUE);
    char *file = ms_test_data_path("deep.json");
    GError *error = NULL;
    assert_false(load_scenario(file, &error));
    assert_int_equal(error->code, MS_ERROR_INPUT);
    assert_true(g_str_has_suffix(error->message, "nested deeper than 64 levels"));
    g_clear_error(&error);
    g_free(file);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(generated)};
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
