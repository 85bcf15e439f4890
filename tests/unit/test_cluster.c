/* Steps in which every GPU is a device of its own: equal ranks give the full step, to the bit; taken together or not
 * makes no difference, nor do threads; what is slow costs something, and who is slow is named. */
#include "lib/trajectory.h"
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/err.h"
#include "base/stats.h"
#include "cluster/cluster.h"
#include "cluster/links.h"
#include "step/meeting.h"
#include "sim/scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Each a layout whose graph has other kinds of rows: experts over domains, TP and CP, split weight gradients, FSDP. */
static const char *const jobs[] = {
    "\"model\": \"qwen3-30b-a3b\", \"hardware\": \"h100-sxm\", \"gpus\": 64, \"layout\": {\"pp\": 2, \"ep\": 16}",
    "\"model\": \"qwen3-30b-a3b\", \"hardware\": \"h100-sxm\", \"gpus\": 64, \"layout\": {\"pp\": 2, \"vpp\": 2, "
    "\"ep\": 8}, \"options\": {\"ep_overlap\": true, \"delay_wgrad\": true}",
    "\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 32, \"layout\": {\"tp\": 2, \"cp\": 2, \"pp\": 4}",
    "\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 32, \"layout\": {\"pp\": 4, \"schedule\": "
    "\"zb-h1\", \"order\": \"tp-cp-ep-pp-dp\"}",
    "\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 16, \"layout\": {\"tp\": 2}, \"options\": "
    "{\"fsdp\": \"optim-grads-params\"}"};

static MsScenario *job(int i, const char *cluster) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 256}, \"cluster\": %s, %s}", cluster,
      jobs[i]);
  return ms_test_scenario_of(text);
}

static MsCluster run_of(const MsScenario *s, int draws, int threads, gboolean merge) {
  GError *error = NULL;
  g_autoptr(MsDetail) detail = NULL;
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &detail, &error);
  if (!full) fail_msg("%s", error->message);
  MsCluster c;
  if (!ms_cluster_run(s, full, detail, &(MsClusterOptions){draws, threads, FALSE, merge}, &c, &error))
    fail_msg("%s", error->message);
  c.elapsed_s = 0;
  return c;
}

static MsCluster run(int i, const char *cluster, int draws, int threads, gboolean merge) {
  g_autoptr(MsScenario) s = job(i, cluster);
  return run_of(s, draws, threads, merge);
}

static void equal_ranks_are_the_full_step(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(jobs); i++)
    for (int merge = 0; merge < 2; merge++) {
      MsCluster c = run((int)i, "{\"jitter\": false}", 1, 1, merge);
      assert_memory_equal(&c.step_s.mean, &c.full_s, sizeof(double));
      assert_int_equal(c.n_causes, 0);
      if (merge) assert_int_equal(c.units, 1);
      assert_close(c.path_compute_s + c.path_comm_s + c.path_host_s + c.path_other_s, c.full_s, i == 3 ? 0.2 : 1e-9);
    }
}

/* An order of ranks in which groups of experts, were there any, would not lie in a stage. */
static void groups_of_no_experts_are_nobodys(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"schema\": 1, \"training\": {\"seq_length\": 1024, \"global_batch_size\": 8}, \"cluster\": {\"jitter\": "
      "false}, "
      "\"model\": {\"base\": \"llama3-8b\", \"num_layers\": 4}, \"hardware\": \"h100-sxm\", \"gpus\": 64, "
      "\"layout\": {\"tp\": 8, \"pp\": 4, \"order\": \"tp-cp-ep-pp-dp\"}}");
  MsCluster c = run_of(s, 1, 1, FALSE);
  assert_memory_equal(&c.step_s.mean, &c.full_s, sizeof(double));
}

static const char *const slow =
    "{\"jitter\": false, \"slow_gpus\": {\"5\": 1.5, \"13\": 1.1}, \"slow_nics\": {\"3\": 4}}";

static void merged_ranks_are_as_unmerged_ones(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(jobs); i++) {
    MsCluster one = run((int)i, slow, 1, 1, TRUE), all = run((int)i, slow, 1, 1, FALSE);
    assert_memory_equal(&one.step_s, &all.step_s, sizeof one.step_s);
    assert_memory_equal(one.cause, all.cause, sizeof one.cause);
    for (int g = 0; g < MS_N_GROUPS; g++) assert_close(one.waits_s[g], all.waits_s[g], 1e-9);
    assert_true(one.units <= all.units);
  }
  assert_int_equal(run(0, "{\"jitter\": false, \"slow_gpus\": {\"5\": 2}}", 1, 1, TRUE).units, 4);
}

