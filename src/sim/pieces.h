/* src/sim/pieces.h - what a planner asks of a scenario whose pieces it has costed for another one. */
#ifndef MS_SIM_PIECES_H
#define MS_SIM_PIECES_H

#include "bound/lags.h"
#include "sim/simulate.h"

typedef struct { /* borrowed */
  const MsWork *work;
  const MsCost *cost;
  MsCostedPiece *piece; /* [work->n_pieces] */
  MsPieceLags *lags;
} MsPiecesOf;
/* TRUE: pieces of a scenario without a pipeline (PP 1, 1F1B) are those of any pipeline. Not of delayed scaling, whose
 * scales a rank renews for all of its layers, of rows between replicas (the counts of a loss that balances experts over
 * the whole batch), of a table that is there once where both ends of the model stand on one
 * device, of drawn rows, or of machines of several kinds. */
gboolean ms_pieces_of_any_pipeline(const MsWork *work);
/* ms_screen with such pieces, of a scenario that differs in pipeline and schedule alone. */
gboolean ms_screen_pieces(const MsScenario *scenario, const MsPiecesOf *pieces, const MsWorth *worth, MsScreen *screen);

#endif
