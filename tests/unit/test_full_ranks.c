/* The planner from outside: the same output for any number of ranks and threads, a rank that is killed, Ctrl-C, and
 * going on afterwards. */
#include "lib/close.h"
#include "lib/launcher.h"

#include "base/json.h"
#include "base/ranks.h"

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static char *program, *folder, *request;

static const char request_text[] = /* a few hundred layouts, some seconds of work without pruning */
    "{\"schema\": 1, \"name\": \"ranks\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 16}, \"hardware\": "
    "\"h100-sxm\", \"gpus\": 8, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 64, \"micro_batch_size\": "
    "[1, 2]}, \"layout\": {\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": [1, 2]}, \"options\": "
    "{\"tp_comm_overlap\": \"auto\", \"recompute\": \"auto\"}}";

static GSubprocess *start_verb(const char *ranks, const char *verb, const char *file, const char *const *more) {
  GPtrArray *argv = g_ptr_array_new();
  const char *const launcher[] = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--timeout", "300", "-n", ranks};
  for (guint i = 0; ranks && i < G_N_ELEMENTS(launcher); i++) g_ptr_array_add(argv, (char *)launcher[i]);
  g_ptr_array_add(argv, program);
  g_ptr_array_add(argv, (char *)verb);
  g_ptr_array_add(argv, (char *)file);
  for (int i = 0; more[i]; i++) g_ptr_array_add(argv, (char *)more[i]);
  g_ptr_array_add(argv, NULL);
  GError *error = NULL;
  GSubprocess *child = g_subprocess_newv((const char *const *)argv->pdata,
                                         G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE, &error);
  g_ptr_array_free(argv, TRUE);
  if (!child) fail_msg("%s", error->message);
  return child;
}

static GSubprocess *start(const char *ranks, const char *const *more) {
  return start_verb(ranks, "plan", request, more);
}

/* Standard output; *status 0 .. 255, or 1000 + the signal. */
static char *wait_for(GSubprocess *child, int *status, char **err) {
  char *out = NULL;
  GError *error = NULL;
  if (!g_subprocess_communicate_utf8(child, NULL, NULL, &out, err, &error)) fail_msg("%s", error->message);
  *status =
      g_subprocess_get_if_exited(child) ? g_subprocess_get_exit_status(child) : 1000 + g_subprocess_get_term_sig(child);
  g_object_unref(child);
  return out;
}

/* Every "elapsed_s" taken out: the only figure that may differ. */
static char *timeless(const char *json) {
  g_autoptr(GRegex) elapsed = g_regex_new("\"elapsed_s\":[^,}]*", 0, 0, NULL);
  return g_regex_replace_literal(elapsed, json, -1, 0, "", 0, NULL);
}

static char *planned_as(const char *ranks, const char *threads, const char *how) {
  int status;
  g_autofree char *err = NULL,
                  *out = wait_for(start(ranks, (const char *const[]){"--threads", threads, "--json", how, NULL}),
                                  &status, &err);
  if (status != 0) fail_msg("%s ranks: exit %d: %s", ranks ? ranks : "no", status, err);
  return timeless(out);
}

static char *planned(const char *ranks, const char *threads) { return planned_as(ranks, threads, NULL); }

/* A build without MPI says so instead of planning everything on every rank. */
static void serial_build_refuses_ranks(void **state) {
  (void)state;
  g_autofree char *launcher = g_find_program_in_path("mpirun");
  if (ms_ranks_built() || !launcher) return;
  int status;
  g_autofree char *err = NULL, *out = wait_for(start("2", (const char *const[]){"--json", NULL}), &status, &err);
  assert_true(status != 0);
  assert_string_equal(out, "");
  assert_non_null(strstr(err, "built without MPI"));
}

static void ranks_and_threads_agree(void **state) {
  (void)state;
  g_autofree char *one = planned(NULL, "1"), *two = planned(NULL, "2");
  assert_string_equal(one, two);
  if (!ms_test_launcher()) return;
  static const struct { const char *ranks, *threads; } ways[] = {{"1", "1"}, {"2", "1"}, {"2", "2"}, {"3", "1"}};
  for (guint i = 0; i < G_N_ELEMENTS(ways); i++) {
    g_autofree char *many = planned(ways[i].ranks, ways[i].threads);
    assert_string_equal(one, many);
  }
}

