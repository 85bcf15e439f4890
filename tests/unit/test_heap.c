/* A heap gives its elements in order, whatever came in which order. */
#include "lib/close.h"

#include "base/heap.h"

typedef struct {
  int key;
  char rest[13];
} Element; /* a size that is no power of two */

static int by_key(gconstpointer a, gconstpointer b) {
  int x = ((const Element *)a)->key, y = ((const Element *)b)->key;
  return (x > y) - (x < y);
}

static Element drawn(GRand *rand) {
  Element e = {.key = g_rand_int_range(rand, -50, 50)};
  e.rest[12] = (char)e.key;
  return e;
}

static int pop(GArray *heap) {
  Element e;
  guint before = heap->len;
  ms_heap_pop(heap, &e, by_key);
  assert_int_equal(heap->len, before - 1);
  assert_int_equal(e.rest[12], (char)e.key); /* elements move whole */
  return e.key;
}

static void an_array_becomes_a_heap(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(1);
  for (guint n = 0; n < 70; n++) {
    g_autoptr(GArray) heap = g_array_new(FALSE, FALSE, sizeof(Element));
    for (guint i = 0; i < n; i++) {
      Element e = drawn(rand);
      g_array_append_val(heap, e);
    }
    g_autoptr(GArray) sorted = g_array_copy(heap);
    g_array_sort(sorted, by_key);
    ms_heap_make(heap, by_key);
    for (guint i = 0; i < n; i++) assert_int_equal(pop(heap), g_array_index(sorted, Element, i).key);
  }
}

/* Against a plain search for the least. */
static void pushes_and_pops_mix(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(2);
  g_autoptr(GArray) heap = g_array_new(FALSE, FALSE, sizeof(Element)), all = g_array_new(FALSE, FALSE, sizeof(Element));
  for (int i = 0; i < 3000; i++) {
    if (all->len == 0 || g_rand_int_range(rand, 0, 100) < 55) {
      Element e = drawn(rand);
      g_array_append_val(all, e);
      ms_heap_push(heap, &e, by_key);
      continue;
    }
    guint least = 0;
    for (guint k = 1; k < all->len; k++)
      if (by_key(&g_array_index(all, Element, k), &g_array_index(all, Element, least)) < 0) least = k;
    assert_int_equal(pop(heap), g_array_index(all, Element, least).key);
    g_array_remove_index_fast(all, least);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_array_becomes_a_heap), cmocka_unit_test(pushes_and_pops_mix)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
