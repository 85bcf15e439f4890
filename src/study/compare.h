/* src/study/compare.h - two layouts of one task side by side: what differs in them, and where the difference of step
 * time and memory lies.
 *
 * Time: the parts of sim/explain.h in seconds (mean over stages), memory-bound kernels as one part; each column adds up
 * to its step time, so the differences add up to the difference. Memory: the parts of study/parts.h. */
#ifndef MS_STUDY_COMPARE_H
#define MS_STUDY_COMPARE_H

#include "sim/simulate.h"

typedef struct {
  char *path;  /* "layout.tp" */
  char *a, *b; /* JSON text of the value */
} MsComparedKey;

typedef struct {
  char name[48];
  double a, b; /* s or B; 0 where one has no such part */
} MsComparedPart;

typedef struct {
  int n_keys, n_time, n_memory;
  MsComparedKey *key;     /* by path */
  MsComparedPart *time;   /* s, in the order of the explanation */
  MsComparedPart *memory; /* B */
} MsComparison;

/* (transfer full) Results must be of the same fidelity, `full` for parts that mean something. */
MsComparison *ms_compare(const MsScenario *a, const MsResult *result_a, const MsScenario *b, const MsResult *result_b);
void ms_comparison_free(MsComparison *comparison);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsComparison, ms_comparison_free)

/* FALSE and an MS_ERROR_INPUT that names the difference when `other` is another task than `task`: model, machine,
 * software stack, number of GPUs, sequence length or global batch. Precision, layout and options may differ. */
gboolean ms_same_task(const MsScenario *task, const MsScenario *other, GError **error);

#endif
