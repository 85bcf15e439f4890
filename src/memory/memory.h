/* src/memory/memory.h - bytes on one rank of each pipeline stage, over a step (docs/theory/memory.md).
 *
 *   peak = parameters + gradients + optimizer + buffers + max over time (kept activations + coinciding transients)
 * "Allocated" is what the framework's allocator hands out; `device_B` adds its reserve and what lives outside it. */
#ifndef MS_MEMORY_MEMORY_H
#define MS_MEMORY_MEMORY_H

#include "sched/sched.h"
#include "work/work.h"

typedef struct {
  double parameters_B, gradients_B, optimizer_B;
  double buffers_B;       /* dummy weight gradients, workspaces, dispatcher buffers */
  double activations_B;   /* kept activations at the peak */
  double transient_B;     /* coinciding transients at the peak */
  double peak_B;          /* allocated: sum of the above */
  double between_steps_B; /* allocated when no activation lives */
  double reserved_B;      /* reserve of the allocator over allocated, and context outside it */
  double device_B;        /* peak_B + reserved_B: what must fit... */
  double capacity_B;      /* ...into the memory of the stage's machine */
  int pool;               /* of machines, that the stage lies in; -1: all are of one kind */
  const char *peak_where; /* "mlp backward", "head", "moe forward", "embedding backward", "optimizer" */
  int peak_slot;          /* index into the stage's slot list */
} MsStageMemory;

typedef struct {
  int stages;
  MsStageMemory *stage; /* [stages], owned */
  int peak_stage;       /* largest peak_B; of machines that differ ms_memory_fullest */
} MsMemory;

/* (transfer full) `schedule` must be the one the step runs. */
MsMemory *ms_memory_new(const MsWork *work, const MsSchedule *schedule);
void ms_memory_free(MsMemory *memory);
/* The stage whose device_B is the largest share of its machine's memory. */
int ms_memory_fullest(const MsMemory *memory);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsMemory, ms_memory_free)

/* Bytes per parameter held on a rank; optimizer per element of the shard. */
typedef struct {
  double weight, low_weight; /* as it is stored, ... */
  double whole, low_whole;   /* ... and gathered for products: the same, unless the weights are the masters */
  double low_cached;         /* copies of sharded weights that layers keep whole */
  double gradient, optimizer;
  double dense_shards, expert_shards;
  /* FSDP's buffers: of the largest unit for each parameter that is trained, dense and expert, each, each in low
   * precision; and of embedding and head */
  double unit_gradient, expert_unit_gradient, unit, low_unit, ends;
} MsParamBytes;
MsParamBytes ms_memory_param_bytes(const MsWork *work);
/* Static bytes of one stage (everything but activations and transients). */
void ms_memory_static(const MsWork *work, int stage, MsStageMemory *out);

/* Buffers of a stage that has the piece, without those of FSDP and of what is received: never more than they are,
 * whatever else stands on it and wherever its ranks lie. */
double ms_memory_piece_buffers_B(const MsWork *work, int piece);
/* What a chunk without embedding holds of its input and its gradient. */
double ms_memory_received_B(const MsWork *work);

/* Allocated bytes after each slot of `stage`; n+1 values (before the first, after each); (transfer full). */
double *ms_memory_timeline(const MsWork *work, const MsSchedule *schedule, int stage);

#endif
