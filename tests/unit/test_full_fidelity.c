/* The three fidelities on every published run: no errors but named refusals, bound <= full and bound <= fast, fast
 * close to full, parts that add up, the same bytes twice, and both engines equal where nothing is shared. Only in the
 * full tier. */
#include "lib/close.h"
#include "lib/trajectory.h"

#include "base/err.h"
#include "base/stats.h"
#include "base/units.h"
#include "lib/unshared.h"
#include "lib/world.h"
#include "plan/plan.h"
#include "sim/graph.h"

#include <string.h>

static GPtrArray *files;

static int find_files(void **state) {
  (void)state;
  files = ms_test_files("scenarios/published");
  return files->len == 0;
}

static int free_files(void **state) {
  (void)state;
  g_ptr_array_free(files, TRUE);
  return 0;
}

static double sum_of(const MsTimeParts *t) {
  return t->compute_s + t->exposed_comm_s + t->bubble_s + t->host_s + t->optimizer_s + t->other_s;
}

static void check_parts(const MsScenario *s, const MsResult *r, const MsTimeParts *t) {
  double comm = 0, family = 0;
  if (fabs(sum_of(t) / r->step_time_s - 1) > 1e-9)
    fail_msg("%s at %s: parts add up to %.12g of %.12g s", s->file, ms_fidelity_words[r->fidelity], sum_of(t),
             r->step_time_s);
  const double part[] = {t->compute_s, t->exposed_comm_s, t->bubble_s, t->host_s, t->optimizer_s, t->other_s};
  for (guint i = 0; i < G_N_ELEMENTS(part); i++)
    if (!(part[i] >= -1e-9 * r->step_time_s))
      fail_msg("%s at %s: part %u is %.12g s", s->file, ms_fidelity_words[r->fidelity], i, part[i]);
  for (int c = 0; c < MS_N_COMMS; c++) {
    comm += t->comm_exposed_s[c];
    assert_true(t->comm_exposed_s[c] >= 0);
    if (t->comm_exposed_s[c] > t->comm_total_s[c] * (1 + 1e-9) + 1e-9 &&
        c <= MS_COMM_ETP) /* for the others a stage may wait for another's */
      fail_msg("%s at %s: %s exposed for %.9g of %.9g s", s->file, ms_fidelity_words[r->fidelity], ms_comm_words[c],
               t->comm_exposed_s[c], t->comm_total_s[c]);
  }
  assert_close(comm, t->exposed_comm_s, 1e-9);
  for (int i = 0; i < 4; i++) family += t->family_s[i];
  assert_close(family, t->compute_s, 1e-9);
}

/* A stage waits for what others send it, or reduce before they meet, and of a blocking message both ends wait: more
 * than its own, but no more than all stages run, and twice the messages. */
static void check_waits(const MsScenario *s, const MsResult *r) {
  for (int c = MS_COMM_PP; c < MS_N_COMMS; c++) {
    double total_s = 0;
    for (int i = 0; i < r->stages; i++) total_s += r->stage_time[i].comm_total_s[c];
    for (int i = 0; i < r->stages; i++)
      if (r->stage_time[i].comm_exposed_s[c] > total_s * (1 + 1e-9) + 1e-9)
        fail_msg("%s at %s: stage %d waits %.9g s for %s, all of it is %.9g s", s->file, ms_fidelity_words[r->fidelity],
                 i, r->stage_time[i].comm_exposed_s[c], ms_comm_words[c], total_s);
  }
  if (r->time.comm_exposed_s[MS_COMM_PP] > 2 * r->time.comm_total_s[MS_COMM_PP] * (1 + 1e-9) + 1e-9)
    fail_msg("%s at %s: messages of %.9g s are waited for %.9g s", s->file, ms_fidelity_words[r->fidelity],
             r->time.comm_total_s[MS_COMM_PP], r->time.comm_exposed_s[MS_COMM_PP]);
}

static void check_result(const MsScenario *s, const MsResult *r) {
  assert_true(isfinite(r->step_time_s) && r->step_time_s > 0);
  if (!(r->step_time_lower_s > 0 && r->step_time_lower_s <= r->step_time_s))
    fail_msg("%s at %s: %.12g s is no lower bound of %.12g s", s->file, ms_fidelity_words[r->fidelity],
             r->step_time_lower_s, r->step_time_s);
  assert_true(isfinite(r->tflops_per_gpu) && isfinite(r->tokens_per_s_per_gpu));
  assert_true(isnan(r->mfu) || (r->mfu > 0 && r->mfu < 1));
  assert_int_equal(r->feasible, r->why_infeasible == NULL);
  if (r->fidelity == MS_FIDELITY_BOUND) return;
  check_parts(s, r, &r->time);
  check_waits(s, r);
  for (int i = 0; i < r->stages; i++) check_parts(s, r, &r->stage_time[i]);
}

