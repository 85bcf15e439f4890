/* src/base/kept.h - what was made of a file, kept while the file stays as it is; what follows from some bytes.
 *
 * A value is found again by the name of its file and a word for what was made of it, as long as the file has the same
 * place, size and times (of change too, so that a time set by hand does not matter). A file that changed in the last
 * two seconds is not kept: it could change again within the same tick of its clock. Values are immutable and shared
 * between threads, counted; they stay until the process ends or too many are kept. What follows from bytes is found
 * again where all of them are the same, so that no answer depends on what was there before. */
#ifndef MS_BASE_KEPT_H
#define MS_BASE_KEPT_H

#include <glib.h>

typedef struct {
  guint64 device, inode, size;
  gint64 modified_ns, changed_ns;
  gboolean known; /* FALSE: no plain file, or one that is still being changed */
} MsStamp;

/* One for each kind of value, static; `clear` frees what a value holds, NULL: it holds nothing. */
typedef struct {
  GDestroyNotify clear;
  guint most; /* values in each table, 0: 64; with `size`: what these come to together */
  gsize (*size)(gconstpointer value);
  GMutex mutex;
  GHashTable *table, *older; /* those that were asked for lately; the others go when there are as many again */
  gsize holds;               /* with `size`: the table */
} MsKeep;

/* A value made by g_atomic_rc_box_new, to be given back with ms_kept_release; NULL: make it. *stamp is the file's now,
 * before it is read. */
gpointer ms_kept_find(MsKeep *kept, const char *file, const char *what, MsStamp *stamp);
/* Keeps `value` (a g_atomic_rc_box), made of the file of *stamp; the caller still has to release his. */
void ms_kept_add(MsKeep *kept, const char *file, const char *what, const MsStamp *stamp, gpointer value);
/* The same of what follows from the bytes of `key`, which is taken. */
gpointer ms_kept_of(MsKeep *kept, const GByteArray *key);
void ms_kept_as(MsKeep *kept, GByteArray *key, gpointer value);
void ms_kept_release(MsKeep *kept, gpointer value); /* NULL is fine */
void ms_kept_allow(gboolean allow);                 /* for tests: whether what follows from bytes is found again */

#endif
