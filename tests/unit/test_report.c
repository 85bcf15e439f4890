/* Reports on hand-made results: nothing here is simulated, so every expected figure can be read off the lines above it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/units.h"
#include "report/report.h"

/* --- a step of two stages, two microbatches, one task per slot ------------------------------------------------- */
enum { STAGES = 2, SLOTS = 4, TASKS = STAGES * SLOTS };
static const char *tag_name[] = {"forward \"quoted\" \\ \t", "backward"};
static const MsOp ops[] = {{.kind = MS_OP_GEMM, .pass = MS_PASS_FORWARD, .m = 3, .n = 5, .k = 7, .flop = 210},
                           {.kind = MS_OP_DISPATCH, .pass = MS_PASS_DGRAD, .group = MS_GROUP_EP, .message_B = 1e10}};
static const MsOp *tag_op[] = {&ops[0], &ops[1]};

typedef struct {
  MsDetail detail;
  guint32 slot_task[STAGES * (SLOTS + 1)], slot_base[STAGES + 1];
} Step;

static void step_init(Step *step) {
  char why[128];
  *step = (Step){0};
  MsDetail *d = &step->detail;
  d->schedule = ms_schedule_new(MS_SCHED_1F1B, STAGES, 2, 1, 0, FALSE, why, sizeof why);
  assert_non_null(d->schedule);
  d->graph = ms_graph_new(STAGES, MS_N_STREAMS);
  d->trajectory = g_new0(MsTrajectory, 1);
  *d->trajectory = (MsTrajectory){TASKS, g_new0(MsTime, TASKS), g_new0(MsTime, TASKS), g_new0(gint32, TASKS), 0, TASKS};
  for (guint32 i = 0; i < TASKS; i++) {
    guint32 stage = i / SLOTS, slot = i % SLOTS;
    MsTask task = {.device = stage,
                   .stream = MS_STREAM_COMPUTE,
                   .duration = 1500000,
                   .tag = d->schedule->slot[stage][slot].kind == MS_SLOT_F ? 0 : 1};
    assert_int_equal(ms_graph_add(d->graph, &task, NULL, 0), i);
    d->trajectory->start[i] = (MsTime)slot * 2000000 + 1234567890123;
    d->trajectory->end[i] = d->trajectory->start[i] + 1500000;
    step->slot_task[stage * (SLOTS + 1) + slot] = i;
  }
  for (guint32 s = 0; s < STAGES; s++) step->slot_task[s * (SLOTS + 1) + SLOTS] = (s + 1) * SLOTS;
  for (guint32 s = 0; s <= STAGES; s++) step->slot_base[s] = s * (SLOTS + 1);
  d->trajectory->makespan = d->trajectory->end[SLOTS - 1];
  d->slot_task = step->slot_task;
  d->slot_base = step->slot_base;
  d->n_tags = 2;
  d->tag_op = tag_op;
  d->tag_name = tag_name;
}

static void step_clear(Step *step) {
  ms_graph_free(step->detail.graph);
  ms_trajectory_free(step->detail.trajectory);
  ms_schedule_free(step->detail.schedule);
}

static char *scratch(const char *name) {
  static char *folder;
  if (!folder) folder = g_dir_make_tmp("moesim-report-XXXXXX", NULL);
  return name ? g_build_filename(folder, name, NULL) : folder;
}

static MsJson *parse_trace(const MsDetail *detail) {
  GError *error = NULL;
  g_autofree char *file = scratch("trace.json");
  assert_true(ms_report_trace(detail, file, &error));
  MsJson *doc = ms_json_load(file, &error);
  if (!doc) fail_msg("%s", error->message);
  unlink(file);
  return doc;
}

static void trace_is_strict_json_with_every_task(void **state) {
  (void)state;
  Step step;
  step_init(&step);
  g_autoptr(MsJson) doc = parse_trace(&step.detail);
  JsonArray *events = json_object_get_array_member(json_node_get_object(ms_json_root(doc)), "traceEvents");
  int tasks = 0, passes = 0, processes = 0;
  for (guint i = 0; i < json_array_get_length(events); i++) {
    JsonObject *e = json_array_get_object_element(events, i);
    const char *ph = json_object_get_string_member(e, "ph");
    if (strcmp(ph, "X") == 0) *(json_object_get_int_member(e, "tid") == 0 ? &passes : &tasks) += 1;
    if (strcmp(json_object_get_string_member(e, "name"), "process_name") == 0) processes++;
  }
  assert_int_equal(tasks, TASKS);
  assert_int_equal(passes, TASKS);
  assert_int_equal(processes, STAGES);
  step_clear(&step);
}

