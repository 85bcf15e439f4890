/* src/plan/space_priv.h - internal to plan/: axes of integers times choices of everything else that is open. */
#ifndef MS_PLAN_SPACE_PRIV_H
#define MS_PLAN_SPACE_PRIV_H

#include "layout/layout.h"
#include "plan/choices_priv.h"

typedef struct {
  int n, *value;
} MsIntAxis;                                         /* ascending, owned */
int ms_axis_place(const MsIntAxis *axis, int value); /* of a value among its own; -1: it is none */

enum { MS_AXIS_GPUS, MS_AXIS_TP, MS_AXIS_CP, MS_AXIS_EP, MS_AXIS_ETP, MS_AXIS_MBS, MS_AXIS_PP, MS_AXIS_VPP, MS_N_AXES };
enum { MS_N_OUTER = MS_AXIS_PP };         /* the axes before pp: what pieces of work depend on */
extern const char *const ms_axis_paths[]; /* "gpus", "layout.tp", ... */

struct MsCuts;
struct MsPieceMemo;

typedef struct { /* the request taken apart */
  const MsRequest *request;
  MsIntAxis axis[MS_N_AXES];
  MsOpenKey cut; /* layout.pipeline_layout, where the request does not say */
  struct MsCuts *cuts;
  const struct MsPieceMemo *like; /* the search's first pieces, borrowed: others share their kernel curves */
  int n_choices;                  /* by role, in the order of MsRole */
  MsChoice *choice;
  gint64 n_of_role[MS_N_ROLES]; /* combinations of the choices of one role */
  gint64 stride[MS_N_ROLES]; /* combinations of the choices of all later roles: a combination is the sum of stride x the
                              * role's own; in each the last choice varies fastest */
  gint64 n_combos;
  gint64 stride_of_shape, n_shapes; /* of the choices of MS_ROLE_SHAPE, whoever shares what; they follow one another */
  const MsChoice *own_cut;          /* that of the planner's own cuts; NULL: there is none */
  /* what rules see of a combination; only after ms_space_tabulate */
  int n_classes;        /* combinations of the choices that rules read together with the axes */
  guint16 *class_of;    /* [n_combos] */
  gint16 *refused_by;   /* [n_combos] rule that refuses it whatever the axes are, -1 = none */
  guint32 *class_count; /* [n_classes] combinations that no such rule refuses */
  int *class_example;   /* [n_classes] one of them, -1 = none */
} MsSpace;

/* With `shared` FALSE every open key counts as one of MS_ROLE_WORK: nothing is shared between combinations. */
MsSpace *ms_space_new(const MsRequest *request, gboolean shared, GError **error);
void ms_space_free(MsSpace *space);
double ms_space_size(const MsSpace *space);
/* The choice of a key; NULL: the key is an axis or is not open. */
const MsChoice *ms_space_choice(const MsSpace *space, const char *path);
/* Layouts that differ in their pieces or their cut, of sizes that divide the GPUs. */
double ms_space_shapes(const MsSpace *space);
/* The last role of the open keys that a rule reads: its verdict is settled with them and, if it is of that kind, the
 * sizes. MS_ROLE_WORK where it reads none. */
MsRole ms_latest_role_read(const MsSpace *space, const MsRule *rule);
/* A unit is one setting of the outer axes, an inner one of pp and vpp: how many there are, and their values. */
int ms_space_units(const MsSpace *space);
void ms_space_unit(const MsSpace *space, int unit, gint32 *value); /* the inner axes: their first values */
int ms_space_inners(const MsSpace *space);
void ms_space_inner(const MsSpace *space, int inner, gint32 *value);
/* The planner's own candidates of an axis and what the scenario has, ascending. `axis` is empty; its values are the
 * caller's. */
void ms_axis_candidates(const MsScenario *scenario, int which, MsIntAxis *axis);
/* Asks the rules about options of every combination. FALSE when there are too many for a table. */
gboolean ms_space_tabulate(MsSpace *space);

/* A scenario to write candidates into: model and hardware are borrowed from the request. (transfer full) */
MsScenario *ms_space_scratch(const MsSpace *space);
void ms_space_apply_combo(const MsSpace *space, gint64 combo, MsScenario *scenario);
void ms_space_apply_choices(const MsSpace *space, MsRole role, gint64 combo,
                            MsScenario *scenario); /* those of one role */
void ms_space_apply_axes(const gint32 *value, MsScenario *scenario);
/* Keys that only the simulation sees, at the values that need the least memory and whose passes wait for the fewest
 * messages. */
void ms_space_write_least(const MsSpace *space, MsScenario *scenario);
/* Number of the combination's values of keys of MS_ROLE_SHAPE. */
int ms_space_shape_of(const MsSpace *space, gint64 combo);

/* A combination whose choices make no difference with these axes (cp_comm_type with CP 1): another combination, the one
 * with the key's first value, stands for it. `scenario` has both written in. */
gboolean ms_space_same_as_another(const MsSpace *space, gint64 combo, const MsScenario *scenario);
/* The combination that stands for this one with these axes, which are written into `scenario`. */
gint64 ms_space_standing(const MsSpace *space, gint64 combo, const MsScenario *scenario);
/* The same as far as keys before MS_ROLE_STATE go. */
gboolean ms_space_same_as_another_shape(const MsSpace *space, gint64 combo, const MsScenario *scenario);
/* As far as keys before `before` go, MS_ROLE_SHAPE at most: these look at the outer axes alone. */
gboolean ms_space_idle_before(const MsSpace *space, gint64 combo, const MsScenario *scenario, MsRole before);

/* Reasons for refusal behind the rules: ms_num_rules + one of these. */
enum {
  MS_REFUSED_MEMORY,
  MS_REFUSED_DEADLINE,
  MS_REFUSED_SAME,
  MS_REFUSED_ERROR,
  MS_REFUSED_START, /* MsPlanOptions.starts */
  MS_N_REFUSED
};

#endif
