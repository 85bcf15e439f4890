/* Speed of moesim at the scale of a cluster, two threads: a step of every rank with jitter on each, of 2,048 and of
 * 16,384 GPUs, from file to result, and the memory it took; flows of an exchange and to replicas over an oversubscribed
 * fabric against SimGrid on the same ones (Debian: libsimgrid-dev; left out where it is missing). Prints figures
 * beside the goals; never fails for being slow. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <gio/gio.h>
#include <glib/gstdio.h>

#include "cluster/cluster.h"
#include "fabric/pattern.h"

static double seconds(void) { return (double)g_get_monotonic_time() / 1e6; }

static double cpu_seconds(void) { /* of all threads; what a loaded machine leaves alone */
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void stop(GError *error) {
  fprintf(stderr, "bench_cluster: %s\n", error ? error->message : "failed");
  exit(1);
}

static void line(const char *what, double figure, const char *unit, double goal, gboolean more_is_better) {
  double ratio = more_is_better ? figure / goal : goal / figure;
  printf("  %-46s %12.4g %-12s goal %8.4g  x%.2f%s\n", what, figure, unit, goal, ratio, ratio < 1 ? "  MISSED" : "");
}

static double most_GiB(void) { /* of this process so far; Linux counts KiB */
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)use.ru_maxrss / (1 << 20);
}

static MsScenario *scenario_of(const char *text) {
  GError *error = NULL;
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "bench", &error);
  MsScenario *s = doc ? ms_scenario_from_doc(doc, &error) : NULL;
  if (!s) stop(error);
  return s;
}

/* --- a step of every rank ---------------------------------------------------------------------------------------- */

static void every_rank(const char *what, MsScenario *s, int draws, double goal_s, double goal_GiB) {
  GError *error = NULL;
  g_autoptr(MsDetail) detail = NULL;
  g_auto(MsCluster) c = {0};
  double from = seconds(), cpu = cpu_seconds();
  s->cluster.jitter = TRUE;
  g_autoptr(MsResult) full = ms_simulate(s, MS_FIDELITY_FULL, &detail, &error);
  if (!full || !detail || !ms_cluster_run(s, full, detail, &(MsClusterOptions){draws, 2, FALSE, TRUE}, &c, &error))
    stop(error);
  printf("%s: %d draws, %u ranks of a stage told apart, %" G_GUINT64_FORMAT " tasks in each\n", what, draws, c.units,
         c.tasks);
  line("every rank with jitter, 2 threads", seconds() - from, "s", goal_s, FALSE);
  printf("  %-46s %12.4g %-12s\n", "  CPU of all threads", cpu_seconds() - cpu, "s");
  line("most memory so far", most_GiB(), "GiB", goal_GiB, FALSE);
  ms_scenario_free(s);
}

/* --- flows, beside SimGrid --------------------------------------------------------------------------------------- */

/* Wall time of SimGrid's program on the text, NaN when it fails. */
static double asked(const char *program, const char *text) {
  g_autoptr(GSubprocess) child = g_subprocess_new(G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE |
                                                      G_SUBPROCESS_FLAGS_STDERR_SILENCE,
                                                  NULL, program, NULL);
  g_autofree char *answer = NULL;
  double from = seconds();
  gboolean ok = child && g_subprocess_communicate_utf8(child, text, NULL, &answer, NULL, NULL) &&
                g_subprocess_get_successful(child);
  return ok ? seconds() - from : NAN;
}

/* With `flows` FALSE the same links and nothing on them. */
static char *question(const MsFlows *f, const double *Bps, gboolean flows) {
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%u\n", f->n_links);
  for (guint32 l = 0; l < f->n_links; l++) g_string_append_printf(text, "%.17g ", MAX(Bps[l], 1));
  g_string_append_printf(text, "\n%u\n", flows ? f->n : 0);
  for (guint32 i = 0; flows && i < f->n; i++) {
    g_string_append_printf(text, "%.17g %u", f->bytes[i], f->first[i + 1] - f->first[i]);
    for (guint32 k = f->first[i]; k < f->first[i + 1]; k++) g_string_append_printf(text, " %u", f->link[k]);
    g_string_append_c(text, '\n');
  }
  return g_string_free(text, FALSE);
}

