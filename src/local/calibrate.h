/* src/local/calibrate.h - this CPU as a machine of the simulator: measured, fitted, written as a profile, and checked
 * on steps that were not measured.
 *
 * The device of the profile is one core. Rows are counted with the widths of a GPU's list (BF16 2 bytes), the executor
 * stores and computes in float: the "BF16" of the profile is that of its kernels as they are called, which the
 * provenance says. Nothing overlaps (`serial`). */
#ifndef MS_LOCAL_CALIBRATE_H
#define MS_LOCAL_CALIBRATE_H

#include "calib/rows.h"
#include "local/machine.h"
#include "local/survey.h"

/* --- the profile ----------------------------------------------------------------------------------------------- */
/* Limits beyond which a curve is not trusted: what its median error on held-back shapes amounts to in a step, its share
 * of the measured time times that error; of messages, whose share depends on the layout, the error itself. */
#define MS_TRUST_STEP    0.01
#define MS_TRUST_MESSAGE 0.25
#define MS_TRUST_REPEAT                                                                         \
  0.25 /* median of second least over least of the rows: the machine is too noisy for any of it \
        */

typedef struct {
  char *text;                            /* of the profile */
  double reference_flops, slowest_flops; /* of the reference kernel beside the samples: the fastest, which the profile
                                            is the speed of, and the slowest; 0: not measured */
  GArray *curves;                        /* MsRowCurve */
  GPtrArray *notes;                      /* char *: what has no curve and why */
  GPtrArray *distrust; /* char *: one line for each reason not to trust it; empty when there is none */
} MsLocalProfile;

typedef struct {
  const MsMachine *machine;
  double copy_Bps;
  double kernel_jitter; /* as ms_messages_measure says; NaN: not measured */
  const char *command, *date;
} MsLocalFacts;

/* From samples (rows that compute, messages), all brought to the speed of the fastest reference beside them.
 * `row_repeat`: of the survey. NULL and an MS_ERROR_INPUT when nothing can be fitted. (transfer full) */
MsLocalProfile *ms_local_profile(const MsRowSample *sample, guint n, const MsLocalFacts *facts, MsRepeat row_repeat,
                                 GError **error);
void ms_local_profile_free(MsLocalProfile *profile);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsLocalProfile, ms_local_profile_free)
/* The machine without curves: what steps are described on before anything is known. (transfer full) */
char *ms_local_bare_profile(const MsMachine *machine);

/* --- the whole run --------------------------------------------------------------------------------------------- */
typedef struct {
  gboolean quick;
  int steps, passes;   /* 0: as `quick` says */
  const char *blas;    /* NULL: as ms_blas_open */
  const char *program; /* what mpirun starts to measure messages, NULL: this program, "": no messages */
  const char *command, *date;
  const char *csv; /* folder for tables of everything measured, NULL = none */
  MsTick tick;     /* after every measurement; may be NULL */
  gpointer tick_data;
} MsCalibrateOptions;
double ms_calibrate_ticks(gboolean quick); /* how many ticks a calibration gives */

typedef struct {
  MsMachine *machine;
  MsLocalProfile *profile;
  MsRepeat row_repeat;
  int steps, passes, rows, messages; /* measured */
  char *refused;                     /* the first step that the executor could not run and why; NULL: all ran */
  const char *no_messages;           /* why messages were not measured; NULL: they were */
  double copy_Bps, kernel_jitter;    /* as of MsLocalFacts */
  double elapsed_s;
  gboolean interrupted; /* then profile is of the rows so far, or NULL */
} MsCalibration;
/* NULL and *error where this machine cannot be measured, or files cannot be written. (transfer full) */
MsCalibration *ms_calibrate(const MsCalibrateOptions *options, GError **error);
void ms_calibration_free(MsCalibration *calibration);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCalibration, ms_calibration_free)

#endif
