/* src/base/heap.c - a GArray as a binary heap: element i is no greater than elements 2 i + 1 and 2 i + 2. */
#include "base/heap.h"
#include <string.h>

static char *at(GArray *heap, guint i) { return heap->data + (gsize)i * g_array_get_element_size(heap); }

/* Moves whatever is less up out of the way of `element` and returns its place. */
static guint place_below(GArray *heap, guint i, gconstpointer element, GCompareFunc compare) {
  gsize size = g_array_get_element_size(heap);
  for (guint least; 2 * i + 1 < heap->len; i = least) {
    least = 2 * i + 1;
    if (least + 1 < heap->len && compare(at(heap, least + 1), at(heap, least)) < 0) least++;
    if (compare(at(heap, least), element) >= 0) break;
    memcpy(at(heap, i), at(heap, least), size);
  }
  return i;
}

void ms_heap_make(GArray *array, GCompareFunc compare) {
  gsize size = g_array_get_element_size(array);
  g_autofree char *element = g_malloc(size);
  for (guint i = array->len / 2; i-- > 0;) {
    memcpy(element, at(array, i), size);
    memcpy(at(array, place_below(array, i, element, compare)), element, size);
  }
}

void ms_heap_push(GArray *heap, gconstpointer element, GCompareFunc compare) {
  gsize size = g_array_get_element_size(heap);
  g_array_append_vals(heap, element, 1);
  guint i = heap->len - 1;
  for (; i > 0 && compare(element, at(heap, (i - 1) / 2)) < 0; i = (i - 1) / 2)
    memcpy(at(heap, i), at(heap, (i - 1) / 2), size);
  memcpy(at(heap, i), element, size);
}

void ms_heap_pop(GArray *heap, gpointer element, GCompareFunc compare) {
  gsize size = g_array_get_element_size(heap);
  g_autofree char *last = g_memdup2(at(heap, heap->len - 1), size);
  memcpy(element, at(heap, 0), size);
  g_array_set_size(heap, heap->len - 1);
  if (heap->len > 0) memcpy(at(heap, place_below(heap, 0, last, compare)), last, size);
}