static void trace_keeps_picoseconds_names_and_microbatch(void **state) {
  (void)state;
  Step step;
  step_init(&step);
  g_autoptr(MsJson) doc = parse_trace(&step.detail);
  JsonArray *events = json_object_get_array_member(json_node_get_object(ms_json_root(doc)), "traceEvents");
  JsonObject *first = json_array_get_object_element(events, 0), *args = json_object_get_object_member(first, "args");
  assert_true(json_object_get_double_member(first, "ts") == 1234567.890123); /* 1234567890123 ps, exactly */
  assert_true(json_object_get_double_member(first, "dur") == 1.5);
  assert_string_equal(json_object_get_string_member(first, "name"), tag_name[0]);
  assert_int_equal(json_object_get_int_member(args, "mb"), 0);
  assert_true(json_object_get_double_member(args, "flop") == 210);
  JsonObject *last = json_array_get_object_element(events, TASKS - 1);
  assert_int_equal(json_object_get_int_member(json_object_get_object_member(last, "args"), "mb"), 1);
  assert_string_equal(json_object_get_string_member(json_object_get_object_member(last, "args"), "group"), "ep");
  step_clear(&step);
}

static void trace_failure_is_an_environment_error_and_leaves_nothing(void **state) {
  (void)state;
  Step step;
  step_init(&step);
  const char *const bad[] = {"/nonexistent/folder/trace.json", "/dev/full"};
  for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    assert_false(ms_report_trace(&step.detail, bad[i], &error));
    assert_true(g_error_matches(error, MS_ERROR, MS_ERROR_ENV));
  }
  g_autofree char *file = scratch("trace.json");
  assert_true(ms_report_trace(&step.detail, file, NULL));
  unlink(file);
  assert_int_equal(rmdir(scratch(NULL)), 0); /* nothing else was left in it */
  step_clear(&step);
}

/* --- one result ------------------------------------------------------------------------------------------------ */
static MsStageMemory stage_memory = {.parameters_B = 2 * MS_GIB,
                                     .gradients_B = 3 * MS_GIB,
                                     .optimizer_B = 4 * MS_GIB,
                                     .activations_B = 20 * MS_GIB,
                                     .transient_B = 1 * MS_GIB,
                                     .peak_B = 30 * MS_GIB,
                                     .device_B = 32 * MS_GIB,
                                     .reserved_B = 2 * MS_GIB,
                                     .peak_where = "mlp backward"};
static MsMemory memory = {1, &stage_memory, 0};

static MsResult sample(void) {
  MsResult r = {.name = (char *)"sample",
                .fidelity = MS_FIDELITY_FULL,
                .feasible = TRUE,
                .step_time_s = 2,
                .step_time_lower_s = 1.5,
                .mfu = 0.4,
                .stages = 1,
                .memory = &memory,
                .capacity_B = 64 * MS_GIB,
                .dp = 8,
                .edp = 2,
                .microbatches = 16};
  r.time = (MsTimeParts){
      .compute_s = 1, .exposed_comm_s = 0.5, .bubble_s = 0.3, .host_s = 0.1, .optimizer_s = 0.06, .other_s = 0.04};
  r.time.comm_total_s[MS_COMM_EP] = 0.8;
  r.time.comm_exposed_s[MS_COMM_EP] = 0.2;
  return r;
}

static void table_parts_add_up_to_the_step(void **state) {
  (void)state;
  MsResult r = sample();
  g_autofree char *text = ms_report_result(NULL, &r, NULL, MS_REPORT_EXPLAIN);
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  double share = 0, sum = 0;
  int parts = 0;
  static const char *const part[] = {
      "  compute ", "  exposed communication ", "  pipeline bubble ", "  host ", "  optimizer ", "  other "};
  for (int i = 0; line[i]; i++) {
    const char *percent = strrchr(line[i], '%');
    if (!percent) continue;
    double value = g_ascii_strtod(g_strrstr_len(line[i], percent - line[i] - 1, " ") + 1, NULL);
    for (guint k = 0; k < G_N_ELEMENTS(part); k++)
      if (g_str_has_prefix(line[i], part[k])) share += value, parts++;
    if (g_str_has_prefix(line[i], "  sum ")) sum = value;
  }
  assert_int_equal(parts, (int)G_N_ELEMENTS(part));
  assert_true(fabs(share - 100) < 0.31); /* six roundings of 0.05 */
  assert_true(sum == 100);
  assert_non_null(strstr(text, "2.00 s"));
  assert_non_null(strstr(text, "75.0 %"));       /* of EP communication is hidden */
  assert_non_null(strstr(text, "mlp backward")); /* where the peak is */
  assert_non_null(strstr(text, "mostly activations"));
  assert_null(strchr(text, '\033')); /* no colour unless asked for */
}

