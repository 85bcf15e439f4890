/* src/describe/hardware.h - a machine: device, node, scale-up domain, NICs, fabric, host link, and its fitted curves.
 *
 * A file is hardware/NAME.json. Data-sheet members are NaN (or 0 for counts) when unknown; whoever needs one calls
 * ms_hardware_need, so that a run on a machine with a hole is refused by the name of the hole, never guessed.
 * Every figure has its source in `sources` (key -> text); every curve carries its provenance. const after load. */
#ifndef MS_DESCRIBE_HARDWARE_H
#define MS_DESCRIBE_HARDWARE_H

#include "describe/anchor.h"
#include "describe/enums.h"
#include "describe/fabric.h"
#include "describe/field.h"

/* --- curves: forms of docs/theory/costs.md, as data ---
 * FORM(id, word, parameters...); meaning of each in cost/curve.h, which evaluates them. */
typedef enum {
  MS_FORM_GEMM_SATURATING, /* "gemm-saturating": form C */
  MS_FORM_GEMM_TILED,      /* "gemm-tiled": form E2 */
  MS_FORM_GROUPED_GEMM,    /* "grouped-gemm": form F */
  MS_FORM_ATTENTION,       /* "attention": form F */
  MS_FORM_SEGMENTS,        /* "segments": min over lines alpha + bytes/bandwidth */
  MS_FORM_DISPATCH,  /* "dispatch": alpha + bytes / soft min(per-SM * SMs, link), see cost/curve.h; all but these three
                        may be left out */
  MS_FORM_BANDWIDTH, /* "bandwidth": bytes / (HBM * efficiency) + launch */
  MS_FORM_TERMS,     /* "terms": a sum of seconds per row, element, FLOP and byte; serves any operator that computes */
  MS_N_FORMS
} MsCurveForm;
extern const char *const ms_curve_form_words[];

#define MS_CURVE_PARAMS 10
/* Parameters of a form from here on may be left out, which means 0. */
int ms_curve_required(MsCurveForm form);
/* Names of the parameters of each form, NULL-terminated, in the order of MsCurve.param. */
extern const char *const ms_curve_param_words[MS_N_FORMS][MS_CURVE_PARAMS + 1];

/* Residual: time *= exp(multilinear(log_ratio; log2 of the axes)), clamped at the ends. Names and numbers are atomic
 * boxes, which copies of a curve share: they are written before there is a copy. */
typedef struct {
  int dims; /* 0 = no grid */
  int n[4];
  GRefString *name[4]; /* axis names as in the file, e.g. "m" */
  double *axis[4];     /* ascending, > 0 */
  double *log2_axis[4];
  double *log_ratio; /* row-major, first axis slowest */
} MsGrid;
void ms_grid_clear(MsGrid *grid);

typedef struct { /* where a curve comes from; printed by `moesim show hardware` */
  char *data;    /* which measurements */
  char *form;    /* form in words */
  char *command; /* that made it */
  char *date;
  char *note;
  char *lent_by; /* machine whose curve this is, scaled to the peaks of another; NULL: its own */
  char *library; /* whose rows they are ("trtllm-1.3.0rc20 deepgemm"); `moesim fit --evaluate` compares with rows of
                    this library only */
  double cast_launch_s,
      cast_bw_efficiency; /* GEMM rows with the cast of their activations inside: what the rows hold beyond the curve,
   launch + (2 + w) m k bytes at this share of HBM bandwidth; NaN = nothing. The simulator has cast rows of its own. */
  double n_fitted, n_held_back;
  double residual_median, residual_p90; /* relative, on points held back; NaN unknown */
} MsProvenance;

typedef struct MsCurve {
  char *op;         /* gemm, grouped_gemm, attention, all_gather, reduce_scatter, all_reduce, all_to_all, p2p, dispatch,
                       combine, or the word of a memory-bound operator ("rmsnorm", ...; "elementwise" is the default) */
  char *dtype;      /* bf16, fp8, fp8-block, mxfp8, nvfp4, fp32; NULL = any. Collectives: "fp32" serves messages of FP32
                       where a profile has both */
  char *pass;       /* forward, dgrad, wgrad, backward; NULL = any */
  char *level;      /* nvlink or network for collectives; NULL = any */
  char *dispatcher; /* for dispatch and combine; NULL = any */
  char *library;    /* whose grouped GEMM, of ms_grouped_library_words; NULL = any */
  int head_dim;     /* attention; 0 = any */
  int ranks;        /* collectives: group size it was measured at; 0 = any */
  MsCurveForm form;
  double param[MS_CURVE_PARAMS];
  double sustained; /* rate in long training over the rate in the short measurements, multiplies `efficiency` in the
                       simulator; 1 = same */
  int n_segments;   /* MS_FORM_SEGMENTS */
  double segment_alpha_s[4], segment_Bps[4];
  MsGrid grid;
  MsProvenance provenance;
  const struct MsCurve *lender; /* the box whose curve has these strings and tables, held; NULL: they are its own */
  gboolean own_note;            /* provenance.note is its own all the same */
  gboolean of_base;             /* stands in the file of a machine whose figures this one only assumes to be others */
} MsCurve;

