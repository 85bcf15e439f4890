/* moesim check: the same gives the same bytes, one percent of any constant is caught and named, every form of the
 * report keeps to its format. */
#include "lib/close.h"

#include "base/err.h"
#include "base/io.h"
#include "report/report.h"

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>

#define RUN MS_SOURCE_DIR "/scenarios/run-qwen3-235b-h100-256.json"

static char *folder; /* a data directory: models and software of the source tree, machines of its own */

static char *in_folder(const char *name) { return g_build_filename(folder, name, NULL); }

static void write_text(const char *name, const char *text) {
  g_autofree char *path = in_folder(name);
  assert_true(g_file_set_contents(path, text, -1, NULL));
}

G_NO_INLINE static char *read_text(const char *path) { /* inlined, gcc 12 takes its result for a pointer to its local */
  char *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, NULL)) fail_msg("no %s", path);
  return text;
}

static char *profile(void) { return read_text(MS_SOURCE_DIR "/hardware/h100-sxm.json"); }

static int setup(void **state) {
  (void)state;
  folder = g_dir_make_tmp("moesim-check-XXXXXX", NULL);
  static const char *const shared[] = {"models", "software"};
  for (guint i = 0; i < G_N_ELEMENTS(shared); i++) {
    g_autofree char *from = g_build_filename(MS_SOURCE_DIR, shared[i], NULL), *to = in_folder(shared[i]);
    GFile *link = g_file_new_for_path(to);
    if (!g_file_make_symbolic_link(link, from, NULL, NULL)) return 1;
    g_object_unref(link);
  }
  g_autofree char *hardware = in_folder("hardware"), *text = profile();
  g_mkdir(hardware, 0700);
  write_text("hardware/h100-sxm.json", text);
  g_setenv("MOESIM_DATA", folder, TRUE);
  return 0;
}

static void remove_tree(const char *path) {
  GDir *dir = g_file_test(path, G_FILE_TEST_IS_SYMLINK) ? NULL : g_dir_open(path, 0, NULL);
  for (const char *name; dir && (name = g_dir_read_name(dir));) {
    g_autofree char *inner = g_build_filename(path, name, NULL);
    remove_tree(inner);
  }
  if (dir) g_dir_close(dir);
  g_remove(path);
}

static int teardown(void **state) {
  (void)state;
  g_unsetenv("MOESIM_DATA");
  remove_tree(folder);
  g_free(folder);
  return 0;
}

static const MsCheckOptions as_file_says = {.tolerance = NAN};

/* A baseline of these files with today's predictions. */
static char *baseline_text(const char *const *files) {
  GError *error = NULL;
  g_autofree char *file = in_folder("baseline.json");
  g_autoptr(MsBaseline) b = ms_baseline_new(file, files, &error);
  if (b) b->fidelity = MS_FIDELITY_FAST;
  if (!b || !ms_check_update(b, &as_file_says, &error)) fail_msg("%s", error->message);
  return ms_baseline_text(b);
}

static MsBaseline *baseline_of(const char *text, GError **error) {
  g_autofree char *file = in_folder("baseline.json");
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, file, error);
  return doc ? ms_baseline_from_doc(doc, error) : NULL;
}

static MsCheck *check_of(const char *text, const MsCheckOptions *options) {
  GError *error = NULL;
  MsBaseline *b = baseline_of(text, &error);
  MsCheck *c = b ? ms_check(b, options, &error) : NULL;
  if (!c) fail_msg("%s", error->message);
  return c;
}

static const char *const one_run[] = {RUN, NULL};

