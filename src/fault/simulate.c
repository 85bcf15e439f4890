/* src/fault/simulate.c - one run of the model, event by event.
 *
 * Poisson processes have no memory, so the next failure may be drawn anew after every event; what is scheduled
 * (snapshots, repairs, the detection of a slow node) is few and known, and the next event is the smallest of them.
 * Repairs take equally long, so they come back in the order of failing. */
#include "fault/fault.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <string.h>

typedef struct {
  const MsFaultModel *m;
  gsl_rng *rng;
  MsFaultRun *run;
  double rate; /* of failures at full size */
  double t;
  double work, safe;          /* done; in the last safe snapshot */
  double pending, pending_at; /* work in the snapshot that is being written, and when it is safe; pending < 0: none */
  double executed;            /* work done, whether kept or lost */
  double compute_s;           /* wall time computing */
  double slow_until;          /* INFINITY: no slow node */
  int idle, missing;          /* spare nodes; nodes that the job lacks */
  GQueue repairs;             /* of double *: when each is back */
} Job;

static double draw(Job *j, double rate_Hz) { return rate_Hz > 0 ? gsl_ran_exponential(j->rng, 1 / rate_Hz) : INFINITY; }

static double share(const Job *j) { return (double)(j->m->nodes - j->missing) / j->m->nodes; }

static int replicas(const Job *j) {
  return j->missing == 0 ? j->m->replicas : (int)floor((j->m->nodes - j->missing) / j->m->nodes_per_replica + 1e-9);
}

static double speed(const Job *j) {
  return (double)replicas(j) / j->m->replicas * (isfinite(j->slow_until) ? j->m->slow_speed : 1);
}

/* Until the run ends, whatever goes on. */
static double time_left(const Job *j) { return MAX(j->m->horizon_s - j->t, 0); }

/* --- nodes ----------------------------------------------------------------------------------------------------- */
static double next_repair(const Job *j) {
  const double *when = g_queue_peek_head((GQueue *)&j->repairs);
  return when ? *when : INFINITY;
}

static void take_repairs(Job *j) {
  while (next_repair(j) <= j->t) {
    g_free(g_queue_pop_head(&j->repairs));
    if (j->missing > 0) j->missing--;
    else j->idle++;
  }
}

static void lose_node(Job *j) {
  take_repairs(j);
  if (j->m->spares < 0) return;
  double *when = g_new(double, 1);
  *when = j->t + j->m->repair_s;
  g_queue_push_tail(&j->repairs, when);
  if (j->idle > 0) j->idle--;
  else j->missing++;
}

/* Until the job can run: all its nodes, or when elastic one replica. */
static void wait_for_nodes(Job *j) {
  while (j->missing > 0 && !(j->m->elastic && replicas(j) >= 1) && time_left(j) > 0) {
    double until = MIN(MAX(next_repair(j), j->t), j->m->horizon_s);
    j->run->waiting_s += until - j->t;
    j->t = until;
    take_repairs(j);
  }
}

/* --- failures and recovery ------------------------------------------------------------------------------------- */
static int which(Job *j) {
  double at = gsl_rng_uniform(j->rng) * j->rate;
  int last = 0;
  for (int i = 0; i < j->m->n_kinds; i++) {
    if (!(j->m->kind[i].rate_Hz > 0)) continue;
    last = i;
    if ((at -= j->m->kind[i].rate_Hz) < 0) break;
  }
  return last;
}

static void back_to_safe(Job *j) {
  if (j->pending >= 0 && j->pending_at <= j->t) j->safe = j->pending;
  j->pending = -1;
  j->work = j->safe;
}

/* A recovery of `recovery_s` that failures may hit: then that failure's own begins. */
static void recover(Job *j, double recovery_s) {
  for (;;) {
    wait_for_nodes(j);
    double hit = draw(j, j->rate * share(j));
    double most = MIN(recovery_s, time_left(j)), spent = MIN(hit, most);
    j->t += spent;
    j->run->recovery_s += spent;
    if (hit >= most) return;
    const int kind = which(j);
    j->run->failures[kind]++;
    if (j->m->kind[kind].takes_node) lose_node(j);
    recovery_s = j->m->kind[kind].detection_s + j->m->restart_s;
  }
}

static void fail(Job *j) {
  const int kind = which(j);
  j->run->failures[kind]++;
  back_to_safe(j);
  if (j->m->kind[kind].takes_node) lose_node(j);
  recover(j, j->m->kind[kind].detection_s + j->m->restart_s);
}

