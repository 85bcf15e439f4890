/* GOAL schedules: what is written of a step is read again and takes as long; bytes of collectives; bad schedules. */
#include "lib/close.h"
#include "lib/world.h"

#include "base/err.h"
#include "base/io.h"
#include "base/library.h"
#include "base/units.h"
#include "cluster/goal.h"
#include "logs/goal.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

#include <glib/gstdio.h>

#define SCENARIO(gpus, batch, layout)                                                                                \
  "{\"schema\": 1, \"model\": {\"base\": \"mixtral-8x7b\", \"num_layers\": 8}, \"hardware\": \"h100-sxm\", "         \
  "\"gpus\": " gpus ", \"training\": {\"seq_length\": 4096, \"global_batch_size\": " batch "}, \"layout\": {" layout \
  "}, \"options\": "                                                                                                 \
  "{\"overlap_grad_reduce\": true, \"overlap_p2p_comm_warmup_flush\": true}}"

static MsDetail *written(const char *scenario, char **text, MsScenario **s) {
  GError *error = NULL;
  MsDetail *detail = NULL;
  g_autofree char *file = g_build_filename(g_get_tmp_dir(), "moesim-goal-XXXXXX", NULL);
  int fd = g_mkstemp(file);
  assert_true(fd >= 0 && g_close(fd, NULL));
  *s = ms_test_scenario_of(scenario);
  g_autoptr(MsResult) r = ms_simulate(*s, MS_FIDELITY_FULL, &detail, &error);
  if (!r || !detail || !ms_goal_write(*s, detail, file, &error)) fail_msg("%s", error ? error->message : "no step");
  gsize length;
  *text = ms_read_file(file, 1 << 28, &length, &error);
  g_remove(file);
  return detail;
}

static MsGoalRun read_again(const char *text, const MsGoalLinks *links) {
  GError *error = NULL;
  MsGoalRun run;
  if (!ms_goal_run(text, "step.goal", links, &run, &error)) fail_msg("%s", error->message);
  return run;
}

static const MsGoalLinks free_links = {0, INFINITY, INFINITY, 0};

/* A pipeline without other groups whose stages do not wait for what they send: with the rate of its messages the
 * schedule takes as long as the step. */
static void a_pipeline_comes_back(void **state) {
  (void)state;
  char *text;
  MsScenario *s;
  g_autoptr(MsDetail) d = written(SCENARIO("4", "8", "\"pp\": 4, \"vpp\": 2, \"ep\": 1"), &text, &s);
  double slowest_Bps = INFINITY, bytes_B = 0;
  guint64 messages = 0;
  g_autoptr(MsStepPlan) plan = ms_step_plan_new(d, 0);
  for (guint32 i = 0; i < plan->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    if (plan->task[i].role != MS_ROLE_PASSES || plan->task[i].to == task->device) continue;
    double M = d->tag_op[task->tag]->message_B;
    slowest_Bps = MIN(slowest_Bps, M / ((double)plan->task[i].duration / MS_PS_PER_S)), messages++, bytes_B += M;
  }
  MsGoalRun run = read_again(text, &(MsGoalLinks){0, INFINITY, slowest_Bps, 0});
  assert_int_equal(run.ranks, 4);
  assert_int_equal(run.messages, messages + 4 * 2); /* the gradient norm: four ranks, two rounds of 4 bytes */
  assert_close(run.bytes_B, bytes_B + 4 * 2 * 4, 1e-12);
  assert_close(run.end_s, (double)plan->makespan / MS_PS_PER_S, 1e-4);
  MsGoalRun ideal = read_again(text, &free_links);
  assert_true(ideal.end_s < run.end_s && ideal.end_s >= ideal.calc_s);
  g_free(text), ms_scenario_free(s);
}

