#include "lib/world.h"

#include "lib/close.h"

#include <string.h>

MsScenario *ms_test_scenario_of(const char *json) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "test.json", &error);
  MsScenario *scenario = doc ? ms_scenario_from_doc(doc, &error) : NULL;
  if (!scenario) fail_msg("%s\nin %s", error->message, json);
  return scenario;
}

MsScenario *ms_test_experts_on(const char *fabric, int gpus, int ep) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"model\": \"qwen3-30b-a3b\", \"hardware\": {\"base\": \"h100-sxm\", \"fabric\": %s}, "
      "\"gpus\": %d, \"training\": {\"seq_length\": 4096, \"global_batch_size\": %d}, \"layout\": {\"ep\": %d}, "
      "\"options\": {\"dispatcher\": \"alltoall\"}}",
      fabric, gpus, 4 * gpus, ep);
  return ms_test_scenario_of(text);
}

MsScenario *ms_test_scenario_file(const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *name = g_strdup_vprintf(format, args), *file = g_canonicalize_filename(name, MS_SOURCE_DIR);
  va_end(args);
  GError *error = NULL;
  MsScenario *scenario = ms_scenario_load(file, &error);
  if (!scenario) fail_msg("%s", error->message);
  return scenario;
}

MsRequest *ms_test_request_of(const char *json) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "request", &error);
  MsRequest *request = doc ? ms_request_from_doc(doc, &error) : NULL;
  if (!request) fail_msg("%s\nin %s", error->message, json);
  return request;
}

char *ms_test_request_text(const char *model, const char *hardware, const char *gpus, const char *training,
                           const char *layout, const char *options) {
  return g_strdup_printf("{\"name\": \"small\", \"model\": %s, \"hardware\": %s, \"gpus\": %s, \"training\": "
                         "{\"seq_length\": 4096, %s}, \"layout\": {%s}, \"options\": {%s}}",
                         model, hardware, gpus, training, layout, options);
}

const char ms_test_small_request[] = "{\"name\": \"small\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, "
                                     "\"hardware\": \"h100-sxm\", \"gpus\": 8, "
                                     "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, "
                                     "\"layout\": {\"tp\": [1, 2], \"cp\": 1, \"pp\": [1, 2], \"vpp\": 1}}";

MsResult *ms_test_simulate(const MsScenario *scenario, MsFidelity fidelity) {
  GError *error = NULL;
  MsResult *result = ms_simulate(scenario, fidelity, NULL, &error);
  if (!result) fail_msg("%s at %s: %s", scenario->name, ms_fidelity_words[fidelity], error->message);
  return result;
}

MsScenario *ms_test_run(const char *model, int mtp, const char *hardware, int gpus) {
  g_autofree char *text =
      g_strdup_printf("{\"name\": \"test\", \"model\": \"%s\", \"hardware\": \"%s\", \"gpus\": %d, "
                      "\"training\": {\"seq_length\": 4096, \"global_batch_size\": %d}, \"options\": "
                      "{\"overlap_grad_reduce\": false, \"overlap_param_gather\": false}}",
                      model, hardware, gpus, gpus);
  MsScenario *scenario = ms_test_scenario_of(text);
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
