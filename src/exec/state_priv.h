/* src/exec/state_priv.h - internal to exec/: one rank of a run, its parameters, its tensors, and the handlers of rows.
 *
 * Tensors are rows x width, row = position x batch + sequence (sequences side by side), as the kernels want them. A
 * tensor is found by its name in the frame of its piece and microbatch; gradients have the name of what they are the
 * gradient of with "d " in front. */
#ifndef MS_EXEC_STATE_PRIV_H
#define MS_EXEC_STATE_PRIV_H

#include "base/err.h"
#include "exec/comm.h"
#include "exec/exec.h"
#include "exec/kernel.h"
#include "step/walk.h"

#include <setjmp.h>

typedef struct Exec Exec;

/* --- tensors (tensor.c) ---------------------------------------------------------------------------------------- */

typedef struct {
  void *data;
  size_t size_B;
  int refs;
} Buffer; /* data is aligned to 64 */

typedef struct {
  const char *name; /* static or interned */
  Buffer *buffer;
  gint64 n;       /* elements */
  double width_B; /* as the list declares it; the element in memory is a real, or what ms_exec_new was told */
  gboolean read;  /* by a row since it was made, or since forward ended */
} Tensor;

typedef struct {
  Tensor *t;
  int n, capacity;
} Store;

void *ms_exec_new(Exec *x, const char *name,
                  gint64 n); /* real elements of 2 declared bytes; replaces one of that name; not cleared */
void *ms_exec_new_typed(Exec *x, const char *name, gint64 n, size_t element_B, double width_B);
void *ms_exec_get(Exec *x, const char *name, gint64 n); /* fails the run when it is not there, or has another size */
void *ms_exec_find(Exec *x, const char *name);          /* NULL when it is not there */
gint64 ms_exec_length(Exec *x, const char *name);
void ms_exec_width(Exec *x, const char *name, double width_B);
void ms_exec_rename(Exec *x, const char *from, const char *to); /* replaces `to` */
void ms_exec_share(Exec *x, const char *from, const char *to);  /* a second name of the same elements */
void ms_exec_drop(Exec *x, const char *name);                   /* nothing when it is not there */
void *ms_exec_scratch(Exec *x, gint64 n);                       /* real elements, gone after the row */
void *ms_exec_scratch_B(Exec *x, size_t size_B);
/* d += from over n elements; `name` becomes `from` (scratch or a tensor's elements, copied) when there was none. */
void ms_exec_accumulate(Exec *x, const char *name, const void *from, gint64 n);

Tensor *ms_store_find(Store *store, const char *name);
void ms_store_move(Exec *x, Store *from, const char *name, Store *to,
                   const char *as); /* fails the run when it is not there */
void ms_store_share(Exec *x, Store *from, const char *name, Store *to, const char *as);
void ms_store_drop(Exec *x, Store *store, int index);
void ms_store_clear(Exec *x, Store *store);

/* --- parameters (params.c) ------------------------------------------------------------------------------------- */

typedef struct {     /* rows of a local matrix that are part of a matrix of the model */
  const char *name;  /* of the model's matrix, interned */
  gint64 rows, cols; /* here */
  gint64 row, col;   /* of its first element there */
  gint64 model_rows, model_cols;
} Segment;

typedef struct {
  const char *name; /* short: "qkv" */
  gboolean expert, replicated /* over TP: the same on all its ranks */, copy /* of a parameter of another stage */;
  gint64 rows, cols; /* all segments together */
  int n_segments;
  Segment *segment;
  gint64 at; /* first element in Flat */
  int alias; /* a parameter of another piece is meant: index of its piece instance, -1 = own elements */
} Param;

typedef struct {
  gint64 n;
  void *param, *grad;
} Flat; /* dense, expert */