typedef enum {
#define MS_COLLECTIVES(id, ...) MS_COLLECTIVES_##id,
#include "describe/collectives.def"
#undef MS_COLLECTIVES
  MS_N_COLLECTIVES
} MsCollectives;
typedef struct {
  const char *word;
  gboolean
      server_rings;  /* rings are of domains, what is inside runs beside them, and there are no trees; else of ranks */
  gboolean pat;      /* gathers and scatters may go by PAT where a domain has one rank */
  gboolean nhr;      /* rings may be nonuniform hierarchical ones from three domains on */
  gboolean halves;   /* a power of two of domains halves and doubles */
  int doubles_from;  /* so many domains do whatever their number; 0: never */
  gboolean channels; /* to a NIC as NCCL gives them to messages and rings (cost/channels.c) */
} MsCollectivesRow;
extern const MsCollectivesRow ms_collectives_rows[]; /* [MS_N_COLLECTIVES] */

#define MS_MOST_JITTER 0.2 /* of kernel_jitter and clock_spread: what differs by more has no core of its own */

typedef struct MsHardware {
  char *name, *doc, *vendor, *arch;
  /* device */
  double peak_bf16_flops, peak_fp16_flops, peak_fp8_flops, peak_mxfp8_flops, peak_nvfp4_flops,
      peak_fp32_flops;            /* dense */
  guint32 unsupported_precisions; /* bit per MsPrecision that the device cannot do */
  double hbm_B, hbm_Bps;
  double l2_B, l2_Bps; /* last-level cache; what all SMs together read from it and write */
  int sm_count;        /* SMs, CUs, AI cores; 0 unknown */
  double clock_Hz, tdp_W;
  /* machine */
  int gpus_per_node;              /* one operating system */
  int nvlink_domain_gpus;         /* GPUs that reach each other over the scale-up link (NVLink, MTLink, XGMI, UB) */
  char *scaleup;                  /* its name */
  double scaleup_Bps;             /* per GPU, one direction */
  double nic_Bps;                 /* per GPU, one direction */
  double network_latency_s;       /* that a hop over the network takes longer than over InfiniBand */
  double fabric_oversubscription; /* 1 = full bisection */
  int gpus_per_rail_group;   /* GPUs under one leaf or rail switch group before oversubscription applies; 0 = none */
  MsFabric fabric;           /* in place of these two; kind none: there is none */
  double host_link_Bps;      /* device to host, one direction */
  int host_link_gpus;        /* devices behind one such link: ranks copy at the same time, each gets its share */
  int collectives;           /* MsCollectives */
  gboolean nvls;             /* in-switch reduction on the scale-up link */
  gboolean sharp;            /* in-network reduction on the fabric */
  gboolean deepep, hybridep; /* dispatchers that exist for it */
  gboolean cuda_graphs;
  gboolean fp8_any_layout; /* FP8 GEMMs read either operand along either dimension (Blackwell), not along k only */
  double reference_flops;  /* moesim calibrate's reference kernel while it was measured; NaN: not that way */
  double kernel_jitter, clock_spread; /* relative standard deviations: of a kernel's time from one rank to the next, of
                                         the clocks of its devices; NaN: the laws of these names */
  gboolean serial; /* messages keep the cores busy that compute: the rows of a rank run one after another */
  /* overheads that no kernel benchmark shows, shared by all models (fitted; see provenance in `sources`) */
  double kernel_launch_s;  /* host time to launch one kernel eagerly (framework included) */
  double graph_launch_s;   /* host time to replay one captured graph */
  double sync_s;           /* host cost of one device synchronisation */
  double sustained_derate; /* long-run clock over benchmark clock, matrix kernels; 1 = none */
  double wgrad_factor;     /* time of a weight-gradient GEMM over the forward one */
  double dgrad_factor;
  gboolean attention_after_fa2;     /* its curves of attention are of later kernels */
  gboolean grouped_gemm_of_te;      /* its curves of grouped GEMM are of the layer that trains, or no slower */
  int sustained_gpus;               /* of the runs that sustained_derate was found by; 0: unknown */
  double generation_year;           /* when its generation shipped; NaN: unknown */
  gboolean vboost;                  /* power is moved from the memory to the cores, which clock higher */
  double sustained_tdp_W;           /* power limit under which sustained_derate was found */
  double attention_backward_factor; /* FLOP/s of backward over forward attention, see docs/theory/costs.md 4 */
  double attention_sink_factor;     /* FLOP/s of attention with a learned softmax sink over attention without */
  int published_runs;               /* that predictions on it were compared with; 0: the band grows (sim/band.h) */
  int nccl_sms, deepep_sms, hybridep_sms; /* SMs a running collective takes from compute */
  double blas_workspace_B;                /* scratch of cuBLAS for each thread that launches products */
  double te_workspace_B;                  /* of TransformerEngine, the same again for each of four grouped products */
  double context_B;                       /* memory outside the framework's allocator: context, NCCL */
  double reserve_ratio;                   /* reserved over allocated */
  int num_curves;
  const MsCurve *curves; /* an atomic box, which copies of the machine share: ms_curves_own to change them */
  MsAnchor anchor;       /* what was learned from runs on it */
  JsonNode *sources;     /* object: key -> text */
  char *curves_from;     /* the profile whose curve shapes were inherited, NULL = its own */
  JsonNode *variants;    /* list of names: what its base stands for where the figures are theirs; NULL: none */
} MsHardware;

