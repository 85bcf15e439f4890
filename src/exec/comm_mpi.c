/* src/exec/comm_mpi.c - see comm.h. */
#include "exec/comm.h"
#include "base/err.h"

#include <mpi.h>
#include <stdlib.h>

typedef struct {
  MPI_Comm mpi;
  int size, index, *member;
} Group;
typedef struct {
  MPI_Request request;
  void *data;
} Sent;

struct MsComm {
  Group group[MS_N_GROUPS];
  MPI_Comm world; /* of the layout's ranks; MPI_COMM_NULL alone */
  MPI_Datatype real;
  size_t real_B;
  GArray *sent;         /* Sent */
  int *counts, *places; /* scratch [2 * ranks] each */
};

static void group_new(Group *g, const MsLayout *layout, MsGroupKind kind, int rank, MPI_Group world) {
  *g = (Group){.mpi = MPI_COMM_NULL, .size = 1};
  if (layout->group[kind].size <= 1) return;
  g->member = g_new(int, layout->group[kind].size);
  int n = ms_group_members(layout, kind, rank, g->member, layout->group[kind].size);
  int index = 0;
  while (index < n && g->member[index] != rank) index++;
  if (index == n) return; /* the embedding group passes this rank by */
  MPI_Group members;
  MPI_Group_incl(world, n, g->member, &members);
  MPI_Comm_create_group(MPI_COMM_WORLD, members, kind, &g->mpi);
  MPI_Group_free(&members);
  g->size = n, g->index = index;
}

MsComm *ms_comm_new(const MsLayout *layout, int rank, size_t real_B) {
  MsComm *c = g_new0(MsComm, 1);
  c->world = MPI_COMM_NULL;
  c->real_B = real_B;
  c->sent = g_array_new(FALSE, FALSE, sizeof(Sent));
  for (int k = 0; k < MS_N_GROUPS; k++) c->group[k] = (Group){.mpi = MPI_COMM_NULL, .size = 1};
  if (layout->world <= 1) return c;
  c->real = real_B == 4 ? MPI_FLOAT : MPI_DOUBLE;
  c->counts = g_new(int, 2 * layout->world), c->places = g_new(int, 2 * layout->world);
  c->world = MPI_COMM_WORLD;
  MPI_Group world;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (int k = MS_GROUP_NONE + 1; k < MS_N_GROUPS; k++) group_new(&c->group[k], layout, (MsGroupKind)k, rank, world);
  MPI_Group_free(&world);
  return c;
}

void ms_comm_free(MsComm *c) {
  if (!c) return;
  ms_comm_flush(c);
  for (int k = 0; k < MS_N_GROUPS; k++) {
    if (c->group[k].mpi != MPI_COMM_NULL) MPI_Comm_free(&c->group[k].mpi);
    g_free(c->group[k].member);
  }
  g_array_free(c->sent, TRUE);
  g_free(c->counts), g_free(c->places);
  g_free(c);
}

int ms_comm_size(const MsComm *c, MsGroupKind group) { return c->group[group].size; }
int ms_comm_index(const MsComm *c, MsGroupKind group) { return c->group[group].index; }

static int int_count(gint64 count) {
  if (count < 0 || count > G_MAXINT) MS_BUG("a message of %" G_GINT64_FORMAT " elements", count);
  return (int)count;
}

/* An MPI datatype for elements of element_B bytes, 0 = a real. Not committed twice: small contiguous ones are made and
 * freed by the caller. */
