/* src/local/machine.h - which machine this is, and whether it is quiet. */
#ifndef MS_LOCAL_MACHINE_H
#define MS_LOCAL_MACHINE_H

#include <sched.h>

#include "blas/blas.h"

typedef struct {
  char *cpu;         /* as /proc/cpuinfo calls it */
  int cores;         /* CPUs this process may use */
  double l2_B, l3_B; /* as seen by one core; 0 unknown */
  double memory_B;
  char *blas; /* "openblas 0.3.21, SkylakeX kernels" */
} MsMachine;

/* Reads /proc and /sys; what they do not say is 0 or "unknown". */
MsMachine *ms_machine_new(const MsBlas *blas);
void ms_machine_free(MsMachine *machine);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsMachine, ms_machine_free)

/* Binds this process to the last of the CPUs that it may use (the first one takes most interrupts), and frees it again.
 * Where that is not allowed nothing changes. */
typedef struct {
  cpu_set_t before;
  gboolean bound;
} MsPin;
MsPin ms_machine_pin(void);
void ms_machine_unpin(const MsPin *pin);

/* A timing counts when the process had its core: CPU time over wall time above MS_QUIET (docs/theory/fast-matmul.md 2:
 * keeps 82-85 % on a busy machine, and the least of what is kept repeats to 0.5-3 %). */
#define MS_QUIET 0.98
gboolean ms_machine_quiet(double cpu_s, double wall_s);

#endif
