/* src/calib/fit.h - curves of a machine from measured rows, and predicted against measured.
 *
 * A curve is fitted to the rows of ONE library (the one docs/theory/costs.md 1 recommends for its kind and dtype, see
 * `prefer` in fit.c; with a user's own table: that table), one median per shape. By a hash of the shape 15 % of the
 * shapes are held back: they choose nothing and give the residuals in the provenance. 10 % choose between forms and how
 * smooth the residual grid is, and are fitted afterwards.
 *
 * What a measured row holds beyond its curve is never charged to the curve:
 *   low-precision GEMM rows hold the cast of their activations: launch + (2 + w) m k bytes. The curve has the launch of
 * the bf16 kernel; provenance.cast_launch_s and cast_bw_efficiency keep the cast, so that the rows can be predicted
 * again; expert layers hold permute, activation and finalize: those bytes at the curve's bw_efficiency_act. Curves of
 * grouped GEMMs that outrun the dense kernel of their dtype (uninitialised weights, no power limit) keep what was
 * measured and get `sustained` < 1, which only the simulator applies. */
#ifndef MS_CALIB_FIT_H
#define MS_CALIB_FIT_H

#include "calib/measure.h"

typedef struct {
  double launch_s;      /* GEMM with a cast inside: of the kernel itself; NaN: fitted, no cast */
  const MsCurve *donor; /* where parameters come from that few points cannot tell; may be NULL */
  double wire_Bps;      /* dispatch, combine: what the link can do at most; not > 0: unknown */
} MsFitContext;

/* Fits one curve; FALSE when there are fewer than two points, with the reason in *why. *curve must be zero; it then
 * owns its strings and its grid (ms_fit_curve_clear). Provenance: form, note, library, counts and residuals are set,
 * data, command, date not. */
gboolean ms_fit_series(const MsSeries *series, const MsDeviceRates *device, const MsFitContext *context, MsCurve *curve,
                       char **why);
void ms_fit_curve_clear(MsCurve *curve);

typedef struct {
  const char *hardware;     /* profile to start from: facts and curves that are not fitted stay */
  const char *like;         /* a sister machine, whose training-grade rows serve where this one has none; NULL */
  const char *const *files; /* NULL-terminated */
  const char *date;         /* written to the provenance */
  const char *command;
  gboolean progress;
} MsFitOptions;

typedef struct {
  gboolean interrupted; /* curves were still to be fitted: half of a profile is none */
  char *text;           /* the new profile; NULL when interrupted */
  GPtrArray *curves;    /* MsCurve *: fitted and derived */
  GPtrArray *notes;     /* char *: what was skipped and why, what fell back */
} MsFit;
/* NULL and *error for a table that cannot be read, or where no curve could be fitted. (transfer full) */
MsFit *ms_fit(const MsFitOptions *options, GError **error);
void ms_fit_free(MsFit *fit);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsFit, ms_fit_free)

/* The profile's text with these curves in place of those with the same key (others stay as they are, to the byte), and
 * flat members replaced: `members` are triples key, JSON text, JSON text of its source, then NULL. NULL and *error when
 * the text is no profile. */
char *ms_profile_edit(const char *text, const char *filename, const GPtrArray *curves, const char *const *members,
                      GError **error);

/* --- predicted against measured -------------------------------------------------------------------------------- */
typedef struct {
  char *file, *gpu, *dtype, *library;
  const char *kind; /* gemm, grouped_gemm, attention, nccl, dispatch, combine, quantize */
  guint n;
  double median, p90, bias; /* of |predicted / measured - 1|; median of the signed error */
} MsEvaluated;
typedef struct {
  GArray *rows;   /* MsEvaluated: rows of the library that the profile's curve was fitted to */
  GArray *others; /* of other libraries: how far those lie from the curve */
  GArray *kinds;  /* all of `rows`, kind by kind: tables, machines and dtypes together (file, gpu, dtype and library are
                     "") */
  GPtrArray *notes;
  int tables, all_tables; /* compared; fewer than all when it was stopped (ms_interrupted) */
} MsEvaluation;
/* `hardware`: one name, or several separated by commas. `held_back`: only the shapes that ms_fit never sees. Repeated
 * shapes of a library count once, as in a fit. (transfer full) */
MsEvaluation *ms_fit_evaluate(const char *hardware, const char *const *files, gboolean held_back, GError **error);
void ms_evaluation_free(MsEvaluation *evaluation);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsEvaluation, ms_evaluation_free)

/* The profile's curve for a series, -1 when there is none. */
int ms_fit_find_curve(const MsHardware *hardware, const MsSeries *series);
/* How well a library suits a curve: 0 best, larger worse. */
int ms_fit_preference(const MsSeries *series);

#endif