static void nothing_changed(void **state) {
  (void)state;
  static const char *const two[] = {RUN, MS_SOURCE_DIR "/scenarios/run-llama3-70b-h100-64.json", NULL},
                           *const swapped[] = {two[1], RUN, NULL};
  g_autofree char *a = baseline_text(two), *b = baseline_text(swapped);
  assert_string_equal(a, b); /* canonical: the order of the arguments does not show */
  g_autoptr(MsCheck) c = check_of(a, &as_file_says);
  assert_int_equal(c->drifted, 0);
  assert_int_equal(c->n_inputs, 0);
  GError *error = NULL;
  g_autoptr(MsBaseline) again = baseline_of(a, &error);
  assert_true(ms_check_update(again, &as_file_says, &error));
  g_autofree char *text = ms_baseline_text(again), *shown = ms_report_check(c, 0);
  assert_string_equal(text, a);
  assert_non_null(strstr(shown, "0 of 2 predictions drifted"));
}

/* --- one percent ----------------------------------------------------------------------------------------------- */
typedef struct {
  const char *after, *key; /* the first "key" behind `after` */
  const char *named;       /* how the check must call it */
  const char *quantity;    /* that must drift */
} Constant;
static const Constant constants[] = {
    {"{", "kernel_launch_s", "hardware h100-sxm kernel_launch_s: ", "time.host_s"},
    {"{", "sustained_derate", "hardware h100-sxm sustained_derate: ", "time.gemm_s"},
    {"{", "hbm_Bps", "hardware h100-sxm hbm_Bps: ", "time.memory_bound_s"},
    {"{", "hbm_B", "hardware h100-sxm hbm_B: ", "capacity_B"},
    {"{", "wgrad_factor", "hardware h100-sxm wgrad_factor: ", "time.gemm_s"},
    {"{", "reserve_ratio", "hardware h100-sxm reserve_ratio: ", "memory.reserved_B"},
    {"\"op\": \"gemm\", \"dtype\": \"bf16\"", "efficiency",
     "hardware h100-sxm curve gemm bf16, params, efficiency: ", "time.gemm_s"},
    /* the experts of this run are faster one by one */
    {"\"op\": \"gemm\", \"dtype\": \"bf16\"", "efficiency",
     "hardware h100-sxm curve gemm bf16, params, efficiency: ", "time.grouped_gemm_s"},
};

/* The profile with one figure a percent lower (efficiencies and ratios end at 1). */
static char *changed(const Constant *constant) {
  char *all = profile(), *end, number[32];
  g_autofree char *key = g_strdup_printf("\"%s\": ", constant->key);
  char *from = strstr(all, constant->after), *figure = from ? strstr(from, key) : NULL;
  if (!figure) fail_msg("no %s in the profile", constant->key);
  figure += strlen(key);
  double value = g_ascii_strtod(figure, &end) * (g_str_equal(constant->key, "reserve_ratio") ? 1.01 : 0.99);
  GString *out = g_string_new_len(all, figure - all);
  g_string_append_printf(out, "%s%s", ms_double_text(value, number), end);
  g_free(all);
  return g_string_free(out, FALSE);
}

static gboolean moved(const MsChecked *c, const char *quantity) {
  char name[MS_QUANTITY_TEXT];
  for (int i = 0; i < c->n; i++)
    if (g_str_equal(ms_quantity_name(c->drift[i].quantity, name), quantity)) return TRUE;
  return FALSE;
}

static void one_percent_is_caught_and_named(void **state) {
  (void)state;
  g_autofree char *stored = baseline_text(one_run), *original = profile();
  for (guint i = 0; i < G_N_ELEMENTS(constants); i++) {
    g_autofree char *text = changed(&constants[i]);
    write_text("hardware/h100-sxm.json", text);
    g_autoptr(MsCheck) c = check_of(stored, &as_file_says);
    write_text("hardware/h100-sxm.json", original);
    g_autofree char *shown = ms_report_check(c, 0), *json = ms_figures_json(&ms_check_figures, c),
                    *junit = ms_report_check_junit(c), *markdown = ms_report_check_markdown(c);
    const char *const forms[] = {shown, json, junit, markdown};
    if (c->drifted != 1) fail_msg("%s: not caught", constants[i].named);
    if (!moved(&c->checked[0], constants[i].quantity))
      fail_msg("%s: %s did not drift\n%s", constants[i].named, constants[i].quantity, shown);
    if (c->n_inputs != 1 || !strstr(shown, constants[i].named))
      fail_msg("%s: not named\n%s", constants[i].named, shown);
    for (guint f = 0; f < G_N_ELEMENTS(forms); f++)
      if (!strstr(forms[f], constants[i].quantity)) fail_msg("form %u does not name %s", f, constants[i].quantity);
  }
}

