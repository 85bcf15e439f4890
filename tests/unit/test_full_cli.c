/* The program from outside, at length: every shipped scenario, model and machine. */
#include "lib/cli.h"
#include "lib/close.h"

#include "lib/json_doc.h"
#include "lib/world.h"

#include <glib/gstdio.h>
#include <string.h>

static void every_shipped_scenario_runs(void **state) {
  (void)state;
  g_autoptr(GDir) dir = g_dir_open(MS_SOURCE_DIR "/scenarios", 0, NULL);
  int n = 0;
  for (const char *name; (name = g_dir_read_name(dir));) {
    if (!g_str_has_prefix(name, "run-") || !g_str_has_suffix(name, ".json")) continue;
    g_autofree char *file = ms_cli_shipped(name);
    g_auto(MsCliRun) r = RUN("run", file);
    ms_cli_expect(&r, 0, name);
    assert_non_null(strstr(r.out, "step time"));
    n++;
  }
  assert_true(n >= 4);
}

static void every_model_and_machine_is_shown(void **state) {
  (void)state;
  static const char *const kinds[][2] = {{"model", "models"}, {"hardware", "hardware"}};
  for (guint k = 0; k < G_N_ELEMENTS(kinds); k++) {
    g_autoptr(GPtrArray) files = ms_test_files(kinds[k][1]);
    assert_true(files->len >= 10);
    for (guint i = 0; i < files->len; i++) {
      g_autofree char *name = g_path_get_basename(files->pdata[i]);
      *strrchr(name, '.') = 0;
      g_auto(MsCliRun) r = RUN("show", kinds[k][0], name);
      ms_cli_expect(&r, 0, name);
      assert_non_null(strstr(r.out, name));
      g_auto(MsCliRun) json = RUN("show", kinds[k][0], name, "--json");
      ms_cli_expect(&json, 0, name);
      g_autoptr(MsJson) doc = ms_cli_json(json.out, name);
    }
  }
}

/* Validation over ladders, as text and as JSON. */
static void ladders_are_counted_alike(void **state) {
  (void)state;
  g_autofree char *folder = ms_cli_shipped("published/modelzoo");
  const char *ladders = MS_SOURCE_DIR "/tests/data/ladders.json";
  g_auto(MsCliRun) text = RUN("validate", "--by", "gpu", "--regret", "--ladders", ladders, folder),
                   json = RUN("validate", "--json", "--regret", "--ladders", ladders, folder);
  ms_cli_expect(&text, 0, "validate --ladders");
  ms_cli_expect(&json, 0, "validate --json --ladders");
  g_autoptr(MsJson) doc = ms_cli_json(json.out, "validate");
  g_autofree char *head =
      g_strdup_printf("%d runs: %d predicted", (int)json_node_get_int(ms_cli_at(ms_json_root(doc), "files")),
                      (int)json_node_get_int(ms_cli_at(ms_json_root(doc), "predicted")));
  assert_non_null(strstr(text.out, head));
  assert_non_null(strstr(text.out, "Kendall tau"));
  assert_non_null(strstr(text.out, "regret: "));
  assert_true(json_node_get_int(ms_cli_at(ms_json_root(doc), "regret.n")) >= 1);
  assert_true(json_array_get_length(json_node_get_array(ms_cli_at(ms_json_root(doc), "ladders.ladders"))) >= 2);
  g_autoptr(MsJsonDoc) tables = ms_json_doc_load(MS_SOURCE_DIR "/docs/json.md");
  ms_json_doc_check(tables, "validate", ms_json_root(doc));
  ms_json_doc_check_met(tables, "order");
}

int main(int argc, char **argv) {
  (void)argc;
  ms_cli_begin(argv[0]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_shipped_scenario_runs),
                                     cmocka_unit_test(every_model_and_machine_is_shown),
                                     cmocka_unit_test(ladders_are_counted_alike)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ms_cli_end();
  return failed;
}
