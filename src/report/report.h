/* src/report/report.h - views on results: text for people, JSON, trace files. Reads plain results and prints nothing
 * itself: every function returns text (transfer full) or writes the file it is given. Units are converted here and
 * nowhere else. */
#ifndef MS_REPORT_REPORT_H
#define MS_REPORT_REPORT_H

#include "cluster/cluster.h"
#include "cluster/links.h"
#include "plan/plan.h"
#include "study/acting.h"
#include "study/anchor.h"
#include "study/changes.h"
#include "study/check.h"
#include "study/crossval.h"
#include "study/diff.h"
#include "study/draws.h"
#include "study/extras.h"
#include "study/goodput.h"
#include "study/ladder.h"
#include "study/picks.h"
#include "study/reasons.h"
#include "study/regret.h"
#include "study/robust.h"
#include "study/sweep.h"
#include "study/validate.h"
#include "study/ways.h"
#include "study/whatif.h"

/* --- style.c --------------------------------------------------------------------------------------------------- */
int ms_report_width(void); /* columns of the terminal, 100 when stdout is none */
/* MS_REPORT_COLOUR where stdout is a terminal that wants it (NO_COLOR unset or empty, TERM not dumb), MS_REPORT_ASCII
 * where LC_ALL, LC_CTYPE or LANG, the first that is set, does not name UTF-8. */
unsigned ms_report_flags(void);
/* In place: control characters become blanks, but for line breaks, tabs, and where there is colour what sets it. What a
 * file says must not steer a terminal. Returns `text`. */
char *ms_report_printable(char *text, unsigned flags);
/* A name that a file may give, on one line and without control characters. (transfer full) */
char *ms_report_name(const char *name);

/* --- table.c --------------------------------------------------------------------------------------------------- */
enum {
  MS_REPORT_COLOUR = 1,
  MS_REPORT_EXPLAIN = 2 /* every stage, and where the numbers come from */,
  MS_REPORT_ALL = 4,  /* the whole ranking of a plan, beside what to choose from */
  MS_REPORT_ASCII = 8 /* no block elements */
};
/* One prediction: what, how long, where the time goes (parts that add up to the step), memory per stage, what holds it
 * back. `scenario` only adds the heading and may be NULL. */
char *ms_report_result(const MsScenario *scenario, const MsResult *result, const MsChanges *changes, unsigned flags);
/* What the parts of a step are called where there is room, by place in MsTimeParts, and their sum. */
extern const char *const ms_report_parts[MS_N_TIME_PARTS];
double ms_report_parts_s(const MsTimeParts *time);
/* Where MFU counts clearly more FLOP than run (sparse attention under Megatron-LM's convention): a sentence that says
 * so. NULL elsewhere. (transfer full) */
char *ms_report_mfu_note(const MsResult *result);
/* Pools of replicas: "96 sequences on h100-sxm (16 x 6 microbatches), ...". Empty elsewhere. (transfer full) */
char *ms_report_shares(const MsResult *result);
/* Memory of every stage: components, peak, capacity (NaN: unknown), what is live at the peak. */
char *ms_report_memory(const MsMemory *memory, double capacity_B, int max_rows);

/* --- extent.c: how far work came that was stopped --------------------------------------------------------------- */
void ms_report_extent(GString *out, const MsExtent *extent); /* a line, nothing when all was done */
extern const MsFigures ms_extent_figures;
#define MS_REPORT_EXTENT(S, m) \
  { .type = MS_FIGURE_MEMBERS, .offset = offsetof(S, m), .sub = &ms_extent_figures }

/* --- draws.c --------------------------------------------------------------------------------------------------- */
char *ms_report_draws(const MsDraws *draws);

/* --- cluster.c ------------------------------------------------------------------------------------------------- */
char *ms_report_cluster(const MsCluster *cluster);
extern const MsFigures ms_cluster_figures;

/* --- terminal.c ------------------------------------------------------------------------------------------------ */
/* The pipeline of a step as a picture of characters. (transfer full) */
char *ms_report_pipeline(const MsDetail *detail, int width, unsigned flags);
/* A run as a picture of characters, at most MS_TEXT_COLUMNS wide: where the step goes, the pipeline (`detail`, NULL:
 * left out), memory, communication. (transfer full) */
char *ms_report_terminal(const MsScenario *scenario, const MsResult *result, const MsDetail *detail, int width,
                         unsigned flags);

