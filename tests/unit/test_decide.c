/* How sure a choice is: chances, expected regret, and what short runs tell. */
#include "lib/close.h"
#include "lib/tier.h"

#include "base/json.h"
#include "base/err.h"
#include "study/decide.h"
#include "study/knobs.h"

#include <math.h>
#include <string.h>

static MsDecision *decision_of(int n) {
  MsDecision *d = g_new0(MsDecision, 1);
  d->n = n;
  d->row = g_new0(MsDecisionRow, n);
  for (int i = 0; i < n; i++) d->row[i].place = i + 1;
  return d;
}

/* Two of the same predicted step, independent: each is the faster one in half of the draws, and the expected regret is
 * E[exp(max(x - y, 0))] - 1 of two normal x and y. A run of one settles the choice as well as a run of the other. */
static void even_chances(void **state) {
  (void)state;
  const double time_s[] = {1, 1}, cov[] = {4e-4, 0, 0, 4e-4};
  g_autoptr(MsDecision) d = decision_of(2);
  ms_decide_among(time_s, cov, 1e-4, d);
  assert_close(d->row[0].chance, 0.5, 0.05);
  assert_close(d->row[0].chance + d->row[1].chance, 1, 1e-9);
  /* the positive part of a normal of sd 0.02 sqrt(2) has mean sd / sqrt(2 pi) */
  assert_close(d->row[0].regret, 0.02 * sqrt(2) / sqrt(2 * G_PI), 0.05);
  assert_true(d->n_runs >= 1);
  assert_true(d->regret_after[0] < 0.8 * d->row[d->pick].regret);
}

/* A clear winner needs no run; its chance is near one. */
static void clear_winner(void **state) {
  (void)state;
  const double time_s[] = {1.3, 1, 1.4}, cov[] = {4e-4, 0, 0, 0, 4e-4, 0, 0, 0, 4e-4};
  g_autoptr(MsDecision) d = decision_of(3);
  ms_decide_among(time_s, cov, 0.01, d);
  assert_int_equal(d->pick, 1);
  assert_true(d->row[1].chance > 0.999);
  assert_int_equal(d->n_runs, 0);
}

/* Two that err alike cannot change places however uncertain both are; a run of one tells of the other. */
static void common_errors(void **state) {
  (void)state;
  const double time_s[] = {1, 1.02, 1.02}, v = 0.04, cov[] = {v + 1e-6, v, 0, v, v + 1e-6, 0, 0, 0, 1e-6};
  g_autoptr(MsDecision) d = decision_of(3);
  ms_decide_among(time_s, cov, 1e-3, d);
  assert_true(d->row[1].chance < 0.01);
  assert_close(d->row[0].chance + d->row[2].chance, 1, 0.02);
  assert_int_equal(d->n_runs, 1); /* one run: on which side of the third the first two lie */
  assert_true(d->run[0] < 2);
  assert_true(d->regret_after[0] < 1e-3);
}

/* A noisy measurement settles less than an exact one. */
static void noise_of_runs(void **state) {
  (void)state;
  const double time_s[] = {1, 1.01}, cov[] = {9e-4, 0, 0, 9e-4};
  double after[2];
  for (int k = 0; k < 2; k++) {
    g_autoptr(MsDecision) d = decision_of(2);
    ms_decide_among(time_s, cov, k ? 0.03 : 1e-4, d);
    assert_true(d->n_runs > 0);
    after[k] = d->regret_after[d->n_runs - 1];
  }
  assert_true(after[1] > 1.5 * after[0]);
}

/* Of 8 layers of Llama 3 8B on 16 H100: `more` are further members of the request, "" none. */
static GPtrArray *requests_of(const char *more) {
  GError *error = NULL;
  g_autofree char *text = g_strdup_printf(
      "{\"name\": \"d\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, \"hardware\": \"h100-sxm\", "
      "\"gpus\": 16, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 64}%s}",
      more);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "request", &error);
  GPtrArray *requests = ms_requests_from_doc(doc, &error);
  assert_null(error);
  return requests;
}

static MsPlan *plan_of(GPtrArray *requests) {
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.top = MS_DECIDE_CANDIDATES;
  MsPlan *plan = ms_plan(requests->pdata[0], &options, NULL);
  assert_non_null(plan);
  return plan;
}

