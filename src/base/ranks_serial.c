/* src/base/ranks_serial.c - linked without MPI: a process is alone. MS_HAVE_MPI: moesim-all is not. */
#include "base/ranks.h"
#include "base/err.h"
#include <stdlib.h>

#ifdef MS_HAVE_MPI
gboolean ms_ranks_built(void) { return TRUE; }
gboolean ms_ranks_here(void) { return !ms_ranks_launched(); }
gboolean ms_ranks_begin(GError **error) {
  (void)error;
  return TRUE;
}
#else
gboolean ms_ranks_built(void) { return FALSE; }
gboolean ms_ranks_here(void) { return TRUE; }
gboolean ms_ranks_begin(GError **error) {
  static const char *const counts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
  static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
  for (guint i = 0; i < G_N_ELEMENTS(counts); i++) {
    const char *count = g_getenv(counts[i]);
    if (!count || !g_getenv(ranks[i]) || atoi(count) < 2) continue;
    g_set_error(
        error, MS_ERROR, MS_ERROR_ENV,
        "started as one of %s processes, but built without MPI: install Open MPI (libopenmpi-dev) and build again",
        count);
    return FALSE;
  }
  return TRUE;
}
#endif

void ms_ranks_end(void) {}
int ms_ranks_count(void) { return 1; }
int ms_ranks_own(void) { return 0; }
int ms_ranks_local(void) { return 1; }
void ms_ranks_gather(GArray *array) { (void)array; }
gboolean ms_ranks_any(gboolean flag) { return flag; }
void ms_ranks_work_begin(int n) { (void)n; }
int ms_ranks_work_take(void) { return -1; }