typedef struct {            /* parameters that are reduced, updated and gathered together */
  int kind;                 /* of Flat */
  int bucket, chunk, piece; /* number of the bucket and where it begins; 0, -1, -1 when all are reduced together */
  gint64 from, n;           /* elements of Flat */
  gint64 shard, *counts;    /* first element of this rank's shard; elements of those of all ranks [ranks of its group];
                               NULL when not sharded */
  gint64 own, n_own;     /* part that this rank updates: its shard, half of it beside DualPipe's other owner, or all */
  gint64 other, n_other; /* the half of that owner */
  gboolean counted; /* this rank stands for the range in the norm: where it is not sharded, one of those that hold it */
  void *m, *v, *master; /* [n_own] */
} Range;

typedef struct { /* a piece of one of this stage's chunks, with its parameters */
  int piece;     /* of MsWork.pieces */
  int chunk, at; /* forward index in the chunk */
  int layer;     /* of the model; MTP block i is num_layers + i; -1 for the ends */
  guint8 mixers;
  int n;
  Param *param;
  gint64 from[2], count[2]; /* own elements in each Flat */
} Instance;

typedef struct { /* what cuts the parameters of one rank */
  int t, ti, e, ei, u, ui;
} Cut;

/* Parameters of one piece as it stands on a rank; `head_table`: the head has a table of its own. */
void ms_exec_piece_params(const MsModel *model, Instance *piece, MsPieceKind kind, const Cut *cut, int padded_vocab,
                          gboolean head_table, int positions);
void ms_exec_params_new(Exec *x);
void ms_exec_params_free(Exec *x);
void *ms_exec_param(Exec *x, const char *name); /* of the piece at work; the run fails when it has none */
void *ms_exec_grad(Exec *x, const char *name);
const Param *ms_exec_param_find(const Exec *x, const char *name); /* NULL when it has none */
/* Calls `see` for the parts of [from, from + n) of a Flat that this rank stands for in sums over the whole model. */
typedef void (*ExecPart)(Exec *x, const Param *param, gint64 from, gint64 n, gpointer data);
void ms_exec_counted(Exec *x, int kind, gint64 from, gint64 n, ExecPart see, gpointer data);

/* --- rows ------------------------------------------------------------------------------------------------------ */

typedef enum { LINEAR_PLAIN, LINEAR_COLUMN, LINEAR_ROW } LinearKind;
typedef struct {
  const char *name; /* of its GEMM rows */
  int module;       /* -1: any */
  LinearKind kind;
  const char *in, *out; /* tensors */
  const char *d_in, *d_out;
  const char *gathered_in, *gathered_d_out; /* with sequence parallelism */
  const char *weight, *bias;                /* parameters; the bias may be absent */
  gboolean keeps_d_out;                     /* others read it too */
  gboolean keeps_gathered;                  /* its backward has what was gathered forward */
} Linear;

typedef void (*RowFunc)(Exec *x);
typedef struct {
  guint8 kind;
  const char *name;
  int module;
  guint passes;
  RowFunc run;
} Handler; /* module -1: any; passes: bits of MsPass */
enum {
  PASS_F = 1 << MS_PASS_FORWARD | 1 << MS_PASS_RECOMPUTE,
  PASS_D = 1 << MS_PASS_DGRAD,
  PASS_W = 1 << MS_PASS_WGRAD,
  PASS_O = 1 << MS_PASS_OPTIMIZER
};
extern const Handler ms_exec_linear_rows[], ms_exec_attention_rows[], ms_exec_moe_rows[], ms_exec_end_rows[],
    ms_exec_step_rows[];              /* end with a NULL run */
extern const Handler ms_exec_p2p_row; /* of the message between stages, which is in no list */

typedef struct {
  const MsOp *op;
  const Handler *handler;
  const Linear *linear; /* that it belongs to, NULL = none */
  int turn; /* how many rows before it in the list have the same kind, name and pass since another compute row: hops of
               a ring, second products */
  int result; /* index into the result's rows */
} Row;
typedef struct {
  const MsOpList *list;
  Row *row;
  int n;
} RowList;

