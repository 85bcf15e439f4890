/* src/base/suggest.c - what somebody may have meant by a word that is not known. */
#include "base/json.h"

#include <string.h>

#define WORD_MAX 128

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

/* Letters of a word of that length that a slip of the hand gets wrong. */
static int slips(size_t length) { return length < 5 ? 0 : length < 10 ? 1 : 2; }

static char first_letter(const char *word) { return folded(word[strspn(word, "-")]); }

const char *ms_misspelt(const char *word, const char *const *known) {
  size_t n = strlen(word);
  int best = slips(n) + 1; /* one too many */
  const char *meant = NULL;
  for (; *known && n <= WORD_MAX; known++) {
    int d = strlen(*known) > WORD_MAX ? best : distance(word, *known);
    if (d >= best || first_letter(word) != first_letter(*known)) continue;
    best = d;
    meant = *known;
  }
  return meant;
}

/* --- several ---------------------------------------------------------------------------------------------------- */
enum { SHORTEST_PART = 3, MOST_OFFERED = 16 };

static char *folded_word(const char *word) {
  char *text = g_strdup(word);
  for (char *c = text; *c; c++) *c = folded(*c);
  return text;
}

/* Length of the family's name at the start: "qwen" of "qwen3-30b". */
static size_t family_length(const char *word) {
  size_t n = 0;
  while (g_ascii_isalpha(word[n])) n++;
  return n;
}

/* Part for part one word shortens the other, "seq_length" and "sequence_length". */
static gboolean abbreviates(const char *a, const char *b) {
  while (*a && *b) {
    size_t na = strcspn(a, "_"), nb = strcspn(b, "_"), least = MIN(na, nb);
    if ((na != nb && least < SHORTEST_PART) || strncmp(a, b, least) != 0) return FALSE;
    a += na + (a[na] == '_');
    b += nb + (b[nb] == '_');
  }
  return *a == *b;
}

/* Indices of the known words that contain `part` or shorten it; none when they are more than can be offered. */
static guint containing(const char *part, gboolean at_start, const char *const *known, guint *found) {
  guint n = 0;
  for (guint i = 0; known[i]; i++) {
    g_autofree char *word = folded_word(known[i]);
    if (at_start ? !g_str_has_prefix(word, part) : !strstr(word, part) && !abbreviates(word, part)) continue;
    if (n == MOST_OFFERED) return 0;
    found[n++] = i;
  }
  return n;
}

static guint alike(const char *word, const char *const *known, guint *found) {
  g_autofree char *part = folded_word(word);
  if (strlen(part) < SHORTEST_PART) return 0;
  guint n = containing(part, FALSE, known, found);
  return n > 0 ? n : containing(part, TRUE, known, found);
}

static guint of_family(const char *word, const char *const *known, guint *found) {
  g_autofree char *family = folded_word(word);
  family[family_length(family)] = '\0';
  return strlen(family) > SHORTEST_PART ? containing(family, TRUE, known, found) : 0;
}

/* Those of the family of `near`, such as llama2_70b and llama3_70b, that are as near to the word. */
static guint nearest_of(const char *word, const char *const *known, const char *near, guint *found) {
  size_t family = family_length(near);
  guint n = 0;
  if (family <= SHORTEST_PART || strlen(word) > WORD_MAX) return 0;
  for (guint i = 0; known[i] && n < MOST_OFFERED; i++)
    if (strlen(known[i]) <= WORD_MAX && !strncmp(known[i], near, family) &&
        distance(word, known[i]) == distance(word, near))
      found[n++] = i;
  return n;
}

static char *offer(const char *const *known, const char *const *glosses, const guint *found, guint n) {
  GString *out = g_string_new("did you mean ");
  for (guint i = 0; i < n; i++) {
    g_string_append_printf(out, "%s\"%s\"", i == 0 ? "" : i + 1 < n ? ", " : " or ", known[found[i]]);
    if (glosses && n > 1) g_string_append_printf(out, " (%s)", glosses[found[i]]);
  }
  g_string_append_c(out, '?');
  return g_string_free(out, FALSE);
}

/* Whether all digits and letters of `part` stand between other characters in `name`: "h200" in "h200_sxm". */
static gboolean has_part(const char *name, const char *part) {
  g_auto(GStrv) parts = g_strsplit_set(name, "_./ ", -1);
  return g_strv_contains((const char *const *)parts, part);
}

/* Of the parts of the word those that have letters and digits name something: "h200" of "2 nodes of 8 H200". Indices of
 * the known words with most of them. */
static guint with_parts(const char *word, const char *const *known, guint *found) {
  g_autofree char *lower = folded_word(word);
  g_auto(GStrv) parts = g_strsplit_set(lower, "_./ ,:", -1);
  guint n = 0, most = 1;
  for (guint i = 0; known[i]; i++) {
    g_autofree char *name = folded_word(known[i]);
    guint shared = 0;
    for (char **part = parts; *part; part++) {
      gboolean letter = FALSE, digit = FALSE;
      for (const char *c = *part; *c; c++) letter |= g_ascii_isalpha(*c), digit |= g_ascii_isdigit(*c);
      shared += letter && digit && has_part(name, *part);
    }
    if (shared > most) n = 0, most = shared;
    if (shared == most && n < MOST_OFFERED) found[n++] = i;
  }
  return n;
}

char *ms_suggest(const char *word, const char *const *known, const char *const *glosses) {
  guint found[MOST_OFFERED], n = alike(word, known, found);
  const char *near = n == 0 ? ms_nearest(word, known) : NULL;
  guint as_near = near ? nearest_of(word, known, near, found) : 0;
  if (as_near > 1) return offer(known, NULL, found, as_near);
  if (near) return g_strdup_printf("did you mean \"%s\"?", near);
  if (n == 0) n = with_parts(word, known, found);
  if (n == 0) n = of_family(word, known, found);
  return n > 0 ? offer(known, glosses, found, n) : NULL;
}
