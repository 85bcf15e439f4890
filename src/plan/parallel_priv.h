/* src/plan/parallel_priv.h - internal to plan/: threads and ranks. */
#ifndef MS_PLAN_PARALLEL_PRIV_H
#define MS_PLAN_PARALLEL_PRIV_H

#include "base/ranks.h"

/* Calls `work` for every index below n on one of the ranks, on `threads` threads of each (0 = all cores); `thread`
 * counts from 0. Returns when this rank has nothing more to do. What was found is gathered before the next call. */
typedef void (*MsWorkFunc)(int index, int thread, gpointer data);
int ms_parallel_threads(int wanted);
void ms_parallel(int n, int threads, MsWorkFunc work, gpointer data);
void ms_parallel_here(int n, int threads, MsWorkFunc work, gpointer data); /* every index, whatever other ranks do */

#endif
