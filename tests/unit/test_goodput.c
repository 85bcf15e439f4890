/* Goodput: the simulation and the closed forms agree on a grid, both obey their limits, published figures come out,
 * files are checked. */
#include "lib/close.h"

#include "base/err.h"
#include "lib/fault_model.h"
#include "lib/tier.h"
#include "report/report.h"

#include <string.h>

/* A few runs of the grid that test_full_goodput walks with many. */
static void simulation_and_closed_form_agree(void **state) {
  (void)state;
  static const double stall_write_s[][2] = {{60, 0}, {2, 120}};
  for (guint i = 0; i < G_N_ELEMENTS(stall_write_s); i++) {
    MsFaultModel m = model_of(3 * HOUR_S, stall_write_s[i][0], stall_write_s[i][1], 900, 100);
    Mean got = mean_wall(&m, 2000);
    double want = ms_fault_expected_s(&m, m.interval_s, 100);
    assert_close(got.mean, want, 0.01);
    if (fabs(got.mean - want) > 4 * got.error) fail_msg("%g +- %g against %g", got.mean, got.error, want);
  }
}

static void without_failures_nothing_is_lost(void **state) {
  (void)state;
  MsFaultModel m = model_of(INFINITY, 60, 0, 900, 10);
  MsFaultRun run;
  ms_fault_simulate(&m, 1, 0, &run);
  assert_close(run.wall_s, 10 * 960, 1e-12);
  assert_close(ms_fault_expected_s(&m, 900, 10), 10 * 960, 1e-12);
  assert_close(ms_fault_ettr(&m, 900), 900.0 / 960, 1e-12);
  assert_true(isinf(ms_fault_young_s(&m)) && isinf(ms_fault_daly_s(&m)));
  m.stall_s = 2, m.write_s = 30;
  ms_fault_simulate(&m, 1, 0, &run);
  assert_close(run.wall_s, 10 * 902 + 30, 1e-12);
  assert_close(ms_fault_expected_s(&m, 900, 10), 10 * 902 + 30, 1e-12);
}

/* However long its intervals, stalls, recoveries or waits are, a run of so many days ends with them. */
static void the_days_end_on_time(void **state) {
  (void)state;
  static const double mtbf_h[] = {INFINITY, 3, 0.2}, interval_s[] = {900, 1e9}, stall_s[] = {2, 7000};
  for (guint i = 0; i < 3 * 2 * 2 * 2; i++) {
    MsFaultModel m = model_of(mtbf_h[i % 3] * HOUR_S, stall_s[i / 3 % 2], 0, interval_s[i / 6 % 2], INFINITY);
    m.horizon_s = 10000, m.work_s = INFINITY;
    if (i / 12) m.spares = 0, m.slow_Hz = 1e-4, m.slow_speed = 0.5, m.slow_detection_s = 1e6;
    for (guint32 index = 0; index < 20; index++) {
      MsFaultRun run;
      ms_fault_simulate(&m, 1, index, &run);
      assert_close(run.wall_s, 10000, 1e-12);
      assert_close(run.work_s + run.rework_s + run.slowed_s + run.stall_s + run.recovery_s + run.waiting_s, 10000,
                   1e-9);
      if (i == 6) assert_close(run.work_s, 10000, 1e-12); /* nothing fails, no snapshot falls due */
      if (i == 0) assert_close(run.work_s, 10000 - 11 * 2, 1e-12);
    }
  }
}

/* Without a background write the exact form is Daly's complete model, written down independently; for rare failures all
 * forms meet. */
static void closed_forms_and_their_limits(void **state) {
  (void)state;
  MsFaultModel m = model_of(3 * HOUR_S, 60, 0, 900, 1);
  m.kind[0].detection_s = m.kind[1].detection_s = 100; /* one recovery time: 500 s */
  double mtbf = 3 * HOUR_S;
  assert_close(ms_fault_expected_s(&m, 900, 7), 7 * mtbf * exp(500 / mtbf) * (exp(960 / mtbf) - 1), 1e-12);
  assert_close(ms_fault_young_s(&m), sqrt(2 * 60 * mtbf), 1e-12);
  assert_close(ms_fault_daly_s(&m), sqrt(2 * 60 * mtbf) * (1 + sqrt(60 / (2 * mtbf)) / 3 + 60 / (18 * mtbf)) - 60,
               1e-12);
  assert_close(ms_fault_recovery_s(&m), 500, 1e-12);
  MsFaultModel rare = model_of(1000 * HOUR_S, 20, 0, 3600, 1);
  assert_close(ms_fault_ettr_first_order(&rare, 3600), ms_fault_ettr(&rare, 3600), 1e-5);
  assert_close(ms_fault_optimal_s(&rare, 1), ms_fault_young_s(&rare), 0.01);
  assert_close(ms_fault_optimal_s(&rare, 1), ms_fault_daly_s(&rare), 0.001);
  MsFaultModel hopeless = model_of(100, 20, 0, 3600, 1); /* failures come faster than an interval ends */
  assert_true(ms_fault_ettr_first_order(&hopeless, 3600) == 0);
}

