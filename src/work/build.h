/* src/work/build.h - internal to work/: the builder that lays rows down, and the pieces it makes.
 *
 * Rows are chained: a new row waits for the `tip` of its list, and becomes the tip. A row laid down with `async` waits
 * for the tip but does not become it (it overlaps what follows) until somebody joins it. */
#ifndef MS_WORK_BUILD_H
#define MS_WORK_BUILD_H

#include "describe/framework.h"
#include "describe/recompute.h"
#include "work/packing.h"
#include "work/work.h"

typedef struct {
  const MsScenario *scenario;
  const MsModel *model;
  const MsLayout *layout;
  const MsTraining *training;
  const MsOptions *options;
  MsPiece *piece;
  MsOpList *list; /* being filled */
  int tip;        /* row that the next one waits for, -1 none */
  int join[2];    /* further rows the next one waits for, -1 none */
  MsPass pass;
  MsNode node;
  MsModule module;
  gboolean keeping;  /* forward rows keep tensors for backward (FALSE inside recomputed regions) */
  gboolean reviving; /* what a recomputed row would keep is noted in its keep_B (piece.c, revive) */
  /* sizes */
  double t, c, e, u;
  double rows, rows_sp, rows_expert; /* T, Tsp, Tk */
  double rows_routed;                /* Tsp k: rows that leave this rank */
  double rows_kept;                  /* Tk of the rank that keeps most, over all layers of its stage */
  double local_experts;              /* on this rank, replicas included */
  int shared;                        /* last row of the shared expert that runs beside the crossings, -1 = none */
  MsStream beside;                   /* stream of compute rows, MS_STREAM_COMPUTE */
  double h;
  double streams; /* residual streams of width h, 1 but with hyper-connections */
  double eh;      /* width of the routed experts' tokens: h, or the latent size */
  double act_B;   /* bytes of an activation element, 2 */
  gboolean sp;
  /* low precision of this piece */
  gboolean quantized;       /* GEMMs inside run in low precision */
  MsOpDtype odt;            /* of quantized GEMMs */
  double quant_B;           /* bytes per element of one direction of a quantised tensor, scales included */
  double row_align;         /* expert rows are padded to this, 0 = not */
  double router_padding;    /* rows that the router adds on each rank before they leave */
  const MsPacking *packing; /* set by who lowers layers */
  gboolean offload_all;     /* every kept tensor of the piece goes to the host (cpu_offloading_num_layers) */
} MsBuild;

/* A list row. The returned pointer is valid until the next row is laid down. */
MsOp *ms_row(MsBuild *b, MsOpKind kind, const char *name);
MsOp *ms_row_async(MsBuild *b, MsOpKind kind, const char *name, MsStream stream);
int ms_row_index(const MsBuild *b, const MsOp *op);
int ms_last_compute(const MsOpList *list); /* row on the compute stream; -1: none */
void ms_join(MsBuild *b, int row);         /* the next row also waits for `row` */

/* Rows of a rank run one after another: the machine is that of the executor, or one like it. */
static inline gboolean ms_serial(const MsBuild *b) { return b->scenario->hardware && b->scenario->hardware->serial; }

/* Memory-bound row over x elements-bytes. */
MsOp *ms_row_memory(MsBuild *b, MsOpKind kind, const char *name, double read_B, double write_B, int kernels);
/* A pass that a framework makes apart and the executor's kernels make with another row (exec/bind.c). A machine that
 * was measured with those kernels has none. */
void ms_row_passing(MsBuild *b, MsOpKind kind, const char *name, double read_B, double write_B, int kernels);
/* Layers that work batch first: with several sequences a microbatch what they read and give, so wide, is copied. */
void ms_row_batch_first(MsBuild *b, const char *name, double width);
/* What ranks of context parallelism exchange between slices of the sequence and heads, with the passes over it. */
typedef struct {
  int before, before_kernels; /* parts for each rank one behind another */
  int messages;
  int after, after_kernels; /* chunks of the sequence in order */
} MsExchange;
void ms_row_exchange(MsBuild *b, const MsExchange *of, const char *before, const char *message, const char *after,
                     double width);
/* Communication on its stream, exposed in the chain (becomes the tip). Returns NULL, and lays nothing down, when the
 * group has one rank. */
MsOp *ms_row_comm(MsBuild *b, MsOpKind kind, const char *name, MsStream stream, MsGroupKind group, double message_B);
MsOp *ms_row_comm_async(MsBuild *b, MsOpKind kind, const char *name, MsStream stream, MsGroupKind group,
                        double message_B);

/* Keeps a tensor at the last row laid down (forward), or gives it back at the last row (backward). Freeing what is not
 * kept does nothing. A tensor that is offloaded leaves in a row of its own and is not kept. */