/* Draws are shared out among the ranks, of which one prints: more ranks than draws too. */
static void draws_are_the_same_for_any_ranks(void **state) {
  (void)state;
  static const char *const scenarios[][2] = {
      {"{\"schema\": 1, \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, \"hardware\": \"h100-sxm\", \"gpus\": "
       "16, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 32}, \"layout\": {\"tp\": 2, \"pp\": 4}, "
       "\"cluster\": {\"slow_gpu_rate\": 0.1}}",
       "cluster"},
      {"{\"schema\": 1, \"model\": {\"base\": \"mixtral-8x7b\", \"num_layers\": 4}, \"hardware\": \"h100-sxm\", "
       "\"gpus\": 8, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 16, \"routing\": {\"zipf\": 0.5}}, "
       "\"layout\": {\"ep\": 8}}",
       "fast"}};
  if (!ms_test_launcher()) return;
  g_autofree char *file = g_build_filename(folder, "draws.json", NULL);
  for (guint i = 0; i < G_N_ELEMENTS(scenarios); i++) {
    static const char *const ranks[] = {NULL, "1", "2", "3", "5"};
    g_autofree char *alone = NULL;
    g_file_set_contents(file, scenarios[i][0], -1, NULL);
    for (guint k = 0; k < G_N_ELEMENTS(ranks); k++) {
      int status;
      g_autofree char *err = NULL;
      GSubprocess *child = start_verb(
          ranks[k], "run", file, (const char *const[]){"--json", "--draws", "4", "--fidelity", scenarios[i][1], NULL});
      g_autofree char *out = wait_for(child, &status, &err), *same = timeless(out);
      if (status != 0) fail_msg("%s ranks: exit %d: %s", ranks[k] ? ranks[k] : "no", status, err);
      if (k == 0) alone = g_steal_pointer(&same);
      else assert_string_equal(same, alone);
    }
  }
  g_remove(file);
}

static void branched_ranks_and_threads_agree(void **state) {
  (void)state;
  g_autofree char *one = planned_as(NULL, "1", "--branch"), *two = planned_as(NULL, "2", "--branch");
  assert_string_equal(one, two);
  assert_non_null(strstr(one, "\"branched\":true"));
  g_autofree char *every = planned(NULL, "2");
  assert_string_equal(strstr(every, "\"best\":"), strstr(one, "\"best\":"));
  if (!ms_test_launcher()) return;
  g_autofree char *three = planned_as("3", "1", "--branch");
  assert_string_equal(one, three);
}

/* Of pools that share the batch every way to share it is a search; all ranks search the same ones, though one alone has
 * the list. */
static void shares_of_the_batch_agree(void **state) {
  (void)state;
  static const char text[] =
      "{\"schema\": 1, \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 4}, \"pools\": [{\"hardware\": "
      "\"h100-sxm\", "
      "\"gpus\": 4, \"batch\": \"auto\"}, {\"hardware\": \"b200-sxm\", \"gpus\": 4, \"batch\": \"auto\"}], "
      "\"training\": {\"seq_length\": 4096, \"global_batch_size\": 16}, \"layout\": {\"tp\": [1, 2], \"cp\": 1, "
      "\"pp\": 1, \"order\": \"tp-cp-ep-pp-dp\"}, \"options\": {\"overlap_grad_reduce\": [true, false]}, "
      "\"plan\": {\"top\": 1}}";
  if (!ms_test_launcher()) return;
  g_autofree char *file = g_build_filename(folder, "shares.json", NULL), *kept = request;
  g_file_set_contents(file, text, -1, NULL);
  request = file;
  g_autofree char *one = planned(NULL, "1"), *two = planned("2", "1");
  request = g_steal_pointer(&kept);
  assert_string_equal(one, two);
  g_remove(file);
}

/* Waits until the file is there, a minute at most. */
static void await(const char *file) {
  for (int i = 0; i < 6000 && !g_file_test(file, G_FILE_TEST_EXISTS); i++) g_usleep(10000);
  if (!g_file_test(file, G_FILE_TEST_EXISTS)) fail_msg("no checkpoint was written");
}

static gint64 number(const char *json, const char *key) {
  g_autoptr(MsJson) doc = ms_json_parse(json, -1, "plan", NULL);
  assert_non_null(doc);
  return json_object_get_int_member(json_node_get_object(ms_json_root(doc)), key);
}

static char *list_of(const char *json) { /* what follows "best" */
  const char *best = strstr(json, "\"best\":");
  assert_non_null(best);
  return timeless(best);
}

/* Going on from the file gives the same list without simulating what it holds again. */
static void goes_on(const char *file) {
  int status;
  g_autofree char *err = NULL, *whole = planned(NULL, "2");
  g_autofree char *rest =
      wait_for(start(NULL, (const char *const[]){"--resume", file, "--json", "--no-prune", NULL}), &status, &err);
  assert_int_equal(status, 0);
  assert_true(number(rest, "resumed") > 0 && number(rest, "resumed") <= number(rest, "simulated"));
  g_autofree char *a = list_of(whole), *b = list_of(rest);
  assert_string_equal(a, b);
}

static int child_of(const char *parent) { /* the last one */
  g_autofree char *path = g_strdup_printf("/proc/%s/task/%s/children", parent, parent), *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, NULL)) return 0;
  g_auto(GStrv) pid = g_strsplit(g_strstrip(text), " ", -1);
  guint n = g_strv_length(pid);
  return n ? atoi(pid[n - 1]) : 0;
}

