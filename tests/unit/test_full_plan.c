/* The planner on every small request: the pruned list is that of the exhaustive search, whatever shortcut is left out. */
#include "lib/close.h"
#include "lib/plan_requests.h"

#include "plan/plan.h"

static void every_pruned_list_is_the_exhaustive_list(void **state) {
  (void)state;
  for (guint i = 0; i < ms_n_small_requests; i++) ms_assert_exhaustive(&ms_small_requests[i]);
  assert_true(ms_n_small_requests >= 30);
}

static void no_shortcut_matters(void **state) {
  (void)state;
  for (guint i = 0; i < ms_n_small_requests; i++) {
    g_autoptr(MsRequest) request = ms_small_request(&ms_small_requests[i]);
    g_autoptr(MsPlan) all = ms_small_plan(request, TRUE, 2, 5);
    for (int k = 0; k < MS_SHORT_SAME; k++) {
      g_autoptr(MsPlan) less = ms_plan(request, &(MsPlanOptions){.top = 5, .prune = TRUE, .without = 1u << k, .threads = 2}, NULL);
      assert_non_null(less);
      ms_assert_same_plans(request, all, less);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_pruned_list_is_the_exhaustive_list), cmocka_unit_test(no_shortcut_matters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
