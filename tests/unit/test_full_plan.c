/* The planner on every small request: the pruned list is that of the exhaustive search, whatever shortcut is left out.
 */
#include "lib/close.h"
#include "lib/plan_requests.h"

#include "plan/plan.h"

static void every_pruned_list_is_the_exhaustive_list(void **state) {
  (void)state;
  for (guint i = 0; i < ms_n_small_requests; i++) ms_assert_exhaustive(&ms_small_requests[i]);
  assert_true(ms_n_small_requests >= 30);
}

/* Branch and bound against looking at everything. */
static void every_branched_list_is_the_exhaustive_list(void **state) {
  (void)state;
  for (guint i = 0; i < ms_n_small_requests; i++) {
    g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[i]);
    g_autoptr(MsPlan) every = ms_plan(request, &(MsPlanOptions){.top = 10, .threads = 2}, NULL);
    g_autoptr(MsPlan) tree =
        ms_plan(request, &(MsPlanOptions){.top = 10, .prune = TRUE, .branch = TRUE, .threads = 2}, NULL);
    assert_true(every && tree && tree->branched && !every->branched);
    ms_assert_same_plans(request, every, tree);
  }
}

static const MsSmallRequest open_requests[] = {
    /* with many keys left open */
    {"llama, nearly everything open", "{\"base\": \"llama3-8b\", \"num_layers\": 6}", "h100-sxm", 8, 4096, 16,
     "\"micro_batch_size\": [1, 2], \"precision\": [\"bf16\", \"fp8-tensorwise\"]",
     "\"cp\": 1, \"tp\": [1, 2], \"pp\": [1, 2], \"vpp\": [1, 3], \"order\": \"auto\", \"schedule\": [\"1f1b\", "
     "\"zb-v\", \"zb-h1\", \"gpipe\"]",
     "\"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"full\"}], \"overlap_grad_reduce\": \"auto\", "
     "\"overlap_param_gather\": \"auto\", \"overlap_p2p_comm\": \"auto\", "
     "\"tp_comm_overlap\": \"auto\", \"cuda_graph_scope\": [[], [\"attn\"]],"},
    {"mixtral, experts and memory open", "{\"base\": \"mixtral-8x7b\", \"num_layers\": 4}", "h100-sxm", 16, 4096, 32,
     "\"micro_batch_size\": 1, \"precision\": \"bf16\"",
     "\"cp\": 1, \"tp\": [1, 2], \"pp\": [1, 2], \"vpp\": [1, 2], \"ep\": [2, 8], \"etp\": 1",
     "\"dispatcher\": \"auto\", \"ep_overlap\": \"auto\", \"delay_wgrad\": \"auto\", \"fsdp\": \"auto\", "
     "\"distributed_optimizer\": \"auto\", \"offload_modules\": \"auto\", "
     "\"optimizer_offload_fraction\": [0, 1], \"overlap_grad_reduce\": \"auto\", \"overlap_param_gather\": [false, "
     "true],"},
    {"deepseek, context and kernels open",
     "{\"base\": \"deepseek-v3\", \"num_layers\": 4, \"moe_layer_freq\": \"[0]*1+[1]*3\"}", "gb200-nvl72", 32, 8192, 64,
     "\"micro_batch_size\": 1, \"precision\": [\"bf16\", \"mxfp8\"]",
     "\"tp\": [1, 2], \"cp\": [1, 2], \"pp\": [1, 2], \"vpp\": 1, \"ep\": [16], \"etp\": 1, \"cp_comm_type\": "
     "\"auto\", \"order\": \"auto\"",
     "\"dispatcher\": \"auto\", \"ep_overlap\": \"auto\", \"recompute\": \"auto\", \"fp8_param_gather\": \"auto\", "
     "\"cuda_graph_scope\": \"auto\","},
};

static void wide_requests_too(void **state) {
  (void)state;
  for (guint i = 0; i < G_N_ELEMENTS(open_requests); i++) {
    g_autoptr(MsRequest) request = ms_small_request(&open_requests[i]);
    g_autoptr(MsPlan) every = ms_plan(request, &(MsPlanOptions){.top = 10, .threads = 2}, NULL);
    g_autoptr(MsPlan) tree =
        ms_plan(request, &(MsPlanOptions){.top = 10, .prune = TRUE, .branch = TRUE, .threads = 2}, NULL);
    assert_true(every && tree && every->n_best == 10);
    ms_assert_same_plans(request, every, tree);
    print_message("%s: %.3g layouts, %.3g simulated; branched: %.3g bounded, %.3g screened, %.3g simulated\n",
                  open_requests[i].name, (double)every->searched, (double)every->simulated, (double)tree->bounded,
                  (double)tree->screened, (double)tree->simulated);
    assert_true(tree->simulated < every->simulated);
  }
}

static void no_shortcut_matters(void **state) {
  (void)state;
  for (guint i = 0; i < ms_n_small_requests; i++) {
    g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[i]);
    g_autoptr(MsPlan) all = ms_small_plan(request, TRUE, 2, 5);
    for (int k = 0; k < MS_SHORT_SAME; k++) {
      g_autoptr(MsPlan) less =
          ms_plan(request, &(MsPlanOptions){.top = 5, .prune = TRUE, .without = 1u << k, .threads = 2}, NULL);
      assert_non_null(less);
      ms_assert_same_plans(request, all, less);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_pruned_list_is_the_exhaustive_list),
                                     cmocka_unit_test(every_branched_list_is_the_exhaustive_list),
                                     cmocka_unit_test(wide_requests_too), cmocka_unit_test(no_shortcut_matters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
