/* libFuzzer target: any bytes as logs: of each benchmark, by the first byte, or of a training run; rows and steps, or
 * one line of error. make fuzz (clang), then build-fuzz/fuzz/fuzz_logs tests/fuzz/logs */
#include "base/err.h"
#include "logs/bench.h"
#include "logs/training.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void bench(int form, MsReader *reader, GPtrArray *notes, GError **error) {
  g_autoptr(MsBench) b = ms_bench_read(form, reader, "log", 8, notes, error);
  if (!b != (*error != NULL)) abort();
  for (guint i = 0; b && i < b->rows->len; i++) {
    const MsBenchRow *row = &g_array_index(b->rows, MsBenchRow, i);
    if (!(row->size_B > 0 && row->time_s > 0 && isfinite(row->time_s))) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  int forms = (int)g_strv_length((char **)ms_bench_words), form = data[0] % (forms + 1);
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsReader) reader = ms_reader_of((const char *)data + 1, size - 1, "log");
  if (form < forms) bench(form, reader, notes, &error);
  else {
    g_autoptr(MsTrainingLog) log = ms_training_log_read(reader, "log", notes, &error);
    if (!log != (error != NULL) || (log && log->kept == 0)) abort();
  }
  if (error && (error->code != MS_ERROR_INPUT || strchr(error->message, '\n'))) abort();
  return 0;
}
