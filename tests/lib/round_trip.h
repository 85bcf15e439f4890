/* tests/lib/round_trip.h - scenarios, drawn (draw.h) or given, exported to a launch form and imported again. */
#ifndef MS_TESTS_ROUND_TRIP_H
#define MS_TESTS_ROUND_TRIP_H

#include "launch/launch.h"

/* One scenario: TRUE when the form can say it; it must then come back equal, with nothing ignored and nothing assumed.
 * What cannot be said must be refused in one line: FALSE. Fails the test otherwise. */
gboolean ms_test_round_trip(const MsScenario *scenario, MsLaunch launch);
/* Draws until `rounds` scenarios could be said in the form. */
void ms_test_round_trips(MsLaunch launch, guint32 seed, int rounds);

#endif