/* --- acting.c -------------------------------------------------------------------------------------------------- */
char *ms_report_acting(const MsActingLaws *acting);
typedef struct { /* a run as it is printed */
  const MsResult *result;
  const MsDraws *draws;       /* NULL: none */
  const MsCluster *cluster;   /* NULL: not at this fidelity */
  const MsActingLaws *acting; /* NULL: not asked for */
  const MsChanges *changes;   /* NULL: not asked for */
} MsPrintedRun;

/* --- wording.c ------------------------------------------------------------------------------------------------- */
const char *ms_report_key(const char *path); /* "cp" of "layout.cp": the end of it */
/* JSON as a person writes it in a table: a list joined by "+", yes and no. (transfer full) */
char *ms_report_value(const char *json);
/* The same of one setting: recomputation by its modules, words without quotes. (transfer full) */
char *ms_report_setting(const char *json);
char *ms_report_change(const MsComparison *change); /* "vpp 4 -> 2, ..." (transfer full) */
/* Below a table of ms_report_layout of one task, a line for each whose other keys are on and not those of all of them:
 * "7 with cuda_graph_scope attn". `place`: the number of each row. */
void ms_report_append_apart(GString *out, const GPtrArray *scenarios, const int *place);

/* --- changes.c ------------------------------------------------------------------------------------------------- */
typedef struct {
  int n;
  char **line; /* NULL-terminated */
} MsAdvice;
/* What to do with a run, at most three sentences; none where nothing gains. */
MsAdvice ms_advice_of(const MsResult *run, const MsChanges *changes);
void ms_advice_clear(MsAdvice *advice);
/* The same below its headline. (transfer full) */
char *ms_report_changes(const MsResult *run, const MsChanges *changes);
extern const MsFigures ms_changes_figures; /* of MsChanges */

char *ms_report_adapters(const MsScenario *scenario); /* ", LoRA of rank 16", or nothing (transfer full) */

/* --- plan_table.c ---------------------------------------------------------------------------------------------- */
/* "tp 1 cp 1 ... mbs 1 recompute full"; the last two only where something is recomputed. (transfer full) */
char *ms_report_layout(const MsScenario *scenario);
/* "64", or "64 to 256" where the number is searched. (transfer full) */
char *ms_report_gpus(const MsRequest *request);
/* `deadline`: what was short was time, not memory. (transfer full) */
char *ms_report_ways(const MsWays *ways, gboolean deadline);
char *ms_report_recompute(const MsRecomputeSpec *recompute); /* "moe_act+layernorm", "full", "none" */
/* The form that starts it; NULL: none. Adapters, and machines of several kinds, are no arguments of what is launched
 * (docs/launch.md). */
const char *ms_report_launch_form(const MsScenario *scenario);
/* What to choose from, and with MS_REPORT_ALL or without `extras->picks` at most `top` rows of the ranking (0: all);
 * `extras` may be NULL. */
char *ms_report_plan(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras, int top, unsigned flags);
/* One line while it is searched: what was found so far, in short. */
char *ms_report_plan_so_far(const MsPlan *plan, double done);
/* The same for people: how much is done, the best so far, its step. (transfer full) */
char *ms_report_plan_best_so_far(const MsPlan *plan, double done);
char *ms_report_plan_json(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras, int top);
/* --- plan_figures.c: what the JSON of a plan is made of --- */
typedef struct { /* a plan as it is printed */
  const MsRequest *request;
  const MsPlan *plan;
  const MsReasons *reasons;   /* NULL: none */
  const MsRobust *robust;     /* NULL: none */
  const MsWays *ways;         /* NULL: none */
  const MsPicks *picks;       /* NULL: none */
  const MsDecision *decision; /* NULL: none */
  const MsLayoutMap *map;     /* NULL: none */
  int shown;                  /* of the ranking */
  gboolean in_sweep;          /* the time of the search is said once, for the whole sweep */
  char *assumes;              /* what the objective assumes; to be freed, NULL: nothing */
} MsPrintedPlan;
MsPrintedPlan ms_printed_plan(const MsRequest *request, const MsPlan *plan, const MsPlanExtras *extras, int top);
int ms_plan_shown(const MsPlan *plan, int top); /* rows of at most `top` (0: all) */
void ms_report_scenario(const void *scenario, const char *key,
                        MsJsonOut *out); /* `write` of a row that is a scenario */
/* Rows of the result, and the scenario, of the entry of a plan that a struct points to. */
#define MS_REPORT_OF_RESULT(S, entry, ...) \
  MS_FIGURE_ROWS_AT(S, entry, MS_FIGURES(MS_FIGURE_ROWS_AT(MsPlanEntry, result, MS_FIGURES(__VA_ARGS__))))
