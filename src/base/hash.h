/* base/hash.h - hashes of keys. */
#ifndef MS_BASE_HASH_H
#define MS_BASE_HASH_H

#include <glib.h>

/* FNV-1a over 32-bit words, for tables whose keys are structs of integers. */
static inline guint ms_hash_words(const gint32 *word, size_t n) {
  guint h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (guint)word[i]) * 16777619u;
  return h ^ h >> 15;
}

#endif
