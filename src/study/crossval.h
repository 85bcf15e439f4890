/* src/study/crossval.h - what the shared parameters are worth on runs that they were not fitted to.
 *
 * Three kinds of figures come from training runs: `sustained_derate` of each GPU (clock of matrix kernels),
 * `kernel_launch_s` (host time per operator; one factor for all machines) and the speed of each named software stack
 * (one factor on its matrix kernels for all GPUs). They are refitted as factors on what is shipped, once on all runs
 * (in sample) and once for every model on every GPU without those runs, which are then predicted (left out). A GPU of
 * which nothing is left takes the mean of the others. The fit is coordinate descent with golden section in log space on
 * the weighted mean |log error|; predictions are interpolated between `fast` simulations at fixed multiples of the
 * figures. Nothing is random: the same files give the same figures. */
#ifndef MS_STUDY_CROSSVAL_H
#define MS_STUDY_CROSSVAL_H

#include "study/validate.h"

#define MS_CROSSVAL_SMALL \
  50 /* files of a folder of more than 300 (many small runs) that take part, chosen by hash of the name */

typedef struct {
  MsErrorSummary shipped, in_sample, left_out;
} MsCrossErrors; /* unweighted */

typedef struct {
  char *name; /* GPU */
  MsCrossErrors errors;
} MsCrossGpu;

typedef struct {
  char *name;    /* "sustained_derate of h100-sxm" */
  guint runs;    /* that depend on it */
  double factor; /* of the fit on all runs; above 1: faster kernels, a slower host */
} MsCrossShared;

typedef struct {
  guint files, runs, groups; /* groups: a model on a GPU */
  guint n_gpus, n_shared;
  MsCrossGpu *gpus; /* by name */
  MsCrossShared *shared;
  MsCrossErrors all, exact; /* every run; those of exactly known configuration */
  double elapsed_s;
} MsCrossval;

/* Runs with a measured step time and weight > 0. Options: threads, progress, exact (fit and figures on exactly known
 * configurations only). NULL and *error as ms_validate. (transfer full) */
MsCrossval *ms_crossval(const char *const *paths, const MsValidateOptions *options, GError **error);
void ms_crossval_free(MsCrossval *crossval);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCrossval, ms_crossval_free)

/* Smallest f(x) for x in [low, high] of a function with one minimum there, to `tolerance`. */
double ms_golden_minimum(double (*f)(double x, gpointer data), gpointer data, double low, double high,
                         double tolerance);

#endif