void ms_keep(MsBuild *b, const char *name, double bytes_B);
void ms_send_copy(MsBuild *b, guint32 modules, double bytes_B); /* one of offload_modules sends what does not leave */
void ms_keep_throughout(MsBuild *b, const char *name, double bytes_B); /* from the first row of the list on */
void ms_free_kept(MsBuild *b, const char *name);

/* Linear layers: C[m,n] = A[m,k] W[n,k]^T. */
typedef enum { MS_LINEAR_PLAIN, MS_LINEAR_COLUMN, MS_LINEAR_ROW } MsLinearKind;
typedef struct {
  const char *name;    /* "qkv" */
  const char *comm_in; /* names of its TP collectives */
  const char *comm_out;
  MsLinearKind kind;
  double m, n, k;                       /* of the GEMM on this rank; m = gathered rows for column and row kinds */
  gboolean low;                         /* eligible for low precision */
  gboolean layer;                       /* of a layer: TP overlap may cut it into parts */
  gboolean input_quantized_by_producer; /* the norm or activation before it writes the quantised tensor */
  gboolean fused_norm; /* a norm in the same module feeds it, whose kernel finds the maximum that per-tensor scaling
                          needs (TransformerEngine from v2.8) */
  gboolean fused_accumulate; /* weight gradient goes straight into main_grad */
  gboolean model_flop;
  double part[3];      /* outputs of a fused layer apart, on this rank: q, k, v; gate, up */
  gboolean input_kept; /* somebody keeps the BF16 input anyway */
  gboolean gathered;   /* messages are no part of the module: in BF16, not in chunks, and an input that is gathered in
                          front of it is kept whole and not gathered again */
  gboolean adapter;    /* half of a low-rank adapter: trained where the layers are frozen */
  guint16 weight;      /* of an adapter: MS_OPF_* of its weight gradient, whose it is and how it is split */
} MsLinear;
/* A layer's linear: low precision where the piece has it, fused gradient accumulation, counted as model FLOP. */
MsLinear ms_linear_of(const char *name, MsLinearKind kind, double m, double n, double k);
void ms_layer_forward(MsBuild *b, const MsLinear *linear);
void ms_layer_backward(MsBuild *b, const MsLinear *linear);
/* With the adapters beside it, whose backward comes in front of its own (lora.c). */
void ms_linear_forward(MsBuild *b, const MsLinear *linear);
void ms_linear_backward(MsBuild *b, const MsLinear *linear);

/* A weight of `groups` blocks [n,k], each for its own m x k input (absorbed latent projections, grouped output
 * projection): one batched BF16 GEMM. */
typedef struct {
  const char *name;
  double m, n, k;
  int groups;
} MsBlockLinear;
void ms_block_linear_forward(MsBuild *b, const MsBlockLinear *l);
void ms_block_linear_backward(MsBuild *b, const MsBlockLinear *l);
/* Weight gradient only: the input of the linear is detached from what made it. */
void ms_linear_backward_weight(MsBuild *b, const MsLinear *linear);

/* Low-rank adapters (lora.c). The weights of the piece are frozen: no gradient, hence no input kept for one. */
static inline gboolean ms_frozen(const MsBuild *b) { return ms_lora_is_on(&b->training->lora); }
/* Beside a grouped product: one adapter for all experts of the rank (Megatron-Bridge). n: outputs per rank. */
void ms_lora_experts_forward(MsBuild *b, const char *row, double rows, double n, double k);
void ms_lora_experts_backward(MsBuild *b, const char *row, double rows, double n, double k);
/* What is kept for a weight gradient alone. */
void ms_keep_input(MsBuild *b, const char *name, double bytes_B);

/* Bytes kept for the input of a linear over `elements`: quantised when `low` and this piece is. */
double ms_input_B(const MsBuild *b, double elements, gboolean low);
/* Megatron-FSDP reduces the gradients of every microbatch and adds up what it keeps of them: a weight gradient
 * overwrites its buffer, which has the type on the wire (megatron_fsdp.py, overwrite_main_grad;
 * param_and_grad_buffer.py, main_grad_getter). */
static inline gboolean ms_overwrites(const MsBuild *b) {
  return ms_framework(b->scenario)->sums_once && b->options->fsdp >= MS_FSDP_OPTIM_GRADS;
}
double ms_gradient_B(const MsBuild *b, gboolean expert); /* of an element of that buffer, or of the main gradient */
/* Without fused accumulation a weight gradient is a BF16 tensor of its own, which a hook adds to the main gradient, or
 * which a sharded unit reduces over this group at once. */
