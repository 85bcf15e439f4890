/* tests/unit/test_serial.c - a machine whose cores move the messages: rows of a rank follow one another, nothing hides.
 */
#include "lib/data.h"
#include "lib/sound.h"
#include "lib/world.h"

#include "work/work.h"

#include <glib.h>

/* The scenario of lib/data.h, no host times, on a machine that is serial or not. */
static MsScenario *scenario_on(gboolean serial, int pp) {
  g_autofree char *box = g_strdup_printf(
      "{\"base\": \"box\", \"serial\": %s, \"kernel_launch_s\": 0, \"graph_launch_s\": 0, \"sync_s\": 0}",
      serial ? "true" : "false");
  g_autoptr(GString) text = g_string_new(ms_test_scenario);
  g_string_replace(text, "\"box\"", box, 1);
  g_string_replace(text, "\"pp\": 2", pp == 1 ? "\"pp\": 1" : "\"pp\": 2", 1);
  g_string_replace(text, ", \"pipeline_layout\": \"Ettt|tttL\"", "", 1);
  g_string_replace(text, "\"num_layers\": 6", "\"num_layers\": 6, \"mtp_num_layers\": 0", 1);
  return ms_test_scenario_of(text->str);
}

static void one_stage_is_the_sum_of_its_rows(void **state) {
  (void)state;
  g_autoptr(MsScenario) s = scenario_on(TRUE, 1);
  GError *error = NULL;
  MsDetail *detail = NULL;
  g_autoptr(MsResult) r = ms_simulate(s, MS_FIDELITY_FULL, &detail, &error);
  if (!r) fail_msg("%s", error->message);
  MsTime sum = 0, messages = 0;
  for (guint32 i = 0; i < ms_graph_count(detail->graph); i++) {
    const MsTask *task = ms_graph_task(detail->graph, i);
    const MsOp *op = detail->tag_op[task->tag];
    sum += task->duration;
    if (op && ms_op_families[op->kind] == MS_FAMILY_COMM) messages += task->duration;
    if (task->duration > 0) assert_int_equal(task->stream, MS_STREAM_COMPUTE);
  }
  assert_true(sum == detail->trajectory->makespan);
  assert_true(messages > 0);
  assert_close(r->time.exposed_comm_s, (double)messages * 1e-12, 1e-9); /* nothing is hidden */
  ms_detail_free(detail);
}

static void nothing_overlaps(void **state) {
  (void)state;
  for (int pp = 1; pp <= 2; pp++) {
    g_autoptr(MsScenario) one = scenario_on(TRUE, pp), other = scenario_on(FALSE, pp);
    g_autoptr(MsResult) serial = sound(one), overlapped = sound(other);
    assert_true(serial->step_time_s > overlapped->step_time_s * 1.0001);
    assert_true(serial->step_time_lower_s <= serial->step_time_s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_stage_is_the_sum_of_its_rows),
                                     cmocka_unit_test(nothing_overlaps)};
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
