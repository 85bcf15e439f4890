#include "lib/mutate_import.h"

#include <string.h>

#include "base/err.h"

static void check_error(const GError *error) {
  gboolean kept = error && error->domain == MS_ERROR && error->code == MS_ERROR_INPUT &&
                  !strchr(error->message, '\n') && g_utf8_validate(error->message, -1, NULL);
  if (!kept) g_error("broken promise: %s", error ? error->message : "no message");
}

static char *json_of(const MsScenario *s) {
  MsJsonOut *out = ms_json_out_new(2);
  ms_scenario_write(s, NULL, out);
  return ms_json_out_take(out);
}

static void check_scenario(const MsScenario *s) {
  g_autoptr(GError) error = NULL;
  g_autofree char *text = json_of(s);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "imported", &error);
  g_autoptr(MsScenario) again = doc ? ms_scenario_from_doc(doc, &error) : NULL;
  if (!again) g_error("imported scenario does not load: %s\n%s", error->message, text);
  g_autoptr(MsScenario) canonical = ms_launch_canonical(again);
  g_autofree char *twice = json_of(canonical);
  if (strcmp(text, twice) != 0) g_error("imported scenario is not canonical:\n%s\n%s", text, twice);
  static const MsLaunch forms[] = {{MS_LAUNCH_MEGATRON, FALSE}, {MS_LAUNCH_MODELZOO, TRUE}, {MS_LAUNCH_MT, FALSE}};
  for (guint i = 0; i < G_N_ELEMENTS(forms); i++) {
    g_autoptr(GError) why = NULL;
    g_autofree char *launch = ms_launch_text(s, forms[i], &why);
    if (!launch) check_error(why);
  }
}

gboolean ms_test_import_anything(const char *text, gsize length, gboolean modelzoo, const MsImportOptions *options) {
  g_autoptr(GError) error = NULL;
  g_autoptr(MsImport) import =
      (modelzoo ? ms_import_modelzoo : ms_import_megatron)(text, length, "fuzz", options, &error);
  if (import) check_scenario(import->scenario);
  else check_error(error);
  return import != NULL;
}

gboolean ms_test_import_config(const char *text, gsize length) {
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) ignored = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsJson) doc = ms_json_parse(text, (gssize)length, "fuzz", &error);
  g_autoptr(MsModel) model = doc ? ms_import_hf(doc, ignored, ignored, &error) : NULL;
  if (!model) check_error(error);
  else json_node_unref(ms_model_mention(model));
  return model != NULL;
}
