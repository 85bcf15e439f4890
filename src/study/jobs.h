/* src/study/jobs.h - one function on each of many items, on several threads, with a progress bar. */
#ifndef MS_STUDY_JOBS_H
#define MS_STUDY_JOBS_H

#include "study/validate.h"

/* Works on one item; the only one that touches it meanwhile. After Ctrl-C (ms_interrupted) it should return at once. */
typedef void (*MsJobFunc)(gpointer item, const MsValidateOptions *options);

/* Calls `func` once on every item on options->threads threads (0 = one per processor), in no fixed order, and waits for all. `what` names the
 * progress bar of options->progress, which shows the file of the item finished last: every item starts with its `char *file`. FALSE and *error
 * when threads cannot be started or with `interrupted` as message after Ctrl-C. */
gboolean ms_jobs_run(GArray *items, MsJobFunc func, const char *what, const char *interrupted, const MsValidateOptions *options, GError **error);

#endif
