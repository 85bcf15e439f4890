/* Choice under disturbances: outcomes, what each disturbance does to a step, and the claim that the winner is the best
 * of all. */
#include "lib/close.h"
#include "lib/world.h"

#include "base/err.h"
#include "cost/curve.h"
#include "study/robust.h"

#include <math.h>
#include <string.h>

static MsRequest *request_of(const char *layout, const char *routing) {
  g_autofree char *training = g_strconcat("\"global_batch_size\": 64, \"routing\": ", routing, NULL),
                  *text = ms_test_request_text("{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "\"h100-sxm\"", "16",
                                               training, layout, "");
  return ms_test_request_of(text);
}

#define SIZES "\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": 1, \"ep\": [2, 4, 8], \"etp\": 1"

static MsPlan *plan_of(const MsRequest *request, int top) {
  GError *error = NULL;
  MsPlan *plan = ms_plan(request, &(MsPlanOptions){.top = top, .prune = TRUE, .threads = 2}, &error);
  if (!plan) fail_msg("%s", error->message);
  return plan;
}

static MsDisturbances *states_of(const char *list) {
  GError *error = NULL;
  g_autofree char *text = g_strdup_printf("{\"schema\": 1, \"disturbances\": [%s]}", list);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "under", &error);
  MsDisturbances *d = doc ? ms_disturbances_from_doc(doc, &error) : NULL;
  if (!d) fail_msg("%s", error->message);
  return d;
}

static MsRobust *robust_of(const MsPlan *plan, int kept, const MsDisturbances *d, int threads) {
  GError *error = NULL;
  MsRobust *r = ms_robust(plan, kept, d, &(MsPlanOptions){.threads = threads}, &error);
  if (!r) fail_msg("%s", error->message);
  return r;
}

/* --- outcomes -------------------------------------------------------------------------------------------------- */
static void mean_and_quantile(void **state) {
  (void)state;
  MsOutcome o[] = {{3, 0.5}, {1, 0.25}, {2, 0.25}};
  assert_close(ms_outcomes_mean(o, 3), 2.25, 1e-15);
  assert_close(ms_outcomes_quantile(o, 3, 0.25), 1, 0);
  assert_close(ms_outcomes_quantile(o, 3, 0.26), 2, 0);
  assert_close(ms_outcomes_quantile(o, 3, 0.5), 2, 0);
  assert_close(ms_outcomes_quantile(o, 3, 0.95), 3, 0);
  MsOutcome never[] = {{1, 1}, {INFINITY, 0}}; /* what cannot happen does not count */
  assert_close(ms_outcomes_mean(never, 2), 1, 0);
}

/* Every form gives exactly `factor` times the time it gave, at several shapes. */
static void slowed_curves(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsHardware) fast = ms_hardware_load("h100-sxm", &error), slow = ms_hardware_copy(fast);
  MsDeviceRates rates = ms_device_rates(fast, 1, FALSE);
  gboolean seen[MS_N_FORMS] = {0};
  MsCurve *slowed = ms_curves_own(slow, 0);
  for (int i = 0; i < fast->num_curves; i++) {
    const MsCurve *a = &fast->curves[i], *b = &slowed[i];
    ms_curve_slow(&slowed[i], 1.25);
    seen[a->form] = TRUE;
    for (double n = 128; n < 1e6; n *= 7) {
      double x = 0, y = 0;
      switch (a->form) {
      case MS_FORM_GEMM_SATURATING:
      case MS_FORM_GEMM_TILED:
        x = ms_curve_gemm_s(a, &rates, n, 4096, 512, 2), y = ms_curve_gemm_s(b, &rates, n, 4096, 512, 2);
        break;
      case MS_FORM_GROUPED_GEMM:
        x = ms_curve_grouped_gemm_s(a, &rates, n, 8, 4096, 1536, 1536, 2),
        y = ms_curve_grouped_gemm_s(b, &rates, n, 8, 4096, 1536, 1536, 2);
        break;
      case MS_FORM_ATTENTION:
        x = ms_curve_attention_s(a, &rates, 4e6 * n, 1e6, n, 128, 32, 4, 32),
        y = ms_curve_attention_s(b, &rates, 4e6 * n, 1e6, n, 128, 32, 4, 32);
        break;
      case MS_FORM_SEGMENTS: x = ms_curve_segments_s(a, 100 * n), y = ms_curve_segments_s(b, 100 * n); break;
      case MS_FORM_DISPATCH:
        x = ms_curve_dispatch_s(a, 8192 * n, n, 4096, 20), y = ms_curve_dispatch_s(b, 8192 * n, n, 4096, 20);
        break;
      default: x = ms_curve_bandwidth_s(a, &rates, 1000 * n), y = ms_curve_bandwidth_s(b, &rates, 1000 * n);
      }
      assert_close(y, 1.25 * x, 1e-12);
    }
  }
  assert_true(seen[MS_FORM_SEGMENTS] && seen[MS_FORM_DISPATCH] && seen[MS_FORM_BANDWIDTH] && seen[MS_FORM_ATTENTION] &&
              seen[MS_FORM_GROUPED_GEMM]);
}

