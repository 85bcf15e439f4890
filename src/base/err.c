/* src/base/err.c - one-line messages; see err.h. */
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 1000 /* bytes; what comes from a hostile file must not fill a terminal */

G_DEFINE_QUARK(ms - error - quark, ms_error)

/* Control characters (newlines among them) become spaces, what is not UTF-8 is replaced, the rest is cut. */
static char *one_line(char *text) {
  char *valid = g_utf8_make_valid(text, -1);
  for (char *p = valid; *p; p++)
    if ((guchar)*p < 0x20 || *p == 0x7f) *p = ' ';
  if (strlen(valid) > MESSAGE_MAX) {
    char *cut = g_utf8_find_prev_char(valid, valid + MESSAGE_MAX - 3);
    memcpy(cut, "...", 4);
  }
  g_free(text);
  return valid;
}

gboolean ms_error(GError **error, MsErrorCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  g_set_error_literal(error, MS_ERROR, code, message);
  return FALSE;
}

gboolean ms_input_error(GError **error, const char *file, int line, const char *path, const char *format, ...) {
  if (!error) return FALSE;
  GString *text = g_string_new(NULL);
  if (file && *file) g_string_append_printf(text, "%s:", file);
  if (file && *file && line > 0) g_string_append_printf(text, "%d:", line);
  if (text->len) g_string_append_c(text, ' ');
  if (path && *path) g_string_append_printf(text, "%s: ", path);
  va_list args;
  va_start(args, format);
  g_string_append_vprintf(text, format, args);
  va_end(args);
  char *message = one_line(g_string_free(text, FALSE));
  g_set_error_literal(error, MS_ERROR, MS_ERROR_INPUT, message);
  g_free(message);
  return FALSE;
}

gboolean ms_usage_error(GError **error, const char *format, ...) {
  if (!error) return FALSE;
  va_list args;
  va_start(args, format);
  g_autofree char *message = one_line(g_strdup_vprintf(format, args));
  va_end(args);
  g_set_error_literal(error, MS_ERROR, MS_ERROR_USAGE, message);
  return FALSE;
}

void ms_bug(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fflush(stdout);
  fprintf(stderr, "moesim: bug at %s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(70);
}

const char *ms_error_text(const char *message, const char *file) {
  size_t n = strlen(file);
  if (strncmp(message, file, n) != 0 || message[n] != ':') return message;
  message += n + 1;
  const char *p = message;
  while (g_ascii_isdigit(*p)) p++;
  if (p > message && *p == ':') message = p + 1;
  while (*message == ' ') message++;
  return message;
}
