/* src/describe/software.c - names of releases: spelling, date, TransformerEngine. */
#include "describe/software.h"

#include <stdio.h>
#include <string.h>

/* The letter in front of a version: v0.4, r0.15. */
static gboolean is_version_letter(const char *at, const GString *out) {
  return (*at == 'v' || *at == 'r') && g_ascii_isdigit(at[1]) && (out->len == 0 || out->str[out->len - 1] == '-');
}

char *ms_software_spelled(const char *software) {
  const char *slash = strrchr(software, '/');
  g_autofree char *small = g_ascii_strdown(slash ? slash + 1 : software, -1);
  GString *out = g_string_new(NULL);
  for (const char *at = small; *at; at++) {
    gboolean dash = strchr(": _@+-", *at) != NULL;
    if (!is_version_letter(at, out) && !(dash && out->len > 0 && out->str[out->len - 1] == '-'))
      g_string_append_c(out, dash ? '-' : *at);
  }
  return g_string_free(out, FALSE);
}

gsize ms_software_begins(const char *software, const char *listed) {
  gsize n = strlen(listed);
  if (n == 0 || strncmp(software, listed, n) != 0) return 0;
  gboolean ends = software[n] == 0 || software[n] == '-' || software[n] == '.';
  return ends || (g_ascii_isdigit(listed[n - 1]) && !g_ascii_isdigit(software[n])) ? n : 0;
}

/* Year and month at the beginning of a text, and how long they are; 0: none. */
static int month_at(const char *at, int *year, int *month) {
  int end = 0;
  if (g_ascii_isdigit(at[0]) && g_ascii_isdigit(at[1]) && g_ascii_isdigit(at[2]) && g_ascii_isdigit(at[3])) {
    int rest = 0;
    if (sscanf(at, "%2d%2d.%5d%n", year, month, &rest, &end) == 3 && end == 10) return *year += 2000, end;
    if (sscanf(at, "%4d-%2d%n", year, month, &end) == 2 || sscanf(at, "%4d.%2d%n", year, month, &end) == 2) return end;
    return sscanf(at, "%4d%2d%2d%n", year, month, &rest, &end) == 3 && end == 8 ? end : 0;
  }
  if (sscanf(at, "%2d.%2d%n", year, month, &end) != 2 || at[2] != '.') return 0;
  *year += 2000;
  return end;
}

double ms_software_year(const char *software) {
  for (const char *at = software; *at; at++) {
    int year = 0, month = 0;
    if (!g_ascii_isdigit(*at) || (at > software && (g_ascii_isdigit(at[-1]) || at[-1] == '.'))) continue;
    int end = month_at(at, &year, &month);
    if (end > 0 && year >= 2016 && year < 2100 && month >= 1 && month <= 12 && !g_ascii_isdigit(at[end]))
      return year + month / 12.0;
  }
  return 0;
}

int ms_software_engine(const char *software) {
  static const char *const words[] = {"te-", "te", "transformer-engine-", "transformerengine-"};
  for (const char *at = software; *at; at++)
    for (gsize i = 0; i < G_N_ELEMENTS(words); i++) {
      int major = 0, minor = 0;
      if ((at > software && g_ascii_isalnum(at[-1])) || !g_str_has_prefix(at, words[i])) continue;
      if (sscanf(at + strlen(words[i]), "%d.%d", &major, &minor) == 2) return major == 2 ? MAX(minor, 1) : 1;
    }
  return 0;
}
