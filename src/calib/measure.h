/* src/calib/measure.h - measured rows of kernels and collectives, sorted into series, and what a curve predicts for one
 * row.
 *
 * A table is recognised by its columns (docs/extend.md; a user's own table works the same way): GEMMs (dtype,
 * m, n, k), the same with a role (fwd, dgrad, wgrad), expert layers, grouped GEMMs with a role, causal attention, MLA,
 * attention forward and backward, gated delta rules, NCCL collectives, DeepEP and NVLink all-to-all dispatch and
 * combine, casts, copies. All have latency_us (DeepEP: dispatch_us, combine_us). The columns gpu and source are
 * optional; without gpu every row is one of the machine in question.
 *
 * Left out: rows that an autotuner spoiled (suspect = 1), GEMMs of a number of rows that is no multiple of 8 (no
 * training step has them: the tokens of a micro-batch are), routing other than balanced, attention that is not causal,
 * exchanges below 256 tokens a rank (latency of a server, not of a training step), dtypes that no curve has. */
#ifndef MS_CALIB_MEASURE_H
#define MS_CALIB_MEASURE_H

#include "cost/curve.h"
#include "work/work.h"

typedef enum {
  MS_ROW_GEMM,       /* x = m, n, k */
  MS_ROW_LAYER,      /* x = tokens of the EP group, hidden, expert width / tp, topk, experts, ep, gated: permute, GEMM,
                        activation, GEMM, finalize */
  MS_ROW_GROUPED,    /* x = rows, groups, n, k: one grouped GEMM */
  MS_ROW_ATTENTION,  /* x = batch, seq, heads, kv heads, qk dim, v dim, 1 if backward */
  MS_ROW_COLLECTIVE, /* x = bytes as nccl-tests count, ranks */
  MS_ROW_EXCHANGE,   /* x = tokens per rank, hidden, topk, experts, ep, nodes, SMs, bytes per element */
  MS_ROW_CAST,       /* x = bytes read and written */
  MS_ROW_DELTA,      /* x = batch, seq, key heads, value heads, key dim, value dim: chunked gated delta rule, forward */
  MS_N_ROW_KINDS
} MsRowKind;
enum { MS_ROW_X = 8 };

typedef struct {
  double x[MS_ROW_X]; /* unused ones are 0 */
  double time_s;
} MsRow;

typedef struct { /* which curve of a profile: the members of MsCurve of the same names; static words */
  const char *op, *dtype, *pass, *level, *dispatcher;
  int head_dim, ranks;
} MsCurveKey;

/* Rows of one table that one curve should describe. */
typedef struct {
  MsRowKind kind;
  MsCurveKey key;
  int dtype;         /* MsOpDtype of its rates */
  gboolean training; /* kernels of a training framework under sustained load, not an inference benchmark */
  char *file;        /* base name of the table */
  char *gpu;         /* as the table says, "" when it does not */
  int machine;       /* index into the names given to ms_measure_read */
  char *library;     /* "trtllm-1.3.0rc20 deepgemm", "consensus", "" when the table does not say */
  GArray *rows;      /* MsRow */
} MsSeries;
void ms_series_free(MsSeries *series);

/* Appends the series of one table for the machines `names` (NULL-terminated; profile names). A table that is of no use
 * adds nothing and says why in *note (transfer full, NULL when there is nothing to say). FALSE and *error on bad
 * content. */
gboolean ms_measure_read(const char *filename, const char *const *names, GPtrArray *series, char **note,
                         GError **error);
/* Whether a word of the column gpu means this profile: "gb200" is gb200-nvl72, "h100_sxm" is h100-sxm. */
gboolean ms_measure_is_gpu(const char *name, const char *word);

/* One row per shape: the median of its times, in ascending order of the shape. */
void ms_series_merge(GArray *rows);
/* 0..999, from the shape alone: which points are held back does not depend on machine, table or order. Below
 * MS_HELD_BACK: never fitted. */
int ms_row_bucket(MsRowKind kind, const double *x);
enum { MS_HELD_BACK = 150, MS_VALIDATION = 250 }; /* [150, 250) chooses between forms, then is fitted too */

typedef struct {
  double time_s; /* of the whole row, as it was measured */
  double share;  /* of it, what the curve itself gives and its grid multiplies */
  double at[4];  /* coordinates in the grid */
} MsPrediction;
/* What the simulator's curve functions say of a row. Rows hold more than the curve in two cases: a GEMM row with its
 * activation cast inside (provenance.cast_*), and an expert layer, which has permute, activation and finalize beside
 * its two GEMMs: those bytes at bw_efficiency_act. */
MsPrediction ms_predict(const MsCurve *curve, const MsDeviceRates *device, const MsSeries *series, const double *x);

#endif
