#include "lib/mutate.h"

#include <glib/gstdio.h>

#include "base/err.h"
#include "describe/goodput.h"
#include "describe/whatif.h"
#include "exec/dump_file.h"
#include "study/baseline.h"

#include <string.h>

/* --- damage ------------------------------------------------------------------------------------------------------- */
static const char *const nasty[] = {"0",
                                    "-1",
                                    "1e308",
                                    "1e999",
                                    "-0.0",
                                    "2147483648",
                                    "-2147483648",
                                    "9007199254740992",
                                    "99999999999999999999",
                                    "0.5",
                                    "null",
                                    "true",
                                    "false",
                                    "[]",
                                    "{}",
                                    "\"\"",
                                    "\"auto\"",
                                    "[1, 2]",
                                    "[[]]",
                                    "{\"from\": 1, \"to\": 4096}",
                                    "{\"from\": -5, \"to\": 5}",
                                    "\"[1]*1000000000\"",
                                    "\"x\"",
                                    "[\"attn\", \"mlp\"]",
                                    "{\"base\": \"moe\"}",
                                    "\"moe\"",
                                    "[\"bf16\", \"mxfp8\"]",
                                    "1e-400",
                                    "[[0, 1]]",
                                    "\"\\ud800\"",
                                    "NaN",
                                    "10000",
                                    "[[[[[[[[1]]]]]]]]"};

static gsize somewhere(GRand *rand, const GString *text) {
  return text->len ? (gsize)g_rand_int_range(rand, 0, (gint32)text->len) : 0;
}

/* Replaces the value that begins at or behind a random place. */
static void replace_value(GRand *rand, GString *text) {
  const char *colon = strpbrk(text->str + somewhere(rand, text), ":,[");
  if (!colon) return;
  gsize start = (gsize)(colon - text->str) + 1;
  gsize length = strcspn(text->str + start, ",]}\n");
  g_string_erase(text, (gssize)start, (gssize)length);
  g_string_insert(text, (gssize)start, nasty[g_rand_int_range(rand, 0, G_N_ELEMENTS(nasty))]);
}

static void cut(GRand *rand, GString *text) {
  gsize at = somewhere(rand, text), length = (gsize)g_rand_int_range(rand, 1, 40);
  g_string_erase(text, (gssize)at, (gssize)MIN(length, text->len - at));
}

static void duplicate(GRand *rand, GString *text) {
  gsize at = somewhere(rand, text);
  char *piece = g_strndup(text->str + at, (gsize)g_rand_int_range(rand, 1, 60));
  g_string_insert(text, (gssize)somewhere(rand, text), piece);
  g_free(piece);
}

static void flip(GRand *rand, GString *text) {
  if (text->len) text->str[somewhere(rand, text)] = (char)g_rand_int_range(rand, 1, 256);
}

static void bump_digit(GRand *rand, GString *text) {
  gsize at = somewhere(rand, text);
  at += strcspn(text->str + at, "0123456789");
  if (at < text->len) text->str[at] = (char)('0' + g_rand_int_range(rand, 0, 10));
}

char *ms_test_mutate(GRand *rand, const char *original) {
  static void (*const damage[])(GRand *, GString *) = {replace_value, replace_value, replace_value, bump_digit,
                                                       cut,           duplicate,     flip};
  GString *text = g_string_new(original);
  for (int n = g_rand_int_range(rand, 1, 4); n > 0; n--)
    damage[g_rand_int_range(rand, 0, G_N_ELEMENTS(damage))](rand, text);
  return g_string_free(text, FALSE);
}

/* --- loading ------------------------------------------------------------------------------------------------------ */
static void check_error(gboolean ok, GError *error, const char *text) {
  gboolean kept =
      ok ? !error
         : error && error->domain == MS_ERROR && error->code == MS_ERROR_INPUT && !strchr(error->message, '\n');
  if (!kept) g_error("broken promise (%s) for: %s", error ? error->message : "no message", text);
}

static MsJson *parsed(const char *text) {
  GError *error = NULL;
  MsJson *doc = ms_json_parse(text, -1, "fuzz.json", &error);
  check_error(doc != NULL, error, text);
  g_clear_error(&error);
  return doc;
}

static gboolean try_scenario(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsScenario *scenario = ms_scenario_from_doc(doc, &error);
  check_error(scenario != NULL, error, text);
  g_clear_error(&error);
  if (!scenario) return FALSE;
  MsJsonOut *out = ms_json_out_new(2);
  MsScenario *copy = ms_scenario_copy(scenario, FALSE);
  ms_scenario_write(copy, NULL, out);
  char *again = ms_json_out_take(out);
  MsJson *second = parsed(again);
  MsScenario *reloaded = second ? ms_scenario_from_doc(second, &error) : NULL;
  if (!reloaded) g_error("written scenario does not load: %s", error ? error->message : again);
  ms_json_free(second);
  ms_scenario_free(reloaded);
  ms_scenario_free(copy);
  ms_scenario_free(scenario);
  g_free(again);
  return TRUE;
}

static gboolean try_request(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsRequest *request = ms_request_from_doc(doc, &error);
  check_error(request != NULL, error, text);
  g_clear_error(&error);
  ms_request_free(request);
  g_autoptr(GPtrArray) all = ms_requests_from_doc(doc, &error); /* lists of clusters as well */
  check_error(all != NULL, error, text);
  g_clear_error(&error);
  return request != NULL;
}

static gboolean try_model(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsModel *model = ms_model_from_json(doc, ms_json_root(doc), "model", &error);
  check_error(model != NULL, error, text);
  g_clear_error(&error);
  if (model) ms_model_free(ms_model_copy(model));
  ms_model_free(model);
  return model != NULL;
}

