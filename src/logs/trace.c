/* src/logs/trace.c - profiles of a GPU: what wrote one is known by its content. */
#include "logs/trace_priv.h"

#include <string.h>

const char *const ms_trace_words[] = {"kineto", "nsys", "rocprof", "msprof", NULL};

static MsTrace *finish(MsTraceBuild *b, gboolean good, int device, GPtrArray *notes, GError **error) {
  if (good && ms_trace_build_device(b, device, notes, error)) return ms_trace_build_take(b, notes);
  ms_trace_build_clear(b);
  return NULL;
}

MsTrace *ms_trace_read(MsReader *reader, const char *file, int device, const MsKernelTable *table, GPtrArray *notes,
                       GError **error) {
  MsTraceBuild b;
  int first = ms_reader_peek(reader);
  gboolean json = first == '{' || first == '[' || first < 0;
  ms_trace_build_init(&b, file, MS_TRACE_KINETO, table);
  return finish(&b, json ? ms_trace_chrome(&b, reader, notes, error) : ms_trace_csv(&b, reader, notes, error), device,
                notes, error);
}

/* A database is read from its file, not as it goes by: standard input is none. */
MsTrace *ms_trace_load(const char *file, int device, const MsKernelTable *table, GPtrArray *notes, GError **error) {
  static const char sqlite[] = "SQLite format 3"; /* and the zero byte */
  g_autoptr(MsReader) reader = ms_reader_open(file, error);
  if (!reader) return NULL;
  if (strcmp(file, "-") == 0 || !ms_reader_begins(reader, sqlite, sizeof sqlite))
    return ms_trace_read(reader, file, device, table, notes, error);
  MsTraceBuild b;
  ms_trace_build_init(&b, file, MS_TRACE_NSYS, table);
  return finish(&b, ms_trace_sqlite(&b, file, notes, error), device, notes, error);
}
