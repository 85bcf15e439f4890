/* src/sim/result.c - what is known of a prediction, figure by figure: the rows that JSON, tables and getters come of.
 */
#include "sim/result.h"

#include "base/units.h"

#include <math.h>

const char *const ms_comm_words[] = {"tp", "cp", "ep", "etp", "pp", "dp", "edp", "offload", NULL};

void ms_result_free(MsResult *result) {
  if (!result) return;
  g_free(result->name);
  g_free(result->why_infeasible);
  g_free(result->stage_time);
  g_free(result->passes);
  ms_memory_free(result->memory);
  g_free(result->bottleneck);
  g_free(result->origins);
  g_free(result->assumed);
  g_free(result->caveat);
  g_free(result->gap);
  g_free(result->shares);
  g_free(result);
}

/* --- time ------------------------------------------------------------------------------------------------------ */
static const void *comm_class(const void *parts, guint i, MsFigureCursor *room) {
  return ms_figure_place(parts, i, MS_N_COMMS, room);
}
static double comm_total_s(const void *c) { return MS_FIGURE_OWNER(MsTimeParts, c)->comm_total_s[MS_FIGURE_I(c)]; }
static double comm_exposed_s(const void *c) { return MS_FIGURE_OWNER(MsTimeParts, c)->comm_exposed_s[MS_FIGURE_I(c)]; }

#define FAMILY(k, i, t, d) MS_FIGURE_AS(k, F64, MsTimeParts, family_s[i], "s", d, .title = t, .print = ms_text_seconds)
const MsFigures ms_family_figures = MS_FIGURE_UNNAMED(
    FAMILY("gemm", 0, "GEMM", "matrix products"), FAMILY("grouped_gemm", 1, "grouped GEMM", "those of the experts"),
    FAMILY("attention", 2, "attention", "attention kernels"),
    FAMILY("memory_bound", 3, "memory-bound", "all that moves more than it computes"));

#define PART(m, t, d) MS_FIGURE(F64, MsTimeParts, m, "s", d, .title = t, .print = ms_text_seconds)
const MsFigures ms_time_figures = MS_FIGURE_TABLE(
    "time", "Where the time of a step goes.", PART(compute_s, "compute", "these six add up to the step"),
    PART(exposed_comm_s, "exposed", "communication that compute waits for"),
    PART(bubble_s, "bubble", "of the pipeline"), PART(host_s, "host", "the device waits for launches"),
    PART(optimizer_s, "optimizer", "update of the parameters"),
    PART(other_s, "other", "what none of these is; at `bound` all but compute"),
    MS_FIGURE_EACH("comm", MAP, comm_class,
                   MS_FIGURES(MS_FIGURE_OF("total_s", F64, comm_total_s, "s",
                                           "by kind of group: tp cp ep etp pp dp edp, and offload"),
                              MS_FIGURE_OF("exposed_s", F64, comm_exposed_s, "s",
                                           "what compute waits for, other stages' too: messages, and "
                                           "reductions before they meet")),
                   .words = ms_comm_words),
    MS_FIGURE_GROUP("compute_by_family", &ms_family_figures));

/* --- memory ---------------------------------------------------------------------------------------------------- */
static gboolean in_pool(const void *stage) { return ((const MsStageMemory *)stage)->pool >= 0; }
static double stage_number(const void *c) { return MS_FIGURE_I(c); }
static const void *stage_memory(const void *c) { return &MS_FIGURE_OWNER(MsMemory, c)->stage[MS_FIGURE_I(c)]; }
static const void *memory_stage(const void *result, guint i, MsFigureCursor *room) {
  const MsMemory *memory = ((const MsResult *)result)->memory;
  return ms_figure_place(memory, i, (guint)memory->stages, room);
}

static const char *gib(double bytes_B, char *buf) {
  g_snprintf(buf, MS_TEXT, "%.2f", bytes_B / MS_GIB);
  return buf;
}

#define BYTES(m, t, d) MS_FIGURE(F64, MsStageMemory, m, "B", d, .title = t, .print = gib)
const MsFigures ms_stage_memory_figures = MS_FIGURE_UNNAMED(
    BYTES(parameters_B, "parameters", "weights, and their low-precision copies"),
    BYTES(gradients_B, "gradients", "of the parameters"),
    BYTES(optimizer_B, "optimizer", "its state and master weights"),
    BYTES(activations_B, "activations", "kept for backward, at the peak"),
    BYTES(transient_B, "transient", "of the pass under way"),
    BYTES(buffers_B, "buffers", "workspaces, dispatchers, dummy gradients"),
    BYTES(reserved_B, "reserve", "held by the allocator beside what is allocated"), BYTES(peak_B, "peak", "allocated"),
    BYTES(between_steps_B, "between", "allocated"),
    BYTES(device_B, "device", "peak with reserve, context and libraries: what must fit"),
    MS_FIGURE(STRING, MsStageMemory, peak_where, "", "in which pass", .title = "at the peak", MS_OR_NULL),
    MS_FIGURE(INT, MsStageMemory, pool, "", "of machines, from 0", .when = in_pool, .only = "`pools`"),
    MS_FIGURE(F64, MsStageMemory, capacity_B, "B", "of a device of that pool", .title = "of", .print = gib,
              .when = in_pool, .only = "`pools`"));
