/* The planner against a reader of the request who knows nothing of how it searches: every combination of the values of
 * its open keys is written down as a scenario of its own, asked whether it obeys the rules, and simulated. Whichever
 * way the planner goes, with as much memory as there is or with just what one of the layouts needs, its list has the
 * step times of those that fit, all of them and no others. */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/io.h"
#include "plan/plan.h"
#include "study/parts.h"

#include <math.h>
#include <signal.h>
#include <string.h>

enum { MOST_KEYS = 8, MOST_VALUES = 4 };

typedef struct {
  const char *name, *model, *hardware;
  int gpus, seq, batch;
  const char *training, *layout, *options; /* what is settled: members, each with a comma behind it */
  struct {
    const char *path, *value[MOST_VALUES];
  } open[MOST_KEYS];
  gboolean quick; /* the quick tier takes it */
} Space;

/* The loss counts as a layer, so that the cut of the layers is settled. */
#define LLAMA   "{\"base\": \"llama3-8b\", \"num_layers\": 7}"
#define MIXTRAL "{\"base\": \"mixtral-8x7b\", \"num_layers\": 7}"
#define GPT_OSS "{\"base\": \"gpt-oss-20b\", \"num_layers\": 7, \"moe_layer_freq\": \"[1]*7\"}"
#define BF16    "\"precision\": \"bf16\", "
#define ONE     "\"micro_batch_size\": 1, "
#define COUNTED "\"account_for_loss_in_pipeline_split\": true, \"cp\": 1, "
#define DENSE   "\"ep\": 1, \"etp\": 1, "
#define PLAIN   "\"recompute\": {\"granularity\": \"none\"}, "

