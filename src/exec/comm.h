/* src/exec/comm.h - messages of one rank: the groups of its layout as communicators. Two implementations:
 * comm_mpi.c in moesim-all where Open MPI was found, comm_serial.c elsewhere, where every group has one rank and none
 * of these is called.
 *
 * Members of a group are in ascending order of their ranks. Counts are elements of the comm's type (float or double)
 * unless said; buffers do not overlap. The caller counts bytes. An error of MPI ends the whole run (its default error
 * handler). */
#ifndef MS_EXEC_COMM_H
#define MS_EXEC_COMM_H

#include "layout/layout.h"

typedef struct MsComm MsComm;

/* Collective over all ranks of the layout. real_B: 4 or 8. (transfer full) */
MsComm *ms_comm_new(const MsLayout *layout, int rank, size_t real_B);
void ms_comm_free(MsComm *comm); /* NULL is fine */

int ms_comm_size(const MsComm *comm, MsGroupKind group);  /* 1 also when this rank is not in one */
int ms_comm_index(const MsComm *comm, MsGroupKind group); /* place of this rank in it */

/* all[i] of counts[i] elements one after another; mine has counts[own]. element_B: bytes of an element that is not a
 * real, 0 = a real. */
void ms_comm_all_gather(MsComm *comm, MsGroupKind group, const void *mine, void *all, const gint64 *counts,
                        size_t element_B);
/* Sum; keeps part `own`, of counts[own] elements. */
void ms_comm_reduce_scatter(MsComm *comm, MsGroupKind group, const void *all, void *mine, const gint64 *counts);
void ms_comm_all_reduce(MsComm *comm, MsGroupKind group, void *data, gint64 count, gboolean max); /* in place */
/* Part i of `send` (send_counts[i] elements) goes to member i; parts of the others come into `receive`. */
void ms_comm_all_to_all(MsComm *comm, MsGroupKind group, const void *send, const gint64 *send_counts, void *receive,
                        const gint64 *receive_counts, size_t element_B);
/* How many elements each member sends to this one in the exchange that follows: what an envelope says, no payload. */
void ms_comm_sizes(MsComm *comm, MsGroupKind group, const gint64 *send_counts, gint64 *receive_counts);
/* Sends to one member while receiving from another; `receive` has the size of what arrives. */
void ms_comm_shift(MsComm *comm, MsGroupKind group, int to, const void *send, int from, void *receive, gint64 count);

/* Messages between stages, by rank of the world. The data is copied: the send is over when the other side receives. */
void ms_comm_send(MsComm *comm, int rank, int tag, const void *data, gint64 count);
void ms_comm_receive(MsComm *comm, int rank, int tag, void *data, gint64 count);
void ms_comm_flush(MsComm *comm); /* waits for all sends */

/* Over all ranks of the layout, in place, on every rank: the norm of a step's gradients, results and dumps. */
void ms_comm_barrier(MsComm *comm);
void ms_comm_world_sum(MsComm *comm, double *data, gint64 count);
void ms_comm_world_max(MsComm *comm, double *data, gint64 count);
void ms_comm_world_min(MsComm *comm, double *data, gint64 count);
G_NORETURN void ms_comm_abort(const MsComm *comm, int status); /* ends all ranks */

#endif