/* Time in which training stands still; FALSE when a failure or the end of the run ended it. */
static gboolean stand(Job *j, double time_s) {
  double hit = draw(j, j->rate * share(j)), most = MIN(time_s, time_left(j)), spent = MIN(hit, most);
  j->t += spent;
  j->run->stall_s += spent;
  if (hit < most) fail(j);
  return hit >= most && most == time_s;
}

/* --- snapshots ------------------------------------------------------------------------------------------------- */
static gboolean snapshot(Job *j) {
  if (!stand(j, j->m->stall_s)) return FALSE;
  if (j->pending >= 0 && j->pending_at <= j->t) j->safe = j->pending;
  j->pending = j->work;
  j->pending_at = j->t + j->m->write_s;
  return TRUE;
}

/* The snapshot just taken is safe before anything else happens. */
static gboolean make_safe(Job *j) {
  if (!stand(j, MAX(j->pending_at - j->t, 0))) return FALSE;
  j->safe = j->pending;
  j->pending = -1;
  return TRUE;
}

/* Save, then restart on purpose: nothing to detect, nothing lost. */
static void restart_planned(Job *j) {
  if (!snapshot(j) || !make_safe(j)) return;
  j->run->planned++;
  recover(j, j->m->restart_s);
}

static void replace_slow(Job *j) {
  j->slow_until = INFINITY;
  if (!snapshot(j) || !make_safe(j)) return;
  lose_node(j);
  j->run->planned++;
  recover(j, j->m->restart_s);
}

/* --- computing ------------------------------------------------------------------------------------------------- */
static void compute(Job *j, double time_s, double v) {
  j->t += time_s;
  j->compute_s += time_s;
  j->work += v * time_s;
  j->executed += v * time_s;
}

/* When enough nodes are back for one more replica. */
static double regrowth(const Job *j) {
  if (j->missing == 0) return INFINITY;
  int have = replicas(j), need = 0;
  for (const GList *l = j->repairs.head; l; l = l->next) {
    need++;
    int would = j->missing - need <= 0 ? j->m->replicas
                                       : (int)floor((j->m->nodes - j->missing + need) / j->m->nodes_per_replica + 1e-9);
    if (would > have) return *(const double *)l->data;
  }
  return INFINITY;
}

/* To the next event, or to the end of the run: what was computed by then counts. */
static void step(Job *j, double goal) {
  double v = speed(j), left = MAX(goal - j->work, 0) / v, grow = regrowth(j);
  double hit = draw(j, j->rate * share(j)),
         slow = isfinite(j->slow_until) ? INFINITY : draw(j, j->m->slow_Hz * share(j));
  double found = j->slow_until - j->t, back = grow - j->t, first = MIN(MIN(MIN(left, hit), MIN(slow, found)), back);
  compute(j, MIN(MAX(first, 0), time_left(j)), v);
  if (time_left(j) <= 0) return;
  if (first == left) {
    j->executed += goal - j->work; /* rounding */
    j->work = goal;
    snapshot(j);
  } else if (first == hit) {
    fail(j);
  } else if (first == slow) {
    j->slow_until = j->t + j->m->slow_detection_s;
  } else if (first == found) {
    replace_slow(j);
  } else {
    take_repairs(j);
    restart_planned(j);
  }
}

/* The next snapshot comes a whole interval after the last one; work is a whole number of intervals or endless. */
static double next_goal(const Job *j) {
  double taken = j->pending >= 0 ? j->pending : j->safe;
  return MIN((floor(taken / j->m->interval_s + 1e-6) + 1) * j->m->interval_s, j->m->work_s);
}

static gboolean done(Job *j) {
  if (j->work < j->m->work_s * (1 - 1e-12)) return FALSE;
  return j->pending < 0 ? j->safe >= j->m->work_s * (1 - 1e-12) : make_safe(j);
}

void ms_fault_simulate(const MsFaultModel *m, guint32 seed, guint32 index, MsFaultRun *run) {
  memset(run, 0, sizeof *run);
  Job j = {.m = m,
           .rng = gsl_rng_alloc(gsl_rng_mt19937),
           .run = run,
           .rate = ms_fault_rate(m),
           .pending = -1,
           .slow_until = INFINITY,
           .idle = MAX(m->spares, 0)};
  gsl_rng_set(j.rng, (seed + 1) * 2654435761u ^ (index + 1) * 2246822519u);
  g_queue_init(&j.repairs);
  while (j.t < m->horizon_s && !done(&j)) step(&j, next_goal(&j));
  run->wall_s = j.t;
  run->work_s = j.work;
  run->rework_s = j.executed - j.work;
  run->slowed_s = j.compute_s - j.executed;
  g_queue_clear_full(&j.repairs, g_free);
  gsl_rng_free(j.rng);
}
