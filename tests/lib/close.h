/* tests/lib/close.h - the one way to compare doubles (cmocka 1.1.5 compares them as float). */
#ifndef MS_TESTS_CLOSE_H
#define MS_TESTS_CLOSE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

/* |got - want| <= rel * |want|; equal infinities and two NaN are close. */
#define assert_close(got, want, rel) ms_assert_close((got), (want), (rel), #got, __FILE__, __LINE__)

static inline void ms_assert_close(double got, double want, double rel, const char *what, const char *file, int line) {
  if (got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= rel * fabs(want)) return;
  print_error("%s is %.17g, not %.17g within %g\n", what, got, want, rel);
  _fail(file, line);
}

#endif
