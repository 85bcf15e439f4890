/* src/step/walk.h - the pieces of a turn (sched/walk.h), in the order in which they run.
 *
 * The only place that orders pieces within virtual stages: forward from the first to the last, backward from the last
 * to the first, and with EP overlap a forward chunk beside a backward chunk, layers in pairs.
 *
 *   MsPieceWalk w = ms_piece_walk(work, ms_chunks_of(work, turn));
 *   while (ms_piece_next(&w)) ... w.forward, w.backward */
#ifndef MS_STEP_WALK_H
#define MS_STEP_WALK_H

#include "sched/walk.h"
#include "work/work.h"

typedef struct {                     /* what decides the pieces of a turn */
  const MsChunk *forward, *backward; /* either may be NULL; both: one beside the other */
  MsSlotKind kind;                   /* of the backward: B, I or W */
  gboolean leaves_head; /* the backward leaves the head's weight gradient to the rows behind the last slot */
  gboolean first;       /* the forward is the first of its chunk in the step */
} MsChunks;
static inline MsChunks ms_chunks_of(const MsWork *work, const MsTurn *turn) {
  MsChunks of = {.kind = MS_SLOT_B, .first = turn->forward && turn->forward->nth == 0};
  if (turn->forward) of.forward = ms_layout_chunk(work->layout, turn->stage, turn->forward->chunk);
  if (!turn->backward) return of;
  of.backward = ms_layout_chunk(work->layout, turn->stage, turn->backward->chunk), of.kind = turn->backward->kind;
  of.leaves_head = of.backward->has_loss && turn->backward->nth < ms_work_deferred(work, turn->backward->of);
  return of;
}

typedef struct {
  int at;          /* place in its chunk, counted as the forward goes; -1: no piece */
  int piece;       /* of MsWork */
  MsSlotKind rows; /* that run: those of F, B, I or W; MS_N_SLOTS: none (the weight gradient of a head that is left) */
} MsPieceTurn;

typedef struct {
  const MsWork *work;
  MsChunks of;
  int next_f, next_b;            /* places that come next */
  MsPieceTurn forward, backward; /* both: one beside the other */
} MsPieceWalk;
MsPieceWalk ms_piece_walk(const MsWork *work, MsChunks of);
gboolean ms_piece_next(MsPieceWalk *walk); /* FALSE at the end */
/* The piece that the forward, or the backward, goes on with; -1: it has ended. */
int ms_piece_ahead(const MsPieceWalk *walk, gboolean backward);

/* Rows [*from, *to) of the step's overlapped gathers or reductions (MsStepOps) that begin with a piece of a chunk. */
void ms_bucket_rows(const MsBucket *at, int n, int chunk, int piece, int *from, int *to);
/* Behind the last row of the bucket that row `from` of n is in. */
int ms_bucket_end(const MsBucket *at, int n, int from);

/* The walks through both chunks are the same. */
gboolean ms_same_pieces(const MsWork *work, const MsChunk *a, const MsChunk *b);

/* Rows of a backward list that a slot takes: all (B), those of the input gradient (I), those of the weight gradients
 * (W). */
typedef enum { MS_LIST_ALL, MS_LIST_INPUT, MS_LIST_WEIGHT } MsListPart;
static inline MsListPart ms_list_part(MsSlotKind rows) {
  return rows == MS_SLOT_I ? MS_LIST_INPUT : rows == MS_SLOT_W ? MS_LIST_WEIGHT : MS_LIST_ALL;
}
static inline gboolean ms_in_list_part(const MsOp *op, MsListPart part) {
  return part == MS_LIST_ALL || (op->pass == MS_PASS_WGRAD) == (part == MS_LIST_WEIGHT);
}

#endif
