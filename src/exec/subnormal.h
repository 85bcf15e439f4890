/* src/exec/subnormal.h - numbers too small for a normal mantissa become 0 while a step runs, as on a GPU. Saturated
 * softmaxes make them, gradients carry them through a whole layer, and one of them in an operand makes a product on
 * this CPU up to ten times slower (measured: 8 instead of 130 GFLOP/s). */
#ifndef MS_EXEC_SUBNORMAL_H
#define MS_EXEC_SUBNORMAL_H

#if defined __x86_64__
#include <xmmintrin.h>
/* Of the calling thread; returns what to give back. */
static inline unsigned ms_subnormal_off(void) {
  unsigned was = _mm_getcsr();
  _mm_setcsr(was | 0x8040); /* flush results to zero, read operands as zero */
  return was;
}
static inline void ms_subnormal_restore(unsigned was) { _mm_setcsr(was); }
#else
static inline unsigned ms_subnormal_off(void) { return 0; }
static inline void ms_subnormal_restore(unsigned was) { (void)was; }
#endif

#endif
