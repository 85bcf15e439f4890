/* tests/lib/traffic.c - messages over a fabric for outside simulators to time, and asking one of them. */
#include "lib/traffic.h"

#include "lib/close.h"

#include <gio/gio.h>
#include <glib/gstdio.h>

static void message(MsFlows *f, const MsFabricGraph *g, int from, int to, double bytes) {
  guint32 link[MS_FABRIC_PATH_MAX];
  if (from == to) return;
  int n = ms_fabric_path(g, from, to, 0, 0, link);
  ms_flows_add(f, bytes, link, (guint32)n);
}

/* One GPU of each node sends to the same one. */
static MsFlows *incast(const MsFabricGraph *g, const MsLayout *l) {
  (void)l;
  MsFlows *f = ms_flows_new(g->n_links);
  for (int node = 1; node < g->nodes; node++) message(f, g, node * g->node_gpus, 3, 1e9);
  return f;
}

/* Every GPU to another that is drawn, messages of other sizes. */
static MsFlows *permutation(const MsFabricGraph *g, const MsLayout *l) {
  MsFlows *f = ms_flows_new(g->n_links);
  g_autoptr(GRand) rand = g_rand_new_with_seed(11);
  g_autofree int *to = g_new(int, l->world);
  for (int i = 0; i < l->world; i++) to[i] = i;
  for (int i = l->world; i-- > 1;) {
    int j = g_rand_int_range(rand, 0, i + 1), was = to[i];
    to[i] = to[j], to[j] = was;
  }
  for (int i = 0; i < l->world; i++) message(f, g, i, to[i], g_rand_int_range(rand, 1, 9) * 1e8);
  return f;
}

/* Nodes of even number are one job, the others another: a ring of neighbours beside an exchange over the same spines.
 */
static MsFlows *two_jobs(const MsFabricGraph *g, const MsLayout *l) {
  (void)l;
  MsFlows *f = ms_flows_new(g->n_links);
  for (int a = 0; a < g->nodes; a += 2)
    for (int b = 0; b < g->nodes; b += 2) message(f, g, a * g->node_gpus, b * g->node_gpus, 2e8);
  for (int a = 1; a < g->nodes; a += 2)
    for (int gpu = 0; gpu < g->node_gpus; gpu++)
      message(f, g, a * g->node_gpus + gpu, (a + 2) % g->nodes * g->node_gpus + gpu, 1e9);
  return f;
}

static MsFlows *exchange(const MsFabricGraph *g, const MsLayout *l) {
  return ms_pattern_flows(g, l, MS_GROUP_TP_EP, MS_PATTERN_EXCHANGE, NULL);
}

static MsFlows *replicas(const MsFabricGraph *g, const MsLayout *l) {
  return ms_pattern_flows(g, l, MS_GROUP_EDP, MS_PATTERN_PAIR, NULL);
}

static MsFlows *neighbours(const MsFabricGraph *g, const MsLayout *l) {
  return ms_pattern_flows(g, l, MS_GROUP_DP_CP, MS_PATTERN_PAIR, NULL);
}

MsFlows *(*const ms_test_traffic[MS_TEST_TRAFFICS])(const MsFabricGraph *, const MsLayout *) = {
    incast, permutation, two_jobs, exchange, replicas, neighbours};

/* --- asking ------------------------------------------------------------------------------------------------------ */

char *ms_test_oracle_new(const char *header, const char *source, const char *libraries) {
  g_autofree char *compiler = g_find_program_in_path("g++"), *folder = g_dir_make_tmp("moesim-oracle-XXXXXX", NULL);
  g_autofree char *file = g_build_filename(MS_SOURCE_DIR "/tests/oracles", source, NULL);
  char *program = folder ? g_build_filename(folder, "flows", NULL) : NULL;
  g_autofree char *line =
      program ? g_strdup_printf("g++ -std=c++17 -O1 -o %s %s %s", program, file, libraries) : g_strdup("");
  g_auto(GStrv) argv = g_strsplit(line, " ", -1);
  gboolean ok = program && compiler && g_file_test(header, G_FILE_TEST_EXISTS);
  g_autoptr(GSubprocess) child =
      ok ? g_subprocess_newv((const char *const *)argv, G_SUBPROCESS_FLAGS_STDERR_SILENCE, NULL) : NULL;
  if (child && g_subprocess_wait_check(child, NULL, NULL)) return program;
  ms_test_oracle_remove(program);
  return NULL;
}

void ms_test_oracle_remove(char *program) {
  if (!program) return;
  g_autofree char *folder = g_path_get_dirname(program);
  g_remove(program), g_rmdir(folder);
  g_free(program);
}

char *ms_test_oracle_ask(const char *program, const char *question) {
  char *answer = NULL;
  g_autoptr(GError) error = NULL;
  g_autoptr(GSubprocess) child = g_subprocess_new(G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE |
                                                      G_SUBPROCESS_FLAGS_STDERR_SILENCE,
                                                  &error, program, NULL);
  if (!child || !g_subprocess_communicate_utf8(child, question, NULL, &answer, NULL, &error))
    fail_msg("%s", error->message);
  return answer;
}
