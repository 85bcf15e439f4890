/* src/plan/cut_store_priv.h - internal to plan/: the cuts made so far. */
#ifndef MS_PLAN_CUT_STORE_PRIV_H
#define MS_PLAN_CUT_STORE_PRIV_H

#include "plan/once_priv.h"
#include "plan/space_priv.h"

typedef struct MsCuts MsCuts; /* of all threads */
MsCuts *ms_cuts_new(void);
void ms_cuts_free(MsCuts *cuts);

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
  GHashTable *number;  /* MsCostsKey with the PP -> number of these, rounded */
  GHashTable *numbers; /* rounded costs as bytes -> their number */
  GPtrArray *rounded;  /* MsRoundedCosts by number */
  GHashTable *texts;   /* MsCutKey -> layout string, "" = none */
  GHashTable *by_cost; /* stages and what layers cost, as bytes -> cuts balanced by it (cuts.c) */
  GHashTable *turns;   /* MsCutKey without costs -> MsScheduleTurns, NULL = there is no such schedule */
};
/* What one of the tables has under a key; FALSE: nothing yet. */
gboolean ms_cuts_find(MsCuts *cuts, GHashTable *table, gconstpointer key, gpointer *found);
/* Adds `own` under a copy of `key`, or drops it where another thread was quicker. What the table has now. */
gpointer ms_cuts_add(MsCuts *cuts, GHashTable *table, gconstpointer key, gsize size, gpointer own, GDestroyNotify drop);

#endif
