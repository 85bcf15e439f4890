/* src/exec/exec.h - a training step run for real: the operator list of a scenario, row by row, on this CPU and over the
 * ranks of mpirun.
 *
 * The rows are those of work/work.h in the order of the scenario's schedule; nothing else is computed and no message is
 * sent that has no row. Every row is looked up by kind, name, module and pass; a row that the executor does not know is
 * refused by its name before anything runs.
 *
 * What is checked while it runs (unless `unchecked`), each to the byte and to the FLOP:
 *   ledger    after every row the tensors that are held for backward (their element counts x the width that the list
 * declares) are what the rows said to keep and to free; a tensor that is kept and never read is an error too; messages
 * what every communication row handed to MPI is its message_B; FLOP      what the kernels counted in a row is its flop.
 * The list counts half of the causal triangle, s^2 / 2 pairs, so a query's own key counts half here; a window is
 * counted exactly. Weights are a function of (name of the parameter, global index of the element), tokens one of
 * (sequence, position): every layout trains the same model on the same batch. Routing "balanced" sends token i to the
 * experts (i k + j) mod E, with the weights that the router gives them; "natural" lets the router choose, and what
 * depends on how many rows come is then not compared. There is no auxiliary loss: the list has no message for it. The
 * loss is the mean over all tokens of the batch, MTP losses weighted MS_EXEC_MTP_WEIGHT / depth; the optimizer is Adam
 * with the norm of the gradient clipped to 1. */
#ifndef MS_EXEC_EXEC_H
#define MS_EXEC_EXEC_H

#include "blas/blas.h"
#include "work/work.h"

#define MS_EXEC_MTP_WEIGHT 0.1

typedef struct {
  MsBlasType type;  /* MS_BLAS_F32 or MS_BLAS_F64: of all tensors; bytes are counted with the declared widths */
  const char *blas; /* library, NULL = as ms_blas_open */
  int threads;      /* of the library on each rank, 0 = 1 */
  int steps;        /* 0 = 1; the same batch in every step */
  int warm_steps;   /* before them: pages are touched, memory is pooled; not counted in the times of steps and rows */
  gboolean unchecked, progress;
  gboolean reference;  /* run the reference kernel beside the steps: MsExecResult.reference_flops */
  gboolean spans;      /* keep when every row ran: MsExecResult.span */
  const char *dump;    /* write gradients and updated parameters of the last step there, NULL = not */
  const char *compare; /* compare them with such a file, NULL = not */
  const char *probe;   /* a matrix of the model, "layers.0.fc1", NULL = none: probe_by is added to its element probe_at
                          before the first step */
  gint64 probe_at;
  double probe_by;
  void (*edit)(MsWork *work, gpointer data); /* changes the list before it is read: tests of the checks */
  gpointer edit_data;
} MsExecOptions;

typedef enum {
  MS_EXEC_FORWARD,
  MS_EXEC_BACKWARD, /* of a piece */
  MS_EXEC_UNIT_GATHER,
  MS_EXEC_UNIT_REDUCE, /* of a piece, Megatron-FSDP */
  MS_EXEC_BEFORE,
  MS_EXEC_REDUCE,
  MS_EXEC_GATHER,
  MS_EXEC_AFTER, /* of the step */
  MS_EXEC_P2P,   /* the message between stages */
  MS_EXEC_N_LISTS
} MsExecList;
extern const char
    *const ms_exec_list_words[]; /* forward backward "unit gather" "unit reduce" before reduce gather after p2p */

typedef struct { /* one row, all its calls on this rank in all steps */
  MsExecList list;
  int piece, row; /* indexes into MsWork.pieces (-1: of the step) and into the list */
  MsOp op;        /* a copy; its name is static text */
  int calls;
  double cpu_s, wall_s;   /* sums over the calls; CPU time of the process */
  double least_wall_s;    /* of the fastest call */
  double flop, message_B; /* of one call, as done */
} MsExecRow;

typedef struct { /* one call of a row on this rank; seconds since its first counted step began */
  int row, step; /* index into MsExecResult.rows; counted steps from 0 */
  double start_s, end_s;
} MsExecSpan;

typedef struct {
  int ranks, own; /* in the run; the members below are the same on all ranks but where said */
  double loss;    /* of the last step, before its update; NaN while nothing was run */
  double gradient_norm;
  int steps, steps_asked;      /* done; fewer than asked for when it was stopped (ms_interrupted) */
  double *step_s, *step_cpu_s; /* [steps] the slowest rank's wall time; the least CPU time of a rank: those that
                                  wait poll, so what it lacks of the wall time is what its core did for others */
  double *reference_flops;     /* [steps] with `reference`: what the kernel reached beside each, the better of before
                                  and after it, as what disturbs a few milliseconds can only lower it; the slowest
                                  rank's; NULL without */
  double own_reference_flops;  /* of this rank: a step of the mean length had run at that speed; 0 without */
  int n_rows;
  MsExecRow *rows; /* of this rank */
  int n_spans;
  MsExecSpan *span;       /* with `spans`, in the order in which they ran; none overlaps another */
  double *own_start_s;    /* [steps] when this rank began each, on the same clock */
  double *peak_kept_B;    /* [ranks] most bytes held for backward at once */
  double *rank_flop;      /* [ranks] of one step, as counted by the kernels */
  double *rank_message_B; /* [ranks] of one step, as handed to MPI */
  double gradient_difference, parameter_difference; /* with `compare`: largest over matrices of max |a - b| / max |b| (b
                                                     * at least 1e-3 of the model's largest gradient); NaN without */
  double probe_gradient;                            /* of the probed element; NaN without */
  char *gradient_worst, *parameter_worst;           /* the tensors where; NULL without */
} MsExecResult;

/* Runs the scenario: alone (a layout of one GPU), or as one of the ranks that mpirun started, as many as the layout has
 * GPUs; every rank calls this with the same arguments after ms_ranks_begin (base/ranks.h). NULL and *error:
 * MS_ERROR_INPUT when a rule, a row or the number of ranks does not fit, MS_ERROR_ENV when the library or a file is
 * missing, MS_ERROR_NOTHING when a check fails (its message names rank, row, tensors and bytes). Several ranks: what
 * goes wrong on one only ends all of them there and then, with the message. (transfer full) */
MsExecResult *ms_exec_run(const MsScenario *scenario, const MsExecOptions *options, GError **error);
void ms_exec_result_free(MsExecResult *result);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsExecResult, ms_exec_result_free)

#endif
