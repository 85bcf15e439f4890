/* tests/unit/test_full_own_trace.c - end to end with this CPU as the machine: two ranks run a step and write what they
 * did, a trace of it is imported, a machine anchored by it, and another layout predicted and run. No figure is a
 * promise of this machine: the machine that is anchored is made five times as slow as the run was. */
#include "lib/data.h"
#include "lib/launcher.h"
#include "lib/close.h"

#include "base/json.h"
#include "blas/blas.h"
#include "local/calibrate.h"
#include "logs/trace_times.h"
#include "study/anchor.h"
#include "study/profile.h"

#include <math.h>
#include <string.h>

enum { STEPS = 4 };
static char *program;

static char *write_scenario(const char *name, const char *hardware, const char *layout) {
  g_autofree char *text = g_strdup_printf(
      "{\"model\": {\"name\": \"own\", \"num_layers\": 4, \"hidden_size\": 256, \"ffn_hidden_size\": 768, "
      "\"num_attention_heads\": 4, \"vocab_size\": 512}, \"hardware\": \"%s\", \"gpus\": 2, \"training\": "
      "{\"seq_length\": 256, \"micro_batch_size\": 1, \"global_batch_size\": 4, \"precision\": \"bf16\"}, "
      "\"layout\": {%s}, \"options\": {\"overlap_grad_reduce\": false, \"overlap_param_gather\": false}}",
      hardware, layout);
  ms_test_data_write(name, text);
  return ms_test_data_path(name);
}

/* The machine that scenarios stand on, slower by `slow` in all classes. */
static char *write_machine(const char *name, double slow) {
  const MsMachine machine = {.cpu = (char *)"CPU", .cores = 2, .memory_B = 16e9, .blas = (char *)"any"};
  g_autofree char *bare = ms_local_bare_profile(&machine),
                  *text = g_strdup_printf(
                      "{\"base\": \"bare.json\", \"name\": \"cpu\", \"peak_bf16_flops\": 5e10, \"peak_fp32_flops\": "
                      "5e10, \"hbm_Bps\": 2e10, \"scaleup_Bps\": 2e9, \"nic_Bps\": 2e9, \"anchor\": {\"gemm\": %g, "
                      "\"grouped_gemm\": %g, \"attention\": %g, \"memory_bound\": %g, \"communication\": %g, "
                      "\"host\": 1}}",
                      slow, slow, slow, slow, slow);
  ms_test_data_write("bare.json", bare);
  ms_test_data_write(name, text);
  return ms_test_data_path(name);
}

/* Runs it on two ranks. Calls of all rows of rank 0. */
static double run(const char *scenario, const char *trace) {
  g_autofree char *steps = g_strdup_printf("%d", STEPS), *out = NULL, *err = NULL;
  const char *argv[] = {"mpirun",
                        "--allow-run-as-root",
                        "--oversubscribe",
                        "-n",
                        "2",
                        program,
                        "exec",
                        "--json",
                        "--steps",
                        steps,
                        "--trace",
                        trace,
                        scenario,
                        NULL};
  GError *error = NULL;
  g_autoptr(GSubprocess) child =
      g_subprocess_newv(argv, G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE, &error);
  if (!child || !g_subprocess_communicate_utf8(child, NULL, NULL, &out, &err, &error)) fail_msg("%s", error->message);
  if (!g_subprocess_get_successful(child)) fail_msg("%s", err);
  g_autoptr(MsJson) doc = ms_json_parse(out, -1, "exec", &error);
  assert_null(error);
  JsonArray *rows = json_object_get_array_member(json_node_get_object(ms_json_root(doc)), "rows");
  double calls = 0;
  for (guint i = 0; i < json_array_get_length(rows); i++)
    calls += json_object_get_double_member(json_array_get_object_element(rows, i), "calls");
  return calls;
}

static char *of_rank(const char *trace, int rank) {
  g_autofree char *stem = g_strndup(trace, strlen(trace) - strlen(".json"));
  return g_strdup_printf("%s-rank%d.json", stem, rank);
}