void ms_row_accumulate(MsBuild *b, MsGroupKind reduced_in, double weights, int kernels);
/* Rows of the cast of a tensor of rows x width in front of a quantised GEMM. */
void ms_row_quantize(MsBuild *b, const char *name, double rows, double width);
/* Framework operators of a linear in this pass. */
int ms_linear_operators(const MsBuild *b);
/* Row of the scales of an operand of a quantised product, weights or not, `elements` in so many tensors, where the
 * release turns them in kernels of their own. */
void ms_row_swizzle(MsBuild *b, gboolean weights, double elements, int tensors);

/* Of a layer attention and every other product are kept, the rest is made again (recompute `operators`). */
static inline gboolean ms_by_operators(const MsBuild *b) { return ms_recomputes(b->options, MS_RM_OPERATORS); }

/* Blocks; each lays down its rows in b->list. */
void ms_attention_forward(MsBuild *b, int layer);
void ms_attention_backward(MsBuild *b, int layer);
void ms_dense_mlp_forward(MsBuild *b);
void ms_dense_mlp_backward(MsBuild *b);
void ms_moe_forward(MsBuild *b);
void ms_moe_backward(MsBuild *b);
void ms_mamba_forward(MsBuild *b);
void ms_mamba_backward(MsBuild *b);
void ms_delta_forward(MsBuild *b);
void ms_delta_backward(MsBuild *b);
void ms_norm_forward(MsBuild *b, const char *name, double rows, double width);
double ms_norm_saved_B(const MsBuild *b, double elements); /* what its backward reads, beside what it gave */
void ms_norm_backward(MsBuild *b, const char *name, double rows, double width);

/* Sparse attention behind an indexer (sparse.c) and DeepSeek-V4's attention (compressed.c): whole blocks, in place of
 * GQA or MLA. */
void ms_sparse_forward(MsBuild *b, int layer);
void ms_sparse_backward(MsBuild *b, int layer);
void ms_compressed_forward(MsBuild *b, int layer);
void ms_compressed_backward(MsBuild *b, int layer);
double ms_key_blocks(double keys); /* rounded up to what a kernel takes at a time */
void ms_pool_rows(MsBuild *b, const char *name, double width, double ratio);
/* Mean length of the packed sequences over the tokens of the rank that ends last, and how many a microbatch has. */
double ms_packed_length(const MsBuild *b);
double ms_packed_sequences(const MsBuild *b);
/* Model FLOP per token of a layer, with the actual lengths. */
double ms_flop_layer_packed(const MsModel *model, guint8 mixers, int layer, const MsPackLengths *lengths);
/* One attention row of `heads` query heads that share one key head: keys and values of width dqk (dv of it is the
 * value), `keys` of them per query. */
void ms_row_sparse_core(MsBuild *b, double heads, double dqk, double dv, double keys);
/* Rotary embedding by plain PyTorch operators: of `rotated` elements of queries and keys; `joined`: elements of what is
 * put together with them again, 0 where all of a head is rotated. */
void ms_row_plain_rope(MsBuild *b, double rotated, double joined);
typedef struct {
  double q_rank, per_key;
} MsIndexer; /* width of the latent that its queries come from; tokens in one of its keys */
void ms_indexer_forward(MsBuild *b, const MsIndexer *ix);
/* Its own loss: what attention gave to the chosen keys against what the indexer did. heads and dqk are those of the
 * attention. */
void ms_indexer_backward(MsBuild *b, const MsIndexer *ix, double heads, double dqk);

/* The modules of this layer are compiled one by one (indexed.c). */
static inline gboolean ms_modules_apart(const MsBuild *b) {
  return ms_framework(b->scenario)->torch_experts && b->piece->is_moe;
}

/* A layer that is computed again makes nothing that no gradient reads, or stops at the last tensor that one does
 * (describe/framework.h). */
static inline gboolean ms_drops_unread(const MsBuild *b) {
  switch (ms_framework(b->scenario)->again) {
  case MS_AGAIN_ALL:
  case MS_AGAIN_STOP: break;
  case MS_AGAIN_READ: return b->options->torch_compile && !ms_modules_apart(b);
  }
  return FALSE;
}
static inline gboolean ms_stops_early(const MsBuild *b) {
  return b->options->recompute_early_stop || ms_drops_unread(b);
}

/* Residual stream (hyper.c): in front of a sub-layer the streams are mixed into one (nothing to do with a plain
 * stream), behind it what it gives is added. */
typedef enum { MS_HALF_ATTENTION, MS_HALF_MLP } MsHalf; /* sub-layer */
void ms_residual_in(MsBuild *b, MsHalf half);
void ms_residual_out(MsBuild *b, MsHalf half, int adds); /* of so many sums of two tensors the last is the residual */
void ms_residual_out_backward(MsBuild *b, MsHalf half);
void ms_residual_in_backward(MsBuild *b, MsHalf half, int adds);
/* The input of a sub-layer and its norm are not kept: recompute `mhc`. */
gboolean ms_inputs_recomputed(const MsBuild *b);
void ms_streams_expand(MsBuild *b, gboolean back); /* behind the embedding */
void ms_streams_join(MsBuild *b, gboolean back);   /* in front of the final norm */

