/* src/describe/framework.h - the columns of framework.def: what a framework leaves out, has, and how it holds states.
 *
 * `framework` of a scenario is a row of it. Its options are Megatron-Core's keys, the nearest there are; what they mean
 * for time is the same for all. */
#ifndef MS_DESCRIBE_FRAMEWORK_H
#define MS_DESCRIBE_FRAMEWORK_H

#include "describe/field.h"
#include "describe/scenario.h"

/* What is computed again of a layer */
typedef enum {
  MS_AGAIN_ALL,  /* all of it */
  MS_AGAIN_STOP, /* with recompute_early_stop up to the last tensor that its backward reads: a plain operator that would
                    only read it does not run; autograd functions with a context of their own, as TransformerEngine's,
                    do, since they save behind what they run (torch.utils.checkpoint without reentrance) */
  MS_AGAIN_READ  /* the same, and compiled layers make nothing that no gradient reads */
} MsAgain;

typedef struct {
  const char *word, *doc;
  const char *defaults; /* JSON object of scenario.options: what is left out; NULL: the table's own defaults */
  const char *options;  /* keys of scenario.options that may be otherwise, blank-separated; NULL: all */
  guint64 schedules;    /* bit i: it has schedule i */
  guint32 modules;      /* of selective recompute that it has */
  MsFsdp shards_least, shards_most; /* values of options.fsdp that it has */
  MsFsdp pipeline_fsdp; /* what whole sharding becomes in a pipeline, unless the file asks for it: parameters that are
                           gathered once a step (torchtitan fsdp_reshard_after_forward "default") */
  /* memory (docs/theory/memory.md 1.2) */
  gboolean masters_are_weights; /* the optimizer steps the sharded weights themselves, in main_params_dtype; what is
                                   gathered is a BF16 copy */
  gboolean ends_are_units;      /* embedding and head are gathered and dropped as layers are */
  gboolean batch_first;         /* activations lie as flash attention wants them: no second copy of its output */
  gboolean keeps_gate;          /* SiLU and product are operators of their own: what SiLU gives is kept too */
  gboolean plain_loss;          /* without cross_entropy_fusion: PyTorch's cross_entropy of FP32 logits, whose backward
                                   has the gradients of log-softmax and of its input beside what it gave */
  gboolean launched;            /* by the forms of Megatron-LM's arguments (launch/) */
  const char *launch_form;      /* that starts it first of all; NULL: none (launch/) */
  gboolean ends_only;           /* of the stages of a pipeline the first and the last may have layers of their own
                                   number, without VPP; MTP blocks are with the loss */
  gboolean interleaves;         /* a stage may hold several chunks of layers: VPP */
  gboolean flushes;             /* a step may flush its pipelines several times: local_batch_size */
  gboolean whole_sequences;     /* seq_aux_loss needs the whole sequence on a rank: TP x CP = 1 */
  gboolean latent_tp;           /* multi-latent attention goes with tensor parallelism */
  double reducer_B;             /* a parameter: buckets that gradients of data-parallel ranks pass, beside FP32 ones
                                   (torch DistributedDataParallel without gradient_as_bucket_view), where the
                                   optimizer is not distributed */
  double forward_logits_B;      /* a logit: alive while the loss is made, beside what is kept of it */
  double gradient_B;            /* a parameter: gradient of one microbatch, added to the others behind its backward */
  double gather_copies;         /* flat copies of the weights while a distributed optimizer gathers them */
  double gathered_inputs;       /* buffers of a gathered tensor (2 T h) that stay, over tensor-parallel ranks */
  double reserve_ratio;         /* reserved over allocated, of an allocator without expandable segments; 0: of
                                   the machine (SimuMax@4dcaae5, 19 runs: 1.028 to 1.093) */
  gboolean records_streams;     /* collectives hold their tensors until the GPU has passed them (record_stream of
                                   torch's ProcessGroupNCCL), and the host is a launch queue ahead of it */
  /* time (docs/theory/operators.md 3.1, docs/theory/communication.md 2, 3) */
  gboolean llama_layers;   /* Meta's Llama in PyTorch: products of q, k and v apart, rotary embedding in complex FP32,
                              which no compiler fuses, and keys and values copied to every head in front of attention */
  gboolean torch_parallel; /* tensor and context parallelism of PyTorch: TP overlap stores the parts of all ranks and
                              adds them, no other message runs beside compute, inputs of products stay gathered, keys
                              are gathered in front of attention and its blocks merged in FP32 */
  gboolean pairs_keys; /* keys and values are put beside each other for the rotary embedding: copied twice forward, and
                          their gradients, then those of all three, backward */
  gboolean registered_buffers; /* collectives of sharded parameters go out of buffers that NCCL knows, by few SMs
                                  (Megatron-FSDP, nccl_ub; torch.distributed.fsdp registers none) */
  gboolean sums_once; /* over optimizer instances gradients that FSDP shards are summed behind the last microbatch
                         alone, and whole where it shards the optimizer alone (Megatron-FSDP: megatron_fsdp.py,
                         outer_fsdp_group_grad_reduce; param_and_grad_buffer.py, _bucket_group_gradient_reduce); else
                         shards behind every backward (torch/distributed/fsdp, foreach_reduce, _reduce_grad) */
  int shard_copies;  /* torch fully_shard: a pass waits for compute in front of its first gather and behind its backward
                        for its last reduction; what is gathered is copied into the parameters, gradients into what is
                        reduced, experts so often (2: rows of theirs are sharded, which lie apart); parameters that stay
                        whole behind a forward are dropped behind the backward. 0: not */
  MsAgain again;     /* what full recomputation makes of a layer */
  gboolean low_loss; /* PyTorch's cross_entropy of BF16 logits, without a copy in FP32 */
  gboolean steps_one_by_one; /* the host works through the parameters of a distributed optimizer's shard (law
                                optimizer_operators) */
  gboolean fake_gate;        /* routing round-robin: experts in turn in place of a router */
  gboolean torch_experts;    /* MoE layers of PyTorch's operators: tokens put in order by index, groups padded, gate and
                                up apart, router weights in FP32 behind the experts, shared experts beside combine;
                                modules compiled one by one (work/indexed.c) */
  gboolean fetches_blocks;   /* over expert-parallel ranks experts are a unit of their own, and every block fetches the
                                next with its experts, also backward (set_modules_to_backward_prefetch) */
  gboolean flex_latent; /* latent attention is FlexAttention (models/deepseek_v3/__init__.py, attn_type): kernels in
                           Triton, for which FlashAttention-2's time is taken */
  gboolean megatron_messages; /* interleaved passes wait for messages as Megatron-Core's do: MsSlot and MsEarly of
                                 sched/sched.h */
  gboolean aligns_reductions; /* stages of a pipeline begin to reduce gradients together (step/reduce.h) */
  gboolean reduce_waits;      /* without overlap_grad_reduce the backward pass waits for every reduction of sharded
                                 gradients, which it issues itself (DeepSpeed's overlap_comm: zero/stage_1_and_2.py and
                                 stage3.py take the current stream in place of their own) */
  gboolean mindspeed;         /* is what MindSpeed patches, on machines of a vendor whose row says so */
} MsFrameworkRow;
extern const MsFrameworkRow ms_frameworks[]; /* [MS_N_FRAMEWORKS] */

