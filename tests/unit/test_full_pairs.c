/* What papers say a technique changes, against what it changes here: the direction in all, the size within a third
 * except where a row says why not. Sources: arXiv 2603.07685 tables 3-5 and 7 (the Megatron-Core MoE report),
 * Megatron-MoE-ModelZoo best_practice/qwen3 (through scenarios/published). */
#include "lib/close.h"

#include "base/units.h"
#include "lib/world.h"
#include "step/program.h"
#include "sim/simulate.h"

#include <string.h>

#define THIRD (1.0 / 3)

static void compare(const char *what, double here, double published, double within) {
  if (!(here * published > 0)) fail_msg("%s: %g, published %g: the wrong direction", what, here, published);
  if (!(fabs(here / published - 1) <= within))
    fail_msg("%s: %g, published %g (%+.0f %%)", what, here, published, 100 * (here / published - 1));
}

static MsResult *published(const char *name) {
  g_autoptr(MsScenario) s = ms_test_scenario_file("scenarios/published/modelzoo/%s.json", name);
  return ms_test_simulate(s, MS_FIDELITY_FULL);
}

/* Qwen3-235B on 256 H100: 19.7 s, with EP overlap 17.6 s. */
static void ep_overlap(void **state) {
  (void)state;
  g_autoptr(MsResult) apart = published("MZ-qwen3-h100-table-0"), overlapped = published("MZ-qwen3-h100-table-1");
  compare("step without EP overlap", apart->step_time_s, 19.7, 0.1);
  compare("step with EP overlap", overlapped->step_time_s, 17.6, 0.2);
  compare("saved by EP overlap", apart->step_time_s - overlapped->step_time_s, 19.7 - 17.6, THIRD);
}

/* --- memory of the report (tests/data/memory; docs/accuracy.md has the figures side by side) ---
 * Table 3 is what Megatron-MoE-ModelZoo's estimator prints for 16 MoE layers of DeepSeek-V3 with 60 of them alive, in
 * GiB (it divides by 1024^3 and writes GB): the third of four stages here. Of table 5 the source does not say which
 * unit or which counter it is: it is compared with GiB of the device. */
enum { THIRD_STAGE = 2 };
typedef struct {
  double weights, optimizer, activations, device;
} Gibibytes; /* of the third stage; device: of the largest */

static Gibibytes gibibytes_of(const MsScenario *s) {
  g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_BOUND);
  const MsStageMemory *m = &r->memory->stage[THIRD_STAGE];
  Gibibytes b = {(m->parameters_B + m->gradients_B) / MS_GIB, m->optimizer_B / MS_GIB, m->activations_B / MS_GIB, 0};
  for (int i = 0; i < r->stages; i++) b.device = MAX(b.device, r->memory->stage[i].device_B / MS_GIB);
  return b;
}

static MsScenario *report_run(MsPrecision precision) {
  MsScenario *s = ms_test_scenario_file("%s/%s.json", "tests/data/memory", "dsv3-table-3");
  s->options.moe_memory_efficient_permutation = TRUE;
  s->training.precision = precision;
  s->options.fp8_param_gather = precision == MS_MXFP8;
  return s;
}

static void memory_of_the_report(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_file("%s/%s.json", "tests/data/memory", "dsv3-table-3");
  Gibibytes table = gibibytes_of(s);
  compare("weights and gradients", table.weights, 36.4, 0.01); /* the estimator leaves out the router */
  compare("main weights and optimizer", table.optimizer, 32.1, 0.01);
  compare("activations", table.activations, 131, 0.01); /* the output of the experts kept for the backward */
  s->options.moe_memory_efficient_permutation = TRUE;
  double kept = gibibytes_of(s).activations;
  compare("memory-efficient permutation", kept - table.activations, -26.3, 0.01);
  s->training.precision = MS_MXFP8;
  compare("activations in FP8", gibibytes_of(s).activations - kept, -16, 0.1); /* "about" */
}

static double recomputed(guint32 modules, double before) {
  g_autoptr(MsScenario) s = report_run(MS_MXFP8);
  s->options.recompute = (MsRecomputeSpec){MS_RECOMPUTE_SELECTIVE, modules, 0, 1};
  return gibibytes_of(s).activations - before;
}

