/* src/study/align.h - which kernel of a profile is which operator of its step.
 *
 * The kernels of a measured step that compute, and the rows of the simulated one, are two sequences by start, through
 * all layers and microbatches. They are aligned so that the sum of costs is least (dynamic programming: S. B. Needleman
 * and C. D. Wunsch, 1970): a kernel may be a row of its own class, which costs as their times differ, but for a
 * factor of all of that class (of the upper quartiles first, then of the pairs that were found); a kernel that is no
 * row, or a row without kernel, costs a constant, less of classes that only move memory, of which frameworks launch
 * many that no list of operators has. Kernels of its class behind that of a row are further kernels of the same row.
 * Rows before the first or behind the last kernel cost little, for a profile of a part of a step. Messages are left
 * out: in a profile they hold the waiting for ranks that are late. Of steps with more than 2^28 pairs only those within
 * a band count, around where as much of the time has gone by in both. */
#ifndef MS_STUDY_ALIGN_H
#define MS_STUDY_ALIGN_H

#include "logs/trace_times.h"

#define MS_ALIGN_MOST_PAIRS ((gsize)1 << 28)

typedef struct {
  int class_index; /* of the kernel table */
  double time_s;
} MsAlignItem;

/* row_of[n]: the row that each kernel is, or belongs to; -1: none. Rows do not go back. weight[classes]: what a kernel
 * or row of a class costs that stays alone. Of more than most_pairs only a band counts, of one byte each. */
void ms_align(const MsAlignItem *kernel, int n, const MsAlignItem *row, int rows, const double *weight, int classes,
              gsize most_pairs, gint32 *row_of);

typedef struct {
  const char *name, *word; /* "qkv dgrad", of the simulated trace; its class */
  double m, n, k;          /* of a product; 0: none is known */
  double rows, found;      /* in the simulated step; of these, how many have a kernel in a measured step */
  double a_s, b_s;         /* simulated and measured, median of one; NaN: none found */
  double ratio, stake_s;   /* a / b, NaN; (a - b) times the rows, 0: none found */
  double gap_s; /* median time for which its stream waits in front of it, up to MS_TRACE_GAP_MOST_S; NaN: not known */
} MsAlignedOp;

typedef struct {
  int n;
  MsAlignedOp *op; /* by |stake|, the largest first */
  double share;    /* of the time of the measured kernels that compute, those of a row */
} MsAligned;

/* `simulated` is one step as study/profile.h makes it, and must outlive the result. Matrix products of `measured` whose
 * shapes the profiler did not record get those of their rows. (transfer full) */
MsAligned *ms_aligned_new(const MsTrace *simulated, MsTrace *measured, const MsKernelTable *table);
void ms_aligned_free(MsAligned *aligned);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsAligned, ms_aligned_free)

#endif
