/* src/work/work.h - the operator list: what one rank executes, keeps and sends in a step.
 *
 * A model, a layout and the options lower to a few *pieces* (embedding, each distinct kind of decoder layer, an MTP
 * block, new scales of delayed FP8, the head with its loss). A piece has two lists of operator rows, forward and
 * backward (backward holds recompute, input-gradient and weight-gradient rows in issue order), and totals. A chunk of
 * the pipeline is a sequence of pieces. Memory, time, FLOP and execution all read these rows and nothing else. Source
 * of the rows: docs/theory/operators.md 3-5, docs/theory/communication.md, docs/theory/precision.md.
 *
 * Rows describe ONE rank that stands for all ranks of its stage. With drawn routing the ranks of an expert group
 * differ: every layer is a piece of its own, takes as long as on its hottest rank, and keeps what the rank keeps that
 * has most of all layers of the stage. const after ms_work_new. */
#ifndef MS_WORK_WORK_H
#define MS_WORK_WORK_H

#include "layout/layout.h"
#include "work/op.h"
#include "work/packing.h"
#include "work/routing.h"

typedef struct MsWork {
  const MsScenario *scenario; /* borrowed */
  const MsLayout *layout;     /* borrowed; only sizes and groups are read, not the chunks */
  int n_pieces;
  MsPiece *pieces;
  int piece_embedding, piece_head, piece_mtp; /* -1 when the model has none */
  int piece_mtp_again; /* further MTP blocks that share the weights of the first; -1 when each has its own */
  int piece_scales;    /* behind the layers of a chunk: new scales of the delayed recipe; -1: none */
  int *piece_of_layer; /* [num_layers] index into pieces */
  double rows;         /* T: tokens a rank holds between layers without SP */
  double rows_sp;      /* Tsp */
  double rows_expert;  /* Tk: token-expert rows arriving at one expert rank, balanced unless drawn */
  MsRoutingDraw *draw; /* NULL: not drawn */
  gboolean coldest;    /* what is kept is that of the rank with the fewest rows */
  int padded_vocab;
  MsPacking packing;
  /* Machines of several kinds: the pieces of pool 0, then the same ones as they are on the machine of the next pool;
   * indices above are those of pool 0. */
  int pool_pieces;        /* of one pool; n_pieces where there are no pools */
  struct MsWork *of_pool; /* [layout->n_pools] the same work seen from each pool, all pieces shared; NULL: no pools */
  MsScenario *pool_scenario; /* [layout->n_pools] what those point to */
} MsWork;

/* What rows and bytes of a stage are made from: the work with the machine and the groups of its pool, and the scenario
 * as it is now. */
const MsWork *ms_work_on_pool(const MsWork *work, int pool);
static inline const MsWork *ms_work_on_stage(const MsWork *work, int stage) {
  return work->of_pool ? ms_work_on_pool(work, ms_layout_pool(work->layout, stage)) : work;
}
static inline int ms_work_pool_of_piece(const MsWork *work, int piece) { return piece / work->pool_pieces; }
/* The pieces that may stand on a stage: [*from, *to). */
static inline void ms_work_pieces_of(const MsWork *work, int stage, int *from, int *to) {
  *from = ms_layout_pool(work->layout, stage) * work->pool_pieces, *to = *from + work->pool_pieces;
}
/* That of MTP block i. */
static inline int ms_work_mtp_piece(const MsWork *work, int i) {
  return i > 0 && work->piece_mtp_again >= 0 ? work->piece_mtp_again : work->piece_mtp;
}
static inline gboolean ms_work_is_head(const MsWork *work, int piece) {
  return piece % work->pool_pieces == work->piece_head;
}
/* `piece` of pool 0 as it is where the chunk stands. */
static inline int ms_work_piece_at(const MsWork *work, const MsChunk *chunk, int piece) {
  return piece + chunk->pool * work->pool_pieces;
}

/* A graph scope captures the rows of a module (docs/theory/host.md 2). */
gboolean ms_captured(const MsOptions *options, MsModule module);

/* A graph of modules begins such a layer: it has a static copy of the layer's input. */
gboolean ms_graph_copies_input(const MsOptions *options, guint8 mixers);

/* Lowers. NULL and *error when the machine or the options cannot do it (named). (transfer full) */
MsWork *ms_work_new(const MsScenario *scenario, const MsLayout *layout, GError **error);
/* The same, but what is kept is that of the rank with the fewest rows of all layers of the stage. */
MsWork *ms_work_new_coldest(const MsScenario *scenario, const MsLayout *layout, GError **error);
/* As ms_work_new. `like`: of another layout, or NULL; rows of experts are not drawn again where the draw would be the
 * same. */
MsWork *ms_work_new_like(const MsWork *like, const MsScenario *scenario, const MsLayout *layout, GError **error);
void ms_work_free(MsWork *work);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsWork, ms_work_free)

