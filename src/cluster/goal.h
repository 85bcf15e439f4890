/* src/cluster/goal.h - a step of all ranks as a GOAL schedule, the text that LogGOPSim and ATLAHS simulate.
 *
 * Hoefler, Siebert, Lumsdaine: Group Operation Assembly Language (ICPP 2009). Each rank has its operations: calc (ns),
 * send and recv (bytes, rank, tag), and `requires`. Streams are cpus; the host is one more, receptions have the last.
 * docs/theory/cluster.md 8. */
#ifndef MS_CLUSTER_GOAL_H
#define MS_CLUSTER_GOAL_H

#include "cluster/walk.h"

#define MS_GOAL_MOST_OPS 2e8 /* operations of a file, about 10 GB */

/* Kernels take what they took in the step of `detail`; collectives become sends and receptions. File "-": standard
 * output. FALSE and *error: MS_ERROR_INPUT when there are too many operations, MS_ERROR_ENV when it cannot be written.
 */
gboolean ms_goal_write(const MsScenario *scenario, const MsDetail *detail, const char *file, GError **error);

#endif