static void slow_gpu(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRequest) request =
      request_of("\"tp\": 2, \"cp\": 1, \"pp\": 4, \"vpp\": 1, \"ep\": 2, \"etp\": 1", "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 1);
  const MsScenario *s = plan->best[0].scenario;
  double nominal = plan->best[0].result->step_time_s;
  for (int stage = 0; stage < 4; stage++) {
    g_autoptr(MsResult) same = ms_simulate_slow_gpu(s, stage, 1, &error),
                        some = ms_simulate_slow_gpu(s, stage, 1.2, &error),
                        more = ms_simulate_slow_gpu(s, stage, 1.4, &error);
    assert_close(same->step_time_s, nominal, 0);
    assert_true(some->step_time_s > nominal && some->step_time_s <= 1.2 * nominal);
    assert_true(more->step_time_s > some->step_time_s && more->step_time_s <= 1.4 * nominal);
    assert_true(some->step_time_s >= some->step_time_lower_s);
  }
}

/* --- the ranking ----------------------------------------------------------------------------------------------- */
static void nothing_disturbs(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of(SIZES, "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 4);
  g_autoptr(MsDisturbances) d = states_of("{\"name\": \"as planned\"}");
  g_autoptr(MsRobust) r = robust_of(plan, 4, d, 1);
  assert_int_equal(r->n, 4);
  assert_true(r->proven);
  assert_close(r->outside_s, plan->best[3].result->step_time_s, 0);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(r->row[i].place, i + 1);
    assert_int_equal(r->row[i].place_p95, i + 1);
    assert_close(r->row[i].expected_s, plan->best[i].result->step_time_s, 0);
    assert_close(r->row[i].p95_s, plan->best[i].result->step_time_s, 0);
  }
}

/* The expected step is the weighted mean of what a simulation of each state gives; p95 is the worst of them when it is
 * likelier than 5 %. */
static void states_are_weighted(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRequest) request = request_of(SIZES, "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 3);
  g_autoptr(MsDisturbances) d = states_of("{\"name\": \"as planned\", \"weight\": 3}, {\"name\": \"slow links\", "
                                          "\"weight\": 1, \"scale\": {\"nic_Bps\": 0.25, \"scaleup_Bps\": 0.5}}");
  g_autoptr(MsRobust) r = robust_of(plan, 3, d, 2);
  for (int i = 0; i < r->n; i++) {
    g_autoptr(MsScenario) s = ms_scenario_copy(r->row[i].entry->scenario, TRUE);
    g_autoptr(MsHardware) machine = ms_hardware_copy(s->hardware);
    ms_hardware_scale(machine, "nic_Bps", 0.25), ms_hardware_scale(machine, "scaleup_Bps", 0.5);
    s->hardware = machine;
    g_autoptr(MsResult) worse = ms_simulate(s, MS_FIDELITY_FULL, NULL, &error);
    double nominal = r->row[i].entry->result->step_time_s;
    assert_true(worse->step_time_s > nominal);
    assert_close(r->row[i].expected_s, 0.75 * nominal + 0.25 * worse->step_time_s, 1e-12);
    assert_close(r->row[i].p95_s, worse->step_time_s, 0);
    assert_close(r->row[i].state_s[1], worse->step_time_s, 0);
  }
}

