/* Speed of the program from its start, of small plans and their front, and of the planner: layouts bounded a second,
 * and three large tasks from request to ranking. Figures stand beside
 * the goals of the project; Calculon's rate is the one it was measured at on a machine of this kind (2,100
 * configurations a second and core). Never fails for being slow. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "plan/enumerate_priv.h"
#include "plan/parallel_priv.h"

#define CALCULON_PER_S 2100.0

/* goal: NaN = none. */
static void line(const char *what, double figure, const char *unit, double goal, gboolean more_is_better) {
  if (isnan(goal)) {
    printf("  %-46s %12.4g %s\n", what, figure, unit);
    return;
  }
  double ratio = more_is_better ? figure / goal : goal / figure;
  printf("  %-46s %12.4g %-16s goal %8.4g  x%.2f%s\n", what, figure, unit, goal, ratio, ratio < 1 ? "  MISSED" : "");
}

static double cpu_s(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec / 1e6;
}

static double peak_GiB(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)use.ru_maxrss / (1 << 20);
}

static MsRequest *load(const char *name) {
  GError *error = NULL;
  g_autofree char *path = g_strdup_printf(MS_SOURCE_DIR "/scenarios/%s.json", name);
  MsRequest *request = ms_request_load(path, &error);
  if (request) return request;
  fprintf(stderr, "bench_plan: %s\n", error->message);
  exit(1);
}

/* The enumeration alone: every layout that obeys the rules is bounded in memory and, whether it fits or not, in time.
 */
static void bounds(const char *name) {
  g_autoptr(MsRequest) request = load(name);
  MsPlanOptions options = {.prune = TRUE, .without = 1u << MS_SHORT_MEMORY};
  MsPlan plan = {.memory_limit_B = request->base->hardware->hbm_B};
  MsSearch search = {.options = &options, .plan = &plan, .candidates = g_array_new(FALSE, FALSE, sizeof(MsCandidate))};
  double cpu = cpu_s();
  gint64 began_us = g_get_monotonic_time();
  search.space = ms_space_new(request, TRUE, NULL);
  ms_refused_init(&search.refused);
  if (!ms_enumerate(&search, NULL)) exit(1);
  cpu = cpu_s() - cpu;
  double clock_s = (double)(g_get_monotonic_time() - began_us) / 1e6;
  printf("%s: %.4g layouts, %.4g obey the rules and were bounded; %d cores, %.2f s, %.2f s of CPU\n", name,
         (double)plan.searched, (double)plan.valid, ms_parallel_threads(0), clock_s, cpu);
  line("bound, layouts searched", (double)plan.searched / clock_s / 1e6, "M layouts/s", 1, TRUE);
  line("bound, of them bounded", (double)plan.valid / clock_s / 1e6, "M layouts/s", 1, TRUE);
  line("bound, of them bounded, per core", (double)plan.valid / cpu / 1e6, "M layouts/CPU s", 0.5, TRUE);
  ms_refused_clear(&search.refused);
  g_array_unref(search.candidates);
  ms_memo_free(search.first);
  ms_space_free(search.space);
}

static void task(const char *name, double goal_s) {
  g_autoptr(MsRequest) request = load(name);
  double cpu = cpu_s();
  g_autoptr(MsPlan) plan = ms_plan(request, &(MsPlanOptions){.top = 10, .prune = TRUE}, NULL);
  cpu = cpu_s() - cpu;
  printf("%s: %.4g layouts, %.4g obey the rules, %.4g screened, %.4g simulated, best %.4g s\n", name,
         (double)plan->searched, (double)plan->valid, (double)plan->screened, (double)plan->simulated,
         plan->n_best ? plan->best[0].result->step_time_s : 0.0);
  line("request to ranking", plan->elapsed_s, "s", goal_s, FALSE);
  line("over two cores' CPU time", cpu / 2, "s", goal_s, FALSE);
  line("configurations per second and core", (double)plan->searched / cpu, "1/s", 200 * CALCULON_PER_S, TRUE);
  if (request->base->model->num_experts > 0)
    line("layouts that obey the rules, decided", (double)plan->valid / plan->elapsed_s / 1e6, "M layouts/s", 2, TRUE);
  line("peak memory so far", peak_GiB(), "GiB", 1, FALSE);
}

/* User and system time of the program, started `times` times with these words, for each start; before_s: what it was.
 */
