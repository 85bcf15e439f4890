/* The simulation of failures against its exact closed form, on a grid and with many runs. Full tier only; test_goodput
 * has the rest. */
#include "lib/close.h"

#include "lib/fault_model.h"

/* Every point of the grid within two standard errors; with so many runs these are 0.015 to 0.06 % of the wall time. All
 * points share the seed. */
static void simulation_and_closed_form_agree(void **state) {
  (void)state;
  enum { RUNS = 20000, INTERVALS = 100 };
  static const double mtbf_h[] = {1, 3, 12}, stall_write_s[][2] = {{60, 0}, {3, 0}, {2, 120}, {0.5, 20}},
                      interval_s[] = {300, 1800};
  double worst = 0;
  int n = 0, outside = 0;
  for (guint a = 0; a < G_N_ELEMENTS(mtbf_h); a++)
    for (guint b = 0; b < G_N_ELEMENTS(stall_write_s); b++)
      for (guint c = 0; c < G_N_ELEMENTS(interval_s); c++, n++) {
        MsFaultModel m =
            model_of(mtbf_h[a] * HOUR_S, stall_write_s[b][0], stall_write_s[b][1], interval_s[c], INTERVALS);
        Mean got = mean_wall(&m, RUNS);
        double want = ms_fault_expected_s(&m, m.interval_s, INTERVALS), z = (got.mean - want) / got.error;
        worst = MAX(worst, fabs(z));
        outside += fabs(z) > 2;
        print_message(
            "mtbf %g h, stall %g s, write %g s, interval %g s: %.1f +- %.1f against %.1f (%+.2f standard errors)\n",
            mtbf_h[a], stall_write_s[b][0], stall_write_s[b][1], interval_s[c], got.mean, got.error, want, z);
      }
  print_message("%d points, %d beyond two standard errors, worst %.2f\n", n, outside, worst);
  assert_int_equal(outside, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(simulation_and_closed_form_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
