/* The simulation of failures against its exact closed form, on a grid and with many runs. Full tier only; test_goodput has the rest. */
#include "lib/close.h"

#include "fault/fault.h"

#define HOUR_S 3600.0
#define DAY_S 86400.0

static MsFaultModel model_of(double mtbf_s, double stall_s, double write_s, double interval_s, double intervals) {
  return (MsFaultModel){.n_kinds = 2,
                        .kind = {{0.75 / mtbf_s, 60, TRUE}, {0.25 / mtbf_s, 600, FALSE}},
                        .interval_s = interval_s, .stall_s = stall_s, .write_s = write_s, .restart_s = 400,
                        .nodes = 64, .spares = -1, .replicas = 8, .nodes_per_replica = 8, .repair_s = DAY_S,
                        .work_s = intervals * interval_s, .horizon_s = INFINITY};
}

typedef struct { double mean, error; } Mean;

static Mean mean_wall(const MsFaultModel *m, int runs) {
  double sum = 0, squares = 0;
  for (int i = 0; i < runs; i++) {
    MsFaultRun run;
    ms_fault_simulate(m, 1, (guint32)i, &run);
    double parts = run.work_s + run.rework_s + run.slowed_s + run.stall_s + run.recovery_s + run.waiting_s;
    assert_close(parts, run.wall_s, 1e-9);
    assert_close(run.work_s, m->work_s, 1e-9);
    sum += run.wall_s, squares += run.wall_s * run.wall_s;
  }
  double mean = sum / runs;
  return (Mean){mean, sqrt((squares / runs - mean * mean) / (runs - 1))};
}

/* Every point of the grid within two standard errors; with so many runs these are 0.01 to 0.04 % of the wall time. All points share the seed. */
static void simulation_and_closed_form_agree(void **state) {
  (void)state;
  enum { RUNS = 40000, INTERVALS = 100 };
  static const double mtbf_h[] = {1, 3, 12}, stall_write_s[][2] = {{60, 0}, {3, 0}, {2, 120}, {0.5, 20}}, interval_s[] = {300, 1800};
  double worst = 0;
  int n = 0, outside = 0;
  for (guint a = 0; a < G_N_ELEMENTS(mtbf_h); a++)
    for (guint b = 0; b < G_N_ELEMENTS(stall_write_s); b++)
      for (guint c = 0; c < G_N_ELEMENTS(interval_s); c++, n++) {
        MsFaultModel m = model_of(mtbf_h[a] * HOUR_S, stall_write_s[b][0], stall_write_s[b][1], interval_s[c], INTERVALS);
        Mean got = mean_wall(&m, RUNS);
        double want = ms_fault_expected_s(&m, m.interval_s, INTERVALS), z = (got.mean - want) / got.error;
        worst = MAX(worst, fabs(z));
        outside += fabs(z) > 2;
        print_message("mtbf %g h, stall %g s, write %g s, interval %g s: %.1f +- %.1f against %.1f (%+.2f standard errors)\n", mtbf_h[a], stall_write_s[b][0],
                      stall_write_s[b][1], interval_s[c], got.mean, got.error, want, z);
      }
  print_message("%d points, %d beyond two standard errors, worst %.2f\n", n, outside, worst);
  assert_int_equal(outside, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(simulation_and_closed_form_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