static void threads_make_no_difference(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  const char *drawn = "{\"slow_gpu_rate\": 0.05, \"slow_nic_rate\": 0.05}";
  MsCluster one = run(0, drawn, 6, 1, TRUE), many = run(0, drawn, 6, 4, TRUE);
  assert_memory_equal(&one, &many, sizeof one);
  assert_true(one.step_s.sd > 0 && one.n_causes == MS_N_CAUSES - 1);            /* routing is not drawn */
  for (int k = 0; k < one.n_causes; k++) assert_true(one.cause[k].cost_s != 0); /* each acts */
}

/* A slow GPU costs at most what it costs when all ranks of its stage are as slow, and more the slower it is. */
static void a_slow_gpu_is_found(void **state) {
  (void)state;
  double last = 0;
  for (int tenths = 12; tenths <= 20; tenths += 4) {
    g_autofree char *text = g_strdup_printf("{\"jitter\": false, \"slow_gpus\": {\"13\": %g}}", tenths / 10.0);
    g_autoptr(MsScenario) s = job(2, text);
    MsCluster c = run_of(s, 1, 1, TRUE);
    g_autoptr(MsResult) stage = ms_simulate_slow_gpu(s, 13 / 8, tenths / 10.0, NULL);
    assert_true(c.step_s.mean > c.full_s && c.step_s.mean > last);
    assert_true(c.step_s.mean <= stage->step_time_s * 1.001);
    assert_close(c.cause[0].cost_s, c.step_s.mean - c.full_s, 1e-9);
    last = c.step_s.mean;
    int awaited = 0;
    for (int k = 1; k < c.n_shares; k++)
      if (c.share[k].awaited_s > c.share[awaited].awaited_s) awaited = k;
    assert_int_equal(c.share[awaited].rank, 13);
  }
}

/* Waiting for the slowest of many grows with jitter; without a cause its cost is nothing. */
/* Ranks that do not differ run as in the full step, to the bit; one whose kernels take half as long again has these
 * longer, is not done before the others, and says nothing of stages that are not its own. */
static void ranks_have_times_of_their_own(void **state) {
  (void)state;
  const int rank[] = {3, 0, 20};
  for (int uneven = 0; uneven < 2; uneven++) {
    GError *error = NULL;
    g_autoptr(MsScenario) s =
        job(2, uneven ? "{\"jitter\": false, \"slow_gpus\": {\"3\": 1.5}}" : "{\"jitter\": false}");
    g_autoptr(MsDetail) d = NULL;
    g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &d, &error);
    if (!full) fail_msg("%s", error->message);
    MsTrajectory *ran[G_N_ELEMENTS(rank)];
    MsRankTimes times = {(int)G_N_ELEMENTS(rank), rank, ran};
    g_auto(MsCluster) c = {0};
    if (!ms_cluster_run(s, full, d, &(MsClusterOptions){2, 1, FALSE, TRUE, &times}, &c, &error))
      fail_msg("%s", error->message);
    for (int k = 0; k < times.n; k++) {
      int coord[4];
      ms_rank_coords(d->layout, FALSE, rank[k], coord);
      guint seen = 0, longer = 0;
      for (guint32 i = 0; i < ran[k]->n; i++) {
        const MsTask *task = ms_graph_task(d->graph, i);
        MsTime took = ran[k]->end[i] - ran[k]->start[i], was = d->trajectory->end[i] - d->trajectory->start[i];
        if ((int)task->device != coord[3]) assert_true(ran[k]->start[i] == 0 && ran[k]->end[i] == 0);
        else if (!uneven) assert_true(ran[k]->start[i] == d->trajectory->start[i] && took == was), seen++;
        else if (task->use == MS_USE_COMPUTE) {
          assert_true(llabs(took - (rank[k] == 3 ? was + was / 2 : was)) <= 1);
          seen++, longer += took > was;
        }
      }
      assert_true(seen > 100 && (longer > 0) == (uneven && rank[k] == 3));
      assert_true(ran[k]->makespan == ran[0]->makespan);
      if (!uneven) assert_true(ran[k]->makespan == d->trajectory->makespan);
    }
    for (int k = 0; k < times.n; k++) ms_trajectory_free(ran[k]);
  }
}

