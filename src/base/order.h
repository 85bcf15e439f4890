/* src/base/order.h - functions for qsort and g_array_sort, in terms of two elements x and y. */
#ifndef MS_BASE_ORDER_H
#define MS_BASE_ORDER_H

#include <string.h>

/* The less, or the more, comes first. */
#define MS_LESS(a, b) (((a) > (b)) - ((a) < (b)))
#define MS_MORE(a, b) MS_LESS(b, a)

/* f orders elements of T by `first`, and those that it finds alike by `then`, 0: by nothing. */
#define MS_ORDER(f, T, first, then)            \
  static int f(const void *a, const void *b) { \
    const T *x = a, *y = b;                    \
    int order = first;                         \
    return order ? order : (then);             \
  }
/* The same of elements that are pointers to T. */
#define MS_ORDER_AT(f, T, first, then)                            \
  static int f(const void *a, const void *b) {                    \
    const T *x = *(const T *const *)a, *y = *(const T *const *)b; \
    int order = first;                                            \
    return order ? order : (then);                                \
  }

/* Elements that are texts. */
static inline int ms_by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

#endif
