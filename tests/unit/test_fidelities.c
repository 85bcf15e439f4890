/* The three fidelities on random scenarios over every key: `bound` is above neither of the others, `fast` is near
 * `full`, and a faster machine is not slower. The draws are fixed; with MOESIM_SOAK_S they go on for so many seconds
 * from the seed MOESIM_SEED. */
#include "lib/close.h"
#include "lib/draw.h"
#include "lib/plan_requests.h"
#include "lib/tier.h"

#include "base/stats.h"
#include "base/units.h"
#include "sim/graph.h"
#include "sim/simulate.h"

enum { MOST_TASKS = 60000 };

static gboolean small_enough(const MsScenario *s) {
  char why[192];
  g_autoptr(MsLayout) layout = ms_layout_new_or_error(s, NULL);
  g_autoptr(MsWork) work = layout ? ms_work_new(s, layout, NULL) : NULL;
  g_autoptr(MsCost) cost = work ? ms_cost_new(s, layout, NULL) : NULL;
  g_autoptr(MsProgram) program = cost ? ms_program_new(work, cost) : NULL;
  g_autoptr(MsSchedule) schedule = program ? ms_program_schedule(program, why, sizeof why) : NULL;
  return schedule && ms_program_tasks(program, schedule) <= MOST_TASKS;
}

static void wrong(const MsScenario *s, const char *what, double is_s, double than_s) {
  g_autofree char *text = ms_scenario_text(s);
  fail_msg("seed %" G_GUINT64_FORMAT ": %s: %.12g s against %.12g s\n%s", ms_soak_seed(24), what, is_s, than_s, text);
}

/* How far `fast` is off, where the scenario runs. */
static void compare(const MsScenario *s, GArray *off) {
  g_autoptr(MsResult) bound = ms_simulate(s, MS_FIDELITY_BOUND, NULL, NULL);
  if (!bound || !small_enough(s)) return;
  g_autoptr(MsResult) fast = ms_simulate(s, MS_FIDELITY_FAST, NULL, NULL);
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, NULL, NULL);
  assert_true(fast && full);
  if (bound->step_time_s > full->step_time_s) wrong(s, "bound above full", bound->step_time_s, full->step_time_s);
  if (bound->step_time_s > fast->step_time_s) wrong(s, "bound above fast", bound->step_time_s, fast->step_time_s);
  for (int i = 0; i < full->stages; i++)
    if (fast->memory->stage[i].peak_B != full->memory->stage[i].peak_B) wrong(s, "memory differs", 0, 0);
  double error = fabs(fast->step_time_s / full->step_time_s - 1);
  g_array_append_val(off, error);
}

static void fast_is_near_full(void **state) {
  (void)state;
  g_autoptr(GRand) rand = ms_soak_rand(24);
  g_autoptr(GArray) off = g_array_new(FALSE, FALSE, sizeof(double));
  int draws = 0;
  for (gint64 until = ms_soak_until(); ms_soak_goes_on(until, draws, ms_by_tier(3000, 20000)); draws++) {
    g_autoptr(MsScenario) s = ms_test_draw(rand, FALSE);
    if (ms_model_finish(s->model, NULL, "", NULL)) compare(s, off);
  }
  double *error = (double *)(void *)off->data;
  guint n = off->len, far = 0;
  for (guint i = 0; i < n; i++) far += error[i] > 0.1;
  print_message("%u of %d draws run; fast against full: median %.2f %%, p95 %.2f %%, worst %.1f %%\n", n, draws,
                100 * ms_quantile(error, n, 0.5), 100 * ms_quantile(error, n, 0.95), 100 * ms_quantile(error, n, 1));
  assert_true(n >= 100);
  assert_true(ms_quantile(error, n, 0.5) <= 0.02);
  assert_true(far <= 0.01 * n);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fast_is_near_full)};
  return cmocka_run_group_tests_name("fidelities", tests, NULL, NULL);
}