extern const MsFieldTable ms_hardware_table;
extern const MsFieldTable ms_curve_table;

/* Fitted to kernels or messages of the machine itself, whatever its data sheet is taken to say. */
gboolean ms_curve_is_own(const MsCurve *curve);
/* Deep copy of a curve into *to, whose old contents are forgotten. */
void ms_curve_copy(const MsCurve *from, MsCurve *to);
/* Takes `note`, in place of provenance.note. */
void ms_curve_take_note(MsCurve *curve, char *note);

/* `name`: of a file of hardware/, or the path of one; `node` at `path` of `doc`: a name, or an object of figures upon a
 * "base". NULL and *error for what is refused. (transfer full) */
MsHardware *ms_hardware_load(const char *name, GError **error);
MsHardware *ms_hardware_from_json(const MsJson *doc, JsonNode *node, const char *path, GError **error);
MsHardware *ms_hardware_copy(const MsHardware *hardware);
/* Gives the machine curves that no other shares, and room for `more` behind them, to be changed, but for strings and
 * tables. */
MsCurve *ms_curves_own(MsHardware *hardware, int more);
void ms_hardware_free(MsHardware *hardware);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsHardware, ms_hardware_free)

/* --- hardware_rates.c: a machine like a measured one with one rate changed
 * --------------------------------------------------- Curves of kernels are relative to the peaks and the HBM bandwidth
 * of the profile, so they follow these by themselves. Curves of collectives and dispatchers are absolute: the bandwidth
 * term of those that a link limits is scaled with the link, the latency term and what SMs can issue stay. The note in
 * their provenance says so. The same happens to a profile that is changed in a scenario, {"base": NAME, "nic_Bps":
 * ...}, unless the curves are given there too. */

/* Multiplies the rate (or any other number of the profile; a hole stays a hole) by `factor` > 0, and what follows from
 * it. */
void ms_hardware_scale(MsHardware *hardware, const char *key, double factor);
/* The second half alone: the curves from `first` on were measured at `from_Bps` of the link `key` ("scaleup_Bps" or
 * "nic_Bps") and shall tell what they would be at `to_Bps`. Nothing happens when either is unknown. */
void ms_curves_follow_link(MsHardware *hardware, int first, const char *key, double from_Bps, double to_Bps);
/* The key of the link that limits the curve of a collective or a dispatcher; NULL: a curve of anything else. */
const char *ms_curve_link(const MsCurve *curve);
/* The bandwidth that such a curve tends to. */
double ms_curve_most_Bps(const MsCurve *curve);

/* FALSE and an MS_ERROR_INPUT "hardware NAME: KEY is unknown; ..." when the value is NaN (or not > 0). */
gboolean ms_hardware_need(const MsHardware *hardware, double value, const char *key, GError **error);
/* Dense peak of the matrix unit for a precision, FLOP/s; NaN when unknown or not supported. */
double ms_hardware_peak_flops(const MsHardware *hardware, MsPrecision precision);

/* Whether a curve is of grouped products of a library (ms_grouped_library_words). */
gboolean ms_hardware_has_library(const MsHardware *hardware, const char *word);

/* What a rank gets of the link to the host while all copy, one direction. */
static inline double ms_hardware_host_Bps(const MsHardware *hardware) {
  return hardware->host_link_Bps / MAX(1, hardware->host_link_gpus);
}

#endif