static void jitter_costs(void **state) {
  (void)state;
  double last = 0;
  for (int i = 0; i < 3; i++) {
    g_autoptr(MsScenario) s = job(0, "{}");
    s->laws.kernel_jitter = 0.03 * i, s->laws.host_jitter = 0, s->laws.clock_spread = 0;
    MsCluster c = run_of(s, 2, 1, TRUE);
    assert_int_equal(c.n_causes, i > 0);
    assert_true(i == 0 ? c.step_s.mean == c.full_s : c.step_s.mean > last);
    last = c.step_s.mean;
  }
}

/* A machine of which it was measured does not follow the laws. */
static void jitter_of_a_machine(void **state) {
  (void)state;
  double step_s[2];
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsScenario) s = job(0, "{}");
    s->laws.host_jitter = 0, s->laws.kernel_jitter = i ? 0.01 : 0.06, s->laws.clock_spread = i ? 0.04 : 0.02;
    if (i) s->hardware->kernel_jitter = 0.06, s->hardware->clock_spread = 0.02;
    MsCluster c = run_of(s, 2, 1, TRUE);
    step_s[i] = c.step_s.mean;
    assert_int_equal(c.n_causes, 2);
  }
  assert_true(step_s[0] == step_s[1]);
}

/* Experts of drawn rows wait for the hottest in every exchange: the full step, to the bit, where nothing hides it, and
 * no more than it elsewhere. Ranks of one place in their groups are alike. */
static void experts_have_rows_of_their_own(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsScenario) s = job(i, "{\"jitter\": false}");
    s->training.routing.kind = MS_ROUTING_ZIPF, s->training.routing.skew = 0.5;
    g_auto(MsCluster) c = run_of(s, 1, 1, TRUE), all = run_of(s, 1, 1, FALSE);
    assert_memory_equal(&c.step_s, &all.step_s, sizeof c.step_s);
    assert_true(i == 0 ? c.step_s.mean == c.full_s : c.step_s.mean <= c.full_s);
    assert_int_equal(c.units, s->layout.ep);
    assert_int_equal(c.n_causes, 1);
    assert_int_equal(c.cause[0].cause, MS_CAUSE_EXPERTS);
    if (!(c.cause[0].cost_s > 0.001 * c.full_s)) fail_msg("job %d: %g s of %g s", i, c.cause[0].cost_s, c.full_s);
  }
}

/* Steps of GPUs that differ in clock alone, all of which meet in every step: the mean over draws is what the closed
 * form of the full step expects of the slowest. */
static void the_slowest_clock_is_as_expected(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = job(2, "{}");
  s->layout.pp = 1, s->layout.tp = 1, s->layout.cp = 1, s->gpus = 128;
  s->laws.kernel_jitter = s->laws.host_jitter = 0, s->laws.clock_spread = 0.05;
  g_auto(MsCluster) c = run_of(s, 40, 0, TRUE);
  assert_close(c.step_s.mean, c.full_s, 0.005);
  assert_true(c.step_s.sd > 0.003 * c.full_s && c.cause[0].cost_s > 0.05 * c.full_s);
}

/* --- the law of scale against draws ----------------------------------------------------------------------------------
 */

static double cost_of_clocks(const MsCluster *c) {
  for (int i = 0; i < c->n_causes; i++)
    if (c->cause[i].cause == MS_CAUSE_CLOCKS) return c->cause[i].cost_s;
  return 0;
}

/* The closed form of what is expected lies within `within` of the mean of `draws` steps, and does not need the bound.
 */
static void expect_draws(int i, const char *cluster, const char *expected, double kernels, double clocks, int draws,
                         double within) {
  g_autoptr(MsScenario) drawn = job(i, cluster), law = job(i, expected);
  for (int k = 0; k < 2; k++) {
    MsLaws *laws = k ? &law->laws : &drawn->laws;
    laws->kernel_jitter = kernels, laws->clock_spread = clocks;
  }
  g_auto(MsCluster) c = run_of(drawn, draws, 0, TRUE);
  double added_s = 0;
  for (MsFidelity f = MS_FIDELITY_FULL; f >= MS_FIDELITY_FAST; f--) { /* fast has errors of its own */
    g_autoptr(MsResult) r = ms_simulate(law, f, NULL, NULL);
    if (f == MS_FIDELITY_FULL) {
      assert_close(r->step_time_s, c.step_s.mean, within);
      added_s = r->step_time_s - r->scale.alike_s;
      /* a straight line: gathers of FSDP are not always waited for */
      assert_true(fabs(r->scale.clocks_s - cost_of_clocks(&c)) < 0.025 * c.step_s.mean);
    } else assert_true(fabs(r->step_time_s - r->scale.alike_s - added_s) < within * c.step_s.mean);
    assert_true(r->step_time_lower_s <= r->scale.alike_s && r->scale.alike_s <= r->step_time_s);
    const double hair = 1e-5; /* of the step: where little varies, a grid of little */
    assert_true(r->scale.p5_s <= r->step_time_s * (1 + hair) && r->step_time_s <= r->scale.p95_s * (1 + hair));
    const MsTimeParts *t = &r->time;
    assert_close(t->compute_s + t->exposed_comm_s + t->bubble_s + t->host_s + t->optimizer_s + t->other_s,
                 r->step_time_s, 1e-6);
  }
}