/* What each rank sends in rings, exchanges and rounds, added up apart from the writer. */
static double bytes_of(const MsScenario *s, const MsDetail *d, const MsStepPlan *plan) {
  const MsLayout *l = d->layout;
  double sum = 0;
  int places = l->world / l->pp;
  for (guint32 i = 0; i < plan->n; i++) {
    const MsTask *task = ms_graph_task(d->graph, i);
    const MsOp *op = d->tag_op[task->tag];
    if ((task->use != MS_USE_LINK0 && task->use != MS_USE_LINK1) || !op) continue;
    int z = op->group == MS_GROUP_NONE ? 1 : l->group[op->group].size;
    double level_B[3];
    ms_cost_level_B(s, l, op, level_B);
    if (plan->task[i].role == MS_ROLE_PASSES) sum += plan->task[i].to == task->device ? 0 : places * op->message_B;
    else if (op->group == MS_GROUP_WORLD) sum += places * ceil(log2(z)) * op->message_B;
    else if (z > 1) sum += places * (level_B[0] + level_B[1]);
  }
  return sum;
}

static void collectives_send_their_bytes(void **state) {
  (void)state;
  static const char *const layouts[] = {SCENARIO("8", "16", "\"tp\": 2, \"pp\": 2, \"ep\": 2"),
                                        SCENARIO("16", "16", "\"pp\": 2, \"vpp\": 2, \"ep\": 8"),
                                        SCENARIO("8", "16", "\"tp\": 2, \"cp\": 2, \"ep\": 4")};
  for (guint i = 0; i < G_N_ELEMENTS(layouts); i++) {
    char *text;
    MsScenario *s;
    g_autoptr(MsDetail) d = written(layouts[i], &text, &s);
    g_autoptr(MsStepPlan) plan = ms_step_plan_new(d, 0);
    MsGoalRun run = read_again(text, &free_links);
    double step_s = (double)plan->makespan / MS_PS_PER_S;
    assert_int_equal(run.ranks, s->gpus);
    assert_close(run.bytes_B, bytes_of(s, d, plan), 1e-6);      /* each message is of whole bytes */
    assert_true(run.end_s >= run.calc_s && run.end_s < step_s); /* links that take no time */
    MsGoalRun slow = read_again(text, &(MsGoalLinks){1e-5, 400e9, 40e9, 8});
    if (!(slow.end_s > run.end_s && slow.end_s < 1.5 * step_s)) fail_msg("%g s, the step %g s", slow.end_s, step_s);
    g_free(text), ms_scenario_free(s);
  }
}

/* 2 us of work, 1,000 bytes at 1 GB/s with 5 us, 3 us of work; two messages share the ports. */
static void time_by_hand(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double end_s;
  } cases[] = {
      {"num_ranks 2\nrank 0 {\n a: calc 2000\n b: send 1000b to 1 tag 7 cpu 1 // at once\n b requires a\n}\n"
       "rank 1 {\nl1: recv 1000b from 0 tag 7\nl2: calc 3000\nl2 requires l1\n}\n",
       2e-6 + 5e-6 + 1e-6 + 3e-6},
      {"num_ranks 3\nrank 0 {\nsend 1000b to 2 tag 1 nic 0\n}\nrank 1 {\nsend 3000b to 2\n}\n"
       "rank 2 {\nl1: recv 3000b from 1\nl2: recv 1000b from 0 tag 1\nl3: calc 1000\nl3 requires l1\nl3 requires "
       "l2\n}\n",
       5e-6 + 4e-6 + 1e-6},
      {"num_ranks 2\nrank 0 {\nl1: calc 500\nl2: calc 700\nl3: calc 100 cpu 1\nl3 irequires l2\n}\nrank 1 {\n}\n",
       1.2e-6}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    MsGoalRun run = read_again(cases[i].text, &(MsGoalLinks){5e-6, 1e9, 1e9, 1});
    assert_close(run.end_s, cases[i].end_s, 1e-12);
  }
}

