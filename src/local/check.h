/* src/local/check.h - training steps that were not measured for the profile: predicted by the simulator, run by the
 * executor, compared.
 *
 * The host may run faster or slower than while it was calibrated. The profile says how fast the reference kernel
 * (local/machine.h) was then; the check runs it beside every step, and predicts step and rows at the speed of the
 * moment: their time by the profile over the ratio of the two. */
#ifndef MS_LOCAL_CHECK_H
#define MS_LOCAL_CHECK_H

#include "local/survey.h"

typedef struct {
  double median, p90, bias;
  guint n;
} MsErrors; /* of |predicted / measured - 1|; bias: median of the signed error */

typedef struct {
  const MsLocalStep *step;
  double predicted_s; /* at the speed of the host while it ran */
  double measured_s;
  double speed; /* the reference kernel's beside it over that which the profile is of; NaN: not known, then as 1 */
  gboolean disturbed; /* no run had its cores to itself: measured_s is CPU time, of the rank that had least */
  double rows_s; /* sum of the measured rows of one rank's step: what the step takes beside its rows is not predicted */
  double predicted_kept_B, measured_kept_B; /* most bytes held for backward */
  char *why;                                /* not run or not predicted: the reason; else NULL */
} MsCheckedStep;

typedef struct {
  const char *op, *pass; /* "all" for the sum; static */
  MsErrors error;
  double share; /* of the measured time of all rows */
} MsCheckedOp;

/* What a calibrated profile should reach on an otherwise quiet machine. */
#define MS_CHECK_ONE_MEDIAN   0.05
#define MS_CHECK_ONE_P90      0.12
#define MS_CHECK_RANKS_MEDIAN 0.10
#define MS_CHECK_RANKS_P90    0.25
#define MS_CHECK_GEMM_MEDIAN  0.03
#define MS_CHECK_OPS_MEDIAN   0.05

typedef struct {
  int n;
  MsCheckedStep *step;
  GArray *ops;                           /* MsCheckedOp: by share, largest first */
  MsErrors one, several;                 /* steps of one rank, of several */
  MsErrors one_plain, several_plain;     /* the same without regard to the speed */
  double speed, least_speed, most_speed; /* median, least, largest over the steps; NaN: not known */
  MsErrors gemm, all_ops;
  double gemm_weighted, all_weighted;              /* sum of |predicted - measured| over sum of measured */
  MsRepeat row_repeat, one_repeat, several_repeat; /* of the machine itself */
  const char *no_ranks;                            /* why steps of several ranks were not run; NULL: they were */
  gboolean interrupted;
} MsLocalCheck;

/* `hardware`: file of the profile. Steps of one rank are run in this process, the others by mpirun. `passes` at
 * least 3. NULL and *error. (transfer full) */
MsLocalCheck *ms_local_check(const char *hardware, const char *blas, int passes, MsTick tick, gpointer tick_data,
                             GError **error);
double ms_local_check_ticks(int passes);
/* The comparison alone, of surveys that were made before. (transfer full) */
MsLocalCheck *ms_local_compare(const char *hardware, const MsSurveyed *one, const MsSurveyed *several, GError **error);
gboolean ms_local_check_met(const MsLocalCheck *check); /* all of the above */
void ms_local_check_free(MsLocalCheck *check);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsLocalCheck, ms_local_check_free)

/* Every step as a validation scenario, FOLDER/NAME.json, whose `hardware` is that file: what `moesim validate FOLDER`
 * compares. */
gboolean ms_local_check_write(const MsLocalCheck *check, const char *hardware, const char *folder, const char *date,
                              GError **error);

#endif