static void the_law_of_scale_is_what_draws_say(void **state) {
  (void)state;
  for (int i = 0; i < ms_by_tier(1, (int)G_N_ELEMENTS(jobs)); i++) {
    int draws = ms_by_tier(4, 8);
    double within =
        i == 1 ? 0.025 : 0.01; /* rows of two microbatches side by side hide more than the closed form says */
    expect_draws(i, "{}", "{\"expected\": true}", 0.02, 0.03, draws, within);
    expect_draws(i, "{}", "{\"expected\": true}", 0.05, 0, draws, within);
    expect_draws(i, "{}", "{\"expected\": true}", 0, 0.03, draws, within);
  }
}

/* A host that would be behind through a layer on its own is ahead through all of a microbatch, whose head takes long:
 * slow clocks cost what they do with a host twice as fast. */
static void the_host_is_ahead_of_a_microbatch(void **state) {
  (void)state;
  double clocks_s[2], alone_s[2];
  for (int faster = 0; faster < 2; faster++) {
    g_autoptr(MsScenario) s = ms_test_scenario_of(
        "{\"model\": {\"base\": \"qwen3-30b-a3b\", \"num_layers\": 4, \"mtp_num_layers\": 2}, \"hardware\": "
        "\"ascend-910c\", "
        "\"gpus\": 8, \"framework\": \"deepspeed\", \"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, "
        "\"cluster\": {\"expected\": true}}");
    if (faster) s->hardware->kernel_launch_s /= 2;
    g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
    clocks_s[faster] = r->scale.clocks_s, alone_s[faster] = r->scale.alike_s;
  }
  assert_close(clocks_s[0], clocks_s[1], 0.01);
  assert_true(alone_s[1] < alone_s[0]);
}

/* Slow ones by chance: rarer and dearer, so that the mean of draws is known less well. */
static void slow_ranks_by_chance_are_expected(void **state) {
  (void)state;
  static const char *const chance[] = {"\"slow_gpu_rate\": 0.01, \"slow_gpu_factor\": 1.3",
                                       "\"slow_nic_rate\": 0.01, \"slow_nic_factor\": 3"};
  for (int i = 0; i < ms_by_tier(1, (int)G_N_ELEMENTS(jobs)); i++)
    for (int k = 0; k < 2; k++) {
      g_autofree char *drawn = g_strdup_printf("{\"jitter\": false, %s}", chance[k]),
                      *law = g_strdup_printf("{\"jitter\": false, \"expected\": true, %s}", chance[k]);
      const gboolean unmerged = i == 2; /* TP and CP in one: ten times as many rows */
      expect_draws(i, drawn, law, 0, 0, ms_by_tier(50, unmerged ? 100 : 400), 0.035);
    }
}

/* All of them slow for certain is no matter of chance: the step is that of every rank on its own. Where the host
 * decides forward and waits backward, slow kernels cost little in the one and all in the other. */
/* A stage that is ahead does not lose its lead to a rank that is hardly slow. */
static void hardly_slow_costs_hardly(void **state) {
  (void)state;
  static const double factor[] = {1, 1.0001, 1.05};
  double step_s[2][G_N_ELEMENTS(factor)];
  for (int certain = 0; certain < 2; certain++)
    for (guint k = 0; k < G_N_ELEMENTS(factor); k++) {
      g_autofree char *text = g_strdup_printf(
          "{\"schema\": 1, \"model\": {\"base\": \"llama3-70b\", \"num_layers\": 16}, \"hardware\": \"a100-sxm-40g\", "
          "\"gpus\": 512, \"training\": {\"seq_length\": 1024, \"micro_batch_size\": 2, \"global_batch_size\": 512}, "
          "\"layout\": {\"tp\": 8, \"pp\": 8}, \"cluster\": {\"expected\": true, \"slow_gpu_rate\": %d, "
          "\"slow_gpu_factor\": %g}}",
          certain, factor[k]);
      g_autoptr(MsScenario) s = ms_test_scenario_of(text);
      g_autoptr(MsResult) r = ms_test_simulate(s, MS_FIDELITY_FULL);
      step_s[certain][k] = r->step_time_s;
    }
  assert_close(step_s[1][0], step_s[0][0], 1e-9);
  assert_true(step_s[1][1] > step_s[0][1] && step_s[1][1] < step_s[0][1] * 1.0002);
  assert_true(step_s[1][2] > step_s[0][2] * 1.01);
}

