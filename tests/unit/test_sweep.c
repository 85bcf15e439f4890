/* Several clusters and models in one request, and the front of step time, free memory and GPUs against all layouts of a
 * small space. */
#include "lib/close.h"
#include "lib/plan_requests.h"
#include "lib/tier.h"
#include "lib/world.h"

#include "base/err.h"
#include "base/io.h"
#include "report/report.h"
#include "study/parts.h"
#include "study/sweep.h"

#include <math.h>
#include <signal.h>
#include <string.h>

static char *request_text(const char *model, const char *hardware, const char *gpus) {
  return ms_test_request_text(
      model, hardware, gpus, "\"micro_batch_size\": [1, 2], \"global_batch_size\": 64",
      "\"tp\": [1, 2, 4], \"cp\": 1, \"pp\": [1, 2, 4], \"vpp\": 1, \"ep\": [2, 4, 8], \"etp\": 1",
      "\"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}]");
}

#define MIXTRAL "{\"base\": \"mixtral-8x7b\", \"num_layers\": 8}"
#define QWEN    "{\"base\": \"qwen3-30b-a3b\", \"num_layers\": 8}"

static GPtrArray *requests_of(const char *model, const char *hardware, const char *gpus, GError **error) {
  g_autofree char *text = request_text(model, hardware, gpus);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, "request", error);
  return doc ? ms_requests_from_doc(doc, error) : NULL;
}

static const MsPlanOptions few = {.top = 2, .prune = TRUE, .threads = 2};

static void lists_are_multiplied(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of(
      "[" MIXTRAL ", " QWEN "]", "[\"h100-sxm\", {\"base\": \"b200-sxm\", \"nic_Bps\": 2e10}]", "[8, 16, 32]", &error);
  if (!r) fail_msg("%s", error->message);
  assert_int_equal(r->len, 12);
  for (guint i = 0; i < 12; i++) {
    const MsScenario *s = ((MsRequest *)g_ptr_array_index(r, i))->base;
    assert_string_equal(s->model->name, i < 6 ? "mixtral-8x7b" : "qwen3-30b-a3b");
    assert_string_equal(s->hardware->name, i / 3 % 2 == 0 ? "h100-sxm" : "b200-sxm");
    assert_int_equal(s->gpus, 8 << (i % 3));
  }
  g_autoptr(GPtrArray) one = requests_of(MIXTRAL, "\"h100-sxm\"", "16", &error);
  assert_int_equal(one->len, 1);
}

#define FABRIC(placement)                                                                                      \
  "{\"base\": \"h100-sxm\", \"fabric\": {\"kind\": \"fat-tree\", \"leaf_nodes\": 2, \"oversubscription\": 8, " \
  "\"placement\": " placement "}}"

/* Words of a placement are planned one by one, under names that say them; numbers are the nodes of one job. */
static void placements_are_planned(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of(MIXTRAL, FABRIC("[\"scattered\", \"contiguous\"]"), "32", &error);
  if (!r) fail_msg("%s", error->message);
  assert_int_equal(r->len, 2);
  const MsScenario *drawn = ((MsRequest *)g_ptr_array_index(r, 0))->base;
  assert_string_equal(drawn->hardware->name, "h100-sxm scattered");
  assert_int_equal(ms_fabric_seating(&drawn->hardware->fabric), MS_SEAT_SCATTERED);
  g_autoptr(MsSweep) s = ms_sweep(r, &few, NULL, NULL);
  assert_int_equal(s->n_cells, 2);
  for (int i = 0; i < 2; i++) { /* each is what its word alone gives */
    g_autoptr(GPtrArray) one =
        requests_of(MIXTRAL, i == 0 ? FABRIC("\"scattered\"") : FABRIC("\"contiguous\""), "32", &error);
    g_autoptr(MsPlan) plan = ms_plan(g_ptr_array_index(one, 0), &few, &error);
    assert_true(plan->best[0].result->step_time_s == s->cell[i].plan->best[0].result->step_time_s);
  }
  g_autoptr(GPtrArray) nodes = requests_of(MIXTRAL, FABRIC("[0, 1, 3, 2]"), "32", &error);
  assert_int_equal(nodes->len, 1);
  assert_null(requests_of(MIXTRAL, FABRIC("[\"scattered\", 3]"), "32", &error));
  assert_string_equal(error->message, "request:1: hardware.fabric.placement: must be a word or a list of nodes");
  g_clear_error(&error);
}

static void refused(const char *gpus, const char *want) {
  GError *error = NULL;
  GPtrArray *r = requests_of(MIXTRAL, "\"h100-sxm\"", gpus, &error);
  assert_null(r);
  assert_string_equal(error->message, want);
  g_clear_error(&error);
}

