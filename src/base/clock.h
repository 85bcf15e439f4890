/* src/base/clock.h - clocks of the system in seconds, for timing real work; nothing simulated reads them. */
#ifndef MS_BASE_CLOCK_H
#define MS_BASE_CLOCK_H

#include <time.h>

static inline double ms_clock_s(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double ms_process_cpu_s(void) { return ms_clock_s(CLOCK_PROCESS_CPUTIME_ID); } /* of all threads */

#endif