static void slow_for_certain_is_expected(void **state) {
  (void)state;
  static const char *const shape[] = {
      "\"model\": \"qwen3-30b-a3b\", \"gpus\": 32, \"layout\": {\"pp\": 2, \"ep\": 8}",
      "\"model\": \"deepseek-v2-lite\", \"gpus\": 16, \"layout\": {\"ep\": 8}",
      "\"model\": \"qwen3-next-80b-a3b\", \"gpus\": 64, \"layout\": {\"tp\": 2, \"pp\": 4, \"ep\": 16}",
      "\"model\": \"llama3-70b\", \"gpus\": 64, \"framework\": \"torchtitan\", \"layout\": {\"tp\": 8}, \"options\": "
      "{\"fsdp\": \"optim-grads-params\"}"};
  for (guint i = 0; i < G_N_ELEMENTS(shape); i++) {
    double step_s[2];
    for (int expected = 0; expected < 2; expected++) {
      g_autofree char *text = g_strdup_printf(
          "{\"schema\": 1, \"hardware\": \"h100-sxm\", \"training\": {\"seq_length\": 4096, \"global_batch_size\": "
          "128}, "
          "\"cluster\": {\"jitter\": false, \"slow_gpu_rate\": 1, \"slow_gpu_factor\": 1.2, \"expected\": %s}, %s}",
          expected ? "true" : "false", shape[i]);
      g_autoptr(MsScenario) s = ms_test_scenario_of(text);
      g_autoptr(MsResult) law = expected ? ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL) : NULL;
      g_auto(MsCluster) ranks = run_of(s, 1, 1, TRUE);
      step_s[expected] = law ? law->step_time_s : ranks.step_s.mean;
    }
    assert_close(step_s[1], step_s[0], 0.01);
  }
}

/* A group of n equal ranks waits as long as the largest of n deviates; for one far behind the others nobody waits. */
static void waits_are_order_statistics(void **state) {
  (void)state;
  for (int n = 2; n <= 1024; n *= 4) assert_close(ms_scale_wait(1, 0, 3, n), ms_normal_maximum(n), 1e-3);
  assert_close(ms_normal_maximum(2), 0.5641895835, 1e-6); /* 1 / sqrt(pi) */
  assert_close(ms_normal_maximum_variance(2), 1 - 1 / 3.14159265358979, 1e-6);
  assert_close(ms_normal_maximum(100), 2.507594, 1e-5); /* tables of normal order statistics */
  assert_true(ms_scale_wait(0.01, 1, 3, 8) < 0.01 && ms_scale_wait(0, 1, 3, 8) == 0);
}

/* What it costs grows with the ranks of the job, and its band is part of the prediction's. */
static void the_law_grows_with_the_ranks(void **state) {
  (void)state;
  double last = 0;
  for (int gpus = 16; gpus <= 4096; gpus *= 16) {
    g_autofree char *text = g_strdup_printf(
        "{\"schema\": 1, \"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": %d, \"training\": "
        "{\"seq_length\": 4096, \"global_batch_size\": %d}, \"cluster\": {\"expected\": true, \"slow_gpu_rate\": "
        "0.001, \"slow_gpu_factor\": 1.5}}",
        gpus, 4 * gpus);
    g_autoptr(MsScenario) s = ms_test_scenario_of(text);
    g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
    double cost = r->scale.clocks_s + r->scale.slow_gpus_s;
    assert_true(cost > last && r->band > r->ground.ranks && r->ground.ranks > 0);
    last = cost;
  }
}

