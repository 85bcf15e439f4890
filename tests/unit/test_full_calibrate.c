/* tests/unit/test_full_calibrate.c - the real thing once, small: steps run by the executor, a profile that the
 * simulator takes, a job of two ranks. No figure is looked at: how long things take is nobody's promise here. */
#include "lib/close.h"
#include "lib/launcher.h"

#include "local/calibrate.h"
#include "sim/simulate.h"

#include <glib/gstdio.h>
#include <string.h>

static void a_profile_from_real_steps(void **state) {
  (void)state;
  g_autoptr(GError) error = NULL;
  MsCalibrateOptions options = {.steps = 6, .passes = 2, .program = "", .command = "test", .date = "2026-11-21"};
  g_autoptr(MsCalibration) c = ms_calibrate(&options, &error);
  if (!c && !ms_blas_open(NULL, NULL)) skip(); /* no BLAS here */
  if (!c) fail_msg("%s", error->message);
  assert_true(c->steps > 0 && c->rows > 20 && c->no_messages && c->row_repeat.n > 0);
  g_autofree char *folder = g_dir_make_tmp("moesim-calibrate-XXXXXX", NULL),
                  *file = g_build_filename(folder, "local.json", NULL);
  assert_true(g_file_set_contents(file, c->profile->text, -1, NULL));
  g_autofree char *quoted = g_strdup_printf("\"%s\"", file);
  int n;
  const MsLocalStep *step = ms_local_check_steps(&n);
  g_autoptr(MsScenario) s = ms_local_scenario(&step[0], quoted, &error);
  g_autoptr(MsResult) r = s ? ms_simulate(s, MS_FIDELITY_FULL, NULL, &error) : NULL;
  if (!r) fail_msg("%s", error->message);
  assert_true(r->step_time_s > 1e-4 && r->step_time_s < 100);
  g_remove(file), g_rmdir(folder);
}

static void two_ranks_leave_results(void **state) {
  (void)state;
  const char *why;
  g_autofree char *self = g_file_read_link("/proc/self/exe", NULL), *tests = g_path_get_dirname(self),
                  *build = g_path_get_dirname(tests), *program = g_build_filename(build, "moesim", NULL);
  if (!ms_test_launcher() || !ms_job_possible(&why) || !ms_blas_open(NULL, NULL)) skip();
  g_autoptr(MsMachine) machine = ms_machine_new(ms_blas_open(NULL, NULL));
  g_autofree char *hardware = ms_local_bare_profile(machine);
  const MsLocalStep two = {.name = "two",
                           .layers = 2,
                           .dense_layers = 2,
                           .hidden = 128,
                           .heads = 2,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .ffn = 256,
                           .vocab = 512,
                           .seq = 64,
                           .micro_batch = 1,
                           .microbatches = 2,
                           .tp = 1,
                           .cp = 1,
                           .pp = 2,
                           .vpp = 1,
                           .ep = 1,
                           .dp = 1,
                           .schedule = "1f1b"};
  g_autofree char *text = ms_local_scenario_text(&two, hardware, NULL);
  g_autoptr(GError) error = NULL;
  g_autoptr(MsStepRun) run = ms_job_step(program, text, 2, &error);
  if (!run) fail_msg("%s", error->message);
  assert_int_equal(run->ranks, 2);
  assert_true(run->rows->len > 20 && run->step_s > 0 && run->kept_B > 0);
  MsLocalStep halves = two; /* messages go over the ranks of TP */
  halves.tp = 2, halves.pp = 1;
  double jitter;
  g_autofree char *with_tp = ms_local_scenario_text(&halves, hardware, NULL);
  g_autoptr(GArray) messages = ms_job_messages(program, with_tp, 2, TRUE, &jitter, &error);
  if (!messages) fail_msg("%s", error->message);
  assert_true(messages->len > 20 && jitter > 0);
  assert_null(ms_job_step(program, "{}", 2, &error)); /* what a rank says comes back */
  assert_non_null(strstr(error->message, "required key is missing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_profile_from_real_steps),
                                     cmocka_unit_test(two_ranks_leave_results)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
