/* src/step/pair.h - a forward piece beside a backward piece, with EP overlap: in which order their rows are issued. */
#ifndef MS_STEP_PAIR_H
#define MS_STEP_PAIR_H

#include "work/work.h"

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
