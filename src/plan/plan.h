/* src/plan/plan.h - searching layouts: enumerate, rule out by named rules, bound, fast, full.
 *
 * Pruning uses proven lower bounds only (time and memory), so the winner is the winner of an exhaustive search; `prune
 * = FALSE` checks that. Few layouts are looked at one by one; of many (MS_PLAN_EVERY), sets are bounded and cut, the
 * most promising first. The answer does not depend on the number of threads. */
#ifndef MS_PLAN_PLAN_H
#define MS_PLAN_PLAN_H

#include "sim/simulate.h"

struct MsPlan;
/* Step times that searches have simulated, for others of the same request that differ in the limit of memory or in the
 * options below alone: they start from them. Between two searches nobody else may use it. */
typedef struct MsPlanKnown MsPlanKnown;
MsPlanKnown *ms_plan_known_new(void);
void ms_plan_known_free(MsPlanKnown *known); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPlanKnown, ms_plan_known_free)

typedef struct {
  int top;         /* how many to keep; default 10 */
  gboolean prune;  /* default TRUE; FALSE: every layout that obeys the rules and fits is simulated */
  guint without;   /* shortcuts that are left out: bits of MsShortcut. None of them changes the answer */
  gboolean branch; /* branch and bound even where there are few enough layouts to look at each */
  int threads;     /* 0 = all cores */
  gboolean rough;  /* `fast` stands for `full`: what fits is the same, its order nearly */
  gboolean progress;
  /* Called after every batch by the thread that called ms_plan, with what was found so far (not to be kept) and the
   * share that is done; NULL: nobody. */
  void (*watch)(const struct MsPlan *so_far, double done, gpointer user);
  gpointer watch_user;
  const char *checkpoint; /* file that keeps what was simulated, for `resume`; NULL: none */
  const char *resume;     /* such a file of the same request: what it holds is not simulated again */
  MsPlanKnown *known;     /* read, and added to; NULL: none. Not with `rough` */
  /* Whether what will start the layouts takes this one, or *error; the others are refused. From any thread. NULL: all
   */
  gboolean (*starts)(const MsScenario *scenario, gpointer user, GError **error);
  gpointer starts_user;
  double limit_cost; /* of the objective: what costs more is not looked for, with `prune`; 0: none */
} MsPlanOptions;

/* What makes the search short, one by one. */
typedef enum {
  MS_SHORT_BOUND,   /* layouts whose bound of the time is above the last of the list are not simulated */
  MS_SHORT_RELAXED, /* the same with the tighter bound of bound/relaxed.c */
  MS_SHORT_MEMORY,  /* layouts whose bound of the memory does not fit are not looked at more closely */
  MS_SHORT_SHARED,  /* options that cannot change a bound share it */
  MS_SHORT_SAME,    /* of layouts that differ only in an option that makes no difference, one is searched */
  MS_N_SHORT
} MsShortcut;
extern const char *const ms_shortcut_words[]; /* bound relaxed memory shared same-as-another */

typedef struct { /* one refused class, for --explain */
  char *name;    /* rule word, or "memory", "slower than the best" */
  char *example; /* layout and reason of the nearest miss */
  char *layout;  /* that layout alone, and by how much it missed, in the unit of the rule: of "memory" bytes */
  double miss;
  guint64 count;
} MsPlanRefusal;

typedef struct {
  MsScenario *scenario; /* complete, owned; model and hardware borrowed from the request's base */
  MsResult *result;     /* full, owned */
  double figure;        /* of the objective, in ms_objective_unit */
} MsPlanEntry;

typedef struct MsPlan {
  guint64 searched, valid, feasible, pruned,
      simulated; /* candidates; obey the rules; fit in memory; cut by bound (0: stopped before it
                  * is known); run in full. Of a branched search
                  * sets of layouts are cut before anybody asks whether they obey the rules or fit: `valid` are those
                  * that no rule was seen to refuse */
  guint64 bounded, screened,
      resumed; /* bounded in time and memory; bounded again more tightly; taken from `resume` instead of simulated */
  double elapsed_s;
  gboolean interrupted, branched;
  double lower_cost; /* of the objective: no layout of the request costs less. Of a finished search that of the best
                        one; 0: nothing is known */
  MsGoal objective;
  int n_best;
  MsPlanEntry *best; /* by the request's objective, then step time; ties by layout */
  int n_refusals;
  MsPlanRefusal *refusals; /* descending count */
  double memory_limit_B;
} MsPlan;

