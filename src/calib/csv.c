/* src/calib/csv.c - see csv.h. The whole text stands in memory; fields are cut in place, row by row. */
#include "calib/csv.h"

#include "base/err.h"
#include "base/io.h"

#include <gio/gio.h>
#include <math.h>
#include <string.h>

enum { MAX_COLUMNS = 256, MAX_BYTES = 1 << 30, CHUNK = 1 << 20 };

struct MsCsv {
  char *filename, *text, *at, *end;
  int line; /* of the current row */
  int columns;
  char *name[MAX_COLUMNS], *field[MAX_COLUMNS];
};

/* --- bytes ----------------------------------------------------------------------------------------------------- */
static gboolean read_all(GInputStream *in, GByteArray *bytes, const char *filename, GError **error) {
  for (;;) {
    guint have = bytes->len;
    if (have >= (guint)MAX_BYTES) return ms_input_error(error, filename, 0, NULL, "holds more than 1 GiB of text");
    g_byte_array_set_size(bytes, have + CHUNK);
    GError *cause = NULL;
    gssize got = g_input_stream_read(in, bytes->data + have, CHUNK, NULL, &cause);
    g_byte_array_set_size(bytes, have + (guint)MAX(got, 0));
    if (got == 0) return TRUE;
    if (got < 0) {
      gboolean damaged = cause->domain == G_IO_ERROR &&
                         (cause->code == G_IO_ERROR_INVALID_DATA || cause->code == G_IO_ERROR_PARTIAL_INPUT);
      if (damaged) ms_input_error(error, filename, 0, NULL, "damaged gzip data: %s", cause->message);
      else g_set_error(error, MS_ERROR, MS_ERROR_ENV, "%s: %s", filename, cause->message);
      g_error_free(cause);
      return FALSE;
    }
  }
}

static GByteArray *inflate(GByteArray *packed, const char *filename, GError **error) {
  GInputStream *memory = g_memory_input_stream_new_from_data(packed->data, packed->len, NULL);
  GZlibDecompressor *unzip = g_zlib_decompressor_new(G_ZLIB_COMPRESSOR_FORMAT_GZIP);
  GInputStream *in = g_converter_input_stream_new(memory, G_CONVERTER(unzip));
  GByteArray *plain = g_byte_array_new();
  gboolean ok = read_all(in, plain, filename, error);
  g_object_unref(in);
  g_object_unref(unzip);
  g_object_unref(memory);
  g_byte_array_unref(packed);
  if (ok) return plain;
  g_byte_array_unref(plain);
  return NULL;
}

static GByteArray *load(const char *filename, GError **error) {
  g_autoptr(GInputStream) in = ms_open_file(filename, error);
  GByteArray *bytes = in ? g_byte_array_new() : NULL;
  if (in && !read_all(in, bytes, filename, error)) g_clear_pointer(&bytes, g_byte_array_unref);
  return bytes;
}

/* --- rows ------------------------------------------------------------------------------------------------------ */
gboolean ms_csv_error(const MsCsv *csv, int column, GError **error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_input_error(error, csv->filename, csv->line,
                        column >= 0 && column < csv->columns ? csv->name[column] : NULL, "%s", message);
}

/* A quoted field from its opening quote on, unquoted in place; returns what follows the closing quote, NULL when there
 * is none. */
static char *unquote(char *from) {
  char *to = from;
  for (char *p = from + 1; *p; p++) {
    if (*p == '"' && p[1] != '"') {
      *to = '\0';
      return p + 1;
    }
    if (*p == '"') p++;
    *to++ = *p;
  }
  return NULL;
}

int ms_csv_cut(char *line, char **field, int most, const char **wrong) {
  int n = 0;
  for (char *p = line;;) {
    if (n == most) return *wrong = "there are more columns than a table may have", -1;
    field[n++] = p;
    char *rest = *p == '"' ? unquote(p) : p + strcspn(p, ",");
    if (!rest) return *wrong = "a quote is not closed in this line", -1;
    if (*rest != '\0' && *rest != ',') return *wrong = "text follows the closing quote", -1;
    if (*rest == '\0') return n;
    *rest = '\0';
    p = rest + 1;
  }
}