/* Handlers of a list, or FALSE and an MS_ERROR_INPUT that names the row without one. */
gboolean ms_exec_bind(Exec *x, const MsOpList *list, RowList *out, const char *where, GError **error);
const Linear *ms_exec_linear(Exec *x, const MsOp *gemm, int turn); /* NULL when none is known */
/* Our tensors of a kept one, NULL-terminated, those of them that there are; NULL when the executor knows none. own[]:
 * room for its own name. */
const char *const *ms_exec_kept_parts(const Exec *x, const MsKept *kept, const char *own[2]);

/* --- routing of one MoE layer and microbatch, known to the host ------------------------------------------------ */
typedef struct Routing Routing;
void ms_exec_routing_free(Routing *routing);

typedef struct { /* one microbatch in one chunk */
  int length;
  Store stream;      /* between pieces: "hidden", "d hidden", ... */
  Store *piece;      /* [length] */
  Routing **routing; /* [length] */
} Microbatch;

typedef struct {
  RowList forward, backward;
} PieceRows;

struct Exec {
  const MsScenario *scenario;
  const MsModel *model;
  const MsLayout *layout;
  MsWork *work;
  const MsExecOptions *options;
  MsSchedule *schedule;
  const MsKernels *k;
  MsKernelRun run;
  MsComm *comm;
  int rank, stage, ti, ci, di; /* place in the attention grid */
  int ei, ui, qi;              /* EP, ETP, EDP place */
  /* sizes */
  gint64 s, b, h, t, c, T, Tsp; /* T rows without sequence parallelism, Tsp rows between layers */
  gboolean sp;
  gint32 *pos;     /* [s / c] positions of this rank, in order of its rows */
  gint32 *row_pos; /* [T] position of each row */
  /* parameters */
  int n_instances;
  Instance *instance;
  int *instance_at; /* [vpp] first of each chunk */
  Flat flat[2];
  int n_ranges;
  Range *range;
  /* rows */
  PieceRows *piece_rows; /* [work->n_pieces] */
  MsStepOps step_ops;
  RowList before, reduce, gather, after, p2p_rows;
  MsOp p2p;
  int p2p_to, p2p_tag; /* of the message being sent */
  const char *p2p_name;
  Microbatch *microbatch; /* [vpp * microbatches] */
  /* at work */
  Instance *now;
  Microbatch *mb;
  int mb_index, chunk;
  Store *frame; /* of tensors that rows name */
  const Row *row;
  gboolean backward, split; /* split: input gradients and weight gradients in slots of their own */
  double message_B;         /* of the row: handed to MPI */
  double said_message_B; /* what it is compared with where the row's own is an expectation, or no message of ranks; NaN
                            = the row's own */
  double beside_B;       /* to other ranks beside message_B: metadata of a dispatcher */
  int step;
  MsSlotWalk *walk; /* through the slots of this step */
  int bucket;       /* that rows of the step are about, -1: all */
  int mirror;       /* rank of DualPipe's other owner */
  Linear *head;     /* [1 + MTP blocks] */
  double row_flop;  /* of the row by the registry's rule, where the kernel counts more (tiles of attention); NaN = as
                       counted */
  double loss;      /* sum over this rank's tokens in this step */
  double norm, clip;
  /* ledger */
  double kept_B, said_B, peak_B, step_message_B, step_flop;
  double *timeline; /* of the stage, as the memory model has it */
  char *note;       /* part of a message, kept here because the jump out passes automatic variables by */
  /* memory */
  GHashTable *pool;   /* size -> GPtrArray of free blocks */
  GPtrArray *blocks;  /* all of them */
  GPtrArray *scratch; /* Buffers of the row */
  GArray *results;    /* MsExecRow */
  GArray *spans;      /* MsExecSpan */
  double since_s; /* when the first counted step began, on CLOCK_MONOTONIC, and what the reference kernel took since */
  jmp_buf fail;
  GError *error;
};

