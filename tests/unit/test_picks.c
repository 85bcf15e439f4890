/* What a plan offers to choose from: each pick is what its name says, as any search would find it, and all that is
 * printed of it is what was predicted. */
#include "lib/close.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "report/report.h"
#include "study/parts.h"
#include "study/picks.h"

#include <glib/gstdio.h>
#include <string.h>

static MsRequest *experts(const char *gpus, const char *plan) {
  g_autofree char *text = ms_test_request_text("{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "\"h100-sxm\"", gpus,
                                               "\"global_batch_size\": 64, \"micro_batch_size\": \"auto\"",
                                               "\"cp\": 1, \"etp\": 1",
                                               "\"recompute\": \"auto\", \"dispatcher\": \"auto\", "
                                               "\"cuda_graph_scope\": \"auto\", \"ep_overlap\": \"auto\""),
                  *with = g_strdup_printf("%.*s, \"plan\": %s}", (int)strlen(text) - 1, text, plan);
  return ms_test_request_of(with);
}

typedef struct {
  MsPlan *plan;
  MsRobust *robust;
  MsPicks *picks;
} Picked;

static Picked picked(const MsRequest *request, int threads, const MsDisturbances *under) {
  GError *error = NULL;
  MsPlanOptions options = {.top = 10, .prune = TRUE, .threads = threads};
  Picked p = {.plan = ms_plan(request, &options, &error)};
  if (p.plan && under) p.robust = ms_robust(p.plan, options.top, under, &options, &error);
  if (p.plan) p.picks = ms_picks_new(request, p.plan, NULL, p.robust, &options, &error);
  if (!p.picks) fail_msg("%s", error ? error->message : "nothing was picked");
  return p;
}

static void picked_clear(Picked *p) {
  ms_picks_free(p->picks);
  if (p->robust) ms_robust_free(p->robust);
  ms_plan_free(p->plan);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Picked, picked_clear)

static MsRequest *sixteen; /* of 16 GPUs, and what is picked of it: of several tests */
static Picked usual;

static int plan_once(void **state) {
  (void)state;
  sixteen = experts("16", "{}"), usual = picked(sixteen, 2, NULL);
  return 0;
}

static int forget(void **state) {
  (void)state;
  picked_clear(&usual), ms_request_free(sixteen);
  return 0;
}

static const MsPick *of_kind(const MsPicks *p, MsPickKind kind) {
  const MsPick *found = NULL;
  for (int i = 0; i < p->n; i++)
    if (p->pick[i].kinds & (1u << kind)) {
      assert_null(found); /* one layout for each kind */
      found = &p->pick[i];
    }
  return found;
}

/* Its figures are those of its scenario, run by itself; its differences those from the first. */
static void check_figures(const MsPicks *p) {
  const MsResult *first = p->pick[0].entry->result;
  for (int i = 0; i < p->n; i++) {
    const MsPick *pick = &p->pick[i];
    g_autoptr(MsResult) full = ms_test_simulate(pick->entry->scenario, MS_FIDELITY_FULL);
    assert_true(pick->entry->result->step_time_s == full->step_time_s && full->feasible);
    assert_close(pick->slower, i ? full->step_time_s / first->step_time_s - 1 : 0, 1e-12);
    assert_close(pick->more_free_B, ms_device_B(first) - ms_device_B(full), 1e-9);
    assert_int_equal(pick->change != NULL, i > 0);
    if (i > 0) assert_true(pick->change->n_keys > 0);
    gboolean same_gpus = pick->entry->scenario->gpus == p->pick[0].entry->scenario->gpus;
    assert_int_equal(pick->tied, i > 0 && same_gpus && ABS(pick->slower) <= p->noise);
  }
}

static void picks_are_what_they_are_called(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  const Picked p = usual;
  g_auto(Picked) again = picked(sixteen, 1, NULL);
  const MsPick *fastest = of_kind(p.picks, MS_PICK_FASTEST), *memory = of_kind(p.picks, MS_PICK_MEMORY),
               *simple = of_kind(p.picks, MS_PICK_SIMPLEST);
  assert_true(fastest == &p.picks->pick[0] && fastest->entry == &p.plan->best[0]);
  assert_true(of_kind(p.picks, MS_PICK_CHEAPEST) == fastest);
  assert_null(of_kind(p.picks, MS_PICK_ROBUST));
  assert_non_null(memory);
  assert_non_null(simple);
  assert_true(memory->more_free_B >= MS_PICK_SAVES * ms_device_B(fastest->entry->result));
  const MsScenario *s = simple->entry->scenario;
  assert_true(s->layout.vpp == 1 && s->options.cuda_graph_scope == 0 && !s->options.ep_overlap &&
              s->options.dispatcher == MS_DISPATCH_ALLTOALL);
  check_figures(p.picks);
  g_autofree char *text = ms_report_picks(sixteen, p.plan, p.picks),
                  *other = ms_report_picks(sixteen, again.plan, again.picks);
  assert_string_equal(text, other); /* on one thread and two */
  g_auto(GStrv) line = g_strsplit(text, "\n", -1);
  for (int i = 0; line[i]; i++) assert_true(strlen(line[i]) <= MS_TEXT_COLUMNS);
}