static void infeasible_result_says_why(void **state) {
  (void)state;
  MsResult r = sample();
  r.feasible = FALSE;
  r.why_infeasible = (char *)"stage 0 needs 99 GiB of 64 GiB";
  g_autofree char *text = ms_report_result(NULL, &r, NULL, 0);
  assert_non_null(strstr(text, r.why_infeasible));
}

static void result_json_has_its_documented_keys(void **state) {
  (void)state;
  static const char *const key[] = {"name",
                                    "feasible",
                                    "why_infeasible",
                                    "step_time_s",
                                    "tokens_per_s_per_gpu",
                                    "model_flop_per_token",
                                    "tflops_per_gpu",
                                    "mfu",
                                    "bound",
                                    "time",
                                    "memory",
                                    "layout",
                                    "events",
                                    "fidelity",
                                    "elapsed_s"};
  MsResult r = sample();
  r.tokens_per_s_per_gpu = NAN; /* unknown must not break the file */
  MsJsonOut *out = ms_json_out_new(0);
  ms_figures_write(&ms_run_figures, &r, NULL, out);
  g_autofree char *text = ms_json_out_take(out);
  g_autoptr(GError) error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "result", &error);
  if (!doc) fail_msg("%s", error->message);
  JsonObject *root = json_node_get_object(ms_json_root(doc)), *time = json_object_get_object_member(root, "time");
  for (guint i = 0; i < G_N_ELEMENTS(key); i++) assert_true(json_object_has_member(root, key[i]));
  assert_true(json_object_get_null_member(root, "tokens_per_s_per_gpu"));
  JsonObject *ep = json_object_get_object_member(json_object_get_object_member(time, "comm"), "ep");
  assert_true(json_object_get_double_member(ep, "exposed_s") == 0.2);
  JsonObject *mem = json_object_get_object_member(root, "memory");
  assert_true(json_object_get_double_member(mem, "peak_B") == 30 * MS_GIB);
  assert_int_equal(json_object_get_int_member(json_object_get_object_member(root, "layout"), "edp"), 2);
}

/* --- errors over several runs, pictures ------------------------------------------------------------------------ */
static void error_summary_by_hand(void **state) {
  (void)state;
  const double error[] = {0.1, -0.2, 0.3, -0.4}, weight[] = {1, 1, 1, 0};
  MsErrorSummary s = ms_error_summary(error, weight, 4);
  assert_int_equal(s.n, 4);
  assert_true(fabs(s.mape - 0.25) < 1e-12);
  assert_true(fabs(s.bias + 0.05) < 1e-12);
  assert_true(s.worst == -0.4);
  assert_true(fabs(s.median_ape - 0.25) < 1e-12);
  assert_true(fabs(s.p90_ape - 0.37) < 1e-12); /* type 7: position 0.9 * 3 */
  assert_true(fabs(s.weighted_mape - 0.2) < 1e-12);
  assert_true(isnan(ms_error_summary(NULL, NULL, 0).mape));
}

/* Rows that begin with "    stage " in the pipeline's part. */
static GPtrArray *pipeline_rows(char **lines) {
  GPtrArray *rows = g_ptr_array_new();
  gboolean inside = FALSE;
  for (int i = 0; lines[i]; i++) {
    if (g_str_has_prefix(lines[i], "pipeline")) inside = TRUE;
    if (!*lines[i]) inside = FALSE;
    if (inside && g_str_has_prefix(lines[i], "    stage ")) g_ptr_array_add(rows, lines[i] + 13);
  }
  return rows;
}

/* A run in characters: no line is too wide, every stage has a row as long as the others; the first pass of the first
 * stage is at the left, the last stage has nothing to do yet, and at the right it is the other way round. */