static void the_optimum_is_one(void **state) {
  (void)state;
  static const double mtbf_h[] = {0.5, 3, 100}, stall_write_s[][2] = {{60, 0}, {0.1, 200}, {5, 5}};
  for (guint a = 0; a < G_N_ELEMENTS(mtbf_h); a++)
    for (guint b = 0; b < G_N_ELEMENTS(stall_write_s); b++) {
      MsFaultModel m = model_of(mtbf_h[a] * HOUR_S, stall_write_s[b][0], stall_write_s[b][1], 900, 1);
      double best = ms_fault_optimal_s(&m, 10), ettr = ms_fault_ettr(&m, best);
      assert_true(best >= m.write_s && best >= 10);
      for (double f = 0.5; f < 2; f += 0.05)
        if (best * f >= MAX(m.write_s, 10)) assert_true(ms_fault_ettr(&m, best * f) <= ettr * (1 + 1e-12));
    }
}

/* A write that is longer than the best interval is the interval, to the last bit. */
static void the_optimum_is_allowed(void **state) {
  (void)state;
  for (double write_s = 60; write_s < 80; write_s += 0.37) {
    MsFaultModel m = model_of(3 * HOUR_S, 0.13, write_s, 900, 1);
    assert_true(ms_fault_optimal_s(&m, 4.7) >= write_s);
  }
}

/* --- nodes ----------------------------------------------------------------------------------------------------- */
static MsFaultRun sum_of(const MsFaultModel *m, int runs) {
  MsFaultRun sum = {0};
  for (int i = 0; i < runs; i++) {
    MsFaultRun run;
    ms_fault_simulate(m, 7, (guint32)i, &run);
    assert_close(run.work_s + run.rework_s + run.slowed_s + run.stall_s + run.recovery_s + run.waiting_s, run.wall_s,
                 1e-9);
    sum.wall_s += run.wall_s, sum.waiting_s += run.waiting_s, sum.slowed_s += run.slowed_s, sum.planned += run.planned,
        sum.work_s += run.work_s;
    for (int k = 0; k < m->n_kinds; k++) sum.failures[k] += run.failures[k];
  }
  return sum;
}

/* Without a spare every lost node is waited for, whole; failures of the other kind do not wait. */
static void no_spare_waits_for_every_repair(void **state) {
  (void)state;
  MsFaultModel m = model_of(5 * HOUR_S, 10, 0, 900, 50);
  m.spares = 0, m.repair_s = 7200;
  MsFaultRun sum = sum_of(&m, 50);
  assert_true(sum.failures[0] > 50 && sum.failures[1] > 10);
  assert_close(sum.waiting_s, sum.failures[0] * 7200, 1e-9);
}

/* More spares wait less; enough of them as if there were no end to them. */
static void spares_help(void **state) {
  (void)state;
  double last = INFINITY;
  MsFaultModel m = model_of(2 * HOUR_S, 10, 0, 900, 200);
  m.repair_s = 12 * HOUR_S;
  MsFaultRun endless = sum_of(&m, 20);
  assert_close(endless.waiting_s, 0, 0);
  for (int spares = 0; spares <= 64; spares = spares ? 4 * spares : 1) {
    m.spares = spares;
    MsFaultRun sum = sum_of(&m, 20);
    assert_true(sum.waiting_s <= last);
    last = sum.waiting_s;
    if (spares == 64) assert_close(sum.wall_s, endless.wall_s, 1e-12);
  }
  m.spares = 4; /* 4.5 in repair on average */
  assert_close(ms_fault_shortage(&m), 1 - exp(-4.5) * (1 + 4.5 + 4.5 * 4.5 / 2 + pow(4.5, 3) / 6 + pow(4.5, 4) / 24),
               1e-9);
}