/* --- tolerances and states ------------------------------------------------------------------------------------- */
static char *replaced(const char *text, const char *from, const char *to) {
  g_auto(GStrv) part = g_strsplit(text, from, 2);
  if (!part[1]) fail_msg("no %s", from);
  return g_strjoinv(to, part);
}

static void tolerance_of_a_quantity(void **state) {
  (void)state;
  GError *error = NULL;
  g_autofree char *text = baseline_text(one_run),
                  *tuned =
                      replaced(text, "\"default\": 0.001", "\"default\": 0.02, \"time\": 0.03, \"step_time_s\": 0.04");
  g_autoptr(MsBaseline) b = baseline_of(tuned, &error);
  assert_close(ms_baseline_tolerance(b, MS_Q_STEP_TIME), 0.04, 0);
  assert_close(ms_baseline_tolerance(b, MS_Q_TIME + MS_PART_HOST), 0.03, 0);
  assert_close(ms_baseline_tolerance(b, MS_Q_MEMORY), 0.02, 0);
  const double factor[] = {1.0009, 1.0011, 0.9991, 0.9989};
  g_autofree char *line =
      g_strndup(strstr(text, "\"step_time_s\": "), strcspn(strstr(text, "\"step_time_s\": "), "\n"));
  double value = g_ascii_strtod(line + strlen("\"step_time_s\": "), NULL);
  for (guint i = 0; i < G_N_ELEMENTS(factor);
       i++) { /* the stored value is off by a little less and more than the tolerance */
    g_autofree char *other = g_strdup_printf("\"step_time_s\": %.12g,", value / factor[i]),
                    *moved_text = replaced(text, line, other);
    g_autoptr(MsCheck) strict = check_of(moved_text, &as_file_says);
    assert_int_equal(strict->drifted, i % 2);
    const MsCheckOptions wide = {.tolerance = 0.01};
    g_autoptr(MsCheck) loose = check_of(moved_text, &wide);
    assert_int_equal(loose->drifted, 0);
  }
}

static void states_drift(void **state) {
  (void)state;
  g_autofree char *text = baseline_text(one_run);
  static const char *const edit[][3] = {
      {"\"vpp\": 4", "\"vpp\": 7", "does not run any more: layout."},
      {"\"hardware\": \"h100-sxm\"", "\"hardware\": {\"base\": \"h100-sxm\", \"hbm_B\": 2e10}",
       "does not fit any more: stage "},
      {"\"why_infeasible\": null", "\"why_infeasible\": \"too large\"", "fits now; it was: too large"},
      {"\"refused\": null", "\"refused\": \"a rule\"", "runs now; it was: a rule"}};
  for (guint i = 0; i < G_N_ELEMENTS(edit); i++) {
    g_autofree char *other = replaced(text, edit[i][0], edit[i][1]);
    g_autoptr(MsCheck) c = check_of(other, &as_file_says);
    assert_int_equal(c->drifted, 1);
    if (!g_str_has_prefix(c->checked[0].state, edit[i][2])) fail_msg("%s", c->checked[0].state);
    g_autofree char *shown = ms_report_check(c, 0);
    assert_non_null(strstr(shown, edit[i][2]));
  }
}