static inline const MsFrameworkRow *ms_framework(const MsScenario *scenario) {
  return &ms_frameworks[scenario->framework];
}

/* What is left out in a file of that framework: over the defaults of the table that are in *options. */
void ms_framework_defaults(MsFramework framework, MsOptions *options);
/* The same of the family of a stack, over those of its framework. */
void ms_family_defaults(const MsStackFamily *family, MsOptions *options);
/* The first option that the framework has no other value of than *options says; NULL: none. (transfer none) */
const MsField *ms_framework_lacks(MsFramework framework, const MsOptions *options);
guint32 ms_framework_lacked_modules(const MsScenario *scenario); /* of those that it recomputes selectively */
gboolean ms_framework_schedules(const MsScenario *scenario);     /* it has the schedule */
gboolean ms_framework_shards(const MsScenario *scenario);        /* as options.fsdp says */
gboolean ms_framework_routes(const MsScenario *scenario);        /* as training.routing says */
gboolean ms_framework_fits(const MsScenario *scenario); /* it has all that the rules on options ask of a framework */
/* Attention is products whose scores are stored. Layers without TransformerEngine lack its cuDNN kernels; PyTorch has
 * such kernels of its own, which frameworks of its layers take. */
gboolean ms_framework_stores_scores(const MsScenario *scenario);

#endif