static void lost_rank(void **state) {
  (void)state;
  if (!ms_test_launcher()) return;
  g_autofree char *file = g_build_filename(folder, "lost.json", NULL), *err = NULL;
  GSubprocess *child = start("2", (const char *const[]){"--threads", "1", "--no-prune", "--checkpoint", file, NULL});
  await(file);
  int rank = child_of(g_subprocess_get_identifier(child)), status;
  if (!rank) {
    print_message("/proc lists no children: no rank is killed\n");
    g_subprocess_force_exit(child);
    g_object_unref(child);
    return;
  }
  kill(rank, SIGKILL);
  g_autofree char *out = wait_for(child, &status, &err);
  assert_true(status != 0);
  assert_non_null(strstr(err, "signal 9"));
  goes_on(file);
  g_remove(file);
}

static void interrupted(void **state) {
  (void)state;
  g_autofree char *file = g_build_filename(folder, "stopped.json", NULL), *err = NULL;
  GSubprocess *child = start(NULL, (const char *const[]){"--threads", "1", "--no-prune", "--checkpoint", file, NULL});
  await(file);
  int status;
  g_subprocess_send_signal(child, SIGINT);
  g_autofree char *out = wait_for(child, &status, &err);
  assert_non_null(strstr(err, "--resume"));
  goes_on(file);
  g_remove(file);
}

/* Far more layouts than can be looked at: what was found until Ctrl-C is printed, with what is proven. */
static void an_open_request_stopped(void **state) {
  (void)state;
  g_autofree char *file = g_build_filename(folder, "open.json", NULL), *kept = request,
                  *wide = g_build_filename(folder, "wide.json", NULL), *err = NULL;
  GString *text = g_string_new(request_text);
  g_string_replace(text, "\"tp\": [1, 2, 4]",
                   "\"tp\": \"auto\", \"order\": \"auto\", \"schedule\": \"auto\", "
                   "\"microbatch_group_size_per_virtual_pipeline_stage\": \"auto\"",
                   0);
  g_string_replace(text, "\"pp\": [1, 2, 4], \"vpp\": [1, 2]", "\"pp\": \"auto\", \"vpp\": \"auto\"", 0);
  g_string_replace(text, "\"micro_batch_size\"", "\"precision\": \"auto\", \"micro_batch_size\"", 0);
  static const char *const open[] = {"overlap_grad_reduce",
                                     "overlap_param_gather",
                                     "offload_modules",
                                     "optimizer_offload_fraction",
                                     "cuda_graph_scope",
                                     "distributed_optimizer",
                                     "fsdp",
                                     "fp8_param_gather"};
  for (guint i = 0; i < G_N_ELEMENTS(open); i++) {
    g_autofree char *with = g_strdup_printf("\"%s\": \"auto\", \"recompute\"", open[i]);
    g_string_replace(text, "\"recompute\"", with, 0);
  }
  g_file_set_contents(wide, text->str, -1, NULL);
  g_string_free(text, TRUE);
  request = wide;
  GSubprocess *child = start(NULL, (const char *const[]){"--json", "--checkpoint", file, NULL});
  request = g_steal_pointer(&kept);
  await(file);
  int status;
  g_subprocess_send_signal(child, SIGINT);
  g_autofree char *out = wait_for(child, &status, &err);
  g_autoptr(MsJson) doc = ms_json_parse(out, -1, "plan", NULL);
  assert_non_null(doc);
  JsonObject *plan = json_node_get_object(ms_json_root(doc));
  assert_true(json_object_get_int_member(plan, "searched") > 20000000 &&
              json_object_get_boolean_member(plan, "branched"));
  assert_true(json_array_get_length(json_object_get_array_member(plan, "best")) > 0);
  double within = json_object_get_double_member(plan, "proven_within");
  assert_true(within >= 0 && within < 1);
  g_remove(file), g_remove(wide);
}

int main(int argc, char **argv) {
  (void)argc;
  const struct CMUnitTest tests[] = {cmocka_unit_test(serial_build_refuses_ranks),
                                     cmocka_unit_test(ranks_and_threads_agree),
                                     cmocka_unit_test(draws_are_the_same_for_any_ranks),
                                     cmocka_unit_test(branched_ranks_and_threads_agree),
                                     cmocka_unit_test(shares_of_the_batch_agree),
                                     cmocka_unit_test(an_open_request_stopped),
                                     cmocka_unit_test(lost_rank),
                                     cmocka_unit_test(interrupted)};
  g_autofree char *here = g_path_get_dirname(argv[0]), *relative = g_build_filename(here, "..", "moesim", NULL);
  program = g_canonicalize_filename(relative, NULL);
  folder = g_dir_make_tmp("moesim-ranks-XXXXXX", NULL);
  request = g_build_filename(folder, "request.json", NULL);
  g_file_set_contents(request, request_text, -1, NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  g_remove(request), g_rmdir(folder);
  g_free(program), g_free(folder), g_free(request);
  return failed;
}
