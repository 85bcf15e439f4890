#include "lib/world.h"

#include "lib/close.h"

#include <string.h>

MsScenario *ms_test_run(const char *model, int mtp, const char *hardware, int gpus) {
  g_autofree char *text =
      g_strdup_printf("{\"schema\": 1, \"name\": \"test\", \"model\": \"%s\", \"hardware\": \"%s\", \"gpus\": %d, "
                      "\"training\": {\"seq_length\": 4096, \"micro_batch_size\": 1, \"global_batch_size\": %d}, "
                      "\"layout\": {}, \"options\": {\"overlap_grad_reduce\": false, \"overlap_param_gather\": false}}",
                      model, hardware, gpus, gpus);
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "test", &error);
  MsScenario *scenario = doc ? ms_scenario_from_doc(doc, &error) : NULL;
  if (!scenario) fail_msg("%s on %s: %s", model, hardware, error->message);
  if (mtp >= 0) scenario->model->mtp_num_layers = mtp;
  return scenario;
}

MsLowered ms_test_lower(MsScenario *scenario) {
  GError *error = NULL;
  MsLowered lowered = {.scenario = scenario, .layout = ms_layout_new_or_error(scenario, &error)};
  if (lowered.layout) lowered.work = ms_work_new(scenario, lowered.layout, &error);
  if (!lowered.work) fail_msg("%s: %s", scenario->name, error->message);
  return lowered;
}

void ms_test_lowered_clear(MsLowered *lowered) {
  ms_work_free(lowered->work);
  ms_layout_free(lowered->layout);
  *lowered = (MsLowered){0};
}

static void walk(GPtrArray *files, const char *folder) {
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  if (!dir) fail_msg("no folder %s", folder);
  for (const char *name; (name = g_dir_read_name(dir));) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    if (g_file_test(path, G_FILE_TEST_IS_DIR)) walk(files, path);
    else if (g_str_has_suffix(name, ".json")) g_ptr_array_add(files, g_steal_pointer(&path));
  }
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

GPtrArray *ms_test_files(const char *folder) {
  GPtrArray *files = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *path = g_build_filename(MS_SOURCE_DIR, folder, NULL);
  walk(files, path);
  g_ptr_array_sort(files, by_text);
  return files;
}