/* Pieces of one chunk in forward order: how many, and the index of the i-th into work->pieces. Of delayed FP8 with
 * layers the last but the head is the one of scales: the recipe's context is that of a chunk's layers (Megatron-LM
 * core/transformer/transformer_block.py). */
static inline gboolean ms_work_renews_scales(const MsWork *work, const MsChunk *chunk) {
  return work->piece_scales >= 0 && chunk->num_layers > 0;
}
static inline int ms_work_chunk_length(const MsWork *work, const MsChunk *chunk) {
  return (chunk->has_embedding ? 1 : 0) + chunk->num_layers + chunk->num_mtp + ms_work_renews_scales(work, chunk) +
         (chunk->has_loss ? 1 : 0);
}
int ms_work_chunk_piece(const MsWork *work, const MsChunk *chunk, int i);

/* All pieces of a stage, chunk by chunk:
 * for (MsStagePiece at = ms_stage_pieces(work, stage); ms_next_piece(&at);) … at.piece */
typedef struct {
  const MsWork *work;
  int stage, chunk_index, i; /* the i-th of its chunk */
  const MsChunk *chunk;
  int piece; /* index into work->pieces */
} MsStagePiece;
static inline MsStagePiece ms_stage_pieces(const MsWork *work, int stage) {
  return (MsStagePiece){work, stage, -1, -1, NULL, -1};
}
static inline gboolean ms_next_piece(MsStagePiece *at) {
  for (at->i++; !at->chunk || at->i >= ms_work_chunk_length(at->work, at->chunk); at->i = 0) {
    if (++at->chunk_index >= at->work->layout->vpp) return FALSE;
    at->chunk = ms_layout_chunk(at->work->layout, at->stage, at->chunk_index);
  }
  at->piece = ms_work_chunk_piece(at->work, at->chunk, at->i);
  return TRUE;
}

/* The message between virtual stages on different ranks: one microbatch of activations, or of their gradients. */
MsOp ms_work_p2p(const MsWork *work);
/* The gather behind it where each tensor rank was sent one share (stack: pipeline_scatter, without sequence
 * parallelism); message_B 0 elsewhere. */
MsOp ms_work_p2p_gather(const MsWork *work);

/* Totals of one pipeline stage (all its chunks). */
typedef struct {
  double params_dense, params_expert, quantizable_dense, quantizable_expert, tp_replicated, frozen, frozen_expert,
      embedding_copy;
} MsStageParams;
MsStageParams ms_work_stage_params(const MsWork *work, int stage);
/* The chunk has the table of word embeddings: of its own as the first, or as a head that is tied to it. An MTP block
 * elsewhere needs a copy. */
gboolean ms_work_has_table(const MsWork *work, const MsChunk *chunk);

/* Rows that run once per step on `stage`, after the last microbatch: gradient synchronisation that nothing hides, norm,
 * optimizer, parameter gather; and before the first: zeroing. */
typedef struct { /* where a row of `reduce` or `gather` hangs: one bucket of parameters */
  int chunk;     /* model chunk of the stage */
  int piece; /* forward index of the bucket's first piece in the chunk: its backward ends the bucket, its forward is the
                first to need it */
} MsBucket;

typedef struct {
  MsOpList before; /* zero gradients, low-precision copies of the weights */
  MsOpList after;  /* what is not overlapped: gradient reduction, LN-gradient and embedding all-reduce, norm, optimizer,
                      parameter gather */
  MsOpList reduce; /* overlapped gradient reductions, in the order in which a step issues them */
  MsBucket *reduce_at; /* [reduce.n] */
  MsOpList gather;     /* overlapped parameter all-gathers, in forward order */
  MsBucket *gather_at; /* [gather.n] */
} MsStepOps;
void ms_work_step_ops(const MsWork *work, int stage, MsStepOps *out); /* (transfer full) free with ms_step_ops_clear */
void ms_step_ops_clear(MsStepOps *ops);

/* When FSDP gathers the parameters of a piece: once a step, before each pass (and drops them behind it), or before a
 * pass behind the backward that dropped them (torch fully_shard without reshard_after_forward). */
typedef enum { MS_GATHERS_STEP, MS_GATHERS_EVERY, MS_GATHERS_DROPPED } MsUnitGathers;
MsUnitGathers ms_unit_gathers(const MsScenario *scenario);

/* FSDP with sharded gradients or parameters: rows around every pass of one piece. Empty lists where the sharding level
 * has none. */
enum { MS_UNIT_LISTS = 6 };
typedef union {
  struct {
    MsOpList first;   /* parameters over the instances of an optimizer that shards them all, in front of `gather` in the
                         first forward of a step */
    MsOpList gather;  /* parameters, before its forward and again before its backward */
    MsOpList again;   /* parameters once more in a backward */
    MsOpList cast[2]; /* [backward] copies of what was gathered: whole parameters (fully_shard), low-precision ones */
    MsOpList reduce;  /* gradients, after its backward */
  };
  MsOpList list[MS_UNIT_LISTS]; /* the same, one after another */
} MsUnitOps;
void ms_work_unit_ops(const MsWork *work, int piece, MsUnitOps *out); /* (transfer full) free with ms_unit_ops_clear */
void ms_unit_ops_clear(MsUnitOps *ops);
/* A decoder layer or MTP block: gathered for each pass and dropped after it. Embedding and head stay from forward to
 * backward. */
