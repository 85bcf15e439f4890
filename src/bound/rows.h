/* src/bound/rows.h - one list, or a pair of lists, as the bounds read them. */
#ifndef MS_BOUND_ROWS_H
#define MS_BOUND_ROWS_H

#include "step/program.h"

typedef struct {
  gint32 wait[3]; /* earlier rows, then -1 */
  guint8 stream;
  gboolean beside; /* of the backward list of a pair */
  gboolean opens;  /* waits for what its list waits for */
  gboolean host_waits;
  guint16 sms;
  guint8 use, kind; /* MsUse; ms_row_kind */
  MsTime duration, launch;
} MsRow;
typedef struct {
  MsRow *row; /* [n], in the order in which they are issued */
  int n, capacity;
  int tip[2]; /* last row of the chain of the list (or the forward of a pair), and of the backward beside it; -1 = none
               */
  int *place; /* scratch */
} MsRows;
/* Rows of a list, or of a pair in the order in which they are issued (step/pair.h), in place of what *rows held, whose
 * memory is used again; of zeros at first. */
void ms_rows_of_list(MsRows *rows, const MsCosted *list, MsListPart part);
void ms_rows_of_pair(MsRows *rows, const MsCosted *forward, const MsCosted *backward, gboolean delay_wgrad);
void ms_rows_clear(MsRows *rows);
/* Of what rows of each stream take at most: all streams at once. */
static inline int ms_sum_sms(const int most[MS_N_STREAMS]) {
  int sum = 0;
  for (int s = 0; s < MS_N_STREAMS; s++) sum += most[s];
  return sum;
}

#endif
