/* src/local/survey.h - many steps, measured so that a noisy machine gives the same numbers twice
 * (docs/theory/fast-matmul.md 2).
 *
 * All steps are visited in several passes spread over time, before and after each run of a step the reference kernel
 * (local/machine.h). A host drifts: clocks, neighbours on the same cores. Of every row and step the least time over the
 * passes is kept, which noise can only raise, with the reference beside it: seconds x FLOP/s are compared between them.
 * Noise can only lower a reference, so it is the best of those of the run and of its neighbours in the pass.
 * What comes out of one pass alone is off by a median of 46 % on a busy machine, the least of three by 0.5-3 %. */
#ifndef MS_LOCAL_SURVEY_H
#define MS_LOCAL_SURVEY_H

#include "base/io.h"
#include "local/run.h"
#include "local/steps.h"

/* Runs every one of n steps once: run[i] is the result of step[i] (transfer full), NULL when this step cannot be run
 * here, whose reason is in why[i] (transfer full). FALSE and *error ends the survey; so does an interrupt (then *error
 * stays unset). `tick` after every step. */
typedef void (*MsTick)(const char *what, gpointer data);
typedef gboolean (*MsPassFunc)(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick,
                               gpointer tick_data, gpointer data, GError **error);

typedef struct { /* one step over all passes */
  const MsLocalStep *step;
  int runs, quiet_runs;
  double step_s; /* of several ranks the least wall time over quiet runs; when none was, the least CPU time, like of one
                    rank: on cores of their own both are the wall time, since ranks that wait poll; on a busy machine
                    the rank that had least CPU time is the one that others wait for */
  double step_flops; /* of the reference beside that run; 0: not measured */
  double next_s;     /* the second least, at the speed of the least: how well the machine repeats itself */
  double kept_B;
  GArray *rows;       /* MsRunRow: the least mean CPU time of a call */
  GArray *row_next_s; /* double: the second least of each, at the same speed */
  GArray *row_flops;  /* double: of the reference beside the least of each; 0: not measured */
  char *why;          /* not run: the reason; else NULL */
} MsMeasuredStep;

typedef struct {
  int n;
  MsMeasuredStep *step;
  int passes;
  gboolean interrupted;
} MsSurveyed;

/* NULL and *error. `tick` may be NULL. */
MsSurveyed *ms_survey(const MsLocalStep *step, int n, int passes, MsPassFunc pass, gpointer data, MsTick tick,
                      gpointer tick_data, GError **error);
void ms_surveyed_free(MsSurveyed *survey);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsSurveyed, ms_surveyed_free)

typedef struct {
  double median, p90;
  guint n;
} MsRepeat;
/* How far the second least, at the speed of the least, is from it, relative: over rows that compute, over steps. */
MsRepeat ms_survey_row_repeat(const MsSurveyed *survey);
MsRepeat ms_survey_step_repeat(const MsSurveyed *survey, gboolean several_ranks);

/* Rows that compute, and messages of none, as samples for calib/rows.h: MsRowSample, appended. */
void ms_survey_samples(const MsSurveyed *survey, GArray *samples);
/* Tables for `moesim fit` (calib/measure.h) and one of all rows: written into `folder`. */
gboolean ms_survey_write_csv(const MsSurveyed *survey, const char *folder, GError **error);

/* --- the two ways to run a pass -------------------------------------------------------------------------------- */
typedef struct {
  const char *hardware; /* text of a profile, or a quoted path */
  const char *blas;     /* NULL: as ms_blas_open */
  const char *program;  /* what mpirun starts, NULL: this program */
} MsPassData;
/* Steps of one rank, in this process. */
gboolean ms_pass_here(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick, gpointer tick_data,
                      gpointer data, GError **error);
/* Steps of several ranks, each by an mpirun of its own, so that one that fails leaves the others alone. */
gboolean ms_pass_ranks(const MsLocalStep *step, int n, MsStepRun **run, char **why, MsTick tick, gpointer tick_data,
                       gpointer data, GError **error);

#endif