static void bad_lists(void **state) {
  (void)state;
  refused("[]", "request:1: gpus: is a list of 0 values, must hold 1 to 256");
  refused("[8, 0]", "request:1: gpus: is 0, must be in [1, 1048576]");
  refused("[8, \"many\"]", "request:1: gpus: is the string \"many\", must be an integer");
  GString *many = g_string_new("[1");
  for (int i = 2; i <= 257; i++) g_string_append_printf(many, ", %d", i);
  g_string_append_c(many, ']');
  refused(many->str, "request:1: gpus: is a list of 257 values, must hold 1 to 256");
  g_string_free(many, TRUE);
}

/* A cell is the plan of its request; one that cannot be planned says why and does not stop the others. */
static void cells_are_plans(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) r =
      requests_of(MIXTRAL, "[\"h100-sxm\", {\"base\": \"h100-sxm\", \"peak_bf16_flops\": null}]", "[16, 32]", &error);
  g_autoptr(MsSweep) s = ms_sweep(r, &few, NULL, NULL);
  assert_true(s->n_cells == 4 && s->n_points == 0);
  for (int i = 0; i < 2; i++) {
    g_autoptr(MsPlan) plan = ms_plan(g_ptr_array_index(r, i), &few, &error);
    assert_int_equal(s->cell[i].plan->n_best, 2);
    for (int k = 0; k < 2; k++)
      assert_close(s->cell[i].plan->best[k].result->step_time_s, plan->best[k].result->step_time_s, 0);
  }
  for (int i = 2; i < 4; i++) assert_true(!s->cell[i].plan && strstr(s->cell[i].why, "peak_bf16_flops is unknown"));
}

static void dominance(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of("[" MIXTRAL ", " QWEN "]", "\"h100-sxm\"", "16", &error);
  const MsSweepCell cell[] = {{.request = g_ptr_array_index(r, 0)}, {.request = g_ptr_array_index(r, 1)}};
  MsParetoPoint p[] = {
      {.step_time_s = 1, .free_B = 10, .gpus = 16}, {.step_time_s = 2, .free_B = 20, .gpus = 16},
      {.step_time_s = 2, .free_B = 10, .gpus = 16}, {.step_time_s = 2, .free_B = 10, .gpus = 8},
      {.step_time_s = 1, .free_B = 10, .gpus = 16}, {.cell = 1, .step_time_s = 9, .free_B = 1, .gpus = 99}};
  ms_pareto_mark(cell, p, G_N_ELEMENTS(p));
  const gboolean want[] = {TRUE, TRUE, FALSE, TRUE, TRUE /* equal to the first */, TRUE /* another model */};
  for (guint i = 0; i < G_N_ELEMENTS(p); i++) assert_int_equal(p[i].on_front, want[i]);
}

/* Against every layout that fits: no point is beaten by one, and no layout is better than all points by more than the
 * step of memory. */
static void front_of_all_layouts(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of(MIXTRAL, "\"h100-sxm\"", "[8, 16]", &error);
  g_autoptr(MsSweep) s = ms_sweep(r, &few, &(MsSweepAsked){.front = TRUE}, NULL);
  double step_B = MS_SWEEP_STEP * ((MsRequest *)g_ptr_array_index(r, 0))->base->hardware->hbm_B * (1 + 1e-9);
  assert_true(s->n_points >= 4);
  for (int c = 0; c < s->n_cells; c++) {
    g_autoptr(MsPlan) all =
        ms_plan(s->cell[c].request, &(MsPlanOptions){.top = 10000, .prune = FALSE, .threads = 2}, &error);
    assert_true(all->n_best > 10);
    for (int i = 0; i < all->n_best; i++) {
      double time_s = all->best[i].result->step_time_s, device_B = ms_device_B(all->best[i].result);
      gboolean covered = FALSE;
      for (int k = 0; k < s->n_points; k++) {
        const MsParetoPoint *p = &s->point[k];
        if (p->cell != c) continue;
        covered |= p->step_time_s <= time_s && p->device_B <= device_B + step_B;
        if (p->on_front)
          assert_true(p->step_time_s <= time_s || p->device_B < device_B ||
                      (p->device_B == device_B && p->step_time_s <= time_s));
      }
      assert_true(covered);
    }
  }
  for (int k = 1; k < s->n_points; k++) {
    const MsParetoPoint *a = &s->point[k - 1], *b = &s->point[k];
    assert_true(a->gpus < b->gpus || (a->gpus == b->gpus && a->step_time_s <= b->step_time_s));
    if (a->cell == b->cell) assert_true(a->device_B > b->device_B);
  }
}

/* The front of one search has the points of one plan after the other: the way of requests that are branched. */
static guint same_front(const MsRequest *of, double limit) {
  MsRequest request = *of; /* only read */
  MsPlanOptions branched = few;
  request.max_memory_fraction = limit, branched.branch = TRUE;
  gboolean stopped = TRUE, stopped_too = TRUE;
  double step = MS_SWEEP_STEP;
  GError *error = NULL;
  g_autoptr(GArray) one = ms_plan_front(&request, &few, ms_front_step, &step, &stopped, &error),
                    many = ms_plan_front(&request, &branched, ms_front_step, &step, &stopped_too, &error);
  assert_true(one && many && !stopped && !stopped_too);
  assert_int_equal(one->len, many->len);
  guint points = one->len;
  for (guint i = 0; i < points; i++) {
    MsFrontPoint *p = &g_array_index(one, MsFrontPoint, i), *q = &g_array_index(many, MsFrontPoint, i);
    assert_string_equal(p->scenario->name, q->scenario->name);
    assert_true(p->step_time_s == q->step_time_s && p->device_B == q->device_B);
    assert_true(p->proven_within == 0 && q->proven_within == 0 && !p->interrupted && !q->interrupted);
    ms_scenario_free(p->scenario), ms_scenario_free(q->scenario);
  }
  return points;
}