static void bad_schedules_are_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"", "x:1: no num_ranks: this is no GOAL schedule"},
      {"rank 0 {\n}\n", "x:1: num_ranks must stand first"},
      {"num_ranks 0\n", "x:1: num_ranks must stand once, with 1 to 131072"},
      {"num_ranks 2\nrank 2 {\n}\n", "x:2: must be \"rank N {\" with N from 0 to 1"},
      {"num_ranks 1\nrank 0 {\n}\nrank 0 {\n}\n", "x:4: rank 0 stands twice"},
      {"num_ranks 1\nrank 0 {\n", "x:2: rank 0 is not closed by }"},
      {"num_ranks 1\ncalc 5\n", "x:2: \"calc\" outside of a rank"},
      {"num_ranks 1\nrank 0 {\nwork 5\n}\n", "x:3: \"work\" is no operation, must be calc, send or recv"},
      {"num_ranks 1\nrank 0 {\ncalc -5\n}\n", "x:3: calc takes whole nanoseconds"},
      {"num_ranks 2\nrank 0 {\nsend 5 to 1\n}\n", "x:3: bytes must stand as 100b"},
      {"num_ranks 2\nrank 0 {\nsend 5b from 1\n}\n", "x:3: must go on with \"to RANK\""},
      {"num_ranks 2\nrank 0 {\nsend 5b to 2\n}\n", "x:3: must name a rank from 0 to 1"},
      {"num_ranks 2\nrank 0 {\nsend 5b to 0\n}\n", "x:3: rank 0 talks to itself"},
      {"num_ranks 2\nrank 0 {\nsend 5b to 1 core 3\n}\n", "x:3: unknown word \"core\", must be tag, cpu or nic"},
      {"num_ranks 2\nrank 0 {\nsend 5b to 1 nic 1\n}\n", "x:3: nic takes a number, and ranks have one NIC, 0"},
      {"num_ranks 1\nrank 0 {\na: calc 5\na: calc 5\n}\n", "x:4: label a stands twice in rank 0"},
      {"num_ranks 1\nrank 0 {\na: calc 5\na requires b\n}\n", "x:4: rank 0 has no label b above"},
      {"num_ranks 1\nrank 0 {\na: calc 5\nb: calc 5\na requires b\nb requires a\n}\n",
       "x:3: never begins: 2 operations wait in a circle or for messages that nobody sends"},
      {"num_ranks 2\nrank 0 {\nrecv 5b from 1\n}\nrank 1 {\n}\n",
       "x:3: never ends: 1 operations wait in a circle or for messages that nobody sends"},
      {"num_ranks 2\nrank 0 {\nsend 5b to 1\n}\nrank 1 {\n}\n",
       "x:3: rank 0 sends rank 1 more messages of tag 0 than it receives"},
      {"num_ranks 2\nrank 0 {\nsend 5b to 1\n}\nrank 1 {\nrecv 6b from 0\n}\n",
       "x:6: 6 bytes are awaited, line 3 sends 5"}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    MsGoalRun run;
    if (ms_goal_run(cases[i][0], "x", &free_links, &run, &error)) fail_msg("accepted: %s", cases[i][0]);
    assert_string_equal(error->message, cases[i][1]);
    assert_int_equal(error->code, MS_ERROR_INPUT);
  }
}

/* Stopped work leaves neither a file nor a part of one. */
static void stopped_leaves_nothing(void **state) {
  (void)state;
  static const volatile int stop = 1;
  GError *error = NULL;
  MsDetail *detail = NULL;
  g_autofree char *folder = g_dir_make_tmp("moesim-goal-XXXXXX", NULL), *file = g_build_filename(folder, "step", NULL);
  g_autoptr(MsScenario) s = ms_test_scenario_of(SCENARIO("4", "8", "\"pp\": 4"));
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, &detail, &error);
  g_autoptr(MsDetail) owned = detail;
  const int rank = 0;
  const MsKinetoOptions options = {&rank, 1, 2, 0};
  guint64 left_out;
  assert_non_null(r);
  for (int kineto = 0; kineto < 2; kineto++) {
    ms_stop_use(&stop);
    gboolean whole = kineto ? ms_report_trace_kineto(s, detail, &options, file, &left_out, &error)
                            : ms_goal_write(s, detail, file, &error);
    ms_stop_use(NULL);
    assert_false(whole);
    assert_int_equal(error->code, MS_ERROR_NOTHING);
    g_clear_error(&error);
  }
  assert_int_equal(g_rmdir(folder), 0); /* it is empty */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_pipeline_comes_back),
                                     cmocka_unit_test(collectives_send_their_bytes), cmocka_unit_test(time_by_hand),
                                     cmocka_unit_test(stopped_leaves_nothing),
                                     cmocka_unit_test(bad_schedules_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