static const MsFigures stage_figures = MS_FIGURE_UNNAMED(MS_FIGURE_OF("stage", INT, stage_number, "", "from 0"),
                                                         MS_FIGURE_ROWS_OF(stage_memory, &ms_stage_memory_figures));

static double peak_stage(const void *result) { return ((const MsResult *)result)->memory->peak_stage; }
static double peak_B(const void *result) {
  const MsMemory *memory = ((const MsResult *)result)->memory;
  return memory->stages > 0 ? memory->stage[memory->peak_stage].peak_B : 0;
}

static const MsFigure memory_rows[] = {MS_FIGURE_OF("peak_B", F64, peak_B, "B", "allocated, of the fullest stage"),
                                       MS_FIGURE(F64, MsResult, capacity_B, "B", "of the device"),
                                       MS_FIGURE_OF("peak_stage", INT, peak_stage, "", "the fullest, from 0"),
                                       MS_FIGURE_EACH("stages", LIST, memory_stage, &stage_figures),
                                       {0}};
const MsFigures ms_memory_figures = {"memory", "Bytes on one rank of each pipeline stage.", memory_rows};

/* --- the step pass by pass ------------------------------------------------------------------------------------- */
static const void *pass_kind(const void *passes, guint i, MsFigureCursor *room) {
  if (i < MS_N_SLOTS && ((const MsPasses *)passes)->count[i] == 0) return ms_figure_skip;
  return ms_figure_place(passes, i, MS_N_SLOTS, room);
}
static double pass_count(const void *c) { return MS_FIGURE_OWNER(MsPasses, c)->count[MS_FIGURE_I(c)]; }
static double pass_total_s(const void *c) { return MS_FIGURE_OWNER(MsPasses, c)->total_s[MS_FIGURE_I(c)]; }

static const MsFigures passes_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE_EACH(NULL, MAP, pass_kind,
                   MS_FIGURES(MS_FIGURE_OF("count", INT, pass_count, "", "passes of a stage, by kind (F, B, I, W, FB)"),
                              MS_FIGURE_OF("total_s", F64, pass_total_s, "s", "of all of them")),
                   .words = ms_slot_words),
    MS_FIGURE(F64, MsPasses, bubble_s, "s", "in which no pass runs"),
    MS_FIGURE(F64, MsPasses, optimizer_s, "s", "update of the parameters"));

static gboolean has_pass_s(const void *result) { return ((const MsResult *)result)->pass_s[MS_SLOT_F] > 0; }
static gboolean is_timed(const void *pass_s) { return *(const double *)pass_s > 0; }

/* --- parts of a result ----------------------------------------------------------------------------------------- */
static double or_unknown(double value) { return value > 0 ? value : NAN; }
static double mfu_peak(const void *result) { return or_unknown(((const MsResult *)result)->peak_flops); }
static double counted_over_run(const void *result) { return or_unknown(((const MsResult *)result)->counted_over_run); }
static gboolean has_lcma(const void *result) { return ((const MsResult *)result)->lcma_growth > 0; }
static gboolean has_caveat(const void *result) { return ((const MsResult *)result)->caveat != NULL; }
static gboolean has_assumed(const void *result) { return ((const MsResult *)result)->n_assumed > 0; }
static gboolean is_expected(const void *result) { return ((const MsResult *)result)->scale.alike_s > 0; }
static gboolean is_drawn(const void *result) { return ((const MsResult *)result)->routing.hottest > 0; }

static double mfu_points(const void *part) { return 100 * ((const MsGapPart *)part)->fraction; }
static const char *origin_data(const void *origin) {
  const MsOrigin *o = origin;
  return o->curve ? o->curve->provenance.data : o->laws;
}
static double origin_residual(const void *origin) {
  const MsCurve *curve = ((const MsOrigin *)origin)->curve;
  return curve ? curve->provenance.residual_p90 : NAN;
}

