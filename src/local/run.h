/* src/local/run.h - one reduced step run for real, in this process or by ranks under mpirun, and what it took.
 *
 * CPU time of a row does not see other programs, which wall time does; both are kept. A run of several ranks is a job:
 * a scenario in a folder of its own, `mpirun -n RANKS moesim calibrate --job FOLDER` runs it, and every rank leaves its
 * results there. */
#ifndef MS_LOCAL_RUN_H
#define MS_LOCAL_RUN_H

#include "describe/scenario.h"
#include "work/work.h"

typedef struct { /* a row of one rank's list */
  MsOp op;
  int ranks;            /* of its group, 1 for what computes */
  double calls;         /* in one step */
  double cpu_s, wall_s; /* of one call, mean over those after the first step */
} MsRunRow;

typedef struct { /* a run of some steps, of which the first warms up and does not count */
  int ranks;
  double step_s;          /* the fastest step, by wall time on the slowest rank */
  double step_cpu_s;      /* the step of least CPU time, on the rank that had least; ranks that wait are busy too */
  gboolean quiet;         /* the fastest step had its cores, every rank of it */
  double reference_flops; /* of the core (local/machine.h), the better of before and after, as a disturbance can only
                             lower it; of several ranks the slowest; 0: not measured */
  double kept_B;          /* most bytes held for backward on a rank, in the widths that the list declares */
  GArray *rows;           /* MsRunRow, of all ranks one after another */
} MsStepRun;
void ms_step_run_free(MsStepRun *run);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsStepRun, ms_step_run_free)

/* Runs `steps` counted steps of the scenario with the ranks that this process belongs to. Results of this rank's rows.
 * (transfer full) */
MsStepRun *ms_step_run(const MsScenario *scenario, const char *blas, int steps, GError **error);

char *ms_step_run_text(const MsStepRun *run); /* lines of numbers (transfer full) */
/* NULL and an MS_ERROR_INPUT for a text that is none; the file name is for the message. */
MsStepRun *ms_step_run_parse(const char *text, const char *filename, GError **error);

/* Counted steps of one run. */
enum { MS_LOCAL_STEPS = 3 };

/* --- jobs ------------------------------------------------------------------------------------------------------ */
/* Whether this program was built with MPI, mpirun is installed and there are two cores; else FALSE and what is missing
 * in *why (static text). */
gboolean ms_job_possible(const char **why);
/* The scenario run by `ranks` ranks of `program` (NULL: this one), one core each; rows of all ranks joined. NULL and
 * *error: what a rank said, else what mpirun said. (transfer full) */
MsStepRun *ms_job_step(const char *program, const char *scenario, int ranks, GError **error);
/* Messages over the tensor-parallel group of the scenario (local/messages.h): GArray of MsRowSample.
 * *jitter as ms_messages_measure says, NaN: the job left none. (transfer full) */
GArray *ms_job_messages(const char *program, const char *scenario, int ranks, gboolean quick, double *jitter,
                        GError **error);
/* What every rank of a job does, after ms_ranks_begin. */
gboolean ms_job_work(const char *folder, GError **error);

#endif
