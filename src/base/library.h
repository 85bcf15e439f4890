/* src/base/library.h - what only a library needs of its process: where its data lies, and how one of several callers
 * stops its own work. */
#ifndef MS_BASE_LIBRARY_H
#define MS_BASE_LIBRARY_H

#include <glib.h>

/* Where ms_data_dir looks after $MOESIM_DATA and before its own places; copied and kept as long as the process. Once,
 * before there are threads; NULL: nothing. */
void ms_data_dir_set(const char *folder);

/* What this thread works on, and the threads that it starts for it, is stopped (ms_interrupted) as well once *stop is
 * not 0. NULL: by nothing of its own. What starts threads hands ms_stop_used() on to them. */
void ms_stop_use(const volatile int *stop);
const volatile int *ms_stop_used(void);

#endif