/* The largest space that is looked at one by one: its layouts, and those of them that differ in pieces or cut and are
 * of sizes that divide the GPUs, each of which takes a cut to bound. */
#define MS_PLAN_EVERY       2e7
#define MS_PLAN_EVERY_SHAPE 2e6
#define MS_PLAN_EVERY_ROUGH 2e5 /* its layouts where the search is rough: nobody asks what each was refused by */
enum { MS_PLAN_TOP = 10 };      /* layouts that are kept where nobody says how many */
void ms_plan_options_init(MsPlanOptions *options);
/* Searches the layouts of a request; NULL and *error for what is refused. (transfer full) */
MsPlan *ms_plan(const MsRequest *request, const MsPlanOptions *options, GError **error);
/* Share of the best cost by which some layout may still undercut it: 0 for a finished search; NaN when nothing is
 * known. */
double ms_plan_gap(const MsPlan *plan, const MsRequest *request);
void ms_plan_free(MsPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPlan, ms_plan_free)

typedef struct {
  MsScenario *scenario; /* complete, owned; model and hardware borrowed from the request's base */
  double step_time_s, device_B;
  gboolean interrupted; /* then proven_within is what is proven, as ms_plan_gap */
  double proven_within;
} MsFrontPoint;
/* Share of the device memory that the next point may take; 0 or less: there is none. */
typedef double (*MsFrontNext)(const MsFrontPoint *found, gpointer user);
/* The best layout within the request's limit of memory, then the best within what `next` says of that one, and so on
 * until nothing fits: the winners of that many plans, fastest first, found in one search. Limits never rise. *stopped:
 * it was interrupted, the last point may be unproven. Array of MsFrontPoint (transfer full, with their scenarios), NULL
 * and *error when the request cannot be planned. */
GArray *ms_plan_front(const MsRequest *request, const MsPlanOptions *options, MsFrontNext next, gpointer user,
                      gboolean *stopped, GError **error);
/* At least a share `step`, a double, of the device memory less than `found`. */
double ms_front_step(const MsFrontPoint *found, gpointer step);

/* The request file that asks whether a run has the layout it should have (around.c): sizes of groups, VPP, microbatch
 * size, layers of the stages and recomputation left open - what the planner tries by itself and what the run has - all
 * else as in the run. `needed_fraction` is the share of the device memory that the run is known to need (0: unknown): a
 * run that trains fits, so that the planner may use as much. Indented as a person would keep it. (transfer full) */
char *ms_request_around(const MsScenario *run, double needed_fraction);

/* Whether "auto" tries this precision on all machines of the scenario. */
gboolean ms_precision_tried(const MsScenario *scenario, int precision);

/* --- what plans are ranked by (objective.c) -------------------------------------------------------------------- */
/* FALSE and *error when the request does not say what its objective needs. */
gboolean ms_objective_check(const MsRequest *request, GError **error);
/* What the search minimises. Never falls when step_s rises, so that a lower bound of the step is one of it. INFINITY:
 * misses the deadline. */
double ms_objective_cost(const MsRequest *request, int gpus, double step_s);
/* The same as a person reads it, in ms_objective_unit: step time, tokens/s/GPU, price or energy of a million tokens, or
 * time of the whole training. */
double ms_objective_figure(const MsRequest *request, int gpus, double step_s);
const char *ms_objective_unit(MsGoal goal);
const char *ms_objective_phrase(MsGoal goal);      /* what comes first, behind "ranked by" */
double ms_request_gpu_W(const MsRequest *request); /* while it trains; NaN: unknown */
/* Tokens that the whole training takes with the scenario's batch, of B tokens: training_tokens (1 + B / critical batch)
 * (McCandlish and others, An Empirical Model of Large-Batch Training, arXiv 1812.06162, equation 2.11). NaN: not said.
 */
double ms_request_tokens(const MsRequest *request, const MsScenario *scenario);
/* One sentence: price or power assumed, with its source; NULL when nothing is. (transfer full) */
char *ms_objective_assumption(const MsRequest *request);

#endif