/* Of many GPUs the slow one is seldom that with the slowest clock, and clocks still cost what they do. */
static void clocks_cost_beside_slow_gpus(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = ms_test_scenario_of(
      "{\"model\": \"llama3-8b\", \"hardware\": \"h100-sxm\", \"gpus\": 256, \"training\": {\"seq_length\": 4096, "
      "\"global_batch_size\": 1024}, \"options\": {\"fsdp\": \"optim-grads-params\"}, \"cluster\": {\"expected\": "
      "true}}");
  g_autoptr(MsResult) alone = ms_test_simulate(s, MS_FIDELITY_FAST);
  s->cluster.slow_gpu_rate = 0.02, s->cluster.slow_gpu_factor = 1.05;
  g_autoptr(MsResult) beside = ms_test_simulate(s, MS_FIDELITY_FAST);
  assert_true(alone->scale.clocks_s > 0.03 * alone->step_time_s && beside->scale.clocks_s > 0);
  assert_true(beside->scale.clocks_s < alone->scale.clocks_s); /* they share the wait */
  assert_true(alone->scale.slow_gpus_s == 0 && beside->scale.slow_gpus_s > 0);
}

/* --- on a fabric ------------------------------------------------------------------------------------------------- */

static MsScenario *on_fabric(const char *fabric, const char *cluster) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"model\": \"qwen3-30b-a3b\", \"hardware\": {\"base\": \"h100-sxm\", \"fabric\": %s}, "
      "\"gpus\": 128, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 256}, \"cluster\": %s, "
      "\"layout\": {\"pp\": 2, \"ep\": 32}}",
      fabric, cluster);
  return ms_test_scenario_of(text);
}

/* Where all groups meet the same the step is the full one; where one leaf has a slow link, only its groups wait, and
 * the step is between that of a whole fabric and the full one, which takes every group to be the worst. */
static void groups_have_their_own_links(void **state) {
  (void)state;
  const char *alike = "{\"jitter\": false}", *whole = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2}",
             *bad = "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"slow\": {\"leaf1\": 8}}";
  g_autoptr(MsScenario) a = on_fabric(whole, alike);
  g_autoptr(MsScenario) b = on_fabric(bad, alike);
  g_auto(MsCluster) fine = run_of(a, 1, 1, TRUE), one = run_of(b, 1, 1, TRUE);
  assert_memory_equal(&fine.step_s.mean, &fine.full_s, sizeof(double));
  assert_true(one.step_s.mean > fine.step_s.mean && one.step_s.mean < one.full_s);
  assert_true(one.units > 1);
  g_auto(MsCluster) apart = run_of(b, 1, 1, FALSE);
  assert_memory_equal(&one.step_s, &apart.step_s, sizeof one.step_s);
}

/* --- kinds of collectives beside each other --- */

static MsScenario *met_on(const char *fabric) {
  g_autofree char *text = g_strdup_printf(
      "{\"schema\": 1, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 256}, \"cluster\": {\"jitter\": "
      "false}, \"model\": \"qwen3-30b-a3b\", \"hardware\": {\"base\": \"h100-sxm\", \"fabric\": %s}, \"gpus\": 64, "
      "\"layout\": {\"pp\": 2, \"ep\": 16}, \"options\": {\"overlap_grad_reduce\": true}}",
      fabric);
  return ms_test_scenario_of(text);
}

/* Where only NICs are full kinds share as without a fabric: the same step, to the bit. */
static void kinds_share_nics_alike(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) on = met_on("{\"kind\": \"fat-tree\", \"leaf_nodes\": 2}"),
                        ideal = met_on("{\"kind\": \"none\"}");
  g_autoptr(MsDetail) a = NULL, b = NULL;
  g_autoptr(MsResult) full = ms_simulate(on, MS_FIDELITY_FULL, &a, &error),
                      other = ms_simulate(ideal, MS_FIDELITY_FULL, &b, &error),
                      fast = ms_simulate(on, MS_FIDELITY_FAST, NULL, &error),
                      other_fast = ms_simulate(ideal, MS_FIDELITY_FAST, NULL, &error);
  if (!full || !other || !fast || !other_fast) fail_msg("%s", error->message);
  assert_non_null(((const MsProgram *)a->owned)->meets);
  const MsMeeting *nic = ((const MsProgram *)b->owned)->meets->meeting;
  assert_true(nic->n == 2 && nic->n_links == 1 && nic->kind[0].parts != nic->kind[1].parts);
  assert_int_equal(a->trajectory->n, b->trajectory->n);
  assert_memory_equal(a->trajectory->start, b->trajectory->start, a->trajectory->n * sizeof(MsTime));
  assert_memory_equal(a->trajectory->end, b->trajectory->end, a->trajectory->n * sizeof(MsTime));
  assert_true(full->step_time_s == other->step_time_s);
  assert_close(fast->step_time_s, other_fast->step_time_s, 1e-9);
}

