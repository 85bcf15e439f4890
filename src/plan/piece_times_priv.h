/* src/plan/piece_times_priv.h - internal to plan/: picoseconds of one piece. */
#ifndef MS_PLAN_PIECE_TIMES_PRIV_H
#define MS_PLAN_PIECE_TIMES_PRIV_H

#include "bound/bound.h"

typedef struct { /* one pass among many of its kind, no bound: for cuts */
  MsTime device; /* what the device takes */
  MsTime host;   /* what the host takes: no less than the device where it waits for that within */
  MsTime late;   /* the device ends so long after the host, or more */
  MsTime early;  /* the host begins so long before the device, or less; MS_NEVER_EARLY: it does not wait */
} MsPassPace;
#define MS_NEVER_EARLY ((MsTime)1 << 60)
typedef struct {       /* both passes */
  MsTime direct, line; /* the larger of the sums of either counts; line 0: only the first holds. With EP overlap
                        * `direct` may be negative: what turns cost one another counts where it is less than nothing */
  MsTime lone[2];      /* on top of `direct` for a forward and for a backward with no other beside it */
  MsTime start, end;   /* off `line` for the first and last piece of each chunk */
  MsTime ahead;        /* from its input to its output, alone */
  MsTime passage;      /* the same, whatever the schedule does with its weight gradients: no more than `ahead` */
  MsTime late;         /* of that, at most after its backward has handed on its gradient */
  MsTime usual;        /* no bound: what it usually adds to its stage, for cuts balanced by cost */
  MsPassPace pace[2];  /* of its forward and its backward */
  MsTime issue;        /* what the host takes at least to issue both passes */
} MsPieceTime;
/* How often each piece stands in the whole model: [n_pieces]. (transfer full) */
int *ms_pieces_of_model(const MsWork *work);
/* So many of each of n pieces: the sum of `direct`, or of `issue`. */
double ms_piece_times_sum(const MsPieceTime *time, const int *count, int n, gboolean of_host);
/* `splits`: the schedule may run a backward as its input gradients and, later, its weight gradients. Returns what the
 * sum of `direct` over a stage may be too much by. */
MsTime ms_piece_times(const MsWork *work, const MsCostedPiece *piece, MsPieceLags *lags, gboolean splits,
                      MsPieceTime *time);

#endif
