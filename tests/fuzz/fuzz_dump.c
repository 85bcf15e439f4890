/* libFuzzer target: any bytes as a dump of moesim exec; what is read is written again byte for byte.
 * make fuzz (clang), then build-fuzz/fuzz/fuzz_dump tests/fuzz/dump */
#include "lib/mutate.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ms_test_load_dump((const char *)data, size);
  return 0;
}
