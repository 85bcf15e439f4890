/* src/describe/moe_freq.c - a small recursive reader of list expressions.
 *
 *   sum    = term { "+" term }
 *   term   = [ integer "*" ] atom { "*" integer }
 *   atom   = "(" sum ")" | "[" [ value { "," value } ] "]"       value: 0 up to the largest allowed, 1 for MoE layers
 *
 * What is read is bounded on the way, so that "[1]*1000000000" costs nothing; "[0]*8+[1]*0" may have one
 * entry more on the way than in the end. */
#include "describe/moe_freq.h"

#include <string.h>

#define TEXT_MAX  40000
#define DEPTH_MAX 16
#define SPARE     4096 /* entries that a later "*0" may take away */

typedef struct {
  const char *p;
  guint8 *layer;
  int n, room, depth;
  int max;  /* entries wanted */
  int most; /* largest value of an entry */
  char *why;
  size_t size;
} Freq;

static gboolean read_sum(Freq *f);

static char peek(Freq *f) {
  while (*f->p == ' ') f->p++;
  return *f->p;
}

static gboolean take(Freq *f, char c) {
  if (peek(f) != c) return FALSE;
  f->p++;
  return TRUE;
}

static gboolean unreadable(Freq *f) {
  if (peek(f)) g_snprintf(f->why, f->size, "cannot be read at \"%.20s\", must be like \"[0]*3+[1]*58\"", f->p);
  else g_snprintf(f->why, f->size, "ends too early, must be like \"[0]*3+[1]*58\"");
  return FALSE;
}

static gboolean too_long(Freq *f) {
  g_snprintf(f->why, f->size, "gives more than %d layers", f->max);
  return FALSE;
}

/* A count; larger ones than any use are all the same. */
static gboolean read_count(Freq *f, int *count) {
  if (!g_ascii_isdigit(peek(f))) return unreadable(f);
  for (*count = 0; g_ascii_isdigit(*f->p); f->p++) *count = MIN(*count * 10 + (*f->p - '0'), 10000000);
  return TRUE;
}

static gboolean read_values(Freq *f) {
  if (take(f, ']')) return TRUE;
  do {
    char first = peek(f);
    const char *at = f->p;
    int value = 0;
    if (!g_ascii_isdigit(first) || !read_count(f, &value) || value > f->most || f->p - at > 3) {
      f->p = at;
      return unreadable(f);
    }
    if (f->n >= f->room) return too_long(f);
    f->layer[f->n++] = (guint8)value;
  } while (take(f, ','));
  return take(f, ']') || unreadable(f);
}

static gboolean read_atom(Freq *f) {
  if (take(f, '[')) return read_values(f);
  if (!take(f, '(') || ++f->depth > DEPTH_MAX) return unreadable(f);
  if (!read_sum(f)) return FALSE;
  f->depth--;
  return take(f, ')') || unreadable(f);
}

/* Repeats the entries from `start` on. */
static gboolean repeat(Freq *f, int start, int count) {
  int n = f->n - start;
  if (n == 0) return TRUE;
  if ((gint64)n * count > f->room - start) return too_long(f);
  for (int i = 1; i < count; i++) memcpy(f->layer + start + i * n, f->layer + start, (size_t)n);
  f->n = start + n * count;
  return TRUE;
}

static gboolean read_term(Freq *f) {
  int start = f->n, count = 1;
  if (g_ascii_isdigit(peek(f)) && (!read_count(f, &count) || !take(f, '*'))) return unreadable(f);
  if (!read_atom(f) || !repeat(f, start, count)) return FALSE;
  while (take(f, '*'))
    if (!read_count(f, &count) || !repeat(f, start, count)) return FALSE;
  return TRUE;
}

static gboolean read_sum(Freq *f) {
  do
    if (!read_term(f)) return FALSE;
  while (take(f, '+'));
  return TRUE;
}

static gboolean is_integer(const char *text) { return *text && strspn(text, "0123456789") == strlen(text); }

static int every(Freq *f) {
  int step;
  if (!read_count(f, &step) || step == 0) {
    g_snprintf(f->why, f->size, "is 0, must be at least 1");
    return -1;
  }
  for (int i = 0; i < f->max; i++) f->layer[i] = i % step == 0;
  return f->max;
}

static int read_list(Freq *f, guint8 *layer) {
  gboolean ok = read_sum(f) && (!peek(f) || unreadable(f)) && (f->n <= f->max || too_long(f));
  if (ok) memcpy(layer, f->layer, (size_t)f->n);
  return ok ? f->n : -1;
}

int ms_layer_list_parse(const char *text, guint8 *layer, int max, int most, char *why, size_t size) {
  Freq f = {
      .p = text, .layer = layer, .max = max, .most = MIN(most, 255), .room = max + SPARE, .why = why, .size = size};
  if (strlen(text) > TEXT_MAX) {
    g_snprintf(why, size, "is longer than %d characters", TEXT_MAX);
    return -1;
  }
  if (most == 1 && is_integer(text)) return every(&f);
  f.layer = g_new(guint8, (gsize)f.room);
  int n = read_list(&f, layer);
  g_free(f.layer);
  return n;
}

int ms_moe_freq_parse(const char *text, guint8 *layer, int max, char *why, size_t size) {
  return ms_layer_list_parse(text, layer, max, 1, why, size);
}
