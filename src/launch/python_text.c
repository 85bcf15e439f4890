/* src/launch/python_text.c - where strings, arguments and statements of Python end. */
#include "launch/python_text.h"

#include <glib.h>
#include <string.h>

const char *ms_python_string_end(const char *p) {
  for (const char *q = p + 1; *q && *q != '\n'; q++) {
    if (*q == '\\' && q[1]) q++;
    else if (*q == *p) return q;
  }
  return NULL;
}

const char *ms_python_span(const char *p, const char *stops) {
  int open = 0;
  for (; *p; p++) {
    if (open == 0 && strchr(stops, *p)) return p;
    if (*p == '"' || *p == '\'') {
      if (!(p = ms_python_string_end(p))) return NULL;
    } else if (strchr("([{", *p)) open++;
    else if (strchr(")]}", *p) && open-- == 0) return NULL;
  }
  return open == 0 ? p : NULL;
}

char *ms_python_without_comments(const char *text) {
  GString *out = g_string_new(NULL);
  for (const char *p = text; *p; p++) {
    if (g_str_has_prefix(p, "\"\"\"")) {
      const char *end = strstr(p + 3, "\"\"\"");
      if (!end) return g_string_free(out, TRUE), NULL;
      p = end + 2;
      continue;
    }
    if (*p == '#') p += strcspn(p, "\n");
    if (!*p) break;
    const char *end = *p == '"' || *p == '\'' ? ms_python_string_end(p) : p;
    if (!end) return g_string_free(out, TRUE), NULL;
    g_string_append_len(out, p, end - p + 1);
    p = end;
  }
  return g_string_free(out, FALSE);
}
