/* src/work/op.h - an operator row, lists of them, and the piece whose lists they are. */
#ifndef MS_WORK_OP_H
#define MS_WORK_OP_H

#include <glib.h>

/* Rows of describe/op.def */
typedef enum {
#define OP(id, word, family, curves, doc) MS_OP_##id,
#include "describe/op.def"
#undef OP
  MS_N_OPS
} MsOpKind;
typedef enum {
  MS_FAMILY_GEMM,
  MS_FAMILY_GROUPED,
  MS_FAMILY_ATTENTION,
  MS_FAMILY_MEMORY,
  MS_FAMILY_COMM,
  MS_FAMILY_HOST
} MsOpFamily;
extern const char *const ms_op_words[];
extern const char *const ms_op_docs[];
extern const MsOpFamily ms_op_families[];

typedef enum {
  MS_PASS_FORWARD,
  MS_PASS_RECOMPUTE,
  MS_PASS_DGRAD,
  MS_PASS_WGRAD,
  MS_PASS_OPTIMIZER,
  MS_N_PASSES
} MsPass;
extern const char *const ms_pass_words[]; /* forward recompute dgrad wgrad optimizer */

/* Streams of one rank; rows of one stream run in list order, rows of different streams overlap */
typedef enum {
  MS_STREAM_COMPUTE,
  MS_STREAM_TP,
  MS_STREAM_CP,
  MS_STREAM_EP,
  MS_STREAM_DP,
  MS_STREAM_EDP,
  MS_STREAM_PP_SEND,
  MS_STREAM_PP_RECV,
  MS_STREAM_SIDE,
  MS_STREAM_D2H,
  MS_STREAM_H2D,
  MS_STREAM_STATES, /* optimizer states to the host, and back: in this order */
  MS_N_STREAMS
} MsStream;
extern const char *const ms_stream_words[];

/* Sub-modules of a layer in EP overlap (docs/theory/communication.md 8), also used by graphs, recompute
 * and breakdowns */
typedef enum {
  MS_NODE_ATTN /* A: everything before dispatch */,
  MS_NODE_DISPATCH /* D */,
  MS_NODE_EXPERTS /* M */,
  MS_NODE_COMBINE /* C */,
  MS_NODE_POST /* P */,
  MS_N_NODES
} MsNode;

typedef enum {
  MS_MODULE_NONE,
  MS_MODULE_EMBEDDING,
  MS_MODULE_ATTN,
  MS_MODULE_MLP,
  MS_MODULE_ROUTER,
  MS_MODULE_PREPROCESS,
  MS_MODULE_SHARED,
  MS_MODULE_MOE /* dispatch, experts, combine */,
  MS_MODULE_HEAD,
  MS_MODULE_MTP,
  MS_MODULE_MAMBA,
  MS_MODULE_DELTA,
  MS_MODULE_STEP,
  MS_N_MODULES
} MsModule;
extern const char *const ms_module_words[];

/* MsOp.flags */
enum {
  MS_OPF_SYNC = 1,            /* the host waits until this row has ended before it issues the next one */
  MS_OPF_WEIGHT = 2,          /* a GEMM that reads a weight [n,k] (counts for weights, dummy wgrad, FLOP) */
  MS_OPF_QUANTIZED = 4,       /* runs in the scenario's low precision */
  MS_OPF_ACCUMULATE = 8,      /* adds into the main gradient */
  MS_OPF_MODEL_FLOP = 16,     /* counted by the published FLOP convention */
  MS_OPF_PARTS = 32,          /* a GEMM whose groups are products of their own, one after another */
  MS_OPF_ROWS_SPLIT = 64,     /* of a weight gradient: its outputs are those of one tensor-parallel rank */
  MS_OPF_COLUMNS_SPLIT = 128, /* its inputs are */
  MS_OPF_EXPERT = 256         /* of a weight gradient: the weight is one of routed experts, sharded as theirs are */
};

double ms_element_B(int dtype); /* bytes of one element of such an operand, scales included */

