/* src/cluster/units.h - ranks that cannot differ, as one.
 *
 * A place is what ranks of all stages share that hand messages to each other: place i has the i-th rank of every stage.
 * Places whose ranks have the same properties and meet the same others in every group end every task at the same time,
 * so one of them, a unit, stands for all. Found by refining classes until no group tells two of one class apart. */
#ifndef MS_CLUSTER_UNITS_H
#define MS_CLUSTER_UNITS_H

#include "layout/layout.h"

typedef struct {
  guint32 n;        /* groups that differ in who is in them */
  guint32 *of;      /* [units] which */
  guint32 *example; /* [n] a unit of each */
} MsMeet;

typedef struct {
  int stages, places; /* ranks of a stage */
  int *rank;          /* [stages * places] ascending in each stage */
  guint32 units;
  guint32 *unit_of;         /* [places] */
  int *place;               /* [units] the first of its places */
  int *places_of;           /* [units] how many */
  MsMeet meet[MS_N_GROUPS]; /* of kinds inside a stage; n = 0: of the others and
                               of groups of one */
} MsUnits;

/* property[stages * places], in the order of rank[]: ranks may be taken together where it is the same; NULL: nothing
 * is. (transfer full) */
MsUnits *ms_units_new(const MsLayout *layout, const guint32 *property);
void ms_units_free(MsUnits *units);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MsUnits, ms_units_free)
/* Ranks of the stages of a layout, in the order of MsUnits.rank. (transfer full) */
int *ms_ranks_by_stage(const MsLayout *layout);
/* Groups of the kind lie inside a stage. */
gboolean ms_meets_in_stage(MsGroupKind kind);
static inline int ms_unit_rank(const MsUnits *u, int stage, guint32 unit) {
  return u->rank[stage * u->places + u->place[unit]];
}

#endif