static const Space spaces[] = {
    {"rules about ranks see keys",
     MIXTRAL,
     "h100-sxm",
     8,
     2048,
     32,
     BF16 ONE,
     COUNTED "\"etp\": 1, ",
     PLAIN,
     {{"layout.tp", {"1", "2"}},
      {"layout.pp", {"1", "2"}},
      {"layout.vpp", {"1"}},
      {"layout.ep", {"1", "4"}},
      {"layout.order", {"\"tp-cp-ep-dp-pp\"", "\"tp-cp-ep-pp-dp\""}},
      {"options.dispatcher", {"\"deepep\"", "\"alltoall\"", "\"allgather\""}}},
     TRUE},
    {"groups of microbatches",
     LLAMA,
     "h100-sxm",
     4,
     2048,
     24,
     BF16 ONE,
     COUNTED DENSE,
     PLAIN,
     {{"layout.tp", {"1", "2"}},
      {"layout.pp", {"2", "4"}},
      {"layout.vpp", {"1", "2"}},
      {"layout.microbatch_group_size_per_virtual_pipeline_stage", {"2", "4", "6"}}},
     TRUE},
    {"states and what is kept",
     LLAMA,
     "b200-sxm",
     8,
     2048,
     32,
     "\"precision\": \"mxfp8\", " ONE,
     COUNTED DENSE,
     "",
     {{"layout.tp", {"1", "2"}},
      {"layout.pp", {"1", "2"}},
      {"layout.vpp", {"1"}},
      {"options.fp8_param_gather", {"false", "true"}},
      {"options.exp_avg_dtype", {"\"fp32\"", "\"bf16\""}},
      {"options.offload_modules", {"[]", "[\"core_attn\", \"attn_proj\"]"}},
      {"options.grad_reduce_dtype", {"\"fp32\"", "\"bf16\""}}},
     TRUE},
    {"schedules",
     LLAMA,
     "h100-sxm",
     8,
     2048,
     32,
     BF16,
     COUNTED DENSE,
     PLAIN,
     {{"training.micro_batch_size", {"1", "2"}},
      {"layout.tp", {"1", "2"}},
      {"layout.pp", {"2"}},
      {"layout.vpp", {"1", "2"}},
      {"layout.schedule", {"\"1f1b\"", "\"zb-h1\"", "\"zb-v\"", "\"dualpipev\""}},
      {"layout.order", {"\"tp-cp-ep-pp-dp\"", "\"tp-cp-ep-dp-pp\""}}},
     TRUE},
    {"sharded and offloaded",
     LLAMA,
     "h100-sxm",
     8,
     2048,
     32,
     BF16 ONE,
     COUNTED DENSE,
     PLAIN,
     {{"layout.tp", {"1", "2"}},
      {"layout.pp", {"1", "2"}},
      {"layout.vpp", {"1"}},
      {"options.distributed_optimizer", {"false", "true"}},
      {"options.optimizer_offload_fraction", {"0", "1"}},
      {"options.main_params_dtype", {"\"fp32\"", "\"bf16\""}},
      {"options.fsdp", {"\"none\"", "\"optim-grads-params\""}},
      {"options.grad_reduce_dtype", {"\"fp32\"", "\"bf16\""}}},
     TRUE},
    {"pieces of their own in every cut",
     LLAMA,
     "h100-sxm",
     8,
     2048,
     32,
     BF16 ONE,
     COUNTED DENSE,
     "",
     {{"layout.tp", {"1", "2"}},
      {"layout.pp", {"1", "2", "4"}},
      {"layout.vpp", {"1", "2"}},
      {"options.recompute",
       {"{\"granularity\": \"full\", \"method\": \"block\", \"num_layers\": 1}",
        "{\"granularity\": \"full\", \"method\": \"uniform\", \"num_layers\": 2}", "{\"granularity\": \"none\"}"}},
      {"options.exp_avg_dtype", {"\"fp32\"", "\"bf16\""}}},
     FALSE},
    {"context and overlap",
     LLAMA,
     "h100-sxm",
     8,
     8192,
     16,
     BF16 ONE,
     "\"account_for_loss_in_pipeline_split\": true, " DENSE,
     PLAIN,
     {{"layout.tp", {"1", "2"}},
      {"layout.cp", {"1", "2"}},
      {"layout.pp", {"1", "2"}},
      {"layout.vpp", {"1"}},
      {"layout.cp_comm_type", {"\"a2a\"", "\"p2p\"", "\"all_gather\""}},
      {"options.tp_comm_overlap", {"true", "false"}},
      {"options.overlap_grad_reduce", {"true", "false"}}},
     FALSE},
    {"experts beside each other",
     GPT_OSS,
     "h100-sxm",
     8,
     2048,
     32,
     BF16,
     COUNTED "\"etp\": 1, ",
     "",
     {{"training.micro_batch_size", {"1", "2"}},
      {"layout.tp", {"1"}},
      {"layout.pp", {"1", "2"}},
      {"layout.vpp", {"1", "2"}},
      {"layout.ep", {"2", "4"}},
      {"options.ep_overlap", {"true", "false"}},
      {"options.recompute",
       {"{\"granularity\": \"selective\", \"modules\": [\"moe_act\"]}", "{\"granularity\": \"full\"}"}},
      {"options.cuda_graph_scope", {"[]", "[\"attn\"]"}}},
     FALSE},
};

/* A model whose head is as dear as some layers. */
static const Space own_cuts = {"own cuts",
                               LLAMA,
                               "h100-sxm",
                               4,
                               2048,
                               16,
                               BF16 ONE,
                               "\"cp\": 1, " DENSE,
                               "",
                               {{"layout.tp", {"1", "2"}},
                                {"layout.pp", {"2", "4"}},
                                {"layout.vpp", {"1"}},
                                {"options.recompute",
                                 {"{\"granularity\": \"full\"}", "{\"granularity\": \"none\"}",
                                  "{\"granularity\": \"selective\", \"modules\": [\"mlp\"]}"}},
                                {"options.exp_avg_dtype", {"\"fp32\"", "\"bf16\""}}},
                               TRUE};

static int n_values(const Space *s, int key) {
  int n = 0;
  while (n < MOST_VALUES && s->open[key].value[n]) n++;
  return n;
}

static int n_keys(const Space *s) {
  int n = 0;
  while (n < MOST_KEYS && s->open[n].path) n++;
  return n;
}

