/* src/base/ranks_mpi.c - processes that work together, over MPI. */
#include "base/ranks.h"
#include "base/err.h"
#include <mpi.h>

static int count = 1, own, local = 1;
static gboolean begun;

/* MPI_Init of a process that nobody launched takes a tenth of a second for nothing. */
static gboolean launched(void) {
  static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  for (guint i = 0; i < G_N_ELEMENTS(signs); i++)
    if (g_getenv(signs[i])) return TRUE;
  return FALSE;
}

gboolean ms_ranks_built(void) { return TRUE; }

gboolean ms_ranks_begin(GError **error) {
  int provided;
  MPI_Comm node;
  if (begun || !launched()) return TRUE;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED) {
    g_set_error_literal(error, MS_ERROR, MS_ERROR_ENV, "MPI cannot be started with threads");
    return FALSE;
  }
  begun = TRUE;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, own, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &local);
  MPI_Comm_free(&node);
  return TRUE;
}

void ms_ranks_end(void) {
  if (begun) MPI_Finalize();
  begun = FALSE, count = local = 1, own = 0;
}

int ms_ranks_count(void) { return count; }
int ms_ranks_own(void) { return own; }
int ms_ranks_local(void) { return local; }

void ms_ranks_gather(GArray *array) {
  if (count == 1) return;
  guint size = g_array_get_element_size(array);
  int mine = (int)array->len, all = 0;
  g_autofree int *n = g_new(int, count), *at = g_new(int, count);
  MPI_Allgather(&mine, 1, MPI_INT, n, 1, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) at[i] = all, all += n[i];
  MPI_Datatype element; /* counts are of elements: bytes would overflow an int */
  MPI_Type_contiguous((int)size, MPI_BYTE, &element);
  MPI_Type_commit(&element);
  g_autofree char *own_data = g_memdup2(array->data, (gsize)mine * size);
  g_array_set_size(array, (guint)all);
  MPI_Allgatherv(own_data, mine, element, array->data, n, at, element, MPI_COMM_WORLD);
  MPI_Type_free(&element);
}

gboolean ms_ranks_any(gboolean flag) {
  int mine = flag, any = flag;
  if (count > 1) MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
  return any;
}
