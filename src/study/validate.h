/* src/study/validate.h - predictions against what was measured.
 *
 * Walks files and folders, predicts every scenario that has `measured`, and compares one time and one peak memory per
 * run. A rate (tokens/s, TFLOP/s) is turned into the step time it stands for, so that every time error has the same
 * sign and meaning: error = predicted / measured - 1, positive = predicted too slow. Memory is allocated bytes, in GiB,
 * of the rank that `memory_rank` names. Rows of weight 0 are listed, but enter the summary only with `all`; rows whose
 * configuration is not known exactly do not enter it with `exact`.  Order is that of the file names, whatever the
 * threads do.
 *
 * A time is inside its band when |measured / predicted - 1| <= band. Bands are of runs that took no part in a fit:
 * those that shaped the shipped figures lie inside more often. */
#ifndef MS_STUDY_VALIDATE_H
#define MS_STUDY_VALIDATE_H

#include "sim/simulate.h"
#include "study/jobs.h"

typedef enum { MS_METRIC_STEP_TIME /* s */, MS_METRIC_PEAK_MEMORY /* GiB */, MS_N_METRICS } MsMetric;
extern const char *const ms_metric_words[]; /* step_time peak_memory */
typedef enum {
  MS_BY_NOTHING,
  MS_BY_GPU,
  MS_BY_MODEL,
  MS_BY_SOURCE /* folder */,
  MS_BY_CONFIDENCE,
  MS_BY_STACK /* the run's `software`, or "unnamed" */,
  MS_N_BYS
} MsValidateBy;
extern const char *const ms_by_words[]; /* none gpu model source confidence stack */

/* What a run belongs to, for each MsValidateBy; that of MS_BY_NOTHING is NULL. */
typedef struct {
  char *of[MS_N_BYS];
} MsRunLabels;
void ms_run_labels_init(MsRunLabels *labels, const MsScenario *s, const char *file);
void ms_run_labels_clear(MsRunLabels *labels);

typedef struct {
  char *name, *file;
  MsRunLabels label;
  MsMetric metric;
  const char *from; /* key of `measured` that was compared */
  double measured, predicted, error;
  double weight, rounding;                    /* rounding NaN: not stated */
  double band, band_80, band_50, band_curves; /* of a time; NaN for memory */
  double guessed;                             /* what guessed knobs add to these, as squares (study/guesses.h) */
  gboolean inside;                            /* the truth lies in the 90 % band */
  gboolean counted;                           /* in the summary */
} MsValidateRow;

typedef struct {
  guint n;
  double mape, median_ape, p90_ape, bias, worst; /* unweighted; bias = mean signed error, worst = the largest one */
  double weighted_mape;
  double inside, inside_80, inside_50; /* shares of the times inside their 90, 80 and 50 % bands */
} MsErrorSummary;

typedef struct { /* scenarios that could not be predicted, or a reason counted over them */
  char *reason;  /* numbers replaced by # */
  char *example; /* the whole message of the first one */
  guint n;
} MsValidateRefusal;

typedef struct {
  char *name;
  MsErrorSummary metric[MS_N_METRICS];
} MsValidateGroup;

typedef struct {
  MsExtent extent; /* stopped: all below is of the files that were done */
  guint files, predicted, nothing_to_compare, refused;
  guint n_rows;
  MsValidateRow *rows; /* by file name, then metric */
  MsErrorSummary metric[MS_N_METRICS];
  guint n_groups;
  MsValidateGroup *groups; /* of options.by, by name */
  guint n_confidence;
  MsValidateGroup *confidence; /* exact, inferred, unknown, those that occur */
  guint n_refusals;
  MsValidateRefusal *refusals;     /* descending count */
  guint oom_measured, oom_agreed;  /* runs that went out of memory; predicted infeasible */
  guint fit_measured, fit_refused; /* runs that fitted; predicted infeasible all the same */
  double elapsed_s;
} MsValidation;

typedef struct {
  MsFidelity fidelity;  /* default full */
  const char *hardware; /* ms_put_on; default NULL (transfer none) */
  MsValidateBy by;
  gboolean all;   /* rows of weight 0 count too */
  gboolean exact; /* only rows whose `config_confidence` is exact count */
  int threads;    /* 0 = all cores */
  gboolean progress;
} MsValidateOptions;

void ms_validate_options_init(MsValidateOptions *options);
/* `paths` is NULL-terminated. NULL and *error when a path cannot be read, a file named explicitly has no `measured`
 * or nothing is found. (transfer full) */
MsValidation *ms_validate(const char *const *paths, const MsValidateOptions *options, GError **error);
void ms_validation_free(MsValidation *validation);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsValidation, ms_validation_free)

/* Counted rows by their labels, by name; none where `by` is MS_BY_NOTHING. (transfer full) */
MsValidateGroup *ms_validation_groups(const MsValidation *validation, MsValidateBy by, guint *n);
void ms_validation_groups_free(MsValidateGroup *groups, guint n);

/* The step time that the run showed: the first time that is given, or the one that a rate stands for; *from names the
 * key. NaN and *from unchanged when there is none. */
double ms_measured_time(const MsScenario *scenario, const char **from);
/* Adds the *.json files under every path, in order, to `files` (which frees its strings). */
gboolean ms_validation_files(const char *const *paths, GPtrArray *files, GError **error);

/* Summary of n signed errors; sorts a copy. Weights may be NULL. n 0: NaN everywhere; the shares inside are left NaN.
 */
MsErrorSummary ms_error_summary(const double *errors, const double *weights, guint n);

#endif