/* Members of one object of the document: a list of values of each open key, or the one that `index` picks. */
static char *members(const Space *s, const char *object, const int *index) {
  GString *text = g_string_new(NULL);
  for (int k = 0; k < n_keys(s); k++) {
    const char *dot = strchr(s->open[k].path, '.');
    if (strncmp(s->open[k].path, object, (size_t)(dot - s->open[k].path)) != 0) continue;
    g_string_append_printf(text, "%s\"%s\": %s", text->len ? ", " : "", dot + 1, index ? "" : "[");
    for (int i = 0; i < n_values(s, k); i++)
      if (!index || index[k] == i) g_string_append_printf(text, "%s%s", !index && i ? ", " : "", s->open[k].value[i]);
    if (!index) g_string_append_c(text, ']');
  }
  return g_string_free(text, FALSE);
}

/* The request, or with `index` one scenario of it. (transfer full) */
static char *document(const Space *s, const int *index) {
  g_autofree char *training = members(s, "training", index), *layout = members(s, "layout", index),
                  *options = members(s, "options", index);
  return g_strdup_printf("{\"name\": \"%s\", \"model\": %s, \"hardware\": \"%s\", \"gpus\": %d, \"training\": "
                         "{%s%s%s\"seq_length\": %d, \"global_batch_size\": %d}, \"layout\": {%s%s}, "
                         "\"options\": {%s%s%s\"deterministic_mode\": false}}",
                         s->name, s->model, s->hardware, s->gpus, s->training, training, *training ? ", " : "", s->seq,
                         s->batch, s->layout, layout, s->options, options, *options ? ", " : "");
}

typedef struct {
  double step_s, device_B;
} Run;

static int by_step(const void *a, const void *b) {
  double x = ((const Run *)a)->step_s, y = ((const Run *)b)->step_s;
  return (x > y) - (x < y);
}

/* Every scenario that obeys the rules, by step time. */
static GArray *every_run(const Space *s, int *refused) {
  GArray *runs = g_array_new(FALSE, FALSE, sizeof(Run));
  int index[MOST_KEYS] = {0}, keys = n_keys(s);
  for (int k = 0; k < keys;) {
    g_autofree char *text = document(s, index);
    g_autoptr(MsScenario) scenario = ms_test_scenario_of(text);
    if (ms_layout_check(scenario, NULL)) {
      g_autoptr(MsResult) result = ms_test_simulate(scenario, MS_FIDELITY_FULL);
      const Run run = {result->step_time_s, ms_device_B(result)};
      g_array_append_val(runs, run);
    } else {
      ++*refused;
    }
    for (k = 0; k < keys && ++index[k] == n_values(s, k); k++) index[k] = 0;
  }
  g_array_sort(runs, by_step);
  return runs;
}

/* The list has the step times of the runs that fit, whichever of two runs with one time it names; all of them, or as
 * many as it takes. */
static void compare(const Space *s, const GArray *runs, const MsPlan *plan, double limit_B, const char *way, int top) {
  int at = 0;
  double last_s = 0;
  for (guint i = 0; i < runs->len && at < top; i++) {
    const Run *run = &g_array_index(runs, Run, i);
    if (run->device_B > limit_B || run->step_s == last_s) continue;
    last_s = run->step_s;
    if (at >= plan->n_best || plan->best[at].result->step_time_s != last_s)
      fail_msg("%s, %s, %.9g GB: a run takes %.12g s, the list has %.12g s in its place %d of %d", s->name, way,
               limit_B / 1e9, last_s, at < plan->n_best ? plan->best[at].result->step_time_s : 0.0, at, plan->n_best);
    while (at < plan->n_best && plan->best[at].result->step_time_s == last_s) at++;
  }
  if (at < plan->n_best)
    fail_msg("%s, %s, %.9g GB: no run takes %.12g s (%s)", s->name, way, limit_B / 1e9,
             plan->best[at].result->step_time_s, plan->best[at].scenario->name);
  assert_true(at > 0);
}

/* (transfer full) */
static MsRequest *request_of(const Space *s, double limit_B) {
  g_autofree char *text = document(s, NULL);
  MsRequest *request = ms_test_request_of(text);
  if (limit_B > 0) request->max_memory_fraction = limit_B * (1 + 1e-9) / request->base->hardware->hbm_B;
  return request;
}

static MsPlan *planned(const MsRequest *request, const MsPlanOptions *options) {
  GError *error = NULL;
  MsPlan *plan = ms_plan(request, options, &error);
  if (!plan) fail_msg("%s: %s", request->base->name, error->message);
  return plan;
}

