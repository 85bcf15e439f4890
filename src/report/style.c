#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "report/report.h"

gboolean ms_report_colour(void) {
  const char *no_color = g_getenv("NO_COLOR"), *term = g_getenv("TERM");
  if (no_color && *no_color) return FALSE;
  return isatty(STDOUT_FILENO) && g_strcmp0(term, "dumb") != 0;
}

int ms_report_width(void) {
  enum { FALLBACK = 100, NARROWEST = 40, WIDEST = 1000 };
  struct winsize size;
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return FALLBACK;
  return CLAMP(size.ws_col, NARROWEST, WIDEST);
}
