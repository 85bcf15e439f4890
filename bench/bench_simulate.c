/* Speed of moesim on real steps, one core: operators a second of `full` with and without sharing, layouts a second of
 * the planner's bound, the step of DeepSeek-V3 on 2048 GPUs with its trace, one `run` and one `plan` from the command
 * line. Prints figures beside the goals; never fails for being slow. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glib/gstdio.h>

#include "lib/unshared.h"
#include "plan/plan.h"
#include "report/report.h"
#include "sim/graph.h"

enum { REPEATS = 5 };

static double seconds(void) { return (double)g_get_monotonic_time() / 1e6; }

static void stop(GError *error) {
  fprintf(stderr, "bench_simulate: %s\n", error ? error->message : "failed");
  exit(1);
}

static MsScenario *load(const char *name) {
  GError *error = NULL;
  g_autofree char *path = g_build_filename(MS_SOURCE_DIR "/scenarios", name, NULL);
  MsScenario *scenario = ms_scenario_load(path, &error);
  if (!scenario) stop(error);
  return scenario;
}

static void line(const char *what, double figure, const char *unit, double goal, gboolean more_is_better) {
  double ratio = more_is_better ? figure / goal : goal / figure;
  printf("  %-46s %12.4g %-12s goal %8.4g  x%.2f%s\n", what, figure, unit, goal, ratio, ratio < 1 ? "  MISSED" : "");
}

/* --- operators a second ---------------------------------------------------------------------------------------- */
typedef struct {
  MsScenario *scenario;
  MsLayout *layout;
  MsWork *work;
  MsCost *cost;
  MsProgram *program;
  MsSchedule *schedule;
} Step;

static Step open_step(const char *name) {
  GError *error = NULL;
  char why[192];
  Step s = {.scenario = load(name)};
  s.layout = ms_layout_new_or_error(s.scenario, &error);
  if (!s.layout || !(s.work = ms_work_new(s.scenario, s.layout, &error)) ||
      !(s.cost = ms_cost_new(s.scenario, s.layout, &error)))
    stop(error);
  s.schedule = ms_schedule_new((int)s.scenario->layout.schedule, s.layout->pp, s.layout->microbatches, s.layout->vpp,
                               s.layout->group_size, FALSE, why, sizeof why);
  s.program = ms_program_new(s.work, s.cost);
  return s;
}

static void close_step(Step *s) {
  ms_schedule_free(s->schedule);
  ms_program_free(s->program);
  ms_cost_free(s->cost);
  ms_work_free(s->work);
  ms_layout_free(s->layout);
  ms_scenario_free(s->scenario);
}

static double rate(const MsGraph *graph, MsTrajectory *(*engine)(const MsGraph *)) {
  double best = INFINITY;
  for (int i = 0; i < REPEATS; i++) {
    double from = seconds();
    ms_trajectory_free(engine(graph));
    best = MIN(best, seconds() - from);
  }
  return ms_graph_count(graph) / best / 1e6;
}

static void engines(const char *name) {
  Step s = open_step(name);
  double build = INFINITY;
  for (int i = 0; i < REPEATS; i++) {
    double from = seconds();
    ms_graph_free(ms_lower_full(s.program, s.schedule, NULL, NULL));
    build = MIN(build, seconds() - from);
  }
  g_autoptr(MsGraph) graph = ms_lower_full(s.program, s.schedule, NULL, NULL);
  g_autoptr(MsGraph) alone = ms_test_unshared(graph, s.layout->pp, TRUE);
  g_autoptr(MsGraph) ahead = ms_test_unshared(graph, s.layout->pp, FALSE);
  g_autoptr(MsTrajectory) a = ms_engine_relax(alone);
  g_autoptr(MsTrajectory) b = ms_engine_events(alone, NULL);
  gboolean equal = a->makespan == b->makespan && !memcmp(a->start, b->start, a->n * sizeof *a->start) &&
                   !memcmp(a->end, b->end, a->n * sizeof *a->end);
  printf("%s: %u operators, %s, lowering %.1f M/s\n", name, ms_graph_count(graph),
         ms_graph_shares(graph) ? "resources shared" : "nothing shared", ms_graph_count(graph) / build / 1e6);
  line("full, resources shared (events)", rate(graph, ms_engine_events), "M operators/s", 4, TRUE);
  line("full, nothing shared (one pass)", rate(ahead, ms_engine_relax), "M operators/s", 50, TRUE);
  line("full, nothing shared, with host (one pass)", rate(alone, ms_engine_relax), "M operators/s", 50, TRUE);
  printf("  %-46s %12.4g M operators/s, %s the one pass\n", "the same by events", rate(alone, ms_engine_events),
         equal ? "to the last bit as" : "NOT AS");
  close_step(&s);
}