typedef struct MsOp {
  const char *name; /* "qkv", "expert fc1", "dispatch": static text */
  guint8 kind, pass, stream, group, node, module, dtype;
  guint16 flags;
  guint16 kernels;  /* GPU kernels launched, each as much work of the host as a framework operator */
  guint16 launches; /* GPU kernels that the device starts one behind another, where they are more */
  guint16 host;     /* framework operators of the host beside what it launches them by */
  gint16 wait[3];   /* earlier rows of the same list that must have ended, -1 = none. (Rows of one stream follow each
                       other anyway.) */
  /* shape: GEMM C[m,n] = A[m,k] B[n,k]^T; grouped: `groups` GEMMs with m rows in total; attention: see below; others:
   * elements m x n */
  double m, n, k;
  int groups;             /* local experts; attention: batch x heads on this rank */
  int kv_groups;          /* attention: KV heads on this rank */
  double flop;            /* executed, 2 per multiply-add; causal attention counts the lower triangle */
  double read_B, write_B; /* HBM traffic, ideal */
  double message_B; /* communication: M of docs/theory/communication.md (AG output, RS input, AR buffer, all-to-all send
                       total, p2p) */
  double local_fraction; /* all-to-all: share of message_B that stays on the rank */
  double level_B[2];     /* dispatch/combine with de-duplication: bytes over the scale-up link, over the network; 0,0 =
                            derive from message_B */
  double keep_B;         /* bytes that start to be kept for backward when this row ends */
  double free_B;         /* kept bytes released when this row ends */
  double transient_B;    /* alive only while this row runs */
} MsOp;

/* Tokens on their way to experts and back. */
static inline gboolean ms_op_moves_tokens(const MsOp *op) {
  return op->kind == MS_OP_DISPATCH || op->kind == MS_OP_COMBINE;
}
/* dispatch and combine by DeepEP or HybridEP: m = token rows of this rank, n = bytes of one; */
/* attention rows: m = query rows per sequence on this rank (s/c), n = KV rows seen (s, or the window), k = head dims
 * dqk + dv */

typedef struct {
  MsOp *op;
  int n, capacity;
  int tip; /* last row of the dependency chain: what follows the list waits for it; -1 when empty */
} MsOpList;

typedef struct { /* a tensor that forward keeps for backward; sums equal the keep_B of the rows */
  const char *name;
  double bytes_B;
  guint8 module;
  int kept_at,
      freed_at; /* row of the forward list whose end keeps it, and of the backward list whose end gives it back */
} MsKept;

typedef enum { MS_PIECE_EMBEDDING, MS_PIECE_LAYER, MS_PIECE_MTP, MS_PIECE_SCALES, MS_PIECE_HEAD } MsPieceKind;

typedef struct MsPiece {
  MsPieceKind kind;
  char name[48]; /* "moe layer", "dense layer, bf16" */
  gboolean is_moe;
  MsOpList forward;
  MsOpList backward;     /* recompute, dgrad and wgrad rows in issue order */
  MsOpList reload;       /* kept tensors that the forward sent to the host, fetched before the backward */
  double graph_B;        /* static gradients of its CUDA graphs and what their backward of attention needs for itself
                            (graphs.c): once for all layers */
  double offload_B;      /* bytes of them: on the device while the piece works */
  double offload_copy_B; /* of these of copies: beside the tensor itself only on their way back */
  int n_kept;
  MsKept *kept;
  double kept_B; /* sum over kept: one microbatch */
  /* parameters on this rank */
  double params_dense; /* all but routed experts */
  double params_expert;
  double params_quantizable_dense, params_quantizable_expert; /* of those, GEMM weights that low precision stores */
  double params_frozen, params_frozen_expert; /* weights without gradients and optimizer states, beside the others; of
                                                 the first none, of the second all are of routed experts */
  double adapters_dense, adapters_expert; /* while a piece is laid down: what of it is trained with frozen weights */
  double params_tp_replicated;            /* identical on all TP ranks: their gradients are summed over TP at the end */
  double params_model_dense, params_model_expert; /* before sharding, whole piece */
  double
      model_flop; /* forward, per microbatch and whole model replica, by the published convention (x3 for the step) */
  double forward_transient_B, backward_transient_B; /* largest coinciding transients, docs/theory/memory.md 7 */
} MsPiece;

void ms_ops_clear(MsOpList *list);

#endif