/* --- a result -------------------------------------------------------------------------------------------------- */
static gboolean has_shares(const void *result) { return ((const MsResult *)result)->n_shares > 0; }
static const void *with_memory(const void *result) { return ((const MsResult *)result)->memory ? result : NULL; }

const MsFigures ms_share_figures = MS_FIGURE_UNNAMED(
    MS_FIGURE(STRING, MsShare, machine, "", "whose replicas these are"),
    MS_FIGURE(INT, MsShare, replicas, "", "on its GPUs", .title = "replicas"),
    MS_FIGURE(INT, MsShare, batch, "", "sequences of a step that they do", .title = "batch"),
    MS_FIGURE(INT, MsShare, microbatches, "", "of each", .title = "microbatches"),
    MS_FIGURE(F64, MsShare, step_time_s, "s", "until their own step would end", .title = "own step",
              .print = ms_text_seconds),
    MS_FIGURE(F64, MsShare, waits_s, "s", "for the slowest ones", .title = "waits", .print = ms_text_seconds),
    MS_FIGURE(F64, MsShare, device_B, "B", "of their fullest stage", .title = "memory", .print = gib),
    MS_FIGURE(F64, MsShare, capacity_B, "B", "of a device", .title = "of", .print = gib),
    MS_FIGURE(BOOL, MsShare, feasible, "", "it fits"));

