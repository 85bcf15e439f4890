/* The negative corpus: tests/invalid/KIND/NAME.json must be refused with exactly the line in NAME.err, where
 * $FILE stands for the file. MOESIM_BLESS=1 writes the .err files instead; read the difference before
 * committing it. */
#include "lib/close.h"

#include "base/err.h"
#include "describe/goodput.h"
#include "describe/whatif.h"
#include "study/baseline.h"
#include "lib/data.h"

#include <string.h>

#define FOLDER MS_SOURCE_DIR "/tests/invalid"

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

static char *replaced(const char *text, const char *from, const char *to) {
  char **parts = g_strsplit(text, from, -1);
  char *joined = g_strjoinv(to, parts);
  g_strfreev(parts);
  return joined;
}

/* TRUE when the message of `file` is the stored one. */
static gboolean check_message(const char *file, const char *message) {
  char *err = g_strndup(file, strlen(file) - 5), *stored = g_strconcat(err, ".err", NULL), *want = NULL;
  char *shown = replaced(message, file, "$FILE"), *got = g_strconcat(shown, "\n", NULL);
  if (g_getenv("MOESIM_BLESS")) g_file_set_contents(stored, got, -1, NULL);
  gboolean same = g_file_get_contents(stored, &want, NULL, NULL) && strcmp(want, got) == 0;
  if (!same) print_error("%s:\n  got  %s  want %s\n", file, got, want ? want : "(no .err file)\n");
  g_free(err);
  g_free(stored);
  g_free(want);
  g_free(shown);
  g_free(got);
  return same;
}

static gboolean check_file(const char *file, gboolean (*load)(const char *, GError **)) {
  GError *error = NULL;
  if (load(file, &error)) {
    print_error("%s: was accepted\n", file);
    return FALSE;
  }
  gboolean ok = error && error->domain == MS_ERROR && error->code == MS_ERROR_INPUT && !strchr(error->message, '\n');
  if (!ok) print_error("%s: wrong kind of error: %s\n", file, error ? error->message : "none");
  ok = ok && check_message(file, error->message);
  g_clear_error(&error);
  return ok;
}

static void check_folder(const char *kind, gboolean (*load)(const char *, GError **), int at_least) {
  char *path = g_build_filename(FOLDER, kind, NULL);
  GDir *dir = g_dir_open(path, 0, NULL);
  assert_non_null(dir);
  int files = 0, wrong = 0;
  for (const char *name; (name = g_dir_read_name(dir));) {
    char *file = g_build_filename(path, name, NULL);
    if (g_str_has_suffix(name, ".json")) {
      files++;
      wrong += !check_file(file, load);
    }
    g_free(file);
  }
  g_dir_close(dir);
  g_free(path);
  assert_int_equal(wrong, 0);
  assert_true(files >= at_least);
}

static void models(void **state) { (void)state, check_folder("model", load_model, 40); }
static void machines(void **state) { (void)state, check_folder("hardware", load_hardware, 30); }
static void scenarios(void **state) { (void)state, check_folder("scenario", load_scenario, 50); }
static void requests(void **state) { (void)state, check_folder("request", load_request, 20); }
static void studies(void **state) { (void)state, check_folder("whatif", load_whatif, 25); }
static void baselines(void **state) { (void)state, check_folder("baseline", load_baseline, 15); }
static void goodputs(void **state) { (void)state, check_folder("goodput", load_goodput, 20); }

static void disturbances(void **state) { (void)state, check_folder("under", load_under, 14); }

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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(models),       cmocka_unit_test(machines), cmocka_unit_test(scenarios),
      cmocka_unit_test(requests),     cmocka_unit_test(studies),  cmocka_unit_test(baselines),
      cmocka_unit_test(disturbances), cmocka_unit_test(goodputs), cmocka_unit_test(generated)};
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
