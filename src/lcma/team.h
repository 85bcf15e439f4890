/* src/lcma/team.h - a few threads that take the tasks of one phase after the other. The caller is one of them. */
#ifndef MS_LCMA_TEAM_H
#define MS_LCMA_TEAM_H

typedef struct MsTeam MsTeam;
typedef void (*MsTask)(void *context, int task, int worker); /* worker < threads */

MsTeam *ms_team_new(int threads); /* the caller is one of them; (transfer full) */
void ms_team_free(MsTeam *team);
int ms_team_threads(const MsTeam *team);
/* Seconds for timing its work: of one thread CPU time, which other programs disturb less; of several wall time, because
 * they wait for each other. */
double ms_team_clock_s(const MsTeam *team);
/* Seconds for which threads of this process were ready but had no CPU, those of libraries too: what moved while
 * something was timed, others disturbed. 0 where the system does not tell (/proc/self/task/N/schedstat of Linux). */
double ms_team_waited_s(void);
/* `waited_s` of a time of `time_s` are not more than waking up takes. */
int ms_team_undisturbed(double waited_s, double time_s);
/* Calls task(context, i, worker) for each i < tasks, each once, in any order, and returns when all are done. What the
 * tasks wrote is then visible to the caller and to later tasks. Not to be called from within a task. */
void ms_team_run(MsTeam *team, MsTask task, void *context, int tasks);
/* Until the next run its threads sleep, instead of looking for tasks a while: others need their CPUs. */
void ms_team_rest(MsTeam *team);

#endif
