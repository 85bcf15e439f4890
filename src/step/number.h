/* step/number.h - lists with the same rows that cost the same have the same number, in all runs of a process. What
 * follows from lists is kept by their numbers (base/kept.h). Any number of threads. */
#ifndef MS_STEP_NUMBER_H
#define MS_STEP_NUMBER_H

#include "step/program.h"

/* Never 0, and never one that other rows had. Of rows it is what kind they are and what they wait for, no shape: of
 * that the costs speak. */
guint64 ms_list_number(const MsCosted *list);

/* What of a row counts. */
enum { MS_ROW_BYTES = G_STRUCT_OFFSET(MsOp, m) - G_STRUCT_OFFSET(MsOp, kind) };
static inline const guint8 *ms_row_bytes(const MsOp *op) { return &op->kind; }

#endif