/* A GPU that is surely slow: the stage where it costs most decides. One in a thousand: between that and nothing. */
static void slow_gpus_by_chance(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRequest) request =
      request_of("\"tp\": 2, \"cp\": 1, \"pp\": 4, \"vpp\": 1, \"ep\": 2, \"etp\": 1", "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 1);
  double nominal = plan->best[0].result->step_time_s, worst = 0;
  for (int stage = 0; stage < 4; stage++) {
    g_autoptr(MsResult) one = ms_simulate_slow_gpu(plan->best[0].scenario, stage, 1.5, &error);
    worst = MAX(worst, one->step_time_s);
  }
  g_autoptr(MsDisturbances) d = states_of("{\"name\": \"all\", \"slow_gpu\": {\"rate\": 1, \"slowdown\": 1.5}}, "
                                          "{\"name\": \"few\", \"slow_gpu\": {\"rate\": 0.001, \"slowdown\": 1.5}}");
  g_autoptr(MsRobust) r = robust_of(plan, 1, d, 1);
  assert_close(r->row[0].state_s[0], worst, 1e-12);
  double p = 1 - pow(0.999, 16); /* some GPU is slow */
  assert_true(r->row[0].state_s[1] > nominal && r->row[0].state_s[1] <= nominal + p * (worst - nominal) * (1 + 1e-9));
}

