/* The map of all layouts: as many as the plan counted, predicted like anybody's scenario, the same on any threads; of a
 * large space a sample drawn at random. */
#include "lib/close.h"

#include "lib/world.h"
#include "plan/map.h"

#include <math.h>
#include <string.h>

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

/* Of more layouts than points every one is counted: as many as the plan found, of each value as many as a request has
 * that leaves no other, whatever the number of threads. */
static void what_is_not_a_point_is_counted(void **state) {
  (void)state;
  g_autoptr(MsRequest) request = ms_test_request_of(
      "{\"name\": \"open\", \"model\": {\"base\": \"llama3-8b\", \"num_layers\": 8}, \"hardware\": \"h100-sxm\", "
      "\"gpus\": 8, \"training\": {\"seq_length\": 4096, \"global_batch_size\": 32, \"micro_batch_size\": [1, 2]}, "
      "\"layout\": {\"cp\": [1, 2], \"vpp\": 1}, \"options\": {\"overlap_grad_reduce\": [true, false]}}");
  g_autoptr(MsLayoutMap) map = map_of(request, 3, 10), alone = map_of(request, 1, 10), every = map_of(request, 2, 2000);
  double sum = 0;
  assert_int_equal(every->n_bins, 0);
  assert_int_equal(map->n, 10);
  assert_in_range(map->n_bins, 5, 100);
  assert_in_range(map->n_keys, 2, 9);
  assert_int_equal(map->n_bins, alone->n_bins);
  for (int b = 0; b < map->n_bins; b++) {
    const MsMapBin *bin = &map->bin[b], *again = &alone->bin[b];
    sum += bin->layouts;
    assert_true(bin->step_time_s == again->step_time_s && bin->device_B == again->device_B);
    assert_memory_equal(bin->counts, again->counts, sizeof(double) * (size_t)bin->n_counts);
    if (b > 0) assert_true(bin->step_time_s > bin[-1].step_time_s || bin->device_B > bin[-1].device_B);
  }
  assert_true(sum == map->layouts && sum == every->layouts);
  int from = 0;
  for (int k = 0; k < map->n_keys; k++) {
    g_autoptr(JsonNode) values = json_from_string(map->key[k].values, NULL);
    int n = (int)json_array_get_length(json_node_get_array(values));
    gboolean tp = strcmp(map->key[k].path, "layout.tp") == 0;
    double of_key = 0;
    for (int v = 0; v < n; v++) {
      double layouts = 0, points = 0;
      for (int b = 0; b < map->n_bins; b++) layouts += map->bin[b].counts[from + v];
      for (int i = 0; tp && i < every->n; i++)
        points += every->point[i].scenario->layout.tp == json_array_get_int_element(json_node_get_array(values), v);
      if (tp) assert_true(layouts == points); /* there every layout is a point */
      of_key += layouts;
    }
    assert_true(of_key == map->layouts);
    from += n;
  }
  assert_int_equal(from, map->bin[0].n_counts);
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
                                     cmocka_unit_test(what_is_not_a_point_is_counted),
                                     cmocka_unit_test(of_a_large_space_a_sample_is_drawn)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
