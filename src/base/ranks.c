/* src/base/ranks.c - what both implementations of ranks.h share. */
#include "base/ranks.h"

gboolean ms_ranks_launched(void) {
  static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  for (guint i = 0; i < G_N_ELEMENTS(signs); i++)
    if (g_getenv(signs[i])) return TRUE;
  return FALSE;
}