static void shrinking_beats_waiting(void **state) {
  (void)state;
  MsFaultModel m = model_of(10 * HOUR_S, 10, 0, 900, 200);
  m.spares = 0, m.repair_s = 6 * HOUR_S;
  MsFaultRun waits = sum_of(&m, 20);
  m.elastic = TRUE;
  MsFaultRun shrinks = sum_of(&m, 20);
  assert_close(shrinks.waiting_s, 0, 0);
  assert_true(shrinks.slowed_s > 0 && shrinks.planned > 0);
  assert_true(shrinks.wall_s < waits.wall_s);
  assert_close(shrinks.work_s, waits.work_s, 1e-9);
}

/* Each slow node takes (1 - speed) of its detection time; failures are made rare. */
static void slow_nodes_slow(void **state) {
  (void)state;
  MsFaultModel m = model_of(1e6 * HOUR_S, 1, 0, 900, 2000);
  m.slow_Hz = 1.0 / DAY_S, m.slow_speed = 0.8, m.slow_detection_s = 3600;
  MsFaultRun sum = sum_of(&m, 20);
  assert_true(sum.planned > 200);
  assert_close(sum.slowed_s / sum.planned, 0.2 * 3600, 0.02);
  assert_close(sum.planned / ((sum.work_s + sum.slowed_s) / DAY_S), 1, 0.15);
}

/* --- shipped studies and published figures --------------------------------------------------------------------- */
static MsGoodputResult *result_of(const char *name, int threads) {
  GError *error = NULL;
  g_autofree char *file = g_strdup_printf(MS_SOURCE_DIR "/scenarios/goodput/%s.json", name);
  const MsGoodputOptions options = {.threads = threads};
  MsGoodput *goodput = ms_goodput_load(file, &error);
  MsGoodputResult *r = goodput ? ms_goodput_run(goodput, &options, &error) : NULL;
  if (!r) fail_msg("%s", error->message);
  return r;
}

/* 16,384 H100: 419 interruptions in 54 days, one in about three hours, three quarters and more hardware, over 90 %
 * effective (arXiv 2407.21783). */
static void llama3_comes_out(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autoptr(MsGoodputResult) r = result_of("llama3-405b-16384", 2);
  assert_int_equal(r->nodes, 2048);
  assert_close(r->failures.mean, 419, 0.15);
  assert_close(r->mtbf_s, 54 * 24 * HOUR_S / 419, 0.001);
  assert_true(r->ettr_runs.p5 > 0.9 && r->ettr_runs.mean < 0.97);
  assert_close(r->ettr_runs.mean, r->ettr, 0.001);
  double hardware = 0;
  for (int k = 0; k < r->goodput->reliability.n; k++)
    hardware += r->goodput->reliability.failure[k].component != MS_FAIL_SOFTWARE ? r->kind_failures[k] : 0;
  assert_close(hardware / r->failures.mean, 0.78, 0.15);
  /* Bytes of a checkpoint: every parameter with its weight, main parameter and moments once, 14 bytes. */
  assert_close(r->checkpoint_B, 14 * 405.8e9, 0.005);
  assert_close(r->model.stall_s, r->checkpoint_B / 2e12, 1e-12);
}

/* Mean time to failure that the source projects from 6.5 failures per 1000 node-days: 1.8 h at 16,384 GPUs, 0.23 h at
 * 131,072 (arXiv 2410.21680). */
static void rsc1_comes_out(void **state) {
  (void)state;
  MsReliability r;
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse("\"meta-rsc1\"", -1, "name", &error);
  assert_true(ms_reliability_load(doc, ms_json_root(doc), "reliability", &r, &error));
  assert_int_equal(r.failure[0].per, MS_PER_NODE);
  assert_close(24 / (16384 / 8 * r.failure[0].per_1000_days / 1000), 1.8, 0.15);
  assert_close(24 / (131072 / 8 * r.failure[0].per_1000_days / 1000), 0.23, 0.15);
  ms_reliability_clear(&r);
}

