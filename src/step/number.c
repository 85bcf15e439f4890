/* src/step/number.c - lists by all that counts of their rows. */
#include "step/number.h"
#include "base/kept.h"
#include <string.h>

static GByteArray *key_of(const MsCosted *c) {
  gsize n = (gsize)c->list->n, of_row = MS_ROW_BYTES + 3 * sizeof(MsTime) + sizeof *c->sms + sizeof *c->use;
  const int is[] = {c->list->n, c->list->tip};
  GByteArray *key = g_byte_array_sized_new((guint)(sizeof is + n * of_row));
  g_byte_array_append(key, (const guint8 *)is, sizeof is);
  g_byte_array_set_size(key, (guint)(sizeof is + n * MS_ROW_BYTES));
  for (gsize i = 0; i < n; i++)
    memcpy(key->data + sizeof is + i * MS_ROW_BYTES, ms_row_bytes(&c->list->op[i]), MS_ROW_BYTES);
  if (n == 0) return key;
  g_byte_array_append(key, (const guint8 *)c->duration, (guint)(n * sizeof *c->duration));
  g_byte_array_append(key, (const guint8 *)c->beside, (guint)(n * sizeof *c->beside));
  g_byte_array_append(key, (const guint8 *)c->launch, (guint)(n * sizeof *c->launch));
  g_byte_array_append(key, (const guint8 *)c->sms, (guint)(n * sizeof *c->sms));
  return g_byte_array_append(key, c->use, (guint)n);
}

guint64 ms_list_number(const MsCosted *list) {
  static MsKeep lists = {.most = 512};
  static guint64 given;
  GByteArray *key = key_of(list);
  guint64 *kept = ms_kept_of(&lists, key), number;
  if (kept) {
    g_byte_array_unref(key);
  } else {
    kept = g_atomic_rc_box_new(guint64);
    *kept = __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED);
    ms_kept_as(&lists, key, kept);
  }
  number = *kept;
  ms_kept_release(&lists, kept);
  return number;
}