static MPI_Datatype type_of(const MsComm *c, size_t element_B) {
  MPI_Datatype type = c->real;
  if (element_B == 0) return type;
  MPI_Type_contiguous((int)element_B, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

static void type_done(size_t element_B, MPI_Datatype type) {
  if (element_B != 0) MPI_Type_free(&type);
}

static void places(const gint64 *counts, int n, int *count, int *place) {
  gint64 at = 0;
  for (int i = 0; i < n; at += counts[i++]) count[i] = int_count(counts[i]), place[i] = int_count(at);
}

void ms_comm_all_gather(MsComm *c, MsGroupKind group, const void *mine, void *all, const gint64 *counts,
                        size_t element_B) {
  const Group *g = &c->group[group];
  MPI_Datatype type = type_of(c, element_B);
  places(counts, g->size, c->counts, c->places);
  MPI_Allgatherv(mine, c->counts[g->index], type, all, c->counts, c->places, type, g->mpi);
  type_done(element_B, type);
}

void ms_comm_reduce_scatter(MsComm *c, MsGroupKind group, const void *all, void *mine, const gint64 *counts) {
  const Group *g = &c->group[group];
  places(counts, g->size, c->counts, c->places);
  MPI_Reduce_scatter(all, mine, c->counts, c->real, MPI_SUM, g->mpi);
}

void ms_comm_all_reduce(MsComm *c, MsGroupKind group, void *data, gint64 count, gboolean max) {
  MPI_Allreduce(MPI_IN_PLACE, data, int_count(count), c->real, max ? MPI_MAX : MPI_SUM, c->group[group].mpi);
}

void ms_comm_all_to_all(MsComm *c, MsGroupKind group, const void *send, const gint64 *send_counts, void *receive,
                        const gint64 *receive_counts, size_t element_B) {
  const Group *g = &c->group[group];
  int *to = c->counts, *to_at = c->places, *from = c->counts + g->size, *from_at = c->places + g->size;
  MPI_Datatype type = type_of(c, element_B);
  places(send_counts, g->size, to, to_at), places(receive_counts, g->size, from, from_at);
  MPI_Alltoallv(send, to, to_at, type, receive, from, from_at, type, g->mpi);
  type_done(element_B, type);
}

void ms_comm_sizes(MsComm *c, MsGroupKind group, const gint64 *send_counts, gint64 *receive_counts) {
  MPI_Alltoall(send_counts, 1, MPI_INT64_T, receive_counts, 1, MPI_INT64_T, c->group[group].mpi);
}

void ms_comm_shift(MsComm *c, MsGroupKind group, int to, const void *send, int from, void *receive, gint64 count) {
  MPI_Sendrecv(send, int_count(count), c->real, to, 0, receive, int_count(count), c->real, from, 0, c->group[group].mpi,
               MPI_STATUS_IGNORE);
}

void ms_comm_send(MsComm *c, int rank, int tag, const void *data, gint64 count) {
  Sent sent = {.data = g_memdup2(data, (gsize)count * c->real_B)};
  MPI_Isend(sent.data, int_count(count), c->real, rank, tag, c->world, &sent.request);
  g_array_append_val(c->sent, sent);
  for (guint i = 0; i < c->sent->len;) { /* those that are over make room */
    Sent *s = &g_array_index(c->sent, Sent, i);
    int over = 0;
    MPI_Test(&s->request, &over, MPI_STATUS_IGNORE);
    if (!over) {
      i++;
      continue;
    }
    g_free(s->data);
    g_array_remove_index_fast(c->sent, i);
  }
}

void ms_comm_receive(MsComm *c, int rank, int tag, void *data, gint64 count) {
  MPI_Recv(data, int_count(count), c->real, rank, tag, c->world, MPI_STATUS_IGNORE);
}

void ms_comm_flush(MsComm *c) {
  for (guint i = 0; i < c->sent->len; i++) {
    Sent *s = &g_array_index(c->sent, Sent, i);
    MPI_Wait(&s->request, MPI_STATUS_IGNORE);
    g_free(s->data);
  }
  g_array_set_size(c->sent, 0);
}

void ms_comm_barrier(MsComm *c) {
  if (c->world != MPI_COMM_NULL) MPI_Barrier(c->world);
}

static void world_reduce(MsComm *c, double *data, gint64 count, MPI_Op op) {
  if (c->world != MPI_COMM_NULL) MPI_Allreduce(MPI_IN_PLACE, data, int_count(count), MPI_DOUBLE, op, c->world);
}

void ms_comm_world_sum(MsComm *c, double *data, gint64 count) { world_reduce(c, data, count, MPI_SUM); }
void ms_comm_world_max(MsComm *c, double *data, gint64 count) { world_reduce(c, data, count, MPI_MAX); }
void ms_comm_world_min(MsComm *c, double *data, gint64 count) { world_reduce(c, data, count, MPI_MIN); }

void ms_comm_abort(const MsComm *c, int status) {
  (void)c;
  MPI_Abort(MPI_COMM_WORLD, status);
  abort();
}
