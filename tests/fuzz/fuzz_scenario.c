/* libFuzzer target: any text as scenario, request, model, machine, what-if study and baseline; what loads is written
 * and loads again, and a machine read without a tree is what its tree says. make fuzz (clang), then
 * MOESIM_DATA=tests/fuzz/data build-fuzz/fuzz/fuzz_scenario tests/fuzz/scenario */
#include "describe/scenario.h"
#include "lib/mutate.h"

#include <limits.h>
#include <stdint.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char file[PATH_MAX];
  if (!*file) g_snprintf(file, sizeof file, "%s/moesim-fuzz-%d.json", g_get_tmp_dir(), (int)getpid());
  char *text = g_strndup((const char *)data, size);
  ms_test_load_anything(text);
  ms_test_machine_is_as_its_tree(file, text);
  g_free(text);
  return 0;
}
