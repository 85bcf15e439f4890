/* tests/lib/launcher.h - whether several ranks can be started here. */
#ifndef MS_TESTS_LAUNCHER_H
#define MS_TESTS_LAUNCHER_H

#include <glib.h>

/* FALSE, and says why, in a build without MPI and where mpirun is missing. Ranks started from now on do not look for
 * leaks: Open MPI itself has some; those of moesim show in the tests of one rank. */
gboolean ms_test_launcher(void);

#endif
