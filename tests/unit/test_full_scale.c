/* Published runs of thousands of GPUs that no figure was fitted to: each within the band of its prediction, and what is
 * lost from fewer to more GPUs as published, within two points of MFU. */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "cluster/cluster.h"

#include <math.h>

/* arXiv 2407.21783, table 4: Llama 3 405B. Its microbatches, chunks and recomputation are not said; 16 stages of 8
 * layers in chunks of one, the first and the last short of one (section 3.3.2). Both have 16M tokens to a step. */
#define LLAMA(gpus, seq, batch, cp)                                                                                  \
  "{\"schema\": 1, \"model\": \"llama3-405b\", \"hardware\": \"h100-sxm\", \"gpus\": " gpus                          \
  ", \"training\": {\"seq_length\": " seq ", \"global_batch_size\": " batch "}, \"layout\": {\"tp\": 8, \"cp\": " cp \
  ", \"pp\": 16, \"vpp\": 8, \"pipeline_layout\": \"E|(t|)*126L\"}, \"options\": {\"sequence_parallel\": true}, "    \
  "\"cluster\": {\"expected\": true}}"
/* arXiv 2402.15627, table 2: a GPT of 175 billion parameters on A100, TP 8, PP 8, six chunks to a stage. Its parallel
 * transformer blocks and windowed attention are not described here. */
#define MEGASCALE(gpus, batch)                                                                                   \
  "{\"schema\": 1, \"model\": \"gpt3-175b\", \"hardware\": \"a100-sxm-80g\", \"gpus\": " gpus                    \
  ", \"training\": {\"seq_length\": 2048, \"global_batch_size\": " batch                                         \
  "}, \"layout\": {\"tp\": 8, \"pp\": 8, \"vpp\": 6}, \"options\": {\"sequence_parallel\": true}, \"cluster\": " \
  "{\"expected\": true}}"

static const struct {
  const char *scenario;
  double mfu;
  int fewer; /* index of the run of the same ladder with fewer GPUs, -1: none */
} published[] = {{LLAMA("8192", "8192", "2048", "1"), 0.43, -1},
                 {LLAMA("16384", "8192", "2048", "1"), 0.41, 0},
                 {LLAMA("16384", "131072", "128", "16"), 0.38, -1},
                 {MEGASCALE("3072", "6144"), 0.591, -1},
                 {MEGASCALE("6144", "6144"), 0.573, 3},
                 {MEGASCALE("8192", "6144"), 0.549, 3},
                 {MEGASCALE("12288", "6144"), 0.552, 3}};

static void thousands_of_gpus_are_as_published(void **state) {
  (void)state;
  double mfu[G_N_ELEMENTS(published)];
  for (guint i = 0; i < G_N_ELEMENTS(published); i++) {
    GError *error = NULL;
    g_autoptr(MsScenario) s = ms_test_scenario_of(published[i].scenario);
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
    if (!r) fail_msg("%s", error->message);
    mfu[i] = r->mfu;
    if (!(fabs(r->mfu / published[i].mfu - 1) < MIN(r->band, 0.1)))
      fail_msg("%d GPUs: MFU %.1f %%, published %.1f %%", s->gpus, 100 * r->mfu, 100 * published[i].mfu);
    print_message("  %5d GPUs: MFU %.1f %%, published %.1f %%\n", s->gpus, 100 * r->mfu, 100 * published[i].mfu);
    int fewer = published[i].fewer;
    if (fewer < 0) continue;
    double lost = mfu[fewer] - r->mfu, was = published[fewer].mfu - published[i].mfu;
    if (!(fabs(lost - was) < 0.02))
      fail_msg("%d GPUs: %.1f points lost, published %.1f", s->gpus, 100 * lost, 100 * was);
  }
}

/* --- published ladders: tokens of a GPU on more GPUs over those on the fewest ------------------------------------ */

