/* src/plan/memo_priv.h - internal to plan/: what is known of costed pieces, for those who bound with it. */
#ifndef MS_PLAN_MEMO_PRIV_H
#define MS_PLAN_MEMO_PRIV_H

#include "plan/plan_priv.h"

struct MsPieceMemo {
  MsLayout *layout;
  MsWork *work;
  MsCost *cost;
  MsScenario *scenario; /* own copy: layout, work and cost point to it */
  int n;
  MsCostedPiece *piece; /* [n] */
  MsPieceLags *lags;
  MsPieceTime *time[2];                         /* [n], for whole and for split backwards; NULL until asked for */
  GArray *cost_number;                          /* numbers of layer costs (memo.c) */
  double *kept, *dense, *expert, *low, *frozen; /* [n] bytes of a microbatch, parameters */
};

/* [n], for whole or for split backwards; made when first asked for. Borrowed. */
const MsPieceTime *ms_memo_times(MsPieceMemo *memo, gboolean splits);

#endif
