/* src/logs/trace.c - profiles of a GPU: what wrote one is known by its content. */
#include "logs/trace_priv.h"

#include <stdio.h>
#include <string.h>

const char *const ms_trace_words[] = {"kineto", "nsys", "rocprof", "msprof", NULL};

/* A file of SQLite, by its first bytes; not of standard input, which cannot be read twice. */
static gboolean is_sqlite(const char *file) {
  static const char magic[] = "SQLite format 3"; /* and a zero byte */
  char head[sizeof magic];
  FILE *in = strcmp(file, "-") == 0 ? NULL : fopen(file, "rb");
  gboolean is = in && fread(head, 1, sizeof head, in) == sizeof head && memcmp(head, magic, sizeof magic) == 0;
  if (in) fclose(in);
  return is;
}

static MsTrace *finish(MsTraceBuild *b, gboolean good, int device, GPtrArray *notes, GError **error) {
  good = good && (b->t->form == MS_TRACE_KINETO && device < 0 ? TRUE : ms_trace_build_device(b, device, notes, error));
  if (good) return ms_trace_build_take(b, notes);
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

MsTrace *ms_trace_load(const char *file, int device, const MsKernelTable *table, GPtrArray *notes, GError **error) {
  if (is_sqlite(file)) {
    MsTraceBuild b;
    ms_trace_build_init(&b, file, MS_TRACE_NSYS, table);
    return finish(&b, ms_trace_sqlite(&b, file, notes, error), device, notes, error);
  }
  g_autoptr(MsReader) reader = ms_reader_open(file, error);
  return reader ? ms_trace_read(reader, file, device, table, notes, error) : NULL;
}
