/* src/plan/memo_priv.h - internal to plan/: pieces of one setting of the outer axes and the work keys, costed once. */
#ifndef MS_PLAN_MEMO_PRIV_H
#define MS_PLAN_MEMO_PRIV_H

#include "plan/piece_times_priv.h"

typedef struct MsPieceMemo MsPieceMemo;
struct MsPieceMemo {
  MsLayout *layout;
  MsWork *work;
  MsCost *cost;
  MsScenario *scenario; /* own copy: layout, work and cost point to it */
  int n;
  MsCostedPiece *piece; /* [n] */
  MsPieceLags *lags;
  MsPieceTime *time[2];                         /* [n], for whole and for split backwards; NULL until asked for */
  MsBusy *busy;                                 /* [n] by ms_memo_busy; NULL until asked for */
  MsTime ends[2];                               /* of them: what the sum of `direct` over a stage is less */
  GArray *cost_number;                          /* numbers of layer costs (memo.c) */
  double *kept, *dense, *expert, *low, *frozen; /* [n] bytes of a microbatch, parameters */
  double *buffers, *transient; /* [n] bytes beside them: ms_memory_piece_buffers_B; at the end of a chunk's forward */
  double *dense_tensors, *expert_tensors; /* [n] of trained parameters, whole */
  gboolean *unit;                         /* [n] what FSDP gathers and reduces at once */
  int *in_model;                          /* [n] how often the model has it */
};

/* [n], for whole or for split backwards; made when first asked for. Borrowed. */
const MsPieceTime *ms_memo_times(MsPieceMemo *memo, gboolean splits);
const MsBusy *ms_memo_busy(MsPieceMemo *memo); /* [n] what the passes of a microbatch keep busy */

/* `like` may be NULL: the first one of a search prepares the kernel curves that the others borrow. What
 * is known of pieces that are the same in `like` is taken over. */
MsPieceMemo *ms_memo_new(const MsScenario *scenario, const MsPieceMemo *like);
/* The same in two steps: what memory is bounded by, bytes and parameters; then cost, pieces, lags, and with them times.
 */
MsPieceMemo *ms_memo_begin(const MsScenario *scenario, const MsPieceMemo *like);
gboolean ms_memo_cost_pieces(MsPieceMemo *memo, const MsPieceMemo *like); /* TRUE if it has */
/* Groups of layers that are recomputed together depend on where the stages are cut; so does what a rank keeps when its
 * expert rows are drawn. */
gboolean ms_pieces_depend_on_cut(const MsScenario *scenario);
void ms_leave_pipeline_out(MsScenario *scenario); /* where they do not: one stage, 1F1B */
void ms_memo_free(MsPieceMemo *memo);

/* Kept for ms_cut_costs, by PP and the share of the optimizer that the host has, which the pieces do not depend on; -1:
 * not known. Until the next call. */
int *ms_memo_cost_number(MsPieceMemo *memo, int pp, double host_share);
/* Parameters that a GPU trains of one layer, or of embedding, head or MTP block `index`. */
double ms_memo_params(const MsPieceMemo *memo, MsPieceKind kind, int index, gboolean expert);
double ms_memo_tensors(const MsPieceMemo *memo, MsPieceKind kind, int index, gboolean expert); /* that hold them */
/* Picoseconds of one layer, or of embedding, head or MTP block `index`, for one microbatch, forward and backward, on
 * the machine of a pool (0 without pools): the larger of what the device takes and of what the host takes to issue it,
 * which then sets the pace. */
double ms_memo_layer(MsPieceMemo *memo, int pool, MsPieceKind kind, int index);
/* Its forward [0] and its backward [1] on the first machine, apart; NULL: there is no such piece. Borrowed. */
const MsPassPace *ms_memo_pace(MsPieceMemo *memo, MsPieceKind kind, int index);
typedef enum {
  MS_TOTAL_PRODUCTS, /* matrix products */
  MS_TOTAL_ROWS,     /* compute rows */
  MS_TOTAL_STREAM,   /* rows of the busiest stream */
  MS_TOTAL_HOST,     /* what the host takes to issue them */
  MS_TOTAL_SPAN      /* from the first to the last compute row of each piece */
} MsTotal;
/* Picoseconds of the whole model for so many microbatches, forward and backward: what the busiest stage of a pipeline
 * takes when that is an even share of them. With pools: a bound of that. Let a piece take r times as long on a machine
 * as on the fastest for it, at least, for all pieces; of the time T of a stage there no more than T / r is work of the
 * fastest. So the stages of pool i, a share g(i) of all, do g(i) / r(i) of their number, and the work is shared by the
 * sum of these. */
double ms_memo_total(MsPieceMemo *memo, MsTotal total, gboolean splits, double microbatches);
/* Picoseconds of one microbatch from the embedding to the loss and back, which no step is shorter than, however many
 * stages it passes: of matrix products, of compute rows, or (MS_TOTAL_SPAN) of each piece from its input to its output.
 * The first two leave out weight gradients, which nobody waits for at the end of a chunk; the last does where `splits`
 * or EP overlap may put them off. With pools each piece is on the fastest machine. */
double ms_memo_passage(MsPieceMemo *memo, MsTotal total, gboolean splits);

#endif