static void race(const char *what, const MsFlows *f, const double *Bps, const char *program) {
  double own = INFINITY;
  for (int i = 0; i < 3; i++) {
    double from = seconds();
    ms_flow_times_free(ms_flows_run(f, Bps, 0));
    own = MIN(own, seconds() - from);
  }
  g_autofree char *text = question(f, Bps, TRUE), *empty = question(f, Bps, FALSE);
  double theirs = asked(program, text) - asked(program, empty);
  printf("%s: %u flows over %u links, %.4g s, SimGrid %.4g s without its start and its links\n", what, f->n, f->n_links,
         own, theirs);
  if (theirs > 0) line("as fast as SimGrid", theirs / own, "times", 20, TRUE);
}

static void flows(void) {
  g_autofree char *folder = g_dir_make_tmp("moesim-bench-XXXXXX", NULL);
  g_autofree char *program = folder ? g_build_filename(folder, "flows", NULL) : NULL;
  const char *argv[] = {
      "g++", "-std=c++17", "-O2", "-o", program, MS_SOURCE_DIR "/tests/oracles/flows_simgrid.cpp", "-lsimgrid", NULL};
  g_autoptr(GSubprocess) build = folder ? g_subprocess_newv(argv, G_SUBPROCESS_FLAGS_STDERR_SILENCE, NULL) : NULL;
  if (!build || !g_subprocess_wait_check(build, NULL, NULL)) {
    printf("flows: no SimGrid (libsimgrid-dev) or no g++, nothing to compare with\n");
    if (folder) g_rmdir(folder);
    return;
  }
  g_autoptr(MsScenario) s = scenario_of(
      "{\"schema\": 1, \"model\": \"qwen3-30b-a3b\", \"hardware\": {\"base\": \"h100-sxm\", \"fabric\": {\"kind\": "
      "\"fat-tree\", \"leaf_nodes\": 4, \"oversubscription\": 4, \"routing\": \"ecmp\"}}, \"gpus\": 512, \"training\": "
      "{\"seq_length\": 4096, \"global_batch_size\": 1024}, \"layout\": {\"ep\": 64}, \"options\": {\"dispatcher\": "
      "\"alltoall\"}}");
  GError *error = NULL;
  g_autoptr(MsLayout) l = ms_layout_new_or_error(s, &error);
  g_autoptr(MsFabricGraph) g = l ? ms_fabric_graph_new(s, &error) : NULL;
  if (!g) stop(error);
  g_autoptr(MsFlows) all = ms_pattern_flows(g, l, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE, &error);
  g_autoptr(MsFlows) next = ms_pattern_flows(g, l, MS_GROUP_EDP, MS_PATTERN_PAIR, &error);
  if (!all || !next) stop(error);
  race("exchange of experts, 512 GPUs, hashed", all, g->Bps, program);
  race("each to its next replica", next, g->Bps, program);
  g_remove(program), g_rmdir(folder);
}

int main(void) {
  GError *error = NULL;
  MsScenario *s = ms_scenario_load(MS_SOURCE_DIR "/scenarios/fabric/slow-nics-2048.json", &error);
  if (!s) stop(error);
  s->cluster.slow_nic_rate = 0;
  every_rank("DeepSeek-V3 on 2,048 H800, 64 microbatches", s, 1, 10, 2);
  every_rank("Llama 3 405B on 16,384 H100, 16 microbatches",
             scenario_of("{\"schema\": 1, \"model\": \"llama3-405b\", \"hardware\": \"h100-sxm\", \"gpus\": 16384, "
                         "\"training\": {\"seq_length\": 8192, \"global_batch_size\": 2048}, \"layout\": {\"tp\": 8, "
                         "\"pp\": 16, \"vpp\": 8, \"pipeline_layout\": \"E|(t|)*126L\"}, \"options\": "
                         "{\"sequence_parallel\": true}}"),
             1, 60, 8);
  flows();
  return 0;
}
