/* src/layout/refuse.c - how a rule says no. */
#include <stdio.h>

#include "layout/internal.h"

gboolean ms_refuse(char *why, size_t size, const char *format, ...) {
  va_list args;
  if (size == 0) return FALSE;
  va_start(args, format);
  vsnprintf(why, size, format, args);
  va_end(args);
  return FALSE;
}