/* --- a whole step with its trace ------------------------------------------------------------------------------- */
static void whole_step(const char *name) {
  double predict = INFINITY, traced = INFINITY;
  g_autofree char *trace = g_build_filename(g_get_tmp_dir(), "moesim-bench-trace.json", NULL);
  for (int i = 0; i < REPEATS; i++) {
    GError *error = NULL;
    double from = seconds();
    MsScenario *scenario = load(name);
    MsDetail *detail = NULL;
    MsResult *result = ms_simulate(scenario, MS_FIDELITY_FULL, &detail, &error);
    if (!result) stop(error);
    predict = MIN(predict, seconds() - from);
    if (!ms_report_trace(detail, trace, &error)) stop(error);
    traced = MIN(traced, seconds() - from);
    ms_detail_free(detail);
    ms_result_free(result);
    ms_scenario_free(scenario);
  }
  g_remove(trace);
  printf("%s\n", name);
  line("full, file to result", predict, "s", 1, FALSE);
  line("full, file to result and trace", traced, "s", 1, FALSE);
}

/* --- the planner ----------------------------------------------------------------------------------------------- */
static const char wide[] =
    "{\"schema\": 1, \"name\": \"bounds\", \"model\": \"deepseek-v3\", \"hardware\": \"gb200-nvl72\", \"gpus\": 1024, "
    "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 8192, \"precision\": \"mxfp8\", \"micro_batch_size\": "
    "\"auto\"}, \"layout\": {\"cp\": 1}, \"options\": {\"dispatcher\": \"hybridep\", \"recompute\": \"auto\", "
    "\"exp_avg_dtype\": \"bf16\", \"exp_avg_sq_dtype\": \"bf16\", \"fp8_param_gather\": true}, \"plan\": "
    "{\"max_memory_fraction\": 0.01}}"; /* nothing fits: every layout that obeys the
rules is bounded, none is simulated */

static void bounds(void) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(wide, -1, "bench", &error);
  g_autoptr(MsRequest) request = doc ? ms_request_from_doc(doc, &error) : NULL;
  if (!request) stop(error);
  double best = INFINITY;
  guint64 searched = 0, valid = 0;
  for (int i = 0; i < 3; i++) {
    g_autoptr(MsPlan) plan = ms_plan(request, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 1}, &error);
    if (!plan) stop(error);
    best = MIN(best, plan->elapsed_s);
    searched = plan->searched, valid = plan->valid;
  }
  printf("planner: %" G_GUINT64_FORMAT " layouts, %" G_GUINT64_FORMAT
         " of them obey the rules and were bounded in time and memory, %.2f s\n",
         searched, valid, best);
  line("bound, layouts searched", (double)searched / best / 1e3, "k layouts/s", 200, TRUE);
  line("bound, of them bounded", (double)valid / best / 1e3, "k layouts/s", 200, TRUE);
}

/* --- the command line ------------------------------------------------------------------------------------------ */
static double command(const char *program, const char *const *arguments, int repeats) {
  double best = INFINITY;
  for (int i = 0; i < repeats; i++) {
    GPtrArray *argv = g_ptr_array_new();
    int status = 1;
    g_autoptr(GError) error = NULL;
    g_ptr_array_add(argv, (char *)program);
    for (int k = 0; arguments[k]; k++) g_ptr_array_add(argv, (char *)arguments[k]);
    g_ptr_array_add(argv, NULL);
    double from = seconds();
    if (!g_spawn_sync(NULL, (char **)argv->pdata, NULL, G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL,
                      NULL, NULL, NULL, &status, &error) ||
        status)
      fprintf(stderr, "bench_simulate: %s %s: status %d %s\n", program, arguments[0], status,
              error ? error->message : "");
    best = MIN(best, seconds() - from);
    g_ptr_array_free(argv, TRUE);
  }
  return best;
}

static void command_line(const char *bench) {
  g_autofree char *folder = g_path_get_dirname(bench);
  g_autofree char *program = g_build_filename(folder, "..", "moesim", NULL);
  static const char *const run[] = {"run", "--fidelity", "fast",
                                    MS_SOURCE_DIR "/scenarios/run-deepseek-v3-gb200-256.json", NULL};
  static const char *const plan[] = {"plan", MS_SOURCE_DIR "/scenarios/plan-deepseek-v3-gb200-256.json", NULL};
  printf("command line, process start included\n");
  line("run --fidelity fast, one scenario", 1e3 * command(program, run, 20), "ms", 50, FALSE);
  line("plan, DeepSeek-V3 on 256 GB200", command(program, plan, 1), "s", 20, FALSE);
}

int main(int argc, char **argv) {
  (void)argc;
  engines("run-deepseek-v3-2048-pp16.json");
  engines("run-qwen3-235b-h100-256.json");
  engines("run-llama3-70b-h100-64.json");
  whole_step("run-deepseek-v3-2048-pp16.json");
  bounds();
  command_line(argv[0]);
  return 0;
}
