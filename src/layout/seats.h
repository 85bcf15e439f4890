/* src/layout/seats.h - which GPU of a fabric each rank has. Integers only.
 *
 * GPU = node x gpus_per_node + place in its node; scale-up domain = GPU / nvlink_domain_gpus. A job takes the first
 * `segment` GPUs of each domain; its nodes are taken in order, in a drawn order, or from a list. */
#ifndef MS_LAYOUT_SEATS_H
#define MS_LAYOUT_SEATS_H

#include "layout/layout.h"

typedef struct MsSeats {
  int world, jobs; /* ranks of one of them */
  int node_gpus, domain_gpus, segment;
  int nodes; /* of the fabric, those of the jobs or more */
  int *gpu;  /* [jobs * world] those of the job at hand in front */
} MsSeats;

/* NULL and `why` (size 0: does not write) when the job does not fit. (transfer full) */
MsSeats *ms_seats_new(const MsHardware *hardware, int world, char *why, size_t size);
void ms_seats_free(MsSeats *seats);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSeats, ms_seats_free)
static inline int ms_seats_domain(const MsSeats *seats, int rank) { return seats->gpu[rank] / seats->domain_gpus; }
static inline int ms_seats_node(const MsSeats *seats, int rank) { return seats->gpu[rank] / seats->node_gpus; }

#endif
