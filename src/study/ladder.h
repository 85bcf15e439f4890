/* src/study/ladder.h - does the prediction put runs in the right order, and knows it what one knob does?
 *
 * A ladders file (tests/data/ladders.json is one) lists sets of runs: published ablations, scaling and schedule series,
 * and all layouts of one task. Runs of a set are compared in pairs by step time; by the time a GPU takes for a token in
 * sets of kind "scaling", where rates are given. Kendall's tau is (concordant - discordant) / (both), over pairs whose
 * measured times differ; a tie of predictions counts as neither. A pair is a single-knob change when the two scenarios
 * differ in one key of model, hardware, gpus, training, layout and options (`recompute` is one key). */
#ifndef MS_STUDY_LADDER_H
#define MS_STUDY_LADDER_H

#include "base/json.h"
#include "study/validate.h"

#define MS_LADDER_CLEAR 0.01 /* a measured difference beyond the reproducibility of a run (median 0.6 %) */

typedef struct {
  guint pairs, right, wrong;
} MsOrder;                                 /* pairs = right + wrong + ties of predictions */
double ms_order_tau(const MsOrder *order); /* NaN without pairs */

typedef struct {
  char *name, *kind;
  gboolean published;
  guint listed, found;   /* runs; those with a predicted time */
  MsOrder order, single; /* all pairs; single-knob changes with a clear difference */
} MsLadder;

typedef struct {
  char *knob;    /* "layout.tp" */
  MsOrder order; /* clear differences */
} MsKnob;

typedef struct {
  guint n, skipped;   /* with two runs or more; the others */
  MsLadder *ladders;  /* in file order */
  MsOrder all, clear; /* pooled: every pair; clear differences only */
  MsOrder published;  /* of all */
  double mean_tau;    /* over ladders */
  MsOrder single, single_all,
      single_published; /* single-knob: clear differences; every difference; clear ones of published ladders */
  guint n_knobs;
  MsKnob *knobs; /* descending number of pairs */
} MsLadders;

/* `file`: the sets. NULL and *error when it is wrong or none of its runs is among the rows of the validation. (transfer
 * full) */
MsLadders *ms_ladders(const MsValidation *validation, const MsJson *file, GError **error);
void ms_ladders_free(MsLadders *ladders);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsLadders, ms_ladders_free)

#endif