/* Beside a ring's four channels a message of two has a third of the NIC. */
static void a_nic_has_parts(void **state) {
  (void)state;
  const MsMeetingKind kind[] = {{.parts = 2}, {.parts = 4}};
  g_autoptr(MsMeeting) nic = ms_meeting_of_nic(kind, 2);
  double rate[MS_MEETING_KINDS];
  ms_meeting_rates(nic, (guint8[MS_MEETING_KINDS]){1, 1}, rate);
  assert_close(rate[0], 1.0 / 3, 1e-15);
  assert_close(rate[1], 2.0 / 3, 1e-15);
  ms_meeting_rates(nic, (guint8[MS_MEETING_KINDS]){1, 2}, rate);
  assert_close(rate[0], 0.2, 1e-15);
  assert_close(rate[1], 0.4, 1e-15);
  ms_meeting_rates(nic, (guint8[MS_MEETING_KINDS]){1}, rate);
  assert_close(rate[0], 1, 1e-15);
}

/* No step is below its bound, and `fast` is near `full`, however links are shared. */
static void fidelities_agree_on_fabrics(void **state) {
  (void)state;
  const char *fabric[] = {"{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 4}",
                          "{\"kind\": \"fat-tree\", \"leaf_nodes\": 1, \"oversubscription\": 7, \"routing\": \"ecmp\"}",
                          "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 4, \"oversubscription\": 2}",
                          "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 2, \"jobs\": 2}"};
  GError *error = NULL;
  for (guint i = 0; i < G_N_ELEMENTS(fabric); i++) {
    g_autoptr(MsScenario) s = met_on(fabric[i]);
    g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error),
                        fast = ms_simulate(s, MS_FIDELITY_FAST, NULL, &error);
    if (!full || !fast) fail_msg("%s", error->message);
    assert_true(full->step_time_lower_s <= full->step_time_s && fast->step_time_lower_s <= fast->step_time_s);
    assert_close(fast->step_time_s, full->step_time_s, 0.02);
    double step_s;
    if (!ms_step_time(s, NULL, INFINITY, &step_s, &error)) fail_msg("%s", error->message);
    assert_true(step_s == full->step_time_s);
  }
}

/* No link above its rate; whoever is slower than alone stands on a full link where no part is faster than theirs; the
 * same whatever the order of kinds. */
static void kinds_share_links_fairly(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) s = met_on("{\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 4}");
  g_autoptr(MsDetail) d = NULL;
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &d, &error);
  if (!full) fail_msg("%s", error->message);
  const MsMeeting x = *((const MsProgram *)d->owned)->meets->meeting;
  assert_true(x.n >= 3);
  MsMeeting back = x;
  for (int c = 0; c < x.n; c++) {
    back.kind[c] = x.kind[x.n - 1 - c], back.load_Bps[c] = x.load_Bps[x.n - 1 - c];
    back.alone[c] = x.alone[x.n - 1 - c];
  }
  int slower = 0;
  for (int set = 1; set < 1 << x.n; set++) {
    guint8 running[MS_SHARING_CLASSES] = {0}, turned[MS_SHARING_CLASSES] = {0};
    double speed[MS_SHARING_CLASSES], other[MS_SHARING_CLASSES];
    for (int c = 0; c < x.n; c++) running[c] = turned[x.n - 1 - c] = (guint8)((set >> c & 1) * (c == 1 ? 2 : 1));
    ms_meeting_speeds(&x, running, speed);
    ms_meeting_speeds(&back, turned, other);
    gboolean held[MS_SHARING_CLASSES] = {FALSE};
    for (guint32 l = 0; l < x.n_links; l++) {
      double sum = 0, fastest = 0;
      for (int c = 0; c < x.n; c++) {
        sum += running[c] * speed[c] * x.load_Bps[c][l];
        if (running[c] && x.load_Bps[c][l] > 0) fastest = MAX(fastest, speed[c] / x.kind[c].parts);
      }
      assert_true(sum <= x.Bps[l] * (1 + 1e-9));
      for (int c = 0; c < x.n; c++)
        held[c] |=
            x.load_Bps[c][l] > 0 && sum > x.Bps[l] * (1 - 1e-9) && speed[c] / x.kind[c].parts >= fastest * (1 - 1e-9);
    }
    for (int c = 0; c < x.n; c++) {
      assert_close(speed[c], other[x.n - 1 - c], 1e-12);
      if (!running[c]) continue;
      assert_true(held[c] && speed[c] <= x.alone[c] * (1 + 1e-9));
      slower += speed[c] < x.alone[c] * (1 - 1e-9);
    }
  }
  assert_true(slower > 0);
  g_autoptr(MsTrajectory) halves = ms_engine_events(d->graph, NULL), alone = ms_engine_relax(d->graph);
  assert_true(d->trajectory->makespan >= alone->makespan && d->trajectory->makespan < halves->makespan);
  char why[192];
  if (!ms_test_trajectory_valid(d->graph, d->trajectory, why, sizeof why)) fail_msg("%s", why);
}