static gint64 picoseconds(double time_s) { return llround(time_s * MS_PS_PER_S); }

static void every_published_run_at_every_fidelity(void **state) {
  (void)state;
  g_autofree double *error = g_new(double, files->len);
  guint n = 0;
  double bias = 0;
  for (guint i = 0; i < files->len; i += 2) { /* the others: test_full_accuracy, test_full_predictions */
    g_autoptr(MsScenario) s = ms_test_scenario_file("%s", (char *)files->pdata[i]);
    g_autoptr(MsResult) bound = ms_test_simulate(s, MS_FIDELITY_BOUND);
    g_autoptr(MsResult) fast = ms_test_simulate(s, MS_FIDELITY_FAST);
    g_autoptr(MsResult) full = ms_test_simulate(s, MS_FIDELITY_FULL);
    check_result(s, bound), check_result(s, fast), check_result(s, full);
    if (picoseconds(bound->step_time_s) > picoseconds(full->step_time_s))
      fail_msg("%s: bound %.12g s above full %.12g s", s->file, bound->step_time_s, full->step_time_s);
    if (bound->step_time_lower_s != full->step_time_lower_s || bound->step_time_s != bound->step_time_lower_s)
      fail_msg("%s: two bounds", s->file);
    for (int m = 0; m < bound->stages; m++)
      assert_close(bound->memory->stage[m].peak_B, full->memory->stage[m].peak_B, 0);
    error[n] = fabs(fast->step_time_s / full->step_time_s - 1);
    bias += fast->step_time_s / full->step_time_s - 1;
    n++;
  }
  assert_true(n > 300);
  double median = ms_quantile(error, n, 0.5), p95 = ms_quantile(error, n, 0.95);
  print_message("%u runs; fast against full: median %.2f %%, p95 %.2f %%, worst %.2f %%, bias %+.2f %%\n", n,
                100 * median, 100 * p95, 100 * error[n - 1], 100 * bias / n);
  assert_true(median <= 0.005);
  assert_true(p95 <= 0.03);
}

/* --- twice the same -------------------------------------------------------------------------------------------- */
static char *json_of(const MsScenario *s, MsFidelity fidelity) {
  g_autoptr(MsResult) r = ms_test_simulate(s, fidelity);
  r->elapsed_s = 0;
  MsJsonOut *out = ms_json_out_new(0);
  ms_figures_write(&ms_result_figures, r, NULL, out);
  return ms_json_out_take(out);
}

static void the_same_bytes_twice(void **state) {
  (void)state;
  for (guint i = 0; i < files->len; i += 29) {
    g_autoptr(MsScenario) s = ms_test_scenario_file("%s", (char *)files->pdata[i]);
    g_autoptr(MsScenario) again = ms_test_scenario_file("%s", (char *)files->pdata[i]);
    for (int f = 0; f < 3; f++) {
      g_autofree char *a = json_of(s, (MsFidelity)f), *b = json_of(again, (MsFidelity)f);
      assert_string_equal(a, b);
    }
  }
}

/* --- both engines ---------------------------------------------------------------------------------------------- */
static gboolean same_times(const MsTrajectory *a, const MsTrajectory *b) {
  return a->n == b->n && a->makespan == b->makespan && !memcmp(a->start, b->start, a->n * sizeof *a->start) &&
         !memcmp(a->end, b->end, a->n * sizeof *a->end) &&
         !memcmp(a->bound_by, b->bound_by, a->n * sizeof *a->bound_by);
}

static void check_valid(const MsScenario *s, const MsGraph *graph, const MsTrajectory *t) {
  char why[192];
  if (!ms_test_trajectory_valid(graph, t, why, sizeof why)) fail_msg("%s: %s", s->file, why);
}

