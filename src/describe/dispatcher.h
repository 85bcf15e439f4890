/* src/describe/dispatcher.h - what moesim knows of a token dispatcher: the columns of dispatcher.def.
 *
 * No other file asks which dispatcher a run has, only what it does. Kinds of behaviour are enums without a value for
 * "other": a dispatcher that does something new brings a kind, and the compiler names the switches that must know it.
 */
#ifndef MS_DESCRIBE_DISPATCHER_H
#define MS_DESCRIBE_DISPATCHER_H

#include "describe/hardware.h"

/* How a token reaches its experts; decides the messages and what they cost */
typedef enum {
  MS_CARRY_COPIES, /* all-to-all in the expert group, one copy for each of its experts; expert TP gathers
                      behind it */
  MS_CARRY_ALL,    /* all-gather of all tokens, reduce-scatter of what comes back */
  MS_CARRY_ONCE,   /* one copy for each rank that wants it, one over the network for each domain */
} MsCarry;

/* What a router weight goes with, when tokens (or, backward, their gradients) go */
typedef enum {
  MS_WITH_COPY,
  MS_WITH_EXPERT,        /* every expert of the model, for each token */
  MS_WITH_CHOICE,        /* every expert that the token chose */
  MS_WITH_DOMAIN_EXPERT, /* every expert of the receiving domain, for each copy */
} MsWeightWith;

/* Who sorts the tokens by expert */
typedef enum {
  MS_PERMUTE_SENDER,   /* before they leave; what arrives in chunks is sorted again */
  MS_PERMUTE_RECEIVER, /* behind the exchange, with the kernels of the framework */
  MS_PERMUTE_EXCHANGE, /* a kernel of the dispatcher, on its stream */
} MsPermutes;

/* Who pads the rows of an expert to the block of a low precision */
typedef enum {
  MS_PAD_NOT,      /* the expert module copies; moe_router_padding_for_quantization is refused */
  MS_PAD_SENDER,   /* the router, on request: the padding travels */
  MS_PAD_RECEIVER, /* the dispatcher, on request */
  MS_PAD_ALWAYS,   /* the dispatcher, without being asked */
} MsPads;

/* What the ranks tell each other before a dispatch forward */
typedef enum {
  MS_ASK_NOTHING,
  MS_ASK_COUNTS, /* rows for each expert, where no budget is fixed */
  MS_ASK_MAP,    /* the whole map of tokens and experts */
} MsAsks;

typedef enum {
  MS_WAIT_BEFORE,
  MS_WAIT_BEHIND
} MsHostWaits; /* without a fixed budget the host reads how many rows come */

/* What moves the bytes, and so what compute beside it does to an exchange over the network */
typedef enum {
  MS_MOVED_BY_COLLECTIVE,   /* kernels of the collective library */
  MS_MOVED_BY_SMS,          /* loads and stores of SMs: they are slowed, the NIC is not */
  MS_MOVED_BY_ASYNC_COPIES, /* few data movers, asynchronous copies */
} MsMovers;

/* Registered buffers, memory/memory.c */
typedef enum {
  MS_BUFFERS_NONE,
  MS_BUFFERS_CHANNELS, /* queues of fixed depth for each channel and peer */
  MS_BUFFERS_TOKENS,   /* room for all tokens that may come */
} MsDispatchBuffers;

/* As Megatron-Core advises, the first that fits; of several rows with one the first */
typedef enum {
  MS_USUAL_ON_RACKS,       /* experts, on rack-scale links */
  MS_USUAL_BEYOND_DOMAINS, /* experts beyond one scale-up domain */
  MS_USUAL_ELSE,           /* everywhere: can be wherever a job can, and what an open layout begins with */
  MS_USUAL_NEVER
} MsUsual;

typedef struct {
  const char *word, *doc;
  /* where it may run */
  size_t machine_key;        /* offset in MsHardware of the key that says whether the machine has it */
  const guint8 *rank_counts; /* ETP x EP that it has configurations for, 0 at the end; NULL: all */
  int least_ranks;           /* of ETP x EP */
  gboolean ep_overlap, shared_overlap, fp8, pads_to_capacity;
  gboolean rank_capacity;       /* Megatron-LM's moe_expert_rank_capacity_factor */
  gboolean waits_in_preprocess; /* with an unpadded capacity factor, so that a graph cannot capture it */
  gboolean in_auto;             /* a plan may choose it by itself */
  MsUsual usual;                /* scenarios that name none have it there, where it can be */
  /* messages and rows */
  MsCarry carry;
  MsWeightWith weight_with;
  double weight_B, weight_back_B; /* forward and backward, with what tells where it belongs */
  gboolean weights_apart; /* in a message of their own: behind the tokens, backward in front of their gradients */
  double sum_B; /* an element of what comes back, and of its gradient: 4 where outputs are sent as the router weights
                   are stored, in FP32 */
  MsPermutes permutes;
  MsPads pads;
  MsAsks asks;
  MsHostWaits host_waits;
  /* cost and memory; its exchanges take what the machine's curves of dispatch and combine say of that dispatcher (NULL:
   * none, collectives serve it), else another's, whose error is not known for it. SMs of carriers other than
   * MS_CARRY_ONCE are those of the collective library */
  const char *curves;
  MsMovers movers;
  size_t sms_key;       /* offset in MsHardware of a machine's own number of SMs; 0: has no such number */
  int sms, network_sms; /* the library's own, within a domain and across domains */
  MsDispatchBuffers buffers;
  /* Megatron-LM's arguments: --moe-token-dispatcher-type (NULL: it has no such dispatcher),
   * --moe-flex-dispatcher-backend (NULL: not of that type), what the number of SMs and the dispatcher itself were
   * called before (a word or a flag), the variable that takes the size of a scale-up domain */
  const char *launch_type, *launch_backend, *launch_sms, *launch_old_word, *launch_domain;
  const char *launch_titan; /* TorchTitan's parallelism.expert_parallel_comm_backend; NULL: it has none */
} MsDispatcherRow;

extern const MsDispatcherRow ms_dispatchers[];

/* What is usual where no row is that says where it is. */
MsDispatcher ms_dispatcher_usual(void);
/* The machine has it. */
gboolean ms_dispatcher_exists(const MsDispatcherRow *row, const MsHardware *hardware);
/* It has a configuration for as many ranks. */
gboolean ms_dispatcher_takes(const MsDispatcherRow *row, gint64 ranks);
/* SMs that it takes on a machine for a group within one domain, or across domains. */
int ms_dispatcher_sms(const MsDispatcherRow *row, const MsHardware *hardware, gboolean network);

#endif
