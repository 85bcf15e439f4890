#include "lib/profiles.h"

#include "lib/close.h"
#include "lib/data.h"

MsKernelTable *ms_test_kernels;

int ms_test_profiles_setup(void **state) {
  int status = ms_test_data_setup(state);
  ms_test_kernels = ms_kernel_table_load(NULL);
  return ms_test_kernels ? status : -1;
}

int ms_test_profiles_teardown(void **state) {
  ms_kernel_table_free(ms_test_kernels);
  return ms_test_data_teardown(state);
}

MsProfile *ms_test_profile(const char *file, int stage) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  MsProfile *p = ms_profile_load(file, stage, -1, ms_test_kernels, notes, &error);
  if (!p) fail_msg("%s", error->message);
  return p;
}

char *ms_test_profile_scenario(const char *layout) {
  g_autofree char *text = g_strdup_printf(
      "{\"model\": \"moe\", \"hardware\": \"box\", \"gpus\": 8, \"training\": {\"seq_length\": 4096, "
      "\"micro_batch_size\": 1, \"global_batch_size\": 16}, \"layout\": %s, \"options\": {\"dispatcher\": "
      "\"alltoall\"}}",
      layout);
  ms_test_data_write("scenario.json", text);
  return ms_test_data_path("scenario.json");
}
