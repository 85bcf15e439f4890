/* src/exec/comm_serial.c - built without MPI: every group has one rank, and no row is laid down for it. */
#include "exec/comm.h"
#include "base/err.h"

#include <stdlib.h>

struct MsComm {
  int ranks;
};

MsComm *ms_comm_new(const MsLayout *layout, int rank, size_t real_B) {
  (void)rank, (void)real_B;
  MsComm *c = g_new0(MsComm, 1);
  c->ranks = layout->world;
  return c;
}

void ms_comm_free(MsComm *c) { g_free(c); }
int ms_comm_size(const MsComm *c, MsGroupKind group) { return (void)c, (void)group, 1; }
int ms_comm_index(const MsComm *c, MsGroupKind group) { return (void)c, (void)group, 0; }

#define ALONE MS_BUG("a message in a program without MPI")
void ms_comm_all_gather(MsComm *c, MsGroupKind group, const void *mine, void *all, const gint64 *counts,
                        size_t element_B) {
  (void)c, (void)group, (void)mine, (void)all, (void)counts, (void)element_B;
  ALONE;
}
void ms_comm_reduce_scatter(MsComm *c, MsGroupKind group, const void *all, void *mine, const gint64 *counts) {
  (void)c, (void)group, (void)all, (void)mine, (void)counts;
  ALONE;
}
void ms_comm_all_reduce(MsComm *c, MsGroupKind group, void *data, gint64 count, gboolean max) {
  (void)c, (void)group, (void)data, (void)count, (void)max;
  ALONE;
}
void ms_comm_all_to_all(MsComm *c, MsGroupKind group, const void *send, const gint64 *send_counts, void *receive,
                        const gint64 *receive_counts, size_t element_B) {
  (void)c, (void)group, (void)send, (void)send_counts, (void)receive, (void)receive_counts, (void)element_B;
  ALONE;
}
void ms_comm_sizes(MsComm *c, MsGroupKind group, const gint64 *send_counts, gint64 *receive_counts) {
  (void)c, (void)group, (void)send_counts, (void)receive_counts;
  ALONE;
}
void ms_comm_shift(MsComm *c, MsGroupKind group, int to, const void *send, int from, void *receive, gint64 count) {
  (void)c, (void)group, (void)to, (void)send, (void)from, (void)receive, (void)count;
  ALONE;
}
void ms_comm_send(MsComm *c, int rank, int tag, const void *data, gint64 count) {
  (void)c, (void)rank, (void)tag, (void)data, (void)count;
  ALONE;
}
void ms_comm_receive(MsComm *c, int rank, int tag, void *data, gint64 count) {
  (void)c, (void)rank, (void)tag, (void)data, (void)count;
  ALONE;
}
void ms_comm_flush(MsComm *c) { (void)c; }
void ms_comm_barrier(MsComm *c) { (void)c; }
void ms_comm_world_sum(MsComm *c, double *data, gint64 count) { (void)c, (void)data, (void)count; }
void ms_comm_world_max(MsComm *c, double *data, gint64 count) { (void)c, (void)data, (void)count; }
void ms_comm_world_min(MsComm *c, double *data, gint64 count) { (void)c, (void)data, (void)count; }
void ms_comm_abort(const MsComm *c, int status) {
  (void)c;
  exit(status);
}
