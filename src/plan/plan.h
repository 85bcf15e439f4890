/* src/plan/plan.h - searching layouts: enumerate, rule out by named rules, bound, fast, full.
 *
 * Pruning uses proven lower bounds only (time and memory), so the winner is the winner of an exhaustive search; `prune = FALSE` checks that.
 * The answer does not depend on the number of threads. */
#ifndef MS_PLAN_PLAN_H
#define MS_PLAN_PLAN_H

#include "sim/simulate.h"

struct MsPlan;
typedef struct {
  int top;             /* how many to keep; default 10 */
  gboolean prune;      /* default TRUE */
  int threads;         /* 0 = all cores */
  gboolean progress;
  /* Called after every batch by the thread that called ms_plan, with what was found so far (not to be kept) and the share that is done; NULL: nobody. */
  void (*watch)(const struct MsPlan *so_far, double done, gpointer user);
  gpointer watch_user;
} MsPlanOptions;

typedef struct { /* one refused class, for --explain */
  char *name;          /* rule word, or "memory", "slower than the best" */
  char *example;       /* layout and reason of the nearest miss */
  guint64 count;
} MsPlanRefusal;

typedef struct {
  MsScenario *scenario; /* complete, owned; model and hardware borrowed from the request's base */
  MsResult *result;     /* full, owned */
} MsPlanEntry;

typedef struct MsPlan {
  guint64 searched, valid, feasible, pruned, simulated; /* candidates; obey the rules; fit in memory; cut by bound; run in full */
  double elapsed_s;
  gboolean interrupted;
  int n_best;
  MsPlanEntry *best;    /* ascending step time, ties by layout */
  int n_refusals;
  MsPlanRefusal *refusals; /* descending count */
  double memory_limit_B;
} MsPlan;

void ms_plan_options_init(MsPlanOptions *options);
MsPlan *ms_plan(const MsRequest *request, const MsPlanOptions *options, GError **error);
void ms_plan_free(MsPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPlan, ms_plan_free)

#endif
