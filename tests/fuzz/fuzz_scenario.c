/* libFuzzer target: any text as scenario, request, model, machine, what-if study and baseline; what loads is written
 * and loads again. make fuzz (clang), then MOESIM_DATA=tests/fuzz/data build-fuzz/fuzz/fuzz_scenario
 * tests/fuzz/scenario */
#include "describe/scenario.h"
#include "lib/mutate.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = g_strndup((const char *)data, size);
  ms_test_load_anything(text);
  g_free(text);
  return 0;
}
