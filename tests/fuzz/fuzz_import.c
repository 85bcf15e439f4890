/* libFuzzer target: the first byte chooses script, model-zoo file or config.json, the rest is imported, written, loaded
 * again and exported. make fuzz (clang), then MOESIM_DATA=tests/fuzz/data build-fuzz/fuzz/fuzz_import tests/data/import
 */
#include "lib/mutate_import.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const MsImportOptions options = {.hardware = "box", .gpus = 64};
  if (size == 0) return 0;
  g_autofree char *text = g_strndup((const char *)data + 1, size - 1);
  if (data[0] % 3 == 2) ms_test_import_config(text, strlen(text));
  else ms_test_import_anything(text, strlen(text), data[0] % 3, &options);
  return 0;
}