/* Every row of the run is a kernel of a known class, none beside another, all within the steps. */
static void check_trace(const char *file, int rank, double calls) {
  GError *error = NULL;
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(&error);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsTrace) trace = ms_trace_load(file, -1, table, notes, &error);
  if (!trace) fail_msg("%s", error->message);
  assert_int_equal(notes->len, 0);
  assert_int_equal(trace->rank, rank);
  assert_int_equal(trace->ranks, 2);
  if (calls > 0) assert_int_equal(trace->kernels->len, (guint)calls);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, table);
  assert_int_equal(t->steps, STEPS);
  assert_true(t->known == 1 && t->n_strange == 0);
  assert_true(fabs(t->busy_s - t->time_s) <= 1e-6 * t->time_s); /* one behind the other */
  double steps_s = 0;
  for (guint i = 0; i < trace->steps->len; i++) {
    const MsTraceStep *s = &g_array_index(trace->steps, MsTraceStep, i);
    steps_s += 1e-9 * (double)(s->end_ns - s->start_ns);
  }
  double rows_s = t->time_s * t->steps;
  print_message("rank %d: %u rows take %.1f %% of their steps\n", rank, trace->kernels->len, 100 * rows_s / steps_s);
  assert_true(rows_s > 0 && rows_s <= 1.001 * steps_s);
}

/* Seconds of a step in rows that compute, predicted or as they ran. What messages take beside other programs is mostly
 * the waiting for a rank that is not running. */
static double computing_s(const char *file) {
  static const char *const families[] = {"gemm", "grouped_gemm", "attention", "memory_bound", NULL};
  GError *error = NULL;
  g_autoptr(MsKernelTable) table = ms_kernel_table_load(&error);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsProfile) p = ms_profile_load(file, -1, 0, table, notes, &error);
  if (!p) fail_msg("%s", error->message);
  double sum = 0;
  ms_profile_fold(p, table);
  for (int i = 0; i < p->n_parts; i++)
    if (g_strv_contains(families, p->part[i].word)) sum += p->part[i].time_s;
  assert_true(sum > 0);
  return sum;
}

#define SLOW 5 /* times, of what is made up over what was measured */

static void measured_anchored_predicted(void **state) {
  (void)state;
  if (!ms_test_launcher() || !ms_blas_open(NULL, NULL)) skip();
  GError *error = NULL;
  g_autofree char *bare = write_machine("machine.json", 1),
                  *pipeline = write_scenario("pp2.json", "machine.json", "\"pp\": 2"),
                  *tensor = write_scenario("tp2.json", "machine.json", "\"tp\": 2"),
                  *anchored = write_scenario("tp2-mine.json", "mine.json", "\"tp\": 2"),
                  *trace = ms_test_data_path("pp2-trace.json"), *other = ms_test_data_path("tp2-trace.json"),
                  *first = of_rank(trace, 0), *second = of_rank(trace, 1), *third = of_rank(other, 0);
  double calls = run(pipeline, trace), other_calls = run(tensor, other);
  check_trace(first, 0, calls);
  check_trace(second, 1, 0);
  check_trace(third, 0, other_calls);
  g_autofree char *slow = write_machine("machine.json", SLOW * computing_s(first) / computing_s(pipeline));
  print_message("pp2 is predicted to compute %.3f times as long\n", computing_s(pipeline) / computing_s(first));
  assert_true(fabs(log(computing_s(pipeline) / computing_s(first) / SLOW)) < 0.25); /* launches stay as they are */
  const char *const files[] = {pipeline, first, NULL};
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsAnchored) a = ms_anchor(&(MsAnchorOptions){files, NULL, "mine", "2026-11-23", 1}, notes, &error);
  if (!a) fail_msg("%s", error->message);
  assert_int_equal(a->traces, 1);
  assert_true(a->learned[MS_ANCHOR_GEMM].profiles == 1 && a->learned[MS_ANCHOR_GEMM].factor < 0.9);
  ms_test_data_write("mine.json", a->text);
  double plain = computing_s(tensor) / computing_s(third), after = computing_s(anchored) / computing_s(third);
  print_message("tp2 computes: %.2f of what was predicted before, %.2f anchored on pp2\n", 1 / plain, 1 / after);
  assert_true(fabs(log(after)) < fabs(log(plain)));
}

int main(void) {
  g_autofree char *self = g_file_read_link("/proc/self/exe", NULL), *tests = g_path_get_dirname(self),
                  *build = g_path_get_dirname(tests);
  program = g_build_filename(build, "moesim", NULL);
  const struct CMUnitTest all[] = {cmocka_unit_test(measured_anchored_predicted)};
  int failed = cmocka_run_group_tests(all, ms_test_data_setup, ms_test_data_teardown);
  g_free(program);
  return failed;
}
