/* libFuzzer target: any bytes as a table of measurements, plain or gzip: series of rows that are sorted and merged, or
 * one line of error. make fuzz (clang), then build-fuzz/fuzz/fuzz_table tests/fuzz/table */
#include "base/err.h"
#include "calib/measure.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const names[] = {"x1", "h100-sxm", NULL};
  int fd = memfd_create("table", 0);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  g_autofree char *file = g_strdup_printf("/proc/self/fd/%d", fd), *note = NULL;
  g_autoptr(GPtrArray) series = g_ptr_array_new_with_free_func((GDestroyNotify)ms_series_free);
  g_autoptr(GError) error = NULL;
  gboolean ok = ms_measure_read(file, names, series, &note, &error);
  if (ok != !error || (error && (error->code != MS_ERROR_INPUT || strchr(error->message, '\n')))) abort();
  for (guint i = 0; ok && i < series->len; i++) {
    MsSeries *s = series->pdata[i];
    ms_series_merge(s->rows);
    for (guint k = 0; k < s->rows->len; k++) {
      const MsRow *row = &g_array_index(s->rows, MsRow, k);
      if (!(row->time_s > 0 && row->time_s < 1e9)) abort();
      int bucket = ms_row_bucket(s->kind, row->x);
      if (bucket < 0 || bucket > 999) abort();
    }
  }
  close(fd);
  return 0;
}