/* A state of GPUs that differ has the expected step of `cluster.expected`, and more at the 95th percentile. */
static void differing_gpus_are_expected(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of(SIZES, "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 2);
  g_autoptr(MsDisturbances) d =
      states_of("{\"name\": \"x\", \"gpus_differ\": true, \"slow_gpu\": {\"rate\": 0.01, \"slowdown\": 1.3}}");
  g_autoptr(MsRobust) r = robust_of(plan, 2, d, 2);
  for (int i = 0; i < r->n; i++) {
    g_autoptr(MsScenario) s = ms_scenario_copy(r->row[i].entry->scenario, TRUE);
    s->cluster.expected = TRUE, s->cluster.slow_gpu_rate = 0.01, s->cluster.slow_gpu_factor = 1.3;
    g_autoptr(MsResult) law = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
    assert_close(r->row[i].expected_s, law->step_time_s, 1e-12);
    assert_close(r->row[i].p95_s, law->step_time_s + sqrt(3) * law->scale.sd_s, 1e-12);
    assert_true(law->scale.sd_s > 0);
  }
  assert_true(r->outside_s < plan->best[1].result->step_time_s);
}

static const char mixed[] =
    "{\"name\": \"as planned\", \"weight\": 4}, {\"name\": \"skew\", \"routing\": {\"zipf\": 0.6, \"seed\": 3}}, "
    "{\"name\": \"nic\", \"scale\": {\"nic_Bps\": 0.8}}, {\"name\": \"curves\", \"uncertainty\": {\"samples\": 3, "
    "\"seed\": 7}}";

/* Curves that say no residual are drawn within the law that also makes the band of their time. */
static void unknown_curves_follow_the_law(void **state) {
  (void)state;
  g_autoptr(MsRequest) request =
      request_of("\"tp\": 2, \"cp\": 1, \"pp\": 1, \"vpp\": 1, \"ep\": 8, \"etp\": 1", "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 1);
  g_autoptr(MsDisturbances) d = states_of("{\"name\": \"curves\", \"uncertainty\": {\"samples\": 3, \"seed\": 7}}");
  MsScenario *s = plan->best[0].scenario;
  MsCurve *curves = ms_curves_own(s->hardware, 0);
  for (int i = 0; i < s->hardware->num_curves; i++) curves[i].provenance.residual_p90 = NAN;
  double p95_s[2];
  for (int k = 0; k < 2; k++) {
    s->laws.default_band = k ? 0.2 : 0.02;
    g_autoptr(MsRobust) r = robust_of(plan, 1, d, 1);
    p95_s[k] = r->row[0].p95_s;
  }
  assert_true(fabs(p95_s[1] / p95_s[0] - 1) > 1e-3);
}

/* When a few candidates are said to hold the best of all layouts, judging all of them finds no better one. */
static void proven_means_best_of_all(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of(SIZES, "\"balanced\"");
  g_autoptr(MsPlan) all = plan_of(request, 1000);
  g_autoptr(MsDisturbances) d = states_of(mixed);
  g_autoptr(MsRobust) whole = robust_of(all, 1000, d, 2);
  assert_true(all->n_best > 12 && whole->proven && isinf(whole->outside_s));
  gboolean proven = FALSE, open = FALSE;
  for (int kept = 1; kept < all->n_best; kept += 4) {
    g_autoptr(MsPlan) plan = plan_of(request, kept);
    g_autoptr(MsRobust) r = robust_of(plan, kept, d, 2);
    for (int i = 0; i < whole->n; i++) /* the bound of what is outside holds */
      if (whole->row[i].place > kept) assert_true(whole->row[i].expected_s >= r->outside_s);
    if (r->proven) assert_close(r->row[0].expected_s, whole->row[0].expected_s, 0);
    proven |= r->proven, open |= !r->proven;
  }
  assert_true(proven && open);
}

static void same_for_any_number_of_threads(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of(SIZES, "\"balanced\"");
  g_autoptr(MsPlan) plan = plan_of(request, 6);
  g_autoptr(MsDisturbances) d = states_of(mixed),
                            other = states_of("{\"name\": \"curves\", \"uncertainty\": {\"samples\": 3, \"seed\": 8}}"),
                            same = states_of("{\"name\": \"curves\", \"uncertainty\": {\"samples\": 3, \"seed\": 7}}");
  g_autoptr(MsRobust) a = robust_of(plan, 6, d, 1), b = robust_of(plan, 6, d, 3), c = robust_of(plan, 6, other, 1),
                      e = robust_of(plan, 6, same, 1);
  for (int i = 0; i < a->n; i++) {
    assert_int_equal(a->row[i].place, b->row[i].place);
    assert_close(a->row[i].expected_s, b->row[i].expected_s, 0);
    assert_close(a->row[i].p95_s, b->row[i].p95_s, 0);
  }
  for (int i = 0; i < a->n; i++)
    for (int j = 0; j < e->n; j++)
      if (e->row[j].place == a->row[i].place) assert_close(e->row[j].expected_s, a->row[i].state_s[3], 1e-12);
  assert_true(c->row[0].expected_s != e->row[0].expected_s); /* another seed, other draws */
}

/* What makes the machine faster, or routing that is skewed already, proves nothing; no memory in a state is a step
 * without end. */
static void no_false_proof(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = request_of(SIZES, "\"balanced\""), natural = request_of(SIZES, "{\"zipf\": 0.5}");
  g_autoptr(MsPlan) plan = plan_of(request, 3), skewed = plan_of(natural, 3);
  g_autoptr(MsDisturbances) faster = states_of("{\"name\": \"fast\", \"scale\": {\"peak_bf16_flops\": 1.1}}"),
                            even = states_of("{\"name\": \"even\", \"routing\": \"balanced\"}"),
                            tiny = states_of("{\"name\": \"tiny\", \"scale\": {\"hbm_B\": 0.05}}");
  g_autoptr(MsRobust) a = robust_of(plan, 3, faster, 2), b = robust_of(skewed, 3, even, 2),
                      c = robust_of(plan, 3, tiny, 2);
  assert_true(!a->proven && a->outside_s == 0);
  assert_true(!b->proven && b->outside_s == 0);
  assert_true(!c->proven && isinf(c->row[0].expected_s) && isinf(c->row[0].p95_s));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mean_and_quantile),
      cmocka_unit_test(slowed_curves),
      cmocka_unit_test(slow_gpu),
      cmocka_unit_test(nothing_disturbs),
      cmocka_unit_test(states_are_weighted),
      cmocka_unit_test(slow_gpus_by_chance),
      cmocka_unit_test(differing_gpus_are_expected),
      cmocka_unit_test(unknown_curves_follow_the_law),
      cmocka_unit_test(proven_means_best_of_all),
      cmocka_unit_test(same_for_any_number_of_threads),
      cmocka_unit_test(no_false_proof),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
