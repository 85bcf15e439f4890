/* src/work/matrices.h - internal to work/: the matrices that Muon steps, and which of them one rank has. */
#ifndef MS_WORK_MATRICES_H
#define MS_WORK_MATRICES_H

#include "work/work.h"

typedef struct { /* matrices of one shape; m <= n, whole: over all tensor-parallel ranks */
  double m, n;
  double count;         /* of the stage, on one rank */
  double parts;         /* tensor-parallel ranks that a matrix is split over, 1 = not split */
  gboolean short_split; /* along m */
  gboolean expert;      /* split over expert-tensor-parallel ranks, sharded over expert-data-parallel ones */
  double share;         /* of the rank that has most to multiply: ms_matrices_share */
} MsMatrices;

/* Those of the layers of a stage, MsMatrices. (transfer full) */
GArray *ms_matrices_of(const MsWork *work, int stage);
double ms_matrices_params(const MsMatrices *matrices); /* elements on one rank */
/* Shares of the dense ones, or of those of experts, over so many shards of the optimizer. */
void ms_matrices_share(GArray *all, gboolean expert, double shards);

enum { MS_NEWTON_SCHULZ_ITERATIONS = 5 }; /* Megatron-LM core/optimizer/optimizer_config.py, muon_num_ns_steps */

#endif