gboolean ms_work_is_unit(const MsPiece *piece);

/* `defer_embedding_wgrad_compute`: how many of `microbatches` leave the head's weight gradient to the rows behind the
 * last slot (the first ones do). The backward list of the head has those rows all the same, of the pass wgrad: whoever
 * walks it for such a microbatch leaves them out. */
int ms_work_deferred(const MsWork *work, int microbatches);
/* A piece whose weight gradients may wait so, on those layouts that have PP. */
static inline gboolean ms_work_may_defer(const MsWork *work, int piece) {
  return ms_work_is_head(work, piece) && work->scenario->options.defer_embedding_wgrad_compute;
}

/* Matrices of one stage that Muon orthogonalises: weights of the layers, not embedding and head. Parameters per rank.
 */
void ms_work_matrix_params(const MsWork *work, int stage, double *dense, double *expert);

/* Adds the tensors of a piece's parameters that are trained, whole: weights, and a gain with each norm. */
void ms_work_add_tensors(const MsPiece *piece, double *dense, double *expert);

/* Ranks over which optimizer states (and what FSDP shards) of dense or expert parameters are split; 1 = not split.
 * DualPipe's two copies of a stage share them too. */
double ms_work_shards(const MsWork *work, gboolean expert);
/* Of one rank's shard of a stage with these parameters, wherever they live: ms_optimizer_state_B of each, without the
 * second moment of matrices where the optimizer has none. */
double ms_work_states_B(const MsWork *work, int stage, const MsStageParams *params);
/* FSDP over several optimizer instances sums whole gradients over them, not shards (MsFrameworkRow.sums_once). */
gboolean ms_work_sums_whole(const MsScenario *scenario);

/* The precision-aware optimizer is in use as soon as a state is not FP32. Whether it then reads BF16 gradients itself,
 * and stores the FP32 master of a BF16 weight as its 16 missing bits: not beside every recipe. */
gboolean ms_optimizer_is_fused(const MsScenario *scenario);
/* Weights that products read in low precision are kept and gathered in it (`fp8_param_gather`, `fp4_param_gather`). */
gboolean ms_gathers_low(const MsScenario *scenario);
/* Copies of a low-precision tensor: row by row and column by column, one where a scale of the whole tensor serves both
 * and products take either operand as it lies (TransformerEngine, is_non_tn_fp8_gemm_supported; `fp8_any_layout`). */
int ms_low_copies(const MsScenario *scenario);
/* Of those the ones of a weight that stay. */
int ms_weight_copies(const MsScenario *scenario);
/* Bytes of a weight that products read in low precision: the parameter and its copies. */
double ms_low_weight_B(const MsScenario *scenario);
/* Of those the copies of a gathered weight that TransformerEngine's layers keep whole, from the first microbatch of a
 * step to the next step, when FSDP has dropped the weight itself (pytorch/module/linear.py, _fp8_workspaces). */
double ms_cached_weight_B(const MsScenario *scenario);
/* Bytes of master weight and moments per element of the shard, less the share that the host updates. With
 * `offload_optimizer_states` they are on the device during the update only, masters and moments alike (Megatron-LM dev
 * branch, core/optimizer/cpu_offloading/optimizer_state_offloader.py). */
double ms_optimizer_state_B(const MsScenario *scenario);

/* --- totals of the model (docs/theory/operators.md 1, 2) ---------------------------------------------------------- */
typedef struct {
  double attention_per_layer, expert, shared, router, dense_mlp, dense_layer, moe_layer, embedding, mtp_block;
  double total;     /* without MTP */
  double total_mtp; /* with it */
  double active;    /* per token, with embedding and head */
} MsParamCount;
MsParamCount ms_model_params(const MsModel *model);

/* Model FLOP per token, forward and backward, by Megatron's convention (causal attention halved, recompute not
 * counted). */
typedef struct {
  double attention_linear, attention_core, mlp, mtp, logits, total;
} MsModelFlop;
MsModelFlop ms_model_flop_per_token(const MsModel *model, double seq_length);
/* The same over the packed sequences of a run: attention pays the sum of their squares. */
MsModelFlop ms_training_flop_per_token(const MsModel *model, const MsTraining *training);

#define MS_DELTA_CHUNK 64.0
typedef struct {
  double flop, read_B, write_B;
} MsDeltaWork;
/* Executed FLOP and HBM bytes of a chunked gated delta rule, forward, for `tokens` tokens; dk, dv: widths of a key and
 * a value head. */
MsDeltaWork ms_delta_work(double tokens, double key_heads, double value_heads, double dk, double dv);

#endif