static void terminal_shows_fill_and_drain(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsScenario) s = ms_scenario_load("scenarios/run-llama3-70b-h100-64.json", &error);
  g_autoptr(MsDetail) detail = NULL;
  g_autoptr(MsResult) r = s ? ms_simulate(s, MS_FIDELITY_FULL, &detail, &error) : NULL;
  if (!r) fail_msg("%s", error->message);
  static const struct {
    int width;
    unsigned flags;
  } rows[] = {{100, 0}, {100, MS_REPORT_ASCII}, {80, MS_REPORT_ASCII}, {20, MS_REPORT_ASCII}, {400, 0}};
  for (guint k = 0; k < G_N_ELEMENTS(rows); k++) {
    g_autofree char *text = ms_report_terminal(s, r, detail, rows[k].width, rows[k].flags);
    gboolean ascii = (rows[k].flags & MS_REPORT_ASCII) != 0;
    assert_true(g_utf8_validate(text, -1, NULL) && g_str_is_ascii(text) == ascii);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (int i = 0; lines[i]; i++)
      if (g_utf8_strlen(lines[i], -1) > CLAMP(rows[k].width, 80, 100))
        fail_msg("%d columns: %s", (int)g_utf8_strlen(lines[i], -1), lines[i]);
    g_autoptr(GPtrArray) stages = pipeline_rows(lines);
    assert_int_equal(stages->len, 8);
    for (guint i = 0; i < 8; i++)
      assert_int_equal(g_utf8_strlen(stages->pdata[i], -1), g_utf8_strlen(stages->pdata[0], -1));
    if (!ascii) continue;
    const char *first = stages->pdata[0], *last = stages->pdata[7];
    assert_true(first[0] == 'F' && last[0] == '.');
    assert_true(first[strlen(first) - 1] == 'b' && last[strlen(last) - 1] == '.');
  }
  g_autofree char *without = ms_report_terminal(s, r, NULL, 100, MS_REPORT_ASCII);
  assert_null(strstr(without, "pipeline:"));
}

static void picture_has_a_row_per_stage_and_fits(void **state) {
  (void)state;
  char why[128];
  static const int microbatches[] = {1, 4, 400}; /* wide slots, medium, many per column */
  for (guint i = 0; i < G_N_ELEMENTS(microbatches); i++) {
    g_autoptr(MsSchedule) schedule = ms_schedule_new(MS_SCHED_1F1B, 3, microbatches[i], 1, 0, FALSE, why, sizeof why);
    MsScheduleRun *run = ms_schedule_run(schedule, 1, 1, 1, 3, 0);
    g_autofree char *text = ms_report_schedule(schedule, run, 80, 0);
    g_auto(GStrv) line = g_strsplit(text, "\n", -1);
    for (int s = 0; s < 3; s++) {
      assert_true(g_str_has_prefix(line[s], "stage "));
      assert_true(strlen(line[s]) <= 80);
    }
    ms_schedule_run_free(run);
  }
}

/* What a file says does not steer a terminal; colours of our own stay where there are any. */
static void control_characters_are_not_printed(void **state) {
  (void)state;
#define STEERS                                    \
  "a\033]0;x\007b\033[2Jc\033[31md\r\x7f\xc2\x9b" \
  "e\n\tf \xc3\xa4"
  g_autofree char *plain = ms_report_printable(g_strdup(STEERS), 0),
                  *coloured = ms_report_printable(g_strdup(STEERS), MS_REPORT_COLOUR), *name = ms_report_name(STEERS);
  assert_string_equal(plain, "a ]0;x b [2Jc [31md    e\n\tf \xc3\xa4");
  assert_string_equal(coloured, "a ]0;x b [2Jc\033[31md    e\n\tf \xc3\xa4");
  assert_string_equal(name, "a ]0;x b [2Jc [31md    e  f \xc3\xa4");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(control_characters_are_not_printed),
      cmocka_unit_test(trace_is_strict_json_with_every_task),
      cmocka_unit_test(trace_keeps_picoseconds_names_and_microbatch),
      cmocka_unit_test(trace_failure_is_an_environment_error_and_leaves_nothing),
      cmocka_unit_test(table_parts_add_up_to_the_step),
      cmocka_unit_test(infeasible_result_says_why),
      cmocka_unit_test(result_json_has_its_documented_keys),
      cmocka_unit_test(error_summary_by_hand),
      cmocka_unit_test(picture_has_a_row_per_stage_and_fits),
      cmocka_unit_test(terminal_shows_fill_and_drain),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