/* Table 4 and the moments are figures of the FP8 run, as their ratios to the 26.3 of memory-efficient permutation (7168
 * BF16 elements a row) show: SwiGLU's 3.8 is 1/7 of it, 2048 elements of one byte; the norms' 8.2 is 140/448, y twice
 * in FP8 for the two down projections, y2 in BF16 for the router and in FP8 for the shared expert, which has kept the
 * BF16 tensor since (save_original_input): 112/448. Moments go from 6 + 12/d to 6 + 8/d bytes per parameter: the master
 * stays FP32, while a BF16 run stores half of it (6 + 6/d). */
static void recomputation_of_the_report(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = report_run(MS_MXFP8);
  Gibibytes base = gibibytes_of(s);
  compare("MLA up-projection recomputed", recomputed(MS_RM_MLA_UP_PROJ, base.activations), -30.4, 0.01);
  compare("SwiGLU recomputed", recomputed(MS_RM_MOE_ACT, base.activations), -3.8, 0.03);
  compare("layer norms recomputed", recomputed(MS_RM_LAYERNORM, base.activations), -8.2, 0.2);
  compare("all three recomputed", recomputed(MS_RM_MLA_UP_PROJ | MS_RM_MOE_ACT | MS_RM_LAYERNORM, base.activations),
          -42.4, 0.05);
  s->options.exp_avg_dtype = s->options.exp_avg_sq_dtype = MS_DT_BF16;
  double moments = gibibytes_of(s).optimizer;
  compare("BF16 moments", moments - base.optimizer, -11, 0.1); /* 10 to 12 */
  s->options.offload_optimizer_states = TRUE;
  compare("states on the host", gibibytes_of(s).optimizer - moments, -17.5,
          0.25); /* 15 to 20, of which stage is not said */
}

/* Table 5: DeepSeek-V3 TP1 PP8 EP32 VPP4 MXFP8, 169 to 151 GB and 945 to 930 TFLOP/s by offloading; partial CUDA graphs
 * take about 7 GB. */
static void activation_offload(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_file("%s/%s.json", "tests/data/memory", "dsv3-table-5"),
                        offloads = ms_test_scenario_file("%s/%s.json", "tests/data/memory", "dsv3-table-5-offload");
  double before = gibibytes_of(s).device, after = gibibytes_of(offloads).device;
  compare("device", before, 169, 0.03);
  compare("device with offload", after, 151, 0.03);
  compare("saved by offload", after - before, 151 - 169, 0.15);
  g_autoptr(MsResult) kept = ms_test_simulate(s, MS_FIDELITY_FULL), gone = ms_test_simulate(offloads, MS_FIDELITY_FULL);
  double slower = gone->step_time_s / kept->step_time_s - 1;
  assert_true(slower > 0 && slower < 0.016 * 2);
  s->options.cuda_graph_scope = 0;
  compare("partial CUDA graphs", before - gibibytes_of(s).device, 7, 0.2);
}

/* Table 5: Qwen3-235B on 256 GB200 with offload and EP overlap, 175 GB at EP 64. What is missing here is not known:
 * docs/accuracy.md. */
static void offload_with_overlap(void **state) {
  (void)state;
  g_autoptr(MsScenario) s =
      ms_test_scenario_file("%s/%s.json", "scenarios/published/modelzoo", "MZ-qwen3-235b-gb200-mxfp8-offload");
  compare("device", gibibytes_of(s).device, 175, 0.12);
}

/* --- dispatcher latencies: table 7, microseconds, 4096 tokens, DeepSeek-V3's experts, communication only --- */
static double crossing_us(const char *hardware, MsDispatcher dispatcher, int ep, MsOpKind kind) {
  g_autoptr(MsScenario) s = ms_test_run("deepseek-v3", 0, hardware, 64);
  s->layout.ep = ep;
  s->options.dispatcher = dispatcher;
  g_auto(MsLowered) l = ms_test_lower(s);
  MsCost *cost = ms_cost_new(s, l.layout, NULL);
  const MsOpList *rows = &l.work->pieces[l.work->piece_of_layer[s->model->num_layers - 1]].forward;
  double us = NAN;
  for (int i = 0; i < rows->n; i++)
    if (rows->op[i].kind == kind) us = ms_cost_op(cost, &rows->op[i]).time_s * 1e6;
  ms_cost_free(cost);
  return us;
}

