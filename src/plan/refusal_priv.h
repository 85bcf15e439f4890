/* src/plan/refusal_priv.h - internal to plan/: refusals counted by rule, one example of each kept as numbers and worded
 * at the end. */
#ifndef MS_PLAN_REFUSAL_PRIV_H
#define MS_PLAN_REFUSAL_PRIV_H

#include "plan/candidate_priv.h"
#include "plan/plan.h"

typedef struct {
  guint64 count, order;
  double miss;
  MsCandidate example;
} MsRefused;
typedef struct {
  int n;
  MsRefused *row;
} MsRefusedTable; /* row = number of the rule, or ms_num_rules + MS_REFUSED_... */

void ms_refused_init(MsRefusedTable *table);
void ms_refused_clear(MsRefusedTable *table);
/* Keeps the example that missed by least, of equals the first in `order`; so tables can be added up in any order. */
void ms_refused_add(MsRefusedTable *table, int row, guint64 count, double miss, guint64 order,
                    const MsCandidate *example);
void ms_refused_merge(MsRefusedTable *into, const MsRefusedTable *from);
void ms_refused_gather(MsRefusedTable *into, const MsRefusedTable *own); /* `own` of every rank */
void ms_plan_sort_refusals(MsPlan *plan);                                /* by descending count */
/* Words them, sorted. */
void ms_refused_hand_over(const MsRefusedTable *table, const MsSpace *space, const MsPlanOptions *options,
                          MsPlan *plan);

#endif
