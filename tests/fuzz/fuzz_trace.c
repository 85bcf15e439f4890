/* libFuzzer target: any bytes as a profile of a GPU (JSON, CSV; SQLite through a file): kernels and where their time
 * went, or one line of error. make fuzz (clang), then build-fuzz/fuzz/fuzz_trace tests/fuzz/trace */
#include "base/err.h"
#include "logs/trace_times.h"

#include <glib/gstdio.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const MsTrace *trace, const MsKernelTable *table) {
  g_autoptr(MsTraceTimes) times = ms_trace_times_new(trace, table);
  double sum_s = 0;
  for (int i = 0; i < times->n_streams; i++) {
    const MsTraceStreamTime *s = &times->streams[i];
    if (s->busy_s < 0 || s->alone_s > s->busy_s * (1 + 1e-9) || s->busy_s > times->busy_s * (1 + 1e-9)) abort();
    sum_s += s->time_s;
  }
  if (fabs(sum_s - times->time_s) > 1e-9 * (sum_s + 1)) abort();
  g_autofree char *text = ms_figures_json(&ms_trace_figures, times);
  g_autoptr(MsJson) again = ms_json_parse(text, -1, "figures", NULL);
  if (!again) abort();
}

static MsTrace *read_any(const uint8_t *data, size_t size, const MsKernelTable *table, GPtrArray *notes,
                         GError **error) {
  if (size < 16 || memcmp(data, "SQLite format 3", 16) != 0) {
    g_autoptr(MsReader) reader = ms_reader_of((const char *)data, size, "trace");
    return ms_trace_read(reader, "trace", -1, table, notes, error);
  }
  g_autofree char *file = NULL;
  int fd = g_file_open_tmp("moesim-fuzz-XXXXXX.sqlite", &file, NULL);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  close(fd);
  MsTrace *trace = ms_trace_load(file, -1, table, notes, error);
  g_unlink(file);
  return trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static MsKernelTable *table;
  g_autoptr(GError) error = NULL;
  if (!table && !(table = ms_kernel_table_load(&error))) abort();
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsTrace) trace = read_any(data, size, table, notes, &error);
  if (!trace != (error != NULL)) abort();
  if (trace && trace->steps->len > 0) check(trace, table);
  if (error && (error->code != MS_ERROR_INPUT || strchr(error->message, '\n'))) abort();
  return 0;
}