static void dispatcher_latencies(void **state) {
  (void)state;
  enum { SIZES = 4 };
  static const struct {
    const char *hardware;
    MsDispatcher dispatcher;
    double us[2][SIZES];
  } table[] = {{"gb200-nvl72", MS_DISPATCH_HYBRIDEP, {{391, 578, 612, 675}, {353, 527, 646, 744}}},
               {"gb200-nvl72", MS_DISPATCH_ALLTOALL, {{735, 743, 769, 930}, {741, 765, 758, 827}}},
               {"h100-sxm", MS_DISPATCH_HYBRIDEP, {{661, 1485, 3064, 4626}, {624, 1688, 3088, 4398}}},
               {"h100-sxm", MS_DISPATCH_ALLTOALL, {{1265, 5774, 8059, 9164}, {1277, 5628, 7815, 8727}}}};
  for (guint i = 0; i < G_N_ELEMENTS(table); i++)
    for (int back = 0; back < 2; back++) {
      double before = 0;
      for (int k = 0; k < SIZES; k++) {
        g_autofree char *what =
            g_strdup_printf("%s, %s, %s over %d ranks", table[i].hardware, ms_dispatcher_words[table[i].dispatcher],
                            back ? "combine" : "dispatch", 8 << k);
        double us = crossing_us(table[i].hardware, table[i].dispatcher, 8 << k, back ? MS_OP_COMBINE : MS_OP_DISPATCH);
        gboolean disputed = i == 2 && !back &&
                            k == 1; /* HybridEP's own table and this one differ by a third for dispatch over 16 H100 */
        compare(what, us, table[i].us[back][k], disputed ? 0.35 : THIRD);
        assert_true(us > before); /* more ranks take longer */
        before = us;
      }
    }
}

/* --- the router's own choice against forced balance, Qwen3-235B on H100 at 16k to 128k: 295/237, 335/277, 368/320,
 * 389/357 TFLOP/s --- */
static void forced_and_natural_routing(void **state) {
  (void)state;
  static const struct {
    int seq;
    double forced, natural;
  } pairs[] = {{16384, 295, 237}, {32768, 335, 277}, {65536, 368, 320}, {131072, 389, 357}};
  double before = INFINITY;
  for (guint i = 0; i < G_N_ELEMENTS(pairs); i++) {
    g_autofree char *a = g_strdup_printf("MZ-qwen3-235b-h100-longctx-%d-forced", pairs[i].seq),
                    *b = g_strdup_printf("MZ-qwen3-235b-h100-longctx-%d-natural", pairs[i].seq);
    g_autoptr(MsResult) forced = published(a), natural = published(b);
    compare(a, forced->tflops_per_gpu, pairs[i].forced, 0.15);
    compare(b, natural->tflops_per_gpu, pairs[i].natural, 0.15);
    double slower = natural->step_time_s / forced->step_time_s - 1;
    compare(a, slower, pairs[i].forced / pairs[i].natural - 1, THIRD);
    assert_true(slower < before); /* attention outgrows the experts */
    before = slower;
  }
  /* a loss of ten times the weight balances better: Mixtral-8x22B, 465 and 445 TFLOP/s */
  g_autoptr(MsResult) forced = published("MZ-mixtral-8x22b-h100-forced"),
                      natural = published("MZ-mixtral-8x22b-h100-dropless");
  compare("Mixtral", natural->step_time_s / forced->step_time_s - 1, 465.0 / 445 - 1, THIRD);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ep_overlap),
                                     cmocka_unit_test(memory_of_the_report),
                                     cmocka_unit_test(recomputation_of_the_report),
                                     cmocka_unit_test(activation_offload),
                                     cmocka_unit_test(offload_with_overlap),
                                     cmocka_unit_test(dispatcher_latencies),
                                     cmocka_unit_test(forced_and_natural_routing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
