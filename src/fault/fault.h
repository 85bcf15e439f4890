/* src/fault/fault.h - a job that fails, saves its state and restarts: one model, closed forms of it, and a
 * discrete-event simulation.
 *
 * Failures of every kind are Poisson processes of the whole job. Useful work is counted in seconds at full speed. After
 * every `interval_s` of it training stops for `stall_s` while a snapshot is taken; `write_s` later, while training goes
 * on, the snapshot is safe. A failure throws the job back to the last safe snapshot; what follows takes the detection
 * time of its kind and `restart_s`, and may itself be hit. Nothing happens to a run but what stands here: in the closed
 * forms node replacement never waits, the job never runs on fewer replicas, and no node is slow; the simulation has
 * those three.
 *
 * Sources: Young 1974, Daly 2006 (checkpoint interval, complete model); the ETTR formula of arXiv 2410.21680;
 * docs/theory/faults.md. */
#ifndef MS_FAULT_FAULT_H
#define MS_FAULT_FAULT_H

#include <glib.h>

#define MS_FAULT_KINDS 64

typedef struct {
  double rate_Hz; /* of the whole job at full size */
  double detection_s;
  gboolean takes_node; /* its node must be replaced */
} MsFaultKind;

typedef struct {
  int n_kinds;
  MsFaultKind kind[MS_FAULT_KINDS];
  double interval_s, stall_s, write_s; /* write_s <= interval_s */
  double restart_s;                    /* after detection: start, load, warm up */
  int nodes, spares;                   /* spares < 0: replacement never waits */
  double repair_s;
  gboolean elastic; /* without a spare it runs on with fewer replicas of nodes_per_replica nodes */
  int replicas;
  double nodes_per_replica;
  double slow_Hz, slow_speed, slow_detection_s;
  double work_s, horizon_s; /* a run ends when so much useful work is done and safe, or so much time has passed; either
                               may be infinite, not both */
} MsFaultModel;

/* --- closed.c -------------------------------------------------------------------------------------------------- */
double ms_fault_rate(const MsFaultModel *model); /* failures per second */
/* Mean detection + restart of one failure that nothing hits again. */
double ms_fault_recovery_s(const MsFaultModel *model);
double ms_fault_young_s(const MsFaultModel *model); /* sqrt(2 d M): d the stall, M the mean time between failures.
                                                       INFINITY without failures */
/* sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d for d < 2M, else M. */
double ms_fault_daly_s(const MsFaultModel *model);
/* Expected wall time of `n` intervals of `interval_s`, the last snapshot safe. Exact for the model above:
 *   M = 1 / rate, f = sum of rate_i / rate exp(-rate (detection_i + restart)): the chance that a recovery is not hit
 *   from a restart to the next safe snapshot  a = M (exp(rate (interval + stall + write)) - 1) / f
 *   from one safe snapshot to the next        b = (1 - p) (M / f + a), p = exp(-rate (interval + stall))
 *   whole                                     a + (n - 1) b
 * With write 0 this is Daly's complete model. */
double ms_fault_expected_s(const MsFaultModel *model, double interval_s, double n);
/* Effective training time ratio in a long run: interval / b. */
double ms_fault_ettr(const MsFaultModel *model, double interval_s);
/* First order: (1 - rate (u + interval / 2)) / (1 + stall / interval), u the mean recovery (arXiv 2410.21680); 0 where
 * more would be lost than there is: the expansion holds while failures are rare. */
double ms_fault_ettr_first_order(const MsFaultModel *model, double interval_s);
/* The interval with the highest ms_fault_ettr, by the Brent minimiser of GSL; at least write_s and `shortest_s`. */
double ms_fault_optimal_s(const MsFaultModel *model, double shortest_s);
/* Chance that a node is needed and none is idle: more than `spares` repairs under way, Poisson. 0 without spares to run
 * out of. */
double ms_fault_shortage(const MsFaultModel *model);

/* --- simulate.c ------------------------------------------------------------------------------------------------ */
typedef struct { /* of one run; work + rework + slowed + stall + recovery + waiting = wall */
  double wall_s;
  double work_s; /* useful */
  double rework_s, slowed_s, stall_s, recovery_s, waiting_s;
  double failures[MS_FAULT_KINDS];
  double planned; /* restarts for slow nodes and to grow back */
} MsFaultRun;

/* Run number `index` of the seed: the same whatever runs beside it. */
void ms_fault_simulate(const MsFaultModel *model, guint32 seed, guint32 index, MsFaultRun *run);

#endif
