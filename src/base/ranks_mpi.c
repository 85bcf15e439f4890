/* src/base/ranks_mpi.c - processes that work together, over MPI. */
#include "base/ranks.h"
#include "base/err.h"
#include <mpi.h>

static int count = 1, own, local = 1;
static gboolean begun;

/* Parts of work that were taken on this machine, of this work and of the one before: memory that its ranks share, where MPI can. */
static gint unshared[2], *taken = unshared;
static int work, machine, machines = 1;
static MPI_Win window = MPI_WIN_NULL;

/* MPI_Init of a process that nobody launched takes a tenth of a second for nothing. */
static gboolean launched(void) {
  static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  for (guint i = 0; i < G_N_ELEMENTS(signs); i++)
    if (g_getenv(signs[i])) return TRUE;
  return FALSE;
}

gboolean ms_ranks_built(void) { return TRUE; }

static void share_counters(MPI_Comm node) {
  MPI_Aint size;
  int unit, leads;
  void *first;
  MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
  MPI_Comm_rank(node, &leads);
  gboolean shared = MPI_Win_allocate_shared(leads == 0 ? sizeof unshared : 0, sizeof(gint), MPI_INFO_NULL, node, &first, &window) == MPI_SUCCESS;
  if (shared) {
    MPI_Win_shared_query(window, 0, &size, &unit, &first);
    taken = first;
    if (leads == 0) taken[0] = taken[1] = 0;
  }
  int head = !shared || leads == 0; /* without shared memory every rank is a machine of its own */
  MPI_Exscan(&head, &machine, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (own == 0) machine = 0;
  MPI_Allreduce(&head, &machines, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (shared) MPI_Bcast(&machine, 1, MPI_INT, 0, node);
}

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
  share_counters(node);
  MPI_Comm_free(&node);
  return TRUE;
}

void ms_ranks_end(void) {
  if (window != MPI_WIN_NULL) MPI_Win_free(&window);
  if (begun) MPI_Finalize();
  begun = FALSE, count = local = machines = 1, own = machine = 0, taken = unshared;
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

/* Everybody has left the work before the last one, so that its counter is free for the next. */
void ms_ranks_work_begin(void) {
  work = !work;
  g_atomic_int_set(&taken[!work], 0);
}

int ms_ranks_work_take(void) { return machine + machines * g_atomic_int_add(&taken[work], 1); }
