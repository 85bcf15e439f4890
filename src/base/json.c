/* src/base/json.c - documents: a checked tree, its text (for lines) and its name. */
#include "base/json.h"

#include "base/err.h"
#include "base/io.h"
#include "base/json_priv.h"

#include <string.h>

struct MsJson {
  char *filename, *text;
  JsonNode *root;
};

/* Takes `text`. */
static MsJson *document(char *text, size_t length, const char *filename, GError **error) {
  JsonNode *root = ms_json_scan(text, length, filename, error);
  if (!root) {
    g_free(text);
    return NULL;
  }
  MsJson *doc = g_new0(MsJson, 1);
  *doc = (MsJson){.filename = g_strdup(filename), .text = text, .root = root};
  return doc;
}

MsJson *ms_json_parse(const char *text, gssize length, const char *filename, GError **error) {
  size_t n = length < 0 ? strlen(text) : (size_t)length;
  char *copy = g_malloc(n + 1);
  memcpy(copy, text, n);
  copy[n] = '\0';
  return document(copy, n, filename, error);
}

MsJson *ms_json_load(const char *filename, GError **error) {
  gsize length;
  char *text = ms_read_file(filename, MS_JSON_MAX_BYTES, &length, error);
  return text ? document(text, length, strcmp(filename, "-") == 0 ? "<stdin>" : filename, error) : NULL;
}

void ms_json_free(MsJson *doc) {
  if (!doc) return;
  json_node_unref(doc->root);
  g_free(doc->filename);
  g_free(doc->text);
  g_free(doc);
}

JsonNode *ms_json_root(const MsJson *doc) { return doc->root; }
const char *ms_json_filename(const MsJson *doc) { return doc->filename; }
int ms_json_line(const MsJson *doc, const char *path) { return ms_json_locate(doc->text, path ? path : ""); }

gboolean ms_json_error(const MsJson *doc, const char *path, GError **error, const char *format, ...) {
  if (!error) return FALSE;
  va_list args;
  va_start(args, format);
  char *message = g_strdup_vprintf(format, args);
  va_end(args);
  ms_input_error(error, doc ? doc->filename : NULL, doc ? ms_json_line(doc, path) : 0, path, "%s", message);
  g_free(message);
  return FALSE;
}

gboolean ms_json_need_object(const MsJson *doc, JsonNode *node, const char *path, GError **error) {
  return JSON_NODE_HOLDS_OBJECT(node) || ms_json_error(doc, path, error, "must be an object");
}

/* --- nearest word
 * ------------------------------------------------------------------------------------------------- */
#define WORD_MAX 64

static char folded(char c) { return c == '-' ? '_' : g_ascii_tolower(c); }

/* Edit distance with swaps of neighbours; case and -/_ do not count. Both words are at most WORD_MAX long. */
static int distance(const char *a, const char *b) {
  int na = (int)strlen(a), nb = (int)strlen(b);
  int row[3][WORD_MAX + 1];
  for (int j = 0; j <= nb; j++) row[0][j] = j;
  for (int i = 1; i <= na; i++) {
    int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
    now[0] = i;
    for (int j = 1; j <= nb; j++) {
      gboolean same = folded(a[i - 1]) == folded(b[j - 1]);
      now[j] = MIN(MIN(last[j], now[j - 1]) + 1, last[j - 1] + !same);
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]))
        now[j] = MIN(now[j], before[j - 2] + 1);
    }
  }
  return row[na % 3][nb];
}

static gboolean is_prefix(const char *word, const char *of) {
  return strlen(word) >= 4 && g_ascii_strncasecmp(word, of, strlen(word)) == 0;
}

/* `d` beats the best so far, or equals it and starts with the same letter where that did not. */
static gboolean is_nearer(const char *word, const char *candidate, int d, const char *nearest, int best) {
  if (d != best || !nearest) return d < best;
  return folded(*candidate) == folded(*word) && folded(*nearest) != folded(*word);
}

const char *ms_nearest(const char *word, const char *const *known) {
  size_t n = strlen(word);
  if (n > WORD_MAX) return NULL;
  int best = n < 2 ? 1 : n < 3 ? 2 : (int)n / 3 + 1; /* one too many */
  const char *nearest = NULL, *longer = NULL;
  for (; *known; known++) {
    if (strlen(*known) > WORD_MAX) continue;
    int d = distance(word, *known);
    if (is_nearer(word, *known, d, nearest, best)) {
      best = d;
      nearest = *known;
    }
    if (!longer && (is_prefix(word, *known) || is_prefix(*known, word))) longer = *known;
  }
  return nearest ? nearest : longer;
}