/* The same into the fields of `csv`; -1 and *error. */
static int cut(const MsCsv *csv, char *line, char **field, GError **error) {
  const char *wrong = NULL;
  int n = ms_csv_cut(line, field, MAX_COLUMNS, &wrong);
  if (n < 0) ms_csv_error(csv, -1, error, "%s", wrong);
  return n;
}

/* The next line that is not empty, NUL-terminated without its line end; NULL at the end. */
static char *next_line(MsCsv *csv) {
  while (csv->at < csv->end) {
    char *line = csv->at, *stop = memchr(line, '\n', (size_t)(csv->end - line));
    if (!stop) stop = csv->end;
    csv->at = stop < csv->end ? stop + 1 : stop;
    csv->line++;
    if (stop > line && stop[-1] == '\r') stop--;
    *stop = '\0';
    if (*line) return line;
  }
  return NULL;
}

static gboolean read_header(MsCsv *csv, GError **error) {
  if (memchr(csv->text, '\0', (size_t)(csv->end - csv->text)))
    return ms_input_error(error, csv->filename, 0, NULL, "is no text: it holds a zero byte");
  if (g_str_has_prefix(csv->at, "\xef\xbb\xbf")) csv->at += 3;
  char *line = next_line(csv);
  if (!line) return ms_input_error(error, csv->filename, 0, NULL, "is empty, must begin with a line of column names");
  int n = cut(csv, line, csv->name, error);
  if (n < 0) return FALSE;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if (strcmp(csv->name[i], csv->name[j]) == 0)
        return ms_csv_error(csv, -1, error, "two columns have the name \"%s\"", csv->name[i]);
  csv->columns = n;
  return TRUE;
}

/* Takes `text`, which has a byte to spare after `length`. */
static MsCsv *csv_new(char *text, gsize length, const char *filename, GError **error) {
  MsCsv *csv = g_new0(MsCsv, 1);
  *csv = (MsCsv){.filename = g_strdup(filename), .text = text, .at = text, .end = text + length};
  text[length] = '\0';
  if (read_header(csv, error)) return csv;
  ms_csv_free(csv);
  return NULL;
}

MsCsv *ms_csv_parse(const char *text, gsize length, const char *filename, GError **error) {
  char *copy = g_malloc(length + 1);
  memcpy(copy, text, length);
  return csv_new(copy, length, filename, error);
}

MsCsv *ms_csv_open(const char *filename, GError **error) {
  GByteArray *bytes = load(filename, error);
  if (bytes && bytes->len >= 2 && bytes->data[0] == 0x1f && bytes->data[1] == 0x8b)
    bytes = inflate(bytes, filename, error);
  if (!bytes) return NULL;
  gsize length = bytes->len;
  g_byte_array_set_size(bytes, (guint)length + 1);
  return csv_new((char *)g_byte_array_free(bytes, FALSE), length, filename, error);
}

void ms_csv_free(MsCsv *csv) {
  if (!csv) return;
  g_free(csv->filename);
  g_free(csv->text);
  g_free(csv);
}

const char *ms_csv_filename(const MsCsv *csv) { return csv->filename; }

int ms_csv_column(const MsCsv *csv, const char *name) {
  for (int i = 0; i < csv->columns; i++)
    if (strcmp(csv->name[i], name) == 0) return i;
  return -1;
}

gboolean ms_csv_next(MsCsv *csv, GError **error) {
  char *line = next_line(csv);
  int n = line ? cut(csv, line, csv->field, error) : -1;
  if (n < 0) return FALSE;
  return n == csv->columns || ms_csv_error(csv, -1, error, "holds %d fields, the header names %d", n, csv->columns);
}

const char *ms_csv_text(const MsCsv *csv, int column) { return column < 0 ? "" : csv->field[column]; }

gboolean ms_csv_number(const MsCsv *csv, int column, double lo, double hi, double *value, GError **error) {
  const char *text = ms_csv_text(csv, column);
  char *end = NULL;
  if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
    return ms_csv_error(csv, column, error, "\"%.40s\" is no number", text);
  *value = g_ascii_strtod(text, &end);
  if (*end || !isfinite(*value)) return ms_csv_error(csv, column, error, "\"%.40s\" is no number", text);
  return (*value >= lo && *value <= hi) ||
         ms_csv_error(csv, column, error, "is %g, must be within %g and %g", *value, lo, hi);
}
