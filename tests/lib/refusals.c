#include "lib/refusals.h"

#include "base/err.h"
#include "lib/close.h"

#include <glib/gstdio.h>
#include <string.h>

#define HEAD "=== "
#define LINE "==> "

typedef struct {
  char *name, *want;
  const char *text; /* in the corpus */
  gsize length;
} Case;

static void case_free(Case *c) {
  g_free(c->name);
  g_free(c->want);
  g_free(c);
}

static const char *after_line(const char *at, const char *end) {
  const char *newline = memchr(at, '\n', (gsize)(end - at));
  return newline ? newline + 1 : end;
}

/* The case at *at, which then stands behind it. */
static Case *next_case(const char **at, const char *end) {
  const char *head = *at, *text = after_line(head, end), *line = text;
  if (!g_str_has_prefix(head, HEAD)) fail_msg("no case at \"%.60s\"", head);
  while (line < end && !g_str_has_prefix(line, LINE)) line = after_line(line, end);
  if (line == end) fail_msg("%.60s: has no line " LINE, head);
  *at = after_line(line, end);
  Case *c = g_new0(Case, 1);
  c->name = g_strndup(head + strlen(HEAD), (gsize)(text - 1 - head) - strlen(HEAD));
  c->want = g_strndup(line + strlen(LINE), (gsize)(*at - 1 - line) - strlen(LINE));
  c->text = text, c->length = (gsize)(line - text);
  return c;
}

/* The line that the case gives, or NULL after saying what is wrong with it. (transfer full) */
static char *line_of(const Case *c, const char *kind, const char *folder, MsTestRefuse refuse) {
  g_autofree char *file = g_build_filename(folder, c->name, NULL);
  if (!g_file_set_contents(file, c->text, (gssize)c->length, NULL)) fail_msg("cannot write %s", file);
  g_autoptr(GError) error = refuse(kind, file, c->text, c->length);
  g_remove(file);
  gboolean ok = error && error->domain == MS_ERROR && error->code == MS_ERROR_INPUT && !strchr(error->message, '\n');
  if (!ok) print_error("%s/%s: %s\n", kind, c->name, error ? error->message : "was accepted");
  if (!ok) return NULL;
  g_auto(GStrv) parts = g_strsplit(error->message, file, -1);
  return g_strjoinv("$FILE", parts);
}

static void put_case(GString *out, const Case *c, const char *line) {
  g_string_append_printf(out, HEAD "%s\n", c->name);
  g_string_append_len(out, c->text, (gssize)c->length);
  g_string_append_printf(out, LINE "%s\n", line);
}

void ms_test_refusals(const char *kind, const char *folder, MsTestRefuse refuse, int at_least) {
  g_autofree char *corpus = g_strdup_printf(MS_SOURCE_DIR "/tests/invalid/%s.cases", kind), *all = NULL;
  g_autoptr(GString) blessed = g_string_new(NULL);
  gsize length;
  int cases = 0, wrong = 0;
  if (!g_file_get_contents(corpus, &all, &length, NULL)) fail_msg("cannot read %s", corpus);
  for (const char *at = all, *end = all + length; at < end; cases++) {
    Case *c = next_case(&at, end);
    g_autofree char *got = line_of(c, kind, folder, refuse);
    gboolean same = got && strcmp(got, c->want) == 0;
    if (got && !same) print_error("%s/%s:\n  got  %s\n  want %s\n", kind, c->name, got, c->want);
    put_case(blessed, c, got ? got : c->want);
    wrong += !same;
    case_free(c);
  }
  if (g_getenv("MOESIM_BLESS")) g_file_set_contents(corpus, blessed->str, (gssize)blessed->len, NULL);
  else assert_int_equal(wrong, 0);
  assert_true(cases >= at_least);
}
