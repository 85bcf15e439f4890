/* src/study/jobs.h - one function on each of many items, on several threads, with progress; stopped early it says how
 * far it came, and what is made of it holds the items that are done. */
#ifndef MS_STUDY_JOBS_H
#define MS_STUDY_JOBS_H

#include <glib.h>

typedef struct {    /* what every item begins with */
  const char *name; /* progress shows that of the item finished last */
  gboolean done;    /* FALSE: all was stopped before this one; a function that breaks off itself says so here */
} MsJob;

/* How much of something was done before it was stopped (ms_interrupted); done == of: all of it. */
typedef struct {
  guint done, of;
  const char *what; /* "points", "files"; static text */
} MsExtent;
gboolean ms_extent_stopped(const MsExtent *extent);

/* Works on one item; the only one that touches it meanwhile. `data` is the same for all. */
typedef void (*MsJobFunc)(gpointer item, gconstpointer data);

typedef struct {
  const char *what;  /* name of the progress */
  const char *items; /* what MsExtent calls them */
  int threads;       /* 0 = one per processor */
  gboolean progress;
} MsJobsOptions;

/* Calls `func` once on every item, on several threads, in no fixed order, and waits for all. Once the work is stopped
 * (ms_interrupted) no item is begun any more; those that were are finished. FALSE and *error when threads cannot be
 * started. */
gboolean ms_jobs_run(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options, MsExtent *extent,
                     GError **error);
/* The same with the items shared out among the processes of an mpirun (base/ranks.h), each a run of them; behind it all
 * have all items. What an item points at is of the process that worked on it: ms_jobs_own says whether that is this
 * one. Called by the main thread of every process. */
gboolean ms_jobs_run_on_ranks(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options,
                              MsExtent *extent, GError **error);
gboolean ms_jobs_own(guint n, guint item); /* of n */
/* The same where some of the items are worth nothing: FALSE and an MS_ERROR_NOTHING when it was stopped. */
gboolean ms_jobs_run_all(GArray *items, MsJobFunc func, gconstpointer data, const MsJobsOptions *options,
                         GError **error);

#endif