static void program(const char *what, int times, double goal_s, double before_s, const char *const *words) {
  g_autofree char *own = g_file_read_link("/proc/self/exe", NULL), *folder = own ? g_path_get_dirname(own) : NULL,
                  *moesim = folder ? g_build_filename(folder, "..", "moesim", NULL) : NULL;
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  g_ptr_array_add(argv, moesim);
  for (int i = 0; words[i]; i++) g_ptr_array_add(argv, (char *)words[i]);
  g_ptr_array_add(argv, NULL);
  struct rusage before, after;
  getrusage(RUSAGE_CHILDREN, &before);
  int status = 0;
  for (int i = 0; i < times && moesim; i++)
    if (!g_spawn_sync(MS_SOURCE_DIR, (char **)argv->pdata, NULL,
                      G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, NULL, NULL, &status, NULL) ||
        status != 0) {
      fprintf(stderr, "bench_plan: %s cannot be run\n", moesim);
      return;
    }
  getrusage(RUSAGE_CHILDREN, &after);
  double user_s = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                  (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6,
         system_s = (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                    (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
  double each_s = (user_s + system_s) / times;
  line(what, each_s, "s of CPU", goal_s, FALSE);
  printf("  %-46s %12.4g %-16s now x%.2f as fast\n", "  before", before_s, "s of CPU", before_s / each_s);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
static void programs(void) {
  const char *readme = "scenarios/plan-deepseek-v3-gb200-256.json";
  puts("the program, its start included:");
  program("run --fidelity fast", 50, 5e-3, 8.5e-3,
          WORDS("run", "--fidelity", "fast", "scenarios/run-deepseek-v3-2048-pp16.json"));
  program("--version", 50, 2e-3, 2.7e-3, WORDS("--version"));
  program("the plan of the README", 3, 0.5, 1.25, WORDS("plan", readme));
  program("the same with --front", 1, 1.5, 10.9, WORDS("plan", "--front", readme));
  program("plan, Llama-3 8B on 8 H100", 1, NAN, 1.63, WORDS("plan", "-m", "llama3-8b", "-w", "h100-sxm", "-g", "8"));
  program("plan, Qwen3 30B-A3B on 64 H100", 1, NAN, 1.25,
          WORDS("plan", "-m", "qwen3-30b-a3b", "-w", "h100-sxm", "-g", "64"));
  program("plan, DeepSeek-V3 on 1024 MTT S5000", 1, 2, 17,
          WORDS("plan", "-m", "deepseek-v3", "-w", "mtt-s5000", "-g", "1024"));
}

static void stop(int signal_number) {
  (void)signal_number;
  raise(SIGINT);
}

/* A request that leaves nearly everything open, stopped after a minute: what it has found by then, and what is proven.
 */
static void open_request(const char *name, unsigned limit_s) {
  g_autoptr(MsRequest) request = load(name);
  double cpu = cpu_s();
  ms_interrupt_install(INFINITY);
  signal(SIGALRM, stop);
  alarm(limit_s);
  g_autoptr(MsPlan) plan = ms_plan(request, &(MsPlanOptions){.top = 10, .prune = TRUE}, NULL);
  alarm(0);
  cpu = cpu_s() - cpu;
  printf("%s: %.4g layouts, %.4g bounded, %.4g screened, %.4g simulated, best %.4g s%s; at most %.2g %% better\n", name,
         (double)plan->searched, (double)plan->bounded, (double)plan->screened, (double)plan->simulated,
         plan->n_best ? plan->best[0].result->step_time_s : 0.0, plan->interrupted ? ", stopped" : "",
         100 * ms_plan_gap(plan, request));
  line("request to proof (or stopped)", plan->elapsed_s, "s", limit_s, FALSE);
  line("over two cores' CPU time", cpu / 2, "s", limit_s, FALSE);
  line("peak memory so far", peak_GiB(), "GiB", 1, FALSE);
}

int main(void) {
  programs();
  bounds("plan-gpt3-175b-a100-4096");
  bounds("plan-deepseek-v3-gb200-4096");
  task("plan-gpt3-175b-a100-4096", 1);
  task("plan-llama3-405b-h100-16384", 10);
  task("plan-deepseek-v3-gb200-4096", 10);
  open_request("plan-deepseek-v3-gb200-4096-open", 60); /* the last: it is interrupted */
  return 0;
}
