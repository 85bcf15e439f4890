/* src/base/hash.h - hashes of keys, and numbers drawn of them. */
#ifndef MS_BASE_HASH_H
#define MS_BASE_HASH_H

#include <glib.h>
#include <string.h>

/* FNV-1a over 32-bit words, for tables whose keys are structs of integers. */
static inline guint ms_hash_words(const gint32 *word, size_t n) {
  guint h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (guint)word[i]) * 16777619u;
  return h ^ h >> 15;
}
/* hash_NAME and equal_NAME of such keys of type T. */
#define MS_HASHED(name, T)                                                                               \
  static guint hash_##name(gconstpointer key) { return ms_hash_words(key, sizeof(T) / sizeof(gint32)); } \
  static gboolean equal_##name(gconstpointer a, gconstpointer b) { return !memcmp(a, b, sizeof(T)); }

/* FNV-1a of a text, of 64 bits: those of millions of lines differ. */
static inline guint64 ms_hash_text(const char *text) {
  guint64 h = 14695981039346656037u;
  for (; *text; text++) h = (h ^ (guchar)*text) * 1099511628211u;
  return h;
}

/* splitmix64: draws that are the same on every machine. */
#define MS_DRAW_STEP 0x9e3779b97f4a7c15u
static inline guint64 ms_mixed(guint64 x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u, x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
static inline guint64 ms_drawn(guint64 x) { return ms_mixed(x + MS_DRAW_STEP); }

#endif