/* A plan that is closed but for the winner's own sizes finds nothing simpler than what was found. */
static void nothing_simple_is_faster(void **state) {
  (void)state;
  const Picked p = usual;
  g_autofree char *text = ms_test_request_text("{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}", "\"h100-sxm\"", "16",
                                               "\"global_batch_size\": 64, \"micro_batch_size\": \"auto\"",
                                               "\"cp\": 1, \"etp\": 1, \"vpp\": 1",
                                               "\"recompute\": \"auto\", \"dispatcher\": \"alltoall\"");
  g_autoptr(MsRequest) plain = ms_test_request_of(text);
  g_autoptr(MsPlan) plan = ms_plan(plain, &(MsPlanOptions){.top = 1, .prune = TRUE, .threads = 2}, NULL);
  assert_non_null(plan);
  assert_close(plan->best[0].result->step_time_s, of_kind(p.picks, MS_PICK_SIMPLEST)->entry->result->step_time_s,
               0.005);
}

/* Where the number of GPUs is searched, the fastest and the cheapest are two questions. */
static void gpus_are_a_choice(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  g_autoptr(MsRequest) request = experts("[8, 16, 32]", "{\"objective\": \"tokens_per_s_per_gpu\"}");
  g_auto(Picked) p = picked(request, 2, NULL);
  const MsPick *fastest = of_kind(p.picks, MS_PICK_FASTEST), *cheapest = of_kind(p.picks, MS_PICK_CHEAPEST);
  assert_true(cheapest == &p.picks->pick[0] && fastest && fastest != cheapest);
  assert_int_equal(fastest->entry->scenario->gpus, 32);
  assert_true(fastest->slower < 0 && fastest->gpu_time > 0 && !fastest->tied);
  check_figures(p.picks);
}

static void disturbances_choose(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  GError *error = NULL;
  g_autoptr(MsDisturbances) under = ms_disturbances_load(MS_SOURCE_DIR "/scenarios/under/common.json", &error);
  if (!under) fail_msg("%s", error->message);
  g_auto(Picked) p = picked(sixteen, 2, under);
  const MsPick *robust = of_kind(p.picks, MS_PICK_ROBUST);
  assert_non_null(robust);
  MsComparison *c = ms_compare(robust->entry->scenario, robust->entry->result, p.robust->row[0].entry->scenario,
                               p.robust->row[0].entry->result);
  assert_int_equal(c->n_keys, 0);
  ms_comparison_free(c);
}

/* Of a ranking of near-copies only what differs in kind is offered, and how many are left out is said. */
static void copies_are_counted(void **state) {
  (void)state;
  const Picked p = usual;
  int copies = 0;
  const MsScenario *first = p.plan->best[0].scenario;
  for (int i = 1; i < p.plan->n_best; i++) {
    const MsScenario *s = p.plan->best[i].scenario;
    copies += memcmp(&s->layout.tp, &first->layout.tp, 6 * sizeof(int)) == 0 &&
              g_strcmp0(s->layout.pipeline_layout, first->layout.pipeline_layout) == 0 &&
              s->training.micro_batch_size == first->training.micro_batch_size &&
              s->options.ep_overlap == first->options.ep_overlap;
  }
  assert_int_equal(p.picks->copies, copies);
  assert_true(copies == 0 ||
              p.picks->copies_within <=
                  p.plan->best[p.plan->n_best - 1].result->step_time_s / p.plan->best[0].result->step_time_s - 1);
}

/* --- advice ------------------------------------------------------------------------------------------------------ */
static const char *said(const MsPicks *p, const char *words) {
  for (int i = 0; i < p->n_advice; i++)
    if (strstr(p->advice[i], words)) return p->advice[i];
  return NULL;
}

/* A pipeline with few microbatches is told what twice the batch gains, which is what that run takes; one with many is
 * not. */