/* Of a plan: chances add up, the choice is the one of least regret, every proposed run is worth it, twice the same. */
static void of_a_plan(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autoptr(GPtrArray) requests = requests_of(", \"options\": {\"recompute\": \"auto\"}, \"layout\": {\"cp\": [1, 2]}");
  g_autoptr(MsPlan) plan = plan_of(requests);
  g_autoptr(MsDecision) d = ms_decide(plan), again = ms_decide(plan);
  double chances = 0;
  assert_true(d->n > 4);
  for (int i = 0; i < d->n; i++) {
    chances += d->row[i].chance;
    assert_true(d->row[i].regret >= d->row[d->pick].regret);
    assert_true(d->row[i].chance == again->row[i].chance && d->row[i].regret == again->row[i].regret);
  }
  assert_close(chances, 1, 1e-9);
  MsLaws *laws = &plan->best[0].scenario->laws;
  const MsLaw acting[] = {MS_LAW_decision_layout_spread, MS_LAW_decision_option_spread, MS_LAW_decision_run_noise};
  for (gsize k = 0; k < G_N_ELEMENTS(acting); k++) {
    double was = ms_law_get(laws, acting[k]);
    ms_law_set(laws, acting[k], 2 * was);
    g_autoptr(MsDecision) other = ms_decide(plan);
    gboolean moved = other->n_runs != d->n_runs || other->row[d->pick].regret != d->row[d->pick].regret;
    for (int i = 0; !moved && i < d->n_runs; i++) moved = other->regret_after[i] != d->regret_after[i];
    assert_true(moved);
    ms_law_set(laws, acting[k], was);
  }
  for (int i = 0; i < d->n_runs; i++)
    assert_true(d->regret_after[i] < (i ? d->regret_after[i - 1] : d->row[d->pick].regret * 1.05));
}

/* Runs that the machine was anchored by: the one that was measured faster than its prediction is taken, for less
 * regret, and those of another model say nothing. */
static void after_runs(void **state) {
  (void)state;
  g_autoptr(GPtrArray) requests = requests_of("");
  g_autoptr(MsPlan) plan = plan_of(requests);
  g_autoptr(MsDecision) before = ms_decide(plan);
  assert_true(before->n > 2 && before->n_runs > 0 && before->n_known == 0);
  int faster = before->run[0] != before->pick ? before->run[0] : (before->pick + 1) % before->n;
  const MsScenario *s = plan->best[0].scenario;
  for (int other = 0; other < 2; other++) {
    const int seen[] = {before->pick, faster};
    MsJsonOut *out = ms_json_out_new(0);
    ms_json_out_array(out, NULL);
    for (int i = 0; i < 2; i++) {
      g_autoptr(GHashTable) keys = ms_knobs_of_layout(plan->best[seen[i]].scenario);
      GHashTableIter iter;
      gpointer path, value;
      ms_json_out_object(out, NULL);
      ms_json_out_string(out, "model", other ? "another" : s->model->name);
      ms_json_out_int(out, "gpus", 16);
      ms_json_out_double(out, "step_s", 7 + i);
      ms_json_out_double(out, "left", i ? -0.2 : 0.02);
      ms_json_out_object(out, "keys");
      g_hash_table_iter_init(&iter, keys);
      while (g_hash_table_iter_next(&iter, &path, &value)) ms_json_out_string(out, path, value);
      ms_json_out_end(out);
      ms_json_out_end(out);
    }
    ms_json_out_end(out);
    JsonNode **runs = &plan->best[0].scenario->hardware->anchor.runs;
    *runs = ms_json_out_take_node(out);
    g_autoptr(MsDecision) after = ms_decide(plan);
    g_clear_pointer(runs, json_node_unref);
    assert_int_equal(after->n_known, other ? 0 : 2);
    assert_true(other ? isnan(after->fastest_known_s) : after->fastest_known_s == 7);
    if (other) {
      for (int i = 0; i < after->n; i++) assert_true(after->row[i].chance == before->row[i].chance);
      continue;
    }
    assert_true(after->row[faster].chance > 0.5 && after->row[faster].chance > 2 * before->row[faster].chance);
    assert_true(after->row[after->pick].regret < before->row[before->pick].regret);
    assert_true(after->expected_s < 0.95 * plan->best[after->pick].result->step_time_s);
    assert_true(after->row[after->pick].chance >= after->row[faster].chance * 0.5);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(even_chances),  cmocka_unit_test(clear_winner),
                                     cmocka_unit_test(common_errors), cmocka_unit_test(noise_of_runs),
                                     cmocka_unit_test(of_a_plan),     cmocka_unit_test(after_runs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
