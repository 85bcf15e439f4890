/* src/base/ranks.h - processes that work together under mpirun or srun. Two implementations: ranks_mpi.c in moesim-all
 * where Open MPI was found, ranks_serial.c elsewhere, where a process is always alone.
 *
 * All ranks run the same program on the same request and make the same decisions from the same gathered numbers; only
 * rank 0 prints. Only the main thread calls these. A rank that is lost ends the whole run: the launcher says which. */
#ifndef MS_BASE_RANKS_H
#define MS_BASE_RANKS_H

#include <glib.h>

/* Joins the others when a launcher started this process, else is alone. FALSE and an MS_ERROR_ENV: a launcher started
 * several, but this program was built without MPI, or MPI fails. */
gboolean ms_ranks_begin(GError **error);
gboolean ms_ranks_built(void);    /* moesim-all has MPI: several can work together */
gboolean ms_ranks_launched(void); /* a launcher started this process */
gboolean ms_ranks_here(void);     /* this program can join the others, or has none; FALSE: moesim-all can */
void ms_ranks_end(void);

int ms_ranks_count(void); /* 1 alone */
int ms_ranks_own(void);   /* 0 .. count - 1 */
int ms_ranks_local(void); /* ranks on this machine, which share its cores */

/* The elements of every rank's array, in the order of the ranks, into the array of each. */
void ms_ranks_gather(GArray *array);
gboolean ms_ranks_any(gboolean flag); /* TRUE when it is on some rank */

/* Of several ranks only. Work in numbered parts 0 .. n - 1, each done by one rank: every rank has a run of them of its
 * own, since neighbours have much in common, and then those that are left to others of its machine. The main thread of
 * every rank begins, with a gather or an any between two such works; any thread takes. */
void ms_ranks_work_begin(int n);
int ms_ranks_work_take(void); /* -1: no more */

#endif
