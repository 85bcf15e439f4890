/* src/study/jobs.h - one function on each of many items, on several threads, with a progress bar. */
#ifndef MS_STUDY_JOBS_H
#define MS_STUDY_JOBS_H

#include <glib.h>

/* Works on one item; the only one that touches it meanwhile. After Ctrl-C (ms_interrupted) it should return at once.
 * `data` is the same for all. */
typedef void (*MsJobFunc)(gpointer item, gconstpointer data);

typedef struct {
  const char *what;        /* name of the progress bar */
  const char *interrupted; /* message after Ctrl-C */
  int threads;             /* 0 = one per processor */
  gboolean progress;
} MsJobsOptions;

/* Calls `func` once on every item, on several threads, in no fixed order, and waits for all. The progress bar shows the
 * name of the item finished last: every item starts with a `char *` that names it. FALSE and *error when threads cannot
 * be started or after Ctrl-C. */
gboolean ms_jobs_run(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options, GError **error);

#endif
