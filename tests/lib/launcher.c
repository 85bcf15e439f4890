#include "lib/launcher.h"
#include "lib/close.h"

#include "base/ranks.h"

gboolean ms_test_launcher(void) {
  g_autofree char *mpirun = g_find_program_in_path("mpirun");
  if (!ms_ranks_built()) print_message("built without MPI: several ranks are not tested\n");
  else if (!mpirun) print_message("mpirun is not installed: several ranks are not tested\n");
  g_setenv("ASAN_OPTIONS", "detect_leaks=0", FALSE);
  return ms_ranks_built() && mpirun;
}
