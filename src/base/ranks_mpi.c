/* src/base/ranks_mpi.c - processes that work together, over MPI. */
#include "base/ranks.h"
#include "base/err.h"
#include <mpi.h>
#include <string.h>

static int count = 1, own, local = 1;
static gboolean begun;

/* Parts that were taken of each rank's run, of this work and of the one before: [2][lanes] in memory that the ranks of
 * a machine share, where MPI can; a lane is a rank of this machine. */
static gint unshared[2], *taken = unshared;
static int work, parts, lane, lanes = 1, first_lane; /* first_lane: ranks of the machines before this one */
static MPI_Win window = MPI_WIN_NULL;

gboolean ms_ranks_built(void) { return TRUE; }
gboolean ms_ranks_here(void) { return TRUE; }

/* Without shared memory every rank is a machine of its own. */
static void share_counters(MPI_Comm node) {
  MPI_Aint size;
  int unit, mine;
  void *first;
  MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
  MPI_Comm_rank(node, &lane);
  if (MPI_Win_allocate_shared(lane == 0 ? 2 * local * (int)sizeof(gint) : 0, sizeof(gint), MPI_INFO_NULL, node, &first,
                              &window) == MPI_SUCCESS) {
    MPI_Win_shared_query(window, 0, &size, &unit, &first);
    taken = first, lanes = local;
    if (lane == 0) memset(taken, 0, 2 * (size_t)lanes * sizeof *taken);
  } else window = MPI_WIN_NULL, lane = 0;
  mine = lane == 0 ? lanes : 0;
  MPI_Exscan(&mine, &first_lane, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (own == 0) first_lane = 0;
  if (lanes > 1) MPI_Bcast(&first_lane, 1, MPI_INT, 0, node);
  MPI_Barrier(MPI_COMM_WORLD); /* the counters are 0 */
}

gboolean ms_ranks_begin(GError **error) {
  int provided;
  MPI_Comm node;
  if (begun || !ms_ranks_launched()) return TRUE; /* MPI_Init takes a tenth of a second, alone for nothing */
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED)
    return ms_error(error, MS_ERROR_ENV, "MPI cannot be started with threads");
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
  begun = FALSE, count = local = lanes = 1, own = lane = first_lane = 0, taken = unshared;
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

/* Everybody has left the work before the last one, so that its counters are free for the next. */
void ms_ranks_work_begin(int n) {
  work = !work, parts = n;
  for (int i = 0; i < lanes; i++) g_atomic_int_set(&taken[!work * lanes + i], 0);
}

static int first_part(int of_lane) { return (int)((gint64)parts * (first_lane + of_lane) / count); }

int ms_ranks_work_take(void) {
  for (int i = 0; i < lanes; i++) {
    int of = (lane + i) % lanes, part = first_part(of) + g_atomic_int_add(&taken[work * lanes + of], 1);
    if (part < first_part(of + 1)) return part;
  }
  return -1;
}
