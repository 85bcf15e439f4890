/* src/plan/cuts_priv.h - internal to plan/: a cut tried out, and improved. */
#ifndef MS_PLAN_CUTS_PRIV_H
#define MS_PLAN_CUTS_PRIV_H

#include "plan/plan_priv.h"
#include "sched/sched.h"

enum { MS_CUT_ROUNDS = 2 }; /* of the pipeline that are run slot by slot; with more the dearest rank decides */

/* What a GPU does once a step for each piece that it has, in the unit of the costs. */
typedef struct {
  MsLayerCosts *sent;    /* gradients, from its last backward on; half as long before its first forward: parameters */
  MsLayerCosts *updated; /* by the optimizer, behind the gradient norm */
} MsOnce;
/* Of the scenario's groups and `costs` of its pieces, in picoseconds, with parameters. NULL: next to nothing beside so
 * many microbatches, or not known. */
MsOnce *ms_once_new(const MsLayerCosts *costs, const MsScenario *scenario, double microbatches);
void ms_once_free(MsOnce *once);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsOnce, ms_once_free)
/* The costs of a whole step, both added up. (transfer full) */
MsLayerCosts *ms_once_with(const MsOnce *once, MsLayerCosts *costs, double microbatches);

/* Where the host issues layers for longer than they run: it runs ahead in dear pieces and falls behind in cheap ones,
 * so that a rank takes the larger of two sums, not the sum of what is larger for each piece. */
typedef struct {
  MsLayerCosts *bare, *host; /* in the unit of the costs */
} MsPace;
/* Of costs in picoseconds. NULL: no layer is issued for longer than it runs. */
MsPace *ms_pace_new(const MsLayerCosts *costs);
void ms_pace_free(MsPace *pace);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsPace, ms_pace_free)

enum { MS_CUT_PATHS = 8 }; /* kept of the last runs of a schedule */
typedef struct {
  int rank;             /* whose last slot ends it */
  double *cost, *issue; /* [n] how often a stage runs on it, how often its host issues one: shares of both passes */
} MsCutPath;

typedef struct { /* borrows costs, ranks, turns, once and pace */
  const MsLayerCosts *costs;
  const MsOnce *once; /* NULL: only the passes count */
  const MsPace *pace; /* NULL: the host is always ahead */
  gboolean waits;     /* it waits for messages; FALSE in a new trial */
  MsStages on;
  int rounds;                           /* microbatches / ranks */
  const MsScheduleTurns *turns;         /* of MS_CUT_ROUNDS rounds at most; NULL: none is run */
  int *first;                           /* [n] first layer of each stage of the cut that is weighed */
  double *cost;                         /* [n] */
  double *forward, *backward;           /* [n] */
  double *load;                         /* [ranks] sums of cost */
  double *issue;                        /* [3 n] of the host: cost, forward, backward */
  double *issue_before;                 /* [layers + 1] */
  double *before;                       /* [pools][layers + 1] sums over the layers before */
  double *sent, *updated;               /* [n] once a step */
  double *sent_before, *updated_before; /* [layers + 1] */
  double *scratch;
  gint64 slots; /* run so far, or seen to be needless */
  MsCutPath path[MS_CUT_PATHS];
  int n_paths, oldest, telling; /* telling: which spared the last run */
  int *passes;                  /* [4][n] scratch */
} MsCutTrial;
MsCutTrial *ms_cut_trial_new(const MsLayerCosts *costs, const MsOnce *once, const MsPace *pace, const MsStages *on,
                             int rounds, const MsScheduleTurns *turns);
void ms_cut_trial_free(MsCutTrial *trial);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsCutTrial, ms_cut_trial_free)
/* Never more than the next: a rank begins when the first chunks before it have let a microbatch through, and its last
 * backward has to go back through them. */
double ms_cut_least(MsCutTrial *trial, const int *counts);
/* End of a step of these rounds, in the unit of the costs. */
double ms_cut_end(MsCutTrial *trial, const int *counts);
/* Moves layers while the step ends sooner than `end`; returns when it ends. */
double ms_cut_climb(MsCutTrial *trial, int *counts, double end);

/* --- made so far (cut_store.c) --- */
typedef struct {
  gint32 stages, ranks, placing, rounds, costs, by_memory; /* steps of MS_CUT_MEMORY_STEPS */
  gint32 waits;                                            /* the host, for messages */
} MsCutKey;                                                /* rounds 0: no schedule is run */
typedef struct {
  MsLayerCosts *costs;
  MsOnce *once;   /* NULL: only the passes count */
  MsPace *pace;   /* NULL: the host is always ahead */
  gint32 without; /* number of the same costs where what is done once does not count */
} MsRoundedCosts;
void ms_rounded_costs_clear(MsRoundedCosts *rounded); /* what it has */
typedef struct {
  gint32 value[MS_N_OUTER], combo[2];
  gint32 pp; /* 0: of any */
} MsCostsKey;

struct MsCuts {
  GMutex lock;
  GHashTable *costs;   /* MsCostsKey -> MsLayerCosts of its pieces */
  GHashTable *number;  /* MsCostsKey with the PP -> number of these, rounded, + 1 */
  GHashTable *numbers; /* rounded costs as bytes -> their number */
  GPtrArray *rounded;  /* MsRoundedCosts by number */
  GHashTable *texts;   /* MsCutKey -> layout string, "" = none */
  GHashTable *turns;   /* MsCutKey without costs -> MsScheduleTurns, NULL = there is no such schedule */
};

#endif
