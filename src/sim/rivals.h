/* src/sim/rivals.h - gathers and reductions of a stage's parameters, and optimizer states, beside its slots.
 *
 * They queue on their streams, share links with each other and with the rows of the slots, and take SMs from compute:
 * a queue served as a fluid, each row at the mean speed that its shares leave. */
#ifndef MS_SIM_RIVALS_H
#define MS_SIM_RIVALS_H

#include "step/program.h"

typedef struct {
  const MsCosted *list;
  int row;           /* of the list */
  int wait[3];       /* earlier rivals, -1 = none */
  MsTime ready, end; /* issued, and what else it waits for is over; end: -1 = not yet */
  double left;       /* picoseconds alone */
  int next;          /* of its stream, -1 = none yet */
} MsRival;

typedef struct {
  const MsMeets *meets;                       /* how rows share the network; NULL: in equal parts; borrowed */
  GArray *rows;                               /* MsRival, in the order of issue */
  int head[MS_N_STREAMS], last[MS_N_STREAMS]; /* first of each stream that has not ended, and last; -1 = none */
  int left;                                   /* have not ended */
  MsTime now;
} MsRivals;

enum { MS_N_LINKS = MS_N_USES - MS_USE_LINK0 }; /* uses from MS_USE_LINK0 on */
typedef struct { /* what runs beside a slot: SMs taken, rows on each link, of each class */
  int sms, link[MS_N_LINKS];
  guint8 running[MS_SHARING_CLASSES]; /* of rows that share by class: all 0 without `meets` */
} MsBeside;

typedef struct {
  double of[MS_N_LINKS]; /* share of the time in which others use each link */
  guint8 class;          /* of those that use the network most; MS_SHARING_NONE: of none */
} MsLinkUse;

MsRivals ms_rivals_new(const MsMeets *meets);
void ms_rivals_clear(MsRivals *rivals);
/* Behind those that are there on its stream; returns its index, for `wait` of others. */
int ms_rivals_add(MsRivals *rivals, const MsCosted *list, int row, MsTime ready, const int wait[3]);
/* What runs now. FALSE: nothing is left. */
gboolean ms_rivals_beside(const MsRivals *rivals, MsBeside *beside);
/* Goes on to `until`, or until what runs changes, beside others that use the links. */
void ms_rivals_go(MsRivals *rivals, MsTime until, const MsLinkUse *use);
void ms_rivals_alone(MsRivals *rivals, MsTime until); /* all the way, with the links to themselves */
/* How much longer a row of another kind (ms_row_kind) takes that needs a link for `alone`, if it begins now. */
MsTime ms_rivals_delay(const MsRivals *rivals, int use, guint8 kind, MsTime alone);
/* When the row ends if the stage waits for it. */
MsTime ms_rivals_end(MsRivals *rivals, int row);

#endif
