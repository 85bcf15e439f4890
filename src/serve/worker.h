/* src/serve/worker.h - internal to serve/: moesim processes that work on requests, so many at a time.
 *
 * A worker reads its input from a pipe and writes lines; the last whole line is its answer so far. It runs in an empty
 * folder with limits on CPU time and memory; when its time is over it gets SIGTERM (and prints what it has), then
 * SIGKILL. Everything happens in the main loop: no threads, no locks. */
#ifndef MS_SERVE_WORKER_H
#define MS_SERVE_WORKER_H

#include <glib.h>

typedef struct {
  guint running, waiting, kept; /* workers at a time; those that wait; those whose answer is kept, with the others */
  guint time_s;                 /* of one worker */
  guint64 memory_B;             /* of one worker; 0 = no limit */
  gsize answer_B;
} MsWorkerLimits;

typedef enum {
  MS_WORKER_WAITING,
  MS_WORKER_RUNNING,
  MS_WORKER_DONE,
  MS_WORKER_FAILED,
  MS_WORKER_STOPPED
} MsWorkerState;
extern const char *const ms_worker_words[]; /* waiting running done failed stopped */

typedef struct MsWorker MsWorker;
typedef struct MsWorkers MsWorkers;
/* Called once, when it has ended; the worker is still there. */
typedef void (*MsWorkerEnded)(MsWorker *worker, gpointer user);

/* `program`: what is run. NULL and *error without a folder to run it in. (transfer full) */
MsWorkers *ms_workers_new(const char *program, const MsWorkerLimits *limits, GError **error);
/* Stops and waits for all, calls nobody back. */
void ms_workers_free(MsWorkers *workers);
/* argv after the program's name, NULL-terminated; `input` is copied. NULL when too many wait already. (transfer none)
 */
MsWorker *ms_workers_start(MsWorkers *workers, const char *const *argv, const char *input, MsWorkerEnded ended,
                           gpointer user);
MsWorker *ms_workers_find(const MsWorkers *workers, const char *id); /* NULL when unknown or forgotten */
void ms_worker_stop(MsWorker *worker);
/* Stops it after so many seconds, unless that is said again before. */
void ms_worker_lease(MsWorker *worker, guint seconds);
/* Nobody wants its answer any more: no call back. */
void ms_worker_abandon(MsWorker *worker);

const char *ms_worker_id(const MsWorker *worker);
MsWorkerState ms_worker_state(const MsWorker *worker);
const char *ms_worker_answer(const MsWorker *worker); /* last whole line, NULL before the first; (transfer none) */
const char *ms_worker_message(
    const MsWorker *worker);                   /* what it said on standard error, without its name; "" when nothing */
guint ms_worker_lines(const MsWorker *worker); /* whole lines that it has written: another, when the answer is */
int ms_worker_status(const MsWorker *worker);  /* exit status, once it has ended; -1 when a signal ended it */

#endif