static void front_of_one_search(void **state) {
  (void)state;
  static const double limits[] = {1, 0.6};
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of(MIXTRAL, "\"h100-sxm\"", "16", &error);
  for (guint k = 0; k < G_N_ELEMENTS(limits); k++) assert_true(same_front(g_ptr_array_index(r, 0), limits[k]) >= 2);
  for (guint i = 1; i < ms_n_small_requests; i += (guint)ms_by_tier(16, 1)) {
    g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[i]);
    assert_true(same_front(request, 1) >= 2);
  }
}

typedef struct {
  int left; /* lists that are shown before Ctrl-C */
} Patience;

static void stop_when_found(const MsPlan *so_far, double done, gpointer user) {
  (void)done;
  Patience *p = user;
  if (so_far->n_best > 0 && p->left-- == 0) raise(SIGINT);
}

/* Ctrl-C after each of the first lists: what was found until then is there and is printed, with what is proven. */
static void stopped_sweeps_keep_what_they_have(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of(MIXTRAL, "\"h100-sxm\"", "[8, 16]", &error);
  g_autoptr(MsSweep) whole = ms_sweep(r, &few, &(MsSweepAsked){.front = TRUE}, NULL);
  for (int shown = 0; shown < 4; shown++) {
    Patience patience = {shown};
    MsPlanOptions options = few;
    options.watch = stop_when_found, options.watch_user = &patience;
    ms_interrupt_install(INFINITY);
    g_autoptr(MsSweep) s = ms_sweep(r, &options, &(MsSweepAsked){.front = TRUE}, NULL);
    assert_string_equal(ms_interrupt_reason(), "interrupted");
    assert_true(s->interrupted && s->n_requests == 2 && s->n_cells >= 1 && s->n_points >= 1);
    double best = s->cell[0].plan->best[0].result->step_time_s,
           true_best = whole->cell[0].plan->best[0].result->step_time_s,
           within = ms_plan_gap(s->cell[0].plan, s->cell[0].request);
    assert_true(within >= 0 && within < 1 && true_best >= best * (1 - within) * (1 - 1e-9));
    g_autofree char *text = ms_report_sweep(s);
    assert_non_null(strstr(text, "INTERRUPTED: 1 of 2 clusters begun"));
    assert_non_null(strstr(text, "(proven)"));
  }
  ms_interrupt_install(INFINITY); /* for those that follow */
  assert_null(ms_interrupt_reason());
}

/* A search that starts from the step times of others, under other limits of memory, finds and counts what it finds
 * alone. */
static void searches_share_what_they_simulated(void **state) {
  (void)state;
  static const double limits[] = {1, 0.5, 0.3, 0.7};
  GError *error = NULL;
  g_autoptr(GPtrArray) r = requests_of(MIXTRAL, "\"h100-sxm\"", "16", &error);
  if (!r) fail_msg("%s", error->message);
  g_autoptr(MsPlanKnown) known = ms_plan_known_new();
  int found = 0;
  for (guint i = 0; i < G_N_ELEMENTS(limits); i++) {
    MsRequest request = *(MsRequest *)g_ptr_array_index(r, 0); /* only read */
    MsPlanOptions sharing = few;
    request.max_memory_fraction = limits[i], sharing.known = known;
    g_autoptr(MsPlan) alone = ms_plan(&request, &few, &error), together = ms_plan(&request, &sharing, &error);
    if (!alone || !together) fail_msg("%s", error->message);
    assert_int_equal(alone->n_best, together->n_best);
    assert_int_equal(alone->simulated, together->simulated);
    assert_int_equal(together->resumed, 0);
    for (int k = 0; k < alone->n_best; k++, found++) {
      assert_string_equal(alone->best[k].scenario->name, together->best[k].scenario->name);
      assert_memory_equal(&alone->best[k].figure, &together->best[k].figure, sizeof(double));
    }
  }
  assert_true(found >= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_are_multiplied),
      cmocka_unit_test(placements_are_planned),
      cmocka_unit_test(bad_lists),
      cmocka_unit_test(cells_are_plans),
      cmocka_unit_test(dominance),
      cmocka_unit_test(front_of_all_layouts),
      cmocka_unit_test(front_of_one_search),
      cmocka_unit_test(searches_share_what_they_simulated),
      cmocka_unit_test(stopped_sweeps_keep_what_they_have),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