const MsFigures ms_result_figures = MS_FIGURE_TABLE(
    "result", "A prediction: of a run, of a layout of a plan, of a point of a what-if study.",
    MS_FIGURE(STRING, MsResult, name, "", "of the scenario"),
    MS_FIGURE(BOOL, MsResult, feasible, "", "it fits into the memory of the device"),
    MS_FIGURE(STRING, MsResult, why_infeasible, "", "which stage needs how much", MS_OR_NULL),
    MS_FIGURE(F64, MsResult, step_time_s, "s", "one optimizer step"),
    MS_FIGURE(F64, MsResult, tokens_per_s_per_gpu, "1/s", "tokens of a step over its time and GPUs"),
    MS_FIGURE(F64, MsResult, model_flop_per_token, "FLOP", "Megatron's convention"),
    MS_FIGURE(F64, MsResult, tflops_per_gpu, "TFLOP/s", "model FLOP, 10^12 per second"),
    MS_FIGURE(F64, MsResult, mfu, "1", "model FLOP over the peak below"),
    MS_FIGURE_OF("mfu_peak_flops", F64, mfu_peak, "FLOP/s", "dense peak of the precision's matrix unit", MS_OR_NULL),
    MS_FIGURE_OF("model_flop_over_run_flop", F64, counted_over_run, "1",
                 "FLOP that MFU counts over those that run: more than 1 where sparse attention counts as dense",
                 MS_OR_NULL),
    MS_FIGURE_AS("error_band", F64, MsResult, band, "1",
                 "90 % of measured times are expected within this share of the predicted one", MS_OR_NULL),
    MS_FIGURE_AS("error_band_80", F64, MsResult, band_80, "1", "80 % of them", MS_OR_NULL),
    MS_FIGURE_AS("error_band_50", F64, MsResult, band_50, "1", "half of them", MS_OR_NULL),
    MS_FIGURE(STRING, MsResult, caveat, "", "what must stand beside these figures", .when = has_caveat,
              .only = "machines with assumed figures or without compared runs; fidelity fast"),
    MS_FIGURE_ARRAY("assumed", LIST, MsResult, assumed, n_assumed,
                    MS_FIGURES(MS_FIGURE(STRING, MsAssumed, key, "", "assumed figure of the machine"),
                               MS_FIGURE(F64, MsAssumed, within, "1", "how far off it may be, 90 %"),
                               MS_FIGURE(F64, MsAssumed, share, "1", "of the step that follows it")),
                    .when = has_assumed, .only = "machines with assumed figures"),
    MS_FIGURE_GROUP("bound", MS_FIGURES(MS_FIGURE(F64, MsResult, step_time_lower_s, "s", "proven lower bound"))),
    MS_FIGURE_PART("time", MsResult, time, &ms_time_figures, .doc = "of the step: mean over the stages"),
    MS_FIGURE_BY_WORD("pass_s", MsResult, pass_s, ms_slot_words, "s", "one pass of the middle stage, by kind",
                      .keep = is_timed, .when = has_pass_s, .only = "schedules with split or paired passes"),
    MS_FIGURE_GROUP(
        "lcma",
        MS_FIGURES(MS_FIGURE_AS("time_s", F64, MsResult, lcma_s, "s", "products by a lower-complexity scheme"),
                   MS_FIGURE_AS("error_growth", F64, MsResult, lcma_growth, "1",
                                "of their rounding error over an ordinary product's")),
        .when = has_lcma, .only = "options.lcma"),
    MS_FIGURE_PART(
        "scale", MsResult, scale,
        MS_FIGURES(MS_FIGURE(F64, MsScale, alike_s, "s", "the step if every GPU took as long as those that one meets"),
                   MS_FIGURE(F64, MsScale, sd_s, "s", "of the step over the GPUs that a job may get"),
                   MS_FIGURE(F64, MsScale, p5_s, "s", "a job in twenty takes less"),
                   MS_FIGURE(F64, MsScale, p95_s, "s", "a job in twenty takes more"),
                   MS_FIGURE(F64, MsScale, clocks_s, "s",
                             "of the expected step: clocks of GPUs, which all have the mean one without it"),
                   MS_FIGURE(F64, MsScale, jitter_s, "s", "jitter of kernels and hosts"),
                   MS_FIGURE(F64, MsScale, slow_gpus_s, "s", "slow GPUs"),
                   MS_FIGURE(F64, MsScale, slow_nics_s, "s", "slow NICs")),
        .when = is_expected, .only = "`cluster.expected`"),
    MS_FIGURE_PART("routing", MsResult, routing,
                   MS_FIGURES(MS_FIGURE_AS("hottest_rank_over_mean", F64, MsRoutingLoad, hottest, "1",
                                           "rows of the busiest expert rank, mean over the layers"),
                              MS_FIGURE_AS("hottest_rank_over_mean_of_worst_layer", F64, MsRoutingLoad, hottest_most,
                                           "1", "the same of the worst layer"),
                              MS_FIGURE_AS("peak_of_hottest_rank_B", F64, MsRoutingLoad, peak_B, "B",
                                           "peak memory where most rows come"),
                              MS_FIGURE_AS("peak_of_coldest_rank_B", F64, MsRoutingLoad, peak_coldest_B, "B",
                                           "peak memory where fewest come")),
                   .when = is_drawn, .only = "unbalanced routing"),
    MS_FIGURE_ARRAY("passes", LIST, MsResult, passes, stages, &passes_figures, .only = "not at fidelity bound"),
    MS_FIGURE_ARRAY("stage_time", LIST, MsResult, stage_time, stages, &ms_time_figures, .doc = "of each stage"),
    MS_FIGURE_FOUND("memory", with_memory, &ms_memory_figures),
    MS_FIGURE_GROUP("layout", MS_FIGURES(MS_FIGURE(INT, MsResult, dp, "", "data-parallel size that follows"),
                                         MS_FIGURE(INT, MsResult, edp, "", "the same of the experts"),
                                         MS_FIGURE(INT, MsResult, microbatches, "", "of a step"))),
    MS_FIGURE_ARRAY("shares", LIST, MsResult, shares, n_shares, &ms_share_figures, .when = has_shares,
                    .only = "`pools` with `batch`",
                    .doc = "of the batch, by machine; the rest is of the slowest, `memory` of the fullest"),
    MS_FIGURE(STRING, MsResult, bottleneck, "", "in words", MS_OR_NULL),
    MS_FIGURE_ARRAY(
        "gap", LIST, MsResult, gap, n_gap,
        MS_FIGURES(MS_FIGURE_AS("part", CHARS, MsGapPart, name, "", "what keeps MFU from 100 %, the largest first"),
                   MS_FIGURE_AS("fraction_of_step", F64, MsGapPart, fraction, "1", "of the step time"),
                   MS_FIGURE_OF("mfu_points", F64, mfu_points, "%", "the same in percent"))),
    MS_FIGURE_ARRAY(
        "origins", LIST, MsResult, origins, n_origins,
        MS_FIGURES(
            MS_FIGURE(CHARS, MsOrigin, op, "", "operator whose time comes from ..."),
            MS_FIGURE(F64, MsOrigin, time_s, "s", "its share of the step"),
            MS_FIGURE_TEXT("data", origin_data, "... this measurement, or these laws where the machine has no curve",
                           MS_OR_NULL),
            MS_FIGURE_OF("residual_p90", F64, origin_residual, "1", "relative residual of the fit", MS_OR_NULL))),
    MS_FIGURE(U64, MsResult, events, "", "simulated"),
    MS_FIGURE_WORDS("fidelity", MsResult, fidelity, ms_fidelity_words, "bound, fast or full"));

const MsFigures ms_run_figures =
    MS_FIGURE_UNNAMED({.type = MS_FIGURE_MEMBERS, .sub = &ms_result_figures, .doc = "what was predicted; and"},
                      MS_FIGURE(F64, MsResult, elapsed_s, "s",
                                "of the prediction itself; the only figure that differs between two calls"));
