/* tests/lib/trajectory.h - what every simulated step must obey, apart from the engines. */
#ifndef MS_TESTS_TRAJECTORY_H
#define MS_TESTS_TRAJECTORY_H

#include "engine/engine.h"

/* Checks a trajectory against the graph: order on streams, waits, host order, no start later than what it waits for,
 * bound_by, durations not shorter than alone (and equal where nothing is shared), makespan. FALSE with why. */
gboolean ms_test_trajectory_valid(const MsGraph *graph, const MsTrajectory *trajectory, char *why, size_t size);

#endif
