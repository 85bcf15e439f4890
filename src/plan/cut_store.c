/* src/plan/cut_store.c - the cuts made so far, and what they were made of. */
#include "plan/cut_store_priv.h"
#include "base/hash.h"

#include <string.h>

MS_HASHED(cut, MsCutKey)
MS_HASHED(costs, MsCostsKey)
static void free_costs(gpointer costs) { ms_layer_costs_free(costs); }
static void free_rounded(gpointer data) {
  ms_rounded_costs_clear(data);
  g_free(data);
}

void ms_rounded_costs_clear(MsRoundedCosts *r) {
  ms_layer_costs_free(r->costs);
  ms_once_free(r->once);
  ms_pace_free(r->pace);
}

MsCuts *ms_cuts_new(void) {
  MsCuts *c = g_new0(MsCuts, 1);
  g_mutex_init(&c->lock);
  c->costs = g_hash_table_new_full(hash_costs, equal_costs, g_free, free_costs);
  c->number = g_hash_table_new_full(hash_costs, equal_costs, g_free, NULL);
  c->numbers = g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL);
  c->rounded = g_ptr_array_new_with_free_func(free_rounded);
  c->texts = g_hash_table_new_full(hash_cut, equal_cut, g_free, g_free);
  c->by_cost =
      g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, (GDestroyNotify)g_bytes_unref);
  c->turns = g_hash_table_new_full(hash_cut, equal_cut, g_free, (GDestroyNotify)ms_schedule_turns_free);
  return c;
}

gboolean ms_cuts_find(MsCuts *c, GHashTable *table, gconstpointer key, gpointer *found) {
  g_mutex_lock(&c->lock);
  gboolean known = g_hash_table_lookup_extended(table, key, NULL, found);
  g_mutex_unlock(&c->lock);
  return known;
}

gpointer ms_cuts_add(MsCuts *c, GHashTable *table, gconstpointer key, gsize size, gpointer own, GDestroyNotify drop) {
  gpointer first;
  g_mutex_lock(&c->lock);
  gboolean late = g_hash_table_lookup_extended(table, key, NULL, &first);
  if (!late) g_hash_table_insert(table, g_memdup2(key, size), first = own);
  g_mutex_unlock(&c->lock);
  if (late && drop && own) drop(own);
  return first;
}

void ms_cuts_free(MsCuts *c) {
  if (!c) return;
  g_mutex_clear(&c->lock);
  g_hash_table_unref(c->costs);
  g_hash_table_unref(c->number);
  g_hash_table_unref(c->numbers);
  g_ptr_array_unref(c->rounded);
  g_hash_table_unref(c->texts);
  g_hash_table_unref(c->by_cost);
  g_hash_table_unref(c->turns);
  g_free(c);
}
