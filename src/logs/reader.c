/* src/logs/reader.c - bytes and lines of a file of any size. */
#include "logs/reader.h"

#include "base/bytes.h"
#include "base/err.h"

#include <string.h>

enum { ROOM = 1 << 16 };

struct MsReader {
  char *filename;
  MsBytes *in;
  char buffer[ROOM]; /* of the lines */
  gsize at, end;
  GError *early; /* met while peeking: the next reading fails with it */
  GString *line;
  int number, next;
};

/* Takes `in`. */
static MsReader *reader_of(const char *filename, MsBytes *in) {
  MsReader *s = g_new0(MsReader, 1);
  s->filename = g_strdup(filename);
  s->in = in;
  s->line = g_string_new(NULL);
  s->next = 1;
  return s;
}

MsReader *ms_reader_open(const char *filename, GError **error) {
  MsBytes *in = ms_bytes_open(filename, error);
  return in ? reader_of(filename, in) : NULL;
}

MsReader *ms_reader_of(const char *bytes, gsize length, const char *filename) {
  return reader_of(filename, ms_bytes_of(bytes, length, filename));
}

void ms_reader_close(MsReader *s) {
  if (!s) return;
  ms_bytes_close(s->in);
  g_string_free(s->line, TRUE);
  g_clear_error(&s->early);
  g_free(s->filename);
  g_free(s);
}

gboolean ms_reader_cut(const MsReader *s) { return ms_bytes_cut(s->in); }
int ms_reader_line_number(const MsReader *s) { return s->number; }

/* The next bytes; 0 at the end, which is where a gzip file ends that was cut, -1 and *error. */
static gssize read_some(MsReader *s, GError **error) {
  if (s->early) return g_propagate_error(error, g_steal_pointer(&s->early)), -1;
  return ms_bytes_read(s->in, s->buffer, sizeof s->buffer, error);
}

gssize ms_reader_chunk(MsReader *s, const char **bytes, GError **error) {
  gsize left = s->end - s->at;
  *bytes = s->buffer + s->at;
  s->at = s->end = 0;
  if (left > 0) return (gssize)left; /* what a peek has read */
  *bytes = s->buffer;
  return read_some(s, error);
}

static gboolean fill(MsReader *s, GError **error) {
  gssize n = read_some(s, error);
  s->at = 0;
  s->end = n > 0 ? (gsize)n : 0;
  return n > 0;
}

static void look_ahead(MsReader *s) {
  GError *cause = NULL;
  if (s->at == s->end && !fill(s, &cause)) s->early = cause;
}

gboolean ms_reader_begins(MsReader *s, const char *bytes, gsize length) {
  look_ahead(s);
  return s->end - s->at >= length && memcmp(s->buffer + s->at, bytes, length) == 0;
}

int ms_reader_peek(MsReader *s) {
  look_ahead(s);
  for (gsize i = s->at; i < s->end; i++)
    if (!g_ascii_isspace(s->buffer[i])) return (guchar)s->buffer[i];
  return -1;
}

/* --- lines ----------------------------------------------------------------------------------------------------- */
/* Colours and the like: ESC [ ... letter. */
static void without_colours(GString *line) {
  gsize to = 0;
  for (gsize i = 0; i < line->len; i++) {
    if (line->str[i] != '\033') {
      line->str[to++] = line->str[i];
      continue;
    }
    if (line->str[i + 1] == '[')
      for (i++; i + 1 < line->len && !g_ascii_isalpha(line->str[i + 1]);) i++;
    i++;
  }
  g_string_truncate(line, MIN(to, line->len));
}

/* Bytes until the next end of a line; TRUE when it came. */
static gboolean take(MsReader *s, char *end) {
  gsize from = s->at;
  while (s->at < s->end && s->buffer[s->at] != '\n' && s->buffer[s->at] != '\r') s->at++;
  gsize room = MS_LINE_MOST > s->line->len ? MS_LINE_MOST - s->line->len : 0;
  g_string_append_len(s->line, s->buffer + from, (gssize)MIN(s->at - from, room));
  if (s->at == s->end) return FALSE;
  *end = s->buffer[s->at++];
  return TRUE;
}

const char *ms_reader_line(MsReader *s, GError **error) {
  GError *cause = NULL;
  char end = 0;
  g_string_truncate(s->line, 0);
  do {
    if (s->at == s->end && !fill(s, &cause)) break;
  } while (!take(s, &end));
  if (cause) {
    g_propagate_error(error, cause);
    return NULL;
  }
  if (end == 0 && s->line->len == 0) return NULL;
  s->number = s->next;
  s->next += end == '\n';
  if (memchr(s->line->str, 0, s->line->len)) {
    ms_input_error(error, s->filename, s->number, NULL, "is no text: it holds a zero byte");
    return NULL;
  }
  without_colours(s->line);
  return s->line->str;
}