static void a_small_batch_is_told(void **state) {
  (void)state;
  static const char *const batch[] = {"\"global_batch_size\": 16", "\"global_batch_size\": 1024"};
  for (int many = 0; many < 2; many++) {
    g_autofree char *text =
        ms_test_request_text("\"llama3-8b\"", "\"h100-sxm\"", "8", batch[many], "\"pp\": 4, \"tp\": 1", "");
    g_autoptr(MsRequest) request = ms_test_request_of(text);
    g_auto(Picked) p = picked(request, 1, NULL);
    const char *line = said(p.picks, "a batch of ");
    assert_true((line == NULL) == many);
    if (many) continue;
    g_autoptr(MsScenario) more = ms_scenario_copy(p.plan->best[0].scenario, TRUE);
    more->training.global_batch_size = 32;
    g_autoptr(MsResult) r = ms_test_simulate(more, MS_FIDELITY_FULL);
    g_autofree char *gain = g_strdup_printf("with 32, if the training bears it, 1 trains %.1f %% more tokens a second",
                                            100 * (2 * p.plan->best[0].result->step_time_s / r->step_time_s - 1));
    assert_non_null(strstr(line, gain));
  }
}

/* Memory to spare is offered where the first is tight and another costs little, the simplest where it costs little. */
static void advice_pays(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  int offered = 0, withheld = 0;
  g_autofree char *dense = ms_test_request_text("\"llama3-8b\"", "\"h100-sxm\"", "4", "\"global_batch_size\": 64", "",
                                                "\"recompute\": \"auto\"");
  for (int k = 0; k < 3; k += ms_by_tier(2, 1)) {
    g_autoptr(MsRequest) request = k == 2 ? ms_test_request_of(dense) : experts(k ? "32" : "8", "{}");
    g_auto(Picked) p = picked(request, 2, NULL);
    const MsResult *first = p.plan->best[0].result;
    for (int i = 1; i < p.picks->n; i++) {
      const MsPick *pick = &p.picks->pick[i];
      if (pick->kinds & 1u << MS_PICK_MEMORY) {
        gboolean pays = ms_device_B(first) >= 0.8 * first->capacity_B && pick->slower <= MS_PICK_LOSS;
        assert_true(pays == (said(p.picks, "of the memory is used") != NULL));
        if (pays) offered++;
        else withheld++;
      } else if (pick->kinds & 1u << MS_PICK_SIMPLEST)
        assert_true((pick->slower <= MS_PICK_LOSS) == (said(p.picks, "needs less to be set up") != NULL));
    }
  }
  print_message("memory offered %d times, withheld %d times\n", offered, withheld);
  assert_true(offered > 0 && withheld > 0);
}

/* What to do with a layout that the user names: faster than the winner it has what the request does not leave open, or
 * does not fit. */
static void the_named_is_told(void **state) {
  (void)state;
  static const char *const told[][2] = {
      {"\"micro_batch_size\": 1, \"precision\": \"fp8-tensorwise\"", " % faster than 1: keep it, or open what"},
      {"\"micro_batch_size\": 8", " more of a GPU than a plan may use"},
      {"\"micro_batch_size\": 1", "is as fast as 1 ("}};
  g_autofree char *folder = g_dir_make_tmp("moesim-picks-XXXXXX", NULL),
                  *file = g_build_filename(folder, "it.json", NULL);
  const char *layout = "\"tp\": 2";
  g_autofree char *batch = g_strconcat("\"global_batch_size\": 64, ", told[2][0], NULL),
                  *asked = ms_test_request_text("\"llama3-8b\"", "\"h100-sxm\"", "8", batch, layout, "");
  g_autoptr(MsRequest) request = ms_test_request_of(asked);
  MsPlanOptions options = {.top = 1, .prune = TRUE, .threads = 1};
  g_autoptr(MsPlan) plan = ms_plan(request, &options, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(told); i++) {
    g_autofree char *training = g_strconcat("\"global_batch_size\": 64, ", told[i][0], NULL),
                    *named = ms_test_request_text("\"llama3-8b\"", "\"h100-sxm\"", "8", training, layout, "");
    assert_true(g_file_set_contents(file, named, -1, NULL));
    g_autoptr(MsReasons) reasons = ms_reasons_new(request, plan, &options, FALSE, file, NULL);
    assert_non_null(reasons);
    g_autoptr(MsPicks) picks = ms_picks_new(request, plan, reasons, NULL, &options, NULL);
    if (!said(picks, told[i][1])) fail_msg("%s: %s", told[i][0], picks->advice[1]);
  }
  g_remove(file), g_rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(picks_are_what_they_are_called),
                                     cmocka_unit_test(nothing_simple_is_faster),
                                     cmocka_unit_test(gpus_are_a_choice),
                                     cmocka_unit_test(disturbances_choose),
                                     cmocka_unit_test(copies_are_counted),
                                     cmocka_unit_test(a_small_batch_is_told),
                                     cmocka_unit_test(advice_pays),
                                     cmocka_unit_test(the_named_is_told)};
  return cmocka_run_group_tests_name("picks", tests, plan_once, forget);
}
