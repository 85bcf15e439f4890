/* src/logs/reader.c - bytes and lines of a file of any size. */
#include "logs/reader.h"

#include "base/err.h"
#include "base/io.h"

#include <gio/gio.h>
#include <string.h>

enum { ROOM = 1 << 16 };

struct MsReader {
  char *filename;
  GInputStream *in;
  GConverter *unzip; /* NULL: the bytes are as they are */
  char *packed;      /* ROOM bytes of the file, of which packed_at to packed_end are still to be unpacked */
  gsize packed_at, packed_end;
  gboolean dry, whole, cut; /* the file has no more bytes; its last member ended; it ended within one */
  char buffer[ROOM];        /* of the lines */
  gsize at, end;
  GError *early; /* met while peeking: the next reading fails with it */
  GString *line;
  int number, next;
};

static MsReader *stream_new(const char *filename) {
  MsReader *s = g_new0(MsReader, 1);
  s->filename = g_strdup(filename);
  s->line = g_string_new(NULL);
  s->next = 1;
  return s;
}

/* Looks at the first two bytes without taking them. */
static gboolean is_gzip(GBufferedInputStream *in) {
  gsize n = 0;
  if (g_buffered_input_stream_fill(in, 2, NULL, NULL) < 0) return FALSE;
  const guchar *bytes = g_buffered_input_stream_peek_buffer(in, &n);
  return n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* Takes `from`. */
static MsReader *stream_on(const char *filename, GInputStream *from) {
  MsReader *s = stream_new(filename);
  s->in = g_buffered_input_stream_new_sized(from, ROOM);
  g_object_unref(from);
  if (!is_gzip(G_BUFFERED_INPUT_STREAM(s->in))) return s;
  s->unzip = G_CONVERTER(g_zlib_decompressor_new(G_ZLIB_COMPRESSOR_FORMAT_GZIP));
  s->packed = g_malloc(ROOM);
  return s;
}

MsReader *ms_reader_open(const char *filename, GError **error) {
  GInputStream *in = ms_open_file(filename, error);
  return in ? stream_on(filename, in) : NULL;
}

MsReader *ms_reader_of(const char *bytes, gsize length, const char *filename) {
  return stream_on(filename, g_memory_input_stream_new_from_data(bytes, (gssize)length, NULL));
}

void ms_reader_close(MsReader *s) {
  if (!s) return;
  g_object_unref(s->in);
  g_clear_object(&s->unzip);
  g_free(s->packed);
  g_string_free(s->line, TRUE);
  g_clear_error(&s->early);
  g_free(s->filename);
  g_free(s);
}

gboolean ms_reader_cut(const MsReader *s) { return s->cut; }
int ms_reader_line_number(const MsReader *s) { return s->number; }

/* --- gzip: members behind each other are one text (RFC 1952), as those that bgzip or an appended log have -------- */
static gboolean refill(MsReader *s, GError **error) {
  gsize left = s->packed_end - s->packed_at;
  memmove(s->packed, s->packed + s->packed_at, left);
  s->packed_at = 0, s->packed_end = left;
  gssize n = g_input_stream_read(s->in, s->packed + left, ROOM - left, NULL, error);
  s->dry = n <= 0;
  s->packed_end += n > 0 ? (gsize)n : 0;
  return n >= 0;
}

/* Behind a member. What is none (zeros of a tape) is left out, as gzip does. */
static gboolean begin_member(MsReader *s, GError **error) {
  while (s->packed_end - s->packed_at < 2 && !s->dry)
    if (!refill(s, error)) return FALSE;
  const guchar *next = (const guchar *)s->packed + s->packed_at;
  s->whole = s->packed_end - s->packed_at < 2 || next[0] != 0x1f || next[1] != 0x8b;
  g_converter_reset(s->unzip);
  return TRUE;
}

static gssize unpack(MsReader *s, void *to, gsize most, GError **error) {
  while (!s->whole) {
    gsize taken = 0, made = 0;
    if (s->packed_at == s->packed_end && !s->dry && !refill(s, error)) return -1;
    GConverterResult result =
        g_converter_convert(s->unzip, s->packed + s->packed_at, s->packed_end - s->packed_at, to, most,
                            s->dry ? G_CONVERTER_INPUT_AT_END : G_CONVERTER_NO_FLAGS, &taken, &made, error);
    if (result == G_CONVERTER_ERROR) return -1;
    s->packed_at += taken;
    if (result == G_CONVERTER_FINISHED && !begin_member(s, error)) return -1;
    if (made > 0) return (gssize)made;
  }
  return 0;
}

/* The next bytes; 0 at the end, which is where a gzip file ends that was cut, -1 and *error. */
static gssize read_some(MsReader *s, void *to, gsize most, GError **error) {
  GError *cause = NULL;
  if (s->early) return g_propagate_error(error, g_steal_pointer(&s->early)), -1;
  if (s->cut) return 0;
  if (ms_interrupted()) return ms_error(error, MS_ERROR_NOTHING, "%s: stopped before it was read", s->filename), -1;
  gssize n = s->unzip ? unpack(s, to, most, &cause) : g_input_stream_read(s->in, to, most, NULL, &cause);
  if (n >= 0) return n;
  gboolean io = cause->domain == G_IO_ERROR;
  s->cut = s->unzip && io && cause->code == G_IO_ERROR_PARTIAL_INPUT;
  if (!s->cut && s->unzip && io && cause->code == G_IO_ERROR_INVALID_DATA)
    ms_input_error(error, s->filename, 0, NULL, "damaged gzip data: %s", cause->message);
  else if (!s->cut) g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: %s", s->filename, cause->message);
  g_error_free(cause);
  return s->cut ? 0 : -1;
}

gssize ms_reader_chunk(MsReader *s, const char **bytes, GError **error) {
  gsize left = s->end - s->at;
  *bytes = s->buffer + s->at;
  s->at = s->end = 0;
  if (left > 0) return (gssize)left; /* what a peek has read */
  *bytes = s->buffer;
  return read_some(s, s->buffer, sizeof s->buffer, error);
}

static gboolean fill(MsReader *s, GError **error) {
  gssize n = read_some(s, s->buffer, sizeof s->buffer, error);
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

gboolean ms_reader_wrong(const MsReader *s, const char *path, GError **error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args), *valid = g_utf8_make_valid(message, -1);
  va_end(args);
  return ms_input_error(error, s->filename, s->number, path, "%s", valid);
}