static void every_study_runs_the_same_on_any_threads(void **state) {
  (void)state;
  static const char *const names[] = {"elastic-llama3-70b-64", "deepseek-v3-2048", "llama3-405b-16384"};
  for (int i = 0, n = ms_by_tier(1, G_N_ELEMENTS(names)); i < n; i++) {
    g_autoptr(MsGoodputResult) one = result_of(names[i], 1), three = result_of(names[i], 3);
    g_autofree char *a = ms_figures_json(&ms_goodput_figures, one), *b = ms_figures_json(&ms_goodput_figures, three),
                    *text = ms_report_goodput(one, 0);
    assert_string_equal(a, b);
    assert_non_null(strstr(text, "effective time"));
    double sum = 0;
    for (int p = 0; ms_goodput_part_words[p]; p++) sum += one->part_s[p];
    assert_close(sum, one->wall_s.mean, 1e-9);
    GError *error = NULL;
    g_autoptr(MsJson) doc = ms_json_parse(a, -1, "json", &error);
    assert_non_null(doc);
  }
}

/* --- files ----------------------------------------------------------------------------------------------------- */
#define STUDY(more)                                                                                                  \
  "{\"schema\": 1, \"run\": \"run-llama3-70b-h100-64.json\", \"fidelity\": \"fast\", \"recovery\": {\"restart_s\": " \
  "300, \"rewarm_s\": 60}, " more "}"
#define RATE(x)                                                                                       \
  "\"reliability\": {\"failures\": [{\"component\": \"any\", \"per\": \"job\", \"per_1000_days\": " x \
  ", \"detection_s\": 60, \"source\": \"a test\"}]}"

static MsGoodputResult *study_of(const char *text, GError **error) {
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, MS_SOURCE_DIR "/scenarios/study.json", error);
  MsGoodput *goodput = doc ? ms_goodput_from_doc(doc, error) : NULL;
  const MsGoodputOptions options = {.threads = 2};
  return goodput ? ms_goodput_run(goodput, &options, error) : NULL;
}

/* A job that fails before it gets anywhere says so instead of running for ever. */
static void no_progress_is_an_answer(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsGoodputResult) r = study_of(
      STUDY(RATE(
          "1e6") ", \"checkpoint\": {\"mode\": \"synchronous\", \"storage_Bps\": 1e9}, \"budget\": {\"tokens\": 1e12}"),
      &error);
  if (!r) fail_msg("%s", error->message);
  assert_int_equal(r->runs, 0);
  g_autofree char *text = ms_report_goodput(r, 0), *json = ms_figures_json(&ms_goodput_figures, r);
  assert_non_null(strstr(text, "makes no progress"));
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "json", &error);
  assert_non_null(doc);
}

/* Runs that were given up make a bound of the mean, and figures are written out. */
static void given_up_is_a_lower_bound(void **state) {
  (void)state;
#define WAITS(nodes)                                                                                                  \
  STUDY(RATE(                                                                                                         \
      "8000") ", \"checkpoint\": {\"mode\": \"asynchronous\", \"storage_Bps\": 1e10}, \"spares\": {\"nodes\": " nodes \
              ", \"repair_s\": 259200}, \"elastic\": false, \"budget\": {\"tokens\": 1e11}, \"monte_carlo\": "        \
              "{\"runs\": 40}")
  GError *error = NULL;
  g_autoptr(MsGoodputResult) r = study_of(WAITS("0"), &error), fine = study_of(WAITS("40"), &error);
  if (!r || !fine) fail_msg("%s", error->message);
  assert_true(r->unfinished > 2 && fine->unfinished == 0);
  g_autofree char *text = ms_report_goodput(r, 0), *json = ms_figures_json(&ms_goodput_figures, r),
                  *says = g_strdup_printf("! %d of 40 runs were given up", r->unfinished),
                  *other = ms_report_goodput(fine, 0);
  assert_true(strstr(text, " tokens: at least ") && strstr(text, "GPU-hours        at least ") && strstr(text, says));
  assert_true(strstr(json, "\"lower_bound\":true") && !strstr(text, "e+"));
  assert_null(strstr(other, "at least"));
}

/* All machines of a job of several kinds are named. */
static void pools_are_named(void **state) {
  (void)state;
  static const char run[] =
      "{\"model\": \"llama3-8b\", \"pools\": [{\"hardware\": \"h100-sxm\", \"gpus\": 8}, {\"hardware\": "
      "\"a100-sxm-80g\", \"gpus\": 8}], \"training\": {\"seq_length\": 4096, \"global_batch_size\": 16}, "
      "\"layout\": {\"pp\": 2}}";
  g_autofree char *study = g_strdup_printf(
      "{\"schema\": 1, \"run\": %s, \"fidelity\": \"bound\", \"recovery\": {\"restart_s\": 300, \"rewarm_s\": "
      "60}, " RATE(
          "20") ", \"checkpoint\": {\"mode\": \"synchronous\", \"storage_Bps\": 1e12}, \"budget\": {\"days\": 3}}",
      run);
  GError *error = NULL;
  g_autoptr(MsGoodputResult) r = study_of(study, &error);
  if (!r) fail_msg("%s", error->message);
  g_autofree char *text = ms_report_goodput(r, 0);
  assert_non_null(strstr(text, "llama3-8b on 8 x h100-sxm + 8 x a100-sxm-80g, 2 nodes"));
}