/* With deterministic_mode: what the operators of a list need beside themselves (deterministic.c). Rows are put in, and
 * waits renumbered. */
void ms_make_deterministic(const MsBuild *b, MsOpList *list);

/* What reaches the busiest rank (fan.c). Rows of the busiest expert rank over the mean; 1 where a budget or a capacity
 * makes all alike. */
double ms_rank_skew(const MsBuild *b);

/* Copies of a token that a dispatcher without duplicates sends: its expected distinct ranks and domains
 * (docs/theory/communication.md 5.3). With `skew` those of a rank, and of its domain, that draws `skew` times the mean
 * of visits: a token that chooses several experts there still comes once, and through the network once for the whole
 * domain, on the links of all its ranks. */
typedef struct {
  double ranks, domains, per_domain;
  double x_rank, x_domain;
} MsFan;
MsFan ms_fan_out(const MsBuild *b, double skew);

/* CUDA graphs of modules (graphs.c). */
/* In a MoE layer: not where the normed input is an output of a graph, which stays. */
gboolean ms_mlp_norm_recomputed(const MsBuild *b);
/* Row of the copy into a graph that begins with these blocks; FALSE: none begins there. Of gradients into the one that
 * ends with them, or in the router. */
gboolean ms_enter_graph(MsBuild *b, guint8 mixers);
void ms_reenter_graph(MsBuild *b, guint8 mixers);
void ms_reenter_router_graph(MsBuild *b);
void ms_keep_router_graph_outputs(MsBuild *b); /* of a graph that ends in the router */
void ms_keep_layer_graph_tensors(
    MsBuild *b,
    guint8 mixers); /* output of a graph that reaches to the end of the layer, inputs of the one that begins it */
void ms_free_graph_tensors(MsBuild *b);
void ms_graph_buffers(MsBuild *b, MsPiece *piece); /* piece->graph_B, when both lists are there */

/* Pieces. */
void ms_build_init(MsBuild *b, const MsScenario *scenario, const MsLayout *layout, gboolean quantized);
/* Drawn routing: routed rows of this layer on its hottest rank, which its time follows, and on the rank whose memory is
 * looked at. */
void ms_build_drawn(MsBuild *b, double hottest, double kept);
void ms_piece_embedding(MsBuild *b, MsPiece *piece);
void ms_piece_layer(
    MsBuild *b, MsPiece *piece, int layer,
    int checkpoint_group); /* group 0: not checkpointed, -1: a follower in a group, n: leads a group of n */
void ms_piece_mtp(MsBuild *b, MsPiece *piece);
void ms_piece_without_params(MsPiece *piece); /* a block that shares the weights of another */
void ms_piece_head(MsBuild *b, MsPiece *piece);
void ms_piece_scales(MsBuild *b, MsPiece *piece, double products); /* low-precision products on the rank */

/* Parameters of parts on one rank, shared with count.c. */
typedef struct {
  double dense, expert, quantizable_dense, quantizable_expert, replicated;
} MsPartParams;
double ms_norm_params(const MsModel *model, double width);
MsPartParams ms_attention_params(const MsModel *model, int layer,
                                 double t); /* layers from num_layers on are MTP blocks, here and below */
MsPartParams ms_mlp_params(const MsModel *model, double t);
MsPartParams ms_delta_params(const MsModel *model, double t);
MsPartParams ms_indexer_params(const MsModel *model, int layer);
MsPartParams ms_compressed_params(const MsModel *model, int layer);
double ms_hyper_params(const MsModel *model);      /* of one sub-layer; 0 with a plain residual stream */
double ms_hyper_head_params(const MsModel *model); /* of what joins the streams before the head */
MsPartParams ms_layer_params(const MsModel *model, guint8 mixers, int layer, double t, double e,
                             double u); /* norms included */
MsPartParams ms_moe_params(const MsModel *model, double t, double e, double u);

/* Model FLOP of one forward pass, whole batch of `tokens` with sequences of `seq` (count.c). */
double ms_flop_delta(const MsModel *model);                                  /* per token */
double ms_flop_compressed_linear(const MsModel *model, int layer);           /* per token */
double ms_flop_compressed_core(const MsModel *model, int layer, double seq); /* per token */
/* Query-key pairs of a query, mean over a whole sequence of `seq` tokens: half of it, w - w^2 / 2s with a window of w
 * tokens (the diagonal counts half in both); in chunks of w, half of each. */
double ms_model_pairs(const MsModel *model, int layer, double seq);
double ms_flop_attention_core(const MsModel *model, int layer, double seq); /* per token */

#endif
