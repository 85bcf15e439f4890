/* src/calib/rows.h - curves from measured rows of the operator list, for machines on which whole steps were run (a CPU:
 * local/).
 *
 * A sample is a row of work/work.h with the seconds of one call. Rows of one kind and pass give one curve of the form
 * "terms" (cost/curve.h): coefficients by robust non-negative least squares of relative errors, the size from which
 * bytes come from far and the smoothness of the residual grid by five-fold cross-validation. Messages of one kind,
 * dtype and number of ranks give one line and a grid over bytes. By a hash of the shape 15 % of the shapes are held
 * back: they choose nothing and give the residuals of the provenance. Deterministic: same samples in any order, same
 * bits. */
#ifndef MS_CALIB_ROWS_H
#define MS_CALIB_ROWS_H

#include "describe/hardware.h"
#include "work/work.h"

typedef struct {
  MsOp op;       /* its name is static text */
  int ranks;     /* of its group, for messages; else 0 */
  double time_s; /* one call */
  double share;  /* seconds of a training step that such rows take, for weighing curves against each other; any unit */
  double reference_flops; /* FLOP/s of the reference kernel beside it (local/machine.h); 0: not measured */
} MsRowSample;

/* Bytes that a message moves through one rank, as curves of collectives count them: "bus bytes" of nccl-tests. */
double ms_row_bus_B(const MsRowSample *sample);

typedef struct {
  MsCurve curve;
  double share; /* of the time of all samples */
} MsRowCurve;

/* What people call it: "gemm dgrad", "all_gather bf16". (transfer full) */
char *ms_row_curve_name(const MsCurve *curve);

/* GArray of MsRowCurve, by operator and pass; free with ms_row_curves_free. `data`, `command`, `date` go into every
 * provenance. Curves of fewer than three shapes are not made: the reasons are added to `notes` (char *), which may be
 * NULL. */
GArray *ms_fit_rows(const MsRowSample *sample, guint n, const char *data, const char *command, const char *date,
                    GPtrArray *notes);
void ms_row_curves_free(GArray *curves);

#endif
