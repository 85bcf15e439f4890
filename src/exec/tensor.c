/* src/exec/tensor.c - named tensors of a frame. Memory is taken from a pool, so that from the second microbatch on no
 * row pays for fresh pages. */
#include "exec/state_priv.h"

#include <stdlib.h>
#include <string.h>

/* --- the pool -------------------------------------------------------------------------------------------------- */

static size_t block_B(size_t size_B) { return (MAX(size_B, 1) + 63) & ~(size_t)63; }

static void *take(Exec *x, size_t size_B) {
  gsize size = block_B(size_B);
  GPtrArray *free_blocks = g_hash_table_lookup(x->pool, GSIZE_TO_POINTER(size));
  if (free_blocks && free_blocks->len > 0) return g_ptr_array_remove_index_fast(free_blocks, free_blocks->len - 1);
  void *block = aligned_alloc(64, size);
  if (!block) ms_exec_fail(x, MS_ERROR_ENV, "out of memory for %.0f MB", (double)size / 1e6);
  g_ptr_array_add(x->blocks, block);
  return block;
}

static void give(Exec *x, void *block, size_t size_B) {
  gsize size = block_B(size_B);
  GPtrArray *free_blocks = g_hash_table_lookup(x->pool, GSIZE_TO_POINTER(size));
  if (!free_blocks) g_hash_table_insert(x->pool, GSIZE_TO_POINTER(size), free_blocks = g_ptr_array_new());
  g_ptr_array_add(free_blocks, block);
}

static Buffer *buffer_new(Exec *x, size_t size_B) {
  Buffer *b = g_new(Buffer, 1);
  *b = (Buffer){NULL, size_B, 1};
  b->data = take(x, size_B);
  return b;
}

static void buffer_unref(Exec *x, Buffer *b) {
  if (--b->refs > 0) return;
  give(x, b->data, b->size_B);
  g_free(b);
}

void *ms_exec_scratch_B(Exec *x, size_t size_B) {
  Buffer *b = buffer_new(x, size_B);
  g_ptr_array_add(x->scratch, b);
  return b->data;
}

void *ms_exec_scratch(Exec *x, gint64 n) { return ms_exec_scratch_B(x, (size_t)n * x->k->real_B); }

void ms_exec_scratch_clear(Exec *x) {
  for (guint i = 0; i < x->scratch->len; i++) buffer_unref(x, x->scratch->pdata[i]);
  g_ptr_array_set_size(x->scratch, 0);
}

/* --- stores ---------------------------------------------------------------------------------------------------- */

Tensor *ms_store_find(Store *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (s->t[i].name == name || strcmp(s->t[i].name, name) == 0) return &s->t[i];
  return NULL;
}

void ms_store_drop(Exec *x, Store *s, int i) {
  buffer_unref(x, s->t[i].buffer);
  s->t[i] = s->t[--s->n];
}

void ms_store_clear(Exec *x, Store *s) {
  while (s->n > 0) ms_store_drop(x, s, s->n - 1);
  g_free(s->t);
  *s = (Store){0};
}

static void drop(Exec *x, Store *s, const char *name) {
  Tensor *t = ms_store_find(s, name);
  if (t) ms_store_drop(x, s, (int)(t - s->t));
}

static Tensor *put(Exec *x, Store *s, Tensor t) {
  drop(x, s, t.name);
  if (s->n == s->capacity) s->capacity = MAX(32, 2 * s->capacity), s->t = g_renew(Tensor, s->t, s->capacity);
  s->t[s->n] = t;
  return &s->t[s->n++];
}

void ms_store_move(Exec *x, Store *from, const char *name, Store *to, const char *as) {
  Tensor *t = ms_store_find(from, name);
  if (!t) ms_exec_fail(x, MS_ERROR_NOTHING, "nothing made \"%s\"", name);
  Tensor moved = *t;
  *t = from->t[--from->n];
  moved.name = as;
  moved.read = FALSE;
  put(x, to, moved);
}

void ms_store_share(Exec *x, Store *from, const char *name, Store *to, const char *as) {
  Tensor *t = ms_store_find(from, name);
  if (!t) ms_exec_fail(x, MS_ERROR_NOTHING, "nothing made \"%s\"", name);
  Tensor shared = *t;
  shared.name = as, shared.read = FALSE;
  shared.buffer->refs++;
  put(x, to, shared);
}

/* --- by name in the frame at work ------------------------------------------------------------------------------ */

void *ms_exec_new_typed(Exec *x, const char *name, gint64 n, size_t element_B, double width_B) {
  Buffer *b = buffer_new(x, (size_t)n * element_B);
  put(x, x->frame, (Tensor){.name = name, .buffer = b, .n = n, .width_B = width_B});
  return b->data;
}

void *ms_exec_new(Exec *x, const char *name, gint64 n) { return ms_exec_new_typed(x, name, n, x->k->real_B, 2); }

static Tensor *must(Exec *x, const char *name) {
  Tensor *t = ms_store_find(x->frame, name);
  if (!t)
    ms_exec_fail(x, MS_ERROR_NOTHING, "%s reads \"%s\", which no row %s", ms_exec_row_text(x), name,
                 x->backward ? "of this pass made and the list does not keep" : "made");
  t->read = TRUE;
  return t;
}

void *ms_exec_find(Exec *x, const char *name) {
  Tensor *t = ms_store_find(x->frame, name);
  if (t) t->read = TRUE;
  return t ? t->buffer->data : NULL;
}

void *ms_exec_get(Exec *x, const char *name, gint64 n) {
  Tensor *t = must(x, name);
  if (t->n != n)
    ms_exec_fail(x, MS_ERROR_NOTHING, "%s reads %" G_GINT64_FORMAT " elements of \"%s\", which has %" G_GINT64_FORMAT,
                 ms_exec_row_text(x), n, name, t->n);
  return t->buffer->data;
}

gint64 ms_exec_length(Exec *x, const char *name) { return must(x, name)->n; }
void ms_exec_width(Exec *x, const char *name, double width_B) { must(x, name)->width_B = width_B; }
void ms_exec_drop(Exec *x, const char *name) { drop(x, x->frame, name); }

void ms_exec_rename(Exec *x, const char *from, const char *to) {
  Tensor t = *must(x, from);
  t.name = to;
  t.buffer->refs++;
  drop(x, x->frame, from);
  put(x, x->frame, t);
}

void ms_exec_share(Exec *x, const char *from, const char *to) {
  Tensor t = *must(x, from);
  t.name = to;
  t.buffer->refs++;
  put(x, x->frame, t);
}

void ms_exec_accumulate(Exec *x, const char *name, const void *from, gint64 n) {
  Tensor *t = ms_store_find(x->frame, name);
  if (t) {
    void *to = ms_exec_get(x, name, n);
    x->k->add(n, to, from, to);
  } else {
    memcpy(ms_exec_new(x, name, n), from, (size_t)n * x->k->real_B);
  }
}