#define MS_REPORT_ENTRY_SCENARIO(S, entry) \
  MS_FIGURE_ROWS_AT(                       \
      S, entry,                            \
      MS_FIGURES(MS_FIGURE_FILE_AT("scenario", MsPlanEntry, scenario, ms_report_scenario, "complete: it runs")))

/* --- tables of figures, one per object that the verbs print (ms_result_figures is in sim/result.h) --- */
extern const MsFigures ms_printed_run_figures, ms_draws_figures, ms_spread_figures; /* of MsPrintedRun, of MsDraws */
extern const MsFigures ms_plan_figures, ms_sweep_figures, ms_whatif_figures, ms_check_figures, ms_goodput_figures,
    ms_validation_figures, ms_crossval_figures;
extern const MsFigures ms_ladders_figures; /* of MsLadders */
extern const MsFigures ms_regret_figures;  /* of MsRegret */
/* A fabric and what the job's collectives make of it; borrows the machine. NULL and *error where the machine has none
 * or it cannot be. (transfer full) */
typedef struct MsFabricView MsFabricView;
MsFabricView *ms_fabric_view_new(const MsScenario *scenario, GError **error);
void ms_fabric_view_free(MsFabricView *view);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsFabricView, ms_fabric_view_free)
extern const MsFigures ms_fabric_figures; /* of a view */
extern const MsFigures ms_link_figures;   /* of MsLinkLoad */
/* The fabric of the scenario's machine and what its collectives make of it, as text or JSON; NULL and *error where
 * there is none or it cannot work. (transfer full) */
char *ms_report_fabric(const MsScenario *scenario, gboolean json, GError **error);
extern const MsFigures ms_reasons_figures;  /* of an MsPrintedPlan with reasons */
extern const MsFigures ms_robust_figures;   /* of MsRobust */
extern const MsFigures ms_decision_figures; /* of MsDecision */
extern const MsFigures ms_ways_figures;     /* of MsWays */
extern const MsFigures ms_picks_figures;    /* of MsPicks */
extern const MsFigures ms_map_figures;      /* of MsLayoutMap */

/* --- sweep.c --------------------------------------------------------------------------------------------------- */
char *ms_report_sweep(const MsSweep *sweep);
char *ms_report_sweep_json(const MsSweep *sweep);
/* While it is searched, one line each: what was found so far, in short; and the same for people, of the cell at work.
 * (transfer full) */
char *ms_report_sweep_so_far(const MsSweep *sweep, double done);
char *ms_report_sweep_best_so_far(const MsSweep *sweep, double done);
/* The points of the front search through gnuplot and plots/front.gp into an .svg or .png file. FALSE and an
 * MS_ERROR_ENV when gnuplot is missing. */
gboolean ms_report_sweep_plot(const MsSweep *sweep, const char *filename, GError **error);

/* --- reasons.c ------------------------------------------------------------------------------------------------- */
char *ms_report_reasons(const MsPlan *plan, const MsReasons *reasons);

/* --- picks.c --------------------------------------------------------------------------------------------------- */
char *ms_report_pick_title(const MsPick *pick); /* "fastest, cheapest" (transfer full) */
char *ms_report_picks(const MsRequest *request, const MsPlan *plan, const MsPicks *picks);

/* --- robust.c -------------------------------------------------------------------------------------------------- */
char *ms_report_robust(const MsRobust *robust, int top);

/* --- decide.c -------------------------------------------------------------------------------------------------- */
char *ms_report_decision(const MsDecision *decision);

/* --- validation.c ---------------------------------------------------------------------------------------------- */
char *ms_report_validation(const MsValidation *validation, const MsValidateOptions *options, unsigned flags);
/* `ladders` and `regret` may be NULL. */
char *ms_report_validation_json(const MsValidation *validation, const MsLadders *ladders, const MsRegret *regret,
                                const MsValidateOptions *options);

/* --- ladders.c ------------------------------------------------------------------------------------------------- */
char *ms_report_ladders(const MsLadders *ladders);

/* --- regret.c -------------------------------------------------------------------------------------------------- */
char *ms_report_regret(const MsRegret *regret);

/* --- crossval.c ------------------------------------------------------------------------------------------------ */
char *ms_report_crossval(const MsCrossval *crossval);

/* --- plot.c ---------------------------------------------------------------------------------------------------- */
char *ms_report_validation_csv(const MsValidation *validation); /* one line per row, columns in the first line */
/* Whether a picture could be drawn into this file, to be asked before the work it shows; NULL can. FALSE and an
 * MS_ERROR_ENV: gnuplot is missing, or the file cannot be written. */