/* --- forms ----------------------------------------------------------------------------------------------------- */
static void check_xml(const char *xml) {
  GError *error = NULL;
  const GMarkupParser nothing = {0};
  GMarkupParseContext *context = g_markup_parse_context_new(&nothing, 0, NULL, NULL);
  if (!g_markup_parse_context_parse(context, xml, -1, &error) || !g_markup_parse_context_end_parse(context, &error))
    fail_msg("%s", error->message);
  g_markup_parse_context_free(context);
  g_autofree char *lint = g_find_program_in_path("xmllint"), *file = in_folder("junit.xml"), *said = NULL;
  if (!lint) return;
  write_text("junit.xml", xml);
  const char *argv[] = {lint, "--noout", "--nonet", "--schema", MS_SOURCE_DIR "/tests/data/junit.xsd", file, NULL};
  int status = 0;
  assert_true(
      g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &said, &status, &error));
  if (!g_spawn_check_wait_status(status, NULL)) fail_msg("%s", said);
}

/* Cells of a table row; a bar behind a backslash is text. */
static int cells(const char *line) {
  int n = 0;
  for (const char *c = line; *c; c++) {
    if (*c == '\\' && c[1]) c++;
    else n += *c == '|';
  }
  return n - 1;
}

static void check_markdown(const char *text) {
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  assert_true(g_str_has_prefix(line[0], "### "));
  int rows = 0;
  for (int i = 1; line[i]; i++) {
    if (line[i][0] != '|') continue;
    assert_true(g_str_has_suffix(line[i], "|"));
    assert_int_equal(cells(line[i]), 7);
    rows++;
  }
  assert_true(rows >= 3); /* names, rule, one scenario */
  assert_true(g_str_has_prefix(line[3], "|---|"));
}

static void check_json(const char *text) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "json", &error);
  if (!doc) fail_msg("%s", error->message);
  JsonObject *root = json_node_get_object(ms_json_root(doc));
  static const char *const keys[] = {"baseline", "scenarios", "drifted", "results", "inputs"};
  for (guint k = 0; k < G_N_ELEMENTS(keys); k++) assert_true(json_object_has_member(root, keys[k]));
}

/* With a name that every format must escape. */
static void every_form_keeps_to_its_format(void **state) {
  (void)state;
  g_autofree char *text = baseline_text(one_run),
                  *json_name = replaced(text, "\"name\": \"run-qwen3-235b-h100-256\"",
                                        "\"name\": \"a <b> & \\\"c\\\" | `d` \\u0001 é\"");
  g_autofree char *drifting = replaced(json_name, "\"time.host_s\": ", "\"time.host_s\": 1"),
                  *gone = replaced(json_name, "\"vpp\": 4", "\"vpp\": 7");
  const char *const all[] = {json_name, drifting, gone};
  for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
    g_autoptr(MsCheck) c = check_of(all[i], &as_file_says), again = check_of(all[i], &as_file_says);
    assert_int_equal(c->drifted, i > 0);
    g_autofree char *junit = ms_report_check_junit(c), *markdown = ms_report_check_markdown(c),
                    *json = ms_figures_json(&ms_check_figures, c), *same = ms_report_check_junit(again);
    check_xml(junit);
    check_markdown(markdown);
    check_json(json);
    assert_string_equal(junit, same);
  }
}

/* The schema of the test itself refuses what is no JUnit. */
static void the_schema_can_fail(void **state) {
  (void)state;
  g_autofree char *lint = g_find_program_in_path("xmllint"), *file = in_folder("bad.xml");
  if (!lint) skip();
  write_text("bad.xml",
             "<testsuites name=\"x\" tests=\"1\" failures=\"0\" errors=\"0\"><testcase name=\"y\"/></testsuites>");
  const char *argv[] = {lint, "--noout", "--nonet", "--schema", MS_SOURCE_DIR "/tests/data/junit.xsd", file, NULL};
  int status = 0;
  assert_true(g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL,
                           NULL, NULL, NULL, &status, NULL));
  assert_false(g_spawn_check_wait_status(status, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_changed),
                                     cmocka_unit_test(one_percent_is_caught_and_named),
                                     cmocka_unit_test(tolerance_of_a_quantity),
                                     cmocka_unit_test(states_drift),
                                     cmocka_unit_test(every_form_keeps_to_its_format),
                                     cmocka_unit_test(the_schema_can_fail)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