#define MOST_RUNGS 8
static const char *const ladders[][MOST_RUNGS] = {
    {"mlperf-v3.1/ML3.1-gpt3-h100-512.json", "mlperf-v3.1/ML3.1-gpt3-h100-768.json",
     "mlperf-v3.1/ML3.1-gpt3-h100-4096.json", "mlperf-v3.1/ML3.1-gpt3-h100-6144.json",
     "mlperf-v3.1/ML3.1-gpt3-h100-8192.json", "mlperf-v3.1/ML3.1-gpt3-h100-10240.json",
     "mlperf-v3.1/ML3.1-gpt3-h100-10752.json"},
    {"dgxc/DG-405b-gb200-bf16-128.json", "dgxc/DG-405b-gb200-bf16-256.json", "dgxc/DG-405b-gb200-bf16-512.json"},
    {"dgxc/DG-405b-gb200-fp8-delayed-128.json", "dgxc/DG-405b-gb200-fp8-delayed-256.json",
     "dgxc/DG-405b-gb200-fp8-delayed-512.json"}};

static double rate(const MsScenario *s, double step_s) {
  return (double)s->training.global_batch_size * s->training.seq_length / (step_s * s->gpus);
}

static void ladders_fall_as_published(void **state) {
  (void)state;
  for (guint l = 0; l < G_N_ELEMENTS(ladders); l++) {
    double first = 0, first_was = 0, share = 1;
    for (int i = 0; i < MOST_RUNGS && ladders[l][i]; i++) {
      GError *error = NULL;
      g_autofree char *file = g_build_filename(MS_SOURCE_DIR "/scenarios/published", ladders[l][i], NULL);
      g_autoptr(MsScenario) s = ms_scenario_load(file, &error);
      if (!s) fail_msg("%s", error->message);
      s->cluster.expected = TRUE;
      g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
      if (!r) fail_msg("%s", error->message);
      double now = rate(s, r->step_time_s), was = rate(s, s->measured.step_time_s);
      if (i == 0) first = now, first_was = was;
      assert_true(now / first <= share + 1e-3); /* never more of a GPU on more of them */
      share = now / first;
      print_message("  %5d GPUs: %6.2f %% of the tokens of a GPU of the first, published %6.2f %%\n", s->gpus,
                    100 * share, 100 * was / first_was);
      if (!(fabs(share - was / first_was) < 0.05)) fail_msg("%s: not within five points", ladders[l][i]);
    }
  }
}

/* --- slow ones by chance in a deep pipeline ----------------------------------------------------------------------- */

/* Which stage is slow matters, and how many are: the mean over draws, give or take two of its standard errors. */
static void slow_stages_are_expected(void **state) {
  (void)state;
  for (int nic = 0; nic < 2; nic++) {
    GError *error = NULL;
    g_autoptr(MsScenario) s = ms_scenario_load(MS_SOURCE_DIR "/scenarios/fabric/slow-nics-2048.json", &error);
    if (!s) fail_msg("%s", error->message);
    if (!nic) s->cluster.slow_nic_rate = 0, s->cluster.slow_gpu_rate = 1e-3, s->cluster.slow_gpu_factor = 1.5;
    g_autoptr(MsDetail) d = NULL;
    g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &d, &error);
    if (!full) fail_msg("%s", error->message);
    g_auto(MsCluster) c = {0};
    if (!ms_cluster_run(s, full, d, &(MsClusterOptions){128, 2, FALSE, TRUE, NULL}, &c, &error))
      fail_msg("%s", error->message);
    s->cluster.expected = TRUE;
    g_autoptr(MsResult) law = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
    if (!law) fail_msg("%s", error->message);
    print_message("  %s: expected %.2f s, mean of draws %.2f s\n", nic ? "NICs" : "GPUs", law->step_time_s,
                  c.step_s.mean);
    assert_true(fabs(law->step_time_s - c.step_s.mean) < 0.015 * c.step_s.mean + 2 * c.step_s.mean_error);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(thousands_of_gpus_are_as_published),
                                     cmocka_unit_test(slow_stages_are_expected),
                                     cmocka_unit_test(ladders_fall_as_published)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
