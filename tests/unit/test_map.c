/* The map of all layouts: as many as the plan counted, predicted like anybody's scenario, the same on any threads; of a
 * large space a sample drawn at random. */
#include "lib/close.h"

#include "lib/world.h"
#include "plan/map.h"

#include <math.h>

enum { POINTS = 60 };

static MsLayoutMap *map_of(const MsRequest *request, int threads, int points) {
  GError *error = NULL;
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.threads = threads, options.progress = FALSE;
  MsLayoutMap *map = ms_layout_map(request, &options, points, &error);
  if (!map) fail_msg("%s", error->message);
  return map;
}

static double stands_for(const MsLayoutMap *map) {
  double sum = 0;
  for (int i = 0; i < map->n; i++) sum += map->point[i].count;
  return sum;
}

static void check_points(const MsLayoutMap *map, const MsRequest *request) {
  for (int i = 0; i < map->n; i += 29) {
    const MsMapPoint *p = &map->point[i];
    g_autoptr(MsResult) r = ms_simulate(p->scenario, MS_FIDELITY_FAST, NULL, NULL);
    assert_true(r->step_time_s == p->step_time_s);
    assert_true(p->device_B > 0 && p->scenario->gpus == request->base->gpus);
  }
}

static void a_small_space_is_looked_at_layout_by_layout(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = ms_test_request_of(ms_test_small_request);
  g_autoptr(MsLayoutMap) map = map_of(request, 2, 300), alone = map_of(request, 1, 300);
  MsPlanOptions options;
  ms_plan_options_init(&options);
  options.progress = FALSE, options.prune = FALSE;
  g_autoptr(MsPlan) plan = ms_plan(request, &options, NULL);
  assert_false(map->drawn);
  assert_int_equal((int)map->layouts, (int)plan->valid);
  assert_true(fabs(stands_for(map) - map->layouts) < 1e-6 * map->layouts);
  check_points(map, request);
  double best_s = INFINITY;
  assert_int_equal(map->n, alone->n);
  for (int i = 0; i < map->n; i++) {
    assert_true(map->point[i].step_time_s == alone->point[i].step_time_s);
    assert_true(map->point[i].device_B == alone->point[i].device_B);
    if (map->point[i].device_B <= plan->memory_limit_B) best_s = fmin(best_s, map->point[i].step_time_s);
  }
  assert_close(best_s, plan->best[0].result->step_time_s, 0.05); /* at fast, so not the same */
}

static void of_a_large_space_a_sample_is_drawn(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = ms_test_request_of(
      "{\"name\": \"large\", \"model\": {\"base\": \"mixtral-8x7b\", \"num_layers\": 8}, \"hardware\": \"h100-sxm\", "
      "\"gpus\": 16, \"training\": {\"seq_length\": 1024, \"global_batch_size\": 16, \"micro_batch_size\": \"auto\"}, "
      "\"layout\": {\"pipeline_layout\": \"auto\"}, \"options\": {\"recompute\": \"auto\", \"cuda_graph_scope\": "
      "\"auto\", \"dispatcher\": \"auto\", \"ep_overlap\": \"auto\", \"delay_wgrad\": [true, false], "
      "\"overlap_grad_reduce\": [true, false], \"overlap_param_gather\": [true, false], \"fsdp\": \"auto\"}}");
  g_autoptr(MsLayoutMap) map = map_of(request, 2, POINTS);
  assert_true(map->drawn && map->n == POINTS);
  assert_true(map->layouts > 1e4);
  assert_true(stands_for(map) <= map->layouts * (1 + 1e-9));
  check_points(map, request);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_space_is_looked_at_layout_by_layout),
                                     cmocka_unit_test(of_a_large_space_a_sample_is_drawn)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