/* Ends the run: one rank jumps back into ms_exec_run, several are all ended. */
G_NORETURN void ms_exec_fail(Exec *x, MsErrorCode code, const char *format, ...) G_GNUC_PRINTF(3, 4);
const char *ms_exec_row_text(const Exec *x);                 /* "row 12, gemm \"qkv\" (dgrad) of moe layer" */
void ms_exec_sent(Exec *x, double elements, double width_B); /* counts what the row handed to MPI */

/* --- blocks of elements (block.c): copies and sums that are no kernels of a row of their own ------------------- */
static inline void *ms_exec_at(const Exec *x, const void *p, gint64 i) { return (char *)p + i * (gint64)x->k->real_B; }
/* `width` elements of each of `rows` rows, strides in elements. */
void ms_exec_copy(const Exec *x, gint64 rows, gint64 width, const void *from, gint64 from_stride, void *to,
                  gint64 to_stride);
void ms_exec_add_to(const Exec *x, gint64 rows, gint64 width, const void *from, gint64 from_stride, void *to,
                    gint64 to_stride);
void ms_exec_add_row(const Exec *x, gint64 rows, gint64 width, const void *row, void *to);   /* to[i][j] += row[j] */
void ms_exec_sum_rows(const Exec *x, gint64 rows, gint64 width, const void *from, void *to); /* to[j] += sum over i */
void ms_exec_fill(const Exec *x, gint64 n, double value, void *to);
double ms_exec_read(const Exec *x, const void *p, gint64 i);
void ms_exec_write(const Exec *x, void *p, gint64 i, double value);

/* --- handlers of one file that others use ---------------------------------------------------------------------- */
void ms_exec_linear_dgrad(Exec *x);
const Linear *ms_exec_head(Exec *x, int copy);
void ms_exec_tp_gather(Exec *x, const char *from, const char *to); /* shards of rows to all rows */
/* Sum over TP of `part`: shards of rows (reduce-scatter row), or everything (all-reduce row). Replaces `to`, or adds to
 * it. */
void ms_exec_tp_sum(Exec *x, const char *part, const char *to, gboolean add);
void ms_exec_norm(Exec *x, gint64 rows, gint64 width, const char *gain, const char *bias, const void *in, void *out);
void ms_exec_norm_back(Exec *x, gint64 rows, gint64 width, const char *gain, const char *bias, const void *in,
                       const void *d_out, void *d_in);
gboolean ms_exec_natural(const Exec *x); /* the router chooses */
MsKernelActivation ms_exec_activation(const Exec *x);
void ms_exec_positions(const Exec *x, int first, int n, gint32 *to); /* that CP ranks first .. first + n - 1 hold */

#define MS_EXEC_EPSILON    1e-5
#define MS_EXEC_ROPE_BASE  10000.0
#define MS_EXEC_CLAMP      7.0 /* of GPT-OSS's activation; others have none */
#define MS_EXEC_MIRROR_TAG 30000

/* --- the batch ------------------------------------------------------------------------------------------------- */
gint64 ms_exec_sequence(const Exec *x, int mb, int b); /* global number of the b-th sequence of a microbatch */
gint32 ms_exec_token(const Exec *x, gint64 sequence, gint64 position);
double ms_exec_weight(const char *name, gint64 index); /* uniform in [-1, 1), from the name and the global index */

/* --- one list (rows.c), a step (step.c), results (dump.c) ------------------------------------------------------ */
void ms_exec_rows(Exec *x, const RowList *rows, int from, int to, MsListPart part,
                  const MsPiece *piece);                    /* piece NULL: rows of the step */
void ms_exec_forward_ended(Exec *x, const MsPiece *piece);  /* drops what is not kept */
void ms_exec_backward_ended(Exec *x, const MsPiece *piece); /* everything must have been given back */
void ms_exec_scratch_clear(Exec *x);
void ms_exec_step(Exec *x);
gboolean ms_exec_dump(Exec *x, MsExecResult *result, GError **error);

static inline gboolean ms_exec_has_mlp(const Exec *x) { return (x->now->mixers & (MS_MIX_MLP | MS_MIX_MOE)) != 0; }

#endif