static int by_number(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

enum { ALL = 10000 };

/* With memory for all of them, then for fewer, then for those that need least. */
static void under_every_limit(const Space *s, const GArray *runs) {
  static const int tops[] = {5, ALL};
  g_autofree double *needed = g_new(double, runs->len);
  for (guint i = 0; i < runs->len; i++) needed[i] = g_array_index(runs, Run, i).device_B;
  qsort(needed, runs->len, sizeof *needed, by_number);
  int steps = ms_by_tier(2, 8);
  for (int k = 0; k <= steps; k++) {
    double limit_B = needed[(runs->len - 1) * (guint)(steps - k) / (guint)steps];
    g_autoptr(MsRequest) request = request_of(s, limit_B);
    for (int way = 0; way < 2 * (int)G_N_ELEMENTS(tops); way++) {
      const MsPlanOptions options = {.top = tops[way / 2], .prune = TRUE, .branch = way % 2, .threads = 1};
      g_autoptr(MsPlan) plan = planned(request, &options);
      compare(s, runs, plan, limit_B * (1 + 1e-9), way % 2 ? "branched" : "one by one", options.top);
    }
  }
}

static void lists_have_every_run(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(spaces); i++) {
    int refused = 0;
    if (!ms_by_tier(spaces[i].quick, TRUE)) continue;
    g_autoptr(GArray) runs = every_run(&spaces[i], &refused);
    if (runs->len < 8) fail_msg("%s: %u runs, %d refused", spaces[i].name, runs->len, refused);
    under_every_limit(&spaces[i], runs);
  }
}

/* Where the planner cuts the layers itself, and what is recomputed moves the cut, a search that takes no shortcut says
 * what there is. */
static void own_cuts_are_found(void **state) {
  (void)state;
  const Space *s = &own_cuts;
  g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(Run));
  g_autoptr(MsRequest) request = request_of(s, 0);
  const MsPlanOptions options = {.top = ALL, .without = (1u << MS_N_SHORT) - 1, .threads = 1};
  g_autoptr(MsPlan) all = planned(request, &options);
  for (int i = 0; i < all->n_best; i++) {
    const Run run = {all->best[i].result->step_time_s, ms_device_B(all->best[i].result)};
    g_array_append_val(runs, run);
  }
  assert_true(runs->len > 20);
  under_every_limit(s, runs);
}

static void stop_soon(const MsPlan *so_far, double done, gpointer user) {
  (void)so_far, (void)done;
  int *left = user;
  if ((*left)-- == 0) raise(SIGINT);
}

/* Stopped after any number of rounds, no layout undercuts what is said to be proven. */
static void stopped_searches_prove_what_they_say(void **state) {
  (void)state;
  int stopped = 0;
  for (guint i = 0; i < G_N_ELEMENTS(spaces); i++) {
    if (!ms_by_tier(spaces[i].quick, TRUE)) continue;
    g_autoptr(MsRequest) request = request_of(&spaces[i], 0);
    MsPlanOptions options = {.top = 1, .prune = TRUE, .branch = TRUE, .threads = 1};
    ms_interrupt_install(INFINITY);
    g_autoptr(MsPlan) whole = planned(request, &options);
    for (int rounds = 0; rounds < 8; rounds++) {
      int left = rounds;
      options.watch = stop_soon, options.watch_user = &left;
      ms_interrupt_install(INFINITY);
      g_autoptr(MsPlan) plan = planned(request, &options);
      stopped += plan->interrupted;
      if (plan->lower_cost > whole->best[0].result->step_time_s)
        fail_msg("%s, stopped after %d rounds: %.9g s are proven, there is %.9g s", spaces[i].name, rounds + 1,
                 plan->lower_cost, whole->best[0].result->step_time_s);
    }
  }
  ms_interrupt_install(INFINITY); /* for those that follow */
  assert_true(stopped > 4);
}

