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

/* Bytes of the control character at `p`, 0: it is none. */
static size_t control(const char *p) {
  if ((guchar)p[0] < 0x20 || p[0] == 0x7f) return 1;
  return (guchar)p[0] == 0xC2 && (guchar)p[1] >= 0x80 && (guchar)p[1] < 0xA0 ? 2 : 0;
}

/* Bytes of what sets colours at `p`, "\033[1;31m", else 0. */
static size_t colour(const char *p) {
  size_t n = p[0] == '\033' && p[1] == '[' ? 2 + strspn(p + 2, "0123456789;") : 0;
  return n > 0 && p[n] == 'm' ? n + 1 : 0;
}

char *ms_report_printable(char *text, unsigned flags) {
  for (char *p = text; *p;) {
    size_t kept = *p == '\n' || *p == '\t' ? 1 : flags & MS_REPORT_COLOUR ? colour(p) : 0, n = kept ? 0 : control(p);
    if (n > 0) memset(p, ' ', n);
    p += kept ? kept : MAX(n, 1);
  }
  return text;
}

char *ms_report_name(const char *name) { return g_strdelimit(ms_report_printable(g_strdup(name), 0), "\n\t", ' '); }

int ms_report_width(void) {
  enum { FALLBACK = 100, NARROWEST = 40, WIDEST = 1000 };
  struct winsize size;
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return FALLBACK;
  return CLAMP(size.ws_col, NARROWEST, WIDEST);
}
