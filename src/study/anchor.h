/* src/study/anchor.h - what runs and profiles of one's own say of a machine: an update of what is believed about it.
 *
 * Believed is a normal distribution over log factors on time: one of the site (all classes together), one of each class
 * of describe/anchor.h, one of each model. Before anything is seen they are 0 with the spreads of the laws anchor_*. A
 * run with a measured step time is one observation: its log error is the sum of the log factors, each times how much of
 * the step follows that class (finite differences of `fast` simulations), and noise. A profile that follows the
 * scenario of its run is one observation for each class of kernels that computes (study/diff.h): what they took over
 * what was predicted. Each observation is a linear update of mean and covariance (Kalman), so order does not matter but
 * for rounding. Formulas and what it is worth on published runs: docs/theory/anchor.md. */
#ifndef MS_STUDY_ANCHOR_H
#define MS_STUDY_ANCHOR_H

#include "study/validate.h"

typedef struct {
  char *file;
  double measured_s, before, after; /* step; errors predicted / measured - 1 without and with what was learned; NaN */
} MsAnchorSeen;

typedef struct {
  const char *word;     /* key of ms_anchor_table */
  double factor;        /* on time, site and class together */
  double sd, sd_before; /* of its logarithm */
  guint profiles;       /* observations of this class alone */
} MsAnchorLearned;

typedef struct {
  char *text;     /* the machine file */
  char *hardware; /* its base */
  guint runs, traces;
  guint n_seen;
  MsAnchorSeen *seen;
  MsAnchorLearned learned[MS_N_ANCHORS];
  double band, band_before, models_band; /* 90 %, of the common error */
  double unexplained;                    /* root mean square of what is left of the errors of the runs; NaN */
  const char *unknown;                   /* the class that most of the uncertainty of these runs comes from */
} MsAnchored;

typedef struct {
  const char *const *files; /* NULL-terminated: scenarios with `measured`; behind the scenario of a run its profile, and
                               its log, which then says what was measured */
  const char *hardware;     /* in place of that of the scenarios; NULL */
  const char *name, *date;
  int threads;
} MsAnchorOptions;

/* What was repaired or left out goes to `notes`. NULL and *error. (transfer full) */
MsAnchored *ms_anchor(const MsAnchorOptions *options, GPtrArray *notes, GError **error);
void ms_anchored_free(MsAnchored *anchored);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsAnchored, ms_anchored_free)

/* --- what it is worth ------------------------------------------------------------------------------------------ */
typedef struct {
  char *name; /* folder of the runs */
  guint sites, runs, pairs;
  double before, mean_before;         /* |error| of the others without an anchor: median, mean */
  double after[2], mean_after[2];     /* with one run of the site as anchor, with two */
  double inside_before, inside_after; /* share of the times inside the band; with one */
} MsAnchorWorth;

typedef struct {
  MsExtent extent;
  guint runs, sites; /* that take part: sites (folder, machine, stack) of three runs or more */
  guint n_sources;
  MsAnchorWorth *source; /* by name */
  MsAnchorWorth all;
} MsAnchorEvaluation;

/* Every run of every site as the only thing known of it, every other of that site predicted; and every two that follow
 * each other in the order of files. `unnamed`: as if the software were not known, as on a machine of one's own.
 * (transfer full) */
MsAnchorEvaluation *ms_anchor_evaluate(const char *const *paths, gboolean unnamed, const MsValidateOptions *options,
                                       GError **error);
void ms_anchor_evaluation_free(MsAnchorEvaluation *evaluation);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsAnchorEvaluation, ms_anchor_evaluation_free)

#endif