/* Layouts that take the same time stand in the order in which the request names them. */
static void equal_layouts_stand_as_named(void **state) {
  (void)state;
  static const char *const words[] = {"bf16", "fp32"};
  for (int first = 0; first < 2; first++)
    for (int branch = 0; branch < 2; branch++) {
      g_autofree char *options =
          g_strdup_printf("\"grad_reduce_dtype\": [\"%s\", \"%s\"]", words[first], words[1 - first]);
      g_autofree char *text = ms_test_request_text(LLAMA, "\"h100-sxm\"", "2", ONE BF16 "\"global_batch_size\": 8",
                                                   "\"tp\": [2], \"pp\": 1", options); /* nobody to reduce with */
      g_autoptr(MsRequest) request = ms_test_request_of(text);
      const MsPlanOptions all = {.top = 2, .prune = TRUE, .branch = branch, .threads = 1};
      g_autoptr(MsPlan) plan = planned(request, &all);
      assert_int_equal(plan->n_best, 2);
      assert_true(plan->best[0].result->step_time_s == plan->best[1].result->step_time_s);
      for (int i = 0; i < 2; i++)
        assert_string_equal(ms_dtype_words[plan->best[i].scenario->options.grad_reduce_dtype], words[i ^ first]);
    }
}

/* With TP 1 an overlap of its messages is no different from none, but deterministic_mode refuses it: what stands for
 * both is the one that runs, in whichever order they are named. */
static void what_runs_stands_for_what_does_not(void **state) {
  (void)state;
  static const char *const options[] = {
      "\"deterministic_mode\": true, \"cross_entropy_fusion\": false, \"tp_comm_overlap\": [true, false]",
      "\"deterministic_mode\": true, \"cross_entropy_fusion\": false, \"tp_comm_overlap\": [false, true]"};
  for (int order = 0; order < 2; order++)
    for (int branch = 0; branch < 2; branch++) {
      g_autofree char *text = ms_test_request_text(LLAMA, "\"h100-sxm\"", "8", ONE BF16 "\"global_batch_size\": 8",
                                                   "\"tp\": [1], \"cp\": 1, \"pp\": 1", options[order]);
      g_autoptr(MsRequest) request = ms_test_request_of(text);
      const MsPlanOptions all = {.top = 2, .prune = TRUE, .branch = branch, .threads = 1};
      g_autoptr(MsPlan) plan = planned(request, &all);
      assert_int_equal(plan->n_best, 1);
      assert_false(plan->best[0].scenario->options.tp_comm_overlap);
    }
}

/* The same of dispatchers without anybody to talk to: the all-gather one does not overlap a shared expert. */
static void dispatcher_that_runs_stands(void **state) {
  (void)state;
  static const char *const dispatchers[] = {"[\"allgather\", \"alltoall\"]", "[\"alltoall\", \"allgather\"]",
                                            "[\"allgather\", \"hybridep\", \"alltoall\"]"};
  for (guint order = 0; order < G_N_ELEMENTS(dispatchers); order++)
    for (int branch = 0; branch < 2; branch++) {
      g_autofree char *options =
          g_strdup_printf("\"moe_shared_expert_overlap\": true, \"dispatcher\": %s", dispatchers[order]);
      g_autofree char *text = ms_test_request_text("{\"base\": \"qwen2-57b-a14b\", \"num_layers\": 2}", "\"h100-sxm\"",
                                                   "8", ONE BF16 "\"global_batch_size\": 8",
                                                   "\"tp\": [1], \"cp\": 1, \"pp\": 1, \"ep\": 1, \"etp\": 1", options);
      g_autoptr(MsRequest) request = ms_test_request_of(text);
      const MsPlanOptions all = {.top = 2, .prune = TRUE, .branch = branch, .threads = 1};
      g_autoptr(MsPlan) plan = planned(request, &all);
      assert_int_equal(plan->n_best, 1);
      assert_int_equal(plan->best[0].scenario->options.dispatcher, MS_DISPATCH_ALLTOALL);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dispatcher_that_runs_stands),
                                     cmocka_unit_test(what_runs_stands_for_what_does_not),
                                     cmocka_unit_test(lists_have_every_run),
                                     cmocka_unit_test(own_cuts_are_found),
                                     cmocka_unit_test(stopped_searches_prove_what_they_say),
                                     cmocka_unit_test(equal_layouts_stand_as_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