#define REST ", \"checkpoint\": {\"mode\": \"synchronous\", \"storage_Bps\": 1e12}, \"budget\": {\"days\": 30}"
/* The step's band alone where nothing fails, wider with failures; narrower where the step is given. */
static void tokens_a_day_have_a_band(void **state) {
  (void)state;
  static const char *const study[] = {STUDY(RATE("20") REST), STUDY(RATE("20") REST ", \"step_time_s\": 2")};
  GError *error = NULL;
  double wide[2];
  for (int given = 0; given < 2; given++) {
    g_autoptr(MsGoodputResult) r = study_of(study[given], &error);
    if (!r) fail_msg("%s", error->message);
    assert_close(r->tokens_per_day, r->tokens_per_step * 86400 / r->step_time_s * r->ettr_runs.mean, 1e-12);
    wide[given] = (r->tokens_per_day_p95 - r->tokens_per_day_p5) / r->tokens_per_day;
    assert_true(given ? r->band == 0 : r->band > 0 && wide[0] >= 2 * r->band);
    g_autofree char *text = ms_report_goodput(r, 0);
    assert_non_null(strstr(text, given ? "step 2.00 s (as given)" : " s (fast), "));
  }
  assert_true(wide[1] > 0 && wide[1] < wide[0]);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  static const char *const refused[][2] = {
      {STUDY(RATE("10") ", \"checkpoint\": {\"mode\": \"asynchronous\", \"storage_Bps\": 1e8, \"interval_s\": 600}, "
                        "\"budget\": {\"days\": 3}"),
       "checkpoint.interval_s: is 600 s, but writing one takes"},
      {STUDY(RATE("10") ", \"checkpoint\": {\"mode\": \"in-memory\", \"interval_s\": 1}, \"budget\": {\"days\": 3}"),
       "checkpoint.interval_s: is 1 s, but a step takes"},
      {STUDY(RATE("10") ", \"checkpoint\": {\"mode\": \"in-memory\", \"interval_s\": 30}, \"budget\": {\"tokens\": "
                        "1e18}, \"monte_carlo\": {\"runs\": 1000000}"),
       "monte_carlo.runs: would take"},
      {STUDY(RATE("10") ", \"checkpoint\": {\"mode\": \"in-memory\"}, \"budget\": {\"tokens\": 20}"),
       "budget.tokens: is 20, fewer than a step has"}};
  for (guint i = 0; i < G_N_ELEMENTS(refused); i++) {
    GError *error = NULL;
    assert_null(study_of(refused[i][0], &error));
    assert_int_equal(error->code, MS_ERROR_INPUT);
    if (!strstr(error->message, refused[i][1])) fail_msg("%s", error->message);
    g_clear_error(&error);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(simulation_and_closed_form_agree),
                                     cmocka_unit_test(without_failures_nothing_is_lost),
                                     cmocka_unit_test(the_days_end_on_time),
                                     cmocka_unit_test(closed_forms_and_their_limits),
                                     cmocka_unit_test(the_optimum_is_one),
                                     cmocka_unit_test(the_optimum_is_allowed),
                                     cmocka_unit_test(no_spare_waits_for_every_repair),
                                     cmocka_unit_test(spares_help),
                                     cmocka_unit_test(shrinking_beats_waiting),
                                     cmocka_unit_test(slow_nodes_slow),
                                     cmocka_unit_test(llama3_comes_out),
                                     cmocka_unit_test(rsc1_comes_out),
                                     cmocka_unit_test(every_study_runs_the_same_on_any_threads),
                                     cmocka_unit_test(no_progress_is_an_answer),
                                     cmocka_unit_test(given_up_is_a_lower_bound),
                                     cmocka_unit_test(pools_are_named),
                                     cmocka_unit_test(tokens_a_day_have_a_band),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
