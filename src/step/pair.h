/* src/step/pair.h - a forward chunk beside a backward chunk, with EP overlap: which pieces go in pairs, and in which
 * order the rows of a pair are issued. */
#ifndef MS_STEP_PAIR_H
#define MS_STEP_PAIR_H

#include "work/work.h"

typedef struct {
  const MsChunk *forward, *backward;
  int next_f,
      next_b; /* the pieces that come next, numbers within their chunk; next_f = its length, next_b = -1 at the end */
  int f, b;   /* of this step: both, or one of them beside -1 */
} MsPairWalk;
MsPairWalk ms_pair_walk(const MsChunk *forward, const MsChunk *backward);
gboolean ms_pair_step(MsPairWalk *walk); /* FALSE at the end */

/* Where the nodes of the schedule begin in a list: rows [cut[s], cut[s + 1]) are one. */
enum { MS_PAIR_NODES = 4 };
void ms_pair_cut(const MsOpList *list, gboolean backward, int cut[MS_PAIR_NODES + 1]);

typedef struct {
  gboolean backward;
  int row;
} MsPairRow;
/* The order in which the rows of a forward list and a backward list beside it are issued; order[] has room for all of
 * them. Returns how many. */
int ms_pair_order(const MsOpList *forward, const MsOpList *backward, gboolean delay_wgrad, MsPairRow *order);

#endif
