/* tests/lib/round_trip.h - drawn scenarios (draw.h) exported to a launch form and imported again. */
#ifndef MS_TESTS_ROUND_TRIP_H
#define MS_TESTS_ROUND_TRIP_H

#include "launch/launch.h"

/* Draws until `rounds` scenarios could be said in the form; each must come back equal, with nothing ignored and nothing assumed. What cannot be
 * said must be refused in one line. Fails the test otherwise. */
void ms_test_round_trips(MsLaunch launch, guint32 seed, int rounds);

#endif