/* What all ranks send over the network in a step, added up apart. */
static double sent_B(const MsScenario *s) {
  GError *error = NULL;
  g_autoptr(MsDetail) d = NULL;
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &d, &error);
  if (!full) fail_msg("%s", error->message);
  double sum = 0, level_B[3];
  for (guint32 i = 0; i < ms_graph_count(d->graph); i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    const MsOp *op = d->tag_op[task->tag];
    if (task->use != MS_USE_LINK1 || !op || op->group == MS_GROUP_WORLD || op->group == MS_GROUP_EMBEDDING) continue;
    ms_cost_level_B(s, d->layout, op, level_B);
    sum += level_B[1] * d->layout->world / d->layout->pp;
  }
  return sum;
}

/* Every byte that a rank sends leaves a NIC and comes into another, messages of the pipeline both ways; of an exchange
 * among four nodes below two leaves two thirds go over the uplinks. */
static void links_carry_what_is_sent(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    g_autoptr(MsScenario) s = on_fabric(i < 2 ? "{\"kind\": \"fat-tree\", \"leaf_nodes\": 2}"
                                              : "{\"kind\": \"rail-optimized\", \"leaf_nodes\": 2, \"routing\": "
                                                "\"ecmp\", \"spines\": 2, \"leaf_uplinks\": 4}",
                                        "{\"jitter\": false}");
    s->options.dispatcher = MS_DISPATCH_ALLTOALL;
    if (i % 2) s->layout.vpp = 2;
    g_auto(MsCluster) c = run_of(s, 1, 1, TRUE);
    double out = 0, in = 0, up = 0, down = 0;
    for (guint k = 0; k < c.links->len; k++) {
      const MsLinkLoad *l = &g_array_index(c.links, MsLinkLoad, k);
      gboolean back = g_str_has_suffix(l->name, ".in");
      assert_true(l->load > 0 && l->load < 1);
      *(strstr(l->name, "nic") ? (back ? &in : &out) : back ? &down : &up) += l->bytes_B;
    }
    assert_close(out, sent_B(s), 1e-9);
    assert_close(out, in, 1e-9);
    assert_close(up, down, 1e-9);
    assert_true(up > 0.4 * out && up < 0.8 * out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_ranks_are_the_full_step),
                                     cmocka_unit_test(groups_of_no_experts_are_nobodys),
                                     cmocka_unit_test(merged_ranks_are_as_unmerged_ones),
                                     cmocka_unit_test(threads_make_no_difference),
                                     cmocka_unit_test(a_slow_gpu_is_found),
                                     cmocka_unit_test(ranks_have_times_of_their_own),
                                     cmocka_unit_test(a_nic_has_parts),
                                     cmocka_unit_test(kinds_share_nics_alike),
                                     cmocka_unit_test(kinds_share_links_fairly),
                                     cmocka_unit_test(fidelities_agree_on_fabrics),
                                     cmocka_unit_test(jitter_costs),
                                     cmocka_unit_test(jitter_of_a_machine),
                                     cmocka_unit_test(experts_have_rows_of_their_own),
                                     cmocka_unit_test(the_slowest_clock_is_as_expected),
                                     cmocka_unit_test(the_law_of_scale_is_what_draws_say),
                                     cmocka_unit_test(the_host_is_ahead_of_a_microbatch),
                                     cmocka_unit_test(slow_ranks_by_chance_are_expected),
                                     cmocka_unit_test(hardly_slow_costs_hardly),
                                     cmocka_unit_test(slow_for_certain_is_expected),
                                     cmocka_unit_test(waits_are_order_statistics),
                                     cmocka_unit_test(the_law_grows_with_the_ranks),
                                     cmocka_unit_test(clocks_cost_beside_slow_gpus),
                                     cmocka_unit_test(groups_have_their_own_links),
                                     cmocka_unit_test(links_carry_what_is_sent)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
