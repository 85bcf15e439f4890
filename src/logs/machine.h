/* src/logs/machine.h - benchmarks of a cluster as a machine file: {"base": ..., what they say in place of it}.
 *
 * Collectives inside one scale-up domain give curves as `moesim fit` does (lines by group size, 15 % of the sizes held
 * back). Those over the network give one curve for each collective: what one ring step takes and what one NIC carries,
 * so that the cost model of collectives (cost/) comes closest to all logs of that collective, whatever their group.
 * perftest gives the rate of a NIC, STREAM and mlc that of memory; of several of these the slowest decides. Every
 * figure says in its source or provenance which log it comes from. A log of another GPU than the machine's, where its
 * name tells, and a measurement that is given twice are refused. */
#ifndef MS_LOGS_MACHINE_H
#define MS_LOGS_MACHINE_H

#include "logs/bench.h"

typedef struct {
  const char *base; /* name or path of the machine that the logs are of */
  const char *name; /* of the new one; NULL: BASE-measured */
  const char *date, *command;
} MsLogsMachine;

/* The text of the file. What was found goes to `notes` (char *), one sentence each. NULL and *error.
 * (transfer full) */
char *ms_logs_machine(const GPtrArray *benches, const MsLogsMachine *options, GPtrArray *notes, GError **error);

#endif
