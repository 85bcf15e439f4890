/* src/local/messages.h - how long messages between ranks on this machine take, by the very calls of the executor
 * (exec/comm.h). */
#ifndef MS_LOCAL_MESSAGES_H
#define MS_LOCAL_MESSAGES_H

#include "blas/blas.h"
#include "calib/rows.h"
#include "exec/comm.h"

/* Every collective over the tensor-parallel group of the layout and a message between its first two ranks, from 64 B to
 * 32 MiB in memory: least over repetitions in `passes` interleaved passes, of those in which every rank had its core
 * where there are any. All ranks call it; the samples (MsRowSample) are the same on all. An element of 4 bytes in
 * memory is one of FP32, or what a list counts as 2 bytes of BF16: every measurement gives a sample of both. Before
 * each message the ranks write over their cores' own caches, as the layers between two messages of a step do. Between
 * the sizes all ranks run the reference kernel at the same time; the slowest of them, and of before and after the
 * faster, stands beside the samples. There too each multiplies the same some times: *jitter is the standard deviation
 * of the time of a product from one rank to the next, over it, at the median of these places. (transfer full) */
GArray *ms_messages_measure(MsComm *comm, const MsBlas *blas, int own, gboolean quick, int passes, double *jitter);

/* CSV: op,num_gpus,bytes,latency_us,reference_flops, of FP32 only; `moesim fit` reads it. */
char *ms_messages_text(const GArray *samples);
GArray *ms_messages_parse(const char *text, const char *filename, GError **error);

#endif