/* A step with real rows, run by both engines: equal where nothing is shared, never faster with sharing. */
static void check_engines(MsScenario *s, guint *equal, guint *slower) {
  g_auto(MsLowered) l = ms_test_lower(s);
  GError *error = NULL;
  char why[192];
  g_autoptr(MsCost) cost = ms_cost_new(s, l.layout, &error);
  if (!cost) fail_msg("%s", error->message);
  g_autoptr(MsSchedule) schedule =
      ms_schedule_new((int)s->layout.schedule, l.layout->pp, l.layout->microbatches, l.layout->vpp,
                      l.layout->group_size, s->options.ep_overlap, why, sizeof why);
  assert_non_null(schedule);
  MsProgram *program = ms_program_new(l.work, cost);
  g_autoptr(MsGraph) graph = ms_lower_full(program, schedule, NULL, NULL);
  g_autoptr(MsTrajectory) relax = ms_engine_relax(graph);
  g_autoptr(MsTrajectory) events = ms_engine_events(graph, NULL);
  check_valid(s, graph, events);
  if (ms_graph_shares(graph)) assert_true(events->makespan >= relax->makespan), ++*slower;
  else assert_true(same_times(relax, events));
  g_autoptr(MsGraph) free_graph = ms_test_unshared(graph, l.layout->pp, TRUE);
  assert_false(ms_graph_shares(free_graph));
  g_autoptr(MsTrajectory) free_relax = ms_engine_relax(free_graph);
  g_autoptr(MsTrajectory) free_events = ms_engine_events(free_graph, NULL);
  check_valid(s, free_graph, free_relax);
  if (!same_times(free_relax, free_events)) fail_msg("%s: engines differ where nothing is shared", s->file);
  assert_true(same_times(free_relax, relax) ||
              free_relax->makespan == relax->makespan); /* relax does not look at sharing */
  ++*equal;
  ms_program_free(program);
}

static void both_engines_on_published_runs(void **state) {
  (void)state;
  guint equal = 0, slower = 0;
  for (guint i = 0; i < files->len; i += 31) {
    g_autoptr(MsScenario) s = ms_test_scenario_file("%s", (char *)files->pdata[i]);
    check_engines(s, &equal, &slower);
  }
  print_message("%u steps where nothing is shared: both engines equal to the picosecond; %u with sharing\n", equal,
                slower);
  assert_true(equal > 15 && slower > 0);
}

/* --- what more of everything does ------------------------------------------------------------------------------ */
static void twice_the_batch_at_most_twice_the_time(void **state) {
  (void)state;
  for (guint i = 0; i < files->len; i += 37) {
    g_autoptr(MsScenario) s = ms_test_scenario_file("%s", (char *)files->pdata[i]);
    g_autoptr(MsResult) was = ms_test_simulate(s, MS_FIDELITY_FULL);
    s->training.global_batch_size *= 2; /* twice the microbatches: at most twice the time, and more than before */
    g_autoptr(MsResult) is = ms_test_simulate(s, MS_FIDELITY_FULL);
    assert_true(is->step_time_s > was->step_time_s);
    if (is->step_time_s > 2.02 * was->step_time_s)
      fail_msg("%s: twice the batch takes %.3f times as long", s->file, is->step_time_s / was->step_time_s);
  }
}

/* --- the requests that ship ------------------------------------------------------------------------------------ */
static void shipped_requests_find_something(void **state) {
  (void)state;
  static const char *const elsewhere[] = {
      "plan-mixtral-clusters.json" /* lists of machines: test_sweep */, "plan-deepseek-v3-gb200-4096.json",
      "plan-gpt3-175b-a100-4096.json" /* millions of layouts: bench/bench_plan.c */,
      "plan-deepseek-v3-gb200-4096-open.json" /* 4e14 layouts, stopped by hand: bench/bench_plan.c, test_tree */, NULL};
  g_autoptr(GPtrArray) scenarios = ms_test_files("scenarios");
  int n = 0;
  for (guint i = 0; i < scenarios->len; i++) {
    g_autofree char *name = g_path_get_basename(scenarios->pdata[i]);
    if (!g_str_has_prefix(name, "plan-") || g_strv_contains(elsewhere, name)) continue;
    GError *error = NULL;
    g_autoptr(MsRequest) request = ms_request_load(scenarios->pdata[i], &error);
    if (!request) fail_msg("%s", error->message);
    g_autoptr(MsPlan) plan = ms_plan(request, &(MsPlanOptions){.top = 3, .prune = TRUE, .threads = 2}, &error);
    if (!plan) fail_msg("%s: %s", name, error->message);
    assert_int_equal(plan->n_best, 3);
    print_message("%s: %.3f s, MFU %.1f %%, %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " simulated in %.1f s\n", name,
                  plan->best[0].result->step_time_s, 100 * plan->best[0].result->mfu, plan->simulated, plan->searched,
                  plan->elapsed_s);
    n++;
  }
  assert_true(n >= 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_published_run_at_every_fidelity), cmocka_unit_test(the_same_bytes_twice),
      cmocka_unit_test(both_engines_on_published_runs),        cmocka_unit_test(twice_the_batch_at_most_twice_the_time),
      cmocka_unit_test(shipped_requests_find_something),
  };
  return cmocka_run_group_tests(tests, find_files, free_files);
}
