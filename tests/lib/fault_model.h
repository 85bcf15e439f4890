/* tests/lib/fault_model.h - one job that fails, and the mean wall time of many simulated runs of it. */
#ifndef MS_TESTS_FAULT_MODEL_H
#define MS_TESTS_FAULT_MODEL_H

#include "lib/close.h"

#include "fault/fault.h"

#define HOUR_S 3600.0
#define DAY_S  86400.0

static inline MsFaultModel model_of(double mtbf_s, double stall_s, double write_s, double interval_s,
                                    double intervals) {
  return (MsFaultModel){.n_kinds = 2,
                        .kind = {{0.75 / mtbf_s, 60, TRUE}, {0.25 / mtbf_s, 600, FALSE}},
                        .interval_s = interval_s,
                        .stall_s = stall_s,
                        .write_s = write_s,
                        .restart_s = 400,
                        .nodes = 64,
                        .spares = -1,
                        .replicas = 8,
                        .nodes_per_replica = 8,
                        .repair_s = DAY_S,
                        .work_s = intervals * interval_s,
                        .horizon_s = INFINITY};
}

typedef struct {
  double mean, error;
} Mean;

static inline Mean mean_wall(const MsFaultModel *m, int runs) {
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

#endif
