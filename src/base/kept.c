#include "base/kept.h"

#include <string.h>
#include <sys/stat.h>

enum { MOST_KEPT = 64 };

typedef struct {
  MsStamp stamp;
  MsKept *kept;
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

void ms_kept_release(MsKept *kept, gpointer value) {
  if (!value) return;
  if (kept->clear) g_atomic_rc_box_release_full(value, kept->clear);
  else g_atomic_rc_box_release(value);
}

static void entry_free(gpointer data) {
  Entry *e = data;
  ms_kept_release(e->kept, e->value);
  g_free(e);
}

gpointer ms_kept_find(MsKept *kept, const char *file, const char *what, MsStamp *stamp) {
  *stamp = stamp_of(file);
  if (!stamp->known) return NULL;
  g_autofree char *key = g_strconcat(file, "\n", what, NULL);
  g_mutex_lock(&kept->mutex);
  const Entry *e = kept->table ? g_hash_table_lookup(kept->table, key) : NULL;
  gpointer value = e && same_stamp(&e->stamp, stamp) ? g_atomic_rc_box_acquire(e->value) : NULL;
  g_mutex_unlock(&kept->mutex);
  return value;
}

void ms_kept_add(MsKept *kept, const char *file, const char *what, const MsStamp *stamp, gpointer value) {
  if (!stamp->known) return;
  Entry *e = g_new(Entry, 1);
  *e = (Entry){*stamp, kept, g_atomic_rc_box_acquire(value)};
  g_mutex_lock(&kept->mutex);
  if (!kept->table) kept->table = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, entry_free);
  if (g_hash_table_size(kept->table) >= MOST_KEPT) g_hash_table_remove_all(kept->table);
  g_hash_table_replace(kept->table, g_strconcat(file, "\n", what, NULL), e);
  g_mutex_unlock(&kept->mutex);
}
