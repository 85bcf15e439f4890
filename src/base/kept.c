#include "base/kept.h"

#include <string.h>
#include <sys/stat.h>

enum { USUAL_MOST = 64 };

typedef struct {
  MsStamp stamp;
  MsKeep *kept;
  gpointer value;
} Entry;

static MsStamp stamp_of(const char *file) {
  struct stat st;
  if (stat(file, &st) != 0 || !S_ISREG(st.st_mode)) return (MsStamp){0};
  MsStamp stamp = {.device = st.st_dev,
                   .inode = st.st_ino,
                   .size = (guint64)st.st_size,
                   .modified_ns = st.st_mtim.tv_sec * G_GINT64_CONSTANT(1000000000) + st.st_mtim.tv_nsec,
                   .changed_ns = st.st_ctim.tv_sec * G_GINT64_CONSTANT(1000000000) + st.st_ctim.tv_nsec};
  stamp.known = g_get_real_time() - stamp.changed_ns / 1000 > 2 * G_USEC_PER_SEC;
  return stamp;
}

static gboolean same_stamp(const MsStamp *a, const MsStamp *b) {
  return a->known && b->known && a->device == b->device && a->inode == b->inode && a->size == b->size &&
         a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

void ms_kept_release(MsKeep *kept, gpointer value) {
  if (!value) return;
  if (kept->clear) g_atomic_rc_box_release_full(value, kept->clear);
  else g_atomic_rc_box_release(value);
}

static void entry_free(gpointer data) {
  Entry *e = data;
  ms_kept_release(e->kept, e->value);
  g_free(e);
}

static guint hash_of(gconstpointer data) { /* FNV-1a by words */
  const GByteArray *key = data;
  guint64 hash = 0xcbf29ce484222325u, word;
  guint at = 0;
  for (; at + sizeof word <= key->len; at += sizeof word) {
    memcpy(&word, key->data + at, sizeof word);
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  for (word = 0; at < key->len; at++) word = word << 8 | key->data[at];
  hash = (hash ^ word) * 0x100000001b3u;
  return (guint)(hash ^ hash >> 32);
}

static gboolean same_key(gconstpointer a, gconstpointer b) {
  const GByteArray *x = a, *y = b;
  return x->len == y->len && !memcmp(x->data, y->data, x->len);
}

static GByteArray *key_of_file(const char *file, const char *what) {
  GByteArray *key = g_byte_array_new();
  g_byte_array_append(key, (const guint8 *)file, (guint)strlen(file) + 1);
  return g_byte_array_append(key, (const guint8 *)what, (guint)strlen(what));
}

/* What the table holds with one more. */
static gsize with_value(const MsKeep *kept, gconstpointer value) {
  if (kept->size) return kept->holds + kept->size(value);
  return (kept->table ? g_hash_table_size(kept->table) : 0) + 1;
}

/* Both are the mutex's. Takes `key`. */
static void insert(MsKeep *kept, GByteArray *key, Entry *e) {
  if (kept->table && with_value(kept, e->value) > (kept->most ? kept->most : USUAL_MOST)) {
    g_clear_pointer(&kept->older, g_hash_table_unref);
    kept->older = g_steal_pointer(&kept->table), kept->holds = 0;
  }
  kept->holds = with_value(kept, e->value);
  if (!kept->table)
    kept->table = g_hash_table_new_full(hash_of, same_key, (GDestroyNotify)g_byte_array_unref, entry_free);
  g_hash_table_replace(kept->table, key, e);
}

static const Entry *look_up(MsKeep *kept, const GByteArray *key) {
  const Entry *e = kept->table ? g_hash_table_lookup(kept->table, key) : NULL;
  gpointer old_key, old;
  if (e || !kept->older || !g_hash_table_steal_extended(kept->older, key, &old_key, &old)) return e;
  insert(kept, old_key, old);
  return old;
}

/* `stamp` NULL: of no file. */
static gpointer find(MsKeep *kept, const GByteArray *key, const MsStamp *stamp) {
  g_mutex_lock(&kept->mutex);
  const Entry *e = look_up(kept, key);
  gpointer value = e && (!stamp || same_stamp(&e->stamp, stamp)) ? g_atomic_rc_box_acquire(e->value) : NULL;
  g_mutex_unlock(&kept->mutex);
  return value;
}

static void add(MsKeep *kept, GByteArray *key, MsStamp stamp, gpointer value) {
  Entry *e = g_new(Entry, 1);
  *e = (Entry){stamp, kept, g_atomic_rc_box_acquire(value)};
  g_mutex_lock(&kept->mutex);
  insert(kept, key, e);
  g_mutex_unlock(&kept->mutex);
}

static gint refused;

void ms_kept_allow(gboolean allow) { g_atomic_int_set(&refused, !allow); }

gpointer ms_kept_of(MsKeep *kept, const GByteArray *key) {
  return g_atomic_int_get(&refused) ? NULL : find(kept, key, NULL);
}

void ms_kept_as(MsKeep *kept, GByteArray *key, gpointer value) { add(kept, key, (MsStamp){0}, value); }

gpointer ms_kept_find(MsKeep *kept, const char *file, const char *what, MsStamp *stamp) {
  *stamp = stamp_of(file);
  if (!stamp->known) return NULL;
  g_autoptr(GByteArray) key = key_of_file(file, what);
  return find(kept, key, stamp);
}

void ms_kept_add(MsKeep *kept, const char *file, const char *what, const MsStamp *stamp, gpointer value) {
  if (stamp->known) add(kept, key_of_file(file, what), *stamp, value);
}
