/* src/base/heap.h - a GArray as a binary heap: the least element first, by a total order. */
#ifndef MS_BASE_HEAP_H
#define MS_BASE_HEAP_H

#include <glib.h>

/* Of an array in any order; as many comparisons as elements, about. */
void ms_heap_make(GArray *array, GCompareFunc compare);
void ms_heap_push(GArray *heap, gconstpointer element, GCompareFunc compare);
/* Copies the least element to *element and takes it out. The heap is not empty. */
void ms_heap_pop(GArray *heap, gpointer element, GCompareFunc compare);

#endif