gboolean ms_report_can_plot(const char *filename, GError **error);
/* Scatter of the step times through gnuplot and plots/validation.gp into an .svg or .png file. FALSE and an
 * MS_ERROR_ENV when gnuplot is missing or fails. */
gboolean ms_report_validation_plot(const MsValidation *validation, const char *filename, GError **error);

/* --- whatif.c -------------------------------------------------------------------------------------------------- */
char *ms_report_whatif(const MsWhatifRun *run, unsigned flags);
char *ms_report_whatif_json(const MsWhatifRun *run); /* one line */
/* One line per point, the base first; the columns are the same for every study. */
char *ms_report_whatif_csv(MsWhatifRun *const *runs, guint n);
/* Parts of every point as stacked bars with the throughput above them, through gnuplot and plots/whatif.gp, .svg or
 * .png. */
gboolean ms_report_whatif_plot(MsWhatifRun *run, const char *filename, GError **error);

/* --- check.c --------------------------------------------------------------------------------------------------- */
/* What moved, by how much, in which part, and which figures of machines and models changed. Nothing in them depends on
 * time or place. */
char *ms_report_check(const MsCheck *check, unsigned flags);
char *ms_report_check_junit(const MsCheck *check); /* JUnit XML: a test case per scenario, a failure per drifted one */
char *ms_report_check_markdown(const MsCheck *check); /* for the summary page of a CI job */

/* --- goodput.c ------------------------------------------------------------------------------------------------- */
/* Effective training time, interruptions, days and GPU-hours, the optimal checkpoint interval, where the time goes. */
char *ms_report_goodput(const MsGoodputResult *result, unsigned flags);

/* --- picture.c ------------------------------------------------------------------------------------------------- */
/* The schedule, one row per stage and time to the right, in at most `width` columns. */
char *ms_report_schedule(const MsSchedule *schedule, const MsScheduleRun *run, int width, unsigned flags);
/* The same as an SVG file; `name` is a word of ms_schedule_words. */
char *ms_report_schedule_svg(const char *name, const MsSchedule *schedule, const MsScheduleRun *run);

/* --- trace.c --------------------------------------------------------------------------------------------------- */
/* Chrome trace (Perfetto, chrome://tracing): a process per stage, a thread per stream, one span per operator, memory as
 * counters. */
gboolean ms_report_trace(const MsDetail *detail, const char *filename, GError **error);
/* The same in the form of the PyTorch profiler, of the stages of some ranks, each with its host; steps one behind the
 * other. Events beyond the limit are left out and counted: the file stays whole. An MS_ERROR_INPUT for a rank that
 * there is not. */
typedef struct {
  const int *rank; /* [n_ranks], at least one */
  int n_ranks, steps;
  MsTrajectory *const *ran; /* [n_ranks] when the tasks of each ran; NULL: as in the full step */
  double limit_B;           /* of the file; 0: none */
} MsKinetoOptions;
gboolean ms_report_trace_kineto(const MsScenario *scenario, const MsDetail *detail, const MsKinetoOptions *options,
                                const char *filename, guint64 *left_out, GError **error);
/* A run that was timed (`moesim exec`), in the same form: one rank, rows on one stream behind each other. */
typedef struct {
  const MsOp *op;
  double start_s, end_s; /* since the first step began */
} MsKinetoRow;
typedef struct {
  const char *device; /* what ran it */
  int rank, ranks, n_rows, steps;
  const MsKinetoRow *row;              /* in their order */
  const double *step_start_s, *step_s; /* [steps] */
  double reference_flops;              /* of the reference kernel beside them (exec/exec.h); 0: not measured */
} MsKinetoRun;
gboolean ms_report_trace_run(const MsScenario *scenario, const MsKinetoRun *run, const char *filename, GError **error);
/* CSV "stage,time_s,allocated_B,slot": allocated bytes after every slot of every stage. */
gboolean ms_report_timeline(const MsDetail *detail, const char *filename, GError **error);

/* --- two profiles of a step beside each other ---------------------------------------------------------------- */
extern const MsFigures ms_diff_figures; /* of MsDiff */
char *ms_report_diff(const MsDiff *diff);
/* "predicted" and "measured", or "A" and "B" where both are the same. Static text. */
void ms_report_diff_titles(const MsDiff *diff, const char **a, const char **b);

/* --- what runs of one's own say of a machine ------------------------------------------------------------------- */
char *ms_report_anchored(const MsAnchored *anchored); /* three lines (transfer full) */
extern const MsFigures ms_anchor_figures;             /* of MsAnchorEvaluation */
char *ms_report_anchor_evaluation(const MsAnchorEvaluation *evaluation);

#endif
