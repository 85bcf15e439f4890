/* src/exec/dump_file.c - reading and writing the file of a dump. */
#include "exec/dump_file.h"

#include "base/err.h"
#include "base/io.h"

#include <string.h>

enum { LONGEST_NAME = 256, LONGEST_NUMBER = 19, ELEMENT_B = sizeof(double), CHUNK_B = 1 << 20 };

static const char first_line[] = "moesim exec dump 1\n";

static void matrix_free(gpointer data) {
  MsDumpMatrix *m = data;
  g_free(m->name);
  g_free(m);
}

void ms_dump_free(MsDump *dump) {
  if (!dump) return;
  g_ptr_array_unref(dump->matrix);
  g_free(dump->bytes);
  g_free(dump);
}

double ms_dump_at(const char *elements, gint64 i) {
  double value;
  memcpy(&value, elements + i * ELEMENT_B, sizeof value);
  return value;
}

/* --- reading --------------------------------------------------------------------------------------------------- */

static gboolean name_is_plain(const char *name, gsize length) {
  for (gsize i = 0; i < length; i++)
    if (g_ascii_iscntrl(name[i])) return FALSE;
  return length > 0 && length <= LONGEST_NAME;
}

/* As it was written: no sign, no zero in front. */
static gboolean read_count(const char *digits, gsize length, gint64 *n) {
  if (length == 0 || length > LONGEST_NUMBER || digits[0] == '0') return FALSE;
  g_autofree char *number = g_strndup(digits, length);
  for (gsize i = 0; i < length; i++)
    if (!g_ascii_isdigit(number[i])) return FALSE;
  return g_ascii_string_to_signed(number, 10, 1, G_MAXINT64, n, NULL);
}

/* The matrix at *next, which goes on behind its elements; NULL when there is none, or not all of it. */
static MsDumpMatrix *next_matrix(const char **next, const char *end) {
  const char *line_end = memchr(*next, '\n', MIN((gsize)(end - *next), LONGEST_NAME + LONGEST_NUMBER + 2));
  const char *tab = line_end ? memchr(*next, '\t', (gsize)(line_end - *next)) : NULL;
  gint64 n;
  if (!tab || !name_is_plain(*next, (gsize)(tab - *next)) || !read_count(tab + 1, (gsize)(line_end - tab - 1), &n))
    return NULL;
  const char *elements = line_end + 1;
  if (n > (end - elements) / (2 * ELEMENT_B)) return NULL;
  MsDumpMatrix *m = g_new(MsDumpMatrix, 1);
  *m = (MsDumpMatrix){.name = g_strndup(*next, (gsize)(tab - *next)),
                      .n = n,
                      .gradient = elements,
                      .parameter = elements + n * ELEMENT_B};
  *next = elements + 2 * n * ELEMENT_B;
  return m;
}

static gboolean read_matrices(MsDump *dump, gsize length, const char *file, GError **error) {
  const char *at = dump->bytes + strlen(first_line), *end = dump->bytes + length;
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  while (at < end) {
    MsDumpMatrix *m = next_matrix(&at, end);
    if (!m)
      return ms_input_error(
          error, file, 0, NULL,
          "matrix %u is damaged or cut off, must be a line NAME, tab, number of elements, and twice as many doubles",
          dump->matrix->len + 1);
    g_ptr_array_add(dump->matrix, m);
    if (!g_hash_table_add(seen, m->name))
      return ms_input_error(error, file, 0, NULL, "matrix %u, %s, comes twice, must come once", dump->matrix->len,
                            m->name);
  }
  return TRUE;
}

MsDump *ms_dump_parse(char *bytes, gsize length, const char *file, GError **error) {
  g_autoptr(MsDump) dump = g_new0(MsDump, 1);
  dump->bytes = bytes;
  dump->matrix = g_ptr_array_new_with_free_func(matrix_free);
  if (length < strlen(first_line) || memcmp(bytes, first_line, strlen(first_line)) != 0)
    return ms_input_error(error, file, 1, NULL, "is no dump of moesim exec, must begin with \"moesim exec dump 1\""),
           NULL;
  return read_matrices(dump, length, file, error) ? g_steal_pointer(&dump) : NULL;
}

static gboolean begins_as_dump(const GString *bytes) {
  return memcmp(bytes->str, first_line, MIN(bytes->len, strlen(first_line))) == 0;
}

/* All of a dump; of another file, which may be of any size, no more than tells. (transfer full) */
static GString *read_dump(const char *file, const char *name, GError **error) {
  g_autoptr(GInputStream) in = ms_open_file(file, error);
  g_autoptr(GError) why = NULL;
  g_autofree char *chunk = g_malloc(CHUNK_B);
  GString *bytes = in ? g_string_new(NULL) : NULL;
  gssize n = 0;
  while (in && begins_as_dump(bytes) && (n = g_input_stream_read(in, chunk, CHUNK_B, NULL, &why)) > 0)
    g_string_append_len(bytes, chunk, n);
  if (!why) return bytes;
  ms_error(error, MS_ERROR_ENV, "%s: cannot be read: %s", name, why->message);
  g_string_free(bytes, TRUE);
  return NULL;
}

MsDump *ms_dump_load(const char *file, GError **error) {
  const char *name = strcmp(file, "-") == 0 ? "<stdin>" : file;
  GString *bytes = read_dump(file, name, error);
  if (!bytes) return NULL;
  gsize length = bytes->len;
  return ms_dump_parse(g_string_free(bytes, FALSE), length, name, error);
}

/* --- writing --------------------------------------------------------------------------------------------------- */

GString *ms_dump_text_new(void) { return g_string_new(first_line); }

void ms_dump_text_add(GString *text, const char *name, gint64 n, const void *gradient, const void *parameter) {
  g_string_append_printf(text, "%s\t%" G_GINT64_FORMAT "\n", name, n);
  g_string_append_len(text, gradient, (gssize)n * ELEMENT_B);
  g_string_append_len(text, parameter, (gssize)n * ELEMENT_B);
}
