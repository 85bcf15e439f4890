/* src/base/units.h - one canonical unit per quantity, stated in every name.
 *
 * Inside the program: seconds (_s), bytes (_B), FLOP (_flop), FLOP per second (_flops), bytes per second (_Bps),
 * hertz (_Hz), watts (_W), all as double; simulated time in the engine is int64_t picoseconds (_ps).
 * GiB, GB, us, TFLOPS exist only where a number is printed or read from a measurement file. */
#ifndef MS_BASE_UNITS_H
#define MS_BASE_UNITS_H

#define MS_MIB      (1024.0 * 1024.0)
#define MS_GIB      (1024.0 * 1024.0 * 1024.0)
#define MS_PS_PER_S 1e12
#define MS_DAY_S    86400.0

#endif
