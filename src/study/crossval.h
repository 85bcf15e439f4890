/* src/study/crossval.h - what the shared parameters are worth on runs that they were not fitted to.
 *
 * Four kinds of figures come from training runs: `sustained_derate` of each GPU (clock of matrix kernels),
 * `kernel_launch_s` (host time per operator; one factor for all machines), the speed of each named software stack (one
 * factor on its matrix kernels for all GPUs) and the laws of software/laws.json that have a spread. They are refitted
 * together as factors on what is shipped, once on all runs (in sample) and once for every group without its runs, which
 * are then predicted (left out). The fit is the most likely one (study/joint.h), each run weighted by its weight and by
 * how exactly its configuration is known. Believed before any run is seen: a law is near its value by its spread (and
 * stays within two of them and its range); what the runs of one site (folder, machine, software) have in common is the
 * site's own; machines of one architecture have one clock but for their power limits, so that a machine of which
 * nothing is left takes it from its sisters, and from other architectures where it has none. Predictions are
 * interpolated between `fast` simulations at fixed multiples of the figures, effects of laws and what `full` says
 * beyond `fast` with the shipped figures added in log time. Then the laws of the bands are fitted to the errors of what
 * was left out (study/band_fit.h), and how many of these runs their bands hold is counted twice: with the shipped laws,
 * and with laws fitted without the run's group. Nothing is random: the same files give the same figures. */
#ifndef MS_STUDY_CROSSVAL_H
#define MS_STUDY_CROSSVAL_H

#include "study/validate.h"

#define MS_CROSSVAL_SMALL \
  50 /* files of a folder of more than 300 (many small runs) that take part, chosen by hash of the name */

typedef struct {
  MsErrorSummary shipped, in_sample, left_out;
} MsCrossErrors; /* unweighted */

/* How the error grows with the number of GPUs: least squares of the relative errors against log2(GPUs), one slope
 * within all ladders, runs of one source, model and machine on three different numbers of GPUs or more. */
typedef struct {
  guint n;                             /* runs of such ladders; 0: the rest is NaN */
  double shipped, in_sample, left_out; /* for each doubling of the GPUs */
} MsCrossSlope;

/* Shares of the runs inside their 90, 80 and 50 % bands (sim/band.h), predicted with their group left out. */
typedef struct {
  guint n;
  double inside[3];
} MsBandCoverage;

typedef struct {
  char *name; /* GPU, model, source, confidence or stack */
  MsCrossErrors errors;
  MsCrossSlope slope;
  MsBandCoverage bands, bands_refitted; /* as shipped; fitted to the left-out runs of the other groups */
} MsCrossPart;

typedef enum { MS_SHARED_HOST, MS_SHARED_CLOCK, MS_SHARED_STACK, MS_SHARED_LAW } MsSharedKind;
typedef struct {
  char *name; /* "sustained_derate of h100-sxm", "law natural_spread" */
  char *of;   /* the GPU, the stack, the law; NULL: everybody's */
  MsSharedKind kind;
  guint runs;     /* that depend on it */
  double factor;  /* of the fit on all runs; above 1: faster kernels, a slower host, more of what the law says */
  double shipped; /* value of a law; NaN: a factor alone */
} MsCrossShared;

/* What is left out at a time. */
typedef enum { MS_LEAVE_GROUP, MS_LEAVE_SOURCE, MS_LEAVE_MODEL, MS_LEAVE_GPU } MsLeave;
extern const char *const ms_leave_words[]; /* group source model gpu */

typedef struct {
  MsExtent extent;           /* files predicted, then groups left out, of all; what was not reached is NaN */
  guint files, runs, groups; /* groups: what was left out, one at a time */
  MsLeave leave;
  guint configurations;    /* of the runs, that differ in more than name, software and what was measured */
  guint n_parts, n_shared; /* n_shared 0: stopped before all files were predicted, nothing was refitted */
  MsCrossPart *parts;      /* of options->by, else by what is left out, a GPU where that is a group; by name */
  MsCrossShared *shared;
  MsCrossErrors all, exact; /* every run; those of exactly known configuration */
  MsCrossSlope slope;       /* of all ladders */
  MsBandCoverage bands, bands_exact, bands_refitted, bands_exact_refitted;
  double elapsed_s;
} MsCrossval;

/* Runs with a measured step time and weight > 0. Options: threads, progress, by, exact (fit and figures on
 * exactly known configurations only). NULL and *error as ms_validate. (transfer full) */
MsCrossval *ms_crossval(const char *const *paths, const MsValidateOptions *options, MsLeave leave, GError **error);
void ms_crossval_free(MsCrossval *crossval);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCrossval, ms_crossval_free)

/* The data files that the fit on all runs changes, under `folder` as they are under the data folder:
 * software/laws.json, software/stacks.json, hardware/GPU.json with the fitted values, three digits of each. NULL:
 * nothing. To be asked before the long work: can_write makes the folders. FALSE and *error. */
gboolean ms_crossval_can_write(const char *folder, GError **error);
gboolean ms_crossval_write(const MsCrossval *crossval, const char *folder, GError **error);

#endif