static gboolean try_hardware(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsHardware *hardware = ms_hardware_from_json(doc, ms_json_root(doc), "hardware", &error);
  check_error(hardware != NULL, error, text);
  g_clear_error(&error);
  if (hardware) ms_hardware_free(ms_hardware_copy(hardware));
  ms_hardware_free(hardware);
  return hardware != NULL;
}

/* Loading keeps the document, so it gets one of its own; every point must apply. */
static gboolean try_whatif(const char *text) {
  GError *error = NULL;
  MsJson *doc = parsed(text);
  MsWhatif *whatif = ms_whatif_from_doc(doc, &error);
  check_error(whatif != NULL, error, text);
  g_clear_error(&error);
  for (int i = 0; whatif && i < MIN(ms_whatif_points(whatif), 8); i++) {
    MsJson *point = ms_whatif_apply(whatif, whatif->base, i);
    MsScenario *scenario = ms_scenario_from_doc(point, &error);
    check_error(scenario != NULL, error, text);
    g_clear_error(&error);
    ms_scenario_free(scenario);
    ms_json_free(point);
  }
  ms_whatif_free(whatif);
  return whatif != NULL;
}

static void try_histogram(const MsJson *doc, const char *text) {
  GError *error = NULL;
  g_autoptr(MsHistogram) histogram = ms_histogram_parse(doc, "h.json", &error);
  check_error(histogram != NULL, error, text);
  g_clear_error(&error);
}

static gboolean try_baseline(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsBaseline *baseline = ms_baseline_from_doc(doc, &error);
  check_error(baseline != NULL, error, text);
  g_clear_error(&error);
  if (!baseline) return FALSE;
  char *again = ms_baseline_text(baseline);
  MsJson *second = parsed(again);
  MsBaseline *reloaded = second ? ms_baseline_from_doc(second, &error) : NULL;
  if (!reloaded) g_error("written baseline does not load: %s", error ? error->message : again);
  ms_json_free(second);
  ms_baseline_free(reloaded);
  ms_baseline_free(baseline);
  g_free(again);
  return TRUE;
}

static gboolean try_under(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsDisturbances *d = ms_disturbances_from_doc(doc, &error);
  check_error(d != NULL, error, text);
  g_clear_error(&error);
  ms_disturbances_free(d);
  return d != NULL;
}

static gboolean try_goodput(const MsJson *doc, const char *text) {
  GError *error = NULL;
  MsGoodput *goodput = ms_goodput_from_doc(doc, &error);
  check_error(goodput != NULL, error, text);
  g_clear_error(&error);
  ms_goodput_free(goodput);
  return goodput != NULL;
}

int ms_test_load_anything(const char *text) {
  MsJson *doc = parsed(text);
  if (!doc) return 0;
  try_histogram(doc, text);
  int accepted = try_scenario(doc, text) + try_request(doc, text) + try_model(doc, text) + try_hardware(doc, text) +
                 try_whatif(text) + try_baseline(doc, text) + try_under(doc, text) + try_goodput(doc, text);
  ms_json_free(doc);
  return accepted;
}

static gboolean take_machine(MsJsonCursor *cursor, gpointer machine) {
  return ms_fields_take(&ms_hardware_table, cursor, machine);
}

static MsHardware *blank_machine(void) {
  MsHardware *machine = g_new0(MsHardware, 1);
  ms_fields_defaults(&ms_hardware_table, machine);
  ms_fields_defaults(&ms_fabric_table, &machine->fabric);
  return machine;
}

gboolean ms_test_machine_is_as_its_tree(const char *file, const char *text) {
  g_autoptr(MsHardware) machine = blank_machine(), tree = blank_machine();
  GError *error = NULL;
  g_unlink(file); /* what is longer would stay behind it */
  if (!g_file_set_contents_full(file, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, &error)) g_error("%s", error->message);
  g_autoptr(MsJson) doc = ms_json_open(file, NULL);
  if (!doc || !ms_json_take(doc, take_machine, machine)) return FALSE;
  if (!ms_json_build(doc, &error) ||
      !ms_fields_load(&ms_hardware_table, doc, json_node_get_object(ms_json_root(doc)), "", TRUE, tree, &error))
    g_error("%s: taken, but %s", text, error->message);
  g_autofree char *is = ms_fields_text(&ms_hardware_table, machine, 0),
                  *must_be = ms_fields_text(&ms_hardware_table, tree, 0);
  if (strcmp(is, must_be) != 0) g_error("%s: taken as %s, its tree is %s", text, is, must_be);
  return TRUE;
}

gboolean ms_test_load_dump(const char *bytes, gsize length) {
  GError *error = NULL;
  g_autoptr(MsDump) dump = ms_dump_parse(g_memdup2(bytes, length), length, "dump", &error);
  if (!dump != !!error ||
      (error && (error->domain != MS_ERROR || error->code != MS_ERROR_INPUT || strchr(error->message, '\n'))))
    g_error("a dump is %s with the message %s", dump ? "accepted" : "refused", error ? error->message : "(none)");
  g_clear_error(&error);
  if (!dump) return FALSE;
  GString *again = ms_dump_text_new();
  double sum = 0;
  for (guint i = 0; i < dump->matrix->len; i++) {
    const MsDumpMatrix *m = dump->matrix->pdata[i];
    sum += ms_dump_at(m->gradient, 0) + ms_dump_at(m->parameter, m->n - 1);
    ms_dump_text_add(again, m->name, m->n, m->gradient, m->parameter);
  }
  if (again->len != length || memcmp(again->str, bytes, length) != 0)
    g_error("a dump is not written as it was read (sum %g)", sum);
  g_string_free(again, TRUE);
  return TRUE;
}
