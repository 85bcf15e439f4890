/* src/report/style.c - what the terminal can show. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "report/report.h"

static gboolean wants_colour(void) {
  const char *no_color = g_getenv("NO_COLOR"), *term = g_getenv("TERM");
  if (no_color && *no_color) return FALSE;
  return isatty(STDOUT_FILENO) && g_strcmp0(term, "dumb") != 0;
}

static gboolean has_unicode(void) {
  static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    const char *value = g_getenv(names[i]);
    if (!value || !*value) continue;
    g_autofree char *small = g_ascii_strdown(value, -1);
    return strstr(small, "utf-8") || strstr(small, "utf8");
  }
  return FALSE;
}

unsigned ms_report_flags(void) {
  return (wants_colour() ? MS_REPORT_COLOUR : 0) | (has_unicode() ? 0 : MS_REPORT_ASCII);
}

int ms_report_width(void) {
  enum { FALLBACK = 100, NARROWEST = 40, WIDEST = 1000 };
  struct winsize size;
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return FALLBACK;
  return CLAMP(size.ws_col, NARROWEST, WIDEST);
}
