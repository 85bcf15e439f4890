/* src/study/baseline.h - stored predictions: the file that `moesim check` compares today's predictions with.
 *
 * The file holds complete scenarios and what was predicted of each, one quantity a line and rounded to nine digits, so
 * that a change of a prediction is a short diff and the same predictions give the same bytes. It also holds the figures
 * of the machines, models and stacks that the scenarios name, so that a check can say which of them changed. `moesim
 * check --update` writes it; only "tolerance" and "fidelity" are meant to be edited. */
#ifndef MS_STUDY_BASELINE_H
#define MS_STUDY_BASELINE_H

#include "describe/scenario.h"
#include "study/parts.h"

/* Quantities of one prediction, by index: totals, then "time.X_s" for every MsPart, "comm.X_s" (whole communication,
 * hidden or not) for every MsCommClass, "memory.X_B" for every MsMemPart of the fullest stage. */
enum {
  MS_Q_STEP_TIME,
  MS_Q_LOWER,
  MS_Q_TOKENS,
  MS_Q_TFLOPS,
  MS_Q_MFU,
  MS_Q_MODEL_FLOP,
  MS_Q_DEVICE,
  MS_Q_CAPACITY,
  MS_Q_TIME,
  MS_Q_COMM = MS_Q_TIME + MS_N_PARTS,
  MS_Q_MEMORY = MS_Q_COMM + MS_N_COMMS,
  MS_N_QUANTITIES = MS_Q_MEMORY + MS_N_MEMS
};
#define MS_QUANTITY_TEXT 40
const char *ms_quantity_name(int quantity, char buf[MS_QUANTITY_TEXT]); /* "step_time_s", "time.gemm_s"; returns buf */

typedef struct {
  char *name;                    /* of the scenario, unique in the file */
  JsonNode *scenario;            /* complete */
  char *refused;                 /* why it cannot run; NULL: it runs */
  char *why_infeasible;          /* why it does not fit; NULL: it fits */
  double value[MS_N_QUANTITIES]; /* 0 where there is none of it (left out of the file), NaN unknown (null) */
  gboolean made;                 /* of today's: before the check was stopped */
} MsPrediction;

typedef struct { /* relative; of a quantity, of a group ("time", "comm", "memory") or "default" */
  char *of;
  double tolerance;
} MsTolerance;

typedef struct {
  char *file;
  MsFidelity fidelity;
  int n_tolerances;
  MsTolerance *tolerance;
  JsonNode *inputs; /* object "hardware h100-sxm" -> object key -> scalar; NULL when the file has none */
  int n;
  MsPrediction *prediction; /* by name */
} MsBaseline;

extern const MsFieldTable ms_baseline_table;
#define MS_TOLERANCE_DEFAULT 0.001

/* NULL and *error. The scenarios are loaded once, so that a file that comes back can be predicted. (transfer full) */
MsBaseline *ms_baseline_load(const char *filename, GError **error);
MsBaseline *ms_baseline_from_doc(const MsJson *doc, GError **error);
/* A baseline without predictions of the scenarios in these files and folders, with the default tolerance. (transfer
 * full) */
MsBaseline *ms_baseline_new(const char *filename, const char *const *scenarios, GError **error);
void ms_baseline_free(MsBaseline *baseline);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsBaseline, ms_baseline_free)
char *ms_baseline_text(const MsBaseline *baseline); /* the file; (transfer full) */

/* How much a quantity may move, relative: its own, that of its group, or the default of the file. */
double ms_baseline_tolerance(const MsBaseline *baseline, int quantity);
/* Fills everything but name and scenario of `out`. */
void ms_prediction_make(const MsBaseline *baseline, int index, MsPrediction *out);
/* The figures of today's machines, models and stacks, as in MsBaseline.inputs. (transfer full) */
JsonNode *ms_baseline_inputs(const MsBaseline *baseline);

#endif
