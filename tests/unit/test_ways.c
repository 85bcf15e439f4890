/* What would fit where nothing does: every way is a layout that obeys the rules and fits, and the numbers of GPUs that
 * are said to be too few are. */
#include "lib/close.h"
#include "lib/world.h"

#include "study/parts.h"
#include "study/ways.h"

#include <math.h>
#include <string.h>

static const MsPlanOptions one = {.top = 1, .prune = TRUE, .threads = 2};

/* Eight layers of Llama 3 8B, of which eight GPUs with so little memory hold no layout. */
static MsRequest *too_large(const char *gpus) {
  g_autofree char *text = ms_test_request_text(
      "{\"base\": \"llama3-8b\", \"num_layers\": 8}", "{\"base\": \"h100-sxm\", \"hbm_B\": 9e9}", gpus,
      "\"global_batch_size\": 96, \"micro_batch_size\": \"auto\"", "\"cp\": 1", "\"recompute\": \"auto\"");
  return ms_test_request_of(text);
}

static void ways_fit(void **state) {
  (void)state;
  GError *error = NULL;
  g_autoptr(MsRequest) request = too_large("8");
  g_autoptr(MsPlan) plan = ms_plan(request, &one, &error);
  if (!plan) fail_msg("%s", error->message);
  assert_int_equal(plan->n_best, 0);
  g_autoptr(MsWays) ways = ms_ways_new(request, &one);
  int of_kind[MS_N_WAYS] = {0};
  for (int i = 0; i < ways->n; i++) {
    const MsWay *way = &ways->way[i];
    g_autoptr(MsResult) full = ms_test_simulate(way->scenario, MS_FIDELITY_FULL);
    assert_true(full->feasible && ms_device_B(full) <= 0.94 * way->scenario->hardware->hbm_B);
    assert_close(way->device_B, ms_device_B(full), 0);
    assert_close(way->step_time_s, full->step_time_s, 0.1);
    of_kind[way->kind]++;
    if (way->kind == MS_WAY_GPUS) assert_true(way->scenario->gpus > 8);
    else assert_int_equal(way->scenario->gpus, 8);
    if (way->kind == MS_WAY_MACHINE) assert_true(way->scenario->hardware->hbm_B > 9e9);
  }
  assert_int_equal(of_kind[MS_WAY_GPUS], 1);
  assert_true(of_kind[MS_WAY_MACHINE] > 3);
  for (guint i = 0; i < ways->gpus_tried->len; i++) {
    request->base->gpus = (int)g_array_index(ways->gpus_tried, double, i);
    g_autoptr(MsPlan) none = ms_plan(request, &one, &error);
    if (!none || none->n_best > 0) fail_msg("%d GPUs are enough", request->base->gpus);
  }
}

/* Where less of a GPU may be used than is usual: the limit that is named lets some layout in, and two percent less of
 * the device memory none of those that save memory. */
static void a_limit_is_named(void **state) {
  (void)state;
  g_autofree char *text = ms_test_request_text("{\"base\": \"llama3-8b\", \"num_layers\": 8}", "\"h100-sxm\"", "8",
                                               "\"global_batch_size\": 96, \"micro_batch_size\": 1", "\"cp\": 1",
                                               "\"recompute\": {\"granularity\": \"full\"}");
  g_autoptr(MsRequest) request = ms_test_request_of(text);
  request->max_memory_fraction = 0.02;
  g_autoptr(MsWays) ways = ms_ways_new(request, &one);
  double named = NAN;
  for (int i = 0; i < ways->n; i++)
    if (g_str_has_prefix(ways->way[i].change, "max_memory_fraction "))
      named = g_ascii_strtod(strchr(ways->way[i].change, ' '), NULL);
  for (int less = 0; less < 2; less++) {
    request->max_memory_fraction = named - 0.02 * less;
    g_autoptr(MsPlan) plan = ms_plan(request, &one, NULL);
    assert_int_equal(plan->n_best, less ? 0 : 1);
  }
}

static void nodes_are_filled(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = too_large("100");
  int below, above;
  assert_true(ms_whole_nodes(request->base->hardware, 100, &below, &above));
  assert_int_equal(below, 96);
  assert_int_equal(above, 104);
  assert_false(ms_whole_nodes(request->base->hardware, 96, &below, &above));
  assert_false(ms_whole_nodes(request->base->hardware, 4, &below, &above));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ways_fit), cmocka_unit_test(a_limit_is_named),
                                     cmocka_unit_test(nodes_are_filled)};
  return cmocka_run_group_tests_name("ways", tests, NULL, NULL);
}
